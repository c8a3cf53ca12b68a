"""Errors that a user can act on: each message says what, where and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class ZenithError(Exception):
    """Base of all errors about files, pictures, weights, latents, settings and the installation.

    Other wrong arguments of a call are a plain ValueError.
    """


class ConfigError(ZenithError, ValueError):
    """A model description or a setting (device, dtype, threads, tile, a variable) that cannot be used."""


class CheckpointError(ConfigError):
    """A checkpoint that is damaged or belongs to another training run."""


class TrainingError(ZenithError, ArithmeticError):
    """A training run that has diverged: its gradients are no longer finite."""


class WeightsError(ZenithError, ValueError):
    """A weights file that is missing, damaged or of an unknown architecture."""


class ImageError(ZenithError, ValueError):
    """A file or array that is no usable picture."""


class LatentError(ZenithError, ValueError):
    """A latent file or array that is damaged or belongs to another model."""


class OutputError(ZenithError, OSError):
    """A result that could not be written; nothing was replaced."""


class FormatError(OutputError):
    """A result that no file of its format can hold; one of another format can."""


class ExistsError(OutputError, FileExistsError):
    """A result whose place is taken by a file that was not to be replaced."""


class IsaError(ZenithError, RuntimeError):
    """A kernel level that this build or this CPU does not have."""


class MissingDependencyError(ZenithError, ImportError):
    """An optional package is not installed; the message names the extra."""


def one_line(text: object) -> str:
    """A message, say, without line ends, and with single spaces."""
    return " ".join(str(text).split())


def in_short(value: Any) -> str:
    """The beginning of how Python shows a value, in one line."""
    return one_line(repr(value))[:60]


def why_no_kernels(error: ImportError) -> str:
    """One line on why the compiled modules cannot be imported, and what to do."""
    reason = one_line(error)
    if not (error.name or "").startswith("zenith_ae"):  # numpy or a shared library
        return f"the compiled kernels of zenith-ae cannot be loaded: {reason}"
    if error.path:  # a module that is there, and lacks a name
        return f"the compiled kernels of zenith-ae are of another version ({reason}); install it again"
    if Path(__file__).parents[1].joinpath("pyproject.toml").exists():
        return (
            "this is zenith-ae's source folder, which hides the installed package: go to another folder, or "
            "install it in place with: pip install -e ."
        )
    return f"the compiled kernels of zenith-ae are missing ({reason}); install with: pip install ."
