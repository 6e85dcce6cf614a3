/* SPDX-License-Identifier: MIT
 *
 * The same weights in any layout give the same layer, bit for bit, whatever becomes of the caller's memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

enum { TOKENS = 11 };

static const int64_t shapes[][3] = {{24, 40, 24}, {7, 9, 5}, {1, 1, 1}, {1, 33, 6}, {65, 1, 3}, {64, 256, 64}};

static layer_case_t case_of(const int64_t *shape, bool gated, layout_t layout, layout_t down)
{
    layer_case_t is = {.activation = FFN_ACTIVATION_GELU, .gated = gated, .biases = BIAS_ALL, .d_model = shape[0], .d_ff = shape[1],
                       .d_out = shape[2], .layout = layout, .down_layout = down, .seed = 31};
    is.norm[FFN_NORM_IN] = (norm_case_t){FFN_NORM_LAYER, true, true, 0, 0};
    is.norm[FFN_NORM_MID] = (norm_case_t){FFN_NORM_RMS, true, true, 0, 0};
    return is;
}

/* Runs the case's layer on the data; expected is the plain layout's output, or NULL to make it. */
static float *output_of(const layer_case_t *is, bool check_oracle)
{
    test_layer_t test;
    test_layer_make(&test, is);
    layer_data_t data = layer_data_make(&test, TOKENS, 12);
    layer_data_run(&test, NULL, &data);
    if (check_oracle) assert_as_oracle(&test, &data, data.y);
    float *y = data.y;
    data.y = NULL;
    layer_data_free(&data);
    test_layer_free(&test);
    return y;
}

static void every_layout_gives_the_bits_of_contiguous_matrices(void **state)
{
    (void)state;
    for (int64_t s = 0; s < COUNT_OF(shapes); s++)
        for (int gated = 0; gated < 2; gated++) {
            layer_case_t plain = case_of(shapes[s], gated, LAYOUT_OUT_IN, LAYOUT_OUT_IN);
            float *expected = output_of(&plain, true);
            for (int layout = 0; layout < LAYOUTS; layout++)
                for (int down = 0; down < LAYOUTS; down++) {
                    if (test_quick() && (layout + down) % 4) continue;
                    layer_case_t is = case_of(shapes[s], gated, (layout_t)layout, (layout_t)down);
                    float *got = output_of(&is, false);
                    char what[80];
                    snprintf(what, sizeof what, "layout %s, down %s", layout_name(is.layout), layout_name(is.down_layout));
                    assert_same_bits(expected, got, TOKENS * shapes[s][2], what);
                    free(got);
                }
            free(expected);
        }
}

/* The views of a plain layer, given in the order of their roles backwards. */
static void order_of_tensors_does_not_matter(void **state)
{
    (void)state;
    layer_case_t is = case_of(shapes[0], true, LAYOUT_OUT_IN, LAYOUT_OUT_IN);
    float *expected = output_of(&is, true);
    test_layer_t test;
    test_layer_describe(&test, &is);
    uint64_t n = test.options.tensor_count;
    for (uint64_t i = 0; i < n / 2; i++) {
        ffn_tensor_t first = test.tensors[i];
        test.tensors[i] = test.tensors[n - 1 - i];
        test.tensors[n - 1 - i] = first;
    }
    test_layer_create(&test);
    layer_data_t data = layer_data_make(&test, TOKENS, 12);
    layer_data_run(&test, NULL, &data);
    assert_same_output(&test, TOKENS, expected, data.y, "tensors in another order");
    layer_data_free(&data);
    test_layer_free(&test);
    free(expected);
}

/* Strides of 0 in both dimensions would mean contiguous; elsewhere they repeat a row, a column or a number. */
static void stride_of_zero_repeats_what_it_stands_for(void **state)
{
    (void)state;
    layer_case_t is = case_of(shapes[0], false, LAYOUT_OUT_IN, LAYOUT_OUT_IN);
    for (int kind = 0; kind < 2; kind++) {
        test_layer_t repeated, full;
        test_layer_describe(&full, &is);
        float *up = test_layer_view(&full, FFN_ROLE_UP_WEIGHT)->data;
        int64_t rows = is.d_ff, columns = is.d_model;
        for (int64_t j = 0; j < rows; j++)
            for (int64_t i = 0; i < columns; i++) up[j * columns + i] = up[kind ? j * columns : i];
        memcpy(full.plain[FFN_ROLE_UP_WEIGHT], up, (size_t)(rows * columns) * sizeof *up);
        test_layer_create(&full);

        test_layer_describe(&repeated, &is);
        ffn_tensor_t *view = test_layer_view(&repeated, FFN_ROLE_UP_WEIGHT);
        view->stride[kind] = 0;
        test_layer_create(&repeated);

        layer_data_t expected = layer_data_make(&full, TOKENS, 12), got = layer_data_make(&full, TOKENS, 12);
        layer_data_run(&full, NULL, &expected);
        layer_data_run(&repeated, NULL, &got);
        assert_as_oracle(&full, &expected, expected.y);
        assert_same_output(&full, TOKENS, expected.y, got.y, kind ? "columns repeated" : "rows repeated");
        layer_data_free(&expected);
        layer_data_free(&got);
        test_layer_free(&full);
        test_layer_free(&repeated);
    }
}

/* {4} of ndim 1 with a row stride that is ignored, and the all-zero strides that stand for contiguous ones. */
static void strides_that_mean_nothing_are_ignored(void **state)
{
    (void)state;
    static const int64_t thin[][3] = {{1, 6, 4}, {6, 1, 4}, {5, 6, 1}};
    for (int64_t s = 0; s < COUNT_OF(thin); s++) {
        layer_case_t is = case_of(thin[s], false, LAYOUT_OUT_IN, LAYOUT_OUT_IN);
        float *expected = output_of(&is, true);
        for (int kind = 0; kind < 2; kind++) {
            test_layer_t test;
            test_layer_describe(&test, &is);
            for (uint64_t i = 0; i < test.options.tensor_count; i++) {
                ffn_tensor_t *view = &test.tensors[i];
                if (kind) view->stride[0] = view->stride[1] = 0;
                for (uint32_t k = 0; !kind && k < view->ndim; k++)
                    if (view->shape[k] == 1) view->stride[k] = k ? -4096 : 1 << 20;
            }
            test_layer_create(&test);
            layer_data_t data = layer_data_make(&test, TOKENS, 12);
            layer_data_run(&test, NULL, &data);
            assert_same_output(&test, TOKENS, expected, data.y, kind ? "strides all 0" : "stride of a dimension of 1");
            layer_data_free(&data);
            test_layer_free(&test);
        }
        free(expected);
    }
}

static void caller_may_overwrite_and_free_all_after_create(void **state)
{
    (void)state;
    layer_case_t is = case_of(shapes[0], true, LAYOUT_INTERLEAVED, LAYOUT_IN_OUT);
    float *expected = output_of(&is, true);
    test_layer_t test;
    test_layer_make(&test, &is);
    for (int role = 0; role < ROLES; role++) {
        if (test.stored[role]) memset(test.stored[role], 0x55, (size_t)test.stored_floats[role] * sizeof(float));
        free(test.stored[role]);
        test.stored[role] = NULL;
    }
    memset(test.tensors, 0x55, sizeof test.tensors);
    memset(&test.options, 0x55, sizeof test.options);
    layer_data_t data = layer_data_make(&test, TOKENS, 12);
    layer_data_run(&test, NULL, &data);
    assert_same_output(&test, TOKENS, expected, data.y, "after the caller's memory is gone");
    layer_data_free(&data);
    test_layer_free(&test);
    free(expected);
}

static void sizes_may_be_given_or_left_to_the_tensors(void **state)
{
    (void)state;
    layer_case_t is = case_of(shapes[1], true, LAYOUT_OUT_IN, LAYOUT_OUT_IN);
    float *expected = output_of(&is, true);
    for (int given = 0; given < 8; given++) {
        test_layer_t test;
        test_layer_describe(&test, &is);
        if (given & 1) test.options.d_model = is.d_model;
        if (given & 2) test.options.d_ff = is.d_ff;
        if (given & 4) test.options.d_out = is.d_out;
        test_layer_create(&test);
        layer_data_t data = layer_data_make(&test, TOKENS, 12);
        layer_data_run(&test, NULL, &data);
        assert_same_output(&test, TOKENS, expected, data.y, "sizes given");
        layer_data_free(&data);
        test_layer_free(&test);
    }
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_gives_the_bits_of_contiguous_matrices),
        cmocka_unit_test(order_of_tensors_does_not_matter),
        cmocka_unit_test(stride_of_zero_repeats_what_it_stands_for),
        cmocka_unit_test(strides_that_mean_nothing_are_ignored),
        cmocka_unit_test(caller_may_overwrite_and_free_all_after_create),
        cmocka_unit_test(sizes_may_be_given_or_left_to_the_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
