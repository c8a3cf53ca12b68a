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
#define TILE_STEPS 256     /* of a product at most; sums that are deeper are the vectors' */
#define SLOT_BYTES (TILE_PIXELS * TILE_BYTES)

/* Where the values of a step are. */
typedef struct tile_step {
    int segment, at, skip;   /* the last step, if it is not the only one, may begin with `skip` words of zeros */
    int apart;               /* they lie in more than one piece, and are put together first */
    ptrdiff_t in, row_bytes; /* bytes from the block's first pixel, or of those put together; between pixels */
    ptrdiff_t columns;       /* values from the beginning of a panel of b */
} tile_step;

/* A product in steps. */
typedef struct tile_plan {
    const zn_gemm *g;
    int words;   /* of a step */
    int count;
    int missing; /* words that the last step has less than that */
    int apart;   /* steps that are */
    tile_step steps[TILE_STEPS];
} tile_plan;

static void tile_plan_steps(tile_plan *plan, const zn_gemm *g, int words)
{
    const int all = g->segments * (g->depth / 2);
    int segment = 0, at = 0;
    plan->g = g;
    plan->words = words;
    plan->count = (all + words - 1) / words;
    plan->missing = plan->count * words - all;
    plan->apart = 0;
    for (int i = 0; i < plan->count; i++) {
        tile_step *step = plan->steps + i;
        step->segment = segment;
        step->at = at;
        step->skip = i == plan->count - 1 ? plan->missing : 0;
        step->apart = step->skip > 0 || at + 2 * words > g->depth;
        step->in = step->apart ? plan->apart % TILE_SLOTS * SLOT_BYTES : (g->segment[segment] + at) * (ptrdiff_t)2;
        step->row_bytes = step->apart ? TILE_BYTES : g->a_pixel * (ptrdiff_t)2;
        step->columns = (i * words - step->skip) * (ptrdiff_t)(2 * ZN_BLOCK);
        plan->apart += step->apart;
        at += 2 * words;
        for (; at >= g->depth; segment++)
            at -= g->depth;
    }
}

/* As few steps as there can be; of one segment none deeper than that takes, as a step takes as long with less
 * and needs no zeros. Planes have a step each where that is half as many again at most: putting pixels together
 * costs more. Nothing else may depend on segments: those of the same layer are sometimes joined, where pixels
 * are dense, and the sums must have the same bits. */
static int tile_words(const zn_gemm *g)
{
    const int all = g->segments * (g->depth / 2), least = (all + TILE_WORDS - 1) / TILE_WORDS;
    if (g->segments == 1)
        return (all + least - 1) / least;
    if (g->depth == ZN_BLOCK && 2 * g->segments <= 3 * least)
        return ZN_BLOCK / 2;
    return all < TILE_WORDS ? all : TILE_WORDS;
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
static void tile_pack_all(const tile_plan *plan, ptrdiff_t pixel, int pixels, char *packed)
{
    for (const tile_step *step = plan->steps; step < plan->steps + plan->count; step++)
        if (step->apart)
            tile_pack(plan, step, pixel, pixels, (uint16_t *)(void *)(packed + step->in));
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

/* Where the results of sums go, what is added to them, and how far that is: of `panels` panels. */
typedef struct tile_rest {
    vf bias[2 * ZN_BLOCK / VL];
    const float *sums;
    const uint16_t *residual[2];
    uint16_t *to[2];
    ptrdiff_t out_pixel, residual_pixel;
    int left; /* pixels */
} tile_rest;

static ZN_INLINE void tile_rest_of(const int panels, const int has_residual, const zn_gemm *g, const tile_sums *done,
                                   const float *sums, tile_rest *rest)
{
    ZN_UNROLL
    for (int v = 0; v < panels * ZN_BLOCK / VL; v++)
        rest->bias[v] = g->bias ? v_load(g->bias + done->panel * ZN_BLOCK + v * VL) : v_set1(0);
    ZN_UNROLL
    for (int i = 0; i < panels; i++) {
        const ptrdiff_t panel = done->panel + i;
        rest->to[i] = (uint16_t *)g->out + done->pixel * g->out_pixel + g->block[panel];
        if (has_residual)
            rest->residual[i] = (const uint16_t *)g->residual + done->pixel * g->residual_pixel
                              + (g->residual_block ? g->residual_block[panel] : panel * ZN_BLOCK);
    }
    rest->sums = sums;
    rest->out_pixel = g->out_pixel;
    rest->residual_pixel = g->residual_pixel;
    rest->left = done->pixels;
}

/* Finishes the next `share` pixels, or what is left. */
static ZN_INLINE void tile_finish(const int panels, const int has_residual, const int relu, tile_rest *rest, int share)
{
    const int count = share < rest->left ? share : rest->left;
    rest->left -= count;
    for (int p = 0; p < count; p++) {
        ZN_UNROLL
        for (int i = 0; i < panels; i++) {
            ZN_UNROLL
            for (int v = 0; v < ZN_BLOCK; v += VL) {
                vf sum = v_add(rest->bias[(i * ZN_BLOCK + v) / VL], v_load(rest->sums + i * ZN_BLOCK + v));
                if (has_residual)
                    sum = v_add(sum, v_load_bf16(rest->residual[i] + v));
                if (relu)
                    sum = v_max(v_set1(0), sum);
                v_store_bf16(rest->to[i] + v, sum);
            }
            rest->to[i] += rest->out_pixel;
            if (has_residual)
                rest->residual[i] += rest->residual_pixel;
        }
        rest->sums += 2 * ZN_BLOCK;
    }
}

/* All that is left to do with sums. */
static void tile_finish_all(const zn_gemm *g, const tile_sums *done, const float *sums)
{
    tile_rest rest;
#define FINISH(PANELS, RESIDUAL, RELU) \
    do { \
        tile_rest_of(PANELS, RESIDUAL, g, done, sums, &rest); \
        tile_finish(PANELS, RESIDUAL, RELU, &rest, TILE_PIXELS); \
    } while (0)
    if (g->float_out) {
        for (int p = 0; p < done->pixels; p++)
            for (int i = 0; i < done->panels; i++) {
                vf sum[1][GEMM_WIDEST];
                for (int v = 0; v < ZN_BLOCK / VL; v++)
                    sum[0][v] = v_load(sums + (p * 2 + i) * ZN_BLOCK + v * VL);
                if (g->bias)
                    for (int v = 0; v < ZN_BLOCK / VL; v++)
                        sum[0][v] = v_add(sum[0][v], v_load(g->bias + (done->panel + i) * ZN_BLOCK + v * VL));
                STORED(gemm_finish)(1, 1, g, done->pixel + p, done->panel + i, sum);
            }
    } else if (done->panels == 2 && g->residual && g->relu)
        FINISH(2, 1, 1);
    else if (done->panels == 2 && g->residual)
        FINISH(2, 1, 0);
    else if (done->panels == 2)
        FINISH(2, 0, g->relu);
    else if (done->panels == 1 && g->residual)
        FINISH(1, 1, g->relu);
    else if (done->panels == 1)
        FINISH(1, 0, g->relu);
#undef FINISH
}

/* Up to 2 x 2 tiles of sums of the block of pixels at `a`. Steps that are apart are in `packed`, or where it does
 * not hold them all are put there one by one. Where `shares` is set the sums before, of two panels, are finished
 * meanwhile, a share of them twice a step. */
static ZN_INLINE void tile_multiply(const int pairs, const int panels, const int has_residual, const int relu,
                                    const int shares, tile_state *tiles, const tile_plan *plan,
                                    ptrdiff_t pixel, int pixels, ptrdiff_t panel, char *packed,
                                    const tile_sums *done, const float *sums)
{
    const zn_gemm *g = plan->g;
    const int count = plan->count, one_by_one = plan->apart > TILE_SLOTS;
    const ptrdiff_t panel_values = (ptrdiff_t)(count * plan->words - plan->missing) * 2 * ZN_BLOCK;
    const char *const a = (const char *)g->a + pixel * g->a_pixel * (ptrdiff_t)2;
    const uint16_t *const b = (const uint16_t *)g->b + panel * panel_values;
    tile_rest rest;
    int share = 1;
    if (shares)
        tile_rest_of(2, has_residual, g, done, sums, &rest);
    while (2 * share * count < TILE_PIXELS) /* a power of two: loops of one length are foreseen */
        share *= 2;

    t_zero(tiles, 0);
    if (panels > 1)
        t_zero(tiles, 1);
    if (pairs > 1) {
        t_zero(tiles, 2);
        if (panels > 1)
            t_zero(tiles, 3);
    }
    for (const tile_step *step = plan->steps, *const end = step + count; step < end; step++) {
        const char *const in = (step->apart ? packed : a) + step->in;
        const uint16_t *const columns = b + step->columns;
        const ptrdiff_t row_bytes = step->row_bytes;
        if (one_by_one && step->apart)
            tile_pack(plan, step, pixel, pixels, (uint16_t *)(void *)(packed + step->in));
        t_load(tiles, 4, in, row_bytes);
        t_load(tiles, 6, columns, TILE_BYTES);
        t_dot(tiles, 0, 4, 6);
        if (panels > 1) {
            t_load(tiles, 7, columns + panel_values, TILE_BYTES);
            t_dot(tiles, 1, 4, 7);
        }
        if (shares)
            tile_finish(2, has_residual, relu, &rest, share);
        if (pairs > 1) {
            t_load(tiles, 5, in + TILE_ROWS * row_bytes, row_bytes);
            t_dot(tiles, 2, 5, 6);
            if (panels > 1)
                t_dot(tiles, 3, 5, 7);
        }
        if (shares)
            tile_finish(2, has_residual, relu, &rest, share);
    }
    if (!shares)
        tile_finish_all(g, done, sums);
}

/* A chunk of pixels: whole blocks of TILE_PIXELS, or less than one. */
static void tile_chunk(tile_state *tiles, const tile_plan *plan, ptrdiff_t begin, ptrdiff_t end, char *packed,
                       float *sums, tile_sums *done)
{
    const zn_gemm *g = plan->g;
    const ptrdiff_t all_panels = g->columns / ZN_BLOCK;
    const int pixels = (int)(end - begin < TILE_PIXELS ? end - begin : TILE_PIXELS);
    const int packs = plan->apart <= TILE_SLOTS, pitch = plan->apart * SLOT_BYTES;
    if (packs)
        for (ptrdiff_t pixel = begin; pixel < end; pixel += TILE_PIXELS)
            tile_pack_all(plan, pixel, pixels, packed + (pixel - begin) / TILE_PIXELS * pitch);
    for (ptrdiff_t panel = 0; panel < all_panels; panel += 2) {
        const int panels = panel + 1 < all_panels ? 2 : 1;
        for (ptrdiff_t pixel = begin; pixel < end; pixel += TILE_PIXELS) {
            char *const values = packs ? packed + (pixel - begin) / TILE_PIXELS * pitch : packed;
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
    _Alignas(64) char packed[TILE_SLOTS * SLOT_BYTES];
    _Alignas(64) float sums[TILE_PIXELS * 2 * ZN_BLOCK];
    tile_plan plan;
    const int all = g->segments * (g->depth / 2), words = tile_words(g);
    if (all < TILE_LEAST_WORDS || all > TILE_STEPS * words) {
        STORED(gemm)(g);
        return;
    }
    tile_plan_steps(&plan, g, words);
    const ptrdiff_t chunk = TILE_PIXELS * (plan.count < TILE_CHUNK ? TILE_CHUNK / plan.count : 1);
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
    tile_finish_all(g, &done, sums);
    t_release(&tiles);
}
