/* SPDX-License-Identifier: MIT
 * The router's pipeline, one row of logits after the other: score, mask, select, weight, normalise, scale. */
#include "core/routing.h"

#include "core/choice.h"
#include "core/parallel.h"
#include "core/scores.h"

#include <math.h>
#include <stddef.h>

/* Work of a row per expert, in the elements that ffni_parallel_rows counts in: an exponential and a choice. */
enum { WORK_PER_EXPERT = 8 };

int ffni_routing_skip(const ffn_moe_routing_t *routing, int64_t token) {
    if (ffni_routing_counts(routing, token)) return 0;
    for (int64_t slot = token * routing->top_k; slot < (token + 1) * routing->top_k; slot++) {
        routing->ids[slot] = FFN_MOE_NO_EXPERT;
        if (routing->weights) routing->weights[slot] = 0;
    }
    return 1;
}

/* -------------------------------------------------------------------- Select */

static float choice_of(const router_t *router, const float *scores, int64_t expert) {
    return router->selection_bias ? scores[expert] + router->selection_bias[expert] : scores[expert];
}

static float group_score(const router_t *router, const float *scores, int64_t begin, int64_t end) {
    int32_t ids[2] = {0}, keys[2];
    choice_t best = {.ids = ids, .keys = keys, .most = router->options.group_score == FFN_MOE_GROUP_TOP2_SUM ? 2 : 1};
    for (int64_t expert = begin; expert < end; expert++) choice_offer(&best, (int32_t)expert, choice_key(choice_of(router, scores, expert)));
    float first = choice_of(router, scores, ids[0]);
    return best.count == 2 ? first + choice_of(router, scores, ids[1]) : first;
}

/* stays[g] = 1 for the groups that stay. */
static void choose_groups(const router_t *router, const float *scores, unsigned char *stays) {
    int32_t ids[FFN_MOE_EXPERTS_MOST], keys[FFN_MOE_EXPERTS_MOST];
    int64_t groups = router->options.groups, size = router->routing.experts / groups;
    choice_t best = {.ids = ids, .keys = keys, .most = router->options.top_groups};
    for (int64_t group = 0; group < groups; group++) {
        stays[group] = 0;
        choice_offer(&best, (int32_t)group, choice_key(group_score(router, scores, group * size, (group + 1) * size)));
    }
    for (int64_t i = 0; i < best.count; i++) stays[ids[i]] = 1;
}

static void select_experts(const router_t *router, const float *scores, int32_t *ids) {
    int32_t keys[FFN_MOE_EXPERTS_MOST];
    unsigned char stays[FFN_MOE_EXPERTS_MOST] = {1};
    int64_t experts = router->routing.experts, groups = router->options.groups > 1 ? router->options.groups : 1, size = experts / groups;
    choice_t best = {.ids = ids, .keys = keys, .most = router->routing.top_k};
    if (groups > 1) choose_groups(router, scores, stays);
    for (int64_t group = 0; group < groups; group++)
        for (int64_t expert = group * size; stays[group] && expert < (group + 1) * size; expert++)
            choice_offer(&best, (int32_t)expert, choice_key(choice_of(router, scores, expert)));
}

/* -------------------------------------------------------------------- Weight */

static void softmax_of_chosen(const float *logits, int64_t count, const int32_t *ids, double *w) {
    float chosen[FFN_MOE_EXPERTS_MOST];
    for (int64_t i = 0; i < count; i++) chosen[i] = logits[ids[i]];
    if (count) ffni_softmax(count, w, chosen);
}

static double norm_of(const ffn_moe_router_options_t *options, int64_t count, const double *w) {
    double power = (double)options->norm_power, sum = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        if (fabs(w[i]) > most || isnan(w[i])) most = fabs(w[i]);
        sum += options->normalise == FFN_MOE_NORMALISE_SUM ? w[i] : pow(fabs(w[i]), power);
    }
    if (options->normalise == FFN_MOE_NORMALISE_SUM) return sum;
    return isinf(power) ? most : pow(sum, 1 / power);
}

static void normalise(const ffn_moe_router_options_t *options, int64_t count, double *w) {
    double norm = norm_of(options, count, w) + (double)options->eps_added;
    if (norm < (double)options->eps_least) norm = (double)options->eps_least;
    for (int64_t i = 0; i < count; i++) w[i] /= norm;
}

/* w of the `count` chosen experts in ids. */
static void weigh(const router_t *router, const float *logits, const float *scores, int64_t count, const int32_t *ids, double *w) {
    const ffn_moe_router_options_t *options = &router->options;
    if (options->weight == FFN_MOE_WEIGHT_SOFTMAX)
        softmax_of_chosen(logits, count, ids, w);
    else
        for (int64_t i = 0; i < count; i++)
            w[i] = options->weight == FFN_MOE_WEIGHT_SIGMOID ? ffni_sigmoid((double)logits[ids[i]]) : (double)scores[ids[i]];
    if (options->normalise != FFN_MOE_NORMALISE_NONE) normalise(options, count, w);
    for (int64_t i = 0; i < count; i++) {
        w[i] *= (double)options->scale;
        if (router->expert_scale) w[i] *= (double)router->expert_scale[ids[i]];
    }
}

/* ----------------------------------------------------------------- The row */

static void weigh_row(const router_t *router, int64_t token, const float *logits, const float *scores) {
    int64_t top_k = router->routing.top_k, count = 0;
    const int32_t *ids = router->routing.ids + token * top_k;
    float *weights = router->routing.weights + token * top_k;
    int32_t chosen[FFN_MOE_EXPERTS_MOST];
    double w[FFN_MOE_EXPERTS_MOST] = {0};
    int is_void = ffni_logits_are_void(router->routing.experts, logits) ||
                  (router->options.score == FFN_MOE_SCORE_SOFTMAX && isnan(scores[0]));
    for (int64_t i = 0; i < top_k; i++)
        if (ids[i] != FFN_MOE_NO_EXPERT) chosen[count++] = ids[i];
    weigh(router, logits, scores, count, chosen, w);
    for (int64_t i = 0, at = 0; i < top_k; i++) {
        weights[i] = 0;
        if (ids[i] == FFN_MOE_NO_EXPERT) continue;
        weights[i] = is_void ? NAN : (float)w[at];
        at++;
    }
}

static void route_rows(void *data, int64_t begin, int64_t end) {
    const router_t *router = data;
    const ffn_moe_routing_t *routing = &router->routing;
    float scores[FFN_MOE_EXPERTS_MOST];
    for (int64_t token = begin; token < end; token++) {
        const float *logits = router->logits + token * routing->experts;
        ffni_scores(router->options.score, routing->experts, scores, logits);
        if (router->scores) memcpy(router->scores + token * routing->experts, scores, (size_t)routing->experts * sizeof *scores);
        if (ffni_routing_skip(routing, token)) continue;
        if (!(router->options.flags & FFN_MOE_GIVEN_IDS)) select_experts(router, scores, routing->ids + token * routing->top_k);
        weigh_row(router, token, logits, scores);
    }
}

void ffni_route(ffn_context_t *context, const router_t *router) {
    ffni_parallel_rows(context, router->routing.tokens, router->routing.experts * WORK_PER_EXPERT, route_rows, (void *)(uintptr_t)router);
}
