/* Pictures to floats and back, see zenith.h; load_picture.inc.h is the other half. Part of
 * kernels.inc.h.
 *
 * The r * channels values that one picture row gives to one output pixel lie side by side in both
 * layouts. A row goes through a piece of float buffer in L1: the conversion is one vector loop
 * over contiguous values, the (un)shuffle is short copies of a length the compiler knows. */

#define PIECE 2048 /* floats of the buffer; the conversions work on whole vectors in it */

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

/* `pixels` runs of `length` bytes, from in + i * in_step to out + i * out_step, steps in bytes. */
static ZN_INLINE void copy_runs(const size_t length, const void *in, ptrdiff_t in_step, void *out,
                                ptrdiff_t out_step, ptrdiff_t pixels)
{
    for (ptrdiff_t i = 0; i < pixels; i++)
        memcpy((char *)out + i * out_step, (const char *)in + i * in_step, length);
}

static void copy_any_runs(size_t length, const void *in, ptrdiff_t in_step, void *out,
                          ptrdiff_t out_step, ptrdiff_t pixels)
{
#define RUN(LENGTH) \
    case LENGTH: copy_runs(LENGTH, in, in_step, out, out_step, pixels); break
    switch (length) { /* r = 1, 2, 4, 8 with 1, 3 and 4 channels of 4 or 2 bytes */
    RUN(2);
    RUN(4);
    RUN(6);
    RUN(8);
    RUN(12);
    RUN(16);
    RUN(24);
    RUN(32);
    RUN(48);
    RUN(64);
    RUN(96);
    RUN(128);
    default: copy_runs(length, in, in_step, out, out_step, pixels);
    }
#undef RUN
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

static void store_picture(const float *in, int in_width, int in_channels, int r, void *picture,
                          ptrdiff_t row_bytes, int format, int channels, int rows, int width)
{
    float values[PIECE + VL] = {0};
    const int run = r * channels;
    const ptrdiff_t step = PIECE / run;

    for (int dy = 0; dy < r && dy < rows; dy++) {
        void *row = (char *)picture + dy * row_bytes;
        for (ptrdiff_t x = 0; x < in_width && x * r < width; x += step) {
            const ptrdiff_t count = in_width - x < step ? in_width - x : step;
            const ptrdiff_t left = width - x * r;
            copy_any_runs((size_t)run * sizeof *in, in + x * in_channels + dy * run,
                          in_channels * (ptrdiff_t)sizeof *in, values, run * (ptrdiff_t)sizeof *values, count);
            from_unit(values, (count * r < left ? count * r : left) * channels, row, format,
                      x * r * channels);
        }
    }
}
