/* Pictures to unshuffled activations, see zenith.h and picture.inc.h. Part of storage.inc.h. */

/* Zeros channels [used, all) of each pixel in whole vectors; may zero used channels as well. */
static void STORED(clear_unused)(VALUE *out, ptrdiff_t pixels, int all, int used)
{
    for (ptrdiff_t x = 0; x < pixels && used < all; x++) {
        VALUE *pixel = out + x * all;
        int c = all;
        for (; c > used && c >= VL; c -= VL)
            s_store(pixel + c - VL, v_set1(0));
        for (; c > used; c--)
            pixel[c - 1] = 0;
    }
}

/* n floats as they are stored, in place; may round up to VL - 1 floats more. */
static ZN_INLINE void STORED(narrow)(float *values, ptrdiff_t n)
{
    if (PER_WORD > 1)
        for (ptrdiff_t i = 0; i < n; i += VL)
            s_store((VALUE *)(void *)values + i, v_load(values + i));
}

static void STORED(load_picture)(const void *picture, ptrdiff_t row_bytes, int format, int channels,
                                 const float *plane, ptrdiff_t plane_row, int extra, int rows,
                                 int width, int r, void *to, int out_width, int out_channels)
{
    VALUE *out = to;
    float values[PIECE + VL], mixed[PIECE + VL];
    const int run = r * (channels + extra);
    const ptrdiff_t step = PIECE / run; /* output pixels in the buffer at a time */

    STORED(clear_unused)(out, out_width, out_channels, r * run);
    for (int dy = 0; dy < r; dy++) {
        const int y = dy < rows ? dy : rows - 1;
        const void *row = (const char *)picture + y * row_bytes;
        const float *plane_at = extra ? plane + y * plane_row : NULL;
        for (ptrdiff_t x = 0; x < out_width; x += step) {
            const ptrdiff_t count = out_width - x < step ? out_width - x : step;
            const ptrdiff_t first = x * r, end = first + count * r;
            /* picture pixels [first, end), those from `width` on copies of the last */
            const ptrdiff_t start = first < width ? first : width - 1;
            const ptrdiff_t inside = (end < width ? end : width) - start;
            to_unit(row, format, start * channels, inside * channels, values);
            for (ptrdiff_t i = inside * channels; i < count * r * channels; i++)
                values[i] = values[i - channels];
            float *run_values = values;
            if (extra) {
                interleave(values, channels, plane_at + start, inside, mixed);
                for (ptrdiff_t i = inside * (channels + 1); i < count * run; i++)
                    mixed[i] = mixed[i - channels - 1];
                run_values = mixed;
            }
            STORED(narrow)(run_values, count * run);
            copy_any_runs((size_t)run * sizeof *out, run_values, run * (ptrdiff_t)sizeof *out,
                          out + x * out_channels + dy * run, out_channels * (ptrdiff_t)sizeof *out,
                          count);
        }
    }
}
