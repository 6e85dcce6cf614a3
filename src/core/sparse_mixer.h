/* SPDX-License-Identifier: MIT
 * SparseMixer: two choices, each weighed among the experts near it. All arguments are checked. */
#ifndef FFNI_SPARSE_MIXER_H
#define FFNI_SPARSE_MIXER_H

#include "core/context.h"

void ffni_sparse_mixer(ffn_context_t *context, double jitter_eps, const float *logits, const ffn_moe_routing_t *routing);

/* The same with choices drawn, and weights cut to a third at random. */
void ffni_sparse_mixer_sample(ffn_context_t *context, const ffn_moe_noise_t *noise, double jitter_eps, const float *logits,
                              const ffn_moe_routing_t *routing);

/* d_logits [tokens, experts], written or added to, from d_weights [tokens, 2]. Of the routing the ids are read. */
void ffni_sparse_mixer_backward(ffn_context_t *context, double jitter_eps, const float *logits, const ffn_moe_routing_t *routing,
                                const float *d_weights, float *d_logits, int accumulate);

#endif
