/* SPDX-License-Identifier: MIT
 *
 * What stats must hold, counted in float64 from the header's words, and the check that they do, number by number.
 */
#ifndef FFN_TEST_STATS_CHECK_H
#define FFN_TEST_STATS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "ffn/ffn.h"
#include "support/oracle.h"

/* A way to run a layer. */
typedef struct stats_way {
    const char *name;
    uint32_t engine, threads;
    bool taped;
    float p[3]; /* dropout at the first three sites; any: trainable */
} stats_way_t;

typedef struct expected_stats {
    int64_t experts, d_ff, d_shared; /* experts 0: a layer */
    int64_t *positions, *positive;   /* by network; by unit */
    double sum, largest;             /* of |activation| */
} expected_stats_t;

expected_stats_t expected_stats_make(int64_t experts, int64_t d_ff, int64_t d_shared);
void expected_stats_free(expected_stats_t *expected);

/* A unit's activation of the pre-activation z; the network's position is counted by the caller. */
void expected_stats_add(expected_stats_t *expected, int64_t network, int64_t unit, const oracle_activation_t *activation, double z);

ffn_stats_t *stats_for(const expected_stats_t *expected);

/* Fails the test unless all that is read is as expected: counts and positions exactly. */
void assert_stats(const ffn_stats_t *stats, const expected_stats_t *expected, const char *what);

/* Fails the test unless all that can be read of two handles is the same, bit by bit. */
void assert_same_stats(const ffn_stats_t *a, const ffn_stats_t *b);

/* Small multiples of 1/4, of which sums of products are exact in float32 in any order. The caller frees them. */
float *quarters(int64_t n, uint64_t seed);

#endif
