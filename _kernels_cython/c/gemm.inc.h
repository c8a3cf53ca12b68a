/* Matrix product over segments, see zn_gemm in zenith.h. Part of storage.inc.h.
 *
 * A micro-kernel holds GEMM_ROWS pixels x GEMM_VECTORS vectors of columns in registers and walks
 * once over segments and depth: per step it loads the vectors of one packed row of b and
 * broadcasts one word a pixel, a float or a pair of bf16. Panels of b are the outer loop, so that
 * a panel stays in cache while the pixels of a chunk stream past it. Each output is one chain of
 * multiply-adds over s and k whatever the shape of the micro-kernel that computes it, so
 * remainders change no bit. */

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

static ZN_INLINE void STORED(gemm_micro)(const int rows, const int panels, const zn_gemm *g,
                                         ptrdiff_t pixel, ptrdiff_t panel)
{
    const int vectors = panels * ZN_BLOCK / VL;
    const ptrdiff_t words = g->depth / PER_WORD;
    const ptrdiff_t panel_size = (ptrdiff_t)g->segments * words * ZN_BLOCK;
    const ptrdiff_t a_pixel = g->a_pixel;
    const VALUE *a = (const VALUE *)g->a + pixel * a_pixel;
    const float *b = (const float *)g->b + panel * panel_size; /* words as bits of floats */
    vf sum[GEMM_ROWS][GEMM_WIDEST];

    ZN_UNROLL
    for (int v = 0; v < vectors; v++) {
        vf start = g->bias ? v_load(g->bias + panel * ZN_BLOCK + v * VL) : v_set1(0);
        ZN_UNROLL
        for (int r = 0; r < rows; r++)
            sum[r][v] = start;
    }
    for (int s = 0; s < g->segments; s++) {
        const VALUE *in = a + g->segment[s];
        for (ptrdiff_t k = 0; k < words; k++) {
            vf column[GEMM_WIDEST];
            ZN_UNROLL
            for (int v = 0; v < vectors; v++)
                column[v] = v_load(b + v * VL / ZN_BLOCK * panel_size + v * VL % ZN_BLOCK);
            ZN_UNROLL
            for (int r = 0; r < rows; r++) {
                vf word = v_set1_word(in + r * a_pixel);
                ZN_UNROLL
                for (int v = 0; v < vectors; v++)
                    sum[r][v] = s_multiply_add(word, column[v], sum[r][v]);
            }
            in += PER_WORD;
            b += ZN_BLOCK;
        }
    }
    STORED(gemm_finish)(rows, panels, g, pixel, panel, sum);
}

#define GEMM_KERNEL(ROWS) \
    static void STORED(gemm_##ROWS)(const zn_gemm *g, ptrdiff_t pixel, ptrdiff_t panel, int panels) \
    { \
        if (panels == GEMM_PANELS) \
            STORED(gemm_micro)(ROWS <= GEMM_ROWS ? ROWS : 1, GEMM_PANELS, g, pixel, panel); \
        else \
            STORED(gemm_micro)(ROWS <= GEMM_ROWS ? ROWS : 1, 1, g, pixel, panel); \
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

#ifdef GEMM_TRIO_ROWS
#define GEMM_TRIO(ROWS) \
    static void STORED(gemm_trio_##ROWS)(const zn_gemm *g, ptrdiff_t pixel, ptrdiff_t panel, int panels) \
    { \
        (void)panels; \
        STORED(gemm_micro)(ROWS, 3, g, pixel, panel); \
    }

GEMM_TRIO(1)
GEMM_TRIO(2)
GEMM_TRIO(3)
GEMM_TRIO(4)
GEMM_TRIO(5)
GEMM_TRIO(6)
GEMM_TRIO(7)
GEMM_TRIO(8)
GEMM_TRIO(9)
#undef GEMM_TRIO

static gemm_kernel *const STORED(gemm_trios)[GEMM_TRIO_ROWS + 1] = {
    NULL, STORED(gemm_trio_1), STORED(gemm_trio_2), STORED(gemm_trio_3), STORED(gemm_trio_4),
    STORED(gemm_trio_5), STORED(gemm_trio_6), STORED(gemm_trio_7), STORED(gemm_trio_8),
    STORED(gemm_trio_9),
};
#endif

static gemm_kernel *const STORED(gemm_kernels)[] = {
    NULL, STORED(gemm_1), STORED(gemm_2),
#if GEMM_ROWS > 2
    STORED(gemm_3), STORED(gemm_4), STORED(gemm_5), STORED(gemm_6),
#endif
#if GEMM_ROWS > 6
    STORED(gemm_7), STORED(gemm_8), STORED(gemm_9), STORED(gemm_10), STORED(gemm_11), STORED(gemm_12),
    STORED(gemm_13), STORED(gemm_14),
#endif
};

/* All pixels [begin, end) of a chunk for the panels from one on. As few micro-kernels as possible,
 * and those as even as possible: 8 pixels by kernels of up to 6 are 4 + 4, since the latency of few
 * chains would make 6 + 2 slower. */
static void STORED(gemm_panels)(gemm_kernel *const *kernels, ptrdiff_t most, const zn_gemm *g,
                                ptrdiff_t begin, ptrdiff_t end, ptrdiff_t panel, int panels)
{
    const ptrdiff_t pixels = end - begin, count = (pixels + most - 1) / most;
    const ptrdiff_t rows = pixels / count, longer = pixels % count;
    for (ptrdiff_t i = 0, pixel = begin; i < count; i++) {
        kernels[rows + (i < longer)](g, pixel, panel, panels);
        pixel += rows + (i < longer);
    }
}

static void STORED(gemm)(const zn_gemm *g)
{
    const ptrdiff_t all_panels = g->columns / ZN_BLOCK;
    const ptrdiff_t per_pixel = (ptrdiff_t)g->segments * (g->depth / PER_WORD);
    ptrdiff_t chunk = GEMM_CHUNK / per_pixel / GEMM_ROWS * GEMM_ROWS;
    if (chunk < 4 * GEMM_ROWS)
        chunk = 4 * GEMM_ROWS;

    for (ptrdiff_t begin = 0; begin < g->pixels; begin += chunk) {
        const ptrdiff_t end = g->pixels - begin < chunk ? g->pixels : begin + chunk;
        for (ptrdiff_t panel = 0; panel < all_panels;) {
            const ptrdiff_t left = all_panels - panel;
#ifdef GEMM_TRIO_ROWS
            /* A single panel is the least efficient: the last three go together where they fit. */
            if (left == 3 && per_pixel <= GEMM_TRIO_WORDS) {
                STORED(gemm_panels)(STORED(gemm_trios), GEMM_TRIO_ROWS, g, begin, end, panel, 3);
                break;
            }
#endif
            const int panels = left < GEMM_PANELS ? 1 : GEMM_PANELS;
            STORED(gemm_panels)(STORED(gemm_kernels), GEMM_ROWS, g, begin, end, panel, panels);
            panel += panels;
        }
    }
}
