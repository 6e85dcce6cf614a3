/* SPDX-License-Identifier: MIT
 * What a routing amounts to: tokens per expert, and their entropy. */
#include "core/moe_losses.h"

#include "base/checked.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static void count_token(const ffn_moe_routing_t *routing, int64_t token, int64_t choices, int64_t *counts) {
    const int32_t *ids = routing->ids + token * routing->top_k;
    for (int64_t choice = 0; choice < choices; choice++)
        if (ids[choice] != FFN_MOE_NO_EXPERT) counts[ids[choice]]++;
}

void ffni_moe_count(const ffn_moe_routing_t *routing, int64_t group_tokens, int64_t choices, int64_t *counts) {
    for (int64_t begin = 0; begin < routing->tokens; begin += minimum(group_tokens, routing->tokens - begin), counts += routing->experts) {
        memset(counts, 0, (size_t)routing->experts * sizeof *counts);
        for (int64_t token = begin; token < begin + minimum(group_tokens, routing->tokens - begin); token++)
            if (!routing->mask || routing->mask[token]) count_token(routing, token, choices, counts);
    }
}

/* -sum p log p, with 0 log 0 = 0. */
static double entropy_of(double p) {
    return p > 0 ? -p * log(p) : p * 0;
}

static double load_entropy(const ffn_moe_routing_t *routing, const int64_t *counts, int64_t assignments) {
    double sum = 0;
    for (int64_t expert = 0; assignments && expert < routing->experts; expert++) sum += entropy_of((double)counts[expert] / (double)assignments);
    return sum;
}

static double row_entropy(int64_t experts, const float *scores) {
    double total = 0, sum = 0;
    for (int64_t expert = 0; expert < experts; expert++) total += (double)scores[expert];
    for (int64_t expert = 0; expert < experts; expert++) sum += entropy_of((double)scores[expert] / total);
    return sum;
}

static int has_expert(const ffn_moe_routing_t *routing, int64_t token) {
    for (int64_t slot = token * routing->top_k; slot < (token + 1) * routing->top_k; slot++)
        if (routing->ids[slot] != FFN_MOE_NO_EXPERT) return 1;
    return 0;
}

void ffni_moe_statistics(const ffn_moe_routing_t *routing, const float *scores, ffn_moe_statistics_t *statistics) {
    int64_t counts[FFN_MOE_EXPERTS_MOST] = {0};
    double entropy = 0;
    ffni_moe_count(routing, maximum(1, routing->tokens), routing->top_k, counts);
    *statistics = (ffn_moe_statistics_t){.tokens = routing->tokens ? ffni_moe_unmasked(routing->mask, 0, routing->tokens) : 0};
    for (int64_t expert = 0; expert < routing->experts; expert++) {
        statistics->assignments += counts[expert];
        statistics->idle_experts += counts[expert] == 0;
        statistics->largest_load = maximum(statistics->largest_load, counts[expert]);
    }
    statistics->dropped = statistics->tokens * routing->top_k - statistics->assignments;
    statistics->load_entropy = load_entropy(routing, counts, statistics->assignments);
    for (int64_t token = 0; token < routing->tokens; token++) {
        if (routing->mask && !routing->mask[token]) continue;
        statistics->lost_tokens += !has_expert(routing, token);
        if (scores) entropy += row_entropy(routing->experts, scores + token * routing->experts);
    }
    if (statistics->tokens) statistics->router_entropy = entropy / (double)statistics->tokens;
}
