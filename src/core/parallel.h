/* SPDX-License-Identifier: MIT
 * Spreading rows over a context's threads. */
#ifndef FFNI_PARALLEL_H
#define FFNI_PARALLEL_H

#include "core/context.h"

typedef void rows_fn(void *data, int64_t begin, int64_t end);

/* Calls rows(data, begin, end) for disjoint ranges that together are 0 .. count-1, and returns when all have ended. `row_work` is the size of a
 * row in elements: work that is not worth waking a thread for stays on the calling one. context NULL: all of it does. */
void ffni_parallel_rows(ffn_context_t *context, int64_t count, int64_t row_work, rows_fn *rows, void *data);

#endif
