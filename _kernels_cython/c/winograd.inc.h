/* The transforms of Winograd's convolution, see zenith.h. Part of storage.inc.h.
 *
 * Four outputs of a 3-tap filter take six products instead of twelve, 4 x 4 outputs of a 3 x 3 filter
 * 36 instead of 144: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016. The
 * matrices are Cook's and Toom's for the points 0, 1/a, -1/a, a, -a and infinity, where a is the root
 * of 2. Points and their inverses keep all entries near 1: a convolution rounds about six times as
 * much as a direct sum, with the customary 0, 1, -1, 2, -2 two or three times as much again. Weights
 * are transformed in packing.py. As in the other transforms over pixels, lanes are channels. */

#define TILE_IN ZN_WINOGRAD_IN
#define TILE_OUT ZN_WINOGRAD_OUT

static void STORED(winograd_in)(const void *const *from, int width, int channels, int tiles, void *to,
                                ptrdiff_t plane)
{
    for (int t = 0; t < tiles; t++) {
        const ptrdiff_t x = (ptrdiff_t)t * TILE_OUT;
        VALUE *out = (VALUE *)to + (ptrdiff_t)t * channels;
        const VALUE *in[TILE_IN];
        for (int i = 0; i < TILE_IN; i++)
            in[i] = (const VALUE *)from[i] + x * channels;
        for (ptrdiff_t c = 0; c < channels; c += VL) {
            vf column[TILE_IN][TILE_IN];
            for (int j = 0; j < TILE_IN; j++) {
                const int inside = x + j < width;
                vf d[TILE_IN];
                ZN_UNROLL
                for (int i = 0; i < TILE_IN; i++)
                    d[i] = inside ? s_load(in[i] + j * channels + c) : v_set1(0);
                winograd_six(d, column[j]);
            }
            for (int i = 0; i < TILE_IN; i++) {
                vf d[TILE_IN], v[TILE_IN];
                ZN_UNROLL
                for (int j = 0; j < TILE_IN; j++)
                    d[j] = column[j][i];
                winograd_six(d, v);
                ZN_UNROLL
                for (int j = 0; j < TILE_IN; j++)
                    s_store(out + (i * TILE_IN + j) * plane + c, v[j]);
            }
        }
    }
}

static void STORED(winograd_out)(const float *from, ptrdiff_t plane, const float *bias,
                                 const void *residual, ptrdiff_t residual_row, void *to, ptrdiff_t out_row,
                                 int rows, int width, int channels, int relu)
{
    const vf least = v_set1(relu ? 0 : -INFINITY);
    for (ptrdiff_t x = 0; x < width; x += TILE_OUT) {
        const float *in = from + x / TILE_OUT * channels;
        const VALUE *other = residual ? (const VALUE *)residual + x * channels : NULL;
        VALUE *out = (VALUE *)to + x * channels;
        const int columns = width - x < TILE_OUT ? (int)(width - x) : TILE_OUT;
        for (ptrdiff_t c = 0; c < channels; c += VL) {
            const vf start = bias ? v_load(bias + c) : v_set1(0);
            vf column[TILE_IN][TILE_OUT];
            for (int j = 0; j < TILE_IN; j++) {
                vf m[TILE_IN];
                ZN_UNROLL
                for (int i = 0; i < TILE_IN; i++)
                    m[i] = v_load(in + (i * TILE_IN + j) * plane + c);
                winograd_four(m, column[j]);
            }
            for (int i = 0; i < rows; i++) {
                vf m[TILE_IN], y[TILE_OUT];
                ZN_UNROLL
                for (int j = 0; j < TILE_IN; j++)
                    m[j] = column[j][i];
                winograd_four(m, y);
                ZN_UNROLL
                for (int j = 0; j < TILE_OUT; j++)
                    if (j < columns) {
                        y[j] = v_add(y[j], start);
                        if (other)
                            y[j] = v_add(y[j], s_load(other + i * residual_row + j * channels + c));
                        s_store(out + i * out_row + j * channels + c, v_max(least, y[j]));
                    }
            }
        }
    }
}

#undef TILE_IN
#undef TILE_OUT
