/* SPDX-License-Identifier: MIT
 *
 * The values of the activation kernels at every level: a dense sweep over all exponents against exact formulas, the special values, the published
 * numbers that other libraries got wrong, and the gated kernels against the dense ones.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/kernel_cases.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void run(const kernel_level_t *level, const activation_t *a, int64_t n, float *out, const float *x)
{
    level->table->activate[a->kind](a, n, out, x, NULL);
}

static float run_one(const kernel_level_t *level, const activation_t *a, float x)
{
    run(level, a, 1, &x, &x);
    return x;
}

/* ---------------------------------------------------------------- Accuracy */

static void check_value(const kernel_level_t *level, const kernel_case_t *is, float x, exact_t exact, float got)
{
    const double ulps = kernel_error_ulps(exact, got), bound = kernel_case_bound(is, level->table);
    if (!(ulps <= bound))
        fail_msg("%s, %s: x = %a (%.9g): expected %.17g, got %.9g: %.3f ulp, bound %.3f", level->name, is->name, (double)x, (double)x, exact.value,
                 (double)got, ulps, bound);
}

/* One x in each of `count` equal parts of the binade whose sign and exponent bits are given. */
static void fill_binade(rng_t *rng, uint32_t sign_and_exponent, int64_t count, float *x)
{
    const uint32_t part = (1u << 23) / (uint32_t)count;
    for (int64_t i = 0; i < count; i++)
        x[i] = float_of(sign_and_exponent << 23 | ((uint32_t)i * part + (uint32_t)rng_below(rng, (int64_t)part)));
}

static void check_sweep(const kernel_case_t *is)
{
    enum { MOST = 4096 };
    static float x[MOST], got[MOST];
    static exact_t exact[MOST];
    const int64_t count = test_quick() ? 16 : MOST;
    rng_t rng = rng_make(test_seed());
    for (uint32_t binade = 0; binade < 512; binade++) {
        if ((binade & 255) == 255) continue; /* NaN and infinity */
        fill_binade(&rng, binade, count, x);
        for (int64_t i = 0; i < count; i++) exact[i] = kernel_exact(is, x[i]);
        for (int l = 0; l < level_count; l++) {
            run(&levels[l], &is->activation, count, got, x);
            for (int64_t i = 0; i < count; i++) check_value(&levels[l], is, x[i], exact[i], got[i]);
        }
    }
}

static void every_activation_is_within_its_bound_in_all_binades(void **state)
{
    (void)state;
    for (int c = 0; c < kernel_case_count; c++) check_sweep(&kernel_cases[c]);
}

/* The same arithmetic at both vector levels. */
static void the_vector_levels_agree_in_every_bit(void **state)
{
    (void)state;
    if (level_count < 3) skip();
    enum { N = 1 << 16 };
    static float x[N], a[N], b[N];
    rng_t rng = rng_make(test_seed());
    for (int64_t i = 0; i < N; i++) x[i] = rng_any_bits(&rng);
    for (int64_t i = 0; i < N; i++)
        if (isnan(x[i])) x[i] = 1;
    for (int c = 0; c < kernel_case_count; c++) {
        run(&levels[1], &kernel_cases[c].activation, N, a, x);
        run(&levels[2], &kernel_cases[c].activation, N, b, x);
        assert_same_bits(a, b, N, kernel_cases[c].name);
    }
}

/* ---------------------------------------------------------- Special values */

static void infinities_give_the_limit(void **state)
{
    (void)state;
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++)
            for (int positive = 0; positive < 2; positive++) {
                const float got = run_one(&levels[l], &kernel_cases[c].activation, positive ? INFINITY : -INFINITY);
                const double limit = kernel_cases[c].limit[positive];
                if (got != (float)limit)
                    fail_msg("%s, %s at %cinf: expected %g, got %g", levels[l].name, kernel_cases[c].name, positive ? '+' : '-', limit, (double)got);
            }
}

static void nan_stays_nan_at_every_index(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff};
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++)
            for (int64_t n = 1; n <= 33; n++)
                for (int64_t at = 0; at < n; at++) {
                    float x[33], got[33];
                    for (int64_t i = 0; i < n; i++) x[i] = 1;
                    x[at] = float_of(nans[(n + at) % COUNT_OF(nans)]);
                    run(&levels[l], &kernel_cases[c].activation, n, got, x);
                    for (int64_t i = 0; i < n; i++)
                        if ((i == at) != (isnan(got[i]) != 0))
                            fail_msg("%s, %s: NaN at %lld of %lld: element %lld is %g", levels[l].name, kernel_cases[c].name, (long long)at,
                                     (long long)n, (long long)i, (double)got[i]);
                }
}

static void identity_and_tanh_keep_the_sign_of_zero(void **state)
{
    (void)state;
    static const activation_kind_t kinds[] = {ACTIVATION_IDENTITY, ACTIVATION_TANH};
    for (int l = 0; l < level_count; l++)
        for (int64_t k = 0; k < COUNT_OF(kinds); k++) {
            const activation_t a = {kinds[k], .clip_max = INFINITY};
            const float zeros[] = {0.0f, -0.0f}, got[] = {run_one(&levels[l], &a, 0.0f), run_one(&levels[l], &a, -0.0f)};
            assert_same_bits(zeros, got, 2, levels[l].name);
        }
}

/* ------------------------------------------------------ Published numbers */

typedef struct known {
    activation_t activation;
    float x, expected;
    double relative;
} known_t;

#define FREE .clip_max = INFINITY, .gate_max = INFINITY, .up_limit = INFINITY
#define GELU {ACTIVATION_GELU, FREE}
#define GELU_TANH {ACTIVATION_GELU_TANH, FREE}
#define SILU {ACTIVATION_SWISH, .beta = 1, FREE}
#define SIGMOID {ACTIVATION_SIGMOID, FREE}

/* Negative tails that cancel in 1 + erf and 1 + tanh, quotients of infinities, and denormals. */
static const known_t known[] = {
    {GELU, -4, -1.26684972e-4f, 3e-7},       {GELU, -5, -1.43325781e-6f, 3e-7},       {GELU, -5.5f, -1.04442591e-7f, 3e-7},
    {GELU, -6, -5.91952576e-9f, 3e-7},       {GELU, -8, -4.97676834e-15f, 3e-7},      {GELU, -10, -7.61985298e-23f, 3e-7},
    {GELU, -13, -7.95231385e-38f, 3e-7},     {GELU_TANH, -4, -7.02459511e-5f, 3e-7},  {GELU_TANH, -5, -2.29179619e-7f, 3e-7},
    {GELU_TANH, -6, -8.4396469e-11f, 3e-7},  {GELU_TANH, -8, -3.10778299e-21f, 3e-7}, {GELU_TANH, -10, -1.20409239e-37f, 3e-7},
    {GELU_TANH, 10, 10, 0},                  {GELU_TANH, 10.5f, 10.5f, 0},            {GELU_TANH, 11, 11, 0},
    {GELU_TANH, 13.24f, 13.24f, 0},          {GELU_TANH, 19.8f, 19.8f, 0},            {GELU_TANH, 21.657723f, 21.657723f, 0},
    {GELU_TANH, 40, 40, 0},                  {GELU_TANH, 3e38f, 3e38f, 0},            {GELU_TANH, -13.24f, 0, 0},
    {GELU_TANH, -3e38f, 0, 0},               {SILU, -88, -5.32804976e-37f, 3e-7},     {SILU, -89, -1.98235349e-37f, 3e-7},
    {SILU, -90, -7.37461119e-38f, 3e-7},     {SILU, -100, -3.72044742e-42f, 0},       {SILU, -103, -1.90576591e-43f, 0},
    {SILU, -110, 0, 0},                      {SILU, -1000, 0, 0},                     {SILU, -3e38f, 0, 0},
    {SIGMOID, -110, 0, 0},                   {SIGMOID, -1000, 0, 0},                  {SIGMOID, -3e38f, 0, 0},
};

static bool is_as_known(const known_t *is, float got)
{
    if (is->x < 0 && got > 0 && is->activation.kind != ACTIVATION_SIGMOID) return false;
    return fabs((double)got - (double)is->expected) <= is->relative * fabs((double)is->expected);
}

static void published_numbers_come_out_in_lane_and_tail(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 7, 8, 9, 15, 16, 17};
    for (int l = 0; l < level_count; l++)
        for (int64_t k = 0; k < COUNT_OF(known); k++)
            for (int64_t j = 0; j < COUNT_OF(lengths); j++) {
                float x[17], got[17];
                for (int64_t i = 0; i < lengths[j]; i++) x[i] = known[k].x;
                run(&levels[l], &known[k].activation, lengths[j], got, x);
                for (int64_t i = 0; i < lengths[j]; i++)
                    if (!is_as_known(&known[k], got[i]))
                        fail_msg("%s, kind %d at %g: expected %.9g, got %.9g (element %lld of %lld)", levels[l].name,
                                 (int)known[k].activation.kind, (double)known[k].x, (double)known[k].expected, (double)got[i], (long long)i,
                                 (long long)lengths[j]);
            }
}

/* --------------------------------------------------- Bias, clips and gates */

/* The same bits, or both NaN: which NaN it is, IEEE 754 leaves open. */
static bool same(float x, float y)
{
    return isnan(x) ? isnan(y) : memcmp(&x, &y, sizeof x) == 0;
}

static float clip_upper(float x, float limit)
{
    return x > limit ? limit : x;
}

static float clip_both(float x, float limit)
{
    return x < -limit ? -limit : clip_upper(x, limit);
}

enum { PAIRS = 4096 };

typedef struct operands {
    float gate[PAIRS], gate_bias[PAIRS], up[PAIRS], up_bias[PAIRS];
} operands_t;

/* A third ordinary numbers, a third any bits, a third of the numbers that limits and infinities are tried on. */
static void fill_operand(rng_t *rng, float *x)
{
    static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 7, -7, 10, -10, 7.0000005f, 3e38f, -3e38f, 1e-45f, -100};
    for (int64_t i = 0; i < PAIRS; i++) {
        const int64_t kind = rng_below(rng, 3);
        x[i] = kind == 0 ? 4 * rng_normal(rng) : kind == 1 ? rng_any_bits(rng) : special[rng_below(rng, COUNT_OF(special))];
    }
}

static operands_t *make_operands(void)
{
    operands_t *o = test_alloc(sizeof *o);
    rng_t rng = rng_make(test_seed());
    fill_operand(&rng, o->gate);
    fill_operand(&rng, o->gate_bias);
    fill_operand(&rng, o->up);
    fill_operand(&rng, o->up_bias);
    return o;
}

static void a_bias_is_added_before_the_activation(void **state)
{
    (void)state;
    operands_t *o = make_operands();
    static float sum[PAIRS], expected[PAIRS], got[PAIRS];
    for (int64_t i = 0; i < PAIRS; i++) sum[i] = o->up[i] + o->up_bias[i];
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++) {
            const activation_t *a = &kernel_cases[c].activation;
            run(&levels[l], a, PAIRS, expected, sum);
            levels[l].table->activate[a->kind](a, PAIRS, got, o->up, o->up_bias);
            for (int64_t i = 0; i < PAIRS; i++)
                if (!same(expected[i], got[i]))
                    fail_msg("%s, %s: %g + %g: expected %.9g, got %.9g", levels[l].name, kernel_cases[c].name, (double)o->up[i],
                             (double)o->up_bias[i], (double)expected[i], (double)got[i]);
        }
    free(o);
}

typedef struct gate_case {
    const char *name;
    float gate_max, up_limit, up_offset;
    bool gate_bias, up_bias;
} gate_case_t;

static const gate_case_t gate_cases[] = {
    {"plain", INFINITY, INFINITY, 0, false, false},
    {"gate bias", INFINITY, INFINITY, 0, true, false},
    {"up bias", INFINITY, INFINITY, 0, false, true},
    {"both biases", INFINITY, INFINITY, 0, true, true},
    {"gpt-oss", 7, 7, 1, true, true},
    {"deepseek-v4", 10, 10, 0, false, false},
};

static void check_gated(const kernel_level_t *level, const kernel_case_t *is, const gate_case_t *gate, const operands_t *o)
{
    static float before[PAIRS], activated[PAIRS], got[PAIRS];
    activation_t a = is->activation;
    a.gate_max = gate->gate_max;
    a.up_limit = gate->up_limit;
    a.up_offset = gate->up_offset;
    for (int64_t i = 0; i < PAIRS; i++)
        before[i] = clip_upper(gate->gate_bias ? o->gate[i] + o->gate_bias[i] : o->gate[i], gate->gate_max);
    run(level, &a, PAIRS, activated, before);
    level->table->activate_gated[a.kind](&a, PAIRS, got, o->gate, gate->gate_bias ? o->gate_bias : NULL, o->up,
                                         gate->up_bias ? o->up_bias : NULL);
    for (int64_t i = 0; i < PAIRS; i++) {
        const float up = clip_both(gate->up_bias ? o->up[i] + o->up_bias[i] : o->up[i], gate->up_limit) + gate->up_offset;
        if (!same(activated[i] * up, got[i]))
            fail_msg("%s, %s, %s: act(%g) * %g: expected %.9g, got %.9g", level->name, is->name, gate->name, (double)before[i], (double)up,
                     (double)(activated[i] * up), (double)got[i]);
    }
}

static void a_gated_kernel_is_the_dense_one_times_the_clipped_up_branch(void **state)
{
    (void)state;
    operands_t *o = make_operands();
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++)
            for (int64_t g = 0; g < COUNT_OF(gate_cases); g++) check_gated(&levels[l], &kernel_cases[c], &gate_cases[g], o);
    free(o);
}

int main(void)
{
    level_count = kernel_levels(levels);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_activation_is_within_its_bound_in_all_binades),
        cmocka_unit_test(the_vector_levels_agree_in_every_bit),
        cmocka_unit_test(infinities_give_the_limit),
        cmocka_unit_test(nan_stays_nan_at_every_index),
        cmocka_unit_test(identity_and_tanh_keep_the_sign_of_zero),
        cmocka_unit_test(published_numbers_come_out_in_lane_and_tail),
        cmocka_unit_test(a_bias_is_added_before_the_activation),
        cmocka_unit_test(a_gated_kernel_is_the_dense_one_times_the_clipped_up_branch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
