"""Training of an autoencoder in a latent space of its own, end to end and with no teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..models.spec import Clamp, ModelConfig
from .critic import Critic
from .data import VALIDATED, ImagePool, load_pool, middle, random_crops
from .distill import FACTOR, crispness, lost_detail
from .restore import build_modules, load_into, log_error, train_by
from .seam import LATTICE_WEIGHT, lattice_error
from .trainer import TrainConfig, mean_scores, psnr, to_tensor


def latent_limit(config: ModelConfig) -> float:
    """Largest magnitude of a latent, from the Clamp that the encoder ends in.

    Raises
    ------
    ConfigError
        If the encoder does not end in one: its latents have no bound, and nothing to be stored in
        8 bits by.
    """
    last = config.parts["encoder"][-1] if "encoder" in config.parts else None
    if not isinstance(last, Clamp):
        raise ConfigError(f"{config.name} has no bounded latents of its own; use `zenith-ae train distill`, "
                          "for a hybrid `graft`")  # fmt: skip
    return last.limit


@dataclass
class AutoencodeRecipe:
    """The loss of one step, for encoder and decoder together.

    The mean absolute error of the round trip (or, ``loss_kind`` "psnr", the logarithm of each
    crop's mean squared error, see `zenith_ae.training.restore`), the error in the amount of fine
    `detail`, which may be no lattice, and a pull of each latent channel to mean 0 and variance 1,
    so that programs that work on latents meet numbers of one size. With a "critic" in the model
    the round trip is also to look such that this takes it for the original. The latents carry
    uniform noise as wide as a step of 8 bits, so that storing them so costs next to nothing.
    """

    pool: ImagePool
    config: TrainConfig
    channels: int
    limit: float
    loss_kind: str = "l1"
    detail_weight: float = 0.1
    moment_weight: float = 0.003
    critic_weight: float = 0.0

    def make_batch(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        config, side = self.config, self.config.crop // FACTOR
        crops = random_crops(self.pool, rng, config.batch, config.crop, scale_probability=0.3)
        return crops, rng.random((config.batch, side, side, self.channels), dtype=np.float32)

    def loss(self, model: nn.ModuleDict, batch: Any, progress: float) -> tuple[Tensor, dict[str, float]]:
        x = to_tensor(batch[0], self.config.device)
        z = model["encoder"](x.contiguous(memory_format=torch.channels_last)).float()
        step = 2 * self.limit / 255
        noise = (to_tensor(batch[1], self.config.device) - 0.5) * step
        out = model["decoder"]((z + noise).contiguous(memory_format=torch.channels_last)).float()
        error = out - x
        absolute = error.abs().mean()
        logs = {"l1": float(absolute.detach())}
        loss = absolute
        if self.loss_kind == "psnr":
            loss = log_error(error)
        if self.detail_weight:
            lost = lost_detail(out, x)
            loss = loss + self.detail_weight * lost
            logs["detail"] = float(lost.detach())
        lattice = lattice_error(error)
        loss = loss + LATTICE_WEIGHT * lattice
        logs["lattice"] = float(lattice.detach())
        if "critic" in model:
            everywhere = torch.ones_like(x[:, :1])
            advice, noted = cast(Critic, model["critic"]).judge(
                out, x, everywhere, progress, self.critic_weight
            )
            loss = loss + advice
            logs |= {name: float(value.detach()) for name, value in noted.items()}
        mean, variance = z.mean(dim=(0, 2, 3)), z.var(dim=(0, 2, 3))
        moments = (mean.square() + (variance - 1).square()).mean()
        logs["moments"] = float(moments.detach())
        return loss + self.moment_weight * moments, logs


def _validate(pool: ImagePool, limit: float) -> Callable[[nn.ModuleDict], dict[str, float]]:
    """Middles of pictures: round trip, the same with latents of 8 bits, and how the latents lie."""

    def scores(model: nn.ModuleDict) -> Iterator[dict[str, float]]:
        device = next(model.parameters()).device
        for picture in pool.images:
            cells = picture.shape[0] // FACTOR, picture.shape[1] // FACTOR
            x = to_tensor(picture[middle(cells, VALIDATED // FACTOR, FACTOR)][None], device)
            z = model["encoder"](x)
            out = model["decoder"](z).float().clamp(0, 1)
            step = 2 * limit / 255
            stored = model["decoder"]((z / step).round() * step)
            yield {"psnr": psnr(out, x), "psnr_8bit": psnr(stored, x), "sharpness": crispness(out, x),
                   "latent_std": float(z.std())}  # fmt: skip

    return lambda model: mean_scores(scores(model))


def train_autoencoder(
    config: ModelConfig,
    data: list[str],
    train: TrainConfig,
    init: str | None = None,
    resume: bool = True,
    loss: str = "l1",
    detail_weight: float = 0.1,
    critic_weight: float = 0.0,
) -> Path:
    """Train an autoencoder of its own latents; returns the weights file (``out/<name>.safetensors``).

    Parameters
    ----------
    config : an autoencoder whose encoder ends in a Clamp.
    data : folders and tar packs of pictures; 16 of them are kept for validation.
    train : schedule and output folder.
    init : weights file to start from, as far as its tensors fit.
    loss : "l1" or "psnr", see `AutoencodeRecipe`.
    detail_weight : weight of the error in the amount of fine detail; more is crisper, less has a
        higher PSNR.
    critic_weight : what deceiving a `Critic` counts in the loss, for a last phase.

    Raises
    ------
    ConfigError
        If the latents of the model are not bounded.
    """
    limit = latent_limit(config)
    torch.manual_seed(train.seed)
    everything = load_pool(data, train.drawn, FACTOR)
    pool, validation = everything.split(validation=16, seed=0)
    model = build_modules(config)
    if init:
        load_into(model, init)
    recipe = AutoencodeRecipe(pool, train, config.latent_channels, limit, loss, detail_weight,
                              critic_weight=critic_weight)  # fmt: skip
    if critic_weight:
        model["critic"] = Critic()
    evaluate = _validate(validation, limit)
    return train_by(recipe, model, config, train, data, evaluate, resume, {"loss": loss})
