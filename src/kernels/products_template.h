/* SPDX-License-Identifier: MIT
 *
 * Tiles of matrix products over packed panels, of two registers' width each, for a vector level.
 *
 * A tile keeps rows x panels x 2 sums in registers and walks k once: per k it loads the panels' two registers, broadcasts one number per row, and
 * does rows x panels x 2 multiply-adds. Wide tiles of few rows read the least of a; tall ones of one panel pass over the weights once for up to
 * 14 rows. The including file says with TILE_ROWS_1, _2 and _4 how many rows its registers hold for 1, 2 and 4 panels.
 */
#ifndef FFNI_PRODUCTS_TEMPLATE_H
#define FFNI_PRODUCTS_TEMPLATE_H

#include "kernels/unroll.h"

enum { PANEL_WIDTH = 2 * RV_LANES, REGISTERS_OF_TILE_MOST = 8 };

/* One k: b at `panels`, a's numbers of this k from `a` on, TILE_CHUNK apart. The fewer of both stay in registers while the others pass. */
INLINE void multiply_add(int rows, int panels, rv sums[][REGISTERS_OF_TILE_MOST], const float *a, const float *b, int64_t panel_step)
{
    rv numbers[TILE_ROWS_MOST], columns[REGISTERS_OF_TILE_MOST];
    if (rows < 2 * panels) {
        UNROLL_ALL
        for (int row = 0; row < rows; row++) numbers[row] = rv_set1(a[row * TILE_CHUNK]);
        UNROLL_ALL
        for (int i = 0; i < 2 * panels; i++) {
            const rv column = rv_load(b + i / 2 * panel_step + i % 2 * RV_LANES);
            UNROLL_ALL
            for (int row = 0; row < rows; row++) sums[row][i] = rv_fma(numbers[row], column, sums[row][i]);
        }
        return;
    }
    UNROLL_ALL
    for (int i = 0; i < 2 * panels; i++) columns[i] = rv_load(b + i / 2 * panel_step + i % 2 * RV_LANES);
    UNROLL_ALL
    for (int row = 0; row < rows; row++) {
        const rv number = rv_set1(a[row * TILE_CHUNK]);
        UNROLL_ALL
        for (int i = 0; i < 2 * panels; i++) sums[row][i] = rv_fma(number, columns[i], sums[row][i]);
    }
}

INLINE void fetch(tile_prefetch_t kind, int panels, const product_t *product, const char **next, const float *b)
{
    if (kind == PREFETCH_NEXT) {
        _mm_prefetch(*next, _MM_HINT_T1);
        *next += product->prefetch_step;
    }
    if (kind != PREFETCH_AHEAD && kind != PREFETCH_FAR) return;
    UNROLL_ALL
    for (int panel = 0; panel < panels; panel++)
        UNROLL_ALL
        for (int line = 0; line < PANEL_WIDTH; line += 16) {
            const char *ahead = (const char *)(b + panel * product->panel_step + line) + product->prefetch_step;
            if (kind == PREFETCH_AHEAD)
                _mm_prefetch(ahead, _MM_HINT_T0);
            else
                _mm_prefetch(ahead, _MM_HINT_T1);
        }
}

INLINE void multiply_tile(int rows, int panels, tile_prefetch_t kind, const product_t *product)
{
    rv sums[TILE_ROWS_MOST][REGISTERS_OF_TILE_MOST];
    const float *a = product->a, *b = product->b;
    const char *next = product->prefetch;
    const int64_t panel_step = product->panel_step;
    UNROLL_ALL
    for (int row = 0; row < rows; row++)
        UNROLL_ALL
        for (int i = 0; i < 2 * panels; i++)
            sums[row][i] = product->continued ? rv_load(product->sums + row * product->sums_step + i * RV_LANES) : rv_set1(0.0f);
    int64_t left = product->depth;
    for (; left >= TILE_CHUNK; left -= TILE_CHUNK, a += TILE_CHUNK * rows, b += TILE_CHUNK * PANEL_WIDTH)
        UNROLL_4
        for (int k = 0; k < TILE_CHUNK; k++) {
            fetch(kind, panels, product, &next, b + k * PANEL_WIDTH);
            multiply_add(rows, panels, sums, a + k, b + k * PANEL_WIDTH, panel_step);
        }
    NO_UNROLL
    for (int64_t k = 0; k < left; k++) multiply_add(rows, panels, sums, a + k, b + k * PANEL_WIDTH, panel_step);
    if (product->added)
        UNROLL_ALL
        for (int row = 0; row < rows; row++)
            UNROLL_ALL
            for (int i = 0; i < 2 * panels; i++)
                sums[row][i] = rv_add(rv_load(product->sums + row * product->sums_step + i * RV_LANES), sums[row][i]);
    UNROLL_ALL
    for (int row = 0; row < rows; row++)
        UNROLL_ALL
        for (int i = 0; i < 2 * panels; i++) rv_store(product->sums + row * product->sums_step + i * RV_LANES, sums[row][i]);
}

/* The instances: every prefetch, number of panels and number of rows that the registers hold. */
#define PRODUCT(rows, panels) \
    static void product_##rows##x##panels(const product_t *p) { multiply_tile(rows, panels, PREFETCH_NONE, p); } \
    static void product_##rows##x##panels##_next(const product_t *p) { multiply_tile(rows, panels, PREFETCH_NEXT, p); } \
    static void product_##rows##x##panels##_ahead(const product_t *p) { multiply_tile(rows, panels, PREFETCH_AHEAD, p); } \
    static void product_##rows##x##panels##_far(const product_t *p) { multiply_tile(rows, panels, PREFETCH_FAR, p); }

#define ROWS_1(X, panels) X(1, panels)
#define ROWS_2(X, panels) ROWS_1(X, panels) X(2, panels)
#define ROWS_3(X, panels) ROWS_2(X, panels) X(3, panels)
#define ROWS_6(X, panels) ROWS_3(X, panels) X(4, panels) X(5, panels) X(6, panels)
#define ROWS_14(X, panels) \
    ROWS_6(X, panels) X(7, panels) X(8, panels) X(9, panels) X(10, panels) X(11, panels) X(12, panels) X(13, panels) X(14, panels)
#define ROWS_UP_TO_(rows, X, panels) ROWS_##rows(X, panels)
#define ROWS_UP_TO(rows, X, panels) ROWS_UP_TO_(rows, X, panels)

ROWS_UP_TO(TILE_ROWS_1, PRODUCT, 1)
ROWS_UP_TO(TILE_ROWS_2, PRODUCT, 2)
ROWS_UP_TO(TILE_ROWS_4, PRODUCT, 4)

#define ENTRY_NONE(rows, panels) [rows] = product_##rows##x##panels,
#define ENTRY_NEXT(rows, panels) [rows] = product_##rows##x##panels##_next,
#define ENTRY_AHEAD(rows, panels) [rows] = product_##rows##x##panels##_ahead,
#define ENTRY_FAR(rows, panels) [rows] = product_##rows##x##panels##_far,
#define ENTRIES(ENTRY) \
    {{ROWS_UP_TO(TILE_ROWS_1, ENTRY, 1)}, {ROWS_UP_TO(TILE_ROWS_2, ENTRY, 2)}, {ROWS_UP_TO(TILE_ROWS_4, ENTRY, 4)}}

#endif
