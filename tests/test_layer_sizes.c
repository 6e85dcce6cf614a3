/* SPDX-License-Identifier: MIT
 *
 * Odd widths and numbers of tokens against the oracle; strides, guard pages, addresses, and outputs on top of inputs against the plain run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/strided.h"
#include "support/test.h"

static const int64_t widths[] = {1, 7, 64, 65};
static const int64_t hidden_widths[] = {1, 33, 256};
static const int64_t token_counts[] = {0, 1, 2, 63, 257};
static const gaps_t contiguous = {0, 0};

static void widths_and_token_counts_are_as_the_oracle(void **state)
{
    (void)state;
    uint64_t number = 1;
    for (int64_t m = 0; m < COUNT_OF(widths); m++)
        for (int64_t f = 0; f < COUNT_OF(hidden_widths); f++)
            for (int64_t o = 0; o < COUNT_OF(widths); o++)
                for (int64_t t = 0; t < COUNT_OF(token_counts); t++) {
                    layer_case_t is = {.activation = FFN_ACTIVATION_GELU, .biases = BIAS_ALL, .d_model = widths[m], .d_ff = hidden_widths[f],
                                       .d_out = widths[o], .seed = number++};
                    is.gated = (m + f + o + t) & 1;
                    is.norm[FFN_NORM_IN] = (norm_case_t){FFN_NORM_LAYER, true, true, 0, 0};
                    is.residual = m == o ? FFN_RESIDUAL_INPUT : FFN_RESIDUAL_EXTERNAL;
                    if (test_quick() && number % 7) continue;
                    check_case(&is, token_counts[t]);
                }
}

/* More tokens than a block of any sensible size holds, so that several blocks and a shorter last one occur. */
static void token_counts_of_several_blocks_are_as_the_oracle(void **state)
{
    (void)state;
    static const int64_t counts[] = {511, 512, 513, 600, 1024, 1100, 1537};
    for (int64_t i = 0; i < COUNT_OF(counts); i++)
        for (int gated = 0; gated < 2; gated++) {
            layer_case_t is = {.activation = FFN_ACTIVATION_SILU, .biases = BIAS_ALL, .gated = gated, .d_model = 33, .d_ff = 70, .d_out = 20,
                               .residual = FFN_RESIDUAL_EXTERNAL, .seed = 900 + (uint64_t)i};
            is.norm[FFN_NORM_MID] = (norm_case_t){FFN_NORM_RMS, true, false, 0, 0};
            is.norm[FFN_NORM_OUT] = (norm_case_t){FFN_NORM_LAYER, true, true, 0, 0};
            if (!test_quick() || i % 3 == 2) check_case(&is, counts[i]);
        }
}

/* A case with all that reads or writes rows: a norm at each slot, external residual, vector scales. */
static layer_case_t whole_case(int64_t d_model, int64_t d_out, uint32_t residual)
{
    layer_case_t is = {.activation = FFN_ACTIVATION_GELU, .gated = true, .biases = BIAS_ALL, .d_model = d_model, .d_ff = 37, .d_out = d_out,
                       .residual = residual, .branch_scale = SCALE_VECTOR, .residual_scale = SCALE_VECTOR, .seed = 5};
    for (int slot = 0; slot < 4; slot++) is.norm[slot] = (norm_case_t){FFN_NORM_LAYER + (uint32_t)slot % 2, true, true, 0, 0};
    return is;
}

/* How a run lays its tensors out. */
typedef struct placement {
    const char *name;
    int64_t batch, length;
    gaps_t x, y, residual;
    guard_side_t side;
} placement_t;

static const placement_t placements[] = {
    {"contiguous, at the end of a page", 1, 19, {0, 0}, {0, 0}, {0, 0}, GUARD_AFTER},
    {"contiguous, at the start of a page", 1, 19, {0, 0}, {0, 0}, {0, 0}, GUARD_BEFORE},
    {"one token", 1, 1, {0, 0}, {0, 0}, {0, 0}, GUARD_AFTER},
    {"gaps after rows", 1, 19, {3, 0}, {5, 0}, {1, 0}, GUARD_AFTER},
    {"gaps after x's rows", 1, 19, {64, 0}, {0, 0}, {0, 0}, GUARD_BEFORE},
    {"gaps after y's rows", 1, 19, {0, 0}, {64, 0}, {0, 0}, GUARD_AFTER},
    {"sequences that continue each other", 4, 5, {2, 0}, {0, 0}, {7, 0}, GUARD_AFTER},
    {"gaps after sequences", 4, 5, {0, 9}, {0, 4}, {0, 1}, GUARD_AFTER},
    {"gaps after rows and sequences", 4, 5, {2, 9}, {1, 4}, {3, 1}, GUARD_BEFORE},
    {"sequences of one row", 20, 1, {0, 6}, {0, 2}, {0, 3}, GUARD_AFTER},
    {"sequences of one row, rows with gaps", 20, 1, {4, 6}, {4, 2}, {1, 3}, GUARD_BEFORE},
    {"only y's sequences have gaps", 3, 7, {0, 0}, {0, 40}, {0, 0}, GUARD_AFTER},
    {"only the residual's sequences have gaps", 3, 7, {0, 0}, {0, 0}, {0, 11}, GUARD_AFTER},
    {"several blocks of sequences with gaps", 5, 260, {1, 3}, {2, 0}, {0, 5}, GUARD_AFTER},
    {"one long sequence with gaps", 1, 1200, {1, 0}, {2, 0}, {3, 0}, GUARD_BEFORE},
    {"no sequence", 0, 5, {0, 0}, {0, 0}, {0, 0}, GUARD_AFTER},
    {"sequences of no row", 3, 0, {0, 0}, {0, 0}, {0, 0}, GUARD_AFTER},
};

/* The oracle for the values, and the bits of the contiguous run of as many tokens. */
static void check_placement(const test_layer_t *test, const placement_t *place)
{
    int64_t tokens = place->batch * place->length, out = tokens * test->is.d_out;
    layer_data_t data = layer_data_make(test, tokens, 8);
    layer_data_run(test, NULL, &data);
    strided_t x = strided_make(place->batch, place->length, test->is.d_model, place->x, place->side);
    strided_t y = strided_make(place->batch, place->length, test->is.d_out, place->y, place->side);
    strided_t residual = strided_make(place->batch, place->length, test->is.d_out, place->residual, place->side);
    if (tokens) {
        strided_store(&x, data.x);
        if (data.residual) strided_store(&residual, data.residual);
    }
    strided_run(test, NULL, &x, data.residual ? &residual : NULL, &y);
    float *got = test_alloc((size_t)out * sizeof *got);
    strided_load(&y, got);
    assert_as_oracle(test, &data, got);
    assert_same_output(test, tokens, data.y, got, place->name);
    assert_gaps_untouched(&x, place->name);
    assert_gaps_untouched(&y, place->name);
    assert_gaps_untouched(&residual, place->name);
    free(got);
    strided_free(&x);
    strided_free(&y);
    strided_free(&residual);
    layer_data_free(&data);
}

static void strides_and_guard_pages_leave_bits_and_gaps_alone(void **state)
{
    (void)state;
    static const uint32_t residuals[] = {FFN_RESIDUAL_NONE, FFN_RESIDUAL_INPUT, FFN_RESIDUAL_NORMED, FFN_RESIDUAL_EXTERNAL};
    for (int64_t r = 0; r < COUNT_OF(residuals); r++) {
        layer_case_t is = whole_case(29, r == 3 ? 18 : 29, residuals[r]);
        if (r == 0) is.residual_scale = SCALE_NONE;
        test_layer_t test;
        test_layer_make(&test, &is);
        for (int64_t i = 0; i < COUNT_OF(placements); i++)
            if (!test_quick() || placements[i].batch * placements[i].length < 100) check_placement(&test, &placements[i]);
        test_layer_free(&test);
    }
}

/* ---------------------------------------------------------------- Outputs on top of inputs */

static const int64_t overlap_batches[][2] = {{1, 1}, {1, 2}, {1, 63}, {4, 16}, {1, 700}, {3, 400}};
static const gaps_t overlap_gaps[] = {{0, 0}, {5, 0}, {0, 7}, {2, 3}};

/* Runs with y apart, then with y on top of x (or of the residual), and asserts the same bits. */
static void check_overlap(const test_layer_t *test, int64_t batch, int64_t length, gaps_t gaps, bool on_residual)
{
    const char *what = on_residual ? "y on top of the residual" : "y on top of x";
    int64_t tokens = batch * length;
    layer_data_t data = layer_data_make(test, tokens, 21);
    strided_t x = strided_make(batch, length, test->is.d_model, gaps, GUARD_AFTER);
    strided_t residual = strided_make(batch, length, test->is.d_out, gaps, GUARD_AFTER);
    strided_t apart = strided_make(batch, length, test->is.d_out, gaps, GUARD_AFTER);
    strided_store(&x, data.x);
    if (data.residual) strided_store(&residual, data.residual);
    const strided_t *y = on_residual ? &residual : &x, *r = data.residual ? &residual : NULL;
    strided_run(test, NULL, &x, r, &apart);
    strided_run(test, NULL, &x, r, y);
    float *got = test_alloc((size_t)(tokens * test->is.d_out) * sizeof *got);
    strided_load(&apart, data.y);
    strided_load(y, got);
    assert_same_output(test, tokens, data.y, got, what);
    assert_gaps_untouched(y, what);
    free(got);
    strided_free(&x);
    strided_free(&residual);
    strided_free(&apart);
    layer_data_free(&data);
}

static void check_overlaps(const layer_case_t *is, bool on_residual)
{
    test_layer_t test;
    test_layer_make(&test, is);
    for (int64_t i = 0; i < COUNT_OF(overlap_batches); i++)
        for (int64_t g = 0; g < COUNT_OF(overlap_gaps); g++) {
            if (test_quick() && i > 3) continue;
            check_overlap(&test, overlap_batches[i][0], overlap_batches[i][1], overlap_gaps[g], on_residual);
        }
    test_layer_free(&test);
}

static void output_on_top_of_the_input_has_the_same_bits(void **state)
{
    (void)state;
    for (uint32_t residual = FFN_RESIDUAL_NONE; residual <= FFN_RESIDUAL_EXTERNAL; residual++)
        for (int norms = 0; norms < 2; norms++) {
            layer_case_t is = whole_case(29, 29, residual);
            if (residual == FFN_RESIDUAL_NONE) is.residual_scale = SCALE_NONE;
            if (!norms) memset(is.norm, 0, sizeof is.norm);
            check_overlaps(&is, false);
        }
}

static void output_on_top_of_the_residual_has_the_same_bits(void **state)
{
    (void)state;
    for (int norms = 0; norms < 2; norms++)
        for (int64_t d_out = 18; d_out <= 29; d_out += 11) {
            layer_case_t is = whole_case(29, d_out, FFN_RESIDUAL_EXTERNAL);
            if (!norms) memset(is.norm, 0, sizeof is.norm);
            check_overlaps(&is, true);
        }
}

/* x, y and residual one array. */
static void input_residual_and_output_may_be_one_array(void **state)
{
    (void)state;
    layer_case_t is = whole_case(29, 29, FFN_RESIDUAL_EXTERNAL);
    test_layer_t test;
    test_layer_make(&test, &is);
    layer_data_t data = layer_data_make(&test, 600, 4);
    memcpy(data.residual, data.x, 600 * 29 * sizeof(float));
    layer_data_run(&test, NULL, &data);
    strided_t all = strided_make(1, 600, 29, contiguous, GUARD_AFTER);
    strided_store(&all, data.x);
    strided_run(&test, NULL, &all, &all, &all);
    assert_same_output(&test, 600, data.y, all.memory.data, "x, residual and y one array");
    strided_free(&all);
    layer_data_free(&data);
    test_layer_free(&test);
}

/* Rows of x and y side by side in one array, sharing no element. */
static void rows_of_input_and_output_may_interleave(void **state)
{
    (void)state;
    enum { TOKENS = 600, WIDTH = 29, STEP = 2 * WIDTH + 1 };
    layer_case_t is = whole_case(WIDTH, WIDTH, FFN_RESIDUAL_INPUT);
    test_layer_t test;
    test_layer_make(&test, &is);
    layer_data_t data = layer_data_make(&test, TOKENS, 4);
    layer_data_run(&test, NULL, &data);
    float *both = test_alloc(TOKENS * STEP * sizeof(float)), *got = test_alloc(TOKENS * WIDTH * sizeof(float));
    for (int64_t t = 0; t < TOKENS; t++) memcpy(both + t * STEP, data.x + t * WIDTH, WIDTH * sizeof(float));
    assert_ok(ffn_layer_forward(test.layer, NULL, TOKENS, both, STEP * sizeof(float), both + WIDTH, STEP * sizeof(float)));
    for (int64_t t = 0; t < TOKENS; t++) memcpy(got + t * WIDTH, both + t * STEP + WIDTH, WIDTH * sizeof(float));
    assert_same_output(&test, TOKENS, data.y, got, "interleaved rows");
    for (int64_t t = 0; t < TOKENS; t++) assert_same_bits(data.x + t * WIDTH, both + t * STEP, WIDTH, "x between the rows of y");
    free(both);
    free(got);
    layer_data_free(&data);
    test_layer_free(&test);
}

/* ---------------------------------------------------------------- Addresses */

static void any_address_that_is_a_multiple_of_four_gives_the_same_bits(void **state)
{
    (void)state;
    enum { TOKENS = 21, MOST = 16, ROOM = 16 };
    layer_case_t is = whole_case(29, 18, FFN_RESIDUAL_EXTERNAL);
    test_layer_t test;
    test_layer_make(&test, &is);
    layer_data_t data = layer_data_make(&test, TOKENS, 6);
    layer_data_run(&test, NULL, &data);
    float *x = aligned_alloc(64, 64 * 100), *residual = aligned_alloc(64, 64 * 100), *y = aligned_alloc(64, 64 * 100);
    for (int shift = 0; shift < MOST; shift++) {
        memcpy(x + shift, data.x, TOKENS * 29 * sizeof(float));
        memcpy(residual + (shift * 3) % ROOM, data.residual, TOKENS * 18 * sizeof(float));
        memset(y, 0xff, 64 * 100);
        float *to = y + (shift * 7) % ROOM;
        ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = TOKENS, .x = x + shift, .residual = residual + (shift * 3) % ROOM,
                         .y = to};
        assert_ok(ffn_layer_run(test.layer, NULL, &run));
        assert_same_output(&test, TOKENS, data.y, to, "another address");
    }
    free(x);
    free(residual);
    free(y);
    layer_data_free(&data);
    test_layer_free(&test);
}

/* Weights, too, may end where the page ends: nothing beside them is read. */
static void weights_may_stand_between_guard_pages(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            layer_case_t is = whole_case(29, 18, FFN_RESIDUAL_EXTERNAL);
            is.layout = is.down_layout = (layout_t)layout;
            test_layer_t test;
            test_layer_describe(&test, &is);
            guard_buffer_t guarded[ROLES] = {0};
            for (uint64_t i = 0; i < test.options.tensor_count; i++) {
                ffn_tensor_t *tensor = &test.tensors[i];
                for (int role = 0; role < ROLES; role++) {
                    char *from = (char *)test.stored[role], *data = tensor->data;
                    size_t size = (size_t)test.stored_floats[role] * sizeof(float);
                    if (!from || data < from || data >= from + size) continue;
                    if (!guarded[role].map) {
                        guarded[role] = guard_alloc(size, side ? GUARD_AFTER : GUARD_BEFORE);
                        memcpy(guarded[role].data, from, size);
                    }
                    tensor->data = (char *)guarded[role].data + (data - from);
                    break;
                }
            }
            test_layer_create(&test);
            for (int role = 0; role < ROLES; role++) guard_free(&guarded[role]);
            layer_data_t data = layer_data_make(&test, 3, 9);
            layer_data_run(&test, NULL, &data);
            assert_as_oracle(&test, &data, data.y);
            layer_data_free(&data);
            test_layer_free(&test);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_and_token_counts_are_as_the_oracle),
        cmocka_unit_test(token_counts_of_several_blocks_are_as_the_oracle),
        cmocka_unit_test(strides_and_guard_pages_leave_bits_and_gaps_alone),
        cmocka_unit_test(output_on_top_of_the_input_has_the_same_bits),
        cmocka_unit_test(output_on_top_of_the_residual_has_the_same_bits),
        cmocka_unit_test(input_residual_and_output_may_be_one_array),
        cmocka_unit_test(rows_of_input_and_output_may_interleave),
        cmocka_unit_test(any_address_that_is_a_multiple_of_four_gives_the_same_bits),
        cmocka_unit_test(weights_may_stand_between_guard_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
