"""The HTTP server, in this process through an ASGI client, and as a program."""

import asyncio
import contextlib
import gzip
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")
pytest.importorskip("httpx", reason="the client of these tests")

from click.testing import CliRunner
from fastapi.testclient import TestClient

import zenith_ae
from zenith_ae.app import server as server_module
from zenith_ae.app import server_jobs
from zenith_ae.app.server import Limits, create_app
from zenith_ae.app.tools import serve
from zenith_ae.errors import IsaError, MissingDependencyError
from zenith_ae.latents import LatentFile, encode_latents, parse_latents
from zenith_ae.pipelines import Denoiser
from zenith_ae.weights import load_weights


def noisy(height=24, width=40, mode="RGB"):
    rng = np.random.default_rng(1)
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    return np.clip(rng.normal(128, 20, shape), 0, 255).astype(np.uint8)


def png(pixels, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", **options)
    return buffer.getvalue()


def latents():
    return encode_latents(LatentFile(np.zeros((1, 32, 1, 1), np.float32), "none", "0" * 16, 8, 8, "RGB"))


def picture(response):
    assert response.status_code == 200, response.text
    with Image.open(io.BytesIO(response.content)) as image:
        image.load()
        return image


@pytest.fixture(scope="module")
def client():
    with TestClient(create_app(Limits(upload=10**6, pixels=10**5), threads=1)) as client:
        yield client


def test_a_model_is_loaded_once_by_requests_at_once(monkeypatch):
    from zenith_ae import pipelines
    from zenith_ae.app.server_jobs import Worker

    real, loaded = pipelines.load, []

    def load(*arguments, **options):
        loaded.append(arguments)
        time.sleep(0.1)  # time for another to come in, if it could
        return real(*arguments, **options)

    monkeypatch.setattr(pipelines, "load", load)
    worker = Worker(Limits(jobs=4), 1)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: worker.model("zenith-denoise", "denoiser"), range(4)))
    assert len(loaded) == 1 and all(model is found[0] for model in found)
    worker.executor.shutdown()


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_denoise_equals_the_library(client, mode):
    pixels = noisy(mode=mode)
    response = client.post(
        "/denoise",
        params={"sigma": "20", "strength": 0.8, "passes": 2},
        content=png(pixels, dpi=(200, 200)),
    )
    result = picture(response)
    assert (result.format, result.mode) == ("PNG", mode)
    assert round(result.info["dpi"][0]) == 200
    expected = zenith_ae.load("zenith-denoise", threads=1)(pixels, sigma=20, strength=0.8, passes=2)
    np.testing.assert_array_equal(np.asarray(result), expected)
    assert response.headers["x-zenith-sigma"] == "20.00"
    assert response.headers["x-zenith-model"] == "zenith-denoise"


def test_automatic_level_is_reported_and_formats_convert(client):
    response = client.post("/denoise?format=webp&quality=50&strip=true", content=png(noisy()))
    assert picture(response).format == "WEBP"
    assert response.headers["content-type"] == "image/webp"
    assert 10 < float(response.headers["x-zenith-sigma"]) < 30


def test_every_frame_and_page_is_denoised_and_counts(client):
    rng = np.random.default_rng(0)
    pages = [Image.fromarray(rng.integers(0, 256, (24, 40, 3), np.uint8)) for _ in range(3)]
    buffer = io.BytesIO()
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:])
    response = client.post("/denoise?sigma=20&strip=true&format=TIFF", content=buffer.getvalue())
    assert response.headers["content-type"] == "image/tiff"
    model = zenith_ae.load("zenith-denoise", threads=1)
    with Image.open(io.BytesIO(response.content)) as image:
        assert image.n_frames == 3
        for i, page in enumerate(pages):
            image.seek(i)
            np.testing.assert_array_equal(np.asarray(image), model(np.asarray(page), sigma=20))
    large = [Image.new("RGB", (200, 200))] * 3
    buffer = io.BytesIO()
    large[0].save(buffer, "TIFF", save_all=True, append_images=large[1:])
    response = client.post("/denoise", content=buffer.getvalue())
    assert response.status_code == 400 and "exceed the limit" in response.text


def test_a_form_is_told_how_to_send_the_file(client):
    response = client.post("/denoise", files={"file": png(noisy())})
    assert response.status_code == 400
    assert "send the file itself as the body" in response.json()["detail"]


def test_a_file_that_curl_changed_is_told_how_to_send_it(client):
    file = io.BytesIO()
    Image.fromarray(noisy(80, 120)).save(file, "JPEG")
    whole = file.getvalue()
    changed, damaged = whole.translate(None, b"\r\n\0"), whole[:-3000]
    of_curl, other = "application/x-www-form-urlencoded", "image/jpeg"
    for kind, body, told in ((of_curl, changed, True), (other, changed, False), (of_curl, damaged, False)):
        answer = client.post("/denoise", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 400
        assert ("--data-binary" in answer.json()["detail"]) is told
        assert client.post("/denoise", content=whole, headers={"Content-Type": kind}).status_code == 200


def test_formats_are_those_that_can_be_written():
    from zenith_ae.app.server import Format
    from zenith_ae.image_writing import WRITABLE_SUFFIXES

    known = get_args(get_args(Format)[0])
    assert {f".{name}" for name in known} == WRITABLE_SUFFIXES


def test_encode_and_decode_restore_the_size(client):
    encoded = client.post("/encode?dtype=fp32&model=zenith-taef2-nano", content=png(noisy(23, 41)))
    assert encoded.status_code == 200
    file = parse_latents(encoded.content)
    assert file.latents.shape == (1, 32, 3, 6)
    result = picture(client.post("/decode", content=encoded.content))
    assert result.size == (41, 23)


def test_notes_of_many_pages_are_a_short_header(client, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_NOTES", 400)
    pages = [Image.fromarray(np.full((9, 12), 1000 + k, np.uint16)) for k in range(5)]
    file = io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:])
    answer = client.post("/denoise?sigma=5", content=file.getvalue())
    assert answer.status_code == 200, answer.text
    notes = answer.headers["X-Zenith-Notes"]
    assert len(notes) == 400
    assert notes.startswith("its values end at 1000 of 65535") and notes.endswith("...")


def test_latents_are_decoded_by_the_model_that_is_asked_for_or_one_that_reads_them(client):
    made = client.post("/encode?model=zenith-taef2-nano", content=png(noisy(16, 16))).content
    clear = client.post("/encode?model=zenith-taef2-nano", content=png(noisy(16, 16, "RGBA")))
    assert clear.headers["X-Zenith-Notes"] == "transparency is not encoded"
    for asked, used in (("", "zenith-taef2-nano"), ("?model=zenith-taef2-lite", "zenith-taef2-lite")):
        answer = client.post(f"/decode{asked}", content=made)
        assert answer.headers["X-Zenith-Model"] == used
        assert picture(answer).size == (16, 16)
    other = client.post("/decode?model=zenith-4ch-lite", content=made)
    assert (other.status_code, "does not read its latents" in other.text) == (400, True)
    foreign = encode_latents(replace(parse_latents(made), model="taef2", weights="0" * 16))
    answer = client.post("/decode", content=foreign)
    assert answer.headers["X-Zenith-Model"].startswith("zenith-taef2")
    assert answer.headers["X-Zenith-Notes"].startswith(
        f"latents of taef2 ({'0' * 16}), decoded by zenith-taef2"
    )
    foreign = encode_latents(replace(parse_latents(made), model="a\r\nb", weights="0" * 16))
    answer = client.post("/decode", content=foreign)  # a header is one line
    assert answer.status_code == 200 and r"latents of a\r\nb (" in answer.headers["X-Zenith-Notes"]
    foreign = encode_latents(replace(parse_latents(made), weights="0" * 16, space=""))
    for asked, said in (
        ("", "none of the models that come with zenith-ae reads"),
        ("?model=zenith-taef2-nano", f"({load_weights('zenith-taef2-nano').hash}) does not read its latents"),
    ):
        refused = client.post(f"/decode{asked}", content=foreign).json()["detail"]
        assert said in refused and f"made by zenith-taef2-nano ({'0' * 16})" in refused


@pytest.mark.parametrize(
    ("path", "content", "status", "message"),
    [
        ("/denoise", b"", 400, "empty"),
        ("/denoise?format=gif", b"x", 422, "'png', 'jpg'"),
        ("/denoise", b"no picture at all", 400, "not a picture"),
        ("/denoise", png(noisy())[:300], 400, "truncated"),
        ("/denoise", png(np.zeros((400, 400), np.uint8)), 400, "exceed the limit of 100000"),
        ("/denoise", png(np.zeros((1, 900), np.uint8)), 400, "900 x 1 pixels, which count as 115200, exceed"),
        ("/denoise?model=zenith-taef2-lite", png(noisy()), 400, "is no denoiser"),
        ("/denoise?model=/etc/passwd", png(noisy()), 400, "no model"),
        ("/denoise?sigma=much", png(noisy()), 400, "sigma"),
        ("/denoise?sigma=nan", png(noisy()), 400, "sigma"),
        ("/denoise?strength=2", png(noisy()), 422, "strength '2': should be less than or equal to 1"),
        ("/denoise?passes=3", png(noisy()), 422, "passes '3': should be '1', '2', '4' or '8'"),
        ("/denoise?passes=8", png(noisy(120, 130)), 400, "8 passes over 16640 pixels exceed the limit"),
        ("/denoise?format=exe", png(noisy()), 422, "format"),
        ("/denoise?format=jpg", png(noisy(mode="RGBA")), 400, "transparency"),
        ("/denoise", b"x" * (10**6 + 1), 413, "exceeds the limit"),
        ("/decode", png(noisy()), 400, "not a latent file"),
        ("/decode?model=", latents(), 400, "no model ''"),
        ("/denoise?sigma=5&sigma=9", png(noisy()), 422, "'sigma' is given more than once"),
        ("/denoise?strenght=0", png(noisy()), 422, "no parameter 'strenght'; there are chroma, format"),
    ],
)
def test_bad_requests_get_one_clear_line(client, path, content, status, message):
    response = client.post(path, content=content)
    assert response.status_code == status
    told = response.json()["detail"]
    assert message in told and "\n" not in told and "Traceback" not in told


def test_a_packed_body_is_refused(client):
    packed = {"Content-Encoding": "gzip"}
    refused = client.post("/denoise", content=gzip.compress(png(noisy())), headers=packed)
    assert (refused.status_code, "(gzip); send the file as it is" in refused.text) == (415, True)


def test_a_body_of_unknown_length_is_cut_off(client):
    chunks = iter([b"x" * 2**18] * 8)  # without a Content-Length
    assert client.post("/denoise", content=chunks).status_code == 413


def test_models_are_read_once(monkeypatch):
    from zenith_ae import weights

    calls = []
    load = weights.load_weights
    monkeypatch.setattr(weights, "load_weights", lambda name: calls.append(name) or load(name))
    with TestClient(create_app(threads=1)) as client:
        first, second = client.get("/models").json(), client.get("/models").json()
    assert first == second
    assert len(calls) == len(first) > 0


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        ("JPEG2000", "image/jp2"),
        ("PPM", "image/x-portable-anymap"),
        ("TIFF", "image/tiff"),
        ("BMP", "image/bmp"),
    ],
)
def test_content_types_are_those_that_are_registered(client, format, kind):
    buffer = io.BytesIO()
    Image.fromarray(noisy()).save(buffer, format)
    response = client.post("/denoise?sigma=5", content=buffer.getvalue())
    assert picture(response).format == format
    assert response.headers["content-type"] == kind


def test_what_is_refused_is_counted_by_its_status(client):
    def count(status):
        name = f'zenith_requests_total{{operation="denoise",status="{status}"}} '
        return sum(float(x.removeprefix(name)) for x in client.get("/metrics").text.splitlines() if name in x)

    before = count(422), count(400)
    for query in ("strength=2", "quality=0", "format=gif", "nosuch=1"):
        assert client.post(f"/denoise?{query}", content=png(noisy())).status_code == 422
    for query in ("sigma=loud", "sigma=300"):
        answer = client.post(f"/denoise?{query}", content=png(noisy()))
        assert (answer.status_code, "is not auto or a number" in answer.text) == (400, True)
    assert (count(422), count(400)) == (before[0] + 4, before[1] + 2)


def test_a_damaged_weights_file_is_the_servers_fault_and_the_others_are_listed(tmp_path, monkeypatch, caplog):
    from zenith_ae import weights

    damaged = tmp_path / "zenith-denoise.safetensors"
    damaged.write_bytes(b"half a file")
    there = {**weights.available_weights(), "zenith-denoise": damaged}
    monkeypatch.setattr(weights, "available_weights", lambda: there)
    with TestClient(create_app(threads=1)) as client:
        names = [model["name"] for model in client.get("/models").json()]
        assert "zenith-denoise" not in names and "zenith-denoise-fast" in names
        answer = client.post("/denoise", content=png(noisy()))
        assert (answer.status_code, str(tmp_path) in answer.text) == (500, False)
        assert "a weights file of the server is damaged" in answer.json()["detail"]
        assert str(damaged) in caplog.text


def test_health_models_metrics_and_a_page_from_nowhere_else(client):
    client.post("/denoise?sigma=5", content=png(noisy()))
    assert client.get("/health").json()["status"] == "ok"
    assert "zenith-denoise" in [model["name"] for model in client.get("/models").json()]
    metrics = client.get("/metrics").text
    assert 'zenith_requests_total{operation="denoise",status="200"}' in metrics
    assert "zenith_in_progress 0.0" in metrics
    assert client.head("/health").status_code == client.head("/").status_code == 200
    assert client.head("/denoise").status_code == 405
    there = "there are POST /denoise, /encode, /decode; GET /models, /health, /metrics"
    elsewhere = client.post("/denoise/", content=png(noisy()), follow_redirects=False)
    assert (elsewhere.status_code, elsewhere.json()) == (404, {"detail": f"no POST /denoise/; {there}"})
    wrong = client.get("/denoise")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json() == {"detail": f"no GET /denoise; {there}"}
    page = client.get("/").text
    assert "POST /denoise" in page
    assert '"@photo.jpg" testserver/denoise -o' in page  # where it is, not where it is by default
    assert "http://" not in page and "https://" not in page
    operations = client.get("/openapi.json").json()["paths"]
    assert {"/denoise", "/encode", "/decode", "/health", "/metrics", "/models"} <= operations.keys()
    errors = {k: v for k, v in operations["/denoise"]["post"]["responses"].items() if k != "200"}
    assert "422" in errors and all(
        answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Failure"}
        for answer in errors.values()
    )


def test_too_many_and_too_slow_requests_are_turned_away(monkeypatch):
    release, started = threading.Event(), threading.Event()
    changes = Denoiser.changes

    def slow(self, *arguments, **options):
        started.set()
        release.wait(60)
        return changes(self, *arguments, **options)

    monkeypatch.setattr(Denoiser, "changes", slow)
    limits = Limits(jobs=1, queue=1, seconds=3)  # in which three requests come in, on a busy machine too
    body = png(noisy())
    with TestClient(create_app(limits, threads=1)) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.post, "/denoise?sigma=5", content=body)
        assert started.wait(10)
        second = pool.submit(client.post, "/denoise?sigma=5", content=body)
        deadline = time.monotonic() + 60
        while client.get("/health").json()["in_progress"] < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        third = client.post("/denoise?sigma=5", content=body)
        assert third.status_code == 503
        assert third.headers["retry-after"]
        assert first.result().status_code == second.result().status_code == 504
        assert client.get("/health").json()["in_progress"] == 1  # the running one holds its place
        release.set()
        while client.get("/health").json()["in_progress"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.post("/denoise?sigma=5", content=body).status_code == 200


def test_what_the_server_lacks_is_no_fault_of_the_request(client, monkeypatch):
    def lacks(*_: object, **__: object) -> None:
        raise MissingDependencyError("this needs rawpy: pip install 'zenith-ae[raw]'")

    monkeypatch.setattr(Denoiser, "changes", lacks)
    answer = client.post("/denoise", content=png(noisy()))
    assert answer.status_code == 501
    assert "rawpy" in answer.json()["detail"]


def test_work_that_nobody_waits_for_any_more_ends(monkeypatch):
    ended, real = threading.Event(), Denoiser.changes

    def endless(self, *arguments, progress, **options):
        if ended.is_set():
            return real(self, *arguments, **options)
        try:
            while True:
                progress(0.5)
                time.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr(Denoiser, "changes", endless)
    with TestClient(create_app(Limits(jobs=1, queue=0, seconds=3), threads=1)) as client:
        body = png(noisy())
        assert client.post("/denoise?sigma=5", content=body).status_code == 504
        assert ended.wait(60)
        deadline = time.monotonic() + 60
        while client.get("/health").json()["in_progress"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.post("/denoise?sigma=5", content=body).status_code == 200


def test_what_nobody_waits_for_any_more_is_not_encoded(monkeypatch):
    """An encoder cannot be stopped, and may take minutes."""
    release, encoded = threading.Event(), []

    def slow(denoiser, noisy, *arguments, **options):
        assert release.wait(60)
        return noisy, 0.0

    monkeypatch.setattr(server_module, "denoised", slow)
    monkeypatch.setattr(zenith_ae.image_writing, "encode_picture", lambda *a, **k: encoded.append(a) or ())
    with TestClient(create_app(Limits(jobs=1, queue=0, seconds=0.2), threads=1)) as client:
        assert client.post("/denoise?sigma=5", content=png(noisy())).status_code == 504
        release.set()
        deadline = time.monotonic() + 60
        while client.get("/health").json()["in_progress"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not client.get("/health").json()["in_progress"]
    assert not encoded


@contextlib.contextmanager
def listening(app):
    """The address of a server of this app, which answers by our protocol."""
    uvicorn = pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", http=server_module._Protocol))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(30)
    assert not thread.is_alive()


def test_a_connection_without_a_whole_head_of_a_request_is_closed(monkeypatch):
    monkeypatch.setattr(server_module, "STALL", 1.0)
    with listening(create_app(threads=1)) as address:
        with socket.create_connection(address, timeout=30) as silent, \
                socket.create_connection(address, timeout=30) as slow, \
                socket.create_connection(address, timeout=30) as good:  # fmt: skip
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: ")
            good.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert good.recv(99).startswith(b"HTTP/1.1 200")
            assert silent.recv(1) == slow.recv(1) == b""
        with socket.create_connection(address, timeout=30) as late:  # one that takes its time, but comes
            late.sendall(b"POST /denoise HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
            time.sleep(1.5)
            late.sendall(b"what")
            assert late.recv(99).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("reads", [True, False])
def test_an_answer_that_nobody_reads_is_given_up(monkeypatch, reads):
    monkeypatch.setattr(server_module, "STALL", 0.5)
    size = 2**25  # more than the system holds for a connection

    async def large(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(size)})

    with listening(large) as address, socket.socket() as client:
        client.settimeout(30)
        client.connect(address)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        got, end = 0, time.monotonic() + 2  # several times as long as it may do nothing
        while time.monotonic() < end:
            time.sleep(0.1)
            got += len(client.recv(2**17)) if reads else 0
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(2**20):
                got += len(part)
                if reads and got > size:  # and its head
                    break
        assert (got > size) == reads


def test_what_waits_for_a_client_that_went_away_is_dropped(monkeypatch):
    """Through the ASGI interface: the test client cannot hang up."""
    begun, release, done = threading.Event(), threading.Event(), []
    real = Denoiser.changes

    def slow(self, pixels, *arguments, **options):
        begun.set()
        assert release.wait(60)
        done.append(pixels.shape[2])
        return real(self, pixels, *arguments, **options)

    monkeypatch.setattr(Denoiser, "changes", slow)
    app = create_app(Limits(jobs=1, queue=2), threads=1)

    async def post(width, hang_up, more=0):
        asked, sent = [], []
        body = png(noisy(width=width)) + bytes(more)

        async def receive():
            asked.append(None)
            if len(asked) == 1:
                return {"type": "http.request", "body": body, "more_body": False}
            await hang_up.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "root_path": "",
                 "path": "/denoise", "raw_path": b"/denoise", "query_string": b"sigma=5", "headers": [],
                 "server": ("here", 80), "client": ("me", 1), "app": app}  # fmt: skip
        await app(scope, receive, send)
        return sent[0]["status"]

    async def main():
        never, now = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(post(16, never))
        assert await asyncio.to_thread(begun.wait, 60)
        tracemalloc.start()
        second = asyncio.create_task(post(24, now, 2**25))
        await asyncio.sleep(0.1)  # so that it waits
        now.set()
        assert await second == 499
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 2**25 + 2**24  # what this test holds: the server has none of it
        third = asyncio.create_task(post(32, never))
        release.set()
        assert await first == await third == 200

    asyncio.run(main())
    assert done == [16, 32]


def test_the_program_listens_serves_and_ends_with_130():
    pytest.importorskip("uvicorn")
    program = [sys.executable, "-c", "from zenith_ae.app.cli import main; main()"]
    server = subprocess.Popen(
        [*program, "serve", "--port", "0", "--threads", "1"], stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        line = server.stderr.readline()
        address = line.split()[1]
        assert address.startswith("http://127.0.0.1:"), line
        request = urllib.request.Request(address + "denoise?sigma=10", png(noisy()), method="POST")
        with urllib.request.urlopen(request, timeout=60) as response:  # the line means that it listens
            assert response.headers["Content-Type"] == "image/png"
        port = address.rstrip("/").rpartition(":")[2]
        other = subprocess.run(
            [*program, "serve", "--port", port], capture_output=True, text=True, check=False
        )
        assert other.returncode == 1
        assert "choose another --port" in other.stderr
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 130
    finally:
        server.kill()
        server.stderr.close()


@pytest.fixture
def served():
    """``zenith-ae serve`` as a program of its own, and its port."""
    pytest.importorskip("uvicorn")
    program = [sys.executable, "-m", "zenith_ae", "serve", "--port", "0", "--threads", "1"]
    server = subprocess.Popen(program, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"PYTHONUNBUFFERED": "1"},
                              # These tests may run under nohup, whose children ignore the signal.
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # fmt: skip
    try:
        yield server, int(server.stderr.readline().split()[1].rstrip("/").rpartition(":")[2])
    finally:
        server.kill()
        server.stderr.close()


def test_a_terminal_that_goes_ends_the_program_without_a_word(served):
    server, port = served
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as response:
        assert response.status == 200
    server.send_signal(signal.SIGHUP)
    assert server.wait(30) == 129
    assert server.stderr.read() == ""


def test_an_empty_host_is_wrong_usage_and_not_every_address():
    result = CliRunner().invoke(serve, ["--host", "", "--port", "0"])
    assert result.exit_code == 2 and "--host is empty" in result.output


def test_clients_see_that_a_body_is_too_long_and_endless_ones_are_cut_off():
    pytest.importorskip("uvicorn")
    program = [sys.executable, "-c", "from zenith_ae.app.cli import main; main()"]
    server = subprocess.Popen(
        [*program, "serve", "--port", "0", "--threads", "1", "--max-upload", "1"], stderr=subprocess.PIPE,
        text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        port = int(server.stderr.readline().split()[1].rstrip("/").rpartition(":")[2])

        def post(length, sent, *more, path=b"/denoise"):
            """Status line of a POST that announces ``length`` bytes, and how many could be sent."""
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                head = [b"POST %s HTTP/1.1" % path, b"Host: x", b"Content-Length: %d" % length, *more]
                connection.sendall(b"\r\n".join(head) + b"\r\n\r\n")
                done, chunk = 0, b"x" * 2**16
                try:
                    while done < sent:
                        done += connection.send(chunk[: sent - done])
                    return connection.makefile("rb").readline(), done
                except ConnectionError:
                    return b"", done

        for _ in range(3):  # the whole body is sent before the answer is read
            answer, done = post(20 * 2**20, 20 * 2**20)
            assert answer.startswith(b"HTTP/1.1 413 ") and done == 20 * 2**20
        for path, status in ((b"/denoise?foo=1", 422), (b"/denoise?sigma=999", 400), (b"/nothing", 404),
                             (b"/health", 405)):  # fmt: skip
            answer, done = post(20 * 2**20, 20 * 2**20, b"Connection: close", path=path)
            assert answer.startswith(b"HTTP/1.1 %d " % status) and done == 20 * 2**20, path
        answer, _ = post(10**12, 0, b"Expect: 100-continue")
        assert answer.startswith(b"HTTP/1.1 413")
        with socket.create_connection(
            ("127.0.0.1", port), timeout=60
        ) as connection:  # in chunks, as curl -T -
            head = [
                b"POST /denoise HTTP/1.1",
                b"Host: x",
                b"Transfer-Encoding: chunked",
                b"Expect: 100-continue",
            ]
            connection.sendall(b"\r\n".join(head) + b"\r\n\r\n")
            for _ in range(40):
                connection.sendall(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
            connection.sendall(b"0\r\n\r\n")
            answer = connection.makefile("rb").read()
            assert b"HTTP/1.1 413" in answer and b"the body exceeds the limit" in answer
        _, sent = post(10**12, 2**30)
        assert sent < 2**28  # what is drained, and what the system holds of both ends
        # Nothing of it is left behind.
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as response:
            assert b'"in_progress":0' in response.read()
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(20)
        finally:
            server.kill()
            server.stderr.close()


@pytest.mark.parametrize(
    ("size", "drops", "ends", "status", "said"),
    [
        (1, 1, 99, 408, b"less than 16384 bytes of the body came in 0.6 s"),
        (1, 999, 999, 408, b"less than 16384 bytes of the body came in 0.6 s"),
        (2**14, 10, 10, 400, b"not a picture"),
    ],
    ids=["stalls", "drips", "takes its time"],
)
def test_a_body_that_does_not_come_is_given_up(monkeypatch, size, drops, ends, status, said):
    monkeypatch.setattr(server_jobs, "STALL", 0.6)
    app, sent = create_app(Limits(queue=0), threads=1), []

    async def main():
        given = []

        async def receive():
            if len(given) == drops:  # and no more
                await asyncio.Event().wait()
            if given:
                await asyncio.sleep(0.1)
            given.append(b"x" * size)
            return {"type": "http.request", "body": given[-1], "more_body": len(given) < ends}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "root_path": "",
                 "path": "/denoise", "raw_path": b"/denoise", "query_string": b"", "headers": [],
                 "server": ("here", 80), "client": ("me", 1), "app": app}  # fmt: skip
        monkeypatch.setattr(server_module, "GRACE", 0.05)
        await app(scope, receive, send)

    asyncio.run(main())
    assert sent[0]["status"] == status
    assert said in sent[1]["body"]
    assert TestClient(app).get("/health").json()["in_progress"] == 0


def test_a_server_that_ends_waits_no_longer_for_a_body():
    app, asked, sent = create_app(Limits(), threads=1), [], []

    async def receive():
        asked.append(True)
        if len(asked) > 1:
            await asyncio.Event().wait()  # the rest never comes
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message):
        sent.append(message)

    async def ended():
        scope = {
            "type": "http", "method": "POST", "path": "/denoise", "raw_path": b"/denoise",
            "query_string": b"", "headers": [], "http_version": "1.1", "scheme": "http",
            "server": ("localhost", 1), "root_path": "",
        }  # fmt: skip
        request = asyncio.create_task(app(scope, receive, send))
        while len(asked) < 2:
            await asyncio.sleep(0.01)
        request.cancel()  # as uvicorn does after the grace
        await request

    asyncio.run(ended())
    assert sent[0]["status"] == 503 and len(asked) == 2


def test_a_second_interrupt_ends_it_at_once_without_a_traceback(served):
    server, port = served
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /denoise HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx")
        time.sleep(0.5)
        for _ in range(2):
            server.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert server.wait(30) == 130
    assert "Traceback" not in server.stderr.read()


def test_what_is_no_http_gets_json_and_other_protocols_are_passed_over(served):
    server, port = served

    def answer(request):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(request)
            head, _, body = b"".join(iter(lambda: client.recv(9999), b"")).partition(b"\r\n\r\n")
        return head, json.loads(body)

    head, body = answer(b"GET /health HTTP/1.1\r\n\r\n")  # without a host
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"application/json" in head
    assert body == {"detail": "no valid HTTP request"}
    upgrade = b"Host: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    head, body = answer(b"GET /health HTTP/1.1\r\n" + upgrade)
    assert b"200 OK" in head and body["status"] == "ok"
    server.send_signal(signal.SIGTERM)
    server.wait(30)
    assert "pgrade" not in server.stderr.read()


def test_a_server_that_is_told_to_end_does_not_wait_for_a_job(served):
    server, port = served
    body = png(noisy(height=2000, width=4000))

    def post():
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/denoise?sigma=5&passes=8", body, timeout=300)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["detail"]

    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(post)
        while True:  # until it is worked on
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
                if b"zenith_in_progress 1.0" in response.read():
                    break
            time.sleep(0.05)
        time.sleep(1)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130  # the job takes minutes
        assert answer.result() == (503, "the server ends")


def test_defaults_of_the_command_are_those_of_the_limits():
    from zenith_ae.app.tools import serve

    defaults = {option.name: option.default for option in serve.params}
    limits = Limits()
    assert (defaults["jobs"], defaults["queue"], defaults["timeout"]) == (
        limits.jobs, limits.queue, limits.seconds
    )  # fmt: skip
    assert (defaults["max_upload"] * 2**20, defaults["max_pixels"]) == (limits.upload, limits.pixels)


def test_a_server_that_can_compute_nothing_does_not_start_and_never_blames_clients(client, monkeypatch):
    monkeypatch.setenv("ZENITH_ISA", "sse9")
    answer = client.post("/denoise?model=zenith-denoise-fast", content=png(noisy()))
    assert answer.status_code == 500 and "'sse9'" in answer.json()["detail"]
    result = CliRunner().invoke(serve, ["--port", "0"])
    assert isinstance(result.exception, IsaError)  # of which the program makes one line, and 1
