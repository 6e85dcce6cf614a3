/* SPDX-License-Identifier: MIT
 * ffn_moe_jitter and ffn_moe_add_noise: check, then draw. */
#include <ffn/ffn.h>

#include "api/moe_check.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/dropout.h"
#include "core/moe_noise.h"
#include "core/router_options.h"
#include "dispatch/ladder.h"

#include <inttypes.h>
#include <math.h>

enum { WIDTH_MOST = 1 << 29 };

ffn_status_t ffni_moe_read_noise(const ffn_moe_noise_t *given, ffn_moe_noise_t *noise, int64_t rows, uint32_t first_site, uint32_t last_site) {
    ffn_status_t status = ffni_struct_read(noise, sizeof *noise, given, "ffn_moe_noise_t");
    if (status) return status;
    if (noise->reserved) return ffni_fail(FFN_INVALID, "reserved of the noise is %" PRIu32 ", must be 0", noise->reserved);
    status = ffni_moe_check_range("rows", rows, 0, MOE_TOKENS_MOST);
    if (!status) status = ffni_moe_check_range("site of the noise", noise->site, first_site, last_site);
    if (!status) status = ffni_random_check_place("noise", noise->step, noise->layer);
    if (!status) status = ffni_random_check_first("noise", "first_row", noise->first_row, "rows", rows);
    if (status) return status;
    if (!isfinite(noise->size) || noise->size < 0)
        return ffni_fail(FFN_INVALID, "size of the noise is %s, must be finite and at least 0", ffni_number((double)noise->size).text);
    return FFN_OK;
}

static ffn_status_t read_rows(int64_t rows, int64_t width, const float *in, int64_t in_stride, float *out, int64_t out_stride, rows_t *from, rows_t *to) {
    const int64_t in_strides[2] = {0, in_stride}, out_strides[2] = {0, out_stride};
    ffn_status_t status = ffni_rows_read(from, "in", in, 1, rows, width, in_strides);
    if (!status) status = ffni_rows_read(to, "out", out, 1, rows, width, out_strides);
    return status ? status : ffni_rows_check_same_or_separate(to, "out", from, "in");
}

ffn_status_t ffn_moe_jitter(ffn_context_t *context, const ffn_moe_noise_t *given, int64_t rows, int64_t width, const float *in, int64_t in_stride,
                            float *out, int64_t out_stride) {
    const kernel_table_t *kernels;
    ffn_moe_noise_t noise;
    rows_t from, to;
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = ffni_moe_read_noise(given, &noise, rows, FFN_MOE_SITE_INPUT, FFN_MOE_SITE_LOGITS);
    if (!status && noise.size > 1) status = ffni_fail(FFN_INVALID, "size of the noise is %s, must be at most 1", ffni_number((double)noise.size).text);
    if (!status) status = ffni_moe_check_range("width", width, 1, WIDTH_MOST);
    if (status || !rows) goto cleanup;
    status = read_rows(rows, width, in, in_stride, out, out_stride, &from, &to);
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &kernels);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    ffni_moe_jitter(context, kernels, &noise, width, &from, &to);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

ffn_status_t ffn_moe_add_noise(ffn_context_t *context, const ffn_moe_noise_t *given, int64_t tokens, int64_t experts, const float *noise_logits,
                               float *logits) {
    ffn_moe_noise_t noise;
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = ffni_moe_read_noise(given, &noise, tokens, FFN_MOE_SITE_NOISE, FFN_MOE_SITE_NOISE);
    if (!status) status = ffni_moe_check_range("experts", experts, 1, FFN_MOE_EXPERTS_MOST);
    if (status || !tokens) goto cleanup;
    const moe_array_t arrays[] = {
        {"noise_logits", noise_logits, tokens * experts, 4, 0, 0},
        {"logits", logits, tokens * experts, 4, 1, 1},
    };
    status = ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    ffni_moe_add_noise(context, &noise, tokens, experts, noise_logits, logits);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

ffn_status_t ffn_moe_add_noise_backward(ffn_context_t *context, const ffn_moe_noise_t *given, int64_t tokens, int64_t experts,
                                        const float *noise_logits, const float *d_logits, float *d_noise_logits) {
    ffn_moe_noise_t noise;
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = ffni_moe_read_noise(given, &noise, tokens, FFN_MOE_SITE_NOISE, FFN_MOE_SITE_NOISE);
    if (!status) status = ffni_moe_check_range("experts", experts, 1, FFN_MOE_EXPERTS_MOST);
    if (status || !tokens) goto cleanup;
    const moe_array_t arrays[] = {
        {"noise_logits", noise_logits, tokens * experts, 4, 1, 0},
        {"d_logits", d_logits, tokens * experts, 4, 1, 0},
        {"d_noise_logits", d_noise_logits, tokens * experts, 4, 1, 1},
    };
    status = ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    ffni_moe_add_noise_backward(context, &noise, tokens, experts, noise_logits, d_logits, d_noise_logits);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}
