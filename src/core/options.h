/* SPDX-License-Identifier: MIT
 * From a caller's ffn_layer_options_t to a checked configuration. */
#ifndef FFNI_OPTIONS_H
#define FFNI_OPTIONS_H

#include <ffn/ffn.h>

#include "core/roles.h"
#include "kernels/kernels.h"

typedef struct config {
    ffn_layer_options_t options; /* d_model, d_ff and d_out resolved */
    ffn_allocator_t allocator;
    const kernel_table_t *kernels;
    const ffn_tensor_t *tensor[ROLE_LIMIT]; /* the caller's, by role; NULL: absent */
    int gated;
    uint32_t engine; /* resolved */
} config_t;

ffn_status_t ffni_options_read(const ffn_layer_options_t *given, config_t *config);

/* The size of a role's dimension in this configuration; 0 for EXTENT_NONE. EXTENT_ONE_OR_D_OUT needs the size that was given. */
int64_t ffni_extent(const ffn_layer_options_t *options, extent_t extent, int64_t given);

/* Checks shape and address range of a bound tensor. */
ffn_status_t ffni_tensor_check(const ffn_layer_options_t *options, const ffn_tensor_t *tensor);

/* Sorts tensors by role. Unknown and doubled roles are refused, and tensors that cannot be read at all (ndim, dtype, data). */
ffn_status_t ffni_tensors_bind(const ffn_tensor_t *tensors, uint64_t count, const ffn_tensor_t *bound[ROLE_LIMIT]);

#endif
