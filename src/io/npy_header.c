/* SPDX-License-Identifier: MIT
 * The header of a .npy file: magic bytes, version, the length of the dictionary (2 bytes in version 1, 4 in versions 2 and 3), the dictionary. */
#include "io/npy.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

static const unsigned char magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

enum {
    MAGIC_BYTES = sizeof magic,
    VERSION_BYTES = 2,
    SMALLEST_FILE = MAGIC_BYTES + VERSION_BYTES + 2,
    LARGEST_PREFIX = MAGIC_BYTES + VERSION_BYTES + 4,
    /* A dictionary of 32 dimensions has 800 characters; the rest is room for padding. Versions 2 and 3 could have 4 GB. */
    LARGEST_DICTIONARY = 1 << 20
};

/* Where the dictionary is. */
static ffn_status_t read_prefix(const file_t *file, int64_t *begin, int64_t *length) {
    unsigned char prefix[LARGEST_PREFIX] = {0};
    if (file->size < SMALLEST_FILE)
        return ffnio_fail_file(FFN_FORMAT, file->path, "has %" PRId64 " bytes, which is too short for a .npy file", file->size);
    ffn_status_t status = ffnio_file_read(file, 0, prefix, minimum(file->size, LARGEST_PREFIX));
    if (status) return status;
    if (memcmp(prefix, magic, MAGIC_BYTES)) return ffnio_fail_file(FFN_FORMAT, file->path, "is no .npy file: it does not begin with \\x93NUMPY");
    unsigned major = prefix[MAGIC_BYTES], minor = prefix[MAGIC_BYTES + 1];
    if (major < 1 || major > 3 || minor)
        return ffnio_fail_file(FFN_FORMAT, file->path, "is of .npy version %u.%u, must be 1.0, 2.0 or 3.0", major, minor);
    int length_bytes = major == 1 ? 2 : 4;
    *begin = MAGIC_BYTES + VERSION_BYTES + length_bytes;
    *length = 0;
    for (int i = length_bytes - 1; i >= 0; i--) *length = *length << 8 | prefix[MAGIC_BYTES + VERSION_BYTES + i];
    if (*length > file->size - *begin)
        return ffnio_fail_file(FFN_FORMAT, file->path, "the .npy header's length is %" PRId64 ", which goes past the end of the file", *length);
    if (*length > LARGEST_DICTIONARY)
        return ffnio_fail_file(FFN_FORMAT, file->path, "the .npy header's length is %" PRId64 ", must be at most %d", *length, LARGEST_DICTIONARY);
    return FFN_OK;
}

/* Sizes of 0 do not hide those whose product overflows: NumPy refuses these too, and the product of the rows is asked for alone. */
static ffn_status_t check_size(const file_t *file, npy_header_t *header) {
    int64_t size = ffnio_element_size(header->element), bytes = size;
    int empty = 0;
    for (uint32_t i = 0; i < header->ndim; i++) {
        if (!header->shape[i])
            empty = 1;
        else if (!checked_multiply(bytes, header->shape[i], &bytes))
            return ffnio_fail_file(FFN_FORMAT, file->path, "the shape in the .npy header asks for 2^63 bytes or more");
    }
    header->elements = empty ? 0 : bytes / size;
    if (header->elements * size > file->size - header->data_begin)
        return ffnio_fail_file(FFN_FORMAT, file->path, "is cut short: its shape asks for %" PRId64 " bytes of data, it has %" PRId64,
                               header->elements * size, file->size - header->data_begin);
    return FFN_OK;
}

ffn_status_t ffnio_npy_header_read(const file_t *file, npy_header_t *header) {
    int64_t begin = 0, length = 0;
    memset(header, 0, sizeof *header);
    ffn_status_t status = read_prefix(file, &begin, &length);
    if (status) return status;
    char *text = malloc((size_t)length + 1);
    if (!text) return ffnio_fail_memory((uint64_t)length + 1, "a .npy header");
    status = ffnio_file_read(file, begin, text, length);
    if (!status) status = ffnio_npy_header_parse(file->path, text, length, header);
    header->data_begin = begin + length;
    free(text);
    return status ? status : check_size(file, header);
}
