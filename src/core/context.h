/* SPDX-License-Identifier: MIT
 * The context: threads, scratch memory, and the gate that lets one call in at a time. */
#ifndef FFNI_CONTEXT_H
#define FFNI_CONTEXT_H

#include <ffn/ffn.h>

#include "base/pool.h"

#include <stdatomic.h>

struct ffn_context {
    ffn_allocator_t allocator;
    pool_t *pool; /* NULL with one thread or a caller's parallel_for */
    ffn_parallel_for_fn parallel_for;
    void *parallel_user;
    uint32_t threads_requested;
    char *scratch;
    uint64_t scratch_bytes;
    uint64_t scratch_limit; /* 0: none */
    /* Twice the fork generation, plus 1 while a call is inside: a call that a fork cut off does not count in the child. */
    atomic_uint gate;
};

ffn_status_t ffni_context_new(const ffn_context_options_t *options, ffn_context_t **context);
void ffni_context_delete(ffn_context_t *context);

/* Lets a call in: *context is `given`, or for NULL this thread's own context, made at first use. FFN_BUSY, FFN_NO_MEMORY. Every success is
 * followed by a leave. */
ffn_status_t ffni_context_enter(ffn_context_t *given, ffn_context_t **context);
void ffni_context_leave(ffn_context_t *context);

/* Makes the scratch memory at least that large; what was in it is lost. On failure it is as before. */
ffn_status_t ffni_context_scratch(ffn_context_t *context, uint64_t bytes);

/* FFN_NO_MEMORY, with a sentence: the limit is below `least`, what the layer needs for one token. */
ffn_status_t ffni_context_limit_error(const ffn_context_t *context, uint64_t least);

/* Threads that a call has. */
uint32_t ffni_context_threads(ffn_context_t *context);

#endif
