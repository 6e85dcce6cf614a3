/* SPDX-License-Identifier: MIT
 * Telling which views products can work on, and in which order. */
#include "core/view_products.h"

#include <limits.h>

/* A matrix whose inner dimension has this stride between elements and that one between rows. */
static int is_dense(int64_t inner_size, int64_t inner_stride, int64_t outer_size, int64_t outer_stride) {
    if (inner_size > 1 && inner_stride != 4) return 0;
    return outer_size == 1 || (outer_stride >= 4 * inner_size && outer_stride / 4 <= INT_MAX);
}

static int has_dense_rows(const view_t *view) {
    return is_dense(view->columns, view->column_stride, view->rows, view->row_stride);
}

static int has_dense_columns(const view_t *view) {
    return is_dense(view->rows, view->row_stride, view->columns, view->column_stride);
}

static int64_t row_length(const view_t *view) {
    return view->rows == 1 ? view->columns : view->row_stride / 4;
}

static int64_t column_length(const view_t *view) {
    return view->columns == 1 ? view->rows : view->column_stride / 4;
}

int ffni_view_takes_products(const view_t *view) {
    return has_dense_rows(view) || has_dense_columns(view);
}

view_t ffni_view_contiguous(float *data, const view_t *shape) {
    return (view_t){.data = (char *)data, .rows = shape->rows, .columns = shape->columns, .row_stride = 4 * shape->columns, .column_stride = 4};
}

void ffni_view_add_product(const view_t *view, int64_t rows, operand_t d, operand_t input, int accumulate) {
    float *c = (float *)(void *)view->data;
    if (has_dense_rows(view)) {
        d.transposed = 1;
        ffni_gemm_general(view->rows, view->columns, rows, d, input, accumulate, c, row_length(view));
    } else {
        input.transposed = 1;
        ffni_gemm_general(view->columns, view->rows, rows, input, d, accumulate, c, column_length(view));
    }
}

void ffni_view_add_native_product(ffn_context_t *context, const depth_product_t *native, const view_t *view, int64_t rows, operand_t d, operand_t input,
                                  int accumulate) {
    int by_rows = has_dense_rows(view);
    operand_t a = by_rows ? d : input, b = by_rows ? input : d;
    depth_product_t product = *native;
    product.rows = by_rows ? view->rows : view->columns, product.columns = by_rows ? view->columns : view->rows, product.depth = rows;
    product.a = a.data, product.a_stride = a.stride, product.b = b.data, product.b_stride = b.stride;
    product.c = (float *)(void *)view->data, product.c_stride = by_rows ? row_length(view) : column_length(view), product.accumulate = accumulate;
    ffni_depth_product(context, &product);
}

operand_t ffni_view_operand(const view_t *view) {
    const float *data = (const float *)(void *)view->data;
    return has_dense_rows(view) ? (operand_t){data, row_length(view), 0} : (operand_t){data, column_length(view), 1};
}
