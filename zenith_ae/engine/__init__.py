"""Engines: run a model's parts on NHWC arrays, natively on the CPU or through torch."""

from __future__ import annotations

from ..errors import ConfigError
from ..weights import Weights
from .base import Engine

__all__ = ["DEVICES", "DTYPES", "Engine", "create"]

DEVICES = ("auto", "cpu", "torch", "cuda")
DTYPES = ("auto", "float32", "bf16")


def create(
    weights: Weights,
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    isa: str | None = None,
) -> Engine:
    """An engine for a model.

    Parameters
    ----------
    weights : the model.
    device : "cpu" is the native engine, "torch" and "cuda" run the torch modules on the CPU or a GPU,
        "auto" is the native engine.
    dtype : how activations are stored and matrices multiplied: "float32", "bf16" (native engine, on a
        level with instructions for it; sums and outputs stay float32), or "auto": bf16 where the level
        has it, else float32.
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
    if device not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if device in ("torch", "cuda"):
        if threads is not None or isa is not None:
            raise ConfigError(f"threads and isa belong to device 'cpu', not {device!r}")
        if dtype == "bf16":
            raise ConfigError(f"dtype bf16 belongs to device 'cpu', not {device!r}")
        from .torch_engine import TorchEngine, check_device

        check_device(device)
        return TorchEngine(weights, "cuda" if device == "cuda" else "cpu")
    from .native import NativeEngine

    return NativeEngine(weights, threads, isa, dtype)
