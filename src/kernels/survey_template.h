/* SPDX-License-Identifier: MIT
 *
 * Looking at the numbers of an array: norm, zeros, and what is no number, over the vector vocabulary.
 */
#ifndef FFNI_SURVEY_TEMPLATE_H
#define FFNI_SURVEY_TEMPLATE_H

INLINE int64_t vu_sum(vu x)
{
    uint32_t lane[VF_LANES];
    int64_t sum = 0;
    vu_store(lane, x);
    for (int i = 0; i < VF_LANES; i++) sum += lane[i];
    return sum;
}

static void survey(int64_t n, const float *v, survey_t *survey)
{
    const vf zero = vf_set1(0.0f), infinity = vf_set1(INFINITY);
    vd low = vd_set1(0.0), high = vd_set1(0.0);
    vu zeros = vu_zero(), finite = zeros;
    vf largest = zero;
    int64_t lanes = 0;
    for (int64_t i = 0; i < n; i += VF_LANES, lanes += VF_LANES) {
        const vf x = load_count(v, i, lanes_left(n - i)), magnitude = vf_abs(x);
        const vm is_finite = vf_less(magnitude, infinity);
        low = vd_fma(vd_low(x), vd_low(x), low);
        high = vd_fma(vd_high(x), vd_high(x), high);
        zeros = vu_count(zeros, vf_equal(x, zero));
        finite = vu_count(finite, is_finite);
        largest = vf_at_least(vf_select(is_finite, magnitude, zero), largest);
    }
    float number[VF_LANES];
    vf_store(number, largest);
    for (int i = 0; i < VF_LANES; i++)
        if (number[i] > survey->largest) survey->largest = number[i];
    survey->squares += vd_sum(vd_add(low, high));
    survey->zeros += vu_sum(zeros) - (lanes - n); /* lanes past the end are 0 */
    survey->non_finite += lanes - vu_sum(finite);
}

static double squared_distance(int64_t n, const float *a, const float *b)
{
    vd low = vd_set1(0.0), high = vd_set1(0.0);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const vf x = load_count(a, i, count), y = load_count(b, i, count);
        const vd d_low = vd_sub(vd_low(x), vd_low(y)), d_high = vd_sub(vd_high(x), vd_high(y));
        low = vd_fma(d_low, d_low, low);
        high = vd_fma(d_high, d_high, high);
    }
    return vd_sum(vd_add(low, high));
}

#endif
