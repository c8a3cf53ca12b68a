# cython: language_level=3
"""What is measured of pictures and done to them beside the networks, by kernels of ``c/zenith.h``.

Pictures (H, W, C) are uint8, uint16 or float32. The values of a row lie side by side, rows may lie apart.
``isa`` names a level; None is the current one. No level and no number of threads changes a bit.
"""

import numpy as np

from zenith_ae._kernels import _ops, _plan

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stddef cimport ptrdiff_t

from checks cimport picture_format, require
from plan cimport zn_share, zn_task, zn_team
from zenith cimport ZN_FLOAT, ZN_PATCH, ZN_PATCH_VALUES, zn_kernels, zn_lookup

ctypedef int (*runner)(int threads, zn_task *task, void *context) noexcept nogil
cdef zn_lookup kernels_for = <zn_lookup>PyCapsule_GetPointer(_ops.kernels_for, "zn_kernels_for")
cdef runner team_run = <runner>PyCapsule_GetPointer(_plan.team_run, "zn_team_run")

# A thread is woken for so many values: that takes as long as a part of them does.
cdef enum:
    VALUES_OF_A_THREAD = 65536


cdef struct job:
    const zn_kernels *kernels
    int rows, format
    ptrdiff_t columns
    char *values  # pixels or their change, whose rows are worked on in place
    ptrdiff_t values_row
    const char *by
    ptrdiff_t by_row, by_step
    float factor, dotted


cdef const zn_kernels *table(isa) except NULL:
    return kernels_for(_ops.level_names.index(_ops.current_isa(isa)), ZN_FLOAT)


cdef char *rows_of(array, str what, ptrdiff_t *row, bint writable=False) except NULL:
    """Data of an array whose rows are contiguous, and how many bytes these lie apart."""
    require(array.size > 0 and array.dtype.isnative and array.flags.aligned, f"{what} must be of native values")
    require(array[0].flags.c_contiguous, f"the rows of {what} must be contiguous")
    require(array.flags.writeable or not writable, f"{what} is read-only")
    row[0] = array.strides[0]
    return <char *><size_t>array.ctypes.data


cdef char *picture_of(picture, ptrdiff_t *row, int *format) except NULL:
    """The same of a picture (H, W, 3), and its format."""
    require(picture.ndim == 3 and picture.shape[2] == 3, f"a picture is (H, W, 3), not {picture.shape}")
    format[0] = picture_format(picture)
    return rows_of(picture, "the picture", row)


cdef int run(zn_task *task, job *j, int threads) except -1:
    cdef ptrdiff_t most = 1 + j.rows * j.columns // VALUES_OF_A_THREAD
    with nogil:
        team_run(<int>min(threads, most), task, j)
    return 0


cdef void add_rows(void *context, zn_team *team, int thread, int threads) noexcept nogil:
    cdef job *j = <job *>context
    cdef int y, begin, end
    zn_share(j.rows, thread, threads, &begin, &end)
    for y in range(begin, end):
        j.kernels.add_change(j.values + y * j.values_row, j.format, <const float *>(j.by + y * j.by_row),
                             j.factor, j.columns)


def add_change(pixels, change, float factor, int threads=1, isa=None):
    """pixels (H, W, C) += factor * change, (H, W, C) float32, in place.

    Clipped to [0, the largest number of the pixels' dtype], [0, 1] of float32, and rounded to nearest.
    """
    cdef job j
    require(change.dtype == np.float32 and change.shape == pixels.shape, "the change is float32 and as large")
    j.kernels, j.format, j.factor = table(isa), picture_format(pixels), factor
    j.rows, j.columns = len(pixels), pixels[0].size
    j.values = rows_of(pixels, "pixels", &j.values_row, True)
    j.by = rows_of(change, "the change", &j.by_row)
    run(add_rows, &j, threads)


cdef void limit_rows(void *context, zn_team *team, int thread, int threads) noexcept nogil:
    cdef job *j = <job *>context
    cdef int y, begin, end
    zn_share(j.rows, thread, threads, &begin, &end)
    for y in range(begin, end):
        j.kernels.limit_change(<float *>(j.values + y * j.values_row), <const float *>(j.by + y * j.by_row),
                               j.by_step, j.factor, j.dotted, j.columns)


def limit_change(change, levels, float deviations, float dotted, int threads=1, isa=None):
    """Clip a change (H, W, 3) float32 in place to +-deviations * level * max(1, level * dotted)^4.

    levels : (H, W) float32, or what broadcasts to it, anyhow in memory; none is negative.
    """
    cdef job j
    require(change.ndim == 3 and change.shape[2] == 3, f"a change is (H, W, 3), not {change.shape}")
    require(change.dtype == np.float32 and levels.dtype == np.float32, "a change and its levels are float32")
    levels = np.broadcast_to(levels, change.shape[:2])
    require(levels.flags.aligned and levels.strides[1] % 4 == 0, "levels must be aligned")
    j.kernels, j.factor, j.dotted = table(isa), deviations, dotted
    j.rows, j.columns = change.shape[:2]
    j.values = rows_of(change, "the change", &j.values_row, True)
    j.by, j.by_row, j.by_step = <char *><size_t>levels.ctypes.data, levels.strides[0], levels.strides[1] // 4
    run(limit_rows, &j, threads)


def roughness(picture, rows, isa=None):
    """How rough a picture (H, W, 3) is in the blocks of 16 x 16 pixels that begin in the ``rows`` given.

    Returns
    -------
    (len(rows), (W - 2) // 16, 3) float32, of the inner 14 x 16 pixels of each block: how many have a value
    that is as dark or bright as can be; the sum of squares of second differences down and across, over 6
    and in units of 0..255; and that of their sums over the channels.
    """
    cdef const zn_kernels *kernels = table(isa)
    cdef ptrdiff_t row, out_row, y
    cdef int format, i, count = len(rows), blocks = (picture.shape[1] - 2) // 16
    cdef const char *source = picture_of(picture, &row, &format)
    require(blocks > 0 and count > 0 and min(rows) >= 0 and max(rows) + 16 <= len(picture),
            "blocks must lie in the picture")
    out = np.empty((count, blocks, 3), np.float32)
    cdef char *to = rows_of(out, "out", &out_row)
    for i, y in enumerate(rows):
        with nogil:
            kernels.roughness(source + y * row, row, format, blocks, <float *>(to + i * out_row))
    return out


def count_clipped(picture, isa=None):
    """How many values of each cell of a picture (H, W, 3) are as dark or bright as can be.

    Returns
    -------
    (ceil(H / 8), ceil(W / 8)) uint8: of the 48 values that every second pixel in every second row of 8 x 8
    has. What lies beyond the picture counts as the last of them.
    """
    cdef const zn_kernels *kernels = table(isa)
    cdef ptrdiff_t row, out_row
    cdef int format, y, height = picture.shape[0], width = picture.shape[1]
    cdef const char *source = picture_of(picture, &row, &format)
    out = np.empty(((height + 7) // 8, (width + 7) // 8), np.uint8)
    cdef char *to = rows_of(out, "out", &out_row)
    with nogil:
        for y in range(0, height, 8):
            kernels.count_clipped(source + y * row, row, format, min(8, height - y), width,
                                  <unsigned char *>(to + y // 8 * out_row))
    return out


def patches(picture, int channel, int down, int across, isa=None):
    """Patches of 5 x 5 pixels of one channel of a picture (H, W, 3), ``down`` and ``across`` pixels apart.

    Returns
    -------
    (n, 25) float32 in units of 0..255, each patch less its mean, and these means (n,).
    """
    cdef const zn_kernels *kernels = table(isa)
    cdef ptrdiff_t row, out_row, y
    cdef int format, i, height = picture.shape[0], width = picture.shape[1]
    cdef const char *source = picture_of(picture, &row, &format)
    require(height >= ZN_PATCH and width >= ZN_PATCH and down > 0 and across > 0 and 0 <= channel < 3,
            "a picture has patches of 5 x 5 pixels and three channels")
    cdef int rows = (height - ZN_PATCH) // down + 1, count = (width - ZN_PATCH) // across + 1
    out = np.empty((rows, count * ZN_PATCH_VALUES), np.float32)
    means = np.empty((rows, count), np.float32)
    cdef char *to = rows_of(out, "out", &out_row)
    cdef float *to_means = <float *><size_t>means.ctypes.data
    with nogil:
        for i in range(rows):
            y = <ptrdiff_t>i * down
            kernels.patches(source + y * row, row, format, channel, across, count, <float *>(to + i * out_row),
                            to_means + <ptrdiff_t>i * count)
    return out.reshape(-1, ZN_PATCH_VALUES)[:, : ZN_PATCH * ZN_PATCH], means.ravel()


def enlarge_rows(rows, out, isa=None):
    """Fill out (H, W) with rows that lie between those of (ceil(H / 8), W), linearly; both are float32.

    A row is in the middle of its eight; beyond the first and the last one nothing changes.
    """
    cdef const zn_kernels *kernels = table(isa)
    cdef ptrdiff_t row, out_row, columns = out.shape[1]
    cdef int y, above, height = out.shape[0]
    require(rows.dtype == np.float32 and out.dtype == np.float32, "rows are float32")
    require(rows.shape == ((height + 7) // 8, columns), f"{rows.shape} rows do not make {out.shape}")
    given = np.pad(rows, [(1, 1), (0, 0)], mode="edge")
    cdef const char *source = rows_of(given, "rows", &row)
    cdef char *to = rows_of(out, "out", &out_row, True)
    with nogil:
        for y in range(height):
            above = (y + 4) // 8
            kernels.blend(<const float *>(source + above * row), <const float *>(source + (above + 1) * row),
                          <float>(((y + 4) % 8 + 0.5) / 8), <float *>(to + y * out_row), columns)
