/* SPDX-License-Identifier: MIT
 * cblas_sgemm for blocks of rows, cblas_sgemv for few. BLAS's threads are its own and the host's to set. */
#include "core/gemm.h"

#include <cblas.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to GEMV_ROWS rows go row by row through sgemv where the matrix stays in cache from one row to the next: sgemm packs the whole matrix for
 * them. Larger matrices are read from memory once per row, which pays for a single row only. */
enum { GEMV_ROWS = 6, GEMV_BYTES = 8 << 20 };

/* Products up to this size run on the calling thread in OpenBLAS (SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD). */
enum { UNTHREADED_PRODUCT = 262144 };

void ffni_gemm(int64_t rows, int64_t n, int64_t k, const float *a, int64_t a_stride, const float *b, float *c) {
    blasint width = (blasint)n, depth = (blasint)k;
    if (rows > 1 && (rows > GEMV_ROWS || n * k * 4 > GEMV_BYTES)) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, width, depth, 1.0f, a, (blasint)a_stride, b, width, 0.0f, c,
                    width);
        return;
    }
    /* sgemv scales y by beta, and versions differ on whether 0 * NaN is 0: give it zeros. */
    memset(c, 0, (size_t)(rows * n) * sizeof *c);
    for (int64_t row = 0; row < rows; row++)
        cblas_sgemv(CblasRowMajor, CblasTrans, depth, width, 1.0f, b, width, a + row * a_stride, 1, 0.0f, c + row * n, 1);
}

/* openblas_get_config writes to a static buffer: asked once. */
static pthread_once_t config_once = PTHREAD_ONCE_INIT;
static char config[256];

static void ask_config(void) {
    snprintf(config, sizeof config, "%s", openblas_get_config());
}

const char *ffni_gemm_library(void) {
    pthread_once(&config_once, ask_config);
    return config;
}

/* OpenBLAS's level-3 driver has on its stack a table of MAX_THREADS x MAX_THREADS entries of two cache lines each (level3_thread.c), up to
 * 160 threads, beyond which it is on the heap. The maximum stands in the configuration string. */
static uint64_t driver_stack(void) {
    enum { DEFAULT_MAX_THREADS = 160, ENTRY_SIZE = 128, OTHER_FRAMES = 128 * 1024 };
    const char *text = strstr(ffni_gemm_library(), "MAX_THREADS=");
    long threads = text ? strtol(text + strlen("MAX_THREADS="), NULL, 10) : DEFAULT_MAX_THREADS;
    if (threads < 1 || threads > DEFAULT_MAX_THREADS) threads = DEFAULT_MAX_THREADS;
    return (uint64_t)(threads * threads) * ENTRY_SIZE + OTHER_FRAMES;
}

uint64_t ffni_gemm_stack(int64_t rows, int64_t n, int64_t k) {
    if (rows < 2 || (double)rows * (double)n * (double)k <= UNTHREADED_PRODUCT) return 0;
    if (openblas_get_parallel() == 0 || openblas_get_num_threads() == 1) return 0;
    return driver_stack();
}
