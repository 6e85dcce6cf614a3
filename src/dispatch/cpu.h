/* SPDX-License-Identifier: MIT
 * What this CPU and its operating system can run. */
#ifndef FFNI_CPU_H
#define FFNI_CPU_H

#include <stdint.h>

/* The highest FFN_ISA_* level of this machine. Safe from any thread. */
uint32_t ffni_cpu_isa(void);

/* Whether it is one of AMD's (or Hygon's) x86-64 CPUs. Likewise. */
int ffni_cpu_is_amd(void);

#endif
