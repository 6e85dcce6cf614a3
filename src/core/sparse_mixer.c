/* SPDX-License-Identifier: MIT
 * SparseMixer, one row of logits after the other, with the largest logits chosen or drawn, and its derivatives, which are those of a softmax over the
 * experts that did not drop out. */
#include "core/sparse_mixer.h"

#include "core/choice.h"
#include "core/moe_noise.h"
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
    const ffn_moe_noise_t *noise; /* NULL: choices are not drawn */
    const ffn_moe_routing_t *routing;
} mixer_t;

/* The experts near the largest logit, whose own comes first, and their softmax. */
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

/* Columns of the random numbers of a choice, and within them. */
enum { COLUMNS_OF_CHOICE = 1 << 16, COLUMN_OF_THIRD = 1 << 15 };

/* The place in `near` of the one drawn. */
static int64_t draw(const mixer_t *mixer, int64_t token, const float *logits, int choice, const near_t *near) {
    int64_t drawn = 0;
    double most = -INFINITY;
    for (int64_t i = 0; i < near->count; i++) {
        double u = ffni_moe_noise_number(mixer->noise, token, choice * COLUMNS_OF_CHOICE + near->ids[i]), noisy = (double)logits[near->ids[i]] - log(-log(u));
        if (noisy > most || (noisy == most && near->ids[i] < near->ids[drawn])) most = noisy, drawn = i;
    }
    return drawn;
}

/* Heun's method of third order takes the slopes at the whole way, with weight 1/4, and at a third of it, with weight 3/4. */
static double part_of_way(const mixer_t *mixer, int64_t token, int choice, int64_t drawn) {
    if (drawn == 0 || ffni_moe_noise_number(mixer->noise, token, choice * COLUMNS_OF_CHOICE + COLUMN_OF_THIRD) < 0.25) return 1;
    return 1.0 / 3;
}

/* Chooses among those near; the choice's weight. */
static double choose(const mixer_t *mixer, int64_t token, const float *logits, int choice, const near_t *near) {
    int is_void = ffni_logits_are_void(mixer->routing->experts, logits);
    int64_t chosen = mixer->noise && !is_void ? draw(mixer, token, logits, choice, near) : 0;
    mixer->routing->ids[2 * token + choice] = near->ids[chosen];
    if (is_void) return NAN;
    return mixer->noise ? near->p[chosen] * part_of_way(mixer, token, choice, chosen) : near->p[chosen];
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
            routing->weights[2 * token + i] = (float)choose(mixer, token, logits, i, &near);
        }
    }
}

void ffni_sparse_mixer(ffn_context_t *context, double jitter_eps, const float *logits, const ffn_moe_routing_t *routing) {
    mixer_t mixer = {.threshold = 2 * jitter_eps, .logits = logits, .routing = routing};
    ffni_parallel_rows(context, routing->tokens, routing->experts * WORK_PER_EXPERT, mix_rows, &mixer);
}

void ffni_sparse_mixer_sample(ffn_context_t *context, const ffn_moe_noise_t *noise, double jitter_eps, const float *logits,
                              const ffn_moe_routing_t *routing) {
    mixer_t mixer = {.threshold = 2 * jitter_eps, .logits = logits, .noise = noise, .routing = routing};
    ffni_parallel_rows(context, routing->tokens, routing->experts * WORK_PER_EXPERT, mix_rows, &mixer);
}

/* ------------------------------------------------------------------ Backward */

/* The place of an expert among those near; `count`: it is not among them. */
static int64_t place_of(const near_t *near, int32_t id) {
    int64_t place = 0;
    while (place < near->count && near->ids[place] != id) place++;
    return place;
}

/* d[e] += the derivative of the row's weights by logit e, times those by the weights. The second choice is among what the first one left, whether or
 * not the first one was dropped later: it had the largest logit then. */
static void mix_back(const mixer_t *mixer, int64_t token, const float *logits, double *d) {
    int32_t first = FFN_MOE_NO_EXPERT;
    near_t near;
    for (int i = 0; i < 2; i++) {
        int32_t id = mixer->routing->ids[2 * token + i];
        mix(mixer, logits, first, &near);
        first = id == FFN_MOE_NO_EXPERT ? near.ids[0] : id;
        int64_t place = place_of(&near, id);
        if (place == near.count || near.p[place] == 0) continue;
        double d_weight = (double)mixer->d_weights[2 * token + i];
        for (int64_t j = 0; j < near.count; j++) d[near.ids[j]] += d_weight * near.p[place] * ((j == place) - near.p[j]);
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
