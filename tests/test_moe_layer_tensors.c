/* SPDX-License-Identifier: MIT
 *
 * A mixture's tensors: in every layout, one by one and as stacks, given and read back; its rows; what ffn_layer_info tells.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/hostile.h"
#include "support/moe_case.h"
#include "support/random.h"
#include "support/strided.h"
#include "support/test.h"

static const moe_case_t mixtures[] = {
    {.name = "shared and scaled", .d_model = 33, .d_ff = 20, .d_shared = 30, .shared_scale = true, .gated = true, .biases = BIAS_ALL, .seed = 1,
     .norm = {{.kind = FFN_NORM_RMS}, {FFN_NORM_RMS, .weight = true}}, .activation = FFN_ACTIVATION_SILU, .form = MOE_STACKS,
     .moe = {.experts = 5, .top_k = 3}},
    {.name = "weight on input", .d_model = 20, .d_ff = 17, .gated = true, .activation = FFN_ACTIVATION_GELU, .residual = FFN_RESIDUAL_INPUT, .seed = 2,
     .form = MOE_PARTS, .layout = LAYOUT_INTERLEAVED, .expert_scale = true, .selection_bias = true,
     .moe = {.flags = FFN_MOE_WEIGHT_ON_INPUT, .experts = 7, .top_k = 1}},
    {.name = "latent", .d_model = 30, .d_ff = 18, .d_latent = 12, .latent_biases = true, .combine_bias = true, .router_bias = true, .seed = 3,
     .activation = FFN_ACTIVATION_RELU2, .form = MOE_BACKWARDS, .moe = {.experts = 6, .identity_experts = 2, .top_k = 4}},
};

static bool is_native(const test_moe_t *test)
{
    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(test->layer, &info));
    return info.engine == FFN_ENGINE_NATIVE;
}

static void every_way_to_give_tensors_is_the_same_layer(void **state)
{
    (void)state;
    static const layout_t layouts[] = {LAYOUT_OUT_IN, LAYOUT_IN_OUT, LAYOUT_GATE_UP, LAYOUT_UP_GATE, LAYOUT_INTERLEAVED, LAYOUT_IN_GATE_UP,
                                       LAYOUT_IN_INTERLEAVED, LAYOUT_REVERSED};
    float *expected = NULL;
    for (int form = 0; form < MOE_FORMS; form++)
        for (int64_t i = 0; i < COUNT_OF(layouts); i++) {
            moe_case_t is = {.name = layout_name(layouts[i]), .d_model = 12, .d_ff = 10, .gated = true, .biases = BIAS_ALL, .seed = 95,
                             .activation = FFN_ACTIVATION_SILU, .form = (moe_form_t)form, .layout = layouts[i],
                             .down_layout = i % 2 ? LAYOUT_IN_OUT : LAYOUT_OUT_IN, .moe = {.experts = 3, .top_k = 2}};
            test_moe_t test;
            test_moe_describe(&test, &is);
            if (i == 1) test.is.moe.experts = 0; /* counted in the tensors */
            test_moe_create(&test);
            moe_data_t data = moe_data_make(&test, 11, 14);
            assert_ok(moe_data_run(&test, NULL, &data, false));
            if (!expected) {
                expected = test_alloc(11 * 12 * sizeof *expected);
                memcpy(expected, data.y, 11 * 12 * sizeof *expected);
            }
            assert_same_bits(expected, data.y, 11 * 12, is.name);
            moe_data_free(&data);
            test_moe_free(&test);
        }
    free(expected);
}

/* Sequences with gaps against inaccessible pages, y in place of x, and read back. */
static void rows_may_have_strides_and_y_may_be_x(void **state)
{
    (void)state;
    enum { BATCH = 2, LENGTH = 7, TOKENS = BATCH * LENGTH };
    for (int64_t i = 0; i < COUNT_OF(mixtures); i++)
        for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++) {
            const moe_case_t is = mixtures[i];
            test_moe_t test;
            test_moe_make(&test, &is);
            moe_data_t data = moe_data_make(&test, TOKENS, 15);
            assert_ok(moe_data_run(&test, NULL, &data, false));
            strided_t x = strided_make(BATCH, LENGTH, is.d_model, (gaps_t){3, 5}, (guard_side_t)side);
            float *y = test_alloc((size_t)(TOKENS * is.d_model) * sizeof *y);
            strided_store(&x, data.x);
            ffn_run_t run = {.struct_size = sizeof run, .batch = BATCH, .length = LENGTH, .x = x.memory.data, .y = x.memory.data};
            memcpy(run.x_stride, x.stride, sizeof run.x_stride);
            memcpy(run.y_stride, x.stride, sizeof run.y_stride);
            assert_ok(ffn_layer_run(test.layer, NULL, &run));
            strided_load(&x, y);
            assert_gaps_untouched(&x, is.name);
            if (is_native(&test)) assert_same_bits(data.y, y, TOKENS * is.d_model, is.name);
            for (int64_t k = 0; k < TOKENS * is.d_model; k++) assert_near((double)y[k], (double)data.y[k], 1e-4 * largest_magnitude(data.y, TOKENS * is.d_model));
            free(y);
            strided_free(&x);
            moe_data_free(&data);
            test_moe_free(&test);
        }
}

static void tensors_are_read_back(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(mixtures); i++) {
        const moe_case_t is = mixtures[i];
        test_moe_t test;
        test_moe_make(&test, &is);
        for (uint32_t role = 1; role < ROLES; role++) {
            if (!test.plain[role]) continue;
            const int64_t size = test.shape[role][0] * (test.shape[role][1] ? test.shape[role][1] : 1);
            const bool of_experts = role <= FFN_ROLE_DOWN_BIAS || role == FFN_ROLE_NORM_MID_WEIGHT;
            const int64_t experts = of_experts ? test.experts : 1;
            float *all = test_alloc((size_t)(size * experts) * sizeof *all);
            ffn_tensor_t tensor = {.role = role, .ndim = test.shape[role][1] ? 2 : 1, .data = all, .shape = {test.shape[role][0], test.shape[role][1]}};
            if (of_experts) tensor = (ffn_tensor_t){.role = role, .ndim = tensor.ndim + 1, .data = all, .shape = {experts, tensor.shape[0], tensor.shape[1]}};
            assert_ok(ffn_layer_read(test.layer, &tensor, 1));
            assert_same_bits(test.plain[role], all, size * experts, is.name);
            if (of_experts) {
                ffn_tensor_t one = {.role = role, .expert = (uint32_t)experts - 1, .ndim = tensor.ndim - 1, .data = all, .shape = {tensor.shape[1], tensor.shape[2]}};
                assert_ok(ffn_layer_read(test.layer, &one, 1));
                assert_same_bits(test_moe_plain(&test, role, experts - 1), all, size, is.name);
            }
            free(all);
        }
        test_moe_free(&test);
    }
}

/* The floats of a buffer that a view of two dimensions has: each counts its owners. */
static bool claim(unsigned char *owners, const float *buffer, const ffn_tensor_t *view)
{
    bool shared = false;
    for (int64_t r = 0; r < view->shape[0]; r++)
        for (int64_t c = 0; c < view->shape[1]; c++) {
            const int64_t at = (const float *)view->data - buffer + (r * view->stride[0] + c * view->stride[1]) / 4;
            shared |= owners[at]++ > 0;
        }
    return shared;
}

/* Views of many experts, in any order of addresses, gate and up fused in turn or not, of which one may be moved by some floats: refused if and only if
 * two of them share a float. */
static void views_of_many_experts_are_refused_where_they_share_a_float(void **state)
{
    (void)state;
    enum { E = 40, D = 3, F = 4, SIZE = D * F, PLACES = 3 * E, ROOM = PLACES * SIZE + 2 * SIZE };
    const moe_case_t is = {.name = "many", .d_model = D, .d_ff = F, .gated = true, .activation = FFN_ACTIVATION_SILU, .seed = 9,
                           .moe = {.experts = E, .top_k = 1}};
    static const uint32_t roles[3] = {FFN_ROLE_UP_WEIGHT, FFN_ROLE_GATE_WEIGHT, FFN_ROLE_DOWN_WEIGHT};
    float *buffer = test_alloc(ROOM * sizeof *buffer);
    unsigned char *owners = test_alloc(ROOM);
    rng_t rng = rng_make(test_seed());
    test_moe_t test;
    int64_t refused = 0;
    test_moe_make(&test, &is);
    for (int round = 0; round < (test_quick() ? 10 : 300); round++) {
        ffn_tensor_t views[PLACES];
        bool shared = false;
        const bool fused = round % 2;
        for (int64_t i = 0; i < PLACES; i++) {
            const int64_t expert = i / 3, kind = i % 3, at = fused && kind < 2 ? expert * 3 * SIZE + kind * D : i * SIZE;
            views[i] = (ffn_tensor_t){.role = roles[kind], .expert = (uint32_t)expert, .ndim = 2, .data = buffer + SIZE + at, .shape = {F, D},
                                      .stride = {4 * D * (fused ? 2 : 1), 4}};
            if (kind == 2) memcpy(views[i].shape, (int64_t[]){D, F}, sizeof(int64_t[2])), views[i].stride[0] = 4, views[i].stride[1] = 4 * D;
        }
        for (int64_t i = PLACES - 1; i > 0; i--) {
            const int64_t j = rng_below(&rng, i + 1);
            const ffn_tensor_t view = views[i];
            views[i] = views[j], views[j] = view;
        }
        if (round % 4 >= 2) {
            ffn_tensor_t *view = &views[rng_below(&rng, PLACES)];
            view->data = (float *)view->data + rng_below(&rng, 2 * D) - D;
        }
        memset(owners, 0, ROOM);
        for (int64_t i = 0; i < PLACES; i++) shared |= claim(owners, buffer, &views[i]);
        if (shared) assert_refused(ffn_layer_read(test.layer, views, PLACES), FFN_INVALID, "the views of|overlap", "shared");
        else assert_ok(ffn_layer_read(test.layer, views, PLACES));
        refused += shared;
    }
    assert_true(refused > 0);
    test_moe_free(&test);
    free(owners);
    free(buffer);
}

static void info_counts_what_a_token_meets(void **state)
{
    (void)state;
    const moe_case_t is = {.d_model = 10, .d_ff = 6, .d_shared = 4, .d_latent = 8, .gated = true, .activation = FFN_ACTIVATION_SILU, .seed = 1,
                           .moe = {.experts = 5, .identity_experts = 2, .top_k = 2}};
    test_moe_t test;
    test_moe_make(&test, &is);
    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(test.layer, &info));
    const int64_t expert = 3 * 8 * 6, rest = 7 * 10 + 3 * 10 * 4 + 2 * 10 * 8;
    assert_int_equal(info.parameters, 5 * expert + rest);
    assert_int_equal(info.active_parameters, 2 * expert + rest);
    assert_int_equal(info.parameters_of[FFN_ROLE_UP_WEIGHT], 5 * 8 * 6);
    assert_int_equal(info.experts, 5);
    assert_int_equal(info.identity_experts, 2);
    assert_int_equal(info.top_k, 2);
    assert_int_equal(info.d_shared, 4);
    assert_int_equal(info.d_latent, 8);
    test_moe_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_to_give_tensors_is_the_same_layer),
        cmocka_unit_test(rows_may_have_strides_and_y_may_be_x),
        cmocka_unit_test(tensors_are_read_back),
        cmocka_unit_test(views_of_many_experts_are_refused_where_they_share_a_float),
        cmocka_unit_test(info_counts_what_a_token_meets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
