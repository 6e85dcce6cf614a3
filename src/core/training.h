/* SPDX-License-Identifier: MIT
 * The passes of training: the forward pass with dropout and tape, and the backward pass.
 *
 * Both go through the tokens in blocks, as the forward pass of inference does, and begin with the same steps; those stand in training_block.c. With the
 * blas engine the products of a block run on BLAS's threads and the passes over its rows on the context's. With the native one each of the context's
 * threads takes rows of its own through all of them; only the gradients of the matrices, sums over all tokens, are shared by their numbers. */
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
    float *product_scratch; /* native: the thread's */
} training_block_t;

/* Rows of a block at the most. */
enum { TRAINING_ROWS = 512 };

/* Bytes of scratch memory of a block; native: with so many threads at work. */
typedef uint64_t block_bytes_fn(const ffn_layer_t *layer, int64_t rows, int64_t slots);

/* How the tokens go through: in equal blocks of `rows` at most, native: worked on by `slots` threads. */
typedef struct training_plan {
    int64_t rows, slots;
} training_plan_t;

/* Blocks of at most `most` rows, and what the context's limit of scratch memory allows. FFN_NO_MEMORY. */
ffn_status_t ffni_training_plan(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, int64_t most, block_bytes_fn *bytes,
                                training_plan_t *plan);

/* x after norm IN, or x itself where products can read it in place: chooses where the block's input is, and puts rows there. */
void ffni_training_place_input(training_block_t *block);
void ffni_training_take_rows(void *block, int64_t begin, int64_t end);
void ffni_training_take_input(training_block_t *block); /* both, with the context's threads */

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

/* ----------------------------------------------------------------- Products */

static inline int training_is_native(const ffn_layer_t *layer) {
    return layer->engine == FFN_ENGINE_NATIVE;
}

/* hidden [rows, hidden_width] = the block's input times the first weights, without bias. */
void ffni_training_project_in(const training_block_t *block, float *hidden);

/* out [rows, d_out] = act, rows of d_ff numbers `stride` apart, times the down weight. */
void ffni_training_project_down(const training_block_t *block, const float *act, int64_t stride, float *out);

/* The same backwards: d_act [rows, d_ff] from d_branch [rows, d_out], d_input [rows, d_model] from d_hidden [rows, hidden_width]. */
void ffni_training_project_back(const training_block_t *block, const float *d_branch, float *d_act);
void ffni_training_project_out(const training_block_t *block, const float *d_hidden, float *d_input);

/* Elements of a block's product_scratch. */
int64_t ffni_training_product_size(const ffn_layer_t *layer, int64_t rows);

/* ------------------------------------------------------------------- Passes */

/* y = layer(x) with dropout, recorded on the tape (NULL: none), for forward->x.count > 0 rows. FFN_NO_MEMORY: nothing was written. */
ffn_status_t ffni_training_forward(const forward_t *forward, const dropout_t *dropout, ffn_tape_t *tape);

typedef struct backward {
    const ffn_layer_t *layer;
    ffn_context_t *context;
    ffn_tape_t *tape;
    rows_t d_y, d_x, d_residual; /* base NULL: not wanted */
    gradients_t *gradients;
    const ffn_tensor_t *views; /* of a mixture: all that the gradients go to */
    uint64_t view_count;
    ffn_moe_backward_t moe; /* of a mixture */
} backward_t;

/* The backward pass of what is on the tape, for more than 0 rows, up to but without ffni_gradients_finish. FFN_NO_MEMORY: nothing was written. */
ffn_status_t ffni_training_backward(const backward_t *backward);

uint64_t ffni_training_forward_bytes(const ffn_layer_t *layer, int64_t rows, int64_t slots);
uint64_t ffni_training_backward_bytes(const ffn_layer_t *layer, int64_t rows, int64_t slots); /* of every gradient, recomputing */

/* Bytes of scratch memory that the backward pass of so many tokens on the tape needs at the most, in that context; 0 if it cannot run there. */
uint64_t ffni_training_backward_room(const ffn_layer_t *layer, const ffn_context_t *context, const ffn_tape_t *tape, int64_t tokens);

/* Bytes of stack that they need on the calling thread beyond a few pages. */
uint64_t ffni_training_stack(const ffn_layer_t *layer);

/* Bytes of scratch memory that both need for any number of tokens up to `tokens`, weights of odd layouts aside. */
ffn_status_t ffni_training_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

#endif
