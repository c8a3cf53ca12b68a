"""Camera RAW files, developed by LibRaw (rawpy, extra ``raw``) to 16-bit sRGB.

Development is plain: white balance as the camera set it, LibRaw's standard demosaicing, sRGB's tone
curve, exposure as it was recorded. Nothing is brightened or sharpened.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .errors import MissingDependencyError
from .image_guard import check_cost, is_costly
from .image_metadata import EXIF_BLOCK, GPS_BLOCK, described

RAW_SUFFIXES = frozenset((
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".iiq", ".kdc", ".mef", ".mos",
    ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
))  # fmt: skip

_TIFF = (b"II*\0", b"MM\0*")
_TIFF_LIKE = (b"IIRO", b"IIRS", b"MMOR", b"IIU\0")  # Olympus and Panasonic: a TIFF but for the number
_OTHERS = (b"FUJIFILMCCD-RAW", b"II\x1a\0\0\0HEAPCCDR", b"\0MRM", b"FOVb")  # Canon's CRW, Minolta, Sigma
_MOSAIC = (32803, 34892)  # PhotometricInterpretation of sensor values, and of such with all colours
_PHOTOMETRIC, _SUB_IFDS, _DNG_VERSION = 262, 330, 50706


def rawpy_is_here() -> bool:
    """Whether RAW files can be read; does not import rawpy."""
    return find_spec("rawpy") is not None


def is_raw(file: BinaryIO, head: bytes, name: str) -> bool:
    """Whether a file holds the values of a sensor, by its content; ``head`` is its beginning.

    Many RAW files are TIFF files, some of whose directories hold a mosaic. Where that is not to be
    seen, the suffix of a TIFF file decides.
    """
    if head.startswith(_OTHERS + _TIFF_LIKE) or re.match(rb"....ftypcrx ", head, re.DOTALL):
        return True
    if not head.startswith(_TIFF):
        return False
    if head[8:10] == b"CR" or Path(name).suffix.lower() in RAW_SUFFIXES:
        return True
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    def directory(at: int) -> Any:
        found = ImageFileDirectory_v2(head[:8])
        file.seek(at)
        found.load(file)
        return found

    try:
        first = directory(ImageFileDirectory_v2(head[:8]).next)
        below = first.get(_SUB_IFDS, ())
        below = below if isinstance(below, tuple) else (below,)
        return _DNG_VERSION in first or any(
            one.get(_PHOTOMETRIC) in _MOSAIC for one in (first, *(directory(at) for at in below[:16]))
        )
    except Exception:  # a damaged TIFF, which its reader will refuse with better words
        return False


def develop(
    file: BinaryIO, name: str, check_size: Callable[[tuple[int, int]], None]
) -> tuple[NDArray[np.uint16], dict[str, Any]]:
    """Read a RAW file.

    Parameters
    ----------
    check_size : is called with (width, height) before anything is decoded, and may raise.

    Returns
    -------
    (H, W, 3) uint16, of a sensor without colour filters (H, W, 1), in sRGB, upright, and the metadata:
    "exif" where it can be found.

    Raises
    ------
    MissingDependencyError
        If rawpy is not installed.
    Exception
        Of rawpy's own kinds if the file is damaged or of a camera that LibRaw does not know.
    """
    try:
        import rawpy
    except ImportError:
        raise MissingDependencyError(
            f"{name}: is a camera RAW file; to read it, install the extra with pip install 'zenith-ae[raw]'"
        ) from None
    file.seek(0)
    data = file.read()
    with rawpy.imread(io.BytesIO(data)) as raw:
        check_size((raw.sizes.raw_width, raw.sizes.raw_height))
        pixels = raw.postprocess(
            use_camera_wb=True,
            no_auto_bright=True,
            output_color=rawpy.ColorSpace.sRGB,
            gamma=(2.4, 12.92),
            output_bps=16,
        )
    exif = raw_exif(data)
    return np.ascontiguousarray(pixels[..., :3]), {"exif": exif} if exif else {}


def raw_exif(data: bytes) -> bytes:
    """The EXIF block of a RAW file without its orientation; empty if there is none to be found."""
    exif = Image.Exif()
    try:
        if data.startswith(b"FUJIFILMCCD-RAW"):  # the place of a JPEG with everything
            start, size = (int.from_bytes(data[at : at + 4], "big") for at in (84, 88))
            jpeg = io.BytesIO(data[start : start + size])
            check_cost(jpeg, data[start : start + 16], "preview")
            jpeg.seek(0)
            with Image.open(jpeg, formats=("JPEG",)) as preview:
                return described(preview.getexif())
        if data[4:12] == b"ftypcrx ":  # Canon's boxes, each a TIFF: description, EXIF, GPS
            exif.load(_box(data, b"CMT1"))
            blocks = {}
            for tag, kind in ((EXIF_BLOCK, b"CMT2"), (GPS_BLOCK, b"CMT4")):
                block = Image.Exif()
                block.load(_box(data, kind))
                blocks[tag] = dict(block)
            return described(exif, blocks)
        number = b"*\0" if data.startswith(b"II") else b"\0*"
        exif.load_from_fp(io.BytesIO(data[:2] + number + data[4:]))
        return described(exif)
    except Exception:  # Pillow's readers raise what they happen to meet
        return b""


def _box(data: bytes, kind: bytes) -> bytes:
    """The TIFF in an ISO box near the beginning; nothing if there is none, or one made to cost much."""
    at = data.find(kind, 0, 2**20)
    content = data[at + 4 : at - 4 + int.from_bytes(data[at - 4 : at], "big")] if at >= 4 else b""
    return b"" if is_costly(io.BytesIO(content)) else content
