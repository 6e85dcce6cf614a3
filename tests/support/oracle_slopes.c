/* SPDX-License-Identifier: MIT
 *
 * The derivatives of the oracle's activations: each the formula's, by hand. The clips of relu6 and gelu_10 have derivative 0 beyond.
 */
#include <math.h>

#include "ffn/ffn.h"
#include "support/oracle_backward.h"
#include "support/test.h"

static double sigmoid(double z)
{
    return z >= 0 ? 1 / (1 + exp(-z)) : exp(z) / (1 + exp(z));
}

static double density(double v)
{
    return exp(-v * v / 2) * 0.39894228040143267794;
}

static double gelu(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440) + x * density(x);
}

static double swish(double beta, double x)
{
    const double s = sigmoid(beta * x), fall = s * sigmoid(-beta * x);
    return s + (fall == 0 ? 0 : beta * x * fall);
}

static double gelu_tanh(double x)
{
    const double c = 2 * 0.79788456080286535588, s = sigmoid(c * (x + 0.044715 * x * x * x)), fall = s * sigmoid(-c * (x + 0.044715 * x * x * x));
    return s + (fall == 0 ? 0 : x * c * (1 + 3 * 0.044715 * x * x) * fall);
}

static double mish(double x)
{
    if (x > 300) return 1;
    const double t = tanh(log1p(exp(x)));
    return t + x * sigmoid(x) * (1 - t * t);
}

static double xielu(const oracle_activation_t *a, double x)
{
    const double beta = a->beta != 0 ? (double)a->beta : 0.5, eps = a->alpha != 0 ? (double)a->alpha : (double)-1e-6f;
    if (x > 0) return 2 * log1p(exp((double)a->alpha_p)) * x + beta;
    return (beta + log1p(exp((double)a->alpha_n))) * ((x > eps ? 0 : exp(x)) - 1) + beta;
}

double oracle_slope(const oracle_activation_t *a, double x)
{
    const double alpha = (double)a->alpha;
    switch (a->id) {
    case FFN_ACTIVATION_IDENTITY: return 1;
    case FFN_ACTIVATION_RELU: return x > 0;
    case FFN_ACTIVATION_LEAKY_RELU: return x > 0 ? 1 : alpha != 0 ? alpha : (double)0.01f;
    case FFN_ACTIVATION_RELU6: return x > 0 && x <= 6;
    case FFN_ACTIVATION_RELU2: return x > 0 ? 2 * x : 0;
    case FFN_ACTIVATION_GELU: return gelu(x);
    case FFN_ACTIVATION_GELU_TANH: return gelu_tanh(x);
    case FFN_ACTIVATION_QUICK_GELU: return swish(1.702, x);
    case FFN_ACTIVATION_GELU_10: return x > 10 ? 0 : gelu(x);
    case FFN_ACTIVATION_SILU: return swish(1, x);
    case FFN_ACTIVATION_SWISH: return swish(a->beta != 0 ? (double)a->beta : 1, x);
    case FFN_ACTIVATION_SIGMOID: return sigmoid(x) * sigmoid(-x);
    case FFN_ACTIVATION_TANH: return 1 - tanh(x) * tanh(x);
    case FFN_ACTIVATION_MISH: return mish(x);
    case FFN_ACTIVATION_ELU: return x > 0 ? 1 : (alpha != 0 ? alpha : 1) * exp(x);
    case FFN_ACTIVATION_HARDSWISH: return x < -3 ? 0 : x > 3 ? 1 : x / 3 + 0.5;
    case FFN_ACTIVATION_SOFTPLUS: return sigmoid(x);
    case FFN_ACTIVATION_LAPLACE: return density((x - 0.707107) / 0.282095) / 0.282095;
    case FFN_ACTIVATION_XIELU: return xielu(a, x);
    }
    fail_msg("the oracle has no activation %u", a->id);
    return NAN;
}
