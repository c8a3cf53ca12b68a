"""How close two pictures are: PSNR and SSIM, and what they do not tell; in numpy alone.

SSIM follows Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, "Image quality assessment:
from error visibility to structural similarity", IEEE Trans. Image Processing 13(4), 2004: an
11 x 11 Gaussian window of standard deviation 1.5, K1 = 0.01, K2 = 0.03, averaged over the
region where the window fits (no padding), here per channel and then over channels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

WINDOW = 11
SIGMA = 1.5
K1 = 0.01
K2 = 0.03
# Rows handled at once: bounds the float64 copies and keeps them in the cache.
BAND = 64
# Side in pixels of the cells whose traces are looked for.
CELL = 8


def psnr(a: NDArray, b: NDArray, peak: float | None = None) -> float:
    """Peak signal-to-noise ratio in dB: 10 log10(peak^2 / mean((a - b)^2)).

    Parameters
    ----------
    a, b : arrays of equal shape (H, W) or (H, W, C); integers or floats.
    peak : the largest possible value; by default 255 for uint8, 65535 for uint16, 1 for floats.

    Returns
    -------
    float, infinite where the pictures are equal.

    Raises
    ------
    ValueError
        If the shapes differ, the arrays are empty, or ``peak`` is neither given nor implied, or not positive.

    Examples
    --------
    >>> a = np.zeros((4, 4, 3), np.uint8)
    >>> round(psnr(a, a + 1), 4)
    48.1308
    """
    a, b, peak = _pair(a, b, peak)
    total = 0.0
    for y in range(0, a.shape[0], BAND):
        difference = a[y : y + BAND].astype(np.float64) - b[y : y + BAND]
        total += float(np.vdot(difference, difference))
    if not math.isfinite(total):
        return math.nan
    return math.inf if total == 0 else 10 * math.log10(peak**2 * a.size / total)


def ssim(a: NDArray, b: NDArray, peak: float | None = None) -> float:
    """Mean structural similarity (Wang et al. 2004), 1 for equal pictures.

    Parameters
    ----------
    a, b : arrays of equal shape (H, W) or (H, W, C); integers or floats.
    peak : as for `psnr`.

    Returns
    -------
    float, the mean over channels of the mean over the valid region. Along a side shorter than
    11 pixels the window shrinks to the largest odd length that fits.

    Raises
    ------
    ValueError
        As for `psnr`.
    """
    a, b, peak = _pair(a, b, peak)
    c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
    vertical, horizontal = _gaussian(a.shape[0]), _gaussian(a.shape[1])
    rows = a.shape[0] - len(vertical) + 1
    columns = a.shape[1] - len(horizontal) + 1
    total = 0.0
    for channel in range(a.shape[2]):
        for y in range(0, rows, BAND):
            span = slice(y, min(y + BAND, rows) + len(vertical) - 1)
            u = a[span, :, channel].astype(np.float64)
            v = b[span, :, channel].astype(np.float64)
            # The formula needs only the sum of the two variances, so four maps instead of five.
            maps = np.stack([u, v, u * u + v * v, u * v])
            mean_u, mean_v, squares, product = _filter(maps, vertical, horizontal)
            mean_product = mean_u * mean_v
            mean_squares = mean_u * mean_u + mean_v * mean_v
            score = (2 * mean_product + c1) * (2 * (product - mean_product) + c2)
            score /= (mean_squares + c1) * (squares - mean_squares + c2)
            total += float(score.sum())
    return total / (rows * columns * a.shape[2])


def sharpness(a: NDArray, original: NDArray) -> float:
    """Energy of a picture in the top octave (a quarter cycle a pixel and more), relative to the original's.

    Below 1 it is softer than the original, above 1 sharper, or noisier. From the power spectra of
    brightness (mean of the channels) under a Hann window; NaN where the original has no such energy.

    Parameters
    ----------
    a, original : arrays of equal shape (H, W) or (H, W, C), in the same units.

    Raises
    ------
    ValueError
        If their shapes differ.
    """
    a, original = _of_one_shape(a, original)
    mine, wanted = _top_octave(np.atleast_3d(a)), _top_octave(np.atleast_3d(original))
    return mine / wanted if wanted > _rounding(original.size, original) else math.nan


def _rounding(values: int, *pictures: NDArray) -> float:
    """What a power spectrum of so many values may hold by rounding alone, were they all the same."""
    return 1e-28 * (values * max(float(np.abs(picture).max()) for picture in pictures)) ** 2


def _top_octave(a: NDArray) -> float:
    grey = a.astype(np.float64).mean(axis=2)
    window = np.hanning(grey.shape[0] + 2)[1:-1, None] * np.hanning(grey.shape[1] + 2)[1:-1]
    power = np.abs(np.fft.fft2((grey - grey.mean()) * window)) ** 2
    frequency = np.hypot(np.fft.fftfreq(grey.shape[0])[:, None], np.fft.fftfreq(grey.shape[1]))
    return float(power[frequency >= 0.25].sum())


def channel_errors(a: NDArray, original: NDArray) -> NDArray[np.float64]:
    """The mean error of each channel, signed: (C,), in the units of the pictures (H, W) or (H, W, C)."""
    difference = np.atleast_3d(a).astype(np.float64) - np.atleast_3d(original)
    return difference.mean(axis=(0, 1))


def grid_steps(a: NDArray, original: NDArray) -> float:
    """How much the error jumps between cells of 8 x 8 pixels, relative to elsewhere.

    The mean square of the error's difference between neighbouring pixels across the borders of
    cells, over that between all other neighbours: 1 where the model leaves no grid. Each row and column
    of neighbours counts the same, however long it is. NaN where there is nothing to compare (no border,
    or no error), at most 1e9, where all of the error is such a grid.

    Parameters
    ----------
    a, original : arrays of equal shape (H, W) or (H, W, C).
    """
    error = np.atleast_3d(a).astype(np.float64) - np.atleast_3d(original)
    sums, counts = np.zeros(2), np.zeros(2)
    for axis in (0, 1):
        steps = np.diff(error, axis=axis) ** 2
        border = (np.arange(steps.shape[axis]) + 1) % CELL == 0
        energy = steps.mean(axis=(1 - axis, 2)) if steps.size else np.zeros(0)
        sums += energy[~border].sum(), energy[border].sum()
        counts += (~border).sum(), border.sum()
    if not counts.all() or not sums.any():
        return math.nan
    elsewhere, across = sums / counts
    return float(across / (elsewhere + 1e-9 * across))


def lattice_energy(a: NDArray, original: NDArray) -> float:
    """How much of the error repeats every 8 pixels, relative to what repeats at other distances.

    A decoder that enlarges latents can leave the same dots in every cell. All of such a lattice lies at
    multiples of 1 / 8 cycles a pixel, where the power spectrum of the error (of pieces of 8 x 8
    cells, under a Hann window) is compared with its neighbourhood: the mean ratio, 1 where there is no
    lattice. NaN where there is nothing to compare (no whole piece, or no error).

    Parameters
    ----------
    a, original : arrays of equal shape (H, W) or (H, W, C).
    """
    error = np.atleast_3d(a).astype(np.float64) - np.atleast_3d(original)
    side = 8 * CELL
    if min(error.shape[:2]) < side:
        return math.nan
    window = np.hanning(side + 1)[:side]
    window = (window[:, None] * window)[..., None]
    power = np.zeros((side, side))
    starts = [np.arange(0, length - side + 1, side // 2) for length in error.shape[:2]]
    for y in starts[0]:
        for x in starts[1]:
            piece = error[y : y + side, x : x + side]
            spectrum = np.fft.fft2((piece - piece.mean(axis=(0, 1))) * window, axes=(0, 1))
            power += (np.abs(spectrum) ** 2).sum(axis=2)
    if power.max() <= len(starts[0]) * len(starts[1]) * _rounding(side**2 * error.shape[2], a, original):
        return math.nan
    floor = 1e-9 * power.mean()  # an error that is a lattice and nothing else has a finite ratio too
    # Straight edges have their energy on the axes, so these are compared along themselves. Three bins away
    # the window has nothing left of a line.
    lines = np.arange(0, side, 8)
    ratios = []
    for u in lines:
        for v in lines[: len(lines) // 2 + 1]:
            near = [(i, j) for i in (-3, 0, 3) if i == 0 or u for j in (-3, 0, 3) if j == 0 or v]
            around = [power[(u + i) % side, (v + j) % side] for i, j in near if i or j]
            if around:
                ratios.append(power[u, v] / (np.mean(around) + floor))
    return float(np.mean(ratios))


def _of_one_shape(a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.ndim not in (2, 3) or not a.size:
        raise ValueError(f"pictures must have one shape, (H, W) or (H, W, C); got {a.shape} and {b.shape}")
    return a, b


def _pair(a: NDArray, b: NDArray, peak: float | None) -> tuple[NDArray, NDArray, float]:
    a, b = _of_one_shape(a, b)
    if peak is None:
        peaks = {_peak(a.dtype), _peak(b.dtype)}
        if len(peaks) != 1 or None in peaks:
            raise ValueError(f"give `peak`: it does not follow from {a.dtype} and {b.dtype}")
        (peak,) = peaks
    assert peak is not None
    if not peak > 0:
        raise ValueError(f"`peak` must be positive, got {peak}")
    return np.atleast_3d(a), np.atleast_3d(b), float(peak)


def _peak(dtype: np.dtype) -> float | None:
    if dtype.kind == "f":
        return 1.0
    return float(np.iinfo(dtype).max) if dtype.newbyteorder("=") in (np.uint8, np.uint16) else None


def _gaussian(side: int) -> NDArray:
    length = min(WINDOW, side if side % 2 else side - 1)
    x = np.arange(length) - length // 2
    window = np.exp(-(x**2) / (2 * SIGMA**2))
    return window / window.sum()


def _filter(maps: NDArray, vertical: NDArray, horizontal: NDArray) -> NDArray:
    """Separable correlation of (K, H, W) over the region where both windows fit."""
    for axis, window in ((1, vertical), (2, horizontal)):
        length = maps.shape[axis] - len(window) + 1
        out = np.zeros((*maps.shape[:axis], length, *maps.shape[axis + 1 :]))
        for i, weight in enumerate(window):
            part = maps[:, i : i + length] if axis == 1 else maps[:, :, i : i + length]
            out += weight * part
        maps = out
    return maps
