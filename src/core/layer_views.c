/* SPDX-License-Identifier: MIT
 * Checking views against a layer. */
#include "core/layer_views.h"

#include "base/error.h"

#include <inttypes.h>

ffn_status_t ffni_layer_check_view(const ffn_layer_t *layer, const ffn_tensor_t *tensor) {
    const ffn_layer_options_t shapes = {.d_model = layer->d_model, .d_ff = layer->d_ff, .d_out = layer->d_out};
    const char *name = ffni_roles[tensor->role].name;
    if (!ffni_layer_has(layer, (int)tensor->role)) return ffni_fail(FFN_INVALID, "%s is not in this layer", name);
    ffn_status_t status = ffni_tensor_check(&shapes, tensor);
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

static ffn_status_t check_apart(const ffn_tensor_t *const bound[ROLE_LIMIT], int role) {
    if (!bound[role]) return FFN_OK;
    view_t view = ffni_view_of(bound[role]);
    for (int other = 0; other < role; other++) {
        if (!bound[other]) continue;
        view_t other_view = ffni_view_of(bound[other]);
        if (ffni_views_overlap(&view, &other_view))
            return ffni_fail(FFN_INVALID, "the views of %s and %s overlap", ffni_roles[other].name, ffni_roles[role].name);
    }
    return FFN_OK;
}

ffn_status_t ffni_layer_check_outputs(const ffn_layer_t *layer, const ffn_tensor_t *const bound[ROLE_LIMIT]) {
    ffn_status_t status = FFN_OK;
    for (int role = 0; !status && role < ROLE_LIMIT; role++)
        if (bound[role]) status = check_output(layer, bound[role]);
    for (int role = 0; !status && role < ROLE_LIMIT; role++) status = check_apart(bound, role);
    return status;
}
