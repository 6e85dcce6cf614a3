/* SPDX-License-Identifier: MIT
 *
 * fork(): the child has one thread, whatever the parent's contexts and BLAS had. Everything goes on there and in the parent, within seconds.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/blas.h"
#include "support/compare.h"
#include "support/hostile.h"

enum { TOKENS = 300, WIDTH = 64 };

static const layer_case_t layer_case = {
    .d_model = WIDTH, .d_ff = 144, .activation = FFN_ACTIVATION_SILU, .gated = true, .biases = BIAS_ALL, .residual = FFN_RESIDUAL_INPUT,
    .norm = {{FFN_NORM_RMS, true, false, 0, 0}}, .seed = 66};

typedef struct fixture {
    test_layer_t test;
    layer_data_t data;
    float expected[TOKENS * WIDTH];
    ffn_context_t *context; /* of three threads */
    int blas_threads;
} fixture_t;

static fixture_t fixture;

/* In a child nothing may jump back into the test runner: what is wrong is told by the exit status. */
static int forward_is_right(ffn_context_t *context, float *y)
{
    memset(y, 0xff, TOKENS * WIDTH * sizeof *y);
    if (ffn_layer_forward(fixture.test.layer, context, TOKENS, fixture.data.x, 0, y, 0) != FFN_OK) return 0;
    return memcmp(fixture.expected, y, TOKENS * WIDTH * sizeof *y) == 0;
}

static int child_is_right(void)
{
    static float y[TOKENS * WIDTH];
    ffn_context_info_t info = {.struct_size = sizeof info};
    ffn_context_t *made;
    ffn_layer_t *layer;
    if (!forward_is_right(fixture.context, y)) return 1;
    if (!forward_is_right(NULL, y)) return 2;
    if (ffn_context_info(fixture.context, &info) != FFN_OK || info.threads != 3) return 3;
    if (ffn_context_create(NULL, &made) != FFN_OK || !forward_is_right(made, y)) return 4;
    if (ffn_layer_create(fixture.context, &fixture.test.options, &layer) != FFN_OK) return 5;
    ffn_layer_free(layer);
    ffn_context_free(made);
    if (!forward_is_right(fixture.context, y)) return 6;
    ffn_context_free(fixture.context); /* the parent's goes on */
    ffn_layer_free(fixture.test.layer);
    return 0;
}

/* Returns 0 if the child was right, else its exit status, 99 after a minute or more, or 128 and more for a signal. */
static int wait_for(pid_t child)
{
    int seconds = test_quick() ? 600 : 60; /* valgrind takes its time */
    for (int i = 0; i < seconds * 100; i++) {
        int status;
        if (waitpid(child, &status, WNOHANG) != child) {
            nanosleep(&(struct timespec){0, 10000000}, NULL);
            continue;
        }
        if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL ? 0 : 128 + WTERMSIG(status);
        return WEXITSTATUS(status) ? WEXITSTATUS(status) : 97;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 99;
}

/* A child that is right ends by SIGKILL: at an exit valgrind would find lost what belonged to threads that the child does not have. */
static int fork_and_wait(int (*in_child)(void))
{
    pid_t child = fork();
    if (child == 0) {
        int wrong = in_child();
        if (!wrong) kill(getpid(), SIGKILL);
        _exit(wrong);
    }
    return child < 0 ? 98 : wait_for(child);
}

/* ThreadSanitizer does not know threads that a child starts after a fork of several. */
static void skip_without_threads_in_children(void)
{
#if defined(__SANITIZE_THREAD__)
    skip();
#endif
}

static void set_blas_threads(int threads)
{
    static float y[TOKENS * WIDTH];
    blas_threads_set(threads);
    fixture.blas_threads = threads;
    assert_ok(ffn_layer_forward(fixture.test.layer, NULL, TOKENS, fixture.data.x, 0, y, 0));
    memcpy(fixture.expected, y, sizeof y);
}

static void a_child_goes_on_with_the_context_and_without(void **state)
{
    (void)state;
    skip_without_threads_in_children();
    for (int threads = 1; threads <= blas_threads_most(); threads++) {
        static float y[TOKENS * WIDTH];
        set_blas_threads(threads);
        for (int i = 0; i < 3; i++) {
            assert_true(forward_is_right(fixture.context, y));
            assert_int_equal(fork_and_wait(child_is_right), 0);
            assert_true(forward_is_right(fixture.context, y));
            assert_true(forward_is_right(NULL, y));
        }
        blas_threads_set(1);
    }
}

static int child_with_a_child(void)
{
    static float y[TOKENS * WIDTH];
    if (!forward_is_right(fixture.context, y)) return 20;
    int status = fork_and_wait(child_is_right);
    if (status) return status;
    return forward_is_right(fixture.context, y) ? 0 : 21;
}

static void a_child_may_have_a_child(void **state)
{
    (void)state;
    skip_without_threads_in_children();
    set_blas_threads(1);
    assert_int_equal(fork_and_wait(child_with_a_child), 0);
}

/* A child that does nothing but end as a program does, with exit handlers and the destructors of threads. */
static int leave_alone(void)
{
    ffn_context_free(fixture.context);
    return 0;
}

static void a_child_may_free_what_it_never_used(void **state)
{
    (void)state;
    set_blas_threads(1);
    for (int i = 0; i < 10; i++) assert_int_equal(fork_and_wait(leave_alone), 0);
}

/* ------------------------------------------------------------- others inside a call */

static atomic_int stop;
static atomic_int wrong;

static void *run_until_told(void *context)
{
    float *y = malloc(TOKENS * WIDTH * sizeof *y);
    blas_threads_set_here(fixture.blas_threads);
    while (!stop)
        if (!forward_is_right(context, y)) wrong++;
    free(y);
    return NULL;
}

static void fork_while_inside(ffn_context_t *busy, int times)
{
    pthread_t thread;
    stop = wrong = 0;
    assert_int_equal(pthread_create(&thread, NULL, run_until_told, busy), 0);
    int status = 0;
    for (int i = 0; i < times && !status; i++) {
        nanosleep(&(struct timespec){0, 300000 + 170000 * (i % 13)}, NULL);
        status = fork_and_wait(child_is_right);
    }
    stop = 1;
    pthread_join(thread, NULL);
    assert_int_equal(status, 0);
    assert_int_equal(wrong, 0);
}

/* With OpenBLAS alone the child soon finds one of its locks taken. */
static void a_child_of_a_fork_while_others_are_inside_a_call_goes_on(void **state)
{
    (void)state;
    skip_without_threads_in_children();
    for (int threads = 1; threads <= blas_threads_most(); threads++) {
        set_blas_threads(threads);
        fork_while_inside(fixture.context, test_quick() ? 5 : 40);
        fork_while_inside(NULL, test_quick() ? 5 : 40);
        blas_threads_set(1);
    }
}

static void *fork_repeatedly(void *result)
{
    blas_threads_set_here(fixture.blas_threads);
    for (int i = 0; i < (test_quick() ? 3 : 15) && !*(int *)result; i++) *(int *)result = fork_and_wait(child_is_right);
    return NULL;
}

static void two_threads_may_fork_at_once(void **state)
{
    (void)state;
    skip_without_threads_in_children();
    pthread_t threads[2];
    int results[2] = {0, 0};
    static float y[TOKENS * WIDTH];
    set_blas_threads(blas_threads_most());
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, fork_repeatedly, &results[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
    assert_true(forward_is_right(fixture.context, y));
}

static int set_up(void **state)
{
    (void)state;
    blas_threads_set(1);
    test_layer_make(&fixture.test, &layer_case);
    fixture.data = layer_data_make(&fixture.test, TOKENS, 3);
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 3};
    return ffn_context_create(&options, &fixture.context);
}

static int tear_down(void **state)
{
    (void)state;
    ffn_context_free(fixture.context);
    layer_data_free(&fixture.data);
    test_layer_free(&fixture.test);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_may_free_what_it_never_used),
        cmocka_unit_test(a_child_goes_on_with_the_context_and_without),
        cmocka_unit_test(a_child_may_have_a_child),
        cmocka_unit_test(a_child_of_a_fork_while_others_are_inside_a_call_goes_on),
        cmocka_unit_test(two_threads_may_fork_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
