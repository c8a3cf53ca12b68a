/* Vector layer, AVX-512 (F, BW, DQ, VL; also BF16): sixteen lanes. Described in vector_generic.h. */
#ifndef ZENITH_VECTOR_AVX512_H
#define ZENITH_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define VL 16
#define GEMM_ROWS 14
#define GEMM_VECTORS 2
#define GEMM_TRIO_ROWS 9 /* three panels at a time: 27 sums, three columns and a word */

typedef __m512 vf;

static inline vf v_set1(float x) { return _mm512_set1_ps(x); }
static inline vf v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf v_where_greater(vf a, vf b, vf c)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), c);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
#if defined(__AVX512BF16__)
static inline void v_store_bf16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(a));
}
static inline vf v_dot_bf16(vf a, vf b, vf c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
#else
static inline void v_store_bf16(uint16_t *p, vf a)
{
    const __m512i x = _mm512_castps_si512(a), upper = _mm512_srli_epi32(x, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i y = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    y = _mm512_mask_or_epi32(_mm512_srli_epi32(y, 16), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), upper,
                             _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(y));
}
static inline vf v_dot_bf16(vf a, vf b, vf c)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
    c = v_fma(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
              _mm512_castsi512_ps(_mm512_and_si512(y, upper)), c);
    return v_fma(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                 _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), c);
}
#endif

static inline vf v_dot_int16(vf a, vf b, vf c)
{
#if defined(__AVX512VNNI__)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b)); /* see vector_avx2.h */
    return c;
#else
    const __m512i products = _mm512_madd_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(c), products));
#endif
}
static inline vf v_from_int32(vf a) { return _mm512_cvtepi32_ps(_mm512_castps_si512(a)); }
static inline void v_to_int16(int16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a)));
}
static inline vf v_max_magnitude(vf a, vf b)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                                _mm512_and_si512(_mm512_castps_si512(b), magnitude)));
}
static inline uint32_t v_largest_bits(vf a)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude));
}

static inline void v_butterfly(vf *a, vf *b)
{
    const vf sum = v_add(*a, *b);
    *b = _mm512_fnmadd_ps(*b, v_set1(1), *a);
    *a = sum;
}

static inline vf v_hadamard(vf a)
{
    vf b = _mm512_permute_ps(a, 0xB1);
    a = _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xAAAA, b, a);
    b = _mm512_permute_ps(a, 0x4E);
    a = _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xCCCC, b, a);
    b = _mm512_shuffle_f32x4(a, a, 0xB1);
    a = _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xF0F0, b, a);
    b = _mm512_shuffle_f32x4(a, a, 0x4E);
    return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xFF00, b, a);
}

static inline vf v_from_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline vf v_from_u16(const uint16_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)));
}
static inline void v_to_u8(uint8_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}
static inline void v_to_u16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a)));
}

#endif
