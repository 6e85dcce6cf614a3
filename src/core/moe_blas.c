/* SPDX-License-Identifier: MIT
 * The experts of the blas engine: one after the other, each by two products of BLAS on the calling thread, with passes over rows between them. */
#include "core/moe.h"

#include "base/checked.h"
#include "core/expert_rows.h"
#include "core/gemm.h"
#include "core/parallel.h"
#include "core/tape.h"
#include "core/watch.h"

/* Rows of a product at the most, as in core/blas.c. */
enum { BLOCK_ROWS = 512 };

typedef struct place {
    float *input;  /* [rows, d_in] */
    float *hidden; /* [rows, hidden width]; without a tape the activation then lies in the first d_ff of each row */
    counts_t counts;
} place_t;

/* Some rows of one network. */
typedef struct block {
    const moe_pass_t *pass;
    network_t network;
    int64_t expert; /* MOE_SHARED: the shared experts */
    int shared;
    int64_t first, rows; /* of the sorted slots, or of the chunk's tokens */
    place_t place;
    float *hidden, *act; /* pre-activations, in place or on the tape, and [rows, d_ff] activated, which may lie in their first columns */
    int64_t act_stride;
} block_t;

static place_t lay_out(const ffn_layer_t *layer, int64_t rows, arena_t *arena) {
    const int64_t element = sizeof(float);
    int64_t hidden = maximum(layer->hidden_width, layer->shared.d_ff * (1 + layer->shared.gated));
    place_t place;
    place.input = ffni_arena_take(arena, rows, maximum(layer->sizes.of[EXTENT_EXPERT_IN], layer->shared.d_in) * element);
    place.hidden = ffni_arena_take(arena, rows, hidden * element);
    place.counts = ffni_counts_lay_out(maximum(layer->d_ff, layer->shared.d_ff), arena);
    return place;
}

uint64_t ffni_moe_blas_bytes(const ffn_layer_t *layer, const moe_plan_t *plan) {
    arena_t measure = {0};
    lay_out(layer, minimum(plan->chunk, BLOCK_ROWS), &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

static void gather_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const moe_pass_t *pass = block->pass;
    int64_t width = block->network.d_in;
    for (int64_t row = begin; row < end; row++) {
        int64_t position = block->first + row;
        const float *input = block->shared ? moe_input(pass, position)
                                           : ffni_moe_expert_input(pass, pass->memory.order[position] / pass->plan.top_k);
        float weight = block->shared ? 1.0f : ffni_moe_input_weight(pass, position);
        block->network.kernels->mix(width, block->place.input + row * width, 1, &input, &weight);
    }
}

static int64_t hidden_width(const block_t *block) {
    return block->network.d_ff * (1 + block->network.gated);
}

static expert_row_t expert_row(const block_t *block, int64_t row) {
    const moe_pass_t *pass = block->pass;
    int64_t position = block->first + row, token = block->shared ? position : pass->memory.order[position] / pass->plan.top_k;
    return (expert_row_t){&block->network, pass->forward->dropout, pass->begin + token, ffni_moe_first_column(pass->layer, block->expert)};
}

static void normalise_row(const network_t *network, float *act) {
    if (network->has_norm) network->kernels->normalise[network->norm_kind](&network->norm, network->d_ff, act, act);
}

static void activate_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    for (int64_t row = begin; row < end; row++) {
        const expert_row_t at = expert_row(block, row);
        float *hidden = block->hidden + row * hidden_width(block), *act = block->act + row * block->act_stride;
        ffni_expert_drop_hidden(&at, hidden);
        ffni_expert_activate(&at, act, hidden);
        normalise_row(&block->network, act);
    }
}

/* The same in three passes where activations are counted: what dropout and the norm do goes by rows, counting by columns. */
static void drop_hidden_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    for (int64_t row = begin; row < end; row++) {
        const expert_row_t at = expert_row(block, row);
        ffni_expert_drop_hidden(&at, block->hidden + row * hidden_width(block));
    }
}

static void drop_activated_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    for (int64_t row = begin; row < end; row++) {
        const expert_row_t at = expert_row(block, row);
        float *act = block->act + row * block->act_stride;
        ffni_expert_drop_activated(&at, act);
        normalise_row(&block->network, act);
    }
}

static void activate_and_count(block_t *block) {
    const moe_pass_t *pass = block->pass;
    const network_t *network = &block->network;
    const counts_t *counts = &block->place.counts;
    const expert_row_t first = expert_row(block, 0);
    const watched_rows_t watched = {.network = network, .counts = counts, .counted = ffni_moe_counted(pass, block->expert, block->first), .rows = block->rows,
                                    .hidden = block->hidden, .hidden_stride = hidden_width(block), .bias = ffni_expert_bias(&first), .out = block->act,
                                    .out_stride = block->act_stride};
    if (pass->forward->dropout) ffni_parallel_rows(pass->context, block->rows, network->d_ff, drop_hidden_rows, block);
    ffni_counts_clear(counts, network->d_ff);
    ffni_watch_rows(pass->context, &watched);
    ffni_moe_add_counts(pass, block->expert, 0, network->d_ff, counts);
    if (pass->forward->dropout || network->has_norm) ffni_parallel_rows(pass->context, block->rows, network->d_ff, drop_activated_rows, block);
}

static float *output_of(const block_t *block) {
    return (block->shared ? block->pass->memory.shared : block->pass->memory.rows) + block->first * block->network.d_out;
}

static void add_bias_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const network_t *network = &block->network;
    for (int64_t row = begin; row < end; row++) {
        float *out = output_of(block) + row * network->d_out;
        network->kernels->combine(network->d_out, out, out, network->down_bias, NULL, NULL, NULL);
    }
}

/* Where the pre-activations go: the tape keeps them. */
static void place_hidden(block_t *block) {
    const moe_pass_t *pass = block->pass;
    const ffn_tape_t *tape = pass->forward->tape;
    int64_t width = hidden_width(block);
    block->hidden = block->act = block->place.hidden;
    block->act_stride = width;
    if (!tape || !tape->mixture.hidden) return;
    block->hidden = block->shared ? tape->mixture.shared_hidden + (pass->begin + block->first) * width
                                  : tape->mixture.hidden + (pass->begin * pass->plan.top_k + block->first) * width;
    block->act_stride = block->network.d_ff;
}

static void run_block(block_t *block) {
    ffn_context_t *context = block->pass->context;
    const network_t *network = &block->network;
    int64_t width = hidden_width(block);
    place_hidden(block);
    ffni_parallel_rows(context, block->rows, network->d_in, gather_rows, block);
    ffni_gemm(block->rows, width, network->d_in, block->place.input, network->d_in, network->in_weight, block->hidden);
    if (block->pass->forward->stats) activate_and_count(block);
    else ffni_parallel_rows(context, block->rows, width, activate_rows, block);
    ffni_gemm(block->rows, network->d_out, network->d_ff, block->act, block->act_stride, network->down_weight, output_of(block));
    if (network->down_bias) ffni_parallel_rows(context, block->rows, network->d_out, add_bias_rows, block);
}

/* Rows from `first` on, in blocks of equal size. */
static void run_network(const moe_pass_t *pass, const network_t *network, int64_t expert, int64_t first, int64_t rows, place_t place) {
    int64_t blocks = rows ? (rows - 1) / BLOCK_ROWS + 1 : 0;
    for (int64_t i = 0; i < blocks; i++) {
        block_t block = {.pass = pass, .network = *network, .expert = expert, .shared = expert == MOE_SHARED, .first = first,
                         .rows = rows / blocks + (i < rows % blocks), .place = place};
        run_block(&block);
        first += block.rows;
    }
}

void ffni_moe_blas_experts(moe_pass_t *pass) {
    const ffn_layer_t *layer = pass->layer;
    arena_t arena = {.base = pass->memory.engine};
    place_t place = lay_out(layer, minimum(pass->plan.chunk, BLOCK_ROWS), &arena);
    ffni_moe_dispatch(pass);
    for (int64_t expert = 0; expert < layer->mixture.experts; expert++) {
        network_t network = ffni_layer_expert(layer, expert);
        int64_t first = pass->memory.starts[expert];
        run_network(pass, &network, expert, first, pass->memory.starts[expert + 1] - first, place);
    }
    if (layer->shared.d_ff) run_network(pass, &layer->shared, MOE_SHARED, 0, pass->tokens, place);
}
