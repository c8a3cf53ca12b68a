"""Promises of the weights that ship: they load, do what their cards say, and do not drift."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

import zenith_ae
from zenith_ae import pipelines
from zenith_ae._kernels import available_isas, fast_bf16
from zenith_ae.app.cli import run
from zenith_ae.batches import LUMA
from zenith_ae.metrics import lattice_energy, psnr
from zenith_ae.training import drawings
from zenith_ae.training.degradations import blur, camera, gaussian, salt_and_pepper, stored
from zenith_ae.training.evaluate import evaluate_model
from zenith_ae.weights import available_weights, load_weights

ROOT = Path(__file__).parents[1]
NAMES = [
    "zenith-4ch-lite", "zenith-deblur", "zenith-denoise", "zenith-denoise-fast", "zenith-denoise-large",
    "zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano",
]  # fmt: skip
DENOISERS = [name for name in NAMES if name.startswith("zenith-denoise")]
GOLDEN = Path(__file__).with_name("golden.json")
BF16 = [isa for isa in available_isas() if fast_bf16(isa)]
needs_bf16 = pytest.mark.skipif(not BF16, reason="this CPU has no fast bf16")


def example(name: str) -> np.ndarray:
    with Image.open(ROOT / "examples" / name) as image:
        return np.asarray(image.convert("RGB"))


def in_file(picture: np.ndarray) -> np.ndarray:
    """A picture of 0..255 in 8 bits."""
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def synthetic(height: int = 61, width: int = 83) -> np.ndarray:
    """Gradients, edges and a fixed noise: float32 (H, W, 3) in [0, 1], the same everywhere."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    picture = np.stack([x / width, y / height, 0.5 + 0.5 * np.sin(0.5 * x) * np.cos(0.3 * y)], axis=2)
    picture[20:40, 30:50] = (0.9, 0.1, 0.2)
    noise = (np.arange(height * width * 3, dtype=np.uint64) * 2654435761 % 4294967296).astype(np.float64)
    noise = noise.reshape(picture.shape) / 2**32 - 0.5
    return np.clip(picture + 0.1 * noise, 0, 1).astype(np.float32)


def outputs(name: str, dtype: str = "float32") -> dict[str, np.ndarray]:
    """A few numbers of everything that a model does, on every 7th pixel of `synthetic`."""
    model = zenith_ae.load(name, device="cpu", dtype=dtype)
    picture = synthetic()
    if isinstance(model, zenith_ae.Denoiser):
        return {
            "told": model(picture, sigma=20)[::7, ::7],
            "auto": model(picture)[::7, ::7],
            "sigma": model.estimate_sigma(picture)[::7, ::7],
        }
    z = model.encode(picture)
    decoded = model.decode(z, output="float", size=picture.shape[:2])
    return {"latents": z[0, ::4], "decoded": decoded[0, ::7, ::7]}


def test_every_model_ships_with_their_cards() -> None:
    assert sorted(available_weights()) == NAMES
    for name in NAMES:
        assert load_weights(name).config.name == name
        card = (ROOT / "weights" / f"{name}.md").read_text()
        assert load_weights(name).hash in card, "the card describes other weights"


def test_type_checkers_know_what_each_name_loads() -> None:
    known = {
        "denoiser": get_args(pipelines.ShippedDenoiser),
        "autoencoder": get_args(pipelines.ShippedAutoencoder),
    }
    assert sorted(name for names in known.values() for name in names) == NAMES
    for kind, names in known.items():
        assert all(load_weights(name).config.kind == kind for name in names)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_the_recorded_ones(name: str) -> None:
    """After new weights: ``python tests/test_shipped.py`` records them again."""
    recorded = json.loads(GOLDEN.read_text())[name]
    assert recorded["hash"] == load_weights(name).hash, "new weights: record the outputs again"
    for key, value in outputs(name).items():
        wanted = np.array(recorded[key], np.float32).reshape(value.shape)
        tolerance = 0.05 if key == "sigma" else 2e-3
        np.testing.assert_allclose(value, wanted, atol=tolerance, err_msg=f"{name}: {key}")


@needs_bf16
@pytest.mark.parametrize("name", NAMES)
def test_bf16_outputs_are_the_recorded_ones_but_for_rounding(name: str, monkeypatch) -> None:
    monkeypatch.setenv("ZENITH_ISA", BF16[-1])
    recorded = json.loads(GOLDEN.read_text())[name]
    for key, value in outputs(name, "bf16").items():
        wanted = np.array(recorded[key], np.float32).reshape(value.shape)
        scale = wanted.mean() if key == "sigma" else wanted.std()  # levels hardly vary
        error = float(np.sqrt(np.square(value - wanted).mean()) / scale)
        assert error < (0.08 if key == "sigma" else 0.02), key  # of photographs levels differ by 0.005


@needs_bf16
@pytest.mark.parametrize("name", NAMES)
def test_bf16_costs_little(name: str, monkeypatch) -> None:
    """Of one picture 0.11 dB at most; on the mean of CBSD68 it is 0.01 to 0.03."""
    monkeypatch.setenv("ZENITH_ISA", BF16[-1])
    clean = example("cat.clean.png")
    noise = np.random.default_rng(0).standard_normal(clean.shape).astype(np.float32)
    exact, fast = (zenith_ae.load(name, dtype=dtype) for dtype in ("float32", "bf16"))
    if isinstance(exact, zenith_ae.Denoiser):
        for sigma in (3, 15, 50):
            noisy = clean / np.float32(255) + noise * np.float32(sigma / 255)
            a, b = (np.clip(m(noisy, sigma=sigma), 0, 1) for m in (exact, fast))
            assert psnr(b, clean / np.float32(255)) > psnr(a, clean / np.float32(255)) - 0.05
    else:
        assert psnr(fast.roundtrip(clean), clean) > psnr(exact.roundtrip(clean), clean) - 0.12


@pytest.mark.parametrize("name", DENOISERS)
def test_the_readme_example_gets_much_cleaner(name: str) -> None:
    noisy, clean = example("cat.png"), example("cat.clean.png")
    denoised = zenith_ae.load(name)(noisy)
    assert psnr(denoised, clean) > psnr(noisy, clean) + 6


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("colour", [0, 255])
def test_a_plain_frame_does_not_hide_the_noise_of_a_photograph(name: str, colour: int) -> None:
    """Estimators that had never seen one took what is beside it for clean: 3 to 9 dB stayed in."""
    noisy, dn = example("cat.png"), zenith_ae.load(name)
    framed = np.pad(noisy, [(30, 30), (30, 30), (0, 0)], constant_values=colour)
    inside = dn.estimate_sigma(framed)[30:-30, 30:-30]
    assert inside.mean() > 0.8 * dn.estimate_sigma(noisy).mean()


def test_json_looks_as_the_page_of_the_command_line_shows_it(tmp_path, monkeypatch, capsys) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    shown = json.loads(page.split("```json\n", 1)[1].split("\n", 1)[0])
    shutil.copy(ROOT / "examples" / "cat.png", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["denoise", "cat.png", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == list(shown)
    assert printed.pop("sigma") == pytest.approx(shown.pop("sigma"), abs=0.1)
    assert printed.pop("seconds") > 0 < shown.pop("seconds")
    assert printed == shown


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize(("quality", "gain"), [(70, 6.5), (90, 7.5), (95, 7.5)])
def test_noise_goes_from_a_jpeg_with_colours_at_half_resolution_too(
    name: str, quality: int, gain: float, cut: int
) -> None:
    """JPEG makes noise coarser, that of colour above all, so that it looks like texture.

    Where one row and one column were cut off, the pairs of pixels that share a colour are no longer those
    that the network's first layer takes together.
    """
    clean = example("cat.clean.png")
    noise = 20 * np.random.default_rng(0).standard_normal(clean.shape)
    stream = io.BytesIO()
    noisy = Image.fromarray(in_file(clean + noise))
    noisy.save(stream, "JPEG", quality=quality, subsampling="4:2:0")
    given, clean = np.asarray(Image.open(stream))[cut:, cut:], clean[cut:, cut:]
    assert psnr(zenith_ae.load(name)(given), clean) > psnr(given, clean) + gain


@pytest.mark.parametrize("name", DENOISERS)
def test_a_clean_picture_stays_clean(name: str) -> None:
    clean = example("cat.clean.png")
    assert psnr(zenith_ae.load(name)(clean), clean) > 36


@pytest.mark.parametrize("name", DENOISERS)
def test_an_overexposed_picture_stays_too(name: str) -> None:
    """Estimators that had never seen any took its texture for noise: 40 dB."""
    bright = np.minimum(2.2 * example("cat.clean.png"), 255).astype(np.uint8)
    assert psnr(zenith_ae.load(name)(bright), bright) > 45


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize(("quality", "least"), [(20, 30.2), (30, 31.0)])
def test_blocks_of_a_strong_jpeg_do_not_stay(name: str, quality: int, least: float) -> None:
    """Before they had seen any, they made 30.1 and 31.0 dB, and 27.6 where blocks lay on their own grid."""
    clean, file = example("cat.clean.png"), io.BytesIO()
    noisy = clean + np.random.default_rng(0).normal(0, 25, clean.shape)
    Image.fromarray(in_file(noisy)).save(file, "JPEG", quality=quality)
    assert psnr(zenith_ae.load(name)(np.asarray(Image.open(file))), clean) > least


def smooth(picture: np.ndarray, reach: int) -> np.ndarray:
    """The mean of as many pixels to all sides."""
    for axis in (0, 1):
        picture = np.mean([np.roll(picture, shift, axis) for shift in range(-reach, reach + 1)], axis=0)
    return picture


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("harm", ["paler", "sharpened"])
def test_noise_that_channels_have_in_common_goes_too(name: str, harm: str, monkeypatch) -> None:
    """To the expert for white noise it looked like detail, and half of it and more stayed."""
    clean, rng = example("cat.clean.png").astype(np.float64), np.random.default_rng(0)
    noisy = clean + rng.normal(0, 20, clean.shape)
    if harm == "paler":
        noisy, clean = (0.4 * x + 0.6 * (x @ LUMA)[..., None] for x in (noisy, clean))
    else:
        luma = (noisy @ LUMA)[..., None]
        noisy = noisy + 0.7 * (luma - smooth(luma, 1))
    noisy, clean, denoiser = in_file(noisy), in_file(clean), zenith_ae.load(name)
    assert denoiser.experts(noisy) == ["denoiser"]
    now = psnr(denoiser(noisy), clean)
    monkeypatch.setattr(pipelines, "is_shared", lambda picture: False)
    assert denoiser.experts(noisy) == ["white"]
    assert now > psnr(denoiser(noisy), clean) + 3


@pytest.mark.parametrize("name", DENOISERS)
def test_thin_strokes_in_plain_colours_stay(name: str) -> None:
    model = zenith_ae.load(name)
    for i in range(4):
        picture = np.asarray(drawings.strokes(np.random.default_rng(i)))
        assert psnr(model(picture), picture) > 60


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("dark", [False, True])
def test_letters_by_subpixels_stay(name: str, dark: bool) -> None:
    """As screens show text, each colour of a pixel a third of its width aside."""
    large = Image.new("L", (3 * 320, 3 * 200), 255)
    pen, font = ImageDraw.Draw(large), ImageFont.load_default(36)
    for y in range(0, 200, 16):
        pen.text((12, 3 * y), "The quick brown fox jumps over lazy dogs 0123456789 (){}", 0, font)
    fine = np.asarray(large, np.float32).reshape(200, 3, -1).mean(axis=1)
    soft = sum(
        w * np.roll(fine, shift, axis=1) for w, shift in zip((1, 2, 3, 2, 1), range(-2, 3), strict=True)
    )
    page = np.uint8(soft.reshape(200, 320, 3) / 9 + 0.5)
    page = 255 - page if dark else page
    assert np.array_equal(zenith_ae.load(name)(page), page)


@pytest.mark.parametrize("name", DENOISERS)
def test_noise_of_a_single_channel_is_found(name: str) -> None:
    """As of one fluorescent dye; to the estimator the empty channels were clipped."""
    green = np.zeros((*example("cat.clean.png").shape[:2], 3), np.uint8)
    rng = np.random.default_rng(0)
    green[..., 1] = (
        np.clip(example("cat.clean.png")[..., 1] + rng.normal(0, 15, green.shape[:2]), 0, 255) + 0.5
    )
    assert zenith_ae.load(name).estimate_sigma(green).mean() == pytest.approx(15, rel=0.1)


@pytest.mark.parametrize("name", DENOISERS)
def test_white_noise_goes_to_the_expert_and_all_other_does_not(name: str) -> None:
    clean, dn = example("cat.clean.png")[None] / np.float32(255), zenith_ae.load(name)

    def chosen(degrade: Callable[..., tuple[np.ndarray, np.ndarray]], *arguments: Any, **options: Any) -> str:
        return dn.experts(degrade(clean, np.random.default_rng(0), *arguments, **options)[0])[0]

    for level in (3, 5, 15, 25, 50):
        assert chosen(gaussian, level / 255) == "white", level
    for level in (10, 20, 40):
        for reduced in (True, False):  # reduced, a photograph's noise is nearly white
            assert chosen(camera, level / 255, luma_blur=0.6, reduced=reduced) == "denoiser", level
        assert chosen(stored, level / 255, 80) == "denoiser", level
    for level, quality in ((15, 80), (30, 60)):  # nearly white, and yet worse for the expert
        assert chosen(stored, level / 255, quality, subsample=False) == "denoiser", level
    assert chosen(salt_and_pepper, 0.01) == "denoiser"
    assert dn.experts(clean) == ["denoiser"]


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("level", [8, 247])
def test_noise_goes_from_backgrounds_where_half_of_it_is_clipped(name: str, level: int) -> None:
    """What is left of noise there is weaker than it was, and estimates of it alone are too low."""
    clean = example("cat.clean.png")
    y, x = np.mgrid[-1 : 1 : clean.shape[0] * 1j, -1 : 1 : clean.shape[1] * 1j]
    clean = np.where((x**2 + y**2 < 0.7)[..., None], clean, np.uint8(level))
    noise = 30 * np.random.default_rng(0).standard_normal(clean.shape)
    given = in_file(clean + noise)
    dn = zenith_ae.load(name)
    assert psnr(dn(given), clean) > psnr(dn(given, sigma=30), clean) - 0.5


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("level", [40, 128])
def test_faint_noise_goes_from_smooth_surfaces(name: str, level: int) -> None:
    """As much as that is in every photograph, so an estimator that learned from them hardly counts it."""
    y, x = np.mgrid[:192, :256]
    clean = level + 8 * np.sin(y / 50)[..., None] + 6 * np.cos(x / 70)[..., None] + (2, 0, -3)
    dn = zenith_ae.load(name)
    for sigma in (2, 4):
        noise = sigma * np.random.default_rng(0).standard_normal(clean.shape)
        given = (clean + noise).round().astype(np.uint8)
        assert 0.85 * sigma < dn.estimate_sigma(given).mean() < 1.2 * sigma
        assert np.square(dn(given) - clean).mean() < 0.08 * np.square(given - clean).mean()
    assert dn.estimate_sigma(clean.round().astype(np.uint8)).max() < 0.1


@pytest.mark.parametrize("name", DENOISERS)
def test_hot_photosites_go_and_hide_no_other_noise(name: str) -> None:
    """A demosaiced one is a blob or a cross of several pixels; a former network took the grain beside few
    such dots for a part of the picture."""
    clean = example("cat.clean.png")[None] * np.float32(0.3 / 255)
    found = [camera(clean, np.random.default_rng(0), 8 / 255, hot=hot)[0] for hot in (0.0, 1e-3)]
    dn = zenith_ae.load(name)
    without, beside = (dn(noisy) for noisy in found)
    hot = np.abs(found[1] - found[0]).max(axis=3) > 0.25
    left = np.abs(beside - clean).max(axis=3)
    assert hot.sum() > 50 and np.median(left[hot]) < 0.12
    far = np.abs(found[1] - found[0]).max(axis=3) == 0
    assert np.square(beside - clean)[far].mean() < 1.25 * np.square(without - clean)[far].mean()


def test_soft_jpegs_become_sharper() -> None:
    clean = example("cat.clean.png")
    soft, _ = blur(clean[None] / np.float32(255), np.random.default_rng(0), "gaussian", 1.2)
    stream = io.BytesIO()
    Image.fromarray((soft[0] * 255).clip(0, 255).round().astype(np.uint8)).save(stream, "JPEG", quality=90)
    given = np.asarray(Image.open(stream))
    assert psnr(zenith_ae.load("zenith-deblur")(given), clean) > psnr(given, clean) + 0.7


def test_grey_pictures_are_denoised_as_well_as_coloured_ones() -> None:
    clean = np.asarray(Image.fromarray(example("cat.clean.png")).convert("L"), np.float32) / 255
    noisy = clean + 25 / 255 * np.random.default_rng(0).standard_normal(clean.shape).astype(np.float32)
    denoised = zenith_ae.load("zenith-denoise")(noisy, sigma=25)
    assert psnr(np.clip(denoised, 0, 1), clean) > psnr(noisy, clean) + 7


def test_more_passes_are_cleaner() -> None:
    clean = example("cat.clean.png") / np.float32(255)
    noisy = clean + 25 / 255 * np.random.default_rng(0).standard_normal(clean.shape, dtype=np.float32)
    dn = zenith_ae.load("zenith-denoise")
    one, two, four = (psnr(np.clip(dn(noisy, sigma=25, passes=n), 0, 1), clean) for n in (1, 2, 4))
    assert four > two + 0.01 > one + 0.04


@pytest.mark.parametrize("sigma", [25, "auto"])
@pytest.mark.parametrize(("height", "width"), [(65, 96), (100, 81), (96, 127)])
def test_noise_goes_at_the_borders_of_any_size_too(height: int, width: int, sigma) -> None:
    rng = np.random.default_rng(0)
    noise = 25 / 255 * rng.standard_normal((4, height, width, 3), dtype=np.float32)
    error = zenith_ae.load("zenith-denoise")(0.5 + noise, sigma=sigma) - 0.5
    inside = np.sqrt((error[:, 16:-16, 16:-16] ** 2).mean())
    for border in (error[:, -4:], error[:, :, -4:], error[:, :4], error[:, :, :4]):
        assert np.sqrt((border**2).mean()) < 2 * inside + 1 / 255


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("sigma", [50, 75, 100])
@pytest.mark.parametrize("name", DENOISERS)
def test_loud_noise_in_a_file_goes_as_well_as_if_its_level_were_told(name: str, sigma: int, grey) -> None:
    clean = example("cat.clean.png")
    clean = in_file(clean @ LUMA) if grey else clean
    noisy = in_file(clean + np.random.default_rng(0).normal(0, sigma, clean.shape))
    model = zenith_ae.load(name)
    assert model.estimate_sigma(noisy).mean() == pytest.approx(sigma, rel=0.06)
    assert psnr(model(noisy), clean) > psnr(model(noisy, sigma=sigma), clean) - 0.15


@pytest.mark.parametrize("name", ["zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano"])
def test_round_trip_has_no_colour_cast_and_no_tile_grid(name: str) -> None:
    picture = example("cat.clean.png")
    out = zenith_ae.load(name).roundtrip(picture)
    assert out.shape == picture.shape
    error = out.astype(float) - picture
    assert np.abs(error.mean(axis=(0, 1))).max() < 1.5  # of 255
    assert psnr(out, picture) > 27
    # Steps across the borders of 8 x 8 cells are no larger than elsewhere.
    for axis in (0, 1):
        steps = np.abs(np.diff(error, axis=axis)).mean(axis=(1 - axis, 2))
        phases = np.array([steps[(p - 1) % 8 :: 8].mean() for p in range(8)])
        assert phases[0] < 1.2 * np.median(phases)
    assert lattice_energy(out, picture) < 2.3  # 1.5 to 1.6 measured; weights with visible dots have 4


@pytest.mark.parametrize(
    ("name", "most"), [("zenith-taef2", 30), ("zenith-taef2-lite", 80), ("zenith-taef2-nano", 40)]
)
def test_plain_pictures_have_no_dots_in_their_corners(name: str, most: int) -> None:
    ae = zenith_ae.load(name)
    for level in (0, 128, 255):
        error = np.abs(ae.roundtrip(np.full((128, 128, 3), level, np.uint8)).astype(int) - level)
        assert error.max() <= most


@pytest.mark.parametrize("colour", [(255, 255, 255), (120, 170, 230), (200, 30, 30)])
@pytest.mark.parametrize("side", [65, 72, 90, 121])
def test_a_plain_colour_stays_plain_where_the_border_cuts_spectral_tiles(colour, side: int) -> None:
    ae = zenith_ae.load("zenith-4ch-lite")
    whole = ae.roundtrip(np.full((128, 128, 3), colour, np.uint8)).astype(int)
    cut = ae.roundtrip(np.full((side, side, 3), colour, np.uint8))
    assert np.abs(cut - whole[:side, :side]).max() < 12  # a border of zeros makes it 50 to 95


@dataclass(frozen=True)
class Exchanged:
    """The encoder of one autoencoder and the decoder of another."""

    encode: Callable[[Any], Any]
    decode: Callable[..., Any]


@pytest.fixture(scope="module")
def measured(shared: Path) -> Callable[..., dict[str, dict[str, float]]]:
    """Means of a model, or of one's encoder and another's decoder, on the first six pictures of CBSD68.

    Nothing is measured twice, and the teacher, which is slow, sees each picture once.
    """
    paths = {"teacher": shared / "teachers" / "taef2_encoder.safetensors"}
    model = cache(lambda name: zenith_ae.load(paths.get(name, name)))
    latents: dict[tuple[str, bytes], Any] = {}

    def encode(name: str, image: np.ndarray) -> Any:
        key = name, image.tobytes()
        if key not in latents:
            latents[key] = model(name).encode(image)
        return latents[key]

    @cache
    def measure(name: str, decoder: str = "") -> dict[str, dict[str, float]]:
        measured = (
            Exchanged(lambda image: encode(name, image), model(decoder).decode) if decoder else model(name)
        )
        sigmas = (25,) if isinstance(measured, zenith_ae.Denoiser) else None
        return evaluate_model(measured, shared / "data" / "eval_cbsd68.tar", sigmas=sigmas, limit=6)["mean"]

    return measure


@pytest.mark.parametrize(
    ("name", "case", "floor"),
    [
        ("zenith-denoise", "sigma 25", 32.82),
        ("zenith-denoise", "sigma 25, auto", 32.79),
        ("zenith-denoise-fast", "sigma 25", 32.67),
        ("zenith-denoise-fast", "sigma 25, auto", 32.63),
        ("zenith-denoise-large", "sigma 25", 32.89),
        ("zenith-denoise-large", "sigma 25, auto", 32.86),
        ("zenith-taef2", "round trip", 31.45),
        ("zenith-taef2-lite", "round trip", 30.58),
        ("zenith-taef2-nano", "round trip", 30.2),
    ],
)
def test_quality_on_cbsd68(measured, name: str, case: str, floor: float) -> None:
    """A little below what was measured."""
    assert measured(name)[case]["psnr"] > floor


def test_models_of_one_latent_space_say_so(shared: Path) -> None:
    teacher = load_weights(shared / "teachers" / "taef2_encoder.safetensors")
    spaces = {name: load_weights(name).space for name in NAMES}
    same = {name for name, space in spaces.items() if space == teacher.space}
    assert same == {"zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano"}
    assert len(set(spaces.values())) == len(NAMES) - 2


@pytest.mark.parametrize(
    ("name", "reads", "is_read", "crisp"),
    [
        ("zenith-taef2", 0.42, -0.35, 0.95),
        ("zenith-taef2-lite", -0.53, -0.4, 0.98),
        ("zenith-taef2-nano", -1.8, -1.95, 0.95),
    ],
)
def test_latents_are_the_teachers(measured, name: str, reads: float, is_read: float, crisp: float) -> None:
    """Beside TAEF2's own round trip: its latents read here, and crisply, and these latents read there."""
    own = measured("teacher", "teacher")["round trip"]["psnr"]
    here = measured("teacher", name)["round trip"]
    assert here["psnr"] > own + reads
    assert crisp < here["sharpness"] < 1.1
    assert measured(name, "teacher")["round trip"]["psnr"] > own + is_read


def record() -> None:
    golden = {}
    for name in NAMES:
        values = {key: np.round(value, 4).ravel().tolist() for key, value in outputs(name).items()}
        golden[name] = {"hash": load_weights(name).hash} | values
    GOLDEN.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    record()
