/* SPDX-License-Identifier: MIT
 *
 * Running a test's layer and holding its output against the oracle, or two runs against each other.
 */
#ifndef FFN_TEST_LAYER_CHECK_H
#define FFN_TEST_LAYER_CHECK_H

#include "support/layer_case.h"

/* Contiguous input, external residual (NULL unless the layer has one), and room for the output, which is filled with NaN. */
typedef struct layer_data {
    int64_t tokens;
    float *x, *residual, *y;
} layer_data_t;

/* Random x and residual of the seed, normally distributed. */
layer_data_t layer_data_make(const test_layer_t *test, int64_t tokens, uint64_t seed);
void layer_data_free(layer_data_t *data);

/* Fails the test, naming the status and the sentence, unless the status is FFN_OK. */
void assert_ok(ffn_status_t status);

/* y = layer(x) through ffn_layer_run with contiguous rows, one sequence. */
void layer_data_run(const test_layer_t *test, ffn_context_t *context, layer_data_t *data);

/* Fails the test unless each number of y [tokens, d_out] is within its bound of the oracle's. */
void assert_as_oracle(const test_layer_t *test, const layer_data_t *data, const float *y);

/* True if y is within the bounds of the oracle for `layer`, which may be another one than the library's. */
bool agrees_with_oracle(const oracle_layer_t *layer, const layer_data_t *data, const float *y);

/* Makes the case's layer, runs it on `tokens` random tokens in the calling thread, and asserts that it is as the oracle's. */
void check_case(const layer_case_t *is, int64_t tokens);

/* Fails the test if y differs from expected in a bit. */
void assert_same_output(const test_layer_t *test, int64_t tokens, const float *expected, const float *y, const char *what);

#endif
