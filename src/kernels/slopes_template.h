/* SPDX-License-Identifier: MIT
 *
 * The derivatives of the activations over the vector vocabulary: one function each, x in, act'(x) out, of the parts that activations_template.h is made
 * of. Where a derivative is a sum of two terms of opposite signs it has a root, and its error is measured in ulp of the larger term
 * (docs/accuracy.md has the bounds).
 */
#ifndef FFNI_SLOPES_TEMPLATE_H
#define FFNI_SLOPES_TEMPLATE_H

/* 1 */
INLINE vf identity_slope(vf x, const activation_t *a)
{
    (void)x, (void)a;
    return vf_set1(1.0f);
}

INLINE vf relu_slope(vf x, const activation_t *a)
{
    (void)a;
    return vf_select(vf_less(vf_set1(0.0f), x), vf_set1(1.0f), vf_set1(0.0f));
}

INLINE vf leaky_relu_slope(vf x, const activation_t *a)
{
    return vf_select(vf_less(vf_set1(0.0f), x), vf_set1(1.0f), vf_set1(a->alpha));
}

/* 2 max(x, 0) */
INLINE vf relu2_slope(vf x, const activation_t *a)
{
    const vf positive = relu(x, a);
    return vf_add(positive, positive);
}

/* Phi(x) + x phi(x), phi(x) = e^(-x^2/2) / sqrt(2 pi). */
INLINE vf gelu_slope(vf x, const activation_t *a)
{
    (void)a;
    const vf size = vf_at_most(vf_abs(x), vf_set1(15.0f)), one = vf_set1(1.0f);
    vf lo;
    const vf hi = minus_half_square(size, vf_set1(0.0f), &lo);
    const vf tail = normal_tail(size, vf_set1(-0.0f), hi, lo, one);
    const vf density = value_of(exp_times(vf_mul(size, vf_set1(0x1.988454p-2f)), hi, lo));
    return vf_select(vf_less(x, vf_set1(0.0f)), vf_sub(tail, density), vf_add(vf_sub(one, tail), density));
}

/* s(z) + w s(z) s(-z), the derivative of x s(z(x)) with w = x z'(x): z and w have the same sign and come as their sizes, z as hi + lo, hi < 125.
 * With the tail t = s(-|z|): t (1 - w (1 - t)) for z < 0, (1 - t) (1 + w t) else. */
INLINE vf logistic_slope(vm negative, vf hi, vf lo, vf w)
{
    const vf one = vf_set1(1.0f);
    const scaled_t t = logistic_tail(hi, lo, one);
    const vf tail = value_of(t), rest = vf_sub(one, tail);
    const vf below = value_of((scaled_t){vf_mul(t.v, vf_fnma(w, rest, one)), t.rest});
    return vf_select(negative, below, vf_mul(rest, vf_fma(w, tail, one)));
}

/* z = x (c0 + c1 x^2), w = x (c0 + 3 c1 x^2). */
INLINE vf gelu_tanh_slope(vf x, const activation_t *a)
{
    (void)a;
    const vf size = vf_at_most(vf_abs(x), vf_set1(11.0f));
    vf lo;
    const vf hi = gelu_tanh_argument(size, &lo);
    const vf w = vf_mul(size, vf_fma(vf_mul(size, size), vf_set1(0x1.b6676cp-3f), vf_set1(0x1.988454p+0f)));
    return logistic_slope(vf_less(x, vf_set1(0.0f)), hi, lo, w);
}

/* z = w = beta x, whose size stops at 115: 115 e^-115 is 0 as a float. */
INLINE vf swish_slope(vf x, const activation_t *a)
{
    const float slope = fabsf(a->beta);
    const vf beta = vf_set1(slope), limit = vf_set1(slope * FLT_MAX > 115.0f ? 115.0f / slope : FLT_MAX);
    const vf turned = vf_xor(x, vf_set1(copysignf(0.0f, a->beta)));
    const vf size = vf_at_most(vf_abs(x), limit), hi = vf_mul(size, beta);
    return logistic_slope(vf_less(turned, vf_set1(0.0f)), hi, vf_fms(size, beta, hi), hi);
}

/* factor s(z) s(-z) for z = size >= 0 */
INLINE vf logistic_density(vf size, float factor)
{
    const scaled_t t = logistic_tail(vf_at_most(size, vf_set1(120.0f)), vf_set1(0.0f), vf_set1(1.0f));
    const vf rest = vf_sub(vf_set1(1.0f), value_of(t));
    return value_of((scaled_t){vf_mul(vf_mul(t.v, rest), vf_set1(factor)), t.rest});
}

INLINE vf sigmoid_slope(vf x, const activation_t *a)
{
    (void)a;
    return logistic_density(vf_abs(x), 1.0f);
}

/* 1 - tanh(x)^2 = 4 s(2x) s(-2x) */
INLINE vf tanh_slope(vf x, const activation_t *a)
{
    (void)a;
    const vf size = vf_abs(x);
    return logistic_density(vf_add(size, size), 4.0f);
}

/* T + x T', T = tanh(log(1 + e^x)). With e = e^-|x|: for x < 0, D = e (e + 2) + 2, T = e (e + 2) / D, T' = 4 e (1 + e) / D^2; for x >= 0,
 * D = 2 e (e + 1) + 1, T = (1 + 2 e) / D, T' = 4 e^2 (1 + e) / D^2. */
INLINE vf mish_slope(vf x, const activation_t *a)
{
    (void)a;
    const vf zero = vf_set1(0.0f), one = vf_set1(1.0f), two = vf_set1(2.0f), four = vf_set1(4.0f), limit = vf_set1(115.0f);
    const vm negative = vf_less(x, zero);
    const vf near = clamp(x, vf_neg(limit), limit);
    const scaled_t e = exp_of(vf_neg(vf_abs(near)), zero);
    const vf above = vf_add(e.v, one);
    const vf d = vf_select(negative, vf_fma(e.v, vf_add(e.v, two), two), vf_fma(vf_add(e.v, e.v), above, one));
    const vf growth = vf_div(vf_mul(vf_mul(near, four), above), d);
    const vf falling = value_of((scaled_t){vf_div(vf_mul(e.v, vf_add(vf_add(e.v, two), growth)), d), e.rest});
    const vf rising = vf_div(vf_fma(vf_mul(growth, e.v), e.v, vf_fma(e.v, two, one)), d);
    return vf_select(negative, falling, rising);
}

/* x > 0 ? 1 : alpha e^x, x down to -240: even FLT_MAX e^-240 is 0, by way of two factors of 2^rest. */
INLINE vf elu_slope(vf x, const activation_t *a)
{
    const vf zero = vf_set1(0.0f), near = vf_at_least(vf_at_most(x, zero), vf_set1(-240.0f));
    scaled_t e = exp_times(vf_set1(a->alpha), near, zero);
    const vf first = vf_at_least(e.rest, vf_set1(-126.0f));
    e.v = vf_mul(e.v, power_of_two(first));
    e.rest = vf_sub(e.rest, first);
    return vf_select(vf_less(zero, x), vf_set1(1.0f), value_of(e));
}

/* 0 below -3, 1 above 3, between them x/3 + 1/2 */
INLINE vf hardswish_slope(vf x, const activation_t *a)
{
    (void)a;
    const vf three = vf_set1(3.0f), between = vf_add(vf_div(x, three), vf_set1(0.5f));
    return vf_select(vf_less(three, x), vf_set1(1.0f), vf_select(vf_less(x, vf_neg(three)), vf_set1(0.0f), between));
}

INLINE vf softplus_slope(vf x, const activation_t *a)
{
    return sigmoid(x, a);
}

/* phi(v) / sigma */
INLINE vf laplace_slope(vf x, const activation_t *a)
{
    (void)a;
    vf v_lo, lo;
    const vf v = laplace_argument(x, &v_lo), hi = minus_half_square(v, v_lo, &lo);
    return value_of(exp_times(vf_set1(0x1.6a09d4p+0f), hi, lo));
}

/* x > 0 ? 2 p x + beta : n ((x <= alpha ? e^x : 0) - 1) + beta */
INLINE vf xielu_slope(vf x, const activation_t *a)
{
    const vf zero = vf_set1(0.0f), beta = vf_set1(a->beta), p = vf_set1(a->xielu_p), n = vf_set1(a->xielu_n);
    const vf rising = vf_select(vf_equal(p, zero), beta, vf_fma(vf_add(p, p), x, beta));
    const vf curve = vf_fma(n, exp_minus_one(vf_at_most(x, zero)), beta);
    const vf falling = vf_select(vf_less(vf_set1(a->alpha), x), vf_sub(beta, n), curve);
    return vf_select(vf_less(zero, x), rising, falling);
}

#endif
