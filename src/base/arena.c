/* SPDX-License-Identifier: MIT
 * Carving arrays from one block. */
#include "base/arena.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <stddef.h>

void *ffni_arena_take(arena_t *arena, int64_t count, int64_t size) {
    int64_t bytes, padded, end;
    if (count <= 0) return NULL;
    if (!checked_multiply(count, size, &bytes) || !checked_add(bytes, MEMORY_ALIGNMENT - 1, &padded) ||
        !checked_add((int64_t)arena->used, padded / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT, &end)) {
        arena->overflowed = 1;
        return NULL;
    }
    char *memory = arena->base && !arena->overflowed ? arena->base + arena->used : NULL;
    arena->used = (uint64_t)end;
    return memory;
}
