/* SPDX-License-Identifier: MIT
 * Second choices kept or dropped by weight, by chance, or drawn with Gumbel noise. */
#include "core/second_expert.h"

#include "core/choice.h"
#include "core/routing.h"
#include "kernels/philox.h"

#include <math.h>

/* In (0, 1). */
static double uniform(const ffn_moe_second_options_t *options, uint64_t i) {
    philox_t counter = {{(uint32_t)(i / 4), (uint32_t)(i >> 34), (uint32_t)options->stream, PHILOX_SECOND_EXPERT}};
    return ((double)philox(counter, options->seed).word[i % 4] + 0.5) * 0x1p-32;
}

static int is_kept(const ffn_moe_second_options_t *options, uint64_t token, float weight) {
    switch (options->policy) {
    case FFN_MOE_SECOND_THRESHOLD: return weight > options->threshold;
    case FFN_MOE_SECOND_RANDOM: return uniform(options, token) < (double)weight / (double)options->threshold;
    default: return 0;
    }
}

static float noisy(const ffn_moe_second_options_t *options, uint64_t i, float logit) {
    return (float)((double)logit - log(-log(uniform(options, i))));
}

static void sample(const ffn_moe_second_options_t *options, uint64_t token, int64_t experts, const float *logits, int32_t ids[2]) {
    for (int i = 0; i < 2; i++) {
        int32_t key;
        choice_t best = {.ids = &ids[i], .keys = &key, .most = 1};
        for (int32_t expert = 0; expert < experts; expert++) {
            if (i && expert == ids[0]) continue;
            float logit = i ? noisy(options, token * (uint64_t)experts + (uint64_t)expert, logits[expert]) : logits[expert];
            choice_offer(&best, expert, choice_key(logit));
        }
    }
}

void ffni_second_expert(const ffn_moe_second_options_t *options, const float *logits, const ffn_moe_routing_t *routing) {
    for (int64_t token = 0; token < routing->tokens; token++) {
        uint64_t number = (uint64_t)options->first_token + (uint64_t)token;
        int32_t *ids = routing->ids + 2 * token;
        if (ffni_routing_skip(routing, token)) continue;
        if (options->policy == FFN_MOE_SECOND_SAMPLED) {
            sample(options, number, routing->experts, logits + token * routing->experts, ids);
        } else if (!is_kept(options, number, routing->weights[2 * token + 1])) {
            ids[1] = FFN_MOE_NO_EXPERT;
            routing->weights[2 * token + 1] = 0;
        }
    }
}
