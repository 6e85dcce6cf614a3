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

static double load_entropy(int64_t experts, const int64_t *counts, int64_t assignments) {
    double sum = 0;
    for (int64_t expert = 0; assignments && expert < experts; expert++) sum += entropy_of((double)counts[expert] / (double)assignments);
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

void ffni_moe_tally_choices(moe_tally_t *tally, const ffn_moe_routing_t *routing) {
    for (int64_t token = 0; token < routing->tokens; token++) {
        if (routing->mask && !routing->mask[token]) continue;
        count_token(routing, token, routing->top_k, tally->counts);
        tally->tokens++;
        tally->slots += routing->top_k;
        tally->lost_tokens += !has_expert(routing, token);
    }
}

void ffni_moe_tally_scores(moe_tally_t *tally, const ffn_moe_routing_t *routing, const float *scores) {
    for (int64_t token = 0; token < routing->tokens; token++)
        if (!routing->mask || routing->mask[token]) tally->entropy += row_entropy(routing->experts, scores + token * routing->experts);
}

void ffni_moe_tally_read(const moe_tally_t *tally, int64_t experts, ffn_moe_statistics_t *statistics) {
    *statistics = (ffn_moe_statistics_t){.tokens = tally->tokens, .lost_tokens = tally->lost_tokens};
    for (int64_t expert = 0; expert < experts; expert++) {
        statistics->assignments += tally->counts[expert];
        statistics->idle_experts += tally->counts[expert] == 0;
        statistics->largest_load = maximum(statistics->largest_load, tally->counts[expert]);
    }
    statistics->dropped = tally->slots - statistics->assignments;
    statistics->load_entropy = load_entropy(experts, tally->counts, statistics->assignments);
    if (tally->tokens) statistics->router_entropy = tally->entropy / (double)tally->tokens;
}
