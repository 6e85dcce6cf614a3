/* SPDX-License-Identifier: MIT
 * The rows of a run's tensors: [batch, length, width] with strides for sequences and rows, and dense rows. */
#ifndef FFNI_ROWS_H
#define FFNI_ROWS_H

#include <ffn/ffn.h>

/* Row i is at base + (i / length) * sequence_stride + (i % length) * row_stride, in bytes. Where one stride serves all rows, length is their
 * number. */
typedef struct rows {
    char *base;
    int64_t count, length;
    int64_t sequence_stride, row_stride;
    int64_t row_bytes;
} rows_t;

/* Checks a tensor of a run and describes its rows. `name` ("x") is for the sentences. count = batch * length > 0. */
ffn_status_t ffni_rows_read(rows_t *rows, const char *name, const void *base, int64_t batch, int64_t length, int64_t width,
                            const int64_t stride[2]);

/* Refuses rows of one tensor in which two share bytes, as an output's must not. */
ffn_status_t ffni_rows_check_distinct(const rows_t *rows, const char *name);

/* Refuses an output that overlaps an input, unless it is exactly the same rows or shares none of their bytes. */
ffn_status_t ffni_rows_check_apart(const rows_t *output, const rows_t *input, const char *input_name);

static inline float *rows_at(const rows_t *rows, int64_t row) {
    int64_t sequence = row / rows->length;
    return (float *)(void *)(rows->base + sequence * rows->sequence_stride + (row - sequence * rows->length) * rows->row_stride);
}

#endif
