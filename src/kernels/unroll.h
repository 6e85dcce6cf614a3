/* SPDX-License-Identifier: MIT
 *
 * What the loops of the templates ask of the compiler.
 */
#ifndef FFNI_UNROLL_H
#define FFNI_UNROLL_H

/* The loops over rows and registers must be gone for the sums to live in registers. */
#if defined(__clang__)
#define UNROLL_ALL _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL_ALL _Pragma("GCC unroll 14")
#define UNROLL_4 _Pragma("GCC unroll 4")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

#endif
