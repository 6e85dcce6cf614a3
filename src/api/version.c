/* SPDX-License-Identifier: MIT
 * Versions, names and errors. */
#include <ffn/ffn.h>

#include "base/error.h"
#include "core/activation.h"
#include "core/gemm.h"
#include "dispatch/cpu.h"
#include "dispatch/ladder.h"

#include <stdio.h>

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
#define VERSION_TEXT TEXT(FFN_VERSION_MAJOR) "." TEXT(FFN_VERSION_MINOR) "." TEXT(FFN_VERSION_PATCH)

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

#if defined(FFNI_X86_64)
#define LEVELS "scalar to avx512"
#else
#define LEVELS "scalar"
#endif

enum { ABI_VERSION = 0 };

uint32_t ffn_version(void) {
    return FFN_VERSION_MAJOR * 65536 + FFN_VERSION_MINOR * 256 + FFN_VERSION_PATCH;
}

const char *ffn_version_string(void) {
    return VERSION_TEXT;
}

uint32_t ffn_abi_version(void) {
    return ABI_VERSION;
}

const char *ffn_build_info(void) {
    static _Thread_local char text[320];
    snprintf(text, sizeof text, "libffn " VERSION_TEXT ", " COMPILER ", levels built: " LEVELS ", level of this CPU: %s, BLAS: %s",
             ffni_isa_name(ffni_cpu_isa()), ffni_gemm_library());
    return text;
}

const char *ffn_status_name(ffn_status_t status) {
    switch (status) {
    case FFN_OK: return "FFN_OK";
    case FFN_INVALID: return "FFN_INVALID";
    case FFN_NO_MEMORY: return "FFN_NO_MEMORY";
    case FFN_UNSUPPORTED: return "FFN_UNSUPPORTED";
    case FFN_BUSY: return "FFN_BUSY";
    default: return "unknown status";
    }
}

const char *ffn_last_error(void) {
    return ffni_error_text();
}

ffn_status_t ffn_activation_from_name(const char *name, uint32_t *activation) {
    if (!activation) return ffni_fail(FFN_INVALID, "the pointer to the activation is NULL");
    *activation = FFN_ACTIVATION_NONE;
    if (!name) return ffni_fail(FFN_INVALID, "the activation's name is NULL");
    *activation = ffni_activation_from_name(name);
    if (*activation != FFN_ACTIVATION_NONE) return FFN_OK;
    char known[ERROR_TEXT_SIZE] = "";
    int length = 0;
    for (uint32_t i = FFN_ACTIVATION_NONE + 1; ffni_activation_name(i); i++)
        length += snprintf(known + length, sizeof known - (size_t)length, "%s%s", length ? ", " : "", ffni_activation_name(i));
    return ffni_fail(FFN_INVALID, "no activation is called \"%.40s\": known are %s", name, known);
}

const char *ffn_activation_name(uint32_t activation) {
    return ffni_activation_name(activation);
}
