/* SPDX-License-Identifier: MIT
 * Telling what a router does, and which tensors experts are. */
#include "cli/experts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const weights[] = {"score", "softmax", "sigmoid"};
static const char *const group_scores[] = {"max", "top2_sum"};
static const char *const choices[] = {"top_k", "sparse_mixer", "by_experts"};
static const char *const drops[] = {"position", "priority", "probability"};

#define NAME(names, id) ((id) < sizeof(names) / sizeof *(names) ? (names)[id] : "unknown")

static int has_role(const ffn_model_layer_t *layer, uint32_t role) {
    for (uint64_t i = 0; i < layer->binding_count; i++)
        if (layer->bindings[i].role == role) return 1;
    return 0;
}

/* Appends to text, after ", " if there is something; cut where it does not fit. */
PRINTF_LIKE(3, 4) static void append(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    va_list values;
    if (used && used + 3 < size) used += (size_t)snprintf(text + used, size - used, ", ");
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

experts_text_t experts_text(const ffn_model_layer_t *layer) {
    const ffn_moe_options_t *moe = layer->options->moe;
    experts_text_t is = {""};
    char identities[40] = "";
    if (!moe) return is;
    if (moe->identity_experts) snprintf(identities, sizeof identities, " + %" PRId64 " identities", moe->identity_experts);
    snprintf(is.text, sizeof is.text, "%" PRId64 " of %" PRId64 "%s%s", moe->top_k, moe->experts, identities,
             has_role(layer, FFN_ROLE_SHARED_UP_WEIGHT) ? " + shared" : "");
    return is;
}

/* ---------------------------------------------------------------- text */

static void add_rule(const ffn_model_layer_t *layer, const ffn_moe_router_options_t *router, char *text, size_t size) {
    const char *score = router->weight == FFN_MOE_WEIGHT_SOFTMAX ? "softmax of the chosen"
                        : router->weight == FFN_MOE_WEIGHT_SIGMOID ? "sigmoid of the chosen" : score_name(router->score);
    append(text, size, "%s%s", score, has_role(layer, FFN_ROLE_SELECTION_BIAS) ? " + bias" : "");
    if (router->groups > 1) append(text, size, "%" PRId64 " of %" PRId64 " groups", router->top_groups, router->groups);
    if (router->normalise == FFN_MOE_NORMALISE_SUM) append(text, size, "normalised");
    if (router->normalise == FFN_MOE_NORMALISE_POWER) append(text, size, "normalised by power %s", shortest(router->norm_power).text);
    if (router->scale != 0 && router->scale != 1) append(text, size, "x %s", shortest(router->scale).text);
}

router_text_t router_text(const ffn_model_layer_t *layer) {
    static const ffn_moe_router_options_t plain = {.struct_size = sizeof plain};
    const ffn_moe_options_t *moe = layer->options->moe;
    router_text_t is = {""};
    if (!moe) return is;
    if (moe->choose == FFN_MOE_CHOOSE_SPARSE_MIXER) append(is.text, sizeof is.text, "SparseMixer %s", shortest(moe->jitter_eps).text);
    else add_rule(layer, moe->router ? moe->router : &plain, is.text, sizeof is.text);
    if (moe->flags & FFN_MOE_WEIGHT_ON_INPUT) append(is.text, sizeof is.text, "on the input");
    if (moe->capacity && moe->capacity->capacity) append(is.text, sizeof is.text, "at most %" PRId64 " tokens", moe->capacity->capacity);
    return is;
}

/* ---------------------------------------------------------------- JSON */

static json_t *router_json(const ffn_moe_router_options_t *router) {
    json_t *object = json_pack("{s:s, s:s, s:s, s:I, s:I, s:s}", "score", score_name(router->score), "weight", NAME(weights, router->weight),
                               "normalise", normalisation_name(router->normalise), "groups", (json_int_t)router->groups, "top_groups",
                               (json_int_t)router->top_groups, "group_score", NAME(group_scores, router->group_score));
    json_object_set_new(object, "norm_power", json_float(router->norm_power));
    json_object_set_new(object, "eps_added", json_float(router->eps_added));
    json_object_set_new(object, "eps_least", json_float(router->eps_least));
    json_object_set_new(object, "scale", json_float(router->scale != 0 ? router->scale : 1));
    return object;
}

json_t *experts_json(const ffn_model_layer_t *layer) {
    const ffn_moe_options_t *moe = layer->options->moe;
    if (!moe) return NULL;
    json_t *object = json_pack("{s:I, s:I, s:I, s:s, s:b, s:s, s:b}", "experts", (json_int_t)moe->experts, "identity_experts",
                               (json_int_t)moe->identity_experts, "top_k", (json_int_t)moe->top_k, "choose", NAME(choices, moe->choose), "shared",
                               has_role(layer, FFN_ROLE_SHARED_UP_WEIGHT), "weight_on",
                               moe->flags & FFN_MOE_WEIGHT_ON_INPUT ? "input" : "output", "selection_bias", has_role(layer, FFN_ROLE_SELECTION_BIAS));
    if (moe->router) json_object_set_new(object, "router", router_json(moe->router));
    if (moe->choose == FFN_MOE_CHOOSE_SPARSE_MIXER) json_object_set_new(object, "jitter_eps", json_float(moe->jitter_eps));
    if (moe->capacity)
        json_object_set_new(object, "capacity", json_pack("{s:I, s:s}", "tokens", (json_int_t)moe->capacity->capacity, "drop",
                                                          NAME(drops, moe->capacity->drop)));
    return object;
}

/* ---------------------------------------------------------------- tensors */

uint64_t bindings_of_role(const ffn_model_layer_t *layer, uint64_t first) {
    uint64_t end = first;
    while (end < layer->binding_count && layer->bindings[end].role == layer->bindings[first].role) end++;
    return end - first;
}

char *bindings_name(const ffn_model_binding_t *bindings, uint64_t count) {
    const char *name = bindings[0].tensor, *next = count > 1 ? bindings[1].tensor : name;
    size_t length = strlen(name), at = 0;
    char *text = malloc(length + 4);
    if (!text) return NULL;
    while (name[at] && name[at] == next[at]) at++;
    if (!name[at]) memcpy(text, name, length + 1);
    else snprintf(text, length + 4, "%.*s{e}%s", (int)at, name, name + at + 1); /* expert 0's number is one digit */
    return text;
}
