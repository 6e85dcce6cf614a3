/* SPDX-License-Identifier: MIT
 *
 * The routing rule of every published family: as options of ffn_moe_route, and as its own formula in float64. A formula here is written from the
 * family's publication alone: softmax or sigmoid, pick the largest again and again, and what the family does to the weights.
 */
#ifndef FFN_TEST_MOE_RULES_H
#define FFN_TEST_MOE_RULES_H

#include "ffn/ffn.h"
#include "support/oracle_mixture.h"

typedef struct moe_family {
    const char *name;
    int experts, top_k, biased, scaled;
    ffn_moe_router_options_t options; /* struct_size 0: another function routes (SparseMixer) */
    oracle_rule_fn *rule;
} moe_family_t;

extern const moe_family_t moe_families[];
extern const int64_t moe_family_count;

/* The family whose name begins so. */
const moe_family_t *moe_family(const char *name);

#endif
