/* SPDX-License-Identifier: MIT
 *
 * Running a function with little stack: on a thread, or on a stack of its own as coroutines have it. An inaccessible page ends each.
 */
#ifndef FFN_TEST_SMALL_STACK_H
#define FFN_TEST_SMALL_STACK_H

#include <stddef.h>

/* 64 kB is what many hosts give their threads. An instrumented library needs more for the same code. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SMALL_STACK = 256 * 1024 };
#else
enum { SMALL_STACK = 64 * 1024 };
#endif

typedef void small_stack_fn(void *argument);

/* On a new thread that has SMALL_STACK bytes left when the function begins. Thread-local storage is on a thread's stack too, and OpenBLAS may have
 * 60 kB of it, so the thread's stack is larger. */
void on_small_thread(small_stack_fn *function, void *argument);

/* On the calling thread, but on a stack made with makecontext. */
void on_coroutine(small_stack_fn *function, void *argument);

#endif
