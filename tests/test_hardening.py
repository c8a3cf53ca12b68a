"""Disks that are full or closed, and a server with many clients: real ones, nothing is simulated."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zenith_ae.app.cli import run
from zenith_ae.image_writing import WRITABLE_SUFFIXES
from zenith_ae.models.zoo import build
from zenith_ae.selftest import random_weights
from zenith_ae.weights import save_taesd

ROOT = Path(__file__).parents[1]
COMPILER = """#!/bin/sh
case "$*" in *level_a*-mavx*) echo "no memory left" >&2; exit 1;; esac
exec cc "$@"
"""
COMMANDS = ("denoise", "encode", "decode", "convert")


@pytest.fixture
def inputs(tmp_path, monkeypatch, sigma_denoiser, identity_autoencoder):
    """Arguments of each command that writes, but for the output, with names for the outputs."""
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (80, 96, 3), np.uint8)  # packs badly
    Image.fromarray(noise).save("a.png")
    ae = ["--model", str(identity_autoencoder)]
    assert run(["encode", "a.png", *ae]) == 0
    save_taesd("x_encoder.safetensors", random_weights(build("taesd", 4, "x")))
    return {
        "denoise": (["denoise", "a.png", "--model", str(sigma_denoiser), "--sigma", "10"], "out.png"),
        "encode": (["encode", "a.png", *ae], "out.latent.safetensors"),
        "decode": (["decode", "a.latent.safetensors", *ae], "out.png"),
        "convert": (["convert", "x_encoder.safetensors"], "out.safetensors"),
    }


def program(*arguments, **options):
    command = [sys.executable, "-m", "zenith_ae", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def one_line(text):
    assert text.count("\n") == 1 and text.startswith("zenith-ae: ") and "Traceback" not in text, text
    return text


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_may_not_grow_loses_nothing(command, inputs, tmp_path):
    """RLIMIT_FSIZE: the system itself refuses bytes, in the middle of the file."""
    arguments, output = inputs[command]
    (tmp_path / output).write_bytes(b"old")
    before = names(tmp_path)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    done = program(*arguments, "-o", output, "--overwrite", preexec_fn=limit)
    assert done.returncode == 1
    assert "File too large; nothing was replaced" in one_line(done.stderr)
    assert names(tmp_path) == before
    assert (tmp_path / output).read_bytes() == b"old"


@pytest.mark.parametrize("suffix", WRITABLE_SUFFIXES)
def test_no_format_hangs_where_a_file_may_not_grow(suffix, tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    code = (
        "import sys, numpy as np, zenith_ae\n"
        "x = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)\n"
        "zenith_ae.write_picture(x, sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / f"a{suffix}")],
        preexec_fn=limit, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "OutputError" in done.stderr.splitlines()[-1], done.stderr
    assert not names(tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with 16 KiB of room."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if (
        os.name != "posix"
        or not shutil.which("mount")
        or os.geteuid()
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_loses_nothing(command, inputs, small_disk, capsys):
    arguments, output = inputs[command]
    place = small_disk / output
    place.write_bytes(b"old")
    assert run([*arguments, "-o", str(place), "--overwrite"]) == 1
    assert "No space left on device; nothing was replaced" in one_line(capsys.readouterr().err)
    assert names(small_disk) == [output]
    assert place.read_bytes() == b"old"
    # With room again the same command goes through.
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert run([*arguments, "-o", str(place), "--overwrite"]) == 0
    assert names(small_disk) == [output] and place.stat().st_size > 5000


@pytest.mark.parametrize("command", COMMANDS)
def test_a_read_only_disk_is_one_line(command, inputs, small_disk, capsys):
    arguments, output = inputs[command]
    (small_disk / "sub").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    folders = [small_disk] if command == "convert" else [small_disk, small_disk / "new"]  # it makes none
    for place in (folder / output for folder in folders):
        assert run([*arguments, "-o", str(place)]) == 1
        assert "Read-only file system" in one_line(capsys.readouterr().err)
    assert names(small_disk) == ["sub"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_permission_is_one_line(command, inputs, tmp_path):
    arguments, output = inputs[command]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    if not os.geteuid():
        pytest.skip("root may write everywhere; a read-only disk is tested instead")
    done = program(*arguments, "-o", str(closed / output))
    assert done.returncode == 1
    assert "Permission denied" in one_line(done.stderr)
    assert names(closed) == []


# ---- many clients


@pytest.fixture(scope="module")
def server_load():
    spec = importlib.util.spec_from_file_location("server_load", ROOT / "benchmarks" / "server_load.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_64_clients_get_right_answers_and_leave_nothing_behind(server_load):
    """The short form of benchmarks/server_load.py."""
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        pytest.importorskip(module, reason="needs the extra serve")
    process, host, port = server_load.server("--queue", "64", "--threads", "1")
    try:
        load = server_load.run(host, port, 64, seconds=8, side=48, pid=process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        process.stderr.close()
    assert load.wrong == []
    assert load.done >= 64
    assert {status for _, status in load.answers} == {200}  # the queue holds all of them
    if load.memory_at(1):
        assert load.memory_at(1) < load.memory_at(0.3) + 64 * 2**20


def test_the_load_notices_wrong_answers(server_load):
    numbers = count()

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            turn = next(numbers)
            status = 500 if turn % 50 == 49 else 200
            body = b"%d" % (turn if turn > 20 else 0)  # another answer each time
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            load = server_load.run(
                "127.0.0.1", server.server_port, 4, seconds=1, side=16, paths=("/denoise",)
            )
        finally:
            server.shutdown()
    assert any("another answer" in line for line in load.wrong)
    assert any("status 500" in line for line in load.wrong)


@pytest.mark.skipif(
    not ((ROOT / "setup.py").exists() and shutil.which("cc")), reason="no sources or compiler"
)
@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("/none/cc", "needs a C compiler, GCC or Clang"),
        ("cc -nostdinc", "needs Python's headers"),  # which include others
        pytest.param(
            "./fails",
            "no memory left",
            marks=pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="levels of x86"),
        ),
    ],
)
def test_kernels_are_built_whole_or_not_at_all(compiler, said, tmp_path):
    """A level that could not be compiled would be missed by speed alone."""
    pytest.importorskip("Cython")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "_kernels_cython", tmp_path / "_kernels_cython", ignore=lambda *_: ["__pycache__"])
    (tmp_path / "fails").write_text(COMPILER)
    (tmp_path / "fails").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext"], cwd=tmp_path, env=os.environ | {"CC": compiler},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert not list((tmp_path / "build").rglob("*.so"))
