"""The native kernels: which instruction-set levels there are and which one is used."""

from __future__ import annotations

from ._ops import available_isas, compiled_isas, cpu_features, current_isa, fast_bf16

__all__ = ["available_isas", "compiled_isas", "cpu_features", "current_isa", "fast_bf16"]
