/* SPDX-License-Identifier: MIT
 * One network of a mixture backwards: blocks of its rows, each through three products for the derivatives (two of them by BLAS for what comes before) and
 * one for each matrix. */
#include "core/moe_backward.h"

#include "base/checked.h"
#include "core/expert_rows.h"
#include "core/parallel.h"
#include "core/steps.h"

#include <string.h>

typedef struct expert_block {
    moe_backward_t *m;
    network_t network;
    network_views_t *views;
    int64_t expert;
    int64_t first, rows; /* of the sorted slots, or of the chunk's tokens */
    int64_t width;       /* of a hidden row */
    float *hidden;
    int hidden_dropped;
} expert_block_t;

static float *take(arena_t *arena, int64_t rows, int64_t width) {
    return ffni_arena_take(arena, rows, width * (int64_t)sizeof(float));
}

void ffni_expert_memory_lay_out(const ffn_layer_t *layer, int64_t rows, expert_memory_t *memory, arena_t *arena) {
    int64_t in = maximum(layer->sizes.of[EXTENT_EXPERT_IN], layer->shared.d_in), out = maximum(layer->sizes.of[EXTENT_EXPERT_OUT], layer->shared.d_out);
    int64_t d_ff = maximum(layer->d_ff, layer->shared.d_ff), hidden = maximum(layer->hidden_width, layer->shared.d_ff * (1 + layer->shared.gated));
    memory->input = take(arena, rows, in);
    memory->d_input = take(arena, rows, in);
    memory->d_out = take(arena, rows, out);
    memory->hidden = take(arena, rows, hidden);
    memory->act = take(arena, rows, d_ff);
    memory->normed = take(arena, rows, d_ff);
    memory->d_act = take(arena, rows, d_ff);
    memory->xielu = ffni_arena_take(arena, (rows - 1) / GRADIENT_CHUNK + 1, 2 * sizeof(double));
}

double ffni_dot(int64_t n, const float *d, const float *v) {
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int64_t j = 0; j < 4; j++) sum[j] += (double)d[i + j] * (double)v[i + j];
    for (; i < n; i++) sum[0] += (double)d[i] * (double)v[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ------------------------------------------------------------------ Whose row it is */

static int is_shared(const expert_block_t *block) {
    return block->expert == MOE_SHARED;
}

static int64_t slot_of(const expert_block_t *block, int64_t row) {
    return block->m->pass.memory.order[block->first + row];
}

static int64_t token_of(const expert_block_t *block, int64_t row) {
    return is_shared(block) ? block->first + row : slot_of(block, row) / block->m->pass.plan.top_k;
}

static int on_input(const expert_block_t *block) {
    return !is_shared(block) && (block->m->b.block.layer->mixture.flags & FFN_MOE_WEIGHT_ON_INPUT);
}

static float weight_of(const expert_block_t *block, int64_t row) {
    const moe_backward_t *m = block->m;
    if (is_shared(block)) return m->memory.shared_scale ? m->memory.shared_scale[token_of(block, row)] : 1.0f;
    return m->tape->weights[m->b.block.begin * m->tape->top_k + slot_of(block, row)];
}

static void put_d_weight(const expert_block_t *block, int64_t row, double d) {
    const moe_backward_t *m = block->m;
    if (!is_shared(block))
        m->memory.d_weights[slot_of(block, row)] = (float)d;
    else if (m->memory.d_shared_scale)
        m->memory.d_shared_scale[token_of(block, row)] = (float)d;
}

static expert_row_t row_at(const expert_block_t *block, int64_t row) {
    const training_block_t *chunk = &block->m->b.block;
    return (expert_row_t){&block->network, chunk->dropout, chunk->begin + token_of(block, row), ffni_moe_first_column(chunk->layer, block->expert)};
}

/* ------------------------------------------------------------------------- Rows */

static void gather_rows(void *data, int64_t begin, int64_t end) {
    const expert_block_t *block = data;
    const moe_backward_t *m = block->m;
    const network_t *network = &block->network;
    for (int64_t row = begin; row < end; row++) {
        int64_t token = token_of(block, row);
        const float *input = is_shared(block) ? moe_backward_n(m, token) : moe_backward_input(m, token);
        const float *d = !is_shared(block) && m->memory.d_mixed ? m->memory.d_mixed + token * network->d_out : m->b.d_branch + token * network->d_out;
        float weight = on_input(block) ? weight_of(block, row) : 1.0f;
        network->kernels->mix(network->d_in, m->memory.expert.input + row * network->d_in, 1, &input, &weight);
        memcpy(m->memory.expert.d_out + row * network->d_out, d, (size_t)network->d_out * sizeof *d);
    }
}

static void add_to_sum(const expert_block_t *block, part_t part, int64_t chunk, int64_t n, const float *v) {
    float *sum = ffni_moe_gradients_sum(&block->m->gradients, block->views, part, chunk);
    if (sum) block->network.kernels->training->add(n, sum, v);
}

/* The hidden row, where the products take it from; act is before norm MID. */
static const float *hidden_row(const expert_block_t *block, int64_t row, const expert_row_t *at, float *hidden) {
    const network_t *network = &block->network;
    const expert_memory_t *memory = &block->m->memory.expert;
    float *act = memory->act + row * network->d_ff, *normed = memory->normed + row * network->d_ff;
    if (!block->hidden_dropped) ffni_expert_drop_hidden(at, hidden);
    ffni_expert_activate(at, act, hidden);
    if (!network->has_norm) return act;
    network->kernels->normalise[network->norm_kind](&network->norm, network->d_ff, normed, act);
    return normed;
}

static void differentiate_activation(const expert_block_t *block, const expert_row_t *at, int64_t chunk, float *d_act, float *hidden) {
    const network_t *network = &block->network;
    const training_table_t *kernels = network->kernels->training;
    const activation_t *activation = &network->activation;
    const float *bias = ffni_expert_bias(at);
    int64_t d_ff = network->d_ff;
    if (block->m->b.gradients->view[FFN_ROLE_XIELU_ALPHA_P].data || block->m->b.gradients->view[FFN_ROLE_XIELU_ALPHA_N].data)
        kernels->learn_xielu(activation, d_ff, block->m->memory.expert.xielu + 2 * chunk, d_act, hidden, bias, network->gated ? hidden + d_ff : NULL,
                             network->up_bias);
    if (network->gated)
        kernels->differentiate_gated(activation, d_ff, d_act, hidden, hidden + d_ff, d_act, hidden, bias, hidden + d_ff, network->up_bias);
    else
        kernels->differentiate(activation, d_ff, d_act, hidden, d_act, hidden, bias);
    if (at->dropout)
        ffni_drop_from(at->dropout, kernels, FFN_DROPOUT_PRE_ACTIVATION, at->row, at->first_column, d_ff, hidden);
    add_to_sum(block, network->gated ? PART_GATE_BIAS : PART_UP_BIAS, chunk, d_ff, hidden);
    if (network->gated) add_to_sum(block, PART_UP_BIAS, chunk, d_ff, hidden + d_ff);
}

static void middle_row(const expert_block_t *block, int64_t row, int64_t chunk) {
    const network_t *network = &block->network;
    const training_table_t *kernels = network->kernels->training;
    const expert_memory_t *memory = &block->m->memory.expert;
    expert_row_t at = row_at(block, row);
    int64_t d_ff = network->d_ff, d_out = network->d_out;
    float *hidden = block->hidden + row * block->width, *d_act = memory->d_act + row * d_ff, *d = memory->d_out + row * d_out;
    const float *h = hidden_row(block, row, &at, hidden);
    if (!on_input(block)) {
        double by_weight = ffni_dot(d_ff, d_act, h);
        float weight = weight_of(block, row);
        if (network->down_bias) by_weight += ffni_dot(d_out, d, network->down_bias);
        put_d_weight(block, row, by_weight);
        kernels->scale(d_ff, d_act, weight);
        kernels->scale(d_out, d, weight);
    }
    add_to_sum(block, PART_DOWN_BIAS, chunk, d_out, d);
    if (network->has_norm)
        kernels->differentiate_norm[network->norm_kind](&network->norm, d_ff, d_act, d_act, memory->act + row * d_ff,
                                                        ffni_moe_gradients_sum(&block->m->gradients, block->views, PART_MID_WEIGHT, chunk),
                                                        ffni_moe_gradients_sum(&block->m->gradients, block->views, PART_MID_BIAS, chunk));
    ffni_expert_drop_activated(&at, d_act);
    differentiate_activation(block, &at, chunk, d_act, hidden);
}

static void middle_chunks(void *data, int64_t begin, int64_t end) {
    const expert_block_t *block = data;
    for (int64_t chunk = begin; chunk < end; chunk++)
        for (int64_t row = chunk * GRADIENT_CHUNK; row < minimum((chunk + 1) * GRADIENT_CHUNK, block->rows); row++) middle_row(block, row, chunk);
}

/* A token is in a block once: rows of different tokens are added to at the same time. */
static void scatter_rows(void *data, int64_t begin, int64_t end) {
    const expert_block_t *block = data;
    const moe_backward_t *m = block->m;
    int64_t width = block->network.d_in;
    for (int64_t row = begin; row < end; row++) {
        int64_t token = token_of(block, row);
        float *target = (!is_shared(block) && m->memory.d_latent ? m->memory.d_latent : m->memory.d_n) + token * width;
        const float *d = m->memory.expert.d_input + row * width, *rows[2] = {target, d};
        float weights[2] = {1.0f, on_input(block) ? weight_of(block, row) : 1.0f};
        if (on_input(block)) put_d_weight(block, row, ffni_dot(width, d, moe_backward_input(m, token)));
        block->network.kernels->mix(width, target, 2, rows, weights);
    }
}

/* ------------------------------------------------------------------------ Blocks */

static void take_hidden(expert_block_t *block) {
    const moe_backward_t *m = block->m;
    const network_t *network = &block->network;
    float *kept = is_shared(block) ? m->tape->shared_hidden : m->tape->hidden;
    int64_t first = is_shared(block) ? m->b.block.begin : m->b.block.begin * m->tape->top_k;
    block->hidden_dropped = kept != NULL;
    block->hidden = kept ? kept + (first + block->first) * block->width : m->memory.expert.hidden;
    if (!kept) ffni_gemm(block->rows, block->width, network->d_in, m->memory.expert.input, network->d_in, network->in_weight, block->hidden);
}

static void multiply_weights(const expert_block_t *block, int is_first) {
    const moe_backward_t *m = block->m;
    const network_t *network = &block->network;
    const expert_memory_t *memory = &m->memory.expert;
    int64_t d_ff = network->d_ff;
    operand_t h = {network->has_norm ? memory->normed : memory->act, d_ff, 0}, input = {memory->input, network->d_in, 0};
    operand_t gate = {block->hidden, block->width, 0}, up = {block->hidden + (network->gated ? d_ff : 0), block->width, 0};
    ffni_moe_gradients_multiply(&m->gradients, block->views, PART_DOWN, block->rows, (operand_t){memory->d_out, network->d_out, 0}, h, is_first);
    if (network->gated) ffni_moe_gradients_multiply(&m->gradients, block->views, PART_GATE, block->rows, gate, input, is_first);
    ffni_moe_gradients_multiply(&m->gradients, block->views, PART_UP, block->rows, up, input, is_first);
}

static void run_block(expert_block_t *block, int is_first) {
    moe_backward_t *m = block->m;
    const network_t *network = &block->network;
    const expert_memory_t *memory = &m->memory.expert;
    ffn_context_t *context = m->b.block.context;
    int64_t chunks = (block->rows - 1) / GRADIENT_CHUNK + 1;
    ffni_moe_gradients_clear(&m->gradients, block->rows);
    memset(memory->xielu, 0, (size_t)(2 * chunks) * sizeof *memory->xielu);
    ffni_parallel_rows(context, block->rows, network->d_in + network->d_out, gather_rows, block);
    take_hidden(block);
    ffni_gemm_general(block->rows, network->d_ff, network->d_out, (operand_t){memory->d_out, network->d_out, 0},
                      (operand_t){network->down_weight, network->d_out, 1}, 0, memory->d_act, network->d_ff);
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * block->width, middle_chunks, block);
    multiply_weights(block, is_first);
    ffni_gemm_general(block->rows, network->d_in, block->width, (operand_t){block->hidden, block->width, 0},
                      (operand_t){network->in_weight, block->width, 1}, 0, memory->d_input, network->d_in);
    ffni_parallel_rows(context, block->rows, network->d_in, scatter_rows, block);
    ffni_moe_gradients_collect(&m->gradients, block->rows);
    for (int64_t i = 0; i < 2 * chunks; i++) m->b.gradients->xielu_total[i % 2] += memory->xielu[i];
}

void ffni_moe_backward_network(moe_backward_t *m, int64_t expert) {
    const ffn_layer_t *layer = m->b.block.layer;
    const moe_memory_t *sorted = &m->pass.memory;
    expert_block_t block = {.m = m, .expert = expert};
    block.network = expert == MOE_SHARED ? layer->shared : ffni_layer_expert(layer, expert);
    block.views = &m->gradients.networks[expert == MOE_SHARED ? layer->mixture.experts : expert];
    block.width = block.network.d_ff * (1 + block.network.gated);
    int64_t first = expert == MOE_SHARED ? 0 : sorted->starts[expert], last = expert == MOE_SHARED ? m->b.block.rows : sorted->starts[expert + 1];
    if (first == last) return;
    int64_t blocks = (last - first - 1) / EXPERT_ROWS + 1, most = (last - first - 1) / blocks + 1;
    ffni_moe_gradients_open(&m->gradients, block.views);
    for (block.first = first; block.first < last; block.first += most) {
        block.rows = minimum(most, last - block.first);
        run_block(&block, block.first == first);
    }
    ffni_moe_gradients_close(&m->gradients, block.views);
}
