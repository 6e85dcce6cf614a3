/* SPDX-License-Identifier: MIT
 *
 * Counting the hidden units of convolutional layers: every number against float64 counts from the formula of the first convolution, over forms,
 * paddings, masks, engines, dropout, threads and cuts; and that y keeps its bits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/oracle_backward.h"
#include "support/stats_check.h"
#include "support/test.h"

typedef struct stats_conv_case {
    int64_t d_model, d_ff, kernel[2];
    bool separable, second_separable, bias;
    uint32_t padding, mask_kind, flags, activation;
    int64_t batch, length;
    bool masked;
} stats_conv_case_t;

static const stats_way_t ways[] = {
    {"native, one thread", FFN_ENGINE_NATIVE, 1, false, {0}},
    {"native, three threads", FFN_ENGINE_NATIVE, 3, false, {0}},
    {"blas, one thread", FFN_ENGINE_BLAS, 1, false, {0}},
    {"blas, five threads", FFN_ENGINE_BLAS, 5, false, {0}},
    {"tape", FFN_ENGINE_BLAS, 2, true, {0}},
    {"dropout, as tensor2tensor has it", FFN_ENGINE_BLAS, 3, true, {0, 0.5f, 0}},
    {"dropout before the activation", FFN_ENGINE_BLAS, 1, false, {0.5f, 0.5f, 0.5f}},
};

typedef struct conv_data {
    stats_conv_case_t is;
    float *up, *taps, *bias, *down, *down_taps, *x, *y, *plain;
    uint8_t *mask; /* [batch, length + 2] */
    ffn_conv_t *conv;
} conv_data_t;

static bool is_padding(const conv_data_t *d, int64_t sequence, int64_t t)
{
    return d->mask && !d->mask[sequence * (d->is.length + 2) + t];
}

static conv_data_t conv_data_make(const stats_conv_case_t *is, const stats_way_t *way)
{
    conv_data_t d = {.is = *is};
    const int64_t k = is->kernel[0], k2 = is->kernel[1], rows = is->batch * is->length;
    d.up = quarters(is->d_ff * is->d_model * k, 1), d.taps = quarters(is->d_model * k, 2), d.bias = quarters(is->d_ff, 3);
    d.down = quarters(is->d_model * is->d_ff * k2, 4), d.down_taps = quarters(is->d_ff * k2, 5), d.x = quarters(rows * is->d_model, 6);
    d.y = test_alloc((size_t)(rows * is->d_model) * sizeof *d.y), d.plain = test_alloc((size_t)(rows * is->d_model) * sizeof *d.plain);
    if (is->masked) d.mask = test_alloc((size_t)(is->batch * (is->length + 2)));
    for (int64_t i = 0; is->masked && i < is->batch * (is->length + 2); i++) d.mask[i] = i % 7 < 3 || i % 41 > 20; /* holes, and long runs */
    ffn_tensor_t tensors[5] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = is->separable ? 2 : 3, .data = d.up, .shape = {is->d_ff, is->d_model, is->separable ? 0 : k}},
                               {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = is->second_separable ? 2 : 3, .data = d.down,
                                .shape = {is->d_model, is->d_ff, is->second_separable ? 0 : k2}}};
    uint64_t count = 2;
    if (is->separable) tensors[count++] = (ffn_tensor_t){.role = FFN_ROLE_UP_TAPS, .ndim = 2, .data = d.taps, .shape = {is->d_model, k}};
    if (is->second_separable) tensors[count++] = (ffn_tensor_t){.role = FFN_ROLE_DOWN_TAPS, .ndim = 2, .data = d.down_taps, .shape = {is->d_ff, k2}};
    if (is->bias) tensors[count++] = (ffn_tensor_t){.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = d.bias, .shape = {is->d_ff}};
    const ffn_conv_options_t options = {.struct_size = sizeof options, .flags = is->flags | (way->engine == FFN_ENGINE_BLAS ? FFN_CONV_TRAINABLE : 0),
                                        .padding = is->padding, .mask = is->mask_kind, .activation = is->activation, .engine = way->engine,
                                        .tensors = tensors, .tensor_count = count};
    assert_ok(ffn_conv_create(NULL, &options, &d.conv));
    return d;
}

static void conv_data_free(conv_data_t *d)
{
    float *arrays[] = {d->up, d->taps, d->bias, d->down, d->down_taps, d->x, d->y, d->plain};
    for (int64_t i = 0; i < COUNT_OF(arrays); i++) free(arrays[i]);
    free(d->mask);
    ffn_conv_free(d->conv);
}

/* ------------------------------------------------------------------ In float64 */

/* Channel i of the input of the first convolution at t; zeros beyond the sequence, and where the mask makes them. */
static double input_at(const conv_data_t *d, int64_t sequence, int64_t t, int64_t i)
{
    const stats_conv_case_t *is = &d->is;
    if (t < 0 || t >= is->length) return 0;
    if ((is->kernel[0] != 1 || is->mask_kind == FFN_CONV_MASK_ALL) && is_padding(d, sequence, t)) return 0;
    return (double)d->x[(sequence * is->length + t) * is->d_model + i];
}

static double pre_activation(const conv_data_t *d, int64_t sequence, int64_t t, int64_t unit)
{
    const stats_conv_case_t *is = &d->is;
    const int64_t k = is->kernel[0], left = is->padding == FFN_CONV_LEFT ? k - 1 : (k - 1) / 2;
    double z = is->bias ? (double)d->bias[unit] : 0;
    for (int64_t i = 0; i < is->d_model; i++)
        for (int64_t j = 0; j < k; j++) {
            const double u = input_at(d, sequence, t - left + j, i);
            z += is->separable ? (double)d->up[unit * is->d_model + i] * (double)d->taps[i * k + j] * u : (double)d->up[(unit * is->d_model + i) * k + j] * u;
        }
    return is->flags & FFN_CONV_SCALE_BY_TAPS ? z / sqrt((double)k) : z;
}

static expected_stats_t count(const conv_data_t *d, const stats_way_t *way)
{
    const stats_conv_case_t *is = &d->is;
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 3, .p = {way->p[0]}};
    const oracle_activation_t activation = {.id = is->activation};
    oracle_masks_t masks = oracle_masks_make(&dropout, is->batch, is->length, is->d_ff, is->d_model);
    expected_stats_t expected = expected_stats_make(0, is->d_ff, 0);
    for (int64_t sequence = 0; sequence < is->batch; sequence++)
        for (int64_t t = 0; t < is->length; t++) {
            if (is_padding(d, sequence, t)) continue;
            expected.positions[0]++;
            for (int64_t unit = 0; unit < is->d_ff; unit++) {
                const double m = masks.site[0] ? masks.site[0][(sequence * is->length + t) * is->d_ff + unit] : 1;
                expected_stats_add(&expected, 0, unit, &activation, m * pre_activation(d, sequence, t, unit));
            }
        }
    oracle_masks_free(&masks);
    return expected;
}

/* ------------------------------------------------------------------------ Runs */

static void run(const conv_data_t *d, const stats_way_t *way, ffn_context_t *context, int64_t first, int64_t batch, ffn_stats_t *stats, float *y)
{
    const stats_conv_case_t *is = &d->is;
    const bool drops = way->p[0] + way->p[1] + way->p[2] > 0;
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 3, .first_row = first * is->length, .p = {way->p[0], way->p[1], way->p[2]}};
    const int64_t offset = first * is->length * is->d_model;
    ffn_tape_t *tape = NULL;
    if (way->taped) assert_ok(ffn_tape_create(NULL, &tape));
    const ffn_conv_run_t given = {.struct_size = sizeof given, .batch = batch, .length = is->length, .x = d->x + offset, .y = y + offset,
                                  .mask = d->mask ? d->mask + first * (is->length + 2) : NULL, .mask_stride = d->mask ? is->length + 2 : 0,
                                  .dropout = drops ? &dropout : NULL, .tape = tape, .stats = stats};
    assert_ok(ffn_conv_run(d->conv, context, &given));
    ffn_tape_free(tape);
}

static void check_way(const stats_conv_case_t *is, const stats_way_t *way)
{
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = way->threads};
    conv_data_t d = conv_data_make(is, way);
    expected_stats_t expected = count(&d, way);
    ffn_stats_t *whole = stats_for(&expected), *first = stats_for(&expected), *rest = stats_for(&expected);
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    run(&d, way, context, 0, is->batch, NULL, d.plain);
    run(&d, way, context, 0, is->batch, whole, d.y);
    assert_same_bits(d.plain, d.y, is->batch * is->length * is->d_model, way->name);
    assert_stats(whole, &expected, way->name);
    run(&d, way, NULL, 0, 1, first, d.y);
    run(&d, way, NULL, 1, is->batch - 1, rest, d.y);
    assert_ok(ffn_stats_merge(rest, first));
    assert_same_stats(whole, rest);
    ffn_context_free(context);
    ffn_stats_free(whole), ffn_stats_free(first), ffn_stats_free(rest);
    expected_stats_free(&expected);
    conv_data_free(&d);
}

static const stats_conv_case_t cases[] = {
    {.d_model = 7, .d_ff = 33, .kernel = {1, 1}, .activation = FFN_ACTIVATION_RELU, .bias = true, .batch = 3, .length = 21, .masked = true},
    {.d_model = 6, .d_ff = 17, .kernel = {3, 31}, .separable = true, .second_separable = true, .padding = FFN_CONV_LEFT,
     .activation = FFN_ACTIVATION_RELU, .bias = true, .batch = 2, .length = 40, .masked = true},
    {.d_model = 5, .d_ff = 50, .kernel = {3, 1}, .flags = FFN_CONV_SCALE_BY_TAPS, .activation = FFN_ACTIVATION_RELU, .bias = true, .batch = 2, .length = 30},
    {.d_model = 4, .d_ff = 16, .kernel = {9, 1}, .mask_kind = FFN_CONV_MASK_ALL, .activation = FFN_ACTIVATION_GELU, .bias = true, .batch = 2, .length = 25,
     .masked = true},
    {.d_model = 4, .d_ff = 100, .kernel = {3, 3}, .activation = FFN_ACTIVATION_SILU, .batch = 2, .length = 1, .masked = true},
    {.d_model = 3, .d_ff = 20, .kernel = {3, 5}, .activation = FFN_ACTIVATION_RELU, .bias = true, .batch = 2, .length = 1300, .masked = true}, /* blocks */
};

static void counts_are_those_of_float64_for_every_form_and_engine(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(cases) - (test_quick() ? 1 : 0); i++)
        for (int64_t w = 0; w < COUNT_OF(ways); w++) check_way(&cases[i], &ways[w]);
}

static void padding_alone_counts_nothing(void **state)
{
    (void)state;
    stats_conv_case_t is = cases[0];
    for (int64_t w = 0; w < COUNT_OF(ways); w++) {
        conv_data_t d = conv_data_make(&is, &ways[w]);
        memset(d.mask, 0, (size_t)(is.batch * (is.length + 2)));
        expected_stats_t expected = count(&d, &ways[w]);
        ffn_stats_t *stats = stats_for(&expected);
        run(&d, &ways[w], NULL, 0, is.batch, stats, d.y);
        assert_stats(stats, &expected, ways[w].name);
        assert_int_equal(expected.positions[0], 0);
        ffn_stats_free(stats);
        expected_stats_free(&expected);
        conv_data_free(&d);
    }
}

static void assert_refused(const conv_data_t *d, const ffn_conv_run_t *run, const char *sentence)
{
    const ffn_stats_info_t before = {.struct_size = sizeof before};
    ffn_stats_info_t info = before;
    assert_int_equal(ffn_conv_run(d->conv, NULL, run), FFN_INVALID);
    assert_string_equal(ffn_last_error(), sentence);
    assert_ok(ffn_stats_info(run->stats, &info));
    assert_true(info.positions == 0 && info.positive == 0 && d->y[0] == 5);
}

static void stats_for_another_layer_are_refused(void **state)
{
    (void)state;
    conv_data_t d = conv_data_make(&cases[0], &ways[0]);
    expected_stats_t narrow = {.d_ff = 32}, fitting = {.d_ff = 33}, mixture = {.d_ff = 33, .experts = 2};
    ffn_stats_t *stats[] = {stats_for(&narrow), stats_for(&mixture), stats_for(&fitting)};
    ffn_conv_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 1, .x = d.x, .y = d.y, .stats = stats[0]};
    d.y[0] = 5;
    assert_refused(&d, &run, "the stats are for a d_ff of 32, the layer has 33");
    run.stats = stats[1];
    assert_refused(&d, &run, "the stats are for 2 experts, the layer has 0");
    run.stats = stats[2], run.batch = 1 << 16, run.length = 1 << 15;
    assert_refused(&d, &run, "the run has 2147483648 positions, with stats it must have at most 2147483647");
    run.batch = run.length = 1, run.x = NULL;
    assert_refused(&d, &run, "x is NULL");
    for (int64_t i = 0; i < COUNT_OF(stats); i++) ffn_stats_free(stats[i]);
    conv_data_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_float64_for_every_form_and_engine),
        cmocka_unit_test(padding_alone_counts_nothing),
        cmocka_unit_test(stats_for_another_layer_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
