/* SPDX-License-Identifier: MIT
 * Stacks that are too small for a callee that the library does not control. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "base/stack.h"

#include "base/error.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>

#if defined(__linux__)

typedef struct stack_bounds {
    uintptr_t low, high; /* high 0: not asked yet; high 1: cannot be told */
} stack_bounds_t;

/* Asked once per thread: for a main thread the answer comes from /proc. */
static _Thread_local stack_bounds_t bounds;

static void find_bounds(void) {
    pthread_attr_t attributes;
    void *low;
    size_t size;
    bounds.high = 1;
    if (pthread_getattr_np(pthread_self(), &attributes)) return;
    if (!pthread_attr_getstack(&attributes, &low, &size)) {
        bounds.low = (uintptr_t)low;
        bounds.high = (uintptr_t)low + size;
    }
    pthread_attr_destroy(&attributes);
}

uint64_t ffni_stack_left(void) {
    uintptr_t address = (uintptr_t)__builtin_frame_address(0);
    if (!bounds.high) find_bounds();
    if (bounds.high == 1) return UINT64_MAX;
    return address > bounds.low && address < bounds.high ? address - bounds.low : 0;
}

#else

uint64_t ffni_stack_left(void) {
    return UINT64_MAX;
}

#endif

typedef struct call {
    stack_fn *function;
    void *argument;
    ffn_status_t status;
    char text[ERROR_TEXT_SIZE];
} call_t;

static void *run_call(void *argument) {
    call_t *call = argument;
    call->status = call->function(call->argument);
    for (int i = 0; i < ERROR_TEXT_SIZE; i++) call->text[i] = ffni_error_text()[i];
    return NULL;
}

/* A thread's stack also holds the thread-local storage of every library: OpenBLAS alone may have 60 kB. Pages that are not touched cost nothing. */
enum { THREAD_OWN = 256 * 1024 };

ffn_status_t ffni_run_with_stack(uint64_t size, stack_fn *function, void *argument) {
    call_t call = {.function = function, .argument = argument};
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int failed = pthread_attr_init(&attributes);
    if (!failed) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failed = pthread_attr_setstacksize(&attributes, (size_t)size + THREAD_OWN) || pthread_create(&thread, &attributes, run_call, &call);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (failed)
        return ffni_fail(FFN_NO_MEMORY, "OpenBLAS needs another thread here, and one with %" PRIu64 " bytes of stack cannot be started",
                         size + THREAD_OWN);
    pthread_join(thread, NULL);
    if (call.status) ffni_error_set(call.text);
    return call.status;
}
