"""zenith-ae: small, fast image autoencoders and a denoiser that run well on an ordinary CPU.

>>> import zenith_ae
>>> dn = zenith_ae.load("zenith-denoise")              # doctest: +SKIP
>>> noisy = zenith_ae.read_picture("noisy.jpg")        # doctest: +SKIP
>>> zenith_ae.write_picture(dn(noisy), "clean.jpg")    # doctest: +SKIP

Importing the package loads nothing else (no numpy, no torch); each name below is loaded when it
is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._kernels import available_isas
    from .errors import (
        ConfigError,
        ExistsError,
        FormatError,
        ImageError,
        IsaError,
        LatentError,
        MissingDependencyError,
        OutputError,
        WeightsError,
        ZenithError,
    )
    from .image_writing import write_picture
    from .images import Picture, read_picture
    from .latents import LatentFile, read_latents, write_latents
    from .pipelines import Autoencoder, Denoiser, load
    from .weights import available_weights

__version__ = "0.1.0"

__all__ = [
    "Autoencoder",
    "ConfigError",
    "Denoiser",
    "ExistsError",
    "FormatError",
    "ImageError",
    "IsaError",
    "LatentError",
    "LatentFile",
    "MissingDependencyError",
    "OutputError",
    "Picture",
    "WeightsError",
    "ZenithError",
    "__version__",
    "available_isas",
    "available_weights",
    "load",
    "read_latents",
    "read_picture",
    "write_latents",
    "write_picture",
]

_HOMES = {
    "Autoencoder": "pipelines",
    "Denoiser": "pipelines",
    "LatentFile": "latents",
    "Picture": "images",
    "available_isas": "_kernels",
    "available_weights": "weights",
    "load": "pipelines",
    "read_latents": "latents",
    "read_picture": "images",
    "write_latents": "latents",
    "write_picture": "image_writing",
} | {name: "errors" for name in __all__ if name.endswith("Error")}


if not TYPE_CHECKING:  # to type checkers a name that is misspelt has to be unknown

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
