/* SPDX-License-Identifier: MIT
 *
 * Bad views given to ffn_layer_read: nothing is written unless all are right.
 */
#include "support/hostile.h"

#include <stdlib.h>
#include <string.h>

enum { D = 5, FF = 7, OUT = 6, FLOATS = 512 };

static const layer_case_t whole_case = {
    .d_model = D, .d_ff = FF, .d_out = OUT, .activation = FFN_ACTIVATION_GELU, .gated = true, .biases = BIAS_ALL, .branch_scale = SCALE_ONE,
    .norm = {{FFN_NORM_LAYER, true, true, 0, 0}, {FFN_NORM_RMS, true, false, 0, 0}, {FFN_NORM_LAYER, false, true, 0, 0}}, .seed = 77};

typedef struct fixture {
    witness_t witness;
    ffn_layer_t *layer;
    float memory[FLOATS]; /* what the views of the rows are in */
} fixture_t;

static fixture_t fixture;

/* At float `at` of the memory, with strides in floats. */
#define VECTOR(role, at, n, s) {role, 0, 0, 1, fixture.memory + (at), {n}, {4 * (s)}, NULL, {0}}
#define MATRIX(role, at, rows, columns, r, c) {role, 0, 0, 2, fixture.memory + (at), {rows, columns}, {4 * (r), 4 * (c)}, NULL, {0}}
#define UP FFN_ROLE_UP_WEIGHT
#define GATE FFN_ROLE_GATE_WEIGHT
#define DOWN FFN_ROLE_DOWN_WEIGHT

typedef struct row {
    const char *what;
    ffn_status_t status;
    const char *words;
    ffn_tensor_t views[3]; /* role 0: none */
} row_t;

static const row_t rows[] = {
    {"a role that the layer does not have", FFN_INVALID, "xielu's alpha_p|not in this layer", {VECTOR(FFN_ROLE_XIELU_ALPHA_P, 0, 1, 0)}},
    {"a role given twice", FFN_INVALID, "the up bias|twice", {VECTOR(FFN_ROLE_UP_BIAS, 0, FF, 0), VECTOR(FFN_ROLE_UP_BIAS, 9, FF, 0)}},
    {"an unknown role", FFN_INVALID, "role of tensors[1]|24", {VECTOR(FFN_ROLE_UP_BIAS, 0, FF, 0), VECTOR(24, 9, FF, 0)}},
    {"a scale of [1] into a longer view", FFN_INVALID, "shape[0] of the branch scale|6|1", {VECTOR(FFN_ROLE_BRANCH_SCALE, 0, OUT, 0)}},
    {"a view one row short", FFN_INVALID, "shape[0] of the up weight|6|7", {MATRIX(UP, 0, FF - 1, D, 0, 0)}},
    {"a view one column too wide", FFN_INVALID, "shape[1] of the up weight|6|5", {MATRIX(UP, 0, FF, D + 1, 0, 0)}},
    {"a transposed shape", FFN_INVALID, "shape[0] of the up weight|5|7", {MATRIX(UP, 0, D, FF, 0, 0)}},
    {"a good view before a bad one", FFN_INVALID, "shape[0] of the down weight", {MATRIX(UP, 0, FF, D, 0, 0), MATRIX(DOWN, 50, FF, OUT, 0, 0)}},
    {"a bad view before a good one", FFN_INVALID, "shape[0] of the up weight", {MATRIX(UP, 50, D, FF, 0, 0), MATRIX(DOWN, 0, OUT, FF, 0, 0)}},
    {"rows on top of each other", FFN_INVALID, "strides of the up weight", {MATRIX(UP, 0, FF, D, 0, 1)}},
    {"columns on top of each other", FFN_INVALID, "strides of the up weight", {MATRIX(UP, 0, FF, D, D, 0)}},
    {"rows one float too close", FFN_INVALID, "strides of the up weight", {MATRIX(UP, 0, FF, D, D - 1, 1)}},
    {"backward rows one float too close", FFN_INVALID, "strides of the up weight", {MATRIX(UP, 100, FF, D, -(D - 1), 1)}},
    {"transposed, one float too close", FFN_INVALID, "strides of the up weight", {MATRIX(UP, 0, FF, D, 1, FF - 1)}},
    {"equal strides", FFN_INVALID, "strides of the up weight", {MATRIX(UP, 0, FF, D, 5, 5)}},
    {"a stride of no whole floats", FFN_INVALID, "stride[0] of the up bias|6|multiple of 4",
     {{FFN_ROLE_UP_BIAS, 0, 0, 1, fixture.memory, {FF}, {6}, NULL, {0}}}},
    {"a stride of INT64_MIN", FFN_INVALID, "strides of the up bias|address space",
     {{FFN_ROLE_UP_BIAS, 0, 0, 1, fixture.memory, {FF}, {INT64_MIN}, NULL, {0}}}},
    {"no memory", FFN_INVALID, "data of the up bias|NULL", {{FFN_ROLE_UP_BIAS, 0, 0, 1, NULL, {FF}, {0}, NULL, {0}}}},
    {"narrow numbers", FFN_UNSUPPORTED, "dtype of the up bias|2", {{FFN_ROLE_UP_BIAS, 0, 2, 1, fixture.memory, {FF}, {0}, NULL, {0}}}},
    {"an expert", FFN_INVALID, "expert of the up bias|1", {{FFN_ROLE_UP_BIAS, 1, 0, 1, fixture.memory, {FF}, {0}, NULL, {0}}}},
    {"a stack of experts", FFN_INVALID, "ndim of the up bias|2|1", {{FFN_ROLE_UP_BIAS, 0, 0, 2, fixture.memory, {2, FF}, {0}, NULL, {0}}}},
    {"quantised numbers", FFN_UNSUPPORTED, "quant of the up bias", {{FFN_ROLE_UP_BIAS, 0, 0, 1, fixture.memory, {FF}, {0}, NOWHERE, {0}}}},
    {"a reserved field", FFN_UNSUPPORTED, "reserved[2] of the up bias",
     {{FFN_ROLE_UP_BIAS, 0, 0, 1, fixture.memory, {FF}, {0}, NULL, {0, 0, 1}}}},

    {"two views of one array", FFN_INVALID, "the up weight|the gate weight|overlap", {MATRIX(UP, 0, FF, D, 0, 0), MATRIX(GATE, 0, FF, D, 0, 0)}},
    {"the last float of one is the first of the other", FFN_INVALID, "overlap", {MATRIX(UP, 0, FF, D, 0, 0), MATRIX(GATE, FF *D - 1, FF, D, 0, 0)}},
    {"a vector inside of a matrix", FFN_INVALID, "the up bias|the down weight|overlap",
     {VECTOR(FFN_ROLE_UP_BIAS, 9, FF, 1), MATRIX(DOWN, 0, OUT, FF, 0, 0)}},
    {"interleaved rows that meet in one float", FFN_INVALID, "overlap", {MATRIX(UP, 0, FF, D, 2 * D, 1), MATRIX(GATE, D - 1, FF, D, 2 * D, 1)}},
    {"interleaved columns that meet in one column", FFN_INVALID, "overlap",
     {MATRIX(UP, 0, FF, D, 2, 2 * FF), MATRIX(GATE, 2 * FF, FF, D, 2, 2 * FF)}},
    {"a row and a column of a square", FFN_INVALID, "the up bias|the gate bias|overlap",
     {VECTOR(FFN_ROLE_UP_BIAS, 7 * 3, FF, 1), VECTOR(FFN_ROLE_GATE_BIAS, 2, FF, 7)}},
    {"backward over the last one", FFN_INVALID, "overlap",
     {VECTOR(FFN_ROLE_UP_BIAS, 20, FF, -1), VECTOR(FFN_ROLE_GATE_BIAS, 14, FF, -1)}},

    {"halves", FFN_OK, "", {MATRIX(UP, 0, FF, D, 0, 0), MATRIX(GATE, FF *D, FF, D, 0, 0)}},
    {"interleaved rows", FFN_OK, "", {MATRIX(UP, 0, FF, D, 2 * D, 1), MATRIX(GATE, D, FF, D, 2 * D, 1)}},
    {"interleaved columns", FFN_OK, "", {MATRIX(UP, 0, FF, D, 2, 2 * FF), MATRIX(GATE, 1, FF, D, 2, 2 * FF)}},
    {"a bias in the last column of its matrix", FFN_OK, "", {MATRIX(UP, 0, FF, D, D + 1, 1), VECTOR(FFN_ROLE_UP_BIAS, D, FF, D + 1)}},
    {"a bias in the gaps of another matrix", FFN_OK, "", {MATRIX(DOWN, 0, OUT, FF, 2 * FF, 1), VECTOR(FFN_ROLE_UP_BIAS, FF, FF, 1)}},
    {"backward beside forward", FFN_OK, "", {VECTOR(FFN_ROLE_UP_BIAS, 20, FF, -1), VECTOR(FFN_ROLE_GATE_BIAS, 13, FF, -1)}},
};

static uint64_t count_views(const ffn_tensor_t *views)
{
    uint64_t count = 0;
    while (count < 3 && views[count].role != FFN_ROLE_NONE) count++;
    return count;
}

static void bad_views_are_refused_and_nothing_is_written(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const row_t *row = &rows[i];
        memset(fixture.memory, 0xaa, sizeof fixture.memory);
        forget_error();
        ffn_status_t status = ffn_layer_read(fixture.layer, row->views, count_views(row->views));
        if (row->status == FFN_OK) {
            if (status != FFN_OK) fail_msg("%s: expected success, got %s: %s", row->what, ffn_status_name(status), ffn_last_error());
            continue;
        }
        assert_refused(status, row->status, row->words, row->what);
        for (size_t k = 0; k < sizeof fixture.memory; k++)
            if (((unsigned char *)fixture.memory)[k] != 0xaa) fail_msg("%s: byte %zu of the memory was written", row->what, k);
        assert_still_right(&fixture.witness, NULL, row->what);
    }
}

/* The same as any order of the two would tell. */
static void views_overlap_whichever_comes_first(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (count_views(rows[i].views) != 2) continue;
        const ffn_tensor_t swapped[2] = {rows[i].views[1], rows[i].views[0]};
        ffn_status_t status = ffn_layer_read(fixture.layer, swapped, 2);
        if (status != rows[i].status) fail_msg("%s, the other way round: got %s", rows[i].what, ffn_status_name(status));
    }
}

static int set_up(void **state)
{
    (void)state;
    test_layer_t whole;
    witness_make(&fixture.witness, &witness_case);
    test_layer_make(&whole, &whole_case);
    fixture.layer = whole.layer;
    whole.layer = NULL;
    test_layer_free(&whole);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ffn_layer_free(fixture.layer);
    witness_free(&fixture.witness);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_views_are_refused_and_nothing_is_written),
        cmocka_unit_test(views_overlap_whichever_comes_first),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
