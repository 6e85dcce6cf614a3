/* SPDX-License-Identifier: MIT
 *
 * The losses of routers against their formulas in float64, their gradients against central differences of those formulas, their balanced values as
 * the header has them; counts, statistics and the bias update; and what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/random.h"
#include "support/test.h"

enum { TOKENS = 22, EXPERTS = 5, TOP_K = 2, SIZE = TOKENS * EXPERTS, NONE = FFN_MOE_NO_EXPERT };

typedef ffn_status_t loss_fn(const ffn_moe_balance_t *balance, double *value);

/* A batch in float64: each formula is written out on it. */
typedef struct batch {
    int tokens, experts, top_k, group, normalise;
    const uint8_t *mask;
    double p[SIZE], c;
    int chosen[TOKENS][TOP_K];
} batch_t;

static double probability(const batch_t *b, int t, int e)
{
    double sum = 0;
    if (!b->normalise) return b->p[t * b->experts + e];
    for (int i = 0; i < b->experts; i++) sum += b->p[t * b->experts + i];
    return b->p[t * b->experts + e] / (sum + 1e-20);
}

/* f, the fraction of the tokens of begin .. end-1 with e among their first `choices`, and P, the mean of its probability there. */
static int fractions(const batch_t *b, int begin, int end, int e, int choices, double *f, double *mean)
{
    int n = 0;
    *f = *mean = 0;
    for (int t = begin; t < end && t < b->tokens; t++) {
        if (!b->mask[t]) continue;
        n++;
        *mean += probability(b, t, e);
        for (int k = 0; k < choices; k++) *f += b->chosen[t][k] == e;
    }
    if (n) *f /= n, *mean /= n;
    return n;
}

static double mean_over_groups(const batch_t *b, int choices)
{
    double sum = 0;
    int groups = 0;
    for (int begin = 0; begin < b->tokens; begin += b->group) {
        double f, mean, group = 0;
        int n = 0;
        for (int e = 0; e < b->experts; e++) {
            n = fractions(b, begin, begin + b->group, e, choices, &f, &mean);
            group += f * mean;
        }
        groups += n > 0;
        sum += b->experts * group;
    }
    return sum / groups;
}

static double switch_loss(const batch_t *b)
{
    return b->c * mean_over_groups(b, b->top_k);
}

static double gshard_loss(const batch_t *b)
{
    return b->c * mean_over_groups(b, 1);
}

/* E sum over choices k and experts i of f_ki P_i. */
static double huggingface_loss(const batch_t *b)
{
    double sum = 0;
    for (int k = 0; k < b->top_k; k++)
        for (int e = 0; e < b->experts; e++) {
            double up_to, before, mean;
            fractions(b, 0, b->tokens, e, k + 1, &up_to, &mean);
            fractions(b, 0, b->tokens, e, k, &before, &mean);
            sum += (up_to - before) * mean;
        }
    return b->c * b->experts * sum;
}

/* E / (K T^2) sum_i (sum_t p_ti) n_i. */
static double megatron_loss(const batch_t *b)
{
    double sum = 0, tokens = 0;
    for (int t = 0; t < b->tokens; t++) tokens += b->mask[t];
    for (int e = 0; e < b->experts; e++) {
        double f, mean;
        fractions(b, 0, b->tokens, e, b->top_k, &f, &mean);
        sum += mean * tokens * (f * tokens);
    }
    return b->c * b->experts / (b->top_k * tokens * tokens) * sum;
}

static double deepseek_loss(const batch_t *b)
{
    return b->c * mean_over_groups(b, b->top_k) / b->top_k;
}

typedef struct kind {
    const char *name;
    loss_fn *loss;
    double (*reference)(const batch_t *b);
    int grouped, choices; /* choices that are counted; 0: all */
    double balanced;      /* with c = 1 and TOP_K choices */
} kind_t;

static const kind_t kinds[] = {
    {"switch", ffn_moe_loss_switch, switch_loss, 1, 0, TOP_K},
    {"gshard", ffn_moe_loss_gshard, gshard_loss, 1, 1, 1},
    {"huggingface", ffn_moe_loss_huggingface, huggingface_loss, 0, 0, TOP_K},
    {"megatron", ffn_moe_loss_megatron, megatron_loss, 0, 0, 1},
    {"deepseek", ffn_moe_loss_deepseek, deepseek_loss, 1, 0, 1},
};

static void every_loss_and_its_gradient_follow_the_formula(void **state)
{
    (void)state;
    static const int groups[] = {0, 11, 8, 1};
    for (int64_t i = 0; i < COUNT_OF(kinds); i++)
        for (int variant = 0; variant < 16; variant++) {
            const kind_t *kind = &kinds[i];
            const int group = groups[variant % 4], masked = variant / 4 % 2, normalise = variant / 8;
            if (group && !kind->grouped) continue;
            float p[SIZE], gradient[SIZE], before[SIZE];
            uint8_t mask[TOKENS];
            int32_t ids[TOKENS * TOP_K];
            int64_t counts[TOKENS * EXPERTS];
            double value;
            batch_t b = {TOKENS, EXPERTS, TOP_K, group ? group : TOKENS, normalise, mask, {0}, 0.25, {{0}}};
            rng_t rng = rng_make(test_seed() + (uint64_t)variant);
            rng_fill_uniform(&rng, p, SIZE, 0.01f, 1);
            rng_fill_normal(&rng, before, SIZE);
            memcpy(gradient, before, sizeof gradient);
            for (int t = 0; t < TOKENS; t++) {
                mask[t] = !masked || (t % 3 != 1 && t / 8 != 1); /* of groups of 8, one is padding alone */
                b.chosen[t][0] = ids[2 * t] = (int32_t)rng_below(&rng, 2);
                b.chosen[t][1] = ids[2 * t + 1] = 2 + (int32_t)rng_below(&rng, 3);
            }
            for (int k = 0; k < SIZE; k++) b.p[k] = (double)p[k];
            const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = TOKENS, .experts = EXPERTS, .top_k = TOP_K, .ids = ids,
                                               .mask = masked ? mask : NULL};
            assert_ok(ffn_moe_count(&routing, group, kind->choices, counts));
            const ffn_moe_balance_t balance = {.struct_size = sizeof balance, .flags = normalise ? FFN_MOE_LOSS_NORMALISE : 0, .tokens = TOKENS,
                                               .experts = EXPERTS, .top_k = TOP_K, .group_tokens = group, .probabilities = p, .counts = counts,
                                               .mask = masked ? mask : NULL, .gradient = gradient, .coefficient = b.c};
            assert_ok(kind->loss(&balance, &value));
            if (!(fabs(value - kind->reference(&b)) <= 1e-13)) fail_msg("%s, variant %d: expected %.15g, got %.15g", kind->name, variant,
                                                                        kind->reference(&b), value);
            for (int k = 0; k < SIZE; k++) {
                const double step = 1e-5, at = b.p[k];
                b.p[k] = at + step;
                const double above = kind->reference(&b);
                b.p[k] = at - step;
                const double slope = (above - kind->reference(&b)) / (2 * step);
                b.p[k] = at;
                const double got = (double)gradient[k] - (double)before[k]; /* added: rounded at the size of what was there */
                if (!(fabs(got - slope) <= 1e-9 + 0x1p-23 * (fabs((double)before[k]) + fabs(slope))))
                    fail_msg("%s, variant %d, gradient %d: expected %.9g, got %.9g", kind->name, variant, k, slope, got);
            }
        }
}

static void balanced_losses_have_the_documented_values(void **state)
{
    (void)state;
    enum { BALANCED = 20 };
    float p[BALANCED * EXPERTS];
    int32_t ids[BALANCED * TOP_K];
    int64_t counts[EXPERTS];
    for (int t = 0; t < BALANCED; t++)
        for (int k = 0; k < TOP_K; k++) ids[t * TOP_K + k] = (t + k) % EXPERTS;
    for (int i = 0; i < BALANCED * EXPERTS; i++) p[i] = 0.2f;
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = BALANCED, .experts = EXPERTS, .top_k = TOP_K, .ids = ids};
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        ffn_moe_balance_t balance = {.struct_size = sizeof balance, .tokens = BALANCED, .experts = EXPERTS, .top_k = TOP_K, .probabilities = p,
                                     .counts = counts};
        double value;
        assert_ok(ffn_moe_count(&routing, 0, kinds[i].choices, counts));
        assert_ok(kinds[i].loss(&balance, &value));
        assert_near(value, kinds[i].balanced, 1e-6);
        balance.coefficient = 0.01;
        assert_ok(kinds[i].loss(&balance, &value));
        assert_near(value, 0.01 * kinds[i].balanced, 1e-8);
    }
}

/* ---------------------------------------------------------------------- z-loss */

static double z_loss(const double *z, const uint8_t *mask, double c)
{
    double sum = 0;
    int n = 0;
    for (int t = 0; t < TOKENS; t++) {
        double total = 0;
        if (!mask[t]) continue;
        for (int e = 0; e < EXPERTS; e++) total += exp(z[t * EXPERTS + e]);
        sum += log(total) * log(total);
        n++;
    }
    return c * sum / n;
}

static void the_z_loss_and_its_gradient_follow_the_formula(void **state)
{
    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        float logits[SIZE], gradient[SIZE] = {0};
        double z[SIZE], value;
        uint8_t mask[TOKENS];
        rng_t rng = rng_make(test_seed());
        rng_fill_normal(&rng, logits, SIZE);
        for (int i = 0; i < SIZE; i++) z[i] = (double)(logits[i] *= 3);
        for (int t = 0; t < TOKENS; t++) mask[t] = !masked || t % 4 != 2;
        assert_ok(ffn_moe_loss_z(TOKENS, EXPERTS, logits, masked ? mask : NULL, 0.5, gradient, &value));
        assert_near(value, z_loss(z, mask, 0.5), 1e-9);
        for (int i = 0; i < SIZE; i++) {
            const double at = z[i], step = 1e-5;
            z[i] = at + step;
            const double above = z_loss(z, mask, 0.5);
            z[i] = at - step;
            const double slope = (above - z_loss(z, mask, 0.5)) / (2 * step);
            z[i] = at;
            assert_near((double)gradient[i], slope, 1e-8 + 0x1p-24 * fabs(slope)); /* the difference's error, and a float's */
        }
    }
    const float huge[2] = {1e4f, -1e4f}, zeros[4] = {0};
    double value;
    assert_ok(ffn_moe_loss_z(1, 2, huge, NULL, 0, NULL, &value)); /* no overflow */
    assert_near(value, 1e8, 1e-4);
    assert_ok(ffn_moe_loss_z(1, 4, zeros, NULL, 0, NULL, &value));
    assert_near(value, log(4) * log(4), 1e-10);
    assert_ok(ffn_moe_loss_z(1, 4, zeros, (const uint8_t[1]){0}, 0, NULL, &value));
    assert_true(value == 0);
}

/* --------------------------------------------------------- Counts, statistics */

static void counts_and_statistics_are_those_of_the_routing(void **state)
{
    (void)state;
    int32_t ids[5 * 2] = {0, 1, 1, NONE, NONE, NONE, 0, 1, 0, 2};
    const uint8_t mask[5] = {1, 1, 1, 0, 1};
    const float scores[5 * 4] = {1, 0, 0, 0, .25f, .25f, .25f, .25f, 2, 2, 0, 0, NAN, 0, 0, 0, 0, 0, 3, 0};
    int64_t counts[3 * 4];
    ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = 5, .experts = 4, .top_k = 2, .ids = ids, .mask = mask};
    ffn_moe_statistics_t s = {.struct_size = sizeof s};
    const int64_t all[4] = {2, 2, 1, 0}, first[4] = {2, 1, 0, 0}, pairs[12] = {1, 2, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0};
    assert_ok(ffn_moe_count(&routing, 0, 0, counts));
    assert_memory_equal(counts, all, sizeof all);
    assert_ok(ffn_moe_count(&routing, 0, 1, counts));
    assert_memory_equal(counts, first, sizeof first);
    assert_ok(ffn_moe_count(&routing, 2, 2, counts));
    assert_memory_equal(counts, pairs, sizeof pairs);
    assert_ok(ffn_moe_statistics(&routing, scores, &s));
    assert_true(s.tokens == 4 && s.assignments == 5 && s.dropped == 3 && s.lost_tokens == 1 && s.idle_experts == 1 && s.largest_load == 2);
    assert_near(s.load_entropy, -(0.4 * log(0.4) * 2 + 0.2 * log(0.2)), 1e-15);
    assert_near(s.router_entropy, (log(4) + log(2)) / 4, 1e-15);
    assert_ok(ffn_moe_statistics(&routing, NULL, &s));
    assert_true(s.router_entropy == 0);
    routing.mask = NULL;
    assert_ok(ffn_moe_statistics(&routing, scores, &s));
    assert_true(isnan(s.router_entropy) && s.tokens == 5);
    routing.tokens = 0, routing.ids = NULL;
    assert_ok(ffn_moe_statistics(&routing, NULL, &s));
    assert_true(s.tokens == 0 && s.dropped == 0 && s.idle_experts == 4 && s.load_entropy == 0 && s.router_entropy == 0);
    assert_ok(ffn_moe_count(&routing, 0, 0, counts));
    assert_true(counts[0] == 0 && counts[3] == 0);
}

static void an_older_caller_gets_the_statistics_that_it_knows(void **state)
{
    (void)state;
    int32_t ids[1] = {0};
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = 1, .experts = 1, .top_k = 1, .ids = ids};
    ffn_moe_statistics_t s = {.struct_size = offsetof(ffn_moe_statistics_t, dropped), .dropped = 42};
    assert_ok(ffn_moe_statistics(&routing, NULL, &s));
    assert_true(s.tokens == 1 && s.assignments == 1 && s.dropped == 42);
}

static void the_bias_goes_towards_the_mean(void **state)
{
    (void)state;
    const int64_t counts[4] = {10, 2, 4, 0}, even[3] = {INT64_C(1) << 43, INT64_C(1) << 43, INT64_C(1) << 43};
    float bias[4] = {0.5f, 0, -1, 2};
    assert_ok(ffn_moe_update_bias(4, counts, 0.25f, bias));
    assert_true(bias[0] == 0.25f && bias[1] == 0.25f && bias[2] == -1 && bias[3] == 2.25f);
    assert_ok(ffn_moe_update_bias(3, even, 0.25f, bias));
    assert_true(bias[0] == 0.25f && bias[1] == 0.25f && bias[2] == -1);
}

/* -------------------------------------------------------------------- Refused */

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define BALANCE(field, ...) PATCH(ffn_moe_balance_t, field, __VA_ARGS__)

static float good_p[8], gradient[8];
static const int64_t good_counts[4] = {1, 1, 1, 1}, negative[4] = {1, -1, 1, 1}, too_many[4] = {3, 0, 0, 0}, doubled[4] = {2, 2, 2, 0};

static const refused_t refusals[] = {
    {BALANCE(struct_size, 3), "struct_size"},
    {BALANCE(flags, 2), "flags of the loss is 0x2"},
    {BALANCE(tokens, -1), "tokens is -1"},
    {BALANCE(experts, 0), "experts is 0|1 to 768"},
    {BALANCE(experts, 769), "experts is 769"},
    {BALANCE(top_k, 0), "top_k is 0|1 to 4"},
    {BALANCE(top_k, 5), "top_k is 5|1 to 4"},
    {BALANCE(group_tokens, -1), "group_tokens is -1"},
    {BALANCE(coefficient, NAN), "coefficient is"},
    {BALANCE(coefficient, INFINITY), "coefficient is inf"},
    {BALANCE(probabilities, NULL), "probabilities is NULL"},
    {BALANCE(counts, NULL), "counts is NULL"},
    {BALANCE(counts, negative), "counts[0][1] is -1|0 to 2"},
    {BALANCE(counts, too_many), "counts[0][0] is 3|0 to 2"},
    {BALANCE(counts, doubled), "group 0 add up to 6|at most 4|Switch"},
    {BALANCE(gradient, good_p + 1), "probabilities overlaps gradient"},
    {BALANCE(mask, (const uint8_t *)gradient), "mask overlaps gradient"},
};

static void wrong_losses_are_refused(void **state)
{
    (void)state;
    const ffn_moe_balance_t right = {.struct_size = sizeof right, .tokens = 2, .experts = 4, .top_k = 2, .probabilities = good_p,
                                     .counts = good_counts, .gradient = gradient};
    double value = 42;
    for (int64_t i = 0; i < COUNT_OF(refusals); i++) {
        ffn_moe_balance_t balance = right;
        patch_apply(&refusals[i].patch, &balance);
        forget_error();
        value = 42;
        assert_refused(ffn_moe_loss_switch(&balance, &value), FFN_INVALID, refusals[i].words, refusals[i].patch.text);
        assert_true(value == 0);
    }
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        ffn_moe_balance_t grouped = right;
        grouped.group_tokens = 2, grouped.gradient = NULL;
        if (!kinds[i].grouped) assert_refused(kinds[i].loss(&grouped, &value), FFN_INVALID, "group_tokens is 2|0 to 0", kinds[i].name);
        else if (!kinds[i].choices) assert_ok(kinds[i].loss(&grouped, &value));
        assert_refused(kinds[i].loss(&right, NULL), FFN_INVALID, "value is NULL", kinds[i].name);
        assert_refused(kinds[i].loss(NULL, &value), FFN_INVALID, "ffn_moe_balance_t is NULL", kinds[i].name);
    }
    assert_refused(ffn_moe_loss_gshard(&right, &value), FFN_INVALID, "add up to 4|at most 2|GShard", "counts of all choices");
    ffn_moe_balance_t nothing = right;
    nothing.tokens = 0, nothing.probabilities = NULL, nothing.counts = NULL, nothing.gradient = NULL;
    assert_ok(ffn_moe_loss_switch(&nothing, &value));
    for (int i = 0; i < 8; i++) assert_true(gradient[i] == 0);
}

static void other_wrong_arguments_are_refused(void **state)
{
    (void)state;
    int32_t ids[4] = {0, 1, 2, 2};
    int64_t counts[3];
    float bias[3] = {1, 2, 3};
    double value;
    ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = 2, .experts = 3, .top_k = 2, .ids = ids};
    ffn_moe_statistics_t s = {.struct_size = sizeof s, .tokens = 42};
    assert_refused(ffn_moe_count(&routing, 0, 0, counts), FFN_INVALID, "token 1 has expert 2 twice", "ids");
    assert_refused(ffn_moe_statistics(&routing, NULL, &s), FFN_INVALID, "token 1 has expert 2 twice", "ids");
    assert_true(s.tokens == 42);
    ids[3] = 1;
    assert_refused(ffn_moe_count(NULL, 0, 0, counts), FFN_INVALID, "NULL", "routing");
    assert_refused(ffn_moe_count(&routing, -1, 0, counts), FFN_INVALID, "group_tokens is -1", "group_tokens");
    assert_refused(ffn_moe_count(&routing, 0, 3, counts), FFN_INVALID, "choices is 3|0 to 2", "choices");
    assert_refused(ffn_moe_count(&routing, 0, -1, counts), FFN_INVALID, "choices is -1", "choices");
    assert_refused(ffn_moe_count(&routing, 0, 0, NULL), FFN_INVALID, "counts is NULL", "counts");
    assert_refused(ffn_moe_count(&routing, 0, 0, (int64_t *)(void *)((char *)counts + 4)), FFN_INVALID, "counts|multiple of 8", "counts");
    assert_refused(ffn_moe_statistics(NULL, NULL, &s), FFN_INVALID, "NULL", "routing");
    assert_refused(ffn_moe_statistics(&routing, NULL, NULL), FFN_INVALID, "ffn_moe_statistics_t is NULL", "statistics");
    assert_refused(ffn_moe_statistics(&routing, (const float *)(const void *)((const char *)bias + 1), &s), FFN_INVALID, "scores|multiple of 4", "scores");
    routing.ids = NULL;
    assert_refused(ffn_moe_statistics(&routing, NULL, &s), FFN_INVALID, "ids of the routing is NULL", "ids");
    assert_refused(ffn_moe_loss_z(-1, 4, good_p, NULL, 0, NULL, &value), FFN_INVALID, "tokens is -1", "tokens");
    assert_refused(ffn_moe_loss_z(1, 0, good_p, NULL, 0, NULL, &value), FFN_INVALID, "experts is 0", "experts");
    assert_refused(ffn_moe_loss_z(1, 4, NULL, NULL, 0, NULL, &value), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_loss_z(1, 4, good_p, NULL, NAN, NULL, &value), FFN_INVALID, "coefficient is", "coefficient");
    assert_refused(ffn_moe_loss_z(1, 4, good_p, NULL, 0, good_p, &value), FFN_INVALID, "logits overlaps gradient", "gradient");
    assert_refused(ffn_moe_loss_z(1, 4, good_p, NULL, 0, NULL, NULL), FFN_INVALID, "value is NULL", "value");
    assert_ok(ffn_moe_loss_z(0, 4, NULL, NULL, 0, NULL, &value));
    assert_refused(ffn_moe_update_bias(0, good_counts, 0.1f, bias), FFN_INVALID, "experts is 0", "experts");
    assert_refused(ffn_moe_update_bias(3, NULL, 0.1f, bias), FFN_INVALID, "counts is NULL", "counts");
    assert_refused(ffn_moe_update_bias(3, good_counts, 0.1f, NULL), FFN_INVALID, "selection_bias is NULL", "bias");
    assert_refused(ffn_moe_update_bias(3, negative, 0.1f, bias), FFN_INVALID, "a count is -1", "counts");
    assert_refused(ffn_moe_update_bias(3, good_counts, NAN, bias), FFN_INVALID, "rate is", "rate");
    assert_refused(ffn_moe_update_bias(3, good_counts, -1, bias), FFN_INVALID, "rate is -1", "rate");
    assert_true(bias[0] == 1 && bias[1] == 2 && bias[2] == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loss_and_its_gradient_follow_the_formula),
        cmocka_unit_test(balanced_losses_have_the_documented_values),
        cmocka_unit_test(the_z_loss_and_its_gradient_follow_the_formula),
        cmocka_unit_test(counts_and_statistics_are_those_of_the_routing),
        cmocka_unit_test(an_older_caller_gets_the_statistics_that_it_knows),
        cmocka_unit_test(the_bias_goes_towards_the_mean),
        cmocka_unit_test(wrong_losses_are_refused),
        cmocka_unit_test(other_wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
