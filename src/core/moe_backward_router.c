/* SPDX-License-Identifier: MIT
 * The router of a mixture backwards, for a chunk of tokens. Where the run brought its weights, the router took no part, and its gradients are 0. */
#include "core/moe_backward.h"

#include "base/checked.h"
#include "core/parallel.h"
#include "core/sparse_mixer.h"

#include <string.h>

static ffn_moe_routing_t made_routing(const moe_backward_t *m) {
    const mixture_tape_t *tape = m->tape;
    int64_t begin = m->b.block.begin;
    return (ffn_moe_routing_t){.tokens = m->b.block.rows, .experts = m->b.block.layer->mixture.choices, .top_k = tape->top_k,
                               .ids = tape->made_ids + begin * tape->top_k, .mask = tape->mask + begin};
}

static void go_through_pipeline(const moe_backward_t *m, const float *logits) {
    const ffn_layer_t *layer = m->b.block.layer;
    const float *d_scores = m->b.backward->moe.d_scores;
    gradients_t *gradients = m->b.gradients;
    int64_t choices = layer->mixture.choices;
    router_backward_t router = {.options = layer->mixture.router, .logits = logits, .expert_scale = ffni_layer_vector(layer, FFN_ROLE_EXPERT_SCALE, 0),
                                .d_weights = m->memory.d_weights, .d_logits = m->memory.d_logits, .routing = made_routing(m)};
    if (d_scores) router.d_scores = d_scores + m->b.block.begin * choices;
    if (layer->mixture.choose == FFN_MOE_CHOOSE_BY_EXPERTS) router.options.scale = 1;
    if (gradient_wanted(gradients, FFN_ROLE_EXPERT_SCALE)) {
        router.scale_sums = gradients->total + gradients->offset[FFN_ROLE_EXPERT_SCALE];
        router.scale_partial = m->memory.scale_partial;
    }
    ffni_route_backward(m->b.block.context, &router);
}

static void make_d_logits(const moe_backward_t *m) {
    const ffn_layer_t *layer = m->b.block.layer;
    int64_t choices = layer->mixture.choices, first = m->b.block.begin * choices, count = m->b.block.rows * choices;
    const float *given = m->b.backward->moe.d_logits;
    float *d_logits = m->memory.d_logits;
    if (!m->tape->made) {
        memset(d_logits, 0, (size_t)count * sizeof *d_logits);
        return;
    }
    if (layer->mixture.choose == FFN_MOE_CHOOSE_SPARSE_MIXER) {
        ffn_moe_routing_t routing = made_routing(m);
        ffni_sparse_mixer_backward(m->b.block.context, (double)layer->mixture.jitter_eps, m->tape->logits + first, &routing, m->memory.d_weights, d_logits,
                                   0);
    } else {
        go_through_pipeline(m, m->tape->logits + first);
    }
    for (int64_t i = 0; given && i < count; i++) d_logits[i] += given[first + i];
}

/* x or n, and its norm. */
static const float *plain_input(const moe_backward_t *m, int64_t row) {
    if (m->b.block.layer->mixture.flags & FFN_MOE_ROUTE_UNNORMED) return rows_at(m->b.block.x, m->b.block.begin + row);
    return moe_backward_n(m, row);
}

static void input_rows(void *data, int64_t begin, int64_t end) {
    const moe_backward_t *m = data;
    const ffn_layer_t *layer = m->b.block.layer;
    int64_t width = layer->d_model;
    for (int64_t row = begin; row < end; row++) {
        float *input = m->memory.router_input + row * width;
        if (layer->mixture.router_norm != FFN_NORM_NONE)
            layer->kernels->normalise[ffni_norm_kind(layer->mixture.router_norm)](&layer->router_norm, width, input, plain_input(m, row));
        else
            memcpy(input, plain_input(m, row), (size_t)width * sizeof *input);
    }
}

static void input_chunks_back(void *data, int64_t begin, int64_t end) {
    const moe_backward_t *m = data;
    const ffn_layer_t *layer = m->b.block.layer;
    const training_table_t *kernels = m->b.block.kernels;
    int64_t width = layer->d_model;
    for (int64_t chunk = begin; chunk < end; chunk++)
        for (int64_t row = chunk * GRADIENT_CHUNK; row < minimum((chunk + 1) * GRADIENT_CHUNK, m->b.block.rows); row++) {
            float *d = m->memory.d_router_input + row * width;
            if (layer->mixture.router_norm != FFN_NORM_NONE)
                kernels->differentiate_norm[ffni_norm_kind(layer->mixture.router_norm)](
                    &layer->router_norm, width, d, d, plain_input(m, row), ffni_gradients_sum(m->b.gradients, FFN_ROLE_ROUTER_NORM_WEIGHT, chunk), NULL);
            if (!(layer->mixture.flags & FFN_MOE_ROUTE_UNNORMED)) kernels->add(width, m->memory.d_n + row * width, d);
        }
}

void ffni_moe_backward_router(moe_backward_t *m) {
    const training_block_t *block = &m->b.block;
    const ffn_layer_t *layer = block->layer;
    gradients_t *gradients = m->b.gradients;
    int64_t rows = block->rows, choices = layer->mixture.choices, width = layer->d_model;
    operand_t d_logits = {m->memory.d_logits, choices, 0}, input = {block->input, block->input_stride, 0};
    if (!m->memory.router) return;
    make_d_logits(m);
    if (m->memory.router_input) {
        ffni_parallel_rows(block->context, rows, width, input_rows, m);
        input = (operand_t){m->memory.router_input, width, 0};
    }
    ffni_gradients_multiply(gradients, FFN_ROLE_ROUTER_WEIGHT, rows, d_logits, input, block->begin == 0);
    for (int64_t i = 0; gradient_wanted(gradients, FFN_ROLE_ROUTER_BIAS) && i < rows * choices; i++)
        gradients->total[gradients->offset[FFN_ROLE_ROUTER_BIAS] + i % choices] += (double)m->memory.d_logits[i];
    if (!m->tape->made) return;
    ffni_gemm_general(rows, width, choices, d_logits, (operand_t){m->memory.router, width, 0}, 0, m->memory.d_router_input, width);
    ffni_parallel_rows(block->context, (rows - 1) / GRADIENT_CHUNK + 1, GRADIENT_CHUNK * width, input_chunks_back, m);
}
