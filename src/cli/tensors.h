/* SPDX-License-Identifier: MIT
 * The numbers in the tensors that layers are made of: their norm, zeros, and what is not finite. */
#ifndef FFN_CLI_TENSORS_H
#define FFN_CLI_TENSORS_H

#include "cli/chain.h"

/* A tensor, or the part of one that a layer takes. */
typedef struct tensor_row {
    int64_t layer;
    uint32_t role, layout, part, experts; /* as in the binding */
    char *name;
    ffn_tensor_health_t health;
} tensor_row_t;

typedef struct tensors {
    tensor_row_t *row; /* layer by layer, in the order of the bindings */
    int64_t count;
} tensors_t;

/* Reads the tensors of the layers, one after the other, as float32: each layer once. Complains; returns an exit status. Whatever happened, tensors_free
 * does no harm. */
int tensors_read(tensors_t *tensors, const ffn_model_t *model, ffn_context_t *context, const selection_t *selection, const overrides_t *overrides,
                 progress_t *progress);
void tensors_free(tensors_t *tensors);

void tensors_print(const tensors_t *tensors);
json_t *tensors_json(const tensors_t *tensors);

/* EXIT_FINE where all numbers are finite; else complains, and names the first tensor where one is not. */
int tensors_check(const tensors_t *tensors, const char *path);

#endif
