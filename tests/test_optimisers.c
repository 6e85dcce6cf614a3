/* SPDX-License-Identifier: MIT
 *
 * SGD, AdamW and clipping against their formulas in float64, at every length and thread count; their kernels at every level, bit against bit; and what
 * is refused.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "kernels/training.h"
#include "support/compare.h"
#include "support/guard.h"
#include "support/hostile.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

enum { MOST = 200001, SMALL = 67 };

typedef struct arrays {
    float weight[MOST], gradient[MOST], first[MOST], second[MOST];
} arrays_t;

static arrays_t *arrays_make(uint64_t seed)
{
    arrays_t *a = test_alloc(sizeof *a);
    rng_t rng = rng_make(test_seed() + seed);
    rng_fill_normal(&rng, a->weight, MOST);
    rng_fill_normal(&rng, a->gradient, MOST);
    memset(a->first, 0, sizeof a->first);
    memset(a->second, 0, sizeof a->second);
    return a;
}

static ffn_context_t *context_of(uint32_t threads)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

/* Half an ulp of float32 for each of `roundings` operations on numbers of this size. */
static void assert_rounded(double got, double expected, double size, int roundings, const char *what)
{
    if (!(fabs(got - expected) <= roundings * 0x1p-24 * size + 0x1p-149)) fail_msg("%s: expected %.9g, got %.9g", what, expected, got);
}

/* ---------------------------------------------------------------------- SGD */

static const ffn_sgd_options_t sgd_cases[] = {
    {.struct_size = sizeof(ffn_sgd_options_t), .learning_rate = 0.1f},
    {.struct_size = sizeof(ffn_sgd_options_t), .learning_rate = 0.1f, .momentum = 0.9f},
    {.struct_size = sizeof(ffn_sgd_options_t), .learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f},
    {.struct_size = sizeof(ffn_sgd_options_t), .learning_rate = 0.1f, .momentum = 0.5f, .flags = FFN_SGD_NESTEROV},
    {.struct_size = sizeof(ffn_sgd_options_t), .learning_rate = 0.1f, .weight_decay = 0.5f},
};

static void sgd_follows_its_formula_over_steps(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(sgd_cases); c++) {
        const ffn_sgd_options_t *o = &sgd_cases[c];
        arrays_t *a = arrays_make((uint64_t)c);
        double velocity[SMALL] = {0};
        for (int step = 0; step < 4; step++) {
            double before[SMALL];
            for (int i = 0; i < SMALL; i++) {
                before[i] = (double)a->weight[i];
                velocity[i] = (double)a->first[i]; /* of float32: one step's roundings at a time */
            }
            assert_ok(ffn_sgd_step(NULL, o, SMALL, a->weight, a->gradient, o->momentum != 0 ? a->first : NULL));
            for (int i = 0; i < SMALL; i++) {
                const double g = (double)a->gradient[i] + (double)o->weight_decay * before[i], v = (double)o->momentum * velocity[i] + g;
                const double size = fabs((double)a->gradient[i]) + fabs(before[i]) + fabs(velocity[i]);
                const double direction = o->flags & FFN_SGD_NESTEROV ? g + (double)o->momentum * v : v;
                if (o->momentum != 0) assert_rounded((double)a->first[i], v, size, 4, "velocity");
                assert_rounded((double)a->weight[i], before[i] - (double)o->learning_rate * direction, fabs(before[i]) + 0.2 * size, 6, "weight");
            }
        }
        free(a);
    }
}

/* -------------------------------------------------------------------- AdamW */

static const ffn_adamw_options_t adamw_cases[] = {
    {.struct_size = sizeof(ffn_adamw_options_t), .learning_rate = 1e-3f},
    {.struct_size = sizeof(ffn_adamw_options_t), .learning_rate = 1e-2f, .beta1 = 0.8f, .beta2 = 0.95f, .eps = 1e-3f, .weight_decay = 0.1f},
    {.struct_size = sizeof(ffn_adamw_options_t), .learning_rate = 0, .weight_decay = 0.1f},
};

static void adamw_follows_its_formula_over_steps(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(adamw_cases); c++) {
        ffn_adamw_options_t o = adamw_cases[c];
        const double beta1 = o.beta1 != 0 ? (double)o.beta1 : (double)0.9f, beta2 = o.beta2 != 0 ? (double)o.beta2 : (double)0.999f;
        const double eps = o.eps != 0 ? (double)o.eps : (double)1e-8f, rate = (double)o.learning_rate, decay = (double)o.weight_decay;
        arrays_t *a = arrays_make((uint64_t)c);
        a->gradient[3] = 0; /* 0 / (0 + eps) */
        double m[SMALL] = {0}, v[SMALL] = {0}, w[SMALL];
        for (int i = 0; i < SMALL; i++) w[i] = (double)a->weight[i];
        for (o.step = 1; o.step <= 50; o.step++) {
            assert_ok(ffn_adamw_step(NULL, &o, SMALL, a->weight, a->gradient, a->first, a->second));
            for (int i = 0; i < SMALL; i++) {
                const double g = (double)a->gradient[i];
                m[i] = beta1 * m[i] + (1 - beta1) * g;
                v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                const double mean = m[i] / (1 - pow(beta1, (double)o.step)), square = v[i] / (1 - pow(beta2, (double)o.step));
                w[i] -= rate * decay * w[i] + rate * mean / (sqrt(square) + eps);
            }
        }
        for (int i = 0; i < SMALL; i++) {
            /* beta1 and beta2 near 1 carry roundings on: 1 / (1 - beta) of them. */
            assert_rounded((double)a->first[i], m[i], fabs((double)a->gradient[i]), 4 * 50, "first moment");
            assert_rounded((double)a->second[i], v[i], (double)a->gradient[i] * (double)a->gradient[i], 4 * 50, "second moment");
            assert_rounded((double)a->weight[i], w[i], fabs(w[i]) + 50 * rate, 4 * 50, "weight");
        }
        free(a);
    }
}

/* ------------------------------------------------------- Levels and threads */

static void every_level_and_place_gives_the_same_bits(void **state)
{
    (void)state;
    kernel_level_t levels[KERNEL_LEVELS_MAX];
    const int level_count = kernel_levels(levels);
    static const sgd_t sgd[] = {{0.1f, 0.9f, 0.01f, 1}, {0.1f, 0.9f, 0, 0}};
    static const adamw_t adamw = {0.9f, 0.999f, 1e-8f, 1e-4f, 1e-2f, 31.6f};
    arrays_t *a = arrays_make(5), *b = test_alloc(sizeof *b);
    rng_t rng = rng_make(3);
    rng_fill_uniform(&rng, a->first, SMALL, -1, 1);
    rng_fill_uniform(&rng, a->second, SMALL, 0, 1);
    a->gradient[5] = NAN;
    a->gradient[7] = INFINITY;
    a->gradient[9] = 1e-40f;
    for (int64_t n = 0; n <= SMALL; n++)
        for (int l = 0; l < level_count; l++)
            for (int k = 0; k < 3; k++) {
                guard_buffer_t w = guard_alloc((size_t)n * 4, GUARD_AFTER), m = guard_alloc((size_t)n * 4, GUARD_AFTER);
                guard_buffer_t v = guard_alloc((size_t)n * 4, GUARD_AFTER), g = guard_alloc((size_t)n * 4, GUARD_AFTER);
                memcpy(b, a, sizeof *a);
                memcpy(w.data, a->weight, (size_t)n * 4);
                memcpy(m.data, a->first, (size_t)n * 4);
                memcpy(v.data, a->second, (size_t)n * 4);
                memcpy(g.data, a->gradient, (size_t)n * 4);
                for (int64_t i = 0; i < n; i++) /* one by one at the scalar level */
                    if (k < 2) ffni_training_scalar.sgd(&sgd[k], 1, b->weight + i, b->gradient + i, b->first + i);
                    else ffni_training_scalar.adamw(&adamw, 1, b->weight + i, b->gradient + i, b->first + i, b->second + i);
                if (k < 2) levels[l].table->training->sgd(&sgd[k], n, w.data, g.data, m.data);
                else levels[l].table->training->adamw(&adamw, n, w.data, g.data, m.data, v.data);
                for (int64_t i = 0; i < n; i++)
                    if (isnan(b->weight[i])) ((float *)w.data)[i] = b->weight[i], ((float *)m.data)[i] = b->first[i], ((float *)v.data)[i] = b->second[i];
                assert_same_bits(b->weight, w.data, n, levels[l].name);
                assert_same_bits(b->first, m.data, n, levels[l].name);
                if (k == 2) assert_same_bits(b->second, v.data, n, levels[l].name);
                guard_free(&w), guard_free(&m), guard_free(&v), guard_free(&g);
            }
    free(a);
    free(b);
}

static void nan_reaches_weight_and_state(void **state)
{
    (void)state;
    kernel_level_t levels[KERNEL_LEVELS_MAX];
    const adamw_t adamw = {0.9f, 0.999f, 1e-8f, 1e-4f, 1e-2f, 31.6f};
    const int count = kernel_levels(levels);
    for (int l = 0; l < count; l++)
        for (int at = 0; at < 17; at++) {
            float w[17] = {0}, g[17] = {0}, m[17] = {0}, v[17] = {0};
            g[at] = NAN;
            levels[l].table->training->adamw(&adamw, 17, w, g, m, v);
            for (int i = 0; i < 17; i++) assert_int_equal(!!isnan(w[i]) + !!isnan(m[i]) + !!isnan(v[i]), i == at ? 3 : 0);
        }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 7, 16};
    const ffn_adamw_options_t adamw = {.struct_size = sizeof adamw, .learning_rate = 1e-2f, .step = 1};
    arrays_t *expected = NULL;
    double expected_norm = 0;
    for (int64_t t = 0; t < COUNT_OF(threads); t++) {
        ffn_context_t *context = context_of(threads[t]);
        arrays_t *a = arrays_make(9);
        double norm;
        assert_ok(ffn_sgd_step(context, &sgd_cases[2], MOST, a->weight, a->gradient, a->first));
        memset(a->first, 0, sizeof a->first);
        assert_ok(ffn_adamw_step(context, &adamw, MOST, a->weight, a->gradient, a->first, a->second));
        float *const list[] = {a->gradient};
        const int64_t counts[] = {MOST};
        assert_ok(ffn_clip_global_norm(context, list, counts, 1, 1.5, &norm));
        if (expected) {
            assert_same_bits(expected->weight, a->weight, 4 * (int64_t)MOST, "threads");
            assert_true(norm == expected_norm);
            free(a);
        } else {
            expected = a;
            expected_norm = norm;
        }
        ffn_context_free(context);
    }
    free(expected);
}

/* ------------------------------------------------------------------ Clipping */

static void clipping_scales_to_the_norm_and_only_from_above(void **state)
{
    (void)state;
    arrays_t *a = arrays_make(11), *before = arrays_make(11);
    float *const list[] = {a->weight, NULL, a->gradient};
    const int64_t counts[] = {MOST, 0, 1000};
    double square = 0, norm;
    for (int64_t i = 0; i < MOST; i++) square += (double)a->weight[i] * (double)a->weight[i];
    for (int64_t i = 0; i < 1000; i++) square += (double)a->gradient[i] * (double)a->gradient[i];
    assert_ok(ffn_clip_global_norm(NULL, list, counts, 3, INFINITY, &norm));
    assert_near(norm / sqrt(square), 1, 1e-12);
    assert_ok(ffn_clip_global_norm(NULL, list, counts, 3, norm, &norm));
    assert_same_bits(before->weight, a->weight, MOST, "not above the limit");
    assert_ok(ffn_clip_global_norm(NULL, list, counts, 3, 2, &norm));
    assert_near(norm / sqrt(square), 1, 1e-12);
    for (int64_t i = 0; i < MOST; i++)
        assert_rounded((double)a->weight[i], (double)before->weight[i] * 2 / norm, fabs((double)a->weight[i]), 3, "clipped");
    assert_same_bits(before->gradient + 1000, a->gradient + 1000, MOST - 1000, "beyond the count");
    assert_ok(ffn_clip_global_norm(NULL, list, counts, 3, 100, &norm));
    assert_near(norm, 2, 1e-6);
    free(a);
    free(before);
}

static void a_norm_that_is_not_finite_changes_nothing_and_a_huge_one_is_no_overflow(void **state)
{
    (void)state;
    float v[3] = {1, NAN, 2}, huge[2] = {3e38f, 3e38f};
    float *const list[] = {v}, *const hugest[] = {huge};
    const int64_t three = 3, two = 2;
    double norm;
    assert_ok(ffn_clip_global_norm(NULL, list, &three, 1, 0.5, &norm));
    assert_true(isnan(norm) && v[0] == 1 && v[2] == 2);
    v[1] = -INFINITY;
    assert_ok(ffn_clip_global_norm(NULL, list, &three, 1, 0.5, &norm));
    assert_true(isinf(norm) && v[0] == 1 && v[2] == 2);
    assert_ok(ffn_clip_global_norm(NULL, hugest, &two, 1, 1, &norm));
    assert_near(norm / 4.24264068711928e38, 1, 1e-6);
    assert_near((double)huge[0], 0.70710678, 1e-6);
    assert_ok(ffn_clip_global_norm(NULL, NULL, NULL, 0, 1, &norm));
    assert_true(norm == 0);
}

/* ------------------------------------------------------------------- Refused */

static float w[8], g[8], m[8], v[8];

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define SGD(field, ...) PATCH(ffn_sgd_options_t, field, __VA_ARGS__)
#define ADAMW(field, ...) PATCH(ffn_adamw_options_t, field, __VA_ARGS__)

static const refused_t sgd_refusals[] = {
    {SGD(struct_size, 3), "struct_size"},        {SGD(flags, 2), "flags|0x2"},
    {SGD(learning_rate, NAN), "learning_rate is"}, {SGD(learning_rate, -1), "learning_rate is -1"},
    {SGD(learning_rate, INFINITY), "learning_rate is inf"},
    {SGD(momentum, 1), "momentum is 1|below 1"}, {SGD(momentum, NAN), "momentum is"},
    {SGD(momentum, 0), "FFN_SGD_NESTEROV|momentum is 0"},
    {SGD(weight_decay, -1), "weight_decay is -1"}, {SGD(weight_decay, NAN), "weight_decay is"},
    {SGD(reserved, 1), "reserved"},
};

static void wrong_sgd_options_are_refused(void **state)
{
    (void)state;
    const ffn_sgd_options_t right = {.struct_size = sizeof right, .flags = FFN_SGD_NESTEROV, .momentum = 0.5f};
    for (int64_t i = 0; i < COUNT_OF(sgd_refusals); i++) {
        ffn_sgd_options_t o = right;
        patch_apply(&sgd_refusals[i].patch, &o);
        forget_error();
        assert_refused(ffn_sgd_step(NULL, &o, 8, w, g, v), FFN_INVALID, sgd_refusals[i].words, sgd_refusals[i].patch.text);
    }
    assert_refused(ffn_sgd_step(NULL, NULL, 8, w, g, v), FFN_INVALID, "NULL", "options");
    assert_refused(ffn_sgd_step(NULL, &right, 8, w, g, NULL), FFN_INVALID, "velocity is NULL|0.5", "velocity");
    assert_refused(ffn_sgd_step(NULL, &right, -1, w, g, v), FFN_INVALID, "length of weight is -1", "n");
    assert_refused(ffn_sgd_step(NULL, &right, 8, NULL, g, v), FFN_INVALID, "weight is NULL", "weight");
    assert_refused(ffn_sgd_step(NULL, &right, 8, w, NULL, v), FFN_INVALID, "gradient is NULL", "gradient");
    assert_refused(ffn_sgd_step(NULL, &right, 4, w, w + 3, v), FFN_INVALID, "weight overlaps gradient", "overlap");
    assert_refused(ffn_sgd_step(NULL, &right, 4, w, g, g), FFN_INVALID, "gradient overlaps velocity", "overlap");
    assert_refused(ffn_sgd_step(NULL, &right, 1, w, (float *)(void *)((char *)g + 2), v), FFN_INVALID, "multiple of 4", "address");
    assert_ok(ffn_sgd_step(NULL, &right, 4, w, w + 4, v));
    assert_ok(ffn_sgd_step(NULL, &right, 0, NULL, NULL, NULL));
}

static const refused_t adamw_refusals[] = {
    {ADAMW(struct_size, 3), "struct_size"},    {ADAMW(flags, 1), "flags of AdamW is 1"},
    {ADAMW(step, 0), "step is 0"},             {ADAMW(step, -5), "step is -5"},
    {ADAMW(learning_rate, NAN), "learning_rate is"}, {ADAMW(learning_rate, -1), "learning_rate is -1"},
    {ADAMW(beta1, 1), "beta1 is 1"},           {ADAMW(beta1, -0.1f), "beta1 is -0.1"},
    {ADAMW(beta2, NAN), "beta2 is"},           {ADAMW(beta2, 1), "beta2 is 1"},
    {ADAMW(eps, -1), "eps is -1"},             {ADAMW(eps, INFINITY), "eps is inf"},
    {ADAMW(weight_decay, NAN), "weight_decay"}, {ADAMW(reserved, 1), "reserved"},
};

static void wrong_adamw_options_are_refused(void **state)
{
    (void)state;
    const ffn_adamw_options_t right = {.struct_size = sizeof right, .step = 1};
    for (int64_t i = 0; i < COUNT_OF(adamw_refusals); i++) {
        ffn_adamw_options_t o = right;
        patch_apply(&adamw_refusals[i].patch, &o);
        forget_error();
        assert_refused(ffn_adamw_step(NULL, &o, 8, w, g, m, v), FFN_INVALID, adamw_refusals[i].words, adamw_refusals[i].patch.text);
    }
    assert_refused(ffn_adamw_step(NULL, &right, 8, w, g, NULL, v), FFN_INVALID, "first is NULL", "first");
    assert_refused(ffn_adamw_step(NULL, &right, 8, w, g, m, m), FFN_INVALID, "first overlaps second", "overlap");
    assert_ok(ffn_adamw_step(NULL, &right, 0, NULL, NULL, NULL, NULL));
}

static void wrong_clipping_is_refused(void **state)
{
    (void)state;
    float *const list[] = {w, NULL};
    const int64_t counts[] = {8, 8}, negative[] = {-8};
    double norm;
    assert_refused(ffn_clip_global_norm(NULL, list, counts, 1, 0, &norm), FFN_INVALID, "max_norm is 0", "max_norm");
    assert_refused(ffn_clip_global_norm(NULL, list, counts, 1, NAN, &norm), FFN_INVALID, "max_norm is", "max_norm");
    assert_refused(ffn_clip_global_norm(NULL, list, counts, 1, 1, NULL), FFN_INVALID, "norm is NULL", "norm");
    assert_refused(ffn_clip_global_norm(NULL, NULL, counts, 1, 1, &norm), FFN_INVALID, "arrays is NULL", "arrays");
    assert_refused(ffn_clip_global_norm(NULL, list, NULL, 1, 1, &norm), FFN_INVALID, "counts is NULL", "counts");
    assert_refused(ffn_clip_global_norm(NULL, list, counts, 2, 1, &norm), FFN_INVALID, "is NULL", "an array");
    assert_refused(ffn_clip_global_norm(NULL, list, negative, 1, 1, &norm), FFN_INVALID, "is -8", "a count");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_its_formula_over_steps),
        cmocka_unit_test(adamw_follows_its_formula_over_steps),
        cmocka_unit_test(every_level_and_place_gives_the_same_bits),
        cmocka_unit_test(nan_reaches_weight_and_state),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(clipping_scales_to_the_norm_and_only_from_above),
        cmocka_unit_test(a_norm_that_is_not_finite_changes_nothing_and_a_huge_one_is_no_overflow),
        cmocka_unit_test(wrong_sgd_options_are_refused),
        cmocka_unit_test(wrong_adamw_options_are_refused),
        cmocka_unit_test(wrong_clipping_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
