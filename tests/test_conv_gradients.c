/* SPDX-License-Identifier: MIT
 *
 * Gradients of every tensor of a convolutional layer against the oracle's backward, and that against central differences of the oracle's forward: both
 * forms in both places, even kernels and odd ones, longer than the sequence too, both paddings, masks, scales, layouts, activations, dropout at every
 * site; on small odd shapes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/conv_case.h"
#include "support/layer_check.h"
#include "support/random.h"

static conv_case_t case_of(uint64_t number)
{
    static const int64_t shapes[][3] = {{3, 5, 4}, {5, 3, 2}, {2, 7, 3}, {4, 6, 4}};
    const int64_t *shape = shapes[number % (uint64_t)COUNT_OF(shapes)];
    return (conv_case_t){.d_model = shape[0], .d_ff = shape[1], .d_out = shape[2], .kernel = {3, 1}, .activation = FFN_ACTIVATION_SILU, .up_bias = true,
                         .down_bias = true, .batch = 2, .length = 4, .flags = FFN_CONV_TRAINABLE, .seed = number,
                         .tape_flags = number & 1 ? FFN_TAPE_RECOMPUTE : 0};
}

/* Under valgrind one case in 31. */
static void check(const conv_case_t *is)
{
    conv_test_t test;
    if (is->seed % 31 && test_quick()) return;
    conv_test_make(&test, is);
    conv_test_step(&test, NULL);
    assert_conv_oracle_as_differences(&test);
    assert_conv_trained_as_oracle(&test);
    conv_test_free(&test);
}

static void every_form_has_its_derivatives_at_every_kernel_size(void **state)
{
    (void)state;
    static const int64_t kernels[] = {1, 2, 3, 7};
    uint64_t number = 0;
    for (int64_t first = 0; first < COUNT_OF(kernels); first++)
        for (int64_t second = 0; second < COUNT_OF(kernels); second++)
            for (int forms = 0; forms < 4; forms++)
                for (uint32_t padding = FFN_CONV_SAME; padding <= FFN_CONV_LEFT; padding++) {
                    conv_case_t is = case_of(number++);
                    is.kernel[0] = kernels[first], is.kernel[1] = kernels[second];
                    is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
                    is.padding = padding;
                    is.flags |= number % 3 ? 0 : FFN_CONV_SCALE_BY_TAPS;
                    is.up_bias = number % 5 != 0, is.down_bias = number % 7 != 0;
                    check(&is);
                }
}

static void masks_have_their_derivatives(void **state)
{
    (void)state;
    uint64_t number = 1000;
    for (int64_t first = 1; first <= 3; first += 2)
        for (int64_t second = 1; second <= 3; second += 2)
            for (int forms = 0; forms < 4; forms++)
                for (uint32_t kind = FFN_CONV_MASK_TAPS; kind <= FFN_CONV_MASK_ALL; kind++)
                    for (uint32_t padding = FFN_CONV_SAME; padding <= FFN_CONV_LEFT; padding++) {
                        conv_case_t is = case_of(number++);
                        is.kernel[0] = first, is.kernel[1] = second;
                        is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
                        is.masked = true, is.mask_kind = kind, is.padding = padding;
                        is.length = 6, is.row_gap = (int64_t)(number % 3), is.sequence_gap = (int64_t)(number % 2) * 5;
                        check(&is);
                    }
}

static void every_activation_has_its_derivative(void **state)
{
    (void)state;
    uint64_t number = 2000;
    for (uint32_t activation = FFN_ACTIVATION_IDENTITY; activation <= FFN_ACTIVATION_XIELU; activation++)
        for (int variant = 0; variant < 4; variant++) {
            conv_case_t is = case_of(number++);
            is.activation = activation;
            is.kernel[1] = 3;
            is.separable[0] = variant & 1, is.separable[1] = variant >> 1;
            is.flags |= variant == 3 ? FFN_CONV_SCALE_BY_TAPS : 0;
            check(&is);
        }
}

static void every_dropout_site_has_its_derivative(void **state)
{
    (void)state;
    uint64_t number = 3000;
    for (uint32_t sites = 1; sites < 32; sites++)
        for (int variant = 0; variant < 4; variant++) {
            conv_case_t is = case_of(number++);
            is.kernel[1] = 1 + 2 * (variant & 1);
            is.separable[0] = is.separable[1] = variant >> 1;
            is.batch = 3, is.length = 3;
            is.masked = number % 3 == 0, is.mask_kind = number % 2;
            is.flags |= number % 5 ? 0 : FFN_CONV_SCALE_BY_TAPS;
            is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = number * 0x9e3779b97f4a7c15u, .step = number, .layer = 3,
                                         .first_row = variant * INT64_C(3000000000), .first_sequence = 11};
            for (int site = 0; site < 5; site++)
                if (sites >> site & 1) is.dropout.p[site] = site == FFN_DROPOUT_PATH ? 0.4f : 0.25f;
            is.dropout.broadcast = variant == 3 ? 0xf & (uint32_t)number : 0;
            check(&is);
        }
}

/* Everything at once: layouts of the tensors, gaps, sizes that meet. */
static void random_layers_have_their_derivatives(void **state)
{
    (void)state;
    rng_t rng = rng_make(test_seed() + 7);
    for (uint64_t number = 4000; number < 4300; number++) {
        conv_case_t is = case_of(number);
        is.d_model = 1 + rng_below(&rng, 6), is.d_ff = 1 + rng_below(&rng, 9), is.d_out = 1 + rng_below(&rng, 6);
        is.activation = 1 + (uint32_t)rng_below(&rng, FFN_ACTIVATION_XIELU);
        for (int part = 0; part < 2; part++) is.kernel[part] = 1 + rng_below(&rng, 6), is.separable[part] = rng_below(&rng, 2);
        is.padding = (uint32_t)rng_below(&rng, 2), is.mask_kind = (uint32_t)rng_below(&rng, 2), is.masked = rng_below(&rng, 2);
        is.flags |= rng_below(&rng, 2) ? FFN_CONV_SCALE_BY_TAPS : 0;
        is.up_bias = rng_below(&rng, 2), is.down_bias = rng_below(&rng, 2);
        is.layout = (conv_layout_t)rng_below(&rng, CONV_LAYOUTS);
        is.batch = 1 + rng_below(&rng, 3), is.length = 1 + rng_below(&rng, 5);
        is.row_gap = rng_below(&rng, 3), is.sequence_gap = rng_below(&rng, 4);
        check(&is);
    }
}

/* Padding may hold anything: where the mask leaves it out, neither y nor a gradient sees it. The oracle gets numbers in its place. */
static void padding_may_hold_nan(void **state)
{
    (void)state;
    uint64_t number = 5000;
    for (int64_t first = 1; first <= 3; first += 2)
        for (int64_t second = 1; second <= 3; second += 2)
            for (int forms = 0; forms < 4; forms++)
                for (uint32_t kind = FFN_CONV_MASK_TAPS; kind <= FFN_CONV_MASK_ALL; kind++)
                    for (uint32_t tape = 0; tape < 2; tape++) {
                        conv_case_t is = case_of(number++);
                        conv_test_t test;
                        is.kernel[0] = first, is.kernel[1] = second, is.tape_flags = tape;
                        is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
                        is.masked = true, is.mask_kind = kind;
                        if (first == 1 && second == 1 && kind == FFN_CONV_MASK_TAPS) continue; /* the mask does nothing there */
                        conv_test_make(&test, &is);
                        float *saved = test_alloc((size_t)test.x_floats * sizeof *saved);
                        memcpy(saved, test.x, (size_t)test.x_floats * sizeof *saved);
                        for (int64_t p = 0; p < is.batch * is.length; p++)
                            for (int64_t i = 0; i < is.d_model && !test.oracle_mask[p]; i++) test.x[p * is.d_model + i] = NAN;
                        conv_test_step(&test, NULL);
                        memcpy(test.x, saved, (size_t)test.x_floats * sizeof *saved);
                        assert_conv_trained_as_oracle(&test);
                        free(saved);
                        conv_test_free(&test);
                    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_its_derivatives_at_every_kernel_size),
        cmocka_unit_test(masks_have_their_derivatives),
        cmocka_unit_test(every_activation_has_its_derivative),
        cmocka_unit_test(every_dropout_site_has_its_derivative),
        cmocka_unit_test(random_layers_have_their_derivatives),
        cmocka_unit_test(padding_may_hold_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
