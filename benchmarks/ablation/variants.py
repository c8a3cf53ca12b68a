"""The networks that the ablation compares: layer lists with the size at 1/8 resolution left open.

Each variant differs from its reference, the first of its task, in one choice. What the layer
vocabulary cannot say (`Variant.change`) is done to the torch module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from zenith_ae.models import modules
from zenith_ae.models.spec import (
    Add,
    Clamp,
    Conv,
    Keep,
    Layer,
    Layers,
    Linear,
    PixelShuffle,
    PixelUnshuffle,
    Relu,
    ZenithBlock,
)
from zenith_ae.models.wht import wht_mix

#: Latent channels of the decoders: FLUX.2's.
LATENT = 32


@dataclass(frozen=True)
class Variant:
    """A network to compare.

    Attributes
    ----------
    name, question : what it is, and the choice that it bears on.
    task : "decoder" (latents -> picture) or "denoiser".
    layers : (channels, hidden channels at 1/8 resolution) -> layers.
    ratio : hidden channels of a channel at 1/8, about; the search keeps to it.
    size : fixed (channels, hidden), or None to search for the reference's latency.
    change : done to the torch module before training, which may replace it.
    seed : of weights and batches.
    """

    name: str
    question: str
    task: str
    layers: Callable[[int, int], Layers]
    ratio: float = 0.5
    size: tuple[int, int] | None = None
    change: Callable[[nn.Module], nn.Module] | None = None
    seed: int = 0


# --- layers ---------------------------------------------------------------------------------


def blocks(channels: int, hidden: int, count: int, every: int = 0, tile: int = 8, **options: bool) -> Layers:
    """``count`` Zenith blocks, every ``every``-th one with Walsh-Hadamard mixing."""
    return tuple(
        ZenithBlock(channels, hidden, tile if every and i % every == 0 else 0,
                    separable=every > 0 and i % every == 0 and options.get("separable", False))
        for i in range(1, count + 1)
    )  # fmt: skip


def bottlenecks(channels: int, hidden: int, count: int, label: str) -> Layers:
    """Residual blocks with a dense 3x3 convolution where a Zenith block has a depthwise one."""
    layers: list[Layer] = []
    for i in range(count):
        skip = f"{label}.{i}"
        layers += [Keep(skip), Linear(channels, hidden), Relu(), Conv(hidden, hidden), Relu(),
                   Linear(hidden, channels), Add(skip)]  # fmt: skip
    return tuple(layers)


def convolutions(channels: int, hidden: int, count: int, label: str) -> Layers:
    """Plain residual blocks of two 3x3 convolutions."""
    layers: list[Layer] = []
    for i in range(count):
        skip = f"{label}.{i}"
        layers += [Keep(skip), Conv(channels, hidden), Relu(), Conv(hidden, channels), Add(skip)]
    return tuple(layers)


def decoder(
    c: int, m: int, *, depth: int = 8, every: int = 4, tile: int = 8, separable: bool = False,
    ratio: float = 0.5, quarter: int = 3, half: int = 1, dense: bool = False,
) -> Layers:  # fmt: skip
    """The decoder of zenith-taesd-lite (the defaults, c = 384 and m = 192) and its relatives.

    ``depth``, ``quarter`` and ``half`` are the blocks at 1/8, 1/4 and 1/2. With no block at a
    resolution, the shuffles up to the next one that has some (or to the picture) are one.
    """
    middle, upper = int(128 * ratio), int(64 * ratio)
    if dense:
        at8, at4, at2 = (
            bottlenecks(c, m, depth, "8"), bottlenecks(128, 32, quarter, "4"), bottlenecks(64, 16, half, "2"),
        )  # fmt: skip
    else:
        at8 = blocks(c, m, depth, every, tile, separable=separable)
        at4, at2 = blocks(128, middle, quarter), blocks(64, upper, half)
    head: Layers = (Clamp(), Linear(LATENT, c), Relu(), *at8)
    if not quarter:
        return (*head, Linear(c, 192), PixelShuffle(8))
    head = (*head, Linear(c, 512), PixelShuffle(2), *at4)
    if not half:
        return (*head, Linear(128, 48), PixelShuffle(4))
    return (*head, Linear(128, 256), PixelShuffle(2), *at2, Linear(64, 12), PixelShuffle(2))


def unet(c: int, m: int, *, tiles: tuple[int, int, int] = (8, 8, 4), conv: bool = False) -> Layers:
    """The denoiser of zenith-deblur (the defaults, c = m = 192) and its relatives.

    ``tiles`` at 1/2, 1/4 and 1/8 resolution. ``conv`` has the same blocks of 3x3 convolutions,
    with fewer channels at 1/2 and 1/4.
    """
    a, b = (16, 32) if conv else (48, 96)

    def level(channels: int, hidden: int, count: int, every: int, tile: int, label: str) -> Layers:
        if conv:
            return convolutions(channels, hidden, count, label)
        return blocks(channels, hidden, count, every if tile else 0, tile)

    return (
        PixelUnshuffle(2), Linear(16, a), *level(a, a, 2, 2, tiles[0], "in 2"), Keep("half"),
        PixelUnshuffle(2), Linear(4 * a, b), *level(b, b, 4, 4, tiles[1], "in 4"), Keep("quarter"),
        PixelUnshuffle(2), Linear(4 * b, c), *level(c, m, 8, 3, tiles[2], "8"),
        Linear(c, 4 * b), PixelShuffle(2), Add("quarter"), *level(b, b, 4, 4, tiles[1], "out 4"),
        Linear(b, 4 * a), PixelShuffle(2), Add("half"), *level(a, a, 2, 2, tiles[0], "out 2"),
        Linear(a, 12), PixelShuffle(2),
    )  # fmt: skip


# --- what the vocabulary cannot say ---------------------------------------------------------


class ShiftedBlock(modules.ZenithBlock):
    """A Zenith block whose tiles begin half a tile before the picture."""

    def forward(self, x: Tensor) -> Tensor:
        shift = self.layer.tile // 2
        u = F.relu(self.compress(x))
        mixed = wht_mix(F.pad(u, (shift, 0, shift, 0)), self.gate, self.threshold)[:, :, shift:, shift:]
        return x + self.expand(F.relu(self.eyes(u) + mixed))


def shift_alternate(network: nn.Module) -> nn.Module:
    """Shift the tiles of every second spectral block."""
    assert isinstance(network, modules.Network)
    spectral = [i for i, layer in enumerate(network.layers) if getattr(layer, "tile", 0)]
    for i in spectral[1::2]:
        shifted = ShiftedBlock(network.layers[i])  # type: ignore[arg-type]
        shifted.load_state_dict(network[i].state_dict())
        network[i] = shifted
    return network


def gate_alone(network: nn.Module) -> nn.Module:
    """Freeze the thresholds at zero."""
    for name, parameter in network.named_parameters():
        if name.endswith("threshold"):
            parameter.requires_grad_(False).zero_()
    return network


def small_gates(network: nn.Module) -> nn.Module:
    """Start gates at a tenth of their usual spread, so that transforms at first say little."""
    for name, parameter in network.named_parameters():
        if name.endswith("gate"):
            parameter.data.mul_(0.1)
    return network


class WithLatent(nn.Module):
    """Adds a linear view of the latents, enlarged bilinearly, to what a decoder makes of them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.view = nn.Conv2d(LATENT, 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        view = F.interpolate(self.view(z), scale_factor=8, mode="bilinear", align_corners=False)
        return self.network(z) + view


def small_branches(network: nn.Module) -> nn.Module:
    """Scale each residual branch's last layer as a Zenith block does, so that branches start small."""
    assert isinstance(network, modules.Network)
    for i, layer in enumerate(network.layers):
        if isinstance(layer, Add) and "." in layer.name:
            network[i - 1].weight.data.mul_(0.3)  # type: ignore[operator, union-attr]
    return network


# --- the list -------------------------------------------------------------------------------

_LITE, _UNET = (384, 192), (192, 192)
_decoder = partial(Variant, task="decoder")
_denoiser = partial(Variant, task="denoiser", ratio=1)

VARIANTS: tuple[Variant, ...] = (
    _decoder("lite", "reference", layers=decoder, size=_LITE),
    _decoder("lite, other seed", "reference", layers=decoder, size=_LITE, seed=1),
    _decoder("no WHT", "WHT", layers=partial(decoder, every=0)),
    _decoder("WHT in every 2nd block", "WHT", layers=partial(decoder, every=2)),
    _decoder("separable", "WHT", layers=partial(decoder, separable=True)),
    _decoder("gate alone", "WHT", layers=decoder, size=_LITE, change=gate_alone),
    _decoder("shifted tiles", "WHT", layers=decoder, size=_LITE, change=shift_alternate),
    _decoder("T = 4", "tile", layers=partial(decoder, tile=4)),
    _decoder("T = 16", "tile", layers=partial(decoder, tile=16)),
    _decoder("hidden 1/4", "expansion", layers=partial(decoder, ratio=0.25), ratio=0.25),
    _decoder("hidden 1", "expansion", layers=partial(decoder, ratio=1), ratio=1),
    _decoder("4 blocks at 1/8", "depth", layers=partial(decoder, depth=4)),
    _decoder("16 blocks at 1/8", "depth", layers=partial(decoder, depth=16)),
    _decoder("all at 1/8", "place of work", layers=partial(decoder, depth=12, quarter=0)),
    _decoder("none at 1/2", "place of work", layers=partial(decoder, quarter=4, half=0)),
    _decoder("6 blocks at 1/4", "place of work", layers=partial(decoder, quarter=6)),
    _decoder("3 blocks at 1/2", "place of work", layers=partial(decoder, half=3)),
    _decoder("dense 3x3", "local view", layers=partial(decoder, dense=True), ratio=0.25,
             change=small_branches),
    _decoder("latent residual", "residual", layers=decoder, size=_LITE, change=WithLatent),
    _denoiser("u-net", "reference", layers=unet, size=_UNET),
    _denoiser("u-net, other seed", "reference", layers=unet, size=_UNET, seed=1),
    _denoiser("u-net, no WHT", "WHT", layers=partial(unet, tiles=(0, 0, 0))),
    _denoiser("u-net, small gates", "WHT", layers=unet, size=_UNET, change=small_gates),
    _denoiser("u-net, T = 4", "tile", layers=partial(unet, tiles=(4, 4, 4))),
    _denoiser("u-net, T = 8", "tile", layers=partial(unet, tiles=(8, 8, 8))),
    _denoiser("u-net of 3x3 convolutions", "local view", layers=partial(unet, conv=True),
              change=small_branches),
)  # fmt: skip
