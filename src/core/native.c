/* SPDX-License-Identifier: MIT
 * The forward pass of the native engine.
 *
 * Tokens go through in blocks of rows: the rows into tiles (normed on the way); then, group by group of panels, the sums of gate and up and the
 * activation of them, into tiles again; then the sums of the down projection and what ends the layer, into y. Many tokens: each thread takes
 * whole blocks, one after the other. Few: one block, whose groups of panels the threads take, with one wait between the two projections.
 *
 * An output is one chain of multiply-adds whatever the block, the tile, the group and the thread: a token's bits depend on it and the layer alone. */
#include "core/native.h"

#include "base/arena.h"
#include "base/checked.h"
#include "core/groups.h"
#include "core/network.h"
#include "core/parallel.h"
#include "core/plan.h"
#include "core/steps.h"
#include "core/tiling.h"

#include <stdatomic.h>
#include <string.h>

typedef struct block {
    const forward_t *forward;
    const ffn_layer_t *layer;
    network_t network;
    ffn_context_t *context; /* NULL: the block is one thread's */
    int64_t slots;          /* threads that may work on the block */
    int64_t begin, rows;
    tiling_t tiling;
    scratch_t scratch;
    const float *input; /* in tiles: scratch.input, or the one row of x */
} block_t;

static void each_group(const block_t *block, int64_t count, group_fn *work) {
    groups_t groups = {.data = block, .work = work, .count = count, .slots = block->slots, .counters = block->scratch.counters,
                       .sums = block->scratch.sums, .sums_step = block->scratch.sums_step};
    ffni_each_group(block->context, &groups);
}

/* ---------------------------------------------------------------- Input rows */

static const float *normed_row(const block_t *block, int64_t row) {
    return block->scratch.normed + row * block->layer->d_model;
}

static void take_tile(const block_t *block, int64_t tile) {
    const ffn_layer_t *layer = block->layer;
    int64_t start = ffni_tile_start(&block->tiling, tile), rows = ffni_tile_rows(&block->tiling, tile), d_model = layer->d_model;
    for (int64_t i = 0; i < rows; i++) {
        const float *x = rows_at(&block->forward->x, block->begin + start + i);
        if (block->scratch.normed) {
            float *normed = block->scratch.normed + (start + i) * d_model;
            ffni_step_normalise(layer, FFN_NORM_IN, d_model, normed, x);
            x = normed;
        }
        ffni_tile_put_row(&block->tiling, block->scratch.input, d_model, tile, i, x);
    }
}

static void take_tiles(void *data, int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; tile++) take_tile(data, tile);
}

/* One row in a tile is a plain row: read where it is. */
static void take_input(block_t *block) {
    const ffn_layer_t *layer = block->layer;
    block->input = block->scratch.input;
    if (block->rows > 1) {
        ffni_parallel_rows(block->context, block->tiling.tiles, layer->d_model * ffni_tile_rows(&block->tiling, 0), take_tiles, block);
        return;
    }
    block->input = rows_at(&block->forward->x, block->begin);
    if (!block->scratch.normed) return;
    ffni_step_normalise(layer, FFN_NORM_IN, layer->d_model, block->scratch.normed, block->input);
    block->input = block->scratch.normed;
}

/* -------------------------------------------------------------- Hidden units */

static int64_t in_group_panels(const block_t *block) {
    const ffn_layer_t *layer = block->layer;
    int64_t least = 1 + layer->gated;
    return ffni_group_panels(block->slots, layer->in_panels, ffni_tiling_group(&block->tiling), least);
}

static int64_t down_group_panels(const block_t *block) {
    const ffn_layer_t *layer = block->layer;
    return ffni_group_panels(block->slots, layer->down_panels, ffni_tiling_group(&block->tiling), 1);
}

static hidden_t hidden_of(const block_t *block) {
    return (hidden_t){.tiled = block->scratch.hidden, .rows = block->scratch.hidden_rows,
                      .counts = block->forward->stats ? &block->scratch.counts : NULL};
}

static void project_in(const void *data, int64_t group, float *sums) {
    const block_t *block = data;
    int64_t most = in_group_panels(block), first = group * most;
    hidden_t hidden = hidden_of(block);
    ffni_network_hidden(&block->network, &block->tiling, block->input, &hidden, first, minimum(most, block->layer->in_panels - first), sums);
}

/* Norm MID needs whole rows. */
static void normalise_hidden_tiles(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    hidden_t hidden = hidden_of(block);
    for (int64_t tile = begin; tile < end; tile++) ffni_network_normalise_tile(&block->network, &block->tiling, &hidden, tile);
}

/* -------------------------------------------------------------------- Output */

static const float *residual_row(const block_t *block, int64_t row) {
    const forward_t *forward = block->forward;
    switch (block->layer->residual) {
    case FFN_RESIDUAL_INPUT: return rows_at(&forward->x, block->begin + row);
    case FFN_RESIDUAL_NORMED: return block->scratch.normed ? normed_row(block, row) : rows_at(&forward->x, block->begin + row);
    case FFN_RESIDUAL_EXTERNAL: return rows_at(&forward->residual, block->begin + row);
    default: return NULL;
    }
}

static const float *from(const float *vector, int64_t column) {
    return vector ? vector + column : NULL;
}

static void project_down(const void *data, int64_t group, float *sums) {
    const block_t *block = data;
    const ffn_layer_t *layer = block->layer;
    int64_t width = layer->kernels->panel_width, most = down_group_panels(block), first = group * most;
    int64_t panels = minimum(most, layer->down_panels - first), column = first * width, columns = minimum(panels * width, layer->d_out - column);
    hidden_t hidden = hidden_of(block);
    ffni_network_down(&block->network, &block->tiling, &hidden, first, panels, sums);
    for (int64_t row = 0; row < block->rows; row++) {
        const float *sum = sums + row * panels * width;
        if (block->scratch.branch)
            memcpy(block->scratch.branch + row * layer->d_out + column, sum, (size_t)columns * sizeof *sum);
        else
            layer->kernels->combine(columns, rows_at(&block->forward->y, block->begin + row) + column, sum, from(layer->branch_bias, column),
                                    from(layer->branch_scale, column), from(residual_row(block, row), column), from(layer->residual_scale, column));
    }
}

static void finish_rows(void *data, int64_t begin, int64_t end) {
    const block_t *block = data;
    for (int64_t row = begin; row < end; row++)
        ffni_step_finish(block->layer, block->scratch.branch + row * block->layer->d_out, residual_row(block, row),
                         rows_at(&block->forward->y, block->begin + row));
}

/* -------------------------------------------------------------------- Blocks */

static void run_block(block_t *block) {
    const ffn_layer_t *layer = block->layer;
    take_input(block);
    each_group(block, groups_of(layer->in_panels, in_group_panels(block)), project_in);
    if (block->scratch.hidden_rows)
        ffni_parallel_rows(block->context, block->tiling.tiles, layer->d_ff * ffni_tile_rows(&block->tiling, 0), normalise_hidden_tiles, block);
    each_group(block, groups_of(layer->down_panels, down_group_panels(block)), project_down);
    if (block->scratch.branch) ffni_parallel_rows(block->context, block->rows, layer->d_out, finish_rows, block);
}

typedef struct run {
    const forward_t *forward;
    plan_t plan;
    atomic_int_fast64_t next; /* token */
} run_t;

static int take_block(run_t *run, block_t *block) {
    int_fast64_t begin = atomic_load_explicit(&run->next, memory_order_relaxed);
    do {
        if (begin >= run->forward->x.count) return 0;
        block->begin = begin;
        block->rows = ffni_plan_rows(&run->plan, run->forward->x.count - begin);
    } while (!atomic_compare_exchange_weak_explicit(&run->next, &begin, begin + block->rows, memory_order_relaxed, memory_order_relaxed));
    return 1;
}

/* Threads that take whole blocks have a scratch each; those that share one have its first. */
static scratch_t scratch_of(const run_t *run, int64_t slot) {
    const plan_t *plan = &run->plan;
    arena_t arena = {.base = run->forward->context->scratch + (uint64_t)slot * plan->slot_bytes};
    return ffni_scratch_lay_out(run->forward->layer, plan->block_rows, plan->whole_blocks ? 1 : plan->slots, &arena);
}

/* One slot's share of the blocks: those that it finds. */
static void work_on_blocks(void *data, int64_t slot) {
    run_t *run = data;
    const plan_t *plan = &run->plan;
    const forward_t *forward = run->forward;
    block_t block = {.forward = forward, .layer = forward->layer, .network = ffni_layer_expert(forward->layer, 0), .slots = plan->whole_blocks ? 1 : plan->slots,
                     .context = plan->whole_blocks ? NULL : forward->context};
    block.scratch = scratch_of(run, slot);
    if (forward->stats) ffni_counts_clear(&block.scratch.counts, forward->layer->d_ff);
    while (take_block(run, &block)) {
        block.tiling = ffni_tiling_of(forward->layer->kernels, block.rows);
        run_block(&block);
    }
}

/* At once to what any cut of so many tokens needs. */
static ffn_status_t grow_scratch(const forward_t *forward) {
    uint64_t bytes = 0;
    ffn_status_t status = ffni_plan_scratch(forward->layer, forward->context, forward->x.count, &bytes);
    return status ? status : ffni_context_scratch(forward->context, bytes);
}

ffn_status_t ffni_native_forward(const forward_t *forward) {
    run_t run = {.forward = forward};
    ffn_status_t status = ffni_plan_make(forward->layer, forward->context, forward->x.count, &run.plan);
    if (!status && run.plan.bytes > forward->context->scratch_bytes) status = grow_scratch(forward);
    if (status) return status;
    int64_t workers = run.plan.whole_blocks ? run.plan.slots : 1;
    atomic_init(&run.next, 0);
    ffni_parallel_slots(forward->context, workers, work_on_blocks, &run);
    for (int64_t slot = 0; forward->stats && slot < workers; slot++) {
        scratch_t scratch = scratch_of(&run, slot);
        ffni_stats_add(forward->stats, 0, forward->layer->d_ff, &scratch.counts);
    }
    return FFN_OK;
}

ffn_status_t ffni_native_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes) {
    return ffni_plan_scratch(layer, context, tokens, bytes);
}
