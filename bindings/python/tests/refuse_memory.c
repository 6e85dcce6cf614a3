/* SPDX-License-Identifier: MIT
 * Loaded before all else (LD_PRELOAD): refuses a chosen allocation of libffn, libffn-io and jansson, whoever they get it from. glibc only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Thread_local long asked, refused = -1;

/* Allocation number `number` of this thread, counted from here, fails; -1: none. */
void refuse_allocation(long number) {
    asked = 0;
    refused = number;
}

/* How many were asked for since. */
long allocations_asked(void) {
    return asked;
}

static int is_refused(const void *caller) {
    Dl_info info;
    if (refused < 0 || !dladdr(caller, &info) || !info.dli_fname) return 0;
    if (!strstr(info.dli_fname, "libffn") && !strstr(info.dli_fname, "libjansson")) return 0;
    if (asked++ != refused) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) {
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}
