/* SPDX-License-Identifier: MIT
 * The losses, counts and statistics of routers: check, then sum. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/moe_losses.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* --------------------------------------------------------- Counts, statistics */

static int64_t groups_of(int64_t tokens, int64_t group_tokens) {
    return group_tokens && tokens ? (tokens - 1) / group_tokens + 1 : !group_tokens;
}

ffn_status_t ffn_moe_count(const ffn_moe_routing_t *given, int64_t group_tokens, int64_t choices, int64_t *counts) {
    ffn_moe_routing_t routing;
    ffn_status_t status = ffni_moe_read_routing(given, &routing);
    if (!status) status = ffni_moe_check_range("group_tokens", group_tokens, 0, INT64_MAX);
    if (!status) status = ffni_moe_check_range("choices", choices, 0, routing.top_k);
    if (status) return status;
    int64_t groups = groups_of(routing.tokens, group_tokens);
    if (!routing.tokens) routing.ids = NULL, routing.mask = NULL;
    const moe_array_t arrays[] = {MOE_IDS(routing, 0), MOE_MASK(routing), {"counts", counts, groups * routing.experts, 8, 1, 1}};
    status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    if (!status) status = ffni_moe_check_ids(&routing);
    if (status) return status;
    if (groups && !routing.tokens) memset(counts, 0, (size_t)routing.experts * sizeof *counts);
    ffni_moe_count(&routing, group_tokens ? group_tokens : maximum(1, routing.tokens), choices ? choices : routing.top_k, counts);
    return FFN_OK;
}

ffn_status_t ffn_moe_statistics(const ffn_moe_routing_t *given, const float *scores, ffn_moe_statistics_t *statistics) {
    ffn_moe_routing_t routing;
    ffn_moe_statistics_t known;
    moe_tally_t tally = {.tokens = 0};
    ffn_status_t status = ffni_moe_read_routing(given, &routing);
    if (!status && routing.tokens) {
        const moe_array_t arrays[] = {MOE_IDS(routing, 0), MOE_MASK(routing), {"scores", scores, routing.tokens * routing.experts, 4, 0, 0}};
        status = ffni_moe_check_arrays(arrays, COUNT(arrays));
        if (!status) status = ffni_moe_check_ids(&routing);
    }
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    ffni_moe_tally_choices(&tally, &routing);
    if (scores) ffni_moe_tally_scores(&tally, &routing, scores);
    ffni_moe_tally_read(&tally, routing.experts, &known);
    fpenv_leave(saved);
    return ffni_struct_write(statistics, &known, sizeof known, "ffn_moe_statistics_t");
}

/* ------------------------------------------------------------ Balance losses */

typedef struct kind {
    const char *name;
    int one_group;     /* over all tokens at once */
    int first_choices; /* counts are of those alone */
    int per_choice;    /* divided by K */
} kind_t;

static ffn_status_t check_coefficient(double coefficient) {
    if (isfinite(coefficient)) return FFN_OK;
    return ffni_fail(FFN_INVALID, "coefficient is %s, must be finite", ffni_number(coefficient).text);
}

static ffn_status_t check_counts(const kind_t *kind, const ffn_moe_balance_t *balance) {
    int64_t size = balance->group_tokens ? balance->group_tokens : balance->tokens, choices = kind->first_choices ? 1 : balance->top_k;
    for (int64_t group = 0; group < groups_of(balance->tokens, size); group++) {
        int64_t begin = group * size, n = ffni_moe_unmasked(balance->mask, begin, minimum(begin + size, balance->tokens)), sum = 0;
        for (int64_t expert = 0; expert < balance->experts; expert++) {
            int64_t count = balance->counts[group * balance->experts + expert];
            if (count < 0 || count > n)
                return ffni_fail(FFN_INVALID, "counts[%" PRId64 "][%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64 ", the group's tokens", group,
                                 expert, count, n);
            sum += count;
        }
        if (sum > choices * n)
            return ffni_fail(FFN_INVALID, "the counts of group %" PRId64 " add up to %" PRId64 ", must be at most %" PRId64 " for the %s loss", group, sum,
                             choices * n, kind->name);
    }
    return FFN_OK;
}

static ffn_status_t check_balance(const kind_t *kind, const ffn_moe_balance_t *balance) {
    if (balance->flags & ~(uint32_t)FFN_MOE_LOSS_NORMALISE)
        return ffni_fail(FFN_INVALID, "flags of the loss is 0x%" PRIx32 ", must be FFN_MOE_LOSS_NORMALISE or 0", balance->flags);
    ffn_status_t status = ffni_moe_check_range("tokens", balance->tokens, 0, MOE_TOKENS_MOST);
    if (!status) status = ffni_moe_check_range("experts", balance->experts, 1, FFN_MOE_EXPERTS_MOST);
    if (!status) status = ffni_moe_check_range("top_k", balance->top_k, 1, balance->experts);
    if (!status) status = ffni_moe_check_range("group_tokens", balance->group_tokens, 0, kind->one_group ? 0 : INT64_MAX);
    if (!status) status = check_coefficient(balance->coefficient);
    return status;
}

static ffn_status_t check_balance_arrays(const ffn_moe_balance_t *balance) {
    int64_t elements = balance->tokens * balance->experts;
    int64_t groups = groups_of(balance->tokens, balance->group_tokens);
    const moe_array_t arrays[] = {
        {"probabilities", balance->probabilities, elements, 4, 1, 0},
        {"counts", balance->counts, groups * balance->experts, 8, 1, 0},
        {"mask", balance->mask, balance->tokens, 1, 0, 0},
        {"gradient", balance->gradient, elements, 4, 0, 1},
    };
    return ffni_moe_check_arrays(arrays, COUNT(arrays));
}

static ffn_status_t balance_loss(const kind_t *kind, const ffn_moe_balance_t *given, double *value) {
    ffn_moe_balance_t balance;
    if (!value) return ffni_fail(FFN_INVALID, "the pointer to the value is NULL");
    *value = 0;
    ffn_status_t status = ffni_struct_read(&balance, sizeof balance, given, "ffn_moe_balance_t");
    fpenv_t saved = fpenv_enter();
    if (!status) status = check_balance(kind, &balance);
    if (status || !balance.tokens) goto cleanup;
    status = check_balance_arrays(&balance);
    if (!status) status = check_counts(kind, &balance);
    if (status) goto cleanup;
    double factor = (balance.coefficient == 0 ? 1 : balance.coefficient) * (double)balance.experts;
    if (kind->per_choice) factor /= (double)balance.top_k;
    if (!balance.group_tokens) balance.group_tokens = balance.tokens;
    *value = ffni_moe_balance(&balance, factor);
cleanup:
    fpenv_leave(saved);
    return status;
}

ffn_status_t ffn_moe_loss_switch(const ffn_moe_balance_t *balance, double *value) {
    static const kind_t kind = {.name = "Switch"};
    return balance_loss(&kind, balance, value);
}

ffn_status_t ffn_moe_loss_gshard(const ffn_moe_balance_t *balance, double *value) {
    static const kind_t kind = {.name = "GShard", .first_choices = 1};
    return balance_loss(&kind, balance, value);
}

ffn_status_t ffn_moe_loss_huggingface(const ffn_moe_balance_t *balance, double *value) {
    static const kind_t kind = {.name = "Hugging Face", .one_group = 1};
    return balance_loss(&kind, balance, value);
}

ffn_status_t ffn_moe_loss_megatron(const ffn_moe_balance_t *balance, double *value) {
    static const kind_t kind = {.name = "Megatron", .one_group = 1, .per_choice = 1};
    return balance_loss(&kind, balance, value);
}

ffn_status_t ffn_moe_loss_deepseek(const ffn_moe_balance_t *balance, double *value) {
    static const kind_t kind = {.name = "DeepSeek", .per_choice = 1};
    return balance_loss(&kind, balance, value);
}

/* ------------------------------------------------------------ z-loss and bias */

ffn_status_t ffn_moe_loss_z(int64_t tokens, int64_t experts, const float *logits, const uint8_t *mask, double coefficient, float *gradient,
                            double *value) {
    if (!value) return ffni_fail(FFN_INVALID, "the pointer to the value is NULL");
    *value = 0;
    ffn_status_t status = ffni_moe_check_range("tokens", tokens, 0, MOE_TOKENS_MOST);
    if (!status) status = ffni_moe_check_range("experts", experts, 1, FFN_MOE_EXPERTS_MOST);
    if (!status) status = check_coefficient(coefficient);
    if (status || !tokens) return status;
    const moe_array_t arrays[] = {
        {"logits", logits, tokens * experts, 4, 1, 0}, {"mask", mask, tokens, 1, 0, 0}, {"gradient", gradient, tokens * experts, 4, 0, 1}};
    status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    *value = ffni_moe_loss_z(tokens, experts, logits, mask, coefficient == 0 ? 1 : coefficient, gradient);
    fpenv_leave(saved);
    return FFN_OK;
}

ffn_status_t ffn_moe_update_bias(int64_t experts, const int64_t *counts, float rate, float *selection_bias) {
    ffn_status_t status = ffni_moe_check_range("experts", experts, 1, FFN_MOE_EXPERTS_MOST);
    int64_t sum = 0;
    if (status) return status;
    if (!isfinite(rate) || rate < 0) return ffni_fail(FFN_INVALID, "rate is %s, must be finite and at least 0", ffni_number((double)rate).text);
    const moe_array_t arrays[] = {{"counts", counts, experts, 8, 1, 0}, {"selection_bias", selection_bias, experts, 4, 1, 1}};
    status = ffni_moe_check_arrays(arrays, COUNT(arrays));
    for (int64_t expert = 0; !status && expert < experts; expert++) {
        status = ffni_moe_check_range("a count", counts[expert], 0, INT64_MAX / FFN_MOE_EXPERTS_MOST / FFN_MOE_EXPERTS_MOST);
        if (!status) sum += counts[expert];
    }
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    for (int64_t expert = 0; expert < experts; expert++) {
        int64_t below = sum - counts[expert] * experts; /* E times the mean minus the count: no division to round */
        if (below != 0) selection_bias[expert] += below > 0 ? rate : -rate;
    }
    fpenv_leave(saved);
    return FFN_OK;
}
