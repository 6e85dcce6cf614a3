/* SPDX-License-Identifier: MIT
 * The reading loop, once for every width: the including file defines WIDTH (floats in a vector) and vector_t. `streams` (1 or 4) are read side by
 * side: memory prefers one or the other, depending on the machine and on how many threads read. */
#include <stdint.h>
#include <string.h>

enum { VECTORS = 8 };

static void add_stream(const float *numbers, int64_t count, vector_t *sum) {
    vector_t sums[VECTORS] = {0};
    int64_t i = 0;
    for (; i + VECTORS * WIDTH <= count; i += VECTORS * WIDTH) {
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sums[v] += *(const vector_t *)(numbers + i + v * WIDTH);
    }
    for (int v = 0; v < VECTORS; v++) *sum += sums[v];
}

static void add_four_streams(const float *numbers, int64_t count, vector_t *sum) {
    vector_t sums[VECTORS] = {0};
    int64_t quarter = count / 4 / (VECTORS / 4 * WIDTH) * (VECTORS / 4 * WIDTH);
    for (int64_t i = 0; i < quarter; i += VECTORS / 4 * WIDTH) {
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sums[v] += *(const vector_t *)(numbers + v % 4 * quarter + i + v / 4 * WIDTH);
    }
    for (int v = 0; v < VECTORS; v++) *sum += sums[v];
}

/* The sum of `count` numbers at a multiple of 64 bytes, a multiple of 64 of them. */
static float read_sum(const float *numbers, int64_t count, int streams) {
    vector_t sum = {0};
    float parts[WIDTH], total = 0;
    if (streams == 4)
        add_four_streams(numbers, count, &sum);
    else
        add_stream(numbers, count, &sum);
    memcpy(parts, &sum, sizeof parts);
    for (int i = 0; i < WIDTH; i++) total += parts[i];
    return total;
}
