"""Which files a command works on, and where what it makes of them goes.

Inputs are files, folders (searched recursively), glob patterns, or ``-`` for standard input. An
output is named after its input (``stem.denoised.png``, or with another tag) and lies beside it, or
below ``-o DIR`` at the same place as below the input folder or below the part of a pattern that names
one; ``-o FILE`` names the output of a single input, ``-o -`` is standard output. What a command made
itself is no input of a folder or a pattern.
"""

from __future__ import annotations

import errno
import glob
import math
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from zenith_ae.errors import ImageError, OutputError, ZenithError
from zenith_ae.files import is_device, is_passed_by, is_result, reason

STDIO = "-"
#: Other names of standard input and of standard output.
_STREAMS = (
    {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"},
    {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"},
)


class EmptyFolderError(ImageError):
    """A folder holds no file to work on, which a watched one may do for a while."""


class SharedOutputError(OutputError):
    """Another input has the same output."""


@dataclass(frozen=True, eq=False)
class Job:
    """One input and its output, either of which may be ``-``; or an input that already failed.

    An input that is left out, since it is the result of another one, has that as its ``maker``.
    """

    source: str
    output: str = ""
    error: ZenithError | None = None
    maker: str = ""


@dataclass(frozen=True)
class Kind:
    """What a command reads and how it names what it writes.

    Attributes
    ----------
    suffixes : endings of the files that it takes from a folder.
    rename : input name -> default output name.
    writes : endings of the files that it can write.
    foreign : endings of files that people would expect it to take, but which it cannot read.
    tag : what ``rename`` puts before the ending, by which results are known; "" where it puts nothing.
    """

    suffixes: frozenset[str]
    rename: Callable[[str], str]
    writes: frozenset[str]
    foreign: frozenset[str] = frozenset()
    tag: str = ""


class _Found(NamedTuple):
    """A file that an argument names, or why it names none.

    Attributes
    ----------
    source : the file.
    relative : its path below the folder that was given, or below the folder that a pattern names.
    error : why it cannot be worked on.
    maker : that of `Job`.
    """

    source: str
    relative: str = ""
    error: ZenithError | None = None
    maker: str = ""


def plan(
    inputs: Sequence[str],
    output: str | None,
    kind: Kind,
    foreign: set[str] | None = None,
    overwrite: bool = False,
) -> list[Job]:
    """The jobs of a command line, in order, without touching any output.

    The files in folders that have a ``kind.foreign`` ending are added to ``foreign``. With ``overwrite`` no
    job may have another's input as its output.

    Raises
    ------
    click.UsageError
        If the combination makes no sense, such as several inputs for one output file.
    """
    inputs, output = _with_streams(inputs, output)
    foreign = set() if foreign is None else foreign
    found = [entry for item in inputs for entry in _expand(item, kind, output, foreign)]
    # What may name several files goes into a folder, even where it happens to name only one.
    collection = any(os.path.isdir(item) or _is_pattern(item) for item in inputs)
    into_folder = _goes_into_folder(output, len(found), collection, kind)
    targets = ["" if entry.error else _target(entry, output, into_folder, kind) for entry in found]
    if output is None and kind.tag and not overwrite:  # then what is named is an input, and not replaced
        found = _with_makers(found, targets, kind.tag)
    return _jobs(found, targets, overwrite)


def _with_streams(inputs: Sequence[str], output: str | None) -> tuple[list[str], str | None]:
    """Inputs and output with `STDIO` for standard streams by their other names, and where none is named."""
    if output == "":
        raise click.UsageError("-o is empty (a variable that is not set?); give a file or a folder")
    output = STDIO if output in _STREAMS[1] else output
    inputs = [STDIO if item in _STREAMS[0] else item for item in inputs]
    if not all(path in (None, STDIO) or os.path.isabs(path) for path in (*inputs, output)):
        try:
            os.getcwd()
        except FileNotFoundError:
            raise click.ClickException("the working folder is gone; go to another one") from None
    if inputs.count(STDIO) > 1:
        raise click.UsageError("standard input (-) can be given only once")
    if STDIO in inputs:
        need_pipe()
    if output is None:
        for entry in filter(os.path.isdir, inputs):
            if os.path.realpath(entry) == os.path.realpath(os.sep):
                raise click.UsageError(
                    f"{entry} is all of the computer (a variable that is not set?), and results would lie "
                    "beside every picture; name a folder, or where results go with -o"
                )
    return inputs, STDIO if output is None and inputs == [STDIO] else output


def need_pipe() -> None:
    """Wrong usage where standard input would wait for what nobody means to type."""
    if sys.stdin.isatty():
        raise click.UsageError("standard input (-) is a terminal; pipe a file into it")


def _goes_into_folder(output: str | None, count: int, collection: bool, kind: Kind) -> bool:
    """Whether ``-o`` is a folder for ``count`` inputs, which may have come of a ``collection``.

    Raises
    ------
    click.UsageError
        If it is none, and cannot be one file either.
    """
    single = count == 1 and not collection
    if output is None:
        return False
    if output == STDIO:
        if not single:
            raise click.UsageError("-o - takes the output of a single input")
        if sys.stdout.isatty():
            raise click.UsageError("standard output is a terminal; redirect it or give -o FILE")
        return False
    ending = _ending(output)
    if names_folder(output) or not single:
        several = (
            "there are several inputs" if count > 1 else "a folder or a pattern may hold several pictures"
        )
        if os.path.isfile(output):
            raise click.UsageError(f"-o {output} is a file, but {several}; give a folder")
        if not os.path.isdir(output) and ending in kind.writes:
            raise click.UsageError(
                f"-o {output} names one file, but {several}; for a folder of that name give {output}/"
            )
        return True
    if not is_device(output) and not ending:
        raise click.UsageError(
            f"-o {output} has no ending that tells the format; for a folder of that name give {output}/"
        )
    if not is_device(output) and ending not in kind.writes:
        raise click.UsageError(f"-o {output}: this is written as {' '.join(sorted(kind.writes))}")
    return False


def _target(found: _Found, output: str | None, into_folder: bool, kind: Kind) -> str:
    """The output of an input."""
    if output is not None and not into_folder:
        return output
    folder, name = os.path.split(found.relative)
    if into_folder:
        return os.path.join(str(output), folder, kind.rename(name))
    beside = "" if found.source == STDIO else os.path.dirname(found.source)
    return os.path.join(beside, kind.rename(name))


def _with_makers(found: Sequence[_Found], targets: Sequence[str], tag: str) -> list[_Found]:
    """Inputs, with the makers of those that are results of others: a shell's ``*.jpg`` names them all."""
    results = [
        i
        for i, entry in enumerate(found)
        if not entry.error and os.path.splitext(entry.source)[0].lower().endswith(f".{tag.lower()}")
    ]
    if not results:
        return list(found)
    places = _Places()
    makers: dict[_Place, list[int]] = {}
    for i, entry in enumerate(found):
        for place in places.of(targets[i]) if not entry.error else ():
            makers.setdefault(place, []).append(i)
    told = list(found)
    for i in results:
        others = (k for place in places.of(found[i].source) for k in makers.get(place, ()) if k != i)
        if (maker := next(others, None)) is not None:
            told[i] = found[i]._replace(maker=found[maker].source)
    return told


def _jobs(found: Sequence[_Found], targets: Sequence[str], overwrite: bool) -> list[Job]:
    """A job for each input, in order; what would replace an input or another's output is an error."""
    jobs: dict[int, Job] = {}
    owners: dict[_Place, tuple[str, frozenset[_Place]]] = {}
    places = _Places()
    inputs = (entry.source for entry in found if overwrite and not entry.error)
    origins = frozenset().union(*map(places.of, inputs))
    # A name that several files may have is that of the one whose format stays.
    for i in sorted(range(len(found)), key=lambda i: _ending(found[i].source) != _ending(targets[i])):
        (source, _, error, maker), target = found[i], targets[i]
        if error is not None or maker:
            jobs[i] = Job(source, error=error, maker=maker)
            continue
        here, origin = places.of(target), places.of(source)
        owner, its_origin = next((owners[p] for p in here if p in owners), ("", frozenset()))
        if its_origin & origin:
            continue  # named twice, as by a file and a pattern
        if target == STDIO:
            pass  # which replaces nothing
        elif here & origin or (source == STDIO and _is_stdin(target)):
            error = OutputError(
                f"{source}: would be replaced by its own output; choose another place with -o"
            )
        elif owner:
            error = shared_output(source, target, owner)
        elif here & origins:
            error = OutputError(
                f"{source}: its output {target} is also an input; choose another place with -o"
            )
        for place in here:
            owners.setdefault(place, (source, origin))
        jobs[i] = Job(source, target, error)
    return [jobs[i] for i in sorted(jobs)]


def shared_output(source: str, output: str, other: str) -> SharedOutputError:
    return SharedOutputError(f"{source}: its output {output} is also that of {other}; run it with another -o")


_Place = tuple[object, ...]


class _Places:
    """Where files lie: paths of one file have a place in common, also through links and of what is mounted
    twice."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[_Place, bool]] = {}

    def of(self, path: str) -> frozenset[_Place]:
        """Its name in its folder, links followed; and the file itself, where it is there and has no other
        name, though perhaps another spelling (on memory cards A and a are one)."""
        places = {self._named(path)}
        with suppress(OSError, ValueError):  # there is none yet, or can be none
            found = os.stat(path)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_ino:
                places.add((found.st_dev, found.st_ino))
        return frozenset(places)

    def _named(self, path: str) -> _Place:
        folder, name = os.path.split(path)
        if name in ("", ".", "..") or os.path.islink(path):
            folder, name = os.path.split(os.path.realpath(path))
        if folder not in self._folders:
            self._folders[folder] = self.of_folder(folder), _folds(folder)
        place, folds = self._folders[folder]
        return *place, _folded(name) if folds else name

    @staticmethod
    def of_folder(path: str) -> _Place:
        if number := _number(path or os.curdir):
            return number
        path = os.path.realpath(path)  # of one that is still to be made
        return (_folded(path) if _folds(path) else path,)


def _is_stdin(path: str) -> bool:
    """Whether a path is the file that standard input was redirected from."""
    with suppress(OSError, ValueError):  # no such file; a standard input that is none
        return os.path.isfile(path) and os.path.samestat(os.stat(path), os.fstat(sys.stdin.fileno()))
    return False


def _folds(folder: str) -> bool:
    """Whether A and a are one name in a folder, as on macOS, on memory cards, and on Windows' drives in WSL.

    One that is still to be made, or has no name to try it with, is taken to be like the one that it lies in,
    if that is of the same drive.
    """
    if sys.platform == "darwin":
        return True
    try:
        folder = os.path.realpath(folder)
    except (OSError, ValueError):  # the working folder has gone; no folder can have this name
        return False
    while True:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                other = "".join(c.swapcase() if c.isascii() else c for c in entry.name)
                if other != entry.name and (number := _number(entry.path, follow=False)):
                    return number == _number(os.path.join(folder, other), follow=False)
        if os.path.ismount(folder):  # as the topmost one is
            return False
        folder = os.path.dirname(folder)


def _number(path: str, follow: bool = True) -> _Place | None:
    """By which a file system knows a file or folder, if it is there and has such a number."""
    with suppress(OSError, ValueError):
        found = os.stat(path, follow_symlinks=follow)
        return (found.st_dev, found.st_ino) if found.st_ino else None
    return None


def _folded(path: str) -> str:
    """What names of one file have in common where A and a are one, and two spellings of ä as well."""
    return unicodedata.normalize("NFD", path).casefold()


def names_folder(output: str) -> bool:
    """Whether an ``-o`` is a folder, or is to become one."""
    return output.endswith(("/", os.sep)) or os.path.isdir(output)


def _is_pattern(item: str) -> bool:
    return glob.has_magic(item) and not os.path.lexists(item)


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _root(pattern: str) -> str:
    """The folders of a pattern before the first part with a wildcard."""
    folders = os.path.dirname(pattern)
    while glob.has_magic(folders):
        folders = os.path.dirname(folders)
    return folders


def _matches(pattern: str, unread: list[OSError]) -> Iterator[str]:
    """The paths of a pattern, of which ``**`` is any folders, also through links, but not in circles.

    Why folders that ``**`` stands for cannot be read is appended to ``unread``.
    """
    stars = re.search(r"(?<![^/])\*\*(?:/+|$)", pattern)
    if not stars:
        yield from _globbed(pattern)
        return
    above, below = pattern[: stars.start()], pattern[stars.end() :]
    for top in _globbed(above) if above else [""]:
        for folder in _folders(top, unread):
            found = _matches(os.path.join(glob.escape(folder), below or "*"), unread)
            yield from found if below else (path for path in found if not os.path.isdir(path))


def _globbed(pattern: str) -> Iterator[str]:
    """The paths of a pattern without ``**``, but for what lies in folders that are passed by if not named."""
    parts = [part for part in pattern.split("/") if part]
    for path in glob.iglob(pattern):
        names = (name for name in path.split("/") if name)
        if not any(is_passed_by(name) and not is_passed_by(part) for part, name in zip(parts, names)):  # noqa: B905
            yield path


def _folders(top: str, unread: list[OSError], above: tuple[str, ...] = ()) -> Iterator[str]:
    """A folder and those below it, but for some (`is_passed_by`); ``above`` are those on the way."""
    here = os.path.realpath(top)
    if here in above:
        return
    yield top
    try:
        with os.scandir(top or os.curdir) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not is_passed_by(e.name))
    except OSError as error:
        unread.append(error)
        return
    for name in names:
        yield from _folders(os.path.join(top, name), unread, (*above, here))


def _expand(item: str, kind: Kind, output: str | None, foreign: set[str]) -> Iterator[_Found]:
    """What one argument names."""
    if item == STDIO:
        yield _Found(item, "stdin")
    elif os.path.isdir(item):
        results: list[str] = []
        passed_by: list[str] = []
        found = list(_walk(item, kind, output, foreign, results, passed_by))
        above = len(os.path.join(item, ""))
        for file, error in found:
            yield _Found(file, file[above:], error)
        if not found:
            why = f"no files to work on in this folder; they end in {' '.join(sorted(kind.suffixes))}"
            if results:
                why = f"this folder has only results of this program ({len(results)}); name those to take"
            elif passed_by:
                why = "no files to work on in this folder, but for those that are passed by; to take one, "
                why += f"name it: {passed_by[0]}"
            yield _Found(item, error=EmptyFolderError(f"{item}: {why}"))
    elif _is_pattern(item):
        unread: list[OSError] = []
        matches = sorted({match for match in _matches(item, unread) if not is_device(match)})
        avoid = _output_folder(output)
        root = _root(item)
        top, known = _Places.of_folder(root), dict[str, bool]()
        found, own = [], 0
        for match in matches:
            is_folder = os.path.isdir(match)
            folder = match if is_folder else os.path.dirname(match)
            if avoid is None or not _lies_in(folder, avoid, top, known):
                own += 1
                found += _walk(match, kind, output, foreign) if is_folder else [(match, None)]
        wanted = {file: error for file, error in found if error or not is_result(file, kind.tag)}
        if not wanted and not unread:
            why = "matches no file; check the pattern"
            if found:
                why = "matches only results of this program; check the pattern"
            elif matches and not own:
                why = f"matches only what lies in {output}, where the results go"
            yield _Found(item, error=ImageError(f"{item}: {why}"))
        for file, error in wanted.items():
            below = os.path.relpath(file, root or ".")
            outside = below.startswith(os.path.join("..", ""))  # by `..` after a wildcard
            yield _Found(file, os.path.basename(file) if outside else below, error)
        yield from (_Found(file, error=error) for file, error in _unread(unread) if file not in wanted)
    else:
        yield _Found(item, os.path.basename(item), _missing(item))


def _missing(path: str) -> ImageError | None:
    """Why there is nothing to read under a path, if so."""
    if not path:
        return ImageError("an input is empty (a variable that is not set?); give a file or a folder")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no file can have this name
        return ImageError(f"{path}: no such file; check the path")
    except OSError as error:
        return ImageError(f"{path}: cannot be read: {reason(error)}")
    return None


def _lies_in(folder: str, output: _Place, top: _Place, known: dict[str, bool]) -> bool:
    """Whether a folder below ``top`` is another one there, or in it; ``known`` is for later calls."""
    if folder not in known:
        # By its names, through links, but for those that go back.
        here = os.path.realpath(folder) if os.pardir in folder.split(os.sep) else folder
        place, above = _Places.of_folder(here), os.path.dirname(here)
        known[folder] = place != top and (
            place == output or (above != here and _lies_in(above, output, top, known))
        )
    return known[folder]


def _output_folder(output: str | None) -> _Place | None:
    """Where ``-o`` is, if it is a folder."""
    return _Places.of_folder(output) if output and output != STDIO and os.path.isdir(output) else None


def _walk(
    folder: str,
    kind: Kind,
    output: str | None,
    foreign: set[str],
    results: list[str] | None = None,
    passed_by: list[str] | None = None,
) -> Iterator[tuple[str, ZenithError | None]]:
    """Files of a folder and those below, in order, then folders that cannot be read, with the error.

    The results of earlier runs, which are left out, are appended to ``results``, and folders that are, but
    for hidden ones, to ``passed_by``.
    """
    unread: list[OSError] = []
    avoid = _output_folder(output)
    endings, foreign_endings = tuple(kind.suffixes), tuple(kind.foreign)
    for root, folders, files in os.walk(folder, onerror=unread.append):
        left_out = {f for f in folders if is_passed_by(f)}
        if passed_by is not None:
            passed_by += sorted(os.path.join(root, f) for f in left_out if not f.startswith("."))
        folders[:] = sorted(
            f
            for f in folders
            if f not in left_out and not (avoid and _Places.of_folder(os.path.join(root, f)) == avoid)
        )
        for file in sorted(files):
            if file.startswith("."):
                continue
            wanted = file.lower().endswith(endings)
            if not wanted and file.lower().endswith(foreign_endings):
                foreign.add(os.path.join(root, file))
            elif wanted and is_result(file, kind.tag):
                if results is not None:
                    results.append(file)
            elif wanted and not is_device(path := os.path.join(root, file)):
                yield path, None  # a pipe there would be waited for
    yield from _unread(unread)


def _unread(errors: list[OSError]) -> Iterator[tuple[str, ZenithError]]:
    for error in errors:
        yield error.filename, ImageError(f"{error.filename}: this folder cannot be read: {reason(error)}")


def is_done(job: Job) -> bool:
    """Whether the output exists, or the input is one; a device or a pipe never does."""
    return bool(job.maker) or (job.output != STDIO and os.path.isfile(job.output))


def make_folder(output: str | Path, option: str = "-o") -> None:
    """The folder that an output of an ``option`` lies in, made where it is missing, if it takes new files."""
    folder = Path(output).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RecursionError) as error:
        why = reason(error) if isinstance(error, OSError) else "it lies too deep"
        if isinstance(error, FileExistsError):
            at = next(filter(os.path.lexists, (folder, *folder.parents)))
            what = f"a link to {os.readlink(at)}, which is not there" if at.is_symlink() else "a file"
            why = f"{at} is {what}"
        raise OutputError(f"{folder}: cannot make the folder: {why}; choose another with {option}") from None
    if is_device(output):
        return
    target = os.path.realpath(output)  # of a link
    place, name = os.path.split(target)
    if not os.path.isdir(place):
        raise OutputError(
            f"{output}: is a link to {target}, whose folder is not there; choose another place with {option}"
        )
    letters = name if sys.platform == "darwin" else os.fsencode(name)  # which it counts, and says bytes
    if len(letters) > _longest_name(place):
        raise OutputError(f"{output}: cannot write: this name is too long; choose another with {option}")
    if not os.access(place, os.W_OK | os.X_OK):
        read_only = os.statvfs(place).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if read_only else errno.EACCES)
        raise OutputError(f"{output}: cannot write: {why}; choose another place with {option}")


def _longest_name(folder: str) -> float:
    """Bytes of a file's name there, as far as the system tells."""
    try:
        most = os.pathconf(folder, "PC_NAME_MAX")
    except (OSError, ValueError, AttributeError):
        return math.inf
    return most if most > 0 else math.inf  # -1: no limit; 0: a file system that says nothing
