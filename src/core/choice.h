/* SPDX-License-Identifier: MIT
 * Choosing the largest of some numbers: of equal ones the first, NaN last, so that there is a choice whatever the numbers are. */
#ifndef FFNI_CHOICE_H
#define FFNI_CHOICE_H

#include <stdint.h>
#include <string.h>

/* Whole numbers in the order of floats: NaN is the smallest, -0 and +0 are equal. */
static inline int32_t choice_key(float value) {
    int32_t bits;
    float positive_zero = value + 0.0f;
    if (value != value) return INT32_MIN;
    memcpy(&bits, &positive_zero, sizeof bits);
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

/* The best of those that were offered, at most `most` of them, in descending order. Arrays of `most` elements are the caller's. */
typedef struct choice {
    int32_t *ids, *keys;
    int64_t count, most;
} choice_t;

/* Offers are made in ascending order of ids: an equal one comes after those that are there. */
static inline void choice_offer(choice_t *choice, int32_t id, int32_t key) {
    int64_t place = choice->count;
    if (place == choice->most) {
        if (place == 0 || key <= choice->keys[place - 1]) return;
        place--;
    } else {
        choice->count++;
    }
    for (; place > 0 && choice->keys[place - 1] < key; place--) {
        choice->keys[place] = choice->keys[place - 1];
        choice->ids[place] = choice->ids[place - 1];
    }
    choice->keys[place] = key;
    choice->ids[place] = id;
}

#endif
