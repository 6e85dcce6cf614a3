/* SPDX-License-Identifier: MIT
 * The backward pass of a convolutional layer.
 *
 * It is a chain of four stages, each of which makes rows that the next one reaches, from the last stage asked for: a block of d_x needs the derivatives
 * by the first convolution's output that its taps reach, these need the second's, those need hidden rows. Each stage keeps its rows in a window, and
 * makes only the new ones; the sums of the weights' gradients come along. A separable convolution's stage ends behind its matrix, before its taps. */
#include "core/conv_backward.h"

#include "base/checked.h"
#include "core/gradients.h"
#include "core/parallel.h"

#include <string.h>

typedef struct backward_block {
    const conv_backward_t *run;
    const conv_pass_t *pass;
    conv_gradients_t *gradients;

    /* Windows on rows of the run. */
    window_t hidden;           /* [d_ff]: pre-activations, prepared; data NULL: the tape keeps them */
    window_t act;              /* [d_ff]: the hidden row */
    window_t d[CONVOLUTIONS];  /* derivatives by a convolution's output, [out], or by what its matrix takes, [in] of a separable one */

    /* Of a stage's new rows. */
    float *input;        /* [depth of the first product] */
    float *second_input; /* [depth of the second product] */
    float *d_branch;     /* [d_out], before the second convolution's matrix, where that is separable */
    float *d_act;        /* [d_ff] */
    float *d_input;      /* [d_model] */
    float *tap;          /* the rows of one tap */
    double *xielu;       /* [chunks, 2] */
    int recomputes, needs_d_first;
} backward_block_t;

/* ------------------------------------------------------------------ Memory */

/* The most rows that a stage makes at once: each taps beyond a block. */
typedef struct extents {
    int64_t input, first, second, act;
} extents_t;

static extents_t extents_of(const ffn_conv_t *conv, int64_t count, int64_t rows) {
    int64_t first = conv->part[FIRST].kernel - 1, second = conv->part[SECOND].kernel - 1;
    return (extents_t){minimum(count, rows), minimum(count, rows + first), minimum(count, rows + first + second),
                       minimum(count, rows + first + 2 * second)};
}

static float *take(arena_t *arena, int needed, int64_t rows, int64_t width) {
    return needed ? ffni_arena_take(arena, rows, width * (int64_t)sizeof(float)) : NULL;
}

/* The width of a stage's rows. */
static int64_t slope_width(const convolution_t *is) {
    return is->separable ? is->in : is->out;
}

static window_t take_window(arena_t *arena, int needed, int64_t rows, int64_t width) {
    return (window_t){.data = take(arena, needed, rows, width), .stride = width};
}

static int64_t tap_size(const convolution_t *is, int64_t rows) {
    return is->separable || is->kernel == 1 ? 0 : rows * is->out;
}

static void lay_out(const ffn_conv_t *conv, extents_t rows, backward_block_t *b, arena_t *arena) {
    const convolution_t *first = &conv->part[FIRST], *second = &conv->part[SECOND];
    b->hidden = take_window(arena, b->recomputes, rows.act, first->out);
    b->act = take_window(arena, 1, rows.act, first->out);
    b->d[SECOND] = take_window(arena, 1, rows.second, slope_width(second));
    b->d[FIRST] = take_window(arena, 1, rows.first, slope_width(first));
    b->input = take(arena, 1, b->recomputes ? rows.act : rows.first, first->depth);
    b->second_input = take(arena, ffni_conv_takes_scratch(second), rows.second, second->depth);
    b->d_branch = take(arena, second->separable, rows.second, second->out);
    b->d_act = take(arena, 1, rows.first, first->out);
    b->d_input = take(arena, 1, rows.input, first->in);
    b->tap = take(arena, 1, maximum(tap_size(first, rows.input), tap_size(second, rows.first)), 1);
    b->xielu = ffni_arena_take(arena, (rows.first - 1) / GRADIENT_CHUNK + 1, 2 * sizeof(double));
}

static uint64_t bytes_of(const ffn_conv_t *conv, int recomputes, conv_gradients_t *gradients, int64_t count, int64_t rows) {
    backward_block_t block = {.recomputes = recomputes};
    arena_t measure = {0};
    lay_out(conv, extents_of(conv, count, rows), &block, &measure);
    ffni_conv_gradients_lay_out(gradients, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

/* Of every gradient, recomputing. */
static uint64_t largest_bytes(const ffn_conv_t *conv, int64_t count, int64_t rows) {
    conv_gradients_t gradients = {.conv = conv};
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (role != FFN_ROLE_UP_WEIGHT && role != FFN_ROLE_DOWN_WEIGHT) gradients.view[role] = conv->stored[role];
    return bytes_of(conv, 1, &gradients, count, rows);
}

/* Keeping or recomputing: the larger of the two. */
ffn_status_t ffni_conv_backward_scratch(const ffn_conv_t *conv, const ffn_context_t *context, int64_t count, uint64_t *bytes) {
    int64_t rows;
    *bytes = 0;
    if (!count) return FFN_OK;
    ffn_status_t status = ffni_conv_rows(conv, context, INT64_MAX, CONV_ROWS, largest_bytes, &rows);
    if (status) return status;
    *bytes = largest_bytes(conv, count, minimum(count, CONV_ROWS));
    if (context->scratch_limit && *bytes > context->scratch_limit) *bytes = context->scratch_limit;
    return FFN_OK;
}

/* --------------------------------------------------------------------- Rows */

typedef struct rows_task {
    const backward_block_t *block;
    int64_t first;
    operand_t d;
} rows_task_t;

static float *hidden_row(const backward_block_t *b, int64_t row) {
    return b->recomputes ? window_row(&b->hidden, row) : b->run->tape->hidden + row * b->pass->conv->sizes.d_ff;
}

static float *out_row(const rows_task_t *task, int64_t row) {
    return (float *)(uintptr_t)task->d.data + (row - task->first) * task->d.stride;
}

static void activate_rows(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const backward_block_t *b = task->block;
    for (int64_t row = task->first + begin; row < task->first + end; row++) {
        float *hidden = hidden_row(b, row);
        if (b->recomputes) ffni_conv_prepare_hidden(b->pass, row, hidden);
        ffni_conv_activate(b->pass, row, window_row(&b->act, row), hidden);
    }
}

static void scale_row(const backward_block_t *b, const convolution_t *is, float *d) {
    if (is->scale) b->pass->conv->kernels->training->multiply(is->out, d, d, is->scale);
}

/* From d_y to the derivatives by the second convolution's sums. */
static void branch_rows(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const backward_block_t *b = task->block;
    const convolution_t *second = &b->pass->conv->part[SECOND];
    for (int64_t row = task->first + begin; row < task->first + end; row++) {
        float *d = out_row(task, row);
        memcpy(d, rows_at(&b->run->d_y, row), (size_t)second->out * sizeof *d);
        ffni_conv_drop_output(b->pass, row, d);
        scale_row(b, second, d);
    }
}

/* A hidden row that no output reads. */
static int is_left_out(const backward_block_t *b, int64_t row) {
    return b->pass->conv->part[SECOND].masked && ffni_conv_is_padding(b->pass, row);
}

/* From the derivatives by the hidden row to those by the first convolution's sums. d_act is used up. */
static void differentiate_row(const rows_task_t *task, int64_t row, double xielu[2]) {
    const backward_block_t *b = task->block;
    const ffn_conv_t *conv = b->pass->conv;
    const training_table_t *kernels = conv->kernels->training;
    int64_t d_ff = conv->sizes.d_ff;
    float *d_act = b->d_act + (row - task->first) * d_ff, *hidden = hidden_row(b, row), *d = out_row(task, row);
    const float *bias = ffni_conv_hidden_bias(b->pass);
    if (is_left_out(b, row)) {
        memset(d, 0, (size_t)d_ff * sizeof *d);
        return;
    }
    ffni_conv_drop_hidden(b->pass, row, d_act);
    if (conv->activation_name == FFN_ACTIVATION_XIELU) kernels->learn_xielu(&conv->activation, d_ff, xielu, d_act, hidden, bias, NULL, NULL);
    kernels->differentiate(&conv->activation, d_ff, d_act, d, d_act, hidden, bias);
    ffni_drop(b->pass->dropout, kernels, FFN_DROPOUT_PRE_ACTIVATION, row, d_ff, d);
    scale_row(b, &conv->part[FIRST], d);
}

static void differentiate_chunks(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const span_t *span = &task->block->d[FIRST].span;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        double *xielu = task->block->xielu + 2 * chunk;
        int64_t first = task->first + chunk * GRADIENT_CHUNK;
        xielu[0] = xielu[1] = 0;
        for (int64_t row = first; row < minimum(first + GRADIENT_CHUNK, span->end); row++) differentiate_row(task, row, xielu);
    }
}

static void input_rows(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const backward_block_t *b = task->block;
    const convolution_t *first = &b->pass->conv->part[FIRST];
    size_t bytes = (size_t)first->in * sizeof(float);
    for (int64_t row = task->first + begin; row < task->first + end; row++) {
        float *d_x = rows_at(&b->run->d_x, row);
        if (first->masked && ffni_conv_is_padding(b->pass, row))
            memset(d_x, 0, bytes);
        else
            memcpy(d_x, out_row(task, row), bytes);
    }
}

/* ----------------------------------------------------------------- Products */

/* out [rows, in] = the derivatives by a convolution's input, from its window's. */
static void pull(const backward_block_t *b, int part, span_t span, float *out) {
    const convolution_t *is = &b->pass->conv->part[part];
    const row_source_t source = {.window = &b->d[part]};
    stencil_t mirrored = ffni_conv_mirrored(is);
    if (is->separable) {
        ffni_conv_depthwise(b->pass, &mirrored, &source, span, out, is->in);
        return;
    }
    for (int64_t tap = 0; tap < is->kernel; tap++) {
        operand_t d = ffni_conv_take_tap(b->pass, &mirrored, tap, &source, span, is->out, b->tap);
        operand_t weight = {is->weight + (is->kernel - 1 - tap) * is->in * is->out, is->out, 1};
        ffni_gemm_general(span_rows(span), is->in, is->out, d, weight, tap > 0, out, is->in);
    }
}

/* The gradients of a convolution's tensors from the derivatives d by its sums; its window is filled, where that is not d itself. */
static void end_stage(const backward_block_t *b, int part, span_t added, operand_t d, const row_source_t *source, float *scratch) {
    const convolution_t *is = &b->pass->conv->part[part];
    int64_t rows = span_rows(added);
    float *slopes = window_row(&b->d[part], added.begin);
    stencil_t stencil = ffni_conv_stencil(is);
    ffni_conv_gradients_sum(b->gradients, b->pass, part, rows, d);
    if (conv_gradient_wanted(b->gradients, conv_weight_role(part)))
        ffni_conv_gradients_multiply(b->gradients, part, rows, d, ffni_conv_take(b->pass, is, source, added, scratch));
    if (!is->separable || (part == FIRST && !b->needs_d_first)) return;
    ffni_gemm_general(rows, is->in, is->out, d, (operand_t){is->weight, is->out, 1}, 0, slopes, is->in);
    if (b->gradients->taps[part]) ffni_conv_depthwise_slopes(b->pass, &stencil, source, added, slopes, is->in, b->gradients->taps[part]);
}

/* ------------------------------------------------------------------- Stages */

/* Where padding is left out of the hidden rows alone (the first kernel size is 1), no derivative depends on what x holds there, be it NaN: 0 times it
 * must be 0. */
static row_source_t x_source(const backward_block_t *b) {
    const convolution_t *part = b->pass->conv->part;
    return (row_source_t){.rows = b->pass->x, .masked = (part[FIRST].masked || part[SECOND].masked) && b->pass->mask};
}

/* Hidden rows; pre-activations are kept from row `from` on. */
static void extend_act(backward_block_t *b, span_t span, int64_t from) {
    const convolution_t *first = &b->pass->conv->part[FIRST];
    span_t added = ffni_window_move(&b->act, span);
    rows_task_t task = {.block = b, .first = added.begin};
    if (b->recomputes) ffni_window_move(&b->hidden, (span_t){from, span.end});
    if (!span_rows(added)) return;
    if (b->recomputes) {
        const row_source_t x = x_source(b);
        operand_t input = ffni_conv_take(b->pass, first, &x, added, b->input);
        ffni_conv_multiply(b->pass, first, span_rows(added), input, NULL, window_row(&b->hidden, added.begin));
    }
    ffni_parallel_rows(b->pass->context, span_rows(added), first->out, activate_rows, &task);
}

static void extend_second(backward_block_t *b, span_t span, int64_t from) {
    const convolution_t *second = &b->pass->conv->part[SECOND];
    const row_source_t act = {.window = &b->act, .masked = second->masked && b->pass->mask};
    stencil_t stencil = ffni_conv_stencil(second);
    span_t added = ffni_window_move(&b->d[SECOND], span);
    if (!span_rows(added)) return;
    extend_act(b, ffni_conv_reach(b->pass, &stencil, added), from);
    operand_t d = {second->separable ? b->d_branch : window_row(&b->d[SECOND], added.begin), second->out, 0};
    rows_task_t task = {b, added.begin, d};
    ffni_parallel_rows(b->pass->context, span_rows(added), second->out, branch_rows, &task);
    end_stage(b, SECOND, added, d, &act, b->second_input);
}

/* A separable one's derivatives by its sums take the place of the pre-activations. */
static void extend_first(backward_block_t *b, span_t span) {
    const convolution_t *first = &b->pass->conv->part[FIRST];
    const row_source_t x = x_source(b);
    stencil_t mirrored = ffni_conv_mirrored(&b->pass->conv->part[SECOND]);
    span_t added = ffni_window_move(&b->d[FIRST], span);
    if (!span_rows(added)) return;
    int64_t chunks = (span_rows(added) - 1) / GRADIENT_CHUNK + 1;
    extend_second(b, ffni_conv_reach(b->pass, &mirrored, added), added.begin);
    pull(b, SECOND, added, b->d_act);
    operand_t d = {first->separable ? hidden_row(b, added.begin) : window_row(&b->d[FIRST], added.begin), first->out, 0};
    rows_task_t task = {b, added.begin, d};
    ffni_parallel_rows(b->pass->context, chunks, GRADIENT_CHUNK * first->out, differentiate_chunks, &task);
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        for (int i = 0; i < 2; i++) b->gradients->xielu[i] += b->xielu[2 * chunk + i];
    end_stage(b, FIRST, added, d, &x, b->input);
}

static void run_block(backward_block_t *b, span_t span) {
    const convolution_t *first = &b->pass->conv->part[FIRST];
    stencil_t mirrored = ffni_conv_mirrored(first);
    if (!b->run->d_x.base) {
        extend_first(b, span);
        return;
    }
    extend_first(b, ffni_conv_reach(b->pass, &mirrored, span));
    pull(b, FIRST, span, b->d_input);
    rows_task_t task = {b, span.begin, {b->d_input, first->in, 0}};
    ffni_parallel_rows(b->pass->context, span_rows(span), first->in, input_rows, &task);
}

/* All gradients need at most what the reserve function promises, the ones at hand often less. */
static ffn_status_t plan(const conv_backward_t *run, int64_t *rows) {
    const ffn_conv_t *conv = run->pass.conv;
    ffn_context_t *context = run->pass.context;
    int recomputes = !run->tape->hidden;
    ffn_status_t status = ffni_conv_rows(conv, context, run->pass.count, recomputes ? CONV_RECOMPUTE_ROWS : CONV_ROWS, largest_bytes, rows);
    if (status) return status;
    uint64_t bytes = bytes_of(conv, recomputes, run->gradients, run->pass.count, *rows);
    if (context->scratch_limit && bytes > context->scratch_limit) return ffni_context_limit_error(context, bytes);
    return ffni_context_scratch(context, bytes);
}

ffn_status_t ffni_conv_backward(const conv_backward_t *run) {
    const ffn_conv_t *conv = run->pass.conv;
    int64_t rows, count = run->pass.count;
    ffn_status_t status = plan(run, &rows);
    if (status) return status;
    arena_t arena = {.base = run->pass.context->scratch};
    backward_block_t b = {.run = run, .pass = &run->pass, .gradients = run->gradients, .recomputes = !run->tape->hidden,
                          .needs_d_first = run->d_x.base || conv_gradient_wanted(run->gradients, FFN_ROLE_UP_TAPS)};
    lay_out(conv, extents_of(conv, count, rows), &b, &arena);
    ffni_conv_gradients_lay_out(run->gradients, &arena);
    ffni_conv_gradients_begin(run->gradients, run->pass.context);
    for (int64_t begin = 0; begin < count; begin += rows) run_block(&b, (span_t){begin, minimum(begin + rows, count)});
    ffni_conv_gradients_finish(run->gradients, run->pass.context);
    return FFN_OK;
}
