/* SPDX-License-Identifier: MIT
 * Sorting a chunk's slots by expert: a counting sort, which keeps the order of tokens. And cutting the work into items. */
#include "core/moe.h"

#include "base/checked.h"
#include "core/tiling.h"

#include <string.h>

static const int32_t *chunk_ids(const moe_pass_t *pass) {
    return pass->memory.ids + (pass->begin - pass->window_begin) * pass->plan.top_k;
}

void ffni_moe_dispatch(moe_pass_t *pass) {
    const moe_memory_t *memory = &pass->memory;
    int64_t experts = pass->layer->mixture.experts, slots = pass->tokens * pass->plan.top_k, next[FFN_MOE_EXPERTS_MOST];
    const int32_t *ids = chunk_ids(pass);
    memset(next, 0, sizeof next);
    for (int64_t slot = 0; slot < slots; slot++)
        if (ids[slot] >= 0 && ids[slot] < experts) next[ids[slot]]++;
    memory->starts[0] = 0;
    for (int64_t expert = 0; expert < experts; expert++) {
        memory->starts[expert + 1] = memory->starts[expert] + next[expert];
        next[expert] = memory->starts[expert];
    }
    for (int64_t slot = 0; slot < slots; slot++) {
        int32_t id = ids[slot];
        memory->place[slot] = -1;
        if (id < 0 || id >= experts) continue; /* none, or an identity expert */
        memory->place[slot] = (int32_t)next[id];
        memory->order[next[id]++] = (int32_t)slot;
    }
}

/* In pieces of nearly equal size, all but the last of whole tiles. */
static void add_items(moe_pass_t *pass, int32_t expert, int64_t first, int64_t rows, int64_t most_rows) {
    int64_t tile = ffni_tile_rows_most(pass->layer->kernels), tiles = (rows + tile - 1) / tile, most_tiles = most_rows / tile;
    int64_t pieces = (tiles + most_tiles - 1) / most_tiles, end = first + rows;
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t size = minimum((tiles / pieces + (piece < tiles % pieces)) * tile, end - first);
        pass->memory.unsorted_items[pass->item_count++] = (moe_item_t){.expert = expert, .rows = (int32_t)size, .first = first};
        first += size;
    }
}

/* By descending rows, so that the last to be taken are the smallest. */
static void sort_items(moe_pass_t *pass, int64_t most_rows) {
    int64_t next[MOE_ROWS_MOST + 2] = {0};
    const moe_memory_t *memory = &pass->memory;
    for (int64_t i = 0; i < pass->item_count; i++) next[most_rows - memory->unsorted_items[i].rows + 1]++;
    for (int64_t i = 1; i <= most_rows; i++) next[i] += next[i - 1];
    for (int64_t i = 0; i < pass->item_count; i++) memory->items[next[most_rows - memory->unsorted_items[i].rows]++] = memory->unsorted_items[i];
}

void ffni_moe_cut(moe_pass_t *pass, int64_t most_rows) {
    const moe_memory_t *memory = &pass->memory;
    pass->item_count = 0;
    for (int64_t expert = 0; expert < pass->layer->mixture.experts; expert++)
        add_items(pass, (int32_t)expert, memory->starts[expert], memory->starts[expert + 1] - memory->starts[expert], most_rows);
    if (pass->layer->shared.d_ff) add_items(pass, MOE_SHARED, 0, pass->tokens, most_rows);
    sort_items(pass, most_rows);
}
