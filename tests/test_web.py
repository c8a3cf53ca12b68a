"""The web page: its jobs, its server, and the page itself in a headless browser.

The jobs are tested with small models of known behaviour and need nothing but the library. The server
needs Gradio, the page also Playwright and Chromium; where these are missing, the tests skip. With
``ZENITH_SCREENSHOTS=docs/images`` the last test takes the documentation's pictures, with the shipped
models.
"""

import asyncio
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unicodedata
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from zenith_ae import app
from zenith_ae import weights as weights_module
from zenith_ae.app import web, web_comparison, web_jobs, web_previews, web_zip
from zenith_ae.app.cli import run as run_cli
from zenith_ae.app.web_jobs import Workshop, shipped_models
from zenith_ae.app.web_zip import safe_name
from zenith_ae.errors import ImageError, LatentError, ZenithError
from zenith_ae.images import READABLE_SUFFIXES, Picture, read_picture
from zenith_ae.latents import LatentFile, encode_latents, read_latents, write_latents
from zenith_ae.pipelines import Denoiser, load
from zenith_ae.weights import load_weights, save_weights

SCREENSHOTS = os.environ.get("ZENITH_SCREENSHOTS")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def models(sigma_denoiser, identity_autoencoder):
    """The page offers two models: one adds 10/255 (or the level it is told), one loses nothing."""
    with pytest.MonkeyPatch.context() as patch:
        small = {"adds-sigma": sigma_denoiser, "identity": identity_autoencoder}
        patch.setattr(weights_module, "available_weights", lambda: small)
        shipped_models.cache_clear()
        yield small
    shipped_models.cache_clear()


@pytest.fixture
def shop(models, tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    return Workshop(folder, threads=1, max_bytes=2**20)


def noise(size=(21, 13), channels=3, dtype=np.uint8, seed=0):
    """Pixels (H, W, C) with room for the 10/255 that the test's denoiser adds."""
    height, width = size[1], size[0]
    values = np.random.default_rng(seed).integers(0, 200, (height, width, channels))
    return (values * 257 if dtype == np.uint16 else values).astype(dtype)


SETTINGS = (-1, 1, 1, 1, 0, 1)  # what endpoints that denoise take beside a file and a model

PICTURES = {
    "rgb.png": lambda: Image.fromarray(noise()),
    "grey.jpg": lambda: Image.fromarray(noise(channels=1)[..., 0]),
    "deep.png": lambda: Image.fromarray(noise(channels=1, dtype=np.uint16)[..., 0]),
    "deep.tif": lambda: Image.fromarray(noise(channels=1, dtype=np.uint16)[..., 0]),
    "float.tiff": lambda: Image.fromarray(noise(channels=1)[..., 0].astype(np.float32) / 255),
    "alpha.png": lambda: Image.fromarray(noise(channels=4)),
    "greyalpha.png": lambda: Image.fromarray(noise(channels=2)),
    "ink.jpg": lambda: Image.fromarray(noise()).convert("CMYK"),
    "small.webp": lambda: Image.fromarray(noise((1, 1))),
}


def put(shop, name, image=None):
    """A file as Gradio would have uploaded it."""
    path = shop.new_folder() / name
    (image or PICTURES[name]()).save(path)
    return str(path)


def put_bytes(shop, name, data):
    path = shop.new_folder() / name
    path.write_bytes(data)
    return str(path)


def broken_png():
    data = io.BytesIO()
    Image.fromarray(noise((60, 60))).save(data, "PNG")
    return data.getvalue()[:2000]


def png(seed=0, size=(21, 13)):
    data = io.BytesIO()
    Image.fromarray(noise(size, seed=seed)).save(data, "PNG")
    return data.getvalue()


def message(call, *arguments):
    with pytest.raises(ZenithError) as caught:
        call(*arguments)
    return str(caught.value)


# ---- jobs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PICTURES)
def test_denoised_file_is_the_one_that_the_command_line_writes(shop, models, tmp_path, name):
    file = put(shop, name)
    result = shop.denoise(file, "adds-sigma", None, strength=0.5)
    out = tmp_path / result.facts["output"]
    arguments = ["denoise", file, "-o", str(out), "--model", str(models["adds-sigma"]), "--strength", "0.5"]
    assert run_cli([*arguments, "-q"]) == 0
    assert Path(result.files["picture"]).read_bytes() == out.read_bytes()
    with Image.open(file) as before, Image.open(result.files["picture"]) as after:
        assert (after.format, after.size, after.mode) == (before.format, before.size, before.mode)
    assert result.facts["sigma"] == 10 and result.facts["estimated"]
    assert result.facts["megapixels_per_second"] > 0


def test_every_page_of_a_file_is_denoised_and_the_first_is_shown(shop):
    path = shop.new_folder() / "pages.tif"
    pages = [Image.fromarray(noise(seed=i)) for i in range(3)]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    result = shop.denoise(str(path), "adds-sigma", 20.0)
    assert result.facts["pictures"] == 3
    with Image.open(result.files["picture"]) as image:
        for i in range(3):
            image.seek(i)
            assert np.array_equal(np.asarray(image), noise(seed=i) + 20)
    with Image.open(result.files["before"]) as shown:
        assert np.array_equal(np.asarray(shown), noise(seed=0))


def test_heic_of_a_phone_becomes_jpeg_and_is_shown(shop):
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra ui brings it")
    data = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(noise((40, 24)) // 8 + 90)).save(data, quality=90)
    path = put_bytes(shop, "IMG_1.HEIC", data.getvalue())
    result = shop.denoise(path, "adds-sigma", 20.0)
    assert Path(result.files["picture"]).name == "IMG_1.denoised.jpg"
    with Image.open(result.files["picture"]) as made, Image.open(result.files["before"]) as before:
        assert (made.format, made.size, before.size) == ("JPEG", (40, 24), (40, 24))
    state = last(
        shop.batch([put_bytes(shop, "phone.zip", zipped([("a.HEIC", data.getvalue())]))], "adds-sigma")
    )
    assert names(state) == ["a.denoised.jpg"] and not state.failed


@pytest.mark.parametrize("layout", ["rgb", "pages"])
def test_other_shares_of_a_remembered_picture_are_what_they_would_be(shop, monkeypatch, layout):
    ran, real = [], Denoiser.changes
    monkeypatch.setattr(Denoiser, "changes", lambda *a, **k: (ran.append(1), real(*a, **k))[1])
    pages = [Image.fromarray(noise(seed=seed)) for seed in range(2 if layout == "pages" else 1)]
    buffer = io.BytesIO()
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:])
    file = put_bytes(shop, "x.tif", buffer.getvalue())
    for turn, shares in enumerate(
        ({}, {"strength": 0.3}, {"luma": 0.2, "chroma": 0.9, "grain": 0.5}, {"strength": 0}, {})
    ):
        ran.clear()
        got = shop.denoise(file, "adds-sigma", remember=True, **shares)
        assert len(ran) == (0 if turn else len(pages))
        assert got.facts["adjustable"] and got.facts["remembered"] == (turn > 0)
        expected = shop.denoise(file, "adds-sigma", **shares)
        assert "adjustable" not in expected.facts
        results = [Path(one.files["picture"]).read_bytes() for one in (got, expected)]
        assert results[0] == results[1] and got.facts["sigma"] == expected.facts["sigma"]
    for more in ({"sigma": 5.0}, {"passes": 2}):  # which the network must see
        ran.clear()
        assert not shop.denoise(file, "adds-sigma", remember=True, **more).facts["remembered"] and ran
    shop.forget("another")
    assert shop.denoise(file, "adds-sigma", remember=True, passes=2).facts["remembered"]
    shop.forget(file)
    assert not shop.denoise(file, "adds-sigma", remember=True, passes=2).facts["remembered"]
    monkeypatch.setattr(web_jobs, "REMEMBERED_PIXELS", 20)
    assert "adjustable" not in shop.denoise(file, "adds-sigma", remember=True).facts


def test_settings_reach_the_model(shop):
    file = put(shop, "rgb.png")
    same = shop.denoise(file, "adds-sigma", luma=0, chroma=0)
    assert np.array_equal(np.asarray(Image.open(same.files["picture"])), np.asarray(Image.open(file)))
    four = shop.denoise(file, "adds-sigma", passes=4)
    assert four.facts["passes"] == 4
    assert np.array_equal(np.asarray(Image.open(four.files["picture"])), noise() + 10)
    state = last(shop.batch([file], "adds-sigma", luma=0.5))
    with zipfile.ZipFile(state.archive) as archive, Image.open(archive.open("rgb.denoised.png")) as image:
        assert np.array_equal(np.asarray(image), noise() + 5)


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_shown_is_8_bit_grey_or_rgb_of_the_same_size(shop, name):
    result = shop.denoise(put(shop, name), "adds-sigma", 20.0)
    size = read_picture(result.files["picture"]).pixels.shape[1::-1]
    for role in ("before", "after", "removed"):
        with Image.open(result.files[role]) as image:
            assert image.mode in ("L", "RGB") and image.size == size and image.format == "PNG"


def test_transparency_is_shown_on_white(shop):
    clear = Image.new("RGBA", (8, 8), (9, 9, 9, 0))
    shown = shop.inspect(put(shop, "clear.png", clear), "adds-sigma").files["before"]
    assert np.asarray(Image.open(shown)).min() == 255


@pytest.mark.parametrize("colours, kept", [(b"GRAY", False), (b"RGB ", True)])
def test_a_profile_goes_with_the_colours_that_it_describes(tmp_path, colours, kept):
    """Transparency is shown on white, so grey with it as RGB."""
    profile = bytes(16) + colours + bytes(108)
    seen = Picture(np.full((9, 9, 2), 100, np.uint8), "LA", "LA", metadata={"icc_profile": profile})
    for path in (web_previews.write_preview(seen, tmp_path / "a")[0],
                 web_previews.write_thumbnail(seen, tmp_path / "b.jpg")):  # fmt: skip
        with Image.open(path) as image:
            assert image.mode == "RGB" and ("icc_profile" in image.info) == kept


def test_large_picture_is_shown_smaller_but_written_whole(shop, monkeypatch):
    monkeypatch.setattr(web_previews, "PREVIEW_PIXELS", 1000)
    monkeypatch.setattr(web_previews, "LOSSLESS_PIXELS", 500)
    result = shop.denoise(put(shop, "big.png", Image.fromarray(noise((100, 80)))), "adds-sigma")
    with Image.open(result.files["after"]) as shown, Image.open(result.files["picture"]) as whole:
        assert shown.format == "JPEG" and shown.width * shown.height <= 1000
        assert whole.size == (100, 80)
    assert 0.3 < result.facts["shown"] < 0.4


def test_difference_is_grey_where_nothing_changed_and_amplified_elsewhere(shop):
    file = put(shop, "rgb.png")
    same = np.asarray(Image.open(shop.denoise(file, "adds-sigma", 25.0, strength=0).files["removed"]))
    assert (same == 128).all()
    pixels = np.full((16, 16, 3), 100, np.uint8)
    changed = pixels.copy()
    changed[:, 8:] -= 4
    path, gain = web_previews.write_difference(
        Picture(pixels, "RGB", "RGB"), Picture(changed, "RGB", "RGB"), shop.new_folder() / "d"
    )
    shown = np.asarray(Image.open(path)).astype(int)
    assert gain == 16 and (shown[:, :8] == 128).all() and (shown[:, 8:] == 128 + 16 * 4).all()


def test_round_trip_measures_and_its_latent_file_decodes_to_the_same_pixels(shop):
    file = put(shop, "rgb.png")
    result = shop.roundtrip(file, "identity")
    facts = result.facts
    assert facts["psnr"] > 50 and facts["ssim"] > 0.99 and facts["latent_shape"] == [1, 192, 2, 3]
    assert facts["bits_per_pixel"] == round(8 * os.path.getsize(result.files["latents"]) / (21 * 13), 3)
    assert Path(result.files["latents"]).name == "rgb.latent.safetensors"
    with Image.open(result.files["channels"]) as channels:
        assert channels.width > 8 * 3 and channels.height > 24 * 2
    assert shop.is_latent_file(result.files["latents"]) and not shop.is_latent_file(file)
    decoded = shop.decode(result.files["latents"])
    assert Path(decoded.files["picture"]).name == "rgb.decoded.png"
    a, b = (np.asarray(Image.open(r.files["picture"])) for r in (result, decoded))
    assert np.array_equal(a, b)
    both = (read_latents(r.files["latents"]) for r in (shop.encode(file, "identity"), result))
    assert np.array_equal(*(latents.latents for latents in both))


def test_what_latents_lack_is_told(shop):
    for name, notes in (("alpha.png", ["transparency is not encoded"]), ("rgb.png", [])):
        for job in (shop.encode, shop.roundtrip):
            assert job(put(shop, name), "identity").facts["notes"] == notes


def test_latents_of_other_weights_are_decoded_with_a_note(shop):
    path = Path(shop.roundtrip(put(shop, "rgb.png"), "identity").files["latents"])
    assert shop.decode(str(path)).facts["notes"] == []
    write_latents(path, replace(read_latents(path), model="taef2", weights="0" * 16))
    (note,) = shop.decode(str(path)).facts["notes"]
    assert note.startswith(f"latents of taef2 ({'0' * 16}), decoded by identity (")


def test_round_trip_keeps_16_bits_and_alpha(shop):
    for name in ("deep.tif", "alpha.png"):
        file = put(shop, name)
        result = shop.roundtrip(file, "identity", "fp32")
        before, after = np.asarray(Image.open(file)), np.asarray(Image.open(result.files["picture"]))
        assert before.dtype == after.dtype and before.shape == after.shape
        # The latents of this model are the pixels themselves; bf16 has 8 bits of each.
        exact = shop.model("identity", "autoencoder").engine.dtype == "float32"
        allowed = 1 if name == "alpha.png" else 2 if exact else 256
        assert np.abs(before.astype(int) - after).max() <= allowed


def test_latents_of_other_weights_or_unknown_models_are_refused(shop):
    z = np.zeros((1, 192, 2, 3), np.float32)
    for model, weights, count in (("identity", "0" * 16, 1), ("elsewhere", "0" * 16, 1)):
        data = encode_latents(LatentFile(z.repeat(count, 0), model, weights, 13, 21))
        text = message(shop.decode, put_bytes(shop, "x.latent.safetensors", data))
        assert text.startswith("x.latent.safetensors: made by") and "zenith-ae decode" in text
    space = shop.model("identity", "autoencoder").space
    data = encode_latents(LatentFile(z, "identity", "0" * 16, 13, 21, "RGB", space))
    assert shop.decode(put_bytes(shop, "x.latent.safetensors", data)).facts["width"] == 21
    many = LatentFile(z.repeat(2, 0), "identity", shop.model("identity", "autoencoder").hash, 13, 21)
    text = message(shop.decode, put_bytes(shop, "two.safetensors", encode_latents(many)))
    assert text == "two.safetensors: holds 2 pictures; the page decodes one"
    with pytest.raises(LatentError, match="not a latent file"):
        shop.decode(put_bytes(shop, "y.safetensors", b"{}" * 20))


def test_compare_measures_every_model_against_the_original(shop):
    result = shop.compare(put(shop, "rgb.png"), ["adds-sigma", "identity"], 0)
    rows = {row["model"]: row for row in result.facts["rows"]}
    assert rows["identity"]["psnr"] > 50
    assert rows["adds-sigma"]["psnr"] == pytest.approx(20 * np.log10(255 / 10), abs=0.01)
    assert set(result.files) == {"original", "noisy", "adds-sigma", "identity"}
    noisy = shop.compare(put(shop, "rgb.png"), ["adds-sigma"], 25)
    assert noisy.facts["noisy_psnr"] < 25
    usual = shop.compare(put(shop, "rgb.png"), ["adds-sigma"])  # as where the field is emptied
    assert {k: usual.facts[k] for k in ("sigma", "noisy_psnr")} == {
        "sigma": 25, "noisy_psnr": noisy.facts["noisy_psnr"]
    }  # fmt: skip
    assert "choose at least one model" in message(shop.compare, put(shop, "rgb.png"), ["other"])


def test_compare_gives_a_deblurring_model_a_soft_picture(shop, monkeypatch):
    monkeypatch.setattr(web_jobs, "sharpens", lambda model: model == "adds-sigma")
    result = shop.compare(put(shop, "n.png", Image.fromarray(noise((30, 20)))), ["adds-sigma"], 25)
    assert set(result.files) == {"original", "soft", "adds-sigma"}
    assert result.facts["soft_psnr"] < 20  # of noise little is left
    assert "blur" in result.facts["rows"][0]["does"]


def test_compare_gives_all_models_the_same(shop):
    rgb = noise((20, 30))
    expected = np.random.default_rng(0).standard_normal(rgb.shape, np.float32) * np.float32(25)
    noisy = web_comparison.harmed(rgb, "noisy", 25)
    np.testing.assert_array_equal(noisy, np.rint(np.clip(rgb + expected, 0, 255)))
    soft = web_comparison.harmed(rgb, "soft", 25)
    assert soft[10, 10] == pytest.approx(rgb[9:12, 9:12].mean(axis=(0, 1)), abs=0.51)


@pytest.mark.parametrize(("task", "name"), [("blur", "deblurred"), ("noise", "denoised"), (None, "denoised")])
def test_results_are_named_by_what_was_done(sigma_denoiser, tmp_path, task, name):
    weights = load_weights(sigma_denoiser)
    file = tmp_path / "weights.safetensors"
    save_weights(file, weights.config, weights.tensors, {"task": task} if task else {})
    assert web_jobs.result_of(str(file)) == name


def test_compare_takes_the_middle_of_a_large_picture(shop, monkeypatch):
    monkeypatch.setattr(web_comparison, "COMPARE_PIXELS", 400)
    facts = shop.compare(put(shop, "big.png", Image.fromarray(noise((100, 50)))), ["identity"]).facts
    assert facts["cut"] and (facts["width"], facts["height"]) == (28, 14)


def test_benchmark_has_a_rate_for_every_part_of_every_model(shop):
    rows = shop.benchmark(seconds=0)
    assert [name for name, _ in rows] == ["adds-sigma", "identity encode", "identity decode"]
    assert all(rate > 0 for _, rate in rows)


def test_only_shipped_models_are_loaded_never_files_of_the_server(shop, models):
    for name in ("/etc/passwd", "../x", str(models["identity"]), "identity"):
        assert "no such denoiser" in message(shop.model, name, "denoiser")


def test_nothing_outside_the_private_folder_is_opened(shop, tmp_path):
    outside = tmp_path / "outside.png"
    PICTURES["rgb.png"]().save(outside)
    link = shop.new_folder() / "link.png"
    link.symlink_to(outside)
    climbing = shop.folder / ".." / "outside.png"
    for path in (outside, link, climbing, "/etc/passwd", shop.folder, shop.folder / "missing.png"):
        for job in (
            lambda p: shop.denoise(p, "adds-sigma"),
            lambda p: shop.roundtrip(p, "identity"),
            shop.decode,
            lambda p: list(shop.batch([p], "adds-sigma")),
        ):
            text = message(job, str(path))
            assert text.endswith("is not here any more; upload it again") and str(tmp_path) not in text


def test_messages_name_the_picture_and_no_path_of_the_server(shop):
    file = put_bytes(shop, "broken.png", broken_png())
    with pytest.raises(ImageError) as caught:
        shop.denoise(file, "adds-sigma")
    text = shop.describe(caught.value)
    assert re.fullmatch(r"broken\.png: damaged or truncated picture \(.*\); copy or export it again", text)
    assert "no picture yet" in message(shop.denoise, None, "adds-sigma")
    secret = ImageError(f"{shop.folder}/abc/x.png: wrong\nagain")
    assert shop.describe(secret) == "abc/x.png: wrong again"
    assert str(shop.folder) not in shop.describe(RuntimeError(f"{shop.folder} exploded"), "x.png")
    assert shop.describe(MemoryError(), "x.png") == "x.png: not enough memory; try a smaller picture"


def test_old_results_are_removed_and_what_the_page_needs_stays(shop):
    page = shop.new_folder()
    shop.keep_what_is_there()
    old, young = shop.new_folder(), shop.new_folder()
    long_ago = time.time() - web_jobs.KEEP_SECONDS - 60
    for folder in (page, old):
        os.utime(folder, (long_ago, long_ago))
    shop.new_folder()
    assert page.exists() and young.exists() and not old.exists()


# ---- batches ----------------------------------------------------------------------------------------


def last(states):
    *_, state = states
    return state


def names(state):
    with zipfile.ZipFile(state.archive) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def zipped(entries):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return data.getvalue()


def test_batch_of_20_with_one_broken_gives_19_and_names_the_broken_one(shop):
    files = [put_bytes(shop, f"{i:02}.png", png(i)) for i in range(19)]
    files.insert(7, put_bytes(shop, "broken.png", broken_png()))
    states = [(s.done, s.current) for s in shop.batch(files, "adds-sigma")]
    assert states[8] == (8, "07.png") and states[-1] == (20, "")
    state = last(shop.batch(files, "adds-sigma", 30.0))
    assert names(state) == [f"{i:02}.denoised.png" for i in range(19)]
    assert [name for name, _ in state.failed] == ["broken.png"]
    assert "damaged or truncated" in state.failed[0][1]
    assert len(state.thumbnails) == 19 and state.finished and not state.cancelled
    with zipfile.ZipFile(state.archive) as archive, Image.open(archive.open("03.denoised.png")) as image:
        assert image.mode == "RGB" and np.array_equal(np.asarray(image), noise(seed=3) + 30)
    left = {p.suffix for p in Path(state.archive).parent.iterdir()}
    assert left == {".zip", ".jpg"}  # the results themselves are in the ZIP only


def test_batch_of_a_zip_keeps_its_tree_and_leaves_out_what_is_no_picture(shop):
    entries = [("a/x.png", png()), ("b/x.png", png(1)), ("a/notes.txt", b"hello"), ("__MACOSX/._x.png", b"?"),
               (".hidden.png", png()), ("deep/er/y.jpg", png(2))]  # fmt: skip
    state = last(shop.batch([put_bytes(shop, "shots.zip", zipped(entries))], "adds-sigma"))
    assert names(state) == ["a/x.denoised.png", "b/x.denoised.png", "deep/er/y.denoised.jpg"]
    assert state.left_out == 3 and not state.failed


def test_names_in_a_zip_are_utf8_also_where_it_does_not_say_so(shop):
    """As macOS writes them, with the dots of an Umlaut as a letter of their own."""
    data = zipped([("Ausflug_u\u0308ber.png", png())])
    silent = bytearray(data)
    for place in (data.index(b"PK\3\4") + 6, data.index(b"PK\1\2") + 8):
        assert silent[place : place + 2] == b"\x00\x08"
        silent[place + 1] = 0
    assert [entry.flag_bits for entry in zipfile.ZipFile(io.BytesIO(silent)).infolist()] == [0]
    for ending, given in (("says", data), ("silent", bytes(silent))):
        state = last(shop.batch([put_bytes(shop, f"{ending}.zip", given)], "adds-sigma"))
        assert not state.failed
        assert [unicodedata.normalize("NFC", name) for name in names(state)] == ["Ausflug_über.denoised.png"]


def test_batch_keeps_its_uploads_for_as_long_as_it_needs_them(shop):
    files = [put_bytes(shop, "a.png", png()), put_bytes(shop, "b.zip", zipped([("c.png", png(1))]))]
    states = shop.batch(files, "adds-sigma")
    next(states)
    for file in files:
        os.unlink(file)
    state = last(states)
    assert names(state) == ["a.denoised.png", "c.denoised.png"] and not state.failed
    assert not (Path(state.archive).parent / "uploads").exists()


def test_a_batch_opens_one_zip_at_a_time(shop):
    files = [put_bytes(shop, f"{i}.zip", zipped([("a.png", png(i))])) for i in range(20)]
    before = len(os.listdir("/proc/self/fd"))
    most = max(len(os.listdir("/proc/self/fd")) for _ in shop.batch(files, "adds-sigma"))
    assert most < before + 10


@pytest.mark.parametrize("limit", [150_000, 250_000, 333_000])  # bytes a file may have: a full disk's error
def test_a_batch_that_runs_out_of_room_ends_with_what_is_done(shop, limit):
    resource = pytest.importorskip("resource")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 200, 200, 3), dtype=np.uint8)
    files = []
    for i, noise in enumerate(pixels):
        buffer = io.BytesIO()
        Image.fromarray(noise).save(buffer, "PNG")
        files.append(put_bytes(shop, f"{i}.png", buffer.getvalue()))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        *_, last = shop.batch(files, "adds-sigma", 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    done = limit // 120_500
    assert last.finished and (last.good, last.done, last.total) == (done, done + 1, 5)
    assert [name for name, _ in last.failed] == [f"{done}.png"]
    assert "no room for the result" in last.failed[0][1]
    with zipfile.ZipFile(last.archive) as archive:
        assert archive.testzip() is None and len(archive.namelist()) == done
    assert not list(Path(last.archive).parent.glob("*.png"))
    from zenith_ae.app.web_words import batch_status

    left = f", {4 - done} not started" if done < 4 else ""
    assert re.search(rf"Done: {done} of 5 pictures in [^<]*</b>{left}<", batch_status(last))


def test_a_batch_says_where_it_does_not_show_all(shop, monkeypatch):
    from zenith_ae.app.web_words import batch_status

    monkeypatch.setattr(web_jobs, "GALLERY", 2)
    files = [put(shop, "rgb.png") for _ in range(3)]
    *_, last = shop.batch(files, "adds-sigma")
    assert len(last.thumbnails) == 2
    assert "The first 2 are shown; all are in the ZIP." in batch_status(last)


def test_models_give_back_the_memory_of_large_pictures(sigma_denoiser, identity_autoencoder, monkeypatch):
    from zenith_ae.app import models as app_models

    small = {"one": sigma_denoiser, "other": identity_autoencoder}
    monkeypatch.setattr(weights_module, "available_weights", lambda: small)
    monkeypatch.setattr(app_models, "KEPT_BYTES", 100)
    models = app_models.Models(threads=1)
    one = models.get("one")
    one(noise(), sigma=5)
    held = one.engine.stats()["arena_bytes"]
    assert held > 100
    assert models.get("one") is one and one.engine.stats()["arena_bytes"] == held
    models.get("other")
    assert one.engine.stats()["arena_bytes"] == 0


def test_while_a_batch_runs_the_latest_failures_are_shown_and_all_at_the_end(shop):
    files = [put_bytes(shop, f"{i}.png", broken_png()) for i in range(30)]
    shown = [(s.finished, len(s.shown(s.failed))) for s in shop.batch(files, "adds-sigma")]
    assert max(n for finished, n in shown if not finished) == 20 and shown[-1] == (True, 30)


def test_numbers_that_are_none_are_refused(shop):
    file = put(shop, "rgb.png")
    for wrong in ({"sigma": float("nan")}, {"strength": float("inf")}):
        with pytest.raises(ImageError, match="finite"):
            shop.denoise(file, "adds-sigma", **wrong)
    with pytest.raises(ImageError, match="from 0 to 255"):
        shop.compare(file, ["zenith-denoise"], float("nan"))
    with pytest.raises(ImageError, match="from 0 to 255, got 300"):
        shop.denoise(file, "adds-sigma", 300.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9996, "1.0 s"), (59.96, "1 min 0 s"), (119.7, "2 min 0 s"), (0.5, "500 ms")]
)
def test_times_are_rounded_before_their_unit_is_chosen(seconds, text):
    from zenith_ae.app.web_words import duration, file_size

    assert duration(seconds) == text
    assert [duration(s, guessed=True) for s in (0.2, 45.4, 59.6)] == ["1 s", "45 s", "1 min 0 s"]
    assert file_size(2**20 - 1) == "1.0 MB"


def test_batch_says_what_a_picture_lost(shop):
    frames = [Image.fromarray(pixels) for pixels in (noise(), 255 - noise())]
    frames[0].save(animated := io.BytesIO(), "GIF", save_all=True, append_images=frames[1:])
    state = last(shop.batch([put_bytes(shop, "a.jpg", animated.getvalue())], "adds-sigma"))
    assert state.notes == [("a.jpg", "JPEG holds one picture, so it is the first of 2")]
    from zenith_ae.app.web_words import batch_status

    assert "a.jpg: JPEG holds one picture" in batch_status(state)


def test_batch_without_a_result_offers_no_archive(shop):
    alpha = io.BytesIO()
    Image.fromarray(noise(channels=4)).save(alpha, "PNG")
    files = [put_bytes(shop, "a.jpg", alpha.getvalue()), put_bytes(shop, "b.png", broken_png())]
    state = last(shop.batch(files, "adds-sigma"))
    assert [name for name, _ in state.failed] == ["a.jpg", "b.png"]
    assert state.finished and state.archive is None


def test_long_names_in_other_scripts_fit_a_file_system(shop):
    state = last(shop.batch([put_bytes(shop, "a.zip", zipped([("あ" * 80 + ".png", png())]))], "adds-sigma"))
    assert not state.failed
    (name,) = names(state)
    assert name.startswith("あ" * 40) and name.endswith(".denoised.png")


def test_equal_names_get_numbers(shop):
    files = [put_bytes(shop, "x.png", png(i)) for i in range(3)]
    assert names(last(shop.batch(files, "adds-sigma"))) == [
        "x.denoised.png", "x.denoised-2.png", "x.denoised-3.png"]  # fmt: skip
    files = [put_bytes(shop, name, png()) for name in ("x.png", "X.png")]  # which Windows does not tell apart
    assert names(last(shop.batch(files, "adds-sigma"))) == ["x.denoised.png", "X.denoised-2.png"]


def test_cancelled_batch_gives_what_was_done(shop):
    files = [put_bytes(shop, f"{i}.png", png(i)) for i in range(6)]
    seen = []
    state = last(shop.batch(files, "adds-sigma", cancelled=lambda: len(seen) == 3 or seen.append(1)))
    assert state.cancelled and state.done == 3
    assert names(state) == ["0.denoised.png", "1.denoised.png", "2.denoised.png"]


def test_a_batch_tells_how_far_its_picture_is(shop, monkeypatch):
    seen, real = threading.Event(), web_jobs._clean

    def halfway(model, picture, sigma, settings, progress):
        progress(0.5)
        assert seen.wait(30)  # else nothing was told
        return real(model, picture, sigma, settings, progress)

    monkeypatch.setattr(web_jobs, "_clean", halfway)
    monkeypatch.setattr(web_jobs, "_TELL_SECONDS", 0.01)
    told = []
    for state in shop.batch([put_bytes(shop, f"{i}.png", png()) for i in range(2)], "adds-sigma"):
        told.append((state.current, state.done, state.share))
        if told[-1] == ("0.png", 0, 0.5):  # a quarter of two files of one size
            assert state.seconds_left == pytest.approx(3 * state.seconds)
            seen.set()
    assert told[:2] == [("0.png", 0, 0.0), ("0.png", 0, 0.5)] and told[-1] == ("", 2, 0.0)
    assert state.good == 2 and not state.failed


def test_latents_of_too_many_pixels_are_not_decoded(shop, monkeypatch):
    file = shop.encode(put(shop, "rgb.png"), "identity").files["latents"]
    monkeypatch.setenv("ZENITH_MAX_PIXELS", "100")
    assert "exceed the limit of 100" in message(shop.decode, file)


@pytest.mark.parametrize("root", ["", "/pictures"])
def test_guard_knows_the_path_below_which_the_page_lies(root):
    seen, sent = [], []

    async def app(scope, receive, send):
        seen.append(scope["path"])

    async def receive():
        return {"type": "http.request", "body": b"0" * (web.Guard.MAX_BODY + 1)}

    async def send(part):
        sent.append(part.get("status"))

    def ask(method, path):
        seen.clear(), sent.clear()
        scope = {"type": "http", "method": method, "path": root + path, "root_path": root}
        asyncio.run(web.Guard(app)(scope, receive, send))
        return seen, sent[:1]

    for path in ("/gradio_api/file=http://example.org/x", "/Gradio_API/proxy=x", "/monitoring"):
        assert ask("GET", path) == ([], [403])
    assert ask("GET", "/gradio_api/info") == ([f"{root}/gradio_api/info"], [])
    assert ask("POST", "/gradio_api/upload") == ([f"{root}/gradio_api/upload"], [])
    assert ask("POST", "/gradio_api/call/denoise") == ([], [413])


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../../etc/passwd.png", "etc/passwd.png"),
        ("/etc/cron.d/x.png", "etc/cron.d/x.png"),
        ("C:\\Windows\\x.png", "C/Windows/x.png"),
        ("a/./b//c.png", "a/b/c.png"),
        ("..", "picture"),
        ("a\n\x1b[2Jb.png", "a[2Jb.png"),
        ("x" * 400 + "/y.png", "x" * 150 + "/y.png"),
        ("あ" * 100 + ".png", "あ" * 48 + ".png"),
    ],
)
def test_names_in_a_zip_cannot_leave_it(name, safe):
    assert safe_name(name) == safe


def test_traversal_in_a_zip_writes_nothing_outside(shop, tmp_path):
    entries = [("../../evil.png", png()), ("/tmp/../abs.png", png(1))]
    before = sorted(p.name for p in tmp_path.iterdir())
    state = last(shop.batch([put_bytes(shop, "evil.zip", zipped(entries))], "adds-sigma"))
    assert names(state) == ["evil.denoised.png", "tmp/abs.denoised.png"]
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_zip_bombs_are_stopped_at_the_limits(shop, monkeypatch):
    bomb = zipped([("bomb.png", b"\0" * (3 * 2**20)), ("good.png", png())])
    state = last(shop.batch([put_bytes(shop, "bomb.zip", bomb)], "adds-sigma"))
    assert state.failed == [("bomb.png", "bomb.png: larger than the upload limit of 1 MB")]
    assert names(state) == ["good.denoised.png"]
    # An entry that lies about its size is read no further than the limit either.
    lying = bomb.replace((3 * 2**20).to_bytes(4, "little"), (50).to_bytes(4, "little"))
    state = last(shop.batch([put_bytes(shop, "lying.zip", lying)], "adds-sigma"))
    assert [name for name, _ in state.failed] == ["bomb.png"]
    monkeypatch.setattr(web_zip, "ZIP_TIMES", 2)
    many = zipped([(f"{i}.png", b"\0" * 2**20) for i in range(4)])
    state = last(shop.batch([put_bytes(shop, "many.zip", many)], "adds-sigma"))
    assert sum("the ZIP holds more than 2 MB" in text for _, text in state.failed) == 2
    # What turns out to be damaged when all of it was read counts too.
    wrong = zipfile.ZipFile(io.BytesIO(many)).getinfo("0.png").CRC.to_bytes(4, "little")
    state = last(shop.batch([put_bytes(shop, "wrong.zip", many.replace(wrong, b"none"))], "adds-sigma"))
    assert ["damaged" in text for _, text in state.failed] == [True, True, False, False]
    monkeypatch.setattr(web_zip, "ZIP_ENTRIES", 3)
    state = last(shop.batch([put_bytes(shop, "many.zip", many)], "adds-sigma"))
    assert state.failed == [("many.zip", "many.zip: 4 files in a ZIP; the limit is 3")]


def test_zip_with_a_huge_list_is_refused_before_it_is_read(shop, monkeypatch):
    monkeypatch.setattr(web_zip._ShortReads, "limit", 1000)
    data = zipped([(f"{i:030}.png", b"") for i in range(100)])
    state = last(shop.batch([put_bytes(shop, "list.zip", data)], "adds-sigma"))
    assert state.failed == [("list.zip", "list.zip: the ZIP lists too many files; the limit is 5000")]


def test_damaged_encrypted_and_nested_zips_fail_by_name(shop):
    good = zipped([("x.png", png())])
    locked = bytearray(good)
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        locked[good.index(signature) + place] |= 1
    torn = good[:60] + b"\xff" * 200 + good[260:]
    files = [put_bytes(shop, "locked.zip", bytes(locked)), put_bytes(shop, "torn.zip", torn),
             put_bytes(shop, "cut.zip", good[:-30]), put_bytes(shop, "half.zip", good[: len(good) // 2]),
             put_bytes(shop, "ok.png", png())]  # fmt: skip
    state = last(shop.batch(files, "adds-sigma"))
    assert [name for name, _ in state.failed] == ["x.png", "x.png", "cut.zip", "half.zip"]
    assert all("damaged ZIP file" in why for _, why in state.failed[2:])
    assert "encrypted" in state.failed[0][1] and names(state) == ["ok.denoised.png"]
    foreign = ("a.JXL", b"\0\0\0\x0cJXL " * 9)
    made = {"outer": [("inner.zip", good)], "none": [], "phone": [foreign, ("b.txt", b"")]}
    files = [put_bytes(shop, f"{name}.zip", zipped(entries)) for name, entries in made.items()]
    state = last(shop.batch(files, "adds-sigma"))
    assert [why.partition(";")[0] for _, why in state.failed] == [
        "outer.zip: no pictures in this ZIP",
        "none.zip: no pictures in this ZIP",
        "a.JXL: JPEG XL is not supported",
    ]
    assert state.left_out == 2 and state.archive is None
    for job in (shop.inspect, shop.denoise):
        told = message(lambda job=job: job(files[0], "adds-sigma"))
        assert told == "outer.zip: is a ZIP; the Batch tab takes it"
    assert "no pictures yet" in message(lambda: list(shop.batch([], "adds-sigma")))


# ---- the command ------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_port_that_is_taken_is_one_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run_cli(["ui", "--no-open", "--port", str(taken.getsockname()[1])]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "cannot listen" in error and "--port" in error


def test_missing_gradio_is_one_line_that_names_the_extra(capsys, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "gradio" or n.endswith("app.web_page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(app, "web_page", raising=False)
    monkeypatch.setattr(web.tempfile, "mkdtemp", keep := Keep(web.tempfile.mkdtemp))
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert run_cli(["ui", "--no-open", "--port", str(free_port())]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "zenith-ae[ui]" in error
    assert keep.made and not Path(keep.made[0]).exists()


class Keep:
    """Calls a function and remembers what it returned."""

    def __init__(self, function):
        self.function, self.made = function, []

    def __call__(self, *arguments, **options):
        self.made.append(self.function(*arguments, **options))
        return self.made[-1]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:7860/"),
        ("0.0.0.0", "http://127.0.0.1:7860/"),
        ("::1", "http://[::1]:7860/"),
        ("example.org", "http://example.org:7860/"),
    ],
)
def test_address_can_be_typed_into_a_browser(host, expected):
    assert web.address(host, 7860) == expected


def test_settings_of_gradio_in_the_environment_open_nothing(tmp_path, monkeypatch):
    before = {
        "GRADIO_SHARE": "True",
        "GRADIO_ALLOWED_PATHS": "/",
        "GRADIO_ROOT_PATH": "/x",
        "NO_PROXY": "a.b",
    }
    monkeypatch.setattr(os, "environ", before)
    web.set_environment(tmp_path, "192.0.2.2")
    assert "GRADIO_SHARE" not in os.environ and "GRADIO_ALLOWED_PATHS" not in os.environ
    assert os.environ["GRADIO_ROOT_PATH"] == "/x" and os.environ["NO_PROXY"].startswith("a.b,127.0.0.1")
    assert os.environ["NO_PROXY"].endswith(",192.0.2.2") and os.environ["no_proxy"].endswith(",192.0.2.2")
    assert os.environ["GRADIO_TEMP_DIR"] == str(tmp_path)


def test_help_does_not_import_gradio():
    code = (
        "import sys\nfrom zenith_ae.app.cli import run\nrun(['--help']); run(['ui', '--help'])\n"
        "sys.exit('gradio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


@pytest.mark.web
def test_interrupt_ends_with_130_and_leaves_nothing_behind(tmp_path):
    pytest.importorskip("gradio", minversion="6")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "zenith_ae", "ui", "--no-open", "--port", str(port)],
        env=os.environ | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr.readline() == f"zenith-ae: http://127.0.0.1:{port}/ (Ctrl-C stops)\n"
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
    assert process.stderr.read().strip() == "zenith-ae: interrupted"
    assert not folder.exists()


# ---- the server -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(request):
    """The page on a port of its own; with the small models, unless pictures of it are taken."""
    pytest.importorskip("gradio", minversion="6")
    if not SCREENSHOTS:
        request.getfixturevalue("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web.tempfile, "mkdtemp", keep := Keep(web.tempfile.mkdtemp))
        with web.serve("127.0.0.1", free_port(), threads=1, max_upload=2) as url:
            yield SimpleNamespace(url=url, folder=Path(keep.made[0]))
    assert not Path(keep.made[0]).exists()


@pytest.fixture(scope="module")
def client(server):
    from gradio_client import Client

    return Client(server.url, verbose=False, download_files=False, analytics_enabled=False)


def http(server, path, method="GET", body=None, headers=None):
    """(status, text) of a request, sent as it is written: no client tidies the path."""
    import http.client

    connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode("latin-1"), dict(response.getheaders())
    finally:
        connection.close()


def uploaded(server, data):
    """A file that was sent to the page, as its endpoints take one."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    status, text, _ = http(server, "/gradio_api/upload", "POST", head + data + b"\r\n--b--\r\n", kind)
    assert status == 200, text
    return {"path": json.loads(text)[0], "meta": {"_type": "gradio.FileData"}}


def fetch(server, path):
    status, text, _ = http(server, f"/gradio_api/file={path}")
    assert status == 200
    return text.encode("latin-1")


@pytest.mark.web
@pytest.mark.skipif(bool(SCREENSHOTS), reason="pictures are taken")
class TestServer:
    def test_endpoints_take_files_and_give_files_and_facts(self, server, client, tmp_path):
        from gradio_client import handle_file

        PICTURES["deep.tif"]().save(tmp_path / "deep.tif")
        picture = handle_file(tmp_path / "deep.tif")
        file, facts = client.predict(picture, strength=1, passes=2, api_name="/denoise")
        with Image.open(io.BytesIO(fetch(server, file["path"]))) as image:
            assert (image.mode, image.size, image.format) == ("I;16", (21, 13), "TIFF")
        assert facts["sigma"] == 10 and facts["output"] == "deep.denoised.tif"
        assert facts["passes"] == 2
        left_empty = client.predict(picture, None, None, None, passes=None, api_name="/denoise")
        assert left_empty[1]["sigma"] == 10 and left_empty[1]["passes"] == 1
        assert client.predict(picture, None, None, api_name="/encode")[1]
        latents, facts = client.predict(picture, "identity", "fp32", api_name="/encode")
        (tmp_path / "deep.latent.safetensors").write_bytes(fetch(server, latents["path"]))
        decoded, _ = client.predict(handle_file(tmp_path / "deep.latent.safetensors"), api_name="/decode")
        with Image.open(io.BytesIO(fetch(server, decoded["path"]))) as image:
            assert (image.mode, image.size, image.format) == ("L", (21, 13), "PNG")
        picture, latents, facts = client.predict(picture, "identity", "fp16", api_name="/roundtrip")
        assert facts["psnr"] > 50
        assert client.predict(api_name="/models") == {"denoiser": ["adds-sigma"], "autoencoder": ["identity"]}

    def test_batch_endpoint_reports_on_the_way_and_gives_a_zip(self, server, client, tmp_path):
        from gradio_client import handle_file

        (tmp_path / "b.png").write_bytes(broken_png())
        (tmp_path / "shots.zip").write_bytes(zipped([("in/a.png", png())]))
        files = [handle_file(tmp_path / name) for name in ("b.png", "shots.zip")]
        job = client.submit(files, sigma=5, api_name="/batch")
        archive, report = job.result(60)
        assert len(job.outputs()) == 3 and report["finished"] and report["done"] == 2
        assert report["failed"][0][0] == "b.png"
        with zipfile.ZipFile(io.BytesIO(fetch(server, archive["path"]))) as inside:
            assert inside.namelist() == ["in/a.denoised.png"]

    def test_errors_of_endpoints_are_one_line_without_a_path(self, server, client, tmp_path):
        from gradio_client import handle_file
        from gradio_client.exceptions import AppError

        (tmp_path / "b.png").write_bytes(broken_png())
        with pytest.raises(AppError) as caught:
            client.predict(handle_file(tmp_path / "b.png"), api_name="/denoise")
        text = str(caught.value)
        assert text.startswith("b.png: damaged or truncated picture") and str(server.folder) not in text
        assert "\n" not in text
        (tmp_path / "good.png").write_bytes(png())
        for passes in (3, 1.5):
            with pytest.raises(AppError, match=f"passes must be one of 1, 2, 4, 8, got {passes}"):
                client.predict(handle_file(tmp_path / "good.png"), passes=passes, api_name="/denoise")

    def test_every_named_endpoint_is_documented(self, server):
        status, text, _ = http(server, "/gradio_api/info")
        listed = set(json.loads(text)["named_endpoints"])
        docs = (Path(__file__).parents[1] / "docs" / "web-ui.md").read_text()
        assert status == 200
        assert listed == set(re.findall(r"^\| `(/\w+)`", docs, re.MULTILINE))

    def test_no_file_of_the_server_can_be_read(self, server):
        folder = str(server.folder)
        up = "/".join([".."] * 12)
        here = str(Path(__file__).resolve())
        for path in (
            "/etc/passwd", "//etc/passwd", f"{up}/etc/passwd", f"{folder}/{up}/etc/passwd",
            f"{folder}/..%2f..%2f..%2fetc/passwd", "%2fetc%2fpasswd", "file:///etc/passwd",
            "/proc/self/environ", here, "pyproject.toml", "README.md", folder, f"{folder}/",
            "/etc/passwd%00.png",
        ):  # fmt: skip
            for route in ("/gradio_api/file=", "/gradio_api/file/", "/file=", "/static/", "/assets/",
                          "/gradio_api/stream/", "/svelte/"):  # fmt: skip
                status, text, _ = http(server, route + path)
                assert status >= 400 and "root:" not in text, (route, path, status)

    def test_no_file_of_the_server_can_be_sent_to_an_endpoint(self, server, models):
        meta = {"_type": "gradio.FileData"}
        here = str(Path(__file__).resolve().parents[1] / "examples" / "cat.png")
        files = [
            {"path": path, "orig_name": "cat.png", **extra}
            for path in ("/etc/passwd", here, f"{server.folder}/../../etc/passwd")
            for extra in ({"meta": meta}, {}, {"meta": meta, "url": path}, {"meta": meta, "is_stream": True})
        ]  # fmt: skip
        picture = uploaded(server, png())
        encoded = load(models["identity"]).encode_picture(read_picture(png(), "a.png"))
        latents = uploaded(server, encode_latents(encoded, "fp16"))
        for file in [picture, *files, "/etc/passwd", here]:
            calls = {
                "denoise": [file, "adds-sigma", *SETTINGS],
                "encode": [file, "identity", "fp16"],
                "decode": [latents if file is picture else file],
                "roundtrip": [file, "identity", "fp16"],
                "batch": [[file], "adds-sigma", *SETTINGS],
                "compare": [file, ["identity"], 25],
            }
            for name, data in calls.items():
                status, text = call(server, name, data)
                if file is picture:  # else a call would be refused for what is wrong with it otherwise
                    assert status == 200 and "event: complete" in text, (name, text)
                    continue
                assert status >= 400 or "event: error" in text, (name, file, text)
                assert "event: complete" not in text and "root:" not in text

    def test_no_way_leads_past_the_queue(self, server, tmp_path):
        kind = {"Content-Type": "application/json"}
        body = json.dumps({"data": [None, "adds-sigma", *SETTINGS]}).encode()
        for route in ("run", "api"):
            assert http(server, f"/gradio_api/{route}/denoise", "POST", body, kind)[0] == 404

    def test_paths_as_names_of_models_are_refused(self, server, models):
        status, text = call(server, "compare", [None, ["/etc/passwd"], 25])
        assert status >= 400 or "event: error" in text
        status, text = call(server, "decode", [{"path": str(models["identity"]), "meta": {}}])
        assert status >= 400 or "event: error" in text

    def test_server_fetches_nothing_from_elsewhere(self, server):
        for where in ("http://127.0.0.1:9/x.png", "https://example.org/x.png", "HTTP://example.org/x.png"):
            for route in ("/gradio_api/file=", "/gradio_api/proxy=", "/gradio_api/file/"):
                assert http(server, route + where)[0] == 403
            file = {"path": where, "meta": {"_type": "gradio.FileData"}}
            status, text = call(server, "denoise", [file, "adds-sigma", *SETTINGS])
            assert status == 403 and "upload" in text
        for page in (
            "/monitoring",
            "/monitoring/summary",
            "/gradio_api/process_recording",
            "/docs",
            "/redoc",
        ):
            assert http(server, page)[0] in (403, 404)

    def test_uploads_and_requests_are_limited(self, server):
        head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="x.png"\r\n\r\n'
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        status, _, _ = http(server, "/gradio_api/upload", "POST", head + b"0" * 100 + b"\r\n--b--\r\n", kind)
        assert status == 200
        big = head + b"0" * (2 * 2**20 + 1) + b"\r\n--b--\r\n"
        assert http(server, "/gradio_api/upload", "POST", big, kind)[0] == 413
        kind = {"Content-Type": "application/json"}
        body = b'{"data": ["' + b"0" * web.Guard.MAX_BODY + b'"]}'
        assert http(server, "/gradio_api/call/denoise", "POST", body, kind)[0] == 413

    def test_pages_allow_nothing_but_this_server(self, server):
        _, _, headers = http(server, "/")
        headers = {key.lower(): value for key, value in headers.items()}
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "http" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"

    def test_jobs_on_the_models_run_one_at_a_time(self, client, tmp_path, monkeypatch):
        from gradio_client import handle_file

        real, running, most = web_jobs._clean, [], []

        def counted(*settings):
            running.append(1)
            most.append(len(running))
            time.sleep(0.1)  # time for another to come in, if it could
            running.pop()
            return real(*settings)

        monkeypatch.setattr(web_jobs, "_clean", counted)
        (tmp_path / "x.png").write_bytes(png())
        picture = handle_file(tmp_path / "x.png")
        jobs = [client.submit(picture, api_name="/denoise") for _ in range(3)]
        jobs += [client.submit([picture, picture], api_name="/batch") for _ in range(2)]
        for job in jobs:
            job.result(60)
        assert most == [1] * 7


def call(server, name, data):
    """Status and event stream of a call as any HTTP client can make it."""
    body = json.dumps({"data": data}).encode()
    kind = {"Content-Type": "application/json"}
    status, text, _ = http(server, f"/gradio_api/call/{name}", "POST", body, kind)
    if status == 200:
        status, text, _ = http(server, f"/gradio_api/call/{name}/{json.loads(text)['event_id']}")
    return status, text


# ---- the page ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(server):
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (extra dev)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(browser):
    """Tabs of one window share its cache: loading the page again is quick."""
    context = window(browser)
    yield context
    context.close()


def window(browser, width=1000, height=760, theme="light"):
    return browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, accept_downloads=True
    )


class Tab:
    """One tab of the browser with the page in it."""

    def __init__(self, context, server):
        self.page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.asked, self.failures = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.failures.append(str(error)))
        self.page.goto(server.url)
        self.page.wait_for_selector("#denoise-go")

    def open(self, name):
        self.page.get_by_role("tab", name=name).click()

    def upload(self, *files):
        """Into the drop area of the tab that is open."""
        self.page.locator("input[type=file]:not([disabled])").locator("visible=true").or_(
            self.page.locator("div[role=tabpanel]:visible input[type=file]")
        ).first.set_input_files([str(file) for file in files])
        self.holds(len(files))

    def paste(self, *names, more=(0,)):
        """Pictures, each with so many bytes behind it."""
        script = """([names, data, more]) => {
            const files = new DataTransfer();
            for (const [i, name] of names.entries())
                files.items.add(new File([Uint8Array.from(data), new Uint8Array(more[i])], name));
            document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: files, bubbles: true}));
        }"""
        self.page.evaluate(script, [names, list(png()), more])

    def drop(self, *names, where):
        """Pictures, on what is visible there; of two events, whether the browser would do what it does."""
        script = """([names, data, where]) => {
            const files = new DataTransfer();
            for (const name of names) files.items.add(new File([Uint8Array.from(data)], name));
            const what = {dataTransfer: files, bubbles: true, cancelable: true};
            const there = [...document.querySelectorAll(where)].find((e) => e.offsetParent);
            return ['dragover', 'drop'].map((kind) => there.dispatchEvent(new DragEvent(kind, what)));
        }"""
        return self.page.evaluate(script, [names, list(png()), where])

    def example(self):
        self.page.locator(".examples img:visible").first.click()
        self.holds(1)

    def clear(self):
        self.page.get_by_label("Clear").locator("visible=true").first.click()
        self.holds(0)

    def holds(self, count):
        """Wait until the drop area of the tab that is open lists so many files."""
        self.page.wait_for_function(
            "n => [...document.querySelectorAll('td.filename')].filter(e => e.offsetParent).length == n",
            arg=count,
        )

    def download(self, selector):
        with self.page.expect_download() as waiting:
            self.page.click(selector)
        return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()

    def text(self, selector):
        return self.page.inner_text(selector)

    def wait(self, selector):
        self.page.wait_for_selector(selector)

    def waits_at(self, place):
        """Wait for a place in the queue: of that line all but what CSS puts before it is hidden."""
        self.page.wait_for_function(
            """place => [...document.querySelectorAll('[data-place]')].some(e => e.offsetParent
                && e.dataset.place === place && getComputedStyle(e, '::before').visibility === 'visible'
                && getComputedStyle(e).visibility === 'hidden')""",
            arg=f"Place {place} in the queue",
        )

    def gone(self, selector):
        """Wait a few seconds, which is less than a `held` job takes, until there is none."""
        self.page.wait_for_selector(selector, state="detached", timeout=8000)

    def until(self, condition):
        """Wait for something that is not on the page."""
        for _ in range(300):
            if condition():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("it did not happen in half a minute")

    def begin(self, file, held):
        """Denoise a picture, until the job is `held`."""
        self.upload(file)
        self.wait("#denoise-facts .facts")
        self.page.click("#denoise-go")
        self.until(lambda: held.asked)

    def arrives(self):
        """For a block that does something which the server is told at once: until it has answered."""
        return self.page.expect_response(lambda response: "/run/" in response.url)

    def count(self, selector, number):
        """Wait until there are so many; a gallery fills a moment after the rest."""
        self.page.wait_for_function(
            "([s, n]) => document.querySelectorAll(s).length == n", arg=[selector, number]
        )

    def width(self):
        return self.page.evaluate("document.documentElement.scrollWidth")


@pytest.fixture
def tab(context, server):
    tab = Tab(context, server)
    yield tab
    tab.page.close()
    assert tab.failures == []
    assert {url for url in tab.asked if not url.startswith((server.url, "data:", "blob:"))} == set()


@pytest.fixture
def held(monkeypatch):
    """The first denoising stands at 42 % until ``gate`` is set; ``asked``, ``done``: widths of pictures."""
    held, real = SimpleNamespace(gate=threading.Event(), asked=[], done=[]), web_jobs._clean

    def clean(model, picture, sigma, settings, progress=None, made=None):
        held.asked.append(picture.width)
        if len(held.asked) == 1:
            if progress:
                progress(0.42)
            held.gate.wait(30)
        if progress:
            progress(0.43)
        held.done.append(picture.width)
        return real(model, picture, sigma, settings, progress, made)

    monkeypatch.setattr(web_jobs, "_clean", clean)
    yield held
    held.gate.set()


@pytest.fixture
def measuring(monkeypatch):
    """The first look at a picture waits until ``gate`` is set; ``asked``: how many there were."""
    waits, real = SimpleNamespace(gate=threading.Event(), asked=0), Workshop.inspect

    def inspect(workshop, file, model):
        waits.asked += 1
        if waits.asked == 1:
            waits.gate.wait(30)
        return real(workshop, file, model)

    monkeypatch.setattr(Workshop, "inspect", inspect)
    yield waits
    waits.gate.set()


@pytest.mark.web
@pytest.mark.skipif(bool(SCREENSHOTS), reason="pictures are taken")
class TestPage:
    def test_upload_denoise_slide_and_download(self, tab, tmp_path):
        # The name is also that of a page that is refused.
        PICTURES["deep.png"]().save(tmp_path / "monitoring.png")
        tab.upload(tmp_path / "monitoring.png")
        tab.wait("#denoise-facts .facts")
        assert "10.0" in tab.text("#denoise-facts") and "21 × 13 PNG grey, 16 bit" in tab.text(
            "#denoise-facts"
        )
        tab.page.get_by_label("number input for Strength").first.fill("0.5")
        tab.page.keyboard.press("Tab")
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        assert "megapixels/s" in tab.text("#denoise-facts")
        tab.wait("#denoise-removed img")
        name, data = tab.download("#denoise-get")
        assert name == "monitoring.denoised.png"
        with Image.open(io.BytesIO(data)) as image:
            assert image.mode == "I;16" and image.size == (21, 13)
            change = np.asarray(image).astype(int) - noise(channels=1, dtype=np.uint16)[..., 0]
        assert set(np.unique(change)) <= {1284, 1285, 1286}  # 65535 * 0.5 * 10 / 255

    def test_a_picture_that_is_dropped_beside_its_place_is_taken(self, tab):
        for name, place in (("first.png", ".wait"), ("second.png", "#denoise-slider")):
            tab.page.locator(place).locator("visible=true").first.wait_for()
            assert tab.drop(name, where=place) == [False, False]  # else the browser opens the picture
            tab.page.get_by_text(name.removesuffix(".png")).first.wait_for()
            tab.holds(1)
            tab.wait("#denoise-facts .facts")
        tab.open("Batch")
        tab.drop("third.png", where="[role=tabpanel]")
        tab.page.get_by_text("third").first.wait_for()

    def test_a_picture_is_pasted(self, tab):
        for name in ("screenshot", "another"):
            tab.paste(f"{name}.png")
            tab.page.get_by_text(name).first.wait_for()
            tab.holds(1)
            tab.wait("#denoise-facts .facts")

    def test_a_second_picture_is_taken_in_any_language_of_the_browser(self, context, server, tmp_path):
        german = context.browser.new_context(locale="de-DE")
        tab = Tab(german, server)
        (tmp_path / "first.png").write_bytes(png())
        tab.upload(tmp_path / "first.png")
        tab.wait("#denoise-facts .facts")
        assert tab.page.evaluate("document.documentElement.lang") == "en"
        tab.paste("second.png")
        tab.page.get_by_text("second").first.wait_for()
        tab.holds(1)
        german.close()

    def test_a_picture_above_the_limit_is_told_and_takes_nothing_away(self, tab, tmp_path):
        (tmp_path / "small.png").write_bytes(png())
        (tmp_path / "huge.png").write_bytes(png() + bytes(3 * 2**20))
        field = tab.page.locator("input[type=file]").first
        field.set_input_files(tmp_path / "huge.png")
        tab.page.get_by_text("Left out, larger than 2 MB: huge.png").wait_for()
        tab.upload(tmp_path / "small.png")
        tab.wait("#denoise-facts .facts")
        assert tab.page.locator(".left-out").count() == 0
        tab.paste("huge.png", more=[3 * 2**20])
        tab.page.get_by_text("Left out, larger than 2 MB: huge.png").wait_for()
        tab.holds(1)
        assert tab.page.is_visible("#denoise-facts .facts")

    @pytest.mark.parametrize("way", ["paste", "drop", "drop again"])
    def test_of_several_pictures_where_one_is_taken_the_others_are_told(self, tab, tmp_path, way):
        if way == "drop again":
            tab.paste("before.png")
            tab.wait("#denoise-facts .facts")
        if way == "paste":
            tab.paste("one.png", "two.png", "three.png", more=[0, 0, 0])
        else:
            where = "td.filename" if way == "drop again" else "button:has(input[type=file])"
            assert tab.drop("one.png", "two.png", "three.png", where=where) == [False, False]
        tab.page.get_by_text("Left out, since only Batch takes several: two.png, three.png").wait_for()
        tab.page.get_by_text("one").first.wait_for()
        tab.holds(1)
        tab.wait("#denoise-facts .facts")
        tab.open("Batch")
        tab.drop("one.png", "two.png", where="div[role=tabpanel]")
        tab.holds(2)

    def test_large_pictures_have_names_for_who_hears_the_page_too(self, tab, tmp_path):
        Image.new("RGB", (1840, 1226), (90, 120, 60)).save(tmp_path / "large.jpg")
        tab.upload(tmp_path / "large.jpg")
        tab.wait("#denoise-facts .facts")
        tab.page.locator(".results img[alt=Before]").first.wait_for()

    def test_a_picture_needs_no_ending(self, tab, tmp_path):
        offered = tab.page.locator("input[type=file]").first.get_attribute("accept").split(",")
        assert {"image/*", ".safetensors", *READABLE_SUFFIXES} == set(offered)
        (tmp_path / "scan").write_bytes(png())
        tab.upload(tmp_path / "scan")
        tab.wait("#denoise-facts .facts")

    def test_a_name_with_a_dot_in_front_is_taken_where_the_working_folder_is_above(
        self, tab, tmp_path, monkeypatch
    ):
        monkeypatch.chdir("/")
        (tmp_path / ".hidden.png").write_bytes(png())
        tab.upload(tmp_path / ".hidden.png")
        tab.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        name, _ = tab.download("#denoise-get:visible")
        assert name.endswith("hidden.denoised.png")

    def test_a_result_says_that_the_settings_have_changed_since(self, tab):
        stale = "#denoise-facts.stale"
        tab.example()
        tab.wait("#denoise-facts .facts")
        strength = tab.page.get_by_label("number input for Strength").first
        strength.fill("0.9")
        assert tab.page.query_selector(stale) is None  # there is none yet
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        assert tab.page.query_selector(stale) is None
        strength.fill("0.5")
        tab.wait(stale)
        tab.page.click("#denoise-go")
        tab.count(stale, 0)
        tab.wait("#denoise-get:visible")
        strength.fill("0.6")
        tab.wait(stale)
        picture = tab.page.get_attribute("#denoise-removed img", "src")
        tab.page.click("#denoise-go")
        # Before the result comes, which then is that of the level found.
        tab.page.get_by_label("Find the noise level by itself").first.uncheck()
        tab.page.wait_for_function(
            "src => document.querySelector('#denoise-removed img:not([src=\"' + src + '\"])')", arg=picture
        )
        tab.page.wait_for_timeout(500)  # until all of it is there
        assert tab.page.query_selector(stale) is not None
        tab.page.get_by_label("Find the noise level by itself").first.check()
        tab.gone(stale)  # as it was
        tab.clear()
        tab.count(stale, 0)

    @pytest.mark.parametrize("name", ["Latents", "Batch", "Compare"])
    def test_every_tab_says_that_the_settings_have_changed(self, tab, tmp_path, name):
        (tmp_path / "x.png").write_bytes(png())
        tab.open(name)
        tab.upload(tmp_path / "x.png")
        place = f"#{name.lower()}"
        tab.page.click(f"{place}-go")
        tab.wait(f"{place}-get:visible, {place}-table table")
        assert tab.page.query_selector(".stale") is None
        if name == "Latents":
            tab.page.get_by_label("8 bit").check()
            tab.wait(".stale")
            tab.page.get_by_label("16 bit").check()
            tab.gone(".stale")  # as it was
            tab.page.get_by_label("8 bit").check()
        else:
            label = {"Batch": "Strength", "Compare": "Noise to add"}[name]
            tab.page.get_by_label(f"number input for {label}").locator("visible=true").fill("0.5")
        tab.wait(".stale")
        tab.page.click(f"{place}-go")
        tab.gone(".stale")

    def test_slider_moves(self, tab):
        tab.example()
        tab.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        # The picture in front is cut off at the handle.
        handle = tab.page.locator("#denoise-slider .inner")
        before = handle.bounding_box()
        x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
        tab.page.mouse.move(x, y)
        tab.page.mouse.down()
        tab.page.mouse.move(x - 120, y, steps=5)
        tab.page.mouse.up()
        assert handle.bounding_box()["x"] == pytest.approx(before["x"] - 120, abs=3)
        slider = tab.page.get_by_role("slider", name="Line between before and after")
        for key, share in (
            ("Home", 0),
            ("ArrowRight", 5),
            ("ArrowRight", 10),
            ("End", 100),
            ("ArrowLeft", 95),
        ):
            slider.press(key)
            tab.page.wait_for_function(
                "share => Math.abs(document.activeElement.ariaValueNow - share) <= 1", arg=share
            )

    def test_a_number_that_is_deleted_is_the_usual_one_again(self, tab):
        """Gradio took the least: a strength of 0, which does nothing."""
        number = tab.page.get_by_label("number input for Strength").first
        for typed, expected in (("0.35", "0.35"), ("", "1")):
            number.fill(typed)
            tab.page.keyboard.press("Tab")
            tab.page.wait_for_function(
                "([e, value]) => e.value === value", arg=[number.element_handle(), expected]
            )

    def test_noise_level_by_hand_begins_at_the_estimate(self, tab, tmp_path):
        (tmp_path / "x.png").write_bytes(png())
        tab.upload(tmp_path / "x.png")
        tab.wait("#denoise-facts .facts")
        tab.page.get_by_label("Find the noise level by itself").first.uncheck()
        number = tab.page.get_by_label("number input for Noise level").locator("visible=true")
        begins = (  # asked anew each time: the field is made again when it is shown again
            "() => [...document.querySelectorAll('input[aria-label=\"number input for Noise level\"]')]"
            ".some(e => e.offsetParent && e.value == '10')"
        )
        tab.page.wait_for_function(begins)
        number.fill("40")
        tab.page.keyboard.press("Tab")
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        assert "40.0" in tab.text("#denoise-facts")
        _, data = tab.download("#denoise-get")
        with Image.open(io.BytesIO(data)) as image:
            assert np.array_equal(np.asarray(image), noise() + 40)
        for box in (True, False):  # what was typed stays
            tab.page.get_by_label("Find the noise level by itself").first.set_checked(box)
        tab.page.wait_for_function(begins.replace("'10'", "'40'"))
        tab.clear()
        tab.upload(tmp_path / "x.png")  # as for each new picture
        tab.page.wait_for_function(begins)

    def test_a_level_by_hand_stays_when_the_estimate_comes(self, tab, tmp_path, measuring):
        (tmp_path / "x.png").write_bytes(png())
        tab.upload(tmp_path / "x.png")
        tab.until(lambda: measuring.asked)
        tab.page.get_by_label("Find the noise level by itself").first.uncheck()
        number = tab.page.get_by_label("number input for Noise level").locator("visible=true")
        number.fill("40")
        tab.page.keyboard.press("Tab")
        measuring.gate.set()
        tab.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        assert number.input_value() == "40" and "40.0" in tab.text("#denoise-facts")
        assert tab.page.query_selector(".stale") is None

    def test_a_picture_in_the_place_of_one_that_is_measured_is_measured_too(self, tab, tmp_path, measuring):
        (tmp_path / "x.png").write_bytes(png())
        (tmp_path / "y.png").write_bytes(png(1, (22, 13)))
        tab.upload(tmp_path / "x.png")
        tab.until(lambda: measuring.asked)
        tab.clear()
        tab.upload(tmp_path / "y.png")
        measuring.gate.set()
        tab.wait("#denoise-facts .facts")
        assert "22 × 13" in tab.text("#denoise-facts")

    def test_what_a_latent_file_became_is_of_no_settings(self, tab, tmp_path):
        tab.open("Latents")
        (tmp_path / "x.png").write_bytes(png())
        tab.upload(tmp_path / "x.png")
        tab.page.click("#latents-go")
        tab.wait("#latents-get:visible")
        name, data = tab.download("#latents-get")
        (tmp_path / name).write_bytes(data)
        tab.clear()
        tab.upload(tmp_path / name)
        tab.page.click("#latents-go")
        tab.wait("#latents-decoded:visible")
        tab.page.get_by_label("8 bit").check()
        tab.page.wait_for_timeout(300)
        assert tab.page.query_selector(".stale") is None

    def test_the_last_press_counts(self, tab, tmp_path, monkeypatch):
        gate, asked, real = threading.Event(), [], web_jobs._clean

        def first_waits(model, picture, sigma, settings, *rest):
            asked.append(settings["strength"])
            gate.wait(30)
            return real(model, picture, sigma, settings, *rest)

        monkeypatch.setattr(web_jobs, "_clean", first_waits)
        (tmp_path / "x.png").write_bytes(png())
        tab.upload(tmp_path / "x.png")
        tab.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        tab.until(lambda: asked)
        tab.page.get_by_label("number input for Strength").first.fill("0")
        tab.page.keyboard.press("Tab")
        tab.page.click("#denoise-go")
        gate.set()
        for _ in range(100):  # until the second result is there
            _, data = tab.download("#denoise-get")
            with Image.open(io.BytesIO(data)) as image:
                if same := np.array_equal(np.asarray(image), noise()):
                    break
            tab.page.wait_for_timeout(100)
        assert asked == [1, 0] and same

    def test_another_picture_during_a_job_is_the_one_that_counts(self, tab, tmp_path, held):
        (tmp_path / "old.png").write_bytes(png())
        (tmp_path / "new.png").write_bytes(png(1, (31, 23)))
        tab.begin(tmp_path / "old.png", held)
        tab.clear()
        tab.gone("#denoise-facts .facts")  # at once
        tab.upload(tmp_path / "new.png")
        tab.page.evaluate(
            "new MutationObserver(() => {"
            " if (document.querySelector('#denoise-facts').innerText.includes('old.png'))"
            " document.title = 'old';"
            "}).observe(document.body, {childList: true, subtree: true, characterData: true})"
        )
        tab.page.click("#denoise-go")
        held.gate.set()
        tab.wait("#denoise-get:visible")
        tab.page.wait_for_timeout(1000)  # for what comes late
        assert "new.png" in tab.text("#denoise-facts") and tab.page.title() != "old"
        assert tab.download("#denoise-get")[0] == "new.denoised.png"
        assert held.asked == [21, 31] and held.done == [31]

    @pytest.mark.parametrize("name", ["Latents", "Compare"])
    def test_other_tabs_too_drop_what_is_not_of_their_picture(self, tab, tmp_path, monkeypatch, name):
        gate, asked = threading.Event(), []

        def wait_first(real):
            def work(workshop, file, *values):
                asked.append(Path(file).name)
                if len(asked) == 1:
                    gate.wait(30)
                return real(workshop, file, *values)

            return work

        method, place = {"Latents": ("roundtrip", "#latents"), "Compare": ("compare", "#compare")}[name]
        monkeypatch.setattr(web_jobs.Workshop, method, wait_first(getattr(web_jobs.Workshop, method)))
        result = {"Latents": "#latents-facts .facts", "Compare": "#compare-table table"}[name]
        for which, size in (("old", (21, 13)), ("new", (31, 23))):
            (tmp_path / f"{which}.png").write_bytes(png(size[0], size))
        tab.open(name)
        tab.upload(tmp_path / "old.png")
        tab.page.click(f"{place}-go")
        tab.until(lambda: asked)
        tab.clear()
        tab.upload(tmp_path / "new.png")
        gate.set()
        tab.page.wait_for_timeout(1000)
        assert tab.page.query_selector(result) is None
        tab.page.click(f"{place}-go")
        tab.wait(result)
        tab.page.wait_for_timeout(500)
        assert asked == ["old.png", "new.png"] and tab.page.query_selector(result) is not None

    def test_a_job_is_cancelled(self, tab, tmp_path, held):
        (tmp_path / "x.png").write_bytes(png())
        tab.upload(tmp_path / "x.png")
        tab.wait("#denoise-facts .facts")
        assert tab.page.is_disabled("#denoise-stop")
        tab.page.click("#denoise-go")
        tab.until(lambda: held.asked)
        tab.wait(".progress-level:has-text('42.0%')")
        tab.page.click("#denoise-stop")
        tab.wait("#denoise-stop:disabled")
        held.gate.set()
        tab.page.wait_for_function("document.querySelector('.progress-level') === null")
        assert held.done == [] and not tab.page.is_visible("#denoise-get")
        assert "x.png" in tab.text("#denoise-facts")  # what was known stays
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        tab.wait("#denoise-stop:disabled")
        assert held.done == [21]
        held.asked.clear()  # so that the next is held again
        held.gate.clear()
        tab.page.click("#denoise-go")
        tab.until(lambda: held.asked)
        tab.page.click("#denoise-stop")
        held.gate.set()
        tab.wait("#denoise-stop:disabled")
        assert tab.page.query_selector(".stale") is None  # what is there is of these settings

    def test_other_shares_of_what_is_known_follow_at_once(self, server, tab, tmp_path, monkeypatch):
        ran, real = [], Denoiser.changes
        monkeypatch.setattr(Denoiser, "changes", lambda *a, **k: (ran.append(1), real(*a, **k))[1])
        (tmp_path / "x.png").write_bytes(png())
        tab.upload(tmp_path / "x.png")
        tab.wait("#denoise-facts .facts")
        strength = tab.page.get_by_label("number input for Strength").locator("visible=true")
        strength.fill("0.9")
        tab.page.keyboard.press("Tab")
        tab.page.wait_for_timeout(500)
        assert ran == []  # nothing is known yet
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        there = len([*server.folder.glob("*/*.denoised.png")])
        for share, change in (("0.5", 5), ("0", 0), (None, 10)):
            picture = tab.page.get_attribute("#denoise-removed img", "src")
            if share:
                strength.fill(share)
                tab.page.keyboard.press("Tab")
            else:  # what it is at first
                tab.page.get_by_label("Reset to default value").locator("visible=true").first.click()
            tab.wait(f"#denoise-removed img:not([src='{picture}'])")
            tab.page.get_by_text("from the run before").wait_for()
            tab.wait("#denoise-stop:disabled")
            with Image.open(io.BytesIO(tab.download("#denoise-get")[1])) as image:
                assert np.array_equal(np.asarray(image), noise() + change)
            tab.gone(".stale")
        assert len([*server.folder.glob("*/*.denoised.png")]) == there + 2  # three are kept
        assert ran == [1]
        tab.page.get_by_label("Find the noise level by itself").first.uncheck()
        tab.wait(".stale")  # another level needs the network, and so a press
        strength.fill("0.7")
        tab.page.keyboard.press("Tab")
        tab.page.wait_for_timeout(500)
        assert ran == [1] and tab.page.query_selector(".stale") is not None
        tab.page.click("#denoise-go")
        tab.gone(".stale")
        tab.page.get_by_text("megapixels/s").wait_for()
        assert ran == [1, 1]

    def test_a_share_that_moved_during_the_run_is_followed_then(self, tab, tmp_path, held):
        (tmp_path / "x.png").write_bytes(png())
        tab.begin(tmp_path / "x.png", held)
        tab.page.get_by_label("number input for Strength").locator("visible=true").fill("0")
        tab.page.keyboard.press("Tab")
        tab.page.wait_for_timeout(300)
        held.gate.set()
        tab.page.get_by_text("from the run before").wait_for()
        tab.wait("#denoise-stop:disabled")
        with Image.open(io.BytesIO(tab.download("#denoise-get")[1])) as image:
            assert np.array_equal(np.asarray(image), noise())
        tab.gone(".stale")

    def test_a_second_press_stops_the_job_of_the_first(self, tab, tmp_path, held, monkeypatch):
        from zenith_ae.app.web_windows import View

        presses, press = [], View.press
        monkeypatch.setattr(View, "press", lambda view: presses.append(press(view)) or presses[-1])
        (tmp_path / "x.png").write_bytes(png())
        tab.begin(tmp_path / "x.png", held)
        tab.page.click("#denoise-go")
        tab.until(lambda: len(presses) == 2)
        held.gate.set()
        tab.wait("#denoise-get:visible")
        tab.wait("#denoise-stop:disabled")
        assert held.asked == [21, 21] and held.done == [21]

    def test_of_jobs_that_wait_only_the_last_is_done(self, context, server, tab, tmp_path, held):
        other = Tab(context, server)
        for i, page in enumerate((tab, other)):
            (tmp_path / f"{i}.png").write_bytes(png(i, (21 + i, 13)))
            page.upload(tmp_path / f"{i}.png")
            page.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        tab.until(lambda: held.asked)
        strength = other.page.get_by_label("number input for Strength").locator("visible=true")
        for share in ("0.5", "0.3", "0"):
            strength.fill(share)
            other.page.keyboard.press("Tab")
            with other.arrives():
                other.page.click("#denoise-go")
        held.gate.set()
        other.wait("#denoise-get:visible")
        with Image.open(io.BytesIO(other.download("#denoise-get")[1])) as image:
            assert np.array_equal(np.asarray(image), noise((22, 13), seed=1))
        other.wait("#denoise-stop:disabled")
        assert held.done == [21, 22] and other.page.query_selector(".stale") is None
        other.page.close()

    def test_progress_and_the_end_of_an_error_are_seen_without_a_picture(self, tab, tmp_path, held):
        tab.page.click("#denoise-go")
        tab.page.get_by_text("no picture yet").wait_for()
        (tmp_path / "x.png").write_bytes(png())
        (tmp_path / "broken.png").write_bytes(broken_png())
        tab.upload(tmp_path / "broken.png")
        tab.wait("#denoise-facts .failed")
        held.gate.set()
        tab.page.click("#denoise-go")
        tab.page.get_by_text("broken.png: damaged").wait_for()
        held.gate.clear()
        with tab.arrives():
            tab.clear()
        with tab.arrives():
            tab.upload(tmp_path / "x.png")
        tab.page.click("#denoise-go")
        tab.until(lambda: held.asked)
        tab.page.locator(".progress-level").locator("visible=true").first.wait_for()
        assert tab.page.query_selector("#denoise-facts .failed") is None
        held.gate.set()
        tab.wait("#denoise-get:visible")

    def test_progress_is_seen_where_the_press_was_faster_than_the_file(self, tab, tmp_path, monkeypatch):
        from zenith_ae.app.web_windows import View

        turn, clean, turned, seen = View.turn, web_jobs._clean, [], threading.Event()

        def late(view, file):
            if file:
                time.sleep(1)
            turn(view, file)
            turned.append(file)

        def reporting(model, picture, sigma, settings, progress=None, made=None):
            for share in np.linspace(0.1, 0.9, 100):
                progress(share)
                if seen.wait(0.1):
                    break
            return clean(model, picture, sigma, settings, None, made)

        monkeypatch.setattr(View, "turn", late)
        monkeypatch.setattr(web_jobs, "_clean", reporting)
        (tmp_path / "x.png").write_bytes(png())
        with tab.arrives():  # the press
            tab.upload(tmp_path / "x.png")
            tab.page.click("#denoise-go")
        tab.until(lambda: any(turned))
        tab.page.wait_for_timeout(500)
        tab.page.locator(".progress-level").locator("visible=true").first.wait_for(timeout=8000)
        seen.set()
        tab.wait("#denoise-get:visible")

    def test_who_waits_sees_the_place_in_the_queue(self, context, server, tab, tmp_path, held):
        # A browser has six connections to a server, and a page that waits takes two: the third has its own.
        own = window(context.browser)
        other, third = Tab(context, server), Tab(own, server)
        for i, page in enumerate((tab, other, third)):
            (tmp_path / f"{i}.png").write_bytes(png(i, (21 + i, 13)))
            page.upload(tmp_path / f"{i}.png")
            page.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        tab.until(lambda: held.asked)
        other.page.click("#denoise-go")
        other.waits_at(1)
        third.page.click("#denoise-go")
        third.waits_at(2)
        third.page.click("#denoise-stop")
        third.wait("#denoise-stop:disabled")
        assert third.page.evaluate("document.activeElement.id") == "denoise-go"
        third.page.locator("[data-place^=Place]").first.wait_for(state="hidden")
        third.page.click("#denoise-go")
        third.waits_at(3)  # the job before ends when its turn comes
        third.page.click("#denoise-stop")
        third.wait("#denoise-stop:disabled")
        held.gate.set()
        for page in (tab, other):
            page.wait("#denoise-get:visible")
        third.page.wait_for_function("document.querySelector('[data-place^=Place]') === null")
        assert held.done == [21, 22] and not third.page.is_visible("#denoise-get")
        other.page.close()
        own.close()

    def test_broken_file_is_one_clear_line_and_the_page_goes_on(self, tab, tmp_path):
        (tmp_path / "broken.png").write_bytes(broken_png())
        tab.upload(tmp_path / "broken.png")
        tab.wait("#denoise-facts .failed")
        text = tab.text("#denoise-facts")
        assert text.startswith("broken.png: damaged or truncated picture") and "Traceback" not in text
        assert "\n" not in text.strip()
        tab.example()
        tab.wait("#denoise-facts .facts")
        tab.open("Latents")
        tab.upload(tmp_path / "broken.png")
        tab.page.click("#latents-go")
        tab.wait("#latents-facts .failed")
        assert "broken.png" in tab.text("#latents-facts")

    def test_batch_of_20_with_one_broken(self, tab, tmp_path):
        for i in range(19):
            (tmp_path / f"{i:02}.png").write_bytes(png(i))
        (tmp_path / "last.zip").write_bytes(zipped([("<b>.png", broken_png())]))
        tab.open("Batch")
        tab.upload(*sorted(tmp_path.iterdir()))
        tab.page.click("#batch-go")
        tab.wait("#batch-get:visible")
        text = tab.text("#batch-status")
        assert "Done: 19 of 20" in text and "1 failed" in text
        assert "<b>.png: damaged or truncated picture" in text  # shown, not obeyed
        tab.count("#batch-gallery img", 19)
        name, data = tab.download("#batch-get")
        assert name == "denoised.zip"
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.namelist() == [f"{i:02}.denoised.png" for i in range(19)]
        tab.clear()  # what is there now is not the result of the next files
        tab.page.wait_for_selector("#batch-get", state="hidden")
        assert "Many pictures at once" in tab.text("#batch-status")

    def test_batch_leaves_out_what_is_too_large(self, tab, tmp_path):
        (tmp_path / "large.png").write_bytes(b"0" * (2 * 2**20 + 1))
        (tmp_path / "small.png").write_bytes(png())
        tab.open("Batch")
        field = tab.page.locator("div[role=tabpanel]:visible input[type=file]")
        field.set_input_files([tmp_path / "large.png", tmp_path / "small.png"])
        tab.holds(1)
        assert tab.text(".left-out") == "Left out, larger than 2 MB: large.png"
        tab.page.click("#batch-go")
        tab.wait("#batch-get:visible")
        assert "Done: 1 of 1" in tab.text("#batch-status")
        tab.paste("huge.png", "other.png", more=[3 * 2**20, 0])
        tab.page.get_by_text("other").first.wait_for()
        tab.holds(2)
        assert tab.text(".left-out") == "Left out, larger than 2 MB: huge.png"

    def test_batch_that_waits_says_so_and_is_cancelled(self, context, server, tab, tmp_path, held):
        other = Tab(context, server)
        for i, page in enumerate((tab, other)):
            (tmp_path / f"{i}.png").write_bytes(png(i, (21 + i, 13)))
            if page is other:
                page.open("Batch")
            page.upload(tmp_path / f"{i}.png")
        tab.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        tab.until(lambda: held.asked)
        other.page.click("#batch-go")
        other.page.get_by_text("Waits for its turn").wait_for()
        assert other.page.is_disabled("#batch-go")
        other.page.click("#batch-stop")
        other.page.get_by_text("Many pictures at once").wait_for()
        assert other.page.is_enabled("#batch-go") and not other.page.is_visible("#batch-stop")
        other.clear()  # and another batch is asked for while that one is in the queue still
        (tmp_path / "2.png").write_bytes(png(2, (23, 13)))
        other.upload(tmp_path / "2.png")
        other.page.click("#batch-go")
        other.page.get_by_text("Waits for its turn").wait_for()
        held.gate.set()
        tab.wait("#denoise-get:visible")
        other.wait("#batch-get:visible")
        assert held.asked == [21, 23] and not other.page.is_visible("#batch-stop")
        assert zipfile.ZipFile(io.BytesIO(other.download("#batch-get")[1])).namelist() == ["2.denoised.png"]
        other.page.close()

    def test_batch_says_that_its_files_have_changed(self, tab, tmp_path, held):
        for i in range(2):
            (tmp_path / f"{i}.png").write_bytes(png(i))
        tab.open("Batch")
        tab.upload(*sorted(tmp_path.iterdir()))
        tab.page.click("#batch-go")
        tab.until(lambda: held.asked)
        with tab.arrives():
            tab.clear()
        held.gate.set()
        tab.wait("#batch-get:visible")
        assert "Done: 2 of 2" in tab.text("#batch-status")
        tab.page.get_by_text("The files have changed").wait_for()
        tab.upload(tmp_path / "0.png")
        tab.page.get_by_text("Many pictures at once").wait_for()

    def test_batch_is_cancelled_and_keeps_what_is_done(self, tab, tmp_path, monkeypatch):
        gate, real = threading.Event(), web_jobs._clean

        def second_waits(model, picture, *settings):
            if picture.pixels[0, 0, 0] == 1:
                gate.wait(30)
            return real(model, picture, *settings)

        monkeypatch.setattr(web_jobs, "_clean", second_waits)
        for i in range(5):
            Image.new("RGB", (9, 9), (i, i, i)).save(tmp_path / f"{i}.png")
        tab.open("Batch")
        tab.upload(*sorted(tmp_path.iterdir()))
        tab.page.click("#batch-go")
        tab.page.get_by_text("now 1.png").wait_for()
        try:
            tab.page.click("#batch-stop")
            tab.wait("#batch-stop:disabled:has-text('Finishes the picture in hand')")
        finally:
            gate.set()
        tab.wait("#batch-get:visible")
        assert "Cancelled: 2 of 5" in tab.text("#batch-status")
        assert not tab.page.is_visible("#batch-stop")
        _, data = tab.download("#batch-get")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.namelist() == ["0.denoised.png", "1.denoised.png"]

    @pytest.mark.parametrize("name, job, facts", [
        ("Latents", "roundtrip", "#latents-facts .facts"), ("Compare", "compare", "#compare-table table"),
    ])  # fmt: skip
    def test_a_job_on_latents_and_a_comparison_are_cancelled(
        self, tab, tmp_path, monkeypatch, name, job, facts
    ):
        begun, gate, done, real = threading.Event(), threading.Event(), [], getattr(Workshop, job)

        def waits(shop, *settings):
            *_, report = settings
            begun.set()
            gate.wait(30)
            report(0.5)
            done.append(1)
            return real(shop, *settings)

        monkeypatch.setattr(Workshop, job, waits)
        (tmp_path / "a.png").write_bytes(png())
        go, stop = f"#{name.lower()}-go", f"#{name.lower()}-stop"
        tab.open(name)
        tab.upload(tmp_path / "a.png")
        tab.wait(f"{stop}:disabled")
        try:
            tab.page.click(go)
            tab.until(begun.is_set)
            tab.page.click(stop)
            tab.wait(f"{stop}:disabled")
        finally:
            gate.set()
        tab.page.click(go)
        tab.wait(facts)
        tab.wait(f"{stop}:disabled")
        assert len(done) == 1

    def test_two_tabs_at_once_do_not_mix(self, context, server, tab, tmp_path):
        other = Tab(context, server)
        sizes = {tab: (40, 30), other: (31, 23)}
        for page, size in sizes.items():
            (tmp_path / f"{size[0]}.png").write_bytes(png(size[0], size))
            page.upload(tmp_path / f"{size[0]}.png")
        for page in sizes:
            page.wait("#denoise-facts .facts")
        for page in sizes:
            page.page.click("#denoise-go")
        for page, size in sizes.items():
            page.wait("#denoise-get:visible")
            name, data = page.download("#denoise-get")
            assert name == f"{size[0]}.denoised.png"
            with Image.open(io.BytesIO(data)) as image:
                assert image.size == size
        other.page.close()

    def test_latents_round_trip_then_decode_of_the_file(self, tab, tmp_path):
        (tmp_path / "x.png").write_bytes(png())
        tab.open("Latents")
        tab.upload(tmp_path / "x.png")
        tab.page.click("#latents-go")
        tab.wait("#latents-get:visible")
        facts = tab.text("#latents-facts")
        assert "identity 16 bit" in facts and "equal PSNR" in facts and "75.3 bits per pixel" in facts
        tab.wait("#latents-channels img")
        name, data = tab.download("#latents-get")
        assert name == "x.latent.safetensors"
        (tmp_path / name).write_bytes(data)
        _, direct = tab.download("#latents-picture")
        tab.clear()
        for gone in ("#latents-picture", "#latents-get", "#latents-slider", "#latents-facts .facts"):
            tab.page.locator(gone).wait_for(state="hidden")
        tab.upload(tmp_path / name)
        tab.page.get_by_role("button", name="Decode", exact=True).click()
        tab.wait("#latents-decoded img:visible")
        name, data = tab.download("#latents-picture")
        assert name == "x.decoded.png"
        with Image.open(io.BytesIO(data)) as image, Image.open(io.BytesIO(direct)) as other:
            assert image.size == (21, 13) and np.array_equal(np.asarray(image), np.asarray(other))

    def test_compare_shows_models_and_the_machine(self, tab):
        tab.open("Compare")
        tab.example()
        tab.page.click("#compare-go")
        tab.wait("#compare-table table")
        tab.count("#compare-table tr", 3)
        tab.count("#compare-gallery img", 4)
        tab.page.click("#compare-measure")
        tab.wait("#compare-chart .speeds")
        tab.clear()
        for gone in ("#compare-table table", "#compare-gallery"):
            tab.page.locator(gone).wait_for(state="hidden")

    def test_page_fits_a_phone(self, browser, server, tmp_path):
        phone = window(browser, width=390, height=844)
        tab = Tab(phone, server)
        name = "a-rather-long-name-of-a-picture-" * 3 + ".png"
        (tmp_path / name).write_bytes(png())
        tab.upload(tmp_path / name)
        tab.wait("#denoise-facts .facts")
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        for label in ("Denoise", "Latents", "Batch", "Compare"):
            tab.open(label)
            assert tab.width() <= 390, label
        tab.open("Compare")
        tab.upload(tmp_path / name)
        tab.page.click("#compare-go")
        tab.wait("#compare-table table")
        assert tab.width() <= 390
        phone.close()

    def test_page_is_dark_where_the_reader_wants_it_dark(self, browser, server, tab):
        def wait(tab, condition):
            """For a brightness of the background, from 0 to 255."""
            tab.page.wait_for_function(
                "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)"
                f".reduce((a, b) => a + Number(b), 0) / 3 {condition}"
            )

        dark = window(browser, theme="dark")
        wait(tab, "> 200")
        other = Tab(dark, server)
        wait(other, "< 60")
        other.page.get_by_role("button", name="Light or dark").click()
        wait(other, "> 200")
        dark.close()

    def test_examples_have_names(self, tab):
        tab.page.get_by_role("img", name="Example").first.wait_for()

    def test_page_of_the_endpoints_asks_nobody_else(self, tab):
        tab.page.get_by_role("button", name="Use via API").click()
        tab.page.get_by_text("/roundtrip").first.wait_for()


# ---- pictures of the page ---------------------------------------------------------------------------


def keep(tab, name, height=None):
    """A screenshot for the documentation, of few colours so that it is small."""
    tab.page.mouse.move(5, 5)
    tab.page.evaluate("window.scrollTo(0, 0)")
    tab.page.wait_for_timeout(800)  # the slider's and the chart's animation
    data = tab.page.screenshot(full_page=height is None)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    path = Path(str(SCREENSHOTS)) / f"{name}.png"
    # Dithered, so that photographs have no false edges; without, where that would be too large.
    palette = image.quantize(256, Image.Quantize.MEDIANCUT, kmeans=3)
    for dither in (Image.Dither.FLOYDSTEINBERG, Image.Dither.NONE):
        image.quantize(palette=palette, dither=dither).save(path, optimize=True)
        if path.stat().st_size < 450_000:
            return
    pytest.fail(f"{path}: {path.stat().st_size} bytes")


@pytest.mark.web
@pytest.mark.skipif(not SCREENSHOTS, reason="set ZENITH_SCREENSHOTS=docs/images to take pictures of the page")
def test_pictures_of_the_page(browser, server, tmp_path):
    tab = Tab(window(browser, height=720), server)
    tab.example()
    tab.wait("#denoise-facts .facts")
    for auto in (False, True):  # the first run of a model also packs its weights
        tab.page.get_by_label("Find the noise level by itself").first.set_checked(auto)
        tab.page.click("#denoise-go")
        tab.wait("#denoise-get:visible")
        tab.page.wait_for_timeout(1500)
    keep(tab, "web-denoise", 720)
    tab.open("Latents")
    tab.example()
    tab.page.click("#latents-go")
    tab.wait("#latents-get:visible")
    keep(tab, "web-latents")
    with Image.open(Path(__file__).parents[1] / "examples" / "coffee.jpg") as image:
        for i in range(7):
            crop = image.crop((40 * i, 20 * i, 40 * i + 240, 20 * i + 160))
            crop.save(tmp_path / f"table {i + 1}.jpg", quality=95)
    (tmp_path / "table 8.jpg").write_bytes((tmp_path / "table 7.jpg").read_bytes()[:1500])
    tab.open("Batch")
    tab.upload(*sorted(tmp_path.iterdir()))
    tab.page.click("#batch-go")
    tab.wait("#batch-get:visible")
    keep(tab, "web-batch")
    dark = Tab(window(browser, theme="dark"), server)
    dark.open("Compare")
    dark.example()
    dark.page.click("#compare-go")
    dark.wait("#compare-table table")
    dark.page.click("#compare-measure")
    dark.wait("#compare-chart .speeds")
    keep(dark, "web-compare")
