/* SPDX-License-Identifier: MIT
 * Waking threads on another processor than the caller's. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getcpu, pthread_getaffinity_np */
#endif
#include "base/placement.h"

#if defined(__linux__)

#include <sched.h>

/* Takes the processor out of the thread's affinity; 0 if it must stay as it is. */
static int exclude(pthread_t thread, int processor, cpu_set_t *before) {
    if (pthread_getaffinity_np(thread, sizeof *before, before)) return 0;
    cpu_set_t others = *before;
    CPU_CLR((unsigned)processor, &others);
    return CPU_COUNT(&others) > 0 && !pthread_setaffinity_np(thread, sizeof others, &others);
}

void ffni_wake_elsewhere(const pthread_t *threads, uint32_t count, void (*wake)(void *data), void *data) {
    cpu_set_t before[PLACEMENT_MOST];
    int excluded[PLACEMENT_MOST], processor = sched_getcpu();
    if (count > PLACEMENT_MOST) count = PLACEMENT_MOST;
    for (uint32_t i = 0; i < count; i++) excluded[i] = processor >= 0 && processor < CPU_SETSIZE && exclude(threads[i], processor, &before[i]);
    wake(data);
    for (uint32_t i = 0; i < count; i++)
        if (excluded[i]) pthread_setaffinity_np(threads[i], sizeof before[i], &before[i]);
}

#else

void ffni_wake_elsewhere(const pthread_t *threads, uint32_t count, void (*wake)(void *data), void *data) {
    (void)threads, (void)count;
    wake(data);
}

#endif
