/* SPDX-License-Identifier: MIT
 * Reading the rows of a .npy file, in C order whatever the order of the file. */
#include "io/npy.h"

#include "base/checked.h"
#include "base/structs.h"

#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_NUMBERS = 16384,
    /* Where the elements of a column that are wanted lie further apart than this, each is read by itself: the rest would be read for nothing. */
    WIDEST_STEP = 64
};

struct ffn_npy {
    file_t file;
    npy_header_t header;
    int64_t rows, columns;
    int64_t window_first, window_count; /* the elements of the file that window holds */
    float window[WINDOW_NUMBERS];
};

/* rows is the product of all sizes but the last. With a last size of 0 it is not bounded by the file, but by check_size all the same. */
static void count_rows(ffn_npy_t *npy) {
    const npy_header_t *header = &npy->header;
    npy->rows = 1;
    npy->columns = header->ndim ? header->shape[header->ndim - 1] : 1;
    for (uint32_t i = 0; i + 1 < header->ndim; i++) npy->rows = header->shape[i] ? npy->rows * header->shape[i] : 0;
}

ffn_status_t ffn_npy_open(const char *path, ffn_npy_t **npy) {
    if (!npy) return ffnio_fail(FFN_INVALID, "npy is NULL");
    *npy = NULL;
    if (!path) return ffnio_fail(FFN_INVALID, "path is NULL");
    ffn_npy_t *made = malloc(sizeof *made);
    if (!made) return ffnio_fail_memory(sizeof *made, "a reader of a .npy file");
    made->window_first = made->window_count = 0;
    ffn_status_t status = ffnio_file_open(path, &made->file);
    if (!status) status = ffnio_npy_header_read(&made->file, &made->header);
    if (status) {
        ffn_npy_free(made);
        return status;
    }
    count_rows(made);
    *npy = made;
    return FFN_OK;
}

void ffn_npy_free(ffn_npy_t *npy) {
    if (!npy) return;
    ffnio_file_close(&npy->file);
    free(npy);
}

ffn_status_t ffn_npy_info(const ffn_npy_t *npy, ffn_npy_info_t *info) {
    if (!npy) return ffnio_fail(FFN_INVALID, "npy is NULL");
    ffn_npy_info_t known = {.struct_size = sizeof known, .ndim = npy->header.ndim, .rows = npy->rows, .columns = npy->columns,
                            .fortran = (uint32_t)npy->header.fortran, .itemsize = (uint32_t)ffnio_element_size(npy->header.element)};
    memcpy(known.shape, npy->header.shape, sizeof known.shape);
    return ffnio_struct_write(info, &known, sizeof known, "ffn_npy_info_t");
}

/* Makes the window hold element `first` of the file, and as many of the next most-1 as fit. A file whose columns are short is read through in
 * whole windows, so that the next columns are there already. */
static ffn_status_t fill_window(ffn_npy_t *npy, int64_t first, int64_t most) {
    const npy_header_t *header = &npy->header;
    if (first >= npy->window_first && first < npy->window_first + npy->window_count) return FFN_OK;
    if (npy->rows <= WINDOW_NUMBERS / 2) most = header->elements - first;
    most = minimum(most, WINDOW_NUMBERS);
    npy->window_count = 0;
    int64_t offset = header->data_begin + first * ffnio_element_size(header->element);
    ffn_status_t status = ffnio_file_read_floats(&npy->file, offset, header->element, header->order, most, npy->window);
    if (status) return status;
    npy->window_first = first;
    npy->window_count = most;
    return FFN_OK;
}

/* count elements of the file, the first at `from` and `step` apart, to out[0], out[out_step], ... */
static ffn_status_t gather(ffn_npy_t *npy, int64_t from, int64_t step, int64_t count, float *out, int64_t out_step) {
    const int64_t end = from + (count - 1) * step + 1;
    while (from < end) {
        ffn_status_t status = fill_window(npy, from, step > WIDEST_STEP ? 1 : end - from);
        if (status) return status;
        const int64_t stop = minimum(end, npy->window_first + npy->window_count);
        for (; from < stop; from += step, out += out_step) *out = npy->window[from - npy->window_first];
    }
    return FFN_OK;
}

/* Where the file has row `row` of a column: there the first dimension is the fastest, in a row's number the last one is. */
static int64_t fortran_position(const npy_header_t *header, int64_t row) {
    int64_t place[NPY_MOST_DIMENSIONS], position = 0;
    uint32_t dimensions = header->ndim ? header->ndim - 1 : 0;
    for (uint32_t i = dimensions; i-- > 0; row /= header->shape[i]) place[i] = row % header->shape[i];
    for (uint32_t i = dimensions; i-- > 0;) position = position * header->shape[i] + place[i];
    return position;
}

/* Rows that differ in the last but one dimension only lie evenly in the file: with two dimensions, the common case, those are all rows. */
static ffn_status_t read_fortran(ffn_npy_t *npy, int64_t first, int64_t count, float *out) {
    const npy_header_t *header = &npy->header;
    int64_t run_length = header->ndim >= 2 ? header->shape[header->ndim - 2] : 1, step = npy->rows / run_length;
    for (int64_t column = 0; column < npy->columns; column++) {
        for (int64_t done = 0; done < count;) {
            int64_t row = first + done, run = minimum(count - done, run_length - row % run_length);
            int64_t from = column * npy->rows + fortran_position(header, row);
            ffn_status_t status = gather(npy, from, step, run, out + done * npy->columns + column, npy->columns);
            if (status) return status;
            done += run;
        }
    }
    return FFN_OK;
}

ffn_status_t ffn_npy_read(ffn_npy_t *npy, int64_t first, int64_t count, float *out) {
    if (!npy) return ffnio_fail(FFN_INVALID, "npy is NULL");
    if (first < 0 || count < 0 || count > npy->rows || first > npy->rows - count)
        return ffnio_fail_file(FFN_INVALID, npy->file.path, "rows %" PRId64 " and the next %" PRId64 " are asked for, it has %" PRId64, first, count,
                               npy->rows);
    if (!count || !npy->columns) return FFN_OK;
    if (!out) return ffnio_fail(FFN_INVALID, "out is NULL");
    /* A vector's order is the same in either way of writing it. */
    if (npy->header.fortran && npy->header.ndim >= 2) return read_fortran(npy, first, count, out);
    int64_t offset = npy->header.data_begin + first * npy->columns * ffnio_element_size(npy->header.element);
    return ffnio_file_read_floats(&npy->file, offset, npy->header.element, npy->header.order, count * npy->columns, out);
}
