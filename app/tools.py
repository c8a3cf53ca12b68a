"""``zenith-ae completion`` and ``zenith-ae convert``."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["completion", "convert"]


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
@click.argument("model", metavar="NAME|FILE|DIR")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="File, or for diffusers folder, to write.",
)
@click.option(
    "--to",
    "layout",
    type=click.Choice(["zenith", "taesd", "diffusers"]),
    default="zenith",
    show_default=True,
    help="Layout to write.",
)
@click.option(
    "--dtype",
    type=click.Choice(["fp16", "fp32"]),
    default="fp32",
    show_default=True,
    help="Number format in the file.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing output.")
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

    from zenith_ae.weights import load_weights, save_diffusers, save_taesd, save_weights, taesd_files

    files = {
        "zenith": lambda: [output],
        "taesd": lambda: list(taesd_files(output).values()),
        "diffusers": lambda: [output / "diffusion_pytorch_model.safetensors", output / "config.json"],
    }[layout]()
    for file in files:
        if file.exists() and not overwrite:
            raise click.UsageError(f"{file} exists; use --overwrite to replace it")
    weights = load_weights(model)
    kind = {"fp16": np.float16, "fp32": np.float32}[dtype]
    if layout == "zenith":
        save_weights(output, weights.config, weights.tensors, weights.metadata, kind)
    elif layout == "taesd":
        save_taesd(output, weights, kind)
    else:
        save_diffusers(output, weights, kind)
    for file in files:
        if file.exists():
            click.echo(str(file))
