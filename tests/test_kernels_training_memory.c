/* SPDX-License-Identifier: MIT
 *
 * What the kernels of training read and write, at every level: lengths 0 to 67 at many alignments, every array against an inaccessible page, outputs in the
 * place of the inputs that the contract names, and the same bits whatever of this changes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/training.h"
#include "support/compare.h"
#include "support/guard.h"
#include "support/kernel_cases.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

enum { ARRAYS = 8, LENGTH_MAX = 67, PAGE_FLOATS = 1024 };

typedef struct operation {
    const char *name;
    uint32_t given;         /* bit k: array k is there, else NULL */
    uint32_t outputs;       /* bit k: array k is written (and, where it is a sum, read) */
    int8_t same[3][2];      /* pairs of arrays that may be one; {0, 0}: no more */
    bool elementwise;
    void (*run)(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS]);
} operation_t;

static void run_dense(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    table->differentiate(activation, n, a[0], a[1], a[2], a[3], a[4]);
}

static void run_gated(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    table->differentiate_gated(activation, n, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

#define NORM(function, kind)                                                                                                                   \
    static void function(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])                     \
    {                                                                                                                                          \
        const norm_t norm = {1e-5f, 1, a[5], NULL};                                                                                            \
        (void)activation;                                                                                                                      \
        table->differentiate_norm[kind](&norm, n, a[0], a[1], a[2], a[3], a[4]);                                                               \
    }
NORM(run_layer, NORM_LAYER)
NORM(run_rms, NORM_RMS)
NORM(run_affine, NORM_AFFINE)

static void run_add(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    (void)activation;
    table->add(n, a[0], a[1]);
}

static void run_add_product(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    (void)activation;
    table->add_product(n, a[0], a[1], a[2]);
}

static void run_multiply(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    (void)activation;
    table->multiply(n, a[0], a[1], a[2]);
}

static void run_scale(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    (void)activation;
    table->scale(n, a[0], 0.3f);
}

static void run_xielu(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    double sums[2] = {0, 0};
    table->learn_xielu(activation, n, sums, a[1], a[2], a[3], a[4], a[5]);
    a[0][0] = (float)sums[0], a[0][1] = (float)sums[1];
}

static void run_squares(const training_table_t *table, const activation_t *activation, int64_t n, float *const a[ARRAYS])
{
    (void)activation;
    a[0][0] = (float)table->sum_of_squares(n, a[1]), a[0][1] = 0;
}

static const operation_t activations[] = {
    {"dense", 0x0f, 0x03, {{0, 2}, {1, 3}}, true, run_dense},
    {"dense, bias", 0x1f, 0x03, {{0, 2}, {1, 3}}, true, run_dense},
    {"gated", 0x5f, 0x07, {{0, 3}, {1, 4}, {2, 6}}, true, run_gated},
    {"gated, biases", 0xff, 0x07, {{0, 3}, {1, 4}, {2, 6}}, true, run_gated},
};

static const operation_t others[] = {
    {"layer", 0x07, 0x01, {{0, 1}}, false, run_layer},
    {"layer in place of x", 0x3f, 0x19, {{0, 2}}, false, run_layer},
    {"rms", 0x07, 0x01, {{0, 1}}, false, run_rms},
    {"rms in place of x", 0x3f, 0x19, {{0, 2}}, false, run_rms},
    {"affine", 0x07, 0x01, {{0, 1}}, true, run_affine},
    {"affine in place of x", 0x3f, 0x19, {{0, 2}}, true, run_affine},
    {"add", 0x03, 0x01, {{0, 0}}, true, run_add},
    {"add product", 0x07, 0x01, {{0, 0}}, true, run_add_product},
    {"multiply", 0x07, 0x01, {{0, 1}}, true, run_multiply},
    {"multiply in place of b", 0x07, 0x01, {{0, 2}}, true, run_multiply},
    {"scale", 0x01, 0x01, {{0, 0}}, true, run_scale},
};

/* Row sums: array 0 has room for two numbers, whatever n. */
static const operation_t sums[] = {
    {"xielu dense", 0x0f, 0x01, {{0, 0}}, false, run_xielu},
    {"xielu gated", 0x3f, 0x01, {{0, 0}}, false, run_xielu},
    {"sum of squares", 0x03, 0x01, {{0, 0}}, false, run_squares},
};

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;
static float values[ARRAYS][LENGTH_MAX];
static guard_buffer_t pages[ARRAYS][2];

/* Plain calls, element by element where an element stands alone. */
static void expect(const operation_t *op, const training_table_t *table, const activation_t *activation, int64_t n, float out[ARRAYS][LENGTH_MAX])
{
    float *a[ARRAYS];
    memcpy(out, values, sizeof values);
    for (int64_t i = 0; i < (op->elementwise ? n : 1); i++) {
        for (int k = 0; k < ARRAYS; k++) a[k] = op->given >> k & 1 ? out[k] + i : NULL;
        op->run(table, activation, op->elementwise ? 1 : n, a);
    }
}

static void check_place(const operation_t *op, const kernel_level_t *level, const activation_t *activation, int64_t n, int64_t size0, int side,
                        int64_t shift, bool in_place, float expected[ARRAYS][LENGTH_MAX])
{
    float *a[ARRAYS];
    char what[160];
    for (int k = 0; k < ARRAYS; k++) {
        const int64_t size = k ? n : size0, gap = shift ? (shift + 5 * k) % 16 : 0;
        float *page = pages[k][side].data;
        for (int i = 0; i < PAGE_FLOATS; i++) page[i] = -1234.5f;
        a[k] = op->given >> k & 1 ? (side == GUARD_AFTER ? page + PAGE_FLOATS - size - gap : page + gap) : NULL;
        if (a[k]) memcpy(a[k], values[k], (size_t)size * sizeof(float));
    }
    for (int p = 0; in_place && p < 3 && op->same[p][1]; p++) {
        a[op->same[p][0]] = a[op->same[p][1]];
        memcpy(a[op->same[p][1]], values[op->same[p][1]], (size_t)n * sizeof(float));
    }
    op->run(level->table->training, activation, n, a);
    for (int k = 0; k < ARRAYS; k++) {
        bool is_output = op->outputs >> k & 1, is_overwritten = false;
        for (int p = 0; in_place && p < 3 && op->same[p][1]; p++) is_overwritten |= op->same[p][1] == k;
        if (!a[k] || is_overwritten) continue;
        snprintf(what, sizeof what, "%s, %s, n = %lld, %s a page, shift %lld%s: array %d", level->name, op->name, (long long)n,
                 side == GUARD_AFTER ? "before" : "after", (long long)shift, in_place ? ", in place" : "", k);
        assert_same_bits(is_output ? expected[k] : values[k], a[k], k ? n : size0, what);
    }
    for (int k = 0; k < ARRAYS; k++) {
        const float *page = pages[k][side].data;
        const int64_t size = k ? n : size0, gap = shift ? (shift + 5 * k) % 16 : 0;
        const float *begin = side == GUARD_AFTER ? page + PAGE_FLOATS - size - gap : page + gap;
        for (const float *at = page; at < page + PAGE_FLOATS; at++)
            if ((at < begin || at >= begin + size) && *at != -1234.5f) fail_msg("%s, n = %lld: wrote beside array %d", op->name, (long long)n, k);
    }
}

static void check(const operation_t *op, const activation_t *activation, bool sums_up)
{
    static float expected[ARRAYS][LENGTH_MAX];
    for (int l = 0; l < level_count; l++)
        for (int64_t n = 0; n <= LENGTH_MAX; n += test_quick() ? 7 : 1) {
            expect(op, levels[l].table->training, activation, n, expected);
            for (int64_t shift = 0; shift < 16; shift += test_quick() ? 5 : 3)
                for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++)
                    for (int in_place = 0; in_place < (op->same[0][1] ? 2 : 1); in_place++)
                        check_place(op, &levels[l], activation, n, sums_up ? 2 : n, side, shift, in_place, expected);
        }
}

static void activation_derivatives_keep_to_their_operands(void **state)
{
    (void)state;
    for (int64_t o = 0; o < COUNT_OF(activations); o++)
        for (int c = 0; c < kernel_case_count; c++)
            if (kernel_cases[c].exhaustive) check(&activations[o], &kernel_cases[c].activation, false);
}

static void norm_derivatives_and_sums_keep_to_their_operands(void **state)
{
    (void)state;
    for (int64_t o = 0; o < COUNT_OF(others); o++) check(&others[o], NULL, false);
}

static void row_sums_keep_to_their_operands(void **state)
{
    (void)state;
    const activation_t xielu = {ACTIVATION_XIELU, .alpha = -1e-6f, .beta = 0.5f, .xielu_p = 0.8f, .xielu_n = 0.8f, .clip_max = INFINITY,
                                .gate_max = INFINITY, .up_limit = INFINITY};
    for (int64_t o = 0; o < COUNT_OF(sums); o++) check(&sums[o], &xielu, true);
}

int main(void)
{
    level_count = kernel_levels(levels);
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, &values[0][0], ARRAYS * LENGTH_MAX);
    for (int k = 0; k < ARRAYS; k++)
        for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++) pages[k][side] = guard_alloc(PAGE_FLOATS * sizeof(float), (guard_side_t)side);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activation_derivatives_keep_to_their_operands),
        cmocka_unit_test(norm_derivatives_and_sums_keep_to_their_operands),
        cmocka_unit_test(row_sums_keep_to_their_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
