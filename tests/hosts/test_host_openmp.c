/* SPDX-License-Identifier: MIT
 *
 * A host that uses OpenMP, and that has set the threads of OpenBLAS and OpenMP: libffn works inside its parallel regions, and the numbers stay.
 */
#include "host.h"

#include <omp.h>
#include <stdlib.h>

#include <cblas.h>

enum { OPENMP = 2 }; /* openblas_get_parallel() of that flavour */

/* A call of each of `threads` OpenMP threads at once, repeatedly; with_contexts: each with a context of two threads. Returns calls gone wrong. */
static int run_region(const ffn_layer_t *layer, int threads, bool with_contexts) {
    int wrong = 0;
#pragma omp parallel num_threads(threads) reduction(+ : wrong)
    {
        ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2};
        ffn_context_t *context = NULL;
        if (with_contexts && ffn_context_create(&options, &context)) wrong++;
        for (int i = 0; i < (host_quick() ? 1 : 10); i++) wrong += host_run(layer, context) != FFN_OK;
        wrong += !host_fails_rightly(layer, context);
        ffn_context_free(context);
    }
    return wrong;
}

static void one_layer_serves_every_thread_of_a_parallel_region(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 32};
    uint32_t engines[HOST_ENGINES];
    for (int i = 0, n = host_engines(engines); i < n; i++)
        for (int k = 0; k < 3; k++)
            for (int blas_threads = 1; blas_threads <= 2; blas_threads++) {
                ffn_layer_t *layer = host_layer(engines[i]);
                openblas_set_num_threads(blas_threads);
                int wrong = run_region(layer, threads[k], k % 2) + run_region(layer, threads[k], !(k % 2));
                ffn_layer_free(layer);
                if (wrong) fail_msg("engine %u, region of %d threads, %d of BLAS: %d calls went wrong", engines[i], threads[k], blas_threads, wrong);
            }
    openblas_set_num_threads(1);
}

/* Layers made inside of a region, by all of its threads at once, and regions inside of regions. */
static void layers_are_made_and_run_in_nested_regions(void **state) {
    (void)state;
    uint32_t engines[HOST_ENGINES];
    int levels = omp_get_max_active_levels(), engine_count = host_engines(engines);
    omp_set_max_active_levels(2);
    for (int i = 0; i < engine_count; i++) {
        int wrong = 0;
#pragma omp parallel num_threads(3) reduction(+ : wrong)
        {
            ffn_layer_options_t options = host()->options;
            ffn_layer_t *layer = NULL;
            options.engine = engines[i];
            if (ffn_layer_create(NULL, &options, &layer)) wrong++;
            else wrong += run_region(layer, 2, false);
            ffn_layer_free(layer);
        }
        assert_int_equal(wrong, 0);
    }
    omp_set_max_active_levels(levels);
}

/* What a host's numbers are after a product of its own: with OpenMP OpenBLAS itself takes over omp_get_max_threads(). */
static int blas_threads_after_a_product(void) {
    enum { N = 128 }; /* large enough for several threads */
    static float a[N * N], b[N * N], c[N * N];
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
    return openblas_get_num_threads();
}

static void thread_counts_of_the_host_stay_after_success_and_error(void **state) {
    (void)state;
    static const int omp_counts[] = {1, 3, 5};
    uint32_t engines[HOST_ENGINES];
    int omp_before = omp_get_max_threads();
    for (int i = 0, n = host_engines(engines); i < n; i++)
        for (int k = 0; k < 3; k++)
            for (uint32_t context_threads = 0; context_threads <= 3; context_threads += 3) {
                ffn_context_options_t options = {.struct_size = sizeof options, .threads = context_threads};
                ffn_context_t *context = NULL;
                ffn_layer_t *layer = host_layer(engines[i]);
                if (context_threads) host_assert_ok(ffn_context_create(&options, &context), "a context");
                openblas_set_num_threads(3);
                omp_set_num_threads(omp_counts[k]);
                int blas = blas_threads_after_a_product();
                if (openblas_get_parallel() == 1) assert_int_equal(blas, 3);
                for (int repetition = 0; repetition < 3; repetition++) {
                    host_assert_ok(host_run(layer, context), "with the host's threads");
                    assert_int_equal(openblas_get_num_threads(), blas);
                    assert_int_equal(omp_get_max_threads(), omp_counts[k]);
                    assert_true(host_fails_rightly(layer, context));
                    assert_int_equal(openblas_get_num_threads(), blas);
                    assert_int_equal(omp_get_max_threads(), omp_counts[k]);
                }
                ffn_layer_free(layer);
                ffn_context_free(context);
                assert_int_equal(openblas_get_num_threads(), blas);
                assert_int_equal(omp_get_max_threads(), omp_counts[k]);
            }
    omp_set_num_threads(omp_before);
    openblas_set_num_threads(1);
}

/* Where the test of all flavours says which one is to be had. */
static void openblas_is_of_the_flavour_that_was_asked_for(void **state) {
    (void)state;
    const char *flavour = getenv("FFN_TEST_FLAVOUR");
    if (!flavour) skip();
    static const char *const names[] = {"serial", "pthread", "openmp"};
    assert_in_range(openblas_get_parallel(), 0, OPENMP);
    assert_string_equal(names[openblas_get_parallel()], flavour);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openblas_is_of_the_flavour_that_was_asked_for),
        cmocka_unit_test(one_layer_serves_every_thread_of_a_parallel_region),
        cmocka_unit_test(layers_are_made_and_run_in_nested_regions),
        cmocka_unit_test(thread_counts_of_the_host_stay_after_success_and_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
