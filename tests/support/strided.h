/* SPDX-License-Identifier: MIT
 *
 * Inputs and outputs with gaps between their rows, ending at or starting after an inaccessible page.
 */
#ifndef FFN_TEST_STRIDED_H
#define FFN_TEST_STRIDED_H

#include "ffn/ffn.h"
#include "support/guard.h"
#include "support/layer_check.h"

/* Floats between rows (after each) and between sequences (after each). 0 and 0: contiguous. */
typedef struct gaps {
    int64_t row, sequence;
} gaps_t;

/* [batch, length, width] floats; the last row's gap is not part of the memory. Gaps and rows are filled with one NaN, the canary. */
typedef struct strided {
    int64_t batch, length, width;
    int64_t stride[2]; /* bytes, as ffn_run_t has them */
    guard_buffer_t memory;
} strided_t;

strided_t strided_make(int64_t batch, int64_t length, int64_t width, gaps_t gaps, guard_side_t side);
void strided_free(strided_t *tensor);

/* Copies contiguous rows in, and out again. */
void strided_store(strided_t *tensor, const float *rows);
void strided_load(const strided_t *tensor, float *rows);

/* Fails the test if a float of a gap is no canary any more. */
void assert_gaps_untouched(const strided_t *tensor, const char *what);

/* Runs the test's layer on these: x, y, and with an external residual `residual` (else NULL). y may be x or residual. */
void strided_run(const test_layer_t *test, ffn_context_t *context, const strided_t *x, const strided_t *residual, const strided_t *y);

#endif
