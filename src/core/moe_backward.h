/* SPDX-License-Identifier: MIT
 * The backward pass of a mixture of experts, as its parts see it.
 *
 * It takes the chunks of the forward pass, whose routing is on the tape: behind the branch as a dense layer does, then one expert after the other in
 * blocks of its rows, then the shared experts, the projections, the router, and the norm before them all. */
#ifndef FFNI_MOE_BACKWARD_H
#define FFNI_MOE_BACKWARD_H

#include "core/backward_rows.h"
#include "core/moe.h"
#include "core/moe_gradients.h"
#include "core/routing_backward.h"

/* Rows of a block of an expert's at the most. */
enum { EXPERT_ROWS = 512 };

/* Scratch memory of a block of rows of a network. */
typedef struct expert_memory {
    float *input, *d_input; /* [rows, d_in] */
    float *d_out;           /* [rows, d_out]: the derivatives by what the network gives, then by its down product */
    float *hidden;          /* [rows, hidden width], where the tape keeps none */
    float *act, *normed;    /* [rows, d_ff]: the hidden row before norm MID and behind it */
    float *d_act;           /* [rows, d_ff] */
    double *xielu;          /* [chunks, 2] */
} expert_memory_t;

/* Scratch memory of a chunk of tokens. NULL: not needed. */
typedef struct moe_backward_memory {
    float *latent, *d_latent, *d_mixed; /* [tokens, d_latent] */
    float *d_weights;                   /* [tokens, top_k] */
    float *d_n;                         /* [tokens, d_model]: by n, as its users add to it */
    float *shared_scale, *d_shared_scale; /* [tokens]: sigmoid, and by what it is of */
    float *vector;                      /* [d_model]: the shared experts' scale weight */
    float *router;                      /* [choices, d_model] */
    float *d_logits;                    /* [tokens, choices] */
    float *router_input, *d_router_input; /* [tokens, d_model] */
    double *scale_sums, *scale_partial; /* as in core/routing_backward.h */
    expert_memory_t expert;
} moe_backward_memory_t;

typedef struct moe_backward {
    backward_block_t b; /* its block is the chunk */
    moe_pass_t pass;    /* for the dispatch: ids are the tape's */
    moe_gradients_t gradients;
    moe_backward_memory_t memory;
    const mixture_tape_t *tape;
} moe_backward_t;

ffn_status_t ffni_moe_backward(const backward_t *backward);

/* Bytes of scratch memory for any gradients of runs of up to so many tokens. */
ffn_status_t ffni_moe_backward_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

/* Smaller chunks, where the backward pass would not fit the context's limit of scratch memory otherwise. */
void ffni_moe_fit_backward(const ffn_layer_t *layer, const ffn_context_t *context, moe_plan_t *plan);

/* --------------------------------------------------------------------- Its parts */

void ffni_expert_memory_lay_out(const ffn_layer_t *layer, int64_t rows, expert_memory_t *memory, arena_t *arena);

/* All rows of an expert in the chunk, or of the shared experts (MOE_SHARED). */
void ffni_moe_backward_network(moe_backward_t *m, int64_t expert);

/* From the derivatives by weights and the losses' to those by the router's tensors and its input. */
void ffni_moe_backward_router(moe_backward_t *m);

/* What the experts read, of the chunk's token. */
static inline const float *moe_backward_input(const moe_backward_t *m, int64_t token) {
    if (m->memory.latent) return m->memory.latent + token * m->b.block.layer->sizes.of[EXTENT_D_LATENT];
    return m->b.block.input + token * m->b.block.input_stride;
}

static inline const float *moe_backward_n(const moe_backward_t *m, int64_t token) {
    return m->b.block.input + token * m->b.block.input_stride;
}

/* d . v, in float64. */
double ffni_dot(int64_t n, const float *d, const float *v);

#endif
