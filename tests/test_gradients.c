/* SPDX-License-Identifier: MIT
 *
 * Gradients of every tensor against the oracle's backward, and that against central differences of the oracle's forward: all activations, dense and gated,
 * clamps, norms in all slots, residuals, scales, and dropout at every site; on small odd shapes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/random.h"
#include "support/test.h"
#include "support/train_case.h"

static const int64_t shapes[][3] = {{5, 7, 0}, {3, 9, 0}, {8, 5, 0}, {4, 6, 0}};

static train_case_t case_of(uint64_t number)
{
    const int64_t *shape = shapes[number % (uint64_t)COUNT_OF(shapes)];
    train_case_t is = {.layer = {.d_model = shape[0], .d_ff = shape[1], .activation = FFN_ACTIVATION_SILU, .biases = BIAS_ALL, .seed = number},
                       .batch = 1, .length = 3, .tape_flags = number & 1 ? FFN_TAPE_RECOMPUTE : 0};
    return is;
}

/* Under valgrind one case in 31. */
static void check(const train_case_t *is)
{
    if (is->layer.seed % 31 == 0 || !test_quick()) check_training(is);
}

static void every_activation_has_its_derivative_dense_and_gated(void **state)
{
    (void)state;
    uint64_t number = 0;
    for (uint32_t activation = FFN_ACTIVATION_IDENTITY; activation <= FFN_ACTIVATION_XIELU; activation++)
        for (int gated = 0; gated < 2; gated++)
            for (int biases = 0; biases < 8; biases += 7)
                for (int tape = 0; tape < 2; tape++) {
                    train_case_t is = case_of(number++);
                    is.layer.activation = activation;
                    is.layer.gated = gated;
                    is.layer.biases = (uint32_t)biases;
                    is.tape_flags = tape ? FFN_TAPE_RECOMPUTE : 0;
                    check(&is);
                }
}

typedef struct parameters {
    uint32_t activation;
    float alpha, beta, gate_max, up_limit, up_offset;
} parameters_t;

static void parameters_and_clamps_of_published_gates_have_theirs(void **state)
{
    (void)state;
    static const parameters_t cases[] = {
        {FFN_ACTIVATION_SWISH, 0, 1.702f, 7, 7, 1},         {FFN_ACTIVATION_SILU, 0, 0, 10, 10, 0}, {FFN_ACTIVATION_SWISH, 0, -0.7f, 0, 2, 0},
        {FFN_ACTIVATION_LEAKY_RELU, 0.3f, 0, 1, 0, 0},      {FFN_ACTIVATION_ELU, 2, 0, 0, 1, -1},   {FFN_ACTIVATION_XIELU, 0, 0, 1.5f, 1, 1},
        {FFN_ACTIVATION_XIELU, -0.5f, 0.25f, 3, 0, 0.125f}, {FFN_ACTIVATION_RELU6, 0, 0, 3, 0, 0},  {FFN_ACTIVATION_GELU_10, 0, 0, 0, 4, 0},
    };
    uint64_t number = 1000;
    for (int64_t c = 0; c < COUNT_OF(cases); c++)
        for (int repeat = 0; repeat < 4; repeat++) {
            train_case_t is = case_of(number++);
            is.layer.gated = true;
            is.layer.activation = cases[c].activation;
            is.layer.alpha = cases[c].alpha, is.layer.beta = cases[c].beta;
            is.layer.gate_max = cases[c].gate_max, is.layer.up_limit = cases[c].up_limit, is.layer.up_offset = cases[c].up_offset;
            check(&is);
        }
}

static void every_norm_in_every_slot_has_its_derivative_with_every_residual_and_scale(void **state)
{
    (void)state;
    static const norm_case_t norms[] = {{FFN_NORM_LAYER, true, true, 0, 0},  {FFN_NORM_LAYER, false, false, 0.0625f, 0}, {FFN_NORM_LAYER, true, false, 0, 1},
                                        {FFN_NORM_RMS, true, false, 0, 0},   {FFN_NORM_RMS, true, true, 0.0625f, 1},     {FFN_NORM_RMS, false, false, 0, 0},
                                        {FFN_NORM_AFFINE, true, true, 0, 0}, {FFN_NORM_AFFINE, false, true, 0, 0}};
    uint64_t number = 2000;
    for (int slot = 0; slot < 4; slot++)
        for (int64_t norm = 0; norm < COUNT_OF(norms); norm++)
            for (uint32_t residual = FFN_RESIDUAL_NONE; residual <= FFN_RESIDUAL_EXTERNAL; residual++)
                for (int scales = 0; scales < 3; scales++) {
                    train_case_t is = case_of(number++);
                    is.layer.norm[slot] = norms[norm];
                    is.layer.residual = residual;
                    is.layer.branch_scale = (scale_case_t)((number + (uint64_t)scales) % SCALE_CASES);
                    if (residual) is.layer.residual_scale = (scale_case_t)((number / 5 + (uint64_t)scales) % SCALE_CASES);
                    is.layer.gated = number % 3 == 0;
                    check(&is);
                }
}

static void every_scale_has_its_derivative(void **state)
{
    (void)state;
    uint64_t number = 4000;
    for (uint32_t residual = FFN_RESIDUAL_INPUT; residual <= FFN_RESIDUAL_EXTERNAL; residual++)
        for (int branch = 0; branch < SCALE_CASES; branch++)
            for (int scale = 0; scale < SCALE_CASES; scale++) {
                train_case_t is = case_of(number++);
                is.layer.residual = residual;
                is.layer.branch_scale = (scale_case_t)branch;
                is.layer.residual_scale = (scale_case_t)scale;
                check(&is);
            }
}

/* Everything at once, and sizes that meet: d_out other than d_model, four norms, odd batches, layouts of the weights. */
static void random_layers_have_their_derivatives(void **state)
{
    (void)state;
    rng_t rng = rng_make(test_seed() + 5);
    for (uint64_t number = 5000; number < 5300; number++) {
        train_case_t is = case_of(number);
        is.layer.d_model = 2 + rng_below(&rng, 8), is.layer.d_ff = 1 + rng_below(&rng, 20);
        is.layer.residual = (uint32_t)rng_below(&rng, 4);
        if (is.layer.residual == FFN_RESIDUAL_NONE || is.layer.residual == FFN_RESIDUAL_EXTERNAL) is.layer.d_out = 2 + rng_below(&rng, 8);
        is.layer.activation = 1 + (uint32_t)rng_below(&rng, FFN_ACTIVATION_XIELU);
        is.layer.gated = rng_below(&rng, 2);
        is.layer.biases = (uint32_t)rng_below(&rng, 8);
        is.layer.layout = (layout_t)rng_below(&rng, LAYOUTS), is.layer.down_layout = (layout_t)rng_below(&rng, LAYOUTS);
        is.layer.branch_scale = (scale_case_t)rng_below(&rng, SCALE_CASES);
        if (is.layer.residual) is.layer.residual_scale = (scale_case_t)rng_below(&rng, SCALE_CASES);
        for (int slot = 0; slot < 4; slot++)
            if (rng_below(&rng, 2))
                is.layer.norm[slot] = (norm_case_t){1 + (uint32_t)rng_below(&rng, 3), rng_below(&rng, 2), rng_below(&rng, 2), 0, (float)rng_below(&rng, 2)};
        /* Widths of 2 normalised to +-1 have no derivative but what eps leaves. */
        for (int slot = 0; slot < 4; slot++)
            if (is.layer.norm[slot].kind == FFN_NORM_LAYER || is.layer.norm[slot].kind == FFN_NORM_RMS) is.layer.norm[slot].eps = 0.25f;
        is.batch = 1 + rng_below(&rng, 3), is.length = 1 + rng_below(&rng, 4);
        check(&is);
    }
}

/* ------------------------------------------------------------------ Dropout */

static void every_dropout_site_has_its_derivative(void **state)
{
    (void)state;
    uint64_t number = 6000;
    for (int sites = 1; sites < 32; sites++)
        for (int gated = 0; gated < 2; gated++)
            for (int variant = 0; variant < 4; variant++) {
                train_case_t is = case_of(number++);
                is.batch = 3, is.length = 2;
                is.layer.gated = gated;
                is.layer.residual = (uint32_t)variant;
                is.layer.norm[variant] = (norm_case_t){FFN_NORM_LAYER, true, true, 0.0625f, 0};
                is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = number * 0x9e3779b97f4a7c15u, .step = number, .layer = 7,
                                             .first_row = variant * INT64_C(3000000000), .first_sequence = 11};
                for (int site = 0; site < 5; site++)
                    if (sites >> site & 1) is.dropout.p[site] = site == FFN_DROPOUT_PATH ? 0.4f : 0.25f;
                is.dropout.broadcast = variant == 3 ? 0xf & (uint32_t)number : 0;
                check(&is);
            }
}

/* ------------------------------------------------------------- Hard numbers */

static void assert_finite(const train_t *train)
{
    const int64_t in = train->tokens * train->test.is.d_model, out = train->tokens * train->test.is.d_out;
    for (int64_t i = 0; i < in; i++)
        if (!isfinite(train->d_x[i])) fail_msg("d_x[%lld] is %g", (long long)i, (double)train->d_x[i]);
    for (int64_t i = 0; i < out; i++) assert_true(isfinite(train->y[i]));
    for (int role = 0; role < ROLES; role++)
        for (int64_t i = 0; train->gradient[role] && i < train_elements(train, role); i++)
            if (!isfinite(train->gradient[role][i])) fail_msg("the gradient of role %d [%lld] is %g", role, (long long)i, (double)train->gradient[role][i]);
}

/* silu at -548, gelu at +-1e20, zero rows, constant rows, d_model 1: finite forward, finite backward. */
static void no_gradient_is_nan_where_the_forward_is_finite(void **state)
{
    (void)state;
    static const float inputs[] = {0, 1, -548, 1e10f, -1e10f, 1e-30f};
    uint64_t number = 7000;
    for (uint32_t activation = FFN_ACTIVATION_IDENTITY; activation <= FFN_ACTIVATION_XIELU; activation++)
        for (int norm = FFN_NORM_NONE; norm <= FFN_NORM_RMS; norm++)
            for (int64_t width = 1; width < 6; width += 4)
                for (int gated = 0; gated < 2; gated++) {
                    train_case_t is = case_of(number++);
                    train_t train;
                    is.length = COUNT_OF(inputs);
                    is.layer.d_model = width;
                    is.layer.activation = activation;
                    is.layer.gated = gated;
                    is.layer.residual = FFN_RESIDUAL_INPUT;
                    is.layer.norm[FFN_NORM_IN] = (norm_case_t){(uint32_t)norm, true, true, 0, 0};
                    is.layer.norm[FFN_NORM_OUT] = (norm_case_t){(uint32_t)norm, true, true, 0, 0};
                    train_make(&train, &is);
                    for (int64_t t = 0; t < train.tokens; t++)
                        for (int64_t i = 0; i < width; i++) train.x[t * width + i] = inputs[t];
                    train_step(&train, NULL);
                    assert_finite(&train);
                    train_free(&train);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_activation_has_its_derivative_dense_and_gated),
        cmocka_unit_test(parameters_and_clamps_of_published_gates_have_theirs),
        cmocka_unit_test(every_norm_in_every_slot_has_its_derivative_with_every_residual_and_scale),
        cmocka_unit_test(every_scale_has_its_derivative),
        cmocka_unit_test(random_layers_have_their_derivatives),
        cmocka_unit_test(every_dropout_site_has_its_derivative),
        cmocka_unit_test(no_gradient_is_nan_where_the_forward_is_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
