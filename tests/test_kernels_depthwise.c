/* SPDX-License-Identifier: MIT
 *
 * The depthwise kernels at every ISA level, against float64 sums: any width at any alignment, rows and taps of every count that a vector level treats
 * apart, rows that are left out, mirrored taps, sums that go on; next to inaccessible pages.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/training.h"
#include "support/guard.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

enum { ROWS_MOST = 9, TAPS_MOST = 9, WIDTH_MOST = 67, INPUTS_MOST = DEPTHWISE_ROWS_MOST + DEPTHWISE_TAPS_MOST - 1 };

static const double U = 0x1p-24;

typedef struct fixture {
    int64_t n, rows, taps;
    bool left_out, mirrored, continued;
    guard_buffer_t in, weight, out, d, sums;
    const float *rows_in[INPUTS_MOST];
} fixture_t;

/* The `floats` numbers at the end, or the beginning, of a buffer that touches an inaccessible page there. */
static guard_buffer_t random_buffer(rng_t *rng, int64_t floats)
{
    guard_buffer_t buffer = guard_alloc((size_t)(floats ? floats : 1) * sizeof(float), rng_below(rng, 2) ? GUARD_AFTER : GUARD_BEFORE);
    rng_fill_normal(rng, buffer.data, floats);
    return buffer;
}

static void make(fixture_t *f, uint64_t seed)
{
    rng_t rng = rng_make(seed);
    f->in = random_buffer(&rng, (f->rows + f->taps - 1) * f->n);
    for (int64_t i = 0; i < f->rows + f->taps - 1; i++)
        f->rows_in[i] = f->left_out && rng_below(&rng, 3) == 0 ? NULL : (const float *)f->in.data + i * f->n;
    f->weight = random_buffer(&rng, f->taps * f->n);
    f->sums = random_buffer(&rng, f->taps * f->n);
    f->out = random_buffer(&rng, f->rows * f->n);
    f->d = random_buffer(&rng, f->rows * f->n);
}

static void release(fixture_t *f)
{
    guard_free(&f->in), guard_free(&f->weight), guard_free(&f->out), guard_free(&f->d), guard_free(&f->sums);
}

static void assert_sum(double exact, double terms, int64_t count, float got, const char *what, const char *level, const fixture_t *f, int64_t r, int64_t i)
{
    const double bound = (double)(count + 1) * U * terms * 2 + 1e-37;
    if (!(fabs((double)got - exact) <= bound))
        fail_msg("%s at %s, n %lld, %lld rows, %lld taps: [%lld][%lld] is %.9g, must be %.9g +- %.3g", what, level, (long long)f->n, (long long)f->rows,
                 (long long)f->taps, (long long)r, (long long)i, (double)got, exact, bound);
}

static void check_sums(const kernel_level_t *level, fixture_t *f)
{
    const float *first = f->weight.data;
    float *out = f->out.data, *before = test_alloc((size_t)(f->rows * f->n + 1) * sizeof *before);
    const int64_t step = f->mirrored ? -f->n : f->n;
    if (f->mirrored) first += (f->taps - 1) * f->n;
    memcpy(before, out, (size_t)(f->rows * f->n) * sizeof *before);
    const depthwise_t depthwise = {.n = f->n, .rows = f->rows, .taps = f->taps, .in = f->rows_in, .weight = first, .weight_step = step, .out = out,
                                   .out_step = f->n, .continued = f->continued};
    level->table->depthwise(&depthwise);
    for (int64_t r = 0; r < f->rows; r++)
        for (int64_t i = 0; i < f->n; i++) {
            double exact = f->continued ? (double)before[r * f->n + i] : 0, terms = fabs(exact);
            for (int64_t j = 0; j < f->taps; j++) {
                if (!f->rows_in[r + j]) continue;
                const double term = (double)first[j * step + i] * (double)f->rows_in[r + j][i];
                exact += term, terms += fabs(term);
            }
            assert_sum(exact, terms, f->taps, out[r * f->n + i], "the sum", level->name, f, r, i);
        }
    free(before);
}

static void check_slopes(const kernel_level_t *level, fixture_t *f)
{
    const float *d = f->d.data;
    float *sums = f->sums.data, *before = test_alloc((size_t)(f->taps * f->n + 1) * sizeof *before);
    memcpy(before, sums, (size_t)(f->taps * f->n) * sizeof *before);
    const depthwise_slopes_t slopes = {.n = f->n, .rows = f->rows, .taps = f->taps, .in = f->rows_in, .d = d, .d_step = f->n, .sums = sums, .sums_step = f->n};
    level->table->training->depthwise_slopes(&slopes);
    for (int64_t j = 0; j < f->taps; j++)
        for (int64_t i = 0; i < f->n; i++) {
            double exact = (double)before[j * f->n + i], terms = fabs(exact);
            for (int64_t r = 0; r < f->rows; r++) {
                if (!f->rows_in[r + j]) continue;
                const double term = (double)d[r * f->n + i] * (double)f->rows_in[r + j][i];
                exact += term, terms += fabs(term);
            }
            assert_sum(exact, terms, f->rows, sums[j * f->n + i], "the slope", level->name, f, j, i);
        }
    free(before);
}

typedef void check_t(const kernel_level_t *level, fixture_t *f);

static void check_case(check_t *check, fixture_t *f, uint64_t seed)
{
    kernel_level_t levels[KERNEL_LEVELS_MAX];
    const int count = kernel_levels(levels);
    for (int level = 0; level < count; level++) {
        make(f, seed);
        check(&levels[level], f);
        release(f);
    }
}

static void every_case(check_t *check)
{
    uint64_t seed = test_seed();
    fixture_t largest = {.n = 37, .rows = DEPTHWISE_ROWS_MOST, .taps = DEPTHWISE_TAPS_MOST, .left_out = true};
    check_case(check, &largest, seed++);
    for (int64_t n = 0; n <= WIDTH_MOST; n += test_quick() ? 13 : 1)
        for (int64_t rows = 1; rows <= ROWS_MOST; rows += n % 16 == 1 ? 1 : 4)
            for (int64_t taps = 1; taps <= TAPS_MOST; taps += n % 16 == 1 ? 1 : 4)
                for (int variant = 0; variant < 4; variant++) {
                    fixture_t f = {.n = n, .rows = rows, .taps = taps, .left_out = variant & 1, .mirrored = variant >> 1, .continued = variant == 2};
                    check_case(check, &f, seed++);
                }
}

static void sums_are_those_of_the_formula(void **state)
{
    (void)state;
    every_case(check_sums);
}

static void slopes_are_those_of_the_formula(void **state)
{
    (void)state;
    every_case(check_slopes);
}

/* An element's bits depend on its column alone: not on the vector it is in, nor on the rows beside it. NaN and infinity go through. */
static void numbers_do_not_depend_on_their_place(void **state)
{
    (void)state;
    kernel_level_t levels[KERNEL_LEVELS_MAX];
    const int count = kernel_levels(levels);
    const float special[] = {0.0f, 1.5f, INFINITY, -INFINITY, NAN, FLT_MIN / 8, -3.25f, FLT_MAX};
    for (int level = 0; level < count; level++) {
        float in[12][40], weight[5][40], out[8][40], one[1];
        const float *rows[12];
        for (int r = 0; r < 12; r++) {
            rows[r] = in[r];
            for (int i = 0; i < 40; i++) in[r][i] = special[(r * 7 + i * 3) % 8];
        }
        for (int j = 0; j < 5; j++)
            for (int i = 0; i < 40; i++) weight[j][i] = special[(j * 5 + i) % 8];
        const depthwise_t all = {.n = 40, .rows = 8, .taps = 5, .in = rows, .weight = weight[0], .weight_step = 40, .out = out[0], .out_step = 40};
        levels[level].table->depthwise(&all);
        for (int r = 0; r < 8; r++)
            for (int i = 0; i < 40; i++) {
                const float *column[5];
                for (int j = 0; j < 5; j++) column[j] = in[r + j] + i;
                const depthwise_t alone = {.n = 1, .rows = 1, .taps = 5, .in = column, .weight = weight[0] + i, .weight_step = 40, .out = one, .out_step = 1};
                levels[level].table->depthwise(&alone);
                if (isnan(out[r][i]) ? !isnan(one[0]) : memcmp(&out[r][i], one, sizeof one) != 0)
                    fail_msg("%s: row %d, column %d is %g among others, %g alone", levels[level].name, r, i, (double)out[r][i], (double)one[0]);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_formula),
        cmocka_unit_test(slopes_are_those_of_the_formula),
        cmocka_unit_test(numbers_do_not_depend_on_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
