/* SPDX-License-Identifier: MIT
 * ffn_moe_logits and its backward pass: check, then multiply. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/fit_thread.h"
#include "core/gemm.h"
#include "core/moe_logits.h"
#include "core/moe_logits_backward.h"
#include "dispatch/ladder.h"

#include <inttypes.h>
#include <math.h>

enum { D_MODEL_MOST = 1 << 29 };

static ffn_status_t read_norm(const ffn_moe_logits_options_t *options, logits_t *logits) {
    float eps = options->norm_eps;
    logits->linear.has_norm = options->norm != FFN_NORM_NONE;
    logits->linear.norm_kind = options->norm == FFN_NORM_LAYER ? NORM_LAYER : NORM_RMS;
    if (options->norm != FFN_NORM_NONE && options->norm != FFN_NORM_LAYER && options->norm != FFN_NORM_RMS)
        return ffni_fail(FFN_INVALID, "norm is %" PRIu32 ", must be FFN_NORM_NONE, FFN_NORM_LAYER or FFN_NORM_RMS", options->norm);
    if (!isfinite(eps) || eps < 0) return ffni_fail(FFN_INVALID, "norm_eps is %s, must be finite and at least 0", ffni_number((double)eps).text);
    if (options->norm == FFN_NORM_NONE && eps > 0)
        return ffni_fail(FFN_INVALID, "norm_eps is %s, but norm is FFN_NORM_NONE", ffni_number((double)eps).text);
    if (options->norm == FFN_NORM_NONE && options->norm_weight) return ffni_fail(FFN_INVALID, "norm_weight is given, but norm is FFN_NORM_NONE");
    if (eps == 0) eps = options->norm == FFN_NORM_LAYER ? 1e-5f : 1e-6f;
    logits->linear.norm = (norm_t){.eps = eps, .weight = options->norm_weight};
    return FFN_OK;
}

/* The view of a matrix of the weight's shape; *elements: from its first float to its last. */
static ffn_status_t read_matrix(const ffn_moe_logits_options_t *options, const char *name, const float *data, const int64_t given[2], view_t *view,
                                int64_t *elements) {
    int64_t size[2] = {options->experts, options->d_model}, stride[2] = {4 * options->d_model, 4}, reach = 0;
    for (int i = 0; i < 2; i++) {
        int64_t part;
        if (given[0] || given[1]) stride[i] = given[i];
        if (size[i] == 1) continue;
        if (stride[i] <= 0 || stride[i] % 4)
            return ffni_fail(FFN_INVALID, "%s_stride[%d] is %" PRId64 " bytes, must be positive and a multiple of 4", name, i, stride[i]);
        if (!checked_multiply(size[i] - 1, stride[i], &part) || !checked_add(reach, part, &reach))
            return ffni_fail(FFN_INVALID, "%s_stride[%d] is %" PRId64 " bytes: the matrix reaches beyond the address space", name, i, stride[i]);
    }
    *elements = reach / 4 + 1;
    *view = (view_t){(char *)(uintptr_t)data, size[0], size[1], stride[0], stride[1]};
    return FFN_OK;
}

static ffn_status_t read_options(const ffn_moe_logits_options_t *given, ffn_moe_logits_options_t *options) {
    ffn_status_t status = ffni_struct_read(options, sizeof *options, given, "ffn_moe_logits_options_t");
    if (status) return status;
    if (options->flags) return ffni_fail(FFN_INVALID, "flags of the router's matrix is %" PRIu32 ", must be 0", options->flags);
    status = ffni_moe_check_range("d_model", options->d_model, 1, D_MODEL_MOST);
    if (!status) status = ffni_moe_check_range("experts", options->experts, 1, FFN_MOE_EXPERTS_MOST);
    return status;
}

/* From the first float of rows to the last. */
static int64_t span_of(const rows_t *rows) {
    return rows->base ? ((rows->count - 1) * rows->row_stride + rows->row_bytes) / 4 : 0;
}

static ffn_status_t read_arrays(const ffn_moe_logits_options_t *options, int64_t tokens, const float *x, int64_t x_stride, logits_t *logits) {
    const int64_t stride[2] = {0, x_stride};
    int64_t weight_span = 0;
    ffn_status_t status = read_matrix(options, "weight", options->weight, options->weight_stride, &logits->weight, &weight_span);
    if (!status) status = ffni_rows_read(&logits->x, "x", x, 1, tokens, options->d_model, stride);
    if (status) return status;
    const moe_array_t arrays[] = {
        {"x", x, span_of(&logits->x), 4, 1, 0},
        {"weight", options->weight, weight_span, 4, 1, 0},
        {"bias", options->bias, options->experts, 4, 0, 0},
        {"norm_weight", options->norm_weight, options->d_model, 4, 0, 0},
        {"logits", logits->out, tokens * options->experts, 4, 1, 1},
    };
    return ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
}

ffn_status_t ffn_moe_logits(ffn_context_t *context, const ffn_moe_logits_options_t *given, int64_t tokens, const float *x, int64_t x_stride,
                            float *out) {
    ffn_moe_logits_options_t options;
    logits_t logits = {.out = out};
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = read_options(given, &options);
    if (!status) status = read_norm(&options, &logits);
    if (!status) status = ffni_moe_check_range("tokens", tokens, 0, MOE_TOKENS_MOST);
    if (status || !tokens) goto cleanup;
    status = read_arrays(&options, tokens, x, x_stride, &logits);
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &logits.linear.kernels);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    logits.linear.bias = options.bias;
    status = ffni_moe_logits(context, &logits);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

/* ------------------------------------------------------------------ Backward */

static ffn_status_t read_gradients(const ffn_moe_logits_gradients_t *given, ffn_moe_logits_gradients_t *gradients, uint32_t norm) {
    const uint32_t known = FFN_BACKWARD_ACCUMULATE | FFN_MOE_ADD_D_X;
    ffn_status_t status = ffni_struct_read(gradients, sizeof *gradients, given, "ffn_moe_logits_gradients_t");
    if (status) return status;
    if (gradients->flags & ~known)
        return ffni_fail(FFN_INVALID, "flags of the gradients is 0x%" PRIx32 ", must be FFN_BACKWARD_ACCUMULATE and FFN_MOE_ADD_D_X or-ed, or 0",
                         gradients->flags);
    if (gradients->d_norm_weight && norm == FFN_NORM_NONE) return ffni_fail(FFN_INVALID, "d_norm_weight is given, but norm is FFN_NORM_NONE");
    return FFN_OK;
}

static ffn_status_t read_backward_rows(const ffn_moe_logits_options_t *options, int64_t tokens, const float *x, int64_t x_stride,
                                       const ffn_moe_logits_gradients_t *gradients, logits_backward_t *backward) {
    const int64_t x_strides[2] = {0, x_stride}, d_x_strides[2] = {0, gradients->d_x_stride};
    if (!tokens) return FFN_OK;
    ffn_status_t status = ffni_rows_read(&backward->forward.x, "x", x, 1, tokens, options->d_model, x_strides);
    if (!status && gradients->d_x) status = ffni_rows_read(&backward->d_x, "d_x", gradients->d_x, 1, tokens, options->d_model, d_x_strides);
    return status;
}

static ffn_status_t read_backward_arrays(const ffn_moe_logits_options_t *options, int64_t tokens, const float *x, int64_t x_stride,
                                         const ffn_moe_logits_gradients_t *gradients, logits_backward_t *backward) {
    int64_t weight_span = 0, d_weight_span = 0;
    ffn_status_t status = read_matrix(options, "weight", options->weight, options->weight_stride, &backward->forward.weight, &weight_span);
    if (!status) status = read_matrix(options, "d_weight", gradients->d_weight, gradients->d_weight_stride, &backward->d_weight, &d_weight_span);
    if (!status) status = read_backward_rows(options, tokens, x, x_stride, gradients, backward);
    if (status) return status;
    if (gradients->d_weight && !ffni_view_is_writable(&backward->d_weight))
        return ffni_fail(FFN_INVALID, "d_weight_stride is {%" PRId64 ", %" PRId64 "}: elements share an address", gradients->d_weight_stride[0],
                         gradients->d_weight_stride[1]);
    const moe_array_t arrays[] = {
        {"x", x, span_of(&backward->forward.x), 4, 1, 0},
        {"weight", options->weight, weight_span, 4, tokens > 0, 0},
        {"norm_weight", options->norm_weight, options->d_model, 4, 0, 0},
        {"d_logits", gradients->d_logits, tokens * options->experts, 4, 1, 0},
        {"d_x", gradients->d_x, span_of(&backward->d_x), 4, 0, 1},
        {"d_weight", gradients->d_weight, d_weight_span, 4, 0, 1},
        {"d_bias", gradients->d_bias, options->experts, 4, 0, 1},
        {"d_norm_weight", gradients->d_norm_weight, options->d_model, 4, 0, 1},
    };
    return ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
}

static ffn_status_t compute_backward(void *argument) {
    return ffni_moe_logits_backward(argument);
}

static ffn_status_t run_backward(ffn_context_t *context, int64_t tokens, logits_backward_t *backward) {
    ffn_status_t status = ffni_context_enter(context, &backward->context);
    if (status) return status;
    if (tokens)
        status = ffni_run_on_fit_thread(ffni_gemm_general_stack(), compute_backward, backward);
    else
        ffni_moe_logits_backward_zeros(backward);
    ffni_context_leave(backward->context);
    return status;
}

ffn_status_t ffn_moe_logits_backward(ffn_context_t *context, const ffn_moe_logits_options_t *given, int64_t tokens, const float *x, int64_t x_stride,
                                     const ffn_moe_logits_gradients_t *given_gradients) {
    ffn_moe_logits_options_t options;
    ffn_moe_logits_gradients_t gradients;
    logits_backward_t backward = {0};
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = read_options(given, &options);
    if (!status) status = read_norm(&options, &backward.forward);
    if (!status) status = ffni_moe_check_range("tokens", tokens, 0, MOE_TOKENS_MOST);
    if (!status) status = read_gradients(given_gradients, &gradients, options.norm);
    if (!status) status = read_backward_arrays(&options, tokens, x, x_stride, &gradients, &backward);
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &backward.forward.linear.kernels);
    if (status) goto cleanup;
    backward.d_logits = gradients.d_logits;
    backward.accumulate = (gradients.flags & FFN_BACKWARD_ACCUMULATE) != 0;
    backward.add_d_x = (gradients.flags & FFN_MOE_ADD_D_X) != 0;
    backward.d_bias = gradients.d_bias;
    backward.d_norm_weight = gradients.d_norm_weight;
    status = run_backward(context, tokens, &backward);
cleanup:
    fpenv_leave(saved);
    return status;
}
