/* SPDX-License-Identifier: MIT */
#include "support/blas.h"

#include <cblas.h>

#include <stdlib.h>
#include <string.h>

enum { SERIAL = 0, OPENMP = 2 };

int blas_threads_most(void)
{
    const char *wanted = getenv("OPENBLAS_NUM_THREADS");
    return openblas_get_parallel() == SERIAL || (wanted && strcmp(wanted, "1") == 0) ? 1 : 2;
}

int blas_threads_set(int threads)
{
    int before = openblas_get_num_threads();
    openblas_set_num_threads(threads);
    return before;
}

void blas_threads_set_here(int threads)
{
    if (openblas_get_parallel() == OPENMP) openblas_set_num_threads(threads);
}
