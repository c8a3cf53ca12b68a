"""Muon: the optimizer of the matrices in a network."""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import Tensor, nn

SCALE = 4.0
MOMENTUM = 0.95
# Of the odd polynomial a x + b x^3 + c x^5, five times over: singular values from 0.002 to 1 come out
# between 0.68 and 1.21. They are those of Jordan et al. 2024.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for matrices and kernels.

    A step goes along the semi-orthogonal matrix nearest to the gradient's running mean, so that all of
    its directions are learned at the same pace. Kernels of convolutions are taken as matrices of
    channels out by all that is summed. Steps are like Adam's at the same rate (Liu et al. 2025,
    arXiv:2502.16982). A parameter group says by its ``scale`` what multiple of the common learning rate it is
    to have, here `SCALE`, which was found by short trainings of the denoiser from scratch; who sets rates (a
    `Trainer`) multiplies it in.

    ``torch.optim.Muon`` multiplies in bf16 only, which took more than half of a training's time on
    CPUs that emulate it, and matrix by matrix; here ``dtype`` is a choice, and all matrices of one
    shape go through together.

    Parameters
    ----------
    parameters : of two or more dimensions, float32, in any memory layout.
    dtype : what the polynomial is computed in, ``torch.float32`` or ``torch.bfloat16``.
    """

    def __init__(self, parameters: list[nn.Parameter], dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        super().__init__(parameters, {"lr": 1e-3, "scale": SCALE})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                mean = self.state[p]["momentum_buffer"]
                mean.lerp_(p.grad, 1 - MOMENTUM)
                update = p.grad.lerp(mean, MOMENTUM).flatten(1)  # Nesterov's
                alike[update.shape].append((p, update))
            for shape, moves in alike.items():
                updates = orthogonalize(torch.stack([update for _, update in moves]), self.dtype)
                size = -0.2 * math.sqrt(max(shape)) * group["lr"]  # of a root mean square like Adam's
                for (p, _), update in zip(moves, updates, strict=True):
                    p.add_(update.view(p.shape), alpha=size)


def orthogonalize(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Nearly semi-orthogonal matrices with the singular vectors of ``matrices``, (count, rows, columns).

    By Newton-Schulz iterations, which need products only. Singular values come out near 1, not at it,
    which is as good for training.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).to(dtype)
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)  # no singular value above 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
