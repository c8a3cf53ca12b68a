"""What a picture file says besides its pixels: ICC profile, EXIF, XMP, resolution, orientation."""

from __future__ import annotations

import io
import math
import os
import re
import struct
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, BinaryIO

from PIL import Image

from .errors import ImageError
from .image_guard import BYTES_OF_KIND, is_costly

_DESCRIPTION = 0x010E
IPTC = 0x0404  # captions and keywords of agencies, among what Photoshop writes to a JPEG
_TIFF_IPTC = 33723  # the tag that holds the same
INTEROPERABILITY = 0xA005  # in an EXIF block, the place of another in the file: not so in a new file
EXIF_BLOCK, GPS_BLOCK = 0x8769, 0x8825
_RATING = (0x4746, 0x4749)
_NO_TEXTS = "XML:com.adobe.xmp", "Raw profile type "  # of a PNG, which are XMP, EXIF and the like
_SAID_IN_WINDOWS = (0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F)  # title, comment, author, keywords, subject
_TEXTS = (_DESCRIPTION, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x8298)
# Tags of a TIFF that describe the scene and not the file: description, camera, software, date,
# artist, copyright, EXIF and GPS blocks, what Windows and others say of it.
_DESCRIPTIVE_TAGS = (*_TEXTS, EXIF_BLOCK, GPS_BLOCK, *_RATING, *_SAID_IN_WINDOWS)
ORIENTATION = 0x0112
_WIDTH, _HEIGHT = 0xA002, 0xA003  # in pixels, in the EXIF block
_COLUMNS, _ROWS = 0x0100, 0x0101  # the same, beside the orientation
SIDEWAYS = (5, 6, 7, 8)  # orientations with which these change places
_LIES = re.compile(rb"(tiff:Orientation(?:=[\"']|>))([2-8])")  # in XMP
_SIZES_OF_XMP = {
    b"tiff:ImageWidth": b"tiff:ImageLength",
    b"tiff:ImageLength": b"tiff:ImageWidth",
    b"exif:PixelXDimension": b"exif:PixelYDimension",
    b"exif:PixelYDimension": b"exif:PixelXDimension",
}
_SIZE_OF_XMP = re.compile(rb"\b(?:" + b"|".join(_SIZES_OF_XMP) + rb")\b")
# What XMP says of things behind a JPEG's picture: a gain map, the video of a motion photo, more XMP. None of
# these patterns looks at a byte more than a few times, however the text is made.
_BEYOND = rb"(?:hdrgm:\w+|(?:GCamera|Camera):(?:MotionPhoto|MicroVideo)\w*|xmpNote:HasExtendedXMP)"
_SAYS_BEYOND = re.compile(
    rb"<Container:Directory>(?:(?!<Container:Directory>).)*?</Container:Directory>"
    rb"|\s" + _BEYOND + rb"=(?:\"[^\"]*\"|'[^']*')|<(" + _BEYOND + rb")>[^<]*</\1>",
    re.DOTALL,
)
_MOTION = re.compile(rb"Camera:(?:MotionPhoto|MicroVideo)(?:=[\"']|>)1")
_AVIF_HEAD = 2**16  # what an AVIF says of its picture lies at the front
SRGB_GAMMA = 0.45455  # as the chunk gAMA of a PNG says it: programs show pictures without one alike
MOST_GAMMA = 10  # of what a picture may say

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read_metadata(image: Image.Image, turned: bool = True, sideways: bool = False) -> dict[str, Any]:
    """The metadata of a Pillow image, with the orientation reset if its pixels have been ``turned`` upright.

    ``sideways`` says that width and height have changed places where the image can no longer tell: Pillow
    removes the orientation of a TIFF when it loads it.
    """
    metadata: dict[str, Any] = {}
    if isinstance(image.info.get("icc_profile"), bytes) and image.info["icc_profile"]:
        metadata["icc_profile"] = image.info["icc_profile"]
    if exif := _exif_bytes(image, turned, sideways):
        # Each format strips or adds this prefix when it writes, except JPEG, which needs it.
        metadata["exif"] = exif if exif.startswith(b"Exif\0\0") else b"Exif\0\0" + exif
    if isinstance(image.info.get("xmp"), bytes):
        xmp = _upright_xmp(image.info["xmp"]) if turned else image.info["xmp"]
        metadata["xmp"] = _SAYS_BEYOND.sub(b"", xmp) if lost_beside(xmp) else xmp
    resources = image.info.get("photoshop")  # of a JPEG
    iptc = resources.get(IPTC) if isinstance(resources, dict) else None
    if image.format == "TIFF":
        iptc = _iptc_of_tiff(getattr(image, "tag_v2", {}))
    if isinstance(iptc, bytes) and iptc:
        metadata["iptc"] = iptc
    if image.format in ("JPEG", "MPO") and isinstance(text := image.info.get("comment"), bytes) and text:
        metadata["comment"] = text
    texts = _texts_of_png(image) if image.format == "PNG" else image.info.get("text")
    if texts and _is_text(texts):  # of an image made from one
        metadata["text"] = texts
    if not {"srgb", "icc_profile"} & image.info.keys():  # of a PNG, or of an image made from one
        gamma = image.info.get("gamma")
        if isinstance(gamma, float) and 0 < gamma < MOST_GAMMA and abs(gamma - SRGB_GAMMA) > 1e-3:
            metadata["gamma"] = gamma
    if dpi := image.info.get("dpi"):
        try:
            dpi = float(dpi[0]), float(dpi[1])
        except (TypeError, ValueError, ZeroDivisionError, IndexError):
            dpi = (0.0, 0.0)
        if min(dpi) > 0 and max(dpi) < 1e6:
            metadata["dpi"] = dpi[::-1] if sideways else dpi
    return metadata


def _iptc_of_tiff(tags: Any) -> bytes | None:
    """IPTC captions, which many say are numbers of 32 bits, and some store in the other order of bytes.

    Of several numbers Pillow gives the first, so the bytes are taken as they are in the file.
    """
    raw = getattr(tags, "_tagdata", {}).get(_TIFF_IPTC) or tags.get(_TIFF_IPTC)
    if not isinstance(raw, bytes):
        return None
    swapped = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    return swapped if raw[3:4] == b"\x1c" and len(raw) % 4 == 0 else raw


def _texts_of_png(image: Image.Image) -> dict[str, str]:
    """Titles, authors, and what a generator was asked for; but not what other metadata say."""
    texts = getattr(image, "text", {})
    return {key: x for key, x in texts.items() if _is_entry(key, x) and not key.startswith(_NO_TEXTS)}


def _upright_xmp(xmp: bytes) -> bytes:
    """``xmp`` of a picture that lies on its side no more; width and height change names."""
    lies = _LIES.search(xmp)
    if lies and int(lies[2]) in SIDEWAYS:
        xmp = _SIZE_OF_XMP.sub(lambda name: _SIZES_OF_XMP[name[0]], xmp)
    return _LIES.sub(rb"\g<1>1", xmp)


def check_metadata(metadata: Any) -> None:
    """Refuse metadata that are not as `zenith_ae.images.Picture` has them.

    Raises
    ------
    ImageError
        If a value is of another kind, or no such number exists.
    """
    if not isinstance(metadata, dict):
        raise ImageError(f"a Picture's metadata are a dict, got {type(metadata).__name__}")
    for key, (is_right, what) in _METADATA.items():
        if key in metadata and not is_right(metadata[key]):
            got = f"{metadata[key]!r:.40}"
            raise ImageError(
                f"a Picture's metadata {key!r} must be {what}, got {got}; mend it or leave it out"
            )


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, Real) and 0 <= float(value) < math.inf
    except OverflowError:
        return False


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_number, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_entry(*pair) for pair in value.items())


def _is_entry(key: Any, text: Any) -> bool:
    """Whether a PNG can hold a text by that name: 1 to 79 letters of Latin-1; and no NUL in either."""
    if not (isinstance(key, str) and isinstance(text, str) and 0 < len(key) < 80):
        return False
    try:
        return b"\0" not in key.encode("latin-1") + text.encode()
    except UnicodeEncodeError:
        return False


def _is_bytes(value: Any) -> bool:
    return isinstance(value, bytes)


_METADATA: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("icc_profile", "exif", "xmp", "iptc", "comment"), (_is_bytes, "bytes")),
    "text": (_is_text, "a dict of str (1 to 79 letters of Latin-1) to str, without NUL"),
    "dpi": (_is_pair, "a pair of numbers, none below 0"),
    "gamma": (lambda value: _is_number(value) and value < MOST_GAMMA, f"a number from 0 to {MOST_GAMMA}"),
    "duration": (lambda value: value is None or _is_number(value), "a number of milliseconds"),
    "loop": (lambda value: isinstance(value, Integral) and int(value) >= 0, "a whole number of times"),
}


def lost_beside(xmp: Any) -> list[str]:
    """What lies behind a JPEG's picture, as its XMP says, and is not read with it.

    A second picture that says how much brighter an HDR screen shows the first, the video of a motion photo
    (of some seconds), and XMP that is too long for one segment.
    """
    if not isinstance(xmp, bytes):
        return []
    found = {
        "the HDR gain map": b"hdrgm:Version" in xmp,
        "the video of the motion photo": _MOTION.search(xmp),
        "the second part of long XMP": b"xmpNote:HasExtendedXMP" in xmp,
    }
    return [what for what, there in found.items() if there]


def _exif_bytes(image: Image.Image, turned: bool, sideways: bool) -> bytes:
    """EXIF, its orientation reset if ``turned``; else the original bytes, so that maker notes survive."""
    raw = image.info.get("exif")
    if isinstance(raw, bytes) and not _is_costly(raw) and (patched := _reset_orientation(raw)):
        return patched if turned else raw
    return described(_tags(image), turned=turned, sideways=sideways)


def _tags(image: Image.Image) -> Image.Exif:
    """The EXIF tags; none where the block is damaged, of which Pillow's readers of some formats die."""
    try:
        block = image.info.get("exif") or _exif_in_text(image)
        return Image.Exif() if _is_costly(block) else image.getexif()
    except Exception:  # SyntaxError and struct.error among them
        return Image.Exif()


def _is_costly(exif: bytes) -> bool:
    return is_costly(io.BytesIO(exif.removeprefix(b"Exif\0\0")))


def _exif_in_text(image: Image.Image) -> bytes:
    """EXIF as hexadecimal text, as ImageMagick once wrote it to PNG."""
    text = image.info.get("Raw profile type exif", "")
    return bytes.fromhex("".join(text.split("\n")[3:]))


def described(
    tags: Image.Exif,
    blocks: dict[int, dict[int, Any]] | None = None,
    turned: bool = True,
    sideways: bool = False,
) -> bytes:
    """Those tags, as an EXIF block, that describe the scene; empty if there are none.

    ``blocks`` are the EXIF and GPS blocks by tag, where they are not below ``tags``. How a picture lies is
    among them unless it was ``turned`` upright; that it lay ``sideways`` the tags need not say.
    """
    kept = Image.Exif()
    exchanged = turned and (sideways or tags.get(ORIENTATION) in SIDEWAYS)
    for tag in _DESCRIPTIVE_TAGS if turned else (*_DESCRIPTIVE_TAGS, ORIENTATION):
        if tag in (EXIF_BLOCK, GPS_BLOCK):
            if block := dict(tags.get_ifd(tag) if blocks is None else blocks.get(tag, {})):
                keep_letters(block)
                block.pop(INTEROPERABILITY, None)
                if exchanged and block.keys() >= {_WIDTH, _HEIGHT}:
                    block[_WIDTH], block[_HEIGHT] = block[_HEIGHT], block[_WIDTH]
                kept[tag] = block
        elif tag in tags and not (tag == _DESCRIPTION and layout_of_pixels(tags[tag])):
            kept[tag] = tags[tag]
    keep_letters(kept)
    try:
        return kept.tobytes() if len(kept) else b""
    except Exception:  # of values that Pillow read and does not write
        return b""


def layout_of_pixels(description: Any) -> bool:
    """Whether a TIFF's description is a program's account of how its pages lie in the file.

    ImageJ, tifffile (and scikit-image) and OME write one, and believe one: in another file it is wrong.
    """
    text = description.decode("latin-1") if isinstance(description, bytes) else description
    return isinstance(text, str) and (text.startswith(("ImageJ=", '{"shape"')) or "<OME" in text)


class _Letters(str):
    """A text that Pillow writes as the bytes it was read from; given bytes, it may write no text."""

    def encode(self, *_: str) -> bytes:
        return super().encode("latin-1", "replace")


def keep_letters(tags: MutableMapping[int, Any]) -> None:
    """Keep texts beyond ASCII: Pillow reads any as Latin-1, and writes question marks.

    Those that are no text, which it reads and does not write, are removed.
    """
    for tag, value in [*tags.items()]:
        if isinstance(value, str) and not value.isascii():
            tags[tag] = _Letters(value)
        elif tag in _TEXTS and not isinstance(value, str | bytes):
            del tags[tag]


def _frame(exif: bytes) -> tuple[int, str]:
    """Where the TIFF of an EXIF block begins, and the byte order of its numbers; "" where it has none."""
    start = 6 if exif.startswith(b"Exif\0\0") else 0
    return start, {b"II": "<", b"MM": ">"}.get(exif[start : start + 2], "")


def _reset_orientation(exif: bytes) -> bytes | None:
    """``exif`` with orientation 1, and with it width and height; None if it cannot be walked.

    Every other byte stays the same.
    """
    start, order = _frame(exif)
    if not order:
        return None
    data = bytearray(exif)

    def entries(offset: int) -> dict[int, int]:
        """Where the entries of a directory are, by their tags."""
        (count,) = struct.unpack_from(order + "H", data, start + offset)
        places = (start + offset + 2 + 12 * i for i in range(count))
        return {struct.unpack_from(order + "H", data, place)[0]: place for place in places}

    try:
        tags = entries(*struct.unpack_from(order + "I", data, start + 4))
        if place := tags.get(ORIENTATION):
            (value,) = struct.unpack_from(order + "H", data, place + 8)
            struct.pack_into(order + "HIHH", data, place + 2, 3, 1, 1, 0)
            if value in SIDEWAYS:
                _exchange(data, tags.get(_COLUMNS), tags.get(_ROWS))
            if value in SIDEWAYS and (block := tags.get(EXIF_BLOCK)):
                with suppress(struct.error):  # damaged farther in
                    below = entries(*struct.unpack_from(order + "I", data, block + 8))
                    _exchange(data, below.get(_WIDTH), below.get(_HEIGHT))
    except struct.error:
        return None
    return bytes(data)


def without_orientation(exif: bytes) -> bytes:
    """``exif`` whose first directory does not say that its picture is upright; empty if that is all it said.

    Pillow's writer of AVIF makes a block that says how its picture lies anew, and not as it was. All other
    values stay where they are. As it is if it says otherwise, or nothing, or cannot be walked.
    """
    start, order = _frame(exif)
    if not order:
        return exif
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, start + 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start + at)
        first = start + at + 2
        end = first + 12 * count + 4  # of the list, and of the place of the next one
        entries = [struct.unpack_from(f"{order}HHII", exif, i) for i in range(first, end - 4, 12)]
        (following,) = struct.unpack_from(f"{order}I", exif, end - 4)
    except struct.error:
        return exif
    shared = any(  # where there is no such place, values may be
        at <= place < end - start and size * BYTES_OF_KIND.get(kind, 0) > 4
        for _, kind, size, place in entries
    )
    found = [first + 12 * i for i, entry in enumerate(entries) if entry[:3] == (ORIENTATION, 3, 1)]
    if shared or [struct.unpack_from(f"{order}H", exif, entry + 8) for entry in found] != [(1,)]:
        return exif
    if count == 1 and not following:
        return b""
    (entry,) = found
    rest = exif[first:entry] + exif[entry + 12 : end] + bytes(12)
    return exif[: start + at] + struct.pack(f"{order}H", count - 1) + rest + exif[end:]


def _exchange(data: bytearray, first: int | None, second: int | None) -> None:
    """Exchange what two entries of a directory say (kind, count and value), if both are there."""
    if first and second:
        one, other = slice(first + 2, first + 12), slice(second + 2, second + 12)
        data[one], data[other] = data[other], data[one]


def upright(image: Image.Image, metadata: dict[str, Any]) -> Image.Image:
    # A TIFF is turned (and its tag removed) by Pillow itself while loading.
    orientation = _tags(image).get(ORIENTATION, 1)
    if orientation not in _UPRIGHT:
        return image
    if orientation in SIDEWAYS and "dpi" in metadata:
        metadata["dpi"] = metadata["dpi"][::-1]
    return image.transpose(_UPRIGHT[orientation])


def png_colours(file: BinaryIO) -> bytes | None:
    """Primaries and transfer function (numbers of ITU-T H.273) from a PNG's chunk cICP; None without one."""
    before = file.tell()
    try:
        file.seek(8)
        while len(header := file.read(8)) == 8 and header[4:] != b"IDAT":
            if header[4:] == b"cICP":
                return file.read(2)
            file.seek(int.from_bytes(header[:4], "big") + 4, os.SEEK_CUR)  # and a checksum
        return None
    finally:
        file.seek(before)


def avif_colours(file: BinaryIO) -> bytes | None:
    """As `png_colours`, from an AVIF's first box nclx; None without one.

    Boxes are those of ISO/IEC 14496-12; nobody else's program has to have made them well.
    """
    before = file.tell()
    try:
        file.seek(0)
        head = file.read(_AVIF_HEAD)
    finally:
        file.seek(before)
    start, end = 0, len(head)
    for kind, skipped in ((b"meta", 4), (b"iprp", 0), (b"ipco", 0), (b"colr", 0)):
        for place, size in _boxes(head, start, end):
            is_it = head[place + 4 : place + 8] == kind
            if is_it and (kind != b"colr" or head[place + 8 : place + 12] == b"nclx"):
                start, end = place + 8 + skipped, place + size
                break
        else:
            return None
    found = head[start + 4 : start + 8]  # of two bytes each
    return found[1::2] if len(found) == 4 else None


def looks_like_srgb(primaries: int, transfer: int) -> bool:
    """Whether a picture of these (ITU-T H.273) looks the same, or nearly so, where they are not told.

    So it does where they say nothing (2) or are those of television.
    """
    return primaries in (1, 2, 5, 6) and transfer in (1, 2, 6, 13, 14, 15)


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where boxes begin, and their sizes."""
    while start + 8 <= end:
        size = int.from_bytes(data[start : start + 4], "big")
        if size < 8:  # to the end of the file, or a long one: neither is among those that are looked for
            return
        yield start, min(size, end - start)
        start += size


def webp_is_lossless(file: BinaryIO) -> bool:
    """Whether the first picture chunk of a WebP file is VP8L."""
    file.seek(12)
    while len(header := file.read(8)) == 8:
        kind, size = header[:4], int.from_bytes(header[4:], "little")
        if kind in (b"VP8L", b"VP8 "):
            return kind == b"VP8L"
        if kind == b"ANMF":  # a frame: its pictures are chunks inside, behind 16 bytes
            size = 16
        file.seek(size + size % 2, os.SEEK_CUR)
    return False
