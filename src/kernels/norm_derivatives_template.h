/* SPDX-License-Identifier: MIT
 *
 * The derivatives of the norms of one row over the vector vocabulary, and the small sums and products between the backward passes. Row sums are in
 * float64, their partial sums belong to lanes: the order of additions depends on n alone.
 */
#ifndef FFNI_NORM_DERIVATIVES_TEMPLATE_H
#define FFNI_NORM_DERIVATIVES_TEMPLATE_H

/* A vf as two vd. */
typedef struct wide {
    vd low, high;
} wide_t;

INLINE wide_t widen(vf x)
{
    return (wide_t){vd_low(x), vd_high(x)};
}

INLINE double sum_of(wide_t x)
{
    return vd_sum(vd_add(x.low, x.high));
}

/* d_y * (offset + weight), exact in float64. */
INLINE wide_t weighted(const norm_t *norm, int64_t i, int64_t count, vf d_y)
{
    const wide_t d = widen(d_y);
    if (!norm->weight) return d;
    const wide_t w = widen(vf_add(vf_set1(norm->offset), load_count(norm->weight, i, count)));
    return (wide_t){vd_mul(d.low, w.low), vd_mul(d.high, w.high)};
}

/* (x - center) * factor */
INLINE wide_t standard(vf x, vd center, vd factor)
{
    return (wide_t){vd_mul(vd_sub(vd_low(x), center), factor), vd_mul(vd_sub(vd_high(x), center), factor)};
}

INLINE void add_parameter_gradients(int64_t i, int64_t count, vf d_y, vf q, float *d_weight, float *d_bias)
{
    if (d_weight) store_count(d_weight, i, count, vf_add(load_count(d_weight, i, count), vf_mul(d_y, q)));
    if (d_bias) store_count(d_bias, i, count, vf_add(load_count(d_bias, i, count), d_y));
}

typedef struct moments {
    double sum, product; /* of e, and of e q */
} moments_t;

static moments_t moments_of(const norm_t *norm, double center, double factor, int64_t n, const float *d_y, const float *x)
{
    const vd c = vd_set1(center), f = vd_set1(factor), zero = vd_set1(0.0);
    wide_t sum = {zero, zero}, product = {zero, zero};
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const wide_t e = weighted(norm, i, count, load_count(d_y, i, count)), q = standard(load_count(x, i, count), c, f);
        sum = (wide_t){vd_add(sum.low, e.low), vd_add(sum.high, e.high)};
        product = (wide_t){vd_fma(e.low, q.low, product.low), vd_fma(e.high, q.high, product.high)};
    }
    return (moments_t){sum_of(sum), sum_of(product)};
}

/* (e - mean - q slope) * factor */
INLINE vd derivative(vd e, vd q, vd mean, vd slope, vd factor)
{
    return vd_mul(vd_sub(vd_sub(e, mean), vd_mul(q, slope)), factor);
}

static void differentiate_standardised(const norm_t *norm, double center, int subtracts_mean, int64_t n, float *d_x, const float *d_y, const float *x,
                                       float *d_weight, float *d_bias)
{
    const double factor = 1.0 / sqrt(mean_square_about(center, n, x) + (double)norm->eps);
    const moments_t moments = moments_of(norm, center, factor, n, d_y, x);
    const vd c = vd_set1(center), f = vd_set1(factor), slope = vd_set1(moments.product / (double)n);
    const vd mean = vd_set1(subtracts_mean ? moments.sum / (double)n : 0.0);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const vf d = load_count(d_y, i, count);
        const wide_t e = weighted(norm, i, count, d), q = standard(load_count(x, i, count), c, f);
        store_count(d_x, i, count, vf_from_vd(derivative(e.low, q.low, mean, slope, f), derivative(e.high, q.high, mean, slope, f)));
        add_parameter_gradients(i, count, d, vf_from_vd(q.low, q.high), d_weight, d_bias);
    }
}

static void differentiate_layer(const norm_t *norm, int64_t n, float *d_x, const float *d_y, const float *x, float *d_weight, float *d_bias)
{
    differentiate_standardised(norm, mean_of(n, x), 1, n, d_x, d_y, x, d_weight, d_bias);
}

static void differentiate_rms(const norm_t *norm, int64_t n, float *d_x, const float *d_y, const float *x, float *d_weight, float *d_bias)
{
    differentiate_standardised(norm, 0.0, 0, n, d_x, d_y, x, d_weight, d_bias);
}

static void differentiate_affine(const norm_t *norm, int64_t n, float *d_x, const float *d_y, const float *x, float *d_weight, float *d_bias)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const vf d = load_count(d_y, i, count), q = load_count(x, i, count);
        const wide_t e = weighted(norm, i, count, d);
        store_count(d_x, i, count, vf_from_vd(e.low, e.high));
        add_parameter_gradients(i, count, d, q, d_weight, d_bias);
    }
}

static void add(int64_t n, float *sum, const float *v)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        store_count(sum, i, count, vf_add(load_count(sum, i, count), load_count(v, i, count)));
    }
}

static void add_product(int64_t n, float *sum, const float *a, const float *b)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        store_count(sum, i, count, vf_add(load_count(sum, i, count), vf_mul(load_count(a, i, count), load_count(b, i, count))));
    }
}

static void multiply(int64_t n, float *out, const float *a, const float *b)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        store_count(out, i, count, vf_mul(load_count(a, i, count), load_count(b, i, count)));
    }
}

#endif
