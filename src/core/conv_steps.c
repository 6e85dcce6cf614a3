/* SPDX-License-Identifier: MIT
 * The steps of a convolutional layer on one row, the same in every pass. */
#include "core/conv_pass.h"

#include <string.h>

static int prepares_hidden(const conv_pass_t *pass) {
    return pass->conv->part[FIRST].scale || ffni_dropout_acts(pass->dropout, FFN_DROPOUT_PRE_ACTIVATION);
}

static void drop(const conv_pass_t *pass, int site, int64_t row, int64_t n, float *v) {
    ffni_drop(pass->dropout, pass->conv->kernels->training, site, row, n, v);
}

void ffni_conv_prepare_hidden(const conv_pass_t *pass, int64_t row, float *hidden) {
    const convolution_t *first = &pass->conv->part[FIRST];
    if (!prepares_hidden(pass)) return;
    if (first->bias || first->scale) pass->conv->kernels->combine(first->out, hidden, hidden, first->bias, first->scale, NULL, NULL);
    drop(pass, FFN_DROPOUT_PRE_ACTIVATION, row, first->out, hidden);
}

const float *ffni_conv_hidden_bias(const conv_pass_t *pass) {
    return prepares_hidden(pass) ? NULL : pass->conv->part[FIRST].bias;
}

void ffni_conv_activate(const conv_pass_t *pass, int64_t row, float *act, const float *hidden) {
    const activation_t *activation = &pass->conv->activation;
    pass->conv->kernels->activate[activation->kind](activation, pass->conv->sizes.d_ff, act, hidden, ffni_conv_hidden_bias(pass));
    ffni_conv_drop_hidden(pass, row, act);
}

void ffni_conv_drop_hidden(const conv_pass_t *pass, int64_t row, float *act) {
    drop(pass, FFN_DROPOUT_ACTIVATION, row, pass->conv->sizes.d_ff, act);
    drop(pass, FFN_DROPOUT_HIDDEN, row, pass->conv->sizes.d_ff, act);
}

void ffni_conv_drop_output(const conv_pass_t *pass, int64_t row, float *y) {
    int64_t d_out = pass->conv->sizes.d_out;
    drop(pass, FFN_DROPOUT_BRANCH, row, d_out, y);
    ffni_drop_path(pass->dropout, pass->conv->kernels->training, row, d_out, y);
    if (pass->conv->mask == FFN_CONV_MASK_ALL && ffni_conv_is_padding(pass, row)) memset(y, 0, (size_t)d_out * sizeof *y);
}
