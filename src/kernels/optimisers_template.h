/* SPDX-License-Identifier: MIT
 *
 * The optimisers' steps over the vector vocabulary. Multiplied and added apart, as at the scalar level: all levels give the same bits.
 */
#ifndef FFNI_OPTIMISERS_TEMPLATE_H
#define FFNI_OPTIMISERS_TEMPLATE_H

static void sgd(const sgd_t *sgd, int64_t n, float *weight, const float *gradient, float *velocity)
{
    const vf rate = vf_set1(sgd->rate), momentum = vf_set1(sgd->momentum), decay = vf_set1(sgd->weight_decay);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const vf w = load_count(weight, i, count);
        vf g = load_count(gradient, i, count);
        if (sgd->weight_decay != 0) g = vf_add(g, vf_mul(decay, w));
        vf v = g;
        if (velocity) {
            v = vf_add(vf_mul(momentum, load_count(velocity, i, count)), g);
            store_count(velocity, i, count, v);
        }
        const vf step = sgd->nesterov ? vf_add(g, vf_mul(momentum, v)) : v;
        store_count(weight, i, count, vf_sub(w, vf_mul(rate, step)));
    }
}

static void adamw(const adamw_t *adamw, int64_t n, float *weight, const float *gradient, float *first, float *second)
{
    const vf beta1 = vf_set1(adamw->beta1), beta2 = vf_set1(adamw->beta2), eps = vf_set1(adamw->eps), decay = vf_set1(adamw->decay);
    const vf new_first = vf_set1(1.0f - adamw->beta1), new_second = vf_set1(1.0f - adamw->beta2);
    const vf first_factor = vf_set1(adamw->first_factor), second_factor = vf_set1(adamw->second_factor);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const vf g = load_count(gradient, i, count), w = load_count(weight, i, count);
        const vf m = vf_add(vf_mul(beta1, load_count(first, i, count)), vf_mul(new_first, g));
        const vf v = vf_add(vf_mul(beta2, load_count(second, i, count)), vf_mul(vf_mul(new_second, g), g));
        const vf kept = vf_sub(w, vf_mul(decay, w)), below = vf_add(vf_mul(second_factor, vf_sqrt(v)), eps);
        store_count(first, i, count, m);
        store_count(second, i, count, v);
        store_count(weight, i, count, vf_sub(kept, vf_div(vf_mul(first_factor, m), below)));
    }
}

static double sum_of_squares(int64_t n, const float *v)
{
    vd low = vd_set1(0.0), high = vd_set1(0.0);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const vf x = load_count(v, i, lanes_left(n - i));
        low = vd_fma(vd_low(x), vd_low(x), low);
        high = vd_fma(vd_high(x), vd_high(x), high);
    }
    return vd_sum(vd_add(low, high));
}

static void scale(int64_t n, float *v, float factor)
{
    const vf f = vf_set1(factor);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        store_count(v, i, count, vf_mul(load_count(v, i, count), f));
    }
}

#endif
