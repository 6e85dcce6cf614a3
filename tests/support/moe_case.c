/* SPDX-License-Identifier: MIT */
#include "support/moe_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

static bool is_experts(uint32_t role)
{
    return (role >= FFN_ROLE_UP_WEIGHT && role <= FFN_ROLE_DOWN_BIAS) || role == FFN_ROLE_NORM_MID_WEIGHT || role == FFN_ROLE_NORM_MID_BIAS;
}

static int64_t elements(const test_moe_t *test, uint32_t role)
{
    return test->shape[role][0] * (test->shape[role][1] ? test->shape[role][1] : 1);
}

float *test_moe_plain(const test_moe_t *test, uint32_t role, int64_t expert)
{
    return test->plain[role] ? test->plain[role] + expert * elements(test, role) : NULL;
}

/* ------------------------------------------------------------------- Weights */

static void fill(test_moe_t *test, uint32_t role, int64_t rows, int64_t columns, rng_t *rng)
{
    float unit = columns ? 2 / sqrtf((float)columns) : 1;
    test->shape[role][0] = rows;
    test->shape[role][1] = columns;
    int64_t n = elements(test, role) * (is_experts(role) ? test->experts : 1);
    test->plain[role] = test_alloc((size_t)n * sizeof(float));
    rng_fill_uniform(rng, test->plain[role], n, -unit, unit);
}

static void fill_network(test_moe_t *test, const uint32_t roles[6], int64_t d_in, int64_t d_ff, int64_t d_out, rng_t *rng)
{
    const moe_case_t *is = &test->is;
    fill(test, roles[0], d_ff, d_in, rng);
    if (is->biases & BIAS_UP) fill(test, roles[1], d_ff, 0, rng);
    if (is->gated) fill(test, roles[2], d_ff, d_in, rng);
    if (is->gated && (is->biases & BIAS_GATE)) fill(test, roles[3], d_ff, 0, rng);
    fill(test, roles[4], d_out, d_ff, rng);
    if (is->biases & BIAS_DOWN) fill(test, roles[5], d_out, 0, rng);
}

static void fill_norms(test_moe_t *test, rng_t *rng)
{
    const int64_t width[4] = {test->is.d_model, test->is.d_ff, test->is.d_out, test->is.d_out};
    for (uint32_t slot = 0; slot < 4; slot++) {
        const norm_case_t *norm = &test->is.norm[slot];
        if (norm->weight) fill(test, FFN_ROLE_NORM_IN_WEIGHT + 2 * slot, width[slot], 0, rng);
        if (norm->bias) fill(test, FFN_ROLE_NORM_IN_BIAS + 2 * slot, width[slot], 0, rng);
    }
}

static void fill_weights(test_moe_t *test)
{
    static const uint32_t expert[6] = {1, 2, 3, 4, 5, 6}, shared[6] = {46, 47, 48, 49, 50, 51};
    const moe_case_t *is = &test->is;
    rng_t rng = rng_make(is->seed);
    fill_network(test, expert, is->d_latent ? is->d_latent : is->d_model, is->d_ff, is->d_latent ? is->d_latent : is->d_out, &rng);
    fill_norms(test, &rng);
    if (is->d_shared) fill_network(test, shared, is->d_model, is->d_shared, is->d_out, &rng);
    if (is->shared_scale) fill(test, FFN_ROLE_SHARED_SCALE_WEIGHT, 1, is->d_model, &rng);
    if (is->d_latent) fill(test, FFN_ROLE_LATENT_IN_WEIGHT, is->d_latent, is->d_model, &rng);
    if (is->d_latent) fill(test, FFN_ROLE_LATENT_OUT_WEIGHT, is->d_out, is->d_latent, &rng);
    if (is->latent_biases) fill(test, FFN_ROLE_LATENT_IN_BIAS, is->d_latent, 0, &rng);
    if (is->latent_biases) fill(test, FFN_ROLE_LATENT_OUT_BIAS, is->d_out, 0, &rng);
    if (!is->no_router) fill(test, FFN_ROLE_ROUTER_WEIGHT, test->choices, is->d_model, &rng);
    if (is->router_bias) fill(test, FFN_ROLE_ROUTER_BIAS, test->choices, 0, &rng);
    if (is->router_norm_weight) fill(test, FFN_ROLE_ROUTER_NORM_WEIGHT, is->d_model, 0, &rng);
    if (is->selection_bias) fill(test, FFN_ROLE_SELECTION_BIAS, test->choices, 0, &rng);
    if (is->expert_scale) fill(test, FFN_ROLE_EXPERT_SCALE, test->choices, 0, &rng);
    if (is->combine_bias) fill(test, FFN_ROLE_COMBINE_BIAS, is->d_out, 0, &rng);
    if (is->activation == FFN_ACTIVATION_XIELU) fill(test, FFN_ROLE_XIELU_ALPHA_P, 1, 0, &rng);
    if (is->activation == FFN_ACTIVATION_XIELU) fill(test, FFN_ROLE_XIELU_ALPHA_N, 1, 0, &rng);
    if (is->branch_factor != 0) fill(test, FFN_ROLE_BRANCH_SCALE, 1, 0, &rng);
    if (is->branch_factor != 0) test->plain[FFN_ROLE_BRANCH_SCALE][0] = is->branch_factor;
}

/* --------------------------------------------------------------------- Views */

static void view(test_moe_t *test, uint32_t role, const place_t *place, float *memory, int64_t block)
{
    const int64_t rows = test->shape[role][0], columns = test->shape[role][1], size = (int64_t)sizeof(float);
    const int64_t experts = is_experts(role) ? test->experts : 1;
    for (int64_t e = 0; e < experts; e++)
        layout_store(place, rows, columns ? columns : 1, test->plain[role] + e * elements(test, role), memory + e * block);
    const bool stack = is_experts(role) && test->is.form >= MOE_STACKS;
    int64_t first = 0, count = stack ? 1 : experts;
    if (stack && test->is.form == MOE_PARTS && experts > 1) count = 2;
    for (int64_t i = 0; i < count; i++) {
        const int64_t expert = test->is.form == MOE_BACKWARDS ? count - 1 - i : i;
        const bool stacked = stack && (i == count - 1);
        ffn_tensor_t *tensor = &test->tensors[test->options.tensor_count++];
        *tensor = (ffn_tensor_t){.role = role, .expert = (uint32_t)(stack ? first : expert), .ndim = (columns ? 2 : 1) + stacked};
        tensor->data = memory + (stack ? first : expert) * block + place->base;
        int64_t *shape = tensor->shape, *stride = tensor->stride;
        if (stacked) *shape++ = experts - first, *stride++ = block * size;
        shape[0] = rows, stride[0] = place->row * size;
        if (columns) shape[1] = columns, stride[1] = place->column * size;
        first++;
    }
}

static float *store(test_moe_t *test, uint32_t role, int64_t block)
{
    const size_t bytes = (size_t)(block * (is_experts(role) ? test->experts : 1)) * sizeof(float);
    test->stored[role] = test_alloc(bytes);
    memset(test->stored[role], 0xff, bytes);
    return test->stored[role];
}

/* Gate and up, and their biases, into shared blocks for each expert; the rest by itself. */
static void store_weights(test_moe_t *test)
{
    const int64_t d_ff = test->is.d_ff;
    const int64_t *up_shape = test->shape[FFN_ROLE_UP_WEIGHT], *down_shape = test->shape[FFN_ROLE_DOWN_WEIGHT];
    place_t gate, up, down;
    int64_t block = layout_pair(test->is.layout, d_ff, up_shape[1], &gate, &up);
    float *memory = store(test, FFN_ROLE_UP_WEIGHT, block);
    view(test, FFN_ROLE_UP_WEIGHT, &up, memory, block);
    if (test->is.gated) view(test, FFN_ROLE_GATE_WEIGHT, &gate, memory, block);
    block = layout_bias_pair(test->is.layout, d_ff, &gate, &up);
    memory = store(test, FFN_ROLE_UP_BIAS, block);
    if (test->plain[FFN_ROLE_UP_BIAS]) view(test, FFN_ROLE_UP_BIAS, &up, memory, block);
    if (test->plain[FFN_ROLE_GATE_BIAS]) view(test, FFN_ROLE_GATE_BIAS, &gate, memory, block);
    block = layout_single(test->is.down_layout, down_shape[0], d_ff, &down);
    view(test, FFN_ROLE_DOWN_WEIGHT, &down, store(test, FFN_ROLE_DOWN_WEIGHT, block), block);
    for (uint32_t role = FFN_ROLE_DOWN_BIAS; role < ROLES; role++) {
        if (!test->plain[role]) continue;
        place_t plain = {0, test->shape[role][1] ? test->shape[role][1] : 1, 1};
        view(test, role, &plain, store(test, role, elements(test, role)), elements(test, role));
    }
}

/* -------------------------------------------------------------------- Oracle */

static oracle_layer_t network(const test_moe_t *test, uint32_t first_role, int64_t expert, int64_t d_in, int64_t d_ff, int64_t d_out)
{
    const moe_case_t *is = &test->is;
    return (oracle_layer_t){.d_model = d_in, .d_ff = d_ff, .d_out = d_out, .activation = {.id = is->activation, .beta = is->beta},
                            .gate_max = is->gate_max, .up_limit = is->up_limit, .up_offset = is->up_offset,
                            .up = test_moe_plain(test, first_role, expert), .up_bias = test_moe_plain(test, first_role + 1, expert),
                            .gate = test_moe_plain(test, first_role + 2, expert), .gate_bias = test_moe_plain(test, first_role + 3, expert),
                            .down = test_moe_plain(test, first_role + 4, expert), .down_bias = test_moe_plain(test, first_role + 5, expert)};
}

static oracle_norm_t norm_of(const test_moe_t *test, int slot, int64_t expert)
{
    const norm_case_t *norm = &test->is.norm[slot];
    const uint32_t role = FFN_ROLE_NORM_IN_WEIGHT + 2 * (uint32_t)slot;
    return (oracle_norm_t){.kind = norm->kind, .eps = norm->eps, .offset = norm->offset, .weight = test_moe_plain(test, role, expert),
                           .bias = test_moe_plain(test, role + 1, expert)};
}

static void describe_oracle(test_moe_t *test)
{
    const moe_case_t *is = &test->is;
    const int64_t d_in = is->d_latent ? is->d_latent : is->d_model, d_out = is->d_latent ? is->d_latent : is->d_out;
    float **plain = test->plain;
    test->experts_oracle = test_alloc((size_t)test->experts * sizeof *test->experts_oracle);
    for (int64_t e = 0; e < test->experts; e++) {
        test->experts_oracle[e] = network(test, FFN_ROLE_UP_WEIGHT, e, d_in, is->d_ff, d_out);
        test->experts_oracle[e].norm[FFN_NORM_MID] = norm_of(test, FFN_NORM_MID, e);
    }
    if (is->d_shared) {
        test->shared_oracle = network(test, FFN_ROLE_SHARED_UP_WEIGHT, 0, is->d_model, is->d_shared, is->d_out);
        if (is->moe.flags & FFN_MOE_SHARED_UNCLAMPED)
            test->shared_oracle.gate_max = test->shared_oracle.up_limit = test->shared_oracle.up_offset = 0;
    }
    test->mixture = (oracle_mixture_t){
        .experts = test->experts, .choices = test->choices, .top_k = is->moe.top_k, .expert = test->experts_oracle,
        .shared = is->d_shared ? &test->shared_oracle : NULL, .shared_scale = plain[FFN_ROLE_SHARED_SCALE_WEIGHT], .d_latent = is->d_latent,
        .latent_in = plain[FFN_ROLE_LATENT_IN_WEIGHT], .latent_in_bias = plain[FFN_ROLE_LATENT_IN_BIAS],
        .latent_out = plain[FFN_ROLE_LATENT_OUT_WEIGHT], .latent_out_bias = plain[FFN_ROLE_LATENT_OUT_BIAS],
        .combine_bias = plain[FFN_ROLE_COMBINE_BIAS], .router = plain[FFN_ROLE_ROUTER_WEIGHT], .router_bias = plain[FFN_ROLE_ROUTER_BIAS],
        .selection_bias = plain[FFN_ROLE_SELECTION_BIAS], .expert_scale = plain[FFN_ROLE_EXPERT_SCALE],
        .router_norm = {.kind = is->moe.router_norm, .eps = is->moe.router_norm_eps, .weight = plain[FFN_ROLE_ROUTER_NORM_WEIGHT]},
        .route_unnormed = (is->moe.flags & FFN_MOE_ROUTE_UNNORMED) != 0, .weight_on_input = (is->moe.flags & FFN_MOE_WEIGHT_ON_INPUT) != 0};
    test->oracle = (oracle_layer_t){.d_model = is->d_model, .d_ff = is->d_ff, .d_out = is->d_out, .residual = is->residual, .mixture = &test->mixture,
                                    .branch_scale = {.values = plain[FFN_ROLE_BRANCH_SCALE], .count = 1}};
    for (int slot = 0; slot < 4; slot++)
        if (slot != FFN_NORM_MID) test->oracle.norm[slot] = norm_of(test, slot, 0);
}

/* ---------------------------------------------------------------------- Layer */

void test_moe_describe(test_moe_t *test, const moe_case_t *is)
{
    memset(test, 0, sizeof *test);
    test->is = *is;
    if (!test->is.d_out) test->is.d_out = is->d_model;
    test->is.moe.struct_size = sizeof test->is.moe;
    test->experts = is->moe.experts;
    test->choices = is->moe.experts + is->moe.identity_experts;
    test->tensors = test_alloc((size_t)(8 * test->experts + ROLES) * sizeof *test->tensors);
    test->options = (ffn_layer_options_t){.struct_size = sizeof test->options, .activation = is->activation, .engine = test_engine(),
                                          .residual = is->residual, .beta = is->beta, .gate_max = is->gate_max, .up_limit = is->up_limit,
                                          .up_offset = is->up_offset, .tensors = test->tensors, .moe = &test->is.moe};
    for (int slot = 0; slot < 4; slot++) {
        test->options.norm[slot] = is->norm[slot].kind;
        test->options.norm_eps[slot] = is->norm[slot].eps;
        test->options.norm_offset[slot] = is->norm[slot].offset;
    }
    fill_weights(test);
    store_weights(test);
    describe_oracle(test);
}

void test_moe_create(test_moe_t *test)
{
    assert_ok(ffn_layer_create(NULL, &test->options, &test->layer));
}

void test_moe_make(test_moe_t *test, const moe_case_t *is)
{
    test_moe_describe(test, is);
    test_moe_create(test);
}

void test_moe_free(test_moe_t *test)
{
    ffn_layer_free(test->layer);
    for (int role = 0; role < ROLES; role++) {
        free(test->plain[role]);
        free(test->stored[role]);
    }
    free(test->tensors);
    free(test->experts_oracle);
    memset(test, 0, sizeof *test);
}

/* ----------------------------------------------------------------------- Run */

moe_data_t moe_data_make(const test_moe_t *test, int64_t tokens, uint64_t seed)
{
    rng_t rng = rng_make(seed + (test_seed() << 32));
    const int64_t in = tokens * test->is.d_model, out = tokens * test->is.d_out, slots = tokens * test->is.moe.top_k, all = tokens * test->choices;
    moe_data_t data = {.tokens = tokens, .top_k = test->is.moe.top_k, .x = test_alloc((size_t)in * sizeof(float)),
                       .y = test_alloc((size_t)out * sizeof(float)), .ids = test_alloc((size_t)slots * sizeof(int32_t)),
                       .weights = test_alloc((size_t)slots * sizeof(float)), .logits = test_alloc((size_t)all * sizeof(float)),
                       .scores = test_alloc((size_t)all * sizeof(float)), .counts = test_alloc((size_t)test->choices * sizeof(int64_t)),
                       .statistics = {.struct_size = sizeof data.statistics}};
    rng_fill_normal(&rng, data.x, in);
    memset(data.y, 0xff, (size_t)out * sizeof(float));
    if (test->is.residual == FFN_RESIDUAL_EXTERNAL) {
        data.residual = test_alloc((size_t)out * sizeof(float));
        rng_fill_normal(&rng, data.residual, out);
    }
    data.routing = (ffn_moe_routing_t){.struct_size = sizeof data.routing, .tokens = tokens, .experts = test->choices, .top_k = data.top_k,
                                       .ids = data.ids, .weights = data.weights};
    data.moe = (ffn_moe_run_t){.struct_size = sizeof data.moe, .counts = data.counts};
    if (test->is.no_router) return data;
    data.moe.ids = data.ids;
    data.moe.weights = data.weights;
    data.moe.logits = data.logits;
    if (test->is.moe.choose != FFN_MOE_CHOOSE_SPARSE_MIXER) data.moe.scores = data.scores;
    return data;
}

void moe_data_free(moe_data_t *data)
{
    free(data->x);
    free(data->residual);
    free(data->y);
    free(data->ids);
    free(data->weights);
    free(data->logits);
    free(data->scores);
    free(data->counts);
    memset(data, 0, sizeof *data);
}

ffn_status_t moe_data_run(const test_moe_t *test, ffn_context_t *context, moe_data_t *data, bool given)
{
    ffn_moe_run_t moe = data->moe;
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = data->tokens, .x = data->x, .y = data->y, .residual = data->residual,
                           .moe = &moe};
    moe.statistics = &data->statistics;
    if (given) {
        moe.routing = &data->routing;
        moe.ids = NULL;
        moe.weights = moe.logits = moe.scores = NULL;
    }
    return ffn_layer_run(test->layer, context, &run);
}

static void compare(const test_moe_t *test, const moe_data_t *data, const bool *left_out)
{
    const int64_t width = test->is.d_out, n = data->tokens * width;
    double *x = oracle_widen(data->x, data->tokens * test->is.d_model), *expected = test_alloc((size_t)n * 2 * sizeof *expected);
    double *residual = data->residual ? oracle_widen(data->residual, n) : NULL;
    oracle_run(&test->oracle, data->tokens, x, residual, expected, expected + n);
    for (int64_t t = 0; t < data->tokens; t++) {
        if (left_out && left_out[t]) continue;
        const double *y = expected + t * width, *bound = expected + n + t * width;
        const int64_t i = first_outside_bound(data->y + t * width, y, bound, width);
        if (i >= 0)
            fail_msg("%s, %s, seed %llu: token %lld of %lld, output %lld: expected %.9g, got %.9g, bound %.3g", test->is.name ? test->is.name : "mixture",
                     test_isa_cap(), (unsigned long long)test->is.seed, (long long)t, (long long)data->tokens, (long long)i, y[i],
                     (double)data->y[t * width + i], bound[i]);
    }
    free(x);
    free(residual);
    free(expected);
}

/* True if the ids are the rule's. Where they are not, float32 must not be able to tell the choices apart. */
static bool same_ids(const test_moe_t *test, const oracle_token_t *token, const int32_t *ids, int64_t t)
{
    for (int k = 0; k < token->top_k; k++) {
        if (ids[k] == token->ids[k]) continue;
        if (ids[k] < 0 || token->ids[k] < 0) {
            fail_msg("%s, token %lld, slot %d: expected expert %d, got %d", test->is.name, (long long)t, k, token->ids[k], (int)ids[k]);
            return false;
        }
        const double got = token->choice[ids[k]], expected = token->choice[token->ids[k]];
        const double unsure = 4 * token->z_bound * fmax(1, fabs(expected)) + 0x1p-20 * fmax(fabs(expected), 1e-3);
        if (!(fabs(got - expected) <= unsure))
            fail_msg("%s, token %lld, slot %d: expected expert %d (%.9g), got %d (%.9g)", test->is.name, (long long)t, k, token->ids[k], expected,
                     (int)ids[k], got);
        return false;
    }
    return true;
}

void assert_moe_as_rule(test_moe_t *test, const moe_data_t *data)
{
    double *x = oracle_widen(data->x, data->tokens * test->is.d_model);
    bool *left_out = test_alloc((size_t)data->tokens * sizeof *left_out);
    int64_t count = 0;
    oracle_mixture_route(&test->mixture, &test->oracle, data->tokens, x, test->is.rule, test->is.batch_rule);
    for (int64_t t = 0; t < data->tokens; t++) count += left_out[t] = !same_ids(test, &test->mixture.token[t], data->ids + t * data->top_k, t);
    if (count > 1 + data->tokens / 20) fail_msg("%s: %lld of %lld tokens have no clear choice", test->is.name, (long long)count, (long long)data->tokens);
    compare(test, data, left_out);
    free(test->mixture.token);
    test->mixture.token = NULL;
    free(left_out);
    free(x);
}

void assert_moe_as_given(test_moe_t *test, const moe_data_t *data)
{
    test->mixture.token = test_alloc((size_t)data->tokens * sizeof *test->mixture.token);
    memset(test->mixture.token, 0, (size_t)data->tokens * sizeof *test->mixture.token);
    for (int64_t t = 0; t < data->tokens; t++) {
        oracle_token_t *token = &test->mixture.token[t];
        token->top_k = (int)data->top_k;
        for (int k = 0; k < token->top_k; k++) {
            token->ids[k] = data->ids[t * data->top_k + k];
            token->w[k] = (double)data->weights[t * data->top_k + k];
        }
    }
    compare(test, data, NULL);
    free(test->mixture.token);
    test->mixture.token = NULL;
}
