/* SPDX-License-Identifier: MIT
 * Rows and their neighbours: what a convolution reads, gathered, and summed channel by channel. */
#include "base/checked.h"
#include "core/conv_pass.h"
#include "core/parallel.h"
#include "kernels/training.h"

#include <limits.h>
#include <string.h>

enum {
    SLOPE_ROWS = 32,   /* summed in float32, before they are added up in float64 */
    SLOPE_TAPS = 16,
    SLOPE_COLUMNS = 64 /* that a task sums by itself */
};

int ffni_conv_is_padding(const conv_pass_t *pass, int64_t row) {
    int64_t sequence = row / pass->length;
    return pass->mask && !pass->mask[sequence * pass->mask_stride + (row - sequence * pass->length)];
}

stencil_t ffni_conv_stencil(const convolution_t *is) {
    return (stencil_t){.kernel = is->kernel, .left = is->left, .channels = is->in, .taps = is->taps, .step = is->in};
}

stencil_t ffni_conv_mirrored(const convolution_t *is) {
    return (stencil_t){.kernel = is->kernel, .left = is->kernel - 1 - is->left, .channels = is->in,
                       .taps = is->taps ? is->taps + (is->kernel - 1) * is->in : NULL, .step = -is->in};
}

static int64_t sequence_begin(const conv_pass_t *pass, int64_t row) {
    return row / pass->length * pass->length;
}

static int64_t sequence_end(const conv_pass_t *pass, int64_t row) {
    return sequence_begin(pass, row) + pass->length;
}

span_t ffni_conv_reach(const conv_pass_t *pass, const stencil_t *stencil, span_t span) {
    return (span_t){maximum(sequence_begin(pass, span.begin), span.begin - stencil->left),
                    minimum(sequence_end(pass, span.end - 1), span.end + stencil->kernel - 1 - stencil->left)};
}

span_t ffni_window_move(window_t *window, span_t span) {
    span_t added = {window->span.end, span.end};
    int64_t kept = window->span.end - span.begin;
    if (kept && span.begin > window->span.begin)
        memmove(window->data, window_row(window, span.begin), (size_t)(kept * window->stride) * sizeof *window->data);
    window->span = span;
    return added;
}

static const float *row_of(const conv_pass_t *pass, const row_source_t *source, int64_t row) {
    if (source->masked && ffni_conv_is_padding(pass, row)) return NULL;
    return source->window ? window_row(source->window, row) : rows_at(source->rows, row);
}

/* The row at `offset` from `row` in its sequence; NULL: zeros. */
static const float *neighbour(const conv_pass_t *pass, const row_source_t *source, int64_t row, int64_t offset) {
    int64_t there = row + offset;
    if (there < sequence_begin(pass, row) || there >= sequence_end(pass, row)) return NULL;
    return row_of(pass, source, there);
}

/* ------------------------------------------------------------------ Gathering */

typedef struct gather {
    const conv_pass_t *pass;
    const row_source_t *source;
    int64_t first; /* row */
    int64_t width; /* of a row of the source */
    int64_t offset, taps; /* of the first tap; of the others from there on */
    float *out;
} gather_t;

static void gather_rows(void *data, int64_t begin, int64_t end) {
    const gather_t *gather = data;
    size_t bytes = (size_t)gather->width * sizeof *gather->out;
    for (int64_t i = begin; i < end; i++)
        for (int64_t tap = 0; tap < gather->taps; tap++) {
            const float *row = neighbour(gather->pass, gather->source, gather->first + i, gather->offset + tap);
            float *out = gather->out + (i * gather->taps + tap) * gather->width;
            if (row)
                memcpy(out, row, bytes);
            else
                memset(out, 0, bytes);
        }
}

static operand_t gather(gather_t *gather, int64_t rows) {
    ffni_parallel_rows(gather->pass->context, rows, gather->width * gather->taps, gather_rows, gather);
    return (operand_t){gather->out, gather->width * gather->taps, 0};
}

/* Rows that stand one behind the other as a product reads them: from `row` on. */
static int in_place(const row_source_t *source, int64_t row, operand_t *rows) {
    if (source->masked) return 0;
    if (source->window) {
        *rows = (operand_t){window_row(source->window, row), source->window->stride, 0};
        return 1;
    }
    if (source->rows->length != source->rows->count || source->rows->row_stride / 4 > INT_MAX) return 0;
    *rows = (operand_t){rows_at(source->rows, row), source->rows->row_stride / 4, 0};
    return 1;
}

int ffni_conv_takes_scratch(const convolution_t *is) {
    return is->separable || is->masked;
}

operand_t ffni_conv_take(const conv_pass_t *pass, const convolution_t *is, const row_source_t *source, span_t span, float *scratch) {
    operand_t rows;
    stencil_t stencil = ffni_conv_stencil(is);
    if (is->separable) {
        ffni_conv_depthwise(pass, &stencil, source, span, scratch, is->in);
        return (operand_t){scratch, is->in, 0};
    }
    if (is->kernel == 1 && in_place(source, span.begin, &rows)) return rows;
    gather_t all = {pass, source, span.begin, is->in, -is->left, is->kernel, scratch};
    return gather(&all, span_rows(span));
}

operand_t ffni_conv_take_tap(const conv_pass_t *pass, const stencil_t *stencil, int64_t tap, const row_source_t *source, span_t span, int64_t width,
                             float *scratch) {
    operand_t rows;
    int64_t offset = tap - stencil->left;
    int64_t begin = sequence_begin(pass, span.begin), end = sequence_end(pass, span.begin);
    int inside = span.end <= end && span.begin + offset >= begin && span.end + offset <= end;
    if ((inside || offset == 0) && in_place(source, span.begin + offset, &rows)) return rows;
    gather_t one = {pass, source, span.begin, width, offset, 1, scratch};
    return gather(&one, span_rows(span));
}

/* ------------------------------------------------------------------- Depthwise */

typedef struct depthwise_task {
    const conv_pass_t *pass;
    const stencil_t *stencil;
    const row_source_t *source;
    int64_t first;
    float *out;
    int64_t stride;
} depthwise_task_t;

/* Rows of one sequence. */
static void depthwise_run(const depthwise_task_t *task, int64_t row, int64_t rows) {
    const stencil_t *stencil = task->stencil;
    const float *in[DEPTHWISE_ROWS_MOST + DEPTHWISE_TAPS_MOST - 1];
    for (int64_t tap = 0; tap < stencil->kernel; tap += DEPTHWISE_TAPS_MOST) {
        int64_t taps = minimum(DEPTHWISE_TAPS_MOST, stencil->kernel - tap);
        for (int64_t i = 0; i < rows + taps - 1; i++) in[i] = neighbour(task->pass, task->source, row, tap - stencil->left + i);
        const depthwise_t depthwise = {.n = stencil->channels, .rows = rows, .taps = taps, .in = in, .weight = stencil->taps + tap * stencil->step,
                                       .weight_step = stencil->step, .out = task->out + (row - task->first) * task->stride,
                                       .out_step = task->stride, .continued = tap > 0};
        task->pass->conv->kernels->depthwise(&depthwise);
    }
}

static void depthwise_rows(void *data, int64_t begin, int64_t end) {
    const depthwise_task_t *task = data;
    int64_t row = task->first + begin, rows;
    for (; row < task->first + end; row += rows) {
        rows = minimum(DEPTHWISE_ROWS_MOST, minimum(sequence_end(task->pass, row), task->first + end) - row);
        depthwise_run(task, row, rows);
    }
}

void ffni_conv_depthwise(const conv_pass_t *pass, const stencil_t *stencil, const row_source_t *source, span_t span, float *out, int64_t stride) {
    depthwise_task_t task = {pass, stencil, source, span.begin, out, stride};
    ffni_parallel_rows(pass->context, span_rows(span), stencil->channels * stencil->kernel, depthwise_rows, &task);
}

/* ---------------------------------------------------------------------- Slopes */

typedef struct slopes_task {
    const conv_pass_t *pass;
    const stencil_t *stencil;
    const row_source_t *source;
    span_t span;
    const float *d;
    int64_t d_stride;
    double *total;
} slopes_task_t;

/* sums [taps, columns] = over the rows begin .. end-1, which may be of several sequences. */
static void sum_slopes(const slopes_task_t *task, int64_t begin, int64_t end, int64_t tap, int64_t taps, int64_t column, int64_t columns, float *sums) {
    const float *in[SLOPE_ROWS + SLOPE_TAPS - 1];
    memset(sums, 0, (size_t)(taps * columns) * sizeof *sums);
    for (int64_t row = begin, rows; row < end; row += rows) {
        rows = minimum(sequence_end(task->pass, row), end) - row;
        for (int64_t i = 0; i < rows + taps - 1; i++) {
            in[i] = neighbour(task->pass, task->source, row, tap - task->stencil->left + i);
            if (in[i]) in[i] += column;
        }
        const depthwise_slopes_t slopes = {.n = columns, .rows = rows, .taps = taps, .in = in,
                                           .d = task->d + (row - task->span.begin) * task->d_stride + column, .d_step = task->d_stride,
                                           .sums = sums, .sums_step = columns};
        task->pass->conv->kernels->training->depthwise_slopes(&slopes);
    }
}

static void sum_columns(const slopes_task_t *task, int64_t column, int64_t columns) {
    float sums[SLOPE_TAPS * SLOPE_COLUMNS];
    for (int64_t tap = 0; tap < task->stencil->kernel; tap += SLOPE_TAPS) {
        int64_t taps = minimum(SLOPE_TAPS, task->stencil->kernel - tap);
        for (int64_t row = task->span.begin; row < task->span.end; row += SLOPE_ROWS) {
            sum_slopes(task, row, minimum(row + SLOPE_ROWS, task->span.end), tap, taps, column, columns, sums);
            for (int64_t j = 0; j < taps; j++)
                for (int64_t i = 0; i < columns; i++) task->total[(tap + j) * task->stencil->channels + column + i] += (double)sums[j * columns + i];
        }
    }
}

static void sum_strips(void *data, int64_t begin, int64_t end) {
    const slopes_task_t *task = data;
    for (int64_t strip = begin; strip < end; strip++)
        sum_columns(task, strip * SLOPE_COLUMNS, minimum(SLOPE_COLUMNS, task->stencil->channels - strip * SLOPE_COLUMNS));
}

void ffni_conv_depthwise_slopes(const conv_pass_t *pass, const stencil_t *stencil, const row_source_t *source, span_t span, const float *d,
                                int64_t d_stride, double *total) {
    slopes_task_t task = {pass, stencil, source, span, d, d_stride, total};
    ffni_parallel_rows(pass->context, (stencil->channels - 1) / SLOPE_COLUMNS + 1, span_rows(span) * stencil->kernel * SLOPE_COLUMNS, sum_strips, &task);
}
