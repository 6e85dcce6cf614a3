/* SPDX-License-Identifier: MIT
 *
 * The passes over n elements that apply an activation, dense and gated, and their instances for every activation. The last, partial vector goes
 * through the same arithmetic as the others, by masked loads and stores: an element's bits do not depend on where it stands.
 */
#ifndef FFNI_ACTIVATION_PASSES_TEMPLATE_H
#define FFNI_ACTIVATION_PASSES_TEMPLATE_H

typedef vf vector_activation(vf x, const activation_t *a);

/* As load_count, of an operand that may be absent. -0 is what changes no sum, not even that of -0 and itself. */
INLINE vf load_bias(const float *p, int64_t i, int64_t count)
{
    return p ? load_count(p, i, count) : vf_set1(-0.0f);
}

INLINE vf dense_vector(vector_activation *act, const activation_t *a, int64_t i, int64_t count, const float *up, const float *up_bias)
{
    const vf x = vf_add(load_count(up, i, count), load_bias(up_bias, i, count));
    return vf_at_most(act(x, a), vf_set1(a->clip_max));
}

INLINE void activate(vector_activation *act, const activation_t *activation, int64_t n, float *out, const float *up, const float *up_bias)
{
    const activation_t a = *activation; /* a copy: `out` cannot alias it, so its fields are read once */
    int64_t i = 0;
    for (; n - i >= VF_LANES; i += VF_LANES) vf_store(out + i, dense_vector(act, &a, i, VF_LANES, up, up_bias));
    if (i < n) vf_store_first(out + i, dense_vector(act, &a, i, n - i, up, up_bias), n - i);
}

/* The product's two factors. */
INLINE vf gate_vector(vector_activation *act, const activation_t *a, int64_t i, int64_t count, const float *gate, const float *gate_bias)
{
    const vf g = vf_add(load_count(gate, i, count), load_bias(gate_bias, i, count));
    return vf_at_most(act(vf_at_most(g, vf_set1(a->gate_max)), a), vf_set1(a->clip_max));
}

INLINE vf up_vector(const activation_t *a, int64_t i, int64_t count, const float *up, const float *up_bias)
{
    const vf limit = vf_set1(a->up_limit), u = vf_add(load_count(up, i, count), load_bias(up_bias, i, count));
    return vf_add(clamp(u, vf_neg(limit), limit), vf_set1(a->up_offset));
}

INLINE vf gated_vector(vector_activation *act, const activation_t *a, int64_t i, int64_t count, const float *gate, const float *gate_bias,
                       const float *up, const float *up_bias)
{
    const vf activated = gate_vector(act, a, i, count, gate, gate_bias);
    return vf_mul(activated, up_vector(a, i, count, up, up_bias));
}

INLINE void activate_gated(vector_activation *act, const activation_t *activation, int64_t n, float *out, const float *gate,
                           const float *gate_bias, const float *up, const float *up_bias)
{
    const activation_t a = *activation;
    int64_t i = 0;
    for (; n - i >= VF_LANES; i += VF_LANES) vf_store(out + i, gated_vector(act, &a, i, VF_LANES, gate, gate_bias, up, up_bias));
    if (i < n) vf_store_first(out + i, gated_vector(act, &a, i, n - i, gate, gate_bias, up, up_bias), n - i);
}

/* The instances. */

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

#endif
