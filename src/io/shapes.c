/* SPDX-License-Identifier: MIT
 * The shapes of a description's tensors: they must agree with each other. */
#include "io/roles.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ffn_status_t ffnio_trouble(trouble_t *trouble, ffn_status_t status, const char *format, ...) {
    va_list arguments;
    trouble->status = status;
    va_start(arguments, format);
    vsnprintf(trouble->text, sizeof trouble->text, format, arguments);
    va_end(arguments);
    return status;
}

/* A vector's elements, of a stack one expert's. -1: it is no such stack. */
static int64_t vector_length(const stored_tensor_t *tensor, uint32_t experts) {
    if (!experts) return tensor->elements;
    if (!tensor->ndim || tensor->elements % experts || tensor->ndim > 2) return -1;
    return tensor->ndim == 2 && tensor->shape[0] != (int64_t)experts ? -1 : tensor->elements / experts;
}

int ffnio_matrix_shape(const stored_tensor_t *tensor, uint32_t layout, uint32_t experts, int64_t *out, int64_t *in) {
    const int64_t *shape = tensor->shape;
    uint32_t first = 0, end = tensor->ndim;
    int64_t rows;
    *out = *in = 0;
    if (!experts) {
        while (end - first > 2 && shape[first] == 1) first++;
        while (end - first > 2 && shape[end - 1] == 1) end--;
    } else if (end == 3 && shape[0] == (int64_t)experts) {
        first = 1;
    }
    if (end - first != 2) return 0;
    rows = shape[first];
    if (experts && !first) {
        if (rows % experts) return 0;
        rows /= experts; /* folded */
    }
    *out = layout == FFN_LAYOUT_IN_OUT ? shape[first + 1] : rows;
    *in = layout == FFN_LAYOUT_IN_OUT ? rows : shape[first + 1];
    return 1;
}

/* "[3, 4]", shortened where a tensor has very many dimensions. */
typedef struct shape_text {
    char text[96];
} shape_text_t;

static shape_text_t shape_of(const stored_tensor_t *tensor) {
    shape_text_t shape = {"["};
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        size_t length = strlen(shape.text);
        if (length > 64) {
            snprintf(shape.text + length, sizeof shape.text - length, ", ...");
            break;
        }
        snprintf(shape.text + length, sizeof shape.text - length, "%s%" PRId64, i ? ", " : "", tensor->shape[i]);
    }
    strcat(shape.text, "]");
    return shape;
}

/* Elements along the output dimension that remain of `whole` when a part is taken; -1: it has no such part. */
static int64_t part_of(int64_t whole, uint32_t part) {
    return part == FFN_PART_WHOLE ? whole : whole % 2 ? -1 : whole / 2;
}

/* " (of each of 8 experts)", or nothing. */
static const char *stack_text(const ffn_model_binding_t *binding, char text[48]) {
    *text = 0;
    if (binding->experts) snprintf(text, 48, " (of each of %" PRIu32 " experts)", binding->experts);
    return text;
}

static ffn_status_t check_matrix(const stored_tensor_t *tensor, const ffn_model_binding_t *binding, int64_t *out, int64_t *in,
                                 trouble_t *trouble) {
    quoted_t name = ffnio_quote(tensor->name);
    char stack[48];
    if (!ffnio_matrix_shape(tensor, binding->layout, binding->experts, out, in))
        return ffnio_trouble(trouble, FFN_INVALID, "tensor %s is %s, must be a matrix%s", name.text, shape_of(tensor).text, stack_text(binding, stack));
    int64_t whole = *out;
    *out = part_of(whole, binding->part);
    if (*out < 0)
        return ffnio_trouble(trouble, FFN_INVALID, "tensor %s is %s: %" PRId64 " outputs cannot be halved", name.text, shape_of(tensor).text,
                             whole);
    return FFN_OK;
}

/* "[out, in]" */
static const char *layout_text(const ffn_model_binding_t *binding) {
    int transposed = binding->layout == FFN_LAYOUT_IN_OUT;
    return binding->experts ? transposed ? "[experts, in, out]" : "[experts, out, in]" : transposed ? "[in, out]" : "[out, in]";
}

/* A matrix must be [out, in]. */
static ffn_status_t expect_matrix(const stored_tensor_t *tensor, const ffn_model_binding_t *binding, const sizes_t *sizes, trouble_t *trouble) {
    const role_t *role = ffnio_role(binding->role);
    int64_t out = ffnio_dimension(sizes, role->out), in = ffnio_dimension(sizes, role->in), got_out, got_in;
    ffn_status_t status = check_matrix(tensor, binding, &got_out, &got_in, trouble);
    if (status || (got_out == out && got_in == in)) return status;
    int wrong_in = got_in != in;
    return ffnio_trouble(trouble, FFN_INVALID,
                         "tensor %s is %s, read as %s: %s is %" PRId64 ", must be %" PRId64 " (d_model %" PRId64 ", d_ff %" PRId64 ")",
                         ffnio_quote(tensor->name).text, shape_of(tensor).text, layout_text(binding), wrong_in ? "in" : "out",
                         wrong_in ? got_in : got_out, wrong_in ? in : out, sizes->d_model, sizes->d_ff);
}

static ffn_status_t expect_vector(const stored_tensor_t *tensor, const ffn_model_binding_t *binding, const sizes_t *sizes, trouble_t *trouble) {
    const role_t *role = ffnio_role(binding->role);
    int64_t right = ffnio_dimension(sizes, role->out), n = part_of(vector_length(tensor, binding->experts), binding->part);
    char stack[48];
    if (n == right || (role->constant && n == 1)) return FFN_OK;
    return ffnio_trouble(trouble, FFN_INVALID, "tensor %s is %s, must have %s%" PRId64 " elements%s (d_model %" PRId64 ", d_ff %" PRId64 ")",
                         ffnio_quote(tensor->name).text, shape_of(tensor).text, binding->part ? "twice " : "", right, stack_text(binding, stack),
                         sizes->d_model, sizes->d_ff);
}

/* Whose tensor a binding is. */
static ffn_status_t check_expert(const ffn_model_binding_t *binding, uint64_t i, const sizes_t *sizes, trouble_t *trouble) {
    const role_t *role = ffnio_role(binding->role);
    uint64_t end = (uint64_t)binding->expert + (binding->experts ? binding->experts : 1);
    if (!sizes->experts && (role->moe || binding->expert || binding->experts))
        return ffnio_trouble(trouble, FFN_INVALID, "bindings[%" PRIu64 "] (%s) is of a mixture of experts, but the options have no moe", i, role->name);
    if (sizes->experts && !role->expert && (binding->expert || binding->experts))
        return ffnio_trouble(trouble, FFN_INVALID, "bindings[%" PRIu64 "] names an expert, but no expert has a %s of its own", i, role->name);
    if (sizes->experts && role->expert && end > (uint64_t)sizes->experts)
        return ffnio_trouble(trouble, FFN_INVALID, "bindings[%" PRIu64 "] is the %s of expert %" PRIu64 ", but there are %" PRId64, i, role->name, end - 1,
                             sizes->experts);
    return FFN_OK;
}

/* What can be said of a binding alone. *tensor NULL: a constant. */
static ffn_status_t check_binding(const checkpoint_t *checkpoint, const ffn_model_binding_t *binding, uint64_t i, const stored_tensor_t **tensor,
                                  trouble_t *trouble) {
    const role_t *role = ffnio_role(binding->role);
    *tensor = NULL;
    if (!role)
        return ffnio_trouble(trouble, FFN_INVALID, "role of bindings[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_ROLE_*", i, binding->role);
    if (binding->layout > FFN_LAYOUT_IN_OUT)
        return ffnio_trouble(trouble, FFN_INVALID, "layout of bindings[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_LAYOUT_*", i,
                             binding->layout);
    if (binding->part > FFN_PART_ODD)
        return ffnio_trouble(trouble, FFN_INVALID, "part of bindings[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_PART_*", i, binding->part);
    if (!binding->tensor && !role->constant)
        return ffnio_trouble(trouble, FFN_INVALID, "bindings[%" PRIu64 "] (role %" PRIu32 ") names no tensor", i, binding->role);
    if (!binding->tensor) return FFN_OK;
    int64_t index = ffnio_checkpoint_find(checkpoint, binding->tensor);
    if (index < 0) return ffnio_trouble(trouble, FFN_UNKNOWN, "no tensor %s", ffnio_quote(binding->tensor).text);
    *tensor = &checkpoint->tensors[index];
    return FFN_OK;
}

/* ---------------------------------------------------------------- All bindings */

typedef struct check {
    const checkpoint_t *checkpoint;
    const ffn_model_binding_t *bindings;
    uint64_t count;
    sizes_t *sizes;
    trouble_t *trouble;
    uint64_t taken[FFNIO_ROLES][FFN_MOE_EXPERTS_MOST / 64]; /* a bit for each expert that a role is bound to */
} check_t;

/* The experts of a mixture: as many as the options say, or as the bindings do. */
static ffn_status_t count_experts(check_t *check, const ffn_moe_options_t *moe) {
    int64_t experts = moe->experts, identities = moe->identity_experts;
    for (uint64_t i = 0; i < check->count && !moe->experts; i++) {
        const ffn_model_binding_t *binding = &check->bindings[i];
        int64_t end = (int64_t)binding->expert + (binding->experts ? binding->experts : 1);
        if (ffnio_role_is_expert(binding->role) && end > experts) experts = end;
    }
    if (experts < 1 || identities < 0 || experts > FFN_MOE_EXPERTS_MOST || identities > FFN_MOE_EXPERTS_MOST - experts)
        return ffnio_trouble(check->trouble, FFN_INVALID, "experts are %" PRId64 " and identity_experts %" PRId64 ", must be 1 to %d together", experts,
                             identities, FFN_MOE_EXPERTS_MOST);
    check->sizes->experts = experts;
    check->sizes->routed = experts + identities;
    return FFN_OK;
}

/* Notes whose tensor a binding is; nothing is bound twice. */
static ffn_status_t take(check_t *check, uint64_t i) {
    const ffn_model_binding_t *binding = &check->bindings[i];
    uint32_t end = binding->expert + (binding->experts ? binding->experts : 1);
    for (uint32_t expert = binding->expert; expert < end; expert++) {
        uint64_t *word = &check->taken[binding->role][expert / 64], bit = (uint64_t)1 << expert % 64;
        if (*word & bit) {
            if (!check->sizes->experts || !ffnio_role_is_expert(binding->role))
                return ffnio_trouble(check->trouble, FFN_INVALID, "role %" PRIu32 " is bound twice, the second time in bindings[%" PRIu64 "]",
                                     binding->role, i);
            return ffnio_trouble(check->trouble, FFN_INVALID, "role %" PRIu32 " of expert %" PRIu32 " is bound twice, the second time in bindings[%" PRIu64 "]",
                                 binding->role, expert, i);
        }
        *word |= bit;
    }
    return FFN_OK;
}

/* A role that one expert has, all have. */
static ffn_status_t check_all_have(const check_t *check) {
    for (uint32_t role = 0; role < FFNIO_ROLES; role++) {
        if (!ffnio_role_is_expert(role)) continue;
        int64_t first = -1, missing = -1;
        for (int64_t expert = check->sizes->experts - 1; expert >= 0; expert--)
            *(check->taken[role][expert / 64] >> expert % 64 & 1 ? &first : &missing) = expert;
        if (first >= 0 && missing >= 0)
            return ffnio_trouble(check->trouble, FFN_INVALID, "no tensor is bound to the %s of expert %" PRId64 ", but to that of expert %" PRId64,
                                 ffnio_role(role)->name, missing, first);
    }
    return FFN_OK;
}

/* The sizes that a matrix's own two dimensions tell; the others stay. */
static ffn_status_t take_sizes(const check_t *check, uint32_t role, int64_t *out, int64_t *in) {
    for (uint64_t i = 0; i < check->count; i++) {
        const ffn_model_binding_t *binding = &check->bindings[i];
        if (binding->role != role) continue;
        const stored_tensor_t *tensor = &check->checkpoint->tensors[ffnio_checkpoint_find(check->checkpoint, binding->tensor)];
        return check_matrix(tensor, binding, out, in, check->trouble);
    }
    return FFN_OK;
}

/* Sizes come from the up and the down weight, wherever in the list they are; where there are a router or latent projections, d_model from those. */
static ffn_status_t take_all_sizes(check_t *check) {
    sizes_t *sizes = check->sizes;
    int64_t ignored = 0;
    int no_up = !(check->taken[FFN_ROLE_UP_WEIGHT][0] & 1), no_down = !(check->taken[FFN_ROLE_DOWN_WEIGHT][0] & 1);
    if (no_up || no_down) return ffnio_trouble(check->trouble, FFN_INVALID, "no tensor is bound to the %s weight", no_up ? "up" : "down");
    ffn_status_t status = take_sizes(check, FFN_ROLE_UP_WEIGHT, &sizes->d_ff, &sizes->d_model);
    if (!status) status = take_sizes(check, FFN_ROLE_DOWN_WEIGHT, &sizes->d_out, &ignored);
    if (!status) status = take_sizes(check, FFN_ROLE_ROUTER_WEIGHT, &ignored, &sizes->d_model);
    if (!status) status = take_sizes(check, FFN_ROLE_SHARED_UP_WEIGHT, &sizes->d_shared, &ignored);
    if (!status) status = take_sizes(check, FFN_ROLE_LATENT_IN_WEIGHT, &sizes->d_latent, &sizes->d_model);
    if (!status) status = take_sizes(check, FFN_ROLE_LATENT_OUT_WEIGHT, &sizes->d_out, &ignored);
    return status;
}

/* The down weights, or all others: where the up weight's part or layout is wrong, that shows in the down weight first. */
static ffn_status_t expect_all(const check_t *check, int down) {
    ffn_status_t status = FFN_OK;
    const stored_tensor_t *tensor;
    for (uint64_t i = 0; !status && i < check->count; i++) {
        const ffn_model_binding_t *binding = &check->bindings[i];
        if ((binding->role == FFN_ROLE_DOWN_WEIGHT) != down) continue;
        status = check_binding(check->checkpoint, binding, i, &tensor, check->trouble);
        if (status || !tensor) continue;
        status = ffnio_role_is_matrix(binding->role) ? expect_matrix(tensor, binding, check->sizes, check->trouble)
                                                     : expect_vector(tensor, binding, check->sizes, check->trouble);
    }
    return status;
}

ffn_status_t ffnio_bindings_check(const checkpoint_t *checkpoint, const ffn_model_binding_t *bindings, uint64_t count, const ffn_moe_options_t *moe,
                                  sizes_t *sizes, trouble_t *trouble) {
    check_t check = {checkpoint, bindings, count, sizes, trouble, {{0}}};
    const stored_tensor_t *tensor;
    *sizes = (sizes_t){-1, -1, -1, 0, 0, -1, -1};
    int most = moe ? FFNIO_ROLES * FFN_MOE_EXPERTS_MOST : FFNIO_ROLES;
    if (count > (uint64_t)most) return ffnio_trouble(trouble, FFN_INVALID, "binding_count is %" PRIu64 ", must be at most %d", count, most);
    if (count && !bindings) return ffnio_trouble(trouble, FFN_INVALID, "bindings is NULL, but binding_count is %" PRIu64, count);
    ffn_status_t status = moe ? count_experts(&check, moe) : FFN_OK;
    for (uint64_t i = 0; !status && i < count; i++) {
        status = check_binding(checkpoint, &bindings[i], i, &tensor, trouble);
        if (!status) status = check_expert(&bindings[i], i, sizes, trouble);
        if (!status) status = take(&check, i);
    }
    if (!status && moe) status = check_all_have(&check);
    if (!status) status = take_all_sizes(&check);
    if (!status) status = expect_all(&check, 1);
    if (!status) status = expect_all(&check, 0);
    return status;
}
