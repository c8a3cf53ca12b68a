"""Speed and memory beside the peers: ``python benchmarks/peers.py [--tables taesd] [--json FILE]``.

Tables, each measured in one run in which all contenders take turns with equal threads:

* ``taesd``: TAESD in torch (eager and compiled, float32 and bf16), ONNX Runtime, OpenVINO and our
  engine, beside our own autoencoders;
* ``models``: every Zenith model against the same model in torch;
* ``denoise``: our denoisers against FFDNet's architecture and OpenCV's non-local means;
* ``memory``: peak resident memory of a decode above that of the imports, a process each;
* ``scaling``: time per pixel over sizes, and one thread against several.

``--isa avx2`` or ``avx2vnni`` limits everything that can be limited (torch, oneDNN, us) to that level,
``best`` limits nothing; several levels are measured one after the other, each in a process of its own.
``--page`` writes the tables into docs/performance.md, ``--read`` takes earlier JSON files in place
of (or, with ``--tables``, beside) a measurement. Medians; what cannot run is listed with its reason.

With everybody in memory at once 2048x2048 takes more than 24 GiB: name some with ``--only``.

Needs the extra ``bench``, a C++ compiler for torch.compile, and Linux for the memory table.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import SHARED, script_parser

TABLES = ("taesd", "models", "denoise", "memory", "scaling")
STANDARD, LITE, NANO = "zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano"
DENOISE, FAST, LARGE = "zenith-denoise", "zenith-denoise-fast", "zenith-denoise-large"
PACKAGES = ("zenith-ae", "torch", "onnxruntime", "openvino", "opencv-python-headless", "numpy")
#: Read by oneDNN (in torch and OpenVINO) and torch when they are loaded. ONNX Runtime has no such limit.
LIMITS = {
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "avx2vnni": {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "ATEN_CPU_CAPABILITY": "avx2"},
}


def arguments() -> argparse.Namespace:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--tables", nargs="*", choices=TABLES, help="[default: all, none with --read]")
    add("--isa", nargs="+", default=["best"], choices=["best", "generic", *LIMITS, "avx512"])
    add("--sizes", type=int, nargs="+", default=[256, 512, 1024, 2048], help="of the table taesd")
    add("--models-size", type=int, default=512)
    add("--scaling-sizes", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    add("--denoise-size", type=int, default=1024)
    add("--threads", type=int, default=2)
    add("--seconds", type=float, default=20, help="for each table and size; at least three rounds")
    add("--rounds", type=int, help="rounds, in place of --seconds")
    add(
        "--only",
        nargs="*",
        help="contenders whose name contains one of these; in the table of models zenith-ae is one",
    )
    add("--compile-sizes", type=int, nargs="*", default=[512],
        help="where torch.compile takes part: a minute or two a model")  # fmt: skip
    add("--architecture", default="taesd", choices=["taesd", "taef2"],
        help="taef2: with its weights where they are, in ZENITH_SHARED/teachers")  # fmt: skip
    add("--json", type=Path, help="write all numbers to this file")
    add("--read", type=Path, nargs="*", default=[], help="files of earlier runs to print or write too")
    add("--page", action="store_true", help="write the tables into docs/performance.md")
    add("--child", type=Path, help=argparse.SUPPRESS)
    add("--child-memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tables is None:
        options.tables = [] if options.read else list(TABLES)
    return options


def main() -> None:
    options = arguments()
    if options.child_memory:
        print(peak_memory(options.child_memory, options))
        return
    if options.child:
        Child(options).run()
        return
    runs = [json.loads(file.read_text()) for file in options.read]
    runs = [run for file in runs for run in file["runs"]]
    if options.tables:
        runs += [measure(isa) for isa in options.isa]
    if options.json:
        options.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    from peer_tables import markdown, write_page

    print(markdown(runs))
    if options.page:
        write_page(runs)


def measure(isa: str) -> dict[str, Any]:
    """One level, measured in a process of its own since libraries read their limits when loaded."""
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    if isa != "best":
        environment |= {"ZENITH_ISA": isa} | LIMITS.get(isa, {})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        command = [sys.executable, __file__, *sys.argv[1:], "--isa", isa, "--child", str(file)]
        failed = subprocess.run(command, env=environment).returncode
        if not file.exists():
            sys.exit(f"the measurement at {isa} failed")
        run = json.loads(file.read_text())
    run["command"] = "python benchmarks/peers.py " + shlex.join(without_files(sys.argv[1:]))
    if failed:
        print(f"the measurement at {isa} stopped early; its finished tables are kept", file=sys.stderr)
    return run


def without_files(arguments: list[str]) -> list[str]:
    """A command's arguments without those that only say where results go."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if argument.startswith("--"):
            skip = argument.split("=")[0] in ("--json", "--read", "--page")
        if not skip:
            kept.append(argument)
    return kept


class Child:
    """Measures the tables at one level, and writes its file after each and after each size of one."""

    def __init__(self, options: argparse.Namespace) -> None:
        from zenith_ae._kernels import current_isa
        from zenith_ae.app.doctor import cpu_name, version

        self.options = options
        self.rows: list[dict[str, Any]] = []
        self.left_out: dict[str, str] = {}
        self.facts = {
            "isa": options.isa[0],
            "level": current_isa(),
            "cpu": cpu_name(),
            "cpus": os.cpu_count(),
            "threads": options.threads,
            "architecture": options.architecture,
            "date": datetime.date.today().isoformat(),
            "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "versions": {package: version(package) for package in PACKAGES},
        }

    def run(self) -> None:
        import contenders

        contenders.limit_threads(self.options.threads)
        for table in self.options.tables:
            getattr(self, table)()
            self.save()

    def save(self) -> None:
        done = self.facts | {"rows": self.rows, "left_out": self.left_out}
        self.options.child.write_text(json.dumps(done))

    # --- what takes part ------------------------------------------------------------------------

    def wanted(self, name: str, size: int | None = None) -> bool:
        only = self.options.only
        if "compile" in name and size not in self.options.compile_sizes:
            return False
        return not only or any(text in name for text in only)

    def peers(self, parts: Any, inputs: Any, size: int, only: str = "") -> dict[str, Any]:
        """name -> calls of every peer that can run these parts."""
        from contenders import CONTENDERS

        found = {}
        for name, make in CONTENDERS.items():
            if not self.wanted(name, size) or not name.startswith(only):
                continue
            if name.startswith("torch") and "bf16" in name and self.options.isa[0] in ("generic", *LIMITS):
                self.left_out[name] = "torch emulates bf16 at this level, several times slower than float32"
                continue
            try:
                found[name] = make(parts, inputs)
                for call in found[name].values():  # torch.compile compiles here
                    call()
            except Exception as error:
                self.left_out[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                found.pop(name, None)
        return found

    def own(self, weights: Any, size: int, label: str) -> dict[str, Any]:
        from contenders import own_calls, own_dtypes

        return {
            f"{label} {dtype}": own_calls(weights, size, self.options.threads, dtype)
            for dtype in own_dtypes(weights)
            if self.wanted(f"{label} {dtype}")
        }

    def time(self, table: str, size: int, contenders: dict[str, Any], **more: Any) -> None:
        """Time all calls in turn and keep a row for each."""
        from zenith_ae.measure import in_turn

        calls = {(name, op): call for name, ops in contenders.items() for op, call in ops.items()}
        if not calls:
            return
        # The pause lets the threads of the last contender's library go to sleep.
        timings = in_turn(calls, self.options.seconds, self.options.rounds, pause=0.05)
        for (name, operation), timing in timings.items():
            row = {"table": table, "contender": name, "operation": operation, "size": size}
            self.rows.append(row | milliseconds(timing) | more)
        self.save()  # the next size may take more memory than there is
        print(f"{self.facts['isa']}: {table} {size} done", file=sys.stderr, flush=True)

    # --- tables ---------------------------------------------------------------------------------

    def taesd(self) -> None:
        from contenders import modules, part_inputs

        vanilla = model(self.options.architecture)
        for size in self.options.sizes:
            found = self.peers(modules(vanilla), part_inputs(vanilla, size), size)
            found |= self.own(vanilla, size, f"zenith-ae, {self.options.architecture.upper()}")
            for name in (STANDARD, LITE, NANO):
                found |= self.own(model(name), size, name)
            self.time("taesd", size, found)

    def models(self) -> None:
        from contenders import modules, part_inputs

        size = self.options.models_size
        for name in (STANDARD, LITE, NANO, "zenith-taesd-spectral", LARGE, DENOISE, FAST):
            weights = model(name)
            found = self.peers(modules(weights), part_inputs(weights, size), size, only="torch")
            self.time("models", size, found | self.own(weights, size, "zenith-ae"), model=name)

    def denoise(self) -> None:
        import numpy as np
        from contenders import ffdnet, own_dtypes, part_inputs, pipeline
        from PIL import Image, ImageFilter

        size, weights = self.options.denoise_size, model(DENOISE)
        picture = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
        # Noise that is independent from pixel to pixel goes through another network than other noise does.
        mottled = np.asarray(Image.fromarray(picture).filter(ImageFilter.BoxBlur(2)))
        # FFDNet takes what our denoiser takes: a picture and its noise level.
        x = {"denoiser": part_inputs(weights, size)["denoiser"]}
        compile_sizes = self.options.compile_sizes
        self.options.compile_sizes = [size] if compile_sizes else []
        found = {f"FFDNet, {k}": {"denoise": v["denoiser"]}
                 for k, v in self.peers({"denoiser": ffdnet()}, x, size).items()}  # fmt: skip
        self.options.compile_sizes = compile_sizes
        try:
            import cv2

            cv2.setNumThreads(self.options.threads)
            found["OpenCV fastNlMeansDenoisingColored"] = {
                "denoise": lambda: cv2.fastNlMeansDenoisingColored(picture, None, 10, 10, 7, 21)
            }
        except ImportError:
            self.left_out["OpenCV fastNlMeansDenoisingColored"] = "not installed"
        for name in (LARGE, DENOISE, FAST):
            weights = model(name)
            for dtype in own_dtypes(weights):
                own = pipeline(weights, self.options.threads, dtype)
                if own.experts(mottled) != ["denoiser"]:
                    raise RuntimeError(f"{name} takes the mottled picture for white noise")
                # Told far more than there is, it would try two levels.
                level = float(own.estimate_sigma(mottled).mean())
                found[f"{name} {dtype}, level estimated"] = {"denoise": lambda own=own: own(picture)}
                found[f"{name} {dtype}, level known"] = {"denoise": lambda own=own: own(picture, sigma=25)}
                found[f"{name} {dtype}, mottled, level known"] = {
                    "denoise": lambda own=own, level=level: own(mottled, sigma=level)
                }
        self.time("denoise", size, {name: ops for name, ops in found.items() if self.wanted(name, size)})

    def memory(self) -> None:
        from contenders import CONTENDERS, own_dtypes

        own = {
            f"{name} {dtype}": f"zenith-ae, {name.upper()} {dtype}"
            if "zenith" not in name
            else f"{name} {dtype}"
            for name in (self.options.architecture, STANDARD, LITE, NANO)
            for dtype in own_dtypes(model(name))
        }
        for name, label in ({name: name for name in CONTENDERS} | own).items():
            if not self.wanted(label) or "compile" in name:
                continue
            command = [sys.executable, __file__, "--child-memory", name,
                       "--threads", str(self.options.threads),
                       "--architecture", self.options.architecture]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                self.left_out[f"{name} (memory)"] = (done.stderr.strip().splitlines() or ["failed"])[-1]
            else:
                self.rows.append({"table": "memory", "contender": label, "operation": "decode", "size": 512,
                                  "bytes": int(done.stdout.split()[-1])})  # fmt: skip

    def scaling(self) -> None:
        import numpy as np
        from contenders import pipeline

        found: dict[tuple[int, int], dict[str, Any]] = {}
        threads = self.options.threads
        cases = [(size, threads) for size in self.options.scaling_sizes]
        cases += [(size, 1) for size in (512, 1024) if threads > 1 and size in self.options.scaling_sizes]
        for size, count in cases:
            picture = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
            for name in filter(self.wanted, (DENOISE, LITE, NANO)):
                own = pipeline(model(name), count)
                call = own if name == DENOISE else own.roundtrip
                operation = "denoise" if name == DENOISE else "round trip"
                run = {operation: lambda call=call, picture=picture: call(picture)}
                found.setdefault((size, count), {})[name] = run
        from zenith_ae.measure import in_turn

        calls = {
            (n, op, s, t): c for (s, t), ops in found.items() for n, o in ops.items() for op, c in o.items()
        }
        timings = in_turn(calls, self.options.seconds, self.options.rounds)
        for (name, operation, size, count), timing in timings.items():
            row = {"table": "scaling", "contender": name, "operation": operation, "size": size}
            self.rows.append(row | milliseconds(timing) | {"threads": count})


def milliseconds(timing: Any) -> dict[str, Any]:
    """Median, quartiles and best of a `zenith_ae.measure.Timing`, and the number of calls."""
    names = {"ms": timing.median, "low": timing.low, "high": timing.high, "best": timing.best}
    return {name: round(value * 1e3, 3) for name, value in names.items()} | {"calls": timing.calls}


def model(name: str) -> Any:
    """Weights of a model: the shipped ones, TAEF2's own where they are, else random ones."""
    from zenith_ae.models import zoo
    from zenith_ae.selftest import random_weights
    from zenith_ae.weights import available_weights, load_weights

    teacher = SHARED / "teachers" / "taef2_encoder.safetensors"
    if name in available_weights():
        return load_weights(name)
    if name == "taef2" and teacher.exists():
        return load_weights(teacher)
    return random_weights(zoo.build(name))


def peak_memory(name: str, options: argparse.Namespace) -> int:
    """Bytes of resident memory that two decodes of 512x512 need above what is there before.

    Before: the imports, the weights as they were read, and for ONNX Runtime and OpenVINO the ONNX file.
    What a contender makes of them (its own layout of the weights, its plan) counts.
    """
    import contenders

    contenders.limit_threads(options.threads)
    peer = name in contenders.CONTENDERS
    architecture, dtype = (options.architecture, "") if peer else name.rsplit(" ", 1)
    weights = model(architecture)
    parts = {"decoder": contenders.modules(weights)["decoder"]} if peer else {}
    inputs = {"decoder": contenders.part_inputs(weights, 512)["decoder"]}
    if name.startswith(("ONNX", "OpenVINO")):
        contenders.onnx_model(parts["decoder"], inputs["decoder"].shape)
        import onnxruntime  # noqa: F401
        import openvino  # noqa: F401
    before = resident("VmRSS")
    if peer:
        calls = contenders.CONTENDERS[name](parts, inputs)
    else:
        calls = contenders.own_calls(weights, 512, options.threads, dtype)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    calls["decoder"]()
    calls["decoder"]()
    return resident("VmHWM") - before


def resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    main()
