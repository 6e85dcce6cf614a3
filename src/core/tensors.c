/* SPDX-License-Identifier: MIT
 * Checking role-tagged tensors. */
#include "core/options.h"

#include "base/checked.h"
#include "base/error.h"

#include <inttypes.h>

int64_t ffni_extent(const ffn_layer_options_t *options, extent_t extent, int64_t given) {
    switch (extent) {
    case EXTENT_D_MODEL: return options->d_model;
    case EXTENT_D_FF: return options->d_ff;
    case EXTENT_D_OUT: return options->d_out;
    case EXTENT_ONE: return 1;
    case EXTENT_ONE_OR_D_OUT: return given == 1 ? 1 : options->d_out;
    case EXTENT_NONE: break;
    }
    return 0;
}

static const char *extent_name(extent_t extent) {
    switch (extent) {
    case EXTENT_D_MODEL: return " (d_model)";
    case EXTENT_D_FF: return " (d_ff)";
    case EXTENT_D_OUT: return " (d_out)";
    case EXTENT_ONE_OR_D_OUT: return " (d_out) or 1";
    case EXTENT_ONE:
    case EXTENT_NONE: break;
    }
    return "";
}

static ffn_status_t check_form(const ffn_tensor_t *tensor, const role_t *role) {
    if (tensor->expert) return ffni_fail(FFN_UNSUPPORTED, "expert of %s is %" PRIu32 ", must be 0 in this version", role->name, tensor->expert);
    if (tensor->dtype != FFN_DTYPE_F32)
        return ffni_fail(FFN_UNSUPPORTED, "dtype of %s is %" PRIu32 ", must be FFN_DTYPE_F32 in this version", role->name, tensor->dtype);
    if (tensor->ndim != role->ndim)
        return ffni_fail(tensor->ndim == role->ndim + 1 ? FFN_UNSUPPORTED : FFN_INVALID, "ndim of %s is %" PRIu32 ", must be %" PRIu32,
                         role->name, tensor->ndim, role->ndim);
    if (!tensor->data) return ffni_fail(FFN_INVALID, "data of %s is NULL", role->name);
    if ((uintptr_t)tensor->data % 4) return ffni_fail(FFN_INVALID, "data of %s is not at a multiple of 4 bytes", role->name);
    if (tensor->quant) return ffni_fail(FFN_UNSUPPORTED, "quant of %s is given, must be NULL in this version", role->name);
    for (int i = 0; i < 4; i++)
        if (tensor->reserved[i]) return ffni_fail(FFN_UNSUPPORTED, "reserved[%d] of %s is not 0", i, role->name);
    return FFN_OK;
}

static ffn_status_t check_shape(const ffn_layer_options_t *options, const ffn_tensor_t *tensor, const role_t *role) {
    for (uint32_t i = 0; i < 4; i++) {
        int64_t size = tensor->shape[i];
        if (i >= role->ndim && (size || tensor->stride[i]))
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] or stride[%" PRIu32 "] of %s is not 0, but its ndim is %" PRIu32, i, i, role->name,
                             role->ndim);
        if (i >= role->ndim) continue;
        int64_t right = ffni_extent(options, role->shape[i], size);
        if (size != right)
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] of %s is %" PRId64 ", must be %" PRId64 "%s", i, role->name, size, right,
                             extent_name(role->shape[i]));
    }
    return FFN_OK;
}

/* The bytes from the lowest address of the view to the highest must be addresses. */
static ffn_status_t check_addresses(const ffn_tensor_t *tensor, const role_t *role) {
    int64_t below = 0, above = 4;
    int contiguous = !tensor->stride[0] && !tensor->stride[1];
    for (uint32_t i = 0; i < role->ndim; i++) {
        int64_t stride = contiguous ? (i + 1 == role->ndim ? 4 : 4 * tensor->shape[i + 1]) : tensor->stride[i];
        int64_t reach, *side = stride < 0 ? &below : &above;
        if (tensor->shape[i] == 1) continue;
        if (stride % 4)
            return ffni_fail(FFN_INVALID, "stride[%" PRIu32 "] of %s is %" PRId64 " bytes, must be a multiple of 4", i, role->name, stride);
        if (!checked_multiply(tensor->shape[i] - 1, stride, &reach) || !checked_add(*side, reach, side)) goto beyond;
    }
    if (below != INT64_MIN && (uintptr_t)tensor->data >= (uint64_t)-below && (uint64_t)above <= UINTPTR_MAX - (uintptr_t)tensor->data)
        return FFN_OK;
beyond:
    return ffni_fail(FFN_INVALID, "the strides of %s reach beyond the address space", role->name);
}

ffn_status_t ffni_tensor_check(const ffn_layer_options_t *options, const ffn_tensor_t *tensor) {
    const role_t *role = &ffni_roles[tensor->role];
    ffn_status_t status = check_shape(options, tensor, role);
    if (!status) status = check_addresses(tensor, role);
    return status;
}

ffn_status_t ffni_tensors_bind(const ffn_tensor_t *tensors, uint64_t count, const ffn_tensor_t *bound[ROLE_LIMIT]) {
    if (count && !tensors) return ffni_fail(FFN_INVALID, "tensors is NULL, but tensor_count is %" PRIu64, count);
    if (count >= ROLE_LIMIT)
        return ffni_fail(FFN_INVALID, "tensor_count is %" PRIu64 ", must be at most %d: each role once", count, ROLE_LIMIT - 1);
    for (int role = 0; role < ROLE_LIMIT; role++) bound[role] = NULL;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t role = tensors[i].role;
        if (role >= ROLE_LIMIT || !ffni_roles[role].name)
            return ffni_fail(FFN_INVALID, "role of tensors[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_ROLE_*", i, role);
        if (bound[role]) return ffni_fail(FFN_INVALID, "%s is given twice, the second time in tensors[%" PRIu64 "]", ffni_roles[role].name, i);
        ffn_status_t status = check_form(&tensors[i], &ffni_roles[role]);
        if (status) return status;
        bound[role] = &tensors[i];
    }
    return FFN_OK;
}
