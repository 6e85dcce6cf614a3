/* SPDX-License-Identifier: MIT
 * The other ways to a routing, and what changes one: expert choice, hash, policies for second choices, capacity. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/capacity.h"
#include "core/context.h"
#include "core/router_options.h"
#include "core/routing.h"
#include "core/second_expert.h"

#include <inttypes.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* The context's scratch memory, as measured. */
static ffn_status_t take_scratch(ffn_context_t *context, const arena_t *measured, int64_t tokens) {
    if (measured->overflowed) return ffni_fail(FFN_NO_MEMORY, "scratch memory for the choices of %" PRId64 " tokens overflows", tokens);
    if (context->scratch_limit && measured->used > context->scratch_limit)
        return ffni_fail(FFN_NO_MEMORY, "scratch_limit of the context is %" PRIu64 " bytes, must be at least %" PRIu64 " to rank the choices of %" PRId64
                         " tokens", context->scratch_limit, measured->used, tokens);
    return ffni_context_scratch(context, measured->used);
}

/* ------------------------------------------------------------- Expert choice */

static ffn_status_t choose(ffn_context_t *context, int64_t capacity, int64_t group, const float *scores, const ffn_moe_routing_t *routing) {
    arena_t measure = {0};
    ffni_expert_choice_lay_out(group, routing, &measure);
    ffn_status_t status = take_scratch(context, &measure, routing->tokens);
    if (status) return status;
    arena_t arena = {.base = context->scratch};
    capacity_scratch_t scratch = ffni_expert_choice_lay_out(group, routing, &arena);
    for (int64_t begin = 0; begin < routing->tokens; begin += minimum(group, routing->tokens - begin))
        ffni_expert_choice_rank(capacity, begin, minimum(group, routing->tokens - begin), scores, routing, &scratch);
    return ffni_expert_choice_fill(scores, routing, &scratch);
}

ffn_status_t ffn_moe_expert_choice(ffn_context_t *context, int64_t capacity, int64_t group_tokens, const float *scores,
                                   const ffn_moe_routing_t *given) {
    ffn_moe_routing_t routing;
    ffn_status_t status = ffni_moe_read_routing(given, &routing);
    if (!status) status = ffni_moe_check_range("capacity", capacity, 1, INT64_MAX);
    if (!status) status = ffni_moe_check_range("group_tokens", group_tokens, 0, INT64_MAX);
    if (status || !routing.tokens) return status;
    const moe_array_t arrays[] = {
        {"scores", scores, routing.tokens * routing.experts, 4, 1, 0},
        MOE_IDS(routing, 1), MOE_WEIGHTS(routing), MOE_MASK(routing),
    };
    fpenv_t saved = fpenv_enter();
    status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    status = choose(context, capacity, group_tokens ? group_tokens : routing.tokens, scores, &routing);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

/* -------------------------------------------------------------------- Hash */

static ffn_status_t check_hash(const int64_t *token_ids, int64_t vocabulary, const int32_t *table, const ffn_moe_routing_t *routing) {
    int64_t elements = vocabulary > INT64_MAX / routing->top_k ? INT64_MAX : vocabulary * routing->top_k;
    const moe_array_t arrays[] = {
        {"token_ids", token_ids, routing->tokens, 8, 1, 0},
        {"table", table, elements, 4, 1, 0},
        MOE_IDS(*routing, 1),
        {"weights of the routing", routing->weights, routing->tokens * routing->top_k, 4, 0, 1},
        MOE_MASK(*routing),
    };
    ffn_status_t status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    for (int64_t token = 0; !status && token < routing->tokens; token++) {
        int64_t id = token_ids[token];
        if (routing->mask && !routing->mask[token]) continue;
        if (id < 0 || id >= vocabulary)
            return ffni_fail(FFN_INVALID, "token_ids[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64, token, id, vocabulary - 1);
        status = ffni_moe_check_row(table + id * routing->top_k, routing->top_k, routing->experts, "table row", id);
    }
    return status;
}

ffn_status_t ffn_moe_hash(const int64_t *token_ids, int64_t vocabulary, const int32_t *table, const ffn_moe_routing_t *given) {
    ffn_moe_routing_t routing;
    ffn_status_t status = ffni_moe_read_routing(given, &routing);
    if (!status) status = ffni_moe_check_range("vocabulary", vocabulary, 1, INT64_MAX);
    if (status || !routing.tokens) return status;
    status = check_hash(token_ids, vocabulary, table, &routing);
    for (int64_t token = 0; !status && token < routing.tokens; token++)
        if (!ffni_routing_skip(&routing, token))
            memcpy(routing.ids + token * routing.top_k, table + token_ids[token] * routing.top_k, (size_t)routing.top_k * sizeof *table);
    return status;
}

/* ------------------------------------------------------------ Second choices */

static ffn_status_t check_second_arrays(const ffn_moe_second_options_t *options, const float *logits, const ffn_moe_routing_t *routing) {
    int sampled = options->policy == FFN_MOE_SECOND_SAMPLED;
    const moe_array_t arrays[] = {
        {"logits", sampled ? logits : NULL, routing->tokens * routing->experts, 4, sampled, 0},
        MOE_IDS(*routing, 1),
        {"weights of the routing", routing->weights, routing->tokens * routing->top_k, 4, !sampled, 1},
        MOE_MASK(*routing),
    };
    ffn_status_t status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    return !status && !sampled ? ffni_moe_check_ids(routing) : status;
}

ffn_status_t ffn_moe_second_expert(const ffn_moe_second_options_t *given, const float *logits, const ffn_moe_routing_t *given_routing) {
    ffn_moe_second_options_t options;
    ffn_moe_routing_t routing;
    ffn_status_t status = ffni_struct_read(&options, sizeof options, given, "ffn_moe_second_options_t");
    fpenv_t saved = fpenv_enter();
    if (!status) status = ffni_moe_read_routing(given_routing, &routing);
    if (!status) status = ffni_second_check(&options);
    if (!status && routing.top_k != 2)
        status = ffni_fail(FFN_INVALID, "top_k is %" PRId64 ", must be 2 for a policy of second choices", routing.top_k);
    if (!status && routing.tokens) {
        status = check_second_arrays(&options, logits, &routing);
        if (!status) ffni_second_expert(&options, logits, &routing);
    }
    fpenv_leave(saved);
    return status;
}

/* ----------------------------------------------------------------- Capacity */

static ffn_status_t limit(ffn_context_t *context, const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing) {
    arena_t measure = {0};
    ffni_limit_lay_out(options, routing, &measure);
    ffn_status_t status = take_scratch(context, &measure, routing->tokens);
    if (status) return status;
    arena_t arena = {.base = context->scratch};
    capacity_scratch_t scratch = ffni_limit_lay_out(options, routing, &arena);
    ffni_limit(options, routing, &scratch);
    return FFN_OK;
}

ffn_status_t ffn_moe_limit(ffn_context_t *context, const ffn_moe_capacity_options_t *given, const ffn_moe_routing_t *given_routing) {
    ffn_moe_capacity_options_t options;
    ffn_moe_routing_t routing;
    ffn_status_t status = ffni_struct_read(&options, sizeof options, given, "ffn_moe_capacity_options_t");
    fpenv_t saved = fpenv_enter();
    if (!status) status = ffni_moe_read_routing(given_routing, &routing);
    if (!status) status = ffni_capacity_check(&options);
    if (status || !routing.tokens) goto cleanup;
    const moe_array_t arrays[] = {MOE_IDS(routing, 1), MOE_WEIGHTS(routing), MOE_MASK(routing)};
    status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    if (!status) status = ffni_moe_check_ids(&routing);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    status = limit(context, &options, &routing);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}
