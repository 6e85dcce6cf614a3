/* SPDX-License-Identifier: MIT
 * The backward pass. Each block of tokens takes the steps of the forward pass from the end: three passes over rows, and four products (gated: five), five
 * (six) where the pre-activations are computed again.
 *
 * With the blas engine the passes run on the context's threads, and the products by BLAS on the calling one. With the native engine each thread takes
 * some rows through all but the products that sum over tokens; these follow when all rows are there. */
#include "base/checked.h"
#include "core/backward_rows.h"
#include "core/moe_backward.h"
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

/* What the native engine's products work with: rows times weights, and the sums over rows, which come later, in the same memory. */
static void lay_out_products(const ffn_layer_t *layer, int64_t rows, int64_t slots, depth_product_t *product, arena_t *arena) {
    const int64_t element = sizeof(float), alignment = 16;
    const kernel_table_t *kernels = layer->kernels;
    if (!training_is_native(layer)) return;
    int64_t in = ffni_depth_product_shared(kernels, layer->d_ff, layer->d_model, rows);
    int64_t down = ffni_depth_product_shared(kernels, layer->d_out, layer->d_ff, rows);
    int64_t own = maximum(ffni_training_product_size(layer, minimum(rows, PRODUCT_ROWS)), ffni_depth_product_own(kernels, rows));
    *product = (depth_product_t){.kernels = kernels, .slots = slots, .own_step = round_up(own, alignment)};
    product->shared = ffni_arena_take(arena, maximum(in, down), element);
    product->own = ffni_arena_take(arena, slots, product->own_step * element);
}

static void lay_out(const ffn_layer_t *layer, needs_t needs, int64_t rows, int64_t slots, backward_block_t *b, arena_t *arena) {
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
    lay_out_products(layer, rows, slots, &b->product, arena);
}

static uint64_t bytes_of(const ffn_layer_t *layer, needs_t needs, gradients_t *gradients, int64_t rows, int64_t slots) {
    backward_block_t block;
    arena_t measure = {0};
    lay_out(layer, needs, rows, slots, &block, &measure);
    ffni_gradients_lay_out(gradients, rows, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

/* With every gradient. */
static uint64_t most_bytes(const ffn_layer_t *layer, needs_t needs, int64_t rows, int64_t slots) {
    gradients_t gradients = {.layer = layer};
    for (int role = 0; role < ROLE_LIMIT; role++) {
        gradients.view[role] = layer->stored[role];
        if (ffni_roles[role].ndim == 2) gradients.view[role].data = NULL; /* written in place */
    }
    return bytes_of(layer, needs, &gradients, rows, slots);
}

uint64_t ffni_training_backward_bytes(const ffn_layer_t *layer, int64_t rows, int64_t slots) {
    static const needs_t all = {1, 1, 1};
    return most_bytes(layer, all, rows, slots);
}

uint64_t ffni_training_backward_room(const ffn_layer_t *layer, const ffn_context_t *context, const ffn_tape_t *tape, int64_t tokens) {
    needs_t needs = {.hidden = (tape->flags & FFN_TAPE_RECOMPUTE) != 0, .branch = ffni_tape_keeps_branch(layer), .input = 1};
    uint64_t limit = context->scratch_limit ? context->scratch_limit : UINT64_MAX;
    training_plan_t plan;
    if (ffni_training_backward_bytes(layer, 1, 1) > limit) return 0;
    if (ffni_training_plan(layer, context, tokens, needs.hidden ? RECOMPUTE_ROWS : TRAINING_ROWS, ffni_training_backward_bytes, &plan)) return 0;
    return most_bytes(layer, needs, plan.rows, plan.slots);
}

static needs_t needs_of(const backward_t *backward) {
    const ffn_layer_t *layer = backward->layer;
    const gradients_t *gradients = backward->gradients;
    int norm_in = gradient_wanted(gradients, FFN_ROLE_NORM_IN_WEIGHT) || gradient_wanted(gradients, FFN_ROLE_NORM_IN_BIAS);
    return (needs_t){.hidden = !backward->tape->hidden, .branch = ffni_backward_needs_branch(layer, gradients),
                     .input = backward->d_x.base || norm_in};
}

/* ----------------------------------------------------------------------- Blocks */

static void place_block(backward_block_t *b, float *hidden) {
    const ffn_tape_t *tape = b->backward->tape;
    const ffn_layer_t *layer = b->block.layer;
    b->hidden_dropped = tape->hidden != NULL;
    b->hidden = tape->hidden ? tape->hidden + b->block.begin * layer->hidden_width : hidden;
    b->branch = tape->branch ? tape->branch + b->block.begin * layer->d_out : NULL;
    ffni_training_place_input(&b->block);
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

static void run_block_by_blas(backward_block_t *b) {
    const ffn_layer_t *layer = b->block.layer;
    ffn_context_t *context = b->block.context;
    int64_t chunks = ffni_gradients_chunks(b->block.rows);
    ffni_training_take_input(&b->block);
    if (!b->hidden_dropped) ffni_training_project_in(&b->block, b->hidden);
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->d_out, ffni_backward_end_chunks, b);
    ffni_training_project_back(&b->block, b->d_branch, b->d_act);
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->hidden_width, ffni_backward_middle_chunks, b);
    multiply_weights(b);
    if (!b->d_input) return;
    ffni_training_project_out(&b->block, b->hidden, b->d_input);
    ffni_parallel_rows(context, chunks, GRADIENT_CHUNK * layer->d_model, ffni_backward_start_chunks, b);
}

/* Some chunks, through all steps but the sums over tokens. */
static void run_chunks(backward_block_t *b, int64_t begin, int64_t end, float *scratch) {
    const ffn_layer_t *layer = b->block.layer;
    int64_t row = begin * GRADIENT_CHUNK;
    training_block_t part = b->block;
    part.begin += row;
    part.rows = minimum(end * GRADIENT_CHUNK, b->block.rows) - row;
    part.input += row * part.input_stride;
    part.product_scratch = scratch;
    float *hidden = b->hidden + row * layer->hidden_width;
    ffni_training_take_rows(&b->block, row, row + part.rows);
    if (!b->hidden_dropped) ffni_training_project_in(&part, hidden);
    ffni_backward_end_chunks(b, begin, end);
    ffni_training_project_back(&part, b->d_branch + row * layer->d_out, b->d_act + row * layer->d_ff);
    ffni_backward_middle_chunks(b, begin, end);
    if (!b->d_input) return;
    ffni_training_project_out(&part, hidden, b->d_input + row * layer->d_model);
    ffni_backward_start_chunks(b, begin, end);
}

/* As many parts for each thread, of PRODUCT_ROWS rows at most. */
static int64_t chunks_of_part(int64_t chunks, int64_t slots) {
    enum { MOST = PRODUCT_ROWS / GRADIENT_CHUNK };
    int64_t parts = round_up((chunks - 1) / MOST + 1, slots);
    return (chunks - 1) / parts + 1;
}

static void work_on_chunks(void *data, int64_t slot) {
    backward_block_t *b = data;
    int64_t chunks = ffni_gradients_chunks(b->block.rows), step = chunks_of_part(chunks, b->product.slots), begin;
    while ((begin = atomic_fetch_add_explicit(&b->next, step, memory_order_relaxed)) < chunks)
        run_chunks(b, begin, minimum(begin + step, chunks), b->product.own + slot * b->product.own_step);
}

static void run_block(backward_block_t *b, float *hidden) {
    place_block(b, hidden);
    ffni_gradients_clear(b->gradients, b->block.rows);
    if (training_is_native(b->block.layer)) {
        atomic_init(&b->next, 0);
        ffni_parallel_slots(b->block.context, minimum(b->product.slots, ffni_gradients_chunks(b->block.rows)), work_on_chunks, b);
        multiply_weights(b);
    } else {
        run_block_by_blas(b);
    }
    ffni_gradients_collect(b->gradients, b->block.rows);
}

/* Rows of a block, and its bytes: all gradients need at most what the reserve function promises, the ones at hand often less. */
static ffn_status_t make_plan(const backward_t *backward, needs_t needs, training_plan_t *plan, uint64_t *bytes) {
    int64_t most = needs.hidden ? RECOMPUTE_ROWS : TRAINING_ROWS;
    ffn_status_t status = ffni_training_plan(backward->layer, backward->context, backward->d_y.count, most, ffni_training_backward_bytes, plan);
    if (status) return status;
    *bytes = bytes_of(backward->layer, needs, backward->gradients, plan->rows, plan->slots);
    uint64_t limit = backward->context->scratch_limit;
    return limit && *bytes > limit ? ffni_context_limit_error(backward->context, *bytes) : FFN_OK;
}

ffn_status_t ffni_training_backward(const backward_t *backward) {
    if (backward->layer->mixture.experts) return ffni_moe_backward(backward);
    const ffn_tape_t *tape = backward->tape;
    const ffn_layer_t *layer = backward->layer;
    int64_t tokens = backward->d_y.count;
    needs_t needs = needs_of(backward);
    training_plan_t plan;
    uint64_t bytes;
    ffn_status_t status = make_plan(backward, needs, &plan, &bytes);
    if (!status) status = ffni_context_scratch(backward->context, bytes);
    if (status) return status;
    backward_block_t b = {.block = {.layer = layer, .kernels = layer->kernels->training, .context = backward->context, .x = &tape->x,
                                    .residual = &tape->residual, .dropout = &tape->dropout},
                          .backward = backward, .gradients = backward->gradients};
    arena_t arena = {.base = backward->context->scratch};
    lay_out(layer, needs, plan.rows, plan.slots, &b, &arena);
    ffni_gradients_lay_out(backward->gradients, plan.rows, &arena);
    ffni_gradients_begin(backward->gradients, backward->context, training_is_native(layer) ? &b.product : NULL);
    float *hidden = b.hidden;
    for (int64_t begin = 0; begin < tokens; begin += plan.rows) {
        b.block.begin = begin;
        b.block.rows = minimum(plan.rows, tokens - begin);
        run_block(&b, hidden);
    }
    ffni_gradients_finish(backward->gradients);
    return FFN_OK;
}
