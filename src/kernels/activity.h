/* SPDX-License-Identifier: MIT
 *
 * What is counted of activations beside the counts per unit: the sum and the largest of their magnitudes, and those that are no numbers. All levels
 * take a number that is outside the vectors' range, and the scalar level every number, through the functions here.
 *
 * The sum is an integer of 256 bits, in units of 2^-32: it has room for 2^95 of the largest floats, and does not depend on the order.
 */
#ifndef FFNI_ACTIVITY_H
#define FFNI_ACTIVITY_H

#include <float.h>
#include <math.h>
#include <stdint.h>

/* A cache line: threads have neighbouring ones. */
typedef struct activity {
    uint64_t sum[4]; /* of the finite |a|, the lowest word first */
    int64_t non_finite;
    float largest;   /* |a|, of the finite ones */
    char rest[20];
} activity_t;

/* |a| below this becomes a multiple of the unit, halves to even; above, it is one. */
#define ACTIVITY_RANGE 0x1p13f
#define ACTIVITY_UNITS 0x1p32

/* sum += value * 2^shift, 0 <= shift < 192. */
static inline void activity_add_units(activity_t *activity, uint64_t value, int shift)
{
    uint64_t low = value << shift % 64, high = shift % 64 ? value >> (64 - shift % 64) : 0;
    int word = shift / 64;
    activity->sum[word] += low;
    high += activity->sum[word] < low; /* no overflow: high is below 2^63 */
    for (word++; high && word < 4; word++) {
        activity->sum[word] += high;
        high = activity->sum[word] < high;
    }
}

static inline void activity_add(activity_t *activity, float a)
{
    const float magnitude = fabsf(a);
    int exponent;
    if (!(magnitude <= FLT_MAX)) {
        activity->non_finite++;
        return;
    }
    if (magnitude > activity->largest) activity->largest = magnitude;
    if (magnitude < ACTIVITY_RANGE) {
        const double rounded = (double)magnitude * ACTIVITY_UNITS + 0x1p52; /* to an integer */
        activity_add_units(activity, (uint64_t)(rounded - 0x1p52), 0);
        return;
    }
    const float fraction = frexpf(magnitude, &exponent); /* 24 bits behind the point */
    activity_add_units(activity, (uint64_t)(fraction * 0x1p24f), exponent - 24 + 32);
}

/* a += b */
static inline void activity_merge(activity_t *a, const activity_t *b)
{
    for (int word = 0; word < 4; word++) activity_add_units(a, b->sum[word], 64 * word);
    a->non_finite += b->non_finite;
    if (b->largest > a->largest) a->largest = b->largest;
}

#endif
