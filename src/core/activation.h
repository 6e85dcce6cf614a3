/* SPDX-License-Identifier: MIT
 * From the names of activations to the few kernels and their parameters. */
#ifndef FFNI_ACTIVATION_H
#define FFNI_ACTIVATION_H

#include <ffn/ffn.h>

#include "kernels/kernels.h"

/* NULL for a number that is no activation. */
const char *ffni_activation_name(uint32_t activation);
uint32_t ffni_activation_from_name(const char *name); /* FFN_ACTIVATION_NONE if unknown */

/* Checks activation, alpha, beta and the gate's parameters. */
ffn_status_t ffni_activation_check(const ffn_layer_options_t *options, int gated);

/* What the kernels are given. The options have been checked. */
activation_t ffni_activation_resolve(const ffn_layer_options_t *options);

/* Takes xielu's learned scalars. */
void ffni_activation_learn(activation_t *activation, float alpha_p, float alpha_n);

#endif
