/* SPDX-License-Identifier: MIT
 * The header of a .npy file: what numpy/lib/format.py writes and reads. */
#ifndef FFNIO_NPY_H
#define FFNIO_NPY_H

#include "io/convert.h"

enum { NPY_MOST_DIMENSIONS = 32 };

typedef struct npy_header {
    element_t element;
    byte_order_t order;
    int fortran;
    uint32_t ndim;
    int64_t shape[NPY_MOST_DIMENSIONS]; /* the first ndim; the others 0 */
    int64_t elements;
    int64_t data_begin; /* offset in the file */
} npy_header_t;

/* Reads and checks a file's header, and that the file has the data that it announces. FFN_FORMAT, FFN_FILE, FFN_UNSUPPORTED (a dtype that is no
 * floating-point number), FFN_NO_MEMORY. */
ffn_status_t ffnio_npy_header_read(const file_t *file, npy_header_t *header);

/* Parses the Python literal in the header. */
ffn_status_t ffnio_npy_header_parse(const char *path, const char *text, int64_t length, npy_header_t *header);

#endif
