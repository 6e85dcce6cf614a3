/* SPDX-License-Identifier: MIT
 *
 * The derivatives of the activations at every level: a dense sweep over all exponents against exact formulas, tails and special values, products with
 * what comes from above, and the gated kernels against the dense ones.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "kernels/training.h"
#include "support/compare.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/slope_cases.h"
#include "support/test.h"

enum { MOST = 4096 };

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;
static float x[MOST], ones[MOST], value[MOST], slope[MOST], plain[MOST];

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void run(const kernel_level_t *level, const activation_t *a, int64_t n)
{
    level->table->training->differentiate(a, n, value, slope, ones, x, NULL);
}

static void check_slopes(const kernel_level_t *level, const kernel_case_t *is, int64_t n)
{
    const double bound = slope_bound(is, level->table);
    run(level, &is->activation, n);
    for (int64_t i = 0; i < n; i++) {
        const exact_t exact = slope_exact(is, (double)x[i]);
        const double ulps = kernel_error_ulps(exact, slope[i]);
        if (!(ulps <= bound))
            fail_msg("%s, slope of %s at x = %a (%.9g): expected %.17g, got %.9g: %.3f ulp of %.3g, bound %.3f", level->name, is->name, (double)x[i],
                     (double)x[i], exact.value, (double)slope[i], ulps, exact.unit, bound);
    }
    level->table->activate[is->activation.kind](&is->activation, n, plain, x, NULL);
    assert_same_bits(plain, value, n, is->name);
}

/* The clip is where the exact value crosses it; a value within its own error of the clip may fall on either side. */
static bool too_near_the_clip(const kernel_case_t *is, float at)
{
    const exact_t exact = is->exact(&is->activation, (double)at);
    return isfinite(is->activation.clip_max) && fabs(exact.value - (double)is->activation.clip_max) < 1e-5;
}

static void every_slope_is_within_its_bound_in_all_binades(void **state)
{
    (void)state;
    const int64_t count = test_quick() ? 16 : MOST / 4;
    rng_t rng = rng_make(test_seed());
    for (int c = 0; c < kernel_case_count; c++)
        for (uint32_t binade = 0; binade < 512; binade++) {
            if ((binade & 255) == 255) continue; /* NaN and infinity */
            for (int64_t i = 0; i < count; i++) {
                x[i] = float_of(binade << 23 | (rng_u32(&rng) >> 9));
                if (too_near_the_clip(&kernel_cases[c], x[i])) x[i] = 0.5f;
            }
            for (int l = 0; l < level_count; l++) check_slopes(&levels[l], &kernel_cases[c], count);
        }
}

/* Where the derivatives have their roots, maxima and tails. */
static void every_slope_is_within_its_bound_from_minus_130_to_130(void **state)
{
    (void)state;
    for (int c = 0; c < kernel_case_count; c++)
        for (int64_t k = -130; k < 130; k++) {
            for (int64_t i = 0; i < MOST / 8; i++) {
                x[i] = (float)((double)k + (double)i / (MOST / 8));
                if (too_near_the_clip(&kernel_cases[c], x[i])) x[i] = 0.5f;
            }
            for (int l = 0; l < level_count; l++) check_slopes(&levels[l], &kernel_cases[c], MOST / 8);
        }
}

typedef struct known {
    activation_t activation;
    float x, expected;
} known_t;

#define FREE .clip_max = INFINITY, .gate_max = INFINITY, .up_limit = INFINITY

/* Where others give NaN, or the wrong side of a kink. */
static const known_t known[] = {
    {{ACTIVATION_SWISH, .beta = 1, FREE}, -548, 0},      {{ACTIVATION_SWISH, .beta = 1, FREE}, 548, 1},
    {{ACTIVATION_SWISH, .beta = 1, FREE}, -3e38f, 0},    {{ACTIVATION_SWISH, .beta = 1, FREE}, 3e38f, 1},
    {{ACTIVATION_SWISH, .beta = 1, FREE}, 0, 0.5f},      {{ACTIVATION_SWISH, .beta = 1, FREE}, -88, -5.26750303e-37f},
    {{ACTIVATION_GELU, FREE}, 1e20f, 1},                 {{ACTIVATION_GELU, FREE}, -1e20f, 0},
    {{ACTIVATION_GELU, FREE}, 0, 0.5f},                  {{ACTIVATION_GELU_TANH, FREE}, 1e20f, 1},
    {{ACTIVATION_GELU_TANH, FREE}, -1e20f, 0},           {{ACTIVATION_MISH, FREE}, -1e20f, 0},
    {{ACTIVATION_MISH, FREE}, 1e20f, 1},                 {{ACTIVATION_MISH, FREE}, 0, 0.6f},
    {{ACTIVATION_RELU, FREE}, 0, 0},                     {{ACTIVATION_RELU, FREE}, -0.0f, 0},
    {{ACTIVATION_RELU, FREE}, 1e-45f, 1},                {{ACTIVATION_RELU, .clip_max = 6, .gate_max = INFINITY, .up_limit = INFINITY}, 6, 1},
    {{ACTIVATION_RELU, .clip_max = 6, .gate_max = INFINITY, .up_limit = INFINITY}, 6.0000005f, 0},
    {{ACTIVATION_LEAKY_RELU, .alpha = 0.25f, FREE}, 0, 0.25f},
    {{ACTIVATION_ELU, .alpha = 2, FREE}, 0, 2},          {{ACTIVATION_HARDSWISH, FREE}, 3, 1.5f},
    {{ACTIVATION_HARDSWISH, FREE}, -3, -0.5f},           {{ACTIVATION_SOFTPLUS, FREE}, -3e38f, 0},
    {{ACTIVATION_SIGMOID, FREE}, -3e38f, 0},             {{ACTIVATION_TANH, FREE}, 3e38f, 0},
    {{ACTIVATION_XIELU, .alpha = -1e-6f, .beta = 0.5f, .xielu_p = 0.8f, .xielu_n = 0.8f, FREE}, 0, -0.3f},
};

static void known_slopes_come_out_in_lane_and_tail(void **state)
{
    (void)state;
    for (int l = 0; l < level_count; l++)
        for (int64_t k = 0; k < COUNT_OF(known); k++)
            for (int64_t n = 1; n <= 33; n++) {
                for (int64_t i = 0; i < n; i++) x[i] = known[k].x;
                run(&levels[l], &known[k].activation, n);
                for (int64_t i = 0; i < n; i++)
                    if (!(fabs((double)slope[i] - (double)known[k].expected) <= 1e-6 * fabs((double)known[k].expected)))
                        fail_msg("%s, kind %d at %g: expected %.9g, got %.9g (element %lld of %lld)", levels[l].name, (int)known[k].activation.kind,
                                 (double)known[k].x, (double)known[k].expected, (double)slope[i], (long long)i, (long long)n);
            }
}

static void infinities_give_the_limit_and_nan_stays_nan_at_every_index(void **state)
{
    (void)state;
    static const float special[] = {-INFINITY, INFINITY, NAN};
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++)
            for (int64_t n = 1; n <= 33; n++)
                for (int64_t at = 0; at < n; at++) {
                    for (int64_t i = 0; i < n; i++) x[i] = 0.5f;
                    x[at] = special[(n + at) % 3];
                    run(&levels[l], &kernel_cases[c].activation, n);
                    for (int64_t i = 0; i < n; i++)
                        if (i == at && !isnan(x[at]) ? (double)slope[i] != (double)(float)slope_limit(&kernel_cases[c], x[at] > 0)
                                                     : (i == at) != (isnan(slope[i]) != 0))
                            fail_msg("%s, %s: %g at %lld of %lld: the slope of element %lld is %g", levels[l].name, kernel_cases[c].name,
                                     (double)x[at], (long long)at, (long long)n, (long long)i, (double)slope[i]);
                }
}

/* ----------------------------------------------- Products, biases and gates */

static bool same(float p, float q)
{
    return isnan(p) ? isnan(q) : memcmp(&p, &q, sizeof p) == 0;
}

/* Ordinary numbers, and those that limits and infinities are tried on. */
static void fill(rng_t *rng, float *out)
{
    static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 7, -7, 10, -10, 7.0000005f, 3e38f, -3e38f, 1e-45f, -100, 1e20f, -548};
    for (int64_t i = 0; i < MOST; i++) out[i] = rng_below(rng, 3) ? 4 * rng_normal(rng) : special[rng_below(rng, COUNT_OF(special))];
}

static float up[MOST], bias[MOST], up_bias[MOST], d_out[MOST], sum[MOST];
static float got[4][MOST];

static void fill_all(uint64_t seed)
{
    rng_t rng = rng_make(test_seed() + seed);
    fill(&rng, x);
    fill(&rng, up);
    fill(&rng, bias);
    fill(&rng, up_bias);
    fill(&rng, d_out);
}

static void the_slope_is_rounded_before_it_meets_what_comes_from_above(void **state)
{
    (void)state;
    fill_all(1);
    for (int64_t i = 0; i < MOST; i++) sum[i] = x[i] + bias[i];
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++) {
            const activation_t *a = &kernel_cases[c].activation;
            const training_table_t *table = levels[l].table->training;
            table->differentiate(a, MOST, got[0], got[1], ones, sum, NULL);
            table->differentiate(a, MOST, got[2], got[3], d_out, x, bias);
            for (int64_t i = 0; i < MOST; i++)
                if (!same(got[0][i], got[2][i]) || !same(d_out[i] * got[1][i], got[3][i]))
                    fail_msg("%s, %s: %g * act'(%g): expected %.9g, got %.9g", levels[l].name, kernel_cases[c].name, (double)d_out[i], (double)sum[i],
                             (double)(d_out[i] * got[1][i]), (double)got[3][i]);
        }
}

typedef struct gate_case {
    const char *name;
    float gate_max, up_limit, up_offset;
    bool biases;
} gate_case_t;

static const gate_case_t gate_cases[] = {
    {"plain", INFINITY, INFINITY, 0, false},
    {"biases", INFINITY, INFINITY, 0, true},
    {"gpt-oss", 7, 7, 1, true},
    {"deepseek-v4", 10, 10, 0, false},
};

static void check_gated(const kernel_level_t *level, const kernel_case_t *is, const gate_case_t *gate)
{
    static float limited[MOST], out[MOST], d_gate[MOST], d_up[MOST];
    activation_t a = is->activation;
    const training_table_t *table = level->table->training;
    a.gate_max = gate->gate_max, a.up_limit = gate->up_limit, a.up_offset = gate->up_offset;
    for (int64_t i = 0; i < MOST; i++) {
        sum[i] = gate->biases ? x[i] + bias[i] : x[i];
        limited[i] = sum[i] > gate->gate_max ? gate->gate_max : sum[i];
    }
    table->differentiate(&a, MOST, got[0], got[1], ones, limited, NULL);
    table->differentiate_gated(&a, MOST, out, d_gate, d_up, d_out, x, gate->biases ? bias : NULL, up, gate->biases ? up_bias : NULL);
    for (int64_t i = 0; i < MOST; i++) {
        const float v = gate->biases ? up[i] + up_bias[i] : up[i], held = v > gate->up_limit ? gate->up_limit : v < -gate->up_limit ? -gate->up_limit : v;
        const float u = held + gate->up_offset, s = sum[i] > gate->gate_max ? 0 : got[1][i];
        const float expected[] = {got[0][i] * u, d_out[i] * s * u, fabsf(v) > gate->up_limit ? 0 : d_out[i] * got[0][i]};
        const float is_now[] = {out[i], d_gate[i], d_up[i]};
        for (int k = 0; k < 3; k++)
            if (!same(expected[k], is_now[k]))
                fail_msg("%s, %s, %s: gate %g, up %g, d %g: result %d expected %.9g, got %.9g", level->name, is->name, gate->name, (double)sum[i],
                         (double)v, (double)d_out[i], k, (double)expected[k], (double)is_now[k]);
    }
    level->table->activate_gated[a.kind](&a, MOST, plain, x, gate->biases ? bias : NULL, up, gate->biases ? up_bias : NULL);
    for (int64_t i = 0; i < MOST; i++) assert_true(same(plain[i], out[i]));
}

static void a_gated_kernel_is_the_product_rule_over_the_dense_one(void **state)
{
    (void)state;
    fill_all(2);
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++)
            for (int64_t g = 0; g < COUNT_OF(gate_cases); g++) check_gated(&levels[l], &kernel_cases[c], &gate_cases[g]);
}

static void the_vector_levels_agree_in_every_bit(void **state)
{
    (void)state;
    if (level_count < 3) skip();
    fill_all(3);
    for (int c = 0; c < kernel_case_count; c++) {
        const activation_t *a = &kernel_cases[c].activation;
        for (int l = 1; l < 3; l++) levels[l].table->training->differentiate(a, MOST, got[0], got[l], d_out, x, bias);
        for (int64_t i = 0; i < MOST; i++) assert_true(same(got[1][i], got[2][i]));
    }
}

/* ------------------------------------------------------------------- xielu */

static void xielus_scalars_get_the_sums_of_their_formula(void **state)
{
    (void)state;
    const activation_t a = {ACTIVATION_XIELU, .alpha = -1e-6f, .beta = 0.5f, .xielu_p = 0.8f, .xielu_n = 0.9f, .clip_max = INFINITY, .gate_max = 2,
                            .up_limit = 1.5f, .up_offset = 1};
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, x, MOST);
    rng_fill_normal(&rng, up, MOST);
    rng_fill_normal(&rng, bias, MOST);
    rng_fill_normal(&rng, d_out, MOST);
    for (int l = 0; l < level_count; l++)
        for (int gated = 0; gated < 2; gated++)
            for (int64_t n = 0; n <= 80; n++) {
                double sums[2] = {0.25, -4}, expected[2] = {0.25, -4}, size = 5;
                levels[l].table->training->learn_xielu(&a, n, sums, d_out, x, bias, gated ? up : NULL, NULL);
                for (int64_t i = 0; i < n; i++) {
                    const double z = fmin((double)(x[i] + bias[i]), (double)a.gate_max), u = fmax(-1.5, fmin(1.5, (double)up[i])) + 1;
                    const double d = (double)d_out[i] * (gated ? u : 1);
                    expected[z > 0 ? 0 : 1] += d * (z > 0 ? z * z : expm1(fmin(z, (double)a.alpha)) - z);
                    size += fabs(d) * (z * z + fabs(z));
                }
                for (int k = 0; k < 2; k++) assert_near(sums[k], expected[k], 4 * 0x1p-24 * size);
            }
}

int main(void)
{
    level_count = kernel_levels(levels);
    for (int64_t i = 0; i < MOST; i++) ones[i] = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_slope_is_within_its_bound_in_all_binades),
        cmocka_unit_test(every_slope_is_within_its_bound_from_minus_130_to_130),
        cmocka_unit_test(known_slopes_come_out_in_lane_and_tail),
        cmocka_unit_test(infinities_give_the_limit_and_nan_stays_nan_at_every_index),
        cmocka_unit_test(the_slope_is_rounded_before_it_meets_what_comes_from_above),
        cmocka_unit_test(a_gated_kernel_is_the_product_rule_over_the_dense_one),
        cmocka_unit_test(the_vector_levels_agree_in_every_bit),
        cmocka_unit_test(xielus_scalars_get_the_sums_of_their_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
