/* SPDX-License-Identifier: MIT
 * Choices queue for their experts, group of tokens by group of tokens; those that find no place are dropped. */
#include "core/capacity.h"

#include "base/checked.h"
#include "base/error.h"
#include "core/choice.h"

#include <inttypes.h>
#include <math.h>

typedef struct queue {
    const ffn_moe_routing_t *routing;
    int64_t begin, tokens; /* of the group */
    int64_t capacity;
    int64_t taken[FFN_MOE_EXPERTS_MOST];
} queue_t;

static int counts(const ffn_moe_routing_t *routing, int64_t token) {
    return !routing->mask || routing->mask[token];
}

static void enqueue(queue_t *queue, int64_t token, int64_t choice) {
    const ffn_moe_routing_t *routing = queue->routing;
    int64_t slot = token * routing->top_k + choice;
    int32_t id = routing->ids[slot];
    if (id == FFN_MOE_NO_EXPERT || !counts(routing, token)) return;
    if (queue->taken[id] < queue->capacity) {
        queue->taken[id]++;
    } else {
        routing->ids[slot] = FFN_MOE_NO_EXPERT;
        routing->weights[slot] = 0;
    }
}

/* In the order of `tokens`, or of the batch where that is NULL. */
static void enqueue_tokens(queue_t *queue, const ranked_t *tokens) {
    for (int64_t choice = 0; choice < queue->routing->top_k; choice++)
        for (int64_t i = 0; i < queue->tokens; i++) enqueue(queue, tokens ? tokens[i].index : queue->begin + i, choice);
}

static ranked_t *rank_tokens(const queue_t *queue, ranked_t *items, ranked_t *other) {
    for (int64_t i = 0; i < queue->tokens; i++) {
        int64_t token = queue->begin + i;
        items[i] = (ranked_t){token, choice_key(queue->routing->weights[token * queue->routing->top_k])};
    }
    return ffni_rank(queue->tokens, items, other);
}

static void enqueue_by_probability(queue_t *queue, ranked_t *items, ranked_t *other) {
    const ffn_moe_routing_t *routing = queue->routing;
    int64_t n = 0;
    for (int64_t choice = 0; choice < routing->top_k; choice++)
        for (int64_t token = queue->begin; token < queue->begin + queue->tokens; token++, n++)
            items[n] = (ranked_t){token * routing->top_k + choice, choice_key(routing->weights[token * routing->top_k + choice])};
    const ranked_t *ranked = ffni_rank(n, items, other);
    for (int64_t i = 0; i < n; i++) enqueue(queue, ranked[i].index / routing->top_k, ranked[i].index % routing->top_k);
}

/* -------------------------------------------------------------------- Limit */

/* No group has more than all its tokens for an expert, so that larger factors make no difference. */
int64_t ffni_capacity_of(const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing, int64_t tokens) {
    double n = (double)tokens, experts = (double)routing->experts, places;
    if (options->capacity) return options->capacity;
    if (options->flags & FFN_MOE_CAPACITY_PER_CHOICE) n *= (double)routing->top_k;
    switch (options->rounding) {
    case FFN_MOE_ROUND_DOWN: places = floor(options->factor * n / experts); break;
    case FFN_MOE_ROUND_NEAREST: places = rint(options->factor * n / experts); break;
    default: places = ceil(n / experts * options->factor);
    }
    return maximum(places < (double)tokens ? (int64_t)places : tokens, options->minimum);
}

static int64_t ranked_at_once(const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing, int64_t group_tokens) {
    switch (options->drop) {
    case FFN_MOE_DROP_PRIORITY: return group_tokens;
    case FFN_MOE_DROP_PROBABILITY: return group_tokens * routing->top_k;
    default: return 0;
    }
}

capacity_scratch_t ffni_limit_lay_out(const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing, arena_t *arena) {
    int64_t group = options->group_tokens ? minimum(options->group_tokens, routing->tokens) : routing->tokens;
    int64_t n = ranked_at_once(options, routing, group);
    capacity_scratch_t scratch = {{ffni_arena_take(arena, n, sizeof(ranked_t))}, NULL};
    scratch.ranked[1] = ffni_arena_take(arena, n, sizeof(ranked_t));
    return scratch;
}

void ffni_limit(const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing, const capacity_scratch_t *scratch) {
    int64_t group = options->group_tokens ? options->group_tokens : routing->tokens;
    for (int64_t begin = 0; begin < routing->tokens; begin += minimum(group, routing->tokens - begin)) {
        queue_t queue = {.routing = routing, .begin = begin, .tokens = minimum(group, routing->tokens - begin)};
        queue.capacity = ffni_capacity_of(options, routing, queue.tokens);
        if (options->drop == FFN_MOE_DROP_PROBABILITY)
            enqueue_by_probability(&queue, scratch->ranked[0], scratch->ranked[1]);
        else
            enqueue_tokens(&queue, options->drop == FFN_MOE_DROP_PRIORITY ? rank_tokens(&queue, scratch->ranked[0], scratch->ranked[1]) : NULL);
    }
}

/* ------------------------------------------------------------- Expert choice */

typedef struct market {
    const ffn_moe_routing_t *routing;
    const float *scores;
    capacity_scratch_t scratch;
} market_t;

static void choose_tokens(const market_t *market, int64_t expert, int64_t begin, int64_t end, int64_t capacity) {
    int64_t experts = market->routing->experts, n = 0;
    for (int64_t token = begin; token < end; token++)
        if (counts(market->routing, token)) market->scratch.ranked[0][n++] = (ranked_t){token, choice_key(market->scores[token * experts + expert])};
    const ranked_t *ranked = ffni_rank(n, market->scratch.ranked[0], market->scratch.ranked[1]);
    for (int64_t i = 0; i < minimum(n, capacity); i++) market->scratch.chosen[ranked[i].index * experts + expert] = 1;
}

static ffn_status_t check_slots(const market_t *market) {
    const ffn_moe_routing_t *routing = market->routing;
    for (int64_t token = 0; token < routing->tokens; token++) {
        int64_t count = 0;
        for (int64_t expert = 0; expert < routing->experts; expert++) count += market->scratch.chosen[token * routing->experts + expert];
        if (count > routing->top_k)
            return ffni_fail(FFN_INVALID, "token %" PRId64 " is chosen by %" PRId64 " experts, but top_k is %" PRId64, token, count, routing->top_k);
    }
    return FFN_OK;
}

static void fill_slots(const market_t *market, int64_t token) {
    const ffn_moe_routing_t *routing = market->routing;
    int64_t slot = token * routing->top_k, end = slot + routing->top_k;
    for (int64_t expert = 0; expert < routing->experts; expert++) {
        int64_t at = token * routing->experts + expert;
        if (!market->scratch.chosen[at]) continue;
        routing->ids[slot] = (int32_t)expert;
        routing->weights[slot++] = market->scores[at];
    }
    for (; slot < end; slot++) {
        routing->ids[slot] = FFN_MOE_NO_EXPERT;
        routing->weights[slot] = 0;
    }
}

capacity_scratch_t ffni_expert_choice_lay_out(int64_t group_tokens, const ffn_moe_routing_t *routing, arena_t *arena) {
    int64_t group = minimum(group_tokens, routing->tokens);
    capacity_scratch_t scratch = {{ffni_arena_take(arena, group, sizeof(ranked_t))}, NULL};
    scratch.ranked[1] = ffni_arena_take(arena, group, sizeof(ranked_t));
    scratch.chosen = ffni_arena_take(arena, routing->tokens, routing->experts);
    return scratch;
}

void ffni_expert_choice_rank(int64_t capacity, int64_t begin, int64_t tokens, const float *scores, const ffn_moe_routing_t *routing,
                             const capacity_scratch_t *scratch) {
    market_t market = {.routing = routing, .scores = scores, .scratch = *scratch};
    memset(scratch->chosen + begin * routing->experts, 0, (size_t)(tokens * routing->experts));
    for (int64_t expert = 0; expert < routing->experts; expert++) choose_tokens(&market, expert, begin, begin + tokens, capacity);
}

ffn_status_t ffni_expert_choice_fill(const float *scores, const ffn_moe_routing_t *routing, const capacity_scratch_t *scratch) {
    market_t market = {.routing = routing, .scores = scores, .scratch = *scratch};
    ffn_status_t status = check_slots(&market);
    for (int64_t token = 0; !status && token < routing->tokens; token++) fill_slots(&market, token);
    return status;
}
