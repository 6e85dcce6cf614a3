/* SPDX-License-Identifier: MIT
 * Matrix products by OpenBLAS. The only door to cblas.h. */
#ifndef FFNI_GEMM_H
#define FFNI_GEMM_H

#include <stdint.h>

/* c[rows, n] = a[rows, k] * b[k, n]. Row-major float32; rows of a are a_stride elements apart, b and c are contiguous. c is written only. All of
 * rows, n, k and a_stride are below 2^31. */
void ffni_gemm(int64_t rows, int64_t n, int64_t k, const float *a, int64_t a_stride, const float *b, float *c);

/* A matrix as it lies in memory, row-major, rows `stride` elements apart; `transposed`: the product takes its transpose. */
typedef struct operand {
    const float *data;
    int64_t stride;
    int transposed;
} operand_t;

/* c[rows, n] = a[rows, k] * b[k, n], or added to what c holds; with `accumulate` 0 c is written only. Strides are below 2^31 and at least a row's
 * length. */
void ffni_gemm_general(int64_t rows, int64_t n, int64_t k, operand_t a, operand_t b, int accumulate, float *c, int64_t c_stride);

/* Bytes of stack that ffni_gemm_general may use, whatever the shape. */
uint64_t ffni_gemm_general_stack(void);

/* Bytes of stack that ffni_gemm may use for such a product: OpenBLAS's threaded driver keeps its work table there. */
uint64_t ffni_gemm_stack(int64_t rows, int64_t n, int64_t k);

/* With OpenMP the number of BLAS's threads belongs to the calling thread (0: there is no OpenMP). One that computes in place of another takes it
 * over from that. */
int ffni_gemm_threads(void);
void ffni_gemm_take_threads(int threads);

/* Whether BLAS would wait for threads that were lost in a fork: a new thread must call it. */
int ffni_gemm_lost_threads(void);

/* OpenBLAS's own description of itself. */
const char *ffni_gemm_library(void);

#endif
