/* SPDX-License-Identifier: MIT
 * The forward pass: the layer's engine has it. */
#include "core/forward.h"

#include "core/blas.h"
#include "core/moe.h"
#include "core/native.h"

static int is_native(const ffn_layer_t *layer) {
    return layer->engine == FFN_ENGINE_NATIVE;
}

ffn_status_t ffni_forward(const forward_t *forward) {
    if (forward->layer->mixture.experts) return ffni_moe_forward(forward);
    return is_native(forward->layer) ? ffni_native_forward(forward) : ffni_blas_forward(forward);
}

ffn_status_t ffni_forward_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes) {
    if (layer->mixture.experts) return ffni_moe_scratch(layer, context, tokens, bytes);
    return is_native(layer) ? ffni_native_scratch(layer, context, tokens, bytes) : ffni_blas_scratch(layer, context, tokens, bytes);
}

uint64_t ffni_forward_stack(const ffn_layer_t *layer, int64_t tokens) {
    return is_native(layer) ? 0 : ffni_blas_stack(layer, tokens);
}
