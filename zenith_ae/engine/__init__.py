"""Engines: run a model's parts on NHWC arrays, natively on the CPU or through torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..weights import Weights
from .base import Engine, Pieces, Progress, Tile, check_tile, within

if TYPE_CHECKING:
    import torch

__all__ = ["DEVICES", "DTYPES", "Engine", "Pieces", "Progress", "Tile", "check_tile", "create", "within"]

DEVICES = ("auto", "cpu", "torch", "cuda", "cuda:N", "mps")
DTYPES = ("auto", "float32", "bf16", "int16")


def create(
    weights: Weights,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    threads: int | None = None,
    isa: str | None = None,
) -> Engine:
    """An engine for a model.

    Parameters
    ----------
    weights : the model.
    device : "auto" and "cpu" are the native engine, "torch" runs the torch modules on the CPU, "cuda",
        "cuda:N" and "mps" on a GPU. A ``torch.device`` is taken by its name.
    dtype : how activations are stored and matrices multiplied: "float32"; of the native engine, on a level
        with instructions for it, "bf16" (sums and outputs stay float32) or "int16" (activations are float32
        and products of integers, ten times as exact as bf16); or "auto", the fastest of them. A
        ``torch.dtype`` is taken by its name, and "bfloat16" is bf16.
    threads : threads of the native engine at most; default is ZENITH_NUM_THREADS, else the CPUs
        that this process may use.
    isa : level of the native kernels, default the best one (or ZENITH_ISA).

    Raises
    ------
    ConfigError
        If an option has no such value here.
    IsaError
        If the level is not available.
    MissingDependencyError
        If the device needs torch and it is not installed.
    """
    device = re.sub(r"^(cpu|mps):0$", r"\1", str(device))  # as torch names the device of a tensor
    dtype = str(dtype).removeprefix("torch.").replace("bfloat16", "bf16")
    on_torch = re.fullmatch(r"torch|mps|cuda(:\d+)?", device)
    if not on_torch and device not in ("auto", "cpu"):
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if on_torch:
        if threads is not None or isa is not None:
            raise ConfigError(f"threads and isa belong to device 'cpu', not {device!r}")
        if dtype in ("bf16", "int16"):
            raise ConfigError(f"dtype {dtype} belongs to device 'cpu', not {device!r}")
        from .torch_engine import TorchEngine

        return TorchEngine(weights, "cpu" if device == "torch" else device)
    from .native import NativeEngine

    return NativeEngine(weights, threads, isa, dtype)
