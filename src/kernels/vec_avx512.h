/* SPDX-License-Identifier: MIT
 *
 * The vector vocabulary of the templates, for AVX-512 F + DQ: vf is 16 floats, vd half as many doubles, vm a mask of float lanes. The words are
 * those of vec_avx2.h, where they are explained.
 */
#ifndef FFNI_VEC_AVX512_H
#define FFNI_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

enum { VF_LANES = 16, VD_LANES = 8 };

typedef __m512 vf;
typedef __mmask16 vm;
typedef __m512d vd;

/* Memory */

INLINE __mmask16 vec_first_lanes(int64_t count) { return (__mmask16)((1u << count) - 1u); }

INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_load_first(const float *p, int64_t count) { return _mm512_maskz_loadu_ps(vec_first_lanes(count), p); }
INLINE void vf_store_first(float *p, vf a, int64_t count) { _mm512_mask_storeu_ps(p, vec_first_lanes(count), a); }

/* Arithmetic */

INLINE vf vf_set1(float a) { return _mm512_set1_ps(a); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }

INLINE vf vf_at_most(vf x, vf limit) { return _mm512_min_ps(limit, x); }
INLINE vf vf_at_least(vf x, vf limit) { return _mm512_max_ps(limit, x); }

/* Bits */

INLINE vf vf_and(vf a, vf b) { return _mm512_and_ps(a, b); }
INLINE vf vf_or(vf a, vf b) { return _mm512_or_ps(a, b); }
INLINE vf vf_xor(vf a, vf b) { return _mm512_xor_ps(a, b); }
INLINE vf vf_and_not(vf a, vf b) { return _mm512_andnot_ps(a, b); }
INLINE vf vf_shift_left_23(vf a) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23)); }

/* Masks */

INLINE vm vf_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE vm vf_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE vf vf_select(vm mask, vf a, vf b) { return _mm512_mask_blend_ps(mask, b, a); }

INLINE int vm_all(vm mask) { return mask == 0xffff; }

/* Counters */

typedef __m512i vu;

INLINE vu vu_load(const uint32_t *p) { return _mm512_loadu_si512(p); }
INLINE void vu_store(uint32_t *p, vu a) { _mm512_storeu_si512(p, a); }
INLINE vu vu_zero(void) { return _mm512_setzero_si512(); }
INLINE vu vu_add_bits(vu a, vf b) { return _mm512_add_epi32(a, _mm512_castps_si512(b)); }
INLINE vu vu_count(vu a, vm mask) { return _mm512_mask_add_epi32(a, mask, a, _mm512_set1_epi32(1)); }

/* Doubles */

INLINE vd vd_set1(double a) { return _mm512_set1_pd(a); }
INLINE vd vd_add(vd a, vd b) { return _mm512_add_pd(a, b); }
INLINE vd vd_sub(vd a, vd b) { return _mm512_sub_pd(a, b); }
INLINE vd vd_mul(vd a, vd b) { return _mm512_mul_pd(a, b); }
INLINE vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
INLINE vd vd_low(vf a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
INLINE vd vd_high(vf a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }

INLINE vf vf_from_vd(vd low, vd high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}

INLINE vd vd_keep_first(vd a, int64_t count)
{
    const int64_t kept = count < 0 ? 0 : count > VD_LANES ? VD_LANES : count;
    return _mm512_maskz_mov_pd((__mmask8)((1u << kept) - 1u), a);
}

INLINE double vd_sum(vd a)
{
    const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

/* One register */

enum { RV_LANES = 16 };

typedef __m512 rv;

INLINE rv rv_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void rv_store(float *p, rv a) { _mm512_storeu_ps(p, a); }
INLINE rv rv_set1(float a) { return _mm512_set1_ps(a); }
INLINE rv rv_add(rv a, rv b) { return _mm512_add_ps(a, b); }
INLINE rv rv_fma(rv a, rv b, rv c) { return _mm512_fmadd_ps(a, b, c); }

#endif
