/* SPDX-License-Identifier: MIT */
#include "support/kernel_cases.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ffn/ffn.h"

static exact_t plain(double value)
{
    return (exact_t){value, value};
}

static double logistic(double z)
{
    return z < 0 ? exp(z) / (1.0 + exp(z)) : 1.0 / (1.0 + exp(-z));
}

static double normal_probability(double v)
{
    return 0.5 * erfc(-v / sqrt(2.0));
}

/* x * factor, where a factor of 0 also wins over an infinite x: the limit. */
static double fading(double x, double factor)
{
    return factor == 0.0 ? copysign(0.0, x) : x * factor;
}

static exact_t exact_identity(const activation_t *a, double x)
{
    (void)a;
    return plain(x);
}

static exact_t exact_relu(const activation_t *a, double x)
{
    (void)a;
    return plain(x < 0 ? 0.0 : x);
}

static exact_t exact_leaky_relu(const activation_t *a, double x)
{
    return plain(x > 0 ? x : (double)a->alpha * x);
}

static exact_t exact_relu2(const activation_t *a, double x)
{
    (void)a;
    return plain(x < 0 ? 0.0 : x * x);
}

static exact_t exact_gelu(const activation_t *a, double x)
{
    (void)a;
    return plain(fading(x, normal_probability(x)));
}

static exact_t exact_gelu_tanh(const activation_t *a, double x)
{
    (void)a;
    const double u = sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return plain(fading(x, logistic(2.0 * u)));
}

static exact_t exact_swish(const activation_t *a, double x)
{
    return plain(fading(x, logistic((double)a->beta * x)));
}

static exact_t exact_sigmoid(const activation_t *a, double x)
{
    (void)a;
    return plain(logistic(x));
}

static exact_t exact_tanh(const activation_t *a, double x)
{
    (void)a;
    return plain(tanh(x));
}

static exact_t exact_mish(const activation_t *a, double x)
{
    (void)a;
    return plain(fading(x, tanh(log1p(exp(x)))));
}

static exact_t exact_elu(const activation_t *a, double x)
{
    return plain(x > 0 ? x : (double)a->alpha * expm1(x));
}

static exact_t exact_hardswish(const activation_t *a, double x)
{
    (void)a;
    const double ramp = x + 3.0;
    return plain(fading(x, (ramp < 0 ? 0.0 : ramp > 6.0 ? 6.0 : ramp) / 6.0));
}

static exact_t exact_softplus(const activation_t *a, double x)
{
    (void)a;
    return plain(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
}

static exact_t exact_laplace(const activation_t *a, double x)
{
    (void)a;
    return plain(normal_probability((x - 0.707107) / 0.282095));
}

static double largest(double a, double b)
{
    return a > b ? a : b;
}

/* The terms in x of the second branch together: the limit at -inf is then no inf - inf. */
static exact_t exact_xielu(const activation_t *a, double x)
{
    const double p = a->xielu_p, n = a->xielu_n, beta = a->beta, alpha = a->alpha;
    const bool rising = x > 0;
    const double first = rising ? p * x * x : n * expm1(x > alpha ? alpha : x), second = rising ? beta * x : (beta - n) * x;
    return (exact_t){first + second, largest(fabs(first + second), largest(fabs(first), fabs(second)))};
}

#define UNLIMITED .clip_max = INFINITY, .gate_max = INFINITY, .up_limit = INFINITY

const kernel_case_t kernel_cases[] = {
    {"identity", "x", {ACTIVATION_IDENTITY, UNLIMITED}, exact_identity, {-INFINITY, INFINITY}, 0, 0, true},
    {"relu", "max(x, 0)", {ACTIVATION_RELU, UNLIMITED}, exact_relu, {0, INFINITY}, 0, 0, true},
    {"leaky_relu", "x > 0 ? x : 0.01 x", {ACTIVATION_LEAKY_RELU, .alpha = 0.01f, UNLIMITED}, exact_leaky_relu, {-INFINITY, INFINITY},
     0.501, 0.5, true},
    {"relu2", "max(x, 0)^2", {ACTIVATION_RELU2, UNLIMITED}, exact_relu2, {0, INFINITY}, 0.501, 0.5, true},
    {"gelu", "x Phi(x)", {ACTIVATION_GELU, UNLIMITED}, exact_gelu, {0, INFINITY}, 0.501, 3.5, true},
    {"gelu_tanh", "x (1 + tanh(u)) / 2", {ACTIVATION_GELU_TANH, UNLIMITED}, exact_gelu_tanh, {0, INFINITY}, 0.501, 3, true},
    {"silu", "x sigmoid(x)", {ACTIVATION_SWISH, .beta = 1, UNLIMITED}, exact_swish, {0, INFINITY}, 0.501, 3, true},
    {"quick_gelu", "x sigmoid(1.702 x)", {ACTIVATION_SWISH, .beta = 1.702f, UNLIMITED}, exact_swish, {0, INFINITY}, 0.501, 3, true},
    {"sigmoid", "1 / (1 + e^-x)", {ACTIVATION_SIGMOID, UNLIMITED}, exact_sigmoid, {0, 1}, 0.501, 2.5, true},
    {"tanh", "tanh(x)", {ACTIVATION_TANH, UNLIMITED}, exact_tanh, {-1, 1}, 0.501, 2.5, true},
    {"mish", "x tanh(log(1 + e^x))", {ACTIVATION_MISH, UNLIMITED}, exact_mish, {0, INFINITY}, 0.501, 4, true},
    {"elu", "x > 0 ? x : e^x - 1", {ACTIVATION_ELU, .alpha = 1, UNLIMITED}, exact_elu, {-1, INFINITY}, 0.501, 2, true},
    {"hardswish", "x min(max(x + 3, 0), 6) / 6", {ACTIVATION_HARDSWISH, UNLIMITED}, exact_hardswish, {0, INFINITY}, 0.501, 2, true},
    {"softplus", "log(1 + e^x)", {ACTIVATION_SOFTPLUS, UNLIMITED}, exact_softplus, {0, INFINITY}, 0.501, 3, true},
    {"laplace", "Phi((x - 0.707107) / 0.282095)", {ACTIVATION_LAPLACE, UNLIMITED}, exact_laplace, {0, 1}, 0.501, 3.5, true},
    {"xielu", "p = n = 0.8, beta = 0.5", {ACTIVATION_XIELU, .alpha = -1e-6f, .beta = 0.5f, .xielu_p = 0.8f, .xielu_n = 0.8f, UNLIMITED},
     exact_xielu, {INFINITY, INFINITY}, 0.501, 3, true},

    {"relu6", "min(max(x, 0), 6)", {ACTIVATION_RELU, .clip_max = 6, .gate_max = INFINITY, .up_limit = INFINITY}, exact_relu, {0, 6},
     0, 0, false},
    {"gelu_10", "clip(gelu(x), -10, 10)", {ACTIVATION_GELU, .clip_max = 10, .gate_max = INFINITY, .up_limit = INFINITY}, exact_gelu, {0, 10},
     0.501, 3.5, false},
    {"leaky_relu, alpha < 0", "", {ACTIVATION_LEAKY_RELU, .alpha = -0.3f, UNLIMITED}, exact_leaky_relu, {INFINITY, INFINITY},
     0.501, 0.5, false},
    {"leaky_relu, alpha denormal", "", {ACTIVATION_LEAKY_RELU, .alpha = 3e-42f, UNLIMITED}, exact_leaky_relu,
     {-INFINITY, INFINITY}, 0.501, 0.5, false},
    {"swish, beta < 0", "", {ACTIVATION_SWISH, .beta = -0.7f, UNLIMITED}, exact_swish, {-INFINITY, 0}, 0.501, 3, false},
    {"swish, beta large", "", {ACTIVATION_SWISH, .beta = 3e30f, UNLIMITED}, exact_swish, {0, INFINITY}, 0.501, 3, false},
    {"swish, beta small", "", {ACTIVATION_SWISH, .beta = 1e-36f, UNLIMITED}, exact_swish, {0, INFINITY}, 0.501, 3, false},
    {"elu, alpha < 0", "", {ACTIVATION_ELU, .alpha = -2.5f, UNLIMITED}, exact_elu, {2.5, INFINITY}, 0.501, 2, false},
    {"elu, alpha small", "", {ACTIVATION_ELU, .alpha = 1e-38f, UNLIMITED}, exact_elu, {-1e-38f, INFINITY}, 0.501, 2, false},
    {"xielu, n = beta, p = 0", "", {ACTIVATION_XIELU, .alpha = -1e-6f, .beta = 0.5f, .xielu_p = 0, .xielu_n = 0.5f, UNLIMITED}, exact_xielu,
     {-0.5, INFINITY}, 0.501, 3, false},
    {"xielu, alpha = -1", "", {ACTIVATION_XIELU, .alpha = -1, .beta = -0.2f, .xielu_p = 2, .xielu_n = 1.5f, UNLIMITED}, exact_xielu,
     {INFINITY, INFINITY}, 0.501, 3, false},
};

const int kernel_case_count = sizeof kernel_cases / sizeof kernel_cases[0];

exact_t kernel_exact(const kernel_case_t *is, float x)
{
    if (isinf(x)) return plain(is->limit[x > 0]);
    const exact_t exact = is->exact(&is->activation, (double)x);
    return exact.value > (double)is->activation.clip_max ? plain((double)is->activation.clip_max) : exact;
}

double kernel_case_bound(const kernel_case_t *is, const kernel_table_t *table)
{
    return table->isa == FFN_ISA_SCALAR ? is->scalar_bound : is->vector_bound;
}

double kernel_ulp(exact_t exact)
{
    uint64_t bits;
    memcpy(&bits, &exact.unit, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52 & 0x7ff) - 1023; /* of the float64's leading bit; denormal ones stand below every float */
    if (exponent < -126) exponent = -126;
    if (exponent > 127) exponent = 127;
    bits = (uint64_t)(exponent - 23 + 1023) << 52;
    double ulp;
    memcpy(&ulp, &bits, sizeof ulp);
    return ulp;
}

double kernel_error_ulps(exact_t exact, float got)
{
    if (isnan(exact.value) || isnan(got)) return isnan(exact.value) && isnan(got) ? 0.0 : INFINITY;
    if (isinf(exact.value)) return (double)got == exact.value ? 0.0 : INFINITY;
    if (isinf(got) && fabs(exact.value) > 0x1p128) return (got > 0) == (exact.value > 0) ? 0.0 : INFINITY;
    const double value = isinf(got) ? copysign(0x1p128, (double)got) : (double)got;
    return fabs(value - exact.value) / kernel_ulp(exact);
}
