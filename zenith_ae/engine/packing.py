"""Weights in the order in which the kernels read them.

A product of the native plan sums over taps (input pixels, relative to the output's) and channels.
Everything that is linear becomes such a product: the functions here give its matrix as
(columns, taps, depth), after which `pack` cuts it into panels of 16 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._kernels._plan import BLOCK, INT16_DEPTH, MAX_SEGMENTS

Array = NDArray[np.float32]


def pad16(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


class Packer:
    """Remembers what was packed, so that plans of all sizes share it.

    Parameters
    ----------
    tensors : the weights of a network.
    bf16 : whether activations and matrices are bf16, else float32. Biases, gates and depthwise
        weights are float32 in both cases.
    int16 : whether matrices of float32 activations are 16-bit integers where that is faster.
    winograd : whether convolutions that `geometry.winograd` names are computed so.
    """

    def __init__(
        self, tensors: dict[str, Array], bf16: bool = False, int16: bool = False, winograd: bool = True
    ) -> None:
        self.tensors = tensors
        self.bf16 = bf16
        self.int16 = int16
        self.winograd = winograd
        self._packed: dict[Hashable, Any] = {}

    @property
    def value_bytes(self) -> int:
        """Bytes of a value of an activation."""
        return 2 if self.bf16 else 4

    def whole(self, depth: int) -> int:
        """A depth that products can take: bf16 and int16 come in pairs."""
        return depth + depth % 2 if self.bf16 or self.int16 else depth

    def rounded(self, matrix: Array) -> Array:
        """A matrix as it is multiplied; of integers, which are more exact than bf16, as it was."""
        return from_bf16(to_bf16(matrix)) if self.bf16 else matrix

    def pack(self, matrix: Array, own: Array | None) -> NDArray[Any]:
        """(columns, taps, depth) as `pack` orders it, in the precision of the matrices.

        ``own`` is the layer's matrix (columns, ...) without any padding, the same wherever a network is cut,
        by which it is decided whether integers pay: not where few columns would share the rounding of what
        they read, nor where sums may be too long. None is for a product that is to be exact to float32.
        """
        if self.bf16:
            return pack(to_bf16(matrix))
        if self.int16 and own is not None and len(own) > BLOCK and own[0].size + MAX_SEGMENTS <= INT16_DEPTH:
            return pack_int16(matrix)
        return pack(matrix)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._packed:
            self._packed[key] = make()
        return self._packed[key]


def aligned(shape: tuple[int, ...]) -> Array:
    """Zeros that start on a cache line, as the kernels' loads like it."""
    raw = np.zeros(int(np.prod(shape)) + BLOCK, np.float32)
    skip = -raw.ctypes.data % 64 // 4
    return raw[skip : skip + raw.size - BLOCK].reshape(shape)


def vector(values: Array, size: int) -> Array:
    """A vector padded with zeros."""
    out = aligned((size,))
    out[: len(values)] = values
    return out


def pack(matrix: NDArray[Any]) -> NDArray[Any]:
    """Matrices for `_ops.gemm`: (columns, taps, depth) -> (panels, taps * depth, 16).

    Columns are filled up with zeros to whole panels of 16; row k of a panel holds the weights of its
    columns for input k. bf16 (uint16), whose depth is even, becomes pairs: (panels, taps * depth / 2, 16, 2).
    """
    dtype, width = (np.uint16, 2) if matrix.dtype == np.uint16 else (np.float32, 1)
    columns, rows = len(matrix), matrix[0].size
    flat = np.zeros((pad16(columns), rows), dtype)
    flat[:columns] = matrix.reshape(columns, rows)
    panels = flat.reshape(-1, BLOCK, rows // width, width).swapaxes(1, 2)
    out = aligned((len(panels), rows // width, BLOCK)).view(dtype).reshape(panels.shape)
    out[...] = panels
    return out if width == 2 else out[..., 0]


def pack_int16(matrix: Array) -> NDArray[np.int16]:
    """Matrices of integers for `_ops.gemm`: (columns, taps, depth) -> (panels, 1 + taps * depth / 2, 16, 2).

    Row 0 of a panel holds, as float32, the factor of each column's integers, which are as large as sums of
    32 bits allow for inputs of at most 2^13.
    """
    columns, rows = len(matrix), matrix[0].size
    values = matrix.reshape(columns, rows).astype(np.float64)
    # A rounded weight may be larger by half; in all that is less than one for each that is not zero.
    room = 2**18 - 1 - np.count_nonzero(values, axis=1)
    least = np.maximum(np.abs(values).sum(1) / room, np.abs(values).max(1) / (2**15 - 2))
    tiny = np.finfo(np.float32).tiny  # less is lost: a factor of its size has few bits, or is 0
    values[least < tiny] = 0
    factor = np.where(least < tiny, 1, least).astype(np.float32)
    flat = np.zeros((pad16(columns), rows), np.int16)
    flat[:columns] = np.rint(values / factor[:, None].astype(np.float64))
    panels = pad16(columns) // BLOCK
    out = aligned((panels, 1 + rows // 2, BLOCK))
    out[:, 0] = vector(factor, pad16(columns)).reshape(panels, BLOCK)
    packed = out.view(np.int16).reshape(*out.shape, 2)
    packed[:, 1:] = flat.reshape(panels, BLOCK, -1, 2).swapaxes(1, 2)
    return packed


def to_bf16(values: Array) -> NDArray[np.uint16]:
    """The upper halves of finite floats, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(values: NDArray[np.uint16]) -> Array:
    """The floats that bf16 stands for, exactly."""
    return (values.astype(np.uint32) << 16).view(np.float32)


def round_over_taps(matrix: Array) -> Array:
    """(columns, taps, depth) in values of bf16, the error of each tap added to the next one's weight.

    The taps of a channel see nearly the same value nearly everywhere, so it is their sum that must be
    exact: rounded one by one they brighten or darken a whole picture a little. Zeros stay zeros.
    """
    out, error = np.zeros_like(matrix), np.zeros_like(matrix[:, 0])
    for tap in range(matrix.shape[1]):
        wanted = matrix[:, tap] + error
        rounded = from_bf16(to_bf16(wanted))
        used = matrix[:, tap] != 0
        out[:, tap] = np.where(used, rounded, 0)
        error = np.where(used, wanted - rounded, error)
    return out


def dense(weight: Array, groups: int) -> Array:
    """The whole matrix (cout, cin) of a grouped one (cout, cin / groups)."""
    cout, depth = weight.shape
    out = np.zeros((cout, depth * groups), np.float32)
    for g in range(groups):
        rows = slice(g * cout // groups, (g + 1) * cout // groups)
        out[rows, g * depth : (g + 1) * depth] = weight[rows]
    return out


def by_pixel(weight: Array, r: int) -> Array:
    """(cout, C r r, ...) over torch's unshuffled channels -> (cout, r r, C, ...): taps, then channels."""
    return np.ascontiguousarray(weight.reshape(len(weight), -1, r * r, *weight.shape[2:]).swapaxes(1, 2))


def shuffled(matrix: Array, r: int, pitch: int) -> Array:
    """Rows in torch's order for a pixel shuffle, (C r r, ...) -> by sub-pixel, (r r * pitch, ...).

    Each sub-pixel gets ``pitch`` >= C rows, of which the last are zeros.
    """
    rest = matrix.shape[1:]
    channels = len(matrix) // (r * r)
    out = np.zeros((r * r, pitch, *rest), np.float32)
    out[:, :channels] = matrix.reshape(channels, r * r, *rest).swapaxes(0, 1)
    return out.reshape(r * r * pitch, *rest)


# The taps of a 3x3 kernel that fall on the same pixel of a picture before nearest upsampling,
# for the upper (or left) and the lower (or right) output: offset -> taps.
_MERGED = ({-1: (0,), 0: (1, 2)}, {0: (0, 1), 1: (2,)})


def phase(py: int, px: int) -> list[tuple[int, int]]:
    """The four taps (dy, dx) that output phase (py, px) has before the upsampling."""
    return [(dy, dx) for dy in _MERGED[py] for dx in _MERGED[px]]


def phases(weight: Array) -> dict[tuple[int, int], Array]:
    """A 3x3 kernel (cout, cin, 3, 3) on a nearest-upsampled input, one 2x2 kernel an output phase.

    Returns (py, px) -> (cout, 4, cin), taps in the order of `phase`. Merged taps are summed in
    float64 and rounded once.
    """
    wide = weight.astype(np.float64)
    return {
        (py, px): np.stack(
            [
                sum(wide[:, :, y, x] for y in ys for x in xs)
                for ys in _MERGED[py].values()
                for xs in _MERGED[px].values()
            ],
            axis=1,
        ).astype(np.float32)
        for py in (0, 1)
        for px in (0, 1)
    }


# Winograd's transform of a 3-tap filter for six products, see winograd.inc.h: a row for each of the
# points 0, 1/a, -1/a, a, -a and infinity, where a is the root of 2.
_ROOT = np.sqrt(2.0)
_FILTER = np.array(
    [
        [1, 0, 0],
        [-2 / 3, -_ROOT / 3, -1 / 3],
        [-2 / 3, _ROOT / 3, -1 / 3],
        [1 / 6, _ROOT / 6, 1 / 3],
        [1 / 6, -_ROOT / 6, 1 / 3],
        [0, 0, 1],
    ]
)


def winograd(weight: Array) -> Array:
    """A 3x3 kernel (cout, cin, 3, 3) as the matrices of 36 products, (36, cout, cin), rounded once."""
    found = _FILTER @ weight.astype(np.float64) @ _FILTER.T
    return np.moveaxis(found, (2, 3), (0, 1)).reshape(36, *weight.shape[:2]).astype(np.float32)


def planes(values: Array, lane: int, scale: float = 1.0) -> Array:
    """(..., channels) -> (channels / lane, ..., lane), channels filled up with zeros."""
    flat = values.reshape(-1, values.shape[-1])
    out = aligned((-(-flat.shape[1] // lane), len(flat), lane))
    padded = np.zeros((len(flat), len(out) * lane), np.float32)
    padded[:, : flat.shape[1]] = flat * np.float32(scale)
    out[...] = padded.reshape(len(flat), -1, lane).swapaxes(0, 1)
    return out
