/* SPDX-License-Identifier: MIT
 * ffn_conv_create, _free, _reserve, _info, _read and _update: check, then call core. */
#include <ffn/ffn.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/conv_backward.h"

#include <inttypes.h>

ffn_status_t ffn_conv_create(ffn_context_t *context, const ffn_conv_options_t *options, ffn_conv_t **conv) {
    conv_config_t config;
    if (!conv) return ffni_fail(FFN_INVALID, "the pointer to the convolutional layer is NULL");
    *conv = NULL;
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = ffni_conv_options_read(options, &config);
    if (status) goto cleanup;
    status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    status = ffni_conv_new(context, &config, conv);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

void ffn_conv_free(ffn_conv_t *conv) {
    ffni_conv_delete(conv);
}

static ffn_status_t reserve_scratch(const ffn_conv_t *conv, ffn_context_t *context, int64_t count) {
    uint64_t bytes, backward = 0;
    ffn_status_t status = ffni_conv_forward_scratch(conv, context, count, &bytes);
    if (!status && (conv->flags & FFN_CONV_TRAINABLE)) status = ffni_conv_backward_scratch(conv, context, count, &backward);
    return status ? status : ffni_context_scratch(context, bytes > backward ? bytes : backward);
}

ffn_status_t ffn_conv_reserve(const ffn_conv_t *conv, ffn_context_t *context, ffn_tape_t *tape, int64_t batch, int64_t length) {
    int64_t count;
    if (!conv) return ffni_fail(FFN_INVALID, "conv is NULL");
    if (batch < 0) return ffni_fail(FFN_INVALID, "batch is %" PRId64 ", must be at least 0", batch);
    if (length < 0) return ffni_fail(FFN_INVALID, "length is %" PRId64 ", must be at least 0", length);
    if (!checked_multiply(batch, length, &count))
        return ffni_fail(FFN_INVALID, "batch %" PRId64 " times length %" PRId64 " is more than 2^63 positions", batch, length);
    if (tape && !(conv->flags & FFN_CONV_TRAINABLE)) return ffni_fail(FFN_UNSUPPORTED, "tape is given, but the layer was made without FFN_CONV_TRAINABLE");
    ffn_status_t status = ffni_context_enter(context, &context);
    if (status) return status;
    status = reserve_scratch(conv, context, count);
    ffni_context_leave(context);
    return status || !tape ? status : ffni_tape_make_room(tape, count, conv->sizes.d_ff, 0);
}

ffn_status_t ffn_conv_info(const ffn_conv_t *conv, ffn_conv_info_t *info) {
    if (!conv) return ffni_fail(FFN_INVALID, "conv is NULL");
    const conv_sizes_t *sizes = &conv->sizes;
    ffn_conv_info_t known = {
        .flags = conv->flags, .d_model = sizes->d_model, .d_ff = sizes->d_ff, .d_out = sizes->d_out, .kernel_size = sizes->kernel[FIRST],
        .second_kernel_size = sizes->kernel[SECOND], .separable = (uint32_t)(sizes->separable[FIRST] | sizes->separable[SECOND] << 1),
        .padding = conv->padding, .mask = conv->mask, .activation = conv->activation_name, .engine = conv->engine, .isa = conv->kernels->isa,
        .bytes = conv->bytes,
    };
    for (int role = 0; role < ROLE_LIMIT; role++) {
        const conv_view_t *stored = &conv->stored[role];
        known.parameters_of[role] = stored->taps * stored->matrix.rows * stored->matrix.columns;
        known.parameters += known.parameters_of[role];
    }
    return ffni_struct_write(info, &known, sizeof known, "ffn_conv_info_t");
}

ffn_status_t ffn_conv_read(const ffn_conv_t *conv, const ffn_tensor_t *tensors, uint64_t tensor_count) {
    const ffn_tensor_t *bound[ROLE_LIMIT];
    if (!conv) return ffni_fail(FFN_INVALID, "conv is NULL");
    ffn_status_t status = ffni_conv_bind(tensors, tensor_count, bound);
    if (!status) status = ffni_conv_check_views(conv, bound);
    if (!status) status = ffni_conv_check_outputs(bound);
    if (status) return status;
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!bound[role]) continue;
        conv_view_t view = ffni_conv_view_of(bound[role]);
        ffni_conv_read(conv, role, &view);
    }
    return FFN_OK;
}

ffn_status_t ffn_conv_update(ffn_conv_t *conv, ffn_context_t *context, const ffn_tensor_t *tensors, uint64_t tensor_count) {
    const ffn_tensor_t *bound[ROLE_LIMIT];
    if (!conv) return ffni_fail(FFN_INVALID, "conv is NULL");
    if (!(conv->flags & FFN_CONV_TRAINABLE)) return ffni_fail(FFN_UNSUPPORTED, "the layer was made without FFN_CONV_TRAINABLE");
    ffn_status_t status = ffni_conv_bind(tensors, tensor_count, bound);
    if (!status) status = ffni_conv_check_views(conv, bound);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    ffni_conv_update(conv, context, bound);
    fpenv_leave(saved);
    ffni_context_leave(context);
    return FFN_OK;
}
