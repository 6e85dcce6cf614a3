/* SPDX-License-Identifier: MIT
 *
 * Threads and coroutines with 64 kB of stack, where OpenBLAS with two threads alone would overrun it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "base/stack.h"
#include "support/blas.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/small_stack.h"

enum { D_MODEL = 512, D_FF = 2048, TOKENS = 600 };

/* Below, at and above the rows that go through sgemv, one block, and several. */
static const int64_t token_counts[] = {1, 2, 6, 7, 64, TOKENS};

typedef struct fixture {
    ffn_layer_options_t options;
    ffn_tensor_t tensors[4];
    float *weights, *x, *y, *expected; /* expected: the outputs of all counts one after the other */
    ffn_layer_t *layer;
    ffn_context_t *context;
    int blas_threads;
    bool failed; /* by what ran on the small stack, where the test cannot be ended */
    char text[400];
} fixture_t;

static fixture_t fixture;

static void complain(const char *what)
{
    if (!fixture.failed) snprintf(fixture.text, sizeof fixture.text, "%s (last error: %s)", what, ffn_last_error());
    fixture.failed = true;
}

/* All but the most tokens where it would take long. */
static int64_t counts(void)
{
    return test_quick() ? 4 : COUNT_OF(token_counts);
}

static void run_all_counts(ffn_context_t *context, const float *expected)
{
    for (int64_t i = 0; i < counts(); i++) {
        int64_t n = token_counts[i] * D_MODEL;
        char what[60];
        memset(fixture.y, 0xff, (size_t)n * sizeof(float));
        snprintf(what, sizeof what, "%lld tokens", (long long)token_counts[i]);
        if (ffn_layer_forward(fixture.layer, context, token_counts[i], fixture.x, 0, fixture.y, 0) != FFN_OK) complain(what);
        else if (memcmp(expected, fixture.y, (size_t)n * sizeof(float))) complain(what);
        expected += n;
    }
}

/* All that the interface has, with what little stack there is. */
static void everything(void *threads)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = *(uint32_t *)threads};
    ffn_context_t *context = NULL, *automatic = NULL;
    ffn_layer_t *made = NULL;
    ffn_tensor_t view = {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = fixture.y, .shape = {D_FF}};
    uint32_t activation;
    blas_threads_set_here(fixture.blas_threads);
    if (ffn_context_create(&options, &context) != FFN_OK || ffn_context_create(NULL, &automatic) != FFN_OK) complain("ffn_context_create");
    if (ffn_layer_create(context, &fixture.options, &made) != FFN_OK) complain("ffn_layer_create");
    if (ffn_layer_read(made, &view, 1) != FFN_OK) complain("ffn_layer_read");
    if (ffn_activation_from_name("no such name", &activation) != FFN_INVALID) complain("ffn_activation_from_name");
    ffn_build_info();
    if (ffn_context_reserve(context, made, 1000) != FFN_OK) complain("ffn_context_reserve");
    run_all_counts(context, fixture.expected);
    run_all_counts(NULL, fixture.expected);
    ffn_layer_free(made);
    ffn_context_free(context);
    ffn_context_free(automatic);
}

static void check(void (*on_stack)(small_stack_fn *, void *), uint32_t threads, int blas_threads)
{
    int before = blas_threads_set(blas_threads);
    fixture.blas_threads = blas_threads;
    fixture.failed = false;
    float *expected = fixture.expected;
    for (int64_t i = 0; i < counts(); i++) {
        assert_ok(ffn_layer_forward(fixture.layer, NULL, token_counts[i], fixture.x, 0, expected, 0));
        expected += token_counts[i] * D_MODEL;
    }
    on_stack(everything, &threads);
    int after = openblas_get_num_threads();
    blas_threads_set(before);
    if (blas_threads_most() > 1) assert_int_equal(after, blas_threads);
    if (fixture.failed) fail_msg("%u threads, %d of BLAS: %s", threads, blas_threads, fixture.text);
}

static void check_all(void (*on_stack)(small_stack_fn *, void *))
{
    for (int blas_threads = 1; blas_threads <= blas_threads_most(); blas_threads++)
        for (uint32_t threads = test_quick() ? 2 : 1; threads <= 2; threads++) check(on_stack, threads, blas_threads);
}

static void a_small_thread_does_everything(void **state)
{
    (void)state;
    check_all(on_small_thread);
}

static void a_coroutine_does_everything(void **state)
{
    (void)state;
    check_all(on_coroutine);
}

static void ask_for_stack(void *left)
{
    *(uint64_t *)left = ffni_stack_left();
}

static void stack_that_is_left_is_told_for_threads_and_not_for_coroutines(void **state)
{
    (void)state;
    uint64_t left = 0;
    on_small_thread(ask_for_stack, &left);
    assert_true(left > SMALL_STACK - 8192 && left <= SMALL_STACK + 8192);
    on_coroutine(ask_for_stack, &left);
    assert_true(left == 0);
    assert_true(ffni_stack_left() > SMALL_STACK);
}

/* The sentence of a call that was carried out on another thread is the caller's. */
static ffn_status_t fail_elsewhere(void *argument)
{
    *(uint64_t *)argument = ffni_stack_left();
    int64_t width;
    return ffn_gated_d_ff(-4711, 1, &width);
}

static void a_larger_stack_is_as_large_as_asked_for_and_hands_errors_back(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* its run-time library has more thread-local storage than anyone else */
#endif
    static const uint64_t sizes[] = {128 * 1024, 1024 * 1024, 4 * 1024 * 1024};
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        uint64_t left = 0;
        forget_error();
        assert_refused(ffni_run_with_stack(sizes[i], fail_elsewhere, &left), FFN_INVALID, "d_ff|-4711", "on a larger stack");
        assert_true(left >= sizes[i] - 4096);
    }
}

static int set_up(void **state)
{
    (void)state;
    int64_t total = 0;
    for (int64_t i = 0; i < COUNT_OF(token_counts); i++) total += token_counts[i] * D_MODEL;
    fixture.weights = test_alloc(D_MODEL * D_FF * sizeof(float));
    fixture.x = test_alloc(TOKENS * D_MODEL * sizeof(float));
    fixture.y = test_alloc(TOKENS * D_MODEL * sizeof(float));
    fixture.expected = test_alloc((size_t)total * sizeof(float));
    for (int64_t i = 0; i < D_MODEL * D_FF; i++) fixture.weights[i] = (float)(i * 7 % 31 - 15) / 512;
    for (int64_t i = 0; i < TOKENS * D_MODEL; i++) fixture.x[i] = (float)(i * 11 % 61 - 30) / 32;
    fixture.tensors[0] = (ffn_tensor_t){.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = fixture.weights, .shape = {D_FF, D_MODEL}};
    fixture.tensors[1] = (ffn_tensor_t){.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = fixture.weights, .shape = {D_MODEL, D_FF}};
    fixture.tensors[2] = (ffn_tensor_t){.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = fixture.weights, .shape = {D_FF}};
    fixture.tensors[3] = (ffn_tensor_t){.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = fixture.weights, .shape = {D_FF, D_MODEL}};
    fixture.options = (ffn_layer_options_t){.struct_size = sizeof fixture.options, .activation = FFN_ACTIVATION_GELU,
                                            .residual = FFN_RESIDUAL_INPUT, .norm = {FFN_NORM_LAYER}, .tensors = fixture.tensors,
                                            .tensor_count = 4};
    return ffn_layer_create(NULL, &fixture.options, &fixture.layer);
}

static int tear_down(void **state)
{
    (void)state;
    ffn_layer_free(fixture.layer);
    free(fixture.weights);
    free(fixture.x);
    free(fixture.y);
    free(fixture.expected);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_thread_does_everything),
        cmocka_unit_test(a_coroutine_does_everything),
        cmocka_unit_test(stack_that_is_left_is_told_for_threads_and_not_for_coroutines),
        cmocka_unit_test(a_larger_stack_is_as_large_as_asked_for_and_hands_errors_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
