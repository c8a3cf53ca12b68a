"""Measuring: timings taken in turn, what this machine can do at best, and where the time goes.

Machines change their speed from second to second, so everything that is to be compared is timed
in turn, and medians are compared. Ceilings are the best that was seen: what a product or a copy
reaches when nothing disturbs it.
"""

from __future__ import annotations

import re
import threading
import time
import tracemalloc
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .engine import Engine, create, geometry
from .models import spec
from .models.spec import Conv, Layers, Linear, ModelConfig, PixelUnshuffle, ResBlock, Upsample
from .selftest import random_weights

#: A turn repeats a call until this many seconds are over, so that short calls are not all cold.
TURN = 0.02
#: Rounds at least, whatever the time budget.
ROUNDS = 3
#: What measures the ceilings: matrix products within so many seconds, and so many copies of memory.
PRODUCT_SECONDS, COPIES = 0.7, 5

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    """Times of one candidate in seconds: median, quartiles, the best, and the number of calls."""

    median: float
    low: float
    high: float
    best: float
    calls: int

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        low, median, high = np.percentile(seconds, (25, 50, 75))
        return cls(float(median), float(low), float(high), min(seconds), len(seconds))


def in_turn(
    candidates: Mapping[Key, Callable[[], Any]],
    seconds: float = 10.0,
    rounds: int | None = None,
    pause: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Key, Timing]:
    """Time calls in rounds: every round gives each candidate one turn.

    Parameters
    ----------
    candidates : what to call, by name. Each is called once before the first round.
    seconds : rounds go on for so long, at least `ROUNDS` of them.
    rounds : the number of rounds, in place of ``seconds``.
    pause : seconds before each turn, in which another library's threads go to sleep.
    clock : `time.process_time` leaves out what other programs take of a busy machine; for calls on
        one thread.
    """
    for run in candidates.values():
        run()
    times: dict[Key, list[float]] = {key: [] for key in candidates}
    begin, done = time.perf_counter(), 0
    while done < (ROUNDS if rounds is None else rounds) or (
        rounds is None and time.perf_counter() - begin < seconds
    ):
        for key, run in candidates.items():
            if pause:
                time.sleep(pause)
            turn = clock()
            while True:
                start = clock()
                run()
                end = clock()
                times[key].append(end - start)
                if end - turn >= TURN:
                    break
        done += 1
    return {key: Timing.of(values) for key, values in times.items()}


def working_memory(run: Callable[[], Any], engine: Engine) -> int:
    """Largest number of bytes that a call takes from the heap, its result included.

    Arrays and the engine's working memory count, weights that were packed before do not. Call
    ``run`` once before.
    """
    engine.release()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- work -----------------------------------------------------------------------------------


def executed_macs(layers: Layers, in_channels: int, winograd: bool) -> list[float]:
    """Multiply-accumulates of each layer per input pixel, as the native engine computes them.

    These are the layers' own (`spec.Layer.macs`), but a 3x3 convolution of an input enlarged by 2
    counts 4 products, not 9, since taps that meet the same pixel are added up beforehand, and a
    Winograd convolution 36 for 16 pixels, not 144 (``Engine.winograd`` says whether there are any).
    """
    macs, before = [], None
    for step in spec.trace(layers, in_channels):
        layer, work = step.layer, float(step.macs)
        if isinstance(before, Upsample) and isinstance(layer, Conv):
            work *= 4 / 9
        elif winograd and geometry.winograd(layer):
            taps = 27 * layer.channels**2 if isinstance(layer, ResBlock) else layer.macs()
            work *= 1 - 0.75 * taps / layer.macs()
        macs.append(work)
        before = layer
    return macs


def measured_parts(config: ModelConfig) -> list[str]:
    """The parts of a model that differ in cost: not an expert with the layers of what it stands in for."""
    return [
        part for part, layers in config.parts.items() if part != "white" or layers != config.parts["denoiser"]
    ]


def part_input(
    config: ModelConfig, part: str, height: int, width: int
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Something to run a part on: a uint8 picture of random noise, or latents for it, and a plane.

    Returns
    -------
    (1, H, W, 3) uint8 or (1, H / factor, W / factor, C) float32; (1, H, W) float32 or None.
    """
    rng = np.random.default_rng(0)
    if part == "decoder":
        shape = 1, -(-height // config.factor), -(-width // config.factor), config.latent_channels
        return rng.standard_normal(shape, dtype=np.float32), None
    picture = rng.integers(0, 256, (1, height, width, 3), dtype=np.uint8)
    return picture, np.full((1, height, width), 0.1, np.float32) if config.takes_plane(part) else None


@dataclass(frozen=True)
class Stage:
    """A fused stage of a plan: its name, best time in milliseconds, multiply-accumulates."""

    label: str
    ms: float
    macs: float


def stages(engine: Engine, part: str, height: int, width: int, repeats: int = 5) -> list[Stage]:
    """Where a part spends its time on a picture of height x width.

    A stage is a layer with all that is fused into it; layers that only move pixels have none.

    Raises
    ------
    ConfigError
        If the engine cannot tell.
    """
    config = engine.weights.config
    layers, channels = config.parts[part], config.in_channels(part)
    x, plane = part_input(config, part, height, width)
    # A step's label begins with its layer; one layer may be several steps.
    merged: dict[int, tuple[str, float]] = {}
    for label, ms in engine.profile(part, x, plane, repeats):
        found = re.match(r"-?\d+", label)
        index = int(found[0]) if found else -1
        name, total = merged.get(index, (label, 0.0))
        merged[index] = name, total + ms
    macs = executed_macs(layers, channels, engine.winograd)
    pixels = x.shape[1] * x.shape[2]
    ends = [*list(merged)[1:], len(layers)]
    result = []
    for (index, (label, ms)), end in zip(merged.items(), ends, strict=True):
        if 0 <= index < len(layers):
            label = f"{index} {layers[index]} {label.split()[-1]}"
        result.append(Stage(label, ms, pixels * sum(macs[max(index, 0) : end])))
    return result


# --- ceilings -------------------------------------------------------------------------------

_PRODUCTS = ModelConfig(
    "products", "autoencoder",
    {"encoder": (PixelUnshuffle(8), Linear(192, 256), Linear(256, 256), Linear(256, 384), Linear(384, 192),
                 Conv(192, 64), Conv(64, 64), Conv(64, 64), Linear(64, 16))},
    16,
)  # fmt: skip


def gemm_ceiling(isa: str, threads: int, dtype: str) -> float:
    """Multiply-accumulates per second of the engine's matrix products, at their best.

    The best of several shapes that suit the kernels and whose data stay in the caches, within
    about `PRODUCT_SECONDS`.

    Parameters
    ----------
    isa, threads, dtype : as for `zenith_ae.engine.create`.
    """
    engine = create(random_weights(_PRODUCTS), device="cpu", dtype=dtype, threads=threads, isa=isa)
    best, begin = 0.0, time.perf_counter()
    while not best or time.perf_counter() - begin < PRODUCT_SECONDS:
        for stage in stages(engine, "encoder", 384, 384, repeats=2):
            best = max(best, stage.macs / stage.ms * 1e3)
    return best


def copy_ceiling(threads: int) -> float:
    """Bytes per second, read and written, of plain copies of up to 64 MiB in each thread.

    On many threads they are smaller, down to 8 MiB, since all of them together beat any cache.
    """
    size = min(2**26, max(2**23, 2**29 // threads))
    source = [np.ones(size, np.uint8) for _ in range(threads)]
    target = [np.ones(size, np.uint8) for _ in range(threads)]

    def copy(i: int) -> None:
        np.copyto(target[i], source[i])  # without the GIL

    best = float("inf")
    for _ in range(COPIES):
        others = [threading.Thread(target=copy, args=(i,)) for i in range(1, threads)]
        start = time.perf_counter()
        for other in others:
            other.start()
        copy(0)
        for other in others:
            other.join()
        best = min(best, time.perf_counter() - start)
    return 2 * size * threads / best
