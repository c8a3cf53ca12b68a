/* Vector layer, NEON of 64-bit ARM: four lanes. The functions are described in vector_generic.h. */
#ifndef ZENITH_VECTOR_NEON_H
#define ZENITH_VECTOR_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define VL 4
#define GEMM_ROWS 5 /* 20 sums, 4 vectors of columns, 5 words: with a sixth row GCC runs out of registers */
#define GEMM_VECTORS 4

typedef float32x4_t vf;

static inline vf v_set1(float x) { return vdupq_n_f32(x); }
static inline vf v_load(const float *p) { return vld1q_f32(p); }
static inline void v_store(float *p, vf a) { vst1q_f32(p, a); }
static inline vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
/* By comparison: FMAX and FMIN have other rules for NaN and signed zeros. */
static inline vf v_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vf v_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline vf v_where_greater(vf a, vf b, vf c)
{
    return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(a, b), vreinterpretq_u32_f32(c)));
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline void v_store_bf16(uint16_t *p, vf a)
{
    const uint32x4_t x = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(x, 16), vdupq_n_u32(1));
    const uint16x4_t nearest = vshrn_n_u32(vaddq_u32(x, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    const uint16x4_t quiet = vorr_u16(vshrn_n_u32(x, 16), vdup_n_u16(0x40));
    vst1_u16(p, vbsl_u16(vmovn_u32(vceqq_f32(a, a)), nearest, quiet));
}
static inline vf v_dot_bf16(vf a, vf b, vf c)
{
    const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    const uint32x4_t x = vreinterpretq_u32_f32(a), y = vreinterpretq_u32_f32(b);
    c = v_fma(vreinterpretq_f32_u32(vandq_u32(x, upper)), vreinterpretq_f32_u32(vandq_u32(y, upper)), c);
    return v_fma(vreinterpretq_f32_u32(vshlq_n_u32(x, 16)), vreinterpretq_f32_u32(vshlq_n_u32(y, 16)), c);
}

static inline vf v_dot_int16(vf a, vf b, vf c)
{
    const int16x8_t x = vreinterpretq_s16_f32(a), y = vreinterpretq_s16_f32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(c), vpaddq_s32(low, high)));
}
static inline vf v_from_int32(vf a) { return vcvtq_f32_s32(vreinterpretq_s32_f32(a)); }
static inline void v_to_int16(int16_t *p, vf a) { vst1_s16(p, vqmovn_s32(vcvtnq_s32_f32(a))); }
static inline vf v_max_magnitude(vf a, vf b)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
    return vreinterpretq_f32_u32(vmaxq_u32(vandq_u32(vreinterpretq_u32_f32(a), magnitude),
                                           vandq_u32(vreinterpretq_u32_f32(b), magnitude)));
}
static inline uint32_t v_largest_bits(vf a)
{
    return vmaxvq_u32(vandq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x7fffffff)));
}

static inline void v_butterfly(vf *a, vf *b)
{
    const vf sum = v_add(*a, *b);
    *b = v_sub(*a, *b);
    *a = sum;
}

static inline vf v_hadamard(vf a)
{
    const vf sign1 = {1, -1, 1, -1}, sign2 = {1, 1, -1, -1};
    a = v_fma(a, sign1, vrev64q_f32(a));
    return v_fma(a, sign2, vextq_f32(a, a, 2));
}

static inline vf v_from_u8(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four)))));
}
static inline vf v_from_u16(const uint16_t *p) { return vcvtq_f32_u32(vmovl_u16(vld1_u16(p))); }
static inline uint16x4_t v_to_four_u16(vf a) { return vqmovn_u32(vcvtnq_u32_f32(a)); }
static inline void v_to_u8(uint8_t *p, vf a)
{
    const uint16x4_t x = v_to_four_u16(a);
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vqmovn_u16(vcombine_u16(x, x))), 0);
    memcpy(p, &four, sizeof four);
}
static inline void v_to_u16(uint16_t *p, vf a) { vst1_u16(p, v_to_four_u16(a)); }

#endif
