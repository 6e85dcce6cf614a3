/* SPDX-License-Identifier: MIT
 * The row-wise steps of the backward pass. Each mirrors a step of the forward pass, last one first. */
#include "core/backward_rows.h"

#include "base/checked.h"
#include "core/steps.h"

#include <string.h>

static int has_norm(const ffn_layer_t *layer, int slot) {
    return layer->norm_slot[slot] != FFN_NORM_NONE;
}

int ffni_backward_needs_branch(const ffn_layer_t *layer, const gradients_t *gradients) {
    return has_norm(layer, FFN_NORM_BRANCH) || has_norm(layer, FFN_NORM_OUT) || gradient_wanted(gradients, FFN_ROLE_BRANCH_SCALE);
}

/* d_x = the derivative by x of the slot's norm of x, its weight's and bias's added to the chunk's sums. */
static void differentiate_norm(const backward_block_t *b, int slot, int64_t chunk, int64_t n, float *d_x, const float *d_y, const float *x) {
    static const norm_kind_t kind[] = {[FFN_NORM_LAYER] = NORM_LAYER, [FFN_NORM_RMS] = NORM_RMS, [FFN_NORM_AFFINE] = NORM_AFFINE};
    const ffn_layer_t *layer = b->block.layer;
    b->block.kernels->differentiate_norm[kind[layer->norm_slot[slot]]](
        &layer->norm[slot], n, d_x, d_y, x, ffni_gradients_sum(b->gradients, FFN_ROLE_NORM_IN_WEIGHT + 2 * slot, chunk),
        ffni_gradients_sum(b->gradients, FFN_ROLE_NORM_IN_BIAS + 2 * slot, chunk));
}

static void add_to_sum(const backward_block_t *b, int role, int64_t chunk, int64_t n, const float *v) {
    float *sum = ffni_gradients_sum(b->gradients, role, chunk);
    if (sum) b->block.kernels->add(n, sum, v);
}

static void add_product_to_sum(const backward_block_t *b, int role, int64_t chunk, int64_t n, const float *v, const float *w) {
    float *sum = ffni_gradients_sum(b->gradients, role, chunk);
    if (sum) b->block.kernels->add_product(n, sum, v, w);
}

/* out = d * scale, or d. */
static void apply_scale(const backward_block_t *b, float *out, const float *d, const float *scale) {
    int64_t n = b->block.layer->d_out;
    if (scale)
        b->block.kernels->multiply(n, out, d, scale);
    else if (out != d)
        memcpy(out, d, (size_t)n * sizeof *out);
}

/* ---------------------------------------------------------- y = NORM_OUT(a r + c f) */

static float *residual_target(const backward_block_t *b, int64_t i) {
    const rows_t *external = &b->backward->d_residual;
    if (b->block.layer->residual == FFN_RESIDUAL_EXTERNAL) return external->base ? rows_at(external, b->block.begin + i) : NULL;
    return b->d_residual ? b->d_residual + i * b->block.layer->d_out : NULL;
}

/* From d f to the derivative by the down product. `value` is overwritten. */
static void differentiate_branch(const backward_block_t *b, int64_t i, int64_t chunk, float *d, float *value) {
    const ffn_layer_t *layer = b->block.layer;
    int64_t n = layer->d_out, row = b->block.begin + i;
    ffni_drop_path(b->block.dropout, b->block.kernels, row, n, d);
    ffni_drop(b->block.dropout, b->block.kernels, FFN_DROPOUT_BRANCH, row, n, d);
    if (has_norm(layer, FFN_NORM_BRANCH)) {
        ffni_training_add_bias(&b->block, value, b->branch + i * n);
        differentiate_norm(b, FFN_NORM_BRANCH, chunk, n, d, d, value);
    }
    add_to_sum(b, layer->mixture.experts ? FFN_ROLE_COMBINE_BIAS : FFN_ROLE_DOWN_BIAS, chunk, n, d);
}

static void end_row(const backward_block_t *b, int64_t i, int64_t chunk) {
    const ffn_layer_t *layer = b->block.layer;
    int64_t n = layer->d_out;
    const float *residual = ffni_training_residual(&b->block, i), *d_sum = rows_at(&b->backward->d_y, b->block.begin + i);
    float *value = b->value ? b->value + i * n : NULL, *d_branch = b->d_branch + i * n, *d_residual = residual_target(b, i);
    if (value) ffni_training_branch(&b->block, i, value, b->branch + i * n);
    if (has_norm(layer, FFN_NORM_OUT)) {
        float *sum = b->sum + i * n;
        layer->kernels->combine(n, sum, value, NULL, layer->branch_scale, residual, layer->residual_scale);
        differentiate_norm(b, FFN_NORM_OUT, chunk, n, sum, d_sum, sum);
        d_sum = sum;
    }
    if (value) add_product_to_sum(b, FFN_ROLE_BRANCH_SCALE, chunk, n, d_sum, value);
    if (residual) add_product_to_sum(b, FFN_ROLE_RESIDUAL_SCALE, chunk, n, d_sum, residual);
    apply_scale(b, d_branch, d_sum, layer->branch_scale);
    if (d_residual) apply_scale(b, d_residual, d_sum, layer->residual_scale);
    differentiate_branch(b, i, chunk, d_branch, value);
}

/* ------------------------------------------- h = NORM_MID(act(...) or act(...) * (...)) */

static void learn_xielu(const backward_block_t *b, int64_t chunk, const float *d_act, const float *hidden, const float *bias) {
    const ffn_layer_t *layer = b->block.layer;
    if (!gradient_wanted(b->gradients, FFN_ROLE_XIELU_ALPHA_P) && !gradient_wanted(b->gradients, FFN_ROLE_XIELU_ALPHA_N)) return;
    b->block.kernels->learn_xielu(&layer->activation, layer->d_ff, b->gradients->xielu + 2 * chunk, d_act, hidden, bias,
                                  layer->gated ? hidden + layer->d_ff : NULL, layer->up_bias);
}

/* `act` takes the activated row, `hidden` the derivatives by its pre-activations. */
static void differentiate_activation(const backward_block_t *b, int64_t i, int64_t chunk, float *act, float *d_act, float *hidden) {
    const ffn_layer_t *layer = b->block.layer;
    const activation_t *activation = &layer->activation;
    int64_t d_ff = layer->d_ff;
    const float *bias = ffni_training_bias(&b->block, layer->gated ? layer->gate_bias : layer->up_bias);
    learn_xielu(b, chunk, d_act, hidden, bias);
    if (layer->gated)
        b->block.kernels->differentiate_gated(activation, d_ff, act, hidden, hidden + d_ff, d_act, hidden, bias, hidden + d_ff, layer->up_bias);
    else
        b->block.kernels->differentiate(activation, d_ff, act, hidden, d_act, hidden, bias);
    ffni_drop(b->block.dropout, b->block.kernels, FFN_DROPOUT_PRE_ACTIVATION, b->block.begin + i, d_ff, hidden);
    add_to_sum(b, layer->gated ? FFN_ROLE_GATE_BIAS : FFN_ROLE_UP_BIAS, chunk, d_ff, hidden);
    if (layer->gated) add_to_sum(b, FFN_ROLE_UP_BIAS, chunk, d_ff, hidden + d_ff);
}

static void middle_row(const backward_block_t *b, int64_t i, int64_t chunk) {
    const ffn_layer_t *layer = b->block.layer;
    int64_t d_ff = layer->d_ff;
    float *hidden = b->hidden + i * layer->hidden_width, *d_act = b->d_act + i * d_ff, *act = d_act;
    if (!b->hidden_dropped) ffni_training_drop_hidden(&b->block, i, hidden);
    if (has_norm(layer, FFN_NORM_MID)) {
        act = b->act + i * d_ff;
        ffni_training_activate(&b->block, i, act, hidden);
        ffni_step_normalise(layer, FFN_NORM_MID, d_ff, b->normed + i * d_ff, act);
        differentiate_norm(b, FFN_NORM_MID, chunk, d_ff, d_act, d_act, act);
    }
    ffni_training_drop_activated(&b->block, i, d_act);
    differentiate_activation(b, i, chunk, act, d_act, hidden);
    if (act == d_act) ffni_training_drop_activated(&b->block, i, act);
}

/* ----------------------------------------------------------------- n = NORM_IN(x) */

static void start_row(const backward_block_t *b, int64_t i, int64_t chunk) {
    const ffn_layer_t *layer = b->block.layer;
    int64_t n = layer->d_model, row = b->block.begin + i;
    float *d_input = b->d_input + i * n, *d_x = b->backward->d_x.base ? rows_at(&b->backward->d_x, row) : d_input;
    const float *d_residual = b->d_residual ? b->d_residual + i * n : NULL;
    if (layer->residual == FFN_RESIDUAL_NORMED) b->block.kernels->add(n, d_input, d_residual);
    if (has_norm(layer, FFN_NORM_IN))
        differentiate_norm(b, FFN_NORM_IN, chunk, n, d_x, d_input, rows_at(b->block.x, row));
    else if (d_x != d_input)
        memcpy(d_x, d_input, (size_t)n * sizeof *d_x);
    if (layer->residual == FFN_RESIDUAL_INPUT) b->block.kernels->add(n, d_x, d_residual);
}

/* ----------------------------------------------------------------------- Chunks */

typedef void row_fn(const backward_block_t *b, int64_t i, int64_t chunk);

static void each_row(const backward_block_t *b, int64_t begin, int64_t end, row_fn *step) {
    for (int64_t chunk = begin; chunk < end; chunk++)
        for (int64_t i = chunk * GRADIENT_CHUNK; i < minimum((chunk + 1) * GRADIENT_CHUNK, b->block.rows); i++) step(b, i, chunk);
}

void ffni_backward_end_chunks(void *block, int64_t begin, int64_t end) {
    each_row(block, begin, end, end_row);
}

void ffni_backward_middle_chunks(void *block, int64_t begin, int64_t end) {
    each_row(block, begin, end, middle_row);
}

void ffni_backward_start_chunks(void *block, int64_t begin, int64_t end) {
    each_row(block, begin, end, start_row);
}
