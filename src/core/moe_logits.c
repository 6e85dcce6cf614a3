/* SPDX-License-Identifier: MIT
 * The router's matrix on the native engine's products: the weights into panels, then blocks of rows, which the threads take. */
#include "core/moe_logits.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "core/panels.h"
#include "core/parallel.h"
#include "core/tiling.h"

#include <inttypes.h>
#include <stdatomic.h>

/* Rows of a block: enough to use a panel several times from cache, few enough for two threads to share 512 tokens evenly. */
enum { BLOCK_ROWS = 56 };

/* A thread's own. */
typedef struct place {
    float *input; /* [rows, d_model] in tiles */
    float *normed; /* a row */
    float *sums;
} place_t;

typedef struct work {
    const logits_t *logits;
    panels_t panels;
    int64_t panel_count, block_rows, slots;
    place_t *places;
    atomic_int_fast64_t next;
} work_t;

static const float *input_row(const logits_t *logits, const place_t *place, int64_t token) {
    const float *x = rows_at(&logits->x, token);
    if (logits->norm_kind == FFN_NORM_NONE) return x;
    logits->kernels->normalise[logits->norm_kind == FFN_NORM_LAYER ? NORM_LAYER : NORM_RMS](&logits->norm, logits->weight.columns, place->normed, x);
    return place->normed;
}

static void run_block(const work_t *work, const place_t *place, int64_t begin, int64_t rows) {
    const logits_t *logits = work->logits;
    int64_t d_model = work->panels.depth, experts = work->panels.columns, step = work->panel_count * work->panels.width;
    tiling_t tiling = ffni_tiling_of(logits->kernels, rows);
    for (int64_t tile = 0; tile < tiling.tiles; tile++)
        for (int64_t i = 0; i < ffni_tile_rows(&tiling, tile); i++)
            ffni_tile_put_row(&tiling, place->input, d_model, tile, i, input_row(logits, place, begin + ffni_tile_start(&tiling, tile) + i));
    ffni_multiply(&tiling, place->input, d_model, work->panels.data, work->panel_count, place->sums);
    for (int64_t row = 0; row < rows; row++)
        logits->kernels->combine(experts, logits->out + (begin + row) * experts, place->sums + row * step, logits->bias, NULL, NULL, NULL);
}

static void work_on_blocks(void *data, int64_t slot) {
    work_t *work = data;
    int64_t tokens = work->logits->x.count;
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed) * work->block_rows;
        if (begin >= tokens) return;
        run_block(work, &work->places[slot], begin, minimum(work->block_rows, tokens - begin));
    }
}

static uint64_t lay_out(work_t *work, char *base) {
    arena_t arena = {.base = base};
    int64_t d_model = work->panels.depth, step = work->panel_count * work->panels.width;
    work->panels.data = ffni_arena_take(&arena, d_model * step, sizeof(float));
    work->places = ffni_arena_take(&arena, work->slots, sizeof(place_t));
    for (int64_t slot = 0; slot < work->slots; slot++) {
        place_t place = {.input = ffni_arena_take(&arena, ffni_tiled_size(work->block_rows, d_model), sizeof(float))};
        if (work->logits->norm_kind != FFN_NORM_NONE) place.normed = ffni_arena_take(&arena, d_model, sizeof(float));
        place.sums = ffni_arena_take(&arena, work->block_rows * step, sizeof(float));
        if (base) work->places[slot] = place;
    }
    return arena.used;
}

/* Fewer threads, then fewer rows, where the context's limit of scratch memory asks for it. */
static ffn_status_t take_scratch(ffn_context_t *context, work_t *work) {
    uint64_t bytes;
    while ((bytes = lay_out(work, NULL)), context->scratch_limit && bytes > context->scratch_limit) {
        if (work->slots > 1)
            work->slots--;
        else if (work->block_rows > 1)
            work->block_rows /= 2;
        else
            return ffni_fail(FFN_NO_MEMORY, "scratch_limit of the context is %" PRIu64 " bytes, must be at least %" PRIu64 " for this router",
                             context->scratch_limit, bytes);
    }
    ffn_status_t status = ffni_context_scratch(context, bytes);
    if (!status) lay_out(work, context->scratch);
    return status;
}

ffn_status_t ffni_moe_logits(ffn_context_t *context, const logits_t *logits) {
    int64_t tokens = logits->x.count, width = logits->kernels->panel_width;
    work_t work = {.logits = logits, .block_rows = minimum(BLOCK_ROWS, tokens)};
    work.panels = (panels_t){.columns = logits->weight.rows, .depth = logits->weight.columns, .width = width, .step = width * logits->weight.columns};
    work.panel_count = (work.panels.columns - 1) / width + 1;
    work.slots = minimum(ffni_context_threads(context), (tokens - 1) / work.block_rows + 1);
    ffn_status_t status = take_scratch(context, &work);
    if (status) return status;
    ffni_panels_pack(context, &work.panels, &logits->weight);
    atomic_init(&work.next, 0);
    ffni_parallel_slots(context, work.slots, work_on_blocks, &work);
    return FFN_OK;
}
