/* What is measured of a picture's pixels and done to them beside the networks, see zenith.h. Part of
 * kernels.inc.h.
 *
 * Each value is computed by itself, so that all levels give the same bits; plain loops are such as compilers
 * turn into vectors of the level. */

#define STRIP_BLOCKS 16 /* of a row of blocks at a time, whose rows stay in L1 */
#define STRIP (3 * (16 * STRIP_BLOCKS + 2))

static float full_of(int format) { return format == ZN_U8 ? 255 : format == ZN_U16 ? 65535 : 1; }

/* VL values, and their change. */
static ZN_INLINE void add_vector(const int format, void *values, const float *change, vf factor, vf full)
{
    const vf x = format == ZN_U8 ? v_from_u8(values) : format == ZN_U16 ? v_from_u16(values) : v_load(values);
    const vf sum = v_min(v_max(v_add(v_mul(v_load(change), factor), x), v_set1(0)), full);
    if (format == ZN_U8)
        v_to_u8(values, sum);
    else if (format == ZN_U16)
        v_to_u16(values, sum);
    else
        v_store(values, sum);
}

static ZN_INLINE void add_values(const int format, void *values, const float *change, float factor, ptrdiff_t n)
{
    const ptrdiff_t bytes = format == ZN_U8 ? 1 : format == ZN_U16 ? 2 : 4;
    const vf times = v_set1(factor), full = v_set1(full_of(format));
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        add_vector(format, (char *)values + i * bytes, change + i, times, full);
    if (i < n) {
        float rest[VL] = {0}, its_change[VL] = {0};
        memcpy(rest, (char *)values + i * bytes, (size_t)((n - i) * bytes));
        memcpy(its_change, change + i, (size_t)(n - i) * sizeof *change);
        add_vector(format, rest, its_change, times, full);
        memcpy((char *)values + i * bytes, rest, (size_t)((n - i) * bytes));
    }
}

static void add_change(void *values, int format, const float *change, float factor, ptrdiff_t n)
{
    if (format == ZN_U8)
        add_values(ZN_U8, values, change, factor, n);
    else if (format == ZN_U16)
        add_values(ZN_U16, values, change, factor, n);
    else
        add_values(ZN_F32, values, change, factor, n);
}

static ZN_INLINE float most_change(float level, float deviations, float dotted)
{
    float excess = level * dotted;
    excess = excess > 1 ? excess : 1;
    excess *= excess;
    return deviations * level * (excess * excess);
}

/* The smallest or the largest magnitude among n values: they are in the order of their bits, and of whole
 * numbers compilers look for it in vectors. */
static ZN_INLINE float magnitude(const float *x, ptrdiff_t step, ptrdiff_t n, const int largest)
{
    uint32_t found = largest ? 0 : UINT32_MAX, bits;
    float value;
    for (ptrdiff_t i = 0; i < n; i++) {
        memcpy(&bits, x + i * step, sizeof bits);
        bits &= 0x7fffffff;
        found = (bits > found) == largest ? bits : found;
    }
    memcpy(&value, &found, sizeof value);
    return value;
}

static void limit_change(float *change, const float *level, ptrdiff_t step, float deviations, float dotted,
                         ptrdiff_t pixels)
{
    for (ptrdiff_t first = 0; first < pixels; first += STRIP / 3) {
        const ptrdiff_t n = pixels - first < STRIP / 3 ? pixels - first : STRIP / 3;
        const float *here = level + first * step;
        const float least = step == 0 ? *here : step == 1 ? magnitude(here, 1, n, 0) : magnitude(here, step, n, 0);
        float *x = change + 3 * first;
        if (magnitude(x, 1, 3 * n, 1) <= most_change(least, deviations, dotted)) /* as mostly of noisy pictures */
            continue;
        for (ptrdiff_t i = 0; i < n; i++) {
            const float most = most_change(here[i * step], deviations, dotted);
            for (int c = 0; c < 3; c++) {
                const float limit = x[3 * i + c] < most ? x[3 * i + c] : most;
                x[3 * i + c] = limit > -most ? limit : -most;
            }
        }
    }
}

/* n values as floats */
static ZN_INLINE void as_floats(const void *row, int format, ptrdiff_t at, ptrdiff_t n, float *out)
{
    if (format == ZN_U8)
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] = ((const uint8_t *)row + at)[i];
    else if (format == ZN_U16)
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] = ((const uint16_t *)row + at)[i];
    else
        memcpy(out, (const float *)row + at, (size_t)n * sizeof *out);
}

/* Blocks [0, blocks) of a strip that begins `at` values into the rows. */
static void strip_roughness(const void *picture, ptrdiff_t row_bytes, int format, ptrdiff_t at, int blocks,
                            float *out)
{
    float rows[3][STRIP], rough[STRIP], squares[STRIP] = {0}, together[STRIP] = {0}, clipped[STRIP] = {0};
    const float full = full_of(format), unit = 255 / full / 6;
    const int n = 48 * blocks;
    for (int y = 0; y < 16; y++) {
        as_floats((const char *)picture + y * row_bytes, format, at, n + 6, rows[y % 3]);
        if (y < 2)
            continue;
        const float *above = rows[(y - 2) % 3], *row = rows[(y - 1) % 3], *below = rows[y % 3];
        float down[STRIP], ends[STRIP];
        for (int i = 0; i < n + 6; i++)
            down[i] = above[i] - 2 * row[i] + below[i];
        for (int i = 0; i < n; i++) {
            rough[i] = (down[i] - 2 * down[i + 3] + down[i + 6]) * unit;
            squares[i] += rough[i] * rough[i];
            ends[i] = row[i + 3] == 0 || row[i + 3] == full;
        }
        for (int i = 0; i < n - 2; i++) { /* of which every third is used */
            const float sum = rough[i] + rough[i + 1] + rough[i + 2];
            together[i] += sum * sum;
            clipped[i] += ends[i] + ends[i + 1] + ends[i + 2] > 0;
        }
    }
    for (int block = 0; block < blocks; block++) {
        double sums[3] = {0};
        for (int i = 48 * block; i < 48 * (block + 1); i += 3) {
            sums[0] += clipped[i];
            sums[1] += (double)squares[i] + squares[i + 1] + squares[i + 2];
            sums[2] += together[i];
        }
        for (int k = 0; k < 3; k++)
            out[3 * block + k] = (float)sums[k];
    }
}

static void roughness(const void *picture, ptrdiff_t row_bytes, int format, int blocks, float *out)
{
    for (int first = 0; first < blocks; first += STRIP_BLOCKS) {
        const int count = blocks - first < STRIP_BLOCKS ? blocks - first : STRIP_BLOCKS;
        strip_roughness(picture, row_bytes, format, 48 * first, count, out + 3 * first);
    }
}

static void count_clipped(const void *picture, ptrdiff_t row_bytes, int format, int rows, int width, uint8_t *counts)
{
    const float full = full_of(format);
    for (int first = 0; first < width; first += 8 * STRIP_BLOCKS) {
        float values[24 * STRIP_BLOCKS], ends[24 * STRIP_BLOCKS] = {0};
        const int pixels = width - first < 8 * STRIP_BLOCKS ? width - first : 8 * STRIP_BLOCKS;
        for (int k = 0; k < 4; k++) {
            const int y = 2 * k < rows ? 2 * k : (rows - 1) / 2 * 2;
            as_floats((const char *)picture + y * row_bytes, format, 3 * (ptrdiff_t)first, 3 * pixels, values);
            for (int i = 0; i < 3 * pixels; i++)
                ends[i] += values[i] == 0 || values[i] == full;
        }
        for (int x = 0; x < pixels; x += 8) {
            float count = 0;
            for (int k = 0; k < 4; k++) {
                const int at = x + 2 * k < pixels ? x + 2 * k : (pixels - 1) / 2 * 2;
                count += ends[3 * at] + ends[3 * at + 1] + ends[3 * at + 2];
            }
            counts[(first + x) / 8] = (uint8_t)count;
        }
    }
}

static void patches(const void *picture, ptrdiff_t row_bytes, int format, int channel, int step, int count,
                    float *out, float *means)
{
    const float unit = 255 / full_of(format);
    for (int p = 0; p < count; p++, out += ZN_PATCH_VALUES) {
        float sum = 0;
        memset(out, 0, ZN_PATCH_VALUES * sizeof *out);
        for (int y = 0; y < ZN_PATCH; y++) {
            const void *row = (const char *)picture + y * row_bytes;
            const ptrdiff_t at = 3 * (ptrdiff_t)p * step + channel;
            float *to = out + y * ZN_PATCH;
            for (int x = 0; x < ZN_PATCH; x++) {
                to[x] = (format == ZN_U8 ? ((const uint8_t *)row)[at + 3 * x]
                         : format == ZN_U16 ? ((const uint16_t *)row)[at + 3 * x]
                                            : ((const float *)row)[at + 3 * x]) * unit;
                sum += to[x];
            }
        }
        means[p] = sum / (ZN_PATCH * ZN_PATCH);
        for (int i = 0; i < ZN_PATCH * ZN_PATCH; i++)
            out[i] -= means[p];
    }
}

static void blend(const float *above, const float *below, float share, float *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = share * (below[i] - above[i]) + above[i];
}
