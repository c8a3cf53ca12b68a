"""Many files in one command: which inputs, where their outputs go, what is reported.

Inputs are files, folders (searched recursively), glob patterns, or ``-`` for standard input. An
output is named after its input (``stem.denoised.png``, or with another tag) and lies beside it, or
below ``-o DIR`` at the same place as below the input folder or below the part of a pattern that names
one; ``-o FILE`` names the output of a single input, ``-o -`` is standard output. What a command made
itself is no input of a folder or a pattern.
"""

from __future__ import annotations

import codecs
import errno
import glob
import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from zenith_ae.errors import ImageError, OutputError, ZenithError
from zenith_ae.files import is_device, is_result, reason, visible

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = [
    "STDIO", "EmptyFolderError", "Job", "Kind", "Reporter", "Work", "is_done", "make_folder", "names_folder",
    "plan", "run_jobs", "show_plan",
]  # fmt: skip

STDIO = "-"


class EmptyFolderError(ImageError):
    """A folder holds no file to work on, which a watched one may do for a while."""


@dataclass(frozen=True, eq=False)
class Job:
    """One input and its output, either of which may be ``-``; or an input that already failed."""

    source: str
    output: str = ""
    error: ZenithError | None = None


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
    if output == "":
        raise click.UsageError("-o is empty (a variable that is not set?); give a file or a folder")
    if output == "/dev/stdout":
        output = STDIO
    inputs = [STDIO if item == "/dev/stdin" else item for item in inputs]
    if list(inputs).count(STDIO) > 1:
        raise click.UsageError("standard input (-) can be given only once")
    if STDIO in inputs and sys.stdin.isatty():
        raise click.UsageError("standard input (-) is a terminal; pipe a file into it")
    if output is None:
        for entry in filter(os.path.isdir, inputs):
            if os.path.realpath(entry) == os.path.realpath(os.sep):
                raise click.UsageError(
                    f"{entry} is all of the computer (a variable that is not set?), and results would lie "
                    "beside every picture; name a folder, or where results go with -o"
                )
    # What may name several files goes into a folder, even where it happens to name only one.
    collection = any(os.path.isdir(i) or _is_pattern(i) for i in inputs)
    foreign = set() if foreign is None else foreign
    found = [entry for i in inputs for entry in _expand(i, kind, output, foreign)]
    if output is None:
        output = STDIO if list(inputs) == [STDIO] else None
    single = len(found) == 1 and not collection
    into_folder = output is not None and output != STDIO and (names_folder(output) or not single)
    if output == STDIO:
        if not single:
            raise click.UsageError("-o - takes the output of a single input")
        if sys.stdout.isatty():
            raise click.UsageError("standard output is a terminal; redirect it or give -o FILE")
    several = (
        "there are several inputs" if len(found) > 1 else "a folder or a pattern may hold several pictures"
    )
    if into_folder and os.path.isfile(str(output)):
        raise click.UsageError(f"-o {output} is a file, but {several}; give a folder")
    if into_folder and not os.path.isdir(str(output)) and _ending(str(output)) in kind.writes:
        raise click.UsageError(
            f"-o {output} names one file, but {several}; for a folder of that name give {output}/"
        )
    if output not in (None, STDIO) and not into_folder and not is_device(str(output)):
        if not _ending(str(output)):
            raise click.UsageError(
                f"-o {output} has no ending that tells the format; for a folder of that name give {output}/"
            )
        if _ending(str(output)) not in kind.writes:
            raise click.UsageError(f"-o {output}: this is written as {' '.join(sorted(kind.writes))}")
    jobs: dict[int, Job] = {}
    owners: dict[str, tuple[str, str]] = {}
    folders: dict[str, str] = {}
    origins = {_folded(_place(source, folders)) for source, _, error in found if overwrite and error is None}
    targets = [
        _target(source, relative, output, into_folder, kind) if error is None else ""
        for source, relative, error in found
    ]
    # A name that several files may have is that of the one whose format stays.
    for i in sorted(range(len(found)), key=lambda i: _ending(found[i][0]) != _ending(targets[i])):
        (source, _, error), target = found[i], targets[i]
        if error is not None:
            jobs[i] = Job(source, error=error)
            continue
        place, origin = _place(target, folders), _place(source, folders)
        owner, its_origin = owners.get(_folded(place), ("", ""))
        if its_origin == origin:
            continue  # named twice, as by a file and a pattern
        place, same = _folded(place), _folded(origin)
        if target == STDIO:
            pass  # which replaces nothing
        elif place == same or (source == STDIO and _is_stdin(target)):
            error = OutputError(
                f"{source}: would be replaced by its own output; choose another place with -o"
            )
        elif owner:
            error = OutputError(
                f"{source}: its output {target} is also that of {owner}; run it with another -o"
            )
        elif place in origins:
            error = OutputError(
                f"{source}: its output {target} is also an input; choose another place with -o"
            )
        owners.setdefault(place, (source, origin))
        jobs[i] = Job(source, target, error)
    return [jobs[i] for i in sorted(jobs)]


def _place(path: str, folders: dict[str, str]) -> str:
    """``os.path.realpath``, which asks for every folder of every path, with an answer a folder."""
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    place = os.path.join(folders[folder], name)
    return os.path.realpath(place) if name in ("", ".", "..") or os.path.islink(place) else place


def _is_stdin(path: str) -> bool:
    """Whether a path is the file that standard input was redirected from."""
    with suppress(OSError, ValueError):  # no such file; a standard input that is none
        return os.path.isfile(path) and os.path.samestat(os.stat(path), os.fstat(sys.stdin.fileno()))
    return False


def _folded(path: str) -> str:
    """What paths of one file have in common: macOS tells neither A from a nor two spellings of ä."""
    return unicodedata.normalize("NFD", path).casefold() if sys.platform == "darwin" else path


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
        yield from glob.iglob(pattern)
        return
    above, below = pattern[: stars.start()], pattern[stars.end() :]
    for top in glob.iglob(above) if above else [""]:
        for folder in _folders(top, unread):
            found = _matches(os.path.join(glob.escape(folder), below or "*"), unread)
            yield from found if below else (path for path in found if not os.path.isdir(path))


def _folders(top: str, unread: list[OSError], above: tuple[str, ...] = ()) -> Iterator[str]:
    """A folder and those below it whose names do not begin with a dot; ``above`` are those on the way."""
    here = os.path.realpath(top)
    if here in above:
        return
    yield top
    try:
        with os.scandir(top or os.curdir) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError as error:
        unread.append(error)
        return
    for name in names:
        yield from _folders(os.path.join(top, name), unread, (*above, here))


def _expand(
    item: str, kind: Kind, output: str | None, foreign: set[str]
) -> Iterator[tuple[str, str, ZenithError | None]]:
    """(file, path below the folder that was given, error) of one argument."""
    if item == STDIO:
        yield item, "stdin", None
    elif os.path.isdir(item):
        results: list[str] = []
        found, above = list(_walk(item, kind, output, foreign, results)), len(os.path.join(item, ""))
        for file, error in found:
            yield file, file[above:], error
        if not found and results:
            why = f"{item}: this folder has only results of this program ({len(results)}); name those to take"
            yield item, "", EmptyFolderError(why)
        elif not found:
            why = f"{item}: no files to work on in this folder; they end in {_listing(kind)}"
            yield item, "", EmptyFolderError(why)
    elif _is_pattern(item):
        unread: list[OSError] = []
        matches = sorted({match for match in _matches(item, unread) if not is_device(match)})
        avoid = _output_folder(output)
        folders = (m for m in matches if not os.path.isdir(m) or os.path.realpath(m) != avoid)
        found = [
            f for m in folders for f in (_walk(m, kind, output, foreign) if os.path.isdir(m) else [(m, None)])
        ]
        wanted = {file: error for file, error in found if error or not is_result(file, kind.tag)}
        if not wanted and not unread:
            only = "matches only results of this program" if found else "matches no file"
            yield item, "", ImageError(f"{item}: {only}; check the pattern")
        for file, error in wanted.items():
            yield file, os.path.relpath(file, _root(item) or "."), error
        yield from ((file, "", error) for file, error in _unread(unread) if file not in wanted)
    else:
        yield item, os.path.basename(item), _missing(item)


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


def _output_folder(output: str | None) -> str | None:
    return os.path.realpath(output) if output and output != STDIO else None


def _walk(
    folder: str, kind: Kind, output: str | None, foreign: set[str], results: list[str] | None = None
) -> Iterator[tuple[str, ZenithError | None]]:
    """Files of a folder and those below, in order, then folders that cannot be read, with the error.

    The results of earlier runs, which are left out, are appended to ``results``.
    """
    unread: list[OSError] = []
    avoid = _output_folder(output)
    endings, foreign_endings = tuple(kind.suffixes), tuple(kind.foreign)
    for root, folders, files in os.walk(folder, onerror=unread.append):
        folders[:] = sorted(
            f for f in folders if not f.startswith(".") and os.path.realpath(os.path.join(root, f)) != avoid
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


def _listing(kind: Kind) -> str:
    return " ".join(sorted(kind.suffixes))


def _target(source: str, relative: str, output: str | None, into_folder: bool, kind: Kind) -> str:
    if output is not None and not into_folder:
        return output
    folder, name = os.path.split(relative)
    if into_folder:
        return os.path.join(str(output), folder, kind.rename(name))
    return os.path.join(os.path.dirname(source), kind.rename(name)) if source != STDIO else kind.rename(name)


def is_done(job: Job) -> bool:
    """Whether the output exists; a device or a pipe never does."""
    return job.output != STDIO and os.path.isfile(job.output)


def _in_one_row(text: str) -> str:
    """As much of a text as fits into a row of the terminal; what wraps could not be overwritten."""
    room = shutil.get_terminal_size().columns - 1
    with suppress(OSError, ValueError):  # of this stream, should standard output be a file
        room = os.get_terminal_size(sys.stderr.fileno()).columns - 1 or room
    for end, letter in enumerate(text):
        room -= 0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        if room < 0:
            return text[:end]
    return text


class Reporter:
    """Results to stdout (as sentences or JSON lines), errors and progress to stderr."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self._shown, self._text, self._percent = False, "", 0

    def progress(self, text: str) -> None:
        """One line that is overwritten, on a terminal only."""
        self._text, self._percent = text, 0
        self._overwrite(text)

    def advance(self, share: float) -> None:
        """How much is done of what `progress` said last, from 0 to 1."""
        percent = int(100 * share)
        if percent != self._percent and 0 < percent < 100:
            self._percent = percent
            self._overwrite(f"{percent:3}%  {self._text}")  # in front, since the end may have no room

    def _overwrite(self, text: str) -> None:
        if not self.quiet and sys.stderr.isatty():
            self._write(sys.stderr, f"\r\x1b[K{_in_one_row(visible(text))}", end="")
            self._shown = bool(text)

    def result(self, record: dict[str, Any], sentence: str, to_stdout: bool = True) -> None:
        """One finished input; ``to_stdout`` is False where stdout carries the data."""
        self._clear()
        if self.as_json:
            ascii_only = not codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
            self._write(sys.stdout, json.dumps(record, ensure_ascii=ascii_only, allow_nan=False))
        elif to_stdout and not self.quiet:
            self._write(sys.stdout, visible(sentence))
        elif self.verbose:
            self._write(sys.stderr, visible(sentence))

    def note(self, text: str) -> None:
        if not self.quiet:
            self.error(text)

    def detail(self, text: str) -> None:
        if self.verbose:
            self.note(text)

    def error(self, text: str) -> None:
        self._clear()
        self._write(sys.stderr, f"zenith-ae: {visible(text)}")

    def _clear(self) -> None:
        if self._shown:
            self._write(sys.stderr, "\r\x1b[K", end="")
            self._shown = False

    @staticmethod
    def _write(stream: TextIO, text: str, end: str = "\n") -> None:
        stream.write(text + end)
        stream.flush()


@dataclass(frozen=True)
class Work:
    """What a command does with one input, in three stages.

    Attributes
    ----------
    read : job -> what the file holds. May run in a thread, ahead of its turn.
    compute : (job, what was read) -> (what to write, what to report). Runs in the main thread; the
        report holds ``sentence`` for people, ``notes``, and anything else for JSON.
    write : (job, what to write) -> notes. May run in a thread, behind its turn.
    verb : what progress calls it: "denoising".
    """

    read: Callable[[Job], Any]
    compute: Callable[[Job, Any], tuple[Any, dict[str, Any]]]
    write: Callable[[Job, Any], Sequence[str]]
    verb: str


def run_jobs(
    jobs: Sequence[Job], work: Work, reporter: Reporter, overwrite: bool = False
) -> dict[Job, Exception]:
    """Do the jobs in order; a failed one does not stop the rest.

    While one input is computed the next is read and the one before is written. Whatever ends the
    loop, Ctrl-C included, the file being written is finished first.

    Returns
    -------
    The jobs that failed, and why.
    """
    from concurrent.futures import ThreadPoolExecutor  # a tenth of the start of a command that needs none

    todo = [job for job in jobs if job.error is None and (overwrite or not is_done(job))]
    turn = {job: i for i, job in enumerate(todo)}
    # A pipe may block for ever; only files are worth a thread, and one alone is not.
    threaded = len(todo) > 1 and all(os.path.isfile(job.source) and job.output != STDIO for job in todo)
    reader, writer = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    reads: dict[Job, Future[tuple[Any, float]]] = {}
    progress = _Progress(reporter, len(jobs), len(todo), work.verb)
    failures: dict[Job, Exception] = {}
    last: _Writing | None = None

    def finish_last() -> None:
        """Wait for the file being written, and report it."""
        nonlocal last
        if last is not None:
            with suppress(Exception):  # which is reported below, whatever may interrupt the wait
                last.outcome()
            writing, last = last, None
            finish(writing)

    def finish(writing: _Writing) -> None:
        if (error := writing.finish(reporter)) is not None:
            fail(writing.job, error)

    def fail(job: Job, error: Exception) -> None:
        failures[job] = error
        _fail(job, error, reporter)

    def read_ahead(index: int) -> None:
        if threaded and index < len(todo):
            reads[todo[index]] = reader.submit(_timed, work.read, todo[index])

    try:
        read_ahead(0)
        for number, job in enumerate(jobs, 1):
            late = job in turn and not overwrite and is_done(job)  # written by others meanwhile
            if late:
                reads.pop(job, None)
                read_ahead(turn[job] + 1)
                progress.done += 1
            if late or job not in turn:
                finish_last()
                if job.error is not None:
                    fail(job, job.error)
                else:
                    sentence = f"{job.source}: skipped, {job.output} exists; use --overwrite to replace it"
                    reporter.result(_record(job) | {"status": "skipped"}, sentence)
                continue
            progress.show(number, job)
            ahead = reads.pop(job, None)
            read_ahead(turn[job] + 1)
            try:
                content, reading = ahead.result() if ahead else _timed(work.read, job)
                if job.output != STDIO:  # of what can be read, and before work that may be for nothing
                    make_folder(job.output)
                (result, done), computing = _timed(work.compute, job, content)
                del content
            except Exception as error:
                finish_last()
                fail(job, error)
                continue
            finally:
                progress.done += 1
            finish_last()
            seconds = reading + computing
            if threaded:
                written = writer.submit(_timed, work.write, job, result).result
                last = _Writing(job, done, seconds, written)
            else:
                finish(_Writing(job, done, seconds, partial(_timed, work.write, job, result)))
            del result
        finish_last()
    finally:
        reader.shutdown(wait=False, cancel_futures=True)
        writer.shutdown(wait=True)
        finish_last()
        reporter.progress("")
    return failures


@dataclass
class _Writing:
    """An output on its way to the disk, and what to report when it is there.

    Attributes
    ----------
    job, done : what it is of, and what its computation reports.
    seconds : what reading and computing took.
    outcome : waits until it is written, or writes it; returns notes and seconds.
    """

    job: Job
    done: dict[str, Any]
    seconds: float
    outcome: Callable[[], tuple[Sequence[str], float]]

    def finish(self, reporter: Reporter) -> Exception | None:
        """Report, or return why it failed."""
        job, done = self.job, self.done
        try:
            written, writing = self.outcome()
        except Exception as error:
            return error
        notes = [*done.pop("notes", ()), *written]
        sentence = done.pop("sentence", "")
        for note in notes:
            reporter.note(f"{job.source}: {note}")
        record = _record(job) | {"status": "done", **done, "notes": notes}
        record["seconds"] = round(self.seconds + writing, 3)
        arrow = f"{job.source} -> {job.output}"
        reporter.result(record, f"{arrow}  {sentence}".rstrip(), to_stdout=job.output != STDIO)
        return None


def _timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(*arguments), time.perf_counter() - start


def _record(job: Job) -> dict[str, Any]:
    return {"input": job.source, "output": job.output or None}


def _fail(job: Job, error: Exception, reporter: Reporter) -> None:
    message = _describe(error, job.source)
    reporter.error(message)
    if reporter.as_json:
        reporter.result(_record(job) | {"status": "failed", "error": message}, "")


class _Progress:
    """Number, rate and remaining time, from what is done so far."""

    def __init__(self, reporter: Reporter, total: int, todo: int, verb: str) -> None:
        self.reporter, self.total, self.todo, self.verb = reporter, total, todo, verb
        self.start = time.monotonic()
        self.done = 0

    def show(self, number: int, job: Job) -> None:
        text = f"[{number}/{self.total}]"
        if self.done >= 3:
            each = (time.monotonic() - self.start) / self.done
            left = round(each * (self.todo - self.done))
            text += f" {1 / each:.1f} a second, {left // 60}:{left % 60:02} left:"
        self.reporter.progress(f"{text} {self.verb} {job.source}")


def show_plan(jobs: Sequence[Job], reporter: Reporter, overwrite: bool) -> int:
    """What `run_jobs` would do (``--dry-run``); same exit code as far as can be told."""
    failed = 0
    for job in jobs:
        if job.error is not None:
            _fail(job, job.error, reporter)
            failed += 1
            continue
        skip = not overwrite and is_done(job)
        sentence = f"{job.source} -> {job.output}" + ("  (exists, would be skipped)" if skip else "")
        reporter.result(_record(job) | {"status": "skipped" if skip else "planned"}, sentence)
    return 1 if failed else 0


def make_folder(output: str | Path) -> None:
    """The folder that an output lies in, made where it is missing, if it takes new files."""
    folder = Path(output).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot make the folder: {reason(error)}; choose another with -o"
        ) from None
    place = os.path.dirname(os.path.realpath(output))  # of what a link points at
    if not (is_device(output) or os.access(place, os.W_OK | os.X_OK)):
        flags = os.statvfs(place).f_flag if hasattr(os, "statvfs") else 0
        why = os.strerror(errno.EROFS if flags & getattr(os, "ST_RDONLY", 0) else errno.EACCES)
        raise OutputError(f"{output}: cannot write: {why}; choose another place with -o")


def wants_traceback(error: Exception) -> bool:
    """Whether ZENITH_DEBUG asks for it: of what nobody expected, or what came of such an error."""
    expected = isinstance(error, (ZenithError, click.UsageError)) and error.__cause__ is None
    return bool(os.environ.get("ZENITH_DEBUG")) and not expected


def _describe(error: Exception, source: str) -> str:
    """One line of what, where and what to do."""
    if isinstance(error, MemoryError):
        return f"{source}: not enough memory; use a smaller --tile or fewer programs at once"
    text = " ".join(str(error).split())
    if isinstance(error, BrokenPipeError):
        raise error
    if wants_traceback(error):
        raise error
    if not isinstance(error, (ZenithError, click.UsageError)):
        what = f"unexpected {type(error).__name__}: {text}"
        return f"{source}: {what}; please report it (ZENITH_DEBUG=1 shows where)"
    return text if source in text or source == STDIO else f"{source}: {text}"
