import errno
import io
import os
import socket
import struct
import tempfile
import threading
import warnings
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, IptcImagePlugin, PngImagePlugin, TiffImagePlugin, features

from zenith_ae import files, images
from zenith_ae.errors import ConfigError, ExistsError, ImageError, OutputError
from zenith_ae.files import atomic_writer
from zenith_ae.image_bytes import join_tiffs
from zenith_ae.image_metadata import (
    EXIF_BLOCK,
    GPS_BLOCK,
    ORIENTATION,
    avif_colours,
    described,
    without_orientation,
)
from zenith_ae.image_writing import encode_picture, suffix_for, write_picture
from zenith_ae.images import Picture, from_pil, read_picture, to_8_bits, to_pil

SIZE = (13, 7)  # width, height


def pixels(mode):
    """A Pillow image of a mode with random content."""
    rng = np.random.default_rng(0)
    w, h = SIZE
    if mode in ("I;16", "I"):
        grey = rng.integers(0, 65536, (h, w))
        return Image.fromarray(grey.astype(np.uint16 if mode == "I;16" else np.int32))
    if mode == "F":
        return Image.fromarray(rng.random((h, w), np.float32))
    if mode == "1":
        return Image.fromarray(rng.integers(0, 2, (h, w)).astype(bool))
    if mode == "P":
        return Image.fromarray(rng.integers(0, 256, (h, w, 3), np.uint8)).quantize(8)
    channels = len(mode) if mode != "YCbCr" else 3
    shape = (h, w) if channels == 1 else (h, w, channels)
    array = rng.integers(0, 256, shape, np.uint8)
    return Image.frombytes(mode, SIZE, array.tobytes())


def saved(image, suffix, path, **options):
    file = path / f"in{suffix}"
    image.save(file, **options)
    return file


# ---- modes


@pytest.mark.parametrize(
    ("mode", "suffix", "layout", "dtype", "back"),
    [
        ("L", ".png", "L", np.uint8, "L"),
        ("LA", ".png", "LA", np.uint8, "LA"),
        ("RGB", ".png", "RGB", np.uint8, "RGB"),
        ("RGBA", ".png", "RGBA", np.uint8, "RGBA"),
        ("I;16", ".png", "L", np.uint16, "I;16"),
        ("I;16", ".tif", "L", np.uint16, "I;16"),
        ("I;16", ".jp2", "L", np.uint16, "I;16"),
        ("F", ".tif", "L", np.float32, "F"),
        ("CMYK", ".tif", "CMYK", np.uint8, "CMYK"),
        ("RGBA", ".tif", "RGBA", np.uint8, "RGBA"),
        ("LA", ".tif", "LA", np.uint8, "LA"),
        ("RGB", ".bmp", "RGB", np.uint8, "RGB"),
        ("L", ".pgm", "L", np.uint8, "L"),
        ("RGB", ".ppm", "RGB", np.uint8, "RGB"),
        ("P", ".png", "RGB", np.uint8, "RGB"),
        ("1", ".png", "L", np.uint8, "L"),
    ],
)
def test_mode_table_reading_and_writing_back_loses_nothing(tmp_path, mode, suffix, layout, dtype, back):
    image = pixels(mode)
    picture = read_picture(saved(image, suffix, tmp_path))
    assert (picture.layout, picture.pixels.dtype, picture.notes) == (layout, dtype, ())
    assert (picture.width, picture.height) == SIZE
    assert write_picture(picture, tmp_path / f"out{suffix}") == ()
    again = Image.open(tmp_path / f"out{suffix}")
    assert again.mode == back
    expected = np.asarray(image.convert(back) if image.mode != back else image)
    assert np.array_equal(np.asarray(again), expected)


def test_sixteen_bit_netpbm_keeps_its_bits(tmp_path):
    image = pixels("I;16")
    picture = read_picture(saved(image, ".pgm", tmp_path))
    assert picture.pixels.dtype == np.uint16
    write_picture(picture, tmp_path / "out.pgm")
    assert np.array_equal(read_picture(tmp_path / "out.pgm").pixels, np.asarray(image)[..., None])


def test_cmyk_jpeg_stays_cmyk(tmp_path):
    flat = Image.new("CMYK", (16, 16), (40, 90, 160, 20))
    picture = read_picture(saved(flat, ".jpg", tmp_path, quality=100))
    assert picture.layout == "CMYK"
    write_picture(picture, tmp_path / "out.jpg")
    again = Image.open(tmp_path / "out.jpg")
    assert again.mode == "CMYK"
    assert np.abs(np.asarray(again).astype(int) - np.asarray(flat)).max() <= 3


def test_palette_with_transparency_becomes_rgba(tmp_path):
    image = pixels("P")
    picture = read_picture(saved(image, ".png", tmp_path, transparency=3))
    assert picture.layout == "RGBA"
    assert np.array_equal(picture.pixels[..., 3] == 0, np.asarray(image) == 3)


@pytest.mark.parametrize(("mode", "key", "layout"), [("L", 7, "LA"), ("RGB", (1, 2, 3), "RGBA")])
def test_colour_key_becomes_alpha(tmp_path, mode, key, layout):
    image = pixels(mode)
    image.putpixel((2, 3), key)
    picture = read_picture(saved(image, ".png", tmp_path, transparency=key))
    assert picture.layout == layout
    assert picture.pixels[3, 2, -1] == 0
    assert np.array_equal(picture.pixels[..., :-1].squeeze(), np.asarray(image))


@pytest.mark.parametrize(("depth", "row"), [(1, b"\x60"), (2, b"\x1b"), (4, b"\x2f")])
def test_a_grey_colour_key_of_few_bits_becomes_alpha(tmp_path, depth, row):
    """The second pixel has the key; the first has not."""
    first, key = row[0] >> (8 - depth), row[0] >> (8 - 2 * depth) & (2**depth - 1)
    assert first != key
    data = deep_png(2, 1, depth, colour=0, rows=b"\0" + row)
    chunk = b"tRNS" + struct.pack(">H", key)
    at = data.index(b"IDAT") - 4
    data = data[:at] + struct.pack(">I", 2) + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[at:]
    picture = read_picture(data)
    assert picture.layout == "LA"
    peak = 2**depth - 1
    assert picture.pixels.tolist() == [[[first * 255 // peak, 255], [key * 255 // peak, 0]]]


def test_animation_gives_its_first_picture_and_a_note(tmp_path):
    frames = [Image.new("RGB", SIZE, c) for c in ("red", "blue", "green")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    picture = read_picture(tmp_path / "a.gif")
    assert picture.pixels[0, 0].tolist() == [255, 0, 0]
    assert "first" in picture.notes[0]


def deep_png(width=3, height=2, depth=16, colour=2, rows=None):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    rows = rows or b"".join(b"\0" + b"\x12\x34" * channels * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_wide_integers_are_refused(tmp_path):
    image = Image.fromarray(np.full((2, 2), 70000, np.int32))
    with pytest.raises(ImageError, match="integers beyond 16 bits, 70000 to 70000"):
        read_picture(saved(image, ".tif", tmp_path))
    image = Image.fromarray(np.full((2, 2), -7, np.int32))
    with pytest.raises(ImageError, match=r"values below 0 \(signed integers\), or .*, -7 to -7"):
        read_picture(saved(image, ".tif", tmp_path))


def test_lab_is_refused_in_one_line():
    with pytest.raises(ImageError, match="LAB is not supported"):
        from_pil(Image.new("LAB", SIZE))


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
def test_pillow_images_survive_the_way_to_a_picture_and_back(mode):
    image = pixels(mode)
    again = to_pil(from_pil(image))
    assert (again.mode, again.size) == (image.mode, image.size)
    assert np.array_equal(np.asarray(again), np.asarray(image))


def test_sixteen_bits_to_eight_round_to_nearest():
    deep = np.arange(65536, dtype=np.uint16)
    assert np.array_equal(to_8_bits(deep), np.floor(deep / 257 + 0.5).astype(np.uint8))


# ---- what formats cannot hold


def test_jpeg_of_sixteen_bits_has_eight_and_a_note(tmp_path):
    picture = Picture(np.full((8, 8, 1), 25700, np.uint16), "L", "I;16")
    (note,) = write_picture(picture, tmp_path / "a.jpg")
    assert "16-bit" in note
    assert np.asarray(Image.open(tmp_path / "a.jpg")).max() == 100


@pytest.mark.parametrize("suffix", [".bmp", ".ppm", ".jp2"])
def test_a_profile_of_other_colours_is_never_dropped_silently(tmp_path, suffix):
    pixels = np.zeros((4, 4, 3), np.uint8)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    linear = srgb.replace("sRGB".encode("utf-16-be"), "Linear sRGB".encode("utf-16-be"))
    assert linear != srgb
    for profile, count in ((srgb, 0), (lab, 1), (linear, 1)):
        picture = Picture(pixels, "RGB", "RGB", metadata={"icc_profile": profile})
        notes = write_picture(picture, tmp_path / f"a{suffix}")
        assert len([note for note in notes if "cannot hold the ICC profile" in note]) == count


def told(metadata):
    return Picture(np.zeros((4, 4, 3), np.uint8), "RGB", "RGB", metadata=metadata)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (np.zeros((2, 4, 4, 3), np.uint8), r"holds 2 pictures; a file takes one: give picture\[0\]"),
        ("b.png", "b.png: is a path; read the picture first"),
        (None, "a picture must be"),
        (Picture(np.zeros((4, 4), np.uint8), "L", "L"), r"\(H, W, 1\), got \(4, 4\)"),
        (Picture(np.zeros((4, 4, 3)), "RGB", "RGB"), "got float64"),
        (Picture(np.zeros((4, 4, 3), ">u2"), "RGB", "RGB"), "got >u2"),
        (Picture(np.zeros((4, 4, 4), np.uint16), "CMYK", "CMYK"), "CMYK are uint8, got uint16"),
        (Picture(np.zeros((4, 4, 3), np.uint8), "LAB", "LAB"), "layout must be one of"),
        (told(None), "metadata are a dict, got NoneType"),
        (told({"exif": "f/2.8"}), "'exif' must be bytes, got 'f/2.8'"),
        (told({"dpi": (300,)}), "'dpi' must be a pair of numbers"),
        (told({"dpi": (float("nan"), 1)}), "'dpi' must be a pair of numbers"),
        (told({"gamma": -1}), "'gamma' must be a number from 0"),
        (told({"gamma": 10**400}), "'gamma' must be a number from 0"),
        (told({"loop": 1.5}), "'loop' must be a whole number"),
        (replace(told({}), more=(told({"duration": "1 s"}),)), "'duration' must be a number of milliseconds"),
    ],
)
def test_what_is_no_picture_is_not_written(tmp_path, picture, message):
    with pytest.raises(ImageError, match=message):
        write_picture(picture, tmp_path / "a.png")
    assert not os.listdir(tmp_path)


def test_how_another_files_pixels_lay_is_not_written_into_a_tiff(tmp_path):
    """Cameras write width and height, from before it was turned, into the EXIF of a JPEG."""
    exif = Image.Exif()
    for tag, value in {0x100: 48, 0x101: 32, 0x112: 6, 0x10A: 2, 0x11C: 2, 0x106: 6, 0x10F: "Maker"}.items():
        exif[tag] = value
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif)
    picture = read_picture(tmp_path / "a.jpg")
    write_picture(picture, tmp_path / "a.tif")
    again = read_picture(tmp_path / "a.tif")
    assert (again.width, again.height) == (32, 48)
    assert np.array_equal(again.pixels, picture.pixels)
    with Image.open(tmp_path / "a.tif") as image:
        assert image.getexif()[0x10F] == "Maker"


def test_each_page_has_its_own_profile_and_resolution_or_none(tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    pages = [Image.new("RGB", (4, 4)), Image.new("RGB", (4, 4))]
    pages[1].encoderinfo = {"icc_profile": profile, "dpi": (300, 300)}
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    first = read_picture(tmp_path / "a.tif", every=True)
    assert first.metadata == {}
    assert first.more[0].metadata["icc_profile"] == profile
    pages[0].save(tmp_path / "b.tif")
    assert read_picture(tmp_path / "b.tif").metadata == {}


@pytest.mark.parametrize("suffix", [".png", ".webp", ".avif"])
def test_pages_of_several_layouts_keep_their_alpha_in_an_animation(tmp_path, suffix):
    if suffix == ".avif" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    rng = np.random.default_rng(0)
    layouts = {"L": 1, "LA": 2, "RGB": 3, "CMYK": 4}
    pages = [
        Picture(rng.integers(0, 256, (16, 16, channels), np.uint8), layout, layout)
        for layout, channels in layouts.items()
    ]
    pages[1].pixels[..., 1] = 60
    write_picture(replace(pages[0], more=tuple(pages[1:])), tmp_path / f"a{suffix}")
    again = read_picture(tmp_path / f"a{suffix}", every=True)
    alphas = [one.pixels[..., 3].mean() for one in (again, *again.more)]
    assert alphas == [255, 60, 255, 255]


def test_grey_of_12_bits_is_as_bright_as_it_was(tmp_path):
    values = np.array([[0, 1000, 2000, 4095]])
    packed = bytearray()
    for a, b in values.reshape(-1, 2).tolist():
        packed += bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255])
    entries = {256: 4, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: len(packed)}
    data = b"II*\0" + struct.pack("<I", 8 + len(packed)) + bytes(packed) + struct.pack("<H", len(entries))
    for tag, value in entries.items():
        data += struct.pack("<HHII", tag, 4 if tag in (273, 279) else 3, 1, value)
    picture = read_picture(data + b"\0" * 4)
    assert picture.pixels[0, :, 0].tolist() == [round(v * 65535 / 4095) for v in values[0].tolist()]


def test_plain_ppm_of_16_bits_has_eight_and_a_note():
    picture = read_picture(b"P3 2 1 65535 0 1 2 65535 40000 3\n")
    assert picture.pixels.dtype == np.uint8
    assert picture.notes == ("16-bit colour is read as 8 bits a channel",)


@pytest.mark.parametrize("suffix", [".png", ".webp", ".jpg"])
def test_a_damaged_exif_block_does_not_make_a_picture_unreadable(tmp_path, suffix):
    Image.new("RGB", (4, 4)).save(tmp_path / f"a{suffix}", exif=b"Exif\0\0junkjunkjunk")
    assert read_picture(tmp_path / f"a{suffix}").width == 4


def test_notes_of_all_pages_are_known():
    pages = [
        Picture(np.zeros((4, 4, 1), np.uint8), "L", "L", notes=notes) for notes in ((), ("a", "b"), ("a",))
    ]
    assert replace(pages[0], more=tuple(pages[1:])).every_note == ("a", "b")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_arrays_are_written_with_the_bits_they_have(tmp_path, dtype):
    values = np.random.default_rng(0).integers(0, 256, (1, 5, 7, 3)).astype(dtype)
    array = values / np.float32(255) if dtype == np.float32 else values
    for one in (array, array[0], array[0, ..., 0]):
        write_picture(one, tmp_path / "a.png")
        read = read_picture(tmp_path / "a.png")
        assert read.pixels.dtype == (np.uint16 if dtype == np.uint16 else np.uint8)
        assert np.array_equal(
            read.pixels.reshape(-1), values.reshape(-1, 3)[:, : read.pixels.shape[2]].ravel()
        )


def test_pillow_images_are_written_with_their_metadata(tmp_path):
    image = pixels("LA")
    image.info["dpi"] = (100, 100)
    write_picture(image, tmp_path / "a.png")
    again = read_picture(tmp_path / "a.png")
    assert again.layout == "LA" and again.metadata["dpi"] == pytest.approx((100, 100), abs=0.1)


@pytest.mark.parametrize("source", [".jpg", ".png", ".webp", ".tif", "text"])
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif", ".avif"])
def test_what_pillow_opens_is_written_with_its_exif_and_as_it_lies(tmp_path, source, suffix):
    exif = Image.Exif()
    exif[ORIENTATION], exif[0x010F] = 6, "Maker"
    if source == "text":  # as ImageMagick once did
        text = PngImagePlugin.PngInfo()
        block = b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")
        text.add_text("Raw profile type exif", f"\nexif\n{len(block)}\n{block.hex()}\n")
        file = saved(pixels("RGB"), ".png", tmp_path, pnginfo=text)
    else:
        file = saved(pixels("RGB"), source, tmp_path, exif=exif)
    with Image.open(file) as image:
        write_picture(image, tmp_path / f"a{suffix}")
    read = read_picture(tmp_path / f"a{suffix}")
    assert read.pixels.shape == read_picture(file).pixels.shape == (13, 7, 3)
    with Image.open(tmp_path / f"a{suffix}") as image:
        assert image.getexif()[0x010F] == "Maker"


@pytest.mark.parametrize("source", [".jpg", ".png", ".webp", ".tif"])
def test_width_and_height_of_a_picture_on_its_side_change_places(tmp_path, source):
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    exif.get_ifd(EXIF_BLOCK).update({0xA002: 13, 0xA003: 7})
    read = read_picture(saved(pixels("RGB"), source, tmp_path, exif=exif.tobytes()))
    write_picture(read, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        block = image.getexif().get_ifd(EXIF_BLOCK)
        assert (block[0xA002], block[0xA003]) == image.size == (7, 13)


def test_gamma_of_a_png_that_pillow_opens_is_kept_or_told(tmp_path):
    file = tmp_path / "linear.png"
    write_picture(replace(from_pil(pixels("RGB")), metadata={"gamma": 1.0}), file)
    with Image.open(file) as image:
        image.load()
        without_format = image.copy()
        without_format.info = dict(image.info)
        for given in (image, without_format):
            assert write_picture(given, tmp_path / "a.png") == ()
            assert read_picture(tmp_path / "a.png").metadata["gamma"] == 1.0
            assert "gamma" in write_picture(given, tmp_path / "a.jpg")[0]


def test_open_files_are_read_like_paths(tmp_path):
    file = tmp_path / "a.png"
    pixels("RGB").save(file)
    with open(file, "rb") as stream:
        assert np.array_equal(read_picture(stream).pixels, read_picture(file).pixels)
    data = file.read_bytes()
    gaps = bytes(byte for pair in zip(data, data, strict=True) for byte in pair)
    for whole in (data, bytearray(data), memoryview(data), memoryview(gaps)[::2], io.BytesIO(data)):
        assert np.array_equal(read_picture(whole).pixels, read_picture(file).pixels)
    for temporary in (tempfile.NamedTemporaryFile, tempfile.SpooledTemporaryFile):
        with temporary() as stream:
            stream.write(data)
            stream.seek(0)
            assert np.array_equal(read_picture(stream).pixels, read_picture(file).pixels)
    with (
        tempfile.NamedTemporaryFile("w+", encoding="latin1") as stream,
        pytest.raises(ImageError, match=r'mode "rb"'),
    ):
        read_picture(stream)
    with pytest.raises(ImageError, match=r"b\.png: not a picture"):
        read_picture(io.BytesIO(b"hello"), name="b.png")
    with open(file, encoding="latin1") as stream, pytest.raises(ImageError, match=r'a.png: .* mode "rb"'):
        read_picture(stream)
    with open(tmp_path / "new", "wb") as stream, pytest.raises(ImageError, match="is not open for reading"):
        read_picture(stream)
    with open(file, "rb") as stream:
        pass
    with pytest.raises(ImageError, match=r"a\.png: cannot be read: .*closed file"):
        read_picture(stream)
    with pytest.raises(ImageError, match="the path is empty"):
        read_picture("")
    with pytest.raises(ImageError, match="not ndarray"):
        read_picture(np.zeros((4, 4, 3), np.uint8))


def test_alpha_is_never_dropped_silently(tmp_path):
    with pytest.raises(OutputError, match=r"transparency.*the picture is of a PNG file"):
        write_picture(replace(from_pil(pixels("RGBA")), format="PNG"), tmp_path / "a.jpg")
    with pytest.raises(OutputError, match="transparency"):
        write_picture(from_pil(pixels("RGBA")), tmp_path / "a.jpg")
    assert not os.listdir(tmp_path)


def test_grey_with_alpha_goes_through_webp(tmp_path):
    image = pixels("LA")
    write_picture(from_pil(image), tmp_path / "a.webp")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.webp")), np.asarray(image.convert("RGBA")))


def test_webp_stays_lossless_or_lossy(tmp_path):
    image = pixels("RGB")
    for lossless in (True, False):
        file = tmp_path / f"{lossless}.webp"
        image.save(file, lossless=lossless)
        picture = read_picture(file)
        assert picture.metadata["lossless"] is lossless
        write_picture(picture, tmp_path / "again.webp")
        assert read_picture(tmp_path / "again.webp").metadata["lossless"] is lossless


def test_unknown_suffix_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write \.xyz; use one of \.png"):
        write_picture(from_pil(pixels("RGB")), tmp_path / "a.xyz")


def test_suffix_follows_the_format():
    assert [suffix_for(f) for f in ("PNG", "JPEG", "TIFF", "GIF", None)] == [
        ".png",
        ".jpg",
        ".tif",
        ".png",
        ".png",
    ]


# ---- metadata


def exif_bytes(orientation=1):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "Camera Maker"
    exif[0x8769] = {0x9003: "2024:01:02 03:04:05", 0x927C: b"maker note bytes"}
    return exif.tobytes()


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_profile_exif_and_resolution_are_kept(tmp_path, suffix):
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    file = saved(pixels("RGB"), suffix, tmp_path, icc_profile=icc, exif=exif_bytes(), dpi=(300, 150))
    out = tmp_path / f"out{suffix}"
    write_picture(read_picture(file), out)
    image = Image.open(out)
    assert image.info["icc_profile"] == icc
    assert image.getexif()[0x010F] == "Camera Maker"
    assert image.getexif().get_ifd(0x8769)[0x9003] == "2024:01:02 03:04:05"
    if suffix != ".webp":  # has no field for it
        assert [round(float(d)) for d in image.info["dpi"]] == [300, 150]


@pytest.mark.parametrize("source", [".jpg", ".png", ".webp", ".tif"])
@pytest.mark.parametrize("target", [".jpg", ".png", ".webp", ".tif"])
def test_exif_survives_a_change_of_format(tmp_path, source, target):
    file = saved(pixels("RGB"), source, tmp_path, exif=exif_bytes())
    write_picture(read_picture(file), tmp_path / f"out{target}")
    exif = Image.open(tmp_path / f"out{target}").getexif()
    assert (exif[0x010F], exif.get_ifd(0x8769)[0x9003]) == ("Camera Maker", "2024:01:02 03:04:05")


def test_a_tiff_keeps_exif_beside_xmp_and_those_of_every_page(tmp_path):
    both = {"exif": exif_bytes(), "xmp": b"<x:xmpmeta/>"}
    second = Picture(np.zeros((3, 5, 3), np.uint8), "RGB", "RGB", metadata=both)
    first = Picture(np.zeros((9, 5, 3), np.uint8), "RGB", "RGB", metadata=both, more=(second,))
    assert write_picture(first, tmp_path / "a.tif") == ()
    picture = read_picture(tmp_path / "a.tif", every=True)
    for page in (picture, *picture.more):
        assert page.metadata["xmp"] == both["xmp"]
        exif = Image.Exif()
        exif.load(page.metadata["exif"])
        assert (exif[0x010F], exif.get_ifd(0x8769)[0x9003]) == ("Camera Maker", "2024:01:02 03:04:05")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_every_page_of_a_tiff_has_its_own_exif_and_place(tmp_path, dtype):
    def metadata(year):
        exif = Image.Exif()
        exif[0x010F] = f"Maker of {year}"
        exif[EXIF_BLOCK] = {0x9003: f"{year}:01:02 03:04:05", 0x9209: year % 100}
        exif[GPS_BLOCK] = {29: f"{year}:01:02", 2: (52.0, 30.0, 7.5)}
        return {"exif": exif.tobytes()}

    rng = np.random.default_rng(0)
    of_pages = [metadata(2020), {}, metadata(2021), {"dpi": (72.0, 72.0)}, metadata(2022)]
    pages = [
        Picture(rng.integers(0, np.iinfo(dtype).max, (9, 7 + i, 3), dtype), "RGB", "RGB", metadata=m)
        for i, m in enumerate(of_pages)
    ]
    write_picture(replace(pages[0], more=tuple(pages[1:])), tmp_path / "a.tif")
    again = read_picture(tmp_path / "a.tif", every=True).frames
    assert all(np.array_equal(page.pixels, other.pixels) for page, other in zip(pages, again, strict=True))
    for page, year in ((again[0], 2020), (again[2], 2021), (again[4], 2022)):
        exif = Image.Exif()
        exif.load(page.metadata["exif"])
        assert exif[0x010F] == f"Maker of {year}"
        assert dict(exif.get_ifd(EXIF_BLOCK)) == {0x9003: f"{year}:01:02 03:04:05", 0x9209: year % 100}
        assert exif.get_ifd(GPS_BLOCK)[29] == f"{year}:01:02"
        assert tuple(map(float, exif.get_ifd(GPS_BLOCK)[2])) == (52.0, 30.0, 7.5)


@pytest.mark.parametrize("order", ["<", ">"])
def test_strips_behind_64_kilobytes_are_found_again(order):
    """Their places are shorts in what libtiff writes, which no longer do when a page is not the first."""
    entries = [(256, 3, 1, 4), (257, 3, 1, 2), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1),
               (273, 3, 2, 8 + 2 + 9 * 12 + 4), (277, 3, 1, 1), (278, 3, 1, 1), (279, 3, 2, 0)]  # fmt: skip
    end = 8 + 2 + len(entries) * 12 + 4

    def page(value):
        data = struct.pack(f"{order}2sHIH", b"II" if order == "<" else b"MM", 42, 8, len(entries))
        for tag, kind, length, content in entries:
            local = {1: struct.pack(f"{order}Hxx", content), 2: struct.pack(f"{order}HH", end, end + 4)}[
                length
            ]
            data += struct.pack(f"{order}HHI", tag, kind, length) + local
        data = data[:-4] + struct.pack(f"{order}HH", 4, 4) + bytes(4)
        return data + bytes([value] * 4 + [value + 1] * 4)

    joined = join_tiffs([page(1) + bytes(70_000), page(3), page(5)])
    with Image.open(io.BytesIO(joined)) as image:
        for index, value in enumerate((1, 3, 5)):
            image.seek(index)
            np.testing.assert_array_equal(np.asarray(image), [[value] * 4, [value + 1] * 4])


def test_a_bmp_keeps_its_alpha(tmp_path):
    picture = from_pil(pixels("RGBA"), {"dpi": (300.0, 300.0)})
    assert write_picture(picture, tmp_path / "a.bmp") == ()
    again = read_picture(tmp_path / "a.bmp")
    assert again.layout == "RGBA"
    np.testing.assert_array_equal(again.pixels, picture.pixels)
    assert again.metadata["dpi"] == pytest.approx((300, 300), abs=0.1)


@pytest.mark.parametrize("plays", [70_000, 2**32 - 1])
def test_an_animation_that_plays_oftener_than_a_format_can_say_plays_as_often_as_it_can(tmp_path, plays):
    first, second = (from_pil(pixels("RGB"), {"loop": plays}) for _ in range(2))
    second = replace(second, pixels=255 - second.pixels)
    for suffix, most in ((".webp", 2**16 - 1), (".png", plays)):
        write_picture(replace(first, more=(second,)), tmp_path / f"a{suffix}")
        assert Image.open(tmp_path / f"a{suffix}").info["loop"] == most


def test_a_damaged_exif_block_does_not_keep_a_tiff_from_being_written(tmp_path):
    picture = from_pil(pixels("RGB"), {"exif": b"Exif\0\0no such thing"})
    assert write_picture(picture, tmp_path / "a.tif") == ("the EXIF block is damaged and is dropped",)
    assert read_picture(tmp_path / "a.tif").pixels.shape == (7, 13, 3)


def test_profile_that_does_not_describe_the_written_colours_is_dropped(tmp_path):
    grey = b"\0" * 16 + b"GRAY" + b"\0" * 108
    picture = from_pil(pixels("L"), {"icc_profile": grey})
    assert write_picture(picture, tmp_path / "a.png") == ()
    assert Image.open(tmp_path / "a.png").info["icc_profile"] == grey
    (note,) = write_picture(picture, tmp_path / "a.webp")  # has no grey
    assert "ICC" in note
    assert "icc_profile" not in Image.open(tmp_path / "a.webp").info


def test_maker_notes_survive_byte_for_byte(tmp_path):
    file = saved(pixels("RGB"), ".jpg", tmp_path, exif=exif_bytes(6))
    before, after = Image.open(file).info["exif"], read_picture(file).metadata["exif"]
    assert len(before) == len(after)
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert len(changed) == 1  # the orientation
    assert b"maker note bytes" in after


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
@pytest.mark.parametrize("orientation", [1, 6])
def test_exif_in_avif_says_nothing_of_the_orientation_and_else_what_it_said(tmp_path, orientation):
    tags = Image.Exif()
    tags[0x0112], tags[0x013B] = orientation, "Jürg".encode()
    tags[EXIF_BLOCK] = {0x927C: b"maker note bytes", 0x9286: b"ASCII\0\0\0a comment", 0x9201: -2.5}
    file = saved(pixels("RGB"), ".jpg", tmp_path, exif=tags.tobytes())
    before = read_picture(file)
    assert write_picture(before, tmp_path / "a.avif") == ()
    was, now = (
        data.removeprefix(b"Exif\0\0")
        for data in (before.metadata["exif"], Image.open(tmp_path / "a.avif").info["exif"])
    )
    end = 8 + 2 + 12 * 3 + 4  # of the first directory, of three entries
    assert was[8:10] == b"\0\3" and now[8:10] == b"\0\2" and was[end:] == now[end:]
    image = Image.open(tmp_path / "a.avif").getexif()
    assert 0x0112 not in image and image[0x013B].encode("latin-1") == "Jürg".encode()


@pytest.mark.parametrize("order", ["<", ">"])
def test_what_lies_behind_a_directory_that_ends_early_stays(order):
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 8)
    upright = struct.pack(f"{order}HHIHH", 0x0112, 3, 1, 1, 0)
    assert without_orientation(head + struct.pack(f"{order}H", 1) + upright + bytes(4)) == b""
    maker = struct.pack(f"{order}HHII", 0x010F, 2, 12, 8 + 2 + 24)  # where the place of the next should be
    block = head + struct.pack(f"{order}H", 2) + maker + upright + b"Hello World\0"
    assert without_orientation(block) == block
    number = struct.pack(f"{order}HHIHH", 0x8827, 3, 1, 100, 0)
    whole = head + struct.pack(f"{order}H", 2) + number + upright + bytes(4) + b"more"
    after = head + struct.pack(f"{order}H", 1) + number + bytes(16) + b"more"
    assert without_orientation(b"Exif\0\0" + whole) == b"Exif\0\0" + after
    for length in range(len(whole) - 4):
        assert without_orientation(whole[:length]) == whole[:length]


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_exif_that_says_how_a_picture_lies_is_written_without_what_is_no_text(tmp_path):
    lying = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
    rational = struct.pack("<HHII", 0x0131, 5, 1, 40)
    exif = b"II*\0\x08\0\0\0" + struct.pack("<H", 2) + lying + rational + bytes(6) + struct.pack("<II", 3, 2)
    assert write_picture(from_pil(pixels("RGB"), {"exif": b"Exif\0\0" + exif}), tmp_path / "a.avif") == ()
    assert Image.open(tmp_path / "a.avif").getexif().get(0x0112) == 6


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_damaged_exif_is_left_out_of_an_avif(tmp_path):
    (note,) = write_picture(from_pil(pixels("RGB"), {"exif": b"Exif\0\0nothing"}), tmp_path / "a.avif")
    assert "EXIF block is damaged" in note and "exif" not in Image.open(tmp_path / "a.avif").info


@pytest.mark.parametrize("suffix", [".tif", ".png", ".jpg", ".webp"])
def test_a_text_in_exif_that_is_none_is_left_out_alone(tmp_path, suffix):
    rational = struct.pack("<HHII", 0x0131, 5, 1, 200)
    maker = struct.pack("<HHI4s", 0x010F, 2, 4, b"Abc\0")
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 2) + maker + rational + bytes(4)
    exif += bytes(206 - len(exif)) + struct.pack("<II", 3, 2)
    picture = from_pil(pixels("RGB"), {"exif": exif})
    write_picture(picture, tmp_path / "a.tif")
    with Image.open(tmp_path / "a.tif") as image:
        assert image.getexif()[0x010F] == "Abc"
    tiff = saved(pixels("L"), ".tif", tmp_path, tiffinfo={0x0131: "text", 0x010F: "Abc"})
    data = tiff.read_bytes()
    text = struct.pack("<HHI", 0x0131, 2, 5)
    assert data.count(text) == 1
    tiff.write_bytes(data.replace(text, struct.pack("<HHI", 0x0131, 5, 1)))
    picture = read_picture(tiff)
    write_picture(picture, tmp_path / f"b{suffix}")
    assert read_picture(tmp_path / f"b{suffix}").pixels.shape[:2] == picture.pixels.shape[:2]


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp"])
def test_xmp_is_kept_with_its_orientation_reset(tmp_path, suffix):
    text = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6" dc="t"/></x:xmpmeta>'
    picture = from_pil(pixels("RGB"), {"xmp": text})
    write_picture(picture, tmp_path / f"a{suffix}")
    upright = b"" if suffix == ".tif" else b'tiff:Orientation="1"'  # Pillow takes it out of a TIFF
    kept = read_picture(tmp_path / f"a{suffix}").metadata["xmp"]
    assert kept == text.replace(b'tiff:Orientation="6"', upright)


@pytest.mark.parametrize("orientation", [3, 6])
def test_width_and_height_in_xmp_turn_with_the_picture(tmp_path, orientation):
    text = (
        b'<rdf tiff:Orientation="%d" tiff:ImageWidth="9" exif:PixelXDimension="9" exif:PixelYDimension="5">'
        b"<tiff:ImageLength>5</tiff:ImageLength></rdf>"
    )
    write_picture(from_pil(pixels("RGB"), {"xmp": text % orientation}), tmp_path / "a.jpg")
    turned = (
        b'<rdf tiff:Orientation="1" tiff:ImageLength="9" exif:PixelYDimension="9" exif:PixelXDimension="5">'
        b"<tiff:ImageWidth>5</tiff:ImageWidth></rdf>"
    )
    kept = read_picture(tmp_path / "a.jpg").metadata["xmp"]
    assert kept == (turned if orientation == 6 else text % 1)


def test_captions_and_comment_of_a_jpeg_are_kept_in_a_jpeg(tmp_path):
    caption = b"\x1c\x02\x78\x00\x09A caption"
    segment = b"Photoshop 3.0\0" + b"8BIM\x04\x25\0\0" + struct.pack(">I", 3) + b"abc\0"  # of another kind
    segment += b"8BIM\x04\x04\0\0" + struct.pack(">I", len(caption)) + caption
    pixels("RGB").save(
        tmp_path / "a.jpg",
        comment=b"said \xff",
        extra=b"\xff\xed" + struct.pack(">H", len(segment) + 2) + segment,
    )
    picture = read_picture(tmp_path / "a.jpg")
    assert write_picture(picture, tmp_path / "b.jpg") == ()
    with Image.open(tmp_path / "b.jpg") as again:
        assert IptcImagePlugin.getiptcinfo(again) == {(2, 120): b"A caption"}
        assert again.info["comment"] == b"said \xff" and list(again.info["photoshop"]) == [0x0404]
    (note,) = write_picture(picture, tmp_path / "b.png")
    assert note == "IPTC captions are kept in a JPEG alone, not in PNG"
    write_picture(picture.stripped(), tmp_path / "c.jpg")
    assert not any(word in (tmp_path / "c.jpg").read_bytes() for word in (b"caption", b"said", b"Photoshop"))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.tif", tiffinfo={33723: caption})
    picture = read_picture(tmp_path / "a.tif")
    assert picture.metadata["iptc"] == caption
    whole, said = caption.ljust(16, b"\0"), struct.pack("<HHI", 33723, 7, 16)
    for swapped in (False, True):  # numbers of 32 bits, as many write them
        stored = b"".join(whole[i : i + 4][:: -1 if swapped else 1] for i in range(0, 16, 4))
        Image.new("RGB", (8, 8)).save(tmp_path / "c.tif", tiffinfo={33723: stored})
        data = (tmp_path / "c.tif").read_bytes()
        assert data.count(said) == 1
        (tmp_path / "c.tif").write_bytes(data.replace(said, struct.pack("<HHI", 33723, 4, 4)))
        assert read_picture(tmp_path / "c.tif").metadata["iptc"] == whole
    assert write_picture(picture, tmp_path / "b.tif") == (
        "IPTC captions are kept in a JPEG alone, not in TIFF",
    )
    long = replace(picture, metadata={"iptc": caption * 10_000})
    assert write_picture(long, tmp_path / "d.jpg") == ("IPTC is too long for a JPEG",)


@pytest.mark.parametrize("dpi", [101600, 0.4])
def test_what_a_jpeg_cannot_hold_of_a_resolution_is_told(tmp_path, dpi):
    pixels = np.arange(216, dtype=np.uint8).reshape(8, 9, 3)
    picture = Picture(pixels, "RGB", "RGB", metadata={"dpi": (dpi, dpi)})
    assert write_picture(picture, tmp_path / "a.jpg") == ("a JPEG cannot hold the resolution",)
    assert "dpi" not in read_picture(tmp_path / "a.jpg").metadata
    unknown = replace(picture, metadata={"dpi": (0, 0)})
    assert write_picture(unknown, tmp_path / "c.jpg") == ()
    most = replace(picture, metadata={"dpi": (65535, 1)})
    assert write_picture(most, tmp_path / "b.jpg") == ()
    assert read_picture(tmp_path / "b.jpg").metadata["dpi"] == (65535, 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_png_with_a_profile_that_is_too_long_can_be_read(tmp_path, dtype):
    profile = bytes(16) + b"RGB " + bytes(1_100_000)
    pixels = np.arange(216, dtype=dtype).reshape(8, 9, 3)
    picture = Picture(pixels, "RGB", "RGB", metadata={"icc_profile": profile})
    note = "the ICC profile is too long for a PNG, so the colours look different"
    assert write_picture(picture, tmp_path / "a.png") == (note,)
    assert np.array_equal(read_picture(tmp_path / "a.png").pixels, picture.pixels)


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_equal_pages_that_become_one_frame_are_told(tmp_path, suffix):
    pages = [Image.fromarray(np.full((9, 12, 3), value, np.uint8)) for value in (9, 0, 0, 5)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    picture = read_picture(tmp_path / "a.tif", every=True)
    notes = write_picture(picture, tmp_path / f"a{suffix}")
    assert notes[-1] == f"equal pages in a row are one frame in {suffix[1:].upper()}"
    assert len(read_picture(tmp_path / f"a{suffix}", every=True).frames) == 3
    others = replace(picture, more=picture.more[1:])
    assert not any("equal" in note for note in write_picture(others, tmp_path / f"b{suffix}"))
    lossy = write_picture(others, tmp_path / "c.webp", quality=50)
    assert lossy[-1] == "nearly equal pages in a row are one frame in WEBP"


def test_writing_an_opened_animation_tells_what_is_lost(tmp_path):
    frames = [Image.fromarray(np.full((9, 12, 3), value, np.uint8)) for value in (9, 0)]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:])
    with Image.open(tmp_path / "a.webp") as image:
        notes = write_picture(image, tmp_path / "a.png")
    assert notes == ("only the first of several pictures in the file is used",)


def test_texts_of_a_png_are_kept_in_a_png(tmp_path):
    chunks = PngImagePlugin.PngInfo()
    texts = {
        "parameters": "a cat, " * 300,
        "Copyright": "\N{COPYRIGHT SIGN} m\N{LATIN SMALL LETTER E WITH ACUTE}",
    }
    for key, text in texts.items():
        chunks.add_text(key, text)
    chunks.add_itxt("Title", "\N{CJK UNIFIED IDEOGRAPH-732B}", "zh", "title")
    chunks.add_itxt("XML:com.adobe.xmp", "<x:xmpmeta/>")
    pixels("RGB").save(tmp_path / "a.png", pnginfo=chunks)
    picture = read_picture(tmp_path / "a.png")
    assert write_picture(picture, tmp_path / "b.png") == ()
    with Image.open(tmp_path / "b.png") as again:
        assert again.text == texts | {
            "Title": "\N{CJK UNIFIED IDEOGRAPH-732B}",
            "XML:com.adobe.xmp": "<x:xmpmeta/>",
        }
        assert again.text["Title"].lang == "zh"
    assert write_picture(picture, tmp_path / "b.jpg") == ()
    write_picture(picture.stripped(), tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as again:
        assert again.text == {}
    with Image.open(tmp_path / "a.png") as image:  # as models give one back
        whole = Image.new("RGB", (8, 6))
        whole.info["text"] = dict(image.text)
    write_picture(whole, tmp_path / "e.png")
    with Image.open(tmp_path / "e.png") as again:
        assert again.text["Title"] == "\N{CJK UNIFIED IDEOGRAPH-732B}"
    kanji = "\N{CJK UNIFIED IDEOGRAPH-732B}"
    for wrong in ({"a": b"no"}, {"": "x"}, {kanji: "x"}, {"a": "\ud800"}, {"a\0": "x"}, {80 * "a": "x"}):
        with pytest.raises(ImageError, match="'text' must be a dict of str"):
            write_picture(replace(picture, metadata={"text": wrong}), tmp_path / "d.png")
    long = {"workflow": 1_200_000 * "b", "more": 400_000 * "\N{CJK UNIFIED IDEOGRAPH-732B}"}
    write_picture(replace(picture, metadata={"text": long}), tmp_path / "f.png")
    assert read_picture(tmp_path / "f.png").metadata["text"] == long


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_orientation_is_applied_and_reset(tmp_path, orientation, suffix):
    upright = np.asarray(pixels("RGB"))
    # What a camera stores so that the orientation tag makes it upright again.
    stored = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }
    image = Image.fromarray(np.ascontiguousarray(stored[orientation](upright)))
    file = saved(image, suffix, tmp_path, exif=exif_bytes(orientation), dpi=(300, 150))
    picture = read_picture(file)
    assert np.array_equal(picture.pixels, upright)
    write_picture(picture, tmp_path / f"out{suffix}")
    out = Image.open(tmp_path / f"out{suffix}")
    assert out.getexif().get(0x0112, 1) == 1
    assert np.array_equal(np.asarray(out), upright)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["II", "MM"])
def test_width_and_height_in_exif_turn_with_the_picture(tmp_path, orientation, order):
    exif = Image.Exif()
    exif.endian = {"II": "<", "MM": ">"}[order]
    exif[0x0100], exif[0x0101] = 160, 70_000
    exif[0x0112], exif[0x8769] = orientation, {0x9003: "2024", 0xA002: 9000, 0xA003: 70_000, 0xA405: 35}
    block = exif.tobytes()
    assert block[6:8] == order.encode()
    file = saved(pixels("RGB"), ".jpg", tmp_path, exif=block)
    inner = dict(Image.open(file).getexif().get_ifd(0x8769))
    sides = (9000, 70_000) if orientation < 5 else (70_000, 9000)
    wanted = inner | dict(zip((0xA002, 0xA003), sides, strict=True))
    picture = read_picture(file)
    again = Image.Exif()
    again.load(picture.metadata["exif"])
    assert again.get_ifd(0x8769) == wanted
    assert (again[0x0100], again[0x0101]) == ((160, 70_000) if orientation < 5 else (70_000, 160))
    again = Image.Exif()
    again.load(described(Image.open(file).getexif()))  # as for a file whose block cannot be walked
    assert again.get_ifd(0x8769) == wanted
    damaged = block.replace(struct.pack(exif.endian + "I", 62), struct.pack(exif.endian + "I", 62_000), 1)
    assert damaged != block
    for cut in (damaged, block[:-40]):
        kept = read_picture(saved(pixels("RGB"), ".jpg", tmp_path, exif=cut)).metadata["exif"]
        places = [i for i, (a, b) in enumerate(zip(kept, cut, strict=True)) if a != b]
        assert not places or places[-1] < 6 + 8 + 2 + 4 * 12  # of width, height and orientation


def test_an_animation_in_avif_plays_for_ever(tmp_path):
    pytest.importorskip("PIL._avif")
    first, second = (from_pil(image, {"loop": 3}) for image in shades(10, 200))
    (note,) = write_picture(replace(first, more=(second,)), tmp_path / "a.avif")
    assert note == "AVIF plays the animation over and over, not 3 times"
    again = read_picture(tmp_path / "a.avif", every=True)
    assert len(again.more) == 1 and again.metadata["loop"] == 0
    assert write_picture(again, tmp_path / "b.avif") == ()
    write_picture(again, tmp_path / "b.webp")
    assert frames_of(tmp_path / "b.webp")[1] == 0
    write_picture(first, tmp_path / "c.avif")
    assert "loop" not in read_picture(tmp_path / "c.avif").metadata


@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg"])
@pytest.mark.parametrize("square", [False, True])
def test_resolution_turns_with_the_picture(tmp_path, suffix, square):
    shown = pixels("RGB")
    shown = shown.resize((20, 20)) if square else shown
    for orientation, dpi in ((3, [300, 150]), (6, [150, 300])):
        file = saved(shown, suffix, tmp_path, exif=exif_bytes(orientation), dpi=(300, 150))
        assert [round(d) for d in read_picture(file).metadata["dpi"]] == dpi


# ---- bad files


def test_missing_folder_empty_and_foreign_files_say_what_they_are(tmp_path):
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("this is no picture at all")
    (tmp_path / "page.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    for name, words in {
        "none.png": "no such file",
        "empty.png": "is empty",
        "text.png": "not a picture",
        "page.eps": "not a picture",
        ".": "is a folder",
    }.items():
        with pytest.raises(ImageError, match=words) as caught:
            read_picture(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp", ".gif", ".ppm", ".jp2", ".avif"])
def test_truncated_files_are_refused(tmp_path, suffix):
    rng = np.random.default_rng(1)
    file = saved(Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)), suffix, tmp_path)
    data = file.read_bytes()
    for keep in (len(data) // 2, 40):
        with pytest.raises(ImageError, match=r"damaged|truncated|not a picture") as caught:
            read_picture(data[:keep], "x")
        assert "\n" not in str(caught.value)


def test_flipped_bytes_never_raise_anything_else():
    rng = np.random.default_rng(2)
    buffer = io.BytesIO()
    pixels("RGB").save(buffer, "PNG")
    for i in range(200):
        data = bytearray(buffer.getvalue())
        for place in rng.integers(0, len(data), 3):
            data[place] = rng.integers(0, 256)
        try:
            read_picture(bytes(data), f"case {i}")
        except ImageError as error:
            assert str(error).startswith(f"case {i}: ")


def test_a_pipe_is_read_like_a_file(tmp_path):
    file = saved(pixels("RGB"), ".png", tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(file.read_bytes()))
    writer.start()
    try:
        assert np.array_equal(read_picture(pipe).pixels, read_picture(file).pixels)
    finally:
        writer.join()


def test_what_cannot_be_opened_says_why(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(ImageError, match="cannot be read"):
            read_picture(tmp_path / "s")


def test_a_limit_that_is_no_number_is_named(monkeypatch, tmp_path):
    data = deep_png(2, 1, 8, 0, rows=b"\0\0\0")
    (tmp_path / "a.png").write_bytes(data)
    for text in ("1e9", "0", "9" * 5000):
        monkeypatch.setenv("ZENITH_MAX_PIXELS", text)
        for source in (data, tmp_path / "a.png"):
            with pytest.raises(ConfigError, match=r"^ZENITH_MAX_PIXELS must be a positive number"):
                read_picture(source)


def test_decompression_bomb_is_refused_before_it_is_decoded(monkeypatch):
    bomb = deep_png(60000, 60000, 8, 2, rows=b"\0" * 1000)
    with pytest.raises(ImageError, match=r": 60000 x 60000 pixels exceed the limit .* ZENITH_MAX_PIXELS"):
        read_picture(bomb, "bomb.png")
    small = deep_png(200, 100, 8, 0, rows=b"\0" * 201 * 100)
    assert read_picture(small).width == 200
    monkeypatch.setenv("ZENITH_MAX_PIXELS", "19999")
    with pytest.raises(ImageError, match="exceed"):
        read_picture(small)


@pytest.mark.parametrize("format", ["PNG", "TIFF", "GIF", "WEBP"])
def test_pictures_above_the_limit_of_pillow_are_read_and_its_setting_is_left_alone(format, monkeypatch):
    """Pillow looks at it when it opens a file, and for some formats at each page again."""
    first, second = (Image.new("L", (200, 100), value) for value in (0, 255))
    first.save(file := io.BytesIO(), format, save_all=True, append_images=[second])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = read_picture(file.getvalue(), every=True)
    assert [frame.pixels.shape[:2] for frame in picture.frames] == [(100, 200)] * 2
    assert Image.MAX_IMAGE_PIXELS == 1000
    with pytest.raises(ImageError, match="limit of 19999"):
        read_picture(file.getvalue(), max_pixels=19_999)
    assert Image.MAX_IMAGE_PIXELS == 1000


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "PPM", "JPEG2000"])
def test_reading_leaves_what_the_whole_process_shares_alone(format, monkeypatch):
    """Filters of warnings and Pillow's limit: other threads would see them, and may set them meanwhile."""
    seen = []

    class File(io.BytesIO):
        def read(self, *size):
            seen.append((Image.MAX_IMAGE_PIXELS, list(warnings.filters)))
            return super().read(*size)

    Image.new("RGB", (20, 10)).save(file := File(), format)
    file.seek(0)
    before = Image.MAX_IMAGE_PIXELS, list(warnings.filters)
    with monkeypatch.context() as patch:
        patch.setattr(warnings, "catch_warnings", lambda: pytest.fail("is no thread's own"))
        assert images._read(file, "a", None, True).width == 20
    assert len(seen) > 1
    assert all(now == before for now in seen)


@pytest.mark.parametrize("others", [10, 10**9])
def test_one_reader_leaves_the_limit_of_pillow_raised_for_another(monkeypatch, others):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with images._pillow_allows(others):
        assert read_picture(deep_png(200, 100, 8, 0, rows=b"\0" * 201 * 100)).height == 100
        assert others <= Image.MAX_IMAGE_PIXELS == max(others, images.MAX_PIXELS)
    assert Image.MAX_IMAGE_PIXELS == 1000


@pytest.mark.parametrize("first", [True, False])
def test_a_frame_beyond_the_screen_of_a_gif_is_refused_before_it_is_made(first):
    """Pillow makes a picture of its size when it goes to such a frame: see the message, which is of then."""
    pixels = b"\x02\x07\x8c\x8f\xa9\xcb\xed\x0f\xa3\0"

    def frame(side: int, disposal: int) -> bytes:
        control = b"\x21\xf9\x04" + bytes([disposal << 2]) + b"\x0a\0\0\0"
        return control + b"," + struct.pack("<HHHHB", 0, 0, side, side, 0) + pixels

    frames = [frame(2000, 2), frame(4, 1)] if first else [frame(4, 1), frame(2000, 2)]
    head = b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0x81, 0, 0) + bytes(12)
    with pytest.raises(ImageError, match=": 4000000 pixels exceed the limit of 1000000"):
        read_picture(head + b"".join(frames) + b";", max_pixels=10**6, every=True)


def test_a_tile_larger_than_its_picture_counts_by_itself():
    packed = zlib.compress(bytes(1000))
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: 4096, 323: 4096, 324: 200}
    tags[325] = len(packed)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    data = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    with pytest.raises(ImageError, match="4096 x 4096 pixels exceed the limit of 1000000"):
        read_picture(data.ljust(200, b"\0") + packed, max_pixels=10**6)


def test_text_bomb_in_a_png_is_an_image_error():
    data = deep_png()
    payload = b"Comment\0\0" + zlib.compress(b"\0" * 100_000_000, 9)
    chunk = (
        struct.pack(">I", len(payload)) + b"zTXt" + payload + struct.pack(">I", zlib.crc32(b"zTXt" + payload))
    )
    with pytest.raises(ImageError):
        read_picture(data[:33] + chunk + data[33:])


# ---- atomic writing


@pytest.mark.parametrize("nameless", [True, False])
def test_names_may_be_as_long_as_a_file_system_has_them(tmp_path, monkeypatch, nameless):
    if not nameless:
        monkeypatch.setattr("zenith_ae.files._open_nameless", lambda _: None)
    longest = tmp_path / ("あ" * 83 + ".txt")  # 253 bytes
    with atomic_writer(longest) as file:
        file.write(b"whole")
    assert longest.read_bytes() == b"whole"
    with (
        pytest.raises(OutputError, match="too long; give it a shorter name"),
        atomic_writer(tmp_path / ("あ" * 90)) as file,
    ):
        file.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == [longest.name]


def test_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "a.png"
    target.write_bytes(b"old")
    written = []

    def full(self, data):
        written.append(bytes(data))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files._Writer, "write", full)
    with pytest.raises(
        OutputError, match=r"a\.png: cannot write: No space left on device; nothing was replaced"
    ):
        write_picture(from_pil(pixels("RGB")), target)
    assert written
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.png"]


def test_disk_that_fills_up_at_the_last_flush_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(OutputError, match="No space left"), atomic_writer(tmp_path / "a") as file:
        file.write(b"x")
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_device_is_an_output_error():
    with pytest.raises(OutputError, match="No space left"), atomic_writer("/dev/full") as file:
        file.write(b"x" * 100)


def test_read_only_folder_is_an_output_error(tmp_path, monkeypatch):
    def refuse(path, mode, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files.io, "FileIO", refuse)
    with pytest.raises(OutputError, match=r"a\.png: cannot write: Permission denied; choose another place"):
        write_picture(from_pil(pixels("RGB")), tmp_path / "a.png")


def test_folder_that_does_not_exist_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="No such file or directory"):
        write_picture(from_pil(pixels("RGB")), tmp_path / "none" / "a.png")


def test_any_exception_removes_the_temporary_file(tmp_path):
    with pytest.raises(KeyboardInterrupt), atomic_writer(tmp_path / "a") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux's")
@pytest.mark.parametrize("reason", [errno.EPERM, errno.ENOENT, errno.EINVAL])
def test_where_a_file_cannot_get_its_name_by_a_link_it_is_copied(tmp_path, monkeypatch, reason):
    if files._open_nameless(tmp_path) is None:
        pytest.skip("this file system has no files without a name")

    def refuse(*_, **__):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "link", refuse)
    content = os.urandom(3 * 2**20 + 17)
    (tmp_path / "a").write_bytes(b"old")
    with atomic_writer(tmp_path / "a") as file:
        file.write(content)
    assert (tmp_path / "a").read_bytes() == content
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux's")
def test_a_new_file_has_no_other_name_before_its_own(tmp_path, monkeypatch):
    if files._open_nameless(tmp_path) is None:
        pytest.skip("this file system has no files without a name")
    link, seen = os.link, []

    def note(*args, **keywords):
        try:
            link(*args, **keywords)
        finally:
            seen.append(sorted(os.listdir(tmp_path)))

    monkeypatch.setattr(os, "link", note)
    with atomic_writer(tmp_path / "a") as file:
        file.write(b"first")
    assert seen == [["a"]]  # a program killed right after it leaves nothing else
    with atomic_writer(tmp_path / "a") as file:
        file.write(b"second")
    assert [len(names) for names in seen[1:]] == [1, 2]
    assert (tmp_path / "a").read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux's")
def test_where_neither_link_nor_copy_can_be_the_old_file_stays(tmp_path, monkeypatch):
    if files._open_nameless(tmp_path) is None:
        pytest.skip("this file system has no files without a name")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(os, "pread", full)  # in the midst of the copy
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(OutputError, match="No space left"), atomic_writer(tmp_path / "a") as file:
        file.write(b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("links", [None, errno.EPERM, errno.ENOTSUP, errno.EINVAL, errno.EIO])
def test_what_is_not_to_be_overwritten_stays_also_where_it_comes_late(tmp_path, monkeypatch, nameless, links):
    def refuse(*_, **__):
        raise OSError(links, os.strerror(links))

    if not nameless:
        monkeypatch.setattr(files, "_open_nameless", lambda _: None)
    if links:
        monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "a.png"
    write_picture(from_pil(pixels("RGB")), target, overwrite=False)
    assert os.listdir(tmp_path) == ["a.png"]
    whole = target.read_bytes()
    with pytest.raises(FileExistsError, match=r"a\.png: exists, and was not replaced"):
        write_picture(from_pil(pixels("RGB")), target, overwrite=False)
    assert target.read_bytes() == whole
    target.unlink()
    with pytest.raises(ExistsError), atomic_writer(target, overwrite=False) as file:
        target.write_bytes(b"theirs")
        file.write(b"ours")
    assert target.read_bytes() == b"theirs"
    with atomic_writer(target) as file:
        file.write(b"ours")
    assert target.read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["a.png"]
    with pytest.raises(OutputError, match="too long"):
        write_picture(from_pil(pixels("RGB")), tmp_path / f"{'n' * 300}.png", overwrite=False)


def test_links_are_followed_and_permissions_kept(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    with atomic_writer(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="extended attributes are Linux's here")
@pytest.mark.parametrize("nameless", [True, False])
def test_what_replaces_a_private_file_is_private_from_its_first_moment(tmp_path, monkeypatch, nameless):
    private, modes = tmp_path / "private", []
    private.write_bytes(b"old")
    private.chmod(0o600)
    noted = True
    try:
        os.setxattr(private, "user.note", b"mine")
    except OSError:  # this file system has none
        noted = False

    def look(*arguments, real=os.replace):
        modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir())
        return real(*arguments)

    if not nameless:
        monkeypatch.setattr(files, "_open_nameless", lambda folder: None)
    monkeypatch.setattr(os, "replace", look)
    before = os.umask(0)
    try:
        with atomic_writer(private) as file:
            file.write(b"new")
            file.flush()
            modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir())
        assert set(modes) == {0o600} and len(modes) >= 3
        with atomic_writer(tmp_path / "public") as file:
            file.write(b"for all")
    finally:
        os.umask(before)
    assert private.read_bytes() == b"new" and private.stat().st_mode & 0o777 == 0o600
    assert not noted or os.getxattr(private, "user.note") == b"mine"
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o666


def test_encoding_to_a_stream_equals_the_file(tmp_path):
    picture = from_pil(pixels("RGB"))
    buffer = io.BytesIO()
    encode_picture(picture, buffer, ".png")
    write_picture(picture, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == buffer.getvalue()


# ---- animations and documents


def frames_of(path):
    with Image.open(path) as image:
        found = []
        for i in range(image.n_frames):
            image.seek(i)
            found.append((image.convert("RGBA"), image.info.get("duration")))
        return found, image.info.get("loop")


def shades(*values, mode="RGB", size=(12, 9)):
    return [Image.new(mode, size, value if mode == "L" else (value, 255 - value, 40)) for value in values]


@pytest.mark.parametrize(("suffix", "options"), [("gif", {}), ("png", {}), ("webp", {"lossless": True})])
def test_every_frame_of_an_animation_is_read_and_written(tmp_path, suffix, options):
    first, *rest = shades(10, 90, 200)
    source, target = tmp_path / f"a.{suffix}", tmp_path / f"b.{'png' if suffix == 'gif' else suffix}"
    first.save(source, save_all=True, append_images=rest, duration=[100, 50, 300], loop=0, **options)
    picture = read_picture(source, every=True)
    assert len(picture.more) == 2
    assert len({p.layout for p in (picture, *picture.more)}) == 1
    inverted = picture.map(
        lambda p: p.with_pixels(np.concatenate([255 - p.pixels[..., :3], p.pixels[..., 3:]], 2))
    )
    assert write_picture(inverted, target) == ()
    before, _ = frames_of(source)
    after, loop = frames_of(target)
    assert [d for _, d in after] == [100, 50, 300]
    assert loop == 0
    for (old, _), (new, _) in zip(before, after, strict=True):
        old, new = np.asarray(old).astype(int), np.asarray(new).astype(int)
        assert np.abs(255 - old[..., :3] - new[..., :3]).max() <= 1


def test_pages_of_a_tiff_keep_their_sizes_and_modes(tmp_path):
    pages = [*shades(10, size=(12, 9)), *shades(77, mode="L", size=(5, 20))]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    picture = read_picture(tmp_path / "a.tif", every=True)
    write_picture(picture, tmp_path / "b.tif")
    with Image.open(tmp_path / "b.tif") as image:
        assert image.n_frames == 2
        assert (image.size, image.mode) == ((12, 9), "RGB")
        image.seek(1)
        assert (image.size, image.mode, image.getpixel((0, 0))) == ((5, 20), "L", 77)


@pytest.mark.parametrize("account", ["ImageJ=1.11a\nimages=2", '{"shape": [2, 9, 12]}', "<?xml?><OME/>"])
@pytest.mark.parametrize("described", [0, 1])
def test_a_programs_account_of_its_pages_is_not_kept(tmp_path, account, described):
    """Programs that wrote one believe it, and take the pages for one block of pixels without compression."""
    pages = shades(10, 90, 200, mode="L")
    tags = Image.Exif()
    tags[0x010E], tags[0x0131] = account, "a program"
    pages[described].encoderinfo = {"tiffinfo": tags}  # of the first page, or of the second alone
    first = {"tiffinfo": tags} if described == 0 else {}
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:], **first)
    write_picture(read_picture(tmp_path / "a.tif", every=True), tmp_path / "b.tif")
    jpeg = Image.new("L", (12, 9))
    jpeg.save(tmp_path / "c.jpg", exif=tags)
    write_picture(read_picture(tmp_path / "c.jpg"), tmp_path / "c.tif")
    compressions = []
    for name, count in (("b", 3), ("c", 1)):
        with Image.open(tmp_path / f"{name}.tif") as image:
            for i in range(count):
                image.seek(i)
                assert 0x010E not in image.tag_v2
                compressions.append(image.tag_v2[259])
            image.seek(described if count == 3 else 0)
            assert image.tag_v2[0x0131] == "a program"
    assert compressions == [1] * 4  # pages that differ are taken for several documents


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("suffix", ["tif", "jpg", "png", "webp"])
def test_letters_beyond_ascii_stay_in_exif(tmp_path, encoding, suffix):
    text = "Größe © Jörg".encode(encoding)
    tags = Image.Exif()
    tags[0x010E], tags[0x8298] = text, text
    tags[EXIF_BLOCK] = {0xA430: text, 0xA005: 220}  # the camera's owner, and a place in that file
    Image.new("RGB", (12, 9)).save(tmp_path / "a.jpg", exif=tags)
    write_picture(read_picture(tmp_path / "a.jpg"), tmp_path / f"b.{suffix}")
    write_picture(read_picture(tmp_path / "a.jpg"), tmp_path / "c.tif")
    write_picture(read_picture(tmp_path / "c.tif"), tmp_path / f"d.{suffix}")
    for name in ("a.jpg", f"b.{suffix}", "c.tif", f"d.{suffix}"):
        assert (tmp_path / name).read_bytes().count(text) == 3, name
    with Image.open(tmp_path / "c.tif") as image:
        assert set(image.getexif().get_ifd(EXIF_BLOCK)) == {0xA430}


def test_texts_in_exif_stay_texts(tmp_path):
    owner = "Größe".encode()
    tags = Image.Exif()
    tags[EXIF_BLOCK] = {0xA430: owner}
    Image.new("RGB", (12, 9)).save(tmp_path / "a.jpg", exif=tags)
    field, as_bytes, as_text = (struct.pack(">HHI", 0xA430, kind, len(owner)) for kind in (0, 1, 2))
    data = (tmp_path / "a.jpg").read_bytes()
    assert field != as_bytes and data.count(as_bytes) == 1  # Pillow, given bytes, says that they are none
    (tmp_path / "a.jpg").write_bytes(data.replace(as_bytes, as_text))
    write_picture(read_picture(tmp_path / "a.jpg"), tmp_path / "b.tif")
    with Image.open(tmp_path / "b.tif") as image:
        assert image.getexif().get_ifd(EXIF_BLOCK)[0xA430] == owner.decode("latin-1")


def test_further_pictures_in_a_jpeg_are_told_of(tmp_path):
    xmp = (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description rdf:about="it" hdrgm:Version="1.0" a:b="c">'
        b"<hdrgm:GainMapMax>2.5</hdrgm:GainMapMax>"
        b'<Container:Directory><Item Item:Semantic="GainMap"/></Container:Directory><kept/></rdf:Description>'
    )
    first, second = shades(10, 90)
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[second])
    assert read_picture(tmp_path / "a.jpg").notes == (
        "further pictures in the JPEG (a preview, a second view) are not kept",
    )
    first.save(tmp_path / "b.jpg", xmp=xmp)
    picture = read_picture(tmp_path / "b.jpg", every=True)
    assert picture.notes == ("the HDR gain map is not kept",)
    assert picture.metadata["xmp"] == (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description rdf:about="it" a:b="c">'
        b"<kept/></rdf:Description>"
    )


def test_what_lies_behind_a_jpeg_is_told_of_and_its_xmp_claims_it_no_more(tmp_path):
    """A video of some seconds, as phones have it, and the second part of XMP that is longer than 64 KiB."""
    xmp = (
        b"<rdf:Description GCamera:MotionPhoto=\"1\" GCamera:MotionPhotoVersion='1'"
        b' GCamera:MicroVideoOffset="99" xmpNote:HasExtendedXMP="0F1E" a:b="c">'
        b"<GCamera:MicroVideo>1</GCamera:MicroVideo>"
        b'<Container:Directory><Item Item:Semantic="MotionPhoto" Item:Length="99"/>'
        b"</Container:Directory><kept/>"
    )
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", xmp=xmp)
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes() + bytes(99))
    picture = read_picture(tmp_path / "a.jpg")
    video, more = "the video of the motion photo is not kept", "the second part of long XMP is not kept"
    assert picture.notes == (video, more)
    assert picture.metadata["xmp"] == b'<rdf:Description a:b="c"><kept/>'
    write_picture(picture, tmp_path / "b.jpg")
    assert read_picture(tmp_path / "b.jpg").notes == ()
    still = xmp.replace(b'MotionPhoto="1"', b'MotionPhoto="0"').replace(b">1<", b">0<")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", xmp=still)
    assert read_picture(tmp_path / "a.jpg").notes == (more,)


def test_made_up_xmp_takes_no_long_time(tmp_path):
    """A search that begins anew at each opening would take hours, longer than tests have."""
    xmp = b'<x hdrgm:Version="1">' + b"<Container:Directory>" * 400_000 + b" hdrgm:A='" * 100_000
    Image.new("RGB", (8, 8)).save(tmp_path / "a.webp", xmp=xmp)
    assert read_picture(tmp_path / "a.webp").notes == ("the HDR gain map is not kept",)


@pytest.mark.parametrize(("transfer", "noted"), [(13, 0), (16, 1)])
@pytest.mark.parametrize("before", [0, 70_000], ids=["", "behind much else"])
def test_colours_that_only_cicp_describes_are_told_of(transfer, noted, before):
    Image.new("RGB", (4, 4)).save(file := io.BytesIO(), "PNG", exif=b"Exif\0\0" + bytes(before))
    data = file.getvalue()
    chunk = b"cICP" + bytes([1, transfer, 0, 1])
    chunk = b"\0\0\0\4" + chunk + struct.pack(">I", zlib.crc32(chunk))
    at = data.index(b"IDAT") - 4
    notes = read_picture(data[:at] + chunk + data[at:]).notes
    assert ["cICP" in note for note in notes] == [True] * noted


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
@pytest.mark.parametrize(("primaries", "transfer", "noted"), [(1, 13, 0), (2, 2, 0), (9, 16, 1), (12, 13, 1)])
def test_colours_that_only_nclx_describes_are_told_of(primaries, transfer, noted):
    Image.new("RGB", (16, 16)).save(file := io.BytesIO(), "AVIF")
    data = bytearray(file.getvalue())
    at = data.index(b"nclx") + 4
    data[at : at + 4] = [0, primaries, 0, transfer]
    notes = read_picture(bytes(data)).notes
    assert ["nclx" in note for note in notes] == [True] * noted
    profiled = io.BytesIO()
    Image.new("RGB", (16, 16)).save(profiled, "AVIF", icc_profile=b"a profile of its own")
    assert read_picture(profiled.getvalue()).notes == ()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 80))
def test_any_bytes_may_stand_where_an_avif_has_boxes(junk, length):
    boxes = struct.pack(">I4s4x", length, b"meta") + struct.pack(">I4s", length, b"iprp") + junk
    assert avif_colours(io.BytesIO(boxes)) is None or b"nclx" in junk


@pytest.mark.parametrize("suffix", [".bmp", ".ppm", ".jp2", ".png"])
def test_a_pillow_image_on_its_side_is_upright_where_no_exif_says_so(tmp_path, suffix):
    image = Image.new("RGB", (12, 8), (250, 10, 10))
    tags = Image.Exif()
    tags[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=tags)
    with Image.open(tmp_path / "a.jpg") as opened:
        write_picture(opened, tmp_path / f"b{suffix}")
    picture = read_picture(tmp_path / f"b{suffix}")
    assert (picture.width, picture.height) == (8, 12)


def test_a_gif_plays_as_often_and_as_fast_in_other_formats(tmp_path):
    """A GIF counts how often to repeat, and without delays it is shown at ten frames a second."""
    first, *rest = shades(10, 90, 200)
    first.save(tmp_path / "a.gif", save_all=True, append_images=rest, loop=2)
    write_picture(read_picture(tmp_path / "a.gif", every=True), tmp_path / "a.png")
    frames, loop = frames_of(tmp_path / "a.png")
    assert [duration for _, duration in frames] == [100, 100, 100]
    assert loop == 3
    first.save(tmp_path / "b.gif", save_all=True, append_images=rest, loop=65535)  # as often as a GIF can
    write_picture(read_picture(tmp_path / "b.gif", every=True), tmp_path / "b.webp")
    assert frames_of(tmp_path / "b.webp")[1] == 65535


def test_formats_for_one_picture_say_that_they_hold_the_first(tmp_path):
    first, *rest = shades(10, 90)
    first.save(tmp_path / "a.gif", save_all=True, append_images=rest)
    notes = write_picture(read_picture(tmp_path / "a.gif", every=True), tmp_path / "b.jpg")
    assert notes == ("JPEG holds one picture, so it is the first of 2",)
    assert "only the first" in read_picture(tmp_path / "a.gif").notes[0]


def test_small_frames_count_for_what_they_take(tmp_path):
    first, *rest = shades(*range(0, 200, 20))
    first.save(tmp_path / "a.png", save_all=True, append_images=rest)
    read_picture(tmp_path / "a.png", every=True, max_pixels=10 * images.LEAST_SIDE**2)
    with pytest.raises(ImageError, match="10 times 12 x 9 pixels, which count as 16384, exceed"):
        read_picture(tmp_path / "a.png", every=True, max_pixels=10 * images.LEAST_SIDE**2 - 1)
    first.save(tmp_path / "a.tif", save_all=True, append_images=rest)
    with pytest.raises(ImageError, match="after 49152 on earlier pages exceed"):
        read_picture(tmp_path / "a.tif", every=True, max_pixels=4 * images.LEAST_SIDE**2 - 1)


def test_narrow_pictures_count_for_the_width_that_they_are_computed_in(tmp_path):
    side = images.LEAST_SIDE
    for size, count in (
        ((1, 3 * side), 3 * side**2),
        ((side + 1, side - 1), (side + 1) * side),
        ((9, side), 9 * side),
    ):
        Image.new("L", size).save(tmp_path / "a.png")
        assert read_picture(tmp_path / "a.png", max_pixels=count).pixels.shape[:2] == size[::-1]
        with pytest.raises(
            ImageError, match=f"{size[0]} x {size[1]} pixels.* exceed the limit of {count - 1}"
        ):
            read_picture(tmp_path / "a.png", max_pixels=count - 1)


def test_sixteen_bits_that_are_hardly_used_are_noted(tmp_path):
    values = np.array([[0, 1000], [3000, 4080]], np.uint16)
    for factor, noted in ((1, "end at 4080 of 65535: if these are 12 bits, multiply them by 16"), (2, None)):
        Image.fromarray(values * np.uint16(factor)).save(tmp_path / "a.tif")
        notes = read_picture(tmp_path / "a.tif").notes
        assert [noted in note for note in notes] == ([True] if noted else [])
    Image.fromarray(values * 0).save(tmp_path / "a.tif")
    assert read_picture(tmp_path / "a.tif").notes == ()


def test_open_files_may_give_any_kind_of_bytes():
    stream = io.BytesIO()
    Image.new("L", (3, 2), 7).save(stream, "PNG")

    class File:
        def __init__(self, kind):
            self.kind = kind

        def read(self):
            return self.kind(stream.getvalue())

    for kind in (bytes, bytearray, memoryview):
        assert (read_picture(File(kind)).pixels == 7).all()
    with pytest.raises(ImageError, match="is open as text"):
        read_picture(File(lambda data: data.decode("latin-1")))


def test_all_frames_count_for_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "LEAST_SIDE", 1)
    first, *rest = shades(*range(0, 200, 20))
    first.save(tmp_path / "a.png", save_all=True, append_images=rest)
    assert len(read_picture(tmp_path / "a.png", every=True, max_pixels=10 * 12 * 9).more) == 9
    with pytest.raises(ImageError, match="10 times 12 x 9 pixels exceed"):
        read_picture(tmp_path / "a.png", every=True, max_pixels=10 * 12 * 9 - 1)
    read_picture(tmp_path / "a.png", max_pixels=12 * 9)
    pages = [*shades(1, size=(4, 4)), *shades(2, size=(40, 40))]
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ImageError, match="40 x 40 pixels after 16 on earlier pages exceed"):
        read_picture(tmp_path / "b.tif", every=True, max_pixels=40 * 40 + 15)


def test_a_large_picture_in_an_icon_is_refused_before_it_is_decoded(tmp_path):
    inside = io.BytesIO()
    Image.new("L", (3000, 3000)).save(inside, "PNG")
    data = inside.getvalue()
    entry = struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 8, len(data), 22)
    with pytest.raises(ImageError, match="limit of 1000"):
        read_picture(struct.pack("<HHH", 0, 1, 1) + entry + data, max_pixels=1000)


def test_pages_that_an_animation_cannot_hold_are_left_out_with_a_word(tmp_path):
    sizes = [*shades(10, size=(12, 9)), *shades(77, size=(5, 20))]
    sizes[0].save(tmp_path / "a.tif", save_all=True, append_images=sizes[1:])
    notes = write_picture(read_picture(tmp_path / "a.tif", every=True), tmp_path / "a.png")
    assert notes == ("PNG holds pictures of one size, so it is the first of 2",)
    deep = [Image.fromarray(np.full((4, 5), value, np.uint16)) for value in (1000, 60001)]
    deep[0].save(tmp_path / "b.tif", save_all=True, append_images=deep[1:])
    picture = read_picture(tmp_path / "b.tif", every=True)
    assert write_picture(picture, tmp_path / "b.png") == (
        "PNG holds one picture of 16 bits, so it is the first of 2",
    )
    assert read_picture(tmp_path / "b.png").pixels[0, 0, 0] == 1000
    write_picture(picture, tmp_path / "c.tif")
    assert read_picture(tmp_path / "c.tif", every=True).more[0].pixels[0, 0, 0] == 60001


@pytest.mark.parametrize("suffix", [".tif", ".jpg", ".png", ".webp"])
def test_the_title_and_the_rating_of_a_tiff_are_kept(tmp_path, suffix):
    title, rating = 0x9C9B, 0x4746  # as Windows writes them
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[title], tags.tagtype[title] = "Hill".encode("utf-16le") + b"\0\0", 1
    tags[rating], tags.tagtype[rating] = 4, 3
    shades(10)[0].save(tmp_path / "a.tif", tiffinfo=tags)
    assert write_picture(read_picture(tmp_path / "a.tif"), tmp_path / f"b{suffix}") == ()
    with Image.open(tmp_path / f"b{suffix}") as image:
        exif = image.getexif()
    assert (exif[title].decode("utf-16le"), exif[rating]) == ("Hill\0", 4)


def test_grey_floats_become_an_animation_of_8_bits(tmp_path):
    pages = [Image.fromarray(np.full((9, 12), value, np.float32)) for value in (0.0, 0.5, 1.0)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    picture = read_picture(tmp_path / "a.tif", every=True)
    notes = ("PNG cannot hold float grey, so it has 8 bits", "the pages are frames of an animation in PNG")
    assert write_picture(picture, tmp_path / "a.png") == notes
    again = read_picture(tmp_path / "a.png", every=True)
    assert [int(page.pixels[0, 0, 0]) for page in again.frames] == [0, 128, 255]


def test_pages_of_a_tiff_keep_what_is_theirs(tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    first, second = shades(10)[0], shades(20, mode="L")[0]
    first.info["icc_profile"] = profile
    second.encoderinfo = {"dpi": (72, 72), "icc_profile": None}
    first.save(tmp_path / "a.tif", save_all=True, append_images=[second], dpi=(300, 300), icc_profile=profile)
    picture = read_picture(tmp_path / "a.tif", every=True)
    assert "icc_profile" not in picture.more[0].metadata
    write_picture(picture, tmp_path / "b.tif")
    back = read_picture(tmp_path / "b.tif", every=True)
    assert [round(one.metadata["dpi"][0]) for one in (back, *back.more)] == [300, 72]
    assert back.metadata["icc_profile"] == profile
    assert "icc_profile" not in back.more[0].metadata


def test_a_damaged_list_of_pages_leaves_the_first(tmp_path):
    first, *rest = shades(10, 90)
    first.save(tmp_path / "a.tif", save_all=True, append_images=rest)
    data = bytearray((tmp_path / "a.tif").read_bytes())
    start = struct.unpack_from("<I", data, 4)[0]
    following = start + 2 + 12 * struct.unpack_from("<H", data, start)[0]
    struct.pack_into("<I", data, following, 0xFFFFFF00)
    assert read_picture(bytes(data)).pixels[0, 0, 0] == 10
    picture = read_picture(bytes(data), every=True)
    assert picture.pixels[0, 0, 0] == 10
    assert picture.more == ()


def test_a_pyramid_is_within_the_limit_if_its_pages_are_together(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "LEAST_SIDE", 1)
    pages = [*shades(1, size=(40, 40)), *shades(2, size=(20, 20)), *shades(3, size=(10, 10))]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert len(read_picture(tmp_path / "a.tif", every=True, max_pixels=1600 + 400 + 100).more) == 2


def test_an_animated_lossless_webp_stays_lossless(tmp_path):
    rng = np.random.default_rng(0)
    frames = [Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)) for _ in range(3)]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    picture = read_picture(tmp_path / "a.webp", every=True)
    write_picture(picture, tmp_path / "b.webp")
    back = read_picture(tmp_path / "b.webp", every=True)
    for old, new in zip((picture, *picture.more), (back, *back.more), strict=True):
        np.testing.assert_array_equal(old.pixels[..., :3], new.pixels[..., :3])


# ---- corners of formats


def tiff(path, array, *tags):
    """An uncompressed little-endian TIFF of one strip, with these further (tag, value)."""
    height, width = array.shape[:2]
    samples = 1 if array.ndim == 2 else array.shape[2]
    known = {256: width, 257: height, 258: 8 * array.itemsize, 259: 1, 262: 1, 273: 0, 277: samples,
             278: height, 279: array.nbytes} | dict(tags)  # fmt: skip
    if array.dtype.kind == "f":
        known[339] = 3
    start = 8 + 2 + 12 * len(known) + 4
    bits = struct.pack("<H", 8 * array.itemsize) * samples
    known[273] = start + len(bits)
    entries = b"".join(
        struct.pack("<HHII", tag, 3, samples, start)
        if tag == 258 and samples > 2
        else struct.pack("<HHII", tag, 4, 1, value)
        for tag, value in sorted(known.items())
    )
    data = array.astype(array.dtype.newbyteorder("<")).tobytes()
    path.write_bytes(b"II*\0\x08\0\0\0" + struct.pack("<H", len(known)) + entries + b"\0" * 4 + bits + data)
    return path


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_a_tiff_whose_zero_is_white_is_no_negative(tmp_path, dtype):
    peak = 1 if dtype == np.float32 else np.iinfo(dtype).max
    grey = (np.arange(48).reshape(6, 8) / 47 * peak).astype(dtype)
    right, inverted = (
        read_picture(tiff(tmp_path / f"{n}.tif", values, (262, n)))
        for n, values in ((1, grey), (0, peak - grey))
    )
    np.testing.assert_allclose(inverted.pixels, right.pixels, atol=1e-6)
    assert inverted.pixels.dtype == dtype
    write_picture(inverted, tmp_path / "back.tif")
    np.testing.assert_allclose(read_picture(tmp_path / "back.tif").pixels, right.pixels, atol=1e-6)


@pytest.mark.parametrize("bits", [16, 32])
def test_a_tiff_of_signed_integers_comes_back_with_as_many_bits(tmp_path, bits):
    values = np.arange(48).reshape(6, 8) * 680
    array = values.astype(f"int{bits}")
    picture = read_picture(tiff(tmp_path / "a.tif", array, (339, 2)))
    assert np.array_equal(picture.pixels[..., 0], values) and picture.pixels.dtype == np.uint16
    write_picture(picture, tmp_path / "b.tif")
    with Image.open(tmp_path / "b.tif") as back:
        assert back.tag_v2[258] == (bits,) and np.array_equal(np.asarray(back), values)
    array[0, 0] = -1
    with pytest.raises(ImageError, match=r"signed integers.*-1 to 31960; scale them"):
        read_picture(tiff(tmp_path / "c.tif", array, (339, 2)))


def test_channels_of_a_tiff_that_are_left_out_are_noted(tmp_path):
    array = np.arange(6 * 8 * 4, dtype=np.uint8).reshape(6, 8, 4)
    picture = read_picture(tiff(tmp_path / "a.tif", array, (262, 2), (338, 0)))
    assert picture.layout == "RGB" and np.array_equal(picture.pixels, array[..., :3])
    assert picture.notes == ("1 further channel of the TIFF cannot be kept",)
    assert read_picture(tiff(tmp_path / "b.tif", array, (262, 2), (338, 2))).notes == ()
    deep = read_picture(tiff(tmp_path / "c.tif", array.astype(np.uint16) * 256, (262, 2), (338, 0)))
    assert (deep.layout, deep.pixels.dtype) == ("RGB", np.uint16)
    assert deep.notes == ("1 further channel of the TIFF cannot be kept",)


def test_a_tiff_of_a_kind_that_cannot_be_read_is_one_clear_line(tmp_path):
    path = tiff(tmp_path / "a.tif", np.zeros((4, 4), np.float64))
    with pytest.raises(ImageError, match=r"a\.tif: damaged, or of a kind that is not supported") as caught:
        read_picture(path)
    assert "object at" not in str(caught.value)


def test_the_gamma_of_a_png_is_kept_where_it_matters(tmp_path):
    from PIL.PngImagePlugin import PngInfo

    for gamma, kept in ((1.0, 1.0), (0.45455, None)):
        chunks = PngInfo()
        chunks.add(b"gAMA", struct.pack(">I", round(gamma * 1e5)))
        pixels("RGB").save(tmp_path / "a.png", pnginfo=chunks)
        picture = read_picture(tmp_path / "a.png")
        assert picture.metadata.get("gamma") == kept
        assert write_picture(picture, tmp_path / "b.png") == ()
        assert read_picture(tmp_path / "b.png").metadata.get("gamma") == kept
        notes = write_picture(picture, tmp_path / "b.jpg")
        assert any("gamma" in note for note in notes) == (kept is not None)


def test_limits_of_writing_are_named(tmp_path):
    picture = Picture(np.zeros((1, 65501, 3), np.uint8), "RGB", "RGB")
    with pytest.raises(OutputError, match="at most 65500 pixels a side"):
        write_picture(picture, tmp_path / "a.jpg")
    for quality in (0, -5, 500):
        with pytest.raises(ValueError, match="quality"):
            write_picture(picture, tmp_path / "a.webp", quality)
    floats = Picture(np.zeros((2, 2, 3), np.float32), "RGB", "RGB")
    assert write_picture(floats, tmp_path / "a.tif") == ("TIFF gets float colour as 8 bits a channel",)


def test_a_poster_is_no_frame_of_an_animation(tmp_path):
    poster, *frames = (Image.new("RGB", (8, 6), (value, 0, 0)) for value in (250, 10, 100, 200))
    poster.save(tmp_path / "a.png", save_all=True, append_images=frames, default_image=True, duration=50)
    picture = read_picture(tmp_path / "a.png", every=True)
    assert len(picture.more) == 3
    write_picture(picture, tmp_path / "b.webp")
    back = read_picture(tmp_path / "b.webp", every=True)
    assert [int(p.pixels[0, 0, 0]) for p in (back, *back.more)] == [10, 100, 200]


def test_pictures_are_compared_by_identity():
    a, b = (Picture(np.zeros((2, 2, 3), np.uint8), "RGB", "RGB") for _ in range(2))
    assert a == a and a != b and len({a, b}) == 2 and b in [a, b]


def test_stripping_leaves_nothing_on_any_page(tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    pages = [Image.new("RGB", (4, 3), (n, n, n)) for n in range(2)]
    for page in pages:
        page.encoderinfo = {"exif": exif}
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:], exif=exif)
    picture = read_picture(tmp_path / "a.tif", every=True)
    assert all("exif" in page.metadata for page in picture.frames)
    assert not any("exif" in page.metadata for page in picture.stripped().frames)
    write_picture(picture.stripped(), tmp_path / "b.tif")
    assert b"where I live" not in (tmp_path / "b.tif").read_bytes()
    assert picture.area == 2 * 12


def test_a_picture_without_pixels_and_an_unknown_suffix_are_refused():
    with pytest.raises(ImageError, match="of layout RGB are"):
        encode_picture(Picture(np.zeros((0, 4, 3), np.uint8), "RGB", "RGB"), io.BytesIO(), ".png")
    with pytest.raises(OutputError, match=r"cannot write \.gif"):
        encode_picture(Picture(np.zeros((3, 4, 3), np.uint8), "RGB", "RGB"), io.BytesIO(), ".gif")
    page = Picture(np.zeros((3, 4, 3), np.uint8), "RGB", "RGB")
    wrong = Picture(page.pixels, "RGB", "RGB", more=(Picture(page.pixels, "L", "L"),))
    with pytest.raises(ImageError, match="layout L"):
        encode_picture(wrong, io.BytesIO(), ".tif")


def test_floats_that_will_be_clipped_are_told_of(tmp_path):
    bright = np.linspace(0, 1.5, 12, dtype=np.float32).reshape(3, 4)
    Image.fromarray(bright).save(tmp_path / "a.tif")
    assert "above 1" in read_picture(tmp_path / "a.tif").notes[0]
    Image.fromarray(bright / 2).save(tmp_path / "b.tif")
    assert not read_picture(tmp_path / "b.tif").notes


@pytest.mark.parametrize("lowest", [0, -5])
def test_signed_bytes_are_refused_where_they_are_negative(lowest: int, tmp_path) -> None:
    values = np.arange(lowest, lowest + 120, dtype=np.int8).reshape(10, 12)
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[339] = 2  # SampleFormat: signed
    Image.fromarray(values.view(np.uint8)).save(tmp_path / "a.tif", tiffinfo=tags)
    if lowest < 0:
        with pytest.raises(ImageError, match="signed bytes"):
            read_picture(tmp_path / "a.tif")
    else:
        assert np.array_equal(read_picture(tmp_path / "a.tif").pixels[..., 0], values)


@pytest.mark.parametrize(("value", "words"), [(90, "must be in .0, 1."), (np.nan, "not finite")])
def test_a_picture_of_floats_that_are_no_pixels_is_not_written(value, words, tmp_path):
    pixels = np.full((4, 4, 3), value, np.float32)
    with pytest.raises(ImageError, match=words):
        write_picture(Picture(pixels, "RGB", "RGB"), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
