/* SPDX-License-Identifier: MIT
 * Counters in scratch memory. */
#include "core/counts.h"

#include "kernels/kernels.h"

#include <string.h>

int64_t ffni_counts_chunks(int64_t d_ff) {
    return (d_ff - 1) / TILE_CHUNK + 1;
}

int64_t ffni_counts_run(const uint8_t *counted, int64_t row, int64_t most) {
    int64_t rows = 1;
    if (!counted) return most;
    while (rows < most && !counted[row + rows] == !counted[row]) rows++;
    return rows;
}

counts_t ffni_counts_lay_out(int64_t d_ff, arena_t *arena) {
    int64_t chunks = ffni_counts_chunks(d_ff);
    counts_t counts;
    counts.positive = ffni_arena_take(arena, chunks, TILE_CHUNK * sizeof *counts.positive);
    counts.activity = ffni_arena_take(arena, chunks, sizeof *counts.activity);
    return counts;
}

void ffni_counts_clear(const counts_t *counts, int64_t d_ff) {
    size_t chunks = (size_t)ffni_counts_chunks(d_ff);
    memset(counts->positive, 0, chunks * TILE_CHUNK * sizeof *counts->positive);
    memset(counts->activity, 0, chunks * sizeof *counts->activity);
}
