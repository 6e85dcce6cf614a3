/* SPDX-License-Identifier: MIT
 * Reading the options of a mixture of experts: each fault gets its sentence. */
#include "core/mixture.h"

#include "base/error.h"
#include "base/structs.h"
#include "core/router_options.h"
#include "core/tensors.h"

#include <inttypes.h>
#include <math.h>

/* Enough that 64 experts of which each of 1000 tokens chooses 6 are read once for them all, at a d_out of a few thousands. */
static const uint64_t default_chunk_bytes = UINT64_C(64) << 20;

static ffn_status_t check_numbers(const ffn_moe_options_t *options) {
    const uint32_t flags = FFN_MOE_WEIGHT_ON_INPUT | FFN_MOE_ROUTE_UNNORMED | FFN_MOE_NORMALISE_LAST | FFN_MOE_SHARED_UNCLAMPED;
    if (options->flags & ~flags)
        return ffni_fail(FFN_INVALID, "flags of the mixture is 0x%" PRIx32 ", must be FFN_MOE_* or-ed, at most 0x%" PRIx32, options->flags, flags);
    ffn_status_t status = ffni_moe_check_range("experts", options->experts, 1, FFN_MOE_EXPERTS_MOST);
    if (!status) status = ffni_moe_check_range("identity_experts", options->identity_experts, 0, FFN_MOE_EXPERTS_MOST - options->experts);
    if (!status) status = ffni_moe_check_range("choose", options->choose, FFN_MOE_CHOOSE_TOP_K, FFN_MOE_CHOOSE_BY_EXPERTS);
    if (status) return status;
    int64_t choices = options->experts + options->identity_experts;
    if (options->top_k < 1 || options->top_k > choices)
        return ffni_fail(FFN_INVALID, "top_k is %" PRId64 ", must be 1 to %" PRId64 ", the number of experts", options->top_k, choices);
    if (!isfinite(options->jitter_eps) || options->jitter_eps < 0)
        return ffni_fail(FFN_INVALID, "jitter_eps is %s, must be finite and at least 0", ffni_number((double)options->jitter_eps).text);
    if (options->jitter_eps > 0 && options->choose != FFN_MOE_CHOOSE_SPARSE_MIXER)
        return ffni_fail(FFN_INVALID, "jitter_eps is %s, but choose is not FFN_MOE_CHOOSE_SPARSE_MIXER", ffni_number((double)options->jitter_eps).text);
    return FFN_OK;
}

static ffn_status_t check_router_norm(const ffn_moe_options_t *options) {
    float eps = options->router_norm_eps;
    if (options->router_norm > FFN_NORM_RMS)
        return ffni_fail(FFN_INVALID, "router_norm is %" PRIu32 ", must be FFN_NORM_NONE, FFN_NORM_LAYER or FFN_NORM_RMS", options->router_norm);
    if (!isfinite(eps) || eps < 0)
        return ffni_fail(FFN_INVALID, "router_norm_eps is %s, must be finite and at least 0", ffni_number((double)eps).text);
    if (options->router_norm == FFN_NORM_NONE && eps > 0)
        return ffni_fail(FFN_INVALID, "router_norm_eps is %s, but router_norm is FFN_NORM_NONE", ffni_number((double)eps).text);
    return FFN_OK;
}

static ffn_status_t read_parts(const ffn_moe_options_t *options, mixture_t *mixture) {
    ffn_status_t status = FFN_OK;
    if (options->router) status = ffni_struct_read(&mixture->router, sizeof mixture->router, options->router, "ffn_moe_router_options_t");
    if (!status) status = ffni_router_check(&mixture->router, mixture->choices, mixture->top_k);
    if (!status && options->second) {
        status = ffni_struct_read(&mixture->second, sizeof mixture->second, options->second, "ffn_moe_second_options_t");
        if (!status) status = ffni_second_check(&mixture->second);
    }
    if (!status && options->capacity) {
        status = ffni_struct_read(&mixture->capacity, sizeof mixture->capacity, options->capacity, "ffn_moe_capacity_options_t");
        if (!status) status = ffni_capacity_check(&mixture->capacity);
        mixture->capacity.struct_size = sizeof mixture->capacity;
    }
    return status;
}

/* What one choice of experts takes and another does not. */
static ffn_status_t check_choose(const ffn_moe_options_t *options, const mixture_t *mixture) {
    int mixer = mixture->choose == FFN_MOE_CHOOSE_SPARSE_MIXER, by_experts = mixture->choose == FFN_MOE_CHOOSE_BY_EXPERTS;
    int given = (mixture->router.flags & FFN_MOE_GIVEN_IDS) != 0;
    if ((mixer || options->second) && mixture->top_k != 2)
        return ffni_fail(FFN_INVALID, "top_k is %" PRId64 ", must be 2 for %s", mixture->top_k, mixer ? "SparseMixer" : "a policy of second choices");
    if (mixer && options->router) return ffni_fail(FFN_INVALID, "router is given, must be NULL for SparseMixer");
    if (mixer && (mixture->flags & FFN_MOE_NORMALISE_LAST))
        return ffni_fail(FFN_INVALID, "flags has FFN_MOE_NORMALISE_LAST, but SparseMixer does not normalise");
    if (options->second && (mixture->second.stream || mixture->second.first_token))
        return ffni_fail(FFN_INVALID, "stream or first_token of second is not 0: they are the run's");
    if (given && (mixture->choose != FFN_MOE_CHOOSE_TOP_K || mixture->router.groups > 1 || mixture->second.policy == FFN_MOE_SECOND_SAMPLED))
        return ffni_fail(FFN_INVALID, "router has FFN_MOE_GIVEN_IDS, which leaves nothing to choose: choose, groups and a sampled second must be 0");
    if (!by_experts) return FFN_OK;
    if (!options->capacity) return ffni_fail(FFN_INVALID, "capacity is NULL, must be given for FFN_MOE_CHOOSE_BY_EXPERTS");
    if (mixture->capacity.drop) return ffni_fail(FFN_INVALID, "drop of the capacity is %" PRIu32 ", but experts choose and none is dropped", mixture->capacity.drop);
    if (mixture->top_k != mixture->choices)
        return ffni_fail(FFN_INVALID, "top_k is %" PRId64 ", must be %" PRId64 " (all experts) where experts choose", mixture->top_k, mixture->choices);
    if (options->second || mixture->router.groups > 1 || mixture->router.normalise || mixture->router.weight || mixture->router.scale != 0 ||
        mixture->flags & FFN_MOE_NORMALISE_LAST)
        return ffni_fail(FFN_INVALID, "second, groups, weight, normalise and scale must be 0 where experts choose: the weights are the scores");
    return FFN_OK;
}

ffn_status_t ffni_mixture_read(const ffn_layer_options_t *layer, mixture_t *mixture) {
    ffn_moe_options_t options;
    *mixture = (mixture_t){0};
    if (!layer->moe) return FFN_OK;
    ffn_status_t status = ffni_struct_read(&options, sizeof options, layer->moe, "ffn_moe_options_t");
    if (status) return status;
    status = ffni_tensors_check_list(layer->tensors, layer->tensor_count, FFN_MOE_EXPERTS_MOST);
    if (status) return status;
    if (!options.experts) options.experts = ffni_tensors_experts(layer->tensors, layer->tensor_count);
    status = check_numbers(&options);
    if (!status) status = check_router_norm(&options);
    if (status) return status;
    *mixture = (mixture_t){.experts = options.experts, .choices = options.experts + options.identity_experts, .top_k = options.top_k,
                           .flags = options.flags, .choose = options.choose, .jitter_eps = options.jitter_eps, .router_norm = options.router_norm,
                           .router_norm_eps = options.router_norm_eps,
                           .chunk_bytes = options.chunk_bytes ? options.chunk_bytes : default_chunk_bytes};
    status = read_parts(&options, mixture);
    if (!status) status = check_choose(&options, mixture);
    if (mixture->router.scale == 0) mixture->router.scale = 1;
    return status;
}

/* --------------------------------------------------------------------- Tensors */

typedef struct need {
    int role, needed;
} need_t;

static const need_t needs[] = {
    {FFN_ROLE_ROUTER_BIAS, FFN_ROLE_ROUTER_WEIGHT},
    {FFN_ROLE_ROUTER_NORM_WEIGHT, FFN_ROLE_ROUTER_WEIGHT},
    {FFN_ROLE_SELECTION_BIAS, FFN_ROLE_ROUTER_WEIGHT},
    {FFN_ROLE_EXPERT_SCALE, FFN_ROLE_ROUTER_WEIGHT},
    {FFN_ROLE_SHARED_UP_WEIGHT, FFN_ROLE_SHARED_DOWN_WEIGHT},
    {FFN_ROLE_SHARED_UP_BIAS, FFN_ROLE_SHARED_UP_WEIGHT},
    {FFN_ROLE_SHARED_GATE_WEIGHT, FFN_ROLE_SHARED_UP_WEIGHT},
    {FFN_ROLE_SHARED_GATE_BIAS, FFN_ROLE_SHARED_GATE_WEIGHT},
    {FFN_ROLE_SHARED_DOWN_WEIGHT, FFN_ROLE_SHARED_UP_WEIGHT},
    {FFN_ROLE_SHARED_DOWN_BIAS, FFN_ROLE_SHARED_UP_WEIGHT},
    {FFN_ROLE_SHARED_SCALE_WEIGHT, FFN_ROLE_SHARED_UP_WEIGHT},
    {FFN_ROLE_LATENT_IN_WEIGHT, FFN_ROLE_LATENT_OUT_WEIGHT},
    {FFN_ROLE_LATENT_OUT_WEIGHT, FFN_ROLE_LATENT_IN_WEIGHT},
    {FFN_ROLE_LATENT_IN_BIAS, FFN_ROLE_LATENT_IN_WEIGHT},
    {FFN_ROLE_LATENT_OUT_BIAS, FFN_ROLE_LATENT_OUT_WEIGHT},
};

static ffn_status_t check_router_tensors(const mixture_t *mixture, const ffn_tensor_t *const tensor[ROLE_LIMIT]) {
    int mixer = mixture->choose == FFN_MOE_CHOOSE_SPARSE_MIXER, given = (mixture->router.flags & FFN_MOE_GIVEN_IDS) != 0;
    int by_experts = mixture->choose == FFN_MOE_CHOOSE_BY_EXPERTS;
    if (!tensor[FFN_ROLE_ROUTER_WEIGHT] && (mixture->router_norm || mixture->choose || given || mixture->second.policy || mixture->capacity.struct_size))
        return ffni_fail(FFN_INVALID, "the router weight is missing: router_norm, choose, FFN_MOE_GIVEN_IDS, second and capacity need it");
    if (tensor[FFN_ROLE_ROUTER_NORM_WEIGHT] && !mixture->router_norm)
        return ffni_fail(FFN_INVALID, "%s is given, but router_norm is FFN_NORM_NONE", ffni_roles[FFN_ROLE_ROUTER_NORM_WEIGHT].name);
    if (tensor[FFN_ROLE_SELECTION_BIAS] && (mixer || given || by_experts))
        return ffni_fail(FFN_INVALID, "the selection bias is given, but the experts are not chosen by top_k");
    if (tensor[FFN_ROLE_EXPERT_SCALE] && (mixer || by_experts))
        return ffni_fail(FFN_INVALID, "the scale of experts is given, but the weights are not ffn_moe_route's");
    return FFN_OK;
}

ffn_status_t ffni_mixture_check_tensors(const mixture_t *mixture, const ffn_tensor_t *const tensor[ROLE_LIMIT]) {
    if (!mixture->experts) return FFN_OK;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (tensor[needs[i].role] && !tensor[needs[i].needed])
            return ffni_fail(FFN_INVALID, "%s is given without %s", ffni_roles[needs[i].role].name, ffni_roles[needs[i].needed].name);
    return check_router_tensors(mixture, tensor);
}
