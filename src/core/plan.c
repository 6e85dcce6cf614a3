/* SPDX-License-Identifier: MIT
 * Cutting a run of the native engine into blocks. */
#include "core/plan.h"

#include "base/checked.h"
#include "core/steps.h"
#include "core/tiling.h"

enum {
    /* Up to so many rows the threads share a block, and so read the weights once; beyond, if that leaves each enough rows, they take blocks. */
    SHARED_ROWS = 192,
    WHOLE_ROWS_LEAST = 48,
    LAST_ROWS = 24, /* about so few when they near the end */
    /* Multiply-adds (of four rows at the least: fewer are bound by reading the weights) that are worth waking a thread for. */
    SHARED_WORK = 1 << 20
};

scratch_t ffni_scratch_lay_out(const ffn_layer_t *layer, int64_t rows, int64_t slots, arena_t *arena) {
    const int64_t element = sizeof(float);
    scratch_t scratch = {.sums_step = ffni_group_sums(layer->kernels, rows)};
    scratch.input = ffni_arena_take(arena, ffni_tiled_size(rows, layer->d_model), element);
    if (layer->norm_slot[FFN_NORM_IN] != FFN_NORM_NONE) scratch.normed = ffni_arena_take(arena, rows * layer->d_model, element);
    scratch.hidden = ffni_arena_take(arena, ffni_tiled_size(rows, layer->d_ff), element);
    if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) scratch.hidden_rows = ffni_arena_take(arena, rows * layer->d_ff, element);
    if (ffni_step_needs_whole_branch(layer)) scratch.branch = ffni_arena_take(arena, rows * layer->d_out, element);
    scratch.counts = ffni_counts_lay_out(layer->d_ff, arena);
    scratch.counters = ffni_arena_take(arena, slots, sizeof *scratch.counters);
    scratch.sums = ffni_arena_take(arena, slots * scratch.sums_step, element);
    return scratch;
}

/* UINT64_MAX: beyond any memory. */
static uint64_t block_bytes(const ffn_layer_t *layer, int64_t rows, int64_t slots) {
    arena_t measure = {0};
    ffni_scratch_lay_out(layer, rows, slots, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

static int64_t useful_threads(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens) {
    double work = (double)layer->weight_bytes / 4 * (double)maximum(tokens, 4);
    return work < SHARED_WORK ? 1 : context->threads_requested;
}

static int64_t whole_rows_most(const ffn_layer_t *layer) {
    int64_t tile = ffni_tile_rows_most(layer->kernels);
    return WHOLE_ROWS_MOST / tile * tile;
}

/* Of nearly equal parts, none above `most`. */
static int64_t even_part(int64_t rows, int64_t most) {
    return (rows - 1) / ((rows - 1) / most + 1) + 1;
}

/* Threads that take whole blocks take smaller ones towards the end, so that none waits long for the last: a thread's share in equal blocks, its
 * last one in two halves, and what is left then in equal parts. */
static int64_t block_of_share(int64_t share, int64_t most) {
    if (share > most) return even_part(share, most);
    return share > LAST_ROWS + LAST_ROWS / 2 ? maximum(LAST_ROWS, (share - 1) / 2 + 1) : share;
}

/* Blocks are of whole tiles of the most rows, which are the fastest. */
int64_t ffni_plan_rows(const plan_t *plan, int64_t left) {
    int64_t most = plan->block_rows, tile = plan->tile_rows;
    int64_t rows = plan->whole_blocks && plan->slots > 1 ? block_of_share((left - 1) / plan->slots + 1, most) : even_part(left, most);
    rows = minimum(most, round_up(rows, tile));
    return left <= most && left < rows + tile / 2 ? left : minimum(rows, left);
}

static plan_t plan_for(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens) {
    plan_t plan = {.slots = useful_threads(layer, context, tokens), .tile_rows = ffni_tile_rows_most(layer->kernels)};
    plan.whole_blocks = plan.slots == 1 || (tokens > SHARED_ROWS && tokens / plan.slots >= WHOLE_ROWS_LEAST);
    plan.block_rows = minimum(tokens, plan.whole_blocks ? whole_rows_most(layer) : SHARED_ROWS);
    return plan;
}

static void measure(const ffn_layer_t *layer, plan_t *plan) {
    plan->slot_bytes = block_bytes(layer, plan->block_rows, plan->whole_blocks ? 1 : plan->slots);
    if (!plan->whole_blocks || plan->slots == 1)
        plan->bytes = plan->slot_bytes;
    else
        plan->bytes = plan->slot_bytes > UINT64_MAX / (uint64_t)plan->slots ? UINT64_MAX : plan->slot_bytes * (uint64_t)plan->slots;
}

ffn_status_t ffni_plan_make(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, plan_t *plan) {
    *plan = plan_for(layer, context, tokens);
    measure(layer, plan);
    if (!context->scratch_limit || plan->bytes <= context->scratch_limit) return FFN_OK;
    /* Threads that share a block need the least. */
    plan->whole_blocks = plan->slots == 1;
    for (measure(layer, plan); plan->bytes > context->scratch_limit && plan->block_rows > 1; measure(layer, plan))
        plan->block_rows = (plan->block_rows + 1) / 2;
    if (plan->bytes <= context->scratch_limit) return FFN_OK;
    return ffni_context_limit_error(context, plan->bytes);
}

ffn_status_t ffni_plan_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes) {
    int64_t threads = context->threads_requested;
    plan_t least, shared = {.slots = threads, .block_rows = minimum(tokens, SHARED_ROWS)};
    plan_t whole = {.whole_blocks = 1, .slots = threads, .block_rows = minimum(tokens, whole_rows_most(layer))};
    *bytes = 0;
    if (tokens < 1) return FFN_OK;
    ffn_status_t status = ffni_plan_make(layer, context, 1, &least);
    if (status) return status;
    /* The largest block of either way to cut. */
    measure(layer, &shared);
    measure(layer, &whole);
    int whole_counts = threads == 1 || tokens > SHARED_ROWS;
    *bytes = whole_counts && whole.bytes > shared.bytes ? whole.bytes : shared.bytes;
    if (context->scratch_limit && *bytes > context->scratch_limit) *bytes = context->scratch_limit;
    return FFN_OK;
}
