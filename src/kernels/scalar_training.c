/* SPDX-License-Identifier: MIT
 *
 * The scalar level of the training table, by hand: one formula per comment.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") /* as in scalar.c */
#endif

#include "kernels/training.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "kernels/drop.h"
#include "kernels/scalar_slopes.h"

/* -------------------------------------------------------------- Activations */

typedef struct dense {
    float *out, *d_up;
    const float *d_out, *up, *up_bias;
} dense_t;

/* act'(x), 0 where the clip above holds the value, and NaN for NaN. */
INLINE float clipped_slope(scalar_activation *slope, const activation_t *a, float x, double value)
{
    if (x != x) return x;
    return value > (double)a->clip_max ? 0.0f : (float)slope((double)x, a);
}

INLINE void dense_pass(scalar_activation *act, scalar_activation *slope, const activation_t *activation, int64_t n, const dense_t *rows)
{
    const activation_t a = *activation; /* a copy: no store can change it */
    for (int64_t i = 0; i < n; i++) {
        const float x = rows->up_bias ? rows->up[i] + rows->up_bias[i] : rows->up[i], d = rows->d_out[i];
        const double value = act((double)x, &a);
        rows->out[i] = (float)at_most(value, (double)a.clip_max);
        rows->d_up[i] = d * clipped_slope(slope, &a, x, value);
    }
}

typedef struct gated {
    float *out, *d_gate, *d_up;
    const float *d_out, *gate, *gate_bias, *up, *up_bias;
} gated_t;

/* v held within +-limit; NaN stays NaN. */
INLINE float clip_both(float v, float limit)
{
    const float below = v > limit ? limit : v;
    return below < -limit ? -limit : below;
}

INLINE void gated_pass(scalar_activation *act, scalar_activation *slope, const activation_t *activation, int64_t n, const gated_t *rows)
{
    const activation_t a = *activation;
    for (int64_t i = 0; i < n; i++) {
        const float x = rows->gate_bias ? rows->gate[i] + rows->gate_bias[i] : rows->gate[i], g = x > a.gate_max ? a.gate_max : x;
        const float v = rows->up_bias ? rows->up[i] + rows->up_bias[i] : rows->up[i], u = clip_both(v, a.up_limit) + a.up_offset;
        const double value = act((double)g, &a);
        const float activated = (float)at_most(value, (double)a.clip_max), d = rows->d_out[i];
        rows->out[i] = activated * u;
        rows->d_gate[i] = d * (x > a.gate_max ? 0.0f : clipped_slope(slope, &a, g, value)) * u;
        rows->d_up[i] = fabsf(v) > a.up_limit ? 0.0f : d * activated;
    }
}

static void differentiate(const activation_t *a, int64_t n, float *out, float *d_up, const float *d_out, const float *up, const float *up_bias)
{
    const dense_t rows = {out, d_up, d_out, up, up_bias};
    switch (a->kind) {
    case ACTIVATION_IDENTITY: dense_pass(identity, identity_slope, a, n, &rows); break;
    case ACTIVATION_RELU: dense_pass(relu, relu_slope, a, n, &rows); break;
    case ACTIVATION_LEAKY_RELU: dense_pass(leaky_relu, leaky_relu_slope, a, n, &rows); break;
    case ACTIVATION_RELU2: dense_pass(relu2, relu2_slope, a, n, &rows); break;
    case ACTIVATION_GELU: dense_pass(gelu, gelu_slope, a, n, &rows); break;
    case ACTIVATION_GELU_TANH: dense_pass(gelu_tanh, gelu_tanh_slope, a, n, &rows); break;
    case ACTIVATION_SWISH: dense_pass(swish, swish_slope, a, n, &rows); break;
    case ACTIVATION_SIGMOID: dense_pass(sigmoid, sigmoid_slope, a, n, &rows); break;
    case ACTIVATION_TANH: dense_pass(hyperbolic_tangent, tanh_slope, a, n, &rows); break;
    case ACTIVATION_MISH: dense_pass(mish, mish_slope, a, n, &rows); break;
    case ACTIVATION_ELU: dense_pass(elu, elu_slope, a, n, &rows); break;
    case ACTIVATION_HARDSWISH: dense_pass(hardswish, hardswish_slope, a, n, &rows); break;
    case ACTIVATION_SOFTPLUS: dense_pass(softplus, softplus_slope, a, n, &rows); break;
    case ACTIVATION_LAPLACE: dense_pass(laplace, laplace_slope, a, n, &rows); break;
    case ACTIVATION_XIELU: dense_pass(xielu, xielu_slope, a, n, &rows); break;
    case ACTIVATION_KINDS: break;
    }
}

static void differentiate_gated(const activation_t *a, int64_t n, float *out, float *d_gate, float *d_up, const float *d_out, const float *gate,
                                const float *gate_bias, const float *up, const float *up_bias)
{
    const gated_t rows = {out, d_gate, d_up, d_out, gate, gate_bias, up, up_bias};
    switch (a->kind) {
    case ACTIVATION_IDENTITY: gated_pass(identity, identity_slope, a, n, &rows); break;
    case ACTIVATION_RELU: gated_pass(relu, relu_slope, a, n, &rows); break;
    case ACTIVATION_LEAKY_RELU: gated_pass(leaky_relu, leaky_relu_slope, a, n, &rows); break;
    case ACTIVATION_RELU2: gated_pass(relu2, relu2_slope, a, n, &rows); break;
    case ACTIVATION_GELU: gated_pass(gelu, gelu_slope, a, n, &rows); break;
    case ACTIVATION_GELU_TANH: gated_pass(gelu_tanh, gelu_tanh_slope, a, n, &rows); break;
    case ACTIVATION_SWISH: gated_pass(swish, swish_slope, a, n, &rows); break;
    case ACTIVATION_SIGMOID: gated_pass(sigmoid, sigmoid_slope, a, n, &rows); break;
    case ACTIVATION_TANH: gated_pass(hyperbolic_tangent, tanh_slope, a, n, &rows); break;
    case ACTIVATION_MISH: gated_pass(mish, mish_slope, a, n, &rows); break;
    case ACTIVATION_ELU: gated_pass(elu, elu_slope, a, n, &rows); break;
    case ACTIVATION_HARDSWISH: gated_pass(hardswish, hardswish_slope, a, n, &rows); break;
    case ACTIVATION_SOFTPLUS: gated_pass(softplus, softplus_slope, a, n, &rows); break;
    case ACTIVATION_LAPLACE: gated_pass(laplace, laplace_slope, a, n, &rows); break;
    case ACTIVATION_XIELU: gated_pass(xielu, xielu_slope, a, n, &rows); break;
    case ACTIVATION_KINDS: break;
    }
}

static void learn_xielu(const activation_t *a, int64_t n, double sums[2], const float *d_out, const float *gate, const float *gate_bias,
                        const float *up, const float *up_bias)
{
    double rising = 0, falling = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = at_most((double)(gate_bias ? gate[i] + gate_bias[i] : gate[i]), (double)a->gate_max);
        const double u = up ? (double)(clip_both(up_bias ? up[i] + up_bias[i] : up[i], a->up_limit) + a->up_offset) : 1.0;
        const double curve = exp_minus_one(at_most(at_least(at_most(x, (double)a->alpha), -100.0), 0.0)) - x;
        rising += x > 0 ? (double)d_out[i] * u * x * x : 0.0;
        falling += x > 0 ? 0.0 : (double)d_out[i] * u * curve;
    }
    sums[0] += rising;
    sums[1] += falling;
}

/* -------------------------------------------------------------------- Norms */

/* d_y * (offset + weight) */
INLINE double weighted(const norm_t *norm, int64_t i, const float *d_y)
{
    return norm->weight ? (double)d_y[i] * (double)(norm->offset + norm->weight[i]) : (double)d_y[i];
}

INLINE void add_parameter_gradients(int64_t i, float d_y, float q, float *d_weight, float *d_bias)
{
    if (d_weight) d_weight[i] += d_y * q;
    if (d_bias) d_bias[i] += d_y;
}

/* e - mean_e - q mean(e q), divided by s: q = (x - center) / s, 1 / s = factor. */
static void differentiate_standardised(const norm_t *norm, double center, int subtracts_mean, int64_t n, float *d_x, const float *d_y, const float *x,
                                       float *d_weight, float *d_bias)
{
    double square = 0, sum = 0, product = 0;
    for (int64_t i = 0; i < n; i++) square += ((double)x[i] - center) * ((double)x[i] - center);
    const double factor = 1.0 / sqrt(square / (double)n + (double)norm->eps);
    for (int64_t i = 0; i < n; i++) {
        const double e = weighted(norm, i, d_y);
        sum += e;
        product += e * (((double)x[i] - center) * factor);
    }
    const double mean = subtracts_mean ? sum / (double)n : 0.0, slope = product / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double q = ((double)x[i] - center) * factor, e = weighted(norm, i, d_y);
        const float d = d_y[i];
        d_x[i] = (float)((e - mean - q * slope) * factor);
        add_parameter_gradients(i, d, (float)q, d_weight, d_bias);
    }
}

static void differentiate_layer(const norm_t *norm, int64_t n, float *d_x, const float *d_y, const float *x, float *d_weight, float *d_bias)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    differentiate_standardised(norm, sum / (double)n, 1, n, d_x, d_y, x, d_weight, d_bias);
}

static void differentiate_rms(const norm_t *norm, int64_t n, float *d_x, const float *d_y, const float *x, float *d_weight, float *d_bias)
{
    differentiate_standardised(norm, 0.0, 0, n, d_x, d_y, x, d_weight, d_bias);
}

static void differentiate_affine(const norm_t *norm, int64_t n, float *d_x, const float *d_y, const float *x, float *d_weight, float *d_bias)
{
    for (int64_t i = 0; i < n; i++) {
        const float q = x[i], d = d_y[i];
        d_x[i] = (float)weighted(norm, i, d_y);
        add_parameter_gradients(i, d, q, d_weight, d_bias);
    }
}

/* --------------------------------------------------------------------- Sums */

static void add(int64_t n, float *sum, const float *v)
{
    for (int64_t i = 0; i < n; i++) sum[i] += v[i];
}

static void add_product(int64_t n, float *sum, const float *a, const float *b)
{
    for (int64_t i = 0; i < n; i++) sum[i] += a[i] * b[i];
}

static void multiply(int64_t n, float *out, const float *a, const float *b)
{
    for (int64_t i = 0; i < n; i++) out[i] = a[i] * b[i];
}

/* -------------------------------------------------------------- Optimisers */

/* Rounded to float32 after each operation, as the vector levels do: the same bits. */
static void sgd(const sgd_t *sgd, int64_t n, float *weight, const float *gradient, float *velocity)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = sgd->weight_decay != 0 ? gradient[i] + sgd->weight_decay * weight[i] : gradient[i];
        const float v = velocity ? sgd->momentum * velocity[i] + g : g;
        if (velocity) velocity[i] = v;
        weight[i] -= sgd->rate * (sgd->nesterov ? g + sgd->momentum * v : v);
    }
}

static void adamw(const adamw_t *adamw, int64_t n, float *weight, const float *gradient, float *first, float *second)
{
    const float new_first = 1.0f - adamw->beta1, new_second = 1.0f - adamw->beta2;
    for (int64_t i = 0; i < n; i++) {
        const float g = gradient[i];
        first[i] = adamw->beta1 * first[i] + new_first * g;
        second[i] = adamw->beta2 * second[i] + new_second * g * g;
        const float kept = weight[i] - adamw->decay * weight[i];
        weight[i] = kept - adamw->first_factor * first[i] / (adamw->second_factor * sqrtf(second[i]) + adamw->eps);
    }
}

static double sum_of_squares(int64_t n, const float *v)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    return sum;
}

static void scale(int64_t n, float *v, float factor)
{
    for (int64_t i = 0; i < n; i++) v[i] *= factor;
}

/* sums_j[i] += d[r][i] * in[r + j][i] */
static void depthwise_slopes(const depthwise_slopes_t *slopes)
{
    for (int64_t j = 0; j < slopes->taps; j++)
        for (int64_t r = 0; r < slopes->rows; r++) {
            const float *in = slopes->in[r + j], *d = slopes->d + r * slopes->d_step;
            float *sum = slopes->sums + j * slopes->sums_step;
            for (int64_t i = 0; in && i < slopes->n; i++) sum[i] += d[i] * in[i];
        }
}

/* ------------------------------------------------------------------- Health */

static void survey(int64_t n, const float *v, survey_t *survey)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const float magnitude = fabsf(v[i]);
        const int finite = magnitude <= FLT_MAX;
        squares += (double)v[i] * (double)v[i];
        survey->zeros += v[i] == 0;
        survey->non_finite += !finite;
        if (finite && magnitude > survey->largest) survey->largest = magnitude;
    }
    survey->squares += squares;
}

static double squared_distance(int64_t n, const float *a, const float *b)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sum;
}

const training_table_t ffni_training_scalar = {
    .differentiate = differentiate,
    .differentiate_gated = differentiate_gated,
    .learn_xielu = learn_xielu,
    .differentiate_norm = {
        [NORM_LAYER] = differentiate_layer,
        [NORM_RMS] = differentiate_rms,
        [NORM_AFFINE] = differentiate_affine,
    },
    .add = add,
    .add_product = add_product,
    .multiply = multiply,
    .drop = drop,
    .jitter = jitter,
    .sgd = sgd,
    .adamw = adamw,
    .sum_of_squares = sum_of_squares,
    .scale = scale,
    .depthwise_slopes = depthwise_slopes,
    .survey = survey,
    .squared_distance = squared_distance,
};
