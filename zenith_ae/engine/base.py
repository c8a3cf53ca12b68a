"""The engine interface, and what every engine shares: checks, stages and tiles.

Sizes
-----
A picture may have any size from 1 x 1. It is padded at the bottom and right, by repeating its
last row and column, to the smallest size at which every resolution of the network is whole
(`geometry.multiple`: 8 for the zoo's encoders and denoisers, but 4 for conv-baseline and 32 for
estimators of noise, 1 for decoders). It is not
padded to spectral tiles: a tile that sticks out is filled with zeros, inside the network, as the
ZenithBlock says (`zenith_ae.pipelines` therefore hands over whole ones). The result is cropped to
ceil(H * scale) x ceil(W * scale).

Tiles
-----
A tile is computed from the input region that it depends on, starting on the network's alignment
grid, so that its values are those of the whole picture. Layers that need the whole picture
(TAEF2's pool stage) are computed in one piece between tiled stages.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, ImageError, LatentError, in_short
from ..weights import Weights
from . import geometry
from .geometry import Region, Stage
from .limits import memory_budget

OutputType = Literal["float32", "uint8", "uint16"]
Tile = Literal["auto"] | int
Progress = Callable[[float], object]

_FORMATS = ("uint8", "uint16", "float32")


def check_tile(tile: Any) -> None:
    """Raise ConfigError for what is no `Tile`."""
    whole = isinstance(tile, int | np.integer) and not isinstance(tile, bool)
    if not (whole and tile >= 0) and not (isinstance(tile, str) and tile == "auto"):
        raise ConfigError(f"tile must be 'auto' or a whole number >= 0, got {in_short(tile)}")


def within(progress: Progress | None, start: float, size: float) -> Progress | None:
    """Map the progress of a piece, 0 to 1, onto ``start`` to ``start + size`` of the whole."""
    return None if progress is None else lambda share: progress(start + size * share)


class Pieces:
    """Turns the progress of consecutive pieces of work, of ``total`` units in all, into that of the whole.

    A piece ends at exactly the share at which the next one begins, so progress never goes back.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._begun = progress, total, 0

    def next(self, size: int = 1) -> Progress | None:
        start, progress, total = self._begun, self._progress, self._total
        self._begun += size
        return None if progress is None else lambda share: progress((start + size * share) / total)


class Engine(abc.ABC):
    """Runs the parts of one model. Made by `zenith_ae.engine.create`.

    Attributes
    ----------
    weights : the model.
    device : where it runs, for people to read.
    isa : level of the native kernels, or the name of the backend.
    dtype : "float32" or "bf16", how activations are stored inside, or "int16" where they are float32 and
        products of integers; inputs and outputs are what `run` says.
    threads : threads that a run uses at most.
    winograd : whether large 3x3 convolutions are computed by Winograd's algorithm, with fewer products.
    budget : working memory in bytes above which ``tile="auto"`` cuts a picture into tiles
        (`zenith_ae.engine.limits.memory_budget`).
    """

    device: str
    isa: str
    dtype: str
    threads: int
    winograd: bool = False

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.budget = memory_budget()
        config = weights.config
        self._stages = {
            part: geometry.split(part, layers, config.in_channels(part))
            for part, layers in config.parts.items()
        }
        self._whole = {
            part: Stage(part, 0, layers, config.in_channels(part), False)
            for part, layers in config.parts.items()
        }

    def run(
        self,
        part: str,
        x: NDArray[Any],
        *,
        plane: NDArray[np.float32] | None = None,
        out: OutputType = "float32",
        tile: Tile = "auto",
        progress: Progress | None = None,
    ) -> NDArray[Any]:
        """Run one part of the model.

        Parameters
        ----------
        part : one of those that the model's config has.
        x : (N, H, W, 3) picture, uint8 or uint16 (scaled to [0, 1] inside) or float32 in [0, 1];
            for the decoder (N, h, w, latent channels) float32 latents.
        plane : (N, H, W) float32, the fourth input channel of what removes noise: its standard deviation in
            units of [0, 1].
        out : type of the result. float32 is the network's output as it is; the integer types are
            its values clipped to [0, 1], scaled and rounded to nearest.
        tile : "auto" cuts large pictures so that the working memory stays near `budget`; 0 never
            does; a number N makes tiles of about N x N picture pixels.
        progress : called in this thread, after each tile and by the native engine up to ten times a second
            between its steps, with the share that is done, in [0, 1]. What it raises ends the run.

        Returns
        -------
        (N, ceil(H * scale), ceil(W * scale), channels) of type ``out``.

        Raises
        ------
        ConfigError
            If the model has no such part, or an option has no such value.
        ImageError, LatentError
            If the input has the wrong shape or type.
        """
        if out not in _FORMATS:
            raise ConfigError(f"out must be one of {', '.join(_FORMATS)}, got {out!r}")
        check_tile(tile)
        x, plane = self._checked(part, x, plane)
        whole = self._whole[part]
        height, width = x.shape[1:3]
        padded = whole.padded(height), whole.padded(width)
        wanted = whole.output_size(height), whole.output_size(width)
        result = np.empty((x.shape[0], *wanted, whole.out_channels), out)
        images = Pieces(progress, x.shape[0])
        for i in range(x.shape[0]):
            self._run_image(
                part, x[i], None if plane is None else plane[i], padded, result[i], tile, images.next()
            )
        return result

    def _checked(
        self, part: str, x: NDArray[Any], plane: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        config = self.weights.config
        if part not in config.parts:
            raise ConfigError(f"{config.name} has no {part}, only {', '.join(config.parts)}")
        decoder, denoiser = part == "decoder", config.takes_plane(part)
        error = LatentError if decoder else ImageError
        channels = config.in_channels(part) - (1 if denoiser else 0)
        x = np.asarray(x)
        allowed = ("float32",) if decoder else _FORMATS
        if x.dtype.name not in allowed:
            raise error(f"{part} input must be {' or '.join(allowed)}, got {x.dtype.name}")
        if x.ndim != 4 or x.shape[3] != channels or 0 in x.shape[1:3]:
            raise error(f"{part} input must have shape (N, H, W, {channels}), got {x.shape}")
        if denoiser != (plane is not None):
            raise error(f"{part} {'needs a' if denoiser else 'takes no'} plane")
        if plane is not None:
            plane = np.asarray(plane)
            if plane.shape != x.shape[:3] or plane.dtype.name != "float32":
                raise error(
                    f"plane must be float32 of shape {x.shape[:3]}, got {plane.dtype.name} {plane.shape}"
                )
            plane = np.require(plane, np.float32, ["ALIGNED"])
            if plane.strides[2] != plane.itemsize:  # rows may lie anywhere, all of even noise at one place
                plane = np.ascontiguousarray(plane)
        native = x.dtype.newbyteorder("=")
        return np.require(x, native, ["C_CONTIGUOUS", "ALIGNED"]), plane

    def _run_image(
        self,
        part: str,
        image: NDArray[Any],
        plane: NDArray[np.float32] | None,
        padded: tuple[int, int],
        target: NDArray[Any],
        tile: Tile,
        progress: Progress | None,
    ) -> None:
        whole = self._whole[part]
        if tile == 0 or (tile == "auto" and self._working_bytes(whole, *padded) <= self.budget):
            stages: tuple[Stage, ...] = (whole,)
        else:
            stages = self._stages[part]
        source = image
        scale = Fraction(1)  # of the stage's input
        picture = max(whole.scale, Fraction(1))  # a decoder's picture is its output
        parts = Pieces(progress, len(stages))
        for stage in stages:
            last = stage is stages[-1]
            size = stage.output_size(padded[0]), stage.output_size(padded[1])
            output = target if last else np.empty((*size, stage.out_channels), np.float32)
            wanted = output.shape[0], output.shape[1]
            side = padded
            if stage.tiled:
                if tile == "auto":
                    side = geometry.choose_tiles(
                        stage, padded, self.budget, partial(self._working_bytes, stage)
                    )
                else:
                    side = (geometry.tile_side(stage, tile, picture / scale),) * 2
            pieces = Pieces(parts.next(), wanted[0] * wanted[1])
            for region in geometry.regions(stage, padded, wanted, side):
                rows, columns = region.rows, region.columns
                piece = output[rows.start : rows.stop, columns.start : columns.stop]
                report = pieces.next(piece.shape[0] * piece.shape[1])
                self._run_region(
                    stage, source, plane if stage is stages[0] else None, region, piece, report,
                )  # fmt: skip
                if report is not None:
                    report(1.0)
            source, padded = output, size
            scale *= stage.scale

    @abc.abstractmethod
    def _working_bytes(self, stage: Stage, height: int, width: int) -> int:
        """Working memory that a padded input of height x width needs, without input and output."""

    @abc.abstractmethod
    def _run_region(
        self,
        stage: Stage,
        source: NDArray[Any],
        plane: NDArray[np.float32] | None,
        region: Region,
        target: NDArray[Any],
        progress: Progress | None,
    ) -> None:
        """Compute one tile into ``target``, a view of the output.

        ``source`` is the whole unpadded input of the stage; the region may stick out of it at the
        bottom and right, where its last row and column are repeated. ``progress`` is about this tile.
        """

    def stats(self) -> dict[str, int]:
        """Working memory: bytes held, largest ever, blocks allocated, runs that reused a block."""
        return {"arena_bytes": 0, "peak_bytes": 0, "allocations": 0, "reuses": 0}

    def release(self) -> None:  # noqa: B027 - an engine without cached memory has nothing to do
        """Give cached working memory back; the next run takes it anew."""

    def profile(
        self, part: str, x: NDArray[Any], plane: NDArray[np.float32] | None = None, repeats: int = 5
    ) -> list[tuple[str, float]]:
        """Best time of each step over ``repeats`` untiled runs: (label, milliseconds) in order.

        Raises
        ------
        ConfigError
            If this engine cannot tell.
        """
        raise ConfigError(f"the {self.device} engine has no profile")
