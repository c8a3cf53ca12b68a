"""Which input a piece of the output needs: padding, stages and tiles of a network.

Everything here is integer arithmetic on layer lists and sizes; no pixel is touched. Coordinates
are rows or columns of a stage's input, padded at the bottom and right to whole resolutions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, lcm

from ..models import spec
from ..models.spec import Layers, cached_property

#: Channels from which on Winograd's algorithm pays, and the side of its output tiles, which the kernels have
#: as ZN_WINOGRAD_OUT: this module is there without them.
WINOGRAD_CHANNELS = 64
WINOGRAD_TILE = 4


def winograd(layer: spec.Layer) -> bool:
    """Whether the native engine may compute a layer's 3x3 convolutions by Winograd's algorithm."""
    match layer:
        case spec.Conv():
            return layer.stride == 1 and min(layer.cin, layer.cout) >= WINOGRAD_CHANNELS
        case spec.ResBlock():
            return layer.channels >= WINOGRAD_CHANNELS
        case _:
            return False


def alignment(layers: Layers) -> int:
    """`spec.alignment` that also keeps Winograd's tiles whole."""
    return spec.alignment(layers, lambda layer: WINOGRAD_TILE if winograd(layer) else 1)


def required_input(layers: Layers, lo: int, hi: int) -> tuple[int, int]:
    """`spec.required_input` to the bit: rounding ties an output to all pixels of its Winograd tile."""
    tile = WINOGRAD_TILE

    def reach(layer: spec.Layer, lo: int, hi: int) -> tuple[int, int]:
        if not winograd(layer):
            return layer.reach(lo, hi)
        for _ in range(3 if isinstance(layer, spec.ResBlock) else 1):
            lo, hi = min(lo - 1, lo // tile * tile), max(hi + 1, -(-hi // tile) * tile)
        return lo, hi

    return spec.required_input(layers, lo, hi, reach)


def multiple(layers: Layers) -> int:
    """The smallest input size of which every size is a multiple at which all resolutions are whole."""
    scale, result = Fraction(1), 1
    for layer in layers:
        scale *= layer.scale
        result = lcm(result, scale.denominator)
    return result


@dataclass(frozen=True)
class Stage:
    """A run of layers that is computed tile by tile, or (``tiled`` False) only in one piece.

    ``first`` is the number of the first one in the part.
    """

    part: str
    first: int
    layers: Layers
    in_channels: int
    tiled: bool

    @cached_property
    def out_channels(self) -> int:
        *_, last = spec.trace(self.layers, self.in_channels)
        return last.cout

    # Kept, since fractions take a while, and a run of a small picture does not.

    @cached_property
    def alignment(self) -> int:
        return alignment(self.layers)

    @cached_property
    def multiple(self) -> int:
        return multiple(self.layers)

    @cached_property
    def scale(self) -> Fraction:
        return spec.out_scale(self.layers)

    @cached_property
    def margins(self) -> tuple[int, int]:
        """Input rows that a tile reads before and after its own, inside of a picture."""
        lo, hi = required_input(self.layers, 0, int(self.alignment * self.scale))
        return -(lo // self.alignment) * self.alignment, (-(-hi // self.alignment) - 1) * self.alignment

    def padded(self, size: int) -> int:
        """The smallest size from this one on at which every resolution is whole."""
        return -(-size // self.multiple) * self.multiple

    def output_size(self, size: int) -> int:
        """Output rows for ``size`` input rows: the padding is cropped off as far as whole pixels allow."""
        return ceil(size * self.scale)


def split(part: str, layers: Layers, in_channels: int) -> tuple[Stage, ...]:
    """Cut a network into stages at its global layers.

    A network with a skip across a cut stays whole, untiled.
    """
    cuts = [0]
    for i in range(1, len(layers)):
        if spec.is_global(layers[i]) != spec.is_global(layers[i - 1]):
            cuts.append(i)
    cuts.append(len(layers))
    pieces = [layers[a:b] for a, b in pairwise(cuts)]
    for piece in pieces:
        kept = set[str]()
        for layer in piece:
            if isinstance(layer, spec.Keep):
                kept.add(layer.name)
            elif isinstance(layer, spec.Add) and layer.name not in kept:
                return (Stage(part, 0, layers, in_channels, False),)
    stages = []
    for first, piece in zip(cuts, pieces, strict=False):
        stages.append(Stage(part, first, piece, in_channels, not spec.is_global(piece[0])))
        in_channels = stages[-1].out_channels
    return tuple(stages)


@dataclass(frozen=True)
class Span:
    """One axis of a tile: input [lo, hi) gives output [start, stop) after ``skip`` output rows."""

    lo: int
    hi: int
    start: int
    stop: int
    skip: int


@dataclass(frozen=True)
class Region:
    """A tile: its rows and its columns."""

    rows: Span
    columns: Span


def spans(stage: Stage, padded: int, wanted: int, step: int) -> list[Span]:
    """Cut one axis into tiles of ``step`` input rows (a multiple of the alignment, or >= padded)."""
    if step >= padded:
        return [Span(0, padded, 0, wanted, 0)]
    scale, (before, after) = stage.scale, stage.margins
    result = []
    for a in range(0, padded, step):
        start, stop = int(a * scale), min(int((a + step) * scale), wanted)
        lo, hi = max(a - before, 0), min(a + step + after, padded)
        result.append(Span(lo, hi, start, stop, start - int(lo * scale)))
    return result


def regions(
    stage: Stage, padded: tuple[int, int], wanted: tuple[int, int], tile: tuple[int, int]
) -> Iterator[Region]:
    """All tiles of a picture, row by row.

    Parameters
    ----------
    padded : height and width of the padded input.
    wanted : height and width of the output.
    tile : height and width of a tile in input pixels without its surroundings.
    """
    columns = spans(stage, padded[1], wanted[1], tile[1])
    for rows in spans(stage, padded[0], wanted[0], tile[0]):
        for span in columns:
            yield Region(rows, span)


def lengths(stage: Stage, padded: int, step: int) -> tuple[int, int]:
    """The longest and the total input of `spans`, whose number does not matter to the time it takes."""
    before, after = stage.margins
    count = -(-padded // step)

    def lo(i: int) -> int:
        return max(i * step - before, 0)

    def hi(i: int) -> int:
        return min((i + 1) * step + after, padded)

    # Lengths grow while spans begin at 0, and shrink once they end with the picture.
    inner = min(before // step + 1, count)  # the first that does not begin at 0, and that ends with it
    outer = min(max(-(-(padded - after) // step) - 1, 0), count - 1)
    longest = max(hi(i) - lo(i) for i in (inner - 1, min(inner, count - 1), outer))
    begins = (count * (count - 1) - inner * (inner - 1)) // 2 * step - (count - inner) * before
    ends = outer * (outer + 1) // 2 * step + outer * after + (count - outer) * padded
    return longest, ends - begins


def tile_side(stage: Stage, pixels: int, density: Fraction) -> int:
    """The side of a tile in input units, rounded up to the alignment.

    Parameters
    ----------
    pixels : its side in pixels of the picture, at least 1.
    density : pixels of the picture per input unit along one axis.
    """
    align = stage.alignment
    return -(-ceil(pixels / density) // align) * align


_MOST_WORK = 4  # times that of the whole picture, that tiles may cost; the smallest would cost a thousand
_TRIES = 16  # tile sizes of which the memory is asked one by one; each is a plan, of which few are remembered


def choose_tiles(
    stage: Stage,
    padded: tuple[int, int],
    budget: int,
    working_bytes: Callable[[int, int], int],
) -> tuple[int, int]:
    """The tile size with the least total work whose working memory is within ``budget`` bytes.

    ``working_bytes(height, width)`` is the memory that an input of that size takes. Tiles so small that
    their borders are most of the work (`_MOST_WORK`) are none; where even the smallest of the others takes
    more memory, that is the answer.
    """
    if working_bytes(*padded) <= budget:
        return padded
    align = stage.alignment

    def candidates(size: int) -> list[tuple[int, int, int]]:
        """Tile sizes with the longest and the total input of their spans: one for each that a count gives."""
        units = unit = -(-size // align)
        found = []
        while unit > 0:
            found.append((unit * align, *lengths(stage, size, unit * align)))
            more = -(-units // (unit - 1)) if unit > 1 else units + 1  # the next count with a smaller tile
            unit = -(-units // more) if more <= units else 0
        return found

    heights, widths = candidates(padded[0]), candidates(padded[1])
    per_pixel = working_bytes(*padded) / (padded[0] * padded[1])
    sizes = [
        (rows * columns, (height, width), (tallest, widest))
        for height, tallest, rows in heights
        for width, widest, columns in widths
        if rows * columns <= _MOST_WORK * padded[0] * padded[1]
    ]
    # Memory is about proportional to area; but each thread also has rows of its own, whatever the height.
    likely = sorted(size for size in sizes if size[2][0] * size[2][1] * per_pixel <= budget)

    def fits(candidate: tuple[int, tuple[int, int], tuple[int, int]]) -> bool:
        return working_bytes(*candidate[2]) <= budget

    for candidate in likely[:_TRIES]:
        if fits(candidate):
            return candidate[1]
    # With many threads these rows are most of it. More work is smaller tiles, so hardly one before this fits.
    first = bisect_left(likely, True, lo=min(_TRIES, len(likely)), key=fits)
    if first < len(likely):
        return likely[first][1]
    return min(sizes, key=lambda size: size[2][0] * size[2][1])[1]
