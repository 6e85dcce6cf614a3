/* SPDX-License-Identifier: MIT
 *
 * NaN and infinity: they pass through the layer as IEEE 754 arithmetic has it, and stay in the row of the token that brought them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/test.h"

static const float poisons[] = {NAN, INFINITY, -INFINITY};

/* Rows other than the poisoned one keep their bits; that one is as the oracle's, which is NaN and infinite in the same places. */
static void check_poison(const test_layer_t *test, int64_t tokens, int64_t token, int poison)
{
    int64_t in = test->is.d_model, out = test->is.d_out;
    layer_data_t data = layer_data_make(test, tokens, 17);
    layer_data_run(test, NULL, &data);
    float *clean = data.y;
    data.y = test_alloc((size_t)(tokens * out) * sizeof(float));
    data.x[token * in + in / 2] = poisons[poison];
    layer_data_run(test, NULL, &data);
    assert_same_output(test, token, clean, data.y, "rows before the poisoned one");
    assert_same_output(test, tokens - token - 1, clean + (token + 1) * out, data.y + (token + 1) * out, "rows after the poisoned one");
    layer_data_t one = {.tokens = 1, .x = data.x + token * in, .y = data.y + token * out};
    if (data.residual) one.residual = data.residual + token * out;
    assert_as_oracle(test, &one, one.y);
    free(clean);
    layer_data_free(&data);
}

static void check_case_of(const layer_case_t *is)
{
    static const int64_t runs[][2] = {{1, 0}, {2, 0}, {2, 1}, {19, 7}, {530, 515}};
    test_layer_t test;
    test_layer_make(&test, is);
    for (int64_t r = 0; r < COUNT_OF(runs) - (test_quick() ? 1 : 0); r++)
        for (int poison = 0; poison < COUNT_OF(poisons); poison++) check_poison(&test, runs[r][0], runs[r][1], poison);
    test_layer_free(&test);
}

static void a_poisoned_token_spoils_its_own_row_alone_with_every_activation(void **state)
{
    (void)state;
    for (uint32_t activation = FFN_ACTIVATION_IDENTITY; activation <= FFN_ACTIVATION_XIELU; activation++)
        for (int gated = 0; gated < 2; gated++) {
            layer_case_t is = {.activation = activation, .gated = gated, .biases = BIAS_ALL, .d_model = 21, .d_ff = 37, .d_out = 21,
                               .residual = FFN_RESIDUAL_INPUT, .seed = activation};
            check_case_of(&is);
        }
}

static void a_poisoned_token_spoils_its_own_row_alone_with_every_norm(void **state)
{
    (void)state;
    for (int slot = 0; slot < 4; slot++)
        for (uint32_t kind = FFN_NORM_LAYER; kind <= FFN_NORM_AFFINE; kind++)
            for (uint32_t residual = FFN_RESIDUAL_NONE; residual <= FFN_RESIDUAL_EXTERNAL; residual++) {
                layer_case_t is = {.activation = FFN_ACTIVATION_GELU, .gated = true, .biases = BIAS_ALL, .d_model = 21, .d_ff = 37,
                                   .d_out = 21, .residual = residual, .branch_scale = SCALE_VECTOR, .seed = (uint64_t)slot};
                is.norm[slot] = (norm_case_t){kind, true, true, 0, 0};
                check_case_of(&is);
            }
}

static void the_clamps_of_the_gate_keep_nan_and_cut_infinity(void **state)
{
    (void)state;
    static const uint32_t activations[] = {FFN_ACTIVATION_SWISH, FFN_ACTIVATION_IDENTITY, FFN_ACTIVATION_RELU};
    for (int64_t i = 0; i < COUNT_OF(activations); i++) {
        layer_case_t is = {.activation = activations[i], .gated = true, .biases = BIAS_ALL, .d_model = 21, .d_ff = 37, .d_out = 21,
                           .gate_max = 7, .up_limit = 7, .up_offset = 1, .seed = 40 + (uint64_t)i};
        check_case_of(&is);
    }
}

/* A NaN among the weights reaches what depends on it and nothing else: feature 3 of the output, for a NaN in down's row 3. */
static void nan_in_a_row_of_down_spoils_one_feature_alone(void **state)
{
    (void)state;
    layer_case_t is = {.activation = FFN_ACTIVATION_RELU, .biases = BIAS_ALL, .d_model = 21, .d_ff = 37, .d_out = 21, .seed = 50};
    test_layer_t test;
    test_layer_describe(&test, &is);
    float *down = test_layer_view(&test, FFN_ROLE_DOWN_WEIGHT)->data;
    down[3 * 37 + 5] = test.plain[FFN_ROLE_DOWN_WEIGHT][3 * 37 + 5] = NAN;
    test_layer_create(&test);
    for (int64_t tokens = 1; tokens < 20; tokens += 9) {
        layer_data_t data = layer_data_make(&test, tokens, 5);
        layer_data_run(&test, NULL, &data);
        for (int64_t i = 0; i < tokens * 21; i++) assert_true(isnan(data.y[i]) == (i % 21 == 3));
        layer_data_free(&data);
    }
    test_layer_free(&test);
}

/* inf * 0 is NaN, not 0: no shortcut skips a zero weight. */
static void zero_weights_do_not_hide_infinity(void **state)
{
    (void)state;
    layer_case_t is = {.activation = FFN_ACTIVATION_IDENTITY, .d_model = 9, .d_ff = 16, .d_out = 9, .seed = 51};
    test_layer_t test;
    test_layer_describe(&test, &is);
    for (int64_t i = 0; i < 9 * 16; i++) ((float *)test_layer_view(&test, FFN_ROLE_UP_WEIGHT)->data)[i] = 0;
    memset(test.plain[FFN_ROLE_UP_WEIGHT], 0, 9 * 16 * sizeof(float));
    test_layer_create(&test);
    for (int poison = 0; poison < COUNT_OF(poisons); poison++)
        for (int64_t tokens = 1; tokens < 20; tokens += 9) check_poison(&test, tokens, tokens - 1, poison);
    test_layer_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_poisoned_token_spoils_its_own_row_alone_with_every_activation),
        cmocka_unit_test(a_poisoned_token_spoils_its_own_row_alone_with_every_norm),
        cmocka_unit_test(the_clamps_of_the_gate_keep_nan_and_cut_infinity),
        cmocka_unit_test(nan_in_a_row_of_down_spoils_one_feature_alone),
        cmocka_unit_test(zero_weights_do_not_hide_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
