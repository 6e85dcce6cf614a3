/* SPDX-License-Identifier: MIT
 *
 * Convolutional layers as a whole: runs longer than a block and of many short sequences, both engines, the bits of the position-wise layer, independence of
 * threads and of the batch, what info tells, read, and tensor2tensor's first tap.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/blas.h"
#include "support/compare.h"
#include "support/conv_case.h"
#include "support/layer_case.h"
#include "support/layer_check.h"
#include "support/random.h"

static const conv_case_t base = {.d_model = 5, .d_ff = 7, .d_out = 4, .kernel = {3, 5}, .activation = FFN_ACTIVATION_GELU, .up_bias = true,
                                 .down_bias = true, .batch = 2, .length = 9, .seed = 1};

static ffn_context_t *context_of(uint32_t threads, uint64_t scratch_limit)
{
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads, .scratch_limit = scratch_limit};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

/* ------------------------------------------------------------------- Oracle */

static void every_form_runs_as_the_formula_says_with_both_engines(void **state)
{
    (void)state;
    static const int64_t kernels[] = {1, 2, 3, 9};
    uint64_t number = 1;
    for (uint32_t engine = FFN_ENGINE_BLAS; engine <= FFN_ENGINE_NATIVE; engine++)
        for (int64_t first = 0; first < COUNT_OF(kernels); first++)
            for (int64_t second = 0; second < COUNT_OF(kernels); second++)
                for (int forms = 0; forms < 4; forms++) {
                    conv_case_t is = base;
                    conv_test_t test;
                    is.seed = number++;
                    if (test_quick() && number % 11) continue;
                    is.engine = engine;
                    is.d_model = 1 + (int64_t)(number % 37), is.d_ff = 1 + (int64_t)(number % 53), is.d_out = 1 + (int64_t)(number % 35);
                    is.kernel[0] = kernels[first], is.kernel[1] = kernels[second];
                    is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
                    is.padding = number % 2, is.masked = number % 3 == 0, is.mask_kind = number / 3 % 2;
                    is.flags = number % 5 ? 0 : FFN_CONV_SCALE_BY_TAPS;
                    is.layout = (conv_layout_t)(number % CONV_LAYOUTS);
                    is.activation = 1 + (uint32_t)(number % FFN_ACTIVATION_XIELU);
                    is.row_gap = (int64_t)(number % 4), is.sequence_gap = (int64_t)(number % 3);
                    conv_test_make(&test, &is);
                    conv_test_forward(&test, NULL);
                    assert_conv_as_oracle(&test);
                    conv_test_free(&test);
                }
}

/* Blocks begin and end within sequences, windows move on, and the last block is short. */
static void runs_of_many_blocks_are_as_the_formula_says(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1200}, {3, 400}, {200, 6}, {1100, 1}, {2, 513}};
    uint64_t number = 1;
    for (int64_t shape = 0; shape < COUNT_OF(shapes); shape++)
        for (int forms = 0; forms < 4; forms++)
            for (uint32_t mode = 0; mode < 3; mode++) { /* native, trained, trained and recomputed */
                conv_case_t is = base;
                conv_test_t test;
                is.seed = number++;
                if (test_quick() && number % 19) continue;
                is.batch = shapes[shape][0], is.length = shapes[shape][1];
                is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
                is.padding = number % 2, is.masked = number % 3 == 0;
                is.engine = mode ? FFN_ENGINE_AUTO : FFN_ENGINE_NATIVE;
                is.flags = mode ? FFN_CONV_TRAINABLE : 0;
                is.tape_flags = mode == 2 ? FFN_TAPE_RECOMPUTE : 0;
                conv_test_make(&test, &is);
                if (mode) {
                    conv_test_step(&test, NULL);
                    assert_conv_trained_as_oracle(&test);
                } else {
                    conv_test_forward(&test, NULL);
                    assert_conv_as_oracle(&test);
                }
                conv_test_free(&test);
            }
}

/* ------------------------------------------------------ The position-wise layer */

static void position_wise(conv_test_t *test, ffn_context_t *context, uint32_t engine, bool trainable, float *y)
{
    ffn_layer_options_t options = {.struct_size = sizeof options, .flags = trainable ? FFN_LAYER_TRAINABLE : 0, .activation = test->is.activation,
                                   .engine = engine, .tensors = test->tensors, .tensor_count = test->tensor_count};
    ffn_layer_t *layer;
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    assert_ok(ffn_layer_forward(layer, context, test->is.batch * test->is.length, test->x, 0, y, 0));
    ffn_layer_free(layer);
}

/* With a fixed number of BLAS's threads the calls of sgemm are the same. */
static void kernels_of_one_give_the_bits_of_the_position_wise_layer(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 5, 7, 57, 130, 513, 700};
    for (uint32_t mode = 0; mode < 3; mode++) /* blas, native, blas of a trainable one */
        for (int64_t i = 0; i < COUNT_OF(lengths); i++) {
            conv_case_t is = {.d_model = 48, .d_ff = 100, .d_out = 37, .activation = FFN_ACTIVATION_RELU, .up_bias = true, .down_bias = true, .batch = 1,
                              .length = lengths[i], .seed = 2 * (uint64_t)i + 2};
            const uint32_t engine = mode == 1 ? FFN_ENGINE_NATIVE : FFN_ENGINE_BLAS;
            conv_test_t test;
            if (test_quick() && i % 3) continue;
            is.flags = mode == 2 ? FFN_CONV_TRAINABLE : 0;
            is.engine = engine;
            conv_test_make(&test, &is);
            float *expected = test_alloc((size_t)(is.length * is.d_out) * sizeof *expected);
            position_wise(&test, NULL, engine, mode == 2, expected);
            conv_test_forward(&test, NULL);
            assert_same_bits(expected, test.y, is.length * is.d_out, "the position-wise layer");
            free(expected);
            conv_test_free(&test);
        }
}

/* ------------------------------------------------------------------- Threads */

static void no_number_of_threads_changes_a_bit(void **state)
{
    (void)state;
    static const uint32_t threads[] = {2, 7, 16};
    for (uint64_t number = 0; number < 16; number++) {
        conv_case_t is = {.d_model = 48, .d_ff = 130, .d_out = 40, .kernel = {3, 4}, .activation = FFN_ACTIVATION_SILU, .up_bias = true, .down_bias = true,
                          .batch = 5, .length = 131, .seed = number + 1};
        conv_test_t alone, together;
        if (test_quick() && number % 9) continue;
        if (test_quick()) is.d_ff = 33, is.length = 60;
        is.separable[0] = number & 1, is.separable[1] = number >> 1 & 1;
        is.masked = number >> 2 & 1;
        is.engine = number < 8 ? FFN_ENGINE_BLAS : FFN_ENGINE_NATIVE;
        const bool trained = is.engine == FFN_ENGINE_BLAS;
        if (trained) {
            is.flags = FFN_CONV_TRAINABLE, is.tape_flags = number & 1 ? FFN_TAPE_RECOMPUTE : 0;
            is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = 5, .p = {0, 0.1f, 0, 0.2f, 0}};
        }
        conv_test_make(&alone, &is);
        trained ? conv_test_step(&alone, NULL) : conv_test_forward(&alone, NULL);
        for (int64_t i = 0; i < (test_quick() ? 2 : COUNT_OF(threads)); i++) {
            ffn_context_t *context = context_of(threads[i], 0);
            conv_test_make(&together, &is);
            trained ? conv_test_step(&together, context) : conv_test_forward(&together, context);
            assert_same_conv(&alone, &together, trained, "threads");
            conv_test_free(&together);
            ffn_context_free(context);
        }
        conv_test_free(&alone);
    }
}

/* Native: the same sequence alone, and among others. */
static void a_sequence_does_not_see_the_others(void **state)
{
    (void)state;
    for (int forms = 0; forms < 4; forms++) {
        conv_case_t is = base;
        conv_test_t all;
        is.d_ff = 40, is.batch = 30, is.length = 23, is.engine = FFN_ENGINE_NATIVE, is.masked = forms == 2;
        is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
        conv_test_make(&all, &is);
        conv_test_forward(&all, NULL);
        const ffn_conv_run_t run = conv_test_run(&all, NULL);
        float *y = test_alloc((size_t)(is.length * is.d_out) * sizeof *y);
        for (int64_t b = 0; b < is.batch; b += 7) {
            ffn_conv_run_t one = run;
            one.batch = 1, one.x = all.x + b * is.length * is.d_model, one.y = y;
            if (one.mask) one.mask += b * one.mask_stride;
            assert_ok(ffn_conv_run(all.conv, NULL, &one));
            assert_same_bits(all.y + b * is.length * is.d_out, y, is.length * is.d_out, "a sequence alone");
        }
        free(y);
        conv_test_free(&all);
    }
}

static void little_scratch_memory_gives_the_same_numbers(void **state)
{
    (void)state;
    for (int forms = 0; forms < 4; forms++) {
        conv_case_t is = base;
        conv_test_t test;
        is.length = 300, is.flags = FFN_CONV_TRAINABLE;
        is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
        conv_test_make(&test, &is);
        ffn_context_t *context = context_of(1, 30000), *nothing = context_of(1, 200);
        conv_test_step(&test, context);
        assert_conv_trained_as_oracle(&test);
        ffn_context_info_t info = {.struct_size = sizeof info};
        assert_ok(ffn_context_info(context, &info));
        assert_true(info.scratch_bytes <= 30000);
        const ffn_conv_run_t run = conv_test_run(&test, NULL);
        assert_int_equal(ffn_conv_run(test.conv, nothing, &run), FFN_NO_MEMORY);
        assert_non_null(strstr(ffn_last_error(), "scratch_limit"));
        ffn_context_free(context), ffn_context_free(nothing);
        conv_test_free(&test);
    }
}

static void after_reserve_nothing_grows(void **state)
{
    (void)state;
    for (int forms = 0; forms < 4; forms++) {
        conv_case_t is = base;
        conv_test_t test;
        ffn_tape_t *tape;
        ffn_context_info_t before = {.struct_size = sizeof before}, after = before;
        is.length = test_quick() ? 70 : 700, is.flags = FFN_CONV_TRAINABLE;
        is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
        conv_test_make(&test, &is);
        ffn_context_t *context = context_of(2, 0);
        assert_ok(ffn_tape_create(NULL, &tape));
        assert_ok(ffn_conv_reserve(test.conv, context, tape, is.batch, is.length));
        assert_ok(ffn_context_info(context, &before));
        for (int64_t length = is.length; length > 0; length = length * 2 / 3) {
            ffn_conv_run_t run = conv_test_run(&test, tape);
            const ffn_backward_t backward = conv_test_backward(&test, tape);
            run.length = length;
            assert_ok(ffn_conv_run(test.conv, context, &run));
            assert_ok(ffn_conv_backward(test.conv, context, &backward));
        }
        assert_ok(ffn_context_info(context, &after));
        assert_true(after.scratch_bytes == before.scratch_bytes);
        ffn_tape_free(tape);
        ffn_context_free(context);
        conv_test_free(&test);
    }
}

/* ----------------------------------------------------------------- Parameters */

static ffn_conv_info_t info_of(const ffn_conv_t *conv)
{
    ffn_conv_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_conv_info(conv, &info));
    return info;
}

static void info_tells_the_transformers_parameters(void **state)
{
    (void)state;
    const struct {
        int64_t kernel[2];
        bool separable;
        int64_t parameters;
    } cases[] = {
        {{1, 1}, false, 2099712},                                  /* 512*2048 + 2048 + 2048*512 + 512 */
        {{3, 1}, false, 3 * 512 * 2048 + 2048 + 2048 * 512 + 512},
        {{3, 31}, true, 2099712 + 3 * 512 + 31 * 2048},            /* conv_hidden_relu_with_sepconv: 2164736 */
        {{9, 1}, false, 9 * 512 * 2048 + 2048 + 2048 * 512 + 512},
    };
    float *zeros = calloc(9 * 512 * 2048, sizeof *zeros); /* whatever the tensors hold */
    assert_non_null(zeros);
    for (int64_t i = 0; i < (test_quick() ? 1 : COUNT_OF(cases)); i++) {
        const int64_t first = cases[i].kernel[0], second = cases[i].kernel[1];
        const ffn_tensor_t tensors[] = {
            {.role = FFN_ROLE_UP_WEIGHT, .ndim = 3, .data = zeros, .shape = {2048, 512, cases[i].separable ? 1 : first}},
            {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 3, .data = zeros, .shape = {512, 2048, cases[i].separable ? 1 : second}},
            {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = zeros, .shape = {2048}},
            {.role = FFN_ROLE_DOWN_BIAS, .ndim = 1, .data = zeros, .shape = {512}},
            {.role = FFN_ROLE_UP_TAPS, .ndim = 2, .data = zeros, .shape = {512, first}},
            {.role = FFN_ROLE_DOWN_TAPS, .ndim = 2, .data = zeros, .shape = {2048, second}},
        };
        const ffn_conv_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .tensors = tensors,
                                            .tensor_count = cases[i].separable ? 6 : 4};
        ffn_conv_t *conv;
        assert_ok(ffn_conv_create(NULL, &options, &conv));
        const ffn_conv_info_t info = info_of(conv);
        assert_int_equal(info.parameters, cases[i].parameters);
        assert_int_equal(info.d_model, 512), assert_int_equal(info.d_ff, 2048), assert_int_equal(info.d_out, 512);
        assert_int_equal(info.kernel_size, first), assert_int_equal(info.second_kernel_size, second);
        assert_int_equal(info.separable, cases[i].separable ? 3 : 0);
        assert_int_equal(info.parameters_of[FFN_ROLE_DOWN_BIAS], 512);
        assert_int_equal(info.parameters_of[FFN_ROLE_UP_TAPS], cases[i].separable ? 3 * 512 : 0);
        assert_true(info.engine != FFN_ENGINE_AUTO && info.isa != FFN_ISA_AUTO);
        assert_true(info.bytes >= 4 * (uint64_t)info.parameters);
        ffn_conv_free(conv);
    }
    free(zeros);
}

static void tensors_come_back_as_they_were(void **state)
{
    (void)state;
    for (uint32_t engine = FFN_ENGINE_BLAS; engine <= FFN_ENGINE_NATIVE; engine++)
        for (int layout = 0; layout < CONV_LAYOUTS; layout++)
            for (int forms = 0; forms < 4; forms++) {
                conv_case_t is = base;
                conv_test_t test;
                is.engine = engine, is.layout = (conv_layout_t)layout, is.activation = FFN_ACTIVATION_XIELU;
                is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
                conv_test_make(&test, &is);
                assert_ok(ffn_conv_read(test.conv, test.gradients, test.tensor_count));
                for (int role = 1; role < CONV_ROLES; role++) {
                    if (!test.plain[role]) continue;
                    float *got = conv_test_gradient(&test, role);
                    assert_same_bits(test.plain[role], got, conv_oracle_elements(&test.oracle, role), "a tensor read back");
                    free(got);
                }
                conv_test_free(&test);
            }
}

/* ------------------------------------------------------------- tensor2tensor */

/* The first tap of conv_relu_conv as published reads the position itself: docs/convolution.md. Its kernel, added to that position's, is the same layer. */
static void tensor2tensors_first_tap_can_be_moved(void **state)
{
    (void)state;
    for (uint32_t padding = FFN_CONV_SAME; padding <= FFN_CONV_LEFT; padding++) {
        enum { LENGTH = 6, IN = 3, FF = 4, TAPS = 3 };
        const conv_case_t is = {.d_model = IN, .d_ff = FF, .kernel = {TAPS, 1}, .padding = padding, .flags = FFN_CONV_SCALE_BY_TAPS,
                                .activation = FFN_ACTIVATION_RELU, .up_bias = true, .down_bias = true, .batch = 1, .length = LENGTH, .seed = 8};
        conv_test_t test;
        conv_test_describe(&test, &is);
        double hidden[LENGTH][FF], y;
        const float *published = test.plain[FFN_ROLE_UP_WEIGHT];
        const int64_t left = padding == FFN_CONV_LEFT ? TAPS - 1 : (TAPS - 1) / 2;
        for (int64_t t = 0; t < LENGTH; t++)
            for (int64_t r = 0; r < FF; r++) {
                double sum = (double)test.plain[FFN_ROLE_UP_BIAS][r];
                for (int64_t j = 0; j < TAPS; j++) {
                    const int64_t s = j ? t - left + j : t;
                    for (int64_t i = 0; s >= 0 && s < LENGTH && i < IN; i++) sum += (double)published[(r * IN + i) * TAPS + j] * (double)test.x[s * IN + i];
                }
                hidden[t][r] = fmax(sum / sqrt((double)TAPS), 0);
            }
        for (int64_t row = 0; row < FF * IN; row++) {
            float *kernel = test.stored[FFN_ROLE_UP_WEIGHT] + row * TAPS;
            kernel[left] += kernel[0];
            kernel[0] = 0;
        }
        conv_test_create(&test);
        conv_test_forward(&test, NULL);
        for (int64_t t = 0; t < LENGTH; t++)
            for (int64_t r = 0; r < IN; r++) {
                y = (double)test.plain[FFN_ROLE_DOWN_BIAS][r];
                for (int64_t i = 0; i < FF; i++) y += (double)test.plain[FFN_ROLE_DOWN_WEIGHT][r * FF + i] * hidden[t][i];
                assert_near((double)test.y[t * IN + r], y, 1e-5);
            }
        conv_test_free(&test);
    }
}

static int set_up(void **state)
{
    (void)state;
    blas_threads_set(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_runs_as_the_formula_says_with_both_engines),
        cmocka_unit_test(runs_of_many_blocks_are_as_the_formula_says),
        cmocka_unit_test(kernels_of_one_give_the_bits_of_the_position_wise_layer),
        cmocka_unit_test(no_number_of_threads_changes_a_bit),
        cmocka_unit_test(a_sequence_does_not_see_the_others),
        cmocka_unit_test(little_scratch_memory_gives_the_same_numbers),
        cmocka_unit_test(after_reserve_nothing_grows),
        cmocka_unit_test(info_tells_the_transformers_parameters),
        cmocka_unit_test(tensors_come_back_as_they_were),
        cmocka_unit_test(tensor2tensors_first_tap_can_be_moved),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
