"""How near each model comes to the limits of this machine: ``python benchmarks/roofline.py [--page]``.

For every level and type of arithmetic that the engine has here, and every part of every model:
multiply-accumulates, bytes, the time of the median, and how these compare with two measured
ceilings, the fastest matrix product and a copy of memory. Everything takes turns. ``--page`` writes
the tables into docs/performance.md.

Bytes are what the steps of the plan read and write, each activation once a step, and the weights:
the traffic of a machine whose caches hold what a step works on, but nothing from step to step.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from pathlib import Path
from typing import Any

from common import ROOT, script_parser, with_part

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- roofline: begin -->", "<!-- roofline: end -->"
MODELS = ("taesd", "zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano", "zenith-denoise")


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--isa", nargs="+", help="[default: every level there is]")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--read", type=Path, help="a file of an earlier run, in place of a measurement")
    parser.add_argument("--page", action="store_true", help="write the tables into docs/performance.md")
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)  # read when numpy is imported
    from zenith_ae import available_isas

    if unknown := set(options.isa or ()) - set(available_isas()):
        parser.error(f"--isa {min(unknown)}: not available here; there are {' '.join(available_isas())}")
    found = json.loads(options.read.read_text()) if options.read else measure(options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    text = markdown(found)
    print(text)
    if options.page:
        PAGE.write_text(with_part(PAGE.read_text(), BEGIN, END, text))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from peers import model

    from zenith_ae import available_isas
    from zenith_ae.app.doctor import cpu_name
    from zenith_ae.engine import create
    from zenith_ae.errors import ConfigError
    from zenith_ae.measure import (
        copy_ceiling,
        executed_macs,
        gemm_ceiling,
        in_turn,
        measured_parts,
        part_input,
    )

    size, threads = options.size, options.threads
    calls, work, ceilings = {}, {}, {}
    for name in MODELS:
        weights = model(name)
        for part in measured_parts(weights.config):
            layers = weights.config.parts[part]
            x, plane = part_input(weights.config, part, size, size)
            channels, pixels = weights.config.in_channels(part), x.shape[1] * x.shape[2]
            out = "uint8" if part == "decoder" else "float32"
            for isa in options.isa or available_isas():
                for dtype in ("float32", "bf16", "int16"):
                    try:
                        engine = create(weights, device="cpu", dtype=dtype, threads=threads, isa=isa)
                    except ConfigError:  # not at this level
                        continue
                    ceilings[isa, dtype] = 0.0
                    macs = executed_macs(layers, channels, engine.winograd)
                    work[name, part, isa, dtype] = pixels * sum(macs)

                    def call(engine: Any = engine, part: str = part, x: Any = x, plane: Any = plane,
                             out: Any = out) -> Any:  # fmt: skip
                        return engine.run(part, x, plane=plane, out=out)

                    calls[name, part, isa, dtype] = call

    def raise_ceilings() -> None:
        for isa, dtype in ceilings:
            ceilings[isa, dtype] = max(ceilings[isa, dtype], gemm_ceiling(isa, threads, dtype))

    raise_ceilings()
    copy, numpy = copy_ceiling(threads), numpy_product()
    timings = in_turn(calls, options.seconds)
    raise_ceilings()
    copy, numpy = max(copy, copy_ceiling(threads)), max(numpy, numpy_product())
    rows = []
    for (name, part, isa, dtype), timing in timings.items():
        rows.append(
            {
                "model": name, "part": part, "level": isa, "dtype": dtype, "ms": timing.median * 1e3,
                "calls": timing.calls, "macs": work[name, part, isa, dtype],
                "bytes": traffic(model(name), part, size, 2 if dtype == "bf16" else 4),
            }
        )  # fmt: skip
    return {
        "cpu": cpu_name(),
        "size": size,
        "threads": threads,
        "date": datetime.date.today().isoformat(),
        "gemm": [{"level": isa, "dtype": dtype, "rate": rate} for (isa, dtype), rate in ceilings.items()],
        "copy": copy,
        "numpy": numpy,
        "rows": rows,
    }


def traffic(weights: Any, part: str, size: int, item: int) -> int:
    """Bytes that the steps of a part's plan read and write; activations are of ``item`` bytes."""
    from zenith_ae.engine.compiler import compile_layers
    from zenith_ae.engine.packing import Packer
    from zenith_ae.measure import part_input
    from zenith_ae.models.spec import trace

    config = weights.config
    x, plane = part_input(config, part, size, size)
    program = compile_layers(
        config.parts[part], config.in_channels(part), x.shape[1], x.shape[2], Packer(weights.part(part))
    )
    *_, last = trace(config.parts[part], config.in_channels(part))
    channels = last.cout
    total = item * sum(tensor.size for tensor in weights.part(part).values())
    outside = x.nbytes + (0 if plane is None else plane.nbytes)
    for step in program.steps:
        inputs = {id(a): a for a in (step.into, step.residual, step.add) if a is not None}
        for a in [*inputs.values(), *([step.out] if step.out is not None else [])]:
            total += item * a.height * a.width * a.pitch
        total += outside if step.load else 0
        if step.store:
            total += step.rows * step.width * step.store**2 * channels * (1 if part == "decoder" else 4)
    return total


def numpy_product() -> float:
    """Multiply-accumulates per second of numpy's own float32 matrix product, as a cross-check."""
    import time

    import numpy as np

    side = 1536
    a = np.random.default_rng(0).random((side, side), np.float32)
    out = np.empty_like(a)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        np.matmul(a, a, out=out)
        best = min(best, time.perf_counter() - start)
    return side**3 / best


def markdown(found: dict[str, Any]) -> str:
    from peer_tables import count, number, table

    copy = found["copy"]
    numpy = f", numpy's own float32 product {found['numpy'] / 1e9:.0f} GMAC/s" if "numpy" in found else ""
    out = [
        f"{found['cpu']}, {count(found['threads'])}, {found['size']}x{found['size']} pixels, "
        f"{found['date']}. A copy of memory moves {copy / 1e9:.1f} GB/s (read and written){numpy}.\n"
    ]
    for ceiling in found["gemm"]:
        rate = ceiling["rate"]
        rows = [r for r in found["rows"] if (r["level"], r["dtype"]) == (ceiling["level"], ceiling["dtype"])]
        lines = []
        for row in rows:
            seconds = row["ms"] / 1e3
            bound = max(row["macs"] / rate, row["bytes"] / copy)
            by = "product" if row["macs"] / rate >= row["bytes"] / copy else "copy"
            lines.append(
                [
                    row["model"], row["part"], f"{row['macs'] / 1e9:.2f}", f"{row['bytes'] / 1e6:.0f}",
                    f"{row['macs'] / row['bytes']:.0f}", number(row["ms"]),
                    f"{row['macs'] / seconds / 1e9:.1f}", f"{row['macs'] / seconds / rate:.0%}",
                    f"{row['bytes'] / seconds / copy:.0%}", f"{number(bound * 1e3)} ({by})",
                    f"{bound / seconds:.0%}",
                ]
            )  # fmt: skip
        head = ["model", "part", "GMAC", "MB", "MAC/byte", "ms", "GMAC/s", "of GEMM", "of copy",
                "bound ms", "reached"]  # fmt: skip
        title = f"### {ceiling['level']}, {ceiling['dtype']}: GEMM ceiling {rate / 1e9:.1f} GMAC/s"
        out.append(f"{title}\n\n{table(head, lines, left=2)}")
    return "\n".join(out)


if __name__ == "__main__":
    main()
