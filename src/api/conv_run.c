/* SPDX-License-Identifier: MIT
 * ffn_conv_run and ffn_conv_backward: check the rows, then run. */
#include <ffn/ffn.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/conv_backward.h"
#include "core/fit_thread.h"

#include <inttypes.h>

static ffn_status_t check_dtype(const char *name, uint32_t dtype) {
    if (dtype == FFN_DTYPE_F32) return FFN_OK;
    return ffni_fail(FFN_UNSUPPORTED, "dtype of %s is %" PRIu32 ", must be FFN_DTYPE_F32 in this version", name, dtype);
}

static ffn_status_t compute_on(ffn_context_t *context, ffn_context_t **entered, const ffn_conv_t *conv, stack_fn *function, void *argument) {
    ffn_status_t status = ffni_context_enter(context, entered);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    status = ffni_run_on_fit_thread(conv->engine == FFN_ENGINE_BLAS ? ffni_gemm_general_stack() : 0, function, argument);
    fpenv_leave(saved);
    ffni_context_leave(*entered);
    return status;
}

/* ------------------------------------------------------------------------- Run */

static ffn_status_t check_run(const ffn_conv_run_t *run, const ffn_conv_t *conv) {
    int64_t count;
    if (run->flags) return ffni_fail(FFN_INVALID, "flags of the run is %" PRIu32 ", must be 0", run->flags);
    if (run->batch < 0) return ffni_fail(FFN_INVALID, "batch is %" PRId64 ", must be at least 0", run->batch);
    if (run->length < 0) return ffni_fail(FFN_INVALID, "length is %" PRId64 ", must be at least 0", run->length);
    if (!checked_multiply(run->batch, run->length, &count))
        return ffni_fail(FFN_INVALID, "batch %" PRId64 " times length %" PRId64 " is more than 2^63 positions", run->batch, run->length);
    if (run->mask_stride && !run->mask) return ffni_fail(FFN_INVALID, "mask_stride is %" PRId64 ", but mask is NULL", run->mask_stride);
    if (run->mask_stride && run->mask_stride < run->length)
        return ffni_fail(FFN_INVALID, "mask_stride is %" PRId64 " bytes, must be at least %" PRId64 " (length)", run->mask_stride, run->length);
    if ((run->dropout || run->tape) && !(conv->flags & FFN_CONV_TRAINABLE))
        return ffni_fail(FFN_UNSUPPORTED, "%s is given, but the layer was made without FFN_CONV_TRAINABLE", run->tape ? "tape" : "dropout");
    ffn_status_t status = check_dtype("x", run->x_dtype);
    if (!status) status = check_dtype("y", run->y_dtype);
    return status ? status : ffni_stats_check(run->stats, 0, conv->sizes.d_ff, 0, count);
}

typedef struct call {
    conv_pass_t pass;
    rows_t x, y;
    dropout_t dropout;
    ffn_tape_t *tape;
    ffn_stats_t *stats;
} call_t;

static ffn_status_t read_dropout(const ffn_conv_run_t *run, call_t *call) {
    ffn_dropout_t dropout;
    ffn_status_t status = run->dropout ? ffni_struct_read(&dropout, sizeof dropout, run->dropout, "ffn_dropout_t") : FFN_OK;
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    status = ffni_dropout_read(&call->dropout, run->dropout ? &dropout : NULL, run->batch, run->length);
    fpenv_leave(saved);
    return status;
}

/* Refuses an output, with addresses from low to high, that shares a byte with the mask of the pass. */
static ffn_status_t check_apart_from_mask(const conv_pass_t *pass, uintptr_t low, uintptr_t high, const char *what, const char *name) {
    uintptr_t begin = (uintptr_t)pass->mask, end = begin + (uintptr_t)((pass->count / pass->length - 1) * pass->mask_stride + pass->length);
    if (!pass->mask || high <= begin || end <= low) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s%s overlaps mask: they must be apart", what, name);
}

static ffn_status_t read_mask(const ffn_conv_run_t *run, call_t *call) {
    int64_t bytes, stride = run->mask_stride ? run->mask_stride : run->length;
    uintptr_t low, high;
    if (!run->mask) return FFN_OK;
    if (!checked_multiply(run->batch - 1, stride, &bytes) || !checked_add(bytes, run->length, &bytes) ||
        (uint64_t)bytes > UINTPTR_MAX - (uintptr_t)run->mask)
        return ffni_fail(FFN_INVALID, "the sequences of mask reach beyond the address space");
    call->pass.mask = run->mask;
    call->pass.mask_stride = stride;
    ffni_rows_range(&call->y, &low, &high);
    return check_apart_from_mask(&call->pass, low, high, "", "y");
}

static ffn_status_t read_rows(const ffn_conv_run_t *run, const conv_sizes_t *sizes, call_t *call) {
    ffn_status_t status = ffni_rows_read(&call->x, "x", run->x, run->batch, run->length, sizes->d_model, run->x_stride);
    if (!status) status = ffni_rows_read(&call->y, "y", run->y, run->batch, run->length, sizes->d_out, run->y_stride);
    if (!status) status = ffni_rows_check_distinct(&call->y, "y");
    if (!status) status = ffni_rows_check_separate(&call->y, "y", &call->x, "x");
    return status ? status : read_mask(run, call);
}

static ffn_status_t forward(void *argument) {
    call_t *call = argument;
    return ffni_conv_forward(&call->pass, &call->y, call->tape, call->stats);
}

/* The tape is the run's from here on. */
static void record(const ffn_conv_t *conv, const ffn_conv_run_t *run, const call_t *call) {
    ffn_tape_t *tape = call->tape;
    tape->state = TAPE_RECORDED;
    tape->layer_serial = conv->serial;
    tape->layer_generation = conv->generation;
    tape->batch = run->batch;
    tape->length = run->length;
    tape->x = call->x;
    tape->residual = (rows_t){0};
    tape->mask = call->pass.mask;
    tape->mask_stride = call->pass.mask_stride;
    tape->dropout = call->dropout;
}

ffn_status_t ffn_conv_run(const ffn_conv_t *conv, ffn_context_t *context, const ffn_conv_run_t *given) {
    ffn_conv_run_t run;
    if (!conv) return ffni_fail(FFN_INVALID, "conv is NULL");
    ffn_status_t status = ffni_struct_read(&run, sizeof run, given, "ffn_conv_run_t");
    if (!status) status = check_run(&run, conv);
    if (status) return status;
    call_t call = {.pass = {.conv = conv, .count = run.batch * run.length, .length = run.length}, .tape = run.tape, .stats = run.stats};
    call.pass.x = &call.x;
    call.pass.dropout = &call.dropout;
    status = read_dropout(&run, &call);
    if (!status && call.pass.count) {
        status = read_rows(&run, &conv->sizes, &call);
        if (!status) status = compute_on(context, &call.pass.context, conv, forward, &call);
    }
    if (!status && call.tape) record(conv, &run, &call);
    return status;
}

/* -------------------------------------------------------------------- Backward */

static ffn_status_t check_tape(const ffn_conv_t *conv, const ffn_tape_t *tape) {
    if (!tape) return ffni_fail(FFN_INVALID, "tape is NULL");
    if (tape->state == TAPE_EMPTY) return ffni_fail(FFN_INVALID, "the tape is empty: give it to ffn_conv_run first");
    if (tape->state == TAPE_USED) return ffni_fail(FFN_INVALID, "the tape was used up by a backward pass: record another run");
    if (tape->layer_serial != conv->serial) return ffni_fail(FFN_INVALID, "the tape was recorded by a run of another layer");
    if (tape->layer_generation != conv->generation)
        return ffni_fail(FFN_INVALID, "the layer was updated after the tape was recorded: record another run");
    return FFN_OK;
}

static ffn_status_t check_fields(const ffn_backward_t *given) {
    if (given->flags & ~(uint32_t)FFN_BACKWARD_ACCUMULATE)
        return ffni_fail(FFN_INVALID, "flags of the backward pass is 0x%" PRIx32 ", must be FFN_BACKWARD_ACCUMULATE or 0", given->flags);
    if (given->reserved) return ffni_fail(FFN_INVALID, "reserved of the backward pass is %" PRIu32 ", must be 0", given->reserved);
    if (given->d_residual) return ffni_fail(FFN_INVALID, "d_residual is given, but a convolutional layer has no residual");
    if (given->moe) return ffni_fail(FFN_INVALID, "moe of the backward pass is given, but the layer is no mixture of experts");
    ffn_status_t status = check_dtype("d_y", given->d_y_dtype);
    if (!status) status = check_dtype("d_x", given->d_x_dtype);
    return status ? status : check_dtype("d_residual", given->d_residual_dtype);
}

static ffn_status_t read_slopes(const ffn_backward_t *given, const conv_sizes_t *sizes, conv_backward_t *backward) {
    const ffn_tape_t *tape = backward->tape;
    ffn_status_t status = ffni_rows_read(&backward->d_y, "d_y", given->d_y, tape->batch, tape->length, sizes->d_out, given->d_y_stride);
    if (status || !given->d_x) return status;
    status = ffni_rows_read(&backward->d_x, "d_x", given->d_x, tape->batch, tape->length, sizes->d_model, given->d_x_stride);
    if (!status) status = ffni_rows_check_distinct(&backward->d_x, "d_x");
    if (!status) status = ffni_rows_check_separate(&backward->d_x, "d_x", &backward->d_y, "d_y");
    if (!status) status = ffni_rows_check_separate(&backward->d_x, "d_x", &tape->x, "x, which the tape borrows");
    if (status) return status;
    uintptr_t low, high;
    ffni_rows_range(&backward->d_x, &low, &high);
    return check_apart_from_mask(&backward->pass, low, high, "", "d_x");
}

static ffn_status_t check_gradient_apart(const conv_backward_t *backward, int role) {
    const struct {
        const char *name;
        const rows_t *rows;
    } others[] = {{"d_y", &backward->d_y}, {"d_x", &backward->d_x}, {"x, which the tape borrows", &backward->tape->x}};
    uintptr_t low, high, other_low, other_high;
    ffni_conv_view_range(&backward->gradients->view[role], &low, &high);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!others[i].rows->base) continue;
        ffni_rows_range(others[i].rows, &other_low, &other_high);
        if (high > other_low && other_high > low)
            return ffni_fail(FFN_INVALID, "the gradient of %s overlaps %s: they must be apart", ffni_conv_role_name(role), others[i].name);
    }
    return check_apart_from_mask(&backward->pass, low, high, "the gradient of ", ffni_conv_role_name(role));
}

static ffn_status_t bind_gradients(const ffn_backward_t *given, const ffn_conv_t *conv, conv_gradients_t *gradients) {
    const ffn_tensor_t *bound[ROLE_LIMIT];
    ffn_status_t status = ffni_conv_bind(given->gradients, given->gradient_count, bound);
    if (!status) status = ffni_conv_check_views(conv, bound);
    if (!status) status = ffni_conv_check_outputs(bound);
    if (!status) ffni_conv_gradients_init(gradients, conv, bound, (given->flags & FFN_BACKWARD_ACCUMULATE) != 0);
    return status;
}

static ffn_status_t backward_or_zeros(void *argument) {
    const conv_backward_t *backward = argument;
    if (backward->pass.count) return ffni_conv_backward(backward);
    ffni_conv_gradients_write_zeros(backward->gradients);
    return FFN_OK;
}

ffn_status_t ffn_conv_backward(const ffn_conv_t *conv, ffn_context_t *context, const ffn_backward_t *backward) {
    ffn_backward_t given;
    conv_gradients_t gradients;
    if (!conv) return ffni_fail(FFN_INVALID, "conv is NULL");
    if (!(conv->flags & FFN_CONV_TRAINABLE)) return ffni_fail(FFN_UNSUPPORTED, "the layer was made without FFN_CONV_TRAINABLE");
    ffn_status_t status = ffni_struct_read(&given, sizeof given, backward, "ffn_backward_t");
    if (!status) status = check_tape(conv, given.tape);
    if (!status) status = check_fields(&given);
    if (!status) status = bind_gradients(&given, conv, &gradients);
    if (status) return status;
    ffn_tape_t *tape = given.tape;
    conv_backward_t pass = {.pass = {.conv = conv, .count = tape->batch * tape->length, .length = tape->length, .x = &tape->x, .mask = tape->mask,
                                     .mask_stride = tape->mask_stride, .dropout = &tape->dropout},
                            .tape = tape, .gradients = &gradients};
    if (pass.pass.count) status = read_slopes(&given, &conv->sizes, &pass);
    for (int role = 0; pass.pass.count && !status && role < ROLE_LIMIT; role++)
        if (conv_gradient_wanted(&gradients, role)) status = check_gradient_apart(&pass, role);
    if (!status) status = compute_on(context, &pass.pass.context, conv, backward_or_zeros, &pass);
    if (!status) tape->state = TAPE_USED;
    return status;
}
