/* SPDX-License-Identifier: MIT
 * The router's pipeline backwards, one row after the other, in float64: scale, normalise, weight, score. Which experts were chosen is a constant. */
#include "core/routing_backward.h"

#include "base/checked.h"
#include "core/parallel.h"
#include "core/routing.h"
#include "core/scores.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* As in routing.c. */
enum { WORK_PER_EXPERT = 8 };

/* The slots of a row that hold experts. */
typedef struct chosen {
    int64_t count;
    int32_t ids[FFN_MOE_EXPERTS_MOST];
    double w[FFN_MOE_EXPERTS_MOST]; /* before they are normalised */
    double d[FFN_MOE_EXPERTS_MOST]; /* derivatives: by the weights in the end, then by what they were made of */
} chosen_t;

/* ----------------------------------------------------------------- Normalise */

/* NORM(w), and its derivative by each w. Where |w|^p has none, at 0, it is 0; of equal largest ones the first counts. */
static double norm_and_slopes(const ffn_moe_router_options_t *options, const chosen_t *chosen, double *slope) {
    double power = (double)options->norm_power, sum = 0;
    int64_t largest = 0;
    for (int64_t i = 0; i < chosen->count; i++) {
        double size = fabs(chosen->w[i]);
        if (size > fabs(chosen->w[largest])) largest = i;
        sum += options->normalise == FFN_MOE_NORMALISE_SUM ? chosen->w[i] : pow(size, power);
        slope[i] = 1;
    }
    if (options->normalise == FFN_MOE_NORMALISE_SUM) return sum;
    double norm = isinf(power) ? fabs(chosen->w[largest]) : pow(sum, 1 / power);
    for (int64_t i = 0; i < chosen->count; i++) {
        double ratio = fabs(chosen->w[i]) / norm, size = isinf(power) ? i == largest : ratio > 0 ? pow(ratio, power - 1) : 0;
        slope[i] = copysign(size, chosen->w[i]);
    }
    return norm;
}

/* From w / D to w, D = max(NORM(w) + eps_added, eps_least), which is a constant where eps_least is the larger. `w` becomes w / D. */
static void normalise_back(const ffn_moe_router_options_t *options, chosen_t *chosen) {
    double slope[FFN_MOE_EXPERTS_MOST], along = 0;
    double norm = norm_and_slopes(options, chosen, slope) + (double)options->eps_added, least = (double)options->eps_least;
    int is_constant = norm < least;
    if (is_constant) norm = least;
    for (int64_t i = 0; i < chosen->count; i++) {
        chosen->w[i] /= norm;
        along += chosen->d[i] * chosen->w[i];
    }
    for (int64_t i = 0; i < chosen->count; i++) chosen->d[i] = (chosen->d[i] - (is_constant ? 0 : along * slope[i])) / norm;
}

/* -------------------------------------------------------------------- Weight */

static void take_chosen(const router_backward_t *b, int64_t token, const float *logits, const double *scores, chosen_t *chosen) {
    const int64_t top_k = b->routing.top_k;
    float z[FFN_MOE_EXPERTS_MOST];
    chosen->count = 0;
    for (int64_t slot = token * top_k; b->d_weights && slot < (token + 1) * top_k; slot++) {
        int32_t id = b->routing.ids[slot];
        if (id == FFN_MOE_NO_EXPERT) continue;
        chosen->ids[chosen->count] = id;
        chosen->d[chosen->count] = (double)b->d_weights[slot];
        z[chosen->count++] = logits[id];
    }
    if (b->options.weight == FFN_MOE_WEIGHT_SOFTMAX && chosen->count) ffni_softmax(chosen->count, chosen->w, z);
    for (int64_t i = 0; b->options.weight != FFN_MOE_WEIGHT_SOFTMAX && i < chosen->count; i++)
        chosen->w[i] = b->options.weight == FFN_MOE_WEIGHT_SIGMOID ? ffni_sigmoid((double)z[i]) : scores[chosen->ids[i]];
}

/* The derivatives by the weights, to those by what the weights were made of: scores, to d_scores, or logits, to d_logits. */
static void weigh_back(const router_backward_t *b, const float *logits, chosen_t *chosen, double *sums, double *d_scores, double *d_logits) {
    double raw[FFN_MOE_EXPERTS_MOST], by_weight[FFN_MOE_EXPERTS_MOST], scale = (double)b->options.scale;
    memcpy(raw, chosen->w, (size_t)chosen->count * sizeof *raw);
    for (int64_t i = 0; i < chosen->count; i++) {
        by_weight[i] = chosen->d[i];
        chosen->d[i] *= b->expert_scale ? scale * (double)b->expert_scale[chosen->ids[i]] : scale;
    }
    if (b->options.normalise != FFN_MOE_NORMALISE_NONE && chosen->count) normalise_back(&b->options, chosen);
    for (int64_t i = 0; sums && i < chosen->count; i++) sums[chosen->ids[i]] += by_weight[i] * scale * chosen->w[i];
    if (b->options.weight == FFN_MOE_WEIGHT_SOFTMAX) ffni_softmax_back(chosen->count, chosen->d, raw);
    for (int64_t i = 0; i < chosen->count; i++) {
        int32_t id = chosen->ids[i];
        if (b->options.weight == FFN_MOE_WEIGHT_SCORE)
            d_scores[id] += chosen->d[i];
        else
            d_logits[id] += b->options.weight == FFN_MOE_WEIGHT_SIGMOID ? chosen->d[i] * ffni_sigmoid_slope((double)logits[id]) : chosen->d[i];
    }
}

/* ------------------------------------------------------------------- The row */

void ffni_derivatives_put(int64_t n, float *out, const double *d, int accumulate) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)(accumulate ? (double)out[i] + d[i] : d[i]);
}

void ffni_derivatives_void(int64_t n, double *d) {
    for (int64_t i = 0; i < n; i++) d[i] = NAN;
}

/* d[e]: by logit e. */
static void row_back(const router_backward_t *b, int64_t token, double *sums, double *d) {
    int64_t experts = b->routing.experts;
    const float *logits = b->logits + token * experts;
    double s[FFN_MOE_EXPERTS_MOST], d_scores[FFN_MOE_EXPERTS_MOST];
    chosen_t chosen;
    int by_scores = b->d_scores || b->options.weight == FFN_MOE_WEIGHT_SCORE;
    ffni_scores_exact(b->options.score, experts, s, logits);
    take_chosen(b, token, logits, s, &chosen);
    if (ffni_logits_are_void(experts, logits) || (b->options.score == FFN_MOE_SCORE_SOFTMAX && isnan(s[0]))) {
        for (int64_t i = 0; sums && i < chosen.count; i++) sums[chosen.ids[i]] = NAN;
        ffni_derivatives_void(experts, d);
        return;
    }
    for (int64_t i = 0; i < experts; i++) d_scores[i] = b->d_scores ? (double)b->d_scores[token * experts + i] : 0;
    weigh_back(b, logits, &chosen, sums, d_scores, d);
    if (!by_scores) return;
    ffni_scores_back(b->options.score, experts, d_scores, s, logits);
    for (int64_t i = 0; i < experts; i++) d[i] += d_scores[i];
}

typedef struct chunks {
    const router_backward_t *backward;
    int64_t first_token;
} chunks_t;

static void route_chunks_back(void *data, int64_t begin, int64_t end) {
    const chunks_t *chunks = data;
    const router_backward_t *b = chunks->backward;
    int64_t experts = b->routing.experts;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        double *sums = b->scale_sums ? b->scale_partial + chunk * experts : NULL;
        int64_t first = chunks->first_token + chunk * ROUTE_CHUNK, last = minimum(first + ROUTE_CHUNK, b->routing.tokens);
        if (sums) memset(sums, 0, (size_t)experts * sizeof *sums);
        for (int64_t token = first; token < last; token++) {
            double d[FFN_MOE_EXPERTS_MOST] = {0};
            if (ffni_routing_counts(&b->routing, token)) row_back(b, token, sums, d);
            ffni_derivatives_put(experts, b->d_logits + token * experts, d, b->accumulate);
        }
    }
}

void ffni_route_backward(ffn_context_t *context, const router_backward_t *backward) {
    int64_t tokens = backward->routing.tokens, experts = backward->routing.experts;
    chunks_t chunks = {.backward = backward};
    for (; chunks.first_token < tokens; chunks.first_token += ROUTE_CHUNKS * ROUTE_CHUNK) {
        int64_t count = minimum(ROUTE_CHUNKS, (tokens - chunks.first_token - 1) / ROUTE_CHUNK + 1);
        ffni_parallel_rows(context, count, ROUTE_CHUNK * experts * WORK_PER_EXPERT, route_chunks_back, &chunks);
        for (int64_t i = 0; backward->scale_sums && i < count * experts; i++) backward->scale_sums[i % experts] += backward->scale_partial[i];
    }
}
