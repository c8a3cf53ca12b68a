"""16-bit colour through files, commands, server, page and library."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms
from PIL.TiffImagePlugin import AppendingTiffWriter

import zenith_ae
from zenith_ae.app.cli import run
from zenith_ae.errors import ImageError, OutputError
from zenith_ae.image_writing import encode_picture
from zenith_ae.images import Picture, _is_deeper, read_picture, to_8_bits, to_pil

CHANNELS = {"LA": 2, "RGB": 3, "RGBA": 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def deep(layout="RGB", size=(41, 27), seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 65536, (size[1], size[0], CHANNELS[layout])).astype(np.uint16)


def smooth(size=(41, 27)):
    """Slopes, for which PNG's filters differ, with low bytes that matter."""
    y, x = np.mgrid[: size[1], : size[0]]
    waves = [np.sin(x / 9) + np.cos(y / 7), np.sin(x / 5 + y / 11), x / 41 - y / 27]
    return np.rint(np.stack(waves, 2) * 9000 + 32768).astype(np.uint16)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def plain_png(pixels, interlaced=False, extra=b""):
    """A PNG made here, without filters."""
    height, width, channels = pixels.shape
    passes = [pixels[y::dy, x::dx] for x, y, dx, dy in ADAM7] if interlaced else [pixels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for part in passes if part.size for row in part)
    colour = {2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, interlaced)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def written(picture, suffix):
    buffer = io.BytesIO()
    notes = encode_picture(picture, buffer, suffix)
    return buffer.getvalue(), notes


def same(picture, pixels, layout):
    assert (picture.layout, picture.pixels.dtype, picture.notes) == (layout, np.uint16, ())
    np.testing.assert_array_equal(picture.pixels, pixels)


# ---- reading


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("layout", ["LA", "RGB", "RGBA"])
def test_png_gives_all_16_bits(layout, interlaced):
    pixels = deep(layout)
    same(read_picture(plain_png(pixels, interlaced)), pixels, layout)


def test_transparent_colour_of_a_png_is_compared_at_16_bits():
    pixels = deep()
    pixels[3, 4] = (0x1234, 0x5678, 0x9ABC)
    pixels[3, 5] = (0x1234, 0x5678, 0x9ABD)  # the same at 8 bits
    picture = read_picture(plain_png(pixels, extra=chunk(b"tRNS", bytes.fromhex("123456789abc"))))
    np.testing.assert_array_equal(picture.pixels[..., :3], pixels)
    assert np.argwhere(picture.pixels[..., 3] != 65535).tolist() == [[3, 4]]
    assert picture.pixels[3, 4, 3] == 0


def test_transparent_grey_of_a_png_is_compared_at_16_bits():
    file = io.BytesIO()
    pixels = np.ascontiguousarray(deep()[..., 0])
    pixels[3, 4:6] = 0x1234, 0x1235  # the same at 8 bits
    Image.fromarray(pixels).save(file, "PNG", transparency=0x1234)
    picture = read_picture(file.getvalue())
    assert (picture.layout, picture.mode, picture.notes) == ("LA", "LA", ())
    np.testing.assert_array_equal(picture.pixels[..., 0], pixels)
    assert np.argwhere(picture.pixels[..., 1] != 65535).tolist() == [[3, 4]]
    assert picture.pixels[3, 4, 1] == 0
    same(read_picture(written(picture, ".png")[0]), picture.pixels, "LA")


@pytest.mark.parametrize("order", ["LP", "RP", "PL", "PQ", "QRP", "DP", "PD", "DPD", "PDQ", "PLD"])
def test_pages_of_a_tiff_keep_their_own_palettes(order):
    """L grey, R colour, D of 16 bits, P and Q with palettes; Pillow leaves one page's palette to others."""
    wide = deep("RGB")
    colour = Image.fromarray((wide >> 8).astype(np.uint8))
    pages = {"L": colour.convert("L"), "R": colour, "P": colour.quantize(16)}
    pages["Q"] = Image.fromarray(255 - np.asarray(colour)).quantize(8)
    file = io.BytesIO()
    with AppendingTiffWriter(file) as several:
        for page in order:
            if page == "D":
                several.write(written(Picture(wide, "RGB", "RGB"), ".tif")[0])
            else:
                pages[page].save(several, "TIFF")
            several.newFrame()
    read = read_picture(file.getvalue(), every=True).frames
    assert len(read) == len(order)
    for page, frame in zip(order, read, strict=True):
        expected = wide if page == "D" else np.atleast_3d(pages[page].convert("L" if page == "L" else "RGB"))
        np.testing.assert_array_equal(frame.pixels, expected)


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"compression": "zlib"}, {"compression": "zlib", "predictor": True}, {"rowsperstrip": 7},
        {"tile": (16, 32)}, {"tile": (16, 32), "compression": "zlib"}, {"planarconfig": "separate"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["RGB", "RGBA"])
def test_tiff_of_another_writer_gives_all_16_bits(layout, options, byteorder):
    tifffile = pytest.importorskip("tifffile", reason="writes what Pillow cannot")
    pixels = deep(layout)
    stored = pixels.transpose(2, 0, 1) if "planarconfig" in options else pixels
    extra = {"extrasamples": ["unassalpha"]} if layout == "RGBA" else {}
    file = io.BytesIO()
    tifffile.imwrite(
        file, np.ascontiguousarray(stored), photometric="rgb", byteorder=byteorder, **options, **extra
    )
    same(read_picture(file.getvalue()), pixels, layout)


def test_what_pillow_gives_only_in_part_is_read_as_8_bits_and_says_so():
    tifffile = pytest.importorskip("tifffile", reason="writes what Pillow cannot")
    pixels, file = deep(), io.BytesIO()
    planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    tifffile.imwrite(file, planes, photometric="rgb", planarconfig="separate", compression="zlib")
    picture = read_picture(file.getvalue())
    assert picture.notes == ("16-bit colour is read as 8 bits a channel",)
    np.testing.assert_array_equal(picture.pixels, pixels >> 8)


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_planes_that_pillow_takes_for_something_else_are_refused(compression):
    tifffile = pytest.importorskip("tifffile", reason="writes what Pillow cannot")

    def stored(planes, **options):
        file = io.BytesIO()
        tifffile.imwrite(file, planes, planarconfig="separate", compression=compression, **options)
        return file.getvalue()

    grey = stored(np.full((2, 9, 7), 200, np.uint8), photometric="minisblack", extrasamples=["unassalpha"])
    with pytest.raises(ImageError, match="grey and alpha in separate planes"):
        read_picture(grey)
    inks = np.array([0x1003, 0x4003, 0x8003, 0xC102], np.uint16)[:, None, None] + np.zeros(
        (4, 9, 7), np.uint16
    )
    cmyk = stored(inks, photometric="separated")
    if compression:  # libtiff drops the low bytes
        assert (read_picture(cmyk).pixels == [0x10, 0x40, 0x80, 0xC1]).all()
    else:
        with pytest.raises(ImageError, match="CMYK of 16 bits in separate planes"):
            read_picture(cmyk)


@pytest.mark.parametrize(
    ("dtype", "extra", "compression", "what"),
    [
        (np.uint8, ["assocalpha"], None, "colours multiplied by alpha"),
        (np.uint8, ["unassalpha", "unspecified"], None, "more than four channels"),
        (np.uint8, ["unassalpha", "unspecified"], "deflate", "more than four channels"),
        (np.uint16, ["assocalpha"], None, "four channels of 16 bits"),
        (np.uint16, ["unspecified"], None, "four channels of 16 bits"),
    ],
)
def test_undamaged_planes_that_pillow_fails_at_are_not_called_damaged(dtype, extra, compression, what):
    tifffile = pytest.importorskip("tifffile", reason="writes what Pillow cannot")
    file, options = io.BytesIO(), {"photometric": "rgb", "planarconfig": "separate", "metadata": None}
    planes = np.full((3 + len(extra), 9, 7), 200, dtype)
    tifffile.imwrite(file, planes, extrasamples=extra, compression=compression, **options)
    with pytest.raises(ImageError, match=f"{what} in separate planes cannot be read"):
        read_picture(file.getvalue())


def test_colours_multiplied_by_alpha_are_divided_at_16_bits():
    tifffile = pytest.importorskip("tifffile", reason="writes what Pillow cannot")
    straight = deep("RGBA")
    straight[..., 3] |= 0x4000  # what is almost transparent has few colours
    straight[0, :5, 3] = 0
    file = io.BytesIO()
    multiplied = straight.copy()
    multiplied[..., :3] = np.rint(straight[..., :3] * (straight[..., 3:] / 65535.0))
    tifffile.imwrite(file, multiplied, photometric="rgb", extrasamples=["assocalpha"])
    picture = read_picture(file.getvalue())
    np.testing.assert_array_equal(picture.pixels[..., 3], straight[..., 3])
    assert np.abs(picture.pixels[1:, :, :3].astype(int) - straight[1:, :, :3]).max() <= 3
    assert not picture.pixels[0, :5, :3].any()


@pytest.mark.parametrize("peak", [65535, 4095, 256])
def test_netpbm_colour_is_scaled_from_its_peak(peak):
    samples = deep().astype(np.uint32) % (peak + 1)
    data = b"P6 41 27\n%d\n" % peak + samples.astype(">u2").tobytes()
    expected = np.floor(samples * 65535.0 / peak + 0.5).astype(np.uint16)
    same(read_picture(data), expected, "RGB")


@pytest.mark.parametrize(
    ("format", "signature", "at", "bits"),
    [("JPEG2000", b"\xff\x4f\xff\x51", 42, 11), ("AVIF", b"av1C", 6, 64)],
)
def test_more_than_8_bits_in_jpeg_2000_and_avif_are_noticed(format, signature, at, bits):
    buffer = io.BytesIO()
    try:
        Image.new("RGB", (16, 16), (1, 2, 3)).save(buffer, format)
    except KeyError:
        pytest.skip(f"this Pillow has no {format}")
    data = bytearray(buffer.getvalue())
    with Image.open(io.BytesIO(data)) as image:
        assert not _is_deeper(image, bytes(data))
        data[data.index(signature) + at] |= bits
        assert _is_deeper(image, bytes(data))


# ---- writing and back


@pytest.mark.parametrize("content", [deep, smooth])
@pytest.mark.parametrize("size", [(41, 27), (1, 1), (1, 9), (300, 2)])
def test_png_of_ours_is_read_back_and_is_what_others_read(content, size):
    pixels = content(size=size)
    data, notes = written(Picture(pixels, "RGB", "RGB"), ".png")
    assert notes == ()
    same(read_picture(data), pixels, "RGB")
    with Image.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels >> 8)


def test_png_of_ours_is_smaller_than_one_without_filters():
    pixels = smooth((200, 150))
    data, _ = written(Picture(pixels, "RGB", "RGB"), ".png")
    assert len(data) < 0.9 * len(plain_png(pixels))


@pytest.mark.parametrize("layout", ["RGB", "RGBA"])
@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0" + Image.Exif().tobytes()])
def test_colour_is_written_with_16_bits(layout, suffix, exif):
    if (layout, suffix) == ("RGBA", ".ppm"):
        pytest.skip("PNM has no alpha")
    pixels = deep(layout)
    data, notes = written(Picture(pixels, layout, layout, metadata={"exif": exif} if exif else {}), suffix)
    assert notes == ()
    same(read_picture(data), pixels, layout)


def test_tiff_of_ours_is_what_another_reader_reads():
    tifffile = pytest.importorskip("tifffile", reason="another reader")
    pages = [deep("RGB"), deep("RGBA", (9, 30), 1)]
    more = (Picture(pages[1], "RGBA", "RGBA"), Picture(np.full((4, 5, 1), 7, np.uint8), "L", "L"))
    for metadata in ({}, {"dpi": (300.0, 300.0), "exif": b"Exif\0\0" + Image.Exif().tobytes()}):
        data, notes = written(Picture(pages[0], "RGB", "RGB", metadata=metadata, more=more), ".tif")
        assert notes == ()
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            assert [page.shape for page in file.pages] == [(27, 41, 3), (30, 9, 4), (4, 5)]
            for page, pixels in zip(file.pages, pages, strict=False):
                if page.compression == 1:  # the others need the package imagecodecs
                    np.testing.assert_array_equal(page.asarray(), pixels)
        picture = read_picture(data, every=True)
        same(picture, pages[0], "RGB")
        same(picture.more[0], pages[1], "RGBA")
        assert picture.more[1].pixels.dtype == np.uint8


def test_grey_with_alpha_keeps_16_bits():
    pixels = deep("LA")
    data, _ = written(Picture(pixels, "LA", "LA"), ".png")
    same(read_picture(data), pixels, "LA")
    data, notes = written(Picture(pixels, "LA", "LA"), ".tif")
    assert notes == ("TIFF gets 16-bit grey with alpha as RGB",)
    same(read_picture(data), pixels[..., [0, 0, 0, 1]], "RGBA")


def test_formats_of_8_bits_say_so_and_alpha_is_not_dropped():
    pixels = deep()
    data, notes = written(Picture(pixels, "RGB", "RGB"), ".webp")
    assert notes == ("WEBP cannot hold 16-bit colour, so it has 8 bits a channel",)
    np.testing.assert_array_equal(read_picture(data).pixels, to_8_bits(pixels))
    with pytest.raises(OutputError, match="transparency"):
        written(Picture(deep("RGBA"), "RGBA", "RGBA"), ".jpg")


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_metadata_are_kept_as_with_8_bits(suffix):
    exif = Image.Exif()
    exif[0x010F] = "Camera Maker"
    exif[0x8769] = {0x9003: "2024:01:02 03:04:05", 0x8827: 100}
    metadata = {
        "icc_profile": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
        "exif": exif.tobytes(),
        "xmp": b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf dc="t"/></x:xmpmeta>',
        "dpi": (300.0, 150.0),
    }
    picture = Picture(deep(), "RGB", "RGB", metadata=metadata)
    back = read_picture(written(picture, suffix)[0])
    same(back, picture.pixels, "RGB")
    assert back.metadata["icc_profile"] == metadata["icc_profile"]
    assert back.metadata["xmp"] == metadata["xmp"]
    assert [round(d) for d in back.metadata["dpi"]] == [300, 150]
    read = Image.Exif()
    read.load(back.metadata["exif"])
    assert read[0x010F] == "Camera Maker"
    assert read.get_ifd(0x8769)[0x8827] == 100
    again = read_picture(written(back, suffix)[0])
    assert again.metadata.keys() == back.metadata.keys()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_orientation_is_applied_to_both_bytes(orientation, suffix):
    pixels = deep()
    exif = Image.Exif()
    exif[0x0112] = orientation
    data, _ = written(
        Picture(pixels, "RGB", "RGB", metadata={"exif": exif.tobytes(), "dpi": (300, 150)}), suffix
    )
    turned = {
        2: pixels[:, ::-1], 3: pixels[::-1, ::-1], 4: pixels[::-1], 5: pixels.transpose(1, 0, 2),
        6: np.rot90(pixels, -1), 7: pixels[::-1, ::-1].transpose(1, 0, 2), 8: np.rot90(pixels, 1),
    }.get(orientation, pixels)  # fmt: skip
    back = read_picture(data)
    same(back, turned, "RGB")
    assert round(back.metadata["dpi"][0]) == (150 if orientation > 4 else 300)


# ---- bad files


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
@pytest.mark.parametrize(
    "exif", [b"", b"Exif\0\0" + Image.Exif().tobytes()]
)  # a TIFF with it is not compressed
def test_truncated_files_are_refused_in_one_line(suffix, exif):
    metadata = {"exif": exif} if exif else {}
    data, _ = written(Picture(deep(size=(90, 70)), "RGB", "RGB", metadata=metadata), suffix)
    for keep in (len(data) // 2, 60):
        with pytest.raises(ImageError, match=r"damaged|truncated") as caught:
            read_picture(data[:keep], "x")
        assert "\n" not in str(caught.value)


def test_the_limit_holds_for_all_pages_at_16_bits(monkeypatch):
    monkeypatch.setattr("zenith_ae.images.LEAST_SIDE", 1)
    more = (Picture(deep(), "RGB", "RGB"),)
    data, _ = written(Picture(deep(), "RGB", "RGB", more=more), ".tif")
    assert len(read_picture(data, every=True, max_pixels=2 * 41 * 27).more) == 1
    with pytest.raises(ImageError, match="exceed the limit"):
        read_picture(data, every=True, max_pixels=2 * 41 * 27 - 1)


def test_what_an_animation_holds_is_8_bits_with_a_note():
    pixels = deep(size=(4, 4))
    frames = (Picture(pixels, "RGB", "RGB"),)
    data, notes = written(Picture(pixels, "RGB", "RGB", more=frames), ".png")
    assert notes == ("PNG holds one picture of 16 bits, so it is the first of 2",)
    same(read_picture(data), pixels, "RGB")


# ---- the whole path


@pytest.fixture
def plus_ten(sigma_denoiser):
    """What the denoiser that adds its level makes of pixels at level 10."""
    return lambda pixels: np.minimum(pixels.astype(int) + 10 * 257, 65535)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
@pytest.mark.parametrize("layout", ["RGB", "RGBA"])
def test_denoise_command_keeps_16_bits(tmp_path, monkeypatch, sigma_denoiser, plus_ten, layout, suffix):
    if (layout, suffix) == ("RGBA", ".ppm"):
        pytest.skip("PNM has no alpha")
    monkeypatch.chdir(tmp_path)
    pixels = deep(layout)
    (tmp_path / f"a{suffix}").write_bytes(written(Picture(pixels, layout, layout), suffix)[0])
    assert run(["denoise", f"a{suffix}", "--model", str(sigma_denoiser), "--sigma", "10"]) == 0
    back = read_picture(f"a.denoised{suffix}")
    assert (back.layout, back.pixels.dtype) == (layout, np.uint16)
    assert np.abs(back.pixels[..., :3] - plus_ten(pixels[..., :3])).max() <= 1
    np.testing.assert_array_equal(back.pixels[..., 3:], pixels[..., 3:])


def test_strength_0_changes_no_bit_and_a_damaged_file_is_one_line(
    tmp_path, monkeypatch, sigma_denoiser, capsys
):
    monkeypatch.chdir(tmp_path)
    pixels = deep()
    data = plain_png(pixels)
    (tmp_path / "a.png").write_bytes(data)
    (tmp_path / "b.png").write_bytes(data[: len(data) // 2])
    dn = ["--model", str(sigma_denoiser), "--sigma", "10", "--strength", "0"]
    assert run(["denoise", "a.png", *dn]) == 0
    same(read_picture("a.denoised.png"), pixels, "RGB")
    capsys.readouterr()
    assert run(["denoise", "b.png", *dn]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "b.png: damaged or truncated" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.denoised.png", "a.png", "b.png"]


def test_roundtrip_command_keeps_16_bits(tmp_path, monkeypatch, identity_autoencoder):
    monkeypatch.chdir(tmp_path)
    pixels = smooth()
    (tmp_path / "a.png").write_bytes(plain_png(pixels))
    assert run(["roundtrip", "a.png", "--dtype", "fp32", "--model", str(identity_autoencoder)]) == 0
    back = read_picture("a.roundtrip.png")
    assert np.abs(back.pixels.astype(int) - pixels).max() <= 300  # bf16 where the machine has it


def test_library_keeps_16_bits_of_a_picture_and_warns_where_pillow_cannot(tmp_path, sigma_denoiser, plus_ten):
    pixels = deep("RGBA")
    path = tmp_path / "a.png"
    path.write_bytes(plain_png(pixels))
    denoise = zenith_ae.load(sigma_denoiser)
    clean = denoise(zenith_ae.read_picture(path), sigma=10)
    assert zenith_ae.write_picture(clean, tmp_path / "b.png") == ()
    back = zenith_ae.read_picture(tmp_path / "b.png")
    assert back.pixels.dtype == np.uint16
    assert np.abs(back.pixels[..., :3] - plus_ten(pixels[..., :3])).max() <= 1
    with pytest.warns(UserWarning, match="read_picture"):
        image = denoise(path, sigma=10)
    assert image.mode == "RGBA"
    assert np.array_equal(np.asarray(image), np.asarray(to_pil(clean)))


def test_server_keeps_16_bits():
    pytest.importorskip("fastapi", reason="needs the extra serve")
    pytest.importorskip("prometheus_client", reason="needs the extra serve")
    pytest.importorskip("httpx", reason="the client")
    from fastapi.testclient import TestClient

    from zenith_ae.app.server import create_app

    pixels = smooth()
    with TestClient(create_app(threads=1)) as client:
        response = client.post("/denoise?sigma=5", content=plain_png(pixels))
        assert response.status_code == 200
        back = read_picture(response.content)
    expected = zenith_ae.load("zenith-denoise", threads=1)(pixels, sigma=5)
    same(back, expected, "RGB")


def test_web_page_keeps_16_bits(tmp_path):
    from zenith_ae.app.web_jobs import Workshop

    pixels = smooth()
    (tmp_path / "upload").mkdir()
    path = tmp_path / "upload/a.tif"
    path.write_bytes(written(Picture(pixels, "RGB", "RGB"), ".tif")[0])
    result = Workshop(tmp_path, threads=1).denoise(str(path), "zenith-denoise", 5.0, strength=1.0)
    assert (result.facts["bits"], result.facts["notes"]) == (16, [])
    back = read_picture(result.files["picture"])
    same(back, zenith_ae.load("zenith-denoise", threads=1)(pixels, sigma=5), "RGB")
