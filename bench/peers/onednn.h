/* SPDX-License-Identifier: MIT
 * What the workers that run oneDNN share: products with weights in the layout that the library asks for and fused post-ops. */
#ifndef BENCH_PEERS_ONEDNN_H
#define BENCH_PEERS_ONEDNN_H

#include "worker.h"

#include <oneapi/dnnl/dnnl.h>

/* The kinds of primitive that are tried, and the faster is the one that is timed. */
enum { INNER_PRODUCT, MATMUL, FORMS };
extern const char *const onednn_form_names[];

extern dnnl_engine_t onednn_engine;
extern dnnl_stream_t onednn_stream;

/* The engine and its stream. */
void onednn_start(void);

/* Ends the worker for any other status than success. */
void onednn_check(dnnl_status_t status, const char *what);

/* values NULL: memory of the library's own. */
dnnl_memory_t onednn_memory(const_dnnl_memory_desc_t description, const void *values);
const_dnnl_memory_desc_t onednn_description(dnnl_memory_t memory);

/* float32, with strides in elements. */
dnnl_memory_desc_t onednn_matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
dnnl_memory_t onednn_rows(int64_t rows, int64_t width, const float *values);

/* to = activation(from weights^T + bias) * factor, with weights [outputs, inputs]. activation "": none; bias, factor NULL: none. */
typedef struct onednn_product {
    int64_t outputs, inputs;
    const char *activation;
    dnnl_memory_t from, to, factor;
    const_dnnl_memory_desc_t bias, asked; /* asked: the layout of the weights. NULL: the primitive chooses it */
} onednn_product_t;

dnnl_primitive_desc_t onednn_describe(int form, const onednn_product_t *product);

/* The weights' values in the layout of the description. */
dnnl_memory_t onednn_packed(int form, const onednn_product_t *product, const_dnnl_primitive_desc_t description, const float *values);

#endif
