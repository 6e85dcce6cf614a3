/* SPDX-License-Identifier: MIT
 * The multiply-add loop, once for every width: the including file defines WIDTH (floats in a vector). Twelve chains hide the latency of two units
 * of up to six cycles each. */
typedef float vector_t __attribute__((vector_size(WIDTH * sizeof(float))));

enum { CHAINS = 12 };

static double run(long rounds, float *sink) {
    vector_t chain[CHAINS], factor = {0}, term = {0}, sum = {0};
    for (int i = 0; i < WIDTH; i++) factor[i] = 0.999f, term[i] = 1e-3f;
    for (int c = 0; c < CHAINS; c++) chain[c] = term * (float)c;
    for (long r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) chain[c] = chain[c] * factor + term;
    }
    for (int c = 0; c < CHAINS; c++) sum += chain[c];
    for (int i = 0; i < WIDTH; i++) *sink += sum[i];
    return 2.0 * WIDTH * CHAINS * (double)rounds;
}
