/* SPDX-License-Identifier: MIT
 * The machine's own limit on reading: a sum over a buffer, at each ISA level. */
#ifndef BENCH_PEERS_LIMITS_H
#define BENCH_PEERS_LIMITS_H

#include <stdint.h>

/* The sum of `count` numbers, read in 1 or 4 streams side by side. numbers: a multiple of 64 bytes; count: a multiple of 64. */
typedef float read_fn(const float *numbers, int64_t count, int streams);

read_fn read_scalar, read_avx2, read_avx512;

#endif
