/* SPDX-License-Identifier: MIT
 *
 * The functions that the scalar level's activations are made of, in float64, each within 1e-11 of the exact value: a result rounded to float32
 * from here is wrong by at most 0.501 ulp. Written by hand, apart from the vector templates, and without libm: a call per element would cost
 * more than the rest, and its bits change from one C library to the next. No branches on signs, which cost more than the rest where they are random.
 */
#ifndef FFNI_SCALAR_MATH_H
#define FFNI_SCALAR_MATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* c[0] + c[1] x + ... + c[n-1] x^(n-1), n >= 4, as four Horner schemes in x^4: what a loop over elements waits for is the latency of the longest
 * chain, which this cuts to a third. */
static inline double polynomial(double x, const double *c, int n)
{
    const double square = x * x, fourth = square * square;
    double sum[4] = {c[n - 4], c[n - 3], c[n - 2], c[n - 1]};
    int i = n - 5;
    for (; i >= 3; i -= 4)
        for (int j = 0; j < 4; j++) sum[j] = sum[j] * fourth + c[i - 3 + j];
    double result = (sum[0] + sum[1] * x) + (sum[2] + sum[3] * x) * square;
    for (; i >= 0; i--) result = result * x + c[i];
    return result;
}

/* e^z - 1 = scale * (1 + p) - 1: scale is 2^k, k = round(z / ln 2), and p = e^r - 1 for the rest r = z - k ln 2. */
typedef struct exp_split {
    double scale, p;
} exp_split_t;

/* For -708 <= z <= 0. k comes out of the low bits of a number so large (1.5 * 2^52) that its unit is 1; LN2_HI * k is exact.
 * e^r - 1 = r + r^2 (1/2 + r/6 + ...), a minimax polynomial of relative error 5e-12 on |r| <= 0.35. */
static inline exp_split_t split_exp(double z)
{
    static const double q[] = {0x1.0000000017264p-1, 0x1.555555736372bp-3, 0x1.555554f34bc13p-5, 0x1.1110b1f9575a2p-7,
                               0x1.6c1766d41f005p-10, 0x1.a16faca6d5332p-13, 0x1.a003ec17849afp-16};
    const double shift = 0x1.8p52, shifted = z * 0x1.71547652b82fep+0 + shift, k = shifted - shift;
    const double r = (z - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    exp_split_t e = {0, r + r * r * polynomial(r, q, 7)};
    memcpy(&e.scale, &bits, sizeof bits);
    return e;
}

/* e^z, -708 <= z <= 0. */
static inline double exp_of(double z)
{
    const exp_split_t e = split_exp(z);
    return e.scale + e.scale * e.p;
}

/* e^z - 1, -708 <= z <= 0, with the relative error of p where the result is small. */
static inline double exp_minus_one(double z)
{
    const exp_split_t e = split_exp(z);
    return (e.scale - 1.0) + e.scale * e.p;
}

/* log(1 + e) for 0 <= e <= 1: 2 atanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...), s = e / (2 + e) <= 1/3. Minimax, 3e-12. */
static inline double log_one_plus(double e)
{
    static const double c[] = {0x1.0000000002c38p+1, 0x1.5555552f992f7p-1, 0x1.9999c3913eda1p-2, 0x1.24899133d445bp-2,
                               0x1.c8d309d43f6c7p-3, 0x1.5e8bd8d171911p-3, 0x1.c013429486c86p-3};
    const double s = e / (2.0 + e), v = s * s;
    return s * polynomial(v, c, 7);
}

/* Phi(-v), the normal distribution's tail, for 0 <= v <= 15: e^(-v^2/2) r Q(r - 1/8) with r = 1 / (v + 4). Minimax, 7e-12. */
static inline double normal_tail(double v)
{
    static const double q[] = {0x1.82b4bb8c9f24bp-1, 0x1.373e3a894edfdp+2, 0x1.8c6dbf1ebd1dep+4, 0x1.7dff2bea5ec69p+6,
                               0x1.eec4d92227ac3p+7, 0x1.ee27752fa1746p+7, -0x1.c81fd8201f2c0p+9, -0x1.ab7df0c640221p+11,
                               0x1.1a64fb389f21bp+11, 0x1.e2dabd450ec9bp+14, -0x1.4e9d592a47c35p+12, -0x1.0c14af441117ap+18,
                               0x1.b41b24251bce5p+17, 0x1.c29a8a02b9e8cp+19};
    const double r = 1.0 / (v + 4.0);
    return exp_of(-0.5 * v * v) * (r * polynomial(r - 0.125, q, 14));
}

/* x held to one side of a limit; NaN stays NaN. */
static inline double at_most(double x, double limit)
{
    return x > limit ? limit : x;
}

static inline double at_least(double x, double limit)
{
    return x < limit ? limit : x;
}

/* max(x, 0), without the branch on the sign that compilers make of a comparison and CPUs cannot predict. NaN stays NaN. */
static inline double positive_part(double x)
{
    const double finite_below = at_least(x, -FLT_MAX);
    return 0.5 * (finite_below + fabs(finite_below));
}

/* 1 / (1 + e^z) for z >= 0; from 700 on, 1e-304, which is 0 to any float. */
static inline double logistic_tail(double z)
{
    const double e = exp_of(-at_most(z, 700.0));
    return e / (1.0 + e);
}

#endif
