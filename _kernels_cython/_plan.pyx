# cython: language_level=3
"""Plans in C: turns a compiled program into the structures of ``c/plan.h`` and runs them.

The program comes from `zenith_ae.engine.compiler`, which is trusted to be consistent; what a
caller of the engine passes in was checked by the engine.
"""

import threading

import numpy as np

from zenith_ae._kernels import _ops

from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stddef cimport ptrdiff_t

from checks cimport picture_format
from plan cimport *
from zenith cimport (
    ZN_BF16, ZN_BF16_TILES, ZN_BLOCK, ZN_FLOAT, ZN_INT16_DEPTH, ZN_MAX_SEGMENTS, ZN_PICTURE_VALUES,
    ZN_WINOGRAD_OUT, zn_lookup,
)

cdef zn_lookup kernels_for = <zn_lookup>PyCapsule_GetPointer(_ops.kernels_for, "zn_kernels_for")

# For `_pixels`: the pool of threads is in this module alone.
team_run = PyCapsule_New(<void *>zn_team_run, "zn_team_run", NULL)

# What the compiler has in common with c/plan.h and c/zenith.h, where it is explained.
BLOCK = ZN_BLOCK
INT16_DEPTH = ZN_INT16_DEPTH
LINE = ZN_LINE
MAX_SEGMENTS = ZN_MAX_SEGMENTS
MAX_THREADS = ZN_MAX_THREADS
PICTURE_VALUES = ZN_PICTURE_VALUES
POOL_ROWS = ZN_POOL_ROWS
WINOGRAD_TILE = ZN_WINOGRAD_OUT
WINOGRAD_UNIT = ZN_WINOGRAD_UNIT

cdef dict _kinds = {
    "load": ZN_LOAD, "gemm": ZN_GEMM, "winograd": ZN_WINOGRAD, "spectral": ZN_SPECTRAL, "mix": ZN_MIX,
    "pool_moments": ZN_POOL_MOMENTS, "pool_scale": ZN_POOL_SCALE, "pool_apply": ZN_POOL_APPLY,
    "relu": ZN_RELU, "clamp": ZN_CLAMP, "add": ZN_ADD,
}


cdef class Listener:
    """Who is told how far a run is, and what that raised."""

    cdef object progress
    cdef object error

    def __init__(self, progress):
        self.progress = progress


cdef int look(void *context, double done) noexcept with gil:
    """Of a ``zn_watch``: whatever is raised, by a Ctrl-C too, ends the run."""
    cdef Listener listener = <Listener>context
    try:
        PyErr_CheckSignals()
        if listener.progress is not None:
            listener.progress(done)
    except BaseException as error:
        listener.error = error
        return 1
    return 0


cdef ptrdiff_t padded(ptrdiff_t n):
    return (n + ZN_LINE - 1) // ZN_LINE * ZN_LINE


cdef zn_grid grid_of(activation, int stride):
    cdef zn_grid g
    g.at, g.row, g.pixel, g.stride = activation.at, activation.row, activation.pitch * stride, stride
    g.held, g.height = activation.held, activation.height
    return g


cdef class Plan:
    """A program for one level and number of threads.

    ``tiles`` computes products of bf16 as the level amx does, see ZN_BF16_TILES in ``c/zenith.h``.

    Attributes
    ----------
    arena_bytes : working memory of a run.
    labels : what the steps are.
    """

    cdef zn_plan plan
    cdef zn_step *steps
    cdef list arrays  # what C points into
    cdef readonly ptrdiff_t arena_bytes
    cdef int threads
    cdef readonly list labels

    def __cinit__(self):
        self.arrays = []

    def __init__(self, program, str isa, int threads, bint tiles=False):
        cdef Py_ssize_t i
        cdef int storage = ZN_FLOAT
        if program.bf16:
            storage = ZN_BF16_TILES if tiles else ZN_BF16
        level = _ops.level_names.index(isa)
        self.plan.kernels = kernels_for(level, storage)
        self.plan.float_kernels = kernels_for(level, ZN_FLOAT)
        if self.plan.kernels == NULL:
            raise ValueError(f"level {isa} is not available")
        self.threads = max(1, min(threads, ZN_MAX_THREADS))
        self.labels = [step.label for step in program.steps]
        self.plan.count = len(program.steps)
        written = set()
        self.steps = <zn_step *>self.take(self.plan.count * sizeof(zn_step))
        self.plan.steps = self.steps
        for i in range(self.plan.count):
            step = program.steps[i]
            self.fill(self.steps + i, step, step.out not in written)
            written.add(step.out)
        self.plan.scratch = padded(program.arena_bytes)
        # One line more than needed keeps the threads' scratch from starting at equal cache sets.
        self.plan.scratch_bytes = padded(program.scratch_bytes) + ZN_LINE
        self.arena_bytes = self.plan.scratch + self.threads * self.plan.scratch_bytes

    cdef void *take(self, size_t size) except NULL:
        """Zeroed memory that lives as long as the plan."""
        array = np.zeros(size if size else 1, np.uint8)
        self.arrays.append(array)
        return <void *><size_t>array.ctypes.data

    cdef const void *keep(self, values, dtype) except? NULL:
        """Address of an array that lives as long as the plan; NULL for None."""
        if values is None:
            return NULL
        array = np.ascontiguousarray(values, dtype)
        self.arrays.append(array)
        return <const void *><size_t>array.ctypes.data

    cdef const zn_product *products(self, products, adding=None) except? NULL:
        """The products of a step; ``adding`` is the step if they add what is elsewhere."""
        if not products:
            return NULL
        cdef zn_product *out = <zn_product *>self.take(len(products) * sizeof(zn_product))
        cdef Py_ssize_t i
        for i in range(len(products)):
            p = products[i]
            out[i].into, out[i].out = p.into, p.out
            out[i].segments, out[i].depth = len(p.segments), p.depth
            out[i].columns = ZN_BLOCK * len(p.blocks)
            out[i].segment = <const ptrdiff_t *>self.keep(p.segments, np.intp)
            out[i].block = <const ptrdiff_t *>self.keep(p.blocks, np.intp)
            out[i].residual_block = NULL
            if adding is not None:
                out[i].residual_block = <const ptrdiff_t *>self.keep(adding.skip_blocks(p), np.intp)
            out[i].segment_row = <const int *>self.keep(p.rows or [0] * len(p.segments), np.intc)
            out[i].int16 = p.weight.dtype == np.int16
            stored = np.uint16 if self.plan.kernels.value_bytes == 2 else np.float32
            out[i].weight = self.keep(p.weight, np.int16 if out[i].int16 else stored)
            out[i].bias = <const float *>self.keep(p.bias, np.float32)
            factors = p.weight[:, 0].size if out[i].int16 else 0
            if p.weight.size - factors != out[i].columns * out[i].segments * out[i].depth:
                raise ValueError("a product's weights do not fit its segments")
        return out

    cdef int fill(self, zn_step *s, step, bint first) except -1:
        s.kind = _kinds[step.kind]
        s.rows, s.width, s.load, s.store = step.rows, step.width, step.load, step.store
        s.split, s.clamp, s.relu = step.split, step.clamp, step.relu
        s.length, s.strip = step.length, step.strip
        s.chain, s.bands, s.band, s.lead = step.chain, step.bands, step.band, step.lead
        if step.into is not None:
            s.into = grid_of(step.into, step.into_stride)
        else:
            s.into.pixel = step.into_pitch
        if step.out is not None:
            s.out = grid_of(step.out, step.out_stride)
        else:
            s.out.pixel = step.out_pitch
        if step.residual is not None:
            s.has_residual = 1
            s.residual = grid_of(step.residual, 1)
        adding = step if step.adds_on_the_way else None
        if adding is not None:
            s.has_residual = 1
            s.residual = grid_of(step.add, step.out_stride)
        elif step.add is not None:
            s.add_rows = step.out_stride
            s.add_at, s.add_row = step.add.at, step.add.row
        if first and step.out is not None and step.out.border:  # whoever writes it first also clears its border
            b = step.out
            s.border.at, s.border.row = b.at, b.row
            s.border.held, s.border.width, s.border.channels = b.held, b.width, b.pitch
        products = step.products() if callable(step.products) else step.products
        s.product_count, s.products = len(products), self.products(products, adding)
        s.expand_count, s.expand = len(step.expand), self.products(step.expand)
        if step.mix is not None:
            s.mix = self.mix(step.mix)
        if step.spectral is not None:
            s.spectral = self.spectral(step.spectral())
        if step.pool is not None:
            s.pool = self.pool(step.pool)
        return 0

    cdef const zn_mix *mix(self, mix) except NULL:
        cdef zn_mix *m = <zn_mix *>self.take(sizeof(zn_mix))
        cdef Py_ssize_t i
        m.planes, m.lane, m.tile, m.band = mix.planes, mix.lane, mix.tile, mix.band
        m.separable, m.eyes = mix.separable, mix.eyes
        m.spectral = <const unsigned char *>self.keep(mix.spectral, np.uint8)
        m.eyes_weight = <const float *>self.keep(mix.eyes_weight, np.float32)
        m.eyes_bias = <const float *>self.keep(mix.eyes_bias, np.float32)
        for i in range(len(mix.gates)):
            m.gate[i] = <const float *>self.keep(mix.gates[i], np.float32)
            m.threshold[i] = <const float *>self.keep(mix.thresholds[i], np.float32)
        return m

    cdef const zn_spectral *spectral(self, spectral) except NULL:
        cdef zn_spectral *m = <zn_spectral *>self.take(sizeof(zn_spectral))
        m.size, m.outputs = len(spectral.gather), len(spectral.scatter)
        m.gather = <const ptrdiff_t *>self.keep(spectral.gather, np.intp)
        m.in_scale = <const float *>self.keep(spectral.in_scale, np.float32)
        m.scatter = <const ptrdiff_t *>self.keep(spectral.scatter, np.intp)
        m.source = <const int *>self.keep(spectral.source, np.intc)
        m.out_scale = <const float *>self.keep(spectral.out_scale, np.float32)
        m.bias = <const float *>self.keep(spectral.bias, np.float32)
        return m

    cdef const zn_pool *pool(self, pool) except NULL:
        cdef zn_pool *m = <zn_pool *>self.take(sizeof(zn_pool))
        m.groups, m.channels = pool.linear.shape
        m.wide, m.epsilon = len(pool.gamma), pool.epsilon
        m.gamma = <const float *>self.keep(pool.gamma, np.float32)
        m.beta = <const float *>self.keep(pool.beta, np.float32)
        m.linear = <const float *>self.keep(pool.linear, np.float32)
        m.square = <const float *>self.keep(pool.square, np.float32)
        m.moments, m.scale = pool.moments.start, pool.scale.start
        return m

    def run(self, arena, source, plane, int y, int x, target, int skip_rows, int skip_columns,
            times=None, progress=None, double seconds=0.1):
        """Run on one picture with the GIL released.

        What ``progress`` raises, and what a signal does in the main thread, ends it.

        Parameters
        ----------
        arena : 64-byte aligned bytes, at least ``arena_bytes``.
        source : (H, W, C) uint8, uint16 or float32, C-contiguous; plane : (H, W) float32 or None.
        y, x : the pixel of the source where the plan's input begins.
        target : (h, w, C) view whose rows may lie apart.
        skip_rows, skip_columns : of the plan's output, before those that go to the target.
        times : None, or float64 of length steps + 1: each step's seconds are added to its value, the
            last value is scratch.
        progress : None, or called in this thread every so many ``seconds`` with the share that is done, in
            [0, 1].
        """
        cdef zn_picture into, out
        cdef int threads = self.threads, used
        cdef double *times_ptr = NULL
        cdef Listener listener = Listener(progress)
        cdef zn_watch watch = [look, <void *>listener, seconds]
        cdef const zn_watch *watched = NULL
        cdef void *arena_ptr = <void *><size_t>arena.ctypes.data
        if arena.nbytes < self.arena_bytes or arena.ctypes.data % ZN_LINE:
            raise ValueError("the arena is too small or not aligned")
        height, width, channels = source.shape
        into.data = <void *><size_t>(source.ctypes.data + y * source.strides[0] + x * source.strides[1])
        into.row_bytes, into.format, into.channels = source.strides[0], picture_format(source), channels
        into.rows, into.width = height - y, width - x
        into.plane, into.plane_row = NULL, 0
        into.skip_rows = into.skip_columns = 0
        if plane is not None:
            into.plane_row = plane.strides[0] // 4
            into.plane = <const float *><size_t>plane.ctypes.data + y * into.plane_row + x
        out.rows, out.width, out.channels = target.shape
        out.data, out.row_bytes = <void *><size_t>target.ctypes.data, target.strides[0]
        out.format, out.plane, out.plane_row = picture_format(target), NULL, 0
        out.skip_rows, out.skip_columns = skip_rows, skip_columns
        if times is not None:
            if times.size < self.plan.count + 1 or times.dtype != np.float64:
                raise ValueError("times is too short")
            times_ptr = <double *><size_t>times.ctypes.data
        if progress is not None:
            watched = &watch
        elif threading.get_ident() == threading.main_thread().ident:  # the one that handles signals
            watched = &watch
            watch.seconds = 5 * seconds  # the GIL has to be waited for
        with nogil:
            used = zn_plan_run(&self.plan, arena_ptr, &into, &out, threads, times_ptr, watched)
        if listener.error is not None:
            raise listener.error
        if not used:
            raise RuntimeError("a process that was forked by progress cannot go on with its parent's run")
