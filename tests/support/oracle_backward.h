/* SPDX-License-Identifier: MIT
 *
 * The oracle of training: the layer with dropout and its derivatives in float64, written from the formulas of ffn/ffn.h alone and by the chain rule, one
 * token after the other.
 */
#ifndef FFN_TEST_ORACLE_BACKWARD_H
#define FFN_TEST_ORACLE_BACKWARD_H

#include "ffn/ffn.h"
#include "support/oracle.h"

enum { ORACLE_ROLES = 64 };

/* What dropout multiplies with: 0, or 1 / (1 - p). Sites 0 to 2 [tokens, d_ff], site 3 [tokens, d_out], 4 [tokens]; NULL: 1. */
typedef struct oracle_masks {
    double *site[5];
} oracle_masks_t;

/* From the header's words: Philox by counters of (site, column, row, step, layer). The caller frees each site. */
oracle_masks_t oracle_masks_make(const ffn_dropout_t *dropout, int64_t batch, int64_t length, int64_t d_ff, int64_t d_out);
void oracle_masks_free(oracle_masks_t *masks);

/* y = layer(x) with dropout. All [tokens, width], contiguous; residual as in oracle_run. */
void oracle_train(const oracle_layer_t *layer, const oracle_masks_t *masks, int64_t tokens, const double *x, const double *residual, double *y);

/* The derivatives of sum(d_y * y), added to what is there. role[r] in the shape of the tensor, contiguous; NULL: not wanted. */
typedef struct oracle_gradients {
    double *role[ORACLE_ROLES];
    double *x, *residual;
    double terms[ORACLE_ROLES]; /* of scales and xielu's scalars: the sum of the terms' sizes, which may cancel (a scale before a norm has derivative 0) */
} oracle_gradients_t;

void oracle_backward(const oracle_layer_t *layer, const oracle_masks_t *masks, int64_t tokens, const double *x, const double *residual,
                     const double *d_y, oracle_gradients_t *gradients);

/* act'(x). */
double oracle_slope(const oracle_activation_t *activation, double x);

#endif
