/* SPDX-License-Identifier: MIT
 *
 * ffn_moe_logits against its formula in float64; the scratch memory of the functions of routing, and its failure; what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/failing_allocator.h"
#include "support/guard.h"
#include "support/hostile.h"
#include "support/random.h"
#include "support/test.h"

/* --------------------------------------------------------------------- Formula */

typedef struct matrix_case {
    int64_t tokens, d_model, experts;
    uint32_t norm;
    int transposed, biased, weighted;
} matrix_case_t;

static const matrix_case_t matrix_cases[] = {
    {1, 1, 1, FFN_NORM_NONE, 0, 0, 0},    {1, 64, 8, FFN_NORM_NONE, 0, 1, 0},   {5, 17, 33, FFN_NORM_RMS, 1, 0, 1},
    {57, 40, 64, FFN_NORM_RMS, 0, 1, 0},  {130, 31, 60, FFN_NORM_LAYER, 1, 1, 1}, {3, 1100, 512, FFN_NORM_NONE, 0, 1, 0},
};

static double reference_logit(const matrix_case_t *is, const float *x, const float *weight, const float *bias, const float *norm_weight, int64_t e,
                              double *size)
{
    double mean = 0, square = 0, sum = is->biased ? (double)bias[e] : 0;
    const double n = (double)is->d_model;
    if (is->norm == FFN_NORM_LAYER)
        for (int64_t i = 0; i < is->d_model; i++) mean += (double)x[i] / n;
    for (int64_t i = 0; i < is->d_model; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
    const double scale = is->norm == FFN_NORM_NONE ? 1 : 1 / sqrt(square + (is->norm == FFN_NORM_LAYER ? (double)1e-5f : (double)1e-6f));
    *size = fabs(sum);
    for (int64_t i = 0; i < is->d_model; i++) {
        const double w = (double)(is->transposed ? weight[i * is->experts + e] : weight[e * is->d_model + i]);
        const double term = ((double)x[i] - mean) * scale * (is->weighted ? (double)norm_weight[i] : 1) * w;
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void the_matrix_follows_its_formula(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(matrix_cases); c++) {
        const matrix_case_t *is = &matrix_cases[c];
        const int64_t row = is->d_model + 3; /* padding between rows, NaN */
        guard_buffer_t x = guard_alloc((size_t)((is->tokens - 1) * row + is->d_model) * 4, GUARD_AFTER);
        guard_buffer_t weight = guard_alloc((size_t)(is->experts * is->d_model) * 4, GUARD_AFTER);
        guard_buffer_t logits = guard_alloc((size_t)(is->tokens * is->experts) * 4, GUARD_AFTER);
        float *bias = test_alloc((size_t)is->experts * 4), *norm_weight = test_alloc((size_t)is->d_model * 4);
        rng_t rng = rng_make(test_seed() + (uint64_t)c);
        for (int64_t t = 0; t < is->tokens; t++) rng_fill_normal(&rng, (float *)x.data + t * row, is->d_model);
        rng_fill_normal(&rng, weight.data, is->experts * is->d_model);
        rng_fill_normal(&rng, bias, is->experts);
        rng_fill_normal(&rng, norm_weight, is->d_model);
        ffn_moe_logits_options_t options = {.struct_size = sizeof options, .d_model = is->d_model, .experts = is->experts, .weight = weight.data,
                                            .norm = is->norm, .bias = is->biased ? bias : NULL, .norm_weight = is->weighted ? norm_weight : NULL};
        if (is->transposed) options.weight_stride[0] = 4, options.weight_stride[1] = 4 * is->experts;
        assert_ok(ffn_moe_logits(NULL, &options, is->tokens, x.data, 4 * row, logits.data));
        for (int64_t t = 0; t < is->tokens; t++)
            for (int64_t e = 0; e < is->experts; e++) {
                double size;
                const double expected = reference_logit(is, (float *)x.data + t * row, weight.data, bias, norm_weight, e, &size);
                assert_near((double)((float *)logits.data)[t * is->experts + e], expected, (2 * (double)is->d_model + 4) * 0x1p-24 * size);
            }
        guard_free(&x), guard_free(&weight), guard_free(&logits);
        free(bias), free(norm_weight);
    }
}

/* -------------------------------------------------------------- Scratch memory */

/* A limit of scratch memory makes it slower, or is refused with what it needs. */
static void scratch_limits_are_kept(void **state)
{
    (void)state;
    enum { TOKENS = 100, WIDTH = 64, EXPERTS = 16 };
    float x[TOKENS * WIDTH], weight[WIDTH * EXPERTS], free_run[TOKENS * EXPERTS], tight[TOKENS * EXPERTS];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, x, TOKENS * WIDTH);
    rng_fill_normal(&rng, weight, WIDTH * EXPERTS);
    const ffn_moe_logits_options_t options = {.struct_size = sizeof options, .d_model = WIDTH, .experts = EXPERTS, .weight = weight};
    assert_ok(ffn_moe_logits(NULL, &options, TOKENS, x, 0, free_run));
    int refused = 0, kept = 0;
    for (uint64_t limit = 1024; limit < 200000; limit = limit * 5 / 4) {
        const ffn_context_options_t limits = {.struct_size = sizeof limits, .threads = 3, .scratch_limit = limit};
        ffn_context_info_t info = {.struct_size = sizeof info};
        ffn_context_t *context;
        assert_ok(ffn_context_create(&limits, &context));
        if (ffn_moe_logits(context, &options, TOKENS, x, 0, tight) == FFN_OK) {
            assert_same_bits(free_run, tight, TOKENS * EXPERTS, "limited");
            assert_ok(ffn_context_info(context, &info));
            assert_true(info.scratch_bytes <= limit);
            kept++;
        } else {
            assert_refused(ffn_moe_logits(context, &options, TOKENS, x, 0, tight), FFN_NO_MEMORY, "scratch_limit|at least", "limit");
            refused++;
        }
        ffn_context_free(context);
    }
    assert_true(refused > 0 && kept > 5);
}

static void without_memory_nothing_is_written_and_the_context_goes_on(void **state)
{
    (void)state;
    enum { TOKENS = 20, WIDTH = 8, EXPERTS = 4 };
    float x[TOKENS * WIDTH], weight[EXPERTS * WIDTH], logits[TOKENS * EXPERTS], weights[TOKENS];
    int32_t ids[TOKENS];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, x, TOKENS * WIDTH);
    rng_fill_normal(&rng, weight, EXPERTS * WIDTH);
    for (int i = 0; i < TOKENS * EXPERTS; i++) logits[i] = 42;
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 2, weights[i] = 1;
    failing_allocator_t allocator;
    failing_allocator_init(&allocator);
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1, .allocator = &allocator.hook};
    const ffn_moe_logits_options_t matrix = {.struct_size = sizeof matrix, .d_model = WIDTH, .experts = EXPERTS, .weight = weight};
    const ffn_moe_capacity_options_t limit = {.struct_size = sizeof limit, .capacity = 2, .drop = FFN_MOE_DROP_PROBABILITY};
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = TOKENS, .experts = EXPERTS, .top_k = 1, .ids = ids,
                                       .weights = weights};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    failing_allocator_arm(&allocator, 1, true);
    assert_refused(ffn_moe_logits(context, &matrix, TOKENS, x, 0, logits), FFN_NO_MEMORY, "cannot allocate|scratch memory", "logits");
    assert_refused(ffn_moe_limit(context, &limit, &routing), FFN_NO_MEMORY, "cannot allocate|scratch memory", "limit");
    assert_refused(ffn_moe_expert_choice(context, 1, 0, logits, &routing), FFN_NO_MEMORY, "cannot allocate|scratch memory", "expert choice");
    for (int i = 0; i < TOKENS * EXPERTS; i++) assert_true(logits[i] == 42);
    for (int i = 0; i < TOKENS; i++) assert_true(ids[i] == i % 2 && weights[i] == 1);
    failing_allocator_disarm(&allocator);
    assert_ok(ffn_moe_logits(context, &matrix, TOKENS, x, 0, logits));
    assert_ok(ffn_moe_limit(context, &limit, &routing));
    ffn_context_free(context);
    assert_int_equal(allocator.held, 0);
}

/* -------------------------------------------------------------------- Refused */

static float in[64], out_logits[64];

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define MATRIX(field, ...) PATCH(ffn_moe_logits_options_t, field, __VA_ARGS__)

static const refused_t matrix_refusals[] = {
    {MATRIX(struct_size, 1), "struct_size"},
    {MATRIX(flags, 1), "flags of the router's matrix is 1"},
    {MATRIX(d_model, 0), "d_model is 0"},
    {MATRIX(d_model, (INT64_C(1) << 29) + 1), "d_model is 536870913"},
    {MATRIX(experts, 0), "experts is 0|1 to 768"},
    {MATRIX(experts, 769), "experts is 769|1 to 768"},
    {MATRIX(weight, NULL), "weight is NULL"},
    {MATRIX(weight, out_logits), "weight overlaps logits"},
    {MATRIX(weight_stride, {12, 0}), "weight_stride[1] is 0"},
    {MATRIX(weight_stride, {-12, 4}), "weight_stride[0] is -12"},
    {MATRIX(weight_stride, {13, 4}), "weight_stride[0] is 13|multiple of 4"},
    {MATRIX(weight_stride, {12, INT64_MAX - 3}), "weight_stride[1]|address space"},
    {MATRIX(norm, FFN_NORM_AFFINE), "norm is 3"},
    {MATRIX(norm, FFN_NORM_NONE), "norm_weight is given"},
    {MATRIX(norm_eps, -1), "norm_eps is -1"},
    {MATRIX(norm_eps, NAN), "norm_eps is"},
    {MATRIX(bias, out_logits + 5), "bias overlaps logits"},
    {MATRIX(norm_weight, (const float *)(const void *)((const char *)in + 1)), "norm_weight|multiple of 4"},
};

static void wrong_matrices_are_refused(void **state)
{
    (void)state;
    const ffn_moe_logits_options_t right = {.struct_size = sizeof right, .d_model = 3, .experts = 4, .weight = in, .norm = FFN_NORM_RMS,
                                            .norm_weight = in};
    for (int i = 0; i < 64; i++) out_logits[i] = 42;
    for (int64_t i = 0; i < COUNT_OF(matrix_refusals); i++) {
        ffn_moe_logits_options_t options = right;
        patch_apply(&matrix_refusals[i].patch, &options);
        forget_error();
        assert_refused(ffn_moe_logits(NULL, &options, 2, in, 0, out_logits), FFN_INVALID, matrix_refusals[i].words, matrix_refusals[i].patch.text);
        for (int k = 0; k < 64; k++) assert_true(out_logits[k] == 42);
    }
    assert_refused(ffn_moe_logits(NULL, NULL, 2, in, 0, out_logits), FFN_INVALID, "NULL", "options");
    assert_refused(ffn_moe_logits(NULL, &right, -1, in, 0, out_logits), FFN_INVALID, "tokens is -1", "tokens");
    assert_refused(ffn_moe_logits(NULL, &right, 2, NULL, 0, out_logits), FFN_INVALID, "x is NULL", "x");
    assert_refused(ffn_moe_logits(NULL, &right, 2, in, 8, out_logits), FFN_INVALID, "stride of x is 8|12", "x_stride");
    assert_refused(ffn_moe_logits(NULL, &right, 2, in, 0, NULL), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_logits(NULL, &right, 2, in, 0, in + 5), FFN_INVALID, "x overlaps logits", "logits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_matrix_follows_its_formula),
        cmocka_unit_test(scratch_limits_are_kept),
        cmocka_unit_test(without_memory_nothing_is_written_and_the_context_goes_on),
        cmocka_unit_test(wrong_matrices_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
