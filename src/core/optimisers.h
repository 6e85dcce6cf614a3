/* SPDX-License-Identifier: MIT
 * The optimisers' steps, spread over a context's threads. */
#ifndef FFNI_OPTIMISERS_H
#define FFNI_OPTIMISERS_H

#include "core/context.h"
#include "kernels/training.h"

void ffni_sgd(ffn_context_t *context, const training_table_t *kernels, const sgd_t *sgd, int64_t n, float *weight, const float *gradient,
              float *velocity);
void ffni_adamw(ffn_context_t *context, const training_table_t *kernels, const adamw_t *adamw, int64_t n, float *weight, const float *gradient,
                float *first, float *second);

/* *sum = the sum of v[i]^2, in pieces of fixed size: the same whatever the threads. Needs scratch memory for large arrays: FFN_NO_MEMORY. */
ffn_status_t ffni_sum_of_squares(ffn_context_t *context, const training_table_t *kernels, int64_t n, const float *v, double *sum);
void ffni_scale(ffn_context_t *context, const training_table_t *kernels, int64_t n, float *v, float factor);

#endif
