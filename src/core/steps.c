/* SPDX-License-Identifier: MIT
 * Steps of the forward pass on one row. */
#include "core/steps.h"

void ffni_step_normalise(const ffn_layer_t *layer, int slot, int64_t n, float *out, const float *in) {
    layer->kernels->normalise[ffni_norm_kind(layer->norm_slot[slot])](&layer->norm[slot], n, out, in);
}

int ffni_step_needs_whole_branch(const ffn_layer_t *layer) {
    return layer->norm_slot[FFN_NORM_BRANCH] != FFN_NORM_NONE || layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE;
}

void ffni_step_finish(const ffn_layer_t *layer, float *branch, const float *residual, float *y) {
    combine_fn *combine = layer->kernels->combine;
    const float *bias = layer->branch_bias;
    int64_t width = layer->d_out;
    if (layer->norm_slot[FFN_NORM_BRANCH] != FFN_NORM_NONE) {
        if (bias) combine(width, branch, branch, bias, NULL, NULL, NULL);
        ffni_step_normalise(layer, FFN_NORM_BRANCH, width, branch, branch);
        bias = NULL;
    }
    float *sum = layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE ? branch : y;
    combine(width, sum, branch, bias, layer->branch_scale, residual, layer->residual_scale);
    if (sum != y) ffni_step_normalise(layer, FFN_NORM_OUT, width, y, sum);
}
