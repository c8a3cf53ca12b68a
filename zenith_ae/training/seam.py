"""Where the layers that a hybrid shares with its teacher meet its own, and what an encoder sees there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import ConfigError
from ..models.modules import Network
from ..models.spec import Layers, ModelConfig, is_global, out_scale, required_input
from .distill import FACTOR
from .trainer import mean_where, to_tensor

LATTICE_WEIGHT = 1.0  # of `lattice_error` in a decoder's loss
LOOK = 4  # pixels along a side for one feature of a whole encoder (`seam_to_look`)
SIDE = 256  # pixels of the pieces in which the spread of features is measured


@dataclass(frozen=True)
class Seam:
    """Where the ``shared`` layers of a part meet its own, which stand for those of the teacher's.

    There is one feature for ``stride`` x ``stride`` pixels. ``margin`` features about a crop's border the
    new layers see beyond the crop.
    """

    part: str
    shared: int
    stride: int
    margin: int

    @property
    def kept(self) -> slice:
        """Which layers of the part are shared."""
        return slice(-self.shared, None) if self.part == "encoder" else slice(0, self.shared)

    @property
    def own(self) -> slice:
        """Which are not."""
        return slice(0, -self.shared) if self.part == "encoder" else slice(self.shared, None)

    def inner(self, network: Network, x: Tensor) -> Tensor:
        """The shared layers."""
        return network(x, self.kept.start, self.kept.stop)

    def outer(self, network: Network, x: Tensor) -> Tensor:
        """All other layers."""
        return network(x, self.own.start, self.own.stop)


def find_seam(config: ModelConfig, teacher: ModelConfig, part: str) -> Seam:
    """The seam between the layers at the inner end that both have, and the rest.

    A layer that changes the resolution right there is left to the rest: there are fewer features beyond it.

    Raises
    ------
    ConfigError
        If there are no such layers, or the rest does not fit between them and the picture.
    """
    mine, theirs = config.parts[part], teacher.parts[part]
    order = -1 if part == "encoder" else 1
    pairs = zip(mine[::order], theirs[::order], strict=False)
    alike = [layer for layer, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    while alike and alike[-1].scale != 1:
        alike.pop()
    shared = len(alike)
    own, replaced = (
        layers[: len(layers) - shared] if part == "encoder" else layers[shared:] for layers in (mine, theirs)
    )
    hybrid = own and any(layer.params() for layer in alike) and out_scale(own) == out_scale(replaced)
    if not hybrid or any(map(is_global, own)):
        raise ConfigError(
            f"the {part} of {config.name} is no hybrid of {teacher.name}'s: use `train distill`"
        )
    return _behind(own, part, shared)


def seam_to_look(config: ModelConfig) -> Seam:
    """Where the features of a whole encoder are looked at: at 1/4 resolution, before its layers there.

    A hybrid's are looked at where its own layers end (`find_seam`), as far in or farther.

    Raises
    ------
    ConfigError
        If that is not in front of all its layers that see the whole picture.
    """
    layers = config.parts["encoder"]
    for end in range(1, len(layers)):
        if out_scale(layers[:end]) <= Fraction(1, LOOK):
            if any(map(is_global, layers[:end])):
                break
            return _behind(layers[:end], "encoder", len(layers) - end)
    raise ConfigError(f"the encoder of {config.name} has no features at 1/{LOOK} resolution")


def _behind(own: Layers, part: str, shared: int) -> Seam:
    """The seam between a part's ``own`` layers and the ``shared`` ones."""
    scale = out_scale(own)
    if part == "encoder":
        stride = int(1 / scale)
        first, last = required_input(own, 0, 1)  # pixels
        margin = -(-max(-first, last - stride) // stride)
    else:
        stride = int(scale)
        first, last = required_input(own, 0, stride)  # features
        margin = max(-first, last - 1)
    return Seam(part, shared, stride, margin)


def lattice_error(error: Tensor) -> Tensor:
    """How much of an error (N, C, H, W) is the same in every 4 x 4 pixels.

    A decoder that is to show as much detail as the original, and does not know which, finds that dots at
    the places of its pixel shuffles will do. The mean of each place in a cell, over 8 x 8 cells, less the
    mean of all places: nothing for noise or texture, the dots themselves for a lattice.
    """
    cell, window = 4, 8
    places = F.pixel_unshuffle(error, cell)
    places = F.avg_pool2d(places, min(window, *places.shape[2:]), window // 2)
    places = places.unflatten(1, (error.shape[1], cell**2))
    return (places - places.mean(2, keepdim=True)).abs().mean()


def tone_error(error: Tensor, cells: Sequence[int] = (8, 32)) -> Tensor:
    """How wrong the brightness and colour of an error's (N, C, H, W) surfaces are, whatever their detail.

    Of an error of single pixels that of a surface is a small part, and people see it sooner: a grey sky
    gone green. The mean absolute error of the means of ``cell`` x ``cell`` pixels, half overlapping (so
    that they leave no grid), summed over the cells' sizes. What lies beyond the last whole cell is left out.
    """
    total = error.new_zeros(())
    for cell in cells:
        size = min(cell, *error.shape[2:])
        total = total + F.avg_pool2d(error, size, max(1, size // 2)).abs().mean()
    return total


def spread_of(features: Sequence[Tensor]) -> Tensor:
    """The standard deviation of each feature (C, 1, 1) over maps (1, C, h, w).

    Next to a feature that hardly ever changes rounding would be a large error, so there is a floor.
    """
    return torch.cat([f.float().flatten(2)[0] for f in features], 1).std(1)[:, None, None] + 1e-3


class PerceptualError:
    """How far apart two pictures are by an encoder: by its features at its seam, and by its latents.

    Johnson et al. 2016 (arXiv:1603.08155) take a classifier's features. Those of an encoder are at hand,
    cost little up to the seam, and hold whatever of a picture its latents tell. Beyond it the latents
    themselves should come back when a decoder's picture is encoded again (cycle consistency, Zhu et al.
    2017, arXiv:1703.10593).

    Parameters
    ----------
    encoder, seam : the encoder, which stays as it is, and its seam.
    pictures : (H, W, 3) uint8; the spread of each feature and latent channel is that in a few of them.
    weight, cycle_weight : what the error of the features counts in a loss, and that of the latents; where
        the latter is 0 they are not computed.
    """

    def __init__(
        self,
        encoder: Network,
        seam: Seam,
        pictures: Sequence[np.ndarray],
        weight: float,
        cycle_weight: float = 0.0,
    ) -> None:
        self.encoder, self.seam = encoder, seam
        self.weights = {"perceptual": weight, "cycle": cycle_weight}
        device = next(encoder.parameters()).device
        features, latents = [], []
        for picture in pictures[:: max(1, len(pictures) // 16)]:
            h, w = (min(n // FACTOR * FACTOR, SIDE) for n in picture.shape[:2])
            with torch.no_grad():
                features.append(seam.outer(encoder, to_tensor(picture[None, :h, :w], device)))
                latents.append(seam.inner(encoder, features[-1]))
        self.spread, self.latent_spread = spread_of(features), spread_of(latents)

    def __call__(self, out: Tensor, x: Tensor, counts: Tensor) -> dict[str, Tensor]:
        """Mean absolute errors in units of the spread: ``perceptual`` of features, ``cycle`` of latents.

        Parameters
        ----------
        out, x : result and original (N, 3, H, W), values around [0, 1].
        counts : (N, 1, H, W), 1 where ``out`` counts and 0 elsewhere. There it is replaced by ``x``, and
            the features that see nothing else are left out. Latents see the whole crop, so their error is
            divided by the share of these features that is left.
        """
        shown = torch.where(counts > 0, out, x)
        found = self.seam.outer(self.encoder, shown).float()
        with torch.no_grad():
            wanted = self.seam.outer(self.encoder, x).float()
        wrong = (found - wanted).abs() / self.spread
        touched = F.max_pool2d(counts, self.seam.stride)
        seen = F.max_pool2d(touched, 2 * self.seam.margin + 1, 1, self.seam.margin)
        errors = {"perceptual": mean_where(wrong.mean(1, keepdim=True), seen)}
        if self.weights["cycle"]:
            with torch.no_grad():
                latents = self.seam.inner(self.encoder, wanted).float()
            lost = (self.seam.inner(self.encoder, found).float() - latents).abs() / self.latent_spread
            errors["cycle"] = lost.mean() / seen.mean().clamp(min=1e-6)
        return errors
