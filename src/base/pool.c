/* SPDX-License-Identifier: MIT
 * The thread pool.
 *
 * A job is opened and closed under the mutex; its tasks are handed out by an atomic counter. The caller works too, closes the job when no task
 * is left to take, and waits only for workers that have entered it: one that wakes late finds the job closed and costs nothing.
 *
 * Both sides spin for a moment before they sleep, on counters outside the mutex: the parts of a call, and calls one after the other, then meet
 * workers that are awake, at the cost of a cache line rather than of a system call.
 *
 * After fork() the child has only the thread that forked: workers are gone, and the mutex is in whatever state it was in. Each pool remembers
 * the fork generation that it was started in; a pool from an older one is set up afresh before its next job. */
#include "base/pool.h"

#include "base/alloc.h"
#include "base/fork.h"
#include "base/fpenv.h"
#include "base/placement.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Passes over rows and the native engine's products need little; OpenBLAS is never called on a worker. */
enum { WORKER_STACK_SIZE = 512 * 1024 };

typedef struct job {
    ffn_task_fn task;
    void *data;
    int64_t count;
    atomic_int_fast64_t next;
} job_t;

struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t opened; /* a job was opened, or the pool ends */
    pthread_cond_t left;   /* the last worker has left the job */
    job_t *job;            /* the open job, or NULL */
    atomic_uint jobs;      /* opened so far: a worker enters each at most once */
    atomic_uint inside;    /* workers inside a job */
    uint32_t asleep;       /* workers that wait for a job in `opened` */
    int caller_asleep;     /* the caller waits in `left` */
    uint32_t wanted;       /* workers that were asked for */
    uint32_t workers;      /* workers that run */
    int ending;
    unsigned fork_generation;
    uint64_t bytes;
    pthread_t threads[];
};

static void pause_briefly(void) {
#if defined(__SSE2__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(job_t *job) {
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (index >= job->count) return;
        job->task(job->data, index);
    }
}

/* Whether the counter stops being `value` within some 50 microseconds. A processor that others wait for is given up soon. */
static int spin_while(const atomic_uint *counter, unsigned value) {
    enum { ROUNDS = 64, PAUSES = 24 };
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(counter, memory_order_acquire) != value) return 1;
            pause_briefly();
        }
    }
    return 0;
}

/* Under the mutex. */
static void wait_for_job(pool_t *pool, unsigned seen) {
    pool->asleep++;
    while (!pool->ending && (!pool->job || atomic_load(&pool->jobs) == seen)) pthread_cond_wait(&pool->opened, &pool->mutex);
    pool->asleep--;
}

static void *worker(void *argument) {
    pool_t *pool = argument;
    unsigned seen = 0;
    fpenv_enter();
    for (;;) {
        spin_while(&pool->jobs, seen);
        pthread_mutex_lock(&pool->mutex);
        if (!pool->job || atomic_load(&pool->jobs) == seen) wait_for_job(pool, seen);
        if (pool->ending) break;
        job_t *job = pool->job;
        seen = atomic_load(&pool->jobs);
        atomic_fetch_add(&pool->inside, 1);
        pthread_mutex_unlock(&pool->mutex);
        work(job);
        pthread_mutex_lock(&pool->mutex);
        if (atomic_fetch_sub(&pool->inside, 1) == 1 && pool->caller_asleep) pthread_cond_signal(&pool->left);
        pthread_mutex_unlock(&pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* Workers block all signals: the host's handlers run on the host's threads. */
static void start_workers(pool_t *pool) {
    pthread_attr_t attributes;
    sigset_t all, before;
    pool->workers = 0;
    if (!pool->wanted || pthread_attr_init(&attributes)) return;
    pthread_attr_setstacksize(&attributes, WORKER_STACK_SIZE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->workers < pool->wanted && !pthread_create(&pool->threads[pool->workers], &attributes, worker, pool)) pool->workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static void start(pool_t *pool) {
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->opened, NULL);
    pthread_cond_init(&pool->left, NULL);
    pool->job = NULL;
    atomic_store(&pool->inside, 0);
    atomic_store(&pool->jobs, 0);
    pool->asleep = 0;
    pool->caller_asleep = 0;
    pool->fork_generation = ffni_fork_generation();
    start_workers(pool);
}

static void start_afresh_after_fork(pool_t *pool) {
    if (pool->fork_generation != ffni_fork_generation()) start(pool);
}

pool_t *ffni_pool_create(const ffn_allocator_t *allocator, uint32_t threads) {
    uint64_t bytes = sizeof(pool_t) + (threads - 1) * sizeof(pthread_t);
    pool_t *pool = ffni_allocate(allocator, bytes, "a thread pool");
    if (!pool) return NULL;
    *pool = (pool_t){.wanted = threads - 1, .bytes = bytes};
    start(pool);
    return pool;
}

void ffni_pool_free(const ffn_allocator_t *allocator, pool_t *pool) {
    if (!pool) return;
    if (pool->fork_generation == ffni_fork_generation()) {
        pthread_mutex_lock(&pool->mutex);
        pool->ending = 1;
        pthread_cond_broadcast(&pool->opened);
        pthread_mutex_unlock(&pool->mutex);
        for (uint32_t i = 0; i < pool->workers; i++) pthread_join(pool->threads[i], NULL);
        pthread_cond_destroy(&pool->left);
        pthread_cond_destroy(&pool->opened);
        pthread_mutex_destroy(&pool->mutex);
    }
    ffni_release(allocator, pool, pool->bytes);
}

/* The job is closed: nobody enters any more. The mutex is taken in any case: what the last worker does under it has then ended. */
static void wait_for_workers(pool_t *pool) {
    for (unsigned inside; (inside = atomic_load_explicit(&pool->inside, memory_order_acquire)) && spin_while(&pool->inside, inside);) {
    }
    pthread_mutex_lock(&pool->mutex);
    pool->caller_asleep = 1;
    while (atomic_load(&pool->inside)) pthread_cond_wait(&pool->left, &pool->mutex);
    pool->caller_asleep = 0;
    pthread_mutex_unlock(&pool->mutex);
}

uint32_t ffni_pool_threads(pool_t *pool) {
    start_afresh_after_fork(pool);
    return pool->workers + 1;
}

static void wake_workers(void *pool) {
    pthread_cond_broadcast(&((pool_t *)pool)->opened);
}

void ffni_pool_run(pool_t *pool, int64_t count, ffn_task_fn task, void *data) {
    job_t job = {.task = task, .data = data, .count = count};
    start_afresh_after_fork(pool);
    pthread_mutex_lock(&pool->mutex);
    pool->job = &job;
    atomic_fetch_add(&pool->jobs, 1);
    if (pool->asleep) ffni_wake_elsewhere(pool->threads, pool->workers, wake_workers, pool);
    pthread_mutex_unlock(&pool->mutex);
    work(&job);
    pthread_mutex_lock(&pool->mutex);
    pool->job = NULL;
    pthread_mutex_unlock(&pool->mutex);
    wait_for_workers(pool);
}
