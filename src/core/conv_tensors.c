/* SPDX-License-Identifier: MIT
 * Checking the tensors of a convolutional layer: each fault gets its sentence. */
#include "core/conv_tensors.h"

#include "base/error.h"
#include "core/tensors.h"

#include <inttypes.h>
#include <stddef.h>

typedef enum size { SIZE_D_MODEL, SIZE_D_FF, SIZE_D_OUT, SIZE_ONE, SIZE_TAPS, SIZE_SECOND_TAPS } size_kind_t;

typedef struct conv_role {
    const char *name;
    uint32_t ndim, ndim_most;
    size_kind_t shape[3];
} conv_role_t;

static const conv_role_t roles[ROLE_LIMIT] = {
    [FFN_ROLE_UP_WEIGHT] = {"the up weight", 2, 3, {SIZE_D_FF, SIZE_D_MODEL, SIZE_TAPS}},
    [FFN_ROLE_UP_BIAS] = {"the up bias", 1, 1, {SIZE_D_FF}},
    [FFN_ROLE_DOWN_WEIGHT] = {"the down weight", 2, 3, {SIZE_D_OUT, SIZE_D_FF, SIZE_SECOND_TAPS}},
    [FFN_ROLE_DOWN_BIAS] = {"the down bias", 1, 1, {SIZE_D_OUT}},
    [FFN_ROLE_XIELU_ALPHA_P] = {"xielu's alpha_p", 1, 1, {SIZE_ONE}},
    [FFN_ROLE_XIELU_ALPHA_N] = {"xielu's alpha_n", 1, 1, {SIZE_ONE}},
    [FFN_ROLE_UP_TAPS] = {"the up taps", 2, 2, {SIZE_D_MODEL, SIZE_TAPS}},
    [FFN_ROLE_DOWN_TAPS] = {"the down taps", 2, 2, {SIZE_D_FF, SIZE_SECOND_TAPS}},
};

const char *ffni_conv_role_name(int role) {
    return roles[role].name;
}

static int is_weight(uint32_t role) {
    return role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT;
}

/* -------------------------------------------------------------------- Binding */

static ffn_status_t check_form(const ffn_tensor_t *tensor, const conv_role_t *role) {
    if (tensor->expert) return ffni_fail(FFN_INVALID, "expert of %s is %" PRIu32 ", must be 0: there are no experts", role->name, tensor->expert);
    if (tensor->dtype != FFN_DTYPE_F32)
        return ffni_fail(FFN_UNSUPPORTED, "dtype of %s is %" PRIu32 ", must be FFN_DTYPE_F32 in this version", role->name, tensor->dtype);
    if (tensor->ndim < role->ndim || tensor->ndim > role->ndim_most)
        return ffni_fail(FFN_INVALID, "ndim of %s is %" PRIu32 ", must be %" PRIu32 "%s", role->name, tensor->ndim, role->ndim,
                         role->ndim_most > role->ndim ? " or 3" : "");
    return ffni_tensor_check_data(tensor, role->name);
}

ffn_status_t ffni_conv_bind(const ffn_tensor_t *tensors, uint64_t count, const ffn_tensor_t *bound[ROLE_LIMIT]) {
    if (count && !tensors) return ffni_fail(FFN_INVALID, "tensors is NULL, but tensor_count is %" PRIu64, count);
    if (count >= ROLE_LIMIT)
        return ffni_fail(FFN_INVALID, "tensor_count is %" PRIu64 ", must be at most %d: each role once", count, ROLE_LIMIT - 1);
    for (int role = 0; role < ROLE_LIMIT; role++) bound[role] = NULL;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t role = tensors[i].role;
        if (role >= ROLE_LIMIT || !roles[role].name)
            return ffni_fail(FFN_INVALID, "role of tensors[%" PRIu64 "] is %" PRIu32 ", which a convolutional layer does not have", i, role);
        if (bound[role]) return ffni_fail(FFN_INVALID, "%s is given twice, the second time in tensors[%" PRIu64 "]", roles[role].name, i);
        ffn_status_t status = check_form(&tensors[i], &roles[role]);
        if (status) return status;
        bound[role] = &tensors[i];
    }
    return FFN_OK;
}

/* --------------------------------------------------------------------- Shapes */

/* A separable convolution's taps are a tensor of their own, and its weight has no dimension for them. */
static int64_t size_of(const conv_sizes_t *sizes, uint32_t role, size_kind_t kind) {
    switch (kind) {
    case SIZE_D_MODEL: return sizes->d_model;
    case SIZE_D_FF: return sizes->d_ff;
    case SIZE_D_OUT: return sizes->d_out;
    case SIZE_TAPS: return is_weight(role) && sizes->separable[0] ? 1 : sizes->kernel[0];
    case SIZE_SECOND_TAPS: return is_weight(role) && sizes->separable[1] ? 1 : sizes->kernel[1];
    case SIZE_ONE: break;
    }
    return 1;
}

static const char *size_name(size_kind_t kind) {
    static const char *const names[] = {[SIZE_D_MODEL] = " (d_model)",    [SIZE_D_FF] = " (d_ff)", [SIZE_D_OUT] = " (d_out)", [SIZE_ONE] = "",
                                        [SIZE_TAPS] = " (kernel_size)", [SIZE_SECOND_TAPS] = " (second_kernel_size)"};
    return names[kind];
}

static ffn_status_t check_shape(const conv_sizes_t *sizes, const ffn_tensor_t *tensor, const conv_role_t *role) {
    if (is_weight(tensor->role) && tensor->ndim == 2 && size_of(sizes, tensor->role, role->shape[2]) > 1)
        return ffni_fail(FFN_INVALID, "ndim of %s is 2, must be 3: its convolution has %" PRId64 " taps, and none of them are given apart", role->name,
                         size_of(sizes, tensor->role, role->shape[2]));
    for (uint32_t i = 0; i < 4; i++) {
        int64_t size = tensor->shape[i];
        if (i >= tensor->ndim && (size || tensor->stride[i]))
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] or stride[%" PRIu32 "] of %s is not 0, but its ndim is %" PRIu32, i, i, role->name,
                             tensor->ndim);
        if (i >= tensor->ndim) continue;
        int64_t right = size_of(sizes, tensor->role, role->shape[i]);
        if (size != right)
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] of %s is %" PRId64 ", must be %" PRId64 "%s", i, role->name, size, right,
                             i == 2 && right == 1 ? "" : size_name(role->shape[i]));
    }
    return FFN_OK;
}

ffn_status_t ffni_conv_tensor_check(const conv_sizes_t *sizes, const ffn_tensor_t *tensor) {
    ffn_status_t status = check_shape(sizes, tensor, &roles[tensor->role]);
    return status ? status : ffni_tensor_check_addresses(tensor, roles[tensor->role].name);
}

/* ---------------------------------------------------------------------- Views */

conv_view_t ffni_conv_view_of(const ffn_tensor_t *tensor) {
    const int64_t *shape = tensor->shape;
    int64_t first = ffni_tensor_stride(tensor, 0), second = tensor->ndim > 1 ? ffni_tensor_stride(tensor, 1) : 0;
    view_t vector = {.data = tensor->data, .rows = 1, .columns = shape[0], .column_stride = first};
    view_t matrix = {.data = tensor->data, .rows = shape[0], .columns = shape[1], .row_stride = first, .column_stride = second};
    if (tensor->ndim == 1) return (conv_view_t){.matrix = vector, .taps = 1};
    if (!is_weight(tensor->role)) return (conv_view_t){.matrix = vector, .taps = shape[1], .tap_stride = second};
    if (tensor->ndim == 2) return (conv_view_t){.matrix = matrix, .taps = 1};
    return (conv_view_t){.matrix = matrix, .taps = shape[2], .tap_stride = ffni_tensor_stride(tensor, 2)};
}

typedef struct dimension {
    int64_t size, stride; /* the stride without its sign */
} dimension_t;

static void order(dimension_t *smaller, dimension_t *larger) {
    dimension_t kept = *smaller;
    if (smaller->stride <= larger->stride) return;
    *smaller = *larger;
    *larger = kept;
}

/* Each stride must step over all that the smaller ones span. Sufficient, not necessary. */
static int is_writable(const conv_view_t *view) {
    const view_t *matrix = &view->matrix;
    dimension_t d[3] = {{matrix->rows, matrix->row_stride}, {matrix->columns, matrix->column_stride}, {view->taps, view->tap_stride}};
    int64_t span = 4;
    for (int i = 0; i < 3; i++) d[i].stride = d[i].size == 1 ? 0 : d[i].stride < 0 ? -d[i].stride : d[i].stride;
    order(&d[0], &d[1]);
    order(&d[1], &d[2]);
    order(&d[0], &d[1]);
    for (int i = 0; i < 3; i++) {
        if (d[i].size == 1) continue;
        if (d[i].stride < span) return 0;
        span += (d[i].size - 1) * d[i].stride;
    }
    return 1;
}

static void extend(int64_t size, int64_t stride, uintptr_t *low, uintptr_t *high) {
    int64_t reach = (size - 1) * stride;
    *(reach < 0 ? low : high) += (uintptr_t)reach;
}

void ffni_conv_view_range(const conv_view_t *view, uintptr_t *low, uintptr_t *high) {
    *low = (uintptr_t)view->matrix.data;
    *high = *low + 4;
    extend(view->matrix.rows, view->matrix.row_stride, low, high);
    extend(view->matrix.columns, view->matrix.column_stride, low, high);
    extend(view->taps, view->tap_stride, low, high);
}

static ffn_status_t check_output(const ffn_tensor_t *const bound[ROLE_LIMIT], int role) {
    conv_view_t view = ffni_conv_view_of(bound[role]);
    uintptr_t low, high, other_low, other_high;
    if (!is_writable(&view)) return ffni_fail(FFN_INVALID, "the strides of %s let elements share an address", roles[role].name);
    ffni_conv_view_range(&view, &low, &high);
    for (int other = 0; other < role; other++) {
        if (!bound[other]) continue;
        conv_view_t other_view = ffni_conv_view_of(bound[other]);
        ffni_conv_view_range(&other_view, &other_low, &other_high);
        if (high > other_low && other_high > low)
            return ffni_fail(FFN_INVALID, "the views of %s and %s overlap", roles[other].name, roles[role].name);
    }
    return FFN_OK;
}

ffn_status_t ffni_conv_check_outputs(const ffn_tensor_t *const bound[ROLE_LIMIT]) {
    ffn_status_t status = FFN_OK;
    for (int role = 0; !status && role < ROLE_LIMIT; role++)
        if (bound[role]) status = check_output(bound, role);
    return status;
}

void ffni_conv_view_copy(ffn_context_t *context, const conv_view_t *to, const conv_view_t *from) {
    for (int64_t tap = 0; tap < to->taps; tap++) {
        view_t target = conv_view_tap(to, tap), source = conv_view_tap(from, tap);
        ffni_view_copy(context, &target, &source);
    }
}
