/* SPDX-License-Identifier: MIT
 *
 * The activation of tiles that is counted, at every level: the bits of the one that is not, and counts and sums that are exact, over tile shapes, panels
 * and numbers at the ends of the float range.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/activity.h"
#include "support/compare.h"
#include "support/guard.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;

__extension__ typedef unsigned __int128 wide_t;

/* The sum in units of 2^-32, of numbers below 2^62: from the header's words. */
typedef struct reference {
    int64_t positive, non_finite;
    wide_t sum;
    float largest;
} reference_t;

static void take(reference_t *reference, float a)
{
    const double units = fabs((double)a) * 4294967296.0; /* exact */
    reference->positive += a > 0;
    if (!isfinite(a)) {
        reference->non_finite++;
        return;
    }
    reference->sum += (wide_t)(fabs((double)a) < 8192 ? rint(units) : units);
    if (fabsf(a) > reference->largest) reference->largest = fabsf(a);
}

typedef struct shape {
    int64_t rows, columns, panel;
    bool gated, biased, in_place;
} shape_t;

/* Numbers of every size, of which most are ordinary. */
static float number(rng_t *rng)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 8191.9995f, 8192.0f, -1e18f, 0x1p-33f, 0x1.8p-32f, -0x1p-149f, 70000.0f};
    const int64_t which = rng_below(rng, 200);
    return which < COUNT_OF(odd) ? odd[which] : rng_normal(rng);
}

/* What `positive` should be, and what activity: from the activation of one number at a time. */
static void count_one_by_one(const kernel_table_t *table, const activation_t *activation, const activation_tile_t *tile, bool gated, int64_t *positive,
                             reference_t *all)
{
    for (int64_t row = 0; row < tile->rows; row++)
        for (int64_t c = 0; c < tile->columns; c++) {
            const float *x = tile->sums + row * tile->sums_step + (gated ? c / tile->panel * 2 * tile->panel + c % tile->panel : c);
            const float *bias = gated ? tile->gate_bias : tile->up_bias;
            float sum = bias ? *x + bias[c] : *x, a;
            if (gated && sum > activation->gate_max) sum = activation->gate_max;
            table->activate[activation->kind](activation, 1, &a, &sum, NULL);
            positive[c] += a > 0;
            take(all, a);
        }
}

static void assert_counted(const activity_t *activity, const reference_t *all, const uint32_t *got, const int64_t *positive, int64_t columns, const char *what)
{
    for (int64_t c = 0; c < columns; c++)
        if (got[c] != 7 + (uint32_t)positive[c]) fail_msg("%s: column %lld has %u, not %lld + 7", what, (long long)c, got[c], (long long)positive[c]);
    const wide_t sum = (wide_t)activity->sum[1] << 64 | activity->sum[0];
    if (sum != all->sum || activity->sum[2] || activity->sum[3])
        fail_msg("%s: the sum is %.17g, not %.17g", what, (double)sum, (double)all->sum);
    assert_int_equal(activity->non_finite, all->non_finite);
    assert_same_bits(&all->largest, &activity->largest, 1, what);
}

/* Which of two NaNs a product keeps is the compiler's choice. */
static void assert_same_numbers(const float *expected, const float *got, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!isnan(expected[i]) || !isnan(got[i])) assert_same_bits(expected + i, got + i, 1, what);
}

static void check_tile(const kernel_level_t *level, const activation_t *activation, const shape_t *shape)
{
    const int64_t rows = shape->rows, columns = shape->columns, width = shape->panel, whole = (columns + TILE_CHUNK - 1) / TILE_CHUNK * TILE_CHUNK;
    const int64_t step = ((columns - 1) / width + 1) * width * (shape->gated ? 2 : 1);
    guard_buffer_t sums = guard_alloc((size_t)(rows * step) * 4, GUARD_AFTER), bias = guard_alloc((size_t)columns * 4, GUARD_AFTER);
    guard_buffer_t plain = guard_alloc((size_t)(rows * columns) * 4, GUARD_AFTER), counted = guard_alloc((size_t)(rows * columns) * 4, GUARD_AFTER);
    guard_buffer_t counts = guard_alloc((size_t)whole * 4, GUARD_AFTER);
    int64_t *positive = calloc((size_t)columns, sizeof *positive);
    uint32_t *got = counts.data;
    float *in = sums.data, *expected = plain.data;
    activity_t activity = {0};
    reference_t all = {0};
    rng_t rng = rng_make(test_seed() + (uint64_t)(columns * 16 + rows));
    for (int64_t i = 0; i < rows * step; i++) in[i] = number(&rng);
    rng_fill_normal(&rng, bias.data, columns);
    for (int64_t c = 0; c < whole; c++) got[c] = 7;
    activation_tile_t tile = {.rows = rows, .columns = columns, .sums = in, .sums_step = step, .panel = width, .out = expected,
                              .out_row = columns, .out_chunk = TILE_CHUNK, .positive = got, .activity = &activity};
    if (shape->biased) tile.gate_bias = tile.up_bias = bias.data;
    count_one_by_one(level->table, activation, &tile, shape->gated, positive, &all);
    (shape->gated ? level->table->activate_gated_tile : level->table->activate_tile)(activation, &tile);
    tile.out = counted.data;
    if (shape->in_place) tile.out = in, tile.out_row = step;
    (shape->gated ? level->table->watch_gated_tile : level->table->watch_tile)(activation, &tile);
    for (int64_t row = 0; row < rows; row++) assert_same_numbers(expected + row * columns, tile.out + row * tile.out_row, columns, level->name);
    for (int64_t c = columns; c < whole; c++) assert_int_equal(got[c], 7);
    assert_counted(&activity, &all, got, positive, columns, level->name);
    guard_buffer_t *const buffers[] = {&sums, &bias, &plain, &counted, &counts};
    for (int64_t i = 0; i < COUNT_OF(buffers); i++) guard_free(buffers[i]);
    free(positive);
}

static void tiles_are_counted_exactly(void **state)
{
    (void)state;
    for (int i = 0; i < level_count; i++)
        for (int kind = 0; kind < ACTIVATION_KINDS; kind++) {
            const activation_t activation = {.kind = (activation_kind_t)kind, .alpha = -0.01f, .beta = 1.5f, .xielu_p = 0.7f, .xielu_n = 0.9f,
                                             .clip_max = kind % 2 ? 1.5f : INFINITY, .gate_max = kind % 2 ? 1.2f : INFINITY, .up_limit = 0.8f, .up_offset = 1};
            for (int64_t columns = 1; columns <= 130; columns += columns < 34 ? 1 : 16)
                for (int gated = 0; gated < 2; gated++) {
                    shape_t shape = {1 + columns % TILE_ROWS_MOST, columns, levels[i].table->panel_width, gated, columns % 2, false};
                    check_tile(&levels[i], &activation, &shape);
                    shape.panel = columns; /* as rows of the blas engine have it */
                    shape.in_place = true;
                    check_tile(&levels[i], &activation, &shape);
                }
        }
}

/* More vectors than their sum in 64 bits holds at once, all just below the range that goes through it. */
static void large_tiles_do_not_overflow(void **state)
{
    (void)state;
    enum { ROWS = TILE_ROWS_MOST, COLUMNS = 4096 };
    float *sums = test_alloc(ROWS * COLUMNS * sizeof *sums), *out = test_alloc(ROWS * COLUMNS * sizeof *out);
    uint32_t *positive = test_alloc(COLUMNS * sizeof *positive);
    const activation_t activation = {.kind = ACTIVATION_IDENTITY, .clip_max = INFINITY};
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) sums[i] = 8191.9995f;
    for (int i = 0; i < level_count; i++) {
        activity_t activity = {0};
        const activation_tile_t tile = {.rows = ROWS, .columns = COLUMNS, .sums = sums, .sums_step = COLUMNS, .panel = COLUMNS, .out = out,
                                        .out_row = COLUMNS, .out_chunk = TILE_CHUNK, .positive = positive, .activity = &activity};
        memset(positive, 0, COLUMNS * sizeof *positive);
        levels[i].table->watch_tile(&activation, &tile);
        const wide_t sum = (wide_t)activity.sum[1] << 64 | activity.sum[0];
        assert_true(sum == (wide_t)((double)8191.9995f * 4294967296.0) * ROWS * COLUMNS);
        for (int64_t c = 0; c < COLUMNS; c++) assert_int_equal(positive[c], ROWS);
    }
    free(sums), free(out), free(positive);
}

/* Words carry into each other, up to the largest floats. */
static void sums_of_the_largest_floats_are_exact(void **state)
{
    (void)state;
    activity_t one = {0}, many = {0};
    activity_add(&one, 0x1.fffffep127f); /* (2^24 - 1) 2^(104 + 32) units */
    assert_true(one.sum[0] == 0 && one.sum[1] == 0 && one.sum[2] == UINT64_C(0xffffff) << 8 && one.sum[3] == 0);
    for (int i = 0; i < 60; i++) { /* 2^60 of it */
        many = one;
        activity_merge(&one, &many);
    }
    assert_true(one.sum[2] == UINT64_C(0xffffff) << 8 << 60 && one.sum[3] == (UINT64_C(0xffffff) << 8) >> 4);
    activity_t carry = {.sum = {UINT64_MAX, UINT64_MAX, UINT64_MAX, 5}};
    activity_add(&carry, 0x1p-32f);
    assert_true(carry.sum[0] == 0 && carry.sum[1] == 0 && carry.sum[2] == 0 && carry.sum[3] == 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_counted_exactly),
        cmocka_unit_test(large_tiles_do_not_overflow),
        cmocka_unit_test(sums_of_the_largest_floats_are_exact),
    };
    level_count = kernel_levels(levels);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
