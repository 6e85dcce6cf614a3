/* SPDX-License-Identifier: MIT
 *
 * The matrix products over packed panels and the activation of their tiles, at every level: every tile shape and prefetch against float64, operands
 * that end at an inaccessible page, the same bits for any tile and any cut of the depth, and infinities and NaN that stay in their row.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/guard.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

enum { DEPTH_MOST = 300, PANELS_MOST = 4, ROWS_MOST = TILE_ROWS_MOST, WIDTH_MOST = 64 };

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;

/* Rows as they are, and the same in the order of a tile, whose last chunk ends with the last number of the last row. */
typedef struct operands {
    int64_t depth;
    int rows, panels, width;
    float plain[ROWS_MOST][DEPTH_MOST];
    guard_buffer_t tile, weights, sums;
    float *a, *b, *c;
} operands_t;

static int64_t place_in_tile(const operands_t *o, int row, int64_t k)
{
    return k / TILE_CHUNK * TILE_CHUNK * o->rows + row * TILE_CHUNK + k % TILE_CHUNK;
}

static operands_t *operands_make(int rows, int panels, int width, int64_t depth, uint64_t seed)
{
    operands_t *o = test_alloc(sizeof *o);
    rng_t rng = rng_make(seed);
    o->rows = rows, o->panels = panels, o->width = width, o->depth = depth;
    int64_t numbers = place_in_tile(o, rows - 1, depth - 1) + 1, weights = depth * width * panels;
    o->tile = guard_alloc((size_t)numbers * 4, GUARD_AFTER);
    o->weights = guard_alloc((size_t)weights * 4, GUARD_AFTER);
    o->sums = guard_alloc((size_t)(rows * panels * width) * 4, GUARD_AFTER);
    o->a = o->tile.data, o->b = o->weights.data, o->c = o->sums.data;
    for (int row = 0; row < rows; row++)
        for (int64_t k = 0; k < depth; k++) o->a[place_in_tile(o, row, k)] = o->plain[row][k] = rng_normal(&rng);
    rng_fill_normal(&rng, o->b, weights);
    return o;
}

static void operands_free(operands_t *o)
{
    guard_free(&o->tile);
    guard_free(&o->weights);
    guard_free(&o->sums);
    free(o);
}

static product_t product_of(const operands_t *o)
{
    return (product_t){.depth = o->depth, .a = o->a, .b = o->b, .panel_step = o->depth * o->width, .sums = o->c,
                       .sums_step = o->panels * o->width, .prefetch = (const char *)o->b, .prefetch_step = 64};
}

static float weight(const operands_t *o, int64_t k, int column)
{
    return o->b[column / o->width * o->depth * o->width + k * o->width + column % o->width];
}

/* gamma_n of Higham: n roundings, each of one product and of one sum. */
static void check_sums(const kernel_level_t *level, const operands_t *o, const char *what)
{
    for (int row = 0; row < o->rows; row++)
        for (int column = 0; column < o->panels * o->width; column++) {
            double expected = 0, size = 0;
            for (int64_t k = 0; k < o->depth; k++) {
                const double term = (double)o->plain[row][k] * (double)weight(o, k, column);
                expected += term;
                size += fabs(term);
            }
            const double bound = (double)(o->depth + 1) * 0x1p-24 * size * (1 + 0x1p-12), got = (double)o->c[row * o->panels * o->width + column];
            if (!(fabs(got - expected) <= bound))
                fail_msg("%s, %s, %d rows, %d panels, depth %lld: [%d, %d] expected %.9g within %.3g, got %.9g", level->name, what, o->rows,
                         o->panels, (long long)o->depth, row, column, expected, bound, got);
        }
}

static const int64_t depths[] = {1, 2, 15, 16, 17, 31, 33, 64, 100, 257};

typedef void tile_check(const kernel_level_t *level, int kind, int log, int rows, int64_t depth);

static void each_tile(tile_check *check)
{
    for (int i = 0; i < level_count; i++)
        for (int kind = 0; kind < PREFETCH_KINDS; kind++)
            for (int log = 0; log < TILE_PANELS_KINDS; log++)
                for (int rows = 1; rows <= levels[i].table->tile_rows[log]; rows++)
                    for (int64_t d = 0; d < COUNT_OF(depths); d++) check(&levels[i], kind, log, rows, depths[d]);
}

static void check_tile(const kernel_level_t *level, int kind, int log, int rows, int64_t depth)
{
    operands_t *o = operands_make(rows, 1 << log, (int)level->table->panel_width, depth, test_seed() + (uint64_t)(rows * 1000 + depth));
    product_t product = product_of(o);
    level->table->product[kind][log][rows](&product);
    check_sums(level, o, "one product");
    operands_free(o);
}

static void every_tile_is_the_product_within_its_bound(void **state)
{
    (void)state;
    each_tile(check_tile);
}

/* One row and one panel at a time, the depth in two parts: the same chain. */
static void check_bits(const kernel_level_t *level, int kind, int log, int rows, int64_t depth)
{
    int width = (int)level->table->panel_width, panels = 1 << log;
    operands_t *o = operands_make(rows, panels, width, depth, test_seed() + 77);
    product_t product = product_of(o);
    level->table->product[kind][log][rows](&product);
    for (int row = 0; row < rows; row++)
        for (int panel = 0; panel < panels; panel++) {
            float sums[WIDTH_MOST];
            int64_t cut = depth > TILE_CHUNK ? TILE_CHUNK : 0;
            product_t part = {.depth = cut, .a = o->plain[row], .b = o->b + panel * depth * width, .panel_step = 0, .sums = sums, .sums_step = 0,
                              .prefetch = (const char *)o->b};
            if (cut) level->table->product[PREFETCH_NONE][0][1](&part);
            part.continued = cut > 0;
            part.depth = depth - cut, part.a += cut, part.b += cut * width;
            level->table->product[PREFETCH_NONE][0][1](&part);
            assert_same_bits(sums, o->c + (row * panels + panel) * width, width, level->name);
        }
    operands_free(o);
}

static void bits_do_not_depend_on_tile_prefetch_or_cut(void **state)
{
    (void)state;
    each_tile(check_bits);
}

/* The chain begins with 0, and what was there is added to it in the end. */
static void check_added(const kernel_level_t *level, int kind, int log, int rows, int64_t depth)
{
    const int n = rows * (1 << log) * (int)level->table->panel_width;
    operands_t *o = operands_make(rows, 1 << log, (int)level->table->panel_width, depth, test_seed() + 78);
    float *there = test_alloc((size_t)n * sizeof *there), *expected = test_alloc((size_t)n * sizeof *expected);
    rng_t rng = rng_make(test_seed() + 79);
    product_t product = product_of(o);
    rng_fill_normal(&rng, there, n);
    level->table->product[kind][log][rows](&product);
    for (int i = 0; i < n; i++) expected[i] = there[i] + o->c[i];
    memcpy(o->c, there, (size_t)n * sizeof *there);
    product.added = 1;
    level->table->product[kind][log][rows](&product);
    assert_same_bits(expected, o->c, n, level->name);
    free(there), free(expected);
    operands_free(o);
}

static void a_chain_may_be_added_to_what_is_there(void **state)
{
    (void)state;
    each_tile(check_added);
}

static void infinity_and_nan_stay_in_their_row_and_column(void **state)
{
    (void)state;
    for (int i = 0; i < level_count; i++) {
        int width = (int)levels[i].table->panel_width;
        int rows = (int)levels[i].table->tile_rows[1];
        operands_t *o = operands_make(rows, 2, width, 40, test_seed());
        float kept[ROWS_MOST * 2 * WIDTH_MOST];
        product_t product = product_of(o);
        levels[i].table->product[PREFETCH_NONE][1][rows](&product);
        memcpy(kept, o->c, (size_t)(rows * 2 * width) * sizeof *kept);
        o->a[place_in_tile(o, rows - 1, 39)] = INFINITY;
        o->b[3 * width + 5] = NAN;
        levels[i].table->product[PREFETCH_NONE][1][rows](&product);
        for (int row = 0; row < rows; row++)
            for (int column = 0; column < 2 * width; column++) {
                float got = o->c[row * 2 * width + column];
                if (column == 5) assert_true(isnan(got));
                else if (row == rows - 1) assert_true(isinf(got));
                else assert_same_bits(&kept[row * 2 * width + column], &got, 1, levels[i].name);
            }
        operands_free(o);
    }
}

/* ------------------------------------------------------------- Activation tiles */

/* As activate and activate_gated have it for the same numbers, element by element, in both orders of the result. */
static void check_activation(const kernel_level_t *level, const activation_t *activation, bool gated, int64_t rows, int64_t columns, bool biased)
{
    int64_t width = level->table->panel_width, panels = (columns - 1) / width + 1, step = panels * width * (gated ? 2 : 1);
    int64_t chunks = (columns - 1) / TILE_CHUNK + 1;
    guard_buffer_t sums = guard_alloc((size_t)(rows * step) * 4, GUARD_AFTER), bias = guard_alloc((size_t)columns * 4, GUARD_AFTER);
    guard_buffer_t plain = guard_alloc((size_t)(rows * columns) * 4, GUARD_AFTER);
    guard_buffer_t tiled = guard_alloc((size_t)((chunks - 1) * TILE_CHUNK * rows + (rows - 1) * TILE_CHUNK + columns - (chunks - 1) * TILE_CHUNK) * 4,
                                       GUARD_AFTER);
    float *b = biased ? bias.data : NULL, *s = sums.data, *t = tiled.data, *p = plain.data;
    rng_t rng = rng_make(test_seed() + (uint64_t)columns);
    rng_fill_normal(&rng, s, rows * step);
    rng_fill_normal(&rng, bias.data, columns);
    activation_tile_t tile = {.rows = rows, .columns = columns, .sums = s, .sums_step = step, .panel = width, .gate_bias = b, .up_bias = b, .out = t,
                              .out_row = TILE_CHUNK, .out_chunk = TILE_CHUNK * rows};
    (gated ? level->table->activate_gated_tile : level->table->activate_tile)(activation, &tile);
    tile.out = p, tile.out_row = columns, tile.out_chunk = TILE_CHUNK;
    (gated ? level->table->activate_gated_tile : level->table->activate_tile)(activation, &tile);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < columns; c++) {
            const float *gate = s + row * step + (gated ? c / width * 2 * width + c % width : c), *one = b ? b + c : NULL;
            float expected;
            if (gated) level->table->activate_gated[activation->kind](activation, 1, &expected, gate, one, gate + width, one);
            else level->table->activate[activation->kind](activation, 1, &expected, gate, one);
            assert_same_bits(&expected, &p[row * columns + c], 1, level->name);
            assert_same_bits(&expected, &t[c / TILE_CHUNK * TILE_CHUNK * rows + row * TILE_CHUNK + c % TILE_CHUNK], 1, level->name);
        }
    guard_free(&sums);
    guard_free(&bias);
    guard_free(&plain);
    guard_free(&tiled);
}

static void tiles_are_activated_as_rows_are(void **state)
{
    (void)state;
    for (int i = 0; i < level_count; i++)
        for (int kind = 0; kind < ACTIVATION_KINDS; kind++) {
            activation_t activation = {.kind = (activation_kind_t)kind, .alpha = -0.01f, .beta = 1.5f, .xielu_p = 0.7f, .xielu_n = 0.9f,
                                       .clip_max = 1.5f, .gate_max = 1.2f, .up_limit = 0.8f, .up_offset = 1};
            for (int64_t columns = 1; columns <= 130; columns += columns < 34 ? 1 : 16)
                for (int gated = 0; gated < 2; gated++) check_activation(&levels[i], &activation, gated, 1 + columns % 5, columns, columns % 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_the_product_within_its_bound),
        cmocka_unit_test(bits_do_not_depend_on_tile_prefetch_or_cut),
        cmocka_unit_test(a_chain_may_be_added_to_what_is_there),
        cmocka_unit_test(infinity_and_nan_stay_in_their_row_and_column),
        cmocka_unit_test(tiles_are_activated_as_rows_are),
    };
    level_count = kernel_levels(levels);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
