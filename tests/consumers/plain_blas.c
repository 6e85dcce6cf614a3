/* SPDX-License-Identifier: MIT
 *
 * The five functions of OpenBLAS that libffn calls, in plain loops: lets a program run with libffn where no OpenBLAS is, as with musl on a
 * machine whose OpenBLAS is a library of glibc. */
#include <cblas.h>

void cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b, blasint m, blasint n, blasint k, float alpha,
                 const float *a, blasint lda, const float *b, blasint ldb, float beta, float *c, blasint ldc) {
    (void)order; /* row-major */
    for (blasint row = 0; row < m; row++)
        for (blasint column = 0; column < n; column++) {
            float sum = 0;
            for (blasint i = 0; i < k; i++)
                sum += (transpose_a == CblasNoTrans ? a[row * lda + i] : a[i * lda + row]) *
                       (transpose_b == CblasNoTrans ? b[i * ldb + column] : b[column * ldb + i]);
            float *out = &c[row * ldc + column];
            *out = alpha * sum + (beta == 0 ? 0 : beta * *out);
        }
}

void cblas_sgemv(CBLAS_ORDER order, CBLAS_TRANSPOSE transpose, blasint m, blasint n, float alpha, const float *a, blasint lda, const float *x,
                 blasint x_step, float beta, float *y, blasint y_step) {
    CBLAS_TRANSPOSE other = transpose == CblasNoTrans ? CblasNoTrans : CblasTrans;
    blasint rows = other == CblasNoTrans ? m : n, depth = other == CblasNoTrans ? n : m;
    cblas_sgemm(order, other, CblasNoTrans, rows, 1, depth, alpha, a, lda, x, x_step, beta, y, y_step);
}

char *openblas_get_config(void) {
    static char text[] = "plain loops";
    return text;
}

int openblas_get_parallel(void) {
    return 0;
}

int openblas_get_num_threads(void) {
    return 1;
}
