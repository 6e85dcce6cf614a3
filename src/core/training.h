/* SPDX-License-Identifier: MIT
 * The passes of training, on the blas engine's weights: the forward pass with dropout and tape, and the backward pass.
 *
 * Both go through the tokens in blocks, as the forward pass of inference does, and begin with the same steps; those stand in training_block.c. */
#ifndef FFNI_TRAINING_PASSES_H
#define FFNI_TRAINING_PASSES_H

#include "base/arena.h"
#include "core/context.h"
#include "core/forward.h"
#include "core/gradients.h"
#include "core/tape.h"

/* ------------------------------------------------------------------ The block */

typedef struct training_block {
    const ffn_layer_t *layer;
    const training_table_t *kernels;
    ffn_context_t *context;
    const rows_t *x, *residual;
    const dropout_t *dropout;
    int64_t begin, rows;
    const float *input; /* of the products: in input_rows or in x */
    int64_t input_stride;
    float *input_rows; /* [rows, d_model] */
} training_block_t;

/* Rows of a block at the most. */
enum { TRAINING_ROWS = 512 };

typedef uint64_t block_bytes_fn(const ffn_layer_t *layer, int64_t rows);

/* Rows of each of the equal blocks that the tokens go through in: at most `most`, and what the context's limit of scratch memory allows. FFN_NO_MEMORY. */
ffn_status_t ffni_training_rows(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, int64_t most, block_bytes_fn *bytes,
                                int64_t *rows);

/* x after norm IN, or x itself where sgemm can read it in place. */
void ffni_training_take_input(training_block_t *block);

/* hidden [rows, hidden_width] = the block's input times the first weights, without bias. */
void ffni_training_project_in(const training_block_t *block, float *hidden);

/* Where dropout acts on pre-activations: adds the bias to those that it acts on and drops, in place. The row's bias is then used up. */
void ffni_training_drop_hidden(const training_block_t *block, int64_t row, float *hidden);

/* The bias that is left to add to the pre-activations dropout acts on. */
const float *ffni_training_bias(const training_block_t *block, const float *bias);

/* The activated row, dropped: act [d_ff] from hidden, which dropout has been at, and which act may be. */
void ffni_training_activate(const training_block_t *block, int64_t row, float *act, const float *hidden);
void ffni_training_drop_activated(const training_block_t *block, int64_t row, float *act);

/* out = product + bias (which may be absent). */
void ffni_training_add_bias(const training_block_t *block, float *out, const float *product);

/* f = the branch from the down product, which f may be: bias, norm BRANCH, dropout. */
void ffni_training_branch(const training_block_t *block, int64_t row, float *f, const float *product);

/* The residual's row, or NULL. */
const float *ffni_training_residual(const training_block_t *block, int64_t row);

/* ------------------------------------------------------------------- Passes */

/* y = layer(x) with dropout, recorded on the tape (NULL: none), for forward->x.count > 0 rows. FFN_NO_MEMORY: nothing was written. */
ffn_status_t ffni_training_forward(const forward_t *forward, const dropout_t *dropout, ffn_tape_t *tape);

typedef struct backward {
    const ffn_layer_t *layer;
    ffn_context_t *context;
    ffn_tape_t *tape;
    rows_t d_y, d_x, d_residual; /* base NULL: not wanted */
    gradients_t *gradients;
} backward_t;

/* The backward pass of what is on the tape, for more than 0 rows, up to but without ffni_gradients_finish. FFN_NO_MEMORY: nothing was written. */
ffn_status_t ffni_training_backward(const backward_t *backward);

uint64_t ffni_training_forward_bytes(const ffn_layer_t *layer, int64_t rows);
uint64_t ffni_training_backward_bytes(const ffn_layer_t *layer, int64_t rows); /* of every gradient, recomputing */

/* Bytes of scratch memory that both need for any number of tokens up to `tokens`, weights of odd layouts aside. */
ffn_status_t ffni_training_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

#endif
