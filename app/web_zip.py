"""ZIP files of the page's batches: what visitors bring, which may be anything, and what they get."""

from __future__ import annotations

import contextlib
import io
import os
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from zenith_ae.errors import ImageError
from zenith_ae.files import is_passed_by
from zenith_ae.images import FOREIGN_SUFFIXES, READABLE_SUFFIXES, Picture, read_picture

ZIP_ENTRIES = 5000
#: All files of a ZIP together, in units of the upload limit.
ZIP_TIMES = 20
#: Bytes of the list of files in a ZIP, which is read as a whole.
ZIP_LIST = 4 * 2**20
NAME_BYTES = 150  # file systems count bytes, not letters


@dataclass(frozen=True)
class Source:
    """One file of a batch; ``read`` is called when its turn comes."""

    name: str
    read: Callable[[], Picture]
    size: int = 0  # of the file, in bytes
    wanted: bool = True


def safe_name(name: str) -> str:
    """A name inside a ZIP as a relative path without surprises.

    >>> safe_name("../../etc/passwd"), safe_name("C:\\\\a\\\\b.png"), safe_name("/x/./y.png")
    ('etc/passwd', 'C/a/b.png', 'x/y.png')
    """
    text = "".join(c for c in name.replace("\\", "/") if c.isprintable() and c != ":")
    parts = [part for part in PurePosixPath(text).parts if part not in ("/", "..", ".", "//")]
    return "/".join(_fitting(part) for part in parts[-8:]) or "picture"


def _fitting(name: str) -> str:
    """A name of at most `NAME_BYTES`; the suffix stays."""
    stem, suffix = os.path.splitext(name)
    suffix = suffix if len(suffix.encode()) < 20 else ""
    kept = stem.encode()[: NAME_BYTES - len(suffix.encode())]
    return kept.decode(errors="ignore") + suffix


def is_picture(name: str) -> bool:
    return name.lower().endswith(tuple(READABLE_SUFFIXES))


class Unbuffered(io.FileIO):
    """A file whose bytes are written at once and all: no buffer keeps any for which there is no room."""

    def write(self, data: Any) -> int:
        left = whole = memoryview(data).cast("B")
        while left:
            left = left[super().write(left) :]
        return len(whole)


def append(archive: zipfile.ZipFile, file: str, name: str) -> None:
    """Add a file to an archive, which is as before where that fails: what it has already is not lost."""
    end, members = archive.start_dir, len(archive.filelist)
    try:
        archive.write(file, name)
    except OSError:
        for lost in archive.filelist[members:]:
            archive.NameToInfo.pop(lost.filename, None)
        del archive.filelist[members:]
        archive.start_dir = end
        assert archive.fp is not None
        archive.fp.seek(end)
        archive.fp.truncate()
        raise


def is_zip(path: Path) -> bool:
    """Also where the end is missing, with which alone a ZIP is read: an interrupted download."""
    with open(path, "rb") as file:
        return zipfile.is_zipfile(file) or (file.seek(0), file.read(4))[1] == b"PK\3\4"


def zipped_pictures(path: Path, name: str, max_bytes: int) -> Iterator[Source]:
    """The pictures in a ZIP. Nothing is extracted: each is read into memory, up to the limits."""
    left = [max_bytes * ZIP_TIMES]
    with _ShortReads(path) as file:
        try:
            archive = zipfile.ZipFile(file)
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        except ImageError as error:
            raise ImageError(f"{name}: {error}") from None
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise ImageError(f"{name}: damaged ZIP file ({str(error)[:80]}); make it again") from None
        file.limit = None
        if len(entries) > ZIP_ENTRIES:
            raise ImageError(f"{name}: {len(entries)} files in a ZIP; the limit is {ZIP_ENTRIES}")
        found = False
        for entry in entries:
            inside = safe_name(_name_of(entry))
            *folders, file_name = inside.split("/")
            hidden = file_name.startswith(".") or any(f == "__MACOSX" or is_passed_by(f) for f in folders)
            read = partial(_unzip, archive, entry, inside, max_bytes, left)
            # One that cannot be read, such as HEIC, is to fail by its name and not to vanish.
            wanted = not hidden and (is_picture(inside) or Path(inside).suffix.lower() in FOREIGN_SUFFIXES)
            found = found or wanted
            yield Source(inside, read, entry.file_size, wanted)
        if not found:
            raise ImageError(f"{name}: no pictures in this ZIP; ZIPs in a ZIP are not opened")


def _name_of(entry: zipfile.ZipInfo) -> str:
    """Its name. What does not say that it is UTF-8 is cp437 by the standard, but macOS does not say so."""
    if not entry.flag_bits & 0x800:
        with contextlib.suppress(UnicodeError):  # cp437 beyond ASCII hardly ever is UTF-8
            return unicodedata.normalize("NFC", entry.filename.encode("cp437").decode())
    return entry.filename


def _unzip(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, max_bytes: int, left: list[int]
) -> Picture:
    if entry.flag_bits & 1:
        raise ImageError(f"{name}: encrypted; make the ZIP without a password")
    limit = min(max_bytes, left[0])
    left[0] -= min(entry.file_size, limit)  # also where all is read and then found to be damaged
    try:
        with archive.open(entry) as file:
            data = file.read(limit + 1)  # what the ZIP says about the size may be a lie
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ImageError(f"{name}: damaged in the ZIP ({str(error)[:80]})") from None
    except Exception as error:  # zlib.error, lzma.LZMAError
        raise ImageError(f"{name}: damaged in the ZIP ({type(error).__name__})") from None
    if len(data) > max_bytes:
        raise ImageError(f"{name}: larger than the upload limit of {max_bytes >> 20} MB")
    if len(data) > limit:
        raise ImageError(f"{name}: the ZIP holds more than {max_bytes * ZIP_TIMES >> 20} MB; make several")
    return read_picture(data, name, every=True)


class _ShortReads(io.FileIO):
    """A file that refuses to read much at once: zipfile reads a ZIP's list of files as a whole."""

    limit: int | None = ZIP_LIST

    def read(self, size: int | None = -1, /) -> bytes:
        rest = os.fstat(self.fileno()).st_size - self.tell()
        wanted = rest if size is None or size < 0 else min(size, rest)
        if self.limit is not None and wanted > self.limit:
            raise ImageError(f"the ZIP lists too many files; the limit is {ZIP_ENTRIES}")
        return super().read(size) or b""
