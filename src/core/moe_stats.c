/* SPDX-License-Identifier: MIT
 * What a mixture counts of its hidden units: each expert over the rows that it computed, the shared ones over the tokens that are no padding. */
#include "core/moe.h"

#include <stddef.h>

static int64_t network_of(const ffn_stats_t *stats, int64_t expert) {
    return expert == MOE_SHARED ? stats->experts : expert;
}

const uint8_t *ffni_moe_counted(const moe_pass_t *pass, int64_t expert, int64_t first) {
    const uint8_t *mask = pass->forward->moe->mask;
    return mask && expert == MOE_SHARED ? mask + pass->begin + first : NULL;
}

void ffni_moe_add_counts(const moe_pass_t *pass, int64_t expert, int64_t column, int64_t columns, const counts_t *counts) {
    ffn_stats_t *stats = pass->forward->stats;
    ffni_stats_add(stats, ffni_stats_first_unit(stats, network_of(stats, expert)) + column, columns, counts);
}

void ffni_moe_count_positions(const moe_pass_t *pass) {
    ffn_stats_t *stats = pass->forward->stats;
    const int64_t *starts = pass->memory.starts;
    for (int64_t expert = 0; expert < stats->experts; expert++) stats->positions[expert] += starts[expert + 1] - starts[expert];
    if (stats->d_shared) stats->positions[stats->experts] += ffni_moe_unmasked(pass->forward->moe->mask, pass->begin, pass->begin + pass->tokens);
}
