/* SPDX-License-Identifier: MIT */
#include "support/philox_reference.h"

#include <string.h>

/* The S-box of the paper on one pair (L, R): the high half of R * multiplier, with key and L mixed in, and the low half. */
static void box(uint32_t pair[2], uint32_t multiplier, uint32_t key)
{
    const unsigned long long product = (unsigned long long)pair[1] * multiplier;
    const uint32_t high = (uint32_t)(product / 4294967296ull), low = (uint32_t)(product % 4294967296ull);
    pair[0] = high ^ key ^ pair[0];
    pair[1] = low;
}

void philox_reference(const uint32_t c[4], const uint32_t k[2], uint32_t out[4])
{
    uint32_t x[4];
    memcpy(x, c, sizeof x);
    for (uint32_t round = 0; round < 10; round++) {
        /* After the permutation the pairs are (c1, c2) and (c3, c0). */
        uint32_t first[2] = {x[1], x[2]}, second[2] = {x[3], x[0]};
        box(first, 0xCD9E8D57u, k[0] + round * 0x9E3779B9u);
        box(second, 0xD2511F53u, k[1] + round * 0xBB67AE85u);
        memcpy(x, first, sizeof first);
        memcpy(x + 2, second, sizeof second);
    }
    memcpy(out, x, sizeof x);
}
