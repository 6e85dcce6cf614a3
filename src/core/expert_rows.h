/* SPDX-License-Identifier: MIT
 * Rows of an expert between its products, with dropout: the forward pass's steps, which the backward pass takes again. */
#ifndef FFNI_EXPERT_ROWS_H
#define FFNI_EXPERT_ROWS_H

#include "core/dropout.h"
#include "core/layer.h"

typedef struct expert_row {
    const network_t *network;
    const dropout_t *dropout; /* NULL: none */
    int64_t row;              /* of the run: the token's */
    int64_t first_column;     /* of the expert's hidden units in the streams of dropout */
} expert_row_t;

/* Every expert's hidden units have columns of their own: those of expert e begin at e * d_ff, rounded up to a multiple of 4 each; those of the shared
 * experts (expert -1) behind all others. */
int64_t ffni_moe_first_column(const ffn_layer_t *layer, int64_t expert);

/* Where dropout acts on pre-activations: adds the bias to those that it acts on and drops, in place. The bias is then used up. */
void ffni_expert_drop_hidden(const expert_row_t *at, float *hidden);
const float *ffni_expert_bias(const expert_row_t *at);

/* act [d_ff] = the activated row, dropped; it may be hidden. */
void ffni_expert_activate(const expert_row_t *at, float *act, const float *hidden);
void ffni_expert_drop_activated(const expert_row_t *at, float *act);

#endif
