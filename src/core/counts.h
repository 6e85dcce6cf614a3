/* SPDX-License-Identifier: MIT
 * What a run counts of its hidden units, in scratch memory: who works on some columns counts in those columns' places. */
#ifndef FFNI_COUNTS_H
#define FFNI_COUNTS_H

#include "base/arena.h"
#include "kernels/activity.h"

typedef struct counts {
    uint32_t *positive;   /* [d_ff], and room up to a multiple of TILE_CHUNK */
    activity_t *activity; /* [chunks]: of whoever begins at that chunk of TILE_CHUNK columns */
} counts_t;

/* Chunks of TILE_CHUNK columns. */
int64_t ffni_counts_chunks(int64_t d_ff);

/* From `row` on, at most `most` rows that are all counted, or all not. counted [rows]: 0 where a row is not. NULL: all are. */
int64_t ffni_counts_run(const uint8_t *counted, int64_t row, int64_t most);

counts_t ffni_counts_lay_out(int64_t d_ff, arena_t *arena);
void ffni_counts_clear(const counts_t *counts, int64_t d_ff);

#endif
