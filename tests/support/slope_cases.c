/* SPDX-License-Identifier: MIT */
#include "support/slope_cases.h"

#include <math.h>

#include "ffn/ffn.h"

static double logistic(double z)
{
    return z < 0 ? exp(z) / (1.0 + exp(z)) : 1.0 / (1.0 + exp(-z));
}

static double normal_probability(double v)
{
    return 0.5 * erfc(-v / sqrt(2.0));
}

static double normal_density(double v)
{
    return exp(-0.5 * v * v) / sqrt(2.0 * acos(-1.0));
}

static exact_t plain(double value)
{
    return (exact_t){value, value};
}

static exact_t sum_of(double first, double second)
{
    return (exact_t){first + second, fmax(fabs(first + second), fmax(fabs(first), fabs(second)))};
}

/* x g(z): g + x z' g', g the logistic function; products of 0 and something huge are 0. */
static exact_t gated_by_logistic(double x, double z, double z_slope)
{
    const double density = logistic(z) * logistic(-z);
    return sum_of(logistic(z), density == 0 ? 0 : x * z_slope * density);
}

static exact_t gelu_tanh(double x)
{
    const double factor = 2.0 * sqrt(2.0 / acos(-1.0)), c = 0.044715;
    return gated_by_logistic(x, factor * (x + c * x * x * x), factor * (1.0 + 3.0 * c * x * x));
}

static exact_t mish(double x)
{
    const double t = tanh(log1p(exp(x))), sech = 1.0 / cosh(x > 700 ? 700 : log1p(exp(x)));
    return sum_of(t, x * logistic(x) * sech * sech);
}

static exact_t xielu(const activation_t *a, double x)
{
    const double p = a->xielu_p, n = a->xielu_n, beta = a->beta;
    if (x > 0) return sum_of(2.0 * p * x, beta);
    return sum_of(x > (double)a->alpha ? -n : n * expm1(x), beta);
}

static exact_t unclipped(const activation_t *a, double x)
{
    const double v = (x - 0.707107) / 0.282095;
    switch (a->kind) {
    case ACTIVATION_IDENTITY: return plain(1);
    case ACTIVATION_RELU: return plain(x > 0);
    case ACTIVATION_LEAKY_RELU: return plain(x > 0 ? 1 : (double)a->alpha);
    case ACTIVATION_RELU2: return plain(x > 0 ? 2 * x : 0);
    case ACTIVATION_GELU: return sum_of(normal_probability(x), x * normal_density(x));
    case ACTIVATION_GELU_TANH: return gelu_tanh(x);
    case ACTIVATION_SWISH: return gated_by_logistic(x, (double)a->beta * x, (double)a->beta);
    case ACTIVATION_SIGMOID: return plain(logistic(x) * logistic(-x));
    case ACTIVATION_TANH: return plain(4 * logistic(2 * x) * logistic(-2 * x));
    case ACTIVATION_MISH: return mish(x);
    case ACTIVATION_ELU: return plain(x > 0 ? 1 : (double)a->alpha * exp(x));
    case ACTIVATION_HARDSWISH: return x < -3 ? plain(0) : x > 3 ? plain(1) : sum_of(x / 3, 0.5);
    case ACTIVATION_SOFTPLUS: return plain(logistic(x));
    case ACTIVATION_LAPLACE: return plain(normal_density(v) / 0.282095);
    case ACTIVATION_XIELU: return xielu(a, x);
    case ACTIVATION_KINDS: break;
    }
    return plain(NAN);
}

exact_t slope_exact(const kernel_case_t *is, double x)
{
    const activation_t *a = &is->activation;
    return is->exact(a, x).value > (double)a->clip_max ? plain(0) : unclipped(a, x);
}

double slope_limit(const kernel_case_t *is, int positive)
{
    const activation_t *a = &is->activation;
    if (positive && isfinite(a->clip_max)) return 0;
    switch (a->kind) {
    case ACTIVATION_SWISH: return (a->beta > 0) == positive;
    case ACTIVATION_SIGMOID:
    case ACTIVATION_TANH:
    case ACTIVATION_LAPLACE: return 0;
    case ACTIVATION_LEAKY_RELU: return positive ? 1 : (double)a->alpha;
    case ACTIVATION_IDENTITY: return 1;
    case ACTIVATION_RELU2: return positive ? INFINITY : 0;
    case ACTIVATION_XIELU: return positive ? (a->xielu_p > 0 ? INFINITY : (double)a->beta) : (double)a->beta - (double)a->xielu_n;
    default: return positive;
    }
}

/* What the vector levels promise, by kind. */
static const double vector_bounds[ACTIVATION_KINDS] = {
    [ACTIVATION_IDENTITY] = 0, [ACTIVATION_RELU] = 0, [ACTIVATION_LEAKY_RELU] = 0, [ACTIVATION_RELU2] = 0, [ACTIVATION_GELU] = 4.5,
    [ACTIVATION_GELU_TANH] = 4.5, [ACTIVATION_SWISH] = 4, [ACTIVATION_SIGMOID] = 4, [ACTIVATION_TANH] = 4, [ACTIVATION_MISH] = 6.5,
    [ACTIVATION_ELU] = 2, [ACTIVATION_HARDSWISH] = 1, [ACTIVATION_SOFTPLUS] = 2.5, [ACTIVATION_LAPLACE] = 2, [ACTIVATION_XIELU] = 1.5,
};

double slope_bound(const kernel_case_t *is, const kernel_table_t *table)
{
    return table->isa == FFN_ISA_SCALAR ? 0.501 : vector_bounds[is->activation.kind];
}
