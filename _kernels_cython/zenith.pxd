# Declarations of c/zenith.h for _ops.pyx, _plan.pyx and _pixels.pyx.
from libc.stddef cimport ptrdiff_t


cdef extern from "zenith.h" nogil:
    enum: ZN_BLOCK, ZN_MAX_SEGMENTS, ZN_SPLIT_CHANNELS, ZN_PICTURE_VALUES, ZN_INT16_DEPTH
    enum: ZN_PATCH, ZN_PATCH_VALUES
    enum: ZN_WINOGRAD_IN, ZN_WINOGRAD_OUT
    enum: ZN_U8, ZN_U16, ZN_F32
    enum: ZN_LEVELS
    enum: ZN_FLOAT, ZN_BF16, ZN_BF16_TILES
    enum: ZN_HAS_AVX512_VNNI, ZN_HAS_AVX512_BF16, ZN_HAS_AMX_BF16, ZN_HAS_AMX_INT8, ZN_HAS_AVX_VNNI

    ctypedef struct zn_gemm:
        const void *a
        ptrdiff_t a_pixel
        int segments
        const ptrdiff_t *segment
        int depth
        const void *b
        const float *bias
        const void *residual
        ptrdiff_t residual_pixel
        const ptrdiff_t *residual_block
        void *out
        int float_out
        ptrdiff_t out_pixel
        const ptrdiff_t *block
        int pixels
        int columns
        int relu

    ctypedef struct zn_kernels:
        int value_bytes
        void (*gemm)(const zn_gemm *g) noexcept nogil
        void (*gemm_int16)(const zn_gemm *g) noexcept nogil
        void (*depthwise)(const void *above, const void *row, const void *below,
                          const float *weight, const float *bias, const void *add, void *out,
                          int width, int channels, int relu) noexcept nogil
        void (*wht_tiles)(const void *x, ptrdiff_t x_row, void *out, ptrdiff_t out_row,
                          int rows, int width, int channels, int T,
                          const float *gate, const float *threshold) noexcept nogil
        void (*wht_tiles_separable)(const void *x, ptrdiff_t x_row, void *out, ptrdiff_t out_row,
                                    int rows, int width, int channels, int T,
                                    const float *row_gate, const float *row_threshold,
                                    const float *column_gate, const float *column_threshold) noexcept nogil
        void (*winograd_in)(const void *const *x, int width, int channels, int tiles, void *out,
                            ptrdiff_t plane) noexcept nogil
        void (*winograd_out)(const float *x, ptrdiff_t plane, const float *bias, const void *residual,
                             ptrdiff_t residual_row, void *out, ptrdiff_t out_row, int rows, int width,
                             int channels, int relu) noexcept nogil
        void (*relu)(const void *x, void *out, ptrdiff_t n) noexcept nogil
        void (*soft_clamp)(const void *x, void *out, ptrdiff_t n, float limit) noexcept nogil
        void (*add)(const void *x, const void *y, void *out, ptrdiff_t n) noexcept nogil
        void (*from_floats)(const float *x, void *out, ptrdiff_t n) noexcept nogil
        void (*to_floats)(const void *x, float *out, ptrdiff_t n) noexcept nogil
        void (*moments)(const float *x, int pixels, int channels, double *moments) noexcept nogil
        void (*scale_shift)(const float *x, const float *scale, const float *shift, void *out,
                            int pixels, int channels, int relu) noexcept nogil
        void (*add_change)(void *values, int format, const float *change, float factor,
                           ptrdiff_t n) noexcept nogil
        void (*limit_change)(float *change, const float *level, ptrdiff_t step, float deviations, float dotted,
                             ptrdiff_t pixels) noexcept nogil
        void (*roughness)(const void *picture, ptrdiff_t row_bytes, int format, int blocks,
                          float *out) noexcept nogil
        void (*count_clipped)(const void *picture, ptrdiff_t row_bytes, int format, int rows, int width,
                              unsigned char *counts) noexcept nogil
        void (*patches)(const void *picture, ptrdiff_t row_bytes, int format, int channel, int step, int count,
                        float *out, float *means) noexcept nogil
        void (*blend)(const float *above, const float *below, float share, float *out,
                      ptrdiff_t n) noexcept nogil
        void (*load_picture)(const void *picture, ptrdiff_t row_bytes, int format, int channels,
                             const float *plane, ptrdiff_t plane_row,
                             int rows, int width, int r, float *out, int out_width,
                             int out_channels) noexcept nogil
        void (*store_picture)(const float *x, int x_width, int x_channels, int r, void *picture,
                              ptrdiff_t row_bytes, int format, int channels, int rows, int width) noexcept nogil
        void (*split)(const float *x, int channels, unsigned short *out, int pixels) noexcept nogil
        void (*wht_tiles_backward)(const float *x, ptrdiff_t x_row, const float *grad_out,
                                   ptrdiff_t grad_row, float *grad_in, ptrdiff_t grad_in_row,
                                   int rows, int width, int channels, int T,
                                   const float *gate, const float *threshold,
                                   float *grad_gate, float *grad_threshold) noexcept nogil
        void (*fwht)(float *x, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t n) noexcept nogil

    const char *zn_level_name(int level)
    int zn_level_compiled(int level)
    int zn_level_available(int level)
    int zn_level_fast_bf16(int level)
    int zn_level_fast_int16(int level)
    const zn_kernels *zn_kernels_for(int level, int storage)
    int zn_best_level()
    int zn_cpu_features()


ctypedef const zn_kernels *(*zn_lookup)(int level, int storage) noexcept nogil  # such as zn_kernels_for
