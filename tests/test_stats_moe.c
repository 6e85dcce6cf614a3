/* SPDX-License-Identifier: MIT
 *
 * Counting the hidden units of mixtures of experts: every number against float64 counts over the tokens that each expert saw, over forms of experts,
 * routings, masks, capacities, engines, dropout, threads and chunks; and that y keeps its bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/failing_allocator.h"
#include "support/layer_check.h"
#include "support/oracle_backward.h"
#include "support/random.h"
#include "support/stats_check.h"
#include "support/test.h"

typedef struct stats_moe_case {
    const char *name;
    int64_t experts, identity, top_k, d_model, d_ff, d_shared, d_latent;
    uint32_t activation;
    bool gated, biases, norm_mid, on_input, masked;
    int64_t idle;      /* this expert gets no token; 0: all get some */
    int64_t capacity;  /* the layer routes, and drops what is beyond; 0: the run brings the routing */
    float gate_max;
} stats_moe_case_t;

typedef struct way {
    const char *name;
    uint32_t engine, threads;
    bool taped;
    uint32_t tape_flags;
    float p[3];
    uint64_t chunk_bytes;
} way_t;

static const way_t ways[] = {
    {"native, one thread", FFN_ENGINE_NATIVE, 1, false, 0, {0}, 0},
    {"native, three threads", FFN_ENGINE_NATIVE, 3, false, 0, {0}, 0},
    {"native, in chunks", FFN_ENGINE_NATIVE, 2, false, 0, {0}, 20000},
    {"blas, one thread", FFN_ENGINE_BLAS, 1, false, 0, {0}, 0},
    {"blas, five threads, in chunks", FFN_ENGINE_BLAS, 5, false, 0, {0}, 20000},
    {"tape", FFN_ENGINE_BLAS, 2, true, 0, {0}, 0},
    {"tape that recomputes", FFN_ENGINE_BLAS, 1, true, FFN_TAPE_RECOMPUTE, {0}, 0},
    {"dropout", FFN_ENGINE_BLAS, 3, true, 0, {0, 0.5f, 0.5f}, 0},
    {"dropout before the activation", FFN_ENGINE_BLAS, 1, false, 0, {0.5f, 0, 0.5f}, 0},
};

enum { MOST_TENSORS = 16 };

typedef struct moe_test {
    stats_moe_case_t is;
    int64_t tokens, d_in;
    float *up, *gate, *down, *up_bias, *gate_bias, *shared_up, *shared_gate, *shared_down, *shared_gate_bias, *shared_up_bias, *latent_in, *latent_out, *router;
    float *x, *y, *plain, *weights;
    int32_t *ids;
    uint8_t *mask;
    int64_t *counts;
    ffn_moe_statistics_t statistics;
    ffn_layer_t *layer;
} moe_test_t;

/* ------------------------------------------------------------------------ Layers */

static void add_tensor(ffn_tensor_t *tensors, uint64_t *count, uint32_t role, float *data, int64_t experts, int64_t rows, int64_t columns)
{
    ffn_tensor_t *tensor = &tensors[(*count)++];
    const int64_t shape[3] = {experts, rows, columns};
    const int first = experts ? 0 : 1, last = columns ? 3 : 2;
    *tensor = (ffn_tensor_t){.role = role, .ndim = (uint32_t)(last - first), .data = data};
    for (int i = first; i < last; i++) tensor->shape[i - first] = shape[i];
}

static void create_layer(moe_test_t *t, const way_t *way)
{
    const stats_moe_case_t *is = &t->is;
    const int64_t e = is->experts, f = is->d_ff, s = is->d_shared, d = is->d_model, in = t->d_in;
    ffn_tensor_t tensors[MOST_TENSORS];
    uint64_t count = 0;
    add_tensor(tensors, &count, FFN_ROLE_UP_WEIGHT, t->up, e, f, in);
    add_tensor(tensors, &count, FFN_ROLE_DOWN_WEIGHT, t->down, e, in, f);
    if (is->gated) add_tensor(tensors, &count, FFN_ROLE_GATE_WEIGHT, t->gate, e, f, in);
    if (is->biases) add_tensor(tensors, &count, FFN_ROLE_UP_BIAS, t->up_bias, e, f, 0);
    if (is->biases && is->gated) add_tensor(tensors, &count, FFN_ROLE_GATE_BIAS, t->gate_bias, e, f, 0);
    if (s) add_tensor(tensors, &count, FFN_ROLE_SHARED_UP_WEIGHT, t->shared_up, 0, s, d);
    if (s) add_tensor(tensors, &count, FFN_ROLE_SHARED_DOWN_WEIGHT, t->shared_down, 0, d, s);
    if (s && is->gated) add_tensor(tensors, &count, FFN_ROLE_SHARED_GATE_WEIGHT, t->shared_gate, 0, s, d);
    if (s && is->biases) add_tensor(tensors, &count, FFN_ROLE_SHARED_UP_BIAS, t->shared_up_bias, 0, s, 0);
    if (s && is->biases && is->gated) add_tensor(tensors, &count, FFN_ROLE_SHARED_GATE_BIAS, t->shared_gate_bias, 0, s, 0);
    if (is->d_latent) add_tensor(tensors, &count, FFN_ROLE_LATENT_IN_WEIGHT, t->latent_in, 0, in, d);
    if (is->d_latent) add_tensor(tensors, &count, FFN_ROLE_LATENT_OUT_WEIGHT, t->latent_out, 0, d, in);
    if (is->capacity) add_tensor(tensors, &count, FFN_ROLE_ROUTER_WEIGHT, t->router, 0, e + is->identity, d);
    const ffn_moe_capacity_options_t capacity = {.struct_size = sizeof capacity, .capacity = is->capacity};
    const ffn_moe_options_t moe = {.struct_size = sizeof moe, .flags = is->on_input ? FFN_MOE_WEIGHT_ON_INPUT : 0, .experts = e,
                                   .identity_experts = is->identity, .top_k = is->top_k, .chunk_bytes = way->chunk_bytes,
                                   .capacity = is->capacity ? &capacity : NULL};
    ffn_layer_options_t options = {.struct_size = sizeof options, .flags = way->engine == FFN_ENGINE_BLAS ? FFN_LAYER_TRAINABLE : 0,
                                   .activation = is->activation, .engine = way->engine, .gate_max = is->gate_max, .tensors = tensors,
                                   .tensor_count = count, .moe = &moe};
    if (is->norm_mid) options.norm[FFN_NORM_MID] = FFN_NORM_RMS;
    assert_ok(ffn_layer_create(NULL, &options, &t->layer));
}

/* Distinct choices, some of them none; weights that keep an input exact. */
static void choose(moe_test_t *t)
{
    const stats_moe_case_t *is = &t->is;
    rng_t rng = rng_make(11);
    const int64_t choices = is->experts + is->identity;
    for (int64_t token = 0; token < t->tokens; token++)
        for (int64_t k = 0; k < is->top_k; k++) {
            int32_t *id = &t->ids[token * is->top_k + k];
            bool taken = true;
            while (taken) {
                *id = (int32_t)(rng_below(&rng, 3) ? rng_below(&rng, 2) : rng_below(&rng, choices)); /* two are liked best */
                taken = is->idle && *id == is->idle;
                for (int64_t other = 0; other < k; other++) taken = taken || id[-1 - other] == *id;
            }
            t->weights[token * is->top_k + k] = rng_below(&rng, 2) ? 0.5f : 2;
        }
    for (int64_t slot = 0; slot < t->tokens * is->top_k; slot += 5) t->ids[slot] = FFN_MOE_NO_EXPERT;
}

static moe_test_t moe_test_make(const stats_moe_case_t *is, const way_t *way, int64_t tokens)
{
    moe_test_t t = {.is = *is, .tokens = tokens, .d_in = is->d_latent ? is->d_latent : is->d_model};
    const int64_t e = is->experts, f = is->d_ff, s = is->d_shared + 1, d = is->d_model;
    t.up = quarters(e * f * t.d_in, 1), t.gate = quarters(e * f * t.d_in, 2), t.down = quarters(e * f * t.d_in, 3);
    t.up_bias = quarters(e * f, 4), t.gate_bias = quarters(e * f, 5), t.shared_up = quarters(s * d, 6), t.shared_gate = quarters(s * d, 7);
    t.shared_down = quarters(s * d, 8), t.shared_gate_bias = quarters(s, 9), t.shared_up_bias = quarters(s, 10);
    t.latent_in = quarters(t.d_in * d, 12), t.latent_out = quarters(t.d_in * d, 13), t.router = quarters((e + is->identity) * d, 14);
    t.x = quarters(tokens * d, 15), t.y = quarters(tokens * d, 16), t.plain = quarters(tokens * d, 17), t.weights = quarters(tokens * is->top_k, 18);
    t.ids = test_alloc((size_t)(tokens * is->top_k) * sizeof *t.ids);
    t.counts = calloc((size_t)(e + is->identity), sizeof *t.counts);
    for (int64_t unit = 0; unit < e * f; unit += 7) { /* some never on, some always */
        float *bias = is->gated ? t.gate_bias : t.up_bias;
        bias[unit] = unit % 2 ? 1000 : -1000;
    }
    if (is->masked) t.mask = test_alloc((size_t)tokens);
    for (int64_t token = 0; is->masked && token < tokens; token++) t.mask[token] = token % 5 != 2 && token % 31 < 25;
    choose(&t);
    create_layer(&t, way);
    return t;
}

static void moe_test_free(moe_test_t *t)
{
    float *arrays[] = {t->up, t->gate, t->down, t->up_bias, t->gate_bias, t->shared_up, t->shared_gate, t->shared_down, t->shared_gate_bias,
                       t->shared_up_bias, t->latent_in, t->latent_out, t->router, t->x, t->y, t->plain, t->weights};
    for (int64_t i = 0; i < COUNT_OF(arrays); i++) free(arrays[i]);
    free(t->ids), free(t->mask), free(t->counts);
    ffn_layer_free(t->layer);
}

/* ------------------------------------------------------------------ In float64 */

/* A network's units of one input; `mask`: what dropout multiplies the pre-activations with, or NULL. */
static void count_row(expected_stats_t *expected, const moe_test_t *t, int64_t network, const float *weight, const float *bias, int64_t d_in,
                      int64_t d_ff, const double *x, const double *mask)
{
    const oracle_activation_t activation = {.id = t->is.activation};
    expected->positions[network]++;
    for (int64_t unit = 0; unit < d_ff; unit++) {
        double z = t->is.biases ? (double)bias[unit] : 0;
        for (int64_t i = 0; i < d_in; i++) z += (double)weight[unit * d_in + i] * x[i];
        if (mask) z *= mask[unit];
        if (t->is.gated && t->is.gate_max > 0 && z > (double)t->is.gate_max) z = t->is.gate_max;
        expected_stats_add(expected, network, unit, &activation, z);
    }
}

/* What experts read. */
static void expert_input(const moe_test_t *t, int64_t token, double factor, double *in)
{
    const float *x = t->x + token * t->is.d_model;
    for (int64_t i = 0; i < t->d_in; i++) {
        in[i] = t->is.d_latent ? 0 : (double)x[i];
        for (int64_t j = 0; t->is.d_latent && j < t->is.d_model; j++) in[i] += (double)t->latent_in[i * t->is.d_model + j] * (double)x[j];
        in[i] *= factor;
    }
}

static expected_stats_t count(const moe_test_t *t, const way_t *way)
{
    const stats_moe_case_t *is = &t->is;
    const int64_t step = (is->d_ff + 3) / 4 * 4, columns = is->experts * step + is->d_shared;
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 3, .p = {way->p[0]}};
    oracle_masks_t masks = oracle_masks_make(&dropout, 1, t->tokens, columns, is->d_model);
    expected_stats_t expected = expected_stats_make(is->experts, is->d_ff, is->d_shared);
    double *in = test_alloc((size_t)(t->d_in + is->d_model) * sizeof *in);
    for (int64_t token = 0; token < t->tokens; token++) {
        const double *mask = masks.site[0] ? masks.site[0] + token * columns : NULL;
        if (t->mask && !t->mask[token]) continue;
        for (int64_t k = 0; k < is->top_k; k++) {
            const int64_t e = t->ids[token * is->top_k + k];
            if (e < 0 || e >= is->experts) continue;
            expert_input(t, token, is->on_input ? (double)t->weights[token * is->top_k + k] : 1, in);
            count_row(&expected, t, e, (is->gated ? t->gate : t->up) + e * is->d_ff * t->d_in, (is->gated ? t->gate_bias : t->up_bias) + e * is->d_ff,
                      t->d_in, is->d_ff, in, mask ? mask + e * step : NULL);
        }
        for (int64_t i = 0; i < is->d_model; i++) in[i] = (double)t->x[token * is->d_model + i];
        if (is->d_shared)
            count_row(&expected, t, is->experts, is->gated ? t->shared_gate : t->shared_up, is->gated ? t->shared_gate_bias : t->shared_up_bias,
                      is->d_model, is->d_shared, in, mask ? mask + is->experts * step : NULL);
    }
    free(in);
    oracle_masks_free(&masks);
    return expected;
}

/* ------------------------------------------------------------------------ Runs */

static void run(moe_test_t *t, const way_t *way, ffn_context_t *context, int64_t first, int64_t tokens, ffn_stats_t *stats, float *y)
{
    const stats_moe_case_t *is = &t->is;
    const bool drops = way->p[0] + way->p[1] + way->p[2] > 0;
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 3, .first_row = first, .p = {way->p[0], way->p[1], way->p[2]}};
    const ffn_tape_options_t tape_options = {.struct_size = sizeof tape_options, .flags = way->tape_flags};
    const uint8_t *mask = t->mask ? t->mask + first : NULL;
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = tokens, .experts = is->experts + is->identity, .top_k = is->top_k,
                                       .ids = t->ids + first * is->top_k, .weights = t->weights + first * is->top_k, .mask = mask};
    t->statistics.struct_size = sizeof t->statistics;
    const ffn_moe_run_t given = {.struct_size = sizeof given, .routing = &routing};
    const ffn_moe_run_t routed = {.struct_size = sizeof routed, .mask = mask, .ids = t->ids, .counts = t->counts, .statistics = &t->statistics};
    ffn_tape_t *tape = NULL;
    if (way->taped) assert_ok(ffn_tape_create(&tape_options, &tape));
    const ffn_run_t all = {.struct_size = sizeof all, .batch = 1, .length = tokens, .x = t->x + first * is->d_model, .y = y + first * is->d_model,
                           .dropout = drops ? &dropout : NULL, .tape = tape, .stats = stats, .moe = is->capacity ? &routed : &given};
    assert_ok(ffn_layer_run(t->layer, context, &all));
    ffn_tape_free(tape);
}

static void check_way(const stats_moe_case_t *is, const way_t *way, int64_t tokens)
{
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = way->threads};
    moe_test_t t = moe_test_make(is, way, tokens);
    char what[128];
    ffn_context_t *context;
    snprintf(what, sizeof what, "%s, %s, %lld tokens", is->name, way->name, (long long)tokens);
    assert_ok(ffn_context_create(&options, &context));
    run(&t, way, context, 0, tokens, NULL, t.plain);
    expected_stats_t expected = count(&t, way); /* by the ids that a layer has chosen */
    ffn_stats_t *whole = stats_for(&expected), *parts = stats_for(&expected);
    run(&t, way, context, 0, tokens, whole, t.y);
    assert_same_bits(t.plain, t.y, tokens * is->d_model, what);
    assert_stats(whole, &expected, what);
    if (is->capacity) {
        int64_t *positions = test_alloc((size_t)(is->experts + 1) * sizeof *positions);
        assert_ok(ffn_stats_experts(whole, positions, NULL, NULL));
        assert_memory_equal(positions, t.counts, (size_t)is->experts * sizeof *positions);
        if (tokens > 100) assert_true(t.statistics.dropped > 0);
        free(positions);
    } else {
        run(&t, way, NULL, 0, tokens / 3, parts, t.y);
        run(&t, way, NULL, tokens / 3, tokens - tokens / 3, parts, t.y);
        assert_same_stats(whole, parts);
    }
    ffn_context_free(context);
    ffn_stats_free(whole), ffn_stats_free(parts);
    expected_stats_free(&expected);
    moe_test_free(&t);
}

static const stats_moe_case_t cases[] = {
    {.name = "Mixtral", .experts = 4, .top_k = 2, .d_model = 7, .d_ff = 33, .gated = true, .activation = FFN_ACTIVATION_SILU, .idle = 3},
    {.name = "biases and a clamp", .experts = 3, .top_k = 2, .d_model = 6, .d_ff = 50, .gated = true, .biases = true, .gate_max = 1.25f,
     .activation = FFN_ACTIVATION_SILU, .masked = true},
    {.name = "DeepSeek", .experts = 5, .top_k = 3, .d_model = 8, .d_ff = 16, .d_shared = 40, .gated = true, .biases = true, .activation = FFN_ACTIVATION_SILU,
     .masked = true, .idle = 2},
    {.name = "dense experts", .experts = 3, .top_k = 1, .d_model = 5, .d_ff = 19, .d_shared = 7, .biases = true, .activation = FFN_ACTIVATION_RELU,
     .on_input = true, .masked = true},
    {.name = "LongCat", .experts = 3, .identity = 2, .top_k = 2, .d_model = 6, .d_ff = 17, .activation = FFN_ACTIVATION_GELU},
    {.name = "Nemotron-H", .experts = 4, .top_k = 2, .d_model = 12, .d_ff = 20, .d_shared = 9, .d_latent = 5, .activation = FFN_ACTIVATION_RELU2},
    {.name = "norm MID", .experts = 2, .top_k = 1, .d_model = 6, .d_ff = 33, .gated = true, .norm_mid = true, .activation = FFN_ACTIVATION_GELU},
    {.name = "Switch", .experts = 4, .top_k = 1, .d_model = 6, .d_ff = 20, .biases = true, .activation = FFN_ACTIVATION_RELU, .capacity = 20, .masked = true},
};

static void counts_are_those_of_the_tokens_that_each_expert_saw(void **state)
{
    (void)state;
    static const int64_t numbers[] = {1, 3, 16, 61, 260};
    for (int64_t i = 0; i < COUNT_OF(cases); i++)
        for (int64_t w = 0; w < COUNT_OF(ways); w++)
            for (int64_t n = test_quick() ? 3 : 0; n < COUNT_OF(numbers) - (test_quick() ? 1 : 0); n++) check_way(&cases[i], &ways[w], numbers[n]);
}

/* Enough work for the threads of the native engine to share the items of few tokens, and to take one each of many. */
static void threads_that_share_experts_count_all_rows(void **state)
{
    (void)state;
    static const stats_moe_case_t large = {.name = "large", .experts = 4, .top_k = 2, .d_model = 48, .d_ff = 200, .d_shared = 130, .gated = true, .biases = true,
                                           .activation = FFN_ACTIVATION_SILU, .masked = true};
    const int64_t numbers[] = {5, 40, 700};
    for (int64_t n = 0; n < COUNT_OF(numbers) - (test_quick() ? 1 : 0); n++) check_way(&large, &ways[1], numbers[n]);
}

static void an_unseen_expert_is_not_dead(void **state)
{
    (void)state;
    moe_test_t t = moe_test_make(&cases[0], &ways[0], 50);
    expected_stats_t expected = count(&t, &ways[0]);
    ffn_stats_t *stats = stats_for(&expected);
    ffn_stats_info_t info = {.struct_size = sizeof info};
    int64_t positions[4], dead[4], counts[10], all = 0;
    double density[4], units[4 * 33], logits[4 * 33];
    run(&t, &ways[0], NULL, 0, t.tokens, stats, t.y);
    assert_ok(ffn_stats_info(stats, &info));
    assert_ok(ffn_stats_experts(stats, positions, density, dead));
    assert_ok(ffn_stats_units(stats, NULL, units, logits));
    assert_ok(ffn_stats_histogram(stats, 10, NULL, counts));
    assert_true(positions[3] == 0 && dead[3] == 0 && isnan(density[3]) && density[0] > 0);
    assert_int_equal(info.unseen_units, 33);
    for (int j = 0; j < 33; j++) assert_true(isnan(units[3 * 33 + j]) && isnan(logits[3 * 33 + j]));
    for (int i = 0; i < 10; i++) all += counts[i];
    assert_int_equal(all, 3 * 33);
    assert_ok(ffn_stats_reset(stats));
    assert_ok(ffn_stats_info(stats, &info));
    assert_true(info.positions == 0 && info.unseen_units == 4 * 33 && info.dead_units == 0 && info.activations == 0 && isnan(info.density));
    ffn_stats_free(stats);
    expected_stats_free(&expected);
    moe_test_free(&t);
}

/* ----------------------------------------------------------------------- Errors */

static void assert_refused(ffn_status_t status, const char *sentence)
{
    assert_int_equal(status, FFN_INVALID);
    assert_string_equal(ffn_last_error(), sentence);
}

static void stats_of_another_shape_are_refused(void **state)
{
    (void)state;
    moe_test_t t = moe_test_make(&cases[2], &ways[0], 4);
    static const struct {
        int64_t experts, d_ff, d_shared;
        const char *run, *merge;
    } shapes[] = {
        {0, 16, 0, "the stats are for 0 experts, the layer has 5", "the stats to add are for 0 experts, must be for 5"},
        {4, 16, 40, "the stats are for 4 experts, the layer has 5", "the stats to add are for 4 experts, must be for 5"},
        {5, 17, 40, "the stats are for a d_ff of 17, the layer has 16", "the stats to add are for a d_ff of 17, must be for 16"},
        {5, 16, 0, "the stats are for a d_shared of 0, the layer has 40", "the stats to add are for a d_shared of 0, must be for 40"},
    };
    expected_stats_t right = {.experts = 5, .d_ff = 16, .d_shared = 40};
    ffn_stats_t *fitting = stats_for(&right);
    t.y[0] = 5;
    for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
        expected_stats_t wrong = {.experts = shapes[i].experts, .d_ff = shapes[i].d_ff, .d_shared = shapes[i].d_shared};
        ffn_stats_t *stats = stats_for(&wrong);
        const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 4, .x = t.x, .y = t.y, .stats = stats};
        assert_refused(ffn_layer_run(t.layer, NULL, &run), shapes[i].run);
        assert_refused(ffn_stats_merge(fitting, stats), shapes[i].merge);
        assert_true(t.y[0] == 5);
        ffn_stats_free(stats);
    }
    assert_refused(ffn_stats_experts(NULL, NULL, NULL, NULL), "stats is NULL");
    assert_ok(ffn_stats_experts(fitting, NULL, NULL, NULL));
    ffn_stats_free(fitting);
    moe_test_free(&t);
}

static void options_of_no_mixture_are_refused(void **state)
{
    (void)state;
    ffn_stats_t *stats;
    ffn_stats_options_t options = {.struct_size = sizeof options, .d_ff = 4, .experts = -1};
    assert_refused(ffn_stats_create(&options, &stats), "experts of the stats is -1, must be 0 to 768");
    options.experts = 769;
    assert_refused(ffn_stats_create(&options, &stats), "experts of the stats is 769, must be 0 to 768");
    options.experts = 2, options.d_shared = -1;
    assert_refused(ffn_stats_create(&options, &stats), "d_shared of the stats is -1, must be 0 to 536870912");
    options.d_shared = (INT64_C(1) << 29) + 1;
    assert_refused(ffn_stats_create(&options, &stats), "d_shared of the stats is 536870913, must be 0 to 536870912");
    options.experts = 0, options.d_shared = 3;
    assert_refused(ffn_stats_create(&options, &stats), "d_shared of the stats is 3, but experts is 0");
    assert_null(stats);
}

static void what_was_reserved_is_enough_for_counting(void **state)
{
    (void)state;
    for (int w = 0; w < 4; w += 3) { /* native, blas */
        failing_allocator_t allocator;
        failing_allocator_init(&allocator);
        const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1, .allocator = &allocator.hook};
        moe_test_t t = moe_test_make(&cases[2], &ways[w], 60);
        expected_stats_t expected = count(&t, &ways[w]);
        ffn_stats_t *stats = stats_for(&expected);
        ffn_context_t *context;
        assert_ok(ffn_context_create(&options, &context));
        assert_ok(ffn_context_reserve(context, t.layer, 60));
        failing_allocator_arm(&allocator, 1, true);
        run(&t, &ways[w], context, 0, 60, stats, t.y);
        assert_stats(stats, &expected, ways[w].name);
        failing_allocator_disarm(&allocator);
        ffn_context_free(context);
        ffn_stats_free(stats);
        expected_stats_free(&expected);
        moe_test_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_the_tokens_that_each_expert_saw),
        cmocka_unit_test(threads_that_share_experts_count_all_rows),
        cmocka_unit_test(an_unseen_expert_is_not_dead),
        cmocka_unit_test(stats_of_another_shape_are_refused),
        cmocka_unit_test(options_of_no_mixture_are_refused),
        cmocka_unit_test(what_was_reserved_is_enough_for_counting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
