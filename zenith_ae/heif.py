"""HEIC and other HEIF pictures, as phones store them, decoded by libheif (pillow-heif, extra ``heif``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .batches import CHANNELS
from .deep_colour import divide_by_alpha, to_16_bits
from .errors import MissingDependencyError
from .image_metadata import looks_like_srgb, read_metadata

HEIF_SUFFIXES = frozenset((".heic", ".heif", ".hif"))

_CHANNELS = CHANNELS | {"I": 1, "RGBa": 4}
# What is beside the picture, by a part of its name, and what to call it.
_BESIDE = {"gainmap": "the HDR gain map", "depth": "the depth map", "disparity": "the depth map"}


def heif_is_here() -> bool:
    """Whether HEIC can be read; does not import pillow-heif."""
    return find_spec("pillow_heif") is not None


def decode_heif(
    file: BinaryIO, name: str, check_size: Callable[[tuple[int, int]], None]
) -> tuple[NDArray[Any], dict[str, Any], tuple[str, ...]]:
    """Read the primary picture of a HEIF file.

    Parameters
    ----------
    check_size : is called with (width, height) before anything is decoded, and may raise.

    Returns
    -------
    (H, W, C) uint8, or uint16 if the file has more than 8 bits, of grey or RGB, with alpha or without, turned
    and mirrored as the file says; its metadata; notes about what is not kept.

    Raises
    ------
    MissingDependencyError
        If pillow-heif is not installed.
    Exception
        Of pillow-heif's own kinds if the file is damaged.
    """
    try:
        import pillow_heif
    except ImportError:
        raise MissingDependencyError(
            f"{name}: is a HEIC picture; to read it, install the extra with pip install 'zenith-ae[heif]'"
        ) from None
    file.seek(0)
    pictures = pillow_heif.open_heif(file, convert_hdr_to_8bit=False, hdr_to_16bit=False)
    picture, info = pictures[pictures.primary_index], pictures[pictures.primary_index].info
    check_size(picture.size)
    pixels = _pixels(picture)
    # What EXIF and XMP say of how a picture lies was said to the decoder too, which has turned it.
    told = Image.new("L", (1, 1))
    told.info = {key: info[key] for key in ("exif", "xmp", "icc_profile") if info.get(key)}
    return pixels, read_metadata(told), tuple(_notes(info, len(pictures)))


def _pixels(picture: Any) -> NDArray[Any]:
    data, (width, height) = picture.data, picture.size  # decoding may change the size
    kind, bits = picture.mode.partition(";")[0], int(picture.info["bit_depth"])
    channels, peak = _CHANNELS[kind], 2**bits - 1
    # Not by numpy.asarray: the array would not hold what it shows (pillow-heif up to 1.0).
    rows = np.frombuffer(data, np.uint8 if bits == 8 else "<u2").reshape(height, -1)
    pixels = rows[:, : width * channels].reshape(height, width, channels).copy()
    if kind == "RGBa":  # colours were multiplied by alpha
        divide_by_alpha(pixels, peak)
    return pixels if bits == 8 else to_16_bits(pixels, peak)


def _notes(info: dict[str, Any], count: int) -> list[str]:
    """What of a file with so many pictures is not kept."""
    notes = ["only the primary one of several pictures in the file is used"] if count > 1 else []
    beside = " ".join([*map(str, info.get("aux", {})), "depth" if info.get("depth_images") else ""]).lower()
    notes += dict.fromkeys(f"{what} is not kept" for part, what in _BESIDE.items() if part in beside)
    colours = None if "icc_profile" in info else info.get("nclx_profile")
    if colours and not looks_like_srgb(colours["color_primaries"], colours["transfer_characteristics"]):
        notes.append("the HEIC's colour space (nclx) is not kept, so it looks different")
    return notes
