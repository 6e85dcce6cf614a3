/* SPDX-License-Identifier: MIT
 * How many threads this process may usefully run. */
#ifndef FFNI_CPU_COUNT_H
#define FFNI_CPU_COUNT_H

#include <stdint.h>

/* CPUs in the affinity mask, cut to the cgroup's CPU quota rounded down, at least 1. What cannot be read does not limit. */
uint32_t ffni_cpu_count(void);

#endif
