/* What does not depend on how activations are stored: constants, arithmetic on vectors, the
 * one-dimensional FWHT and moments. Part of kernels.inc.h. */

#define MAX_TILE 16
#define DEPTHWISE_BLOCK 32
#define GEMM_CHUNK 32768 /* words of `a` per chunk of pixels: a part of L2 */
#define GEMM_PANELS (GEMM_VECTORS * VL / ZN_BLOCK)

#define GEMM_TRIO_WORDS 128 /* depth up to which three panels fill no more than most of L1 */
#ifndef GEMM_TRIO_ROWS
#define GEMM_TRIO_ROWS 0 /* no three panels at a time */
#endif
#define GEMM_WIDEST (GEMM_TRIO_ROWS ? 3 : GEMM_VECTORS)

#if GEMM_ROWS > 14
#error "gemm_kernels lists 14 rows"
#endif

typedef void gemm_kernel(const zn_gemm *g, ptrdiff_t pixel, ptrdiff_t panel, int panels);

/* All lanes the 32 bits at p: a float, or two bf16 or int16 for v_dot_bf16 and v_dot_int16. */
static ZN_INLINE vf set1_word(const void *p)
{
    float word;
    memcpy(&word, p, sizeof word);
    return v_set1(word);
}

static ZN_INLINE void wht_4(vf *v)
{
    v_butterfly(v, v + 1);
    v_butterfly(v + 2, v + 3);
    v_butterfly(v, v + 2);
    v_butterfly(v + 1, v + 3);
}

static ZN_INLINE void wht_8(vf *v)
{
    wht_4(v);
    wht_4(v + 4);
    v_butterfly(v, v + 4);
    v_butterfly(v + 1, v + 5);
    v_butterfly(v + 2, v + 6);
    v_butterfly(v + 3, v + 7);
}

static ZN_INLINE void wht_16(vf *v)
{
    wht_8(v);
    wht_8(v + 8);
    for (int i = 0; i < 8; i++)
        v_butterfly(v + i, v + i + 8);
}

static ZN_INLINE void wht(const int T, vf *v)
{
    if (T == 4)
        wht_4(v);
    else if (T == 8)
        wht_8(v);
    else
        wht_16(v);
}

/* sign(a) * max(|a| - t, 0) for t >= 0, as a minus a limited to [-t, t] */
static ZN_INLINE vf shrink(vf a, vf t)
{
    vf limited = v_min(t, v_max(v_sub(v_set1(0), t), a));
    return v_sub(a, limited);
}

/* WHT, gate, shrink, WHT on T vectors, whose gates and thresholds are `step` floats apart. */
static ZN_INLINE void gate_vectors(const int T, vf *v, const float *gate, const float *threshold,
                                   ptrdiff_t step)
{
    wht(T, v);
    for (int i = 0; i < T; i++) {
        v[i] = v_mul(v[i], v_load(gate + i * step));
        if (threshold)
            v[i] = shrink(v[i], v_load(threshold + i * step));
    }
    wht(T, v);
}

/* The columns of a half transformed tile. */
static ZN_INLINE void columns_gate(const int T, vf *tile, const float *gate, const float *threshold,
                                   ptrdiff_t channels)
{
    for (int x = 0; x < T; x++) {
        vf v[MAX_TILE];
        for (int y = 0; y < T; y++)
            v[y] = tile[y * T + x];
        gate_vectors(T, v, gate + x * channels, threshold ? threshold + x * channels : NULL, T * channels);
        for (int y = 0; y < T; y++)
            tile[y * T + x] = v[y];
    }
}

/* Calls NAME(T, ...) with the side of a tile as a constant, for which its loops are unrolled. */
#define WITH_CONSTANT_T(NAME, ...) \
    do { \
        if (T == 4) \
            NAME(4, __VA_ARGS__); \
        else if (T == 8) \
            NAME(8, __VA_ARGS__); \
        else \
            NAME(16, __VA_ARGS__); \
    } while (0)

/* Calls BODY for every VL channels of every tile of a row of tiles, with `c` the first channel,
 * `x` the first pixel and `columns` the pixels of the tile inside the picture. A cache line of
 * channels goes first along all tiles, so that its gates stay in L1. */
#define FOR_TILES(BODY) \
    for (int line = 0; line < channels; line += ZN_BLOCK) \
        for (int x = 0; x < width; x += T) { \
            const int columns = width - x < T ? width - x : T; \
            for (int c = line; c < line + ZN_BLOCK; c += VL) { \
                BODY \
            } \
        }

/* Six values of a row or column of an input tile, and four of an output tile: see winograd.inc.h. */
#define ROOT_2 1.41421356f

static ZN_INLINE void winograd_six(const vf *d, vf *out)
{
    const vf even = v_fma(v_set1(-2), d[2], d[4]), odd = v_fma(v_set1(-2), d[1], d[3]);
    const vf even_a = v_fma(v_set1(-0.5f), d[2], d[4]), odd_a = v_fma(v_set1(-0.5f), d[1], d[3]);
    out[0] = v_fma(v_set1(-2.5f), d[2], v_add(d[0], d[4]));
    out[1] = v_fma(v_set1(ROOT_2 / 2), odd, even);
    out[2] = v_fma(v_set1(-ROOT_2 / 2), odd, even);
    out[3] = v_fma(v_set1(ROOT_2), odd_a, even_a);
    out[4] = v_fma(v_set1(-ROOT_2), odd_a, even_a);
    out[5] = v_fma(v_set1(-2.5f), d[3], v_add(d[1], d[5]));
}

static ZN_INLINE void winograd_four(const vf *m, vf *out)
{
    const vf sum = v_add(m[1], m[2]), difference = v_sub(m[1], m[2]);
    const vf sum_a = v_add(m[3], m[4]), difference_a = v_sub(m[3], m[4]);
    out[0] = v_add(m[0], v_add(sum, sum_a));
    out[1] = v_mul(v_set1(ROOT_2 / 2), v_fma(v_set1(2), difference_a, difference));
    out[2] = v_fma(v_set1(2), sum_a, v_mul(v_set1(0.5f), sum));
    out[3] = v_fma(v_set1(2 * ROOT_2), difference_a, v_fma(v_set1(ROOT_2 / 4), difference, m[5]));
}

/* Adds what one column of three inputs gives to an output for which it is the given column. */
static ZN_INLINE vf depthwise_column(vf sum, const int has_above, const int has_below, const vf *in,
                                     const vf *weight, const int column)
{
    if (has_above)
        sum = v_fma(in[0], weight[column], sum);
    sum = v_fma(in[1], weight[3 + column], sum);
    if (has_below)
        sum = v_fma(in[2], weight[6 + column], sum);
    return sum;
}

/* tanh as x P(x^2) / Q(x^2), |x| limited to 9.01 where tanh rounds to 1. P and Q of degree 4 are a
 * least-maximum fit of tanh(x) / x, made for this file by reweighted least squares in double:
 * 2.1e-8 relative; evaluated in float below 4e-7. */
static ZN_INLINE vf tanh_vector(vf x)
{
    static const float p[5] = {0.99999997925f, 0.13380370561f, 3.4948098378e-3f,
                               2.0596254798e-5f, 1.3336823278e-8f};
    static const float q[5] = {1.0f, 0.46713685983f, 2.5874022088e-2f,
                               3.2843612799e-4f, 7.7692724926e-7f};
    x = v_min(v_set1(9.01f), v_max(v_set1(-9.01f), x));
    const vf z = v_mul(x, x);
    vf above = v_set1(p[4]), below = v_set1(q[4]);
    for (int i = 3; i >= 0; i--) {
        above = v_fma(above, z, v_set1(p[i]));
        below = v_fma(below, z, v_set1(q[i]));
    }
    const vf y = v_div(v_mul(x, above), below);
    return v_min(v_set1(1), v_max(v_set1(-1), y));
}

/* Sums of products of MOMENT_ROWS channels with those of one or two vectors. */
#define MOMENT_ROWS 4

static ZN_INLINE void moments_tile(const float *x, const int pixels, const int channels, const int row,
                                   const int column, const int vectors, double *moments)
{
    vf sum[MOMENT_ROWS][2];
    ZN_UNROLL
    for (int r = 0; r < MOMENT_ROWS; r++)
        ZN_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[r][v] = v_set1(0);
    for (int p = 0; p < pixels; p++, x += channels) {
        vf value[2];
        ZN_UNROLL
        for (int v = 0; v < vectors; v++)
            value[v] = v_load(x + column + v * VL);
        ZN_UNROLL
        for (int r = 0; r < MOMENT_ROWS; r++) {
            const vf factor = v_set1(x[row + r]);
            ZN_UNROLL
            for (int v = 0; v < vectors; v++)
                sum[r][v] = v_fma(factor, value[v], sum[r][v]);
        }
    }
    for (int r = 0; r < MOMENT_ROWS; r++)
        for (int v = 0; v < vectors; v++) {
            float part[VL];
            double *to = moments + (ptrdiff_t)(row + r) * channels + column + v * VL;
            v_store(part, sum[r][v]);
            for (int i = 0; i < VL; i++)
                to[i] += part[i];
        }
}

static void moments(const float *x, int pixels, int channels, double *moments)
{
    double *sums = moments + (ptrdiff_t)channels * channels;
    for (int begin = 0; begin < pixels; begin += ZN_MOMENT_PIXELS) {
        const int count = pixels - begin < ZN_MOMENT_PIXELS ? pixels - begin : ZN_MOMENT_PIXELS;
        const float *part = x + (ptrdiff_t)begin * channels;
        for (int row = 0; row < channels; row += MOMENT_ROWS)
            for (int column = row / ZN_BLOCK * ZN_BLOCK; column < channels; column += 2 * VL)
                if (column + VL < channels)
                    moments_tile(part, count, channels, row, column, 2, moments);
                else
                    moments_tile(part, count, channels, row, column, 1, moments);
        for (int c = 0; c < channels; c += VL) {
            float sum[VL];
            vf total = v_set1(0);
            for (int p = 0; p < count; p++)
                total = v_add(total, v_load(part + (ptrdiff_t)p * channels + c));
            v_store(sum, total);
            for (int i = 0; i < VL; i++)
                sums[c + i] += sum[i];
        }
    }
}

/* Stages h = 1 .. VL / 2 inside vectors, then three stages a pass over groups of 8 vectors, and
 * what is left by two or one. Stages come in ascending order on every level, and consist of
 * additions only: all levels give the same bits. */
static ZN_INLINE void fwht_pass(const int radix, float *x, ptrdiff_t n, ptrdiff_t h)
{
    for (ptrdiff_t block = 0; block < n; block += radix * h)
        for (ptrdiff_t i = block; i < block + h; i += VL) {
            vf v[8];
            for (int j = 0; j < radix; j++)
                v[j] = v_load(x + i + j * h);
            if (radix == 8)
                wht_8(v);
            else if (radix == 4)
                wht_4(v);
            else
                v_butterfly(v, v + 1);
            for (int j = 0; j < radix; j++)
                v_store(x + i + j * h, v[j]);
        }
}

static void fwht_one(float *x, ptrdiff_t n)
{
    ptrdiff_t h = VL;
    if (n < VL) {
        for (h = 1; h < n; h *= 2)
            for (ptrdiff_t block = 0; block < n; block += 2 * h)
                for (ptrdiff_t i = block; i < block + h; i++) {
                    const float a = x[i], b = x[i + h];
                    x[i] = a + b;
                    x[i + h] = a - b;
                }
        return;
    }
    for (ptrdiff_t i = 0; i < n; i += VL)
        v_store(x + i, v_hadamard(v_load(x + i)));
    for (; 8 * h <= n; h *= 8)
        fwht_pass(8, x, n, h);
    if (4 * h <= n)
        fwht_pass(4, x, n, h);
    else if (2 * h <= n)
        fwht_pass(2, x, n, h);
}

static void fwht(float *x, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < count; i++)
        fwht_one(x + i * stride, n);
}

/* Vectors of consecutive pixels overlap: what one writes too much, the next one overwrites. The last
 * pixels are put together in a buffer, so that nothing is read or written behind them. */
static void split(const float *in, int channels, uint16_t *out, int pixels)
{
    uint16_t last[2 * ZN_SPLIT_CHANNELS + VL];
    float rest[ZN_SPLIT_CHANNELS + VL] = {0};
    for (int p = 0; p < pixels; p++) {
        const int inside = (ptrdiff_t)(pixels - 1 - p) * channels >= VL;
        const float *from = in + (ptrdiff_t)p * channels;
        uint16_t *const at = out + (ptrdiff_t)p * 2 * channels, *const to = inside ? at : last;
        if (!inside) {
            memcpy(rest, from, (size_t)channels * sizeof *from);
            from = rest;
        }
        for (int c = 0; c < channels; c += VL)
            v_store_bf16(to + c, v_load(from + c));
        for (int c = 0; c < channels; c += VL) {
            uint16_t upper[VL];
            const vf value = v_load(from + c);
            v_store_bf16(upper, value);
            v_store_bf16(to + channels + c, v_sub(value, v_load_bf16(upper)));
        }
        if (!inside)
            memcpy(at, last, (size_t)(2 * channels) * sizeof *at);
    }
}
