/* SPDX-License-Identifier: MIT
 *
 * The vector vocabulary of the templates, for AVX2 + FMA: vf is 8 floats, vd half as many doubles, vm a mask of float lanes. vec_avx512.h has
 * the same words. Every word but the sums over doubles rounds lane by lane as IEEE 754 has it, so that both levels compute the same bits.
 */
#ifndef FFNI_VEC_AVX2_H
#define FFNI_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

enum { VF_LANES = 8, VD_LANES = 4 };

typedef __m256 vf;
typedef __m256 vm;
typedef __m256d vd;

/* Memory. The _first forms touch the first `count` lanes alone (0 < count < VF_LANES); the others read as 0. */

INLINE __m256i vec_first_lanes(int64_t count)
{
    static const int32_t window[2 * VF_LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(window + VF_LANES - count));
}

INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
INLINE vf vf_load_first(const float *p, int64_t count) { return _mm256_maskload_ps(p, vec_first_lanes(count)); }
INLINE void vf_store_first(float *p, vf a, int64_t count) { _mm256_maskstore_ps(p, vec_first_lanes(count), a); }

/* Arithmetic. fma is a * b + c, fms a * b - c, fnma c - a * b, each rounded once. */

INLINE vf vf_set1(float a) { return _mm256_set1_ps(a); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_fms(vf a, vf b, vf c) { return _mm256_fmsub_ps(a, b, c); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }

/* x held to one side of a limit. NaN stays NaN: MINPS and MAXPS return their second operand when either is NaN. */
INLINE vf vf_at_most(vf x, vf limit) { return _mm256_min_ps(limit, x); }
INLINE vf vf_at_least(vf x, vf limit) { return _mm256_max_ps(limit, x); }

INLINE vf vf_and(vf x, vf y) { return _mm256_and_ps(x, y); }
INLINE vf vf_or(vf x, vf y) { return _mm256_or_ps(x, y); }
INLINE vf vf_xor(vf x, vf y) { return _mm256_xor_ps(x, y); }
INLINE vf vf_and_not(vf x, vf y) { return _mm256_andnot_ps(x, y); }

/* Masks; a comparison with NaN is false. select: a where the mask is set, else b. */
INLINE vm vf_less(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE vm vf_equal(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
INLINE vf vf_select(vm mask, vf a, vf b) { return _mm256_blendv_ps(b, a, mask); }

/* The bits of every lane as an integer, shifted left. */
INLINE vf vf_shift_left_23(vf a) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23)); }

/* Doubles. A vf is two vd: low lanes, high lanes. */

INLINE vd vd_set1(double a) { return _mm256_set1_pd(a); }
INLINE vd vd_add(vd a, vd b) { return _mm256_add_pd(a, b); }
INLINE vd vd_sub(vd a, vd b) { return _mm256_sub_pd(a, b); }
INLINE vd vd_mul(vd a, vd b) { return _mm256_mul_pd(a, b); }
INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
INLINE vd vd_low(vf a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
INLINE vd vd_high(vf a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
INLINE vf vf_from_vd(vd low, vd high) { return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)); }

/* The first `count` lanes of a, the rest 0; count may be anything, below 0 (no lane) or above VD_LANES (all). */
INLINE vd vd_keep_first(vd a, int64_t count)
{
    static const int64_t window[2 * VD_LANES] = {-1, -1, -1, -1};
    const int64_t kept = count < 0 ? 0 : count > VD_LANES ? VD_LANES : count;
    return _mm256_and_pd(a, _mm256_loadu_pd((const double *)(const void *)(window + VD_LANES - kept)));
}

INLINE double vd_sum(vd a)
{
    const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

#endif
