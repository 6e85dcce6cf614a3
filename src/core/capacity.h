/* SPDX-License-Identifier: MIT
 * Experts with a capacity: dropping what is beyond it, and experts that choose their tokens. All arguments are checked. */
#ifndef FFNI_CAPACITY_H
#define FFNI_CAPACITY_H

#include <ffn/ffn.h>

#include "base/arena.h"
#include "core/ranking.h"

typedef struct capacity_scratch {
    ranked_t *ranked[2];
    unsigned char *chosen; /* of expert choice: [tokens, experts] */
} capacity_scratch_t;

/* Takes what ffni_limit needs for a routing of that many tokens and slots. */
capacity_scratch_t ffni_limit_lay_out(const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing, arena_t *arena);
void ffni_limit(const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing, const capacity_scratch_t *scratch);

/* Places of an expert for a group of that many tokens. */
int64_t ffni_capacity_of(const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing, int64_t tokens);

/* Expert choice: memory; then the choices of each group of tokens; then the slots. FFN_INVALID: more experts choose a token than it has slots. */
capacity_scratch_t ffni_expert_choice_lay_out(int64_t group_tokens, const ffn_moe_routing_t *routing, arena_t *arena);
void ffni_expert_choice_rank(int64_t capacity, int64_t begin, int64_t tokens, const float *scores, const ffn_moe_routing_t *routing,
                             const capacity_scratch_t *scratch);
ffn_status_t ffni_expert_choice_fill(const float *scores, const ffn_moe_routing_t *routing, const capacity_scratch_t *scratch);

#endif
