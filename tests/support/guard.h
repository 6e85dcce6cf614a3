/* SPDX-License-Identifier: MIT
 *
 * Buffers between inaccessible pages: a read or write past the side that touches a page ends the test with SIGSEGV at the culprit.
 */
#ifndef FFN_TEST_GUARD_H
#define FFN_TEST_GUARD_H

#include <stddef.h>

typedef enum guard_side {
    GUARD_AFTER, /* the buffer's last byte is the last byte before an inaccessible page */
    GUARD_BEFORE /* the buffer's first byte is the first byte after one */
} guard_side_t;

typedef struct guard_buffer {
    void *data;
    void *map;
    size_t map_size;
} guard_buffer_t;

/* A buffer of size bytes, filled with quiet NaNs (bytes 0xff). Fails the test if there is no memory. */
guard_buffer_t guard_alloc(size_t size, guard_side_t side);
void guard_free(guard_buffer_t *buffer);

#endif
