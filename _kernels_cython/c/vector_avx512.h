/* Vector layer, AVX-512 (F, BW, DQ, VL): sixteen lanes. Described in vector_generic.h. */
#ifndef ZENITH_VECTOR_AVX512_H
#define ZENITH_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define VL 16
#define GEMM_ROWS 14
#define GEMM_VECTORS 2

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
