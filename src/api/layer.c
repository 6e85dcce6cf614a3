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

static void count_parameters(const ffn_layer_t *layer, ffn_layer_info_t *info) {
    const mixture_t *mixture = &layer->mixture;
    int64_t idle = maximum(0, mixture->experts - mixture->top_k);
    for (int role = 0; role < ROLE_LIMIT; role++) {
        int64_t size = layer->stored[role].rows * layer->stored[role].columns;
        int is_experts = mixture->experts && ffni_roles[role].owner == OWNER_EXPERT;
        info->parameters_of[role] = size * (is_experts ? mixture->experts : 1);
        info->parameters += info->parameters_of[role];
        info->active_parameters += info->parameters_of[role] - (is_experts ? size * idle : 0);
    }
}

ffn_status_t ffn_layer_info(const ffn_layer_t *layer, ffn_layer_info_t *info) {
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    ffn_layer_info_t known = {
        .flags = layer->flags, .d_model = layer->d_model, .d_ff = layer->d_ff, .d_out = layer->d_out, .gated = (uint32_t)layer->gated,
        .activation = layer->activation_name, .residual = layer->residual, .engine = layer->engine, .isa = layer->kernels->isa,
        .bytes = layer->bytes, .experts = layer->mixture.experts, .identity_experts = layer->mixture.choices - layer->mixture.experts,
        .top_k = layer->mixture.top_k, .d_shared = layer->sizes.of[EXTENT_D_SHARED], .d_latent = layer->sizes.of[EXTENT_D_LATENT],
    };
    memcpy(known.norm, layer->norm_slot, sizeof known.norm);
    count_parameters(layer, &known);
    return ffni_struct_write(info, &known, sizeof known, "ffn_layer_info_t");
}

ffn_status_t ffn_layer_read(const ffn_layer_t *layer, const ffn_tensor_t *tensors, uint64_t tensor_count) {
    const ffn_tensor_t *bound[ROLE_LIMIT];
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    ffn_status_t status = ffni_tensors_bind(tensors, tensor_count, layer->mixture.experts, bound);
    if (!status) status = ffni_layer_check_outputs(layer, tensors, tensor_count);
    if (status) return status;
    for (uint64_t i = 0; i < tensor_count; i++)
        for (int64_t expert = 0; expert < ffni_tensor_experts(&tensors[i]); expert++) {
            view_t view = ffni_view_of_expert(&tensors[i], expert);
            ffni_layer_read(layer, (int)tensors[i].role, tensors[i].expert + expert, &view);
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
