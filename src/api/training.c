/* SPDX-License-Identifier: MIT
 * ffn_tape_*, ffn_layer_backward and ffn_layer_update: check, then call core. */
#include <ffn/ffn.h>

#include "api/moe_training.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/fit_thread.h"
#include "core/layer_views.h"
#include "core/training.h"
#include "core/update.h"

#include <inttypes.h>

ffn_status_t ffn_tape_create(const ffn_tape_options_t *options, ffn_tape_t **tape) {
    if (!tape) return ffni_fail(FFN_INVALID, "the pointer to the tape is NULL");
    *tape = NULL;
    return ffni_tape_new(options, tape);
}

void ffn_tape_free(ffn_tape_t *tape) {
    ffni_tape_delete(tape);
}

static ffn_status_t check_trainable(const ffn_layer_t *layer) {
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    if (!(layer->flags & FFN_LAYER_TRAINABLE)) return ffni_fail(FFN_UNSUPPORTED, "the layer was made without FFN_LAYER_TRAINABLE");
    return FFN_OK;
}

ffn_status_t ffn_tape_reserve(ffn_tape_t *tape, const ffn_layer_t *layer, int64_t tokens) {
    if (!tape) return ffni_fail(FFN_INVALID, "tape is NULL");
    if (tokens < 0) return ffni_fail(FFN_INVALID, "tokens is %" PRId64 ", must be at least 0", tokens);
    ffn_status_t status = check_trainable(layer);
    return status ? status : ffni_tape_reserve(tape, layer, tokens);
}

/* -------------------------------------------------------------------- Backward */

static ffn_status_t check_tape(const ffn_layer_t *layer, const ffn_tape_t *tape) {
    if (!tape) return ffni_fail(FFN_INVALID, "tape is NULL");
    if (tape->state == TAPE_EMPTY) return ffni_fail(FFN_INVALID, "the tape is empty: give it to ffn_layer_run first");
    if (tape->state == TAPE_USED) return ffni_fail(FFN_INVALID, "the tape was used up by an ffn_layer_backward: record another run");
    if (tape->layer_serial != layer->serial) return ffni_fail(FFN_INVALID, "the tape was recorded by a run of another layer");
    if (tape->layer_generation != layer->generation)
        return ffni_fail(FFN_INVALID, "the layer was updated after the tape was recorded: record another run");
    return FFN_OK;
}

static ffn_status_t check_fields(const ffn_backward_t *given, const ffn_layer_t *layer) {
    const uint32_t dtypes[3] = {given->d_y_dtype, given->d_x_dtype, given->d_residual_dtype};
    static const char *const names[3] = {"d_y", "d_x", "d_residual"};
    if (given->flags & ~(uint32_t)FFN_BACKWARD_ACCUMULATE)
        return ffni_fail(FFN_INVALID, "flags of the backward pass is 0x%" PRIx32 ", must be FFN_BACKWARD_ACCUMULATE or 0", given->flags);
    if (given->reserved) return ffni_fail(FFN_INVALID, "reserved of the backward pass is %" PRIu32 ", must be 0", given->reserved);
    for (int i = 0; i < 3; i++)
        if (dtypes[i] != FFN_DTYPE_F32)
            return ffni_fail(FFN_UNSUPPORTED, "dtype of %s is %" PRIu32 ", must be FFN_DTYPE_F32 in this version", names[i], dtypes[i]);
    if (given->d_residual && layer->residual != FFN_RESIDUAL_EXTERNAL)
        return ffni_fail(FFN_INVALID, "d_residual is given, but the layer's residual is not external");
    return FFN_OK;
}

/* An output of the backward pass: distinct rows, which may take d_y's place, and share nothing with what the tape borrows. */
static ffn_status_t read_output(const backward_t *backward, rows_t *rows, const char *name, void *base, int64_t width, const int64_t stride[2]) {
    const ffn_tape_t *tape = backward->tape;
    if (!base) return FFN_OK;
    ffn_status_t status = ffni_rows_read(rows, name, base, tape->batch, tape->length, width, stride);
    if (!status) status = ffni_rows_check_distinct(rows, name);
    if (!status) status = ffni_rows_check_same_or_separate(rows, name, &backward->d_y, "d_y");
    if (!status) status = ffni_rows_check_separate(rows, name, &tape->x, "x, which the tape borrows");
    if (!status && tape->residual.base) status = ffni_rows_check_separate(rows, name, &tape->residual, "residual, which the tape borrows");
    return status;
}

static ffn_status_t read_rows(const ffn_backward_t *given, backward_t *backward) {
    const ffn_tape_t *tape = backward->tape;
    const ffn_layer_t *layer = backward->layer;
    ffn_status_t status = ffni_rows_read(&backward->d_y, "d_y", given->d_y, tape->batch, tape->length, layer->d_out, given->d_y_stride);
    if (!status) status = read_output(backward, &backward->d_x, "d_x", given->d_x, layer->d_model, given->d_x_stride);
    if (!status) status = read_output(backward, &backward->d_residual, "d_residual", given->d_residual, layer->d_out, given->d_residual_stride);
    if (!status && given->d_x && given->d_residual)
        status = ffni_rows_check_separate(&backward->d_residual, "d_residual", &backward->d_x, "d_x");
    return status;
}

static ffn_status_t check_gradient_apart(const backward_t *backward, uint32_t role, const view_t *view) {
    const struct {
        const char *name;
        const rows_t *rows;
    } others[] = {{"d_y", &backward->d_y}, {"d_x", &backward->d_x}, {"d_residual", &backward->d_residual},
                  {"x, which the tape borrows", &backward->tape->x}, {"residual, which the tape borrows", &backward->tape->residual}};
    uintptr_t low, high, other_low, other_high;
    ffni_view_range(view, &low, &high);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!others[i].rows->base) continue;
        ffni_rows_range(others[i].rows, &other_low, &other_high);
        if (high > other_low && other_high > low)
            return ffni_fail(FFN_INVALID, "the gradient of %s overlaps %s: they must be apart", ffni_roles[role].name, others[i].name);
    }
    return FFN_OK;
}

static ffn_status_t check_gradients_apart(const backward_t *backward) {
    ffn_status_t status = FFN_OK;
    for (uint64_t i = 0; !status && i < backward->view_count; i++)
        for (int64_t expert = 0; !status && expert < ffni_tensor_experts(&backward->views[i]); expert++) {
            view_t view = ffni_view_of_expert(&backward->views[i], expert);
            status = check_gradient_apart(backward, backward->views[i].role, &view);
        }
    return status;
}

/* The gradients of no rows. */
static void write_zeros(const backward_t *backward) {
    for (uint64_t i = 0; !backward->gradients->accumulate && i < backward->view_count; i++)
        for (int64_t expert = 0; expert < ffni_tensor_experts(&backward->views[i]); expert++) {
            view_t view = ffni_view_of_expert(&backward->views[i], expert);
            ffni_view_zero(&view);
        }
}

static ffn_status_t bind_gradients(const ffn_backward_t *given, const ffn_layer_t *layer, gradients_t *gradients) {
    const ffn_tensor_t *bound[ROLE_LIMIT];
    ffn_status_t status = ffni_tensors_bind(given->gradients, given->gradient_count, layer->mixture.experts, bound);
    if (!status) status = ffni_layer_check_outputs(layer, given->gradients, given->gradient_count);
    for (int role = 0; layer->mixture.experts && role < ROLE_LIMIT; role++)
        if (ffni_roles[role].owner == OWNER_EXPERT) bound[role] = NULL; /* core/moe_gradients.c has them */
    if (!status) ffni_gradients_init(gradients, layer, bound, (given->flags & FFN_BACKWARD_ACCUMULATE) != 0);
    return status;
}

static ffn_status_t compute(void *argument) {
    return ffni_training_backward(argument);
}

static ffn_status_t run_backward(const ffn_backward_t *given, ffn_context_t *context, backward_t *backward) {
    ffn_tape_t *tape = backward->tape;
    ffn_status_t status = FFN_OK;
    int has_tokens = tape->batch && tape->length;
    if (has_tokens) status = read_rows(given, backward);
    if (has_tokens && !status) status = check_gradients_apart(backward);
    if (has_tokens && !status && given->moe) status = ffni_moe_check_backward(backward);
    if (!status) status = ffni_context_enter(context, &backward->context);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    if (has_tokens)
        status = ffni_run_on_fit_thread(ffni_training_stack(backward->layer), compute, backward);
    else
        write_zeros(backward);
    fpenv_leave(saved);
    ffni_context_leave(backward->context);
    if (!status) tape->state = TAPE_USED;
    return status;
}

ffn_status_t ffn_layer_backward(const ffn_layer_t *layer, ffn_context_t *context, const ffn_backward_t *backward) {
    ffn_backward_t given;
    gradients_t gradients;
    ffn_status_t status = check_trainable(layer);
    if (!status) status = ffni_struct_read(&given, sizeof given, backward, "ffn_backward_t");
    if (!status) status = check_tape(layer, given.tape);
    if (!status) status = check_fields(&given, layer);
    if (!status) status = bind_gradients(&given, layer, &gradients);
    if (status) return status;
    backward_t pass = {.layer = layer, .tape = given.tape, .gradients = &gradients, .views = given.gradients, .view_count = given.gradient_count};
    status = ffni_moe_read_backward(&given, &pass);
    return status ? status : run_backward(&given, context, &pass);
}

/* ---------------------------------------------------------------------- Update */

ffn_status_t ffn_layer_update(ffn_layer_t *layer, ffn_context_t *context, const ffn_tensor_t *tensors, uint64_t tensor_count) {
    const ffn_tensor_t *bound[ROLE_LIMIT];
    ffn_status_t status = check_trainable(layer);
    if (!status) status = ffni_tensors_bind(tensors, tensor_count, layer->mixture.experts, bound);
    for (uint64_t i = 0; !status && i < tensor_count; i++) status = ffni_layer_check_view(layer, &tensors[i]);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    ffni_layer_update(layer, context, tensors, tensor_count);
    fpenv_leave(saved);
    ffni_context_leave(context);
    return FFN_OK;
}
