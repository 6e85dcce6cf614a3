/* SPDX-License-Identifier: MIT
 *
 * One layer used by 32 threads at once, contexts used by several, layers and contexts that come and go meanwhile. Run under ThreadSanitizer too.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "support/blas.h"
#include "support/compare.h"
#include "support/hostile.h"

enum { THREADS = 32, D_MODEL = 64, D_FF = 144 };

/* Rows that go through sgemv, through sgemm, and through two blocks of it. */
static const int64_t token_counts[] = {1, 2, 33, 600};
enum { COUNTS = 4, MOST = 600 };

static const layer_case_t layer_case = {
    .d_model = D_MODEL, .d_ff = D_FF, .activation = FFN_ACTIVATION_GELU, .gated = true, .biases = BIAS_ALL, .residual = FFN_RESIDUAL_INPUT,
    .branch_scale = SCALE_VECTOR, .norm = {{FFN_NORM_LAYER, true, true, 0, 0}}, .seed = 55};

/* How a thread calls: without a context, or with its own of so many threads. */
typedef enum caller { NO_CONTEXT = 0, ONE_THREAD = 1, TWO_THREADS = 2 } caller_t;

typedef struct fixture {
    test_layer_t test;
    float *x[THREADS];                /* each thread's own input */
    float *expected[THREADS][COUNTS]; /* bits of a single caller, by count */
    double *oracle[THREADS];          /* values and bounds for the most tokens */
    pthread_barrier_t start;
    int blas_threads;
    bool by_bits;                     /* whether concurrent callers must get a single caller's bits */
} fixture_t;

static fixture_t fixture;

typedef struct worker {
    int64_t index;
    caller_t caller;
    int repetitions;
    int64_t wrong, failed, busy;
    char text[400];
} worker_t;

static int repetitions(int many)
{
    return test_quick() ? (many + 9) / 10 : many;
}

/* Against the bits, or the oracle's bounds: rows of the most tokens begin like those of fewer. */
static bool is_right(const worker_t *worker, int64_t count, const float *y)
{
    int64_t n = token_counts[count] * D_MODEL;
    if (fixture.by_bits) return first_different_bits(fixture.expected[worker->index][count], y, n) < 0;
    const double *oracle = fixture.oracle[worker->index];
    return first_outside_bound(y, oracle, oracle + MOST * D_MODEL, n) < 0;
}

static void forward_once(worker_t *worker, const ffn_layer_t *layer, ffn_context_t *context, int64_t count, float *y)
{
    int64_t n = token_counts[count] * D_MODEL;
    memset(y, 0xff, (size_t)n * sizeof *y);
    ffn_status_t status = ffn_layer_forward(layer, context, token_counts[count], fixture.x[worker->index], 0, y, 0);
    if (status == FFN_BUSY) worker->busy++;
    else if (status != FFN_OK) worker->failed++;
    else if (!is_right(worker, count, y)) worker->wrong++;
    if (status != FFN_OK) snprintf(worker->text, sizeof worker->text, "%s", ffn_last_error());
}

static void *call_layer(void *argument)
{
    worker_t *worker = argument;
    float *y = malloc(MOST * D_MODEL * sizeof *y);
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = worker->caller};
    ffn_context_t *context = NULL;
    blas_threads_set_here(fixture.blas_threads);
    pthread_barrier_wait(&fixture.start);
    if (worker->caller != NO_CONTEXT && ffn_context_create(&options, &context) != FFN_OK) worker->failed++;
    for (int i = 0; i < worker->repetitions; i++)
        for (int64_t count = 0; count < COUNTS; count++)
            if (count < 3 || i % 16 == 0) forward_once(worker, fixture.test.layer, context, count, y);
    ffn_context_free(context);
    free(y);
    return NULL;
}

static void run_workers(worker_t workers[], int64_t count, void *(*function)(void *))
{
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&fixture.start, NULL, (unsigned)count), 0);
    for (int64_t i = 0; i < count; i++) assert_int_equal(pthread_create(&threads[i], NULL, function, &workers[i]), 0);
    for (int64_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&fixture.start);
}

/* What a single caller gets for every input, in this setting of BLAS. */
static void expect_of_a_single_caller(void)
{
    for (int64_t i = 0; i < THREADS; i++)
        for (int64_t count = 0; count < COUNTS; count++)
            assert_ok(ffn_layer_forward(fixture.test.layer, NULL, token_counts[count], fixture.x[i], 0, fixture.expected[i][count], 0));
}

static void check_workers(caller_t caller, int64_t count, int blas_threads)
{
    worker_t workers[THREADS];
    int before = blas_threads_set(blas_threads);
    fixture.blas_threads = blas_threads;
    /* With several threads OpenBLAS may give concurrent callers fewer than it gives one. */
    fixture.by_bits = blas_threads == 1;
    expect_of_a_single_caller();
    /* Callers of two threads each wait for each other, on busy cores for tens of milliseconds per product. */
    int times = blas_threads == 1 ? repetitions(40) : 1;
    for (int64_t i = 0; i < count; i++) workers[i] = (worker_t){.index = i, .caller = caller, .repetitions = times};
    run_workers(workers, count, call_layer);
    int after = openblas_get_num_threads();
    blas_threads_set(before);
    fixture.blas_threads = before;
    if (blas_threads_most() > 1) assert_int_equal(after, blas_threads);
    for (int64_t i = 0; i < count; i++)
        if (workers[i].wrong || workers[i].failed || workers[i].busy)
            fail_msg("thread %lld, caller %d, %d threads of BLAS: %lld wrong, %lld failed, %lld busy (%s)", (long long)i, caller, blas_threads,
                     (long long)workers[i].wrong, (long long)workers[i].failed, (long long)workers[i].busy, workers[i].text);
}

static void thirty_two_threads_without_contexts_share_a_layer(void **state)
{
    (void)state;
    check_workers(NO_CONTEXT, THREADS, 1);
    check_workers(NO_CONTEXT, THREADS, blas_threads_most());
}

static void thirty_two_threads_with_contexts_of_their_own_share_a_layer(void **state)
{
    (void)state;
    check_workers(ONE_THREAD, THREADS, 1);
    check_workers(ONE_THREAD, THREADS, blas_threads_most());
}

static void threads_with_contexts_of_two_threads_share_a_layer(void **state)
{
    (void)state;
    check_workers(TWO_THREADS, 6, 1);
    check_workers(TWO_THREADS, 6, blas_threads_most());
}

/* --------------------------------------------------------- one context, several threads */

static ffn_context_t *shared;

static void *call_in_shared_context(void *argument)
{
    worker_t *worker = argument;
    float *y = malloc(MOST * D_MODEL * sizeof *y);
    blas_threads_set_here(fixture.blas_threads);
    pthread_barrier_wait(&fixture.start);
    for (int i = 0; i < worker->repetitions; i++) forward_once(worker, fixture.test.layer, shared, i % COUNTS, y);
    free(y);
    return NULL;
}

static void threads_in_one_context_are_busy_or_right(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        worker_t workers[3];
        ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
        int64_t busy = 0, calls = 0;
        fixture.by_bits = true;
        expect_of_a_single_caller();
        assert_ok(ffn_context_create(&options, &shared));
        for (int64_t i = 0; i < 3; i++) workers[i] = (worker_t){.index = i, .repetitions = repetitions(400)};
        run_workers(workers, 3, call_in_shared_context);
        for (int64_t i = 0; i < 3; i++) {
            if (workers[i].wrong || workers[i].failed)
                fail_msg("%lld wrong, %lld failed: %s", (long long)workers[i].wrong, (long long)workers[i].failed, workers[i].text);
            busy += workers[i].busy;
            calls += workers[i].repetitions;
        }
        assert_true(busy < calls);
        ffn_context_free(shared);
    }
}

/* ------------------------------------------------------ layers and contexts that come and go */

static void *make_and_free(void *argument)
{
    worker_t *worker = argument;
    float *y = malloc(MOST * D_MODEL * sizeof *y), *weights = malloc(D_MODEL * D_FF * sizeof *weights);
    ffn_tensor_t view = {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = weights, .shape = {D_FF, D_MODEL}};
    blas_threads_set_here(fixture.blas_threads);
    pthread_barrier_wait(&fixture.start);
    for (int i = 0; i < worker->repetitions; i++) {
        ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1 + (uint32_t)i % 3};
        ffn_context_t *context = NULL;
        ffn_layer_t *layer = NULL;
        if (ffn_context_create(&options, &context) != FFN_OK) worker->failed++;
        if (ffn_layer_create(i % 2 ? context : NULL, &fixture.test.options, &layer) != FFN_OK) worker->failed++;
        forward_once(worker, layer, context, i % 3, y);
        if (ffn_layer_read(layer, &view, 1) != FFN_OK) worker->failed++;
        if (memcmp(weights, fixture.test.plain[FFN_ROLE_UP_WEIGHT], D_MODEL * D_FF * sizeof *weights)) worker->wrong++;
        ffn_layer_free(layer);
        ffn_context_free(context);
    }
    free(weights);
    free(y);
    return NULL;
}

static void *make_or_call(void *argument)
{
    worker_t *worker = argument;
    return worker->index % 2 ? make_and_free(argument) : call_layer(argument);
}

static void layers_and_contexts_come_and_go_while_others_run(void **state)
{
    (void)state;
    worker_t workers[8];
    fixture.by_bits = true;
    expect_of_a_single_caller();
    for (int64_t i = 0; i < 8; i++) workers[i] = (worker_t){.index = i, .caller = (caller_t)(i % 3), .repetitions = repetitions(60)};
    run_workers(workers, 8, make_or_call);
    for (int64_t i = 0; i < 8; i++)
        if (workers[i].wrong || workers[i].failed) fail_msg("thread %lld: %s", (long long)i, workers[i].text);
}

/* -------------------------------------------------------- threads that end, errors of their own */

static void *fail_and_tell(void *argument)
{
    worker_t *worker = argument;
    char expected[80];
    blas_threads_set_here(fixture.blas_threads);
    pthread_barrier_wait(&fixture.start);
    for (int i = 0; i < worker->repetitions; i++) {
        int64_t width, d_ff = -1000 * (worker->index + 1) - i;
        if (ffn_gated_d_ff(d_ff, 1, &width) != FFN_INVALID) worker->failed++;
        snprintf(expected, sizeof expected, "d_ff is %lld,", (long long)d_ff);
        if (strncmp(ffn_last_error(), expected, strlen(expected))) worker->wrong++;
        if (strncmp(ffn_build_info(), "libffn ", 7)) worker->wrong++;
    }
    return NULL;
}

static void every_thread_has_its_own_last_error(void **state)
{
    (void)state;
    worker_t workers[THREADS];
    for (int64_t i = 0; i < THREADS; i++) workers[i] = (worker_t){.index = i, .repetitions = repetitions(1000)};
    forget_error();
    run_workers(workers, THREADS, fail_and_tell);
    for (int64_t i = 0; i < THREADS; i++) assert_true(!workers[i].wrong && !workers[i].failed);
    assert_non_null(strstr(ffn_last_error(), "-123454321"));
}

static void *call_once(void *argument)
{
    float y[D_MODEL];
    worker_t *worker = argument;
    blas_threads_set_here(fixture.blas_threads);
    if (ffn_last_error()[0]) worker->wrong++; /* of a thread in which nothing has failed */
    forward_once(worker, fixture.test.layer, NULL, 0, y);
    return NULL;
}

/* Scratch memory of a thread ends with it (a leak checker sees it if not). */
static void hundreds_of_threads_come_and_go(void **state)
{
    (void)state;
    worker_t worker = {.index = 0};
    fixture.by_bits = true;
    expect_of_a_single_caller();
    for (int i = 0; i < repetitions(300); i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, call_once, &worker), 0);
        pthread_join(thread, NULL);
    }
    assert_true(!worker.wrong && !worker.failed && !worker.busy);
}

static void compute_oracle(int64_t i)
{
    int64_t n = MOST * D_MODEL;
    double *x = oracle_widen(fixture.x[i], n);
    fixture.oracle[i] = test_alloc((size_t)n * 2 * sizeof(double));
    oracle_run(&fixture.test.oracle, MOST, x, NULL, fixture.oracle[i], fixture.oracle[i] + n);
    free(x);
}

static int set_up(void **state)
{
    (void)state;
    fixture.blas_threads = 1;
    blas_threads_set(1);
    test_layer_make(&fixture.test, &layer_case);
    for (int64_t i = 0; i < THREADS; i++) {
        layer_data_t data = layer_data_make(&fixture.test, MOST, (uint64_t)i + 1);
        fixture.x[i] = data.x;
        free(data.y);
        for (int64_t count = 0; count < COUNTS; count++)
            fixture.expected[i][count] = test_alloc((size_t)(token_counts[count] * D_MODEL) * sizeof(float));
        compute_oracle(i);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_layer_free(&fixture.test);
    for (int64_t i = 0; i < THREADS; i++) {
        free(fixture.x[i]);
        free(fixture.oracle[i]);
        for (int64_t count = 0; count < COUNTS; count++) free(fixture.expected[i][count]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thirty_two_threads_without_contexts_share_a_layer),
        cmocka_unit_test(thirty_two_threads_with_contexts_of_their_own_share_a_layer),
        cmocka_unit_test(threads_with_contexts_of_two_threads_share_a_layer),
        cmocka_unit_test(threads_in_one_context_are_busy_or_right),
        cmocka_unit_test(layers_and_contexts_come_and_go_while_others_run),
        cmocka_unit_test(every_thread_has_its_own_last_error),
        cmocka_unit_test(hundreds_of_threads_come_and_go),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
