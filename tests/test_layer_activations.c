/* SPDX-License-Identifier: MIT
 *
 * The layer against the oracle: every activation, dense and gated, with each bias present and absent; the parameters of activations and gates.
 */
#include <math.h>
#include <stdlib.h>

#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

enum { FIRST = FFN_ACTIVATION_IDENTITY, LAST = FFN_ACTIVATION_XIELU };

static const int64_t shapes[][3] = {{24, 33, 24}, {7, 12, 5}, {40, 64, 9}};

static void set_shape(layer_case_t *is, uint64_t number)
{
    const int64_t *shape = shapes[number % (uint64_t)COUNT_OF(shapes)];
    is->d_model = shape[0];
    is->d_ff = shape[1];
    is->d_out = shape[2];
    is->seed = number;
}

static void every_activation_with_every_set_of_biases_is_as_the_oracle_in_a_dense_layer(void **state)
{
    (void)state;
    uint64_t number = 100;
    for (uint32_t activation = FIRST; activation <= LAST; activation++)
        for (uint32_t biases = 0; biases < 8; biases++) {
            if (biases & BIAS_GATE) continue;
            layer_case_t is = {.activation = activation, .biases = biases};
            set_shape(&is, number++);
            check_case(&is, 1);
            check_case(&is, 9);
        }
}

static void every_activation_with_every_set_of_biases_is_as_the_oracle_in_a_gated_layer(void **state)
{
    (void)state;
    uint64_t number = 1000;
    for (uint32_t activation = FIRST; activation <= LAST; activation++)
        for (uint32_t biases = 0; biases < 8; biases++) {
            layer_case_t is = {.activation = activation, .gated = true, .biases = biases};
            set_shape(&is, number++);
            check_case(&is, 1);
            check_case(&is, 9);
        }
}

/* Each of the three parameters of the gate absent and present, with every activation. */
static void clamps_and_offset_of_the_gate_are_as_the_oracle_with_every_activation(void **state)
{
    (void)state;
    uint64_t number = 2000;
    for (uint32_t activation = FIRST; activation <= LAST; activation++)
        for (uint32_t parts = 1; parts < 8; parts++) {
            layer_case_t is = {.activation = activation, .gated = true, .biases = parts & 1 ? BIAS_ALL : 0};
            is.gate_max = parts & 1 ? 2.5f : 0;
            is.up_limit = parts & 2 ? 1.5f : 0;
            is.up_offset = parts & 4 ? -0.75f : 0;
            set_shape(&is, number++);
            check_case(&is, 9);
        }
}

static void alpha_and_beta_reach_the_activations_that_have_them(void **state)
{
    (void)state;
    static const layer_case_t cases[] = {
        {.activation = FFN_ACTIVATION_LEAKY_RELU, .alpha = 0.2f},
        {.activation = FFN_ACTIVATION_LEAKY_RELU, .alpha = -1.5f},
        {.activation = FFN_ACTIVATION_LEAKY_RELU, .alpha = 3},
        {.activation = FFN_ACTIVATION_ELU, .alpha = 0.5f},
        {.activation = FFN_ACTIVATION_ELU, .alpha = -2},
        {.activation = FFN_ACTIVATION_SWISH, .beta = 1.702f},
        {.activation = FFN_ACTIVATION_SWISH, .beta = 0.1f},
        {.activation = FFN_ACTIVATION_SWISH, .beta = -1.25f},
        {.activation = FFN_ACTIVATION_SWISH, .beta = 20},
        {.activation = FFN_ACTIVATION_XIELU, .beta = 0.25f},
        {.activation = FFN_ACTIVATION_XIELU, .beta = 1.5f, .alpha = -0.125f},
        {.activation = FFN_ACTIVATION_XIELU, .alpha = -1e-3f},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++)
        for (int gated = 0; gated < 2; gated++) {
            layer_case_t is = cases[i];
            is.gated = gated;
            is.biases = BIAS_ALL;
            set_shape(&is, 3000 + 2 * (uint64_t)i + (uint64_t)gated);
            check_case(&is, 9);
        }
}

static void gates_of_gpt_oss_and_deepseek_v4_clamp_as_published(void **state)
{
    (void)state;
    layer_case_t gpt_oss = {.name = "gpt-oss", .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f, .gated = true, .biases = BIAS_ALL,
                            .gate_max = 7, .up_limit = 7, .up_offset = 1, .layout = LAYOUT_INTERLEAVED};
    layer_case_t deepseek = {.name = "DeepSeek-V4", .activation = FFN_ACTIVATION_SILU, .gated = true, .gate_max = 10, .up_limit = 10};
    for (uint64_t number = 0; number < 3; number++) {
        set_shape(&gpt_oss, 4000 + number);
        set_shape(&deepseek, 4100 + number);
        check_case(&gpt_oss, 33);
        check_case(&deepseek, 33);
    }
}

/* d_model = d_ff = d_out = 1 and weights of 1: the layer is the activation, and any input can be set. */
static void single_feature_layers_give_the_activation_of_any_input(void **state)
{
    (void)state;
    for (uint32_t activation = FIRST; activation <= LAST; activation++) {
        layer_case_t is = {.activation = activation, .d_model = 1, .d_ff = 1, .seed = activation};
        test_layer_t test;
        test_layer_describe(&test, &is);
        test.plain[FFN_ROLE_UP_WEIGHT][0] = *(float *)test_layer_view(&test, FFN_ROLE_UP_WEIGHT)->data = 1;
        test.plain[FFN_ROLE_DOWN_WEIGHT][0] = *(float *)test_layer_view(&test, FFN_ROLE_DOWN_WEIGHT)->data = 1;
        test_layer_create(&test);
        layer_data_t data = layer_data_make(&test, 4001, activation);
        for (int64_t t = 0; t < data.tokens; t++) data.x[t] = (float)(t - 2000) * 0.0625f;
        layer_data_run(&test, NULL, &data);
        assert_as_oracle(&test, &data, data.y);
        layer_data_free(&data);
        test_layer_free(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_activation_with_every_set_of_biases_is_as_the_oracle_in_a_dense_layer),
        cmocka_unit_test(every_activation_with_every_set_of_biases_is_as_the_oracle_in_a_gated_layer),
        cmocka_unit_test(clamps_and_offset_of_the_gate_are_as_the_oracle_with_every_activation),
        cmocka_unit_test(alpha_and_beta_reach_the_activations_that_have_them),
        cmocka_unit_test(gates_of_gpt_oss_and_deepseek_v4_clamp_as_published),
        cmocka_unit_test(single_feature_layers_give_the_activation_of_any_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
