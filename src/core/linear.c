/* SPDX-License-Identifier: MIT
 * Blocks of rows, which the threads take; or, where there are few rows, groups of panels of one block. */
#include "core/linear.h"

#include "base/checked.h"
#include "core/parallel.h"
#include "core/tiling.h"

#include <stdatomic.h>

enum {
    /* Rows of a block: enough to use a panel several times from cache, few enough for two threads to share 512 tokens evenly. */
    BLOCK_ROWS = 56,
    /* Multiply-adds (of four rows at the least) that are worth waking a thread for, as in core/plan.c. */
    SHARED_WORK = 1 << 20
};

/* A thread's own memory. */
typedef struct place {
    float *input;  /* a block in tiles */
    float *normed; /* a row */
    float *sums;
} place_t;

typedef struct work {
    const linear_t *linear;
    const linear_scratch_t *scratch;
    const rows_t *in;
    int64_t first, rows, panels;
    float *out;
    tiling_t tiling;       /* of the one block, where threads share it */
    atomic_int_fast64_t next; /* block, or group of panels */
} work_t;

static place_t lay_out_place(const linear_t *linear, int64_t rows, arena_t *arena) {
    const int64_t element = sizeof(float);
    place_t place = {.input = ffni_arena_take(arena, ffni_tiled_size(rows, linear->panels.depth), element)};
    if (linear->has_norm) place.normed = ffni_arena_take(arena, linear->panels.depth, element);
    place.sums = ffni_arena_take(arena, rows * GROUP_PANELS_LEAST * linear->panels.width, element);
    return place;
}

linear_scratch_t ffni_linear_lay_out(const linear_t *linear, int64_t rows, int64_t slots, arena_t *arena) {
    linear_scratch_t scratch = {.slots = slots, .block_rows = minimum(rows, BLOCK_ROWS)};
    arena_t measure = {0};
    lay_out_place(linear, scratch.block_rows, &measure);
    scratch.slot_bytes = measure.used;
    scratch.memory = ffni_arena_take(arena, slots, (int64_t)measure.used);
    arena->overflowed |= measure.overflowed;
    return scratch;
}

static place_t place_of(const work_t *work, int64_t slot) {
    arena_t arena = {.base = work->scratch->memory + (uint64_t)slot * work->scratch->slot_bytes};
    return lay_out_place(work->linear, work->scratch->block_rows, &arena);
}

static void take_rows(const work_t *work, const tiling_t *tiling, int64_t begin, const place_t *place) {
    const linear_t *linear = work->linear;
    int64_t depth = linear->panels.depth;
    for (int64_t tile = 0; tile < tiling->tiles; tile++)
        for (int64_t i = 0; i < ffni_tile_rows(tiling, tile); i++) {
            const float *row = rows_at(work->in, work->first + begin + ffni_tile_start(tiling, tile) + i);
            if (linear->has_norm) {
                linear->kernels->normalise[linear->norm_kind](&linear->norm, depth, place->normed, row);
                row = place->normed;
            }
            ffni_tile_put_row(tiling, place->input, depth, tile, i, row);
        }
}

static void multiply_group(const work_t *work, const tiling_t *tiling, int64_t begin, int64_t panel, const float *input, float *sums) {
    const panels_t *panels = &work->linear->panels;
    int64_t count = minimum(GROUP_PANELS_LEAST, work->panels - panel), column = panel * panels->width;
    int64_t columns = minimum(count * panels->width, panels->columns - column);
    ffni_multiply(tiling, input, panels->depth, panels->data + panel * panels->step, count, sums);
    for (int64_t row = 0; row < tiling->rows; row++)
        work->linear->kernels->combine(columns, work->out + (begin + row) * panels->columns + column, sums + row * count * panels->width,
                                       work->linear->bias ? work->linear->bias + column : NULL, NULL, NULL, NULL);
}

static void work_on_blocks(void *data, int64_t slot) {
    work_t *work = data;
    place_t place = place_of(work, slot);
    int64_t begin, most = work->scratch->block_rows;
    while ((begin = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed) * most) < work->rows) {
        tiling_t tiling = ffni_tiling_of(work->linear->kernels, minimum(most, work->rows - begin));
        take_rows(work, &tiling, begin, &place);
        for (int64_t panel = 0; panel < work->panels; panel += GROUP_PANELS_LEAST) multiply_group(work, &tiling, begin, panel, place.input, place.sums);
    }
}

static void work_on_panels(void *data, int64_t slot) {
    work_t *work = data;
    place_t shared = place_of(work, 0), own = place_of(work, slot);
    int64_t panel;
    while ((panel = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed) * GROUP_PANELS_LEAST) < work->panels)
        multiply_group(work, &work->tiling, 0, panel, shared.input, own.sums);
}

void ffni_linear_run(ffn_context_t *context, const linear_t *linear, const linear_scratch_t *scratch, const rows_t *in, int64_t first, int64_t rows,
                     float *out) {
    work_t work = {.linear = linear, .scratch = scratch, .in = in, .first = first, .rows = rows, .out = out,
                   .panels = (linear->panels.columns - 1) / linear->panels.width + 1};
    int64_t blocks = (rows - 1) / scratch->block_rows + 1, groups = (work.panels - 1) / GROUP_PANELS_LEAST + 1;
    int worth = (double)linear->panels.depth * (double)linear->panels.columns * (double)maximum(rows, 4) >= SHARED_WORK;
    int64_t slots = worth ? scratch->slots : 1;
    atomic_init(&work.next, 0);
    if (blocks == 1 && slots > 1) {
        work.tiling = ffni_tiling_of(linear->kernels, rows);
        place_t shared = place_of(&work, 0);
        take_rows(&work, &work.tiling, 0, &shared);
        ffni_parallel_slots(context, minimum(slots, groups), work_on_panels, &work);
    } else {
        ffni_parallel_slots(context, minimum(slots, blocks), work_on_blocks, &work);
    }
}
