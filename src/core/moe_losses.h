/* SPDX-License-Identifier: MIT
 * The losses of routers, and what they are over. All arguments are checked. */
#ifndef FFNI_MOE_LOSSES_H
#define FFNI_MOE_LOSSES_H

#include <ffn/ffn.h>

/* factor * mean over groups of sum_e (n_e / N) P_e, whose derivatives are added to the gradient. group_tokens > 0. */
double ffni_moe_balance(const ffn_moe_balance_t *balance, double factor);

double ffni_moe_loss_z(int64_t tokens, int64_t experts, const float *logits, const uint8_t *mask, double coefficient, float *gradient);

/* counts [groups, experts]; group_tokens > 0. */
void ffni_moe_count(const ffn_moe_routing_t *routing, int64_t group_tokens, int64_t choices, int64_t *counts);

/* Statistics, part of a batch by part. */
typedef struct moe_tally {
    int64_t counts[FFN_MOE_EXPERTS_MOST];
    int64_t tokens, slots, lost_tokens;
    double entropy;
} moe_tally_t;

void ffni_moe_tally_choices(moe_tally_t *tally, const ffn_moe_routing_t *routing);
void ffni_moe_tally_scores(moe_tally_t *tally, const ffn_moe_routing_t *routing, const float *scores);

/* Everything but struct_size. */
void ffni_moe_tally_read(const moe_tally_t *tally, int64_t experts, ffn_moe_statistics_t *statistics);

/* Tokens of rows begin .. end-1 that are no padding. */
int64_t ffni_moe_unmasked(const uint8_t *mask, int64_t begin, int64_t end);

#endif
