/* SPDX-License-Identifier: MIT
 * Updating a layer in place. */
#include "core/update.h"

void ffni_layer_update(ffn_layer_t *layer, ffn_context_t *context, const ffn_tensor_t *const bound[ROLE_LIMIT]) {
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!bound[role]) continue;
        view_t given = ffni_view_of(bound[role]);
        ffni_layer_write(layer, context, role, 0, &given);
    }
    ffni_layer_derive(layer);
    layer->generation++;
}
