"""Torch modules built from layer lists: the reference, for training and for GPUs.

``Network(layers, in_channels)`` returns a module over NCHW tensors whose state dict has the
keys ``{layer index}.{parameter}``, the names that `ModelConfig.params` stores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import spec
from .spec import Layers
from .wht import hadamard, wht_mix, wht_mix_separable

if TYPE_CHECKING:
    from ..weights import Weights


class Linear(nn.Module):
    """1x1 convolution with a 2-D weight (cout, cin / groups)."""

    def __init__(self, layer: spec.Linear) -> None:
        super().__init__()
        self.groups = layer.groups
        self.weight = nn.Parameter(torch.empty(layer.cout, layer.cin // layer.groups))
        nn.init.kaiming_normal_(self.weight, nonlinearity="linear")
        self.bias = nn.Parameter(torch.zeros(layer.cout)) if layer.bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight[:, :, None, None], self.bias, groups=self.groups)


class Depthwise(nn.Module):
    """Depthwise 3x3 with a weight of shape (channels, 3, 3)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 3, 3) / 3)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight[:, None], self.bias, padding=1, groups=x.shape[1])


class ResBlock(nn.Module):
    """TAESD's residual block, with TAEF2's globally normalised pool stage on request."""

    def __init__(self, layer: spec.ResBlock) -> None:
        super().__init__()
        c, wide = layer.channels, layer.WIDTH * layer.channels
        self.conv = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1), nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1), nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1),
        )  # fmt: skip
        self.pool = (
            nn.Sequential(
                nn.Conv2d(c, wide, 1, bias=False), nn.GroupNorm(layer.GROUPS, wide), nn.ReLU(),
                nn.Conv2d(wide, c, 1, bias=False),
            )
            if layer.pool
            else None
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if self.pool is not None:
            x = x + self.pool(x)
        return F.relu(self.conv(x) + x)


class ZenithBlock(nn.Module):
    """See `zenith_ae.models.spec.ZenithBlock` for the equations."""

    gate: Tensor
    threshold: Tensor
    row_gate: Tensor
    row_threshold: Tensor
    column_gate: Tensor
    column_threshold: Tensor

    def __init__(self, layer: spec.ZenithBlock) -> None:
        super().__init__()
        self.layer = layer
        c, m, t, g = layer.channels, layer.hidden, layer.tile, layer.groups
        self.compress = Linear(spec.Linear(c, m, g))
        self.expand = Linear(spec.Linear(m, c, g))
        # Residual branches start small, so that a deep stack starts as nearly the identity.
        with torch.no_grad():
            self.compress.weight.mul_(2**0.5)
            self.expand.weight.mul_(0.3)
        if layer.eyes:
            self.eyes = Depthwise(m)
        if t:
            shape, names = ((t, m), ("row_", "column_")) if layer.separable else ((t, t, m), ("",))
            for name in names:
                self.register_parameter(f"{name}gate", nn.Parameter(torch.randn(shape) * 0.3))
                self.register_parameter(f"{name}threshold", nn.Parameter(torch.full(shape, 1e-3)))

    def forward(self, x: Tensor) -> Tensor:
        u = F.relu(self.compress(x))
        views = [self.eyes(u)] if self.layer.eyes else []
        if self.layer.tile and self.layer.separable:
            views.append(
                wht_mix_separable(
                    u, self.row_gate, self.row_threshold, self.column_gate, self.column_threshold
                )
            )
        elif self.layer.tile:
            views.append(wht_mix(u, self.gate, self.threshold))
        return x + self.expand(F.relu(sum(views[1:], views[0])))


class SpectralLinear(nn.Module):
    """See `zenith_ae.models.spec.SpectralLinear`."""

    permutation: Tensor

    def __init__(self, layer: spec.SpectralLinear) -> None:
        super().__init__()
        self.layer = layer
        self.in_scale = nn.Parameter(torch.randn(layer.size))
        self.out_scale = nn.Parameter(torch.randn(layer.size))
        self.bias = nn.Parameter(torch.zeros(layer.cout))
        self.register_buffer("permutation", torch.tensor(layer.permutation), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        n = self.layer.size
        x = F.pad(x, (0, 0, 0, 0, 0, n - self.layer.cin))[:, self.permutation]
        x = x * self.in_scale[:, None, None]
        x = torch.einsum("oi,nihw->nohw", hadamard(n, x.device, x.dtype), x) / n**0.5
        x = x * self.out_scale[:, None, None]
        return x[:, : self.layer.cout] + self.bias[:, None, None]


class Clamp(nn.Module):
    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x / self.limit) * self.limit


def _module(layer: spec.Layer) -> nn.Module:
    match layer:
        case spec.Conv():
            return nn.Conv2d(layer.cin, layer.cout, 3, layer.stride, 1, bias=layer.bias)
        case spec.Linear():
            return Linear(layer)
        case spec.ResBlock():
            return ResBlock(layer)
        case spec.ZenithBlock():
            return ZenithBlock(layer)
        case spec.SpectralLinear():
            return SpectralLinear(layer)
        case spec.PixelUnshuffle():
            return nn.PixelUnshuffle(layer.r)
        case spec.PixelShuffle():
            return nn.PixelShuffle(layer.r)
        case spec.Upsample():
            return nn.Upsample(scale_factor=2)
        case spec.Relu():
            return nn.ReLU()
        case spec.Clamp():
            return Clamp(layer.limit)
        case _:  # Keep and Add act in Network.forward
            return nn.Identity()


class Network(nn.Sequential):
    """The layers in order; Keep and Add carry skips. (N, C, H, W) -> (N, C', H', W').

    ``forward(x, start, stop)`` runs only the layers of that slice, which must not cut a skip.
    With ``gradient_checkpointing``, which diffusers sets, layers are computed again for their gradients.
    """

    gradient_checkpointing = False
    _gradient_checkpointing_func: Callable[..., Tensor]

    def __init__(self, layers: Layers, in_channels: int) -> None:
        for _ in spec.trace(layers, in_channels):  # raises ConfigError where layers do not fit
            pass
        super().__init__(*(_module(layer) for layer in layers))
        self.layers = layers

    def forward(self, x: Tensor, start: int | None = None, stop: int | None = None) -> Tensor:
        kept: dict[str, Tensor] = {}
        for layer, module in list(zip(self.layers, self, strict=True))[start:stop]:
            if isinstance(layer, spec.Keep):
                kept[layer.name] = x
            elif isinstance(layer, spec.Add):
                x = x + kept[layer.name]
            elif self.gradient_checkpointing and torch.is_grad_enabled():
                x = self._gradient_checkpointing_func(module, x)
            else:
                x = module(x)
        return x

    def __getitem__(self, index: int | slice) -> Any:
        """A layer, or a plain sequence of some: those of a slice need not be a network."""
        return nn.Sequential(*list(self)[index]) if isinstance(index, slice) else super().__getitem__(index)


def frozen_module(weights: Weights, part: str) -> Network:
    """A part of a model with its weights, in evaluation mode and without gradients."""
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        module = Network(weights.config.parts[part], weights.config.in_channels(part))
    module.load_state_dict({name: torch.from_numpy(t.copy()) for name, t in weights.part(part).items()})
    return module.eval().requires_grad_(False)
