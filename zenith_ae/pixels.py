"""The kernels for what happens to pixels beside the networks, with one error where they are missing."""

from __future__ import annotations

from .errors import MissingDependencyError, why_no_kernels

try:
    from ._kernels._pixels import add_change, count_clipped, enlarge_rows, limit_change, patches, roughness
except ImportError as error:
    raise MissingDependencyError(why_no_kernels(error)) from error

__all__ = ["add_change", "count_clipped", "enlarge_rows", "limit_change", "patches", "roughness"]
