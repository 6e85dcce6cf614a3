/* SPDX-License-Identifier: MIT
 *
 * The backward pass of SparseMixer against central differences of its formula, and what is refused.
 */
#include <math.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/random.h"
#include "support/test.h"

enum { E = 7, T = 9, NONE = FFN_MOE_NO_EXPERT };

static ffn_moe_routing_t routing_of(int64_t tokens, int64_t experts, int64_t top_k, int32_t *ids, float *weights)
{
    return (ffn_moe_routing_t){.struct_size = sizeof(ffn_moe_routing_t), .tokens = tokens, .experts = experts, .top_k = top_k, .ids = ids,
                               .weights = weights};
}

/* The largest of z but `without`, and its weight among the experts that were not far from it at the logits `at`. */
static int mix(const double *z, const double *at, double eps, int without, double *weight)
{
    int best = -1;
    double sum = 0;
    for (int e = 0; e < E; e++)
        if (e != without && (best < 0 || at[e] > at[best])) best = e;
    for (int e = 0; e < E; e++)
        if (e != without && (at[best] - at[e]) / fmax(fabs(at[e]), at[best]) <= 2 * eps) sum += exp(z[e] - z[best]);
    *weight = 1 / sum;
    return best;
}

static double mixer_loss(const double *z, const double *at, double eps, const int32_t *ids, const float *d_weights)
{
    double first, second;
    const int id = mix(z, at, eps, -1, &first);
    mix(z, at, eps, id, &second);
    return (ids[0] == NONE ? 0 : (double)d_weights[0] * first) + (ids[1] == NONE ? 0 : (double)d_weights[1] * second);
}

static void sparse_mixer_has_its_derivative(void **state)
{
    (void)state;
    static const float eps[] = {0, 0.01f, 0.1f, 1};
    for (int64_t c = 0; c < COUNT_OF(eps); c++) {
        float logits[T * E], weights[T * 2], d_weights[T * 2], d[T * E], twice[T * E];
        int32_t ids[T * 2];
        uint8_t mask[T] = {1, 1, 1, 0, 1, 1, 1, 1, 1};
        rng_t rng = rng_make(test_seed() + (uint64_t)c);
        rng_fill_normal(&rng, logits, T * E), rng_fill_normal(&rng, d_weights, T * 2);
        for (int i = 0; i < T * E; i++) logits[i] = 2 + 0.1f * logits[i]; /* near each other */
        ffn_moe_routing_t routing = routing_of(T, E, 2, ids, weights);
        routing.mask = mask;
        ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_logits = d};
        assert_ok(ffn_moe_sparse_mixer(NULL, eps[c], logits, &routing));
        ids[2 * 1] = NONE, ids[2 * 2 + 1] = NONE; /* dropped since */
        assert_ok(ffn_moe_sparse_mixer_backward(NULL, eps[c], logits, &routing, &gradients));
        for (int t = 0; t < T; t++) {
            double z[E], at[E];
            for (int e = 0; e < E; e++) z[e] = at[e] = (double)logits[t * E + e];
            for (int e = 0; e < E; e++) {
                z[e] = at[e] + 1e-5;
                const double above = mixer_loss(z, at, (double)eps[c], ids + 2 * t, d_weights + 2 * t);
                z[e] = at[e] - 1e-5;
                const double slope = (above - mixer_loss(z, at, (double)eps[c], ids + 2 * t, d_weights + 2 * t)) / 2e-5;
                z[e] = at[e];
                assert_near((double)d[t * E + e], mask[t] ? slope : 0, 1e-8 + 0x1p-24 * fabs(slope));
            }
        }
        memcpy(twice, d, sizeof d);
        gradients.flags = FFN_BACKWARD_ACCUMULATE, gradients.d_logits = twice;
        assert_ok(ffn_moe_sparse_mixer_backward(NULL, eps[c], logits, &routing, &gradients));
        for (int i = 0; i < T * E; i++) assert_true(twice[i] == 2 * d[i]);
    }
}

static void rows_without_numbers_have_nan_and_a_lone_expert_has_0(void **state)
{
    (void)state;
    float logits[2 * 3] = {NAN, 0, 1, -INFINITY, 5, -INFINITY}, weights[4], d_weights[4] = {1, 1, 1, 1}, d[6];
    int32_t ids[4];
    const ffn_moe_routing_t routing = routing_of(2, 3, 2, ids, weights);
    const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_logits = d};
    assert_ok(ffn_moe_sparse_mixer(NULL, 0.01f, logits, &routing));
    assert_ok(ffn_moe_sparse_mixer_backward(NULL, 0.01f, logits, &routing, &gradients));
    for (int e = 0; e < 3; e++) assert_true(isnan(d[e]) && d[3 + e] == 0);
}

static void wrong_gradients_are_refused(void **state)
{
    (void)state;
    float in[64] = {0}, out[16];
    int32_t ids[6] = {0, 1, 2, 0, 1, 2};
    for (int i = 0; i < 16; i++) out[i] = 42;
    ffn_moe_routing_t two = routing_of(2, 8, 2, ids, NULL), routing = routing_of(2, 8, 3, ids, NULL);
    ffn_moe_route_gradients_t mixer = {.struct_size = sizeof mixer, .d_weights = in + 32, .d_logits = out}, right = mixer, scaled = mixer;
    right.d_scores = in + 40, scaled.d_expert_scale = in + 40;
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, NAN, in, &two, &mixer), FFN_INVALID, "jitter_eps is", "eps");
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, -1, in, &two, &mixer), FFN_INVALID, "jitter_eps is -1", "eps");
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, in, &routing, &mixer), FFN_INVALID, "top_k is 3|2", "top_k");
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, in, &two, &right), FFN_INVALID, "d_scores is given", "scores");
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, NULL, &two, &mixer), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, in, NULL, &mixer), FFN_INVALID, "ffn_moe_routing_t is NULL", "routing");
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, in, &two, NULL), FFN_INVALID, "NULL", "gradients");
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, in, &two, &scaled), FFN_INVALID, "d_expert_scale is given", "scale");
    mixer.flags = 4;
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, in, &two, &mixer), FFN_INVALID, "flags of the gradients is 0x4", "flags");
    mixer.flags = 0, mixer.d_weights = NULL;
    assert_refused(ffn_moe_sparse_mixer_backward(NULL, 0, in, &two, &mixer), FFN_INVALID, "d_weights is NULL", "weights");
    for (int i = 0; i < 16; i++) assert_true(out[i] == 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_mixer_has_its_derivative),
        cmocka_unit_test(rows_without_numbers_have_nan_and_a_lone_expert_has_0),
        cmocka_unit_test(wrong_gradients_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
