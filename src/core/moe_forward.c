/* SPDX-License-Identifier: MIT
 * The forward pass of a mixture of experts: windows, chunks, and what comes before and behind the experts. */
#include "core/moe.h"

#include "base/checked.h"
#include "core/gemm.h"
#include "core/moe_backward.h"
#include "core/parallel.h"
#include "core/scores.h"
#include "core/steps.h"
#include "core/tape.h"

#include <limits.h>
#include <string.h>

static rows_t contiguous_rows(float *base, int64_t count, int64_t width) {
    return (rows_t){.base = (char *)base, .count = count, .length = count, .row_stride = 4 * width, .row_bytes = 4 * width};
}

/* ----------------------------------------------------------------------- Input */

static void normalise_rows(void *data, int64_t begin, int64_t end) {
    const moe_pass_t *pass = data;
    int64_t width = pass->layer->d_model;
    for (int64_t row = begin; row < end; row++)
        ffni_step_normalise(pass->layer, FFN_NORM_IN, width, pass->memory.normed + row * width, rows_at(&pass->forward->x, pass->begin + row));
}

void ffni_moe_take_input(moe_pass_t *pass, int64_t begin, int64_t tokens) {
    if (pass->begin == begin && pass->tokens == tokens) return;
    pass->begin = begin, pass->tokens = tokens;
    if (!pass->memory.normed) {
        pass->input = pass->forward->x;
        pass->input_first = begin;
        return;
    }
    ffni_parallel_rows(pass->context, tokens, pass->layer->d_model, normalise_rows, pass);
    pass->input = contiguous_rows(pass->memory.normed, tokens, pass->layer->d_model);
    pass->input_first = 0;
}

const float *ffni_moe_expert_input(const moe_pass_t *pass, int64_t token) {
    if (pass->memory.latent) return pass->memory.latent + token * pass->layer->sizes.of[EXTENT_D_LATENT];
    return moe_input(pass, token);
}

static const float *chunk_weights(const moe_pass_t *pass) {
    return pass->memory.weights + (pass->begin - pass->window_begin) * pass->plan.top_k;
}

static const int32_t *chunk_ids(const moe_pass_t *pass) {
    return pass->memory.ids + (pass->begin - pass->window_begin) * pass->plan.top_k;
}

float ffni_moe_input_weight(const moe_pass_t *pass, int64_t position) {
    return pass->layer->mixture.flags & FFN_MOE_WEIGHT_ON_INPUT ? chunk_weights(pass)[pass->memory.order[position]] : 1.0f;
}

/* ----------------------------------------------------------------- Projections */

static void add_bias_rows(float *out, int64_t rows, int64_t width, const float *bias, const kernel_table_t *kernels) {
    for (int64_t row = 0; bias && row < rows; row++) kernels->combine(width, out + row * width, out + row * width, bias, NULL, NULL, NULL);
}

/* out[i] = W in[first + i] + bias, on the layer's engine. */
static void project(const moe_pass_t *pass, int weight_role, int bias_role, const linear_scratch_t *scratch, const rows_t *in, int64_t first, float *out) {
    const ffn_layer_t *layer = pass->layer;
    const view_t *weight = &layer->stored[weight_role];
    if (layer->packed[weight_role].data) {
        linear_t linear = ffni_moe_linear(layer, weight_role, bias_role);
        ffni_linear_run(pass->context, &linear, scratch, in, first, pass->tokens, out);
        return;
    }
    for (int64_t token = 0; token < pass->tokens;) {
        /* Rows of one stride go together. */
        int64_t rows = in->length == in->count && in->row_stride / 4 <= INT_MAX ? pass->tokens : 1;
        ffni_gemm(rows, weight->rows, weight->columns, rows_at(in, first + token), rows == 1 ? weight->columns : in->row_stride / 4,
                  (const float *)(const void *)weight->data, out + token * weight->rows);
        token += rows;
    }
    add_bias_rows(out, pass->tokens, weight->rows, ffni_layer_vector(layer, bias_role, 0), layer->kernels);
}

static void gate_shared(const moe_pass_t *pass) {
    float *scale = pass->memory.shared_scale;
    if (!scale) return;
    project(pass, FFN_ROLE_SHARED_SCALE_WEIGHT, FFN_ROLE_NONE, &pass->memory.shared_gate, &pass->input, pass->input_first, scale);
    for (int64_t token = 0; token < pass->tokens; token++) scale[token] = (float)ffni_sigmoid((double)scale[token]);
}

/* ---------------------------------------------------------------------- Output */

/* The rows of a token's slots, in their order, with their weights. */
static int64_t rows_of_token(const moe_pass_t *pass, int64_t token, const float **rows, float *weights) {
    const moe_memory_t *memory = &pass->memory;
    int64_t top_k = pass->plan.top_k, width = pass->layer->sizes.of[EXTENT_EXPERT_OUT], count = 0;
    int on_input = (pass->layer->mixture.flags & FFN_MOE_WEIGHT_ON_INPUT) != 0;
    for (int64_t slot = token * top_k; slot < (token + 1) * top_k; slot++) {
        if (chunk_ids(pass)[slot] == FFN_MOE_NO_EXPERT) continue;
        int has_network = memory->place[slot] >= 0;
        rows[count] = has_network ? memory->rows + memory->place[slot] * width : ffni_moe_expert_input(pass, token);
        weights[count++] = has_network && on_input ? 1.0f : chunk_weights(pass)[slot];
    }
    return count;
}

static int64_t add_shared(const moe_pass_t *pass, int64_t token, int64_t count, const float **rows, float *weights) {
    if (!pass->memory.shared) return count;
    rows[count] = pass->memory.shared + token * pass->layer->d_out;
    weights[count] = pass->memory.shared_scale ? pass->memory.shared_scale[token] : 1.0f;
    return count + 1;
}

static void mix_latent_rows(void *data, int64_t begin, int64_t end) {
    const moe_pass_t *pass = data;
    const float *rows[FFN_MOE_EXPERTS_MOST];
    float weights[FFN_MOE_EXPERTS_MOST];
    int64_t width = pass->layer->sizes.of[EXTENT_D_LATENT];
    for (int64_t token = begin; token < end; token++) {
        int64_t count = rows_of_token(pass, token, rows, weights);
        pass->layer->kernels->mix(width, pass->memory.mixed + token * width, count, rows, weights);
    }
}

static const float *residual_row(const moe_pass_t *pass, int64_t token) {
    switch (pass->layer->residual) {
    case FFN_RESIDUAL_INPUT: return rows_at(&pass->forward->x, pass->begin + token);
    case FFN_RESIDUAL_NORMED: return moe_input(pass, token);
    case FFN_RESIDUAL_EXTERNAL: return rows_at(&pass->forward->residual, pass->begin + token);
    default: return NULL;
    }
}

/* The same steps with what the backward pass needs, and dropout of the branch. */
static void finish_training(const moe_pass_t *pass, int64_t token, float *branch) {
    const ffn_layer_t *layer = pass->layer;
    const ffn_tape_t *tape = pass->forward->tape;
    const dropout_t *dropout = pass->forward->dropout;
    int64_t row = pass->begin + token, width = layer->d_out;
    float *y = rows_at(&pass->forward->y, row), *sum = layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE ? branch : y;
    if (tape && tape->branch) memcpy(tape->branch + row * width, branch, (size_t)width * sizeof *branch);
    layer->kernels->combine(width, branch, branch, layer->branch_bias, NULL, NULL, NULL);
    if (layer->norm_slot[FFN_NORM_BRANCH] != FFN_NORM_NONE) ffni_step_normalise(layer, FFN_NORM_BRANCH, width, branch, branch);
    if (dropout) ffni_drop(dropout, layer->kernels->training, FFN_DROPOUT_BRANCH, row, width, branch);
    if (dropout) ffni_drop_path(dropout, layer->kernels->training, row, width, branch);
    layer->kernels->combine(width, sum, branch, NULL, layer->branch_scale, residual_row(pass, token), layer->residual_scale);
    if (sum != y) ffni_step_normalise(layer, FFN_NORM_OUT, width, y, sum);
}

static void finish_rows(void *data, int64_t begin, int64_t end) {
    const moe_pass_t *pass = data;
    const float *rows[FFN_MOE_EXPERTS_MOST + 1];
    float weights[FFN_MOE_EXPERTS_MOST + 1];
    int64_t width = pass->layer->d_out;
    for (int64_t token = begin; token < end; token++) {
        float *branch = pass->memory.branch + token * width;
        int64_t count = 1;
        rows[0] = branch, weights[0] = 1.0f; /* behind latent projections */
        if (!pass->memory.latent) count = rows_of_token(pass, token, rows, weights);
        count = add_shared(pass, token, count, rows, weights);
        pass->layer->kernels->mix(width, branch, count, rows, weights);
        if (pass->forward->dropout || pass->forward->tape) {
            finish_training(pass, token, branch);
            continue;
        }
        ffni_step_finish(pass->layer, branch, residual_row(pass, token), rows_at(&pass->forward->y, pass->begin + token));
    }
}

/* ---------------------------------------------------------------------- Chunks */

static void run_chunk(moe_pass_t *pass, int64_t begin, int64_t tokens) {
    const ffn_layer_t *layer = pass->layer;
    moe_memory_t *memory = &pass->memory;
    ffni_moe_take_input(pass, begin, tokens);
    if (memory->latent && pass->forward->tape) memory->mixed = pass->forward->tape->mixture.mixed + begin * layer->sizes.of[EXTENT_D_LATENT];
    if (memory->latent)
        project(pass, FFN_ROLE_LATENT_IN_WEIGHT, FFN_ROLE_LATENT_IN_BIAS, &memory->latent_in, &pass->input, pass->input_first, memory->latent);
    if (layer->engine == FFN_ENGINE_NATIVE)
        ffni_moe_native_experts(pass);
    else
        ffni_moe_blas_experts(pass);
    if (pass->forward->stats) ffni_moe_count_positions(pass);
    gate_shared(pass);
    int64_t work = layer->d_out * (pass->plan.top_k + 1);
    if (memory->latent) {
        ffni_parallel_rows(pass->context, tokens, work, mix_latent_rows, pass);
        rows_t mixed = contiguous_rows(memory->mixed, tokens, layer->sizes.of[EXTENT_D_LATENT]);
        project(pass, FFN_ROLE_LATENT_OUT_WEIGHT, FFN_ROLE_LATENT_OUT_BIAS, &memory->latent_out, &mixed, 0, memory->branch);
    }
    ffni_parallel_rows(pass->context, tokens, work, finish_rows, pass);
}

static void run_window(moe_pass_t *pass, int64_t begin, int64_t tokens) {
    int64_t chunks = (tokens - 1) / pass->plan.chunk + 1, rows = (tokens - 1) / chunks + 1;
    ffni_moe_route_window(pass, begin, tokens);
    for (int64_t chunk = begin; chunk < begin + tokens; chunk += rows) run_chunk(pass, chunk, minimum(rows, begin + tokens - chunk));
}

/* Windows without groups are chunks, of equal size, so that none is a small rest. */
static int64_t window_tokens(const moe_pass_t *pass, int64_t tokens) {
    int64_t windows = (tokens - 1) / pass->plan.window + 1;
    return pass->layer->mixture.capacity.struct_size ? pass->plan.window : (tokens - 1) / windows + 1;
}

ffn_status_t ffni_moe_forward(const forward_t *given) {
    static const moe_call_t nothing_particular;
    forward_t forward = *given;
    if (!forward.moe) forward.moe = &nothing_particular;
    moe_pass_t pass = {.forward = &forward, .layer = forward.layer, .context = forward.context, .begin = -1};
    int64_t tokens = forward.x.count, top_k = forward.moe->given.ids ? forward.moe->given.top_k : forward.layer->mixture.top_k;
    ffn_status_t status = ffni_moe_plan(forward.layer, forward.context, tokens, top_k, &pass.plan);
    if (!status && forward.tape) ffni_moe_fit_backward(forward.layer, forward.context, &pass.plan);
    if (!status) status = ffni_context_scratch(forward.context, pass.plan.bytes);
    if (!status && forward.tape) status = ffni_tape_reserve_choices(forward.tape, forward.layer, tokens, top_k);
    if (status) return status;
    arena_t arena = {.base = forward.context->scratch};
    pass.memory = ffni_moe_lay_out(forward.layer, &pass.plan, &arena);
    int64_t rows = window_tokens(&pass, tokens);
    if (forward.tape) forward.tape->mixture.window = rows, forward.tape->mixture.chunk = pass.plan.chunk;
    for (int64_t begin = 0; begin < tokens; begin += rows) run_window(&pass, begin, minimum(rows, tokens - begin));
    return FFN_OK;
}
