"""What the commands on files share: options, loaded models, reading and writing."""

from __future__ import annotations

import errno
import io
import math
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from zenith_ae.errors import OutputError
from zenith_ae.files import atomic_writer, is_device, reason

from .batch import Reporter, Work, run_jobs, show_plan
from .inputs import STDIO, Job, Kind, names_folder, plan

if TYPE_CHECKING:
    from zenith_ae.changes import Change
    from zenith_ae.engine import Progress
    from zenith_ae.engine import Tile as Tiles
    from zenith_ae.images import Picture
    from zenith_ae.pipelines import Denoiser

#: What networks made of each frame of a picture: the mean noise level, and the changes.
Made: TypeAlias = "list[tuple[float, list[Change]]]"

#: The PSNR of equal pictures, which is infinite but to be JSON.
EQUAL = 999.0


class Number(click.FloatRange):
    """A number in a range; NaN is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class AutoOr(click.ParamType):
    """``auto``, or what a subclass takes."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name  # not in capitals

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return "auto" if str(value).lower() == "auto" else self.number(value, param, ctx)

    def number(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        raise NotImplementedError


LEAST_TILE = 32  # pixels: around each a network sees more than that


class Tile(AutoOr):
    name = "auto|0|N"

    def number(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int):
            return value
        if not str(value).isdecimal() or len(str(value)) > 9:
            self.fail(f"{str(value)[:40]!r} is not auto, 0 or a number of pixels", param, ctx)
        if 0 < int(value) < LEAST_TILE:
            self.fail(f"tiles of less than {LEAST_TILE} pixels take very long; 0 is for none", param, ctx)
        return int(value)


#: Text that shells complete with the names of files; what is there is looked at later.
ANY_PATH = click.Path(readable=False)


class Model(click.ParamType):
    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from zenith_ae.weights import available_weights

        names = [name for name in available_weights() if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def noise_level(text: Any) -> float:
    """A standard deviation of 0..255 that somebody typed; ValueError where it is none."""
    level = float(text)
    if not 0 <= level <= 255:
        raise ValueError(f"{level} is not in 0..255")
    return level


class Sigma(AutoOr):
    name = "auto|N"

    def number(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return noise_level(value)
        except ValueError:
            self.fail(f"{value!r} is not auto or a number in 0..255", param, ctx)


def with_options(*options: Callable[[Callable], Callable]) -> Callable[[Callable], Callable]:
    """A decorator that gives a command these options, in the order in which its help lists them."""

    def decorate(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def common(model: str | None, what: str, folder: bool = False) -> Callable[[Callable], Callable]:
    """The options that every command on files has; or one on a ``folder``, which makes many files."""
    text = f"[default: {model}]" if model else "[default: the one named in the latent file]"
    options = [
        click.argument("inputs", nargs=-1, required=True, type=ANY_PATH,
                       metavar="FOLDER" if folder else "INPUT..."),
        click.option("-o", "--output", type=ANY_PATH, metavar="DIR" if folder else "FILE|DIR|-",
                     help=f"Where to write {what}{'' if folder else '; - is standard output'}."),
        click.option("--model", default=model, type=Model(), metavar="NAME|FILE|DIR",
                     help=f"A model, or a file or folder of weights. {text}"),
        click.option("--tile", type=Tile(), default="auto", show_default=True,
                     help="Side of the tiles in pixels; 0: no tiles. Never changes the result."),
        click.option("--threads", type=click.IntRange(1, 256), help="CPU threads. [default: all]"),
        click.option("--precision", type=click.Choice(["auto", "float32", "bf16", "int16"]), default="auto",
                     show_default=True, help="Of the computation; auto is the fastest here."),
        click.option("--overwrite", is_flag=True, help="Replace existing outputs instead of skipping them."),
        click.option("--dry-run", is_flag=True, help="Only say what would be written."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object per file on standard output."),
        click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
        click.option("-v", "--verbose", is_flag=True,
                     help="Also print the model, instruction set, precision and threads."),
    ]  # fmt: skip

    return with_options(*options)


def writing(
    tag: str, others: str = "the input's ending, or png; jpg for HEIC", strip: bool = True
) -> Callable[[Callable], Callable]:
    """The options of commands that write pictures, whose names have this ``tag`` before the ending.

    ``others`` says what format they have where none is asked for, ``strip`` whether they have metadata.
    """
    options = [
        click.option("--format", "suffix", metavar="EXT",
                     help=f"Format of outputs without -o FILE: png, jpg, ... [default: {others}]"),
        click.option("--tag", metavar="TEXT",
                     help="What the names of outputs have before the ending: photo.TAG.jpg; '' keeps the "
                          f"input's, with -o DIR. [default: {tag}]"),
        click.option("--quality", type=click.IntRange(1, 100),
                     help="Quality of JPEG, WebP and AVIF files. [default: 95; AVIF 90]"),
        click.option("--strip/--keep-metadata",
                     help="Leave out EXIF, XMP, captions, texts and resolution; colours stay right. "
                          "[default: keep]"),
    ]  # fmt: skip

    return with_options(*(options if strip else options[:-1]))


def number_of(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


#: What is told of a denoiser in a command for another task.
_LEARNED = {
    "noise": "has learned to remove noise, and sharpens nothing; zenith-deblur does",
    "blur": "has learned to sharpen, and removes faint noise only; zenith-denoise removes it",
}


class Session:
    """What the commands on files share: the jobs, the reporter, the loaded models."""

    def __init__(
        self, kind: Kind, options: dict[str, Any], model_kind: str = "autoencoder", task: str = ""
    ) -> None:
        self.kind, self.options, self.model_kind, self.task = kind, options, model_kind, task
        if options["as_json"] and options["output"] == STDIO:
            raise click.UsageError("--json and -o - both want standard output; write to a file")
        if options["quiet"] and options["verbose"]:
            raise click.UsageError("-q prints errors only and -v prints more; give one")
        self.reporter = Reporter(options["as_json"], options["quiet"], options["verbose"])
        self._foreign: set[str] = set()
        self.jobs = self._plan()
        if options["as_json"] and any(job.output == STDIO for job in self.jobs):
            raise click.UsageError("--json and the result both want standard output; give -o FILE")
        self._models: dict[str, Any] = {}

    def _plan(self) -> list[Job]:
        """The jobs of the inputs; a note says what is left out that has not been told yet."""
        foreign: set[str] = set()
        jobs = plan(
            self.options["inputs"], self.options["output"], self.kind, foreign, self.options["overwrite"]
        )
        if new := foreign - self._foreign:
            from zenith_ae.camera_raw import RAW_SUFFIXES
            from zenith_ae.heif import HEIF_SUFFIXES

            raw, heic = (
                {file for file in new if Path(file).suffix.lower() in suffixes}
                for suffixes in (RAW_SUFFIXES, HEIF_SUFFIXES)
            )
            for files, way in (
                (raw, " without rawpy (pip install 'zenith-ae[raw]')"),
                (heic, " without pillow-heif (pip install 'zenith-ae[heif]')"),
                (new - raw - heic, "; convert them first"),
            ):
                if files:
                    endings = " ".join(sorted({Path(file).suffix.lower() for file in files}))
                    count = number_of(len(files), "file")
                    self.reporter.note(f"{count} left out: {endings} cannot be read{way}")
        self._foreign |= new
        return jobs

    def load(self, name: str) -> Any:
        if name not in self._models:
            from zenith_ae.pipelines import load

            options = self.options
            model = load(name, dtype=options["precision"], threads=options["threads"])
            if model.config.kind != self.model_kind:
                kinds = f"is of kind {model.config.kind}, but this needs kind {self.model_kind}"
                raise click.UsageError(f"{name} {kinds}; `zenith-ae models` lists models")
            self._models[name] = model
            engine = model.engine
            if (learned := engine.weights.metadata.get("task", self.task)) != self.task:
                self.reporter.note(f"{name} {_LEARNED.get(learned, 'has learned something else')}")
            how = f"{engine.isa}, {engine.dtype}, {number_of(engine.threads, 'thread')}"
            self.reporter.detail(f"model {model.name} ({model.hash}), {how}")
        return self._models[name]

    def run(self, work: Work) -> int:
        """Do the jobs. A model that was asked for is loaded first, also where all is done: is it one?"""
        if self.options["model"] is not None:
            self.load(self.options["model"])
        if self.options["dry_run"]:
            return show_plan(self.jobs, self.reporter, self.options["overwrite"])
        return 1 if run_jobs(self.jobs, work, self.reporter, self.options["overwrite"]) else 0

    def watch(self, work: Work, interval: float) -> int:
        """Do the jobs of a folder, and for ever those that appear in it, once their files keep still."""
        from .watching import Watch

        overwrite = self.options["overwrite"]
        self.load(self.options["model"])
        if self.options["dry_run"]:
            return show_plan(self.jobs, self.reporter, overwrite)
        (folder,) = self.options["inputs"]
        Watch(folder, self._plan, work, self.reporter, overwrite, interval).forever()


def read(job: Job, every: bool = False) -> Picture:
    """The picture of a job; ``every`` reads all frames or pages."""
    from zenith_ae.images import read_picture

    if job.source == STDIO:
        return read_picture(sys.stdin.buffer.read(), "<stdin>", every=every)
    return read_picture(job.source, every=every)


def picture_reader(options: dict[str, Any], every: bool = True) -> Callable[[Job], Picture]:
    """Reads what the output can hold of a picture, so that no work is for nothing.

    With ``every`` these are all frames or pages, if its format holds several.
    """
    from zenith_ae.image_writing import fitting, holds_several, suffix_for

    asked = picture_suffix(options)

    def read_what_fits(job: Job) -> Picture:
        suffix = asked or _named(job.output)
        picture = read(job, every and (not suffix or holds_several(suffix)))
        return fitting(picture, suffix or suffix_for(picture.format), _told(job.output))

    return read_what_fits


def picture_writer(options: dict[str, Any]) -> Callable[[Job, Picture, bool], tuple[str, ...]]:
    """Writes a picture to a file or standard output as the `writing` options say; returns notes."""
    from zenith_ae.image_writing import encode_picture, suffix_for, write_picture

    quality, asked = options["quality"], picture_suffix(options)

    def write(job: Job, picture: Picture, overwrite: bool) -> tuple[str, ...]:
        if options.get("strip"):
            picture = picture.stripped()
        suffix = asked or _named(job.output) or suffix_for(picture.format)
        device = is_device(job.output)  # writers want to go back in a file
        if job.output != STDIO and not device:
            return write_picture(picture, job.output, quality, overwrite)
        buffer = io.BytesIO()
        notes = encode_picture(picture, buffer, suffix, _told(job.output), quality)
        if device:
            with atomic_writer(Path(job.output)) as file:
                file.write(buffer.getbuffer())
        else:
            write_stdout(buffer.getvalue())
        return notes

    return write


def _told(output: str) -> str:
    """What an error calls an output."""
    return "<stdout>" if output == STDIO else output


def _named(output: str) -> str:
    """The suffix by which an output's name tells its format; "" where it tells none, as of most devices."""
    from zenith_ae.image_writing import WRITABLE_SUFFIXES

    suffix = "" if output == STDIO else Path(output).suffix.lower()
    return suffix if suffix in WRITABLE_SUFFIXES or not is_device(output) else ""


def picture_suffix(options: dict[str, Any]) -> str | None:
    """The suffix that ``--format`` asks for; wrong usage where ``-o`` names a file of another format."""
    from zenith_ae.image_writing import WRITABLE_SUFFIXES, write_format

    if options["suffix"] is None:
        return None
    suffix = "." + options["suffix"].lower().removeprefix(".")
    if suffix not in WRITABLE_SUFFIXES:
        known = " ".join(sorted(s.removeprefix(".") for s in WRITABLE_SUFFIXES))
        raise click.UsageError(f"--format {options['suffix']}: cannot be written; use one of {known}")
    output = options["output"] or ""
    named = Path(output).suffix.lower()
    is_file = named in WRITABLE_SUFFIXES and not names_folder(output)
    if is_file and write_format(named) != write_format(suffix):
        raise click.UsageError(f"-o {output} and --format {suffix[1:]} name two formats; give one")
    return suffix


def write_stdout(data: bytes) -> None:
    if getattr(sys.stdout, "name", "") == os.devnull:  # which `cli.run` puts where a shell closed it
        raise OutputError("<stdout>: is closed; give -o FILE")
    rest = memoryview(data)
    try:
        while rest:  # without a buffer (PYTHONUNBUFFERED) a write may take a part, or nothing
            taken = sys.stdout.buffer.write(rest)
            if taken is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            rest = rest[taken:]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"<stdout>: cannot write: {reason(error)}") from None


def picture_kind(tag: str, options: dict[str, Any]) -> Kind:
    """Pictures in, ``stem.tag.ext`` out: ``--format``, else the input's suffix where it can be written."""
    from zenith_ae.image_writing import WRITABLE_SUFFIXES
    from zenith_ae.images import FOREIGN_SUFFIXES, READABLE_SUFFIXES

    suffix, tag = picture_suffix(options), chosen_tag(tag, options)

    def rename(name: str) -> str:
        return output_name(name, tag, suffix)

    return Kind(READABLE_SUFFIXES, rename, WRITABLE_SUFFIXES, FOREIGN_SUFFIXES, tag)


def chosen_tag(usual: str, options: dict[str, Any]) -> str:
    """What ``--tag`` says, else the usual one; wrong usage where no name can hold it."""
    if options["tag"] is None:
        return usual
    tag = options["tag"].removeprefix(".")
    if set(tag) & {"/", os.sep, "\0"}:
        raise click.UsageError(
            f"--tag {options['tag']}: a part of a name, without {os.sep}; folders go to -o"
        )
    return tag


def output_name(name: str, tag: str, suffix: str | None = None) -> str:
    """``a/photo.jpg`` -> ``a/photo.tag.jpg``; where its format cannot be written, as `stand_in` says."""
    from zenith_ae.image_writing import stand_in, write_format

    path = Path(name)
    suffix = suffix or (path.suffix if write_format(path.suffix) else stand_in(path.suffix))
    return str(path.with_name(tagged(path.stem, tag, suffix)))


def tagged(stem: str, tag: str, suffix: str) -> str:
    return f"{stem}.{tag}{suffix}" if tag else stem + suffix


def denoised(
    model: Denoiser,
    picture: Picture,
    sigma: str | float,
    settings: dict[str, Any],
    tile: Tiles = "auto",
    progress: Progress | None = None,
    made: Made | None = None,
) -> tuple[Picture, float]:
    """The picture with every frame or page denoised, and the mean of the levels used.

    ``sigma`` is "auto" or a number; ``settings`` are strength, luma, chroma, grain and passes; ``progress``
    is as of `zenith_ae.Denoiser`. ``made`` is a list that gets what the networks make of each frame; with the
    list of an earlier call, which has all but the first four settings in common, they need not run.
    """
    from zenith_ae.changes import changed
    from zenith_ae.engine import Pieces
    from zenith_ae.pipelines import estimate_and_rest

    shares = dict(settings)
    passes = shares.pop("passes", 1)
    levels: list[float] = []
    frames = Pieces(progress, len(picture.frames))

    def clean(one: Picture) -> Picture:
        pixels, count, report = one.pixels[None], len(levels), frames.next()
        changes: Iterable[Change]
        if made is not None and count < len(made):
            level, changes = made[count]
        else:
            given: Any = sigma
            if isinstance(sigma, str):
                asking, report = estimate_and_rest(report, passes)
                given = model.estimate(pixels, one.layout, tile, asking)
                level = float(given.levels.mean())
            else:
                level = float(sigma)
            changes = model.changes(pixels, one.layout, given, tile, passes=passes, progress=report)
            if made is not None:
                made.append((level, changes := list(changes)))
        levels.append(level)
        result = changed(pixels, changes, **shares, keep=made is not None, threads=model.engine.threads)
        if report is not None:
            report(1.0)
        return one.with_pixels(result[0])

    result = picture.map(clean)
    return result, sum(levels) / len(levels)


def encoding_notes(picture: Picture) -> tuple[str, ...]:
    """What of a picture its latents will lack."""
    from zenith_ae.image_writing import changes_colours

    lost = ["transparency is not encoded"] if picture.layout in ("LA", "RGBA") else []
    if changes_colours(picture):
        lost.append("the colour profile is not encoded, so decoded colours look different")
    return (*picture.notes, *lost)


def form(picture: Picture) -> dict[str, Any]:
    """What a picture's file is like."""
    return {
        "format": picture.format,
        "width": picture.width,
        "height": picture.height,
        "mode": picture.mode,
        "bits": picture.bits,
        "pictures": len(picture.frames),
    }


def facts(picture: Picture, model: Any) -> dict[str, Any]:
    return {
        "model": model.name,
        "weights": model.hash,
        "width": picture.width,
        "height": picture.height,
        "mode": picture.mode,
        "bits": picture.bits,
        "notes": list(picture.every_note),
    }
