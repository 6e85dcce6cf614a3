/* SPDX-License-Identifier: MIT
 * A small thread pool: one job at a time, its tasks taken in any order by whoever is free, the caller included. Workers sleep between jobs. */
#ifndef FFNI_POOL_H
#define FFNI_POOL_H

#include <ffn/ffn.h>

typedef struct pool pool_t;

/* A pool in which jobs run on up to `threads` threads, the caller's included: threads - 1 workers are started, or as many as the system
 * allows. NULL when memory is short (the sentence is set). */
pool_t *ffni_pool_create(const ffn_allocator_t *allocator, uint32_t threads);
void ffni_pool_free(const ffn_allocator_t *allocator, pool_t *pool);

/* Threads that a job has, the caller's included. */
uint32_t ffni_pool_threads(pool_t *pool);

/* Runs task(data, 0 .. count-1) and returns when all have ended. One caller at a time. */
void ffni_pool_run(pool_t *pool, int64_t count, ffn_task_fn task, void *data);

#endif
