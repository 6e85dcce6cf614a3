/* SPDX-License-Identifier: MIT
 * 8 floats at a time. */
#include "limits.h"

#define WIDTH 8
typedef float vector_t __attribute__((vector_size(WIDTH * sizeof(float))));
#include "read_loop.h"

float read_avx2(const float *numbers, int64_t count, int streams) {
    return read_sum(numbers, count, streams);
}
