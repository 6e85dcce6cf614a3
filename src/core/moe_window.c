/* SPDX-License-Identifier: MIT
 * Routing a window of tokens: block by block what each token decides by itself, then what the tokens of a group share. */
#include "core/moe.h"

#include "base/checked.h"
#include "core/parallel.h"
#include "core/routing.h"
#include "core/scores.h"
#include "core/second_expert.h"
#include "core/sparse_mixer.h"
#include "core/tape.h"

#include <stddef.h>
#include <string.h>

/* A part of the window, from token `begin` of the run on. */
static ffn_moe_routing_t routing_of(const moe_pass_t *pass, int64_t begin, int64_t tokens) {
    const moe_call_t *call = pass->forward->moe;
    int64_t first = (begin - pass->window_begin) * pass->plan.top_k;
    return (ffn_moe_routing_t){.tokens = tokens, .experts = pass->layer->mixture.choices, .top_k = pass->plan.top_k, .ids = pass->memory.ids + first,
                               .weights = pass->memory.weights + first, .mask = call->mask ? call->mask + begin : NULL};
}

/* Where the logits of tokens from `begin` on are: the caller's array, the window's or the block's. */
static float *logits_at(const moe_pass_t *pass, int64_t begin) {
    const moe_call_t *call = pass->forward->moe;
    const mixture_t *mixture = &pass->layer->mixture;
    if (call->logits) return call->logits + begin * mixture->choices;
    if (pass->forward->tape) return pass->forward->tape->mixture.logits + begin * mixture->choices;
    return pass->memory.logits + (mixture->flags & FFN_MOE_NORMALISE_LAST ? (begin - pass->window_begin) * mixture->choices : 0);
}

static float *scores_at(const moe_pass_t *pass, int64_t begin) {
    const moe_call_t *call = pass->forward->moe;
    const mixture_t *mixture = &pass->layer->mixture;
    if (call->scores) return call->scores + begin * mixture->choices;
    return pass->memory.scores + (mixture->choose == FFN_MOE_CHOOSE_BY_EXPERTS ? (begin - pass->window_begin) * mixture->choices : 0);
}

/* ----------------------------------------------------------------------- Given */

static void copy_given(const moe_pass_t *pass, const ffn_moe_routing_t *routing, int64_t begin) {
    const ffn_moe_routing_t *given = &pass->forward->moe->given;
    size_t slots = (size_t)(routing->tokens * routing->top_k);
    memcpy(routing->ids, given->ids + begin * routing->top_k, slots * sizeof *routing->ids);
    if (given->weights) memcpy(routing->weights, given->weights + begin * routing->top_k, slots * sizeof *routing->weights);
    for (int64_t token = 0; token < routing->tokens; token++) {
        if (ffni_routing_skip(routing, token)) continue;
        for (int64_t slot = token * routing->top_k; slot < (token + 1) * routing->top_k; slot++)
            if (routing->ids[slot] == FFN_MOE_NO_EXPERT) routing->weights[slot] = 0;
    }
}

/* ----------------------------------------------------------------------- Block */

static void compute_logits(moe_pass_t *pass, int64_t begin, int64_t tokens) {
    const ffn_layer_t *layer = pass->layer;
    linear_t linear = ffni_moe_linear(layer, FFN_ROLE_ROUTER_WEIGHT, FFN_ROLE_ROUTER_BIAS);
    linear.has_norm = layer->mixture.router_norm != FFN_NORM_NONE;
    if (linear.has_norm) linear.norm_kind = ffni_norm_kind(layer->mixture.router_norm);
    linear.norm = layer->router_norm;
    if (layer->mixture.flags & FFN_MOE_ROUTE_UNNORMED)
        ffni_linear_run(pass->context, &linear, &pass->memory.router, &pass->forward->x, begin, tokens, logits_at(pass, begin));
    else
        ffni_linear_run(pass->context, &linear, &pass->memory.router, &pass->input, pass->input_first, tokens, logits_at(pass, begin));
}

/* As options that normalise at once, not at all before choices are dropped, or anew on those that are left. */
typedef enum stage { STAGE_ONLY, STAGE_FIRST, STAGE_LAST } stage_t;

static void route(const moe_pass_t *pass, const ffn_moe_routing_t *routing, int64_t begin, stage_t stage, int given) {
    const ffn_layer_t *layer = pass->layer;
    router_t router = {.options = layer->mixture.router, .logits = logits_at(pass, begin), .routing = *routing};
    if (stage != STAGE_FIRST) router.expert_scale = ffni_layer_vector(layer, FFN_ROLE_EXPERT_SCALE, 0);
    if (given) {
        router.options.flags |= FFN_MOE_GIVEN_IDS;
        router.options.groups = router.options.top_groups = 0;
    } else {
        router.selection_bias = ffni_layer_vector(layer, FFN_ROLE_SELECTION_BIAS, 0);
    }
    if (stage != STAGE_LAST) router.scores = scores_at(pass, begin);
    if (stage == STAGE_FIRST) {
        router.options.normalise = FFN_MOE_NORMALISE_NONE;
        router.options.scale = 1;
    }
    ffni_route(pass->context, &router);
}

typedef struct scoring {
    uint32_t score;
    int64_t experts;
    const float *logits;
    float *scores;
} scoring_t;

static void score_rows(void *data, int64_t begin, int64_t end) {
    const scoring_t *scoring = data;
    for (int64_t row = begin; row < end; row++)
        ffni_scores(scoring->score, scoring->experts, scoring->scores + row * scoring->experts, scoring->logits + row * scoring->experts);
}

static void score(const moe_pass_t *pass, int64_t begin, int64_t tokens) {
    const mixture_t *mixture = &pass->layer->mixture;
    enum { WORK_PER_EXPERT = 8 }; /* as in core/routing.c */
    scoring_t scoring = {mixture->router.score, mixture->choices, logits_at(pass, begin), scores_at(pass, begin)};
    ffni_parallel_rows(pass->context, tokens, mixture->choices * WORK_PER_EXPERT, score_rows, &scoring);
}

/* The ids by which the weights were made, before choices are dropped. */
static void record_made(const moe_pass_t *pass, const ffn_moe_routing_t *routing, int64_t begin) {
    const ffn_tape_t *tape = pass->forward->tape;
    size_t slots = (size_t)(routing->tokens * routing->top_k);
    if (tape) memcpy(tape->mixture.made_ids + begin * routing->top_k, routing->ids, slots * sizeof *routing->ids);
}

static void apply_second(const moe_pass_t *pass, const ffn_moe_routing_t *routing, int64_t begin, stage_t stage) {
    ffn_moe_second_options_t options = pass->layer->mixture.second;
    options.stream = pass->forward->moe->stream;
    options.first_token = pass->forward->moe->first_token + begin;
    ffni_second_expert(&options, logits_at(pass, begin), routing);
    if (options.policy != FFN_MOE_SECOND_SAMPLED) return;
    route(pass, routing, begin, stage, 1);
    record_made(pass, routing, begin);
}

static void route_block(moe_pass_t *pass, int64_t begin, int64_t tokens) {
    const mixture_t *mixture = &pass->layer->mixture;
    const moe_call_t *call = pass->forward->moe;
    ffn_moe_routing_t routing = routing_of(pass, begin, tokens);
    stage_t stage = mixture->flags & FFN_MOE_NORMALISE_LAST ? STAGE_FIRST : STAGE_ONLY;
    ffni_moe_take_input(pass, begin, tokens);
    if (call->given.ids) copy_given(pass, &routing, begin);
    if (call->given.ids && call->given.weights) return;
    compute_logits(pass, begin, tokens);
    switch (mixture->choose) {
    case FFN_MOE_CHOOSE_SPARSE_MIXER:
        ffni_sparse_mixer(pass->context, (double)mixture->jitter_eps, logits_at(pass, begin), &routing);
        record_made(pass, &routing, begin);
        return;
    case FFN_MOE_CHOOSE_BY_EXPERTS: score(pass, begin, tokens); break;
    default: route(pass, &routing, begin, stage, call->given.ids != NULL);
    }
    record_made(pass, &routing, begin);
    if (call->tally) ffni_moe_tally_scores(call->tally, &routing, scores_at(pass, begin));
    if (mixture->second.policy) apply_second(pass, &routing, begin, stage);
}

/* ---------------------------------------------------------------------- Window */

static void let_experts_choose(const moe_pass_t *pass, const ffn_moe_routing_t *routing) {
    const mixture_t *mixture = &pass->layer->mixture;
    const float *scores = scores_at(pass, pass->window_begin);
    int64_t group = mixture->capacity.group_tokens ? mixture->capacity.group_tokens : routing->tokens;
    for (int64_t begin = 0; begin < routing->tokens; begin += group) {
        int64_t tokens = minimum(group, routing->tokens - begin);
        ffni_expert_choice_rank(ffni_capacity_of(&mixture->capacity, routing, tokens), begin, tokens, scores, routing, &pass->memory.capacity);
    }
    ffni_expert_choice_fill(scores, routing, &pass->memory.capacity); /* top_k is all experts: every choice has its slot */
}

static void give_back(const moe_pass_t *pass, const ffn_moe_routing_t *routing) {
    const moe_call_t *call = pass->forward->moe;
    int64_t first = pass->window_begin * routing->top_k;
    size_t slots = (size_t)(routing->tokens * routing->top_k);
    if (call->ids) memcpy(call->ids + first, routing->ids, slots * sizeof *routing->ids);
    if (call->weights) memcpy(call->weights + first, routing->weights, slots * sizeof *routing->weights);
    if (call->tally) ffni_moe_tally_choices(call->tally, routing);
}

static void record(const moe_pass_t *pass, const ffn_moe_routing_t *routing) {
    const moe_call_t *call = pass->forward->moe;
    const mixture_t *mixture = &pass->layer->mixture;
    mixture_tape_t *tape = &pass->forward->tape->mixture;
    int64_t first = pass->window_begin * routing->top_k;
    size_t slots = (size_t)(routing->tokens * routing->top_k);
    tape->made = !(call->given.ids && call->given.weights);
    memcpy(tape->ids + first, routing->ids, slots * sizeof *routing->ids);
    memcpy(tape->weights + first, routing->weights, slots * sizeof *routing->weights);
    if (mixture->choose == FFN_MOE_CHOOSE_BY_EXPERTS || mixture->flags & FFN_MOE_NORMALISE_LAST || !tape->made)
        memcpy(tape->made_ids + first, routing->ids, slots * sizeof *routing->ids);
    for (int64_t token = 0; token < routing->tokens; token++) tape->mask[pass->window_begin + token] = (uint8_t)ffni_routing_counts(routing, token);
    if (call->logits && tape->made)
        memcpy(tape->logits + pass->window_begin * mixture->choices, call->logits + pass->window_begin * mixture->choices,
               (size_t)(routing->tokens * mixture->choices) * sizeof *tape->logits);
}

void ffni_moe_route_window(moe_pass_t *pass, int64_t begin, int64_t tokens) {
    const mixture_t *mixture = &pass->layer->mixture;
    const moe_call_t *call = pass->forward->moe;
    pass->window_begin = begin, pass->window_tokens = tokens;
    for (int64_t block = begin; block < begin + tokens; block += pass->plan.chunk)
        route_block(pass, block, minimum(pass->plan.chunk, begin + tokens - block));
    ffn_moe_routing_t routing = routing_of(pass, begin, tokens);
    if (!(call->given.ids && call->given.weights)) {
        if (mixture->choose == FFN_MOE_CHOOSE_BY_EXPERTS)
            let_experts_choose(pass, &routing);
        else if (mixture->capacity.struct_size)
            ffni_limit(&mixture->capacity, &routing, &pass->memory.capacity);
        if (mixture->flags & FFN_MOE_NORMALISE_LAST) route(pass, &routing, begin, STAGE_LAST, 1);
    }
    give_back(pass, &routing);
    if (pass->forward->tape) record(pass, &routing);
}
