/* Matrix product of bf16 by AMX tiles, see zn_gemm in zenith.h. Part of storage.inc.h, over a tile
 * layer (tiles_amx.h or tiles_emulated.h) and the vector layer.
 *
 * The depth of a product, all its segments one after the other, is cut into steps of up to TILE_WORDS
 * pairs. A step multiplies up to 2 x 2 tiles: two of 16 pixels by two panels of 16 columns. Tiles
 * of b are pieces of the packed panels as they lie in memory: pairs along the depth are the order
 * that the instruction wants. Tiles of a are read straight from the activations, rows a pixel
 * apart, where a step lies in one segment. Where it does not (where hidden channels of a Zenith block
 * lie in planes of 16, two of them make a step), its pixels are first put together in a buffer,
 * once for all panels; there is no forwarding from vector stores to tile loads, so this is done for
 * a whole chunk of pixels well before it is read. If the depth does not end with a step, the last
 * one starts earlier in b, inside the panel, and what was multiplied before meets zeros in a.
 *
 * On Sapphire Rapids and after a TDPBF16PS takes 16 cycles, however deep it is, and a tile load from L1
 * eight: 2 x 2 tiles need 64 cycles of the one and 32 of the other, and fewer would wait for loads and
 * latency (52 cycles). A chunk of pixels, of which a product reads 24 KB, stays in L1 for all panels, and
 * two panels for the chunk. Pixels that are left have a configuration of fewer rows.
 *
 * Sums leave the tiles through memory, and vectors finish them: bias, residual, ReLU, rounding. That takes as
 * long as the multiplication, and is done in its shadow, in shares between the next block's products: only
 * there, since the CPU has few registers to rename tiles to, and looks no further ahead. Where another
 * hardware thread uses the core's only tile unit, all of its instructions take two to four times as long, and
 * those that can be spared count most: so the bias is added by vectors too, not loaded into tiles.
 *
 * Sums. A step adds to each output the sum of two chains of fused multiply-adds, one of the even channels of
 * the step and one of the odd (tiles_emulated.h has the rules); bias and residual come last. Where a step
 * begins depends on segments and depth alone, and rows and columns of tiles do not meet, so that an output
 * has the same bits whatever it is computed with. The bits are not those of the other levels, which add in
 * another order, and numbers below 2^-126 are zero until the bias is added. */

#define TILE_WORDS 16
#define TILE_PIXELS 32
#define TILE_LEAST_WORDS 8 /* of depth; with less, VDPBF16PS has hardly more to do than the epilogue */
#define TILE_SLOTS 16      /* steps of a block of pixels that the buffer holds */
#define TILE_CHUNK 12      /* steps of all blocks of a chunk of pixels: each is 2 KB */
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

static tile_plan tile_plan_of(const zn_gemm *g, int words)
{
    const int all = g->segments * (g->depth / 2);
    tile_plan plan = {g, words, (all + words - 1) / words, 0, 0};
    plan.missing = plan.steps * words - all;
    for (tile_step step = {0, 0, 0, 0}; step.number < plan.steps; tile_next(&plan, &step))
        plan.apart += !tile_in_one_piece(&plan, &step);
    return plan;
}

/* As few steps as there can be; of one segment none deeper than that takes, as a step takes as long with less
 * and needs no zeros. Planes have a step each where that is half as many again at most: putting pixels together
 * costs more. Nothing else may depend on segments: those of the same layer are sometimes joined, where pixels
 * are dense, and the sums must have the same bits. */
static tile_plan tile_make_plan(const zn_gemm *g)
{
    const int all = g->segments * (g->depth / 2), least = (all + TILE_WORDS - 1) / TILE_WORDS;
    if (g->segments == 1)
        return tile_plan_of(g, (all + least - 1) / least);
    if (g->depth == ZN_BLOCK && 2 * g->segments <= 3 * least)
        return tile_plan_of(g, ZN_BLOCK / 2);
    return tile_plan_of(g, all < TILE_WORDS ? all : TILE_WORDS);
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

static ZN_INLINE void tile_store(const int pairs, const int panels, tile_state *tiles, float *sums)
{
    const ptrdiff_t row = 2 * ZN_BLOCK * sizeof(float);
    t_store(tiles, 0, sums, row);
    if (panels > 1)
        t_store(tiles, 1, sums + ZN_BLOCK, row);
    if (pairs > 1) {
        t_store(tiles, 2, sums + TILE_ROWS * 2 * ZN_BLOCK, row);
        if (panels > 1)
            t_store(tiles, 3, sums + TILE_ROWS * 2 * ZN_BLOCK + ZN_BLOCK, row);
    }
}

/* Sums that have left the tiles: those of `panels` panels of `pixels` pixels. */
typedef struct tile_sums {
    ptrdiff_t pixel, panel;
    int pixels, panels;
} tile_sums;

static ZN_INLINE void tile_finish_as(const int panels, const int has_residual, const int relu, const zn_gemm *g,
                                     const tile_sums *done, int begin, int end, const float *sums)
{
    const ptrdiff_t first = done->pixel + begin;
    const uint16_t *residual[2] = {NULL, NULL};
    if (has_residual)
        ZN_UNROLL
        for (int i = 0; i < panels; i++)
            residual[i] = (const uint16_t *)g->residual + first * g->residual_pixel
                        + (g->residual_block ? g->residual_block[done->panel + i] : (done->panel + i) * ZN_BLOCK);
    uint16_t *const out = (uint16_t *)g->out + first * g->out_pixel;
    uint16_t *to[2] = {out + g->block[done->panel], panels > 1 ? out + g->block[done->panel + 1] : NULL};
    vf bias[2 * ZN_BLOCK / VL];
    ZN_UNROLL
    for (int v = 0; v < panels * ZN_BLOCK / VL; v++)
        bias[v] = g->bias ? v_load(g->bias + done->panel * ZN_BLOCK + v * VL) : v_set1(0);
    sums += begin * 2 * ZN_BLOCK;
    for (int p = begin; p < end; p++) {
        ZN_UNROLL
        for (int i = 0; i < panels; i++) {
            ZN_UNROLL
            for (int v = 0; v < ZN_BLOCK; v += VL) {
                vf sum = v_add(bias[(i * ZN_BLOCK + v) / VL], v_load(sums + i * ZN_BLOCK + v));
                if (has_residual)
                    sum = v_add(sum, v_load_bf16(residual[i] + v));
                if (relu)
                    sum = v_max(v_set1(0), sum);
                v_store_bf16(to[i] + v, sum);
            }
            to[i] += g->out_pixel;
            if (has_residual)
                residual[i] += g->residual_pixel;
        }
        sums += 2 * ZN_BLOCK;
    }
}

static ZN_INLINE void tile_finish_panels(const int panels, const zn_gemm *g, const tile_sums *done, int begin, int end,
                                         const float *sums)
{
    if (g->residual && g->relu)
        tile_finish_as(panels, 1, 1, g, done, begin, end, sums);
    else if (g->residual)
        tile_finish_as(panels, 1, 0, g, done, begin, end, sums);
    else if (g->relu)
        tile_finish_as(panels, 0, 1, g, done, begin, end, sums);
    else
        tile_finish_as(panels, 0, 0, g, done, begin, end, sums);
}

/* What is left to do with the sums of pixels [begin, end). */
static void tile_finish(const zn_gemm *g, const tile_sums *done, int begin, int end, const float *sums)
{
    if (g->float_out) {
        for (int p = begin; p < end; p++)
            for (int i = 0; i < done->panels; i++) {
                vf sum[1][GEMM_WIDEST];
                for (int v = 0; v < ZN_BLOCK / VL; v++)
                    sum[0][v] = v_load(sums + (p * 2 + i) * ZN_BLOCK + v * VL);
                if (g->bias)
                    for (int v = 0; v < ZN_BLOCK / VL; v++)
                        sum[0][v] = v_add(sum[0][v], v_load(g->bias + (done->panel + i) * ZN_BLOCK + v * VL));
                STORED(gemm_finish)(1, 1, g, done->pixel + p, done->panel + i, sum);
            }
    } else if (done->panels == 2) {
        tile_finish_panels(2, g, done, begin, end, sums);
    } else {
        tile_finish_panels(1, g, done, begin, end, sums);
    }
}

/* The same for the next `share` pixels from `row` on, if there are any left; returns which come then. The usual
 * cases, of two panels, are inlined: a call for every few pixels would cost as much as these. */
static ZN_INLINE int tile_finish_share(const int inlined, const int has_residual, const int relu, const zn_gemm *g,
                                       const tile_sums *done, int row, int share, const float *sums)
{
    const int left = done->pixels - row, to = share < left ? row + share : done->pixels;
    if (left <= 0)
        return row;
    if (inlined)
        tile_finish_as(2, has_residual, relu, g, done, row, to, sums);
    else
        tile_finish(g, done, row, to, sums);
    return to;
}

/* Up to 2 x 2 tiles of sums. Steps that are apart are in `packed`, or where it does not hold them all are put
 * there one by one. Twice a step a share of the sums before is finished. */
static ZN_INLINE void tile_multiply(const int pairs, const int panels, const int has_residual, const int relu,
                                    const int inlined, tile_state *tiles, const tile_plan *plan,
                                    ptrdiff_t pixel, int pixels, ptrdiff_t panel, uint16_t *packed,
                                    const tile_sums *done, const float *sums)
{
    const zn_gemm *g = plan->g;
    const int words = plan->words, all = plan->steps * words - plan->missing;
    const ptrdiff_t panel_size = (ptrdiff_t)all * 2 * ZN_BLOCK;
    const uint16_t *a = (const uint16_t *)g->a + pixel * g->a_pixel;
    const uint16_t *b = (const uint16_t *)g->b + panel * panel_size;
    int slot = 0, row = 0, share = 1;
    while (2 * share * plan->steps < done->pixels) /* a power of two: loops of one length are foreseen */
        share *= 2;

    t_zero(tiles, 0);
    if (panels > 1)
        t_zero(tiles, 1);
    if (pairs > 1) {
        t_zero(tiles, 2);
        if (panels > 1)
            t_zero(tiles, 3);
    }
    for (tile_step step = {0, 0, 0, 0}; step.number < plan->steps; tile_next(plan, &step)) {
        const uint16_t *in = a, *columns = b + (step.number * words - step.skip) * (ptrdiff_t)(2 * ZN_BLOCK);
        ptrdiff_t row_bytes = TILE_BYTES;
        if (tile_in_one_piece(plan, &step)) {
            in += g->segment[step.segment] + step.at;
            row_bytes = g->a_pixel * (ptrdiff_t)sizeof *in;
        } else {
            uint16_t *there = packed + slot++ % TILE_SLOTS * SLOT_VALUES;
            if (plan->apart > TILE_SLOTS)
                tile_pack(plan, &step, pixel, pixels, there);
            in = there;
        }
        t_load(tiles, 4, in, row_bytes);
        t_load(tiles, 6, columns, TILE_BYTES);
        t_dot(tiles, 0, 4, 6);
        if (panels > 1) {
            t_load(tiles, 7, columns + panel_size, TILE_BYTES);
            t_dot(tiles, 1, 4, 7);
        }
        row = tile_finish_share(inlined, has_residual, relu, g, done, row, share, sums);
        if (pairs > 1) {
            t_load(tiles, 5, (const char *)in + TILE_ROWS * row_bytes, row_bytes);
            t_dot(tiles, 2, 5, 6);
            if (panels > 1)
                t_dot(tiles, 3, 5, 7);
        }
        row = tile_finish_share(inlined, has_residual, relu, g, done, row, share, sums);
    }
}

/* A chunk of pixels: whole blocks of TILE_PIXELS, or less than one. */
static void tile_chunk(tile_state *tiles, const tile_plan *plan, ptrdiff_t begin, ptrdiff_t end, uint16_t *packed,
                       float *sums, tile_sums *done)
{
    const zn_gemm *g = plan->g;
    const ptrdiff_t all_panels = g->columns / ZN_BLOCK;
    const int pixels = (int)(end - begin < TILE_PIXELS ? end - begin : TILE_PIXELS);
    const int packs = plan->apart <= TILE_SLOTS, pitch = plan->apart * SLOT_VALUES;
    if (packs)
        for (ptrdiff_t pixel = begin; pixel < end; pixel += TILE_PIXELS)
            tile_pack_all(plan, pixel, pixels, packed + (pixel - begin) / TILE_PIXELS * pitch);
    for (ptrdiff_t panel = 0; panel < all_panels; panel += 2) {
        const int panels = panel + 1 < all_panels ? 2 : 1;
        for (ptrdiff_t pixel = begin; pixel < end; pixel += TILE_PIXELS) {
            uint16_t *const values = packs ? packed + (pixel - begin) / TILE_PIXELS * pitch : packed;
#define MICRO(PAIRS, PANELS, RESIDUAL, RELU, INLINED) \
    do { \
        tile_multiply(PAIRS, PANELS, RESIDUAL, RELU, INLINED, tiles, plan, pixel, pixels, panel, values, done, sums); \
        tile_store(PAIRS, PANELS, tiles, sums); \
    } while (0)
            if (pixels > TILE_ROWS && panels == 2) {
                if (g->float_out || done->panels < 2)
                    MICRO(2, 2, 0, 0, 0);
                else if (g->residual && g->relu)
                    MICRO(2, 2, 1, 1, 1);
                else if (g->residual)
                    MICRO(2, 2, 1, 0, 1);
                else if (g->relu)
                    MICRO(2, 2, 0, 1, 1);
                else
                    MICRO(2, 2, 0, 0, 1);
            } else if (pixels > TILE_ROWS)
                MICRO(2, 1, 0, 0, 0);
            else if (panels == 2)
                MICRO(1, 2, 0, 0, 0);
            else
                MICRO(1, 1, 0, 0, 0);
#undef MICRO
            *done = (tile_sums){pixel, panel, pixels, panels};
        }
    }
}

static void gemm_tiles(const zn_gemm *g)
{
    _Alignas(64) uint16_t packed[TILE_SLOTS * SLOT_VALUES];
    _Alignas(64) float sums[TILE_PIXELS * 2 * ZN_BLOCK];
    if (g->segments * (g->depth / 2) < TILE_LEAST_WORDS) {
        STORED(gemm)(g);
        return;
    }
    const tile_plan plan = tile_make_plan(g);
    const ptrdiff_t chunk = TILE_PIXELS * (plan.steps < TILE_CHUNK ? TILE_CHUNK / plan.steps : 1);
    tile_sums done = {0, 0, 0, 0};
    tile_state tiles;
    for (ptrdiff_t begin = 0, end; begin < g->pixels; begin = end) {
        const ptrdiff_t left = g->pixels - begin;
        const int whole = left >= TILE_PIXELS;
        end = begin + (left >= chunk ? chunk : whole ? left - left % TILE_PIXELS : left);
        if (begin == 0 || !whole) {
            tile_config config;
            tile_shape(&plan, whole ? TILE_PIXELS : (int)left, &config);
            t_configure(&tiles, &config);
        }
        tile_chunk(&tiles, &plan, begin, end, packed, sums, &done);
    }
    tile_finish(g, &done, 0, done.pixels, sums);
    t_release(&tiles);
}
