/* SPDX-License-Identifier: MIT
 *
 * Bad values in every field of ffn_run_t: nothing is written. Overlap is the subject of test_errors_overlap.c.
 */
#include "core/stats.h"
#include "support/header.h"
#include "support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, LENGTH = 3, D_MODEL = 5, D_OUT = 4, ROOM = 100 };

/* Whose run a row changes. */
typedef enum base { PLAIN, EXTERNAL, BASES } base_t;

typedef struct fixture {
    witness_t witness;
    test_layer_t layer[BASES];
    ffn_context_t *context;
    float x[ROOM], y[ROOM], residual[ROOM];
} fixture_t;

static fixture_t fixture;

typedef struct row {
    base_t base;
    ffn_status_t status;
    const char *words;
    patch_t patch[4];
} row_t;

#define SET(...) PATCH(ffn_run_t, __VA_ARGS__)
#define HUGE_STRIDE ((INT64_C(1) << 62) + 4)

static ffn_stats_t stats_of_others = {.d_ff = 8};

static const row_t rows[] = {
    {PLAIN, FFN_OK, "", {SET(flags, 0)}},
    {EXTERNAL, FFN_OK, "", {SET(flags, 0)}},
    {PLAIN, FFN_INVALID, "flags|1|0", {SET(flags, 1)}},
    {PLAIN, FFN_INVALID, "flags|2147483648|0", {SET(flags, 1u << 31)}},
    {PLAIN, FFN_INVALID, "reserved|1|0", {SET(reserved, 1)}},
    {PLAIN, FFN_INVALID, "reserved|4294967295|0", {SET(reserved, UINT32_MAX)}},
    {PLAIN, FFN_UNSUPPORTED, "dtype of x|1|FFN_DTYPE_F32", {SET(x_dtype, 1)}},
    {PLAIN, FFN_UNSUPPORTED, "dtype of y|4294967295|FFN_DTYPE_F32", {SET(y_dtype, UINT32_MAX)}},
    {PLAIN, FFN_UNSUPPORTED, "dtype of residual|7|FFN_DTYPE_F32", {SET(residual_dtype, 7)}},
    {PLAIN, FFN_UNSUPPORTED, "dtype of x|1|FFN_DTYPE_F32", {SET(x_dtype, 1), SET(length, 0)}},

    /* the rest of both is in test_errors_training */
    {PLAIN, FFN_UNSUPPORTED, "dropout|FFN_LAYER_TRAINABLE", {SET(dropout, NOWHERE)}},
    {PLAIN, FFN_UNSUPPORTED, "tape|FFN_LAYER_TRAINABLE", {SET(tape, NOWHERE)}},
    {PLAIN, FFN_INVALID, "stats|d_ff|8|7", {SET(stats, &stats_of_others)}},
    {EXTERNAL, FFN_INVALID, "stats|d_ff|8|7", {SET(stats, &stats_of_others), SET(length, 0)}},

    {PLAIN, FFN_INVALID, "batch|-1|0", {SET(batch, -1)}},
    {PLAIN, FFN_INVALID, "batch|-9223372036854775808|0", {SET(batch, INT64_MIN)}},
    {PLAIN, FFN_INVALID, "batch|-1|0", {SET(batch, -1), SET(length, 0)}},
    {PLAIN, FFN_INVALID, "length|-1|0", {SET(length, -1)}},
    {PLAIN, FFN_INVALID, "length|-9223372036854775808|0", {SET(length, INT64_MIN), SET(batch, 0)}},
    {PLAIN, FFN_INVALID, "batch|4294967296|length|2147483648", {SET(batch, INT64_C(1) << 32), SET(length, INT64_C(1) << 31)}},
    {PLAIN, FFN_INVALID, "batch|9223372036854775807|length|2", {SET(batch, INT64_MAX), SET(length, 2)}},
    {PLAIN, FFN_INVALID, "x|1152921504606846976", {SET(batch, 1), SET(length, INT64_C(1) << 60)}},
    {PLAIN, FFN_INVALID, "x|address space", {SET(batch, INT64_C(1) << 60), SET(length, 1)}},
    {PLAIN, FFN_INVALID, "x|address space", {SET(batch, INT64_C(1) << 30), SET(length, INT64_C(1) << 30)}},
    {PLAIN, FFN_OK, "", {SET(batch, 0), SET(length, INT64_MAX)}},
    {PLAIN, FFN_OK, "", {SET(batch, INT64_MAX), SET(length, 0)}},
    {PLAIN, FFN_OK, "", {SET(batch, 0), SET(x, NULL), SET(y, NULL), SET(x_stride[1], -1)}},
    {EXTERNAL, FFN_OK, "", {SET(length, 0), SET(x, NULL), SET(y, NULL), SET(residual, NULL)}},

    {PLAIN, FFN_INVALID, "x|NULL", {SET(x, NULL)}},
    {PLAIN, FFN_INVALID, "x|multiple of 4", {SET(x, (char *)fixture.x + 1)}},
    {PLAIN, FFN_INVALID, "x|multiple of 4", {SET(x, (char *)fixture.x + 2)}},
    {PLAIN, FFN_INVALID, "x|address space", {SET(x, (void *)(UINTPTR_MAX - 63))}},
    {PLAIN, FFN_INVALID, "y|NULL", {SET(y, NULL)}},
    {PLAIN, FFN_INVALID, "y|multiple of 4", {SET(y, (char *)fixture.y + 3)}},
    {PLAIN, FFN_INVALID, "y|address space", {SET(y, (void *)(UINTPTR_MAX - 63))}},
    {EXTERNAL, FFN_INVALID, "residual|NULL", {SET(residual, NULL)}},
    {EXTERNAL, FFN_INVALID, "residual|multiple of 4", {SET(residual, (char *)fixture.residual + 1)}},
    {EXTERNAL, FFN_INVALID, "residual|address space", {SET(residual, (void *)(UINTPTR_MAX - 63))}},
    {PLAIN, FFN_INVALID, "residual is given|not external", {SET(residual, fixture.residual)}},
    {PLAIN, FFN_INVALID, "residual is given|not external", {SET(residual, fixture.residual), SET(batch, 0)}},

    {PLAIN, FFN_INVALID, "row stride of x|16|20", {SET(x_stride[1], 16)}},
    {PLAIN, FFN_INVALID, "row stride of x|-20|20", {SET(x_stride[1], -20)}},
    {PLAIN, FFN_INVALID, "row stride of x|5|20", {SET(x_stride[1], 5)}},
    {PLAIN, FFN_INVALID, "row stride of x|21|multiple of 4", {SET(x_stride[1], 21)}},
    {PLAIN, FFN_INVALID, "row stride of x|-9223372036854775808|20", {SET(x_stride[1], INT64_MIN)}},
    {PLAIN, FFN_INVALID, "x|9223372036854775804", {SET(x_stride[1], INT64_MAX - 3)}},
    {PLAIN, FFN_INVALID, "x|address space", {SET(x_stride[0], 64), SET(x_stride[1], INT64_MAX - 3)}},
    {PLAIN, FFN_INVALID, "sequence stride of x|16|20", {SET(x_stride[0], 16)}},
    {PLAIN, FFN_INVALID, "sequence stride of x|-60|20", {SET(x_stride[0], -60)}},
    {PLAIN, FFN_INVALID, "sequence stride of x|62|multiple of 4", {SET(x_stride[0], 62)}},
    {PLAIN, FFN_INVALID, "x|address space", {SET(x_stride[0], INT64_MAX - 3)}},
    {PLAIN, FFN_INVALID, "sequence stride of x|-9223372036854775808|20", {SET(x_stride[0], INT64_MIN)}},
    /* Two rows of this stride are still addresses, twice the stride is not a number any more. */
    {PLAIN, FFN_INVALID, "y|NULL", {SET(x_stride[0], 64), SET(x_stride[1], HUGE_STRIDE), SET(length, 2), SET(y, NULL)}},

    {PLAIN, FFN_INVALID, "row stride of y|12|16", {SET(y_stride[1], 12)}},
    {PLAIN, FFN_INVALID, "row stride of y|-16|16", {SET(y_stride[1], -16)}},
    {PLAIN, FFN_INVALID, "row stride of y|18|multiple of 4", {SET(y_stride[1], 18)}},
    {PLAIN, FFN_INVALID, "y|9223372036854775804", {SET(y_stride[1], INT64_MAX - 3)}},
    {PLAIN, FFN_INVALID, "sequence stride of y|8|16", {SET(y_stride[0], 8)}},
    {PLAIN, FFN_INVALID, "sequence stride of y|50|multiple of 4", {SET(y_stride[0], 50)}},
    {PLAIN, FFN_INVALID, "sequences of y overlap|44|16", {SET(y_stride[0], 44)}},
    {PLAIN, FFN_INVALID, "sequences of y overlap|16|16", {SET(y_stride[0], 16)}},
    {PLAIN, FFN_INVALID, "sequences of y overlap|16|28", {SET(y_stride[0], 16), SET(y_stride[1], 28)}},
    {PLAIN, FFN_OK, "", {SET(y_stride[0], 16), SET(y_stride[1], 32)}}, /* sequences interleave, row by row */
    {PLAIN, FFN_OK, "", {SET(x_stride[0], 20), SET(x_stride[1], 20)}}, /* inputs may share rows */
    {EXTERNAL, FFN_OK, "", {SET(residual_stride[0], 16), SET(residual_stride[1], 16)}},

    {EXTERNAL, FFN_INVALID, "row stride of residual|12|16", {SET(residual_stride[1], 12)}},
    {EXTERNAL, FFN_INVALID, "row stride of residual|-4|16", {SET(residual_stride[1], -4)}},
    {EXTERNAL, FFN_INVALID, "row stride of residual|17|multiple of 4", {SET(residual_stride[1], 17)}},
    {EXTERNAL, FFN_INVALID, "sequence stride of residual|12|16", {SET(residual_stride[0], 12)}},
    {EXTERNAL, FFN_INVALID, "residual|address space", {SET(residual_stride[0], INT64_MAX - 3)}},

    {PLAIN, FFN_INVALID, "moe|no mixture", {SET(moe, NOWHERE)}},
};

static ffn_run_t good_run(base_t base)
{
    return (ffn_run_t){.struct_size = sizeof(ffn_run_t), .batch = BATCH, .length = LENGTH, .x = fixture.x, .y = fixture.y,
                       .residual = base == EXTERNAL ? fixture.residual : NULL};
}

static void row_text(const row_t *row, char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0; i < 4 && row->patch[i].text; i++)
        snprintf(text + strlen(text), size - strlen(text), "%s%s", i ? ", " : "", row->patch[i].text);
}

static void check_row(const row_t *row, ffn_context_t *context)
{
    ffn_run_t run = good_run(row->base), before;
    char what[200];
    row_text(row, what, sizeof what);
    for (int i = 0; i < 4; i++) patch_apply(&row->patch[i], &run);
    before = run;
    memset(fixture.y, 0xaa, sizeof fixture.y);
    forget_error();
    ffn_status_t status = ffn_layer_run(fixture.layer[row->base].layer, context, &run);
    assert_memory_equal(&before, &run, sizeof run);
    if (row->status == FFN_OK) {
        if (status != FFN_OK) fail_msg("%s: expected success, got %s: %s", what, ffn_status_name(status), ffn_last_error());
        return;
    }
    assert_refused(status, row->status, row->words, what);
    for (size_t i = 0; i < sizeof fixture.y; i++)
        if (((unsigned char *)fixture.y)[i] != 0xaa) fail_msg("%s: byte %zu of y was written", what, i);
    assert_still_right(&fixture.witness, context, what);
}

static void every_field_of_a_run_refuses_bad_values(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        check_row(&rows[i], NULL);
        check_row(&rows[i], fixture.context);
    }
}

/* Strides of one sequence, and of one row, are not looked at. */
static void strides_of_dimensions_of_one_are_ignored(void **state)
{
    (void)state;
    static const int64_t strides[] = {1, -1, 4, -20, INT64_MAX, INT64_MIN, INT64_MAX - 3};
    float expected[D_OUT];
    for (int64_t i = 0; i < COUNT_OF(strides); i++) {
        ffn_run_t run = good_run(EXTERNAL);
        run.batch = run.length = 1;
        assert_ok(ffn_layer_run(fixture.layer[EXTERNAL].layer, NULL, &run));
        memcpy(expected, fixture.y, sizeof expected);
        memset(fixture.y, 0xaa, sizeof fixture.y);
        run.x_stride[0] = run.x_stride[1] = run.y_stride[0] = run.y_stride[1] = run.residual_stride[0] = run.residual_stride[1] = strides[i];
        assert_ok(ffn_layer_run(fixture.layer[EXTERNAL].layer, NULL, &run));
        assert_memory_equal(expected, fixture.y, sizeof expected);
        assert_ok(ffn_layer_forward(fixture.layer[PLAIN].layer, NULL, 1, fixture.x, strides[i], fixture.y, strides[i]));
    }
}

/* "x_stride" of "x_stride[1] = 16" */
static void no_field_of_a_run_is_left_out(void **state)
{
    (void)state;
    header_item_t run = header_struct("ffn_run_t");
    assert_true(run.members >= 14);
    for (int64_t f = 1; f < run.members; f++) {
        size_t length = strlen(run.member[f]);
        bool found = false;
        for (int64_t i = 0; i < COUNT_OF(rows); i++) {
            const char *text = rows[i].patch[0].text;
            if (rows[i].status != FFN_OK && strncmp(text, run.member[f], length) == 0 && strchr(" [", text[length])) found = true;
        }
        if (!found) fail_msg("no bad value of %s is tried", run.member[f]);
    }
}

static int set_up(void **state)
{
    (void)state;
    witness_make(&fixture.witness, &witness_case);
    for (int i = 0; i < BASES; i++) {
        layer_case_t is = {.d_model = D_MODEL, .d_ff = 7, .d_out = D_OUT, .activation = FFN_ACTIVATION_RELU,
                           .residual = i == EXTERNAL ? FFN_RESIDUAL_EXTERNAL : FFN_RESIDUAL_NONE, .seed = 5};
        test_layer_make(&fixture.layer[i], &is);
    }
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2};
    return ffn_context_create(&options, &fixture.context);
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < BASES; i++) test_layer_free(&fixture.layer[i]);
    witness_free(&fixture.witness);
    ffn_context_free(fixture.context);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_run_refuses_bad_values),
        cmocka_unit_test(strides_of_dimensions_of_one_are_ignored),
        cmocka_unit_test(no_field_of_a_run_is_left_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
