/* SPDX-License-Identifier: MIT */
#include "support/kernel_levels.h"

#include <stdbool.h>

#ifdef FFNI_X86_64
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
#ifdef FFNI_EMULATE_AVX512
    return has_avx2();
#else
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#endif
}
#endif

int kernel_levels(kernel_level_t levels[KERNEL_LEVELS_MAX])
{
    int count = 0;
    levels[count++] = (kernel_level_t){"scalar", &ffni_kernels_scalar};
#ifdef FFNI_X86_64
    if (has_avx2()) levels[count++] = (kernel_level_t){"avx2", &ffni_kernels_avx2};
    if (has_avx512()) levels[count++] = (kernel_level_t){"avx512", &ffni_kernels_avx512};
#endif
    return count;
}
