/* SPDX-License-Identifier: MIT
 *
 * Random numbers that are the same on every machine: a 32-bit PCG (O'Neill 2014, XSH-RR).
 */
#ifndef FFN_TEST_RANDOM_H
#define FFN_TEST_RANDOM_H

#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng_t;

/* Different seeds give unrelated sequences, also 1, 2, 3, ... */
rng_t rng_make(uint64_t seed);
uint32_t rng_u32(rng_t *rng);
int64_t rng_below(rng_t *rng, int64_t n);             /* 0 .. n-1, 1 <= n <= 2^32 */
float rng_uniform(rng_t *rng, float low, float high); /* low <= number <= high */
float rng_normal(rng_t *rng);                         /* mean 0, variance 1, |number| <= 6 (a sum of twelve) */
float rng_any_bits(rng_t *rng);                       /* any of the 2^32 floats, NaN and denormals among them */

void rng_fill_uniform(rng_t *rng, float *out, int64_t n, float low, float high);
void rng_fill_normal(rng_t *rng, float *out, int64_t n);

#endif
