/* SPDX-License-Identifier: MIT
 * A mixture of experts in words and in JSON. */
#ifndef FFN_CLI_EXPERTS_H
#define FFN_CLI_EXPERTS_H

#include "cli/names.h"
#include "cli/text.h"

/* "2 of 8", "6 of 64 + shared", "12 of 512 + 256 identities"; "" of a dense layer. */
typedef struct experts_text {
    char text[96];
} experts_text_t;
experts_text_t experts_text(const ffn_model_layer_t *layer);

/* "softmax, normalised", "sigmoid + bias, 4 of 8 groups, normalised, x 2.5"; "" of a dense layer. */
typedef struct router_text {
    char text[160];
} router_text_t;
router_text_t router_text(const ffn_model_layer_t *layer);

/* The same as an object; NULL of a dense layer. */
json_t *experts_json(const ffn_model_layer_t *layer);

/* Bindings first .. first+count-1 are one role's, of all experts. */
uint64_t bindings_of_role(const ffn_model_layer_t *layer, uint64_t first);

/* The name of the tensors of such bindings, {e} for the expert's number where they differ. The caller frees it; NULL: no memory. */
char *bindings_name(const ffn_model_binding_t *bindings, uint64_t count);

#endif
