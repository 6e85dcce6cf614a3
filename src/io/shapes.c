/* SPDX-License-Identifier: MIT
 * The shapes of a description's tensors: they must agree with each other. */
#include "io/bind.h"

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

int ffnio_matrix_shape(const stored_tensor_t *tensor, uint32_t layout, int64_t *out, int64_t *in) {
    const int64_t *shape = tensor->shape;
    uint32_t first = 0, end = tensor->ndim;
    *out = *in = 0;
    while (end - first > 2 && shape[first] == 1) first++;
    while (end - first > 2 && shape[end - 1] == 1) end--;
    if (end - first != 2) return 0;
    *out = shape[first + (layout == FFN_LAYOUT_IN_OUT)];
    *in = shape[first + (layout != FFN_LAYOUT_IN_OUT)];
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

static int is_matrix(uint32_t role) {
    return role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_GATE_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT;
}

static int is_role(uint32_t role) {
    return (role >= FFN_ROLE_UP_WEIGHT && role <= FFN_ROLE_DOWN_BIAS) || (role >= FFN_ROLE_NORM_IN_WEIGHT && role <= FFN_ROLE_NORM_OUT_BIAS) ||
           (role >= FFN_ROLE_BRANCH_SCALE && role <= FFN_ROLE_XIELU_ALPHA_N);
}

/* Elements along the output dimension that remain of `whole` when a part is taken; -1: it has no such part. */
static int64_t part_of(int64_t whole, uint32_t part) {
    return part == FFN_PART_WHOLE ? whole : whole % 2 ? -1 : whole / 2;
}

static ffn_status_t check_matrix(const stored_tensor_t *tensor, const ffn_model_binding_t *binding, int64_t *out, int64_t *in,
                                 trouble_t *trouble) {
    quoted_t name = ffnio_quote(tensor->name);
    if (!ffnio_matrix_shape(tensor, binding->layout, out, in))
        return ffnio_trouble(trouble, FFN_INVALID, "tensor %s is %s, must be a matrix", name.text, shape_of(tensor).text);
    int64_t whole = *out;
    *out = part_of(whole, binding->part);
    if (*out < 0)
        return ffnio_trouble(trouble, FFN_INVALID, "tensor %s is %s: %" PRId64 " outputs cannot be halved", name.text, shape_of(tensor).text,
                             whole);
    return FFN_OK;
}

static const char *layout_name(uint32_t layout) {
    return layout == FFN_LAYOUT_IN_OUT ? "[in, out]" : "[out, in]";
}

/* A matrix must be [out, in]; -1 leaves a dimension open. */
static ffn_status_t expect_matrix(const stored_tensor_t *tensor, const ffn_model_binding_t *binding, int64_t out, int64_t in, sizes_t *sizes,
                                  trouble_t *trouble) {
    int64_t got_out, got_in;
    ffn_status_t status = check_matrix(tensor, binding, &got_out, &got_in, trouble);
    if (status) return status;
    if ((out >= 0 && got_out != out) || (in >= 0 && got_in != in))
        return ffnio_trouble(trouble, FFN_INVALID,
                             "tensor %s is %s, read as %s: %s is %" PRId64 ", must be %" PRId64 " (d_model %" PRId64 ", d_ff %" PRId64 ")",
                             ffnio_quote(tensor->name).text, shape_of(tensor).text, layout_name(binding->layout),
                             in >= 0 && got_in != in ? "in" : "out", in >= 0 && got_in != in ? got_in : got_out,
                             in >= 0 && got_in != in ? in : out, sizes->d_model, sizes->d_ff);
    if (out < 0 && binding->role == FFN_ROLE_DOWN_WEIGHT) sizes->d_out = got_out;
    return FFN_OK;
}

static ffn_status_t expect_vector(const stored_tensor_t *tensor, const ffn_model_binding_t *binding, const sizes_t *sizes, trouble_t *trouble) {
    int64_t n = part_of(tensor->elements, binding->part), right = sizes->d_out, other = sizes->d_out;
    switch (binding->role) {
    case FFN_ROLE_UP_BIAS: case FFN_ROLE_GATE_BIAS: case FFN_ROLE_NORM_MID_WEIGHT: case FFN_ROLE_NORM_MID_BIAS: right = other = sizes->d_ff; break;
    case FFN_ROLE_NORM_IN_WEIGHT: case FFN_ROLE_NORM_IN_BIAS: right = other = sizes->d_model; break;
    case FFN_ROLE_BRANCH_SCALE: case FFN_ROLE_RESIDUAL_SCALE: other = 1; break;
    case FFN_ROLE_XIELU_ALPHA_P: case FFN_ROLE_XIELU_ALPHA_N: right = other = 1; break;
    default: break;
    }
    if (n == right || n == other) return FFN_OK;
    return ffnio_trouble(trouble, FFN_INVALID, "tensor %s is %s, must have %s%" PRId64 " elements (d_model %" PRId64 ", d_ff %" PRId64 ")",
                         ffnio_quote(tensor->name).text, shape_of(tensor).text, binding->part ? "twice " : "", right, sizes->d_model,
                         sizes->d_ff);
}

/* What can be said of a binding alone. *tensor NULL: a constant. */
static ffn_status_t check_binding(const checkpoint_t *checkpoint, const ffn_model_binding_t *binding, uint64_t i, const stored_tensor_t **tensor,
                                  trouble_t *trouble) {
    *tensor = NULL;
    if (!is_role(binding->role))
        return ffnio_trouble(trouble, FFN_INVALID, "role of bindings[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_ROLE_*", i, binding->role);
    if (binding->layout > FFN_LAYOUT_IN_OUT)
        return ffnio_trouble(trouble, FFN_INVALID, "layout of bindings[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_LAYOUT_*", i,
                             binding->layout);
    if (binding->part > FFN_PART_ODD)
        return ffnio_trouble(trouble, FFN_INVALID, "part of bindings[%" PRIu64 "] is %" PRIu32 ", must be one of FFN_PART_*", i, binding->part);
    if (!binding->tensor && binding->role < FFN_ROLE_BRANCH_SCALE)
        return ffnio_trouble(trouble, FFN_INVALID, "bindings[%" PRIu64 "] (role %" PRIu32 ") names no tensor", i, binding->role);
    if (!binding->tensor) return FFN_OK;
    int64_t index = ffnio_checkpoint_find(checkpoint, binding->tensor);
    if (index < 0) return ffnio_trouble(trouble, FFN_UNKNOWN, "no tensor %s", ffnio_quote(binding->tensor).text);
    *tensor = &checkpoint->tensors[index];
    return FFN_OK;
}

/* Sizes come from the up and the down weight, wherever in the list they are. */
static ffn_status_t take_sizes(const checkpoint_t *checkpoint, const ffn_model_binding_t *bindings, uint64_t count, sizes_t *sizes,
                               trouble_t *trouble) {
    const stored_tensor_t *tensor, *up = NULL, *down = NULL;
    const ffn_model_binding_t *of_up = NULL, *of_down = NULL;
    *sizes = (sizes_t){-1, -1, -1};
    for (uint64_t i = 0; i < count; i++) {
        ffn_status_t status = check_binding(checkpoint, &bindings[i], i, &tensor, trouble);
        if (status) return status;
        for (uint64_t k = 0; k < i; k++)
            if (bindings[k].role == bindings[i].role)
                return ffnio_trouble(trouble, FFN_INVALID, "role %" PRIu32 " is bound twice, the second time in bindings[%" PRIu64 "]",
                                     bindings[i].role, i);
        if (bindings[i].role == FFN_ROLE_UP_WEIGHT) up = tensor, of_up = &bindings[i];
        if (bindings[i].role == FFN_ROLE_DOWN_WEIGHT) down = tensor, of_down = &bindings[i];
    }
    if (!up || !down) return ffnio_trouble(trouble, FFN_INVALID, "no tensor is bound to the %s weight", up ? "down" : "up");
    ffn_status_t status = check_matrix(up, of_up, &sizes->d_ff, &sizes->d_model, trouble);
    if (!status) status = expect_matrix(down, of_down, -1, sizes->d_ff, sizes, trouble);
    return status;
}

ffn_status_t ffnio_bindings_check(const checkpoint_t *checkpoint, const ffn_model_binding_t *bindings, uint64_t count, sizes_t *sizes,
                                  trouble_t *trouble) {
    if (count > FFNIO_BINDINGS)
        return ffnio_trouble(trouble, FFN_INVALID, "binding_count is %" PRIu64 ", must be at most %d", count, FFNIO_BINDINGS);
    if (count && !bindings) return ffnio_trouble(trouble, FFN_INVALID, "bindings is NULL, but binding_count is %" PRIu64, count);
    ffn_status_t status = take_sizes(checkpoint, bindings, count, sizes, trouble);
    for (uint64_t i = 0; !status && i < count; i++) {
        const stored_tensor_t *tensor;
        status = check_binding(checkpoint, &bindings[i], i, &tensor, trouble);
        if (status || !tensor) continue;
        if (bindings[i].role == FFN_ROLE_GATE_WEIGHT)
            status = expect_matrix(tensor, &bindings[i], sizes->d_ff, sizes->d_model, sizes, trouble);
        else if (!is_matrix(bindings[i].role))
            status = expect_vector(tensor, &bindings[i], sizes, trouble);
    }
    return status;
}
