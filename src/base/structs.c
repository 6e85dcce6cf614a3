/* SPDX-License-Identifier: MIT
 * Copying size-versioned structs in and out. */
#include "base/structs.h"

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

/* Both below and above any struct of this interface: outside, the size is garbage and what follows it must not be read. So is one that is no
 * multiple of a pointer's, and might cut a pointer in two. */
enum { SMALLEST_STRUCT = 8, LARGEST_STRUCT = 4096 };

static ffn_status_t read_size(const void *given, uint32_t known_size, const char *name, uint32_t *size) {
    *size = 0;
    if (!given) return ffni_fail(FFN_INVALID, "the %s is NULL", name);
    memcpy(size, given, sizeof *size);
    if (*size < SMALLEST_STRUCT || *size > LARGEST_STRUCT || *size % sizeof(void *))
        return ffni_fail(FFN_INVALID, "struct_size of the %s is %" PRIu32 ", must be its sizeof (%" PRIu32 " in this version)", name, *size,
                         known_size);
    return FFN_OK;
}

ffn_status_t ffni_struct_read(void *known, uint32_t known_size, const void *given, const char *name) {
    uint32_t size;
    ffn_status_t status = read_size(given, known_size, name, &size);
    if (status) return status;
    for (uint32_t i = known_size; i < size; i++) {
        if (((const unsigned char *)given)[i])
            return ffni_fail(FFN_UNSUPPORTED, "the %s has %" PRIu32 " bytes, of which this version knows %" PRIu32 ", and byte %" PRIu32
                             " beyond them is not 0", name, size, known_size, i);
    }
    memset(known, 0, known_size);
    memcpy(known, given, size < known_size ? size : known_size);
    return FFN_OK;
}

ffn_status_t ffni_struct_write(void *given, const void *known, uint32_t known_size, const char *name) {
    uint32_t size;
    ffn_status_t status = read_size(given, known_size, name, &size);
    if (status) return status;
    memset(given, 0, size);
    memcpy(given, known, size < known_size ? size : known_size);
    memcpy(given, &size, sizeof size);
    return FFN_OK;
}

ffn_status_t ffni_struct_check(const void *given, uint32_t known_size, const char *name) {
    uint32_t size;
    return read_size(given, known_size, name, &size);
}
