/* SPDX-License-Identifier: MIT
 *
 * The other ways to a routing, against their formulas in float64: SparseMixer, expert choice, hash, policies for second choices; and capacity, against
 * a queue that is written out. And what they refuse.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/philox_reference.h"
#include "support/random.h"
#include "support/test.h"

enum { NONE = FFN_MOE_NO_EXPERT };

static ffn_moe_routing_t routing_of(int64_t tokens, int64_t experts, int64_t top_k, int32_t *ids, float *weights)
{
    return (ffn_moe_routing_t){.struct_size = sizeof(ffn_moe_routing_t), .tokens = tokens, .experts = experts, .top_k = top_k, .ids = ids,
                               .weights = weights};
}

/* ---------------------------------------------------------------- SparseMixer */

static int argmax(int n, const double *z, int without)
{
    int best = -1;
    for (int e = 0; e < n; e++)
        if (e != without && (best < 0 || z[e] > z[best])) best = e;
    return best;
}

static double mixed_weight(int n, const double *z, int chosen, int without, double eps)
{
    double sum = 0;
    for (int e = 0; e < n; e++)
        if (e != without && !((z[chosen] - z[e]) / fmax(fabs(z[e]), z[chosen]) > 2 * eps)) sum += exp(z[e] - z[chosen]);
    return 1 / sum;
}

static void sparse_mixer_follows_its_formula(void **state)
{
    (void)state;
    enum { TOKENS = 400, EXPERTS = 16 };
    static const float eps[] = {0, 0.01f, 0.1f, 1};
    float logits[TOKENS * EXPERTS], weights[TOKENS * 2];
    int32_t ids[TOKENS * 2];
    int64_t ones = 0;
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, logits, TOKENS * EXPERTS);
    for (int i = 0; i < TOKENS * EXPERTS / 2; i++) logits[i] -= 5; /* rows whose largest is negative */
    const ffn_moe_routing_t routing = routing_of(TOKENS, EXPERTS, 2, ids, weights);
    for (int64_t c = 0; c < COUNT_OF(eps); c++) {
        assert_ok(ffn_moe_sparse_mixer(NULL, eps[c], logits, &routing));
        for (int t = 0; t < TOKENS; t++) {
            double z[EXPERTS];
            for (int e = 0; e < EXPERTS; e++) z[e] = (double)logits[t * EXPERTS + e];
            const int first = argmax(EXPERTS, z, -1), second = argmax(EXPERTS, z, first);
            assert_int_equal(ids[2 * t], first);
            assert_int_equal(ids[2 * t + 1], second);
            assert_near((double)weights[2 * t], mixed_weight(EXPERTS, z, first, -1, (double)eps[c]), 0x1p-24);
            assert_near((double)weights[2 * t + 1], mixed_weight(EXPERTS, z, second, first, (double)eps[c]), 0x1p-24);
            ones += weights[2 * t] == 1 && weights[2 * t + 1] == 1;
        }
    }
    assert_true(ones > TOKENS); /* not normalised */
}

static void sparse_mixer_takes_rows_without_numbers_and_padding(void **state)
{
    (void)state;
    const float logits[5 * 3] = {NAN, NAN, NAN, 1, NAN, 2, -INFINITY, -INFINITY, -INFINITY, 5, -INFINITY, -INFINITY, 1, 2, 3};
    const uint8_t mask[5] = {1, 1, 1, 1, 0};
    float weights[10];
    int32_t ids[10];
    ffn_moe_routing_t routing = routing_of(5, 3, 2, ids, weights);
    routing.mask = mask;
    assert_ok(ffn_moe_sparse_mixer(NULL, 0.01f, logits, &routing));
    for (int t = 0; t < 3; t++) {
        assert_true(isnan(weights[2 * t]) && isnan(weights[2 * t + 1]));
        assert_true(ids[2 * t] >= 0 && ids[2 * t] < 3 && ids[2 * t + 1] >= 0 && ids[2 * t + 1] < 3 && ids[2 * t] != ids[2 * t + 1]);
    }
    assert_true(ids[6] == 0 && ids[7] == 1 && weights[6] == 1 && weights[7] == 0);
    assert_true(ids[8] == NONE && ids[9] == NONE && weights[8] == 0);
}

/* -------------------------------------------------------------- Expert choice */

static void every_expert_takes_its_best_tokens(void **state)
{
    (void)state;
    enum { TOKENS = 37, EXPERTS = 9, GROUP = 10, CAPACITY = 3 };
    float scores[TOKENS * EXPERTS], weights[TOKENS * EXPERTS];
    int32_t ids[TOKENS * EXPERTS];
    uint8_t mask[TOKENS];
    rng_t rng = rng_make(test_seed());
    for (int i = 0; i < TOKENS * EXPERTS; i++) scores[i] = (float)rng_below(&rng, 7) / 8; /* many are equal */
    for (int t = 0; t < TOKENS; t++) mask[t] = t % 6 != 4;
    ffn_moe_routing_t routing = routing_of(TOKENS, EXPERTS, EXPERTS, ids, weights);
    routing.mask = mask;
    assert_ok(ffn_moe_expert_choice(NULL, CAPACITY, GROUP, scores, &routing));
    for (int t = 0; t < TOKENS; t++) {
        int slot = t * EXPERTS;
        for (int e = 0; e < EXPERTS; e++) {
            int before = 0; /* tokens of the group that expert e likes better */
            const float mine = scores[t * EXPERTS + e];
            for (int other = t / GROUP * GROUP; other < TOKENS && other < (t / GROUP + 1) * GROUP; other++) {
                const float its = scores[other * EXPERTS + e];
                before += mask[other] && (its > mine || (its == mine && other < t));
            }
            if (!mask[t] || before >= CAPACITY) continue;
            assert_int_equal(ids[slot], e);
            assert_true(weights[slot++] == mine);
        }
        for (; slot < (t + 1) * EXPERTS; slot++) assert_true(ids[slot] == NONE && weights[slot] == 0);
    }
    routing.top_k = 1;
    memset(ids, 0x11, sizeof ids);
    assert_refused(ffn_moe_expert_choice(NULL, CAPACITY, GROUP, scores, &routing), FFN_INVALID, "is chosen by|experts, but top_k is 1", "slots");
    assert_int_equal(ids[0], 0x11111111);
    routing.top_k = EXPERTS;
    assert_ok(ffn_moe_expert_choice(NULL, INT64_MAX, INT64_MAX, scores, &routing)); /* everyone takes everyone */
    for (int t = 0; t < TOKENS; t++) assert_int_equal(ids[t * EXPERTS + EXPERTS - 1], mask[t] ? EXPERTS - 1 : NONE);
}

/* ----------------------------------------------------------------------- Hash */

static void hash_reads_the_table_of_the_tokens(void **state)
{
    (void)state;
    const int32_t table[4 * 2] = {0, 1, 2, 3, 4, 0, 5, 1};
    const int64_t tokens[4] = {3, 0, 77, 3};
    const uint8_t mask[4] = {1, 1, 0, 1};
    const float logits[4 * 6] = {0, 1, 2, 3, 4, 5};
    const ffn_moe_router_options_t weigh = {.struct_size = sizeof weigh, .flags = FFN_MOE_GIVEN_IDS, .score = FFN_MOE_SCORE_SQRT_SOFTPLUS,
                                            .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f, .scale = 1.5f};
    int32_t ids[8];
    float weights[8];
    ffn_moe_routing_t routing = routing_of(4, 6, 2, ids, NULL);
    routing.mask = mask;
    assert_ok(ffn_moe_hash(tokens, 4, table, &routing));
    const int32_t expected[8] = {5, 1, 0, 1, NONE, NONE, 5, 1};
    assert_memory_equal(ids, expected, sizeof ids);
    routing.weights = weights;
    assert_ok(ffn_moe_route(NULL, &weigh, logits, NULL, NULL, NULL, &routing));
    const double five = sqrt(log1p(exp(5))), one = sqrt(log1p(exp(1)));
    assert_near((double)weights[0], 1.5 * five / (five + one), 4e-7);
    assert_near((double)weights[1], 1.5 * one / (five + one), 4e-7);
}

static void hash_refuses_what_is_not_in_the_table(void **state)
{
    (void)state;
    const int32_t table[3 * 2] = {0, 1, 2, 2, 4, 7};
    int64_t token = 3;
    int32_t ids[2] = {9, 9};
    const ffn_moe_routing_t routing = routing_of(1, 6, 2, ids, NULL);
    assert_refused(ffn_moe_hash(&token, 3, table, &routing), FFN_INVALID, "token_ids[0] is 3|0 to 2", "token");
    token = -1;
    assert_refused(ffn_moe_hash(&token, 3, table, &routing), FFN_INVALID, "token_ids[0] is -1", "token");
    token = 1;
    assert_refused(ffn_moe_hash(&token, 3, table, &routing), FFN_INVALID, "table row 1 has expert 2 twice", "table");
    token = 2;
    assert_refused(ffn_moe_hash(&token, 3, table, &routing), FFN_INVALID, "table row 2 is 7|0 to 5", "table");
    assert_refused(ffn_moe_hash(&token, 0, table, &routing), FFN_INVALID, "vocabulary is 0", "vocabulary");
    assert_refused(ffn_moe_hash(&token, INT64_MAX, table, &routing), FFN_INVALID, "table reaches beyond", "vocabulary");
    assert_refused(ffn_moe_hash(NULL, 3, table, &routing), FFN_INVALID, "token_ids is NULL", "token_ids");
    assert_refused(ffn_moe_hash(&token, 3, NULL, &routing), FFN_INVALID, "table is NULL", "table");
    assert_refused(ffn_moe_hash(&token, 3, table, NULL), FFN_INVALID, "NULL", "routing");
    assert_true(ids[0] == 9 && ids[1] == 9);
}

/* -------------------------------------------------------------- Second choices */

static double uniform(uint64_t seed, uint32_t stream, uint64_t i)
{
    const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)(i >> 34), stream, 0xffff0001u};
    uint32_t words[4];
    philox_reference(counter, (const uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, words);
    return (words[i % 4] + 0.5) / 4294967296.0;
}

#define SECOND(...) {.struct_size = sizeof(ffn_moe_second_options_t), __VA_ARGS__}

static void second_choices_are_kept_by_policy(void **state)
{
    (void)state;
    enum { TOKENS = 500 };
    static const ffn_moe_second_options_t policies[] = {
        SECOND(.policy = FFN_MOE_SECOND_NONE),
        SECOND(.policy = FFN_MOE_SECOND_THRESHOLD, .threshold = 0.25f),
        SECOND(.policy = FFN_MOE_SECOND_RANDOM, .threshold = 0.2f, .seed = UINT64_C(0x123456789abc), .stream = 7, .first_token = 3),
        SECOND(.policy = FFN_MOE_SECOND_RANDOM, .threshold = 0.5f, .seed = 5),
    };
    for (int64_t c = 0; c < COUNT_OF(policies); c++) {
        const ffn_moe_second_options_t *o = &policies[c];
        int32_t ids[TOKENS * 2];
        float weights[TOKENS * 2], before[TOKENS * 2];
        int64_t kept = 0;
        rng_t rng = rng_make(test_seed() + (uint64_t)c);
        rng_fill_uniform(&rng, before, TOKENS * 2, 0, 0.5f);
        memcpy(weights, before, sizeof weights);
        before[2 * 9 + 1] = weights[2 * 9 + 1] = NAN;
        for (int t = 0; t < TOKENS; t++) ids[2 * t] = t % 4, ids[2 * t + 1] = 4;
        const ffn_moe_routing_t routing = routing_of(TOKENS, 5, 2, ids, weights);
        assert_ok(ffn_moe_second_expert(o, NULL, &routing));
        for (int t = 0; t < TOKENS; t++) {
            const double w = (double)before[2 * t + 1];
            bool stays = false;
            if (o->policy == FFN_MOE_SECOND_THRESHOLD) stays = w > (double)o->threshold;
            if (o->policy == FFN_MOE_SECOND_RANDOM) stays = uniform(o->seed, (uint32_t)o->stream, (uint64_t)(o->first_token + t)) < w / (double)o->threshold;
            assert_true(ids[2 * t] == t % 4 && weights[2 * t] == before[2 * t]);
            if (stays) assert_true(ids[2 * t + 1] == 4 && weights[2 * t + 1] == before[2 * t + 1]);
            else assert_true(ids[2 * t + 1] == NONE && weights[2 * t + 1] == 0);
            kept += stays;
        }
        if (o->policy != FFN_MOE_SECOND_NONE) assert_true(kept > TOKENS / 5 && kept < TOKENS);
    }
}

static void sampled_second_choices_follow_the_noise(void **state)
{
    (void)state;
    enum { TOKENS = 300, EXPERTS = 7 };
    const ffn_moe_second_options_t o = SECOND(.policy = FFN_MOE_SECOND_SAMPLED, .seed = 11, .stream = 2, .first_token = 1000);
    float logits[TOKENS * EXPERTS];
    int32_t ids[TOKENS * 2];
    int64_t not_the_second_largest = 0;
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, logits, TOKENS * EXPERTS);
    const ffn_moe_routing_t routing = routing_of(TOKENS, EXPERTS, 2, ids, NULL);
    assert_ok(ffn_moe_second_expert(&o, logits, &routing));
    for (int t = 0; t < TOKENS; t++) {
        double z[EXPERTS], noisy[EXPERTS];
        for (int e = 0; e < EXPERTS; e++) {
            z[e] = (double)logits[t * EXPERTS + e];
            noisy[e] = z[e] - log(-log(uniform(o.seed, 2, (uint64_t)((o.first_token + t) * EXPERTS + e))));
        }
        assert_int_equal(ids[2 * t], argmax(EXPERTS, z, -1));
        assert_int_equal(ids[2 * t + 1], argmax(EXPERTS, noisy, ids[2 * t]));
        not_the_second_largest += ids[2 * t + 1] != argmax(EXPERTS, z, ids[2 * t]);
    }
    assert_true(not_the_second_largest > TOKENS / 4 && not_the_second_largest < TOKENS * 9 / 10);
}

static void the_partner_of_a_dropped_choice_gets_weight_1(void **state)
{
    (void)state;
    const ffn_moe_router_options_t first = {.struct_size = sizeof first, .normalise = FFN_MOE_NORMALISE_SUM, .eps_least = 1.1920929e-7f};
    ffn_moe_router_options_t again = first;
    const ffn_moe_capacity_options_t one = {.struct_size = sizeof one, .capacity = 1};
    const float logits[3 * 3] = {3, 2, 0, 3, 0, 2, 2, 3, 0}; /* 0 1, 0 2, 1 0: one place each */
    int32_t ids[6];
    float weights[6];
    const ffn_moe_routing_t routing = routing_of(3, 3, 2, ids, weights);
    again.flags = FFN_MOE_GIVEN_IDS;
    assert_ok(ffn_moe_route(NULL, &first, logits, NULL, NULL, NULL, &routing));
    assert_ok(ffn_moe_limit(NULL, &one, &routing));
    const int32_t expected[6] = {0, NONE, NONE, 2, 1, NONE};
    assert_memory_equal(ids, expected, sizeof ids);
    assert_ok(ffn_moe_route(NULL, &again, logits, NULL, NULL, NULL, &routing));
    assert_true(weights[0] == 1 && weights[1] == 0 && weights[2] == 0 && weights[3] == 1 && weights[4] == 1 && weights[5] == 0);
}

/* ------------------------------------------------------------------ Capacity */

#define CAPACITY(...) {.struct_size = sizeof(ffn_moe_capacity_options_t), __VA_ARGS__}

typedef struct capacity_case {
    ffn_moe_capacity_options_t options;
    int64_t tokens, experts, top_k, expected;
} capacity_case_t;

static const capacity_case_t capacity_cases[] = {
    {CAPACITY(.capacity = 64), 100, 2, 1, 64},
    {CAPACITY(.factor = 1.25, .minimum = 4), 100, 8, 1, 15},                             /* Mesh TensorFlow: int(15.625) */
    {CAPACITY(.factor = 1.25, .minimum = 4), 20, 8, 1, 4},                               /* at least 4 */
    {CAPACITY(.factor = 1.25, .minimum = 4, .rounding = FFN_MOE_ROUND_NEAREST), 100, 8, 1, 16}, /* Flaxformer */
    {CAPACITY(.factor = 1.25, .rounding = FFN_MOE_ROUND_NEAREST), 16, 8, 1, 2},          /* round(2.5) is 2 */
    {CAPACITY(.factor = 1.25, .rounding = FFN_MOE_ROUND_NEAREST), 48, 8, 1, 8},          /* round(7.5) is 8 */
    {CAPACITY(.factor = 1.25, .flags = FFN_MOE_CAPACITY_PER_CHOICE, .rounding = FFN_MOE_ROUND_UP), 50, 8, 2, 16}, /* Megatron: ceil(15.625) */
    {CAPACITY(.factor = 1.1), 80, 8, 1, 11},                                             /* 1.1 in float64: 11.000000000000002 */
    {CAPACITY(.factor = 1e9), 40, 4, 2, 40},
    {CAPACITY(.factor = 1e300, .rounding = FFN_MOE_ROUND_UP), 40, 4, 2, 40},
    {CAPACITY(.factor = 1e-9), 40, 4, 2, 0},
};

static void capacities_are_counted_as_published(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(capacity_cases); c++) {
        const capacity_case_t *is = &capacity_cases[c];
        int32_t ids[200];
        float weights[200];
        int64_t first_kept = 0, kept = 0;
        for (int64_t i = 0; i < is->tokens * is->top_k; i++) ids[i] = (int32_t)(i % is->top_k), weights[i] = 1;
        const ffn_moe_routing_t routing = routing_of(is->tokens, is->experts, is->top_k, ids, weights);
        assert_ok(ffn_moe_limit(NULL, &is->options, &routing));
        for (int64_t t = 0; t < is->tokens; t++) { /* exactly the first ones: position < capacity, counted from 0 */
            first_kept += ids[t * is->top_k] == 0 && t < is->expected;
            kept += ids[t * is->top_k] == 0;
        }
        if (kept != is->expected || first_kept != kept)
            fail_msg("case %lld: expected %lld places, got %lld", (long long)c, (long long)is->expected, (long long)kept);
    }
}

/* A queue in plain words: the choices in order of rank; each takes a place if one is left. */
static void queue_up(int drop, int tokens, int top_k, int group, int capacity, const uint8_t *mask, int32_t *ids, float *weights)
{
    for (int begin = 0; begin < tokens; begin += group) {
        const int end = begin + group < tokens ? begin + group : tokens;
        int taken[16] = {0};
        char done[1024] = {0};
        for (;;) {
            int next = -1;
            for (int k = 0; k < top_k; k++)
                for (int t = begin; t < end; t++) {
                    const int slot = t * top_k + k;
                    if (done[slot]) continue;
                    bool better = next < 0;
                    if (!better && drop == FFN_MOE_DROP_PRIORITY)
                        better = k == next % top_k && weights[t * top_k] > weights[next / top_k * top_k];
                    if (!better && drop == FFN_MOE_DROP_PROBABILITY) better = weights[slot] > weights[next];
                    if (better) next = slot;
                }
            if (next < 0) break;
            done[next] = 1;
            if (ids[next] == NONE || !mask[next / top_k]) continue;
            if (taken[ids[next]]++ >= capacity) ids[next] = NONE;
        }
        for (int slot = begin * top_k; slot < end * top_k; slot++)
            if (ids[slot] == NONE) weights[slot] = 0;
    }
}

static void limits_drop_the_right_choices(void **state)
{
    (void)state;
    enum { TOKENS = 61, EXPERTS = 9 };
    static const int groups[] = {61, 20, 7, 1};
    for (int drop = 0; drop <= 2; drop++)
        for (int top_k = 1; top_k <= 3; top_k++)
            for (int64_t g = 0; g < COUNT_OF(groups); g++)
                for (int capacity = 1; capacity <= 12; capacity += 3) {
                    int32_t ids[TOKENS * 3], expected[TOKENS * 3];
                    float weights[TOKENS * 3], expected_weights[TOKENS * 3];
                    uint8_t mask[TOKENS];
                    rng_t rng = rng_make(test_seed() + (uint64_t)(drop * 100 + top_k));
                    for (int t = 0; t < TOKENS; t++) {
                        const int64_t from = rng_below(&rng, 4);
                        mask[t] = rng_below(&rng, 8) != 0;
                        for (int k = 0; k < top_k; k++) {
                            const int slot = t * top_k + k;
                            ids[slot] = rng_below(&rng, 9) == 0 ? NONE : (int32_t)(from + 2 * k);
                            /* descending in a row, as routers have them; many are equal */
                            weights[slot] = k == 0 ? (float)(1 + rng_below(&rng, 8)) / 8 : weights[slot - 1] * 0.5f;
                            if (ids[slot] == NONE) weights[slot] = 0;
                        }
                    }
                    memcpy(expected, ids, sizeof ids);
                    memcpy(expected_weights, weights, sizeof weights);
                    queue_up(drop, TOKENS, top_k, groups[g], capacity, mask, expected, expected_weights);
                    ffn_moe_routing_t routing = routing_of(TOKENS, EXPERTS, top_k, ids, weights);
                    routing.mask = mask;
                    const ffn_moe_capacity_options_t options = CAPACITY(.drop = (uint32_t)drop, .capacity = capacity,
                                                                        .group_tokens = g ? groups[g] : 0);
                    assert_ok(ffn_moe_limit(NULL, &options, &routing));
                    for (int slot = 0; slot < TOKENS * top_k; slot++) {
                        if (ids[slot] != expected[slot])
                            fail_msg("drop %d, top_k %d, group %d, capacity %d, slot %d: expected %d, got %d", drop, top_k, groups[g], capacity,
                                     slot, (int)expected[slot], (int)ids[slot]);
                        assert_true(weights[slot] == expected_weights[slot]);
                    }
                }
}

/* -------------------------------------------------------------------- Refused */

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define LIMIT(field, ...) PATCH(ffn_moe_capacity_options_t, field, __VA_ARGS__)
#define POLICY(field, ...) PATCH(ffn_moe_second_options_t, field, __VA_ARGS__)

static const refused_t capacity_refusals[] = {
    {LIMIT(struct_size, 3), "struct_size"},     {LIMIT(flags, 2), "flags of the capacity is 0x2"},
    {LIMIT(drop, 3), "drop is 3|0 to 2"},       {LIMIT(rounding, 3), "rounding is 3|0 to 2"},
    {LIMIT(capacity, -1), "capacity is -1"},    {LIMIT(capacity, 5), "capacity is 5|factor"},
    {LIMIT(minimum, -1), "minimum is -1"},      {LIMIT(group_tokens, -1), "group_tokens is -1"},
    {LIMIT(factor, 0), "factor is 0|above 0"},  {LIMIT(factor, NAN), "factor is"},
    {LIMIT(factor, INFINITY), "factor is inf"}, {LIMIT(factor, -1), "factor is -1"},
};

static const refused_t policy_refusals[] = {
    {POLICY(struct_size, 3), "struct_size"},      {POLICY(flags, 1), "flags of the policy is 1"},
    {POLICY(policy, 0), "policy is 0|1 to 4"},    {POLICY(policy, 5), "policy is 5|1 to 4"},
    {POLICY(threshold, 0), "threshold is 0|above 0"}, {POLICY(threshold, NAN), "threshold is"},
    {POLICY(threshold, INFINITY), "threshold is inf"}, {POLICY(policy, FFN_MOE_SECOND_NONE), "threshold is 0.5|has none"},
    {POLICY(stream, UINT64_C(1) << 32), "stream is 4294967296"}, {POLICY(first_token, -1), "first_token is -1"},
};

static void wrong_helpers_are_refused(void **state)
{
    (void)state;
    int32_t ids[4] = {0, 1, 2, 0}, before[4] = {0, 1, 2, 0};
    float weights[4] = {1, 1, 1, 1}, logits[6] = {0};
    ffn_moe_routing_t routing = routing_of(2, 3, 2, ids, weights);
    const ffn_moe_capacity_options_t capacity = CAPACITY(.factor = 1, .minimum = 1);
    const ffn_moe_second_options_t second = SECOND(.policy = FFN_MOE_SECOND_THRESHOLD, .threshold = 0.5f);
    for (int64_t i = 0; i < COUNT_OF(capacity_refusals); i++) {
        ffn_moe_capacity_options_t o = capacity;
        patch_apply(&capacity_refusals[i].patch, &o);
        forget_error();
        assert_refused(ffn_moe_limit(NULL, &o, &routing), FFN_INVALID, capacity_refusals[i].words, capacity_refusals[i].patch.text);
    }
    for (int64_t i = 0; i < COUNT_OF(policy_refusals); i++) {
        ffn_moe_second_options_t o = second;
        patch_apply(&policy_refusals[i].patch, &o);
        forget_error();
        assert_refused(ffn_moe_second_expert(&o, NULL, &routing), FFN_INVALID, policy_refusals[i].words, policy_refusals[i].patch.text);
    }
    const ffn_moe_second_options_t sampled = SECOND(.policy = FFN_MOE_SECOND_SAMPLED);
    assert_refused(ffn_moe_limit(NULL, NULL, &routing), FFN_INVALID, "NULL", "options");
    assert_refused(ffn_moe_limit(NULL, &capacity, NULL), FFN_INVALID, "NULL", "routing");
    assert_refused(ffn_moe_second_expert(&sampled, NULL, &routing), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_second_expert(NULL, NULL, &routing), FFN_INVALID, "NULL", "options");
    assert_refused(ffn_moe_sparse_mixer(NULL, -1, logits, &routing), FFN_INVALID, "jitter_eps is -1", "jitter_eps");
    assert_refused(ffn_moe_sparse_mixer(NULL, NAN, logits, &routing), FFN_INVALID, "jitter_eps is", "jitter_eps");
    assert_refused(ffn_moe_sparse_mixer(NULL, 0, NULL, &routing), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_expert_choice(NULL, 0, 0, logits, &routing), FFN_INVALID, "capacity is 0", "capacity");
    assert_refused(ffn_moe_expert_choice(NULL, 1, -1, logits, &routing), FFN_INVALID, "group_tokens is -1", "group_tokens");
    assert_refused(ffn_moe_expert_choice(NULL, 1, 0, NULL, &routing), FFN_INVALID, "scores is NULL", "scores");
    routing.top_k = 1;
    assert_refused(ffn_moe_sparse_mixer(NULL, 0, logits, &routing), FFN_INVALID, "top_k is 1|2", "top_k");
    assert_refused(ffn_moe_second_expert(&second, NULL, &routing), FFN_INVALID, "top_k is 1|2", "top_k");
    routing.top_k = 2;
    assert_memory_equal(ids, before, sizeof ids);
    ids[1] = 0;
    assert_refused(ffn_moe_limit(NULL, &capacity, &routing), FFN_INVALID, "token 0 has expert 0 twice", "ids");
    assert_refused(ffn_moe_second_expert(&second, NULL, &routing), FFN_INVALID, "token 0 has expert 0 twice", "ids");
    ids[1] = 3;
    assert_refused(ffn_moe_limit(NULL, &capacity, &routing), FFN_INVALID, "token 0 is 3|0 to 2", "ids");
    routing.tokens = 0, routing.ids = NULL, routing.weights = NULL;
    assert_ok(ffn_moe_limit(NULL, &capacity, &routing));
    assert_ok(ffn_moe_second_expert(&second, NULL, &routing));
    assert_ok(ffn_moe_sparse_mixer(NULL, 0, NULL, &routing));
    assert_ok(ffn_moe_expert_choice(NULL, 1, 0, NULL, &routing));
    assert_ok(ffn_moe_hash(NULL, 1, NULL, &routing));
}

static void scratch_limits_are_kept(void **state)
{
    (void)state;
    int32_t ids[4] = {0, 1, 2, 0};
    float weights[4] = {1, 1, 1, 1}, scores[6] = {0};
    const ffn_context_options_t limits = {.struct_size = sizeof limits, .threads = 1, .scratch_limit = 16};
    const ffn_moe_capacity_options_t by_weight = CAPACITY(.capacity = 1, .drop = FFN_MOE_DROP_PROBABILITY), by_place = CAPACITY(.capacity = 1);
    const ffn_moe_routing_t routing = routing_of(2, 3, 2, ids, weights);
    ffn_context_t *context;
    assert_ok(ffn_context_create(&limits, &context));
    assert_refused(ffn_moe_limit(context, &by_weight, &routing), FFN_NO_MEMORY, "scratch_limit|16", "limit");
    assert_refused(ffn_moe_expert_choice(context, 1, 0, scores, &routing), FFN_NO_MEMORY, "scratch_limit|16", "limit");
    assert_int_equal(ids[3], 0);
    assert_ok(ffn_moe_limit(context, &by_place, &routing));
    ffn_context_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_mixer_follows_its_formula),
        cmocka_unit_test(sparse_mixer_takes_rows_without_numbers_and_padding),
        cmocka_unit_test(every_expert_takes_its_best_tokens),
        cmocka_unit_test(hash_reads_the_table_of_the_tokens),
        cmocka_unit_test(hash_refuses_what_is_not_in_the_table),
        cmocka_unit_test(second_choices_are_kept_by_policy),
        cmocka_unit_test(sampled_second_choices_follow_the_noise),
        cmocka_unit_test(the_partner_of_a_dropped_choice_gets_weight_1),
        cmocka_unit_test(capacities_are_counted_as_published),
        cmocka_unit_test(limits_drop_the_right_choices),
        cmocka_unit_test(wrong_helpers_are_refused),
        cmocka_unit_test(scratch_limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
