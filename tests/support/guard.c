/* SPDX-License-Identifier: MIT */
#include "support/guard.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/test.h"

guard_buffer_t guard_alloc(size_t size, guard_side_t side)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (size + page - 1) / page * page;
    guard_buffer_t buffer = {.map_size = inside + 2 * page};
    buffer.map = mmap(NULL, buffer.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer.map == MAP_FAILED) fail_msg("mmap of %zu bytes failed", buffer.map_size);
    unsigned char *first = (unsigned char *)buffer.map + page;
    if (inside && mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) fail_msg("mprotect of %zu bytes failed", inside);
    buffer.data = side == GUARD_AFTER ? first + inside - size : first;
    if (size) memset(buffer.data, 0xff, size);
    return buffer;
}

void guard_free(guard_buffer_t *buffer)
{
    if (buffer->map) munmap(buffer->map, buffer->map_size);
    memset(buffer, 0, sizeof *buffer);
}
