/* SPDX-License-Identifier: MIT
 *
 * Counting activations: every number against float64 counts of layers whose pre-activations are exact, over engines, gates, norms, dropout, threads and
 * cuts; what is read from it against its formula; and that y keeps its bits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/failing_allocator.h"
#include "support/layer_check.h"
#include "support/oracle_backward.h"
#include "support/random.h"
#include "support/stats_check.h"
#include "support/test.h"

static ffn_stats_t *stats_of(int64_t d_ff)
{
    const ffn_stats_options_t options = {.struct_size = sizeof options, .d_ff = d_ff};
    ffn_stats_t *stats;
    assert_ok(ffn_stats_create(&options, &stats));
    return stats;
}

static ffn_stats_info_t info_of(const ffn_stats_t *stats)
{
    ffn_stats_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_stats_info(stats, &info));
    return info;
}

/* ------------------------------------------------------------------- Exact layers */

/* Small multiples of 1/4: sums are exact in float32 in any order, and so the sign of every pre-activation is that of float64. */
static void make_exact(test_layer_t *test, const layer_case_t *is)
{
    rng_t rng = rng_make(is->seed + 77);
    test_layer_describe(test, is);
    for (int64_t i = 0; i < (int64_t)test->options.tensor_count; i++) {
        ffn_tensor_t *tensor = &test->tensors[i];
        const uint32_t role = tensor->role;
        const int64_t n = tensor->shape[0] * (tensor->ndim == 2 ? tensor->shape[1] : 1);
        if (role > FFN_ROLE_DOWN_BIAS) continue;
        for (int64_t j = 0; j < n; j++) test->plain[role][j] = (float)(rng_below(&rng, 9) - 4) / 4;
        tensor->data = test->plain[role];
        memset(tensor->stride, 0, sizeof tensor->stride);
    }
    for (int64_t unit = 0; unit < is->d_ff; unit += 5) { /* some never, some always on where they have a bias */
        float *bias = test->plain[is->gated ? FFN_ROLE_GATE_BIAS : FFN_ROLE_UP_BIAS];
        if (bias) bias[unit] = unit % 2 ? 1000 : -1000;
    }
}

static void expect_row(expected_stats_t *expected, const test_layer_t *test, const double *mask, const float *x)
{
    const oracle_layer_t *layer = &test->oracle;
    const float *weight = layer->gate ? layer->gate : layer->up, *bias = layer->gate ? layer->gate_bias : layer->up_bias;
    expected->positions[0]++;
    for (int64_t j = 0; j < layer->d_ff; j++) {
        double z = bias ? bias[j] : 0;
        for (int64_t i = 0; i < layer->d_model; i++) z += (double)weight[j * layer->d_model + i] * (double)x[i];
        if (mask) z *= mask[j];
        if (layer->gate && layer->gate_max > 0 && z > (double)layer->gate_max) z = layer->gate_max;
        expected_stats_add(expected, 0, j, &layer->activation, z);
    }
}

enum { TOKENS = 260 }; /* more than the native engine's threads share a block of */

static const stats_way_t ways[] = {
    {"native, one thread", FFN_ENGINE_NATIVE, 1, false, {0}},
    {"native, three threads", FFN_ENGINE_NATIVE, 3, false, {0}},
    {"blas, one thread", FFN_ENGINE_BLAS, 1, false, {0}},
    {"blas, five threads", FFN_ENGINE_BLAS, 5, false, {0}},
    {"tape", FFN_ENGINE_BLAS, 2, true, {0}},
    {"dropout", FFN_ENGINE_BLAS, 3, true, {0, 0.5f, 0.5f}},
    {"dropout before the activation", FFN_ENGINE_BLAS, 1, false, {0.5f, 0, 0.5f}},
    {"native tape and dropout", FFN_ENGINE_NATIVE, 3, true, {0.5f, 0.5f, 0}},
};

static void run_way(const test_layer_t *test, const stats_way_t *way, ffn_context_t *context, int64_t first, const layer_data_t *data, int64_t tokens,
                    ffn_stats_t *stats, float *y)
{
    const bool drops = way->p[0] + way->p[1] + way->p[2] > 0;
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 3, .first_row = first, .p = {way->p[0], way->p[1], way->p[2]}};
    ffn_tape_t *tape = NULL;
    if (way->taped) assert_ok(ffn_tape_create(NULL, &tape));
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = tokens, .x = data->x + first * test->is.d_model,
                           .y = y + first * test->is.d_out, .dropout = drops ? &dropout : NULL, .tape = tape, .stats = stats};
    assert_ok(ffn_layer_run(test->layer, context, &run));
    ffn_tape_free(tape);
}

static expected_stats_t expected_of(const test_layer_t *test, const stats_way_t *way, const layer_data_t *data, int64_t tokens)
{
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 3, .p = {way->p[0]}};
    oracle_masks_t masks = oracle_masks_make(&dropout, 1, tokens, test->is.d_ff, test->is.d_out);
    expected_stats_t expected = expected_stats_make(0, test->is.d_ff, 0);
    for (int64_t t = 0; t < tokens; t++)
        expect_row(&expected, test, masks.site[0] ? masks.site[0] + t * test->is.d_ff : NULL, data->x + t * test->is.d_model);
    oracle_masks_free(&masks);
    return expected;
}

/* Whole, without counting; whole, counted; and in two parts with a handle each. */
static void check_way(const test_layer_t *test, const stats_way_t *way, layer_data_t *data, int64_t tokens)
{
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = way->threads};
    const int64_t d_ff = test->is.d_ff, cut = tokens / 3;
    float *plain = test_alloc((size_t)(tokens * test->is.d_out) * sizeof *plain);
    ffn_stats_t *whole = stats_of(d_ff), *first = stats_of(d_ff), *second = stats_of(d_ff);
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    run_way(test, way, context, 0, data, tokens, NULL, plain);
    run_way(test, way, context, 0, data, tokens, whole, data->y);
    assert_same_bits(plain, data->y, tokens * test->is.d_out, way->name);
    run_way(test, way, NULL, 0, data, cut, first, data->y);
    run_way(test, way, NULL, cut, data, tokens - cut, second, data->y);
    assert_ok(ffn_stats_merge(second, first));
    assert_same_stats(whole, second);
    expected_stats_t expected = expected_of(test, way, data, tokens);
    assert_stats(whole, &expected, way->name);
    assert_stats(second, &expected, way->name);
    expected_stats_free(&expected), free(plain);
    ffn_stats_free(whole), ffn_stats_free(first), ffn_stats_free(second);
    ffn_context_free(context);
}

static void check_layer(const layer_case_t *is)
{
    static const int64_t numbers[] = {1, 2, 16, 61, TOKENS};
    for (int64_t w = 0; w < COUNT_OF(ways); w++) {
        const stats_way_t *way = &ways[w];
        test_layer_t test;
        make_exact(&test, is);
        test.options.engine = way->engine;
        if (way->engine == FFN_ENGINE_BLAS || way->taped) test.options.flags = FFN_LAYER_TRAINABLE;
        test_layer_create(&test);
        layer_data_t data = layer_data_make(&test, TOKENS, 3);
        for (int64_t i = 0; i < TOKENS * test.is.d_model; i++) data.x[i] = rintf(2 * data.x[i]) / 2;
        for (int64_t n = test_quick() ? 3 : 0; n < COUNT_OF(numbers); n++) check_way(&test, way, &data, numbers[n]);
        layer_data_free(&data);
        test_layer_free(&test);
    }
}

static void counts_are_those_of_float64_at_every_width(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 15, 16, 17, 31, 33, 100, 257};
    for (int64_t w = 0; w < COUNT_OF(widths); w++) {
        check_layer(&(layer_case_t){.d_model = 7, .d_ff = widths[w], .activation = FFN_ACTIVATION_RELU, .biases = BIAS_ALL, .seed = 1});
        check_layer(&(layer_case_t){.d_model = 6, .d_ff = widths[w], .d_out = 3, .activation = FFN_ACTIVATION_SILU, .gated = true, .seed = 2,
                                    .biases = w % 2 ? BIAS_ALL : 0, .gate_max = 1.25f, .up_limit = 0.5f, .up_offset = 1});
    }
}

static void counts_are_those_of_float64_for_every_activation(void **state)
{
    (void)state;
    for (uint32_t id = FFN_ACTIVATION_IDENTITY; id <= FFN_ACTIVATION_XIELU; id += test_quick() ? 5 : 1)
        for (int gated = 0; gated < 2; gated++)
            check_layer(&(layer_case_t){.d_model = 5, .d_ff = 21, .activation = id, .gated = gated, .biases = BIAS_UP | BIAS_GATE, .seed = id});
}

static void norms_do_not_change_what_is_counted(void **state)
{
    (void)state;
    check_layer(&(layer_case_t){.d_model = 8, .d_ff = 50, .activation = FFN_ACTIVATION_GELU, .seed = 4, .residual = FFN_RESIDUAL_INPUT,
                                .norm = {[FFN_NORM_MID] = {FFN_NORM_RMS, true, true, 0, 0}, [FFN_NORM_OUT] = {FFN_NORM_LAYER, true, true, 0, 0}}});
}

/* --------------------------------------------------------------------- Extremes */

/* One unit that passes its input on. */
static ffn_layer_t *wire(uint32_t engine)
{
    float one = 1;
    const ffn_tensor_t tensors[] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = &one, .shape = {1, 1}},
                                    {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = &one, .shape = {1, 1}}};
    const ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_IDENTITY, .engine = engine, .tensors = tensors,
                                         .tensor_count = 2};
    ffn_layer_t *layer;
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    return layer;
}

static ffn_stats_info_t count_through_wire(uint32_t engine, const float *x, int64_t n)
{
    ffn_layer_t *layer = wire(engine);
    ffn_stats_t *stats = stats_of(1);
    float *y = test_alloc((size_t)n * sizeof *y);
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = n, .x = x, .y = y, .stats = stats};
    assert_ok(ffn_layer_run(layer, NULL, &run));
    const ffn_stats_info_t info = info_of(stats);
    free(y);
    ffn_stats_free(stats);
    ffn_layer_free(layer);
    return info;
}

static void numbers_of_every_size_are_added_exactly(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f, -2, 3};
    static const float small[] = {0x1p-33f, 0x1.8p-32f, -0x1.4p-32f, 0x1p-149f}; /* of the unit 2^-32: half, to 0; 1.5, to 2; 1.25, to 1; next to nothing */
    static const float large[] = {0x1p13f, -8191.9995f, 0x1.fffffep127f, -0x1.fffffep127f, 1e20f};
    for (uint32_t engine = FFN_ENGINE_BLAS; engine <= FFN_ENGINE_NATIVE; engine++) {
        ffn_stats_info_t info = count_through_wire(engine, odd, COUNT_OF(odd));
        assert_int_equal(info.positive, 2);
        assert_int_equal(info.non_finite, 3);
        assert_int_equal(info.dead_units, 0);
        assert_true(info.mean == 5.0 / 4 && info.largest == 3 && info.density == 2.0 / 7);
        info = count_through_wire(engine, small, COUNT_OF(small));
        assert_true(info.mean == 3 * 0x1p-32 / 4);
        assert_int_equal(info.positive, 3);
        info = count_through_wire(engine, large, COUNT_OF(large));
        double sum = 0x1p13 + (double)8191.9995f + 2 * 0x1.fffffep127 + (double)1e20f;
        assert_true(info.mean == sum / 5 && info.largest == 0x1.fffffep127);
        info = count_through_wire(engine, (const float[]){NAN, -INFINITY}, 2);
        assert_true(isnan(info.mean) && info.largest == 0 && info.non_finite == 2 && info.dead_units == 1 && info.density == 0);
    }
}

/* Two handles that add each other up, as Fibonacci's numbers grow: to 5e9 positions and a sum beyond 2^53 units. */
static void counts_stay_exact_beyond_what_floats_and_32_bits_hold(void **state)
{
    (void)state;
    const float x[3] = {1, 0.75f, -1};
    ffn_layer_t *layer = wire(FFN_ENGINE_AUTO);
    ffn_stats_t *stats[2] = {stats_of(1), stats_of(1)};
    float y[3];
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 3, .x = x, .y = y, .stats = stats[0]};
    int64_t times[2] = {1, 0};
    assert_ok(ffn_layer_run(layer, NULL, &run));
    for (int i = 0; i < 48; i++) {
        assert_ok(ffn_stats_merge(stats[1 - i % 2], stats[i % 2]));
        times[1 - i % 2] += times[i % 2];
    }
    const int last = times[1] > times[0];
    const ffn_stats_info_t info = info_of(stats[last]);
    assert_true(times[last] > INT64_C(4) << 30);
    assert_int_equal(info.positions, 3 * times[last]);
    assert_int_equal(info.positive, 2 * times[last]);
    assert_near(info.mean, 2.75 / 3, 1e-15);
    ffn_stats_free(stats[0]), ffn_stats_free(stats[1]);
    ffn_layer_free(layer);
}

/* ---------------------------------------------------------------------- Reading */

/* Unit j of 64 is positive at j of 64 positions. */
static ffn_stats_t *staircase(void)
{
    enum { UNITS = 64 };
    float up[UNITS * UNITS], down[UNITS], x[UNITS * UNITS], y[UNITS];
    for (int i = 0; i < UNITS * UNITS; i++) up[i] = i % UNITS < i / UNITS, x[i] = i % UNITS == i / UNITS;
    memset(down, 0, sizeof down);
    const ffn_tensor_t tensors[] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = up, .shape = {UNITS, UNITS}},
                                    {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = down, .shape = {1, UNITS}}};
    const ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .tensors = tensors, .tensor_count = 2};
    ffn_layer_t *layer;
    ffn_stats_t *stats = stats_of(UNITS);
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = UNITS, .x = x, .y = y, .stats = stats};
    assert_ok(ffn_layer_run(layer, NULL, &run));
    ffn_layer_free(layer);
    return stats;
}

static void density_and_its_logit_are_their_formulas(void **state)
{
    (void)state;
    ffn_stats_t *stats = staircase();
    double density[64], density_logit[64];
    assert_ok(ffn_stats_units(stats, NULL, density, density_logit));
    for (int j = 0; j < 64; j++) {
        const double f = j / 64.0;
        assert_true(density[j] == f);
        assert_near(density_logit[j], log((f + exp(-10)) / (1 - f + exp(-10))), 1e-12);
    }
    assert_near(density_logit[0], -10.0000454, 1e-7);
    assert_near(density_logit[32], 0, 1e-15);
    assert_int_equal(info_of(stats).dead_units, 1);
    ffn_stats_free(stats);
}

static void histograms_have_every_unit_in_its_bin(void **state)
{
    (void)state;
    ffn_stats_t *stats = staircase();
    int64_t counts[101];
    double density_logit[64];
    assert_ok(ffn_stats_units(stats, NULL, NULL, density_logit));
    for (int64_t bins = 1; bins <= 101; bins += 4) {
        const double low = log(exp(-10)) - log(1 + exp(-10)), width = -2 * low / (double)bins;
        int64_t expected[101] = {0};
        for (int j = 0; j < 64; j++) expected[(int64_t)fmin((density_logit[j] - low) / width * (1 + 1e-12), (double)(bins - 1))]++;
        assert_ok(ffn_stats_histogram(stats, bins, NULL, counts));
        assert_memory_equal(counts, expected, (size_t)bins * sizeof *counts);
    }
    const double edges[] = {-INFINITY, -3, 0, density_logit[40], INFINITY}, inside[] = {-1, 0};
    assert_ok(ffn_stats_histogram(stats, 4, edges, counts));
    assert_int_equal(counts[0], 4); /* logit(3 / 64) = -3.01, logit(4 / 64) = -2.71 */
    assert_int_equal(counts[1], 28);
    assert_int_equal(counts[2], 8);
    assert_int_equal(counts[3], 24);
    assert_ok(ffn_stats_histogram(stats, 1, inside, counts)); /* both edges: logit(18 / 64) = -0.94 to logit(32 / 64) = 0 */
    assert_int_equal(counts[0], 15);
    ffn_stats_free(stats);
}

static void nothing_counted_is_nan_and_not_dead(void **state)
{
    (void)state;
    ffn_stats_t *stats = staircase();
    int64_t counts[3] = {5, 5, 5}, positive[64];
    double density[64], density_logit[64];
    assert_ok(ffn_stats_reset(stats));
    const ffn_run_t none = {.struct_size = sizeof none, .stats = stats};
    ffn_stats_t *of_wire = stats_of(1);
    ffn_layer_t *layer = wire(FFN_ENGINE_AUTO);
    assert_int_equal(ffn_layer_run(layer, NULL, &none), FFN_INVALID); /* another width, even without tokens */
    const ffn_run_t empty = {.struct_size = sizeof empty, .stats = of_wire};
    assert_ok(ffn_layer_run(layer, NULL, &empty));
    assert_int_equal(info_of(of_wire).positions, 0);
    const ffn_stats_info_t info = info_of(stats);
    assert_true(info.positions == 0 && info.positive == 0 && info.dead_units == 0 && info.largest == 0 && isnan(info.density) && isnan(info.mean));
    assert_ok(ffn_stats_units(stats, positive, density, density_logit));
    for (int j = 0; j < 64; j++) assert_true(positive[j] == 0 && isnan(density[j]) && isnan(density_logit[j]));
    assert_ok(ffn_stats_histogram(stats, 3, NULL, counts));
    assert_true(!counts[0] && !counts[1] && !counts[2]);
    ffn_stats_free(stats), ffn_stats_free(of_wire);
    ffn_layer_free(layer);
}

/* ----------------------------------------------------------------------- Errors */

static void assert_refused(ffn_status_t status, ffn_status_t expected, const char *sentence)
{
    assert_int_equal(status, expected);
    assert_string_equal(ffn_last_error(), sentence);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    ffn_stats_t *stats = stats_of(1), *other = stats_of(2), *made = stats;
    ffn_layer_t *layer = wire(FFN_ENGINE_AUTO);
    int64_t counts[2];
    const double level[] = {0, 0}, nan_edge[] = {0, NAN};
    const float x = 1;
    float y = 5;
    ffn_stats_options_t options = {.struct_size = sizeof options};
    assert_refused(ffn_stats_create(&options, &made), FFN_INVALID, "d_ff of the stats is 0, must be 1 to 536870912");
    assert_null(made);
    options.d_ff = (INT64_C(1) << 29) + 1;
    assert_refused(ffn_stats_create(&options, &made), FFN_INVALID, "d_ff of the stats is 536870913, must be 1 to 536870912");
    options.flags = 1;
    assert_refused(ffn_stats_create(&options, &made), FFN_INVALID, "flags of the stats is 1, must be 0");
    assert_refused(ffn_stats_create(NULL, &made), FFN_INVALID, "the ffn_stats_options_t is NULL");
    assert_refused(ffn_stats_create(&options, NULL), FFN_INVALID, "the pointer to the stats is NULL");
    assert_refused(ffn_stats_reset(NULL), FFN_INVALID, "stats is NULL");
    assert_refused(ffn_stats_merge(NULL, stats), FFN_INVALID, "stats is NULL");
    assert_refused(ffn_stats_merge(stats, NULL), FFN_INVALID, "the stats to add are NULL");
    assert_refused(ffn_stats_merge(stats, stats), FFN_INVALID, "the stats to add are the same");
    assert_refused(ffn_stats_merge(stats, other), FFN_INVALID, "the stats to add are for a d_ff of 2, must be for 1");
    assert_refused(ffn_stats_info(NULL, NULL), FFN_INVALID, "stats is NULL");
    assert_refused(ffn_stats_info(stats, NULL), FFN_INVALID, "the ffn_stats_info_t is NULL");
    assert_refused(ffn_stats_units(NULL, NULL, NULL, NULL), FFN_INVALID, "stats is NULL");
    assert_refused(ffn_stats_histogram(NULL, 1, NULL, counts), FFN_INVALID, "stats is NULL");
    assert_refused(ffn_stats_histogram(stats, 1, NULL, NULL), FFN_INVALID, "counts is NULL");
    assert_refused(ffn_stats_histogram(stats, 0, NULL, counts), FFN_INVALID, "bins is 0, must be 1 to 1048576");
    assert_refused(ffn_stats_histogram(stats, (1 << 20) + 1, NULL, counts), FFN_INVALID, "bins is 1048577, must be 1 to 1048576");
    assert_refused(ffn_stats_histogram(stats, 1, level, counts), FFN_INVALID, "edges[1] is 0, must be above edges[0], which is 0");
    assert_refused(ffn_stats_histogram(stats, 1, nan_edge, counts), FFN_INVALID, "edges[1] is nan, must be above edges[0], which is 0");
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 1, .x = &x, .y = &y, .stats = other};
    assert_refused(ffn_layer_run(layer, NULL, &run), FFN_INVALID, "the stats are for a d_ff of 2, the layer has 1");
    run.stats = stats, run.batch = 1 << 16, run.length = 1 << 15;
    assert_refused(ffn_layer_run(layer, NULL, &run), FFN_INVALID, "the run has 2147483648 positions, with stats it must have at most 2147483647");
    run.batch = run.length = 1, run.x = NULL;
    assert_refused(ffn_layer_run(layer, NULL, &run), FFN_INVALID, "x is NULL");
    assert_true(y == 5 && info_of(stats).positions == 0 && info_of(other).positions == 0);
    ffn_stats_free(NULL);
    ffn_stats_free(stats), ffn_stats_free(other);
    ffn_layer_free(layer);
}

static void without_memory_nothing_is_made_or_counted(void **state)
{
    (void)state;
    failing_allocator_t allocator;
    failing_allocator_init(&allocator);
    const ffn_stats_options_t options = {.struct_size = sizeof options, .d_ff = 1, .allocator = &allocator.hook};
    const ffn_context_options_t context_options = {.struct_size = sizeof context_options, .threads = 1, .allocator = &allocator.hook};
    const float x = 1;
    float y = 5;
    ffn_stats_t *stats;
    ffn_context_t *context;
    ffn_layer_t *layer = wire(FFN_ENGINE_AUTO);
    failing_allocator_arm(&allocator, 1, true);
    assert_int_equal(ffn_stats_create(&options, &stats), FFN_NO_MEMORY);
    assert_null(stats);
    failing_allocator_disarm(&allocator);
    assert_ok(ffn_stats_create(&options, &stats));
    assert_ok(ffn_context_create(&context_options, &context));
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 1, .x = &x, .y = &y, .stats = stats};
    failing_allocator_arm(&allocator, 1, true);
    assert_int_equal(ffn_layer_run(layer, context, &run), FFN_NO_MEMORY);
    assert_true(y == 5 && info_of(stats).positions == 0);
    failing_allocator_disarm(&allocator);
    assert_ok(ffn_context_reserve(context, layer, 1));
    failing_allocator_arm(&allocator, 1, true);
    assert_ok(ffn_layer_run(layer, context, &run)); /* what was reserved is enough for counting too */
    assert_true(y == 1 && info_of(stats).positions == 1);
    ffn_stats_free(stats);
    ffn_context_free(context);
    assert_int_equal(allocator.held, 0);
    ffn_layer_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_float64_at_every_width),
        cmocka_unit_test(counts_are_those_of_float64_for_every_activation),
        cmocka_unit_test(norms_do_not_change_what_is_counted),
        cmocka_unit_test(numbers_of_every_size_are_added_exactly),
        cmocka_unit_test(counts_stay_exact_beyond_what_floats_and_32_bits_hold),
        cmocka_unit_test(density_and_its_logit_are_their_formulas),
        cmocka_unit_test(histograms_have_every_unit_in_its_bin),
        cmocka_unit_test(nothing_counted_is_nan_and_not_dead),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(without_memory_nothing_is_made_or_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
