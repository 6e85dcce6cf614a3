/* SPDX-License-Identifier: MIT
 * Checking views against a layer. */
#include "core/layer_views.h"

#include "base/error.h"

#include <inttypes.h>

ffn_status_t ffni_layer_check_view(const ffn_layer_t *layer, const ffn_tensor_t *tensor) {
    const char *name = ffni_roles[tensor->role].name;
    if (!ffni_layer_has(layer, (int)tensor->role)) return ffni_fail(FFN_INVALID, "%s is not in this layer", name);
    ffn_status_t status = ffni_tensor_check(&layer->sizes, tensor);
    if (status) return status;
    int64_t columns = ffni_view_of(tensor).columns, stored = layer->stored[tensor->role].columns;
    if (columns != stored) return ffni_fail(FFN_INVALID, "shape[0] of %s is %" PRId64 ", must be %" PRId64, name, columns, stored);
    return FFN_OK;
}

static ffn_status_t check_output(const ffn_layer_t *layer, const ffn_tensor_t *tensor) {
    ffn_status_t status = ffni_layer_check_view(layer, tensor);
    if (status) return status;
    view_t view = ffni_view_of(tensor);
    if (!ffni_view_is_writable(&view))
        return ffni_fail(FFN_INVALID, "the strides of %s let elements share an address", ffni_roles[tensor->role].name);
    return FFN_OK;
}

/* The views of tensors before this one, and of experts before this one of its stack. */
static ffn_status_t check_apart(const ffn_tensor_t *tensors, uint64_t index, int64_t expert) {
    const ffn_tensor_t *tensor = &tensors[index];
    view_t view = ffni_view_of_expert(tensor, expert);
    for (uint64_t i = 0; i <= index; i++) {
        int64_t end = i < index ? ffni_tensor_experts(&tensors[i]) : expert;
        for (int64_t other = 0; other < end; other++) {
            view_t other_view = ffni_view_of_expert(&tensors[i], other);
            if (ffni_views_overlap(&view, &other_view))
                return ffni_fail(FFN_INVALID, "the views of %s and %s overlap", ffni_roles[tensors[i].role].name, ffni_roles[tensor->role].name);
        }
    }
    return FFN_OK;
}

ffn_status_t ffni_layer_check_outputs(const ffn_layer_t *layer, const ffn_tensor_t *tensors, uint64_t count) {
    ffn_status_t status = FFN_OK;
    for (uint64_t i = 0; !status && i < count; i++) status = check_output(layer, &tensors[i]);
    for (uint64_t i = 0; !status && i < count; i++)
        for (int64_t expert = 0; !status && expert < ffni_tensor_experts(&tensors[i]); expert++) status = check_apart(tensors, i, expert);
    return status;
}
