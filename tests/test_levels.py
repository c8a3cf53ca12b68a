"""Levels of other CPUs, emulated: NEON gives the bits of AVX2, portable kernels the same everywhere.

Needs a cross compiler and an emulator (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross,
qemu-user-static); on a 64-bit ARM every other test runs at level neon anyway.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "_kernels_cython" / "c"
FLAGS = ["-O2", "-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{KERNELS}"]
AVX2 = ["-mavx2", "-mfma"]
CROSS = shutil.which("aarch64-linux-gnu-gcc")
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with AVX2"),
    pytest.mark.skipif(not (CROSS and QEMU), reason="no cross compiler or emulator of 64-bit ARM"),
]


def compiled(compiler: str, out: Path, *link: str) -> Path:
    """tests/levels.c with the kernels, by a compiler."""
    out.mkdir()
    sources = [*sorted(KERNELS.glob("level_*.c")), KERNELS / "dispatch.c", ROOT / "tests" / "levels.c"]

    def compile_one(source: Path) -> str:
        target = str(out / f"{source.stem}.o")
        flags = AVX2 if source.stem == "level_avx2" and not link else []
        subprocess.run([compiler, *FLAGS, *flags, "-c", str(source), "-o", target], check=True)
        return target

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_one, sources))
    subprocess.run([compiler, *link, *objects, "-o", str(out / "levels"), "-lm"], check=True)
    return out / "levels"


def hashes(*command: str | Path) -> list[str]:
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) > 700
    return lines


def test_arm_gives_the_bits_of_x86(tmp_path: Path) -> None:
    assert CROSS and QEMU
    here = compiled(os.environ.get("CC") or "cc", tmp_path / "here")
    there = compiled(CROSS, tmp_path / "there", "-static")
    assert hashes(QEMU, there, "generic") == hashes(here, "generic")
    refused = subprocess.run([here, "neon"], capture_output=True)
    assert refused.returncode == 2 and not refused.stdout
    if subprocess.run([here, "avx2"], capture_output=True).returncode == 2:
        pytest.skip("no AVX2 here to compare NEON with")
    assert hashes(QEMU, there, "neon") == hashes(here, "avx2")
