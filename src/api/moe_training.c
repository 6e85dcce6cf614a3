/* SPDX-License-Identifier: MIT
 * Checking ffn_moe_backward_t, and dropout in experts. */
#include "api/moe_training.h"

#include "api/moe_check.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/structs.h"

#include <inttypes.h>

ffn_status_t ffni_moe_check_dropout(const ffn_layer_t *layer, const dropout_t *dropout) {
    const int64_t most = INT64_C(1) << 30;
    int acts = ffni_dropout_acts(dropout, FFN_DROPOUT_PRE_ACTIVATION) || ffni_dropout_acts(dropout, FFN_DROPOUT_ACTIVATION) ||
               ffni_dropout_acts(dropout, FFN_DROPOUT_HIDDEN);
    int64_t columns = layer->mixture.experts * round_up(layer->d_ff, 4) + round_up(layer->shared.d_ff, 4);
    if (!layer->mixture.experts || !acts || columns <= most) return FFN_OK;
    return ffni_fail(FFN_UNSUPPORTED, "the experts have %" PRId64 " hidden units, but dropout in them can draw for at most %" PRId64, columns, most);
}

static ffn_status_t check_fields(const ffn_moe_backward_t *moe, const backward_t *backward) {
    const mixture_t *mixture = &backward->layer->mixture;
    const ffn_tape_t *tape = backward->tape;
    int has_tokens = tape->batch && tape->length, made = has_tokens && tape->mixture.made;
    if (moe->flags) return ffni_fail(FFN_INVALID, "flags of the mixture's backward pass is %" PRIu32 ", must be 0", moe->flags);
    if (has_tokens && !made && (moe->d_logits || moe->d_scores))
        return ffni_fail(FFN_INVALID, "%s is given, but the run brought its weights", moe->d_logits ? "d_logits" : "d_scores");
    if (moe->d_scores && mixture->choose == FFN_MOE_CHOOSE_SPARSE_MIXER) return ffni_fail(FFN_INVALID, "d_scores is given, but SparseMixer has none");
    return FFN_OK;
}

ffn_status_t ffni_moe_read_backward(const ffn_backward_t *given, backward_t *backward) {
    if (!given->moe) return FFN_OK;
    if (!backward->layer->mixture.experts)
        return ffni_fail(FFN_INVALID, "moe of the backward pass is given, but the layer is no mixture of experts");
    ffn_status_t status = ffni_struct_read(&backward->moe, sizeof backward->moe, given->moe, "ffn_moe_backward_t");
    return status ? status : check_fields(&backward->moe, backward);
}

static ffn_status_t check_apart(const moe_array_t *array, const char *name, uintptr_t low, uintptr_t high, int is_written) {
    uintptr_t from = (uintptr_t)array->data;
    if (!array->data || !(array->written || is_written) || from >= high || from + (uint64_t)(array->count * array->size) <= low) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s overlaps %s", array->name, name);
}

static ffn_status_t check_against_rows(const moe_array_t *array, const backward_t *backward) {
    const struct {
        const char *name;
        const rows_t *rows;
        int written;
    } others[] = {{"d_y", &backward->d_y, 0}, {"d_x", &backward->d_x, 1}, {"d_residual", &backward->d_residual, 1},
                  {"x, which the tape borrows", &backward->tape->x, 0}, {"residual, which the tape borrows", &backward->tape->residual, 0}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        uintptr_t low, high;
        if (!others[i].rows->base) continue;
        ffni_rows_range(others[i].rows, &low, &high);
        ffn_status_t status = check_apart(array, others[i].name, low, high, others[i].written);
        if (status) return status;
    }
    return FFN_OK;
}

static ffn_status_t check_against_gradients(const moe_array_t *array, const backward_t *backward) {
    for (uint64_t i = 0; i < backward->view_count; i++)
        for (int64_t expert = 0; expert < ffni_tensor_experts(&backward->views[i]); expert++) {
            view_t view = ffni_view_of_expert(&backward->views[i], expert);
            uintptr_t low, high;
            ffni_view_range(&view, &low, &high);
            ffn_status_t status = check_apart(array, ffni_roles[backward->views[i].role].name, low, high, 1);
            if (status) return status;
        }
    return FFN_OK;
}

ffn_status_t ffni_moe_check_backward(const backward_t *backward) {
    const ffn_moe_backward_t *moe = &backward->moe;
    int64_t tokens = backward->d_y.count, choices = backward->layer->mixture.choices;
    const moe_array_t arrays[] = {
        {"d_logits", moe->d_logits, tokens * choices, 4, 0, 0},
        {"d_scores", moe->d_scores, tokens * choices, 4, 0, 0},
        {"d_weights", moe->d_weights, tokens * backward->tape->mixture.top_k, 4, 0, 1},
    };
    ffn_status_t status = ffni_moe_check_arrays(arrays, sizeof arrays / sizeof *arrays);
    for (size_t i = 0; !status && i < sizeof arrays / sizeof *arrays; i++) {
        if (!arrays[i].data) continue;
        status = check_against_rows(&arrays[i], backward);
        if (!status) status = check_against_gradients(&arrays[i], backward);
    }
    return status;
}
