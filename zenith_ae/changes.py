"""What a denoiser adds to pictures, and how much of it is taken.

A network predicts a residual. That is limited to what noise of the level can be (`limit`), before the shares
that a user asks for are taken of it (`changed`), without another run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .batches import LUMA, full_scale
from .errors import in_short
from .pixels import add_change, limit_change

# Noise is hardly ever more than so many times its standard deviation: what a network would change beyond is
# a thin stroke that it takes for a grain. A smaller number would keep some of what is no Gaussian noise.
_MOST_DEVIATIONS = 8
# From this level (0..255) on the limit grows with its fifth power, so that from twice as much on there is
# hardly any: where a few pixels are wrong, hot ones or shot noise, they are so by far more than the level
# says, which is of all around them. With 3 of 1000 pixels black or white that brings 8 dB.
_DOTTED = 2


class Change(NamedTuple):
    """What a network adds to some channels of some pictures of a batch, before any strength.

    Attributes
    ----------
    pictures : their indices in the batch.
    channels : of the layout, three or one.
    inverted : whether these are inks, of which the network saw the light.
    residual : (len(pictures), H, W, 3) float32 in units of [0, 1]; the values of a row lie side by side.
    """

    pictures: list[int]
    channels: slice
    inverted: bool
    residual: NDArray[np.float32]


def changed(
    pixels: NDArray,
    changes: Iterable[Change],
    strength: float = 1.0,
    luma: float = 1.0,
    chroma: float = 1.0,
    grain: float = 0.0,
    *,
    keep: bool = False,
    threads: int = 1,
) -> NDArray:
    """Pixels (N, H, W, C) with `Denoiser.changes` of them, to the shares that `Denoiser` takes.

    ``keep`` leaves the changes as they are, so that they can be used again; else they may be worked on in
    place, which saves the memory of a copy. No number of ``threads`` changes the result.
    """
    strength, luma, chroma, grain = _checked_shares(strength, luma, chroma, grain)
    out = np.array(pixels)
    if out.ndim != 4:
        raise ValueError(f"pixels must be (N, H, W, C), not of shape {out.shape}")
    if strength == 0:
        return out
    for change in changes:
        sign = -strength if change.inverted else strength
        for i, residual in zip(change.pictures, change.residual, strict=True):
            if (luma, chroma, grain) != (1, 1, 0):
                residual = residual.copy() if keep else residual
                _blend(residual, luma, chroma, grain)
            _add(out[i, ..., change.channels], residual, sign, threads)
            del residual
        del change  # before the next are made
    return out


def _checked_shares(strength: Any, luma: Any, chroma: Any, grain: Any) -> list[float]:
    shares = {"strength": strength, "luma": luma, "chroma": chroma, "grain": grain}
    for name, share in shares.items():
        try:
            fits = bool(0 <= share <= 1)
            shares[name] = float(share.item() if hasattr(share, "item") else share)
        except (TypeError, ValueError, RuntimeError):  # no number; an array; a tensor
            fits = False
        if not fits:
            raise ValueError(f"{name} must be a number in 0..1, got {in_short(share)}")
    return list(shares.values())


def energy(x: NDArray[np.float32]) -> float:
    """The sum of squares of (N, H, W, C), in an order that no threads change, without a copy."""
    return float(np.einsum("nhwc,nhwc->", x, x, dtype=np.float64))


def limit(residual: NDArray[np.float32], levels: NDArray[np.float32], threads: int = 1) -> None:
    """Clip a `Change`'s residual to what noise of the levels (N, 1, 1) or (N, H, W) can be, in place."""
    for change, level in zip(residual, levels, strict=True):
        limit_change(change, level, _MOST_DEVIATIONS / 255, 1 / _DOTTED, threads)


def _blend(residual: NDArray[np.float32], luma: float, chroma: float, grain: float) -> None:
    """Scale brightness and colour of a residual (H, W, 3) apart, in place.

    Grain is what the brightness has above a small binomial blur.
    """
    brightness = residual @ LUMA
    kept = luma * brightness
    if grain:
        fine = brightness - _blurred(brightness)
        fine[brightness == 0] = 0  # beside what is denoised nothing is left
        kept -= np.float32(luma * grain) * fine
    residual *= np.float32(chroma)
    residual += (kept - np.float32(chroma) * brightness)[..., None]


def _blurred(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """(H, W) under the binomial kernel 1 4 6 4 1 each way, continued by repetition."""
    for axis in (0, 1):
        padded = np.pad(x, [(2, 2) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        taps = [padded.take(range(i, i + x.shape[axis]), axis) for i in range(5)]
        x = (taps[0] + taps[4] + 4 * (taps[1] + taps[3]) + 6 * taps[2]) * np.float32(1 / 16)
    return x


def _add(colour: NDArray, residual: NDArray, strength: float, threads: int) -> None:
    """colour (H, W, 1 or 3) = clip(colour + strength * residual (H, W, 3)), in place."""
    if colour.shape[2] == 1:
        residual = residual.mean(axis=2, keepdims=True, dtype=np.float32)
    values = np.ascontiguousarray(colour)  # a copy where there is alpha in between
    add_change(values, residual, strength * full_scale(colour.dtype), threads)
    if values is not colour:
        colour[...] = values
