/* SPDX-License-Identifier: MIT
 *
 * Hosts with many threads of their own: 32 that share a layer, and more than OpenBLAS has work memory for.
 */
#include "host.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cblas.h>

enum { MOST_CALLERS = 700, STACK = 1 << 20 };

typedef struct callers {
    const ffn_layer_t *layer;
    int repetitions;
    uint32_t context_threads; /* of each caller's own context; 0: none */
    int blas_threads;
    pthread_barrier_t start;
    atomic_int wrong, failed;
} callers_t;

static void *call(void *argument) {
    callers_t *callers = argument;
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = callers->context_threads};
    ffn_context_t *context = NULL;
    if (openblas_get_parallel() == 2) openblas_set_num_threads(callers->blas_threads); /* with OpenMP it is each thread's own */
    if (callers->context_threads && ffn_context_create(&options, &context)) callers->failed++;
    pthread_barrier_wait(&callers->start);
    for (int i = 0; i < callers->repetitions; i++) {
        ffn_status_t status = host_run(callers->layer, context);
        if (status == HOST_WRONG) callers->wrong++;
        else if (status) callers->failed++;
    }
    ffn_context_free(context);
    return NULL;
}

/* Returns the threads that could not be started. */
static int run_callers(callers_t *callers, int count) {
    static pthread_t threads[MOST_CALLERS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_barrier_init(&callers->start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, call, callers)) return count - i;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attributes);
    pthread_barrier_destroy(&callers->start);
    return 0;
}

static void check(int count, uint32_t context_threads, int blas_threads, int repetitions) {
    uint32_t engines[HOST_ENGINES];
    int before = openblas_get_num_threads();
    openblas_set_num_threads(blas_threads);
    for (int i = 0, n = host_engines(engines); i < n; i++) {
        ffn_layer_t *layer = host_layer(engines[i]);
        callers_t callers = {.layer = layer, .repetitions = repetitions, .context_threads = context_threads, .blas_threads = blas_threads};
        assert_int_equal(run_callers(&callers, count), 0);
        ffn_layer_free(layer);
        if (callers.wrong || callers.failed)
            fail_msg("engine %u, %d callers, %d threads of BLAS: %d wrong, %d failed", engines[i], count, blas_threads, callers.wrong, callers.failed);
    }
    openblas_set_num_threads(before);
}

static void one_layer_serves_thirty_two_threads_at_once(void **state) {
    (void)state;
    for (int blas_threads = 1; blas_threads <= 2; blas_threads++)
        for (uint32_t context_threads = 0; context_threads <= 2; context_threads++)
            check(32, context_threads, blas_threads, host_quick() ? 1 : blas_threads == 1 ? 20 : 3);
}

/* In a process of its own, whose standard error is a file. OpenBLAS prints there when its work memory is used up, and soon ends the process. */
typedef struct crowd {
    int callers, blas_threads;
} crowd_t;

static int crowd_is_right(void *argument) {
    crowd_t *crowd = argument;
    uint32_t engines[HOST_ENGINES];
    openblas_set_num_threads(crowd->blas_threads);
    for (int i = 0, n = host_engines(engines); i < n; i++) {
        ffn_layer_t *layer = host_layer(engines[i]);
        callers_t callers = {.layer = layer, .repetitions = 2, .blas_threads = crowd->blas_threads};
        int missing = run_callers(&callers, crowd->callers);
        if (missing) return 2;
        if (callers.wrong) return 3;
        if (callers.failed) return 4;
        ffn_layer_free(layer);
    }
    return 0;
}

static int crowd_with_its_errors_in_a_file(void *argument) {
    char path[] = "/tmp/ffn-callers-XXXXXX", text[200] = "";
    int file = mkstemp(path);
    if (file < 0 || dup2(file, STDERR_FILENO) < 0) return 5;
    unlink(path);
    int wrong = crowd_is_right(argument);
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    if (length > 0) printf("printed to standard error: %s\n", text);
    fflush(stdout);
    return wrong ? wrong : length ? 6 : 0;
}

static void more_callers_than_openblas_has_work_memory_for_wait_their_turn(void **state) {
    (void)state;
    HOST_SKIP_WITHOUT_THREADS_IN_CHILDREN();
    static const int counts[] = {100, 300, MOST_CALLERS};
    for (int i = 0; i < (host_quick() ? 1 : 3); i++)
        for (int blas_threads = 1; blas_threads <= 2; blas_threads++) {
            crowd_t crowd = {counts[i], blas_threads};
            int result = host_in_child(crowd_with_its_errors_in_a_file, &crowd);
            if (result) fail_msg("%d callers, %d threads of BLAS: child's result %d", counts[i], blas_threads, result);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_layer_serves_thirty_two_threads_at_once),
        cmocka_unit_test(more_callers_than_openblas_has_work_memory_for_wait_their_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
