/* SPDX-License-Identifier: MIT
 * ffn_layer_forward and ffn_layer_run: check the rows, then run. */
#include <ffn/ffn.h>

#include "api/moe_run.h"
#include "api/moe_training.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/fit_thread.h"
#include "core/forward.h"
#include "core/training.h"

#include <inttypes.h>

static ffn_status_t check_run(const ffn_run_t *run, uint32_t residual) {
    const uint32_t dtypes[3] = {run->x_dtype, run->y_dtype, run->residual_dtype};
    static const char *const names[3] = {"x", "y", "residual"};
    int64_t tokens;
    if (run->flags) return ffni_fail(FFN_INVALID, "flags of the run is %" PRIu32 ", must be 0", run->flags);
    if (run->reserved) return ffni_fail(FFN_INVALID, "reserved of the run is %" PRIu32 ", must be 0", run->reserved);
    if (run->batch < 0) return ffni_fail(FFN_INVALID, "batch is %" PRId64 ", must be at least 0", run->batch);
    if (run->length < 0) return ffni_fail(FFN_INVALID, "length is %" PRId64 ", must be at least 0", run->length);
    if (!checked_multiply(run->batch, run->length, &tokens))
        return ffni_fail(FFN_INVALID, "batch %" PRId64 " times length %" PRId64 " is more than 2^63 tokens", run->batch, run->length);
    for (int i = 0; i < 3; i++)
        if (dtypes[i] != FFN_DTYPE_F32)
            return ffni_fail(FFN_UNSUPPORTED, "dtype of %s is %" PRIu32 ", must be FFN_DTYPE_F32 in this version", names[i], dtypes[i]);
    if (residual != FFN_RESIDUAL_EXTERNAL && run->residual)
        return ffni_fail(FFN_INVALID, "residual is given, but the layer's residual is not external");
    return FFN_OK;
}

/* Checks and describes the rows. The run has tokens. */
static ffn_status_t read_rows(const ffn_layer_t *layer, const ffn_run_t *run, forward_t *forward) {
    int64_t batch = run->batch, length = run->length;
    int external = layer->residual == FFN_RESIDUAL_EXTERNAL;
    ffn_status_t status = ffni_rows_read(&forward->x, "x", run->x, batch, length, layer->d_model, run->x_stride);
    if (!status) status = ffni_rows_read(&forward->y, "y", run->y, batch, length, layer->d_out, run->y_stride);
    if (!status && external) status = ffni_rows_read(&forward->residual, "residual", run->residual, batch, length, layer->d_out, run->residual_stride);
    if (!status) status = ffni_rows_check_distinct(&forward->y, "y");
    if (!status) status = ffni_rows_check_same_or_separate(&forward->y, "y", &forward->x, "x");
    if (!status && external) status = ffni_rows_check_same_or_separate(&forward->y, "y", &forward->residual, "residual");
    return status;
}

/* The tape goes on reading x and residual: y must not take their place. */
static ffn_status_t check_borrowed(const forward_t *forward) {
    ffn_status_t status = ffni_rows_check_separate(&forward->y, "y", &forward->x, "x, which the tape borrows");
    if (!status && forward->residual.base)
        status = ffni_rows_check_separate(&forward->y, "y", &forward->residual, "residual, which the tape borrows");
    return status;
}

typedef struct call {
    forward_t forward;
    dropout_t dropout;
    ffn_tape_t *tape;
    moe_particulars_t moe;
} call_t;

static ffn_status_t compute(void *argument) {
    call_t *call = argument;
    if (call->forward.layer->mixture.experts || (!call->tape && !call->dropout.any)) return ffni_forward(&call->forward);
    return ffni_training_forward(&call->forward, &call->dropout, call->tape);
}

static uint64_t stack_of(const call_t *call) {
    const ffn_layer_t *layer = call->forward.layer;
    return call->tape || call->dropout.any ? ffni_training_stack(layer) : ffni_forward_stack(layer, call->forward.x.count);
}

static ffn_status_t read_training(const ffn_layer_t *layer, const ffn_run_t *run, call_t *call) {
    ffn_dropout_t dropout;
    if ((run->dropout || run->tape) && !(layer->flags & FFN_LAYER_TRAINABLE))
        return ffni_fail(FFN_UNSUPPORTED, "%s is given, but the layer was made without FFN_LAYER_TRAINABLE", run->tape ? "tape" : "dropout");
    ffn_status_t status = run->dropout ? ffni_struct_read(&dropout, sizeof dropout, run->dropout, "ffn_dropout_t") : FFN_OK;
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    status = ffni_dropout_read(&call->dropout, run->dropout ? &dropout : NULL, run->batch, run->length);
    if (!status) status = ffni_moe_check_dropout(layer, &call->dropout);
    fpenv_leave(saved);
    return status;
}

static ffn_status_t compute_on(ffn_context_t *context, call_t *call) {
    ffn_status_t status = ffni_context_enter(context, &call->forward.context);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    status = ffni_run_on_fit_thread(stack_of(call), compute, call);
    fpenv_leave(saved);
    ffni_context_leave(call->forward.context);
    return status;
}

/* The tape is the run's from here on. */
static void record(const ffn_layer_t *layer, const ffn_run_t *run, const call_t *call) {
    ffn_tape_t *tape = call->tape;
    tape->state = TAPE_RECORDED;
    tape->layer_serial = layer->serial;
    tape->layer_generation = layer->generation;
    tape->batch = run->batch;
    tape->length = run->length;
    tape->x = call->forward.x;
    tape->residual = call->forward.residual;
    tape->dropout = call->dropout;
}

static ffn_status_t run_layer(const ffn_layer_t *layer, ffn_context_t *context, const ffn_run_t *run) {
    call_t call = {.forward = {.layer = layer, .stats = run->stats}, .tape = run->tape};
    ffn_status_t status = ffni_stats_check(run->stats, layer->mixture.experts, layer->d_ff, layer->shared.d_ff, run->batch * run->length);
    if (!status) status = read_training(layer, run, &call);
    if (!status) status = ffni_moe_read_run(layer, run, &call.moe);
    if (status) return status;
    if (run->batch && run->length) {
        call.forward.moe = &call.moe.call;
        call.forward.dropout = call.dropout.any ? &call.dropout : NULL;
        call.forward.tape = call.tape;
        status = read_rows(layer, run, &call.forward);
        if (!status && layer->mixture.experts) status = ffni_moe_check_run(layer, &call.forward, &call.moe);
        if (!status && call.tape) status = check_borrowed(&call.forward);
        if (!status) status = compute_on(context, &call);
    }
    if (!status && layer->mixture.experts) ffni_moe_write_run(layer, &call.moe);
    if (!status && call.tape) record(layer, run, &call);
    if (!status && run->stats && !layer->mixture.experts) run->stats->positions[0] += run->batch * run->length; /* a mixture counts by expert */
    return status;
}

ffn_status_t ffn_layer_run(const ffn_layer_t *layer, ffn_context_t *context, const ffn_run_t *given) {
    ffn_run_t run;
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    ffn_status_t status = ffni_struct_read(&run, sizeof run, given, "ffn_run_t");
    if (!status) status = check_run(&run, layer->residual);
    if (status) return status;
    return run_layer(layer, context, &run);
}

ffn_status_t ffn_layer_forward(const ffn_layer_t *layer, ffn_context_t *context, int64_t tokens, const float *x, int64_t x_stride, float *y,
                               int64_t y_stride) {
    if (!layer) return ffni_fail(FFN_INVALID, "layer is NULL");
    if (layer->residual == FFN_RESIDUAL_EXTERNAL)
        return ffni_fail(FFN_INVALID, "the layer's residual is external: give it to ffn_layer_run");
    if (tokens < 0) return ffni_fail(FFN_INVALID, "tokens is %" PRId64 ", must be at least 0", tokens);
    const ffn_run_t run = {.batch = 1, .length = tokens, .x = x, .y = y, .x_stride = {0, x_stride}, .y_stride = {0, y_stride}};
    return run_layer(layer, context, &run);
}
