/* Vector layer, generic level: four lanes in plain C.
 *
 * A level is a type `vf` of VL float lanes and the functions below; the algorithms use nothing
 * else. GCC and Clang, one of which setup.py asks for, map the vector type to SSE2 or NEON.
 *
 * v_max(a, b) is a > b ? a : b and v_min(a, b) is a < b ? a : b in every lane, with these exact
 * rules for NaN and signed zeros on every level: with the constant first, NaN passes through.
 */
#ifndef ZENITH_VECTOR_GENERIC_H
#define ZENITH_VECTOR_GENERIC_H

#include <stdint.h>
#include <string.h>

#define VL 4
#define GEMM_ROWS 2   /* pixels of a micro-kernel */
#define GEMM_VECTORS 4 /* columns of a micro-kernel, in vectors */

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vf_mask __attribute__((vector_size(16)));

static inline vf v_set1(float x) { return (vf){x, x, x, x}; }
static inline vf v_add(vf a, vf b) { return a + b; }
static inline vf v_sub(vf a, vf b) { return a - b; }
static inline vf v_mul(vf a, vf b) { return a * b; }
static inline vf v_div(vf a, vf b) { return a / b; }
static inline vf v_pick(vf_mask mask, vf a, vf b)
{
    return (vf)((mask & (vf_mask)a) | (~mask & (vf_mask)b));
}
static inline vf v_max(vf a, vf b) { return v_pick(a > b, a, b); }
static inline vf v_min(vf a, vf b) { return v_pick(a < b, a, b); }
/* a > b ? c : 0 */
static inline vf v_where_greater(vf a, vf b, vf c) { return v_pick(a > b, c, v_set1(0)); }

static inline vf v_load(const float *p)
{
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}
static inline void v_store(float *p, vf a) { memcpy(p, &a, sizeof a); }

/* a * b + c, rounded twice at this level */
static inline vf v_fma(vf a, vf b, vf c) { return v_add(v_mul(a, b), c); }

/* bf16, the upper half of a float: VL values widened; a rounded to nearest, ties to even, NaN
 * staying NaN; and c + a1 b1 + a0 b0 of the pairs (a0, a1) and (b0, b1) in each lane of a and b, a1
 * b1 added first, each sum rounded once (the products are exact in float), as VDPBF16PS does.
 * That instruction takes floats and products below 2^-126 for zero, as the one that rounds does; where
 * they are emulated such numbers count. */
static inline vf v_load_bf16(const uint16_t *p)
{
    uint32_t x[VL];
    vf a;
    for (int i = 0; i < VL; i++)
        x[i] = (uint32_t)p[i] << 16;
    memcpy(&a, x, sizeof a);
    return a;
}
static inline void v_store_bf16(uint16_t *p, vf a)
{
    uint32_t x[VL];
    uint16_t y[VL];
    memcpy(x, &a, sizeof a);
    for (int i = 0; i < VL; i++) {
        const uint32_t nan = (x[i] & 0x7fffffff) > 0x7f800000;
        y[i] = (uint16_t)(nan ? x[i] >> 16 | 0x40 : (x[i] + 0x7fff + (x[i] >> 16 & 1)) >> 16);
    }
    memcpy(p, y, sizeof y);
}
static inline vf v_dot_bf16(vf a, vf b, vf c)
{
    uint32_t x[2][VL], y[2][VL];
    vf a1, a0, b1, b0;
    memcpy(x[0], &a, sizeof a);
    memcpy(y[0], &b, sizeof b);
    for (int i = 0; i < VL; i++) {
        x[1][i] = x[0][i] & 0xffff0000;
        y[1][i] = y[0][i] & 0xffff0000;
        x[0][i] <<= 16;
        y[0][i] <<= 16;
    }
    memcpy(&a1, x[1], sizeof a1);
    memcpy(&b1, y[1], sizeof b1);
    memcpy(&a0, x[0], sizeof a0);
    memcpy(&b0, y[0], sizeof b0);
    return v_fma(a0, b0, v_fma(a1, b1, c));
}

/* Products of 16-bit integers, see gemm_int16.inc.h; lanes of c and of the result are sums of 32 bits:
 * c + a0 b0 + a1 b1 of the pairs (a0, a1) and (b0, b1) in each lane of a and b. Those sums as floats; VL
 * floats of a magnitude below 2^15 rounded to nearest, ties to even. */
static inline vf v_dot_int16(vf a, vf b, vf c)
{
    int16_t x[2 * VL], y[2 * VL];
    uint32_t sum[VL];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    memcpy(sum, &c, sizeof c);
    for (int i = 0; i < VL; i++)
        sum[i] += (uint32_t)(x[2 * i] * y[2 * i]) + (uint32_t)(x[2 * i + 1] * y[2 * i + 1]);
    memcpy(&c, sum, sizeof c);
    return c;
}
static inline vf v_from_int32(vf a)
{
    int32_t x[VL];
    float y[VL];
    memcpy(x, &a, sizeof a);
    for (int i = 0; i < VL; i++)
        y[i] = (float)x[i];
    return v_load(y);
}
static inline void v_to_int16(int16_t *p, vf a)
{
    const vf magic = v_set1(12582912.0f); /* 1.5 * 2^23: the sum has no bits left for a fraction */
    float x[VL];
    v_store(x, v_sub(v_add(a, magic), magic));
    for (int i = 0; i < VL; i++)
        p[i] = (int16_t)x[i];
}
/* The larger magnitude in each lane, NaN being the largest, where those of a are not negative; and the bits of
 * the largest magnitude. */
static inline vf v_max_magnitude(vf a, vf b)
{
    uint32_t x[VL], y[VL];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    for (int i = 0; i < VL; i++) {
        x[i] &= 0x7fffffff;
        y[i] &= 0x7fffffff;
        x[i] = x[i] > y[i] ? x[i] : y[i];
    }
    memcpy(&a, x, sizeof a);
    return a;
}
static inline uint32_t v_largest_bits(vf a)
{
    uint32_t x[VL], most = 0;
    memcpy(x, &a, sizeof a);
    for (int i = 0; i < VL; i++)
        most = (x[i] & 0x7fffffff) > most ? x[i] & 0x7fffffff : most;
    return most;
}

/* a + b and a - b in place of a and b. Wider levels subtract by a fused multiply-add, which gives
 * the same bits and, on CPUs that add and multiply in different units, keeps both busy. */
static inline void v_butterfly(vf *a, vf *b)
{
    const vf sum = v_add(*a, *b);
    *b = v_sub(*a, *b);
    *a = sum;
}

/* In-register stages of a Walsh-Hadamard transform: lane i meets lane i ^ h for h = 1 .. VL / 2. */
static inline vf v_hadamard(vf a)
{
    float x[VL], y[VL];
    v_store(x, a);
    y[0] = x[0] + x[1];
    y[1] = x[0] - x[1];
    y[2] = x[2] + x[3];
    y[3] = x[2] - x[3];
    x[0] = y[0] + y[2];
    x[1] = y[1] + y[3];
    x[2] = y[0] - y[2];
    x[3] = y[1] - y[3];
    return v_load(x);
}

/* VL integers to floats, and floats in [0, 2^16) to the nearest integers (ties to even). */
static inline vf v_from_u8(const uint8_t *p)
{
    float x[VL];
    for (int i = 0; i < VL; i++)
        x[i] = (float)p[i];
    return v_load(x);
}
static inline vf v_from_u16(const uint16_t *p)
{
    float x[VL];
    for (int i = 0; i < VL; i++)
        x[i] = (float)p[i];
    return v_load(x);
}
#if defined(__i386__) && !defined(__SSE2__)
#error "x87 keeps bits that v_round must lose: compile with -msse2 -mfpmath=sse"
#endif
static inline vf v_round(vf a)
{
    vf magic = v_set1(8388608.0f); /* 2^23: the sum has no bits left for a fraction */
    return v_sub(v_add(a, magic), magic);
}
static inline void v_to_u8(uint8_t *p, vf a)
{
    float x[VL];
    v_store(x, v_round(a));
    for (int i = 0; i < VL; i++)
        p[i] = (uint8_t)x[i];
}
static inline void v_to_u16(uint16_t *p, vf a)
{
    float x[VL];
    v_store(x, v_round(a));
    for (int i = 0; i < VL; i++)
        p[i] = (uint16_t)x[i];
}

#endif
