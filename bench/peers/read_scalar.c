/* SPDX-License-Identifier: MIT
 * 4 floats at a time: what plain C compiles to for any CPU with vectors. */
#include "limits.h"

#define WIDTH 4
typedef float vector_t __attribute__((vector_size(WIDTH * sizeof(float))));
#include "read_loop.h"

float read_scalar(const float *numbers, int64_t count, int streams) {
    return read_sum(numbers, count, streams);
}
