/* SPDX-License-Identifier: MIT */
#include "support/conv_oracle.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const int weight_role[2] = {FFN_ROLE_UP_WEIGHT, FFN_ROLE_DOWN_WEIGHT};
static const int bias_role[2] = {FFN_ROLE_UP_BIAS, FFN_ROLE_DOWN_BIAS};
static const int taps_role[2] = {FFN_ROLE_UP_TAPS, FFN_ROLE_DOWN_TAPS};

static double *zeros(int64_t n)
{
    double *v = test_alloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = 0;
    return v;
}

static int64_t in_of(const conv_oracle_t *o, int part)
{
    return part ? o->d_ff : o->d_model;
}

static int64_t out_of(const conv_oracle_t *o, int part)
{
    return part ? o->d_out : o->d_ff;
}

int64_t conv_oracle_elements(const conv_oracle_t *o, int role)
{
    for (int part = 0; part < 2; part++) {
        if (role == weight_role[part]) return out_of(o, part) * in_of(o, part) * (o->separable[part] ? 1 : o->kernel[part]);
        if (role == bias_role[part]) return out_of(o, part);
        if (role == taps_role[part]) return in_of(o, part) * o->kernel[part];
    }
    return 1;
}

static bool is_padding(const conv_oracle_t *o, int64_t position)
{
    return o->mask && o->mask[position] == 0;
}

/* The position, counted through the batch, that tap j of the output at (sequence, t) reads; -1: zeros. */
static int64_t place(const conv_oracle_t *o, int part, int64_t sequence, int64_t t, int64_t j)
{
    const int64_t s = t - o->left[part] + j;
    if (s < 0 || s >= o->length) return -1;
    if ((o->kernel[part] != 1 || o->mask_all) && is_padding(o, sequence * o->length + s)) return -1;
    return sequence * o->length + s;
}

static double scale_of(const conv_oracle_t *o, int part)
{
    return o->scaled && o->kernel[part] != 1 ? 1 / sqrt((double)o->kernel[part]) : 1;
}

/* What the matrix of tap j takes: of a dense convolution the rows of its taps one after the other, of a separable one their sum. [n, columns] */
static double matrix_at(const conv_oracle_t *o, int part, int64_t out, int64_t in, int64_t j)
{
    const int64_t taps = o->separable[part] ? 1 : o->kernel[part];
    return o->tensor[weight_role[part]][(out * in_of(o, part) + in) * taps + j];
}

static double *depthwise(const conv_oracle_t *o, int part, const double *u)
{
    const int64_t n = in_of(o, part), k = o->kernel[part];
    double *z = zeros(o->batch * o->length * n);
    for (int64_t b = 0; b < o->batch; b++)
        for (int64_t t = 0; t < o->length; t++)
            for (int64_t j = 0; j < k; j++) {
                const int64_t s = place(o, part, b, t, j);
                for (int64_t i = 0; s >= 0 && i < n; i++) z[(b * o->length + t) * n + i] += o->tensor[taps_role[part]][i * k + j] * u[s * n + i];
            }
    return z;
}

static double *convolve(const conv_oracle_t *o, int part, const double *u)
{
    const int64_t n = in_of(o, part), m = out_of(o, part);
    double *v = zeros(o->batch * o->length * m), *z = o->separable[part] ? depthwise(o, part, u) : NULL;
    for (int64_t b = 0; b < o->batch; b++)
        for (int64_t t = 0; t < o->length; t++) {
            const int64_t p = b * o->length + t;
            for (int64_t r = 0; r < m; r++) {
                double sum = o->tensor[bias_role[part]] ? o->tensor[bias_role[part]][r] : 0;
                for (int64_t i = 0; z && i < n; i++) sum += matrix_at(o, part, r, i, 0) * z[p * n + i];
                for (int64_t j = 0; !z && j < o->kernel[part]; j++) {
                    const int64_t s = place(o, part, b, t, j);
                    for (int64_t i = 0; s >= 0 && i < n; i++) sum += matrix_at(o, part, r, i, j) * u[s * n + i];
                }
                v[p * m + r] = scale_of(o, part) * sum;
            }
        }
    free(z);
    return v;
}

static void drop(const conv_oracle_t *o, int site, int64_t n, double *v)
{
    const double *mask = o->dropout ? o->dropout->site[site] : NULL;
    for (int64_t i = 0; mask && i < o->batch * o->length * n; i++) {
        const double m = site == FFN_DROPOUT_PATH ? mask[i / n] : mask[i];
        v[i] = m == 0 ? 0 : v[i] * m;
    }
}

static void mask_output(const conv_oracle_t *o, double *y)
{
    for (int64_t i = 0; o->mask_all && i < o->batch * o->length * o->d_out; i++)
        if (is_padding(o, i / o->d_out)) y[i] = 0;
}

static double *hidden_of(const conv_oracle_t *o, const double *pre)
{
    double *act = zeros(o->batch * o->length * o->d_ff);
    for (int64_t i = 0; i < o->batch * o->length * o->d_ff; i++) act[i] = oracle_activate(&o->activation, pre[i]);
    drop(o, FFN_DROPOUT_ACTIVATION, o->d_ff, act);
    drop(o, FFN_DROPOUT_HIDDEN, o->d_ff, act);
    return act;
}

void conv_oracle_forward(const conv_oracle_t *o, const double *x, double *y)
{
    double *pre = convolve(o, 0, x);
    drop(o, FFN_DROPOUT_PRE_ACTIVATION, o->d_ff, pre);
    double *act = hidden_of(o, pre), *v = convolve(o, 1, act);
    drop(o, FFN_DROPOUT_BRANCH, o->d_out, v);
    drop(o, FFN_DROPOUT_PATH, o->d_out, v);
    mask_output(o, v);
    memcpy(y, v, (size_t)(o->batch * o->length * o->d_out) * sizeof *y);
    free(pre), free(act), free(v);
}

/* ----------------------------------------------------------------- Derivatives */

/* From d v, which is scaled, to d u, and to the gradients of the convolution's tensors. */
static double *convolve_back(const conv_oracle_t *o, int part, const double *u, double *d_v, double *const gradient[ORACLE_ROLES])
{
    const int64_t n = in_of(o, part), m = out_of(o, part), k = o->kernel[part], positions = o->batch * o->length;
    double *d_u = zeros(positions * n), *z = o->separable[part] ? depthwise(o, part, u) : NULL, *d_z = zeros(positions * n);
    double *d_weight = gradient[weight_role[part]], *d_bias = gradient[bias_role[part]], *d_taps = gradient[taps_role[part]];
    for (int64_t i = 0; i < positions * m; i++) d_v[i] *= scale_of(o, part);
    for (int64_t p = 0; p < positions; p++)
        for (int64_t r = 0; r < m; r++) {
            const double d = d_v[p * m + r];
            if (d_bias) d_bias[r] += d;
            for (int64_t i = 0; z && i < n; i++) {
                d_weight[r * n + i] += d * z[p * n + i];
                d_z[p * n + i] += d * matrix_at(o, part, r, i, 0);
            }
            for (int64_t j = 0; !z && j < k; j++) {
                const int64_t s = place(o, part, p / o->length, p % o->length, j);
                for (int64_t i = 0; s >= 0 && i < n; i++) {
                    d_weight[(r * n + i) * k + j] += d * u[s * n + i];
                    d_u[s * n + i] += d * matrix_at(o, part, r, i, j);
                }
            }
        }
    for (int64_t p = 0; z && p < positions; p++)
        for (int64_t j = 0; j < k; j++) {
            const int64_t s = place(o, part, p / o->length, p % o->length, j);
            for (int64_t i = 0; s >= 0 && i < n; i++) {
                d_taps[i * k + j] += d_z[p * n + i] * u[s * n + i];
                d_u[s * n + i] += d_z[p * n + i] * o->tensor[taps_role[part]][i * k + j];
            }
        }
    free(z), free(d_z);
    return d_u;
}

static void xielu_scalars(const conv_oracle_t *o, const double *pre, const double *d_act, double *const gradient[ORACLE_ROLES])
{
    const oracle_activation_t *a = &o->activation;
    const double eps = a->alpha != 0 ? (double)a->alpha : (double)-1e-6f;
    if (a->id != FFN_ACTIVATION_XIELU) return;
    for (int64_t i = 0; i < o->batch * o->length * o->d_ff; i++) {
        const double x = pre[i], logistic_p = 1 / (1 + exp(-(double)a->alpha_p)), logistic_n = 1 / (1 + exp(-(double)a->alpha_n));
        if (x > 0) gradient[FFN_ROLE_XIELU_ALPHA_P][0] += d_act[i] * x * x * logistic_p;
        else gradient[FFN_ROLE_XIELU_ALPHA_N][0] += d_act[i] * (expm1(fmin(x, eps)) - x) * logistic_n;
    }
}

void conv_oracle_backward(const conv_oracle_t *o, const double *x, const double *d_y, double *d_x, double *const gradient[ORACLE_ROLES])
{
    const int64_t positions = o->batch * o->length;
    double *pre = convolve(o, 0, x), *d_v = zeros(positions * o->d_out);
    for (int role = 0; role < ORACLE_ROLES; role++)
        for (int64_t i = 0; gradient[role] && i < conv_oracle_elements(o, role); i++) gradient[role][i] = 0;
    drop(o, FFN_DROPOUT_PRE_ACTIVATION, o->d_ff, pre);
    memcpy(d_v, d_y, (size_t)(positions * o->d_out) * sizeof *d_v);
    mask_output(o, d_v);
    drop(o, FFN_DROPOUT_PATH, o->d_out, d_v);
    drop(o, FFN_DROPOUT_BRANCH, o->d_out, d_v);
    double *act = hidden_of(o, pre), *d_act = convolve_back(o, 1, act, d_v, gradient);
    drop(o, FFN_DROPOUT_HIDDEN, o->d_ff, d_act);
    drop(o, FFN_DROPOUT_ACTIVATION, o->d_ff, d_act);
    xielu_scalars(o, pre, d_act, gradient);
    for (int64_t i = 0; i < positions * o->d_ff; i++) d_act[i] *= oracle_slope(&o->activation, pre[i]);
    drop(o, FFN_DROPOUT_PRE_ACTIVATION, o->d_ff, d_act);
    double *d_u = convolve_back(o, 0, x, d_act, gradient);
    memcpy(d_x, d_u, (size_t)(positions * o->d_model) * sizeof *d_x);
    free(pre), free(d_v), free(act), free(d_act), free(d_u);
}
