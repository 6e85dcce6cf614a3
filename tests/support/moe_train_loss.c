/* SPDX-License-Identifier: MIT */
#include "support/moe_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/philox_reference.h"
#include "support/test.h"

enum { WIDEST = 64, NONE = FFN_MOE_NO_EXPERT };

/* Roles of a network's up weight, up bias, gate weight, gate bias, down weight, down bias. */
static const int expert_roles[6] = {1, 2, 3, 4, 5, 6}, shared_roles[6] = {46, 47, 48, 49, 50, 51};

typedef struct loss {
    const moe_train_t *train;
    const moe_case_t *is;
    const moe_variables_t *v;
} loss_t;

/* --------------------------------------------------------------------- Pieces */

/* What dropout makes of the number in that place. */
static double drop_factor(const ffn_dropout_t *d, int site, int64_t row, int64_t column)
{
    const uint64_t r = (uint64_t)(site == FFN_DROPOUT_PATH ? d->first_sequence : d->first_row) + (uint64_t)row;
    const uint32_t counter[4] = {(uint32_t)site * (1u << 28) + (uint32_t)(column / 4), (uint32_t)r, (uint32_t)d->step,
                                 (uint32_t)(d->layer * 65536 + (r >> 32))};
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    uint32_t word[4];
    if (!d->struct_size || d->p[site] == 0) return 1;
    philox_reference(counter, key, word);
    return (double)word[column % 4] < round((double)d->p[site] * 4294967296.0) ? 0 : (double)(float)(1 / (1 - (double)d->p[site]));
}

static void normalise(uint32_t kind, double eps, double offset, const double *w, const double *b, int64_t n, const double *in, double *out)
{
    double mean = 0, square = 0;
    if (eps == 0) eps = kind == FFN_NORM_LAYER ? (double)1e-5f : (double)1e-6f;
    for (int64_t i = 0; kind == FFN_NORM_LAYER && i < n; i++) mean += in[i] / (double)n;
    for (int64_t i = 0; i < n; i++) square += (in[i] - mean) * (in[i] - mean) / (double)n;
    const double by = kind == FFN_NORM_NONE || kind == FFN_NORM_AFFINE ? 1 : sqrt(square + eps);
    for (int64_t i = 0; i < n; i++) {
        const double q = (in[i] - mean) / by;
        out[i] = kind == FFN_NORM_NONE ? in[i] : q * (w ? offset + w[i] : 1) + (b ? b[i] : 0);
    }
}

static double *of_expert(const loss_t *l, int role, int64_t expert)
{
    const int64_t *shape = l->train->test.shape[role];
    return l->v->role[role] ? l->v->role[role] + expert * shape[0] * (shape[1] ? shape[1] : 1) : NULL;
}

static void normalise_slot(const loss_t *l, int slot, int64_t expert, int64_t n, const double *in, double *out)
{
    const norm_case_t *norm = &l->is->norm[slot];
    normalise(norm->kind, (double)norm->eps, (double)norm->offset, of_expert(l, FFN_ROLE_NORM_IN_WEIGHT + 2 * slot, expert),
              of_expert(l, FFN_ROLE_NORM_IN_BIAS + 2 * slot, expert), n, in, out);
}

static void project(int64_t out_n, int64_t in_n, const double *w, const double *b, const double *in, double *out)
{
    for (int64_t o = 0; o < out_n; o++) {
        out[o] = b ? b[o] : 0;
        for (int64_t i = 0; i < in_n; i++) out[o] += w[o * in_n + i] * in[i];
    }
}

/* xielu by its formula, of learned scalars that are variables; the others by the oracle. */
static double activate(const loss_t *l, double x)
{
    const oracle_activation_t activation = {.id = l->is->activation, .beta = l->is->beta};
    if (activation.id != FFN_ACTIVATION_XIELU) return oracle_activate(&activation, x);
    const double p = log1p(exp(l->v->role[FFN_ROLE_XIELU_ALPHA_P][0])), n = 0.5 + log1p(exp(l->v->role[FFN_ROLE_XIELU_ALPHA_N][0]));
    return x > 0 ? p * x * x + 0.5 * x : n * (expm1(fmin(x, (double)-1e-6f)) - x) + 0.5 * x;
}

/* A network's output; expert -1: the shared one's. */
static void run_network(const loss_t *l, int64_t expert, int64_t row, const double *in, int64_t d_in, int64_t d_ff, int64_t d_out, double *out)
{
    const int *roles = expert < 0 ? shared_roles : expert_roles;
    const int64_t e = expert < 0 ? 0 : expert, column = (expert < 0 ? l->train->test.experts : expert) * ((l->is->d_ff + 3) / 4 * 4);
    const ffn_dropout_t *d = &l->train->is.dropout;
    const bool clamps = expert >= 0 || !(l->is->moe.flags & FFN_MOE_SHARED_UNCLAMPED), gated = l->is->gated;
    double up[WIDEST], pre[WIDEST], h[WIDEST];
    project(d_ff, d_in, of_expert(l, roles[0], e), of_expert(l, roles[1], e), in, up);
    if (gated) project(d_ff, d_in, of_expert(l, roles[2], e), of_expert(l, roles[3], e), in, pre);
    else memcpy(pre, up, sizeof pre);
    for (int64_t j = 0; j < d_ff; j++) {
        double z = pre[j] * drop_factor(d, FFN_DROPOUT_PRE_ACTIVATION, row, column + j), u = up[j];
        if (gated && clamps && l->is->gate_max > 0) z = fmin(z, (double)l->is->gate_max);
        if (clamps && l->is->up_limit > 0) u = fmax(fmin(u, (double)l->is->up_limit), -(double)l->is->up_limit);
        if (clamps) u += (double)l->is->up_offset;
        h[j] = activate(l, z) * drop_factor(d, FFN_DROPOUT_ACTIVATION, row, column + j);
        if (gated) h[j] *= u;
        h[j] *= drop_factor(d, FFN_DROPOUT_HIDDEN, row, column + j);
    }
    if (expert >= 0) normalise_slot(l, FFN_NORM_MID, e, d_ff, h, h);
    project(d_out, d_ff, of_expert(l, roles[4], e), of_expert(l, roles[5], e), h, out);
}

/* -------------------------------------------------------------------- Routing */

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static void scores_of(uint32_t score, int64_t n, const double *z, double *s)
{
    double sum = 0;
    for (int64_t e = 0; e < n; e++) sum += exp(z[e]);
    for (int64_t e = 0; e < n; e++)
        s[e] = score == FFN_MOE_SCORE_SOFTMAX ? exp(z[e]) / sum : score == FFN_MOE_SCORE_SIGMOID ? sigmoid(z[e])
               : score == FFN_MOE_SCORE_SQRT_SOFTPLUS ? sqrt(log1p(exp(z[e]))) : z[e];
}

/* SparseMixer's two weights: who is near is decided by the library's logits. */
static void mix(const loss_t *l, int64_t t, const double *z, double *w)
{
    const int64_t n = l->train->test.choices;
    const float *at = l->train->logits + t * n;
    for (int k = 0; k < 2; k++) {
        const int32_t id = l->train->made_ids[2 * t + k], first = k ? l->train->made_ids[2 * t] : -1;
        double sum = 0;
        for (int64_t e = 0; e < n; e++) {
            const double far = ((double)at[id] - (double)at[e]) / fmax(fabs((double)at[e]), (double)at[id]);
            if (e != first && far <= 2 * (double)l->is->moe.jitter_eps) sum += exp(z[e] - z[id]);
        }
        w[k] = 1 / sum;
    }
}

/* Weights by the formulas, of the ids by which they were made. */
static void weigh(const loss_t *l, int64_t t, const double *z, const double *s, double *w)
{
    static const ffn_moe_router_options_t defaults;
    const ffn_moe_router_options_t *o = l->is->moe.router ? l->is->moe.router : &defaults;
    const int64_t k = l->train->top_k;
    const int32_t *ids = l->train->made_ids + t * k;
    double sum = 0, chosen = 0;
    for (int64_t i = 0; i < k; i++)
        if (ids[i] != NONE) chosen += exp(z[ids[i]]);
    for (int64_t i = 0; i < k; i++) {
        if (ids[i] == NONE) w[i] = 0;
        else w[i] = o->weight == FFN_MOE_WEIGHT_SOFTMAX ? exp(z[ids[i]]) / chosen : o->weight == FFN_MOE_WEIGHT_SIGMOID ? sigmoid(z[ids[i]]) : s[ids[i]];
        sum += w[i];
    }
    for (int64_t i = 0; i < k; i++) {
        if (o->normalise && sum != 0) w[i] /= fmax(sum + (double)o->eps_added, (double)o->eps_least);
        if (l->is->moe.choose == FFN_MOE_CHOOSE_TOP_K && o->scale != 0) w[i] *= (double)o->scale;
        if (l->v->role[FFN_ROLE_EXPERT_SCALE] && ids[i] != NONE) w[i] *= l->v->role[FFN_ROLE_EXPERT_SCALE][ids[i]];
    }
}

/* w of a token, and what the losses add. */
static double route(const loss_t *l, int64_t t, const double *x, const double *n, double *w)
{
    const moe_train_t *train = l->train;
    const int64_t choices = train->test.choices;
    double in[WIDEST], z[WIDEST], s[WIDEST], loss = 0;
    if (train->is.given) {
        memcpy(w, l->v->weights + t * train->top_k, (size_t)train->top_k * sizeof *w);
        return 0;
    }
    normalise(l->is->moe.router_norm, (double)l->is->moe.router_norm_eps, 0, l->v->role[FFN_ROLE_ROUTER_NORM_WEIGHT], NULL, l->is->d_model,
              l->is->moe.flags & FFN_MOE_ROUTE_UNNORMED ? x : n, in);
    project(choices, l->is->d_model, l->v->role[FFN_ROLE_ROUTER_WEIGHT], l->v->role[FFN_ROLE_ROUTER_BIAS], in, z);
    scores_of(l->is->moe.router ? l->is->moe.router->score : 0, choices, z, s);
    for (int64_t e = 0; e < choices; e++) loss += (double)train->d_logits[t * choices + e] * z[e];
    if (l->is->moe.choose == FFN_MOE_CHOOSE_SPARSE_MIXER) {
        mix(l, t, z, w);
        return loss;
    }
    for (int64_t e = 0; !moe_train_is_padding(train, t) && e < choices; e++) loss += (double)train->d_scores[t * choices + e] * s[e];
    weigh(l, t, z, s, w);
    return loss;
}

void moe_train_make_ids(moe_train_t *train)
{
    const int64_t n = train->test.choices, k = train->top_k;
    memcpy(train->made_ids, train->ids, (size_t)(train->tokens * k) * sizeof *train->ids);
    if (!train->is.drops_after) return;
    for (int64_t t = 0; t < train->tokens; t++) /* the k largest logits */
        for (int64_t i = 0; i < k; i++) {
            int32_t best = -1;
            for (int32_t e = 0; e < n; e++) {
                bool taken = false;
                for (int64_t j = 0; j < i; j++) taken |= train->made_ids[t * k + j] == e;
                if (!taken && (best < 0 || train->logits[t * n + e] > train->logits[t * n + best])) best = e;
            }
            train->made_ids[t * k + i] = best;
        }
}

/* ---------------------------------------------------------------------- Token */

static void run_experts(const loss_t *l, int64_t t, const double *in, int64_t d_in, int64_t d_out, const double *w, double *sum)
{
    const moe_train_t *train = l->train;
    for (int64_t i = 0; i < d_out; i++) sum[i] = 0;
    for (int64_t k = 0; k < train->top_k; k++) {
        const int32_t id = train->ids[t * train->top_k + k];
        const bool on_input = l->is->moe.flags & FFN_MOE_WEIGHT_ON_INPUT;
        double input[WIDEST], out[WIDEST];
        if (id == NONE) continue;
        for (int64_t i = 0; i < d_in; i++) input[i] = in[i] * (on_input && id < train->test.experts ? w[k] : 1);
        if (id < train->test.experts) run_network(l, id, t, input, d_in, l->is->d_ff, d_out, out);
        else memcpy(out, in, sizeof out);
        for (int64_t i = 0; i < d_out; i++) sum[i] += out[i] * (on_input && id < train->test.experts ? 1 : w[k]);
    }
}

static double token_loss(const loss_t *l, int64_t t)
{
    const moe_train_t *train = l->train;
    const moe_case_t *is = l->is;
    const int64_t d_model = is->d_model, d_out = train->test.is.d_out, latent = is->d_latent;
    const double *x = l->v->x + t * d_model;
    double n[WIDEST] = {0}, w[WIDEST] = {0}, in[WIDEST], mixed[WIDEST] = {0}, f[WIDEST] = {0}, shared[WIDEST] = {0}, y[WIDEST] = {0}, g = 0;
    normalise_slot(l, FFN_NORM_IN, 0, d_model, x, n);
    double loss = route(l, t, x, n, w);
    memcpy(in, n, sizeof in);
    if (latent) project(latent, d_model, l->v->role[FFN_ROLE_LATENT_IN_WEIGHT], l->v->role[FFN_ROLE_LATENT_IN_BIAS], n, in);
    run_experts(l, t, in, latent ? latent : d_model, latent ? latent : d_out, w, mixed);
    if (latent) project(d_out, latent, l->v->role[FFN_ROLE_LATENT_OUT_WEIGHT], l->v->role[FFN_ROLE_LATENT_OUT_BIAS], mixed, f);
    else memcpy(f, mixed, sizeof f);
    if (is->d_shared) run_network(l, -1, t, n, d_model, is->d_shared, d_out, shared);
    if (is->shared_scale) project(1, d_model, l->v->role[FFN_ROLE_SHARED_SCALE_WEIGHT], NULL, n, &g);
    for (int64_t i = 0; i < d_out; i++) {
        if (is->d_shared) f[i] += shared[i] * (is->shared_scale ? sigmoid(g) : 1);
        if (is->combine_bias) f[i] += l->v->role[FFN_ROLE_COMBINE_BIAS][i];
    }
    normalise_slot(l, FFN_NORM_BRANCH, 0, d_out, f, f);
    for (int64_t i = 0; i < d_out; i++) {
        const double r = is->residual == FFN_RESIDUAL_INPUT ? x[i] : is->residual == FFN_RESIDUAL_NORMED ? n[i]
                         : is->residual == FFN_RESIDUAL_EXTERNAL ? l->v->residual[t * d_out + i] : 0;
        f[i] *= drop_factor(&train->is.dropout, FFN_DROPOUT_BRANCH, t, i);
        f[i] *= drop_factor(&train->is.dropout, FFN_DROPOUT_PATH, t / train->is.length, 0);
        y[i] = r + f[i] * (l->v->role[FFN_ROLE_BRANCH_SCALE] ? l->v->role[FFN_ROLE_BRANCH_SCALE][0] : 1);
    }
    normalise_slot(l, FFN_NORM_OUT, 0, d_out, y, y);
    if (l->v->y) memcpy(l->v->y + t * d_out, y, (size_t)d_out * sizeof *y);
    for (int64_t i = 0; i < d_out; i++) loss += (double)train->d_y[t * d_out + i] * y[i];
    return loss;
}

double moe_train_loss(const moe_train_t *train, const moe_variables_t *variables)
{
    const loss_t l = {train, &train->test.is, variables};
    double loss = 0;
    for (int64_t t = 0; t < train->tokens; t++) loss += token_loss(&l, t);
    return loss;
}
