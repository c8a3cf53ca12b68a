"""Camera RAW: a DNG made here is read by rawpy; what needs no rawpy is tested without it."""

import io
import struct
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import zenith_ae
from zenith_ae.app.cli import run
from zenith_ae.camera_raw import RAW_SUFFIXES, is_raw, raw_exif
from zenith_ae.errors import ImageError, MissingDependencyError
from zenith_ae.image_writing import WRITABLE_SUFFIXES
from zenith_ae.images import READABLE_SUFFIXES, read_picture

KINDS = {"B": 1, "A": 2, "H": 3, "I": 4, "R": 5, "s": 10}  # TIFF's types; R and s are rationals


def tiff(directories, data=b""):
    """A little-endian TIFF. Each directory: {tag: (kind, values)}; a value may be ("ifd", n) or "data"."""
    places, at = [], 8
    for tags in directories:
        places.append(at)
        at += 2 + 12 * len(tags) + 4
        for kind, values in tags.values():
            size = len(packed(kind, values))
            at += size + size % 2 if size > 4 else 0
    out = struct.pack("<2sHI", b"II", 42, 8)
    for place, tags in zip(places, directories, strict=True):
        extra_at = place + 2 + 12 * len(tags) + 4
        entries, extra = struct.pack("<H", len(tags)), b""
        for tag, (kind, values) in sorted(tags.items()):
            values = [at if v == "data" else places[v[1]] if isinstance(v, tuple) and v[0] == "ifd" else v
                      for v in values] if kind == "I" else values  # fmt: skip
            content = packed(kind, values)
            count = len(content) if kind in "BA" else len(values)
            if len(content) > 4:
                place_of = struct.pack("<I", extra_at + len(extra))
                extra += content + b"\0" * (len(content) % 2)
            else:
                place_of = content.ljust(4, b"\0")
            entries += struct.pack("<HHI", tag, KINDS[kind], count) + place_of
        out += entries + struct.pack("<I", 0) + extra
    return out + data


def packed(kind, values):
    if kind in "BA":
        return bytes(values)
    if kind in "Rs":
        return b"".join(struct.pack("<2I" if kind == "R" else "<2i", *value) for value in values)
    return b"".join(struct.pack(f"<{kind}", v if isinstance(v, int) else 0) for v in values)


def dng(width=64, height=48, orientation=1, colour=(8000, 20000, 5000), wide=0):
    """A mosaic of one colour with some noise, as a DNG of the plainest kind."""
    rng = np.random.default_rng(0)
    mosaic = np.empty((height, width), float)
    mosaic[0::2, 0::2], mosaic[1::2, 1::2] = colour[0], colour[2]
    mosaic[0::2, 1::2] = mosaic[1::2, 0::2] = colour[1]
    mosaic += rng.normal(0, 300, mosaic.shape)
    unit = [(1, 1), (0, 1), (0, 1), (0, 1), (1, 1), (0, 1), (0, 1), (0, 1), (1, 1)]
    exif = {0x8827: ("H", [1600]), 0x829A: ("R", [(1, 250)]), 0x9003: ("A", b"2024:01:02 03:04:05\0")}
    main = {
        254: ("I", [0]), 256: ("I", [wide or width]), 257: ("I", [height]), 258: ("H", [16]), 259: ("H", [1]),
        262: ("H", [32803]), 271: ("A", b"Maker\0"), 272: ("A", b"Model One\0"), 273: ("I", ["data"]),
        274: ("H", [orientation]), 277: ("H", [1]), 278: ("I", [height]), 279: ("I", [2 * width * height]),
        0x8769: ("I", [("ifd", 1)]), 33421: ("H", [2, 2]), 33422: ("B", [0, 1, 1, 2]),
        50706: ("B", [1, 4, 0, 0]), 50708: ("A", b"Maker Model One\0"), 50714: ("H", [0]),
        50717: ("H", [65535]), 50721: ("s", unit), 50728: ("R", [(2, 5), (1, 1), (1, 4)]), 50778: ("H", [21]),
    }  # fmt: skip
    return tiff([main, exif], np.rint(mosaic).astype("<u2").tobytes())


@pytest.fixture
def rawpy():
    return pytest.importorskip("rawpy", reason="needs the extra raw")


def tags(block):
    exif = Image.Exif()
    exif.load(block)
    return exif


# ---- with rawpy


def test_a_dng_is_developed_to_16_bits_with_the_cameras_white_balance(rawpy, here):
    (here / "a.dng").write_bytes(dng())
    picture = read_picture("a.dng")
    assert (picture.layout, picture.format, picture.pixels.dtype) == ("RGB", "RAW", np.uint16)
    assert picture.pixels.shape == (48, 64, 3)
    assert len(np.unique(picture.pixels)) > 256  # more than 8 bits could tell apart
    # The mosaic is grey under the white balance in the file: 8000 / 0.4 = 20000 = 5000 / 0.25.
    mean = picture.pixels[8:-8, 8:-8].reshape(-1, 3).mean(0)
    assert np.ptp(mean) < 0.25 * mean.mean()
    linear = 20000 / 65535
    assert abs(mean.mean() / 65535 - (1.055 * linear ** (1 / 2.4) - 0.055)) < 0.08
    exif = tags(picture.metadata["exif"])
    assert (exif[0x010F], exif[0x0110]) == ("Maker", "Model One")
    assert exif.get_ifd(0x8769)[0x8827] == 1600
    assert exif.get_ifd(0x8769)[0x9003] == "2024:01:02 03:04:05"


def test_a_sensor_without_colours_gives_a_grey_picture(rawpy, here, sigma_denoiser):
    values = np.random.default_rng(0).normal(20000, 300, (48, 64)).astype("<u2")
    main = {
        254: ("I", [0]), 256: ("I", [64]), 257: ("I", [48]), 258: ("H", [16]), 259: ("H", [1]),
        262: ("H", [34892]), 271: ("A", b"Maker\0"), 272: ("A", b"Mono\0"), 273: ("I", ["data"]),
        274: ("H", [1]), 277: ("H", [1]), 278: ("I", [48]), 279: ("I", [values.nbytes]),
        50706: ("B", [1, 4, 0, 0]), 50708: ("A", b"Maker Mono\0"), 50714: ("H", [0]), 50717: ("H", [65535]),
        50778: ("H", [21]),
    }  # fmt: skip
    (here / "mono.dng").write_bytes(tiff([main], values.tobytes()))
    picture = read_picture("mono.dng")
    assert (picture.layout, picture.pixels.shape, picture.pixels.dtype) == ("L", (48, 64, 1), np.uint16)
    assert run(["denoise", "mono.dng", "-o", "a.png", "--model", str(sigma_denoiser), "--sigma", "10"]) == 0
    with Image.open("a.png") as image:
        assert (image.mode, image.size) == ("I;16", (64, 48))


def test_a_dng_comes_upright(rawpy):
    picture = read_picture(dng(orientation=6), "a.dng")
    assert picture.pixels.shape == (64, 48, 3)
    assert 0x0112 not in tags(picture.metadata["exif"])


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_denoise_writes_a_16_bit_file_with_the_exif_and_leaves_the_raw_alone(
    rawpy, here, sigma_denoiser, suffix
):
    data = dng()
    (here / "shots").mkdir()
    (here / "shots/a.dng").write_bytes(data)
    dn = ["--model", str(sigma_denoiser), "--sigma", "10", "--overwrite"]
    format = [] if suffix == "png" else ["--format", suffix]
    assert run(["denoise", "shots", *format, *dn]) == 0  # found in the folder
    back = read_picture(f"shots/a.denoised.{suffix}")
    source = read_picture("shots/a.dng")
    assert (back.pixels.dtype, back.pixels.shape) == (np.uint16, (48, 64, 3))
    assert np.abs(back.pixels - np.minimum(source.pixels.astype(int) + 2570, 65535)).max() <= 1
    exif = tags(back.metadata["exif"])
    assert (exif[0x0110], exif.get_ifd(0x8769)[0x8827]) == ("Model One", 1600)
    assert (here / "shots/a.dng").read_bytes() == data


def test_raw_is_never_written(rawpy, here, sigma_denoiser, capsys):
    for name in ("a.dng", "b.dng"):
        (here / name).write_bytes(dng())
    dn = ["--model", str(sigma_denoiser), "--sigma", "10", "--overwrite"]
    assert run(["denoise", "a.dng", "-o", "c.dng", *dn]) == 2
    assert run(["denoise", "a.dng", "-o", "b.dng", *dn]) == 2
    assert run(["denoise", "a.dng", "-o", "a.dng", *dn]) == 2
    assert not RAW_SUFFIXES & WRITABLE_SUFFIXES
    assert sorted(p.name for p in here.iterdir()) == ["a.dng", "b.dng"]
    assert all(p.read_bytes() == dng() for p in here.iterdir())


def test_damaged_raw_is_one_line(rawpy, here, sigma_denoiser, capfd):
    data = dng()
    for name, content in {
        "cut": data[: len(data) // 2],
        "stub": data[:300],
        "wrong": b"II*\0" + bytes(600),
    }.items():
        (here / f"{name}.dng").write_bytes(content)
        assert run(["denoise", f"{name}.dng", "--model", str(sigma_denoiser), "--sigma", "10"]) == 1
        lines = capfd.readouterr().err.splitlines()
        own = [
            line for line in lines if not line.startswith("unknown file: ")
        ]  # LibRaw's, who prints by itself
        assert len(own) == 1 and f"{name}.dng: damaged or truncated" in own[0], lines
        assert "b'" not in own[0]


def test_the_limit_holds_before_a_raw_is_developed(rawpy):
    with pytest.raises(
        ImageError, match="20000 x 48 pixels, which count as 2560000, exceed the limit of 100000"
    ):
        read_picture(dng(wide=20000), "a.dng", max_pixels=10**5)


def test_library_and_encode_take_raw(rawpy, here, sigma_denoiser, identity_autoencoder):
    (here / "a.dng").write_bytes(dng())
    clean = zenith_ae.load(sigma_denoiser)(read_picture("a.dng"), sigma=10)
    assert clean.pixels.dtype == np.uint16
    assert run(["encode", "a.dng", "--model", str(identity_autoencoder)]) == 0
    assert (here / "a.latent.safetensors").is_file()


# ---- without


def test_folders_hold_raw_only_where_it_can_be_read_and_the_error_names_the_extra(here, sigma_denoiser):
    (here / "shots").mkdir()
    (here / "shots/a.dng").write_bytes(dng())
    Image.new("RGB", (9, 6)).save(here / "shots/b.png")
    (here / "shots/c.jxl").touch()
    program = (
        "import sys, importlib.abc\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'rawpy': raise ModuleNotFoundError('absent', name='rawpy')\n"
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'rawpy' else find(name, *rest)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from zenith_ae.app.cli import main\n"
        "main()\n"
    )
    dn = ["--model", str(sigma_denoiser), "--sigma", "10"]
    folder = subprocess.run(
        [sys.executable, "-c", program, "denoise", "shots", *dn], capture_output=True, text=True, check=False
    )
    note = "1 file left out: .dng cannot be read without rawpy (pip install 'zenith-ae[raw]')"
    other = "1 file left out: .jxl cannot be read; convert them first"
    assert (folder.returncode, folder.stderr) == (0, f"zenith-ae: {note}\nzenith-ae: {other}\n")
    assert "a.dng" not in folder.stdout and "b.denoised.png" in folder.stdout
    single = subprocess.run(
        [sys.executable, "-c", program, "denoise", "shots/a.dng", *dn],
        capture_output=True,
        text=True,
        check=False,
    )
    assert single.returncode == 1
    assert single.stderr == (
        "zenith-ae: shots/a.dng: is a camera RAW file; to read it, install the extra with "
        "pip install 'zenith-ae[raw]'\n"
    )
    assert issubclass(MissingDependencyError, ImportError)


def test_suffixes_are_found_in_folders_where_rawpy_is_installed(rawpy):
    assert RAW_SUFFIXES <= READABLE_SUFFIXES
    assert {".pef", ".srw", ".nrw", ".rwl", ".iiq"} <= RAW_SUFFIXES


def recognised(data, name="x"):
    return is_raw(io.BytesIO(data), data[:65536], name)


def test_raw_is_recognised_by_its_content_and_a_photograph_is_not():
    preview = {256: ("I", [8]), 262: ("H", [2]), 330: ("I", [("ifd", 1)])}
    assert recognised(dng())
    assert recognised(tiff([preview, {262: ("H", [32803])}]))  # NEF and ARW are like this
    assert recognised(b"II*\0\x10\0\0\0CR\x02\0" + bytes(50))  # CR2
    assert recognised(b"\0\0\0\x18ftypcrx \0\0\0\1" + bytes(50))  # CR3
    assert recognised(b"FUJIFILMCCD-RAW 0201" + bytes(90))
    assert recognised(b"IIRO\x08\0\0\0" + bytes(50)) and recognised(b"IIU\0\x18\0\0\0" + bytes(50))
    for start in (b"II\x1a\0\0\0HEAPCCDR", b"\0MRM\0\1", b"FOVb\0\0\2\0"):  # CRW, MRW, X3F
        assert recognised(start + bytes(50))
    assert not recognised(tiff([preview, {262: ("H", [2])}]))
    for format in ("PNG", "JPEG", "TIFF", "WEBP"):
        buffer = io.BytesIO()
        Image.new("RGB", (9, 6)).save(buffer, format)
        assert not recognised(buffer.getvalue())
        assert recognised(buffer.getvalue(), "x.PEF") is (format == "TIFF")
    assert not recognised(b"II*\0" + b"\xff" * 60)


def boxes(**content):
    return b"".join(struct.pack(">I", 8 + len(data)) + kind.encode() + data for kind, data in content.items())


def test_exif_is_found_in_every_kind_of_container():
    whole = tiff([
        {271: ("A", b"Maker\0"), 0x0112: ("H", [6]), 0x8769: ("I", [("ifd", 1)])}, {0x8827: ("H", [800])}
    ])  # fmt: skip
    exif = Image.Exif()
    exif[271], exif[0x0112], exif[0x8769] = "Maker", 6, {0x8827: 800}
    preview = io.BytesIO()
    Image.new("RGB", (8, 8)).save(preview, "JPEG", exif=exif)
    raf = b"FUJIFILMCCD-RAW ".ljust(84, b"\0") + struct.pack(">II", 92, len(preview.getvalue()))
    maker, iso, north = ({271: ("A", b"Maker\0")}, {0x8827: ("H", [800])}, {1: ("A", b"N\0")})
    cr3 = boxes(ftyp=b"crx \0\0\0\1", CMT1=tiff([maker]), CMT2=tiff([iso]), CMT4=tiff([north]))
    files = {
        "TIFF": whole,
        "ORF": b"IIRO" + whole[4:],
        "RW2": b"IIU\0" + whole[4:],
        "RAF": raf + preview.getvalue(),
        "CR3": cr3,
    }
    for name, data in files.items():
        found = tags(raw_exif(data))
        assert (found[271], found.get_ifd(0x8769)[0x8827]) == ("Maker", 800), name
        assert 0x0112 not in found, name  # the pixels are upright already
    costly = b"II*\0" + struct.pack("<I", 50_008) + bytes(50_000) + struct.pack("<H", 1000)
    costly += b"".join(struct.pack("<HHII", 1000 + i, 7, 50_000, 8) for i in range(1000)) + bytes(4)
    segment = b"\xff\xe2" + struct.pack(">H", len(costly) + 6) + b"MPF\0" + costly
    made = preview.getvalue()[:2] + segment + preview.getvalue()[2:]
    raf = b"FUJIFILMCCD-RAW ".ljust(84, b"\0") + struct.pack(">II", 92, len(made)) + made
    cr3 = boxes(ftyp=b"crx \0\0\0\1", CMT1=costly, CMT2=tiff([iso]), CMT4=tiff([north]))
    assert raw_exif(raf) == b"" and 1000 not in tags(raw_exif(cr3))  # made to cost very much
    assert raw_exif(b"FUJIFILMCCD-RAW") == raw_exif(files["CR3"][:40]) == raw_exif(b"nothing") == b""
