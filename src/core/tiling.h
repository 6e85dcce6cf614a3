/* SPDX-License-Identifier: MIT
 * The native engine's matrix products: rows in tiles, weights in panels. */
#ifndef FFNI_TILING_H
#define FFNI_TILING_H

#include "kernels/kernels.h"

/* How the rows of a block are cut into tiles of nearly equal size, and which kernels run them. */
typedef struct tiling {
    const kernel_table_t *kernels;
    int64_t rows, tiles;
    int64_t tile_rows, taller; /* every tile has tile_rows rows, the first `taller` one more: divided once, not for each product */
    int panels_log;            /* panels that a kernel takes at once: 1, 2 or 4 */
    tile_prefetch_t prefetch;
} tiling_t;

tiling_t ffni_tiling_of(const kernel_table_t *kernels, int64_t rows);

/* Rows of the tiles of many rows, at the most: full tiles are the fastest. */
int64_t ffni_tile_rows_most(const kernel_table_t *kernels);

/* Rows of a block that is one thread's, at the most, in whole tiles (56 of AVX-512's, 66 of AVX2's): up to a d_ff of some thousands its hidden units
 * stay in the second-level cache next to the panels. */
enum { WHOLE_ROWS_MOST = 68 };

int64_t ffni_tile_start(const tiling_t *tiling, int64_t tile);
int64_t ffni_tile_rows(const tiling_t *tiling, int64_t tile);

/* Panels whose sums are worked on together: an epilogue follows each such group. As many as leave the sums in the nearest cache, but these at the
 * least. Even: gate and up take turns. */
enum { GROUP_PANELS_LEAST = 8, GROUP_PANELS_MOST = 32 };
int64_t ffni_tiling_group(const tiling_t *tiling);

/* Elements of the sums of a group, for blocks of up to `rows` rows. */
int64_t ffni_group_sums(const kernel_table_t *kernels, int64_t rows);

/* Elements of a block of so many rows whose rows are in tiles (kernels.h has their order). */
int64_t ffni_tiled_size(int64_t rows, int64_t depth);

/* Puts one row into its tile. `tiled` is the block. */
void ffni_tile_put_row(const tiling_t *tiling, float *tiled, int64_t depth, int64_t tile, int64_t row_of_tile, const float *row);

/* sums[rows, panels * width] = the block `a` (in tiles) times `panels` panels from b on. */
void ffni_multiply(const tiling_t *tiling, const float *a, int64_t depth, const float *b, int64_t panels, float *sums);

/* The same, with rows of sums sums_step apart, at least panels * width. */
void ffni_multiply_into(const tiling_t *tiling, const float *a, int64_t depth, const float *b, int64_t panels, float *sums, int64_t sums_step);

/* Where the sums of a product go in other ways: panels stand side by side in each row. */
typedef struct sums {
    float *data;
    int64_t step;  /* from a row to the next, in elements */
    int64_t chain; /* numbers in a row of multiply-adds: what one makes is added to those before. 0: all, one chain */
    int continued; /* the chain goes on from what is there */
    int added;     /* to what is there */
    int far;       /* what is there may be in no cache: it is fetched in time */
} sums_t;

/* Panels begin panel_step elements apart: depth * width, or more where `a` has a part of a longer depth. */
void ffni_multiply_sums(const tiling_t *tiling, const float *a, int64_t depth, const float *b, int64_t panel_step, int64_t panels, sums_t sums);

#endif
