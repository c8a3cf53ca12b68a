"""``zenith-ae ui``: the web page of web_page.py on a port of this machine, and what guards it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from zenith_ae.errors import ConfigError, MissingDependencyError
from zenith_ae.files import reason, say

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(short_help="Open the web page.")
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on; 0.0.0.0 lets the whole network in.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=7860, show_default=True,
              help="Port to listen on.")  # fmt: skip
@click.option("--open/--no-open", "browser", default=True, show_default=True,
              help="Open the page in a browser, where there is a desktop.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256), help="CPU threads. [default: all]")
@click.option("--max-upload", type=click.IntRange(1, 4096), default=200, show_default=True, metavar="MB",
              help="The largest file that is taken.")  # fmt: skip
def ui(host: str, port: int, browser: bool, threads: int | None, max_upload: int) -> int:
    """Open the web page: denoise pictures, look into latents, batches, comparisons.

    It is reachable from this machine only, unless --host says otherwise. Ctrl-C stops it and removes
    everything that was uploaded or made.

    \b
    Examples:
      zenith-ae ui
      zenith-ae ui --port 8080 --no-open
      zenith-ae ui --host 0.0.0.0 --max-upload 50
    """
    with serve(host, port, threads, max_upload) as url:
        say(f"zenith-ae: {url} (Ctrl-C stops)")
        if host not in LOOPBACK:
            say("zenith-ae: everybody who reaches this address can use the page")
        if browser and host in LOOPBACK and has_desktop():
            webbrowser.open(url)
        threading.Event().wait()
    return 0


@contextmanager
def serve(host: str, port: int, threads: int | None = None, max_upload: int = 200) -> Iterator[str]:
    """Run the page until the block ends; yields its address. Everything lies in one private folder.

    Raises
    ------
    MissingDependencyError
        If Gradio is not installed.
    ConfigError
        If the address or port cannot be used.
    """
    check_port(host, port)
    folder = Path(tempfile.mkdtemp(prefix="zenith-ae-ui-"))  # only this user can read it
    set_environment(folder, host)
    page = None
    try:
        try:
            from httpx import HTTPError
            from starlette.middleware import Middleware

            from . import web_page
        except ImportError as error:
            if error.name and error.name.split(".")[0] == "zenith_ae":
                raise
            raise MissingDependencyError(
                f"the web page needs Gradio 6.24 or newer ({error.name or error} is missing); "
                "install it with: pip install 'zenith-ae[ui]'"
            ) from None
        from .web_jobs import Workshop

        script = web_page.SCRIPT.read_text(encoding="utf-8").replace("ENDINGS", web_page.ENDINGS)
        workshop = Workshop(folder, threads, max_upload * 2**20)
        examples = example_pictures()
        page = web_page.build(workshop, examples[:2], examples[:0:-1])
        workshop.keep_what_is_there()
        try:
            page.launch(
                server_name=_bracketed(host), server_port=port, prevent_thread_lock=True, quiet=True,
                share=False, inbrowser=False, show_error=False, max_file_size=max_upload * 2**20,
                # Of which all is to be had anyway; else a name with a dot in front is refused where the
                # working folder lies above.
                allowed_paths=[str(folder)], run_history=False, enable_monitoring=False, mcp_server=False,
                ssr_mode=False, pwa=False,
                footer_links=["api"], theme=web_page.theme(), css_paths=web_page.STYLE, js=script,
                app_kwargs={"middleware": [Middleware(Guard)], "docs_url": None, "redoc_url": None},
            )  # fmt: skip
        except TypeError as error:  # an older Gradio that does not know one of these
            raise MissingDependencyError(
                f"the web page needs Gradio 6.24 or newer ({error}); pip install -U 'gradio>=6.24,<7'"
            ) from None
        except OSError as error:
            raise ConfigError(f"{host}:{port}: cannot listen: {error}; choose another --port") from None
        except (ValueError, HTTPError):  # Gradio asks itself whether it runs, for three seconds
            raise ConfigError(f"{host}:{port}: the page did not answer in time; try again") from None
        yield address(host, port)
    finally:
        if page is not None and page.is_running:
            page.close(verbose=False)
        shutil.rmtree(folder, ignore_errors=True)


def address(host: str, port: int) -> str:
    """What to type into a browser on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{_bracketed(host)}:{port}/"


def _bracketed(host: str) -> str:
    """A host as addresses have it, and Gradio: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def set_environment(folder: Path, host: str) -> None:
    """What Gradio reads: no telemetry, no file outside of our folder, and no setting that adds a door."""
    for variable in [
        name for name in os.environ if name.startswith("GRADIO_") and name != "GRADIO_ROOT_PATH"
    ]:
        del os.environ[variable]
    os.environ.update(
        GRADIO_TEMP_DIR=str(folder),
        GRADIO_EXAMPLES_CACHE=str(folder / "examples"),
        GRADIO_ANALYTICS_ENABLED="False",
        HF_HUB_DISABLE_TELEMETRY="1",
    )
    for variable in ("NO_PROXY", "no_proxy"):  # it asks itself whether it runs, which no proxy can answer
        known = os.environ.get(variable)
        os.environ[variable] = ",".join([*([known] if known else []), *LOOPBACK, host])


def check_port(host: str, port: int) -> None:
    """Say clearly that a port is taken; Gradio would take another or tell a long story."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        text = reason(error)
        raise ConfigError(f"{host}:{port}: cannot listen: {text}; choose another --port or --host") from None


def has_desktop() -> bool:
    """Whether a browser has a screen to open on; on a terminal it would take the terminal over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def example_pictures() -> list[Path]:
    """The example pictures of the installation, or of the checkout: two noisy ones and a clean one."""
    home = Path(__file__).resolve().parents[1]
    for folder in (home / "_examples", home / "examples"):
        found = [folder / name for name in ("cat.png", "coffee.jpg", "cat.clean.png")]
        if all(file.is_file() for file in found):
            return found
    return []


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """ASGI middleware: no request makes this server fetch anything, no page makes the browser do so.

    * Paths that would be fetched from elsewhere (proxies, addresses as files) are refused, in the path
      and in what is sent to an endpoint. Gradio would download them.
    * A content security policy lets the browser ask this server only: no fonts, scripts or counters
      of others.
    * What is sent to endpoints is small; files come by the upload, which has its own limit.
    """

    MAX_BODY = 4 * 2**20
    REFUSED = (
        *("/gradio_api/proxy=", "/gradio_api/file=http", "/gradio_api/file/http", "/gradio_api/stream/"),
        *("/gradio_api/process_recording", "/gradio_api/deep_link", "/monitoring"),
    )
    HEADERS = (
        (b"content-security-policy",
         b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'self'; "
         b"form-action 'self'; base-uri 'self'; object-src 'none'"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )  # fmt: skip

    def __init__(self, app: Callable) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = route(scope).lower()
        if path.startswith(self.REFUSED):
            await refuse(send, 403, "refused")
            return
        if scope["method"] == "POST" and path.rstrip("/") != "/gradio_api/upload":
            body, whole = await read_body(receive, self.MAX_BODY)
            if not whole:
                await refuse(send, 413, "too large")
                return
            if asks_elsewhere(body):
                await refuse(send, 403, "files come by upload, not by address")
                return
            receive = replay(body, receive)

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.HEADERS]
            await send(message)

        await self.app(scope, receive, guarded)


def route(scope: Scope) -> str:
    """The path that routes are compared with: without the one below which the page lies, if any."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


async def read_body(receive: Receive, limit: int) -> tuple[bytes, bool]:
    """The body of a request, and whether it is within the limit."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body, True
        body += message.get("body", b"")
        if len(body) > limit:
            return body, False
        if not message.get("more_body"):
            return body, True


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body that was read, then what comes next."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return next_message


def asks_elsewhere(body: bytes) -> bool:
    """Whether a JSON body names a file by an address instead of an upload."""
    try:
        todo = [json.loads(body)]
    except (ValueError, RecursionError):
        return False  # Gradio refuses it itself
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            where = str(value.get("path") or "").strip().lower()
            if "://" in where or where.startswith(("http:", "https:", "ftp:", "file:", "//")):
                return True
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
    return False


async def refuse(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
