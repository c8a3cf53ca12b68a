"""The matrix products of a program: which weights, read and written at which offsets.

Methods take the index of their layer (for the names of tensors) and a step whose activations are
final, since offsets depend on their rows. What is packed is remembered and shared by all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._kernels._plan import BLOCK, MAX_SEGMENTS
from ..errors import ConfigError
from ..models import spec
from . import packing
from .packing import Packer, pad16
from .program import Activation, Mix, Product, Spectral, Step

MAX_IDENTITY = 4096  # channels that are moved by a product with ones, so many squared

Tap = tuple[int, int]
Array = NDArray[np.float32]

TAPS_3X3 = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]


def segments(taps: Sequence[Tap], pitch: int, depth: int) -> tuple[list[int], list[int], int]:
    """Rows of taps in an activation, offsets in them, and the values to read at each.

    Where pixels are dense, the taps of a row follow each other and become one long segment.
    """
    rows: dict[int, list[int]] = {}
    for dy, dx in taps:
        rows.setdefault(dy, []).append(dx)
    runs = list(rows.items())
    length = len(runs[0][1])
    if pitch == depth and all(dxs == list(range(dxs[0], dxs[0] + length)) for _, dxs in runs):
        return [dy for dy, _ in runs], [dxs[0] * pitch for _, dxs in runs], length * depth
    return [dy for dy, _ in taps], [dx * pitch for _, dx in taps], depth


def blocks(step: Step, columns: int, shuffle: int) -> list[int]:
    """Where the 16-column blocks of a product lie, from the output pixel."""
    if step.out is None:
        return list(range(0, columns, BLOCK))
    a = step.out
    return [
        dy * a.row + dx * a.pitch + c
        for dy in range(shuffle)
        for dx in range(shuffle)
        for c in range(0, a.pitch, BLOCK)
    ]


def columns(step: Step, matrix: Array, shuffle: int) -> Array:
    """The rows of a matrix in the order of `blocks`."""
    if shuffle == 1:
        return matrix
    channels = len(matrix) // shuffle**2
    return packing.shuffled(matrix, shuffle, channels if step.out is None else pad16(channels))


def nest(values: Array, shuffle: int) -> Array:
    """(C s s, 2, 2, ...) of an upsampling followed by a shuffle by s -> (C 2s 2s, ...) of one shuffle.

    The output pixel of sub-pixel (a, b) of phase (py, px) is (s py + a, s px + b).
    """
    s, rest = shuffle, values.shape[3:]
    v = values.reshape(-1, s, s, 2, 2, *rest)
    v = np.moveaxis(v, (3, 4), (1, 3))  # C, py, a, px, b
    return np.ascontiguousarray(v).reshape(-1, *rest)


class Products:
    """Makes the products of one network.

    Parameters
    ----------
    packer : the network's tensors, and what was packed of them before.
    first : index in the network of the layer that is called 0 here.
    """

    def __init__(self, packer: Packer, first: int) -> None:
        self.packer = packer
        self.first = first

    def tensor(self, index: int, name: str) -> Array:
        return self.packer.tensors[f"{self.first + index}.{name}"]

    def once(self, key: tuple, index: int, make: Callable[[], Any]) -> Any:
        """What layer ``index`` packs under ``key``, shared by plans of all sizes."""
        return self.packer.once((*key, self.first + index), make)

    def product(
        self,
        key: tuple,
        i: int,
        step: Step,
        taps: Sequence[Tap],
        matrix: Array,
        bias: Array | None,
        shuffle: int,
    ) -> Product:
        """A product from taps and (columns, taps, depth) of weights in torch's order of channels."""
        # The row of a picture is one tap. A depth that has to be even also reads a zero channel.
        taken, depth = (1, matrix[0].size) if step.into is None else matrix.shape[1:]
        split = step.split or (step.into is not None and step.into.split)
        # The picture itself is read as it is; what only moves pixels (i < 0) changes none.
        exact = i < 0 or (self.first == 0 and (step.into is None or step.into.picture))
        whole = 2 * depth if split else self.packer.whole(depth)
        key = (*key, shuffle, step.out is None, step.into is None, split)

        def make() -> tuple[NDArray[Any], Array | None]:
            weights = packing.round_over_taps(matrix) if self.packer.bf16 else matrix
            ordered = columns(step, weights, shuffle)
            ordered = ordered.reshape(len(ordered), taken, depth)
            if split:
                ordered = np.concatenate([ordered, ordered], 2)
            elif whole > depth:
                ordered = np.pad(ordered, ((0, 0), (0, 0), (0, whole - depth)))
            packed = self.packer.pack(ordered, None if exact else matrix)
            if bias is None:
                return packed, None
            return packed, packing.vector(columns(step, bias, shuffle), len(packed) * BLOCK)

        weight, packed_bias = self.once(key, i, make)
        if step.into is None:
            rows, offsets, depth = [0], [0], whole
        else:
            rows, offsets, depth = segments(taps, step.into.pitch, whole)
        where = blocks(step, len(weight) * BLOCK, shuffle)
        return Product(offsets, depth, where, weight, packed_bias, rows=rows)

    def linear(
        self, i: int, layer: spec.Linear, step: Step, r: int, shuffle: int, at_edge: bool
    ) -> list[Product]:
        """Groups are one product with zeros ``at_edge``, where a stage begins or ends."""
        weight = self.tensor(i, "weight")
        bias = self.tensor(i, "bias") if layer.bias else None
        wide, deep = layer.cout // layer.groups, layer.cin // layer.groups
        grouped = layer.groups > 1 and r == 1 and shuffle == 1 and wide % BLOCK == 0 and not at_edge
        grouped = grouped and self.packer.whole(deep) == deep  # or it would read the next one's channels
        if not grouped:
            if layer.groups > 1 and layer.cout * layer.cin > MAX_IDENTITY**2:
                raise ConfigError(
                    f"layer {step.label}: {layer.cin} channels in {layer.groups} groups make a matrix of "
                    f"more than {MAX_IDENTITY} x {MAX_IDENTITY}"
                )
            taps = [(y, x) for y in range(r) for x in range(r)]
            matrix = packing.by_pixel(packing.dense(weight, layer.groups), r)
            return [self.product(("linear",), i, step, taps, matrix, bias, shuffle)]
        products = []
        for g in range(layer.groups):
            rows = slice(g * wide, (g + 1) * wide)

            def make(rows: slice = rows) -> tuple[NDArray[Any], Array | None]:
                packed = self.packer.pack(weight[rows, None], weight[rows])
                return packed, None if bias is None else packing.vector(bias[rows], wide)

            packed, packed_bias = self.once(("group", g), i, make)
            products.append(
                Product([0], deep, list(range(0, wide, BLOCK)), packed, packed_bias, g * deep, g * wide)
            )
        return products

    def conv(
        self, i: int, layer: spec.Conv, step: Step, r: int, shuffle: int, upsample: bool, at_end: bool
    ) -> list[Product]:
        """``r`` x ``r`` pixels are side by side in the channels that it reads (`compiler.load`); ``at_end``
        of a stage the phases of an enlarged input are one product.
        """
        weight = self.tensor(i, "weight")
        if r > 1:
            weight = packing.by_pixel(weight, r).reshape(weight.shape)
        bias = self.tensor(i, "bias") if layer.bias else None
        if step.strip:
            return self.winograd(("conv", r), i, step, weight, bias)
        matrix = np.ascontiguousarray(weight.reshape(layer.cout, layer.cin, 9).swapaxes(1, 2))
        if not upsample:
            return [self.product(("conv", r), i, step, TAPS_3X3, matrix, bias, shuffle)]
        merged = self.once(("phases",), i, lambda: packing.phases(weight))
        if at_end or shuffle > 1:
            # All four phases as one product on 3x3 taps, and a pixel shuffle.
            whole = np.zeros((layer.cout, 2, 2, 9, layer.cin), np.float32)
            for (py, px), kernel in merged.items():
                for tap, (dy, dx) in enumerate(packing.phase(py, px)):
                    whole[:, py, px, (dy + 1) * 3 + dx + 1] = kernel[:, tap]
            # Rows in torch's order for a shuffle by 2 and then by `shuffle`, as one shuffle.
            whole = nest(whole, shuffle)
            wide_bias = None if bias is None else nest(np.tile(bias[:, None, None], (1, 2, 2)), shuffle)
            return [self.product(("up", shuffle), i, step, TAPS_3X3, whole, wide_bias, 2 * shuffle)]
        products = []
        for (py, px), kernel in merged.items():
            p = self.product(("phase", py, px), i, step, packing.phase(py, px), kernel, bias, 1)
            p.out = py * step.out.row + px * step.out.pitch
            products.append(p)
        return products

    def identity(self, step: Step, channels: int, r: int, shuffle: int, upsample: bool) -> list[Product]:
        """Moves pixels only, by a product with ones: exact, and rare enough."""
        n = channels * r * r
        if n > MAX_IDENTITY:
            raise ConfigError(f"layer {step.label}: moves {n} channels at once, more than {MAX_IDENTITY}")
        eye = np.eye(n, dtype=np.float32)
        taps = [(y, x) for y in range(r) for x in range(r)]
        if upsample and step.out is None:
            # Each channel four times, and a pixel shuffle.
            return [self.product(("enlarge", n), -1, step, taps, np.repeat(eye, 4, 0)[:, None], None, 2)]
        matrix = packing.by_pixel(eye, r)
        products = []
        for py in range(2 if upsample else 1):
            for px in range(2 if upsample else 1):
                p = self.product(("identity", n, r), -1, step, taps, matrix, None, shuffle)
                if step.out is not None:
                    p.out = py * step.out.row + px * step.out.pitch
                products.append(p)
        return products

    def spectral(self, i: int, layer: spec.SpectralLinear, step: Step, r: int, shuffle: int) -> Spectral:
        """Offsets and scales of a spectral mixing, see zn_spectral in plan.h."""
        n = layer.size
        channels = layer.cin // (r * r)

        def offset(j: int) -> int:
            if j >= layer.cin:
                return -1
            c, dy, dx = j // (r * r), j // r % r, j % r
            if step.into is None:
                return (dy * r + dx) * channels + c
            return int(dy * step.into.row + dx * step.into.pitch + c)

        pitch = layer.cout // shuffle**2 if step.out is None else step.out.pitch
        where, source = [], []
        for dy in range(shuffle):
            for dx in range(shuffle):
                for c in range(pitch):
                    j = (c * shuffle + dy) * shuffle + dx
                    source.append(j if c < layer.cout // shuffle**2 else -1)
                    if step.out is None:
                        where.append((dy * shuffle + dx) * pitch + c)
                    else:
                        where.append(dy * step.out.row + dx * step.out.pitch + c)
        index = np.array(source, np.int32)
        inside = index >= 0
        scale, bias = np.zeros((2, len(index)), np.float32)
        scale[inside] = self.tensor(i, "out_scale")[index[inside]]
        bias[inside] = self.tensor(i, "bias")[index[inside]]
        return Spectral(
            gather=np.array([offset(j) for j in layer.permutation], np.intp),
            in_scale=(self.tensor(i, "in_scale") / np.sqrt(n)).astype(np.float32),
            scatter=np.array(where, np.intp),
            source=index,
            out_scale=scale,
            bias=bias,
        )

    def res(self, i: int, step: Step, name: int) -> list[Product]:
        weight, bias = self.tensor(i, f"conv.{name}.weight"), self.tensor(i, f"conv.{name}.bias")
        if step.strip:
            return self.winograd(("res", name), i, step, weight, bias)
        matrix = np.ascontiguousarray(weight.reshape(*weight.shape[:2], 9).swapaxes(1, 2))
        return [self.product(("res", name), i, step, TAPS_3X3, matrix, bias, 1)]

    def winograd(self, key: tuple, i: int, step: Step, weight: Array, bias: Array | None) -> list[Product]:
        """36 products of a strip of transformed tiles, as one whose segments are their values."""
        depth, columns = step.into.pitch, step.out.pitch

        def make() -> tuple[NDArray[Any], Array | None]:
            more = (columns - weight.shape[0], depth - weight.shape[1])
            padded = np.pad(weight, [(0, n) for n in (*more, 0, 0)])
            packed = self.packer.pack(packing.winograd(padded).reshape(-1, 1, depth), weight)
            return packed, None if bias is None else packing.vector(bias, columns)

        packed, packed_bias = self.once(("winograd", *key), i, make)
        plane = step.strip * depth + BLOCK
        return [
            Product(
                [p * plane for p in range(36)], depth, list(range(0, columns, BLOCK)), packed, packed_bias
            )
        ]

    def pool(
        self, i: int, x: Activation, out: Activation, groups: int
    ) -> tuple[tuple[Array, Array, Array, Array], Product, Product]:
        """The vectors of a `Pool`, and the products before and after its normalisation."""
        wide = len(self.tensor(i, "pool.0.weight"))
        depth = self.packer.whole(x.channels)

        def vector(name: str) -> Array:
            return self.once((name,), i, lambda: packing.vector(self.tensor(i, name), wide))

        def pack(name: str, depth: int) -> NDArray[Any]:
            weight = self.tensor(i, name)[:, None, :, 0, 0]
            padded = np.pad(weight, ((0, 0), (0, 0), (0, depth - weight.shape[2])))
            return self.once((name,), i, lambda: self.packer.pack(padded, weight))

        def measures() -> tuple[Array, Array]:
            weight = self.packer.rounded(self.tensor(i, "pool.0.weight")[:, :, 0, 0]).astype(np.float64)
            weight = np.pad(weight, ((0, 0), (0, x.pitch - weight.shape[1])))
            weight = weight.reshape(groups, -1, x.pitch)
            square = weight.swapaxes(1, 2) @ weight
            return weight.sum(1).astype(np.float32), (np.triu(square) + np.triu(square, 1)).astype(np.float32)

        linear, square = self.once(("moments", groups, x.pitch), i, measures)
        widen = Product([0], depth, list(range(0, wide, BLOCK)), pack("pool.0.weight", depth), None)
        narrow = Product([0], wide, list(range(0, out.pitch, BLOCK)), pack("pool.3.weight", wide), None)
        return (vector("pool.1.weight"), vector("pool.1.bias"), linear, square), widen, narrow

    def zenith(
        self, i: int, layer: spec.ZenithBlock, x: Activation, out: Activation, u_plane: int, e_plane: int
    ) -> tuple[list[Product], list[Product]]:
        """The compressing and the expanding products; hidden channels lie in planes of `lane`.

        One of each for every group, or where groups are no whole planes one with zeros between them.
        """
        in_planes = layer.channels % (BLOCK * layer.groups) == layer.hidden % (BLOCK * layer.groups) == 0
        parts, lane = layer.groups if in_planes else 1, self.lane(layer)
        depth = self.packer.whole(x.channels // parts)
        planes, columns = pad16(layer.hidden) // lane // parts, out.pitch // parts

        def once(name: str, g: int, columns: int, depth: int) -> tuple[NDArray[Any], Array]:
            def make() -> tuple[NDArray[Any], Array]:
                weight = packing.dense(self.tensor(i, f"{name}.weight"), layer.groups // parts)
                rows = slice(g * len(weight) // parts, (g + 1) * len(weight) // parts)
                padded = np.zeros((columns, 1, depth), np.float32)
                padded[: len(weight[rows]), 0, : weight.shape[1]] = weight[rows]
                bias = self.tensor(i, f"{name}.bias")[rows]
                return self.packer.pack(padded, weight), packing.vector(bias, columns)

            return self.once((name, g), i, make)

        compress, expand = [], []
        for g in range(parts):
            own = range(g * planes, (g + 1) * planes)
            compress.append(
                Product(
                    [0], depth, [p * u_plane + k for p in own for k in range(0, lane, BLOCK)],
                    *once("compress", g, planes * lane, depth),
                    into=g * depth,
                )
            )  # fmt: skip
            expand.append(
                Product(
                    [p * e_plane for p in own], lane, list(range(0, columns, BLOCK)),
                    *once("expand", g, columns, planes * lane), out=g * columns,
                )
            )  # fmt: skip
        return compress, expand

    def lane(self, layer: spec.ZenithBlock) -> int:
        """Channels of a plane: of bf16 as many as a tile of a product is deep, so that it is read in place.

        Transforms, which some planes may lack, have narrower ones, and so have hidden channels that do not
        divide so.
        """
        wide = 2 * BLOCK
        fits = self.packer.bf16 and not layer.tile and layer.hidden % (wide * layer.groups) == 0
        return wide if fits else BLOCK

    def mix(self, i: int, layer: spec.ZenithBlock, band: int) -> Mix:
        tile, lane = layer.tile, self.lane(layer)
        count = pad16(layer.hidden) // lane
        if pad16(layer.hidden) > MAX_SEGMENTS * BLOCK:
            raise ConfigError(f"layer {self.first + i}: at most {MAX_SEGMENTS * BLOCK} hidden channels")

        def planes(name: str, values: Array, scale: float = 1.0) -> Array:
            return self.once((name,), i, lambda: packing.planes(values, lane, scale))

        eyes_weight = eyes_bias = None
        if layer.eyes:
            eyes_weight = planes("eyes", self.tensor(i, "eyes.weight").reshape(-1, 9).T)
            eyes_bias = planes("eyes bias", self.tensor(i, "eyes.bias"))
        gates: list[Array] = []
        thresholds: list[Array] = []
        if tile:
            scale = 1 / tile if layer.separable else 1 / tile**2
            for axis in ("row_", "column_") if layer.separable else ("",):
                gates.append(planes(axis + "gate", self.tensor(i, axis + "gate"), scale))
                threshold = np.abs(self.tensor(i, axis + "threshold"))
                thresholds.append(planes(axis + "threshold", threshold, scale))
        # A plane whose gate passes nothing (in either direction) has no spectral branch.
        spectral = np.ones(count, np.uint8) if tile else np.zeros(count, np.uint8)
        for gate in gates:
            spectral &= gate.any(axis=(1, 2)).astype(np.uint8)
        return Mix(count, lane, tile, layer.separable, layer.eyes, band, spectral, eyes_weight, eyes_bias,
                   gates, thresholds)  # fmt: skip
