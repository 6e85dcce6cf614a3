/* SPDX-License-Identifier: MIT
 * The tensors of a convolutional layer: matrices with one slice per tap. */
#ifndef FFNI_CONV_TENSORS_H
#define FFNI_CONV_TENSORS_H

#include "core/roles.h"
#include "core/view.h"

/* A weight [out, in, k] is k matrices, tap_stride bytes apart; taps [channels, k] are k vectors; a vector is one. matrix.data NULL: absent. */
typedef struct conv_view {
    view_t matrix; /* of tap 0 */
    int64_t taps, tap_stride;
} conv_view_t;

static inline view_t conv_view_tap(const conv_view_t *view, int64_t tap) {
    view_t matrix = view->matrix;
    matrix.data += tap * view->tap_stride;
    return matrix;
}

/* What the shapes of tensors must agree with. */
typedef struct conv_sizes {
    int64_t d_model, d_ff, d_out;
    int64_t kernel[2];
    int separable[2];
} conv_sizes_t;

const char *ffni_conv_role_name(int role); /* NULL: no role of a convolutional layer */

/* Sorts a caller's tensors by role. Refused: other roles, a role twice, and tensors that cannot be read at all (ndim, dtype, data). */
ffn_status_t ffni_conv_bind(const ffn_tensor_t *tensors, uint64_t count, const ffn_tensor_t *bound[ROLE_LIMIT]);

/* Checks shape and address range of a bound tensor. */
ffn_status_t ffni_conv_tensor_check(const conv_sizes_t *sizes, const ffn_tensor_t *tensor);

conv_view_t ffni_conv_view_of(const ffn_tensor_t *tensor);

/* The addresses from the view's lowest byte to behind its highest. */
void ffni_conv_view_range(const conv_view_t *view, uintptr_t *low, uintptr_t *high);

/* Views to write to: no two elements may share an address, nor the ranges of two views a byte. The tensors have been checked. */
ffn_status_t ffni_conv_check_outputs(const ffn_tensor_t *const bound[ROLE_LIMIT]);

/* to = from; the shapes agree. The context's threads help; NULL: the calling thread alone. */
void ffni_conv_view_copy(ffn_context_t *context, const conv_view_t *to, const conv_view_t *from);

#endif
