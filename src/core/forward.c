/* SPDX-License-Identifier: MIT
 * The forward pass of the blas engine.
 *
 * Tokens go through in blocks, so that the scratch memory does not grow with their number. Each block takes five steps: two products by BLAS, on
 * the calling thread, and three passes over rows between them, on the context's threads. y is written by the last step alone. */
#include "core/forward.h"

#include "base/arena.h"
#include "base/checked.h"
#include "core/gemm.h"
#include "core/parallel.h"

#include <limits.h>
#include <string.h>

/* Rows of a block at the most. Two sgemms in blocks of 256 rows measure 1.05x of the time in one piece, 1.2x at 128, 1.4x at 64. */
enum { BLOCK_ROWS = 512 };

typedef struct scratch {
    float *input;  /* [rows, d_model]: x after norm IN, or x where sgemm cannot read it in place */
    float *hidden; /* [rows, hidden_width]: gate and up side by side; the activation then lies in the first d_ff of each row */
    float *branch; /* [rows, d_out] */
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
    return scratch;
}

/* Blocks of equal size, so that none is a small rest that BLAS is slow at. */
static int64_t block_rows(int64_t tokens) {
    int64_t blocks = (tokens - 1) / BLOCK_ROWS + 1;
    return (tokens - 1) / blocks + 1;
}

uint64_t ffni_forward_scratch(const ffn_layer_t *layer, int64_t tokens) {
    arena_t measure = {0};
    /* Room for the largest block of any run of up to so many tokens: what is reserved for many serves fewer. */
    lay_out(layer, minimum(tokens, BLOCK_ROWS), &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

/* --------------------------------------------------------- Steps, row by row */

static void normalise(const ffn_layer_t *layer, int slot, int64_t n, float *out, const float *in) {
    static const norm_kind_t kind[] = {[FFN_NORM_LAYER] = NORM_LAYER, [FFN_NORM_RMS] = NORM_RMS, [FFN_NORM_AFFINE] = NORM_AFFINE};
    layer->kernels->normalise[kind[layer->norm_slot[slot]]](&layer->norm[slot], n, out, in);
}

static void input_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const ffn_layer_t *layer = block->forward->layer;
    int64_t width = layer->d_model;
    for (int64_t i = begin; i < end; i++) {
        const float *x = rows_at(&block->forward->x, block->begin + i);
        float *input = block->scratch.input + i * width;
        if (layer->norm_slot[FFN_NORM_IN] != FFN_NORM_NONE)
            normalise(layer, FFN_NORM_IN, width, input, x);
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
        if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) normalise(layer, FFN_NORM_MID, d_ff, hidden, hidden);
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
    combine_fn *combine = layer->kernels->combine;
    int64_t width = layer->d_out;
    for (int64_t i = begin; i < end; i++) {
        float *branch = block->scratch.branch + i * width, *y = rows_at(&block->forward->y, block->begin + i);
        const float *bias = layer->down_bias;
        if (layer->norm_slot[FFN_NORM_BRANCH] != FFN_NORM_NONE) {
            if (bias) combine(width, branch, branch, bias, NULL, NULL, NULL);
            normalise(layer, FFN_NORM_BRANCH, width, branch, branch);
            bias = NULL;
        }
        float *sum = layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE ? branch : y;
        combine(width, sum, branch, bias, layer->branch_scale, residual_row(block, i), layer->residual_scale);
        if (sum != y) normalise(layer, FFN_NORM_OUT, width, y, sum);
    }
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

static void activate(block_t *block) {
    ffni_parallel_rows(block->forward->context, block->rows, block->forward->layer->hidden_width, activate_rows, block);
}

static void project_down(const block_t *block) {
    const ffn_layer_t *layer = block->forward->layer;
    ffni_gemm(block->rows, layer->d_out, layer->d_ff, block->scratch.hidden, layer->hidden_width, layer->down_weight, block->scratch.branch);
}

static void finish(block_t *block) {
    ffni_parallel_rows(block->forward->context, block->rows, block->forward->layer->d_out, finish_rows, block);
}

ffn_status_t ffni_forward(const forward_t *forward) {
    int64_t tokens = forward->x.count, rows = block_rows(tokens);
    ffn_status_t status = ffni_context_scratch(forward->context, ffni_forward_scratch(forward->layer, tokens));
    if (status) return status;
    arena_t arena = {.base = forward->context->scratch};
    block_t block = {.forward = forward, .scratch = lay_out(forward->layer, rows, &arena)};
    for (block.begin = 0; block.begin < tokens; block.begin += rows) {
        block.rows = minimum(rows, tokens - block.begin);
        take_input(&block);
        project_in(&block);
        activate(&block);
        project_down(&block);
        finish(&block);
    }
    return FFN_OK;
}
