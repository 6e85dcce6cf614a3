/* SPDX-License-Identifier: MIT
 * See ffn_layer.h. */
#include "ffn_layer.h"

#include <string.h>

ffn_layer_t *ffn_layer_of(const layer_t *layer, uint32_t engine, ffn_context_t *context) {
    ffn_tensor_t tensors[5] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = (void *)layer->up, .shape = {layer->d_ff, layer->d_model}},
                               {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = (void *)layer->down, .shape = {layer->d_model, layer->d_ff}}};
    uint64_t count = 2;
    if (layer->gated)
        tensors[count++] = (ffn_tensor_t){.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = (void *)layer->gate,
                                          .shape = {layer->d_ff, layer->d_model}};
    if (layer->up_bias)
        tensors[count++] = (ffn_tensor_t){.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = (void *)layer->up_bias, .shape = {layer->d_ff}};
    if (layer->down_bias)
        tensors[count++] = (ffn_tensor_t){.role = FFN_ROLE_DOWN_BIAS, .ndim = 1, .data = (void *)layer->down_bias, .shape = {layer->d_model}};
    ffn_layer_options_t options = {.struct_size = sizeof options, .engine = engine, .tensors = tensors, .tensor_count = count};
    ffn_layer_t *made = NULL;
    if (ffn_activation_from_name(layer->activation, &options.activation) != FFN_OK) worker_fail("%s", ffn_last_error());
    ffn_layer_create(context, &options, &made);
    return made;
}

ffn_context_t *ffn_context_of(int threads) {
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = (uint32_t)threads};
    ffn_context_t *context;
    if (ffn_context_create(&options, &context) != FFN_OK) worker_fail("%s", ffn_last_error());
    return context;
}

uint32_t ffn_engine_of(const char *name) {
    if (!strcmp(name, "native")) return FFN_ENGINE_NATIVE;
    if (!strcmp(name, "blas")) return FFN_ENGINE_BLAS;
    if (strcmp(name, "auto")) worker_fail("\"%s\" is not native, blas or auto", name);
    return FFN_ENGINE_AUTO;
}
