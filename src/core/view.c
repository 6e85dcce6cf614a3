/* SPDX-License-Identifier: MIT
 * Copying between strided views, tile by tile, so that a transposing copy uses every cache line it loads. */
#include "core/view.h"

#include "base/checked.h"
#include "core/parallel.h"
#include "core/roles.h"

#include <string.h>

enum { TILE = 32 };

typedef struct copy {
    const view_t *to, *from;
} copy_t;

int64_t ffni_tensor_stride(const ffn_tensor_t *tensor, uint32_t dimension) {
    int64_t contiguous = 4;
    if (tensor->shape[dimension] == 1) return 0;
    if (tensor->stride[0] || tensor->stride[1] || tensor->stride[2]) return tensor->stride[dimension];
    for (uint32_t i = dimension + 1; i < tensor->ndim; i++) contiguous *= tensor->shape[i];
    return contiguous;
}

view_t ffni_view_of_expert(const ffn_tensor_t *tensor, int64_t index) {
    uint32_t ndim = ffni_roles[tensor->role].ndim, column = tensor->ndim - 1;
    view_t view = {.data = tensor->data, .rows = 1, .columns = tensor->shape[column], .column_stride = ffni_tensor_stride(tensor, column)};
    if (tensor->ndim > ndim) view.data += index * ffni_tensor_stride(tensor, 0);
    if (ndim == 1) return view;
    view.rows = tensor->shape[column - 1];
    view.row_stride = ffni_tensor_stride(tensor, column - 1);
    return view;
}

view_t ffni_view_of(const ffn_tensor_t *tensor) {
    return ffni_view_of_expert(tensor, 0);
}

static int64_t magnitude(int64_t value) {
    return value < 0 ? -value : value;
}

int ffni_view_is_writable(const view_t *view) {
    int64_t row = magnitude(view->row_stride), column = magnitude(view->column_stride);
    if (view->rows == 1) return view->columns == 1 || column >= 4;
    if (view->columns == 1) return row >= 4;
    if (row < column) return row >= 4 && column >= (view->rows - 1) * row + 4;
    return column >= 4 && row >= (view->columns - 1) * column + 4;
}

/* The addresses of a writable view, from its lowest: outer steps over all that the inner ones span, so that an offset has one way to be theirs.
 * The unit is a float. */
typedef struct lattice {
    uintptr_t low, high; /* high: behind the last byte */
    uint64_t outer, outer_size, inner, inner_size;
} lattice_t;

static lattice_t lattice_of(const view_t *view) {
    int64_t row_reach = (view->rows - 1) * view->row_stride, column_reach = (view->columns - 1) * view->column_stride;
    uint64_t row = (uint64_t)magnitude(view->row_stride) / 4, column = (uint64_t)magnitude(view->column_stride) / 4;
    uint64_t rows = (uint64_t)view->rows, columns = (uint64_t)view->columns;
    uintptr_t low = (uintptr_t)view->data + (uintptr_t)minimum(row_reach, 0) + (uintptr_t)minimum(column_reach, 0);
    uintptr_t high = low + (uintptr_t)magnitude(row_reach) + (uintptr_t)magnitude(column_reach) + 4;
    if (row >= column) return (lattice_t){low, high, row, rows, column, columns};
    return (lattice_t){low, high, column, columns, row, rows};
}

void ffni_view_range(const view_t *view, uintptr_t *low, uintptr_t *high) {
    lattice_t lattice = lattice_of(view);
    *low = lattice.low;
    *high = lattice.high;
}

static int lattice_has(const lattice_t *lattice, uintptr_t address) {
    if (address < lattice->low || address >= lattice->high) return 0;
    uint64_t offset = (address - lattice->low) / 4;
    uint64_t i = lattice->outer_size > 1 ? offset / lattice->outer : 0, rest = offset - i * lattice->outer;
    uint64_t j = lattice->inner_size > 1 ? rest / lattice->inner : 0;
    return j < lattice->inner_size && rest == j * lattice->inner;
}

int ffni_views_overlap(const view_t *a, const view_t *b) {
    if (a->rows * a->columns > b->rows * b->columns) return ffni_views_overlap(b, a);
    lattice_t few = lattice_of(a), many = lattice_of(b);
    if (few.high <= many.low || many.high <= few.low) return 0;
    for (uint64_t i = 0; i < few.outer_size; i++)
        for (uint64_t j = 0; j < few.inner_size; j++)
            if (lattice_has(&many, few.low + 4 * (uintptr_t)(i * few.outer + j * few.inner))) return 1;
    return 0;
}

static void copy_tile(const copy_t *copy, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
    const view_t *to = copy->to, *from = copy->from;
    for (int64_t r = row; r < row_end; r++) {
        char *target = to->data + r * to->row_stride + column * to->column_stride;
        const char *source = from->data + r * from->row_stride + column * from->column_stride;
        if (to->column_stride == 4 && from->column_stride == 4) {
            memcpy(target, source, (size_t)(column_end - column) * 4);
            continue;
        }
        for (int64_t c = column; c < column_end; c++, target += to->column_stride, source += from->column_stride) memcpy(target, source, 4);
    }
}

static void copy_rows(void *data, int64_t begin, int64_t end) {
    const copy_t *copy = data;
    int64_t columns = copy->to->columns;
    for (int64_t r = begin; r < end; r += TILE)
        for (int64_t c = 0; c < columns; c += TILE) copy_tile(copy, r, minimum(r + TILE, end), c, minimum(c + TILE, columns));
}

void ffni_view_copy(ffn_context_t *context, const view_t *to, const view_t *from) {
    copy_t copy = {to, from};
    ffni_parallel_rows(context, to->rows, to->columns, copy_rows, &copy);
}

void ffni_view_zero(const view_t *view) {
    for (int64_t r = 0; r < view->rows; r++)
        for (int64_t c = 0; c < view->columns; c++) *(float *)(void *)(view->data + r * view->row_stride + c * view->column_stride) = 0;
}
