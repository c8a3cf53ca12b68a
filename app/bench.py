"""``zenith-ae bench``: how fast the models are on this machine, and how near to its limits."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click

from zenith_ae import __version__
from zenith_ae.errors import MissingDependencyError
from zenith_ae.files import aligned

from .doctor import cpu_name, version
from .session import Model, Number

SIGMA = 25  # for denoisers that cannot estimate it


class Size(click.ParamType):
    name = "N|WxH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"0*([1-9]\d{0,4})(?:x0*([1-9]\d{0,4}))?", str(value))
        if not found:
            self.fail(f"{value!r} is not a side N or WIDTHxHEIGHT of 1 to 99999 pixels", param, ctx)
        return int(found[1]), int(found[2] or found[1])


@click.command(short_help="Measure the models on this machine.")
@click.argument("models", nargs=-1, type=Model(), metavar="[MODEL]...")
@click.option("--size", "sizes", type=Size(), multiple=True, default=("512",), show_default=True,
              help="Side, or width and height, of the pictures; may be repeated.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256), help="CPU threads. [default: all]")
@click.option("--precision", type=click.Choice(["auto", "float32", "bf16", "int16"]), default="auto",
              show_default=True, help="Of the computation, as in zenith_ae.load.")  # fmt: skip
@click.option("--seconds", type=Number(0), default=10.0, show_default=True,
              help="Time for the measurement, all models together.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1), help="Rounds, in place of --seconds.")
@click.option("--profile", is_flag=True, help="Print also where the time goes, stage by stage.")
@click.option("--compare", type=click.Choice(["torch"]), help="Run the same models in torch beside it.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines on standard output.")
def bench(
    models: tuple[str, ...],
    sizes: tuple[tuple[int, int], ...],
    threads: int | None,
    precision: str,
    seconds: float,
    repeats: int | None,
    profile: bool,
    compare: str | None,
    as_json: bool,
) -> int:
    """Measure how fast models are on this machine.

    MODEL is the name of a model or a weights file; without one, those that come with zenith-ae
    are measured. Models and operations take turns, so that a machine that changes its speed
    treats all alike; printed are medians. "of GEMM" is the share of what the fastest matrix
    product reaches here with the same threads.

    \b
    Examples:
      zenith-ae bench
      zenith-ae bench zenith-denoise --size 1024 --profile
      zenith-ae bench taef2_encoder.safetensors --compare torch
      ZENITH_ISA=avx2 zenith-ae bench --threads 1 --json
    """
    if compare == "torch":
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is imported
    from zenith_ae.measure import copy_ceiling, gemm_ceiling, in_turn, working_memory
    from zenith_ae.pipelines import load
    from zenith_ae.weights import available_weights

    names = models or tuple(available_weights())
    own = [load(name, device="cpu", dtype=precision, threads=threads) for name in names]
    if not own:
        raise click.UsageError("no models came with this installation; give a weights file")
    isa, used = own[0].engine.isa, own[0].engine.threads
    dtypes = {model.engine.dtype for model in own}
    peers = torch_models(names, used) if compare else []
    ceilings = {name: gemm_ceiling(isa, used, name) for name in sorted(dtypes)}
    calls = {}
    for kind, group in (("own", own), (compare, peers)):
        for name, model in zip(names, group, strict=False):
            for width, height in sizes:
                for operation, run in operations(model, width, height).items():
                    calls[kind, name, operation, width, height] = run
    if sys.stderr.isatty():
        click.echo(f"measuring {len(calls)} operations", err=True)
    timings = in_turn(calls, seconds, repeats, pause=0.05 if compare else 0.0)
    # Machines that others use too have better and worse moments: a ceiling is the best of two.
    ceilings = {name: max(value, gemm_ceiling(isa, used, name)) for name, value in ceilings.items()}

    machine = {
        "kind": "machine",
        "cpu": cpu_name(),
        "level": isa,
        "threads": used,
        "zenith_ae": __version__,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        **({"torch": version("torch")} if compare else {}),
        "gemm_gmacs_per_second": {name: round(value / 1e9, 2) for name, value in ceilings.items()},
        "copy_gigabytes_per_second": round(copy_ceiling(used) / 1e9, 2),
    }
    by_name = dict(zip(names, own, strict=True))
    results = []
    for (kind, name, operation, width, height), timing in timings.items():
        if kind != "own":
            continue
        model = by_name[name]
        row = result(model, name, operation, width, height, timing, ceilings[model.engine.dtype])
        row["memory_bytes"] = working_memory(calls[kind, name, operation, width, height], model.engine)
        if compare:
            other = timings[compare, name, operation, width, height].median
            row["torch_ms"] = round(other * 1e3, 4)
            row["torch_ratio"] = round(other / timing.median, 3)
        results.append(row)
    parts = []
    if profile:
        for name, model in by_name.items():
            for width, height in sizes:
                parts += profiled(model, name, width, height, ceilings[model.engine.dtype])
    if as_json:
        for line in (machine, *results, *parts):
            click.echo(json.dumps(line))
    else:
        print_header(machine)
        print_results(results, compare)
        print_profile(parts)
    return 0


def torch_models(names: Iterable[str], threads: int) -> list[Any]:
    """The same models on torch's modules, with as many threads."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("--compare torch needs torch: pip install 'zenith-ae[torch]'") from None
    from zenith_ae.pipelines import load

    torch.set_num_threads(threads)
    return [load(name, device="torch") for name in names]


def operations(model: Any, width: int, height: int) -> dict[str, Callable[[], Any]]:
    """What a model can do, on a picture of that size: name -> call."""
    from zenith_ae.measure import part_input

    config = model.config
    picture = part_input(config, "picture", height, width)[0]
    if config.kind == "denoiser":
        sigma = "auto" if "estimator" in config.parts else SIGMA
        return {"denoise": lambda: model(picture, sigma=sigma)}
    calls: dict[str, Callable[[], Any]] = {}
    if "encoder" in config.parts:
        calls["encode"] = partial(model.encode, picture)
    if "decoder" in config.parts:
        if "encoder" in config.parts:
            z = model.encode(picture)
        else:
            z = part_input(config, "decoder", height, width)[0].transpose(0, 3, 1, 2).copy()
        calls["decode"] = partial(model.decode, z, size=(height, width))
    if len(calls) == 2:
        calls["round trip"] = partial(model.roundtrip, picture)
    return calls


PARTS = {
    "denoise": ("sorter", "estimator"),  # and the network that the sorter chose
    "encode": ("encoder",),
    "decode": ("decoder",),
    "round trip": ("encoder", "decoder"),
}


def parts_of(model: Any, operation: str, width: int, height: int) -> list[str]:
    """The parts of a model that an operation runs, on what is measured here."""
    from zenith_ae.measure import part_input

    chosen: list[str] = []
    if operation == "denoise":
        chosen = model.experts(part_input(model.config, "picture", height, width)[0])
    return [*chosen, *(part for part in PARTS[operation] if part in model.config.parts)]


def macs(model: Any, parts: list[str], width: int, height: int) -> float:
    """Multiply-accumulates of these parts, without those that tiles repeat."""
    from zenith_ae.measure import executed_macs

    total, config = 0.0, model.config
    for part in parts:
        factor = config.factor if part == "decoder" else 1
        pixels = -(-height // factor) * -(-width // factor)
        layers, channels = config.parts[part], config.in_channels(part)
        total += pixels * sum(executed_macs(layers, channels, model.engine.winograd))
    return total


def result(
    model: Any, name: str, operation: str, width: int, height: int, timing: Any, ceiling: float
) -> dict[str, Any]:
    parts = parts_of(model, operation, width, height)
    work = macs(model, parts, width, height)
    return {
        "kind": "result",
        "model": name,
        "weights": model.hash,
        "operation": operation,
        "parts": parts,
        "dtype": model.engine.dtype,
        "width": width,
        "height": height,
        "ms": round(timing.median * 1e3, 4),
        "ms_low": round(timing.low * 1e3, 4),
        "ms_high": round(timing.high * 1e3, 4),
        "ms_best": round(timing.best * 1e3, 4),
        "calls": timing.calls,
        "megapixels_per_second": round(width * height / timing.median / 1e6, 3),
        "gmacs": round(work / 1e9, 6),
        "gmacs_per_second": round(work / timing.median / 1e9, 3),
        "gemm_share": round(work / timing.median / ceiling, 4),
    }


def profiled(model: Any, name: str, width: int, height: int, ceiling: float) -> list[dict[str, Any]]:
    from zenith_ae.measure import measured_parts, stages

    rows = []
    for part in measured_parts(model.config):
        found = stages(model.engine, part, height, width)
        whole = sum(stage.ms for stage in found)
        for stage in found:
            rate = stage.macs / stage.ms * 1e3 if stage.ms else 0.0
            rows.append(
                {
                    "kind": "stage",
                    "model": name,
                    "part": part,
                    "dtype": model.engine.dtype,
                    "width": width,
                    "height": height,
                    "stage": stage.label,
                    "ms": round(stage.ms, 5),
                    "time_share": round(stage.ms / whole, 5),
                    "gmacs": round(stage.macs / 1e9, 5),
                    "gmacs_per_second": round(rate / 1e9, 3),
                    "gemm_share": round(rate / ceiling, 4),
                }
            )
    return rows


# --- tables ---------------------------------------------------------------------------------


def print_header(machine: dict[str, Any]) -> None:
    versions = [f"{key.replace('_', '-')} {machine[key]}" for key in ("zenith_ae", "python", "numpy", "torch")
                if key in machine]  # fmt: skip
    count = machine["threads"]
    click.echo(f"{machine['cpu']}, level {machine['level']}, {count} thread{'s' if count > 1 else ''}; "
               f"{', '.join(versions)}")  # fmt: skip
    products = ", ".join(
        f"{value:.1f} GMAC/s {name}" for name, value in machine["gemm_gmacs_per_second"].items()
    )
    click.echo(f"ceilings: GEMM {products}; copy {machine['copy_gigabytes_per_second']:.1f} GB/s\n")


def print_results(results: list[dict[str, Any]], compare: str | None) -> None:
    head = ["model", "operation", "dtype", "size", "ms", "spread", "MP/s", "GMAC/s", "of GEMM", "MiB"]
    table = [head + (["torch ms", "faster"] if compare else [])]
    for row in results:
        cells = [
            row["model"], row["operation"], row["dtype"], f"{row['width']}x{row['height']}",
            f"{row['ms']:.2f}", f"{(row['ms_high'] - row['ms_low']) / row['ms']:.0%}",
            f"{row['megapixels_per_second']:.2f}", f"{row['gmacs_per_second']:.1f}",
            f"{row['gemm_share']:.0%}", f"{row['memory_bytes'] / 2**20:.1f}",
        ]  # fmt: skip
        if compare:
            cells += [f"{row['torch_ms']:.1f}", f"{row['torch_ratio']:.1f}x"]
        table.append(cells)
    click.echo("\n".join(aligned(table, left=4)))
    click.echo("\nms: median, spread: between the quartiles, MiB: largest working memory")


def print_profile(parts: list[dict[str, Any]]) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in parts:
        groups.setdefault((row["model"], row["part"], row["dtype"], row["width"], row["height"]), []).append(
            row
        )
    for (model, part, dtype, width, height), rows in groups.items():
        whole = sum(row["ms"] for row in rows)
        click.echo(f"\n{model} {part} {width}x{height} {dtype}: {whole:.2f} ms (best of each stage)")
        table = [["stage", "ms", "of time", "GMAC", "GMAC/s", "of GEMM"]]
        for row in rows:
            table.append([row["stage"], f"{row['ms']:.3f}", f"{row['time_share']:.1%}", f"{row['gmacs']:.3f}",
                          f"{row['gmacs_per_second']:.1f}", f"{row['gemm_share']:.0%}"])  # fmt: skip
        for line in aligned(table):
            click.echo(f"  {line}")
