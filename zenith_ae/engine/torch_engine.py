"""The torch engine: the reference modules behind the engine interface, on a CPU or a CUDA GPU."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, MissingDependencyError
from ..models import spec
from ..weights import Weights
from .base import Engine, Progress
from .geometry import Region, Stage
from .limits import memory_budget

try:
    import torch
    import torch.nn.functional as F

    from ..models.modules import Network, frozen_module
except ImportError:
    raise MissingDependencyError(
        "the torch engine needs torch: pip install 'zenith-ae[torch]', or use device='cpu'"
    ) from None

_SCALE = {"uint8": 255.0, "uint16": 65535.0}


def _as_it_is(device: str) -> AbstractContextManager[Any]:
    """No autocast of the caller's in here; before torch 2.5 "mps" has none to switch off."""
    try:
        return torch.autocast(device, enabled=False)
    except RuntimeError:
        return nullcontext()


#: Since torch 2.9 each kind of operation has a switch of its own; old and new ones must not be mixed.
_SWITCHES: tuple[Any, ...] = ()
if hasattr(torch.backends.cudnn, "conv"):
    _KINDS = ("cudnn.conv", "cuda.matmul", "mkldnn.conv", "mkldnn.matmul")
    _SWITCHES = tuple(attrgetter(kind)(torch.backends) for kind in _KINDS)
_EXACT: tuple[Any, ...] = ("ieee",) * len(_SWITCHES) if _SWITCHES else (False, "highest")


def _precision() -> tuple[Any, ...]:
    if _SWITCHES:
        return tuple(switch.fp32_precision for switch in _SWITCHES)
    return torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()


def _set_precision(values: tuple[Any, ...]) -> None:
    for switch, value in zip(_SWITCHES, values, strict=False):
        switch.fp32_precision = value
    if not _SWITCHES:
        torch.backends.cudnn.allow_tf32, precision = values
        torch.set_float32_matmul_precision(precision)


class _ExactFloats:
    """No TF32 and no bf16 in products of float32: with mantissas of 10 or 7 bits pictures change.

    cuDNN convolves in TF32 unless told otherwise, and pipelines often allow either for their own speed. The
    switches are the process's, so the first thread in here turns them and the last one turns them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: tuple[Any, ...] = ()
        os.register_at_fork(after_in_child=self._alone)

    def _alone(self) -> None:
        """In a child of a fork, which has none of the threads that are inside."""
        self._lock = threading.Lock()
        if self._inside:
            self._inside = 0
            _set_precision(self._before)

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = _precision()
                _set_precision(_EXACT)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside = max(0, self._inside - 1)  # 0 in a child of a fork in here
            if not self._inside:
                _set_precision(self._before)


_exact_floats = _ExactFloats()


class TorchEngine(Engine):
    """Runs `zenith_ae.models.modules`; see `Engine` for the interface.

    Parameters
    ----------
    weights : the model.
    device : of torch: "cpu", "cuda", "cuda:1". Threads on the CPU are torch's own
        (``torch.set_num_threads``).

    Raises
    ------
    ConfigError
        If torch does not have the device.
    """

    isa = "torch"
    dtype = "float32"

    def __init__(self, weights: Weights, device: str = "cpu") -> None:
        super().__init__(weights)
        try:
            self._device = torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
            why = str(error).splitlines()[0].split(". ")[0]  # the rest may be a page about others
            raise ConfigError(f"device {device}: {why}") from None
        self.device = f"torch {device}"
        if self._device.type == "cuda":
            self.budget = memory_budget(torch.cuda.mem_get_info(self._device)[0])
        self.threads = torch.get_num_threads()
        self._modules: dict[str, Network] = {
            part: frozen_module(weights, part).to(self._device, torch.float32)
            for part in weights.config.parts
        }

    def _working_bytes(self, stage: Stage, height: int, width: int) -> int:
        # What is kept, and of the most expensive layer input, output and intermediate results: two, of a
        # Zenith block five, and six where its spectral branch is torch's.
        def floats(step: spec.Step) -> float:
            hidden = max(getattr(step.layer, "hidden", 0), step.cout)
            before = step.cin / step.layer.scale**2
            results = 2
            if isinstance(step.layer, spec.ZenithBlock):
                results = 6 if step.layer.tile else 5
            return float((before + step.cout + results * hidden) * step.scale**2)

        steps = list(spec.trace(stage.layers, stage.in_channels))
        kept = sum(float(step.cout * step.scale**2) for step in steps if isinstance(step.layer, spec.Keep))
        return int(4 * (kept + max(map(floats, steps))) * height * width)

    def _run_region(
        self,
        stage: Stage,
        source: NDArray[Any],
        plane: NDArray[np.float32] | None,
        region: Region,
        target: NDArray[Any],
        progress: Progress | None,
    ) -> None:
        with torch.inference_mode(), _as_it_is(self._device.type), _exact_floats:
            x = self._load(source, region)
            if plane is not None:
                x = torch.cat([x, self._load(plane[:, :, None], region)], 1)
            y = self._modules[stage.part](x, stage.first, stage.first + len(stage.layers))[0].permute(1, 2, 0)
            rows, columns = region.rows, region.columns
            y = y[
                rows.skip : rows.skip + rows.stop - rows.start,
                columns.skip : columns.skip + columns.stop - columns.start,
            ]
            if target.dtype.name in _SCALE:
                y = (y.nan_to_num(0).clamp(0, 1) * _SCALE[target.dtype.name]).round()
            target[...] = y.cpu().numpy().astype(target.dtype)

    def _load(self, source: NDArray[Any], region: Region) -> torch.Tensor:
        """(1, C, H, W) float32 on the device, scaled and padded by edge repetition."""
        rows, columns = region.rows, region.columns
        piece = source[rows.lo : rows.hi, columns.lo : columns.hi]
        scale = _SCALE.get(piece.dtype.name)
        values = piece.astype(np.float32) / np.float32(scale) if scale else piece
        x = (
            torch.from_numpy(np.require(values, requirements=["C", "W"]))
            .to(self._device)
            .permute(2, 0, 1)[None]
        )
        down, right = rows.hi - rows.lo - x.shape[2], columns.hi - columns.lo - x.shape[3]
        return F.pad(x, (0, right, 0, down), mode="replicate") if down or right else x
