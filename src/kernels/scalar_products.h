/* SPDX-License-Identifier: MIT
 *
 * The scalar level's matrix products over packed panels, and the activation of their tiles: plain loops, the columns innermost so that a compiler
 * may use whatever vectors the CPU at large has. Contract: kernels.h. Products are rounded before they are added.
 */
#ifndef FFNI_SCALAR_PRODUCTS_H
#define FFNI_SCALAR_PRODUCTS_H

enum { PANEL_WIDTH = 16, TILE_ROWS = 4 };

INLINE void multiply_row(const product_t *product, int rows, int row, int panel)
{
    float sums[PANEL_WIDTH], *out = product->sums + row * product->sums_step + panel * PANEL_WIDTH;
    const float *b = product->b + panel * product->panel_step;
    for (int column = 0; column < PANEL_WIDTH; column++) sums[column] = product->continued ? out[column] : 0.0f;
    for (int64_t k = 0; k < product->depth; k++, b += PANEL_WIDTH) {
        const float number = product->a[k / TILE_CHUNK * TILE_CHUNK * rows + row * TILE_CHUNK + k % TILE_CHUNK];
        for (int column = 0; column < PANEL_WIDTH; column++) sums[column] += number * b[column];
    }
    for (int column = 0; column < PANEL_WIDTH; column++) out[column] = product->added ? out[column] + sums[column] : sums[column];
}

INLINE void multiply_tile(int rows, int panels, const product_t *product)
{
    for (int panel = 0; panel < panels; panel++)
        for (int row = 0; row < rows; row++) multiply_row(product, rows, row, panel);
}

static void product_1x1(const product_t *product) { multiply_tile(1, 1, product); }
static void product_2x1(const product_t *product) { multiply_tile(2, 1, product); }
static void product_3x1(const product_t *product) { multiply_tile(3, 1, product); }
static void product_4x1(const product_t *product) { multiply_tile(4, 1, product); }
static void product_1x2(const product_t *product) { multiply_tile(1, 2, product); }
static void product_2x2(const product_t *product) { multiply_tile(2, 2, product); }
static void product_3x2(const product_t *product) { multiply_tile(3, 2, product); }
static void product_4x2(const product_t *product) { multiply_tile(4, 2, product); }
static void product_1x4(const product_t *product) { multiply_tile(1, 4, product); }
static void product_2x4(const product_t *product) { multiply_tile(2, 4, product); }
static void product_3x4(const product_t *product) { multiply_tile(3, 4, product); }
static void product_4x4(const product_t *product) { multiply_tile(4, 4, product); }

/* There is nothing to prefetch with: the same for every kind. */
#define PRODUCTS \
    {{NULL, product_1x1, product_2x1, product_3x1, product_4x1}, \
     {NULL, product_1x2, product_2x2, product_3x2, product_4x2}, \
     {NULL, product_1x4, product_2x4, product_3x4, product_4x4}}

/* A tile's rows go through the passes over rows, a chunk at a time. */

static void activate_tile(const activation_t *activation, const activation_tile_t *tile)
{
    for (int64_t row = 0; row < tile->rows; row++)
        for (int64_t column = 0; column < tile->columns; column += TILE_CHUNK) {
            const int64_t left = tile->columns - column, count = left < TILE_CHUNK ? left : TILE_CHUNK;
            ffni_kernels_scalar.activate[activation->kind](activation, count, tile->out + row * tile->out_row + column / TILE_CHUNK * tile->out_chunk,
                                           tile->sums + row * tile->sums_step + column, tile->up_bias ? tile->up_bias + column : NULL);
        }
}

static void activate_gated_tile(const activation_t *activation, const activation_tile_t *tile)
{
    for (int64_t row = 0; row < tile->rows; row++)
        for (int64_t column = 0; column < tile->columns; column += TILE_CHUNK) {
            const int64_t left = tile->columns - column, count = left < TILE_CHUNK ? left : TILE_CHUNK;
            const float *gate = tile->sums + row * tile->sums_step + column / PANEL_WIDTH * 2 * PANEL_WIDTH + column % PANEL_WIDTH;
            ffni_kernels_scalar.activate_gated[activation->kind](activation, count, tile->out + row * tile->out_row + column / TILE_CHUNK * tile->out_chunk, gate,
                                                 tile->gate_bias ? tile->gate_bias + column : NULL, gate + PANEL_WIDTH,
                                                 tile->up_bias ? tile->up_bias + column : NULL);
        }
}

#endif
