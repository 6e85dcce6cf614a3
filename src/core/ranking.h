/* SPDX-License-Identifier: MIT
 * Sorting by descending keys. */
#ifndef FFNI_RANKING_H
#define FFNI_RANKING_H

#include <stdint.h>

typedef struct ranked {
    int64_t index;
    int32_t key; /* choice_key */
} ranked_t;

/* Sorts by descending key; equal ones keep their order. `other` has room for as many, and either array may hold the result, which is returned. */
ranked_t *ffni_rank(int64_t n, ranked_t *items, ranked_t *other);

#endif
