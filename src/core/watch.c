/* SPDX-License-Identifier: MIT
 * Activating rows and counting: by columns, so that every thread has counters of its own. */
#include "core/watch.h"

#include "base/checked.h"
#include "core/parallel.h"

/* Few rows at a time, which stay in the first-level cache's reach however wide they are. */
enum { ROWS_AT_ONCE = 8 };

static void watch_columns(void *data, int64_t begin, int64_t end) {
    const watched_rows_t *rows = data;
    const network_t *network = rows->network;
    int64_t column = begin * TILE_CHUNK;
    activation_tile_t tile = {.columns = minimum(end * TILE_CHUNK, network->d_ff) - column, .sums_step = rows->hidden_stride, .panel = network->d_ff,
                              .out_row = rows->out_stride, .out_chunk = TILE_CHUNK, .positive = rows->counts->positive + column,
                              .activity = &rows->counts->activity[begin]};
    const float *bias = rows->bias ? rows->bias + column : NULL;
    tile.gate_bias = bias;
    tile.up_bias = network->gated ? (network->up_bias ? network->up_bias + column : NULL) : bias;
    for (int64_t row = 0; row < rows->rows; row += tile.rows) {
        tile.rows = ffni_counts_run(rows->counted, row, minimum(ROWS_AT_ONCE, rows->rows - row));
        tile.sums = rows->hidden + row * rows->hidden_stride + column;
        tile.out = rows->out + row * rows->out_stride + column;
        ffni_network_activation(network, !rows->counted || rows->counted[row])(&network->activation, &tile);
    }
}

void ffni_watch_rows(ffn_context_t *context, const watched_rows_t *rows) {
    watched_rows_t data = *rows;
    int64_t work = TILE_CHUNK * rows->rows * (1 + rows->network->gated);
    ffni_parallel_rows(context, ffni_counts_chunks(rows->network->d_ff), work, watch_columns, &data);
}
