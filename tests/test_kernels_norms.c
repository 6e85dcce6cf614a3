/* SPDX-License-Identifier: MIT
 *
 * The values of the norms and of the closing pass at every level: against formulas in long double, rows on which one-pass variances fail, constant
 * rows, the largest and smallest numbers, NaN and infinities.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "support/compare.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

enum { MOST = 5000 };

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;
static const char *const norm_names[NORM_KINDS] = {"layer", "rms", "affine"};

static double half_ulp(double value)
{
    int exponent;
    frexp(value, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 25);
}

/* ------------------------------------------------------------------ Norms */

typedef struct statistics {
    long double mean, deviation; /* what is subtracted, and what is divided by */
} statistics_t;

static statistics_t statistics(norm_kind_t kind, double eps, int64_t n, const float *x)
{
    statistics_t s = {0, 1};
    if (kind == NORM_AFFINE) return s;
    long double sum = 0;
    if (kind == NORM_LAYER) {
        for (int64_t i = 0; i < n; i++) s.mean += x[i];
        s.mean /= n;
    }
    for (int64_t i = 0; i < n; i++) sum += (x[i] - s.mean) * (x[i] - s.mean);
    s.deviation = sqrtl(sum / n + eps);
    return s;
}

/* Half an ulp for each rounding of ((x - mean) / deviation) * (offset + weight) + bias, and what n roundings to float64 do to the mean. */
static void check_norm(const kernel_level_t *level, norm_kind_t kind, const norm_t *norm, int64_t n, const float *x)
{
    static float got[MOST];
    const statistics_t s = statistics(kind, (double)norm->eps, n, x);
    const double of_sums = (double)n * DBL_EPSILON * (largest_magnitude(x, n) / (double)s.deviation + 1);
    level->table->normalise[kind](norm, n, got, x);
    for (int64_t i = 0; i < n; i++) {
        const double standard = (double)((x[i] - s.mean) / s.deviation);
        const double factor = norm->weight ? (double)norm->offset + (double)norm->weight[i] : 1.0, bias = norm->bias ? (double)norm->bias[i] : 0.0;
        const double expected = standard * factor + bias;
        double bound = (kind == NORM_AFFINE ? 0.0 : half_ulp(standard) + of_sums) * fabs(factor);
        if (norm->weight) bound += half_ulp(factor) * fabs(standard) + half_ulp(standard * factor);
        if (norm->bias) bound += half_ulp(expected);
        bound *= 1 + 0x1p-22; /* second order */
        if (!(fabs((double)got[i] - expected) <= bound))
            fail_msg("%s, %s, n = %lld, element %lld: expected %.9g within %.3g, got %.9g", level->name, norm_names[kind], (long long)n, (long long)i,
                     expected, bound, (double)got[i]);
    }
}

static void norms_agree_with_the_formula_at_many_lengths(void **state)
{
    (void)state;
    static const int64_t long_rows[] = {127, 128, 129, 511, 768, 1000, 4096, 4999};
    static const double centers[] = {0, 1, -300, 1e5}, spreads[] = {1, 1e-3, 1e12, 1e-20};
    static float x[MOST], weight[MOST], bias[MOST];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, weight, MOST);
    rng_fill_normal(&rng, bias, MOST);
    for (int64_t j = 0; j < 67 + COUNT_OF(long_rows); j++) {
        const int64_t n = j < 67 ? j + 1 : long_rows[j - 67];
        for (int64_t i = 0; i < n; i++) x[i] = (float)(centers[j % 4] + spreads[j / 4 % 4] * (double)rng_normal(&rng));
        for (int l = 0; l < level_count; l++)
            for (int kind = 0; kind < NORM_KINDS; kind++)
                for (int given = 0; given < 8; given++) {
                    const norm_t norm = {given & 4 ? 1e-5f : 1e-12f, given & 4 ? 1 : 0, given & 1 ? weight : NULL, given & 2 ? bias : NULL};
                    check_norm(&levels[l], (norm_kind_t)kind, &norm, n, x);
                }
    }
}

/* The same lanes and the same order of sums at both vector levels. */
static void the_vector_levels_agree_in_every_bit(void **state)
{
    (void)state;
    if (level_count < 3) skip();
    static float x[MOST], a[MOST], b[MOST];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, x, MOST);
    const norm_t norm = {1e-5f, 1, x, x};
    for (int64_t n = 1; n <= MOST; n += n < 70 ? 1 : 493)
        for (int kind = 0; kind < NORM_KINDS; kind++) {
            levels[1].table->normalise[kind](&norm, n, a, x);
            levels[2].table->normalise[kind](&norm, n, b, x);
            assert_same_bits(a, b, n, norm_names[kind]);
        }
}

typedef struct known_row {
    const char *name;
    int64_t n;
    double base, step;
    double first, last, tolerance;
} known_row_t;

/* Mean far from 0 beside the spread: E[x^2] - E[x]^2 has no digit left. */
static const known_row_t known_rows[] = {
    {"40000 .. 40003", 4, 40000, 1, -1.34163542, 1.34163542, 2e-7},
    {"80000 .. 80003", 4, 80000, 1, -1.34163542, 1.34163542, 2e-7},
    {"100 + i/1000", 16, 100, 1e-3, -1.34152771, 1.34135713, 2e-7},
    {"1000 + i/1000", 16, 1000, 1e-3, -1.34150776, 1.34423718, 2e-7},
    {"10000 + i/1000", 16, 10000, 1e-3, -1.33133335, 1.33133335, 2e-7},
};

static void rows_far_from_zero_keep_their_digits(void **state)
{
    (void)state;
    for (int l = 0; l < level_count; l++)
        for (int64_t r = 0; r < COUNT_OF(known_rows); r++) {
            const known_row_t *row = &known_rows[r];
            const norm_t norm = {.eps = 1e-5f};
            float x[16], got[16];
            for (int64_t i = 0; i < row->n; i++) x[i] = (float)(row->base + (double)i * row->step);
            levels[l].table->normalise[NORM_LAYER](&norm, row->n, got, x);
            assert_near((double)got[0], row->first, row->tolerance);
            assert_near((double)got[row->n - 1], row->last, row->tolerance);
            if (row->n == 4) assert_near((double)got[1], -0.447211807, 1e-7);
        }
}

static void a_constant_row_gives_exactly_the_bias(void **state)
{
    (void)state;
    static const float constants[] = {0, 1234.0f, 0.1f, -3.3333333f, 1e-45f, 1e19f, FLT_MAX, -FLT_MAX};
    static float x[MOST], weight[MOST], bias[MOST], got[MOST];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, weight, MOST);
    rng_fill_normal(&rng, bias, MOST);
    const norm_t norm = {1e-5f, 1, weight, bias};
    for (int l = 0; l < level_count; l++)
        for (int64_t c = 0; c < COUNT_OF(constants); c++)
            for (int64_t n = 1; n <= MOST; n = n < 70 ? n + 1 : n * 2 + 1) {
                for (int64_t i = 0; i < n; i++) x[i] = constants[c];
                levels[l].table->normalise[NORM_LAYER](&norm, n, got, x);
                assert_same_bits(bias, got, n, levels[l].name);
            }
}

static void the_largest_and_smallest_numbers_are_normalised(void **state)
{
    (void)state;
    static const double sizes[] = {1e-45, 1e-30, 1e19, 1e30, FLT_MAX};
    for (int l = 0; l < level_count; l++)
        for (int64_t s = 0; s < COUNT_OF(sizes); s++)
            for (int64_t n = 2; n < 40; n += 2)
                for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++) {
                    float x[40], got[40];
                    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 2 ? sizes[s] : -sizes[s]);
                    const norm_t norm = {.eps = sizes[s] < 1 ? 1e-38f : 1e-5f};
                    const double expected = (double)x[1] / sqrt((double)x[1] * (double)x[1] + (double)norm.eps);
                    levels[l].table->normalise[kind](&norm, n, got, x);
                    for (int64_t i = 0; i < n; i++) assert_near((double)got[i], i % 2 ? expected : -expected, 6e-8 * expected + 1e-45);
                }
}

static void one_nan_makes_a_row_of_nan(void **state)
{
    (void)state;
    for (int l = 0; l < level_count; l++)
        for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++)
            for (int64_t n = 1; n <= 33; n++)
                for (int64_t at = 0; at < n; at++) {
                    float x[33], got[33];
                    const norm_t norm = {.eps = 1e-5f};
                    for (int64_t i = 0; i < n; i++) x[i] = (float)i;
                    x[at] = NAN;
                    levels[l].table->normalise[kind](&norm, n, got, x);
                    for (int64_t i = 0; i < n; i++)
                        if (!isnan(got[i]))
                            fail_msg("%s, %s: NaN at %lld of %lld, element %lld is %g", levels[l].name, norm_names[kind], (long long)at,
                                     (long long)n, (long long)i, (double)got[i]);
                }
}

/* ---------------------------------------------------------------- Combine */

/* The operations of the formula in float32, one rounding each: every level must give these bits. */
static float combined(float branch, const float *bias, const float *scale, const float *residual, const float *residual_scale)
{
    float y = branch;
    if (bias) y = y + *bias;
    if (scale) y = *scale * y;
    if (!residual) return y;
    const float r = residual_scale ? *residual_scale * *residual : *residual;
    return r + y;
}

static void combine_is_the_formula_in_float32(void **state)
{
    (void)state;
    static float in[5][MOST], got[MOST];
    rng_t rng = rng_make(test_seed());
    for (int k = 0; k < 5; k++)
        for (int64_t i = 0; i < MOST; i++) in[k][i] = i % 3 ? rng_normal(&rng) : rng_any_bits(&rng);
    for (int l = 0; l < level_count; l++)
        for (int given = 0; given < 16; given++) {
            const float *bias = given & 1 ? in[1] : NULL, *scale = given & 2 ? in[2] : NULL, *residual = given & 4 ? in[3] : NULL;
            const float *residual_scale = given & 8 && residual ? in[4] : NULL;
            levels[l].table->combine(MOST, got, in[0], bias, scale, residual, residual_scale);
            for (int64_t i = 0; i < MOST; i++) {
                const float expected = combined(in[0][i], bias ? bias + i : NULL, scale ? scale + i : NULL, residual ? residual + i : NULL,
                                                residual_scale ? residual_scale + i : NULL);
                if (ulp_distance(expected, got[i]) != 0)
                    fail_msg("%s, combine, given %x, element %lld: expected %.9g, got %.9g", levels[l].name, (unsigned)given, (long long)i,
                             (double)expected, (double)got[i]);
            }
        }
}

/* Likewise: products and sums in the order of the rows. */
static void mix_is_the_formula_in_float32(void **state)
{
    (void)state;
    static float in[5][MOST], got[MOST];
    const float *const rows[5] = {in[0], in[1], in[2], in[3], in[4]};
    const float weights[5] = {0.25f, -1.5f, 1, 3e-20f, 0.7f};
    rng_t rng = rng_make(test_seed());
    for (int k = 0; k < 5; k++)
        for (int64_t i = 0; i < MOST; i++) in[k][i] = i % 3 ? rng_normal(&rng) : rng_any_bits(&rng);
    for (int l = 0; l < level_count; l++)
        for (int64_t count = 0; count <= 5; count++) {
            levels[l].table->mix(MOST, got, count, rows, weights);
            for (int64_t i = 0; i < MOST; i++) {
                float expected = count ? weights[0] * rows[0][i] : 0;
                for (int64_t k = 1; k < count; k++) {
                    const float product = weights[k] * rows[k][i];
                    expected = expected + product;
                }
                if (ulp_distance(expected, got[i]) != 0)
                    fail_msg("%s, mix of %lld, element %lld: expected %.9g, got %.9g", levels[l].name, (long long)count, (long long)i,
                             (double)expected, (double)got[i]);
            }
        }
}

int main(void)
{
    level_count = kernel_levels(levels);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_agree_with_the_formula_at_many_lengths),
        cmocka_unit_test(the_vector_levels_agree_in_every_bit),
        cmocka_unit_test(rows_far_from_zero_keep_their_digits),
        cmocka_unit_test(a_constant_row_gives_exactly_the_bias),
        cmocka_unit_test(the_largest_and_smallest_numbers_are_normalised),
        cmocka_unit_test(one_nan_makes_a_row_of_nan),
        cmocka_unit_test(combine_is_the_formula_in_float32),
        cmocka_unit_test(mix_is_the_formula_in_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
