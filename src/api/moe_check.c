/* SPDX-License-Identifier: MIT
 * Checks that the functions of routing share: arrays, sizes, ids. */
#include "api/moe_check.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/structs.h"

#include <inttypes.h>

static ffn_status_t check_array(const moe_array_t *array) {
    int64_t bytes;
    if (!array->data && (!array->required || !array->count)) return FFN_OK;
    if (!array->data) return ffni_fail(FFN_INVALID, "%s is NULL", array->name);
    if ((uintptr_t)array->data % (uint64_t)array->size)
        return ffni_fail(FFN_INVALID, "%s is not at a multiple of %" PRId64 " bytes", array->name, array->size);
    if (!checked_multiply(array->count, array->size, &bytes) || (uint64_t)bytes > UINTPTR_MAX - (uintptr_t)array->data)
        return ffni_fail(FFN_INVALID, "%s reaches beyond the address space: %" PRId64 " elements", array->name, array->count);
    return FFN_OK;
}

static int overlap(const moe_array_t *a, const moe_array_t *b) {
    uintptr_t from_a = (uintptr_t)a->data, from_b = (uintptr_t)b->data;
    if (!a->data || !b->data || !a->count || !b->count || !(a->written || b->written)) return 0;
    return from_a < from_b + (uint64_t)(b->count * b->size) && from_b < from_a + (uint64_t)(a->count * a->size);
}

ffn_status_t ffni_moe_check_arrays(const moe_array_t *arrays, int count) {
    for (int i = 0; i < count; i++) {
        ffn_status_t status = check_array(&arrays[i]);
        if (status) return status;
        for (int j = 0; j < i; j++)
            if (overlap(&arrays[i], &arrays[j])) return ffni_fail(FFN_INVALID, "%s overlaps %s", arrays[j].name, arrays[i].name);
    }
    return FFN_OK;
}

ffn_status_t ffni_moe_read_routing(const ffn_moe_routing_t *given, ffn_moe_routing_t *routing) {
    ffn_status_t status = ffni_struct_read(routing, sizeof *routing, given, "ffn_moe_routing_t");
    if (status) return status;
    if (routing->flags) return ffni_fail(FFN_INVALID, "flags of the routing is %" PRIu32 ", must be 0", routing->flags);
    status = ffni_moe_check_range("tokens", routing->tokens, 0, MOE_TOKENS_MOST);
    if (!status) status = ffni_moe_check_range("experts", routing->experts, 1, FFN_MOE_EXPERTS_MOST);
    if (status) return status;
    if (routing->top_k >= 1 && routing->top_k <= routing->experts) return FFN_OK;
    return ffni_fail(FFN_INVALID, "top_k is %" PRId64 ", must be 1 to %" PRId64 ", the number of experts", routing->top_k, routing->experts);
}

ffn_status_t ffni_moe_check_row(const int32_t *ids, int64_t top_k, int64_t experts, const char *what, int64_t row) {
    uint64_t seen[FFN_MOE_EXPERTS_MOST / 64] = {0};
    for (int64_t i = 0; i < top_k; i++) {
        int32_t id = ids[i];
        if (id == FFN_MOE_NO_EXPERT) continue;
        if (id < 0 || id >= experts)
            return ffni_fail(FFN_INVALID, "an id of %s %" PRId64 " is %" PRId32 ", must be 0 to %" PRId64 " or FFN_MOE_NO_EXPERT", what, row, id,
                             experts - 1);
        if (seen[id / 64] >> id % 64 & 1) return ffni_fail(FFN_INVALID, "%s %" PRId64 " has expert %" PRId32 " twice", what, row, id);
        seen[id / 64] |= UINT64_C(1) << id % 64;
    }
    return FFN_OK;
}

ffn_status_t ffni_moe_check_ids(const ffn_moe_routing_t *routing) {
    for (int64_t token = 0; token < routing->tokens; token++) {
        if (routing->mask && !routing->mask[token]) continue;
        ffn_status_t status = ffni_moe_check_row(routing->ids + token * routing->top_k, routing->top_k, routing->experts, "token", token);
        if (status) return status;
    }
    return FFN_OK;
}
