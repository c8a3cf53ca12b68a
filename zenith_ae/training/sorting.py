"""Training of a sorter, which tells which of a denoiser's two networks makes the better picture of it.

Neither network changes, so what either makes of a crop is computed once, before the training and by the
engine. A step is the sorter's alone then: thousands a minute, each crop seen many times in its 8 symmetries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..batches import orient
from ..files import say
from ..pipelines import Denoiser
from .trainer import TrainConfig, to_tensor

if TYPE_CHECKING:
    from .restore import RestoreRecipe

LEAST_ERROR = 1e-5  # squared, which is 50 dB: crops with less count as clean
MOST_AT_STAKE = 3.0  # decibels that one choice counts at most
LARGEST_TABLE = 20_000 * 128 * 128  # pixels: two gigabytes, ten minutes of one core for zenith-denoise
CROPS_A_MINUTE = 2_000  # of a training: a shorter one has fewer to learn from


@dataclass(frozen=True)
class Outcomes:
    """Degraded crops, float16 (N, H, W, 3), and the decibels that the expert gains there, float32 (N,).

    Of these `MOST_AT_STAKE` at most, either way.
    """

    crops: NDArray[np.float16]
    gain: NDArray[np.float32]


def table_size(train: TrainConfig) -> int:
    """How many crops a training learns from."""
    wanted = train.batch * train.steps if train.steps else CROPS_A_MINUTE * ceil(train.minutes or 0)
    return min(wanted, max(train.batch, LARGEST_TABLE // train.crop**2))


def outcomes(
    model: Denoiser, recipe: RestoreRecipe, count: int, seed: tuple[int, ...], quiet: bool = False
) -> Outcomes:
    """What both networks of a model make of ``count`` of a recipe's crops; how far it is goes to stderr.

    They are told the true levels, or those that the model estimates where the recipe says so.
    """
    size = recipe.config.crop
    crops, gain = np.empty((count, size, size, 3), np.float16), np.empty(count, np.float32)
    step = min(recipe.config.batch, count)
    for first in range(0, count, step):
        batch = recipe.lessons(np.random.default_rng((*seed, first)))
        degraded, target, level, estimated = (values[: count - first] for values in batch[:4])
        if "estimator" in model.config.parts:
            own = model.estimate(degraded, "RGB").levels / 255
            level = np.where(estimated[:, None, None], own, level)
        general, expert = (
            _mean_squares(np.clip(degraded + model.engine.run(part, degraded, plane=level), 0, 1) - target)
            for part in ("denoiser", "white")
        )
        some = slice(first, first + step)
        crops[some], gain[some] = degraded, 10 * np.log10(general / expert)
        done = min(first + step, count)
        if not quiet and first // 2000 != done // 2000:
            say(f"both networks have made {done}/{count} crops")
    return Outcomes(crops, gain.clip(-MOST_AT_STAKE, MOST_AT_STAKE))


def _mean_squares(error: NDArray) -> NDArray:
    """The mean squared error of each crop (N, H, W, C), on a floor of `LEAST_ERROR`: (N,)."""
    return np.mean(error**2, axis=(1, 2, 3)) + LEAST_ERROR


@dataclass
class SorterRecipe:
    """The loss of one step: a wrong choice counts the decibels that it costs.

    A crop's log odds, positive for the expert, are the mean of what the sorter says all over it.
    """

    config: TrainConfig
    table: Outcomes = field(init=False)  # these two take minutes: made once a training is sure to begin
    untrained: Outcomes = field(init=False)  # of other pictures

    def make_batch(self, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        chosen = rng.integers(len(self.table.gain), size=self.config.batch)
        ways = rng.integers(8, size=len(chosen))
        crops = [orient(self.table.crops[i : i + 1], int(w))[0] for i, w in zip(chosen, ways, strict=True)]
        return np.stack(crops), self.table.gain[chosen]

    def loss(
        self, model: nn.ModuleDict, batch: tuple[NDArray, NDArray], progress: float
    ) -> tuple[Tensor, dict]:
        gain = torch.from_numpy(batch[1]).to(self.config.device)
        odds = _odds(model, to_tensor(batch[0], self.config.device))
        wrong = F.binary_cross_entropy_with_logits(odds, (gain > 0).float(), reduction="none")
        return (gain.abs() * wrong).mean(), _lost(odds, gain)

    def evaluate(self, model: nn.ModuleDict) -> dict[str, float]:
        """What the choices cost on pictures that were not trained with."""
        device = self.config.device
        steps = range(0, len(self.untrained.gain), self.config.batch)
        crops = (self.untrained.crops[i : i + self.config.batch] for i in steps)
        odds = torch.cat([_odds(model, to_tensor(some, device)) for some in crops])
        lost = _lost(odds, torch.from_numpy(self.untrained.gain).to(device))
        return {f"untrained_{name}": value for name, value in lost.items()}


def _odds(model: nn.ModuleDict, degraded: Tensor) -> Tensor:
    return model["sorter"](degraded).float().mean(dim=(1, 2, 3))


def _lost(odds: Tensor, gain: Tensor) -> dict[str, float]:
    """Decibels that the wrong choices cost, and that all would cost if they were wrong."""
    lost = gain.abs() * ((odds > 0) != (gain > 0))
    return {"lost": float(lost.mean()), "at_stake": float(gain.abs().mean())}
