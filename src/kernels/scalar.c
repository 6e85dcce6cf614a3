/* SPDX-License-Identifier: MIT
 *
 * The scalar level, which every CPU has: plain loops over plain functions, float64 inside, rounded to float32 once at the end (0.501 ulp).
 * The formulas are those of the public header. Arguments stop where the result has long been constant or 0 as a float, so that an infinity meets
 * nothing that makes a NaN of it; NaN passes every comparison here unchanged.
 */
#if defined(__GNUC__) && !defined(__clang__)
/* No floating-point exception is unmasked here. GCC assumes that one could be, unless told, and then keeps every comparison of a loop as a
 * branch: GELU takes 13 ns per element so, 5 ns without. Values are the same. */
#pragma GCC optimize("no-trapping-math")
#endif

#include "kernels/kernels.h"
#include "kernels/training.h"

#include <ffn/ffn.h>
#include <float.h>
#include <math.h>
#include <stddef.h>

#include "kernels/activity.h"
#include "kernels/scalar_math.h"
#include "kernels/scalar_activations.h"

/* ----------------------------------------------------------------- Passes */

/* Elements go through in chunks of fixed length, in an array of their own: a loop that compilers can vectorise, once per activation, whatever
 * the operands. What a last chunk lacks is 0. */
enum { CHUNK = 32 };

static int chunk_length(int64_t left)
{
    return left < CHUNK ? (int)left : CHUNK;
}

/* x = a + bias for `count` elements, where bias may be absent; the rest of the chunk is 0. */
static void load_chunk(float *x, int count, const float *a, const float *bias)
{
    for (int j = 0; j < count; j++) x[j] = bias ? a[j] + bias[j] : a[j];
    for (int j = count; j < CHUNK; j++) x[j] = 0.0f;
}

INLINE void activate_chunk(scalar_activation *act, const activation_t *a, float *x)
{
    for (int j = 0; j < CHUNK; j++) x[j] = (float)at_most(act((double)x[j], a), (double)a->clip_max);
}

INLINE void activate(scalar_activation *act, const activation_t *activation, int64_t n, float *out, const float *up, const float *up_bias)
{
    const activation_t a = *activation; /* a copy: no store can change it, so its fields are read once */
    float x[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int count = chunk_length(n - i);
        load_chunk(x, count, up + i, up_bias ? up_bias + i : NULL);
        activate_chunk(act, &a, x);
        memcpy(out + i, x, (size_t)count * sizeof *x);
    }
}

INLINE void activate_gated(scalar_activation *act, const activation_t *activation, int64_t n, float *out, const float *gate,
                           const float *gate_bias, const float *up, const float *up_bias)
{
    const activation_t a = *activation;
    float g[CHUNK], u[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int count = chunk_length(n - i);
        load_chunk(g, count, gate + i, gate_bias ? gate_bias + i : NULL);
        load_chunk(u, count, up + i, up_bias ? up_bias + i : NULL);
        for (int j = 0; j < CHUNK; j++) g[j] = g[j] > a.gate_max ? a.gate_max : g[j];
        activate_chunk(act, &a, g);
        for (int j = 0; j < count; j++) {
            const float below = u[j] > a.up_limit ? a.up_limit : u[j];
            out[i + j] = g[j] * ((below < -a.up_limit ? -a.up_limit : below) + a.up_offset);
        }
    }
}

static void activate_identity(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(identity, a, n, out, up, up_bias);
}

static void activate_relu(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(relu, a, n, out, up, up_bias);
}

static void activate_leaky_relu(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(leaky_relu, a, n, out, up, up_bias);
}

static void activate_relu2(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(relu2, a, n, out, up, up_bias);
}

static void activate_gelu(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(gelu, a, n, out, up, up_bias);
}

static void activate_gelu_tanh(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(gelu_tanh, a, n, out, up, up_bias);
}

static void activate_swish(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(swish, a, n, out, up, up_bias);
}

static void activate_sigmoid(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(sigmoid, a, n, out, up, up_bias);
}

static void activate_tanh(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(hyperbolic_tangent, a, n, out, up, up_bias);
}

static void activate_mish(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(mish, a, n, out, up, up_bias);
}

static void activate_elu(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(elu, a, n, out, up, up_bias);
}

static void activate_hardswish(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(hardswish, a, n, out, up, up_bias);
}

static void activate_softplus(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(softplus, a, n, out, up, up_bias);
}

static void activate_laplace(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(laplace, a, n, out, up, up_bias);
}

static void activate_xielu(const activation_t *a, int64_t n, float *out, const float *up, const float *up_bias)
{
    activate(xielu, a, n, out, up, up_bias);
}

static void activate_gated_identity(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                               const float *up_bias)
{
    activate_gated(identity, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_relu(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                           const float *up_bias)
{
    activate_gated(relu, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_leaky_relu(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                                 const float *up_bias)
{
    activate_gated(leaky_relu, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_relu2(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                            const float *up_bias)
{
    activate_gated(relu2, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_gelu(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                           const float *up_bias)
{
    activate_gated(gelu, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_gelu_tanh(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                                const float *up_bias)
{
    activate_gated(gelu_tanh, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_swish(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                            const float *up_bias)
{
    activate_gated(swish, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_sigmoid(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                              const float *up_bias)
{
    activate_gated(sigmoid, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_tanh(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                           const float *up_bias)
{
    activate_gated(hyperbolic_tangent, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_mish(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                           const float *up_bias)
{
    activate_gated(mish, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_elu(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                          const float *up_bias)
{
    activate_gated(elu, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_hardswish(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                                const float *up_bias)
{
    activate_gated(hardswish, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_softplus(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                               const float *up_bias)
{
    activate_gated(softplus, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_laplace(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                              const float *up_bias)
{
    activate_gated(laplace, a, n, out, gate, gate_bias, up, up_bias);
}

static void activate_gated_xielu(const activation_t *a, int64_t n, float *out, const float *gate, const float *gate_bias, const float *up,
                            const float *up_bias)
{
    activate_gated(xielu, a, n, out, gate, gate_bias, up, up_bias);
}

/* ------------------------------------------------------------------ Norms */

/* v * (offset + weight[i]) + bias[i], what is absent left out. */
INLINE float apply_weight(const norm_t *norm, int64_t i, float v)
{
    if (norm->weight) v *= norm->offset + norm->weight[i];
    return norm->bias ? v + norm->bias[i] : v;
}

/* mean((x - center)^2). In float64 the square of any float is finite and exact. */
static double mean_square_about(double center, int64_t n, const float *x)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - center) * ((double)x[i] - center);
    return sum / (double)n;
}

INLINE void standardise(const norm_t *norm, double center, int64_t n, float *out, const float *x)
{
    const double factor = 1.0 / sqrt(mean_square_about(center, n, x) + (double)norm->eps);
    for (int64_t i = 0; i < n; i++) out[i] = apply_weight(norm, i, (float)(((double)x[i] - center) * factor));
}

static void normalise_layer(const norm_t *norm, int64_t n, float *out, const float *x)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    standardise(norm, sum / (double)n, n, out, x);
}

static void normalise_rms(const norm_t *norm, int64_t n, float *out, const float *x)
{
    standardise(norm, 0.0, n, out, x);
}

static void normalise_affine(const norm_t *norm, int64_t n, float *out, const float *x)
{
    for (int64_t i = 0; i < n; i++) out[i] = apply_weight(norm, i, x[i]);
}

/* ---------------------------------------------------------------- Combine */

static void combine(int64_t n, float *out, const float *branch, const float *bias, const float *branch_scale, const float *residual,
                    const float *residual_scale)
{
    for (int64_t i = 0; i < n; i++) {
        float y = branch[i];
        if (bias) y += bias[i];
        if (branch_scale) y *= branch_scale[i];
        if (residual) y += residual_scale ? residual_scale[i] * residual[i] : residual[i];
        out[i] = y;
    }
}

static void mix(int64_t n, float *out, int64_t count, const float *const *rows, const float *weights)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = count ? weights[0] * rows[0][i] : 0.0f;
        for (int64_t k = 1; k < count; k++) sum += weights[k] * rows[k][i];
        out[i] = sum;
    }
}

/* -------------------------------------------------------------- Depthwise */

/* out[r] = start + w_0 * in[r] + w_1 * in[r + 1] + ... */
static void depthwise(const depthwise_t *d)
{
    for (int64_t r = 0; r < d->rows; r++) {
        float *out = d->out + r * d->out_step;
        for (int64_t i = 0; !d->continued && i < d->n; i++) out[i] = 0;
        for (int64_t j = 0; j < d->taps; j++) {
            const float *in = d->in[r + j], *weight = d->weight + j * d->weight_step;
            for (int64_t i = 0; in && i < d->n; i++) out[i] += weight[i] * in[i];
        }
    }
}

/* --------------------------------------------------------------- Products */

#include "kernels/scalar_products.h"

const kernel_table_t ffni_kernels_scalar = {
    .isa = FFN_ISA_SCALAR,
    .training = &ffni_training_scalar,
    .activate = {
        [ACTIVATION_IDENTITY] = activate_identity,
        [ACTIVATION_RELU] = activate_relu,
        [ACTIVATION_LEAKY_RELU] = activate_leaky_relu,
        [ACTIVATION_RELU2] = activate_relu2,
        [ACTIVATION_GELU] = activate_gelu,
        [ACTIVATION_GELU_TANH] = activate_gelu_tanh,
        [ACTIVATION_SWISH] = activate_swish,
        [ACTIVATION_SIGMOID] = activate_sigmoid,
        [ACTIVATION_TANH] = activate_tanh,
        [ACTIVATION_MISH] = activate_mish,
        [ACTIVATION_ELU] = activate_elu,
        [ACTIVATION_HARDSWISH] = activate_hardswish,
        [ACTIVATION_SOFTPLUS] = activate_softplus,
        [ACTIVATION_LAPLACE] = activate_laplace,
        [ACTIVATION_XIELU] = activate_xielu,
    },
    .activate_gated = {
        [ACTIVATION_IDENTITY] = activate_gated_identity,
        [ACTIVATION_RELU] = activate_gated_relu,
        [ACTIVATION_LEAKY_RELU] = activate_gated_leaky_relu,
        [ACTIVATION_RELU2] = activate_gated_relu2,
        [ACTIVATION_GELU] = activate_gated_gelu,
        [ACTIVATION_GELU_TANH] = activate_gated_gelu_tanh,
        [ACTIVATION_SWISH] = activate_gated_swish,
        [ACTIVATION_SIGMOID] = activate_gated_sigmoid,
        [ACTIVATION_TANH] = activate_gated_tanh,
        [ACTIVATION_MISH] = activate_gated_mish,
        [ACTIVATION_ELU] = activate_gated_elu,
        [ACTIVATION_HARDSWISH] = activate_gated_hardswish,
        [ACTIVATION_SOFTPLUS] = activate_gated_softplus,
        [ACTIVATION_LAPLACE] = activate_gated_laplace,
        [ACTIVATION_XIELU] = activate_gated_xielu,
    },
    .normalise = {
        [NORM_LAYER] = normalise_layer,
        [NORM_RMS] = normalise_rms,
        [NORM_AFFINE] = normalise_affine,
    },
    .combine = combine,
    .mix = mix,
    .depthwise = depthwise,
    .panel_width = PANEL_WIDTH,
    .tile_rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS},
    .product = {PRODUCTS, PRODUCTS, PRODUCTS, PRODUCTS},
    .activate_tile = activate_tile,
    .activate_gated_tile = activate_gated_tile,
    .watch_tile = watch_tile,
    .watch_gated_tile = watch_gated_tile,
};
