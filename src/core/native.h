/* SPDX-License-Identifier: MIT
 * The forward pass of the native engine: own kernels on packed panels. */
#ifndef FFNI_NATIVE_H
#define FFNI_NATIVE_H

#include "core/forward.h"

/* As in core/forward.h. */
ffn_status_t ffni_native_forward(const forward_t *forward);

ffn_status_t ffni_native_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

#endif
