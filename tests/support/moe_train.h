/* SPDX-License-Identifier: MIT
 *
 * A training step of a mixture of experts, and its loss in float64, written from the formulas with every tensor as a variable: central differences of it
 * are the gradients that the library's are held against. The choice of experts is taken from the library's run, and stays.
 */
#ifndef FFN_TEST_MOE_TRAIN_H
#define FFN_TEST_MOE_TRAIN_H

#include "support/moe_case.h"

typedef struct moe_train_case {
    moe_case_t layer;
    int64_t batch, length;
    uint32_t tape_flags;
    bool given;            /* ids and weights are the run's: made at random */
    bool given_ids;        /* ids alone are, and the layer weighs them */
    bool masked;           /* every third token is padding */
    bool drops_after;      /* a capacity drops choices whose weights were normalised before */
    ffn_dropout_t dropout; /* struct_size 0: none */
} moe_train_case_t;

typedef struct moe_train {
    moe_train_case_t is;
    test_moe_t test;
    int64_t tokens, top_k;
    float *x, *residual, *d_y, *y, *d_x, *d_residual;
    float *weights, *logits, *d_weights, *d_scores, *d_logits;
    int32_t *ids, *made_ids;
    uint8_t *mask;
    int64_t *counts;
    float *gradient[ROLES]; /* as test.plain: of experts one after the other */
    ffn_tensor_t views[64];
    uint64_t view_count;
} moe_train_t;

/* A trainable layer and random data; outputs are NaN. */
void moe_train_make(moe_train_t *train, const moe_train_case_t *is);
void moe_train_free(moe_train_t *train);

static inline bool moe_train_is_padding(const moe_train_t *train, int64_t token)
{
    return train->is.masked && token % 3 == 1;
}

/* Elements of a role, of all experts together. */
int64_t moe_train_elements(const moe_train_t *train, int role);

ffn_status_t moe_train_forward(moe_train_t *train, ffn_context_t *context, ffn_tape_t *tape);
ffn_status_t moe_train_backward(moe_train_t *train, ffn_context_t *context, ffn_tape_t *tape, uint32_t flags);
void moe_train_step(moe_train_t *train, ffn_context_t *context); /* both, with a tape of the case's flags */

/* Fails the test unless y, d_weights and all gradients are those of the formulas. */
void assert_moe_trained(moe_train_t *train);

/* Fails the test, naming the tensor, if two trains' outputs differ in a bit. */
void assert_same_moe_training(const moe_train_t *expected, const moe_train_t *got, const char *what);

/* In moe_train_loss.c: the variables of the loss. */
typedef struct moe_variables {
    double *role[ROLES], *x, *residual, *weights; /* weights: of a given routing */
    double *y;                                   /* out: [tokens, d_out]; NULL: not wanted */
} moe_variables_t;

double moe_train_loss(const moe_train_t *train, const moe_variables_t *variables);

/* The ids by which weights were made, where they differ from those at the end. */
void moe_train_make_ids(moe_train_t *train);

#endif
