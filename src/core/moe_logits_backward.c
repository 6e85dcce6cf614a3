/* SPDX-License-Identifier: MIT
 * Blocks of rows: the norm again, two products by BLAS on the calling thread, and the norm's derivatives on the context's threads. */
#include "core/moe_logits_backward.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "core/parallel.h"
#include "core/view_products.h"
#include "kernels/training.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* Rows of a block, which suits sgemm; rows whose norms' derivatives are summed in float32. */
enum { BLOCK_ROWS = 512, CHUNK_ROWS = 32 };

typedef struct pass {
    const logits_backward_t *backward;
    int64_t begin, rows; /* of the block */

    /* Scratch memory. NULL: not needed. */
    float *input;     /* [rows, d_model]: what was multiplied */
    float *d_input;   /* [rows, d_model]: the derivatives by it */
    float *weight;    /* [experts, d_model], where BLAS cannot read the caller's */
    float *d_weight;  /* likewise */
    float *partial;   /* [chunks, d_model]: sums of the derivatives by the norm's weight */
    double *total;    /* [d_model] */
    double *bias;     /* [experts] */
} pass_t;

static int has_norm(const logits_backward_t *b) {
    return b->forward.linear.has_norm;
}

/* sgemm can read rows of x in place. */
static int input_in_place(const logits_backward_t *b) {
    return !has_norm(b) && b->forward.x.row_stride / 4 <= INT_MAX;
}

static int goes_back(const logits_backward_t *b) {
    return b->d_x.base || b->d_norm_weight;
}

static uint64_t lay_out(pass_t *pass, int64_t rows, char *base) {
    const logits_backward_t *b = pass->backward;
    const view_t *weight = &b->forward.weight;
    const int64_t element = sizeof(float);
    arena_t arena = {.base = base};
    if (b->d_weight.data && !input_in_place(b)) pass->input = ffni_arena_take(&arena, rows, weight->columns * element);
    if (goes_back(b)) pass->d_input = ffni_arena_take(&arena, rows, weight->columns * element);
    if (goes_back(b) && !ffni_view_takes_products(weight)) pass->weight = ffni_arena_take(&arena, weight->rows, weight->columns * element);
    if (b->d_weight.data && !ffni_view_takes_products(&b->d_weight))
        pass->d_weight = ffni_arena_take(&arena, weight->rows, weight->columns * element);
    if (b->d_norm_weight) {
        pass->partial = ffni_arena_take(&arena, (rows - 1) / CHUNK_ROWS + 1, weight->columns * element);
        pass->total = ffni_arena_take(&arena, weight->columns, sizeof(double));
    }
    if (b->d_bias) pass->bias = ffni_arena_take(&arena, weight->rows, sizeof(double));
    return arena.overflowed ? UINT64_MAX : arena.used;
}

/* --------------------------------------------------------------------- Blocks */

static void input_rows(void *data, int64_t begin, int64_t end) {
    const pass_t *pass = data;
    const logits_t *forward = &pass->backward->forward;
    int64_t width = forward->weight.columns;
    for (int64_t i = begin; i < end; i++) {
        const float *x = rows_at(&forward->x, pass->begin + i);
        float *input = pass->input + i * width;
        if (has_norm(pass->backward))
            forward->linear.kernels->normalise[forward->linear.norm_kind](&forward->linear.norm, width, input, x);
        else
            memcpy(input, x, (size_t)width * sizeof *input);
    }
}

static void put_d_x(const pass_t *pass, int64_t row, float *d_input) {
    const logits_backward_t *b = pass->backward;
    int64_t width = b->forward.weight.columns;
    if (!b->d_x.base) return;
    float *d_x = rows_at(&b->d_x, row);
    if (b->add_d_x)
        b->forward.linear.kernels->training->add(width, d_x, d_input);
    else
        memcpy(d_x, d_input, (size_t)width * sizeof *d_x);
}

/* From the derivatives by the products' input to those by x. */
static void back_chunks(void *data, int64_t begin, int64_t end) {
    const pass_t *pass = data;
    const logits_backward_t *b = pass->backward;
    const logits_t *forward = &b->forward;
    int64_t width = forward->weight.columns;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        float *sum = pass->partial ? pass->partial + chunk * width : NULL;
        if (sum) memset(sum, 0, (size_t)width * sizeof *sum);
        for (int64_t i = chunk * CHUNK_ROWS; i < minimum((chunk + 1) * CHUNK_ROWS, pass->rows); i++) {
            float *d = pass->d_input + i * width;
            if (has_norm(b))
                forward->linear.kernels->training->differentiate_norm[forward->linear.norm_kind](&forward->linear.norm, width, d, d,
                                                                                               rows_at(&forward->x, pass->begin + i), sum, NULL);
            put_d_x(pass, pass->begin + i, d);
        }
    }
}

static void multiply_weight(const pass_t *pass, const float *d_logits) {
    const logits_backward_t *b = pass->backward;
    const logits_t *forward = &b->forward;
    int64_t experts = forward->weight.rows, width = forward->weight.columns;
    view_t target = pass->d_weight ? ffni_view_contiguous(pass->d_weight, &b->d_weight) : b->d_weight;
    operand_t input = {pass->input, width, 0};
    if (pass->input)
        ffni_parallel_rows(b->context, pass->rows, width, input_rows, (void *)(uintptr_t)pass);
    else
        input = (operand_t){rows_at(&forward->x, pass->begin), forward->x.count == 1 ? width : forward->x.row_stride / 4, 0};
    ffni_view_add_product(&target, pass->rows, (operand_t){d_logits, experts, 0}, input, b->accumulate || pass->begin > 0);
}

static void run_block(const pass_t *pass) {
    const logits_backward_t *b = pass->backward;
    int64_t experts = b->forward.weight.rows, width = b->forward.weight.columns, chunks = (pass->rows - 1) / CHUNK_ROWS + 1;
    const float *d_logits = b->d_logits + pass->begin * experts;
    for (int64_t i = 0; pass->bias && i < pass->rows * experts; i++) pass->bias[i % experts] += (double)d_logits[i];
    if (b->d_weight.data) multiply_weight(pass, d_logits);
    if (!goes_back(b)) return;
    view_t weight = pass->weight ? ffni_view_contiguous(pass->weight, &b->forward.weight) : b->forward.weight;
    ffni_gemm_general(pass->rows, width, experts, (operand_t){d_logits, experts, 0}, ffni_view_operand(&weight), 0, pass->d_input, width);
    ffni_parallel_rows(b->context, chunks, CHUNK_ROWS * width, back_chunks, (void *)(uintptr_t)pass);
    for (int64_t i = 0; pass->total && i < chunks * width; i++) pass->total[i % width] += (double)pass->partial[i];
}

/* ------------------------------------------------------------- Begin and end */

static void begin(const pass_t *pass) {
    const logits_backward_t *b = pass->backward;
    const view_t *weight = &b->forward.weight;
    if (pass->weight) {
        view_t copy = ffni_view_contiguous(pass->weight, weight);
        ffni_view_copy(b->context, &copy, weight);
    }
    if (pass->d_weight && b->accumulate) {
        view_t copy = ffni_view_contiguous(pass->d_weight, weight);
        ffni_view_copy(b->context, &copy, &b->d_weight);
    }
    if (pass->total) memset(pass->total, 0, (size_t)weight->columns * sizeof *pass->total);
    if (pass->bias) memset(pass->bias, 0, (size_t)weight->rows * sizeof *pass->bias);
}

static void put_vector(const logits_backward_t *b, int64_t n, float *out, const double *total) {
    for (int64_t i = 0; out && total && i < n; i++) out[i] = (float)(b->accumulate ? total[i] + (double)out[i] : total[i]);
}

static void finish(const pass_t *pass) {
    const logits_backward_t *b = pass->backward;
    if (pass->d_weight) {
        view_t copy = ffni_view_contiguous(pass->d_weight, &b->d_weight);
        ffni_view_copy(b->context, &b->d_weight, &copy);
    }
    put_vector(b, b->forward.weight.columns, b->d_norm_weight, pass->total);
    put_vector(b, b->forward.weight.rows, b->d_bias, pass->bias);
}

/* Fewer rows where the context's limit of scratch memory asks for it. */
static ffn_status_t take_scratch(pass_t *pass, int64_t *rows) {
    ffn_context_t *context = pass->backward->context;
    uint64_t bytes;
    while ((bytes = lay_out(pass, *rows, NULL)), context->scratch_limit && bytes > context->scratch_limit) {
        if (*rows == 1)
            return ffni_fail(FFN_NO_MEMORY, "scratch_limit of the context is %" PRIu64 " bytes, must be at least %" PRIu64 " for this router",
                             context->scratch_limit, bytes);
        *rows /= 2;
    }
    ffn_status_t status = ffni_context_scratch(context, bytes);
    if (!status) lay_out(pass, *rows, context->scratch);
    return status;
}

ffn_status_t ffni_moe_logits_backward(const logits_backward_t *backward) {
    pass_t pass = {.backward = backward};
    int64_t tokens = backward->forward.x.count, rows = minimum(BLOCK_ROWS, tokens);
    ffn_status_t status = take_scratch(&pass, &rows);
    if (status) return status;
    begin(&pass);
    for (pass.begin = 0; pass.begin < tokens; pass.begin += rows) {
        pass.rows = minimum(rows, tokens - pass.begin);
        run_block(&pass);
    }
    finish(&pass);
    return FFN_OK;
}

void ffni_moe_logits_backward_zeros(const logits_backward_t *b) {
    if (b->accumulate) return;
    if (b->d_weight.data) ffni_view_zero(&b->d_weight);
    for (int64_t i = 0; b->d_bias && i < b->forward.weight.rows; i++) b->d_bias[i] = 0;
    for (int64_t i = 0; b->d_norm_weight && i < b->forward.weight.columns; i++) b->d_norm_weight[i] = 0;
}
