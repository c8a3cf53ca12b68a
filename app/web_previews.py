"""What the page shows of pictures: previews, thumbnails, differences and channels of latents, as files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from zenith_ae.batches import to_rgb
from zenith_ae.image_writing import describes
from zenith_ae.images import Picture, to_8_bits, to_pil

#: Larger pictures are shown smaller; the files to download never are.
PREVIEW_PIXELS = 2**24
#: Above this, what is shown is a JPEG.
LOSSLESS_PIXELS = 2**21
THUMBNAIL = 320
_BAND = 256


def _shown(picture: Picture) -> Image.Image:
    """An 8-bit L or RGB image that a browser shows with the right colours; transparency on white."""
    image = to_pil(replace(picture, pixels=to_8_bits(picture.pixels)))
    if image.mode == "CMYK":
        image = Image.fromarray(to_rgb(picture.pixels[None], "CMYK")[0])
    if image.mode in ("LA", "RGBA"):
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image


def write_preview(picture: Picture, stem: Path) -> tuple[str, float]:
    """Write a picture for the page; returns the path and the scale that it is shown at (1: every pixel)."""
    image = _shown(picture)
    scale = min(1.0, (PREVIEW_PIXELS / (image.width * image.height)) ** 0.5)
    if scale < 1:
        size = (max(1, int(image.width * scale)), max(1, int(image.height * scale)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    options = _profile(picture, image)
    if image.width * image.height > LOSSLESS_PIXELS and max(image.size) < 65000:
        path = f"{stem}.jpg"
        image.save(path, "JPEG", quality=95, subsampling=0, **options)
    else:
        path = f"{stem}.png"
        image.save(path, "PNG", compress_level=1, **options)
    return path, round(scale, 3)


def write_thumbnail(picture: Picture, path: Path) -> str:
    image = _shown(picture)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    image.save(path, "JPEG", quality=85, **_profile(picture, image))
    return str(path)


def _profile(picture: Picture, shown: Image.Image) -> dict[str, Any]:
    """What to save a picture with for its colours to be right; what is shown may have others (CMYK, LA)."""
    profile = picture.metadata.get("icc_profile", b"")
    return {"icc_profile": profile} if profile and describes(profile, shown.mode) else {}


def write_difference(before: Picture, after: Picture, stem: Path) -> tuple[str, int]:
    """A picture of (before - after), amplified around middle grey; returns path and amplification."""
    a, b = (to_8_bits(to_rgb(p.pixels[None], p.layout)[0]) for p in (before, after))
    step = max(1, a.shape[0] // 64)
    deviation = float((a[::step].astype(np.int16) - b[::step]).std())
    gain = int(np.clip(np.rint(32 / max(deviation, 1e-6)), 1, 32))
    out = np.empty_like(a)
    for y in range(0, len(a), _BAND):
        band = slice(y, y + _BAND)
        difference = a[band].astype(np.int16) - b[band]
        out[band] = np.clip(128 + gain * difference, 0, 255)
    return write_preview(Picture(out, "RGB", "RGB"), stem)[0], gain


def write_channels(z: NDArray, path: Path) -> str:
    """The channels of latents (C, h, w) side by side, blue below and orange above each one's mean."""
    channels, height, width = z.shape
    columns = min(channels, 8)
    step = max(1, -(-max(height, width) // 192))  # a sheet of 8 columns stays below 1,600 pixels
    z = z[:, ::step, ::step]
    times = max(1, 192 // max(z.shape[1:]))
    mean, deviation = z.mean((1, 2), keepdims=True), z.std((1, 2), keepdims=True)
    level = np.clip((z - mean) / (2.5 * deviation + 1e-12), -1, 1)[..., None]
    dark, low, high = (np.array(c, np.float32) for c in ((20, 24, 33), (96, 165, 250), (251, 160, 60)))
    colour = dark + np.abs(level) ** 0.8 * (np.where(level < 0, low, high) - dark)
    tiles = np.rint(colour).astype(np.uint8).repeat(times, 1).repeat(times, 2)
    rows, gap = -(-channels // columns), 4
    h, w = tiles.shape[1:3]
    sheet = np.full((rows * (h + gap) - gap, columns * (w + gap) - gap, 4), 0, np.uint8)
    for i, tile in enumerate(tiles):
        y, x = i // columns * (h + gap), i % columns * (w + gap)
        sheet[y : y + h, x : x + w, :3], sheet[y : y + h, x : x + w, 3] = tile, 255
    Image.fromarray(sheet).save(path, compress_level=4)
    return str(path)
