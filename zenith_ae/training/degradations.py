"""Degradations for training a denoiser, and the noise-level maps that it is told.

Every degradation takes clean pictures, float32 (N, H, W, 3) sRGB in [0, 1], and a generator, and
returns ``(degraded, sigma)``: float32 (N, H, W, 3) and (N, H, W). ``sigma`` is a standard
deviation in units of [0, 1]: exact for Gaussian noise, that on a blurred picture too, elsewhere
the local root mean square of what was done to the picture (`local_rms`), of `stored` that of what
JPEG leaves of the noise, times `STORED_LEVEL`. Gaussian noise is not clipped, as is usual for
CBSD68; degradations that imitate a file are.

The camera model adds the *noise* of a sensor after the linear steps of its pipeline (white
balance, mosaic, colour matrix, noise reduction), not the pipeline's blur: the clean picture
stays the target, and what the network learns to remove is the correlated noise.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from ..batches import LUMA
from ..pipelines import OFF_GRID
from .drawings import few_colours

Pair = tuple[np.ndarray, np.ndarray]
Range = tuple[float, float]

# Noise that JPEG has made coarser is best removed at a level that is a little higher than its own: at sigma
# 5 to 30 and qualities 60 to 90, on validation photographs, 1.0 to 1.25 times as high.
STORED_LEVEL = np.float32(1.15)
KNOTS = 4  # along one axis, of a level that varies
RED_GAIN, BLUE_GAIN = (1.2, 2.4), (1.2, 2.6)  # of white balance, from tungsten to shade
READ_SHARE, CONTRAST, SATURATION = (3e-4, 3e-2), (1.0, 1.4), (0.0, 0.8)  # of cameras
FINE_QUALITY = 80  # least of the JPEGs that hide no noise reduction
GRAIN_RADIUS = 0.35, 1.0  # pixels: softer than white noise, finer than what cameras leave
MOTTLE_RADIUS = 0.35, 1.3  # pixels, of a phone's noise of brightness
COLOUR_RADIUS = 0.8, 4.0  # and of its noise of colour
COLOUR_SHARE = 0.6  # most of a phone's noise of colour, next to that of brightness
MOST_SHARPENED, SHARPENING_RADIUS = 1.2, 1.2  # the amount of an unsharp mask, and its radius in pixels
POOR_QUALITY = 20, 50  # of JPEGs that show what they are
FAIR_QUALITY = 60, 98  # of JPEGs of what is drawn: what they do beside strokes is no noise
WEAKEST = 0.5 / 255  # of white noise: rounding to 8 bits alone makes 0.3
ENLARGEMENTS = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS
ZOOM = 1.1, 3.0  # log-uniform, of what is enlarged with its noise
UNEVEN = 0.7  # channels have from exp(-UNEVEN) to exp(UNEVEN) times the level
# How often photographs are reduced without a filter, have channels that lie apart, get a gain, a tone curve,
# more vivid colours, a mask
EDITED = 0.25, 0.12, 0.45, 0.2, 0.35, 0.55
THINNED, APART = (1.5, 4.0), 3  # by these factors, and so many pixels
EQUALIZED, NEGATIVE, DITHERED = 0.3, 0.08, 0.05  # share of the tone curves, and of all
GAIN, GAMMA, SATURATED = (0.5, 3.0), (0.4, 1.7), (1.2, 3.5)
HARD, HARD_GAIN = 0.25, (1.5, 6.0)  # how often, and how much, they are made of hard contrast before
MASK_RADIUS, MASK_PERCENT = (0.6, 2.5), (50, 260)
RMS_WINDOW = 17  # pixels; wide enough for a steady estimate, narrow enough to follow the picture


def to_linear(x: np.ndarray) -> np.ndarray:
    """Inverse of the sRGB transfer curve (IEC 61966-2-1)."""
    return np.where(x <= 0.04045, x / 12.92, ((np.maximum(x, 0) + 0.055) / 1.055) ** 2.4).astype(np.float32)


def from_linear(x: np.ndarray) -> np.ndarray:
    """The sRGB transfer curve (IEC 61966-2-1)."""
    return np.where(x <= 0.0031308, x * 12.92, 1.055 * np.maximum(x, 0) ** (1 / 2.4) - 0.055).astype(
        np.float32
    )


def local_rms(error: np.ndarray) -> np.ndarray:
    """Root mean square of an (N, H, W, C) error over channels and squares of `RMS_WINDOW`, (N, H, W).

    The error is continued by reflection beyond the border.
    """
    energy = np.mean(error.astype(np.float64) ** 2, axis=3)
    half = RMS_WINDOW // 2
    for axis in (1, 2):
        widths = [(0, 0)] * 3
        widths[axis] = (half + 1, half)
        total = np.cumsum(np.pad(energy, widths, mode="reflect"), axis=axis)
        n = energy.shape[axis]
        ends = np.arange(n) + 2 * half + 1
        energy = (total.take(ends, axis) - total.take(ends - 2 * half - 1, axis)) / (2 * half + 1)
    return np.sqrt(np.maximum(energy, 0)).astype(np.float32)


def smooth_map(rng: np.random.Generator, height: int, width: int, low: float, high: float) -> np.ndarray:
    """A smooth random (height, width) map: `KNOTS` values a side in [low, high], interpolated linearly."""
    knots = rng.uniform(low, high, (KNOTS, KNOTS)).astype(np.float32)
    rows, columns = (_interpolation(n, KNOTS) for n in (height, width))
    return rows @ knots @ columns.T


def _interpolation(length: int, knots: int) -> np.ndarray:
    position = np.linspace(0, knots - 1, length, dtype=np.float32)
    return np.maximum(0, 1 - np.abs(position[:, None] - np.arange(knots, dtype=np.float32)))


def enlarge(picture: np.ndarray, rng: np.random.Generator, factor: float) -> np.ndarray:
    """A random part of a uint8 (H, W, 3) picture, enlarged to its size by ``factor`` >= 1.

    At the pixels of a camera pictures are soft: the lens, the antialiasing filter and the mosaic
    resolve less than the sensor samples. Pictures that were reduced for the web are sharp, and
    next to their texture a camera's mottled noise looks like more of it.
    """
    height, width = picture.shape[:2]
    part = Image.fromarray(picture[_part(height, width, rng, factor)])
    return np.asarray(part.resize((width, height), Image.Resampling.BICUBIC))


def _part(height: int, width: int, rng: np.random.Generator, factor: float) -> tuple[slice, slice]:
    """A random place in a picture whose sides are ``factor`` times as short."""
    h, w = max(1, round(height / factor)), max(1, round(width / factor))
    top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    return slice(top, top + h), slice(left, left + w)


def reenlarge(clean: np.ndarray, rng: np.random.Generator, factor: float) -> np.ndarray:
    """Pictures (N, H, W, 3) after they were reduced by ``factor`` >= 1 and enlarged back, as files of 8 bits.

    Enlargement is bilinear, bicubic or by Lanczos, as programs do it; reduction is one of these with
    antialiasing.
    """
    result = np.empty_like(clean)
    for k, picture in enumerate(clean):
        height, width = picture.shape[:2]
        small = max(1, round(width / factor)), max(1, round(height / factor))
        image = Image.fromarray((np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8))
        there, back = rng.choice(3, 2)
        result[k] = np.asarray(
            image.resize(small, ENLARGEMENTS[there]).resize((width, height), ENLARGEMENTS[back])
        )
    return result / np.float32(255)


def zoomed(degraded: np.ndarray, clean: np.ndarray, rng: np.random.Generator, factor: float) -> Pair:
    """A random part of a noisy picture and of the clean one, both (H, W, 3), enlarged to their size; files.

    As by digital zoom, or by who makes small photographs large: noise and what it lies on grow alike. Three
    in five are then sharpened, by an unsharp mask, which is hardest on noise.
    """
    height, width, _ = clean.shape
    place = _part(height, width, rng, factor)
    way = ENLARGEMENTS[rng.integers(3)]
    sharpening = rng.random() < 0.6
    mask = ImageFilter.UnsharpMask(rng.uniform(*MASK_RADIUS), _whole(rng, MASK_PERCENT), threshold=0)
    result = []
    for picture in (degraded, clean):
        part = np.rint(as_file(picture[place]) * 255).astype(np.uint8)
        image = Image.fromarray(part).resize((width, height), way)
        result.append(np.asarray(image.filter(mask) if sharpening else image, np.float32) / 255)
    return result[0], result[1]


def gaussian(clean: np.ndarray, rng: np.random.Generator, sigma: float | np.ndarray) -> Pair:
    """White Gaussian noise, not clipped; ``sigma`` is a number or broadcasts to (N, H, W)."""
    level = np.broadcast_to(np.asarray(sigma, np.float32), clean.shape[:3])
    noise = rng.standard_normal(clean.shape, dtype=np.float32)
    noise *= level[..., None]
    noise += clean
    return noise, level.copy()


def grain(clean: np.ndarray, rng: np.random.Generator, sigma: float, radius: float) -> Pair:
    """Noise of brightness alone, softened by a Gaussian of that standard deviation in pixels, not clipped.

    It is that of film, of prints, and of photographs whose noise of colour was taken away. ``sigma`` is what
    is left after the softening.
    """
    noise = rng.standard_normal((*clean.shape[:3], 1), dtype=np.float32)
    if radius:
        noise = _separable(noise, _gaussian_kernel(radius))
    noise *= _gain_to(sigma, noise)
    return clean + noise, np.full(clean.shape[:3], sigma, np.float32)


def mottled(
    clean: np.ndarray,
    rng: np.random.Generator,
    sigma: float,
    radius: float,
    colour: float,
    colour_radius: float,
    sharpening: float = 0.0,
    photons: bool = False,
) -> Pair:
    """The noise of a phone's photograph: its colour smoothed, its brightness little, then sharpened; a file.

    The picture beneath is neither smoothed nor sharpened.

    Parameters
    ----------
    sigma
        Root mean square of the noise of brightness in each picture before sharpening, which up to doubles it;
        the level that is returned is measured afterwards.
    radius, colour_radius
        Standard deviations in pixels of the Gaussians that soften noise of brightness and of colour.
    colour
        Root mean square of the noise of colour, as a share of ``sigma``.
    sharpening
        Amount of an unsharp mask.
    photons
        The noise grows with the brightness.
    """
    noise = rng.standard_normal(clean.shape, dtype=np.float32)
    if photons:
        noise *= np.sqrt(clean + np.float32(0.2))
    brightness = (noise @ LUMA)[..., None]
    rest = _separable(noise - brightness, _gaussian_kernel(colour_radius))
    brightness = _separable(brightness, _gaussian_kernel(radius))
    noise = brightness * _gain_to(sigma, brightness) + rest * _gain_to(sigma * colour, rest)
    if sharpening:
        noise += np.float32(sharpening) * (noise - _separable(noise, _gaussian_kernel(SHARPENING_RADIUS)))
    return _against(as_file(clean + noise), clean)


def poisson_gaussian(
    clean: np.ndarray,
    rng: np.random.Generator,
    gain: float,
    read: float,
    balance: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Pair:
    """Photon and read noise of a sensor, independent in every sample, in linear light.

    A channel records y = gain * Poisson(x / gain) + read * N(0, 1) of the linear light
    x = linear / balance; the white balance multiplies it back, and the result is clipped.

    Parameters
    ----------
    gain
        Signal per photo-electron; the full scale holds 1 / gain of them. Positive.
    read
        Standard deviation of the read noise, in the sensor's units.
    balance
        White-balance gains of R, G, B.
    """
    gains = np.asarray(balance, np.float32)
    raw = to_linear(clean) / gains
    counts = rng.poisson(raw / gain).astype(np.float32)
    raw = counts * np.float32(gain) + np.float32(read) * rng.standard_normal(clean.shape, dtype=np.float32)
    return _against(from_linear(np.clip(raw * gains, 0, 1)), clean)


def salt_and_pepper(
    clean: np.ndarray, rng: np.random.Generator, fraction: float, per_channel: bool = False
) -> Pair:
    """Shot noise: this fraction of the pixels (or of the samples) becomes 0 or 1, evenly."""
    shape = clean.shape if per_channel else (*clean.shape[:3], 1)
    draw = rng.random(shape, dtype=np.float32)
    degraded = np.where(draw < fraction / 2, np.float32(0), clean)
    degraded = np.where((draw >= fraction / 2) & (draw < fraction), np.float32(1), degraded)
    return _against(degraded, clean)


def blur(
    clean: np.ndarray,
    rng: np.random.Generator,
    shape: str = "box",
    radius: float = 1.0,
    noise: float = 0.0,
    stored: bool = False,
) -> Pair:
    """A soft picture with white noise on top; the level is the noise's alone.

    Parameters
    ----------
    shape
        "box" (the mean of 3x3 pixels), "gaussian" (of standard deviation ``radius``) or "disc" (of
        this radius, as a lens out of focus draws a point).
    noise
        Standard deviation of the noise.
    stored
        Clip and round to 8 bits, like a file.
    """
    if shape == "disc":
        degraded = _convolve(clean, _disc(radius))
    else:
        kernel = np.full(3, 1 / 3, np.float32) if shape == "box" else _gaussian_kernel(radius)
        degraded = _separable(clean, kernel)
    if noise:
        degraded = degraded + np.float32(noise) * rng.standard_normal(clean.shape, dtype=np.float32)
    if stored:
        degraded = as_file(degraded)
    return degraded, np.full(clean.shape[:3], noise, np.float32)


def jpeg(
    clean: np.ndarray, rng: np.random.Generator, quality: int, subsample: bool = True, in_place: float = 0.0
) -> Pair:
    """Store as 8-bit JPEG and read back, with the block grid at a random offset, or as in `Mixture`."""
    return _against(_as_jpeg(clean, rng, quality, subsample, in_place), clean)


def stored(
    clean: np.ndarray,
    rng: np.random.Generator,
    sigma: float,
    quality: int,
    subsample: bool = True,
    grey: bool = False,
    in_place: float = 0.0,
) -> Pair:
    """White Gaussian noise in a file of 8 bits that was stored as JPEG.

    The level is that of what JPEG leaves of the noise, not of its own artefacts, times `STORED_LEVEL`.
    Where the file is ``grey``, what happened to green happened to all.
    """
    phase = int(rng.integers(2**32))  # of the block grid
    noisy, without = (
        _as_jpeg(x, np.random.default_rng(phase), quality, subsample, in_place)
        for x in (as_file(gaussian(clean, rng, sigma)[0]), clean)
    )
    if grey:
        noisy, without = (x[..., [1, 1, 1]] for x in (noisy, without))
    return noisy, STORED_LEVEL * local_rms(noisy - without)


def _as_jpeg(
    pictures: np.ndarray, rng: np.random.Generator, quality: int, subsample: bool, in_place: float = 0.0
) -> np.ndarray:
    stored = np.empty_like(pictures)
    for k, picture in enumerate(pictures):
        cell = 16 if subsample else 8  # of the grid: larger where colour has half the resolution
        top, left = (int(v) for v in rng.integers(0, cell, 2))
        if in_place and rng.random() < in_place:
            top = left = cell - OFF_GRID
        shifted = np.pad(picture, ((top, 0), (left, 0), (0, 0)), mode="reflect")
        stream = io.BytesIO()
        pixels = np.clip(shifted * 255 + 0.5, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(stream, "JPEG", quality=quality, subsampling=2 if subsample else 0)
        with Image.open(stream) as image:
            stored[k] = np.asarray(image)[top:, left:] / np.float32(255)
    return stored


def camera(
    clean: np.ndarray,
    rng: np.random.Generator,
    strength: float,
    quality: int | None = None,
    *,
    read_share: float = 0.005,
    contrast: float = 1.0,
    balance: tuple[float, float, float] = (2.0, 1.0, 1.6),
    saturation: float = 0.3,
    luma_blur: float = 0.0,
    chroma_blur: float = 0.0,
    mottle: float = 0.0,
    mottle_radius: float = 4.0,
    reduced: bool = False,
    shrinkage: tuple[float, ...] = (),
    loudness: float = 3.0,
    hot: float = 0.0,
    in_place: float = 0.0,
) -> Pair:
    """The noise of a developed photograph.

    Poisson-Gaussian noise in linear light, on a Bayer mosaic interpolated bilinearly (so
    neighbours are correlated), through white balance and colour matrix (so channels are), through
    a noise reduction that blurs it, through the tone curve (so it depends on brightness), clipped,
    rounded to 8 bits and stored as JPEG.

    Parameters
    ----------
    strength
        Root mean square of the noise in each finished picture, before clipping and JPEG.
    quality
        JPEG quality, or None to round to 8 bits only.
    read_share
        Variance of the read noise over that of the photon noise at full scale.
    contrast
        Exponent of the logistic tone curve over the sRGB curve; 1 is none.
    balance, saturation
        White-balance gains; how far the colour matrix pushes away from grey.
    luma_blur, chroma_blur
        Standard deviation in pixels of the blur of the noise's brightness and colour.
    mottle, mottle_radius
        Share in amplitude of a coarse component, and the standard deviation in pixels of its blur:
        a noise reduction that works at several scales takes the finer ones away more thoroughly.
    reduced
        The photograph was reduced to half its size: finer, less correlated noise.
    shrinkage, loudness
        What a noise reduction that spares edges leaves: thresholds of `_shrink`, finest scale first, in
        standard deviations of the noise there, which was ``loudness`` times as strong before. It takes hot
        photosites away.
    hot
        Share of the photosites that are stuck at some brightness above theirs, as in long exposures;
        `strength` is without them.
    in_place
        As in `Mixture`.
    """
    linear = to_linear(_logistic(clean, 1 / contrast))
    gains = np.asarray(balance, np.float32)
    matrix = ((1 + saturation) * np.eye(3) - saturation / 3).astype(np.float32)  # white stays white
    raw = np.maximum(linear @ np.linalg.inv(matrix).T, 0) / gains
    if reduced:
        raw = raw.repeat(2, axis=1).repeat(2, axis=2)
    deviation = np.sqrt(raw + np.float32(read_share))
    phase = int(rng.integers(4))
    # The noise is scaled to the asked strength through the slope of the tone curve.
    step = np.float32(1e-3)
    slope = (_develop(linear + step, contrast) - _develop(np.maximum(linear - step, 0), contrast)) / (
        step + np.minimum(linear, step)
    )

    def processed(values: np.ndarray) -> np.ndarray:
        """What the camera's linear steps make of an addition to the photosites."""
        values = _through_mosaic(values, phase)
        if reduced:
            n, h, w, _ = values.shape
            values = values.reshape(n, h // 2, 2, w // 2, 2, 3).mean(axis=(2, 4))
        values = (values * gains) @ matrix.T
        if luma_blur or chroma_blur:
            luma = values.mean(axis=3, keepdims=True)
            values = _separable(values - luma, _gaussian_kernel(chroma_blur))
            values += _separable(luma, _gaussian_kernel(luma_blur))
        return values

    def noisy(strength: float) -> np.ndarray:
        noise = processed(deviation * rng.standard_normal(raw.shape, dtype=np.float32))
        if mottle:
            coarse = _separable(noise, _gaussian_kernel(mottle_radius))
            scale = np.sqrt(np.mean(noise**2) / max(float(np.mean(coarse**2)), 1e-12))
            noise = (1 - np.float32(mottle)) * noise + np.float32(mottle * scale) * coarse
        noise *= _gain_to(strength, noise * slope)
        if hot and not shrinkage:
            stuck = rng.random(raw.shape[:3], dtype=np.float32) < hot
            excess = np.where(stuck, rng.random(raw.shape[:3], dtype=np.float32), 0)[..., None]
            noise += processed(excess * np.maximum(1 - raw, 0))
        return _develop(np.clip(linear + noise, 0, 1), contrast)

    if shrinkage:
        # What two shots differ in has no mean, which would be content, but has the noise's covariance.
        left = np.subtract(*_shrink(noisy(loudness * strength), noisy(loudness * strength), shrinkage))
        degraded = clean + left * _gain_to(strength, left)
    else:
        degraded = noisy(strength)
    degraded = as_file(degraded)
    if quality is not None:
        degraded = _as_jpeg(degraded, rng, quality, bool(rng.integers(2)), in_place)
    return _against(degraded, clean)


def _gain_to(strength: float, noise: np.ndarray) -> np.ndarray:
    """The factor (N, 1, 1, 1) that gives each noise (N, H, W, C) this root mean square."""
    rms = np.sqrt(np.mean(noise**2, axis=(1, 2, 3), keepdims=True))
    return np.float32(strength) / np.maximum(rms, np.float32(1e-8))


def _shrink(a: np.ndarray, b: np.ndarray, thresholds: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two shots (N, H, W, 3) of one picture, denoised by soft thresholds (Donoho 1995, IEEE TIT 41:3).

    The wavelets are the undecimated ones of a cubic B-spline (Holschneider et al. 1989), of brightness
    and of the three differences from it. A threshold is in standard deviations of the noise of its
    scale, which is known from what the shots differ in.
    """
    shots = np.stack([a, b])
    luma = shots.mean(axis=4, keepdims=True)
    coarse = np.concatenate([luma, shots - luma], axis=4)
    result = np.zeros_like(coarse)
    for scale, threshold in enumerate(thresholds):
        kernel = np.zeros(4 * 2**scale + 1, np.float32)
        kernel[:: 2**scale] = np.array([1, 4, 6, 4, 1], np.float32) / 16
        smooth = np.stack([_separable(shot, kernel) for shot in coarse])
        detail = coarse - smooth
        noise = np.sqrt(np.mean((detail[0] - detail[1]) ** 2, axis=(1, 2), keepdims=True) / 2)
        result += np.sign(detail) * np.maximum(np.abs(detail) - np.float32(threshold) * noise, 0)
        coarse = smooth
    result += coarse
    result = result[..., 1:] + result[..., :1]
    return result[0], result[1]


def flat_area(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Where a photograph could be one plain colour without noise: a boolean (H, W).

    A frame or bars around it, what is outside of an ellipse, as transparent surroundings are, or its
    brightest or darkest parts, as a sensor that is full or sees nothing gives them.

    Parameters
    ----------
    picture : (H, W, 3).
    """
    height, width = picture.shape[:2]
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    shape = rng.choice(("frame", "ellipse", "bright", "dark"), p=(0.5, 0.15, 0.2, 0.15))
    if shape == "frame":
        top, bottom, left, right = np.where(rng.random(4) < 0.5, rng.uniform(0, 0.45, 4), 0)
        inside = (y >= top * height) & (y < (1 - bottom) * height)
        return ~(inside & (x >= left * width) & (x < (1 - right) * width))
    if shape == "ellipse":
        a, b = rng.uniform(0.25, 0.7, 2)
        centre = rng.uniform(0.3, 0.7, 2)
        return ((y / height - centre[0]) / a) ** 2 + ((x / width - centre[1]) / b) ** 2 > 1
    light = picture.mean(axis=2, dtype=np.float32)[None, ..., None]
    light = _separable(light, _gaussian_kernel(3.0))[0, ..., 0]
    share = rng.uniform(0.05, 0.5)
    return light >= np.quantile(light, 1 - share) if shape == "bright" else light <= np.quantile(light, share)


def make_plain(degraded: np.ndarray, target: np.ndarray, rng: np.random.Generator) -> None:
    """Give both pictures (H, W, 3) one plain colour in place where they could have one (`flat_area`)."""
    plain = flat_area(target, rng)
    colour = rng.choice((np.zeros(3), np.ones(3), rng.random(3))).astype(np.float32)
    degraded[plain] = target[plain] = np.round(colour * 255) / 255


def edited(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A photograph (H, W, 3) as people and phones leave it: brighter, of more contrast, more vivid, sharper.

    One to six of a reduction without a filter, channels that lie apart, a gain, of all or about the mean,
    which clips much of it, a tone curve, more vivid colours and an unsharp mask; some before the gain of so
    much contrast that black and white are most of what is left; some a negative, some dithered. Takes and
    returns uint8, unlike the degradations here: it is what is to stay.
    """
    while not (chosen := rng.random(len(EDITED)) < EDITED).any():
        pass
    thin, apart, gain, curve, colour, mask = chosen
    if thin:
        factor = rng.uniform(*THINNED)
        picture = thinned(picture, float(rng.choice((2, 3, factor, factor))), smooth=rng.random() < 0.3)
    if apart:
        far = rng.integers(-APART, APART + 1, (3, 2))
        picture = np.stack([np.roll(picture[..., i], far[i], (0, 1)) for i in range(3)], axis=2)
    values = picture.astype(np.float32)
    if rng.random() < HARD:
        pivot, place = np.quantile(values, rng.uniform(0.1, 0.9)), rng.choice((0, 127.5, 255))
        values = (values - np.float32(pivot)) * np.float32(_log_uniform(rng, HARD_GAIN)) + np.float32(place)
        values = np.rint(np.clip(values, 0, 255))
    if gain:
        middle = 0.0 if rng.random() < 0.7 else values.mean()
        values = stretched(values, np.float32(_log_uniform(rng, GAIN)), middle)
    if curve and rng.random() < EQUALIZED:
        values = np.asarray(ImageOps.equalize(Image.fromarray(np.rint(values).astype(np.uint8))), np.float32)
    elif curve:
        values = 255 * (values / 255) ** np.float32(_log_uniform(rng, GAMMA))
    if colour:
        values = np.clip(saturated(values, _log_uniform(rng, SATURATED)), 0, 255)
    if rng.random() < NEGATIVE:
        values = 255 - values
    result = np.rint(values).astype(np.uint8)
    if mask:
        radius, percent = rng.uniform(*MASK_RADIUS), _whole(rng, MASK_PERCENT)
        filtered = ImageFilter.UnsharpMask(radius, percent, threshold=int(rng.integers(4)))
        result = np.asarray(Image.fromarray(result).filter(filtered))
    if rng.random() < DITHERED:
        image = Image.fromarray(result)
        if rng.random() < 0.6:
            image = image.convert("1").convert("RGB")
        else:
            image = few_colours(image, int(rng.integers(3, 17)), Image.Dither.FLOYDSTEINBERG)
        result = np.asarray(image)
    return result


def thinned(picture: np.ndarray, factor: float, smooth: bool = False) -> np.ndarray:
    """(H, W, 3) uint8 reduced without a filter against aliasing, and its mirror images right and below.

    By the nearest pixel, as of thumbnails made in a hurry, or if ``smooth`` the nearest two each way, as many
    programs call bilinear.
    """
    for axis in (0, 1):
        length = picture.shape[axis]
        count = max(1, int(length / factor))
        at = np.clip((np.arange(count) + 0.5) * factor - 0.5, 0, length - 1)
        if smooth:
            lower = np.minimum(at.astype(int), length - 2)
            share = np.expand_dims(at - lower, [a for a in (0, 1, 2) if a != axis]).astype(np.float32)
            low, high = (picture.take(lower + i, axis).astype(np.float32) for i in (0, 1))
            few = np.rint(low + share * (high - low)).astype(np.uint8)
        else:
            few = picture.take(np.rint(at).astype(int), axis)
        beyond = [(0, length - count if a == axis else 0) for a in range(3)]
        picture = np.pad(few, beyond, mode="symmetric")
    return picture


def saturated(picture: np.ndarray, factor: float) -> np.ndarray:
    """Colours (..., 3) by ``factor`` further from the grey of the same luma, not clipped."""
    grey = (picture @ LUMA)[..., None]
    return grey + np.float32(factor) * (picture - grey)


def stretched(picture: np.ndarray, gain: float, middle: float) -> np.ndarray:
    """Values of 0 to 255 with so many times the contrast about one that stays, clipped, in floats."""
    return np.clip((picture - middle) * gain + middle, 0, 255)


def as_file(x: np.ndarray) -> np.ndarray:
    """Clipped to [0, 1] and rounded as a file of 8 bits holds it, float32 of any shape."""
    return np.round(np.clip(x, 0, 1) * 255) / np.float32(255)


def _against(degraded: np.ndarray, clean: np.ndarray) -> Pair:
    return degraded, local_rms(degraded - clean)


def _logistic(x: np.ndarray, exponent: float) -> np.ndarray:
    """An S-shaped tone curve on [0, 1]; the inverse has the exponent 1 / exponent."""
    if exponent == 1:
        return x
    x = np.clip(x, 0, 1)
    up, down = x**exponent, (1 - x) ** exponent
    return up / (up + down)


def _develop(linear: np.ndarray, contrast: float) -> np.ndarray:
    return _logistic(from_linear(linear), contrast)


def _through_mosaic(values: np.ndarray, phase: int) -> np.ndarray:
    """Sample (N, H, W, 3) on an RGGB mosaic with one of 4 origins, and interpolate bilinearly."""
    top, left = phase >> 1, phase & 1
    masked = np.zeros_like(values)
    masked[:, top::2, left::2, 0] = values[:, top::2, left::2, 0]
    masked[:, top::2, 1 - left :: 2, 1] = values[:, top::2, 1 - left :: 2, 1]
    masked[:, 1 - top :: 2, left::2, 1] = values[:, 1 - top :: 2, left::2, 1]
    masked[:, 1 - top :: 2, 1 - left :: 2, 2] = values[:, 1 - top :: 2, 1 - left :: 2, 2]
    # Reflection keeps the parity of the mosaic. Red and blue want [1 2 1]^T [1 2 1] / 4; green,
    # present at every other pixel, the mean of its 4 neighbours where it is missing.
    kernel = np.array([0.5, 1, 0.5], np.float32)
    result = _separable(masked, kernel)
    padded = np.pad(masked[..., 1], ((0, 0), (1, 1), (1, 1)), mode="reflect")
    cross = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
    result[..., 1] = masked[..., 1] + cross / 4
    return result


def _gaussian_kernel(radius: float) -> np.ndarray:
    if radius <= 0:
        return np.ones(1, np.float32)
    half = max(1, int(np.ceil(3 * radius)))
    taps = np.exp(-0.5 * (np.arange(-half, half + 1) / radius) ** 2)
    return (taps / taps.sum()).astype(np.float32)


def _disc(radius: float) -> np.ndarray:
    """A disc that covers its border pixels in part, with sum 1."""
    half, fine = max(1, int(np.ceil(radius - 0.5))), 16
    position = (np.arange((2 * half + 1) * fine) + 0.5) / fine - half - 0.5
    inside = position[:, None] ** 2 + position**2 <= radius**2
    kernel = inside.reshape(2 * half + 1, fine, 2 * half + 1, fine).mean(axis=(1, 3))
    return (kernel / kernel.sum()).astype(np.float32)


def _convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Convolve (N, H, W, C) with a small symmetric square kernel, reflecting at borders."""
    half = len(kernel) // 2
    height, width = x.shape[1:3]
    padded = np.pad(x, [(0, 0), (half, half), (half, half), (0, 0)], mode="reflect")
    result = np.zeros_like(x)
    for (row, column), tap in np.ndenumerate(kernel):
        if tap:
            result += tap * padded[:, row : row + height, column : column + width]
    return result


def _separable(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Convolve the rows and columns of (N, H, W, C) with a symmetric kernel, reflecting at borders."""
    half = len(kernel) // 2
    for axis in (1, 2):
        widths = [(0, 0)] * 4
        widths[axis] = (half, half)
        padded = np.pad(x, widths, mode="reflect")
        window = [slice(None)] * 4
        result = np.zeros_like(x)
        for i, tap in enumerate(kernel):
            window[axis] = slice(i, i + x.shape[axis])
            if tap:
                result += tap * padded[tuple(window)]
        x = result
    return x


def is_drawn(picture: np.ndarray) -> bool:
    """Whether a picture (H, W, 3) has the flat or few colours of a drawn one; noise makes all differ."""
    few = picture[::3, ::3].reshape(-1, 3)
    dithered = len(np.unique(few[:200], axis=0)) <= 16 and len(np.unique(few, axis=0)) <= 16
    return dithered or bool((picture[1:] == picture[:-1]).all(axis=2).mean() > 0.3)


@dataclass(frozen=True)
class Mixture:
    """How often each degradation is drawn, and how strong.

    The first nine fields are relative frequencies, ``grey`` cuts across them; ranges are uniform,
    or log-uniform where named so. Strengths are in units of [0, 1].
    """

    gaussian: float = 0.46
    stored: float = 0.12
    camera: float = 0.34
    poisson_gaussian: float = 0.04
    salt_and_pepper: float = 0.04
    blur: float = 0.0
    jpeg: float = 0.0
    grain: float = 0.0
    mottled: float = 0.0

    clean: float = 0.5  # share of the drawn pictures that stay as they are; photographs have noise already
    clean_jpeg: float = 0.0  # share of these in a JPEG of `FAIR_QUALITY`, whose level is 0 too
    grey: float = 0.1  # share of the pictures made grey, with one noise for all three channels
    sigma: Range = (0.0, 55 / 255)  # of white noise, also of what is stored as JPEG
    weak: float = 0.0  # share of the Gaussian pictures whose sigma is log-uniform, from `WEAKEST` on
    uneven: float = 0.0  # share of the Gaussian pictures in colour with another sigma in each channel
    varying: float = 0.1  # share of the Gaussian pictures whose sigma varies smoothly
    speckled: float = 0.0  # share of the Gaussian pictures whose sigma grows with the brightness
    clipped: float = 0.5  # share of the Gaussian pictures clipped and rounded to 8 bits like a file
    blotched: float = 0.0  # share of the mottled pictures where most of the noise is that of colour
    subsampled: float = 0.75  # of the noisy JPEGs with half the resolution of colour, as most are
    camera_strength: Range = (1 / 255, 45 / 255)  # log-uniform
    camera_jpeg: float = 0.7  # share of the camera pictures stored as JPEG, of `unreduced` ones half of it
    unreduced: float = 0.0  # share of the camera pictures without noise reduction: nearer to white noise
    shrunk: float = 0.5  # share of the camera pictures whose noise was reduced by `_shrink`
    loudness: Range = (1.5, 6.0)  # of their noise before, log-uniform
    soft: float = 0.5  # share of the camera pictures enlarged before: lenses resolve less than pixels do
    enlarged: Range = (1.2, 3.0)  # by this factor, log-uniform
    photon_gain: Range = (5e-4, 3e-2)  # log-uniform
    read_noise: Range = (5e-4, 1.5e-2)  # log-uniform
    shot_fraction: Range = (5e-4, 0.1)  # log-uniform: a few wrong pixels are more usual than one in ten
    hot: float = 0.0  # share of the camera pictures with hot photosites
    dotted: float = 0.0  # share of the Gaussian and Poisson-Gaussian pictures with wrong pixels on top
    few: Range = (1e-4, 5e-3)  # share of the photosites or pixels that are so, log-uniform
    blur_radius: Range = (0.4, 1.6)  # of Gaussian blur; a disc's radius is 1.4 times as large
    blur_noise: Range = (0.0, 10 / 255)
    noiseless: float = 0.5  # share of the blurred pictures with no more noise than rounding makes
    compressed: float = 0.0  # share of the blurred pictures stored as JPEG
    reenlarged: float = 0.0  # share of the blurred pictures that were reduced and enlarged instead
    quality: tuple[int, int] = (50, 95)
    strong: float = 0.0  # share of the JPEGs that are of `POOR_QUALITY` instead
    in_place: float = 0.0  # share of the JPEGs whose blocks begin where a network finds those of a file
    zoomed: float = 0.0  # share of what has noise but few wrong pixels that is enlarged with it, `zoomed`

    KINDS = ("gaussian", "stored", "camera", "poisson_gaussian", "salt_and_pepper", "blur", "jpeg", "grain",
             "mottled")  # fmt: skip

    def __post_init__(self) -> None:
        weights = [getattr(self, kind) for kind in self.KINDS]
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError(f"frequencies must not be negative nor all zero, got {weights}")

    @property
    def whole(self) -> float:
        """What the frequencies are shares of."""
        return float(sum(getattr(self, kind) for kind in self.KINDS))

    @property
    def task(self) -> str:
        """What a model that learns from it is for: "blur", where that is most of it, or "noise"."""
        return "blur" if 2 * self.blur > self.whole else "noise"

    def draw(self, rng: np.random.Generator, count: int) -> list[str]:
        """Draw the kind of degradation for each of ``count`` pictures."""
        weights = np.array([getattr(self, kind) for kind in self.KINDS], dtype=np.float64)
        return [self.KINDS[k] for k in rng.choice(len(weights), count, p=weights / weights.sum())]

    def sample(
        self, batch: np.ndarray, rng: np.random.Generator, drawn: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Degrade each picture of a batch in its own way.

        Parameters
        ----------
        batch
            Clean pictures, uint8 (N, H, W, 3).
        drawn
            Which of them are drawn, boolean (N,); default what `is_drawn` says.

        Returns
        -------
        (degraded, clean, sigma, kinds)
            float32 (N, H, W, 3), (N, H, W, 3) in [0, 1], and (N, H, W) in units of [0, 1]; and
            str (N,), of `KINDS`, or "zoomed".
        """
        kinds = self.draw(rng, len(batch))
        if drawn is None:
            drawn = np.array([is_drawn(picture) for picture in batch])
        spared = [k for k in map(int, np.flatnonzero(drawn)) if rng.random() < self.clean]
        soft = [kind == "camera" and rng.random() < self.soft for kind in kinds]
        batch = np.stack(
            [
                enlarge(picture, rng, _log_uniform(rng, self.enlarged)) if enlarging else picture
                for picture, enlarging in zip(batch, soft, strict=True)
            ]
        )
        clean = batch.astype(np.float32)
        clean *= np.float32(1 / 255)
        grey = np.flatnonzero(rng.random(len(clean)) < self.grey)
        clean[grey] = (clean[grey] @ LUMA)[..., None]
        degraded = np.empty_like(clean)
        sigma = np.empty(clean.shape[:3], np.float32)
        plain = [k for k, kind in enumerate(kinds) if kind == "gaussian"]
        if plain:
            degraded[plain], sigma[plain] = self._gaussian(clean[plain], rng)
        one: dict[str, Callable[[np.ndarray, np.random.Generator], Pair]] = {
            "camera": self._camera,
            "poisson_gaussian": self._poisson_gaussian,
            "salt_and_pepper": self._salt_and_pepper,
            "blur": self._blur,
            "jpeg": self._jpeg,
            "grain": self._grain,
            "mottled": self._mottled,
        }
        for k, kind in enumerate(kinds):
            if kind == "stored":
                part = slice(k, k + 1)
                degraded[part], sigma[part] = self._stored(clean[part], rng, k in grey)
            elif kind != "gaussian":
                degraded[k : k + 1], sigma[k : k + 1] = one[kind](clean[k : k + 1], rng)
        for k, kind in enumerate(kinds):
            if kind in ("gaussian", "poisson_gaussian") and self.dotted and rng.random() < self.dotted:
                part = slice(k, k + 1)
                before, share = degraded[part], _log_uniform(rng, self.few)
                singly = rng.random() < 0.5 and k not in grey  # a value here and there, not a pixel
                degraded[part], more = salt_and_pepper(before, rng, share, singly)
                sigma[part] = np.hypot(sigma[part], more)
        for k in map(int, grey):  # as in `stored`
            degraded[k] = degraded[k, ..., 1:2]
            if kinds[k] not in ("gaussian", "stored", "blur", "grain"):
                sigma[k] = local_rms(degraded[k : k + 1] - clean[k : k + 1])[0]
        for k, kind in enumerate(kinds):
            if kind not in ("salt_and_pepper", "blur", "jpeg") and self.zoomed and rng.random() < self.zoomed:
                degraded[k], clean[k] = zoomed(degraded[k], clean[k], rng, _log_uniform(rng, ZOOM))
                if rng.random() < self.camera_jpeg / 2:
                    degraded[k] = _as_jpeg(
                        degraded[k : k + 1], rng, self._quality(rng), rng.random() < self.subsampled
                    )[0]
                sigma[k] = local_rms(degraded[k : k + 1] - clean[k : k + 1])[0]
                kinds[k] = "zoomed"
        degraded[spared], sigma[spared] = clean[spared], 0
        if self.clean_jpeg:
            for k in spared:
                if rng.random() < self.clean_jpeg:
                    quality = _whole(rng, FAIR_QUALITY)
                    subsample = rng.random() < self.subsampled
                    degraded[k] = _as_jpeg(clean[k : k + 1], rng, quality, subsample, self.in_place)[0]
        return degraded, clean, sigma, np.array(kinds)

    def _gaussian(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        n, height, width, _ = clean.shape
        low, high = self.sigma
        level = np.empty((n, height, width), np.float32)
        level[:] = rng.uniform(low, high, (n, 1, 1))
        if self.weak:
            for k in np.flatnonzero(rng.random(n) < self.weak):
                level[k] = _log_uniform(rng, (WEAKEST, max(WEAKEST, high)))
        for k in np.flatnonzero(rng.random(n) < self.varying):
            level[k] = smooth_map(rng, height, width, low, high)
        for k in np.flatnonzero(rng.random(n) < self.speckled):  # 1: of speckle, 0.5: as of photons
            level[k] *= 1.5 * clean[k].mean(axis=2) ** np.float32(rng.uniform(0.4, 1.2))
        degraded, level = gaussian(clean, rng, level)
        if self.uneven:
            coloured = np.ptp(clean, axis=3).any(axis=(1, 2))
            for k in np.flatnonzero(coloured & (rng.random(n) < self.uneven)):
                share = np.exp(rng.uniform(-UNEVEN, UNEVEN, 3)).astype(np.float32)
                degraded[k] = clean[k] + share * (degraded[k] - clean[k])
                level[k] *= np.sqrt(np.mean(share**2))
        for k in np.flatnonzero(rng.random(n) < self.clipped):
            degraded[k] = as_file(degraded[k])
        return degraded, level

    def _stored(self, clean: np.ndarray, rng: np.random.Generator, grey: bool) -> Pair:
        subsample = rng.random() < self.subsampled
        sigma, quality = rng.uniform(*self.sigma), self._quality(rng)
        return stored(clean, rng, sigma, quality, subsample, grey, self.in_place)

    def _camera(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        unreduced = self.unreduced > 0 and rng.random() < self.unreduced
        strength = _log_uniform(rng, self.camera_strength)
        stored = rng.random() < (self.camera_jpeg / 2 if unreduced else self.camera_jpeg)
        quality = None
        if stored:
            quality = _whole(rng, (FINE_QUALITY, 99)) if unreduced else self._quality(rng)
        return camera(
            clean,
            rng,
            strength,
            quality,
            read_share=_log_uniform(rng, READ_SHARE),
            contrast=rng.uniform(*CONTRAST),
            balance=_balance(rng),
            saturation=rng.uniform(*SATURATION),
            hot=_log_uniform(rng, self.few) if self.hot and rng.random() < self.hot else 0.0,
            in_place=self.in_place,
            **(self._resampling(rng) if unreduced else self._noise_reduction(rng)),
        )

    @staticmethod
    def _resampling(rng: np.random.Generator) -> dict[str, Any]:
        return {
            "luma_blur": _log_uniform(rng, (0.3, 0.6)) if rng.random() < 0.25 else 0.0,
            "chroma_blur": _log_uniform(rng, (0.3, 0.8)) if rng.random() < 0.25 else 0.0,
            "reduced": rng.random() < 0.5,
        }

    def _noise_reduction(self, rng: np.random.Generator) -> dict[str, Any]:
        """What a camera's leaves is mottle of several pixels."""
        return {
            "luma_blur": _log_uniform(rng, (0.4, 2.5)) if rng.random() < 0.75 else 0.0,
            "chroma_blur": _log_uniform(rng, (0.4, 5.0)) if rng.random() < 0.75 else 0.0,
            "mottle": rng.uniform(0.1, 0.8) if rng.random() < 0.5 else 0.0,
            "mottle_radius": _log_uniform(rng, (2.0, 8.0)),
            "reduced": rng.random() < 0.25,
            "shrinkage": self._thresholds(rng) if rng.random() < self.shrunk else (),
            "loudness": _log_uniform(rng, self.loudness),
        }

    @staticmethod
    def _thresholds(rng: np.random.Generator) -> tuple[float, ...]:
        """Of up to four scales; coarser ones are often spared, which leaves mottle."""
        first, fall = rng.uniform(0.5, 3.0), rng.uniform(0.4, 1.0)
        return tuple(float(first * fall**scale) for scale in range(int(rng.integers(1, 5))))

    def _poisson_gaussian(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        gain, read = _log_uniform(rng, self.photon_gain), _log_uniform(rng, self.read_noise)
        return poisson_gaussian(clean, rng, gain, read, _balance(rng))

    def _salt_and_pepper(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        return salt_and_pepper(clean, rng, _log_uniform(rng, self.shot_fraction), rng.random() < 0.5)

    def _blur(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        shape = str(rng.choice(("box", "gaussian", "disc")))
        radius = rng.uniform(*self.blur_radius) * (1.4 if shape == "disc" else 1)
        noise = 0.0 if rng.random() < self.noiseless else rng.uniform(*self.blur_noise)
        if rng.random() < self.reenlarged:
            degraded, level = gaussian(reenlarge(clean, rng, _log_uniform(rng, self.enlarged)), rng, noise)
            degraded = as_file(degraded)
        else:
            degraded, level = blur(clean, rng, shape, radius, noise, stored=True)
        if rng.random() < self.compressed:
            degraded = _as_jpeg(degraded, rng, self._quality(rng), bool(rng.integers(2)), self.in_place)
        return degraded, level

    def _jpeg(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        return jpeg(clean, rng, self._quality(rng), bool(rng.integers(2)), self.in_place)

    def _grain(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        radius = rng.uniform(*GRAIN_RADIUS) if rng.random() < 0.75 else 0.0
        degraded, level = grain(clean, rng, rng.uniform(*self.sigma), radius)
        if rng.random() < self.clipped:
            degraded = as_file(degraded)
            if rng.random() < 0.5:
                degraded = _as_jpeg(degraded, rng, _whole(rng, (FINE_QUALITY, 98)), bool(rng.integers(2)))
        return degraded, level

    def _mottled(self, clean: np.ndarray, rng: np.random.Generator) -> Pair:
        strength = _log_uniform(rng, self.camera_strength)
        colour = rng.uniform(0, COLOUR_SHARE) if rng.random() < 0.75 else 0.0
        if self.blotched and rng.random() < self.blotched:
            colour = _log_uniform(rng, (1.0, 20.0))
            strength /= colour
        degraded, level = mottled(
            clean,
            rng,
            strength,
            radius=_log_uniform(rng, MOTTLE_RADIUS) if rng.random() < 0.85 else 0.0,
            colour=colour,
            colour_radius=_log_uniform(rng, COLOUR_RADIUS),
            sharpening=rng.uniform(0, MOST_SHARPENED) if rng.random() < 0.7 else 0.0,
            photons=rng.random() < 0.5,
        )
        if rng.random() >= self.camera_jpeg:
            return degraded, level
        subsample = rng.random() < self.subsampled
        return _against(_as_jpeg(degraded, rng, self._quality(rng), subsample, self.in_place), clean)

    def _quality(self, rng: np.random.Generator) -> int:
        poor = self.strong > 0 and rng.random() < self.strong
        return _whole(rng, POOR_QUALITY if poor else self.quality)


#: For each task the mixture of its training: noise of all kinds; the same with grain, and with drawings in
#: JPEGs, for an estimator; white noise, for an expert, with some shot noise lest one be mistaken for the
#: other; other noise for the most part, for the network beside an expert; a camera's for photographs that
#: have no noise of their own; what that network learns of drawn pictures; such noise as an estimator is to
#: find in edited ones; white noise and all other about as often, and many grey pictures, for what tells them
#: apart; softness, with a little noise, and pictures that are sharp, which must stay as they are.
MIXTURES = {
    "noise": Mixture(strong=0.3, in_place=0.5),
    "estimator": Mixture(clean_jpeg=0.5, grain=0.14, mottled=0.08, blotched=0.4, zoomed=0.15),
    "white": Mixture(
        gaussian=0.87, stored=0, camera=0, poisson_gaussian=0.1, salt_and_pepper=0.03, clipped=0.3,
        uneven=0.1, photon_gain=(5e-4, 1e-2),
    ),
    "other": Mixture(
        gaussian=0.12, stored=0.15, camera=0.33, poisson_gaussian=0.05, salt_and_pepper=0.1, mottled=0.25,
        unreduced=0.25, hot=0.15, dotted=0.3, strong=0.3, in_place=0.5,
    ),
    "cleaned": Mixture(
        gaussian=0, stored=0.27, camera=0.35, poisson_gaussian=0.05, salt_and_pepper=0.08, mottled=0.25,
        camera_strength=(1 / 255, 30 / 255), unreduced=0.25, hot=0.15, dotted=0.3, strong=0.3, in_place=0.5,
    ),
    "drawn": Mixture(
        gaussian=0.35, stored=0.2, camera=0.21, poisson_gaussian=0.03, salt_and_pepper=0.06, mottled=0.15,
        weak=0.4, clean_jpeg=0.3, unreduced=0.25, strong=0.3, in_place=0.5, speckled=0.25, zoomed=0.1,
    ),
    "edited": Mixture(
        gaussian=0.44, stored=0.26, camera=0.18, poisson_gaussian=0.02, salt_and_pepper=0, mottled=0.1,
        weak=0.3, clean_jpeg=0.5, sigma=(0, 60 / 255), clipped=0.4, blotched=0.4, zoomed=0.25, speckled=0.2,
    ),
    "sorter": Mixture(
        gaussian=0.4, stored=0.12, camera=0.36, poisson_gaussian=0.04, salt_and_pepper=0.08, grey=0.2,
        weak=0.5, uneven=0.15, unreduced=0.35,
    ),
    "blur": Mixture(
        gaussian=0.11, stored=0, camera=0.04, poisson_gaussian=0, salt_and_pepper=0, blur=0.7, jpeg=0.15,
        sigma=(0.0, 10 / 255), clipped=0.5, camera_strength=(0.5 / 255, 6 / 255), compressed=0.45,
        reenlarged=0.2, enlarged=(1.2, 2.2), quality=(55, 98), in_place=0.5,
    ),
}  # fmt: skip


def _log_uniform(rng: np.random.Generator, bounds: Range) -> float:
    return float(np.exp(rng.uniform(*np.log(bounds))))


def _whole(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    """A whole number from the first to the second bound, both included."""
    return int(rng.integers(bounds[0], bounds[1] + 1))


def _balance(rng: np.random.Generator) -> tuple[float, float, float]:
    """White-balance gains of R, G, B."""
    return float(rng.uniform(*RED_GAIN)), 1.0, float(rng.uniform(*BLUE_GAIN))
