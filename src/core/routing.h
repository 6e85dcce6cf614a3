/* SPDX-License-Identifier: MIT
 * Routing tokens to experts. All arguments are checked. */
#ifndef FFNI_ROUTING_H
#define FFNI_ROUTING_H

#include "core/context.h"

typedef struct router {
    ffn_moe_router_options_t options; /* scale resolved */
    const float *logits, *selection_bias, *expert_scale;
    float *scores; /* NULL: not wanted */
    ffn_moe_routing_t routing;
} router_t;

void ffni_route(ffn_context_t *context, const router_t *router);

/* Padding: every slot of such a token becomes no expert with weight 0. Returns whether the token is padding. */
int ffni_routing_skip(const ffn_moe_routing_t *routing, int64_t token);

/* Whether a token is no padding. */
static inline int ffni_routing_counts(const ffn_moe_routing_t *routing, int64_t token) {
    return !routing->mask || routing->mask[token];
}

#endif
