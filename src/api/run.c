/* SPDX-License-Identifier: MIT
 * ffn_layer_forward and ffn_layer_run: check the rows, then run. */
#include <ffn/ffn.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/stack.h"
#include "base/structs.h"
#include "core/forward.h"
#include "core/gemm.h"

#include <inttypes.h>

/* Stack that the library itself may use below BLAS's. */
enum { OWN_STACK = 16 * 1024 };

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
    if (!status) status = ffni_rows_check_apart(&forward->y, &forward->x, "x");
    if (!status && external) status = ffni_rows_check_apart(&forward->y, &forward->residual, "residual");
    return status;
}

typedef struct moved {
    const forward_t *forward;
    int blas_threads;
} moved_t;

static ffn_status_t run_moved(void *argument) {
    moved_t *moved = argument;
    ffni_gemm_take_threads(moved->blas_threads);
    return ffni_forward(moved->forward);
}

/* OpenBLAS may want more stack than the calling thread has left (threads with 64 kB are common in hosts), or threads that a fork left behind.
 * A new thread begins with the floating-point environment of the one that starts it. */
static ffn_status_t run_on_fit_thread(const ffn_layer_t *layer, const forward_t *forward) {
    uint64_t need = ffni_forward_stack(layer, forward->x.count);
    if (!need || (ffni_stack_left() >= need + OWN_STACK && !ffni_gemm_lost_threads())) return ffni_forward(forward);
    moved_t moved = {forward, ffni_gemm_threads()};
    return ffni_run_with_stack(need + OWN_STACK, run_moved, &moved);
}

static ffn_status_t run_layer(const ffn_layer_t *layer, ffn_context_t *context, const ffn_run_t *run) {
    forward_t forward = {.layer = layer};
    if (run->batch == 0 || run->length == 0) return FFN_OK;
    ffn_status_t status = read_rows(layer, run, &forward);
    if (!status) status = ffni_context_enter(context, &forward.context);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    status = run_on_fit_thread(layer, &forward);
    fpenv_leave(saved);
    ffni_context_leave(forward.context);
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
