/* SPDX-License-Identifier: MIT
 *
 * The training table: the passes that training adds to those of kernels.h, one record per ISA level, under the same contract.
 */
#ifndef FFNI_TRAINING_H
#define FFNI_TRAINING_H

#include "kernels/kernels.h"

/* The derivatives of activate_fn: with x = up[i] + up_bias[i],
 *     out[i]  = min(act(x), clip_max), the bits of activate_fn
 *     d_up[i] = d_out[i] * (act(x) > clip_max ? 0 : act'(x)), act'(x) rounded to float32 before the product; NaN where x is
 * At a kink act' is that of the side where x is below (relu'(0) = 0); a number that just reaches a clip passes. out may be d_out, d_up may be up. */
typedef void differentiate_fn(const activation_t *activation, int64_t n, float *out, float *d_up, const float *d_out, const float *up,
                              const float *up_bias);

/* The same for activate_gated_fn: with x = gate[i] + gate_bias[i], g = min(x, gate_max), v = up[i] + up_bias[i], u = clip(v, +-up_limit) + up_offset,
 *     out[i]    = min(act(g), clip_max) * u, the bits of activate_gated_fn
 *     d_gate[i] = (d_out[i] * (x > gate_max or act(g) > clip_max ? 0 : act'(g))) * u
 *     d_up[i]   = |v| > up_limit ? 0 : d_out[i] * min(act(g), clip_max)
 * out may be d_out, d_gate may be gate, d_up may be up. */
typedef void differentiate_gated_fn(const activation_t *activation, int64_t n, float *out, float *d_gate, float *d_up, const float *d_out,
                                    const float *gate, const float *gate_bias, const float *up, const float *up_bias);

/* xielu's learned scalars: sums[0] += d x^2 over x > 0, sums[1] += d (e^min(x, alpha) - 1 - x) over the others, in an order that depends on n alone.
 * x is the activation's argument, d the derivative by its value: gated, min(gate + gate_bias, gate_max) and d_out * u; dense (up NULL), gate +
 * gate_bias and d_out. */
typedef void learn_xielu_fn(const activation_t *activation, int64_t n, double sums[2], const float *d_out, const float *gate, const float *gate_bias,
                            const float *up, const float *up_bias);

/* The derivatives of normalise_fn. With q = (x - mean) / s (rms: x / s; affine: x) and e[i] = d_y[i] * (offset + weight[i]):
 *     layer:  d_x[i] = (e[i] - mean(e) - q[i] mean(e q)) / s        rms: d_x[i] = (e[i] - q[i] mean(e q)) / s        affine: d_x[i] = e[i]
 *     d_weight[i] += d_y[i] * q[i]        d_bias[i] += d_y[i]
 * d_weight and d_bias may be NULL. Sums in float64, in an order that depends on n alone; d_x is rounded once. d_x may be d_y or x. */
typedef void differentiate_norm_fn(const norm_t *norm, int64_t n, float *d_x, const float *d_y, const float *x, float *d_weight, float *d_bias);

/* sum[i] += v[i]; sum[i] += a[i] * b[i]; out[i] = a[i] * b[i]. Rounded after each operation: the same bits at every level. */
typedef void add_fn(int64_t n, float *sum, const float *v);
typedef void add_product_fn(int64_t n, float *sum, const float *a, const float *b);
typedef void multiply_fn(int64_t n, float *out, const float *a, const float *b);

/* Dropout of a row: column j draws word j % 4 of Philox 4x32-10 with the key `seed` and the counter (counter[0] + j / 4, counter[1 .. 3]), and is kept
 * where that is at least `threshold` (2^32: never). */
typedef struct drop_mask {
    uint64_t seed, threshold;
    uint32_t counter[4];
    float scale; /* of what is kept */
    uint32_t reserved;
} drop_mask_t;

/* out[j] = kept ? in[j] * scale : 0, whatever in[j] is. out may be in. */
typedef void drop_fn(const drop_mask_t *mask, int64_t n, float *out, const float *in);

/* Jitter of a row: column j draws the same word w, and u = (w + 1/2) / 2^32. */
typedef struct jitter {
    uint64_t seed;
    uint32_t counter[4];
    float size;
    uint32_t reserved;
} jitter_t;

/* out[j] = in[j] * (1 + size * (2 u - 1)), the factor in float64, rounded to float32 before the product. out may be in. */
typedef void jitter_fn(const jitter_t *noise, int64_t n, float *out, const float *in);

/* One step of an optimiser. Without momentum (or with beta 0) the state is still kept. */
typedef struct sgd {
    float rate, momentum, weight_decay;
    int nesterov;
} sgd_t;

typedef struct adamw {
    float beta1, beta2, eps;
    float decay;        /* rate * weight_decay */
    float first_factor; /* rate / (1 - beta1^step) */
    float second_factor; /* 1 / sqrt(1 - beta2^step) */
} adamw_t;

/* g = gradient + weight_decay weight; v = momentum v + g; weight -= rate (nesterov ? g + momentum v : v). velocity NULL: momentum is 0. */
typedef void sgd_fn(const sgd_t *sgd, int64_t n, float *weight, const float *gradient, float *velocity);

/* m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; weight -= decay weight + first_factor m / (second_factor sqrt(v) + eps). */
typedef void adamw_fn(const adamw_t *adamw, int64_t n, float *weight, const float *gradient, float *first, float *second);

/* The sum of v[i]^2 in float64, in an order that depends on n alone. */
typedef double sum_of_squares_fn(int64_t n, const float *v);

/* v[i] *= factor */
typedef void scale_fn(int64_t n, float *v, float factor);

/* The derivatives of depthwise_fn by its taps: sums[j * sums_step + i] += d[r * d_step + i] in[r + j][i] over r = 0 .. rows-1, in their order, fused at
 * the vector levels. A row of the input that is NULL is left out. */
typedef struct depthwise_slopes {
    int64_t n, rows, taps;
    const float *const *in; /* [rows + taps - 1] */
    const float *d;
    int64_t d_step;
    float *sums;
    int64_t sums_step;
} depthwise_slopes_t;

typedef void depthwise_slopes_fn(const depthwise_slopes_t *slopes);
/* Looks at v, at most 2^31 numbers, and adds to *survey: the sum of squares in float64, in an order that depends on n alone; zeros; infinities and
 * NaN; and keeps the larger of its `largest` and the largest finite |v[i]|. */
typedef struct survey {
    double squares;
    int64_t zeros, non_finite;
    float largest;
    uint32_t reserved;
} survey_t;

typedef void survey_fn(int64_t n, const float *v, survey_t *survey);

/* The sum of (a[i] - b[i])^2, differences too in float64, in an order that depends on n alone. */
typedef double squared_distance_fn(int64_t n, const float *a, const float *b);

struct training_table {
    differentiate_fn *differentiate;
    differentiate_gated_fn *differentiate_gated;
    learn_xielu_fn *learn_xielu;
    differentiate_norm_fn *differentiate_norm[NORM_KINDS];
    add_fn *add;
    add_product_fn *add_product;
    multiply_fn *multiply;
    drop_fn *drop;
    jitter_fn *jitter;
    sgd_fn *sgd;
    adamw_fn *adamw;
    sum_of_squares_fn *sum_of_squares;
    scale_fn *scale;
    depthwise_slopes_fn *depthwise_slopes;
    survey_fn *survey;
    squared_distance_fn *squared_distance;
};

extern const training_table_t ffni_training_scalar;
extern const training_table_t ffni_training_avx2;
extern const training_table_t ffni_training_avx512;

#endif
