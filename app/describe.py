"""``zenith-ae models`` and ``zenith-ae info``: what there is and what a file holds."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from zenith_ae.errors import ZenithError, one_line
from zenith_ae.files import is_device, visible

from .batch import Reporter
from .inputs import STDIO, Job, need_pipe
from .session import Model, form, read

# What the models that ship are for; what they are made of is in their configs.
USES = {
    "zenith-denoise": "Removes noise (default of denoise)",
    "zenith-denoise-fast": "Removes noise, in half to two thirds of the time",
    "zenith-denoise-large": "Removes noise, better, in 2.2 times the time",
    "zenith-deblur": "Makes soft pictures sharp (deblur)",
    "zenith-taef2": "FLUX.2 latents, nearest to the picture",
    "zenith-taef2-lite": "FLUX.2 latents, faster (default of encode)",
    "zenith-taef2-nano": "FLUX.2 latents, for live previews",
    "zenith-4ch-lite": "Latents of its own, for compact storage",
}
#: Whose latents architectures are for that are described alike.
SPACES = {
    "taesd": "Stable Diffusion 1 and 2",
    "taesdxl": "Stable Diffusion XL",
    "taesd3": "Stable Diffusion 3",
    "taef1": "FLUX.1",
    "taef2": "FLUX.2",
    "zenith-taesd": "Stable Diffusion",
    "zenith-taef2": "FLUX.2",
    "zenith-taef2-lite": "FLUX.2, smaller",
}


@click.command(short_help="List models and architectures.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per model on standard output.")
def models(as_json: bool) -> int:
    """List the models that come with zenith-ae, and the architectures that can be trained.

    \b
    Examples:
      zenith-ae models
      zenith-ae models --json
    """
    from zenith_ae.models import zoo
    from zenith_ae.weights import available_weights, load_weights

    failed = False
    shipped: list[dict[str, Any]] = []
    for name, path in available_weights().items():
        try:
            weights = load_weights(path)
            own = {"name": name, "weights": weights.hash, "shipped": True, "use": USES.get(name, "")}
            shipped.append({**summary(weights.config), **own})
        except ZenithError as error:
            failed = True
            click.echo(f"zenith-ae: {error}", err=True)
    architectures = [
        {**summary(zoo.build(name)), "shipped": False, "use": SPACES.get(name, "")}
        for name in zoo.ARCHITECTURES
    ]
    if as_json:
        for model in shipped + architectures:
            click.echo(json.dumps(model))
    else:
        table("Models with weights (for --model):", shipped)
        click.echo()
        table("Architectures (for zenith-ae train, or for weights of your own):", architectures)
    return 1 if failed else 0


def summary(config: Any) -> dict[str, Any]:
    """Kind, size and cost of a config; the cost is that of all parts at 512 x 512 pixels."""
    from zenith_ae.models.spec import mac_count, parameter_count

    macs = {}
    for part, layers in config.parts.items():
        side = 512 // config.factor if part == "decoder" else 512
        macs[part] = round(mac_count(layers, config.in_channels(part), side, side) / 1e9, 2)
    return {
        "name": config.name,
        "kind": config.kind,
        "latent_channels": config.latent_channels or None,
        "parameters": sum(parameter_count(layers) for layers in config.parts.values()),
        "gmacs_512": macs,
        "description": config.description,
    }


def table(title: str, rows: list[dict[str, Any]]) -> None:
    click.echo(title)
    if not rows:
        click.echo("  none")
    for row in rows:
        latents = f"{row['latent_channels']} ch" if row["latent_channels"] else "-"
        size = f"{row['parameters'] / 1e6:.2f} M"
        costs = {part: f"{value:.2f}" for part, value in row["gmacs_512"].items()}
        if expert := costs.pop("white", None):  # it is run in place of another part
            costs["denoiser"] = f"{costs['denoiser']} or {expert}"
        cost = " + ".join(costs.values())
        what = row["use"] if row["shipped"] else row["description"] + f" ({row['use']})" * bool(row["use"])
        click.echo(f"  {row['name']:<22}{row['kind']:<13}{latents:>6}{size:>9}{cost:>30} GMAC  {what}")


@click.command(short_help="Describe a picture, latents or weights.")
@click.argument("files", nargs=-1, required=True, type=Model(), metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file on standard output.")
def info(files: tuple[str, ...], as_json: bool) -> int:
    """Describe pictures (- is one on standard input), latent files, or models (weights files, folders or
    names).

    \b
    Examples:
      zenith-ae info photo.jpg
      zenith-ae info photo.latent.safetensors zenith-denoise
      zenith-ae info --json scans/*.tif
    """
    shown, reporter = 0, Reporter()
    for file in files:
        try:
            facts = describe(file)
        except ZenithError as error:
            reporter.traceback(error)
            reporter.error(one_line(error))
            continue
        if as_json:
            click.echo(json.dumps(facts))
        else:
            click.echo(("\n" if shown else "") + _as_table(facts))
        shown += 1
    return 0 if shown == len(files) else 1


def _as_table(facts: dict[str, Any]) -> str:
    """A row a fact, without those that there are none of."""
    rows = []
    for key, value in facts.items():
        if isinstance(value, dict):
            value = [f"{name} {number}" for name, number in value.items()]
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        if text not in (None, ""):
            rows.append(f"{visible(key.replace('_', ' ')):<18}{visible(str(text))}")
    return "\n".join(rows)


def describe(file: str) -> dict[str, Any]:
    from zenith_ae.latents import latent_metadata
    from zenith_ae.weights import SUFFIXES

    if file == STDIO:
        need_pipe()
        return picture_facts(file)
    if os.path.isdir(file) or (not os.path.exists(file) and not os.path.splitext(file)[1]):
        return model_facts(file)
    if is_device(file):  # what a pipe holds can be read only once
        return picture_facts(file)
    weights = file.lower().endswith(SUFFIXES)
    try:
        with open(file, "rb") as stream:
            head = stream.read(1 << 16)
    except OSError:
        return model_facts(file) if weights else picture_facts(file)  # which say what is wrong
    if not weights and head[8:10] != b'{"':  # safetensors: eight bytes of length, then JSON
        return picture_facts(file)
    return model_facts(file) if latent_metadata(head) is None else latent_facts(file)


def picture_facts(file: str) -> dict[str, Any]:
    from zenith_ae.images import TOLD

    picture = read(Job(file), every=True)
    return {
        "file": file,
        "kind": "picture",
        **form(picture),
        "metadata": [key for key in ("icc_profile", "gamma", *TOLD) if key in picture.metadata],
        "notes": list(picture.every_note),
    }


def latent_facts(file: str) -> dict[str, Any]:
    import numpy as np

    from zenith_ae.latents import read_latents

    latents = read_latents(file)
    return {
        "file": file,
        "kind": "latents",
        "model": latents.model,
        "weights": latents.weights,
        "space": latents.space,
        "shape": list(latents.latents.shape),
        "width": latents.width,
        "height": latents.height,
        "mode": latents.mode,
        "mean": round(float(latents.latents.mean(dtype=np.float64)), 4),
        "deviation": round(float(latents.latents.std(dtype=np.float64)), 4),
    }


def model_facts(file: str) -> dict[str, Any]:
    from zenith_ae.weights import load_weights

    weights = load_weights(file)
    facts = {"file": file, **summary(weights.config), "weights": weights.hash}
    own = {
        key: value
        for key, value in weights.metadata.items()
        if key not in (*facts, "format", "format_version", "config")
    }
    return facts | own
