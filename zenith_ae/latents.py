"""Latent files: ``stem.latent.safetensors`` with one tensor and what decoding needs to know.

The tensor ``latents`` is (N, C, h, w), fp16 or fp32, or uint8 with the tensors ``low`` and ``step``
(C, fp32) beside it: a latent is low + step * number. The metadata (strings, as safetensors has
them) are::

    format          "zenith-ae-latent"
    format_version  "1", or "2" for uint8
    model           name of the model that made them
    weights         its weight hash, 16 hexadecimal digits
    height, width   size of the picture; decoding crops to it
    mode            layout of the picture: L, LA, RGB, RGBA or CMYK
    space           identifies the latent space; files of the first versions have none
"""

from __future__ import annotations

import json
import operator
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .batches import CHANNELS, is_dense, is_tensor, without_torch
from .errors import LatentError, one_line
from .files import as_path, as_text, atomic_writer, reason, safetensors_bytes, visible

SUFFIX = ".latent.safetensors"
LATENT_FORMAT = "zenith-ae-latent"
_LAYOUTS = tuple(CHANNELS)
_FLOATS = {"fp16": np.float16, "fp32": np.float32}
#: Number formats of a latent file.
BITS = {"fp16": 16, "fp32": 32, "uint8": 8}
DTYPES = tuple(BITS)
Stored = Literal["fp16", "fp32", "uint8"]


class Reader(Protocol):
    """What tells whether a model can decode latents; `zenith_ae.Autoencoder` is one."""

    @property
    def hash(self) -> str: ...
    @property
    def space(self) -> str: ...


@dataclass(frozen=True, eq=False)
class LatentFile:
    """Latents of one picture (or of several of one size).

    Attributes
    ----------
    latents : (N, C, h, w) float32, finite.
    model, weights : name and weight hash of the model that made them.
    height, width : size of the picture.
    mode : its layout ("L", "LA", "RGB", "RGBA", "CMYK"); alpha itself is not stored.
    space : identifies the latent space, "" where the file does not tell.
    """

    latents: NDArray[np.float32]
    model: str
    weights: str
    height: int
    width: int
    mode: str = "RGB"
    space: str = ""

    @property
    def maker(self) -> str:
        """The model and the weights that made it, short enough for a message."""
        return visible(f"{self.model!s:.60} ({self.weights!s:.20})")

    def fits(self, model: Reader) -> bool:
        """Whether ``model`` made the latents, or another one of their space."""
        return self.weights == model.hash or (self.space != "" and self.space == model.space)


def latents_of(picture: str) -> str:
    """The usual name of the latent file of a picture of this name, whose folder falls away."""
    return Path(picture).stem + SUFFIX


def stem_of(latents: str) -> str:
    """What the name of a latent file has before its ending."""
    if latents.lower().endswith(SUFFIX):
        return latents[: -len(SUFFIX)]
    return latents.removesuffix(".safetensors")


def shipped_reader(file: LatentFile) -> str | None:
    """A model that comes with the package and reads the latents: their maker, else one of their space."""
    from .weights import available_weights

    shipped = sorted(available_weights().items(), key=lambda entry: entry[0] != file.model)
    return next((name for name, path in shipped if file.fits(_identity(path))), None)


def unread(file: LatentFile, name: str) -> LatentError:
    """The error where `shipped_reader` finds none for the file of this name."""
    return LatentError(
        f"{name}: made by {file.maker}, whose latents none of the models that come with zenith-ae reads; "
        "decode it with `zenith-ae decode --model FILE` and the weights that made it"
    )


class _Identity(NamedTuple):
    hash: str
    space: str


@cache  # a folder of latents asks for every file, and a hash takes a look at all weights
def _identity(path: Path) -> _Identity:
    from .weights import load_weights

    weights = load_weights(path)
    return _Identity(weights.hash, weights.space)


def numbers_of(latents: Any, of: str = "") -> NDArray:
    """Latents as an array, also those of torch; ``of`` is how an error begins.

    Raises
    ------
    LatentError
        For a tensor of anything but floats, or without values in memory, and for a masked array.
    """
    if isinstance(latents, np.ma.MaskedArray):
        raise LatentError(f"{of}a masked array would lose its mask; fill it first (array.filled(value))")
    if is_tensor(latents) and not latents.is_floating_point():
        raise LatentError(f"{of}latents must be floats, got {latents.dtype}")
    if is_tensor(latents) and not is_dense(latents):
        raise LatentError(
            f"{of}latents must be dense, with values: give tensor.to_dense(), not on device 'meta'"
        )
    try:
        return np.asarray(without_torch(latents))
    except ValueError:  # lists of unequal length
        raise LatentError(f"{of}latents must be an array (N, C, h, w)") from None


def check_latents(latents: Any, channels: int | None = None, name: str = "latents") -> NDArray[np.float32]:
    """Finite float32 latents of shape (N, C, h, w).

    Raises
    ------
    LatentError
        For another shape, another number of channels, no elements or values that are not finite.
    """
    latents = numbers_of(latents, f"{name}: ")
    if latents.dtype.kind != "f":
        raise LatentError(f"{name}: latents must be floats, got {latents.dtype}")
    if latents.ndim != 4 or not latents.size:
        raise LatentError(f"{name}: latents must be (N, C, h, w), got {latents.shape}")
    if channels is not None and latents.shape[1] != channels:
        raise LatentError(f"{name}: {latents.shape[1]} latent channels, but the model has {channels}; "
                          "use the model that made them")  # fmt: skip
    with np.errstate(all="ignore"):
        latents = latents.astype(np.float32, copy=False)
    if not np.isfinite(latents).all():
        raise LatentError(f"{name}: latents have values that are not finite; encode the picture again")
    return latents


def write_latents(
    path: str | os.PathLike[str], file: LatentFile, dtype: Stored = "fp16", overwrite: bool = True
) -> None:
    """Write a latent file, atomically.

    Parameters
    ----------
    dtype : "fp16", "fp32" or "uint8", how the latents are stored.
    overwrite : whether a file of that name is replaced.

    Raises
    ------
    LatentError
        If the latents are not finite in ``dtype``, or not those of a picture of the file's size.
    OutputError
        If the file cannot be written; an ExistsError, if it is not to be overwritten.
    ValueError
        If ``path`` is none, or there is no such ``dtype``.
    """
    if not isinstance(file, LatentFile):
        kind = type(file).__name__
        raise LatentError(f"this takes a LatentFile, as Autoencoder.encode_picture makes them, not {kind}")
    data = encode_latents(file, dtype)
    with atomic_writer(as_path(path), overwrite) as out:
        out.write(data)


def _tensors(latents: NDArray, dtype: str) -> dict[str, NDArray]:
    latents = check_latents(latents)
    if dtype == "uint8":
        low, high = (f(latents, axis=(0, 2, 3), keepdims=True) for f in (np.min, np.max))
        least = np.finfo(np.float32).tiny
        with np.errstate(under="ignore"):  # what is nearly 0 becomes 0
            step = np.maximum((high.astype(np.float64) - low) / 255, least).astype(np.float32)
            numbers = np.rint((latents - low.astype(np.float64)) / step).clip(0, 255).astype(np.uint8)
        steps = {"latents": numbers, "low": low.ravel(), "step": step.ravel()}
        if not np.isfinite(_values(steps)).all():
            raise LatentError("latents do not fit into uint8; use fp32")
        return steps
    if not isinstance(dtype, str) or dtype not in _FLOATS:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    with np.errstate(over="ignore", under="ignore"):
        floats = latents.astype(_FLOATS[dtype])
    if not np.isfinite(floats).all():
        raise LatentError(f"latents do not fit into {dtype}; use fp32")
    return {"latents": floats}


def _values(tensors: dict[str, NDArray]) -> NDArray:
    latents = tensors["latents"]
    if latents.dtype != np.uint8 or latents.ndim != 4:  # of another shape they would grow below
        return latents
    channels = latents.shape[1:2]
    with np.errstate(all="ignore"):  # what overflows here is found not to be finite
        low, step = (tensors[name].astype(np.float32).ravel() for name in ("low", "step"))
        if low.shape != channels or step.shape != channels:
            raise ValueError(f"low and step of {low.size} and {step.size} channels")
        return low[:, None, None] + step[:, None, None] * latents


def as_stored(latents: NDArray, dtype: str) -> NDArray[np.float32]:
    """Latents (N, C, h, w) as they come back from a file of ``dtype``, which is one of `DTYPES`."""
    return _values(_tensors(latents, dtype)).astype(np.float32, copy=False)


def encode_latents(file: LatentFile, dtype: str = "fp16") -> bytes:
    """The bytes of a latent file; `LatentError` where no model would decode them.

    ``dtype`` is "fp16", "fp32", or "uint8": 256 even steps between the smallest and the largest
    value of each channel. Half the size of fp16; it costs quality where a model was not trained for it.
    """
    tensors = _tensors(file.latents, dtype)
    try:
        height, width = operator.index(file.height), operator.index(file.width)
    except TypeError:
        sizes = f"{file.height!r:.40} and {file.width!r:.40}"
        raise LatentError(f"height and width are whole numbers, got {sizes}") from None
    if not _exists(width, height, file.mode):
        what = f"a {width} x {height} picture of mode {file.mode!r}"
        raise LatentError(f"there is no such thing as {what}; give the latents its real size and mode")
    shape = tensors["latents"].shape[2:]
    if not _fit(height, width, *shape):
        what = f"latents of {shape[1]} x {shape[0]} are not those of a {width} x {height} picture"
        raise LatentError(f"{what}; give them its real size")
    metadata = {
        "format": LATENT_FORMAT,
        "format_version": "2" if dtype == "uint8" else "1",
        "model": as_text(file.model),
        "weights": as_text(file.weights),
        "height": str(height),
        "width": str(width),
        "mode": file.mode,
    }
    if file.space:
        metadata["space"] = as_text(file.space)
    data = safetensors_bytes(tensors, metadata)
    if int.from_bytes(data[:8], "little") > _HEAD - 8:  # no reader would look further
        raise LatentError("the names of the model, its weights and the latent space are too long for a file")
    return data


def read_latents(path: str | os.PathLike[str]) -> LatentFile:
    """Read a latent file.

    Raises
    ------
    LatentError
        If the file is missing, damaged or no latent file.
    ValueError
        If ``path`` is none.
    """
    name = str(as_path(path))
    try:
        with open(name, "rb") as file:
            data = file.read(_HEAD)
            if latent_metadata(data) is not None:  # else it may be any model, of gigabytes
                data += file.read()
    except FileNotFoundError:
        raise LatentError(f"{visible(name)}: no such file; check the path") from None
    except OSError as error:
        raise LatentError(f"{visible(name)}: cannot be read: {reason(error)}") from None
    except ValueError as error:  # "embedded null byte"
        raise LatentError(f"{name!r}: not a usable path: {error}") from None
    return parse_latents(data, visible(name))


def parse_latents(data: bytes, name: str = "<bytes>") -> LatentFile:
    """Inverse of `encode_latents`; ``name`` is used in messages."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    metadata = latent_metadata(data)
    if metadata is None:
        raise LatentError(f"{name}: not a latent file of zenith-ae; make one with `zenith-ae encode`")
    version = metadata.get("format_version")
    if version not in ("1", "2"):
        raise LatentError(f"{name}: latent format version {version!r:.40} is not known; "
                          "use a newer zenith-ae")  # fmt: skip
    try:
        tensors = load(data)
        latents = _values(tensors)
        height, width = int(metadata["height"]), int(metadata["width"])
        model, weights, mode = metadata["model"], metadata["weights"], metadata["mode"]
    except KeyError as error:  # what the file lacks, or numbers that numpy lacks
        key = error.args[0]
        if key in (entry.get("dtype") for entry in _header(data).values()):
            raise LatentError(f"{name}: holds numbers of type {key}; store them as F16 or F32") from None
        raise LatentError(
            f"{name}: damaged latent file (there is no {key!r}); encode the picture again"
        ) from None
    except (SafetensorError, ValueError, TypeError) as error:
        text = one_line(error)[:120]
        raise LatentError(
            f"{name}: damaged or truncated latent file ({text}); encode the picture again"
        ) from None
    latents = check_latents(latents, name=name)
    if not _exists(width, height, mode):
        raise LatentError(f"{name}: damaged latent file (a {width} x {height} picture of mode {mode!r:.40}); "
                          "encode the picture again")  # fmt: skip
    return LatentFile(latents, model, weights, height, width, mode, metadata.get("space", ""))


def _fit(height: int, width: int, rows: int, columns: int) -> bool:
    """Whether latents (rows, columns), each of f x f pixels or at the end of fewer, make up a picture."""
    least, most = 1, max(height, width)
    for pixels, count in ((height, rows), (width, columns)):  # ceil(pixels / f) == count
        least = max(least, -(-pixels // count))
        most = min(most, (pixels - 1) // (count - 1) if count > 1 else most)
    return least <= most


def _exists(width: int, height: int, mode: str) -> bool:
    return mode in _LAYOUTS and height >= 1 and width >= 1


_HEAD = 2**16  # bytes, in which the whole header of a latent file lies


def latent_metadata(data: bytes) -> dict[str, str] | None:
    """The metadata of a latent file from its first bytes; None if it is not one."""
    try:
        metadata = _header(data)["__metadata__"]
        return metadata if metadata["format"] == LATENT_FORMAT else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _header(data: bytes) -> Any:
    """The header of a safetensors file: {name of a tensor: its dtype, shape and place}."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])
