"""Start to finish of the command line: ``python benchmarks/cold_start.py [--isa LEVEL]``.

Runs ``zenith-ae denoise`` as a new process on PNG files of several sizes and prints the median
time of the whole process, interpreter start included (files in the page cache), beside that of an
interpreter that does nothing.
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
from common import script_parser
from PIL import Image

from zenith_ae import available_isas
from zenith_ae._kernels import current_isa


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--isa", choices=available_isas(), default=current_isa(), help="[default: the best level here]"
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 512, 1024])
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        commands = {"python -c pass": [sys.executable, "-c", "pass"]}
        for size in options.sizes:
            small = Image.fromarray(rng.integers(0, 256, (size // 16, size // 16, 3), dtype=np.uint8))
            picture = np.asarray(small.resize((size, size), Image.Resampling.BICUBIC), np.float32)
            noisy = np.clip(picture + 20 * rng.standard_normal(picture.shape), 0, 255).astype(np.uint8)
            path = Path(folder) / f"{size}.png"
            Image.fromarray(noisy).save(path)
            commands[f"denoise {size}x{size}"] = [
                sys.executable, "-m", "zenith_ae", "denoise", str(path), "--overwrite", "-q"
            ]  # fmt: skip
        times: dict[str, list[float]] = {name: [] for name in commands}
        environment = os.environ | {"ZENITH_ISA": options.isa}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled already
        for repetition in range(options.repeat + 1):
            for name, command in commands.items():
                start = time.perf_counter()
                subprocess.run(command, check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
                if repetition:  # the first fills the page cache
                    times[name].append(time.perf_counter() - start)
    print(f"isa {options.isa}, {os.cpu_count()} cores, median of {options.repeat}")
    for name, values in times.items():
        print(f"{name:20}{statistics.median(values):8.3f} s")


if __name__ == "__main__":
    main()
