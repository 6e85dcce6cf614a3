/* SPDX-License-Identifier: MIT
 * CPUID and XGETBV. A level is there when the CPU has every feature of its bundle and the operating system saves the registers. */
#include "dispatch/cpu.h"

#include <ffn/ffn.h>

#include <stdatomic.h>

#if defined(FFNI_X86_64)
#include <cpuid.h>

enum {
    LEAF1_FMA = 1 << 12,
    LEAF1_OSXSAVE = 1 << 27,
    LEAF1_AVX = 1 << 28,
    LEAF7_AVX2 = 1 << 5,
    LEAF7_AVX512F = 1 << 16,
    LEAF7_AVX512DQ = 1 << 17,
    LEAF7_AVX512BW = 1 << 30,
    XCR0_AVX = 0x06,   /* xmm and upper ymm state */
    XCR0_AVX512 = 0xe6 /* and mask registers, upper zmm, zmm16-31 */
};
#define LEAF7_AVX512VL (1u << 31)

static unsigned xcr0(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int has(unsigned word, unsigned bits) {
    return (word & bits) == bits;
}

static uint32_t detect(void) {
    unsigned a, b, c, d, features1, features7;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return FFN_ISA_SCALAR;
    features1 = c;
    if (!has(features1, LEAF1_FMA | LEAF1_OSXSAVE | LEAF1_AVX) || !has(xcr0(), XCR0_AVX)) return FFN_ISA_SCALAR;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return FFN_ISA_SCALAR;
    features7 = b;
    if (!has(features7, LEAF7_AVX2)) return FFN_ISA_SCALAR;
#if defined(FFNI_EMULATE_AVX512)
    return FFN_ISA_AVX512;
#else
    if (!has(features7, LEAF7_AVX512F | LEAF7_AVX512DQ | LEAF7_AVX512BW | LEAF7_AVX512VL) || !has(xcr0(), XCR0_AVX512)) return FFN_ISA_AVX2;
    return FFN_ISA_AVX512;
#endif
}

/* The first word of AuthenticAMD and of HygonGenuine. */
static int detect_amd(void) {
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && (b == 0x68747541 || b == 0x6f677948);
}

#else

static uint32_t detect(void) {
    return FFN_ISA_SCALAR;
}

static int detect_amd(void) {
    return 0;
}

#endif

uint32_t ffni_cpu_isa(void) {
    static atomic_uint found; /* 0: not asked yet. Two threads that ask at once find the same. */
    uint32_t isa = atomic_load_explicit(&found, memory_order_relaxed);
    if (!isa) {
        isa = detect();
        atomic_store_explicit(&found, isa, memory_order_relaxed);
    }
    return isa;
}

int ffni_cpu_is_amd(void) {
    enum { ASKED = 1, AMD = 2 };
    static atomic_uint found;
    unsigned answer = atomic_load_explicit(&found, memory_order_relaxed);
    if (!answer) {
        answer = detect_amd() ? ASKED | AMD : ASKED;
        atomic_store_explicit(&found, answer, memory_order_relaxed);
    }
    return (answer & AMD) != 0;
}
