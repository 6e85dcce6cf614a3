/* SPDX-License-Identifier: MIT
 *
 * Dropout and jitter of one row. Integers decide, so that one text serves every ISA level, and compilers vectorise it: Philox on COUNTERS counters at a
 * time, word by word. Included by the file of each level.
 */
#ifndef FFNI_DROP_H
#define FFNI_DROP_H

#include <string.h>

#include "kernels/philox.h"
#include "kernels/training.h"

enum { DROP_COUNTERS = 16, DROP_COLUMNS = 4 * DROP_COUNTERS };

/* word[4 i + w] = word w of the counter (first + i, row). */
static inline void drop_words(uint64_t seed, const uint32_t counter[4], uint32_t first, uint32_t word[DROP_COLUMNS])
{
    uint32_t a[DROP_COUNTERS], b[DROP_COUNTERS], c[DROP_COUNTERS], d[DROP_COUNTERS];
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (uint32_t i = 0; i < DROP_COUNTERS; i++) {
        a[i] = counter[0] + first + i;
        b[i] = counter[1], c[i] = counter[2], d[i] = counter[3];
    }
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u)
        for (int i = 0; i < DROP_COUNTERS; i++) {
            const philox_t next = philox_round((philox_t){{a[i], b[i], c[i], d[i]}}, key0, key1);
            a[i] = next.word[0], b[i] = next.word[1], c[i] = next.word[2], d[i] = next.word[3];
        }
    for (int i = 0; i < DROP_COUNTERS; i++) word[4 * i] = a[i], word[4 * i + 1] = b[i], word[4 * i + 2] = c[i], word[4 * i + 3] = d[i];
}

static void drop(const drop_mask_t *mask, int64_t n, float *out, const float *in)
{
    if (mask->threshold > UINT32_MAX) {
        memset(out, 0, (size_t)n * sizeof *out);
        return;
    }
    const uint32_t threshold = (uint32_t)mask->threshold;
    for (int64_t i = 0; i < n; i += DROP_COLUMNS) {
        uint32_t word[DROP_COLUMNS];
        const int64_t count = n - i < DROP_COLUMNS ? n - i : DROP_COLUMNS;
        drop_words(mask->seed, mask->counter, (uint32_t)(i / 4), word);
        for (int64_t j = 0; j < count; j++) out[i + j] = word[j] >= threshold ? in[i + j] * mask->scale : 0.0f;
    }
}

/* 2 u - 1 of u = (word + 1/2) / 2^32 is the signed number word - 2^31, plus 1/2, over 2^31. */
static void jitter(const jitter_t *noise, int64_t n, float *out, const float *in)
{
    const double size = (double)noise->size * 0x1p-31;
    for (int64_t i = 0; i < n; i += DROP_COLUMNS) {
        uint32_t word[DROP_COLUMNS];
        const int64_t count = n - i < DROP_COLUMNS ? n - i : DROP_COLUMNS;
        drop_words(noise->seed, noise->counter, (uint32_t)(i / 4), word);
        for (int64_t j = 0; j < count; j++) out[i + j] = in[i + j] * (float)(1.0 + size * ((double)(int32_t)(word[j] ^ 0x80000000u) + 0.5));
    }
}

#endif
