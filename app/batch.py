"""A command's inputs one after the other, and what is told of them."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO

import click

from zenith_ae.errors import ExistsError, ZenithError, one_line
from zenith_ae.files import leave, visible

from .inputs import STDIO, Job, is_done, make_folder

if TYPE_CHECKING:
    from concurrent.futures import Future


def _in_one_row(text: str) -> str:
    """As much of a text as fits into a row of the terminal; what wraps could not be overwritten."""
    room = shutil.get_terminal_size().columns - 1
    with suppress(OSError, ValueError):  # of this stream, should standard output be a file
        if columns := os.get_terminal_size(sys.stderr.fileno()).columns:  # 0 where it is not known
            room = columns - 1
    for end, letter in enumerate(text):
        room -= 0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        if room < 0:
            return text[:end]
    return text


class Reporter:
    """Results to stdout (as sentences or JSON lines), errors and progress to stderr, from any thread."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self._text, self._percent = "", 0
        self._line = ""  # that is shown, to be overwritten
        self._lock = RLock()

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
            with self._lock:
                self._line = text
                self._write(sys.stderr, f"\r\x1b[K{_in_one_row(visible(text))}", end="")

    def result(self, record: dict[str, Any], sentence: str, to_stdout: bool = True) -> None:
        """One finished input; ``to_stdout`` is False where stdout carries the data."""
        if self.as_json:
            ascii_only = not codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
            self._tell(sys.stdout, json.dumps(record, ensure_ascii=ascii_only, allow_nan=False))
        elif to_stdout and not self.quiet:
            self._tell(sys.stdout, visible(sentence))
        elif self.verbose:
            self._tell(sys.stderr, visible(sentence))

    def note(self, text: str) -> None:
        if not self.quiet:
            self.error(text)

    def detail(self, text: str) -> None:
        if self.verbose:
            self.note(text)

    def error(self, text: str) -> None:
        self._tell(sys.stderr, f"zenith-ae: {visible(text)}")

    def traceback(self, error: Exception) -> None:
        """Where an error came from, if ZENITH_DEBUG asks for it."""
        if wants_traceback(error):
            import traceback

            lines = "".join(traceback.format_exception(error)).splitlines()
            self._tell(sys.stderr, "\n".join(map(visible, lines)))

    def _tell(self, stream: TextIO, text: str) -> None:
        """A line above the one of progress."""
        with self._lock:
            line = self._line
            if line:
                self._write(sys.stderr, "\r\x1b[K", end="")
            self._write(stream, text)
            if line:
                self._overwrite(line)

    @staticmethod
    def _write(stream: TextIO, text: str, end: str = "\n") -> None:
        try:
            stream.write(text + end)
            stream.flush()
        except OSError:
            if stream is not sys.stderr:
                raise
            leave(stream)  # a log on a full disk: pictures are worth more than what is said of them


@dataclass(frozen=True)
class Work:
    """What a command does with one input, in three stages.

    Attributes
    ----------
    read : job -> what the file holds. May run in a thread, ahead of its turn.
    compute : (job, what was read) -> (what to write, what to report). Runs in the main thread; the
        report holds ``sentence`` for people, ``notes``, and anything else for JSON.
    write : (job, what to write, whether a file that is there is replaced) -> notes. May run in a thread,
        behind its turn; where it raises an ExistsError the job counts as skipped.
    verb : what progress calls it: "denoising".
    """

    read: Callable[[Job], Any]
    compute: Callable[[Job, Any], tuple[Any, dict[str, Any]]]
    write: Callable[[Job, Any, bool], Sequence[str]]
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
    run = _Run(jobs, work, reporter, overwrite)
    run.all()
    return run.failures


class _Run:
    """Jobs, as far as they have come. What is told of them is in their order."""

    def __init__(self, jobs: Sequence[Job], work: Work, reporter: Reporter, overwrite: bool) -> None:
        from concurrent.futures import ThreadPoolExecutor  # a tenth of the start of a command without it

        self.jobs, self.work, self.reporter, self.overwrite = jobs, work, reporter, overwrite
        self.failures: dict[Job, Exception] = {}
        todo = [job for job in jobs if job.error is None and not self._exists(job)]
        # What there is to do, and what after it.
        self._next = dict(zip(todo, [*todo[1:], None], strict=False))
        self._start, self._done = time.monotonic(), 0
        # A pipe may block for ever; only files are worth a thread, and one alone is not.
        files = all(os.path.isfile(job.source) and job.output != STDIO for job in todo)
        self._threaded = len(todo) > 1 and files
        self._reader, self._writer = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._reads: dict[Job, Future[tuple[Any, float]]] = {}
        self._writing: Future[None] | None = None

    def all(self) -> None:
        try:
            self._read_ahead(next(iter(self._next), None))
            for number, job in enumerate(self.jobs, 1):
                if job not in self._next:
                    self._leave(job)
                    continue
                if not self._exists(job):
                    self._show(number, job)
                    self._do(job)
                else:  # written by others meanwhile
                    self._read(job)
                    self._leave(job)
                self._done += 1
            self._finish_writing()
        finally:
            self._reader.shutdown(wait=False, cancel_futures=True)
            self._writer.shutdown(wait=True)
            self._finish_writing()
            self.reporter.progress("")

    def _show(self, number: int, job: Job) -> None:
        """Number, rate and remaining time, from what is done so far."""
        text = f"[{number}/{len(self.jobs)}]"
        if self._done >= 3:
            each = (time.monotonic() - self._start) / self._done
            left = round(each * (len(self._next) - self._done))
            text += f" {1 / each:.1f} a second, {left // 60}:{left % 60:02} left:"
        self.reporter.progress(f"{text} {self.work.verb} {job.source}")

    def _exists(self, job: Job) -> bool:
        return not self.overwrite and is_done(job)

    def _leave(self, job: Job) -> None:
        """A job that there is nothing to do for, or that already failed."""
        self._finish_writing()
        if job.error is not None:
            self._fail(job, job.error)
        else:
            self._skip(job)

    def _skip(self, job: Job) -> None:
        why = f"{job.output} exists; use --overwrite to replace it"
        if job.maker:
            why = f"it is the result of {job.maker}"
        sentence = f"{job.source}: skipped, {why}"
        self.reporter.result(_record(job) | {"status": "skipped"}, sentence)

    def _do(self, job: Job) -> None:
        read = self._read(job)
        try:
            content, reading = read.result() if read else _timed(self.work.read, job)
            if job.output != STDIO:  # of what can be read, and before work that may be for nothing
                make_folder(job.output)
            (result, done), computing = _timed(self.work.compute, job, content)
        except Exception as error:
            self._finish_writing()
            self._fail(job, error)
            return
        del content, read  # each is as large as the picture
        self._finish_writing()
        if self._threaded:
            self._writing = self._writer.submit(self._write, job, result, done, reading + computing)
        else:
            self._write(job, result, done, reading + computing)

    def _read(self, job: Job) -> Future[tuple[Any, float]] | None:
        """What is being read of a job, if it is; the next one's turn begins."""
        ahead = self._reads.pop(job, None)
        self._read_ahead(self._next[job])
        return ahead

    def _read_ahead(self, job: Job | None) -> None:
        if self._threaded and job is not None:
            self._reads[job] = self._reader.submit(_timed, self.work.read, job)

    def _write(self, job: Job, result: Any, done: dict[str, Any], seconds: float) -> None:
        """Write what came of a job, and report; ``seconds`` is what reading and computing took."""
        try:
            written, writing = _timed(self.work.write, job, result, self.overwrite)
        except ExistsError:  # it was not there before
            self._skip(job)
            return
        except Exception as error:
            self._fail(job, error)
            return
        notes = [*done.pop("notes", ()), *written]
        sentence = done.pop("sentence", "")
        for note in notes:
            self.reporter.note(f"{job.source}: {note}")
        record = _record(job) | {"status": "done", **done, "notes": notes}
        record["seconds"] = round(seconds + writing, 3)
        arrow = f"{job.source} -> {job.output}"
        self.reporter.result(record, f"{arrow}  {sentence}".rstrip(), to_stdout=job.output != STDIO)

    def _finish_writing(self) -> None:
        """Wait for the file being written; what nobody expected of it comes out here."""
        if self._writing is not None:
            from concurrent.futures import wait

            wait([self._writing])  # what interrupts this leaves it for the next call
            writing, self._writing = self._writing, None
            writing.result()

    def _fail(self, job: Job, error: Exception) -> None:
        self.failures[job] = error
        _tell_failure(job, error, self.reporter)


def _timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(*arguments), time.perf_counter() - start


def _record(job: Job) -> dict[str, Any]:
    return {"input": job.source, "output": job.output or None}


def _tell_failure(job: Job, error: Exception, reporter: Reporter) -> None:
    message = _describe(error, job.source)
    reporter.traceback(error)
    reporter.error(message)
    if reporter.as_json:
        reporter.result(_record(job) | {"status": "failed", "error": message}, "")


def show_plan(jobs: Sequence[Job], reporter: Reporter, overwrite: bool) -> int:
    """What `run_jobs` would do (``--dry-run``); same exit code as far as can be told."""
    failed = 0
    for job in jobs:
        if job.error is not None:
            _tell_failure(job, job.error, reporter)
            failed += 1
            continue
        skip = not overwrite and is_done(job)
        sentence = f"{job.source} -> {job.output}" + ("  (exists, would be skipped)" if skip else "")
        if job.maker:
            sentence = f"{job.source}  (is the result of {job.maker}, would be skipped)"
        reporter.result(_record(job) | {"status": "skipped" if skip else "planned"}, sentence)
    return 1 if failed else 0


def wants_traceback(error: Exception) -> bool:
    """Whether ZENITH_DEBUG asks for it: of what nobody expected, or what came of such an error."""
    expected = isinstance(error, (ZenithError, click.UsageError)) and error.__cause__ is None
    return bool(os.environ.get("ZENITH_DEBUG")) and not expected


def _describe(error: Exception, source: str) -> str:
    """One line of what, where and what to do."""
    if isinstance(error, MemoryError):
        return f"{source}: not enough memory; use a smaller --tile or fewer programs at once"
    text = one_line(error)
    if isinstance(error, BrokenPipeError):
        raise error
    if not isinstance(error, (ZenithError, click.UsageError)):
        what = f"unexpected {type(error).__name__}: {text}"
        return f"{source}: {what}; please report it (ZENITH_DEBUG=1 shows where)"
    name = one_line(source)  # as in the text
    names = {name, one_line(Path(source))}  # the latter is without ./
    named = source in ("", STDIO) or text.startswith(
        tuple(f"{name}{after}" for name in names for after in ": ")
    )
    return text if named else f"{source}: {text}"
