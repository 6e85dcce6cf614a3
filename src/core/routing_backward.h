/* SPDX-License-Identifier: MIT
 * The backward pass of the router's pipeline: from the weights and the scores to the logits. All arguments are checked. */
#ifndef FFNI_ROUTING_BACKWARD_H
#define FFNI_ROUTING_BACKWARD_H

#include "core/context.h"

/* Sums over tokens are taken over chunks of so many, and over so many chunks at once. */
enum { ROUTE_CHUNK = 64, ROUTE_CHUNKS = 32 };

typedef struct router_backward {
    ffn_moe_router_options_t options; /* scale resolved */
    const float *logits, *expert_scale;
    const float *d_weights, *d_scores; /* NULL: 0 */
    float *d_logits;
    int accumulate; /* d_logits is added to */
    ffn_moe_routing_t routing; /* its ids are read */
    double *scale_sums;    /* [experts]: the derivatives by the expert scale are added. NULL: not wanted */
    double *scale_partial; /* [ROUTE_CHUNKS, experts] for it */
} router_backward_t;

/* The same bits for any number of threads. */
void ffni_route_backward(ffn_context_t *context, const router_backward_t *backward);

/* The derivatives by a row of logits into float32. */
void ffni_derivatives_put(int64_t n, float *out, const double *d, int accumulate);

/* Those of a row whose weights are no numbers. */
void ffni_derivatives_void(int64_t n, double *d);

#endif
