/* SPDX-License-Identifier: MIT */
#include "support/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "support/oracle_mixture.h"
#include "support/test.h"

static const double U = 0x1p-24;     /* half an ulp of 1: the largest relative error of one float32 operation */
static const double TINY = 0x1p-149; /* the smallest float32: what an operation may lose where numbers are denormal */

typedef oracle_row_t row_t;

oracle_row_t oracle_row_make(int64_t n)
{
    row_t row = {n, test_alloc((size_t)n * sizeof(double)), test_alloc((size_t)n * sizeof(double))};
    return row;
}

void oracle_row_free(oracle_row_t *row)
{
    free(row->value);
    free(row->bound);
}

static void row_copy(row_t *out, const row_t *in)
{
    memcpy(out->value, in->value, (size_t)in->n * sizeof(double));
    memcpy(out->bound, in->bound, (size_t)in->n * sizeof(double));
}

static void row_load(row_t *row, const double *exact)
{
    memcpy(row->value, exact, (size_t)row->n * sizeof(double));
    memset(row->bound, 0, (size_t)row->n * sizeof(double));
}

/* An infinite number has no neighbours: it is exact, and what is finite again after a clamp has a bound. */
static double unless_infinite(double value, double bound)
{
    return isinf(value) ? 0 : bound;
}

void oracle_project(row_t *out, const float *weight, const float *bias, const row_t *in)
{
    double k = (double)in->n;
    double roundings = k < 6 * sqrt(k) ? k : 6 * sqrt(k);
    for (int64_t j = 0; j < out->n; j++) {
        const float *w = weight + j * in->n;
        double sum = 0, magnitude = 0, inherited = 0;
        for (int64_t i = 0; i < in->n; i++) {
            sum += w[i] * in->value[i];
            magnitude += fabs(w[i] * in->value[i]);
            inherited += fabs((double)w[i]) * in->bound[i];
        }
        double value = bias ? sum + (double)bias[j] : sum;
        out->value[j] = value;
        double bound = inherited + roundings * U * (magnitude + inherited) + k * TINY + (bias ? U * fabs(value) : 0);
        out->bound[j] = unless_infinite(value, bound);
    }
}

/* Mean and deviation of a row: the denominator s of the norm's quotient, and what the bounds of the row can do to both. */
typedef struct spread {
    double mean, s;
    double mean_bound;
    double relative_bound; /* of s */
} spread_t;

static spread_t spread_of(const oracle_norm_t *norm, const row_t *row)
{
    double n = (double)row->n, mean = 0, squares = 0;
    spread_t spread = {0};
    if (norm->kind == FFN_NORM_LAYER) {
        for (int64_t i = 0; i < row->n; i++) mean += row->value[i] / n;
        for (int64_t i = 0; i < row->n; i++) spread.mean_bound += row->bound[i] / n;
    }
    for (int64_t i = 0; i < row->n; i++) squares += (row->value[i] - mean) * (row->value[i] - mean);
    double eps = norm->eps != 0 ? (double)norm->eps : norm->kind == FFN_NORM_LAYER ? (double)1e-5f : (double)1e-6f;
    spread.mean = mean;
    spread.s = sqrt(squares / n + eps);
    /* d(s)/s = sum c dc / (n s^2), plus the second order, which counts where a row is nearly constant. */
    double first = 0, second = 0;
    for (int64_t i = 0; i < row->n; i++) {
        first += fabs(row->value[i] - mean) * row->bound[i];
        second += row->bound[i] * row->bound[i];
    }
    double relative = (first + second) / (n * spread.s * spread.s);
    spread.relative_bound = relative < 0.25 ? relative / (1 - 2 * relative) : isnan(relative) ? 0 : INFINITY;
    return spread;
}

/* The value and the bound of q, the number before (o + w) multiplies it. */
static void quotient(const oracle_norm_t *norm, const spread_t *spread, double value, double bound, double *q, double *q_bound)
{
    if (norm->kind == FFN_NORM_AFFINE) {
        *q = value;
        *q_bound = bound;
        return;
    }
    *q = (value - spread->mean) / spread->s;
    double numerator = bound + spread->mean_bound;
    *q_bound = numerator / spread->s + (fabs(*q) + numerator / spread->s) * spread->relative_bound + U * fabs(*q) + TINY;
}

void oracle_normalise(const oracle_norm_t *norm, row_t *row)
{
    if (norm->kind == FFN_NORM_NONE) return;
    spread_t spread = {0};
    if (norm->kind != FFN_NORM_AFFINE) spread = spread_of(norm, row);
    for (int64_t i = 0; i < row->n; i++) {
        double q, q_bound;
        quotient(norm, &spread, row->value[i], row->bound[i], &q, &q_bound);
        double g = norm->weight ? (double)norm->offset + (double)norm->weight[i] : 1;
        double value = q * g, bound = q_bound * fabs(g);
        if (norm->weight) bound += (norm->offset != 0 ? 2 : 1) * U * fabs(value) + TINY;
        if (norm->bias) {
            value += (double)norm->bias[i];
            bound += U * fabs(value);
        }
        row->value[i] = value;
        row->bound[i] = bound;
    }
}

static double limit_gate(const oracle_layer_t *layer, double z)
{
    return layer->gate && layer->gate_max != 0 && z > (double)layer->gate_max ? (double)layer->gate_max : z;
}

/* In place: min(z, gate_max) and the activation. The bound of z moves the result by what the function does at both ends of its interval. */
static void activate(const oracle_layer_t *layer, row_t *row)
{
    for (int64_t j = 0; j < row->n; j++) {
        double z = limit_gate(layer, row->value[j]);
        double z_above = limit_gate(layer, row->value[j] + row->bound[j]), z_below = limit_gate(layer, row->value[j] - row->bound[j]);
        double value = oracle_activate(&layer->activation, z);
        double above = fabs(oracle_activate(&layer->activation, z_above) - value);
        double below = fabs(oracle_activate(&layer->activation, z_below) - value);
        double inherited = above > below ? above : below;
        double own = 2 * ORACLE_ACTIVATION_ULPS * U * oracle_activation_terms(&layer->activation, z) + TINY;
        /* 1.702 is rounded to float32 on its way to the kernel. */
        if (layer->activation.id == FFN_ACTIVATION_QUICK_GELU)
            own += fabs(oracle_activate(&layer->activation, z) - z * (1 / (1 + exp(-1.702 * (1 + U) * z))));
        if (layer->activation.id == FFN_ACTIVATION_IDENTITY || layer->activation.id == FFN_ACTIVATION_RELU) own = 0;
        row->value[j] = value;
        row->bound[j] = unless_infinite(value, 1.01 * inherited + own);
    }
}

static double limit_up(const oracle_layer_t *layer, double up)
{
    double limit = (double)layer->up_limit;
    if (limit == 0) return up;
    return up > limit ? limit : up < -limit ? -limit : up;
}

/* hidden = activated gate * (clip(up) + offset). */
static void multiply(const oracle_layer_t *layer, row_t *hidden, const row_t *up)
{
    for (int64_t j = 0; j < hidden->n; j++) {
        double u = limit_up(layer, up->value[j]), e = up->bound[j];
        double above = fabs(limit_up(layer, up->value[j] + e) - u), below = fabs(limit_up(layer, up->value[j] - e) - u);
        double u_bound = unless_infinite(u, above > below ? above : below);
        if (layer->up_offset != 0) {
            u += (double)layer->up_offset;
            u_bound += U * fabs(u);
        }
        double g = hidden->value[j], g_bound = hidden->bound[j];
        double bound = fabs(g) * u_bound + fabs(u) * g_bound + u_bound * g_bound + U * fabs(g * u) + TINY;
        hidden->value[j] = g * u;
        hidden->bound[j] = unless_infinite(g * u, bound);
    }
}

/* value and bound times the scale's i-th number. */
static void apply_scale(const oracle_scale_t *scale, int64_t i, double *value, double *bound)
{
    if (!scale->values) return;
    double s = (double)scale->values[scale->count == 1 ? 0 : i], s_bound = 0;
    if (scale->tanh) {
        s = tanh(s);
        s_bound = 2 * ORACLE_ACTIVATION_ULPS * U * fabs(s);
    }
    *bound = fabs(s) * *bound + s_bound * fabs(*value) + U * fabs(s * *value) + TINY;
    *value *= s;
}

/* branch = a * residual + c * branch. */
static void combine(const oracle_layer_t *layer, row_t *branch, const row_t *residual)
{
    for (int64_t i = 0; i < branch->n; i++) {
        double value = branch->value[i], bound = branch->bound[i];
        apply_scale(&layer->branch_scale, i, &value, &bound);
        if (residual) {
            double r = residual->value[i], r_bound = residual->bound[i];
            apply_scale(&layer->residual_scale, i, &r, &r_bound);
            value += r;
            bound += r_bound + U * fabs(value);
        }
        branch->value[i] = value;
        branch->bound[i] = bound;
    }
}

typedef struct rows {
    row_t x, n, up, hidden, y, residual;
} rows_t;

static void run_network(const oracle_layer_t *layer, rows_t *rows)
{
    if (layer->gate) {
        oracle_project(&rows->hidden, layer->gate, layer->gate_bias, &rows->n);
        oracle_project(&rows->up, layer->up, layer->up_bias, &rows->n);
        activate(layer, &rows->hidden);
        multiply(layer, &rows->hidden, &rows->up);
    } else {
        oracle_project(&rows->hidden, layer->up, layer->up_bias, &rows->n);
        activate(layer, &rows->hidden);
    }
    oracle_normalise(&layer->norm[FFN_NORM_MID], &rows->hidden);
    oracle_project(&rows->y, layer->down, layer->down_bias, &rows->hidden);
}

/* rows->x is there; `token` is its number in a mixture's routing. */
static void run_token(const oracle_layer_t *layer, rows_t *rows, const double *residual, int64_t token)
{
    row_copy(&rows->n, &rows->x);
    oracle_normalise(&layer->norm[FFN_NORM_IN], &rows->n);
    if (layer->mixture)
        oracle_mixture_run(layer->mixture, token, &rows->n, &rows->y);
    else
        run_network(layer, rows);
    oracle_normalise(&layer->norm[FFN_NORM_BRANCH], &rows->y);

    const row_t *r = NULL;
    if (layer->residual == FFN_RESIDUAL_INPUT) r = &rows->x;
    if (layer->residual == FFN_RESIDUAL_NORMED) r = &rows->n;
    if (layer->residual == FFN_RESIDUAL_EXTERNAL) {
        row_load(&rows->residual, residual);
        r = &rows->residual;
    }
    combine(layer, &rows->y, r);
    oracle_normalise(&layer->norm[FFN_NORM_OUT], &rows->y);
}

static rows_t rows_make(const oracle_layer_t *layer)
{
    rows_t rows = {oracle_row_make(layer->d_model), oracle_row_make(layer->d_model), oracle_row_make(layer->d_ff),
                   oracle_row_make(layer->d_ff),    oracle_row_make(layer->d_out),   oracle_row_make(layer->d_out)};
    return rows;
}

static void rows_free(rows_t *rows)
{
    oracle_row_free(&rows->x);
    oracle_row_free(&rows->n);
    oracle_row_free(&rows->up);
    oracle_row_free(&rows->hidden);
    oracle_row_free(&rows->y);
    oracle_row_free(&rows->residual);
}

void oracle_run_row(const oracle_layer_t *layer, const row_t *x, row_t *y)
{
    rows_t rows = rows_make(layer);
    row_copy(&rows.x, x);
    run_token(layer, &rows, NULL, 0);
    row_copy(y, &rows.y);
    rows_free(&rows);
}

void oracle_run(const oracle_layer_t *layer, int64_t tokens, const double *x, const double *residual, double *y, double *bound)
{
    rows_t rows = rows_make(layer);
    for (int64_t t = 0; t < tokens; t++) {
        row_load(&rows.x, x + t * layer->d_model);
        run_token(layer, &rows, residual ? residual + t * layer->d_out : NULL, t);
        memcpy(y + t * layer->d_out, rows.y.value, (size_t)layer->d_out * sizeof *y);
        if (bound) memcpy(bound + t * layer->d_out, rows.y.bound, (size_t)layer->d_out * sizeof *bound);
    }
    rows_free(&rows);
}

double *oracle_widen(const float *values, int64_t n)
{
    double *wide = test_alloc((size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)values[i];
    return wide;
}
