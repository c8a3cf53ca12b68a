"""A folder of photographs from start to finish: ``python benchmarks/folder.py [--count 1000]``.

``zenith-ae denoise FOLDER`` reads and decodes the next picture and encodes and writes the last one
while the model works on another, so with a core to spare a folder should take hardly longer than
the model alone. This makes ``--count`` noisy JPEG files, runs the command on them in a process of
its own, and compares with what its parts take one after another, measured on a sample.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import ROOT, script_parser
from PIL import Image

import zenith_ae
from zenith_ae.image_writing import write_picture
from zenith_ae.images import read_picture

EXAMPLE = ROOT / "examples" / "cat.clean.png"


def make_pictures(folder: Path, count: int, size: int) -> list[Path]:
    """Square crops of one enlarged photograph, each with noise of its own."""
    rng = np.random.default_rng(0)
    with Image.open(EXAMPLE) as photograph:
        large = np.asarray(photograph.convert("RGB").resize((2 * size, 2 * size), Image.Resampling.LANCZOS))
    paths = []
    for i in range(count):
        top, left = rng.integers(0, size, 2)
        crop = large[top : top + size, left : left + size]
        noisy = crop + 15 * rng.standard_normal(crop.shape, dtype=np.float32)
        paths.append(folder / f"{i:05}.jpg")
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(paths[-1], quality=92)
    return paths


def parts(paths: list[Path], model: zenith_ae.Denoiser, out: Path) -> tuple[float, float]:
    """Medians of the model's seconds for a picture, and of reading and writing it."""
    working, moving = [], []
    for path in paths:
        start = time.perf_counter()
        picture = read_picture(path)
        read = time.perf_counter()
        pixels = model(picture.pixels)
        done = time.perf_counter()
        write_picture(picture.with_pixels(pixels), out / path.name)
        working.append(done - read)
        moving.append(time.perf_counter() - done + read - start)
    return statistics.median(working), statistics.median(moving)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--sample", type=int, default=50, help="pictures for the parts")
    parser.add_argument("--threads", type=int, default=1, help="of the model; a core is left for the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name, "in"), Path(name, "out")
        folder.mkdir()
        out.mkdir()
        paths = make_pictures(folder, options.count, options.size)
        model = zenith_ae.load("zenith-denoise", threads=options.threads)
        parts(paths[:3], model, out)  # warm up
        before = parts(paths[: options.sample], model, out)
        command = [sys.executable, "-m", "zenith_ae", "denoise", str(folder), "-o", str(Path(name, "clean")),
                   "--threads", str(options.threads), "-q"]  # fmt: skip
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        whole = time.perf_counter() - start
        after = parts(paths[: options.sample], model, out)  # the machine may have changed pace
        assert len(list(Path(name, "clean").iterdir())) == options.count
    working, moving = (options.count * (a + b) / 2 for a, b in zip(before, after, strict=True))
    print(f"{options.count} JPEG files of {options.size}x{options.size}, {model.engine.isa}, "
          f"{model.engine.dtype}, model on {options.threads} of {os.cpu_count()} cores")  # fmt: skip
    print(f"model alone       {working:8.1f} s")
    print(f"files alone       {moving:8.1f} s")
    print(f"the command       {whole:8.1f} s, {whole / working:.2f} times the model, "
          f"{options.count * (options.size / 1000) ** 2 / whole:.1f} megapixels a second")  # fmt: skip


if __name__ == "__main__":
    main()
