/* SPDX-License-Identifier: MIT
 *
 * The derivatives of the norms at every level: against formulas in long double at many lengths, constant rows, single numbers, zero rows, the largest
 * numbers, and rows far from 0.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/training.h"
#include "support/compare.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

enum { MOST = 5000 };

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;
static const char *const norm_names[NORM_KINDS] = {"layer", "rms", "affine"};
static float x[MOST], d_y[MOST], weight[MOST], start[MOST];
static float d_x[MOST], d_weight[MOST], d_bias[MOST];

static double half_ulp(double value)
{
    int exponent;
    frexp(value, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 25);
}

/* What the derivatives are made of: q = (x - mean) / s, the means of e and of e q, and of their magnitudes. */
typedef struct parts {
    long double mean, s, e_mean, product_mean;
    double e_size, product_size;
} parts_t;

static long double factor_of(const norm_t *norm, int64_t i)
{
    return norm->weight ? (long double)(norm->offset + norm->weight[i]) : 1;
}

static parts_t parts_of(norm_kind_t kind, const norm_t *norm, int64_t n)
{
    parts_t p = {.s = 1};
    if (kind == NORM_AFFINE) return p;
    long double square = 0;
    for (int64_t i = 0; kind == NORM_LAYER && i < n; i++) p.mean += x[i];
    p.mean /= n;
    for (int64_t i = 0; i < n; i++) square += (x[i] - p.mean) * (x[i] - p.mean);
    p.s = sqrtl(square / n + norm->eps);
    for (int64_t i = 0; i < n; i++) {
        const long double e = d_y[i] * factor_of(norm, i), q = (x[i] - p.mean) / p.s;
        p.e_mean += e / n;
        p.product_mean += e * q / n;
        p.e_size += (double)fabsl(e) / (double)n;
        p.product_size += (double)fabsl(e * q) / (double)n;
    }
    if (kind == NORM_RMS) p.e_mean = 0;
    return p;
}

static void fail_at(const kernel_level_t *level, norm_kind_t kind, const char *what, int64_t n, int64_t i, double expected, double bound, double got)
{
    fail_msg("%s, %s, %s, n = %lld, element %lld: expected %.9g within %.3g, got %.9g", level->name, norm_names[kind], what, (long long)n, (long long)i,
             expected, bound, got);
}

/* Half an ulp for each float32 rounding, and what n roundings to float64 do to the sums and to what subtracting the mean leaves. */
static void check_norm(const kernel_level_t *level, norm_kind_t kind, const norm_t *norm, int64_t n)
{
    const parts_t p = parts_of(kind, norm, n);
    const double largest = largest_magnitude(x, n) / (double)p.s, of_sums = 2 * (double)(n + 8) * DBL_EPSILON;
    memcpy(d_weight, start, (size_t)n * sizeof *start);
    memcpy(d_bias, start, (size_t)n * sizeof *start);
    level->table->training->differentiate_norm[kind](norm, n, d_x, d_y, x, d_weight, d_bias);
    for (int64_t i = 0; i < n; i++) {
        const long double e = d_y[i] * factor_of(norm, i), q = (x[i] - p.mean) / p.s;
        const double expected = (double)((e - p.e_mean - (kind == NORM_AFFINE ? 0 : q * p.product_mean)) / p.s);
        const double q_error = kind == NORM_AFFINE ? 0 : of_sums * (largest + 1);
        const double of_terms = fabs((double)e) + p.e_size + (fabs((double)q) + largest + 1) * (p.product_size + p.e_size * (largest + 1));
        const double bound = half_ulp(expected) * 1.0001 + (kind == NORM_AFFINE ? 0 : of_sums * of_terms / (double)p.s);
        if (!(fabs((double)d_x[i] - expected) <= bound)) fail_at(level, kind, "d_x", n, i, expected, bound, (double)d_x[i]);
        const double product = (double)(d_y[i] * q), total = product + (double)start[i];
        const double w_bound = 1.0001 * (fabs((double)d_y[i]) * ((kind == NORM_AFFINE ? 0 : half_ulp((double)q)) + q_error) + half_ulp(product) + half_ulp(total));
        if (!(fabs((double)d_weight[i] - total) <= w_bound)) fail_at(level, kind, "d_weight", n, i, total, w_bound, (double)d_weight[i]);
        if (d_bias[i] != start[i] + d_y[i]) fail_at(level, kind, "d_bias", n, i, (double)(start[i] + d_y[i]), 0, (double)d_bias[i]);
    }
}

static void norm_derivatives_agree_with_the_formula_at_many_lengths(void **state)
{
    (void)state;
    static const int64_t long_rows[] = {127, 128, 129, 511, 768, 1000, 4096, 4999};
    static const double centers[] = {0, 1, -300, 1e5}, spreads[] = {1, 1e-3, 1e12, 1e-20};
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, weight, MOST);
    rng_fill_normal(&rng, d_y, MOST);
    rng_fill_normal(&rng, start, MOST);
    for (int64_t j = 0; j < 67 + COUNT_OF(long_rows); j++) {
        const int64_t n = j < 67 ? j + 1 : long_rows[j - 67];
        for (int64_t i = 0; i < n; i++) x[i] = (float)(centers[j % 4] + spreads[j / 4 % 4] * (double)rng_normal(&rng));
        for (int l = 0; l < level_count; l++)
            for (int kind = 0; kind < NORM_KINDS; kind++)
                for (int given = 0; given < 4; given++) {
                    const norm_t norm = {given & 2 ? 1e-5f : 1e-12f, given & 2 ? 1 : 0, given & 1 ? weight : NULL, NULL};
                    check_norm(&levels[l], (norm_kind_t)kind, &norm, n);
                }
    }
}

/* The derivative of a norm is orthogonal to the row, LayerNorm's also to 1: a constant row and a single number have nothing but their mean. */
static void constant_rows_and_single_numbers_lose_the_mean_alone(void **state)
{
    (void)state;
    static const float values[] = {0, 1, -7.3f, 1e19f, 3e38f, 1e-40f};
    rng_t rng = rng_make(test_seed() + 1);
    rng_fill_normal(&rng, d_y, MOST);
    for (int64_t v = 0; v < COUNT_OF(values); v++)
        for (int64_t n = 1; n <= 300; n += n < 40 ? 1 : 37)
            for (int l = 0; l < level_count; l++) {
                const norm_t norm = {1e-5f, 0, NULL, NULL};
                double mean = 0;
                for (int64_t i = 0; i < n; i++) {
                    x[i] = values[v];
                    mean += (double)d_y[i] / (double)n;
                }
                levels[l].table->training->differentiate_norm[NORM_LAYER](&norm, n, d_x, d_y, x, NULL, NULL);
                const double deviation = sqrt((double)norm.eps);
                for (int64_t i = 0; i < n; i++)
                    assert_near((double)d_x[i], ((double)d_y[i] - mean) / deviation, n == 1 ? 0 : 1e-7 * fabs((double)d_x[i]) + 1e-11);
            }
}

static void a_zero_row_gives_rms_its_limit(void **state)
{
    (void)state;
    const norm_t norm = {1e-6f, 0, NULL, NULL};
    rng_t rng = rng_make(test_seed() + 2);
    rng_fill_normal(&rng, d_y, 67);
    memset(x, 0, sizeof x);
    for (int64_t n = 1; n <= 67; n++)
        for (int l = 0; l < level_count; l++) {
            memset(d_weight, 0, sizeof d_weight);
            levels[l].table->training->differentiate_norm[NORM_RMS](&norm, n, d_x, d_y, x, d_weight, NULL);
            for (int64_t i = 0; i < n; i++) {
                assert_near((double)d_x[i], (double)d_y[i] / sqrt((double)norm.eps), 1e-7 * fabs((double)d_x[i]));
                assert_true(d_weight[i] == 0);
            }
        }
}

static void the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    const norm_t norm = {1e-5f, 0, NULL, NULL};
    for (int64_t i = 0; i < 100; i++) x[i] = i & 1 ? 3e38f : -3e38f, d_y[i] = i % 3 ? 1 : -1;
    for (int l = 0; l < level_count; l++)
        for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++) {
            memset(d_weight, 0, sizeof d_weight);
            levels[l].table->training->differentiate_norm[kind](&norm, 100, d_x, d_y, x, d_weight, NULL);
            for (int64_t i = 0; i < 100; i++) {
                assert_true(fabs((double)d_x[i]) < 1e-37);
                assert_near((double)d_weight[i], (i & 1 ? 1 : -1) * (double)d_y[i], 1e-6);
            }
        }
}

static void nan_in_a_row_makes_its_derivatives_nan(void **state)
{
    (void)state;
    const norm_t norm = {1e-5f, 0, NULL, NULL};
    for (int64_t n = 1; n <= 33; n++)
        for (int64_t at = 0; at < n; at++)
            for (int l = 0; l < level_count; l++)
                for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++)
                    for (int where = 0; where < 2; where++) {
                        for (int64_t i = 0; i < n; i++) x[i] = (float)i, d_y[i] = 1;
                        (where ? x : d_y)[at] = NAN;
                        levels[l].table->training->differentiate_norm[kind](&norm, n, d_x, d_y, x, NULL, NULL);
                        for (int64_t i = 0; i < n; i++) assert_true(isnan(d_x[i]));
                    }
}

static void the_vector_levels_agree_in_every_bit(void **state)
{
    (void)state;
    if (level_count < 3) skip();
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, x, MOST);
    rng_fill_normal(&rng, d_y, MOST);
    const norm_t norm = {1e-5f, 1, x, NULL};
    for (int64_t n = 1; n <= MOST; n += n < 70 ? 1 : 493)
        for (int kind = 0; kind < NORM_KINDS; kind++) {
            memset(d_weight, 0, sizeof d_weight);
            memset(d_bias, 0, sizeof d_bias);
            levels[1].table->training->differentiate_norm[kind](&norm, n, d_x, d_y, x, d_weight, NULL);
            levels[2].table->training->differentiate_norm[kind](&norm, n, start, d_y, x, d_bias, NULL);
            assert_same_bits(d_x, start, n, norm_names[kind]);
            assert_same_bits(d_weight, d_bias, n, norm_names[kind]);
        }
}

int main(void)
{
    level_count = kernel_levels(levels);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_derivatives_agree_with_the_formula_at_many_lengths),
        cmocka_unit_test(constant_rows_and_single_numbers_lose_the_mean_alone),
        cmocka_unit_test(a_zero_row_gives_rms_its_limit),
        cmocka_unit_test(the_largest_numbers_do_not_overflow),
        cmocka_unit_test(nan_in_a_row_makes_its_derivatives_nan),
        cmocka_unit_test(the_vector_levels_agree_in_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
