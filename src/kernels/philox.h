/* SPDX-License-Identifier: MIT
 *
 * Philox 4x32-10, the counter-based generator of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3", SC11): four random words as a
 * pure function of a counter of four words and a key of two. Integers alone, so that one text serves every ISA level.
 */
#ifndef FFNI_PHILOX_H
#define FFNI_PHILOX_H

#include <stdint.h>

typedef struct philox {
    uint32_t word[4];
} philox_t;

/* One of the ten rounds. */
static inline philox_t philox_round(philox_t counter, uint32_t key0, uint32_t key1)
{
    const uint64_t product0 = (uint64_t)0xD2511F53u * counter.word[0], product1 = (uint64_t)0xCD9E8D57u * counter.word[2];
    return (philox_t){{(uint32_t)(product1 >> 32) ^ counter.word[1] ^ key0, (uint32_t)product1,
                       (uint32_t)(product0 >> 32) ^ counter.word[3] ^ key1, (uint32_t)product0}};
}

static inline philox_t philox(philox_t counter, uint64_t key)
{
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        counter = philox_round(counter, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* The streams that the library draws from never meet: the counter's last word is one of these or, for dropout, holds the layer's number in its
 * upper half, which is below 0xffff. */
enum { PHILOX_LAYERS = 0xffff };
#define PHILOX_INITIALISATION 0xffff0000u
#define PHILOX_SECOND_EXPERT 0xffff0001u

#endif
