/* SPDX-License-Identifier: MIT
 *
 * The depthwise convolution along the rows, over the vector vocabulary.
 *
 * Four rows of a result at once: of the `taps` + 3 rows of the input that they take, each is loaded once, and each number of the taps serves four.
 */
#ifndef FFNI_DEPTHWISE_TEMPLATE_H
#define FFNI_DEPTHWISE_TEMPLATE_H

#include "kernels/unroll.h"

enum { DEPTHWISE_ROWS = 4, DEPTHWISE_INPUTS = DEPTHWISE_ROWS_MOST + DEPTHWISE_TAPS_MOST - 1 };

/* A vector's columns of everything, side by side: rows that lie a multiple of 4 kB apart would take each other's places in the cache. */
typedef struct depthwise_columns {
    vf in[DEPTHWISE_INPUTS];
    vf weight[DEPTHWISE_TAPS_MOST];
} depthwise_columns_t;

/* Adds row s of the input to the results' rows. `inside`: all of them have a tap there. */
INLINE void depthwise_row(const depthwise_t *d, const depthwise_columns_t *at, int64_t first, int64_t s, int rows, int inside, vf sums[DEPTHWISE_ROWS])
{
    if (!d->in[first + s]) return;
    const vf x = at->in[first + s];
    UNROLL_ALL
    for (int r = 0; r < rows; r++)
        if (inside || (s >= r && s - r < d->taps)) sums[r] = vf_fma(at->weight[s - r], x, sums[r]);
}

/* `rows` is a constant here: the sums live in registers. */
INLINE void depthwise_rows(const depthwise_t *d, const depthwise_columns_t *at, int64_t first, int rows, int64_t column, int64_t count)
{
    const int64_t all = d->taps + rows - 1;
    float *out = d->out + first * d->out_step;
    int64_t s = 0;
    vf sums[DEPTHWISE_ROWS];
    UNROLL_ALL
    for (int r = 0; r < rows; r++) sums[r] = d->continued ? load_count(out + r * d->out_step, column, count) : vf_set1(0.0f);
    for (; s < rows - 1; s++) depthwise_row(d, at, first, s, rows, 0, sums);
    for (; s < d->taps; s++) depthwise_row(d, at, first, s, rows, 1, sums);
    for (; s < all; s++) depthwise_row(d, at, first, s, rows, 0, sums);
    UNROLL_ALL
    for (int r = 0; r < rows; r++) store_count(out + r * d->out_step, column, count, sums[r]);
}

INLINE void depthwise_vector(const depthwise_t *d, int64_t column, int64_t count)
{
    depthwise_columns_t at;
    int64_t row = 0;
    for (int64_t j = 0; j < d->taps; j++) at.weight[j] = load_count(d->weight + j * d->weight_step, column, count);
    for (int64_t s = 0; s < d->rows + d->taps - 1; s++)
        if (d->in[s]) at.in[s] = load_count(d->in[s], column, count);
    for (; d->rows - row >= DEPTHWISE_ROWS; row += DEPTHWISE_ROWS) depthwise_rows(d, &at, row, DEPTHWISE_ROWS, column, count);
    for (; row < d->rows; row++) depthwise_rows(d, &at, row, 1, column, count);
}

static void depthwise(const depthwise_t *d)
{
    int64_t i = 0;
    for (; d->n - i >= VF_LANES; i += VF_LANES) depthwise_vector(d, i, VF_LANES);
    if (i < d->n) depthwise_vector(d, i, d->n - i);
}

#endif
