/* SPDX-License-Identifier: MIT
 *
 * The derivatives of a depthwise convolution by its taps, over the vector vocabulary: four taps at once, which share each row of derivatives.
 */
#ifndef FFNI_DEPTHWISE_SLOPES_TEMPLATE_H
#define FFNI_DEPTHWISE_SLOPES_TEMPLATE_H

#include "kernels/unroll.h"

enum { SLOPE_TAPS = 4 };

INLINE void depthwise_taps(const depthwise_slopes_t *d, int64_t column, int64_t count, int64_t tap, int taps)
{
    float *out = d->sums + tap * d->sums_step;
    vf sums[SLOPE_TAPS];
    UNROLL_ALL
    for (int j = 0; j < taps; j++) sums[j] = load_count(out + j * d->sums_step, column, count);
    for (int64_t r = 0; r < d->rows; r++) {
        const vf slope = load_count(d->d + r * d->d_step, column, count);
        UNROLL_ALL
        for (int j = 0; j < taps; j++) {
            const float *in = d->in[r + tap + j];
            if (in) sums[j] = vf_fma(slope, load_count(in, column, count), sums[j]);
        }
    }
    UNROLL_ALL
    for (int j = 0; j < taps; j++) store_count(out + j * d->sums_step, column, count, sums[j]);
}

static void depthwise_slopes(const depthwise_slopes_t *d)
{
    for (int64_t i = 0; i < d->n; i += VF_LANES) {
        const int64_t count = lanes_left(d->n - i);
        int64_t tap = 0;
        for (; d->taps - tap >= SLOPE_TAPS; tap += SLOPE_TAPS) depthwise_taps(d, i, count, tap, SLOPE_TAPS);
        for (; tap < d->taps; tap++) depthwise_taps(d, i, count, tap, 1);
    }
}

#endif
