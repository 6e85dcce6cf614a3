/* SPDX-License-Identifier: MIT
 *
 * The mean of a row and its mean square about a number, over the vector vocabulary, for the norms and their derivatives.
 *
 * Sums are in float64: the square of any float is exact there, so nothing overflows, and n equal numbers give their exact mean up to n = 2^29. The
 * partial sums belong to lanes, so that the order of additions depends on n alone.
 */
#ifndef FFNI_ROW_SUMS_TEMPLATE_H
#define FFNI_ROW_SUMS_TEMPLATE_H

static double mean_of(int64_t n, const float *x)
{
    vd low = vd_set1(0.0), high = vd_set1(0.0);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const vf v = load_count(x, i, lanes_left(n - i));
        low = vd_add(low, vd_low(v));
        high = vd_add(high, vd_high(v));
    }
    return vd_sum(vd_add(low, high)) / (double)n;
}

/* mean((x - center)^2) */
static double mean_square_about(double center, int64_t n, const float *x)
{
    const vd c = vd_set1(center);
    vd low = vd_set1(0.0), high = vd_set1(0.0);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const vf v = load_count(x, i, lanes_left(n - i));
        const vd d_low = vd_keep_first(vd_sub(vd_low(v), c), n - i), d_high = vd_keep_first(vd_sub(vd_high(v), c), n - i - VD_LANES);
        low = vd_fma(d_low, d_low, low);
        high = vd_fma(d_high, d_high, high);
    }
    return vd_sum(vd_add(low, high)) / (double)n;
}

#endif
