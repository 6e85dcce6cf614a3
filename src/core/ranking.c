/* SPDX-License-Identifier: MIT
 * A merge sort from runs of one on: stable, n log n for any input, and without memory of its own. */
#include "core/ranking.h"

#include "base/checked.h"

static void merge(const ranked_t *from, int64_t begin, int64_t middle, int64_t end, ranked_t *to) {
    int64_t left = begin, right = middle;
    for (int64_t i = begin; i < end; i++) {
        int take_left = left < middle && (right >= end || from[left].key >= from[right].key);
        to[i] = from[take_left ? left++ : right++];
    }
}

ranked_t *ffni_rank(int64_t n, ranked_t *items, ranked_t *other) {
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * run) merge(items, begin, minimum(begin + run, n), minimum(begin + 2 * run, n), other);
        ranked_t *sorted = other;
        other = items;
        items = sorted;
    }
    return items;
}
