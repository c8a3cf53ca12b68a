"""What each window of the web page holds: the file of a tab, and the job that is wanted for it.

Jobs wait in one queue. Meanwhile a window may close, its file may be replaced, and its button may be pressed
again or cancelled; so a job asks here when its turn comes, and while it works.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from zenith_ae.errors import ZenithError

from .web_jobs import Workshop

#: Results of a window that are kept; the page may still load, and its reader save, the one before the last.
_KEPT = 3
#: The queue of all jobs on models, of which one is at work at a time.
DEVICE: dict[str, Any] = {"concurrency_id": "device", "concurrency_limit": 1}


class StoppedError(ZenithError):
    """Nobody wants the result of this job any more."""


class View:
    """What a tab of one window holds and shows, and its job. Jobs wait in a queue: what comes late asks here.

    Attributes
    ----------
    shown : the file of which a result is there.
    pictured : whether there is a picture.
    moved : whether there are other files than those of the job; only in tabs of many.
    """

    def __init__(self, workshop: Workshop) -> None:
        self.shown: str | None = None
        self.pictured = self.moved = False
        self._workshop = workshop
        self._lock = threading.Lock()  # presses and jobs are in different threads
        self._file: str | None = None
        self._gone: set[str | None] = set()
        self._presses = 0
        self._folders: list[str] = []
        self._wanted: int | None = None  # the press of which a job waits or is at work
        self._job: tuple[str | None, threading.Event] | None = None

    def turn(self, file: str | None) -> None:
        """Another file is there, or none: a job of the one before has no use."""
        with self._lock:
            if file != self._file:
                self._workshop.forget(self._file)
            self._gone = (self._gone | {self._file}) - {file}
            self._file = file
            if self.shown != file:  # else its job was faster than this
                self.shown, self.pictured = None, False
            if self._job and self._job[0] != file:
                self._job[1].set()

    def holds(self, file: str) -> None:
        """The page gets a result, whose files are where this one is; those of long before make room."""
        self._folders.append(os.path.dirname(file))
        while len(self._folders) > _KEPT:
            shutil.rmtree(self._folders.pop(0), ignore_errors=True)

    def has_gone(self, file: str | None) -> bool:
        return file in self._gone

    @property
    def is_busy(self) -> bool:
        """Whether a job is wanted that waits or is at work."""
        return self._wanted is not None

    def press(self) -> int:
        """A job is asked for; returns the number by which it is known. Those before are not wanted."""
        with self._lock:
            self._presses += 1
            self._wanted, self.moved = self._presses, False
            if self._job:
                self._job[1].set()
            return self._presses

    def stop(self) -> bool:
        """No job is wanted; returns whether one is at work."""
        with self._lock:
            self._wanted = None
            if self._job:
                self._job[1].set()
            return self._job is not None

    def begin(self, press: int, file: str | None = None) -> threading.Event:
        """A job has its turn; the flag, which may be set from the beginning, says when to stop."""
        flag = threading.Event()
        with self._lock:
            self._job = file, flag
            if press != self._wanted or self.has_gone(file):
                flag.set()
        return flag

    def end(self, press: int) -> None:
        with self._lock:
            self._job = None
            if press == self._wanted:
                self._wanted = None


class Views:
    """The view of a tab in each window. The job of a window that closes stops."""

    def __init__(self, page: gr.Blocks, workshop: Workshop) -> None:
        self._views: dict[str, View] = {}
        self._workshop = workshop
        page.unload(self._leave)

    def of(self, request: gr.Request) -> View:
        """For what happens in a window, which makes its view."""
        return self._views.setdefault(str(request.session_hash), View(self._workshop))

    def still(self, request: gr.Request) -> View | None:
        """For what had to wait, while its window may have closed."""
        return self._views.get(str(request.session_hash))

    def press(self, request: gr.Request) -> int:
        return self.of(request).press()

    def _leave(self, request: gr.Request) -> None:
        if view := self._views.pop(str(request.session_hash), None):
            view.stop()
            view.turn(None)


def guarded(work: Callable, complain: Callable[[Exception], Any]) -> Callable:
    """``work``, a function or a generator, whose failures end in what ``complain`` returns or raises."""

    @functools.wraps(work)
    def run(*values: Any) -> Any:
        try:
            return work(*values)
        except Exception as error:
            return complain(error)

    @functools.wraps(work)
    def stream(*values: Any) -> Iterator[Any]:
        try:
            yield from work(*values)
        except Exception as error:
            yield complain(error)

    return stream if inspect.isgeneratorfunction(work) else run
