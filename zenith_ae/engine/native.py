"""The native engine: plans in C over the SIMD kernels, on the CPU."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, ImageError, MissingDependencyError, why_no_kernels
from ..weights import Weights
from .base import Engine, Progress
from .geometry import Region, Stage
from .limits import default_threads

try:
    from .._kernels import best_dtype, current_isa
    from .._kernels._plan import MAX_THREADS, Plan
    from .compiler import compile_layers
    from .packing import Packer
except ImportError as error:
    raise MissingDependencyError(why_no_kernels(error)) from error

#: Between two reports of a run, and two looks for a Ctrl-C.
WATCH_SECONDS = 0.1
#: Plans that an engine remembers; a tiled picture needs about nine sizes.
PLANS = 32


_engines: weakref.WeakSet[NativeEngine] = weakref.WeakSet()


def _after_fork() -> None:
    """A lock may be held by a thread that the child does not have."""
    for engine in _engines:
        engine._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class NativeEngine(Engine):
    """See `Engine` for the interface and `zenith_ae.engine.create` for the parameters.

    Results are the same bits for every number of threads and every tile size. Working memory is
    one block (arena) per run in progress, kept for the next run until `release`.
    """

    device = "cpu"

    def __init__(
        self,
        weights: Weights,
        threads: int | None = None,
        isa: str | None = None,
        dtype: str = "auto",
        emulate: bool | Literal["tiles"] = False,
    ) -> None:
        """``emulate`` allows bf16 and int16 where they are not fast, for tests. With
        "tiles" the products of bf16 are those of level amx, which emulates its tiles everywhere else.
        """
        super().__init__(weights)
        if threads is not None and (
            isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1
        ):
            raise ConfigError(f"threads must be a positive whole number, got {threads!r}")
        self.isa = current_isa(isa)
        self.threads = min(default_threads() if threads is None else threads, MAX_THREADS)
        best = best_dtype(self.isa)
        if dtype not in ("auto", "float32", best) and not emulate:
            levels = (
                "avx512bf16 or amx" if dtype == "bf16" else "avx2vnni, avx512vnni, or avx2 on a newer CPU"
            )
            raise ConfigError(
                f"the level {self.isa} has no fast {dtype} (it needs {levels}); take 'auto'"
                f"{f', {best!r}' if best != 'float32' else ''} or 'float32'"
            )
        self.dtype = best if dtype == "auto" else dtype
        bf16 = self.dtype == "bf16"
        self._tiles = emulate == "tiles"
        # Matrix tiles are so fast that Winograd's transforms would take longer than what they save.
        self.winograd = not (bf16 and (self._tiles or self.isa == "amx"))
        self._packers = {
            part: Packer(weights.part(part), bf16, self.dtype == "int16", self.winograd)
            for part in weights.config.parts
        }
        self._plans: OrderedDict[tuple[str, int, int, int, int], Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._free: list[NDArray[np.uint8]] = []
        self._stats = {"arena_bytes": 0, "peak_bytes": 0, "allocations": 0, "reuses": 0}
        _engines.add(self)

    def _plan(self, stage: Stage, height: int, width: int) -> Plan:
        """The plan of a stage for a padded input size."""
        key = (stage.part, stage.first, len(stage.layers), height, width)
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
            program = compile_layers(
                stage.layers, stage.in_channels, height, width, self._packers[stage.part], stage.first
            )
            plan = Plan(program, self.isa, self.threads, self._tiles)
            self._plans[key] = plan
            if len(self._plans) > PLANS:
                self._plans.popitem(last=False)
            return plan

    def _working_bytes(self, stage: Stage, height: int, width: int) -> int:
        return int(self._plan(stage, height, width).arena_bytes)

    def _run_region(
        self,
        stage: Stage,
        source: NDArray[Any],
        plane: NDArray[np.float32] | None,
        region: Region,
        target: NDArray[Any],
        progress: Progress | None,
    ) -> None:
        rows, columns = region.rows, region.columns
        plan = self._plan(stage, rows.hi - rows.lo, columns.hi - columns.lo)
        arena = self._take(plan.arena_bytes)
        try:
            plan.run(arena, source, plane, rows.lo, columns.lo, target, rows.skip, columns.skip,
                     progress=progress, seconds=WATCH_SECONDS)  # fmt: skip
        finally:
            self._give(arena)

    # --- arenas -----------------------------------------------------------------------------

    def _take(self, size: int) -> NDArray[np.uint8]:
        """A block of at least ``size`` bytes: the smallest free one that fits, or a new one.

        A free block that was too small is given up for the new one.
        """
        with self._lock:
            fitting = [i for i, block in enumerate(self._free) if block.nbytes >= size]
            if fitting:
                self._stats["reuses"] += 1
                return self._free.pop(min(fitting, key=lambda i: self._free[i].nbytes))
            if self._free:
                self._stats["arena_bytes"] -= self._free.pop().nbytes
        raw = np.empty(size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        with self._lock:
            self._stats["allocations"] += 1
            self._stats["arena_bytes"] += size
            self._stats["peak_bytes"] = max(self._stats["peak_bytes"], self._stats["arena_bytes"])
        return raw[start : start + size]

    def _give(self, block: NDArray[np.uint8]) -> None:
        with self._lock:
            self._free.append(block)

    def stats(self) -> dict[str, int]:
        with self._lock:
            return dict(self._stats)

    def release(self) -> None:
        with self._lock:
            self._stats["arena_bytes"] -= sum(block.nbytes for block in self._free)
            self._free.clear()

    def profile(
        self, part: str, x: NDArray[Any], plane: NDArray[np.float32] | None = None, repeats: int = 5
    ) -> list[tuple[str, float]]:
        if repeats < 1:
            raise ConfigError(f"repeats must be at least 1, got {repeats}")
        x, plane = self._checked(part, x, plane)
        if not len(x):
            raise ImageError("there is no picture to measure with")
        stage = self._whole[part]
        height, width = x.shape[1:3]
        plan = self._plan(stage, stage.padded(height), stage.padded(width))
        size = stage.output_size(height), stage.output_size(width)
        target = np.empty((*size, stage.out_channels), np.float32)
        best = np.full(len(plan.labels), np.inf)
        arena = self._take(plan.arena_bytes)
        try:
            for _ in range(repeats):
                times = np.zeros(len(plan.labels) + 1)
                plan.run(arena, x[0], None if plane is None else plane[0], 0, 0, target, 0, 0, times)
                best = np.minimum(best, times[:-1])
        finally:
            self._give(arena)
        return [(label, float(ms)) for label, ms in zip(plan.labels, best * 1e3, strict=True)]
