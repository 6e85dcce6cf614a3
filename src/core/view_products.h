/* SPDX-License-Identifier: MIT
 * Products straight into and out of a caller's views, by BLAS or by the native engine. */
#ifndef FFNI_VIEW_PRODUCTS_H
#define FFNI_VIEW_PRODUCTS_H

#include "core/gemm.h"
#include "core/products.h"
#include "core/view.h"

/* Whether products can read and write the view: its rows or its columns are dense. */
int ffni_view_takes_products(const view_t *view);

/* The same shape in memory without gaps. */
view_t ffni_view_contiguous(float *data, const view_t *shape);

/* view = d^T input, d [rows, view->rows], input [rows, view->columns], or added to what the view holds. It takes products. */
void ffni_view_add_product(const view_t *view, int64_t rows, operand_t d, operand_t input, int accumulate);

/* The same by the native engine, on the threads and in the scratch memory that `native` has. */
void ffni_view_add_native_product(ffn_context_t *context, const depth_product_t *native, const view_t *view, int64_t rows, operand_t d, operand_t input,
                                  int accumulate);

/* The view, which takes products, as the right operand [rows, columns] of one. */
operand_t ffni_view_operand(const view_t *view);

#endif
