/* SPDX-License-Identifier: MIT
 *
 * Every published family of mixtures as one layer: its options, in one call or two, against its own formula in float64. The routers' rules are those of
 * support/moe_rules.h; here stand what is around them - the experts, what they share, norms, what happens to choices.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/layer_check.h"
#include "support/moe_case.h"
#include "support/moe_rules.h"
#include "support/philox_reference.h"
#include "support/test.h"

enum { TOKENS = 40 };

/* --------------------------------------------------------- Rules of many tokens */

static void drop(oracle_token_t *token, int k)
{
    token->ids[k] = ORACLE_NO_EXPERT;
    token->w[k] = 0;
}

/* First choices of all tokens, then second ones, ...: those that find their expert's `capacity` places taken are dropped. */
static void queue(oracle_token_t *tokens, const int64_t *order, int64_t count, int64_t capacity)
{
    int64_t taken[ORACLE_EXPERTS_MOST] = {0};
    for (int k = 0; k < tokens[0].top_k; k++)
        for (int64_t i = 0; i < count; i++) {
            oracle_token_t *token = &tokens[order ? order[i] : i];
            if (token->ids[k] < 0) continue;
            if (taken[token->ids[k]] < capacity) taken[token->ids[k]]++;
            else drop(token, k);
        }
}

/* Switch of Hugging Face: expert_capacity per sequence, here of 20 tokens. */
static void switch_fixed(oracle_token_t *tokens, int64_t count)
{
    for (int64_t begin = 0; begin < count; begin += 20) queue(tokens + begin, NULL, count - begin < 20 ? count - begin : 20, 3);
}

/* Switch of Mesh TensorFlow: max(int(N cf / E), 4), cf 1.25. */
static void switch_mesh(oracle_token_t *tokens, int64_t count)
{
    const int64_t places = (int64_t)(1.25 * (double)count / tokens[0].experts);
    queue(tokens, NULL, count, places > 4 ? places : 4);
}

/* GShard: capacity 2 N / E at the least 4, after the policy of second choices: those of little weight go, ... */
static void gshard_capacity(oracle_token_t *tokens, int64_t count)
{
    const int64_t places = (int64_t)(2.0 * (double)count / tokens[0].experts);
    queue(tokens, NULL, count, places > 4 ? places : 4);
}

static void gshard_threshold(oracle_token_t *tokens, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        if (!(tokens[t].w[1] > (double)0.2f)) drop(&tokens[t], 1);
    gshard_capacity(tokens, count);
}

/* ... or stay with probability min(1, w / 0.2), ... */
static void gshard_random(oracle_token_t *tokens, int64_t count)
{
    static const uint32_t key[2] = {99, 0};
    for (int64_t t = 0; t < count; t++) {
        const uint32_t counter[4] = {(uint32_t)(t / 4), 0, 0, 0xffff0001};
        uint32_t random[4];
        philox_reference(counter, key, random);
        if (!(((double)random[t % 4] + 0.5) / 4294967296.0 < tokens[t].w[1] / (double)0.2f)) drop(&tokens[t], 1);
    }
    gshard_capacity(tokens, count);
}

/* ... or all go. */
static void gshard_none(oracle_token_t *tokens, int64_t count)
{
    for (int64_t t = 0; t < count; t++) drop(&tokens[t], 1);
    gshard_capacity(tokens, count);
}

/* NLLB: capacity, then the weights of those that are left over their sum, times 0.8 (1 - moe_token_dropout). The rule has no division. */
static void nllb_eval(oracle_token_t *tokens, int64_t count)
{
    queue(tokens, NULL, count, 6);
    for (int64_t t = 0; t < count; t++) {
        const double sum = fmax(tokens[t].w[0] + tokens[t].w[1], 1.1920928955078125e-7);
        for (int k = 0; k < 2; k++) tokens[t].w[k] *= (double)0.8f / sum;
    }
}

/* V-MoE: tokens in descending order of their first weight. */
static void vmoe_priority(oracle_token_t *tokens, int64_t count)
{
    int64_t *order = test_alloc((size_t)count * sizeof *order);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = i;
        for (; place > 0 && tokens[order[place - 1]].w[0] < tokens[i].w[0]; place--) order[place] = order[place - 1];
        order[place] = i;
    }
    queue(tokens, order, count, 7);
    free(order);
}

/* Each expert takes the 5 tokens of each 20 with the largest scores for it. The rule has left the scores in choice. */
static void experts_choose(oracle_token_t *tokens, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        for (int e = 0; e < tokens[t].experts; e++) tokens[t].ids[e] = ORACLE_NO_EXPERT, tokens[t].w[e] = 0;
    for (int64_t begin = 0; begin < count; begin += 20)
        for (int e = 0; e < tokens[0].experts; e++)
            for (int i = 0; i < 5; i++) {
                int64_t best = -1;
                for (int64_t t = begin; t < begin + 20 && t < count; t++)
                    if (tokens[t].ids[e] < 0 && (best < 0 || tokens[t].choice[e] > tokens[best].choice[e])) best = t;
                if (best < 0) continue;
                tokens[best].ids[e] = e;
                tokens[best].w[e] = tokens[best].choice[e];
            }
    /* slots hold a token's experts in ascending order */
    for (int64_t t = 0; t < count; t++)
        for (int e = 0, slot = 0; e < tokens[t].experts; e++) {
            if (tokens[t].ids[e] < 0) continue;
            const double w = tokens[t].w[e];
            drop(&tokens[t], e);
            tokens[t].ids[slot] = e;
            tokens[t].w[slot++] = w;
        }
}

/* ------------------------------------------------------------------- The table */

#define RMS_IN .norm = {{FFN_NORM_RMS, .weight = true, .eps = 1e-5f}}
#define LAYER_IN .norm = {{FFN_NORM_LAYER, .weight = true, .bias = true}}
#define ADD .residual = FFN_RESIDUAL_INPUT
#define SWIGLU .activation = FFN_ACTIVATION_SILU, .gated = true
#define FUSED .form = MOE_STACKS, .layout = LAYOUT_GATE_UP
#define SIZE(type) .struct_size = sizeof(ffn_moe_##type##_options_t)

static const ffn_moe_capacity_options_t capacity_fixed = {SIZE(capacity), .capacity = 3, .group_tokens = 20};
static const ffn_moe_capacity_options_t capacity_mesh = {SIZE(capacity), .factor = 1.25, .minimum = 4};
static const ffn_moe_capacity_options_t capacity_gshard = {SIZE(capacity), .factor = 2, .minimum = 4};
static const ffn_moe_capacity_options_t capacity_nllb = {SIZE(capacity), .capacity = 6};
static const ffn_moe_capacity_options_t capacity_vmoe = {SIZE(capacity), .capacity = 7, .drop = FFN_MOE_DROP_PRIORITY};
static const ffn_moe_capacity_options_t capacity_choice = {SIZE(capacity), .capacity = 5, .group_tokens = 20};
static const ffn_moe_second_options_t second_gshard = {SIZE(second), .policy = FFN_MOE_SECOND_THRESHOLD, .threshold = 0.2f};
static const ffn_moe_second_options_t second_random = {SIZE(second), .policy = FFN_MOE_SECOND_RANDOM, .threshold = 0.2f, .seed = 99};
static const ffn_moe_second_options_t second_none = {SIZE(second), .policy = FFN_MOE_SECOND_NONE};
static const ffn_moe_router_options_t router_nllb = {SIZE(router), .normalise = FFN_MOE_NORMALISE_SUM, .eps_least = 1.1920929e-7f, .scale = 0.8f};

/* A row: the family's rule (experts, top_k and the router's options come with it), and its layer. */
typedef struct family {
    const char *rule;
    moe_case_t is;
} family_t;

static const family_t families[] = {
    {"Mixtral", {.name = "Mixtral", SWIGLU, RMS_IN, ADD}},
    {"MiniMax-01", {.name = "MiniMax-01", SWIGLU, RMS_IN, .residual = FFN_RESIDUAL_NORMED, FUSED}},
    {"PhiMoE", {.name = "PhiMoE", SWIGLU, LAYER_IN, ADD, .moe = {.choose = FFN_MOE_CHOOSE_SPARSE_MIXER, .jitter_eps = 0.01f}}},
    {"Qwen1.5-MoE", {.name = "Qwen2-MoE", SWIGLU, RMS_IN, ADD, .d_shared = 30, .shared_scale = true}},
    {"Qwen3-MoE", {.name = "Qwen3-MoE", SWIGLU, RMS_IN, ADD, FUSED}},
    {"Qwen3-Next", {.name = "Qwen3-Next", SWIGLU, ADD, .norm = {{FFN_NORM_RMS, .weight = true, .offset = 1}}, .d_shared = 12, .shared_scale = true,
                    FUSED}},
    {"OLMoE", {.name = "OLMoE", SWIGLU, RMS_IN, ADD}},
    {"OLMoE", {.name = "FlexOlmo", SWIGLU, ADD, .norm = {{0}, {0}, {FFN_NORM_RMS, .weight = true}}}},
    {"Jamba", {.name = "Jamba", SWIGLU, RMS_IN, ADD}},
    {"Granite-MoE", {.name = "Granite-MoE", SWIGLU, RMS_IN, ADD, .branch_factor = 0.22f, .d_shared = 24, FUSED}},
    {"JetMoE", {.name = "JetMoE", SWIGLU, RMS_IN, ADD, .combine_bias = true, FUSED}},
    {"Aria", {.name = "Aria", SWIGLU, RMS_IN, ADD, .d_shared = 28, .form = MOE_STACKS, .layout = LAYOUT_IN_GATE_UP, .down_layout = LAYOUT_IN_OUT}},
    {"gpt-oss", {.name = "gpt-oss", .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f, .gate_max = 7, .up_limit = 7, .up_offset = 1, .gated = true,
                 .biases = BIAS_ALL, .router_bias = true, RMS_IN, ADD, .form = MOE_STACKS, .layout = LAYOUT_IN_INTERLEAVED,
                 .down_layout = LAYOUT_IN_OUT}},
    {"DBRX, p 1", {.name = "DBRX", SWIGLU, ADD, .norm = {{FFN_NORM_LAYER, .weight = true}}, .form = MOE_STACKS, .down_layout = LAYOUT_IN_OUT}},
    {"DeepSeek-V2-Lite", {.name = "DeepSeek-V2-Lite", SWIGLU, RMS_IN, ADD, .d_shared = 22}},
    {"DeepSeek-V2, group", {.name = "DeepSeek-V2", SWIGLU, RMS_IN, ADD, .d_shared = 22}},
    {"DeepSeek-V2, norm", {.name = "DeepSeek-V2, norm_topk_prob", SWIGLU, RMS_IN, ADD, .d_shared = 22}},
    {"DeepSeek-V3", {.name = "DeepSeek-V3", SWIGLU, RMS_IN, ADD, .d_shared = 11, FUSED}},
    {"MiniMax-M2", {.name = "MiniMax-M2", SWIGLU, RMS_IN, ADD}},
    {"ERNIE", {.name = "ERNIE-4.5", SWIGLU, RMS_IN, ADD, .d_shared = 22}},
    {"LongCat", {.name = "LongCat-Flash", SWIGLU, RMS_IN, .residual = FFN_RESIDUAL_EXTERNAL, .moe = {.identity_experts = 16}}},
    {"LFM2", {.name = "LFM2-MoE", SWIGLU, RMS_IN, ADD}},
    {"AFMoE", {.name = "AFMoE", SWIGLU, RMS_IN, ADD, .d_shared = 12}},
    {"HunYuan", {.name = "HunYuan", SWIGLU, RMS_IN, ADD, .d_shared = 12}},
    {"Llama-4", {.name = "Llama-4", SWIGLU, RMS_IN, ADD, .d_shared = 12, .form = MOE_STACKS, .layout = LAYOUT_IN_GATE_UP, .down_layout = LAYOUT_IN_OUT,
                 .moe = {.flags = FFN_MOE_WEIGHT_ON_INPUT}}},
    {"DeepSeek-V4", {.name = "DeepSeek-V4", SWIGLU, RMS_IN, ADD, .gate_max = 1, .up_limit = 1, .d_shared = 12,
                     .moe = {.flags = FFN_MOE_SHARED_UNCLAMPED}}},
    /* The second of two layers: the first is the dense one beside it, whose normed output is this one's external residual. */
    {"Gemma-4", {.name = "Gemma-4", .activation = FFN_ACTIVATION_GELU_TANH, .gated = true, .residual = FFN_RESIDUAL_EXTERNAL, .router_norm_weight = true,
                 .norm = {{FFN_NORM_RMS, .weight = true}, {0}, {FFN_NORM_RMS, .weight = true}, {FFN_NORM_RMS, .weight = true}}, FUSED,
                 .moe = {.flags = FFN_MOE_ROUTE_UNNORMED, .router_norm = FFN_NORM_RMS}}},
    {"DeepSeek-V3", {.name = "Nemotron-H", .activation = FFN_ACTIVATION_RELU2, RMS_IN, ADD, .d_latent = 10, .d_shared = 26}},
    {"Switch", {.name = "Switch, fixed capacity", .activation = FFN_ACTIVATION_RELU, RMS_IN, ADD, .batch_rule = switch_fixed,
                .moe = {.capacity = &capacity_fixed}}},
    {"Switch", {.name = "Switch, capacity factor", .activation = FFN_ACTIVATION_RELU, RMS_IN, ADD, .batch_rule = switch_mesh,
                .moe = {.capacity = &capacity_mesh}}},
    {"GShard", {.name = "GShard", .activation = FFN_ACTIVATION_RELU, LAYER_IN, ADD, .batch_rule = gshard_threshold,
                .moe = {.second = &second_gshard, .capacity = &capacity_gshard}}},
    {"GShard", {.name = "GShard, random", .activation = FFN_ACTIVATION_RELU, LAYER_IN, ADD, .batch_rule = gshard_random,
                .moe = {.second = &second_random, .capacity = &capacity_gshard}}},
    {"GShard", {.name = "GShard, none", .activation = FFN_ACTIVATION_RELU, LAYER_IN, ADD, .batch_rule = gshard_none,
                .moe = {.second = &second_none, .capacity = &capacity_gshard}}},
    {"GShard", {.name = "GShard, all", .activation = FFN_ACTIVATION_RELU, LAYER_IN, ADD, .batch_rule = gshard_capacity,
                .moe = {.capacity = &capacity_gshard}}},
    {"Jamba", {.name = "NLLB-MoE", .activation = FFN_ACTIVATION_RELU, .biases = BIAS_ALL, LAYER_IN, ADD, .batch_rule = nllb_eval,
               .moe = {.flags = FFN_MOE_NORMALISE_LAST, .router = &router_nllb, .capacity = &capacity_nllb}}},
    {"V-MoE", {.name = "V-MoE, tokens choose", .activation = FFN_ACTIVATION_GELU, .biases = BIAS_ALL, LAYER_IN, ADD, .batch_rule = vmoe_priority,
               .moe = {.capacity = &capacity_vmoe}}},
    {"V-MoE", {.name = "V-MoE, experts choose", .activation = FFN_ACTIVATION_GELU, .biases = BIAS_ALL, LAYER_IN, ADD, .batch_rule = experts_choose,
               .moe = {.choose = FFN_MOE_CHOOSE_BY_EXPERTS, .top_k = 8, .capacity = &capacity_choice}}},
    {"Megatron, softmax", {.name = "Megatron, softmax after top-k", SWIGLU, RMS_IN, ADD, .d_shared = 12, .shared_scale = true, .d_latent = 12}},
    {"Megatron, sqrt", {.name = "Megatron, sqrtsoftplus", SWIGLU, RMS_IN, ADD}},
};

static moe_case_t case_of(const family_t *family, uint64_t seed)
{
    const moe_family_t *rule = moe_family(family->rule);
    moe_case_t is = family->is;
    is.d_model = 20, is.d_ff = 14;
    is.seed = test_seed() + seed;
    is.rule = rule->rule;
    is.selection_bias = rule->biased, is.expert_scale = rule->scaled;
    const int64_t experts = is.moe.choose == FFN_MOE_CHOOSE_BY_EXPERTS ? 8 : rule->experts;
    is.moe.experts = experts - is.moe.identity_experts;
    if (!is.moe.top_k) is.moe.top_k = rule->top_k;
    if (!is.moe.router && rule->options.struct_size) is.moe.router = &rule->options;
    return is;
}

static void every_family_is_its_formula(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(families); i++) {
        test_moe_t test;
        const moe_case_t is = case_of(&families[i], (uint64_t)i);
        if (test_quick() && is.moe.experts > 64) continue;
        test_moe_make(&test, &is);
        moe_data_t data = moe_data_make(&test, TOKENS, is.seed);
        assert_ok(moe_data_run(&test, NULL, &data, false));
        assert_moe_as_rule(&test, &data);
        moe_data_free(&data);
        test_moe_free(&test);
    }
}

/* --------------------------------------------------------- Families in two calls */

static int32_t hash_table[10 * 6];

static void by_table(oracle_token_t *tokens, int64_t count)
{
    for (int64_t t = 0; t < count; t++) {
        double sum = 0;
        for (int k = 0; k < 6; k++) {
            const int e = hash_table[t % 10 * 6 + k];
            tokens[t].ids[k] = e;
            tokens[t].w[k] = sqrt(log1p(exp(-fabs(tokens[t].z[e]))) + fmax(tokens[t].z[e], 0));
            sum += tokens[t].w[k];
        }
        for (int k = 0; k < 6; k++) tokens[t].w[k] *= 1.5 / (sum + 1e-20);
    }
}

/* The first layers of DeepSeek-V4: ffn_moe_hash for the ids, then the layer weighs them. */
static void hash_routing_takes_a_second_call(void **state)
{
    (void)state;
    const moe_family_t *rule = moe_family("DeepSeek-V4");
    ffn_moe_router_options_t router = rule->options;
    router.flags = FFN_MOE_GIVEN_IDS;
    int64_t token_ids[TOKENS];
    for (int i = 0; i < 60; i++) hash_table[i] = (i % 6 * 40 + i * 7) % 40 + i % 6 * 40;
    for (int t = 0; t < TOKENS; t++) token_ids[t] = t % 10;
    const moe_case_t is = {.name = "DeepSeek-V4, hash", .d_model = 20, .d_ff = 14, .d_shared = 12, SWIGLU, RMS_IN, ADD, .rule = rule->rule,
                           .batch_rule = by_table, .seed = 77, .moe = {.experts = 256, .top_k = 6, .router = &router}};
    test_moe_t test;
    test_moe_make(&test, &is);
    moe_data_t data = moe_data_make(&test, TOKENS, 78);
    data.routing.weights = NULL;
    assert_ok(ffn_moe_hash(token_ids, 10, hash_table, &data.routing));
    ffn_moe_run_t moe = data.moe;
    moe.routing = &data.routing;
    moe.ids = NULL;
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = TOKENS, .x = data.x, .y = data.y, .moe = &moe};
    assert_ok(ffn_layer_run(test.layer, NULL, &run));
    assert_moe_as_rule(&test, &data);
    moe_data_free(&data);
    test_moe_free(&test);
}

/* Chosen elsewhere (Sinkhorn, a router of another kind): the routing, then the layer. */
static void a_given_routing_takes_the_place_of_the_router(void **state)
{
    (void)state;
    const moe_case_t is = {.name = "given", .d_model = 20, .d_ff = 14, SWIGLU, RMS_IN, ADD, .seed = 5, .moe = {.experts = 6, .top_k = 2}};
    test_moe_t test;
    test_moe_make(&test, &is);
    moe_data_t data = moe_data_make(&test, TOKENS, 6);
    for (int64_t t = 0; t < TOKENS; t++)
        for (int k = 0; k < 2; k++) {
            data.ids[2 * t + k] = (int32_t)((t + 3 * k) % 6);
            data.weights[2 * t + k] = 0.25f * (float)(k + 1);
        }
    assert_ok(moe_data_run(&test, NULL, &data, true));
    assert_moe_as_given(&test, &data);
    moe_data_free(&data);
    test_moe_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_is_its_formula),
        cmocka_unit_test(hash_routing_takes_a_second_call),
        cmocka_unit_test(a_given_routing_takes_the_place_of_the_router),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
