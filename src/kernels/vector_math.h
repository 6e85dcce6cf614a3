/* SPDX-License-Identifier: MIT
 *
 * The functions that the activations are made of, over the vector vocabulary (vec_*.h, included before). Written once for all vector levels;
 * since every word of the vocabulary rounds as IEEE 754 has it, all levels give the same bits.
 *
 * Two habits keep the tails right to the last denormal:
 *   - A small number is carried as (p, k), standing for p * 2^k with p near 1. Everything is multiplied into p, where nothing can underflow, and
 *     2^k comes last: a denormal result is rounded once (at most once and a half, where two roundings meet).
 *   - An argument that e^x would amplify is carried as hi + lo: e^(hi + lo) with |lo| below an ulp of hi.
 *
 * u is the unit roundoff 2^-24: half an ulp of a number just above a power of two, a quarter of an ulp just below the next.
 * Coefficients are minimax fits for the relative error, with the low ones rounded to float first and the others fitted again around them.
 */
#ifndef FFNI_VECTOR_MATH_H
#define FFNI_VECTOR_MATH_H

/* How many of the n - i elements that are left the next vector holds. */
INLINE int64_t lanes_left(int64_t left)
{
    return left < VF_LANES ? left : VF_LANES;
}

/* `count` elements (1 to VF_LANES) from p[i] on; lanes past them are 0. */
INLINE vf load_count(const float *p, int64_t i, int64_t count)
{
    return count < VF_LANES ? vf_load_first(p + i, count) : vf_load(p + i);
}

INLINE void store_count(float *p, int64_t i, int64_t count, vf a)
{
    if (count < VF_LANES) vf_store_first(p + i, a, count);
    else vf_store(p + i, a);
}

typedef struct parts {
    vf p, k; /* p * 2^k; k is a whole number */
} parts_t;

/* 1.5 * 2^23: a float of this size has no fraction bits, so adding it rounds to a whole number, which then stands in the low bits. */
#define ROUNDING_SHIFT 12582912.0f

/* x between two limits; NaN stays NaN. */
INLINE vf clamp(vf x, vf low, vf high)
{
    return vf_at_least(vf_at_most(x, high), low);
}

/* c[0] + c[1] x + ... + c[n-1] x^(n-1) by Horner's rule. n is a constant wherever it is called. */
INLINE vf polynomial(vf x, const float *c, int n)
{
    vf sum = vf_set1(c[n - 1]);
    for (int i = n - 2; i >= 0; i--) sum = vf_fma(sum, x, vf_set1(c[i]));
    return sum;
}

/* 2^k, k a whole number from -126 to 127: the exponent's bits, put in place. */
INLINE vf power_of_two(vf k)
{
    return vf_shift_left_23(vf_add(k, vf_set1(ROUNDING_SHIFT + 127.0f)));
}

/* v * 2^k, k from -252 to 127. Both factors are powers of two, so only a denormal result is rounded. */
INLINE vf scale(vf v, vf k)
{
    const vf first = vf_at_least(k, vf_set1(-126.0f));
    return vf_mul(vf_mul(v, power_of_two(first)), power_of_two(vf_sub(k, first)));
}

/* e^(hi + lo) - 1 = 2^k (1 + p) - 1, for |hi| < 250: k = round(hi / ln 2), p = e^r - 1 for the rest r, |r| <= 0.35. ln 2 is split so that
 * k * LN2_HI is exact (15 + 9 bits). p = r + r^2 Q(r), Q of degree 5, fitted to 2^-31 relative to p; |p| is off by 1.5 u |r| at most. */
INLINE parts_t exp_minus_one_parts(vf hi, vf lo)
{
    static const float q[] = {0.5f, 0x1.555554p-3f, 0x1.5554f8p-5f, 0x1.1112d6p-7f, 0x1.6d3a5ep-10f, 0x1.9e77eep-13f};
    const vf shift = vf_set1(ROUNDING_SHIFT);
    const vf k = vf_sub(vf_fma(hi, vf_set1(0x1.715476p+0f), shift), shift);
    const vf tail = vf_fnma(k, vf_set1(0x1.7f7d1cp-20f), lo);
    const vf r = vf_add(vf_fnma(k, vf_set1(0x1.62e4p-1f), hi), tail);
    const vf p = vf_fma(vf_mul(r, r), polynomial(r, q, 6), r);
    return (parts_t){p, k};
}

/* e^(hi + lo), p from 0.70 to 1.42, within 1.7 u. */
INLINE parts_t exp_parts(vf hi, vf lo)
{
    const parts_t e = exp_minus_one_parts(hi, lo);
    return (parts_t){vf_add(e.p, vf_set1(1.0f)), e.k};
}

/* p * 2^k where it is added to something of size 1: anything below 2^-126 may as well be 2^-126. */
INLINE vf value_beside_one(parts_t e)
{
    return vf_mul(e.p, power_of_two(vf_at_least(e.k, vf_set1(-126.0f))));
}

/* e^x - 1 for x <= 0, within 3 u: 2^k p + (2^k - 1), where the second term is exact (k >= -24) or its rounding invisible. The result is -1 from
 * x = -17.4 on, so that x may stop at -30. */
INLINE vf exp_minus_one(vf x)
{
    const parts_t e = exp_minus_one_parts(vf_at_least(x, vf_set1(-30.0f)), vf_set1(0.0f));
    const vf two_to_k = power_of_two(e.k);
    return vf_fma(two_to_k, e.p, vf_sub(two_to_k, vf_set1(1.0f)));
}

/* sigmoid(hi + lo) = 1 / (1 + e) or e / (1 + e), whichever sign hi has, with e = e^-|hi + lo| <= 1; lo has the sign that it has beside hi.
 * |hi| < 250. p from 0.35 to 1.42, within 4 u; k is 0 for hi >= 0. */
INLINE parts_t sigmoid_parts(vf hi, vf lo)
{
    const vm negative = vf_less(hi, vf_set1(0.0f));
    const vf minus_lo = vf_select(negative, lo, vf_neg(lo));
    const parts_t e = exp_parts(vf_neg(vf_abs(hi)), minus_lo);
    const vf p = vf_div(vf_select(negative, e.p, vf_set1(1.0f)), vf_add(vf_set1(1.0f), value_beside_one(e)));
    return (parts_t){p, vf_select(negative, e.k, vf_set1(0.0f))};
}

/* log(1 + e) for e = p * 2^k <= 1, as parts: 2 atanh(s), s = e / (2 + e) <= 1/3, is s times a polynomial of degree 5 in s^2, fitted to
 * 2^-33. Within 5 u. */
INLINE parts_t log_one_plus(parts_t e)
{
    static const float c[] = {2.0f, 0x1.555558p-1f, 0x1.9996d8p-2f, 0x1.25050ep-2f, 0x1.b72c12p-3f, 0x1.f08914p-3f};
    const vf p = vf_div(e.p, vf_add(vf_set1(2.0f), value_beside_one(e)));
    const vf s = value_beside_one((parts_t){p, e.k});
    return (parts_t){vf_mul(p, polynomial(vf_mul(s, s), c, 6)), e.k};
}

/* g(a) = e^(a^2/2) Phi(-a), 0 <= a <= 15, within 3.5 u: from 1/2 down to 1/38.
 *
 * With r = 1 / (a + 4), g = r Q(r - r0): Q of degree 10, fitted to 2^-29, and the subtraction is exact for most r. What r has been rounded by
 * would be amplified, so it is measured: r is exactly 1 / (a - d + 4) for the small d below, and g' = a g - 1/sqrt(2 pi) takes G = g(a - d)
 * to g(a). */
INLINE vf normal_tail_factor(vf a)
{
    static const float q[] = {0x1.7cb164p-1f, 0x1.2f98e8p+2f, 0x1.815c9cp+4f,  0x1.7460d6p+6f, 0x1.e893f8p+7f,  0x1.041fbcp+8f,
                              -0x1.ac0d0ap+9f, -0x1.b27b0cp+11f, 0x1.12294cp+11f, 0x1.dc1db2p+14f, -0x1.716eep+15f};
    const vf one = vf_set1(1.0f), four = vf_set1(4.0f);
    const vf sum = vf_add(a, four);
    const vf r = vf_div(one, sum);
    const vf g = vf_mul(r, polynomial(vf_sub(r, vf_set1(0x1.f5fc1ep-4f)), q, 11));
    const vf rounded_off = vf_sub(a, vf_sub(sum, four));
    const vf d = vf_fnma(vf_fnma(r, sum, one), sum, rounded_off);
    return vf_fma(d, vf_fms(a, g, vf_set1(0x1.988454p-2f)), g);
}

/* Phi(-(a + a_lo)) for 0 <= a <= 15, given square_lo = (a + a_lo)^2 - a * a (a * a as rounded): e^(-a^2/2) g(a), where the square is carried as
 * hi + lo. p within 7 u. */
INLINE parts_t normal_tail(vf a, vf square_lo)
{
    const vf minus_half = vf_set1(-0.5f);
    const parts_t e = exp_parts(vf_mul(vf_mul(a, a), minus_half), vf_mul(square_lo, minus_half));
    return (parts_t){vf_mul(e.p, normal_tail_factor(a)), e.k};
}

#endif
