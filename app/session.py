"""What the commands on files share: options, loaded models, reading and writing."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zenith_ae.errors import OutputError

from .batch import STDIO, Job, Kind, Reporter, is_done, plan, run_jobs

if TYPE_CHECKING:
    from zenith_ae.images import Picture

__all__ = ["Session", "Sigma", "Tile", "common", "facts", "picture_kind", "read", "write", "write_stdout"]


class Tile(click.ParamType):
    name = "auto|0|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto" or isinstance(value, int):
            return value
        if not str(value).isdecimal():
            self.fail(f"{value!r} is not auto, 0 or a number of pixels", param, ctx)
        return int(value)


class Sigma(click.ParamType):
    name = "auto|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return value
        try:
            sigma = float(value)
        except ValueError:
            sigma = -1.0
        if not 0 <= sigma <= 255:
            self.fail(f"{value!r} is not auto or a number in 0..255", param, ctx)
        return sigma


def common(model: str | None, what: str) -> Callable[[Callable], Callable]:
    """The options that every command on files has."""
    text = f"[default: {model}]" if model else "[default: the one named in the latent file]"
    options = [
        click.argument("inputs", nargs=-1, required=True, metavar="INPUT..."),
        click.option("-o", "--output", metavar="FILE|DIR|-",
                     help=f"Where to write {what}; - is standard output."),
        click.option("--model", default=model, metavar="NAME|FILE", help=f"A model or weights file. {text}"),
        click.option("--tile", type=Tile(), default="auto", show_default=True,
                     help="Side of the tiles in pixels; 0: no tiles. Never changes the result."),
        click.option("--threads", type=click.IntRange(1, 1024), help="CPU threads. [default: all]"),
        click.option("--overwrite", is_flag=True, help="Replace existing outputs instead of skipping them."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object a file on standard output."),
        click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
        click.option("-v", "--verbose", is_flag=True, help="Print more."),
    ]  # fmt: skip

    def decorate(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Session:
    """What the commands on files share: the jobs, the reporter, the loaded models."""

    def __init__(self, kind: Kind, options: dict[str, Any], model_kind: str = "autoencoder") -> None:
        self.options, self.model_kind = options, model_kind
        if options["as_json"] and options["output"] == STDIO:
            raise click.UsageError("--json and -o - both want standard output; write to a file")
        self.reporter = Reporter(options["as_json"], options["quiet"], options["verbose"])
        self.jobs = plan(options["inputs"], options["output"], kind)
        if options["as_json"] and any(job.output == STDIO for job in self.jobs):
            raise click.UsageError("--json and the result both want standard output; give -o FILE")
        self._models: dict[str, Any] = {}

    def load(self, name: str) -> Any:
        if name not in self._models:
            from zenith_ae.pipelines import load

            model = load(name, threads=self.options["threads"])
            if model.config.kind != self.model_kind:
                kinds = f"is of kind {model.config.kind}, but this needs kind {self.model_kind}"
                raise click.UsageError(f"{name} {kinds}; `zenith-ae models` lists models")
            self._models[name] = model
            engine = model.engine
            self.reporter.detail(f"model {model.name} ({model.hash}), {engine.isa}, {engine.threads} threads")
        return self._models[name]

    def run(self, work: Callable[[Job], dict[str, Any]], verb: str) -> int:
        """Do the jobs. A model that was asked for is loaded first: without it nothing can be done."""
        if self.options["model"] and any(self.pending(job) for job in self.jobs):
            self.load(self.options["model"])
        return run_jobs(self.jobs, work, self.reporter, self.options["overwrite"], verb)

    def pending(self, job: Job) -> bool:
        return job.error is None and (self.options["overwrite"] or not is_done(job))


def read(source: str) -> Picture:
    from zenith_ae.images import read_picture

    if source == STDIO:
        return read_picture(sys.stdin.buffer.read(), "<stdin>")
    return read_picture(source)


def write(picture: Picture, output: str) -> tuple[str, ...]:
    """Write to a file or standard output; returns notes."""
    from zenith_ae.image_writing import encode_picture, suffix_for, write_picture

    if output != STDIO:
        return write_picture(picture, output)
    buffer = io.BytesIO()
    notes = encode_picture(picture, buffer, suffix_for(picture.format))
    write_stdout(buffer.getvalue())
    return notes


def write_stdout(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"<stdout>: cannot write: {error.strerror or error}") from None


def picture_kind(tag: str, suffix: str | None = None) -> Kind:
    """Pictures in, ``stem.tag.ext`` out; the input's own suffix where that can be written."""
    from zenith_ae.image_writing import WRITABLE_SUFFIXES, write_format
    from zenith_ae.images import READABLE_SUFFIXES

    def rename(name: str) -> str:
        path = Path(name)
        return f"{path.stem}.{tag}{suffix or (path.suffix if write_format(path.suffix) else '.png')}"

    return Kind(READABLE_SUFFIXES, rename, WRITABLE_SUFFIXES)


def facts(picture: Picture, model: Any) -> dict[str, Any]:
    return {
        "model": model.name,
        "weights": model.hash,
        "width": picture.width,
        "height": picture.height,
        "mode": picture.mode,
        "bits": picture.pixels.dtype.itemsize * 8,
    }
