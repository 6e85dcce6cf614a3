/* SPDX-License-Identifier: MIT
 * What is particular to the backward pass of a mixture of experts. */
#ifndef FFNI_MOE_TRAINING_H
#define FFNI_MOE_TRAINING_H

#include "core/training.h"

/* Refuses dropout whose streams are too short for the layer's experts. */
ffn_status_t ffni_moe_check_dropout(const ffn_layer_t *layer, const dropout_t *dropout);

/* Reads given->moe into the pass, whose tape has been checked. */
ffn_status_t ffni_moe_read_backward(const ffn_backward_t *given, backward_t *backward);

/* Checks its arrays, against each other and the rows of the pass, which has tokens. */
ffn_status_t ffni_moe_check_backward(const backward_t *backward);

#endif
