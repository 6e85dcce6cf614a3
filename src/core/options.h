/* SPDX-License-Identifier: MIT
 * From a caller's ffn_layer_options_t to a checked configuration. */
#ifndef FFNI_OPTIONS_H
#define FFNI_OPTIONS_H

#include <ffn/ffn.h>

#include "core/mixture.h"
#include "core/tensors.h"
#include "kernels/kernels.h"

typedef struct config {
    ffn_layer_options_t options; /* d_model, d_ff and d_out resolved */
    mixture_t mixture;
    sizes_t sizes;
    ffn_allocator_t allocator;
    const kernel_table_t *kernels;
    const ffn_tensor_t *tensor[ROLE_LIMIT]; /* the caller's, by role: the first one; NULL: absent */
    int gated, shared_gated;
    uint32_t engine; /* resolved */
} config_t;

ffn_status_t ffni_options_read(const ffn_layer_options_t *given, config_t *config);

#endif
