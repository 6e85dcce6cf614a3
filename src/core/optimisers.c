/* SPDX-License-Identifier: MIT
 * The optimisers' steps: ranges of elements as tasks. */
#include "core/optimisers.h"

#include "base/checked.h"
#include "core/parallel.h"

typedef struct step {
    const training_table_t *kernels;
    const sgd_t *sgd;
    const adamw_t *adamw;
    float *weight;
    const float *gradient;
    float *first, *second;
} step_t;

static void sgd_range(void *data, int64_t begin, int64_t end) {
    const step_t *step = data;
    step->kernels->sgd(step->sgd, end - begin, step->weight + begin, step->gradient + begin, step->first ? step->first + begin : NULL);
}

void ffni_sgd(ffn_context_t *context, const training_table_t *kernels, const sgd_t *sgd, int64_t n, float *weight, const float *gradient,
              float *velocity) {
    step_t step = {.kernels = kernels, .sgd = sgd, .weight = weight, .gradient = gradient, .first = velocity};
    ffni_parallel_rows(context, n, 1, sgd_range, &step);
}

static void adamw_range(void *data, int64_t begin, int64_t end) {
    const step_t *step = data;
    step->kernels->adamw(step->adamw, end - begin, step->weight + begin, step->gradient + begin, step->first + begin, step->second + begin);
}

void ffni_adamw(ffn_context_t *context, const training_table_t *kernels, const adamw_t *adamw, int64_t n, float *weight, const float *gradient,
                float *first, float *second) {
    step_t step = {.kernels = kernels, .adamw = adamw, .weight = weight, .gradient = gradient, .first = first, .second = second};
    ffni_parallel_rows(context, n, 1, adamw_range, &step);
}

/* ------------------------------------------------------------------- Clipping */

enum { PIECE = 1 << 16 };

typedef struct pieces {
    const training_table_t *kernels;
    int64_t n;
    const float *v;
    double *sums;
} pieces_t;

static void sum_pieces(void *data, int64_t begin, int64_t end) {
    const pieces_t *pieces = data;
    for (int64_t i = begin; i < end; i++)
        pieces->sums[i] = pieces->kernels->sum_of_squares(minimum(PIECE, pieces->n - i * PIECE), pieces->v + i * PIECE);
}

ffn_status_t ffni_sum_of_squares(ffn_context_t *context, const training_table_t *kernels, int64_t n, const float *v, double *sum) {
    int64_t count = n / PIECE + (n % PIECE != 0);
    ffn_status_t status = ffni_context_scratch(context, (uint64_t)count * sizeof(double));
    if (status) return status;
    pieces_t pieces = {kernels, n, v, (double *)(void *)context->scratch};
    ffni_parallel_rows(context, count, PIECE, sum_pieces, &pieces);
    *sum = 0;
    for (int64_t i = 0; i < count; i++) *sum += pieces.sums[i];
    return FFN_OK;
}

typedef struct scaled {
    const training_table_t *kernels;
    float *v, factor;
} scaled_t;

static void scale_range(void *data, int64_t begin, int64_t end) {
    const scaled_t *scaled = data;
    scaled->kernels->scale(end - begin, scaled->v + begin, scaled->factor);
}

void ffni_scale(ffn_context_t *context, const training_table_t *kernels, int64_t n, float *v, float factor) {
    scaled_t scaled = {kernels, v, factor};
    ffni_parallel_rows(context, n, 1, scale_range, &scaled);
}
