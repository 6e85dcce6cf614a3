/* SPDX-License-Identifier: MIT
 * ffn_layer_create, _free, _info, _read and ffn_gated_d_ff: check, then call core. */
#include <ffn/ffn.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/layer.h"
#include "core/layer_views.h"

#include <inttypes.h>
#include <string.h>

ffn_status_t ffn_layer_create(ffn_context_t *context, const ffn_layer_options_t *options, ffn_layer_t **layer) {
    config_t config;
    if (!layer) return ffni_fail(FFN_INVALID, "the pointer to the layer is NULL");
    *layer = NULL;
    fpenv_t saved = fpenv_enter(); /* to compare the options' floats takes one too */
    ffn_status_t status = ffni_options_read(options, &config);
    if (status) goto cleanup;
    status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    status = ffni_layer_new(context, &config, layer);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

void ffn_layer_free(ffn_layer_t *layer) {
    ffni_layer_delete(layer);
}

ffn_status_t ffn_layer_info(const ffn_layer_t *layer, ffn_layer_info_t *info) {
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    ffn_layer_info_t known = {
        .flags = layer->flags, .d_model = layer->d_model, .d_ff = layer->d_ff, .d_out = layer->d_out, .gated = (uint32_t)layer->gated,
        .activation = layer->activation_name, .residual = layer->residual, .engine = layer->engine, .isa = layer->kernels->isa,
        .bytes = layer->bytes,
    };
    memcpy(known.norm, layer->norm_slot, sizeof known.norm);
    for (int role = 0; role < ROLE_LIMIT; role++) {
        known.parameters_of[role] = layer->stored[role].rows * layer->stored[role].columns;
        known.parameters += known.parameters_of[role];
    }
    return ffni_struct_write(info, &known, sizeof known, "ffn_layer_info_t");
}

ffn_status_t ffn_layer_read(const ffn_layer_t *layer, const ffn_tensor_t *tensors, uint64_t tensor_count) {
    const ffn_tensor_t *bound[ROLE_LIMIT];
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    ffn_status_t status = ffni_tensors_bind(tensors, tensor_count, bound);
    if (!status) status = ffni_layer_check_outputs(layer, bound);
    if (status) return status;
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!bound[role]) continue;
        view_t view = ffni_view_of(bound[role]);
        ffni_layer_read(layer, role, &view);
    }
    return FFN_OK;
}

ffn_status_t ffn_gated_d_ff(int64_t d_ff, int64_t multiple, int64_t *gated_d_ff) {
    const int64_t limit = 1 << 29;
    if (!gated_d_ff) return ffni_fail(FFN_INVALID, "the pointer to the gated d_ff is NULL");
    *gated_d_ff = 0;
    if (d_ff < 1 || d_ff > limit) return ffni_fail(FFN_INVALID, "d_ff is %" PRId64 ", must be 1 to %" PRId64, d_ff, limit);
    if (multiple < 1 || multiple > limit) return ffni_fail(FFN_INVALID, "multiple is %" PRId64 ", must be 1 to %" PRId64, multiple, limit);
    *gated_d_ff = round_up((2 * d_ff + 2) / 3, multiple);
    return FFN_OK;
}
