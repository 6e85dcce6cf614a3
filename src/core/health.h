/* SPDX-License-Identifier: MIT
 * Looking at the numbers of tensors of any shape and strides. */
#ifndef FFNI_HEALTH_H
#define FFNI_HEALTH_H

#include "core/context.h"
#include "kernels/training.h"

/* The numbers of a tensor in their logical order, the last dimension fastest. Dimensions that lie one behind the other are one. */
typedef struct numbers {
    const char *data;
    int64_t count;
    int ndim;
    int64_t shape[4], stride[4]; /* bytes */
} numbers_t;

/* Checks a tensor whose role does not matter; `name` is for the sentences. */
ffn_status_t ffni_numbers_read(numbers_t *numbers, const ffn_tensor_t *tensor, const char *name);

/* FFN_NO_MEMORY: scratch memory. */
ffn_status_t ffni_survey(ffn_context_t *context, const training_table_t *kernels, const numbers_t *numbers, survey_t *survey);

/* The squared norms of after - before and of before, which have one shape. */
ffn_status_t ffni_movement(ffn_context_t *context, const training_table_t *kernels, const numbers_t *before, const numbers_t *after, double *moved,
                           double *weight);

#endif
