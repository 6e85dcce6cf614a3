/* SPDX-License-Identifier: MIT
 *
 * The routing rule of every published family, as options of ffn_moe_route, against its own formula in float64. A reference here is written from the
 * family's formula alone: softmax or sigmoid, pick the largest again and again, and what the family does to the weights.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

enum { TOKENS = 200, MOST = 512 };

/* A token in float64: logits, and what the reference makes of them. */
typedef struct token {
    int experts, top_k;
    double z[MOST], bias[MOST], expert_scale[MOST];
    double choice[MOST]; /* what the ids are chosen by; -INFINITY: out */
    int ids[MOST];
    double w[MOST];
} token_t;

typedef void reference_fn(token_t *t);

/* --------------------------------------------------------- Parts of formulas */

static void softmax(int n, const double *z, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) most = fmax(most, z[i]);
    for (int i = 0; i < n; i++) sum += p[i] = exp(z[i] - most);
    for (int i = 0; i < n; i++) p[i] /= sum;
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static void pick(token_t *t)
{
    char taken[MOST] = {0};
    for (int k = 0; k < t->top_k; k++) {
        int best = -1;
        for (int e = 0; e < t->experts; e++)
            if (!taken[e] && (best < 0 || t->choice[e] > t->choice[best])) best = e;
        taken[t->ids[k] = best] = 1;
    }
}

static void take(token_t *t, const double *s)
{
    for (int k = 0; k < t->top_k; k++) t->w[k] = s[t->ids[k]];
}

static double sum(const token_t *t)
{
    double total = 0;
    for (int k = 0; k < t->top_k; k++) total += t->w[k];
    return total;
}

static void divide(token_t *t, double by)
{
    for (int k = 0; k < t->top_k; k++) t->w[k] /= by;
}

static void softmax_top_k(token_t *t)
{
    double p[MOST];
    softmax(t->experts, t->z, p);
    memcpy(t->choice, p, sizeof p);
    pick(t);
    take(t, p);
}

static void biased_top_k(token_t *t, const double *s)
{
    for (int e = 0; e < t->experts; e++) t->choice[e] = s[e] + t->bias[e];
    pick(t);
    take(t, s);
}

static void sigmoid_top_k(token_t *t)
{
    double s[MOST];
    for (int e = 0; e < t->experts; e++) s[e] = sigmoid(t->z[e]);
    biased_top_k(t, s);
}

/* Takes the experts of all but the best `stay` of `groups` groups out of the choice. */
static void mask_groups(token_t *t, int groups, int stay, int best_of_group)
{
    const int size = t->experts / groups;
    double score[MOST];
    char kept[MOST] = {0};
    for (int g = 0; g < groups; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            if (t->choice[e] > first) second = first, first = t->choice[e];
            else if (t->choice[e] > second) second = t->choice[e];
        }
        score[g] = best_of_group == 2 ? first + second : first;
    }
    for (int k = 0; k < stay; k++) {
        int best = -1;
        for (int g = 0; g < groups; g++)
            if (!kept[g] && (best < 0 || score[g] > score[best])) best = g;
        kept[best] = 1;
    }
    for (int e = 0; e < t->experts; e++)
        if (!kept[e / size]) t->choice[e] = -INFINITY;
}

/* ----------------------------------------------------------------- Families */

static void mixtral(token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t));
}

static void topk_then_softmax(token_t *t)
{
    double chosen[MOST];
    memcpy(t->choice, t->z, sizeof t->choice);
    pick(t);
    for (int k = 0; k < t->top_k; k++) chosen[k] = t->z[t->ids[k]];
    softmax(t->top_k, chosen, t->w);
}

static void dbrx_p2(token_t *t)
{
    double squares = 0;
    softmax_top_k(t);
    for (int k = 0; k < t->top_k; k++) squares += t->w[k] * t->w[k];
    divide(t, sqrt(squares));
}

static void deepseek_v2_greedy(token_t *t)
{
    softmax_top_k(t);
    divide(t, 1 / 16.0);
}

static void deepseek_v2_grouped(token_t *t)
{
    double p[MOST];
    softmax(t->experts, t->z, p);
    memcpy(t->choice, p, sizeof p);
    mask_groups(t, 8, 3, 1);
    pick(t);
    take(t, p);
    divide(t, 1 / 16.0);
}

static void deepseek_v2_normalised(token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t) + 1e-20);
}

static void deepseek_v3(token_t *t)
{
    double s[MOST];
    for (int e = 0; e < t->experts; e++) t->choice[e] = (s[e] = sigmoid(t->z[e])) + t->bias[e];
    mask_groups(t, 8, 4, 2);
    pick(t);
    take(t, s);
    divide(t, (sum(t) + 1e-20) / 2.5);
}

static void minimax_m2(token_t *t)
{
    sigmoid_top_k(t);
    divide(t, sum(t));
}

static void ernie(token_t *t)
{
    double p[MOST];
    softmax(t->experts, t->z, p);
    biased_top_k(t, p);
    divide(t, fmax(sum(t), 1e-12));
}

static void longcat(token_t *t)
{
    double p[MOST];
    softmax(t->experts, t->z, p);
    biased_top_k(t, p);
    divide(t, 1 / 6.0);
}

static void lfm2(token_t *t)
{
    sigmoid_top_k(t);
    divide(t, sum(t) + 1e-6);
}

static void afmoe(token_t *t)
{
    sigmoid_top_k(t);
    divide(t, (sum(t) + 1e-20) / 2.826);
}

static void llama4(token_t *t)
{
    memcpy(t->choice, t->z, sizeof t->choice);
    pick(t);
    for (int k = 0; k < t->top_k; k++) t->w[k] = sigmoid(t->z[t->ids[k]]);
}

static void deepseek_v4(token_t *t)
{
    double s[MOST];
    for (int e = 0; e < t->experts; e++) s[e] = sqrt(log1p(exp(-fabs(t->z[e]))) + fmax(t->z[e], 0));
    biased_top_k(t, s);
    divide(t, (sum(t) + 1e-20) / 1.5);
}

static void gemma4(token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t));
    for (int k = 0; k < t->top_k; k++) t->w[k] *= t->expert_scale[t->ids[k]];
}

static void gshard(token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t) + 1e-9);
}

static void nllb(token_t *t)
{
    softmax_top_k(t);
    divide(t, fmax(sum(t), 1.1920928955078125e-7));
}

static void megatron_sqrtsoftplus(token_t *t)
{
    double s[MOST];
    for (int e = 0; e < t->experts; e++) s[e] = sqrt(log1p(exp(-fabs(t->z[e]))) + fmax(t->z[e], 0));
    biased_top_k(t, s);
    divide(t, sum(t) + 1e-20);
}

#define SIZE .struct_size = sizeof(ffn_moe_router_options_t)
#define GROUPS(kind, all, stay) .group_score = FFN_MOE_GROUP_##kind, .groups = all, .top_groups = stay
#define SUM .normalise = FFN_MOE_NORMALISE_SUM

typedef struct family {
    const char *name;
    int experts, top_k, biased, scaled;
    ffn_moe_router_options_t options;
    reference_fn *reference;
} family_t;

static const family_t families[] = {
    {"Mixtral", 8, 2, 0, 0, {SIZE, SUM}, mixtral},
    {"MiniMax-01", 32, 2, 0, 0, {SIZE, SUM}, mixtral},
    {"Qwen1.5-MoE, Qwen2-MoE", 60, 4, 0, 0, {SIZE}, softmax_top_k},
    {"Qwen3-MoE, norm_topk_prob", 128, 8, 0, 0, {SIZE, SUM}, mixtral},
    {"Qwen3-Next", 512, 10, 0, 0, {SIZE, SUM}, mixtral},
    {"OLMoE, FlexOlmo", 64, 8, 0, 0, {SIZE}, softmax_top_k},
    {"Jamba", 16, 2, 0, 0, {SIZE}, softmax_top_k},
    {"Granite-MoE", 40, 8, 0, 0, {SIZE, .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX}, topk_then_softmax},
    {"JetMoE", 8, 2, 0, 0, {SIZE, .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX}, topk_then_softmax},
    {"Aria", 64, 6, 0, 0, {SIZE, .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX}, topk_then_softmax},
    {"gpt-oss", 32, 4, 0, 0, {SIZE, .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX}, topk_then_softmax},
    {"DBRX, p 1", 16, 4, 0, 0, {SIZE, .normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 1}, mixtral},
    {"DBRX, p 2", 16, 4, 0, 0, {SIZE, .normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 2}, dbrx_p2},
    {"DBRX, null", 16, 4, 0, 0, {SIZE}, softmax_top_k},
    {"DeepSeek-V2-Lite, greedy", 64, 6, 0, 0, {SIZE, .scale = 16}, deepseek_v2_greedy},
    {"DeepSeek-V2, group_limited_greedy", 160, 6, 0, 0, {SIZE, GROUPS(MAX, 8, 3), .scale = 16}, deepseek_v2_grouped},
    {"DeepSeek-V2, norm_topk_prob", 160, 6, 0, 0, {SIZE, SUM, .eps_added = 1e-20f}, deepseek_v2_normalised},
    {"DeepSeek-V3, R1, GLM-4.5, dots.llm1, Nemotron-H", 256, 8, 1, 0,
     {SIZE, .score = FFN_MOE_SCORE_SIGMOID, GROUPS(TOP2_SUM, 8, 4), SUM, .eps_added = 1e-20f, .scale = 2.5f}, deepseek_v3},
    {"MiniMax-M2", 256, 8, 1, 0, {SIZE, .score = FFN_MOE_SCORE_SIGMOID, SUM}, minimax_m2},
    {"ERNIE-4.5", 64, 6, 1, 0, {SIZE, SUM, .eps_least = 1e-12f}, ernie},
    {"LongCat-Flash", 48, 12, 1, 0, {SIZE, .scale = 6}, longcat},
    {"LFM2-MoE", 32, 4, 1, 0, {SIZE, .score = FFN_MOE_SCORE_SIGMOID, SUM, .eps_added = 1e-6f}, lfm2},
    {"AFMoE", 128, 8, 1, 0, {SIZE, .score = FFN_MOE_SCORE_SIGMOID, SUM, .eps_added = 1e-20f, .scale = 2.826f}, afmoe},
    {"HunYuan", 16, 1, 0, 0, {SIZE, SUM}, mixtral},
    {"Llama-4", 16, 1, 0, 0, {SIZE, .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SIGMOID}, llama4},
    {"DeepSeek-V4", 256, 6, 1, 0, {SIZE, .score = FFN_MOE_SCORE_SQRT_SOFTPLUS, SUM, .eps_added = 1e-20f, .scale = 1.5f}, deepseek_v4},
    {"Gemma-4", 128, 8, 0, 1, {SIZE, SUM}, gemma4},
    {"Switch", 32, 1, 0, 0, {SIZE}, softmax_top_k},
    {"GShard", 32, 2, 0, 0, {SIZE, SUM, .eps_added = 1e-9f}, gshard},
    {"NLLB-MoE", 128, 2, 0, 0, {SIZE, SUM, .eps_least = 1.1920929e-7f}, nllb},
    {"V-MoE, tokens choose", 32, 2, 0, 0, {SIZE}, softmax_top_k},
    {"Megatron, softmax after top-k", 64, 4, 0, 0, {SIZE, .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX}, topk_then_softmax},
    {"Megatron, sqrtsoftplus", 64, 4, 1, 0, {SIZE, .score = FFN_MOE_SCORE_SQRT_SOFTPLUS, SUM, .eps_added = 1e-20f}, megatron_sqrtsoftplus},
};

/* ------------------------------------------------------------------ The test */

typedef struct arrays {
    float logits[TOKENS * MOST], bias[MOST], expert_scale[MOST];
    int32_t ids[TOKENS * MOST];
    float weights[TOKENS * MOST];
} arrays_t;

static token_t reference_token(const family_t *f, const arrays_t *a, int64_t row)
{
    token_t t = {.experts = f->experts, .top_k = f->top_k};
    for (int e = 0; e < f->experts; e++) {
        t.z[e] = (double)a->logits[row * f->experts + e];
        t.bias[e] = f->biased ? (double)a->bias[e] : 0;
        t.expert_scale[e] = f->scaled ? (double)a->expert_scale[e] : 1;
    }
    f->reference(&t);
    return t;
}

/* True if the ids are the reference's. Two whose choice float32 cannot tell apart may have changed places; then the row is left out. */
static bool same_ids(const family_t *f, const token_t *t, const int32_t *ids, int64_t row)
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
    for (int64_t i = 0; i < COUNT_OF(families); i++) {
        const family_t *f = &families[i];
        rng_t rng = rng_make(test_seed() + (uint64_t)i);
        int64_t left_out = 0;
        rng_fill_normal(&rng, a->logits, TOKENS * f->experts);
        rng_fill_uniform(&rng, a->bias, f->experts, -1.0f, 0.4f);
        rng_fill_uniform(&rng, a->expert_scale, f->experts, 0.5f, 2.0f);
        for (int64_t k = 0; k < TOKENS * f->experts; k++) a->logits[k] *= 3; /* some far from the middle */
        const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = TOKENS, .experts = f->experts, .top_k = f->top_k, .ids = a->ids,
                                           .weights = a->weights};
        assert_ok(ffn_moe_route(NULL, &f->options, a->logits, f->biased ? a->bias : NULL, f->scaled ? a->expert_scale : NULL, NULL, &routing));
        for (int64_t row = 0; row < TOKENS; row++) {
            const token_t t = reference_token(f, a, row);
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
    const ffn_moe_router_options_t options = {SIZE, .score = FFN_MOE_SCORE_SIGMOID};
    const float logits[4] = {2, 1, 0, -1}, bias[4] = {-5, 0, 0, 3};
    int32_t ids[2];
    float weights[2];
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = 1, .experts = 4, .top_k = 2, .ids = ids, .weights = weights};
    assert_ok(ffn_moe_route(NULL, &options, logits, bias, NULL, NULL, &routing));
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 1);
    assert_true(weights[0] == (float)sigmoid(-1) && weights[1] == (float)sigmoid(1));
}

/* Where s + bias is below 0, groups that are out must be -inf, not 0. */
static void dropped_groups_stay_out_where_all_choices_are_negative(void **state)
{
    (void)state;
    const ffn_moe_router_options_t options = {SIZE, .score = FFN_MOE_SCORE_SIGMOID, GROUPS(TOP2_SUM, 2, 1)};
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
