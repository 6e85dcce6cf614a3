/* SPDX-License-Identifier: MIT
 * Checking the options of routers: each fault gets its sentence. */
#include "core/router_options.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>

ffn_status_t ffni_moe_check_range(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s is %" PRId64 ", must be %" PRId64 " to %" PRId64, name, value, least, most);
}

/* -------------------------------------------------------------------- Router */

static ffn_status_t check_choices(const ffn_moe_router_options_t *options) {
    if (options->flags & ~(uint32_t)FFN_MOE_GIVEN_IDS)
        return ffni_fail(FFN_INVALID, "flags of the router is 0x%" PRIx32 ", must be FFN_MOE_GIVEN_IDS or 0", options->flags);
    ffn_status_t status = ffni_moe_check_range("score", options->score, FFN_MOE_SCORE_SOFTMAX, FFN_MOE_SCORE_NONE);
    if (!status) status = ffni_moe_check_range("weight", options->weight, FFN_MOE_WEIGHT_SCORE, FFN_MOE_WEIGHT_SIGMOID);
    if (!status) status = ffni_moe_check_range("normalise", options->normalise, FFN_MOE_NORMALISE_NONE, FFN_MOE_NORMALISE_POWER);
    if (!status) status = ffni_moe_check_range("group_score", options->group_score, FFN_MOE_GROUP_MAX, FFN_MOE_GROUP_TOP2_SUM);
    return status;
}

static ffn_status_t check_eps(const char *name, float eps, uint32_t normalise) {
    if (!isfinite(eps) || eps < 0) return ffni_fail(FFN_INVALID, "%s is %s, must be finite and at least 0", name, ffni_number((double)eps).text);
    if (eps > 0 && normalise == FFN_MOE_NORMALISE_NONE)
        return ffni_fail(FFN_INVALID, "%s is %s, but normalise is FFN_MOE_NORMALISE_NONE", name, ffni_number((double)eps).text);
    return FFN_OK;
}

static ffn_status_t check_numbers(const ffn_moe_router_options_t *options) {
    float power = options->norm_power;
    ffn_status_t status = check_eps("eps_added", options->eps_added, options->normalise);
    if (!status) status = check_eps("eps_least", options->eps_least, options->normalise);
    if (status) return status;
    if (options->normalise == FFN_MOE_NORMALISE_POWER && !(power > 0))
        return ffni_fail(FFN_INVALID, "norm_power is %s, must be above 0", ffni_number((double)power).text);
    if (options->normalise != FFN_MOE_NORMALISE_POWER && !(power == 0))
        return ffni_fail(FFN_INVALID, "norm_power is %s, but normalise is not FFN_MOE_NORMALISE_POWER", ffni_number((double)power).text);
    if (!isfinite(options->scale)) return ffni_fail(FFN_INVALID, "scale is %s, must be finite", ffni_number((double)options->scale).text);
    return FFN_OK;
}

static ffn_status_t check_groups(const ffn_moe_router_options_t *options, int64_t experts, int64_t top_k) {
    int64_t groups = options->groups, top = options->top_groups;
    ffn_status_t status = ffni_moe_check_range("groups", groups, 0, experts);
    if (status) return status;
    if (groups < 2) {
        if (options->group_score) return ffni_fail(FFN_INVALID, "group_score is %" PRIu32 ", but groups is %" PRId64, options->group_score, groups);
        if (top > groups || top < 0) return ffni_fail(FFN_INVALID, "top_groups is %" PRId64 ", but groups is %" PRId64, top, groups);
        return FFN_OK;
    }
    if (experts % groups)
        return ffni_fail(FFN_INVALID, "groups is %" PRId64 ", must divide experts, which is %" PRId64, groups, experts);
    status = ffni_moe_check_range("top_groups", top, 1, groups);
    if (!status && experts / groups * top < top_k)
        status = ffni_fail(FFN_INVALID, "top_groups is %" PRId64 ": that many groups hold %" PRId64 " experts, but top_k is %" PRId64, top,
                           experts / groups * top, top_k);
    return status;
}

ffn_status_t ffni_router_check(const ffn_moe_router_options_t *options, int64_t experts, int64_t top_k) {
    ffn_status_t status = check_choices(options);
    if (!status) status = check_numbers(options);
    if (!status) status = check_groups(options, experts, top_k);
    return status;
}

/* ------------------------------------------------ Second choices, and capacity */

ffn_status_t ffni_second_check(const ffn_moe_second_options_t *options) {
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

ffn_status_t ffni_capacity_check(const ffn_moe_capacity_options_t *options) {
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
