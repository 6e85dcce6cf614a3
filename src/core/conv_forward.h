/* SPDX-License-Identifier: MIT
 * The forward pass of a convolutional layer, for inference and training. */
#ifndef FFNI_CONV_FORWARD_H
#define FFNI_CONV_FORWARD_H

#include "core/conv_pass.h"
#include "core/stats.h"
#include "core/tape.h"

/* Rows of a block at the most: what suits sgemm, and sgemm where the pre-activations are computed again, for half the memory. */
enum { CONV_ROWS = 512, CONV_RECOMPUTE_ROWS = 256 };

/* Rows of each of the equal blocks that so many go through in, and the bytes of scratch memory that they take: at most `most`, and what the context's
 * limit allows. FFN_NO_MEMORY: it does not allow one. */
typedef uint64_t conv_bytes_fn(const ffn_conv_t *conv, int64_t count, int64_t rows);
ffn_status_t ffni_conv_rows(const ffn_conv_t *conv, const ffn_context_t *context, int64_t count, int64_t most, conv_bytes_fn *bytes, int64_t *rows);

/* y = layer(x) for pass->count > 0 rows, recorded on the tape, counted in the stats (NULL: none). The arguments have been checked. FFN_NO_MEMORY: nothing
 * was written. */
ffn_status_t ffni_conv_forward(const conv_pass_t *pass, const rows_t *y, ffn_tape_t *tape, ffn_stats_t *stats);

/* Bytes of scratch memory that it needs for any number of rows up to `count`. FFN_NO_MEMORY as above. */
ffn_status_t ffni_conv_forward_scratch(const ffn_conv_t *conv, const ffn_context_t *context, int64_t count, uint64_t *bytes);

#endif
