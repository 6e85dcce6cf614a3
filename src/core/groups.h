/* SPDX-License-Identifier: MIT
 * Spreading groups of panels over threads. */
#ifndef FFNI_GROUPS_H
#define FFNI_GROUPS_H

#include "core/context.h"

#include <stdatomic.h>

/* Work that a slot hands out: a cache line of its own. */
typedef struct counter {
    atomic_int_fast64_t next;
    char rest[64 - sizeof(atomic_int_fast64_t)];
} counter_t;

/* Group `index`. `sums` is the thread's. */
typedef void group_fn(const void *data, int64_t index, float *sums);

/* Groups of panels, a range of neighbours for each slot: what follows a group, and is fetched into the cache meanwhile, is the same slot's. A slot
 * that has done its own takes from the others'. */
typedef struct groups {
    const void *data;
    group_fn *work;
    int64_t count, slots;
    counter_t *counters; /* per slot */
    float *sums;         /* per slot, sums_step elements apart */
    int64_t sums_step;
} groups_t;

/* Does the work of all groups, and returns behind the last. */
void ffni_each_group(ffn_context_t *context, groups_t *groups);

/* Panels of a group, when the threads share `panels` of them: several groups each, so that one that comes late or is held up does not hold up the others. */
int64_t ffni_group_panels(int64_t slots, int64_t panels, int64_t group, int64_t least);

static inline int64_t groups_of(int64_t panels, int64_t group) {
    return (panels - 1) / group + 1;
}

#endif
