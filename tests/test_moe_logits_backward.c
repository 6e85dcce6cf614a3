/* SPDX-License-Identifier: MIT
 *
 * ffn_moe_logits_backward against its formula and central differences in float64: layouts, norms, subsets, blocks, threads; memory of the backward passes of
 * routing, and its failure; what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/failing_allocator.h"
#include "support/hostile.h"
#include "support/random.h"
#include "support/test.h"

/* --------------------------------------------------------------------- Formula */

enum { DENSE, TRANSPOSED, SPARSE };

typedef struct matrix_case {
    int64_t tokens, d_model, experts;
    uint32_t norm;
    int layout, weighted, x_gap;
    uint32_t flags;
} matrix_case_t;

static const matrix_case_t cases[] = {
    {1, 1, 1, FFN_NORM_NONE, DENSE, 0, 0, 0},           {1, 5, 3, FFN_NORM_NONE, DENSE, 0, 2, FFN_BACKWARD_ACCUMULATE},
    {5, 17, 8, FFN_NORM_RMS, TRANSPOSED, 1, 3, 0},      {33, 9, 12, FFN_NORM_LAYER, SPARSE, 1, 0, FFN_MOE_ADD_D_X},
    {70, 12, 4, FFN_NORM_RMS, SPARSE, 0, 1, 3},         {64, 7, 33, FFN_NORM_NONE, TRANSPOSED, 0, 0, FFN_MOE_ADD_D_X},
    {515, 6, 5, FFN_NORM_LAYER, DENSE, 1, 0, 3},        {1030, 3, 2, FFN_NORM_NONE, SPARSE, 0, 5, FFN_BACKWARD_ACCUMULATE},
    {40, 300, 16, FFN_NORM_LAYER, DENSE, 0, 0, 0},      {9, 1, 512, FFN_NORM_RMS, TRANSPOSED, 1, 0, 0},
};

/* All that a case computes with and into; weights [experts, d_model] contiguous, whatever the layout is. */
typedef struct router {
    matrix_case_t is;
    int64_t row;    /* floats from a row of x to the next, and of d_x */
    int64_t place[2]; /* floats from expert to expert and from input to input */
    float *x, *weight, *norm_weight, *d_logits;
    float *d_x, *d_weight, *d_bias, *d_norm_weight;
    ffn_moe_logits_options_t options;
    ffn_moe_logits_gradients_t gradients;
} router_t;

static int64_t weight_floats(const router_t *r)
{
    return (r->is.experts - 1) * r->place[0] + (r->is.d_model - 1) * r->place[1] + 1;
}

static float *filled(int64_t n, float value)
{
    float *v = test_alloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = value;
    return v;
}

static void router_make(router_t *r, const matrix_case_t *is, uint64_t seed)
{
    rng_t rng = rng_make(seed);
    *r = (router_t){.is = *is, .row = is->d_model + is->x_gap};
    r->place[0] = is->layout == TRANSPOSED ? 1 : is->layout == SPARSE ? 2 * is->d_model + 1 : is->d_model;
    r->place[1] = is->layout == TRANSPOSED ? is->experts : is->layout == SPARSE ? 2 : 1;
    r->x = filled(is->tokens * r->row, NAN), r->d_x = filled(is->tokens * r->row, is->flags & FFN_MOE_ADD_D_X ? 0.5f : NAN);
    for (int64_t t = 0; t < is->tokens; t++) rng_fill_normal(&rng, r->x + t * r->row, is->d_model);
    r->weight = filled(weight_floats(r), NAN), r->d_weight = filled(weight_floats(r), is->flags & FFN_BACKWARD_ACCUMULATE ? 0.25f : NAN);
    for (int64_t e = 0; e < is->experts; e++)
        for (int64_t i = 0; i < is->d_model; i++) r->weight[e * r->place[0] + i * r->place[1]] = rng_normal(&rng);
    r->norm_weight = filled(is->d_model, 0), r->d_logits = filled(is->tokens * is->experts, 0);
    rng_fill_normal(&rng, r->norm_weight, is->d_model);
    rng_fill_normal(&rng, r->d_logits, is->tokens * is->experts);
    r->d_bias = filled(is->experts, is->flags & FFN_BACKWARD_ACCUMULATE ? 0.25f : NAN);
    r->d_norm_weight = filled(is->d_model, is->flags & FFN_BACKWARD_ACCUMULATE ? 0.25f : NAN);
    r->options = (ffn_moe_logits_options_t){.struct_size = sizeof r->options, .d_model = is->d_model, .experts = is->experts, .weight = r->weight,
                                            .weight_stride = {4 * r->place[0], 4 * r->place[1]}, .norm = is->norm,
                                            .norm_eps = is->norm ? 0.0625f : 0, .norm_weight = is->weighted ? r->norm_weight : NULL};
    r->gradients = (ffn_moe_logits_gradients_t){.struct_size = sizeof r->gradients, .flags = is->flags, .d_logits = r->d_logits, .d_x = r->d_x,
                                                .d_x_stride = 4 * r->row, .d_weight = r->d_weight, .d_weight_stride = {4 * r->place[0], 4 * r->place[1]},
                                                .d_bias = r->d_bias, .d_norm_weight = is->norm ? r->d_norm_weight : NULL};
}

static void router_free(router_t *r)
{
    float *const all[] = {r->x, r->weight, r->norm_weight, r->d_logits, r->d_x, r->d_weight, r->d_bias, r->d_norm_weight};
    for (int64_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

static ffn_status_t router_back(const router_t *r, ffn_context_t *context)
{
    return ffn_moe_logits_backward(context, &r->options, r->is.tokens, r->x, 4 * r->row, &r->gradients);
}

/* q of a row: what the norm's weight multiplies. Returns what it was divided by. */
static double normed(const router_t *r, const double *x, double *q)
{
    const double n = (double)r->is.d_model;
    double mean = 0, square = 0;
    for (int64_t i = 0; r->is.norm == FFN_NORM_LAYER && i < r->is.d_model; i++) mean += x[i] / n;
    for (int64_t i = 0; i < r->is.d_model; i++) square += (x[i] - mean) * (x[i] - mean) / n;
    const double by = r->is.norm == FFN_NORM_NONE ? 1 : sqrt(square + 0.0625);
    for (int64_t i = 0; i < r->is.d_model; i++) q[i] = (x[i] - mean) / by;
    return by;
}

static double weight_at(const router_t *r, int64_t e, int64_t i)
{
    return (double)r->weight[e * r->place[0] + i * r->place[1]];
}

static double g_at(const router_t *r, int64_t i)
{
    return r->is.weighted ? (double)r->norm_weight[i] : 1;
}

/* The loss of one row, the sum of d_logits * logits. */
static double row_loss(const router_t *r, int64_t t, const double *x)
{
    double q[512], loss = 0;
    normed(r, x, q);
    for (int64_t e = 0; e < r->is.experts; e++)
        for (int64_t i = 0; i < r->is.d_model; i++) loss += (double)r->d_logits[t * r->is.experts + e] * weight_at(r, e, i) * q[i] * g_at(r, i);
    return loss;
}

static void check_d_x(const router_t *r, int64_t t)
{
    const int64_t n = r->is.d_model;
    double x[512] = {0}, q[512] = {0}, d[512], size = 0, mean = 0, along = 0;
    for (int64_t i = 0; i < n; i++) x[i] = (double)r->x[t * r->row + i], d[i] = 0;
    const double by = normed(r, x, q), added = r->is.flags & FFN_MOE_ADD_D_X ? 0.5 : 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t e = 0; e < r->is.experts; e++) d[i] += (double)r->d_logits[t * r->is.experts + e] * weight_at(r, e, i) * g_at(r, i);
        for (int64_t e = 0; e < r->is.experts; e++)
            size = fmax(size, fabs((double)r->d_logits[t * r->is.experts + e] * weight_at(r, e, i) * g_at(r, i)) / by);
        mean += d[i] / (double)n;
        along += d[i] * q[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        const double target = r->is.norm == FFN_NORM_NONE ? d[i] : (d[i] - q[i] * along - (r->is.norm == FFN_NORM_LAYER ? mean : 0)) / by;
        const double at = x[i], step = 1e-5;
        assert_near((double)r->d_x[t * r->row + i], target + added, 0x1p-23 * (double)(r->is.experts + 4) * (size + 1));
        if (t % 16) continue;
        x[i] = at + step;
        const double above = row_loss(r, t, x);
        x[i] = at - step;
        assert_near((above - row_loss(r, t, x)) / (2 * step), target, 1e-7 * (size * (double)r->is.experts + 1));
        x[i] = at;
    }
    for (int64_t i = n; i < r->row; i++) assert_true(r->is.flags & FFN_MOE_ADD_D_X ? r->d_x[t * r->row + i] == 0.5f : isnan(r->d_x[t * r->row + i]));
}

static void check_tensors(const router_t *r)
{
    const int64_t experts = r->is.experts, width = r->is.d_model;
    const double before = r->is.flags & FFN_BACKWARD_ACCUMULATE ? 0.25 : 0, u = 0x1p-24 * (double)(r->is.tokens + 8);
    double *d_weight = calloc((size_t)(experts * width), sizeof *d_weight), *size = calloc((size_t)(experts * width), sizeof *size);
    double d_norm[512] = {0}, norm_size[512] = {0}, d_bias[512] = {0}, bias_size[512] = {0}, x[512], q[512];
    for (int64_t t = 0; t < r->is.tokens; t++) {
        for (int64_t i = 0; i < width; i++) x[i] = (double)r->x[t * r->row + i];
        normed(r, x, q);
        for (int64_t e = 0; e < experts; e++) {
            const double d = (double)r->d_logits[t * experts + e];
            d_bias[e] += d, bias_size[e] += fabs(d);
            for (int64_t i = 0; i < width; i++) {
                d_weight[e * width + i] += d * q[i] * g_at(r, i), size[e * width + i] += fabs(d * q[i] * g_at(r, i));
                d_norm[i] += d * weight_at(r, e, i) * q[i], norm_size[i] += fabs(d * weight_at(r, e, i) * q[i]);
            }
        }
    }
    for (int64_t e = 0; e < experts; e++) {
        assert_near((double)r->d_bias[e], before + d_bias[e], 0x1p-23 * (bias_size[e] + 1));
        for (int64_t i = 0; i < width; i++)
            assert_near((double)r->d_weight[e * r->place[0] + i * r->place[1]], before + d_weight[e * width + i], u * (size[e * width + i] + 1));
    }
    for (int64_t i = 0; r->is.norm && i < width; i++) assert_near((double)r->d_norm_weight[i], before + d_norm[i], 0x1p-21 * (norm_size[i] + 1));
    if (r->is.layout == SPARSE) /* between the elements nothing is written */
        for (int64_t at = 1; at < weight_floats(r); at += 2)
            if (at % r->place[0] < 2 * width - 1 && at % r->place[0] % 2)
                assert_true(before != 0 ? r->d_weight[at] == 0.25f : isnan(r->d_weight[at]));
    free(d_weight), free(size);
}

static void every_layout_and_norm_has_its_derivatives(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(cases); c++) {
        router_t r;
        router_make(&r, &cases[c], test_seed() + (uint64_t)c);
        assert_ok(router_back(&r, NULL));
        for (int64_t t = 0; t < r.is.tokens; t += test_quick() ? 50 : 1) check_d_x(&r, t);
        check_tensors(&r);
        router_free(&r);
    }
}

/* --------------------------------------------------------------------- Threads */

static void any_threads_and_any_subset_give_the_same_bits(void **state)
{
    (void)state;
    const matrix_case_t is = {1100, 65, 12, FFN_NORM_LAYER, DENSE, 1, 0, 0};
    router_t expected;
    router_make(&expected, &is, test_seed());
    assert_ok(router_back(&expected, NULL));
    for (uint32_t threads = 1; threads <= 7; threads++)
        for (int only = -1; only < 4; only++) {
            const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
            ffn_context_t *context;
            router_t r;
            router_make(&r, &is, test_seed());
            if (only >= 0 && only != 0) r.gradients.d_x = NULL;
            if (only >= 0 && only != 1) r.gradients.d_weight = NULL;
            if (only >= 0 && only != 2) r.gradients.d_bias = NULL;
            if (only >= 0 && only != 3) r.gradients.d_norm_weight = NULL;
            assert_ok(ffn_context_create(&options, &context));
            assert_ok(router_back(&r, context));
            if (r.gradients.d_x) assert_same_bits(expected.d_x, r.d_x, is.tokens * is.d_model, "d_x");
            if (r.gradients.d_weight) assert_same_bits(expected.d_weight, r.d_weight, is.experts * is.d_model, "d_weight");
            if (r.gradients.d_bias) assert_same_bits(expected.d_bias, r.d_bias, is.experts, "d_bias");
            if (r.gradients.d_norm_weight) assert_same_bits(expected.d_norm_weight, r.d_norm_weight, is.d_model, "d_norm_weight");
            ffn_context_free(context);
            router_free(&r);
            if (test_quick()) break;
        }
    router_free(&expected);
}

static void no_tokens_give_zeros_or_add_nothing(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags < 2; flags++) {
        const matrix_case_t is = {1, 5, 3, FFN_NORM_RMS, SPARSE, 1, 0, flags};
        router_t r;
        router_make(&r, &is, 1);
        const float expected = flags ? 0.25f : 0;
        r.gradients.d_logits = NULL, r.gradients.d_x = NULL, r.options.weight = NULL;
        assert_ok(ffn_moe_logits_backward(NULL, &r.options, 0, NULL, 0, &r.gradients));
        for (int64_t e = 0; e < 3; e++)
            for (int64_t i = 0; i < 5; i++) assert_true(r.d_weight[e * r.place[0] + i * r.place[1]] == expected);
        for (int64_t i = 0; i < 5; i++) assert_true(r.d_norm_weight[i] == expected);
        for (int64_t i = 0; i < 3; i++) assert_true(r.d_bias[i] == expected);
        router_free(&r);
    }
}

/* -------------------------------------------------------------- Scratch memory */

static void scratch_limits_are_kept(void **state)
{
    (void)state;
    const matrix_case_t is = {300, 16, 4, FFN_NORM_LAYER, SPARSE, 1, 0, 0};
    int refused = 0, kept = 0;
    for (uint64_t limit = 256; limit < 60000; limit = limit * 3 / 2) {
        const ffn_context_options_t limits = {.struct_size = sizeof limits, .threads = 1, .scratch_limit = limit};
        ffn_context_info_t info = {.struct_size = sizeof info};
        ffn_context_t *context;
        router_t r;
        router_make(&r, &is, test_seed());
        assert_ok(ffn_context_create(&limits, &context));
        if (router_back(&r, context) == FFN_OK) {
            for (int64_t t = 0; t < r.is.tokens; t += 7) check_d_x(&r, t);
            check_tensors(&r);
            assert_ok(ffn_context_info(context, &info));
            assert_true(info.scratch_bytes <= limit);
            kept++;
        } else {
            assert_refused(router_back(&r, context), FFN_NO_MEMORY, "scratch_limit|at least", "limit");
            assert_true(isnan(r.d_x[0]) && isnan(r.d_bias[0]));
            refused++;
        }
        ffn_context_free(context);
        router_free(&r);
    }
    assert_true(refused > 0 && kept > 3);
}

static void without_memory_nothing_is_written_and_the_context_goes_on(void **state)
{
    (void)state;
    const matrix_case_t is = {20, 8, 4, FFN_NORM_RMS, DENSE, 1, 0, 0};
    float d_logits[20 * 4], d_scale[4], d_weights[20 * 2] = {0};
    int32_t ids[20 * 2];
    failing_allocator_t allocator;
    failing_allocator_init(&allocator);
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1, .allocator = &allocator.hook};
    const ffn_context_options_t tight = {.struct_size = sizeof tight, .threads = 1, .scratch_limit = 100};
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = 20, .experts = 4, .top_k = 2, .ids = ids};
    const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_logits = d_logits, .d_expert_scale = d_scale};
    ffn_context_t *context, *small;
    router_t r;
    router_make(&r, &is, 1);
    for (int i = 0; i < 80; i++) d_logits[i] = 42;
    for (int i = 0; i < 40; i++) ids[i] = i % 2;
    assert_ok(ffn_context_create(&options, &context));
    assert_ok(ffn_context_create(&tight, &small));
    failing_allocator_arm(&allocator, 1, true);
    assert_refused(ffn_moe_route_backward(context, NULL, r.d_logits, NULL, &routing, &gradients), FFN_NO_MEMORY, "scratch memory", "memory");
    assert_refused(router_back(&r, context), FFN_NO_MEMORY, "scratch memory", "memory");
    failing_allocator_disarm(&allocator);
    assert_refused(ffn_moe_route_backward(small, NULL, r.d_logits, NULL, &routing, &gradients), FFN_NO_MEMORY, "scratch_limit|100|at least", "limit");
    for (int i = 0; i < 80; i++) assert_true(d_logits[i] == 42);
    assert_true(isnan(r.d_x[0]) && isnan(r.d_weight[0]) && isnan(r.d_bias[0]) && isnan(r.d_norm_weight[0]));
    assert_ok(ffn_moe_route_backward(context, NULL, r.d_logits, NULL, &routing, &gradients));
    assert_ok(router_back(&r, context));
    check_tensors(&r);
    ffn_context_free(context);
    ffn_context_free(small);
    router_free(&r);
    assert_int_equal(allocator.held, 0);
}

/* -------------------------------------------------------------------- Refused */

static float in[64], out[64];

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define GRADIENTS(field, ...) PATCH(ffn_moe_logits_gradients_t, field, __VA_ARGS__)
#define OPTIONS(field, ...) PATCH(ffn_moe_logits_options_t, field, __VA_ARGS__)

static const refused_t gradient_refusals[] = {
    {GRADIENTS(struct_size, 2), "struct_size"},
    {GRADIENTS(flags, 4), "flags of the gradients is 0x4"},
    {GRADIENTS(d_logits, NULL), "d_logits is NULL"},
    {GRADIENTS(d_logits, out + 7), "d_logits overlaps d_x"},
    {GRADIENTS(d_x, in), "x overlaps d_x"},
    {GRADIENTS(d_x, in + 19), "weight overlaps d_x"},
    {GRADIENTS(d_x_stride, 8), "stride of d_x is 8|12"},
    {GRADIENTS(d_weight, out + 3), "d_x overlaps d_weight"},
    {GRADIENTS(d_weight_stride, {12, 0}), "d_weight_stride[1] is 0"},
    {GRADIENTS(d_weight_stride, {4, 4}), "d_weight_stride|share an address"},
    {GRADIENTS(d_weight_stride, {-12, 4}), "d_weight_stride[0] is -12"},
    {GRADIENTS(d_bias, out + 27), "d_weight overlaps d_bias"},
    {GRADIENTS(d_norm_weight, out + 31), "d_bias overlaps d_norm_weight"},
    {GRADIENTS(d_bias, (float *)(void *)((char *)in + 1)), "d_bias|multiple of 4"},
};

static const refused_t option_refusals[] = {
    {OPTIONS(struct_size, 1), "struct_size"}, {OPTIONS(weight, NULL), "weight is NULL"}, {OPTIONS(experts, 0), "experts is 0"},
    {OPTIONS(d_model, 0), "d_model is 0"},    {OPTIONS(norm, 3), "norm is 3"},           {OPTIONS(norm, 0), "d_norm_weight is given"},
};

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    const ffn_moe_logits_options_t options = {.struct_size = sizeof options, .d_model = 3, .experts = 4, .weight = in + 18, .norm = FFN_NORM_RMS};
    const ffn_moe_logits_gradients_t right = {.struct_size = sizeof right, .d_logits = in + 40, .d_x = out, .d_weight = out + 16, .d_bias = out + 28,
                                              .d_norm_weight = out + 32};
    for (int i = 0; i < 64; i++) out[i] = 42;
    for (int64_t i = 0; i < COUNT_OF(gradient_refusals); i++) {
        ffn_moe_logits_gradients_t gradients = right;
        patch_apply(&gradient_refusals[i].patch, &gradients);
        forget_error();
        assert_refused(ffn_moe_logits_backward(NULL, &options, 4, in, 0, &gradients), FFN_INVALID, gradient_refusals[i].words,
                       gradient_refusals[i].patch.text);
    }
    for (int64_t i = 0; i < COUNT_OF(option_refusals); i++) {
        ffn_moe_logits_options_t wrong = options;
        patch_apply(&option_refusals[i].patch, &wrong);
        forget_error();
        assert_refused(ffn_moe_logits_backward(NULL, &wrong, 4, in, 0, &right), FFN_INVALID, option_refusals[i].words, option_refusals[i].patch.text);
    }
    assert_refused(ffn_moe_logits_backward(NULL, NULL, 4, in, 0, &right), FFN_INVALID, "ffn_moe_logits_options_t is NULL", "options");
    assert_refused(ffn_moe_logits_backward(NULL, &options, -1, in, 0, &right), FFN_INVALID, "tokens is -1", "tokens");
    assert_refused(ffn_moe_logits_backward(NULL, &options, 4, NULL, 0, &right), FFN_INVALID, "x is NULL", "x");
    assert_refused(ffn_moe_logits_backward(NULL, &options, 4, in, 4, &right), FFN_INVALID, "stride of x is 4", "x_stride");
    assert_refused(ffn_moe_logits_backward(NULL, &options, 4, in, 0, NULL), FFN_INVALID, "ffn_moe_logits_gradients_t is NULL", "gradients");
    for (int i = 0; i < 64; i++) assert_true(out[i] == 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_and_norm_has_its_derivatives),
        cmocka_unit_test(any_threads_and_any_subset_give_the_same_bits),
        cmocka_unit_test(no_tokens_give_zeros_or_add_nothing),
        cmocka_unit_test(scratch_limits_are_kept),
        cmocka_unit_test(without_memory_nothing_is_written_and_the_context_goes_on),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
