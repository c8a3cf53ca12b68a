"""Colour of 16 bits a channel, for which Pillow has no mode, through Pillow all the same.

Reading: Pillow takes one byte of each sample, and the raw mode of its decoder says which. A file
that is decoded twice gives both, with every compression, tiling and interlacing that Pillow knows.

Writing: the bytes of a 16-bit row are the bytes of an 8-bit row of twice the width. A TIFF is
written as such and its tags corrected (`image_bytes.widen_tiff`). PNG compares neighbouring pixels
before it compresses, so its data are made here; the other chunks, which hold the metadata, are
Pillow's.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Tiles = list[Any]

PLANAR = 284  # a TIFF's tag; 2 for planes
_LAYOUTS = {2: "LA", 3: "RGB", 4: "RGBA"}
_SWAPPED = {"B": "L", "L": "B"}


@dataclass(frozen=True)
class DeepColour:
    """How to read a picture of 16 bits a channel.

    Attributes
    ----------
    passes : tiles for Pillow to decode: first those of the high bytes, then those of the low ones;
        or one list, which gives grey and alpha of two bytes each as an RGBA image.
    peak : the value that means 1.
    premultiplied : whether the colours are multiplied by alpha.
    """

    passes: tuple[Tiles, ...]
    peak: int = 65535
    premultiplied: bool = False

    def pixels(self, images: list[Image.Image], key: Any = None) -> tuple[NDArray[np.uint16], str]:
        """(H, W, C) and layout of the images that the passes gave; the colour ``key`` is transparent."""
        first, *second = (np.asarray(image) for image in images)
        high, low = (first, second[0]) if second else (first[..., 0::2], first[..., 1::2])
        both = np.empty((*high.shape, 2), np.uint8)
        both[..., 0], both[..., 1] = low, high
        pixels = both.view("<u2")[..., 0].astype(np.uint16, copy=False)
        if self.peak != 65535:
            pixels = to_16_bits(np.minimum(pixels, self.peak), self.peak)
        if self.premultiplied:
            divide_by_alpha(pixels, 65535)
        if pixels.shape[2] == 3 and isinstance(key, tuple) and len(key) == 3:
            shown = (pixels != np.array(key)).any(axis=2, keepdims=True)
            pixels = np.concatenate([pixels, np.where(shown, 65535, 0).astype(np.uint16)], axis=2)
        return pixels, _LAYOUTS[pixels.shape[2]]


def to_16_bits(pixels: NDArray, peak: int) -> NDArray[np.uint16]:
    """Integers in 0..``peak`` scaled to 0..65535, rounded to nearest."""
    return ((pixels.astype(np.uint32) * 65535 + peak // 2) // peak).astype(np.uint16)


def deep_colour(image: Image.Image) -> DeepColour | None:
    """How to read an image, not loaded yet, of 16 bits a channel; None if it has less, is grey, or
    Pillow cannot be made to give them."""
    passes: tuple[Tiles, Tiles] = [], []
    premultiplied, peak = False, 65535
    for tile in getattr(image, "tile", ()):
        raw, *rest = (tile.args,) if isinstance(tile.args, str) else (tile.args or ("",))
        codec = tile.codec_name
        if raw == "LA;16B":
            return DeepColour(([tile._replace(args=("RGBA", *rest))],))
        name, _, order = str(raw).partition(";16")
        if codec == "ppm" and raw == "RGB" and rest[0] > 255:
            codec, order, peak, rest = "raw", "B", rest[0], [0, 1]
        elif in_planes(image):
            if codec != "raw" or name not in ("R", "G", "B", "A"):
                return None  # of separate planes libtiff drops the low bytes by itself
            order = "B" if image.tag_v2.prefix == b"MM" else "L"  # type: ignore[attr-defined]
        elif name not in ("RGB", "RGBA", "RGBX", "RGBa") or order not in ("B", "L", "N"):
            return None
        if name == "RGBa":  # Pillow would divide by alpha at 8 bits
            name, premultiplied = "RGBA", True
        if order == "N":
            order = "L" if sys.byteorder == "little" else "B"
        for tiles, byte in zip(passes, (order, _SWAPPED[order]), strict=True):
            tiles.append(tile._replace(codec_name=codec, args=(f"{name};16{byte}", *rest)))
    return DeepColour(passes, peak, premultiplied) if passes[0] else None


def in_planes(image: Image.Image) -> bool:
    """Whether an image is a TIFF of 16 bits whose colours are stored one after the other."""
    tags = getattr(image, "tag_v2", {})
    return tags.get(PLANAR) == 2 and set(tags.get(258, ())) == {16}


def divide_by_alpha(pixels: NDArray, peak: int) -> None:
    """Undo premultiplication of integer (H, W, 4) in 0..peak, in place; where alpha is 0 colours stay."""
    for row in pixels:
        alpha = np.where(row[:, 3:] == 0, peak, row[:, 3:]).astype(np.float32)
        row[:, :3] = np.rint(np.minimum(row[:, :3] * (peak / alpha), peak))


def is_deep(pixels: NDArray, layout: str) -> bool:
    """Whether pixels have 16 bits and more channels than Pillow can hold with them."""
    return pixels.dtype == np.uint16 and layout in _LAYOUTS.values()


def two_bytes_wide(pixels: NDArray[np.uint16], order: str) -> NDArray[np.uint8]:
    """(H, W, C) of 16 bits as (H, 2W, C) of 8 bits with the same bytes in each row, in byte order
    ``order`` ("<", ">" or "=")."""
    height, width, channels = pixels.shape
    bytes_ = np.ascontiguousarray(pixels.astype(f"{order}u2", copy=False)).view(np.uint8)
    return bytes_.reshape(height, 2 * width, channels)


def write_png(file: BinaryIO, pixels: NDArray[np.uint16], mode: str, options: dict[str, Any]) -> None:
    """Write (H, W, C) pixels of the layout ``mode`` as a PNG; ``options`` are those of Pillow's writer."""
    model = io.BytesIO()
    Image.new(mode, (1, 1)).save(model, "PNG", **options)
    height, width = pixels.shape[:2]
    file.write(model.getvalue()[:8])
    written = False
    for kind, data in _chunks(model.getvalue()):
        if kind == b"IHDR":
            data = struct.pack(">IIB", width, height, 16) + data[9:]
        if kind != b"IDAT":
            _write_chunk(file, kind, data)
        elif not written:
            written = True
            packer = zlib.compressobj(3)  # more effort saves less than 1 % of noise's low bytes
            for rows in _filtered(pixels):
                _write_chunk(file, kind, packer.compress(rows), optional=True)
            _write_chunk(file, kind, packer.flush())


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        yield kind, png[at + 8 : at + 8 + length]
        at += 12 + length


def _write_chunk(file: BinaryIO, kind: bytes, data: bytes, optional: bool = False) -> None:
    if data or not optional:
        file.write(struct.pack(">I", len(data)) + kind + data)
        file.write(struct.pack(">I", zlib.crc32(data, zlib.crc32(kind))))


def _filtered(pixels: NDArray[np.uint16]) -> Iterator[bytes]:
    """Bands of rows, each row with the filter whose output is smallest in sum.

    Filters 0 to 4 and the rule of choice are those of the PNG specification (third edition, 9.2
    and 12.7).
    """
    height, width, channels = pixels.shape
    step = 2 * channels  # bytes from a sample to that of the pixel on its left
    band = max(1, 2**19 // (width * step))
    above = np.zeros((1, step * (width + 1)), np.uint8)
    for y in range(0, height, band):
        part = pixels[y : y + band].astype(">u2").reshape(-1, width * channels).view(np.uint8)
        rows = np.zeros((len(part), step * (width + 1)), np.uint8)  # a pixel of zeros on the left
        rows[:, step:] = part
        up = np.concatenate([above, rows[:-1]])
        above = rows[-1:]
        x, a, b, c = rows[:, step:], rows[:, :-step], up[:, step:], up[:, :-step]
        outputs = [
            x,
            x - a,
            x - b,
            x - ((a.astype(np.uint16) + b) >> 1).astype(np.uint8),
            x - _paeth(a, b, c),
        ]
        sums = [np.minimum(out, -out).sum(axis=1, dtype=np.int64) for out in outputs]
        best = np.argmin(sums, axis=0)
        done = np.empty((len(part), 1 + width * step), np.uint8)
        done[:, 0] = best
        for kind, out in enumerate(outputs):
            done[best == kind, 1:] = out[best == kind]
        yield done.tobytes()


def _paeth(a: NDArray[np.uint8], b: NDArray[np.uint8], c: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Of left, above and above left, the one nearest to a + b - c, the former where two are."""
    to_b, to_a = a.astype(np.int16) - c, b.astype(np.int16) - c  # distances of the sum from b and from a
    to_c = np.abs(to_a + to_b)
    to_a, to_b = np.abs(to_a), np.abs(to_b)
    return np.where((to_a <= to_b) & (to_a <= to_c), a, np.where(to_b <= to_c, b, c))


def write_netpbm(file: BinaryIO, pixels: NDArray[np.uint16]) -> None:
    """Write (H, W, 3) pixels as a binary PPM."""
    file.write(b"P6\n%d %d\n65535\n" % (pixels.shape[1], pixels.shape[0]))
    for row in pixels:
        file.write(row.astype(">u2").tobytes())
