/* SPDX-License-Identifier: MIT
 *
 * A convolutional layer as the tests describe it: made with random tensors in one of the layouts that files have, run, trained for a step, and held
 * against its oracle and the oracle against central differences of itself.
 *
 * How far a correct float32 computation may be from the oracle is measured on the oracle, as in train_case.h.
 */
#ifndef FFN_TEST_CONV_CASE_H
#define FFN_TEST_CONV_CASE_H

#include <stdbool.h>

#include "ffn/ffn.h"
#include "support/conv_oracle.h"
#include "support/guard.h"
#include "support/test.h"

typedef enum conv_layout {
    CONV_OUT_IN_TAPS, /* PyTorch's Conv1d */
    CONV_TAPS_IN_OUT, /* TensorFlow's conv1d */
    CONV_TAPS_OUT_IN,
    CONV_IN_OUT_TAPS,
    CONV_PADDED,   /* [out, in, taps] with gaps */
    CONV_REVERSED, /* [out, in, taps], each dimension backwards */
    CONV_LAYOUTS
} conv_layout_t;

typedef struct conv_case {
    int64_t d_model, d_ff, d_out; /* d_out 0: d_model */
    int64_t kernel[2];            /* 0: 1 */
    bool separable[2];
    uint32_t flags, padding, mask_kind, activation, engine;
    float alpha, beta;
    bool up_bias, down_bias;
    conv_layout_t layout;
    int64_t batch, length;
    bool masked; /* with a padding mask, of odd holes, its sequences apart */
    int64_t row_gap, sequence_gap; /* floats between the rows and sequences of x, y and their derivatives */
    uint32_t tape_flags;
    ffn_dropout_t dropout; /* struct_size 0: none */
    uint64_t seed;
} conv_case_t;

enum { CONV_ROLES = ORACLE_ROLES, CONV_TENSORS = 8 };

typedef struct conv_test {
    conv_case_t is; /* sizes filled in */
    ffn_conv_options_t options;
    ffn_tensor_t tensors[CONV_TENSORS];
    ffn_conv_t *conv;
    conv_oracle_t oracle; /* without its tensors */
    oracle_masks_t masks;
    uint64_t tensor_count;
    float *plain[CONV_ROLES];  /* contiguous, as the oracle has it; NULL: absent */
    float *stored[CONV_ROLES]; /* in the layout */
    int64_t x_floats, y_floats;
    int64_t x_stride[2], y_stride[2];
    uint8_t *mask;             /* [batch, length + 3], or NULL */
    uint8_t *oracle_mask;
    float *x, *y, *d_y, *d_x;  /* with gaps, against an inaccessible page */
    guard_buffer_t memory[4];
    ffn_tensor_t gradients[CONV_TENSORS];
    float *gradient[CONV_ROLES]; /* stored in the layout; gaps hold NaN */
} conv_test_t;

void conv_test_describe(conv_test_t *test, const conv_case_t *is); /* all but the library's layer */
void conv_test_create(conv_test_t *test);
void conv_test_make(conv_test_t *test, const conv_case_t *is);
void conv_test_free(conv_test_t *test);

/* The tensor's view in test->tensors; fails the test if there is none. */
ffn_tensor_t *conv_test_view(conv_test_t *test, uint32_t role);

ffn_conv_run_t conv_test_run(conv_test_t *test, ffn_tape_t *tape);
ffn_backward_t conv_test_backward(conv_test_t *test, ffn_tape_t *tape);

/* Forward; and forward with a tape, then backward with every gradient. */
void conv_test_forward(conv_test_t *test, ffn_context_t *context);
void conv_test_step(conv_test_t *test, ffn_context_t *context);

/* The rows of y without their gaps; the caller frees them. And a gradient as the oracle has it. */
float *conv_test_output(const conv_test_t *test);
float *conv_test_gradient(const conv_test_t *test, int role);

/* Fail the test unless y is as the oracle's; y and all gradients; the oracle's gradients as its differences. */
void assert_conv_as_oracle(conv_test_t *test);
void assert_conv_trained_as_oracle(conv_test_t *test);
void assert_conv_oracle_as_differences(conv_test_t *test);

/* Fails the test if a bit of y, or (trained) of a gradient or d_x, differs. */
void assert_same_conv(const conv_test_t *expected, const conv_test_t *got, bool trained, const char *what);

#endif
