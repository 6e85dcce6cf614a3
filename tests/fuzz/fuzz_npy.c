/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the .npy reader: rows that are read one by one are those that are read at once.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/input.h"

/* Beyond this many rows each is not read by itself: that would take time, not find more. */
enum { MOST_ROWS = 300 };

static void read_rows(ffn_npy_t *npy, const ffn_npy_info_t *info)
{
    size_t count = (size_t)(info->rows * info->columns);
    float *whole = malloc(count * sizeof *whole + 1), *row = malloc((size_t)info->columns * sizeof *row + 1);
    must(whole && row);
    must(ffn_npy_read(npy, 0, info->rows, whole) == FFN_OK);
    for (int64_t i = 0; i < info->rows && i < MOST_ROWS; i++) {
        must(ffn_npy_read(npy, i, 1, row) == FFN_OK);
        must(!memcmp(row, whole + i * info->columns, (size_t)info->columns * sizeof *row));
    }
    free(whole);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static input_file_t file = {.descriptor = -1};
    ffn_npy_t *npy;
    input_file_set(&file, data, size);
    ffn_status_t status = ffn_npy_open(file.path, &npy);
    if (status) {
        must_be_refusal(status, file.path);
        must(!npy);
        return 0;
    }
    ffn_npy_info_t info = {.struct_size = sizeof info};
    must(ffn_npy_info(npy, &info) == FFN_OK);
    must(info.ndim <= 32 && info.rows >= 0 && info.columns >= 0);
    int64_t most = (int64_t)size / info.itemsize;
    must(!info.columns || info.rows <= most / info.columns);
    if (info.columns) read_rows(npy, &info);
    float none;
    must(ffn_npy_read(npy, info.rows, 0, &none) == FFN_OK);
    must(ffn_npy_read(npy, info.rows, 1, &none) == FFN_INVALID);
    ffn_npy_free(npy);
    return 0;
}
