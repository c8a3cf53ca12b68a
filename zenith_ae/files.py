"""Names of files, and writing them so that a failure loses nothing: whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from .errors import ExistsError, OutputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What the commands put between the name and the suffix of a picture that they write.
RESULTS = (".denoised", ".deblurred", ".decoded", ".roundtrip")
# Of Windows' drives, of Linux's, and of network storage by Synology and QNAP.
_OF_SYSTEMS = frozenset((
    "$recycle.bin", "recycler", "system volume information", "lost+found", "@eadir", "#recycle", "@recycle",
))  # fmt: skip
_LIBRARIES = ".photoslibrary", ".photolibrary", ".migratedphotolibrary", ".aplibrary"


def as_path(value: Any) -> Path:
    """What a caller gives as a path, checked.

    Raises
    ------
    ValueError
        If it is none, or an empty one.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"a path is text or a pathlib.Path, not {type(value).__name__}")
    if not os.fspath(value):
        raise ValueError("the path is empty (a variable that is not set?)")
    return Path(value)


def as_text(value: object) -> str:
    """What can be stored as UTF-8: names of files need not be text."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def visible(text: str) -> str:
    """Text on one line: names may hold line ends, what a terminal takes for a command, and no text at all."""
    unseen = r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]"
    return re.sub(unseen, lambda match: match[0].encode("unicode_escape").decode(), text)


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Rows of cells as lines, the first ``left`` columns flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    form = "  ".join(f"{{:{'<' if i < left else '>'}{width}}}" for i, width in enumerate(widths))
    return [form.format(*row).rstrip() for row in rows]


def say(text: str) -> None:
    """Print a line on standard error. Where that fails (a full disk) the work goes on without a log."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # a log on a full disk
        leave(sys.stderr)


def leave(stream: TextIO) -> None:
    """Point a stream that cannot be written at /dev/null, so that the flush at exit does not fail again."""
    with contextlib.suppress(OSError):  # one of no file, as in a notebook
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def safetensors_bytes(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file; of the same contents always the same bytes.

    safetensors writes the metadata in random order, so the header is written again, sorted. A file is the
    length of its header (8 bytes), the header, JSON padded to a multiple of 8 bytes, and the tensors, whose
    offsets count from the header's end.
    """
    import numpy as np
    from safetensors.numpy import save

    made = save({name: np.asarray(t, order="C") for name, t in tensors.items()}, dict(metadata))
    end = 8 + int.from_bytes(made[:8], "little")
    header = json.dumps(json.loads(made[8:end]), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    text = header.encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + made[end:]


def is_result(path: str | Path, tag: str = "") -> bool:
    """Whether a file's name says that a command made it: ``photo.denoised.png``, or ``photo.tag.png``."""
    tags = (*RESULTS, f".{tag.lower()}") if tag else RESULTS
    return os.path.splitext(os.path.basename(path))[0].lower().endswith(tags)


def is_passed_by(folder: str) -> bool:
    """Whether a folder of this name, met on the way through others, is left out.

    So are hidden ones, recycle bins, what systems keep for themselves, and a Mac's photo libraries, which are
    no folders to their owners.
    """
    name = folder.lower()
    return name.startswith(".") or name in _OF_SYSTEMS or name.endswith(_LIBRARIES)


def is_device(path: str | Path) -> bool:
    """Whether something is there that is no file and no folder: /dev/null, a pipe."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class _Writer(io.BufferedWriter):
    """A buffered file whose every byte passes through `write`.

    Encoders that find a descriptor write to it themselves and lose the reason of a failure
    ("encoder error -2" instead of "No space left on device").
    """

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


@contextlib.contextmanager
def atomic_writer(path: str | Path, overwrite: bool = True) -> Iterator[_Writer]:
    """A binary file that takes the place of ``path`` when the block ends without an exception.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and then replace
    ``path`` in one step. Whatever goes wrong before, ``path`` stays as it was and the temporary
    file is removed. Where the system can (Linux), it has no name until it is whole, and a new
    ``path`` is the first name it gets, so that not even a killed program leaves it behind. Links
    are followed; a device or pipe is written to directly.

    Raises
    ------
    OutputError
        If the folder or the file cannot be written (permission, disk full, ...).
    ExistsError
        If ``path`` is there and not to be overwritten, also where it came while the block ran.
    """
    try:
        target = Path(os.path.realpath(path))
    except ValueError as error:  # "embedded null byte"
        raise OutputError(f"{os.fspath(path)!r}: not a usable path: {error}") from None
    if os.path.isdir(target):  # os.path answers for impossible names too
        raise OutputError(f"{path}: is a folder; give a file name")
    special = is_device(path)  # the target of /dev/fd/63, a pipe of the shell's, is no path
    if not (overwrite or special) and os.path.exists(target):
        raise _taken(path)
    temporary = Path(path) if special else target.parent / f".zenith-ae.{os.urandom(8).hex()}.tmp"
    nameless = named = False
    try:
        descriptor = None if special else _open_nameless(target.parent)
        nameless = descriptor is not None
        raw = io.FileIO(
            descriptor if descriptor is not None else temporary,
            "w" if special or nameless else "x",
            opener=_open_private if target.exists() else None,
        )
    except OSError as error:
        hint = "give it a shorter name" if error.errno == errno.ENAMETOOLONG else "choose another place"
        raise OutputError(f"{path}: cannot write: {reason(error)}; {hint}") from None
    file = _Writer(raw)
    try:
        try:
            yield file
            file.flush()
            if not special:
                _take_after(target, raw.fileno())
                os.fsync(raw.fileno())
            if nameless:
                named = _give_name(raw.fileno(), target, temporary, overwrite)
        finally:
            with contextlib.suppress(OSError):  # after a failed flush the bytes are lost anyway
                file.close()
        if not special:
            if not named:
                _rename(temporary, target, overwrite)
            _sync_folder(target.parent)
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        if isinstance(error, FileExistsError) and not overwrite:
            raise _taken(path) from None
        raise OutputError(f"{path}: cannot write: {reason(error)}; nothing was replaced") from None
    finally:
        if not special:
            with contextlib.suppress(OSError):  # the reason of the failure is what matters
                temporary.unlink(missing_ok=True)


def _taken(path: str | Path) -> ExistsError:
    return ExistsError(f"{path}: exists, and was not replaced; choose another name")


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: all are on the disk before the first replaces an old one.

    Raises
    ------
    OutputError
        If one cannot be written; nothing is replaced then, unless it is a rename that fails.
    """
    with contextlib.ExitStack() as all_written:
        for path, data in contents.items():
            file = all_written.enter_context(atomic_writer(path))
            file.write(data)
            file.flush()
            if not is_device(path):  # a quota or a network's file system may refuse as late as here
                os.fsync(cast(io.FileIO, file.raw).fileno())


def _give_name(descriptor: int, target: Path, temporary: Path, overwrite: bool) -> bool:
    """Name a file that has no name ``target``, or else (or a copy of it) ``temporary``; whether ``target``.

    A link replaces nothing, so where there is a ``target`` another name has to do for a moment, if it is
    to be overwritten. Why there can be no link is not asked: sandboxes, a /proc of others and file systems
    without links answer in many ways, and what is a real hindrance shows in what is tried next.
    """
    # Only linkat(2) follows the link, and Python only calls it for a src_dir_fd, which an absolute path
    # leaves unused.
    link = partial(os.link, f"/proc/self/fd/{descriptor}", src_dir_fd=descriptor, follow_symlinks=True)
    try:
        try:
            link(target)
            return True
        except FileExistsError:
            if not overwrite:
                raise
            link(temporary)
    except FileExistsError:
        raise
    except OSError:
        _copy(descriptor, temporary)
    return False


def _rename(temporary: Path, target: Path, overwrite: bool) -> None:
    """Give a file with a name another one, which is taken from what has it only to ``overwrite`` that."""
    if not overwrite:
        try:
            os.link(temporary, target)  # the other name goes later
            return
        except FileExistsError:
            raise
        except OSError:  # no links there
            pass
        if os.path.lexists(target):  # as near as one can come without links
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.replace(temporary, target)


def _copy(descriptor: int, path: Path) -> None:
    """Write what a file without a name holds to a new one with a name."""
    with open(path, "xb", opener=_open_private) as file:
        _take_after(descriptor, file.fileno())
        offset = 0
        while chunk := os.pread(descriptor, 2**20, offset):
            file.write(chunk)
            offset += len(chunk)
        file.flush()
        os.fsync(file.fileno())


def _open_nameless(folder: Path) -> int | None:
    """A descriptor of a new file without a name in a folder; None where there is no such thing."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        # Not this file system, or not this kernel; anything else fails with a name as well.
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed because the disk, a quota or the largest file size is exhausted."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def reason(error: OSError) -> str:
    """The cause of an OSError without its number and file name."""
    return error.strerror or str(error) or type(error).__name__


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _take_after(old: Path | int, descriptor: int) -> None:
    """Give a file the owner, the permissions and the extended attributes of an old one, where possible.

    Before it has a name, so that nobody can read it who could not read the old one.
    """
    with contextlib.suppress(OSError):  # there is no old one
        found = os.stat(old)
        with contextlib.suppress(OSError):  # only root may give files away
            os.fchown(descriptor, found.st_uid, found.st_gid)
        os.fchmod(descriptor, found.st_mode & 0o7777)
        for name in os.listxattr(old) if hasattr(os, "listxattr") else ():
            with contextlib.suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(old, name))


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
