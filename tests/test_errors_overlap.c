/* SPDX-License-Identifier: MIT
 *
 * Outputs that overlap inputs, at every offset and with many strides. Which floats two tensors share is counted here, float by float: what shares
 * any must be refused unless it is exactly the same rows, what shares none and is promised to be accepted must be, and whatever is accepted
 * must give the bits of a run with everything apart.
 */
#include "support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 200, MIDDLE = 100, TOKENS = 4, WIDTH = 3 };

/* A tensor in the memory: at a float, with strides in floats. */
typedef struct placed {
    int64_t at, width, sequence, row;
} placed_t;

typedef struct shape {
    int64_t batch, length;
} shape_t;

static const shape_t shapes[] = {{1, TOKENS}, {TOKENS, 1}, {2, 2}};

/* Strides of sequences and rows; 0 and 0: contiguous. */
static const int64_t strides[][2] = {{0, 0}, {0, 4}, {0, 6}, {0, 7}, {14, 6}, {9, 3}, {3, 6}, {6, 12}};

static int64_t row_at(const placed_t *tensor, shape_t shape, int64_t token)
{
    int64_t row = tensor->row ? tensor->row : tensor->width, sequence = tensor->sequence ? tensor->sequence : shape.length * row;
    return tensor->at + token / shape.length * sequence + token % shape.length * row;
}

/* How often each float of the memory is an element of the tensor. */
static void count(const placed_t *tensor, shape_t shape, int elements[ROOM])
{
    memset(elements, 0, ROOM * sizeof *elements);
    for (int64_t token = 0; token < TOKENS; token++)
        for (int64_t i = 0; i < tensor->width; i++) elements[row_at(tensor, shape, token) + i]++;
}

static bool shares_within(const placed_t *tensor, shape_t shape)
{
    int elements[ROOM];
    count(tensor, shape, elements);
    for (int i = 0; i < ROOM; i++)
        if (elements[i] > 1) return true;
    return false;
}

static bool share(const placed_t *a, const placed_t *b, shape_t shape)
{
    int of_a[ROOM], of_b[ROOM];
    count(a, shape, of_a);
    count(b, shape, of_b);
    for (int i = 0; i < ROOM; i++)
        if (of_a[i] && of_b[i]) return true;
    return false;
}

static bool same_rows(const placed_t *a, const placed_t *b, shape_t shape)
{
    for (int64_t token = 0; token < TOKENS; token++)
        if (row_at(a, shape, token) != row_at(b, shape, token)) return false;
    return a->width == b->width;
}

/* The one stride from every row to the next, or 0. */
static int64_t constant_stride(const placed_t *tensor, shape_t shape)
{
    int64_t stride = row_at(tensor, shape, 1) - row_at(tensor, shape, 0);
    for (int64_t token = 2; token < TOKENS; token++)
        if (row_at(tensor, shape, token) - row_at(tensor, shape, token - 1) != stride) return 0;
    return stride;
}

/* What the header promises to accept of what shares nothing: apart as a whole, or interleaved with one stride for both. */
static bool promised(const placed_t *a, const placed_t *b, shape_t shape)
{
    int64_t stride = constant_stride(a, shape);
    if (stride && stride == constant_stride(b, shape)) return true;
    int64_t low_a = ROOM, low_b = ROOM, high_a = 0, high_b = 0;
    for (int64_t token = 0; token < TOKENS; token++) {
        int64_t from_a = row_at(a, shape, token), from_b = row_at(b, shape, token);
        if (from_a < low_a) low_a = from_a;
        if (from_b < low_b) low_b = from_b;
        if (from_a + a->width > high_a) high_a = from_a + a->width;
        if (from_b + b->width > high_b) high_b = from_b + b->width;
    }
    return high_a <= low_b || high_b <= low_a;
}

/* --------------------------------------------------------------- one placement */

typedef struct setting {
    const test_layer_t *test;
    shape_t shape;
    placed_t x, y, residual; /* residual.width 0: none */
} setting_t;

typedef struct totals {
    int64_t accepted, same, refused;
} totals_t;

static void fill(float memory[ROOM])
{
    for (int i = 0; i < ROOM; i++) memory[i] = (float)(i * 37 % 101) / 64 - 0.75f;
}

static ffn_run_t describe(const setting_t *setting, float *memory)
{
    const placed_t *x = &setting->x, *y = &setting->y, *residual = &setting->residual;
    return (ffn_run_t){.struct_size = sizeof(ffn_run_t), .batch = setting->shape.batch, .length = setting->shape.length, .x = memory + x->at,
                       .y = memory + y->at, .residual = residual->width ? memory + residual->at : NULL,
                       .x_stride = {4 * x->sequence, 4 * x->row}, .y_stride = {4 * y->sequence, 4 * y->row},
                       .residual_stride = {4 * residual->sequence, 4 * residual->row}};
}

/* The memory as it is after a run whose output is elsewhere and is then put in its place. */
static void expect(const setting_t *setting, float memory[ROOM])
{
    float y[TOKENS * WIDTH];
    ffn_run_t run = describe(setting, memory);
    run.y = y;
    run.y_stride[0] = run.y_stride[1] = 0;
    assert_ok(ffn_layer_run(setting->test->layer, NULL, &run));
    for (int64_t token = 0; token < TOKENS; token++)
        memcpy(memory + row_at(&setting->y, setting->shape, token), y + token * setting->y.width, (size_t)setting->y.width * sizeof *y);
}

static void check(const setting_t *setting, totals_t *totals)
{
    const placed_t *x = &setting->x, *y = &setting->y, *r = &setting->residual;
    bool external = r->width > 0, wrong = shares_within(y, setting->shape);
    bool same_x = same_rows(x, y, setting->shape), same_r = external && same_rows(r, y, setting->shape);
    bool on_x = share(x, y, setting->shape) && !same_x, on_r = external && share(r, y, setting->shape) && !same_r;
    bool must = !wrong && (same_x || promised(x, y, setting->shape)) && (!external || same_r || promised(r, y, setting->shape));
    float memory[ROOM], expected[ROOM];
    char what[160];
    snprintf(what, sizeof what, "%lld x %lld rows: x at %lld {%lld, %lld}, y at %lld {%lld, %lld}, residual at %lld, d_out %lld",
             (long long)setting->shape.batch, (long long)setting->shape.length, (long long)x->at, (long long)x->sequence, (long long)x->row,
             (long long)y->at, (long long)y->sequence, (long long)y->row, (long long)r->at, (long long)y->width);
    fill(memory);
    fill(expected);
    ffn_run_t run = describe(setting, memory);
    ffn_status_t status = ffn_layer_run(setting->test->layer, NULL, &run);
    if (status == FFN_OK) {
        if (wrong || on_x || on_r) fail_msg("%s: accepted", what);
        expect(setting, expected);
        if (memcmp(memory, expected, sizeof memory)) fail_msg("%s: another result than with the output apart", what);
        totals->accepted++;
        totals->same += same_x || same_r;
        return;
    }
    if (must && !on_x && !on_r) fail_msg("%s: refused: %s", what, ffn_last_error());
    assert_refused(status, FFN_INVALID, wrong ? "sequences of y overlap" : "y overlaps|in part", what);
    if (memcmp(memory, expected, sizeof memory)) fail_msg("%s: something was written", what);
    totals->refused++;
}

/* ------------------------------------------------------------------ the tests */

static void make_layer(test_layer_t *test, int64_t d_out, uint32_t residual)
{
    layer_case_t is = {.d_model = WIDTH, .d_ff = 4, .d_out = d_out, .activation = FFN_ACTIVATION_IDENTITY, .residual = residual, .seed = 12,
                       .norm = {{FFN_NORM_NONE, false, false, 0, 0}}};
    test_layer_make(test, &is);
}

static void sweep_y_over_x(int64_t d_out, uint32_t residual, totals_t *totals)
{
    test_layer_t test;
    make_layer(&test, d_out, residual);
    for (int64_t s = 0; s < COUNT_OF(shapes); s++)
        for (int64_t i = 0; i < COUNT_OF(strides); i++)
            for (int64_t k = 0; k < COUNT_OF(strides); k++)
                for (int64_t offset = -44; offset <= 44; offset++)
                    check(&(setting_t){&test, shapes[s], {MIDDLE, WIDTH, strides[i][0], strides[i][1]},
                                       {MIDDLE + offset, d_out, strides[k][0], strides[k][1]}, {0, 0, 0, 0}}, totals);
    test_layer_free(&test);
}

static void y_over_x_is_refused_exactly_where_they_share_in_part(void **state)
{
    (void)state;
    totals_t totals = {0, 0, 0};
    sweep_y_over_x(WIDTH, FFN_RESIDUAL_INPUT, &totals);
    sweep_y_over_x(WIDTH - 1, FFN_RESIDUAL_NONE, &totals);
    assert_true(totals.accepted > 1000 && totals.same > 10 && totals.refused > 1000);
}

/* x stays apart, or is where the residual is. */
static void y_over_the_residual_is_refused_exactly_where_they_share_in_part(void **state)
{
    (void)state;
    totals_t totals = {0, 0, 0};
    test_layer_t test;
    make_layer(&test, WIDTH, FFN_RESIDUAL_EXTERNAL);
    for (int64_t s = 0; s < COUNT_OF(shapes); s++)
        for (int64_t i = 0; i < COUNT_OF(strides); i++)
            for (int64_t k = 0; k < COUNT_OF(strides); k++)
                for (int64_t offset = -44; offset <= 44; offset++)
                    for (int64_t at = 0; at <= MIDDLE; at += MIDDLE)
                        check(&(setting_t){&test, shapes[s], {at, WIDTH, 0, 0}, {MIDDLE + offset, WIDTH, strides[k][0], strides[k][1]},
                                           {MIDDLE, WIDTH, strides[i][0], strides[i][1]}}, &totals);
    test_layer_free(&test);
    assert_true(totals.accepted > 1000 && totals.same > 10 && totals.refused > 1000);
}

/* By bytes that are no whole floats the address is refused before; by one float it is the overlap. */
static void forward_refuses_overlap_by_one_float(void **state)
{
    (void)state;
    test_layer_t test;
    make_layer(&test, WIDTH, FFN_RESIDUAL_INPUT);
    float memory[ROOM], before[ROOM];
    fill(memory);
    fill(before);
    for (int64_t offset = -(TOKENS * WIDTH) - 1; offset <= TOKENS * WIDTH + 1; offset++) {
        ffn_status_t status = ffn_layer_forward(test.layer, NULL, TOKENS, memory + MIDDLE, 0, memory + MIDDLE + offset, 0);
        bool apart = offset <= -(TOKENS * WIDTH) || offset >= TOKENS * WIDTH;
        if (apart || offset == 0) {
            assert_ok(status);
            fill(memory);
        } else {
            assert_refused(status, FFN_INVALID, "y overlaps x", "forward");
            assert_memory_equal(memory, before, sizeof memory);
        }
    }
    test_layer_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(y_over_x_is_refused_exactly_where_they_share_in_part),
        cmocka_unit_test(y_over_the_residual_is_refused_exactly_where_they_share_in_part),
        cmocka_unit_test(forward_refuses_overlap_by_one_float),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
