/* Products of 16-bit integers on float32 activations, zn_kernels.gemm_int16. Part of storage.inc.h.
 *
 * One instruction of VNNI adds two products of int16 to a sum of 32 bits, where a fused multiply-add of
 * floats adds one. So the values that a pixel's sums read are rounded to integers of at most 2^13 times a
 * power of two of their own, chunk after chunk, and the weights of a column were (packing.py) to ones with
 * which no sum can overflow. Sums of integers are exact, whatever their order, and every level rounds alike;
 * only the last step, times both factors and plus the bias, is float32. */

#define INT16_CHUNK 6144 /* words of a chunk: 24 KB, which stay in L1 beside a panel */
#define INT16_ROW 2      /* values before those of a pixel: its factor */

/* The values of a pixel as integers, after the factor that makes them values again. A pixel with a value
 * that is not finite has the factor NaN, and so has all that comes of it. */
static void to_int16(const zn_gemm *g, ptrdiff_t pixel, int16_t *out)
{
    enum { EXPONENT = 23, BITS = 13, LEAST = BITS }; /* of a float; so that both factors are normal */
    const float *in = (const float *)g->a + pixel * g->a_pixel;
    const int whole = g->depth / VL * VL;
    vf largest = v_set1(0);
    for (int s = 0; s < g->segments; s++) {
        const float *from = in + g->segment[s];
        for (int k = 0; k < whole; k += VL)
            largest = v_max_magnitude(largest, v_load(from + k));
        if (whole < g->depth)
            largest = v_max_magnitude(largest, load_some_float(from + whole, g->depth - whole));
    }
    uint32_t exponent = v_largest_bits(largest) >> EXPONENT;
    if (exponent < LEAST)
        exponent = LEAST;
    const int finite = exponent < 255;
    const uint32_t back = finite ? (exponent - (BITS - 1)) << EXPONENT : 0x7fc00000;
    const uint32_t forth = finite ? (2 * 127 + BITS - 1 - exponent) << EXPONENT : 0;
    memcpy(out, &back, sizeof back);
    out += INT16_ROW;
    if (!finite) {
        memset(out, 0, (size_t)(g->segments * (ptrdiff_t)g->depth) * sizeof *out);
        return;
    }
    const vf factor = set1_word(&forth);
    for (int s = 0; s < g->segments; s++) {
        const float *from = in + g->segment[s];
        for (int k = 0; k < whole; k += VL)
            v_to_int16(out + k, v_mul(factor, v_load(from + k)));
        if (whole < g->depth) /* and over what comes next, which is written later */
            v_to_int16(out + whole, v_mul(factor, load_some_float(from + whole, g->depth - whole)));
        out += g->depth;
    }
}

static void gemm_int16(const zn_gemm *g)
{
    static const ptrdiff_t at_once = 0;
    const ptrdiff_t row = (ptrdiff_t)g->segments * g->depth + INT16_ROW;
    int16_t values[2 * INT16_CHUNK + VL];
    ptrdiff_t chunk = 2 * INT16_CHUNK / row;
    if (chunk > GEMM_ROWS)
        chunk = chunk / GEMM_ROWS * GEMM_ROWS;

    zn_gemm part = *g;
    part.a = values;
    part.a_pixel = row;
    part.segments = 1;
    part.segment = &at_once;
    part.depth = (int)row - INT16_ROW;
    for (ptrdiff_t begin = 0; begin < g->pixels; begin += chunk) {
        const ptrdiff_t count = g->pixels - begin < chunk ? g->pixels - begin : chunk;
        for (ptrdiff_t p = 0; p < count; p++)
            to_int16(g, begin + p, values + p * row);
        part.out = (float *)g->out + begin * g->out_pixel;
        part.residual = g->residual ? (const float *)g->residual + begin * g->residual_pixel : NULL;
        gemm_chunk_int16(&part, 0, count);
    }
}
