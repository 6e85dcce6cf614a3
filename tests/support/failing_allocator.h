/* SPDX-License-Identifier: MIT
 *
 * An allocator that fails when told to, and that knows what it has given away. Memory comes filled with garbage. For one thread at a time.
 */
#ifndef FFN_TEST_FAILING_ALLOCATOR_H
#define FFN_TEST_FAILING_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "ffn/ffn.h"

enum { FAILING_BLOCKS = 64 };

typedef struct failing_allocator {
    ffn_allocator_t hook;  /* what the library is given */
    int64_t fail_at;       /* the allocation that fails, counted from 1; 0: none does */
    bool fail_after;       /* and all that follow */
    int64_t asked, failed; /* allocations asked for, and refused */
    int64_t held;          /* blocks given and not yet released */
    struct {
        void *memory;
        uint64_t size;
    } block[FAILING_BLOCKS];
} failing_allocator_t;

void failing_allocator_init(failing_allocator_t *allocator);

/* Starts counting anew. */
void failing_allocator_arm(failing_allocator_t *allocator, int64_t fail_at, bool fail_after);
void failing_allocator_disarm(failing_allocator_t *allocator);

#endif
