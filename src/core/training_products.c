/* SPDX-License-Identifier: MIT
 * The products of a block of tokens with the layer's weights, by its engine. */
#include "base/checked.h"
#include "core/products.h"
#include "core/training.h"

/* c = a times one of the layer's packed weights. */
static void multiply(const training_block_t *block, int64_t depth, int64_t columns, operand_t a, const float *panels, int64_t turns, float *c) {
    const rows_product_t product = {.kernels = block->layer->kernels, .rows = block->rows, .depth = depth, .columns = columns, .a = a.data,
                                    .a_stride = a.stride, .panels = panels, .turns = turns, .c = c, .c_stride = turns * columns,
                                    .scratch = block->product_scratch};
    ffni_rows_product(&product);
}

void ffni_training_project_in(const training_block_t *block, float *hidden) {
    const ffn_layer_t *layer = block->layer;
    if (training_is_native(layer))
        multiply(block, layer->d_model, layer->d_ff, (operand_t){block->input, block->input_stride, 0}, layer->in_weight, 1 + layer->gated, hidden);
    else
        ffni_gemm(block->rows, layer->hidden_width, layer->d_model, block->input, block->input_stride, layer->in_weight, hidden);
}

void ffni_training_project_down(const training_block_t *block, const float *act, int64_t stride, float *out) {
    const ffn_layer_t *layer = block->layer;
    if (training_is_native(layer))
        multiply(block, layer->d_ff, layer->d_out, (operand_t){act, stride, 0}, layer->down_weight, 1, out);
    else
        ffni_gemm(block->rows, layer->d_out, layer->d_ff, act, stride, layer->down_weight, out);
}

void ffni_training_project_back(const training_block_t *block, const float *d_branch, float *d_act) {
    const ffn_layer_t *layer = block->layer;
    operand_t d = {d_branch, layer->d_out, 0}, weight = {layer->down_weight, layer->d_out, 1};
    if (training_is_native(layer))
        multiply(block, layer->d_out, layer->d_ff, d, layer->back_down_weight, 1, d_act);
    else
        ffni_gemm_general(block->rows, layer->d_ff, layer->d_out, d, weight, 0, d_act, layer->d_ff);
}

void ffni_training_project_out(const training_block_t *block, const float *d_hidden, float *d_input) {
    const ffn_layer_t *layer = block->layer;
    operand_t d = {d_hidden, layer->hidden_width, 0}, weight = {layer->in_weight, layer->hidden_width, 1};
    if (training_is_native(layer))
        multiply(block, layer->hidden_width, layer->d_model, d, layer->back_in_weight, 1, d_input);
    else
        ffni_gemm_general(block->rows, layer->d_model, layer->hidden_width, d, weight, 0, d_input, layer->d_model);
}

int64_t ffni_training_product_size(const ffn_layer_t *layer, int64_t rows) {
    int64_t deepest = maximum(maximum(layer->d_model, layer->d_out), layer->hidden_width);
    return training_is_native(layer) ? ffni_rows_product_size(layer->kernels, rows, deepest) : 0;
}

uint64_t ffni_training_stack(const ffn_layer_t *layer) {
    return training_is_native(layer) ? 0 : ffni_gemm_general_stack();
}
