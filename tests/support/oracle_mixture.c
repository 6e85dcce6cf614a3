/* SPDX-License-Identifier: MIT */
#include "support/oracle_mixture.h"

#include <math.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/test.h"

static const double U = 0x1p-24;

static void copy(oracle_row_t *to, const oracle_row_t *from)
{
    memcpy(to->value, from->value, (size_t)from->n * sizeof(double));
    memcpy(to->bound, from->bound, (size_t)from->n * sizeof(double));
}

/* ------------------------------------------------------------------- Routing */

static void compute_logits(const oracle_mixture_t *m, const oracle_layer_t *layer, const double *x, oracle_token_t *token)
{
    oracle_row_t in = oracle_row_make(layer->d_model), z = oracle_row_make(m->choices);
    memcpy(in.value, x, (size_t)in.n * sizeof(double));
    memset(in.bound, 0, (size_t)in.n * sizeof(double));
    if (!m->route_unnormed) oracle_normalise(&layer->norm[FFN_NORM_IN], &in);
    oracle_normalise(&m->router_norm, &in);
    oracle_project(&z, m->router, m->router_bias, &in);
    token->z_bound = 0;
    for (int64_t e = 0; e < m->choices; e++) {
        token->z[e] = z.value[e];
        if (!(z.bound[e] <= token->z_bound)) token->z_bound = z.bound[e];
    }
    oracle_row_free(&in);
    oracle_row_free(&z);
}

void oracle_mixture_route(oracle_mixture_t *m, const oracle_layer_t *layer, int64_t tokens, const double *x, oracle_rule_fn *rule,
                          oracle_batch_rule_fn *batch_rule)
{
    m->token = test_alloc((size_t)tokens * sizeof *m->token);
    for (int64_t t = 0; t < tokens; t++) {
        oracle_token_t *token = &m->token[t];
        memset(token, 0, sizeof *token);
        token->experts = (int)m->choices;
        token->top_k = (int)m->top_k;
        for (int64_t e = 0; e < m->choices; e++) {
            token->bias[e] = m->selection_bias ? (double)m->selection_bias[e] : 0;
            token->scale[e] = m->expert_scale ? (double)m->expert_scale[e] : 1;
        }
        compute_logits(m, layer, x + t * layer->d_model, token);
        rule(token);
    }
    if (batch_rule) batch_rule(m->token, tokens);
}

/* -------------------------------------------------------------------- Branch */

/* What the logits' bound can do to a weight: each rule's weights are quotients of exponentials of logits, or smoother; and some roundings. */
static double weight_bound(const oracle_token_t *token, double w)
{
    return fabs(w) * (4 * token->z_bound + 8 * U);
}

/* sum += w * row, with a rounding of the product and one of the sum. */
static void add(oracle_row_t *sum, const oracle_row_t *row, double w, double w_bound)
{
    for (int64_t i = 0; i < sum->n; i++) {
        double product = w * row->value[i];
        sum->value[i] += product;
        sum->bound[i] += fabs(w) * row->bound[i] + w_bound * (fabs(row->value[i]) + row->bound[i]) + U * fabs(product) + U * fabs(sum->value[i]) + 0x1p-148;
    }
}

/* In place. */
static void scale(oracle_row_t *row, double w, double w_bound)
{
    for (int64_t i = 0; i < row->n; i++) {
        row->bound[i] = fabs(w) * row->bound[i] + w_bound * (fabs(row->value[i]) + row->bound[i]) + U * fabs(w * row->value[i]) + 0x1p-149;
        row->value[i] *= w;
    }
}

static void add_expert(const oracle_mixture_t *m, const oracle_token_t *token, int k, const oracle_row_t *in, oracle_row_t *sum)
{
    double w = token->w[k], w_bound = weight_bound(token, w);
    oracle_row_t input = oracle_row_make(in->n), out = oracle_row_make(sum->n);
    if (token->ids[k] >= m->experts) {
        add(sum, in, w, w_bound);
    } else {
        copy(&input, in);
        if (m->weight_on_input) scale(&input, w, w_bound);
        oracle_run_row(&m->expert[token->ids[k]], &input, &out);
        if (m->weight_on_input)
            add(sum, &out, 1, 0);
        else
            add(sum, &out, w, w_bound);
    }
    oracle_row_free(&input);
    oracle_row_free(&out);
}

static void add_shared(const oracle_mixture_t *m, const oracle_row_t *n, oracle_row_t *y)
{
    oracle_row_t out = oracle_row_make(y->n), z = oracle_row_make(1);
    double g = 1, g_bound = 0;
    if (m->shared_scale) {
        oracle_project(&z, m->shared_scale, NULL, n);
        g = 1 / (1 + exp(-z.value[0]));
        g_bound = g * (1 - g) * 1.01 * z.bound[0] + U * g;
    }
    oracle_run_row(m->shared, n, &out);
    add(y, &out, g, g_bound);
    oracle_row_free(&out);
    oracle_row_free(&z);
}

static void add_vector(oracle_row_t *y, const float *bias)
{
    for (int64_t i = 0; bias && i < y->n; i++) {
        y->value[i] += (double)bias[i];
        y->bound[i] += U * fabs(y->value[i]);
    }
}

void oracle_mixture_run(const oracle_mixture_t *m, int64_t token, const oracle_row_t *n, oracle_row_t *y)
{
    const oracle_token_t *t = &m->token[token];
    oracle_row_t latent = oracle_row_make(m->d_latent), mixed = oracle_row_make(m->d_latent ? m->d_latent : y->n);
    const oracle_row_t *in = m->d_latent ? &latent : n;
    if (m->d_latent) oracle_project(&latent, m->latent_in, m->latent_in_bias, n);
    memset(mixed.value, 0, (size_t)mixed.n * sizeof(double));
    memset(mixed.bound, 0, (size_t)mixed.n * sizeof(double));
    for (int k = 0; k < t->top_k; k++)
        if (t->ids[k] != ORACLE_NO_EXPERT) add_expert(m, t, k, in, &mixed);
    if (m->d_latent)
        oracle_project(y, m->latent_out, m->latent_out_bias, &mixed);
    else
        copy(y, &mixed);
    if (m->shared) add_shared(m, n, y);
    add_vector(y, m->combine_bias);
    oracle_row_free(&latent);
    oracle_row_free(&mixed);
}
