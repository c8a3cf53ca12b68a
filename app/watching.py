"""Pictures that appear in a folder, denoised as they come (``zenith-ae watch``)."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from zenith_ae.errors import FormatError, OutputError

from .batch import Reporter, Work, run_jobs
from .inputs import EmptyFolderError, Job, SharedOutputError, is_done, shared_output

#: It rests at least this many times as long as a look at its folder took the CPU.
LOOKING = 4

#: What could not be written, it tries again after this many intervals, then after twice as long each time,
#: but at least so often (seconds).
RETRY, LONGEST_PAUSE = 10, 3600.0


@dataclass
class _Input:
    """What is known of an input. States are as of `_state`.

    Attributes
    ----------
    seen : its state at the last look.
    tried : that in which it last had its turn.
    made : that of the output which was written of it.
    told : why it can have no turn, as was said.
    again : when to try again what could not be written, by `time.monotonic`.
    pause : how long to wait after that.
    """

    seen: object = None
    tried: object = None
    made: object = None
    told: str = ""
    again: float | None = None
    pause: float = 0.0

    def is_due(self, state: object, job: Job, overwrite: bool) -> bool:
        """Whether an input in this ``state`` is to have its turn: it keeps still, and is new or another."""
        if state is None or state != self.seen:
            return False
        again = self.again is not None and time.monotonic() >= self.again
        return (state != self.tried or again) and bool(overwrite or self.made or not is_done(job))


class Watch:
    """A folder whose pictures have their turn once their files keep still.

    An input that was replaced, or whose copy had only stalled, replaces what came of it, unless that has been
    worked on since.

    Parameters
    ----------
    folder : which may be away for a while, as a network's.
    plan : the jobs of what is in it.
    work, reporter, overwrite : as of `run_jobs`.
    interval : seconds between two looks.
    """

    def __init__(
        self,
        folder: str,
        plan: Callable[[], list[Job]],
        work: Work,
        reporter: Reporter,
        overwrite: bool,
        interval: float,
    ) -> None:
        self.folder, self.plan, self.interval = folder, plan, interval
        self.work, self.reporter, self.overwrite = replace(work, write=self._write), reporter, overwrite
        self._write_result = work.write
        self._inputs: defaultdict[str, _Input] = defaultdict(_Input)
        self._makers: dict[str, str] = {}  # of what input each output came, of those that are there

    def forever(self) -> NoReturn:
        self.reporter.detail("watching; Ctrl-C ends it")
        while True:
            start = time.thread_time()
            hopeless, due = self._look()
            looking = time.thread_time() - start
            run_jobs(hopeless, self.work, self.reporter)
            self._do(due)
            time.sleep(max(self.interval, LOOKING * looking))

    def _look(self) -> tuple[list[Job], list[Job]]:
        """Jobs that no work will come of (as two inputs for one output), to be told, and those to do now."""
        there = os.path.isdir(self.folder)
        planned = self.plan() if there else []
        if there:
            sources = {job.source for job in planned}
            self._makers = {output: maker for output, maker in self._makers.items() if maker in sources}
        jobs = [self._first_come(job) for job in planned if not isinstance(job.error, EmptyFolderError)]
        now = {job.source: _state(job.source) for job in jobs}
        for source, known in self._inputs.items():
            # What failed, or could have no turn, and has gone since is new when it comes back.
            if known.made is None and now.get(source) is None:
                known.tried = None
            if there and source not in now:
                known.told = ""
        hopeless, due = [], []
        for job in jobs:
            known, state = self._inputs[job.source], now[job.source]
            if job.error is not None:
                if known.told != str(job.error):
                    known.told = str(job.error)
                    hopeless.append(job)
                continue
            known.told = ""
            if known.is_due(state, job, self.overwrite):
                known.tried = state
                due.append(job)
        for source, known in list(self._inputs.items()):
            known.seen = now.get(source)
            if known == _Input():  # nothing is known of it any more
                del self._inputs[source]
        return hopeless, due

    def _first_come(self, job: Job) -> Job:
        """Of two inputs for one output the one that was there first has it, whatever a plan prefers."""
        maker = self._makers.get(job.output) if is_done(job) else None
        if maker == job.source and isinstance(job.error, SharedOutputError):
            return replace(job, error=None)
        if maker not in (None, job.source) and job.error is None:
            return replace(job, error=shared_output(job.source, job.output, str(maker)))
        return job

    def _do(self, due: Sequence[Job]) -> None:
        replaced: list[Job] = []
        fresh: list[Job] = []
        for job in due:
            known = self._inputs[job.source]
            if known.made != _state(job.output):  # that has been worked on since, or is gone
                known.made = None
            (fresh if known.made is None else replaced).append(job)
        failures = run_jobs(replaced, self.work, self.reporter, overwrite=True)
        failures |= run_jobs(fresh, self.work, self.reporter, self.overwrite)
        for job in due:
            known = self._inputs[job.source]
            pause = known.pause or min(RETRY * self.interval, LONGEST_PAUSE)
            known.again, known.pause = None, 0.0
            failure = failures.get(job)
            # What no change of the input mends.
            if isinstance(failure, OutputError | MemoryError) and not isinstance(failure, FormatError):
                known.again, known.pause = time.monotonic() + pause, min(2 * pause, LONGEST_PAUSE)

    def _write(self, job: Job, result: Any, overwrite: bool) -> Sequence[str]:
        known = self._inputs[job.source]
        if overwrite and not self.overwrite and known.made != _state(job.output):  # since its turn came
            known.made = None
            overwrite = False
        notes = self._write_result(job, result, overwrite)
        known.made = _state(job.output)
        self._makers[job.output] = job.source
        return notes


def _state(path: str) -> object:
    """What changes while a file is being written, and with its permissions; None if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, os.access(path, os.R_OK)
