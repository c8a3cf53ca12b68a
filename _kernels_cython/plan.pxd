# Declarations of c/plan.h and c/threads.h for _plan.pyx and _pixels.pyx.
from libc.stddef cimport ptrdiff_t

from zenith cimport zn_kernels


cdef extern from "plan.h" nogil:
    int ZN_MAX_THREADS, ZN_LINE, ZN_POOL_ROWS, ZN_WINOGRAD_UNIT
    enum: ZN_LOAD, ZN_GEMM, ZN_WINOGRAD, ZN_SPECTRAL, ZN_MIX, ZN_POOL_MOMENTS, ZN_POOL_SCALE, ZN_POOL_APPLY
    enum: ZN_RELU, ZN_CLAMP, ZN_ADD

    ctypedef struct zn_grid:
        ptrdiff_t at, row, pixel
        int stride, held, height

    ctypedef struct zn_border:
        ptrdiff_t at, row
        int held, width, channels

    ctypedef struct zn_product:
        ptrdiff_t into "in"
        ptrdiff_t out
        int segments, depth, columns
        const ptrdiff_t *segment
        const ptrdiff_t *block
        const ptrdiff_t *residual_block
        const int *segment_row
        const void *weight
        const float *bias
        int int16

    ctypedef struct zn_mix:
        int planes, lane, tile, separable, eyes, band
        const unsigned char *spectral
        const float *eyes_weight
        const float *eyes_bias
        const float *gate[2]
        const float *threshold[2]

    ctypedef struct zn_spectral:
        int size
        const ptrdiff_t *gather
        const float *in_scale
        int outputs
        const ptrdiff_t *scatter
        const int *source
        const float *out_scale
        const float *bias

    ctypedef struct zn_pool:
        int channels, wide, groups
        float epsilon
        const float *gamma
        const float *beta
        const float *linear
        const float *square
        ptrdiff_t moments, scale

    ctypedef struct zn_step:
        int kind, rows, width, load, store, split
        float clamp
        int relu
        zn_grid into "in"
        zn_grid out
        int has_residual
        zn_grid residual
        int add_rows
        ptrdiff_t add_at, add_row
        ptrdiff_t length
        int strip, chain, bands, band, lead
        zn_border border
        int product_count, expand_count
        const zn_product *products
        const zn_product *expand
        const zn_mix *mix
        const zn_spectral *spectral
        const zn_pool *pool

    ctypedef struct zn_picture:
        void *data
        ptrdiff_t row_bytes
        int format, channels, rows, width
        const float *plane
        ptrdiff_t plane_row
        int skip_rows, skip_columns

    ctypedef struct zn_plan:
        const zn_kernels *kernels
        const zn_kernels *float_kernels
        int count
        const zn_step *steps
        ptrdiff_t scratch, scratch_bytes

    ctypedef struct zn_watch:
        int (*look)(void *context, double done) noexcept
        void *context
        double seconds

    int zn_plan_run(const zn_plan *plan, void *arena, const zn_picture *into, const zn_picture *out,
                    int threads, double *times, const zn_watch *watch)


cdef extern from "threads.h" nogil:
    ctypedef struct zn_team:
        pass
    ctypedef void zn_task(void *context, zn_team *team, int thread, int threads) noexcept nogil
    int zn_team_run(int threads, zn_task *task, void *context)
    void zn_share(int count, int thread, int threads, int *begin, int *end)
