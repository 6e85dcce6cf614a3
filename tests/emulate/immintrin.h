/* SPDX-License-Identifier: MIT
 *
 * Stands in front of the compiler's <immintrin.h> where src/kernels/avx512.c is compiled for a CPU without AVX-512 (FFN_EMULATE_AVX512): the
 * intrinsics of src/kernels/vec_avx512.h by SIMDe, which composes each of two 256-bit ones (fused where the name says so), and those that its
 * version 0.7.4 lacks written out here from Intel's definitions.
 */
#ifndef FFN_TESTS_EMULATE_IMMINTRIN_H
#define FFN_TESTS_EMULATE_IMMINTRIN_H

#include_next <immintrin.h>

#if !defined(__AVX2__) || !defined(__FMA__)
#error "the emulation of AVX-512 needs AVX2 and FMA (-mavx2 -mfma)"
#endif

/* That vectors of 512 bits would be passed otherwise with AVX-512 is no concern within one file. */
#pragma GCC diagnostic ignored "-Wpsabi"

#ifndef FFNI_EMULATE_AVX512
#define FFNI_EMULATE_AVX512
#endif
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* Lane i of half `half` is all ones if bit 8 * half + i of the mask is set. */
static inline __m256i emulated_half_mask(__mmask16 mask, int half)
{
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask >> (8 * half)), bits), bits);
}

/* Lanes whose bit is 0 are 0, and their memory is not touched: VMASKMOVPS raises no fault for them. */
static inline simde__m512 emulated_maskz_loadu_ps(__mmask16 mask, const void *p)
{
    simde__m512_private r;
    for (int half = 0; half < 2; half++)
        r.m256[half] = _mm256_maskload_ps((const float *)p + 8 * half, emulated_half_mask(mask, half));
    return simde__m512_from_private(r);
}

static inline void emulated_mask_storeu_ps(void *p, __mmask16 mask, simde__m512 a)
{
    const simde__m512_private a_ = simde__m512_to_private(a);
    for (int half = 0; half < 2; half++) _mm256_maskstore_ps((float *)p + 8 * half, emulated_half_mask(mask, half), a_.m256[half]);
}

static inline simde__m512d emulated_cvtps_pd(__m256 a)
{
    simde__m512d_private r;
    r.m256d[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    r.m256d[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return simde__m512d_from_private(r);
}

static inline __m256 emulated_cvtpd_ps(simde__m512d a)
{
    const simde__m512d_private a_ = simde__m512d_to_private(a);
    return _mm256_set_m128(_mm256_cvtpd_ps(a_.m256d[1]), _mm256_cvtpd_ps(a_.m256d[0]));
}

static inline __m256 emulated_extractf32x8_ps(simde__m512 a, int half)
{
    return simde__m512_to_private(a).m256[half];
}

#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_cvtps_pd
#undef _mm512_cvtpd_ps
#undef _mm512_extractf32x8_ps
#define _mm512_maskz_loadu_ps(mask, p) emulated_maskz_loadu_ps(mask, p)
#define _mm512_mask_storeu_ps(p, mask, a) emulated_mask_storeu_ps(p, mask, a)
#define _mm512_cvtps_pd(a) emulated_cvtps_pd(a)
#define _mm512_cvtpd_ps(a) emulated_cvtpd_ps(a)
#define _mm512_extractf32x8_ps(a, half) emulated_extractf32x8_ps(a, half)

#endif
