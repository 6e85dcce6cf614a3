/* SPDX-License-Identifier: MIT
 * How much stack a thread has left, and running a function on a thread that has enough. */
#ifndef FFNI_STACK_H
#define FFNI_STACK_H

#include <ffn/ffn.h>

/* Bytes left below this function's frame; 0 on a stack that is not the thread's own (a coroutine's); UINT64_MAX where it cannot be told. */
uint64_t ffni_stack_left(void);

typedef ffn_status_t stack_fn(void *argument);

/* Runs function(argument) on a thread of its own with that much stack left for it, and waits. Its status and error sentence become the caller's.
 * FFN_NO_MEMORY when the thread cannot be started. */
ffn_status_t ffni_run_with_stack(uint64_t size, stack_fn *function, void *argument);

#endif
