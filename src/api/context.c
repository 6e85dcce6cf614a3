/* SPDX-License-Identifier: MIT
 * ffn_context_*: check, then call core. */
#include <ffn/ffn.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/structs.h"
#include "core/context.h"
#include "core/forward.h"
#include "core/training.h"

#include <inttypes.h>

ffn_status_t ffn_context_create(const ffn_context_options_t *options, ffn_context_t **context) {
    if (!context) return ffni_fail(FFN_INVALID, "the pointer to the context is NULL");
    *context = NULL;
    return ffni_context_new(options, context);
}

void ffn_context_free(ffn_context_t *context) {
    ffni_context_delete(context);
}

ffn_status_t ffn_context_reserve(ffn_context_t *context, const ffn_layer_t *layer, int64_t tokens) {
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    if (tokens < 0) return ffni_fail(FFN_INVALID, "tokens is %" PRId64 ", must be at least 0", tokens);
    ffn_status_t status = ffni_context_enter(context, &context);
    if (status) return status;
    uint64_t bytes, training_bytes = 0;
    status = ffni_forward_scratch(layer, context, tokens, &bytes);
    if (!status && (layer->flags & FFN_LAYER_TRAINABLE)) status = ffni_training_scratch(layer, context, tokens, &training_bytes);
    if (!status) status = ffni_context_scratch(context, bytes > training_bytes ? bytes : training_bytes);
    ffni_context_leave(context);
    return status;
}

ffn_status_t ffn_context_info(ffn_context_t *context, ffn_context_info_t *info) {
    if (!info) return ffni_fail(FFN_INVALID, "info is NULL");
    ffn_status_t status = ffni_context_enter(context, &context);
    if (status) return status;
    ffn_context_info_t known = {.threads_requested = context->threads_requested, .threads = ffni_context_threads(context),
                                .scratch_bytes = context->scratch_bytes};
    status = ffni_struct_write(info, &known, sizeof known, "ffn_context_info_t");
    ffni_context_leave(context);
    return status;
}
