"""``zenith-ae train denoise|distill|graft|autoencode`` and ``zenith-ae evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from zenith_ae.errors import CheckpointError, ConfigError, OutputError
from zenith_ae.files import visible

from .session import Model, Number, with_options

SEED = click.IntRange(0, 2**32 - 1)


def _schedule(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every recipe has, gathered into a TrainConfig as ``config``."""
    pictures, folder = click.Path(exists=True), click.Path(file_okay=False, path_type=Path)
    positive, minutes = click.IntRange(1), Number(0, min_open=True)
    weight = Number(0)
    options = [
        click.option("--data", multiple=True, required=True, type=pictures,
                     help="Folder or .tar pack of pictures; may be given several times."),
        click.option("--drawn", type=click.IntRange(0), default=0, show_default=True,
                     help="Drawn pictures to add: text, interfaces, line art, gradients, colours, print."),
        click.option("-o", "--out", required=True, type=folder,
                     help="Folder for weights, checkpoint and log; a checkpoint in it is continued."),
        click.option("--steps", type=positive, help="Length in steps."),
        click.option("--minutes", type=minutes, help="Length in minutes of training."),
        click.option("--batch", type=positive, help="Crops per step."),
        click.option("--crop", type=click.IntRange(32), default=128, show_default=True,
                     help="Side of a crop in pixels, a multiple of 8 (denoisers with an estimator: of 32)."),
        click.option("--lr", type=weight, default=2e-3, show_default=True, help="Peak learning rate."),
        click.option("--warmup", type=click.IntRange(0), default=200, show_default=True,
                     help="Steps of warm-up."),
        click.option("--ema", type=Number(0, 1, max_open=True), default=0.999, show_default=True,
                     help="Decay of the averaged weights."),
        click.option("--precision", type=click.Choice(["auto", "bf16", "float32"]), default="auto",
                     show_default=True, help="auto is bf16 where the device has instructions for it."),
        click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, ..."),
        click.option("--compile", is_flag=True, help="Compile the network (torch.compile): minutes at first, "
                     "faster steps on a GPU."),
        click.option("--workers", type=click.IntRange(0),
                     help="Processes that make batches [default: all CPUs but one for a GPU, else none]."),
        click.option("--threads", type=positive, help="CPU threads [default: all]."),
        click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of weights and batches."),
        click.option("--init", type=Model(), metavar="NAME|FILE", help="Weights to start from."),
        click.option("--fresh", is_flag=True, help="Ignore an existing checkpoint."),
    ]  # fmt: skip
    return with_options(*options)(command)


def _file_name(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None and (not name.strip(". ") or any(c in name for c in "/\\:\0")):
        raise click.BadParameter(f"{name!r} is to be a file's name, without a folder")
    return name


_name = click.option("--name", callback=_file_name, help="Name of the result [default: the architecture's].")
_loss = click.option(
    "--loss",
    type=click.Choice(["l1", "psnr"]),
    default="l1",
    show_default=True,
    help="Absolute error, or the logarithm of the squared one: for the end of a training.",
)


def _detail_weight(default: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--detail-weight",
        type=Number(0),
        default=default,
        show_default=True,
        help="Weight of the error in the amount of fine detail: more is crisper, less has a higher PSNR.",
    )


_critic_weight = click.option("--critic-weight", type=Number(0), default=0.0, show_default=True,
                              help="Weight of a critic that learns to tell a decoder's "
                              "pictures from the originals: 0.001 to 0.003 in a last "
                              "phase makes it crisp.")  # fmt: skip

_teacher = click.option(
    "--teacher",
    required=True,
    type=Model(),
    metavar="NAME|FILE",
    help="Weights of a TAESD-family model: a file, an encoder file beside a decoder file, a folder.",
)


def _latent_channels(weights: Any, teacher: str) -> int:
    if weights.config.kind != "autoencoder":
        raise click.UsageError(
            f"--teacher {teacher}: is of kind {weights.config.kind}; it needs an autoencoder"
        )
    return weights.config.latent_channels


_latents = click.option("--latents", type=click.Path(dir_okay=False, path_type=Path),
                        help="Where to keep the teacher's latents [default: OUT/latents.npz].")  # fmt: skip


def _config(default_batch: int, options: dict[str, Any]) -> Any:
    try:
        import torch

        from zenith_ae.training.trainer import TrainConfig, choose_gpu
    except ImportError as error:
        raise click.ClickException(
            f"training needs {error.name}: install the extra with  pip install 'zenith-ae[train]'"
        ) from None
    try:
        choose_gpu(options["device"])
        torch.empty(0, device=options["device"])
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        reason = str(error).splitlines()[0]
        raise click.UsageError(f"--device {options['device']}: cannot be used: {reason}") from None
    try:
        given = {field.name: options[field.name] for field in fields(TrainConfig) if field.name in options}
        backend = "inductor" if options["compile"] else ""
        return TrainConfig(**given | {"batch": options["batch"] or default_batch, "compile": backend})
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _refuse(options: Iterable[str], why: str) -> None:
    """Raise UsageError where one of these, which have defaults, is given and would change nothing."""
    source = click.get_current_context().get_parameter_source
    for option in options:
        if source(option.replace("-", "_")) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{option} {why}")


def _finish(weights: Path) -> None:
    from zenith_ae.training.trainer import is_first_process

    if not is_first_process():
        return
    click.echo(str(weights))
    from zenith_ae.training.plot import plot_log

    try:
        plot_log(weights.parent / "log.jsonl", weights.parent / "log.png")
    except (ImportError, OSError, ValueError) as error:  # the weights are what matters
        click.echo(f"no plot of the log: {error}", err=True)


class _Training(click.Command):
    """A command that trains, for which options that do not go together are wrong usage."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CheckpointError:  # something that is there, and is wrong
            raise
        except ConfigError as error:
            raise click.UsageError(str(error), ctx) from None


@click.group(short_help="Train models of your own.")
def train() -> None:
    """Train models of your own: denoisers, and autoencoders with or without a teacher."""


@train.command(cls=_Training)
@_schedule
@click.option("--model", default="zenith-denoise", show_default=True,
              help="Architecture (see `zenith-ae models`).")  # fmt: skip
@_name
@click.option("--only", type=click.Choice(["denoiser", "estimator", "white", "sorter"]),
              help="Train one part, keep the others. White is an expert for white noise, which a model in "
              "--init gets if it has none; sorter, to be trained last, tells where to use it.")  # fmt: skip
@_loss
@click.option("--elder", metavar="NAME|FILE",
              help="Weights whose estimator teaches all levels but those of white noise above "
              "8, of noise in JPEGs and of drawn pictures: these alone are learned anew.")  # fmt: skip
@click.option(
    "--anew",
    type=click.Choice(["noise", "drawn"]),
    default="noise",
    show_default=True,
    help="What is learned beside an --elder: these levels, or those of drawn pictures alone.",
)
@click.option("--cleaner", metavar="NAME|FILE",
              help="With --only denoiser: takes the photographs' own noise away first. Seven "
              "in ten photographs are these, with the noise of cameras, and 15 % of the "
              "batches of drawn pictures alone, if there are any. With --only estimator "
              "and an --elder two in five are these, edited: brighter, of more contrast, "
              "more vivid, sharper.")  # fmt: skip
@click.option(
    "--quantile",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Of what the level of camera noise may be, what the estimator says; above 0.5 it leans upward.",
)
@click.option("--task", type=click.Choice(["noise", "blur"]), default="noise", show_default=True,
              help="What the pictures suffer from.")  # fmt: skip
def denoise(
    model: str,
    name: str | None,
    only: str | None,
    loss: str,
    elder: str | None,
    anew: str,
    cleaner: str | None,
    quantile: float,
    task: str,
    **options: Any,
) -> None:
    """Train a restoration model on clean pictures.

    \b
    Example:
      zenith-ae train denoise --data photos/ --minutes 60 -o runs/denoise
    """
    config = _config(8, options)
    from zenith_ae.models import zoo
    from zenith_ae.training.degradations import MIXTURES
    from zenith_ae.training.restore import train_restoration

    path = train_restoration(
        zoo.build(model, name=name), list(options["data"]), config,
        MIXTURES["blur"] if task == "blur" else None,
        init=options["init"], resume=not options["fresh"], only=only,
        loss=loss, elder=elder, anew=anew, quantile=quantile, cleaner=cleaner,
    )  # fmt: skip
    _finish(path)


@train.command(cls=_Training, short_help="Train an autoencoder in a teacher's latent space.")
@_schedule
@_teacher
@click.option("--model", default="zenith-taesd-lite", show_default=True, help="Architecture of the student.")
@_name
@click.option("--latent-weight", type=Number(0), default=0.3, show_default=True,
              help="Weight of the distance to the teacher's latents.")  # fmt: skip
@click.option("--teacher-weight", type=Number(0), default=1.0, show_default=True,
              help="Weight of the error of the teacher's decoder on the student's latents.")  # fmt: skip
@_detail_weight(0.3)
@click.option(
    "--imitation-weight",
    type=Number(0),
    default=0.0,
    show_default=True,
    help="Weight of the distance to what the teacher's decoder makes of the same latents.",
)
@click.option("--only", type=click.Choice(["encoder", "decoder"]), help="Train one part, keep the other.")
@click.option("--taught", type=Number(0, 1), default=0.5, show_default=True,
              help="Share of the decoder's lessons that are the teacher's latents.")  # fmt: skip
@_latents
def distill(
    teacher: str,
    model: str,
    name: str | None,
    only: str | None,
    latents: Path | None,
    **options: Any,
) -> None:
    """Train encoder and decoder students in a teacher's latent space.

    \b
    Example:
      zenith-ae train distill --teacher taef2_encoder.safetensors \\
          --model zenith-taesd-lite --data photos/ --minutes 60 -o runs/lite
    """
    kept = {"encoder": "decoder", "decoder": "encoder"}.get(str(only))
    if kept:
        weights = {
            "encoder": ("latent-weight", "teacher-weight"),
            "decoder": ("detail-weight", "imitation-weight"),
        }
        _refuse(weights[kept], f"is about the {kept}, which --only {only} keeps as it is")
    config = _config(16, options)
    from zenith_ae.models import zoo
    from zenith_ae.training.distill import DistillOptions, train_distillation
    from zenith_ae.weights import load_weights

    channels = _latent_channels(load_weights(teacher), teacher)
    learned = DistillOptions(**{field.name: options[field.name] for field in fields(DistillOptions)})
    path = train_distillation(
        zoo.build(model, channels, name), teacher, list(options["data"]), config,
        init=options["init"], resume=not options["fresh"], options=learned, cache=latents, only=only,
    )  # fmt: skip
    _finish(path)


@train.command(cls=_Training, short_help="Train a hybrid's own layers beside its teacher's.")
@_schedule
@_teacher
@click.option("--model", default="zenith-taef2", show_default=True, help="Architecture: a hybrid.")
@_name
@click.option("--part", required=True, type=click.Choice(["encoder", "decoder"]), help="Part to train.")
@click.option(
    "--imitation",
    type=Number(0, 1),
    default=0.5,
    show_default=True,
    help="Share of the teacher's answer, beside the picture's own, in what a decoder learns.",
)
@_detail_weight(0.05)
@click.option("--perceptual-weight", type=Number(0), default=0.05, show_default=True,
              help="Weight of the difference that the encoder sees between a decoder's picture and the "
              "original, in its features.")  # fmt: skip
@click.option("--cycle-weight", type=Number(0), default=0.0, show_default=True,
              help="Weight of the same in its latents: 0.15 to 0.2 beside a critic keeps what it draws "
              "true.")  # fmt: skip
@click.option("--eye", type=Model(), metavar="NAME|FILE",
              help="Hybrid of the same teacher, or the teacher, whose encoder looks for these "
              "[default: --init].")  # fmt: skip
@_critic_weight
@click.option("--critic-limit", type=Number(0, min_open=True), default=1.5, show_default=True,
              help="Limit of the critic's pull on a picture, relative to that of its mean absolute error: "
              "with 4, and a weight of 0.006, a decoder gets crisper still.")  # fmt: skip
@click.option("--tone-weight", type=Number(0), default=1.0, show_default=True,
              help="Weight of the error in the brightness and colour of a decoder's surfaces, 8 and 32 "
              "pixels wide.")  # fmt: skip
@click.option("--taught", type=Number(0, 1), default=1.0, show_default=True,
              help="Share of a decoder's pictures with the teacher's latents; the others have the own "
              "encoder's.")  # fmt: skip
@click.option("--all-layers", is_flag=True,
              help="Train the shared layers of a decoder too, on whole pictures: once its own stand in for "
              "the teacher's.")  # fmt: skip
@click.option("--latent-weight", type=Number(0), default=0.0, show_default=True,
              help="With --all-layers, train the encoder beside the decoder; what its distance to the "
              "teacher's latents counts: 0.3 keeps it as near as it was.")  # fmt: skip
@_latents
@click.option("--features", type=click.Path(file_okay=False, path_type=Path),
              help="Folder to keep the teacher's features in, about a gigabyte for 100 megapixels "
              "[default: OUT/features].")  # fmt: skip
def graft(
    teacher: str,
    model: str,
    name: str | None,
    part: str,
    latents: Path | None,
    features: Path | None,
    **options: Any,
) -> None:
    """Train the layers that a hybrid has of its own, beside its teacher's.

    \b
    Example:
      zenith-ae train graft --teacher taef2_encoder.safetensors --part encoder \\
          --data photos/ --minutes 30 -o runs/encoder
      zenith-ae train graft --teacher taef2_encoder.safetensors --part decoder \\
          --init runs/encoder/zenith-taef2.safetensors --data photos/ --minutes 30 -o runs/hybrid
    """
    if part == "encoder":  # the others that it does not take have no default: `train_graft` refuses them
        weights = ("detail-weight", "perceptual-weight", "tone-weight")
        _refuse(("imitation", *weights, "critic-limit", "taught"), "is for --part decoder")
    if not options["critic_weight"]:
        _refuse(("critic-limit",), "is about a critic: give it a --critic-weight")
    config = _config(8, options)
    from zenith_ae.models import zoo
    from zenith_ae.training.graft import GraftOptions, train_graft
    from zenith_ae.weights import load_weights

    channels = _latent_channels(load_weights(teacher), teacher)
    learned = GraftOptions(**{field.name: options[field.name] for field in fields(GraftOptions)})
    path = train_graft(
        zoo.build(model, channels, name), teacher, list(options["data"]), config, part,
        init=options["init"], resume=not options["fresh"], options=learned,
        latents=latents, features=features,
    )  # fmt: skip
    _finish(path)


@train.command(cls=_Training)
@_schedule
@click.option("--model", default="zenith-4ch-lite", show_default=True,
              help="Architecture, one with bounded latents.")  # fmt: skip
@click.option("--latent-channels", type=click.IntRange(1),
              help="Channels of the latents [default: the architecture's].")  # fmt: skip
@_name
@_loss
@_detail_weight(0.1)
@_critic_weight
def autoencode(
    model: str,
    latent_channels: int | None,
    name: str | None,
    loss: str,
    detail_weight: float,
    critic_weight: float,
    **options: Any,
) -> None:
    """Train an autoencoder in a latent space of its own.

    \b
    Example:
      zenith-ae train autoencode --data photos/ --minutes 60 -o runs/4ch
    """
    config = _config(8, options)
    from zenith_ae.models import zoo
    from zenith_ae.training.autoencode import train_autoencoder

    path = train_autoencoder(
        zoo.build(model, latent_channels, name), list(options["data"]), config,
        init=options["init"], resume=not options["fresh"], loss=loss, detail_weight=detail_weight,
        critic_weight=critic_weight,
    )  # fmt: skip
    _finish(path)


@click.command(short_help="Measure the quality of a model.")
@click.argument("model", type=Model(), metavar="NAME|FILE")
@click.argument("source", type=click.Path(exists=True))
@click.option(
    "--sigma",
    "sigmas",
    multiple=True,
    type=Number(0, 255),
    help="Level of the noise added, of 255; may be given several times. [default: 15, 25, 50]",
)
@click.option("--degrade", "degradations", multiple=True,
              type=click.Choice(["gaussian", "file", "jpeg", "shot", "box", "none"]),
              help="What a denoiser is given: noise of each --sigma, the same clipped and "
              "rounded to a file of 8 bits, that as JPEG, 5 % shot noise, a 3x3 box blur, "
              "or the clean picture; may be given several times. [default: gaussian; box "
              "for a model that sharpens]")  # fmt: skip
@click.option("--grey", is_flag=True, help="Make the pictures grey first.")
@click.option("--reference", type=click.Path(exists=True),
              help="Ground truth of real noisy pictures, by the same names.")  # fmt: skip
@click.option("--other", type=Model(), metavar="NAME|FILE",
              help="Another autoencoder to exchange encoder and decoder with.")  # fmt: skip
@click.option("--passes", type=click.Choice([1, 2, 4, 8]), default=1, show_default=True,
              help="Passes of a denoiser, as in `zenith-ae denoise`.")  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the noise.")
@click.option("--limit", type=click.IntRange(1), help="Measure only the first pictures.")
@click.option("--threads", type=click.IntRange(1, 256), help="CPU threads [default: all].")
@click.option("--pictures", is_flag=True, help="Print each picture's values too; JSON always has them.")
@click.option(
    "--sheet",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the worst places of the first case as a picture: input, result, original, difference.",
)
@click.option("--worst", type=click.IntRange(1, 100), default=8, show_default=True,
              help="Pictures on the sheet.")  # fmt: skip
@click.option("--case", help="Case on the sheet, by its name in the table [default: the first].")
@click.option("--overwrite", is_flag=True, help="Replace an existing sheet.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    model: str,
    source: str,
    sigmas: tuple[float, ...],
    degradations: tuple[str, ...],
    grey: bool,
    reference: str | None,
    other: str | None,
    passes: int,
    seed: int,
    limit: int | None,
    threads: int | None,
    pictures: bool,
    sheet: Path | None,
    worst: int,
    case: str | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Measure PSNR and SSIM of a model on a folder or .tar pack of pictures.

    A denoiser is given clean pictures plus Gaussian noise, or real pairs NAME_real.* and NAME_mean.*
    where the source holds such; an autoencoder's round trip is compared with its input.

    \b
    Examples:
      zenith-ae evaluate zenith-denoise pictures/ --sigma 25
      zenith-ae evaluate zenith-taef2-lite pictures/ --sheet worst.png
    """
    from zenith_ae.pipelines import Autoencoder, load
    from zenith_ae.training.contact_sheet import ContactSheet
    from zenith_ae.training.evaluate import evaluate_model, format_table, to_json

    from .inputs import make_folder

    if sheet is None:
        _refuse(("case", "worst", "overwrite"), "is about the --sheet, of which none is asked for")
    second = None if other is None else load(other, threads=threads)
    if not (second is None or isinstance(second, Autoencoder)):
        raise click.UsageError(f"--other {other}: not an autoencoder")

    def progress(done: int, count: int, name: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{done + 1}/{count} {visible(name)[-60:]:60}", err=True, nl=done + 1 == count)

    try:
        places = None if sheet is None else ContactSheet(sheet, worst, case, overwrite)
    except OutputError as error:  # of its name: nothing is done yet
        raise click.UsageError(str(error)) from None
    if sheet is not None:  # now: what is measured below may take an hour
        measured_in = {Path(each).resolve() for each in (source, reference) if each is not None}
        if not measured_in.isdisjoint((sheet.resolve(), *sheet.resolve().parents)):
            raise click.UsageError(
                f"--sheet {sheet} lies among the files that are measured; choose another place"
            )
        make_folder(sheet, "--sheet")
    measured = load(model, threads=threads)
    if second is not None and isinstance(measured, Autoencoder):
        theirs, own = second.config.latent_channels, measured.config.latent_channels
        if theirs != own:
            raise click.UsageError(f"--other {other}: has latents of {theirs} channels, and {model} of {own}")
    try:
        result = evaluate_model(
            measured, source, sigmas=sigmas or None, seed=seed, limit=limit,
            degradations=degradations or None, grey=grey, reference=reference, other=second,
            passes=passes, progress=progress, observe=places,
        )  # fmt: skip
        click.echo(to_json(result) if as_json else format_table(result, pictures))
        if places is not None:
            places.save()
    except ConfigError as error:  # options that do not go together, or a --case that there is not
        raise click.UsageError(str(error)) from None
    return int(bool(result["skipped"]))  # as of every command: some files could not be read
