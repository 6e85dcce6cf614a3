/* SPDX-License-Identifier: MIT
 * Ranges of groups, and taking from others'. */
#include "core/groups.h"

#include "base/checked.h"
#include "core/parallel.h"

static int64_t range_begin(const groups_t *groups, int64_t slot) {
    return groups->count / groups->slots * slot + minimum(slot, groups->count % groups->slots);
}

static void work_on_groups(void *data, int64_t slot) {
    const groups_t *groups = data;
    for (int64_t i = 0; i < groups->slots; i++) {
        int64_t owner = (slot + i) % groups->slots, end = range_begin(groups, owner + 1), index;
        while ((index = atomic_fetch_add_explicit(&groups->counters[owner].next, 1, memory_order_relaxed)) < end)
            groups->work(groups->data, index, groups->sums + slot * groups->sums_step);
    }
}

void ffni_each_group(ffn_context_t *context, groups_t *groups) {
    groups->slots = minimum(groups->slots, groups->count);
    for (int64_t slot = 0; slot < groups->slots; slot++) atomic_init(&groups->counters[slot].next, range_begin(groups, slot));
    if (groups->count) ffni_parallel_slots(context, groups->slots, work_on_groups, groups);
}

int64_t ffni_group_panels(int64_t slots, int64_t panels, int64_t group, int64_t least) {
    enum { GROUPS_PER_SLOT = 4 };
    while (slots > 1 && group > least && panels < group * slots * GROUPS_PER_SLOT) group = maximum(1, group / 2 / least) * least;
    return group;
}
