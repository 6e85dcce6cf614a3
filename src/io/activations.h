/* SPDX-License-Identifier: MIT
 * The names of activations in config files. */
#ifndef FFNIO_ACTIVATIONS_H
#define FFNIO_ACTIVATIONS_H

#include "io/error.h"

/* The FFN_ACTIVATION_* of a name: of transformers' ACT2FN, of libffn, or of a gated unit ("swiglu"); "gated-" in front, T5's word, is passed over.
 * FFN_ACTIVATION_NONE: not known. */
uint32_t ffnio_activation(const char *name);

/* All known names, separated by ", ". */
void ffnio_activation_names(char *text, size_t size);

#endif
