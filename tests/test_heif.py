"""HEIC: files that pillow-heif writes are read; what needs none is tested without it."""

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageCms

import zenith_ae
from zenith_ae import heif
from zenith_ae.app.cli import run
from zenith_ae.errors import ImageError, ZenithError
from zenith_ae.heif import HEIF_SUFFIXES
from zenith_ae.image_writing import WRITABLE_SUFFIXES, stand_in, suffix_for
from zenith_ae.images import READABLE_SUFFIXES, read_picture

MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def smooth(height=48, width=64, channels=3):
    y, x, c = np.mgrid[:height, :width, :channels]
    return (120 + 60 * np.sin(x / 9 + c) + 50 * np.cos(y / 7 - c)).astype(np.uint8)


def heic(pixels, **options):
    """(H, W, C) uint8, or uint16 of which the upper 10 bits are kept, as a lossless HEIC."""
    import pillow_heif

    height, width, channels = pixels.shape
    mode = MODES[channels] + (";16" if pixels.dtype == np.uint16 else "")
    made = pillow_heif.from_bytes(mode=mode, size=(width, height), data=pixels.tobytes())
    buffer = io.BytesIO()
    made.save(buffer, quality=-1, chroma=444, **options)
    return buffer.getvalue()


@pytest.fixture
def pillow_heif():
    return pytest.importorskip("pillow_heif", reason="needs the extra heif")


def tagged():
    exif = Image.Exif()
    exif[271], exif[274] = "Maker", 6
    exif.get_ifd(0x8769).update({0x8827: 800, 0xA002: 64, 0xA003: 48})
    return exif.tobytes()


# ---- with pillow-heif


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_are_those_that_were_stored(pillow_heif, channels):
    pixels = smooth(33, 65, channels)
    picture = read_picture(heic(pixels))
    assert (picture.layout, picture.format, picture.mode) == (MODES[channels], "HEIF", MODES[channels])
    assert picture.pixels.dtype == np.uint8 and picture.notes == () and picture.pixels.flags.c_contiguous
    assert np.abs(picture.pixels.astype(int) - pixels).max() <= 1  # YCbCr is rounded


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_more_than_8_bits_become_16(pillow_heif, channels):
    tens = np.linspace(0, 1023, 48 * 64 * channels).astype(np.uint16).reshape(48, 64, channels)
    picture = read_picture(heic(tens << 6))
    assert (picture.pixels.dtype, picture.bits) == (np.uint16, 16)
    assert np.abs(picture.pixels - tens * (65535 / 1023)).max() <= 65535 / 1023 * 1.01
    assert len(np.unique(picture.pixels)) > 900 and picture.pixels.max() == 65535


@pytest.mark.parametrize("bits", [8, 10])
def test_alpha_that_colours_were_multiplied_by_is_taken_out(bits):
    peak, dtype = 2**bits - 1, np.uint8 if bits == 8 else np.uint16
    given = np.full((2, 3, 4), np.array((50, 100, 25, 128)) * peak // 255, dtype)
    given[0] = 0

    class Multiplied:
        mode, info = "RGBa" if bits == 8 else "RGBa;10", {"bit_depth": bits}
        size, data = (3, 2), np.pad(given, [(0, 0), (0, 5), (0, 0)]).tobytes()  # whose rows are longer

    found = heif._pixels(Multiplied()) / (2 ** (8 if bits == 8 else 16) - 1) * 255
    assert (found[0] == 0).all() and np.abs(found[1] - (99.6, 199.2, 49.8, 128)).max() < 1


def test_a_picture_is_turned_as_the_file_says_and_its_metadata_say_so_no_more(pillow_heif):
    pixels = smooth()
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/" tiff:Orientation="6"/>'
    image = Image.fromarray(pixels)
    image.info["icc_profile"] = profile
    buffer = io.BytesIO()
    pillow_heif.from_pillow(image).save(buffer, quality=-1, chroma=444, exif=tagged(), xmp=xmp)
    picture = read_picture(buffer.getvalue())
    assert np.abs(picture.pixels.astype(int) - np.rot90(pixels, -1)).max() <= 1
    assert picture.metadata["icc_profile"] == profile
    assert b'tiff:Orientation="1"' in picture.metadata["xmp"]
    exif = Image.Exif()
    exif.load(picture.metadata["exif"])
    assert (exif[271], exif.get(274, 1)) == ("Maker", 1)
    assert [exif.get_ifd(0x8769)[tag] for tag in (0x8827, 0xA002, 0xA003)] == [800, 48, 64]


def test_heic_becomes_jpeg_unless_something_else_is_asked_for(pillow_heif, here, sigma_denoiser, capsys):
    data = heic(smooth(), exif=tagged())
    (here / "shots").mkdir()
    for name in ("a.heic", "B.HEIC"):
        (here / "shots" / name).write_bytes(data)
    dn = ["--model", str(sigma_denoiser), "--sigma", "10"]
    assert run(["denoise", "shots", *dn]) == 0  # found in the folder
    assert sorted(p.name for p in (here / "shots").iterdir()) == [
        "B.HEIC", "B.denoised.jpg", "a.denoised.jpg", "a.heic"
    ]  # fmt: skip
    with Image.open("shots/a.denoised.jpg") as back:
        assert back.size == (48, 64) and back.getexif()[271] == "Maker"
        assert np.abs(np.asarray(back).mean() - smooth().mean() - 10) < 1  # the model adds the level
    assert run(["denoise", "shots/a.heic", *dn, "--format", "png"]) == 0
    (here / "deep.hif").write_bytes(heic(smooth().astype(np.uint16) * 257))
    assert run(["denoise", "deep.hif", *dn, "-o", "deep.png"]) == 0
    assert read_picture("deep.png").bits == 16
    assert run(["denoise", "shots/a.heic", *dn, "-o", "a.heic"]) == 2  # is never written
    assert run(["info", "shots/a.heic"]) == 0
    assert "HEIF" in capsys.readouterr().out


def test_standard_input_and_the_library_take_heic(pillow_heif, here, sigma_denoiser):
    data = heic(smooth())
    (here / "a.heic").write_bytes(data)
    program = [sys.executable, "-m", "zenith_ae", "denoise", "-", "--model", str(sigma_denoiser)]
    made = subprocess.run([*program, "--sigma", "10"], input=data, capture_output=True, check=True).stdout
    assert made.startswith(b"\xff\xd8\xff")
    clean = zenith_ae.load(sigma_denoiser)(read_picture("a.heic"), sigma=10)
    assert clean.pixels.shape == (48, 64, 3)


def test_the_limit_holds_before_heic_is_decoded(pillow_heif, monkeypatch):
    data = heic(smooth(200, 300))
    monkeypatch.setattr(heif, "_pixels", lambda picture: pytest.fail("is decoded"))
    with pytest.raises(ImageError, match="300 x 200 pixels exceed the limit of 50000"):
        read_picture(data, "a.heic", max_pixels=50_000)


def test_damaged_heic_is_one_line(pillow_heif):
    data = heic(smooth(), exif=tagged())
    for length in (*range(13, 400, 29), len(data) // 2, len(data) - 9):
        with pytest.raises(ImageError, match=r"^a\.heic: damaged or truncated picture \(.*export it again$"):
            read_picture(data[:length], "a.heic")


def test_what_is_beside_the_picture_is_told(pillow_heif):
    several = io.BytesIO()
    first = pillow_heif.from_pillow(Image.fromarray(smooth()))
    first.add_from_pillow(Image.fromarray(255 - smooth()))
    first.save(several, quality=-1, chroma=444, primary_index=1)
    picture = read_picture(several.getvalue())
    assert picture.notes == ("only the primary one of several pictures in the file is used",)
    assert np.abs(picture.pixels.astype(int) - (255 - smooth())).max() <= 1  # the primary one
    wide = {"color_primaries": 12, "transfer_characteristics": 16}
    assert read_picture(heic(smooth().astype(np.uint16) * 257, **wide)).notes == (
        "the HEIC's colour space (nclx) is not kept, so it looks different",
    )


def test_gain_maps_and_depth_of_phones_are_told():
    apple = "urn:com:apple:photo:2020:aux:hdrgainmap"
    told = heif._notes({"aux": {apple: [3], "urn:com:apple:photo:2020:aux:disparity": [4]}}, 1)
    assert told == ["the HDR gain map is not kept", "the depth map is not kept"]
    assert heif._notes({"aux": {}, "depth_images": [0]}, 1) == ["the depth map is not kept"]
    profile = {"nclx_profile": {"color_primaries": 12, "transfer_characteristics": 13}, "icc_profile": b"P3"}
    assert heif._notes(profile, 1) == []


def test_suffixes_are_found_in_folders_where_pillow_heif_is_installed(pillow_heif):
    assert HEIF_SUFFIXES <= READABLE_SUFFIXES


# ---- without


def test_names_of_results():
    assert not HEIF_SUFFIXES & WRITABLE_SUFFIXES
    assert [stand_in(suffix) for suffix in (".heic", ".HIF", ".gif", ".nef")] == [".jpg"] * 2 + [".png"] * 2
    assert [suffix_for(format) for format in ("HEIF", "JPEG", "RAW", None)] == [
        ".jpg",
        ".jpg",
        ".png",
        ".png",
    ]


def test_without_pillow_heif_the_error_names_the_extra(here, sigma_denoiser):
    (here / "shots").mkdir()
    (here / "shots/a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    Image.new("RGB", (9, 6)).save(here / "shots/b.png")
    program = (
        "import sys, importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: name != 'pillow_heif' and find(name, *rest) or None\n"
        "sys.modules['pillow_heif'] = None\n"
        "from zenith_ae.app.cli import main\n"
        "main()\n"
    )
    dn = ["--model", str(sigma_denoiser), "--sigma", "10"]

    def told(source):
        command = [sys.executable, "-c", program, "denoise", source, *dn]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    extra = "pip install 'zenith-ae[heif]'"
    left_out = f"zenith-ae: 1 file left out: .heic cannot be read without pillow-heif ({extra})\n"
    assert told("shots") == (0, left_out)
    why = f"shots/a.heic: is a HEIC picture; to read it, install the extra with {extra}"
    assert told("shots/a.heic") == (1, f"zenith-ae: {why}\n")


def test_an_avif_may_have_the_brand_of_its_container():
    buffer = io.BytesIO()
    try:
        Image.fromarray(smooth()).save(buffer, "AVIF", quality=90)
    except KeyError:
        pytest.skip("this Pillow has no AVIF")
    data = buffer.getvalue()
    assert data[4:12] == b"ftypavif" and b"avif" in data[16:32]
    picture = read_picture(data[:8] + b"mif1" + data[12:])
    assert picture.format == "AVIF" and (picture.pixels == read_picture(data).pixels).all()


def test_metadata_that_are_made_to_cost_very_much_are_refused():
    block = b"II*\0" + (50_008).to_bytes(4, "little") + bytes(50_000) + (1000).to_bytes(2, "little")
    block += b"".join(
        (1000 + i).to_bytes(2, "little") + b"\7\0" + (50_000).to_bytes(4, "little") + b"\10\0\0\0"
        for i in range(1000)
    )
    for brand in (b"heic", b"mif1", b"miaf", b"hevc", b"msf1"):
        with pytest.raises(ZenithError, match="its EXIF would take very long to read"):
            read_picture(b"\0\0\0\x18ftyp" + brand + bytes(12) + block + bytes(4))
