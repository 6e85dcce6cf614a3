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

/* A tile's rows go through the passes over rows, a chunk at a time: column c of a row of the sums, and of the result. */

INLINE int64_t chunk_columns(const activation_tile_t *tile, int64_t column)
{
    return tile->columns - column < TILE_CHUNK ? tile->columns - column : TILE_CHUNK;
}

INLINE float *chunk_of_out(const activation_tile_t *tile, int64_t row, int64_t column)
{
    return tile->out + row * tile->out_row + column / TILE_CHUNK * tile->out_chunk;
}

INLINE const float *bias_from(const float *bias, int64_t column) { return bias ? bias + column : bias; }

/* Dense sums, and those of the gate, after which up is a panel further. */
INLINE const float *chunk_of_sums(const activation_tile_t *tile, int64_t row, int64_t column)
{
    return tile->sums + row * tile->sums_step + column;
}

INLINE const float *chunk_of_gate(const activation_tile_t *tile, int64_t row, int64_t column)
{
    return tile->sums + row * tile->sums_step + column / tile->panel * 2 * tile->panel + column % tile->panel;
}

static void activate_tile(const activation_t *activation, const activation_tile_t *tile)
{
    for (int64_t row = 0; row < tile->rows; row++)
        for (int64_t column = 0; column < tile->columns; column += TILE_CHUNK)
            ffni_kernels_scalar.activate[activation->kind](activation, chunk_columns(tile, column), chunk_of_out(tile, row, column),
                                                           chunk_of_sums(tile, row, column), bias_from(tile->up_bias, column));
}

static void activate_gated_tile(const activation_t *activation, const activation_tile_t *tile)
{
    for (int64_t row = 0; row < tile->rows; row++)
        for (int64_t column = 0; column < tile->columns; column += TILE_CHUNK) {
            const float *gate = chunk_of_gate(tile, row, column);
            ffni_kernels_scalar.activate_gated[activation->kind](activation, chunk_columns(tile, column), chunk_of_out(tile, row, column), gate,
                                                                 bias_from(tile->gate_bias, column), gate + tile->panel,
                                                                 bias_from(tile->up_bias, column));
        }
}

/* ---------------------------------------------------------------- Watching */

INLINE void watch_chunk(const activation_tile_t *tile, int64_t column, const float *a)
{
    for (int64_t i = 0; i < chunk_columns(tile, column); i++) {
        tile->positive[column + i] += a[i] > 0;
        activity_add(tile->activity, a[i]);
    }
}

static void watch_tile(const activation_t *activation, const activation_tile_t *tile)
{
    activate_tile(activation, tile);
    for (int64_t row = 0; row < tile->rows; row++)
        for (int64_t column = 0; column < tile->columns; column += TILE_CHUNK) watch_chunk(tile, column, chunk_of_out(tile, row, column));
}

/* The gate's activation is the dense one of min(gate + bias, gate_max), which the gated pass keeps to itself. */
static void watch_gate(const activation_t *activation, const activation_tile_t *tile, int64_t row, int64_t column)
{
    const float *gate = chunk_of_gate(tile, row, column), *bias = bias_from(tile->gate_bias, column);
    const int64_t count = chunk_columns(tile, column);
    float a[TILE_CHUNK];
    for (int64_t i = 0; i < count; i++) {
        const float g = bias ? gate[i] + bias[i] : gate[i];
        a[i] = g > activation->gate_max ? activation->gate_max : g;
    }
    ffni_kernels_scalar.activate[activation->kind](activation, count, a, a, NULL);
    watch_chunk(tile, column, a);
}

static void watch_gated_tile(const activation_t *activation, const activation_tile_t *tile)
{
    for (int64_t row = 0; row < tile->rows; row++)
        for (int64_t column = 0; column < tile->columns; column += TILE_CHUNK) watch_gate(activation, tile, row, column);
    activate_gated_tile(activation, tile);
}

#endif
