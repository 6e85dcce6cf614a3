/* SPDX-License-Identifier: MIT
 *
 * The depthwise convolution along the rows, over the vector vocabulary.
 *
 * Four rows of a result at once: of the `taps` + 3 rows of the input that they take, each is loaded once, and each number of the taps serves four.
 */
#ifndef FFNI_DEPTHWISE_TEMPLATE_H
#define FFNI_DEPTHWISE_TEMPLATE_H

#include "kernels/unroll.h"

enum { DEPTHWISE_ROWS = 4 };

typedef struct depthwise_columns {
    int64_t column, count; /* of a vector */
    const float *const *in; /* of the first of the rows */
    float *out;
} depthwise_columns_t;

/* Adds row s of the input to the results' rows. `inside`: all of them have a tap there. */
INLINE void depthwise_row(const depthwise_t *d, const depthwise_columns_t *at, int64_t s, int rows, int inside, vf sums[DEPTHWISE_ROWS])
{
    const float *in = at->in[s];
    if (!in) return;
    const vf x = load_count(in, at->column, at->count);
    UNROLL_ALL
    for (int r = 0; r < rows; r++)
        if (inside || (s >= r && s - r < d->taps))
            sums[r] = vf_fma(load_count(d->weight + (s - r) * d->weight_step, at->column, at->count), x, sums[r]);
}

/* `rows` is a constant here: the sums live in registers. */
INLINE void depthwise_rows(const depthwise_t *d, const depthwise_columns_t *at, int rows)
{
    const int64_t all = d->taps + rows - 1;
    int64_t s = 0;
    vf sums[DEPTHWISE_ROWS];
    UNROLL_ALL
    for (int r = 0; r < rows; r++) sums[r] = d->continued ? load_count(at->out + r * d->out_step, at->column, at->count) : vf_set1(0.0f);
    for (; s < rows - 1; s++) depthwise_row(d, at, s, rows, 0, sums);
    for (; s < d->taps; s++) depthwise_row(d, at, s, rows, 1, sums);
    for (; s < all; s++) depthwise_row(d, at, s, rows, 0, sums);
    UNROLL_ALL
    for (int r = 0; r < rows; r++) store_count(at->out + r * d->out_step, at->column, at->count, sums[r]);
}

INLINE void depthwise_vector(const depthwise_t *d, int64_t column, int64_t count)
{
    int64_t row = 0;
    for (; d->rows - row >= DEPTHWISE_ROWS; row += DEPTHWISE_ROWS) {
        const depthwise_columns_t at = {column, count, d->in + row, d->out + row * d->out_step};
        depthwise_rows(d, &at, DEPTHWISE_ROWS);
    }
    for (; row < d->rows; row++) {
        const depthwise_columns_t at = {column, count, d->in + row, d->out + row * d->out_step};
        depthwise_rows(d, &at, 1);
    }
}

static void depthwise(const depthwise_t *d)
{
    int64_t i = 0;
    for (; d->n - i >= VF_LANES; i += VF_LANES) depthwise_vector(d, i, VF_LANES);
    if (i < d->n) depthwise_vector(d, i, d->n - i);
}

#endif
