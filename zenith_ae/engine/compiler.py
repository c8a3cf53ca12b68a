"""Compile a layer list for one input size into the steps of the native plan.

Layers are walked once. What only moves pixels is not computed but remembered and folded into the
addresses of its neighbours: a pixel unshuffle or an upsampling into the input of the next matrix
product, a pixel shuffle into the output of the last one; a ReLU and a skip connection into the
epilogue. The first product reads the picture itself and the last one writes it, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..models import spec
from ..models.spec import Layers
from . import packing
from .packing import BLOCK, Packer, pad16
from .program import Activation, Mix, Pool, Product, Program, Spectral, Step, place

__all__ = ["compile_layers"]

MAX_SEGMENTS = 64
#: Pixels that a band of a Zenith block has at least, so that a product is worth its panels.
BAND_PIXELS = 128
GROUP_NORM_EPSILON = 1e-5

Tap = tuple[int, int]
Array = NDArray[np.float32]

TAPS_3X3 = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]


def segments(taps: Sequence[Tap], row: int, pitch: int, depth: int) -> tuple[list[int], int]:
    """Offsets of taps in an activation, and the floats to read at each.

    Where pixels are dense, the taps of a row follow each other and become one long segment.
    """
    rows: dict[int, list[int]] = {}
    for dy, dx in taps:
        rows.setdefault(dy, []).append(dx)
    runs = list(rows.items())
    length = len(runs[0][1])
    if pitch == depth and all(dxs == list(range(dxs[0], dxs[0] + length)) for _, dxs in runs):
        return [dy * row + dxs[0] * pitch for dy, dxs in runs], length * depth
    return [dy * row + dx * pitch for dy, dx in taps], depth


def compile_layers(
    layers: Layers, in_channels: int, height: int, width: int, packer: Packer, first: int = 0
) -> Program:
    """Steps for an input of height x width.

    Parameters
    ----------
    layers, in_channels : the network, or a run of its layers.
    height, width : size of the padded input; every resolution must be whole.
    packer : holds the network's tensors.
    first : index of ``layers[0]`` in the network, for the names of tensors.
    """
    return _Lowering(layers, in_channels, height, width, packer, first).program()


class _Lowering:
    def __init__(
        self, layers: Layers, in_channels: int, height: int, width: int, packer: Packer, first: int
    ) -> None:
        self.layers = layers
        self.packer = packer
        self.first = first
        self.steps: list[Step] = []
        self.kept: dict[str, Activation] = {}
        # Where we are: an activation or (None) the picture, its size and channels, and what is
        # remembered but not done yet.
        self.x: Activation | None = None
        self.height, self.width, self.channels = height, width, in_channels
        self.clamp = 0.0
        self.unshuffle = 1
        self.upsample = False
        self.stored = False

    def program(self) -> Program:
        i = 0
        while i < len(self.layers):
            i = self.lower(i)
        if not self.stored:
            self.matrix(
                len(self.layers), spec.Linear(self.channels, self.channels, bias=False), identity=True
            )
        total = place(self.steps)
        return Program(self.steps, total, max(step.scratch for step in self.steps))

    # --- where we are -----------------------------------------------------------------------

    def tensor(self, index: int, name: str) -> Array:
        return self.packer.tensors[f"{self.first + index}.{name}"]

    def once(self, key: tuple, index: int, make: Callable[[], Any]) -> Any:
        """What layer ``index`` packs under ``key``, shared by plans of all sizes."""
        return self.packer.once((*key, self.first + index), make)

    def label(self, index: int, name: str) -> str:
        return f"{self.first + index} {name} {self.height}x{self.width}"

    def activation(self, height: int, width: int, channels: int, dense: bool = False) -> Activation:
        return Activation(height, width, channels, channels if dense else pad16(channels))

    def emit(self, step: Step, border: Activation | None = None) -> None:
        # Whoever writes an activation first also clears its border, if it turns out to need one.
        step.border = border if border is not None else step.out
        self.steps.append(step)

    def pending(self) -> bool:
        return self.unshuffle > 1 or self.upsample

    def current(self, index: int) -> Activation:
        """The activation here, with nothing left to do to it."""
        if self.pending():
            self.identity(index)
        return self.x if self.x is not None else self.load(index)

    def load(self, index: int, dense: bool = False) -> Activation:
        """The picture as an activation; ``dense`` where only a product reads it."""
        self.x = self.activation(self.height, self.width, self.channels, dense)
        size = self.height, self.width
        self.emit(Step("load", self.label(index, "load"), *size, out=self.x, load=1, clamp=self.clamp))
        self.clamp = 0.0
        return self.x

    def in_product(self) -> int:
        """Channels that the next layer sees."""
        return self.channels * self.unshuffle**2

    # --- layers -----------------------------------------------------------------------------

    def lower(self, i: int) -> int:
        """Compile layer i and what is fused with it; returns the next one."""
        layer = self.layers[i]
        match layer:
            case spec.PixelUnshuffle():
                if self.pending():
                    self.identity(i)
                self.unshuffle = layer.r
            case spec.Upsample():
                if self.pending():
                    self.identity(i)
                self.upsample = True
            case spec.PixelShuffle():
                if self.upsample:
                    self.identity(i)
                n = self.in_product()
                return self.matrix(i - 1, spec.Linear(n, n, bias=False), identity=True)
            case spec.Linear() | spec.Conv() | spec.SpectralLinear():
                return self.matrix(i, layer)
            case spec.Clamp():
                if self.x is None and not self.upsample and not self.clamp:
                    self.clamp = layer.limit
                else:
                    self.elementwise(i, "clamp", clamp=layer.limit)
            case spec.Relu():
                self.elementwise(i, "relu")
            case spec.Keep():
                self.kept[layer.name] = self.current(i)
            case spec.Add():
                self.elementwise(i, "add", self.kept[layer.name])
            case spec.ResBlock():
                self.res_block(i, layer)
            case spec.ZenithBlock():
                return self.zenith_block(i, layer)
            case _:
                raise ConfigError(f"the native engine does not know {layer}")
        return i + 1

    def identity(self, i: int) -> None:
        n = self.in_product()
        self.matrix(i - 1, spec.Linear(n, n, bias=False), identity=True, epilogue=False)

    def elementwise(self, i: int, kind: str, other: Activation | None = None, clamp: float = 0.0) -> None:
        x = self.current(i)
        out = self.activation(x.height, x.width, x.channels)
        self.emit(
            Step(
                kind, self.label(i, kind), x.height, x.width, into=x, out=out, residual=other, clamp=clamp,
                length=x.width * x.pitch,
            )
        )  # fmt: skip
        self.x = out

    def epilogue(self, i: int, shuffle_allowed: bool = True) -> tuple[int, bool, int, str | None]:
        """What follows layer i and can be done with it: (next layer, relu, shuffle, skip to add)."""
        relu, shuffle, skip = False, 1, None
        i += 1
        while i < len(self.layers):
            layer = self.layers[i]
            if isinstance(layer, spec.Relu) and not relu and skip is None:
                relu = True
            elif isinstance(layer, spec.PixelShuffle) and shuffle_allowed and shuffle == 1 and skip is None:
                shuffle = layer.r
            elif isinstance(layer, spec.Add) and skip is None:
                skip = layer.name
            else:
                break
            i += 1
        return i, relu, shuffle, skip

    def matrix(
        self,
        i: int,
        layer: spec.Linear | spec.Conv | spec.SpectralLinear,
        identity: bool = False,
        epilogue: bool = True,
    ) -> int:
        """A layer that mixes channels, with all its fused neighbours."""
        conv = isinstance(layer, spec.Conv)
        spectral = isinstance(layer, spec.SpectralLinear)
        if self.unshuffle > 1 and (conv or (self.x is not None and self.unshuffle**2 > MAX_SEGMENTS)):
            if not conv:
                raise ConfigError(f"PixelUnshuffle({self.unshuffle}) is only supported up to 8 here")
            self.identity(i)
        if self.upsample and not conv and not identity:
            self.identity(i)
        if conv and self.x is None:
            self.load(i, dense=True)

        next_layer, relu, shuffle, skip = self.epilogue(i) if epilogue else (i + 1, False, 1, None)
        if next_layer > len(self.layers) or not epilogue:
            next_layer = i + 1
        upsample, r = self.upsample, self.unshuffle
        stride = layer.stride if isinstance(layer, spec.Conv) else r
        rows, width = self.height // stride, self.width // stride
        up = 2 if upsample else 1
        ends = next_layer >= len(self.layers) and skip is None
        cout = layer.cout // shuffle**2
        if layer.cout % shuffle**2:
            raise ConfigError(
                f"layer {self.first + i}: {layer.cout} channels cannot be shuffled by {shuffle}"
            )
        name = "identity" if identity else type(layer).__name__
        step = Step(
            "spectral" if spectral else "gemm", self.label(i, name), rows, width, into=self.x, relu=relu,
            into_stride=stride,
        )  # fmt: skip
        if self.x is None:
            step.load, step.clamp = r, self.clamp
            step.into_pitch = self.channels * r * r
            step.scratch += pad16(width * step.into_pitch)
        elif conv:
            self.x.border = 1
        if ends:
            step.store = shuffle * up
            step.out_pitch = pad16(cout * step.store**2)
            step.scratch += width * step.out_pitch
        else:
            out = self.activation(rows * shuffle * up, width * shuffle * up, cout)
            step.out, step.out_stride = out, shuffle * up
            if skip is not None:
                step.add = self.kept[skip]
                step.length = out.width * out.pitch
        source, channels = self.x, self.channels
        if isinstance(layer, spec.SpectralLinear):
            step.scratch += pad16(width * layer.size)
            step.spectral = lambda: self.spectral(i, layer, step, r, shuffle)
        elif identity:
            step.products = lambda: self.identity_products(step, source, channels, r, shuffle, upsample)
        elif isinstance(layer, spec.Conv):
            step.products = lambda: self.conv_products(i, layer, step, shuffle, upsample)
        else:
            step.products = lambda: self.linear_products(i, layer, step, channels, r, shuffle)
        if skip is not None and not relu and shuffle == 1 and not spectral and not upsample:
            # The product itself adds the skip connection, before nothing else.
            step.add, step.residual = None, step.add
        self.emit(step)
        self.x, self.stored = step.out, ends
        self.height, self.width, self.channels = rows * shuffle * up, width * shuffle * up, cout
        self.unshuffle, self.upsample, self.clamp = 1, False, 0.0
        return next_layer

    def blocks(self, step: Step, columns: int, shuffle: int) -> list[int]:
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

    def columns(self, step: Step, matrix: Array, shuffle: int) -> Array:
        """The rows of a matrix in the order of `blocks`."""
        if shuffle == 1:
            return matrix
        channels = len(matrix) // shuffle**2
        return packing.shuffled(matrix, shuffle, channels if step.out is None else pad16(channels))

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
        key = (*key, shuffle, step.out is None, step.into is None)

        def make() -> tuple[Array, Array | None]:
            ordered = self.columns(step, matrix, shuffle)
            packed = packing.pack(ordered)
            if bias is None:
                return packed, None
            return packed, packing.vector(self.columns(step, bias, shuffle), len(packed) * BLOCK)

        weight, packed_bias = self.once(key, i, make)
        if step.into is None:
            offsets, depth = [0], matrix[0].size
        else:
            offsets, depth = segments(taps, step.into.row, step.into.pitch, matrix.shape[2])
        return Product(offsets, depth, self.blocks(step, len(weight) * BLOCK, shuffle), weight, packed_bias)

    def linear_products(
        self, i: int, layer: spec.Linear, step: Step, channels: int, r: int, shuffle: int
    ) -> list[Product]:
        weight = self.tensor(i, "weight")
        bias = self.tensor(i, "bias") if layer.bias else None
        wide, deep = layer.cout // layer.groups, layer.cin // layer.groups
        grouped = layer.groups > 1 and r == 1 and shuffle == 1 and wide % BLOCK == 0 and step.store == 0
        if not grouped:
            taps = [(y, x) for y in range(r) for x in range(r)]
            matrix = packing.by_pixel(packing.dense(weight, layer.groups), r)
            return [self.product(("linear",), i, step, taps, matrix, bias, shuffle)]
        products = []
        for g in range(layer.groups):
            rows = slice(g * wide, (g + 1) * wide)

            def make(rows: slice = rows) -> tuple[Array, Array | None]:
                packed = packing.pack(weight[rows, None])
                return packed, None if bias is None else packing.vector(bias[rows], wide)

            packed, packed_bias = self.once(("group", g), i, make)
            products.append(
                Product([0], deep, list(range(0, wide, BLOCK)), packed, packed_bias, g * deep, g * wide)
            )
        return products

    def conv_products(
        self, i: int, layer: spec.Conv, step: Step, shuffle: int, upsample: bool
    ) -> list[Product]:
        weight = self.tensor(i, "weight")
        bias = self.tensor(i, "bias") if layer.bias else None
        matrix = np.ascontiguousarray(weight.reshape(layer.cout, layer.cin, 9).swapaxes(1, 2))
        if not upsample:
            return [self.product(("conv",), i, step, TAPS_3X3, matrix, bias, shuffle)]
        merged = self.once(("phases",), i, lambda: packing.phases(weight))
        if step.out is None or shuffle > 1:
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

    def identity_products(
        self, step: Step, source: Activation | None, channels: int, r: int, shuffle: int, upsample: bool
    ) -> list[Product]:
        """Moves pixels only, by a product with ones: exact, and rare enough."""
        n = channels * r * r
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

    # --- blocks -----------------------------------------------------------------------------

    def res_block(self, i: int, layer: spec.ResBlock) -> None:
        x = self.current(i)
        if layer.pool:
            x = self.pool(i, layer, x)
        x.border = 1
        y = x
        for n, name in enumerate((0, 2, 4)):
            out = self.activation(x.height, x.width, layer.channels)
            step = Step(
                "gemm", self.label(i, f"ResBlock.{name}"), x.height, x.width, into=y, out=out, relu=True,
                residual=x if n == 2 else None,
            )  # fmt: skip
            y.border = 1
            step.products = lambda step=step, name=name: self.res_products(i, layer, step, name)
            self.emit(step)
            y = out
        self.x = y

    def res_products(self, i: int, layer: spec.ResBlock, step: Step, name: int) -> list[Product]:
        weight, bias = self.tensor(i, f"conv.{name}.weight"), self.tensor(i, f"conv.{name}.bias")
        matrix = np.ascontiguousarray(weight.reshape(*weight.shape[:2], 9).swapaxes(1, 2))
        return [self.product(("res", name), i, step, TAPS_3X3, matrix, bias, 1)]

    def pool(self, i: int, layer: spec.ResBlock, x: Activation) -> Activation:
        wide = layer.WIDTH * layer.channels
        if wide % BLOCK:
            raise ConfigError(f"layer {self.first + i}: a pool stage needs a multiple of 4 channels")
        sums = Activation(x.height, 1, wide, 4 * wide)  # two doubles a channel and row
        scale = Activation(2, 1, wide, wide)
        out = self.activation(x.height, x.width, layer.channels)
        pool = Pool(
            self.once(("gamma",), i, lambda: packing.vector(self.tensor(i, "pool.1.weight"), wide)),
            self.once(("beta",), i, lambda: packing.vector(self.tensor(i, "pool.1.bias"), wide)),
            layer.GROUPS, GROUP_NORM_EPSILON, sums, scale,
        )  # fmt: skip

        def pack(name: str) -> Array:
            weight = self.tensor(i, name)
            return self.once((name,), i, lambda: packing.pack(weight[:, None, :, 0, 0]))

        widen = Product([0], x.channels, list(range(0, wide, BLOCK)), pack("pool.0.weight"), None)
        narrow = Product([0], wide, list(range(0, out.pitch, BLOCK)), pack("pool.3.weight"), None)
        scratch = x.width * wide
        size = (x.height, x.width)
        self.emit(
            Step("pool_sums", self.label(i, "pool sums"), *size, into=x, products=[widen], pool=pool,
                 scratch=scratch)
        )  # fmt: skip
        self.emit(Step("pool_scale", self.label(i, "pool scale"), *size, pool=pool))
        self.emit(
            Step("pool_apply", self.label(i, "pool apply"), *size, into=x, out=out, residual=x,
                 products=[widen], expand=[narrow], pool=pool, scratch=scratch)
        )  # fmt: skip
        return out

    def zenith_block(self, i: int, layer: spec.ZenithBlock) -> int:
        x = self.current(i)
        next_layer, relu = i + 1, False
        if next_layer < len(self.layers) and isinstance(self.layers[next_layer], spec.Relu):
            next_layer, relu = next_layer + 1, True
        out = self.activation(x.height, x.width, layer.channels)
        mix = self.mix(i, layer, x)
        halo = 2 if layer.eyes else 0
        u_plane, e_plane = (mix.band + halo) * x.width * BLOCK, mix.band * x.width * BLOCK
        hidden = mix.planes * BLOCK

        def pack(name: str, columns: int) -> tuple[Array, Array]:
            weight = packing.dense(self.tensor(i, f"{name}.weight"), layer.groups)
            padded = np.zeros((columns, 1, hidden if name == "expand" else weight.shape[1]), np.float32)
            padded[: len(weight), 0, : weight.shape[1]] = weight
            return packing.pack(padded), packing.vector(self.tensor(i, f"{name}.bias"), columns)

        compress = self.once(("compress",), i, lambda: pack("compress", hidden))
        expand = self.once(("expand",), i, lambda: pack("expand", out.pitch))
        name = f"ZenithBlock {layer.channels}/{layer.hidden}" + (" WHT" if layer.tile else "")
        step = Step(
            "mix", self.label(i, name), x.height, x.width, into=x, out=out, residual=x, relu=relu, mix=mix,
            scratch=mix.planes * (u_plane + e_plane),
        )  # fmt: skip
        step.products = [Product([0], x.channels, [g * u_plane for g in range(mix.planes)], *compress)]
        step.expand = [
            Product(
                [g * e_plane for g in range(mix.planes)], BLOCK, list(range(0, out.pitch, BLOCK)), *expand
            )
        ]
        self.emit(step)
        self.x = out
        return next_layer

    def mix(self, i: int, layer: spec.ZenithBlock, x: Activation) -> Mix:
        tile = layer.tile
        unit = tile or 1
        band = unit * -(-BAND_PIXELS // (unit * x.width))
        band = min(band, -(-x.height // unit) * unit)
        count = pad16(layer.hidden) // BLOCK
        if count > MAX_SEGMENTS:
            raise ConfigError(f"layer {self.first + i}: at most {MAX_SEGMENTS * BLOCK} hidden channels")

        def planes(name: str, values: Array, scale: float = 1.0) -> Array:
            return self.once((name,), i, lambda: packing.planes(values, scale))

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
        return Mix(count, tile, layer.separable, layer.eyes, band, spectral, eyes_weight, eyes_bias,
                   gates, thresholds)  # fmt: skip


def nest(values: Array, shuffle: int) -> Array:
    """(C s s, 2, 2, ...) of an upsampling followed by a shuffle by s -> (C 2s 2s, ...) of one shuffle.

    The output pixel of sub-pixel (a, b) of phase (py, px) is (s py + a, s px + b).
    """
    s, rest = shuffle, values.shape[3:]
    v = values.reshape(-1, s, s, 2, 2, *rest)
    v = np.moveaxis(v, (3, 4), (1, 3))  # C, py, a, px, b
    return np.ascontiguousarray(v).reshape(-1, *rest)
