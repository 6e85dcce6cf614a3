/* SPDX-License-Identifier: MIT
 *
 * The routing rule of every published family, as options of ffn_moe_route, against its own formula in float64 (support/moe_rules.h).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/layer_check.h"
#include "support/moe_rules.h"
#include "support/random.h"
#include "support/test.h"

enum { TOKENS = 200, MOST = ORACLE_EXPERTS_MOST };

typedef struct arrays {
    float logits[TOKENS * MOST], bias[MOST], expert_scale[MOST];
    int32_t ids[TOKENS * MOST];
    float weights[TOKENS * MOST];
} arrays_t;

static oracle_token_t reference_token(const moe_family_t *f, const arrays_t *a, int64_t row)
{
    oracle_token_t t = {.experts = f->experts, .top_k = f->top_k};
    for (int e = 0; e < f->experts; e++) {
        t.z[e] = (double)a->logits[row * f->experts + e];
        t.bias[e] = f->biased ? (double)a->bias[e] : 0;
        t.scale[e] = f->scaled ? (double)a->expert_scale[e] : 1;
    }
    f->rule(&t);
    return t;
}

/* True if the ids are the reference's. Two whose choice float32 cannot tell apart may have changed places; then the row is left out. */
static bool same_ids(const moe_family_t *f, const oracle_token_t *t, const int32_t *ids, int64_t row)
{
    for (int k = 0; k < f->top_k; k++) {
        if (ids[k] == t->ids[k]) continue;
        const double got = t->choice[ids[k]], expected = t->choice[t->ids[k]];
        if (!(fabs(got - expected) <= 0x1p-22 * fmax(fabs(expected), 1e-3)))
            fail_msg("%s, token %lld, choice %d: expected expert %d (%.9g), got %d (%.9g)", f->name, (long long)row, k, t->ids[k], expected,
                     (int)ids[k], got);
        return false;
    }
    return true;
}

static void every_family_follows_its_formula(void **state)
{
    (void)state;
    arrays_t *a = test_alloc(sizeof *a);
    for (int64_t i = 0; i < moe_family_count; i++) {
        const moe_family_t *f = &moe_families[i];
        rng_t rng = rng_make(test_seed() + (uint64_t)i);
        int64_t left_out = 0;
        if (!f->options.struct_size) continue;
        rng_fill_normal(&rng, a->logits, TOKENS * f->experts);
        rng_fill_uniform(&rng, a->bias, f->experts, -1.0f, 0.4f);
        rng_fill_uniform(&rng, a->expert_scale, f->experts, 0.5f, 2.0f);
        for (int64_t k = 0; k < TOKENS * f->experts; k++) a->logits[k] *= 3; /* some far from the middle */
        const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = TOKENS, .experts = f->experts, .top_k = f->top_k, .ids = a->ids,
                                           .weights = a->weights};
        assert_ok(ffn_moe_route(NULL, &f->options, a->logits, f->biased ? a->bias : NULL, f->scaled ? a->expert_scale : NULL, NULL, &routing));
        for (int64_t row = 0; row < TOKENS; row++) {
            const oracle_token_t t = reference_token(f, a, row);
            if (!same_ids(f, &t, a->ids + row * f->top_k, row)) {
                left_out++;
                continue;
            }
            for (int k = 0; k < f->top_k; k++) {
                const double got = (double)a->weights[row * f->top_k + k];
                /* the score's rounding, the sum's (of scores rounded likewise), the result's; option values are rounded to float32, too */
                if (!(fabs(got - t.w[k]) <= 4 * 0x1p-24 * fabs(t.w[k])))
                    fail_msg("%s, token %lld, weight %d: expected %.9g, got %.9g", f->name, (long long)row, k, t.w[k], got);
            }
        }
        if (left_out > TOKENS / 20) fail_msg("%s: %lld of %d tokens have no clear choice", f->name, (long long)left_out, TOKENS);
    }
    free(a);
}

/* The bias that only chooses is large enough to change choices: a reference without it disagrees. */
static void the_selection_bias_changes_choices_and_no_weight(void **state)
{
    (void)state;
    const ffn_moe_router_options_t options = {.struct_size = sizeof(ffn_moe_router_options_t), .score = FFN_MOE_SCORE_SIGMOID};
    const float logits[4] = {2, 1, 0, -1}, bias[4] = {-5, 0, 0, 3};
    int32_t ids[2];
    float weights[2];
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = 1, .experts = 4, .top_k = 2, .ids = ids, .weights = weights};
    assert_ok(ffn_moe_route(NULL, &options, logits, bias, NULL, NULL, &routing));
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 1);
    assert_true(weights[0] == (float)(1 / (1 + exp(1.0))) && weights[1] == (float)(1 / (1 + exp(-1.0))));
}

/* Where s + bias is below 0, groups that are out must be -inf, not 0. */
static void dropped_groups_stay_out_where_all_choices_are_negative(void **state)
{
    (void)state;
    const ffn_moe_router_options_t options = {.struct_size = sizeof(ffn_moe_router_options_t), .score = FFN_MOE_SCORE_SIGMOID, .group_score = FFN_MOE_GROUP_TOP2_SUM, .groups = 2, .top_groups = 1};
    const float logits[4] = {0, 0, 1, 1}, bias[4] = {-2, -2, -2, -2};
    int32_t ids[2];
    float weights[2];
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = 1, .experts = 4, .top_k = 2, .ids = ids, .weights = weights};
    assert_ok(ffn_moe_route(NULL, &options, logits, bias, NULL, NULL, &routing));
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_follows_its_formula),
        cmocka_unit_test(the_selection_bias_changes_choices_and_no_weight),
        cmocka_unit_test(dropped_groups_stay_out_where_all_choices_are_negative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
