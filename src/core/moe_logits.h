/* SPDX-License-Identifier: MIT
 * The router's matrix times rows of hidden states. */
#ifndef FFNI_MOE_LOGITS_H
#define FFNI_MOE_LOGITS_H

#include "core/rows.h"
#include "core/view.h"
#include "kernels/kernels.h"

typedef struct logits {
    const kernel_table_t *kernels;
    rows_t x;
    view_t weight;
    const float *bias; /* NULL: none */
    uint32_t norm_kind; /* FFN_NORM_* */
    norm_t norm;
    float *out; /* [tokens, experts] */
} logits_t;

/* FFN_NO_MEMORY: scratch memory. */
ffn_status_t ffni_moe_logits(ffn_context_t *context, const logits_t *logits);

#endif
