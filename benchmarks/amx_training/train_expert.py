"""Trains an expert for white noise on a CPU with AMX, several times as fast as torch does.

``python benchmarks/amx_training/train_expert.py --init zenith-denoise-fast -o expert.safetensors`` goes on
with the expert ("white") of a denoiser and writes all of the denoiser with it, every few minutes and at the
end; its sorter has to learn again then. It learns about what ``zenith-ae train denoise --only white --loss
psnr`` teaches (docs/training.md; see `Lessons`), but the network's gradients come from unet_step.c, which the
C compiler (``$CC``, or gcc 11) builds at the start. That knows U-nets of Zenith blocks without tiles or
groups, as all shipped experts are. Crops have 128 pixels a side, in the last three tenths 256. Batches depend
on the clock, so that no two trainings are alike. ``--blocks-after 8 15`` makes the network larger: it begins
with the same results, and the new blocks learn faster than the others.

``--compare`` trains nothing: it prints how far the gradients are from torch's in float32, beside torch's in
bf16, and the times of a step, measured in turns.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import queue
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import SHARED, script_parser

from zenith_ae.batches import LUMA, orient
from zenith_ae.engine.limits import default_threads
from zenith_ae.measure import in_turn
from zenith_ae.metrics import psnr
from zenith_ae.models import spec, zoo
from zenith_ae.models.modules import Network
from zenith_ae.pipelines import Denoiser, load
from zenith_ae.training.data import SMALLEST_SCALE, ImagePool, load_pool, middle
from zenith_ae.training.degradations import MIXTURES, UNEVEN, as_file, make_plain, saturated, stretched
from zenith_ae.training.muon import SCALE, Muon
from zenith_ae.training.restore import log_error, upsample_sigma
from zenith_ae.training.sorting import LEAST_ERROR
from zenith_ae.weights import load_weights, save_weights

SIDE, LAST_SIDE = 128, 256  # of crops: at 1/8 their rows are whole tiles of 16 pixels
NEW_PACE = 2.0  # learning rate of new blocks, in that of the others
LAST = 0.3  # share of the training that has the larger crops
SIGMAS = 15, 25, 50
MOST_OPS, MOST_CHANNELS = 64, 1024  # of unet_step.c
FLAGS = "-O3", "-march=sapphirerapids", "-fopenmp", "-shared", "-fPIC"
BLOCK_PARAMETERS = (
    "compress.weight",
    "compress.bias",
    "expand.weight",
    "expand.bias",
    "eyes.weight",
    "eyes.bias",
)


def compile_library(source: str | Path, path: Path) -> None:
    command = [*shlex.split(os.environ.get("CC", "gcc")), *FLAGS]
    subprocess.run([*command, "-x", "c", str(source), "-o", str(path)], check=True)


def library() -> ctypes.CDLL:
    """unet_step.c, compiled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "unet_step.so")
        compile_library(Path(__file__).with_name("unet_step.c"), path)
        lib = ctypes.CDLL(str(path))
    lib.net_new.restype = ctypes.c_void_p
    return lib


def unshuffled(channels: int) -> np.ndarray:
    """Torch's index of each of the channels of an unshuffled picture, in unet_step.c's order."""
    return np.arange(4 * channels).reshape(channels, 4).T.ravel()


class Slot(NamedTuple):
    """Where a parameter lies among all, and where its rows and columns have their values in torch's order."""

    name: str
    shape: tuple[int, ...]
    first: int
    rows: np.ndarray
    columns: np.ndarray | None


def plan(layers: spec.Layers) -> tuple[list[tuple[int, int, int, int]], list[Slot]]:
    """The rows of `net_new`, and the parameters.

    Raises
    ------
    ValueError
        If it is another network than unet_step.c knows, or has too many layers.
    """
    widths = sorted({layer.channels for layer in layers if isinstance(layer, spec.ZenithBlock)})
    known = len(widths) == 3 and not any(width % 16 for width in widths)
    if known:
        a, b, c = widths
        stages = tuple(layer for layer, _ in groupby(layers))
        known = max(4 * b, c) <= MOST_CHANNELS and stages == zoo.denoising_unet((a, b, c), (1, 1, 1))
    if not known:
        raise ValueError("unet_step.c knows U-nets as of zenith-denoise alone, of widths that 16 divides")
    linear, block, keep, unshuffle, shuffle_add = range(5)
    rows: list[tuple[int, int, int, int]] = []
    slots: list[Slot] = []

    def first() -> int:
        return slots[-1].first + math.prod(slots[-1].shape) if slots else 0

    columns = None
    for step in spec.trace(layers, 4):
        layer, i, inputs, outputs = step.layer, step.index, step.cin, step.cout
        shapes, whole = layer.params(), np.arange(outputs)
        match layer:
            case spec.PixelUnshuffle():
                columns = unshuffled(inputs)
                if i:  # unet_step.c begins with an unshuffled picture
                    rows.append((unshuffle, inputs, outputs, 0))
                continue
            case spec.Linear():
                order = unshuffled(outputs // 4) if isinstance(layers[i + 1], spec.PixelShuffle) else whole
                rows.append((linear, inputs, outputs, first()))
                slots.append(Slot(f"{i}.weight", shapes["weight"], first(), order, columns))
                slots.append(Slot(f"{i}.bias", shapes["bias"], first(), order, None))
            case spec.ZenithBlock():
                rows.append((block, inputs, outputs, first()))
                for name in BLOCK_PARAMETERS:
                    slots.append(Slot(f"{i}.{name}", shapes[name], first(), whole, None))
            case spec.Keep():
                rows.append((keep, 0, 0, 0))
            case spec.PixelShuffle() if i + 1 < len(layers):  # with the Add behind it
                rows.append((shuffle_add, 0, outputs, 0))
        columns = None
    if len(rows) > MOST_OPS:
        raise ValueError(f"unet_step.c takes at most {MOST_OPS} layers, not {len(rows)}")
    return rows, slots


def grown(
    layers: spec.Layers, tensors: Mapping[str, np.ndarray], after: list[int]
) -> tuple[spec.Layers, dict[str, np.ndarray], list[int]]:
    """A network with one more block after each of some blocks, which changes nothing as long as it is new.

    Also its tensors, and the places of the new blocks. One place twice in ``after`` gets two new blocks.
    """
    origins = [(i, new) for i in range(len(layers)) for new in (False, *[True] * after.count(i))]
    found = tuple(layers[i] for i, _ in origins)
    values = {name: value.numpy() for name, value in Network(found, 4).state_dict().items()}
    for place, (i, new) in enumerate(origins):
        if new:
            values[f"{place}.expand.weight"][:] = 0
        else:
            values |= {f"{place}.{name}": tensors[f"{i}.{name}"] for name in layers[i].params()}
    return found, values, [place for place, (_, new) in enumerate(origins) if new]


def values_in(flat: Tensor, slots: list[Slot], tensors: Mapping[str, np.ndarray]) -> None:
    """Put those of a `Network` into their places."""
    for slot in slots:
        value = tensors[slot.name].astype(np.float32)[slot.rows]
        _part(flat, slot).copy_(torch.from_numpy(value if slot.columns is None else value[:, slot.columns]))


def values_of(flat: Tensor, slots: list[Slot]) -> dict[str, np.ndarray]:
    """Those of a `Network` from their places."""
    found = {}
    for slot in slots:
        value = _part(flat, slot).numpy()
        found[slot.name] = np.empty_like(value)
        found[slot.name][slot.rows if slot.columns is None else np.ix_(slot.rows, slot.columns)] = value
    return found


class Expert:
    """A network's parameters and gradients, in unet_step.c's order.

    Parameters
    ----------
    layers : of a U-net as the module says.
    threads : that share the crops of a batch.

    Attributes
    ----------
    flat, gradients : float32 tensors of all of them, one after the other.
    parameters : by name, views of ``flat`` whose ``grad`` are views of ``gradients``.

    Raises
    ------
    ValueError
        If unet_step.c does not know a layer.
    OSError
        If this CPU, or its system, has no AMX.
    """

    def __init__(self, layers: spec.Layers, threads: int) -> None:
        rows, self.slots = plan(layers)
        size = self.slots[-1].first + math.prod(self.slots[-1].shape)
        self.flat, self.gradients = torch.zeros(size), torch.zeros(size)
        self.parameters: dict[str, nn.Parameter] = {}
        for slot in self.slots:
            p = self.parameters[slot.name] = nn.Parameter(_part(self.flat, slot), requires_grad=False)
            p.grad = _part(self.gradients, slot)
        self.lib = library()
        table = np.array(rows, np.int64)
        self.nets: dict[int, ctypes.c_void_p] = {}
        for side in (SIDE, LAST_SIDE):
            net = self.lib.net_new(_pointer(table), len(rows), ctypes.c_long(size), side, threads)
            if not net:
                raise OSError("this CPU, or its system, has no AMX")
            self.nets[side] = ctypes.c_void_p(net)
            weakref.finalize(self, self.lib.net_free, self.nets[side])

    def load(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Take values from those of a `Network`."""
        values_in(self.flat, self.slots, tensors)

    def tensors(self, flat: Tensor) -> dict[str, np.ndarray]:
        """``flat``, ``gradients`` or others like them as those of a `Network`."""
        return values_of(flat, self.slots)

    def step(
        self, degraded: np.ndarray, level: np.ndarray, target: np.ndarray, *, learning: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean squared error of each crop, and what the network makes of them.

        ``degraded`` and ``target`` are float32 (N, S, S, 3), ``level`` is (N, S, S), the noise's standard
        deviation; S is `SIDE` or `LAST_SIDE`. With ``learning``, ``gradients`` become those of `log_error`.
        """
        for x in (degraded, level, target):
            assert x.dtype == np.float32 and x.flags.c_contiguous
        errors, restored = np.empty(len(degraded)), np.empty_like(degraded)
        self.lib.net_step(
            self.nets[degraded.shape[1]], ctypes.c_void_p(self.flat.data_ptr()),
            ctypes.c_void_p(self.gradients.data_ptr() if learning else None),
            _pointer(degraded), _pointer(level), _pointer(target), len(degraded),
            ctypes.c_double(LEAST_ERROR), _pointer(errors), _pointer(restored),
        )  # fmt: skip
        return errors, restored


def _part(flat: Tensor, slot: Slot) -> Tensor:
    return flat[slot.first : slot.first + math.prod(slot.shape)].view(slot.shape)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


class Lessons:
    """Crops with noise that is independent from pixel to pixel: `MIXTURES` "white", made faster.

    What differs from ``train denoise``: more reduced crops, of fixed copies; some vivid ones; fewer with
    plain parts or told too high a level; one level in twenty a little wrong; and, of noise as files have it,
    some crops of harder contrast, of which much is black or white and whose level seems too low.

    Parameters
    ----------
    pool : photographs, no side shorter than `LAST_SIDE`.
    reduced : share of the crops from copies reduced by up to 1 / `SMALLEST_SCALE`, three of each photograph.
    vivid : share of the crops with stronger colours and other tone curves.
    framed : share with plain parts, `make_plain`.
    stretched : share with up to four times the contrast, clipped.
    estimated : share of the others whose level is estimated, as that of most of these.
    estimator : a denoiser that estimates them; without one, none are.
    """

    COPIES = 3

    def __init__(
        self,
        pool: ImagePool,
        reduced: float = 0.45,
        vivid: float = 0.05,
        framed: float = 0.08,
        stretched: float = 0.08,
        estimated: float = 0.15,
        estimator: Denoiser | None = None,
    ) -> None:
        self.pictures = pool.images
        rng = np.random.default_rng(0)
        self.copies = [[_reduced(p, rng) for p in self.pictures] for _ in range(self.COPIES)]
        areas = np.cumsum([p.shape[0] * p.shape[1] for p in self.pictures])
        self.bounds = areas / areas[-1]
        self.reduced, self.vivid, self.framed, self.stretched = reduced, vivid, framed, stretched
        self.estimated, self.estimator = estimated, estimator
        self.mixture = MIXTURES["white"]
        self.rare = replace(self.mixture, gaussian=0.0)
        assert self.mixture.whole == 1 and not (
            self.mixture.weak or self.mixture.speckled or self.mixture.zoomed
        )

    def batch(
        self, rng: np.random.Generator, count: int, side: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `Expert.step` takes."""
        degraded = np.empty((count, side, side, 3), np.float32)
        level, target = np.empty(degraded.shape[:3], np.float32), np.empty_like(degraded)
        estimated = []
        for i in range(count):
            crop = self._crop(rng, side)
            hard = rng.random() < self.stretched
            if hard:
                crop = _stretched(crop, rng)
            if self.estimator and rng.random() < (0.7 if hard else self.estimated):
                estimated.append(i)
            if rng.random() < self.mixture.gaussian:
                in_file = rng.random() < self.mixture.clipped or i in estimated
                degraded[i], target[i], level[i] = self._gaussian(rng, crop, in_file)
            else:
                (degraded[i],), (target[i],), (level[i],), _ = self.rare.sample(
                    crop[None], rng, np.zeros(1, bool)
                )
            if rng.random() < 0.03:  # told too much, which must do no harm
                level[i] *= np.float32(rng.uniform(1, 2.5))
            if rng.random() < self.framed:
                make_plain(degraded[i], target[i], rng)
        if self.estimator and estimated:
            found = torch.from_numpy(self.estimator.engine.run("estimator", degraded[estimated]))
            level[estimated] = upsample_sigma(found.permute(0, 3, 1, 2), (side, side))[:, 0].numpy()
        return degraded, level, target

    def _crop(self, rng: np.random.Generator, side: int) -> np.ndarray:
        index = int(np.searchsorted(self.bounds, rng.random()))
        copies = self.copies[rng.integers(self.COPIES)] if rng.random() < self.reduced else self.pictures
        top, left = (int(rng.integers(n - side + 1)) for n in copies[index].shape[:2])
        crop = orient(copies[index][top : top + side, left : left + side], int(rng.integers(8)))
        return _vivid(crop, rng) if rng.random() < self.vivid else crop

    def _gaussian(
        self, rng: np.random.Generator, crop: np.ndarray, in_file: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | np.float32]:
        mixture, side = self.mixture, len(crop)
        target = crop * np.float32(1 / 255)
        grey = rng.random() < mixture.grey
        if grey:
            target[:] = (target @ LUMA)[..., None]
        sigma: np.ndarray | np.float32 = np.float32(rng.uniform(*mixture.sigma))
        if rng.random() < mixture.varying:
            knots = Image.fromarray(rng.uniform(*mixture.sigma, (4, 4)).astype(np.float32))
            sigma = np.asarray(knots.resize((side, side), Image.Resampling.BILINEAR))
        uneven = not grey and rng.random() < mixture.uneven
        share = (
            np.exp(rng.uniform(-UNEVEN, UNEVEN, 3)).astype(np.float32) if uneven else np.ones(3, np.float32)
        )
        noise = rng.standard_normal((side, side, 1 if grey else 3), dtype=np.float32)
        degraded = target + noise * (sigma[..., None] if isinstance(sigma, np.ndarray) else sigma) * share
        if in_file:
            degraded = as_file(degraded)
        told = sigma * np.sqrt(np.square(share).mean())
        if rng.random() < 0.05:  # what people tell is not quite right
            told = told * np.float32(np.exp(rng.normal(0, 0.06)))
        return degraded, target, told


def _reduced(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    width, height = picture.shape[1::-1]
    scale = max(rng.uniform(SMALLEST_SCALE, 1), LAST_SIDE / min(width, height))
    sides = max(LAST_SIDE, round(width * scale)), max(LAST_SIDE, round(height * scale))
    return np.asarray(Image.fromarray(picture).resize(sides, Image.Resampling.LANCZOS))


def _stretched(crop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    gain = np.exp(rng.uniform(0, np.log(4)))
    middle = rng.choice([0.0, crop.mean(), rng.uniform(0, 255)])  # which stays; 0 makes all of it brighter
    return np.round(stretched(crop, gain, middle)).astype(np.uint8)


def _vivid(crop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    x = crop * np.float32(1 / 255)
    if rng.random() < 0.3:
        x = x ** np.exp(rng.uniform(-0.5, 0.5, 3)).astype(np.float32)
    x = saturated(x, np.exp(rng.uniform(0, np.log(3))))
    return np.round(x.clip(0, 1) * 255).astype(np.uint8)


def psnr_told(expert: Expert, flat: Tensor, pictures: list[np.ndarray]) -> dict[int, float]:
    """Mean PSNR of the middles of pictures by sigma (of 255), which is told."""
    kept = expert.flat.clone()
    expert.flat.copy_(flat)
    scores = {}
    for sigma in SIGMAS:
        clean = np.stack(pictures)
        noise = [
            np.random.default_rng((i, sigma)).standard_normal(p.shape, np.float32)
            for i, p in enumerate(clean)
        ]
        degraded = clean + np.float32(sigma / 255) * np.stack(noise)
        level = np.full(clean.shape[:3], sigma / 255, np.float32)
        restored = expert.step(degraded, level, clean, learning=False)[1]
        scores[sigma] = float(np.mean(list(map(psnr, restored.clip(0, 1), clean))))
    expert.flat.copy_(kept)
    return scores


def middles(pool: ImagePool) -> list[np.ndarray]:
    """Of `LAST_SIDE` pixels a side, in [0, 1]."""
    return [picture[middle(picture.shape[:2], LAST_SIDE)].astype(np.float32) / 255 for picture in pool.images]


def train(
    expert: Expert,
    new: list[int],
    lessons: Lessons,
    args: argparse.Namespace,
    report: Callable[[Tensor, str], None],
) -> None:
    """Train for some minutes; ``report`` gets the averaged parameters every four minutes and at the end.

    Layers at the places ``new`` learn at `NEW_PACE` times the rate of the others.
    """
    parameters = expert.parameters
    fresh = [p for name, p in parameters.items() if int(name.partition(".")[0]) in new]
    known = [p for name, p in parameters.items() if int(name.partition(".")[0]) not in new]
    muon = Muon([p for p in known if p.ndim == 2], torch.bfloat16)
    adam = torch.optim.Adam([p for p in known if p.ndim != 2], args.lr, betas=(0.9, 0.98), fused=True)
    if fresh:
        muon.add_param_group({"params": [p for p in fresh if p.ndim == 2], "scale": SCALE * NEW_PACE})
        adam.add_param_group({"params": [p for p in fresh if p.ndim != 2], "scale": NEW_PACE})
    average = expert.flat.clone()
    start = last = time.monotonic()
    progress = 0.0
    ready: queue.Queue[tuple[np.ndarray, np.ndarray, np.ndarray] | BaseException] = queue.Queue(3)

    def make_batches() -> None:
        rng = np.random.default_rng(args.seed)
        try:
            while progress < 1:
                count, side = (
                    ((args.batch + 1) // 2, LAST_SIDE) if progress >= 1 - LAST else (args.batch, SIDE)
                )
                ready.put(lessons.batch(rng, count, side))
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=make_batches, daemon=True).start()
    step, pixels = 0, 0
    while (progress := (time.monotonic() - start) / (60 * args.minutes)) < 1:
        batch = ready.get()
        if isinstance(batch, BaseException):
            raise batch
        expert.step(*batch)
        nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        step += 1
        lr = args.lr * min(step / 200, 1) * max(0.5 * (1 + math.cos(math.pi * progress)), 1e-3)
        for optimizer in (muon, adam):
            for group in optimizer.param_groups:
                group["lr"] = lr * group.get("scale", 1)
            optimizer.step()
        average.lerp_(expert.flat, 1 - min(args.ema, (1 + step) / (10 + step)))
        pixels += batch[1].size
        if time.monotonic() - last > 240:
            last = time.monotonic()
            report(average, f"{step} steps, {pixels / 1e9:.2f} gigapixels")
    report(average, f"{step} steps, {pixels / 1e9:.2f} gigapixels")


def compare(expert: Expert, layers: spec.Layers, lessons: Lessons, args: argparse.Namespace) -> None:
    """Gradients and times beside torch's, printed."""
    reference = Network(layers, 4).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    values = expert.tensors(expert.flat)
    reference.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    degraded, level, target = lessons.batch(np.random.default_rng(args.seed), args.batch, SIDE)
    given, wanted = (torch.from_numpy(x).permute(0, 3, 1, 2) for x in (degraded, target))
    whole = torch.cat([given, torch.from_numpy(level)[:, None]], 1).contiguous(
        memory_format=torch.channels_last
    )

    def by_torch(bf16: bool) -> dict[str, np.ndarray]:
        reference.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            residual = reference(whole)
        log_error(given + residual.float() - wanted).backward()
        return {name: p.grad.numpy().copy() for name, p in reference.named_parameters() if p.grad is not None}

    def by_us() -> dict[str, np.ndarray]:
        expert.step(degraded, level, target)
        return expert.tensors(expert.gradients)

    exact, bf16, ours = by_torch(False), by_torch(True), by_us()
    print(f"{'relative error of the gradient':40s} torch, bf16  unet_step.c")
    for name, value in exact.items():
        size = np.linalg.norm(value) or 1.0
        errors = [np.linalg.norm(found[name] - value) / size for found in (bf16, ours)]
        print(f"{name:40s} {errors[0]:11.4f} {errors[1]:12.4f}")
    ways = {
        "torch, float32": lambda: by_torch(False),
        "torch, bf16": lambda: by_torch(True),
        "unet_step.c": by_us,
    }
    print(f"a step of {args.batch} crops of {SIDE}x{SIDE}, {args.threads} threads, median of 9:")
    for way, timing in in_turn(ways, rounds=9).items():
        print(f"{way:16s} {1e3 * timing.median:7.1f} ms")


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--init", default="zenith-denoise-fast", help="denoiser whose expert is trained")
    parser.add_argument(
        "--blocks-after", type=int, nargs="+", default=[], metavar="LAYER",
        help="add a block after each of these blocks, counted from 0 among all layers; one may come twice",
    )  # fmt: skip
    parser.add_argument("--data", action="append", help="photographs [default: those of the shipped weights]")
    parser.add_argument("-o", "--out", type=Path, default=Path("expert.safetensors"))
    parser.add_argument("--minutes", type=float, default=35)
    parser.add_argument("--lr", type=float, default=1.5e-4)
    parser.add_argument("--batch", type=positive, default=32)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=positive, default=default_threads())
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--compare", action="store_true", help="compare gradients and times with torch's instead"
    )
    args = parser.parse_args()

    if args.out.exists() and not (args.overwrite or args.compare):
        parser.error(f"{args.out} exists; choose another -o, or --overwrite")
    weights = load_weights(args.init)
    if "white" not in weights.config.parts:
        parser.error(f"{args.init} has no expert")
    layers = weights.config.parts["white"]
    for i in args.blocks_after:
        if not 0 <= i < len(layers) or not isinstance(layers[i], spec.ZenithBlock):
            blocks = [i for i, layer in enumerate(layers) if isinstance(layer, spec.ZenithBlock)]
            parser.error(f"layer {i} is no block; these are: {', '.join(map(str, blocks))}")
    layers, values, new = grown(layers, weights.part("white"), args.blocks_after)
    config = replace(weights.config, parts={**weights.config.parts, "white": layers})
    expert = Expert(layers, args.threads)
    expert.load(values)
    bsds, photographs = str(SHARED / "data/train_bsds400.tar"), str(SHARED / "data/train_photos1000.tar")
    pool, validation = load_pool(args.data or [bsds, bsds, photographs], smallest=LAST_SIDE).split(16, seed=0)
    lessons = Lessons(pool, estimator=load(weights, threads=1))
    if args.compare:
        torch.set_num_threads(args.threads)
        return compare(expert, layers, lessons, args)
    torch.set_num_threads(1)  # the optimizers need no more, and the rest of the cores has batches to make
    pictures = middles(validation)

    def report(flat: Tensor, line: str) -> None:
        scores = psnr_told(expert, flat, pictures)
        print(line + "".join(f"; sigma {s}: {score:.3f} dB" for s, score in scores.items()), flush=True)

    def save(flat: Tensor, line: str) -> None:
        found = {f"white.{name}": value for name, value in expert.tensors(flat).items()}
        others = {name: value for name, value in weights.tensors.items() if not name.startswith("white.")}
        save_weights(args.out, config, others | found, weights.metadata)
        report(flat, line)

    report(expert.flat, "begins")
    train(expert, new, lessons, args, save)


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    main()
