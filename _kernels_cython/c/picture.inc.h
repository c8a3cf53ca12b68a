/* Pictures to unshuffled activations and back, see zenith.h. Part of kernels.inc.h.
 *
 * The r * channels values that one picture row gives to one output pixel lie side by side in both
 * layouts. A row goes through a piece of float buffer in L1, in which the conversions work on whole
 * vectors: the conversion is one vector loop over contiguous values, the (un)shuffle is short copies
 * of a length the compiler knows. */

/* n values to [0, 1]; may write up to VL - 1 floats more. */
static void to_unit(const void *in, int format, ptrdiff_t at, ptrdiff_t n, float *out)
{
    ptrdiff_t i = 0;
    if (format == ZN_U8) {
        const uint8_t *p = (const uint8_t *)in + at;
        const vf full = v_set1(255);
        uint8_t rest[VL] = {0};
        for (; i + VL <= n; i += VL)
            v_store(out + i, v_div(v_from_u8(p + i), full));
        if (i < n) {
            memcpy(rest, p + i, (size_t)(n - i));
            v_store(out + i, v_div(v_from_u8(rest), full));
        }
    } else if (format == ZN_U16) {
        const uint16_t *p = (const uint16_t *)in + at;
        const vf full = v_set1(65535);
        uint16_t rest[VL] = {0};
        for (; i + VL <= n; i += VL)
            v_store(out + i, v_div(v_from_u16(p + i), full));
        if (i < n) {
            memcpy(rest, p + i, (size_t)(n - i) * sizeof *p);
            v_store(out + i, v_div(v_from_u16(rest), full));
        }
    } else {
        memcpy(out, (const float *)in + at, (size_t)n * sizeof(float));
    }
}

/* x clipped to [0, 1] (NaN to 0) times `full` */
static ZN_INLINE vf to_full(vf x, float full)
{
    return v_mul(v_min(v_max(x, v_set1(0)), v_set1(1)), v_set1(full));
}

/* The inverse; reads up to VL - 1 floats more. */
static void from_unit(const float *in, ptrdiff_t n, void *out, int format, ptrdiff_t at)
{
    ptrdiff_t i = 0;
    if (format == ZN_U8) {
        uint8_t *p = (uint8_t *)out + at;
        uint8_t rest[VL];
        for (; i + VL <= n; i += VL)
            v_to_u8(p + i, to_full(v_load(in + i), 255));
        if (i < n) {
            v_to_u8(rest, to_full(v_load(in + i), 255));
            memcpy(p + i, rest, (size_t)(n - i));
        }
    } else if (format == ZN_U16) {
        uint16_t *p = (uint16_t *)out + at;
        uint16_t rest[VL];
        for (; i + VL <= n; i += VL)
            v_to_u16(p + i, to_full(v_load(in + i), 65535));
        if (i < n) {
            v_to_u16(rest, to_full(v_load(in + i), 65535));
            memcpy(p + i, rest, (size_t)(n - i) * sizeof *p);
        }
    } else {
        memcpy((float *)out + at, in, (size_t)n * sizeof(float));
    }
}

/* `pixels` runs of `length` floats, from in + i * in_step to out + i * out_step. */
static ZN_INLINE void copy_runs(const int length, const float *in, ptrdiff_t in_step, float *out,
                                ptrdiff_t out_step, ptrdiff_t pixels)
{
    for (ptrdiff_t i = 0; i < pixels; i++)
        memcpy(out + i * out_step, in + i * in_step, (size_t)length * sizeof(float));
}

static void copy_any_runs(int length, const float *in, ptrdiff_t in_step, float *out,
                          ptrdiff_t out_step, ptrdiff_t pixels)
{
#define RUN(LENGTH) \
    case LENGTH: copy_runs(LENGTH, in, in_step, out, out_step, pixels); break
    switch (length) { /* r = 1, 2, 4, 8 with 1, 3 and 4 channels */
    RUN(1);
    RUN(2);
    RUN(3);
    RUN(4);
    RUN(6);
    RUN(8);
    RUN(12);
    RUN(16);
    RUN(24);
    RUN(32);
    default: copy_runs(length, in, in_step, out, out_step, pixels);
    }
#undef RUN
}

/* Zeros channels [used, all) of each pixel in whole vectors; may zero used channels as well. */
static void clear_unused(float *out, ptrdiff_t pixels, int all, int used)
{
    for (ptrdiff_t x = 0; x < pixels && used < all; x++) {
        float *pixel = out + x * all;
        int c = all;
        for (; c > used && c >= VL; c -= VL)
            v_store(pixel + c - VL, v_set1(0));
        for (; c > used; c--)
            pixel[c - 1] = 0;
    }
}

/* RGB and one plane: r groups of four floats a pixel. */
static void interleave(const float *picture, int channels, const float *plane, ptrdiff_t n, float *out)
{
    if (channels == 3)
        for (ptrdiff_t i = 0; i < n; i++) {
            out[4 * i] = picture[3 * i];
            out[4 * i + 1] = picture[3 * i + 1];
            out[4 * i + 2] = picture[3 * i + 2];
            out[4 * i + 3] = plane[i];
        }
    else
        for (ptrdiff_t i = 0; i < n; i++) {
            for (int c = 0; c < channels; c++)
                out[(channels + 1) * i + c] = picture[channels * i + c];
            out[(channels + 1) * i + channels] = plane[i];
        }
}

static void load_picture(const void *picture, ptrdiff_t row_bytes, int format, int channels,
                         const float *plane, ptrdiff_t plane_row, int rows, int width,
                         int r, float *out, int out_width, int out_channels)
{
    float values[ZN_PICTURE_VALUES + VL], mixed[ZN_PICTURE_VALUES];
    const int run = r * (channels + (plane != NULL));
    const ptrdiff_t step = ZN_PICTURE_VALUES / run; /* output pixels in the buffer at a time */

    clear_unused(out, out_width, out_channels, r * run);
    for (int dy = 0; dy < r; dy++) {
        const int y = dy < rows ? dy : rows - 1;
        const void *row = (const char *)picture + y * row_bytes;
        const float *plane_at = plane ? plane + y * plane_row : NULL;
        for (ptrdiff_t x = 0; x < out_width; x += step) {
            const ptrdiff_t count = out_width - x < step ? out_width - x : step;
            const ptrdiff_t first = x * r, end = first + count * r;
            /* picture pixels [first, end), those from `width` on copies of the last */
            const ptrdiff_t start = first < width ? first : width - 1;
            const ptrdiff_t inside = (end < width ? end : width) - start;
            to_unit(row, format, start * channels, inside * channels, values);
            for (ptrdiff_t i = inside * channels; i < count * r * channels; i++)
                values[i] = values[i - channels];
            float *to = out + x * out_channels + dy * run;
            if (!plane) {
                copy_any_runs(run, values, run, to, out_channels, count);
                continue;
            }
            interleave(values, channels, plane_at + start, inside, mixed);
            for (ptrdiff_t i = inside * (channels + 1); i < count * run; i++)
                mixed[i] = mixed[i - channels - 1];
            copy_any_runs(run, mixed, run, to, out_channels, count);
        }
    }
}

static void store_picture(const float *in, int in_width, int in_channels, int r, void *picture,
                          ptrdiff_t row_bytes, int format, int channels, int rows, int width)
{
    float values[ZN_PICTURE_VALUES + VL] = {0};
    const int run = r * channels;
    const ptrdiff_t step = ZN_PICTURE_VALUES / run;

    for (int dy = 0; dy < r && dy < rows; dy++) {
        void *row = (char *)picture + dy * row_bytes;
        for (ptrdiff_t x = 0; x < in_width && x * r < width; x += step) {
            const ptrdiff_t count = in_width - x < step ? in_width - x : step;
            const ptrdiff_t left = width - x * r;
            copy_any_runs(run, in + x * in_channels + dy * run, in_channels, values, run, count);
            from_unit(values, (count * r < left ? count * r : left) * channels, row, format,
                      x * r * channels);
        }
    }
}
