/* SPDX-License-Identifier: MIT */
#include "support/moe_rules.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

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

static void pick(oracle_token_t *t)
{
    char taken[ORACLE_EXPERTS_MOST] = {0};
    for (int k = 0; k < t->top_k; k++) {
        int best = -1;
        for (int e = 0; e < t->experts; e++)
            if (!taken[e] && (best < 0 || t->choice[e] > t->choice[best])) best = e;
        taken[t->ids[k] = best] = 1;
    }
}

static void take(oracle_token_t *t, const double *s)
{
    for (int k = 0; k < t->top_k; k++) t->w[k] = s[t->ids[k]];
}

static double sum(const oracle_token_t *t)
{
    double total = 0;
    for (int k = 0; k < t->top_k; k++) total += t->w[k];
    return total;
}

static void divide(oracle_token_t *t, double by)
{
    for (int k = 0; k < t->top_k; k++) t->w[k] /= by;
}

static void softmax_top_k(oracle_token_t *t)
{
    double p[ORACLE_EXPERTS_MOST];
    softmax(t->experts, t->z, p);
    memcpy(t->choice, p, sizeof p);
    pick(t);
    take(t, p);
}

static void biased_top_k(oracle_token_t *t, const double *s)
{
    for (int e = 0; e < t->experts; e++) t->choice[e] = s[e] + t->bias[e];
    pick(t);
    take(t, s);
}

static void sigmoid_top_k(oracle_token_t *t)
{
    double s[ORACLE_EXPERTS_MOST];
    for (int e = 0; e < t->experts; e++) s[e] = sigmoid(t->z[e]);
    biased_top_k(t, s);
}

/* Takes the experts of all but the best `stay` of `groups` groups out of the choice. */
static void mask_groups(oracle_token_t *t, int groups, int stay, int best_of_group)
{
    const int size = t->experts / groups;
    double score[ORACLE_EXPERTS_MOST];
    char kept[ORACLE_EXPERTS_MOST] = {0};
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

static void mixtral(oracle_token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t));
}

static void topk_then_softmax(oracle_token_t *t)
{
    double chosen[ORACLE_EXPERTS_MOST];
    memcpy(t->choice, t->z, sizeof t->choice);
    pick(t);
    for (int k = 0; k < t->top_k; k++) chosen[k] = t->z[t->ids[k]];
    softmax(t->top_k, chosen, t->w);
}

static void dbrx_p2(oracle_token_t *t)
{
    double squares = 0;
    softmax_top_k(t);
    for (int k = 0; k < t->top_k; k++) squares += t->w[k] * t->w[k];
    divide(t, sqrt(squares));
}

static void deepseek_v2_greedy(oracle_token_t *t)
{
    softmax_top_k(t);
    divide(t, 1 / 16.0);
}

static void deepseek_v2_grouped(oracle_token_t *t)
{
    double p[ORACLE_EXPERTS_MOST];
    softmax(t->experts, t->z, p);
    memcpy(t->choice, p, sizeof p);
    mask_groups(t, 8, 3, 1);
    pick(t);
    take(t, p);
    divide(t, 1 / 16.0);
}

static void deepseek_v2_normalised(oracle_token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t) + 1e-20);
}

static void deepseek_v3(oracle_token_t *t)
{
    double s[ORACLE_EXPERTS_MOST];
    for (int e = 0; e < t->experts; e++) t->choice[e] = (s[e] = sigmoid(t->z[e])) + t->bias[e];
    mask_groups(t, 8, 4, 2);
    pick(t);
    take(t, s);
    divide(t, (sum(t) + 1e-20) / 2.5);
}

static void minimax_m2(oracle_token_t *t)
{
    sigmoid_top_k(t);
    divide(t, sum(t));
}

static void ernie(oracle_token_t *t)
{
    double p[ORACLE_EXPERTS_MOST];
    softmax(t->experts, t->z, p);
    biased_top_k(t, p);
    divide(t, fmax(sum(t), 1e-12));
}

static void longcat(oracle_token_t *t)
{
    double p[ORACLE_EXPERTS_MOST];
    softmax(t->experts, t->z, p);
    biased_top_k(t, p);
    divide(t, 1 / 6.0);
}

static void lfm2(oracle_token_t *t)
{
    sigmoid_top_k(t);
    divide(t, sum(t) + 1e-6);
}

static void afmoe(oracle_token_t *t)
{
    sigmoid_top_k(t);
    divide(t, (sum(t) + 1e-20) / 2.826);
}

static void llama4(oracle_token_t *t)
{
    memcpy(t->choice, t->z, sizeof t->choice);
    pick(t);
    for (int k = 0; k < t->top_k; k++) t->w[k] = sigmoid(t->z[t->ids[k]]);
}

static void deepseek_v4(oracle_token_t *t)
{
    double s[ORACLE_EXPERTS_MOST];
    for (int e = 0; e < t->experts; e++) s[e] = sqrt(log1p(exp(-fabs(t->z[e]))) + fmax(t->z[e], 0));
    biased_top_k(t, s);
    divide(t, (sum(t) + 1e-20) / 1.5);
}

static void gemma4(oracle_token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t));
    for (int k = 0; k < t->top_k; k++) t->w[k] *= t->scale[t->ids[k]];
}

static void gshard(oracle_token_t *t)
{
    softmax_top_k(t);
    divide(t, sum(t) + 1e-9);
}

static void nllb(oracle_token_t *t)
{
    softmax_top_k(t);
    divide(t, fmax(sum(t), 1.1920928955078125e-7));
}

static void megatron_sqrtsoftplus(oracle_token_t *t)
{
    double s[ORACLE_EXPERTS_MOST];
    for (int e = 0; e < t->experts; e++) s[e] = sqrt(log1p(exp(-fabs(t->z[e]))) + fmax(t->z[e], 0));
    biased_top_k(t, s);
    divide(t, sum(t) + 1e-20);
}

/* Pass 1: the largest logit, and the softmax over those near it. Pass 2: the same without the first choice. */
static void sparse_mixer(oracle_token_t *t)
{
    const double jitter = 0.01;
    t->ids[0] = t->ids[1] = -1;
    for (int k = 0; k < 2; k++) {
        int best = -1;
        for (int e = 0; e < t->experts; e++)
            if (!(k && e == t->ids[0]) && (best < 0 || t->z[e] > t->z[best])) best = e;
        const double m = t->z[best];
        double sum = 0;
        for (int e = 0; e < t->experts; e++) {
            const bool out = (k && e == t->ids[0]) || (m - t->z[e]) / fmax(fabs(t->z[e]), m) > 2 * jitter;
            if (!out || e == best) sum += exp(t->z[e] - m);
        }
        t->ids[k] = best;
        t->w[k] = 1 / sum;
    }
    memcpy(t->choice, t->z, sizeof t->choice);
}

#define SIZE .struct_size = sizeof(ffn_moe_router_options_t)
#define GROUPS(kind, all, stay) .group_score = FFN_MOE_GROUP_##kind, .groups = all, .top_groups = stay
#define SUM .normalise = FFN_MOE_NORMALISE_SUM

const moe_family_t moe_families[] = {
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
    {"PhiMoE", 16, 2, 0, 0, {0}, sparse_mixer},
    {"V-MoE, tokens choose", 32, 2, 0, 0, {SIZE}, softmax_top_k},
    {"Megatron, softmax after top-k", 64, 4, 0, 0, {SIZE, .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX}, topk_then_softmax},
    {"Megatron, sqrtsoftplus", 64, 4, 1, 0, {SIZE, .score = FFN_MOE_SCORE_SQRT_SOFTPLUS, SUM, .eps_added = 1e-20f}, megatron_sqrtsoftplus},
};

const int64_t moe_family_count = COUNT_OF(moe_families);

const moe_family_t *moe_family(const char *name)
{
    for (int64_t i = 0; i < moe_family_count; i++)
        if (strncmp(moe_families[i].name, name, strlen(name)) == 0) return &moe_families[i];
    fail_msg("there is no rule called %s", name);
    return NULL;
}
