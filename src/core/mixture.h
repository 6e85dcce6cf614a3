/* SPDX-License-Identifier: MIT
 * The options of a mixture of experts, checked. */
#ifndef FFNI_MIXTURE_H
#define FFNI_MIXTURE_H

#include <ffn/ffn.h>

#include "core/roles.h"

typedef struct mixture {
    int64_t experts; /* with weights. 0: a dense layer, and all below is 0 */
    int64_t choices; /* and the identity experts */
    int64_t top_k;
    uint32_t flags, choose;
    float jitter_eps;
    uint32_t router_norm;
    float router_norm_eps;
    uint64_t chunk_bytes;                /* resolved */
    ffn_moe_router_options_t router;     /* scale resolved */
    ffn_moe_second_options_t second;     /* policy 0: none */
    ffn_moe_capacity_options_t capacity; /* struct_size 0: none */
} mixture_t;

/* The tensors need not have been checked. */
ffn_status_t ffni_mixture_read(const ffn_layer_options_t *options, mixture_t *mixture);

/* Refuses tensors of a mixture that need something else to make sense. */
ffn_status_t ffni_mixture_check_tensors(const mixture_t *mixture, const ffn_tensor_t *const tensor[ROLE_LIMIT]);

#endif
