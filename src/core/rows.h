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

/* Refuses two tensors that share a byte. */
ffn_status_t ffni_rows_check_separate(const rows_t *rows, const char *name, const rows_t *other, const char *other_name);

/* The same where they may also be the same rows exactly. */
ffn_status_t ffni_rows_check_same_or_separate(const rows_t *rows, const char *name, const rows_t *other, const char *other_name);

/* The addresses from the first row's start to behind the last row's end. */
void ffni_rows_range(const rows_t *rows, uintptr_t *low, uintptr_t *high);

static inline float *rows_at(const rows_t *rows, int64_t row) {
    int64_t sequence = row / rows->length;
    return (float *)(void *)(rows->base + sequence * rows->sequence_stride + (row - sequence * rows->length) * rows->row_stride);
}

#endif
