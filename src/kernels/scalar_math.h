/* SPDX-License-Identifier: MIT
 *
 * The functions that the scalar level's activations are made of, in float64, each within 1e-11 of the exact value: a result rounded to float32
 * from here is wrong by at most 0.501 ulp. Written by hand, apart from the vector templates, and without libm: a call per element would cost
 * more than the rest, and its bits change from one C library to the next. No branches, so that a compiler may vectorise the loops.
 */
#ifndef FFNI_SCALAR_MATH_H
#define FFNI_SCALAR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^z - 1 = scale * (1 + p) - 1: scale is 2^k, k = round(z / ln 2), and p = e^r - 1 for the rest r = z - k ln 2. */
typedef struct exp_split {
    double scale, p;
} exp_split_t;

/* For -708 <= z <= 0. k comes out of the low bits of a number so large (1.5 * 2^52) that its unit is 1; LN2_HI * k is exact.
 * e^r - 1 = r + r^2 (1/2 + r/6 + ...), a minimax polynomial of relative error 5e-12 on |r| <= 0.35. */
static inline exp_split_t split_exp(double z)
{
    const double shift = 0x1.8p52, shifted = z * 0x1.71547652b82fep+0 + shift, k = shifted - shift;
    const double r = (z - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    double q = 0x1.a003ec17849afp-16;
    q = q * r + 0x1.a16faca6d5332p-13;
    q = q * r + 0x1.6c1766d41f005p-10;
    q = q * r + 0x1.1110b1f9575a2p-7;
    q = q * r + 0x1.555554f34bc13p-5;
    q = q * r + 0x1.555555736372bp-3;
    q = q * r + 0x1.0000000017264p-1;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    exp_split_t e = {0, r + r * r * q};
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
    const double s = e / (2.0 + e), v = s * s;
    double c = 0x1.c013429486c86p-3;
    c = c * v + 0x1.5e8bd8d171911p-3;
    c = c * v + 0x1.c8d309d43f6c7p-3;
    c = c * v + 0x1.24899133d445bp-2;
    c = c * v + 0x1.9999c3913eda1p-2;
    c = c * v + 0x1.5555552f992f7p-1;
    c = c * v + 0x1.0000000002c38p+1;
    return s * c;
}

/* Phi(-v), the normal distribution's tail, for 0 <= v <= 15: e^(-v^2/2) r Q(r - 1/8) with r = 1 / (v + 4). Minimax, 7e-12. */
static inline double normal_tail(double v)
{
    const double r = 1.0 / (v + 4.0), t = r - 0.125;
    double q = 0x1.c29a8a02b9e8cp+19;
    q = q * t + 0x1.b41b24251bce5p+17;
    q = q * t - 0x1.0c14af441117ap+18;
    q = q * t - 0x1.4e9d592a47c35p+12;
    q = q * t + 0x1.e2dabd450ec9bp+14;
    q = q * t + 0x1.1a64fb389f21bp+11;
    q = q * t - 0x1.ab7df0c640221p+11;
    q = q * t - 0x1.c81fd8201f2c0p+9;
    q = q * t + 0x1.ee27752fa1746p+7;
    q = q * t + 0x1.eec4d92227ac3p+7;
    q = q * t + 0x1.7dff2bea5ec69p+6;
    q = q * t + 0x1.8c6dbf1ebd1dep+4;
    q = q * t + 0x1.373e3a894edfdp+2;
    q = q * t + 0x1.82b4bb8c9f24bp-1;
    return exp_of(-0.5 * v * v) * (r * q);
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

/* 1 / (1 + e^-z). For z < 0 in the form e^z / (1 + e^z): both hold for any size of z. */
static inline double sigmoid_of(double z)
{
    const double e = exp_of(-at_most(fabs(z), 700.0));
    return (z < 0 ? e : 1.0) / (1.0 + e);
}

#endif
