/* SPDX-License-Identifier: MIT
 * Choosing the ISA level. A new level is a new row here. */
#include "dispatch/ladder.h"

#include "base/error.h"
#include "dispatch/cpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct rung {
    const char *name;
    const kernel_table_t *kernels; /* NULL: not in this build */
} rung_t;

static const rung_t ladder[] = {
    [FFN_ISA_SCALAR] = {"scalar", &ffni_kernels_scalar},
#if defined(FFNI_X86_64)
    [FFN_ISA_AVX2] = {"avx2", &ffni_kernels_avx2},
    [FFN_ISA_AVX512] = {"avx512", &ffni_kernels_avx512},
#else
    [FFN_ISA_AVX2] = {"avx2", NULL},
    [FFN_ISA_AVX512] = {"avx512", NULL},
#endif
};

enum { RUNGS = sizeof ladder / sizeof *ladder };

const char *ffni_isa_name(uint32_t isa) {
    return isa && isa < RUNGS ? ladder[isa].name : "none";
}

/* FFN_MAX_ISA; an empty value counts as unset. */
static ffn_status_t environment_cap(uint32_t *cap) {
    const char *value = getenv("FFN_MAX_ISA");
    *cap = RUNGS - 1;
    if (!value || !*value) return FFN_OK;
    for (uint32_t isa = FFN_ISA_SCALAR; isa < RUNGS; isa++) {
        if (strcmp(value, ladder[isa].name)) continue;
        *cap = isa;
        return FFN_OK;
    }
    return ffni_fail(FFN_INVALID, "FFN_MAX_ISA in the environment is \"%.40s\", must be scalar, avx2 or avx512", value);
}

ffn_status_t ffni_ladder_choose(uint32_t max_isa, const kernel_table_t **kernels) {
    uint32_t isa, cap = max_isa == FFN_ISA_AUTO ? RUNGS - 1 : max_isa;
    if (max_isa >= RUNGS) return ffni_fail(FFN_INVALID, "max_isa is %" PRIu32 ", must be one of FFN_ISA_*, at most %d", max_isa, RUNGS - 1);
    ffn_status_t status = environment_cap(&isa);
    if (status) return status;
    if (isa > cap) isa = cap;
    if (isa > ffni_cpu_isa()) isa = ffni_cpu_isa();
    *kernels = ladder[isa].kernels;
    return FFN_OK;
}
