"""Distillation of an autoencoder into the latent space of a TAESD-family teacher.

Latents of whole pictures are computed once with the teacher and kept; training crops pictures
and latents together at random positions, so that neither the teacher nor the student's targets
ever see a crop's border (a student trained on crops that were encoded one by one learns those
borders, and loses on whole pictures).
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine import Engine, create
from ..errors import ConfigError, ImageError, OutputError, WeightsError
from ..files import as_text, atomic_writer, reason, say
from ..metrics import sharpness
from ..models.modules import Network, frozen_module
from ..models.spec import ModelConfig
from ..weights import Weights, load_weights
from .data import VALIDATED, ImagePool, load_pool, middle
from .restore import build_modules, load_into, train_by
from .trainer import TrainConfig, first_process_first, mean_scores, mean_where, psnr, to_tensor

FITTED = "fitted"  # in the metadata, of the layers of a part that `is_fitted`
FACTOR = 8  # pixels per latent of the whole TAESD family


def check_teacher(weights: Weights, teacher: str, config: ModelConfig, *parts: str) -> None:
    """Raise WeightsError where a teacher lacks a part or has another number of latent channels."""
    if weights.config.latent_channels != config.latent_channels:
        raise WeightsError(
            f"{teacher} has {weights.config.latent_channels} latent channels, "
            f"{config.name} {config.latent_channels}; build the student with the teacher's number"
        )
    for part in parts:
        if part not in weights.config.parts:
            raise WeightsError(f"the teacher {weights.config.name} has no {part}")


def is_fitted(weights: Weights, part: str) -> bool:
    """Whether a part of a hybrid has learned in all layers, and so shares none with its teacher any more."""
    return weights.metadata.get(f"{part}_layers") == FITTED


def teacher_part(weights: Weights, part: str) -> Network:
    """The teacher's ``encoder`` or ``decoder``, which `check_teacher` found, as a frozen torch module."""
    return frozen_module(weights, part).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def identify(weights: Weights, pool: ImagePool) -> str:
    """What a cache is bound to: the teacher, and names and pixels of the pictures."""
    pixels = 0
    for picture in pool.images:
        pixels = crc32(picture.tobytes(), pixels)
    return f"{weights.hash} {pixels:08x} {as_text(' '.join(pool.names))}"


def teacher_engine(weights: Weights, train: TrainConfig) -> Engine:
    """What computes a teacher's answers: on the CPU the native engine, in half of torch's time."""
    if torch.device(train.device).type != "cpu":
        return create(weights, device=train.device)
    dtype = "float32" if train.precision == "float32" else "auto"
    return create(weights, dtype=dtype, threads=train.threads)


def teacher_latents(pool: ImagePool, weights: Weights, cache: Path, train: TrainConfig) -> list[np.ndarray]:
    """Latents of every picture, (h / 8, w / 8, C) fp16; computed once, kept in ``cache``.

    A picture is cut to a multiple of 8 first. The cache is bound to the teacher's hash and to
    the names and pixels of the pictures.
    """
    identity = identify(weights, pool)
    if cache.exists():
        try:
            with np.load(cache) as stored:
                if str(stored["identity"]) == identity:
                    return [stored[f"z{i}"] for i in range(len(pool.names))]
        except PermissionError as error:
            raise ConfigError(f"{cache}: cannot be read: {reason(error)}") from None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, TypeError, AttributeError):
            raise ConfigError(f"{cache}: holds no latents; delete it or give another file") from None
        say(f"{cache}: is of another teacher or other pictures, and is computed anew")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)  # before the work of an hour
    except OSError as error:
        raise OutputError(f"{cache.parent}: cannot become a folder: {reason(error)}") from None
    latents: list[np.ndarray] = []
    start = time.monotonic()
    engine = teacher_engine(weights, train)
    for i, picture in enumerate(pool.images):
        h, w = (n // FACTOR * FACTOR for n in picture.shape[:2])
        latents.append(engine.run("encoder", picture[None, :h, :w])[0].astype(np.float16))
        if i % 100 == 99:
            say(f"teacher latents {i + 1}/{len(pool.images)}, {time.monotonic() - start:.0f} s")
    with atomic_writer(cache) as file:
        np.savez(file, identity=identity, **{f"z{i}": z for i, z in enumerate(latents)})  # type: ignore[arg-type]
    return latents


def detail(x: Tensor) -> list[Tensor]:
    """How much fine detail there is about each place, in the two finest octaves.

    Where the detail lies exactly a small decoder cannot know, and an error of pixels makes it leave
    out what it cannot place: the picture turns soft. That there is detail, it can know. This is the
    root mean square of the second differences along rows and columns, whose response at 1, 1/2 and
    1/4 of the Nyquist frequency is 1, 0.5 and 0.15, in windows of 8 x 8.

    Parameters
    ----------
    x : (N, C, H, W), H and W at least 20.

    Returns
    -------
    (N, C, h, w) for the picture, and for the picture at half its size.
    """
    result = []
    for _ in range(2):
        along = (x[:, :, 1:-1, 1:-1] - (x[:, :, 1:-1, :-2] + x[:, :, 1:-1, 2:]) / 2) / 2
        down = (x[:, :, 1:-1, 1:-1] - (x[:, :, :-2, 1:-1] + x[:, :, 2:, 1:-1]) / 2) / 2
        result.append((F.avg_pool2d(along**2 + down**2, 8, 4) + 1e-6).sqrt())
        x = F.avg_pool2d(x, 2)
    return result


def lost_detail(out: Tensor, x: Tensor) -> Tensor:
    """The mean absolute error of the amount of fine `detail`, summed over its octaves."""
    pairs = zip(detail(out), detail(x), strict=True)
    return torch.stack([(a - b).abs().mean() for a, b in pairs]).sum()


def crispness(out: Tensor, x: Tensor) -> float:
    """`sharpness` of one picture (1, C, H, W) beside its original."""
    return sharpness(*(t[0].permute(1, 2, 0).cpu().numpy() for t in (out, x)))


def middles(
    pool: ImagePool, latents: Sequence[np.ndarray], model: nn.Module
) -> Iterator[tuple[Tensor, Tensor]]:
    """The middle of each picture and the latents of it, that are validated, where the model is."""
    device, most = next(model.parameters()).device, VALIDATED // FACTOR
    for picture, latent in zip(pool.images, latents, strict=True):
        x = to_tensor(picture[middle(latent.shape[:2], most, FACTOR)][None], device)
        yield x, to_tensor(latent[middle(latent.shape[:2], most)][None].astype(np.float32), device)


def place_crop(
    rng: np.random.Generator, size: tuple[int, ...], side: int, margin: int, corners: float = 0.0
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """A random square of a grid of ``size``, and what of the square does not depend on what is beyond it.

    A picture's own border is no crop's border: what lies there depends on it, and every picture has one,
    so squares lie at it more often than chance would have it, and with the share ``corners`` in a corner.

    Returns
    -------
    Rows and columns of the square in the grid; rows and columns in the square without ``margin`` where it
    ends and the picture does not.
    """
    square, inside = [], []
    corner = corners > 0 and rng.random() < corners  # no draw where none is asked for
    for length in size:
        end, beyond = length - side, side // 2
        at = int(np.clip(rng.integers(-beyond, end + beyond + 1), 0, end))
        if corner:
            at = end * int(2 * at > end)
        square.append(slice(at, at + side))
        inside.append(slice(margin if at > 0 else 0, side - (margin if at < end else 0)))
    return tuple(square), tuple(inside)


def finer(square: tuple[slice, ...], factor: int) -> tuple[slice, ...]:
    """The same rows and columns of a grid ``factor`` times as fine."""
    return tuple(slice(s.start * factor, s.stop * factor) for s in square)


def check_crops(pool: ImagePool, crop: int) -> None:
    """Raise ImageError where no picture is as large as a crop: before the teacher's work of an hour."""
    if all(min(picture.shape[:2]) < crop for picture in pool.images):
        raise ImageError(f"no picture is as large as a crop of {crop}: use larger ones or a smaller --crop")


@dataclass(frozen=True)
class DistillOptions:
    """What students learn, and what each error counts in their loss.

    Attributes
    ----------
    latent_weight : of the latent error; more brings the latents nearer to the teacher's, less favours the
        pair's own round trip.
    teacher_weight : of the error through the teacher's decoder, where it has one.
    detail_weight : of the error in the amount of fine detail; more is crisper, less has a higher PSNR.
    imitation_weight : of the distance to what the teacher's decoder, where it has one, makes of the same
        latents.
    taught : share of what the decoder learns from that are the teacher's latents; the others are the
        student's own. 1 for an encoder alone does without the student's decoder.
    """

    latent_weight: float = 0.3
    teacher_weight: float = 1.0
    detail_weight: float = 0.3
    imitation_weight: float = 0.0
    taught: float = 0.5


@dataclass
class DistillRecipe:
    """The loss of one step, for encoder and decoder together.

    Half of a batch (``taught``) decodes the teacher's latents with a little noise added, so that the
    decoder serves any program that speaks them; the other half decodes the student's own, so that
    the pair works together. The encoder also regresses the teacher's latents, and for a quarter of the
    batch the picture through the teacher's own decoder: which errors of a latent matter to a
    program that reads it, only that decoder knows. All these terms are mean absolute errors, and
    so are that of the amount of fine `detail` in what the student's decoder makes, and its distance to what
    the teacher's decoder makes of the same latents: of a picture latents leave much open, of the
    teacher's answer nothing. What would only teach a part that is not trained is not computed.
    """

    pool: ImagePool
    latents: list[np.ndarray]
    config: TrainConfig
    teacher: Network | None = None  # its decoder
    options: DistillOptions = field(default_factory=DistillOptions)
    latent_noise: float = 0.1
    margin: int = 1  # latents at a crop's border lack context: their targets are left out

    def make_batch(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Pictures, teacher's latents, noise to add to these, and where latents can be learned."""
        size = self.config.crop // FACTOR
        areas = np.array([z.shape[0] * z.shape[1] for z in self.latents], np.float64)
        areas[[min(z.shape[:2]) < size for z in self.latents]] = 0
        chosen = rng.choice(len(areas), self.config.batch, p=areas / areas.sum())
        pictures, latents = [], []
        known = np.zeros((len(chosen), size, size, 1), np.float32)
        for i, mask in zip(chosen, known, strict=True):
            square, inside = place_crop(rng, self.latents[i].shape[:2], size, self.margin)
            pictures.append(self.pool.images[i][finer(square, FACTOR)])
            latents.append(self.latents[i][square])
            mask[inside] = 1
        noise = rng.standard_normal((self.config.batch, size, size, latents[0].shape[2]), dtype=np.float32)
        scale = rng.random((self.config.batch, 1, 1, 1), dtype=np.float32) * self.latent_noise
        return np.stack(pictures), np.stack(latents).astype(np.float32), noise * scale, known

    def loss(self, model: nn.ModuleDict, batch: Any, progress: float) -> tuple[Tensor, dict[str, float]]:
        options = self.options
        x, z, noise, known = (to_tensor(a, self.config.device) for a in batch)
        trained = {part: any(p.requires_grad for p in model[part].parameters()) for part in model}
        count = min(max(round(options.taught * len(x)), 1), len(x) - 1) if trained["decoder"] else 0
        loss, logs = torch.zeros((), device=x.device), dict[str, float]()

        def add(name: str, weight: float, term: Tensor) -> None:
            nonlocal loss
            loss = loss + weight * term
            logs[name] = float(term.detach())

        first = 0 if trained["encoder"] else count  # the decoder alone needs only what it decodes
        seen = x[first:].contiguous(memory_format=torch.channels_last)
        with torch.set_grad_enabled(trained["encoder"]):
            own = model["encoder"](seen)
        if trained["decoder"] or options.taught < 1:
            mixed = torch.cat([(z + noise)[:count].to(own.dtype), own[count - first :]])
            out = model["decoder"](mixed.contiguous(memory_format=torch.channels_last)).float()
            error = (out - x).abs()
            add("pair", 2 * (1 - options.taught), error[count:].mean())
            if trained["decoder"]:
                add("decoder", 2 * options.taught, error[:count].mean())
                if self.teacher is not None and options.imitation_weight:
                    with torch.no_grad():
                        answer = self.teacher(mixed[:count]).float()
                    add("imitation", options.imitation_weight, (out[:count] - answer).abs().mean())
                if options.detail_weight:
                    add("detail", options.detail_weight, lost_detail(out, x))
        if trained["encoder"]:
            if self.teacher is not None and options.teacher_weight:
                few = max(1, len(x) // 4)
                begin = min(count, len(x) - few)
                some = slice(begin, begin + few)
                add(
                    "teacher",
                    options.teacher_weight,
                    (self.teacher(own[some]).float() - x[some]).abs().mean(),
                )
            error = (own - z).float().abs().mean(1, keepdim=True)
            add("latent", options.latent_weight, mean_where(error, known))
        return loss, logs


def _validate(
    pool: ImagePool, latents: list[np.ndarray], teacher: Network | None
) -> Callable[[nn.ModuleDict], dict[str, float]]:
    """Middles of pictures: own round trip, each decoder on the other's latents, latent error."""

    def scores(model: nn.ModuleDict) -> Iterator[dict[str, float]]:
        for x, z in middles(pool, latents, model):
            own = model["encoder"](x)
            out = model["decoder"](own).float().clamp(0, 1)
            yield {"psnr": psnr(out, x), "psnr_teacher_latents": psnr(model["decoder"](z), x),
                   "latent_mse": float(((own - z) ** 2).mean()), "sharpness": crispness(out, x)}  # fmt: skip
            if teacher is not None:
                yield {"psnr_teacher_decoder": psnr(teacher(own), x)}

    return lambda model: mean_scores(scores(model))


def train_distillation(
    config: ModelConfig,
    teacher: str,
    data: list[str],
    train: TrainConfig,
    init: str | None = None,
    resume: bool = True,
    options: DistillOptions | None = None,
    cache: Path | None = None,
    only: str | None = None,
) -> Path:
    """Train encoder and decoder students; returns the weights file (``out/<name>.safetensors``).

    Parameters
    ----------
    config : an autoencoder with the teacher's number of latent channels.
    teacher : weights file or folder of any TAESD-family model (`zenith_ae.weights`).
    data : folders and tar packs of pictures; 16 of them are kept for validation.
    train : schedule and output folder.
    init : weights file to start from.
    options : what the students learn, default `DistillOptions()`.
    cache : where the teacher's latents are kept, default ``out/latents.npz``.
    only : train this part alone ("encoder" or "decoder") and keep the other as it is.

    Raises
    ------
    WeightsError
        If the teacher has no encoder or another number of latent channels.
    ImageError
        If no picture is as large as a crop.
    """
    weights = load_weights(teacher)
    check_teacher(weights, teacher, config, "encoder")
    torch.manual_seed(train.seed)
    if train.batch < 2:
        raise ConfigError("distillation splits its batches in two halves: use a batch of 2 or more")
    everything = load_pool(data, train.drawn, FACTOR)
    pool, validation = everything.split(validation=16, seed=0)
    check_crops(pool, train.crop)
    with first_process_first(train.device):
        latents = teacher_latents(everything, weights, cache or train.out / "latents.npz", train)
    model = build_modules(config)
    if init:
        load_into(model, init)
    if only:
        model.requires_grad_(False)[only].requires_grad_(True)
    decoder = teacher_part(weights, "decoder").to(train.device) if "decoder" in weights.config.parts else None
    taught = [latents[i] for i in pool.indices]
    recipe = DistillRecipe(pool, taught, train, decoder, options or DistillOptions())
    evaluate = _validate(validation, [latents[i] for i in validation.indices], decoder)
    begun = load_weights(init) if init else None
    learned = (only,) if only else tuple(model)  # in all layers, those too that a hybrid has from its teacher
    fitted = [part for part in model if part in learned or (begun and is_fitted(begun, part))]
    return train_student(config, weights, model, recipe, train, data, evaluate, resume, fitted)


def train_student(
    config: ModelConfig,
    teacher: Weights,
    model: nn.ModuleDict,
    recipe: Any,
    train: TrainConfig,
    data: list[str],
    evaluate: Callable[[nn.ModuleDict], dict[str, float]],
    resume: bool,
    fitted: Collection[str] = (),
    settled: Callable[[str], bool] = lambda name: False,
) -> Path:
    """Train by a recipe's ``make_batch`` and ``loss``; returns the weights file, which names the teacher.

    ``data`` and ``settled`` are those of `Trainer`; of the parts ``fitted`` `is_fitted` will say so.
    """
    origin = {"teacher": teacher.config.name, "teacher_hash": teacher.space}
    origin |= {f"{part}_layers": FITTED for part in fitted}
    goal = {"teacher": f"{teacher.config.name} {teacher.space}"}
    return train_by(recipe, model, config, train, data, evaluate, resume, goal, origin, settled)
