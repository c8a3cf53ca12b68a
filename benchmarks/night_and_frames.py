"""What automatic mode makes of loud camera noise, mottle, noise that was edited, noise in JPEGs, noise beside
plain colours, faint noise on smooth surfaces, crisp pictures, clean and of hard contrast with noise, drawings
and few dots; Markdown tables.

Camera noise is the made-up one of training at a given root mean square, as of photographs at night, also as
it is before a camera reduces it, and with photosites that are stuck at some brightness; that of a phone is
demosaiced along edges, its colour smoothed, the whole sharpened and in a JPEG of quality 85 (such rows need
OpenCV). Mottle is noise of brightness softened by a Gaussian of a pixel or so, with that of colour, which
is much softer, or without any, as film grain is, in a file. Edited are pictures with white noise, which
channels have in common afterwards: of less colour, or of sharpened brightness. Plain parts are a frame,
black bars and transparent surroundings of photographs with white noise of sigma 15 in a file of 8 bits, and
a nearly white background that is as noisy as the rest, of sigma 35. Smooth surfaces are waves of a hundred
pixels and more, as of a rendered or drawn picture, with white noise in a file. Crisp are photographs
of which every other or third pixel is left out, whose colours were made more
vivid or lie apart, which were dithered, or whose values were stretched, so far that much of them is black
or white, also with white noise on top. Drawings are of thin strokes (text and shapes in a few plain
colours, without soft edges), of soft edges (a page of text, an interface or line art), halftones, as of
print, pages of small print, letters by subpixels and music on paper, as they are and with some harm. Dots
are pixels that are black or white, or (hot) single values of bright colours beside weak white noise. PSNR in
dB is that of the picture's own pixels.

    python benchmarks/night_and_frames.py [MODEL...] [--pictures 24]
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import click
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageOps
from quality import CBSD68

import zenith_ae
from zenith_ae.batches import LUMA
from zenith_ae.images import to_8_bits
from zenith_ae.metrics import psnr
from zenith_ae.training.data import decode_rgb, iter_encoded
from zenith_ae.training.degradations import (
    Mixture,
    as_file,
    gaussian,
    grain,
    jpeg,
    mottled,
    salt_and_pepper,
    saturated,
    stretched,
)
from zenith_ae.training.drawings import SIZE as SIZE_OF_DRAWINGS
from zenith_ae.training.drawings import halftone, interface, line_art, small_print, strokes, text

Harm = Callable[[np.ndarray, np.random.Generator], np.ndarray]  # (1, H, W, 3) in [0, 1]


def _mottle(level: float, radius: float, sharpening: float = 0.0) -> Harm:
    return lambda clean, rng: mottled(clean, rng, level / 255, radius, 0.3, 3.0, sharpening)[0]


def _blotches(clean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Soft noise of colour alone, of a root mean square of 8, in a file."""
    return mottled(clean, rng, 1e-3 / 255, 0.0, 8e3, 2.0)[0]


# --- drawings that no training has ------------------------------------------------------------------


def _by_subpixels(rng: np.random.Generator) -> Image.Image:
    """Text as screens show it, each colour of a pixel a third of its width aside (as ClearType does)."""
    pages = np.concatenate([np.concatenate([np.asarray(text(rng)) for _ in range(3)], 1) for _ in range(3)])
    fine = pages.reshape(len(pages) // 3, 3, -1, 3).mean(axis=1)
    wide = np.pad(fine, [(0, 0), (2, 2), (0, 0)], mode="edge")
    soft = sum(w * wide[:, i : i + fine.shape[1]] for i, w in enumerate((1, 2, 3, 2, 1))) / 9
    return Image.fromarray(np.uint8(np.stack([soft[:, c::3, c] for c in range(3)], axis=2) + 0.5))


def _music(rng: np.random.Generator) -> Image.Image:
    """Notes on staves, on paper that light falls on from one side."""
    height, width = SIZE_OF_DRAWINGS
    page = Image.new("L", (3 * width, 3 * height), 255)
    pen = ImageDraw.Draw(page)
    apart = int(rng.integers(14, 22))  # lines of a staff
    for top in range(3 * apart, page.height, 9 * apart):
        for line in range(5):
            pen.line([(0, top + line * apart), (page.width, top + line * apart)], 0, 3)
        for x in range(40, page.width, int(rng.integers(36, 70))):
            y = top + int(rng.integers(-1, 5)) * apart
            pen.ellipse((x, y, x + 1.2 * apart, y + 0.9 * apart), 0)
            pen.line([(x + 1.15 * apart, y + apart // 2), (x + 1.15 * apart, y - 3 * apart)], 0, 3)
    ink = np.asarray(page.resize((width, height), Image.Resampling.LANCZOS))[..., None] / 255
    shade = np.linspace(*rng.uniform(0.75, 0.95, 2), width)[:, None]
    return Image.fromarray(np.uint8(ink * shade * np.array([245, 240, 228]) + 0.5))


# Root mean square of the camera's noise, and what else there is to its mixture.
CAMERAS: dict[str, tuple[int, dict[str, Any]]] = {
    "5": (5, {}),
    "20": (20, {}),
    "40": (40, {}),
    "5, no noise reduction": (5, {"unreduced": 1.0}),
    "20, no noise reduction": (20, {"unreduced": 1.0}),
    "8, no noise reduction, one photosite in 1000 hot": (
        8,
        {"unreduced": 1.0, "hot": 1.0, "few": (1e-3, 1.001e-3)},
    ),
}
PHONES = (20, 40, 80) if importlib.util.find_spec("cv2") else ()  # they need OpenCV
MOTTLE: dict[str, Harm] = {  # root mean square of its brightness, before it is sharpened
    **{f"{level}": _mottle(level, 0.75) for level in (8, 15)},
    "15, softer": _mottle(15, 1.2),
    "15, sharpened": _mottle(15, 0.75, sharpening=0.8),
    "30, sharpened": _mottle(30, 0.75, sharpening=0.8),
    "15, sharpened, in a JPEG of quality 85": lambda clean, rng: jpeg(
        _mottle(15, 0.75, sharpening=0.8)(clean, rng), rng, 85
    )[0],
    "8, of colour alone": _blotches,
    "grain of 15": lambda clean, rng: as_file(grain(clean, rng, 15 / 255, 1.0)[0]),
}
EDITED = (10, 20)
JPEGS = ((15, 80), (25, 70), (40, 50))  # sigma, and quality of the file
QUALITIES = (20, 30, 50, 80)
CLEAN_QUALITIES = (20, 30, 50, 75, 90)
CROPPED = (30, 75)  # of files that are cropped then
ZOOMED = {  # sigma, factor, percent of an unsharp mask
    "sigma 15, to twice the size": (15, 2.0, 0),
    "sigma 25, to one and a half, then sharpened": (25, 1.5, 120),
    "sigma 20, to twice the size, then sharpened": (20, 2.0, 150),
}
FAINT = (2, 3, 5)
HARD = (15, 50)
DRAWINGS: dict[str, tuple[Callable[[np.random.Generator], Image.Image], ...]] = {
    "thin strokes": (strokes,),
    "soft edges": (text, interface, line_art),
    "halftones": (halftone,),
    "small print": (small_print,),
    "letters by subpixels": (_by_subpixels,),
    "music on paper": (_music,),
}
HARM: dict[str, Harm] = {  # what happened to a drawing
    "as they are": lambda clean, rng: clean,
    "JPEG of quality 90": lambda clean, rng: jpeg(clean, rng, 90, subsample=False)[0],
    "JPEG of quality 75, colour at half the resolution": lambda clean, rng: jpeg(clean, rng, 75)[0],
    "sigma 2": lambda clean, rng: as_file(gaussian(clean, rng, 2 / 255)[0]),
    "sigma 10": lambda clean, rng: as_file(gaussian(clean, rng, 10 / 255)[0]),
}
MOST = 100.0  # dB, of what is the same
SHARES = (0.001, 0.003, 0.01)
SIDE = 256


def photographs(count: int) -> list[np.ndarray]:
    """The middles of the first pictures of CBSD68, (256, 256, 3) uint8."""
    if not CBSD68.exists():
        raise SystemExit(f"{CBSD68} is not there (set ZENITH_SHARED)")
    pictures = [decode_rgb(read()) for _, read in islice(iter_encoded(CBSD68), count)]
    corners = [((p.shape[0] - SIDE) // 2, (p.shape[1] - SIDE) // 2) for p in pictures]
    return [p[y : y + SIDE, x : x + SIDE] for p, (y, x) in zip(pictures, corners, strict=True)]


def _plain_parts() -> dict[str, tuple[np.ndarray, float]]:
    """Where a picture is of one colour, bool (256, 256), and which grey that is."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    frame = np.ones((SIDE, SIDE), bool)
    frame[30:-30, 30:-30] = False
    return {
        "nothing": (np.zeros((SIDE, SIDE), bool), 0.0),
        "a white frame of 30 pixels": (frame, 1.0),
        "black bars of 40 pixels": ((y < 40) | (y >= SIDE - 40), 0.0),
        "black outside of an ellipse": (((y - 128) / 100) ** 2 + ((x - 128) / 100) ** 2 > 1, 0.0),
    }


def _in_file(picture: np.ndarray, quality: int) -> np.ndarray:
    """A picture as a JPEG whose blocks begin in its corner, with half the resolution of colour."""
    file = io.BytesIO()
    Image.fromarray(to_8_bits(picture)).save(file, "JPEG", quality=quality, subsampling=2)
    return np.asarray(Image.open(file)) / np.float32(255)


def _surface(rng: np.random.Generator) -> np.ndarray:
    """Three waves of weak and slowly changing colours about a level, (256, 256, 3) in [0, 1]."""
    y, x = np.mgrid[0:SIDE, 0:SIDE, 0:1][:2]
    surface = np.full((SIDE, SIDE, 3), rng.uniform(0.06, 0.9))
    for _ in range(3):
        angle, length, phase = rng.uniform(0, 2 * np.pi), rng.uniform(100, 400), rng.uniform(0, 2 * np.pi)
        wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * (2 * np.pi / length) + phase)
        surface += wave * rng.uniform(-0.02, 0.02, 3)
    return np.clip(surface, 0, 1).astype(np.float32)


def _sharpened(clean: np.ndarray) -> np.ndarray:
    mask = ImageFilter.UnsharpMask(radius=1, percent=120, threshold=0)
    return np.asarray(Image.fromarray(clean).filter(mask)) / np.float32(255)


def _zoomed(picture: np.ndarray, sharpening: int) -> np.ndarray:
    """A picture enlarged to 256 x 256, and sharpened by so many percent."""
    image = Image.fromarray(to_8_bits(picture)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(image.filter(ImageFilter.UnsharpMask(1.5, sharpening, 0))) / np.float32(255)


def _vivid(picture: np.ndarray, factor: float) -> np.ndarray:
    return np.uint8(np.clip(saturated(picture.astype(np.float32), factor), 0, 255) + 0.5)


def _equalized(picture: np.ndarray) -> np.ndarray:
    return np.asarray(ImageOps.equalize(Image.fromarray(picture)))


def _apart(picture: np.ndarray) -> np.ndarray:
    """A picture whose red lies a pixel to the left and whose blue one to the right."""
    wide = np.pad(picture, [(0, 0), (1, 1), (0, 0)], mode="edge")
    return np.stack([wide[:, 2:, 0], picture[..., 1], wide[:, :-2, 2]], axis=2)


def _dithered(picture: np.ndarray) -> np.ndarray:
    """A picture in black and white, stored as a JPEG of quality 90."""
    dots = np.asarray(Image.fromarray(picture).convert("1").convert("RGB"))
    return np.uint8(_in_file(dots / np.float32(255), 90) * 255 + 0.5)


def _halved(picture: np.ndarray) -> np.ndarray:
    size = picture.shape[1] // 2, picture.shape[0] // 2
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _stretched(clean: np.ndarray, gain: float, middle: float) -> np.ndarray:
    return np.uint8(stretched(clean, gain, middle) + 0.5)


def _paler(picture: np.ndarray) -> np.ndarray:
    return saturated(picture, 0.4)


def _crisper(picture: np.ndarray) -> np.ndarray:
    """A picture whose brightness is sharpened."""
    brightness = picture @ LUMA
    wide = np.pad(brightness, 1, mode="edge")
    around = sum(wide[y : y + SIDE, x : x + SIDE] for y in range(3) for x in range(3)) / 9
    return picture + (brightness - around)[..., None]


def _phone(clean: np.ndarray, strength: float, rng: np.random.Generator, finished: bool = True) -> np.ndarray:
    """What a phone makes of a scene (H, W, 3) in [0, 1], with noise of about so much (0..255) in the light of
    its sensor; without the last steps, and with strength 0, what it would be at best."""
    import cv2

    light = cv2.GaussianBlur(clean, (0, 0), 0.6) ** 2.2
    sensor = np.zeros(clean.shape[:2])
    for y, x, channel in ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2)):
        sensor[y::2, x::2] = light[y::2, x::2, channel]
    noise = strength / 255
    sensor += rng.normal(size=sensor.shape) * np.sqrt(0.1 * noise**2 + 0.09 * noise * sensor)
    counts = np.uint16(np.clip(sensor, 0, 1) * 65535 + 0.5)
    seen = (cv2.cvtColor(counts, cv2.COLOR_BayerRGGB2RGB_EA) / np.float32(65535)) ** np.float32(1 / 2.2)
    brightness = (seen @ LUMA)[..., None]
    seen = brightness + cv2.GaussianBlur(seen - brightness, (0, 0), 3)
    if not finished:
        return seen
    crisp = seen + 0.8 * (seen - cv2.GaussianBlur(seen, (0, 0), 1.2))
    return _in_file(np.clip(crisp, 0, 1), 85)


def _shot(share: float) -> Harm:
    return lambda clean, rng: salt_and_pepper(clean, rng, share)[0]


def _hot(clean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noise of sigma 5, and one value in a thousand bright, in a file of 8 bits."""
    noisy = gaussian(clean, rng, 5 / 255)[0]
    hot = rng.random(clean.shape) < 0.001
    noisy[hot] = rng.uniform(0.5, 1, int(hot.sum()))
    return as_file(noisy)


def _noisy_file(target: np.ndarray, sigma: float, i: int) -> np.ndarray:
    """A picture in [0, 1] with white noise in a file of 8 bits."""
    return as_file(gaussian(target[None], np.random.default_rng((sigma, i)), sigma / 255)[0][0])


# --- tables: title -> row -> what is given, what it should be, and where that is measured -----------

Case = tuple[np.ndarray, np.ndarray, Any]
Rows = dict[str, Callable[[int], Case]]  # of the i-th picture
ALL = ...  # every pixel


def tables(clean: Sequence[np.ndarray]) -> dict[str, Rows]:
    """All tables, of photographs (256, 256, 3) uint8."""
    bright = [picture / np.float32(255) for picture in clean]
    hard = {
        "three times the contrast": [_stretched(picture, 3.0, float(picture.mean())) for picture in clean],
        "four times as bright": [_stretched(picture, 4.0, 0.0) for picture in clean],
    }
    crisp = {
        "as they are": clean,
        "every other pixel of every other row": [
            np.ascontiguousarray(picture[::2, ::2]) for picture in clean
        ],
        "every third pixel of every third row": [
            np.ascontiguousarray(picture[::3, ::3]) for picture in clean
        ],
        "red and blue a pixel apart from green": [_apart(picture) for picture in clean],
        "dithered to black and white, in a JPEG of quality 90": [_dithered(picture) for picture in clean],
        "equalized": [_equalized(picture) for picture in clean],
        "2.2 times as bright, white cut off": [_stretched(picture, 2.2, 0.0) for picture in clean],
        "twice the contrast": [_stretched(picture, 2.0, float(picture.mean())) for picture in clean],
        "colours twice as vivid": [_vivid(picture, 2.0) for picture in clean],
        "colours twice as vivid, at half the size": [_vivid(_halved(picture), 2.0) for picture in clean],
    }

    def camera(strength: int, more: dict[str, Any], i: int) -> Case:
        kinds = {kind: float(kind == "camera") for kind in Mixture.KINDS}
        level = strength / 255
        mixture = Mixture(**kinds, **more, grey=0, clean=0, camera_strength=(level, level * 1.0001))  # type: ignore[arg-type]
        noisy, target, *_ = mixture.sample(clean[i][None], np.random.default_rng((strength, i)))
        return noisy[0], target[0], ALL

    def phone(strength: int, i: int) -> Case:
        rng = np.random.default_rng((strength, i))
        return _phone(bright[i], strength, rng), _phone(bright[i], 0, rng, finished=False), ALL

    def harmed(harm: Harm, i: int) -> Case:
        return harm(bright[i][None], np.random.default_rng((7, i)))[0], bright[i], ALL

    def edited(sigma: int, edit: Callable[[np.ndarray], np.ndarray], too: bool, i: int) -> Case:
        """With noise before it was edited; ``too`` says whether the target is edited as well."""
        noisy = bright[i] + np.random.default_rng((sigma, i)).normal(0, sigma / 255, bright[i].shape)
        return as_file(np.float32(edit(noisy))), np.float32(edit(bright[i]) if too else bright[i]), ALL

    def anywhere(sigma: int, quality: int, i: int) -> Case:
        rng = np.random.default_rng((sigma, i))
        noisy = as_file(gaussian(bright[i][None], rng, sigma / 255)[0])
        return jpeg(noisy, rng, quality, subsample=False)[0][0], bright[i], ALL

    def cropped(quality: int, i: int) -> Case:
        return _in_file(bright[i], quality)[3:, 5:], bright[i][3:, 5:], ALL

    def in_file(quality: int, sigma: int, i: int) -> Case:
        noisy = gaussian(bright[i][None], np.random.default_rng((25, i)), sigma / 255)[0][0]
        return _in_file(noisy, quality), bright[i], ALL

    def sharpened(i: int) -> Case:
        target = _sharpened(clean[i])
        return jpeg(target[None], np.random.default_rng(0), 80)[0][0], target, ALL

    def page(i: int) -> Case:
        target = np.asarray((text, interface, line_art)[i % 3](np.random.default_rng((1, i))))
        target = target / np.float32(255)
        return _in_file(target, 75), target, ALL

    def zoomed(sigma: int, factor: float, sharpening: int, i: int) -> Case:
        part = bright[i][: round(SIDE / factor), : round(SIDE / factor)]
        return *(_zoomed(x, sharpening) for x in (_noisy_file(part, sigma, i), part)), ALL

    def beside(plain: np.ndarray, colour: float, i: int) -> Case:
        noisy = _noisy_file(bright[i], 15, i)
        noisy[plain] = colour
        return noisy, bright[i], ~plain

    def background(i: int) -> Case:
        y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
        inside = (x**2 + y**2 < 0.6)[..., None]
        target = np.where(inside, clean[i], np.uint8(245)) / np.float32(255)
        return _noisy_file(target, 35, i), target, ALL

    def quarter(i: int) -> Case:
        part = np.zeros((SIDE, SIDE), bool)
        part[SIDE // 2 :, SIDE // 2 :] = True
        return np.where(part[..., None], _noisy_file(bright[i], 30, i), bright[i]), bright[i], part

    def smooth(sigma: int, i: int) -> Case:
        rng = np.random.default_rng((sigma, i))
        target = _surface(rng)
        return as_file(gaussian(target[None], rng, sigma / 255)[0][0]), target, ALL

    def counted(i: int) -> Case:
        rng = np.random.default_rng((0, i))
        waves = _surface(rng)[..., [1, 1, 1]]
        target = np.clip(0.5 + 6 * (waves - waves.mean()), 0.05, 0.95)
        counts = rng.poisson(100 * target[..., :1]).astype(np.float32)
        return as_file(np.repeat(counts / 100, 3, axis=2)), target, ALL

    def untouched(pictures: Sequence[np.ndarray], i: int) -> Case:
        return pictures[i], pictures[i], ALL

    def noisy(pictures: Sequence[np.ndarray], sigma: int, i: int) -> Case:
        target = pictures[i] / np.float32(255)
        return _noisy_file(target, sigma, i), target, ALL

    def drawn(ways: Sequence[Callable[[np.random.Generator], Image.Image]], harm: Harm, i: int) -> Case:
        target = np.asarray(ways[i % len(ways)](np.random.default_rng((1, i)))) / np.float32(255)
        return harm(target[None], np.random.default_rng((8, i)))[0], target, ALL

    return {
        "camera noise": {
            **{name: partial(camera, *how) for name, how in CAMERAS.items()},
            **{f"as of a phone, {strength}": partial(phone, strength) for strength in PHONES},
        },
        "mottle": {name: partial(harmed, harm) for name, harm in MOTTLE.items()},
        "white noise, edited": {
            **{
                f"sigma {sigma}, then two fifths of the colour": partial(edited, sigma, _paler, True)
                for sigma in EDITED
            },
            **{
                f"sigma {sigma}, then brightness sharpened": partial(edited, sigma, _crisper, False)
                for sigma in EDITED
            },
        },
        "white noise in a JPEG of full colour, its blocks anywhere": {
            f"sigma {sigma}, quality {quality}": partial(anywhere, sigma, quality) for sigma, quality in JPEGS
        },
        "sigma 25 in a JPEG file": {
            f"quality {quality}": partial(in_file, quality, 25) for quality in QUALITIES
        },
        "JPEG files without noise": {
            **{f"quality {quality}": partial(in_file, quality, 0) for quality in CLEAN_QUALITIES},
            **{f"quality {quality}, cropped": partial(cropped, quality) for quality in CROPPED},
            "sharpened photographs, quality 80, blocks anywhere": sharpened,
            "pages, interfaces and line art, quality 75": page,
        },
        "enlarged with its noise": {name: partial(zoomed, *how) for name, how in ZOOMED.items()},
        "sigma 15 beside": {
            **{name: partial(beside, *part) for name, part in _plain_parts().items()},
            "sigma 35 in all, and a background of 245": background,
            "sigma 30 in a quarter alone": quarter,
        },
        "smooth surfaces": {
            **{f"sigma {sigma}": partial(smooth, sigma) for sigma in FAINT},
            "in grey, noise of photons": counted,
        },
        "clean photographs": {
            name: partial(untouched, pictures) for name, pictures in (crisp | hard).items()
        },
        "hard contrast, with noise": {
            f"{name}, sigma {sigma}": partial(noisy, pictures, sigma)
            for name, pictures in hard.items()
            for sigma in HARD
        },
        "drawings": {
            f"{title}, {name}": partial(drawn, ways, harm)
            for title, ways in DRAWINGS.items()
            for name, harm in HARM.items()
        },
        "dots": {
            **{f"{share:.1%} black or white": partial(harmed, _shot(share)) for share in SHARES},
            "0.1% of the values hot, and sigma 5": partial(harmed, _hot),
        },
    }


def print_head(title: str, models: Sequence[zenith_ae.Denoiser]) -> None:
    """The head of a table with a column for what is given and one for each model."""
    head = " | ".join(f"{model.name} ({model.hash})" for model in models)
    print(f"| {title} | given | {head} |\n|---|--:|{'--:|' * len(models)}")


def print_means(name: str, rows: list[list[float]]) -> None:
    print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in np.mean(rows, axis=0)) + " |", flush=True)


def decibels(
    given: np.ndarray, target: np.ndarray, where: Any, models: Sequence[zenith_ae.Denoiser]
) -> list[float]:
    """PSNR of what is given and of what each model makes of it, there, `MOST` at most."""
    return [min(psnr(x[where], target[where]), MOST) for x in (given, *(model(given) for model in models))]


@click.command(help=__doc__)
@click.argument("models", nargs=-1)
@click.option("--pictures", type=click.IntRange(1), default=24, show_default=True, help="How many of CBSD68.")
def main(models: tuple[str, ...], pictures: int) -> None:
    names = models or ("zenith-denoise", "zenith-denoise-fast", "zenith-denoise-large")
    denoisers = [zenith_ae.load(name) for name in names]
    for number, (title, rows) in enumerate(tables(photographs(pictures)).items()):
        if number:
            print()
        print_head(title, denoisers)
        for name, case in rows.items():
            print_means(name, [decibels(*case(i), denoisers) for i in range(pictures)])


if __name__ == "__main__":
    main()
