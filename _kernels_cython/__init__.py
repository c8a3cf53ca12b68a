"""The native kernels: which instruction-set levels there are and which one is used."""

from __future__ import annotations

from ._ops import available_isas, compiled_isas, cpu_features, current_isa, fast_bf16, fast_int16

__all__ = [
    "available_isas", "best_dtype", "compiled_isas", "cpu_features", "current_isa", "fast_bf16", "fast_int16",
]  # fmt: skip


def best_dtype(isa: str | None = None) -> str:
    """What a level computes fastest with: "bf16", "int16" or "float32". ``isa`` as for `current_isa`."""
    return "bf16" if fast_bf16(isa) else "int16" if fast_int16(isa) else "float32"
