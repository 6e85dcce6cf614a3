/* SPDX-License-Identifier: MIT
 * The experts of the blas engine: one after the other, each by two products of BLAS on the calling thread, with passes over rows between them. */
#include "core/moe.h"

#include "base/checked.h"
#include "core/expert_rows.h"
#include "core/gemm.h"
#include "core/parallel.h"
#include "core/tape.h"

/* Rows of a product at the most, as in core/blas.c. */
enum { BLOCK_ROWS = 512 };

typedef struct place {
    float *input;  /* [rows, d_in] */
    float *hidden; /* [rows, hidden width]; without a tape the activation then lies in the first d_ff of each row */
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

static void activate_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    const moe_pass_t *pass = block->pass;
    const network_t *network = &block->network;
    int64_t d_ff = network->d_ff, width = d_ff * (1 + network->gated);
    for (int64_t row = begin; row < end; row++) {
        int64_t position = block->first + row, token = block->shared ? position : pass->memory.order[position] / pass->plan.top_k;
        const expert_row_t at = {network, pass->forward->dropout, pass->begin + token, ffni_moe_first_column(pass->layer, block->expert)};
        float *hidden = block->hidden + row * width, *act = block->act + row * block->act_stride;
        ffni_expert_drop_hidden(&at, hidden);
        ffni_expert_activate(&at, act, hidden);
        if (network->has_norm) network->kernels->normalise[network->norm_kind](&network->norm, d_ff, act, act);
    }
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
    int64_t width = block->network.d_ff * (1 + block->network.gated);
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
    int64_t width = network->d_ff * (1 + network->gated);
    place_hidden(block);
    ffni_parallel_rows(context, block->rows, network->d_in, gather_rows, block);
    ffni_gemm(block->rows, width, network->d_in, block->place.input, network->d_in, network->in_weight, block->hidden);
    ffni_parallel_rows(context, block->rows, width, activate_rows, block);
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
