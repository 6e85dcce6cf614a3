/* SPDX-License-Identifier: MIT
 * The router's matrix times rows of hidden states. */
#ifndef FFNI_MOE_LOGITS_H
#define FFNI_MOE_LOGITS_H

#include "core/linear.h"

typedef struct logits {
    linear_t linear; /* but for its panels, which the call makes of the weight */
    rows_t x;
    view_t weight;
    float *out; /* [tokens, experts] */
} logits_t;

/* FFN_NO_MEMORY: scratch memory. */
ffn_status_t ffni_moe_logits(ffn_context_t *context, logits_t *logits);

#endif
