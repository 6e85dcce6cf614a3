/* SPDX-License-Identifier: MIT
 * Summing the gradients of one network after the other. */
#include "core/moe_gradients.h"

#include "base/checked.h"
#include "core/view_products.h"

#include <string.h>

static const int expert_roles[PARTS] = {FFN_ROLE_UP_WEIGHT, FFN_ROLE_GATE_WEIGHT, FFN_ROLE_DOWN_WEIGHT, FFN_ROLE_UP_BIAS, FFN_ROLE_GATE_BIAS,
                                        FFN_ROLE_DOWN_BIAS, FFN_ROLE_NORM_MID_WEIGHT, FFN_ROLE_NORM_MID_BIAS};
static const int shared_roles[PARTS] = {FFN_ROLE_SHARED_UP_WEIGHT, FFN_ROLE_SHARED_GATE_WEIGHT, FFN_ROLE_SHARED_DOWN_WEIGHT, FFN_ROLE_SHARED_UP_BIAS,
                                        FFN_ROLE_SHARED_GATE_BIAS, FFN_ROLE_SHARED_DOWN_BIAS, FFN_ROLE_NONE, FFN_ROLE_NONE};

/* The larger of the networks' sizes. */
static int64_t size_of(const ffn_layer_t *layer, part_t part) {
    int64_t ff = maximum(layer->d_ff, layer->shared.d_ff), in = maximum(layer->sizes.of[EXTENT_EXPERT_IN], layer->d_model);
    int64_t out = maximum(layer->sizes.of[EXTENT_EXPERT_OUT], layer->d_out);
    if (part == PART_DOWN_BIAS) return out;
    return part < PART_VECTORS ? ff * maximum(in, out) : ff;
}

static int64_t chunks_of(int64_t rows) {
    return (rows - 1) / GRADIENT_CHUNK + 1;
}

void ffni_moe_gradients_lay_out(moe_gradients_t *gradients, const ffn_layer_t *layer, int64_t rows, arena_t *arena) {
    gradients->experts = layer->mixture.experts;
    gradients->record = 0;
    for (int part = PART_VECTORS; part < PARTS; part++) {
        gradients->offset[part] = gradients->record;
        gradients->record += round_up(size_of(layer, (part_t)part), 16);
    }
    gradients->networks = ffni_arena_take(arena, gradients->experts + 1, sizeof(network_views_t));
    gradients->partial = ffni_arena_take(arena, chunks_of(rows), gradients->record * (int64_t)sizeof(float));
    gradients->total = ffni_arena_take(arena, gradients->record, sizeof(double));
    if (gradients->has_odd) gradients->matrix = ffni_arena_take(arena, size_of(layer, PART_UP), sizeof(float));
}

/* -1: none of those. */
static int part_of(const int roles[PARTS], uint32_t role) {
    for (int part = 0; part < PARTS; part++)
        if (roles[part] == (int)role) return part;
    return -1;
}

int ffni_moe_gradients_are_odd(const ffn_tensor_t *tensors, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        int part = part_of(expert_roles, tensors[i].role);
        view_t view = ffni_view_of_expert(&tensors[i], 0);
        if (part < 0) part = part_of(shared_roles, tensors[i].role);
        if (part >= 0 && part < PART_VECTORS && !ffni_view_takes_products(&view)) return 1;
    }
    return 0;
}

void ffni_moe_gradients_begin(moe_gradients_t *gradients, gradients_t *rest, const ffn_tensor_t *tensors, uint64_t count) {
    network_views_t *shared = &gradients->networks[gradients->experts];
    memset(gradients->networks, 0, (size_t)(gradients->experts + 1) * sizeof *gradients->networks);
    gradients->accumulate = rest->accumulate;
    for (uint64_t i = 0; i < count; i++) {
        int part = part_of(expert_roles, tensors[i].role);
        for (int64_t expert = 0; part >= 0 && expert < ffni_tensor_experts(&tensors[i]); expert++)
            gradients->networks[tensors[i].expert + expert].part[part] = ffni_view_of_expert(&tensors[i], expert);
    }
    for (int part = 0; part < PARTS; part++) {
        rest->view[expert_roles[part]].data = NULL;
        if (shared_roles[part] == FFN_ROLE_NONE) continue;
        shared->part[part] = rest->view[shared_roles[part]];
        rest->view[shared_roles[part]].data = NULL;
    }
}

void ffni_moe_gradients_open(moe_gradients_t *gradients, const network_views_t *views) {
    gradients->has_vectors = 0;
    for (int part = PART_VECTORS; part < PARTS; part++) gradients->has_vectors |= views->part[part].data != NULL;
    if (gradients->has_vectors) memset(gradients->total, 0, (size_t)gradients->record * sizeof *gradients->total);
}

float *ffni_moe_gradients_sum(const moe_gradients_t *gradients, const network_views_t *views, part_t part, int64_t chunk) {
    return views->part[part].data ? gradients->partial + chunk * gradients->record + gradients->offset[part] : NULL;
}

void ffni_moe_gradients_clear(const moe_gradients_t *gradients, int64_t rows) {
    if (gradients->has_vectors) memset(gradients->partial, 0, (size_t)(chunks_of(rows) * gradients->record) * sizeof *gradients->partial);
}

void ffni_moe_gradients_collect(const moe_gradients_t *gradients, int64_t rows) {
    for (int64_t chunk = 0; gradients->has_vectors && chunk < chunks_of(rows); chunk++)
        for (int64_t i = 0; i < gradients->record; i++) gradients->total[i] += (double)gradients->partial[chunk * gradients->record + i];
}

static float *element(const view_t *view, int64_t row, int64_t column) {
    return (float *)(void *)(view->data + row * view->row_stride + column * view->column_stride);
}

static void put_matrix(const view_t *view, const float *matrix, int accumulate) {
    for (int64_t r = 0; r < view->rows; r++)
        for (int64_t c = 0; c < view->columns; c++) {
            float *to = element(view, r, c), value = matrix[r * view->columns + c];
            *to = accumulate ? *to + value : value;
        }
}

void ffni_moe_gradients_multiply(const moe_gradients_t *gradients, const network_views_t *views, part_t part, int64_t rows, operand_t d, operand_t input,
                                 int first) {
    const view_t *view = &views->part[part];
    int accumulate = gradients->accumulate || views->written || !first;
    if (!view->data) return;
    if (ffni_view_takes_products(view)) {
        ffni_view_add_product(view, rows, d, input, accumulate);
        return;
    }
    view_t matrix = ffni_view_contiguous(gradients->matrix, view);
    ffni_view_add_product(&matrix, rows, d, input, 0);
    put_matrix(view, gradients->matrix, accumulate);
}

void ffni_moe_gradients_close(const moe_gradients_t *gradients, network_views_t *views) {
    int accumulate = gradients->accumulate || views->written;
    for (int part = PART_VECTORS; part < PARTS; part++) {
        const view_t *view = &views->part[part];
        const double *total = gradients->total + gradients->offset[part];
        for (int64_t i = 0; view->data && i < view->columns; i++) {
            float *to = element(view, 0, i);
            *to = (float)(accumulate ? (double)*to + total[i] : total[i]);
        }
    }
    views->written = 1;
}

void ffni_moe_gradients_finish(const moe_gradients_t *gradients) {
    for (int64_t network = 0; !gradients->accumulate && network <= gradients->experts; network++)
        for (int part = 0; !gradients->networks[network].written && part < PARTS; part++)
            if (gradients->networks[network].part[part].data) ffni_view_zero(&gradients->networks[network].part[part]);
}
