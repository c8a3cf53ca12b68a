"""The page docs/picture-modes.md is what really happens; ``python tests/test_mode_table.py`` writes it."""

# ruff: noqa: E501

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, features
from PIL import __version__ as pillow

from zenith_ae.errors import ImageError, OutputError
from zenith_ae.image_writing import encode_picture, suffix_for
from zenith_ae.images import Picture, from_pil, read_picture, to_pil

PAGE = Path(__file__).parents[1] / "docs" / "picture-modes.md"
#: All modes of Pillow, but I;16L and I;16N, which are I;16 on other machines.
MODES = ["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "LA", "PA", "RGBX", "RGBa", "La",
         "I;16", "I;16B"]  # fmt: skip
DEEP = {"16-bit RGB": "RGB", "16-bit RGBA": "RGBA", "16-bit LA": "LA"}
#: What files are written as, by what the page calls it.
FORMATS = {
    "PNG": ".png", "JPEG": ".jpg", "TIFF": ".tif", "WebP": ".webp", "AVIF": ".avif", "JPEG 2000": ".jp2",
    "BMP": ".bmp", "PNM": ".ppm",
}  # fmt: skip
READ = {"GIF": ".gif", "ICO": ".ico"}  # what is read beside those
SIZE = (16, 16)
HEAD = f"""# Every Pillow mode, by format

This page is made by `python tests/test_mode_table.py`, which writes a file of every mode that Pillow can hold in every format, reads it and writes it again (Pillow {pillow.rpartition(".")[0]}); the test of the same name fails when the page is not what happens. [File formats](file-formats.md#pictures) has the rules.

"L 8" is grey of 8 bits a channel, "RGBA 16" colour with alpha of 16; "F" are floats. A star marks a loss that is told in a note; "refused" is an error of one line, and nothing is written.
"""


def channels(mode: str) -> int:
    return len(Image.new(mode, (1, 1)).getbands())


def picture_of(mode: str) -> Image.Image | Picture:
    """Random pixels, not the same in any two channels; half transparent where there is alpha."""
    rng = np.random.default_rng(0)
    shape = (SIZE[1], SIZE[0])
    if mode in DEEP:
        layout = DEEP[mode]
        return Picture(rng.integers(0, 65536, (*shape, len(layout))).astype(np.uint16), layout, layout)
    if mode == "F":
        return Image.fromarray(rng.random(shape, np.float32))
    if mode == "I":
        return Image.fromarray(rng.integers(0, 65536, shape).astype(np.int32))
    if mode.startswith("I;16"):
        kind = ">u2" if mode.endswith("B") else "<u2"
        return Image.frombytes(mode, SIZE, rng.integers(0, 65536, shape).astype(kind).tobytes())
    if mode in ("P", "PA"):
        image = Image.fromarray(rng.integers(0, 256, (*shape, 3), np.uint8)).quantize(16)
        if mode == "P":
            return image
        image = image.convert("PA")
        image.putalpha(Image.fromarray(rng.integers(0, 256, shape, np.uint8)))
        return image
    if mode == "1":
        return Image.fromarray(rng.integers(0, 2, shape).astype(bool))
    data = rng.integers(0, 256, (*shape, channels(mode)), np.uint8)
    if mode in ("RGBa", "La"):  # colours are multiplied by alpha
        data[..., :-1] = np.minimum(data[..., :-1], data[..., -1:])
    return Image.frombytes(mode, SIZE, data.tobytes())


def as_picture(source: Image.Image | Picture) -> Picture:
    return source if isinstance(source, Picture) else from_pil(source)


def name(picture: Picture) -> str:
    if picture.pixels.dtype == np.float32:
        return f"{picture.layout} F"
    return f"{picture.layout} {8 * picture.pixels.dtype.itemsize}"


def alpha(picture: Picture) -> np.ndarray | None:
    return picture.pixels[..., -1] if picture.layout in ("LA", "RGBA") else None


def written(picture: Picture, suffix: str) -> tuple[Picture, str]:
    """What a reader finds in the file, and a star if there is a note."""
    buffer = io.BytesIO()
    notes = encode_picture(picture, buffer, suffix)
    back = read_picture(buffer.getvalue())
    before, after = alpha(picture), alpha(back)
    if before is not None and after is not None and before.dtype == after.dtype and suffix != ".avif":
        assert np.array_equal(before, after), (picture.mode, suffix)
    return back, "*" if notes else ""


def written_name(picture: Picture, suffix: str) -> str:
    try:
        back, star = written(picture, suffix)
    except OutputError as error:
        assert "transparency" in str(error)
        return "refused"
    return name(back) + star


def modes_table() -> str:
    """Every mode: what Python gives back, what is worked on, and what each format makes of it."""
    head = ["mode", "worked on as", "Pillow image out", *FORMATS]
    rows = []
    for mode in [*MODES, *DEEP]:
        source = picture_of(mode)
        try:
            picture = as_picture(source)
        except ImageError:
            rows.append([mode, "refused", *[""] * (1 + len(FORMATS))])
            continue
        out = to_pil(picture).mode if mode not in DEEP else f"{to_pil(picture).mode}*"
        rows.append([mode, name(picture), out, *(written_name(picture, s) for s in FORMATS.values())])
    return table(head, rows)


def files_table() -> str:
    """Files of every format: how they come in and how they go out again."""
    rows = []
    for title, suffix in (FORMATS | READ).items():
        for mode in [*MODES, *DEEP]:
            data = file_of(mode, suffix)
            if data is None:
                continue
            picture = read_picture(data)
            out = suffix_for(picture.format)
            with Image.open(io.BytesIO(data)) as image:
                opened = image.mode
            back, star = written(picture, out)
            same = name(back) == name(picture) and picture.layout == back.layout
            kept = "" if alpha(picture) is None else "kept" if alpha(back) is not None else "lost"
            assert kept != "lost"
            rows.append([title, mode, opened if mode not in DEEP else "", name(picture),
                         ("the same" if same else name(back)) + star + (f" in {out}" if out != suffix else ""),
                         kept])  # fmt: skip
    return table(
        ["file", "written by Pillow from", "it says", "worked on as", "written back as", "alpha"], rows
    )


def file_of(mode: str, suffix: str) -> bytes | None:
    """A file as Pillow writes it, for 16-bit colour as we do; None if the format does not hold it."""
    if (mode, suffix) == ("I", ".png"):  # which Pillow is about to give up
        return None
    source, buffer = picture_of(mode), io.BytesIO()
    if isinstance(source, Picture):
        if suffix not in FORMATS.values():
            return None
        try:
            notes = encode_picture(source, buffer, suffix)
        except OutputError:
            return None
        return None if notes else buffer.getvalue()
    try:
        source.save(
            buffer, {".jp2": "JPEG2000", ".ppm": "PPM"}.get(suffix) or Image.registered_extensions()[suffix]
        )
        data = buffer.getvalue()
        read_picture(data)
    except (OSError, ValueError, KeyError, SystemError):
        return None
    return data


def metadata_table() -> str:
    exif = Image.Exif()
    exif[0x010F] = "Camera Maker"
    exif[0x8769] = {0x9003: "2024:01:02 03:04:05"}
    metadata = {
        "icc_profile": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
        "exif": exif.tobytes(), "xmp": b"<x:xmpmeta/>", "dpi": (300.0, 300.0),
    }  # fmt: skip
    rows = []
    for title, suffix in FORMATS.items():
        for bits, kind in ((8, np.uint8), (16, np.uint16)):
            buffer = io.BytesIO()
            picture = Picture(np.zeros((*SIZE, 3), kind), "RGB", "RGB", metadata=dict(metadata))
            if encode_picture(picture, buffer, suffix):
                continue  # no 16 bits there
            back = read_picture(buffer.getvalue()).metadata
            kept = []
            for key in metadata:
                match = key in back
                if match and key == "dpi":
                    match = abs(back["dpi"][0] - 300) < 1
                if match and key == "exif":
                    read = Image.Exif()
                    read.load(back["exif"])
                    match = read.get_ifd(0x8769).get(0x9003) == "2024:01:02 03:04:05"
                if match and key in ("icc_profile", "xmp"):
                    match = back[key] == metadata[key]
                kept.append("kept" if match else "")
            rows.append([f"{title}, {bits} bits" if bits == 16 else title, *kept])
    return table(["RGB in", "ICC profile", "EXIF", "XMP", "resolution"], rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def page() -> str:
    return f"""{HEAD}
## Any mode to any format

The mode of a Pillow image, what models work on, the mode of the Pillow image that a model gives back, and what each format keeps. The last rows are pictures of 16 bits a channel, for which Pillow has no mode: read by `zenith_ae.read_picture`; as a Pillow image they have 8 bits.

{modes_table()}
Alpha is the same to the last bit wherever it is written with as many bits (in AVIF, nearly). A BMP has it with a header that says so (BITMAPV4HEADER); what Pillow writes has none, and it does not read alpha there. La and RGBa are divided by their alpha; the colours of P and PA leave the palette; LAB has no conversion that all agree on.

## Files and back

What Pillow can write into a format, as it is read and as it is written again.

{files_table()}
## Metadata

What a picture with all of it has after it was written and read again.

{metadata_table()}"""


def made_with() -> str:
    return "".join(re.findall(r"\(Pillow ([\d.]+)\)", PAGE.read_text()))


needs_all = pytest.mark.skipif(
    not all(features.check(name) for name in ("avif", "webp", "jpg_2000", "littlecms2"))
    or pillow.rpartition(".")[0] != made_with(),
    reason="this Pillow lacks formats that the page has, or is another than the one it was made with",
)


@needs_all
def test_the_page_about_modes_is_what_happens():
    assert PAGE.read_text() == page(), "stale; run python tests/test_mode_table.py"


@needs_all
def test_the_table_sees_a_change(monkeypatch):
    monkeypatch.setitem(FORMATS, "PNG", ".jpg")
    assert page() != PAGE.read_text()


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}", file=sys.stderr)
