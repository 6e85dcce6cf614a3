/* SPDX-License-Identifier: MIT
 * The forward pass of the blas engine.
 *
 * Tokens go through in blocks, so that the scratch memory does not grow with their number. Each block takes five steps: two products by BLAS, on
 * the calling thread, and three passes over rows between them, on the context's threads. y is written by the last step alone. */
#include "core/blas.h"

#include "base/arena.h"
#include "base/checked.h"
#include "core/gemm.h"
#include "core/parallel.h"
#include "core/steps.h"
#include "core/watch.h"

#include <limits.h>
#include <string.h>

/* Rows of a block at the most. Two sgemms in blocks of 256 rows measure 1.05x of the time in one piece, 1.2x at 128, 1.4x at 64. */
enum { BLOCK_ROWS = 512 };

typedef struct scratch {
    float *input;  /* [rows, d_model]: x after norm IN, or x where sgemm cannot read it in place */
    float *hidden; /* [rows, hidden_width]: gate and up side by side; the activation then lies in the first d_ff of each row */
    float *branch; /* [rows, d_out] */
    counts_t counts;
} scratch_t;

typedef struct block {
    const forward_t *forward;
    scratch_t scratch;
    int64_t begin, rows;
    const float *input; /* of the products: in scratch or in x */
    int64_t input_stride;
} block_t;

static scratch_t lay_out(const ffn_layer_t *layer, int64_t rows, arena_t *arena) {
    const int64_t element = sizeof(float);
    scratch_t scratch;
    scratch.input = ffni_arena_take(arena, rows, layer->d_model * element);
    scratch.hidden = ffni_arena_take(arena, rows, layer->hidden_width * element);
    scratch.branch = ffni_arena_take(arena, rows, layer->d_out * element);
    scratch.counts = ffni_counts_lay_out(layer->d_ff, arena);
    return scratch;
}

/* UINT64_MAX: beyond any memory. */
static uint64_t block_bytes(const ffn_layer_t *layer, int64_t rows) {
    arena_t measure = {0};
    lay_out(layer, rows, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

/* The most rows of a block that the context's limit allows: 0 if not one. */
static int64_t most_rows(const ffn_layer_t *layer, const ffn_context_t *context) {
    int64_t rows = BLOCK_ROWS;
    while (rows && context->scratch_limit && block_bytes(layer, rows) > context->scratch_limit) rows /= 2;
    return rows;
}

ffn_status_t ffni_blas_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes) {
    int64_t most = most_rows(layer, context);
    if (!most) return ffni_context_limit_error(context, block_bytes(layer, 1));
    /* Room for the largest block of any run of up to so many tokens: what is reserved for many serves fewer. */
    *bytes = tokens ? block_bytes(layer, minimum(tokens, most)) : 0;
    return FFN_OK;
}

/* --------------------------------------------------------- Steps, row by row */

static void input_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const ffn_layer_t *layer = block->forward->layer;
    int64_t width = layer->d_model;
    for (int64_t i = begin; i < end; i++) {
        const float *x = rows_at(&block->forward->x, block->begin + i);
        float *input = block->scratch.input + i * width;
        if (layer->norm_slot[FFN_NORM_IN] != FFN_NORM_NONE)
            ffni_step_normalise(layer, FFN_NORM_IN, width, input, x);
        else
            memcpy(input, x, (size_t)width * sizeof *input);
    }
}

static void activate_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const ffn_layer_t *layer = block->forward->layer;
    const activation_t *activation = &layer->activation;
    int64_t d_ff = layer->d_ff;
    for (int64_t i = begin; i < end; i++) {
        float *hidden = block->scratch.hidden + i * layer->hidden_width;
        if (layer->gated)
            layer->kernels->activate_gated[activation->kind](activation, d_ff, hidden, hidden, layer->gate_bias, hidden + d_ff, layer->up_bias);
        else
            layer->kernels->activate[activation->kind](activation, d_ff, hidden, hidden, layer->up_bias);
        if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) ffni_step_normalise(layer, FFN_NORM_MID, d_ff, hidden, hidden);
    }
}

static void normalise_hidden_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const ffn_layer_t *layer = block->forward->layer;
    for (int64_t i = begin; i < end; i++) {
        float *hidden = block->scratch.hidden + i * layer->hidden_width;
        ffni_step_normalise(layer, FFN_NORM_MID, layer->d_ff, hidden, hidden);
    }
}

static const float *residual_row(const block_t *block, int64_t i) {
    const forward_t *forward = block->forward;
    switch (forward->layer->residual) {
    case FFN_RESIDUAL_INPUT: return rows_at(&forward->x, block->begin + i);
    case FFN_RESIDUAL_NORMED: return block->input + i * block->input_stride;
    case FFN_RESIDUAL_EXTERNAL: return rows_at(&forward->residual, block->begin + i);
    default: return NULL;
    }
}

static void finish_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const ffn_layer_t *layer = block->forward->layer;
    for (int64_t i = begin; i < end; i++)
        ffni_step_finish(layer, block->scratch.branch + i * layer->d_out, residual_row(block, i), rows_at(&block->forward->y, block->begin + i));
}

/* ------------------------------------------------------------------ The steps */

/* sgemm reads x in place where one stride serves all rows and fits its integers. */
static int input_in_place(const block_t *block) {
    const rows_t *x = &block->forward->x;
    return block->forward->layer->norm_slot[FFN_NORM_IN] == FFN_NORM_NONE && x->length == x->count && x->row_stride / 4 <= INT_MAX;
}

static void take_input(block_t *block) {
    const forward_t *forward = block->forward;
    if (input_in_place(block)) {
        block->input = rows_at(&forward->x, block->begin);
        block->input_stride = forward->x.row_stride / 4;
        return;
    }
    block->input = block->scratch.input;
    block->input_stride = forward->layer->d_model;
    ffni_parallel_rows(forward->context, block->rows, forward->layer->d_model, input_rows, block);
}

static void project_in(const block_t *block) {
    const ffn_layer_t *layer = block->forward->layer;
    ffni_gemm(block->rows, layer->hidden_width, layer->d_model, block->input, block->input_stride, layer->in_weight, block->scratch.hidden);
}

/* Counting goes by columns, what else happens to hidden rows by rows. */
static void activate_and_count(block_t *block) {
    const ffn_layer_t *layer = block->forward->layer;
    ffn_context_t *context = block->forward->context;
    const network_t network = ffni_layer_expert(layer, 0);
    const watched_rows_t watched = {.network = &network, .counts = &block->scratch.counts, .rows = block->rows, .hidden = block->scratch.hidden,
                                    .hidden_stride = layer->hidden_width, .bias = layer->gated ? layer->gate_bias : layer->up_bias,
                                    .out = block->scratch.hidden, .out_stride = layer->hidden_width};
    ffni_watch_rows(context, &watched);
    if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) ffni_parallel_rows(context, block->rows, layer->d_ff, normalise_hidden_rows, block);
}

static void activate(block_t *block) {
    const forward_t *forward = block->forward;
    if (forward->stats) activate_and_count(block);
    else ffni_parallel_rows(forward->context, block->rows, forward->layer->hidden_width, activate_rows, block);
}

static void project_down(const block_t *block) {
    const ffn_layer_t *layer = block->forward->layer;
    ffni_gemm(block->rows, layer->d_out, layer->d_ff, block->scratch.hidden, layer->hidden_width, layer->down_weight, block->scratch.branch);
}

static void finish(block_t *block) {
    ffni_parallel_rows(block->forward->context, block->rows, block->forward->layer->d_out, finish_rows, block);
}

ffn_status_t ffni_blas_forward(const forward_t *forward) {
    int64_t tokens = forward->x.count, most = most_rows(forward->layer, forward->context);
    uint64_t bytes = 0;
    ffn_status_t status = ffni_blas_scratch(forward->layer, forward->context, tokens, &bytes);
    if (!status) status = ffni_context_scratch(forward->context, bytes);
    if (status) return status;
    /* Blocks of equal size, so that none is a small rest that BLAS is slow at. */
    int64_t blocks = (tokens - 1) / most + 1, rows = (tokens - 1) / blocks + 1;
    arena_t arena = {.base = forward->context->scratch};
    block_t block = {.forward = forward, .scratch = lay_out(forward->layer, rows, &arena)};
    if (forward->stats) ffni_counts_clear(&block.scratch.counts, forward->layer->d_ff);
    for (block.begin = 0; block.begin < tokens; block.begin += rows) {
        block.rows = minimum(rows, tokens - block.begin);
        take_input(&block);
        project_in(&block);
        activate(&block);
        project_down(&block);
        finish(&block);
    }
    if (forward->stats) ffni_stats_add(forward->stats, 0, forward->layer->d_ff, &block.scratch.counts);
    return FFN_OK;
}

uint64_t ffni_blas_stack(const ffn_layer_t *layer, int64_t tokens) {
    if (layer->mixture.experts) return ffni_gemm_general_stack(); /* an expert may get any number of rows */
    uint64_t in = ffni_gemm_stack(tokens, layer->hidden_width, layer->d_model), down = ffni_gemm_stack(tokens, layer->d_out, layer->d_ff);
    return in > down ? in : down;
}
