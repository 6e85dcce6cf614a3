/* SPDX-License-Identifier: MIT
 *
 * The kernel tables that can be called on this machine. With FFNI_EMULATE_AVX512 the AVX-512 table runs on AVX2.
 */
#ifndef FFN_TEST_KERNEL_LEVELS_H
#define FFN_TEST_KERNEL_LEVELS_H

#include "kernels/kernels.h"

typedef struct kernel_level {
    const char *name;
    const kernel_table_t *table;
} kernel_level_t;

enum { KERNEL_LEVELS_MAX = 3 };

/* Writes them to levels in ascending order and returns how many there are. */
int kernel_levels(kernel_level_t levels[KERNEL_LEVELS_MAX]);

#endif
