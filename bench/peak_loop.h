/* SPDX-License-Identifier: MIT
 * The multiply-add loop, once for every width: the including file defines WIDTH (floats in a vector) and vector_t. Twelve chains hide the latency of
 * two units of up to six cycles each. */
#include <string.h>

enum { CHAINS = 12 };

static double run(long rounds, float *sink) {
    const vector_t zero = {0}, factor = zero + 0.999f, term = zero + 1e-3f;
    vector_t chain[CHAINS], sum = zero;
    float sums[WIDTH];
    for (int c = 0; c < CHAINS; c++) chain[c] = term * (float)c;
    for (long r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) chain[c] = chain[c] * factor + term;
    }
    for (int c = 0; c < CHAINS; c++) sum += chain[c];
    memcpy(sums, &sum, sizeof sums);
    for (int i = 0; i < WIDTH; i++) *sink += sums[i];
    return 2.0 * WIDTH * CHAINS * (double)rounds;
}
