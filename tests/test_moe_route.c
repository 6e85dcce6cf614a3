/* SPDX-License-Identifier: MIT
 *
 * ffn_moe_route beyond the families: rows that are no numbers, ties, padding, given ids, threads and batches; and what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/random.h"
#include "support/test.h"

#define ROUTER(...) {.struct_size = sizeof(ffn_moe_router_options_t), __VA_ARGS__}

static ffn_moe_routing_t routing_of(int64_t tokens, int64_t experts, int64_t top_k, int32_t *ids, float *weights)
{
    return (ffn_moe_routing_t){.struct_size = sizeof(ffn_moe_routing_t), .tokens = tokens, .experts = experts, .top_k = top_k, .ids = ids,
                               .weights = weights};
}

static const ffn_moe_router_options_t kinds[] = {
    ROUTER(.score = FFN_MOE_SCORE_SOFTMAX),
    ROUTER(.score = FFN_MOE_SCORE_SOFTMAX, .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f),
    ROUTER(.score = FFN_MOE_SCORE_SIGMOID),
    ROUTER(.score = FFN_MOE_SCORE_SIGMOID, .groups = 2, .top_groups = 2, .group_score = FFN_MOE_GROUP_TOP2_SUM),
    ROUTER(.score = FFN_MOE_SCORE_SIGMOID, .groups = 4, .top_groups = 4),
    ROUTER(.score = FFN_MOE_SCORE_SQRT_SOFTPLUS, .normalise = FFN_MOE_NORMALISE_POWER, .norm_power = INFINITY),
    ROUTER(.score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX),
    ROUTER(.score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SIGMOID, .normalise = FFN_MOE_NORMALISE_SUM),
    ROUTER(.score = FFN_MOE_SCORE_NONE),
};

static void assert_distinct(const int32_t *ids, int64_t top_k, int64_t experts)
{
    char seen[FFN_MOE_EXPERTS_MOST] = {0};
    for (int64_t k = 0; k < top_k; k++) {
        assert_true(ids[k] >= 0 && ids[k] < experts && !seen[ids[k]]);
        seen[ids[k]] = 1;
    }
}

/* ------------------------------------------------------- Rows without numbers */

static void rows_without_numbers_have_distinct_ids_and_nan_weights_and_spoil_no_other(void **state)
{
    (void)state;
    enum { ROWS = 7, EXPERTS = 8 };
    float logits[ROWS * EXPERTS], weights[ROWS * EXPERTS], clean_logits[ROWS * EXPERTS], clean[ROWS * EXPERTS];
    int32_t ids[ROWS * EXPERTS], clean_ids[ROWS * EXPERTS];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, clean_logits, ROWS * EXPERTS);
    memcpy(logits, clean_logits, sizeof logits);
    for (int e = 0; e < EXPERTS; e++) logits[1 * EXPERTS + e] = NAN, logits[3 * EXPERTS + e] = -INFINITY;
    logits[5 * EXPERTS + 4] = NAN;
    for (int64_t c = 0; c < COUNT_OF(kinds); c++)
        for (int64_t top_k = 1; top_k <= EXPERTS; top_k++) {
            const ffn_moe_routing_t spoilt = routing_of(ROWS, EXPERTS, top_k, ids, weights);
            const ffn_moe_routing_t right = routing_of(ROWS, EXPERTS, top_k, clean_ids, clean);
            memset(ids, 0x55, sizeof ids);
            assert_ok(ffn_moe_route(NULL, &kinds[c], logits, NULL, NULL, NULL, &spoilt));
            assert_ok(ffn_moe_route(NULL, &kinds[c], clean_logits, NULL, NULL, NULL, &right));
            for (int64_t row = 0; row < ROWS; row++) {
                assert_distinct(ids + row * top_k, top_k, EXPERTS);
                for (int64_t k = row * top_k; k < (row + 1) * top_k; k++) {
                    if (row % 2) assert_true(isnan(weights[k]));
                    else assert_true(ids[k] == clean_ids[k] && weights[k] == clean[k]);
                }
            }
        }
}

static void infinite_logits_are_chosen_first_and_masked_ones_last_with_weight_0(void **state)
{
    (void)state;
    const float up[5] = {0, INFINITY, 1, 2, -3}, down[5] = {-INFINITY, 1, -INFINITY, 0, -INFINITY};
    int32_t ids[5];
    float weights[5];
    const ffn_moe_routing_t routing = routing_of(1, 5, 4, ids, weights);
    for (int64_t c = 0; c < COUNT_OF(kinds); c++) {
        if (kinds[c].groups) continue;
        assert_ok(ffn_moe_route(NULL, &kinds[c], up, NULL, NULL, NULL, &routing));
        assert_distinct(ids, 4, 5);
        if (kinds[c].score != FFN_MOE_SCORE_SOFTMAX) assert_int_equal(ids[0], 1);
        else assert_true(isnan(weights[0]) && isnan(weights[3]));
        assert_ok(ffn_moe_route(NULL, &kinds[c], down, NULL, NULL, NULL, &routing));
        assert_int_equal(ids[0], 1);
        assert_int_equal(ids[1], 3);
        assert_int_equal(ids[2], 0);
        assert_int_equal(ids[3], 2);
        if (kinds[c].weight || kinds[c].score != FFN_MOE_SCORE_NONE) assert_true(weights[0] > 0 && weights[2] == 0 && weights[3] == 0);
    }
}

/* ------------------------------------------------------------------------ Ties */

static void of_equal_scores_the_lowest_id_comes_first(void **state)
{
    (void)state;
    static const int sizes[] = {8, 64, 256, 512};
    float logits[3 * 512], weights[3 * 512];
    int32_t ids[3 * 512];
    for (int64_t c = 0; c < COUNT_OF(kinds); c++)
        for (int64_t s = 0; s < COUNT_OF(sizes); s++) {
            const int experts = sizes[s], low = experts / 3, high = experts - 2;
            for (int e = 0; e < experts; e++) {
                logits[e] = 0.5f;                                            /* all equal */
                logits[experts + e] = e == low || e == high ? 2.0f : -1.0f;  /* two equal largest */
                logits[2 * experts + e] = e % 2 ? 0.0f : -0.0f;              /* zeros are equal */
            }
            for (int top_k = 1; top_k <= experts; top_k += top_k < 4 ? 1 : experts / 5) {
                const ffn_moe_routing_t routing = routing_of(3, experts, top_k, ids, weights);
                assert_ok(ffn_moe_route(NULL, &kinds[c], logits, NULL, NULL, NULL, &routing));
                for (int k = 0; k < top_k; k++) {
                    assert_int_equal(ids[k], k);
                    assert_int_equal(ids[2 * top_k + k], k);
                }
                assert_int_equal(ids[top_k], low);
                if (top_k > 1) assert_int_equal(ids[top_k + 1], high);
                if (top_k > 2) assert_int_equal(ids[top_k + 2], 0);
            }
        }
}

/* --------------------------------------------------------------- Invariances */

static void threads_and_batches_do_not_change_a_bit(void **state)
{
    (void)state;
    enum { TOKENS = 300, EXPERTS = 64, TOP_K = 6, WIDTH = 96 };
    float *x = test_alloc(TOKENS * WIDTH * 4), *weight = test_alloc(EXPERTS * WIDTH * 4), *logits = test_alloc(TOKENS * EXPERTS * 4);
    float *whole = test_alloc(TOKENS * EXPERTS * 4), *scores = test_alloc(TOKENS * EXPERTS * 4), *whole_scores = test_alloc(TOKENS * EXPERTS * 4);
    int32_t ids[TOKENS * TOP_K], whole_ids[TOKENS * TOP_K];
    float weights[TOKENS * TOP_K], whole_weights[TOKENS * TOP_K];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, x, TOKENS * WIDTH);
    rng_fill_normal(&rng, weight, EXPERTS * WIDTH);
    const ffn_moe_logits_options_t matrix = {.struct_size = sizeof matrix, .d_model = WIDTH, .experts = EXPERTS, .weight = weight};
    const ffn_moe_routing_t all = routing_of(TOKENS, EXPERTS, TOP_K, whole_ids, whole_weights);
    assert_ok(ffn_moe_logits(NULL, &matrix, TOKENS, x, 0, whole));
    assert_ok(ffn_moe_route(NULL, &kinds[1], whole, NULL, NULL, whole_scores, &all));
    for (uint32_t threads = 1; threads <= 7; threads++) {
        const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
        ffn_context_t *context;
        assert_ok(ffn_context_create(&options, &context));
        for (int64_t size = threads == 1 ? 1 : 61; size <= TOKENS; size += size < 8 ? 1 : 119) {
            for (int64_t begin = 0; begin < TOKENS; begin += size) {
                const int64_t count = begin + size < TOKENS ? size : TOKENS - begin;
                const ffn_moe_routing_t part = routing_of(count, EXPERTS, TOP_K, ids + begin * TOP_K, weights + begin * TOP_K);
                assert_ok(ffn_moe_logits(context, &matrix, count, x + begin * WIDTH, 0, logits + begin * EXPERTS));
                assert_ok(ffn_moe_route(context, &kinds[1], logits + begin * EXPERTS, NULL, NULL, scores + begin * EXPERTS, &part));
            }
            assert_same_bits(whole, logits, TOKENS * EXPERTS, "logits");
            assert_same_bits(whole_scores, scores, TOKENS * EXPERTS, "scores");
            assert_same_bits(whole_weights, weights, TOKENS * TOP_K, "weights");
            assert_memory_equal(whole_ids, ids, sizeof ids);
        }
        ffn_context_free(context);
    }
    free(x), free(weight), free(logits), free(whole), free(scores), free(whole_scores);
}

static void permuting_experts_permutes_ids_and_changes_nothing_else(void **state)
{
    (void)state;
    enum { EXPERTS = 48, TOP_K = 5, TOKENS = 40 };
    float logits[TOKENS * EXPERTS], permuted[TOKENS * EXPERTS], weights[TOKENS * TOP_K], other[TOKENS * TOP_K];
    int32_t ids[TOKENS * TOP_K], other_ids[TOKENS * TOP_K];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, logits, TOKENS * EXPERTS);
    for (int t = 0; t < TOKENS; t++)
        for (int e = 0; e < EXPERTS; e++) permuted[t * EXPERTS + e * 11 % EXPERTS] = logits[t * EXPERTS + e];
    const ffn_moe_routing_t a = routing_of(TOKENS, EXPERTS, TOP_K, ids, weights), b = routing_of(TOKENS, EXPERTS, TOP_K, other_ids, other);
    assert_ok(ffn_moe_route(NULL, &kinds[7], logits, NULL, NULL, NULL, &a));
    assert_ok(ffn_moe_route(NULL, &kinds[7], permuted, NULL, NULL, NULL, &b));
    for (int i = 0; i < TOKENS * TOP_K; i++) assert_int_equal(ids[i] * 11 % EXPERTS, other_ids[i]);
    assert_same_bits(weights, other, TOKENS * TOP_K, "weights");
}

/* ---------------------------------------------------------- Padding, given ids */

static void padding_goes_nowhere_and_given_ids_are_weighed(void **state)
{
    (void)state;
    enum { EXPERTS = 6 };
    const ffn_moe_router_options_t given = ROUTER(.flags = FFN_MOE_GIVEN_IDS, .normalise = FFN_MOE_NORMALISE_SUM, .eps_least = 1.1920929e-7f);
    const float logits[3 * EXPERTS] = {1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 6, 5, 4, 3, 2, 1};
    const uint8_t mask[3] = {1, 0, 1};
    int32_t ids[6] = {0, 3, 1, 1, FFN_MOE_NO_EXPERT, 2}; /* padding's may be anything */
    float weights[6], scores[3 * EXPERTS];
    ffn_moe_routing_t routing = routing_of(3, EXPERTS, 2, ids, weights);
    routing.mask = mask;
    assert_ok(ffn_moe_route(NULL, &given, logits, NULL, NULL, scores, &routing));
    assert_near((double)weights[0], 1 / (1 + exp(3)), 1e-7);
    assert_near((double)weights[1], exp(3) / (1 + exp(3)), 1e-7);
    assert_true(ids[2] == FFN_MOE_NO_EXPERT && ids[3] == FFN_MOE_NO_EXPERT && weights[2] == 0 && weights[3] == 0);
    assert_true(ids[4] == FFN_MOE_NO_EXPERT && weights[4] == 0 && ids[5] == 2 && weights[5] == 1); /* the partner was dropped: 1 */
    for (int i = EXPERTS; i < 2 * EXPERTS; i++) assert_near((double)scores[i], 1.0 / 6, 1e-7);
    assert_ok(ffn_moe_route(NULL, NULL, logits, NULL, NULL, NULL, &routing));
    assert_true(ids[0] == 5 && ids[1] == 4 && ids[2] == FFN_MOE_NO_EXPERT && ids[4] == 0 && ids[5] == 1);
}

/* Where the sum is below eps_least, that divides: ERNIE's moe_norm_min, NLLB. */
static void small_sums_are_divided_by_the_least(void **state)
{
    (void)state;
    const ffn_moe_router_options_t least = ROUTER(.score = FFN_MOE_SCORE_SIGMOID, .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-6f, .eps_least = 1e-3f);
    const float logits[2 * 3] = {-10, -9, -11, 0, 1, -1};
    int32_t ids[4];
    float weights[4];
    const ffn_moe_routing_t routing = routing_of(2, 3, 2, ids, weights);
    assert_ok(ffn_moe_route(NULL, &least, logits, NULL, NULL, NULL, &routing));
    const double a = 1 / (1 + exp(9)), b = 1 / (1 + exp(10)), c = 1 / (1 + exp(-1)), d = 0.5, sum = c + d + (double)1e-6f;
    assert_near((double)weights[0], a / (double)1e-3f, 1e-6 * a / 1e-3);
    assert_near((double)weights[1], b / (double)1e-3f, 1e-6 * b / 1e-3);
    assert_near((double)weights[2], c / sum, 1e-7);
    assert_near((double)weights[3], d / sum, 1e-7);
}

static void a_switch_weight_is_the_probability_and_not_1(void **state)
{
    (void)state;
    const float logits[3] = {0, 1, 0};
    int32_t id;
    float weight;
    const ffn_moe_routing_t routing = routing_of(1, 3, 1, &id, &weight);
    assert_ok(ffn_moe_route(NULL, NULL, logits, NULL, NULL, NULL, &routing));
    assert_int_equal(id, 1);
    assert_near((double)weight, exp(1) / (exp(1) + 2), 1e-7);
}

static void no_tokens_are_fine_without_pointers(void **state)
{
    (void)state;
    const ffn_moe_routing_t routing = routing_of(0, 4, 2, NULL, NULL);
    const ffn_moe_logits_options_t matrix = {.struct_size = sizeof matrix, .d_model = 3, .experts = 4};
    assert_ok(ffn_moe_route(NULL, NULL, NULL, NULL, NULL, NULL, &routing));
    assert_ok(ffn_moe_logits(NULL, &matrix, 0, NULL, 0, NULL));
}

/* -------------------------------------------------------------------- Refused */

static float in[64], out_weights[64], out_scores[64];
static int32_t out_ids[64];

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define OPTION(field, ...) PATCH(ffn_moe_router_options_t, field, __VA_ARGS__)
#define ROUTING(field, ...) PATCH(ffn_moe_routing_t, field, __VA_ARGS__)

static const refused_t option_refusals[] = {
    {OPTION(struct_size, 3), "struct_size"},
    {OPTION(flags, 2), "flags|0x2"},
    {OPTION(score, 4), "score is 4|0 to 3"},
    {OPTION(weight, 3), "weight is 3|0 to 2"},
    {OPTION(normalise, 3), "normalise is 3|0 to 2"},
    {OPTION(group_score, 2), "group_score is 2|0 to 1"},
    {OPTION(groups, -1), "groups is -1|0 to 8"},
    {OPTION(groups, 9), "groups is 9|0 to 8"},
    {OPTION(groups, 3), "groups is 3|divide|8"},
    {OPTION(groups, 0), "top_groups is 2|groups is 0"},
    {OPTION(top_groups, 0), "top_groups is 0|1 to 4"},
    {OPTION(top_groups, 5), "top_groups is 5|1 to 4"},
    {OPTION(top_groups, 1), "top_groups is 1|hold 2|top_k is 3"},
    {OPTION(norm_power, 0), "norm_power is 0|above 0"},
    {OPTION(norm_power, NAN), "norm_power is"},
    {OPTION(norm_power, -1), "norm_power is -1"},
    {OPTION(normalise, FFN_MOE_NORMALISE_SUM), "norm_power is 2|POWER"},
    {OPTION(normalise, FFN_MOE_NORMALISE_NONE), "eps_added is 0.5|NORMALISE_NONE"},
    {OPTION(eps_added, NAN), "eps_added is"},
    {OPTION(eps_added, -1), "eps_added is -1"},
    {OPTION(eps_least, INFINITY), "eps_least is inf"},
    {OPTION(eps_least, -1), "eps_least is -1"},
    {OPTION(scale, NAN), "scale is"},
    {OPTION(scale, INFINITY), "scale is inf"},
    {OPTION(flags, FFN_MOE_GIVEN_IDS), "groups is 4|GIVEN_IDS"},
};

static const refused_t routing_refusals[] = {
    {ROUTING(struct_size, 0), "struct_size"},
    {ROUTING(flags, 1), "flags of the routing is 1"},
    {ROUTING(tokens, -1), "tokens is -1|0"},
    {ROUTING(tokens, INT64_C(1) << 31), "tokens is 2147483648|2147483647"},
    {ROUTING(experts, 0), "experts is 0|1 to 768"},
    {ROUTING(experts, 769), "experts is 769|1 to 768"},
    {ROUTING(top_k, 0), "top_k is 0|1 to 8"},
    {ROUTING(top_k, -1), "top_k is -1"},
    {ROUTING(top_k, 9), "top_k is 9|1 to 8"},
    {ROUTING(ids, NULL), "ids of the routing is NULL"},
    {ROUTING(weights, NULL), "weights of the routing is NULL"},
    {ROUTING(ids, (int32_t *)(void *)in), "logits overlaps ids"},
    {ROUTING(weights, (float *)(void *)out_ids), "ids of the routing overlaps weights"},
    {ROUTING(weights, out_scores + 3), "scores overlaps weights"},
    {ROUTING(mask, (const uint8_t *)out_ids), "ids of the routing overlaps mask"},
};

static void assert_nothing_written(const char *what)
{
    for (int i = 0; i < 64; i++)
        if (out_weights[i] != 42 || out_scores[i] != 42 || out_ids[i] != 42) fail_msg("%s: something was written", what);
}

static void wrong_routers_are_refused(void **state)
{
    (void)state;
    const ffn_moe_router_options_t right = ROUTER(.groups = 4, .top_groups = 2, .normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 2, .eps_added = 0.5f);
    const ffn_moe_routing_t to = routing_of(2, 8, 3, out_ids, out_weights);
    for (int i = 0; i < 64; i++) out_weights[i] = out_scores[i] = 42, out_ids[i] = 42;
    for (int64_t i = 0; i < COUNT_OF(option_refusals); i++) {
        ffn_moe_router_options_t options = right;
        patch_apply(&option_refusals[i].patch, &options);
        forget_error();
        assert_refused(ffn_moe_route(NULL, &options, in, NULL, NULL, out_scores, &to), FFN_INVALID, option_refusals[i].words,
                       option_refusals[i].patch.text);
        assert_nothing_written(option_refusals[i].patch.text);
    }
    for (int64_t i = 0; i < COUNT_OF(routing_refusals); i++) {
        ffn_moe_routing_t routing = to;
        patch_apply(&routing_refusals[i].patch, &routing);
        forget_error();
        assert_refused(ffn_moe_route(NULL, NULL, in, NULL, NULL, out_scores, &routing), FFN_INVALID, routing_refusals[i].words,
                       routing_refusals[i].patch.text);
        assert_nothing_written(routing_refusals[i].patch.text);
    }
    const ffn_moe_router_options_t given = ROUTER(.flags = FFN_MOE_GIVEN_IDS);
    assert_refused(ffn_moe_route(NULL, NULL, in, NULL, NULL, NULL, NULL), FFN_INVALID, "ffn_moe_routing_t is NULL", "routing");
    assert_refused(ffn_moe_route(NULL, NULL, NULL, NULL, NULL, NULL, &to), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_route(NULL, &given, in, in, NULL, NULL, &to), FFN_INVALID, "selection_bias|GIVEN_IDS", "bias");
    assert_refused(ffn_moe_route(NULL, &given, in, NULL, NULL, NULL, &to), FFN_INVALID, "token 0 is 42|0 to 7", "ids");
    assert_refused(ffn_moe_route(NULL, NULL, in, NULL, (float *)(void *)((char *)in + 2), NULL, &to), FFN_INVALID, "expert_scale|multiple of 4", "address");
    assert_nothing_written("others");
    for (int i = 0; i < 6; i++) out_ids[i] = i % 3;
    out_ids[5] = 1;
    assert_refused(ffn_moe_route(NULL, &given, in, NULL, NULL, NULL, &to), FFN_INVALID, "token 1 has expert 1 twice", "ids");
    out_ids[5] = -2;
    assert_refused(ffn_moe_route(NULL, &given, in, NULL, NULL, NULL, &to), FFN_INVALID, "token 1 is -2", "ids");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_without_numbers_have_distinct_ids_and_nan_weights_and_spoil_no_other),
        cmocka_unit_test(infinite_logits_are_chosen_first_and_masked_ones_last_with_weight_0),
        cmocka_unit_test(of_equal_scores_the_lowest_id_comes_first),
        cmocka_unit_test(threads_and_batches_do_not_change_a_bit),
        cmocka_unit_test(permuting_experts_permutes_ids_and_changes_nothing_else),
        cmocka_unit_test(padding_goes_nowhere_and_given_ids_are_weighed),
        cmocka_unit_test(small_sums_are_divided_by_the_least),
        cmocka_unit_test(a_switch_weight_is_the_probability_and_not_1),
        cmocka_unit_test(no_tokens_are_fine_without_pointers),
        cmocka_unit_test(wrong_routers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
