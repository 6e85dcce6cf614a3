/* SPDX-License-Identifier: MIT
 * 8 floats at a time, fused. */
#include "peak.h"

#define WIDTH 8
typedef float vector_t __attribute__((vector_size(WIDTH * sizeof(float))));
#include "peak_loop.h"

double peak_avx2(long rounds, float *sink) {
    return run(rounds, sink);
}
