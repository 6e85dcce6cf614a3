/* SPDX-License-Identifier: MIT
 *
 * The oracle: the whole layer in float64, written from the formulas of ffn/ffn.h alone. It takes nothing of the library's but the constants of
 * the public header, and shares no code with it.
 *
 * Beside each number it carries a bound on how far a correct float32 computation may be from it. Every step widens the bound by what its
 * inputs' bounds can do to its result (first order) and by its own rounding:
 *     product of length k   k' u sum |a||b|, k' = min(k, 6 sqrt k): the worst case, or six standard deviations where roundings are independent
 *                           (Higham & Mary 2019, SIAM J. Sci. Comput. 41(5)), u = 2^-24; any order of summation, with or without fma
 *     activation            a few ulp of the value (ORACLE_ACTIVATION_ULPS), which is what the header promises
 *     everything else       half an ulp per float32 operation of the header's formula
 * so a tolerance is derived and never chosen.
 */
#ifndef FFN_TEST_ORACLE_H
#define FFN_TEST_ORACLE_H

#include <stdint.h>

/* "All are exact to a few units in the last place." */
#define ORACLE_ACTIVATION_ULPS 4

/* Fields as in ffn_layer_options_t: zero means the default. */
typedef struct oracle_activation {
    uint32_t id; /* FFN_ACTIVATION_* */
    float alpha, beta;
    float alpha_p, alpha_n; /* xielu's learned scalars */
} oracle_activation_t;

typedef struct oracle_norm {
    uint32_t kind; /* FFN_NORM_* */
    float eps, offset;
    const float *weight, *bias; /* NULL: absent */
} oracle_norm_t;

typedef struct oracle_scale {
    const float *values; /* NULL: 1 */
    int64_t count;       /* 1 or d_out */
    int tanh;            /* the flag */
} oracle_scale_t;

struct oracle_mixture; /* oracle_mixture.h */

typedef struct oracle_layer {
    int64_t d_model, d_ff, d_out;
    oracle_activation_t activation;
    float gate_max, up_limit, up_offset;
    const float *up, *gate, *down;                /* [out, in], contiguous; gate NULL: a dense layer */
    const float *up_bias, *gate_bias, *down_bias; /* NULL: absent */
    oracle_norm_t norm[4];
    uint32_t residual;
    oracle_scale_t branch_scale, residual_scale;
    const struct oracle_mixture *mixture; /* in place of the matrices; NULL: none */
} oracle_layer_t;

/* A row of numbers, each with its bound. */
typedef struct oracle_row {
    int64_t n;
    double *value;
    double *bound;
} oracle_row_t;

oracle_row_t oracle_row_make(int64_t n);
void oracle_row_free(oracle_row_t *row);

/* out = W in + bias; W is [out, in], bias NULL: none. */
void oracle_project(oracle_row_t *out, const float *weight, const float *bias, const oracle_row_t *in);

/* In place. */
void oracle_normalise(const oracle_norm_t *norm, oracle_row_t *row);

/* y = layer(x) for one token, from an input that has a bound. */
void oracle_run_row(const oracle_layer_t *layer, const oracle_row_t *x, oracle_row_t *y);

/* y[t] = layer(x[t]) and the bound of each number. x [tokens, d_model], residual [tokens, d_out] (with an external residual, else NULL), y and
 * bound [tokens, d_out], all contiguous. bound may be NULL. */
void oracle_run(const oracle_layer_t *layer, int64_t tokens, const double *x, const double *residual, double *y, double *bound);

/* One activation in float64. */
double oracle_activate(const oracle_activation_t *activation, double x);

/* The sum of the magnitudes of the terms that the activation's formula adds up: |act(x)| for all but xielu, whose terms cancel. */
double oracle_activation_terms(const oracle_activation_t *activation, double x);

/* float -> double, as the oracle wants its inputs. The caller frees it. */
double *oracle_widen(const float *values, int64_t n);

#endif
