/* SPDX-License-Identifier: MIT
 * Checking ffn_moe_run_t. */
#include "api/moe_run.h"

#include "api/moe_check.h"
#include "base/error.h"
#include "base/structs.h"

#include <inttypes.h>
#include <string.h>

static int is_routed(const ffn_layer_t *layer) {
    return ffni_layer_has(layer, FFN_ROLE_ROUTER_WEIGHT);
}

static ffn_status_t read_given(const ffn_layer_t *layer, int64_t tokens, const ffn_moe_run_t *run, moe_call_t *call) {
    const mixture_t *mixture = &layer->mixture;
    int ids_alone = (mixture->router.flags & FFN_MOE_GIVEN_IDS) != 0;
    ffn_status_t status = ffni_moe_read_routing(run->routing, &call->given);
    if (status) return status;
    if (call->given.tokens != tokens)
        return ffni_fail(FFN_INVALID, "tokens of the routing is %" PRId64 ", must be %" PRId64 ", those of the run", call->given.tokens, tokens);
    if (call->given.experts != mixture->choices)
        return ffni_fail(FFN_INVALID, "experts of the routing is %" PRId64 ", must be %" PRId64 ", those of the layer", call->given.experts, mixture->choices);
    if (ids_alone && call->given.top_k != mixture->top_k)
        return ffni_fail(FFN_INVALID, "top_k of the routing is %" PRId64 ", must be %" PRId64 ", the layer's, which weighs the ids", call->given.top_k,
                         mixture->top_k);
    if (ids_alone && call->given.weights)
        return ffni_fail(FFN_INVALID, "weights of the routing is given, but the layer has FFN_MOE_GIVEN_IDS and makes them");
    if (run->mask) return ffni_fail(FFN_INVALID, "mask of the run is given beside a routing, which has its own");
    call->mask = call->given.mask;
    return FFN_OK;
}

static ffn_status_t check_fields(const ffn_layer_t *layer, const ffn_moe_run_t *run) {
    const mixture_t *mixture = &layer->mixture;
    int weighs = is_routed(layer) && (!run->routing || (mixture->router.flags & FFN_MOE_GIVEN_IDS));
    int at_random = mixture->second.policy == FFN_MOE_SECOND_RANDOM || mixture->second.policy == FFN_MOE_SECOND_SAMPLED;
    if (run->flags) return ffni_fail(FFN_INVALID, "flags of the mixture's run is %" PRIu32 ", must be 0", run->flags);
    if (!at_random && (run->stream || run->first_token))
        return ffni_fail(FFN_INVALID, "stream or first_token is not 0, but the layer chooses nothing at random");
    if (run->stream > UINT32_MAX) return ffni_fail(FFN_INVALID, "stream is %" PRIu64 ", must be 0 to %" PRIu32, run->stream, UINT32_MAX);
    ffn_status_t status = ffni_moe_check_range("first_token", run->first_token, 0, INT64_MAX / FFN_MOE_EXPERTS_MOST - MOE_TOKENS_MOST);
    if (status) return status;
    if ((run->logits || run->scores) && !weighs)
        return ffni_fail(FFN_INVALID, "%s is given, but the layer does not route in this run", run->logits ? "logits" : "scores");
    if (run->scores && mixture->choose == FFN_MOE_CHOOSE_SPARSE_MIXER) return ffni_fail(FFN_INVALID, "scores is given, but SparseMixer has none");
    return run->statistics ? ffni_struct_check(run->statistics, sizeof *run->statistics, "ffn_moe_statistics_t") : FFN_OK;
}

ffn_status_t ffni_moe_read_run(const ffn_layer_t *layer, const ffn_run_t *run, moe_particulars_t *particulars) {
    const mixture_t *mixture = &layer->mixture;
    ffn_moe_run_t *given = &particulars->given;
    moe_call_t *call = &particulars->call;
    ffn_status_t status = FFN_OK;
    if (run->moe && !mixture->experts) return ffni_fail(FFN_INVALID, "moe of the run is given, but the layer is no mixture of experts");
    if (run->moe) status = ffni_struct_read(given, sizeof *given, run->moe, "ffn_moe_run_t");
    if (status || !mixture->experts) return status;
    if (!given->routing && (!is_routed(layer) || (mixture->router.flags & FFN_MOE_GIVEN_IDS)))
        return ffni_fail(FFN_INVALID, "the run has no routing, but the layer %s", is_routed(layer) ? "has FFN_MOE_GIVEN_IDS" : "has no router weight");
    status = check_fields(layer, given);
    call->mask = given->mask;
    if (!status && given->routing) status = read_given(layer, run->batch * run->length, given, call);
    call->stream = given->stream, call->first_token = given->first_token;
    call->ids = given->ids, call->weights = given->weights, call->logits = given->logits, call->scores = given->scores;
    if (given->counts || given->statistics) call->tally = &particulars->tally;
    return status;
}

/* -------------------------------------------------------------------- Arrays */

static ffn_status_t check_apart(const moe_array_t *array, const char *name, const rows_t *rows, int is_written) {
    uintptr_t low, high, from = (uintptr_t)array->data;
    if (!array->data || !rows->base || !(array->written || is_written)) return FFN_OK;
    ffni_rows_range(rows, &low, &high);
    if (from >= high || from + (uint64_t)(array->count * array->size) <= low) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s overlaps %s", array->name, name);
}

ffn_status_t ffni_moe_check_run(const ffn_layer_t *layer, const forward_t *forward, const moe_particulars_t *particulars) {
    const moe_call_t *call = &particulars->call;
    const ffn_moe_run_t *run = &particulars->given;
    const ffn_moe_routing_t *given = &call->given;
    int64_t tokens = forward->x.count, choices = layer->mixture.choices, top_k = run->routing ? given->top_k : layer->mixture.top_k;
    int is_given = run->routing != NULL, weighs = (layer->mixture.router.flags & FFN_MOE_GIVEN_IDS) != 0;
    if (tokens > INT64_MAX / 8 / choices) return ffni_fail(FFN_INVALID, "%" PRId64 " tokens of %" PRId64 " experts are beyond the address space", tokens, choices);
    const moe_array_t arrays[] = {
        {"ids of the routing", given->ids, tokens * top_k, 4, is_given, 0},
        {"weights of the routing", given->weights, tokens * top_k, 4, is_given && !weighs, 0},
        {"mask", call->mask, tokens, 1, 0, 0},
        {"ids", run->ids, tokens * top_k, 4, 0, 1},
        {"weights", run->weights, tokens * top_k, 4, 0, 1},
        {"logits", run->logits, tokens * choices, 4, 0, 1},
        {"scores", run->scores, tokens * choices, 4, 0, 1},
        {"counts", run->counts, choices, 8, 0, 1},
        {"statistics", run->statistics, run->statistics ? run->statistics->struct_size / 8 : 0, 8, 0, 1},
    };
    ffn_status_t status = ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
    for (size_t i = 0; !status && i < sizeof arrays / sizeof *arrays; i++) {
        status = check_apart(&arrays[i], "x", &forward->x, 0);
        if (!status) status = check_apart(&arrays[i], "y", &forward->y, 1);
        if (!status) status = check_apart(&arrays[i], "residual", &forward->residual, 0);
    }
    return !status && is_given ? ffni_moe_check_ids(given) : status;
}

void ffni_moe_write_run(const ffn_layer_t *layer, const moe_particulars_t *particulars) {
    const ffn_moe_run_t *run = &particulars->given;
    ffn_moe_statistics_t statistics;
    if (run->counts) memcpy(run->counts, particulars->tally.counts, (size_t)layer->mixture.choices * sizeof *run->counts);
    if (!run->statistics) return;
    ffni_moe_tally_read(&particulars->tally, layer->mixture.choices, &statistics);
    ffni_struct_write(run->statistics, &statistics, sizeof statistics, "ffn_moe_statistics_t");
}
