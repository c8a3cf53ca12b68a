/* Loss and gradients of a U-net of Zenith blocks by AMX: what `train_expert.py` calls for every batch.

   A crop goes through the whole network and back on one thread, so that a layer's numbers are still in the
   core's cache when the next one wants them. Numbers between layers are bf16 and sums are float32, as under
   torch's autocast. Pictures are [pixel][channel]. The channels of an unshuffled picture are ordered
   (row of the 2x2, column of it, channel), which makes shuffling a matter of whole runs of memory; the weights
   come in this order.

   A matrix product of bf16 takes pairs along the summed dimension: in rows of A they lie next to each other,
   for B they are interleaved, in tiles of 16 x 16 pairs. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INLINE static inline __attribute__((always_inline))
enum { TILE = 16, CHUNK = 32, STRIP = 512, MOST_OPS = 64, MOST_CHANNELS = 1024 };
enum Kind { LINEAR, BLOCK, KEEP, UNSHUFFLE, SHUFFLE_ADD };
typedef uint16_t bf16;

/* -- memory ------------------------------------------------------------------------------------------ */

typedef struct { char *base; size_t used; } Arena;

static void *take(Arena *arena, size_t bytes)
{
    void *p = arena->base + arena->used;
    arena->used += (bytes + 63) & ~(size_t)63;
    return p;
}

/* A picture in memory: its first pixel, pixels from row to row, channels. Where `first` is null there is none. */
typedef struct { bf16 *first; int pitch, channels; } View;
typedef struct { int height, width; } Size;

INLINE bf16 *pixel(View v, int y, int x) { return v.first + ((size_t)y * v.pitch + x) * v.channels; }

/* From row y on. */
INLINE View below(View v, int y) { return (View){v.first ? pixel(v, y, 0) : 0, v.pitch, v.channels}; }

/* Rows that are worked on at once, so that one operation finds what another has left in the cache. */
static int strip_of(Size s)
{
    int rows = STRIP / s.width;
    return rows < s.height ? rows : s.height;
}

static View picture(Arena *arena, Size s, int channels)
{
    return (View){take(arena, (size_t)s.height * s.width * channels * sizeof(bf16)), s.width, channels};
}

/* With a border of zeros, one pixel wide, for the depthwise kernels. */
static View bordered(Arena *arena, Size s, int channels)
{
    size_t row = (size_t)(s.width + 2) * channels;
    bf16 *p = take(arena, (s.height + 2) * row * sizeof *p);
    memset(p, 0, row * sizeof *p);
    memset(p + (s.height + 1) * row, 0, row * sizeof *p);
    for (int y = 1; y <= s.height; y++) {
        memset(p + y * row, 0, channels * sizeof *p);
        memset(p + (y + 1) * row - channels, 0, channels * sizeof *p);
    }
    return (View){p + row + channels, s.width + 2, channels};
}

INLINE __m512 widen(const bf16 *p)
{
    __m512i whole = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(whole, 16));
}

INLINE void narrow(bf16 *p, __m512 v) { _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v)); }

INLINE __m512 where_positive(const bf16 *p, __m512 v)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(widen(p), _mm512_setzero_ps(), _CMP_GT_OQ), v);
}

static uint16_t rounded(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* -- matrix products --------------------------------------------------------------------------------- */

/* How much of the summed dimension one product of tiles takes: 48 channels are two of 24. */
static int step_of(int depth) { return depth % 32 == 0 ? 32 : depth % 24 == 0 ? 24 : 16; }

static void configure(int step)
{
    struct { uint8_t palette, start, zero[14]; uint16_t bytes[16]; uint8_t rows[16]; } tiles
        __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        tiles.bytes[i] = i == 4 || i == 5 ? step * 2 : 64;  /* 0..3: sums, 4 and 5: A, 6 and 7: B */
        tiles.rows[i] = i < 6 ? TILE : step / 2;
    }
    _tile_loadconfig(&tiles);
}

/* Weights w[outputs][depth], or with `transposed` w[depth][outputs], as B: tiles [outputs / 16][depth / step].
   Of the first dimension of w there are `rows`; what lies beyond them is zero. */
static void pack_weights(const float *w, int rows, int outputs, int depth, int transposed, bf16 *to)
{
    int step = step_of(depth);
    for (int n = 0; n < outputs; n += TILE)
        for (int k = 0; k < depth; k += 2)
            for (int j = n; j < n + TILE; j++)
                for (int i = k; i < k + 2; i++) {
                    size_t place = (size_t)(n / TILE * depth + k / step * step) * TILE;
                    float v = (transposed ? i : j) >= rows ? 0
                              : transposed                 ? w[(size_t)i * outputs + j]
                                                           : w[(size_t)j * depth + i];
                    to[place + (k % step / 2 * TILE + j - n) * 2 + i - k] = rounded(v);
                }
}

/* What becomes of a product: + bias, + a picture, ReLU, zero where another picture is; any may be missing. */
typedef struct { const float *bias; View add, positive; int relu; } Then;

INLINE __m512 finished(const float *sum, int n, const Then *then, const bf16 *add, const bf16 *positive)
{
    __m512 v = _mm512_load_ps(sum);
    if (then->bias) v = _mm512_add_ps(v, _mm512_loadu_ps(then->bias + n));
    if (add) v = _mm512_add_ps(v, widen(add));
    if (then->relu) v = _mm512_max_ps(v, _mm512_setzero_ps());
    return positive ? where_positive(positive, v) : v;
}

/* 16 pixels of 32 outputs (or with `half` of 16) from their tiles of sums. */
INLINE void finish(const float *sums, int y, int x, int n, int half, const Then *then, View to)
{
    bf16 *out = pixel(to, y, x) + n;
    const bf16 *add = then->add.first ? pixel(then->add, y, x) + n : 0;
    const bf16 *positive = then->positive.first ? pixel(then->positive, y, x) + n : 0;
    for (int i = 0; i < TILE; i++, sums += TILE, out += to.channels) {
        __m512 v = finished(sums, n, then, add, positive);
        if (half) narrow(out, v);
        else {
            __m512 w = finished(sums + TILE * TILE, n + TILE, then, add ? add + TILE : 0, positive ? positive + TILE : 0);
            _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(w, v));
        }
        if (add) add += then->add.channels;
        if (positive) positive += then->positive.channels;
    }
}

/* to = from * B, pixel by pixel. With `sums` the outputs go there instead, float32 [pixel][outputs]. */
static void multiply(View from, int depth, const bf16 *b, int outputs, Size s, Then then, View to, float *sums)
{
    float tiles[4 * TILE * TILE] __attribute__((aligned(64)));
    int step = step_of(depth);
    size_t stride = from.channels * sizeof(bf16), tile = (size_t)step * TILE, column = (size_t)depth * TILE;
    configure(step);
    for (int p = 0; p < s.height * s.width; p += 2 * TILE) {
        int y[2] = {p / s.width, (p + TILE) / s.width}, x[2] = {p % s.width, (p + TILE) % s.width};
        const bf16 *a0 = pixel(from, y[0], x[0]), *a1 = pixel(from, y[1], x[1]);
        for (int n = 0; n < outputs; n += 2 * TILE) {
            const bf16 *b0 = b + n / TILE * column, *b1 = b0 + column;
            int half = n + TILE == outputs;
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (int k = 0; k < depth; k += step, b0 += tile, b1 += tile) {
                _tile_loadd(4, a0 + k, stride);
                _tile_loadd(5, a1 + k, stride);
                _tile_loadd(6, b0, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(2, 5, 6);
                if (half) continue;
                _tile_loadd(7, b1, 64);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, tiles, 64);
            _tile_stored(1, tiles + TILE * TILE, 64);
            _tile_stored(2, tiles + 2 * TILE * TILE, 64);
            _tile_stored(3, tiles + 3 * TILE * TILE, 64);
            for (int i = 0; i < 2; i++) {
                const float *t = tiles + i * 2 * TILE * TILE;
                if (sums)
                    for (int r = 0; r < TILE; r++)
                        _mm512_storeu_ps(sums + (size_t)(p + i * TILE + r) * outputs + n,
                            _mm512_add_ps(_mm512_load_ps(t + r * TILE), _mm512_loadu_ps(then.bias + n)));
                else if (half) finish(t, y[i], x[i], n, 1, &then, to);
                else finish(t, y[i], x[i], n, 0, &then, to);
            }
        }
    }
}

/* Two pixels next to each other, their channels interleaved. */
INLINE __m512i pair(View v, int p, int width, int channel)
{
    const bf16 *left = pixel(v, p / width, p % width) + channel;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)left));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(left + v.channels)));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* A picture as B of a sum over pixels: tiles [pixels / 32][channels / 16][16 pairs of pixels][16 channels]. */
static void pack_pixels(View v, Size s, bf16 *to)
{
    for (int p = 0; p < s.height * s.width; p += CHUNK)
        for (int c = 0; c < v.channels; c += TILE)
            for (int i = 0; i < TILE; i++, to += CHUNK) _mm512_store_si512(to, pair(v, p + 2 * i, s.width, c));
}

INLINE void transpose(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
        }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 16; j += 8) {
            t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
        }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j += 4) {
            r[i + j] = _mm512_shuffle_i32x4(t[i + j], t[i + j + 8], 0x88);
            r[i + j + 8] = _mm512_shuffle_i32x4(t[i + j], t[i + j + 8], 0xdd);
        }
}

/* A picture as A of a sum over pixels: tiles [pixels / 32][channels / 16][16 channels][32 pixels]. The sums of
   the first `real` channels over all pixels are added to `bias`. */
static void pack_channels(View v, Size s, int real, bf16 *to, float *bias)
{
    __m512 sums[MOST_CHANNELS / TILE] = {0};
    for (int p = 0; p < s.height * s.width; p += CHUNK)
        for (int c = 0; c < v.channels; c += TILE, to += TILE * CHUNK) {
            __m512i r[16];
            __m512 sum = sums[c / TILE];
            for (int i = 0; i < TILE; i++) {
                r[i] = pair(v, p + 2 * i, s.width, c);
                sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(r[i], 16)));
                sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_and_si512(r[i], _mm512_set1_epi32((int)0xffff0000))));
            }
            sums[c / TILE] = sum;
            transpose(r);
            for (int i = 0; i < TILE; i++) _mm512_store_si512(to + i * CHUNK, r[i]);
        }
    for (int c = 0; c < real; c += TILE) {
        __mmask16 some = real - c < TILE ? (1u << (real - c)) - 1 : 0xffff;
        __m512 before = _mm512_maskz_loadu_ps(some, bias + c);
        _mm512_mask_storeu_ps(bias + c, some, _mm512_add_ps(before, sums[c / TILE]));
    }
}

/* w[outputs][inputs] += a * b, summed over pixels; of the outputs `real` are kept. */
static void add_products(const bf16 *a, const bf16 *b, int outputs, int inputs, int pixels, int real, float *w)
{
    float tiles[4][TILE][TILE] __attribute__((aligned(64)));
    int up = outputs / TILE, across = inputs / TILE;
    configure(CHUNK);
    for (int n = 0; n < up; n += 2)
        for (int k = 0; k < across; k += 2) {
            int more_n = n + 1 < up, more_k = k + 1 < across;
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (int p = 0; p < pixels / CHUNK; p++) {
                const bf16 *from = a + ((size_t)p * up + n) * TILE * CHUNK, *by = b + ((size_t)p * across + k) * TILE * CHUNK;
                _tile_loadd(4, from, 64);
                _tile_loadd(6, by, 64);
                _tile_dpbf16ps(0, 4, 6);
                if (more_k) {
                    _tile_loadd(7, by + TILE * CHUNK, 64);
                    _tile_dpbf16ps(1, 4, 7);
                }
                if (more_n) {
                    _tile_loadd(5, from + TILE * CHUNK, 64);
                    _tile_dpbf16ps(2, 5, 6);
                    if (more_k) _tile_dpbf16ps(3, 5, 7);
                }
            }
            _tile_stored(0, tiles[0], 64);
            _tile_stored(1, tiles[1], 64);
            _tile_stored(2, tiles[2], 64);
            _tile_stored(3, tiles[3], 64);
            for (int i = 0; i <= more_n; i++)
                for (int j = 0; j <= more_k; j++)
                    for (int r = 0; r < TILE && (n + i) * TILE + r < real; r++) {
                        float *row = w + (size_t)((n + i) * TILE + r) * inputs + (k + j) * TILE;
                        _mm512_storeu_ps(row, _mm512_add_ps(_mm512_loadu_ps(row), _mm512_load_ps(tiles[2 * i + j][r])));
                    }
        }
}

/* -- depthwise 3x3 ----------------------------------------------------------------------------------- */

/* Columns of a 3x3 window of 16 channels that goes along a row of a bordered picture. */
typedef struct { const bf16 *rows[3]; __m512 left[3], middle[3], right[3]; } Window;

INLINE Window window_of(View v, int y, int channel)
{
    Window w;
    for (int i = 0; i < 3; i++) {
        w.rows[i] = pixel(v, y + i - 1, -1) + channel;
        w.middle[i] = widen(w.rows[i]);
        w.right[i] = widen(w.rows[i] + v.channels);
    }
    return w;
}

INLINE void advance(Window *w, View v, int x)
{
    for (int i = 0; i < 3; i++) {
        w->left[i] = w->middle[i];
        w->middle[i] = w->right[i];
        w->right[i] = widen(w->rows[i] + (size_t)(x + 2) * v.channels);
    }
}

/* Kernels [9][channel] on a bordered picture. Forward with bias and ReLU; else (the gradient) with the kernels
   turned by 180 degrees, and zero where `positive` is not. */
INLINE void depthwise(View from, const float *kernels, const float *bias, Size s, View positive, View to)
{
    for (int c = 0; c < to.channels; c += TILE) {
        __m512 k[9], start = bias ? _mm512_loadu_ps(bias + c) : _mm512_setzero_ps();
        for (int i = 0; i < 9; i++) k[i] = _mm512_loadu_ps(kernels + (bias ? i : 8 - i) * to.channels + c);
        for (int y = 0; y < s.height; y++) {
            Window w = window_of(from, y, c);
            bf16 *out = pixel(to, y, 0) + c;
            for (int x = 0; x < s.width; x++, out += to.channels) {
                __m512 sums[3] = {start, _mm512_setzero_ps(), _mm512_setzero_ps()};  /* three short chains */
                advance(&w, from, x);
                for (int i = 0; i < 3; i++) {
                    sums[i] = _mm512_fmadd_ps(w.left[i], k[3 * i], sums[i]);
                    sums[i] = _mm512_fmadd_ps(w.middle[i], k[3 * i + 1], sums[i]);
                    sums[i] = _mm512_fmadd_ps(w.right[i], k[3 * i + 2], sums[i]);
                }
                __m512 v = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), sums[2]);
                narrow(out, bias ? _mm512_max_ps(v, _mm512_setzero_ps()) : where_positive(pixel(positive, y, x) + c, v));
            }
        }
    }
}

static __attribute__((noinline)) void depthwise_forward(View from, const float *kernels, const float *bias, Size s, View to)
{
    depthwise(from, kernels, bias, s, (View){0}, to);
}

static __attribute__((noinline)) void depthwise_backward(View from, const float *kernels, Size s, View positive, View to)
{
    depthwise(from, kernels, 0, s, positive, to);
}

/* Gradients of kernels [channel][9] and bias, added. */
static __attribute__((noinline)) void add_depthwise(View from, View gradient, Size s, float *kernels, float *bias)
{
    float lanes[TILE] __attribute__((aligned(64)));
    for (int c = 0; c < from.channels; c += TILE) {
        __m512 k[9] = {0}, sum = _mm512_setzero_ps();
        for (int y = 0; y < s.height; y++) {
            Window w = window_of(from, y, c);
            const bf16 *g = pixel(gradient, y, 0) + c;
            for (int x = 0; x < s.width; x++, g += gradient.channels) {
                __m512 v = widen(g);
                advance(&w, from, x);
                sum = _mm512_add_ps(sum, v);
                for (int i = 0; i < 3; i++) {
                    k[3 * i] = _mm512_fmadd_ps(w.left[i], v, k[3 * i]);
                    k[3 * i + 1] = _mm512_fmadd_ps(w.middle[i], v, k[3 * i + 1]);
                    k[3 * i + 2] = _mm512_fmadd_ps(w.right[i], v, k[3 * i + 2]);
                }
            }
        }
        for (int i = 0; i < 9; i++) {
            _mm512_store_ps(lanes, k[i]);
            for (int j = 0; j < TILE; j++) kernels[(c + j) * 9 + i] += lanes[j];
        }
        _mm512_storeu_ps(bias + c, _mm512_add_ps(_mm512_loadu_ps(bias + c), sum));
    }
}

/* -- shuffling: `s` is the size of the smaller picture, which has four times the channels -------------- */

static void unshuffle(View large, Size s, View to)
{
    size_t run = 2 * (size_t)large.channels;
    for (int y = 0; y < s.height; y++)
        for (int x = 0; x < s.width; x++)
            for (int i = 0; i < 2; i++)
                memcpy(pixel(to, y, x) + i * run, pixel(large, 2 * y + i, 2 * x), run * sizeof(bf16));
}

static void shuffle_add(View small, View add, Size s, View to)
{
    int run = 2 * to.channels;
    for (int y = 0; y < s.height; y++)
        for (int x = 0; x < s.width; x++)
            for (int i = 0; i < 2; i++) {
                const bf16 *a = pixel(small, y, x) + i * run, *b = pixel(add, 2 * y + i, 2 * x);
                bf16 *sum = pixel(to, 2 * y + i, 2 * x);
                for (int c = 0; c < run; c += TILE) narrow(sum + c, _mm512_add_ps(widen(a + c), widen(b + c)));
            }
}

/* -- the network ------------------------------------------------------------------------------------- */

/* Parameters of a layer, in this order: LINEAR weight[outputs][inputs], bias; BLOCK compress weight and bias,
   expand weight and bias, depthwise kernels[channel][9] and bias. */
typedef struct {
    int kind, inputs, outputs;  /* KEEP: none; UNSHUFFLE: of the larger picture, SHUFFLE_ADD: outputs only */
    size_t first;               /* of its parameters */
    bf16 *forward[2], *backward[2];
    float *kernels;  /* [9][channel] */
} Op;

typedef struct {
    int count;
    size_t parameters;
    Op ops[MOST_OPS];
    int threads, side;
    size_t largest, all;  /* bytes of the largest picture in the network, and of all that a crop takes */
    Arena *arenas;
    float **gradients;
} Net;

typedef struct { View in, hidden, seen; } Saved;  /* of a block: its input, ReLU(compress), ReLU(depthwise) */

static int whole_tiles(int channels) { return (channels + TILE - 1) / TILE * TILE; }
static Size half(Size s) { return (Size){s.height / 2, s.width / 2}; }
static Size twice(Size s) { return (Size){s.height * 2, s.width * 2}; }

/* Two pixels of a row and the two below, three channels each: what a pixel of the unshuffled picture holds. */
INLINE __m512 twelve(const float *p, int side)
{
    const __m512i both = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21, 7, 7, 7, 7);
    return _mm512_permutex2var_ps(_mm512_maskz_loadu_ps(0x3f, p), both, _mm512_maskz_loadu_ps(0x3f, p + 3 * side));
}

static View unshuffled_input(Arena *arena, const float *degraded, const float *level, int side)
{
    const __m512i with_level = _mm512_setr_epi32(0, 1, 2, 16, 3, 4, 5, 17, 6, 7, 8, 18, 9, 10, 11, 19);
    Size s = {side / 2, side / 2};
    View v = picture(arena, s, TILE);
    for (int y = 0; y < s.height; y++)
        for (int x = 0; x < s.width; x++) {
            size_t p = (size_t)2 * y * side + 2 * x;
            __m128 four = _mm_setr_ps(level[p], level[p + 1], level[p + side], level[p + side + 1]);
            narrow(pixel(v, y, x), _mm512_permutex2var_ps(twelve(degraded + 3 * p, side), with_level, _mm512_castps128_ps512(four)));
        }
    return v;
}

/* The residual, float32 [pixel of the unshuffled picture][16] of which 12 count; what backward needs is saved. */
static float *forward(const Net *net, const float *w, Arena *arena, View x, Size s, Saved *saved)
{
    View kept[MOST_OPS];
    int depth = 0;
    float *residual = take(arena, (size_t)s.height * s.width * TILE * sizeof *residual);
    for (int i = 0; i < net->count; i++) {
        const Op *op = &net->ops[i];
        View in = saved[i].in = x;
        const float *bias = w + op->first + (size_t)op->inputs * op->outputs;
        switch (op->kind) {
        case LINEAR:
            if (i == net->count - 1) {
                float padded[TILE] = {0};
                memcpy(padded, bias, op->outputs * sizeof *bias);
                multiply(in, op->inputs, op->forward[0], TILE, s, (Then){.bias = padded}, (View){0}, residual);
            } else {
                x = picture(arena, s, op->outputs);
                multiply(in, op->inputs, op->forward[0], op->outputs, s, (Then){.bias = bias}, x, 0);
            }
            break;
        case BLOCK: {
            int c = op->inputs;
            const float *expand_bias = bias + c + (size_t)c * c, *kernel_bias = expand_bias + 10 * c;
            View hidden = saved[i].hidden = bordered(arena, s, c), seen = saved[i].seen = picture(arena, s, c);
            x = picture(arena, s, c);
            multiply(in, c, op->forward[0], c, s, (Then){.bias = bias, .relu = 1}, hidden, 0);
            depthwise_forward(hidden, op->kernels, kernel_bias, s, seen);
            multiply(seen, c, op->forward[1], c, s, (Then){.bias = expand_bias, .add = in}, x, 0);
            break;
        }
        case KEEP:
            kept[depth++] = x;
            break;
        case UNSHUFFLE:
            s = half(s);
            x = picture(arena, s, op->outputs);
            unshuffle(in, s, x);
            break;
        case SHUFFLE_ADD:
            x = picture(arena, twice(s), op->outputs);
            shuffle_add(in, kept[--depth], s, x);
            s = twice(s);
        }
    }
    return residual;
}

/* Adds to the gradients g of the parameters; `d` is that of the residual. */
static void backward(const Net *net, float *g, Arena *arena, View d, Size s, const Saved *saved)
{
    View kept[MOST_OPS];
    int depth = 0, turn = 0;
    bf16 *a = take(arena, net->largest), *b = take(arena, net->largest);
    bf16 *turns[2] = {take(arena, net->largest), take(arena, net->largest)};  /* one for each second block: they stay in the cache */
    for (int i = net->count - 1; i >= 0; i--) {
        const Op *op = &net->ops[i];
        View in = saved[i].in;
        float *first = g + op->first;
        size_t square = (size_t)op->inputs * op->outputs;
        switch (op->kind) {
        case LINEAR:
            pack_channels(d, s, op->outputs, a, first + square);
            pack_pixels(in, s, b);
            add_products(a, b, d.channels, op->inputs, s.height * s.width, op->outputs, first);
            if (i) {
                View to = picture(arena, s, op->inputs);
                multiply(d, d.channels, op->backward[0], op->inputs, s, (Then){0}, to, 0);
                d = to;
            }
            break;
        case BLOCK: {
            int c = op->inputs;
            float *expand = first + square + c, *kernels = expand + square + c;
            size_t used = arena->used;
            View at_seen = bordered(arena, s, c), at_hidden = picture(arena, s, c), to = {turns[turn ^= 1], s.width, c};
            Size strip = {strip_of(s), s.width};
            int pixels = strip.height * strip.width;
            for (int y = 0; y < s.height; y += strip.height) {
                View seen = below(saved[i].seen, y), from = below(d, y);
                pack_channels(from, strip, c, a, expand + square);
                pack_pixels(seen, strip, b);
                add_products(a, b, c, c, pixels, c, expand);
                multiply(from, c, op->backward[1], c, strip, (Then){.positive = seen}, below(at_seen, y), 0);
            }
            for (int y = 0; y < s.height; y += strip.height) {
                View hidden = below(saved[i].hidden, y), from = below(at_seen, y), part = below(at_hidden, y);
                add_depthwise(hidden, from, strip, kernels, kernels + 9 * c);
                depthwise_backward(from, op->kernels, strip, hidden, part);
                pack_channels(part, strip, c, a, first + square);
                pack_pixels(below(in, y), strip, b);
                add_products(a, b, c, c, pixels, c, first);
                multiply(part, c, op->backward[0], c, strip, (Then){.add = below(d, y)}, below(to, y), 0);
            }
            d = to;
            arena->used = used;
            break;
        }
        case KEEP:  /* its gradient is added where the shuffle of this size was undone */
            break;
        case UNSHUFFLE: {
            View to = picture(arena, twice(s), op->inputs);
            shuffle_add(d, kept[--depth], s, to);
            s = twice(s);
            d = to;
            break;
        }
        case SHUFFLE_ADD: {
            View whole = kept[depth++] = picture(arena, s, op->outputs), to;
            memcpy(whole.first, d.first, (size_t)s.height * s.width * op->outputs * sizeof(bf16));
            s = half(s);
            to = picture(arena, s, 4 * op->outputs);
            unshuffle(whole, s, to);
            d = to;
        }
        }
    }
}

/* One crop: its mean squared error. Adds the gradients of share * 0.01 * log(error + least) to g, unless null. */
static double crop(const Net *net, const float *w, float *g, Arena *arena, const float *degraded, const float *level,
                   const float *target, double share, double least, float *restored)
{
    int side = net->side;
    Size s = {side / 2, side / 2};
    Saved saved[MOST_OPS];
    arena->used = 0;
    float *residual = forward(net, w, arena, unshuffled_input(arena, degraded, level, side), s, saved), *r = residual;
    double error = 0, values = 3.0 * side * side;
    for (int y = 0; y < s.height; y++) {
        __m512 row = _mm512_setzero_ps();
        for (int x = 0; x < s.width; x++, r += TILE) {
            size_t p = ((size_t)2 * y * side + 2 * x) * 3;
            __m512 v = _mm512_maskz_add_ps(0xfff, twelve(degraded + p, side), _mm512_load_ps(r));
            if (restored) {
                _mm512_mask_storeu_ps(restored + p, 0x3f, v);
                _mm512_mask_compressstoreu_ps(restored + p + 3 * side, 0xfc0, v);
            }
            v = _mm512_sub_ps(v, twelve(target + p, side));
            _mm512_store_ps(r, v);
            row = _mm512_fmadd_ps(v, v, row);
        }
        error += _mm512_reduce_add_ps(row);
    }
    error /= values;
    if (g) {
        __m512 slope = _mm512_set1_ps((float)(share * 0.01 * 2 / values / (error + least)));
        View d = picture(arena, s, TILE);
        for (size_t i = 0; i < (size_t)s.height * s.width * TILE; i += TILE)
            narrow(d.first + i, _mm512_maskz_mul_ps(0xfff, _mm512_load_ps(residual + i), slope));
        backward(net, g, arena, d, s, saved);
    }
    return error;
}

/* -- what Python calls -------------------------------------------------------------------------------- */

static void measure(Net *net)
{
    int height = net->side / 2;
    size_t sum = 0;
    for (int i = 0; i < net->count; i++) {
        const Op *op = &net->ops[i];
        if (op->kind == UNSHUFFLE) height /= 2;
        if (op->kind == SHUFFLE_ADD) height *= 2;
        int channels = whole_tiles(op->inputs > op->outputs ? op->inputs : op->outputs);
        size_t bytes = (size_t)(height + 2) * (height + 2) * channels * sizeof(bf16);
        net->largest = bytes > net->largest ? bytes : net->largest;
        sum += 4 * bytes;  /* forward three for a block; backward two for a shuffle, one for a linear layer */
    }
    /* Four of `backward`, two of its present block and two to spare; the unshuffled input, its gradient, the residual. */
    net->all = (sum + 8 * net->largest + (size_t)net->side * net->side * TILE * 2 + 4096 * MOST_OPS) / 64 * 64;
}

/* A network from rows (kind, inputs, outputs, first parameter), for crops of 128 or 256 pixels a side; null
   without AMX. */
Net *net_new(const long *rows, int count, long parameters, int side, int threads)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    if (count > MOST_OPS || syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA)) return 0;
    Net *net = calloc(1, sizeof *net);
    net->count = count;
    net->parameters = (size_t)parameters;
    net->threads = threads;
    net->side = side;
    for (int i = 0; i < count; i++, rows += 4) {
        Op *op = &net->ops[i];
        op->kind = (int)rows[0];
        op->inputs = (int)rows[1];
        op->outputs = (int)rows[2];
        op->first = (size_t)rows[3];
        size_t bytes = (size_t)whole_tiles(op->inputs) * whole_tiles(op->outputs) * sizeof(bf16);
        for (int j = 0; j < (op->kind == BLOCK ? 2 : op->kind == LINEAR); j++) {
            op->forward[j] = aligned_alloc(64, bytes);
            op->backward[j] = aligned_alloc(64, bytes);
        }
        if (op->kind == BLOCK) op->kernels = aligned_alloc(64, (size_t)op->inputs * 9 * sizeof *op->kernels);
    }
    measure(net);
    net->arenas = calloc(threads, sizeof *net->arenas);
    net->gradients = calloc(threads, sizeof *net->gradients);
    for (int t = 0; t < threads; t++) {
        net->arenas[t].base = aligned_alloc(64, net->all);
        net->gradients[t] = aligned_alloc(64, (net->parameters * sizeof(float) + 63) & ~(size_t)63);
    }
    return net;
}

void net_free(Net *net)
{
    for (int i = 0; i < net->count; i++) {
        for (int j = 0; j < 2; j++) {
            free(net->ops[i].forward[j]);
            free(net->ops[i].backward[j]);
        }
        free(net->ops[i].kernels);
    }
    for (int t = 0; t < net->threads; t++) {
        free(net->arenas[t].base);
        free(net->gradients[t]);
    }
    free(net->arenas);
    free(net->gradients);
    free(net);
}

/* Mean squared errors of `count` crops and, unless `g` is null, the gradients of the mean of their 0.01 *
   log(error + least). Pictures are float32 (count, side, side, 3), levels (count, side, side); `restored`,
   alike, may be null. */
void net_step(Net *net, const float *w, float *g, const float *degraded, const float *level, const float *target,
              int count, double least, double *errors, float *restored)
{
    for (int i = 0; i < net->count; i++) {
        Op *op = &net->ops[i];
        const float *from = w + op->first;
        int in = op->inputs, out = op->outputs;
        if (op->kind != LINEAR && op->kind != BLOCK) continue;
        for (int j = 0; j < (op->kind == BLOCK ? 2 : 1); j++, from += (size_t)in * out + out) {
            pack_weights(from, out, whole_tiles(out), in, 0, op->forward[j]);
            pack_weights(from, out, in, whole_tiles(out), 1, op->backward[j]);
        }
        if (op->kind == BLOCK)
            for (int c = 0; c < in; c++)
                for (int t = 0; t < 9; t++) op->kernels[t * in + c] = from[c * 9 + t];
    }
    if (g) memset(g, 0, net->parameters * sizeof *g);
#pragma omp parallel num_threads(net->threads)
    {
        int t = omp_get_thread_num();
        float *own = g ? net->gradients[t] : 0;
        if (own) memset(own, 0, net->parameters * sizeof *own);
#pragma omp for schedule(dynamic, 1)
        for (int i = 0; i < count; i++) {
            size_t p = (size_t)i * net->side * net->side;
            errors[i] = crop(net, w, own, &net->arenas[t], degraded + 3 * p, level + p, target + 3 * p, 1.0 / count, least,
                             restored ? restored + 3 * p : 0);
        }
        if (g)
#pragma omp critical
            for (size_t i = 0; i < net->parameters; i++) g[i] += own[i];
        _tile_release();
    }
}
