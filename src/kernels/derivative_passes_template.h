/* SPDX-License-Identifier: MIT
 *
 * The backward passes over n elements, dense and gated: an activation's value and its derivative in one go, which share most of their parts.
 */
#ifndef FFNI_DERIVATIVE_PASSES_TEMPLATE_H
#define FFNI_DERIVATIVE_PASSES_TEMPLATE_H

typedef vf vector_function(vf x, const activation_t *a);

/* As load_count, of an operand that may be absent. -0 is what changes no sum. */
INLINE vf load_optional(const float *p, int64_t i, int64_t count)
{
    return p ? load_count(p, i, count) : vf_set1(-0.0f);
}

/* y where x is a number, else x. */
INLINE vf unless_nan(vf x, vf y)
{
    return vf_select(vf_equal(x, x), y, x);
}

typedef struct dense {
    float *out, *d_up;
    const float *d_out, *up, *up_bias;
} dense_t;

INLINE void dense_vector(vector_function *act, vector_function *slope, const activation_t *a, int64_t i, int64_t count, const dense_t *rows)
{
    const vf x = vf_add(load_count(rows->up, i, count), load_optional(rows->up_bias, i, count)), d = load_count(rows->d_out, i, count);
    const vf clip = vf_set1(a->clip_max), value = act(x, a);
    const vf s = vf_select(vf_less(clip, value), vf_set1(0.0f), slope(x, a));
    store_count(rows->out, i, count, vf_at_most(value, clip));
    store_count(rows->d_up, i, count, vf_mul(d, unless_nan(x, s)));
}

INLINE void dense_pass(vector_function *act, vector_function *slope, const activation_t *activation, int64_t n, const dense_t *rows)
{
    const activation_t a = *activation; /* a copy: no store can change it */
    int64_t i = 0;
    for (; n - i >= VF_LANES; i += VF_LANES) dense_vector(act, slope, &a, i, VF_LANES, rows);
    if (i < n) dense_vector(act, slope, &a, i, n - i, rows);
}

typedef struct gated {
    float *out, *d_gate, *d_up;
    const float *d_out, *gate, *gate_bias, *up, *up_bias;
} gated_t;

INLINE void gated_vector(vector_function *act, vector_function *slope, const activation_t *a, int64_t i, int64_t count, const gated_t *rows)
{
    const vf zero = vf_set1(0.0f), gate_max = vf_set1(a->gate_max), clip = vf_set1(a->clip_max), limit = vf_set1(a->up_limit);
    const vf d = load_count(rows->d_out, i, count);
    const vf x = vf_add(load_count(rows->gate, i, count), load_optional(rows->gate_bias, i, count)), g = vf_at_most(x, gate_max);
    const vf v = vf_add(load_count(rows->up, i, count), load_optional(rows->up_bias, i, count));
    const vf u = vf_add(clamp(v, vf_neg(limit), limit), vf_set1(a->up_offset));
    const vf value = act(g, a), activated = vf_at_most(value, clip);
    const vf s = vf_select(vf_less(gate_max, x), zero, vf_select(vf_less(clip, value), zero, unless_nan(x, slope(g, a))));
    store_count(rows->out, i, count, vf_mul(activated, u));
    store_count(rows->d_gate, i, count, vf_mul(vf_mul(d, s), u));
    store_count(rows->d_up, i, count, vf_select(vf_less(limit, vf_abs(v)), zero, vf_mul(d, activated)));
}

INLINE void gated_pass(vector_function *act, vector_function *slope, const activation_t *activation, int64_t n, const gated_t *rows)
{
    const activation_t a = *activation;
    int64_t i = 0;
    for (; n - i >= VF_LANES; i += VF_LANES) gated_vector(act, slope, &a, i, VF_LANES, rows);
    if (i < n) gated_vector(act, slope, &a, i, n - i, rows);
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

/* ------------------------------------------------------ xielu's two scalars */

INLINE vd add_halves(vd sum, vf v)
{
    return vd_add(sum, vd_add(vd_low(v), vd_high(v)));
}

static void learn_xielu(const activation_t *a, int64_t n, double sums[2], const float *d_out, const float *gate, const float *gate_bias,
                        const float *up, const float *up_bias)
{
    const vf zero = vf_set1(0.0f), limit = vf_set1(a->up_limit);
    vd rising = vd_set1(0.0), falling = vd_set1(0.0);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t count = lanes_left(n - i);
        const vf x = vf_at_most(vf_add(load_count(gate, i, count), load_optional(gate_bias, i, count)), vf_set1(a->gate_max));
        vf d = load_count(d_out, i, count);
        if (up) {
            const vf v = vf_add(load_count(up, i, count), load_optional(up_bias, i, count));
            d = vf_mul(d, vf_add(clamp(v, vf_neg(limit), limit), vf_set1(a->up_offset)));
        }
        const vf curve = vf_sub(exp_minus_one(vf_at_most(vf_at_most(x, vf_set1(a->alpha)), zero)), x);
        const vm positive = vf_less(zero, x);
        rising = add_halves(rising, vf_select(positive, vf_mul(d, vf_mul(x, x)), zero));
        falling = add_halves(falling, vf_select(positive, zero, vf_mul(d, curve)));
    }
    sums[0] += vd_sum(rising);
    sums[1] += vd_sum(falling);
}

#endif
