/* SPDX-License-Identifier: MIT
 *
 * The training table: the passes that training adds to those of kernels.h, one record per ISA level, under the same contract.
 */
#ifndef FFNI_TRAINING_H
#define FFNI_TRAINING_H

#include "kernels/kernels.h"

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

struct training_table {
    sgd_fn *sgd;
    adamw_fn *adamw;
    sum_of_squares_fn *sum_of_squares;
    scale_fn *scale;
};

extern const training_table_t ffni_training_scalar;
extern const training_table_t ffni_training_avx2;
extern const training_table_t ffni_training_avx512;

#endif
