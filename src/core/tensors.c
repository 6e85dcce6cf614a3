/* SPDX-License-Identifier: MIT
 * Checking role-tagged tensors. */
#include "core/tensors.h"

#include "base/checked.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

int64_t ffni_extent(const sizes_t *sizes, extent_t extent, int64_t given) {
    return extent == EXTENT_ONE_OR_D_OUT ? (given == 1 ? 1 : sizes->of[EXTENT_D_OUT]) : sizes->of[extent];
}

static const char *extent_name(const sizes_t *sizes, extent_t extent) {
    int latent = sizes->of[EXTENT_D_LATENT] > 0;
    switch (extent) {
    case EXTENT_D_MODEL: return " (d_model)";
    case EXTENT_D_FF: return " (d_ff)";
    case EXTENT_D_OUT: return " (d_out)";
    case EXTENT_EXPERT_IN: return latent ? " (d_latent)" : " (d_model)";
    case EXTENT_EXPERT_OUT: return latent ? " (d_latent)" : " (d_out)";
    case EXTENT_CHOICES: return " (experts and identity experts)";
    case EXTENT_D_SHARED: return " (d_shared)";
    case EXTENT_D_LATENT: return " (d_latent)";
    case EXTENT_ONE_OR_D_OUT: return " (d_out) or 1";
    case EXTENT_ONE:
    case EXTENT_NONE:
    case EXTENTS: break;
    }
    return "";
}

/* "the up weight of expert 3" */
typedef struct tensor_name {
    char text[64];
} tensor_name_t;

static tensor_name_t name_of(int64_t experts, uint32_t role, int64_t expert) {
    tensor_name_t name;
    if (experts && ffni_roles[role].owner == OWNER_EXPERT)
        snprintf(name.text, sizeof name.text, "%s of expert %" PRId64, ffni_roles[role].name, expert);
    else
        snprintf(name.text, sizeof name.text, "%s", ffni_roles[role].name);
    return name;
}

static int is_stack(const ffn_tensor_t *tensor) {
    return tensor->ndim == ffni_roles[tensor->role].ndim + 1;
}

int64_t ffni_tensor_experts(const ffn_tensor_t *tensor) {
    return is_stack(tensor) ? tensor->shape[0] : 1;
}

/* ------------------------------------------------------------------------ Form */

static ffn_status_t check_owner(const ffn_tensor_t *tensor, int64_t experts) {
    const role_t *role = &ffni_roles[tensor->role];
    if (!experts && role->owner == OWNER_MIXTURE) return ffni_fail(FFN_INVALID, "%s is given, but the layer is no mixture of experts", role->name);
    if (tensor->expert && (!experts || role->owner != OWNER_EXPERT))
        return ffni_fail(FFN_INVALID, "expert of %s is %" PRIu32 ", must be 0: %s", role->name, tensor->expert,
                         experts ? "it is no expert's own" : "the layer is no mixture of experts");
    if (experts && role->owner == OWNER_EXPERT && tensor->expert >= experts)
        return ffni_fail(FFN_INVALID, "expert of %s is %" PRIu32 ", must be 0 to %" PRId64, role->name, tensor->expert, experts - 1);
    if (tensor->ndim == role->ndim) return FFN_OK;
    if (!experts || role->owner != OWNER_EXPERT || !is_stack(tensor))
        return ffni_fail(FFN_INVALID, "ndim of %s is %" PRIu32 ", must be %" PRIu32 "%s", role->name, tensor->ndim, role->ndim,
                         experts && role->owner == OWNER_EXPERT ? ", or one more for a stack of experts" : "");
    if (tensor->shape[0] < 1 || tensor->shape[0] > experts - tensor->expert)
        return ffni_fail(FFN_INVALID, "shape[0] of %s is %" PRId64 " experts from expert %" PRIu32 " on, must be 1 to %" PRId64, role->name,
                         tensor->shape[0], tensor->expert, experts - tensor->expert);
    return FFN_OK;
}

ffn_status_t ffni_tensor_check_data(const ffn_tensor_t *tensor, const char *name) {
    if (!tensor->data) return ffni_fail(FFN_INVALID, "data of %s is NULL", name);
    if ((uintptr_t)tensor->data % 4) return ffni_fail(FFN_INVALID, "data of %s is not at a multiple of 4 bytes", name);
    if (tensor->quant) return ffni_fail(FFN_UNSUPPORTED, "quant of %s is given, must be NULL in this version", name);
    for (int i = 0; i < 4; i++)
        if (tensor->reserved[i]) return ffni_fail(FFN_UNSUPPORTED, "reserved[%d] of %s is not 0", i, name);
    return FFN_OK;
}

static ffn_status_t check_form(const ffn_tensor_t *tensor, int64_t experts) {
    const role_t *role = &ffni_roles[tensor->role];
    if (tensor->dtype != FFN_DTYPE_F32)
        return ffni_fail(FFN_UNSUPPORTED, "dtype of %s is %" PRIu32 ", must be FFN_DTYPE_F32 in this version", role->name, tensor->dtype);
    ffn_status_t status = check_owner(tensor, experts);
    return status ? status : ffni_tensor_check_data(tensor, role->name);
}

/* ----------------------------------------------------------------------- Shape */

static ffn_status_t check_shape(const sizes_t *sizes, const ffn_tensor_t *tensor) {
    const role_t *role = &ffni_roles[tensor->role];
    uint32_t stacked = (uint32_t)is_stack(tensor);
    tensor_name_t name = name_of(sizes->experts, tensor->role, tensor->expert);
    for (uint32_t i = 0; i < 4; i++) {
        int64_t size = tensor->shape[i];
        if (i >= tensor->ndim && (size || tensor->stride[i]))
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] or stride[%" PRIu32 "] of %s is not 0, but its ndim is %" PRIu32, i, i, name.text,
                             tensor->ndim);
        if (i >= tensor->ndim || i < stacked) continue;
        extent_t extent = role->shape[i - stacked];
        int64_t right = ffni_extent(sizes, extent, size);
        if (size != right)
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] of %s is %" PRId64 ", must be %" PRId64 "%s", i, name.text, size, right,
                             extent_name(sizes, extent));
    }
    return FFN_OK;
}

ffn_status_t ffni_tensor_check_addresses(const ffn_tensor_t *tensor, const char *name) {
    int64_t below = 0, above = 4, contiguous = 4;
    int given = tensor->stride[0] || tensor->stride[1] || tensor->stride[2] || tensor->stride[3];
    for (uint32_t i = tensor->ndim; i-- > 0;) {
        int64_t stride = given ? tensor->stride[i] : contiguous;
        int64_t reach, *side = stride < 0 ? &below : &above;
        if (!given && !checked_multiply(contiguous, tensor->shape[i], &contiguous)) goto beyond;
        if (tensor->shape[i] == 1) continue;
        if (stride % 4)
            return ffni_fail(FFN_INVALID, "stride[%" PRIu32 "] of %s is %" PRId64 " bytes, must be a multiple of 4", i, name, stride);
        if (!checked_multiply(tensor->shape[i] - 1, stride, &reach) || !checked_add(*side, reach, side)) goto beyond;
    }
    if (below != INT64_MIN && (uintptr_t)tensor->data >= (uint64_t)-below && (uint64_t)above <= UINTPTR_MAX - (uintptr_t)tensor->data)
        return FFN_OK;
beyond:
    return ffni_fail(FFN_INVALID, "the strides of %s reach beyond the address space", name);
}

ffn_status_t ffni_tensor_check(const sizes_t *sizes, const ffn_tensor_t *tensor) {
    ffn_status_t status = check_shape(sizes, tensor);
    if (!status) status = ffni_tensor_check_addresses(tensor, ffni_roles[tensor->role].name);
    return status;
}

/* ------------------------------------------------------------------------ List */

enum { EXPERT_WORDS = FFN_MOE_EXPERTS_MOST / 64 };

/* Which experts of each role were seen. */
typedef struct seen {
    uint64_t expert[ROLE_LIMIT][EXPERT_WORDS];
} seen_t;

static int has_seen(const seen_t *seen, uint32_t role, int64_t expert) {
    return (int)(seen->expert[role][expert / 64] >> expert % 64 & 1);
}

/* The first expert that has it already, or -1. */
static int64_t see(seen_t *seen, const ffn_tensor_t *tensor) {
    for (int64_t expert = tensor->expert; expert < tensor->expert + ffni_tensor_experts(tensor); expert++) {
        if (has_seen(seen, tensor->role, expert)) return expert;
        seen->expert[tensor->role][expert / 64] |= UINT64_C(1) << expert % 64;
    }
    return -1;
}

static uint64_t most_tensors(int64_t experts) {
    return ROLE_LIMIT - 1 + EXPERT_ROLES * (uint64_t)experts;
}

ffn_status_t ffni_tensors_check_list(const ffn_tensor_t *tensors, uint64_t count, int64_t experts) {
    if (count && !tensors) return ffni_fail(FFN_INVALID, "tensors is NULL, but tensor_count is %" PRIu64, count);
    if (count > most_tensors(experts))
        return ffni_fail(FFN_INVALID, "tensor_count is %" PRIu64 ", must be at most %" PRIu64 ": each role once%s", count, most_tensors(experts),
                         experts ? " for each expert" : "");
    return FFN_OK;
}

ffn_status_t ffni_tensors_bind(const ffn_tensor_t *tensors, uint64_t count, int64_t experts, const ffn_tensor_t *bound[ROLE_LIMIT]) {
    seen_t seen = {{{0}}};
    ffn_status_t status = ffni_tensors_check_list(tensors, count, experts);
    if (status) return status;
    for (int role = 0; role < ROLE_LIMIT; role++) bound[role] = NULL;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t role = tensors[i].role;
        if (role >= ROLE_LIMIT || !ffni_roles[role].name)
            return ffni_fail(FFN_INVALID, "role of tensors[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_ROLE_*", i, role);
        status = check_form(&tensors[i], experts);
        if (status) return status;
        int64_t twice = see(&seen, &tensors[i]);
        if (twice >= 0)
            return ffni_fail(FFN_INVALID, "%s is given twice, the second time in tensors[%" PRIu64 "]", name_of(experts, role, twice).text, i);
        if (!bound[role]) bound[role] = &tensors[i];
    }
    return FFN_OK;
}

ffn_status_t ffni_tensors_check_complete(const ffn_tensor_t *tensors, uint64_t count, int64_t experts) {
    seen_t seen = {{{0}}};
    for (uint64_t i = 0; i < count; i++) see(&seen, &tensors[i]);
    for (uint32_t role = 0; role < ROLE_LIMIT; role++) {
        int64_t given = 0, missing = -1;
        if (ffni_roles[role].owner != OWNER_EXPERT || !ffni_roles[role].name) continue;
        for (int64_t expert = experts - 1; expert >= 0; expert--) {
            if (has_seen(&seen, role, expert)) given++;
            else missing = expert;
        }
        if (given && given < experts)
            return ffni_fail(FFN_INVALID, "%s is missing: %" PRId64 " of %" PRId64 " experts have one", name_of(experts, role, missing).text, given,
                             experts);
    }
    return FFN_OK;
}

int64_t ffni_tensors_experts(const ffn_tensor_t *tensors, uint64_t count) {
    int64_t experts = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t role = tensors[i].role;
        if (role >= ROLE_LIMIT || ffni_roles[role].owner != OWNER_EXPERT) continue;
        int64_t size = ffni_tensor_experts(&tensors[i]);
        experts = maximum(experts, (int64_t)tensors[i].expert + (size < 1 || size > FFN_MOE_EXPERTS_MOST ? 1 : size));
    }
    return experts;
}
