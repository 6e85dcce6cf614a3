/* SPDX-License-Identifier: MIT
 * The experts of the native engine: each thread takes an item - some rows of one expert - after the other, with memory of its own. */
#include "core/moe.h"

#include "base/checked.h"
#include "core/parallel.h"
#include "core/tiling.h"

#include <stdatomic.h>

/* A thread's own memory. */
typedef struct place {
    float *input;  /* [rows, d_in] in tiles */
    float *scaled; /* a row */
    hidden_t hidden;
    float *sums;
} place_t;

typedef struct work {
    const moe_pass_t *pass;
    atomic_int_fast64_t next; /* item */
} work_t;

static place_t lay_out(const ffn_layer_t *layer, int64_t rows, arena_t *arena) {
    const int64_t element = sizeof(float);
    int64_t d_in = maximum(layer->sizes.of[EXTENT_EXPERT_IN], layer->shared.d_in), d_ff = maximum(layer->d_ff, layer->shared.d_ff);
    place_t place;
    place.input = ffni_arena_take(arena, ffni_tiled_size(rows, d_in), element);
    place.scaled = ffni_arena_take(arena, d_in, element);
    place.hidden = (hidden_t){.tiled = ffni_arena_take(arena, ffni_tiled_size(rows, d_ff), element)};
    if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) place.hidden.rows = ffni_arena_take(arena, rows * layer->d_ff, element);
    place.sums = ffni_arena_take(arena, rows * GROUP_PANELS_MOST * layer->kernels->panel_width, element);
    return place;
}

uint64_t ffni_moe_native_bytes(const ffn_layer_t *layer, int64_t rows) {
    arena_t measure = {0};
    lay_out(layer, minimum(rows, MOE_ITEM_ROWS), &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

/* ------------------------------------------------------------------------ Rows */

static const float *scaled_row(const moe_pass_t *pass, const float *row, float weight, int64_t width, float *scaled) {
    if (!(pass->layer->mixture.flags & FFN_MOE_WEIGHT_ON_INPUT)) return row;
    pass->layer->kernels->mix(width, scaled, 1, &row, &weight);
    return scaled;
}

/* What row `row` of an item reads. */
static const float *item_input(const moe_pass_t *pass, const moe_item_t *item, int64_t row, float *scaled) {
    int64_t position = item->first + row;
    if (item->expert == MOE_SHARED) return moe_input(pass, position);
    const float *input = ffni_moe_expert_input(pass, pass->memory.order[position] / pass->plan.top_k);
    return scaled_row(pass, input, ffni_moe_input_weight(pass, position), pass->layer->sizes.of[EXTENT_EXPERT_IN], scaled);
}

static float *item_output(const moe_pass_t *pass, const moe_item_t *item, const network_t *network) {
    return (item->expert == MOE_SHARED ? pass->memory.shared : pass->memory.rows) + item->first * network->d_out;
}

/* One row in a tile is a plain row: read where it is. */
static const float *gather(const moe_pass_t *pass, const moe_item_t *item, const network_t *network, const tiling_t *tiling, const place_t *place) {
    if (item->rows == 1) return item_input(pass, item, 0, place->scaled);
    for (int64_t tile = 0; tile < tiling->tiles; tile++)
        for (int64_t i = 0; i < ffni_tile_rows(tiling, tile); i++)
            ffni_tile_put_row(tiling, place->input, network->d_in, tile, i, item_input(pass, item, ffni_tile_start(tiling, tile) + i, place->scaled));
    return place->input;
}

static void store(const network_t *network, int64_t rows, int64_t first, int64_t panels, const float *sums, float *out) {
    int64_t width = network->kernels->panel_width, column = first * width, columns = minimum(panels * width, network->d_out - column);
    for (int64_t row = 0; row < rows; row++)
        network->kernels->combine(columns, out + row * network->d_out + column, sums + row * panels * width,
                                  network->down_bias ? network->down_bias + column : NULL, NULL, NULL, NULL);
}

static network_t network_of(const ffn_layer_t *layer, const moe_item_t *item) {
    return item->expert == MOE_SHARED ? layer->shared : ffni_layer_expert(layer, item->expert);
}

static void run_item(const moe_pass_t *pass, const moe_item_t *item, const place_t *place) {
    network_t network = network_of(pass->layer, item);
    tiling_t tiling = ffni_tiling_of(network.kernels, item->rows);
    hidden_t hidden = {.tiled = place->hidden.tiled, .rows = network.has_norm ? place->hidden.rows : NULL};
    const float *input = gather(pass, item, &network, &tiling, place);
    int64_t group = ffni_tiling_group(&tiling, network.d_in, 1 + network.gated);
    for (int64_t first = 0; first < network.in_panels; first += group)
        ffni_network_hidden(&network, &tiling, input, &hidden, first, minimum(group, network.in_panels - first), place->sums);
    for (int64_t tile = 0; network.has_norm && tile < tiling.tiles; tile++) ffni_network_normalise_tile(&network, &tiling, &hidden, tile);
    group = ffni_tiling_group(&tiling, network.d_ff, 1);
    for (int64_t first = 0; first < network.down_panels; first += group) {
        int64_t panels = minimum(group, network.down_panels - first);
        ffni_network_down(&network, &tiling, &hidden, first, panels, place->sums);
        store(&network, item->rows, first, panels, place->sums, item_output(pass, item, &network));
    }
}

static void work_on_items(void *data, int64_t slot) {
    work_t *work = data;
    const moe_pass_t *pass = work->pass;
    arena_t arena = {.base = pass->memory.engine + (uint64_t)slot * pass->memory.engine_slot_bytes};
    place_t place = lay_out(pass->layer, minimum(pass->plan.chunk, MOE_ITEM_ROWS), &arena);
    int64_t index;
    while ((index = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed)) < pass->item_count)
        run_item(pass, &pass->memory.sorted_items[index], &place);
}

void ffni_moe_native_experts(moe_pass_t *pass) {
    work_t work = {.pass = pass};
    ffni_moe_dispatch(pass, MOE_ITEM_ROWS);
    if (!pass->item_count) return;
    atomic_init(&work.next, 0);
    ffni_parallel_slots(pass->context, minimum(pass->plan.slots, pass->item_count), work_on_items, &work);
}
