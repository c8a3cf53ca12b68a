"""Small files that would cost a reader very much more time or memory than their bytes.

Pillow reads the entries of a TIFF or EXIF block one by one, whether or not they say that their values lie
at the same place, and joins the pieces of some texts by copying what it has for each. A server meets
files made for that, so what reading costs is added up here first, without doing it.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterable
from itertools import islice
from typing import BinaryIO

from .errors import ImageError

__all__ = ["check_cost", "is_costly", "without_comments"]

# Bytes of a value by the number of its type (TIFF 6.0, section 2, and BigTIFF).
_UNITS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_BELOW = (330, 34665, 34853, 40965)  # tags that tell the place of another directory: EXIF, GPS, ...
_MOST_BELOW = 16  # directories of one tag that are looked at, by `is_raw` too
_MOST_PLACES = 8  # where an EXIF block may begin in an AVIF file
_MOST_COPIED = 2**31  # bytes, some tenths of a second


def check_cost(file: BinaryIO, head: bytes, name: str) -> None:
    """Refuse a picture file whose metadata are made to cost its reader very much.

    Parameters
    ----------
    file : is left anywhere.
    head : its beginning, which says its kind.
    name : what messages call it.

    Raises
    ------
    ImageError
        If they are.
    """
    what = ""
    if head[:2] in (b"II", b"MM"):  # TIFF, BigTIFF and the kinds of RAW like them
        what = "directories" if is_costly(file) else ""
    elif head.startswith(b"\xff\xd8\xff"):
        pieces = _exif_of_jpeg(file)
        if _copied(map(len, pieces)) > _MOST_COPIED or is_costly(io.BytesIO(b"".join(pieces))):
            what = "EXIF"
    elif head.startswith(b"GIF8"):
        file.seek(0)
        what = "comments" if _copied(_comments_of_gif(file.read())) > _MOST_COPIED else ""
    elif re.match(rb"....ftypavi[fs]", head, re.DOTALL):
        file.seek(0)
        data = file.read()
        # Its one EXIF block is somewhere; what looks like one by chance is rare.
        places = [at.start() for at in islice(re.finditer(rb"II\*\0|MM\0\*", data), _MOST_PLACES + 1)]
        if len(places) > _MOST_PLACES or any(is_costly(io.BytesIO(data[at:])) for at in places):
            what = "EXIF"
    if what:
        raise ImageError(f"{name}: damaged or malicious: its {what} would take very long to read; "
                         "export it again without metadata")  # fmt: skip


def without_comments(file: BinaryIO) -> BinaryIO:
    """A PNM file in plain text without its comments, which Pillow removes one by one, copying the rest."""
    file.seek(0)
    return io.BytesIO(re.sub(rb"#[^\r\n]*", b"", file.read()))


def is_costly(file: BinaryIO) -> bool:
    """Whether a TIFF file or EXIF block says that it has many times the content that it can have.

    Its directories do not overlap, and what several entries share is little. A damaged one is not
    costly: its reader gives up where this does.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(16)
    order = "<" if head.startswith(b"II") else ">"
    big = head[2:4] in (b"+\0", b"\0+")
    number, tag_type_count, place = (order + f for f in (("Q", "HHQ", "Q") if big else ("H", "HHI", "I")))
    before, inline = struct.calcsize(tag_type_count), struct.calcsize(place)
    entries_left, values_left = size + 2**16, 8 * size + 2**20  # bytes

    def read(format: str, at: int) -> tuple[int, ...]:
        file.seek(at)
        return struct.unpack(format, file.read(struct.calcsize(format)))

    def directory(at: int) -> tuple[int, list[int]]:
        """Counts what a directory has; where its list of entries ends, and the directories it names."""
        nonlocal entries_left, values_left
        start = at + struct.calcsize(number)
        length = read(number, at)[0] * (before + inline)
        file.seek(start)
        table = file.read(min(length, size))
        entries_left -= len(table)
        below: list[int] = []
        for i in range(0, len(table) - before - inline + 1, before + inline):
            tag, kind, count = struct.unpack_from(tag_type_count, table, i)
            (value,) = struct.unpack_from(place, table, i + before)
            room = count * _UNITS.get(kind, 0)
            if room > inline:
                values_left -= max(0, min(room, size - value))
            if tag in _BELOW:
                several = f"{order}{min(count, _MOST_BELOW)}{place[1:]}"
                below.extend(read(several, value) if room > inline else (value,))
        return start + length, below

    try:
        page, pages = struct.unpack_from(place, head, 8 if big else 4)[0], set[int]()
        while page and page not in pages:
            pages.add(page)
            end, below = directory(page)
            known: set[int] = set()
            while below and min(entries_left, values_left) >= 0:
                if (at := below.pop()) not in known:
                    known.add(at)
                    below += directory(at)[1]
            if min(entries_left, values_left) < 0:
                return True
            (page,) = read(place, end)
    except (struct.error, OverflowError, OSError):
        pass
    return min(entries_left, values_left) < 0


def _copied(lengths: Iterable[int]) -> int:
    """Bytes that appending pieces one by one copies."""
    have = copied = 0
    for length in lengths:
        have += length
        copied += have
    return copied


def _exif_of_jpeg(file: BinaryIO) -> list[bytes]:
    """The contents of a JPEG's EXIF segments, which are one block together, without their names."""
    pieces: list[bytes] = []
    file.seek(2)
    while marker := file.read(1):
        if marker != b"\xff":
            break
        while (kind := file.read(1)) == b"\xff":  # padding
            pass
        if kind in (b"\xda", b"\xd9", b""):  # the pixels, the end
            break
        if kind in (b"\0", b"\1") or b"\xd0" <= kind <= b"\xd8":  # without content
            continue
        segment = file.read(max(0, int.from_bytes(file.read(2), "big") - 2))
        if kind == b"\xe1" and segment.startswith(b"Exif\0\0"):
            pieces.append(segment[6:])
    return pieces


def _comments_of_gif(data: bytes) -> Iterable[int]:
    """The lengths of the pieces of a GIF's comments."""

    def palette(flags: int) -> int:
        return 3 * 2 ** ((flags & 7) + 1) if flags & 128 else 0

    def blocks(at: int, found: list[int]) -> int:
        while length := data[at]:
            found.append(length)
            at += 1 + length
        return at + 1

    lengths: list[int] = []
    try:
        at = 13 + palette(data[10])
        while data[at] != 0x3B:
            if data[at] == 0x2C:  # a frame: its place, palette, size of codes
                at = blocks(at + 11 + palette(data[at + 9]), [])
            elif data[at] == 0x21:
                at = blocks(at + 2, lengths if data[at + 1] == 0xFE else [])
            else:  # a reader looks for the next one
                at += 1
    except IndexError:  # cut off
        pass
    return lengths
