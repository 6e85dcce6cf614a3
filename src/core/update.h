/* SPDX-License-Identifier: MIT
 * New values for a layer's tensors. */
#ifndef FFNI_UPDATE_H
#define FFNI_UPDATE_H

#include "core/layer.h"

/* Copies the bound views, which have been checked, into the layer of the blas engine. */
void ffni_layer_update(ffn_layer_t *layer, ffn_context_t *context, const ffn_tensor_t *tensors, uint64_t count);

#endif
