/* SPDX-License-Identifier: MIT
 * ffn_moe_logits: check, then multiply. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/moe_logits.h"
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

/* The weight's view; *elements: from its first float to its last. */
static ffn_status_t read_weight(const ffn_moe_logits_options_t *options, view_t *view, int64_t *elements) {
    int64_t size[2] = {options->experts, options->d_model}, stride[2] = {4 * options->d_model, 4}, reach = 0;
    for (int i = 0; i < 2; i++) {
        int64_t part;
        if (options->weight_stride[0] || options->weight_stride[1]) stride[i] = options->weight_stride[i];
        if (size[i] == 1) continue;
        if (stride[i] <= 0 || stride[i] % 4)
            return ffni_fail(FFN_INVALID, "weight_stride[%d] is %" PRId64 " bytes, must be positive and a multiple of 4", i, stride[i]);
        if (!checked_multiply(size[i] - 1, stride[i], &part) || !checked_add(reach, part, &reach))
            return ffni_fail(FFN_INVALID, "weight_stride[%d] is %" PRId64 " bytes: the weight reaches beyond the address space", i, stride[i]);
    }
    *elements = reach / 4 + 1;
    *view = (view_t){(char *)(uintptr_t)options->weight, size[0], size[1], stride[0], stride[1]};
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

static ffn_status_t read_arrays(const ffn_moe_logits_options_t *options, int64_t tokens, const float *x, int64_t x_stride, logits_t *logits) {
    const int64_t stride[2] = {0, x_stride};
    int64_t weight_span = 0;
    ffn_status_t status = read_weight(options, &logits->weight, &weight_span);
    if (!status) status = ffni_rows_read(&logits->x, "x", x, 1, tokens, options->d_model, stride);
    if (status) return status;
    int64_t x_span = ((tokens - 1) * logits->x.row_stride + logits->x.row_bytes) / 4;
    const moe_array_t arrays[] = {
        {"x", x, x_span, 4, 1, 0},
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
