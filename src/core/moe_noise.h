/* SPDX-License-Identifier: MIT
 * Noise in the training of routers. All arguments are checked. */
#ifndef FFNI_MOE_NOISE_H
#define FFNI_MOE_NOISE_H

#include "core/context.h"
#include "core/rows.h"
#include "kernels/kernels.h"

/* out = in times uniform numbers around 1. */
void ffni_moe_jitter(ffn_context_t *context, const kernel_table_t *kernels, const ffn_moe_noise_t *noise, int64_t width, const rows_t *in,
                     const rows_t *out);

/* logits [tokens, experts] += (size + softplus(noise_logits)) * normal numbers. noise_logits NULL: size alone. */
void ffni_moe_add_noise(ffn_context_t *context, const ffn_moe_noise_t *noise, int64_t tokens, int64_t experts, const float *noise_logits,
                        float *logits);

/* d_noise_logits = the derivatives of that by noise_logits, times d_logits; or added to what it holds. */
void ffni_moe_add_noise_backward(ffn_context_t *context, const ffn_moe_noise_t *noise, int64_t tokens, int64_t experts, const float *noise_logits,
                                 const float *d_logits, float *d_noise_logits);

/* The number u in (0, 1) in a column of a row. */
double ffni_moe_noise_number(const ffn_moe_noise_t *noise, int64_t row, int64_t column);

#endif
