/* SPDX-License-Identifier: MIT
 *
 * The backward pass of routing, against Jacobians in float64 and against central differences of the formulas: every score, weight and normalisation,
 * dropped choices, padding, rows that are no numbers; the same bits for any split and any threads; and what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/random.h"
#include "support/test.h"

enum { E = 7, K = 4, T = 9, NONE = FFN_MOE_NO_EXPERT };

#define ROUTER(...) {.struct_size = sizeof(ffn_moe_router_options_t), __VA_ARGS__}

static ffn_moe_routing_t routing_of(int64_t tokens, int64_t experts, int64_t top_k, int32_t *ids, float *weights)
{
    return (ffn_moe_routing_t){.struct_size = sizeof(ffn_moe_routing_t), .tokens = tokens, .experts = experts, .top_k = top_k, .ids = ids,
                               .weights = weights};
}

/* -------------------------------------------------------- The formulas, in float64 */

static double sigmoid(double z)
{
    return z < 0 ? exp(z) / (1 + exp(z)) : 1 / (1 + exp(-z));
}

static void scores_of(uint32_t score, const double *z, double *s)
{
    double sum = 0, most = z[0];
    for (int e = 1; e < E; e++) most = fmax(most, z[e]);
    for (int e = 0; e < E; e++) sum += exp(z[e] - most);
    for (int e = 0; e < E; e++) {
        if (score == FFN_MOE_SCORE_SOFTMAX) s[e] = exp(z[e] - most) / sum;
        if (score == FFN_MOE_SCORE_SIGMOID) s[e] = sigmoid(z[e]);
        if (score == FFN_MOE_SCORE_SQRT_SOFTPLUS) s[e] = sqrt(log1p(exp(-fabs(z[e]))) + fmax(z[e], 0));
        if (score == FFN_MOE_SCORE_NONE) s[e] = z[e];
    }
}

/* Weights of the slots before they are normalised; 0 for those without an expert. */
static void raw_of(const ffn_moe_router_options_t *o, const double *z, const double *s, const int32_t *ids, double *w)
{
    double sum = 0;
    for (int k = 0; k < K; k++)
        if (ids[k] != NONE) sum += exp(z[ids[k]]);
    for (int k = 0; k < K; k++) {
        if (ids[k] == NONE) w[k] = 0;
        else if (o->weight == FFN_MOE_WEIGHT_SOFTMAX) w[k] = exp(z[ids[k]]) / sum;
        else w[k] = o->weight == FFN_MOE_WEIGHT_SIGMOID ? sigmoid(z[ids[k]]) : s[ids[k]];
    }
}

static double norm_of(const ffn_moe_router_options_t *o, const double *w)
{
    double sum = 0, most = 0;
    for (int k = 0; k < K; k++) {
        most = fmax(most, fabs(w[k]));
        sum += o->normalise == FFN_MOE_NORMALISE_SUM ? w[k] : w[k] == 0 ? 0 : pow(fabs(w[k]), (double)o->norm_power);
    }
    if (o->normalise == FFN_MOE_NORMALISE_SUM) return sum;
    return isinf(o->norm_power) ? most : pow(sum, 1 / (double)o->norm_power);
}

static double loss_of(const ffn_moe_router_options_t *o, const double *z, const double *scale, const int32_t *ids, const float *d_weights,
                      const float *d_scores)
{
    double s[E], w[K], loss = 0;
    scores_of(o->score, z, s);
    raw_of(o, z, s, ids, w);
    const double norm = o->normalise ? fmax(norm_of(o, w) + (double)o->eps_added, (double)o->eps_least) : 1;
    for (int e = 0; d_scores && e < E; e++) loss += (double)d_scores[e] * s[e];
    for (int k = 0; d_weights && k < K; k++)
        if (ids[k] != NONE) loss += (double)d_weights[k] * w[k] / norm * (o->scale != 0 ? (double)o->scale : 1) * (scale ? scale[ids[k]] : 1);
    return loss;
}

/* The derivatives as products of whole Jacobians, and the sums of their absolute terms. */
static void jacobians(const ffn_moe_router_options_t *o, const double *z, const double *scale, const int32_t *ids, const float *d_weights,
                      const float *d_scores, double *d, double *size)
{
    double s[E], w[K], by_score[E][E] = {{0}}, by_raw[K][K] = {{0}}, raw_by_z[K][E] = {{0}}, slope[K] = {0};
    scores_of(o->score, z, s);
    raw_of(o, z, s, ids, w);
    for (int a = 0; a < E; a++)
        for (int b = 0; b < E; b++) {
            if (o->score == FFN_MOE_SCORE_SOFTMAX) by_score[a][b] = s[a] * ((a == b) - s[b]);
            else if (a == b && o->score == FFN_MOE_SCORE_SIGMOID) by_score[a][a] = s[a] * (1 - s[a]);
            else if (a == b && o->score == FFN_MOE_SCORE_SQRT_SOFTPLUS) by_score[a][a] = sigmoid(z[a]) / (2 * s[a]);
            else if (a == b) by_score[a][a] = 1;
        }
    for (int k = 0; k < K; k++)
        for (int e = 0; ids[k] != NONE && e < E; e++) {
            if (o->weight == FFN_MOE_WEIGHT_SCORE) raw_by_z[k][e] = by_score[ids[k]][e];
            if (o->weight == FFN_MOE_WEIGHT_SIGMOID) raw_by_z[k][e] = e == ids[k] ? w[k] * (1 - w[k]) : 0;
            for (int j = 0; o->weight == FFN_MOE_WEIGHT_SOFTMAX && j < K; j++)
                if (ids[j] == e) raw_by_z[k][e] = w[k] * ((j == k) - w[j]);
        }
    const double norm = norm_of(o, w), least = (double)o->eps_least;
    const double by = o->normalise ? fmax(norm + (double)o->eps_added, least) : 1;
    for (int k = 0; o->normalise && norm + (double)o->eps_added >= least && k < K; k++) {
        if (o->normalise == FFN_MOE_NORMALISE_SUM) slope[k] = 1;
        else if (isinf(o->norm_power)) slope[k] = fabs(w[k]) == norm ? copysign(1, w[k]) : 0;
        else if (w[k] != 0) slope[k] = copysign(pow(fabs(w[k]), (double)o->norm_power - 1), w[k]) * pow(norm, 1 - (double)o->norm_power);
    }
    for (int a = 0; a < K; a++)
        for (int b = 0; b < K; b++) by_raw[a][b] = (a == b) / by - w[a] * slope[b] / (by * by);
    for (int e = 0; e < E; e++) {
        d[e] = size[e] = 0;
        for (int a = 0; d_scores && a < E; a++) {
            d[e] += (double)d_scores[a] * by_score[a][e];
            size[e] += fabs((double)d_scores[a]) * (o->score == FFN_MOE_SCORE_SOFTMAX ? s[a] : fabs(by_score[a][e]));
        }
        for (int a = 0; d_weights && a < K; a++)
            for (int b = 0; ids[a] != NONE && b < K; b++) {
                const double term = (double)d_weights[a] * (o->scale != 0 ? (double)o->scale : 1) * (scale ? scale[ids[a]] : 1) * by_raw[a][b];
                d[e] += ids[b] == NONE ? 0 : term * raw_by_z[b][e];
                size[e] += ids[b] == NONE ? 0 : fabs(term) * (fabs(raw_by_z[b][e]) + fabs(w[b]));
            }
    }
}

/* ------------------------------------------------------------------- The routers */

static const ffn_moe_router_options_t routers[] = {
    ROUTER(.score = FFN_MOE_SCORE_SOFTMAX),                                                                                      /* Switch, Jamba */
    ROUTER(.normalise = FFN_MOE_NORMALISE_SUM),                                                                                  /* Mixtral */
    ROUTER(.scale = 16),                                                                                                         /* DeepSeek-V2 */
    ROUTER(.score = FFN_MOE_SCORE_SIGMOID, .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f, .scale = 2.5f),              /* DeepSeek-V3 */
    ROUTER(.score = FFN_MOE_SCORE_SIGMOID, .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 0.5f),                               /* a large one's */
    ROUTER(.score = FFN_MOE_SCORE_SIGMOID),
    ROUTER(.score = FFN_MOE_SCORE_SQRT_SOFTPLUS, .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f, .scale = 1.5f),        /* DeepSeek-V4 */
    ROUTER(.score = FFN_MOE_SCORE_SQRT_SOFTPLUS),
    ROUTER(.score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX),                                                       /* gpt-oss */
    ROUTER(.score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SIGMOID),                                                       /* Llama-4 */
    ROUTER(.score = FFN_MOE_SCORE_NONE),
    ROUTER(.score = FFN_MOE_SCORE_NONE, .normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 2, .eps_added = 0.25f),
    ROUTER(.normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 1),                                                               /* DBRX */
    ROUTER(.normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 3, .scale = -2),
    ROUTER(.normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 0.5f),
    ROUTER(.score = FFN_MOE_SCORE_SIGMOID, .normalise = FFN_MOE_NORMALISE_POWER, .norm_power = INFINITY),
    ROUTER(.normalise = FFN_MOE_NORMALISE_SUM, .eps_least = 1e-12f),                                                             /* ERNIE-4.5 */
    ROUTER(.normalise = FFN_MOE_NORMALISE_SUM, .eps_least = 2),                                                                  /* in force */
    ROUTER(.score = FFN_MOE_SCORE_SOFTMAX, .weight = FFN_MOE_WEIGHT_SOFTMAX, .normalise = FFN_MOE_NORMALISE_POWER, .norm_power = 2),
    ROUTER(.score = FFN_MOE_SCORE_SQRT_SOFTPLUS, .weight = FFN_MOE_WEIGHT_SIGMOID, .normalise = FFN_MOE_NORMALISE_SUM),
};

/* Distinct ids, of which every fourth is dropped; one token has lost all. */
static void make_ids(rng_t *rng, int32_t *ids)
{
    for (int t = 0; t < T; t++) {
        int32_t all[E];
        for (int e = 0; e < E; e++) all[e] = e;
        for (int k = 0; k < K; k++) {
            const int at = k + (int)rng_below(rng, E - k);
            const int32_t id = all[at];
            all[at] = all[k];
            all[k] = id;
            ids[t * K + k] = t == 4 || (t > 4 && rng_below(rng, 4) == 0) ? NONE : id;
        }
    }
}

typedef struct row_case {
    float logits[T * E], d_weights[T * K], d_scores[T * E], expert_scale[E];
    int32_t ids[T * K];
} row_case_t;

static void make_case(row_case_t *is, uint64_t seed, const ffn_moe_router_options_t *options)
{
    rng_t rng = rng_make(seed);
    rng_fill_normal(&rng, is->logits, T * E);
    rng_fill_normal(&rng, is->d_weights, T * K);
    rng_fill_normal(&rng, is->d_scores, T * E);
    rng_fill_normal(&rng, is->expert_scale, E);
    make_ids(&rng, is->ids);
    for (int i = 0; i < T * E; i++) {
        is->logits[i] *= 2;
        if (options->score == FFN_MOE_SCORE_NONE && fabsf(is->logits[i]) < 0.1f) is->logits[i] = 0.5f; /* |w| has a kink at 0 */
    }
    for (int i = 0; i < T * K; i++)
        if (is->ids[i] == NONE) is->d_weights[i] = NAN; /* not looked at */
}

static void check_row(const ffn_moe_router_options_t *options, const row_case_t *is, int t, int scaled, const float *d_weights, const float *d_scores,
                      const float *got, const char *what)
{
    double z[E], scale[E], d[E], size[E];
    for (int e = 0; e < E; e++) z[e] = (double)is->logits[t * E + e], scale[e] = (double)is->expert_scale[e];
    jacobians(options, z, scaled ? scale : NULL, is->ids + t * K, d_weights, d_scores, d, size);
    for (int e = 0; e < E; e++) {
        const double at = z[e], step = 1e-5;
        z[e] = at + step;
        const double above = loss_of(options, z, scaled ? scale : NULL, is->ids + t * K, d_weights, d_scores);
        z[e] = at - step;
        const double slope = (above - loss_of(options, z, scaled ? scale : NULL, is->ids + t * K, d_weights, d_scores)) / (2 * step);
        z[e] = at;
        if (!(fabs(slope - d[e]) <= 1e-7 * (size[e] + 1))) fail_msg("%s, row %d: Jacobian %.12g, difference %.12g", what, t, d[e], slope);
        if (!(fabs((double)got[e] - d[e]) <= 0x1p-24 * fabs(d[e]) + 1e-10 * size[e] + 1e-30))
            fail_msg("%s, row %d, logit %d: expected %.12g, got %.12g", what, t, e, d[e], (double)got[e]);
    }
}

static void every_router_has_its_derivatives(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(routers); c++)
        for (int variant = 0; variant < 8; variant++) {
            const int scaled = variant & 1, by_weights = variant != 6 && variant != 7, by_scores = variant >= 4;
            row_case_t is;
            float d_logits[T * E], weights[T * K];
            char what[64];
            make_case(&is, test_seed() + (uint64_t)(c * 8 + variant), &routers[c]);
            memset(d_logits, 0xff, sizeof d_logits);
            const ffn_moe_routing_t routing = routing_of(T, E, K, is.ids, variant & 2 ? weights : NULL);
            const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = by_weights ? is.d_weights : NULL,
                                                         .d_scores = by_scores ? is.d_scores : NULL, .d_logits = d_logits};
            assert_ok(ffn_moe_route_backward(NULL, &routers[c], is.logits, scaled ? is.expert_scale : NULL, &routing, &gradients));
            snprintf(what, sizeof what, "router %d, variant %d", (int)c, variant);
            for (int t = 0; t < T; t++)
                check_row(&routers[c], &is, t, scaled, by_weights ? is.d_weights + t * K : NULL, by_scores ? is.d_scores + t * E : NULL,
                          d_logits + t * E, what);
        }
}

static void the_expert_scale_has_its_derivative(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(routers); c++) {
        row_case_t is;
        float d_logits[T * E], d_scale[E], added[E];
        double expected[E] = {0}, size[E] = {0};
        make_case(&is, test_seed() + 900 + (uint64_t)c, &routers[c]);
        const ffn_moe_routing_t routing = routing_of(T, E, K, is.ids, NULL);
        ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = is.d_weights, .d_logits = d_logits, .d_expert_scale = d_scale};
        memset(d_scale, 0xff, sizeof d_scale);
        assert_ok(ffn_moe_route_backward(NULL, &routers[c], is.logits, is.expert_scale, &routing, &gradients));
        for (int t = 0; t < T; t++) {
            double z[E], one[E];
            for (int e = 0; e < E; e++) z[e] = (double)is.logits[t * E + e];
            for (int e = 0; e < E; e++) { /* the weights are linear in the scale */
                for (int i = 0; i < E; i++) one[i] = i == e;
                const double term = loss_of(&routers[c], z, one, is.ids + t * K, is.d_weights + t * K, NULL);
                expected[e] += term;
                size[e] += fabs(term);
            }
        }
        for (int e = 0; e < E; e++) assert_near((double)d_scale[e], expected[e], 0x1p-24 * fabs(expected[e]) + 1e-10 * size[e]);
        for (int e = 0; e < E; e++) added[e] = 3;
        gradients.flags = FFN_BACKWARD_ACCUMULATE, gradients.d_expert_scale = added;
        for (int i = 0; i < T * E; i++) d_logits[i] = 0;
        assert_ok(ffn_moe_route_backward(NULL, &routers[c], is.logits, is.expert_scale, &routing, &gradients));
        for (int e = 0; e < E; e++) assert_near((double)added[e], 3 + expected[e], 0x1p-23 * (3 + size[e]));
    }
}

static void accumulating_adds_to_the_gradients_of_losses(void **state)
{
    (void)state;
    row_case_t is;
    float d_logits[T * E], sum[T * E];
    double value;
    make_case(&is, test_seed() + 5, &routers[3]);
    const ffn_moe_routing_t routing = routing_of(T, E, K, is.ids, NULL);
    ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = is.d_weights, .d_scores = is.d_scores, .d_logits = d_logits};
    assert_ok(ffn_moe_route_backward(NULL, &routers[3], is.logits, NULL, &routing, &gradients));
    memset(sum, 0, sizeof sum);
    assert_ok(ffn_moe_loss_z(T, E, is.logits, NULL, 0.5, sum, &value));
    for (int i = 0; i < T * E; i++) d_logits[i] += sum[i];
    gradients.flags = FFN_BACKWARD_ACCUMULATE, gradients.d_logits = sum;
    assert_ok(ffn_moe_route_backward(NULL, &routers[3], is.logits, NULL, &routing, &gradients));
    for (int i = 0; i < T * E; i++) assert_near((double)sum[i], (double)d_logits[i], 0x1p-22 * (fabs((double)d_logits[i]) + 1));
}

/* Weights that were normalised before a choice was dropped: with the ids from before, and nothing coming back by the dropped one. */
static void what_was_dropped_after_normalising_still_counts_in_the_sum(void **state)
{
    (void)state;
    const float logits[3] = {0.5f, 0.25f, -1};
    int32_t ids[2] = {0, 1}, after[2] = {0, NONE};
    const float d_weights[2] = {1, 0};
    float d[3];
    const ffn_moe_routing_t before = routing_of(1, 3, 2, ids, NULL), dropped = routing_of(1, 3, 2, after, NULL);
    const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_logits = d};
    const double w = 1 / (1 + exp(-0.25)), slope = w * (1 - w);
    assert_ok(ffn_moe_route_backward(NULL, &routers[1], logits, NULL, &before, &gradients));
    assert_near((double)d[0], slope, 1e-7);
    assert_near((double)d[1], -slope, 1e-7);
    assert_near((double)d[2], 0, 1e-12);
    assert_ok(ffn_moe_route_backward(NULL, &routers[1], logits, NULL, &dropped, &gradients)); /* alone it is 1, whatever its logit */
    for (int e = 0; e < 3; e++) assert_near((double)d[e], 0, 1e-12);
}

/* A Switch router learns through p: renormalised to 1 it would not. */
static void a_switch_router_has_a_gradient(void **state)
{
    (void)state;
    const float logits[3] = {0, 1, 0}, d_weight = 2;
    int32_t id = 1;
    float d[3];
    const double p = exp(1) / (exp(1) + 2);
    const ffn_moe_routing_t routing = routing_of(1, 3, 1, &id, NULL);
    const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = &d_weight, .d_logits = d};
    assert_ok(ffn_moe_route_backward(NULL, NULL, logits, NULL, &routing, &gradients));
    assert_near((double)d[1], 2 * p * (1 - p), 1e-7);
    assert_near((double)d[0], -2 * p * (1 - p) / 2, 1e-7);
    assert_same_bits(&d[0], &d[2], 1, "equal logits");
}

/* -------------------------------------------------------------- Hard numbers */

static void rows_without_numbers_spoil_no_other_and_padding_is_0(void **state)
{
    (void)state;
    static const uint8_t mask[T] = {1, 1, 0, 1, 1, 1, 0, 1, 1};
    for (int64_t c = 0; c < COUNT_OF(routers); c++) {
        row_case_t is;
        float clean[T * E], d[T * E], d_scale[E];
        make_case(&is, test_seed() + 300 + (uint64_t)c, &routers[c]);
        ffn_moe_routing_t routing = routing_of(T, E, K, is.ids, NULL);
        ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = is.d_weights, .d_scores = is.d_scores, .d_logits = clean};
        assert_ok(ffn_moe_route_backward(NULL, &routers[c], is.logits, is.expert_scale, &routing, &gradients));
        is.logits[1 * E + 3] = NAN;
        for (int e = 0; e < E; e++) is.logits[3 * E + e] = -INFINITY, is.logits[6 * E + e] = NAN;
        for (int k = 0; k < K; k++) is.ids[2 * K + k] = 99; /* padding's are not looked at */
        is.d_weights[6 * K] = NAN;
        routing.mask = mask;
        gradients.d_logits = d, gradients.d_expert_scale = d_scale;
        assert_ok(ffn_moe_route_backward(NULL, &routers[c], is.logits, is.expert_scale, &routing, &gradients));
        for (int t = 0; t < T; t++)
            for (int e = 0; e < E; e++) {
                if (!mask[t]) assert_true(d[t * E + e] == 0);
                else if (t == 1 || t == 3) assert_true(isnan(d[t * E + e]));
                else assert_same_bits(&clean[t * E + e], &d[t * E + e], 1, "other rows");
            }
        for (int k = 0; k < K; k++)
            if (is.ids[1 * K + k] != NONE) assert_true(isnan(d_scale[is.ids[1 * K + k]]));
    }
}

static void extreme_logits_have_finite_derivatives(void **state)
{
    (void)state;
    static const float rows[][E] = {{-INFINITY, 1, -INFINITY, 0, -INFINITY, 2, 3}, {3e38f, 0, -3e38f, 1, 2, 3, 4}, {-1e4f, -2e4f, -1e4f, -3e4f, -1e4f, 0, 1},
                                    {700, 710, 720, 0, -700, -710, -720},          {1e-40f, 0, -0.0f, 1e-40f, 0, 0, 0}};
    enum { ROWS = sizeof rows / sizeof *rows };
    for (int64_t c = 0; c < COUNT_OF(routers); c++) {
        if (routers[c].score == FFN_MOE_SCORE_NONE && routers[c].weight == FFN_MOE_WEIGHT_SCORE) continue; /* infinite weights */
        int32_t ids[ROWS * K];
        float logits[ROWS * E], weights[ROWS * K], d_weights[ROWS * K], d[ROWS * E];
        memcpy(logits, rows, sizeof logits);
        for (int i = 0; i < ROWS * K; i++) d_weights[i] = (float)(i % 3 - 1);
        const ffn_moe_routing_t routing = routing_of(ROWS, E, K, ids, weights);
        const ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_logits = d};
        assert_ok(ffn_moe_route(NULL, &routers[c], logits, NULL, NULL, NULL, &routing));
        assert_ok(ffn_moe_route_backward(NULL, &routers[c], logits, NULL, &routing, &gradients));
        for (int i = 0; i < ROWS * E; i++)
            if (!isfinite(d[i])) fail_msg("router %d, row %d, logit %d: %g", (int)c, i / E, i % E, (double)d[i]);
    }
}

/* ----------------------------------------------------------------- Invariances */

static void threads_and_batches_do_not_change_a_bit(void **state)
{
    (void)state;
    enum { TOKENS = 4200, EXPERTS = 24, TOP_K = 3 };
    const int64_t used = test_quick() ? 300 : TOKENS;
    float *logits = test_alloc(TOKENS * EXPERTS * 4), *d_scores = test_alloc(TOKENS * EXPERTS * 4), *whole = test_alloc(TOKENS * EXPERTS * 4);
    float *d = test_alloc(TOKENS * EXPERTS * 4), *weights = test_alloc(TOKENS * TOP_K * 4), *d_weights = test_alloc(TOKENS * TOP_K * 4);
    int32_t *ids = test_alloc(TOKENS * TOP_K * 4);
    float scale[EXPERTS], d_scale[EXPERTS], whole_scale[EXPERTS];
    double expected[EXPERTS] = {0};
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, logits, TOKENS * EXPERTS), rng_fill_normal(&rng, d_scores, TOKENS * EXPERTS);
    rng_fill_normal(&rng, d_weights, TOKENS * TOP_K), rng_fill_normal(&rng, scale, EXPERTS);
    const ffn_moe_routing_t all = routing_of(used, EXPERTS, TOP_K, ids, weights);
    ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_weights = d_weights, .d_scores = d_scores, .d_logits = whole,
                                           .d_expert_scale = whole_scale};
    assert_ok(ffn_moe_route(NULL, &routers[3], logits, NULL, scale, NULL, &all));
    assert_ok(ffn_moe_route_backward(NULL, &routers[3], logits, scale, &all, &gradients));
    for (int64_t i = 0; i < used * TOP_K; i++) expected[ids[i]] += (double)d_weights[i] * (double)weights[i] / (double)scale[ids[i]];
    for (int e = 0; e < EXPERTS; e++) assert_near((double)whole_scale[e], expected[e], 1e-4);
    for (uint32_t threads = 1; threads <= 7; threads++) {
        const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
        ffn_context_t *context;
        assert_ok(ffn_context_create(&options, &context));
        gradients.d_logits = d, gradients.d_expert_scale = d_scale;
        assert_ok(ffn_moe_route_backward(context, &routers[3], logits, scale, &all, &gradients));
        assert_same_bits(whole, d, used * EXPERTS, "threads");
        assert_same_bits(whole_scale, d_scale, EXPERTS, "d_expert_scale");
        for (int64_t size = threads == 1 ? 1 : 61, begin = 0; begin < used; begin += size) {
            const int64_t count = begin + size < used ? size : used - begin;
            const ffn_moe_routing_t part = routing_of(count, EXPERTS, TOP_K, ids + begin * TOP_K, NULL);
            const ffn_moe_route_gradients_t piece = {.struct_size = sizeof piece, .d_weights = d_weights + begin * TOP_K,
                                                     .d_scores = d_scores + begin * EXPERTS, .d_logits = d + begin * EXPERTS};
            assert_ok(ffn_moe_route_backward(context, &routers[3], logits + begin * EXPERTS, scale, &part, &piece));
            size = size < 64 ? size + 1 : 1000;
        }
        assert_same_bits(whole, d, used * EXPERTS, "batches");
        ffn_context_free(context);
    }
    free(logits), free(d_scores), free(whole), free(d), free(weights), free(d_weights), free(ids);
}

static void no_tokens_give_an_expert_scale_of_0(void **state)
{
    (void)state;
    float d_scale[3] = {NAN, NAN, NAN};
    const ffn_moe_routing_t routing = routing_of(0, 3, 1, NULL, NULL);
    ffn_moe_route_gradients_t gradients = {.struct_size = sizeof gradients, .d_expert_scale = d_scale};
    assert_ok(ffn_moe_route_backward(NULL, NULL, NULL, NULL, &routing, &gradients));
    assert_true(d_scale[0] == 0 && d_scale[2] == 0);
    d_scale[1] = 5, gradients.flags = FFN_BACKWARD_ACCUMULATE;
    assert_ok(ffn_moe_route_backward(NULL, NULL, NULL, NULL, &routing, &gradients));
    assert_true(d_scale[1] == 5);
    gradients.d_expert_scale = NULL;
    assert_ok(ffn_moe_route_backward(NULL, NULL, NULL, NULL, &routing, &gradients));
}

/* -------------------------------------------------------------------- Refused */

static float in[64], out[64];
static int32_t good_ids[64];

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define GRADIENTS(field, ...) PATCH(ffn_moe_route_gradients_t, field, __VA_ARGS__)

static const refused_t refusals[] = {
    {GRADIENTS(struct_size, 2), "struct_size"},
    {GRADIENTS(flags, 2), "flags of the gradients is 0x2"},
    {GRADIENTS(d_logits, NULL), "d_logits is NULL"},
    {GRADIENTS(d_logits, in + 1), "logits overlaps d_logits"},
    {GRADIENTS(d_weights, out + 1), "d_weights overlaps d_logits"},
    {GRADIENTS(d_scores, out + 15), "d_scores overlaps d_logits"},
    {GRADIENTS(d_expert_scale, out + 15), "d_logits overlaps d_expert_scale"},
    {GRADIENTS(d_scores, (const float *)(const void *)((const char *)in + 1)), "d_scores|multiple of 4"},
};

static void wrong_gradients_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) good_ids[i] = i % 3, out[i] = 42;
    const ffn_moe_routing_t routing = routing_of(2, 8, 3, good_ids, NULL);
    const ffn_moe_route_gradients_t right = {.struct_size = sizeof right, .d_weights = in + 32, .d_scores = in + 40, .d_logits = out};
    for (int64_t i = 0; i < COUNT_OF(refusals); i++) {
        ffn_moe_route_gradients_t gradients = right;
        patch_apply(&refusals[i].patch, &gradients);
        forget_error();
        assert_refused(ffn_moe_route_backward(NULL, NULL, in, NULL, &routing, &gradients), FFN_INVALID, refusals[i].words, refusals[i].patch.text);
    }
    ffn_moe_routing_t broken = routing;
    int32_t twice[6] = {0, 1, 2, 3, 4, 3};
    broken.ids = twice;
    const ffn_moe_router_options_t unknown = ROUTER(.score = 9);
    assert_refused(ffn_moe_route_backward(NULL, &unknown, in, NULL, &routing, &right), FFN_INVALID, "score is 9", "options");
    assert_refused(ffn_moe_route_backward(NULL, NULL, NULL, NULL, &routing, &right), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_route_backward(NULL, NULL, in, out + 3, &routing, &right), FFN_INVALID, "expert_scale overlaps d_logits", "scale");
    assert_refused(ffn_moe_route_backward(NULL, NULL, in, NULL, NULL, &right), FFN_INVALID, "ffn_moe_routing_t is NULL", "routing");
    assert_refused(ffn_moe_route_backward(NULL, NULL, in, NULL, &routing, NULL), FFN_INVALID, "ffn_moe_route_gradients_t is NULL", "gradients");
    assert_refused(ffn_moe_route_backward(NULL, NULL, in, NULL, &broken, &right), FFN_INVALID, "token 1 has expert 3 twice", "ids");
    for (int i = 0; i < 64; i++) assert_true(out[i] == 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_router_has_its_derivatives),
        cmocka_unit_test(the_expert_scale_has_its_derivative),
        cmocka_unit_test(accumulating_adds_to_the_gradients_of_losses),
        cmocka_unit_test(what_was_dropped_after_normalising_still_counts_in_the_sum),
        cmocka_unit_test(a_switch_router_has_a_gradient),
        cmocka_unit_test(rows_without_numbers_spoil_no_other_and_padding_is_0),
        cmocka_unit_test(extreme_logits_have_finite_derivatives),
        cmocka_unit_test(threads_and_batches_do_not_change_a_bit),
        cmocka_unit_test(no_tokens_give_an_expert_scale_of_0),
        cmocka_unit_test(wrong_gradients_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
