# cython: language_level=3
"""Thin Python face of the kernel table: check, release the GIL, call.

The functions named like a kernel of ``c/zenith.h`` run exactly that kernel and exist for tests,
self-tests and benchmarks; the engine calls the table from C. ``wht_gate_forward`` and
``wht_gate_backward`` work on whole batches and serve training.

Arrays are numpy float32, C-contiguous unless said otherwise, channels last, a multiple of 16.
Activations may also be uint16, which stands for bf16 (the upper half of a float32) and selects the
kernels for it; all activations of a call have the type of the first one. ``isa`` names a level;
None is the current one (see `current_isa`).
"""

import os

import numpy as np

from zenith_ae.errors import IsaError

from cpython.pycapsule cimport PyCapsule_New
from libc.stddef cimport ptrdiff_t

from checks cimport picture_format, require
from zenith cimport *

# For `_plan`: the kernels are in this module alone.
kernels_for = PyCapsule_New(<void *>zn_kernels_for, "zn_kernels_for", NULL)


# --- levels ---------------------------------------------------------------------------------

level_names = tuple(zn_level_name(level).decode() for level in range(ZN_LEVELS))


def compiled_isas():
    """Names of the instruction-set levels that this build contains; see `available_isas` for their order."""
    return tuple(name for level, name in enumerate(level_names) if zn_level_compiled(level))


def available_isas():
    """Names of the compiled levels that this CPU and operating system can run, by what they need.

    A later one is faster, but for avx512bf16 on Intel's CPUs: `current_isa()` is the best one.
    """
    return tuple(name for level, name in enumerate(level_names) if zn_level_available(level))


def current_isa(name=None):
    """The level to use: ``name``, else the environment's ``ZENITH_ISA``, else the best one.

    Raises
    ------
    IsaError
        If the level that was asked for is unknown, not compiled in or not supported by the CPU.
    """
    source = ""
    if name is None:
        name, source = os.environ.get("ZENITH_ISA", "").strip(), " (from ZENITH_ISA)"
    if not name:
        return level_names[zn_best_level()]
    if name in level_names and zn_level_available(level_names.index(name)):  # of no other: asking for AMX gets it
        return name
    if name not in level_names:
        reason = "is not a level"
    elif name not in compiled_isas():
        reason = "is not compiled into this build"
    elif name == "amx" and "amx_bf16" in cpu_features():
        reason = "is not granted by the operating system"
    else:
        reason = "is not supported by this CPU"
    raise IsaError(f"ISA {name!r}{source} {reason}; available: {', '.join(available_isas())}")


def fast_bf16(isa=None):
    """Whether a level computes with bf16 by instructions made for it, as opposed to emulating them."""
    return bool(zn_level_fast_bf16(level_names.index(current_isa(isa))))


def fast_int16(isa=None):
    """Whether products of 16-bit integers are faster than of float32 on a level that has no fast bf16."""
    return bool(zn_level_fast_int16(level_names.index(current_isa(isa))))


def cpu_features():
    """Names of instruction sets beyond the levels that this CPU has, whether they are used or not."""
    cdef int found = zn_cpu_features()
    bits = {
        "avx_vnni": ZN_HAS_AVX_VNNI,
        "avx512_vnni": ZN_HAS_AVX512_VNNI,
        "avx512_bf16": ZN_HAS_AVX512_BF16,
        "amx_bf16": ZN_HAS_AMX_BF16,
        "amx_int8": ZN_HAS_AMX_INT8,
    }
    return tuple(name for name, bit in bits.items() if found & bit)


cdef const zn_kernels *table(isa, array=None, bint tiles=False) except NULL:
    """The kernels of a level, for how ``array`` is stored."""
    cdef int storage = ZN_FLOAT
    if isinstance(array, np.ndarray) and array.dtype == np.uint16:
        storage = ZN_BF16_TILES if tiles else ZN_BF16
    return zn_kernels_for(level_names.index(current_isa(isa)), storage)


# --- checks ---------------------------------------------------------------------------------

cdef int require_array(array, dtype, shape, str what) except -1:
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise TypeError(f"{what} must be a numpy array of {np.dtype(dtype).name}")
    if array.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, not {array.shape}")
    return 0


cdef void *address(array, dtype, shape, str what, bint writable=False) except? NULL:
    """Data of a contiguous array of this dtype and shape."""
    require_array(array, dtype, shape, what)
    require(array.flags.c_contiguous, f"{what} must be C-contiguous")
    require(array.flags.aligned, f"{what} must be aligned")
    require(array.flags.writeable or not writable, f"{what} is read-only")
    return <void *><size_t>array.ctypes.data


cdef float *floats(array, shape, str what, bint writable=False) except? NULL:
    return <float *>address(array, np.float32, shape, what, writable)


cdef float *floats_or_none(array, shape, str what, bint writable=False) except? NULL:
    """The same, but NULL for None."""
    return NULL if array is None else floats(array, shape, what, writable)


cdef stored(array):
    """The type of activations that go with this array."""
    return np.uint16 if array.dtype == np.uint16 else np.float32


cdef void *values(array, like, shape, str what, bint writable=False) except? NULL:
    """Data of an array of activations, stored like the array ``like``."""
    return address(array, stored(like), shape, what, writable)


cdef void *values_or_none(array, like, shape, str what) except? NULL:
    """The same, but NULL for None."""
    return NULL if array is None else values(array, like, shape, what)


cdef void *rows_of(array, dtype, shape, str what, ptrdiff_t *stride, bint writable=False) except NULL:
    """Data of (rows, width, channels) whose rows may lie further apart; sets their stride."""
    require_array(array, dtype, shape, what)
    require(array.size == 0 or array[0].flags.c_contiguous, f"the rows of {what} must be contiguous")
    require(array.flags.aligned and array.strides[0] % array.itemsize == 0, f"the rows of {what} must be aligned")
    require(array.flags.writeable or not writable, f"{what} is read-only")
    stride[0] = array.strides[0] // array.itemsize
    return <void *><size_t>array.ctypes.data


cdef int require_channels(ptrdiff_t channels) except -1:
    return require(channels > 0 and channels % ZN_BLOCK == 0, "channels must be a positive multiple of 16")


cdef int require_tile(ptrdiff_t T) except -1:
    return require(T == 4 or T == 8 or T == 16, "tile must be 4, 8 or 16")


cdef int require_row_of_tiles(ptrdiff_t T, int rows, int width, int channels) except -1:
    require_tile(T)
    require_channels(channels)
    return require(0 < rows <= T and width > 0, "need 1 to T rows of at least one pixel")


# --- kernels --------------------------------------------------------------------------------

cdef int require_inside(array, ptrdiff_t start, ptrdiff_t step, ptrdiff_t pixels, offsets,
                        ptrdiff_t length, str what) except -1:
    """Every [start + offset + p * step, ... + length) for p < pixels lies in the flat array."""
    span = (int(pixels) - 1) * int(step)  # of Python, which does not overflow
    first = start + int(offsets.min()) + min(0, span)
    last = start + int(offsets.max()) + max(0, span) + length
    return require(first >= 0 and last <= len(array), f"{what} would be used outside its bounds")


def gemm(a, ptrdiff_t a_start, ptrdiff_t a_pixel, segment, int depth, b, bias, residual,
         ptrdiff_t residual_pixel, out, ptrdiff_t out_pixel, block, int pixels, bint relu=False, isa=None,
         bint tiles=False, residual_block=None):
    """Matrix product over segments, see ``zn_gemm`` in ``c/zenith.h``.

    a, residual and out are flat; segment, block and residual_block are ``np.intp`` offsets into a, out and
    residual; b is packed by `zenith_ae.engine.packing.pack`, or by its `pack_int16` for products of integers,
    whose weights are trusted not to let a sum overflow. bias (16 * panels,), residual and residual_block
    may be None. Where a is bf16, out may be bf16 or float32. ``tiles`` computes bf16 as the level amx does:
    emulated, slowly, at others.
    """
    cdef const zn_kernels *kernels = table(isa, a, tiles)
    cdef bint integers = b.dtype == np.int16, pairs = integers or a.dtype == np.uint16
    cdef ptrdiff_t start_bytes = a_start * kernels.value_bytes
    cdef zn_gemm g
    panels, segments = len(block), len(segment)
    require(pixels > 0 and depth > 0 and panels > 0, "need pixels, depth and columns")
    require(0 < segments <= ZN_MAX_SEGMENTS, f"need 1 to {ZN_MAX_SEGMENTS} segments")
    require(not pairs or depth % 2 == 0, "bf16 and int16 need an even depth")
    require(not integers or (a.dtype == np.float32 and segments * depth <= ZN_INT16_DEPTH),
            f"products of int16 are of float32 and at most {ZN_INT16_DEPTH} deep")
    g.a = <const char *>values(a, a, (a.size,), "a") + start_bytes
    g.a_pixel, g.segments, g.depth, g.pixels, g.columns = a_pixel, segments, depth, pixels, panels * ZN_BLOCK
    g.segment = <const ptrdiff_t *>address(segment, np.intp, (segments,), "segment")
    packed = (segments * depth // 2 + integers, ZN_BLOCK, 2) if pairs else (segments * depth, ZN_BLOCK)
    g.b = address(b, np.int16, (panels, *packed), "b") if integers else values(b, a, (panels, *packed), "b")
    g.bias = floats_or_none(bias, (panels * ZN_BLOCK,), "bias")
    g.residual, g.residual_block, g.residual_pixel = NULL, NULL, residual_pixel
    if residual is not None:
        g.residual = values(residual, a, (residual.size,), "residual")
        where = np.arange(0, g.columns, ZN_BLOCK) if residual_block is None else residual_block
        if residual_block is not None:
            g.residual_block = <const ptrdiff_t *>address(residual_block, np.intp, (panels,), "residual_block")
        require_inside(residual, 0, residual_pixel, pixels, where, ZN_BLOCK, "residual")
    g.float_out = out.dtype == np.float32
    g.out, g.out_pixel = values(out, out if g.float_out else a, (out.size,), "out", True), out_pixel
    g.block = <const ptrdiff_t *>address(block, np.intp, (panels,), "block")
    g.relu = relu
    require_inside(a, a_start, a_pixel, pixels, segment, depth, "a")
    require_inside(out, 0, out_pixel, pixels, block, ZN_BLOCK, "out")
    with nogil:
        if integers:
            kernels.gemm_int16(&g)
        else:
            kernels.gemm(&g)


def depthwise(above, row, below, weight, bias, add, out, bint relu=False, isa=None):
    """Depthwise 3x3 on one row: rows (width, channels), weight (3, 3, channels), bias (channels,).

    above, below, bias and add may be None; out may be add.
    """
    cdef const zn_kernels *kernels = table(isa, row)
    cdef int width, channels
    width, channels = shape = row.shape
    require_channels(channels)
    require(width > 0, "need at least one pixel")
    cdef const void *above_ptr = values_or_none(above, row, shape, "above")
    cdef const void *row_ptr = values(row, row, shape, "row")
    cdef const void *below_ptr = values_or_none(below, row, shape, "below")
    cdef const float *weight_ptr = floats(weight, (3, 3, channels), "weight")
    cdef const float *bias_ptr = floats_or_none(bias, (channels,), "bias")
    cdef const void *add_ptr = values_or_none(add, row, shape, "add")
    cdef void *out_ptr = values(out, row, shape, "out", True)
    with nogil:
        kernels.depthwise(above_ptr, row_ptr, below_ptr, weight_ptr, bias_ptr, add_ptr, out_ptr,
                          width, channels, relu)


def wht_tiles(x, out, gate, threshold, isa=None):
    """One row of tiles: x and out (rows, width, channels), rows possibly further apart.

    gate and threshold (T, T, channels), both already divided by T^2; threshold may be None and
    out may be x.
    """
    cdef const zn_kernels *kernels = table(isa, x)
    cdef int rows, width, channels, T = len(gate)
    cdef ptrdiff_t x_row, out_row
    rows, width, channels = shape = x.shape
    require_row_of_tiles(T, rows, width, channels)
    cdef const void *x_ptr = rows_of(x, stored(x), shape, "x", &x_row)
    cdef void *out_ptr = rows_of(out, stored(x), shape, "out", &out_row, True)
    cdef const float *gate_ptr = floats(gate, (T, T, channels), "gate")
    cdef const float *threshold_ptr = floats_or_none(threshold, (T, T, channels), "threshold")
    with nogil:
        kernels.wht_tiles(x_ptr, x_row, out_ptr, out_row, rows, width, channels, T, gate_ptr,
                          threshold_ptr)


def wht_tiles_separable(x, out, row_gate, row_threshold, column_gate, column_threshold, isa=None):
    """As `wht_tiles`, along rows and then along columns; gates (T, channels) already divided by T."""
    cdef const zn_kernels *kernels = table(isa, x)
    cdef int rows, width, channels, T = len(row_gate)
    cdef ptrdiff_t x_row, out_row
    rows, width, channels = shape = x.shape
    require_row_of_tiles(T, rows, width, channels)
    cdef const void *x_ptr = rows_of(x, stored(x), shape, "x", &x_row)
    cdef void *out_ptr = rows_of(out, stored(x), shape, "out", &out_row, True)
    cdef const float *rg = floats(row_gate, (T, channels), "row_gate")
    cdef const float *rt = floats_or_none(row_threshold, (T, channels), "row_threshold")
    cdef const float *cg = floats(column_gate, (T, channels), "column_gate")
    cdef const float *ct = floats_or_none(column_threshold, (T, channels), "column_threshold")
    with nogil:
        kernels.wht_tiles_separable(x_ptr, x_row, out_ptr, out_row, rows, width, channels, T, rg, rt,
                                    cg, ct)


def wht_tiles_backward(x, grad_out, grad_in, gate, threshold, grad_gate, grad_threshold, isa=None):
    """Gradients of `wht_tiles`: writes grad_in, adds to grad_gate and grad_threshold."""
    cdef const zn_kernels *kernels = table(isa)
    cdef int rows, width, channels, T = len(gate)
    cdef ptrdiff_t x_row, grad_row, in_row
    rows, width, channels = shape = x.shape
    require_row_of_tiles(T, rows, width, channels)
    require((threshold is None) == (grad_threshold is None), "grad_threshold goes with threshold")
    cdef const float *x_ptr = <const float *>rows_of(x, np.float32, shape, "x", &x_row)
    cdef const float *grad_ptr = <const float *>rows_of(grad_out, np.float32, shape, "grad_out", &grad_row)
    cdef float *in_ptr = <float *>rows_of(grad_in, np.float32, shape, "grad_in", &in_row, True)
    cdef const float *gate_ptr = floats(gate, (T, T, channels), "gate")
    cdef const float *threshold_ptr = floats_or_none(threshold, (T, T, channels), "threshold")
    cdef float *dgate_ptr = floats(grad_gate, (T, T, channels), "grad_gate", True)
    cdef float *dthreshold_ptr = floats_or_none(grad_threshold, (T, T, channels), "grad_threshold", True)
    with nogil:
        kernels.wht_tiles_backward(x_ptr, x_row, grad_ptr, grad_row, in_ptr, in_row, rows, width,
                                   channels, T, gate_ptr, threshold_ptr, dgate_ptr, dthreshold_ptr)


def winograd_in(x, out, isa=None):
    """A row of input tiles of Winograd's convolution: x (6, width, channels), its rows possibly further
    apart, to out (36, tiles, channels), likewise."""
    cdef const zn_kernels *kernels = table(isa, x)
    cdef int i, width, channels, tiles
    cdef ptrdiff_t x_row, plane
    cdef const void *row[ZN_WINOGRAD_IN]
    _, width, channels = x.shape
    tiles = out.shape[1]
    require_channels(channels)
    require(width > 0 and tiles > 0, "need a pixel and a tile")
    cdef const void *x_ptr = rows_of(x, stored(x), (ZN_WINOGRAD_IN, width, channels), "x", &x_row)
    cdef void *out_ptr = rows_of(out, stored(x), (ZN_WINOGRAD_IN**2, tiles, channels), "out", &plane, True)
    for i in range(ZN_WINOGRAD_IN):
        row[i] = <const char *>x_ptr + i * x_row * kernels.value_bytes
    with nogil:
        kernels.winograd_in(row, width, channels, tiles, out_ptr, plane)


def winograd_out(x, bias, residual, out, bint relu=False, isa=None):
    """A row of output tiles of Winograd's convolution: x (36, tiles, channels) float32 to out (rows <= 4,
    width, channels) with tiles = ceil(width / 4). Rows may lie further apart. bias (channels,) and
    residual, stored and shaped like out, may be None."""
    cdef const zn_kernels *kernels = table(isa, out)
    cdef int rows, width, channels
    cdef ptrdiff_t plane, out_row, residual_row = 0
    cdef const void *residual_ptr = NULL
    rows, width, channels = shape = out.shape
    require_channels(channels)
    require(0 < rows <= ZN_WINOGRAD_OUT and width > 0, "need 1 to 4 rows of at least one pixel")
    tiles = -(-width // ZN_WINOGRAD_OUT)
    cdef const float *x_ptr = <const float *>rows_of(
        x, np.float32, (ZN_WINOGRAD_IN**2, tiles, channels), "x", &plane)
    cdef const float *bias_ptr = floats_or_none(bias, (channels,), "bias")
    if residual is not None:
        residual_ptr = rows_of(residual, stored(out), shape, "residual", &residual_row)
    cdef void *out_ptr = rows_of(out, stored(out), shape, "out", &out_row, True)
    with nogil:
        kernels.winograd_out(x_ptr, plane, bias_ptr, residual_ptr, residual_row, out_ptr, out_row, rows,
                             width, channels, relu)


def fwht(x, isa=None):
    """Walsh-Hadamard transform of each row of x (count, n), in place; n a power of two."""
    cdef const zn_kernels *kernels = table(isa)
    cdef ptrdiff_t count, n, stride
    count, n = x.shape
    require(n > 0 and n & (n - 1) == 0, "length must be a power of two")
    cdef float *x_ptr = <float *>rows_of(x[:, :, None], np.float32, (count, n, 1), "x", &stride, True)
    with nogil:
        kernels.fwht(x_ptr, stride, count, n)


def relu(x, out, isa=None):
    """max(x, 0) of flat arrays; out may be x."""
    cdef const zn_kernels *kernels = table(isa, x)
    cdef ptrdiff_t n = x.size
    cdef const void *x_ptr = values(x, x, (n,), "x")
    cdef void *out_ptr = values(out, x, (n,), "out", True)
    with nogil:
        kernels.relu(x_ptr, out_ptr, n)


def soft_clamp(x, out, float limit, isa=None):
    """tanh(x / limit) * limit of flat arrays; out may be x."""
    cdef const zn_kernels *kernels = table(isa, x)
    cdef ptrdiff_t n = x.size
    require(limit > 0, "limit must be positive")
    cdef const void *x_ptr = values(x, x, (n,), "x")
    cdef void *out_ptr = values(out, x, (n,), "out", True)
    with nogil:
        kernels.soft_clamp(x_ptr, out_ptr, n, limit)


def add(x, y, out, isa=None):
    """x + y of flat arrays; out may be x or y."""
    cdef const zn_kernels *kernels = table(isa, x)
    cdef ptrdiff_t n = x.size
    cdef const void *x_ptr = values(x, x, (n,), "x")
    cdef const void *y_ptr = values(y, x, (n,), "y")
    cdef void *out_ptr = values(out, x, (n,), "out", True)
    with nogil:
        kernels.add(x_ptr, y_ptr, out_ptr, n)


def from_floats(x, out, isa=None):
    """Flat float32 x as it is stored in out, which is float32 or bf16."""
    cdef const zn_kernels *kernels = table(isa, out)
    cdef ptrdiff_t n = x.size
    cdef const float *x_ptr = floats(x, (n,), "x")
    cdef void *out_ptr = values(out, out, (n,), "out", True)
    with nogil:
        kernels.from_floats(x_ptr, out_ptr, n)


def to_floats(x, out, isa=None):
    """Flat x as it is stored, float32 or bf16, as float32."""
    cdef const zn_kernels *kernels = table(isa, x)
    cdef ptrdiff_t n = x.size
    cdef const void *x_ptr = values(x, x, (n,), "x")
    cdef float *out_ptr = <float *>address(out, np.float32, (n,), "out", True)
    with nogil:
        kernels.to_floats(x_ptr, out_ptr, n)


def split(x, out, isa=None):
    """Float32 x (pixels, channels) as sums of two bf16, out (pixels, 2 * channels) of uint16."""
    cdef const zn_kernels *kernels = table(isa)
    cdef int pixels, channels
    pixels, channels = shape = x.shape
    require(0 < channels <= ZN_SPLIT_CHANNELS and pixels > 0, "need pixels, and 1 to 64 channels")
    cdef const float *x_ptr = floats(x, shape, "x")
    cdef unsigned short *out_ptr = <unsigned short *>address(out, np.uint16, (pixels, 2 * channels), "out", True)
    with nogil:
        kernels.split(x_ptr, channels, out_ptr, pixels)


def moments(x, out, isa=None):
    """Add the products of each two channels of x (pixels, channels) to out[:-1], above and on the diagonal,
    and its channels to out[-1], summed over the pixels; out is (channels + 1, channels) of float64."""
    cdef const zn_kernels *kernels = table(isa)
    cdef int pixels, channels
    pixels, channels = shape = x.shape
    require_channels(channels)
    cdef const float *x_ptr = floats(x, shape, "x")
    cdef double *out_ptr = <double *>address(out, np.float64, (channels + 1, channels), "out", True)
    with nogil:
        kernels.moments(x_ptr, pixels, channels, out_ptr)


def scale_shift(x, scale, shift, out, bint relu=False, isa=None):
    """x * scale + shift of x (pixels, channels) by channel; out may be x."""
    cdef const zn_kernels *kernels = table(isa, out)
    cdef int pixels, channels
    pixels, channels = shape = x.shape
    require_channels(channels)
    cdef const float *x_ptr = floats(x, shape, "x")
    cdef const float *scale_ptr = floats(scale, (channels,), "scale")
    cdef const float *shift_ptr = floats(shift, (channels,), "shift")
    cdef void *out_ptr = values(out, out, shape, "out", True)
    with nogil:
        kernels.scale_shift(x_ptr, scale_ptr, shift_ptr, out_ptr, pixels, channels, relu)


cdef int whole_format(array) except -1:
    """`picture_format` of a picture that lies in one piece."""
    cdef int format = picture_format(array)
    require(array.size > 0 and array.flags.c_contiguous, "a picture must be contiguous and not empty")
    require(array.flags.aligned, "a picture must be aligned")
    return format


cdef enum:
    MAX_FACTOR = 64  # whose square would be more than ZN_PICTURE_VALUES


def load_picture(picture, plane, int r, out, isa=None):
    """One row of an unshuffled activation: up to r rows (rows, width, channels) to out (out_width, out_channels).

    plane (rows, width) float32 is an additional last channel, or None.
    """
    cdef const zn_kernels *kernels = table(isa)
    cdef int rows, width, channels, out_width, out_channels, extra = plane is not None
    cdef int format = whole_format(picture)
    rows, width, channels = picture.shape
    out_width, out_channels = out.shape
    require(0 < r <= MAX_FACTOR and rows <= r and 0 < out_width, "need 1 to r rows and some output")
    require(channels <= ZN_PICTURE_VALUES, "picture has too many channels")
    require(r * r * (channels + extra) <= out_channels <= ZN_PICTURE_VALUES,
            "out has too few or too many channels")
    cdef const void *picture_ptr = <const void *><size_t>picture.ctypes.data
    cdef const float *plane_ptr = floats_or_none(plane, (rows, width), "plane")
    cdef float *out_ptr = floats(out, (out_width, out_channels), "out", True)
    cdef ptrdiff_t row_bytes = picture.strides[0]
    with nogil:
        kernels.load_picture(picture_ptr, row_bytes, format, channels, plane_ptr, width, rows,
                             width, r, out_ptr, out_width, out_channels)


def store_picture(x, int r, picture, isa=None):
    """Inverse of `load_picture`: x (x_width, x_channels) to up to r rows (rows, width, channels)."""
    cdef const zn_kernels *kernels = table(isa)
    cdef int rows, width, channels, x_width, x_channels
    cdef int format = whole_format(picture)
    rows, width, channels = picture.shape
    x_width, x_channels = x.shape
    require(0 < r <= MAX_FACTOR and rows <= r, "need 1 to r rows")
    require(channels <= ZN_PICTURE_VALUES and width <= x_width * <ptrdiff_t>r, "the picture is larger than x")
    require(r * r * channels <= x_channels <= ZN_PICTURE_VALUES, "x has too few or too many channels")
    require(picture.flags.writeable, "picture is read-only")
    cdef const float *x_ptr = floats(x, (x_width, x_channels), "x")
    cdef void *picture_ptr = <void *><size_t>picture.ctypes.data
    cdef ptrdiff_t row_bytes = picture.strides[0]
    with nogil:
        kernels.store_picture(x_ptr, x_width, x_channels, r, picture_ptr, row_bytes, format, channels,
                              rows, width)


# --- training -------------------------------------------------------------------------------

def wht_gate_forward(x, gate, threshold, out, isa=None):
    """``out = WHT(shrink(gate * WHT(x), threshold)) / T^2`` over the T x T tiles of a batch.

    Parameters
    ----------
    x, out : (N, H, W, C) float32, C-contiguous, C a multiple of 16; out may be x.
    gate : (T, T, C) float32, T = 4, 8 or 16, not divided by T^2 (1 passes everything).
    threshold : (T, T, C) float32 >= 0, not divided by T^2, or None.

    Notes
    -----
    The GIL is released and no thread is started: split the batch to use several cores. Tiles are
    aligned to the origin and filled with zeros where they stick out.
    """
    cdef const zn_kernels *kernels = table(isa)
    cdef int N, H, W, C, T = len(gate)
    N, H, W, C = shape = x.shape
    require_tile(T)
    require_channels(C)
    require(N > 0 and H > 0 and W > 0, "need at least one pixel")
    cdef const float *x_ptr = floats(x, shape, "x")
    cdef float *out_ptr = floats(out, shape, "out", True)
    floats(gate, (T, T, C), "gate")
    floats_or_none(threshold, (T, T, C), "threshold")
    scale = np.float32(1 / T**2)
    folded_gate = gate * scale
    folded_threshold = None if threshold is None else threshold * scale
    cdef const float *gate_ptr = floats(folded_gate, (T, T, C), "gate")
    cdef const float *threshold_ptr = floats_or_none(folded_threshold, (T, T, C), "threshold")
    cdef ptrdiff_t n, y, i, row = <ptrdiff_t>W * C, tile_rows = (H + T - 1) // T
    with nogil:
        for n in range(N):
            for i in range(tile_rows):
                y = i * T
                kernels.wht_tiles(x_ptr + (n * H + y) * row, row, out_ptr + (n * H + y) * row, row,
                                  <int>min(T, H - y), W, C, T, gate_ptr, threshold_ptr)


def wht_gate_backward(x, grad_out, gate, threshold, grad_in, grad_gate, grad_threshold, isa=None):
    """Gradients of `wht_gate_forward` for the same x, gate and threshold.

    Parameters
    ----------
    x, grad_out : (N, H, W, C) float32, C-contiguous.
    grad_in : (N, H, W, C) float32, written; may be grad_out.
    grad_gate, grad_threshold : (T, T, C) float32, *added to*; grad_threshold is None where
        threshold is.
    """
    cdef const zn_kernels *kernels = table(isa)
    cdef int N, H, W, C, T = len(gate)
    N, H, W, C = shape = x.shape
    require_tile(T)
    require_channels(C)
    require(N > 0 and H > 0 and W > 0, "need at least one pixel")
    require((threshold is None) == (grad_threshold is None), "grad_threshold goes with threshold")
    cdef const float *x_ptr = floats(x, shape, "x")
    cdef const float *grad_ptr = floats(grad_out, shape, "grad_out")
    cdef float *in_ptr = floats(grad_in, shape, "grad_in", True)
    floats(gate, (T, T, C), "gate")
    floats_or_none(threshold, (T, T, C), "threshold")
    floats(grad_gate, (T, T, C), "grad_gate", True)
    floats_or_none(grad_threshold, (T, T, C), "grad_threshold", True)
    scale = np.float32(1 / T**2)
    folded_gate, dgate = gate * scale, np.zeros_like(gate)
    folded_threshold = None if threshold is None else threshold * scale
    dthreshold = None if threshold is None else np.zeros_like(gate)
    cdef const float *gate_ptr = floats(folded_gate, (T, T, C), "gate")
    cdef const float *threshold_ptr = floats_or_none(folded_threshold, (T, T, C), "threshold")
    cdef float *dgate_ptr = floats(dgate, (T, T, C), "grad_gate", True)
    cdef float *dthreshold_ptr = floats_or_none(dthreshold, (T, T, C), "grad_threshold", True)
    cdef ptrdiff_t n, y, i, row = <ptrdiff_t>W * C, tile_rows = (H + T - 1) // T
    with nogil:
        for n in range(N):
            for i in range(tile_rows):
                y = i * T
                kernels.wht_tiles_backward(x_ptr + (n * H + y) * row, row, grad_ptr + (n * H + y) * row,
                                           row, in_ptr + (n * H + y) * row, row, <int>min(T, H - y), W,
                                           C, T, gate_ptr, threshold_ptr, dgate_ptr, dthreshold_ptr)
    grad_gate += dgate * scale
    if threshold is not None:
        grad_threshold += dthreshold * scale
