/* SPDX-License-Identifier: MIT
 * Checking the strides of inputs and outputs, and whether they overlap. */
#include "core/rows.h"

#include "base/checked.h"
#include "base/error.h"

#include <inttypes.h>

static ffn_status_t check_stride(const char *name, const char *what, int64_t stride, int64_t least) {
    if (stride < least)
        return ffni_fail(FFN_INVALID, "the %s stride of %s is %" PRId64 " bytes, must be at least %" PRId64, what, name, stride, least);
    if (stride % 4) return ffni_fail(FFN_INVALID, "the %s stride of %s is %" PRId64 " bytes, must be a multiple of 4", what, name, stride);
    return FFN_OK;
}

/* The bytes from the first row's start to the last row's end. Sequences may interleave, so that either stride may be the larger. */
static int64_t span(const rows_t *rows) {
    return (rows->count / rows->length - 1) * rows->sequence_stride + (rows->length - 1) * rows->row_stride + rows->row_bytes;
}

/* Whether the last row's end is still an address. */
static int fits(const rows_t *rows, int64_t batch) {
    int64_t sequences, in_sequence, bytes;
    return checked_multiply(batch - 1, rows->sequence_stride, &sequences) &&
           checked_multiply(rows->length - 1, rows->row_stride, &in_sequence) && checked_add(sequences, in_sequence, &bytes) &&
           checked_add(bytes, rows->row_bytes, &bytes) && (uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)rows->base;
}

ffn_status_t ffni_rows_read(rows_t *rows, const char *name, const void *base, int64_t batch, int64_t length, int64_t width,
                            const int64_t stride[2]) {
    int64_t row_bytes = 4 * width, whole;
    *rows = (rows_t){.base = (char *)(uintptr_t)base, .count = batch * length, .length = length, .row_bytes = row_bytes};
    if (!base) return ffni_fail(FFN_INVALID, "%s is NULL", name);
    if ((uintptr_t)base % 4) return ffni_fail(FFN_INVALID, "%s is not at a multiple of 4 bytes", name);
    /* The stride of a single row means nothing, unless it is what the sequences' stride comes from. */
    int row_stride_counts = length > 1 || (batch > 1 && !stride[0]);
    rows->row_stride = row_stride_counts && stride[1] ? stride[1] : row_bytes;
    ffn_status_t status = check_stride(name, "row", rows->row_stride, row_bytes);
    if (status) return status;
    rows->sequence_stride = stride[0];
    if (batch == 1 || !stride[0])
        if (!checked_multiply(length, rows->row_stride, &rows->sequence_stride))
            return ffni_fail(FFN_INVALID, "%s overflows: %" PRId64 " rows of stride %" PRId64, name, length, rows->row_stride);
    status = check_stride(name, "sequence", rows->sequence_stride, row_bytes);
    if (status) return status;
    if (!fits(rows, batch)) return ffni_fail(FFN_INVALID, "the rows of %s reach beyond the address space", name);
    if (length == 1) rows->row_stride = rows->sequence_stride;
    if (length == 1 || (checked_multiply(length, rows->row_stride, &whole) && whole == rows->sequence_stride)) rows->length = rows->count;
    return FFN_OK;
}

ffn_status_t ffni_rows_check_distinct(const rows_t *rows, const char *name) {
    int64_t sequences = rows->count / rows->length;
    int64_t inner = rows->row_stride, inner_count = rows->length, outer = rows->sequence_stride;
    if (sequences == 1) return FFN_OK;
    if (outer < inner) inner = rows->sequence_stride, inner_count = sequences, outer = rows->row_stride;
    if (outer >= (inner_count - 1) * inner + rows->row_bytes) return FFN_OK;
    return ffni_fail(FFN_INVALID, "the sequences of %s overlap: strides of %" PRId64 " and %" PRId64 " bytes with %" PRId64 " rows each", name,
                     rows->sequence_stride, rows->row_stride, rows->length);
}

static int same_rows(const rows_t *a, const rows_t *b) {
    return a->base == b->base && a->row_bytes == b->row_bytes && a->length == b->length &&
           (a->count == 1 || a->row_stride == b->row_stride) && (a->count == a->length || a->sequence_stride == b->sequence_stride);
}

/* With one stride for both, rows repeat modulo the stride: they are apart when neither reaches into the other's place. */
static int interleaved(const rows_t *a, const rows_t *b) {
    if (a->length != a->count || b->length != b->count || a->row_stride != b->row_stride) return 0;
    int64_t stride = a->row_stride;
    int64_t distance = (int64_t)((uintptr_t)b->base - (uintptr_t)a->base) % stride;
    if (distance < 0) distance += stride;
    return distance >= a->row_bytes && distance + b->row_bytes <= stride;
}

void ffni_rows_range(const rows_t *rows, uintptr_t *low, uintptr_t *high) {
    *low = (uintptr_t)rows->base;
    *high = *low + (uintptr_t)span(rows);
}

static int share_bytes(const rows_t *a, const rows_t *b) {
    uintptr_t a_low, a_high, b_low, b_high;
    ffni_rows_range(a, &a_low, &a_high);
    ffni_rows_range(b, &b_low, &b_high);
    return a_high > b_low && b_high > a_low && !interleaved(a, b);
}

ffn_status_t ffni_rows_check_separate(const rows_t *rows, const char *name, const rows_t *other, const char *other_name) {
    if (!share_bytes(rows, other)) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s overlaps %s: they must be apart", name, other_name);
}

ffn_status_t ffni_rows_check_same_or_separate(const rows_t *rows, const char *name, const rows_t *other, const char *other_name) {
    if (!share_bytes(rows, other) || same_rows(rows, other)) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s overlaps %s in part: they must be apart, or the same rows exactly", name, other_name);
}
