/* SPDX-License-Identifier: MIT
 * The ladder: from a cap to a kernel table. */
#ifndef FFNI_LADDER_H
#define FFNI_LADDER_H

#include <ffn/ffn.h>

#include "kernels/kernels.h"

/* The table of the highest level that this CPU has and that neither max_isa (FFN_ISA_*, AUTO for no cap) nor FFN_MAX_ISA in the environment
 * forbids. FFN_INVALID for an unknown max_isa, or an environment variable that is no level's name. */
ffn_status_t ffni_ladder_choose(uint32_t max_isa, const kernel_table_t **kernels);

/* "scalar", "avx2", "avx512". */
const char *ffni_isa_name(uint32_t isa);

#endif
