/* SPDX-License-Identifier: MIT
 * Checking tensors whose role does not matter. */
#include "core/health.h"

#include "base/checked.h"
#include "base/error.h"
#include "core/tensors.h"

#include <inttypes.h>

static ffn_status_t check_form(const ffn_tensor_t *tensor, const char *name) {
    if (!tensor) return ffni_fail(FFN_INVALID, "%s is NULL", name);
    if (tensor->dtype != FFN_DTYPE_F32)
        return ffni_fail(FFN_UNSUPPORTED, "dtype of %s is %" PRIu32 ", must be FFN_DTYPE_F32 in this version", name, tensor->dtype);
    if (tensor->ndim < 1 || tensor->ndim > 4) return ffni_fail(FFN_INVALID, "ndim of %s is %" PRIu32 ", must be 1 to 4", name, tensor->ndim);
    if ((uintptr_t)tensor->data % 4) return ffni_fail(FFN_INVALID, "data of %s is not at a multiple of 4 bytes", name);
    if (tensor->quant) return ffni_fail(FFN_UNSUPPORTED, "quant of %s is given, must be NULL in this version", name);
    for (int i = 0; i < 4; i++)
        if (tensor->reserved[i]) return ffni_fail(FFN_UNSUPPORTED, "reserved[%d] of %s is not 0", i, name);
    return FFN_OK;
}

static ffn_status_t check_shape(const ffn_tensor_t *tensor, const char *name, int64_t *count) {
    int empty = 0;
    *count = 1;
    for (uint32_t i = 0; i < 4; i++) {
        if (i >= tensor->ndim && (tensor->shape[i] || tensor->stride[i]))
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] or stride[%" PRIu32 "] of %s is not 0, but its ndim is %" PRIu32, i, i, name, tensor->ndim);
        if (i >= tensor->ndim) continue;
        if (tensor->shape[i] < 0)
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] of %s is %" PRId64 ", must be at least 0", i, name, tensor->shape[i]);
        if (tensor->stride[i] % 4 && tensor->shape[i] > 1)
            return ffni_fail(FFN_INVALID, "stride[%" PRIu32 "] of %s is %" PRId64 " bytes, must be a multiple of 4", i, name, tensor->stride[i]);
        empty |= !tensor->shape[i];
    }
    for (uint32_t i = 0; !empty && i < tensor->ndim; i++)
        if (!checked_multiply(*count, tensor->shape[i], count) || *count > INT64_MAX / 4)
            return ffni_fail(FFN_INVALID, "%s has more than 2^61 numbers", name);
    if (empty) *count = 0;
    if (*count && !tensor->data) return ffni_fail(FFN_INVALID, "data of %s is NULL", name);
    return FFN_OK;
}

/* Dimensions of one number say nothing; two of which the outer steps over exactly what the inner spans are one. */
static void join(numbers_t *numbers, const ffn_tensor_t *tensor) {
    int contiguous = !tensor->stride[0] && !tensor->stride[1] && !tensor->stride[2] && !tensor->stride[3];
    int64_t spanned = 4;
    for (int i = (int)tensor->ndim - 1; i >= 0; i--) {
        int64_t size = tensor->shape[i], stride = contiguous ? spanned : tensor->stride[i], whole;
        spanned *= contiguous ? size : 1;
        if (size == 1) continue;
        int inner = numbers->ndim - 1; /* inner dimensions first, until they are turned round */
        if (numbers->ndim && checked_multiply(numbers->shape[inner], numbers->stride[inner], &whole) && whole == stride) {
            numbers->shape[inner] *= size;
            continue;
        }
        numbers->shape[numbers->ndim] = size;
        numbers->stride[numbers->ndim++] = stride;
    }
    if (!numbers->ndim) numbers->shape[0] = 1, numbers->stride[0] = 4, numbers->ndim = 1;
    for (int i = 0, j = numbers->ndim - 1; i < j; i++, j--) {
        int64_t shape = numbers->shape[i], stride = numbers->stride[i];
        numbers->shape[i] = numbers->shape[j], numbers->stride[i] = numbers->stride[j];
        numbers->shape[j] = shape, numbers->stride[j] = stride;
    }
}

ffn_status_t ffni_numbers_read(numbers_t *numbers, const ffn_tensor_t *tensor, const char *name) {
    *numbers = (numbers_t){0};
    ffn_status_t status = check_form(tensor, name);
    if (!status) status = check_shape(tensor, name, &numbers->count);
    if (!status && numbers->count) status = ffni_tensor_check_addresses(tensor, name);
    if (status || !numbers->count) return status;
    numbers->data = tensor->data;
    join(numbers, tensor);
    return FFN_OK;
}
