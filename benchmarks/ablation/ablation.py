"""Which choices of the architecture pay? ``python benchmarks/ablation/ablation.py [STAGE ...]``

Compares the networks of variants.py at equal latency on our engine and after equal training:

* ``size``: finds each variant's channels C and hidden channels M at 1/8 resolution. Candidates
  are all pairs of multiples of 16 with M within 16 of the variant's ratio times C (within 32 for a
  ratio of 1), in the order of their operations. It times the one with the reference's number of
  operations, moves to the one with these divided by the time relative to the reference's, and times
  five about it; the nearest to the reference's time is taken if it is within 3 %, else it moves
  again, three times at most. Times (``--size`` squared, ``--threads``, first level of ``--isa``)
  are taken in turns, on one thread of CPU time, and the best counts: on a busy machine the best of
  nine repeated within 3 %, their median within 5 %. What remains is printed.
* ``latency``: all chosen sizes in turns, at every level of ``--isa``.
* ``train``: each for ``--minutes`` of its process's CPU time (or ``--steps``) from the same seed, as
  `zenith-ae train` does, with the mean absolute error alone: decoders from the teacher's latents of
  whole pictures to the picture, denoisers with white Gaussian noise of sigma 0 to 50 (of 255). Then
  PSNR on whole validation pictures, which are split off the training photographs.
* ``table``: prints the results so far; ``--json FILE`` writes them too, ``--page`` puts the table
  into docs/ablation.md.

Without a stage, all of them. What is done is found in ``--out`` and not done again; an interrupted
training goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from variants import LATENT, VARIANTS, Variant

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import ROOT, SHARED, script_parser, with_part

from zenith_ae.engine import create
from zenith_ae.engine.geometry import multiple
from zenith_ae.measure import in_turn, part_input
from zenith_ae.models.modules import Network
from zenith_ae.models.spec import ModelConfig, mac_count, parameter_count
from zenith_ae.selftest import random_weights
from zenith_ae.training.data import ImagePool
from zenith_ae.training.degradations import Mixture
from zenith_ae.training.distill import FACTOR, DistillRecipe, teacher_latents
from zenith_ae.training.restore import RestoreRecipe, start_small
from zenith_ae.training.trainer import TrainConfig, Trainer, psnr, to_tensor
from zenith_ae.weights import load_weights

PAGE, BEGIN, END = ROOT / "docs" / "ablation.md", "<!-- table: begin -->", "<!-- table: end -->"
STAGES = ("size", "latency", "train", "table")
SIGMAS = (15, 25, 50)
LARGEST = 1024  # channels
TOLERANCE = 0.03  # of the reference's time


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("stages", nargs="*", choices=[*STAGES, []], help="[default: all]")
    add("--out", type=Path, default=Path("runs/ablation"), help="[default: runs/ablation]")
    add("--only", nargs="+", metavar="NAME", help="variants to size and train, in this order")
    add("--isa", nargs="+", default=["best"], help="levels of the kernels [default: the best one]")
    add("--size", type=int, default=512, help="side of the picture that is timed [default: 512]")
    add("--threads", type=int, default=1, help="for timing and training [default: 1]")
    add("--rounds", type=int, default=9, help="turns of a timing [default: 9]")
    add("--minutes", type=float, default=3.0, help="CPU time of a training [default: 3]")
    add("--steps", type=int, help="steps of a training, in place of --minutes")
    add("--lr", type=float, default=TrainConfig.lr, help="peak learning rate [default: %(default)s]")
    add("--batch", type=int, default=8)
    add("--crop", type=int, default=128)
    add("--validation", type=int, default=24, help="pictures kept for validation [default: 24]")
    packs = [str(SHARED / "data" / f"train_{name}.tar") for name in ("bsds400", "photos1000")]
    add("--data", nargs="+", default=packs, help="[default: the two packs of the shipped weights]")
    add("--teacher", default=str(SHARED / "teachers" / "taef2_encoder.safetensors"))
    add("--latents", type=Path, help="where the teacher's latents are kept [default: OUT/latents.npz]")
    add("--json", type=Path, help="write all numbers to this file")
    add("--page", action="store_true", help="write the table into docs/ablation.md")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None, variants: Sequence[Variant] = VARIANTS) -> None:
    options = arguments(given)
    study = Study(options, variants)
    known = {v.name: v for v in variants}
    if unknown := [name for name in options.only or () if name not in known]:
        sys.exit(f"no variant {unknown[0]!r}; there are: {', '.join(known)}")
    chosen = [known[name] for name in options.only] if options.only else list(variants)
    stages = options.stages or STAGES
    if "size" in stages:
        for variant in chosen:
            study.size(variant)
    if "latency" in stages:
        study.latency()
    if "train" in stages:
        for variant in chosen:
            study.train(variant)
    if "table" in stages:
        rows = study.rows()
        table = markdown(rows)
        print(table)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        if options.page:
            PAGE.write_text(with_part(PAGE.read_text(), BEGIN, END, table))


def write_json(path: Path, value: Any) -> None:
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(value) + "\n")
    partial.replace(path)


class Study:
    """The stages, and the files in the output folder that they leave.

    ``NAME.size.json`` and ``NAME.json`` for a variant's size and result, ``latency.json``.
    """

    def __init__(self, options: argparse.Namespace, variants: Sequence[Variant]) -> None:
        self.options, self.variants = options, variants
        self.out: Path = options.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.data: Data | None = None

    def path(self, variant: Variant, suffix: str) -> Path:
        return self.out / ("-".join(variant.name.replace(",", "").replace("/", " of ").split()) + suffix)

    def reference(self, variant: Variant) -> Variant:
        return next(v for v in self.variants if v.task == variant.task)

    def config(self, variant: Variant, size: tuple[int, int]) -> ModelConfig:
        decoder = variant.task == "decoder"
        return ModelConfig(
            variant.name, "autoencoder" if decoder else "denoiser",
            {variant.task: variant.layers(*size)}, LATENT if decoder else 0,
        )  # fmt: skip

    # --- latency --------------------------------------------------------------------------------

    def runner(self, variant: Variant, size: tuple[int, int], isa: str) -> Callable[[], Any]:
        config, part = self.config(variant, size), variant.task
        engine = create(
            random_weights(config), threads=self.options.threads, isa=None if isa == "best" else isa
        )
        x, plane = part_input(config, part, self.options.size, self.options.size)
        return lambda: engine.run(part, x, plane=plane, out="uint8")

    def in_turn(self, candidates: Any, rounds: int) -> Any:
        clock = time.process_time if self.options.threads == 1 else time.perf_counter
        return in_turn(candidates, rounds=rounds, clock=clock)

    def ratios(self, variant: Variant, sizes: Sequence[tuple[int, int]], rounds: int) -> list[float]:
        """Latencies of a variant in some sizes, relative to its reference's."""
        reference, isa = self.reference(variant), self.options.isa[0]
        assert reference.size is not None
        candidates = {size: self.runner(variant, size, isa) for size in sizes}
        timings = self.in_turn({None: self.runner(reference, reference.size, isa), **candidates}, rounds)
        return [timings[size].best / timings[None].best for size in sizes]

    def size(self, variant: Variant) -> None:
        """Find the size at which a variant takes the reference's time."""
        path = self.path(variant, ".size.json")
        if path.exists():
            return
        if variant.size is not None:  # the same work as the reference's
            write_json(path, {"size": variant.size, "ratio": 1.0})
            return
        candidates = self.candidates(variant)
        sizes, operations = list(candidates), list(candidates.values())
        at = bisect_left(operations, self.operations(self.reference(variant)))
        for rounds, beside in ((5, 0), *((self.options.rounds, 2),) * 3):
            about = sizes[max(0, at - beside) : at + beside + 1]
            found = zip(self.ratios(variant, about, rounds), about, strict=True)
            ratio, size = min(found, key=lambda pair: abs(pair[0] - 1))
            if beside and abs(ratio - 1) <= TOLERANCE:
                break
            at = min(bisect_left(operations, candidates[size] / ratio), len(sizes) - 1)
        write_json(path, {"size": size, "ratio": ratio})
        print(f"{variant.name}: C = {size[0]}, M = {size[1]}, {100 * (ratio - 1):+.1f} % of the reference",
              file=sys.stderr, flush=True)  # fmt: skip

    def operations(self, variant: Variant, size: tuple[int, int] | None = None) -> int:
        size = size or variant.size
        assert size is not None
        return mac_count(variant.layers(*size), self.inputs(variant), 64, 64)

    def candidates(self, variant: Variant) -> dict[tuple[int, int], int]:
        """Sizes that a variant may have -> operations, in the order of these."""
        sides = range(16, LARGEST + 1, 16)
        pairs = [
            (c, m) for c in sides for m in sides if abs(m - variant.ratio * c) < 32 * max(variant.ratio, 0.5)
        ]
        found = {size: self.operations(variant, size) for size in pairs}
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def inputs(self, variant: Variant) -> int:
        return LATENT if variant.task == "decoder" else 4

    def sized(self, variant: Variant) -> tuple[int, int] | None:
        path = self.path(variant, ".size.json")
        if not path.exists():
            return None
        c, m = json.loads(path.read_text())["size"]
        return c, m

    def latency(self) -> None:
        """Time everything that has a size in one run, level by level; equal networks once."""
        sizes = {v: size for v in self.variants if (size := self.sized(v))}
        networks = {v: v.layers(*size) for v, size in sizes.items()}
        path = self.out / "latency.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        for isa in self.options.isa:
            if set(found.get(isa, ())) >= {v.name for v in sizes}:
                continue
            runners = {networks[v]: self.runner(v, size, isa) for v, size in sizes.items()}
            timings = self.in_turn(runners, self.options.rounds)
            found[isa] = {v.name: 1e3 * timings[layers].best for v, layers in networks.items()}
            write_json(path, found)

    # --- training -------------------------------------------------------------------------------

    def train(self, variant: Variant) -> None:
        """Train a variant and measure it, if that was not done before."""
        options, path, size = self.options, self.path(variant, ".json"), self.sized(variant)
        if size is None:
            sys.exit(f"{variant.name} has no size yet: run the stage `size` first")
        budget = {"steps": options.steps} if options.steps else {"minutes": options.minutes}
        asked = budget | {"size": list(size), "batch": options.batch, "crop": options.crop}
        if options.lr != TrainConfig.lr:
            asked |= {"lr": options.lr}
        if path.exists():
            done = json.loads(path.read_text())
            if done["training"] != asked:
                sys.exit(f"{path} is of another training, {done['training']}: use another --out")
            return
        if self.data is None:
            self.data = Data(options)
        folder = path.with_suffix("")
        config = TrainConfig(
            folder, **budget, lr=options.lr, batch=options.batch, crop=options.crop, warmup=50,
            seed=variant.seed, threads=options.threads, workers=0, evaluate_minutes=float("inf"),
            clock=time.process_time,
        )  # fmt: skip
        torch.manual_seed(variant.seed)
        network: nn.Module = Network(variant.layers(*size), self.inputs(variant))
        if variant.task == "denoiser":
            start_small(network)
        if variant.change is not None:
            network = variant.change(network)
        recipe = (DecoderRecipe if variant.task == "decoder" else DenoiserRecipe)(self.data, config)
        scores: dict[str, list[float]] = {}

        def evaluate(model: nn.Module) -> dict[str, float]:
            scores.update(recipe.validate(model))
            return {f"psnr {name}".strip(): float(np.mean(values)) for name, values in scores.items()}

        print(f"--- {variant.name}, {size}", file=sys.stderr, flush=True)
        trainer = Trainer(network, recipe.make_batch, recipe.loss, config, lambda *_: None, evaluate)
        trainer.load_checkpoint()
        trainer.run()
        write_json(path, {"training": asked, "steps": trainer.step, "seconds": trainer.seconds,
                          "psnr": scores})  # fmt: skip
        trainer.checkpoint_path.unlink()

    # --- results --------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """What is known of each variant, in the order of the list."""
        path = self.out / "latency.json"
        latency = json.loads(path.read_text()) if path.exists() else {}
        rows = []
        for variant in self.variants:
            size = self.sized(variant)
            if size is None:
                continue
            row: dict[str, Any] = {
                "task": variant.task, "question": variant.question, "name": variant.name, "size": list(size),
                "seed": variant.seed, "parameters": parameter_count(variant.layers(*size)),
                "ms": {isa: times[variant.name] for isa, times in latency.items() if variant.name in times},
            }  # fmt: skip
            result = self.path(variant, ".json")
            if result.exists():
                row |= json.loads(result.read_text())
            rows.append(row)
        return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """A table a task, of what is trained: time relative to the reference's, PSNR, gain over it.

    Behind the gain stands the standard error of its mean over the pictures.
    """
    tables = []
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        first = mine[0]
        levels = list(first["ms"])
        cases = next((list(row["psnr"]) for row in mine if "psnr" in row), [])
        columns = ["choice", "variant", "C / M at 1/8", "parameters", *(f"time, {isa}" for isa in levels)]
        columns += ["steps", *(f"dB, sigma {case}" if case else "dB" for case in cases), "difference, dB"]
        lines = [f"**{task}**\n", f"| {' | '.join(columns)} |", "|---|---|" + "--:|" * (len(columns) - 2)]
        for row in mine:
            if "psnr" not in row:
                continue
            cells = [row["question"], row["name"], f"{row['size'][0]} / {row['size'][1]}",
                     f"{row['parameters']:,}"]  # fmt: skip
            for isa in levels:
                same = row["ms"].get(isa)
                shown = f"{first['ms'][isa]:.1f} ms" if row is first else ""
                cells.append(shown or (f"{same / first['ms'][isa]:.3f}" if same else ""))
            cells.append(f"{row['steps']:,}")
            cells += [f"{np.mean(row['psnr'][case]):.2f}" for case in cases]
            cells.append(difference(row, first) if row is not first and "psnr" in first else "")
            lines.append(f"| {' | '.join(cells)} |")
        if waiting := [row["name"] for row in mine if "psnr" not in row]:
            lines.append(f"\nNot trained yet: {'; '.join(waiting)}.")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def difference(row: dict[str, Any], first: dict[str, Any]) -> str:
    mine, other = (np.mean(list(r["psnr"].values()), axis=0) for r in (row, first))
    gain = mine - other
    return f"{gain.mean():+.2f} ± {gain.std(ddof=1) / len(gain) ** 0.5:.2f}"


# --- data and recipes ---------------------------------------------------------------------------


class Data:
    """Training and validation pictures with the teacher's latents."""

    def __init__(self, options: argparse.Namespace) -> None:
        everything = ImagePool([Path(source) for source in options.data])
        weights = load_weights(options.teacher)
        if weights.config.latent_channels != LATENT:
            sys.exit(f"{options.teacher} has {weights.config.latent_channels} latent channels, not {LATENT}")
        latents = teacher_latents(
            everything, weights, options.latents or options.out / "latents.npz",
            TrainConfig(options.out, steps=1),
        )  # fmt: skip
        self.pool, self.validation = everything.split(options.validation)
        self.latents = [latents[i] for i in self.pool.indices]
        self.validation_latents = [latents[i] for i in self.validation.indices]


@dataclass
class DecoderRecipe:
    """Teacher latents with a little noise -> picture; the decoder's part of `DistillRecipe`."""

    data: Data
    config: TrainConfig

    def __post_init__(self) -> None:
        self.make_batch = DistillRecipe(self.data.pool, self.data.latents, self.config).make_batch

    def loss(self, model: nn.Module, batch: Any, progress: float) -> tuple[Tensor, dict[str, float]]:
        x, z, noise, _ = (to_tensor(a) for a in batch)
        out = model((z + noise).contiguous(memory_format=torch.channels_last)).float()
        return (out - x).abs().mean(), {}

    def validate(self, model: nn.Module) -> dict[str, list[float]]:
        """PSNR of each whole picture from the teacher's latents."""
        scores = []
        for picture, z in zip(self.data.validation.images, self.data.validation_latents, strict=True):
            h, w = (n * FACTOR for n in z.shape[:2])
            out = model(to_tensor(z[None].astype(np.float32)))
            scores.append(psnr(out, to_tensor(picture[None, :h, :w])))
        return {"": scores}


class DenoiserRecipe:
    """White Gaussian noise of known sigma; `RestoreRecipe` without an estimator."""

    def __init__(self, data: Data, config: TrainConfig) -> None:
        noise = Mixture(
            gaussian=1, stored=0, camera=0, poisson_gaussian=0, salt_and_pepper=0, blur=0, jpeg=0,
            sigma=(0, 50 / 255), varying=0, clipped=0,
        )  # fmt: skip
        self.data = data
        self.recipe = RestoreRecipe(noise, data.pool, config, overstated=0)
        self.make_batch = self.recipe.make_batch

    def loss(self, model: nn.Module, batch: Any, progress: float) -> tuple[Tensor, dict[str, float]]:
        return self.recipe.loss(nn.ModuleDict({"denoiser": model}), batch, progress)

    def validate(self, model: nn.Module) -> dict[str, list[float]]:
        """PSNR of each whole picture at each of `SIGMAS`, neither clipped nor rounded before."""
        scores: dict[str, list[float]] = {str(sigma): [] for sigma in SIGMAS}
        unit = multiple(model.layers)  # type: ignore[arg-type]
        for i, picture in enumerate(self.data.validation.images):
            h, w = picture.shape[:2]
            clean = to_tensor(np.pad(picture, [(0, -h % unit), (0, -w % unit), (0, 0)], mode="edge")[None])
            noise = np.random.default_rng(i).standard_normal((1, *clean.shape[2:], 3), dtype=np.float32)
            for sigma in SIGMAS:
                noisy = clean + to_tensor(noise) * (sigma / 255)
                plane = torch.full_like(noisy[:, :1], sigma / 255)
                out = noisy + model(torch.cat([noisy, plane], 1))
                scores[str(sigma)].append(psnr(out[:, :, :h, :w], clean[:, :, :h, :w]))
        return scores


if __name__ == "__main__":
    main()
