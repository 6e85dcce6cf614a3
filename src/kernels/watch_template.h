/* SPDX-License-Identifier: MIT
 *
 * Counting the activations of a tile, per column those above 0, and the sum and the largest of the magnitudes, in a pass of its own over the first-level
 * cache: in the pass of the activation itself, whose constants fill the registers, it takes longer.
 */
#ifndef FFNI_WATCH_TEMPLATE_H
#define FFNI_WATCH_TEMPLATE_H

/* A magnitude below 2^13 is cut in two at 2^-9, each part an integer in the low bits of a float: x + COARSE has x rounded to a multiple of 2^-9 there,
 * and of the rest, at most 2^-10 on either side, rest * 2^32 + FINE has the units. Both are even, so that halves go to even as activity.h has it. */
#define COARSE 24576.0f /* 1.5 * 2^14 */
#define FINE 12582912.0f /* 1.5 * 2^23 */
enum { COARSE_BITS = 0x46c00000, FINE_BITS = 0x4b400000, COARSE_SHIFT = 23 };

typedef struct watch {
    vu positive;     /* of the columns at hand */
    vu coarse, fine; /* sums of such floats' bits, modulo 2^32 */
    vf largest;
    int64_t vectors; /* in coarse and fine: 511 parts of 22 bits fit 31 */
} watch_t;

enum { WATCHED_MOST = 511 };

INLINE watch_t watch_begin(void)
{
    return (watch_t){.coarse = vu_zero(), .fine = vu_zero(), .largest = vf_set1(0.0f)};
}

/* Rare, and not inlined: by value, so that what is counted stays in registers. */
#define RARE static __attribute__((noinline, cold))

RARE void add_sums(activity_t *activity, vu coarse, vu fine, int64_t vectors)
{
    uint32_t high[VF_LANES], low[VF_LANES];
    int64_t units = 0;
    vu_store(high, coarse);
    vu_store(low, fine);
    for (int i = 0; i < VF_LANES; i++) {
        const uint32_t of_coarse = high[i] - (uint32_t)vectors * COARSE_BITS, of_fine = low[i] - (uint32_t)vectors * FINE_BITS;
        units += ((int64_t)of_coarse << COARSE_SHIFT) + (int32_t)of_fine;
    }
    activity_add_units(activity, (uint64_t)units, 0);
}

INLINE void watch_flush(watch_t *watch, activity_t *activity)
{
    add_sums(activity, watch->coarse, watch->fine, watch->vectors);
    watch->coarse = watch->fine = vu_zero();
    watch->vectors = 0;
}

RARE void add_far_vector(activity_t *activity, vf a)
{
    float number[VF_LANES];
    vf_store(number, a);
    for (int i = 0; i < VF_LANES; i++) activity_add(activity, number[i]);
}

/* Lanes past the last column are 0, and change nothing. */
INLINE void watch_vector(watch_t *watch, vf a, activity_t *activity)
{
    const vf magnitude = vf_abs(a);
    watch->positive = vu_count(watch->positive, vf_less(vf_set1(0.0f), a));
    if (RARELY(!vm_all(vf_less(magnitude, vf_set1(ACTIVITY_RANGE))))) {
        add_far_vector(activity, a);
        return;
    }
    const vf coarse = vf_add(magnitude, vf_set1(COARSE)), rest = vf_sub(magnitude, vf_sub(coarse, vf_set1(COARSE)));
    watch->largest = vf_at_least(magnitude, watch->largest);
    watch->coarse = vu_add_bits(watch->coarse, coarse);
    watch->fine = vu_add_bits(watch->fine, vf_fma(rest, vf_set1((float)ACTIVITY_UNITS), vf_set1(FINE)));
    watch->vectors++;
}

static void watch(const activation_tile_t *tile)
{
    watch_t watch = watch_begin();
    for (int64_t column = 0; column < tile->columns; column += VF_LANES) {
        const int64_t count = lanes_left(tile->columns - column);
        watch.positive = vu_load(tile->positive + column);
        for (int64_t row = 0; row < tile->rows; row++) watch_vector(&watch, load_count(tile_place(tile, row, column), 0, count), tile->activity);
        vu_store(tile->positive + column, watch.positive);
        if (watch.vectors > WATCHED_MOST - TILE_ROWS_MOST) watch_flush(&watch, tile->activity);
    }
    float largest[VF_LANES];
    watch_flush(&watch, tile->activity);
    vf_store(largest, watch.largest);
    for (int i = 0; i < VF_LANES; i++)
        if (largest[i] > tile->activity->largest) tile->activity->largest = largest[i];
}

static void watch_tile(const activation_t *activation, const activation_tile_t *tile)
{
    activate_tile(activation, tile);
    watch(tile);
}

static void watch_gated_tile(const activation_t *activation, const activation_tile_t *tile)
{
    activate_gate_of_tile(activation, tile);
    watch(tile);
    multiply_tile_by_up(activation, tile);
}

#endif
