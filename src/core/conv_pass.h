/* SPDX-License-Identifier: MIT
 * What the passes of a convolutional layer share: which rows a convolution reaches, windows of rows that go along with it, and its two steps, from
 * rows to the input of the product, and the product.
 *
 * The rows of a run are numbered through all sequences, and go through in blocks that look at no sequence's end: a convolution does, row by row. */
#ifndef FFNI_CONV_PASS_H
#define FFNI_CONV_PASS_H

#include "core/conv.h"
#include "core/dropout.h"
#include "core/gemm.h"
#include "core/rows.h"

/* Rows that a panel is multiplied with while it is in the second-level cache: those of a native block for each thread. */
enum { CONV_NATIVE_ROWS = 56 };

typedef struct conv_pass {
    const ffn_conv_t *conv;
    ffn_context_t *context;
    int64_t count, length; /* rows of the run, and of each of its sequences */
    const rows_t *x;
    const uint8_t *mask; /* [batch, length], sequences mask_stride apart. NULL: nothing is padding */
    int64_t mask_stride;
    const dropout_t *dropout;
} conv_pass_t;

/* Rows begin .. end - 1 of the run. */
typedef struct span {
    int64_t begin, end;
} span_t;

static inline int64_t span_rows(span_t span) {
    return span.end - span.begin;
}

int ffni_conv_is_padding(const conv_pass_t *pass, int64_t row);

/* ------------------------------------------------------------------- Stencils */

/* Taps along the sequence: out[t] = sum over j of taps_j in[t - left + j]. Those of a convolution, and, from its output's derivatives to its
 * input's, the same ones mirrored. taps NULL: of a dense one. */
typedef struct stencil {
    int64_t kernel, left;
    int64_t channels;
    const float *taps;
    int64_t step; /* from a tap to the next */
} stencil_t;

stencil_t ffni_conv_stencil(const convolution_t *is);
stencil_t ffni_conv_mirrored(const convolution_t *is);

/* The rows that a stencil reads for those of the span. */
span_t ffni_conv_reach(const conv_pass_t *pass, const stencil_t *stencil, span_t span);

/* ------------------------------------------------------------ Windows and sources */

/* Rows of the run that are in memory: those that a later block still needs stay, and move to the front. */
typedef struct window {
    float *data;
    int64_t stride;
    span_t span;
} window_t;

static inline float *window_row(const window_t *window, int64_t row) {
    return window->data + (row - window->span.begin) * window->stride;
}

/* Moves the window on to `span`, which begins and ends no earlier, and leaves no gap; returns the rows that are new. */
span_t ffni_window_move(window_t *window, span_t span);

/* Where a convolution's rows come from: from the run (window NULL) or from a window. `masked`: padding is zeros. */
typedef struct row_source {
    const rows_t *rows;
    const window_t *window;
    int masked;
} row_source_t;

/* ---------------------------------------------------------------------- Steps */

/* The input of a product for the rows of the span, [rows, depth]: the rows in place, or in `scratch`. */
operand_t ffni_conv_take(const conv_pass_t *pass, const convolution_t *is, const row_source_t *source, span_t span, float *scratch);

/* Whether it is in `scratch` at all, for a source that is not the run's. */
int ffni_conv_takes_scratch(const convolution_t *is);

/* out [rows, channels], rows `stride` apart, = the stencil with taps over the rows of the span. */
void ffni_conv_depthwise(const conv_pass_t *pass, const stencil_t *stencil, const row_source_t *source, span_t span, float *out, int64_t stride);

/* The rows of tap `tap` alone: in place, or in `scratch` [rows, width]. */
operand_t ffni_conv_take_tap(const conv_pass_t *pass, const stencil_t *stencil, int64_t tap, const row_source_t *source, span_t span, int64_t width,
                             float *scratch);

/* The derivatives of a depthwise step by its taps: total [kernel, channels] += over the rows of the span. d [rows, channels]. */
void ffni_conv_depthwise_slopes(const conv_pass_t *pass, const stencil_t *stencil, const row_source_t *source, span_t span, const float *d,
                                int64_t d_stride, double *total);

/* out [rows, width] = a [rows, depth] times the convolution's weight. tiles: ffni_conv_tiles_size numbers for the native engine. */
void ffni_conv_multiply(const conv_pass_t *pass, const convolution_t *is, int64_t rows, operand_t a, float *tiles, float *out);
int64_t ffni_conv_tiles_size(const ffn_conv_t *conv, const convolution_t *is, int64_t rows);

/* ------------------------------------------------------------------ Row by row */

/* Where the first convolution is scaled, or dropout acts on pre-activations: both, after the bias, in place. The bias is then used up. */
void ffni_conv_prepare_hidden(const conv_pass_t *pass, int64_t row, float *hidden);

/* The bias that is left to add to the pre-activations. */
const float *ffni_conv_hidden_bias(const conv_pass_t *pass);

/* The activated row, dropped, from prepared pre-activations, which it may replace. */
void ffni_conv_activate(const conv_pass_t *pass, int64_t row, float *act, const float *hidden);

/* Dropout on the hidden row, and on its derivatives. */
void ffni_conv_drop_hidden(const conv_pass_t *pass, int64_t row, float *act);

/* Dropout and mask of a row of y, and of its derivatives. */
void ffni_conv_drop_output(const conv_pass_t *pass, int64_t row, float *y);

#endif
