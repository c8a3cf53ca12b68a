"""Round-trip speed beside TAESD in torch: ``python benchmarks/vs_taesd.py [--isa avx2]``.

One process, one run: every repetition times each candidate once, in turn, with the same number
of threads, after a pause that lets the other library's threads go to sleep. Medians and ratios
of medians are printed. By default everything is limited to AVX2, as on an ordinary laptop;
``--isa best`` lifts the limit on both sides.

Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", default="avx2", help="generic, avx2, avx512 or best")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--models", nargs="*", default=["zenith-taef2-lite", "zenith-taef2-nano"])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.isa != "best":  # libraries read these when they are loaded
        os.environ["ZENITH_ISA"] = options.isa
        if options.isa == "avx2":
            os.environ |= {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    os.environ["OMP_WAIT_POLICY"] = "passive"

    import numpy as np
    import torch
    from taesd_torch import taesd

    import zenith_ae

    torch.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (1, options.size, options.size, 3), dtype=np.uint8)
    encoder, decoder = taesd()
    x = torch.from_numpy(picture).permute(0, 3, 1, 2).float() / 255

    def torch_round_trip(layout: torch.memory_format):
        parts = [m.to(memory_format=layout) for m in (encoder, decoder)]
        data = x.contiguous(memory_format=layout)

        def run() -> None:
            with torch.inference_mode():
                parts[1](parts[0](data)).clamp(0, 1)

        return run

    def zenith_round_trip(name: str):
        model = zenith_ae.load(name, device="cpu", threads=options.threads)
        return lambda: model.decode(model.encode(picture))

    candidates = {
        "TAESD, torch eager float32": torch_round_trip(torch.contiguous_format),
        "TAESD, torch eager float32 channels_last": torch_round_trip(torch.channels_last),
    } | {name: zenith_round_trip(name) for name in options.models}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()
    for _ in range(options.repeat):
        for name, run in candidates.items():
            time.sleep(0.05)
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    best_peer = min(value for name, value in medians.items() if name.startswith("TAESD"))
    if options.json:
        print(json.dumps({"options": vars(options), "torch": torch.__version__, "milliseconds": medians}))
        return
    print(f"round trip {options.size}x{options.size}, {options.threads} threads, isa {options.isa}, "
          f"torch {torch.__version__}, {platform.processor() or platform.machine()}")  # fmt: skip
    print(f"{'':44}{'median ms':>12}{'fastest torch / this':>24}")
    for name, value in medians.items():
        print(f"{name:44}{value:12.1f}{best_peer / value:24.1f}")


if __name__ == "__main__":
    main()
