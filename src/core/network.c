/* SPDX-License-Identifier: MIT
 * The steps of a network on panels. */
#include "core/network.h"

#include "base/checked.h"

/* A tile without its sums. */
static activation_tile_t activation_tile(const network_t *network, const tiling_t *tiling, const hidden_t *hidden, int64_t tile, int64_t column,
                                         int64_t columns) {
    int64_t start = ffni_tile_start(tiling, tile), rows = ffni_tile_rows(tiling, tile);
    activation_tile_t at = {.rows = rows, .columns = columns, .panel = network->kernels->panel_width};
    if (network->up_bias) at.up_bias = network->up_bias + column;
    if (network->gate_bias) at.gate_bias = network->gate_bias + column;
    if (hidden->rows) {
        at.out = hidden->rows + start * network->d_ff + column;
        at.out_row = network->d_ff, at.out_chunk = TILE_CHUNK;
    } else {
        at.out = hidden->tiled + ffni_tiled_size(start, network->d_ff) + column * rows;
        at.out_row = TILE_CHUNK, at.out_chunk = TILE_CHUNK * rows;
    }
    if (hidden->counts) {
        at.positive = hidden->counts->positive + (column - hidden->counts_column);
        at.activity = &hidden->counts->activity[(column - hidden->counts_column) / TILE_CHUNK];
    }
    return at;
}

activate_tile_fn *ffni_network_activation(const network_t *network, int is_counted) {
    const kernel_table_t *kernels = network->kernels;
    if (is_counted) return network->gated ? kernels->watch_gated_tile : kernels->watch_tile;
    return network->gated ? kernels->activate_gated_tile : kernels->activate_tile;
}

/* Rows of a tile that are alike, counted or not, go together. `first`: its first row. */
static void activate_tile(const network_t *network, const hidden_t *hidden, int64_t first, activation_tile_t at) {
    int64_t rows = at.rows, run;
    if (!hidden->counts) {
        ffni_network_activation(network, 0)(&network->activation, &at);
        return;
    }
    for (int64_t row = 0; row < rows; row += run) {
        run = ffni_counts_run(hidden->counted, first + row, rows - row);
        at.rows = run;
        ffni_network_activation(network, !hidden->counted || hidden->counted[first + row])(&network->activation, &at);
        at.sums += run * at.sums_step;
        at.out += run * at.out_row;
    }
}

/* The weights have driven the counters out of the near caches: they come back while the group is multiplied. */
static void fetch_counters(const hidden_t *hidden, int64_t column, int64_t columns) {
    const counts_t *counts = hidden->counts;
    if (!counts) return;
    column -= hidden->counts_column;
    for (int64_t c = column; c < column + columns; c += TILE_CHUNK) __builtin_prefetch(&counts->positive[c], 1);
    __builtin_prefetch(&counts->activity[column / TILE_CHUNK], 1);
}

void ffni_network_hidden(const network_t *network, const tiling_t *tiling, const float *input, const hidden_t *hidden, int64_t first, int64_t panels,
                         float *sums) {
    int64_t width = network->kernels->panel_width, turns = 1 + network->gated;
    int64_t column = first / turns * width, columns = minimum(panels / turns * width, network->d_ff - column);
    fetch_counters(hidden, column, columns);
    ffni_multiply(tiling, input, network->d_in, network->in_weight + first * width * network->d_in, panels, sums);
    for (int64_t tile = 0; tile < tiling->tiles; tile++) {
        activation_tile_t at = activation_tile(network, tiling, hidden, tile, column, columns);
        at.sums = sums + ffni_tile_start(tiling, tile) * panels * width;
        at.sums_step = panels * width;
        activate_tile(network, hidden, ffni_tile_start(tiling, tile), at);
    }
}

void ffni_network_normalise_tile(const network_t *network, const tiling_t *tiling, const hidden_t *hidden, int64_t tile) {
    for (int64_t i = 0; i < ffni_tile_rows(tiling, tile); i++) {
        float *row = hidden->rows + (ffni_tile_start(tiling, tile) + i) * network->d_ff;
        network->kernels->normalise[network->norm_kind](&network->norm, network->d_ff, row, row);
        ffni_tile_put_row(tiling, hidden->tiled, network->d_ff, tile, i, row);
    }
}

void ffni_network_down(const network_t *network, const tiling_t *tiling, const hidden_t *hidden, int64_t first, int64_t panels, float *sums) {
    int64_t width = network->kernels->panel_width;
    ffni_multiply(tiling, hidden->tiled, network->d_ff, network->down_weight + first * width * network->d_ff, panels, sums);
}
