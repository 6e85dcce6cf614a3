/* SPDX-License-Identifier: MIT
 *
 * What the kernels read and write, at every level: lengths 0 to 67 at every alignment, operands that end and start at inaccessible pages, canaries
 * around the output, the output in the place of each input, and the same bits whatever of this changes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/compare.h"
#include "support/guard.h"
#include "support/kernel_cases.h"
#include "support/kernel_levels.h"
#include "support/random.h"
#include "support/test.h"

enum { INPUTS = 5, LENGTH_MAX = 67, SHIFTS = 16, PAGE_FLOATS = 1024 };

/* One kernel with its parameters, as a function of up to five arrays. */
typedef struct operation {
    char name[80];
    const kernel_table_t *table;
    const activation_t *activation;
    norm_kind_t norm;
    uint32_t inputs;  /* bit k: in[k] is given, else it is NULL */
    bool elementwise; /* an element depends on its own inputs alone */
    void (*run)(const struct operation *op, int64_t n, float *out, float *const in[INPUTS]);
} operation_t;

static kernel_level_t levels[KERNEL_LEVELS_MAX];
static int level_count;
static float values[INPUTS][LENGTH_MAX];         /* of the inputs, by index */
static guard_buffer_t pages[INPUTS + 1][2];      /* one page each; the last is the output's */

static float *place(int slot, guard_side_t side, int64_t n, int64_t shift)
{
    float *page = pages[slot][side].data;
    return side == GUARD_AFTER ? page + PAGE_FLOATS - n - shift : page + shift;
}

/* ----------------------------------------------------------------- Checks */

/* Elementwise: each element by a call of its own. Else: the call at an ordinary place. */
static void expect(const operation_t *op, int64_t n, float *expected)
{
    static float copy[INPUTS][LENGTH_MAX];
    float *in[INPUTS];
    memcpy(copy, values, sizeof copy);
    for (int64_t i = 0; i < (op->elementwise ? n : 1); i++) {
        for (int k = 0; k < INPUTS; k++) in[k] = op->inputs >> k & 1 ? copy[k] + i : NULL;
        op->run(op, op->elementwise ? 1 : n, expected + i, in);
    }
}

static void assert_canaries(const operation_t *op, const float *page, const float *out, int64_t n)
{
    static const float canary = -1234.5f;
    for (const float *p = page; p < page + PAGE_FLOATS; p++)
        if ((p < out || p >= out + n) && memcmp(p, &canary, sizeof canary) != 0)
            fail_msg("%s, n = %lld: wrote element %lld", op->name, (long long)n, (long long)(p - out));
}

static void fill_canaries(float *page)
{
    for (int i = 0; i < PAGE_FLOATS; i++) page[i] = -1234.5f;
}

/* Runs the operation in this place; with in_place >= 0 the output is that input. */
static void check_place(const operation_t *op, int64_t n, guard_side_t side, int64_t shift, int in_place, const float *expected)
{
    float *in[INPUTS];
    for (int k = 0; k < INPUTS; k++) {
        in[k] = op->inputs >> k & 1 ? place(k, side, n, shift ? (shift + 5 * k) % SHIFTS : 0) : NULL;
        if (k == in_place) fill_canaries(pages[k][side].data);
        if (in[k]) memcpy(in[k], values[k], (size_t)n * sizeof(float));
    }
    const int slot = in_place >= 0 ? in_place : INPUTS;
    if (slot == INPUTS) fill_canaries(pages[slot][side].data);
    float *out = in_place >= 0 ? in[in_place] : place(slot, side, n, shift);
    op->run(op, n, out, in);

    char what[160];
    snprintf(what, sizeof what, "%s, n = %lld, %s a guard page, shift %lld, in place of input %d", op->name, (long long)n,
             side == GUARD_AFTER ? "before" : "after", (long long)shift, in_place);
    assert_same_bits(expected, out, n, what);
    assert_canaries(op, pages[slot][side].data, out, n);
    for (int k = 0; k < INPUTS; k++)
        if (in[k] && k != in_place && memcmp(in[k], values[k], (size_t)n * sizeof(float)) != 0) fail_msg("%s: changed input %d", what, k);
}

static void check(const operation_t *op)
{
    for (int64_t n = 0; n <= LENGTH_MAX; n += test_quick() ? 7 : 1) {
        float expected[LENGTH_MAX];
        expect(op, n, expected);
        for (int64_t shift = 0; shift < SHIFTS; shift += test_quick() ? 5 : 1)
            for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++)
                for (int in_place = -1; in_place < INPUTS; in_place++)
                    if (in_place < 0 || op->inputs >> in_place & 1) check_place(op, n, (guard_side_t)side, shift, in_place, expected);
    }
}

/* ------------------------------------------------------------- Operations */

static void run_dense(const operation_t *op, int64_t n, float *out, float *const in[INPUTS])
{
    op->table->activate[op->activation->kind](op->activation, n, out, in[0], in[1]);
}

static void run_gated(const operation_t *op, int64_t n, float *out, float *const in[INPUTS])
{
    op->table->activate_gated[op->activation->kind](op->activation, n, out, in[0], in[1], in[2], in[3]);
}

static void run_norm(const operation_t *op, int64_t n, float *out, float *const in[INPUTS])
{
    const norm_t norm = {.eps = 1e-5f, .offset = 1, .weight = in[1], .bias = in[2]};
    op->table->normalise[op->norm](&norm, n, out, in[0]);
}

static void run_combine(const operation_t *op, int64_t n, float *out, float *const in[INPUTS])
{
    op->table->combine(n, out, in[0], in[1], in[2], in[3], in[4]);
}

static void run_mix(const operation_t *op, int64_t n, float *out, float *const in[INPUTS])
{
    static const float weights[] = {0.5f, -2, 3};
    op->table->mix(n, out, __builtin_popcount(op->inputs), (const float *const *)(const void *)in, weights);
}

static void check_activations(const char *form, const uint32_t *inputs, int64_t count,
                              void (*run)(const operation_t *, int64_t, float *, float *const *))
{
    for (int l = 0; l < level_count; l++)
        for (int c = 0; c < kernel_case_count; c++)
            for (int64_t i = 0; i < count; i++) {
                if (!kernel_cases[c].exhaustive) continue; /* the same kernels with other parameters */
                operation_t op = {.table = levels[l].table, .activation = &kernel_cases[c].activation, .inputs = inputs[i], .elementwise = true,
                                  .run = run};
                snprintf(op.name, sizeof op.name, "%s, %s %s, inputs %x", levels[l].name, form, kernel_cases[c].name, (unsigned)inputs[i]);
                check(&op);
            }
}

static void dense_activations_keep_to_their_operands(void **state)
{
    (void)state;
    static const uint32_t inputs[] = {1, 3};
    check_activations("dense", inputs, COUNT_OF(inputs), run_dense);
}

static void gated_activations_keep_to_their_operands(void **state)
{
    (void)state;
    static const uint32_t inputs[] = {5, 7, 13, 15};
    check_activations("gated", inputs, COUNT_OF(inputs), run_gated);
}

static void norms_keep_to_their_operands(void **state)
{
    (void)state;
    static const char *const names[NORM_KINDS] = {"layer", "rms", "affine"};
    for (int l = 0; l < level_count; l++)
        for (int kind = 0; kind < NORM_KINDS; kind++)
            for (uint32_t inputs = 1; inputs < 8; inputs += 2) {
                operation_t op = {.table = levels[l].table, .norm = (norm_kind_t)kind, .inputs = inputs, .elementwise = kind == NORM_AFFINE,
                                  .run = run_norm};
                snprintf(op.name, sizeof op.name, "%s, norm %s, inputs %x", levels[l].name, names[kind], (unsigned)inputs);
                check(&op);
            }
}

static void combine_keeps_to_its_operands(void **state)
{
    (void)state;
    for (int l = 0; l < level_count; l++)
        for (uint32_t inputs = 1; inputs < 32; inputs += 2) {
            if ((inputs & 16) && !(inputs & 8)) continue; /* a residual's scale without a residual */
            operation_t op = {.table = levels[l].table, .inputs = inputs, .elementwise = true, .run = run_combine};
            snprintf(op.name, sizeof op.name, "%s, combine, inputs %x", levels[l].name, (unsigned)inputs);
            check(&op);
        }
}

static void mix_keeps_to_its_operands(void **state)
{
    (void)state;
    static const uint32_t inputs[] = {1, 3, 7};
    for (int l = 0; l < level_count; l++)
        for (int64_t i = 0; i < COUNT_OF(inputs); i++) {
            operation_t op = {.table = levels[l].table, .inputs = inputs[i], .elementwise = true, .run = run_mix};
            snprintf(op.name, sizeof op.name, "%s, mix, inputs %x", levels[l].name, (unsigned)inputs[i]);
            check(&op);
        }
}

static int set_up(void **state)
{
    (void)state;
    level_count = kernel_levels(levels);
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, &values[0][0], INPUTS * LENGTH_MAX);
    for (int slot = 0; slot <= INPUTS; slot++)
        for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++) pages[slot][side] = guard_alloc(PAGE_FLOATS * sizeof(float), (guard_side_t)side);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int slot = 0; slot <= INPUTS; slot++)
        for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++) guard_free(&pages[slot][side]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_activations_keep_to_their_operands),
        cmocka_unit_test(gated_activations_keep_to_their_operands),
        cmocka_unit_test(norms_keep_to_their_operands),
        cmocka_unit_test(combine_keeps_to_its_operands),
        cmocka_unit_test(mix_keeps_to_its_operands),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
