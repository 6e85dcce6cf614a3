/* SPDX-License-Identifier: MIT
 * The forward pass of the blas engine. */
#ifndef FFNI_BLAS_H
#define FFNI_BLAS_H

#include "core/forward.h"

/* As in core/forward.h. */
ffn_status_t ffni_blas_forward(const forward_t *forward);
ffn_status_t ffni_blas_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

/* Bytes of stack that OpenBLAS may use on the calling thread for so many tokens; 0: little. */
uint64_t ffni_blas_stack(const ffn_layer_t *layer, int64_t tokens);

#endif
