/* SPDX-License-Identifier: MIT
 *
 * Training a test's layer for one step: forward with a tape and backward, held against the oracle of training and against central differences of its forward.
 *
 * How far a correct float32 computation may be from the oracle is measured on the oracle: it is as far as the oracle's own gradients move when every input
 * and weight is moved by some roundings (backward stability), times a small factor.
 */
#ifndef FFN_TEST_TRAIN_CASE_H
#define FFN_TEST_TRAIN_CASE_H

#include "support/layer_case.h"
#include "support/layer_check.h"
#include "support/oracle_backward.h"

typedef struct train_case {
    layer_case_t layer;
    int64_t batch, length;
    uint32_t tape_flags;
    ffn_dropout_t dropout; /* struct_size 0: none */
} train_case_t;

typedef struct train {
    train_case_t is;
    test_layer_t test;
    int64_t tokens;
    oracle_masks_t masks;
    float *x, *residual, *d_y;           /* inputs, [tokens, width] */
    float *y, *d_x, *d_residual;         /* outputs */
    float *gradient[ROLES];              /* outputs, in the shape of each tensor, contiguous; NULL: the layer has none */
    ffn_tensor_t views[MAX_TENSORS];     /* of the gradients */
    uint64_t view_count;
} train_t;

/* Makes a trainable layer and random data; outputs are filled with NaN. */
void train_make(train_t *train, const train_case_t *is);
void train_free(train_t *train);

int64_t train_elements(const train_t *train, int role);

/* Forward with the tape, then backward with every gradient, into the train's arrays. */
void train_forward(train_t *train, ffn_context_t *context, ffn_tape_t *tape);
ffn_status_t train_backward(train_t *train, ffn_context_t *context, ffn_tape_t *tape, uint32_t flags);
void train_step(train_t *train, ffn_context_t *context); /* both, with a tape of the case's flags */

/* Fails the test unless y and all gradients are as the oracle's. */
void assert_trained_as_oracle(train_t *train);

/* Fails the test unless the oracle's gradients are those of its forward by central differences. */
void assert_oracle_as_differences(train_t *train);

/* Fails the test, naming the tensor, if two trains' outputs differ in a bit. */
void assert_same_training(const train_t *expected, const train_t *got, const char *what);

/* train_make, step, both comparisons, train_free. */
void check_training(const train_case_t *is);

#endif
