"""Batches of white noise that are made where the network is: CPUs cannot make them as fast as a GPU trains.

The pictures lie in the device's memory, and crops, noise and levels are drawn there: what `random_crops` and
`Mixture` do on CPUs, for the kinds of noise that need neither a camera nor a JPEG.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Generator, Tensor

from ..batches import LUMA
from .data import SMALLEST_SCALE, ImagePool
from .degradations import BLUE_GAIN, KNOTS, RED_GAIN, RMS_WINDOW, UNEVEN, Mixture, Range

KINDS = ("gaussian", "poisson_gaussian", "salt_and_pepper")


class DevicePool:
    """Pictures in a device's memory, and a reduced copy of each, as one list of uint8 pixels.

    Parameters
    ----------
    pool : the pictures, (H, W, 3) each; each pixel is equally likely to be in a crop.
    device : of torch.
    size : side of the crops; no copy is reduced below it.
    reduced : probability of a crop from a reduced copy, by up to `SMALLEST_SCALE` with a Lanczos filter.
    """

    def __init__(self, pool: ImagePool, device: str | torch.device, size: int, reduced: float = 0.3) -> None:
        rng = np.random.default_rng(0)  # the same copies whenever a training goes on

        def smaller(picture: np.ndarray, scale: float) -> np.ndarray:
            sides = picture.shape[1::-1]
            sides = tuple(max(min(n, size), round(n * scale)) for n in sides)
            return np.asarray(Image.fromarray(picture).resize(sides, Image.Resampling.LANCZOS))

        scales = np.maximum(
            rng.uniform(SMALLEST_SCALE, 1, len(pool)), [min(1, size / min(p.shape[:2])) for p in pool.images]
        )
        with ThreadPoolExecutor() as executor:
            copies = list(executor.map(smaller, pool.images, scales)) if reduced else []
        pictures = [*pool.images, *copies]
        areas = np.array([p.shape[0] * p.shape[1] for p in pictures], np.int64)
        share = areas[: len(pool)] / areas[: len(pool)].sum()
        shares = np.concatenate([(1 - reduced) * share, reduced * share])[: len(pictures)]
        self.size = size
        self.device = torch.device(device)
        self._bounds = torch.tensor(np.cumsum(shares)[:-1], dtype=torch.float32, device=self.device)
        self._first = torch.tensor(np.cumsum(areas) - areas, device=self.device)
        self._sizes = torch.tensor([p.shape[:2] for p in pictures], device=self.device)
        self._pixels = torch.empty(int(areas.sum()), 3, dtype=torch.uint8, device=self.device)
        for place, picture in zip(self._pixels.split(areas.tolist()), pictures, strict=True):
            place.copy_(torch.tensor(picture).view(-1, 3))

    @staticmethod
    def fits(pool: ImagePool, device: str | torch.device) -> bool:
        """Whether the pictures and their copies take less than half of a GPU's memory."""
        if torch.device(device).type != "cuda":
            return False
        memory = torch.cuda.get_device_properties(device).total_memory
        return 4 * sum(picture.nbytes for picture in pool.images) < memory

    def crops(self, count: int, generator: Generator) -> Tensor:
        """Random square crops (count, 3, size, size) in [0, 1], each turned or mirrored in one of 8 ways.

        A picture smaller than the crop is continued by reflection.
        """
        size = self.size

        def draw(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, device=self.device)

        which = torch.searchsorted(self._bounds, draw(count), right=True)
        lengths = self._sizes[which]
        starts = (draw(count, 2) * (lengths - size + 1).clamp(min=1)).long()
        forward = torch.arange(size, device=self.device)
        mirrored = (draw(count, 2) < 0.5)[..., None]
        along = torch.where(mirrored, size - 1 - forward, forward)  # (count, axis, size)
        a, b = along[:, 0, :, None], along[:, 1, None, :]
        transposed = (draw(count) < 0.5)[:, None, None]
        axes = torch.where(transposed, a.mT, a), torch.where(transposed, b.mT, b)
        row, column = (
            _reflected(starts[:, i, None, None] + axes[i], lengths[:, i, None, None]) for i in range(2)
        )
        index = self._first[which][:, None, None] + row * lengths[:, 1, None, None] + column
        return self._pixels[index].permute(0, 3, 1, 2).float() / 255


def _reflected(position: Tensor, length: Tensor) -> Tensor:
    """Positions beyond a length, mirrored at its last one and at the first."""
    last = (length - 1).clamp(min=1)
    position = position % (2 * last)
    return torch.minimum(torch.where(position > last, 2 * last - position, position), length - 1)


def _to_linear(x: Tensor) -> Tensor:
    return torch.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def _from_linear(x: Tensor) -> Tensor:
    return torch.where(x <= 0.0031308, x * 12.92, 1.055 * x.clamp(min=0.0031308) ** (1 / 2.4) - 0.055)


def _local_rms(error: Tensor) -> Tensor:
    """Root mean square of an (N, C, H, W) error over channels and a square window: (N, 1, H, W)."""
    half = RMS_WINDOW // 2
    energy = F.pad(error.square().mean(1, keepdim=True), (half,) * 4, mode="reflect")
    return F.avg_pool2d(energy, RMS_WINDOW, 1).sqrt()


def is_white(mixture: Mixture) -> bool:
    """Whether a mixture is of `KINDS` alone, with levels as here."""
    return (
        not (mixture.weak or mixture.dotted)
        and sum(getattr(mixture, kind) for kind in KINDS) == mixture.whole
    )


def white_noise(
    clean: Tensor, mixture: Mixture, generator: Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noise that is independent from pixel to pixel, of its own kind and strength in each photograph.

    Parameters
    ----------
    clean : (N, 3, H, W) in [0, 1], with sides of more than 8.
    mixture : of Gaussian, Poisson-Gaussian and shot noise alone (`KINDS`).

    Returns
    -------
    (degraded, clean, sigma, gaussian)
        (N, 3, H, W), the same with some pictures made grey, (N, 1, H, W), and bool (N,): which are Gaussian.

    Raises
    ------
    ValueError
        If the mixture is of other kinds too.
    """
    weights = [getattr(mixture, kind) for kind in KINDS]
    if not is_white(mixture):
        raise ValueError(f"a mixture of {', '.join(KINDS)} alone is wanted")
    device, (n, _, height, width) = clean.device, clean.shape

    def uniform(low: float = 0.0, high: float = 1.0, shape: tuple[int, ...] = (1, 1, 1)) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=generator, device=device)

    def log_uniform(bounds: Range) -> Tensor:
        return uniform(math.log(bounds[0]), math.log(bounds[1])).exp()

    def normal() -> Tensor:
        return torch.randn(clean.shape, generator=generator, device=device)

    def alike(x: Tensor) -> Tensor:  # one noise for all channels where the picture is grey
        return torch.where(grey, x[:, 1:2], x)

    grey = uniform() < mixture.grey
    red, green, blue = LUMA.tolist()
    clean = torch.where(grey, red * clean[:, :1] + green * clean[:, 1:2] + blue * clean[:, 2:], clean)

    low, high = mixture.sigma
    knots = uniform(low, high, (1, KNOTS, KNOTS))
    varying = F.interpolate(knots, (height, width), mode="bilinear", align_corners=True)
    sigma = torch.where(uniform() < mixture.varying, varying, uniform(low, high))
    share = uniform(-UNEVEN, UNEVEN, (3, 1, 1)).exp()
    coloured = (clean.amax(1, keepdim=True) > clean.amin(1, keepdim=True)).flatten(1).any(1)
    share = torch.where((uniform() < mixture.uneven) & coloured[:, None, None, None], share, 1.0)
    gaussian = clean + sigma * share * alike(normal())
    sigma = sigma * share.square().mean(1, keepdim=True).sqrt()
    stored = (gaussian.clamp(0, 1) * 255).round() / 255
    gaussian = torch.where(uniform() < mixture.clipped, stored, gaussian)

    gain, read = log_uniform(mixture.photon_gain), log_uniform(mixture.read_noise)
    balance = torch.cat([uniform(*RED_GAIN), uniform(1.0, 1.0), uniform(*BLUE_GAIN)], 1)
    photons = torch.poisson(_to_linear(clean) / balance / gain, generator)
    developed = _from_linear(((photons * gain + read * normal()) * balance).clamp(0, 1))

    draw = uniform(shape=clean.shape[1:])
    draw = torch.where((uniform() < 0.5) & ~grey, draw, draw[:, :1])
    fraction = log_uniform(mixture.shot_fraction)
    shot = torch.where(draw < fraction, (draw >= fraction / 2).float(), clean)

    kind = uniform() * mixture.whole
    is_gaussian, is_shot = kind < weights[0], kind >= weights[0] + weights[1]
    degraded = torch.where(is_gaussian, gaussian, torch.where(is_shot, shot, alike(developed)))
    sigma = torch.where(is_gaussian, sigma, _local_rms(degraded - clean))
    return degraded, clean, sigma, is_gaussian.flatten()


class Batch(NamedTuple):
    """What a denoiser learns from: the fields of `Lessons` that an expert's loss needs."""

    degraded: Tensor
    target: Tensor
    sigma: Tensor
    estimated: Tensor  # (N, 1, 1, 1) bool: whether the level is the estimated one
    factor: Tensor  # (N, 1, 1, 1), by which the level is told too high


class WhiteNoise:
    """Makes a batch from a seed, the same one whenever it is asked for.

    Parameters
    ----------
    pool, mixture : where pictures come from, and their noise.
    count : number of a batch's crops.
    estimated : share of the pictures with Gaussian noise at their estimated level, and of the others.
    overstated, most : share told too high a level, and by what factor at most.
    """

    def __init__(
        self,
        pool: DevicePool,
        mixture: Mixture,
        count: int,
        estimated: tuple[float, float] = (0.0, 0.0),
        overstated: float = 0.0,
        most: float = 1.0,
    ) -> None:
        self.pool, self.mixture, self.count = pool, mixture, count
        self.estimated, self.overstated, self.most = estimated, overstated, most
        self._generator = Generator(pool.device)

    def __call__(self, seed: int) -> Batch:
        generator = self._generator.manual_seed(seed)
        clean = self.pool.crops(self.count, generator)
        degraded, clean, sigma, gaussian = white_noise(clean, self.mixture, generator)
        draw = torch.rand(3, self.count, 1, 1, 1, generator=generator, device=clean.device)
        share = torch.where(gaussian, *self.estimated)[:, None, None, None]
        factor = torch.where(draw[1] < self.overstated, 1 + (self.most - 1) * draw[2], 1.0)
        degraded, clean = (x.contiguous(memory_format=torch.channels_last) for x in (degraded, clean))
        return Batch(degraded, clean, sigma, draw[0] < share, factor)
