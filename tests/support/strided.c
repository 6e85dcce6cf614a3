/* SPDX-License-Identifier: MIT */
#include "support/strided.h"

#include <string.h>

#include "support/test.h"

static const unsigned char CANARY = 0xff; /* guard_alloc fills with it: four of them are a NaN */

strided_t strided_make(int64_t batch, int64_t length, int64_t width, gaps_t gaps, guard_side_t side)
{
    strided_t tensor = {.batch = batch, .length = length, .width = width};
    int64_t row = width + gaps.row, sequence = length * row + gaps.sequence;
    tensor.stride[0] = sequence * (int64_t)sizeof(float);
    tensor.stride[1] = row * (int64_t)sizeof(float);
    int64_t floats = batch && length ? (batch - 1) * sequence + (length - 1) * row + width : 0;
    tensor.memory = guard_alloc((size_t)floats * sizeof(float), side);
    return tensor;
}

void strided_free(strided_t *tensor)
{
    guard_free(&tensor->memory);
}

static float *row_of(const strided_t *tensor, int64_t token)
{
    int64_t b = token / tensor->length, t = token % tensor->length;
    return (float *)((char *)tensor->memory.data + b * tensor->stride[0] + t * tensor->stride[1]);
}

void strided_store(strided_t *tensor, const float *rows)
{
    for (int64_t i = 0; i < tensor->batch * tensor->length; i++)
        memcpy(row_of(tensor, i), rows + i * tensor->width, (size_t)tensor->width * sizeof(float));
}

void strided_load(const strided_t *tensor, float *rows)
{
    for (int64_t i = 0; i < tensor->batch * tensor->length; i++)
        memcpy(rows + i * tensor->width, row_of(tensor, i), (size_t)tensor->width * sizeof(float));
}

void assert_gaps_untouched(const strided_t *tensor, const char *what)
{
    int64_t tokens = tensor->batch * tensor->length;
    for (int64_t i = 0; i + 1 < tokens; i++) {
        const unsigned char *end = (const unsigned char *)(row_of(tensor, i) + tensor->width);
        const unsigned char *next = (const unsigned char *)row_of(tensor, i + 1);
        for (const unsigned char *at = end; at < next; at++)
            if (*at != CANARY) fail_msg("%s: byte %lld of the gap after row %lld was written", what, (long long)(at - end), (long long)i);
    }
}

void strided_run(const test_layer_t *test, ffn_context_t *context, const strided_t *x, const strided_t *residual, const strided_t *y)
{
    ffn_run_t run = {.struct_size = sizeof run, .batch = x->batch, .length = x->length, .x = x->memory.data, .y = y->memory.data};
    memcpy(run.x_stride, x->stride, sizeof run.x_stride);
    memcpy(run.y_stride, y->stride, sizeof run.y_stride);
    if (residual) {
        run.residual = residual->memory.data;
        memcpy(run.residual_stride, residual->stride, sizeof run.residual_stride);
    }
    assert_ok(ffn_layer_run(test->layer, context, &run));
}
