/* SPDX-License-Identifier: MIT
 * The other ways to a routing, and what changes one: expert choice, hash, policies for second choices, capacity. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/capacity.h"
#include "core/routing.h"
#include "core/second_expert.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ------------------------------------------------------------- Expert choice */

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
    status = ffni_expert_choice(context, capacity, group_tokens ? group_tokens : routing.tokens, scores, &routing);
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
        status = ffni_moe_check_row(table + id * routing->top_k, routing->top_k, routing->experts, "row of the table", id);
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

static ffn_status_t check_second(const ffn_moe_second_options_t *options) {
    int weighs = options->policy == FFN_MOE_SECOND_THRESHOLD || options->policy == FFN_MOE_SECOND_RANDOM;
    if (options->flags) return ffni_fail(FFN_INVALID, "flags of the policy is %" PRIu32 ", must be 0", options->flags);
    ffn_status_t status = ffni_moe_check_range("policy", options->policy, FFN_MOE_SECOND_NONE, FFN_MOE_SECOND_SAMPLED);
    if (status) return status;
    if (weighs && !(isfinite(options->threshold) && options->threshold > 0))
        return ffni_fail(FFN_INVALID, "threshold is %s, must be finite and above 0", ffni_number((double)options->threshold).text);
    if (!weighs && !(options->threshold == 0))
        return ffni_fail(FFN_INVALID, "threshold is %s, but the policy has none", ffni_number((double)options->threshold).text);
    if (options->stream > UINT32_MAX) return ffni_fail(FFN_INVALID, "stream is %" PRIu64 ", must be 0 to %" PRIu32, options->stream, UINT32_MAX);
    return ffni_moe_check_range("first_token", options->first_token, 0, INT64_MAX / FFN_MOE_EXPERTS_MOST - MOE_TOKENS_MOST);
}

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
    if (!status) status = check_second(&options);
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

static ffn_status_t check_capacity(const ffn_moe_capacity_options_t *options) {
    if (options->flags & ~(uint32_t)FFN_MOE_CAPACITY_PER_CHOICE)
        return ffni_fail(FFN_INVALID, "flags of the capacity is 0x%" PRIx32 ", must be FFN_MOE_CAPACITY_PER_CHOICE or 0", options->flags);
    ffn_status_t status = ffni_moe_check_range("drop", options->drop, FFN_MOE_DROP_POSITION, FFN_MOE_DROP_PROBABILITY);
    if (!status) status = ffni_moe_check_range("rounding", options->rounding, FFN_MOE_ROUND_DOWN, FFN_MOE_ROUND_UP);
    if (!status) status = ffni_moe_check_range("capacity", options->capacity, 0, INT64_MAX);
    if (!status) status = ffni_moe_check_range("minimum", options->minimum, 0, INT64_MAX);
    if (!status) status = ffni_moe_check_range("group_tokens", options->group_tokens, 0, INT64_MAX);
    if (status) return status;
    if (!options->capacity && !(isfinite(options->factor) && options->factor > 0))
        return ffni_fail(FFN_INVALID, "factor is %s, must be finite and above 0 (or capacity given)", ffni_number(options->factor).text);
    if (options->capacity && (options->factor != 0 || options->minimum || options->rounding || options->flags))
        return ffni_fail(FFN_INVALID, "capacity is %" PRId64 ": factor, minimum, rounding and flags must be 0 beside it", options->capacity);
    return FFN_OK;
}

ffn_status_t ffn_moe_limit(ffn_context_t *context, const ffn_moe_capacity_options_t *given, const ffn_moe_routing_t *given_routing) {
    ffn_moe_capacity_options_t options;
    ffn_moe_routing_t routing;
    ffn_status_t status = ffni_struct_read(&options, sizeof options, given, "ffn_moe_capacity_options_t");
    fpenv_t saved = fpenv_enter();
    if (!status) status = ffni_moe_read_routing(given_routing, &routing);
    if (!status) status = check_capacity(&options);
    if (status || !routing.tokens) goto cleanup;
    const moe_array_t arrays[] = {MOE_IDS(routing, 1), MOE_WEIGHTS(routing), MOE_MASK(routing)};
    status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    if (!status) status = ffni_moe_check_ids(&routing);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    status = ffni_limit(context, &options, &routing);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}
