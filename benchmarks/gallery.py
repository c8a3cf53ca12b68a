"""Write docs/gallery.md, its pictures, and the README's picture: ``python benchmarks/gallery.py``.

Public-domain pictures that scikit-image carries get noise or blur of known kinds and fixed seeds,
and go through the shipped models at their defaults: what ``zenith-ae denoise FILE`` does, the noise
level estimated. All figures are of the whole pictures, and of this run, in float32, so that they are the
same on every machine but for the last digit. The README's picture is examples/cat.png, noisy and denoised.
Needs scikit-image.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import ROOT, script_parser
from PIL import Image
from skimage import data

import zenith_ae
from zenith_ae.images import to_8_bits
from zenith_ae.metrics import psnr, ssim
from zenith_ae.training import degradations
from zenith_ae.weights import available_weights

DOCS = ROOT / "docs"
FOLDER = DOCS / "images" / "gallery"
BYTES = 1_500_000  # of all pictures together
SIDE = 160  # of a crop, which is shown at 200 %
GAP = 6
Noise = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Scene:
    """A picture, the noise or blur that it gets, and the upper left corner of the crop that is shown."""

    name: str
    title: str
    noise: Noise
    y: int
    x: int


def gaussian(sigma: float) -> Noise:
    """Independent noise of one level, in units of 0..255, clipped and rounded like a file."""
    return lambda clean, rng: degradations.gaussian(clean, rng, sigma / 255)[0]


def shot(gain: float, read: float) -> Noise:
    return lambda clean, rng: degradations.poisson_gaussian(clean, rng, gain, read)[0]


def camera(strength: float, **options: float) -> Noise:
    return lambda clean, rng: degradations.camera(clean, rng, strength / 255, 92, **options)[0]


def soft(shape: str, radius: float = 1.0) -> Noise:
    return lambda clean, rng: degradations.blur(clean, rng, shape, radius, stored=True)[0]


SCENES = (
    Scene("astronaut", "Gaussian noise, sigma 15", gaussian(15), 60, 150),
    Scene("chelsea", "Gaussian noise, sigma 25", gaussian(25), 60, 90),
    Scene("coffee", "Gaussian noise, sigma 50", gaussian(50), 120, 180),
    Scene("coffee", "camera noise: a mosaic, a noise reduction, JPEG", camera(14, chroma_blur=0.8), 160, 380),
    Scene("astronaut", "camera noise, coarser in colour than in brightness",
          camera(18, luma_blur=0.5, chroma_blur=1.2), 300, 40),
    Scene("rocket", "shot noise: photons counted in little light", shot(0.006, 0.004), 220, 240),
    Scene("hubble_deep_field", "shot noise on stars, which look like noise themselves",
          shot(0.004, 0.01), 190, 200),
    Scene("camera", "grey, Gaussian noise, sigma 25", gaussian(25), 60, 180),
)  # fmt: skip

SOFT = (
    Scene("astronaut", "the mean of 3x3 pixels", soft("box"), 60, 150),
    Scene("chelsea", "Gaussian blur of 1.2 pixels", soft("gaussian", 1.2), 60, 90),
    Scene("coffee", "out of focus: a disc of radius 2", soft("disc", 2.0), 120, 180),
)

CLEAN = (("astronaut", 60, 150), ("coffee", 160, 380), ("chelsea", 60, 90), ("camera", 60, 180))

CREDITS = (
    "The photographs are in the public domain and come with scikit-image: astronaut and hubble_deep_field "
    "by NASA, rocket by SpaceX, chelsea by Stefan van der Walt, coffee by Rachel Michetti, camera by Lav "
    "Varshney."
)


def main() -> None:
    script_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as made:
        text = render(Path(made))
        files = sorted(Path(made).iterdir())
        size = sum(file.stat().st_size for file in files)
        if size > BYTES:
            raise SystemExit(f"{size / 1e6:.2f} MB of pictures: lower the quality or the number")
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(made, FOLDER)
    (DOCS / "gallery.md").write_text(text, "utf-8")
    before_after()
    print(f"{len(files)} pictures, {size / 1e6:.2f} MB")


def before_after() -> None:
    """Write the README's picture: noisy, and what ``zenith-ae denoise examples/cat.png`` makes of it."""
    with Image.open(ROOT / "examples" / "cat.png") as noisy:
        clean = zenith_ae.load("zenith-denoise", dtype="float32")(noisy)
        save(DOCS / "images" / "before_after.webp", [noisy, clean], quality=90)


def render(folder: Path) -> str:
    """Write the pictures into ``folder``; the text of the page."""
    loaded = {name: zenith_ae.load(name, dtype="float32") for name in available_weights()}
    denoiser, deblurrer = loaded["zenith-denoise"], loaded["zenith-deblur"]
    autoencoders = [model for model in loaded.values() if isinstance(model, zenith_ae.Autoencoder)]
    used = ", ".join(f"{model.name} ({model.hash})" for model in (denoiser, deblurrer, *autoencoders))
    text = [
        "# Gallery",
        f"<!-- Written by benchmarks/gallery.py; do not edit. Weights: {used} -->",
        "Crops at 200 %. PSNR in dB of the whole picture against the original, at most 512 x 512 of it. "
        "All levels are estimated by the model, nothing is set by hand; computed in float32.",
        "## Denoising",
        "Each row: noisy, denoised, original.",
    ]
    for number, scene in enumerate(SCENES, 1):
        text += restored(folder, scene, number, "", ("noisy", "denoised"), denoiser)
    text += ["## Sharpening", "Each row: soft, what `zenith-ae deblur` makes of it, original."]
    for number, scene in enumerate(SOFT, 1):
        text += restored(folder, scene, number, "soft-", ("soft", "sharpened"), deblurrer)
    names = "; ".join(f"{model.name}, its error four times as strong" for model in autoencoders)
    text += ["## Round trips", f"Encoded to latents and decoded. Each row: original; {names} (grey is none)."]
    for name, y, x in CLEAN:
        text += round_trip(folder, name, y, x, autoencoders)
    text.append(f"{CREDITS} The noise and the blur are made here ([the script](../benchmarks/gallery.py)).")
    return "\n\n".join(text) + "\n"


def restored(
    folder: Path, scene: Scene, number: int, prefix: str, words: tuple[str, str], model: zenith_ae.Denoiser
) -> list[str]:
    clean, (y, x) = original(scene.name, scene.y, scene.x)
    planes = clean[None].astype(np.float32) / 255
    noisy = scene.noise(planes if planes.ndim == 4 else planes[..., None], np.random.default_rng(number))[0]
    noisy = to_8_bits(noisy.reshape(clean.shape))
    level = float(model.estimate_sigma(noisy).mean())
    result = model(noisy)
    file = f"{prefix}{number:02}-{scene.name}.webp"
    save(folder / file, [crop(picture, y, x, SIDE) for picture in (noisy, result, clean)])
    before, after = psnr(noisy, clean), psnr(result, clean)
    similar = f"(SSIM {ssim(noisy, clean):.3f}, {ssim(result, clean):.3f})"
    alt = f"{scene.name}: {words[0]}, {words[1]}, original"
    return [
        f"![{alt}](images/gallery/{file})",
        f"*{scene.name}*: {scene.title}. Estimated noise {level:.1f}. "
        f"**{before:.2f} dB before, {after:.2f} dB after** {similar}.",
    ]


def round_trip(folder: Path, name: str, y: int, x: int, models: list[zenith_ae.Autoencoder]) -> list[str]:
    clean, (y, x) = original(name, y, x)
    side = SIDE * 3 // 4
    shown, words = [crop(clean, y, x, side)], []
    for model in models:
        result = model.roundtrip(clean)
        error = np.clip(128 + 4 * (result.astype(np.int16) - clean), 0, 255).astype(np.uint8)
        shown += [crop(result, y, x, side), crop(error, y, x, side)]
        words.append(f"{model.name} **{psnr(result, clean):.2f} dB** (SSIM {ssim(result, clean):.3f})")
    file = f"roundtrip-{name}.webp"
    save(folder / file, shown)
    alt = f"{name}: original, round trips and their errors"
    return [f"![{alt}](images/gallery/{file})", f"*{name}*: {', '.join(words)}."]


def original(name: str, y: int, x: int) -> tuple[np.ndarray, tuple[int, int]]:
    """At most 512 x 512 of a picture, (H, W) or (H, W, 3) uint8, and where the crop is in it."""
    picture = getattr(data, name)()
    top, left = (
        max(0, min(at - 176, length - 512)) for at, length in zip((y, x), picture.shape, strict=False)
    )
    return np.ascontiguousarray(picture[top : top + 512, left : left + 512]), (y - top, x - left)


def crop(picture: np.ndarray, y: int, x: int, side: int) -> Image.Image:
    piece = Image.fromarray(picture[y : y + side, x : x + side]).convert("RGB")
    return piece.resize((2 * side, 2 * side), Image.Resampling.NEAREST)


def save(file: Path, pieces: list[Image.Image], quality: int = 86) -> None:
    width, height = pieces[0].size
    row = Image.new("RGB", (len(pieces) * (width + GAP) - GAP, height), "white")
    for i, piece in enumerate(pieces):
        row.paste(piece, (i * (width + GAP), 0))
    row.save(file, quality=quality, method=6)


if __name__ == "__main__":
    main()
