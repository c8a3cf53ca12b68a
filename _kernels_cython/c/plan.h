/* A plan: the steps of a network for one input size, run wholly in C.
 *
 * The compiler (zenith_ae/engine/compiler.py) decides everything: which layers share a step, where
 * each activation lies in the arena, how weights are packed. What is left here is to walk the
 * steps, each on all threads of a team with a barrier behind it, and to call kernels row by row.
 * The steps of a chain take turns on bands of rows, each as far ahead of the next as that one reads,
 * so that the activations between them are rings of a few rows. How rows are shared out never
 * changes a bit of the result.
 *
 * Activations are NHWC with channels padded to ZN_BLOCK, all float32 or all bf16 (zenith.h). All
 * offsets are in such values, those of activations from the start of the arena.
 */
#ifndef ZENITH_PLAN_H
#define ZENITH_PLAN_H

#include "threads.h"
#include "zenith.h"

#define ZN_LINE 64          /* bytes of a cache line, on which arenas and pieces of scratch begin */
#define ZN_POOL_ROWS 8      /* whose moments are added up by one thread */
#define ZN_WINOGRAD_UNIT 14 /* tiles, as many as suit the micro-kernels: strips and shares are whole ones */

/* Where the pixel (y, x) of a step's grid lies: in row y * stride of an activation, at + (that row
 * modulo held) * row + x * pixel. Strides and pixel shuffles are expressed by stride and pixel; an
 * activation of which only some rows are held at a time is a ring of them. */
typedef struct zn_grid {
    ptrdiff_t at, row, pixel;
    int stride, held;
    int height; /* of the activation: rows above and below are the one of zeros behind those held */
} zn_grid;

/* The zeros around an activation that a 3x3 convolution reads: a pixel left and right of each row, and
 * one row behind those held, which stands for the one above the first and the one below the last. */
typedef struct zn_border {
    ptrdiff_t at, row;
    int held, width;      /* of the interior; held 0: there is no border */
    int channels;
} zn_border;

/* One matrix product over a row of the grid: see zn_gemm. A convolution with stride is one, a
 * grouped one has one per group, a convolution on an upsampled input one per phase. */
typedef struct zn_product {
    ptrdiff_t in, out;    /* added to the grids of the step */
    int segments, depth, columns;
    const ptrdiff_t *segment, *block;
    const ptrdiff_t *residual_block; /* or NULL, see zn_gemm */
    const int *segment_row; /* each segment's row of the input, relative to the output's times stride */
    const void *weight;
    const float *bias;
    int int16;            /* whether it is computed with integers, and so how weight is packed */
} zn_product;

/* The middle of a Zenith block. Hidden channels are kept in planes of `lane`, a multiple of 16, so that each
 * plane may have or lack the spectral branch. */
typedef struct zn_mix {
    int planes, lane, tile, separable, eyes;
    int band;                      /* rows at a time, a multiple of tile */
    const unsigned char *spectral; /* [planes]: whether the gate passes anything */
    const float *eyes_weight;      /* [planes][9][lane] */
    const float *eyes_bias;        /* [planes][lane] */
    const float *gate[2];          /* [planes][T * T][lane]; separable: rows and columns, [T][lane] */
    const float *threshold[2];
} zn_mix;

/* Gather, scale, Walsh-Hadamard transform over channels, scale, scatter. */
typedef struct zn_spectral {
    int size;                  /* a power of two */
    const ptrdiff_t *gather;   /* [size] offsets from the input pixel, -1 for zero */
    const float *in_scale;     /* [size] */
    int outputs;
    const ptrdiff_t *scatter;  /* [outputs] offsets from the output pixel */
    const int *source;         /* [outputs] which of the size, -1 for zero */
    const float *out_scale, *bias; /* [outputs] */
} zn_spectral;

/* Group norm between two products. The wide activation is not stored, nor computed to be measured: it is
 * linear in the input, and so what its mean and variance are follows from the input's moments. */
typedef struct zn_pool {
    int channels, wide, groups; /* channels: of the input, as they are stored */
    float epsilon;
    const float *gamma, *beta; /* [wide] */
    const float *linear;       /* [groups][channels], what a channel counts in the sum of a group */
    const float *square;       /* [groups][channels][channels], and a pair in that of squares; 0 where i > j */
    ptrdiff_t moments;         /* double [rows / ZN_POOL_ROWS, rounded up][channels + 1][channels] in the arena */
    ptrdiff_t scale;           /* float [2][wide] in the arena */
} zn_pool;

enum {
    ZN_LOAD,       /* picture -> activation */
    ZN_GEMM,       /* products, from and to activations or pictures */
    ZN_WINOGRAD,   /* a 3x3 convolution as 36 products of transformed tiles */
    ZN_SPECTRAL,   /* as ZN_GEMM, with zn_spectral in place of products */
    ZN_MIX,        /* Zenith block: products, mix, expand */
    ZN_POOL_MOMENTS, /* of the input */
    ZN_POOL_SCALE, /* moments -> scale and shift; tiny, one thread */
    ZN_POOL_APPLY, /* products[0], scale and shift, relu, expand[0] with residual */
    ZN_RELU, ZN_CLAMP, ZN_ADD /* elementwise: out from in, and `residual` for ZN_ADD */
};

typedef struct zn_step {
    int kind;
    int rows, width;     /* of the grid */
    int load, store;     /* pixels of the picture per grid pixel where in or out is the picture, else 0 */
    int split;           /* bf16 loaded as sums of two, see zn_kernels.split */
    float clamp;         /* soft limit after loading or of ZN_CLAMP; 0: none */
    int relu;
    zn_grid in, out;     /* in.pixel and out.pixel also hold for pictures' rows in scratch */
    int has_residual;
    zn_grid residual;    /* added before relu */
    int add_rows;        /* rows per grid row to which `add` is added at the end, or 0 */
    ptrdiff_t add_at, add_row;
    ptrdiff_t length;    /* values of such a row, or elementwise of any */
    int strip;           /* Winograd: tiles at a time */
    int chain, bands;    /* steps from here on that go band by band, and bands; 0: no chain begins here */
    int band, lead;      /* in a chain: rows of a band, and how many more are done at its end */
    zn_border border;    /* cleared by this step */
    int product_count, expand_count;
    const zn_product *products, *expand;
    const zn_mix *mix;
    const zn_spectral *spectral;
    const zn_pool *pool;
} zn_step;

/* A rectangle of a picture. For input, what lies beyond rows and width repeats the last of them.
 * For output, the first skip_rows and skip_columns of what the plan computes fall away. */
typedef struct zn_picture {
    void *data;
    ptrdiff_t row_bytes;
    int format, channels, rows, width;
    const float *plane;  /* one more channel of the input, or NULL */
    ptrdiff_t plane_row;
    int skip_rows, skip_columns;
} zn_picture;

typedef struct zn_plan {
    const zn_kernels *kernels;       /* for how activations are stored */
    const zn_kernels *float_kernels; /* of the same level; the same table for float32 */
    int count;
    const zn_step *steps;
    ptrdiff_t scratch;       /* offset in bytes of the threads' scratch in the arena */
    ptrdiff_t scratch_bytes; /* of each thread */
} zn_plan;

/* Who looks after a run: `look` is called on the caller's thread, between steps, at most every so many seconds
 * and after as many for the first time, with the share that is done. Anything but 0 ends the run, whose output
 * then is of no use. */
typedef struct zn_watch {
    int (*look)(void *context, double done);
    void *context;
    double seconds;
} zn_watch;

/* Run a plan on up to `threads` threads; returns how many were used, or 0 in a child that `watch` forked, where
 * there is no output. `times`, if not NULL, has count + 1 values: to each step's the seconds that it took
 * are added, the last is the clock. `watch` may be NULL. */
int zn_plan_run(const zn_plan *plan, void *arena, const zn_picture *in, const zn_picture *out,
                int threads, double *times, const zn_watch *watch);

#endif
