/* SPDX-License-Identifier: MIT
 *
 * The oracle of convolutional layers: forward and derivatives in float64, position by position and tap by tap, written from the formulas of ffn/ffn.h
 * and by the chain rule. It takes the activations, their derivatives and the dropout of the other oracles.
 */
#ifndef FFN_TEST_CONV_ORACLE_H
#define FFN_TEST_CONV_ORACLE_H

#include "support/oracle_backward.h"

typedef struct conv_oracle {
    int64_t d_model, d_ff, d_out;
    int64_t kernel[2], left[2];
    int separable[2];
    int scaled;   /* FFN_CONV_SCALE_BY_TAPS */
    int mask_all; /* FFN_CONV_MASK_ALL */
    oracle_activation_t activation;
    int64_t batch, length;
    const uint8_t *mask; /* [batch, length], contiguous; NULL: none */
    const oracle_masks_t *dropout;
    double *tensor[ORACLE_ROLES]; /* weights [out, in, taps] ([out, in] of separable ones), taps [channels, taps], biases; NULL: absent */
} conv_oracle_t;

/* Numbers in a tensor. */
int64_t conv_oracle_elements(const conv_oracle_t *oracle, int role);

/* y [batch, length, d_out] from x [batch, length, d_model]. */
void conv_oracle_forward(const conv_oracle_t *oracle, const double *x, double *y);

/* The derivatives of sum(d_y * y): by x, and by each tensor; written. */
void conv_oracle_backward(const conv_oracle_t *oracle, const double *x, const double *d_y, double *d_x, double *const gradient[ORACLE_ROLES]);

#endif
