/* SPDX-License-Identifier: MIT
 *
 * The scalar level's activations: one plain function each, in float64. The formulas are those of the public header. Arguments stop where the result
 * has long been constant or 0 as a float, so that an infinity meets nothing that makes a NaN of it; NaN passes every comparison here unchanged.
 */
#ifndef FFNI_SCALAR_ACTIVATIONS_H
#define FFNI_SCALAR_ACTIVATIONS_H

#include <float.h>
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/scalar_math.h"

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

typedef double scalar_activation(double x, const activation_t *a);

/* x */
INLINE double identity(double x, const activation_t *a)
{
    (void)a;
    return x;
}

/* max(x, 0) */
INLINE double relu(double x, const activation_t *a)
{
    (void)a;
    return positive_part(x);
}

/* x > 0 ? x : alpha x */
INLINE double leaky_relu(double x, const activation_t *a)
{
    return x > 0 ? x : (double)a->alpha * x;
}

/* max(x, 0)^2 */
INLINE double relu2(double x, const activation_t *a)
{
    (void)a;
    return positive_part(x) * positive_part(x);
}

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|) */
INLINE double gelu(double x, const activation_t *a)
{
    (void)a;
    const double size = at_most(fabs(x), 15.0);
    return positive_part(x) - size * normal_tail(size);
}

/* x/2 (1 + tanh(u)) = x sigmoid(2u) = max(x, 0) - |x| sigmoid(-|2u|), 2u = 2 sqrt(2/pi) x (1 + 0.044715 x^2) */
INLINE double gelu_tanh(double x, const activation_t *a)
{
    (void)a;
    const double size = at_most(fabs(x), 15.0);
    return positive_part(x) - size * logistic_tail(size * (0x1.9884533d43651p+0 + 0x1.2444f2a4d8b4bp-4 * size * size));
}

/* x sigmoid(beta x) = max(x, 0) - |x| sigmoid(-beta |x|) for beta >= 0; a negative beta turns the signs of x and of the result */
INLINE double swish(double x, const activation_t *a)
{
    const double turn = a->beta < 0 ? -1.0 : 1.0, size = at_most(fabs(x), FLT_MAX);
    return turn * (positive_part(turn * x) - size * logistic_tail(fabs((double)a->beta) * size));
}

/* 1 / (1 + e^-x) */
INLINE double sigmoid(double x, const activation_t *a)
{
    (void)a;
    const double tail = logistic_tail(fabs(x));
    return x < 0 ? tail : 1.0 - tail;
}

/* tanh(x) = (1 - e^-2x) / (1 + e^-2x), for x < 0 by symmetry */
INLINE double hyperbolic_tangent(double x, const activation_t *a)
{
    (void)a;
    const double e = exp_minus_one(-2.0 * at_most(fabs(x), 15.0));
    return copysign(e / (2.0 + e), x);
}

/* x tanh(log(1 + e^x)) = x (e^2 + 2e) / (e^2 + 2e + 2), e = e^x; for x >= 0 divided through by e^2 */
INLINE double mish(double x, const activation_t *a)
{
    (void)a;
    const double falling = at_least(x, -700.0), f = exp_of(-at_most(fabs(x), 700.0));
    const double above = x < 0 ? f * (f + 2.0) : 1.0 + 2.0 * f;
    return falling * (above / (above + (x < 0 ? 2.0 : 2.0 * f * f)));
}

/* x > 0 ? x : alpha (e^x - 1) */
INLINE double elu(double x, const activation_t *a)
{
    return x > 0 ? x : (double)a->alpha * exp_minus_one(at_most(at_least(x, -100.0), 0.0));
}

/* x min(max(x + 3, 0), 6) / 6 */
INLINE double hardswish(double x, const activation_t *a)
{
    (void)a;
    return at_least(x, -3.0) * at_most(at_least(x + 3.0, 0.0), 6.0) / 6.0;
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
INLINE double softplus(double x, const activation_t *a)
{
    (void)a;
    return positive_part(x) + log_one_plus(exp_of(-at_most(fabs(x), 700.0)));
}

/* (1 + erf(v / sqrt 2)) / 2 = Phi(v) = 1 - Phi(-v), v = (x - mu) / sigma */
INLINE double laplace(double x, const activation_t *a)
{
    (void)a;
    const double v = (x - 0.707107) / 0.282095, tail = normal_tail(at_most(fabs(v), 15.0));
    return v < 0 ? tail : 1.0 - tail;
}

/* x > 0 ? p x^2 + beta x : n (e^min(x, alpha) - 1 - x) + beta x, the second with the terms in x together: the limit at -inf is no inf - inf.
 * A factor of 0 stays 0 beside an infinite x. */
INLINE double xielu(double x, const activation_t *a)
{
    const double beta = a->beta, p = a->xielu_p, n = a->xielu_n, slope = beta - n;
    const double curve = n * exp_minus_one(at_most(at_least(at_most(x, a->alpha), -100.0), 0.0));
    if (x > 0) return x * (p == 0 ? beta : p * x + beta);
    return slope == 0 ? curve : curve + slope * x;
}

#endif
