/* SPDX-License-Identifier: MIT */
#include "support/oracle_backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/philox_reference.h"
#include "support/test.h"

/* ------------------------------------------------------------------ Dropout */

static double *mask_of(const ffn_dropout_t *d, int site, int64_t batch, int64_t length, int64_t width)
{
    double *mask = test_alloc((size_t)(batch * length * width) * sizeof *mask);
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    for (int64_t t = 0; t < batch * length; t++)
        for (int64_t j = 0; j < width; j++) {
            const int by_sequence = site == FFN_DROPOUT_PATH || (d->broadcast >> site & 1);
            const uint64_t r = (uint64_t)(by_sequence ? d->first_sequence + t / length : d->first_row + t);
            const uint32_t counter[4] = {(uint32_t)site * 0x10000000u + (uint32_t)(j / 4), (uint32_t)r, (uint32_t)d->step,
                                         (uint32_t)d->layer * 0x10000u + (uint32_t)(r >> 32)};
            uint32_t out[4];
            philox_reference(counter, key, out);
            const bool dropped = (double)out[j % 4] < round(4294967296.0 * (double)d->p[site]);
            mask[t * width + j] = dropped ? 0 : 1 / (1 - (double)d->p[site]);
        }
    return mask;
}

oracle_masks_t oracle_masks_make(const ffn_dropout_t *dropout, int64_t batch, int64_t length, int64_t d_ff, int64_t d_out)
{
    const int64_t width[5] = {d_ff, d_ff, d_ff, d_out, 1};
    oracle_masks_t masks = {{NULL}};
    for (int site = 0; dropout && site < 5; site++)
        if (dropout->p[site] > 0) masks.site[site] = mask_of(dropout, site, batch, length, width[site]);
    return masks;
}

void oracle_masks_free(oracle_masks_t *masks)
{
    for (int site = 0; site < 5; site++) free(masks->site[site]);
    memset(masks, 0, sizeof *masks);
}

static void drop(const oracle_masks_t *masks, int site, int64_t token, int64_t n, double *v)
{
    if (!masks || !masks->site[site]) return;
    for (int64_t j = 0; j < n; j++) {
        const double m = site == FFN_DROPOUT_PATH ? masks->site[site][token] : masks->site[site][token * n + j];
        v[j] = m == 0 ? 0 : v[j] * m;
    }
}

/* -------------------------------------------------------------------- Norms */

static double factor_of(const oracle_norm_t *norm, int64_t i)
{
    return norm->weight ? (double)norm->offset + (double)norm->weight[i] : 1;
}

static void standardise(const oracle_norm_t *norm, int64_t n, const double *x, double *q, double *s)
{
    const double default_eps = norm->kind == FFN_NORM_LAYER ? (double)1e-5f : (double)1e-6f;
    double mean = 0, square = 0;
    if (norm->kind == FFN_NORM_LAYER)
        for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
    *s = norm->kind == FFN_NORM_AFFINE ? 1 : sqrt(square + (norm->eps != 0 ? (double)norm->eps : default_eps));
    for (int64_t i = 0; i < n; i++) q[i] = (x[i] - mean) / *s;
}

static void normalise(const oracle_norm_t *norm, int64_t n, const double *x, double *y)
{
    double s, *q = test_alloc((size_t)n * sizeof *q);
    if (norm->kind != FFN_NORM_NONE) standardise(norm, n, x, q, &s);
    for (int64_t i = 0; i < n; i++)
        y[i] = norm->kind == FFN_NORM_NONE ? x[i] : q[i] * factor_of(norm, i) + (norm->bias ? (double)norm->bias[i] : 0);
    free(q);
}

/* d, by the norm's result, becomes the derivative by x: the Jacobian times d, column by column of dq_i/dx_j = (delta_ij - [layer] / n - q_i q_j / n) / s. */
static void normalise_back(const oracle_norm_t *norm, int64_t n, const double *x, double *d, double *d_weight, double *d_bias)
{
    if (norm->kind == FFN_NORM_NONE) return;
    double s, *q = test_alloc((size_t)n * sizeof *q), *e = test_alloc((size_t)n * sizeof *e);
    standardise(norm, n, x, q, &s);
    for (int64_t i = 0; i < n; i++) {
        e[i] = d[i] * factor_of(norm, i);
        if (d_weight) d_weight[i] += d[i] * q[i];
        if (d_bias) d_bias[i] += d[i];
    }
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double jacobian = i == j;
            if (norm->kind == FFN_NORM_LAYER) jacobian -= 1.0 / (double)n;
            if (norm->kind != FFN_NORM_AFFINE) jacobian -= q[i] * q[j] / (double)n;
            sum += e[i] * jacobian / s;
        }
        d[j] = sum;
    }
    free(q);
    free(e);
}

/* ------------------------------------------------------------------ Forward */

/* All rows of a token, in the order in which they come about. */
typedef struct rows {
    double *n, *gate, *up, *product, *h, *down, *branch, *f, *sum, *y;
} rows_t;

static rows_t rows_make(const oracle_layer_t *layer)
{
    const size_t in = (size_t)layer->d_model * sizeof(double), ff = (size_t)layer->d_ff * sizeof(double), out = (size_t)layer->d_out * sizeof(double);
    return (rows_t){test_alloc(in), test_alloc(ff), test_alloc(ff), test_alloc(ff), test_alloc(ff),
                    test_alloc(out), test_alloc(out), test_alloc(out), test_alloc(out), test_alloc(out)};
}

static void rows_free(rows_t *rows)
{
    double *const all[] = {rows->n, rows->gate, rows->up, rows->product, rows->h, rows->down, rows->branch, rows->f, rows->sum, rows->y};
    for (int64_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

static void project(int64_t out, int64_t in, const float *weight, const float *bias, const double *x, double *y)
{
    for (int64_t j = 0; j < out; j++) {
        y[j] = bias ? (double)bias[j] : 0;
        for (int64_t i = 0; i < in; i++) y[j] += (double)weight[j * in + i] * x[i];
    }
}

static double clip_gate(const oracle_layer_t *layer, double z)
{
    return layer->gate && layer->gate_max != 0 && z > (double)layer->gate_max ? (double)layer->gate_max : z;
}

static double clip_up(const oracle_layer_t *layer, double z)
{
    const double limit = (double)layer->up_limit;
    return limit == 0 ? z : z > limit ? limit : z < -limit ? -limit : z;
}

static double scale_at(const oracle_scale_t *scale, int64_t i)
{
    if (!scale->values) return 1;
    const double v = (double)scale->values[scale->count == 1 ? 0 : i];
    return scale->tanh ? tanh(v) : v;
}

static const double *residual_of(const oracle_layer_t *layer, const rows_t *rows, const double *x, const double *external)
{
    switch (layer->residual) {
    case FFN_RESIDUAL_INPUT: return x;
    case FFN_RESIDUAL_NORMED: return rows->n;
    case FFN_RESIDUAL_EXTERNAL: return external;
    default: return NULL;
    }
}

static void run_token(const oracle_layer_t *layer, const oracle_masks_t *masks, int64_t t, const double *x, const double *external, rows_t *rows)
{
    const int64_t d_ff = layer->d_ff, d_out = layer->d_out;
    normalise(&layer->norm[FFN_NORM_IN], layer->d_model, x, rows->n);
    if (layer->gate) project(d_ff, layer->d_model, layer->gate, layer->gate_bias, rows->n, rows->gate);
    project(d_ff, layer->d_model, layer->up, layer->up_bias, rows->n, layer->gate ? rows->up : rows->gate);
    drop(masks, FFN_DROPOUT_PRE_ACTIVATION, t, d_ff, rows->gate);
    for (int64_t j = 0; j < d_ff; j++) {
        rows->product[j] = oracle_activate(&layer->activation, clip_gate(layer, rows->gate[j]));
        if (layer->gate) rows->product[j] *= clip_up(layer, rows->up[j]) + (double)layer->up_offset;
    }
    drop(masks, FFN_DROPOUT_ACTIVATION, t, d_ff, rows->product);
    drop(masks, FFN_DROPOUT_HIDDEN, t, d_ff, rows->product);
    normalise(&layer->norm[FFN_NORM_MID], d_ff, rows->product, rows->h);
    project(d_out, d_ff, layer->down, layer->down_bias, rows->h, rows->down);
    normalise(&layer->norm[FFN_NORM_BRANCH], d_out, rows->down, rows->f);
    drop(masks, FFN_DROPOUT_BRANCH, t, d_out, rows->f);
    drop(masks, FFN_DROPOUT_PATH, t, d_out, rows->f);
    const double *r = residual_of(layer, rows, x, external);
    for (int64_t i = 0; i < d_out; i++)
        rows->sum[i] = scale_at(&layer->branch_scale, i) * rows->f[i] + (r ? scale_at(&layer->residual_scale, i) * r[i] : 0);
    normalise(&layer->norm[FFN_NORM_OUT], d_out, rows->sum, rows->y);
}

void oracle_train(const oracle_layer_t *layer, const oracle_masks_t *masks, int64_t tokens, const double *x, const double *residual, double *y)
{
    rows_t rows = rows_make(layer);
    for (int64_t t = 0; t < tokens; t++) {
        run_token(layer, masks, t, x + t * layer->d_model, residual ? residual + t * layer->d_out : NULL, &rows);
        memcpy(y + t * layer->d_out, rows.y, (size_t)layer->d_out * sizeof *y);
    }
    rows_free(&rows);
}

/* ----------------------------------------------------------------- Backward */

static void project_back(int64_t out, int64_t in, const float *weight, const double *x, const double *d, double *d_x, double *d_weight, double *d_bias)
{
    for (int64_t j = 0; j < out; j++) {
        if (d_bias) d_bias[j] += d[j];
        for (int64_t i = 0; i < in; i++) {
            d_x[i] += (double)weight[j * in + i] * d[j];
            if (d_weight) d_weight[j * in + i] += d[j] * x[i];
        }
    }
}

static void scale_back(const oracle_scale_t *scale, int64_t i, double d, double value, int role, oracle_gradients_t *g)
{
    double *d_scale = g->role[role];
    if (!d_scale) return;
    const int64_t at = scale->count == 1 ? 0 : i;
    const double slope = scale->tanh ? 1 / (cosh((double)scale->values[at]) * cosh((double)scale->values[at])) : 1;
    d_scale[at] += d * value * slope;
    g->terms[role] += fabs(d * value * slope);
}

/* d by the activation's value becomes the derivative by the (dropped) pre-activation; xielu's scalars on the way. */
static double activation_back(const oracle_layer_t *layer, double pre, double d, oracle_gradients_t *g)
{
    const double z = clip_gate(layer, pre);
    if (layer->activation.id == FFN_ACTIVATION_XIELU) {
        const double eps = layer->activation.alpha != 0 ? (double)layer->activation.alpha : (double)-1e-6f;
        const double p = 1 / (1 + exp(-(double)layer->activation.alpha_p)), n = 1 / (1 + exp(-(double)layer->activation.alpha_n));
        const int role = z > 0 ? FFN_ROLE_XIELU_ALPHA_P : FFN_ROLE_XIELU_ALPHA_N;
        if (g->role[role]) g->role[role][0] += d * (z > 0 ? z * z * p : (expm1(z > eps ? eps : z) - z) * n);
        g->terms[role] += fabs(d) * (z > 0 ? z * z * p : fabs(z) * n);
    }
    return z != pre ? 0 : d * oracle_slope(&layer->activation, z);
}

static void hidden_back(const oracle_layer_t *layer, const oracle_masks_t *masks, int64_t t, const rows_t *rows, double *d, double *d_n,
                        oracle_gradients_t *g)
{
    const int64_t d_ff = layer->d_ff, d_model = layer->d_model;
    double *d_up = test_alloc((size_t)d_ff * sizeof *d_up);
    normalise_back(&layer->norm[FFN_NORM_MID], d_ff, rows->product, d, g->role[FFN_ROLE_NORM_MID_WEIGHT], g->role[FFN_ROLE_NORM_MID_BIAS]);
    drop(masks, FFN_DROPOUT_HIDDEN, t, d_ff, d);
    drop(masks, FFN_DROPOUT_ACTIVATION, t, d_ff, d);
    for (int64_t j = 0; j < d_ff; j++) {
        const double clipped = layer->gate ? clip_up(layer, rows->up[j]) : 0, u = clipped + (double)layer->up_offset;
        const double value = oracle_activate(&layer->activation, clip_gate(layer, rows->gate[j]));
        d_up[j] = layer->gate && clipped == rows->up[j] ? d[j] * value : 0;
        d[j] = activation_back(layer, rows->gate[j], layer->gate ? d[j] * u : d[j], g);
    }
    drop(masks, FFN_DROPOUT_PRE_ACTIVATION, t, d_ff, d);
    if (layer->gate) {
        project_back(d_ff, d_model, layer->gate, rows->n, d, d_n, g->role[FFN_ROLE_GATE_WEIGHT], g->role[FFN_ROLE_GATE_BIAS]);
        project_back(d_ff, d_model, layer->up, rows->n, d_up, d_n, g->role[FFN_ROLE_UP_WEIGHT], g->role[FFN_ROLE_UP_BIAS]);
    } else {
        project_back(d_ff, d_model, layer->up, rows->n, d, d_n, g->role[FFN_ROLE_UP_WEIGHT], g->role[FFN_ROLE_UP_BIAS]);
    }
    free(d_up);
}

static void token_back(const oracle_layer_t *layer, const oracle_masks_t *masks, int64_t t, const double *x, const double *external, const double *d_y,
                       double *d_x, double *d_external, const rows_t *rows, oracle_gradients_t *g)
{
    const int64_t d_out = layer->d_out, d_model = layer->d_model;
    double *d = test_alloc((size_t)d_out * sizeof *d), *d_f = test_alloc((size_t)d_out * sizeof *d_f), *d_r = test_alloc((size_t)d_out * sizeof *d_r);
    double *d_h = calloc((size_t)layer->d_ff, sizeof *d_h), *d_n = calloc((size_t)d_model, sizeof *d_n);
    const double *r = residual_of(layer, rows, x, external);
    memcpy(d, d_y, (size_t)d_out * sizeof *d);
    normalise_back(&layer->norm[FFN_NORM_OUT], d_out, rows->sum, d, g->role[FFN_ROLE_NORM_OUT_WEIGHT], g->role[FFN_ROLE_NORM_OUT_BIAS]);
    for (int64_t i = 0; i < d_out; i++) {
        scale_back(&layer->branch_scale, i, d[i], rows->f[i], FFN_ROLE_BRANCH_SCALE, g);
        if (r) scale_back(&layer->residual_scale, i, d[i], r[i], FFN_ROLE_RESIDUAL_SCALE, g);
        d_f[i] = d[i] * scale_at(&layer->branch_scale, i);
        d_r[i] = r ? d[i] * scale_at(&layer->residual_scale, i) : 0;
    }
    drop(masks, FFN_DROPOUT_PATH, t, d_out, d_f);
    drop(masks, FFN_DROPOUT_BRANCH, t, d_out, d_f);
    normalise_back(&layer->norm[FFN_NORM_BRANCH], d_out, rows->down, d_f, g->role[FFN_ROLE_NORM_BRANCH_WEIGHT], g->role[FFN_ROLE_NORM_BRANCH_BIAS]);
    project_back(d_out, layer->d_ff, layer->down, rows->h, d_f, d_h, g->role[FFN_ROLE_DOWN_WEIGHT], g->role[FFN_ROLE_DOWN_BIAS]);
    hidden_back(layer, masks, t, rows, d_h, d_n, g);
    for (int64_t i = 0; layer->residual == FFN_RESIDUAL_NORMED && i < d_model; i++) d_n[i] += d_r[i];
    normalise_back(&layer->norm[FFN_NORM_IN], d_model, x, d_n, g->role[FFN_ROLE_NORM_IN_WEIGHT], g->role[FFN_ROLE_NORM_IN_BIAS]);
    for (int64_t i = 0; i < d_model; i++) d_x[i] += d_n[i] + (layer->residual == FFN_RESIDUAL_INPUT ? d_r[i] : 0);
    for (int64_t i = 0; d_external && i < d_out; i++) d_external[i] += d_r[i];
    free(d), free(d_f), free(d_r), free(d_h), free(d_n);
}

void oracle_backward(const oracle_layer_t *layer, const oracle_masks_t *masks, int64_t tokens, const double *x, const double *residual,
                     const double *d_y, oracle_gradients_t *gradients)
{
    rows_t rows = rows_make(layer);
    for (int64_t t = 0; t < tokens; t++) {
        const double *token = x + t * layer->d_model, *external = residual ? residual + t * layer->d_out : NULL;
        run_token(layer, masks, t, token, external, &rows);
        token_back(layer, masks, t, token, external, d_y + t * layer->d_out, gradients->x + t * layer->d_model,
                   gradients->residual ? gradients->residual + t * layer->d_out : NULL, &rows, gradients);
    }
    rows_free(&rows);
}
