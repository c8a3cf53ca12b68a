# Declarations of c/zenith.h for _ops.pyx and _plan.pyx.
from libc.stddef cimport ptrdiff_t


cdef extern from "zenith.h" nogil:
    enum: ZN_BLOCK, ZN_MAX_SEGMENTS
    enum: ZN_U8, ZN_U16, ZN_F32
    enum: ZN_GENERIC, ZN_AVX2, ZN_AVX512, ZN_LEVELS

    ctypedef struct zn_gemm:
        const float *a
        ptrdiff_t a_pixel
        int segments
        const ptrdiff_t *segment
        int depth
        const float *b
        const float *bias
        const float *residual
        ptrdiff_t residual_pixel
        float *out
        ptrdiff_t out_pixel
        const ptrdiff_t *block
        int pixels
        int columns
        int relu

    ctypedef struct zn_kernels:
        const char *name
        void (*gemm)(const zn_gemm *g) noexcept nogil
        void (*depthwise)(const float *above, const float *row, const float *below,
                          const float *weight, const float *bias, const float *add, float *out,
                          int width, int channels, int relu) noexcept nogil
        void (*wht_tiles)(const float *x, ptrdiff_t x_row, float *out, ptrdiff_t out_row,
                          int rows, int width, int channels, int T,
                          const float *gate, const float *threshold) noexcept nogil
        void (*wht_tiles_separable)(const float *x, ptrdiff_t x_row, float *out, ptrdiff_t out_row,
                                    int rows, int width, int channels, int T,
                                    const float *row_gate, const float *row_threshold,
                                    const float *column_gate, const float *column_threshold) noexcept nogil
        void (*wht_tiles_backward)(const float *x, ptrdiff_t x_row, const float *grad_out,
                                   ptrdiff_t grad_row, float *grad_in, ptrdiff_t grad_in_row,
                                   int rows, int width, int channels, int T,
                                   const float *gate, const float *threshold,
                                   float *grad_gate, float *grad_threshold) noexcept nogil
        void (*fwht)(float *x, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t n) noexcept nogil
        void (*relu)(const float *x, float *out, ptrdiff_t n) noexcept nogil
        void (*soft_clamp)(const float *x, float *out, ptrdiff_t n, float limit) noexcept nogil
        void (*add)(const float *x, const float *y, float *out, ptrdiff_t n) noexcept nogil
        void (*channel_sums)(const float *x, int pixels, int channels, double *sums) noexcept nogil
        void (*scale_shift)(const float *x, const float *scale, const float *shift, float *out,
                            int pixels, int channels, int relu) noexcept nogil
        void (*load_picture)(const void *picture, ptrdiff_t row_bytes, int format, int channels,
                             const float *plane, ptrdiff_t plane_row, int extra,
                             int rows, int width, int r, float *out, int out_width,
                             int out_channels) noexcept nogil
        void (*store_picture)(const float *x, int x_width, int x_channels, int r, void *picture,
                              ptrdiff_t row_bytes, int format, int channels, int rows, int width) noexcept nogil

    const char *zn_level_name(int level)
    int zn_level_compiled(int level)
    int zn_level_available(int level)
    const zn_kernels *zn_kernels_for(int level)
    int zn_best_level()
