/* SPDX-License-Identifier: MIT
 *
 * The functions that the activations are made of, over the vector vocabulary (vec_*.h, included before). Written once for all vector levels;
 * since every word of the vocabulary rounds as IEEE 754 has it, all levels give the same bits.
 *
 * Two habits keep the tails right to the last denormal:
 *   - A number that may be too small for a float is carried as v * 2^rest (scaled_t). v stays a normal number under the products that follow, and
 *     2^rest comes last, so that a denormal result is rounded once.
 *   - An argument that e^x would amplify is carried as hi + lo: e^(hi + lo) with |lo| below an ulp of hi.
 *
 * u is the unit roundoff 2^-24: half an ulp of a number just above a power of two, a quarter of an ulp just below the next.
 * Coefficients are minimax fits for the relative error, the low ones rounded to float first and the others fitted again around them.
 */
#ifndef FFNI_VECTOR_MATH_H
#define FFNI_VECTOR_MATH_H

/* How many of the n - i elements that are left the next vector holds. */
INLINE int64_t lanes_left(int64_t left)
{
    return left < VF_LANES ? left : VF_LANES;
}

/* Told so, compilers leave the way of whole vectors in one piece. */
#define RARELY(condition) __builtin_expect(condition, 0)

/* `count` elements (1 to VF_LANES) from p[i] on; lanes past them are 0. */
INLINE vf load_count(const float *p, int64_t i, int64_t count)
{
    return RARELY(count < VF_LANES) ? vf_load_first(p + i, count) : vf_load(p + i);
}

INLINE void store_count(float *p, int64_t i, int64_t count, vf a)
{
    if (RARELY(count < VF_LANES)) vf_store_first(p + i, a, count);
    else vf_store(p + i, a);
}

INLINE vf vf_abs(vf x)
{
    return vf_and_not(vf_set1(-0.0f), x);
}

INLINE vf vf_neg(vf x)
{
    return vf_xor(vf_set1(-0.0f), x);
}

/* The size of x with the sign of y. */
INLINE vf vf_copysign(vf x, vf y)
{
    return vf_or(vf_abs(x), vf_and(vf_set1(-0.0f), y));
}

/* 1.5 * 2^23: a float of this size has no fraction bits, so adding it rounds to a whole number, which then stands in the low bits. */
#define ROUNDING_SHIFT 12582912.0f

/* x between two limits; NaN stays NaN. */
INLINE vf clamp(vf x, vf low, vf high)
{
    return vf_at_least(vf_at_most(x, high), low);
}

/* c[0] + c[1] x + ... + c[n-1] x^(n-1), n >= 3: c[0] + x R(x), and R's even and odd powers by a Horner scheme each in x^2, which has half the latency
 * of one scheme for one product more. All but the last rounding are of terms that x makes small. n is a constant wherever it is called. */
INLINE vf polynomial(vf x, const float *c, int n)
{
    const vf square = vf_mul(x, x);
    vf last = vf_set1(c[n - 1]), other = vf_set1(c[n - 2]);
    for (int i = n - 3; i >= 1; i--) {
        const vf next = vf_fma(last, square, vf_set1(c[i]));
        last = other;
        other = next;
    }
    return vf_fma(vf_fma(last, x, other), x, vf_set1(c[0]));
}

/* 2^k, k a whole number from -126 to 127: the exponent's bits, put in place. */
INLINE vf power_of_two(vf k)
{
    return vf_shift_left_23(vf_add(k, vf_set1(ROUNDING_SHIFT + 127.0f)));
}

typedef struct exp_parts {
    vf p;     /* e^r - 1 */
    vf k;
    vf power; /* 2^(k + lift) */
} exp_parts_t;

/* e^(hi + lo) = 2^k (1 + p), |hi| < 250: k = round(hi / ln 2), and p = e^r - 1 for the rest r, |r| <= 0.35. ln 2 is split so that k * LN2_HI is
 * exact (15 + 9 bits). p = r + r^2 Q(r), Q of degree 4, fitted to 2^-26 relative to p. The error of p is 2 u |p| at most.
 * `power` costs one instruction, as k's bits are in place already; k + lift must be within -126 .. 127 where it is used. */
INLINE exp_parts_t exp_parts(vf hi, vf lo, float lift)
{
    static const float q[] = {0.5f, 0x1.5554b6p-3f, 0x1.5555b2p-5f, 0x1.122428p-7f, 0x1.6c5e7ap-10f};
    const vf shift = vf_set1(ROUNDING_SHIFT + 127.0f + lift);
    const vf shifted = vf_fma(hi, vf_set1(0x1.715476p+0f), shift), k = vf_sub(shifted, shift);
    const vf r = vf_add(vf_fnma(k, vf_set1(0x1.62e4p-1f), hi), vf_fnma(k, vf_set1(0x1.7f7d1cp-20f), lo));
    return (exp_parts_t){vf_fma(vf_mul(r, r), polynomial(r, q, 5), r), k, vf_shift_left_23(shifted)};
}

typedef struct scaled {
    vf v, rest; /* v * 2^rest, rest a whole number from -252 to 0, and 0 unless the value is below 2^-100 */
} scaled_t;

/* The float that x is, for rest >= -126. */
INLINE vf value_of(scaled_t x)
{
    return vf_mul(x.v, power_of_two(x.rest));
}

/* factor * e^(hi + lo) for -250 < hi <= 0, within 1.8 u: the product is rounded once. */
INLINE scaled_t exp_times(vf factor, vf hi, vf lo)
{
    const exp_parts_t e = exp_parts(hi, lo, 0.0f);
    const vf normal = vf_at_least(e.k, vf_set1(-100.0f)), lifted = vf_mul(factor, power_of_two(normal));
    return (scaled_t){vf_fma(e.p, lifted, lifted), vf_sub(e.k, normal)};
}

INLINE scaled_t exp_of(vf hi, vf lo)
{
    return exp_times(vf_set1(1.0f), hi, lo);
}

/* e^x - 1 for x <= 0, within 3 u: 2^k p + (2^k - 1), where the second term is exact (k >= -24) or its rounding invisible. The result is -1 from
 * x = -17.4 on, so that x may stop at -30. */
INLINE vf exp_minus_one(vf x)
{
    const exp_parts_t e = exp_parts(vf_at_least(x, vf_set1(-30.0f)), vf_set1(0.0f), 0.0f);
    return vf_fma(e.power, e.p, vf_sub(e.power, vf_set1(1.0f)));
}

/* factor * sigmoid(-(hi + lo)) = factor e / (1 + e), e = e^-(hi + lo), for 0 <= hi < 250, within 4 u. */
INLINE scaled_t logistic_tail(vf hi, vf lo, vf factor)
{
    const scaled_t e = exp_of(vf_neg(hi), vf_neg(lo)), product = exp_times(factor, vf_neg(hi), vf_neg(lo));
    return (scaled_t){vf_div(product.v, vf_add(vf_set1(1.0f), e.v)), e.rest};
}

/* log(1 + e) for e <= 1: 2 atanh(s) = 2s (1 + s^2/3 + s^4/5 + ...), s = e / (2 + e) <= 1/3, the series as a polynomial fitted to 2^-33.
 * Within 5 u. */
INLINE scaled_t log_one_plus(scaled_t e)
{
    static const float c[] = {0x1.555558p-2f, 0x1.9996d8p-3f, 0x1.25050ep-3f, 0x1.b72c12p-4f, 0x1.f08914p-4f};
    const vf s = vf_div(e.v, vf_add(vf_set1(2.0f), e.v)), square = vf_mul(s, s), twice = vf_add(s, s);
    return (scaled_t){vf_fma(twice, vf_mul(square, polynomial(square, c, 5)), twice), e.rest};
}

/* factor * Phi(-(a + a_lo)), 0 <= a <= 15, |factor| <= 15, given -(a + a_lo)^2/2 as hi + lo: factor e^(hi + lo) g, where g(a) = e^(a^2/2) Phi(-a)
 * falls from 1/2 to 1/38. Within 6 u. Everything is multiplied by 2^64, in which nothing is denormal, until the end.
 *
 * With r = 1 / (a + 4), g = r Q(r - r0): Q of degree 9, fitted to 2^-26.6, and r0 such that the subtraction is exact. What r has been rounded by
 * would be amplified, so it is measured: r is exactly 1 / (a - d + 4) for the small d below, and as g' = a g - 1/sqrt(2 pi),
 * g(a) = g(a - d) (1 + a d) - d / sqrt(2 pi). a_lo joins d, and 1 + a d the 1 + p of the exponential, where its rounding is small. */
INLINE vf normal_tail(vf a, vf a_lo, vf hi, vf lo, vf factor)
{
    static const float q[] = {0x1.645496p-1f, 0x1.10eb30p+2f, 0x1.54ac4ap+4f,  0x1.4c4694p+6f,  0x1.ca8f2ap+7f,
                              0x1.327014p+8f, -0x1.30e4a4p+9f, -0x1.b3b1cep+11f, 0x1.9cb5fcp+9f, 0x1.194bacp+14f};
    const exp_parts_t e = exp_parts(hi, lo, 64.0f);
    const vf lifted = vf_mul(factor, e.power);
    const vf one = vf_set1(1.0f), four = vf_set1(4.0f);
    const vf sum = vf_add(a, four), r = vf_div(one, sum);
    const vf rounded_off = vf_add(vf_sub(a, vf_sub(sum, four)), a_lo);
    const vf d = vf_fnma(vf_fnma(r, sum, one), sum, rounded_off);
    const vf p = vf_fma(vf_mul(a, d), vf_add(e.p, one), e.p);
    const vf g = vf_fms(r, polynomial(vf_sub(r, vf_set1(0x1.caaa44p-4f)), q, 10), vf_mul(d, vf_set1(0x1.988454p-2f)));
    return vf_mul(vf_mul(vf_fma(p, lifted, lifted), g), vf_set1(0x1p-64f));
}

#endif
