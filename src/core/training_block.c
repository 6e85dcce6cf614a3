/* SPDX-License-Identifier: MIT
 * The steps that the passes of training share: from x to the pre-activations, and from a row of products to the rows behind it. */
#include "core/training.h"

#include "base/checked.h"
#include "core/moe_backward.h"
#include "core/parallel.h"
#include "core/steps.h"

#include <limits.h>
#include <string.h>

enum { SHARED_WORK = 1 << 20 }; /* multiply-adds that are worth waking a thread for, as in plan.c */

static int64_t useful_slots(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens) {
    if (!training_is_native(layer)) return 1;
    return (double)layer->weight_bytes / 4 * (double)tokens < SHARED_WORK ? 1 : context->threads_requested;
}

/* The rows of a block do not depend on the threads: what is summed chunk by chunk must not. */
ffn_status_t ffni_training_plan(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, int64_t most, block_bytes_fn *bytes,
                                training_plan_t *plan) {
    uint64_t limit = context->scratch_limit ? context->scratch_limit : UINT64_MAX;
    while (most && bytes(layer, most, 1) > limit) most /= 2;
    if (!most) return ffni_context_limit_error(context, bytes(layer, 1, 1));
    int64_t blocks = (tokens - 1) / most + 1;
    plan->rows = (tokens - 1) / blocks + 1;
    if (training_is_native(layer) && blocks > 1) plan->rows = most; /* whole chains and chunks */
    plan->slots = useful_slots(layer, context, tokens);
    while (plan->slots > 1 && bytes(layer, plan->rows, plan->slots) > limit) plan->slots--;
    return FFN_OK;
}

/* Room for the largest block of any run of up to so many tokens. */
ffn_status_t ffni_training_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes) {
    block_bytes_fn *const passes[] = {ffni_training_forward_bytes, ffni_training_backward_bytes};
    *bytes = 0;
    if (layer->mixture.experts) return ffni_moe_backward_scratch(layer, context, tokens, bytes); /* the forward pass is inference's */
    for (int i = 0; tokens && i < 2; i++) {
        training_plan_t plan;
        ffn_status_t status = ffni_training_plan(layer, context, INT64_MAX, TRAINING_ROWS, passes[i], &plan);
        if (status) return status;
        uint64_t need = passes[i](layer, minimum(tokens, TRAINING_ROWS), useful_slots(layer, context, tokens));
        if (context->scratch_limit && need > context->scratch_limit) need = context->scratch_limit;
        if (need > *bytes) *bytes = need;
    }
    return FFN_OK;
}

static int input_in_place(const training_block_t *block) {
    const rows_t *x = block->x;
    return block->layer->norm_slot[FFN_NORM_IN] == FFN_NORM_NONE && x->length == x->count && x->row_stride / 4 <= INT_MAX;
}

void ffni_training_place_input(training_block_t *block) {
    int in_place = input_in_place(block);
    block->input = in_place ? rows_at(block->x, block->begin) : block->input_rows;
    block->input_stride = in_place ? block->x->row_stride / 4 : block->layer->d_model;
}

void ffni_training_take_rows(void *data, int64_t begin, int64_t end) {
    const training_block_t *block = data;
    int64_t width = block->layer->d_model;
    for (int64_t i = begin; block->input == block->input_rows && i < end; i++) {
        const float *x = rows_at(block->x, block->begin + i);
        float *input = block->input_rows + i * width;
        if (block->layer->norm_slot[FFN_NORM_IN] != FFN_NORM_NONE)
            ffni_step_normalise(block->layer, FFN_NORM_IN, width, input, x);
        else
            memcpy(input, x, (size_t)width * sizeof *input);
    }
}

void ffni_training_take_input(training_block_t *block) {
    ffni_training_place_input(block);
    if (block->input == block->input_rows)
        ffni_parallel_rows(block->context, block->rows, block->layer->d_model, ffni_training_take_rows, block);
}

/* ------------------------------------------------------------------- Row by row */

static const float *activated_bias(const ffn_layer_t *layer) {
    return layer->gated ? layer->gate_bias : layer->up_bias;
}

static void add_bias(const ffn_layer_t *layer, int64_t n, float *out, const float *product, const float *bias) {
    layer->kernels->combine(n, out, product, bias, NULL, NULL, NULL);
}

void ffni_training_drop_hidden(const training_block_t *block, int64_t row, float *hidden) {
    const ffn_layer_t *layer = block->layer;
    if (!ffni_dropout_acts(block->dropout, FFN_DROPOUT_PRE_ACTIVATION)) return;
    if (activated_bias(layer)) add_bias(layer, layer->d_ff, hidden, hidden, activated_bias(layer));
    ffni_drop(block->dropout, block->kernels, FFN_DROPOUT_PRE_ACTIVATION, block->begin + row, layer->d_ff, hidden);
}

const float *ffni_training_bias(const training_block_t *block, const float *bias) {
    return ffni_dropout_acts(block->dropout, FFN_DROPOUT_PRE_ACTIVATION) ? NULL : bias;
}

void ffni_training_drop_activated(const training_block_t *block, int64_t row, float *act) {
    ffni_drop(block->dropout, block->kernels, FFN_DROPOUT_ACTIVATION, block->begin + row, block->layer->d_ff, act);
    ffni_drop(block->dropout, block->kernels, FFN_DROPOUT_HIDDEN, block->begin + row, block->layer->d_ff, act);
}

void ffni_training_activate(const training_block_t *block, int64_t row, float *act, const float *hidden) {
    const ffn_layer_t *layer = block->layer;
    const activation_t *activation = &layer->activation;
    const float *bias = ffni_training_bias(block, activated_bias(layer));
    if (layer->gated)
        layer->kernels->activate_gated[activation->kind](activation, layer->d_ff, act, hidden, bias, hidden + layer->d_ff, layer->up_bias);
    else
        layer->kernels->activate[activation->kind](activation, layer->d_ff, act, hidden, bias);
    ffni_training_drop_activated(block, row, act);
}

void ffni_training_add_bias(const training_block_t *block, float *out, const float *product) {
    add_bias(block->layer, block->layer->d_out, out, product, block->layer->branch_bias);
}

void ffni_training_branch(const training_block_t *block, int64_t row, float *f, const float *product) {
    const ffn_layer_t *layer = block->layer;
    ffni_training_add_bias(block, f, product);
    if (layer->norm_slot[FFN_NORM_BRANCH] != FFN_NORM_NONE) ffni_step_normalise(layer, FFN_NORM_BRANCH, layer->d_out, f, f);
    ffni_drop(block->dropout, block->kernels, FFN_DROPOUT_BRANCH, block->begin + row, layer->d_out, f);
    ffni_drop_path(block->dropout, block->kernels, block->begin + row, layer->d_out, f);
}

const float *ffni_training_residual(const training_block_t *block, int64_t row) {
    switch (block->layer->residual) {
    case FFN_RESIDUAL_INPUT: return rows_at(block->x, block->begin + row);
    case FFN_RESIDUAL_NORMED: return block->input + row * block->input_stride;
    case FFN_RESIDUAL_EXTERNAL: return rows_at(block->residual, block->begin + row);
    default: return NULL;
    }
}
