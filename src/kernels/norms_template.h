/* SPDX-License-Identifier: MIT
 *
 * The norms of one row and the passes that end a layer, over the vector vocabulary.
 */
#ifndef FFNI_NORMS_TEMPLATE_H
#define FFNI_NORMS_TEMPLATE_H

/* v * (offset + weight) + bias for the elements from i on, with what is absent left out. Multiplied and added apart, as at the scalar level. */
INLINE vf apply_weight(const norm_t *norm, int64_t i, int64_t count, vf v)
{
    if (norm->weight) v = vf_mul(v, vf_add(vf_set1(norm->offset), load_count(norm->weight, i, count)));
    if (norm->bias) v = vf_add(v, load_count(norm->bias, i, count));
    return v;
}

/* out[i] = (float)((x[i] - center) * factor) * (offset + weight[i]) + bias[i] */
INLINE void standardise(const norm_t *norm, double center, double factor, int64_t n, float *out, const float *x)
{
    const vd c = vd_set1(center), f = vd_set1(factor);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const vf v = load_count(x, i, count);
        const vf standard = vf_from_vd(vd_mul(vd_sub(vd_low(v), c), f), vd_mul(vd_sub(vd_high(v), c), f));
        store_count(out, i, count, apply_weight(norm, i, count, standard));
    }
}

static void normalise_layer(const norm_t *norm, int64_t n, float *out, const float *x)
{
    const double mean = mean_of(n, x);
    standardise(norm, mean, 1.0 / sqrt(mean_square_about(mean, n, x) + (double)norm->eps), n, out, x);
}

static void normalise_rms(const norm_t *norm, int64_t n, float *out, const float *x)
{
    standardise(norm, 0.0, 1.0 / sqrt(mean_square_about(0.0, n, x) + (double)norm->eps), n, out, x);
}

static void normalise_affine(const norm_t *norm, int64_t n, float *out, const float *x)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        store_count(out, i, count, apply_weight(norm, i, count, load_count(x, i, count)));
    }
}

static void combine(int64_t n, float *out, const float *branch, const float *bias, const float *branch_scale, const float *residual,
                    const float *residual_scale)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        vf y = load_count(branch, i, count);
        if (bias) y = vf_add(y, load_count(bias, i, count));
        if (branch_scale) y = vf_mul(y, load_count(branch_scale, i, count));
        if (residual) {
            const vf r = load_count(residual, i, count);
            y = vf_add(residual_scale ? vf_mul(r, load_count(residual_scale, i, count)) : r, y);
        }
        store_count(out, i, count, y);
    }
}

static void mix(int64_t n, float *out, int64_t count, const float *const *rows, const float *weights)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t lanes = lanes_left(n - i);
        vf sum = count ? vf_mul(vf_set1(weights[0]), load_count(rows[0], i, lanes)) : vf_set1(0.0f);
        for (int64_t k = 1; k < count; k++) sum = vf_add(sum, vf_mul(vf_set1(weights[k]), load_count(rows[k], i, lanes)));
        store_count(out, i, lanes, sum);
    }
}

#endif
