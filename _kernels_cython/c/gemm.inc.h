/* Matrix product over segments, see zn_gemm in zenith.h. Part of storage.inc.h, which includes it once
 * for products of stored values and, with GEMM_INT16, once for the micro-kernels of gemm_int16.inc.h.
 *
 * A micro-kernel holds GEMM_ROWS pixels x GEMM_VECTORS vectors of columns in registers and walks
 * once over segments and depth: per step it loads the vectors of one packed row of b and
 * broadcasts one word a pixel, a float or a pair of bf16 or int16. Panels of b are the outer loop, so that
 * a panel stays in cache while the pixels of a chunk stream past it. Each output is one chain of
 * multiply-adds over s and k whatever the shape of the micro-kernel that computes it, so
 * remainders change no bit.
 *
 * int16: a pixel of a and a panel of b begin with a word more, the factors (floats) by which the sums of
 * integers are multiplied in the end. */
#if GEMM_INT16
#define PRODUCT(name) name##_int16
#define IN_VALUE int16_t
#define IN_WORD 2
#define FACTORS 1
#else
#define PRODUCT STORED
#define IN_VALUE VALUE
#define IN_WORD PER_WORD
#define FACTORS 0

/* Residual, ReLU and the store of finished sums. `pixel` is the first of `rows` pixels, `panel` the
 * first of `panels` blocks of 16 columns. */
static ZN_INLINE void STORED(gemm_finish)(const int rows, const int panels, const zn_gemm *g,
                                          ptrdiff_t pixel, ptrdiff_t panel, vf (*sum)[GEMM_WIDEST])
{
    const int vectors = panels * ZN_BLOCK / VL;
    if (g->residual)
        ZN_UNROLL
        for (int v = 0; v < vectors; v++) {
            const ptrdiff_t at = g->residual_block
                ? g->residual_block[panel + v * VL / ZN_BLOCK] + v * VL % ZN_BLOCK
                : panel * ZN_BLOCK + v * VL;
            const VALUE *residual = (const VALUE *)g->residual + pixel * g->residual_pixel + at;
            ZN_UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][v] = v_add(sum[r][v], s_load(residual + r * g->residual_pixel));
        }
    if (g->relu)
        ZN_UNROLL
        for (int r = 0; r < rows; r++)
            ZN_UNROLL
            for (int v = 0; v < vectors; v++)
                sum[r][v] = v_max(v_set1(0), sum[r][v]);
    ZN_UNROLL
    for (int v = 0; v < vectors; v++) {
        const ptrdiff_t at =
            pixel * g->out_pixel + g->block[panel + v * VL / ZN_BLOCK] + v * VL % ZN_BLOCK;
        if (PER_WORD > 1 && g->float_out)
            ZN_UNROLL
            for (int r = 0; r < rows; r++)
                v_store((float *)g->out + at + r * g->out_pixel, sum[r][v]);
        else
            ZN_UNROLL
            for (int r = 0; r < rows; r++)
                s_store((VALUE *)g->out + at + r * g->out_pixel, sum[r][v]);
    }
}
#endif

static ZN_INLINE void PRODUCT(gemm_micro)(const int rows, const int panels, const zn_gemm *g,
                                          ptrdiff_t pixel, ptrdiff_t panel)
{
    const int vectors = panels * ZN_BLOCK / VL;
    const ptrdiff_t words = g->depth / IN_WORD;
    const ptrdiff_t panel_size = ((ptrdiff_t)g->segments * words + FACTORS) * ZN_BLOCK;
    const ptrdiff_t a_pixel = g->a_pixel;
    const IN_VALUE *a = (const IN_VALUE *)g->a + pixel * a_pixel;
    const float *b = (const float *)g->b + panel * panel_size + FACTORS * ZN_BLOCK; /* words as bits of floats */
    vf sum[GEMM_ROWS][GEMM_WIDEST];

    ZN_UNROLL
    for (int v = 0; v < vectors; v++) {
        const vf bias = g->bias ? v_load(g->bias + panel * ZN_BLOCK + v * VL) : v_set1(0);
        const vf start = FACTORS ? v_set1(0) : bias;
        ZN_UNROLL
        for (int r = 0; r < rows; r++)
            sum[r][v] = start;
    }
    for (int s = 0; s < g->segments; s++) {
        const IN_VALUE *in = a + g->segment[s] + FACTORS * IN_WORD;
        for (ptrdiff_t k = 0; k < words; k++) {
            vf column[GEMM_WIDEST];
            ZN_UNROLL
            for (int v = 0; v < vectors; v++)
                column[v] = v_load(b + v * VL / ZN_BLOCK * panel_size + v * VL % ZN_BLOCK);
            ZN_UNROLL
            for (int r = 0; r < rows; r++) {
                vf word = set1_word(in + r * a_pixel);
                ZN_UNROLL
                for (int v = 0; v < vectors; v++)
#if GEMM_INT16
                    sum[r][v] = v_dot_int16(word, column[v], sum[r][v]);
#else
                    sum[r][v] = s_multiply_add(word, column[v], sum[r][v]);
#endif
            }
            in += IN_WORD;
            b += ZN_BLOCK;
        }
    }
#if GEMM_INT16
    b = (const float *)g->b + panel * panel_size;
    ZN_UNROLL
    for (int v = 0; v < vectors; v++) {
        const vf bias = g->bias ? v_load(g->bias + panel * ZN_BLOCK + v * VL) : v_set1(0);
        const vf factor = v_load(b + v * VL / ZN_BLOCK * panel_size + v * VL % ZN_BLOCK);
        ZN_UNROLL
        for (int r = 0; r < rows; r++)
            sum[r][v] = v_fma(v_from_int32(sum[r][v]), v_mul(set1_word(a + r * a_pixel), factor), bias);
    }
#endif
    STORED(gemm_finish)(rows, panels, g, pixel, panel, sum);
}

#define GEMM_KERNEL(ROWS) \
    static void PRODUCT(gemm_##ROWS)(const zn_gemm *g, ptrdiff_t pixel, ptrdiff_t panel, int panels) \
    { \
        if (panels == GEMM_PANELS) \
            PRODUCT(gemm_micro)(ROWS <= GEMM_ROWS ? ROWS : 1, GEMM_PANELS, g, pixel, panel); \
        else if (ROWS <= GEMM_TRIO_ROWS && panels == 3) \
            PRODUCT(gemm_micro)(ROWS <= GEMM_ROWS ? ROWS : 1, 3, g, pixel, panel); \
        else \
            PRODUCT(gemm_micro)(ROWS <= GEMM_ROWS ? ROWS : 1, 1, g, pixel, panel); \
    }

GEMM_KERNEL(1)
GEMM_KERNEL(2)
#if GEMM_ROWS > 2
GEMM_KERNEL(3)
GEMM_KERNEL(4)
GEMM_KERNEL(5)
GEMM_KERNEL(6)
#endif
#if GEMM_ROWS > 6
GEMM_KERNEL(7)
GEMM_KERNEL(8)
GEMM_KERNEL(9)
GEMM_KERNEL(10)
GEMM_KERNEL(11)
GEMM_KERNEL(12)
GEMM_KERNEL(13)
GEMM_KERNEL(14)
#endif
#undef GEMM_KERNEL

static gemm_kernel *const PRODUCT(gemm_kernels)[] = {
    NULL, PRODUCT(gemm_1), PRODUCT(gemm_2),
#if GEMM_ROWS > 2
    PRODUCT(gemm_3), PRODUCT(gemm_4), PRODUCT(gemm_5), PRODUCT(gemm_6),
#endif
#if GEMM_ROWS > 6
    PRODUCT(gemm_7), PRODUCT(gemm_8), PRODUCT(gemm_9), PRODUCT(gemm_10), PRODUCT(gemm_11), PRODUCT(gemm_12),
    PRODUCT(gemm_13), PRODUCT(gemm_14),
#endif
};

/* All pixels [begin, end) of a chunk for the panels from one on. As few micro-kernels as possible,
 * and those as even as possible: 8 pixels by kernels of up to 6 are 4 + 4, since the latency of few
 * chains would make 6 + 2 slower. */
static void PRODUCT(gemm_panels)(const zn_gemm *g, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t panel, int panels)
{
    const ptrdiff_t most = panels > GEMM_PANELS ? GEMM_TRIO_ROWS : GEMM_ROWS;
    const ptrdiff_t pixels = end - begin, count = (pixels + most - 1) / most;
    const ptrdiff_t rows = pixels / count, longer = pixels % count;
    for (ptrdiff_t i = 0, pixel = begin; i < count; i++) {
        PRODUCT(gemm_kernels)[rows + (i < longer)](g, pixel, panel, panels);
        pixel += rows + (i < longer);
    }
}

/* The pixels [begin, end), for all panels. */
static void PRODUCT(gemm_chunk)(const zn_gemm *g, ptrdiff_t begin, ptrdiff_t end)
{
    const ptrdiff_t all_panels = g->columns / ZN_BLOCK;
    for (ptrdiff_t panel = 0; panel < all_panels;) {
        const ptrdiff_t left = all_panels - panel;
        /* A single panel is the least efficient: the last three go together where they fit. */
        const int trio = GEMM_TRIO_ROWS && left == 3
            && (ptrdiff_t)g->segments * (g->depth / IN_WORD) <= GEMM_TRIO_WORDS;
        const int panels = trio ? 3 : left < GEMM_PANELS ? 1 : GEMM_PANELS;
        PRODUCT(gemm_panels)(g, begin, end, panel, panels);
        panel += panels;
    }
}

#if !GEMM_INT16
static void STORED(gemm)(const zn_gemm *g)
{
    ptrdiff_t chunk = GEMM_CHUNK / ((ptrdiff_t)g->segments * (g->depth / PER_WORD)) / GEMM_ROWS * GEMM_ROWS;
    if (chunk < 4 * GEMM_ROWS)
        chunk = 4 * GEMM_ROWS;
    for (ptrdiff_t begin = 0; begin < g->pixels; begin += chunk)
        STORED(gemm_chunk)(g, begin, g->pixels - begin < chunk ? g->pixels : begin + chunk);
}
#endif

#undef PRODUCT
#undef IN_VALUE
#undef IN_WORD
#undef FACTORS
#undef GEMM_INT16
