/* SPDX-License-Identifier: MIT
 * The backward pass of the router's matrix: from derivatives by logits to those by its tensors and its input. */
#ifndef FFNI_MOE_LOGITS_BACKWARD_H
#define FFNI_MOE_LOGITS_BACKWARD_H

#include "core/moe_logits.h"

typedef struct logits_backward {
    logits_t forward; /* out and bias are not looked at */
    ffn_context_t *context;
    const float *d_logits; /* [tokens, experts] */
    int accumulate;        /* the tensors' derivatives are added to what is there */
    int add_d_x;           /* d_x likewise */
    rows_t d_x;            /* base NULL: not wanted */
    view_t d_weight;       /* data NULL: not wanted */
    float *d_bias, *d_norm_weight;
} logits_backward_t;

/* FFN_NO_MEMORY: nothing was written. To be called on a thread that is fit for ffni_gemm_general. */
ffn_status_t ffni_moe_logits_backward(const logits_backward_t *backward);

/* The derivatives of no tokens. */
void ffni_moe_logits_backward_zeros(const logits_backward_t *backward);

#endif
