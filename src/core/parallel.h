/* SPDX-License-Identifier: MIT
 * Spreading rows over a context's threads. */
#ifndef FFNI_PARALLEL_H
#define FFNI_PARALLEL_H

#include "core/context.h"

typedef void rows_fn(void *data, int64_t begin, int64_t end);

/* Calls rows(data, begin, end) for disjoint ranges that together are 0 .. count-1, and returns when all have ended. `row_work` is the size of a
 * row in elements: work that is not worth waking a thread for stays on the calling one. context NULL: all of it does. */
void ffni_parallel_rows(ffn_context_t *context, int64_t count, int64_t row_work, rows_fn *rows, void *data);

typedef void slot_fn(void *data, int64_t slot);

/* Calls work(data, slot) for slot = 0 .. slots-1, on as many threads as come to do it: a slot is a thread's own place. The slot that starts first may
 * do the work of all; none waits for another. With one slot that is the calling thread. */
void ffni_parallel_slots(ffn_context_t *context, int64_t slots, slot_fn *work, void *data);

#endif
