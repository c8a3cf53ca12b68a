"""The work of the HTTP server: a few threads, a short queue, and what their requests are told.

A request has the whole of its body read before its job waits for a thread; requests beyond the queue are
turned away at once rather than kept waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fastapi import HTTPException, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.requests import ClientDisconnect

from zenith_ae.engine import Progress
from zenith_ae.errors import ConfigError, ImageError, LatentError

from .models import Models
from .tools import Limits

#: What makes an answer of a body. It reports its progress, which ends it where nobody waits any more.
Job = Callable[[bytes, Progress], Response]

STALL, PACE = 10, 2**14  # seconds in which so many bytes come or are taken, or the rest, else it is given up
ENDED = "zenith_ended"  # in a request's scope: the server ends, and waits no longer for the rest of a body
_AS_CURL_SAYS = "application/x-www-form-urlencoded"  # of any file, unless told otherwise
_THREADS = "zenith-job"  # how names of threads begin


class _GivenUpError(Exception):
    """Nobody waits for the answer of a job any more."""


class Worker:
    """Runs jobs in threads, within the limits, and counts."""

    def __init__(self, limits: Limits, threads: int | None) -> None:
        self.limits = limits
        self.executor = ThreadPoolExecutor(limits.jobs, thread_name_prefix=_THREADS)
        self.waiting = 0
        self.models = Models(threads)
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "zenith_requests", "Requests by operation and status.", ["operation", "status"], registry=registry
        )
        self.latency = Histogram(
            "zenith_seconds",
            "Seconds of a finished request, waiting included.",
            ["operation"],
            registry=registry,
        )
        self.pixels = Counter(
            "zenith_pixels", "Pixels worked on, once for each pass.", ["operation"], registry=registry
        )
        in_progress = Gauge("zenith_in_progress", "Requests working or waiting.", registry=registry)
        in_progress.set_function(lambda: self.waiting)

    def model(self, name: str, kind: str) -> Any:
        """A shipped model, loaded at its first use. Files of the server are out of reach."""
        from zenith_ae.weights import available_weights

        if name not in available_weights():
            raise ConfigError(f"no model {name!r:.60}; there are {', '.join(available_weights())}")
        model = self.models.get(name)
        if model.kind != kind:
            raise ConfigError(f"{name} is no {kind}; /models lists them")
        return model

    def end(self) -> None:
        """Take no more jobs, and begin none of those that wait: nobody waits for their end any more."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    async def run(self, operation: str, request: Request, work: Job) -> Response:
        """What ``work`` makes of the body of a request.

        Raises
        ------
        HTTPException
            With the status of what is wrong with the request, or of why there is no answer.
        ZenithError
            By ``work``.
        """
        start = time.monotonic()
        _check_query(request)
        _check_packing(request)
        if self.waiting >= self.limits.jobs + self.limits.queue:
            raise HTTPException(503, "too many requests are waiting; try again later", {"Retry-After": "5"})
        self.waiting += 1  # also while the body comes: it is held in memory
        given_up, job, mangled = threading.Event(), None, False
        try:
            held = [await asyncio.wait_for(self._body(request), self.limits.seconds)]
            _check_form(request)
            mangled = _has_lost_line_ends(request, held[0])
            job = self._submit(work, held, given_up)
            left = max(self.limits.seconds - (time.monotonic() - start), 0.001)
            response = await _unless_gone(asyncio.wrap_future(job), request, left)
        except (TimeoutError, asyncio.TimeoutError):
            raise HTTPException(504, f"not done after {self.limits.seconds:g} s") from None
        except ClientDisconnect:  # 499 as nginx logs it; nobody reads the answer
            raise HTTPException(499, "the client went away") from None
        except asyncio.CancelledError:  # after the grace that open requests have
            request.scope[ENDED] = True
            raise HTTPException(503, "the server ends", {"Connection": "close"}) from None
        except (ImageError, LatentError) as error:
            if mangled:
                error.args = (
                    f"{error} (sent with curl -d, which leaves out line ends? --data-binary keeps them)",
                )
            raise
        except MemoryError:
            raise HTTPException(507, "not enough memory for this picture") from None
        finally:
            given_up.set()
            if job is None:
                self.waiting -= 1
            else:
                job.cancel()  # where it still waits
        self.latency.labels(operation).observe(time.monotonic() - start)
        return response

    async def _body(self, request: Request) -> bytes:
        """The whole body, given up on as soon as it is too long."""
        data, limit = bytearray(), self.limits.upload
        declared = request.headers.get("content-length", "")
        stream = request.stream()
        due, enough = time.monotonic() + STALL, PACE
        try:
            while not (declared.isdecimal() and int(declared) > limit) and len(data) <= limit:
                data += await asyncio.wait_for(anext(stream), max(due - time.monotonic(), 0.001))
                if len(data) >= enough:
                    due, enough = time.monotonic() + STALL, len(data) + PACE
        except StopAsyncIteration:
            return bytes(data)
        except (TimeoutError, asyncio.TimeoutError):
            raise HTTPException(
                408, f"less than {PACE} bytes of the body came in {STALL} s", {"Connection": "close"}
            ) from None
        finally:
            data.clear()  # an exception's traceback keeps this frame until the next collection of garbage
        raise HTTPException(413, f"the body exceeds the limit of {limit} bytes", {"Connection": "close"})

    def _submit(self, work: Job, held: list[bytes], given_up: threading.Event) -> Future[Response]:
        """Have the body that is ``held`` worked on by a thread, which takes it: no other holds it then."""
        loop = asyncio.get_running_loop()

        def look(_: float) -> None:
            if given_up.is_set():
                raise _GivenUpError

        def leave() -> None:
            self.waiting -= 1

        def ended(_: Future[Response]) -> None:  # mostly in the job's thread
            held.clear()  # a cancelled job stays in the executor's queue until its turn
            with suppress(RuntimeError):  # the loop is closed: the server has ended
                loop.call_soon_threadsafe(leave)

        job = self.executor.submit(lambda: work(held.pop(), look))
        job.add_done_callback(ended)
        return job


def _check_query(request: Request) -> None:
    """FastAPI passes over parameters that an operation does not have, and takes the last of several."""
    known = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
    given = [name for name, _ in request.query_params.multi_items()]
    if unknown := sorted(set(given) - known):
        raise HTTPException(422, f"no parameter {unknown[0][:40]!r}; there are {', '.join(sorted(known))}")
    if len(given) > len(set(given)):
        several = max(known, key=given.count)  # a query may repeat thousands of names, not know them
        raise HTTPException(422, f"parameter {several!r} is given more than once")


def _check_packing(request: Request) -> None:
    packing = request.headers.get("content-encoding", "identity").lower()
    if packing not in ("", "identity"):
        raise HTTPException(415, f"the body is packed ({packing[:40]}); send the file as it is",
                            {"Accept-Encoding": "identity"})  # fmt: skip


def _check_form(request: Request) -> None:
    if _content_type(request).startswith("multipart/"):
        raise HTTPException(
            400, 'this is a form; send the file itself as the body (curl --data-binary "@FILE")'
        )


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").lower()


def _has_lost_line_ends(request: Request, body: bytes) -> bool:
    """Whether it looks like ``curl -d``. Of so many bytes of a picture or of latents some are line ends."""
    whole = len(body) < 2048 or b"\n" in body or b"\r" in body
    return not whole and _content_type(request).startswith(_AS_CURL_SAYS)


async def _unless_gone(job: asyncio.Future[Response], request: Request, seconds: float) -> Response:
    """What a job answers; TimeoutError, or ClientDisconnect, where nobody waits for that any more."""
    gone = asyncio.ensure_future(request.receive())  # behind the body nothing comes but the end
    either: set[asyncio.Future[Any]] = {job, gone}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if job.done():
            return job.result()
        raise ClientDisconnect if gone.done() else TimeoutError
    finally:
        gone.cancel()
        job.add_done_callback(lambda done: done.cancelled() or done.exception())  # asked for, if by nobody


def is_working() -> bool:
    """Whether a job is still worked on; its thread cannot be stopped, and Python waits for threads."""
    return any(thread.name.startswith(_THREADS) and thread.is_alive() for thread in threading.enumerate())
