/* SPDX-License-Identifier: MIT
 * The options of a mixture's router, as a rule of experts.c and config.json's values have them. */
#include "io/binder.h"

#include <math.h>
#include <string.h>

/* The name of a layer for a sentence. */
#define LAYER(binder) ffnio_quote((binder)->found->prefix).text

/* ---------------------------------------------------------------- Numbers of experts */

static ffn_status_t take_experts(binder_t *binder, int64_t experts) {
    char key[64];
    int64_t said = experts;
    ffn_status_t status = ffnio_section_integer(&binder->section, binder->family->experts->experts_keys, key, &said);
    if (!status && said != experts)
        return ffnio_trouble(binder->trouble, FFN_INVALID, "layer %s has a router for %" PRId64 " experts, but %s of config.json is %" PRId64,
                             LAYER(binder), experts, key, said);
    binder->found->moe.experts = experts;
    return status;
}

static ffn_status_t take_top_k(binder_t *binder, int64_t experts) {
    const moe_rule_t *rule = binder->family->experts;
    char key[64] = "";
    int64_t top_k = rule->top_k;
    ffn_status_t status = ffnio_section_integer(&binder->section, rule->top_k_keys, key, &top_k);
    if (!status && (top_k < 1 || top_k > experts))
        return ffnio_trouble(binder->trouble, FFN_INVALID, "%s is %" PRId64 ", must be 1 to the %" PRId64 " experts of layer %s",
                             *key ? key : "the number of experts per token", top_k, experts, LAYER(binder));
    binder->found->moe.top_k = top_k;
    return status;
}

/* ---------------------------------------------------------------- Scores and groups */

/* A word of config.json; FFN_UNSUPPORTED: none of those that are known. */
static ffn_status_t take_word(binder_t *binder, const char *keys, const char *const words[], uint32_t count, uint32_t *chosen) {
    char key[64];
    const char *text;
    ffn_status_t status = ffnio_section_text(&binder->section, keys, key, &text);
    if (status || !text) return status;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(words[i], text) == 0) {
            *chosen = i;
            return FFN_OK;
        }
    return ffnio_trouble(binder->trouble, FFN_UNSUPPORTED, "%s of config.json is %s, which family %s does not have", key, ffnio_quote(text).text,
                         binder->family->name);
}

static ffn_status_t take_groups(binder_t *binder, int64_t experts) {
    static const char *const methods[] = {"greedy", "group_limited_greedy", "noaux_tc"};
    const moe_rule_t *rule = binder->family->experts;
    ffn_moe_router_options_t *router = &binder->found->router;
    char key[64];
    uint32_t method = rule->method_key ? 0 : rule->group_score == FFN_MOE_GROUP_MAX ? 1 : 2;
    int64_t groups = rule->groups, top_groups = rule->top_groups;
    ffn_status_t status = take_word(binder, rule->method_key, methods, 3, &method);
    if (!status) status = ffnio_section_integer(&binder->section, rule->groups_key, key, &groups);
    if (!status) status = ffnio_section_integer(&binder->section, rule->top_groups_key, key, &top_groups);
    if (status || !method || groups == 0 || groups == 1) return status;
    if (groups < 0 || experts % groups)
        return ffnio_trouble(binder->trouble, FFN_INVALID, "%s is %" PRId64 ", must divide the %" PRId64 " experts of layer %s", rule->groups_key, groups,
                             experts, LAYER(binder));
    if (top_groups < 1 || top_groups > groups || top_groups * (experts / groups) < binder->found->moe.top_k)
        return ffnio_trouble(binder->trouble, FFN_INVALID, "%s is %" PRId64 ", must be 1 to %" PRId64 " groups of %" PRId64 " experts that hold %" PRId64,
                             rule->top_groups_key, top_groups, groups, experts / groups, binder->found->moe.top_k);
    router->groups = groups;
    router->top_groups = top_groups;
    router->group_score = method == 1 ? FFN_MOE_GROUP_MAX : FFN_MOE_GROUP_TOP2_SUM;
    return FFN_OK;
}

static ffn_status_t take_score(binder_t *binder) {
    static const char *const scores[] = {"softmax", "sigmoid"}; /* as FFN_MOE_SCORE_* */
    ffn_moe_router_options_t *router = &binder->found->router;
    router->score = binder->family->experts->score;
    router->weight = binder->family->experts->weight;
    return take_word(binder, binder->family->experts->score_key, scores, 2, &router->score);
}

/* ---------------------------------------------------------------- Weights */

/* The number at a key, or what is there already. */
static ffn_status_t take_number(binder_t *binder, const char *key, float least, float *number) {
    double value = (double)*number;
    ffn_status_t status = ffnio_section_number(&binder->section, key, &value);
    if (!status && !(value >= (double)least && value < 1e30))
        return ffnio_fail_file(FFN_FORMAT, binder->section.config->path, "%s is %g, must be at least %g and finite", key, value, (double)least);
    *number = (float)value;
    return status;
}

static ffn_status_t take_normalisation(binder_t *binder) {
    const moe_rule_t *rule = binder->family->experts;
    ffn_moe_router_options_t *router = &binder->found->router;
    int flag = rule->normalise_key ? ffnio_section_flag(&binder->section, rule->normalise_key) : -1;
    router->normalise = flag < 0 ? rule->normalise : flag ? FFN_MOE_NORMALISE_SUM : FFN_MOE_NORMALISE_NONE;
    if (rule->norm_power_key && ffnio_section_is_null(&binder->section, rule->norm_power_key)) router->normalise = FFN_MOE_NORMALISE_NONE;
    if (rule->scale_or_normalise && binder->found->moe.top_k == 1) router->normalise = FFN_MOE_NORMALISE_NONE;
    if (router->normalise == FFN_MOE_NORMALISE_NONE) return FFN_OK;
    router->eps_added = rule->eps_added;
    router->eps_least = rule->eps_least;
    ffn_status_t status = take_number(binder, rule->eps_least_key, 0, &router->eps_least);
    if (status || router->normalise != FFN_MOE_NORMALISE_POWER) return status;
    router->norm_power = 1;
    return take_number(binder, rule->norm_power_key, 1e-30f, &router->norm_power);
}

static ffn_status_t take_scale(binder_t *binder) {
    const moe_rule_t *rule = binder->family->experts;
    ffn_moe_router_options_t *router = &binder->found->router;
    double scale = rule->scale != 0 ? (double)rule->scale : 1;
    if (rule->scale_or_normalise && router->normalise != FFN_MOE_NORMALISE_NONE) return FFN_OK;
    ffn_status_t status = ffnio_section_number(&binder->section, rule->scale_key, &scale);
    if (status) return status;
    if (!isfinite((float)scale) || (float)scale == 0 || (rule->scale_is_rest && !(scale >= 0 && scale < 1)))
        return ffnio_fail_file(FFN_FORMAT, binder->section.config->path, "%s is %g, must be %s", rule->scale_key, scale,
                               rule->scale_is_rest ? "0 to below 1" : "finite and not 0");
    router->scale = (float)(rule->scale_is_rest ? 1 - scale : scale);
    return FFN_OK;
}

/* A run is taken for one sequence: who knows better sets group_tokens. */
static ffn_status_t take_capacity(binder_t *binder) {
    const moe_rule_t *rule = binder->family->experts;
    ffn_moe_capacity_options_t *capacity = &binder->found->capacity;
    int64_t tokens = rule->capacity;
    char key[64];
    double share = 1;
    ffn_status_t status = ffnio_section_number(&binder->section, rule->whole_key, &share);
    if (!status && !(share >= 1))
        return ffnio_trouble(binder->trouble, FFN_UNSUPPORTED, "%s of config.json is %g, only 1 (every choice stands) can be expressed", rule->whole_key,
                             share);
    if (!status) status = ffnio_section_integer(&binder->section, rule->capacity_key, key, &tokens);
    if (status || !rule->capacity_key) return status;
    if (tokens < 1) return ffnio_fail_file(FFN_FORMAT, binder->section.config->path, "%s is %" PRId64 ", must be at least 1", key, tokens);
    *capacity = (ffn_moe_capacity_options_t){.struct_size = sizeof *capacity, .drop = FFN_MOE_DROP_POSITION, .capacity = tokens};
    return FFN_OK;
}

ffn_status_t ffnio_bind_router_options(binder_t *binder, int64_t experts) {
    const moe_rule_t *rule = binder->family->experts;
    found_layer_t *found = binder->found;
    found->moe = (ffn_moe_options_t){.struct_size = sizeof found->moe, .flags = rule->weigh_input ? FFN_MOE_WEIGHT_ON_INPUT : 0};
    ffn_status_t status = take_experts(binder, experts);
    if (!status) status = take_top_k(binder, experts);
    if (!status) status = take_capacity(binder);
    if (status) return status;
    if (rule->jitter_key) {
        found->moe.choose = FFN_MOE_CHOOSE_SPARSE_MIXER;
        found->moe.jitter_eps = rule->jitter;
        return take_number(binder, rule->jitter_key, 0, &found->moe.jitter_eps);
    }
    found->router = (ffn_moe_router_options_t){.struct_size = sizeof found->router};
    status = take_score(binder);
    if (!status) status = take_groups(binder, experts);
    if (!status) status = take_normalisation(binder);
    if (!status) status = take_scale(binder);
    return status;
}
