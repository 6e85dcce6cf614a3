/* SPDX-License-Identifier: MIT */
#include "io/support/moe_rules.h"

#include <math.h>
#include <string.h>

typedef double row_t[MOE_MOST_EXPERTS];

static void softmax(const moe_choice_t *c, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int e = 0; e < c->experts; e++) most = fmax(most, c->z[e]);
    for (int e = 0; e < c->experts; e++) sum += p[e] = exp(c->z[e] - most);
    for (int e = 0; e < c->experts; e++) p[e] /= sum;
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

/* ids = the largest of s + bias, one after the other, and the gap to the next one. */
static void choose(moe_choice_t *c, const double *s, const double *bias)
{
    bool taken[MOE_MOST_EXPERTS] = {false};
    double last = INFINITY, next = -INFINITY;
    for (int k = 0; k <= c->top_k && k < c->experts; k++) {
        int best = -1;
        for (int e = 0; e < c->experts; e++)
            if (!taken[e] && (best < 0 || s[e] + bias[e] > s[best] + bias[best])) best = e;
        next = s[best] + bias[best];
        if (k == c->top_k) break;
        last = next;
        taken[c->ids[k] = best] = true;
    }
    if (c->top_k < c->experts) c->gap = fmin(c->gap, last - next);
}

static double sum(const moe_choice_t *c)
{
    double total = 0;
    for (int k = 0; k < c->top_k; k++) total += c->w[k];
    return total;
}

static void times(moe_choice_t *c, double factor)
{
    for (int k = 0; k < c->top_k; k++) c->w[k] *= factor;
}

static void take(moe_choice_t *c, const double *s)
{
    for (int k = 0; k < c->top_k; k++) c->w[k] = s[c->ids[k]];
}

static const row_t none;

void rule_softmax(moe_choice_t *c)
{
    row_t p;
    softmax(c, p);
    choose(c, p, none);
    take(c, p);
}

void rule_softmax_normalised(moe_choice_t *c)
{
    rule_softmax(c);
    times(c, 1 / sum(c));
}

void rule_softmax_twice(moe_choice_t *c)
{
    rule_softmax(c);
    times(c, 2.5);
}

void rule_softmax_eval(moe_choice_t *c)
{
    rule_softmax(c);
    times(c, 0.8 / sum(c));
}

void rule_softmax_power(moe_choice_t *c)
{
    double squares = 0;
    rule_softmax(c);
    for (int k = 0; k < c->top_k; k++) squares += c->w[k] * c->w[k];
    times(c, 1 / sqrt(squares));
}

void rule_softmax_biased(moe_choice_t *c)
{
    row_t p;
    softmax(c, p);
    choose(c, p, c->bias);
    take(c, p);
    times(c, 1 / sum(c));
}

void rule_softmax_of_chosen(moe_choice_t *c)
{
    choose(c, c->z, none);
    for (int k = 0; k < c->top_k; k++) c->w[k] = exp(c->z[c->ids[k]] - c->z[c->ids[0]]);
    times(c, 1 / sum(c));
}

void rule_sigmoid_of_chosen(moe_choice_t *c)
{
    choose(c, c->z, none);
    for (int k = 0; k < c->top_k; k++) c->w[k] = sigmoid(c->z[c->ids[k]]);
}

void rule_sigmoid_biased(moe_choice_t *c)
{
    row_t s;
    for (int e = 0; e < c->experts; e++) s[e] = sigmoid(c->z[e]);
    choose(c, s, c->bias);
    take(c, s);
    times(c, 1 / sum(c));
}

/* Puts the experts of all but the best 2 of 4 groups out of the choice. */
static void limit_groups(moe_choice_t *c, double *s, const double *bias, bool two)
{
    int size = c->experts / 4;
    double score[4], largest[4];
    for (int g = 0; g < 4; g++) {
        double second = -INFINITY;
        largest[g] = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            double v = s[e] + bias[e];
            if (v > largest[g]) second = largest[g], largest[g] = v;
            else if (v > second) second = v;
        }
        score[g] = two ? largest[g] + second : largest[g];
    }
    for (int g = 0; g < 4; g++) {
        int better = 0;
        for (int other = 0; other < 4; other++) {
            better += score[other] > score[g];
            if (other != g) c->gap = fmin(c->gap, fabs(score[other] - score[g]));
        }
        for (int e = g * size; better >= 2 && e < (g + 1) * size; e++) s[e] = -INFINITY;
    }
}

void rule_softmax_scaled(moe_choice_t *c)
{
    row_t p;
    softmax(c, p);
    limit_groups(c, p, none, false);
    choose(c, p, none);
    take(c, p);
    times(c, 16);
}

void rule_sigmoid_groups(moe_choice_t *c)
{
    row_t s;
    for (int e = 0; e < c->experts; e++) s[e] = sigmoid(c->z[e]);
    limit_groups(c, s, c->bias, true);
    choose(c, s, c->bias);
    take(c, s);
    times(c, 2.5 / (sum(c) + 1e-20));
}

/* The softmax at the largest, over the logits that are near it. */
static double mixed(const moe_choice_t *c, int first, int *best)
{
    double total = 0;
    *best = -1;
    for (int e = 0; e < c->experts; e++)
        if (e != first && (*best < 0 || c->z[e] > c->z[*best])) *best = e;
    double m = c->z[*best];
    for (int e = 0; e < c->experts; e++)
        if (e != first && !((m - c->z[e]) / fmax(fabs(c->z[e]), m) > 2 * 0.01)) total += exp(c->z[e] - m);
    return 1 / total;
}

void rule_sparse_mixer(moe_choice_t *c)
{
    c->w[0] = mixed(c, -1, &c->ids[0]);
    c->w[1] = mixed(c, c->ids[0], &c->ids[1]);
}
