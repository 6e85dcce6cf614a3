/* SPDX-License-Identifier: MIT
 * Checks that the functions of routing share. */
#ifndef FFNI_MOE_CHECK_H
#define FFNI_MOE_CHECK_H

#include <ffn/ffn.h>

#include "core/router_options.h"

/* A contiguous array of a call. */
typedef struct moe_array {
    const char *name;
    const void *data;
    int64_t count, size; /* elements, and bytes of one, which its address is a multiple of */
    int required, written;
} moe_array_t;

/* Each is there if required, at a fit address, within the address space, and no written one overlaps another. */
ffn_status_t ffni_moe_check_arrays(const moe_array_t *arrays, int count);

/* Reads a caller's routing and checks its sizes; its arrays are the function's to check. */
ffn_status_t ffni_moe_read_routing(const ffn_moe_routing_t *given, ffn_moe_routing_t *routing);

/* Ids that are read: in range, and distinct in the row of a token that counts. */
ffn_status_t ffni_moe_check_ids(const ffn_moe_routing_t *routing);

/* One row of them. `what` and `row` are for the sentence: "token 3". */
ffn_status_t ffni_moe_check_row(const int32_t *ids, int64_t top_k, int64_t experts, const char *what, int64_t row);

/* Reads a caller's noise for that many rows. */
ffn_status_t ffni_moe_read_noise(const ffn_moe_noise_t *given, ffn_moe_noise_t *noise, int64_t rows, uint32_t first_site, uint32_t last_site);

/* Rows of arrays in a list of moe_array_t. */
#define MOE_IDS(routing, is_written) {"ids of the routing", (routing).ids, (routing).tokens * (routing).top_k, 4, 1, is_written}
#define MOE_WEIGHTS(routing) {"weights of the routing", (routing).weights, (routing).tokens * (routing).top_k, 4, 1, 1}
#define MOE_MASK(routing) {"mask of the routing", (routing).mask, (routing).tokens, 1, 0, 0}

#endif
