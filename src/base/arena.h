/* SPDX-License-Identifier: MIT
 * The arena: one block of memory carved into aligned arrays by a layout function that runs twice, first to measure (base NULL), then to
 * carve, so that the size and the use cannot disagree. */
#ifndef FFNI_ARENA_H
#define FFNI_ARENA_H

#include <stdint.h>

typedef struct arena {
    char *base;       /* NULL: measuring */
    uint64_t used;    /* bytes taken so far */
    int overflowed;   /* a size did not fit 63 bits: nothing may be carved */
} arena_t;

/* The next `count` elements of `size` bytes, at a multiple of MEMORY_ALIGNMENT. NULL while measuring, after an overflow, and for no elements. */
void *ffni_arena_take(arena_t *arena, int64_t count, int64_t size);

#endif
