/* SPDX-License-Identifier: MIT
 * Integer arithmetic that tells when it overflows. Each returns 1 and stores the result, or returns 0. */
#ifndef FFNI_CHECKED_H
#define FFNI_CHECKED_H

#include <stdint.h>

static inline int checked_multiply(int64_t a, int64_t b, int64_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}

static inline int checked_add(int64_t a, int64_t b, int64_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

static inline int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

static inline int64_t minimum(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t maximum(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#endif
