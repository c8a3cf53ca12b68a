"""The native kernels: which instruction-set levels there are and which one is used."""

from __future__ import annotations

from ._ops import available_isas, compiled_isas, current_isa

__all__ = ["available_isas", "compiled_isas", "current_isa"]
