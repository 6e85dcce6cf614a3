/* SPDX-License-Identifier: MIT
 * Matrix products by OpenBLAS. The only door to cblas.h. */
#ifndef FFNI_GEMM_H
#define FFNI_GEMM_H

#include <stdint.h>

/* c[rows, n] = a[rows, k] * b[k, n]. Row-major float32; rows of a are a_stride elements apart, b and c are contiguous. c is written only. All of
 * rows, n, k and a_stride are below 2^31. */
void ffni_gemm(int64_t rows, int64_t n, int64_t k, const float *a, int64_t a_stride, const float *b, float *c);

/* Bytes of stack that ffni_gemm may use for such a product: OpenBLAS's threaded driver keeps its work table there. */
uint64_t ffni_gemm_stack(int64_t rows, int64_t n, int64_t k);

/* OpenBLAS's own description of itself. */
const char *ffni_gemm_library(void);

#endif
