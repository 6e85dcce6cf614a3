/* SPDX-License-Identifier: MIT
 * The row-wise steps of the backward pass, between its products: from d_y to the down product, through the hidden row, and from the first product to d_x. */
#ifndef FFNI_BACKWARD_ROWS_H
#define FFNI_BACKWARD_ROWS_H

#include "core/training.h"

#include <stdatomic.h>

typedef struct backward_block {
    training_block_t block;
    const backward_t *backward;
    gradients_t *gradients;

    /* Of the block, in scratch memory or on the tape. NULL: not needed. */
    float *hidden;       /* [rows, hidden_width]: pre-activations, then their derivatives */
    int hidden_dropped;  /* dropout has been at the pre-activations */
    const float *branch; /* [rows, d_out]: the down product */
    float *d_act;        /* [rows, d_ff]: derivatives by the hidden row; without norm MID the hidden row itself takes their place */
    float *act, *normed; /* [rows, d_ff]: with norm MID, the row before and behind it */
    float *d_branch;     /* [rows, d_out]: by the down product */
    float *value, *sum;  /* [rows, d_out]: the branch, and a r + c f */
    float *d_residual;   /* [rows, d_out]: by r, where that is x or the normed x */
    float *d_input;      /* [rows, d_model]: by the input of the products */
    depth_product_t product; /* native: threads, and scratch memory of all products */
    atomic_int_fast64_t next; /* native: chunk that no thread has taken yet */
} backward_block_t;

/* The down product must be there: a norm or the gradient of a scale needs it. */
int ffni_backward_needs_branch(const ffn_layer_t *layer, const gradients_t *gradients);

/* Each a rows_fn over the block's chunks of GRADIENT_CHUNK rows. */
void ffni_backward_end_chunks(void *block, int64_t begin, int64_t end);    /* d_y -> d_branch, d_residual */
void ffni_backward_middle_chunks(void *block, int64_t begin, int64_t end); /* d_act, hidden -> hidden row, d hidden */
void ffni_backward_start_chunks(void *block, int64_t begin, int64_t end);  /* d_input, d_residual -> d_x */

#endif
