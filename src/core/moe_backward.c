/* SPDX-License-Identifier: MIT
 * The backward pass of a mixture of experts: its chunks, and what comes before and behind the experts. */
#include "core/moe_backward.h"

#include "base/checked.h"
#include "base/error.h"
#include "core/gemm.h"
#include "core/parallel.h"
#include "core/scores.h"
#include "core/view_products.h"

#include <string.h>

/* ----------------------------------------------------------------------- Memory */

static float *take(arena_t *arena, int needed, int64_t rows, int64_t width) {
    return needed ? ffni_arena_take(arena, rows, width * (int64_t)sizeof(float)) : NULL;
}

static void lay_out_chunk(moe_backward_t *m, int64_t rows, arena_t *arena) {
    backward_block_t *b = &m->b;
    moe_backward_memory_t *memory = &m->memory;
    const ffn_layer_t *layer = b->block.layer;
    int64_t latent = layer->sizes.of[EXTENT_D_LATENT], choices = layer->mixture.choices, top_k = m->pass.plan.top_k;
    int routed = ffni_layer_has(layer, FFN_ROLE_ROUTER_WEIGHT), gated = ffni_layer_has(layer, FFN_ROLE_SHARED_SCALE_WEIGHT);
    int copies = layer->mixture.router_norm != FFN_NORM_NONE || (layer->mixture.flags & FFN_MOE_ROUTE_UNNORMED);
    b->block.input_rows = take(arena, 1, rows, layer->d_model);
    b->d_branch = take(arena, 1, rows, layer->d_out);
    b->value = take(arena, ffni_tape_keeps_branch(layer), rows, layer->d_out);
    b->sum = take(arena, layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE, rows, layer->d_out);
    b->d_residual = take(arena, layer->residual == FFN_RESIDUAL_INPUT || layer->residual == FFN_RESIDUAL_NORMED, rows, layer->d_out);
    b->d_input = memory->d_n = take(arena, 1, rows, layer->d_model);
    memory->latent = take(arena, latent > 0, rows, latent);
    memory->d_latent = take(arena, latent > 0, rows, latent);
    memory->d_mixed = take(arena, latent > 0, rows, latent);
    memory->d_weights = take(arena, 1, rows, top_k);
    memory->shared_scale = take(arena, gated, rows, 1);
    memory->d_shared_scale = take(arena, gated, rows, 1);
    memory->vector = take(arena, gated, 1, layer->d_model);
    memory->router = take(arena, routed, choices, layer->d_model);
    memory->d_logits = take(arena, routed, rows, choices);
    memory->router_input = take(arena, routed && copies, rows, layer->d_model);
    memory->d_router_input = take(arena, routed, rows, layer->d_model);
    memory->scale_sums = ffni_arena_take(arena, choices, sizeof(double));
    memory->scale_partial = ffni_arena_take(arena, ROUTE_CHUNKS * choices, sizeof(double));
}

static void lay_out_dispatch(moe_backward_t *m, int64_t rows, arena_t *arena) {
    moe_memory_t *sorted = &m->pass.memory;
    int64_t slots = rows * m->pass.plan.top_k;
    sorted->order = ffni_arena_take(arena, slots, sizeof(int32_t));
    sorted->place = ffni_arena_take(arena, slots, sizeof(int32_t));
    sorted->starts = ffni_arena_take(arena, m->b.block.layer->mixture.experts + 1, sizeof(int64_t));
}

static void lay_out(moe_backward_t *m, gradients_t *rest, int64_t rows, arena_t *arena) {
    const ffn_layer_t *layer = m->b.block.layer;
    int64_t most = minimum(EXPERT_ROWS, rows);
    lay_out_chunk(m, rows, arena);
    lay_out_dispatch(m, rows, arena);
    ffni_expert_memory_lay_out(layer, most, &m->memory.expert, arena);
    ffni_moe_gradients_lay_out(&m->gradients, layer, most, arena);
    ffni_gradients_lay_out(rest, rows, arena);
}

/* Of any gradients whose layouts sgemm can write. */
static uint64_t bytes_of(const ffn_layer_t *layer, int64_t top_k, int64_t rows) {
    moe_backward_t m = {.b = {.block = {.layer = layer}}, .pass = {.plan = {.top_k = top_k}}};
    gradients_t gradients = {.layer = layer};
    arena_t measure = {0};
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (ffni_roles[role].ndim == 1 && ffni_roles[role].owner != OWNER_EXPERT) gradients.view[role] = layer->stored[role];
    lay_out(&m, &gradients, rows, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

void ffni_moe_fit_backward(const ffn_layer_t *layer, const ffn_context_t *context, moe_plan_t *plan) {
    while (context->scratch_limit && plan->chunk > 1 && bytes_of(layer, plan->top_k, plan->chunk) > context->scratch_limit) plan->chunk /= 2;
}

ffn_status_t ffni_moe_backward_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes) {
    moe_plan_t plan;
    *bytes = 0;
    if (tokens < 1) return FFN_OK;
    ffn_status_t status = ffni_moe_plan(layer, context, tokens, layer->mixture.top_k, &plan);
    if (status) return status;
    ffni_moe_fit_backward(layer, context, &plan);
    *bytes = bytes_of(layer, plan.top_k, plan.chunk);
    return context->scratch_limit && *bytes > context->scratch_limit ? ffni_context_limit_error(context, *bytes) : FFN_OK;
}

/* ------------------------------------------------------------------ Projections */

static operand_t input_of(const moe_backward_t *m) {
    return (operand_t){m->b.block.input, m->b.block.input_stride, 0};
}

static int is_first(const moe_backward_t *m) {
    return m->b.block.begin == 0;
}

static void add_to_total(const moe_backward_t *m, int role, int64_t width, const float *rows) {
    gradients_t *gradients = m->b.gradients;
    if (!gradient_wanted(gradients, role)) return;
    for (int64_t row = 0; row < m->b.block.rows; row++)
        for (int64_t i = 0; i < width; i++) gradients->total[gradients->offset[role] + i] += (double)rows[row * width + i];
}

/* What the experts read, and the derivatives by the sum of what they give. */
static void open_latent(const moe_backward_t *m) {
    const training_block_t *block = &m->b.block;
    const ffn_layer_t *layer = block->layer;
    const moe_backward_memory_t *memory = &m->memory;
    int64_t latent = layer->sizes.of[EXTENT_D_LATENT], rows = block->rows;
    const float *bias = ffni_layer_vector(layer, FFN_ROLE_LATENT_IN_BIAS, 0);
    if (!latent) return;
    ffni_gemm(rows, latent, layer->d_model, block->input, block->input_stride, (const float *)(const void *)layer->stored[FFN_ROLE_LATENT_IN_WEIGHT].data,
              memory->latent);
    for (int64_t row = 0; bias && row < rows; row++)
        layer->kernels->combine(latent, memory->latent + row * latent, memory->latent + row * latent, bias, NULL, NULL, NULL);
    operand_t d_branch = {m->b.d_branch, layer->d_out, 0}, mixed = {m->tape->mixed + block->begin * latent, latent, 0};
    ffni_gemm_general(rows, latent, layer->d_out, d_branch, ffni_view_operand(&layer->stored[FFN_ROLE_LATENT_OUT_WEIGHT]), 0, memory->d_mixed, latent);
    ffni_gradients_multiply(m->b.gradients, FFN_ROLE_LATENT_OUT_WEIGHT, rows, d_branch, mixed, is_first(m));
    add_to_total(m, FFN_ROLE_LATENT_OUT_BIAS, layer->d_out, m->b.d_branch);
    memset(memory->d_latent, 0, (size_t)(rows * latent) * sizeof *memory->d_latent);
}

static void close_latent(const moe_backward_t *m) {
    const training_block_t *block = &m->b.block;
    const ffn_layer_t *layer = block->layer;
    int64_t latent = layer->sizes.of[EXTENT_D_LATENT];
    operand_t d_latent = {m->memory.d_latent, latent, 0};
    if (!latent) return;
    ffni_gemm_general(block->rows, layer->d_model, latent, d_latent, ffni_view_operand(&layer->stored[FFN_ROLE_LATENT_IN_WEIGHT]), 1, m->memory.d_n,
                      layer->d_model);
    ffni_gradients_multiply(m->b.gradients, FFN_ROLE_LATENT_IN_WEIGHT, block->rows, d_latent, input_of(m), is_first(m));
    add_to_total(m, FFN_ROLE_LATENT_IN_BIAS, latent, m->memory.d_latent);
}

/* ---------------------------------------------------------------------- Experts */

/* Identity experts give their input. */
static void identity_rows(void *data, int64_t begin, int64_t end) {
    const moe_backward_t *m = data;
    const ffn_layer_t *layer = m->b.block.layer;
    int64_t width = layer->sizes.of[EXTENT_EXPERT_IN], top_k = m->tape->top_k;
    for (int64_t token = begin; token < end; token++)
        for (int64_t k = 0; k < top_k; k++) {
            int64_t slot = (m->b.block.begin + token) * top_k + k;
            if (m->tape->ids[slot] < layer->mixture.experts) continue;
            float *target = (m->memory.d_latent ? m->memory.d_latent : m->memory.d_n) + token * width;
            const float *d = (m->memory.d_mixed ? m->memory.d_mixed : m->b.d_branch) + token * width, *rows[2] = {target, d};
            const float weights[2] = {1.0f, m->tape->weights[slot]};
            m->memory.d_weights[token * top_k + k] = (float)ffni_dot(width, d, moe_backward_input(m, token));
            layer->kernels->mix(width, target, 2, rows, weights);
        }
}

static void shared_scale_rows(void *data, int64_t begin, int64_t end) {
    const moe_backward_t *m = data;
    for (int64_t token = begin; token < end; token++)
        m->memory.shared_scale[token] = (float)ffni_sigmoid(ffni_dot(m->b.block.layer->d_model, moe_backward_n(m, token), m->memory.vector));
}

/* By the number before the sigmoid, and through it by n. */
static void shared_scale_rows_back(void *data, int64_t begin, int64_t end) {
    const moe_backward_t *m = data;
    const ffn_layer_t *layer = m->b.block.layer;
    for (int64_t token = begin; token < end; token++) {
        double g = (double)m->memory.shared_scale[token];
        float d = (float)((double)m->memory.d_shared_scale[token] * g * (1 - g)), *d_n = m->memory.d_n + token * layer->d_model;
        const float *rows[2] = {d_n, m->memory.vector}, weights[2] = {1.0f, d};
        m->memory.d_shared_scale[token] = d;
        layer->kernels->mix(layer->d_model, d_n, 2, rows, weights);
    }
}

static void run_shared(moe_backward_t *m) {
    const training_block_t *block = &m->b.block;
    const ffn_layer_t *layer = block->layer;
    if (!layer->shared.d_ff) return;
    if (m->memory.shared_scale) ffni_parallel_rows(block->context, block->rows, layer->d_model, shared_scale_rows, m);
    ffni_moe_backward_network(m, MOE_SHARED);
    if (!m->memory.shared_scale) return;
    ffni_parallel_rows(block->context, block->rows, layer->d_model, shared_scale_rows_back, m);
    ffni_gradients_multiply(m->b.gradients, FFN_ROLE_SHARED_SCALE_WEIGHT, block->rows, (operand_t){m->memory.d_shared_scale, 1, 0}, input_of(m),
                            is_first(m));
}

static void run_experts(moe_backward_t *m) {
    const training_block_t *block = &m->b.block;
    const mixture_t *mixture = &block->layer->mixture;
    int64_t top_k = m->tape->top_k;
    m->pass.window_begin = m->pass.begin = block->begin;
    m->pass.tokens = block->rows;
    m->pass.memory.ids = m->tape->ids + block->begin * top_k;
    memset(m->memory.d_weights, 0, (size_t)(block->rows * top_k) * sizeof *m->memory.d_weights);
    ffni_moe_dispatch(&m->pass);
    for (int64_t expert = 0; expert < mixture->experts; expert++) ffni_moe_backward_network(m, expert);
    if (mixture->choices > mixture->experts)
        ffni_parallel_rows(block->context, block->rows, block->layer->sizes.of[EXTENT_EXPERT_IN] * top_k, identity_rows, m);
}

/* ----------------------------------------------------------------------- Chunks */

/* The share of a router that reads x itself. */
static void add_unnormed(const moe_backward_t *m) {
    const training_block_t *block = &m->b.block;
    const rows_t *d_x = &m->b.backward->d_x;
    if (!d_x->base || !m->tape->made || !(block->layer->mixture.flags & FFN_MOE_ROUTE_UNNORMED)) return;
    for (int64_t row = 0; row < block->rows; row++)
        block->kernels->add(block->layer->d_model, rows_at(d_x, block->begin + row), m->memory.d_router_input + row * block->layer->d_model);
}

static void run_chunk(moe_backward_t *m, int64_t begin, int64_t rows) {
    backward_block_t *b = &m->b;
    const ffn_layer_t *layer = b->block.layer;
    ffn_context_t *context = b->block.context;
    int64_t chunks = (rows - 1) / GRADIENT_CHUNK + 1, top_k = m->tape->top_k;
    float *d_weights = b->backward->moe.d_weights;
    b->block.begin = begin, b->block.rows = rows;
    ffni_gradients_clear(b->gradients, rows);
    ffni_training_take_input(&b->block);
    b->branch = b->backward->tape->branch ? b->backward->tape->branch + begin * layer->d_out : NULL;
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->d_out, ffni_backward_end_chunks, b);
    memset(m->memory.d_n, 0, (size_t)(rows * layer->d_model) * sizeof *m->memory.d_n);
    open_latent(m);
    run_experts(m);
    run_shared(m);
    close_latent(m);
    ffni_moe_backward_router(m);
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->d_model, ffni_backward_start_chunks, b);
    add_unnormed(m);
    ffni_gradients_collect(b->gradients, rows);
    if (d_weights) memcpy(d_weights + begin * top_k, m->memory.d_weights, (size_t)(rows * top_k) * sizeof *d_weights);
}

/* As the forward pass took them. */
static void run_chunks(moe_backward_t *m, int64_t tokens) {
    const mixture_tape_t *tape = m->tape;
    for (int64_t window = 0; window < tokens; window += tape->window) {
        int64_t size = minimum(tape->window, tokens - window), chunks = (size - 1) / tape->chunk + 1, rows = (size - 1) / chunks + 1;
        for (int64_t begin = window; begin < window + size; begin += rows) run_chunk(m, begin, minimum(rows, window + size - begin));
    }
}

/* Weights that are packed for the forward pass, as a matrix. */
static void unpack(const moe_backward_t *m, int role, float *out) {
    view_t view = ffni_view_contiguous(out, &m->b.block.layer->stored[role]);
    if (out) ffni_layer_read(m->b.block.layer, role, 0, &view);
}

static moe_backward_t describe(const backward_t *backward) {
    ffn_tape_t *tape = backward->tape;
    return (moe_backward_t){
        .b = {.block = {.layer = backward->layer, .kernels = backward->layer->kernels->training, .context = backward->context, .x = &tape->x,
                        .residual = &tape->residual, .dropout = &tape->dropout},
              .backward = backward, .gradients = backward->gradients},
        .pass = {.layer = backward->layer, .context = backward->context, .plan = {.top_k = tape->mixture.top_k}}, .tape = &tape->mixture};
}

ffn_status_t ffni_moe_backward(const backward_t *backward) {
    int64_t tokens = backward->d_y.count, rows = minimum(minimum(backward->tape->mixture.chunk, backward->tape->mixture.window), tokens);
    moe_backward_t m = describe(backward);
    ffn_context_t *context = backward->context;
    arena_t measure = {0};
    m.gradients.has_odd = ffni_moe_gradients_are_odd(backward->views, backward->view_count);
    lay_out(&m, backward->gradients, rows, &measure);
    if (measure.overflowed) return ffni_fail(FFN_NO_MEMORY, "the scratch memory of this backward pass overflows");
    if (context->scratch_limit && measure.used > context->scratch_limit) return ffni_context_limit_error(context, measure.used);
    ffn_status_t status = ffni_context_scratch(context, measure.used);
    if (status) return status;
    arena_t arena = {.base = context->scratch};
    lay_out(&m, backward->gradients, rows, &arena);
    ffni_moe_gradients_begin(&m.gradients, backward->gradients, backward->views, backward->view_count);
    ffni_gradients_begin(backward->gradients, context, NULL);
    unpack(&m, FFN_ROLE_ROUTER_WEIGHT, m.memory.router);
    unpack(&m, FFN_ROLE_SHARED_SCALE_WEIGHT, m.memory.vector);
    run_chunks(&m, tokens);
    ffni_moe_gradients_finish(&m.gradients);
    ffni_gradients_finish(backward->gradients);
    return FFN_OK;
}
