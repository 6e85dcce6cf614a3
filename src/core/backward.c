/* SPDX-License-Identifier: MIT
 * The backward pass. Each block of tokens takes the steps of the forward pass from the end: three passes over rows on the context's threads, and four
 * products (gated: five) by BLAS on the calling thread, five (six) where the pre-activations are computed again. */
#include "base/checked.h"
#include "core/backward_rows.h"
#include "core/parallel.h"

/* Rows of a block that computes its pre-activations again: half of what suits BLAS best, for half the scratch memory. */
enum { RECOMPUTE_ROWS = TRAINING_ROWS / 2 };

/* What of the layout a pass needs. */
typedef struct needs {
    int hidden, branch, input;
} needs_t;

static float *take(arena_t *arena, int needed, int64_t rows, int64_t width) {
    return needed ? ffni_arena_take(arena, rows, width * (int64_t)sizeof(float)) : NULL;
}

static void lay_out(const ffn_layer_t *layer, needs_t needs, int64_t rows, backward_block_t *b, arena_t *arena) {
    int mid = layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE, out = layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE;
    int adds_to_input = needs.input && (layer->residual == FFN_RESIDUAL_INPUT || layer->residual == FFN_RESIDUAL_NORMED);
    b->block.input_rows = take(arena, 1, rows, layer->d_model);
    b->hidden = take(arena, needs.hidden, rows, layer->hidden_width);
    b->d_act = take(arena, 1, rows, layer->d_ff);
    b->act = take(arena, mid, rows, layer->d_ff);
    b->normed = take(arena, mid, rows, layer->d_ff);
    b->d_branch = take(arena, 1, rows, layer->d_out);
    b->value = take(arena, needs.branch, rows, layer->d_out);
    b->sum = take(arena, out, rows, layer->d_out);
    b->d_residual = take(arena, adds_to_input, rows, layer->d_out);
    b->d_input = take(arena, needs.input, rows, layer->d_model);
}

static uint64_t bytes_of(const ffn_layer_t *layer, needs_t needs, gradients_t *gradients, int64_t rows) {
    backward_block_t block;
    arena_t measure = {0};
    lay_out(layer, needs, rows, &block, &measure);
    ffni_gradients_lay_out(gradients, rows, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

uint64_t ffni_training_backward_bytes(const ffn_layer_t *layer, int64_t rows) {
    static const needs_t all = {1, 1, 1};
    gradients_t gradients = {.layer = layer};
    for (int role = 0; role < ROLE_LIMIT; role++) {
        gradients.view[role] = layer->stored[role];
        if (ffni_roles[role].ndim == 2) gradients.view[role].data = NULL; /* written in place */
    }
    return bytes_of(layer, all, &gradients, rows);
}

static needs_t needs_of(const backward_t *backward) {
    const ffn_layer_t *layer = backward->layer;
    const gradients_t *gradients = backward->gradients;
    int norm_in = gradient_wanted(gradients, FFN_ROLE_NORM_IN_WEIGHT) || gradient_wanted(gradients, FFN_ROLE_NORM_IN_BIAS);
    return (needs_t){.hidden = !backward->tape->hidden, .branch = ffni_backward_needs_branch(layer, gradients),
                     .input = backward->d_x.base || norm_in};
}

/* -------------------------------------------------------------------- Products */

static void take_pre_activations(backward_block_t *b) {
    const ffn_tape_t *tape = b->backward->tape;
    b->hidden_dropped = tape->hidden != NULL;
    if (tape->hidden)
        b->hidden = tape->hidden + b->block.begin * b->block.layer->hidden_width;
    else
        ffni_training_project_in(&b->block, b->hidden);
    b->branch = tape->branch ? tape->branch + b->block.begin * b->block.layer->d_out : NULL;
}

/* d_act = d_branch W_down */
static void project_back(const backward_block_t *b) {
    const ffn_layer_t *layer = b->block.layer;
    ffni_gemm_general(b->block.rows, layer->d_ff, layer->d_out, (operand_t){b->d_branch, layer->d_out, 0},
                      (operand_t){layer->down_weight, layer->d_out, 1}, 0, b->d_act, layer->d_ff);
}

static void multiply_weights(const backward_block_t *b) {
    const ffn_layer_t *layer = b->block.layer;
    int first = b->block.begin == 0;
    operand_t act = {b->normed ? b->normed : b->d_act, layer->d_ff, 0}, input = {b->block.input, b->block.input_stride, 0};
    operand_t gate = {b->hidden, layer->hidden_width, 0}, up = {b->hidden + (layer->gated ? layer->d_ff : 0), layer->hidden_width, 0};
    ffni_gradients_multiply(b->gradients, FFN_ROLE_DOWN_WEIGHT, b->block.rows, (operand_t){b->d_branch, layer->d_out, 0}, act, first);
    if (layer->gated) ffni_gradients_multiply(b->gradients, FFN_ROLE_GATE_WEIGHT, b->block.rows, gate, input, first);
    ffni_gradients_multiply(b->gradients, FFN_ROLE_UP_WEIGHT, b->block.rows, up, input, first);
}

/* d_input = d hidden W_in */
static void project_out(const backward_block_t *b) {
    const ffn_layer_t *layer = b->block.layer;
    ffni_gemm_general(b->block.rows, layer->d_model, layer->hidden_width, (operand_t){b->hidden, layer->hidden_width, 0},
                      (operand_t){layer->in_weight, layer->hidden_width, 1}, 0, b->d_input, layer->d_model);
}

static void run_block(backward_block_t *b) {
    const ffn_layer_t *layer = b->block.layer;
    ffn_context_t *context = b->block.context;
    int64_t chunks = (b->block.rows - 1) / GRADIENT_CHUNK + 1;
    ffni_gradients_clear(b->gradients, b->block.rows);
    ffni_training_take_input(&b->block);
    take_pre_activations(b);
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->d_out, ffni_backward_end_chunks, b);
    project_back(b);
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->hidden_width, ffni_backward_middle_chunks, b);
    multiply_weights(b);
    if (b->d_input) {
        project_out(b);
        ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->d_model, ffni_backward_start_chunks, b);
    }
    ffni_gradients_collect(b->gradients, b->block.rows);
}

/* Rows of a block, and its bytes: all gradients need at most what the reserve function promises, the ones at hand often less. */
static ffn_status_t plan(const backward_t *backward, needs_t needs, int64_t *rows, uint64_t *bytes) {
    int64_t most = needs.hidden ? RECOMPUTE_ROWS : TRAINING_ROWS;
    ffn_status_t status = ffni_training_rows(backward->layer, backward->context, backward->d_y.count, most, ffni_training_backward_bytes, rows);
    if (status) return status;
    *bytes = bytes_of(backward->layer, needs, backward->gradients, *rows);
    uint64_t limit = backward->context->scratch_limit;
    return limit && *bytes > limit ? ffni_context_limit_error(backward->context, *bytes) : FFN_OK;
}

ffn_status_t ffni_training_backward(const backward_t *backward) {
    const ffn_tape_t *tape = backward->tape;
    int64_t tokens = backward->d_y.count, rows;
    needs_t needs = needs_of(backward);
    uint64_t bytes;
    ffn_status_t status = plan(backward, needs, &rows, &bytes);
    if (!status) status = ffni_context_scratch(backward->context, bytes);
    if (status) return status;
    backward_block_t b = {.block = {.layer = backward->layer, .kernels = backward->layer->kernels->training, .context = backward->context,
                                    .x = &tape->x, .residual = &tape->residual, .dropout = &tape->dropout},
                          .backward = backward, .gradients = backward->gradients};
    arena_t arena = {.base = backward->context->scratch};
    lay_out(backward->layer, needs, rows, &b, &arena);
    ffni_gradients_lay_out(backward->gradients, rows, &arena);
    ffni_gradients_begin(backward->gradients, backward->context);
    for (int64_t begin = 0; begin < tokens; begin += rows) {
        b.block.begin = begin;
        b.block.rows = minimum(rows, tokens - begin);
        run_block(&b);
    }
    ffni_gradients_finish(backward->gradients, backward->context);
    return FFN_OK;
}
