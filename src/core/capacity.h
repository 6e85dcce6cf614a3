/* SPDX-License-Identifier: MIT
 * Experts with a capacity: dropping what is beyond it, and experts that choose their tokens. All arguments are checked. */
#ifndef FFNI_CAPACITY_H
#define FFNI_CAPACITY_H

#include "core/context.h"

/* FFN_NO_MEMORY: scratch memory. */
ffn_status_t ffni_limit(ffn_context_t *context, const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing);

/* FFN_INVALID: more experts choose a token than it has slots. group_tokens > 0 where there are tokens. */
ffn_status_t ffni_expert_choice(ffn_context_t *context, int64_t capacity, int64_t group_tokens, const float *scores,
                                const ffn_moe_routing_t *routing);

#endif
