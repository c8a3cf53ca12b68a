"""``zenith-ae serve``: an HTTP server. POST a picture, get a picture or latents.

Bodies are the bytes of a file, as ``curl --data-binary "@photo.jpg"`` sends them; `server_jobs.Worker`
works on them.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import logging
import signal
import socket
import sys
import termios
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import h11
import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter
from prometheus_client.exposition import generate_latest
from pydantic import BaseModel, BeforeValidator
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from zenith_ae import __version__
from zenith_ae.engine import Progress
from zenith_ae.errors import (
    ConfigError,
    IsaError,
    MissingDependencyError,
    WeightsError,
    ZenithError,
    one_line,
)
from zenith_ae.files import say, visible

from .server_jobs import ENDED, PACE, STALL, Worker
from .session import denoised, encoding_notes, noise_level
from .tools import Limits

if TYPE_CHECKING:
    from zenith_ae.images import Picture
    from zenith_ae.pipelines import Autoencoder, Denoiser

MOST_NOTES = 2000  # bytes of notes in an answer's head
GRACE = 5  # seconds that open requests have when the server is told to end, and bodies that are in vain
DRAIN = 32 * 2**20  # bytes of a body in vain that are read, so that its client sees the answer
LATENTS = "application/vnd.safetensors"

_log = logging.getLogger("uvicorn.error")  # where unexpected errors go too

#: Errors that are none of the client's.
_STATUS = {MissingDependencyError: 501, IsaError: 500}


def _level(text: str) -> float | Literal["auto"]:
    if text.lower() == "auto":
        return "auto"
    try:
        return noise_level(text)
    except ValueError:
        raise HTTPException(400, f"sigma {text[:40]!r} is not auto or a number in 0..255") from None


Sigma = Annotated[
    float | Literal["auto"],
    BeforeValidator(_level),
    Query(description="auto, or the noise's standard deviation of 0..255"),
]
Share = Annotated[float, Query(ge=0, le=1)]
Format = Annotated[
    Literal[
        "png", "jpg", "webp", "tif", "avif", "bmp", "jp2", "ppm",
        "jpeg", "jpe", "jfif", "tiff", "pgm", "pnm",
    ],
    BeforeValidator(lambda text: text.lower().removeprefix(".") if isinstance(text, str) else text),
]  # fmt: skip
Quality = Annotated[int | None, Query(ge=1, le=100, description="of JPEG, WebP and AVIF")]
Model = Annotated[str, Query(description="name of a model, see /models")]
_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}
_PICTURE: dict[int | str, dict[str, Any]] = {200: {"content": {"image/*": {}}, "description": "a picture"}}


class Failure(BaseModel):
    """Every answer that is not the result: what is wrong, in one line."""

    detail: str


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure, "description": description}
    for status, description in {
        400: "unusable input",
        408: "the body comes too slowly",
        413: "body too large",
        415: "the body is packed",
        422: "a parameter that there is not, twice, or out of range",
        500: "the server is at fault",
        501: "the server lacks what this needs; `detail` says what to install there",
        503: "too many requests, or the server ends",
        504: "took too long",
        507: "not enough memory for this picture",
    }.items()
}


def create_app(limits: Limits | None = None, threads: int | None = None) -> FastAPI:
    """The application, for any ASGI server.

    Parameters
    ----------
    limits : see `Limits`.
    threads : CPU threads of a job; default all.
    """
    worker = Worker(limits or Limits(), threads)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        worker.end()

    # The interactive pages of FastAPI load scripts from elsewhere; /docs here is a page of its own.
    app = FastAPI(
        title="zenith-ae", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        redirect_slashes=False,  # with curl, which does not follow, an empty file would look like success
        description="Denoise pictures; encode them to latents and back.",
    )  # fmt: skip
    app.state.worker = worker
    _add_operations(app, worker)
    _add_pages(app, worker)
    _answer_errors(app)
    app.add_middleware(_Head)
    app.add_middleware(_Count, worker.requests)
    app.add_middleware(_HearOut)
    return app


def _add_operations(app: FastAPI, worker: Worker) -> None:
    """What is done with a body: POST /denoise, /encode and /decode."""
    limits = worker.limits

    def picture(data: bytes, every: bool = False) -> Picture:
        from zenith_ae.images import read_picture

        return read_picture(data, "body", limits.pixels, every)

    def answer(result: Picture, model: Any, format: str | None, quality: int | None, strip: bool,
               look: Progress, headers: dict[str, str] | None = None) -> Response:  # fmt: skip
        from PIL import Image

        from zenith_ae.image_writing import encode_picture, suffix_for, write_format

        suffix = f".{format}" if format else suffix_for(result.format)
        look(1.0)  # an encoder cannot be stopped once it has begun
        buffer = io.BytesIO()
        notes = result.every_note + encode_picture(
            result.stripped() if strip else result, buffer, suffix, "result", quality
        )
        Image.init()  # Pillow may have had no part in it yet: a raw file, written as PPM
        kind = Image.MIME[str(write_format(suffix))]
        return Response(buffer.getvalue(), media_type=kind, headers=_headers(model, notes) | (headers or {}))

    @app.post("/denoise", openapi_extra=_BODY, responses=_PICTURE | _ERRORS, response_class=Response)
    async def denoise(
        request: Request,
        model: Model = "zenith-denoise",
        sigma: Sigma = "auto",
        strength: Share = 1.0,
        luma: Share = 1.0,
        chroma: Share = 1.0,
        grain: Share = 0.0,
        passes: Literal["1", "2", "4", "8"] = "1",  # a query is text, which a Literal of numbers refuses
        format: Annotated[Format | None, Query(description="default: the input's")] = None,
        quality: Quality = None,
        strip: bool = False,
    ) -> Response:
        """A picture in, a clean picture of the same size, mode and bit depth out, every frame or page."""

        def work(data: bytes, look: Progress) -> Response:
            from zenith_ae.image_writing import fitting, holds_several, suffix_for

            denoiser: Denoiser = worker.model(model, "denoiser")
            noisy = picture(data, every=format is None or holds_several(f".{format}"))
            noisy = fitting(noisy, f".{format}" if format else suffix_for(noisy.format), "result")
            pixels = noisy.counted_area
            settings = {"strength": strength, "luma": luma, "chroma": chroma, "grain": grain,
                        "passes": int(passes)}  # fmt: skip
            if pixels * int(passes) > limits.pixels:
                raise ConfigError(f"body: {passes} passes over {pixels} pixels exceed the limit of "
                                  f"{limits.pixels}; ask for fewer")  # fmt: skip
            result, mean = denoised(denoiser, noisy, sigma, settings, progress=look)
            worker.pixels.labels("denoise").inc(noisy.area * int(passes))
            return answer(result, denoiser, format, quality, strip, look, {"X-Zenith-Sigma": f"{mean:.2f}"})

        return await worker.run("denoise", request, work)

    @app.post(
        "/encode", openapi_extra=_BODY, response_class=Response,
        responses=_ERRORS | {200: {"content": {LATENTS: {}}, "description": "a latent file"}},
    )  # fmt: skip
    async def encode(
        request: Request, model: Model = "zenith-taef2-lite", dtype: Literal["fp16", "fp32", "uint8"] = "fp16"
    ) -> Response:
        """A picture in, a latent file out: safetensors with the tensor `latents` (1, C, H/8, W/8)."""

        def work(data: bytes, look: Progress) -> Response:
            from zenith_ae.latents import encode_latents

            autoencoder: Autoencoder = worker.model(model, "autoencoder")
            source = picture(data)
            file = autoencoder.encode_picture(source, progress=look)
            worker.pixels.labels("encode").inc(source.width * source.height)
            return Response(encode_latents(file, dtype), media_type=LATENTS,
                            headers=_headers(autoencoder, encoding_notes(source)))  # fmt: skip

        return await worker.run("encode", request, work)

    @app.post("/decode", openapi_extra=_BODY, responses=_PICTURE | _ERRORS, response_class=Response)
    async def decode(
        request: Request,
        model: Annotated[
            str | None,
            Query(description="default: the one that made the latents, else one that reads them"),
        ] = None,
        format: Format = "png",
        quality: Quality = None,
    ) -> Response:
        """A latent file in, a picture of the original size out (PNG unless another is asked for)."""

        def work(data: bytes, look: Progress) -> Response:
            from zenith_ae.images import check_size
            from zenith_ae.latents import parse_latents, shipped_reader, unread

            file = parse_latents(data, "body")
            check_size((file.width, file.height), "body", limits.pixels)
            name = shipped_reader(file) if model is None else model
            if name is None:
                raise unread(file, "body")
            autoencoder: Autoencoder = worker.model(name, "autoencoder")
            if not file.fits(autoencoder):
                raise ConfigError(f"body: made by {file.maker}; {name} ({autoencoder.hash}) does not read "
                                  "its latents")  # fmt: skip
            result = autoencoder.decode_picture(file, progress=look)
            worker.pixels.labels("decode").inc(file.width * file.height)
            return answer(result, autoencoder, format, quality, False, look)

        return await worker.run("decode", request, work)


def _add_pages(app: FastAPI, worker: Worker) -> None:
    """What is told about the server: GET /models, /health, /metrics and /docs."""

    @cache
    def listed() -> list[dict[str, Any]]:
        from zenith_ae.weights import available_weights, load_weights

        found = []
        for name in available_weights():
            try:
                found.append(load_weights(name))
            except WeightsError as error:
                _log.error("%s", error)
        return [
            {"name": w.config.name, "kind": w.config.kind, "weights": w.hash,
             "latent_channels": w.config.latent_channels or None} for w in found
        ]  # fmt: skip

    @app.get("/models")
    def models() -> list[dict[str, Any]]:
        """The models that come with zenith-ae."""
        return listed()

    @app.get("/health")
    def health() -> dict[str, Any]:
        """Whether the server takes work."""
        return {"status": "ok", "version": __version__, "in_progress": worker.waiting}

    @app.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(worker.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(_page(app.openapi(), request.url.netloc))


def _answer_errors(app: FastAPI) -> None:
    """One line of JSON, `detail`, for whatever goes wrong."""

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def elsewhere(request: Request, error: HTTPException) -> JSONResponse:
        paths: dict[str, Any] = app.openapi()["paths"]
        there = "; ".join(
            f"{method} {', '.join(path for path, ways in paths.items() if method.lower() in ways)}"
            for method in ("POST", "GET")
        )
        asked = f"{request.method} {request.url.path}"[:60]
        return JSONResponse({"detail": f"no {asked}; there are {there}"}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def out_of_range(request: Request, error: RequestValidationError) -> JSONResponse:
        lines = (
            f"{each['loc'][-1]} {str(each['input'])[:40]!r}: {each['msg'].removeprefix('Input ')}"
            for each in error.errors()
        )
        return JSONResponse({"detail": "; ".join(lines)}, 422)

    @app.exception_handler(ZenithError)
    async def unusable(request: Request, error: ZenithError) -> JSONResponse:
        if isinstance(error, WeightsError):  # names of models are looked up before: the file is at fault
            _log.error("%s", error)
            return JSONResponse({"detail": "a weights file of the server is damaged, see its log"}, 500)
        return JSONResponse({"detail": one_line(error)}, _STATUS.get(type(error), 400))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": f"unexpected {type(error).__name__}"}, 500)


class _Head:
    """Answers HEAD as GET, whose body the server then leaves out (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


class _Count:
    """Counts what the operations answer, by status."""

    def __init__(self, app: ASGIApp, requests: Counter) -> None:
        self.app, self.requests = app, requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        def count(status: int) -> None:
            if (route := scope.get("route")) and "POST" in route.methods:
                self.requests.labels(route.name, str(status)).inc()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, answer)
        except Exception:  # what nothing in here answers
            count(500)
            raise


class _HearOut:
    """Reads what is left of a body for a while, and forgets it, before it answers with an error: a client
    that still sends does not look for an answer, and sees only that the connection breaks if it is closed
    too early."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # Behind the header "Expect: 100-continue" nothing comes before it is asked for.
        expected = (b"expect", b"100-continue") in ((name, value.lower()) for name, value in scope["headers"])
        asked, ended = not expected, False

        async def hear() -> Message:
            nonlocal asked, ended
            asked = True
            message = await receive()
            ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
            return message

        async def hear_out() -> None:
            left = DRAIN
            while not ended and left > 0:
                left -= len((await hear()).get("body", b""))

        async def answer(message: Message) -> None:
            refused = message["type"] == "http.response.start" and message["status"] >= 400
            if refused and asked and ENDED not in scope:
                with suppress(TimeoutError, asyncio.TimeoutError):
                    await asyncio.wait_for(hear_out(), GRACE)
            await send(message)

        await self.app(scope, hear, answer)


def _headers(model: Any, notes: tuple[str, ...]) -> dict[str, str]:
    headers = {"X-Zenith-Model": model.name, "X-Zenith-Weights": model.hash}
    if notes:
        text = visible("; ".join(notes)).encode("ascii", "replace").decode()
        # Clients and proxies refuse long headers; of a document each page may have a note.
        headers["X-Zenith-Notes"] = text if len(text) <= MOST_NOTES else f"{text[: MOST_NOTES - 3]}..."
    return headers


def _page(schema: dict[str, Any], host: str) -> str:
    """The operations of an OpenAPI schema as a page that needs nothing from elsewhere."""
    from html import escape

    rows = []
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parameters = []
            for parameter in operation.get("parameters", []):
                default = parameter["schema"].get("default")
                text = escape(parameter["name"]) + (
                    f" = {escape(str(default))}" if default is not None else ""
                )
                parameters.append(f'<code title="{escape(parameter.get("description", ""))}">{text}</code>')
            rows.append(
                f"<tr><td><code>{method.upper()} {escape(path)}</code></td>"
                f"<td>{escape(operation.get('description', ''))}</td><td>{' '.join(parameters)}</td></tr>"
            )
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>zenith-ae</title>
<meta name="viewport" content="width=device-width"><style>
:root {{ color-scheme: light dark }} body {{ font: 16px/1.5 system-ui; margin: 2rem auto; max-width: 60rem;
padding: 0 1rem }} td, th {{ padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top }}
pre {{ overflow: auto }}</style></head><body><h1>zenith-ae {escape(__version__)}</h1>
<p>{escape(schema["info"]["description"])} The body of a POST is the file itself.</p>
<pre>curl --data-binary "@photo.jpg" {escape(host)}/denoise -o clean.jpg
curl --data-binary "@photo.jpg" {escape(host)}/encode -o photo.latent.safetensors
curl --data-binary "@photo.latent.safetensors" "{escape(host)}/decode?format=webp" -o back.webp</pre>
<table><tr><th>request</th><th></th><th>parameters</th></tr>{"".join(rows)}</table>
<p>The machine-readable description is <a href="openapi.json">openapi.json</a>.</p></body></html>"""


class _Protocol(H11Protocol):
    """HTTP whose requests have `STALL` seconds for their heads: idle connections would take all there are.

    And whose answers are read by at least `PACE` bytes in that time: else each keeps its memory for ever.
    """

    _patience: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        self._stop_watching()

    def send_400_response(self, msg: str) -> None:
        """Of what is no HTTP, in the form of all errors."""
        answer = JSONResponse({"detail": "no valid HTTP request"}, 400, {"Connection": "close"})
        head = h11.Response(status_code=400, headers=answer.raw_headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Clients may ask for another protocol; it is no news for whoever runs the server."""

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._watch_reader(None)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def _watch_reader(self, before: int | None) -> None:
        # What the system holds counts too: it takes more only when megabytes of that are gone.
        try:
            held = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:  # not every system tells it of a socket
            return
        left = self.transport.get_write_buffer_size() + int.from_bytes(held, sys.byteorder)
        if before is not None and before - left < PACE:
            self.transport.abort()
        else:
            self._reading = self.loop.call_later(STALL, self._watch_reader, left)

    def _stop_watching(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _await_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._patience is None:
            self._patience = self.loop.call_later(STALL, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def listen(host: str, port: int, limits: Limits, threads: int | None) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, whose handlers are then called once more.

    Raises
    ------
    OSError
        If the address or the port is not to be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        address, number = listener.getsockname()[:2]
        address = f"[{address}]" if ":" in address else address
        say(f"zenith-ae: http://{address}:{number}/  (Ctrl-C ends it)")
        app = create_app(limits, threads)
        # A lifespan that a second Ctrl-C breaks off would print a traceback.
        config = uvicorn.Config(app, log_level="warning", server_header=False, lifespan="off", ws="none",
                                timeout_graceful_shutdown=GRACE, http=_Protocol)  # fmt: skip
        server = uvicorn.Server(config)
        try:
            with _ended_by_hangup(server):
                server.run([listener])
        finally:
            app.state.worker.end()


@contextmanager
def _ended_by_hangup(server: uvicorn.Server) -> Iterator[None]:
    """SIGHUP ends a server as SIGTERM does, which it minds itself."""
    handler = signal.getsignal(signal.SIGHUP)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if handler is signal.SIG_IGN or elsewhere:
        yield
        return
    came = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        came.set()
        server.should_exit = True

    signal.signal(signal.SIGHUP, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, handler)
    if came.is_set():
        signal.raise_signal(signal.SIGHUP)
