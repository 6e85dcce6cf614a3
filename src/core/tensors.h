/* SPDX-License-Identifier: MIT
 * Lists of role-tagged tensors of the caller's. `experts` is 0 for a dense layer. */
#ifndef FFNI_TENSORS_H
#define FFNI_TENSORS_H

#include <ffn/ffn.h>

#include "core/roles.h"

/* The size of a role's dimension; 0 for EXTENT_NONE. EXTENT_ONE_OR_D_OUT needs the size that was given. */
int64_t ffni_extent(const sizes_t *sizes, extent_t extent, int64_t given);

/* Checks shape and address range of a bound tensor. */
ffn_status_t ffni_tensor_check(const sizes_t *sizes, const ffn_tensor_t *tensor);

/* Checks what is behind a tensor's pointers: data, quant, reserved. `name` is for the sentence, likewise below. */
ffn_status_t ffni_tensor_check_data(const ffn_tensor_t *tensor, const char *name);

/* The bytes from the lowest address of the view to the highest must be addresses, and strides multiples of 4. */
ffn_status_t ffni_tensor_check_addresses(const ffn_tensor_t *tensor, const char *name);

/* Experts that a tensor describes: those of a stack, else 1. */
int64_t ffni_tensor_experts(const ffn_tensor_t *tensor);

/* Refuses a list that is absent, or longer than that many experts can make it. None of its tensors is looked at. */
ffn_status_t ffni_tensors_check_list(const ffn_tensor_t *tensors, uint64_t count, int64_t experts);

/* Finds the first tensor of each role. Unknown roles are refused, doubled ones (of the same expert), and tensors that cannot be read at all (ndim,
 * dtype, data). */
ffn_status_t ffni_tensors_bind(const ffn_tensor_t *tensors, uint64_t count, int64_t experts, const ffn_tensor_t *bound[ROLE_LIMIT]);

/* Refuses a bound list in which a role is some experts' and not all's. */
ffn_status_t ffni_tensors_check_complete(const ffn_tensor_t *tensors, uint64_t count, int64_t experts);

/* Experts up to the last that a tensor describes. The list need not have been bound, but its length checked. */
int64_t ffni_tensors_experts(const ffn_tensor_t *tensors, uint64_t count);

#endif
