/* SPDX-License-Identifier: MIT
 * The machine's own limit: multiply-adds from registers, at each ISA level. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

/* Runs that many rounds and returns the FLOP done. *sink keeps the result alive. */
typedef double peak_fn(long rounds, float *sink);

peak_fn peak_scalar, peak_avx2, peak_avx512;

#endif
