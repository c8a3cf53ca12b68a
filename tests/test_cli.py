import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

import zenith_ae
from zenith_ae import files
from zenith_ae import weights as weights_module
from zenith_ae.__main__ import main
from zenith_ae._kernels import best_dtype
from zenith_ae.app import batch, inputs
from zenith_ae.app.cli import run
from zenith_ae.app.session import Session
from zenith_ae.errors import ImageError, OutputError
from zenith_ae.latents import read_latents, write_latents
from zenith_ae.models.zoo import build
from zenith_ae.selftest import random_weights
from zenith_ae.weights import save_taesd, save_weights


@pytest.fixture
def dn(sigma_denoiser):
    return ["--model", str(sigma_denoiser), "--sigma", "10"]


@pytest.fixture
def ae(identity_autoencoder):
    return ["--model", str(identity_autoencoder)]


def picture(path, size=(9, 6), mode="RGB", value=100):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    colour = value if len(mode) == 1 else (value,) * len(mode)
    Image.new(mode, size, colour).save(path)
    return str(path)


def pixel(path):
    with Image.open(path) as image:
        return image.getpixel((0, 0))


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file())


def one_line(text):
    assert text.count("\n") == 1 and text.startswith("zenith-ae: "), text
    return text.strip()


# ---- names and places


def test_denoise_writes_beside_the_input_and_says_so(here, dn, capsys):
    picture("a.b.png")
    assert run(["denoise", "a.b.png", *dn]) == 0
    assert pixel("a.b.denoised.png") == (110, 110, 110)
    out, err = capsys.readouterr()
    assert out == "a.b.png -> a.b.denoised.png  (sigma 10)\n"
    assert err == ""


def test_deblur_writes_names_of_its_own_and_takes_no_results(here, dn, capsys):
    picture("a.png")
    assert run(["deblur", "a.png", *dn, "--strength", "0.5"]) == 0
    assert pixel("a.deblurred.png") == (105, 105, 105)
    assert capsys.readouterr().out == "a.png -> a.deblurred.png  (sigma 10)\n"
    assert run(["denoise", ".", "-o", "out", *dn]) == 0
    assert tree(here / "out") == ["a.denoised.png"]
    assert run(["deblur", "a.png", "--grain", "1", *dn]) == 2


def test_the_tag_of_names_is_free_and_a_second_run_knows_its_own(here, dn, ae, capsys):
    picture("in/b/a.png")
    for _ in range(2):  # the second takes nothing that the first wrote
        assert run(["denoise", "in", "--tag", ".Clean", *dn]) == 0
        assert tree("in") == ["b/a.Clean.png", "b/a.png"]
    assert run(["denoise", "in/b/a.png", "in/b/a.Clean.png", "-o", "out", "--tag", "", *dn]) == 0
    assert tree("out") == ["a.Clean.png", "a.png"]
    assert run(["encode", "in/b/a.png", *ae]) == 0
    assert run(["decode", "in/b/a.latent.safetensors", "-o", "out/", "--tag", "x y", *ae]) == 0
    assert (
        run(["decode", "in/b/a.latent.safetensors", "-o", "out/", "--tag", "", "--format", "bmp", *ae]) == 0
    )
    assert tree("out") == ["a.Clean.png", "a.bmp", "a.png", "a.x y.png"]
    before = Path("in/b/a.png").read_bytes()
    capsys.readouterr()
    assert run(["denoise", "in/b/a.png", "--tag", "", "--overwrite", *dn]) == 1
    assert "its own output" in one_line(capsys.readouterr().err)
    assert Path("in/b/a.png").read_bytes() == before
    assert run(["denoise", "in/b/a.png", "--tag", "../x", *dn]) == 2
    assert "--tag ../x" in capsys.readouterr().err


def test_a_pattern_that_matches_one_file_still_fills_a_folder(here, dn):
    picture("shots/a.png")
    assert run(["denoise", "shots/*.png", "-o", "clean", *dn]) == 0
    assert tree("clean") == ["a.denoised.png"]


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tif", "bmp", "PNG"])
def test_the_suffix_stays(here, dn, suffix):
    picture(f"a.{suffix}")
    assert run(["denoise", f"a.{suffix}", *dn]) == 0
    assert (here / f"a.denoised.{suffix}").exists()


def test_formats_that_cannot_hold_the_result_become_png(here, dn):
    picture("a.gif")
    assert run(["denoise", "a.gif", *dn]) == 0
    assert tree(here) == ["a.denoised.png", "a.gif"]


def test_output_may_be_a_file_or_a_folder(here, dn):
    picture("a.png")
    assert run(["denoise", "a.png", "-o", "x/b.webp", *dn]) == 0
    assert run(["denoise", "a.png", "-o", "y/", *dn]) == 0
    (here / "z").mkdir()
    assert run(["denoise", "a.png", "-o", "z", *dn]) == 0
    assert tree(here) == ["a.png", "x/b.webp", "y/a.denoised.png", "z/a.denoised.png"]


def test_a_picture_that_cannot_be_read_leaves_no_empty_folder(here, dn):
    (here / "in/sub").mkdir(parents=True)
    (here / "in/sub/a.png").write_bytes(b"no picture")
    assert run(["denoise", "in", "-o", "out", *dn]) == 1
    assert not (here / "out").exists()


def test_folders_are_mirrored(here, dn):
    for name in ("in/a.png", "in/sub/deep/b.jpg", "in/sub/c.png", "in/.hidden/d.png", "in/.e.png"):
        picture(name)
    (here / "in/notes.txt").write_text("no picture")
    assert run(["denoise", "in", "-o", "out", *dn]) == 0
    assert tree(here / "out") == ["a.denoised.png", "sub/c.denoised.png", "sub/deep/b.denoised.jpg"]


def test_folders_that_hold_no_ones_pictures_are_passed_by_unless_named(here, dn, capsys):
    library = "in/Photos Library.photoslibrary/resources"
    for name in ("in/a.png", f"{library}/b.png", "in/$RECYCLE.BIN/S-1/c.png", "in/@eaDir/d.png"):
        picture(name)
    assert run(["denoise", "in", "-o", "out", *dn]) == 0
    assert tree(here / "out") == ["a.denoised.png"]
    for pattern in ("in/**", "in/*", "in//*"):
        assert run(["denoise", pattern, "-o", "matched", "--overwrite", *dn]) == 0
        assert tree(here / "matched") == ["a.denoised.png"]
    assert run(["denoise", "in/*/*/*.png", "-o", "matched", *dn]) == 1
    for named in (library, "in/*.photoslibrary/*", "in/Photos*.photoslibrary/**/*.png"):
        assert run(["denoise", named, "-o", "named", *dn]) == 0
        assert [Path(name).name for name in tree(here / "named")] == ["b.denoised.png"]
        shutil.rmtree(here / "named")
    capsys.readouterr()
    os.unlink("in/a.png")
    assert run(["denoise", "in", *dn]) == 1
    assert "to take one, name it: in/$RECYCLE.BIN" in one_line(capsys.readouterr().err)


def test_folders_leave_out_own_results_and_the_output_folder(here, dn, capsys):
    picture("in/a.png")
    assert run(["denoise", "in", *dn]) == 0
    assert run(["denoise", "in", "-o", "in/out", *dn]) == 0
    assert run(["denoise", "in", "-o", "in/out", "--overwrite", *dn]) == 0
    assert tree(here) == ["in/a.denoised.png", "in/a.png", "in/out/a.denoised.png"]


def test_a_pattern_leaves_the_output_folder_out(here, dn):
    picture("shots/day/a.png")
    picture("shots/clean/old.png")
    assert run(["denoise", "shots/*", "-o", "shots/clean", *dn]) == 0
    assert tree("shots/clean") == ["day/a.denoised.png", "old.png"]


def test_an_existing_output_of_another_kind_is_refused_too(here, ae, capsys):
    picture("a.png")
    picture("b.webp")
    before = Path("b.webp").read_bytes()
    assert run(["encode", "a.png", "-o", "b.webp", "--overwrite", *ae]) == 2
    assert "written as .safetensors" in capsys.readouterr().err
    assert Path("b.webp").read_bytes() == before


def test_patterns_are_expanded_even_when_quoted(here, dn):
    for name in ("a1.png", "a2.png", "b1.png"):
        picture(name)
    assert run(["denoise", "a*.png", "-o", "out", *dn]) == 0
    assert tree(here / "out") == ["a1.denoised.png", "a2.denoised.png"]


def test_what_a_shell_names_once_more_goes_on_and_leaves_out_its_own_results(here, dn, capsys):
    for name in ("a.png", "b.png", "other.denoised.png"):
        picture(name)
    first = ["a.denoised.png", "a.png", "b.denoised.png", "b.png"]
    others = ["other.denoised.denoised.png", "other.denoised.png"]
    for _ in range(2):
        assert run(["denoise", *sorted(tree(here)), *dn]) == 0
        assert tree(here) == sorted([*first, *others])
    assert "a.denoised.png: skipped, it is the result of a.png" in capsys.readouterr().out
    assert run(["denoise", *first, "--dry-run", *dn]) == 0
    assert "a.denoised.png  (is the result of a.png, would be skipped)" in capsys.readouterr().out
    picture("a.denoised.png", value=7)
    assert run(["denoise", *first, "--overwrite", *dn]) == 1  # what is named is not replaced
    assert "a.png: its output a.denoised.png is also an input" in capsys.readouterr().err
    assert pixel("a.denoised.png") == (7, 7, 7)
    assert run(["denoise", "a.denoised.png", "--tag", "", *dn]) == 1  # not of another's making
    assert "would be replaced by its own output" in capsys.readouterr().err


def test_patterns_mirror_the_tree_and_leave_out_results(here, dn, capsys):
    for name in ("in/a.png", "in/sub/a.png", "in/sub/b.denoised.png"):
        picture(name)
    assert run(["denoise", "in/**/*.png", "-o", "out", *dn]) == 0
    assert tree(here / "out") == ["a.denoised.png", "sub/a.denoised.png"]
    assert run(["denoise", "i*", "-o", "more", *dn]) == 0
    assert tree(here / "more") == ["in/a.denoised.png", "in/sub/a.denoised.png"]
    capsys.readouterr()
    assert run(["denoise", "in/sub/*.denoised.png", "-o", "again", *dn]) == 1
    assert "matches only results" in one_line(capsys.readouterr().err)
    assert run(["denoise", "in/sub/b.denoised.png", "-o", "again.png", *dn]) == 0


def test_patterns_leave_out_the_output_folder_and_stay_in_it(here, dn, capsys):
    picture("in/a.png")
    for _ in range(3):
        assert run(["denoise", "in/**/*.png", "-o", "in/clean", "--tag", "", "--overwrite", *dn]) == 0
        assert tree(here / "in") == ["a.png", "clean/a.png"]
    capsys.readouterr()
    assert run(["denoise", "in/*/*.png", "-o", "in/clean", "--tag", "x", *dn]) == 1
    assert "matches only what lies in in/clean, where the results go" in one_line(capsys.readouterr().err)
    assert run(["denoise", "in/clean/*.png", "-o", "in/clean", "--tag", "again", *dn]) == 0  # what is named
    assert tree(here / "in" / "clean") == ["a.again.png", "a.png"]
    assert run(["denoise", "in/*/../*.png", "-o", "in/clean", "--tag", "up", *dn]) == 0
    assert tree(here / "in") == ["a.png", "clean/a.again.png", "clean/a.png", "clean/a.up.png"]
    assert run(["denoise", "in/*/../*.png", "-o", "in", "--tag", "b", *dn]) == 0  # where the pattern begins
    picture("b.png")
    assert run(["denoise", "in/*/../../b*.png", "-o", "out", *dn]) == 0
    assert tree(here / "out") == ["b.denoised.png"]


def test_patterns_follow_links_but_not_in_circles(here, dn):
    picture("in/a.png")
    picture("other/b.png")
    picture("in/.hidden/c.png")
    for link in ("in/up", "in/again", "in/sub"):
        os.symlink("../other" if link == "in/sub" else ".", link)
    os.symlink("../in", "other/back")
    assert run(["denoise", "in/**/*.png", "-o", "out", *dn]) == 0
    assert tree(here / "out") == ["a.denoised.png", "sub/b.denoised.png"]
    os.chdir("in")
    assert run(["denoise", "**", "-o", "../more", *dn]) == 0
    assert tree(here / "more") == ["a.denoised.png", "sub/b.denoised.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["denoise", "a.png", "-o", "a.xyz"], "-o a.xyz: this is written as .avif"),
        (["denoise", "a.png", "-o", "clean"], "for a folder of that name give clean/"),
        (["denoise", "a.png", "b.png", "-o", "one.png"], "for a folder of that name give one.png/"),
        (["encode", "a.png", "-o", "a.jpg"], "-o a.jpg: this is written as .safetensors"),
    ],
)
def test_outputs_of_the_wrong_kind_are_refused_before_any_work(here, capsys, arguments, message):
    picture("a.png")
    picture("b.png")
    assert run(arguments) == 2
    assert message in capsys.readouterr().err
    assert tree(here) == ["a.png", "b.png"]


def test_a_device_is_written_to_and_never_skipped(here, dn, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", "-o", os.devnull + "/x.png", *dn]) == 1
    os.mkfifo("pipe.png")
    reader = subprocess.Popen(["cat", "pipe.png"], stdout=subprocess.PIPE)
    assert run(["denoise", "a.png", "-o", "pipe.png", *dn]) == 0
    with Image.open(io.BytesIO(reader.communicate()[0])) as image:
        assert image.size == (9, 6)


def test_denoise_does_every_frame(here, dn, capsys):
    frames = [Image.new("RGB", (9, 6), (value,) * 3) for value in (10, 60, 200)]
    frames[0].save("a.gif", save_all=True, append_images=frames[1:], duration=70, loop=0)
    assert run(["denoise", "a.gif", *dn]) == 0
    assert capsys.readouterr().out == "a.gif -> a.denoised.png  (sigma 10, 3 pictures)\n"
    with Image.open("a.denoised.png") as image:
        assert image.n_frames == 3
        values = []
        for i in range(3):
            image.seek(i)
            values.append(image.convert("RGB").getpixel((0, 0))[0])
    assert values == [20, 70, 210]
    for arguments in (
        ["-o", "one.jpg"],
        ["--format", "bmp"],
    ):  # of what these cannot hold nothing is computed
        assert run(["denoise", "a.gif", *arguments, *dn]) == 0
        out, err = capsys.readouterr()
        assert out.endswith("(sigma 10)\n")
        assert err == "zenith-ae: a.gif: only the first of several pictures in the file is used\n"


def test_dry_run_writes_nothing(here, dn, capsys):
    picture("in/a.png")
    picture("in/b.jpg")
    picture("out/b.denoised.jpg")
    arguments = ["denoise", "in", "none.png", "-o", "out", "--dry-run", *dn]
    assert run(arguments) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "in/a.png -> out/a.denoised.png",
        "in/b.jpg -> out/b.denoised.jpg  (exists, would be skipped)",
    ]
    assert one_line(err) == "zenith-ae: none.png: no such file; check the path"
    assert tree(here) == ["in/a.png", "in/b.jpg", "out/b.denoised.jpg"]
    assert run([*arguments, "--json"]) == 1
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["status"] for r in records] == ["planned", "skipped", "failed"]
    assert run(["denoise", "in", "--dry-run", "--model", "not-there"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and one_line(err).startswith("zenith-ae: not-there: no such")


@pytest.mark.parametrize(("command", "result"), [("denoise", "denoised"), ("roundtrip", "roundtrip")])
def test_what_the_output_cannot_hold_is_told_before_the_work(
    here, dn, ae, capsys, monkeypatch, command, result
):
    options = dn if command == "denoise" else ae
    Image.new("RGBA", (9, 7), (1, 2, 3, 100)).save("a.png")
    monkeypatch.setattr(Session, "load", lambda self, name: None)  # whose result cannot do anything
    assert run([command, "a.png", "--format", "jpg", *options]) == 1
    assert f"a.{result}.jpg: JPEG cannot hold transparency" in one_line(capsys.readouterr().err)


def test_pages_that_a_format_cannot_hold_together_are_not_worked_on(here, dn, capsys):
    pages = [Image.new("RGB", size, (50, 60, 70)) for size in ((9, 7), (11, 5))]
    pages[0].save("a.tif", save_all=True, append_images=pages[1:])
    assert run(["denoise", "a.tif", "-o", "a.png", "--json", *dn]) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert (record["pictures"], record["width"], record["height"]) == (1, 9, 7)
    note = "PNG holds pictures of one size, so it is the first of 2"
    assert record["notes"] == [note] and one_line(err) == f"zenith-ae: a.tif: {note}"
    assert pixel("a.png") == (60, 70, 80)


def test_a_model_for_another_task_is_told_of(here, capsys):
    picture("a.png", size=(32, 32))
    for command, model, told in (
        ("denoise", "zenith-deblur", "zenith-deblur has learned to sharpen"),
        ("deblur", "zenith-denoise-fast", "zenith-denoise-fast has learned to remove noise"),
        ("deblur", "zenith-deblur", ""),
    ):
        assert run([command, "a.png", "--model", model, "-o", "b.png", "--overwrite"]) == 0
        assert told in capsys.readouterr().err if told else capsys.readouterr().err == ""


def test_format_quality_and_strip(here, dn):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    Image.fromarray(noise).save("a.png", exif=exif, dpi=(300, 300))
    assert run(["denoise", "a.png", "--format", "jpg", *dn]) == 0
    assert (
        run(["denoise", "a.png", "--format", ".JPG", "--quality", "40", "--strip", "-o", "small/", *dn]) == 0
    )
    with Image.open("a.denoised.jpg") as large, Image.open("small/a.denoised.jpg") as small:
        assert large.format == small.format == "JPEG"
        assert large.getexif()[0x010F] == "a camera"
        assert not small.getexif()
        assert "dpi" not in small.info or small.info["dpi"] != (300, 300)
    assert os.path.getsize("small/a.denoised.jpg") < 0.4 * os.path.getsize("a.denoised.jpg")
    assert run(["denoise", "a.png", "--format", "gif", *dn]) == 2


def test_many_files_are_reported_in_order_whatever_stage_fails(here, dn, capsys, monkeypatch):
    for i in range(6):
        picture(f"in/{i}.png", value=10 * i)
    Path("in/2.png").write_bytes(b"no picture")
    Path("out").mkdir()
    from zenith_ae import image_writing

    write = image_writing.write_picture

    def full(picture, path, quality=None, overwrite=True):
        if "4." in str(path):
            raise OutputError(f"{path}: cannot write: No space left on device")
        return write(picture, path, quality)

    monkeypatch.setattr(image_writing, "write_picture", full)
    assert run(["denoise", "in", "-o", "out", *dn, "--json"]) == 1
    out, err = capsys.readouterr()
    records = [json.loads(line) for line in out.splitlines()]
    assert [r["input"] for r in records] == [f"in/{i}.png" for i in range(6)]
    assert [r["status"] for r in records] == ["done", "done", "failed", "done", "failed", "done"]
    assert err.count("\n") == 2
    assert pixel("out/5.denoised.png") == (60, 60, 60)


def test_an_interrupted_batch_finishes_the_file_in_hand(here, dn, capsys, monkeypatch):
    for i in range(5):
        picture(f"in/{i}.png")
    from zenith_ae import image_writing
    from zenith_ae.pipelines import Denoiser

    write, changes, calls = image_writing.write_picture, Denoiser.changes, []

    def slow(picture, path, quality=None, overwrite=True):
        time.sleep(0.2)
        return write(picture, path, quality)

    def interrupted(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return changes(self, *arguments, **options)

    monkeypatch.setattr(image_writing, "write_picture", slow)
    monkeypatch.setattr(Denoiser, "changes", interrupted)
    assert run(["denoise", "in", "-o", "out", *dn]) == 130
    assert tree("out") == ["0.denoised.png", "1.denoised.png"]
    assert capsys.readouterr().out.count(" -> ") == 2  # the one in hand is told of too
    for name in tree("out"):
        assert pixel(Path("out", name)) == (110, 110, 110)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to a thread on this system")
def test_an_interrupt_while_the_last_file_is_written_leaves_none_untold(here, dn, capsys, monkeypatch):
    for i in range(3):
        picture(f"in/{i}.png")
    from zenith_ae import image_writing

    write = image_writing.write_picture

    def slow(picture, path, quality=None, overwrite=True):
        if "2.denoised" in str(path):
            time.sleep(0.3)  # by now the command waits
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.3)
        return write(picture, path, quality)

    monkeypatch.setattr(image_writing, "write_picture", slow)
    assert run(["denoise", "in", "-o", "out", *dn]) == 130
    assert tree("out") == ["0.denoised.png", "1.denoised.png", "2.denoised.png"]
    assert capsys.readouterr().out.count(" -> ") == 3


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(here, dn):
    picture("a[1].png")
    picture("a1.png")
    assert run(["denoise", "a[1].png", *dn]) == 0
    assert tree(here) == ["a1.png", "a[1].denoised.png", "a[1].png"]


def test_two_inputs_never_share_an_output(here, dn, capsys):
    picture("x/a.png", value=1)
    picture("y/a.png", value=2)
    assert run(["denoise", "x/a.png", "y/a.png", "-o", "out", *dn]) == 1
    assert pixel("out/a.denoised.png") == (11, 11, 11)
    assert "y/a.png: its output out/a.denoised.png is also that of x/a.png" in one_line(
        capsys.readouterr().err
    )


def test_an_input_that_is_named_twice_is_done_once(here, dn, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", "*.png", "./a.png", "-o", "out", *dn]) == 0
    assert capsys.readouterr().out == "a.png -> out/a.denoised.png  (sigma 10)\n"


def test_a_name_that_two_may_have_is_that_of_the_one_whose_format_stays(here, dn, capsys):
    picture("in/p.gif")
    picture("in/p.png")
    assert run(["denoise", "in", "-o", "out", *dn]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("in/p.png -> out/p.denoised.png") and out.count(" -> ") == 1
    assert "in/p.gif: its output out/p.denoised.png is also that of in/p.png" in err


def test_an_input_that_is_refused_owns_no_output(here, dn, capsys):
    picture("x/a.png")
    picture("y/a.png")
    assert run(["denoise", "x/a.png", "y/a.png", "x/a.png", "-o", "out", *dn]) == 1
    out, err = capsys.readouterr()
    assert (out.count(" -> "), err.count("is also that of")) == (1, 1)


def test_no_output_replaces_another_input(here, dn, capsys):
    picture("x/a.png", value=1)
    picture("y/a.denoised.png", value=2)
    command = ["denoise", "x/a.png", "y/a.denoised.png", "-o", "y", *dn]
    assert run([*command, "--overwrite"]) == 1
    assert "x/a.png: its output y/a.denoised.png is also an input" in one_line(capsys.readouterr().err)
    assert pixel("y/a.denoised.png") == (2, 2, 2)
    assert run(command) == 0  # what is there stays


def test_an_alpha_channel_that_hides_nothing_is_no_reason_against_a_jpeg(here, dn, capsys):
    for mode, opaque, see_through in (("RGBA", (1, 2, 3, 255), (1, 2, 3, 254)), ("LA", (1, 255), (1, 254))):
        image = Image.new(mode, (9, 7), opaque)
        image.save("a.png")
        assert run(["denoise", "a.png", "-o", "a.jpg", "--overwrite", *dn]) == 0
        assert "JPEG has no alpha channel; that of the picture hides nothing" in capsys.readouterr().err
        assert Image.open("a.jpg").mode == mode[:-1]
        image.putpixel((3, 4), see_through)
        image.save("a.png")
        assert run(["denoise", "a.png", "-o", "a.jpg", "--overwrite", *dn]) == 1
        assert "JPEG cannot hold transparency" in one_line(capsys.readouterr().err)


def test_standard_input_is_not_replaced_by_its_own_output(here, dn, capsys, monkeypatch):
    picture("a.png")
    before = Path("a.png").read_bytes()
    with open("a.png") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert run(["denoise", "-", "-o", "a.png", "--overwrite", *dn]) == 1
    assert "would be replaced by its own output" in one_line(capsys.readouterr().err)
    assert Path("a.png").read_bytes() == before


def test_links_hide_neither_a_twice_named_input_nor_an_own_output(here, dn, capsys):
    picture("real/a.png")
    os.symlink("real", "link")
    assert run(["denoise", "real/a.png", "link/a.png", "-o", "out", *dn]) == 0
    assert capsys.readouterr().out.count(" -> ") == 1
    os.symlink("real/a.png", "b.png")
    assert run(["denoise", "link/a.png", "-o", "b.png", "--overwrite", *dn]) == 1
    assert "would be replaced by its own output" in one_line(capsys.readouterr().err)
    assert pixel("real/a.png") == (100, 100, 100)


def test_names_that_macos_does_not_tell_apart_are_one_file(here, dn, capsys, monkeypatch):
    for name in ("a/PHOTO.png", "b/photo.png", "Ä.png", "x.png"):
        picture(name)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run(["denoise", "a/PHOTO.png", "b/photo.png", "-o", "out", *dn]) == 1
    assert "is also that of a/PHOTO.png" in capsys.readouterr().err
    assert tree("out") == ["PHOTO.denoised.png"]
    for source, output in (("x.png", "X.png"), ("Ä.png", "A\u0308.png")):
        assert run(["denoise", source, "-o", output, "--overwrite", *dn]) == 1
        assert "would be replaced by its own output" in one_line(capsys.readouterr().err)
        assert not Path(output).exists()


def test_names_are_one_in_folders_where_letters_of_both_cases_are(here, dn, capsys):
    """As on Windows' drives in WSL and on memory cards; here a link is a name's other spelling."""
    for name in ("a/PHOTO.png", "b/photo.png"):
        picture(name)
    if inputs._folds("."):
        pytest.skip("all folders here are so")
    both = ["denoise", "--dry-run", "a/PHOTO.png", "b/photo.png", *dn, "-o"]
    assert run([*both, "apart"]) == 0
    Path("card").mkdir()
    try:
        for name in ("Straße.png", "sTRAßE.PNG"):
            os.link("a/PHOTO.png", f"card/{name}")
    except OSError:
        pytest.skip("no links here")
    for folder in ("card", "card/new"):  # the second is still to be made
        capsys.readouterr()
        assert run([*both, folder]) == 1
        assert "is also that of a/PHOTO.png" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the working folder cannot go")
def test_streams_and_whole_paths_need_no_working_folder(here, dn, monkeypatch, capsys):
    data = Path(picture("a.png")).read_bytes()
    Path("gone").mkdir()
    os.chdir("gone")
    os.rmdir(here / "gone")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False))
    assert not inputs._folds("")
    assert [job.error for job in inputs.plan(["-"], "-", inputs.Kind(frozenset(), str, frozenset()))] == [
        None
    ]
    assert run(["denoise", str(here / "a.png"), *dn, "-o", str(here / "b.png")]) == 0
    capsys.readouterr()
    for paths in (["."], [str(here / "a.png"), "-o", "c.png"]):
        assert run(["denoise", *paths, *dn]) == 1
        assert "the working folder is gone" in one_line(capsys.readouterr().err)
    os.chdir(here)


@pytest.mark.skipif(sys.platform == "darwin", reason="which is played here")
def test_long_names_are_the_file_systems_business_on_macos(here, dn, capsys, monkeypatch):
    """It counts letters, up to 255, and says that it counts bytes."""
    picture("a.png")
    name = f"{'ä' * 130}.png"
    assert run(["denoise", "a.png", "-o", name, *dn]) == 1
    assert "this name is too long" in one_line(capsys.readouterr().err)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "pathconf", lambda *_: 255)
    inputs.make_folder(name)
    with pytest.raises(OutputError, match="this name is too long"):
        inputs.make_folder(f"{'n' * 252}.png")


def test_an_input_is_never_its_own_output(here, dn, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", "-o", "./a.png", "--overwrite", *dn]) == 1
    assert pixel("a.png") == (100, 100, 100)
    assert "own output" in one_line(capsys.readouterr().err)


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare, to mount a folder twice")
def test_an_original_is_not_replaced_through_a_folder_that_is_mounted_twice(here, dn):
    original = Path(picture("in/p.png")).read_bytes()
    Path("out").mkdir()
    mounted = ["unshare", "-rm", "sh", "-c", 'mount --bind in out && exec "$@"', "sh"]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    for arguments in (["in/p.png", "-o", "out/p.png"], ["in", "-o", "out/", "--tag", ""]):
        command = [sys.executable, "-m", "zenith_ae", "denoise", *arguments, "--overwrite", *dn]
        done = subprocess.run([*mounted, *command], capture_output=True, text=True)
        assert done.returncode == 1
        assert "would be replaced by its own output" in one_line(done.stderr)
        assert Path("in/p.png").read_bytes() == original


def test_an_original_of_another_spelling_is_not_replaced(here, dn, capsys, monkeypatch):
    """As on memory cards, where two spellings are one file."""
    original = Path(picture("p.png")).read_bytes()
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: stat("p.png" if path == "P.png" else path, **how))
    assert run(["denoise", "p.png", "-o", "P.png", "--overwrite", *dn]) == 1
    assert "would be replaced by its own output" in one_line(capsys.readouterr().err)
    assert Path("p.png").read_bytes() == original and not Path("P.png").exists()
    os.link("p.png", "q.png")  # of which each has a life of its own once one is replaced
    assert run(["denoise", "p.png", "-o", "q.png", "--overwrite", *dn]) == 0
    assert Path("p.png").read_bytes() == original and pixel("q.png") == (110, 110, 110)


def test_existing_outputs_are_skipped_unless_told(here, dn, capsys):
    picture("a.png")
    (here / "a.denoised.png").write_bytes(b"mine")
    assert run(["denoise", "a.png", *dn]) == 0
    assert (here / "a.denoised.png").read_bytes() == b"mine"
    assert "skipped" in capsys.readouterr().out
    assert run(["denoise", "a.png", "--overwrite", *dn]) == 0
    assert pixel("a.denoised.png") == (110, 110, 110)


def test_an_output_that_others_write_meanwhile_is_skipped_too(here, dn, capsys, monkeypatch):
    for name in ("a.png", "b.png", "c.png"):
        picture(name)
    from zenith_ae.pipelines import Denoiser

    changes = Denoiser.changes

    def slow(self, *arguments, **options):
        (here / "b.denoised.png").write_bytes(b"mine")
        return changes(self, *arguments, **options)

    monkeypatch.setattr(Denoiser, "changes", slow)
    assert run(["denoise", "a.png", "b.png", "c.png", "--json", *dn]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"] for line in lines] == ["done", "skipped", "done"]
    assert (here / "b.denoised.png").read_bytes() == b"mine"
    assert pixel("c.denoised.png") == (110, 110, 110)


@pytest.mark.parametrize("command", ["denoise", "encode"])
def test_what_appears_while_a_picture_is_computed_is_not_replaced(here, dn, ae, capsys, monkeypatch, command):
    picture("a.png")
    output = Path({"denoise": "a.denoised.png", "encode": "a.latent.safetensors"}[command])
    open_nameless = files._open_nameless

    def late(folder):
        output.write_bytes(b"mine")
        return open_nameless(folder)

    monkeypatch.setattr(files, "_open_nameless", late)
    model = dn if command == "denoise" else ae
    assert run([command, "a.png", "--json", *model]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "skipped"
    assert output.read_bytes() == b"mine"
    assert tree(".") == sorted([str(output), "a.png"])
    assert run([command, "a.png", "--overwrite", *model]) == 0
    assert output.read_bytes() != b"mine"


def test_an_output_that_cannot_be_is_told_before_any_work(here, dn, capsys, monkeypatch):
    from zenith_ae.pipelines import Denoiser

    monkeypatch.setattr(Denoiser, "changes", None)
    picture("a.png")
    Path("dangling.png").symlink_to("nowhere/t.png")
    for output, said in (("dangling.png", "whose folder is not there"), (f"{'n' * 253}.png", "too long")):
        assert run(["denoise", "a.png", "-o", output, *dn]) == 1
        told = one_line(capsys.readouterr().err)
        assert told.startswith(f"zenith-ae: a.png: {output}: ") and said in told
    assert tree(".") == ["a.png"]


# ---- standard input and output


@pytest.fixture
def pipes(monkeypatch):
    """Standard input from given bytes; standard output as bytes."""

    def connect(data):
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
        return out

    return connect


def test_pipes_keep_the_format_and_stdout_clean(here, dn, pipes, capsys):
    for name, format in (("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.webp", "WEBP")):
        out = pipes(Path(picture(name)).read_bytes())
        assert run(["denoise", "-", *dn]) == 0
        image = Image.open(io.BytesIO(out.getvalue()))
        assert image.format == format
        assert abs(image.getpixel((0, 0))[1] - 110) <= 2


def test_what_is_written_to_a_pipe_replaces_nothing(here, dn, pipes):
    data = Path(picture("a.png")).read_bytes()
    out = pipes(data)
    assert run(["denoise", "-", "--overwrite", *dn]) == 0
    assert Image.open(io.BytesIO(out.getvalue())).format == "PNG"


def test_latents_go_through_pipes(here, ae, pipes):
    out = pipes(Path(picture("a.png", (17, 5))).read_bytes())
    assert run(["encode", "-", *ae]) == 0
    out = pipes(out.getvalue())
    assert run(["decode", "-", *ae]) == 0
    assert Image.open(io.BytesIO(out.getvalue())).size == (17, 5)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [["models"], ["--version"], ["info", "a.png"]])
def test_a_full_standard_output_is_one_line_and_exit_code_1(here, arguments):
    picture("a.png")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "zenith_ae", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "standard output: No space left on device" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_log_does_not_stop_the_work(here, dn):
    Path(picture("in/a.png")).write_bytes(b"no picture")
    picture("in/b.png")
    for given, code in (("in", 1), ("gone.png", 1), ("--nonsense", 2)):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "zenith_ae", "denoise", given, "-o", "out/", *dn]
            done = subprocess.run(command, stderr=full, stdout=subprocess.DEVNULL, check=False)
        assert done.returncode == code
    assert tree("out") == ["b.denoised.png"]


def test_stdin_may_go_to_a_file_and_a_file_to_stdout(here, dn, pipes):
    out = pipes(Path(picture("a.png")).read_bytes())
    assert run(["denoise", "-", "-o", "b.png", *dn]) == 0
    assert pixel("b.png") == (110, 110, 110)
    out = pipes(b"")
    assert run(["denoise", "a.png", "-o", "-", *dn]) == 0
    assert out.getvalue() == Path("b.png").read_bytes()


def test_garbage_on_stdin_is_one_line(here, dn, pipes, capsys):
    pipes(b"not a picture")
    assert run(["denoise", "-", *dn]) == 1
    assert one_line(capsys.readouterr().err).startswith("zenith-ae: <stdin>: not a picture")


# ---- pictures


@pytest.mark.parametrize(
    ("mode", "back"), [("L", "L"), ("LA", "LA"), ("RGBA", "RGBA"), ("P", "RGB"), ("1", "L")]
)
def test_modes_are_kept_in_files(here, dn, mode, back):
    image = Image.new("RGBA" if "A" in mode else "RGB", (5, 4), (100, 100, 100, 7)[: 4 if "A" in mode else 3])
    image = image.convert(mode)
    image.save("a.png")
    assert run(["denoise", "a.png", *dn]) == 0
    with Image.open("a.denoised.png") as clean:
        assert clean.mode == back
        if mode.endswith("A"):
            assert clean.getchannel("A").getextrema() == (7, 7)


def test_sixteen_bit_grey_stays_and_losses_are_told(here, dn, capsys):
    Image.fromarray(np.full((4, 4), 10000, np.uint16)).save("a.png")
    assert run(["denoise", "a.png", *dn]) == 0
    assert pixel("a.denoised.png") == 10000 + 10 * 257
    assert run(["denoise", "a.png", "-o", "a.jpg", *dn]) == 0
    assert "16-bit grey" in capsys.readouterr().err


def test_strength_and_automatic_level(here, sigma_denoiser, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", "--model", str(sigma_denoiser), "--strength", "0.5"]) == 0
    assert pixel("a.denoised.png") == (105, 105, 105)  # the model estimates 10
    assert "(sigma 10)" in capsys.readouterr().out


@pytest.mark.parametrize("size", [(1, 1), (5, 17), (8, 8), (33, 9)])
@pytest.mark.parametrize("dtype", ["fp16", "fp32", "uint8"])
def test_decode_restores_exactly_the_size(here, ae, size, dtype):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save("a.png")
    assert run(["encode", "a.png", "--dtype", dtype, *ae]) == 0
    assert run(["decode", "a.latent.safetensors", *ae]) == 0
    assert tree(here) == ["a.decoded.png", "a.latent.safetensors", "a.png"]
    again = np.asarray(Image.open("a.decoded.png"))
    assert again.shape == pixels.shape
    assert np.abs(again.astype(int) - pixels).max() <= (0 if dtype == "fp32" else 1)


def test_grey_comes_back_grey(here, ae):
    picture("a.png", mode="LA")
    assert run(["encode", "a.png", *ae]) == 0
    assert read_latents("a.latent.safetensors").mode == "LA"
    assert run(["decode", "a.latent.safetensors", "-o", "b.png", *ae]) == 0
    with Image.open("b.png") as image:
        assert (image.mode, image.getpixel((0, 0))) == ("L", 100)


def test_forged_latents_are_one_line(here, ae, capsys):
    picture("a.png")
    assert run(["encode", "a.png", *ae]) == 0
    with safe_open("a.latent.safetensors", "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() | {"height": str(10**7), "width": str(10**13)}
    save_file(tensors, "size.latent.safetensors", metadata)
    capsys.readouterr()
    assert run(["decode", "size.latent.safetensors", *ae]) == 1
    assert "cannot be a picture of" in one_line(capsys.readouterr().err)


def test_latents_that_name_a_denoiser_are_one_line(here, ae, sigma_denoiser, capsys, monkeypatch):
    picture("a.png")
    assert run(["encode", "a.png", *ae]) == 0
    file = read_latents("a.latent.safetensors")
    write_latents("b.latent.safetensors", replace(file, model="adds-sigma"))
    monkeypatch.setattr(weights_module, "available_weights", lambda: {"adds-sigma": sigma_denoiser})
    capsys.readouterr()
    assert run(["decode", "b.latent.safetensors"]) == 1
    line = one_line(capsys.readouterr().err)
    assert "is of kind denoiser" in line and "unexpected" not in line


def test_roundtrip_prints_how_close_it_is(here, ae, capsys):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (24, 16, 3), np.uint8)).save("a.png")
    assert run(["roundtrip", "a.png", "--json", "--dtype", "fp32", *ae]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["psnr"], record["ssim"], record["bits_per_pixel"]) == (999.0, 1.0, 96.0)
    assert run(["roundtrip", "a.png", "-o", "b.png", *ae]) == 0
    assert "dB  SSIM 1.0000  48 bits per pixel" in capsys.readouterr().out


# ---- failures


def test_one_bad_file_does_not_stop_the_rest(here, dn, capsys):
    picture("in/a.png")
    (here / "in/b.png").write_bytes(Path("in/a.png").read_bytes()[:48])
    picture("in/c.png")
    assert run(["denoise", "in", "none.png", "-o", "out", *dn]) == 1
    assert tree(here / "out") == ["a.denoised.png", "c.denoised.png"]
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    bad, missing = err.splitlines()
    assert bad.startswith("zenith-ae: in/b.png: damaged or truncated picture")
    assert missing == "zenith-ae: none.png: no such file; check the path"


def test_a_folder_that_takes_no_files_is_found_before_the_work(here, dn, capsys, monkeypatch):
    picture("a.png")
    Path("out").mkdir()
    access, closed = os.access, os.path.realpath("out")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != closed and access(path, mode))
    monkeypatch.setattr(zenith_ae.Denoiser, "changes", lambda *_, **__: pytest.fail("all for nothing"))
    assert run(["denoise", "a.png", "-o", "out", *dn]) == 1
    assert "out/a.denoised.png: cannot write: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["denoise", "none.png"], "none.png: no such file"),
        (["denoise", "none*.png"], "matches no file"),
        (["denoise", "empty"], "no files to work on"),
        (["denoise", "done"], "this folder has only results of this program (1); name those to take"),
        (["denoise", "text.png"], "text.png: not a picture"),
        (["decode", "text.png"], "text.png: not a latent file"),
        (["decode", "none.latent.safetensors"], "no such file"),
        (["denoise", "a.png", "-o", "text.png/b.png"], "cannot make the folder: text.png is a file"),
        (["denoise", "a.png", "-o", "lost/b.png"], "lost is a link to nowhere, which is not there"),
        (["denoise", "a.png", "-o", "d/" * 2000 + "b.png"], "cannot make the folder"),
        (["denoise", "rgba.png", "-o", "a.jpg"], "transparency"),
        (["info", "text.png"], "not a picture"),
        (["info", "none.safetensors"], "none.safetensors"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(here, sigma_denoiser, capsys, arguments, words):
    picture("a.png")
    picture("rgba.png", mode="RGBA")
    (here / "text.png").write_text("this is text")
    (here / "lost").symlink_to("nowhere")
    (here / "empty").mkdir()
    picture("done/a.denoised.png")
    before = tree(here)
    if arguments[0] == "denoise":
        arguments = [*arguments, "--model", str(sigma_denoiser)]
    assert run(arguments) == 1
    assert words in one_line(capsys.readouterr().err)
    assert tree(here) == before


@pytest.mark.parametrize("model", ["none", "none.safetensors", "a.png"])
def test_wrong_weights_are_one_line(here, capsys, model):
    picture("a.png")
    assert run(["denoise", "a.png", "--model", model]) == 1
    assert model in one_line(capsys.readouterr().err)
    assert tree(here) == ["a.png"]


def test_empty_arguments_are_one_line(here, dn, capsys):
    picture("a.png")
    for arguments, words in (
        (["", *dn], "an input is empty"),
        (["a.png", "--model", ""], "the name of the model is empty"),
    ):
        assert run(["denoise", *arguments]) == 1
        assert one_line(capsys.readouterr().err).startswith(f"zenith-ae: {words}")


def test_full_disk_loses_nothing(here, dn, capsys, monkeypatch):
    picture("a.png")
    (here / "a.denoised.png").write_bytes(b"old")

    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files._Writer, "write", full)
    assert run(["denoise", "a.png", "--overwrite", *dn]) == 1
    assert "No space left on device; nothing was replaced" in one_line(capsys.readouterr().err)
    assert (here / "a.denoised.png").read_bytes() == b"old"
    assert tree(here) == ["a.denoised.png", "a.png"]


def test_latents_of_another_model_are_refused_unless_forced(here, ae, capsys, tmp_path):
    config = build("zenith-taesd-nano", 192, "another")
    save_weights(tmp_path / "another.safetensors", config, random_weights(config).tensors, {})
    picture("a.png")
    assert run(["encode", "a.png", *ae]) == 0
    capsys.readouterr()
    arguments = ["decode", "a.latent.safetensors", "--model", "another.safetensors"]
    assert run(arguments) == 1
    assert "made by identity" in one_line(capsys.readouterr().err)
    assert run([*arguments, "--force"]) == 0
    assert Image.open("a.decoded.png").size == (9, 6)


def test_any_model_of_the_same_latent_space_decodes(here, capsys):
    for name, teacher in (("one", "t"), ("two", "t"), ("three", "u")):
        config = build("zenith-taesd-nano", 4, name)
        metadata = {"teacher_hash": teacher * 16}
        save_weights(Path(f"{name}.safetensors"), config, random_weights(config).tensors, metadata)
    picture("a.png")
    assert run(["encode", "a.png", "--model", "one.safetensors"]) == 0
    arguments = ["decode", "a.latent.safetensors", "--model"]
    assert run([*arguments, "two.safetensors"]) == 0
    capsys.readouterr()
    assert run([*arguments, "three.safetensors", "--overwrite"]) == 1
    assert "made by one" in one_line(capsys.readouterr().err)


def test_latents_of_a_model_that_is_not_shipped_ask_for_it(here, ae, capsys):
    picture("a.png")
    assert run(["encode", "a.png", *ae]) == 0
    capsys.readouterr()
    assert run(["decode", "a.latent.safetensors"]) == 1
    assert "made by identity (" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["nonsense"], ["denoise"], ["denoise", "a.png", "--sigma", "300"],
        ["denoise", "a.png", "--sigma", "x"],
        ["denoise", "a.png", "--strength", "2"], ["denoise", "a.png", "--tile", "-3"],
        ["denoise", "a.png", "--tile", "9" * 5000], ["denoise", "a.png", "--tile", "31"],
        ["denoise", "a.png", "--threads", "0"], ["denoise", "a.png", "-o", "-", "--json"],
        ["denoise", "-", "--json"], ["denoise", "-", "-"], ["denoise", "a.png", "b.png", "-o", "-"],
        ["denoise", "a.png", "b.png", "-o", "a.png"], ["encode", "a.png", "--dtype", "fp8"],
        ["encode", "a.png", "--model", "DENOISER"],
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2(here, sigma_denoiser, capsys, pipes, arguments):
    picture("a.png")
    picture("b.png")
    pipes(b"")
    assert run([str(sigma_denoiser) if a == "DENOISER" else a for a in arguments]) == 2
    err = capsys.readouterr().err
    line = r"zenith-ae: .+ \(see zenith-ae( \w+)? --help\)\n"
    assert re.fullmatch(line, err) if arguments else "Usage: zenith-ae [OPTIONS] COMMAND" in err
    assert tree(here) == ["a.png", "b.png"]


def test_terminals_are_never_sent_or_asked_for_pictures(here, dn, capsys, monkeypatch):
    picture("a.png")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert run(["denoise", "-", "-o", "b.png", *dn]) == 2
    assert run(["info", "-"]) == 2
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["denoise", "a.png", "-o", "-", *dn]) == 2


def test_unexpected_errors_are_one_line_too(here, dn, capsys, monkeypatch):
    from zenith_ae import images

    def broken(*arguments):
        raise RuntimeError("first\nsecond")

    picture("a.png")
    monkeypatch.setattr(images, "from_pil", broken)
    monkeypatch.setattr("zenith_ae.pipelines.Denoiser.changes", broken)
    assert run(["denoise", "a.png", *dn]) == 1
    one_line(capsys.readouterr().err)


def test_interrupt_is_130_and_leaves_no_partial_file(here, dn):
    """A real SIGINT, sent while the output is half written."""
    picture("a.png", (64, 64))
    code = (
        "import os, signal, sys\n"
        "from PIL import Image\n"
        "def save(self, file, *args, **options):\n"
        "    file.write(b'half'); file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    while True: signal.pause()\n"
        "Image.Image.save = save\n"
        "from zenith_ae.app.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "denoise", "a.png", *dn], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() == "zenith-ae: interrupted"
    assert tree(here) == ["a.png"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_termination_leaves_no_partial_file(here, dn, monkeypatch, number, code):
    def save(self, file, *args, **options):
        file.write(b"half")
        os.kill(os.getpid(), number)

    picture("a.png")
    monkeypatch.setattr(Image.Image, "save", save)
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(SystemExit) as caught:
            run(["denoise", "a.png", *dn])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert caught.value.code == code
    assert tree(here) == ["a.png"]


def test_a_terminal_that_goes_does_not_end_what_nohup_began(here, dn):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        picture("a.png")
        assert run(["denoise", "a.png", *dn, "--quiet"]) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_progress_stays_within_a_row_of_the_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys, "stderr", written := Terminal())
    reporter = batch.Reporter()
    for text, shown in (
        ("x" * 50, "x" * 19),
        ("写真の中", "写真の中"),
        ("写" * 12, "写" * 9),
        ("é" * 30, "é" * 19),
    ):
        reporter.progress(unicodedata.normalize("NFD", text))
        line = unicodedata.normalize("NFC", written.getvalue().rpartition("\x1b[K")[2])
        assert line == shown
    reporter.progress("[1/2] denoising a.png")
    for share in (0, 0.001, 1):  # soon over, or over
        reporter.advance(share)
    assert written.getvalue().endswith("\x1b[K[1/2] denoising a.p")
    reporter.advance(0.42)
    reporter.advance(0.4212)
    assert written.getvalue().count("42%") == 1
    assert written.getvalue().endswith("\x1b[K 42%  [1/2] denoisi")
    reporter.note("told above it")
    assert written.getvalue().endswith("\r\x1b[Kzenith-ae: told above it\n\r\x1b[K 42%  [1/2] denoisi")
    reporter.progress("")
    reporter.note("told after all")
    assert written.getvalue().endswith("\r\x1b[Kzenith-ae: told after all\n")


def test_what_is_written_is_told_while_the_next_is_computed(here, capsys):
    for name in "ab":
        Path(name).touch()
    told, asked = threading.Event(), []

    class Telling(batch.Reporter):
        def result(self, *args, **options):
            super().result(*args, **options)
            told.set()

    def compute(job, content):
        asked.append(job.source)
        assert job.source == "a" or told.wait(20)
        return content, {"sentence": "computed"}

    work = batch.Work(lambda job: job.source, compute, lambda job, content, overwrite: ["written"], "trying")
    jobs = [inputs.Job("a", "a.out"), inputs.Job("b", "b.out"), inputs.Job("c", error=ImageError("c: none"))]
    failures = batch.run_jobs(jobs, work, Telling())
    assert asked == ["a", "b"] and list(failures) == jobs[2:]
    printed = capsys.readouterr()
    assert printed.out == "a -> a.out  computed\nb -> b.out  computed\n"
    assert printed.err == "zenith-ae: a: written\nzenith-ae: b: written\nzenith-ae: c: none\n"


# ---- what is printed


def test_json_lines_have_one_schema(here, dn, capsys):
    picture("a.png")
    picture("b.png")
    picture("b.denoised.png")
    assert run(["denoise", "a.png", "b.png", "none.png", "--json", *dn]) == 1
    done, skipped, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert {k: v for k, v in done.items() if k not in ("seconds", "weights")} == {
        "input": "a.png", "output": "a.denoised.png", "status": "done", "model": "adds-sigma",
        "width": 9, "height": 6, "mode": "RGB", "bits": 8, "sigma": 10.0, "pictures": 1, "notes": [],
    }  # fmt: skip
    assert done["seconds"] >= 0 and len(done["weights"]) == 16
    assert skipped == {"input": "b.png", "output": "b.denoised.png", "status": "skipped"}
    assert (failed["status"], failed["input"]) == ("failed", "none.png")
    assert "no such file" in failed["error"]


def test_quiet_prints_errors_only(here, dn, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", "none.png", "-q", *dn]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    one_line(err)


def test_verbose_tells_the_model_and_the_level(here, dn, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", "-v", "--threads", "2", *dn]) == 0
    assert "adds-sigma" in capsys.readouterr().err


def test_progress_is_for_terminals_only(here, dn, capsys, monkeypatch):
    picture("a.png")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run(["denoise", "a.png", *dn]) == 0
    assert "[1/1] denoising a.png" in capsys.readouterr().err


@pytest.mark.parametrize("columns, room", [(0, 80), (1, 0), (21, 20)])
def test_progress_has_the_row_of_its_terminal_or_what_is_usual(columns, room, monkeypatch):
    monkeypatch.setenv("COLUMNS", "81")
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(fileno=lambda: 2))
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    assert batch._in_one_row("x" * 100) == "x" * room


@pytest.mark.parametrize(
    "command", ["denoise", "encode", "decode", "roundtrip", "models", "info", "doctor", "bench"]
)
def test_every_command_explains_itself_with_examples(capsys, command):
    assert run([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: zenith-ae {command}" in out and "Example" in out and f"  zenith-ae {command}" in out


def test_help_lists_training_without_importing_torch_or_numpy():
    code = (
        "import sys\nfrom zenith_ae.app.cli import run\nassert run(['--help']) == 0\n"
        "print([m for m in ('torch', 'numpy', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *help_, modules = done.stdout.splitlines()
    for command in (
        "train",
        "evaluate",
        "denoise",
        "encode",
        "decode",
        "roundtrip",
        "models",
        "info",
        "doctor",
    ):
        assert any(line.strip().startswith(command + " ") for line in help_), command
    assert modules == "[]"


def test_the_command_runs_without_torch(here, dn):
    picture("a.png")
    code = "import sys\nsys.modules['torch'] = None\nfrom zenith_ae.app.cli import main\nmain(sys.argv[1:])\n"
    done = subprocess.run(
        [sys.executable, "-c", code, "denoise", "a.png", *dn], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert pixel("a.denoised.png") == (110, 110, 110)


# ---- models, info, doctor


def test_models_lists_weights_and_architectures(capsys):
    assert run(["models", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_name = {row["name"]: row for row in rows if not row["shipped"]}
    assert by_name["taesd"]["parameters"] == 2_445_063
    assert by_name["taesd"]["gmacs_512"] == {"encoder": 61.16, "decoder": 70.68}
    assert run(["models"]) == 0
    assert "zenith-denoise" in capsys.readouterr().out


def test_info_knows_pictures_latents_and_weights(here, ae, capsys, identity_autoencoder):
    picture("a.png", (17, 5), "LA")
    assert run(["encode", "a.png", *ae]) == 0
    capsys.readouterr()
    facts = []
    for file in ("a.png", "a.latent.safetensors", str(identity_autoencoder)):
        assert run(["info", file, "--json"]) == 0
        facts.append(json.loads(capsys.readouterr().out))
        assert run(["info", file]) == 0
        assert str(facts[-1]["kind"]) in capsys.readouterr().out
    image, latents, weights = facts
    assert (image["format"], image["width"], image["height"], image["mode"]) == ("PNG", 17, 5, "LA")
    assert (latents["model"], latents["shape"], latents["width"]) == ("identity", [1, 192, 1, 3], 17)
    assert latents["weights"] == weights["weights"]
    assert weights["latent_channels"] == 192


def test_info_tells_all_metadata_and_numbers_of_any_size(here, capsys):
    from zenith_ae.latents import LatentFile, write_latents

    Image.new("RGB", (9, 6)).save("a.jpg", comment=b"not for all", dpi=(72, 72))
    write_latents("a.latent.safetensors", LatentFile(np.full((1, 4, 1, 2), 3e38), "m", "", 8, 16), "fp32")
    assert run(["info", "a.jpg", "a.latent.safetensors", "--json"]) == 0
    out, err = capsys.readouterr()
    picture_facts, latent_facts = map(json.loads, out.splitlines())
    assert picture_facts["metadata"] == ["comment", "dpi"]
    assert (latent_facts["mean"], latent_facts["deviation"]) == (pytest.approx(3e38), 0)
    assert err == ""


def test_info_of_several_says_what_can_be_said(here, capsys, identity_autoencoder):
    picture("a.png")
    assert run(["info", "a.png", str(identity_autoencoder)]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert "a.png" in first and "identity" in second
    Path("text.png").write_text("no picture")
    assert run(["info", "text.png", "a.png", "none.png", "a.png", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["file"] for line in out.splitlines()] == ["a.png", "a.png"]
    assert [line.split(": ")[1] for line in err.splitlines()] == ["text.png", "none.png"]


def test_doctor_passes_here_and_tells_levels_and_threads(capsys):
    code = run(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    checks = {check["what"]: check for check in report["checks"]}
    assert [c for c in report["checks"] if not c["ok"] and not c["what"].startswith("model")] == []
    assert code == (0 if report["passed"] else 1)
    assert report["levels available"][0] == "generic"
    assert "threads" in checks
    for level in report["levels available"]:
        mine, best = [what for what in checks if what.startswith(f"{level}: ")], best_dtype(level)
        assert len(mine) == 15 * (1 if best == "float32" else 2)
        assert sum(f" in {best}" in what for what in mine) == (0 if best == "float32" else 15)
    assert report["precision"] == best_dtype()


def test_doctor_notices_a_wrong_result(capsys, monkeypatch):
    from zenith_ae import selftest

    monkeypatch.setattr(selftest, "reference", lambda layers, params, x: np.full((64, 64, 1), 3.0))
    assert run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  generic: " in out and out.rstrip().splitlines()[-1].startswith("FAIL: ")


class Piecemeal(io.RawIOBase):
    """Standard output as PYTHONUNBUFFERED makes it: a write takes what there is room for."""

    def __init__(self, room, busy=False):
        self.taken, self.room, self.busy = b"", room, busy

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.busy:
            return None  # it is not to be waited for
        part = bytes(data[: min(1000, self.room)])
        self.taken, self.room = self.taken + part, self.room - len(part)
        return len(part)


def test_a_result_is_written_whole_to_standard_output_or_is_a_failure(here, dn, capsys, monkeypatch):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)).save("a.png")
    for room, busy, code in ((2**20, False, 0), (3500, False, 1), (2**20, True, 1)):
        pipe = Piecemeal(room, busy)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", SimpleNamespace(buffer=pipe, name="<stdout>", isatty=lambda: False))
            assert run(["denoise", "a.png", *dn, "-o", "-"]) == code
        if code:
            reason = "Resource temporarily unavailable" if busy else "No space left on device"
            assert f"<stdout>: cannot write: {reason}" in capsys.readouterr().err
        else:
            with Image.open(io.BytesIO(pipe.taken)) as image:
                assert image.convert("RGB").size == (50, 40)


def test_an_interrupt_while_the_program_loads_is_one_line(capsys, monkeypatch):
    class Loading:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "zenith_ae.app.cli", Loading())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "zenith-ae: interrupted\n"


# ---- watch, completion, convert


def watch_for(looks, monkeypatch, events=None):
    """End ``watch`` after so many looks, without pauses; at some of them something happens, {look: what}.

    Returns the list of pauses so far, one for each look.
    """
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        (events or {}).get(len(pauses), lambda: None)()
        if len(pauses) == looks:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    return pauses


def test_watch_takes_what_appears_once_it_is_complete(here, dn, capsys, monkeypatch):
    picture("in/a.png")
    Path("in/broken.png").write_bytes(b"half a pic")
    looks = []

    def sleep(seconds):
        assert seconds == 0.5
        looks.append(tree("out") if Path("out").exists() else [])
        if len(looks) == 2:
            picture("in/sub/b.png", value=50)
        if len(looks) == 5:
            picture("in/broken.png", value=20)  # repaired
        if len(looks) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert run(["watch", "in", "-o", "out", "--interval", "0.5", *dn]) == 130
    assert looks[0] == []  # seen once: may still be growing
    assert looks[1] == ["a.denoised.png"]
    assert looks[3] == looks[4] == ["a.denoised.png", "sub/b.denoised.png"]
    assert looks[6] == ["a.denoised.png", "broken.denoised.png", "sub/b.denoised.png"]
    out, err = capsys.readouterr()
    assert out.count(" -> ") == 3
    assert err.count("broken.png: not a picture") == 1
    assert run(["watch", "in/a.png", *dn]) == 2


def test_watch_does_a_replaced_input_again_and_leaves_results_of_others_alone(here, dn, capsys, monkeypatch):
    """The copy of `a.png` had only stalled, and was complete by chance."""
    picture("in/a.png", size=(24, 16))
    picture("in/b.png")
    Path("out").mkdir()
    Path("out/b.denoised.png").write_bytes(b"of somebody else")
    looks = []

    def sleep(seconds):
        looks.append(Image.open("out/a.denoised.png").size if Path("out/a.denoised.png").exists() else None)
        if len(looks) == 3:
            picture("in/a.png", size=(40, 32))
            picture("in/b.png", size=(40, 32))
        if len(looks) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    assert looks[1] == looks[3] == (24, 16)
    assert looks[4] == looks[5] == (40, 32)
    assert Path("out/b.denoised.png").read_bytes() == b"of somebody else"
    assert capsys.readouterr().out.count("a.png -> ") == 2


def test_watch_leaves_a_result_that_was_worked_on_since(here, dn, capsys, monkeypatch):
    picture("in/a.png")

    def work_on_it():
        Path("out/a.denoised.png").write_bytes(b"retouched by hand")
        picture("in/a.png", size=(40, 32))

    watch_for(8, monkeypatch, {4: work_on_it})
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    assert Path("out/a.denoised.png").read_bytes() == b"retouched by hand"
    assert capsys.readouterr().out.count("a.png -> ") == 1


def test_watch_leaves_a_result_that_is_worked_on_when_its_turn_came(here, dn, capsys, monkeypatch):
    """With many inputs there are minutes between."""
    for name in ("a.png", "b.png"):
        picture(f"in/{name}")
    from zenith_ae.pipelines import Denoiser

    changes = Denoiser.changes

    def work_on_it(self, image, *arguments, **options):
        if 40 in image.shape:
            Path("out/b.denoised.png").write_bytes(b"retouched by hand")
        return changes(self, image, *arguments, **options)

    def replace_both():
        monkeypatch.setattr(Denoiser, "changes", work_on_it)
        for name, width in (("a.png", 40), ("b.png", 41)):
            picture(f"in/{name}", size=(width, 32))

    watch_for(8, monkeypatch, {4: replace_both})
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    assert Path("out/b.denoised.png").read_bytes() == b"retouched by hand"
    told = capsys.readouterr().out
    assert (told.count("a.png -> "), told.count("b.png -> "), told.count("b.png: skipped")) == (2, 1, 1)


def test_watch_leaves_what_others_wrote_meanwhile(here, dn, capsys, monkeypatch):
    picture("in/a.png")
    picture("in/b.png")
    foreign, done, asked = Path("out/b.denoised.png"), batch.is_done, []

    def is_done(job):
        asked.append(job.source)
        if asked.count("in/b.png") == 2:  # when its turn comes
            foreign.parent.mkdir(exist_ok=True)
            foreign.write_bytes(b"of somebody else")
        return done(job)

    monkeypatch.setattr(batch, "is_done", is_done)
    watch_for(8, monkeypatch, {4: lambda: picture("in/b.png", size=(40, 32))})
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    assert foreign.read_bytes() == b"of somebody else"
    assert "a.png -> " in capsys.readouterr().out


def test_watch_tries_again_what_could_not_be_written(here, dn, capsys, monkeypatch):
    picture("in/sub/a.png")
    Path("out").mkdir()
    Path("out/sub").write_bytes(b"in the way")
    clock, looks = [0.0], 0

    def sleep(seconds):
        nonlocal looks
        clock[0], looks = clock[0] + seconds, looks + 1
        if looks == 15:  # tried at the second look and ten later, and not again before 20 more
            Path("out/sub").unlink()
        if looks < 30:
            assert not Path("out/sub").is_dir()
        if Path("out/sub/a.denoised.png").exists():
            raise KeyboardInterrupt
        assert looks < 40

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert run(["watch", "in", "-o", "out", "--interval", "1", *dn]) == 130
    out, err = capsys.readouterr()
    assert err.count("cannot make the folder") == 2
    assert out.count(" -> ") == 1


def test_watch_tries_again_after_an_hour_at_the_latest(here, dn, capsys, monkeypatch):
    picture("in/sub/a.png")
    Path("out").mkdir()
    Path("out/sub").write_bytes(b"in the way")
    clock, tries = [0.0], []

    def sleep(seconds):
        if "cannot make the folder" in capsys.readouterr().err:
            tries.append(clock[0])
        clock[0] += seconds
        if len(tries) == 3:
            raise KeyboardInterrupt
        assert clock[0] < 20_000

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert run(["watch", "in", "-o", "out", "--interval", "600", *dn]) == 130
    assert tries == [600, 4200, 7800]


def lock(monkeypatch):
    """Folders named locked cannot be listed; root could list them whatever their mode."""
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)


def test_watch_tells_once_of_a_subfolder_that_it_cannot_read(here, dn, capsys, monkeypatch):
    picture("in/a.png")
    Path("in/locked").mkdir()
    lock(monkeypatch)
    watch_for(4, monkeypatch)
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    out, err = capsys.readouterr()
    assert out.count(" -> ") == 1
    assert err.count("in/locked: this folder cannot be read: Permission denied") == 1


def test_watch_says_once_that_two_inputs_want_one_output(here, dn, capsys, monkeypatch):
    picture("in/a.png")

    def resolve():
        os.remove("in/a.gif")
        Path("out/a.denoised.png").write_bytes(b"edited")

    watch_for(12, monkeypatch, {3: lambda: picture("in/a.gif"), 7: resolve})
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    out, err = capsys.readouterr()
    assert out.count(" -> ") == 1
    assert err.count("is also that of") == 1
    assert Path("out/a.denoised.png").read_bytes() == b"edited"


def test_watch_says_again_that_two_inputs_want_one_output_once_they_did_not(here, dn, capsys, monkeypatch):
    picture("in/a.png")
    watch_for(
        14, monkeypatch,
        {3: lambda: picture("in/a.gif"), 7: lambda: os.remove("in/a.gif"), 10: lambda: picture("in/a.gif")},
    )  # fmt: skip
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    assert capsys.readouterr().err.count("is also that of") == 2


def test_watch_leaves_an_output_to_the_input_that_was_there_first(here, dn, capsys, monkeypatch):
    picture("in/a.gif")
    events = {3: lambda: picture("in/a.png", value=7), 6: lambda: picture("in/a.gif", value=200),
              9: lambda: os.remove("in/a.gif")}  # fmt: skip
    watch_for(12, monkeypatch, events)
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    out, err = capsys.readouterr()
    assert out.count("in/a.gif -> ") == 2 and "in/a.png -> " not in out
    assert err.count("in/a.png: its output out/a.denoised.png is also that of in/a.gif; run it with") == 1
    assert err.count("is also that of") == 1
    assert pixel("out/a.denoised.png") == (210, 210, 210)


def test_watch_replaces_what_came_of_an_input_that_has_gone_if_asked_to(here, dn, capsys, monkeypatch):
    picture("in/a.gif")
    watch_for(10, monkeypatch, {3: lambda: os.remove("in/a.gif"), 5: lambda: picture("in/a.png", value=7)})
    assert run(["watch", "in", "-o", "out", "--overwrite", *dn]) == 130
    assert "is also that of" not in capsys.readouterr().err
    assert pixel("out/a.denoised.png") == (17, 17, 17)


def test_watch_tries_once_what_a_format_cannot_hold(here, dn, capsys, monkeypatch):
    Image.new("RGBA", (9, 6), (1, 2, 3, 100)).save("a.png")
    Path("in").mkdir()
    os.rename("a.png", "in/a.png")
    clock = [0.0]
    watch_for(40, monkeypatch, {look: lambda: clock.__setitem__(0, clock[0] + 100) for look in range(40)})
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert run(["watch", "in", "-o", "out", "--format", "jpg", *dn]) == 130
    assert capsys.readouterr().err.count("JPEG cannot hold transparency") == 1


def test_watch_waits_for_a_folder_that_is_away(here, dn, monkeypatch):
    Path("in").mkdir()
    looks = []

    def sleep(seconds):
        looks.append(tree("out") if Path("out").exists() else [])
        if len(looks) == 1:
            os.rename("in", "away")
        if len(looks) == 3:
            os.rename("away", "in")
            picture("in/a.png")
        if len(looks) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    assert looks[-1] == ["a.denoised.png"]


def test_watch_tries_again_what_was_away_when_its_turn_came(here, dn, capsys, monkeypatch):
    from zenith_ae import images

    real = images.read_picture
    for name in ("a", "b"):
        picture(f"in/{name}.png")

    looks = watch_for(8, monkeypatch, {4: lambda: os.rename("away", "in")})

    def read_picture(*arguments, **options):
        if not looks[2:] and os.path.isdir("in"):  # the folder goes while they wait
            os.rename("in", "away")
        return real(*arguments, **options)

    monkeypatch.setattr(images, "read_picture", read_picture)
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    out, err = capsys.readouterr()
    assert err.count("no such file") == 2
    assert tree("out") == ["a.denoised.png", "b.denoised.png"] and out.count(" -> ") == 2  # each once


def test_watch_tries_again_what_may_be_read_since(here, dn, capsys, monkeypatch):
    from zenith_ae import images

    locked, real, access = [True], images.read_picture, os.access
    picture("in/a.png")

    def read_picture(path, *arguments, **options):
        if locked:
            raise images.ImageError(f"{path}: cannot be read: Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(images, "read_picture", read_picture)
    monkeypatch.setattr(os, "access", lambda path, mode: not locked and access(path, mode))
    watch_for(8, monkeypatch, {4: locked.clear})
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    out, err = capsys.readouterr()
    assert err.count("Permission denied") == 1
    assert out.count(" -> ") == 1


def test_watch_says_once_of_each_file_that_it_leaves_it_out(here, dn, capsys, monkeypatch):
    picture("in/a.png")
    watch_for(7, monkeypatch, {2: Path("in/2.jxl").touch, 4: Path("in/4.jxl").touch})
    assert run(["watch", "in", "-o", "out", *dn]) == 130
    assert capsys.readouterr().err.count("1 file left out: .jxl cannot be read") == 2


def test_watch_rests_longer_where_looking_is_work(here, dn, monkeypatch):
    picture("in/a.png")
    clock, pauses = [0.0], []

    def thread_time():  # a look takes 3 seconds of the CPU
        clock[0] += 3
        return clock[0]

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "thread_time", thread_time)
    monkeypatch.setattr(time, "sleep", sleep)
    assert run(["watch", "in", "-o", "out", "--interval", "1", *dn]) == 130
    assert pauses == [12, 12, 12]
    assert tree("out") == ["a.denoised.png"]


@pytest.mark.parametrize("option", ["--strength", "--luma", "--grain"])
def test_a_share_that_is_no_number_is_wrong_usage(here, dn, option, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", option, "nan", *dn]) == 2
    assert "not a finite number" in capsys.readouterr().err


def test_evaluate_prints_a_table_or_one_line_of_json_and_makes_the_sheets_folder(here, dn, capsys):
    picture("in/a.png")
    picture("in/b.png")
    model = dn[1]
    assert run(["evaluate", model, "in", "--sigma", "10", "--sheet", "new/worst.png", "--worst", "1"]) == 0
    header, told, auto = capsys.readouterr().out.splitlines()
    assert "SSIM" in header and "mean of 2: sigma 10 " in told and "mean of 2: sigma 10, auto" in auto
    assert tree("new") == ["worst.png"]
    assert run(["evaluate", model, "in", "--sigma", "10", "--degrade", "file", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert set(report["mean"]) == {"sigma 10 in a file", "sigma 10 in a file, auto"}
    assert [entry["name"] for entry in report["pictures"]] == ["a.png", "b.png"]


def test_a_case_that_is_not_there_is_wrong_usage_and_a_broken_link_is_named(here, dn, capsys):
    picture("in/a.png")
    Path("in/b.png").symlink_to("gone.png")
    options = ["evaluate", dn[1], "in", "--sigma", "10", "--sheet", "worst.png", "--case"]
    assert run([*options, "sigma 5"]) == 2
    assert "there are: 'sigma 10', 'sigma 10, auto'" in capsys.readouterr().err
    assert run([*options, "sigma 10, auto"]) == 1
    assert "skipped, not decodable: b.png" in capsys.readouterr().out
    assert Path("worst.png").exists()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--sheet", "worst.tif"], 2, ".png, .webp or .jpg"),
        (["--sheet", "taken.png"], 2, "exists"),
        (["--sheet", "in/a.png", "--overwrite"], 2, "lies among the files that are measured"),
        (["--sheet", "in/sub/worst.png"], 2, "lies among the files that are measured"),
        (["--sheet", "taken.png/worst.png"], 1, "taken.png is a file; choose another with --sheet"),
        (["--sigma", "300"], 2, "--sigma"),
        (["--other", "zenith-denoise"], 2, "not an autoencoder"),
        (["--case", "sigma 25"], 2, "--case is about the --sheet"),
        (["--seed", "99999999999999999999"], 2, "--seed"),
    ],
)
def test_evaluate_refuses_before_it_measures(here, dn, capsys, monkeypatch, options, code, message):
    from zenith_ae.training import evaluate

    monkeypatch.setattr(evaluate, "evaluate_model", lambda *_, **__: pytest.fail("measured"))
    picture("in/a.png")
    picture("taken.png")
    assert run(["evaluate", dn[1], "in", *options]) == code
    assert message in capsys.readouterr().err


def test_every_command_with_passes_has_those_of_the_library():
    from zenith_ae.app import cli
    from zenith_ae.app.train import evaluate
    from zenith_ae.pipelines import PASSES

    for command in (cli.denoise, cli.deblur, cli.watch, evaluate):
        (option,) = (p for p in command.params if p.name == "passes")
        assert tuple(option.type.choices) == PASSES


def test_formats_of_latents_are_those_of_the_library():
    from zenith_ae.app import cli
    from zenith_ae.latents import DTYPES

    commands = [command for command in cli.cli.commands.values() if command.name in ("encode", "roundtrip")]
    choices = [p.type.choices for command in commands for p in command.params if p.name == "dtype"]
    assert len(choices) == 2 and {tuple(each) for each in choices} == {DTYPES}


@pytest.mark.parametrize("command", ["denoise", "deblur"])
def test_passes_reach_the_model(here, command, capsys):
    noisy = np.random.default_rng(0).integers(0, 256, (30, 43, 3), np.uint8)
    Image.fromarray(noisy).save("a.png")
    assert run([command, "a.png", "--passes", "4", "--sigma", "20", "-o", "out.png"]) == 0
    with Image.open("out.png") as image:
        expected = zenith_ae.load(f"zenith-{command}")(noisy, sigma=20, passes=4)
        assert np.array_equal(np.asarray(image), expected)
    capsys.readouterr()
    assert run([command, "a.png", "--passes", "3"]) == 2
    assert "'3' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_the_program(shell, capsys):
    assert run(["completion", shell]) == 0
    assert f"_ZENITH_AE_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("denoise --sig", ["plain,--sigma"]),
        ("denoise pho", ["file,pho"]),
        ("denoise a.png -o b", ["file,b"]),
        ("info pho", ["file,pho"]),
        ("info zenith-deb", ["plain,zenith-deblur", "file,zenith-deb"]),
        ("encode --model zenith-taef2-n", ["plain,zenith-taef2-nano", "file,zenith-taef2-n"]),
        ("encode --model runs/", ["file,runs/"]),
        ("convert zenith-4", ["plain,zenith-4ch-lite", "file,zenith-4"]),
        ("evaluate zenith-4", ["plain,zenith-4ch-lite", "file,zenith-4"]),
        ("bench zenith-4", ["plain,zenith-4ch-lite", "file,zenith-4"]),
        ("train denoise --init zenith-deb", ["plain,zenith-deblur", "file,zenith-deb"]),
    ],
)
def test_completion_knows_commands_options_models_and_files(words, found):
    environment = os.environ | {
        "_ZENITH_AE_COMPLETE": "bash_complete", "COMP_WORDS": f"zenith-ae {words}",
        "COMP_CWORD": str(len(words.split())),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from zenith_ae.app.cli import main; main()"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == found


@pytest.mark.parametrize("architecture", ["taesd", "taef2"])
def test_convert_goes_round_all_layouts(here, architecture, capsys):
    weights = random_weights(build(architecture), 3)
    save_weights("own.safetensors", weights.config, weights.tensors, dtype=np.float32)
    assert run(["convert", "own.safetensors", "-o", "x_decoder.safetensors", "--to", "taesd"]) == 0
    assert capsys.readouterr().out.split() == ["x_encoder.safetensors", "x_decoder.safetensors"]
    sources = ["x_encoder.safetensors"]
    code = run(["convert", "x_encoder.safetensors", "-o", "folder", "--to", "diffusers"])
    if architecture == "taesd":
        assert code == 0
        assert json.loads(Path("folder/config.json").read_text())["latent_channels"] == 4
        sources.append("folder")
    else:
        assert code == 1
        assert "pool stage" in capsys.readouterr().err
        assert not Path("folder").exists()
    for source in sources:
        assert run(["convert", source, "-o", "back.safetensors", "--overwrite"]) == 0
        back = weights_module.load_weights("./back.safetensors")
        assert back.config.parts == weights.config.parts
        for name, tensor in weights.tensors.items():
            np.testing.assert_array_equal(back.tensors[name], tensor)


def test_convert_of_one_part_leaves_no_part_of_another_model_beside_it(here, capsys):
    for name, seed in (("a", 3), ("b", 4)):
        weights = random_weights(build("taesd"), seed)
        save_weights(f"{name}.safetensors", weights.config, weights.tensors, dtype=np.float32)
        assert (
            run(["convert", f"{name}.safetensors", "-o", f"{name}_encoder.safetensors", "--to", "taesd"]) == 0
        )
    os.remove("a_decoder.safetensors")
    assert run(["convert", "a_encoder.safetensors", "-o", "b_encoder.safetensors", "--to", "taesd"]) == 2
    assert Path("b_decoder.safetensors").exists()
    capsys.readouterr()
    again = [
        "convert",
        "a_encoder.safetensors",
        "-o",
        "b_encoder.safetensors",
        "--to",
        "taesd",
        "--overwrite",
    ]
    assert run(again) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == ["b_encoder.safetensors"]
    one_line(printed.err)
    assert "removed b_decoder.safetensors" in printed.err
    assert set(weights_module.load_weights("./b_encoder.safetensors").config.parts) == {"encoder"}


def test_convert_into_a_folder_with_a_variant_gives_the_new_weights(here):
    for name, seed in (("a", 3), ("b", 4)):
        weights = random_weights(build("taesd"), seed)
        save_weights(f"{name}.safetensors", weights.config, weights.tensors, dtype=np.float32)
    assert run(["convert", "a.safetensors", "-o", "folder", "--to", "diffusers"]) == 0
    plain = Path("folder/diffusion_pytorch_model.safetensors")
    plain.rename("folder/diffusion_pytorch_model.fp16.safetensors")
    old = weights_module.load_weights("./folder").hash
    assert run(["convert", "b.safetensors", "-o", "folder", "--to", "diffusers", "--overwrite"]) == 0
    assert weights_module.load_weights("./folder").hash != old


def test_convert_replaces_nothing_unasked_and_knows_its_limits(here, capsys):
    assert run(["convert", "zenith-taef2-nano", "-o", "new/folder/b.safetensors"]) == 0
    assert Path("new/folder/b.safetensors").exists()
    assert run(["convert", "zenith-taef2-nano", "-o", "a.safetensors", "--dtype", "fp16"]) == 0
    assert (
        weights_module.load_weights("./a.safetensors").hash
        == weights_module.load_weights("zenith-taef2-nano").hash
    )
    before = Path("a.safetensors").read_bytes()
    assert run(["convert", "zenith-taef2-lite", "-o", "a.safetensors"]) == 2
    assert Path("a.safetensors").read_bytes() == before
    capsys.readouterr()
    for name in ("b_encoder.safetensors", "b.safetensors"):
        assert run(["convert", "zenith-taef2-lite", "-o", name, "--to", "taesd"]) == 1
        assert "not of the TAESD family" in one_line(capsys.readouterr().err)
    taesd = random_weights(build("taesd"))
    save_weights("taesd.safetensors", taesd.config, taesd.tensors, {})
    for name in ("b.safetensors", "encoder.safetensors"):
        assert run(["convert", "taesd.safetensors", "-o", name, "--to", "taesd"]) == 1
        assert "NAME_encoder.safetensors" in one_line(capsys.readouterr().err)


def test_convert_replaces_no_half_of_another_kind(here, capsys):
    torch = pytest.importorskip("torch")
    taesd = random_weights(build("taesd"))
    save_taesd("x_encoder.safetensors", taesd)
    torch.save({n: torch.from_numpy(t.copy()) for n, t in taesd.part("encoder").items()}, "x_encoder.pth")
    Path("x_encoder.safetensors").unlink()
    before = Path("x_decoder.safetensors").read_bytes()
    assert (
        run(["convert", "x_encoder.pth", "-o", "x_encoder.safetensors", "--to", "taesd", "--overwrite"]) == 2
    )
    assert "x_decoder.safetensors is what is converted" in one_line(capsys.readouterr().err)
    assert tree(here) == ["x_decoder.safetensors", "x_encoder.pth"]
    assert Path("x_decoder.safetensors").read_bytes() == before


def test_convert_replaces_none_of_what_it_converts(here, capsys):
    taesd = random_weights(build("taesd"))
    save_weights("own.safetensors", taesd.config, taesd.tensors, {})
    assert run(["convert", "own.safetensors", "-o", "x_encoder.safetensors", "--to", "taesd"]) == 0
    assert run(["convert", "own.safetensors", "-o", "folder", "--to", "diffusers"]) == 0
    before = tree(here), [file.stat().st_mtime_ns for file in sorted(here.rglob("*"))]
    capsys.readouterr()
    for model, output, layout in (
        ("own.safetensors", "own.safetensors", "zenith"),
        ("x_encoder.safetensors", "x_encoder.safetensors", "taesd"),
        ("x_encoder.safetensors", "./x_decoder.safetensors", "zenith"),
        ("folder", "folder", "diffusers"),
    ):
        assert run(["convert", model, "-o", output, "--to", layout, "--dtype", "fp16", "--overwrite"]) == 2
        assert "is what is converted; choose another name" in one_line(capsys.readouterr().err)
    assert before == (tree(here), [file.stat().st_mtime_ns for file in sorted(here.rglob("*"))])


def test_latents_in_place_of_a_model_are_called_so(here, ae, capsys):
    picture("a.png")
    assert run(["encode", "a.png", *ae]) == 0
    capsys.readouterr()
    assert run(["encode", "a.png", "--model", "a.latent.safetensors", "-o", "b.latent.safetensors"]) == 1
    assert "a.latent.safetensors: is a latent file, not weights" in one_line(capsys.readouterr().err)


# ---- unusual surroundings


def test_an_empty_output_is_wrong_usage(here, dn, capsys):
    picture("in/a.png")
    assert run(["denoise", "in", *dn, "-o", ""]) == 2
    assert "-o is empty" in capsys.readouterr().err
    assert tree(here) == ["in/a.png"]


def test_a_subfolder_that_cannot_be_read_is_told(here, dn, capsys, monkeypatch):
    picture("in/a.png")
    picture("in/locked/b.png")
    lock(monkeypatch)
    assert run(["denoise", "in", *dn, "-o", "out/"]) == 1
    text = one_line(capsys.readouterr().err)
    assert text == "zenith-ae: in/locked: this folder cannot be read: Permission denied"
    assert tree(here / "out") == ["a.denoised.png"]
    assert run(["denoise", "in/**/*.png", *dn, "-o", "more/"]) == 1
    assert one_line(capsys.readouterr().err) == text
    assert tree(here / "more") == ["a.denoised.png"]
    for item in ("in/locked", "in/l*"):
        assert run(["denoise", item, *dn]) == 1
        assert "cannot be read" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-"])
def test_closed_streams_do_no_harm(here, dn, closed):
    picture("a.png")
    command = f'"{sys.executable}" -m zenith_ae denoise a.png {" ".join(dn)} -o b.png {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("", "a.png -> b.png  (sigma 10)\n")
    assert pixel("b.png")


def test_a_result_for_a_closed_standard_output_is_an_error(here, dn):
    picture("a.png")
    command = f'"{sys.executable}" -m zenith_ae denoise a.png {" ".join(dn)} -o - >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is closed" in one_line(done.stderr)


def test_closed_standard_input_is_an_empty_file(here, dn):
    command = f'"{sys.executable}" -m zenith_ae denoise - {" ".join(dn)} <&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is empty" in one_line(done.stderr)


def test_names_cannot_command_the_terminal(here, dn, capsys):
    picture("a\nb\x1b[31m.png")
    assert run(["denoise", "a\nb\x1b[31m.png", *dn]) == 0
    assert capsys.readouterr().out == "a\\nb\\x1b[31m.png -> a\\nb\\x1b[31m.denoised.png  (sigma 10)\n"


def test_info_shows_what_foreign_weights_say_on_one_line_each(here, capsys):
    config = build("zenith-taesd-nano")
    said = {"licence": "MIT\x1b]0;owned\x07\nweights           fake", "weights": "fake", "kind": "fake"}
    save_weights("w.safetensors", config, random_weights(config).tensors, said)
    assert run(["info", "--json", "w.safetensors"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["weights"] == weights_module.load_weights("w.safetensors").hash
    assert facts["kind"] == config.kind
    assert run(["info", "w.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "MIT\\x1b]0;owned\\x07\\nweights" in out
    assert sum(line.startswith("weights") for line in out.splitlines()) == 1


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems hold text only")
def test_names_that_are_no_text_are_shown(here):
    picture("a.png")
    os.rename(b"a.png", b"caf\xe9.png")
    done = subprocess.run(
        [sys.executable, "-m", "zenith_ae", "info", b"caf\xe9.png"],
        capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
    )  # fmt: skip
    assert b"caf\\udce9.png" in done.stdout and not done.stderr


def test_automatic_is_so_in_any_case_and_metadata_can_be_asked_to_stay(here, dn, capsys):
    picture("a.png")
    assert run(["denoise", "a.png", *dn, "--sigma", "AUTO", "--tile", "Auto", "--keep-metadata"]) == 0
    assert run(["denoise", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--sigma auto|N" in out and "--tile auto|0|N" in out and "--strip / --keep-metadata" in out


def test_doctor_claims_nothing_of_the_cpu_where_it_cannot_look(monkeypatch, capsys):
    from zenith_ae.app import doctor

    facts = {"levels available": [], "cpu has also": [], "level used": "none"}
    monkeypatch.setattr(doctor, "installation", lambda: facts)
    monkeypatch.setattr(doctor, "all_checks", lambda *_: [{"what": "kernels", "ok": False, "detail": "away"}])
    assert run(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["levels", "available", "none"]
    assert lines[1].startswith("cpu has also") and "AVX-512 BF16" in lines[1]


def test_evaluate_shows_control_characters_of_names(here, dn, capsys):
    picture("in/a\x1b[31mred\n.png")
    assert run(["evaluate", dn[1], "in", "--sigma", "10", "--pictures"]) == 0
    assert r"a\x1b[31mred\n.png: sigma 10" in capsys.readouterr().out


def test_debugging_shows_what_a_decoder_gave_up_on(here, dn, monkeypatch, capsys):
    picture("a.png")
    whole = Path("a.png").read_bytes()
    Path("cut.png").write_bytes(whole[:-30])
    for debugging in ("", "1"):
        monkeypatch.setenv("ZENITH_DEBUG", debugging)
        for command in (["denoise", "cut.png", "a.png", "-o", f"out{debugging}", *dn], ["info", "cut.png"]):
            assert run(command) == 1
            *trace, line = capsys.readouterr().err.splitlines()
            assert line.startswith("zenith-ae: cut.png: damaged or truncated")
            assert any(found.startswith("Traceback") for found in trace) is bool(debugging)
        assert tree(here / f"out{debugging}") == ["a.denoised.png"]  # it goes on
    assert run(["denoise", "nothing.png", "--model", dn[1]]) == 1  # what is expected stays a line
    one_line(capsys.readouterr().err)


def test_evaluate_ends_with_1_where_a_picture_could_not_be_read(here, dn, capsys):
    picture("in/a.png")
    Path("in/b.png").write_bytes(b"broken")
    assert run(["evaluate", dn[1], "in", "--sigma", "10"]) == 1
    assert "skipped, not decodable: b.png" in capsys.readouterr().out


def test_evaluate_exchanges_latents_of_as_many_channels_alone(here, capsys):
    picture("in/a.png")
    assert run(["evaluate", "zenith-taef2-nano", "in", "--other", "zenith-4ch-lite"]) == 2
    assert "--other zenith-4ch-lite: has latents of 4 channels, and zenith-taef2-nano of 32" in one_line(
        capsys.readouterr().err
    )


def test_evaluate_tells_of_a_folder_that_it_cannot_read(here, dn, capsys, monkeypatch):
    picture("in/a.png")
    picture("in/locked/b.png")
    lock(monkeypatch)
    assert run(["evaluate", dn[1], "in", "--sigma", "10"]) == 1
    assert one_line(capsys.readouterr().err) == (
        "zenith-ae: in/locked: this folder cannot be read: Permission denied"
    )


def test_encode_says_that_transparency_is_not_in_latents(here, ae, capsys):
    picture("a.png", mode="RGBA")
    picture("b.png")
    assert run(["encode", "a.png", "b.png", "--json", *ae]) == 0
    notes = [json.loads(line)["notes"] for line in capsys.readouterr().out.splitlines()]
    assert notes == [["transparency is not encoded"], []]


def test_encode_says_that_a_colour_profile_is_not_in_latents(here, ae, capsys):
    from PIL import ImageCms

    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.new("RGB", (16, 16)).save("a.png", icc_profile=srgb.replace(b"s\0R\0G\0B", b"w\0i\0d\0e"))
    Image.new("RGB", (16, 16)).save("b.png", icc_profile=srgb)
    assert run(["encode", "a.png", "b.png", "--json", *ae]) == 0
    notes = [json.loads(line)["notes"] for line in capsys.readouterr().out.splitlines()]
    assert notes == [["the colour profile is not encoded, so decoded colours look different"], []]


@pytest.mark.parametrize("layout", ["zenith", "taesd"])
def test_convert_writes_no_name_that_it_cannot_read_back(here, layout, capsys):
    config = build("taesd", 4)
    save_weights("w.safetensors", config, random_weights(config).tensors)
    assert run(["convert", "w.safetensors", "-o", "q_encoder.pth", "--to", layout]) == 2
    assert "give a name that ends so" in capsys.readouterr().err
    assert tree(".") == ["w.safetensors"]


def test_json_is_json_in_every_encoding(here, dn):
    picture("ü.png")
    done = subprocess.run(
        [sys.executable, "-m", "zenith_ae", "denoise", "ü.png", *dn, "--json"],
        capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert json.loads(done.stdout.decode("ascii"))["output"] == "ü.denoised.png"


def test_pictures_go_to_devices(here, dn, capsys):
    picture("a.png")
    for arguments in ([], ["--format", "webp"]):
        assert run(["denoise", "a.png", *dn, "-o", os.devnull, *arguments]) == 0, capsys.readouterr().err
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE) as reader:
        assert run(["denoise", "a.png", *dn, "-o", "pipe", "--format", "jpg"]) == 0
        assert reader.communicate()[0].startswith(b"\xff\xd8\xff")
    os.mkfifo("pipe.webp")  # whose name tells the format
    with subprocess.Popen(["cat", "pipe.webp"], stdout=subprocess.PIPE) as reader:
        assert run(["denoise", "a.png", *dn, "-o", "pipe.webp"]) == 0
        assert reader.communicate()[0].startswith(b"RIFF")
    program = f'"{sys.executable}" -m zenith_ae denoise a.png {" ".join(dn)} -q'
    from_stdin = program.replace("denoise a.png", "denoise /dev/stdin") + " < a.png > b.png"
    to = [f"{program} -o >(cat > b.png; echo done > there)", f"{program} -o /dev/stdout > b.png", from_stdin,
          f"{program.removesuffix('-q')} -o /dev/fd/1 > b.png"]  # fmt: skip
    for there in to:
        Path("b.png").unlink(missing_ok=True)
        subprocess.run(["bash", "-c", there], check=True)
        while "there" in there and not Path("there").exists():  # bash does not wait for it
            time.sleep(0.01)
        assert pixel("b.png") == (110, 110, 110)


def test_formats_that_want_to_go_back_go_through_pipes_too(here, dn):
    exif = Image.Exif()
    exif[0x10F] = "Maker"
    Image.new("RGB", (9, 6)).save("a.jpg", exif=exif)
    for format in ("tif", "jp2"):
        program = f'"{sys.executable}" -m zenith_ae denoise a.jpg {" ".join(dn)} -q --format {format}'
        subprocess.run(["bash", "-c", f"set -o pipefail; {program} -o /dev/fd/3 3>&1 | cat > b"], check=True)
        with Image.open("b") as image:
            assert image.size == (9, 6)


def test_info_reads_pipes(here):
    picture("a.png")
    command = f'cat a.png | "{sys.executable}" -m zenith_ae info /dev/fd/0'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert "PNG" in done.stdout


def test_a_pipe_in_a_folder_is_not_waited_for(here, dn):
    picture("in/a.png")
    os.mkfifo("in/b.png")
    for given, output in (("in", "out/"), ("in/*.png", "too/"), ("**/b*", "none/")):
        assert run(["denoise", given, "-o", output, *dn]) == (given == "**/b*")
        if given != "**/b*":
            assert tree(here / output) == ["a.denoised.png"]


def test_a_file_out_of_reach_says_why(here, dn, capsys, monkeypatch):
    stat = os.stat

    def refuse(path, *arguments, **options):
        if path == "locked/a.png":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert run(["denoise", "locked/a.png", *dn]) == 1
    text = one_line(capsys.readouterr().err)
    assert text == "zenith-ae: locked/a.png: cannot be read: Permission denied"


def test_a_latent_file_in_capitals_becomes_a_picture_of_its_name(here, ae, capsys):
    picture("a.png")
    assert run(["encode", "a.png", *ae, "-o", "A.LATENT.SAFETENSORS"]) == 0
    assert run(["decode", "A.LATENT.SAFETENSORS", *ae]) == 0
    assert "A.decoded.png" in capsys.readouterr().out


def test_pictures_of_kinds_that_are_not_read_are_left_out_with_a_note(here, dn, capsys):
    picture(here / "in/a.png")
    for name in ("in/b.jxl", "in/deep/C.JXL", "in/.hidden.jxl", "in/notes.txt"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_bytes(b"?")
    assert run(["denoise", "in", "-o", "out/", *dn]) == 0
    assert "2 files left out: .jxl cannot be read; convert them first" in capsys.readouterr().err
    assert run(["denoise", "in", "-o", "out/", *dn, "-q"]) == 0
    assert not capsys.readouterr().err


def test_the_whole_computer_is_no_folder_of_pictures(here, dn, capsys, monkeypatch):
    monkeypatch.setattr("os.walk", lambda *a, **k: pytest.fail("is searched"))
    monkeypatch.setattr("os.scandir", lambda *a, **k: pytest.fail("is searched"))
    for command in (["denoise", "/", *dn], ["denoise", "a.png", "//", *dn], ["watch", "/", *dn]):
        assert run(command) == 2
        assert "all of the computer" in capsys.readouterr().err


def test_a_pattern_of_one_picture_does_not_go_into_a_file(here, dn, capsys):
    picture("a.png")
    assert run(["denoise", "[a].png", "-o", "b.png", *dn]) == 2
    assert "names one file, but a folder or a pattern may hold several pictures" in capsys.readouterr().err
    picture("b.png")
    for given, why in ((["[a].png"], "may hold several"), (["a.png", "b.png"], "there are several inputs")):
        assert run(["denoise", *given, "-o", "b.png", *dn]) == 2
        assert (
            f"-o b.png is a file, but {'a folder or a pattern ' * (len(given) == 1)}{why}"
            in capsys.readouterr().err
        )


def test_a_file_and_a_format_that_differ_are_wrong_usage(here, dn, capsys):
    picture(here / "a.png")
    assert run(["denoise", "a.png", "-o", "b.png", "--format", "webp", *dn]) == 2
    assert "two formats" in capsys.readouterr().err and not (here / "b.png").exists()
    assert run(["denoise", "a.png", "-o", "b.jpeg", "--format", "jpg", *dn]) == 0
    assert run(["denoise", "a.png", "-o", "out.png/", "--format", "webp", *dn]) == 0
    assert (here / "out.png/a.denoised.webp").exists()
    assert run(["decode", "a.latent.safetensors", "-o", "b.png", "--format", "webp"]) == 2


def test_info_counts_frames_and_reads_standard_input(here, capsys, monkeypatch):
    frames = [Image.new("RGB", (9, 6), (20 * n, 0, 0)) for n in range(3)]
    frames[0].save(here / "a.gif", save_all=True, append_images=frames[1:])
    assert run(["info", "a.gif", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["pictures"] == 3 and not facts["notes"]
    stream = io.TextIOWrapper(io.BytesIO((here / "a.gif").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert run(["info", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == facts | {"file": "-"}


@pytest.mark.parametrize(("mode", "bits"), [("1", 1), ("L", 8), ("RGB", 8), ("I;16", 16)])
def test_info_says_how_many_bits_a_channel_has(here, capsys, mode, bits):
    Image.new(mode, (9, 6)).save(here / "a.png")
    assert run(["info", "a.png", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["mode"], facts["bits"]) == (mode, bits)
