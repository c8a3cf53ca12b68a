"""``zenith-ae doctor``: what is installed, what the CPU can do, and whether the results are right."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click

from zenith_ae import __version__
from zenith_ae.errors import ZenithError, one_line, why_no_kernels


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def doctor(as_json: bool) -> int:
    """Check this installation.

    Prints versions, the kernel levels that were compiled and those that this CPU has, the threads
    and the models; then runs small random networks, and products on several threads, on every level
    and compares them with plain numpy. The exit code is 0 if everything passes, else 1.

    \b
    Examples:
      zenith-ae doctor
      ZENITH_ISA=generic zenith-ae doctor
    """
    facts = installation()
    checks: list[dict[str, Any]] = []
    if not as_json:
        for key, value in facts.items():
            text = ", ".join(value) if isinstance(value, list) else value
            none = "none of AVX-VNNI, AVX-512 VNNI, AVX-512 BF16, AMX" if key == "cpu has also" else "none"
            click.echo(f"{key:<18}{text or none}")
        click.echo()
    for check in all_checks(facts["levels available"], facts["level used"]):
        checks.append(check)
        if not as_json:
            click.echo(f"{'PASS' if check['ok'] else 'FAIL'}  {check['what']}: {check['detail']}")
    passed = all(check["ok"] for check in checks)
    if as_json:
        click.echo(json.dumps({**facts, "checks": checks, "passed": passed}))
    else:
        count = sum(check["ok"] for check in checks)
        click.echo(f"\n{'PASS' if passed else 'FAIL'}: {count} of {len(checks)} checks passed")
    return 0 if passed else 1


def installation() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "zenith-ae": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
    }
    for package in ("numpy", "pillow", "safetensors", "click", "torch"):
        facts[package] = version(package)
    try:
        from zenith_ae._kernels import available_isas, best_dtype, compiled_isas, cpu_features, current_isa
    except ImportError as error:
        why = f"none: {why_no_kernels(error)}"
        return facts | {"levels compiled": [], "levels available": [], "level used": why}
    facts["cpu has also"] = list(cpu_features())
    facts["levels compiled"] = list(compiled_isas())
    facts["levels available"] = list(available_isas())
    try:
        facts["level used"] = current_isa() + (" (ZENITH_ISA)" if os.environ.get("ZENITH_ISA") else "")
        facts["precision"] = best_dtype()
    except ZenithError as error:
        facts["level used"] = f"none: {error}"
    return facts


def version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def cpu_name() -> str:
    try:
        if sys.platform == "darwin":
            named = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(named, capture_output=True, text=True, check=True).stdout.strip()
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
        with open("/proc/device-tree/model") as file:  # of an ARM board
            return file.read().strip("\0\n ")
    except (OSError, subprocess.SubprocessError):
        pass
    return platform.processor() or platform.machine()


def all_checks(levels: list[str], used: str) -> Iterator[dict[str, Any]]:
    """Each check as a dictionary of "what", "ok" and "detail"; an exception is a failed one."""
    if not levels:
        yield {"what": "kernels", "ok": False, "detail": used.removeprefix("none: ")}
        return
    yield from guarded("threads", threads)
    for level in levels:
        yield from guarded(f"level {level}", lambda level=level: kernels(level))
    yield from guarded("models", models)


def guarded(what: str, checks: Any) -> Iterator[dict[str, Any]]:
    try:
        yield from checks()
    except Exception as error:
        text = one_line(error)
        yield {
            "what": what,
            "ok": False,
            "detail": text if isinstance(error, ZenithError) else f"{type(error).__name__}: {text}",
        }


def threads() -> Iterator[dict[str, Any]]:
    from zenith_ae.engine import create
    from zenith_ae.selftest import random_weights, test_models

    engine = create(random_weights(test_models()[0]), device="cpu")
    setting = os.environ.get("ZENITH_NUM_THREADS")
    source = f"ZENITH_NUM_THREADS={setting}" if setting else "the CPUs that this process may use"
    yield {
        "what": "threads",
        "ok": engine.threads >= 1,
        "detail": f"{engine.threads}, from {source}; level {engine.isa}, {engine.dtype}",
    }


def kernels(level: str) -> Iterator[dict[str, Any]]:
    from zenith_ae.selftest import self_test

    yield from map(vars, self_test(level))


def models() -> Iterator[dict[str, Any]]:
    from zenith_ae.weights import available_weights, load_weights

    shipped = available_weights()
    if not shipped:
        yield {"what": "models", "ok": False, "detail": "none came with this installation; install it again"}
    for name, path in shipped.items():
        try:
            weights = load_weights(path)
            yield {"what": f"model {name}", "ok": True, "detail": f"weights {weights.hash}"}
        except ZenithError as error:
            yield {"what": f"model {name}", "ok": False, "detail": str(error)}
