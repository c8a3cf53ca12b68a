"""What Pillow's writers leave out of TIFF and BMP files, put into the bytes that they wrote."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from .image_guard import BYTES_OF_KIND
from .image_metadata import EXIF_BLOCK, GPS_BLOCK

_SHORT, _LONG = 3, 4
_WIDTH, _BITS, _STRIPS = 256, 258, 273


def widen_tiff(data: bytearray) -> None:
    """Correct the tags of a TIFF of one page: half as many pixels a row, of 16 bits a channel."""
    order, at = _directory(data)
    for entry in _entries(data, order, at):
        tag, kind, length = struct.unpack_from(order + "HHI", data, entry)
        if tag == _WIDTH:  # a short or a long
            form = order + ("H" if kind == _SHORT else "I")
            (width,) = struct.unpack_from(form, data, entry + 8)
            struct.pack_into(form, data, entry + 8, width // 2)
        elif tag == _BITS:  # three or four of them do not fit into the entry
            (place,) = struct.unpack_from(order + "I", data, entry + 8)
            struct.pack_into(f"{order}{length}H", data, place, *[16] * length)


def join_tiffs(pages: Iterable[bytes | bytearray]) -> bytearray:
    """One TIFF of what TIFFs of one page and one byte order hold.

    Pillow would join pages too, but of all but the first it loses EXIF and GPS: it leaves the places of
    their directories as they were in a file of the page alone (`AppendingTiffWriter`, Pillow 13).
    """
    whole = bytearray()
    link = 4  # where the place of the next page's directory is told
    for page in pages:
        order, at = _directory(page)
        base = len(whole)
        whole += page
        whole += bytes(len(whole) % 2)  # directories begin at even places
        struct.pack_into(order + "I", whole, link, base + at)
        link = _move_directory(whole, order, base + at, base)
    return whole


def _directory(page: bytes | bytearray) -> tuple[str, int]:
    """Byte order and place of the first directory of a TIFF."""
    order = {b"II": "<", b"MM": ">"}[bytes(page[:2])]
    return order, struct.unpack_from(order + "I", page, 4)[0]


def _entries(data: bytearray, order: str, at: int) -> range:
    """The places of the entries of the directory at ``at``; that of the next directory is told at the end."""
    (count,) = struct.unpack_from(order + "H", data, at)
    return range(at + 2, at + 2 + 12 * count, 12)


def _move_directory(data: bytearray, order: str, at: int, base: int) -> int:
    """Add ``base`` to all places that the directory at ``at`` tells, and those of the directories that it
    points to; returns where it tells the place of the next one."""
    entries = _entries(data, order, at)
    for entry in entries:
        tag, kind, length, value = struct.unpack_from(order + "HHII", data, entry)
        if BYTES_OF_KIND[kind] * length > 4:
            value += base
            struct.pack_into(order + "I", data, entry + 8, value)
            values = value
        else:
            values = entry + 8
        if tag == _STRIPS:  # after the move only longs will do
            form = f"{order}{length}" + ("H" if kind == _SHORT else "I")
            strips = [base + strip for strip in struct.unpack_from(form, data, values)]
            if kind == _SHORT and length > 1:
                values = len(data)
                data += bytes(4 * length)
                struct.pack_into(order + "I", data, entry + 8, values)
            struct.pack_into(order + "H", data, entry + 2, _LONG)
            struct.pack_into(f"{order}{length}I", data, values, *strips)
        elif tag in (EXIF_BLOCK, GPS_BLOCK):
            struct.pack_into(order + "I", data, values, base + value)
            _move_directory(data, order, base + value, base)
    return entries.stop


def bmp_with_alpha(bmp: bytes) -> bytes:
    """A BMP of 32 bits with a header that says what the fourth byte is: BITMAPV4HEADER of the Windows API.

    Without, programs ignore it, Pillow's reader among them, and Pillow writes no other.
    """
    (begin,) = struct.unpack_from("<I", bmp, 10)
    width, height, planes, bits, _, size, across, down = struct.unpack_from("<iiHHIIii", bmp, 18)
    masks = 0x00FF0000, 0x0000FF00, 0x000000FF, 0xFF000000
    header = struct.pack(
        "<IiiHHIIiiII4I4s48x", 108, width, height, planes, bits, 3, size, across, down, 0, 0, *masks, b"BGRs"
    )
    start = 14 + len(header)
    return struct.pack("<2sIHHI", b"BM", start + len(bmp) - begin, 0, 0, start) + header + bmp[begin:]
