/* SPDX-License-Identifier: MIT
 * 16 floats at a time. */
#include "limits.h"

#define WIDTH 16
typedef float vector_t __attribute__((vector_size(WIDTH * sizeof(float))));
#include "read_loop.h"

float read_avx512(const float *numbers, int64_t count, int streams) {
    return read_sum(numbers, count, streams);
}
