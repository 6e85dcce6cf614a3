/* SPDX-License-Identifier: MIT
 *
 * The oracle's activations: each the formula of ffn/ffn.h, in a form that float64 does not cancel in. min and max are written as comparisons,
 * since those of the C library drop a NaN.
 */
#include <math.h>

#include "ffn/ffn.h"
#include "support/oracle.h"
#include "support/test.h"

static const double SQRT_HALF = 0.70710678118654752440;
static const double SQRT_TWO_OVER_PI = 0.79788456080286535588;

static double sigmoid(double z)
{
    return z >= 0 ? 1 / (1 + exp(-z)) : exp(z) / (1 + exp(z));
}

static double softplus(double z)
{
    return z > 0 ? z + log1p(exp(-z)) : log1p(exp(z));
}

static double gelu(double x)
{
    return 0.5 * x * erfc(-x * SQRT_HALF);
}

/* x/2 (1 + tanh u) = x sigmoid(2u), which does not cancel. */
static double gelu_tanh(double x)
{
    return x * sigmoid(2 * SQRT_TWO_OVER_PI * (x + 0.044715 * x * x * x));
}

static double positive_part(double x)
{
    return x < 0 ? 0 : x;
}

static double at_most(double x, double limit)
{
    return x > limit ? limit : x;
}

typedef struct xielu_factors {
    double p, n, beta, eps;
} xielu_factors_t;

static xielu_factors_t xielu_factors(const oracle_activation_t *a)
{
    xielu_factors_t f = {.beta = a->beta != 0 ? (double)a->beta : 0.5, .eps = a->alpha != 0 ? (double)a->alpha : (double)-1e-6f};
    f.p = softplus(a->alpha_p);
    f.n = f.beta + softplus(a->alpha_n);
    return f;
}

/* The terms in x are joined, so that -inf gives the limit. */
static double xielu(const oracle_activation_t *a, double x)
{
    xielu_factors_t f = xielu_factors(a);
    return x > 0 ? f.p * x * x + f.beta * x : f.n * expm1(at_most(x, f.eps)) + (f.beta - f.n) * x;
}

static double hard_sigmoid_times_six(double x)
{
    return at_most(positive_part(x + 3), 6);
}

/* The activations x * g(x) whose g falls to 0: their limit at -inf is -0, where the formula says -inf * 0. */
static int falls_to_zero(uint32_t id)
{
    switch (id) {
    case FFN_ACTIVATION_GELU:
    case FFN_ACTIVATION_GELU_TANH:
    case FFN_ACTIVATION_QUICK_GELU:
    case FFN_ACTIVATION_GELU_10:
    case FFN_ACTIVATION_SILU:
    case FFN_ACTIVATION_MISH:
    case FFN_ACTIVATION_HARDSWISH: return 1;
    default: return 0;
    }
}

/* x sigmoid(beta x), and its limits: at the infinity where the sigmoid falls to 0, the product does too. */
static double swish(double beta, double x)
{
    if (isinf(x) && beta * x < 0) return x > 0 ? 0.0 : -0.0;
    return x * sigmoid(beta * x);
}

double oracle_activate(const oracle_activation_t *a, double x)
{
    if (x == -INFINITY && falls_to_zero(a->id)) return -0.0;
    switch (a->id) {
    case FFN_ACTIVATION_IDENTITY: return x;
    case FFN_ACTIVATION_RELU: return positive_part(x);
    case FFN_ACTIVATION_LEAKY_RELU: return x > 0 ? x : (a->alpha != 0 ? (double)a->alpha : (double)0.01f) * x;
    case FFN_ACTIVATION_RELU6: return at_most(positive_part(x), 6);
    case FFN_ACTIVATION_RELU2: return positive_part(x) * positive_part(x);
    case FFN_ACTIVATION_GELU: return gelu(x);
    case FFN_ACTIVATION_GELU_TANH: return gelu_tanh(x);
    case FFN_ACTIVATION_QUICK_GELU: return swish(1.702, x);
    case FFN_ACTIVATION_GELU_10: return at_most(gelu(x), 10);
    case FFN_ACTIVATION_SILU: return swish(1, x);
    case FFN_ACTIVATION_SWISH: return swish(a->beta != 0 ? (double)a->beta : 1, x);
    case FFN_ACTIVATION_SIGMOID: return sigmoid(x);
    case FFN_ACTIVATION_TANH: return tanh(x);
    case FFN_ACTIVATION_MISH: return x * tanh(softplus(x));
    case FFN_ACTIVATION_ELU: return x > 0 ? x : (a->alpha != 0 ? (double)a->alpha : 1) * expm1(x);
    case FFN_ACTIVATION_HARDSWISH: return x * hard_sigmoid_times_six(x) / 6;
    case FFN_ACTIVATION_SOFTPLUS: return softplus(x);
    case FFN_ACTIVATION_LAPLACE: return 0.5 * erfc(-(x - 0.707107) / (0.282095 * sqrt(2)));
    case FFN_ACTIVATION_XIELU: return xielu(a, x);
    }
    fail_msg("the oracle has no activation %u", a->id);
    return NAN;
}

double oracle_activation_terms(const oracle_activation_t *a, double x)
{
    if (a->id != FFN_ACTIVATION_XIELU) return fabs(oracle_activate(a, x));
    xielu_factors_t f = xielu_factors(a);
    return x > 0 ? fabs(f.p * x * x) + fabs(f.beta * x)
                 : fabs(f.n) * (fabs(expm1(at_most(x, f.eps))) + fabs(x)) + fabs(f.beta * x);
}
