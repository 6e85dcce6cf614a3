/* SPDX-License-Identifier: MIT */
#include "support/stats_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/random.h"
#include "support/test.h"

static int64_t networks_of(const expected_stats_t *e)
{
    return (e->experts ? e->experts : 1) + (e->d_shared > 0);
}

static int64_t units_of(const expected_stats_t *e)
{
    return (e->experts ? e->experts : 1) * e->d_ff + e->d_shared;
}

static int64_t width_of(const expected_stats_t *e, int64_t network)
{
    return e->experts && network == e->experts ? e->d_shared : e->d_ff;
}

expected_stats_t expected_stats_make(int64_t experts, int64_t d_ff, int64_t d_shared)
{
    expected_stats_t e = {.experts = experts, .d_ff = d_ff, .d_shared = d_shared};
    e.positions = calloc((size_t)networks_of(&e), sizeof *e.positions);
    e.positive = calloc((size_t)units_of(&e), sizeof *e.positive);
    assert_true(e.positions && e.positive);
    return e;
}

void expected_stats_free(expected_stats_t *e)
{
    free(e->positions), free(e->positive);
}

void expected_stats_add(expected_stats_t *e, int64_t network, int64_t unit, const oracle_activation_t *activation, double z)
{
    const double a = (double)(float)oracle_activate(activation, z); /* sigmoid(-200) is 0 */
    e->positive[network * e->d_ff + unit] += a > 0;
    e->sum += fabs(a);
    e->largest = fmax(e->largest, fabs(a));
}

ffn_stats_t *stats_for(const expected_stats_t *e)
{
    const ffn_stats_options_t options = {.struct_size = sizeof options, .d_ff = e->d_ff, .experts = e->experts, .d_shared = e->d_shared};
    ffn_stats_t *stats;
    assert_int_equal(ffn_stats_create(&options, &stats), FFN_OK);
    return stats;
}

static void assert_density(double got, int64_t positive, int64_t all)
{
    if (!all) assert_true(isnan(got));
    else assert_near(got, (double)positive / (double)all, 1e-15);
}

/* One network's, of which dead units are returned. */
static int64_t check_network(const expected_stats_t *e, int64_t network, const int64_t *positive, const double *density, double all_density,
                             const char *what)
{
    int64_t sum = 0, dead = 0;
    for (int64_t j = 0; j < width_of(e, network); j++) {
        const int64_t unit = network * e->d_ff + j;
        if (positive[unit] != e->positive[unit])
            fail_msg("%s: unit %lld of network %lld was positive %lld times, not %lld", what, (long long)j, (long long)network,
                     (long long)positive[unit], (long long)e->positive[unit]);
        assert_density(density[unit], positive[unit], e->positions[network]);
        sum += positive[unit];
        dead += e->positions[network] && !positive[unit];
    }
    assert_density(all_density, sum, e->positions[network] * width_of(e, network));
    return dead;
}

void assert_stats(const ffn_stats_t *stats, const expected_stats_t *e, const char *what)
{
    const int64_t networks = networks_of(e), units = units_of(e);
    int64_t *positive = test_alloc((size_t)(units + 2 * networks) * sizeof *positive), *positions = positive + units, *dead = positions + networks;
    double *density = test_alloc((size_t)(units + networks) * sizeof *density);
    ffn_stats_info_t info = {.struct_size = sizeof info}, expected = {.struct_size = sizeof info, .d_ff = e->d_ff, .experts = e->experts,
                                                                      .d_shared = e->d_shared, .units = units};
    assert_int_equal(ffn_stats_info(stats, &info), FFN_OK);
    assert_int_equal(ffn_stats_units(stats, positive, density, NULL), FFN_OK);
    assert_int_equal(ffn_stats_experts(stats, positions, density + units, dead), FFN_OK);
    for (int64_t n = 0; n < networks; n++) {
        if (positions[n] != e->positions[n])
            fail_msg("%s: network %lld has %lld positions, not %lld", what, (long long)n, (long long)positions[n], (long long)e->positions[n]);
        assert_int_equal(dead[n], check_network(e, n, positive, density, density[units + n], what));
        expected.positions += positions[n];
        expected.activations += positions[n] * width_of(e, n);
        expected.dead_units += dead[n];
        if (!positions[n]) expected.unseen_units += width_of(e, n);
    }
    for (int64_t j = 0; j < units; j++) expected.positive += e->positive[j];
    assert_density(info.density, expected.positive, expected.activations);
    assert_near(info.largest, e->largest, 1e-6 * e->largest);
    if (expected.activations) assert_near(info.mean, e->sum / (double)expected.activations, 1e-6 * e->sum / (double)expected.activations + 0x1p-33);
    else assert_true(isnan(info.mean));
    expected.density = info.density, expected.largest = info.largest, expected.mean = info.mean;
    assert_memory_equal(&info, &expected, sizeof info);
    free(positive), free(density);
}

void assert_same_stats(const ffn_stats_t *a, const ffn_stats_t *b)
{
    ffn_stats_info_t one = {.struct_size = sizeof one}, two = {.struct_size = sizeof two};
    assert_int_equal(ffn_stats_info(a, &one), FFN_OK);
    assert_int_equal(ffn_stats_info(b, &two), FFN_OK);
    assert_memory_equal(&one, &two, sizeof one);
    int64_t *positive = test_alloc((size_t)(2 * one.units) * sizeof *positive);
    assert_int_equal(ffn_stats_units(a, positive, NULL, NULL), FFN_OK);
    assert_int_equal(ffn_stats_units(b, positive + one.units, NULL, NULL), FFN_OK);
    assert_memory_equal(positive, positive + one.units, (size_t)one.units * sizeof *positive);
    free(positive);
}

float *quarters(int64_t n, uint64_t seed)
{
    rng_t rng = rng_make(seed);
    float *v = test_alloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(rng_below(&rng, 9) - 4) / 4;
    return v;
}
