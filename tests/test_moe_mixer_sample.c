/* SPDX-License-Identifier: MIT
 *
 * SparseMixer as it is trained: choices and weights against its formula in float64 with random numbers of the tests' own Philox, how often each comes,
 * the derivative, and what is refused.
 */
#include <math.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/philox_reference.h"
#include "support/random.h"
#include "support/test.h"

enum { E = 11, T = 400 };

static ffn_moe_routing_t routing_of(int64_t tokens, int64_t experts, int32_t *ids, float *weights)
{
    return (ffn_moe_routing_t){.struct_size = sizeof(ffn_moe_routing_t), .tokens = tokens, .experts = experts, .top_k = 2, .ids = ids,
                               .weights = weights};
}

static ffn_moe_noise_t noise_of(uint64_t seed)
{
    return (ffn_moe_noise_t){.struct_size = sizeof(ffn_moe_noise_t), .site = FFN_MOE_SITE_CHOICE, .seed = seed, .step = 7, .layer = 3};
}

/* ------------------------------------------------------------------- The formula */

static double number(const ffn_moe_noise_t *noise, int64_t row, uint32_t column)
{
    const uint64_t r = (uint64_t)(noise->first_row + row);
    const uint32_t key[2] = {(uint32_t)noise->seed, (uint32_t)(noise->seed >> 32)};
    const uint32_t counter[4] = {8u * (1u << 28) + column / 4, (uint32_t)r, (uint32_t)noise->step, (uint32_t)(noise->layer * 65536 + (r >> 32))};
    uint32_t out[4];
    philox_reference(counter, key, out);
    return ((double)out[column % 4] + 0.5) / 4294967296.0;
}

typedef struct drawn {
    int id;
    double p[E]; /* 0 for those that drop out */
    double w, gap; /* gap: between the two largest noisy logits, which float64 of another order could change */
} drawn_t;

static drawn_t draw(const float *z, double eps, int without, const ffn_moe_noise_t *noise, int64_t row, uint32_t choice)
{
    drawn_t drawn = {.id = -1, .gap = INFINITY};
    int largest = -1;
    double sum = 0, most = -INFINITY;
    for (int e = 0; e < E; e++)
        if (e != without && (largest < 0 || z[e] > z[largest])) largest = e;
    const double m = (double)z[largest];
    for (int e = 0; e < E; e++) {
        const bool out = e == without || (m - (double)z[e]) / fmax(fabs((double)z[e]), m) > 2 * eps;
        if (out) continue;
        sum += drawn.p[e] = exp((double)z[e] - m);
        const double noisy = (double)z[e] - log(-log(number(noise, row, 65536 * choice + (uint32_t)e)));
        drawn.gap = fmin(drawn.gap, fabs(noisy - most));
        if (noisy > most) most = noisy, drawn.id = e;
    }
    for (int e = 0; e < E; e++) drawn.p[e] /= sum;
    const bool whole = drawn.id == largest || number(noise, row, 65536 * choice + 32768) < 0.25;
    drawn.w = drawn.p[drawn.id] * (whole ? 1 : 1 / 3.0);
    return drawn;
}

static void fill_near(float *logits, int64_t n, uint64_t seed)
{
    rng_t rng = rng_make(seed);
    rng_fill_normal(&rng, logits, n);
    for (int64_t i = 0; i < n; i++) logits[i] = 2 + 0.3f * logits[i];
}

static void choices_and_weights_are_the_formula_s(void **state)
{
    (void)state;
    static const float eps[] = {0, 0.01f, 0.1f, 2};
    static float logits[T * E], weights[T * 2];
    static int32_t ids[T * 2];
    for (int64_t c = 0; c < COUNT_OF(eps); c++) {
        ffn_moe_noise_t noise = noise_of(test_seed() + (UINT64_C(5) << 40));
        const ffn_moe_routing_t routing = routing_of(T, E, ids, weights);
        int64_t others = 0, thirds = 0;
        noise.first_row = (INT64_C(1) << 32) - 17; /* rows on both sides of 2^32 */
        fill_near(logits, T * E, test_seed() + (uint64_t)c);
        assert_ok(ffn_moe_sparse_mixer_sample(NULL, &noise, eps[c], logits, &routing));
        for (int t = 0; t < T; t++) {
            const drawn_t first = draw(logits + t * E, (double)eps[c], -1, &noise, t, 0);
            if (first.gap < 1e-9) continue;
            const drawn_t second = draw(logits + t * E, (double)eps[c], first.id, &noise, t, 1);
            assert_int_equal(ids[2 * t], first.id);
            assert_near((double)weights[2 * t], first.w, 0x1p-23 * first.w);
            if (second.gap < 1e-9) continue;
            assert_int_equal(ids[2 * t + 1], second.id);
            assert_near((double)weights[2 * t + 1], second.w, 0x1p-23 * second.w);
            others += first.p[first.id] < 0.2, thirds += first.w < 0.9 * first.p[first.id];
        }
        if (eps[c] >= 0.1f) assert_true(others > 0 && thirds > 0);
        if (eps[c] == 0)
            for (int t = 0; t < T; t++) assert_true(weights[2 * t] == 1 && weights[2 * t + 1] == 1);
    }
}

/* Each within 5 standard deviations: how often an expert is drawn, and how often the weight of one that is not the largest is whole. */
static void experts_are_drawn_as_often_as_their_softmax_says(void **state)
{
    (void)state;
    enum { ROWS = 40000, N = 4 };
    static float logits[ROWS * N], weights[ROWS * 2];
    static int32_t ids[ROWS * 2];
    const float z[N] = {1, 1.5f, 0.5f, 1.25f};
    const ffn_moe_routing_t routing = routing_of(ROWS, N, ids, weights);
    const ffn_moe_noise_t noise = noise_of(test_seed());
    double p[N], sum = 0, whole = 0, others = 0;
    int64_t count[N] = {0}, both = 0, second[N] = {0};
    for (int i = 0; i < ROWS * N; i++) logits[i] = z[i % N];
    for (int e = 0; e < N; e++) sum += p[e] = exp((double)z[e]);
    assert_ok(ffn_moe_sparse_mixer_sample(NULL, &noise, 10, logits, &routing));
    for (int t = 0; t < ROWS; t++) {
        const int id = ids[2 * t];
        count[id]++;
        if (id == 0) both++, second[ids[2 * t + 1]]++;
        if (id != 1) others++, whole += (double)weights[2 * t] > 0.9 * p[id] / sum;
        else assert_near((double)weights[2 * t], p[1] / sum, 1e-6);
    }
    for (int e = 0; e < N; e++) assert_near((double)count[e] / ROWS, p[e] / sum, 5 * sqrt(p[e] / sum / ROWS));
    for (int e = 1; e < N; e++) assert_near((double)second[e] / (double)both, p[e] / (sum - p[0]), 5 * sqrt(0.25 / (double)both));
    assert_int_equal(second[0], 0);
    assert_near(whole / others, 0.25, 5 * sqrt(0.25 * 0.75 / others));
}

static void threads_and_parts_of_a_batch_change_no_bit(void **state)
{
    (void)state;
    static float logits[T * E], weights[T * 2], expected[T * 2];
    static int32_t ids[T * 2], expected_ids[T * 2];
    ffn_moe_noise_t noise = noise_of(5);
    const ffn_moe_routing_t all = routing_of(T, E, expected_ids, expected);
    fill_near(logits, T * E, test_seed());
    assert_ok(ffn_moe_sparse_mixer_sample(NULL, &noise, 0.1f, logits, &all));
    for (uint32_t threads = 1; threads <= 7; threads += 3)
        for (int64_t part = 1; part <= T; part += 133) {
            ffn_context_t *context;
            const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
            assert_ok(ffn_context_create(&options, &context));
            for (int64_t begin = 0; begin < T; begin += part) {
                const int64_t count = begin + part < T ? part : T - begin;
                const ffn_moe_routing_t routing = routing_of(count, E, ids + 2 * begin, weights + 2 * begin);
                noise.first_row = begin;
                assert_ok(ffn_moe_sparse_mixer_sample(context, &noise, 0.1f, logits + begin * E, &routing));
            }
            assert_memory_equal(ids, expected_ids, sizeof ids);
            assert_same_bits(expected, weights, T * 2, "weights");
            ffn_context_free(context);
        }
}

/* The published estimate: p (1 at the choice - p), whatever part of p the weight is. */
static void the_derivative_is_that_of_the_softmax_at_the_choice(void **state)
{
    (void)state;
    static float logits[T * E], weights[T * 2], d_weights[T * 2], d[T * E];
    static int32_t ids[T * 2];
    const ffn_moe_noise_t noise = noise_of(11);
    const ffn_moe_routing_t routing = routing_of(T, E, ids, weights);
    const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_logits = d};
    rng_t rng = rng_make(test_seed());
    fill_near(logits, T * E, test_seed() + 1);
    rng_fill_normal(&rng, d_weights, T * 2);
    assert_ok(ffn_moe_sparse_mixer_sample(NULL, &noise, 0.1f, logits, &routing));
    assert_ok(ffn_moe_sparse_mixer_backward(NULL, 0.1f, logits, &routing, &gradients));
    for (int t = 0; t < T; t++) {
        double expected[E] = {0}, size = 0;
        for (int k = 0; k < 2; k++) {
            const drawn_t drawn = draw(logits + t * E, (double)0.1f, k ? ids[2 * t] : -1, &noise, t, (uint32_t)k);
            for (int e = 0; e < E; e++)
                expected[e] += (double)d_weights[2 * t + k] * drawn.p[ids[2 * t + k]] * ((e == ids[2 * t + k]) - drawn.p[e]);
            size += fabs((double)d_weights[2 * t + k]);
        }
        for (int e = 0; e < E; e++) assert_near((double)d[t * E + e], expected[e], 1e-7 * size);
    }
}

/* An id that dropped out, which no draw gives: no derivative. */
static void an_expert_that_dropped_out_has_no_derivative(void **state)
{
    (void)state;
    const float logits[3] = {5, 1, 4.99f}, d_weights[2] = {1, 0};
    float d[3];
    int32_t ids[2] = {1, 0};
    const ffn_moe_routing_t routing = routing_of(1, 3, ids, NULL);
    const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_logits = d};
    assert_ok(ffn_moe_sparse_mixer_backward(NULL, 0.01f, logits, &routing, &gradients));
    for (int e = 0; e < 3; e++) assert_true(d[e] == 0);
}

static void rows_without_numbers_and_padding_are_as_elsewhere(void **state)
{
    (void)state;
    const float logits[4 * 3] = {NAN, 0, 1, -INFINITY, -INFINITY, -INFINITY, 1, 1, 1, -INFINITY, 2, -INFINITY};
    const uint8_t mask[4] = {1, 1, 0, 1};
    float weights[8];
    int32_t ids[8];
    ffn_moe_routing_t routing = routing_of(4, 3, ids, weights);
    const ffn_moe_noise_t noise = noise_of(1);
    routing.mask = mask;
    assert_ok(ffn_moe_sparse_mixer_sample(NULL, &noise, 0.01f, logits, &routing));
    for (int t = 0; t < 2; t++) {
        assert_true(isnan(weights[2 * t]) && isnan(weights[2 * t + 1]));
        assert_true(ids[2 * t] >= 0 && ids[2 * t] < 3 && ids[2 * t + 1] >= 0 && ids[2 * t + 1] < 3 && ids[2 * t] != ids[2 * t + 1]);
    }
    assert_true(ids[4] == FFN_MOE_NO_EXPERT && ids[5] == FFN_MOE_NO_EXPERT && weights[4] == 0 && weights[5] == 0);
    assert_true(ids[6] == 1 && weights[6] == 1 && ids[7] == 0 && weights[7] == 0);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    float in[16] = {0}, out[16];
    int32_t ids[6] = {7, 7, 7, 7, 7, 7};
    for (int i = 0; i < 16; i++) out[i] = 42;
    const ffn_moe_routing_t right = routing_of(2, 5, ids, out), none = routing_of(0, 5, NULL, NULL);
    ffn_moe_routing_t three = right, apart = right;
    const ffn_moe_noise_t noise = noise_of(1);
    ffn_moe_noise_t site = noise, size = noise, row = noise;
    three.top_k = 3, apart.weights = in + 3, site.site = FFN_MOE_SITE_NOISE, size.size = 0.5f, row.first_row = -1;
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, NULL, 0, in, &right), FFN_INVALID, "ffn_moe_noise_t is NULL", "noise");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &site, 0, in, &right), FFN_INVALID, "site of the noise is 7|8", "site");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &size, 0, in, &right), FFN_INVALID, "size of the noise is 0.5|0", "size");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &row, 0, in, &right), FFN_INVALID, "first_row of the noise is -1", "row");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &noise, NAN, in, &right), FFN_INVALID, "jitter_eps is", "eps");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &noise, -1, in, &right), FFN_INVALID, "jitter_eps is -1", "eps");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &noise, 0, in, &three), FFN_INVALID, "top_k is 3|2", "top_k");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &noise, 0, in, NULL), FFN_INVALID, "ffn_moe_routing_t is NULL", "routing");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &noise, 0, NULL, &right), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_sparse_mixer_sample(NULL, &noise, 0, in, &apart), FFN_INVALID, "logits overlaps weights", "overlap");
    for (int i = 0; i < 16; i++) assert_true(out[i] == 42);
    for (int i = 0; i < 6; i++) assert_int_equal(ids[i], 7);
    assert_ok(ffn_moe_sparse_mixer_sample(NULL, &noise, 0, NULL, &none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_and_weights_are_the_formula_s),
        cmocka_unit_test(experts_are_drawn_as_often_as_their_softmax_says),
        cmocka_unit_test(threads_and_parts_of_a_batch_change_no_bit),
        cmocka_unit_test(the_derivative_is_that_of_the_softmax_at_the_choice),
        cmocka_unit_test(an_expert_that_dropped_out_has_no_derivative),
        cmocka_unit_test(rows_without_numbers_and_padding_are_as_elsewhere),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
