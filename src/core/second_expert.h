/* SPDX-License-Identifier: MIT
 * The policies for second choices. All arguments are checked. */
#ifndef FFNI_SECOND_EXPERT_H
#define FFNI_SECOND_EXPERT_H

#include <ffn/ffn.h>

void ffni_second_expert(const ffn_moe_second_options_t *options, const float *logits, const ffn_moe_routing_t *routing);

#endif
