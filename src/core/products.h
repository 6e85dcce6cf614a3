/* SPDX-License-Identifier: MIT
 * The native engine's matrix products of training: rows times a layer's weights, and two sets of rows times each other, straight into the caller's
 * arrays. Each number is made in the same order, whatever the threads and the blocks: one chain of multiply-adds over the weights' depth; over rows, the
 * sum of chains of DEPTH_CHAIN rows. */
#ifndef FFNI_PRODUCTS_H
#define FFNI_PRODUCTS_H

#include "core/context.h"
#include "kernels/kernels.h"

/* Rows at the most of a block that one thread multiplies by weights: so many use a panel each time it is read from a cache that cores share. */
enum { PRODUCT_ROWS = 128 };

/* c[rows, columns] = a[rows, depth] * the weights in panels; with `turns` 2 those of two weights in turn, whose columns stand side by side in c. */
typedef struct rows_product {
    const kernel_table_t *kernels;
    int64_t rows, depth, columns;
    const float *a;
    int64_t a_stride; /* in elements, as c_stride */
    const float *panels;
    int64_t turns;
    float *c;
    int64_t c_stride;
    float *scratch; /* of ffni_rows_product_size(rows, depth) elements */
} rows_product_t;

int64_t ffni_rows_product_size(const kernel_table_t *kernels, int64_t rows, int64_t depth);
void ffni_rows_product(const rows_product_t *product);

/* Of a sum over many tokens, one chain would be too inaccurate. A block of rows is a multiple of it. */
enum { DEPTH_CHAIN = 256 };

/* c[rows, columns] = a^T b, or added to c, for a[depth, rows] and b[depth, columns]. */
typedef struct depth_product {
    const kernel_table_t *kernels;
    int64_t rows, columns, depth;
    const float *a, *b;
    int64_t a_stride, b_stride, c_stride;
    int accumulate;
    float *c;
    int64_t slots;        /* threads that may work on it, 1 or more */
    float *shared;        /* of ffni_depth_product_shared(...) elements */
    float *own;           /* of each slot, ffni_depth_product_own(...) elements */
    int64_t own_step;     /* from a slot's to the next's */
} depth_product_t;

/* For products of up to so many rows, columns and numbers in the sum, in either order of rows and columns. */
int64_t ffni_depth_product_shared(const kernel_table_t *kernels, int64_t rows, int64_t columns, int64_t depth);
int64_t ffni_depth_product_own(const kernel_table_t *kernels, int64_t depth);

void ffni_depth_product(ffn_context_t *context, const depth_product_t *product);

#endif
