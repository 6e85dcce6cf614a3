/* SPDX-License-Identifier: MIT
 * The native engine's matrix products.
 *
 * Few rows are one tile: each panel is read once, from start to end. Many rows are several: a panel is read by one tile after the other while it is
 * in the second-level cache, and what comes next is fetched there meanwhile, at an even rate. Then the depth is cut too, so that two such blocks
 * of the panels and the rows' share of `a` stay in that cache. Every number is the same chain of multiply-adds for any cut. */
#include "core/tiling.h"

#include "base/checked.h"
#include "dispatch/cpu.h"

#include <string.h>

enum {
    DEPTH_BLOCK = 1024, /* of a panel, when several tiles read it: 128 kB at the widest */
    GROUP_SUMS = 4096,  /* of a group of panels, which its epilogue reads again: 16 kB */
    AHEAD_BYTES = 4096, /* distance of a single pass's prefetch within each panel */
    FAR_BYTES = 12288,  /* likewise, to the second-level cache */
    AHEAD_ROWS = 3      /* fewer rows than this keep up with the hardware's own prefetching */
};

/* One panel at a time is one stream, which AMD's CPUs follow best from far ahead into the second-level cache; several panels, and Intel's CPUs, best
 * from near into the first (docs/performance.md has the figures). */
static tile_prefetch_t prefetch_of_one_pass(int64_t rows, int panels_log) {
    if (rows < AHEAD_ROWS) return PREFETCH_NONE;
    return panels_log == 0 && ffni_cpu_is_amd() ? PREFETCH_FAR : PREFETCH_AHEAD;
}

static int64_t prefetch_step(const tiling_t *tiling, int64_t line) {
    if (tiling->prefetch == PREFETCH_NEXT) return (line - 1) / tiling->tiles + 1;
    return tiling->prefetch == PREFETCH_FAR ? FAR_BYTES : AHEAD_BYTES;
}

tiling_t ffni_tiling_of(const kernel_table_t *kernels, int64_t rows) {
    const int64_t *most = kernels->tile_rows;
    tiling_t tiling = {.kernels = kernels, .rows = rows, .tiles = 1, .tile_rows = rows};
    for (int log = TILE_PANELS_KINDS - 1; log >= 0; log--) {
        if (rows > most[log]) continue;
        tiling.panels_log = log;
        tiling.prefetch = prefetch_of_one_pass(rows, log);
        return tiling;
    }
    tiling.panels_log = kernels->panels_log_of_many;
    tiling.prefetch = PREFETCH_NEXT;
    tiling.tiles = (rows - 1) / most[tiling.panels_log] + 1;
    tiling.tile_rows = rows / tiling.tiles;
    tiling.taller = rows % tiling.tiles;
    return tiling;
}

int64_t ffni_tile_rows_most(const kernel_table_t *kernels) {
    return kernels->tile_rows[kernels->panels_log_of_many];
}

int64_t ffni_tile_start(const tiling_t *tiling, int64_t tile) {
    return tile * tiling->tile_rows + minimum(tile, tiling->taller);
}

int64_t ffni_tile_rows(const tiling_t *tiling, int64_t tile) {
    return tiling->tile_rows + (tile < tiling->taller);
}

static int64_t depth_block(const tiling_t *tiling, int64_t depth) {
    int64_t blocks = tiling->tiles == 1 ? 1 : (depth - 1) / DEPTH_BLOCK + 1;
    return round_up((depth - 1) / blocks + 1, TILE_CHUNK);
}

int64_t ffni_tiling_group(const tiling_t *tiling) {
    int64_t panels = GROUP_SUMS / (tiling->rows * tiling->kernels->panel_width);
    return maximum(GROUP_PANELS_LEAST, minimum(panels / 2 * 2, GROUP_PANELS_MOST));
}

int64_t ffni_group_sums(const kernel_table_t *kernels, int64_t rows) {
    return maximum(rows * GROUP_PANELS_LEAST * kernels->panel_width, GROUP_SUMS);
}

int64_t ffni_tiled_size(int64_t rows, int64_t depth) {
    return rows * round_up(depth, TILE_CHUNK);
}

void ffni_tile_put_row(const tiling_t *tiling, float *tiled, int64_t depth, int64_t tile, int64_t row_of_tile, const float *row) {
    int64_t rows = ffni_tile_rows(tiling, tile);
    float *to = tiled + ffni_tiled_size(ffni_tile_start(tiling, tile), depth) + row_of_tile * TILE_CHUNK;
    for (; depth >= TILE_CHUNK; depth -= TILE_CHUNK, row += TILE_CHUNK, to += rows * TILE_CHUNK) memcpy(to, row, TILE_CHUNK * sizeof *to);
    memcpy(to, row, (size_t)depth * sizeof *to);
}

/* A part of the depth of some panels, times every tile. */
typedef struct part {
    int64_t k, depth, whole_depth, panel_step;
    int panels_log;
    const float *b, *next;
    sums_t sums;
} part_t;

/* The sums of the tile that comes next, while those of this one are worked on. */
static void fetch_next_sums(const tiling_t *tiling, const part_t *part, int64_t tile) {
    enum { LINE = 16 };
    int64_t width = tiling->kernels->panel_width, next = tile + 1 < tiling->tiles ? tile + 1 : 0;
    int64_t rows = ffni_tile_rows(tiling, next), step = part->sums.step;
    const float *sums = part->sums.data + ffni_tile_start(tiling, next) * step + (next ? 0 : width << part->panels_log);
    for (int64_t row = 0; row < rows; row++, sums += step)
        for (int64_t i = 0; i < width; i += LINE) __builtin_prefetch(sums + i, 1, 2);
}

static void multiply_tile(const tiling_t *tiling, const part_t *part, int64_t rows, product_t *product) {
    int64_t chain = part->sums.chain ? part->sums.chain : part->depth, width = tiling->kernels->panel_width;
    product_fn *multiply = tiling->kernels->product[tiling->prefetch][part->panels_log][rows];
    for (int64_t k = 0; k < part->depth; k += chain) {
        product->depth = minimum(chain, part->depth - k);
        multiply(product);
        product->a += chain * rows, product->b += chain * width, product->prefetch += chain * product->prefetch_step;
        product->added = 1;
    }
}

/* One product_t, set anew for each tile: a copy of one just written would wait for the writes to leave the store buffer. */
static void multiply_part(const tiling_t *tiling, const float *a, const part_t *part) {
    int64_t width = tiling->kernels->panel_width, line = width * (int64_t)sizeof *a;
    product_t product = {.panel_step = part->panel_step, .sums_step = part->sums.step, .continued = part->k > 0 || part->sums.continued};
    product.prefetch_step = prefetch_step(tiling, line);
    for (int64_t tile = 0; tile < tiling->tiles; tile++) {
        int64_t start = ffni_tile_start(tiling, tile), rows = ffni_tile_rows(tiling, tile);
        product.a = a + ffni_tiled_size(start, part->whole_depth) + part->k * rows;
        product.b = part->b;
        product.sums = part->sums.data + start * part->sums.step;
        product.added = part->sums.added;
        product.prefetch = (const char *)part->next + tile * part->depth * product.prefetch_step;
        if (part->sums.far) fetch_next_sums(tiling, part, tile);
        multiply_tile(tiling, part, rows, &product);
    }
}

void ffni_multiply_sums(const tiling_t *tiling, const float *a, int64_t depth, const float *b, int64_t panel_step, int64_t panels, sums_t sums) {
    int64_t width = tiling->kernels->panel_width, block = sums.chain ? depth : depth_block(tiling, depth);
    part_t part = {.whole_depth = depth, .panel_step = panel_step, .sums = sums};
    for (part.k = 0; part.k < depth; part.k += block) {
        part.depth = minimum(block, depth - part.k);
        for (int64_t panel = 0, taken; panel < panels; panel += taken) {
            for (part.panels_log = tiling->panels_log; (1 << part.panels_log) > panels - panel;) part.panels_log--;
            taken = (int64_t)1 << part.panels_log;
            part.b = b + panel * panel_step + part.k * width;
            part.sums.data = sums.data + panel * width;
            if (panel + taken < panels)
                part.next = part.b + taken * panel_step;
            else /* the next part of the depth, or the next group */
                part.next = part.k + block < depth ? b + (part.k + block) * width : b + panels * panel_step;
            multiply_part(tiling, a, &part);
        }
    }
}

void ffni_multiply_into(const tiling_t *tiling, const float *a, int64_t depth, const float *b, int64_t panels, float *sums, int64_t sums_step) {
    ffni_multiply_sums(tiling, a, depth, b, depth * tiling->kernels->panel_width, panels, (sums_t){.data = sums, .step = sums_step});
}

void ffni_multiply(const tiling_t *tiling, const float *a, int64_t depth, const float *b, int64_t panels, float *sums) {
    ffni_multiply_into(tiling, a, depth, b, panels, sums, panels * tiling->kernels->panel_width);
}
