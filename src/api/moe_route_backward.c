/* SPDX-License-Identifier: MIT
 * ffn_moe_route_backward and ffn_moe_sparse_mixer_backward: check, then go back. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/router_options.h"
#include "core/routing_backward.h"
#include "core/sparse_mixer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static ffn_status_t read_gradients(const ffn_moe_route_gradients_t *given, ffn_moe_route_gradients_t *gradients) {
    ffn_status_t status = ffni_struct_read(gradients, sizeof *gradients, given, "ffn_moe_route_gradients_t");
    if (status) return status;
    if (gradients->flags & ~(uint32_t)FFN_BACKWARD_ACCUMULATE)
        return ffni_fail(FFN_INVALID, "flags of the gradients is 0x%" PRIx32 ", must be FFN_BACKWARD_ACCUMULATE or 0", gradients->flags);
    return FFN_OK;
}

static ffn_status_t check_arrays(const float *logits, const float *expert_scale, const ffn_moe_routing_t *routing,
                                 const ffn_moe_route_gradients_t *gradients) {
    int64_t all = routing->tokens * routing->experts;
    const moe_array_t arrays[] = {
        {"logits", logits, all, 4, 1, 0},
        {"expert_scale", expert_scale, routing->experts, 4, 0, 0},
        {"ids of the routing", routing->ids, routing->tokens * routing->top_k, 4, gradients->d_weights != NULL, 0},
        MOE_MASK(*routing),
        {"d_weights", gradients->d_weights, routing->tokens * routing->top_k, 4, 0, 0},
        {"d_scores", gradients->d_scores, all, 4, 0, 0},
        {"d_logits", gradients->d_logits, all, 4, 1, 1},
        {"d_expert_scale", gradients->d_expert_scale, routing->experts, 4, 0, 1},
    };
    ffn_status_t status = ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
    return !status && gradients->d_weights ? ffni_moe_check_ids(routing) : status;
}

/* The sums by the expert scale, and room for those of chunks. */
static ffn_status_t take_sums(ffn_context_t *context, router_backward_t *backward) {
    int64_t experts = backward->routing.experts;
    const int64_t row = experts * (int64_t)sizeof(double);
    ffn_status_t status = FFN_OK;
    for (int carve = 0; !status && carve < 2; carve++) {
        arena_t arena = {.base = carve ? context->scratch : NULL};
        backward->scale_sums = ffni_arena_take(&arena, 1, row);
        backward->scale_partial = ffni_arena_take(&arena, ROUTE_CHUNKS, row);
        if (!carve && context->scratch_limit && arena.used > context->scratch_limit)
            return ffni_fail(FFN_NO_MEMORY, "scratch_limit of the context is %" PRIu64 " bytes, must be at least %" PRIu64 " for this router",
                             context->scratch_limit, arena.used);
        if (!carve) status = ffni_context_scratch(context, arena.used);
    }
    if (!status) memset(backward->scale_sums, 0, (size_t)row);
    return status;
}

static ffn_status_t go_back(ffn_context_t *context, router_backward_t *backward, float *d_expert_scale) {
    ffn_status_t status = d_expert_scale ? take_sums(context, backward) : FFN_OK;
    if (status) return status;
    ffni_route_backward(context, backward);
    if (d_expert_scale) ffni_derivatives_put(backward->routing.experts, d_expert_scale, backward->scale_sums, backward->accumulate);
    return FFN_OK;
}

ffn_status_t ffn_moe_route_backward(ffn_context_t *context, const ffn_moe_router_options_t *options, const float *logits, const float *expert_scale,
                                    const ffn_moe_routing_t *routing, const ffn_moe_route_gradients_t *given) {
    router_backward_t backward = {.logits = logits, .expert_scale = expert_scale};
    ffn_moe_route_gradients_t gradients;
    ffn_status_t status = ffni_moe_read_routing(routing, &backward.routing);
    fpenv_t saved = fpenv_enter();
    if (!status && options) status = ffni_struct_read(&backward.options, sizeof backward.options, options, "ffn_moe_router_options_t");
    if (!status) status = ffni_router_check(&backward.options, backward.routing.experts, backward.routing.top_k);
    if (!status) status = read_gradients(given, &gradients);
    if (!status) status = check_arrays(logits, expert_scale, &backward.routing, &gradients);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    if (backward.options.scale == 0) backward.options.scale = 1;
    backward.d_weights = gradients.d_weights;
    backward.d_scores = gradients.d_scores;
    backward.d_logits = gradients.d_logits;
    backward.accumulate = (gradients.flags & FFN_BACKWARD_ACCUMULATE) != 0;
    status = go_back(context, &backward, gradients.d_expert_scale);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

static ffn_status_t check_mixer(float jitter_eps, const float *logits, const ffn_moe_routing_t *routing, const ffn_moe_route_gradients_t *gradients) {
    if (!isfinite(jitter_eps) || jitter_eps < 0)
        return ffni_fail(FFN_INVALID, "jitter_eps is %s, must be finite and at least 0", ffni_number((double)jitter_eps).text);
    if (routing->top_k != 2) return ffni_fail(FFN_INVALID, "top_k is %" PRId64 ", must be 2 for SparseMixer", routing->top_k);
    if (gradients->d_scores || gradients->d_expert_scale)
        return ffni_fail(FFN_INVALID, "%s is given, but SparseMixer has none", gradients->d_scores ? "d_scores" : "d_expert_scale");
    if (!gradients->d_weights && routing->tokens) return ffni_fail(FFN_INVALID, "d_weights is NULL");
    return check_arrays(logits, NULL, routing, gradients);
}

ffn_status_t ffn_moe_sparse_mixer_backward(ffn_context_t *context, float jitter_eps, const float *logits, const ffn_moe_routing_t *given,
                                           const ffn_moe_route_gradients_t *given_gradients) {
    ffn_moe_routing_t routing;
    ffn_moe_route_gradients_t gradients;
    ffn_status_t status = ffni_moe_read_routing(given, &routing);
    fpenv_t saved = fpenv_enter();
    if (!status) status = read_gradients(given_gradients, &gradients);
    if (!status) status = check_mixer(jitter_eps, logits, &routing, &gradients);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    ffni_sparse_mixer_backward(context, (double)jitter_eps, logits, &routing, gradients.d_weights, gradients.d_logits,
                               (gradients.flags & FFN_BACKWARD_ACCUMULATE) != 0);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}
