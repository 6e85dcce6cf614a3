/* SPDX-License-Identifier: MIT */
#include "support/random.h"

#include <string.h>

rng_t rng_make(uint64_t seed)
{
    /* One round of splitmix64, so that neighbouring seeds start far apart. */
    uint64_t z = seed + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    rng_t rng = {z ^ (z >> 31)};
    rng_u32(&rng);
    return rng;
}

uint32_t rng_u32(rng_t *rng)
{
    uint64_t old = rng->state;
    rng->state = old * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    uint32_t turn = (uint32_t)(old >> 59);
    return (shifted >> turn) | (shifted << ((32 - turn) & 31));
}

int64_t rng_below(rng_t *rng, int64_t n)
{
    return (int64_t)(((uint64_t)rng_u32(rng) * (uint64_t)n) >> 32);
}

float rng_uniform(rng_t *rng, float low, float high)
{
    return low + (high - low) * (float)((double)rng_u32(rng) / 4294967296.0);
}

float rng_normal(rng_t *rng)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += (double)rng_u32(rng) / 4294967296.0;
    return (float)(sum - 6);
}

float rng_any_bits(rng_t *rng)
{
    uint32_t bits = rng_u32(rng);
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

void rng_fill_uniform(rng_t *rng, float *out, int64_t n, float low, float high)
{
    for (int64_t i = 0; i < n; i++) out[i] = rng_uniform(rng, low, high);
}

void rng_fill_normal(rng_t *rng, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = rng_normal(rng);
}
