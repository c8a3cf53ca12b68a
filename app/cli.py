"""The command ``zenith-ae``: calls zenith_ae, no mathematics here.

Exit codes: 0 everything done (or skipped because it exists), 1 something failed, 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from zenith_ae import __version__
from zenith_ae.errors import LatentError, ZenithError, one_line
from zenith_ae.files import is_disk_full, leave, reason, say, visible

from .batch import Work, wants_traceback
from .inputs import STDIO, Job, Kind
from .session import (
    EQUAL,
    Number,
    Session,
    Sigma,
    chosen_tag,
    common,
    denoised,
    encoding_notes,
    facts,
    picture_kind,
    picture_reader,
    picture_suffix,
    picture_writer,
    read,
    tagged,
    with_options,
    write_stdout,
    writing,
)

if TYPE_CHECKING:
    from zenith_ae.images import Picture
    from zenith_ae.latents import LatentFile
    from zenith_ae.pipelines import Autoencoder

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class LazyGroup(click.Group):
    """A group some of whose commands live in modules that are imported when they are asked for."""

    LAZY = {  # noqa: RUF012
        "bench": "zenith_ae.app.bench",
        "completion": "zenith_ae.app.tools",
        "convert": "zenith_ae.app.tools",
        "doctor": "zenith_ae.app.doctor",
        "evaluate": "zenith_ae.app.train",
        "info": "zenith_ae.app.describe",
        "models": "zenith_ae.app.describe",
        "serve": "zenith_ae.app.tools",
        "train": "zenith_ae.app.train",
        "ui": "zenith_ae.app.web",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *self.LAZY]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in self.LAZY:
            return getattr(import_module(self.LAZY[name]), name)
        return super().get_command(ctx, name)


@click.group(cls=LazyGroup, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="zenith-ae")
def cli() -> None:
    """Denoise and sharpen pictures; encode them to latents and back.

    \b
    Examples:
      zenith-ae denoise photo.jpg                 writes photo.denoised.jpg
      zenith-ae denoise holiday/ -o clean/        a whole folder, tree kept
      zenith-ae deblur soft.jpg                   writes soft.deblurred.jpg
      zenith-ae encode photo.png                  writes photo.latent.safetensors
      zenith-ae doctor                            checks this installation
    """


sigma_option = click.option(
    "--sigma", type=Sigma(), default="auto", show_default=True,
    help="Standard deviation of the noise in units of 0..255; auto estimates it everywhere.",
)  # fmt: skip

passes_option = click.option(
    "--passes", type=click.Choice([1, 2, 4, 8]), default=1, show_default=True,
    help="Take the mean over the picture turned and mirrored this many ways: nearer to the original, and "
    "as many times slower.",
)  # fmt: skip


def share_option(name: str, default: float, text: str) -> Callable[[Callable], Callable]:
    return click.option(f"--{name}", type=Number(0, 1), default=default, show_default=True, help=text)


#: The options of commands that denoise.
noise = with_options(
    sigma_option,
    passes_option,
    share_option("strength", 1.0, "How much of the noise to remove."),
    share_option("luma", 1.0, "Share of the strength for brightness noise."),
    share_option("chroma", 1.0, "Share of the strength for colour noise."),
    share_option("grain", 0.0, "How much of the finest brightness noise to leave."),
)


@cli.command(context_settings=CONTEXT, short_help="Remove noise from pictures.")
@common("zenith-denoise", "the clean picture(s)")
@writing("denoised")
@noise
def denoise(**options: Any) -> int:
    """Remove noise from pictures.

    INPUT is a file, a folder (searched with its subfolders), a pattern such as 'shots/*.png', or
    - for standard input. The result of photo.jpg is photo.denoised.jpg beside it, or below -o DIR.
    Size, mode, bit depth, transparency, EXIF, ICC profile and resolution are kept. Camera RAW files
    (DNG, CR2, CR3, NEF, ARW, ORF, RAF, RW2, PEF and others) become 16-bit PNG, or TIFF with
    --format tif, and HEIC becomes JPEG; they need rawpy (pip install 'zenith-ae[raw]') and
    pillow-heif ('zenith-ae[heif]'), and only where these are installed are they taken from folders.

    \b
    Examples:
      zenith-ae denoise photo.jpg
      zenith-ae denoise scans/ -o clean/ --strength 0.7
      zenith-ae denoise noisy.png --sigma 25 -o clean.png
      zenith-ae denoise card/ -o clean/ --format tif
      cat noisy.png | zenith-ae denoise - > clean.png
    """
    session = Session(picture_kind("denoised", options), options, "denoiser", "noise")
    return session.run(denoising(session, "denoising"))


@cli.command(context_settings=CONTEXT, short_help="Make soft pictures sharp.")
@common("zenith-deblur", "the sharp picture(s)")
@writing("deblurred")
@sigma_option
@passes_option
@share_option("strength", 1.0, "How much of the softness to remove.")
def deblur(**options: Any) -> int:
    """Make soft pictures sharp: slightly out of focus, enlarged, or blurred by a lens.

    It undoes blur of up to two or three pixels, and removes faint noise on the way. What is sharp
    stays as it is. Motion blur and what is far out of focus stay too, and much noise should be
    removed first (`zenith-ae denoise`). The result of photo.jpg is photo.deblurred.jpg.

    \b
    Examples:
      zenith-ae deblur photo.jpg
      zenith-ae deblur scans/ -o sharp/ --strength 0.7
    """
    session = Session(picture_kind("deblurred", options), options, "denoiser", "blur")
    return session.run(denoising(session, "deblurring"))


@cli.command(context_settings=CONTEXT, short_help="Denoise what appears in a folder.")
@common("zenith-denoise", "the clean pictures", folder=True)
@writing("denoised")
@noise
@click.option("--interval", type=Number(0.05), default=1.0, show_default=True,
              help="Seconds between looks at the folder.")  # fmt: skip
def watch(**options: Any) -> int:
    """Denoise every picture in a folder, and each new one as soon as it is complete.

    FOLDER is searched with its subfolders. A picture counts as complete when it did not
    change between two looks; one that is replaced later replaces the result that this run made of it;
    results that were there before stay, without --overwrite. What cannot be read is reported once, and
    tried again when it changes; what cannot be written, after a while. Ctrl-C ends it.

    \b
    Example:
      zenith-ae watch incoming/ -o clean/
    """
    if len(options["inputs"]) != 1:
        raise click.UsageError("watch takes one folder")
    if not os.path.isdir(folder := options["inputs"][0]):
        raise click.UsageError(f"{folder}: no such folder; watch takes one that is there")
    session = Session(picture_kind("denoised", options), options, "denoiser", "noise")
    return session.watch(denoising(session, "denoising"), options["interval"])


def denoising(session: Session, verb: str) -> Work:
    """What the commands that denoise or deblur do."""
    options = session.options
    names = ("strength", "luma", "chroma", "grain", "passes")
    settings: dict[str, Any] = {name: options[name] for name in names if name in options}

    def compute(job: Job, picture: Picture) -> tuple[Picture, dict[str, Any]]:
        model = session.load(options["model"])
        result, level = denoised(
            model, picture, options["sigma"], settings, options["tile"], session.reporter.advance
        )
        level, count = round(level, 2), len(picture.frames)
        sentence = f"(sigma {level:g}{f', {count} pictures' if count > 1 else ''})"
        done = {**facts(picture, model), "sigma": level, "pictures": count}
        return result, {"sentence": sentence, **done}

    return Work(picture_reader(options), compute, picture_writer(options), verb)


@cli.command(context_settings=CONTEXT, short_help="Encode pictures to latents.")
@common("zenith-taef2-lite", "the latents")
@click.option("--dtype", type=click.Choice(["fp16", "fp32", "uint8"]), default="fp16", show_default=True,
              help="Number format in the file.")  # fmt: skip
def encode(**options: Any) -> int:
    """Encode pictures to latents: photo.jpg becomes photo.latent.safetensors.

    The file holds the tensor `latents` (1, C, H/8, W/8), and the picture's size and mode. Alpha is
    not encoded. INPUT is a file, a folder, a pattern or - for standard input.

    \b
    Examples:
      zenith-ae encode photo.jpg
      zenith-ae encode photos/ -o latents/ --dtype fp32
    """
    from zenith_ae.images import FOREIGN_SUFFIXES, READABLE_SUFFIXES
    from zenith_ae.latents import encode_latents, latents_of, write_latents

    kind = Kind(READABLE_SUFFIXES, latents_of, frozenset({".safetensors"}), FOREIGN_SUFFIXES)
    session = Session(kind, options)

    def compute(job: Job, picture: Picture) -> tuple[LatentFile, dict[str, Any]]:
        model = session.load(options["model"])
        file = model.encode_picture(picture, options["tile"], progress=session.reporter.advance)
        z, report = file.latents, facts(picture, model)
        report["notes"] = list(encoding_notes(picture))
        return file, {"sentence": f"{z.shape}", **report, "shape": list(z.shape)}

    def write(job: Job, file: LatentFile, overwrite: bool) -> tuple[str, ...]:
        if job.output == STDIO:
            write_stdout(encode_latents(file, options["dtype"]))
        else:
            write_latents(job.output, file, options["dtype"], overwrite)
        return ()

    return session.run(Work(read, compute, write, "encoding"))


@cli.command(context_settings=CONTEXT, short_help="Decode latents to pictures.")
@common(None, "the picture(s)")
@writing("decoded", "png", strip=False)
@click.option("--force", is_flag=True, help="Decode latents of another latent space too.")
def decode(**options: Any) -> int:
    """Decode latents to pictures of exactly the original size.

    photo.latent.safetensors becomes photo.decoded.png; -o chooses another name or format. Grey
    pictures come back grey. INPUT is a file, a folder, a pattern or - for standard input.

    \b
    Examples:
      zenith-ae decode photo.latent.safetensors
      zenith-ae decode photo.latent.safetensors --model my.safetensors -o photo.webp
    """
    from zenith_ae.image_writing import WRITABLE_SUFFIXES
    from zenith_ae.latents import SUFFIX, parse_latents, read_latents, stem_of

    def rename(name: str) -> str:
        return tagged(stem_of(name), tag, suffix)

    suffix, tag = picture_suffix(options) or ".png", chosen_tag("decoded", options)
    session = Session(Kind(frozenset({SUFFIX}), rename, WRITABLE_SUFFIXES), options)

    def read_file(job: Job) -> LatentFile:
        if job.source == STDIO:
            return parse_latents(sys.stdin.buffer.read(), "<stdin>")
        return read_latents(job.source)

    def compute(job: Job, file: LatentFile) -> tuple[Picture, dict[str, Any]]:
        model = matching_model(session, job.source, file)
        picture = model.decode_picture(file, options["tile"], progress=session.reporter.advance)
        return picture, {"sentence": f"{file.width} x {file.height}", **facts(picture, model)}

    return session.run(Work(read_file, compute, picture_writer(options), "decoding"))


def matching_model(session: Session, source: str, file: LatentFile) -> Autoencoder:
    """The model to decode with: the one asked for, else the one that made the latents or reads them."""
    from zenith_ae.latents import shipped_reader, unread
    from zenith_ae.weights import available_weights

    name = session.options["model"] or shipped_reader(file)
    if name is None and file.model not in available_weights():
        raise unread(file, source)
    model = session.load(name or file.model)
    if not (file.fits(model) or session.options["force"]):
        made = f"made by {file.maker}; that {model.name} ({model.hash}) reads them is not known"
        raise LatentError(f"{source}: {made}: give the former with --model, or --force")
    return model


@cli.command(context_settings=CONTEXT, short_help="Encode and decode pictures, print PSNR and SSIM.")
@common("zenith-taef2-lite", "the decoded picture(s)")
@writing("roundtrip")
@click.option("--dtype", type=click.Choice(["fp16", "fp32", "uint8"]), default="fp16", show_default=True,
              help="Number format of the latents in between.")  # fmt: skip
def roundtrip(**options: Any) -> int:
    """Encode and decode pictures; write the result and print how close it is.

    photo.png becomes photo.roundtrip.png. Printed are PSNR and SSIM of the colours, and the size of
    the latents in bits per pixel. INPUT is a file, a folder, a pattern or - for standard input.

    \b
    Examples:
      zenith-ae roundtrip photo.png
      zenith-ae roundtrip photos/ -o out/ --json
    """
    session = Session(picture_kind("roundtrip", options), options)

    def compute(job: Job, picture: Picture) -> tuple[Picture, dict[str, Any]]:
        from zenith_ae.batches import to_rgb
        from zenith_ae.engine import Pieces
        from zenith_ae.latents import BITS, as_stored
        from zenith_ae.metrics import psnr, ssim

        model = session.load(options["model"])
        halves = Pieces(session.reporter.advance, 2)
        z = model.encode(picture, options["tile"], progress=halves.next())
        z = as_stored(z, options["dtype"])
        pixels = picture.pixels[None]
        result = model.decode_like(z, pixels, picture.layout, options["tile"], progress=halves.next())
        before, after = to_rgb(pixels, picture.layout)[0], to_rgb(result, picture.layout)[0]
        bits = BITS[options["dtype"]]
        scores = {
            "psnr": round(min(psnr(before, after), EQUAL), 3),
            "ssim": round(ssim(before, after), 5),
            "bits_per_pixel": round(z.size * bits / (picture.width * picture.height), 3),
        }
        sentence = "PSNR {psnr:.2f} dB  SSIM {ssim:.4f}  {bits_per_pixel:g} bits per pixel".format(**scores)
        return picture.with_pixels(result[0]), {"sentence": sentence, **facts(picture, model), **scores}

    work = Work(picture_reader(options, every=False), compute, picture_writer(options), "round trip of")
    return session.run(work)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; every failure is one line on stderr and a code (without arguments, the help)."""
    # What Pillow finds odd about a file but reads all the same is not for users to act on.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    # Let a polite kill remove temporary files too, and a terminal that goes, unless nohup said otherwise.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    for name in ("stdin", "stdout", "stderr"):  # None where a shell closed it, as 2>&- does
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names may hold bytes that are no text
    try:
        code = cli.main(arguments, prog_name="zenith-ae", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.UsageError as error:
        if error.ctx and error.ctx.parent:
            command = error.ctx.command_path
        else:  # click does not say which one it is where an option lacks its value
            commands, words = cli.list_commands(click.Context(cli)), arguments or sys.argv[1:]
            command = " ".join(["zenith-ae", *[word for word in words if word in commands][:1]])
        text = one_line(error.format_message()).rstrip(".")
        complain(f"{text} (see {command} --help)")
        return 2
    except click.ClickException as error:
        complain(error.format_message())
        return 1
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return 130
    except ZenithError as error:
        if wants_traceback(error):
            raise
        complain(one_line(error))
        return 1
    except BrokenPipeError:
        leave(sys.stdout)  # the reader has gone
        return 1
    except MemoryError:
        complain("not enough memory")
        return 1
    except OSError as error:
        hint = "; free some room and try again" if is_disk_full(error) else ""
        complain(f"{error.filename or 'standard output'}: {reason(error)}{hint}")
        try:
            sys.stdout.flush()
        except OSError:
            leave(sys.stdout)
        return 1
    except Exception as error:
        if wants_traceback(error):
            raise
        text = one_line(error)
        complain(f"unexpected {type(error).__name__}: {text}; please report it (ZENITH_DEBUG=1 shows where)")
        return 1


def complain(text: str) -> None:
    say(f"zenith-ae: {visible(text)}")
