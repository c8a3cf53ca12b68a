"""Training of restoration models: a denoiser that is told the noise, and an estimator of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from hashlib import sha256
from math import ceil, lcm
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..batches import continued
from ..changes import changed
from ..engine.geometry import multiple
from ..errors import ConfigError, WeightsError
from ..files import say
from ..models.modules import Network, frozen_module
from ..models.spec import Layers, ModelConfig, ZenithBlock
from ..models.streams import in_streams, mean_of, turned
from ..models.zoo import with_expert
from ..pipelines import SIGMA_LIMIT, SIGMA_UNIT, Denoiser, load
from ..weights import Weights, load_weights, save_weights
from .data import ImagePool, load_pool, middle, random_crops
from .degradations import FINE_QUALITY, MIXTURES, Mixture, blur, edited, is_drawn, jpeg, make_plain
from .device_batches import DevicePool, WhiteNoise, is_white
from .sorting import LEAST_ERROR, SorterRecipe, outcomes, table_size
from .trainer import TrainConfig, Trainer, mean_scores, plain_options, psnr, to_tensor

EXPERT = ("white", "sorter")  # parts that a denoiser may have beside its own
UNTRAINED = 480  # crops of the validation pictures that a sorter is tried on
CLEANED_LEVEL = 1.25  # times the estimated one, which falls short of a photograph's faint noise
MEDIAN = 0.5  # the quantile of what neither leans upward nor downward


def build_modules(config: ModelConfig) -> nn.ModuleDict:
    """One torch module a part; state-dict keys are those of `ModelConfig.params`."""
    return nn.ModuleDict(
        {part: Network(layers, config.in_channels(part)) for part, layers in config.parts.items()}
    )


def start_small(denoiser: nn.Module) -> None:
    """Scale the last layer down, so that a denoiser starts near the identity: its residual is small."""
    last = [layer for layer in denoiser.children() if list(layer.parameters())][-1]
    with torch.no_grad():
        for p in last.parameters():
            p.mul_(0.1)


def cleaned(pool: ImagePool, cleaner: str | Weights, threads: int | None = None) -> ImagePool:
    """The photographs of a pool after a denoiser at the estimated level, times `CLEANED_LEVEL`.

    Drawn pictures have no noise and are left out. What is given twice, so that it comes more often, is
    cleaned once.

    Raises
    ------
    WeightsError
        If the cleaner is no denoiser or has no estimator.
    """
    model = load(cleaner, threads=threads)
    if not isinstance(model, Denoiser) or "estimator" not in model.config.parts:
        raise WeightsError(f"{model.name}: is no denoiser with an estimator, which --cleaner is about")
    photographs = pool.photographs()
    known: dict[tuple[Any, ...], np.ndarray] = {}
    for i, picture in enumerate(photographs.images):
        key = picture.shape, sha256(picture.tobytes()).digest()
        if key not in known:
            one = picture[None]
            found = model.estimate(one, "RGB")
            loud = found._replace(levels=CLEANED_LEVEL * found.levels)
            known[key] = changed(one, model.changes(one, "RGB", loud))[0]
        photographs.images[i] = known[key]
        if (i + 1) % 100 == 0:
            say(f"cleaned {i + 1}/{len(photographs)}")
    return photographs


def load_into(model: nn.Module, path: str | Path) -> None:
    """Warm start from a weights file: of each part, the layers that have a counterpart in the model.

    An expert ("white") of weights that have none starts as their denoiser.

    Where a part has as many layers as the model's, they are taken one by one; else both lists are
    aligned as a diff aligns lines, and equal layers are taken. So a model can start from one with other
    latents or with fewer blocks, and a hybrid from the TAESD whose inner layers it has. What is new
    keeps its fresh values, but for the last layer of new Zenith blocks, which is set to zero: they add
    nothing at first, and a deeper model starts as good as the one it grew from. One of several streams of
    the weights' layers starts as the mean of as many orientations of them, better than they are. How much
    is new, goes to stderr.

    Raises
    ------
    WeightsError
        If less than half of the model's tensors are there.
    """
    weights = load_weights(path)
    state = model.state_dict()
    fitting, silent = {}, {}
    for part, network in model.named_children():
        origin = "denoiser" if part == "white" and part not in weights.config.parts else part
        mine, theirs = cast(Network, network).layers, weights.config.parts.get(origin, ())
        tensors = weights.part(origin)
        if streams := _as_streams(theirs, tensors, mine):
            theirs, tensors = mine, streams
        pairs = _counterparts(theirs, mine)
        for i, j in pairs:
            for name in theirs[i].params():
                value = torch.from_numpy(tensors[f"{i}.{name}"])
                to = f"{part}.{j}.{name}"
                if to in state and state[to].shape == value.shape:
                    fitting[to] = value
        known = {j for _, j in pairs}
        for j, layer in enumerate(mine):
            if known and j not in known and isinstance(layer, ZenithBlock):
                last = f"{part}.{j}.expand.weight"
                silent[last] = torch.zeros_like(state[last])
    added = set(EXPERT) - set(weights.config.parts)
    old = [name for name in state if name.split(".")[0] not in added]
    if 2 * len(fitting) < len(old):
        raise WeightsError(
            f"{path}: only {len(fitting)} of the model's {len(old)} tensors are there; "
            "start from weights of its architecture"
        )
    if len(fitting) < len(state):
        say(f"{path}: {len(fitting)} of {len(state)} tensors fit, the others start fresh")
    model.load_state_dict(state | silent | fitting)


def _as_streams(theirs: Layers, tensors: dict[str, np.ndarray], mine: Layers) -> dict[str, np.ndarray]:
    """Tensors of the mean of 2 to 4 orientations of a network, if mine are as many streams of it."""
    for count in range(2, 5):
        try:
            if in_streams(theirs, count) == mine:
                networks = [tensors]
                while len(networks) < count:
                    networks.append(turned(theirs, networks[-1]))
                return mean_of(theirs, networks)
        except ConfigError:  # it has no streams, or cannot be turned
            break
    return {}


def _counterparts(theirs: Layers, mine: Layers) -> list[tuple[int, int]]:
    """Pairs of indices of layers that may share weights."""
    if len(theirs) == len(mine):
        return [(i, i) for i in range(len(mine))]
    matches = SequenceMatcher(None, theirs, mine, autojunk=False).get_matching_blocks()
    return [(m.a + k, m.b + k) for m in matches for k in range(m.size)]


def save_model(path: Path, config: ModelConfig, state: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Export a state dict as an fp16 weights file."""
    tensors = {name: state[name].float().cpu().numpy() for name in config.params()}
    save_weights(path, config, tensors, metadata)


def train_by(
    recipe: Any,
    model: nn.ModuleDict,
    config: ModelConfig,
    train: TrainConfig,
    data: list[str],
    evaluate: Callable[[nn.ModuleDict], dict[str, float]],
    resume: bool,
    goal: dict[str, str],
    origin: dict[str, str] | None = None,
    settled: Callable[[str], bool] = lambda name: False,
    prepare: Callable[[Trainer], None] = lambda trainer: None,
) -> Path:
    """Train by a recipe's ``make_batch`` and ``loss``; returns the weights file.

    Its metadata say ``origin``; ``goal``, ``settled`` and ``data`` are those of `Trainer`. ``prepare`` is
    called once a checkpoint is accepted, before the first step: for work that a refusal would waste.
    """
    path = train.out / f"{config.name}.safetensors"

    def export(state: dict[str, Tensor], metadata: dict[str, str]) -> None:
        save_model(path, config, state, metadata | (origin or {}))

    trainer = Trainer(model, recipe.make_batch, recipe.loss, train, export, evaluate, goal, settled, data,
                      plain_options(recipe))  # fmt: skip
    if resume:
        trainer.load_checkpoint()
    prepare(trainer)
    trainer.run()
    return path


class Lessons(NamedTuple):
    """What a denoiser and an estimator learn from in one step: N crops."""

    degraded: np.ndarray  # (N, H, W, 3) float32
    target: np.ndarray  # alike
    sigma: np.ndarray  # (N, H, W), the noise's standard deviation
    estimated: np.ndarray  # (N,) bool: the denoiser is told the estimated level
    factor: np.ndarray  # (N,) float32, of the level that it is told
    anew: np.ndarray  # (N,) bool: the estimator learns the level, not what an elder says
    quantile: np.ndarray  # (N,) float32, that the estimator is to find
    whole: np.ndarray  # what an elder sees: `degraded` without plain parts (without an elder, with them)


@dataclass
class RestoreRecipe:
    """The loss of one step.

    The denoiser minimises the absolute error of picture + residual, or (``loss_kind`` "psnr") the
    logarithm of each crop's mean squared error, which is what a mean of PSNRs rewards (as in HINet,
    arXiv:2105.06086); better for the end of a training than for its beginning. The estimator minimises the
    error of the logarithm of the local noise level. After a share ``guessing`` of the training, part of the
    pictures is denoised at the *estimated* level, and the estimator learns from the outcome too:
    automatic mode is trained as a whole. Few pictures with white noise are, whose level people
    know, and most others, whose level nobody does. Some are told too high a level, which people
    try for a stronger effect and which must do no harm. Of the camera's noise many are told too low
    a level: that of real photographs is often softer than the made-up one, so estimates of it fall short,
    and what looks like a camera's noise is to go all the same.

    With an ``elder`` the estimator learns the level of white noise above `LOUD`, of what is stored as JPEG
    and of drawn pictures, or (``anew`` "drawn") of these alone; of all else it is to say what that estimator
    says, also of photographs as they are.
    Some pictures have parts of one plain colour without noise, such as frames, which say nothing of the
    noise elsewhere: there the level is to be that of the picture, which it would have without them.
    ``quantile`` is for the noise of cameras, whose level a picture does not always tell: where it leaves a
    range open, the estimate is this quantile of it (by the pinball loss, Koenker and Bassett 1978). An
    elder has the median, `MEDIAN`: where another is asked for, the noise of cameras is learned anew too.

    Photographs for training have noise too, of film, of cameras, of JPEG, and a network for which it is part
    of the picture to be learns to leave such noise alone. With ``cleaned``, the photographs after a denoiser,
    most batches (`CLEANED_SHARE`) are of those, with noise as a camera's (`MIXTURES`, "cleaned"). Of the
    photographs themselves a few then stay as they are, at whatever level is estimated, lest it take their
    texture for noise too. Of ``drawings`` is another part of the batches (`DRAWN_SHARE`): dots of print and
    thin strokes look like a camera's mottle and wrong pixels to a network that sees few of them.

    With both an elder and ``cleaned``, a part of the batches (`EDITED_SHARE`) is of such photographs as
    people and phones make them brighter, of more contrast, more vivid and sharper (`edited`), which looks
    like noise to an estimator that never saw it. Their levels are known, and learned anew; many have no noise
    at all. Lest it take real noise for texture, many of the other photographs then stay as they are.

    ``part`` is "denoiser", or "white" for the expert of a model, which learns as a denoiser does.

    With ``white_noise`` a batch is a seed until `loss` is where the network is. Photographs have no plain
    parts then.
    """

    mixture: Mixture
    pool: ImagePool
    config: TrainConfig
    estimated: float = 0.2  # share of the pictures with white noise at their estimated level
    estimated_other: float = 0.6  # and of the others
    loss_kind: str = "l1"
    overstated: float = 0.04  # share told a level too high, by up to `MOST_OVERSTATED`
    understated: float = 0.75  # share of the camera's told one too low, by down to `MOST_UNDERSTATED`
    elder: Network | None = None
    anew: str = "noise"
    framed: float = 0.15  # share of the photographs with plain parts, `flat_area`
    untouched: float = 0.1  # share of the pictures that stay as they are, with an elder
    cleaned: ImagePool | None = None
    drawings: ImagePool | None = None
    kept: float = 0.03  # share of the photographs that stay as they are, beside cleaned ones
    editing: bool = False  # of these batches: photographs without noise of their own are edited first
    quantile: float = MEDIAN
    part: str = "denoiser"
    guessing: float = 0.2  # share of the training before estimates are any good
    white_noise: WhiteNoise | None = None  # makes the batches instead, on the device

    MOST_OVERSTATED: ClassVar[float] = 2.5
    MOST_UNDERSTATED: ClassVar[float] = 0.5
    LOUD: ClassVar[float] = 8 / 255  # standard deviation from which on white noise is mistaken for no other
    CLEANED_SHARE: ClassVar[float] = 0.7  # of the batches of photographs
    DRAWN_SHARE: ClassVar[float] = 0.15  # of all
    EDITED_SHARE: ClassVar[float] = 0.4
    UNTOUCHED_BESIDE: ClassVar[float] = 0.4  # `untouched` of the other batches then
    NOISELESS: ClassVar[float] = 0.4  # share of these that have no noise, half of them in a fine JPEG

    def make_batch(self, rng: np.random.Generator) -> Lessons | int:
        if self.white_noise is not None:
            return int(rng.integers(1 << 62))
        if self.elder is None or self.cleaned is None:
            return self.lessons(rng)
        change: dict[str, Any] = {"cleaned": None, "untouched": self.UNTOUCHED_BESIDE}
        if rng.random() < self.EDITED_SHARE:
            change |= {"pool": self.cleaned, "mixture": MIXTURES["edited"], "anew": "noise", "editing": True}
            change["untouched"] = self.NOISELESS
        return replace(self, **change).lessons(rng)

    def lessons(self, rng: np.random.Generator) -> Lessons:
        """A batch of crops, whose noise is made here."""
        pool, mixture, kept = self.pool, self.mixture, 0.0
        if self.drawings is not None and rng.random() < self.DRAWN_SHARE:
            pool, mixture = self.drawings, MIXTURES["drawn"]
        elif self.cleaned is not None:
            if rng.random() < self.CLEANED_SHARE:
                pool, mixture = self.cleaned, MIXTURES["cleaned"]
            else:
                kept = self.kept
        n = self.config.batch
        chosen = pool.pick(rng, n)
        clean = random_crops(pool, rng, n, self.config.crop, scale_probability=0.3, chosen=chosen)
        if self.editing:
            clean = np.stack([edited(picture, rng) if rng.random() < 0.9 else picture for picture in clean])
        # Some photographs have the plain colours of drawn pictures, and a halftone has none of them.
        drawn = pool.are_drawn(chosen) | np.array([is_drawn(picture) for picture in clean])
        degraded, target, sigma, kinds = mixture.sample(clean, rng, drawn)
        white = kinds == "gaussian"
        loud = white & (sigma.mean(axis=(1, 2)) > self.LOUD)
        camera = np.isin(kinds, ("camera", "poisson_gaussian"))
        anew = drawn | np.isin(kinds, ("grain", "mottled", "zoomed"))
        if self.anew == "noise":
            anew |= loud | (kinds == "stored") | (camera & (self.quantile != MEDIAN))
        still = np.zeros(n, bool)
        if share := self.untouched if self.elder is not None else kept:
            still = ~drawn & (rng.random(n) < share)
            degraded[still], sigma[still] = target[still], 0
            anew &= ~still
        if self.editing:
            anew[:] = True
            for k in np.flatnonzero(still & (rng.random(n) < 0.5)):
                quality = int(rng.integers(FINE_QUALITY, 99))
                degraded[k] = jpeg(target[k : k + 1], rng, quality, subsample=rng.random() < 0.75)[0][0]
        whole = degraded.copy() if self.elder is not None else degraded
        for k in np.flatnonzero(~drawn & (rng.random(n) < self.framed)):
            make_plain(degraded[k], target[k], rng)
        estimated = rng.random(n) < np.where(white, self.estimated, self.estimated_other)
        if kept:
            estimated |= still
        factor = np.where(rng.random(n) < self.overstated, rng.uniform(1, self.MOST_OVERSTATED, n), 1)
        low = (kinds == "camera") & (rng.random(n) < self.understated)
        factor = np.where(low, rng.uniform(self.MOST_UNDERSTATED, 1, n), factor)
        quantile = np.where(camera & anew, self.quantile, MEDIAN)
        factor, quantile = factor.astype(np.float32), quantile.astype(np.float32)
        return Lessons(degraded, target, sigma, estimated, factor, anew, quantile, whole)

    def loss(
        self, model: nn.ModuleDict, batch: Lessons | int, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        device = self.config.device
        if isinstance(batch, int):
            assert self.white_noise is not None
            degraded, target, plane, own, factor = self.white_noise(batch)
            plane = plane * factor
            if "estimator" in model and progress >= self.guessing:
                with torch.no_grad():
                    estimate = model["estimator"](degraded).float()
                plane = torch.where(own, upsample_sigma(estimate, degraded.shape[2:]), plane)
            return self._restoring(model, degraded, target, plane)
        degraded, target = to_tensor(batch.degraded, device), to_tensor(batch.target, device)
        sigma = torch.from_numpy(batch.sigma).to(device)[:, None]
        estimated, factor, anew, quantile = (
            torch.from_numpy(values).to(device)[:, None, None, None]
            for values in (batch.estimated, batch.factor, batch.anew, batch.quantile)
        )
        logs: dict[str, float] = {}
        loss = torch.zeros((), device=device)
        plane = sigma * factor
        if "estimator" in model:
            estimate = model["estimator"](degraded).float()
            wanted = F.avg_pool2d(sigma, 8) / SIGMA_UNIT
            if self.elder is not None:
                with torch.no_grad():
                    known = self.elder(to_tensor(batch.whole, device)).float()
                    wanted = torch.where(anew, wanted, known)
            missing = _perceived(wanted) - _perceived(estimate)
            estimation = 2 * torch.maximum(quantile * missing, (quantile - 1) * missing).mean()
            loss = loss + 0.02 * estimation
            logs["estimation"] = float(estimation.detach())
            if progress >= self.guessing:
                plane = torch.where(estimated, upsample_sigma(estimate, degraded.shape[2:]), plane)
        if not next(model[self.part].parameters()).requires_grad:
            return loss, logs
        restoration, noted = self._restoring(model, degraded, target, plane)
        return loss + restoration, logs | noted

    def _restoring(
        self, model: nn.ModuleDict, degraded: Tensor, target: Tensor, plane: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        residual = model[self.part](
            torch.cat([degraded, plane], 1).contiguous(memory_format=torch.channels_last)
        )
        error = degraded + residual.float() - target
        absolute = error.abs().mean()
        logs = {"l1": float(absolute.detach())}
        return log_error(error) if self.loss_kind == "psnr" else absolute, logs


def log_error(error: Tensor) -> Tensor:
    """The mean logarithm of each crop's mean squared error (N, C, H, W), on a floor of `LEAST_ERROR`.

    The factor makes it weigh about as much as the absolute error.
    """
    return 0.01 * (error.square().mean(dim=(1, 2, 3)) + LEAST_ERROR).log().mean()


def _perceived(sigma: Tensor) -> Tensor:
    """Noise level on a scale that is logarithmic above 0.1 unit, so that where the level cannot be
    told the estimate is the median of what is likely, neither high nor low."""
    return sigma.sign() * torch.log1p(sigma.abs() / 0.1)


def upsample_sigma(estimate: Tensor, size: torch.Size | tuple[int, ...]) -> Tensor:
    """Estimator output (N, 1, h, w) -> standard deviation in [0, 1] units at picture size."""
    sigma = estimate.clamp(0, SIGMA_LIMIT) * SIGMA_UNIT
    whole = F.interpolate(sigma, scale_factor=8, mode="bilinear", align_corners=False)
    return whole[:, :, : size[0], : size[1]]


def _centre(picture: np.ndarray, unit: int) -> np.ndarray:
    """The middle of a picture, at most 256 each way, continued by reflection to whole units."""
    return continued(picture[middle(picture.shape[:2], 256)][None], unit, "reflect")[0]


def _validate(
    validation: ImagePool, seed: int, unit: int, soft: bool, part: str
) -> Callable[[nn.ModuleDict], dict[str, float]]:
    """PSNR of centre crops of the validation pictures: sigma 25, told and estimated; camera noise.

    With ``soft`` instead: blurred by a 3x3 box, and left sharp; both at the estimated level. Of an expert
    no camera noise.
    """
    others = dict.fromkeys(Mixture.KINDS, 0.0)
    camera = Mixture(**(others | {"camera": 1.0}), clean=0.0)  # type: ignore[arg-type]

    def softness(model: nn.ModuleDict) -> Iterator[dict[str, float]]:
        device = next(model.parameters()).device
        for i, picture in enumerate(validation.images):
            centre = _centre(picture, unit)[None].astype(np.float32) / 255
            given = blur(centre, np.random.default_rng((seed, i)), stored=True)[0]
            blurred, target = to_tensor(given, device), to_tensor(centre, device)
            out = []
            for x in (blurred, target):
                plane = estimated(model, x) if "estimator" in model else torch.zeros_like(x[:, :1])
                out.append(psnr(restored(model, x, plane), target))
            yield {"psnr": out[0], "soft_gain": out[0] - psnr(blurred, target), "psnr_sharp": out[1]}

    def noise(model: nn.ModuleDict) -> Iterator[dict[str, float]]:
        device = next(model.parameters()).device
        for i, picture in enumerate(validation.images):
            centre = _centre(picture, unit)
            clean = centre.astype(np.float32) / 255
            white = np.random.default_rng((seed, i)).standard_normal(clean.shape, dtype=np.float32)
            noisy = to_tensor((clean + white * SIGMA_UNIT)[None], device)
            target = to_tensor(clean[None], device)
            told = torch.full_like(noisy[:, :1], SIGMA_UNIT)
            yield {"psnr": psnr(restored(model, noisy, told), target)}
            if "estimator" not in model:
                continue
            yield {"psnr_auto": psnr(restored(model, noisy, estimated(model, noisy)), target)}
            for k in range(4 if part == "denoiser" else 0):  # kinds of noise differ more than pictures do
                noisy, target = (
                    to_tensor(x, device)
                    for x in camera.sample(centre[None], np.random.default_rng((seed, i, k)))[:2]
                )
                out = restored(model, noisy, estimated(model, noisy))
                yield {"camera_gain": psnr(out, target) - psnr(noisy, target)}

    def estimated(model: nn.ModuleDict, noisy: Tensor) -> Tensor:
        return upsample_sigma(model["estimator"](noisy).float(), noisy.shape[2:])

    def restored(model: nn.ModuleDict, noisy: Tensor, plane: Tensor) -> Tensor:
        return noisy + model[part](torch.cat([noisy, plane], 1)).float()

    return lambda model: mean_scores((softness if soft else noise)(model))


def _beside_expert(
    config: ModelConfig, begun: Weights | None, init: str | None, only: str | None, soft: bool
) -> ModelConfig:
    """The config with the expert and sorter of the weights in ``init``, or those that are asked for."""
    alike = begun is not None and begun.config.parts.get("denoiser") == config.parts["denoiser"]
    if only not in EXPERT:
        if begun is None or "sorter" not in begun.config.parts:
            return config
        if alike and not soft:
            return with_expert(config, begun.config.parts["white"])
        why = "the task is another one" if soft else "it is another network's"
        say(f"{init}: its expert for white noise is not taken: {why}")
        return config
    if begun is None or begun.metadata.get("task") == "blur":
        raise ConfigError(f"--only {only} adds to a denoiser that is trained: give its weights with --init")
    if only == "sorter" and "white" not in begun.config.parts:
        raise ConfigError(
            f"{init}: has no expert for white noise, so there is nothing to choose from: train one "
            "first, with --only white"
        )
    if only == "sorter" and not alike:
        raise ConfigError(f"{init}: its networks are not those of {config.name}, so it has another sorter")
    return with_expert(config, begun.config.parts.get("white", ()) if alike else ())


def _start(config: ModelConfig, begun: Weights | None, init: str | None, only: str | None) -> nn.ModuleDict:
    """What is trained, from the weights in ``init`` (``begun``), with gradients for what is to change."""
    model = build_modules(config)
    for whole in {"denoiser", "white"} & set(model):
        start_small(model[whole])
    if init:
        load_into(model, init)
    theirs = begun.config.parts if begun else {}
    if "sorter" in model and any(
        theirs.get(part) != config.parts[part] for part in ("denoiser", *EXPERT)
    ):  # until it has learned, of these networks, nothing is for the expert
        for p in list(model["sorter"].parameters())[-2:]:
            nn.init.zeros_(p)
    if only:
        if only not in model:
            raise ConfigError(f"{config.name} has no part {only}; it has {', '.join(model)}")
        model.requires_grad_(False)[only].requires_grad_(True)
    for other in set(EXPERT) & set(model) - {only}:  # each is trained alone
        model[other].requires_grad_(False)
    return model


def _load_elder(elder: str, config: ModelConfig) -> Weights:
    """Weights whose estimator can teach the config's."""
    theirs = load_weights(elder)
    if "estimator" not in theirs.config.parts or "estimator" not in config.parts:
        lacking = elder if "estimator" in config.parts else config.name
        raise WeightsError(f"{lacking}: has no estimator, which --elder is about")
    return theirs


def train_restoration(
    config: ModelConfig,
    data: list[str],
    train: TrainConfig,
    mixture: Mixture | None = None,
    init: str | None = None,
    resume: bool = True,
    only: str | None = None,
    loss: str = "l1",
    elder: str | None = None,
    anew: str = "noise",
    quantile: float = MEDIAN,
    cleaner: str | None = None,
) -> Path:
    """Train a denoiser; returns the weights file (``out/<name>.safetensors``).

    Parameters
    ----------
    config : a model of kind "denoiser".
    data : folders and tar packs of clean pictures; 16 of them are kept for validation.
    train : schedule and output folder.
    mixture : degradations, default that of `MIXTURES` for noise, for a part of an expert, or for the denoiser
        alone beside one.
    init : weights file to start from.
    resume : continue from the folder's checkpoint if there is one.
    only : train this part alone and keep the others as they are. "white", the expert for white noise, is
        added to a model in ``init`` that has none, with a "sorter" that tells where it is to be run and that
        learns after it, and again after the denoiser. Neither is trained in another way. Other trainings from
        weights that have them leave them as they are, or leave them out, with a word, where the model is of
        other layers or for blur.
    loss : "l1" or "psnr", see `RestoreRecipe`.
    elder, anew : weights whose estimator is the `RestoreRecipe`'s ``elder``, and what is learned beside it.
    quantile : of the level of camera noise that the estimator learns, see `RestoreRecipe`.
    cleaner : weights that make the `RestoreRecipe`'s ``cleaned``, for the denoiser alone or, beside an
        elder, the estimator alone.

    Raises
    ------
    ConfigError
        If the model is no denoiser, has no such part, needs other crops, or lacks what ``quantile`` is about;
        if what a part needs is not in ``init``, or something is given that the part has no use for.
    WeightsError
        If ``init`` does not fit, ``elder`` or the model has no estimator, or ``cleaner`` is none.
    """
    if config.kind != "denoiser":
        raise ConfigError(f"{config.name} is of kind {config.kind}; use `zenith-ae train distill`, "
                          "for a hybrid `graft`, for bounded latents `autoencode`")  # fmt: skip
    task = mixture.task if mixture is not None else "noise"
    soft = task == "blur"
    _check_goal(only, soft, loss, elder, anew, quantile, cleaner)
    other = {"denoiser": "estimator", "estimator": "denoiser"}.get(str(only))
    if other in config.parts and not init:
        raise ConfigError(f"--only {only} keeps the {other} as it is: give its weights with --init")
    part = only if only in EXPERT else "denoiser"
    begun = load_weights(init) if init else None
    config = _beside_expert(config, begun, init, only, soft)
    if quantile != MEDIAN and "estimator" not in config.parts:
        raise ConfigError(f"{config.name} has no estimator, which --quantile is about")
    unit = lcm(*(multiple(layers) for layers in config.parts.values()))
    if train.crop % unit:
        raise ConfigError(f"{config.name} needs crops of a multiple of {unit} pixels, got {train.crop}")
    torch.manual_seed(train.seed)
    pool, validation = load_pool(data, train.drawn).split(validation=16, seed=0)
    model = _start(config, begun, init, only)
    mixture = mixture or _usual_mixture(model, only)
    # A sorter's recipe makes crops only, which are the same for either of its networks.
    lesson = "denoiser" if part == "sorter" else part
    recipe = RestoreRecipe(mixture, pool, train, loss_kind=loss, anew=anew, quantile=quantile, part=lesson)
    sorting = SorterRecipe(train) if part == "sorter" else None
    # Where drawn pictures are to stay as they are, CPUs make the batches: they alone tell which are drawn.
    there = part == "white" and not train.drawn and is_white(mixture) and DevicePool.fits(pool, train.device)
    if there or sorting:  # their batches are cheap, and what they are made from is large
        train = replace(train, workers=0)
    if init and only not in (None, "estimator"):
        recipe.guessing = 0.0
    teacher = _load_elder(elder, config) if elder else None
    if teacher:
        network = frozen_module(teacher, "estimator").to(train.device)
        recipe.elder = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    cleaning = load_weights(cleaner) if cleaner else None
    goal = {"task": task, "loss": loss} | _bound_to(only, begun, quantile, teacher, anew, cleaning)
    lessons: RestoreRecipe | SorterRecipe = sorting or recipe
    evaluate = sorting.evaluate if sorting else _validate(validation, train.seed, unit, soft, part)

    def prepare(trainer: Trainer) -> None:
        if cleaning and trainer.progress < 1:
            recipe.cleaned = cleaned(pool, cleaning, train.threads)
            if train.drawn and elder is None:
                recipe.drawings = pool.drawings()
        if there and trainer.progress < 1:
            recipe.white_noise = WhiteNoise(
                DevicePool(pool, train.device, train.crop), mixture, train.batch,
                (recipe.estimated, recipe.estimated_other), recipe.overstated, recipe.MOST_OVERSTATED,
            )  # fmt: skip
            say(f"batches are made on {train.device}")
        if sorting:
            assert begun is not None
            _try_networks(begun, sorting, recipe, validation, trainer)

    return train_by(lessons, model, config, train, data, evaluate, resume, goal, {"task": task},
                    prepare=prepare)  # fmt: skip


def _check_goal(
    only: str | None, soft: bool, loss: str, elder: str | None, anew: str, quantile: float,
    cleaner: str | None,
) -> None:  # fmt: skip
    """Raise ConfigError where what is asked for does not go together, in the words of the command."""
    if loss != "l1" and only in ("sorter", "estimator"):
        raise ConfigError(f"--loss {loss} is about denoising, not about --only {only}")
    for option, given in (("elder", elder), ("quantile", quantile != MEDIAN)):
        if given and only not in (None, "estimator"):
            raise ConfigError(f"--{option} is about the estimator, which --only {only} keeps as it is")
    if anew != "noise" and not elder:
        raise ConfigError("--anew is about what an --elder does not teach: give one")
    estimating = only == "estimator" and elder is not None
    if cleaner and (soft or not (only == "denoiser" or estimating)):
        raise ConfigError(
            "--cleaner is for --only denoiser, or for --only estimator beside an --elder, and about noise"
        )
    if soft and only in EXPERT:
        raise ConfigError(f"--only {only} is about noise, not about --task blur")


def _usual_mixture(model: nn.ModuleDict, only: str | None) -> Mixture:
    """Of `MIXTURES` that for what is trained."""
    beside = only == "denoiser" and "white" in model  # an expert, which has the white noise
    named = "other" if beside else only
    return MIXTURES[named if named in MIXTURES else "noise"]


def _bound_to(
    only: str | None, begun: Weights | None, quantile: float, elder: Weights | None, anew: str,
    cleaner: Weights | None,
) -> dict[str, str]:  # fmt: skip
    """What a checkpoint is about beside task and loss, so that no other training goes on with it."""
    goal = {}
    if only in EXPERT:
        # An expert may be as large as its denoiser: nothing else tells their checkpoints apart.
        goal["only"] = only
        if only == "sorter" and begun is not None:  # what it learns is about its networks
            goal["networks"] = begun.hash
    if quantile != MEDIAN:
        goal["quantile"] = str(quantile)
    if elder:
        goal["elder"] = f"{elder.config.name} {elder.hash}"
        if anew != "noise":
            goal["anew"] = anew
    if cleaner:
        goal["cleaner"] = f"{cleaner.config.name} {cleaner.hash}"
    return goal


def _try_networks(
    begun: Weights, sorting: SorterRecipe, recipe: RestoreRecipe, validation: ImagePool, trainer: Trainer
) -> None:
    """Compute what the networks that a sorter is to choose from make of crops: all that it learns from."""
    train = recipe.config
    seed = train.seed, trainer.rank
    networks = load(begun, threads=train.threads)
    assert isinstance(networks, Denoiser)
    if not trainer.rank:  # which evaluates
        sorting.untrained = outcomes(networks, replace(recipe, pool=validation), UNTRAINED, seed)
    if trainer.progress < 1:
        share = ceil(table_size(train) / trainer.processes)
        sorting.table = outcomes(networks, recipe, share, seed, quiet=trainer.rank > 0)
