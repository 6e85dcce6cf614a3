/* SPDX-License-Identifier: MIT
 *
 * What a layer tells about itself: ffn_layer_read gives back the bits it was given, ffn_layer_info counts them, ffn_gated_d_ff.
 */
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/guard.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

/* Every role present. */
static layer_case_t whole_case(bool gated, layout_t layout)
{
    layer_case_t is = {.activation = FFN_ACTIVATION_XIELU, .gated = gated, .biases = BIAS_ALL, .d_model = 13, .d_ff = 22, .d_out = 13,
                       .residual = FFN_RESIDUAL_INPUT, .branch_scale = SCALE_VECTOR, .residual_scale = SCALE_ONE, .layout = layout,
                       .down_layout = layout, .seed = 91};
    for (int slot = 0; slot < 4; slot++) is.norm[slot] = (norm_case_t){FFN_NORM_LAYER, true, true, 0, 1};
    return is;
}

/* Roles whose numbers are looked at when a layer is made, and so must be finite numbers of their kind. */
static bool any_bits_allowed(uint32_t role)
{
    return role != FFN_ROLE_XIELU_ALPHA_P && role != FFN_ROLE_XIELU_ALPHA_N;
}

/* Describes the layer with any bits at all for weights: NaNs with payloads, denormals, -0. */
static void describe_with_any_bits(test_layer_t *test, const layer_case_t *is)
{
    test_layer_describe(test, is);
    rng_t rng = rng_make(7 + test_seed());
    for (uint64_t i = 0; i < test->options.tensor_count; i++) {
        ffn_tensor_t *view = &test->tensors[i];
        int64_t rows = view->shape[0], columns = view->ndim == 2 ? view->shape[1] : 1;
        if (!any_bits_allowed(view->role)) continue;
        for (int64_t k = 0; k < rows * columns; k++) test->plain[view->role][k] = rng_any_bits(&rng);
        place_t place = {0, view->stride[0] / 4, view->stride[1] / 4};
        layout_store(&place, rows, columns, test->plain[view->role], view->data);
    }
}

/* Reads every role through views of the same case in another layout, and compares with the plain numbers. */
static void check_read(const test_layer_t *test, layout_t layout)
{
    layer_case_t is = whole_case(test->is.gated, layout);
    test_layer_t into;
    test_layer_describe(&into, &is);
    for (int role = 0; role < ROLES; role++)
        if (into.stored[role]) memset(into.stored[role], 0xee, (size_t)into.stored_floats[role] * sizeof(float));
    assert_ok(ffn_layer_read(test->layer, into.tensors, into.options.tensor_count));
    for (uint64_t i = 0; i < into.options.tensor_count; i++) {
        ffn_tensor_t *view = &into.tensors[i];
        int64_t rows = view->shape[0], columns = view->ndim == 2 ? view->shape[1] : 1;
        place_t place = {0, view->stride[0] / 4, view->stride[1] / 4};
        layout_load(&place, rows, columns, view->data, into.plain[view->role]);
        int64_t k = first_different_bits(test->plain[view->role], into.plain[view->role], rows * columns);
        if (k >= 0)
            fail_msg("role %u, layout %s read as %s: [%lld] was %a, is %a", view->role, layout_name(test->is.layout), layout_name(layout),
                     (long long)k, (double)test->plain[view->role][k], (double)into.plain[view->role][k]);
    }
    test_layer_free(&into);
}

static void every_role_comes_back_bit_by_bit_in_every_layout(void **state)
{
    (void)state;
    for (int gated = 0; gated < 2; gated++)
        for (int given = 0; given < LAYOUTS; given++) {
            layer_case_t is = whole_case(gated, (layout_t)given);
            test_layer_t test;
            describe_with_any_bits(&test, &is);
            test_layer_create(&test);
            for (int read = 0; read < LAYOUTS; read++) check_read(&test, (layout_t)read);
            test_layer_free(&test);
        }
}

static void the_gaps_of_a_strided_view_are_left_alone(void **state)
{
    (void)state;
    layer_case_t is = whole_case(true, LAYOUT_OUT_IN);
    test_layer_t test;
    test_layer_make(&test, &is);
    place_t gate, up;
    int64_t floats = layout_pair(LAYOUT_PADDED, is.d_ff, is.d_model, &gate, &up);
    guard_buffer_t memory = guard_alloc((size_t)floats * sizeof(float), GUARD_AFTER);
    ffn_tensor_t view = {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = (float *)memory.data + up.base, .shape = {is.d_ff, is.d_model},
                         .stride = {up.row * 4, 4}};
    assert_ok(ffn_layer_read(test.layer, &view, 1));
    int64_t written = 0;
    for (int64_t i = 0; i < floats; i++) {
        static const unsigned char untouched[4] = {0xff, 0xff, 0xff, 0xff};
        bool inside = i >= up.base && (i - up.base) % up.row < is.d_model;
        if (memcmp((float *)memory.data + i, untouched, 4) != 0) {
            assert_true(inside);
            written++;
        }
    }
    assert_int_equal(written, is.d_ff * is.d_model);
    guard_free(&memory);
    test_layer_free(&test);
}

static void reading_nothing_is_fine(void **state)
{
    (void)state;
    layer_case_t is = whole_case(false, LAYOUT_OUT_IN);
    test_layer_t test;
    test_layer_make(&test, &is);
    assert_ok(ffn_layer_read(test.layer, test.tensors, 0));
    test_layer_free(&test);
}

/* A layer made of what was read is the same layer. */
static void a_layer_made_of_what_was_read_gives_the_same_bits(void **state)
{
    (void)state;
    layer_case_t is = whole_case(true, LAYOUT_UP_GATE);
    test_layer_t test;
    test_layer_make(&test, &is);
    layer_data_t first = layer_data_make(&test, 9, 1), second = layer_data_make(&test, 9, 1);
    layer_data_run(&test, NULL, &first);
    for (int role = 0; role < ROLES; role++)
        if (test.stored[role]) memset(test.stored[role], 0, (size_t)test.stored_floats[role] * sizeof(float));
    assert_ok(ffn_layer_read(test.layer, test.tensors, test.options.tensor_count));
    ffn_layer_free(test.layer);
    test_layer_create(&test);
    layer_data_run(&test, NULL, &second);
    assert_same_output(&test, 9, first.y, second.y, "a layer of what was read");
    layer_data_free(&first);
    layer_data_free(&second);
    test_layer_free(&test);
}

/* ---------------------------------------------------------------- ffn_layer_info */

static ffn_layer_info_t info_of(const ffn_layer_t *layer)
{
    ffn_layer_info_t info;
    memset(&info, 0xee, sizeof info);
    info.struct_size = sizeof info;
    assert_ok(ffn_layer_info(layer, &info));
    return info;
}

static void parameters_of_512_2048_with_biases_are_2099712(void **state)
{
    (void)state;
    layer_case_t is = {.activation = FFN_ACTIVATION_RELU, .biases = BIAS_ALL, .d_model = 512, .d_ff = 2048, .d_out = 512};
    int64_t sum = 0;
    for (int layer = 0; layer < 6; layer++) {
        is.seed = (uint64_t)layer;
        test_layer_t test;
        test_layer_make(&test, &is);
        ffn_layer_info_t info = info_of(test.layer);
        assert_int_equal(info.parameters_of[FFN_ROLE_UP_WEIGHT] + info.parameters_of[FFN_ROLE_UP_BIAS], 1050624);
        assert_int_equal(info.parameters_of[FFN_ROLE_DOWN_WEIGHT] + info.parameters_of[FFN_ROLE_DOWN_BIAS], 1049088);
        assert_int_equal(info.parameters, 2099712);
        assert_true(info.bytes >= 2099712 * sizeof(float));
        assert_true(info.bytes < 2099712 * sizeof(float) * 5 / 4);
        sum += info.parameters;
        test_layer_free(&test);
        if (test_quick()) return;
    }
    assert_int_equal(sum, 12598272);
}

static void parameters_are_counted_role_by_role(void **state)
{
    (void)state;
    for (int gated = 0; gated < 2; gated++) {
        layer_case_t is = whole_case(gated, LAYOUT_OUT_IN);
        is.d_out = 13;
        test_layer_t test;
        test_layer_make(&test, &is);
        ffn_layer_info_t info = info_of(test.layer);
        int64_t total = 0;
        for (int role = 0; role < ROLES; role++) {
            int64_t expected = !test.plain[role] ? 0 : test.shape[role][0] * (test.shape[role][1] ? test.shape[role][1] : 1);
            assert_int_equal(info.parameters_of[role], expected);
            total += expected;
        }
        assert_int_equal(info.parameters, total);
        test_layer_free(&test);
    }
}

static void fields_are_as_given_and_as_resolved(void **state)
{
    (void)state;
    layer_case_t is = whole_case(true, LAYOUT_OUT_IN);
    is.branch_scale = SCALE_ONE_TANH;
    is.norm[FFN_NORM_MID] = (norm_case_t){FFN_NORM_RMS, true, false, 0, 0};
    is.norm[FFN_NORM_OUT] = (norm_case_t){FFN_NORM_NONE, false, false, 0, 0};
    test_layer_t test;
    test_layer_make(&test, &is);
    ffn_layer_info_t info = info_of(test.layer);
    assert_int_equal(info.struct_size, sizeof info);
    assert_int_equal(info.flags, FFN_LAYER_TANH_BRANCH_SCALE);
    assert_int_equal(info.d_model, 13);
    assert_int_equal(info.d_ff, 22);
    assert_int_equal(info.d_out, 13);
    assert_int_equal(info.gated, 1);
    assert_int_equal(info.activation, FFN_ACTIVATION_XIELU);
    assert_int_equal(info.residual, FFN_RESIDUAL_INPUT);
    assert_int_equal(info.norm[FFN_NORM_IN], FFN_NORM_LAYER);
    assert_int_equal(info.norm[FFN_NORM_MID], FFN_NORM_RMS);
    assert_int_equal(info.norm[FFN_NORM_OUT], FFN_NORM_NONE);
    uint32_t automatic = info.isa == FFN_ISA_SCALAR ? FFN_ENGINE_BLAS : FFN_ENGINE_NATIVE;
    assert_int_equal(info.engine, test_engine() ? test_engine() : automatic);
    assert_true(info.isa >= FFN_ISA_SCALAR && info.isa <= FFN_ISA_AVX512);
    assert_int_equal(info.reserved, 0);
    test_layer_free(&test);
}

/* The activation in the info is the name that was given, whatever kernel it resolves to. */
static void activations_are_told_by_the_name_they_were_given_by(void **state)
{
    (void)state;
    for (uint32_t activation = FFN_ACTIVATION_IDENTITY; activation <= FFN_ACTIVATION_XIELU; activation++) {
        layer_case_t is = {.activation = activation, .d_model = 3, .d_ff = 4, .d_out = 3};
        test_layer_t test;
        test_layer_make(&test, &is);
        ffn_layer_info_t info = info_of(test.layer);
        assert_int_equal(info.activation, activation);
        assert_int_equal(info.gated, 0);
        uint32_t by_name = 0;
        assert_ok(ffn_activation_from_name(ffn_activation_name(activation), &by_name));
        assert_int_equal(by_name, activation);
        test_layer_free(&test);
    }
}

/* Both the option and the environment only ever lower the level. */
static void isa_levels_are_never_above_the_cap(void **state)
{
    (void)state;
    static const char *const names[] = {"", "scalar", "avx2", "avx512"};
    uint32_t environment = FFN_ISA_AVX512, last = 0;
    for (uint32_t isa = 1; isa <= FFN_ISA_AVX512; isa++)
        if (strcmp(test_isa_cap(), names[isa]) == 0) environment = isa;
    layer_case_t is = {.activation = FFN_ACTIVATION_RELU, .d_model = 3, .d_ff = 4, .d_out = 3};
    test_layer_t test;
    test_layer_describe(&test, &is);
    for (uint32_t cap = FFN_ISA_SCALAR; cap <= FFN_ISA_AVX512; cap++) {
        test.options.max_isa = cap;
        test_layer_create(&test);
        ffn_layer_info_t info = info_of(test.layer);
        assert_true(info.isa >= FFN_ISA_SCALAR && info.isa <= cap && info.isa <= environment);
        assert_true(info.isa >= last);
        last = info.isa;
        ffn_layer_free(test.layer);
    }
    test.options.max_isa = FFN_ISA_AUTO;
    test_layer_create(&test);
    assert_int_equal(info_of(test.layer).isa, last);
    test_layer_free(&test);
}

/* ---------------------------------------------------------------- ffn_gated_d_ff */

static void gated_widths_are_two_thirds_rounded_up(void **state)
{
    (void)state;
    static const struct {
        int64_t d_ff, multiple, expected;
    } rows[] = {
        {3072, 1, 2048},    {16384, 256, 11008}, {2048, 1, 1366}, {2048, 8, 1368},
        {1, 1, 1},          {2, 1, 2},           {3, 1, 2},       {1, 64, 64},
        {4096, 128, 2816},  {96, 64, 64},        {97, 64, 128},   {1 << 29, 1, 357913942},
        {1 << 29, 1 << 29, 1 << 29}, {1, 1 << 29, 1 << 29},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t got = -1;
        assert_ok(ffn_gated_d_ff(rows[i].d_ff, rows[i].multiple, &got));
        assert_int_equal(got, rows[i].expected);
    }
    for (int64_t d_ff = 1; d_ff < 3000; d_ff += 7)
        for (int64_t multiple = 1; multiple < 300; multiple += 13) {
            int64_t got = -1;
            assert_ok(ffn_gated_d_ff(d_ff, multiple, &got));
            assert_true(got % multiple == 0 && 3 * got >= 2 * d_ff && 3 * (got - multiple) < 2 * d_ff);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_role_comes_back_bit_by_bit_in_every_layout),
        cmocka_unit_test(the_gaps_of_a_strided_view_are_left_alone),
        cmocka_unit_test(reading_nothing_is_fine),
        cmocka_unit_test(a_layer_made_of_what_was_read_gives_the_same_bits),
        cmocka_unit_test(parameters_of_512_2048_with_biases_are_2099712),
        cmocka_unit_test(parameters_are_counted_role_by_role),
        cmocka_unit_test(fields_are_as_given_and_as_resolved),
        cmocka_unit_test(activations_are_told_by_the_name_they_were_given_by),
        cmocka_unit_test(isa_levels_are_never_above_the_cap),
        cmocka_unit_test(gated_widths_are_two_thirds_rounded_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
