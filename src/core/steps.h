/* SPDX-License-Identifier: MIT
 * Steps of the forward pass on one row, the same for both engines. */
#ifndef FFNI_STEPS_H
#define FFNI_STEPS_H

#include "core/layer.h"

/* out = the norm of that slot (which the layer has) over the n numbers of `in`. */
void ffni_step_normalise(const ffn_layer_t *layer, int slot, int64_t n, float *out, const float *in);

/* Whether a row of the branch must be whole before the rest can be done: a norm follows. Without one, columns of y are independent. */
int ffni_step_needs_whole_branch(const ffn_layer_t *layer);

/* y = NORM_OUT(a * residual + c * NORM_BRANCH(branch + bias)); branch is overwritten. residual NULL: none. y may be the residual. */
void ffni_step_finish(const ffn_layer_t *layer, float *branch, const float *residual, float *y);

#endif
