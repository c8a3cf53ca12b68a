"""Files made to cost their reader much more than their bytes: refused, or read without what costs."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from zenith_ae import ImageError, read_picture
from zenith_ae.image_guard import is_costly

#: Tags of a grey picture of one pixel, which is the byte at 2: (tag, type, count, value).
PIXEL = [(256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 2),
         (277, 3, 1, 1), (278, 3, 1, 1), (279, 4, 1, 1)]  # fmt: skip


def directory(tags: list[tuple[int, int, int, int]], following: int = 0, order: str = "<") -> bytes:
    entries = b"".join(
        struct.pack(order + "HHI", *tag[:3]) + struct.pack(order + ("HH" if tag[1:3] == (3, 1) else "I"),
                                                          *((tag[3], 0) if tag[1:3] == (3, 1) else tag[3:]))
        for tag in sorted(tags)
    )  # fmt: skip
    return struct.pack(order + "H", len(tags)) + entries + struct.pack(order + "I", following)


def shared_values(count: int, size: int, order: str = "<") -> bytes:
    """A TIFF (or an EXIF block) of that many entries whose values are the same bytes."""
    names = [tag for tag in range(1000, 9000) if tag not in (34665, 34853)][:count]
    tags = PIXEL + [(tag, 7, size, 8) for tag in names]
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "I", 8 + size) + bytes(size) + directory(tags, order=order)


def overlapping(pages: int, entries: int) -> bytes:
    """A TIFF whose directories begin 12 bytes apart, each of so many entries."""
    data = bytearray(8 + 12 * (pages + entries) + 24)
    data[:8] = b"II*\0\x08\0\0\0"
    for page in range(pages):
        at = 8 + 12 * page
        struct.pack_into("<H", data, at, entries)
        struct.pack_into("<I", data, at + 2 + 12 * entries, at + 12)
    return bytes(data)


def pages_that_share(pages: int, size: int) -> bytes:
    """A TIFF of pages whose XMP lies at one place."""
    data = b"II*\0" + struct.pack("<I", 8 + size) + bytes(size)
    for page in range(pages):
        length = len(directory([*PIXEL, (700, 7, size, 8)]))
        following = len(data) + length if page < pages - 1 else 0
        data += directory([*PIXEL, (700, 7, size, 8)], following)
    return data


def big_tiff() -> bytes:
    tags = [(tag, 7, 50_000, 16) for tag in range(1000, 1100)]
    entries = b"".join(struct.pack("<HHQQ", *tag) for tag in tags)
    return (
        b"II+\0\x08\0\0\0"
        + struct.pack("<Q", 50_016)
        + bytes(50_000)
        + struct.pack("<Q", 100)
        + entries
        + bytes(8)
    )


def several_in_one(block: bytes, times: int = 1) -> bytes:
    """A JPEG that says in this block which pictures it holds, so many times."""
    segment = b"\xff\xe2" + struct.pack(">H", len(block) + 6) + b"MPF\0" + block
    plain = jpeg(b"")
    return plain[:2] + segment * times + plain[2:]


def jpeg(exif: bytes, piece: int = 65_000) -> bytes:
    """A JPEG of 8x8 pixels with that EXIF block in segments of so many bytes."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 100, 50)).save(file, "JPEG")
    segments = b"".join(
        b"\xff\xe1" + struct.pack(">H", len(part) + 8) + b"Exif\0\0" + part
        for part in (exif[i : i + piece] for i in range(0, len(exif), piece))
    )
    return file.getvalue()[:2] + segments + file.getvalue()[2:]


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 100, 50)).save(file, "PNG")
    whole = file.getvalue()
    more = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return whole[:33] + more + whole[33:]


def gif(extensions: bytes) -> bytes:
    file = io.BytesIO()
    Image.new("P", (1, 1)).save(file, "GIF")
    data = file.getvalue()
    at = 13 + 3 * 2 ** ((data[10] & 7) + 1)
    return data[:at] + extensions + data[at:]


def many_scans(more: int) -> bytes:
    """A progressive JPEG whose last scan comes so many times more."""
    file = io.BytesIO()
    Image.new("L", (80, 80), 128).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:end] + data[last:end] * more + data[end:]


def jpeg_2000(
    *, precinct: int | None = None, component: bool = False, layers: int = 0, size: int = 1200, **options
) -> bytes:
    """A JPEG 2000 file of one resolution; with precincts of that exponent, those of a component alone too."""
    file = io.BytesIO()
    try:
        Image.new("L", (size, size)).save(file, "JPEG2000", num_resolutions=1, **options)
    except (KeyError, OSError) as error:
        pytest.skip(f"this Pillow writes no JPEG 2000: {error}")
    data = bytearray(file.getvalue())
    at = data.index(b"\xff\x52")
    if layers:
        struct.pack_into(">H", data, at + 6, layers)
    if precinct is not None:
        style = data[at + 9 : at + 14] + bytes([17 * precinct])
        if component:
            data[at:at] = b"\xff\x53" + struct.pack(">HBB", 10, 0, 1) + style
        else:
            data[at : at + 14] = b"\xff\x52" + struct.pack(">HB", 13, 1) + data[at + 5 : at + 9] + style
    return bytes(data)


COSTLY = shared_values(2000, 100_000)


@pytest.mark.parametrize(
    "data, what",
    [
        pytest.param(COSTLY, "directories", id="values at one place"),
        pytest.param(shared_values(2000, 100_000, ">"), "directories", id="big-endian"),
        pytest.param(overlapping(200, 5000), "directories", id="overlapping directories"),
        pytest.param(pages_that_share(500, 200_000), "directories", id="pages that share"),
        pytest.param(big_tiff(), "directories", id="BigTIFF"),
        pytest.param(jpeg(COSTLY), "EXIF", id="JPEG"),
        pytest.param(jpeg(bytes(100_000), piece=1), "EXIF", id="JPEG of very many segments"),
        pytest.param(several_in_one(shared_values(1000, 50_000)), "list of pictures", id="JPEG of several"),
        pytest.param(several_in_one(shared_values(1, 9), 20), "list of pictures", id="JPEG of many lists"),
        pytest.param(gif(b"\x21\xfe" + b"\1a" * 100_000 + b"\0"), "comments", id="GIF, one comment"),
        pytest.param(gif(b"\x21\xfe\1a\0" * 100_000), "comments", id="GIF, many comments"),
    ],
)
@pytest.mark.parametrize("every", [False, True])
def test_files_made_to_take_long_are_refused(data, what, every):
    with pytest.raises(ImageError, match=f"its {what} would take very long to read; export it again"):
        read_picture(data, "x", every=every)


@pytest.mark.parametrize("component", [False, True])
@pytest.mark.parametrize("no_jp2", [False, True])
def test_tiny_precincts_of_jpeg_2000_are_refused_before_they_take_gigabytes(component, no_jp2):
    for exponent in (0, 1, 2):
        with pytest.raises(ImageError, match="a JPEG 2000 file of very many tiny blocks"):
            read_picture(jpeg_2000(precinct=exponent, component=component, no_jp2=no_jp2))
    if no_jp2 and not component:  # else the file is damaged; one precinct has it all, as before
        assert read_picture(jpeg_2000(precinct=11, no_jp2=True)).pixels.shape == (1200, 1200, 1)


@pytest.mark.parametrize(
    "options",
    [{"layers": 65535, "tile_size": (32, 32)}, {"codeblock_size": (4, 4)}, {"tile_size": (8, 8)}],
    ids=["layers", "blocks", "tiles"],
)
def test_what_else_makes_jpeg_2000_costly_is_refused(options):
    with pytest.raises(ImageError, match="export it again with larger ones"):
        read_picture(jpeg_2000(**options))


@pytest.mark.parametrize(
    "options",
    [
        {}, {"codeblock_size": (16, 16)}, {"tile_size": (64, 64)}, {"precinct_size": (64, 64)},
        {"quality_layers": [40, 20, 10]}, {"size": 200, "codeblock_size": (4, 4)},
    ],
)  # fmt: skip
def test_what_jpeg_2000_files_usually_have_is_read(options):
    size = options.get("size", 1200)
    assert read_picture(jpeg_2000(**options)).pixels.shape == (size, size, 1)


def test_a_jpeg_of_thousands_of_scans_is_refused():
    assert read_picture(many_scans(100)).pixels.shape == (80, 80, 1)
    with pytest.raises(ImageError, match="a JPEG of more than 200 scans"):
        read_picture(many_scans(250))
    behind = many_scans(0) + b"\xff\xda" * 1000  # as in the film of a moving photograph
    assert read_picture(behind).pixels.shape == (80, 80, 1)


@pytest.mark.parametrize(
    "chunk",
    [
        (b"eXIf", COSTLY),
        (b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n1\n" + COSTLY.hex().encode())),
    ],
    ids=["eXIf", "text"],
)
def test_a_png_with_costly_exif_is_read_without_it(chunk):
    picture = read_picture(png(chunk))
    assert "exif" not in picture.metadata
    assert (picture.pixels == (200, 100, 50)).all()


@pytest.mark.filterwarnings("ignore:Tag data larger than file")  # by Pillow's writer, one a tag
def test_avif_with_costly_exif_is_refused():
    file = io.BytesIO()
    try:
        Image.new("RGB", (8, 8)).save(file, "AVIF", exif=shared_values(3000, 50_000))
    except (KeyError, OSError) as error:
        pytest.skip(f"this Pillow writes no AVIF: {error}")
    with pytest.raises(ImageError, match="EXIF"):
        read_picture(file.getvalue())
    with pytest.raises(ImageError, match="EXIF"):  # among many that are none
        read_picture(file.getvalue()[:32] + b"II*\0" * 1_000_000)


def test_plain_text_with_comments_keeps_its_values():
    noted = b"P3 # colour\n2#wide\n1\n255\n" + b"#\n" * 1000 + b"1 2#two\r3\n4 5 6 # the end"
    assert read_picture(noted).pixels.tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_what_files_usually_have_is_not_costly(tmp_path):
    """Large values of their own, some shared ones, many pages, a cut end, directories in a circle."""
    exif = Image.Exif()
    exif[0x010E] = "a view"
    exif[0x9286] = b"x" * 60_000
    file = tmp_path / "pages.tif"
    pages = [Image.fromarray(np.full((4, 5), i, np.uint8)) for i in range(100)]
    pages[0].save(file, save_all=True, append_images=pages[1:], exif=exif, icc_profile=bytes(3000))
    assert [p.pixels[0, 0, 0] for p in read_picture(file, every=True).frames] == [*range(100)]
    assert read_picture(pages_that_share(100, 3000), every=True).more
    assert not is_costly(io.BytesIO(file.read_bytes()[:-5000]))
    assert not is_costly(io.BytesIO(b"II*\0\x08\0\0\0" + directory([(34665, 4, 1, 8)], following=8)))
    assert not is_costly(io.BytesIO(b"")) and not is_costly(io.BytesIO(b"MM\0*\xff\xff\xff\xff"))
    assert read_picture(jpeg(shared_values(0, 300_000))).metadata["exif"]  # in five segments
    assert read_picture(gif(b"\x21\xfe" + (b"\xff" + b"a" * 255) * 100 + b"\0")).pixels.size == 3
