/* SPDX-License-Identifier: MIT */
#include "support/layer_check.h"

#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/random.h"
#include "support/test.h"

layer_data_t layer_data_make(const test_layer_t *test, int64_t tokens, uint64_t seed)
{
    rng_t rng = rng_make(seed + (test_seed() << 32));
    int64_t in = tokens * test->is.d_model, out = tokens * test->is.d_out;
    layer_data_t data = {tokens, test_alloc((size_t)in * sizeof(float)), NULL, test_alloc((size_t)out * sizeof(float))};
    rng_fill_normal(&rng, data.x, in);
    if (test->is.residual == FFN_RESIDUAL_EXTERNAL) {
        data.residual = test_alloc((size_t)out * sizeof(float));
        rng_fill_normal(&rng, data.residual, out);
    }
    memset(data.y, 0xff, (size_t)out * sizeof(float));
    return data;
}

void layer_data_free(layer_data_t *data)
{
    free(data->x);
    free(data->residual);
    free(data->y);
    memset(data, 0, sizeof *data);
}

void assert_ok(ffn_status_t status)
{
    if (status != FFN_OK) fail_msg("%s: %s", ffn_status_name(status), ffn_last_error());
}

void layer_data_run(const test_layer_t *test, ffn_context_t *context, layer_data_t *data)
{
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = data->tokens, .x = data->x, .y = data->y, .residual = data->residual};
    assert_ok(ffn_layer_run(test->layer, context, &run));
}

/* The oracle's output and bounds in one allocation: bounds start at [n]. */
static double *oracle_output(const oracle_layer_t *layer, const layer_data_t *data)
{
    int64_t n = data->tokens * layer->d_out;
    double *x = oracle_widen(data->x, data->tokens * layer->d_model);
    double *residual = data->residual ? oracle_widen(data->residual, n) : NULL;
    double *y = test_alloc((size_t)n * 2 * sizeof *y);
    oracle_run(layer, data->tokens, x, residual, y, y + n);
    free(x);
    free(residual);
    return y;
}

void assert_as_oracle(const test_layer_t *test, const layer_data_t *data, const float *y)
{
    int64_t n = data->tokens * test->is.d_out;
    double *expected = oracle_output(&test->oracle, data);
    int64_t i = first_outside_bound(y, expected, expected + n, n);
    if (i >= 0) test_layer_fail(test, "library against oracle", data->tokens, i, expected[i], (double)y[i], expected[n + i]);
    free(expected);
}

bool agrees_with_oracle(const oracle_layer_t *layer, const layer_data_t *data, const float *y)
{
    int64_t n = data->tokens * layer->d_out;
    double *expected = oracle_output(layer, data);
    bool agrees = first_outside_bound(y, expected, expected + n, n) < 0;
    free(expected);
    return agrees;
}

void check_case(const layer_case_t *is, int64_t tokens)
{
    test_layer_t test;
    test_layer_make(&test, is);
    layer_data_t data = layer_data_make(&test, tokens, is->seed ^ 0x5eed);
    layer_data_run(&test, NULL, &data);
    assert_as_oracle(&test, &data, data.y);
    layer_data_free(&data);
    test_layer_free(&test);
}

void assert_same_output(const test_layer_t *test, int64_t tokens, const float *expected, const float *y, const char *what)
{
    int64_t i = first_different_bits(expected, y, tokens * test->is.d_out);
    if (i >= 0) test_layer_fail(test, what, tokens, i, (double)expected[i], (double)y[i], 0);
}
