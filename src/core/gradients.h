/* SPDX-License-Identifier: MIT
 * Where the gradients of a layer's tensors go: matrices by products straight into the caller's arrays, vectors by sums over rows, in float32 over a chunk of
 * rows and in float64 over chunks. Chunks have a fixed size, so that the sums do not depend on the threads. */
#ifndef FFNI_GRADIENTS_H
#define FFNI_GRADIENTS_H

#include "base/arena.h"
#include "core/gemm.h"
#include "core/layer.h"
#include "core/products.h"

enum { GRADIENT_CHUNK = 32 }; /* rows */

static inline int64_t ffni_gradients_chunks(int64_t rows) {
    return (rows - 1) / GRADIENT_CHUNK + 1;
}

typedef struct gradients {
    const ffn_layer_t *layer;
    int accumulate;
    view_t view[ROLE_LIMIT]; /* the caller's; data NULL: not wanted */

    /* While the backward pass runs, in scratch memory. */
    float *matrix[ROLE_LIMIT];   /* [out, in] for views that sgemm cannot write; else NULL */
    int64_t offset[ROLE_LIMIT];  /* of a vector in the records below */
    int64_t record;              /* numbers of one */
    float *partial;              /* [chunks, record] */
    double *total;               /* [record] */
    double *xielu;               /* [chunks, 2] */
    double xielu_total[2];
    ffn_context_t *context;
    const depth_product_t *native; /* the native engine's threads and scratch memory; NULL: BLAS multiplies */
} gradients_t;

/* bound: the caller's views by role, checked. */
void ffni_gradients_init(gradients_t *gradients, const ffn_layer_t *layer, const ffn_tensor_t *const bound[ROLE_LIMIT], int accumulate);

static inline int gradient_wanted(const gradients_t *gradients, int role) {
    return gradients->view[role].data != NULL;
}

/* Takes scratch memory for blocks of so many rows. */
void ffni_gradients_lay_out(gradients_t *gradients, int64_t rows, arena_t *arena);

/* Before the first block. native NULL: BLAS multiplies. */
void ffni_gradients_begin(gradients_t *gradients, ffn_context_t *context, const depth_product_t *native);

/* The chunk's running sum of a vector's gradient, or NULL where it is not wanted. */
float *ffni_gradients_sum(const gradients_t *gradients, int role, int64_t chunk);

/* gradient of a matrix += d^T input, d [rows, out], input [rows, in]. `first`: of the blocks. */
void ffni_gradients_multiply(const gradients_t *gradients, int role, int64_t rows, operand_t d, operand_t input, int first);

/* Before and after the passes over a block's rows. */
void ffni_gradients_clear(const gradients_t *gradients, int64_t rows);
void ffni_gradients_collect(gradients_t *gradients, int64_t rows);

/* Writes what is not in the caller's arrays yet. */
void ffni_gradients_finish(gradients_t *gradients);

#endif
