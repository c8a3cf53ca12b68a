"""What the web page does with pictures: files in, files and facts out. No Gradio here.

Everything that a job writes lies in a folder of its own below `Workshop.folder`, under a name that
nobody can guess. Messages name a picture as its owner does, never a path of this machine.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from zenith_ae.batches import to_rgb
from zenith_ae.engine import Pieces, Progress
from zenith_ae.errors import ConfigError, ImageError, LatentError, ZenithError, one_line
from zenith_ae.files import is_disk_full, say
from zenith_ae.image_writing import encode_picture
from zenith_ae.images import Picture, check_size, read_picture, to_8_bits
from zenith_ae.latents import (
    LatentFile,
    encode_latents,
    latent_metadata,
    latents_of,
    parse_latents,
    shipped_reader,
    stem_of,
    unread,
)
from zenith_ae.pipelines import check_passes

from .models import Models
from .session import Made, denoised, encoding_notes, form, output_name
from .web_comparison import decibels, does, fidelity, harmed, middle, timed
from .web_previews import write_channels, write_difference, write_preview, write_thumbnail
from .web_zip import Source, Unbuffered, append, is_picture, is_zip, zipped_pictures

#: Results and uploads older than this are removed.
KEEP_SECONDS = 6 * 3600
#: The largest picture of which the page remembers what a network made: 12 bytes a pixel, of CMYK 24.
REMEMBERED_PIXELS = 2**25
#: Pictures of a batch that the gallery shows.
GALLERY = 60
LATEST = 20  # failures and notes that are shown while a batch runs

#: How often a batch tells how far its current picture is.
_TELL_SECONDS = 0.5
_T = TypeVar("_T")


@dataclass
class Result:
    """What a job found: facts for people and programs, and the files it wrote.

    Attributes
    ----------
    facts : numbers and names, JSON types only.
    files : role ("before", "after", "removed", "picture", "latents", "channels") -> path.
    """

    facts: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)


@dataclass
class BatchState:
    """A batch so far. ``archive`` is set in the last state, if there is anything in it."""

    total: int
    done: int = 0  # with or without success
    good: int = 0
    current: str = ""
    share: float = 0.0  # of the current one that is done
    seconds: float = 0.0
    seconds_left: float | None = None  # by the sizes of the files
    megapixels: float = 0.0
    failed: list[tuple[str, str]] = field(default_factory=list)
    left_out: int = 0
    notes: list[tuple[str, str]] = field(default_factory=list)
    thumbnails: list[tuple[str, str]] = field(default_factory=list)
    archive: str | None = None
    finished: bool = False
    cancelled: bool = False

    def shown(self, lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """``failed`` or ``notes`` whole at the end, before the latest: each state is sent to the page."""
        return lines[:] if self.finished else lines[-LATEST:]


@cache
def shipped_models(kind: str) -> tuple[str, ...]:
    """Names of the shipped models of a kind, the default first."""
    from zenith_ae.weights import available_weights, load_weights

    names = []
    for name, path in available_weights().items():
        try:
            if load_weights(path).config.kind == kind:
                names.append(name)
        except ZenithError as error:
            say(f"zenith-ae: {error}")
    defaults = ("zenith-denoise", "zenith-taef2-lite")
    return tuple(sorted(names, key=lambda name: (not name.startswith(defaults), name)))


def noise_settings(*values: float | None) -> dict[str, Any]:
    """What a denoising job is told; of a field that was left empty, what holds without it."""
    usual = {"strength": 1.0, "luma": 1.0, "chroma": 1.0, "grain": 0.0, "passes": 1}
    told = {k: usual[k] if value is None else value for k, value in zip(usual, values, strict=True)}
    try:
        check_passes(told["passes"])
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return told | {"passes": int(told["passes"])}


@cache
def sharpens(model: str) -> bool:
    """Whether a shipped denoiser was trained for blur, and not for noise."""
    from zenith_ae.weights import load_weights

    return load_weights(model).metadata.get("task") == "blur"


def result_of(model: str) -> str:
    """What the result of a denoiser is called in file names."""
    return "deblurred" if sharpens(model) else "denoised"


def _given_to(model: str, kind: str) -> str:
    """What the Compare tab gives to a model: the picture "clean", "noisy" or "soft"."""
    if kind == "autoencoder":
        return "clean"
    return "soft" if sharpens(model) else "noisy"


class Workshop:
    """Models, a private folder, and the jobs. One job runs at a time: the page's queue sees to it.

    Parameters
    ----------
    folder : where results go; must exist, and be readable by this user alone.
    threads : CPU threads of the models.
    max_bytes : the upload limit, which holds for each file in a ZIP too.
    """

    def __init__(self, folder: Path, threads: int | None = None, max_bytes: int = 200 * 2**20) -> None:
        self.folder, self.max_bytes = Path(folder), max_bytes
        self._models = Models(threads)
        self._kept: set[Path] = set()
        self._made: tuple[Any, Made] = None, []  # what it is of, and what a network made of that

    def model(self, name: str, kind: str) -> Any:
        """A shipped model, loaded once. Names come from visitors: files are not looked for."""
        if name not in shipped_models(kind):
            raise ImageError(f"{name}: no such {kind}; choose one of {', '.join(shipped_models(kind))}")
        return self._models.get(name)

    def new_folder(self) -> Path:
        """A folder for one job's results; those of long ago are removed."""
        limit = time.time() - KEEP_SECONDS
        for old in self.folder.iterdir():
            with contextlib.suppress(OSError):  # already gone
                if old.is_dir() and old not in self._kept and old.stat().st_mtime < limit:
                    shutil.rmtree(old, ignore_errors=True)
        folder = self.folder / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        return folder

    def keep_what_is_there(self) -> None:
        """What the page itself needs, such as the small pictures of its examples, never gets old."""
        self._kept = set(self.folder.iterdir())

    def describe(self, error: BaseException, name: str = "picture") -> str:
        """One line for the page: what, and what to do; nothing about this machine."""
        if isinstance(error, MemoryError):
            return f"{name}: not enough memory; try a smaller picture"
        if isinstance(error, ZenithError):
            text = one_line(error).replace(f"{self.folder}{os.sep}", "")
            text = text.replace("; set ZENITH_MAX_PIXELS to allow it", "; make it smaller first")
            return text.replace("make one with `zenith-ae encode`", "drop a picture here to make one")
        if is_disk_full(error):
            return f"{name}: no room for the result on the computer that works here; free some and try again"
        say(f"zenith-ae: {name}: unexpected {type(error).__name__}: {error}")
        return f"{name}: something unexpected went wrong ({type(error).__name__}); please report it"

    # ---- one picture ----------------------------------------------------------------------------

    def inspect(self, file: str | None, model: str) -> Result:
        """Show a picture and estimate its noise."""
        picture, name = self._read(file)
        denoiser = self.model(model, "denoiser")
        facts = {"name": name} | form(picture)
        if "estimator" in denoiser.config.parts:
            levels = denoiser.estimate(picture.pixels[None], picture.layout).levels
            facts["sigma"] = round(float(levels.mean()), 2)
        shown, facts["shown"] = write_preview(picture, self.new_folder() / "before")
        return Result(facts, {"before": shown})

    def denoise(
        self,
        file: str | None,
        model: str,
        sigma: float | None = None,
        progress: Progress | None = None,
        remember: bool = False,
        **settings: Any,
    ) -> Result:
        """Denoise one picture; ``sigma`` None estimates the noise everywhere.

        ``settings`` are strength, luma, chroma, grain and passes of `zenith_ae.Denoiser`, as ``progress`` is.
        ``remember`` keeps what the network makes of the picture until the next is remembered, so that other
        shares of the strength take it no time: then ``adjustable`` is among the facts, and ``remembered``
        where this was such a time.
        """
        picture, name = self._read(file, every=True)
        denoiser = self.model(model, "denoiser")
        folder, facts = self.new_folder(), {"name": name} | form(picture)
        key = file, model, sigma, settings.get("passes", 1)
        made: Made | None = None
        if remember and picture.area <= REMEMBERED_PIXELS:
            of, known = self._made  # once: a job of another window may assign it meanwhile
            made = known if of == key else []
            facts |= {"adjustable": True, "remembered": bool(made)}
            if not made:
                self._made = None, []  # what is there of another picture makes room
        clean, level, seconds = _clean(denoiser, picture, sigma, settings, progress, made)
        if made is not None:
            self._made = key, made
        files, notes = {}, list(picture.every_note)
        files["picture"] = self._write(clean, folder, output_name(name, result_of(model)), notes)
        files["before"], facts["shown"] = write_preview(picture, folder / "before")
        files["after"], _ = write_preview(clean, folder / "after")
        files["removed"], gain = write_difference(picture, clean, folder / "removed")
        facts |= {"model": model, "sigma": level, "estimated": sigma is None, **settings}
        facts |= _speed(picture, seconds) | {"gain": gain} | self._output(files["picture"], notes)
        return Result(facts, files)

    def forget(self, file: str | None) -> None:
        """What is remembered of a picture that has gone makes room."""
        key, _ = self._made  # once, as above
        if key and key[0] == file:
            self._made = None, []

    # ---- latents --------------------------------------------------------------------------------

    def roundtrip(
        self, file: str | None, model: str, dtype: str = "fp16", progress: Progress | None = None
    ) -> Result:
        """Encode a picture to a latent file, decode that, and compare."""
        picture, name = self._read(file)
        autoencoder = self.model(model, "autoencoder")
        folder, facts = self.new_folder(), {"name": name} | form(picture)
        halves = Pieces(progress, 2)
        start = time.perf_counter()
        latents = autoencoder.encode_picture(picture, progress=halves.next())
        encoding = time.perf_counter() - start
        data = encode_latents(latents, dtype)
        z = parse_latents(data).latents  # what somebody who gets the file will decode
        pixels = picture.pixels[None]
        start = time.perf_counter()
        result = autoencoder.decode_like(z, pixels, picture.layout, progress=halves.next())
        decoding = time.perf_counter() - start
        before, after = to_rgb(pixels, picture.layout)[0], to_rgb(result, picture.layout)[0]
        decoded, files, notes = picture.with_pixels(result[0]), {}, list(encoding_notes(picture))
        files["latents"] = str(folder / latents_of(name))
        Path(files["latents"]).write_bytes(data)
        files["picture"] = self._write(decoded, folder, output_name(name, "roundtrip"), notes)
        files["before"], facts["shown"] = write_preview(picture, folder / "before")
        files["after"], _ = write_preview(decoded, folder / "decoded")
        files["removed"], gain = write_difference(picture, decoded, folder / "difference")
        files["channels"] = write_channels(z[0], folder / "channels.png")
        facts |= {
            "model": model,
            "dtype": dtype,
            "encode_seconds": round(encoding, 3),
            "decode_seconds": round(decoding, 3),
            "gain": gain,
        } | fidelity(before, after)
        facts |= _latent_facts(latents, len(data)) | _speed(picture, encoding + decoding)
        return Result(facts | self._output(files["picture"], notes), files)

    def encode(self, file: str | None, model: str, dtype: str = "fp16") -> Result:
        """Encode a picture to a latent file."""
        picture, name = self._read(file)
        autoencoder = self.model(model, "autoencoder")
        start = time.perf_counter()
        latents = autoencoder.encode_picture(picture)
        seconds = time.perf_counter() - start
        data = encode_latents(latents, dtype)
        path = self.new_folder() / latents_of(name)
        path.write_bytes(data)
        facts = {"name": name} | form(picture) | {"model": model, "dtype": dtype}
        facts["notes"] = list(encoding_notes(picture))
        facts |= _latent_facts(latents, len(data)) | _speed(picture, seconds)
        return Result(facts | {"output": path.name}, {"latents": str(path)})

    def decode(self, file: str | None, progress: Progress | None = None) -> Result:
        """Decode a latent file with the model that made it, or another one of its latent space."""
        path, name = self._uploaded(file)
        data = path.read_bytes()
        latents = parse_latents(data, name)
        check_size((latents.width, latents.height), name)
        reader = shipped_reader(latents)
        if reader is None:
            raise unread(latents, name)
        autoencoder = self.model(reader, "autoencoder")
        if len(latents.latents) != 1:
            raise LatentError(f"{name}: holds {len(latents.latents)} pictures; the page decodes one")
        start = time.perf_counter()
        picture = autoencoder.decode_picture(latents, progress=progress)
        seconds = time.perf_counter() - start
        folder, notes = self.new_folder(), list(picture.every_note)
        files = {"picture": self._write(picture, folder, f"{stem_of(name)}.decoded.png", notes)}
        files["after"], shown = write_preview(picture, folder / "decoded")
        files["channels"] = write_channels(latents.latents[0], folder / "channels.png")
        facts = {"name": name} | form(picture) | {"shown": shown, "model": reader}
        facts |= _latent_facts(latents, len(data)) | _speed(picture, seconds)
        return Result(facts | self._output(files["picture"], notes), files)

    def is_latent_file(self, file: str) -> bool:
        path, name = self._uploaded(file)
        with open(path, "rb") as stream:
            return name.endswith(".safetensors") or latent_metadata(stream.read(1 << 16)) is not None

    # ---- comparing ------------------------------------------------------------------------------

    def compare(
        self,
        file: str | None,
        models: Sequence[str],
        sigma: float | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Every model on one picture.

        Autoencoders encode and decode it; denoisers get it with Gaussian noise of standard deviation
        ``sigma`` added (25 if it is None; always the same noise), those that sharpen blurred by a 3x3 box.
        PSNR and SSIM are against the picture itself.
        """
        picture, name = self._read(file)
        sigma = 25.0 if sigma is None else sigma
        if not 0 <= sigma <= 255:
            raise ImageError(f"the noise to add must be from 0 to 255, got {sigma:g}")
        kinds = {m: kind for kind in ("denoiser", "autoencoder") for m in shipped_models(kind)}
        chosen = [m for m in kinds if m in set(models)]
        if not chosen:
            raise ImageError(f"{name}: choose at least one model")
        rgb = middle(to_8_bits(to_rgb(picture.pixels[None], picture.layout)[0]))
        facts: dict[str, Any] = {"name": name, "width": rgb.shape[1], "height": rgb.shape[0], "sigma": sigma}
        facts["cut"] = picture.pixels.shape[:2] != rgb.shape[:2]
        task = {m: _given_to(m, kinds[m]) for m in chosen}
        given = {key: harmed(rgb, key, sigma) for key in ("noisy", "soft") if key in task.values()}
        shown, rows, turns = {"original": rgb} | given, [], Pieces(progress, len(chosen))
        for model in chosen:
            pipeline = self.model(model, kinds[model])
            work = pipeline if kinds[model] == "denoiser" else pipeline.roundtrip
            shown[model], seconds = timed(work, given.get(task[model], rgb), turns.next())
            rows.append({"model": model, "does": does(task[model], sigma)} | fidelity(rgb, shown[model]) | {
                "seconds": round(seconds, 3),
                "megapixels_per_second": _megapixels(rgb[..., 0].size, seconds),
            })  # fmt: skip
        facts["rows"] = rows
        for key, pixels in given.items():
            facts[f"{key}_psnr"] = decibels(rgb, pixels)
        folder, files = self.new_folder(), {}
        for key, pixels in shown.items():
            files[key], _ = write_preview(Picture(pixels, "RGB", "RGB"), folder / key)
        return Result(facts, files)

    def benchmark(self, seconds: float = 3.0) -> list[tuple[str, float]]:
        """(what, megapixels per second) of every shipped model on 512 x 512 pixels, as `zenith-ae bench`
        measures it: medians, the models in turn."""
        from zenith_ae.measure import in_turn

        from .bench import operations

        calls = {}
        for kind in ("denoiser", "autoencoder"):
            for name in shipped_models(kind):
                for operation, run in operations(self.model(name, kind), 512, 512).items():
                    if operation != "round trip":  # which is the two others
                        label = short(name) if operation == "denoise" else f"{short(name)} {operation}"
                        calls[label] = run
        timings = in_turn(calls, seconds)
        return [(label, _megapixels(512 * 512, timing.median)) for label, timing in timings.items()]

    # ---- many pictures --------------------------------------------------------------------------

    def batch(
        self,
        files: Sequence[str] | None,
        model: str,
        sigma: float | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> Iterator[BatchState]:
        """Denoise many pictures, or those in ZIP files; yields the state before, during and after each.

        A picture that fails is listed and the rest goes on. After ``cancelled()``, what is done so far
        is in the archive. What ``progress``, which is told the share of each picture, raises fails that one.
        """
        if not files:
            raise ImageError("no pictures yet; drop some, or a ZIP of them")
        denoiser = self.model(model, "denoiser")
        folder = self.new_folder()
        uploads = folder / "uploads"
        uploads.mkdir()
        with contextlib.ExitStack() as ending:
            ending.callback(shutil.rmtree, uploads, ignore_errors=True)
            kept = [self._hold(file, uploads) for file in files]
            found = [(source.wanted, source.size) for file in kept for source in self._sources(*file)]
            sizes = [size for wanted, size in found if wanted]
            state = BatchState(total=len(sizes), left_out=len(found) - len(sizes))
            names: set[str] = set()
            start = time.perf_counter()
            path = folder / f"{result_of(model)}.zip"
            archive = zipfile.ZipFile(ending.enter_context(Unbuffered(path, "w+")), "w")
            ending.callback(archive.close)

            def now(share: float) -> BatchState:
                state.share, state.seconds = share, time.perf_counter() - start
                if done := sum(sizes[: state.done]) + share * sizes[state.done]:
                    state.seconds_left = state.seconds / done * (sum(sizes) - done)
                return state

            for source in (s for file in kept for s in self._sources(*file) if s.wanted):
                state.current = source.name
                yield now(0.0)
                if cancelled():
                    state.cancelled = True
                    break
                try:
                    picture = source.read()
                    work = partial(_clean, denoiser, picture, sigma, settings)
                    clean, _, _ = yield from _telling(work, now, progress)
                    name = _unused(output_name(source.name, result_of(model)), names)
                    notes = list(picture.every_note)
                    written = self._write(clean, folder, Path(name).name, notes)
                    try:
                        append(archive, written, name)
                    finally:
                        os.unlink(written)
                    state.notes += [(source.name, note) for note in notes]
                    state.megapixels += clean.area / 1e6
                    state.good += 1
                    if len(state.thumbnails) < GALLERY:
                        with contextlib.suppress(OSError):  # what counts is in the archive
                            thumbnail = write_thumbnail(clean, folder / f"thumb{len(names)}.jpg")
                            state.thumbnails.append((thumbnail, source.name))
                except Exception as error:
                    state.failed.append((source.name, self.describe(error, source.name)))
                    if is_disk_full(error):  # nor is there any for those to come
                        break
                finally:
                    state.done += 1
                os.utime(folder)  # a long batch is not an old one
            try:
                archive.close()
                if archive.namelist():
                    state.archive = str(path)
            except OSError as error:
                state.failed.append((path.name, self.describe(error, path.name)))
        state.current, state.share, state.finished = "", 0.0, True
        state.seconds = time.perf_counter() - start
        state.seconds_left = None
        yield state

    def _hold(self, file: str, folder: Path) -> tuple[Path, str]:
        """An uploaded file in ``folder``, and its name: uploads are removed after hours."""
        upload, name = self._uploaded(file)
        path = folder / f"{secrets.token_hex(8)}{upload.suffix}"
        try:
            os.link(upload, path)
        except OSError:  # a file system without links
            shutil.copy(upload, path)
        return path, name

    def _sources(self, path: Path, name: str) -> Iterator[Source]:
        """The pictures of a file. Those of a ZIP are there until the next is asked for."""
        if is_picture(name) or not is_zip(path):
            yield Source(name, partial(read_picture, path, name, every=True), path.stat().st_size)
            return
        try:
            yield from zipped_pictures(path, name, self.max_bytes)
        except ImageError as error:
            yield Source(name, partial(_fail, error))

    # ---- reading and writing --------------------------------------------------------------------

    def _uploaded(self, file: str | None) -> tuple[Path, str]:
        """An uploaded file and its name. Nothing outside our own folder is opened."""
        if not file:
            raise ImageError("no picture yet; drop one, or click an example")
        path = Path(os.path.realpath(file))
        if not path.is_relative_to(os.path.realpath(self.folder)) or not path.is_file():
            raise ImageError(f"{Path(file).name}: is not here any more; upload it again")
        return path, path.name

    def _read(self, file: str | None, every: bool = False) -> tuple[Picture, str]:
        path, name = self._uploaded(file)
        if name.lower().endswith(".zip"):
            raise ImageError(f"{name}: is a ZIP; the Batch tab takes it")
        return read_picture(path, name, every=every), name

    def _write(self, picture: Picture, folder: Path, name: str, notes: list[str]) -> str:
        """Write a result with the command line's writer; notes about what was lost are appended."""
        path = folder / name
        try:
            with open(path, "wb") as file:
                notes += encode_picture(picture, file, path.suffix, name)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return str(path)

    @staticmethod
    def _output(path: str, notes: list[str]) -> dict[str, Any]:
        return {"output": Path(path).name, "output_bytes": os.path.getsize(path), "notes": notes}


def _telling(
    work: Callable[[Progress], _T], tell: Callable[[float], BatchState], progress: Progress | None
) -> Generator[BatchState, None, _T]:
    """What ``work`` returns; on the way, now and then, what ``tell`` says of the share that is done."""
    done = 0.0

    def report(share: float) -> None:
        nonlocal done
        if progress is not None:
            progress(share)
        done = share

    told = done
    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(work, report)
        while wait([job], _TELL_SECONDS).not_done:
            if done != told:
                told = done
                yield tell(told)
        return job.result()


def _fail(error: Exception) -> Picture:
    raise error


def _unused(name: str, names: set[str]) -> str:
    """``name``, or with a number where it is taken; remembered in ``names``."""
    stem, suffix = os.path.splitext(name)
    number, candidate = 2, name
    while candidate.casefold() in names:  # which some systems do not tell apart
        candidate, number = f"{stem}-{number}{suffix}", number + 1
    names.add(candidate.casefold())
    return candidate


def _clean(
    model: Any,
    picture: Picture,
    sigma: float | None,
    settings: dict[str, Any],
    progress: Progress | None = None,
    made: Made | None = None,
) -> tuple[Picture, float, float]:
    """(clean picture with all its frames or pages, mean noise level, seconds of the model)."""
    if not all(math.isfinite(n) for n in (sigma or 0, *settings.values()) if isinstance(n, (int, float))):
        raise ImageError("the noise level and the settings must be finite numbers")
    if not 0 <= (sigma or 0) <= 255:
        raise ImageError(f"the noise level must be from 0 to 255, got {sigma:g}")
    start = time.perf_counter()
    result, level = denoised(
        model, picture, "auto" if sigma is None else sigma, settings, progress=progress, made=made
    )
    return result, round(level, 2), time.perf_counter() - start


def _speed(picture: Picture, seconds: float) -> dict[str, float]:
    return {"seconds": round(seconds, 3), "megapixels_per_second": _megapixels(picture.area, seconds)}


def _latent_facts(latents: LatentFile, size: int) -> dict[str, Any]:
    pixels = latents.width * latents.height
    return {
        "latent_shape": list(latents.latents.shape),
        "latent_bytes": size,
        "bits_per_pixel": round(8 * size / pixels, 3),
    }


def _megapixels(pixels: int, seconds: float) -> float:
    """Megapixels per second, three digits."""
    return float(f"{pixels / 1e6 / seconds:.3g}")


def short(name: str) -> str:
    """A model's name where there is little room."""
    return name.removeprefix("zenith-")
