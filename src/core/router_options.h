/* SPDX-License-Identifier: MIT
 * The checks of routers' options, for the functions of routing and for the layer. */
#ifndef FFNI_ROUTER_OPTIONS_H
#define FFNI_ROUTER_OPTIONS_H

#include <ffn/ffn.h>

enum { MOE_TOKENS_MOST = INT32_MAX };

/* "experts is 0, must be 1 to 512" */
ffn_status_t ffni_moe_check_range(const char *name, int64_t value, int64_t least, int64_t most);

/* Everything but struct_size. */
ffn_status_t ffni_router_check(const ffn_moe_router_options_t *options, int64_t experts, int64_t top_k);
ffn_status_t ffni_second_check(const ffn_moe_second_options_t *options);
ffn_status_t ffni_capacity_check(const ffn_moe_capacity_options_t *options);

#endif
