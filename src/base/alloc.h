/* SPDX-License-Identifier: MIT
 * The one door to memory: every allocation of the library goes through an ffn_allocator_t, the default one included. */
#ifndef FFNI_ALLOC_H
#define FFNI_ALLOC_H

#include <ffn/ffn.h>

/* A cache line, and the widest vector. */
enum { MEMORY_ALIGNMENT = 64 };

extern const ffn_allocator_t ffni_default_allocator;

/* Checks a caller's allocator and copies it; given NULL, copies the default one. */
ffn_status_t ffni_allocator_read(const ffn_allocator_t *given, ffn_allocator_t *allocator);

/* NULL on failure. size > 0. `what` goes into the error sentence: "cannot allocate 123 bytes for <what>". */
void *ffni_allocate(const ffn_allocator_t *allocator, uint64_t size, const char *what);
void ffni_release(const ffn_allocator_t *allocator, void *memory, uint64_t size);

#endif
