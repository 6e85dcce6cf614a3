/* SPDX-License-Identifier: MIT
 * SparseMixer, one row of logits after the other, and its derivatives, which are those of a softmax over the experts that did not drop out. */
#include "core/sparse_mixer.h"

#include "core/choice.h"
#include "core/parallel.h"
#include "core/routing.h"
#include "core/routing_backward.h"
#include "core/scores.h"

#include <math.h>

/* Work of a row per expert, in the elements that ffni_parallel_rows counts in: two choices and two exponentials. */
enum { WORK_PER_EXPERT = 16 };

typedef struct mixer {
    double threshold; /* 2 jitter_eps */
    const float *logits, *d_weights;
    float *d_logits;
    int accumulate;
    const ffn_moe_routing_t *routing;
} mixer_t;

/* The experts near a choice, which comes first, and their softmax. */
typedef struct near {
    int64_t count;
    int32_t ids[FFN_MOE_EXPERTS_MOST];
    double p[FFN_MOE_EXPERTS_MOST];
} near_t;

/* The largest logit's expert but `without`. */
static int32_t largest(const mixer_t *mixer, const float *logits, int32_t without) {
    int32_t id = 0, key = 0;
    choice_t best = {.ids = &id, .keys = &key, .most = 1};
    for (int32_t expert = 0; expert < mixer->routing->experts; expert++)
        if (expert != without) choice_offer(&best, expert, choice_key(logits[expert]));
    return id;
}

static void mix(const mixer_t *mixer, const float *logits, int32_t without, near_t *near) {
    float z[FFN_MOE_EXPERTS_MOST];
    int32_t id = largest(mixer, logits, without);
    double most = (double)logits[id];
    near->count = 1;
    near->ids[0] = id;
    for (int32_t expert = 0; expert < mixer->routing->experts; expert++) {
        double size = fabs((double)logits[expert]) > most ? fabs((double)logits[expert]) : most;
        int is_far = (most - (double)logits[expert]) / size > mixer->threshold;
        if (expert != without && expert != id && !is_far) near->ids[near->count++] = expert;
    }
    for (int64_t i = 0; i < near->count; i++) z[i] = logits[near->ids[i]];
    ffni_softmax(near->count, near->p, z);
    if (most == -INFINITY) near->p[0] = 0;
}

static void mix_rows(void *data, int64_t begin, int64_t end) {
    const mixer_t *mixer = data;
    const ffn_moe_routing_t *routing = mixer->routing;
    near_t near;
    for (int64_t token = begin; token < end; token++) {
        const float *logits = mixer->logits + token * routing->experts;
        if (ffni_routing_skip(routing, token)) continue;
        for (int i = 0; i < 2; i++) {
            mix(mixer, logits, i ? routing->ids[2 * token] : FFN_MOE_NO_EXPERT, &near);
            routing->ids[2 * token + i] = near.ids[0];
            routing->weights[2 * token + i] = ffni_logits_are_void(routing->experts, logits) ? NAN : (float)near.p[0];
        }
    }
}

void ffni_sparse_mixer(ffn_context_t *context, double jitter_eps, const float *logits, const ffn_moe_routing_t *routing) {
    mixer_t mixer = {.threshold = 2 * jitter_eps, .logits = logits, .routing = routing};
    ffni_parallel_rows(context, routing->tokens, routing->experts * WORK_PER_EXPERT, mix_rows, &mixer);
}

/* ------------------------------------------------------------------ Backward */

/* d[e] += the derivative of the row's weights by logit e, times those by the weights. The second choice is among what the first one left, whether or
 * not the first one was dropped later. */
static void mix_back(const mixer_t *mixer, int64_t token, const float *logits, double *d) {
    int32_t first = FFN_MOE_NO_EXPERT;
    near_t near;
    for (int i = 0; i < 2; i++) {
        mix(mixer, logits, first, &near);
        first = near.ids[0];
        if (mixer->routing->ids[2 * token + i] == FFN_MOE_NO_EXPERT || near.p[0] == 0) continue;
        double d_weight = (double)mixer->d_weights[2 * token + i];
        for (int64_t j = 0; j < near.count; j++) d[near.ids[j]] += d_weight * near.p[0] * ((j == 0) - near.p[j]);
    }
}

static void mix_rows_back(void *data, int64_t begin, int64_t end) {
    const mixer_t *mixer = data;
    int64_t experts = mixer->routing->experts;
    for (int64_t token = begin; token < end; token++) {
        const float *logits = mixer->logits + token * experts;
        double d[FFN_MOE_EXPERTS_MOST] = {0};
        if (ffni_routing_counts(mixer->routing, token)) {
            if (ffni_logits_are_void(experts, logits))
                ffni_derivatives_void(experts, d);
            else
                mix_back(mixer, token, logits, d);
        }
        ffni_derivatives_put(experts, mixer->d_logits + token * experts, d, mixer->accumulate);
    }
}

void ffni_sparse_mixer_backward(ffn_context_t *context, double jitter_eps, const float *logits, const ffn_moe_routing_t *routing,
                                const float *d_weights, float *d_logits, int accumulate) {
    mixer_t mixer = {.threshold = 2 * jitter_eps, .logits = logits, .d_weights = d_weights, .d_logits = d_logits, .accumulate = accumulate,
                     .routing = routing};
    ffni_parallel_rows(context, routing->tokens, routing->experts * WORK_PER_EXPERT, mix_rows_back, &mixer);
}
