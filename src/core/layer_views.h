/* SPDX-License-Identifier: MIT
 * Checking a caller's views of a layer's tensors: to write them to, or to take new values from. */
#ifndef FFNI_LAYER_VIEWS_H
#define FFNI_LAYER_VIEWS_H

#include "core/layer.h"

/* What ffn_layer_create found right about a tensor must be right about a view of it. */
ffn_status_t ffni_layer_check_view(const ffn_layer_t *layer, const ffn_tensor_t *tensor);

/* That, of all tensors of a bound list, and their views must be writable and share no element. */
ffn_status_t ffni_layer_check_outputs(const ffn_layer_t *layer, const ffn_tensor_t *tensors, uint64_t count);

#endif
