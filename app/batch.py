"""Many files in one command: which inputs, where their outputs go, what is reported.

Inputs are files, folders (searched recursively), glob patterns, or ``-`` for standard input. An
output is named after its input (``stem.denoised.png``) and lies beside it, or below ``-o DIR`` at
the same place as below the input folder or below the part of a pattern that names one;
``-o FILE`` names the output of a single input, ``-o -`` is standard output. What a command made
itself is no input of a folder or a pattern.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click

from zenith_ae.errors import ImageError, OutputError, ZenithError
from zenith_ae.files import is_result

__all__ = ["STDIO", "Job", "Kind", "Reporter", "is_done", "plan", "run_jobs"]

STDIO = "-"


@dataclass(frozen=True)
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
    """

    suffixes: frozenset[str]
    rename: Callable[[str], str]
    writes: frozenset[str]


def plan(inputs: Sequence[str], output: str | None, kind: Kind) -> list[Job]:
    """The jobs of a command line, in order, without touching any output.

    Raises
    ------
    click.UsageError
        If the combination makes no sense, such as several inputs for one output file.
    """
    if list(inputs).count(STDIO) > 1:
        raise click.UsageError("standard input (-) can be given only once")
    if STDIO in inputs and sys.stdin.isatty():
        raise click.UsageError("standard input (-) is a terminal; pipe a file into it")
    # What may name several files goes into a folder, even where it happens to name only one.
    collection = any(os.path.isdir(i) or _is_pattern(i) for i in inputs)
    found = [entry for i in inputs for entry in _expand(i, kind, output)]
    if output is None:
        output = STDIO if list(inputs) == [STDIO] else None
    single = len(found) == 1 and not collection
    into_folder = (
        output is not None
        and output != STDIO
        and (output.endswith(("/", os.sep)) or os.path.isdir(output) or not single)
    )
    if output == STDIO:
        if not single:
            raise click.UsageError("-o - takes the output of a single input")
        if sys.stdout.isatty():
            raise click.UsageError("standard output is a terminal; redirect it or give -o FILE")
    if into_folder and os.path.isfile(str(output)):
        raise click.UsageError(f"-o {output} is a file, but there are several inputs; give a folder")
    if into_folder and not os.path.isdir(str(output)) and _ending(str(output)) in kind.writes:
        raise click.UsageError(
            f"-o {output} names one file, but there are several inputs; "
            f"for a folder of that name give {output}/"
        )
    if output not in (None, STDIO) and not into_folder and not os.path.exists(str(output)):
        if not _ending(str(output)):
            raise click.UsageError(
                f"-o {output} has no ending that tells the format; for a folder of that name give {output}/"
            )
        if _ending(str(output)) not in kind.writes:
            raise click.UsageError(f"-o {output}: this is written as {' '.join(sorted(kind.writes))}")
    jobs: list[Job] = []
    owners: dict[str, str] = {}
    for source, relative, error in found:
        if error is not None:
            jobs.append(Job(source, error=error))
            continue
        target = _target(source, relative, output, into_folder, kind)
        place = os.path.realpath(target)
        if place in owners and os.path.realpath(owners[place]) == os.path.realpath(source):
            continue  # named twice, as by a file and a pattern
        if target != STDIO and place == os.path.realpath(source):
            error = OutputError(
                f"{source}: would be replaced by its own output; choose another place with -o"
            )
        elif target != STDIO and place in owners:
            error = OutputError(
                f"{source}: its output {target} is also that of {owners[place]}; run it with another -o"
            )
        owners[place] = source
        jobs.append(Job(source, target, error))
    return jobs


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


def _expand(item: str, kind: Kind, output: str | None) -> Iterator[tuple[str, str, ZenithError | None]]:
    """(file, path below the folder that was given, error) of one argument."""
    if item == STDIO:
        yield item, "stdin", None
    elif os.path.isdir(item):
        empty = True
        for file in _walk(item, kind, output):
            empty = False
            yield file, os.path.relpath(file, item), None
        if empty:
            yield (
                item,
                "",
                ImageError(f"{item}: no files to work on in this folder; they end in {_listing(kind)}"),
            )
    elif _is_pattern(item):
        matches = sorted(glob.glob(item, recursive=True))
        found = [f for m in matches for f in (_walk(m, kind, output) if os.path.isdir(m) else [m])]
        wanted = dict.fromkeys(file for file in found if not is_result(file))
        if not wanted:
            only = "matches only results of this program" if found else "matches no file"
            yield item, "", ImageError(f"{item}: {only}; check the pattern")
        for file in wanted:
            yield file, os.path.relpath(file, _root(item) or "."), None
    elif not os.path.exists(item):
        yield item, "", ImageError(f"{item}: no such file; check the path")
    else:
        yield item, os.path.basename(item), None


def _walk(folder: str, kind: Kind, output: str | None) -> Iterator[str]:
    avoid = os.path.realpath(output) if output and output != STDIO else None
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if not f.startswith(".") and os.path.realpath(os.path.join(root, f)) != avoid
        )
        for file in sorted(files):
            wanted = file.lower().endswith(tuple(kind.suffixes)) and not is_result(file)
            if wanted and not file.startswith("."):
                yield os.path.join(root, file)


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


class Reporter:
    """Results to stdout (as sentences or JSON lines), errors and progress to stderr."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self._shown = False

    def progress(self, text: str) -> None:
        """One line that is overwritten, on a terminal only."""
        if not self.quiet and sys.stderr.isatty():
            self._write(sys.stderr, f"\r\x1b[K{text[:200]}", end="")
            self._shown = bool(text)

    def result(self, record: dict[str, Any], sentence: str, to_stdout: bool = True) -> None:
        """One finished input; ``to_stdout`` is False where stdout carries the data."""
        self._clear()
        if self.as_json:
            self._write(sys.stdout, json.dumps(record, ensure_ascii=False, allow_nan=False))
        elif to_stdout and not self.quiet:
            self._write(sys.stdout, sentence)
        elif self.verbose:
            self._write(sys.stderr, sentence)

    def note(self, text: str) -> None:
        if not self.quiet:
            self._clear()
            self._write(sys.stderr, f"zenith-ae: {text}")

    def detail(self, text: str) -> None:
        if self.verbose:
            self.note(text)

    def error(self, text: str) -> None:
        self._clear()
        self._write(sys.stderr, f"zenith-ae: {text}")

    def _clear(self) -> None:
        if self._shown:
            self._write(sys.stderr, "\r\x1b[K", end="")
            self._shown = False

    @staticmethod
    def _write(stream: TextIO, text: str, end: str = "\n") -> None:
        # File names may hold bytes that are no text.
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + end)
        stream.flush()


def run_jobs(
    jobs: Sequence[Job], work: Callable[[Job], dict[str, Any]], reporter: Reporter, overwrite: bool, verb: str
) -> int:
    """Do the jobs one after the other; a failed one does not stop the rest.

    ``work`` writes the output and returns what to report: ``sentence`` for people, ``notes``, and
    anything else for JSON.

    Returns
    -------
    Exit code: 0 if every input is done or was skipped, else 1.
    """
    failed = 0
    for number, job in enumerate(jobs, 1):
        record: dict[str, Any] = {"input": job.source, "output": job.output or None}
        start = time.perf_counter()
        if job.error is None and not overwrite and is_done(job):
            record |= {"status": "skipped"}
            reporter.result(
                record, f"{job.source}: skipped, {job.output} exists; use --overwrite to replace it"
            )
            continue
        reporter.progress(f"[{number}/{len(jobs)}] {verb} {job.source}")
        try:
            if job.error is not None:
                raise job.error
            if job.output != STDIO:
                _make_folder(job.output)
            done = work(job)
        except Exception as error:
            failed += 1
            message = _describe(error, job.source)
            reporter.error(message)
            if reporter.as_json:
                reporter.result(record | {"status": "failed", "error": message}, "")
            continue
        sentence = done.pop("sentence", "")
        for note in done.get("notes", ()):
            reporter.note(f"{job.source}: {note}")
        record |= {"status": "done", **done, "seconds": round(time.perf_counter() - start, 3)}
        arrow = f"{job.source} -> {job.output}"
        reporter.result(record, f"{arrow}  {sentence}".rstrip(), to_stdout=job.output != STDIO)
    reporter.progress("")
    return 1 if failed else 0


def _make_folder(output: str) -> None:
    folder = Path(output).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot make the folder: {error.strerror or error}; choose another with -o"
        ) from None


def _describe(error: Exception, source: str) -> str:
    """One line of what, where and what to do."""
    if isinstance(error, MemoryError):
        return f"{source}: not enough memory; use a smaller --tile or fewer programs at once"
    text = " ".join(str(error).split())
    if isinstance(error, BrokenPipeError):
        raise error
    if not isinstance(error, (ZenithError, click.UsageError)):
        if os.environ.get("ZENITH_DEBUG"):
            raise error
        what = f"unexpected {type(error).__name__}: {text}"
        return f"{source}: {what}; please report it (ZENITH_DEBUG=1 shows where)"
    return text if source in text or source == STDIO else f"{source}: {text}"
