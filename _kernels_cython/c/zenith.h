/* The kernels of zenith-ae: tables of functions, one per instruction-set level and storage type.
 *
 * Activations are NHWC with channels padded with zeros to a multiple of ZN_BLOCK. They are stored as
 * float32 or as bf16 (the upper half of a float32, in a uint16_t); `void` stands for either, and
 * all strides are in such values unless said otherwise. Arithmetic is float32 in both cases: bf16
 * is widened when it is read, and a result is rounded once, to nearest, when it is stored.
 *
 * A kernel works on one row of pixels (or one row of tiles), never starts a thread and never
 * allocates: bands, threads and memory belong to plan.c. For a given level and storage type the
 * result for a pixel does not depend on where in the row it stands nor on how many pixels the call
 * handles, so that tiles and threads never change a bit.
 *
 * The same algorithms (kernels.inc.h) are compiled once a level over the vector layer of a shim
 * (level_generic.c, level_avx2.c, ...); dispatch.c chooses at run time.
 */
#ifndef ZENITH_H
#define ZENITH_H

#include <stddef.h>
#include <stdint.h>

#define ZN_BLOCK 16      /* channel padding; also the width of a packed weight panel */
#define ZN_MAX_SEGMENTS 64 /* a pixel (un)shuffle by 8 has 64 */
#define ZN_SPLIT_CHANNELS 64
#define ZN_INT16_DEPTH 4096 /* values of a sum */
#define ZN_PATCH 5         /* side of a patch in which noise is measured */
#define ZN_PATCH_VALUES 32 /* of a patch and what fills it up */
#define ZN_MOMENT_PIXELS 64 /* summed in float32 */
#define ZN_PICTURE_VALUES 2048 /* r * channels of a picture's row at most, see load_picture */
#define ZN_WINOGRAD_IN 6   /* side of an input tile, of which there are 36 products */
#define ZN_WINOGRAD_OUT 4  /* side of an output tile */

/* Matrix product over "segments" of the input, the one workhorse of the library:
 *
 *   out[p, n] = act( bias[n] + sum_s sum_k a[p * a_pixel + segment[s] + k] * b[n, s, k]
 *                    + residual[p * residual_pixel + n] )
 *
 * for p < pixels, n < columns, s < segments, k < depth. One segment is a 1x1 convolution; nine
 * are a 3x3 one (the input has a border of zeros); r * r are a pixel unshuffle followed by a
 * 1x1; four are a 3x3 one on a nearest-upsampled input, one phase a call. Column blocks may be
 * stored anywhere, so a pixel shuffle is only an address:
 *
 *   out[p * out_pixel + block[n / 16] + n % 16]
 *
 * and the residual is read at residual[p * residual_pixel + n], or likewise from
 * residual[p * residual_pixel + residual_block[n / 16] + n % 16]. Sums run over s, then k, in
 * order, as fused multiply-adds where the level has them, starting from bias: every path gives
 * the same bits. With bf16 the two products of a pair of channels are added one after the other,
 * the odd channel first; products of bf16 are exact, so all levels below amx give the same bits, but
 * for numbers below 2^-126. At level amx sums run in another order, see gemm_tiles.inc.h.
 */
typedef struct zn_gemm {
    const void *a;
    ptrdiff_t a_pixel;            /* from one output pixel's input to the next one's */
    int segments;
    const ptrdiff_t *segment;     /* offsets into a */
    int depth;                    /* channels read per segment; even for bf16 */
    const void *b;                /* packed [columns / 16][segments * depth][16], or for bf16 pairs
                                   * along the depth, [columns / 16][segments * depth / 2][16][2] */
    const float *bias;            /* [columns] or NULL */
    const void *residual;         /* or NULL */
    ptrdiff_t residual_pixel;
    const ptrdiff_t *residual_block; /* [columns / 16] offsets into residual, or NULL */
    void *out;
    int float_out;                /* out is float32 whatever the storage type, and its strides floats */
    ptrdiff_t out_pixel;
    const ptrdiff_t *block;       /* [columns / 16] offsets into out */
    int pixels;
    int columns;                  /* a multiple of 16 */
    int relu;
} zn_gemm;

/* Pixel formats of pictures. Values are scaled to [0, 1] on load; on store they are clipped to
 * [0, 1] and rounded to nearest for the integer formats, and stored as they are for float. */
enum { ZN_U8 = 0, ZN_U16 = 1, ZN_F32 = 2 };

/* How activations are stored. ZN_BF16_TILES is bf16 with products as the level amx computes them: at
 * that level the same as ZN_BF16, at others emulated, slowly, for tests. */
enum { ZN_FLOAT = 0, ZN_BF16 = 1, ZN_BF16_TILES = 2, ZN_STORAGES = 3 };

typedef struct zn_kernels {
    int value_bytes; /* of a stored value */

    void (*gemm)(const zn_gemm *g);

    /* The same on float32 activations, but computed with 16-bit integers; NULL for bf16. b is packed
     * [columns / 16][1 + segments * depth / 2][16] words, of a panel first the factors (float) of its
     * columns, then pairs of int16 along the depth, which is even; segments * depth <= ZN_INT16_DEPTH. The
     * values of a pixel are rounded to nearest integers of at most 2^13 times a power of two of its own;
     * 2^13 times the sum of a column's magnitudes must be below 2^31. */
    void (*gemm_int16)(const zn_gemm *g);

    /* Depthwise 3x3 on one row. above, row and below point at channel 0 of pixel 0 of three
     * consecutive rows (NULL outside the picture); columns outside [0, width) count as zero.
     * out[p, c] = act(sum_{ij} weight[(i * 3 + j) * channels + c] * in + bias[c] + add[p, c])
     * bias and add may be NULL; out may be add. channels is a multiple of 16, pixels are
     * `channels` values apart in every array. */
    void (*depthwise)(const void *above, const void *row, const void *below,
                      const float *weight, const float *bias, const void *add, void *out,
                      int width, int channels, int relu);

    /* Walsh-Hadamard mixing of one row of T x T tiles (T = 4, 8, 16), each channel by itself:
     *   out = WHT(shrink(gate * WHT(in), threshold)) / T^2
     * in and out: `rows` <= T rows of `width` pixels, in_row and out_row values apart; what
     * lies outside counts as zero and is not stored. gate and threshold: [T * T][channels] with
     * gate already divided by T^2 and so threshold; threshold may be NULL; in may be out. */
    void (*wht_tiles)(const void *in, ptrdiff_t in_row, void *out, ptrdiff_t out_row,
                      int rows, int width, int channels, int T,
                      const float *gate, const float *threshold);

    /* The separable form: along rows (over x) with gate [T][channels], then along columns with a
     * second gate, thresholds likewise (NULL: none); gates and thresholds already divided by T. */
    void (*wht_tiles_separable)(const void *in, ptrdiff_t in_row, void *out, ptrdiff_t out_row,
                                int rows, int width, int channels, int T,
                                const float *row_gate, const float *row_threshold,
                                const float *column_gate, const float *column_threshold);

    /* A 3x3 convolution of stride 1 by Winograd's algorithm: winograd_in, 36 products, winograd_out.
     *
     * winograd_in transforms a row of `tiles` input tiles of 6 x 6 pixels, 4 pixels apart: the value
     * (i, j) of tile t goes to out[(i * 6 + j) * plane + t * channels + c]. in[0] to in[5] are where the
     * rows of the first tile begin, one pixel above and left of what it gives outputs for. `width`
     * pixels of a row are read; what lies beyond counts as zero.
     *
     * winograd_out makes of such products (float32) a row of output tiles of 4 x 4 pixels:
     *   out = act(transformed + bias[c] + residual)
     * rows <= 4 rows of `width` pixels are written; bias and residual may be NULL. Pixels are
     * `channels` values apart in all arrays. */
    void (*winograd_in)(const void *const *in, int width, int channels, int tiles, void *out,
                        ptrdiff_t plane);
    void (*winograd_out)(const float *in, ptrdiff_t plane, const float *bias, const void *residual,
                         ptrdiff_t residual_row, void *out, ptrdiff_t out_row, int rows, int width,
                         int channels, int relu);

    /* Elementwise on n values: out = max(x, 0); out = tanh(x / limit) * limit (absolute error
     * below 1e-6 * limit, before rounding); out = x + y (any may alias). */
    void (*relu)(const void *x, void *out, ptrdiff_t n);
    void (*soft_clamp)(const void *x, void *out, ptrdiff_t n, float limit);
    void (*add)(const void *x, const void *y, void *out, ptrdiff_t n);
    void (*from_floats)(const float *x, void *out, ptrdiff_t n); /* only rounds */
    void (*to_floats)(const void *x, float *out, ptrdiff_t n);

    /* Group norm in two steps. moments tells of `pixels` pixels what the mean and the variance of any
     * linear map of them are made of: to moments[i * channels + j] it adds the sum of x_i * x_j, for
     * i <= j and in the rest of each 16 x 16 on the diagonal, and to moments[channels * channels + i]
     * that of x_i. Sums are float32 over ZN_MOMENT_PIXELS pixels, and double from there on.
     * scale_shift then applies out = act(x * scale[c] + shift[c]). x is float32 and `channels` a multiple
     * of 16; out may be x where values are floats. */
    void (*moments)(const float *x, int pixels, int channels, double *moments);
    void (*scale_shift)(const float *x, const float *scale, const float *shift, void *out,
                        int pixels, int channels, int relu);

    /* The rest does not depend on the storage type. */

    /* One row of an unshuffled activation from r rows of a picture: out[x, (dy * r + dx) * C + c]
     * = picture[dy][(x * r + dx) * channels + c] for c < channels. C = channels, or one more where
     * there is a `plane` (float32, one value a picture pixel, rows plane_row apart; else NULL), which
     * is the last. Pixels beyond `width` or rows beyond `rows` repeat the last one. out_channels
     * >= r * r * C values a pixel, the rest zero. */
    void (*load_picture)(const void *picture, ptrdiff_t row_bytes, int format, int channels,
                         const float *plane, ptrdiff_t plane_row,
                         int rows, int width, int r, float *out, int out_width, int out_channels);

    /* The inverse for r rows: picture[dy][(x * r + dx) * channels + c] from
     * in[x, (dy * r + dx) * channels + c], clipped to `rows` rows and `width` pixels. */
    void (*store_picture)(const float *in, int in_width, int in_channels, int r, void *picture,
                          ptrdiff_t row_bytes, int format, int channels, int rows, int width);

    /* Pictures beside the networks (see zenith_ae/changes.py and noise_levels.py), of RGB unless said otherwise.
     *
     * add_change: values += factor * change, clipped to [0, the format's largest] ([0, 1] of floats) and
     * rounded to nearest; n values.
     * limit_change: clips change[3 * p + c] to plus or minus deviations * L * max(1, L * dotted)^4 of the pixel's
     * level L, level[p * step].
     * roughness: of `blocks` blocks of 16 x 16 pixels side by side, from the 16 rows and 16 * blocks + 2 pixels
     * from `picture` on, to out[3 * block + ...]: [0] how many of the inner 14 x 16 pixels (a pixel right of
     * and below where the block begins) have a channel that is 0 or full; [1] the sum of squares of their
     * second differences down and across, over 6 and in units of 0..255; [2] that of the sums of three channels.
     * count_clipped: of each 8 x 8 pixels of `rows` <= 8 rows, how many of the values of every second pixel in
     * every second row are 0 or full; what lies beyond counts as the last of those.
     * patches: the ZN_PATCH x ZN_PATCH values of one channel, in units of 0..255, of `count` patches `step` pixels
     * apart in the ZN_PATCH rows from `picture` on: less their mean, ZN_PATCH_VALUES apart with zeros behind,
     * to `out`, and the mean to `means`.
     * blend: out = above + share * (below - above). */
    void (*add_change)(void *values, int format, const float *change, float factor, ptrdiff_t n);
    void (*limit_change)(float *change, const float *level, ptrdiff_t step, float deviations, float dotted,
                         ptrdiff_t pixels);
    void (*roughness)(const void *picture, ptrdiff_t row_bytes, int format, int blocks, float *out);
    void (*count_clipped)(const void *picture, ptrdiff_t row_bytes, int format, int rows, int width,
                          uint8_t *counts);
    void (*patches)(const void *picture, ptrdiff_t row_bytes, int format, int channel, int step, int count,
                    float *out, float *means);
    void (*blend)(const float *above, const float *below, float share, float *out, ptrdiff_t n);

    /* Floats as sums of two bf16: out[p, c] = in[p, c] rounded and out[p, channels + c] = the
     * difference, rounded; channels <= ZN_SPLIT_CHANNELS. */
    void (*split)(const float *in, int channels, uint16_t *out, int pixels);

    /* Gradients of wht_tiles for training: given in (float32) and grad_out, both like `in`
     * above, writes grad_in and adds to grad_gate and grad_threshold ([T * T][channels]). */
    void (*wht_tiles_backward)(const float *in, ptrdiff_t in_row, const float *grad_out,
                               ptrdiff_t grad_row, float *grad_in, ptrdiff_t grad_in_row,
                               int rows, int width, int channels, int T,
                               const float *gate, const float *threshold,
                               float *grad_gate, float *grad_threshold);

    /* In-place unnormalised Walsh-Hadamard transform, natural order, of `count` vectors of n
     * floats (n a power of two >= 1), `stride` floats apart. */
    void (*fwht)(float *x, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t n);
} zn_kernels;

/* dispatch.c */
enum {
    ZN_GENERIC, ZN_NEON, ZN_AVX2, ZN_AVX2VNNI, ZN_AVX512, ZN_AVX512VNNI, ZN_AVX512BF16, ZN_AMX, /* by what they need */
    ZN_LEVELS
};
const char *zn_level_name(int level);
int zn_level_compiled(int level);
int zn_level_available(int level); /* compiled in and the CPU and OS have it */
int zn_level_fast_bf16(int level); /* bf16 by instructions of the level; elsewhere it is emulated */
int zn_level_fast_int16(int level); /* whether int16 beats float32; not asked where bf16 is fast */
int zn_best_level(void); /* the fastest one for this CPU */
const zn_kernels *zn_kernels_for(int level, int storage); /* NULL where not available */

/* What else the CPU has that matters here, used or not. */
enum {
    ZN_HAS_AVX512_VNNI = 1, ZN_HAS_AVX512_BF16 = 2, ZN_HAS_AMX_BF16 = 4, ZN_HAS_AMX_INT8 = 8, ZN_HAS_AVX_VNNI = 16
};
int zn_cpu_features(void);

#endif
