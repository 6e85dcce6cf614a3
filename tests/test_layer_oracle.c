/* SPDX-License-Identifier: MIT
 *
 * The oracle itself: known values, and the proof that the comparison can fail: a layer that differs from the oracle's in one detail, as a
 * faulty library would, is told apart. Neither needs the library to be right.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

/* Tails that faulty implementations lose; from float32 inputs in double precision (or more), by other programs. */
static void activations_of_the_oracle_have_the_known_values(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        float x;
        double expected;
    } values[] = {
        {FFN_ACTIVATION_GELU, -4, -1.26684972e-4},       {FFN_ACTIVATION_GELU, -5, -1.43325781e-6},
        {FFN_ACTIVATION_GELU, -5.5f, -1.04442591e-7},    {FFN_ACTIVATION_GELU, -8, -4.97676834e-15},
        {FFN_ACTIVATION_GELU, -13, -7.95231385e-38},     {FFN_ACTIVATION_GELU, -3, -4.0497e-3},
        {FFN_ACTIVATION_GELU_TANH, -4, -7.02459511e-5},  {FFN_ACTIVATION_GELU_TANH, -6, -8.4396469e-11},
        {FFN_ACTIVATION_GELU_TANH, -10, -1.20409239e-37}, {FFN_ACTIVATION_GELU_TANH, -3, -3.6374e-3},
        {FFN_ACTIVATION_GELU_TANH, 40, 40},              {FFN_ACTIVATION_SILU, -88, -5.32804976e-37},
        {FFN_ACTIVATION_SILU, -90, -7.37461119e-38},     {FFN_ACTIVATION_SILU, -100, -3.72007598e-42},
        {FFN_ACTIVATION_QUICK_GELU, 1, 0.845795},        {FFN_ACTIVATION_GELU_10, 11, 10},
        {FFN_ACTIVATION_RELU6, 7, 6},                    {FFN_ACTIVATION_RELU2, 3, 9},
        {FFN_ACTIVATION_RELU2, -3, 0},                   {FFN_ACTIVATION_LEAKY_RELU, -3, -0.03},
        {FFN_ACTIVATION_ELU, -1, -0.632120559},          {FFN_ACTIVATION_HARDSWISH, 1, 0.666666667},
        {FFN_ACTIVATION_HARDSWISH, -4, 0},               {FFN_ACTIVATION_SOFTPLUS, 0, 0.693147181},
        {FFN_ACTIVATION_MISH, 1, 0.865098388},           {FFN_ACTIVATION_SIGMOID, 1, 0.731058579},
        {FFN_ACTIVATION_TANH, 1, 0.761594156},           {FFN_ACTIVATION_LAPLACE, 0.707107f, 0.5},
        {FFN_ACTIVATION_LAPLACE, 0.989202f, 0.841344746}, {FFN_ACTIVATION_IDENTITY, -2, -2},
    };
    for (int64_t i = 0; i < COUNT_OF(values); i++) {
        oracle_activation_t activation = {.id = values[i].id};
        double got = oracle_activate(&activation, (double)values[i].x), expected = values[i].expected;
        if (fabs(got - expected) > 1e-4 * fabs(expected) && fabs(got - expected) > 1e-45)
            fail_msg("activation %u at %.9g: expected %.9g, got %.9g", values[i].id, (double)values[i].x, expected, got);
    }
}

/* alpha_p = alpha_n = 0: p = log 2, n = 1/2 + log 2. */
static void xielu_of_the_oracle_has_the_values_of_its_formula(void **state)
{
    (void)state;
    oracle_activation_t xielu = {.id = FFN_ACTIVATION_XIELU};
    double log2 = log(2), p = log2, n = 0.5 + log2;
    assert_near(oracle_activate(&xielu, 2), p * 4 + 1, 1e-12);
    assert_near(oracle_activate(&xielu, -1), n * (exp(-1) - 1 + 1) - 0.5, 1e-12);
    assert_near(oracle_activate(&xielu, 0), n * (double)-1e-6f, 1e-12);
}

static void norms_of_the_oracle_have_the_known_values(void **state)
{
    (void)state;
    static const double x[4] = {40000, 40001, 40002, 40003};
    static const float unit[16] = {[0] = 1, [5] = 1, [10] = 1, [15] = 1};
    oracle_layer_t layer = {.d_model = 4, .d_ff = 4, .d_out = 4, .activation = {.id = FFN_ACTIVATION_IDENTITY}, .up = unit, .down = unit};
    layer.norm[FFN_NORM_IN].kind = FFN_NORM_LAYER;
    double y[4], bound[4];
    oracle_run(&layer, 1, x, NULL, y, bound);
    assert_near(y[0], -1.34163542, 1e-7);
    assert_near(y[1], -0.447211807, 1e-7);
    assert_near(y[3], 1.34163542, 1e-7);
    layer.norm[FFN_NORM_IN].kind = FFN_NORM_RMS;
    oracle_run(&layer, 1, x, NULL, y, bound);
    assert_near(y[0], 40000 / sqrt((40000. * 40000 + 40001. * 40001 + 40002. * 40002 + 40003. * 40003) / 4), 1e-9);
}

static void bounds_of_the_oracle_are_positive_and_far_below_the_values(void **state)
{
    (void)state;
    layer_case_t is = {.activation = FFN_ACTIVATION_GELU, .d_model = 64, .d_ff = 256, .biases = BIAS_ALL, .residual = FFN_RESIDUAL_INPUT};
    is.norm[FFN_NORM_IN] = (norm_case_t){FFN_NORM_LAYER, true, true, 0, 0};
    test_layer_t test;
    test_layer_describe(&test, &is);
    layer_data_t data = layer_data_make(&test, 20, 1);
    double *x = oracle_widen(data.x, 20 * 64), y[20 * 64], bound[20 * 64], largest = 0;
    oracle_run(&test.oracle, 20, x, NULL, y, bound);
    for (int i = 0; i < 20 * 64; i++)
        if (fabs(y[i]) > largest) largest = fabs(y[i]);
    for (int i = 0; i < 20 * 64; i++) {
        assert_true(bound[i] > 0);
        assert_true(bound[i] < 1e-4 * largest);
    }
    free(x);
    layer_data_free(&data);
    test_layer_free(&test);
}

/* ---------------------------------------------------------------- The comparison */

static void comparison_counts_ulps_and_takes_nan_for_nan_alone(void **state)
{
    (void)state;
    assert_int_equal(ulp_distance(1, nextafterf(1, 2)), 1);
    assert_int_equal(ulp_distance(-0.0f, 0.0f), 0);
    assert_int_equal(ulp_distance(-0x1p-149f, 0x1p-149f), 2);
    assert_int_equal(ulp_distance(NAN, NAN), 0);
    assert_true(ulp_distance(NAN, 1) == INT64_MAX);
    const double expected[1] = {1}, nan[1] = {NAN}, inf[1] = {INFINITY}, bound[1] = {0.5}, no_bound[1] = {NAN};
    const float near = 1.25f, far = 1.75f, not_a_number = NAN, infinite = INFINITY, minus_infinite = -INFINITY;
    assert_int_equal(first_outside_bound(&near, expected, bound, 1), -1);
    assert_int_equal(first_outside_bound(&far, expected, bound, 1), 0);
    assert_int_equal(first_outside_bound(&not_a_number, expected, bound, 1), 0);
    assert_int_equal(first_outside_bound(&infinite, expected, bound, 1), 0);
    assert_int_equal(first_outside_bound(&near, expected, no_bound, 1), 0);
    assert_int_equal(first_outside_bound(&near, nan, bound, 1), 0);
    assert_int_equal(first_outside_bound(&not_a_number, nan, bound, 1), -1);
    assert_int_equal(first_outside_bound(&infinite, inf, bound, 1), -1);
    assert_int_equal(first_outside_bound(&minus_infinite, inf, bound, 1), 0);
}

/* One way to be wrong: takes the oracle's layer and bends it. Weights are the test's own copies and may be changed. */
typedef struct fault {
    const char *name;
    void (*bend)(test_layer_t *test);
} fault_t;

static void gelu_of_the_other_kind(test_layer_t *test)
{
    test->oracle.activation.id = FFN_ACTIVATION_GELU_TANH;
}

static void quick_gelu(test_layer_t *test)
{
    test->oracle.activation.id = FFN_ACTIVATION_QUICK_GELU;
}

static void no_up_bias(test_layer_t *test)
{
    test->oracle.up_bias = NULL;
}

static void no_gate_bias(test_layer_t *test)
{
    test->oracle.gate_bias = NULL;
}

static void no_down_bias(test_layer_t *test)
{
    test->oracle.down_bias = NULL;
}

static void gate_and_up_swapped(test_layer_t *test)
{
    test->oracle.gate = test->plain[FFN_ROLE_UP_WEIGHT];
    test->oracle.up = test->plain[FFN_ROLE_GATE_WEIGHT];
}

static void one_up_weight_off_by_a_percent(test_layer_t *test)
{
    test->plain[FFN_ROLE_UP_WEIGHT][5] *= 1.01f;
}

static void one_down_weight_off_by_a_thousandth(test_layer_t *test)
{
    test->plain[FFN_ROLE_DOWN_WEIGHT][7] *= 1.001f;
}

static void two_columns_of_down_swapped(test_layer_t *test)
{
    float *w = test->plain[FFN_ROLE_DOWN_WEIGHT], first = w[0];
    w[0] = w[1];
    w[1] = first;
}

static void eps_1e_6_in_place_of_1e_5(test_layer_t *test)
{
    test->oracle.norm[FFN_NORM_IN].eps = 1e-6f;
}

static void rms_in_place_of_layer_norm(test_layer_t *test)
{
    test->oracle.norm[FFN_NORM_IN].kind = FFN_NORM_RMS;
}

static void norm_offset_forgotten(test_layer_t *test)
{
    test->oracle.norm[FFN_NORM_IN].offset = 0;
}

static void norm_at_the_other_end(test_layer_t *test)
{
    test->oracle.norm[FFN_NORM_OUT] = test->oracle.norm[FFN_NORM_IN];
    test->oracle.norm[FFN_NORM_IN].kind = FFN_NORM_NONE;
}

static void residual_from_the_normed_input(test_layer_t *test)
{
    test->oracle.residual = FFN_RESIDUAL_NORMED;
}

static void residual_forgotten(test_layer_t *test)
{
    test->oracle.residual = FFN_RESIDUAL_NONE;
}

static void branch_scale_forgotten(test_layer_t *test)
{
    test->oracle.branch_scale.values = NULL;
}

static void tanh_forgotten(test_layer_t *test)
{
    test->oracle.branch_scale.tanh = 0;
}

static void scale_of_the_branch_on_the_residual(test_layer_t *test)
{
    test->oracle.residual_scale = test->oracle.branch_scale;
    test->oracle.branch_scale.values = NULL;
}

static void gate_clamp_forgotten(test_layer_t *test)
{
    test->oracle.gate_max = 0;
}

static void up_clamp_forgotten(test_layer_t *test)
{
    test->oracle.up_limit = 0;
}

static void up_offset_forgotten(test_layer_t *test)
{
    test->oracle.up_offset = 0;
}

static const fault_t faults[] = {
    {"one up weight off by a percent", one_up_weight_off_by_a_percent},
    {"one down weight off by a thousandth", one_down_weight_off_by_a_thousandth},
    {"two weights of down swapped", two_columns_of_down_swapped},
    {"gelu by tanh", gelu_of_the_other_kind},
    {"quick_gelu", quick_gelu},
    {"no up bias", no_up_bias},
    {"no gate bias", no_gate_bias},
    {"no down bias", no_down_bias},
    {"gate and up swapped", gate_and_up_swapped},
    {"eps 1e-6", eps_1e_6_in_place_of_1e_5},
    {"rms norm", rms_in_place_of_layer_norm},
    {"norm offset forgotten", norm_offset_forgotten},
    {"norm at the other end", norm_at_the_other_end},
    {"residual from the normed input", residual_from_the_normed_input},
    {"residual forgotten", residual_forgotten},
    {"branch scale forgotten", branch_scale_forgotten},
    {"tanh forgotten", tanh_forgotten},
    {"scale on the other side", scale_of_the_branch_on_the_residual},
    {"gate clamp forgotten", gate_clamp_forgotten},
    {"up clamp forgotten", up_clamp_forgotten},
    {"up offset forgotten", up_offset_forgotten},
};

/* Every part is present, so that each can be got wrong. */
static const layer_case_t whole = {
    .activation = FFN_ACTIVATION_GELU, .gated = true, .biases = BIAS_ALL, .d_model = 24, .d_ff = 40, .residual = FFN_RESIDUAL_INPUT,
    .norm = {[FFN_NORM_IN] = {FFN_NORM_LAYER, true, true, 0, 1}}, .branch_scale = SCALE_VECTOR_TANH, .gate_max = 3, .up_limit = 3,
    .up_offset = 1, .seed = 77};

static float *library_output(const test_layer_t *test, layer_data_t *data)
{
    layer_data_run(test, NULL, data);
    return data->y;
}

static void every_fault_of_a_layer_is_told_apart(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(faults); i++) {
        test_layer_t test;
        test_layer_make(&test, &whole);
        layer_data_t data = layer_data_make(&test, 16, 3);
        for (int64_t k = 0; k < 16 * test.is.d_model; k++) data.x[k] *= 0.1f; /* so that eps counts */
        float *y = library_output(&test, &data);
        assert_as_oracle(&test, &data, y);
        faults[i].bend(&test);
        if (agrees_with_oracle(&test.oracle, &data, y)) fail_msg("not told apart: %s", faults[i].name);
        layer_data_free(&data);
        test_layer_free(&test);
    }
}

static void a_row_of_another_token_is_told_apart(void **state)
{
    (void)state;
    test_layer_t test;
    test_layer_make(&test, &whole);
    layer_data_t data = layer_data_make(&test, 2, 4);
    float *y = library_output(&test, &data);
    int64_t width = test.is.d_out;
    for (int64_t i = 0; i < width; i++) {
        float first = y[i];
        y[i] = y[width + i];
        y[width + i] = first;
    }
    assert_false(agrees_with_oracle(&test.oracle, &data, y));
    layer_data_free(&data);
    test_layer_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_of_the_oracle_have_the_known_values),
        cmocka_unit_test(xielu_of_the_oracle_has_the_values_of_its_formula),
        cmocka_unit_test(norms_of_the_oracle_have_the_known_values),
        cmocka_unit_test(bounds_of_the_oracle_are_positive_and_far_below_the_values),
        cmocka_unit_test(comparison_counts_ulps_and_takes_nan_for_nan_alone),
        cmocka_unit_test(every_fault_of_a_layer_is_told_apart),
        cmocka_unit_test(a_row_of_another_token_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
