/* SPDX-License-Identifier: MIT
 * Allocation through the caller's hook or the C library. */
#if defined(__linux__)
#define _DEFAULT_SOURCE /* madvise */
#endif
#include "base/alloc.h"

#include "base/error.h"
#include "base/structs.h"

#include <inttypes.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* Weights are read from start to end at every call: with pages of 4 kB a processor spends a tenth of that time and more on finding them. */
enum { HUGE_PAGE = 2 << 20, HUGE_PAGES_FROM = 2 * HUGE_PAGE };

/* Asks for huge pages, where the system lets programs ask. The last, partial one stays small: nothing is held that was not asked for. */
static void advise_huge_pages(void *memory, size_t size) {
#if defined(MADV_HUGEPAGE)
    madvise(memory, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#else
    (void)memory, (void)size;
#endif
}

static void *default_allocate(void *user, uint64_t size, uint64_t alignment) {
    (void)user;
    if (size > SIZE_MAX - alignment) return NULL;
    /* C11 wants a size that is a multiple of the alignment. */
    if (size < HUGE_PAGES_FROM) return aligned_alloc((size_t)alignment, (size_t)((size + alignment - 1) / alignment * alignment));
    void *memory;
    if (posix_memalign(&memory, HUGE_PAGE, (size_t)size)) return NULL;
    advise_huge_pages(memory, (size_t)size);
    return memory;
}

static void default_release(void *user, void *memory, uint64_t size) {
    (void)user;
    (void)size;
    free(memory);
}

const ffn_allocator_t ffni_default_allocator = {
    .struct_size = sizeof(ffn_allocator_t),
    .allocate = default_allocate,
    .release = default_release,
};

ffn_status_t ffni_allocator_read(const ffn_allocator_t *given, ffn_allocator_t *allocator) {
    if (!given) {
        *allocator = ffni_default_allocator;
        return FFN_OK;
    }
    ffn_status_t status = ffni_struct_read(allocator, sizeof *allocator, given, "ffn_allocator_t");
    if (status) return status;
    if (allocator->reserved) return ffni_fail(FFN_INVALID, "allocator.reserved is %" PRIu32 ", must be 0", allocator->reserved);
    if (!allocator->allocate) return ffni_fail(FFN_INVALID, "allocator.allocate is NULL");
    if (!allocator->release) return ffni_fail(FFN_INVALID, "allocator.release is NULL");
    return FFN_OK;
}

void *ffni_allocate(const ffn_allocator_t *allocator, uint64_t size, const char *what) {
    void *memory = allocator->allocate(allocator->user, size, MEMORY_ALIGNMENT);
    if (!memory) ffni_fail(FFN_NO_MEMORY, "cannot allocate %" PRIu64 " bytes for %s", size, what);
    return memory;
}

void ffni_release(const ffn_allocator_t *allocator, void *memory, uint64_t size) {
    if (memory) allocator->release(allocator->user, memory, size);
}
