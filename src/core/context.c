/* SPDX-License-Identifier: MIT
 * Contexts, and the one that each thread has for calls without one. */
#include "core/context.h"

#include "base/alloc.h"
#include "base/cpu_count.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/structs.h"

#include <inttypes.h>
#include <pthread.h>

enum { THREADS_LIMIT = 1024 };

static ffn_status_t read_options(const ffn_context_options_t *given, ffn_context_options_t *options, ffn_allocator_t *allocator) {
    *options = (ffn_context_options_t){.struct_size = sizeof *options};
    ffn_status_t status = given ? ffni_struct_read(options, sizeof *options, given, "ffn_context_options_t") : FFN_OK;
    if (status) return status;
    if (options->flags) return ffni_fail(FFN_INVALID, "flags of the context is %" PRIu32 ", must be 0", options->flags);
    if (options->reserved) return ffni_fail(FFN_INVALID, "reserved of the context is %" PRIu32 ", must be 0", options->reserved);
    if (options->threads > THREADS_LIMIT)
        return ffni_fail(FFN_INVALID, "threads is %" PRIu32 ", must be at most %d", options->threads, THREADS_LIMIT);
    if (options->parallel_user && !options->parallel_for) return ffni_fail(FFN_INVALID, "parallel_user is given without parallel_for");
    if (!options->threads) options->threads = ffni_cpu_count();
    if (options->threads > THREADS_LIMIT) options->threads = THREADS_LIMIT;
    return ffni_allocator_read(options->allocator, allocator);
}

ffn_status_t ffni_context_new(const ffn_context_options_t *given, ffn_context_t **context) {
    ffn_context_options_t options;
    ffn_allocator_t allocator;
    ffn_status_t status = read_options(given, &options, &allocator);
    if (status) return status;
    ffn_context_t *made = ffni_allocate(&allocator, sizeof *made, "a context");
    if (!made) return FFN_NO_MEMORY;
    *made = (ffn_context_t){.allocator = allocator, .parallel_for = options.parallel_for, .parallel_user = options.parallel_user,
                            .threads_requested = options.threads,
                            .scratch_limit = options.scratch_limit};
    atomic_init(&made->gate, 2 * ffni_fork_generation());
    if (options.threads > 1 && !options.parallel_for) {
        made->pool = ffni_pool_create(&allocator, options.threads);
        if (!made->pool) {
            ffni_context_delete(made);
            return FFN_NO_MEMORY;
        }
    }
    *context = made;
    return FFN_OK;
}

void ffni_context_delete(ffn_context_t *context) {
    if (!context) return;
    ffn_allocator_t allocator = context->allocator;
    ffni_pool_free(&allocator, context->pool);
    ffni_release(&allocator, context->scratch, context->scratch_bytes);
    ffni_release(&allocator, context, sizeof *context);
}

ffn_status_t ffni_context_limit_error(const ffn_context_t *context, uint64_t least) {
    return ffni_fail(FFN_NO_MEMORY, "scratch_limit of the context is %" PRIu64 " bytes, must be at least %" PRIu64 " for this layer",
                     context->scratch_limit, least);
}

uint32_t ffni_context_threads(ffn_context_t *context) {
    return context->pool ? ffni_pool_threads(context->pool) : context->threads_requested;
}

/* ------------------------------------------------------------ The thread's own */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_made;

static void delete_thread_context(void *context) {
    ffni_context_delete(context);
}

static void make_key(void) {
    key_made = !pthread_key_create(&key, delete_thread_context);
}

static ffn_status_t thread_context(ffn_context_t **context) {
    static const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1};
    pthread_once(&key_once, make_key);
    if (!key_made) return ffni_fail(FFN_NO_MEMORY, "no thread-specific key is left in this process: give a context");
    *context = pthread_getspecific(key);
    if (*context) return FFN_OK;
    ffn_status_t status = ffni_context_new(&options, context);
    if (status) return status;
    if (!pthread_setspecific(key, *context)) return FFN_OK;
    ffni_context_delete(*context);
    *context = NULL;
    return ffni_fail(FFN_NO_MEMORY, "cannot keep scratch memory for this thread: give a context");
}

/* -------------------------------------------------------------------- The gate */

ffn_status_t ffni_context_enter(ffn_context_t *given, ffn_context_t **context) {
    if (!given) {
        ffn_status_t status = thread_context(&given);
        if (status) return status;
    }
    unsigned open = 2 * ffni_fork_generation(), inside = open + 1, seen = atomic_load(&given->gate);
    do {
        if (seen == inside) return ffni_fail(FFN_BUSY, "the context is inside another call");
    } while (!atomic_compare_exchange_weak(&given->gate, &seen, inside));
    *context = given;
    return FFN_OK;
}

void ffni_context_leave(ffn_context_t *context) {
    atomic_store(&context->gate, 2 * ffni_fork_generation());
}

ffn_status_t ffni_context_scratch(ffn_context_t *context, uint64_t bytes) {
    if (bytes <= context->scratch_bytes) return FFN_OK;
    char *scratch = ffni_allocate(&context->allocator, bytes, "scratch memory");
    if (!scratch) return FFN_NO_MEMORY;
    /* In this order: another thread may fork at any moment, and the child goes on with what it finds. */
    char *old = context->scratch;
    uint64_t old_bytes = context->scratch_bytes;
    context->scratch = scratch;
    context->scratch_bytes = bytes;
    ffni_release(&context->allocator, old, old_bytes);
    return FFN_OK;
}
