"""Pictures to files: each format with what it can hold, written whole or not at all."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib import import_module
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from PIL import ExifTags, Image

from .batches import as_picture, full_scale
from .deep_colour import is_deep, two_bytes_wide, write_netpbm, write_png
from .errors import FormatError, OutputError, in_short
from .files import as_path, atomic_writer, reason
from .heif import HEIF_SUFFIXES
from .image_bytes import bmp_with_alpha, join_tiffs, widen_tiff
from .image_metadata import (
    EXIF_BLOCK,
    GPS_BLOCK,
    INTEROPERABILITY,
    IPTC,
    ORIENTATION,
    keep_letters,
    layout_of_pixels,
    upright,
    without_orientation,
)
from .images import Picture, alike, check_picture, to_8_bits, to_pil


class _Page(NamedTuple):
    """One picture of a file on its way there.

    Attributes
    ----------
    picture : what it is.
    image : it as Pillow writes it in a format; for `_stored_deep` it stands for the pixels.
    options : how to save it.
    """

    picture: Picture
    image: Image.Image
    options: dict[str, Any]


def _save(spec: _Format, file: BinaryIO, pages: Sequence[_Page]) -> None:
    """Pillow's way, in which the options of the first page are told the others."""
    first = pages[0]
    first.image.save(file, spec.name, **first.options)


def _save_from_memory(spec: _Format, file: BinaryIO, pages: Sequence[_Page]) -> None:
    """For OpenJPEG, which goes on for ever where a file has no room."""
    file.write(_saved(spec, pages[0]))


def _save_png(spec: _Format, file: BinaryIO, pages: Sequence[_Page]) -> None:
    picture, _, options = pages[0]
    if _stored_deep(picture, spec):
        write_png(file, picture.pixels, picture.layout, options)
    else:
        _save(spec, file, pages)


def _save_netpbm(spec: _Format, file: BinaryIO, pages: Sequence[_Page]) -> None:
    if _stored_deep(pages[0].picture, spec):
        write_netpbm(file, pages[0].picture.pixels)
    else:
        _save(spec, file, pages)


def _save_tiff(spec: _Format, file: BinaryIO, pages: Sequence[_Page]) -> None:
    if len(pages) == 1 and not _stored_deep(pages[0].picture, spec):
        _save(spec, file, pages)
        return
    tiffs = [bytearray(_saved(spec, page)) for page in pages]
    for tiff, page in zip(tiffs, pages, strict=True):
        if _stored_deep(page.picture, spec):
            widen_tiff(tiff)
    file.write(join_tiffs(tiffs))


def _save_bmp(spec: _Format, file: BinaryIO, pages: Sequence[_Page]) -> None:
    if pages[0].image.mode == "RGBA":
        file.write(bmp_with_alpha(_saved(spec, pages[0])))
    else:
        _save(spec, file, pages)


def _saved(spec: _Format, page: _Page) -> bytes:
    buffer = io.BytesIO()
    page.image.save(buffer, spec.name, **page.options)
    return buffer.getvalue()


# What Pillow's writers take in another way than as an option of its name: each of these changes the options,
# and returns notes about what is lost.


_MOST_DPI = 2**16 - 1  # of a JPEG
_LONG_TEXT = 1000  # bytes, from which on a PNG's text is compressed
_DAMAGED = "the EXIF block is damaged and is dropped"


def _as_they_are(options: dict[str, Any], picture: Picture) -> tuple[str, ...]:
    return ()


def _jpeg_options(options: dict[str, Any], picture: Picture) -> tuple[str, ...]:
    notes = []
    for key in ("exif", "xmp", "iptc"):  # a segment holds 64 KiB; what other formats carried may be longer
        if len(options.get(key, b"")) > 65000:
            del options[key]
            notes.append(f"{key.upper()} is too long for a JPEG")
    dpi = options.get("dpi", (0, 0))
    if any(dpi) and not all(1 <= round(number) <= _MOST_DPI for number in dpi):
        del options["dpi"]
        notes.append("a JPEG cannot hold the resolution")
    if iptc := options.pop("iptc", b""):
        options["extra"] = _photoshop(IPTC, iptc)
    return tuple(notes)


def _png_options(options: dict[str, Any], picture: Picture) -> tuple[str, ...]:
    from PIL.PngImagePlugin import MAX_TEXT_CHUNK, PngInfo

    notes: tuple[str, ...] = ()
    if len(options.get("icc_profile", b"")) > MAX_TEXT_CHUNK:  # Pillow would not open the file
        del options["icc_profile"]
        if _has_profile(picture):
            notes = ("the ICC profile is too long for a PNG, so the colours look different",)
    gamma, texts = float(picture.metadata.get("gamma", 0)), options.pop("text", {})
    if "xmp" in options or gamma or texts:
        chunks = PngInfo()
        if gamma:
            chunks.add(b"gAMA", struct.pack(">I", round(gamma * 100_000)))
        if "xmp" in options:
            chunks.add_itxt("XML:com.adobe.xmp", options.pop("xmp").decode("utf-8", "replace"))
        for key, text in texts.items():
            # Readers (Pillow) refuse what becomes longer than this, and not what is so in the file.
            chunks.add_text(key, text, zip=_LONG_TEXT < len(text.encode()) <= MAX_TEXT_CHUNK)
        options["pnginfo"] = chunks
    return notes


def _tiff_options(options: dict[str, Any], picture: Picture) -> tuple[str, ...]:
    if not {"exif", "xmp"} & set(options):
        return ()
    notes: tuple[str, ...] = ()
    tags: Any = {}
    if "exif" in options:
        options["compression"] = "raw"  # the compressing writer (libtiff) cannot take EXIF blocks
        tags = Image.Exif()
        try:
            tags.load(options.pop("exif"))
            for tag in _STRUCTURE & set(tags):  # how that file's pixels lay in it
                del tags[tag]
            if layout_of_pixels(tags.get(ExifTags.Base.ImageDescription)):
                del tags[ExifTags.Base.ImageDescription]
            for block in (tags, tags.get_ifd(EXIF_BLOCK), tags.get_ifd(GPS_BLOCK)):
                keep_letters(block)
            tags.get_ifd(EXIF_BLOCK).pop(INTEROPERABILITY, None)
            tags.tobytes()
        except Exception:  # Pillow's reader and writer of tags raise what they happen to meet
            tags, notes = {}, (_DAMAGED,)
    if "xmp" in options:
        tags[_TIFF_XMP] = options.pop("xmp")
    options["tiffinfo"] = tags  # with these Pillow ignores an option exif
    return notes


def _avif_options(options: dict[str, Any], picture: Picture) -> tuple[str, ...]:
    if exif := without_orientation(options.pop("exif", b"")):
        tags = Image.Exif()
        try:  # as the writer does it, which writes anew what says how the picture lies
            tags.load(exif)
            if ORIENTATION in tags:
                keep_letters(tags)
                tags.tobytes()
        except Exception:
            return (_DAMAGED,)
        options["exif"] = tags if ORIENTATION in tags else exif
    return ()


@dataclass(frozen=True)
class _Format:
    """What a format can hold, and how it is written.

    Attributes
    ----------
    modes : Pillow modes that it stores as they are, without surprises.
    options : of Pillow's writer.
    keeps : metadata that this takes.
    deep : layouts that it stores with 16 bits a channel, beside I;16.
    several : whether it holds several pictures.
    adapt : what makes options of metadata.
    save : what writes pages to a file.
    """

    name: str
    modes: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    keeps: tuple[str, ...] = ()
    deep: tuple[str, ...] = ()
    several: bool = False
    adapt: Callable[[dict[str, Any], Picture], tuple[str, ...]] = _as_they_are
    save: Callable[[_Format, BinaryIO, Sequence[_Page]], None] = _save


_ALL = ("icc_profile", "exif", "xmp", "dpi")
_DEEP = ("L", "LA", "RGB", "RGBA", "I;16")

_FORMATS = {
    suffix: spec
    for suffixes, spec in {
        ".png": _Format(
            "PNG", _DEEP, {"compress_level": 4}, (*_ALL, "text"), ("LA", "RGB", "RGBA"),
            several=True, adapt=_png_options, save=_save_png,
        ),
        ".jpg .jpeg .jpe .jfif": _Format(
            "JPEG", ("L", "RGB", "CMYK"), {"quality": 95, "subsampling": "4:4:4"},
            (*_ALL, "iptc", "comment"), adapt=_jpeg_options,
        ),
        ".webp": _Format(
            "WEBP", ("RGB", "RGBA"), {"quality": 95, "exact": True}, _ALL[:3], several=True
        ),
        ".tif .tiff": _Format(
            "TIFF", (*_DEEP, "CMYK", "I", "F"), {"compression": "tiff_adobe_deflate"}, _ALL, ("RGB", "RGBA"),
            several=True, adapt=_tiff_options, save=_save_tiff,
        ),
        ".bmp": _Format("BMP", ("L", "RGB", "RGBA"), {}, ("dpi",), save=_save_bmp),
        ".ppm .pgm .pnm": _Format("PPM", ("L", "RGB", "I;16"), deep=("RGB",), save=_save_netpbm),
        ".jp2": _Format("JPEG2000", _DEEP, save=_save_from_memory),
        ".avif": _Format(
            "AVIF", ("RGB", "RGBA"), {"quality": 90, "subsampling": "4:4:4"}, _ALL[:3], several=True,
            adapt=_avif_options,
        ),
    }.items()
    for suffix in suffixes.split()
}  # fmt: skip

#: Suffixes that pictures can be written with.
WRITABLE_SUFFIXES = frozenset(_FORMATS)

_PROFILED = {
    b"GRAY": ("L", "LA", "I;16", "I", "F"),
    b"RGB ": ("RGB", "RGBA"),
    b"CMYK": ("CMYK",),
}

_MOST_TIMES = {"WEBP": 2**16 - 1}  # that an animation can be told to play
JPEG_SIDE = 65500  # libjpeg's limit
#: Tags of a TIFF that say how its pixels are stored, not what they show; some cameras have them in EXIF.
_STRUCTURE = frozenset({
    0xFE, 0xFF, *range(0x100, 0x104), 0x106, 0x107, 0x108, 0x109, 0x10A, 0x111, *range(0x115, 0x11A), 0x11C,
    0x122, 0x123, 0x124, 0x125, 0x12D, 0x13D, 0x140, *range(0x141, 0x146), 0x14A, 0x152, 0x153, 0x154, 0x155,
    0x156, 0x15B, *range(0x200, 0x20B), *range(0x211, 0x215), 0x8773,
})  # fmt: skip
_NO_TAGS = b"Exif\0\0II*\0\x08\0\0\0" + bytes(6)  # an EXIF block
_TIFF_XMP = 700  # the tag that holds it
_PLUGINS = {"WEBP": "WebP", "TIFF": "Tiff", "JPEG2000": "Jpeg2K", "AVIF": "Avif"}


def write_format(suffix: str) -> str | None:
    """The format that a file suffix (".png", any case) is written in; None if it cannot be."""
    spec = _FORMATS.get(suffix.lower())
    return spec.name if spec else None


def holds_several(suffix: str) -> bool:
    """Whether the format of a file suffix holds several frames or pages."""
    spec = _FORMATS.get(suffix.lower())
    return spec is not None and spec.several


def suffix_for(format: str | None) -> str:
    """The suffix to write a picture of this format with; where it cannot be written, that of its stand-in."""
    return next((suffix for suffix, spec in _FORMATS.items() if spec.name == format), stand_in(f".{format}"))


def stand_in(suffix: str) -> str:
    """The suffix of what a file becomes whose own cannot be written: ".jpg" of HEIC, ".png" of all others."""
    return ".jpg" if suffix.lower() in HEIF_SUFFIXES else ".png"


def write_picture(
    picture: Any, path: str | os.PathLike[str], quality: int | None = None, overwrite: bool = True
) -> tuple[str, ...]:
    """Write a picture, atomically, in the format of the path's suffix.

    Parameters
    ----------
    picture : a `Picture`, or one picture as an array, a tensor or a Pillow image, as `Autoencoder.encode`
        takes them; uint16 keeps 16 bits where the format has them.
    quality : 1..100 for JPEG, WebP (then lossy) and AVIF; other formats lose nothing anyway.
    overwrite : whether a file of that name is replaced.

    Returns
    -------
    Notes about what the format could not keep (such as 16 bits in a JPEG).

    Raises
    ------
    OutputError
        If the suffix is unknown, or the format cannot hold the picture, as JPEG an alpha channel (both are a
        FormatError), or the file cannot be written (an ExistsError, if it is not to be overwritten). Then
        nothing was replaced.
    ImageError
        If it is no picture, or several, or a `Picture` whose pixels are not what its layout says.
    ValueError
        If ``path`` is none, or ``quality`` no whole number from 1 to 100.
    """
    path = as_path(path)
    spec = _format(path.suffix, str(path))  # before there is a file
    if isinstance(picture, Image.Image) and "exif" not in spec.keeps:  # where it says how the picture lies
        picture = upright(picture, {})
    read = isinstance(picture, Picture)  # then its notes are of what was read, and told
    picture = as_picture(picture)
    with atomic_writer(path, overwrite) as file:
        notes = encode_picture(picture, file, path.suffix, str(path), quality)
    return notes if read else (*picture.notes, *notes)


def _format(suffix: str, name: str) -> _Format:
    if suffix.lower() not in _FORMATS:
        what = suffix or "a file without suffix"
        raise FormatError(f"{name}: cannot write {what}; use one of {' '.join(_FORMATS)}")
    return _FORMATS[suffix.lower()]


def encode_picture(
    picture: Picture, file: BinaryIO, suffix: str, name: str = "<stdout>", quality: int | None = None
) -> tuple[str, ...]:
    """Encode into a binary file in the format of ``suffix``; otherwise like `write_picture`."""
    whole = isinstance(quality, int | np.integer) and not isinstance(quality, bool)
    if quality is not None and not (whole and 1 <= quality <= 100):
        raise ValueError(f"quality must be a whole number from 1 to 100, got {in_short(quality)}")
    spec = _format(suffix, name)
    check_picture(picture)
    _check_held(picture, spec, name)
    if spec.name in _PLUGINS:
        import_module(f"PIL.{_PLUGINS[spec.name]}ImagePlugin")
    picture, lost = _as_one_file(picture, spec)
    prepared = [_prepare(one, spec, quality) for one in picture.frames]
    pages = [page for page, _ in prepared]
    notes = (*dict.fromkeys(note for _, of_page in prepared for note in of_page), *lost)
    if picture.more and spec.name != "TIFF":
        notes = (*notes, *_animate(pages, picture, spec.name))
    try:
        spec.save(spec, file, pages)
    except OSError as error:
        raise OutputError(f"{name}: cannot write: {reason(error)}; nothing was replaced") from None
    except (
        KeyError, ValueError, RuntimeError, TypeError, AttributeError, OverflowError, SyntaxError,
        struct.error,
    ) as error:  # fmt: skip
        raise FormatError(
            f"{name}: cannot be written as {spec.name} ({str(error)[:120]}); try .png"
        ) from None
    return notes


def fitting(picture: Picture, suffix: str, name: str = "<stdout>") -> Picture:
    """What a file can hold of a picture, asked before there is work in it.

    Frames or pages that the format of ``suffix`` cannot hold are left out, and a note says so.

    Raises
    ------
    FormatError
        If the format cannot hold the picture, as JPEG an alpha channel.
    """
    spec = _format(suffix, name)
    _check_held(picture, spec, name)
    picture, lost = _held_frames(picture, spec)
    return replace(picture, notes=(*picture.notes, *lost))


def _check_held(picture: Picture, spec: _Format, name: str) -> None:
    if spec.name == "JPEG" and max(picture.height, picture.width) > JPEG_SIDE:
        raise FormatError(f"{name}: a JPEG holds at most {JPEG_SIDE} pixels a side; choose .png or .tif")
    if "RGBA" not in spec.modes and picture.layout in ("LA", "RGBA") and not _has_idle_alpha(picture):
        also = f" (the picture is of a {picture.format} file)" if picture.format else ""
        raise FormatError(f"{name}: {spec.name} cannot hold transparency; choose .png, .webp or .tif{also}")


def _held_frames(picture: Picture, spec: _Format) -> tuple[Picture, tuple[str, ...]]:
    """A picture with as many frames or pages as a file of the format holds, and notes about the others."""
    if not picture.more or not (why := _holds_one(picture, spec)):
        return picture, ()
    note = f"{spec.name} holds {why}, so it is the first of {len(picture.frames)}"
    return replace(picture, more=()), (note,)


def _as_one_file(picture: Picture, spec: _Format) -> tuple[Picture, tuple[str, ...]]:
    """The pictures that a file of a format can hold together, and notes about what is lost."""
    if picture.more and picture.metadata.get("default_image") and spec.name in ("WEBP", "AVIF"):
        # Of an animated PNG the picture for programs without animations is no frame.
        first, *frames = picture.more
        picture = replace(first, metadata=picture.metadata | first.metadata, more=tuple(frames))
    if spec.name == "TIFF" and any("exif" in one.metadata for one in picture.frames):
        # Pages with EXIF are not compressed, and programs take pages that differ for several documents.
        picture = picture.map(lambda one: replace(one, metadata={"exif": _NO_TAGS} | one.metadata))
    picture, notes = _held_frames(picture, spec)
    if picture.more and spec.name != "TIFF":  # an animation has one layout
        first, *others = alike(picture.frames)
        picture = replace(first, more=tuple(others))
    if "RGBA" not in spec.modes and _has_idle_alpha(picture):
        layout, opaque = picture.layout[:-1], np.ascontiguousarray(picture.pixels[..., :-1])
        picture = replace(picture, pixels=opaque, layout=layout, mode=layout)
        notes = (*notes, f"{spec.name} has no alpha channel; that of the picture hides nothing")
    return picture, notes


def _animate(pages: Sequence[_Page], picture: Picture, format: str) -> tuple[str, ...]:
    """Tell the first page of the others, and how they follow; notes about what is lost."""
    options = pages[0].options
    options |= {"save_all": True, "append_images": [page.image for page in pages[1:]]}
    options |= _timing(picture, format)
    times = options.pop("loop") if format == "AVIF" else 0
    if picture.format == "TIFF":
        notes: tuple[str, ...] = (f"the pages are frames of an animation in {format}",)
        lossy = format == "WEBP" and not options.get("lossless")
        if format != "AVIF" and (lossy or _repeats(pages)):
            notes = (*notes, f"{'nearly ' * lossy}equal pages in a row are one frame in {format}")
        return notes
    if times:
        return (f"AVIF plays the animation over and over, not {times} time{'s' * (times > 1)}",)
    return ()


def _repeats(pages: Sequence[_Page]) -> bool:
    """Whether a page is equal to the one before it."""
    prints = (sha256(page.image.tobytes()).digest() for page in pages)
    return any(a == b for a, b in pairwise(prints))


def _prepare(picture: Picture, spec: _Format, quality: int | None) -> tuple[_Page, tuple[str, ...]]:
    """One picture as a format can hold it, and notes about what is lost."""
    image, notes = _fit(picture, spec)
    metadata, options = picture.metadata, dict(spec.options)
    options |= {key: metadata[key] for key in spec.keeps if key in metadata}
    if not describes(options.get("icc_profile", b""), image.mode):
        del options["icc_profile"]
        notes = (*notes, "the ICC profile does not describe these colours and is dropped")
    if "icc_profile" not in spec.keeps and _has_profile(picture):
        notes = (*notes, f"{spec.name} cannot hold the ICC profile, so the colours look different")
    if quality is not None and "quality" in options:
        options["quality"] = int(quality)
        if quality < 90 and "subsampling" in options:  # a small file has better uses for its bytes
            options["subsampling"] = "4:2:0"
    elif spec.name == "WEBP" and (metadata.get("lossless") or picture.format not in ("WEBP", "JPEG")):
        options["lossless"] = True
    if "iptc" in metadata and "iptc" not in spec.keeps:
        notes = (*notes, f"IPTC captions are kept in a JPEG alone, not in {spec.name}")
    gamma = float(metadata.get("gamma", 0))
    if gamma and spec.name != "PNG":
        notes = (
            *notes,
            f"{spec.name} cannot hold the PNG's gamma of {gamma:g}, so it looks different",
        )
    notes = (*notes, *spec.adapt(options, picture))
    return _Page(picture, image, options), notes


def _photoshop(number: int, data: bytes) -> bytes:
    """A JPEG's segment with one of Photoshop's resources."""
    resource = b"8BIM" + struct.pack(">H2xI", number, len(data)) + data + bytes(len(data) % 2)
    segment = b"Photoshop 3.0\0" + resource
    return b"\xff\xed" + struct.pack(">H", 2 + len(segment)) + segment


def describes(profile: bytes, mode: str) -> bool:
    """Whether an ICC profile is about the colours of a Pillow mode; its bytes 16 to 19 name them."""
    modes = _PROFILED.get(profile[16:20])
    return modes is None or mode in modes


def _is_srgb(profile: bytes) -> bool:
    """Whether an ICC profile describes what programs assume without one; it says so in its description."""

    def says(word: str) -> bool:
        return any(word.encode(encoding) in profile for encoding in ("ascii", "utf-16-be"))

    return says("sRGB") and not says("inear")  # "Linear sRGB" has its primaries alone


def _has_profile(picture: Picture) -> bool:
    """Whether a picture has an ICC profile without which it looks different."""
    profile = picture.metadata.get("icc_profile", b"")
    return bool(profile) and not _is_srgb(profile)


def changes_colours(picture: Picture) -> bool:
    """Whether a picture looks different without its ICC profile or gamma."""
    return "gamma" in picture.metadata or _has_profile(picture)


def _holds_one(picture: Picture, spec: _Format) -> str:
    """Why a format cannot hold all pictures of a file; empty if it can."""
    if spec.name == "TIFF":
        return ""
    if not spec.several:
        return "one picture"
    pictures = picture.frames
    if len({(one.height, one.width) for one in pictures}) > 1:
        return "pictures of one size"
    if spec.name == "PNG" and any(one.pixels.dtype == np.uint16 for one in pictures):
        return "one picture of 16 bits"  # its animations compare frames at 8 bits
    return ""


def _timing(picture: Picture, format: str) -> dict[str, Any]:
    frames = picture.frames
    poster = format == "PNG" and bool(picture.metadata.get("default_image"))  # no frame of the animation
    timing = {
        "duration": [round(frame.metadata.get("duration") or 100) for frame in frames[poster:]],
        "loop": min(picture.metadata.get("loop", 1), _MOST_TIMES.get(format, 2**32 - 1)),
    }
    return timing | ({"default_image": True} if poster else {})


def _has_idle_alpha(picture: Picture) -> bool:
    """Whether a picture has an alpha channel that is opaque everywhere."""
    opaque = full_scale(picture.pixels.dtype)
    return picture.layout in ("LA", "RGBA") and bool((picture.pixels[..., -1] >= opaque).all())


def _stored_deep(picture: Picture, spec: _Format) -> bool:
    """Whether a picture is written with 16 bits a channel, for which Pillow has no mode."""
    layout = "RGBA" if picture.layout == "LA" and spec.name == "TIFF" else picture.layout
    return is_deep(picture.pixels, layout) and layout in spec.deep


def _fit(picture: Picture, spec: _Format) -> tuple[Image.Image, tuple[str, ...]]:
    """A picture as an image that Pillow can write in a format, and notes about what is lost.

    For `_stored_deep` it stands for the pixels: twice as wide for a TIFF, else of one pixel.
    """
    notes: tuple[str, ...] = ()
    if _stored_deep(picture, spec):
        if spec.name != "TIFF":
            return Image.new(picture.layout, (1, 1)), ()
        pixels = picture.pixels
        if picture.layout == "LA":  # Pillow does not read it, nor do many others
            pixels, notes = pixels[..., [0, 0, 0, 1]], ("TIFF gets 16-bit grey with alpha as RGB",)
        # libtiff writes in the byte order of the machine, Pillow by itself in this one.
        return Image.fromarray(two_bytes_wide(pixels, "<" if "exif" in picture.metadata else "=")), notes
    if is_deep(picture.pixels, picture.layout):
        notes = (f"{spec.name} cannot hold 16-bit colour, so it has 8 bits a channel",)
    if picture.pixels.dtype == np.float32 and picture.layout != "L":
        notes = (f"{spec.name} gets float colour as 8 bits a channel",)
    image = to_pil(picture)
    if image.mode == "I" and "I" not in spec.modes and "I;16" in spec.modes:
        image = Image.fromarray(np.ascontiguousarray(picture.pixels[:, :, 0]))
    if image.mode in ("I;16", "I", "F") and image.mode not in spec.modes:
        bits = "float" if image.mode == "F" else "16-bit"
        image = Image.fromarray(np.ascontiguousarray(to_8_bits(picture.pixels)[:, :, 0]))
        notes = (f"{spec.name} cannot hold {bits} grey, so it has 8 bits",)
    if image.mode == "CMYK" and image.mode not in spec.modes:
        image, notes = image.convert("RGB"), (f"{spec.name} cannot hold CMYK, so it is RGB",)
    if image.mode == "L" and image.mode not in spec.modes:
        image = image.convert("RGB")
    if image.mode == "LA" and image.mode not in spec.modes:
        image = image.convert("RGBA")
    return image, notes
