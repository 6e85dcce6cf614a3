/* SPDX-License-Identifier: MIT
 *
 * What published families make of a token's logits, in float64, each from its own formula.
 */
#ifndef FFN_TEST_IO_MOE_RULES_H
#define FFN_TEST_IO_MOE_RULES_H

#include "io/support/moe_file.h"

moe_rule_fn rule_softmax;            /* p of the top k: Jamba, Qwen, OLMoE without norm_topk_prob, Switch */
moe_rule_fn rule_softmax_normalised; /* divided by their sum: Mixtral */
moe_rule_fn rule_softmax_scaled;     /* p times 16, of 3 experts in the best 2 of 4 groups by their largest: DeepSeek-V2 */
moe_rule_fn rule_softmax_twice;      /* p times 2.5, no groups: DeepSeek-V2, greedy */
moe_rule_fn rule_softmax_biased;     /* the choice by p + bias, p divided by its sum: ERNIE */
moe_rule_fn rule_softmax_power;      /* p divided by the square root of the sum of its squares: DBRX with p = 2 */
moe_rule_fn rule_softmax_eval;       /* p divided by its sum, times 0.8: NLLB */
moe_rule_fn rule_softmax_of_chosen;  /* Granite, gpt-oss */
moe_rule_fn rule_sigmoid_of_chosen;  /* Llama-4 */
moe_rule_fn rule_sigmoid_biased;     /* the choice by sigmoid + bias; the sigmoids divided by their sum: MiniMax-M2, LFM2, AFMoE */
moe_rule_fn rule_sigmoid_groups;     /* likewise in the best 2 of 4 groups by the sum of their two largest, times 2.5: DeepSeek-V3 */
moe_rule_fn rule_sparse_mixer;       /* PhiMoE, threshold 0.01 */

#endif
