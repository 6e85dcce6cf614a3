/* SPDX-License-Identifier: MIT
 *
 * The native engine's promise: a token's bits depend on the token and the layer alone. Over 1 to 130 tokens (and some larger runs, which are cut
 * otherwise), 1 to 7 threads and a caller's parallel-for, batches split anywhere, places in the batch, strides, and limits of scratch memory.
 */
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

enum { TOKENS = 700, DIFFERENT = 130 };

/* Layers that take every way through the engine: each norm slot, gated or not, tails in every dimension, and depths that are cut (above 1024). */
static const layer_case_t cases[] = {
    {.name = "plain", .d_model = 64, .d_ff = 172, .activation = FFN_ACTIVATION_GELU, .biases = BIAS_ALL},
    {.name = "gated", .d_model = 71, .d_ff = 133, .activation = FFN_ACTIVATION_SILU, .gated = true, .residual = FFN_RESIDUAL_INPUT,
     .norm = {[FFN_NORM_IN] = {FFN_NORM_RMS, true, false, 0, 0}}},
    {.name = "every norm", .d_model = 50, .d_ff = 129, .activation = FFN_ACTIVATION_RELU, .biases = BIAS_ALL, .residual = FFN_RESIDUAL_NORMED,
     .norm = {{FFN_NORM_LAYER, true, true, 0, 0}, {FFN_NORM_RMS, true, false, 0, 0}, {FFN_NORM_LAYER, true, true, 0, 0}, {FFN_NORM_RMS, true, false, 0, 0}}},
    {.name = "deep", .d_model = 1100, .d_ff = 2100, .d_out = 40, .activation = FFN_ACTIVATION_SILU, .gated = true},
    {.name = "wide", .d_model = 40, .d_ff = 1300, .d_out = 515, .activation = FFN_ACTIVATION_RELU2, .branch_scale = SCALE_VECTOR},
};

typedef struct bits {
    test_layer_t test;
    layer_data_t data;
    float *expected; /* each token alone, on the calling thread */
} bits_t;

static void run(const bits_t *bits, ffn_context_t *context, int64_t first, int64_t tokens, float *y)
{
    int64_t d_model = bits->test.is.d_model;
    assert_ok(ffn_layer_forward(bits->test.layer, context, tokens, bits->data.x + first * d_model, 0, y, 0));
}

static bits_t bits_make(const layer_case_t *is)
{
    bits_t bits;
    test_layer_describe(&bits.test, is);
    bits.test.options.engine = FFN_ENGINE_NATIVE;
    test_layer_create(&bits.test);
    bits.data = layer_data_make(&bits.test, TOKENS, 5);
    int64_t d_out = bits.test.is.d_out, d_model = bits.test.is.d_model;
    bits.expected = test_alloc((size_t)(TOKENS * d_out) * sizeof(float));
    /* Tokens repeat after DIFFERENT, at other places of the batch. */
    for (int64_t i = DIFFERENT; i < TOKENS; i++)
        memcpy(bits.data.x + i * d_model, bits.data.x + i % DIFFERENT * d_model, (size_t)d_model * sizeof(float));
    for (int64_t i = 0; i < DIFFERENT; i++) run(&bits, NULL, i, 1, bits.expected + i * d_out);
    for (int64_t i = DIFFERENT; i < TOKENS; i++)
        memcpy(bits.expected + i * d_out, bits.expected + i % DIFFERENT * d_out, (size_t)d_out * sizeof(float));
    return bits;
}

static void bits_free(bits_t *bits)
{
    free(bits->expected);
    layer_data_free(&bits->data);
    test_layer_free(&bits->test);
}

static ffn_context_t *context_of(uint32_t threads, ffn_parallel_for_fn parallel_for, uint64_t limit)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads, .parallel_for = parallel_for, .scratch_limit = limit};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

static void check(const bits_t *bits, ffn_context_t *context, int64_t first, int64_t tokens, const char *what)
{
    int64_t d_out = bits->test.is.d_out;
    memset(bits->data.y, 0xff, (size_t)(tokens * d_out) * sizeof(float));
    run(bits, context, first, tokens, bits->data.y);
    assert_same_output(&bits->test, tokens, bits->expected + first * d_out, bits->data.y, what);
}

static void for_each_case(void (*check_case_of)(const bits_t *bits))
{
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        bits_t bits = bits_make(&cases[i]);
        check_case_of(&bits);
        bits_free(&bits);
    }
}

/* ------------------------------------------------------------ number and threads */

static void check_numbers(const bits_t *bits)
{
    static const int64_t larger[] = {191, 192, 193, 385, 577, 699};
    bool large_layer = bits->test.is.d_ff > 1000, slow = test_quick() || strcmp(test_isa_cap(), "scalar") == 0;
    for (uint32_t threads = 1; threads <= 7; threads += slow ? 3 : 1) {
        ffn_context_t *context = context_of(threads, NULL, 0);
        for (int64_t tokens = 1; tokens <= 130; tokens += large_layer || slow ? 1 + (int64_t)threads * 3 : 1)
            check(bits, context, 0, tokens, "a number of tokens");
        for (int64_t i = 0; i < COUNT_OF(larger); i += slow ? 5 : 1) check(bits, context, 0, larger[i], "many tokens");
        ffn_context_free(context);
    }
}

static void bits_do_not_depend_on_the_number_of_tokens_and_threads(void **state)
{
    (void)state;
    for_each_case(check_numbers);
}

static void backwards(void *user, int64_t count, ffn_task_fn task, void *data)
{
    (void)user;
    for (int64_t i = count - 1; i >= 0; i--) task(data, i);
}

static void check_parallel_for(const bits_t *bits)
{
    ffn_context_t *context = context_of(5, backwards, 0);
    for (int64_t tokens = 1; tokens < TOKENS; tokens += tokens < 40 ? 3 : 97) check(bits, context, 0, tokens, "a parallel-for");
    ffn_context_free(context);
}

static void bits_do_not_depend_on_a_callers_parallel_for(void **state)
{
    (void)state;
    for_each_case(check_parallel_for);
}

/* --------------------------------------------------------------------- cuts */

static void check_cuts(const bits_t *bits)
{
    rng_t rng = rng_make(test_seed() + 3);
    ffn_context_t *contexts[2] = {context_of(1, NULL, 0), context_of(3, NULL, 0)};
    for (int i = 0; i < (test_quick() || strcmp(test_isa_cap(), "scalar") == 0 ? 2 : 12); i++)
        for (int64_t first = 0, tokens; first < TOKENS; first += tokens) {
            tokens = 1 + rng_below(&rng, i % 3 ? 40 : 300);
            if (tokens > TOKENS - first) tokens = TOKENS - first;
            check(bits, contexts[i % 2], first, tokens, "a batch cut in pieces");
        }
    for (int i = 0; i < 2; i++) ffn_context_free(contexts[i]);
}

static void bits_do_not_depend_on_where_a_batch_is_cut(void **state)
{
    (void)state;
    for_each_case(check_cuts);
}

/* Rows far apart, sequences interleaved, in place where the widths agree. */
static void check_strides(const bits_t *bits)
{
    int64_t d_model = bits->test.is.d_model, d_out = bits->test.is.d_out, tokens = 120, x_row = d_model + 3, y_row = d_out + 5;
    float *x = test_alloc((size_t)(tokens * x_row) * 4), *y = test_alloc((size_t)(tokens * y_row) * 4), *packed = bits->data.y;
    ffn_run_t strided = {.struct_size = sizeof strided, .batch = 3, .length = 40, .x = x, .y = y, .x_stride = {x_row * 4, x_row * 12},
                         .y_stride = {y_row * 4, y_row * 12}};
    for (int64_t i = 0; i < tokens; i++) /* token i of the run is row i % 40 of sequence i / 40 */
        memcpy(x + (i % 40 * 3 + i / 40) * x_row, bits->data.x + i * d_model, (size_t)d_model * 4);
    ffn_context_t *context = context_of(2, NULL, 0);
    assert_ok(ffn_layer_run(bits->test.layer, context, &strided));
    for (int64_t i = 0; i < tokens; i++) memcpy(packed + i * d_out, y + (i % 40 * 3 + i / 40) * y_row, (size_t)d_out * 4);
    assert_same_output(&bits->test, tokens, bits->expected, packed, "strides");
    if (d_out == d_model) {
        ffn_run_t in_place = strided;
        in_place.y = x, in_place.y_stride[0] = x_row * 4, in_place.y_stride[1] = x_row * 12;
        assert_ok(ffn_layer_run(bits->test.layer, context, &in_place));
        for (int64_t i = 0; i < tokens; i++) memcpy(packed + i * d_out, x + (i % 40 * 3 + i / 40) * x_row, (size_t)d_out * 4);
        assert_same_output(&bits->test, tokens, bits->expected, packed, "in place");
    }
    ffn_context_free(context);
    free(x);
    free(y);
}

static void bits_do_not_depend_on_strides_and_place(void **state)
{
    (void)state;
    for_each_case(check_strides);
}

/* -------------------------------------------------------------------- limits */

static uint64_t scratch_of(ffn_context_t *context)
{
    ffn_context_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_context_info(context, &info));
    return info.scratch_bytes;
}

static void check_limits(const bits_t *bits)
{
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        ffn_context_t *free_context = context_of(threads, NULL, 0), *tiny = context_of(threads, NULL, 64);
        assert_ok(ffn_context_reserve(free_context, bits->test.layer, TOKENS));
        uint64_t all = scratch_of(free_context);
        for (uint64_t limit = all; limit > all / 8; limit = limit * 2 / 3) {
            ffn_context_t *context = context_of(threads, NULL, limit);
            check(bits, context, 0, TOKENS, "a limit of scratch memory");
            assert_true(scratch_of(context) <= limit);
            assert_ok(ffn_context_reserve(context, bits->test.layer, INT64_C(1) << 40));
            assert_true(scratch_of(context) <= limit);
            ffn_context_free(context);
        }
        assert_int_equal(ffn_layer_forward(bits->test.layer, tiny, 9, bits->data.x, 0, bits->data.y, 0), FFN_NO_MEMORY);
        assert_non_null(strstr(ffn_last_error(), "scratch_limit of the context is 64 bytes, must be at least"));
        assert_int_equal(ffn_context_reserve(tiny, bits->test.layer, 9), FFN_NO_MEMORY);
        ffn_context_free(tiny);
        ffn_context_free(free_context);
    }
}

static void a_limit_of_scratch_memory_is_kept_and_changes_no_bit(void **state)
{
    (void)state;
    for_each_case(check_limits);
}

/* Each other token is an infinity or a NaN: its neighbours do not notice. */
static void what_other_tokens_hold_does_not_matter(void **state)
{
    (void)state;
    bits_t bits = bits_make(&cases[1]);
    int64_t d_model = bits.test.is.d_model, d_out = bits.test.is.d_out;
    memset(bits.data.x, 0xff, (size_t)d_model * sizeof(float));
    for (int64_t i = 2; i < 64; i += 2) memset(bits.data.x + i * d_model, 0xff, (size_t)d_model * sizeof(float));
    run(&bits, NULL, 0, 64, bits.data.y);
    for (int64_t i = 1; i < 64; i += 2) assert_same_bits(bits.expected + i * d_out, bits.data.y + i * d_out, d_out, "beside NaN");
    bits_free(&bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_tokens_and_threads),
        cmocka_unit_test(bits_do_not_depend_on_a_callers_parallel_for),
        cmocka_unit_test(bits_do_not_depend_on_where_a_batch_is_cut),
        cmocka_unit_test(bits_do_not_depend_on_strides_and_place),
        cmocka_unit_test(a_limit_of_scratch_memory_is_kept_and_changes_no_bit),
        cmocka_unit_test(what_other_tokens_hold_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
