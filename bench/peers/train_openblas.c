/* SPDX-License-Identifier: MIT
 * The bare cblas_sgemm calls of a training step, by the current OpenBLAS, over all tokens at once: two of the forward pass, four of the backward pass
 * (gated: five). Weights are tried in both orders; gradients are [out, in]. The run that is checked has the activation between, in plain C. */
#include "worker.h"

#include <cblas.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IN_OUT, OUT_IN, FORMS };
static const char *const form_names[] = {"weights [in, out]", "weights [out, in]"};

static float *in[FORMS], *down[FORMS]; /* gate and up are one matrix of `width` outputs: gate's d_ff, then up's */
static float *hidden, *act, *d_hidden, *d_act;
static int64_t width, prepared_tokens;
static int prepared_form, complete;

static float *transposed(const float *matrix, int64_t rows, int64_t columns) {
    float *out = worker_floats(rows * columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) out[c * rows + r] = matrix[r * columns + c];
    return out;
}

static const char *start(const layer_t *layer, const char *variant) {
    (void)variant;
    int64_t matrix = layer->d_model * layer->d_ff;
    width = layer->d_ff * (1 + layer->gated);
    in[OUT_IN] = worker_floats(layer->d_model * width);
    if (layer->gated) memcpy(in[OUT_IN], layer->gate, (size_t)matrix * sizeof(float));
    memcpy(in[OUT_IN] + (layer->gated ? matrix : 0), layer->up, (size_t)matrix * sizeof(float));
    down[OUT_IN] = worker_floats(matrix);
    memcpy(down[OUT_IN], layer->down, (size_t)matrix * sizeof(float));
    in[IN_OUT] = transposed(in[OUT_IN], width, layer->d_model);
    down[IN_OUT] = transposed(layer->down, layer->d_model, layer->d_ff);
    hidden = worker_floats(layer->max_tokens * width), d_hidden = worker_floats(layer->max_tokens * width);
    act = worker_floats(layer->max_tokens * layer->d_ff), d_act = worker_floats(layer->max_tokens * layer->d_ff);
    return NULL;
}

static void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                     float *c, int64_t ldc) {
    scipy_cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb, 0, c, (int)ldc);
}

/* out = rows W^T, or with `back` rows W, for W [outputs, inputs]. */
static void project(int form, int back, const float *const weights[FORMS], int64_t outputs, int64_t inputs, const float *rows, float *out) {
    int64_t from = back ? outputs : inputs, to = back ? inputs : outputs;
    multiply(CblasNoTrans, (form == OUT_IN) == back ? CblasNoTrans : CblasTrans, prepared_tokens, to, from, rows, from, weights[form],
             form == OUT_IN ? inputs : outputs, out, to);
}

static double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

static void activate(const layer_t *layer) {
    for (int64_t i = 0; complete && i < prepared_tokens * layer->d_ff; i++) {
        const float *row = hidden + i / layer->d_ff * width + i % layer->d_ff;
        double z = *row;
        act[i] = (float)(layer->gated ? z * sigmoid(z) * row[layer->d_ff] : 0.5 * z * erfc(-z / sqrt(2)));
    }
}

static void differentiate(const layer_t *layer) {
    const double pi = acos(-1);
    for (int64_t i = 0; complete && i < prepared_tokens * layer->d_ff; i++) {
        int64_t at = i / layer->d_ff * width + i % layer->d_ff;
        double z = hidden[at], s = sigmoid(z), d = d_act[i];
        double slope = layer->gated ? s * (1 + z * (1 - s)) * hidden[at + layer->d_ff] : 0.5 * erfc(-z / sqrt(2)) + z * exp(-z * z / 2) / sqrt(2 * pi);
        d_hidden[at] = (float)(d * slope);
        if (layer->gated) d_hidden[at + layer->d_ff] = (float)(d * z * s);
    }
}

static void run_form(const layer_t *layer, int form) {
    int64_t model = layer->d_model, ff = layer->d_ff, rows = prepared_tokens;
    project(form, 0, (const float *const *)in, width, model, layer->x, hidden);
    activate(layer);
    project(form, 0, (const float *const *)down, model, ff, act, layer->y);
    worker_forward_done();
    project(form, 1, (const float *const *)down, model, ff, layer->d_y, d_act);
    differentiate(layer);
    multiply(CblasTrans, CblasNoTrans, model, ff, rows, layer->d_y, model, act, ff, layer->d_down, ff);
    if (layer->gated) multiply(CblasTrans, CblasNoTrans, ff, model, rows, d_hidden, width, layer->x, model, layer->d_gate, model);
    multiply(CblasTrans, CblasNoTrans, ff, model, rows, d_hidden + width - ff, width, layer->x, model, layer->d_up, model);
    project(form, 1, (const float *const *)in, width, model, d_hidden, layer->d_x);
}

static void run(const layer_t *layer) {
    run_form(layer, prepared_form);
    complete = 0;
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    scipy_openblas_set_num_threads(threads);
    prepared_tokens = tokens;
    complete = 1;
    run_form(layer, IN_OUT); /* numbers of the usual size everywhere */
    complete = 0;
    prepared_form = worker_fastest(FORMS, run_form, layer);
    complete = 1;
    snprintf(form, FORM_LENGTH, "%s, %s", form_names[prepared_form], scipy_openblas_get_corename());
    return NULL;
}

int main(int argc, char **argv) {
    static const engine_t engine = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &engine);
}
