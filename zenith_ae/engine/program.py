"""What a compiled network is before it becomes C: activations, steps, and where they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._kernels._plan import BLOCK, LINE
from .geometry import WINOGRAD_TILE

#: Pixels of a band of a chain: enough work for many threads between two barriers.
CHAIN_BAND_PIXELS = 16384


@dataclass(eq=False)
class Activation:
    """An NHWC array in the arena; ``pitch`` values a pixel.

    With a ``border`` of 1 each row has a pixel of zeros at both ends, and a row of zeros follows the
    last one. In a ring only ``ring`` rows are held at a time, row y in place of row y - ring.
    ``first`` and ``last`` are the steps that write it first and read it last.
    """

    height: int
    width: int
    channels: int
    pitch: int
    border: int = 0
    ring: int = 0
    first: int = -1
    last: int = -1
    start: int = 0
    split: bool = False  # pixels are sums of two bf16, the first and the second half of ``pitch``
    picture: bool = False  # as it was loaded

    @property
    def row(self) -> int:
        return (self.width + 2 * self.border) * self.pitch

    @property
    def held(self) -> int:
        """Rows in memory."""
        return self.ring or self.height

    @property
    def size(self) -> int:
        return (self.held + self.border) * self.row

    @property
    def at(self) -> int:
        """Offset of pixel (0, 0)."""
        return self.start + self.border * self.pitch


@dataclass
class Product:
    """zn_product; segments and blocks are offsets, segments within their ``rows`` (all 0 if empty)."""

    segments: list[int]
    depth: int
    blocks: list[int]
    weight: NDArray[Any]
    bias: NDArray[np.float32] | None
    into: int = 0
    out: int = 0
    rows: Sequence[int] = ()


@dataclass
class Mix:
    """zn_mix"""

    planes: int
    lane: int
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
    linear: NDArray[np.float32]
    square: NDArray[np.float32]
    epsilon: float
    moments: Activation
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
    reach: int = 0  # rows of the input that it reads above and below its own
    chain: int = 0
    bands: int = 0
    band: int = 0
    lead: int = 0
    # Those of products are known once rows are: then a function gives them.
    products: Callable[[], list[Product]] | Sequence[Product] = ()
    expand: Sequence[Product] = ()
    mix: Mix | None = None
    spectral: Callable[[], Spectral] | None = None
    pool: Pool | None = None
    scratch: int = 0  # bytes

    def done(self, band: int, bands: int) -> int:
        """Rows that a step of a chain has done after a band; before the first it is band -1."""
        if band < 0:
            return 0
        return min((band + 1) * self.band + self.lead, self.rows) if band + 1 < bands else self.rows

    def reads(self, a: Activation, begin: int, end: int) -> tuple[int, int]:
        """The rows of an activation that the rows [begin, end) of a step read."""
        if self.into is a:
            return begin * self.into_stride - self.reach, end * self.into_stride + self.reach
        return begin, end

    @property
    def adds_on_the_way(self) -> bool:
        """Whether the products add what is to be added at the end, before they round.

        That depends on layers alone, not on where something lies, so that bits do not either.
        """
        if self.add is None or self.kind != "gemm" or self.relu or self.out.channels % BLOCK:
            return False
        return bool(self.add.pitch == self.out.pitch == self.out.channels)

    def skip_blocks(self, product: Product) -> list[int]:
        """Where a product's blocks are in what it adds, from its own place (`zn_gemm.residual_block`)."""
        assert self.add is not None
        places = [product.out + block for block in product.blocks]
        return [at // self.out.row * self.add.row + at % self.out.row - product.out for at in places]


@dataclass
class Program:
    """Steps for one input size, and the memory that they take."""

    steps: list[Step]
    arena_bytes: int  # of activations
    scratch_bytes: int  # of each thread
    bf16: bool  # how activations are stored, and the weights of products


def users(a: Activation | None, steps: list[Step]) -> list[Step]:
    """The steps that read or write an activation, in order."""
    if a is None:
        return []
    return [step for step in steps if a in (step.into, step.residual, step.add, step.out)]


def chain(steps: list[Step]) -> None:
    """Let the steps at the largest resolution take turns, so that what lies between them are rings.

    A chain is a run of matrix products that read or write an activation of the largest size. In each
    band a step is ahead of those behind it by what they read, so nothing is computed twice.
    """
    sizes = {a.height * a.width: a.height for s in steps for a in (s.into, s.out) if a is not None}
    area = max(sizes, default=0)
    height = sizes.get(area, 0)

    def fits(step: Step) -> bool:
        large = any(a is not None and a.height * a.width == area for a in (step.into, step.out))
        simple = step.kind in ("gemm", "winograd") and step.add is None and step.out_stride <= 2
        return large and simple and height // step.rows in (1, 2) and height % step.rows == 0

    begin = 0
    for fitting, group in groupby(steps, fits):
        run = list(group)
        if fitting and len(run) > 1:
            others = steps[:begin] + steps[begin + len(run) :]
            make_chain(run, [s.out for s in run if s.out and not users(s.out, others)], height)
        begin += len(run)


def make_chain(run: list[Step], between: list[Activation], height: int) -> None:
    """``between`` are the activations that only the steps of the run use; ``height`` is the largest."""
    width = max((a.width for a in between), default=1)
    band = 8 * max(CHAIN_BAND_PIXELS // (8 * width), 1)
    bands = -(-height // band)
    for step in reversed(run):
        need = 0
        for reader in users(step.out, run):
            if reader is not step:
                need = max(need, reader.reads(step.out, 0, reader.lead)[1])
        unit = WINOGRAD_TILE if step.kind == "winograd" else 1
        step.band = band * step.rows // height
        step.lead = -(-need // (unit * step.out_stride)) * unit
    for a in between:
        writer, *readers = users(a, run)
        held = max(
            writer.done(b, bands) * writer.out_stride
            - max(reader.reads(a, reader.done(b - 1, bands), reader.done(b, bands))[0], 0)
            for b in range(bands)
            for reader in readers
        )
        ring = -(-held // WINOGRAD_TILE) * WINOGRAD_TILE  # bands and rings are whole rows of tiles
        a.ring = ring if ring < a.height else 0
    if any(a.ring for a in between):
        run[0].chain, run[0].bands = len(run), bands


def place(steps: list[Step], value_bytes: int) -> int:
    """Give every activation its place, so that those alive at the same time do not overlap.

    Largest first, each at the lowest offset that is free during its life. Returns the bytes used.
    """
    line = LINE // value_bytes
    found: dict[int, Activation] = {}
    begin = end = -1  # of a chain, whose steps take turns
    for index, step in enumerate(steps):
        if index > end:
            begin, end = index, index + max(step.chain, 1) - 1
        uses: tuple[Activation | None, ...] = (step.into, step.out, step.residual, step.add)
        if step.pool:
            uses += (step.pool.moments, step.pool.scale)
        for a in uses:
            if a is None:
                continue
            if id(a) not in found:
                a.first = begin
                found[id(a)] = a
            a.last = end
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
