/* SPDX-License-Identifier: MIT
 * cblas_sgemm and cblas_sgemv of the current OpenBLAS, with libffn's vectorised activation passes between. Weights are tried in both orders,
 * and up to a few tokens one sgemv per token too; the fastest form of a cell is the one that is timed. */
#include "worker.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/pool.h"
#include "dispatch/ladder.h"

#include <cblas.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OUT_IN, IN_OUT, FORMS_OF_GEMM };
enum { GEMV_TOKENS = 4 };
static const char *const form_names[] = {"sgemm [out, in]", "sgemm [in, out]", "sgemv [out, in]", "sgemv [in, out]"};

/* Gate and up are one matrix of `width` outputs: gate's d_ff, then up's. */
typedef struct weights {
    float *in, *down;
} weights_t;

static weights_t order[FORMS_OF_GEMM];
static float *hidden;
static const kernel_table_t *kernels;
static activation_t activation = {.clip_max = INFINITY, .gate_max = INFINITY, .up_limit = INFINITY, .beta = 1};
static pool_t *pool;
static int64_t prepared_tokens, width;
static int prepared_threads, prepared_form;

static float *transposed(const float *matrix, int64_t rows, int64_t columns) {
    enum { TILE = 64 };
    float *out = worker_floats(rows * columns);
    for (int64_t r = 0; r < rows; r += TILE)
        for (int64_t c = 0; c < columns; c += TILE)
            for (int64_t i = r; i < r + TILE && i < rows; i++)
                for (int64_t j = c; j < c + TILE && j < columns; j++) out[j * rows + i] = matrix[i * columns + j];
    return out;
}

static const char *start(const layer_t *layer, const char *variant) {
    (void)variant;
    int64_t matrix = layer->d_model * layer->d_ff;
    if (ffni_ladder_choose(FFN_ISA_AUTO, &kernels) != FFN_OK) return ffni_error_text();
    activation.kind = !strcmp(layer->activation, "relu") ? ACTIVATION_RELU : !strcmp(layer->activation, "gelu") ? ACTIVATION_GELU : ACTIVATION_SWISH;
    width = layer->d_ff * (1 + layer->gated);
    order[OUT_IN].in = worker_floats(layer->d_model * width);
    if (layer->gated) memcpy(order[OUT_IN].in, layer->gate, (size_t)matrix * sizeof(float));
    memcpy(order[OUT_IN].in + (layer->gated ? matrix : 0), layer->up, (size_t)matrix * sizeof(float));
    order[OUT_IN].down = worker_floats(matrix);
    memcpy(order[OUT_IN].down, layer->down, (size_t)matrix * sizeof(float));
    order[IN_OUT].in = transposed(order[OUT_IN].in, width, layer->d_model);
    order[IN_OUT].down = transposed(layer->down, layer->d_model, layer->d_ff);
    hidden = worker_floats(layer->max_tokens * width);
    return NULL;
}

/* out = beta * out + x W^T, for x [tokens, inputs] with rows x_stride apart and out [tokens, outputs] with rows dense. */
static void multiply(int form, const float *matrix, int64_t outputs, int64_t inputs, const float *x, int64_t x_stride, float beta, float *out) {
    int transpose = form % FORMS_OF_GEMM == OUT_IN, stride = (int)(transpose ? inputs : outputs);
    if (form < FORMS_OF_GEMM) {
        scipy_cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose ? CblasTrans : CblasNoTrans, (int)prepared_tokens, (int)outputs, (int)inputs, 1, x,
                          (int)x_stride, matrix, stride, beta, out, (int)outputs);
        return;
    }
    for (int64_t t = 0; t < prepared_tokens; t++)
        scipy_cblas_sgemv(CblasRowMajor, transpose ? CblasNoTrans : CblasTrans, (int)(transpose ? outputs : inputs),
                          (int)(transpose ? inputs : outputs), 1, matrix, stride, x + t * x_stride, 1, beta, out + t * outputs, 1);
}

/* The activation over a share of the tokens, in place: row t's result is at hidden + t * width. */
static void activate(void *data, int64_t share) {
    const layer_t *layer = data;
    int64_t end = prepared_tokens * (share + 1) / prepared_threads;
    for (int64_t t = prepared_tokens * share / prepared_threads; t < end; t++) {
        float *row = hidden + t * width;
        if (layer->gated)
            kernels->activate_gated[activation.kind](&activation, layer->d_ff, row, row, NULL, row + layer->d_ff, NULL);
        else
            kernels->activate[activation.kind](&activation, layer->d_ff, row, row, layer->up_bias);
    }
}

static void run_form(const layer_t *layer, int form) {
    const weights_t *weights = &order[form % FORMS_OF_GEMM];
    multiply(form, weights->in, width, layer->d_model, layer->x, layer->d_model, 0, hidden);
    if (prepared_tokens < 8 || !pool) /* too short to wake a thread for */
        for (int share = 0; share < prepared_threads; share++) activate((void *)layer, share);
    else
        ffni_pool_run(pool, prepared_threads, activate, (void *)layer);
    for (int64_t t = 0; layer->down_bias && t < prepared_tokens; t++)
        memcpy(layer->y + t * layer->d_model, layer->down_bias, (size_t)layer->d_model * sizeof(float));
    multiply(form, weights->down, layer->d_model, layer->d_ff, hidden, width, layer->down_bias ? 1 : 0, layer->y);
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    if (prepared_threads != threads) {
        if (pool) ffni_pool_free(&ffni_default_allocator, pool);
        pool = threads > 1 ? ffni_pool_create(&ffni_default_allocator, (uint32_t)threads) : NULL;
        prepared_threads = threads;
    }
    scipy_openblas_set_num_threads(threads);
    prepared_tokens = tokens;
    prepared_form = worker_fastest(tokens <= GEMV_TOKENS ? 2 * FORMS_OF_GEMM : FORMS_OF_GEMM, run_form, layer);
    snprintf(form, FORM_LENGTH, "%s, %s", form_names[prepared_form], scipy_openblas_get_corename());
    return NULL;
}

static void run(const layer_t *layer) {
    run_form(layer, prepared_form);
}

int main(int argc, char **argv) {
    static const engine_t engine = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &engine);
}
