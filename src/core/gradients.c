/* SPDX-License-Identifier: MIT
 * Summing and writing gradients. */
#include "core/gradients.h"

#include "base/checked.h"
#include "core/view_products.h"

#include <math.h>
#include <string.h>

void ffni_gradients_init(gradients_t *gradients, const ffn_layer_t *layer, const ffn_tensor_t *const bound[ROLE_LIMIT], int accumulate) {
    *gradients = (gradients_t){.layer = layer, .accumulate = accumulate};
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (bound[role]) gradients->view[role] = ffni_view_of(bound[role]);
}

/* -------------------------------------------------------------------- Matrices */

static int is_matrix(int role) {
    return ffni_roles[role].ndim == 2;
}

void ffni_gradients_multiply(const gradients_t *gradients, int role, int64_t rows, operand_t d, operand_t input, int first) {
    int accumulate = gradients->accumulate || !first;
    if (!gradient_wanted(gradients, role)) return;
    view_t view = gradients->view[role];
    if (gradients->matrix[role]) view = ffni_view_contiguous(gradients->matrix[role], &view);
    if (gradients->native)
        ffni_view_add_native_product(gradients->context, gradients->native, &view, rows, d, input, accumulate);
    else
        ffni_view_add_product(&view, rows, d, input, accumulate);
}

/* --------------------------------------------------------------------- Vectors */

/* A scale of one number has the gradients of all its channels summed up only at the end. */
static int64_t sum_width(const gradients_t *gradients, int role) {
    if (role == FFN_ROLE_BRANCH_SCALE || role == FFN_ROLE_RESIDUAL_SCALE) return gradients->layer->d_out;
    return gradients->view[role].columns;
}

static int is_summed(const gradients_t *gradients, int role) {
    return gradient_wanted(gradients, role) && !is_matrix(role) && role != FFN_ROLE_XIELU_ALPHA_P && role != FFN_ROLE_XIELU_ALPHA_N;
}

void ffni_gradients_lay_out(gradients_t *gradients, int64_t rows, arena_t *arena) {
    const int64_t alignment = 16;
    gradients->record = 0;
    for (int role = 0; role < ROLE_LIMIT; role++) {
        const view_t *view = &gradients->view[role];
        gradients->matrix[role] = NULL;
        if (gradient_wanted(gradients, role) && is_matrix(role) && !ffni_view_takes_products(view))
            gradients->matrix[role] = ffni_arena_take(arena, view->rows, view->columns * 4);
        if (!is_summed(gradients, role)) continue;
        gradients->offset[role] = gradients->record;
        gradients->record += round_up(sum_width(gradients, role), alignment);
    }
    gradients->partial = ffni_arena_take(arena, ffni_gradients_chunks(rows), gradients->record * (int64_t)sizeof(float));
    gradients->total = ffni_arena_take(arena, gradients->record, sizeof(double));
    gradients->xielu = ffni_arena_take(arena, ffni_gradients_chunks(rows), 2 * sizeof(double));
}

void ffni_gradients_begin(gradients_t *gradients, ffn_context_t *context, const depth_product_t *native) {
    gradients->context = context;
    gradients->native = native;
    if (gradients->record) memset(gradients->total, 0, (size_t)gradients->record * sizeof *gradients->total);
    memset(gradients->xielu_total, 0, sizeof gradients->xielu_total);
    for (int role = 0; gradients->accumulate && role < ROLE_LIMIT; role++) {
        if (!gradients->matrix[role]) continue;
        view_t matrix = ffni_view_contiguous(gradients->matrix[role], &gradients->view[role]);
        ffni_view_copy(context, &matrix, &gradients->view[role]);
    }
}

float *ffni_gradients_sum(const gradients_t *gradients, int role, int64_t chunk) {
    return is_summed(gradients, role) ? gradients->partial + chunk * gradients->record + gradients->offset[role] : NULL;
}

void ffni_gradients_clear(const gradients_t *gradients, int64_t rows) {
    int64_t chunks = ffni_gradients_chunks(rows);
    if (gradients->record) memset(gradients->partial, 0, (size_t)(chunks * gradients->record) * sizeof *gradients->partial);
    memset(gradients->xielu, 0, (size_t)(2 * chunks) * sizeof *gradients->xielu);
}

void ffni_gradients_collect(gradients_t *gradients, int64_t rows) {
    for (int64_t chunk = 0; chunk < ffni_gradients_chunks(rows); chunk++) {
        const float *partial = gradients->partial + chunk * gradients->record;
        for (int64_t i = 0; i < gradients->record; i++) gradients->total[i] += (double)partial[i];
        for (int i = 0; i < 2; i++) gradients->xielu_total[i] += gradients->xielu[2 * chunk + i];
    }
}

/* ------------------------------------------------------------------------- End */

static float *element(const view_t *view, int64_t i) {
    return (float *)(void *)(view->data + i * view->column_stride);
}

static void put(const gradients_t *gradients, const view_t *view, int64_t i, double value) {
    float *to = element(view, i);
    *to = (float)(gradients->accumulate ? value + (double)*to : value);
}

/* By the number before the tanh: d tanh(t) = 1 / cosh^2 t, which is 0 from 360 on. */
static double tanh_slope(double t) {
    double c = fabs(t) < 360 ? cosh(t) : INFINITY;
    return 1 / (c * c);
}

static void write_scale(const gradients_t *gradients, int role, uint32_t tanh_flag, const double *total) {
    const ffn_layer_t *layer = gradients->layer;
    const view_t *view = &gradients->view[role], *given = &layer->stored[role];
    for (int64_t i = 0; i < view->columns; i++) {
        double sum = total[i];
        for (int64_t j = 1; view->columns == 1 && j < layer->d_out; j++) sum += total[j];
        put(gradients, view, i, layer->flags & tanh_flag ? sum * tanh_slope((double)*element(given, i)) : sum);
    }
}

/* By the number before its softplus, whose derivative is the logistic function. */
static void write_xielu(const gradients_t *gradients, int role, double total) {
    double alpha = (double)*element(&gradients->layer->stored[role], 0);
    put(gradients, &gradients->view[role], 0, total / (1 + exp(-alpha)));
}

static void write_vector(const gradients_t *gradients, int role) {
    const double *total = gradients->total + gradients->offset[role];
    switch (role) {
    case FFN_ROLE_BRANCH_SCALE: write_scale(gradients, role, FFN_LAYER_TANH_BRANCH_SCALE, total); break;
    case FFN_ROLE_RESIDUAL_SCALE: write_scale(gradients, role, FFN_LAYER_TANH_RESIDUAL_SCALE, total); break;
    case FFN_ROLE_XIELU_ALPHA_P: write_xielu(gradients, role, gradients->xielu_total[0]); break;
    case FFN_ROLE_XIELU_ALPHA_N: write_xielu(gradients, role, gradients->xielu_total[1]); break;
    default:
        for (int64_t i = 0; i < gradients->view[role].columns; i++) put(gradients, &gradients->view[role], i, total[i]);
    }
}

void ffni_gradients_finish(gradients_t *gradients) {
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!gradient_wanted(gradients, role)) continue;
        if (gradients->matrix[role]) {
            view_t matrix = ffni_view_contiguous(gradients->matrix[role], &gradients->view[role]);
            ffni_view_copy(gradients->context, &gradients->view[role], &matrix);
        } else if (!is_matrix(role)) {
            write_vector(gradients, role);
        }
    }
}
