/* SPDX-License-Identifier: MIT
 * The backward pass of a convolutional layer. */
#ifndef FFNI_CONV_BACKWARD_H
#define FFNI_CONV_BACKWARD_H

#include "core/conv_forward.h"
#include "core/conv_gradients.h"

typedef struct conv_backward {
    conv_pass_t pass; /* of the run on the tape */
    ffn_tape_t *tape;
    rows_t d_y, d_x; /* base NULL: not wanted */
    conv_gradients_t *gradients;
} conv_backward_t;

/* The backward pass for more than 0 rows. FFN_NO_MEMORY: nothing was written. */
ffn_status_t ffni_conv_backward(const conv_backward_t *backward);

/* Bytes of scratch memory that it needs for any number of rows up to `count`, weights of odd layouts aside. */
ffn_status_t ffni_conv_backward_scratch(const ffn_conv_t *conv, const ffn_context_t *context, int64_t count, uint64_t *bytes);

#endif
