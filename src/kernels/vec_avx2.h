/* SPDX-License-Identifier: MIT
 *
 * The vector vocabulary of the templates, for AVX2 + FMA: vf is 16 floats, vd 8 doubles, vm a mask of 16 float lanes, as in vec_avx512.h, which has
 * the same words. Every word rounds lane by lane as IEEE 754 has it, and the sum of a vd has one order, so that both levels give the same bits.
 *
 * Each is two registers: the two halves of a function's work, one instruction of each in turn, hide each other's latency, which neither compiler
 * arranges by itself (GELU from cache on Zen 3, GCC 12: 0.86 ns per element; with one register 1.01).
 */
#ifndef FFNI_VEC_AVX2_H
#define FFNI_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

enum { VF_LANES = 16, VD_LANES = 8 };

typedef struct vf {
    __m256 a, b; /* lanes 0..7, 8..15 */
} vf;

typedef vf vm;

typedef struct vd {
    __m256d a, b; /* lanes 0..3, 4..7 */
} vd;

/* Memory. The _first forms touch the first `count` lanes alone (0 < count < VF_LANES); the others read as 0. */

/* The mask of those of the 8 lanes from `from` on that are among the first `count`. */
INLINE __m256i vec_first_lanes(int64_t count, int from)
{
    const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(from));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lane);
}

INLINE vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }

INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

INLINE vf vf_load_first(const float *p, int64_t count)
{
    return (vf){_mm256_maskload_ps(p, vec_first_lanes(count, 0)), _mm256_maskload_ps(p + 8, vec_first_lanes(count, 8))};
}

INLINE void vf_store_first(float *p, vf x, int64_t count)
{
    _mm256_maskstore_ps(p, vec_first_lanes(count, 0), x.a);
    _mm256_maskstore_ps(p + 8, vec_first_lanes(count, 8), x.b);
}

/* Arithmetic. fma is x * y + z, fms x * y - z, fnma z - x * y, each rounded once. */

INLINE vf vf_set1(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE vf vf_add(vf x, vf y) { return (vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
INLINE vf vf_sub(vf x, vf y) { return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
INLINE vf vf_mul(vf x, vf y) { return (vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
INLINE vf vf_div(vf x, vf y) { return (vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
INLINE vf vf_sqrt(vf x) { return (vf){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
INLINE vf vf_fma(vf x, vf y, vf z) { return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
INLINE vf vf_fms(vf x, vf y, vf z) { return (vf){_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b)}; }
INLINE vf vf_fnma(vf x, vf y, vf z) { return (vf){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }

/* x held to one side of a limit. NaN stays NaN: MINPS and MAXPS return their second operand when either is NaN. */
INLINE vf vf_at_most(vf x, vf limit) { return (vf){_mm256_min_ps(limit.a, x.a), _mm256_min_ps(limit.b, x.b)}; }
INLINE vf vf_at_least(vf x, vf limit) { return (vf){_mm256_max_ps(limit.a, x.a), _mm256_max_ps(limit.b, x.b)}; }

/* Bits */
INLINE vf vf_and(vf x, vf y) { return (vf){_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)}; }
INLINE vf vf_or(vf x, vf y) { return (vf){_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)}; }
INLINE vf vf_xor(vf x, vf y) { return (vf){_mm256_xor_ps(x.a, y.a), _mm256_xor_ps(x.b, y.b)}; }
INLINE vf vf_and_not(vf x, vf y) { return (vf){_mm256_andnot_ps(x.a, y.a), _mm256_andnot_ps(x.b, y.b)}; }

/* The bits of every lane, taken as an integer, shifted left by 23: into the exponent. */
INLINE vf vf_shift_left_23(vf x)
{
    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.a), 23)),
                _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.b), 23))};
}

/* Masks; a comparison with NaN is false. select: x where the mask is set, else y. */
INLINE vm vf_less(vf x, vf y) { return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)}; }
INLINE vm vf_equal(vf x, vf y) { return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)}; }
INLINE vf vf_select(vm mask, vf x, vf y) { return (vf){_mm256_blendv_ps(y.a, x.a, mask.a), _mm256_blendv_ps(y.b, x.b, mask.b)}; }

INLINE int vm_all(vm mask) { return _mm256_movemask_ps(_mm256_and_ps(mask.a, mask.b)) == 0xff; }

/* Counters, one for each lane of a vf. */

typedef struct vu {
    __m256i a, b;
} vu;

INLINE vu vu_load(const uint32_t *p)
{
    return (vu){_mm256_loadu_si256((const __m256i *)(const void *)p), _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}

INLINE void vu_store(uint32_t *p, vu x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x.a);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), x.b);
}

INLINE vu vu_zero(void) { return (vu){_mm256_setzero_si256(), _mm256_setzero_si256()}; }

/* The bits of every lane of y, taken as an integer, added modulo 2^32. */
INLINE vu vu_add_bits(vu x, vf y)
{
    return (vu){_mm256_add_epi32(x.a, _mm256_castps_si256(y.a)), _mm256_add_epi32(x.b, _mm256_castps_si256(y.b))};
}

/* One more where the mask is set, which is -1 there. */
INLINE vu vu_count(vu x, vm mask)
{
    return (vu){_mm256_sub_epi32(x.a, _mm256_castps_si256(mask.a)), _mm256_sub_epi32(x.b, _mm256_castps_si256(mask.b))};
}

/* Doubles. A vf is two vd: low lanes, high lanes. */

INLINE vd vd_set1(double x) { return (vd){_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
INLINE vd vd_add(vd x, vd y) { return (vd){_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b)}; }
INLINE vd vd_sub(vd x, vd y) { return (vd){_mm256_sub_pd(x.a, y.a), _mm256_sub_pd(x.b, y.b)}; }
INLINE vd vd_mul(vd x, vd y) { return (vd){_mm256_mul_pd(x.a, y.a), _mm256_mul_pd(x.b, y.b)}; }
INLINE vd vd_fma(vd x, vd y, vd z) { return (vd){_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b)}; }

INLINE vd vd_widen(__m256 x)
{
    return (vd){_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}

INLINE __m256 vd_narrow(vd x) { return _mm256_set_m128(_mm256_cvtpd_ps(x.b), _mm256_cvtpd_ps(x.a)); }
INLINE vd vd_low(vf x) { return vd_widen(x.a); }
INLINE vd vd_high(vf x) { return vd_widen(x.b); }
INLINE vf vf_from_vd(vd low, vd high) { return (vf){vd_narrow(low), vd_narrow(high)}; }

/* The first `count` lanes of x, the rest 0; count may be anything, below 0 (no lane) or above VD_LANES (all). */
INLINE vd vd_keep_first(vd x, int64_t count)
{
    const __m256i end = _mm256_set1_epi64x(count);
    return (vd){_mm256_and_pd(x.a, _mm256_castsi256_pd(_mm256_cmpgt_epi64(end, _mm256_setr_epi64x(0, 1, 2, 3)))),
                _mm256_and_pd(x.b, _mm256_castsi256_pd(_mm256_cmpgt_epi64(end, _mm256_setr_epi64x(4, 5, 6, 7))))};
}

INLINE double vd_sum(vd x)
{
    const __m256d four = _mm256_add_pd(x.a, x.b);
    const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

/* One register, of RV_LANES floats: what the tiles of matrix products are made of, where every register counts. */

enum { RV_LANES = 8 };

typedef __m256 rv;

INLINE rv rv_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void rv_store(float *p, rv x) { _mm256_storeu_ps(p, x); }
INLINE rv rv_set1(float x) { return _mm256_set1_ps(x); }
INLINE rv rv_add(rv x, rv y) { return _mm256_add_ps(x, y); }
INLINE rv rv_fma(rv x, rv y, rv z) { return _mm256_fmadd_ps(x, y, z); }

#endif
