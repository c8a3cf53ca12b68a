"""What a compiled network is before it becomes C: activations, steps, and where they lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Activation", "Mix", "Pool", "Product", "Program", "Spectral", "Step", "place"]

LINE = 64  # bytes of a cache line

#: (offset, values per row, values per pixel) of a grid, see zn_grid in plan.h.
Grid = tuple[int, int, int]


@dataclass(eq=False)
class Activation:
    """An NHWC array in the arena; ``pitch`` values a pixel, ``border`` pixels of zeros around it.

    ``first`` and ``last`` are the steps that write it first and read it last.
    """

    height: int
    width: int
    channels: int
    pitch: int
    border: int = 0
    first: int = -1
    last: int = -1
    start: int = 0
    split: bool = False  # pixels are sums of two bf16, the first and the second half of ``pitch``

    @property
    def row(self) -> int:
        return (self.width + 2 * self.border) * self.pitch

    @property
    def size(self) -> int:
        return (self.height + 2 * self.border) * self.row

    @property
    def at(self) -> int:
        """Offset of pixel (0, 0)."""
        return self.start + self.border * (self.row + self.pitch)

    def grid(self, r: int = 1) -> Grid:
        """Every r-th pixel."""
        return self.at, self.row * r, self.pitch * r


@dataclass
class Product:
    """zn_product; segments and blocks are offsets."""

    segments: list[int]
    depth: int
    blocks: list[int]
    weight: NDArray[Any]
    bias: NDArray[np.float32] | None
    into: int = 0
    out: int = 0


@dataclass
class Mix:
    """zn_mix"""

    planes: int
    tile: int
    separable: bool
    eyes: bool
    band: int
    spectral: NDArray[np.uint8]
    eyes_weight: NDArray[np.float32] | None
    eyes_bias: NDArray[np.float32] | None
    gates: list[NDArray[np.float32]]
    thresholds: list[NDArray[np.float32]]


@dataclass
class Spectral:
    """zn_spectral"""

    gather: NDArray[np.intp]
    in_scale: NDArray[np.float32]
    scatter: NDArray[np.intp]
    source: NDArray[np.int32]
    out_scale: NDArray[np.float32]
    bias: NDArray[np.float32]


@dataclass
class Pool:
    """zn_pool; the offsets are activations' starts"""

    gamma: NDArray[np.float32]
    beta: NDArray[np.float32]
    groups: int
    epsilon: float
    sums: Activation
    scale: Activation


@dataclass
class Step:
    """zn_step. Grids that depend on where activations lie are functions until `place`."""

    kind: str
    label: str
    rows: int
    width: int
    into: Any = None  # Activation or None (the picture)
    out: Any = None
    into_stride: int = 1
    out_stride: int = 1
    into_pitch: int = 0  # of the row in scratch where the picture is the input or output
    out_pitch: int = 0
    load: int = 0
    store: int = 0
    split: bool = False  # the picture is read as sums of two bf16
    clamp: float = 0.0
    relu: bool = False
    residual: Activation | None = None
    add: Activation | None = None
    length: int = 0
    strip: int = 0
    border: Activation | None = None
    products: Any = ()  # a function that gives a list of Product once rows are known, or a list
    expand: Any = ()
    mix: Mix | None = None
    spectral: Any = None
    pool: Pool | None = None
    scratch: int = 0  # bytes
    more: tuple[Activation, ...] = field(default=())  # other activations in use


@dataclass
class Program:
    """Steps for one input size, and the memory that they take."""

    steps: list[Step]
    arena_bytes: int  # of activations
    scratch_bytes: int  # of each thread
    bf16: bool  # how activations are stored, and the weights of products


def place(steps: list[Step], value_bytes: int) -> int:
    """Give every activation its place, so that those alive at the same time do not overlap.

    Largest first, each at the lowest offset that is free during its life. Returns the bytes used.
    """
    line = LINE // value_bytes
    found: dict[int, Activation] = {}
    for index, step in enumerate(steps):
        uses = (step.into, step.out, step.residual, step.add, step.border, *step.more)
        if step.pool:
            uses += (step.pool.sums, step.pool.scale)
        for a in uses:
            if a is None:
                continue
            if id(a) not in found:
                a.first = index
                found[id(a)] = a
            a.last = index
    placed: list[Activation] = []
    total = 0
    for a in sorted(found.values(), key=lambda a: -a.size):
        size = -(-a.size // line) * line
        taken = sorted(
            (b.start, b.start + -(-b.size // line) * line)
            for b in placed
            if b.first <= a.last and a.first <= b.last
        )
        start = 0
        for low, high in taken:
            if start + size <= low:
                break
            start = max(start, high)
        a.start = start
        placed.append(a)
        total = max(total, start + size)
    return total * value_bytes
