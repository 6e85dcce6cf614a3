/* SPDX-License-Identifier: MIT
 *
 * The activations over the vector vocabulary: one function each, x in, act(x) out. The formulas are those of the public header; each comment
 * says the method and the error bound over all finite x, in ulp of the exact value (docs/accuracy.md has the measured ones).
 *
 * Arguments are clamped where the result has long been constant or 0 as a float, so that infinities meet nothing that makes a NaN of them.
 */
#ifndef FFNI_ACTIVATIONS_TEMPLATE_H
#define FFNI_ACTIVATIONS_TEMPLATE_H

#include <float.h>

/* Exact. */
INLINE vf identity(vf x, const activation_t *a)
{
    (void)a;
    return x;
}

/* Exact. */
INLINE vf relu(vf x, const activation_t *a)
{
    (void)a;
    return vf_at_least(x, vf_set1(0.0f));
}

/* 0.5 ulp. */
INLINE vf leaky_relu(vf x, const activation_t *a)
{
    return vf_select(vf_less(vf_set1(0.0f), x), x, vf_mul(x, vf_set1(a->alpha)));
}

/* 0.5 ulp. */
INLINE vf relu2(vf x, const activation_t *a)
{
    const vf positive = relu(x, a);
    return vf_mul(positive, positive);
}

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|): no cancellation, as the subtrahend stands alone on one side and is at most half of x on the other.
 * |x| stops at 15, where the product is below every denormal. 3.5 ulp. */
INLINE vf gelu(vf x, const activation_t *a)
{
    const vf size = vf_at_most(vf_abs(x), vf_set1(15.0f)), minus_half = vf_mul(size, vf_set1(-0.5f));
    const vf exponent = vf_mul(size, minus_half);
    const vf exponent_lo = vf_fms(size, minus_half, exponent);
    return vf_sub(relu(x, a), normal_tail(size, vf_set1(-0.0f), exponent, exponent_lo, size));
}

/* 2 sqrt(2/pi) (x + 0.044715 x^3) = x (c0 + c1 x^2) as hi + lo, for 0 <= x <= 11. */
INLINE vf gelu_tanh_argument(vf x, vf *lo)
{
    const vf c0 = vf_set1(0x1.988454p+0f), c0_lo = vf_set1(-0x1.857936p-25f);
    const vf c1 = vf_set1(0x1.2444f2p-4f), c1_lo = vf_set1(0x1.49b16ap-29f);
    const vf square = vf_mul(x, x), square_lo = vf_fms(x, x, square);
    const vf cubic = vf_mul(c1, square);
    const vf cubic_lo = vf_add(vf_fms(c1, square, cubic), vf_fma(c1, square_lo, vf_mul(c1_lo, square)));
    const vf slope = vf_add(c0, cubic), rest = vf_sub(slope, c0);
    const vf rounded_off = vf_add(vf_sub(c0, vf_sub(slope, rest)), vf_sub(cubic, rest));
    const vf slope_lo = vf_add(rounded_off, vf_add(cubic_lo, c0_lo));
    const vf hi = vf_mul(slope, x);
    *lo = vf_fma(slope_lo, x, vf_fms(slope, x, hi));
    return hi;
}

/* x (1 + tanh(u)) / 2 = x sigmoid(2u) = max(x, 0) - |x| sigmoid(-|2u|). 3 ulp. */
INLINE vf gelu_tanh(vf x, const activation_t *a)
{
    const vf size = vf_at_most(vf_abs(x), vf_set1(11.0f));
    vf lo;
    const vf hi = gelu_tanh_argument(size, &lo);
    return vf_sub(relu(x, a), value_of(logistic_tail(hi, lo, size)));
}

/* x sigmoid(beta x) = max(x, 0) - |x| sigmoid(-beta |x|) for beta >= 0, beta |x| as hi + lo; a negative beta turns the signs of x and of the result.
 * |x| stops where beta |x| is 240: even FLT_MAX e^-240 is 0, by way of two factors of 2^rest. 3 ulp for every finite beta. */
INLINE vf swish(vf x, const activation_t *a)
{
    const float slope = fabsf(a->beta);
    const vf beta = vf_set1(slope), limit = vf_set1(slope * FLT_MAX > 240.0f ? 240.0f / slope : FLT_MAX);
    const vf sign = vf_set1(copysignf(0.0f, a->beta)), turned = vf_xor(x, sign);
    const vf size = vf_at_most(vf_abs(x), limit), hi = vf_mul(size, beta);
    scaled_t tail = logistic_tail(hi, vf_fms(size, beta, hi), size);
    const vf first = vf_at_least(tail.rest, vf_set1(-126.0f));
    tail.v = vf_mul(tail.v, power_of_two(first));
    tail.rest = vf_sub(tail.rest, first);
    return vf_xor(vf_sub(relu(turned, a), value_of(tail)), sign);
}

/* 1 / (1 + e^-x). 2.5 ulp. */
INLINE vf sigmoid(vf x, const activation_t *a)
{
    (void)a;
    const vf zero = vf_set1(0.0f);
    const vf tail = value_of(logistic_tail(vf_at_most(vf_abs(x), vf_set1(120.0f)), zero, vf_set1(1.0f)));
    return vf_select(vf_less(x, zero), tail, vf_sub(vf_set1(1.0f), tail));
}

/* (1 - e^-2|x|) / (1 + e^-2|x|) by way of e^-2|x| - 1, with the sign of x. 2.5 ulp. */
INLINE vf hyperbolic_tangent(vf x, const activation_t *a)
{
    (void)a;
    const vf size = vf_at_most(vf_abs(x), vf_set1(10.0f));
    const vf e = exp_minus_one(vf_mul(size, vf_set1(-2.0f)));
    return vf_copysign(vf_div(e, vf_add(e, vf_set1(2.0f))), x);
}

/* tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2), e = e^x; for x >= 0 with e = e^-x: (1 + 2e) / (1 + 2e + 2e^2). In both, x comes with the numerator,
 * by way of x e. 4 ulp. */
INLINE vf mish(vf x, const activation_t *a)
{
    (void)a;
    const vf zero = vf_set1(0.0f), one = vf_set1(1.0f), two = vf_set1(2.0f), limit = vf_set1(120.0f);
    const vm negative = vf_less(x, zero);
    const vf near = vf_at_least(x, vf_neg(limit)), exponent = vf_neg(vf_at_most(vf_abs(x), limit));
    const vf e = exp_of(exponent, zero).v;
    const scaled_t xe = exp_times(vf_at_most(near, limit), exponent, zero);
    const vf above = vf_select(negative, vf_fma(xe.v, e, vf_add(xe.v, xe.v)), vf_fma(xe.v, two, near));
    const vf below = vf_select(negative, vf_fma(e, vf_add(e, two), two), vf_fma(vf_add(e, e), vf_add(e, one), one));
    return value_of((scaled_t){vf_div(above, below), vf_select(negative, xe.rest, zero)});
}

/* 2 ulp; with alpha 1, where the product is exact, 1. */
INLINE vf elu(vf x, const activation_t *a)
{
    return vf_select(vf_less(vf_set1(0.0f), x), x, vf_mul(exp_minus_one(x), vf_set1(a->alpha)));
}

/* x + 3 is exact where it is small; the quotient by 6 comes first, as x * 6 may overflow. 2 ulp. */
INLINE vf hardswish(vf x, const activation_t *a)
{
    (void)a;
    const vf zero = vf_set1(0.0f), three = vf_set1(3.0f), six = vf_set1(6.0f);
    const vf ramp = clamp(vf_add(x, three), zero, six);
    return vf_mul(vf_at_least(x, vf_neg(three)), vf_div(ramp, six));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|). 3 ulp. */
INLINE vf softplus(vf x, const activation_t *a)
{
    const scaled_t e = exp_of(vf_neg(vf_at_most(vf_abs(x), vf_set1(120.0f))), vf_set1(0.0f));
    return vf_add(relu(x, a), value_of(log_one_plus(e)));
}

/* v = (x - mu) / sigma with mu = 0.707107, sigma = 0.282095 as decimal numbers, as hi + lo. Beyond the limits of x, |v| > 14.9. */
INLINE vf laplace_argument(vf x, vf *lo)
{
    const vf mu = vf_set1(0x1.6a09eep-1f), mu_lo = vf_set1(-0x1.01d192p-27f);
    const vf per_sigma = vf_set1(0x1.c5bf74p+1f), per_sigma_lo = vf_set1(-0x1.afc956p-24f);
    const vf near = clamp(x, vf_set1(-3.52f), vf_set1(4.93f));
    const vf shifted = vf_sub(near, mu), rest = vf_sub(shifted, near);
    const vf rounded_off = vf_sub(vf_sub(near, vf_sub(shifted, rest)), vf_add(mu, rest));
    const vf shifted_lo = vf_sub(rounded_off, mu_lo);
    const vf v = vf_mul(shifted, per_sigma);
    *lo = vf_fma(shifted_lo, per_sigma, vf_fma(shifted, per_sigma_lo, vf_fms(shifted, per_sigma, v)));
    return v;
}

/* -v^2/2 as hi + lo, of v + v_lo. */
INLINE vf minus_half_square(vf v, vf v_lo, vf *lo)
{
    const vf minus_half = vf_mul(v, vf_set1(-0.5f)), hi = vf_mul(v, minus_half);
    *lo = vf_fnma(v, v_lo, vf_fms(v, minus_half, hi));
    return hi;
}

/* Phi(v) or 1 - Phi(-v). 3.5 ulp. */
INLINE vf laplace(vf x, const activation_t *a)
{
    (void)a;
    vf v_lo, exponent_lo;
    const vf v = laplace_argument(x, &v_lo), exponent = minus_half_square(v, v_lo, &exponent_lo);
    const vf away = vf_xor(v_lo, vf_and(v, vf_set1(-0.0f))); /* v_lo beside |v| */
    const vf tail = normal_tail(vf_abs(v), away, exponent, exponent_lo, vf_set1(1.0f));
    return vf_select(vf_less(v, vf_set1(0.0f)), tail, vf_sub(vf_set1(1.0f), tail));
}

/* x > 0: x (p x + beta). Else n (e^min(x, alpha) - 1) + (beta - n) x: in this order the terms of x = -inf cannot meet as inf - inf. The exact value
 * has roots, so the bound is in ulp of the largest term (|p x^2| and |beta x|; |n (e^min(x, alpha) - 1)| and |(beta - n) x|): 3 ulp. A factor of 0
 * stays 0 beside an infinite x. */
INLINE vf xielu(vf x, const activation_t *a)
{
    const vf zero = vf_set1(0.0f), beta = vf_set1(a->beta), p = vf_set1(a->xielu_p), n = vf_set1(a->xielu_n);
    const vf slope = vf_sub(beta, n);
    const vf rising = vf_mul(x, vf_select(vf_equal(p, zero), beta, vf_fma(p, x, beta)));
    const vf curve = vf_mul(n, exp_minus_one(vf_at_most(x, vf_set1(a->alpha))));
    const vf falling = vf_select(vf_equal(slope, zero), curve, vf_fma(slope, x, curve));
    return vf_select(vf_less(zero, x), rising, falling);
}

#endif
