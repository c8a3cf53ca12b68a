/* Vector layer, AVX2 + FMA: eight lanes. The functions are described in vector_generic.h. */
#ifndef ZENITH_VECTOR_AVX2_H
#define ZENITH_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VL 8
#define GEMM_ROWS 6
#define GEMM_VECTORS 2

typedef __m256 vf;

static inline vf v_set1(float x) { return _mm256_set1_ps(x); }
static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
static inline vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf v_where_greater(vf a, vf b, vf c)
{
    return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ), c);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
static inline void v_store_bf16(uint16_t *p, vf a)
{
    const __m256i x = _mm256_castps_si256(a), upper = _mm256_srli_epi32(x, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i y = _mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    y = _mm256_blendv_epi8(_mm256_srli_epi32(y, 16), _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1)));
}
static inline vf v_dot_bf16(vf a, vf b, vf c)
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
    const __m256i x = _mm256_castps_si256(a), y = _mm256_castps_si256(b);
    c = v_fma(_mm256_castsi256_ps(_mm256_and_si256(x, upper)),
              _mm256_castsi256_ps(_mm256_and_si256(y, upper)), c);
    return v_fma(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(y, 16)), c);
}

static inline vf v_dot_int16(vf a, vf b, vf c)
{
#if defined(__AVXVNNI__)
    /* GCC 12 does not keep sums in registers with the intrinsic. */
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
#else
    const __m256i products = _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(c), products));
#endif
}
static inline vf v_from_int32(vf a) { return _mm256_cvtepi32_ps(_mm256_castps_si256(a)); }
static inline void v_to_int16(int16_t *p, vf a)
{
    const __m256i x = _mm256_cvtps_epi32(a);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
static inline vf v_max_magnitude(vf a, vf b)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a),
                                                _mm256_and_si256(_mm256_castps_si256(b), magnitude)));
}
static inline uint32_t v_largest_bits(vf a)
{
    const __m256i x = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(most);
}

static inline void v_butterfly(vf *a, vf *b)
{
    const vf sum = v_add(*a, *b);
    *b = _mm256_fnmadd_ps(*b, v_set1(1), *a);
    *a = sum;
}

static inline vf v_hadamard(vf a)
{
    const __m256 sign1 = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
    const __m256 sign2 = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
    const __m256 sign4 = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
    a = _mm256_fmadd_ps(a, sign1, _mm256_permute_ps(a, 0xB1));
    a = _mm256_fmadd_ps(a, sign2, _mm256_permute_ps(a, 0x4E));
    return _mm256_fmadd_ps(a, sign4, _mm256_permute2f128_ps(a, a, 1));
}

static inline vf v_from_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline vf v_from_u16(const uint16_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline __m128i v_to_eight_u16(vf a)
{
    __m256i i = _mm256_cvtps_epi32(a);
    return _mm_packus_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
}
static inline void v_to_u8(uint8_t *p, vf a)
{
    __m128i i = v_to_eight_u16(a);
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(i, i));
}
static inline void v_to_u16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, v_to_eight_u16(a));
}

#endif
