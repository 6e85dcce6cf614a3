/* SPDX-License-Identifier: MIT
 * The router's matrix on the native engine's products: the weights into panels, then the rows through them. */
#include "core/moe_logits.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"

#include <inttypes.h>

static uint64_t lay_out(logits_t *logits, int64_t rows, int64_t slots, linear_scratch_t *scratch, char *base) {
    arena_t arena = {.base = base};
    panels_t *panels = &logits->linear.panels;
    panels->data = ffni_arena_take(&arena, panels->depth * round_up(panels->columns, panels->width), sizeof(float));
    *scratch = ffni_linear_lay_out(&logits->linear, rows, slots, &arena);
    return arena.used;
}

/* Fewer threads, then fewer rows, where the context's limit of scratch memory asks for it. */
static ffn_status_t take_scratch(ffn_context_t *context, logits_t *logits, linear_scratch_t *scratch) {
    int64_t rows = logits->x.count, slots = ffni_context_threads(context);
    uint64_t bytes;
    while ((bytes = lay_out(logits, rows, slots, scratch, NULL)), context->scratch_limit && bytes > context->scratch_limit) {
        rows = scratch->block_rows;
        if (slots > 1)
            slots--;
        else if (rows > 1)
            rows /= 2;
        else
            return ffni_fail(FFN_NO_MEMORY, "scratch_limit of the context is %" PRIu64 " bytes, must be at least %" PRIu64 " for this router",
                             context->scratch_limit, bytes);
    }
    ffn_status_t status = ffni_context_scratch(context, bytes);
    if (!status) lay_out(logits, rows, slots, scratch, context->scratch);
    return status;
}

ffn_status_t ffni_moe_logits(ffn_context_t *context, logits_t *logits) {
    panels_t *panels = &logits->linear.panels;
    linear_scratch_t scratch;
    int64_t width = logits->linear.kernels->panel_width;
    *panels = (panels_t){.columns = logits->weight.rows, .depth = logits->weight.columns, .width = width, .step = width * logits->weight.columns};
    ffn_status_t status = take_scratch(context, logits, &scratch);
    if (status) return status;
    ffni_panels_pack(context, panels, &logits->weight);
    ffni_linear_run(context, &logits->linear, &scratch, &logits->x, 0, logits->x.count, logits->out);
    return FFN_OK;
}
