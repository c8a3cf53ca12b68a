"""What zenith-deblur makes of soft and of sharp pictures as people have them; a Markdown table.

Middles of pictures of CBSD68, blurred or reduced to half and enlarged again, in files of 8 bits or JPEGs;
and sharp ones in JPEGs, which had better not lose. Everything at the estimated level; PSNR in dB.

    python benchmarks/softness.py [MODEL...] [--pictures 24]
"""

from __future__ import annotations

import io
from collections.abc import Callable

import click
import numpy as np
from night_and_frames import ALL, decibels, photographs, print_head, print_means
from PIL import Image

import zenith_ae
from zenith_ae.training.degradations import as_file, blur

Degrade = Callable[[np.ndarray], np.ndarray]  # (H, W, 3) uint8 both


def _soft(shape: str, radius: float = 1.0) -> Degrade:
    def soft(picture: np.ndarray) -> np.ndarray:
        degraded, _ = blur(picture[None] / np.float32(255), np.random.default_rng(0), shape, radius)
        return np.rint(as_file(degraded[0]) * 255).astype(np.uint8)

    return soft


def _enlarged(way: Image.Resampling) -> Degrade:
    def enlarged(picture: np.ndarray) -> np.ndarray:
        image = Image.fromarray(picture)
        half = image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)
        return np.asarray(half.resize(image.size, way))

    return enlarged


def _jpeg(quality: int, before: Degrade = np.asarray) -> Degrade:
    def stored(picture: np.ndarray) -> np.ndarray:
        stream = io.BytesIO()
        Image.fromarray(before(picture)).save(stream, "JPEG", quality=quality)
        return np.asarray(Image.open(stream))

    return stored


CASES: dict[str, Degrade] = {
    "mean of 3x3": _soft("box"),
    "Gaussian blur of 1.2 pixels": _soft("gaussian", 1.2),
    "the same in a JPEG, quality 95": _jpeg(95, _soft("gaussian", 1.2)),
    "quality 90": _jpeg(90, _soft("gaussian", 1.2)),
    "quality 75": _jpeg(75, _soft("gaussian", 1.2)),
    "disc of 1.8 pixels": _soft("disc", 1.8),
    "enlarged by 2, bilinear": _enlarged(Image.Resampling.BILINEAR),
    "bicubic": _enlarged(Image.Resampling.BICUBIC),
    "Lanczos": _enlarged(Image.Resampling.LANCZOS),
    "sharp": np.asarray,
    "sharp, in a JPEG, quality 92": _jpeg(92),
    "quality 85": _jpeg(85),
    "quality 75 ": _jpeg(75),
}


@click.command(help=__doc__)
@click.argument("models", nargs=-1)
@click.option("--pictures", type=click.IntRange(1), default=24, show_default=True, help="How many of CBSD68.")
def main(models: tuple[str, ...], pictures: int) -> None:
    sharpeners = [zenith_ae.load(name) for name in models or ("zenith-deblur",)]
    clean = photographs(pictures)
    print_head("", sharpeners)
    for name, degrade in CASES.items():
        rows = []
        for picture in clean:
            given = degrade(picture)
            rows.append(decibels(given, picture, ALL, sharpeners))
        print_means(name.strip(), rows)


if __name__ == "__main__":
    main()
