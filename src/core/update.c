/* SPDX-License-Identifier: MIT
 * Updating a layer in place. */
#include "core/update.h"

void ffni_layer_update(ffn_layer_t *layer, ffn_context_t *context, const ffn_tensor_t *tensors, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        for (int64_t expert = 0; expert < ffni_tensor_experts(&tensors[i]); expert++) {
            view_t given = ffni_view_of_expert(&tensors[i], expert);
            ffni_layer_write(layer, context, (int)tensors[i].role, tensors[i].expert + expert, &given);
        }
    ffni_layer_derive(layer);
    layer->generation++;
}
