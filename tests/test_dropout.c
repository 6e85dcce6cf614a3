/* SPDX-License-Identifier: MIT
 *
 * Dropout's mask: the one of the header's words at every site, in every split of the batch and at every length; p 0 and 1; its statistics; and the kernel
 * at every ISA level.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/training.h"
#include "support/compare.h"
#include "support/guard.h"
#include "support/kernel_levels.h"
#include "support/philox_reference.h"
#include "support/random.h"
#include "support/test.h"
#include "support/train_case.h"

/* y = x but for what is dropped: unit matrices, no activation. */
static ffn_layer_t *unit_layer(int64_t width, uint32_t gated)
{
    float *unit = calloc((size_t)(width * width), sizeof *unit), *zero = calloc((size_t)(width * width), sizeof *zero), *ones = test_alloc((size_t)width * 4);
    ffn_layer_t *layer;
    for (int64_t i = 0; i < width; i++) unit[i * width + i] = ones[i] = 1;
    const ffn_tensor_t tensors[] = {
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = unit, .shape = {width, width}},
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = gated ? zero : unit, .shape = {width, width}},
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = unit, .shape = {width, width}},
        {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = ones, .shape = {width}},
    };
    ffn_layer_options_t options = {.struct_size = sizeof options, .flags = FFN_LAYER_TRAINABLE, .engine = test_engine(),
                                   .activation = FFN_ACTIVATION_IDENTITY, .tensors = tensors,
                                   .tensor_count = gated ? 4 : 2};
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    free(unit), free(zero), free(ones);
    return layer;
}

static void run(const ffn_layer_t *layer, ffn_context_t *context, const ffn_dropout_t *dropout, int64_t batch, int64_t length, const float *x, float *y)
{
    const ffn_run_t run = {.struct_size = sizeof run, .batch = batch, .length = length, .x = x, .y = y, .dropout = dropout};
    assert_ok(ffn_layer_run(layer, context, &run));
}

static float *ones(int64_t n)
{
    float *v = test_alloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = 1;
    return v;
}

/* --------------------------------------------------------------- The right mask */

static void check_mask(const ffn_layer_t *layer, const ffn_dropout_t *dropout, int64_t batch, int64_t length, int64_t width)
{
    const int64_t n = batch * length * width;
    float *x = ones(n), *y = test_alloc((size_t)n * sizeof *y);
    oracle_masks_t masks = oracle_masks_make(dropout, batch, length, width, width);
    run(layer, NULL, dropout, batch, length, x, y);
    for (int64_t i = 0; i < n; i++) {
        double expected = 1;
        for (int site = 0; site < 5; site++)
            if (masks.site[site]) expected *= masks.site[site][site == FFN_DROPOUT_PATH ? i / width : i];
        if (!(fabs((double)y[i] - expected) <= 4e-7 * expected))
            fail_msg("width %lld, row %lld, column %lld: expected %.9g, got %.9g", (long long)width, (long long)(i / width), (long long)(i % width),
                     expected, (double)y[i]);
    }
    oracle_masks_free(&masks);
    free(x), free(y);
}

static void every_site_has_the_mask_of_the_header_at_every_length(void **state)
{
    (void)state;
    for (int64_t width = 1; width <= 140; width += width < 70 ? 1 : 23)
        for (uint32_t gated = 0; gated < 2; gated++) {
            ffn_layer_t *layer = unit_layer(width, gated);
            for (int site = 0; site < 6; site++)
                for (int broadcast = 0; broadcast < 2; broadcast++) {
                    ffn_dropout_t dropout = {.struct_size = sizeof dropout, .broadcast = broadcast ? 0xf : 0, .seed = 0xfedcba9876543210u + (uint64_t)width,
                                             .step = UINT32_MAX - (uint32_t)site, .layer = 65534, .first_row = (INT64_C(1) << 48) - 6,
                                             .first_sequence = INT64_C(5) << 32};
                    for (int s = 0; s < 5; s++)
                        if (s == site || site == 5) dropout.p[s] = 0.375f;
                    check_mask(layer, &dropout, 2, 3, width);
                }
            ffn_layer_free(layer);
        }
}

static void a_split_batch_drops_what_the_whole_one_drops(void **state)
{
    (void)state;
    enum { BATCH = 5, LENGTH = 7, WIDTH = 33, N = BATCH * LENGTH * WIDTH };
    ffn_layer_t *layer = unit_layer(WIDTH, 0);
    float *x = ones(N), whole[N], parts[N];
    ffn_dropout_t dropout = {.struct_size = sizeof dropout, .broadcast = 1 << FFN_DROPOUT_BRANCH, .seed = 1, .step = 2, .layer = 3,
                             .first_row = 1000, .first_sequence = 50, .p = {0.1f, 0.2f, 0.3f, 0.2f, 0.4f}};
    run(layer, NULL, &dropout, BATCH, LENGTH, x, whole);
    for (int64_t cut = 0; cut <= BATCH; cut++) {
        ffn_dropout_t rest = dropout;
        rest.first_row += cut * LENGTH, rest.first_sequence += cut;
        run(layer, NULL, &dropout, cut, LENGTH, x, parts);
        run(layer, NULL, &rest, BATCH - cut, LENGTH, x, parts + cut * LENGTH * WIDTH);
        assert_same_bits(whole, parts, N, "cut between sequences");
    }
    for (int64_t b = 0; b < BATCH; b++) /* each sequence in two, row 4 first */
        for (int64_t part = 0; part < 2; part++) {
            ffn_dropout_t piece = dropout;
            const int64_t begin = b * LENGTH + part * 4;
            piece.first_row += begin, piece.first_sequence += b;
            run(layer, NULL, &piece, 1, part ? 3 : 4, x, parts + begin * WIDTH);
        }
    assert_same_bits(whole, parts, N, "cut within sequences");
    free(x);
    ffn_layer_free(layer);
}

static void any_number_of_threads_drops_the_same(void **state)
{
    (void)state;
    enum { LENGTH = 301, WIDTH = 257, N = LENGTH * WIDTH };
    static const uint32_t threads[] = {1, 2, 7, 16};
    ffn_layer_t *layer = unit_layer(WIDTH, 1);
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 8, .p = {0.1f, 0.2f, 0.3f, 0.2f, 0}};
    float *x = ones(N), *expected = test_alloc(N * sizeof(float)), *y = test_alloc(N * sizeof(float));
    run(layer, NULL, &dropout, 1, LENGTH, x, expected);
    for (int64_t t = 0; t < COUNT_OF(threads); t++) {
        ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads[t]};
        ffn_context_t *context;
        assert_ok(ffn_context_create(&options, &context));
        run(layer, context, &dropout, 1, LENGTH, x, y);
        assert_same_bits(expected, y, N, "threads");
        ffn_context_free(context);
    }
    free(x), free(expected), free(y);
    ffn_layer_free(layer);
}

static void every_level_drops_the_same_and_keeps_to_its_operands(void **state)
{
    (void)state;
    kernel_level_t levels[KERNEL_LEVELS_MAX];
    const int count = kernel_levels(levels);
    const drop_mask_t mask = {.seed = 0x0123456789abcdef, .threshold = 0x60000000, .counter = {3u << 28, 5, 6, 7}, .scale = 1.6f};
    rng_t rng = rng_make(test_seed());
    for (int64_t n = 0; n <= 200; n += n < 70 ? 1 : 13)
        for (int l = 0; l < count; l++)
            for (int in_place = 0; in_place < 2; in_place++) {
                guard_buffer_t in = guard_alloc((size_t)n * 4, GUARD_AFTER), out = guard_alloc((size_t)n * 4, GUARD_AFTER);
                float *from = in.data, *to = in_place ? in.data : out.data, source[200];
                rng_fill_normal(&rng, from, n);
                memcpy(source, from, (size_t)n * 4);
                levels[l].table->training->drop(&mask, n, to, from);
                for (int64_t j = 0; j < n; j++) {
                    const uint32_t counter[4] = {(3u << 28) | (uint32_t)(j / 4), 5, 6, 7}, key[2] = {0x89abcdef, 0x01234567};
                    uint32_t word[4];
                    philox_reference(counter, key, word);
                    const float expected = word[j % 4] >= 0x60000000 ? source[j] * 1.6f : 0.0f;
                    if (memcmp(&to[j], &expected, 4) != 0)
                        fail_msg("%s, n = %lld, column %lld: expected %g, got %g", levels[l].name, (long long)n, (long long)j, (double)expected, (double)to[j]);
                }
                guard_free(&in), guard_free(&out);
            }
}

/* -------------------------------------------------------------------- p 0 and 1 */

static void p_0_is_no_dropout_to_the_bit(void **state)
{
    (void)state;
    static const uint32_t flags[] = {0, FFN_TAPE_RECOMPUTE};
    for (int64_t tokens = 1; tokens < 700; tokens = tokens * 5 + 1) {
        train_case_t is = {.layer = {.d_model = 7, .d_ff = 21, .activation = FFN_ACTIVATION_GELU, .gated = tokens & 1, .biases = BIAS_ALL,
                                     .residual = FFN_RESIDUAL_INPUT, .norm = {{FFN_NORM_LAYER, true, true, 0, 0}, {FFN_NORM_RMS, true, true, 0, 0},
                                     {FFN_NORM_RMS, true, true, 0, 0}}, .seed = (uint64_t)tokens}, .batch = 1, .length = tokens};
        train_t plain, zero;
        train_make(&plain, &is);
        is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = 4};
        train_make(&zero, &is);
        train_forward(&plain, NULL, NULL);
        train_forward(&zero, NULL, NULL);
        assert_same_bits(plain.y, zero.y, tokens * 7, "p 0 without a tape");
        for (int64_t f = 0; f < COUNT_OF(flags); f++) {
            plain.is.tape_flags = zero.is.tape_flags = flags[f];
            memset(zero.y, 0xff, (size_t)(tokens * 7) * 4);
            train_step(&zero, NULL);
            assert_same_bits(plain.y, zero.y, tokens * 7, "p 0 with a tape");
            train_step(&plain, NULL);
            assert_same_training(&plain, &zero, "p 0 backward");
        }
        train_free(&plain);
        train_free(&zero);
    }
}

/* 0 whatever it was: infinity and NaN too. */
static void p_1_gives_zeros(void **state)
{
    (void)state;
    static const float inputs[] = {1, -1, 3e38f, INFINITY, -INFINITY, NAN, 0};
    for (uint32_t gated = 0; gated < 2; gated++) {
        ffn_layer_t *layer = unit_layer(1, gated);
        for (int site = (int)gated; site < 5; site++) { /* a dropped gate does not make a number of up's 0 * inf */
            ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 3};
            float y[COUNT_OF(inputs)];
            dropout.p[site] = 1;
            run(layer, NULL, &dropout, COUNT_OF(inputs), 1, inputs, y);
            for (int64_t i = 0; i < COUNT_OF(inputs); i++)
                if (y[i] != 0) fail_msg("gated %u, site %d: %g became %g", gated, site, (double)inputs[i], (double)y[i]);
        }
        ffn_layer_free(layer);
    }
}

static void p_just_below_1_scales_by_its_inverse_and_p_tiny_keeps_all(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    ffn_layer_t *layer = unit_layer(256, 0);
    float *x = ones(N), *y = test_alloc(N * sizeof *y);
    ffn_dropout_t dropout = {.struct_size = sizeof dropout, .seed = 9, .p = {0, 0, 0, 1 - 0x1p-10f, 0}};
    int kept = 0;
    run(layer, NULL, &dropout, 1, N / 256, x, y);
    for (int64_t i = 0; i < N; i++) {
        assert_true(y[i] == 0 || y[i] == 1024);
        kept += y[i] != 0;
    }
    assert_near(kept, 64, 40);
    dropout.p[FFN_DROPOUT_BRANCH] = 0x1p-40f;
    run(layer, NULL, &dropout, 1, N / 256, x, y);
    assert_same_bits(x, y, N, "p 2^-40");
    free(x), free(y);
    ffn_layer_free(layer);
}

/* --------------------------------------------------------------------- Statistics */

enum { SAMPLE_ROWS = 512, SAMPLE_WIDTH = 512, SAMPLE = SAMPLE_ROWS * SAMPLE_WIDTH };

static void take_sample(const ffn_layer_t *layer, int site, ffn_dropout_t dropout, float *y)
{
    float *x = ones(SAMPLE);
    dropout.struct_size = sizeof dropout;
    dropout.p[site] = 0.3f;
    run(layer, NULL, &dropout, 1, SAMPLE_ROWS, x, y);
    for (int64_t i = 0; i < SAMPLE; i++) y[i] = y[i] != 0;
    free(x);
}

/* Each a sum of independent numbers if the mask is what it should be: within 5 standard deviations. */
static void the_keep_rate_is_1_minus_p_and_masks_are_independent(void **state)
{
    (void)state;
    if (test_quick()) skip();
    static const ffn_dropout_t variants[] = {{.seed = 1}, {.seed = 2}, {.seed = UINT64_C(1) << 32}, {.seed = 1, .step = 1}, {.seed = 1, .layer = 1},
                                             {.seed = 1, .first_row = SAMPLE_ROWS}, {.seed = 1, .first_row = INT64_C(1) << 32}};
    enum { VARIANTS = sizeof variants / sizeof *variants, MASKS = VARIANTS + 3 };
    static float mask[MASKS][SAMPLE];
    const double p = (double)0.3f, variance = p * (1 - p);
    ffn_layer_t *layer = unit_layer(SAMPLE_WIDTH, 0);
    for (int v = 0; v < VARIANTS; v++) take_sample(layer, FFN_DROPOUT_BRANCH, variants[v], mask[v]);
    for (int site = 0; site < 3; site++) take_sample(layer, site, variants[0], mask[VARIANTS + site]);
    for (int a = 0; a < MASKS; a++) {
        double kept = 0, along_row = 0, along_column = 0;
        for (int64_t i = 0; i < SAMPLE; i++) kept += (double)mask[a][i];
        assert_near(kept / SAMPLE, 1 - p, 5 * sqrt(variance / SAMPLE));
        for (int64_t i = SAMPLE_WIDTH; i < SAMPLE; i++) {
            const double here = (double)mask[a][i] - (1 - p);
            along_row += here * ((double)mask[a][i - 1] - (1 - p));
            along_column += here * ((double)mask[a][i - SAMPLE_WIDTH] - (1 - p));
        }
        assert_near(along_row, 0, 5 * variance * sqrt(SAMPLE));
        assert_near(along_column, 0, 5 * variance * sqrt(SAMPLE));
        for (int b = 0; b < a; b++) {
            double product = 0;
            for (int64_t i = 0; i < SAMPLE; i++) product += ((double)mask[a][i] - (1 - p)) * ((double)mask[b][i] - (1 - p));
            if (fabs(product) > 5 * variance * sqrt(SAMPLE)) fail_msg("masks %d and %d are correlated: %g", a, b, product / (variance * SAMPLE));
        }
    }
    ffn_layer_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_site_has_the_mask_of_the_header_at_every_length),
        cmocka_unit_test(a_split_batch_drops_what_the_whole_one_drops),
        cmocka_unit_test(any_number_of_threads_drops_the_same),
        cmocka_unit_test(every_level_drops_the_same_and_keeps_to_its_operands),
        cmocka_unit_test(p_0_is_no_dropout_to_the_bit),
        cmocka_unit_test(p_1_gives_zeros),
        cmocka_unit_test(p_just_below_1_scales_by_its_inverse_and_p_tiny_keeps_all),
        cmocka_unit_test(the_keep_rate_is_1_minus_p_and_masks_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
