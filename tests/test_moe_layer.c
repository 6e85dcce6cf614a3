/* SPDX-License-Identifier: MIT
 *
 * A mixture of experts in the layer: what holds of every one, whatever its router's rule.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/hostile.h"
#include "support/moe_case.h"
#include "support/random.h"
#include "support/test.h"

/* Distinct ids, some slots of no expert, weights of either sign. */
static void choose_at_random(const test_moe_t *test, moe_data_t *data, uint64_t seed)
{
    rng_t rng = rng_make(seed);
    for (int64_t t = 0; t < data->tokens; t++) {
        int64_t start = rng_below(&rng, test->choices), step = 1;
        for (int64_t k = 0; k < data->top_k; k++) {
            const bool none = rng_below(&rng, 5) == 0;
            data->ids[t * data->top_k + k] = none ? FFN_MOE_NO_EXPERT : (int32_t)((start + k * step) % test->choices);
            data->weights[t * data->top_k + k] = none ? 0 : rng_uniform(&rng, -1, 1);
        }
    }
}

static const moe_case_t forms[] = {
    {.name = "dense", .d_model = 24, .d_ff = 40, .activation = FFN_ACTIVATION_RELU, .moe = {.experts = 5, .top_k = 2}},
    {.name = "gated with biases", .d_model = 33, .d_ff = 20, .d_out = 17, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU,
     .form = MOE_STACKS, .moe = {.experts = 4, .top_k = 3}},
    {.name = "norms, residual, scale", .d_model = 24, .d_ff = 40, .gated = true, .activation = FFN_ACTIVATION_GELU, .residual = FFN_RESIDUAL_INPUT,
     .norm = {{FFN_NORM_RMS, .weight = true}, {FFN_NORM_RMS, .weight = true}, {FFN_NORM_LAYER, .weight = true, .bias = true}, {FFN_NORM_RMS}},
     .branch_factor = 0.5f, .form = MOE_PARTS, .moe = {.experts = 7, .top_k = 4}},
    {.name = "shared", .d_model = 24, .d_ff = 12, .d_shared = 50, .shared_scale = true, .gated = true, .biases = BIAS_ALL,
     .activation = FFN_ACTIVATION_SILU, .residual = FFN_RESIDUAL_EXTERNAL, .form = MOE_BACKWARDS, .moe = {.experts = 6, .top_k = 2}},
    {.name = "latent and identity", .d_model = 40, .d_ff = 24, .d_latent = 16, .d_shared = 30, .latent_biases = true, .combine_bias = true,
     .activation = FFN_ACTIVATION_RELU2, .residual = FFN_RESIDUAL_NORMED, .norm = {{FFN_NORM_RMS, .weight = true}},
     .moe = {.experts = 6, .identity_experts = 3, .top_k = 4}},
    {.name = "weight on input", .d_model = 24, .d_ff = 40, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU, .d_shared = 8,
     .form = MOE_STACKS, .layout = LAYOUT_IN_GATE_UP, .down_layout = LAYOUT_IN_OUT,
     .moe = {.flags = FFN_MOE_WEIGHT_ON_INPUT, .experts = 5, .identity_experts = 1, .top_k = 2}},
    {.name = "clamped, shared not", .d_model = 24, .d_ff = 40, .gated = true, .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f, .gate_max = 0.7f,
     .up_limit = 0.6f, .up_offset = 1, .d_shared = 20, .layout = LAYOUT_INTERLEAVED, .form = MOE_STACKS,
     .moe = {.flags = FFN_MOE_SHARED_UNCLAMPED, .experts = 3, .top_k = 3}},
    {.name = "512 experts", .d_model = 9, .d_ff = 8, .activation = FFN_ACTIVATION_IDENTITY, .form = MOE_STACKS, .moe = {.experts = 512, .top_k = 32}},
};

static moe_case_t form_of(int64_t i)
{
    moe_case_t is = forms[i];
    is.no_router = true;
    is.seed = (uint64_t)i + 1;
    return is;
}

static void every_form_is_the_formula(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 7, 65, 200};
    for (int64_t i = 0; i < COUNT_OF(forms); i++) {
        test_moe_t test;
        const moe_case_t is = form_of(i);
        test_moe_make(&test, &is);
        for (int64_t c = 0; c < COUNT_OF(counts); c++) {
            if (c > 2 && (i == COUNT_OF(forms) - 1 || test_quick())) continue;
            moe_data_t data = moe_data_make(&test, counts[c], is.seed);
            choose_at_random(&test, &data, is.seed + 1000);
            assert_ok(moe_data_run(&test, NULL, &data, true));
            assert_moe_as_given(&test, &data);
            moe_data_free(&data);
        }
        test_moe_free(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_the_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
