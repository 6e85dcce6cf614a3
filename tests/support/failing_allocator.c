/* SPDX-License-Identifier: MIT */
#include "support/failing_allocator.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static void *allocate(void *user, uint64_t size, uint64_t alignment)
{
    failing_allocator_t *allocator = user;
    allocator->asked++;
    if (size == 0 || alignment < 64 || (alignment & (alignment - 1)))
        fail_msg("asked for %llu bytes at a multiple of %llu", (unsigned long long)size, (unsigned long long)alignment);
    if (allocator->fail_at && (allocator->asked == allocator->fail_at || (allocator->fail_after && allocator->asked > allocator->fail_at))) {
        allocator->failed++;
        return NULL;
    }
    for (int i = 0; i < FAILING_BLOCKS; i++) {
        if (allocator->block[i].memory) continue;
        void *memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        if (!memory) fail_msg("the test itself is out of memory");
        memset(memory, 0xa5, size);
        allocator->block[i].memory = memory;
        allocator->block[i].size = size;
        allocator->held++;
        return memory;
    }
    fail_msg("more than %d blocks at once", FAILING_BLOCKS);
    return NULL;
}

static void release(void *user, void *memory, uint64_t size)
{
    failing_allocator_t *allocator = user;
    for (int i = 0; i < FAILING_BLOCKS; i++) {
        if (!memory || allocator->block[i].memory != memory) continue;
        if (allocator->block[i].size != size)
            fail_msg("%llu bytes were given, %llu are released", (unsigned long long)allocator->block[i].size, (unsigned long long)size);
        memset(memory, 0x5a, size);
        free(memory);
        allocator->block[i].memory = NULL;
        allocator->held--;
        return;
    }
    fail_msg("%p is released, but is not held", memory);
}

void failing_allocator_init(failing_allocator_t *allocator)
{
    memset(allocator, 0, sizeof *allocator);
    allocator->hook = (ffn_allocator_t){.struct_size = sizeof allocator->hook, .user = allocator, .allocate = allocate, .release = release};
}

void failing_allocator_arm(failing_allocator_t *allocator, int64_t fail_at, bool fail_after)
{
    allocator->fail_at = fail_at;
    allocator->fail_after = fail_after;
    allocator->asked = allocator->failed = 0;
}

void failing_allocator_disarm(failing_allocator_t *allocator)
{
    failing_allocator_arm(allocator, 0, false);
}
