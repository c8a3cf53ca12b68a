"""Peak resident memory on a large picture: ``python benchmarks/memory.py [--size 7680x4320]``.

Each task runs in a process of its own on a picture of random noise, from array to array; the
picture itself and the result are part of the number. The last line is the whole command, which
reads a JPEG and writes one.
"""

from __future__ import annotations

import subprocess
import sys

from common import script_parser

TASK = """
import resource, sys, time
import numpy as np
import zenith_ae
name, task, width, height = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
model = zenith_ae.load(name, device="cpu")
rng = np.random.default_rng(0)
if task == "decode":
    value = rng.standard_normal((1, model.config.latent_channels, height // 8, width // 8), dtype=np.float32)
else:
    value = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
start = time.perf_counter()
(model if task == "denoise" else getattr(model, task))(value)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "linux" else 1 << 30)
print(f"{name:20}{task:10}{peak:8.2f} GiB{time.perf_counter() - start:8.1f} s")
"""

COMMAND = """
import resource, subprocess, sys, tempfile, time
import numpy as np
from PIL import Image
width, height = int(sys.argv[1]), int(sys.argv[2])
with tempfile.TemporaryDirectory(prefix="memory.") as folder:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(f"{folder}/noisy.jpg")
    start = time.perf_counter()
    command = [sys.executable, "-m", "zenith_ae", "denoise", f"{folder}/noisy.jpg"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
peak /= 1 << 20 if sys.platform == "linux" else 1 << 30
print(f"{'zenith-ae denoise':30}{peak:8.2f} GiB{seconds:8.1f} s")
"""


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--size", default="7680x4320", metavar="WIDTHxHEIGHT")
    parser.add_argument("--also", nargs="*", default=[], help="weights files of autoencoders to measure too")
    options = parser.parse_args()
    tasks = [("zenith-denoise", "denoise")]
    for name in ["zenith-taef2-lite", "zenith-taef2-nano", *options.also]:
        tasks += [(name, "encode"), (name, "decode")]
    print(f"{options.size}")
    for task in tasks:
        subprocess.run([sys.executable, "-c", TASK, *task, *options.size.split("x")], check=True)
    subprocess.run([sys.executable, "-c", COMMAND, *options.size.split("x")], check=True)


if __name__ == "__main__":
    main()
