"""A critic that learns to tell a decoder's pictures from the originals, for the decoder to deceive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from .trainer import average_over_processes, mean_where

CELL = 8  # pixels along one axis for which there is one score
RATE = 5e-4  # the critic's learning rate, the same throughout
FROM, WHOLE = 0.03, 0.08  # shares of a training before a critic has a say, and its whole one
REST = 0.4  # mistakes (ln 2 is chance) below which it learns no more until it makes more of them
LIMIT = 1.5  # its pull on a picture, at most, relative to the pull of the mean absolute error


class Critic(nn.Sequential):
    """Scores how much of an original each place of a picture is.

    A critic of patches (Isola et al. 2017, arXiv:1611.07004) that sees 34 x 34 pixels for every 8 x 8. It
    is asked which of a decoder's picture and its original is which (Jolicoeur-Martineau 2018,
    arXiv:1807.00734), so that what the place shows is no help, only how. Its parameters want no gradient:
    `learn` is all that changes them. The state dict has the optimizer's state too.

    Parameters
    ----------
    limit : of its pull on a picture, relative to that of the mean absolute error.
    """

    def __init__(self, limit: float = LIMIT) -> None:
        channels, strides = (12, 48, 96, 128, 128), (1, 2, 2, 1)
        layers: list[nn.Module] = [nn.PixelUnshuffle(2)]
        for c, m, stride in zip(channels, channels[1:], strides, strict=False):
            layers += [nn.Conv2d(c, m, 3, stride, 1), nn.LeakyReLU(0.2)]
        super().__init__(*layers, nn.Conv2d(channels[-1], 1, 1))
        self.requires_grad_(False)
        self.limit = limit
        self.optimizer = torch.optim.Adam(self.parameters(), RATE, betas=(0.5, 0.99))

    def get_extra_state(self) -> Any:
        return self.optimizer.state_dict()

    def set_extra_state(self, state: Any) -> None:
        self.optimizer.load_state_dict(state)

    def judge(
        self, out: Tensor, x: Tensor, counts: Tensor, progress: float, weight: float
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """`learn`, and what deceiving it counts in the decoder's loss, by how far the training is (0 to 1).

        One that has learned nothing yet has no advice to give: 0. One that is never mistaken grows steeper
        from step to step and would draw the picture anywhere. So its gradient is limited, relative to that
        of the picture's error (Esser et al. 2021, arXiv:2012.09841, make them equal). Returns that and what
        to log, of which ``pull`` is the gradient's relative length before the limit. The first three
        arguments are those of `learn`.
        """
        logs = {"critic": self.learn(out, x, counts)}
        weight *= min((progress - FROM) / (WHOLE - FROM), 1.0)
        if weight <= 0:
            return 0.0, logs
        recognised = self.recognised(out, x, counts)
        (gradient,) = torch.autograd.grad(recognised, out)
        values = out.shape[1] * counts.sum()  # each one's error has a gradient of 1 / values
        pull = weight * gradient.norm() * values.sqrt()
        weight = weight * (self.limit / pull.clamp(min=self.limit))
        # Of this value and with this gradient, without a second way back through the critic.
        advice = weight * (recognised.detach() + ((out - out.detach()) * gradient).sum())
        return advice, logs | {"recognised": recognised.detach(), "pull": pull}

    def learn(self, out: Tensor, x: Tensor, counts: Tensor) -> Tensor:
        """One step: returns how badly it told them apart before (ln 2 is chance, 0 without a mistake).

        Where that is less than `REST` it does not change: a decoder has nothing to learn from a critic that
        is far ahead.

        Parameters
        ----------
        out, x : the decoder's picture and the original (N, 3, H, W), values around [0, 1].
        counts : (N, 1, H, W), 1 where ``out`` counts and 0 elsewhere; there it is replaced by ``x``.
        """
        weights = {name: p.detach().requires_grad_() for name, p in self.named_parameters()}
        lead = _lead(partial(functional_call, self, weights), out.detach(), x, counts)
        mistakes = mean_where(F.softplus(-lead), F.max_pool2d(counts, CELL))
        everywhere = mistakes.detach().clone()
        average_over_processes([everywhere])
        if not torch.isfinite(everywhere) or everywhere < REST:
            return mistakes.detach()
        gradients = torch.autograd.grad(mistakes, list(weights.values()))
        average_over_processes(gradients)
        if not all(torch.isfinite(gradient).all() for gradient in gradients):  # else it never recovers
            return mistakes.detach()
        for p, gradient in zip(self.parameters(), gradients, strict=True):
            p.grad = gradient
        self.optimizer.step()
        return mistakes.detach()

    def recognised(self, out: Tensor, x: Tensor, counts: Tensor) -> Tensor:
        """What the decoder has to lower: the same with the roles exchanged. Arguments as in `learn`."""
        return mean_where(F.softplus(_lead(self, out, x, counts)), F.max_pool2d(counts, CELL))


def _lead(scores: Callable[[Tensor], Tensor], out: Tensor, x: Tensor, counts: Tensor) -> Tensor:
    """By how much the original's scores are above those of the decoder's picture."""
    shown = torch.where(counts > 0, out, x)
    return (scores(2 * x - 1) - scores(2 * shown - 1)).float()
