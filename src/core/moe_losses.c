/* SPDX-License-Identifier: MIT
 * Balance losses, which are one sum with different factors, counts and groups; and the z-loss. On the calling thread, in float64: beside the experts'
 * products this is little, and the sums are the same whatever the threads. */
#include "core/moe_losses.h"

#include "base/checked.h"
#include "core/scores.h"

#include <math.h>
#include <stddef.h>

/* Added to a row's sum where the row is divided by it, as Megatron does. */
static const double sum_eps = 1e-20;

int64_t ffni_moe_unmasked(const uint8_t *mask, int64_t begin, int64_t end) {
    int64_t count = 0;
    if (!mask) return end - begin;
    for (int64_t token = begin; token < end; token++) count += mask[token] != 0;
    return count;
}

static int is_padding(const uint8_t *mask, int64_t token) {
    return mask && !mask[token];
}

/* What a row is divided by. */
static double divisor(const ffn_moe_balance_t *balance, const float *row) {
    double sum = sum_eps;
    if (!(balance->flags & FFN_MOE_LOSS_NORMALISE)) return 1;
    for (int64_t expert = 0; expert < balance->experts; expert++) sum += (double)row[expert];
    return sum;
}

/* sum_e slope[e] p[e] of a row, where p is the row divided. */
static double row_loss(const ffn_moe_balance_t *balance, const double *slope, const float *row, double by) {
    double sum = 0;
    for (int64_t expert = 0; expert < balance->experts; expert++) sum += slope[expert] * (double)row[expert];
    return sum / by;
}

/* The derivative of slope[e] p[e] / S by p[e] is slope[e] / S; S = sum p takes (sum_e slope[e] p[e]) / S^2 off all of them. */
static void add_gradient(const ffn_moe_balance_t *balance, const double *slope, int64_t token, double loss, double by) {
    float *gradient = balance->gradient + token * balance->experts;
    double common = balance->flags & FFN_MOE_LOSS_NORMALISE ? loss : 0;
    for (int64_t expert = 0; expert < balance->experts; expert++) gradient[expert] += (float)((slope[expert] - common) / by);
}

static double group_loss(const ffn_moe_balance_t *balance, int64_t group, int64_t begin, int64_t end, int64_t n, double factor) {
    double slope[FFN_MOE_EXPERTS_MOST], sum = 0;
    const int64_t *counts = balance->counts + group * balance->experts;
    for (int64_t expert = 0; expert < balance->experts; expert++) slope[expert] = factor * (double)counts[expert] / (double)n / (double)n;
    for (int64_t token = begin; token < end; token++) {
        const float *row = balance->probabilities + token * balance->experts;
        if (is_padding(balance->mask, token)) continue;
        double by = divisor(balance, row), loss = row_loss(balance, slope, row, by);
        if (balance->gradient) add_gradient(balance, slope, token, loss, by);
        sum += loss;
    }
    return sum;
}

double ffni_moe_balance(const ffn_moe_balance_t *balance, double factor) {
    int64_t size = balance->group_tokens, groups = (balance->tokens - 1) / size + 1, counted = 0;
    double sum = 0;
    for (int64_t group = 0; group < groups; group++)
        counted += ffni_moe_unmasked(balance->mask, group * size, minimum(group * size + size, balance->tokens)) > 0;
    for (int64_t group = 0; group < groups; group++) {
        int64_t begin = group * size, end = minimum(begin + size, balance->tokens), n = ffni_moe_unmasked(balance->mask, begin, end);
        if (n) sum += group_loss(balance, group, begin, end, n, factor / (double)counted);
    }
    return sum;
}

double ffni_moe_loss_z(int64_t tokens, int64_t experts, const float *logits, const uint8_t *mask, double coefficient, float *gradient) {
    double factor = coefficient / (double)ffni_moe_unmasked(mask, 0, tokens), sum = 0, p[FFN_MOE_EXPERTS_MOST];
    for (int64_t token = 0; token < tokens; token++) {
        const float *row = logits + token * experts;
        if (is_padding(mask, token)) continue;
        double log_sum = ffni_log_sum_exp(experts, row);
        sum += factor * log_sum * log_sum;
        if (!gradient) continue;
        ffni_softmax(experts, p, row);
        for (int64_t expert = 0; expert < experts; expert++) gradient[token * experts + expert] += (float)(2 * factor * log_sum * p[expert]);
    }
    return sum;
}
