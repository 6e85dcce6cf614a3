/* SPDX-License-Identifier: MIT
 * The forward pass. */
#ifndef FFNI_FORWARD_H
#define FFNI_FORWARD_H

#include "core/dropout.h"
#include "core/layer.h"
#include "core/rows.h"
#include "core/stats.h"

typedef struct moe_call moe_call_t; /* core/moe.h */

typedef struct forward {
    const ffn_layer_t *layer;
    ffn_context_t *context;
    rows_t x, y, residual; /* residual only where it is external */
    const moe_call_t *moe; /* of a mixture; NULL: nothing particular */
    const dropout_t *dropout; /* of a mixture that trains; NULL: none */
    ffn_tape_t *tape;         /* likewise */
    ffn_stats_t *stats; /* NULL: nothing is counted */
} forward_t;

/* y = layer(x), for x.count > 0 rows. The arguments have been checked. FFN_NO_MEMORY: y is untouched. */
ffn_status_t ffni_forward(const forward_t *forward);

/* Bytes of scratch memory that ffni_forward needs in that context for any number of tokens up to `tokens`; UINT64_MAX if that is beyond any memory.
 * FFN_NO_MEMORY: not one token fits the context's limit. */
ffn_status_t ffni_forward_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

/* Bytes of stack that ffni_forward needs on the calling thread beyond a few pages. */
uint64_t ffni_forward_stack(const ffn_layer_t *layer, int64_t tokens);

#endif
