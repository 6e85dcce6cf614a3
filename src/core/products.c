/* SPDX-License-Identifier: MIT
 * The native engine's products of training, on the tiles and panels of core/tiling.h.
 *
 * A depth product packs both sides: a's columns into tiles of rows, b's into panels. The side with fewer columns is packed once, for all threads; of the
 * other side each thread packs the group that it works on. Groups are small enough for the second-level cache. */
#include "core/products.h"

#include "base/checked.h"
#include "core/parallel.h"
#include "core/tiling.h"

#include <stdatomic.h>
#include <string.h>

/* -------------------------------------------------------- Rows times weights */

/* So much of the depth at a time: that of PRODUCT_ROWS rows, 512 kB, stays in the second-level cache next to the panels. */
enum { SLICE_MOST = 1024 };

/* Slices are equal but for the last, and of whole chunks of the tiles. */
static int64_t slice_of(int64_t depth) {
    int64_t slices = (depth - 1) / SLICE_MOST + 1;
    return round_up((depth - 1) / slices + 1, TILE_CHUNK);
}

int64_t ffni_rows_product_size(const kernel_table_t *kernels, int64_t rows, int64_t depth) {
    return ffni_tiled_size(rows, minimum(depth, SLICE_MOST)) + rows * kernels->panel_width;
}

static void copy_rows(int64_t rows, int64_t columns, float *to, int64_t to_stride, const float *from, int64_t from_stride) {
    for (int64_t row = 0; row < rows; row++) memcpy(to + row * to_stride, from + row * from_stride, (size_t)columns * sizeof *to);
}

/* Panels of so many columns, of which the last may have fewer than a panel's width. */
typedef struct columns {
    const float *panels;
    int64_t count, panel_step;
} columns_t;

/* c's columns from c.data on = tiles * panels. Columns that are no whole panel go through `rest`. */
static void multiply_panels(const tiling_t *tiling, const float *tiles, int64_t depth, const columns_t *b, sums_t c, float *rest) {
    int64_t width = tiling->kernels->panel_width, whole = b->count / width, left = b->count % width;
    if (whole) ffni_multiply_sums(tiling, tiles, depth, b->panels, b->panel_step, whole, c);
    if (!left) return;
    c.data += whole * width;
    sums_t sums = {.data = rest, .step = width, .chain = c.chain, .continued = c.continued, .added = c.added};
    if (c.continued || c.added) copy_rows(tiling->rows, left, rest, width, c.data, c.step);
    ffni_multiply_sums(tiling, tiles, depth, b->panels + whole * b->panel_step, b->panel_step, 1, sums);
    copy_rows(tiling->rows, left, c.data, c.step, rest, width);
}

/* The part of the depth from k on. */
static void multiply_rows_slice(const rows_product_t *product, const tiling_t *tiling, int64_t k, int64_t depth) {
    int64_t width = product->kernels->panel_width, turns = product->turns, group = turns > 1 ? width : product->columns;
    float *tiles = product->scratch, *rest = tiles + ffni_tiled_size(product->rows, minimum(product->depth, SLICE_MOST));
    for (int64_t tile = 0; tile < tiling->tiles; tile++)
        for (int64_t i = 0, start = ffni_tile_start(tiling, tile); i < ffni_tile_rows(tiling, tile); i++)
            ffni_tile_put_row(tiling, tiles, depth, tile, i, product->a + (start + i) * product->a_stride + k);
    for (int64_t column = 0; column < product->columns; column += group)
        for (int64_t turn = 0; turn < turns; turn++) {
            columns_t b = {.panels = product->panels + (column * turns + turn * width) * product->depth + k * width,
                           .count = minimum(group, product->columns - column), .panel_step = product->depth * width};
            sums_t c = {.data = product->c + turn * product->columns + column, .step = product->c_stride, .continued = k > 0, .far = 1};
            multiply_panels(tiling, tiles, depth, &b, c, rest);
        }
}

void ffni_rows_product(const rows_product_t *product) {
    tiling_t tiling = ffni_tiling_of(product->kernels, product->rows);
    int64_t slice = slice_of(product->depth);
    for (int64_t k = 0; k < product->depth; k += slice) multiply_rows_slice(product, &tiling, k, minimum(slice, product->depth - k));
}

/* ----------------------------------------------------- Rows times other rows */

/* Rows and columns of c that are worked on together: whole tiles, whole panels. */
enum { GROUP_ROWS = 112, GROUP_PANELS = 8 };

static int64_t group_rows(const kernel_table_t *kernels) {
    int64_t tile = ffni_tile_rows_most(kernels);
    return maximum(1, GROUP_ROWS / tile) * tile;
}

static int64_t group_columns(const kernel_table_t *kernels) {
    return GROUP_PANELS * kernels->panel_width;
}

/* Either side, of so many columns. */
static int64_t packed_size(const kernel_table_t *kernels, int64_t columns, int64_t depth) {
    return round_up(columns, kernels->panel_width) * round_up(depth, TILE_CHUNK);
}

int64_t ffni_depth_product_shared(const kernel_table_t *kernels, int64_t rows, int64_t columns, int64_t depth) {
    return packed_size(kernels, minimum(rows, columns), depth);
}

int64_t ffni_depth_product_own(const kernel_table_t *kernels, int64_t depth) {
    int64_t most = maximum(group_rows(kernels), group_columns(kernels));
    return packed_size(kernels, most, depth) + group_rows(kernels) * kernels->panel_width;
}

/* Four rows of a at once: what a row of the tile takes of them is stored in one go. */
static void transpose_four(int64_t count, const float *from, int64_t stride, float *to) {
    for (int64_t row = 0; row < count; row++, to += TILE_CHUNK) {
        const float four[4] = {from[row], from[row + stride], from[row + 2 * stride], from[row + 3 * stride]};
        memcpy(to, four, sizeof four);
    }
}

/* a's columns from `first` on as the rows of tiles: a chunk of a tile is the transpose of as many rows of a. */
static void pack_tiles(const depth_product_t *product, int64_t first, int64_t rows, float *tiles) {
    tiling_t tiling = ffni_tiling_of(product->kernels, rows);
    for (int64_t k = 0; k < product->depth; k += TILE_CHUNK)
        for (int64_t tile = 0; tile < tiling.tiles; tile++) {
            int64_t start = ffni_tile_start(&tiling, tile), count = ffni_tile_rows(&tiling, tile), deep = minimum(TILE_CHUNK, product->depth - k);
            const float *from = product->a + k * product->a_stride + first + start;
            float *to = tiles + ffni_tiled_size(start, product->depth) + k * count;
            int64_t i = 0;
            for (; deep - i >= 4; i += 4, from += 4 * product->a_stride) transpose_four(count, from, product->a_stride, to + i);
            for (; i < deep; i++, from += product->a_stride)
                for (int64_t row = 0; row < count; row++) to[row * TILE_CHUNK + i] = from[row];
        }
}

/* b's columns from `first` on as panels. Columns beyond the last are zeros. */
static void pack_panels(const depth_product_t *product, int64_t first, int64_t columns, float *panels) {
    int64_t width = product->kernels->panel_width, whole = columns / width, left = columns % width, step = product->depth * width;
    for (int64_t k = 0; k < product->depth; k++) {
        const float *from = product->b + k * product->b_stride + first;
        float *to = panels + k * width;
        for (int64_t panel = 0; panel < whole; panel++, from += width, to += step) memcpy(to, from, (size_t)width * sizeof *to);
        if (!left) continue;
        memcpy(to, from, (size_t)left * sizeof *to);
        memset(to + left, 0, (size_t)(width - left) * sizeof *to);
    }
}

typedef struct work {
    const depth_product_t *product;
    int shares_b;     /* b is packed for all, and threads take groups of rows; else a, and groups of columns */
    int64_t own_size; /* of a group of the other side */
    int64_t count;    /* groups of it */
    atomic_int_fast64_t next;
} work_t;

static void pack_shared(void *data, int64_t begin, int64_t end) {
    const work_t *work = data;
    const depth_product_t *product = work->product;
    int64_t size = work->shares_b ? group_columns(product->kernels) : group_rows(product->kernels), depth = product->depth;
    for (int64_t group = begin; group < end; group++) {
        int64_t first = group * size;
        if (work->shares_b)
            pack_panels(product, first, minimum(size, product->columns - first), product->shared + first * depth);
        else
            pack_tiles(product, first, minimum(size, product->rows - first), product->shared + ffni_tiled_size(first, depth));
    }
}

static void multiply_group(const depth_product_t *product, int64_t row, int64_t rows, const float *tiles, int64_t column, int64_t columns,
                           const float *panels, float *rest) {
    tiling_t tiling = ffni_tiling_of(product->kernels, rows);
    sums_t c = {.data = product->c + row * product->c_stride + column, .step = product->c_stride, .chain = DEPTH_CHAIN,
                .added = product->accumulate, .far = 1};
    columns_t b = {.panels = panels, .count = columns, .panel_step = product->depth * product->kernels->panel_width};
    multiply_panels(&tiling, tiles, product->depth, &b, c, rest);
}

static void multiply_rows_group(const depth_product_t *product, int64_t first, int64_t rows, float *own) {
    float *rest = own + packed_size(product->kernels, rows, product->depth);
    pack_tiles(product, first, rows, own);
    multiply_group(product, first, rows, own, 0, product->columns, product->shared, rest);
}

static void multiply_columns_group(const depth_product_t *product, int64_t first, int64_t columns, float *own) {
    int64_t size = group_rows(product->kernels);
    float *rest = own + packed_size(product->kernels, columns, product->depth);
    pack_panels(product, first, columns, own);
    for (int64_t row = 0; row < product->rows; row += size)
        multiply_group(product, row, minimum(size, product->rows - row), product->shared + ffni_tiled_size(row, product->depth), first, columns, own,
                       rest);
}

static void work_on_groups(void *data, int64_t slot) {
    work_t *work = data;
    const depth_product_t *product = work->product;
    float *own = product->own + slot * product->own_step;
    int64_t group;
    while ((group = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed)) < work->count) {
        int64_t first = group * work->own_size;
        if (work->shares_b)
            multiply_rows_group(product, first, minimum(work->own_size, product->rows - first), own);
        else
            multiply_columns_group(product, first, minimum(work->own_size, product->columns - first), own);
    }
}

static int64_t groups_of(int64_t columns, int64_t size) {
    return (columns - 1) / size + 1;
}

/* So many tiles or panels of `count` make a group of at most `most`: threads want several groups each. */
static int64_t share(const depth_product_t *product, int64_t count, int64_t most) {
    while (product->slots > 1 && most > 1 && count < 4 * most * product->slots) most /= 2;
    return most;
}

static int64_t rows_of_group(const depth_product_t *product) {
    int64_t tile = ffni_tile_rows_most(product->kernels);
    return share(product, groups_of(product->rows, tile), group_rows(product->kernels) / tile) * tile;
}

static int64_t columns_of_group(const depth_product_t *product) {
    int64_t width = product->kernels->panel_width;
    return share(product, groups_of(product->columns, width), GROUP_PANELS) * width;
}

void ffni_depth_product(ffn_context_t *context, const depth_product_t *product) {
    const kernel_table_t *kernels = product->kernels;
    work_t work = {.product = product, .shares_b = product->columns <= product->rows};
    int64_t shared = work.shares_b ? groups_of(product->columns, group_columns(kernels)) : groups_of(product->rows, group_rows(kernels));
    work.own_size = work.shares_b ? rows_of_group(product) : columns_of_group(product);
    work.count = groups_of(work.shares_b ? product->rows : product->columns, work.own_size);
    atomic_init(&work.next, 0);
    ffni_parallel_rows(product->slots > 1 ? context : NULL, shared, GROUP_ROWS * product->depth, pack_shared, &work);
    ffni_parallel_slots(context, minimum(product->slots, work.count), work_on_groups, &work);
}
