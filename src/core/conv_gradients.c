/* SPDX-License-Identifier: MIT
 * Summing and writing the gradients of a convolutional layer. */
#include "core/conv_gradients.h"

#include "base/checked.h"
#include "core/gradients.h"
#include "core/parallel.h"
#include "core/view_products.h"

#include <math.h>
#include <string.h>

enum { STRIP_COLUMNS = 256 }; /* of a bias's sum, that a task has */

void ffni_conv_gradients_init(conv_gradients_t *gradients, const ffn_conv_t *conv, const ffn_tensor_t *const bound[ROLE_LIMIT], int accumulate) {
    *gradients = (conv_gradients_t){.conv = conv, .accumulate = accumulate};
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (bound[role]) gradients->view[role] = ffni_conv_view_of(bound[role]);
}

static double *take_total(const conv_gradients_t *gradients, int role, arena_t *arena) {
    const conv_view_t *view = &gradients->view[role];
    return conv_gradient_wanted(gradients, role) ? ffni_arena_take(arena, view->taps, view->matrix.columns * (int64_t)sizeof(double)) : NULL;
}

void ffni_conv_gradients_lay_out(conv_gradients_t *gradients, arena_t *arena) {
    for (int part = FIRST; part < CONVOLUTIONS; part++) {
        const convolution_t *is = &gradients->conv->part[part];
        int weight = conv_weight_role(part), through = conv_gradient_wanted(gradients, weight) &&
                     !ffni_view_takes_products(&gradients->view[weight].matrix);
        gradients->matrix[part] = through ? ffni_arena_take(arena, is->depth, is->out * (int64_t)sizeof(float)) : NULL;
        gradients->bias[part] = take_total(gradients, conv_bias_role(part), arena);
        gradients->taps[part] = take_total(gradients, conv_taps_role(part), arena);
    }
}

/* The matrix in scratch memory, described as the caller's view is. */
static conv_view_t scratch_view(const conv_gradients_t *gradients, int part) {
    const convolution_t *is = &gradients->conv->part[part];
    view_t matrix = {.data = (char *)gradients->matrix[part], .rows = is->out, .columns = is->in, .row_stride = 4, .column_stride = 4 * is->out};
    return (conv_view_t){.matrix = matrix, .taps = is->depth / is->in, .tap_stride = 4 * is->in * is->out};
}

void ffni_conv_gradients_begin(conv_gradients_t *gradients, ffn_context_t *context) {
    memset(gradients->xielu, 0, sizeof gradients->xielu);
    for (int part = FIRST; part < CONVOLUTIONS; part++) {
        const convolution_t *is = &gradients->conv->part[part];
        gradients->started[part] = 0;
        if (gradients->bias[part]) memset(gradients->bias[part], 0, (size_t)is->out * sizeof(double));
        if (gradients->taps[part]) memset(gradients->taps[part], 0, (size_t)(is->kernel * is->in) * sizeof(double));
        if (!gradients->accumulate || !gradients->matrix[part]) continue;
        conv_view_t scratch = scratch_view(gradients, part);
        ffni_conv_view_copy(context, &scratch, &gradients->view[conv_weight_role(part)]);
    }
}

/* -------------------------------------------------------------------- Matrices */

void ffni_conv_gradients_multiply(conv_gradients_t *gradients, int part, int64_t rows, operand_t d, operand_t input) {
    const convolution_t *is = &gradients->conv->part[part];
    const conv_view_t *view = &gradients->view[conv_weight_role(part)];
    int accumulate = gradients->accumulate || gradients->started[part];
    if (!view->matrix.data) return;
    gradients->started[part] = 1;
    if (gradients->matrix[part]) {
        input.transposed = 1;
        ffni_gemm_general(is->depth, is->out, rows, input, d, accumulate, gradients->matrix[part], is->out);
        return;
    }
    for (int64_t tap = 0; tap < view->taps; tap++, input.data += is->in) {
        view_t matrix = conv_view_tap(view, tap);
        ffni_view_add_product(&matrix, rows, d, input, accumulate);
    }
}

/* --------------------------------------------------------------------- Vectors */

typedef struct column_sums {
    const training_table_t *kernels;
    int64_t rows, columns;
    operand_t d;
    double *total;
} column_sums_t;

static void sum_strips(void *data, int64_t begin, int64_t end) {
    const column_sums_t *sums = data;
    float partial[STRIP_COLUMNS];
    for (int64_t column = begin * STRIP_COLUMNS; column < minimum(end * STRIP_COLUMNS, sums->columns); column += STRIP_COLUMNS) {
        int64_t columns = minimum(STRIP_COLUMNS, sums->columns - column);
        for (int64_t row = 0; row < sums->rows; row += GRADIENT_CHUNK) {
            memset(partial, 0, sizeof partial);
            for (int64_t i = row; i < minimum(row + GRADIENT_CHUNK, sums->rows); i++)
                sums->kernels->add(columns, partial, sums->d.data + i * sums->d.stride + column);
            for (int64_t i = 0; i < columns; i++) sums->total[column + i] += (double)partial[i];
        }
    }
}

void ffni_conv_gradients_sum(conv_gradients_t *gradients, const conv_pass_t *pass, int part, int64_t rows, operand_t d) {
    const convolution_t *is = &gradients->conv->part[part];
    column_sums_t sums = {gradients->conv->kernels->training, rows, is->out, d, gradients->bias[part]};
    if (sums.total) ffni_parallel_rows(pass->context, (is->out - 1) / STRIP_COLUMNS + 1, rows * STRIP_COLUMNS, sum_strips, &sums);
}

/* ------------------------------------------------------------------------- End */

static void write_vectors(const conv_gradients_t *gradients, int role, const double *total) {
    const conv_view_t *view = &gradients->view[role];
    for (int64_t tap = 0; total && tap < view->taps; tap++)
        for (int64_t i = 0; i < view->matrix.columns; i++) {
            float *to = (float *)(void *)(view->matrix.data + tap * view->tap_stride + i * view->matrix.column_stride);
            double value = total[tap * view->matrix.columns + i];
            *to = (float)(gradients->accumulate ? value + (double)*to : value);
        }
}

/* By the number before its softplus, whose derivative is the logistic function. */
static void write_xielu(const conv_gradients_t *gradients, int role, double total) {
    if (!conv_gradient_wanted(gradients, role)) return;
    double alpha = (double)*(const float *)(const void *)gradients->conv->stored[role].matrix.data, value = total / (1 + exp(-alpha));
    write_vectors(gradients, role, &value);
}

void ffni_conv_gradients_finish(conv_gradients_t *gradients, ffn_context_t *context) {
    for (int part = FIRST; part < CONVOLUTIONS; part++) {
        if (gradients->matrix[part]) {
            conv_view_t scratch = scratch_view(gradients, part);
            ffni_conv_view_copy(context, &gradients->view[conv_weight_role(part)], &scratch);
        }
        write_vectors(gradients, conv_bias_role(part), gradients->bias[part]);
        write_vectors(gradients, conv_taps_role(part), gradients->taps[part]);
    }
    write_xielu(gradients, FFN_ROLE_XIELU_ALPHA_P, gradients->xielu[0]);
    write_xielu(gradients, FFN_ROLE_XIELU_ALPHA_N, gradients->xielu[1]);
}

void ffni_conv_gradients_write_zeros(const conv_gradients_t *gradients) {
    static const float zero = 0;
    for (int role = 0; !gradients->accumulate && role < ROLE_LIMIT; role++) {
        const conv_view_t *view = &gradients->view[role];
        conv_view_t zeros = {.matrix = {.data = (char *)(uintptr_t)&zero}};
        if (view->matrix.data) ffni_conv_view_copy(NULL, view, &zeros);
    }
}
