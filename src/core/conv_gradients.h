/* SPDX-License-Identifier: MIT
 * Where the gradients of a convolutional layer's tensors go: weights by products, tap by tap straight into the caller's arrays where their layout allows,
 * taps and biases by sums over rows, in float32 over 32 of them and in float64 beyond. No sum depends on the threads. */
#ifndef FFNI_CONV_GRADIENTS_H
#define FFNI_CONV_GRADIENTS_H

#include "base/arena.h"
#include "core/conv_pass.h"

typedef struct conv_gradients {
    const ffn_conv_t *conv;
    int accumulate;
    conv_view_t view[ROLE_LIMIT]; /* the caller's; matrix.data NULL: not wanted */

    /* While the backward pass runs, in scratch memory. */
    float *matrix[CONVOLUTIONS]; /* [depth, out] for layouts that sgemm cannot write; else NULL */
    int started[CONVOLUTIONS];   /* a product has been added */
    double *bias[CONVOLUTIONS], *taps[CONVOLUTIONS];
    double xielu[2];
} conv_gradients_t;

/* bound: the caller's views by role, checked. */
void ffni_conv_gradients_init(conv_gradients_t *gradients, const ffn_conv_t *conv, const ffn_tensor_t *const bound[ROLE_LIMIT], int accumulate);

static inline int conv_gradient_wanted(const conv_gradients_t *gradients, int role) {
    return gradients->view[role].matrix.data != NULL;
}

/* Takes scratch memory; and prepares it, before the first block. */
void ffni_conv_gradients_lay_out(conv_gradients_t *gradients, arena_t *arena);
void ffni_conv_gradients_begin(conv_gradients_t *gradients, ffn_context_t *context);

/* The weight's += d^T input, d [rows, out], input [rows, depth]; the bias's += the sums of d's columns. */
void ffni_conv_gradients_multiply(conv_gradients_t *gradients, int part, int64_t rows, operand_t d, operand_t input);
void ffni_conv_gradients_sum(conv_gradients_t *gradients, const conv_pass_t *pass, int part, int64_t rows, operand_t d);

/* Writes what is not in the caller's arrays yet. */
void ffni_conv_gradients_finish(conv_gradients_t *gradients, ffn_context_t *context);

/* The gradients of no rows. */
void ffni_conv_gradients_write_zeros(const conv_gradients_t *gradients);

#endif
