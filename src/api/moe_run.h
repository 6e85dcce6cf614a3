/* SPDX-License-Identifier: MIT
 * What is particular to a run of a mixture of experts: read before it, given back behind it. */
#ifndef FFNI_MOE_RUN_H
#define FFNI_MOE_RUN_H

#include "core/moe.h"

typedef struct moe_particulars {
    ffn_moe_run_t given; /* struct_size 0: none */
    moe_call_t call;
    moe_tally_t tally;
} moe_particulars_t;

/* Checks run->moe. The fields of the run have been checked. */
ffn_status_t ffni_moe_read_run(const ffn_layer_t *layer, const ffn_run_t *run, moe_particulars_t *particulars);

/* Checks the arrays of a run with tokens, against each other and against x, y and residual, and the ids that are given. */
ffn_status_t ffni_moe_check_run(const ffn_layer_t *layer, const forward_t *forward, const moe_particulars_t *particulars);

/* Writes counts and statistics. */
void ffni_moe_write_run(const ffn_layer_t *layer, const moe_particulars_t *particulars);

#endif
