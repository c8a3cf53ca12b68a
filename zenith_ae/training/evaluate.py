"""Measured quality of a model on a folder or tar pack of pictures: PSNR and SSIM.

Three tasks, whose protocols are part of the numbers:

``denoise``
    White Gaussian noise of each asked level on clean pictures. Picture i of the sorted names gets
    ``default_rng(seed + i)``; the noisy picture is neither clipped nor rounded before the network.
    Each level is measured with the level told, and (where the model can) estimated. "file" is the same
    noise, clipped and rounded to 8 bits, as a picture file holds it; "jpeg" is that file as JPEG of
    quality 80 with half the resolution of colour, its block grid at a random place, which leaves less of
    the noise than the level told. Or other harm, at the estimated
    level: 5 % of the pixels black or white ("shot"), the mean of 3x3 pixels, rounded
    to 8 bits ("box"), none at all ("none": what the model does to a clean picture).
``pairs``
    Real noisy pictures beside their ground truth, denoised at the estimated level.
``roundtrip``
    decode(encode(picture)), optionally also through the encoder or decoder of another model.

Outputs are clipped to [0, 1] and compared in float (not rounded to 8 bits), over all three
channels; the mean is over pictures, and one that comes out to the bit counts 100 dB in it. A round
trip is also measured by what PSNR does not tell:
``sharpness``, ``cast``, ``grid`` and ``lattice`` (`zenith_ae.metrics`), the mean error of each
channel with its sign (``red``, ``green``, ``blue``; in the mean over pictures it is what they have
in common, a bias of the model), and beside another model by ``latents``, the mean absolute
difference between what that model's encoder makes of the result and of the original: how unlike
they are in what an encoder keeps. Nothing here needs torch.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..batches import LUMA
from ..errors import ConfigError, ImageError, MissingDependencyError
from ..files import aligned, visible
from ..metrics import channel_errors, grid_steps, lattice_energy, psnr, sharpness, ssim
from .data import Read, decode_rgb, iter_encoded
from .degradations import as_file, blur, jpeg, salt_and_pepper

Floats = NDArray[np.float32]
Source = str | Path
Progress = Callable[[int, int, str], None]
#: Called with (picture's name, case, original, result, input): (H, W, 3) in [0, 1].
Observer = Callable[[str, str, Floats, Floats, Floats], None]
#: (case, what the model was given, what it made of it)
Results = Iterator[tuple[str, Floats, Any]]
#: Called with an index, a picture or a noisy and a clean one, and what another model encodes it to.
Runner = Callable[[int, list[Floats], Any], Results]

NOISY, CLEAN = "_real", "_mean"

#: The channels of a picture, by whose names their mean errors are reported.
COLOURS = ("red", "green", "blue")

SIGMAS = (15.0, 25.0, 50.0)
JPEG_QUALITY = 80
OF_DETAIL = ("sharpness", "grid", "lattice")  # scores that are NaN where there is nothing to compare
EXACT = 100.0  # dB that a picture which comes out to the bit counts in a mean with others
LEVELLED = ("gaussian", "file", "jpeg")  # by noise of a level
DEGRADATIONS = (*LEVELLED, "shot", "box", "none")


class DenoiserLike(Protocol):
    """`zenith_ae.Denoiser`, or any function of its signature.

    Takes float32 (H, W, 3), values around [0, 1], and the noise level in units of 0..255 or
    "auto"; returns the same shape.
    """

    def __call__(self, image: Any, sigma: Any = "auto") -> Any: ...


class AutoencoderLike(Protocol):
    """The part of `zenith_ae.Autoencoder` that is used here."""

    def encode(self, image: Any) -> Any: ...

    def decode(self, latents: Any, output: Any = "uint8", size: tuple[int, int] | None = None) -> Any: ...


def evaluate_model(
    model: DenoiserLike | AutoencoderLike,
    source: Source,
    task: str = "auto",
    sigmas: Sequence[float] | None = None,
    seed: int = 0,
    limit: int | None = None,
    *,
    degradations: Sequence[str] | None = None,
    grey: bool = False,
    reference: Source | None = None,
    other: AutoencoderLike | None = None,
    passes: int = 1,
    progress: Progress | None = None,
    observe: Observer | None = None,
) -> dict[str, Any]:
    """Measure a model; see the module's text for the protocols.

    Parameters
    ----------
    model : an autoencoder or a denoiser.
    source : folder or uncompressed .tar pack of pictures. For pairs it holds ``NAME_real.EXT``
        (noisy) beside ``NAME_mean.EXT`` (ground truth), or only the noisy ones.
    task : "auto" (by the model, and for a denoiser by whether ``source`` holds pairs), "denoise",
        "pairs" or "roundtrip".
    sigmas : noise levels of "denoise" in units of 0..255, default `SIGMAS`.
    seed : of the noise.
    degradations : of "denoise", from `DEGRADATIONS`, default Gaussian noise; of a model that sharpens,
        where no ``sigmas`` are given, a box blur.
    grey : make every picture grey first (H, W), rounded to 8 bits, as BSD68 is made of CBSD68.
    limit : measure only the first pictures.
    reference : folder or pack of the ground truth with the same names (suffixes may differ).
    other : a second autoencoder, to exchange encoder and decoder with.
    passes : of a `zenith_ae.Denoiser`, see there.
    progress : called with (pictures done, pictures in all, name).
    observe : shown every result, see `Observer` (and `ContactSheet`, which is one).

    Returns
    -------
    dict
        ``task``, ``source``, ``count``, ``skipped`` (names that could not be decoded, or whose
        ground truth is of another size), ``seconds``, ``mean``
        (case -> psnr, ssim; for denoising also input_psnr and the mean squared errors
        input_mse and mse, for a round trip sharpness, cast, red, green, blue, grid, lattice and, with
        ``other``, latents) and ``pictures`` (the same for each picture, with name, width and height).
        For a zenith_ae model also ``model`` and ``weights``, its hash; for a denoiser ``passes``, for
        "denoise" also ``seed``.

    Raises
    ------
    ImageError
        Where a source does not exist, holds no usable picture, or pairs do not fit.
    ConfigError
        Where the task does not fit the model, or an option the task.
    """
    codec = hasattr(model, "encode")
    if task == "auto":
        paired = reference is not None or (not codec and bool(find_pairs(source)))
        task = "roundtrip" if codec else "pairs" if paired else "denoise"
    _check_task(model, task, sigmas is not None or degradations is not None)
    _check_options(codec, reference, grey, other, passes)
    run = _runner(model, task, sigmas, degradations, seed, other, passes)
    entries = _entries(source, reference, task)[:limit]
    start = time.perf_counter()
    pictures: list[dict[str, Any]] = []
    skipped: list[str] = []
    for index, (name, reads) in enumerate(entries):
        if progress is not None:
            progress(index, len(entries), name)
        images = _images(reads, grey)
        if not images:
            skipped.append(name)
            continue
        original = images[-1]
        theirs = None if other is None else other.encode(original)
        cases: dict[str, dict[str, float]] = {}
        for case, given, out in run(index, images, theirs):
            result = np.clip(np.asarray(out, np.float32), 0, 1)
            cases[case] = _scores(original, result, None if codec else given)
            if other is not None:
                cases[case]["latents"] = float(np.abs(other.encode(result) - theirs).mean())
            if observe is not None:
                observe(name, case, original, result, given)
        height, width = original.shape[:2]
        pictures.append({"name": name, "width": width, "height": height, "cases": cases})
    if not pictures:
        raise ImageError(f"{source}: no usable picture ({len(skipped)} skipped)")

    report: dict[str, Any] = {
        "task": task,
        "source": Path(source).resolve().name,
        "count": len(pictures),
        "skipped": skipped,
        "seconds": time.perf_counter() - start,
        "mean": _mean([picture["cases"] for picture in pictures]),
        "pictures": pictures,
    }
    if not codec:
        report["passes"] = passes
    if task == "denoise":
        report["seed"] = seed
    if hasattr(model, "config"):
        report = {"model": model.config.name, "weights": getattr(model, "hash", "")} | report
    return report


def _check_task(model: DenoiserLike | AutoencoderLike, task: str, degraded: bool) -> None:
    codec = hasattr(model, "encode")
    if task not in ("denoise", "pairs", "roundtrip"):
        raise ValueError(f"task must be auto, denoise, pairs or roundtrip, got {task!r}")
    if codec != (task == "roundtrip"):
        raise ConfigError(f"{'an autoencoder' if codec else 'a denoiser'} cannot be measured by {task!r}")
    if task != "denoise" and degraded:
        what = "a round trip" if codec else "a picture with its ground truth"
        raise ConfigError(f"noise levels and degradations are not for {what}, which is taken as it is")
    if task == "pairs" and not _can_estimate(model):
        raise ConfigError(
            "pairs are measured at the level that a model estimates, and this one has no estimator"
        )


def _can_estimate(model: Any) -> bool:
    return not hasattr(model, "config") or "estimator" in model.config.parts


def _check_options(
    codec: bool, reference: Source | None, grey: bool, other: AutoencoderLike | None, passes: int
) -> None:
    if codec and reference is not None:
        raise ConfigError(
            "an autoencoder's round trip is compared with its input; leave out the ground truth"
        )
    if codec and grey:
        raise ConfigError("an autoencoder's round trip is measured in colour")
    if not codec and other is not None:
        raise ConfigError("only an autoencoder can be measured together with another model")
    if codec and passes != 1:
        raise ConfigError("only a denoiser takes several passes")


def _runner(
    model: Any,
    task: str,
    sigmas: Sequence[float] | None,
    degradations: Sequence[str] | None,
    seed: int,
    other: AutoencoderLike | None,
    passes: int,
) -> Runner:
    """What runs a model on each picture."""
    if task == "roundtrip":
        return lambda index, images, theirs: _roundtrip(model, other, images[0], theirs)
    denoise: DenoiserLike = model if passes == 1 else partial(model, passes=passes)
    if task == "pairs":
        return lambda index, images, theirs: iter([("auto", images[0], denoise(images[0], "auto"))])
    if degradations is None:
        weights = getattr(getattr(model, "engine", None), "weights", None)
        soft = weights is not None and weights.metadata.get("task") == "blur"
        degradations = ("box",) if soft and sigmas is None else ("gaussian",)
    if unknown := sorted(set(degradations) - set(DEGRADATIONS)):
        raise ValueError(f"degradations must be of {', '.join(DEGRADATIONS)}, got {', '.join(unknown)}")
    if sigmas is not None and not set(degradations) & set(LEVELLED):
        raise ConfigError(
            f"noise levels are for the degradations {', '.join(LEVELLED)}, not for {', '.join(degradations)}"
        )
    levels = SIGMAS if sigmas is None else sigmas
    can_estimate, unwarned = _can_estimate(model), _unwarned(denoise)
    return lambda index, images, theirs: _denoise(
        unwarned, can_estimate, images[0], levels, seed + index, degradations
    )


def _images(reads: tuple[Read, ...], grey: bool) -> list[Floats]:
    """The decoded pictures, none where they cannot be, or not be compared."""
    try:
        images = [_floats(decode_rgb(read())) for read in reads]
    except (ImageError, MissingDependencyError, OSError):
        return []
    if grey:
        images = [np.rint(image @ LUMA * 255) / np.float32(255) for image in images]
    return images if len({image.shape for image in images}) == 1 else []


def _entries(source: Source, reference: Source | None, task: str) -> Sequence[tuple[str, tuple[Read, ...]]]:
    """Names and what reads them: a picture, or the noisy and the clean one of a pair."""
    if task != "pairs":
        return [(name, (read,)) for name, read in iter_encoded(source)]
    pairs = find_pairs(source, reference)
    if not pairs:
        raise ImageError(f"{source}: no pairs; expected NAME{NOISY}.* beside NAME{CLEAN}.*, or a reference")
    return pairs


def find_pairs(source: Source, reference: Source | None = None) -> list[tuple[str, tuple[Read, Read]]]:
    """The noisy pictures of a source with their ground truth: (name, (noisy, clean)), sorted.

    Without ``reference`` a pair is ``NAME_real.EXT`` with ``NAME_mean.EXT``; with it, files of one
    path in both sources, whatever their suffix.

    Raises
    ------
    ImageError
        Where a picture lacks its partner, two differ only in their suffix, or a source does not exist.
    """
    noisy = _by_stem(source, (NOISY, CLEAN)) if reference is None else _by_stem(source)
    if reference is None:
        clean = {stem.removesuffix(CLEAN): read for stem, (_, read) in noisy.items() if stem.endswith(CLEAN)}
        noisy = {stem.removesuffix(NOISY): both for stem, both in noisy.items() if stem.endswith(NOISY)}
    else:
        clean = {stem: read for stem, (_, read) in _by_stem(reference).items()}
    if not clean and reference is None:
        return []
    lonely = sorted(noisy.keys() - clean.keys())
    if lonely:
        raise ImageError(f"{noisy[lonely[0]][0]}: its ground truth is missing ({len(lonely)} such pictures)")
    return [(name, (read, clean[stem])) for stem, (name, read) in noisy.items()]


def _by_stem(source: Source, endings: tuple[str, ...] = ("",)) -> dict[str, tuple[str, Read]]:
    """The files of a source by their names without suffix, which have one of the endings: (name, read)."""
    found: dict[str, tuple[str, Read]] = {}
    for name, read in iter_encoded(source):
        stem = name.rpartition(".")[0] or name
        if not stem.endswith(endings):
            continue
        if stem in found:
            raise ImageError(f"{source}: {found[stem][0]} and {name} differ only in their suffix; keep one")
        found[stem] = name, read
    return found


def _floats(image: NDArray[np.uint8]) -> Floats:
    return image.astype(np.float32) / np.float32(255)


def _scores(original: Floats, result: Floats, noisy: Floats | None) -> dict[str, float]:
    scores = {"psnr": psnr(result, original), "ssim": ssim(result, original)}
    if noisy is not None:
        before, after = (float(np.square(x - original, dtype=np.float64).mean()) for x in (noisy, result))
        return {"input_psnr": psnr(noisy, original)} | scores | {"input_mse": before, "mse": after}
    errors = dict(zip(COLOURS, channel_errors(result, original).tolist(), strict=True))
    return scores | {
        "sharpness": sharpness(result, original),
        "cast": abs(_bias(errors)),
        **errors,
        "grid": grid_steps(result, original),
        "lattice": lattice_energy(result, original),
    }


def _bias(scores: dict[str, float]) -> float:
    """The largest mean error of a channel, with its sign; of a single picture its colour cast."""
    return max((scores[colour] for colour in COLOURS), key=abs)


def _denoise(
    model: DenoiserLike,
    can_estimate: bool,
    clean: Floats,
    sigmas: Sequence[float],
    seed: int,
    degradations: Sequence[str],
) -> Results:
    for kind in degradations:
        rng = np.random.default_rng(seed)
        if kind in LEVELLED:
            noise = rng.standard_normal(clean.shape, dtype=np.float32)
            for sigma in sigmas:
                noisy, case = clean + noise * np.float32(sigma / 255), f"sigma {sigma:g}"
                if kind == "file":
                    noisy, case = as_file(noisy), f"{case} in a file"
                elif kind == "jpeg":
                    colour = np.broadcast_to(np.atleast_3d(as_file(noisy)), (*noisy.shape[:2], 3))
                    grid = deepcopy(rng)  # its blocks lie where they do for every other level
                    stored = jpeg(colour[None], grid, JPEG_QUALITY)[0][0]
                    noisy, case = stored if clean.ndim == 3 else stored @ LUMA, f"{case} in a JPEG"
                yield case, noisy, model(noisy, float(sigma))
                if can_estimate:
                    yield f"{case}, auto", noisy, model(noisy, "auto")
            continue
        batch = np.atleast_3d(clean)[None]
        if kind == "shot":
            batch = salt_and_pepper(batch, rng, 0.05)[0]
        elif kind == "box":
            batch = blur(batch, rng, stored=True)[0]
        harmed = batch.reshape(clean.shape)
        case = {"shot": "5 % shot noise", "box": "3x3 box blur", "none": "clean"}[kind]
        if can_estimate:
            yield f"{case}, auto", harmed, model(harmed, "auto")
        else:
            yield case, harmed, model(harmed, 0.0)


def _unwarned(model: DenoiserLike) -> DenoiserLike:
    """The model, without a warning: noise that is not clipped makes many values of dark pictures negative."""

    def work(image: Floats, sigma: Any = "auto") -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "many values are negative")
            return model(image, sigma)

    return work


def _roundtrip(model: AutoencoderLike, other: AutoencoderLike | None, image: Floats, theirs: Any) -> Results:
    size = (image.shape[0], image.shape[1])

    def decode(by: AutoencoderLike, latents: Any) -> Floats:
        return by.decode(latents, output="float", size=size)[0]

    latents = model.encode(image)
    yield "round trip", image, decode(model, latents)
    if other is not None:
        yield "other's decoder", image, decode(other, latents)
        yield "other's encoder", image, decode(model, theirs)
        yield "other's round trip", image, decode(other, theirs)


def _mean(pictures: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Of each case and score; a PSNR counts as `EXACT` at most, unless all pictures are equal.

    What a plain picture has none of (`OF_DETAIL`) is the mean over the others.
    """

    def mean(case: str, key: str) -> float:
        values = [v for cases in pictures if not (math.isnan(v := cases[case][key]) and key in OF_DETAIL)]
        if min(values, default=math.inf) < math.inf:  # else one picture that comes out exactly decides it
            values = [min(v, EXACT) for v in values] if "psnr" in key else values
        return math.fsum(values) / len(values) if values else math.nan

    return {case: {key: mean(case, key) for key in scores} for case, scores in pictures[0].items()}


def format_table(result: dict[str, Any], pictures: bool = False) -> str:
    """The means (and with ``pictures`` each picture's values) as a text table."""
    if result["task"] == "roundtrip":
        header: tuple[str, ...] = ("", "dB", "SSIM", "sharpness", "cast", "bias", "grid", "lattice")
        if any("latents" in scores for scores in result["mean"].values()):
            header = (*header, "latents")
    else:
        header = ("", "input dB", "dB", "gain", "SSIM", "error 1/")
    rows: list[tuple[str, ...]] = [header]
    if pictures:
        for picture in result["pictures"]:
            name = visible(picture["name"])
            rows += [_row(f"{name}: {case}", scores) for case, scores in picture["cases"].items()]
    rows += [_row(f"mean of {result['count']}: {case}", scores) for case, scores in result["mean"].items()]
    lines = aligned(rows)
    if result["skipped"]:
        why = "not decodable" + (" or of two sizes" if result["task"] == "pairs" else "")
        lines.append(f"skipped, {why}: {', '.join(map(visible, result['skipped']))}")
    return "\n".join(lines)


def _row(label: str, scores: dict[str, float]) -> tuple[str, ...]:
    out, similarity = f"{scores['psnr']:.2f}", f"{scores['ssim']:.4f}"
    if "input_psnr" in scores:
        before = scores["input_psnr"]
        if before == math.inf:  # clean pictures, of which nothing can be gained
            return label, "clean", out, "", similarity, ""
        less = scores["input_mse"] / scores["mse"] if scores["mse"] else math.inf
        return label, f"{before:.2f}", out, f"{scores['psnr'] - before:+.2f}", similarity, f"{less:.2f}"
    latents = (f"{scores['latents']:.3f}",) if "latents" in scores else ()
    return (label, out, similarity, f"{scores['sharpness']:.2f}", f"{scores['cast']:.4f}",
            f"{_bias(scores):+.4f}", f"{scores['grid']:.2f}",
            f"{scores['lattice']:.1f}", *latents)  # fmt: skip


def to_json(result: dict[str, Any]) -> str:
    """The result as one line of JSON; an infinite PSNR (equal pictures) becomes null."""
    return json.dumps(_finite(result), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
