/* SPDX-License-Identifier: MIT
 * The forward pass of training: dropout on the way, and what the backward pass needs left on the tape. */
#include "base/checked.h"
#include "core/parallel.h"
#include "core/products.h"
#include "core/steps.h"
#include "core/training.h"
#include "core/watch.h"

#include <stdatomic.h>

typedef struct scratch {
    float *input;  /* [rows, d_model] */
    float *hidden; /* [rows, hidden_width]: pre-activations, which the activated row then replaces; on the tape, the activated rows alone */
    float *value;  /* [rows, d_out]: the down product, and what becomes of it */
    float *product;
    counts_t counts;
} scratch_t;

typedef struct pass {
    training_block_t block;
    scratch_t scratch;
    ffn_stats_t *stats; /* NULL: nothing is counted */
    const rows_t *y;
    float *hidden, *act, *branch; /* of the block: on the tape or in scratch; act and branch may be hidden and value */
    int64_t act_stride;
} pass_t;

static scratch_t lay_out(const ffn_layer_t *layer, int64_t rows, arena_t *arena) {
    const int64_t element = sizeof(float);
    scratch_t scratch;
    scratch.input = ffni_arena_take(arena, rows, layer->d_model * element);
    scratch.hidden = ffni_arena_take(arena, rows, layer->hidden_width * element);
    scratch.value = ffni_arena_take(arena, rows, layer->d_out * element);
    scratch.product = ffni_arena_take(arena, ffni_training_product_size(layer, rows), element);
    scratch.counts = ffni_counts_lay_out(layer->d_ff, arena);
    return scratch;
}

/* Rows that one thread takes through the layer. */
static int64_t rows_of_slot(const ffn_layer_t *layer, int64_t rows) {
    return training_is_native(layer) ? minimum(rows, PRODUCT_ROWS) : rows;
}

/* With the native engine each thread has a scratch of its own. */
uint64_t ffni_training_forward_bytes(const ffn_layer_t *layer, int64_t rows, int64_t slots) {
    arena_t measure = {0};
    for (int64_t slot = 0; slot < slots; slot++) lay_out(layer, rows_of_slot(layer, rows), &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

static void activate_rows(void *data, int64_t begin, int64_t end) {
    const pass_t *pass = data;
    const ffn_layer_t *layer = pass->block.layer;
    for (int64_t i = begin; i < end; i++) {
        float *hidden = pass->hidden + i * layer->hidden_width, *act = pass->act + i * pass->act_stride;
        ffni_training_drop_hidden(&pass->block, i, hidden);
        ffni_training_activate(&pass->block, i, act, hidden);
        if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) ffni_step_normalise(layer, FFN_NORM_MID, layer->d_ff, act, act);
    }
}

/* The same in three passes where activations are counted: what dropout and the norm do goes by rows, counting by columns. */
static void drop_hidden_rows(void *data, int64_t begin, int64_t end) {
    const pass_t *pass = data;
    for (int64_t i = begin; i < end; i++) ffni_training_drop_hidden(&pass->block, i, pass->hidden + i * pass->block.layer->hidden_width);
}

static void drop_activated_rows(void *data, int64_t begin, int64_t end) {
    const pass_t *pass = data;
    const ffn_layer_t *layer = pass->block.layer;
    for (int64_t i = begin; i < end; i++) {
        float *act = pass->act + i * pass->act_stride;
        ffni_training_drop_activated(&pass->block, i, act);
        if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) ffni_step_normalise(layer, FFN_NORM_MID, layer->d_ff, act, act);
    }
}

static void activate_and_count(pass_t *pass) {
    const training_block_t *block = &pass->block;
    const ffn_layer_t *layer = block->layer;
    const network_t network = ffni_layer_expert(layer, 0);
    const watched_rows_t watched = {.network = &network, .counts = &pass->scratch.counts, .rows = block->rows, .hidden = pass->hidden,
                                    .hidden_stride = layer->hidden_width, .bias = ffni_training_bias(block, layer->gated ? layer->gate_bias : layer->up_bias), .out = pass->act,
                                    .out_stride = pass->act_stride};
    int drops = ffni_dropout_acts(block->dropout, FFN_DROPOUT_ACTIVATION) || ffni_dropout_acts(block->dropout, FFN_DROPOUT_HIDDEN);
    if (ffni_dropout_acts(block->dropout, FFN_DROPOUT_PRE_ACTIVATION))
        ffni_parallel_rows(block->context, block->rows, layer->hidden_width, drop_hidden_rows, pass);
    ffni_watch_rows(block->context, &watched);
    if (drops || layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE)
        ffni_parallel_rows(block->context, block->rows, layer->d_ff, drop_activated_rows, pass);
}

static void finish_rows(void *data, int64_t begin, int64_t end) {
    const pass_t *pass = data;
    const ffn_layer_t *layer = pass->block.layer;
    for (int64_t i = begin; i < end; i++) {
        float *value = pass->scratch.value + i * layer->d_out, *y = rows_at(pass->y, pass->block.begin + i);
        float *sum = layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE ? value : y;
        ffni_training_branch(&pass->block, i, value, pass->branch + i * layer->d_out);
        layer->kernels->combine(layer->d_out, sum, value, NULL, layer->branch_scale, ffni_training_residual(&pass->block, i), layer->residual_scale);
        if (sum != y) ffni_step_normalise(layer, FFN_NORM_OUT, layer->d_out, y, sum);
    }
}

static void run_block(pass_t *pass, const ffn_tape_t *tape) {
    training_block_t *block = &pass->block;
    const ffn_layer_t *layer = block->layer;
    int kept = tape && tape->hidden;
    pass->hidden = kept ? tape->hidden + block->begin * layer->hidden_width : pass->scratch.hidden;
    pass->act = pass->scratch.hidden;
    pass->act_stride = kept ? layer->d_ff : layer->hidden_width;
    pass->branch = tape && tape->branch ? tape->branch + block->begin * layer->d_out : pass->scratch.value;
    ffni_training_take_input(block);
    ffni_training_project_in(block, pass->hidden);
    if (pass->stats) activate_and_count(pass);
    else ffni_parallel_rows(block->context, block->rows, layer->hidden_width, activate_rows, pass);
    ffni_training_project_down(block, pass->act, pass->act_stride, pass->branch);
    ffni_parallel_rows(block->context, block->rows, layer->d_out, finish_rows, pass);
}

typedef struct run {
    const forward_t *forward;
    const dropout_t *dropout;
    ffn_tape_t *tape;
    int64_t rows; /* of a block */
    atomic_int_fast64_t next;
} run_t;

static scratch_t scratch_of(const run_t *run, int64_t slot) {
    const ffn_layer_t *layer = run->forward->layer;
    arena_t arena = {.base = run->forward->context->scratch};
    scratch_t scratch = lay_out(layer, run->rows, &arena);
    while (slot-- > 0) scratch = lay_out(layer, run->rows, &arena);
    return scratch;
}

/* One slot's share of the blocks: those that it finds. With the blas engine there is one slot, and the context's threads share each block. */
static void work_on_blocks(void *data, int64_t slot) {
    run_t *run = data;
    const forward_t *forward = run->forward;
    const ffn_layer_t *layer = forward->layer;
    scratch_t scratch = scratch_of(run, slot);
    pass_t pass = {.block = {.layer = layer, .kernels = layer->kernels->training, .context = training_is_native(layer) ? NULL : forward->context,
                             .x = &forward->x, .residual = &forward->residual, .dropout = run->dropout, .input_rows = scratch.input,
                             .product_scratch = scratch.product},
                   .scratch = scratch, .stats = forward->stats, .y = &forward->y};
    int64_t tokens = forward->x.count;
    if (pass.stats) ffni_counts_clear(&scratch.counts, layer->d_ff);
    while ((pass.block.begin = atomic_fetch_add_explicit(&run->next, run->rows, memory_order_relaxed)) < tokens) {
        pass.block.rows = minimum(run->rows, tokens - pass.block.begin);
        run_block(&pass, run->tape);
    }
}

/* Native: as many blocks for each thread. What a token becomes does not depend on its block. */
static int64_t share_rows(const training_plan_t *plan, int64_t tokens) {
    int64_t blocks = round_up((tokens - 1) / plan->rows + 1, plan->slots);
    return (tokens - 1) / blocks + 1;
}

/* At once what the backward pass will need: growing later would hold both for a moment. */
static uint64_t scratch_bytes(const forward_t *forward, const training_plan_t *plan, const ffn_tape_t *tape) {
    uint64_t bytes = ffni_training_forward_bytes(forward->layer, plan->rows, plan->slots), later = 0;
    if (tape) later = ffni_training_backward_room(forward->layer, forward->context, tape, forward->x.count);
    return bytes > later ? bytes : later;
}

ffn_status_t ffni_training_forward(const forward_t *forward, const dropout_t *dropout, ffn_tape_t *tape) {
    const ffn_layer_t *layer = forward->layer;
    int64_t tokens = forward->x.count;
    training_plan_t plan;
    int64_t most = rows_of_slot(layer, TRAINING_ROWS);
    ffn_status_t status = ffni_training_plan(layer, forward->context, tokens, most, ffni_training_forward_bytes, &plan);
    if (!status) status = ffni_context_scratch(forward->context, scratch_bytes(forward, &plan, tape));
    if (!status && tape) status = ffni_tape_reserve(tape, layer, tokens);
    if (status) return status;
    run_t run = {.forward = forward, .dropout = dropout, .tape = tape, .rows = share_rows(&plan, tokens)};
    atomic_init(&run.next, 0);
    ffni_parallel_slots(forward->context, plan.slots, work_on_blocks, &run);
    for (int64_t slot = 0; forward->stats && slot < plan.slots; slot++) {
        scratch_t scratch = scratch_of(&run, slot);
        ffni_stats_add(forward->stats, 0, layer->d_ff, &scratch.counts);
    }
    return FFN_OK;
}
