"""Pictures from files and from Pillow, with everything that a change of their pixels must not lose.

What becomes of each kind of picture:

=====================  ==========  ===========================================================
in the file            layout      written back as
=====================  ==========  ===========================================================
8-bit grey, RGB        L, RGB      the same
grey or RGB + alpha    LA, RGBA    the same; alpha bytes are never touched
16-bit grey            L (uint16)  16-bit grey where the format has it
16-bit RGB, alpha      (uint16)    the same in PNG, TIFF and PNM, else 8 bits a channel
float grey (TIFF)      L (float)   float grey in TIFF, else 8-bit grey
palette, colour key    RGB, RGBA   RGB or RGBA: new pixels have colours outside the palette
black and white        L           8-bit grey
CMYK                   CMYK        CMYK in JPEG and TIFF, else RGB
YCbCr, HSV             RGB         RGB
camera RAW             (uint16)    developed to 16-bit sRGB; in PNG where no format is asked for
=====================  ==========  ===========================================================

EXIF orientation is applied to the pixels and reset in the metadata. ICC profile, EXIF, XMP and
resolution are carried over. Of an animation or a document of several pages the first picture is
used (and noted), or all of them where the caller asks for them.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from .batches import CHANNELS, LAYOUTS, check_layout, full_scale, to_rgb
from .camera_raw import RAW_SUFFIXES, develop, is_raw, rawpy_is_here
from .deep_colour import PLANAR, deep_colour, in_planes, to_16_bits
from .errors import ConfigError, ImageError, MissingDependencyError, ZenithError, in_short, one_line
from .files import reason, visible
from .heif import HEIF_SUFFIXES, decode_heif, heif_is_here
from .image_guard import check_cost, without_comments
from .image_metadata import (
    ORIENTATION,
    SIDEWAYS,
    avif_colours,
    check_metadata,
    looks_like_srgb,
    lost_beside,
    png_colours,
    read_metadata,
    upright,
    webp_is_lossless,
)

#: Pixels that a file may claim before it is refused; ZENITH_MAX_PIXELS overrides it.
MAX_PIXELS = 2**28
#: Sides that limits count as so many pixels: narrow pictures are computed as wide as this, and a megabyte of
#: frames of one pixel would be minutes of work.
LEAST_SIDE = 2**7


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture: pixels and what else its file says.

    Attributes
    ----------
    pixels : (H, W, C) uint8, uint16 or float32 array (floats in [0, 1]).
    layout : what the C channels are: "L", "LA", "RGB", "RGBA" or "CMYK".
    mode : the Pillow mode that the pixels came from.
    format : the file's format as Pillow names it ("PNG"), or None.
    metadata : "icc_profile", "exif", "xmp", of a JPEG (or TIFF) "iptc" and "comment" (bytes), of a PNG
        "text" (dict of str), "dpi" (pair),
        "lossless" (bool), "gamma" (of a PNG that says it in place of a profile), and of
        animations "duration" (milliseconds) and "loop" (times, 0 for ever), as known.
    notes : sentences about what could not be kept.
    more : the other pictures of an animation or document, if they were asked for.
    """

    pixels: NDArray
    layout: str
    mode: str
    format: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    more: tuple[Picture, ...] = ()

    @property
    def height(self) -> int:
        return self.pixels.shape[0]

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    @property
    def bits(self) -> int:
        """Bits per channel: 1 for a black-and-white file, else those of ``pixels``."""
        return 1 if self.mode == "1" else 8 * self.pixels.dtype.itemsize

    @property
    def frames(self) -> tuple[Picture, ...]:
        """This picture and ``more``, the frames or pages of the file."""
        return (self, *self.more)

    @property
    def area(self) -> int:
        """Pixels of all frames or pages."""
        return sum(one.width * one.height for one in self.frames)

    @property
    def counted_area(self) -> int:
        """`area` as limits count it: a side of less than `LEAST_SIDE` of a frame or narrow one as that."""
        several = len(self.frames) > 1
        return sum(_counted((one.width, one.height), several) for one in self.frames)

    @property
    def every_note(self) -> tuple[str, ...]:
        """The notes of all frames or pages, each once."""
        return tuple(dict.fromkeys(note for one in self.frames for note in one.notes))

    def with_pixels(self, pixels: NDArray) -> Picture:
        """The same picture with other pixels of the same layout; it gets a copy of the metadata."""
        return replace(self, pixels=pixels, metadata=dict(self.metadata))

    def map(self, change: Callable[[Picture], Picture]) -> Picture:
        """Every picture of the file changed by itself."""
        return replace(change(replace(self, more=())), more=tuple(change(p) for p in self.more))

    def stripped(self) -> Picture:
        """Without what says where, when and with what it was taken, on any page; ICC profiles stay."""

        def bare(one: Picture) -> Picture:
            return replace(one, metadata={k: v for k, v in one.metadata.items() if k not in TOLD})

        return self.map(bare)


#: Metadata that say where, when and with what a picture was taken.
TOLD = ("exif", "xmp", "iptc", "comment", "text", "dpi")

#: First bytes -> Pillow plugin module and format name; HEIF is not Pillow's. Formats without a signature, and
#: those that Pillow hands to other programs (EPS), are left out on purpose.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (rb"\x89PNG\r\n\x1a\n", "Png", "PNG"),
    (rb"\xff\xd8\xff", "Jpeg", "JPEG"),
    (rb"RIFF....WEBP", "WebP", "WEBP"),
    (rb"II\*\0|MM\0\*|II\+\0|MM\0\+", "Tiff", "TIFF"),
    (rb"BM", "Bmp", "BMP"),
    (rb"GIF8[79]a", "Gif", "GIF"),
    (rb"P[1-6fy]\s|Pf", "Ppm", "PPM"),
    (rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51", "Jpeg2K", "JPEG2000"),
    (rb"....ftyp(avif|avis|mi(f1|af).{4}(.{4}){0,8}avif)", "Avif", "AVIF"),
    (rb"....ftyp(hei|hev|mif|miaf|msf1)", "", "HEIF"),
    (rb"8BPS", "Psd", "PSD"),
    (rb"\0\0\x01\0", "Ico", "ICO"),
)

_SUFFIXES = frozenset((
    ".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".webp", ".tif", ".tiff", ".bmp", ".dib",
    ".gif", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpx", ".jpf", ".avif", ".psd", ".ico",
))  # fmt: skip

#: Endings of the files that are looked for in folders; of camera RAW and HEIC where a reader is installed.
READABLE_SUFFIXES = (
    _SUFFIXES | (RAW_SUFFIXES if rawpy_is_here() else set()) | (HEIF_SUFFIXES if heif_is_here() else set())
)
#: Endings of pictures that people have in folders too, and that cannot be read here.
FOREIGN_SUFFIXES = (RAW_SUFFIXES | HEIF_SUFFIXES | {".jxl"}) - READABLE_SUFFIXES

# Pillow's own limit is one number for the whole process, which others in it may set, too. While a file is
# read that Pillow refuses or warns of, it is ours.
_open_lock = threading.Lock()
_readers = 0
_pillows_limit = Image.MAX_IMAGE_PIXELS


@contextmanager
def _pillow_allows(pixels: int) -> Iterator[None]:
    """The first of the threads that read sets Pillow's limit, others may raise it, the last puts it back."""
    global _readers, _pillows_limit
    with _open_lock:
        if not _readers:
            _pillows_limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, pixels
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS or 0, pixels)
        _readers += 1
    try:
        yield
    finally:
        with _open_lock:
            _readers -= 1
            if not _readers:
                Image.MAX_IMAGE_PIXELS = _pillows_limit


@contextmanager
def _opened(
    reopen: Callable[[], ImageFile.ImageFile], plugin: str, pixels: int
) -> Iterator[ImageFile.ImageFile]:
    """What ``reopen`` opens; meanwhile Pillow allows ``pixels`` where it would refuse or warn.

    Whether there are more the caller checks.
    """
    image = None
    if plugin == "Ico":  # decodes a picture inside at once, and refuses nothing below twice the limit
        pixels //= 2
    elif plugin != "Gif":  # whose frames may be larger than it is
        with suppress(Image.DecompressionBombError):  # of a large WebP
            image = reopen()
    theirs = _pillows_limit if _readers else Image.MAX_IMAGE_PIXELS
    within = image is not None and (theirs is None or math.prod(image.size) <= theirs)
    with nullcontext() if within else _pillow_allows(pixels), image or reopen() as image:
        yield image


def _after_fork() -> None:
    """The other threads, which may read or hold the lock, are not in a forked process."""
    global _open_lock, _readers
    _open_lock = threading.Lock()
    if _readers:
        _readers, Image.MAX_IMAGE_PIXELS = 0, _pillows_limit


os.register_at_fork(after_in_child=_after_fork)


def read_picture(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes],
    name: str | None = None,
    max_pixels: int | None = None,
    every: bool = False,
) -> Picture:
    """Read a picture from a file, or from bytes (then ``name`` is used in messages).

    Parameters
    ----------
    source : a path, the bytes of a file, or an open binary file, which is read to its end.
    max_pixels : refuse larger pictures before a pixel is decoded; default ZENITH_MAX_PIXELS, else
        `MAX_PIXELS`.
    every : read all pictures of an animation or document, not only the first (`Picture.more`); their
        pixels count together.

    Raises
    ------
    ImageError
        If the file is missing, unreadable, damaged, of no supported format, or larger than the
        limit.
    MissingDependencyError
        If it is a camera RAW file and rawpy (extra ``raw``) is not installed, or HEIC and pillow-heif (extra
        ``heif``).
    ConfigError
        If ZENITH_MAX_PIXELS is not a number.
    ValueError
        If ``max_pixels`` is no whole number of at least 1.
    """
    number = isinstance(max_pixels, int | np.integer) and not isinstance(max_pixels, bool)
    if max_pixels is not None and not (number and max_pixels > 0):
        raise ValueError(f"max_pixels must be a whole number of at least 1, got {in_short(max_pixels)}")
    if isinstance(source, bytes | bytearray | memoryview):
        # A view may have gaps.
        whole = bytes(source) if isinstance(source, memoryview) else source
        return _read(io.BytesIO(whole), name or "<bytes>", max_pixels, every)
    if read := getattr(source, "read", None):  # also of temporary files, which are no io.IOBase
        name = name or str(getattr(source, "name", None) or "<file>")
        try:
            data = None if isinstance(source, io.TextIOBase) else read()
        except io.UnsupportedOperation:
            raise ImageError(f'{name}: is not open for reading; open it with mode "rb"') from None
        except (OSError, ValueError) as error:  # ValueError: it is closed
            why = reason(error) if isinstance(error, OSError) else error
            raise ImageError(f"{name}: cannot be read: {why}") from None
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ImageError(f'{name}: is open as text; open it with mode "rb"')
        return _read(io.BytesIO(data), name, max_pixels, every)
    if not isinstance(source, (str, os.PathLike)):
        raise ImageError(f"a picture is read from a path, bytes or an open file, not {type(source).__name__}")
    if not os.fspath(source):
        raise ImageError("the path is empty (a variable that is not set?)")
    name = name or visible(os.fsdecode(source))
    try:
        with open(source, "rb") as file:
            # A pipe, such as the shell's <(...), cannot go back to its beginning.
            return _read(file if file.seekable() else io.BytesIO(file.read()), name, max_pixels, every)
    except FileNotFoundError:
        raise ImageError(f"{name}: no such file; check the path") from None
    except IsADirectoryError:
        raise ImageError(f"{name}: is a folder; give a file") from None
    except OSError as error:
        raise ImageError(f"{name}: cannot be read: {reason(error)}") from None
    except ValueError as error:  # "embedded null byte"
        if isinstance(error, ZenithError):
            raise
        raise ImageError(f"{name!r}: not a usable path: {error}") from None


def _read(file: BinaryIO, name: str, max_pixels: int | None, every: bool) -> Picture:
    try:
        head = file.read(2**16)
        if not head:
            raise ImageError(f"{name}: is empty; copy or export the picture again")
        check_cost(file, head, name)
        check = partial(check_size, name=name, limit=max_pixels)
        if is_raw(file, head, name):
            pixels, metadata = develop(file, name, check)
            layout = "L" if pixels.shape[2] == 1 else "RGB"  # of a sensor without colour filters
            return Picture(pixels, layout, layout, "RAW", metadata)
        plugin, format = _identify(head, name)
        if format == "HEIF":
            pixels, metadata, notes = decode_heif(file, name, check)
            layout = LAYOUTS[pixels.shape[2]]
            return Picture(pixels, layout, layout, format, metadata, notes)
        if re.match(rb"P[123]\s", head):
            file = without_comments(file)
        reopen = partial(_open, file, plugin, format)
        with _opened(reopen, plugin, _limit(max_pixels)[0]) as image:
            first, *others = _Pages(image, reopen, file, head, name, max_pixels).pictures(every)
            return replace(first, more=tuple(others))
    except (ConfigError, ImageError, MissingDependencyError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        limit, hint = _limit(max_pixels)
        found = re.search(r"\d+ pixels", str(error))
        what = f"{found[0]} exceed" if found else "more pixels than"
        raise ImageError(f"{name}: {what} the limit of {limit} (a decompression bomb?); {hint}") from None
    except UnidentifiedImageError:
        such = " (such as float colour, or 16-bit grey with alpha)" if head[:2] in (b"II", b"MM") else ""
        raise ImageError(
            f"{name}: damaged, or of a kind that is not supported{such}; export it as RGB with 8 or 16 bits "
            "a channel"
        ) from None
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, ...
        raise ImageError(
            f"{name}: damaged or truncated picture ({_short(error)}); copy or export it again"
        ) from error


class _Pages:
    """The frames or pages of an opened file, decoded one after the other within `_opened`."""

    def __init__(
        self, image: ImageFile.ImageFile, reopen: Callable[[], ImageFile.ImageFile], file: BinaryIO,
        head: bytes, name: str, max_pixels: int | None,
    ) -> None:  # fmt: skip
        self.image, self.file, self.head, self.name, self.max_pixels = image, file, head, name, max_pixels
        self.format = "JPEG" if image.format == "MPO" else image.format
        self.lossless = image.format == "WEBP" and webp_is_lossless(file)
        self._reopen = reopen
        self._again: ImageFile.ImageFile | None = None  # opened once more, for second passes of decoding
        self._area = 0  # of the pages so far, as limits count it

    def pictures(self, every: bool) -> Sequence[Picture]:
        """The first picture, or every one; those of an animation in one layout."""
        count, trouble = _count(self.image) if every else (1, "")
        notes = self._notes(every, trouble)
        # The pages of a document differ in size, and are checked one by one.
        document = self.format == "TIFF"
        check_size(self.image.size, self.name, self.max_pixels, 1 if document else count)
        pictures = [self._page(index, count > 1, notes) for index in range(count)]
        return pictures if document else alike(pictures)

    def _notes(self, every: bool, trouble: str) -> tuple[str, ...]:
        """What of the file as a whole is not kept."""
        image, notes = self.image, []
        if trouble or (not every and has_more(image)):
            notes.append(trouble or "only the first of several pictures in the file is used")
        if image.format == "MPO":
            notes.append("further pictures in the JPEG (a preview, a second view) are not kept")
        notes += [f"{what} is not kept" for what in lost_beside(image.info.get("xmp"))]
        if image.format == "PNG" and png_colours(self.file) not in (None, _SRGB):
            notes.append("the PNG's colour space (cICP) is not kept, so it looks different")
        colours = avif_colours(self.file) if image.format == "AVIF" else None
        if colours and "icc_profile" not in image.info and not looks_like_srgb(*colours):
            notes.append("the AVIF's colour space (nclx) is not kept, so it looks different")
        return tuple(notes)

    def _page(self, index: int, several: bool, notes: tuple[str, ...]) -> Picture:
        image = self.image
        if index:
            image.seek(index)
            check_size(image.size, self.name, self.max_pixels, before=self._area)  # pages may differ
        self._area += _counted(image.size, True)
        tags = getattr(image, "tag_v2", {})
        if _TILE_WIDTH in tags and _TILE_HEIGHT in tags:  # decoded whole, however small the page
            check_size((tags[_TILE_WIDTH], tags[_TILE_HEIGHT]), self.name, self.max_pixels)
        deep = deep_colour(image) if not several or self.format == "TIFF" else None
        if kind := _in_unread_planes(image, bool(deep)):
            raise ImageError(
                f"{self.name}: {kind} in separate planes cannot be read; export it with interleaved channels"
            )
        if not deep and _is_deeper(image, self.head):
            notes = ("16-bit colour is read as 8 bits a channel", *notes)
        image.tile = deep.passes[0] if deep else image.tile
        _forget_other_palettes(image)
        sideways = tags.get(ORIENTATION) in SIDEWAYS
        image.load()
        _scale_key(image, self.head)
        metadata = self._metadata(sideways)
        frame = upright(image.copy() if several else image, metadata)
        if deep:
            frames = [frame, *(self._decoded_again(index, tile) for tile in deep.passes[1:])]
            pixels, layout = deep.pixels(frames, image.info.get("transparency"))
            picture = Picture(pixels, layout, layout, self.format, metadata, notes)
        else:
            picture = from_pil(frame, metadata, self.format, notes, self.name)
            picture = _as_tiff_means(picture, image, self.name) if self.format == "TIFF" else picture
        return replace(picture, notes=(*picture.notes, *_notes_of_values(picture, tags)))

    def _metadata(self, sideways: bool) -> dict[str, Any]:
        """Of the page that is loaded, which a TIFF's tags may have turned by 90 degrees."""
        image = self.image
        metadata = read_metadata(image, sideways=sideways)
        if image.format == "WEBP":
            metadata["lossless"] = self.lossless
        metadata |= {key: image.info[key] for key in _ANIMATION if key in image.info}
        if image.format == "GIF" and metadata.get("loop"):
            # It says how often to repeat, others how often to play; WebP has 16 bits for it too.
            metadata["loop"] = min(metadata["loop"] + 1, 2**16 - 1)
        if image.format == "AVIF" and getattr(image, "n_frames", 1) > 1:
            metadata["loop"] = 0  # as browsers play nearly all of them; Pillow does not say
        if self.format == "TIFF":
            _forget_other_pages(metadata, image)
        return metadata

    def _decoded_again(self, index: int, tile: Any) -> Image.Image:
        """The page by another pass of the decoder, for what the first leaves out of a deep one."""
        self._again = again = self._again or self._reopen()
        again.seek(index)
        again.tile = tile
        _forget_other_palettes(again)
        again.load()
        return upright(again, {})


def _in_unread_planes(image: Image.Image, deep: bool) -> str:
    """What a TIFF of separate planes holds that Pillow fails at or takes for something else; "" of others."""
    tags = getattr(image, "tag_v2", {})
    if tags.get(PLANAR) != 2:
        return ""
    if image.mode in ("LA", "La"):  # of which libtiff gives it the grey alone
        return "grey and alpha"
    raw = any(tile.codec_name == "raw" for tile in getattr(image, "tile", ()))
    if image.mode.startswith("RGB") and not deep and (raw or image.mode != "RGB"):
        samples = tags.get(_SAMPLES, 1)
        if samples > 4:
            return "more than four channels"
        if raw and samples == 4 and in_planes(image):
            return "four channels of 16 bits"
        if raw and 1 in np.atleast_1d(tags.get(_EXTRA_SAMPLES, ())):
            return "colours multiplied by alpha"
    # Bytes of 16 bits, uncompressed, become pixels of their own.
    return "CMYK of 16 bits" if image.mode == "CMYK" and in_planes(image) and raw and not deep else ""


def _as_tiff_means(picture: Picture, image: Image.Image, name: str) -> Picture:
    """What Pillow leaves to do of a TIFF: 0 may stand for white, 12 bits are not 16, bytes may have signs."""
    tags = getattr(image, "tag_v2", {})
    signed = 2 in np.atleast_1d(tags.get(_SAMPLE_FORMAT, 1)) and picture.pixels.dtype == np.uint8
    if signed and picture.pixels.max() > 127:
        raise ImageError(f"{name}: has values below 0 (signed bytes); scale them to 0..255")
    if tags.get(_PHOTOMETRIC) == 0 and (image.mode.startswith("I") or image.mode == "F"):  # others it inverts
        picture = picture.with_pixels(full_scale(picture.pixels.dtype) - picture.pixels)
    if tags.get(_BITS) == (12,) and image.mode.startswith("I;16"):  # which it does not make 16 bits
        picture = picture.with_pixels(to_16_bits(picture.pixels, 4095))
    if tags.get(_BITS) == (16,) and picture.mode == "I":  # signed, of which none is below 0
        picture = replace(picture, mode="I;16")
    return picture


def _notes_of_values(picture: Picture, tags: Mapping[int, Any]) -> Iterator[str]:
    """What of a page's channels is not kept, by a TIFF's tags, and whether its values are of few bits."""
    more = tags.get(_SAMPLES, 1) - picture.pixels.shape[2]
    if more > 0:
        yield f"{more} further channel{'s' if more > 1 else ''} of the TIFF cannot be kept"
    if note := dim_note(picture.pixels, picture.layout):
        yield note


def dim_note(pixels: NDArray[Any], layout: str) -> str:
    """What to say where 16-bit values (..., C) look like those of fewer bits, as instruments write them."""
    if pixels.dtype != np.uint16:
        return ""
    most = int(pixels[..., : CHANNELS[layout] - layout.endswith("A")].max())  # an idle alpha is full
    if not 0 < most < 2**12:
        return ""
    bits = most.bit_length()
    return (
        f"its values end at {most} of 65535: if these are {bits} bits, multiply them by {2 ** (16 - bits)} "
        "first, or they are taken for nearly black, and their noise for faint"
    )


def _open(file: BinaryIO, plugin: str, format: str) -> ImageFile.ImageFile:
    """The image of a file, its header read and (but for an icon's) no pixel decoded.

    `Image.open` would look at Pillow's limit, and warn or refuse before it is known whether it has to be
    raised.
    """
    file.seek(0)
    import_module(f"PIL.{plugin}ImagePlugin")
    try:
        return Image.OPEN[format][0](file, "")
    except (SyntaxError, IndexError, TypeError, struct.error):
        raise UnidentifiedImageError from None


def _identify(head: bytes, name: str) -> tuple[str, str]:
    for pattern, plugin, format in _SIGNATURES:
        if re.match(pattern, head, re.DOTALL):
            return plugin, format
    if head.startswith((b"\xff\x0a", b"\0\0\0\x0cJXL ")):
        raise ImageError(f"{name}: JPEG XL is not supported; convert it to JPEG or PNG first")
    raise ImageError(f"{name}: not a picture of a supported format (PNG, JPEG, WebP, TIFF, BMP, GIF, PNM, "
                     "JPEG 2000, AVIF, HEIC); convert it first")  # fmt: skip


def _limit(asked: int | None) -> tuple[int, str]:
    """The limit in pixels, and what to do about a larger picture."""
    if asked is not None:
        return asked, "use a smaller picture"
    text = os.environ.get("ZENITH_MAX_PIXELS", "").strip() or str(MAX_PIXELS)
    if not text.isdecimal() or len(text) > 18 or not int(text):
        raise ConfigError(f"ZENITH_MAX_PIXELS must be a positive number of pixels, got {in_short(text)}")
    return int(text), "set ZENITH_MAX_PIXELS to allow it"


def check_size(
    size: tuple[int, int], name: str, limit: int | None = None, count: int = 1, before: int = 0
) -> None:
    """Refuse pictures of more pixels than ``limit``, by default `ZENITH_MAX_PIXELS`.

    Parameters
    ----------
    size : width and height.
    name : what messages call the file.
    count : pictures of that size.
    before : pixels of others that count too.

    Raises
    ------
    ImageError
        If there are too many, or none.
    """
    limit, hint = _limit(limit)
    width, height = size
    if width < 1 or height < 1:
        raise ImageError(f"{name}: has no pixels ({width} x {height})")
    one = _counted(size, count > 1 or before > 0)
    if before + count * one > limit:
        what = f"{f'{count} times ' if count > 1 else ''}{width} x {height} pixels"
        what += f", which count as {one}," if one > width * height else ""
        what += f" after {before} on earlier pages" if before else ""
        raise ImageError(f"{name}: {what} exceed the limit of {limit} (a decompression bomb?); {hint}")


def _counted(size: tuple[int, int], several: bool) -> int:
    """The pixels that a frame (width, height) counts as towards a limit, see `LEAST_SIDE`."""
    if max(size) <= LEAST_SIDE and not several:
        return size[0] * size[1]
    return max(size[0], LEAST_SIDE) * max(size[1], LEAST_SIDE)


def _is_deeper(image: Image.Image, head: bytes) -> bool:
    """Whether a file has more than the 8 bits a channel that Pillow gives."""
    if image.mode not in ("L", "LA", "RGB", "RGBA", "CMYK"):
        return False
    if image.format == "JPEG2000":  # the number of bits of the first channel, in its marker SIZ
        at = head.find(b"\xff\x4f\xff\x51") + 42
        return at >= 42 and len(head) > at and head[at] & 127 > 7
    if image.format == "AVIF":  # the bit high_bitdepth in the codec's configuration
        at = head.find(b"av1C") + 6
        return at >= 6 and len(head) > at and bool(head[at] & 64)
    return any(
        ";16" in str(tile[3])
        or (tile[0].startswith("ppm") and tile[3] and tile[3][-1] > 255)
        or in_planes(image)
        for tile in getattr(image, "tile", ())
    )


def _scale_key(image: Image.Image, head: bytes) -> None:
    """Pillow makes 8 bits of a PNG's grey of 2 or 4, but not of the value that is transparent."""
    depth, key = head[24:25], image.info.get("transparency")
    if image.format == "PNG" and image.mode == "L" and depth in (b"\2", b"\4") and isinstance(key, int):
        peak = 2 ** depth[0] - 1
        image.info["transparency"] = key * 255 // peak if key <= peak else key


# Tags of a TIFF.
_BITS, _PHOTOMETRIC, _SAMPLES, _TILE_WIDTH, _TILE_HEIGHT = 258, 262, 277, 322, 323
_EXTRA_SAMPLES, _SAMPLE_FORMAT = 338, 339
_SRGB = b"\1\x0d"  # as cICP says it: primaries and transfer function
_ANIMATION = ("duration", "loop", "default_image")
# Previews of a photograph (MPO) and layers (PSD) are no pictures of their own.
_SEVERAL = ("AVIF", "GIF", "PNG", "TIFF", "WEBP")


def has_more(image: Image.Image) -> bool:
    """Whether an opened file has further frames or pages."""
    return image.format in _SEVERAL and bool(getattr(image, "is_animated", False))


def _count(image: Image.Image) -> tuple[int, str]:
    """Pictures in the file, and what is wrong with their list."""
    if not has_more(image):
        return 1, ""
    try:
        return int(getattr(image, "n_frames", 1)), ""
    except Exception:  # a chain of pages that leads nowhere; the first page may be whole
        image.seek(0)
        return 1, "only the first of several pictures is used, since the list of them is damaged"


def _forget_other_palettes(image: Image.Image) -> None:
    """Pillow leaves the palette of another page of a TIFF, and gives the pixels of this one its colours."""
    if image.format == "TIFF" and image.mode not in ("P", "PA"):
        image.palette = None


def _forget_other_pages(metadata: dict[str, Any], image: Image.Image) -> None:
    """Pillow leaves the profile and resolution of another page, or 1 dpi, where a page has none."""
    tags = getattr(image, "tag_v2", {})
    for key, tag in (("icc_profile", 34675), ("dpi", 282)):
        if tag not in tags:
            metadata.pop(key, None)


def alike(pictures: Sequence[Picture]) -> Sequence[Picture]:
    """Frames of an animation in one layout: Pillow gives each the mode that it needs."""
    layouts = {picture.layout for picture in pictures}
    if len(layouts) == 1:
        return pictures
    colour = not layouts <= {"L", "LA"}  # inks, which have nothing in common with the others, become RGB
    wanted = ("RGB" if colour else "L") + ("A" if any(layout.endswith("A") for layout in layouts) else "")

    def convert(picture: Picture) -> Picture:
        parts = to_rgb(picture.pixels[None], picture.layout)[0] if colour else picture.pixels[..., :1]
        if wanted.endswith("A"):
            has = picture.layout.endswith("A")
            full = np.full((*parts.shape[:2], 1), full_scale(parts.dtype), parts.dtype)
            parts = np.concatenate([parts, picture.pixels[..., -1:] if has else full], axis=2)
        return replace(picture, pixels=parts, layout=wanted)

    return [convert(picture) for picture in pictures]


def _short(error: Exception) -> str:
    text = reason(error) if isinstance(error, OSError) else str(error) or type(error).__name__
    if error.args and isinstance(error.args[0], bytes):  # rawpy's
        text = error.args[0].decode("ascii", "replace")
    return one_line(text)[:120]


def from_pil(
    image: Image.Image,
    metadata: dict[str, Any] | None = None,
    format: str | None = None,
    notes: tuple[str, ...] = (),
    name: str = "picture",
) -> Picture:
    """A loaded Pillow image as a `Picture`, with the ``format`` of a file; orientation is not applied here.

    Raises
    ------
    ImageError
        For a mode that has no meaning here (LAB, 32-bit integers beyond 16 bits, ...).
    """
    check_size(image.size, name, sys.maxsize)
    mode = image.mode
    keyed = image.info.get("transparency") is not None
    if mode in ("P", "PA"):
        alpha = mode == "PA" or keyed or (image.palette is not None and image.palette.mode == "RGBA")
        image = image.convert("RGBA" if alpha else "RGB")
    elif mode in ("1", "L", "RGB") and keyed:  # one colour stands for transparent
        image = image.convert("RGBA")
        image = image if mode == "RGB" else image.convert("LA")
    elif mode in _CONVERTED:
        image = image.convert(_CONVERTED[mode])
    if image.mode in CHANNELS:
        pixels, layout = np.asarray(image), image.mode
    elif mode.startswith("I;16"):
        pixels, layout = np.asarray(image).astype(np.uint16), "L"
    elif mode == "I":
        wide = np.asarray(image)
        if wide.min() < 0 or wide.max() > 65535:
            # Pillow takes a TIFF's unsigned integers beyond 31 bits for negative ones.
            below = "values below 0 (signed integers), or integers beyond 31 bits"
            what = below if wide.min() < 0 else "integers beyond 16 bits"
            raise ImageError(f"{name}: has {what}, {wide.min()} to {wide.max()}; scale them to 0..65535")
        pixels, layout = wide.astype(np.uint16), "L"
    elif mode == "F":
        pixels, layout = check_floats(np.asarray(image), name), "L"
        if pixels.min() < 0 or pixels.max() > 1:
            notes = (*notes, "values below 0 and above 1 come out as 0 and 1")
    else:
        raise ImageError(f"{name}: Pillow mode {mode} is not supported; convert it to RGB first")
    if keyed and layout == "L" and pixels.dtype == np.uint16:
        if format:
            shown = np.where(pixels == image.info["transparency"], np.uint16(0), np.uint16(65535))
            pixels, layout, mode = np.stack([pixels, shown], axis=-1), "LA", "LA"
        else:  # what a Pillow image becomes is one again, which has no mode for it
            notes = (*notes, "the transparent grey value of a 16-bit picture is dropped")
    return Picture(np.atleast_3d(pixels), layout, mode, format, metadata or {}, notes)


_CONVERTED = {"1": "L", "La": "LA", "RGBa": "RGBA", "RGBX": "RGB", "YCbCr": "RGB", "HSV": "RGB"}


def to_pil(picture: Picture) -> Image.Image:
    """The picture as a Pillow image; modes I, I;16 and F come back as they were.

    Pillow has no mode for colour or alpha of more than 8 bits: such pictures are rounded to 8.
    """
    pixels = picture.pixels
    if picture.layout == "L":
        if pixels.dtype == np.float32:
            return Image.fromarray(np.ascontiguousarray(pixels[:, :, 0]))
        if pixels.dtype == np.uint16:
            grey = np.ascontiguousarray(pixels[:, :, 0])
            return Image.fromarray(grey.astype(np.int32) if picture.mode == "I" else grey)
        pixels = pixels[:, :, 0]
    pixels = np.ascontiguousarray(to_8_bits(pixels))
    if picture.layout == "CMYK":
        return Image.frombytes("CMYK", (picture.width, picture.height), pixels)
    return Image.fromarray(pixels)  # 2-D: L, otherwise LA, RGB or RGBA by the number of channels


def check_floats(pixels: NDArray, name: str) -> NDArray:
    """float32 pixels, refused where they are not finite or plainly not in [0, 1].

    Noise may leave [0, 1] a little, 0..255 does so plainly.
    """
    pixels = np.asarray(pixels, np.float32)
    if pixels.size:
        low, high = float(pixels.min()), float(pixels.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ImageError(f"{name}: has values that are not finite; replace them first")
        if low < -6 or high > 7:  # 0..1 with the strongest noise that a level can be of
            raise ImageError(
                f"{name}: float pixels must be in [0, 1], got {low:g} to {high:g}; scale them first"
            )
    return pixels


def check_picture(picture: Any) -> None:
    """Refuse what is no `Picture`, or one whose pixels or metadata, on any page, are not as it says they are.

    Raises
    ------
    ImageError
        If so.
    """
    if not isinstance(picture, Picture):
        raise ImageError(f"this takes a Picture, as read_picture makes them, not {type(picture).__name__}")
    try:
        check_layout(picture.pixels, picture.layout, "H, W")
    except ValueError as error:
        raise ImageError(f"a Picture's {error}; convert it first") from None
    if picture.pixels.dtype == np.float32:
        check_floats(picture.pixels, "picture")
    check_metadata(picture.metadata)
    for other in picture.more:
        check_picture(other)


def to_8_bits(pixels: NDArray) -> NDArray:
    """uint8 pixels, rounded to nearest; floats are clipped to [0, 1] first."""
    if pixels.dtype == np.uint16:
        return ((pixels.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
    if pixels.dtype == np.float32:
        return np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    return pixels
