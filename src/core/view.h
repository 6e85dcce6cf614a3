/* SPDX-License-Identifier: MIT
 * Strided two-dimensional views of float32 arrays: how weights come in and go out. */
#ifndef FFNI_VIEW_H
#define FFNI_VIEW_H

#include "core/context.h"

/* Element [r, c] is at data + r * row_stride + c * column_stride, in bytes. A vector has one row. data NULL: absent. */
typedef struct view {
    char *data;
    int64_t rows, columns, row_stride, column_stride;
} view_t;

/* Bytes from an element to the next in a dimension of a checked tensor. 0 in a dimension of one element, where the stride means nothing and adding it up
 * might overflow. */
int64_t ffni_tensor_stride(const ffn_tensor_t *tensor, uint32_t dimension);

/* The view of a bound tensor; of a stack, of its first expert's. */
view_t ffni_view_of(const ffn_tensor_t *tensor);

/* The view of the index-th of the experts that a tensor describes: 0 where it is one expert's, or no expert's own. */
view_t ffni_view_of_expert(const ffn_tensor_t *tensor, int64_t index);

/* Whether no two elements can share an address: each stride steps over all that the smaller one spans. Sufficient, not necessary. */
int ffni_view_is_writable(const view_t *view);

/* Whether two writable views share an element. */
int ffni_views_overlap(const view_t *a, const view_t *b);

/* The addresses from the view's lowest byte to behind its highest. */
void ffni_view_range(const view_t *view, uintptr_t *low, uintptr_t *high);

/* to[r, c] = from[r, c]. The shapes agree. The context's threads help; NULL: the calling thread alone. */
void ffni_view_copy(ffn_context_t *context, const view_t *to, const view_t *from);

void ffni_view_zero(const view_t *view);

#endif
