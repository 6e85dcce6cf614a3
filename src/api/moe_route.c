/* SPDX-License-Identifier: MIT
 * ffn_moe_route, ffn_moe_sparse_mixer and ffn_moe_sparse_mixer_sample: check, then route. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/router_options.h"
#include "core/routing.h"
#include "core/sparse_mixer.h"

#include <inttypes.h>
#include <math.h>

/* Ids that are given are not chosen. */
static ffn_status_t check_given(const router_t *router) {
    if (!(router->options.flags & FFN_MOE_GIVEN_IDS)) return FFN_OK;
    if (router->options.groups) return ffni_fail(FFN_INVALID, "groups is %" PRId64 ", but FFN_MOE_GIVEN_IDS leaves nothing to choose", router->options.groups);
    if (router->selection_bias) return ffni_fail(FFN_INVALID, "selection_bias is given, but FFN_MOE_GIVEN_IDS leaves nothing to choose");
    return FFN_OK;
}

static ffn_status_t check_route_arrays(const router_t *router) {
    const ffn_moe_routing_t *routing = &router->routing;
    int given = (router->options.flags & FFN_MOE_GIVEN_IDS) != 0;
    const moe_array_t arrays[] = {
        {"logits", router->logits, routing->tokens * routing->experts, 4, 1, 0},
        {"selection_bias", router->selection_bias, routing->experts, 4, 0, 0},
        {"expert_scale", router->expert_scale, routing->experts, 4, 0, 0},
        {"scores", router->scores, routing->tokens * routing->experts, 4, 0, 1},
        MOE_IDS(*routing, 1), MOE_WEIGHTS(*routing), MOE_MASK(*routing),
    };
    ffn_status_t status = ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
    return !status && given ? ffni_moe_check_ids(routing) : status;
}

ffn_status_t ffn_moe_route(ffn_context_t *context, const ffn_moe_router_options_t *given, const float *logits, const float *selection_bias,
                           const float *expert_scale, float *scores, const ffn_moe_routing_t *routing) {
    router_t router = {.logits = logits, .selection_bias = selection_bias, .expert_scale = expert_scale, .scores = scores};
    ffn_status_t status = ffni_moe_read_routing(routing, &router.routing);
    fpenv_t saved = fpenv_enter();
    if (!status && given) status = ffni_struct_read(&router.options, sizeof router.options, given, "ffn_moe_router_options_t");
    if (!status) status = ffni_router_check(&router.options, router.routing.experts, router.routing.top_k);
    if (!status) status = check_given(&router);
    if (status || !router.routing.tokens) goto cleanup;
    status = check_route_arrays(&router);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    if (router.options.scale == 0) router.options.scale = 1;
    ffni_route(context, &router);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

static ffn_status_t check_mixer(float jitter_eps, const float *logits, const ffn_moe_routing_t *routing) {
    if (!isfinite(jitter_eps) || jitter_eps < 0)
        return ffni_fail(FFN_INVALID, "jitter_eps is %s, must be finite and at least 0", ffni_number((double)jitter_eps).text);
    if (routing->top_k != 2) return ffni_fail(FFN_INVALID, "top_k is %" PRId64 ", must be 2 for SparseMixer", routing->top_k);
    const moe_array_t arrays[] = {
        {"logits", logits, routing->tokens * routing->experts, 4, 1, 0},
        MOE_IDS(*routing, 1), MOE_WEIGHTS(*routing), MOE_MASK(*routing),
    };
    return routing->tokens ? ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays) : FFN_OK;
}

ffn_status_t ffn_moe_sparse_mixer(ffn_context_t *context, float jitter_eps, const float *logits, const ffn_moe_routing_t *given) {
    ffn_moe_routing_t routing;
    ffn_status_t status = ffni_moe_read_routing(given, &routing);
    fpenv_t saved = fpenv_enter();
    if (!status) status = check_mixer(jitter_eps, logits, &routing);
    if (status || !routing.tokens) goto cleanup;
    status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    ffni_sparse_mixer(context, (double)jitter_eps, logits, &routing);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

/* There is no size: how much is drawn is the softmax's. */
static ffn_status_t read_choice_noise(const ffn_moe_noise_t *given, ffn_moe_noise_t *noise, int64_t tokens) {
    ffn_status_t status = ffni_moe_read_noise(given, noise, tokens, FFN_MOE_SITE_CHOICE, FFN_MOE_SITE_CHOICE);
    if (status || noise->size == 0) return status;
    return ffni_fail(FFN_INVALID, "size of the noise is %s, must be 0 at site CHOICE", ffni_number((double)noise->size).text);
}

ffn_status_t ffn_moe_sparse_mixer_sample(ffn_context_t *context, const ffn_moe_noise_t *given_noise, float jitter_eps, const float *logits,
                                         const ffn_moe_routing_t *given) {
    ffn_moe_routing_t routing;
    ffn_moe_noise_t noise;
    ffn_status_t status = ffni_moe_read_routing(given, &routing);
    fpenv_t saved = fpenv_enter();
    if (!status) status = read_choice_noise(given_noise, &noise, routing.tokens);
    if (!status) status = check_mixer(jitter_eps, logits, &routing);
    if (status || !routing.tokens) goto cleanup;
    status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    ffni_sparse_mixer_sample(context, &noise, (double)jitter_eps, logits, &routing);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}
