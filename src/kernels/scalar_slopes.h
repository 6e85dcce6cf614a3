/* SPDX-License-Identifier: MIT
 *
 * The scalar level's derivatives of the activations: one plain function each, in float64, beside those of scalar_activations.h. Arguments stop where
 * the derivative has long been constant or 0 as a float.
 */
#ifndef FFNI_SCALAR_SLOPES_H
#define FFNI_SCALAR_SLOPES_H

#include "kernels/scalar_activations.h"

/* 1 */
INLINE double identity_slope(double x, const activation_t *a)
{
    (void)x, (void)a;
    return 1.0;
}

/* x > 0 */
INLINE double relu_slope(double x, const activation_t *a)
{
    (void)a;
    return x > 0 ? 1.0 : 0.0;
}

/* x > 0 ? 1 : alpha */
INLINE double leaky_relu_slope(double x, const activation_t *a)
{
    return x > 0 ? 1.0 : (double)a->alpha;
}

/* 2 max(x, 0) */
INLINE double relu2_slope(double x, const activation_t *a)
{
    (void)a;
    return 2.0 * positive_part(x);
}

/* Phi(x) + x phi(x) */
INLINE double gelu_slope(double x, const activation_t *a)
{
    (void)a;
    const double size = at_most(fabs(x), 15.0), tail = normal_tail(size), density = size * exp_of(-0.5 * size * size) * 0x1.9884533d43651p-2;
    return x < 0 ? tail - density : 1.0 - tail + density;
}

/* s(z) + w s(z) s(-z) for |z| = size, where w, of z's sign, is x z'(x): what x s(z(x)) has for a derivative */
INLINE double logistic_slope(int negative, double size, double w)
{
    const double t = logistic_tail(size), product = w * t * (1.0 - t);
    return negative ? t - product : 1.0 - t + product;
}

/* z = x (c0 + c1 x^2), w = x (c0 + 3 c1 x^2) */
INLINE double gelu_tanh_slope(double x, const activation_t *a)
{
    (void)a;
    const double size = at_most(fabs(x), 15.0), c0 = 0x1.9884533d43651p+0, cubic = 0x1.2444f2a4d8b4bp-4 * size * size;
    return logistic_slope(x < 0, size * (c0 + cubic), size * (c0 + 3.0 * cubic));
}

/* z = w = beta x */
INLINE double swish_slope(double x, const activation_t *a)
{
    const double z = (double)a->beta * x, size = at_most(fabs(z), 700.0);
    return logistic_slope(z < 0, size, size);
}

/* s(x) s(-x) */
INLINE double sigmoid_slope(double x, const activation_t *a)
{
    (void)a;
    const double t = logistic_tail(fabs(x));
    return t * (1.0 - t);
}

/* 1 - tanh(x)^2 = 4 s(2x) s(-2x) */
INLINE double tanh_slope(double x, const activation_t *a)
{
    return 4.0 * sigmoid_slope(2.0 * x, a);
}

/* T + x T', T = tanh(log(1 + e^x)) = (e^2 + 2e) / (e^2 + 2e + 2), T' = 4 e (1 + e) / (e^2 + 2e + 2)^2, e = e^x; for x >= 0 divided through by e^2
 * and e^4 */
INLINE double mish_slope(double x, const activation_t *a)
{
    (void)a;
    const double near = at_most(at_least(x, -700.0), 700.0), f = exp_of(-fabs(near));
    const double above = x < 0 ? f * (f + 2.0) : 1.0 + 2.0 * f, below = above + (x < 0 ? 2.0 : 2.0 * f * f);
    return above / below + near * 4.0 * f * (x < 0 ? 1.0 + f : f * (1.0 + f)) / (below * below);
}

/* x > 0 ? 1 : alpha e^x */
INLINE double elu_slope(double x, const activation_t *a)
{
    return x > 0 ? 1.0 : (double)a->alpha * exp_of(at_most(at_least(x, -700.0), 0.0));
}

/* x < -3 ? 0 : x > 3 ? 1 : x/3 + 1/2 */
INLINE double hardswish_slope(double x, const activation_t *a)
{
    (void)a;
    return x < -3.0 ? 0.0 : x > 3.0 ? 1.0 : x / 3.0 + 0.5;
}

/* s(x) */
INLINE double softplus_slope(double x, const activation_t *a)
{
    return sigmoid(x, a);
}

/* phi(v) / sigma, v = (x - mu) / sigma */
INLINE double laplace_slope(double x, const activation_t *a)
{
    (void)a;
    const double v = at_most(fabs(x - 0.707107), 15.0 * 0.282095) / 0.282095;
    return exp_of(-0.5 * v * v) * (0x1.9884533d43651p-2 / 0.282095);
}

/* x > 0 ? 2 p x + beta : n ((x <= alpha ? e^x : 0) - 1) + beta */
INLINE double xielu_slope(double x, const activation_t *a)
{
    const double p = a->xielu_p, n = a->xielu_n, beta = a->beta;
    if (x > 0) return p == 0 ? beta : 2.0 * p * x + beta;
    return (x > (double)a->alpha ? -n : n * exp_minus_one(at_most(at_least(x, -100.0), 0.0))) + beta;
}

#endif
