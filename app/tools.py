"""``zenith-ae completion``, ``convert`` and ``serve``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from zenith_ae.files import reason

from .session import Model, Number


@click.command(short_help="Print a script that completes commands in your shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes zenith-ae's commands and options in your shell.

    \b
    Examples:
      zenith-ae completion bash > ~/.local/share/bash-completion/completions/zenith-ae
      zenith-ae completion zsh > ~/.zfunc/_zenith-ae
      zenith-ae completion fish > ~/.config/fish/completions/zenith-ae.fish
    """
    from click.shell_completion import get_completion_class

    from .cli import cli

    made = get_completion_class(shell)
    assert made is not None  # click has all three
    click.echo(made(cli, {}, "zenith-ae", "_ZENITH_AE_COMPLETE").source())


@click.command(short_help="Store weights in another layout.")
@click.argument("model", type=Model(), metavar="NAME|FILE|DIR")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path),
              help="File, or for diffusers folder, to write.")  # fmt: skip
@click.option("--to", "layout", type=click.Choice(["zenith", "taesd", "diffusers"]), default="zenith",
              show_default=True, help="Layout to write.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["fp16", "fp32"]), default="fp32", show_default=True,
              help="Number format in the file.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace an existing output, with taesd both files.")
def convert(model: str, output: Path, layout: str, dtype: str, overwrite: bool) -> None:
    """Store weights in another layout.

    zenith is this program's own (any model, one file that says what it is); taesd is a pair
    NAME_encoder.safetensors and NAME_decoder.safetensors, given either name; diffusers is a folder
    that AutoencoderTiny.from_pretrained loads. The latter two hold models of the TAESD family only.

    \b
    Examples:
      zenith-ae convert taesd_encoder.safetensors -o taesd-diffusers/ --to diffusers
      zenith-ae convert taesd-diffusers/ -o taesd_encoder.safetensors --to taesd
      zenith-ae convert taef2_encoder.safetensors -o taef2.safetensors --dtype fp16
    """
    import numpy as np

    from zenith_ae.weights import (
        load_weights,
        save_diffusers,
        save_taesd,
        save_weights,
        taesd_architecture,
        taesd_files,
    )

    from .inputs import make_folder

    if layout != "diffusers" and output.suffix.lower() != ".safetensors":
        raise click.UsageError(f"{output}: --to {layout} writes safetensors; give a name that ends so")
    weights = load_weights(model)
    if layout != "zenith":
        taesd_architecture(weights.config)  # one of another family has no name that would do
    files = {
        "zenith": lambda: [output],
        "taesd": lambda: list(taesd_files(output).values()),
        "diffusers": lambda: [output / "diffusion_pytorch_model.safetensors", output / "config.json"],
    }[layout]()
    sources = [source for source in _sources(model) if source.exists()]
    for file in files:
        if file.exists() and any(file.samefile(source) for source in sources):
            raise click.UsageError(f"{file} is what is converted; choose another name with -o")
        if file.exists() and not overwrite:
            raise click.UsageError(f"{file} exists; use --overwrite to replace it")
    kind = {"fp16": np.float16, "fp32": np.float32}[dtype]
    make_folder(output)
    if layout == "zenith":
        save_weights(output, weights.config, weights.tensors, weights.metadata, kind)
    elif layout == "taesd":
        save_taesd(output, weights, kind)
    else:
        save_diffusers(output, weights, kind)
    if layout == "taesd":  # a model may have one part only
        stale = [file for part, file in taesd_files(output).items() if part not in weights.config.parts]
        files = [file for file in files if file not in stale]
        # Beside the new part it would be loaded as its other half. --overwrite was asked for the pair.
        for file in stale:
            if file.exists():
                file.unlink()
                click.echo(f"zenith-ae: removed {file}, the part of another model", err=True)
    for file in files:
        click.echo(str(file))


def _sources(model: str) -> list[Path]:
    """The files that a model's weights may be read from."""
    from zenith_ae.weights import available_weights, other_half

    path = Path(available_weights().get(model, model))
    if path.is_dir():
        return list(path.iterdir())
    return [path, *filter(None, [other_half(path)])]


@dataclass(frozen=True)
class Limits:
    """What a server takes on.

    Attributes
    ----------
    upload : bytes of a request's body.
    pixels : pixels of a picture, checked before it is decoded, or of what latents decode to.
    jobs : requests worked on at the same time.
    queue : requests that may wait for their turn; more are answered 503.
    seconds : after this time a request is answered 504.
    """

    upload: int = 64 * 2**20
    pixels: int = 64 * 10**6
    jobs: int = 1
    queue: int = 16
    seconds: float = 120.0


@click.command(short_help="Serve over HTTP: POST a picture, get a picture or latents.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 opens it to the network, without any password.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="0: any free one.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256), help="CPU threads of a job. [default: all]")
@click.option("--jobs", type=click.IntRange(1, 64), default=Limits.jobs, show_default=True,
              help="Requests worked on at the same time.")  # fmt: skip
@click.option("--queue", type=click.IntRange(0), default=Limits.queue, show_default=True,
              help="Requests that may wait; more get 503.")  # fmt: skip
@click.option("--timeout", type=Number(0, min_open=True), default=Limits.seconds, show_default=True,
              help="Seconds after which a request gets 504.")  # fmt: skip
@click.option("--max-upload", type=click.IntRange(1), default=Limits.upload // 2**20, show_default=True,
              help="Largest body in MiB; more gets 413.")  # fmt: skip
@click.option("--max-pixels", type=click.IntRange(1), default=Limits.pixels, envvar="ZENITH_MAX_PIXELS",
              show_default=True, show_envvar=True,
              help="Largest picture in pixels; more gets 400.")  # fmt: skip
def serve(
    host: str, port: int, threads: int | None, jobs: int, queue: int, timeout: float, max_upload: int,
    max_pixels: int,
) -> None:  # fmt: skip
    """Serve over HTTP: POST a picture, get a picture or latents. Ctrl-C ends it.

    \b
    Examples:
      zenith-ae serve
      curl --data-binary "@photo.jpg" localhost:8000/denoise -o clean.jpg
    """
    try:
        from .server import listen
        from .server_jobs import is_working
    except ImportError as error:
        raise click.ClickException(
            f"the server needs {error.name}: install the extra with  pip install 'zenith-ae[serve]'"
        ) from None
    from zenith_ae.engine import native  # whose error says why there are no kernels

    if not host.strip():
        raise click.UsageError("--host is empty (a variable that is not set?); give an address")
    native.current_isa()  # a server that can compute nothing had better not start
    try:
        listen(host, port, Limits(max_upload * 2**20, max_pixels, jobs, queue, timeout), threads)
    except OSError as error:
        raise click.ClickException(
            f"{host}:{port}: {reason(error)}; choose another --port or --host"
        ) from None
    except (KeyboardInterrupt, SystemExit) as end:
        if is_working():  # for nobody any more
            if isinstance(end, KeyboardInterrupt):
                click.echo("zenith-ae: interrupted", err=True)
            os._exit(130 if isinstance(end, KeyboardInterrupt) else int(end.code or 0))
        raise
    raise KeyboardInterrupt  # it was ended by one
