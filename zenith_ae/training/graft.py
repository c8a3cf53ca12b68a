"""Training of the layers that a hybrid has of its own, next to those that it shares with its teacher.

The encoder of a hybrid ends in its teacher's layers, and its decoder begins with them
(`zenith_ae.models.zoo.zenith_taesd`). These are kept, and what the teacher's other layers give them, or
are given by them, is computed once for whole pictures and kept on disk. A step then costs only the new
layers (and for a decoder's perceptual error the encoder's), and has as many targets as there are numbers
at the seam.

Shared layers were made to be followed by the teacher's others. Once the new ones stand in for these, all
layers of a decoder can be fitted to each other (``all_layers``): the seam is then where the latents come in.
And those of the encoder with them (``latent_weight``): it finds what this decoder makes the picture of, as
near to the teacher's latents as the weight says.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ConfigError, OutputError
from ..files import reason, say
from ..models.modules import Network
from ..models.spec import ModelConfig, trace
from ..weights import Weights, load_weights
from .critic import LIMIT, Critic
from .data import ImagePool, load_pool
from .distill import (
    FACTOR,
    check_crops,
    check_teacher,
    crispness,
    finer,
    identify,
    is_fitted,
    lost_detail,
    middles,
    place_crop,
    teacher_engine,
    teacher_latents,
    teacher_part,
    train_student,
)
from .restore import build_modules, load_into
from .seam import (
    LATTICE_WEIGHT,
    PerceptualError,
    Seam,
    find_seam,
    lattice_error,
    seam_to_look,
    spread_of,
    tone_error,
)
from .trainer import TrainConfig, first_process_first, mean_scores, mean_where, psnr, to_tensor

LEAST_INSIDE = 24  # pixels of a crop within its margins
BORDER = 2  # pixels at a picture's border, whose errors count more
BORDER_WEIGHT = 8.0  # so many times, in a corner squared: few crops show them, and dots there are seen
CORNERS = 0.25  # share of crops at a corner of their picture; by chance fewer than a tenth would be there
WHOLE_WEIGHT = 4.0  # pictures of a crop's size, which show all borders at once, come so many times as often
LARGEST = 2  # times a batch's pixels, beyond which a whole picture is not used
NOISE = 0.1  # largest spread of the noise on latents, which half of the decoder's pictures have


class SeamFeatures:
    """Features at the seam of whole pictures, (h, w, C) fp16 each, mapped from files in a folder.

    ``answers`` are what the teacher's decoder makes of the same latents, (H, W, 3) uint8 each, for a
    decoder.
    """

    def __init__(self, folder: Path) -> None:
        try:
            index = json.loads((folder / "index.json").read_text())
            self.sizes: list[tuple[int, int]] = [(h, w) for h, w in index["sizes"]]
            self.stride: int = index["stride"]
            self._starts = np.cumsum([0] + [h * w for h, w in self.sizes])
            self._features = np.load(folder / "features.npy", mmap_mode="r")
            answers = folder / "answers.npy"
            self._answers = np.load(answers, mmap_mode="r") if answers.exists() else None
            pixels = self._starts[-1] * self.stride**2
            whole = len(self._features) == self._starts[-1]
            whole = whole and (self._answers is None or len(self._answers) == pixels)
        except (FileNotFoundError, ValueError, TypeError, KeyError, EOFError):
            whole = False
        except OSError as error:
            raise ConfigError(f"{folder}: its features cannot be read: {reason(error)}") from None
        if not whole:
            raise ConfigError(f"{folder}: holds no features; delete it, and they are made again") from None

    def __getitem__(self, i: int) -> np.ndarray:
        h, w = self.sizes[i]
        return self._features[self._starts[i] : self._starts[i + 1]].reshape(h, w, -1)

    def answer(self, i: int) -> np.ndarray:
        """What the teacher's decoder makes of picture ``i``'s latents."""
        assert self._answers is not None
        h, w = self.sizes[i]
        area = self.stride**2
        pixels = self._answers[self._starts[i] * area : self._starts[i + 1] * area]
        return pixels.reshape(h * self.stride, w * self.stride, 3)

    @classmethod
    def of(
        cls,
        pool: ImagePool,
        seam: Seam,
        teacher: Weights,
        train: TrainConfig,
        parent: Path,
        identity: str,
        latents: Callable[[], Sequence[np.ndarray]] | None = None,
    ) -> SeamFeatures:
        """The features of all pictures, computed with the ``teacher`` where they are not there yet.

        They lie in a folder in ``parent`` that is named after ``identity``, so that several trainings can
        share them. Nothing there is ever deleted or changed. For a decoder ``latents`` returns (h, w, C)
        each, what it is given.
        """
        folder = parent / f"{seam.part}-{crc32(identity.encode()):08x}"
        if not (folder / "index.json").exists():
            parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=parent, prefix=f"{folder.name}.") as unfinished:
                whole = Path(unfinished) / "whole"
                whole.mkdir()
                if latents is None:
                    pairs = _what_an_encoder_learns(pool, seam, teacher, train)
                else:
                    pairs = _what_a_decoder_learns(latents(), seam, teacher, train)
                _keep(pool, seam, pairs, whole)
                try:
                    os.replace(whole, folder)
                except OSError:  # another process was faster
                    if not (folder / "index.json").exists():
                        raise
        return cls(folder)


Pair = tuple[np.ndarray, np.ndarray | None]  # features (h, w, C) and answer (H, W, 3)


def _what_an_encoder_learns(
    pool: ImagePool, seam: Seam, teacher: Weights, train: TrainConfig
) -> Iterator[Pair]:
    outer = teacher.config.parts["encoder"][seam.own]
    *_, last = trace(outer, teacher.config.in_channels("encoder"))
    config = replace(teacher.config, parts={"encoder": outer}, latent_channels=last.cout)
    engine = teacher_engine(Weights(config, {name: teacher.tensors[name] for name in config.params()}), train)
    for picture in pool.images:
        h, w = (n // FACTOR * FACTOR for n in picture.shape[:2])
        yield engine.run("encoder", picture[None, :h, :w])[0], None


def _what_a_decoder_learns(
    latents: Sequence[np.ndarray], seam: Seam, teacher: Weights, train: TrainConfig
) -> Iterator[Pair]:
    engine = teacher_engine(teacher, train)
    network = teacher_part(teacher, "decoder").to(train.device)
    for z in latents:
        given = z[None].astype(np.float32)
        with torch.no_grad():
            found = seam.inner(network, to_tensor(given, train.device))
        yield found[0].permute(1, 2, 0).cpu().numpy(), engine.run("decoder", given, out="uint8")[0]


def _keep(pool: ImagePool, seam: Seam, pairs: Iterable[Pair], folder: Path) -> None:
    """Write a folder of `SeamFeatures`: from front to back, since a map of a full disk ends the process."""
    sizes = [tuple(n // FACTOR * FACTOR // seam.stride for n in p.shape[:2]) for p in pool.images]
    area = sum(h * w for h, w in sizes)
    start = time.monotonic()
    try:
        with contextlib.ExitStack() as open_files:
            files: dict[str, BinaryIO] = {}
            for i, ((found, answer), (h, w)) in enumerate(zip(pairs, sizes, strict=True)):
                kept = {"features": found.astype(np.float16).reshape(h * w, -1)}
                if answer is not None:
                    kept["answers"] = answer.reshape(h * w * seam.stride**2, 3)
                for name, rows in kept.items():
                    if name not in files:
                        files[name] = open_files.enter_context((folder / f"{name}.npy").open("wb"))
                        shape = (area * (len(rows) // (h * w)), rows.shape[1])
                        header = {"descr": rows.dtype.str, "fortran_order": False, "shape": shape}
                        np.lib.format.write_array_header_1_0(files[name], header)
                    files[name].write(rows.tobytes())
                if i % 100 == 99:
                    say(f"features {i + 1}/{len(pool.images)}, {time.monotonic() - start:.0f} s")
        (folder / "index.json").write_text(json.dumps({"stride": seam.stride, "sizes": sizes}))
    except OSError as error:
        raise OutputError(
            f"{folder.parent.parent}: cannot write the teacher's features: {reason(error)}; give --features "
            "a folder with more room"
        ) from None


@dataclass(frozen=True)
class GraftOptions:
    """What new layers learn, and what each error counts in their loss.

    Attributes
    ----------
    imitation : share of the teacher's answer, beside the picture's own, in what a decoder learns.
    detail_weight : weight of the error in the amount of fine detail.
    perceptual_weight, cycle_weight : of a decoder's `PerceptualError`, in features and in latents.
    eye : weights file of a hybrid of the same teacher, or the teacher's, whose encoder looks for that error;
        default the one that the decoder begins with.
    critic_weight : what a decoder's deceiving of a `Critic` counts in its loss; 0.001 to 0.003 makes
        it nearly as sharp as the teacher, in a last phase.
    critic_limit : of the critic's pull on a picture, relative to that of the mean absolute error.
    tone_weight : of a decoder's `tone_error`.
    taught : share of the pictures whose latents are the teacher's, in what a decoder learns from; the
        others' are of its encoder.
    all_layers : train a decoder's shared layers too, from what they are, on whole pictures.
    latent_weight : with ``all_layers``, train the encoder beside the decoder, all layers of it too; what its
        distance to the teacher's latents counts (half of which have a little noise, the decoder's lesson).
    """

    imitation: float = 0.5
    detail_weight: float = 0.05
    perceptual_weight: float = 0.05
    cycle_weight: float = 0.0
    eye: str | None = None
    critic_weight: float = 0.0
    critic_limit: float = LIMIT
    tone_weight: float = 1.0
    taught: float = 1.0
    all_layers: bool = False
    latent_weight: float = 0.0

    def check(self, part: str) -> None:
        """Refuse what does not go together, or with a part; ConfigError."""
        judges = {"critic-weight": self.critic_weight, "cycle-weight": self.cycle_weight, "eye": self.eye}
        for option, given in judges.items():
            if part == "encoder" and given:
                raise ConfigError(
                    f"--{option} judges the pictures that a decoder makes: it is for --part decoder"
                )
        if self.all_layers and part == "encoder":
            raise ConfigError("--all-layers is for --part decoder: an encoder's latents are those of others")
        if self.latent_weight and not self.all_layers:
            raise ConfigError("--latent-weight is for --all-layers, with which the encoder can learn too")
        if self.latent_weight and self.taught < 1:
            raise ConfigError(
                "--taught is for an encoder that stays as it is; with --latent-weight a decoder learns from "
                "the latents of either in any case"
            )
        if part == "decoder" and self.eye is not None and not self.judged_by_eye:
            raise ConfigError("--eye has nothing to judge: --perceptual-weight and --cycle-weight are both 0")

    @property
    def judged_by_eye(self) -> bool:
        return bool(self.perceptual_weight or self.cycle_weight)


@dataclass
class GraftRecipe:
    """The loss of one step of an encoder's or a decoder's new layers.

    An encoder's learn the teacher's features (mean absolute error, each channel in units of its spread):
    hints, as Romero et al. 2015 (arXiv:1412.6550) call them. A decoder's learn the picture and, with the
    share ``imitation``, what the teacher's decoder makes of the same features (mean absolute errors), the
    tone of its surfaces, and the amount of fine detail, which may be no lattice. With ``perceptual`` they
    also learn to make pictures that an encoder sees as the originals, and with a "critic" in the model
    such as that takes for originals. What new layers make of a crop's border, where they would see beyond
    it, is left out; borders of pictures are borders, and crops lie there more often than by chance.

    Where no layer is kept (`Seam.shared` is 0) a batch is of whole pictures of one size, about as many
    pixels as its crops would be: TAEF2's inner layers normalise over all that they are given. With a
    ``latent_weight`` the encoder learns too, from what the decoder makes of its latents, beside the
    teacher's, and from their distance to these (mean absolute error, each channel in units of its spread).
    """

    pool: ImagePool
    features: SeamFeatures  # of all pictures, also those that were split off from the pool
    seam: Seam
    config: TrainConfig
    options: GraftOptions = field(default_factory=GraftOptions)
    perceptual: PerceptualError | None = None

    def __post_init__(self) -> None:
        side = self.config.crop // self.seam.stride
        self._sizes = [self.features.sizes[i] for i in self.pool.indices]
        areas = np.array([h * w * (min(h, w) >= side) for h, w in self._sizes], np.float64)
        if not self.seam.shared:
            most = LARGEST * self.config.batch * side**2
            areas[areas > most] = 0
            if not areas.any():
                raise ConfigError(
                    f"all pictures have more than {LARGEST} times the pixels of {self.config.batch} crops: "
                    "use smaller ones or a larger --batch"
                )
        areas[[h == w == side for h, w in self._sizes]] *= WHOLE_WEIGHT
        self._share = areas / areas.sum()
        if self.seam.part == "encoder" or self.options.latent_weight:
            some = self.pool.indices[:: max(1, len(self.pool) // 16)]
            maps = [torch.tensor(self.features[i][::4, ::4]).permute(2, 0, 1)[None] for i in some]
            self.spread = spread_of(maps)

    def make_batch(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Pictures, features, (for a decoder) the teacher's answers, and what each output counts (or 0)."""
        stride = self.seam.stride
        side = self.config.crop // stride
        decoder = self.seam.part == "decoder"
        fine = stride if decoder else 1  # outputs per feature along one axis
        strip = max(1, BORDER * fine // stride)
        chosen = rng.choice(len(self._share), self.config.batch, p=self._share)
        height = width = side
        if not self.seam.shared:
            height, width = size = self._sizes[chosen[0]]
            alike = np.array([other == size for other in self._sizes]) * self._share
            count = max(1, round(self.config.batch * side**2 / (height * width)))
            count = min(count, np.count_nonzero(alike))
            chosen = rng.choice(len(alike), count, replace=False, p=alike / alike.sum())
        counts = np.zeros((len(chosen), height * fine, width * fine, 1), np.float32)
        batch: list[tuple[np.ndarray, ...]] = []
        for mask, n in zip(counts, chosen, strict=True):
            i = self.pool.indices[n]
            if self.seam.shared:
                square, inside = place_crop(rng, self._sizes[n], side, self.seam.margin, CORNERS)
            else:
                square = inside = (slice(0, height), slice(0, width))
            mask[finer(inside, fine)] = 1
            for axis, (at, length) in enumerate(zip(square, self._sizes[n], strict=True)):
                border = np.swapaxes(mask, 0, axis)
                border[: strip * (at.start == 0)] *= BORDER_WEIGHT
                border[len(border) - strip * (at.stop == length) :] *= BORDER_WEIGHT
            pixels = finer(square, stride)
            pieces = self.pool.images[n][pixels], self.features[i][square]
            batch.append((*pieces, self.features.answer(i)[pixels]) if decoder else pieces)
        pictures, features, *answers = (np.stack(arrays) for arrays in zip(*batch, strict=True))
        return pictures, features.astype(np.float32), *answers, counts

    def loss(self, model: nn.ModuleDict, batch: Any, progress: float) -> tuple[Tensor, dict[str, float]]:
        x, features, *answers, weights = (to_tensor(a, self.config.device) for a in batch)
        latent = None
        if self.options.latent_weight:
            own = cast(Network, model["encoder"])(x).float()
            latent = ((own - features) / self.spread.to(x.device)).abs().mean()
            features = torch.cat([own, features])
            x, answers[0], weights = (t.repeat(2, 1, 1, 1) for t in (x, answers[0], weights))
        counts = (weights > 0).to(weights)

        def error(out: Tensor, target: Tensor, scale: Tensor | float = 1.0) -> Tensor:
            return mean_where(((out - target) / scale).abs().mean(1, keepdim=True), weights)

        if self.seam.part == "encoder":
            own = self.seam.outer(cast(Network, model["encoder"]), x).float()
            found = error(own, features, self.spread.to(x.device))
            return found, {"features": float(found.detach())}
        out = self.seam.outer(cast(Network, model["decoder"]), features).float()
        picture, answer = error(out, x), error(out, answers[0])
        loss = (1 - self.options.imitation) * picture + self.options.imitation * answer
        wrong = (out - x) * counts
        lattice, tone = lattice_error(wrong), tone_error(wrong)
        loss = loss + LATTICE_WEIGHT * lattice + self.options.tone_weight * tone
        logs = {"picture": picture, "imitation": answer, "lattice": lattice, "tone": tone}
        if latent is not None:
            loss = loss + self.options.latent_weight * latent
            logs["latent"] = latent
        if self.options.detail_weight:
            inside = slice(self.seam.margin * self.seam.stride, -self.seam.margin * self.seam.stride or None)
            detail = lost_detail(out[..., inside, inside], x[..., inside, inside])
            loss = loss + self.options.detail_weight * detail
            logs["detail"] = detail
        if self.perceptual is not None:
            unlike = self.perceptual(out, x, counts)
            loss = loss + sum(self.perceptual.weights[name] * value for name, value in unlike.items())
            logs |= unlike
        if "critic" in model:
            advice, noted = cast(Critic, model["critic"]).judge(
                out, x, counts, progress, self.options.critic_weight
            )
            loss = loss + advice
            logs |= noted
        return loss, {name: float(value.detach()) for name, value in logs.items()}


def _validate(
    pool: ImagePool,
    latents: Sequence[np.ndarray],
    part: str,
    teacher: Network | None,
    perceptual: PerceptualError | None,
    pair: bool = False,
) -> Callable[[nn.ModuleDict], dict[str, float]]:
    """Middles of pictures: latents beside the teacher's and what its decoder makes of them, or own pictures.

    Of a ``pair`` that learns together, also its own round trip.
    """

    def scores(model: nn.ModuleDict) -> Iterator[dict[str, float]]:
        for x, z in middles(pool, latents, model):
            if part == "encoder":
                own = model["encoder"](x)
                values = {"latent_mse": float(((own - z) ** 2).mean())}
                if teacher is not None:
                    values["psnr_teacher_decoder"] = psnr(teacher(own), x)
            else:
                out = model["decoder"](z).float().clamp(0, 1)
                values = {"psnr_teacher_latents": psnr(out, x), "sharpness": crispness(out, x)}
                if pair:
                    own = model["encoder"](x)
                    again = model["decoder"](own).float().clamp(0, 1)
                    values |= {"psnr": psnr(again, x), "sharpness_pair": crispness(again, x)}
                    values["latent_mse"] = float(((own - z) ** 2).mean())
                if perceptual is not None:
                    unlike = perceptual(out, x, torch.ones_like(x[:, :1]))
                    values |= {f"whole_{name}": float(value) for name, value in unlike.items()}
            yield values

    return lambda model: mean_scores(scores(model))


def train_graft(
    config: ModelConfig,
    teacher: str,
    data: list[str],
    train: TrainConfig,
    part: str,
    init: str | None = None,
    resume: bool = True,
    options: GraftOptions | None = None,
    latents: Path | None = None,
    features: Path | None = None,
) -> Path:
    """Train the new layers of one part of a hybrid; returns the weights file (``out/<name>.safetensors``).

    Parameters
    ----------
    config : an autoencoder whose encoder ends in layers of the teacher's, or whose decoder begins with
        them (`find_seam`).
    teacher : weights file or folder of a TAESD-family model, with both parts for a decoder.
    data : folders and tar packs of pictures; 16 of them are kept for validation.
    train : schedule and output folder.
    part : "encoder" or "decoder".
    init : weights file to start from, for a decoder the encoder's; the shared layers are the teacher's in
        any case.
    resume : continue from the folder's checkpoint if there is one.
    options : what the layers learn, default `GraftOptions()`.
    latents, features : where the teacher's latents (a file) and the features (a folder, about a gigabyte
        for 100 megapixels and part) are kept, default in ``out``. Several trainings can share both.

    Raises
    ------
    WeightsError
        If the teacher lacks a part that is needed, or has another number of latent channels.
    ConfigError
        If the part is no hybrid of the teacher's, crops are too small, an encoder is given what judges a
        decoder's pictures or all layers to train, a part whose layers have all learned is to be trained in
        some of them, an encoder is to learn without ``all_layers`` or beside what stays as it was
        (``taught``), or a decoder has no ``init`` or, for the perceptual error, neither one with its encoder
        nor an ``eye`` with one, or an ``eye`` without that error.
    ImageError
        If no picture is as large as a crop.
    """
    options = options or GraftOptions()
    options.check(part)
    weights = load_weights(teacher)
    check_teacher(weights, teacher, config, *(("encoder", "decoder") if part == "decoder" else ("encoder",)))
    begun = load_weights(init) if init else None
    pair = options.latent_weight > 0
    plan = _plan(config, weights, part, init, begun, options.all_layers, pair)
    seam = plan.seam
    eyes = None  # whose encoder looks, and its seam
    if plan.start is not None and options.judged_by_eye:
        eyes = _eyes(weights.config, plan.start, options.eye)
    least = FACTOR * -(-(2 * seam.margin * seam.stride + LEAST_INSIDE) // FACTOR)
    if train.crop < least:
        raise ConfigError(f"{config.name} needs crops of {least} pixels or more, got {train.crop}")
    torch.manual_seed(train.seed)
    if train.threads:
        torch.set_num_threads(train.threads)
    network = teacher_part(weights, part)
    everything = load_pool(data, train.drawn, FACTOR)
    pool, validation = everything.split(validation=16, seed=0)
    check_crops(pool, train.crop)
    with first_process_first(train.device):
        z = teacher_latents(everything, weights, latents or train.out / "latents.npz", train)
    model = build_modules(config)
    if init:
        load_into(model, init)
    _take_and_freeze(model, network, seam, pair)

    identity = f"{part} {seam.shared} {identify(weights, everything)}"
    lessons = None
    if plan.start is not None:
        taught = options.taught
        lessons = partial(_decoders_lessons, everything, z, model, taught, train)
        identity += f" {train.seed} {taught} {_identify_encoder(plan.start) if taught < 1 else ''}"
    with first_process_first(train.device):
        kept = SeamFeatures.of(
            everything, seam, weights, train, features or train.out / "features", identity, lessons
        )
    perceptual = None
    if eyes is not None:
        looking, place_of_eye = eyes
        same = options.eye is None and not pair  # which one that learns is not for long
        encoder = cast(Network, model["encoder"]) if same else teacher_part(looking, "encoder")
        large = [picture for picture in pool.images if min(picture.shape[:2]) >= train.crop]
        perceptual = PerceptualError(
            encoder.to(train.device), place_of_eye, large, options.perceptual_weight, options.cycle_weight
        )
    recipe = GraftRecipe(pool, kept, seam, train, options, perceptual)
    if part == "decoder" and options.critic_weight:
        model["critic"] = Critic(options.critic_limit)
    reader = None  # of the encoder's latents
    if part == "encoder" and "decoder" in weights.config.parts:
        reader = teacher_part(weights, "decoder").to(train.device)
    wanted = [z[i] for i in validation.indices]
    evaluate = _validate(validation, wanted, part, reader, perceptual, pair)
    return train_student(
        config, weights, model, recipe, train, data, evaluate, resume, plan.fitted,
        lambda name: name.startswith(plan.settled),
    )  # fmt: skip


class _Plan(NamedTuple):
    """What a training is about."""

    seam: Seam
    start: Weights | None  # what a decoder begins with, and its encoder
    settled: tuple[str, ...]  # how names of parameters begin that were the teacher's and learn too
    fitted: set[str]  # parts whose layers have all learned, afterwards


def _plan(
    config: ModelConfig,
    teacher: Weights,
    part: str,
    init: str | None,
    begun: Weights | None,
    all_layers: bool,
    pair: bool,
) -> _Plan:
    """``begun`` are the weights of the file ``init``; an encoder learns beside its decoder in a ``pair``."""
    seam = find_seam(config, teacher.config, part)
    settled = tuple(f"{part}.{i}." for i in range(seam.shared)) if all_layers else ()
    fitted = {p for p in config.parts if begun and is_fitted(begun, p)}
    start = None
    if part == "decoder":
        start = _decoders_start(config, init, begun, teacher, settled)
    elif part in fitted:
        raise ConfigError(
            f"{init}: all layers of its encoder have learned, and those that it shared with "
            f"{teacher.config.name} would be reset"
        )
    if all_layers:
        seam, fitted = Seam(part, shared=0, stride=FACTOR, margin=0), {part, *fitted}
    if pair:
        layers = len(config.parts["encoder"])
        deep = layers - find_seam(config, teacher.config, "encoder").shared
        settled += tuple(f"encoder.{i}." for i in range(deep, layers))
        fitted = {"encoder", *fitted}
    return _Plan(seam, start, settled, fitted)


def _take_and_freeze(model: nn.ModuleDict, teacher: Network, seam: Seam, pair: bool) -> None:
    """Give a model the layers that its teacher keeps, and leave to learn what is the model's own."""
    model.requires_grad_(False)
    layers = list(model[seam.part].children())
    for mine, theirs in zip(layers[seam.kept], list(teacher)[seam.kept], strict=True):
        mine.load_state_dict(theirs.state_dict())
    for layer in layers[seam.own]:
        layer.requires_grad_(True)
    if pair:
        model["encoder"].requires_grad_(True)


def _decoders_start(
    config: ModelConfig, init: str | None, begun: Weights | None, teacher: Weights, settled: tuple[str, ...]
) -> Weights:
    """The weights that a decoder begins with, if it can.

    ``settled`` is what names of parameters begin with that it has from its teacher and that are to learn too.
    """
    if begun is None:
        raise ConfigError("a decoder is trained after its encoder: give the weights of that with --init")
    if begun.config.parts.get("encoder") != config.parts["encoder"]:
        raise ConfigError(
            f"{init}: has no encoder of a {config.name}, after which its decoder is trained: give the "
            "result of --part encoder"
        )
    fitted = is_fitted(begun, "decoder")
    if fitted and not settled:
        raise ConfigError(
            f"{init}: all layers of its decoder have learned, and without --all-layers those that it shared "
            f"with {teacher.config.name} would be reset"
        )
    if settled and not fitted:
        names = (name for name in teacher.config.params() if name.startswith(settled))
        if not all(np.array_equal(teacher.tensors[name], begun.tensors.get(name, 0)) for name in names):
            raise ConfigError(
                f"{init}: its decoder has not learned beside the layers of {teacher.config.name} yet: "
                "train it without --all-layers first"
            )
    return begun


def _eyes(teacher: ModelConfig, start: Weights, eye: str | None) -> tuple[Weights, Seam]:
    """The weights whose encoder looks for the perceptual error, and its seam."""
    if eye is None:
        return start, find_seam(start.config, teacher, "encoder")
    looking = load_weights(eye)
    try:
        if looking.config.parts["encoder"] == teacher.parts["encoder"]:
            return looking, seam_to_look(teacher)
        return looking, find_seam(looking.config, teacher, "encoder")
    except (ConfigError, KeyError):
        raise ConfigError(
            f"{eye}: has no encoder of a hybrid of {teacher.name} or its own, with which to look (--eye)"
        ) from None


def _identify_encoder(weights: Weights) -> str:
    """What the student's latents depend on; further phases of a decoder's training leave it as it is."""
    own = (value.tobytes() for name, value in weights.tensors.items() if name.startswith("encoder."))
    return f"{crc32(b''.join(own), crc32(repr(weights.config.parts.get('encoder')).encode())):08x}"


def _decoders_lessons(
    pool: ImagePool, latents: Sequence[np.ndarray], model: nn.ModuleDict, taught: float, train: TrainConfig
) -> list[np.ndarray]:
    """The latents that a decoder learns from: the teacher's or the student's, half of either with noise.

    Which, and what noise, depends on the seed and the picture's number only, since the features are kept.
    """
    encoder = model["encoder"].to(train.device)
    result = []
    for i, (picture, z) in enumerate(zip(pool.images, latents, strict=True)):
        rng = np.random.default_rng((train.seed, i))
        if rng.random() >= taught:
            h, w = (n * FACTOR for n in z.shape[:2])
            with torch.no_grad():
                z = encoder(to_tensor(picture[None, :h, :w], train.device))[0].permute(1, 2, 0).cpu().numpy()
        spread = np.float32(NOISE * rng.random() * (rng.random() < 0.5))
        noisy = z.astype(np.float32) + spread * rng.standard_normal(z.shape, dtype=np.float32)
        result.append(noisy.astype(np.float16))
    return result
