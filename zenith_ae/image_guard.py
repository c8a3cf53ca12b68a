"""Small files that would cost a reader very much more time or memory than their bytes.

Pillow reads the entries of a TIFF or EXIF block one by one, whether or not they say that their values lie
at the same place, and joins the pieces of some texts by copying what it has for each. The decoder of JPEGs
goes through all pixels for each scan, and that of JPEG 2000 keeps hundreds of bytes for each of the blocks
that a file may cut its pixels into. A server meets files made for that, so what reading costs is added up
here first, without doing it.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate, islice
from typing import BinaryIO

from .errors import ImageError

# Bytes of a value by the number of its type (TIFF 6.0, section 2, and BigTIFF).
BYTES_OF_KIND = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_BELOW = (330, 34665, 34853, 40965)  # tags that tell the place of another directory: EXIF, GPS, ...
_MOST_BELOW = 16  # directories of one tag that are looked at, by `is_raw` too
_MOST_PLACES = 8  # where an EXIF block may begin in an AVIF file
_MOST_COPIED = 2**31  # bytes, some tenths of a second
_MOST_LISTS = 16  # of pictures in a JPEG, which has one
_MOST_SCANS = 200  # of a JPEG; encoders make some ten, each of which takes 20 ms for 64 megapixels and more
_LEAST_BLOCK = 128  # pixels for each block and precinct of a JPEG 2000 file; most have 4096 and more
_MOST_PACKETS = 2**25  # of a JPEG 2000 file, about a second
_MOST_SIZES, _MOST_STYLES = 8, 2**10  # different ones that a JPEG 2000 file tells; most have one of each
_MOST_TOLD = 2**18  # times they are: there may be a style for each of 65535 tiles and channel
_MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # of a JPEG's segment; the others are within a scan


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
        file.seek(0)
        exif, lists, scans = _blocks_and_scans(file.read())
        if _copied(map(len, exif)) > _MOST_COPIED or is_costly(io.BytesIO(b"".join(exif))):
            what = "EXIF"
        elif len(lists) > _MOST_LISTS or any(is_costly(io.BytesIO(block)) for block in lists):
            what = "list of pictures"
        elif scans > _MOST_SCANS:
            raise ImageError(f"{name}: damaged or malicious: a JPEG of more than {_MOST_SCANS} scans; "
                             "export it again")  # fmt: skip
    elif re.match(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  ", head):
        file.seek(0)
        if _is_costly_jpeg2000(file.read()):
            raise ImageError(f"{name}: damaged or malicious: a JPEG 2000 file of very many tiny blocks; "
                             "export it again with larger ones")  # fmt: skip
    elif head.startswith(b"GIF8"):
        file.seek(0)
        what = "comments" if _copied(_comments_of_gif(file.read())) > _MOST_COPIED else ""
    elif re.match(rb"....ftyp(avi[fs]|hei|hev|mif|miaf|msf1)", head, re.DOTALL):  # AVIF and HEIC
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
            room = count * BYTES_OF_KIND.get(kind, 0)
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
    return sum(accumulate(lengths))


def _blocks_and_scans(data: bytes) -> tuple[list[bytes], list[bytes], int]:
    """What a JPEG says in blocks like those of a TIFF, and how many scans it has, counted to one more than
    are borne.

    The first are the contents of its EXIF segments, which are one block together, without their names, the
    second the lists of its pictures, if it says that it has several (CIPA DC-007, a block a segment).
    """
    exif: list[bytes] = []
    lists: list[bytes] = []
    at, scans = 2, 0
    while scans <= _MOST_SCANS and (marker := _MARKER.search(data, at)):
        kind, at = marker[1], marker.end()
        if kind == b"\xd9":  # the end
            break
        if kind in (b"\x01", b"\xd8"):  # without content
            continue
        scans += kind == b"\xda"
        end = at + max(2, int.from_bytes(data[at : at + 2], "big"))
        if kind == b"\xe1" and data.startswith(b"Exif\0\0", at + 2):
            exif.append(data[at + 8 : end])
        if kind == b"\xe2" and data.startswith(b"MPF\0", at + 2):
            lists.append(data[at + 6 : end])
        at = end
    return exif, lists, scans


def _is_costly_jpeg2000(data: bytes) -> bool:
    """Whether a file cuts its pixels into so many blocks that they cost more than the pixels.

    Looked at are all bytes that could say so (ISO/IEC 15444-1, A.5.1, A.6.1 and A.6.2), wherever they are:
    in pixels that happens once in millions of files.
    """
    images: set[tuple[int, ...]] = set()  # width, height, those of a tile, channels
    for found in islice(re.finditer(rb"\xff\x4f\xff\x51", data), _MOST_TOLD):
        with suppress(struct.error):
            right, bottom, left, top, *tile, channels = struct.unpack_from(">6I8xH", data, found.end() + 4)
            images.add((max(0, right - left), max(0, bottom - top), *tile, channels))
    styles, layers = set[tuple[int, bytes]](), 1  # fewest pixels of a block, those of precincts; layers
    for told, found in enumerate(re.finditer(rb"\xff(\x52\0[\x0c-\x2d]|\x53\0[\x09-\x2b])", data)):
        if max(told // _MOST_TOLD, len(styles) // _MOST_STYLES, len(images) // _MOST_SIZES) > 0:
            return True
        at, (kind, _, length) = found.start() + 4, found[1]
        body = data[at : at + length - 2]
        for skipped in (5,) if kind == 0x52 else (2, 3):  # before the number of resolutions
            exponents = body[skipped + 5 :]  # of precincts, one a resolution, the smallest first
            if len(body) < skipped + 5 or (exponents and len(exponents) != body[skipped] + 1):
                continue
            levels, block = body[skipped], body[skipped + 1] + body[skipped + 2] + 4
            styles.add((block, exponents or b"\xff" * (levels + 1)))
            layers = max(layers, int.from_bytes(body[2:4], "big") if kind == 0x52 else 1)
    for width, height, *tile, channels in images:
        pixels = width * height
        tiles = -(-width // max(1, tile[0])) * -(-height // max(1, tile[1]))
        for block, exponents in styles:
            precincts = tiles * len(exponents) + sum(
                pixels >> 2 * i + (both & 15) + (both >> 4) for i, both in enumerate(reversed(exponents))
            )
            blocks = (pixels >> block) + precincts
            if _LEAST_BLOCK * blocks > max(pixels, 2**20) or layers * channels * precincts > _MOST_PACKETS:
                return True
    return False


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
