/* SPDX-License-Identifier: MIT
 * The forward pass of a mixture of experts, as its parts see it.
 *
 * Tokens go through in windows, which are routed at once, and these in chunks, which are computed at once: a chunk's slots are sorted by expert, each
 * expert computes the rows of its tokens, and each token's branch is the weighted sum of its rows in the order of its slots. */
#ifndef FFNI_MOE_H
#define FFNI_MOE_H

#include "base/arena.h"
#include "core/capacity.h"
#include "core/forward.h"
#include "core/linear.h"
#include "core/moe_losses.h"

/* What a run brings and wants. Arrays are of all its tokens; NULL: absent. */
typedef struct moe_call {
    ffn_moe_routing_t given; /* ids NULL: none; weights NULL: ids to be weighed */
    const uint8_t *mask;
    uint64_t stream;
    int64_t first_token;
    int32_t *ids;
    float *weights, *logits, *scores;
    moe_tally_t *tally;
} moe_call_t;

/* How a run is cut. */
typedef struct moe_plan {
    int64_t top_k;
    int64_t window, chunk; /* tokens, the most */
    int64_t slots;         /* threads that work */
    uint64_t bytes;
} moe_plan_t;

/* Rows of one network: an expert's, or all of the chunk's for the shared one. */
typedef struct moe_item {
    int32_t expert; /* MOE_SHARED: the shared experts */
    int32_t rows;
    int64_t first;  /* of the sorted slots, or of the chunk's tokens */
} moe_item_t;

enum {
    MOE_SHARED = -1,
    MOE_ROWS_LEAST = 14, /* that an expert's are cut into */
    MOE_ROWS_MOST = 192  /* of an item */
};

/* Scratch memory. NULL: the layer does not need it. */
typedef struct moe_memory {
    /* Of a window */
    int32_t *ids; /* [window, top_k] */
    float *weights;
    float *logits, *scores; /* [window or chunk, choices] */
    capacity_scratch_t capacity;

    /* Of a chunk */
    float *normed;          /* [chunk, d_model] */
    float *latent, *mixed;  /* [chunk, d_latent]: what the experts read, and the sum of what they wrote */
    int32_t *order, *place; /* [chunk * top_k]: slots sorted by expert, and where each slot stands there (-1: at no expert with weights) */
    int64_t *starts;        /* [experts + 1]: where an expert's slots begin in `order` */
    float *rows;            /* [chunk * top_k, expert's d_out]: in the order of `order` */
    float *shared;          /* [chunk, d_out] */
    float *shared_scale;    /* [chunk] */
    float *branch;          /* [chunk, d_out] */
    moe_item_t *unsorted_items, *items;

    linear_scratch_t router, shared_gate, latent_in, latent_out; /* in the same place: one runs at a time */
    char *engine; /* the engine's own */
} moe_memory_t;

typedef struct moe_pass {
    const forward_t *forward;
    const ffn_layer_t *layer;
    ffn_context_t *context;
    moe_plan_t plan;
    moe_memory_t memory;

    int64_t window_begin, window_tokens;
    int64_t begin, tokens; /* of the chunk, or of a block of the window that is routed */
    int64_t item_count;
    rows_t input;          /* n, from input_first on */
    int64_t input_first;
} moe_pass_t;

/* ------------------------------------------------------------------------ Plan */

/* FFN_NO_MEMORY: not one token fits the context's limit of scratch memory. */
ffn_status_t ffni_moe_plan(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, int64_t top_k, moe_plan_t *plan);

moe_memory_t ffni_moe_lay_out(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena);

linear_t ffni_moe_linear(const ffn_layer_t *layer, int weight_role, int bias_role);

/* ----------------------------------------------------------------------- Steps */

/* x after norm IN of the chunk, or block, that begins there. */
void ffni_moe_take_input(moe_pass_t *pass, int64_t begin, int64_t tokens);

/* ids and weights of a window. */
void ffni_moe_route_window(moe_pass_t *pass, int64_t begin, int64_t tokens);

/* Sorts the chunk's slots by expert. */
void ffni_moe_dispatch(moe_pass_t *pass);

/* Cuts them, and the shared experts' rows, into items of at most so many rows, those with the most first. */
void ffni_moe_cut(moe_pass_t *pass, int64_t most_rows);

/* Row `row` of what the experts read, and of what the shared ones do. */
const float *ffni_moe_expert_input(const moe_pass_t *pass, int64_t token);

static inline const float *moe_input(const moe_pass_t *pass, int64_t token) {
    return rows_at(&pass->input, pass->input_first + token);
}

/* The weight of a sorted slot, where it multiplies the expert's input; else 1. */
float ffni_moe_input_weight(const moe_pass_t *pass, int64_t position);

/* ---------------------------------------------------------------------- Counting */

/* Of rows from `first` on of an expert's, or of the shared ones (MOE_SHARED): 0 where one is padding, which is not counted. NULL: all are counted. */
const uint8_t *ffni_moe_counted(const moe_pass_t *pass, int64_t expert, int64_t first);

/* Adds what was counted of an expert's columns to the run's stats. */
void ffni_moe_add_counts(const moe_pass_t *pass, int64_t expert, int64_t column, int64_t columns, const counts_t *counts);

/* Adds the chunk's rows to the positions. */
void ffni_moe_count_positions(const moe_pass_t *pass);

/* --------------------------------------------------------------------- Engines */

/* The rows of the experts and of the shared ones. Bytes: of the engine's scratch memory. */
void ffni_moe_native_experts(moe_pass_t *pass);
uint64_t ffni_moe_native_bytes(const ffn_layer_t *layer, const moe_plan_t *plan);
void ffni_moe_blas_experts(moe_pass_t *pass);
uint64_t ffni_moe_blas_bytes(const ffn_layer_t *layer, const moe_plan_t *plan);

/* ------------------------------------------------------------------------ Pass */

/* As in core/forward.h. */
ffn_status_t ffni_moe_forward(const forward_t *forward);
ffn_status_t ffni_moe_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

#endif
