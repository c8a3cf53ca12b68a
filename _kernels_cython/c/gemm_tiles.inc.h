/* Matrix product of bf16 by AMX tiles, see zn_gemm in zenith.h. Part of storage.inc.h, over a tile
 * layer (tiles_amx.h or tiles_emulated.h) and the vector layer.
 *
 * The depth of a product, all its segments one after the other, is cut into steps of TILE_WORDS
 * pairs. A step multiplies up to 2 x 2 tiles: two of 16 pixels by two panels of 16 columns. Tiles
 * of b are pieces of the packed panels as they lie in memory: pairs along the depth are the order
 * that the instruction wants. Tiles of a are read straight from the activations, rows a pixel
 * apart, where a step lies in one segment. Where it does not (the hidden channels of a Zenith block
 * lie in planes of 16, so two planes make a step), its pixels are first put together in a buffer,
 * once for all panels; there is no forwarding from vector stores to tile loads, so this is done for
 * a whole block of pixels well before it is read. If the depth does not end with a step, the last
 * one starts earlier in b, inside the panel, and what was multiplied before meets zeros in a.
 *
 * On Sapphire Rapids a TDPBF16PS takes 16 cycles and a tile load from L1 eight: 2 x 2 tiles need 64
 * cycles of the one and 32 of the other, and fewer would wait for loads and latency (52 cycles).
 * The blocks of 32 pixels are the outer loop: of them, what a product reads (24 KB for a depth of
 * 384, 13 KB for a 3x3 convolution of 64 channels) stays in L1 for all panels, and the panels come
 * from L2 at 32 lines in 64 cycles. Pixels that are left have a configuration of fewer rows.
 *
 * Sums. A step adds to each output, which starts from its bias, the sum of two chains of fused
 * multiply-adds, one of the even channels of the step and one of the odd (tiles_emulated.h has the
 * rules). Where a step begins depends on segments and depth alone, and rows and columns of tiles
 * do not meet, so that an output has the same bits whatever it is computed with. The bits are not
 * those of the other levels, which add in another order, and numbers below 2^-126 are zero here. */

#define TILE_WORDS 16
#define TILE_PIXELS 32
#define TILE_LEAST_WORDS 8 /* of depth; with less, VDPBF16PS has hardly more to do than the epilogue */
#define TILE_SLOTS 16      /* steps of a block of pixels that the buffer holds */
#define SLOT_VALUES (TILE_PIXELS * TILE_WORDS * 2)

/* A product in steps. */
typedef struct tile_plan {
    const zn_gemm *g;
    int words;  /* of a step */
    int steps;
    int missing; /* words that the last step has less than that */
    int apart;  /* steps whose values lie in more than one piece */
} tile_plan;

/* Where a step begins. The last one, if it is not the only one, may begin with `skip` words of zeros. */
typedef struct tile_step {
    int number, segment, at, skip;
} tile_step;

static ZN_INLINE void tile_next(const tile_plan *plan, tile_step *step)
{
    step->number++;
    step->skip = step->number == plan->steps - 1 ? plan->missing : 0;
    step->at += 2 * plan->words;
    for (; step->at >= plan->g->depth; step->segment++)
        step->at -= plan->g->depth;
}

static ZN_INLINE int tile_in_one_piece(const tile_plan *plan, const tile_step *step)
{
    return step->skip == 0 && step->at + 2 * plan->words <= plan->g->depth;
}

static tile_plan tile_make_plan(const zn_gemm *g)
{
    const int all = g->segments * (g->depth / 2);
    tile_plan plan = {g, all < TILE_WORDS ? all : TILE_WORDS, 0, 0, 0};
    plan.steps = (all + plan.words - 1) / plan.words;
    plan.missing = plan.steps * plan.words - all;
    for (tile_step step = {0, 0, 0, 0}; step.number < plan.steps; tile_next(&plan, &step))
        plan.apart += !tile_in_one_piece(&plan, &step);
    return plan;
}

/* The values of a step for `pixels` pixels, each in TILE_BYTES of `out`. */
static void tile_pack(const tile_plan *plan, const tile_step *step, ptrdiff_t pixel, int pixels, uint16_t *out)
{
    const zn_gemm *g = plan->g;
    const uint16_t *a = (const uint16_t *)g->a + pixel * g->a_pixel;
    const int whole = 2 * plan->words;
    int segment = step->segment, at = step->at, filled = 2 * step->skip;
    if (filled)
        for (int p = 0; p < pixels; p++)
            memset(out + p * TILE_WORDS * 2, 0, (size_t)filled * sizeof *out);
    while (filled < whole) {
        const uint16_t *in = a + g->segment[segment] + at;
        const int left = whole - filled, length = g->depth - at < left ? g->depth - at : left;
        uint16_t *to = out + filled;
        if (length == ZN_BLOCK) /* a plane */
            for (int p = 0; p < pixels; p++)
                memcpy(to + p * TILE_WORDS * 2, in + p * g->a_pixel, ZN_BLOCK * sizeof *to);
        else
            for (int p = 0; p < pixels; p++)
                memcpy(to + p * TILE_WORDS * 2, in + p * g->a_pixel, (size_t)length * sizeof *to);
        filled += length;
        segment++;
        at = 0;
    }
}

/* Tiles 0 to 3 are the sums, two panels of the first 16 pixels and two of the others; 4 and 5 the
 * pixels; 6 and 7 the panels. Returns what t_configure takes for a block of so many pixels. */
static void tile_shape(const tile_plan *plan, int pixels, tile_config *config)
{
    const int rows[2] = {pixels < TILE_ROWS ? pixels : TILE_ROWS, pixels < TILE_ROWS ? 0 : pixels - TILE_ROWS};
    memset(config, 0, sizeof *config);
    config->palette = 1;
    for (int i = 0; i < 2; i++)
        if (rows[i] > 0) {
            config->rows[2 * i] = config->rows[2 * i + 1] = config->rows[4 + i] = (uint8_t)rows[i];
            config->row_bytes[2 * i] = config->row_bytes[2 * i + 1] = TILE_BYTES;
            config->row_bytes[4 + i] = (uint16_t)(4 * plan->words);
        }
    config->rows[6] = config->rows[7] = (uint8_t)plan->words;
    config->row_bytes[6] = config->row_bytes[7] = TILE_BYTES;
}

/* The values of all steps that are apart, for a block of pixels. */
static void tile_pack_all(const tile_plan *plan, ptrdiff_t pixel, int pixels, uint16_t *packed)
{
    for (tile_step step = {0, 0, 0, 0}; step.number < plan->steps; tile_next(plan, &step))
        if (!tile_in_one_piece(plan, &step)) {
            tile_pack(plan, &step, pixel, pixels, packed);
            packed += SLOT_VALUES;
        }
}

/* Up to 2 x 2 tiles of sums, from the bias on, to `sums`. Steps that are apart are in `packed`, or
 * where it does not hold them all are put there one by one. */
static ZN_INLINE void tile_micro(const int pairs, const int panels, tile_state *tiles, const tile_plan *plan,
                                 ptrdiff_t pixel, int pixels, ptrdiff_t panel, uint16_t *packed,
                                 float *sums)
{
    const zn_gemm *g = plan->g;
    const int words = plan->words, all = plan->steps * words - plan->missing;
    const ptrdiff_t panel_size = (ptrdiff_t)all * 2 * ZN_BLOCK, sums_row = 2 * ZN_BLOCK * sizeof(float);
    const uint16_t *a = (const uint16_t *)g->a + pixel * g->a_pixel;
    const uint16_t *b = (const uint16_t *)g->b + panel * panel_size;
    int slot = 0;

    if (g->bias) { /* all rows of a tile the same */
        const float *bias = g->bias + panel * ZN_BLOCK;
        t_load(tiles, 0, bias, 0);
        if (panels > 1)
            t_load(tiles, 1, bias + ZN_BLOCK, 0);
        if (pairs > 1) {
            t_load(tiles, 2, bias, 0);
            if (panels > 1)
                t_load(tiles, 3, bias + ZN_BLOCK, 0);
        }
    } else {
        t_zero(tiles, 0);
        if (panels > 1)
            t_zero(tiles, 1);
        if (pairs > 1) {
            t_zero(tiles, 2);
            if (panels > 1)
                t_zero(tiles, 3);
        }
    }
    for (tile_step step = {0, 0, 0, 0}; step.number < plan->steps; tile_next(plan, &step)) {
        const uint16_t *in = a, *columns = b + (step.number * words - step.skip) * (ptrdiff_t)(2 * ZN_BLOCK);
        ptrdiff_t row = TILE_BYTES;
        if (tile_in_one_piece(plan, &step)) {
            in += g->segment[step.segment] + step.at;
            row = g->a_pixel * (ptrdiff_t)sizeof *in;
        } else {
            uint16_t *there = packed + slot++ % TILE_SLOTS * SLOT_VALUES;
            if (plan->apart > TILE_SLOTS)
                tile_pack(plan, &step, pixel, pixels, there);
            in = there;
        }
        t_load(tiles, 4, in, row);
        t_load(tiles, 6, columns, TILE_BYTES);
        t_dot(tiles, 0, 4, 6);
        if (panels > 1) {
            t_load(tiles, 7, columns + panel_size, TILE_BYTES);
            t_dot(tiles, 1, 4, 7);
        }
        if (pairs > 1) {
            t_load(tiles, 5, (const char *)in + TILE_ROWS * row, row);
            t_dot(tiles, 2, 5, 6);
            if (panels > 1)
                t_dot(tiles, 3, 5, 7);
        }
    }
    t_store(tiles, 0, sums, sums_row);
    if (panels > 1)
        t_store(tiles, 1, sums + ZN_BLOCK, sums_row);
    if (pairs > 1) {
        t_store(tiles, 2, sums + TILE_ROWS * 2 * ZN_BLOCK, sums_row);
        if (panels > 1)
            t_store(tiles, 3, sums + TILE_ROWS * 2 * ZN_BLOCK + ZN_BLOCK, sums_row);
    }
}

/* What is left to do with the sums of `pixels` pixels and one panel. */
static void tile_finish(const zn_gemm *g, ptrdiff_t pixel, int pixels, ptrdiff_t panel, const float *sums)
{
    for (int p = 0; p < pixels; p++) {
        vf sum[1][GEMM_WIDEST];
        for (int v = 0; v < ZN_BLOCK / VL; v++)
            sum[0][v] = v_load(sums + p * 2 * ZN_BLOCK + v * VL);
        STORED(gemm_finish)(1, 1, g, pixel + p, panel, sum);
    }
}

static void gemm_tiles(const zn_gemm *g)
{
    _Alignas(64) uint16_t packed[TILE_SLOTS * SLOT_VALUES];
    _Alignas(64) float sums[TILE_PIXELS * 2 * ZN_BLOCK];
    const ptrdiff_t all_panels = g->columns / ZN_BLOCK;
    const tile_plan plan = tile_make_plan(g);
    tile_state tiles;
    int configured = 0;

    if (plan.steps * plan.words - plan.missing < TILE_LEAST_WORDS) {
        STORED(gemm)(g);
        return;
    }
    for (ptrdiff_t pixel = 0; pixel < g->pixels; pixel += TILE_PIXELS) {
        const int left = (int)(g->pixels - pixel), pixels = left < TILE_PIXELS ? left : TILE_PIXELS;
        if (pixels != configured) {
            tile_config config;
            tile_shape(&plan, pixels, &config);
            t_configure(&tiles, &config);
            configured = pixels;
        }
        if (plan.apart <= TILE_SLOTS)
            tile_pack_all(&plan, pixel, pixels, packed);
        for (ptrdiff_t panel = 0; panel < all_panels; panel += 2) {
            const int two = panel + 1 < all_panels;
#define MICRO(PAIRS, PANELS) \
    tile_micro(PAIRS, PANELS, &tiles, &plan, pixel, pixels, panel, packed, sums)
            if (pixels > TILE_ROWS && two)
                MICRO(2, 2);
            else if (pixels > TILE_ROWS)
                MICRO(2, 1);
            else if (two)
                MICRO(1, 2);
            else
                MICRO(1, 1);
#undef MICRO
            tile_finish(g, pixel, pixels, panel, sums);
            if (two)
                tile_finish(g, pixel, pixels, panel + 1, sums + ZN_BLOCK);
        }
    }
    t_release(&tiles);
}
