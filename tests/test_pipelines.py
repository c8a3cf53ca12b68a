import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

import zenith_ae
from zenith_ae import changes, noise_levels, pipelines
from zenith_ae.batches import as_batch, from_rgb, orient, to_rgb, unorient
from zenith_ae.errors import ConfigError, ImageError, LatentError, WeightsError, ZenithError
from zenith_ae.image_writing import write_picture
from zenith_ae.images import Picture, read_picture
from zenith_ae.models import spec
from zenith_ae.models.zoo import build
from zenith_ae.pipelines import Autoencoder, Denoiser
from zenith_ae.selftest import random_weights
from zenith_ae.weights import Weights, load_weights


@pytest.fixture(scope="module")
def ae(identity_autoencoder):
    return zenith_ae.load(identity_autoencoder, dtype="float32", threads=2)  # 16 bits come back


@pytest.fixture(scope="module")
def dn(sigma_denoiser):
    return zenith_ae.load(sigma_denoiser, threads=2)


def test_numbers_beyond_float32_are_refused_and_tiny_ones_are_nothing(dn, ae):
    """Also where numpy and Python take warnings for errors."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for tiny in (np.full((8, 8, 3), 1e-300), np.full((8, 8, 3), 1e-6, np.float16)):
            assert dn(tiny, sigma=0).max() < 0.01
        with pytest.raises(ImageError, match="finite"):
            dn(np.full((8, 8, 3), 1e300))
        with pytest.raises(LatentError, match="finite"):
            ae.decode(np.full((1, 192, 2, 2), 1e300))


def test_a_picture_in_minus_one_to_one_is_warned_about_and_noise_is_not(dn):
    picture = noise((20, 20, 3), np.float32)
    with pytest.warns(UserWarning, match=r"as of a picture in \[-1, 1\]") as caught:
        dn(picture * 2 - 1, sigma=5)
    assert caught[0].filename == __file__
    dark = np.random.default_rng(1).standard_normal((20, 20, 3), dtype=np.float32) * 0.2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dn(dark, sigma=50)


def test_what_is_no_model_and_no_latents_is_one_line(ae, tmp_path):
    with pytest.raises(WeightsError, match="not NoneType"):
        zenith_ae.load(None)
    with pytest.raises(LatentError, match=r"a\.safetensors: is a path; read it first"):
        ae.decode("a.safetensors")
    for call in (ae.decode_picture, lambda x: zenith_ae.write_latents(tmp_path / "a.latent.safetensors", x)):
        with pytest.raises(LatentError, match=r"this takes a LatentFile, as .* not ndarray"):
            call(np.zeros((1, 192, 2, 2), np.float32))
    with pytest.raises(ImageError, match=r"this takes a Picture, as .* not ndarray"):
        ae.encode_picture(noise((8, 8, 3)))
    with pytest.raises(ValueError, match="output must be one of"):
        ae.decode(np.zeros((1, 192, 2, 2), np.float32), output=["uint8"])


def test_a_latent_file_is_decoded_to_its_size(ae):
    picture = Picture(noise((21, 13, 3)), "RGB", "RGB")
    file = ae.encode_picture(picture)
    assert np.array_equal(ae.decode(file)[0], ae.decode_picture(file).pixels)
    assert ae.decode(file, size=(24, 16)).shape == (1, 24, 16, 3)


def adding(plane: float, pixel: float, r: int) -> np.ndarray:
    """A matrix after `PixelUnshuffle(r)` that makes shares of the noise's plane and of the picture."""
    weight = np.zeros((3 * r * r, 4 * r * r), np.float32)
    k = np.arange(3 * r * r)
    weight[k, k] = pixel
    weight[k, 3 * r * r + k % (r * r)] = plane
    return weight


@pytest.fixture(scope="module")
def expert():
    """Adds the noise level, but takes it away from pictures that are brighter than 96; and adds a tenth."""
    parts = {
        "denoiser": (spec.PixelUnshuffle(2), spec.Linear(16, 12), spec.PixelShuffle(2)),
        "white": (spec.PixelUnshuffle(4), spec.Linear(64, 48), spec.PixelShuffle(4)),
        "sorter": (spec.PixelUnshuffle(8), spec.Linear(192, 1)),
    }
    tensors = {"denoiser.1.weight": adding(1, 0.1, 2), "denoiser.1.bias": np.zeros(12, np.float32)}
    tensors |= {"white.1.weight": adding(-1, 0.1, 4), "white.1.bias": np.zeros(48, np.float32)}
    tensors |= {"sorter.1.weight": np.full((1, 192), 1 / 192, np.float32)}
    tensors |= {"sorter.1.bias": np.full(1, -96 / 255, np.float32)}
    return Denoiser(
        Weights(spec.ModelConfig("expert", "denoiser", parts), tensors), threads=2, dtype="float32"
    )


@pytest.mark.parametrize("passes", pipelines.PASSES)
@pytest.mark.parametrize("at_once", [1, 300, 2**22])
def test_each_picture_of_a_batch_goes_through_the_part_for_its_noise(expert, passes, at_once, monkeypatch):
    monkeypatch.setattr(pipelines, "_PIXELS_AT_ONCE", at_once)
    levels, sigmas = np.array([50, 150, 90, 200, 60], np.uint8), np.array([10, 20, 0, 30, 5])
    batch = np.broadcast_to(levels[:, None, None, None], (5, 19, 13, 3)).copy()
    assert expert.experts(batch) == ["denoiser", "white", "denoiser", "white", "denoiser"]
    clean = expert(batch, sigma=sigmas, passes=passes)
    assert np.array_equal(clean[:, 5, 5, 0], [65, 145, 99, 190, 71])
    for picture, sigma, result in zip(batch, sigmas, clean, strict=True):
        assert np.array_equal(expert(picture, sigma=float(sigma), passes=passes), result)


@pytest.mark.parametrize("passes", [1, 4])
@pytest.mark.parametrize("at_once", [300, 2**22])
def test_progress_is_that_of_the_whole(expert, passes, at_once, monkeypatch):
    monkeypatch.setattr(pipelines, "_PIXELS_AT_ONCE", at_once)
    rgb = np.full((13, 19, 13, 3), 50, np.uint8)
    rgb[1] = 200  # for another network
    inks = Picture(rgb[0], "CMYK", "CMYK").with_pixels(np.full((19, 13, 4), 50, np.uint8))
    pages = replace(inks, more=(Picture(rgb[0], "RGB", "RGB"), inks))
    for image, sigma in ((rgb, 10), (rgb[1], 10), (pages, 10), (inks, 10)):
        told = []
        clean = expert(image, sigma=sigma, passes=passes, progress=told.append)
        assert told == sorted(told) and told[0] < 1 and told[-1] == pytest.approx(1)
        alone = expert(image, sigma=sigma, passes=passes)
        assert np.array_equal(*(getattr(x, "pixels", x) for x in (clean, alone)))


@pytest.mark.parametrize("layout", ["RGB", "CMYK"])
def test_progress_never_falls_where_more_is_tried(layout):
    denoiser = zenith_ae.load("zenith-denoise-fast")
    rng = np.random.default_rng(0)
    channels = len(layout)
    noise = rng.standard_normal((98, 98, channels))
    soft = sum(noise[y : y + 96, x : x + 96] for y in range(3) for x in range(3)) / 3
    pixels = np.uint8(np.clip(128 + 40 * soft, 0, 255))[None]
    estimated = denoiser.estimate(pixels, layout)
    assert estimated.experts == ["denoiser"] and 9 < estimated.levels.mean() < 60
    for sigma in ("auto", 100):  # the latter is far above, so that both levels are tried
        told: list[float] = []
        denoiser.clean(pixels, layout, sigma, progress=told.append)
        assert told == sorted(told) and told[-1] == 1


def test_what_networks_say_of_cells_is_said_of_the_picture_alone(monkeypatch):
    denoiser = zenith_ae.load("zenith-denoise-fast")
    seen = []
    monkeypatch.setattr(pipelines, "make_even", lambda level, clipped: seen.append(level.shape))
    for height, width in ((136, 264), (130, 7), (1, 8)):
        denoiser.estimate(noise((1, height, width, 3)), "RGB")
        assert seen[-1] == (-(-height // 8), -(-width // 8))


def test_pages_that_are_dropped_are_told_of_the_callers_line(ae):
    page = Picture(noise((8, 9, 3)), "RGB", "RGB")
    for call in (ae.encode, ae.encode_picture):
        with pytest.warns(UserWarning, match="the first of 2 frames or pages is taken") as caught:
            call(replace(page, more=(page,)))
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("pixels", [[[1]], None])
def test_a_picture_without_an_array_is_refused(pixels, dn):
    with pytest.raises(ImageError, match=f"pixels are a plain numpy array, not {type(pixels).__name__}"):
        dn(Picture(pixels, "L", "L"), 5)


def test_a_change_of_no_pictures_changes_nothing():
    pixels = noise((2, 8, 9, 3))
    none = changes.Change([], slice(0, 3), False, np.empty((0, 8, 9, 3), np.float32))
    assert np.array_equal(changes.changed(pixels, [none, none]), pixels)


def test_progress_ends_with_one_where_there_is_nothing_to_do(dn):
    for options in ({"strength": 0}, {"sigma": 0}, {"sigma": np.zeros((20, 30))}):
        told = []
        dn(noise((20, 30, 3)), progress=told.append, **options)
        assert told[-1] == 1


def test_progress_of_an_autoencoder_has_two_halves(ae, monkeypatch):
    monkeypatch.setattr("zenith_ae.engine.native.WATCH_SECONDS", np.inf)
    picture, told = Picture(noise((20, 30, 3)), "RGB", "RGB"), []
    z = ae.encode(picture.pixels, progress=told.append)
    ae.decode(z, progress=told.append)
    ae.decode_picture(ae.encode_picture(picture, progress=told.append), progress=told.append)
    assert told == [1] * 4
    for image, shares in (
        (picture.pixels, [0.5, 1]),
        (replace(picture, more=(picture,)), [0.25, 0.5, 0.75, 1]),
    ):
        told.clear()
        ae.roundtrip(image, progress=told.append)
        assert told == shares


def test_what_progress_raises_ends_the_work(dn, monkeypatch):
    class EnoughError(Exception):
        pass

    def stop(share):
        told.append(share)
        raise EnoughError

    monkeypatch.setattr("zenith_ae.engine.native.WATCH_SECONDS", np.inf)
    for sigma in (10, "auto"):  # while the noise is estimated too
        told = []
        with pytest.raises(EnoughError):
            dn(noise((20, 30, 3)), sigma=sigma, progress=stop)
        assert len(told) == 1


def test_a_picture_is_continued_to_whole_cells_of_the_network_that_it_goes_through(expert, monkeypatch):
    seen = []
    run = expert.engine.run

    def spy(part, x, **options):
        seen.append((part, *x.shape[1:3]))
        return run(part, x, **options)

    monkeypatch.setattr(expert.engine, "run", spy)
    expert(np.full((10, 6, 3), 50, np.uint8), sigma=5)
    expert(np.full((10, 5, 3), 150, np.uint8), sigma=5)
    denoiser, white = ("denoiser", 12, 8), ("white", 12, 8)  # of cells of 2, two pixels off the grid; of 4
    assert seen == [("sorter", 16, 8), denoiser, ("sorter", 16, 8), white]


def test_the_network_for_all_noise_sees_a_picture_off_its_grid(expert, monkeypatch):
    seen = []
    run = expert.engine.run
    monkeypatch.setattr(
        expert.engine, "run", lambda part, x, **more: (seen.append((part, x, more)), run(part, x, **more))[1]
    )
    picture = np.random.default_rng(0).integers(0, 60, (11, 9, 3), np.uint8)
    levels = np.arange(99.0).reshape(11, 9)
    for which, turned in ((0, (picture, levels)), (1, (picture[::-1, ::-1], levels[::-1, ::-1]))):
        seen.clear()
        expert(picture, sigma=levels, passes=2)
        part, x, more = [call for call in seen if call[0] != "sorter"][which]
        assert part == "denoiser"
        for moved, whole in ((x[0], turned[0]), (more["plane"][0] * 255, turned[1])):
            np.testing.assert_allclose(moved[2:13, 2:11], whole, rtol=1e-5)
            np.testing.assert_array_equal(moved[:3], moved[4:1:-1])
    seen.clear()
    expert(picture + 180, sigma=levels)
    assert seen[-1][0] == "white"
    np.testing.assert_array_equal(seen[-1][1][0, :11, :9], picture + 180)


def test_the_part_for_a_pictures_noise_is_chosen_for_the_whole_of_it(expert):
    picture = np.full((64, 64, 4), 40, np.uint8)
    picture[:, 16:, :3] = 180  # so 145 in the mean
    for tile in (0, 16, "auto"):
        clean = expert(picture, sigma=20, tile=tile)
        assert (clean[:, :16, 0] == 24).all() and (clean[:, 16:, 0] == 178).all()
        assert np.array_equal(clean[..., 3], picture[..., 3])
    grey = Image.new("L", (20, 30), 180)
    assert expert.experts(grey) == ["white"]
    assert (np.asarray(expert(grey, sigma=20)) == 178).all()
    ink = np.zeros((2, 24, 24, 4), np.uint8)  # CMYK: inverted, so it is bright where there is little ink
    ink[0] = 220
    assert expert._experts(ink, "CMYK", 0) == ["denoiser", "white"]
    restored = expert.clean(ink, "CMYK", 20)
    assert (restored[0] == 220 - 20 - 4).all()  # 35 of light, and 20 and 3.5 more
    assert (restored[1] == 0).all()  # 255 of light, and 5.5 more


@pytest.mark.parametrize(
    ("level", "odds", "part"),
    [(13, 0.1, "white"), (14, 1.4, "denoiser"), (25, 1.6, "white"), (35, 1.9, "denoiser"), (60, 2.1, "white"),
     (60, 0, "denoiser"), (5, -1, "denoiser")],
)  # fmt: skip
def test_loud_noise_in_colour_is_the_experts_if_that_is_sure(level, odds, part, monkeypatch):
    model = zenith_ae.load("zenith-denoise-fast", threads=1)
    say = {"sorter": odds, "estimator": level / 255 / pipelines.SIGMA_UNIT}
    monkeypatch.setattr(model.engine, "run", lambda part, x, **_: np.full((len(x), 2, 2, 1), say[part], "f4"))
    picture = np.random.default_rng(0).integers(1, 255, (16, 16, 3), np.uint8)
    grey = picture[..., :1].repeat(3, 2)
    assert model.experts(np.stack([picture, grey])) == [part, "white" if odds > 0 else "denoiser"]


def test_a_frame_says_nothing_of_what_the_noise_in_it_is(monkeypatch):
    model = zenith_ae.load("zenith-denoise-fast", threads=1)
    odds = np.full((1, 4, 4, 1), 0.1, np.float32)
    odds[:, 1:3] = 2
    say = {"sorter": odds, "estimator": np.full((1, 4, 4, 1), 20 / 255 / pipelines.SIGMA_UNIT)}
    monkeypatch.setattr(model.engine, "run", lambda part, x, **_: say[part])
    picture = np.random.default_rng(0).integers(1, 255, (32, 32, 3), np.uint8)
    assert model.experts(picture) == ["denoiser"]
    picture[:8] = picture[24:] = 255
    assert model.experts(picture) == ["white"]
    picture[:] = 0  # nothing is left
    picture[0, 0, 0] = 1
    assert model.experts(picture) == ["denoiser"]


@pytest.mark.parametrize("layout", ["RGB", "CMYK"])
@pytest.mark.parametrize("name", ["zenith-denoise-fast", "zenith-denoise"])
def test_a_level_far_above_that_of_mottled_noise_takes_no_less_of_it(layout, name, monkeypatch):
    model = zenith_ae.load(name, threads=1)
    rng = np.random.default_rng(0)
    mottle = rng.normal(size=(2, 98, 130, 3))
    mottle = sum(np.roll(mottle, (y, x), (1, 2)) for y in range(4) for x in range(4)) * 3
    white = rng.normal(size=(1, 98, 130, 3)) * 12
    clean = np.linspace(60, 190, 130)[:, None]
    pixels = np.clip(clean + np.concatenate([mottle, white]), 0, 255).astype(np.uint8)
    if layout == "CMYK":
        pixels = np.concatenate([255 - pixels, np.zeros_like(pixels[..., :1])], axis=3)
    assert model._experts(pixels, layout, "auto") == ["denoiser", "denoiser", "white"]
    level = float(model.estimate(pixels[:2], layout).levels.mean())

    def taken(sigma, pictures=pixels):
        out = model.clean(pictures, layout, sigma).astype(float)
        return np.sqrt(((out - pictures) ** 2).mean(axis=(1, 2, 3)))

    for more in (1.5, 3, 6):
        assert (taken(level * more)[:2] > 0.98 * taken(level)[:2]).all()
    far = min(6 * level, 255)
    together = model.clean(pixels, layout, far)
    for i in range(3):  # whatever the others are
        np.testing.assert_array_equal(together[i], model.clean(pixels[i : i + 1], layout, far)[0])
    monkeypatch.setattr(pipelines, "_TOLD_MORE", np.inf)
    monkeypatch.setattr(pipelines, "_MOTTLED", np.inf)
    assert (taken(far)[:2] < 0.96 * taken(level)[:2]).all()  # as the network alone would have it
    np.testing.assert_array_equal(together[2], model.clean(pixels[2:], layout, far)[0])


def test_noise_of_a_black_plate_is_not_what_other_inks_have_in_common():
    """As light all inks share it, but the networks see the plate by itself."""
    model, (y, x) = zenith_ae.load("zenith-denoise-fast", threads=1), np.mgrid[:160, :200]
    waves = [60 + 30 * np.sin(x / 25), 80 + 20 * np.cos(y / 30), 70 + 25 * np.sin((x + y) / 40)]
    inks = np.stack([*waves, 90 + 30 * np.sin(y / 20)], 2)
    inks = np.clip(inks + np.random.default_rng(0).normal(0, 15, inks.shape), 0, 255).astype(np.uint8)
    assert pipelines.is_shared(pipelines.to_rgb(inks[None], "CMYK")[0])
    assert model._experts(inks[None], "CMYK", "auto") == ["white"]
    assert model.estimate(inks[None], "CMYK").experts == ["white"]


@pytest.mark.parametrize("size", [(150, 200), (330, 500), (40, 5000)])
@pytest.mark.parametrize(("level", "times"), [(20, 1.3), (20, 1.0), (8, 1.3)])
def test_noise_of_which_less_goes_at_its_own_level_is_told_as_lower(size, level, times, monkeypatch):
    """Of a large picture that is seen in a few places."""
    model, seen = zenith_ae.load("zenith-denoise-fast", threads=1), []

    def run(part, pictures, plane, tile, progress):
        seen.append((plane.shape, round(float(plane.mean()) * 255, 3)))
        own = plane.mean() > 0.8 * level / 255
        return np.full(pictures.shape, 0.01 if own else 0.01 * times, np.float32)

    monkeypatch.setattr(model, "_run", run)
    monkeypatch.setattr(model, "_experts", lambda pixels, *_, **__: ["denoiser"] * len(pixels))
    whole = (1, *size)
    tried = {(150, 200): whole, (330, 500): (4, 96, 96), (40, 5000): (2, 40, 96)}[size]
    estimate = pipelines.Estimate(np.full(whole, level, np.float32), ["denoiser"])
    (change,) = model.changes(np.full((*whole, 3), 100, np.uint8), "RGB", estimate)
    lower = round(level * pipelines._MOTTLED_SHARE, 3)
    tries = [(tried, level), (tried, lower)] if level > 9 else []
    is_lower = bool(tries) and times > 1.1
    assert seen == [*tries, (whole, lower if is_lower else level)]
    assert change.residual.mean() == pytest.approx(0.01 * (times if is_lower else 1))


def test_the_commands_estimate_noise_once_and_do_what_the_library_does(monkeypatch):
    pytest.importorskip("click")
    from zenith_ae.app.session import denoised

    model, parts = zenith_ae.load("zenith-denoise-fast", threads=1), []
    mottle = np.random.default_rng(0).normal(size=(98, 130, 3))
    mottle = sum(np.roll(mottle, shift, axis) for axis in (0, 1) for shift in (0, 1)) * 10
    pixels = np.clip(128 + mottle, 0, 255).astype(np.uint8)
    assert model.experts(pixels) == ["denoiser"]
    real = model.engine.run
    monkeypatch.setattr(model.engine, "run", lambda part, *a, **k: parts.append(part) or real(part, *a, **k))
    result, level = denoised(model, Picture(pixels, "RGB", "RGB"), "auto", {})
    assert parts == ["estimator", "sorter", *3 * ["denoiser"]]  # of loud noise two to find at which level
    assert np.array_equal(result.pixels, model(pixels))
    assert parts == 2 * ["estimator", "sorter", *3 * ["denoiser"]]
    assert level == pytest.approx(model.estimate_sigma(pixels).mean())
    told = denoised(model, Picture(pixels, "RGB", "RGB"), 3 * level, {})[0]
    assert np.array_equal(told.pixels, model(pixels, 3 * level))


def test_an_expert_comes_with_what_tells_where_to_use_it(expert):
    for part in ("white", "sorter"):
        parts = {p: layers for p, layers in expert.config.parts.items() if p != part}
        with pytest.raises(ConfigError, match="white and sorter are of use together only"):
            replace(expert.config, parts=parts)
    with pytest.raises(ImageError, match="white needs a plane"):
        expert.engine.run("white", np.zeros((1, 8, 8, 3), np.float32))
    with pytest.raises(ImageError, match="sorter takes no plane"):
        picture = np.zeros((1, 8, 8, 3), np.float32)
        expert.engine.run("sorter", picture, plane=picture[..., 0])


def test_a_matrix_is_an_array_of_grey(dn):
    grey = noise((8, 8, 1))[..., 0]
    assert np.array_equal(dn(np.asmatrix(grey), sigma=5), dn(grey, sigma=5))


def test_masked_arrays_are_refused(dn):
    with pytest.raises(ImageError, match="fill it first"):
        dn(np.ma.masked_array(noise((8, 8, 3)), mask=True))


def test_a_tiff_opened_by_pillow_keeps_what_its_tags_say(dn, tmp_path):
    exif = Image.Exif()
    exif[271] = "Maker"
    Image.fromarray(noise((8, 12, 3))).save(tmp_path / "a.tif", exif=exif)
    with Image.open(tmp_path / "a.tif") as image:
        assert dn(image, sigma=5).getexif()[271] == "Maker"


def test_paths_that_no_file_can_have_are_one_clear_line(tmp_path):
    picture = Picture(noise((8, 8, 3)), "RGB", "RGB")
    for call in (lambda: zenith_ae.read_latents("a\0b"), lambda: write_picture(picture, "a\0b.png")):
        with pytest.raises(ZenithError, match="not a usable path"):
            call()


def noise(shape, dtype=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


# ---- loading


def test_load_tells_the_kind_and_says_who_it_is(ae, dn, identity_autoencoder):
    assert isinstance(ae, Autoencoder)
    assert isinstance(dn, Denoiser)
    assert (ae.name, ae.config.latent_channels, ae.config.factor) == ("identity", 192, 8)
    assert ae.hash == zenith_ae.load(str(identity_autoencoder)).hash != dn.hash
    assert len(ae.hash) == 16
    assert "identity" in repr(ae)
    assert ae.engine.threads == 2


def test_load_of_nothing_is_a_weights_error(tmp_path):
    with pytest.raises(WeightsError, match="empty"):
        zenith_ae.load("")
    with pytest.raises(WeightsError, match="no such"):
        zenith_ae.load(tmp_path / "none.safetensors")


def test_pipelines_refuse_models_of_the_other_kind(sigma_denoiser):
    with pytest.raises(ConfigError, match="not autoencoder"):
        Autoencoder(load_weights(sigma_denoiser))


def test_a_picture_that_is_not_as_it_says_is_refused(dn):
    for pixels, layout in ((noise((4, 4, 4), np.uint16), "CMYK"), (noise((4, 4, 3), np.float64), "RGB")):
        with pytest.raises(ImageError, match="pixels of"):
            dn(Picture(pixels, layout, layout), sigma=20)


def test_a_damaged_pillow_image_is_an_image_error(dn, tmp_path):
    Image.fromarray(noise((200, 200, 3))).save(tmp_path / "a.png")
    data = bytearray((tmp_path / "a.png").read_bytes())
    data[data.index(b"IDAT", data.index(b"IDAT") + 4)] = 255  # Pillow raises a SyntaxError
    (tmp_path / "a.png").write_bytes(data)
    with Image.open(tmp_path / "a.png") as image, pytest.raises(ImageError, match="damaged"):
        dn(image, sigma=20)


def test_what_is_not_used_of_a_file_is_warned_of(dn, tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.warns(UserWarning, match=r"a\.gif: only the first of several pictures"):
        dn(tmp_path / "a.gif", sigma=20)


# ---- autoencoder


@given(st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_decode_of_any_size_crops_back_exactly(ae, height, width):
    picture = noise((height, width, 3))
    z = ae.encode(picture)
    assert z.shape == (1, 192, -(-height // 8), -(-width // 8))
    assert z.dtype == np.float32
    assert np.array_equal(ae.decode(z, size=(height, width))[0], picture)


def test_decode_without_a_size_gives_whole_latents(ae):
    z = ae.encode(noise((17, 5, 3)))
    rgb = ae.decode(z)
    assert rgb.shape == (1, 24, 8, 3)
    assert rgb.dtype == np.uint8


def test_decode_has_three_outputs_of_the_same_values(ae):
    z = ae.encode(noise((16, 16, 3)))
    floats, bytes_, words = ae.decode(z, "float"), ae.decode(z), ae.decode(z, "uint16")
    assert (floats.dtype, words.dtype) == (np.float32, np.uint16)
    assert np.array_equal(np.rint(floats * 255), bytes_)
    assert np.array_equal(np.rint(floats * 65535), words)
    assert np.array_equal(ae.decode(z[0]), bytes_)
    with pytest.raises(ValueError, match="output"):
        ae.decode(z, "int8")


def test_float_output_is_clipped_to_the_unit_interval(ae):
    rgb = ae.decode(np.full((1, 192, 1, 1), 7, np.float32), "float")
    assert rgb.max() == 1
    assert ae.decode(np.full((1, 192, 1, 1), -7, np.float32)).max() == 0


@pytest.mark.parametrize(
    ("z", "options", "words"),
    [
        (np.zeros((1, 4, 2, 2), np.float32), {}, "4 latent channels, but the model has 192"),
        (np.full((1, 192, 2, 2), np.nan, np.float32), {}, "not finite"),
        (np.zeros((1, 192, 2, 2), np.float32), {"size": (17, 9)}, "cannot be a picture of 17 x 9"),
        (np.zeros((1, 192, 2, 2), np.float32), {"size": (8, 9)}, "cannot be"),
        (np.zeros((1, 192, 2, 2), int), {}, "floats"),
    ],
)
def test_latents_that_do_not_fit_are_refused(ae, z, options, words):
    with pytest.raises(LatentError) as caught:
        ae.decode(z, **options)
    assert words in str(caught.value)


def test_latents_of_whole_numbers_are_refused_as_tensors_too(ae):
    torch = pytest.importorskip("torch")
    for dtype in (torch.uint8, torch.int64, torch.bool):
        with pytest.raises(LatentError, match="floats"):
            ae.decode(torch.zeros(1, 192, 2, 2, dtype=dtype))


ARRAYS = [(9, 7), (9, 7, 1), (9, 7, 2), (9, 7, 3), (9, 7, 4), (3, 9, 7, 1), (2, 9, 7, 3), (2, 9, 7, 4)]


@pytest.mark.parametrize("shape", ARRAYS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_roundtrip_of_arrays_keeps_type_shape_and_values(ae, shape, dtype):
    picture = noise(shape, dtype)
    again = ae.roundtrip(picture)
    assert (again.dtype, again.shape) == (picture.dtype, picture.shape)
    assert np.allclose(again, picture, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_roundtrip_of_pillow_images_keeps_mode_and_info(ae, mode):
    channels = len(mode)
    image = Image.fromarray(noise((9, 7, channels)[: 2 if channels == 1 else 3]))
    image.info["comment"] = b"kept"
    again = ae.roundtrip(image)
    assert (again.mode, again.size, again.info) == (image.mode, image.size, image.info)
    assert np.array_equal(np.asarray(again), np.asarray(image))


@pytest.mark.parametrize(("height", "width"), [(3, 70), (64, 65), (61, 129)])
def test_spectral_tiles_that_a_border_cuts_are_mirrored_whole(height, width):
    lite = Autoencoder(random_weights(build("zenith-4ch-lite"), seed=1), threads=2)
    picture = noise((height, width, 3))

    def whole(x, cell):
        ends = [(0, 0)] * (x.ndim - 3) + [(0, -n % cell) for n in x.shape[-3:-1]] + [(0, 0)]
        return np.pad(x, ends, mode="symmetric")

    z = lite.encode(picture)
    assert z.shape == (1, 4, -(-height // 8), -(-width // 8))
    assert np.array_equal(z, lite.encode(whole(picture, 64))[:, :, : z.shape[2], : z.shape[3]])
    latents = whole(z.transpose(0, 2, 3, 1), 8).transpose(0, 3, 1, 2)
    assert latents.shape[2] % 8 == latents.shape[3] % 8 == 0
    expected = lite.decode(latents)[:, :height, :width]
    assert np.array_equal(lite.decode(z, size=(height, width)), expected)


def test_batches_encode_like_single_pictures(ae):
    batch = noise((3, 19, 21, 3))
    z = ae.encode(batch)
    assert np.array_equal(z, np.concatenate([ae.encode(picture) for picture in batch]))


# ---- denoiser: the test model adds the noise level that it is told


@pytest.mark.parametrize("shape", ARRAYS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32, np.float64])
def test_denoising_keeps_type_and_shape_and_leaves_alpha_alone(dn, shape, dtype):
    picture = noise(shape, dtype)
    clean = dn(picture, sigma=25.5, strength=0.5)
    assert (clean.dtype, clean.shape) == (picture.dtype, picture.shape)
    peak = 1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    expected = np.clip(picture.astype(np.float64) + 0.05 * peak, 0, peak)
    if picture.ndim > 2 and shape[-1] in (2, 4):
        expected[..., -1] = picture[..., -1]
    tolerance = {1: 1, 255: 0.51, 65535: 0.51}[peak] if peak > 1 else 1e-3 if dtype == np.float16 else 1e-6
    assert np.abs(clean - expected).max() <= tolerance


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16", "I", "F"])
def test_denoising_keeps_pillow_modes(dn, mode):
    h, w = 9, 7
    image = {
        "I;16": lambda: Image.fromarray(noise((h, w), np.uint16)),
        "I": lambda: Image.fromarray(noise((h, w), np.uint16).astype(np.int32)),
        "F": lambda: Image.fromarray(noise((h, w), np.float32)),
    }.get(mode, lambda: Image.frombytes(mode, (w, h), noise((h, w, len(mode))).tobytes()))()
    clean = dn(image, sigma=25.5)
    assert (clean.mode, clean.size) == (mode, image.size)
    scale = {"I;16": 65535, "I": 65535, "F": 1}.get(mode, 255)
    expected = np.clip(np.asarray(image, float) + 0.1 * scale, 0, scale)
    if mode.endswith("A"):
        expected[..., -1] = np.asarray(image)[..., -1]
    assert np.allclose(np.asarray(clean, float), expected, rtol=0, atol=0.51 if scale > 1 else 1e-6)


@pytest.mark.parametrize(("mode", "back"), [("1", "L"), ("P", "RGB"), ("YCbCr", "RGB")])
def test_modes_that_cannot_hold_new_pixels_become_the_nearest(dn, mode, back):
    clean = dn(Image.new("RGB", (5, 4), (100, 120, 140)).convert(mode), sigma=10)
    assert (clean.mode, clean.size) == (back, (5, 4))


def test_cmyk_inks_are_denoised_as_light(dn):
    image = Image.new("CMYK", (5, 4), (100, 110, 120, 130))
    clean = dn(image, sigma=20)
    assert clean.mode == "CMYK"
    assert clean.getpixel((0, 0)) == (80, 90, 100, 110)  # brighter by 20 is less ink by 20


def test_a_path_gives_a_pillow_image_and_a_picture_a_picture(dn, tmp_path):
    array = noise((6, 5, 3))
    Image.fromarray(array).save(tmp_path / "a.png")
    clean = dn(tmp_path / "a.png", sigma=10)
    assert isinstance(clean, Image.Image)
    picture = read_picture(tmp_path / "a.png")
    again = dn(picture, sigma=10)
    assert isinstance(again, Picture)
    assert np.array_equal(again.pixels, np.asarray(clean))
    assert again.format == "PNG"


def test_every_frame_of_a_picture_is_worked_on(dn, ae):
    frames = [Picture(noise((9, 8, 3), seed=n), "RGB", "RGB", "WEBP") for n in range(3)]
    whole = replace(frames[0], more=tuple(frames[1:]))
    for model in (lambda p: dn(p, sigma=10), ae.roundtrip):
        result = model(whole)
        for frame, out in zip(frames, (result, *result.more), strict=True):
            assert np.array_equal(out.pixels, model(frame).pixels)


def test_one_frame_of_several_is_taken_with_a_warning(dn, ae):
    picture = Picture(noise((9, 8, 3)), "RGB", "RGB", "WEBP")
    several = replace(picture, more=(picture,))
    for call in (ae.encode, dn.estimate_sigma):
        with pytest.warns(UserWarning, match="the first of 2 frames"):
            result = call(several)
        assert np.array_equal(result, call(picture))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dn(several, sigma=10)
        ae.roundtrip(several)


def test_load_takes_weights_and_threads_are_whole_numbers(identity_autoencoder):
    weights = load_weights(identity_autoencoder)
    assert zenith_ae.load(weights).hash == weights.hash
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(ConfigError, match="threads"):
            zenith_ae.load(weights, threads=wrong)
    for device in ("tpu", "cuda:x", ""):
        with pytest.raises(ConfigError, match="device"):
            zenith_ae.load(weights, device=device)
    pytest.importorskip("torch")
    with pytest.raises(ConfigError, match="device"):
        zenith_ae.load(weights, device="cuda:99")


def test_each_picture_of_a_large_batch_has_its_own_level(dn, monkeypatch):
    monkeypatch.setattr(pipelines, "_PIXELS_AT_ONCE", 64)
    out = dn(np.zeros((3, 8, 8, 3), np.uint8), sigma=[10, 20, 30])
    assert [int(o.mean()) for o in out] == [10, 20, 30]


def test_the_estimate_has_a_limit(dn, monkeypatch):
    monkeypatch.setattr(pipelines, "SIGMA_LIMIT", 0.2)  # in units of 25; this one's estimate is 10
    assert dn.estimate_sigma(np.zeros((8, 8, 3), np.uint8)).max() == pytest.approx(5)


def test_grey_stored_as_colour_stays_grey():
    dn = zenith_ae.load("zenith-denoise")
    grey = noise((40, 50, 1))
    as_colour = dn(np.repeat(grey, 3, axis=2), sigma=25)
    assert np.array_equal(as_colour[..., 0], as_colour[..., 1])
    assert np.array_equal(as_colour[..., 0], as_colour[..., 2])
    assert np.abs(as_colour[..., 0].astype(int) - dn(grey[..., 0], sigma=25)).max() <= 1
    batch = np.stack([np.repeat(grey, 3, axis=2), noise((40, 50, 3), seed=1)])
    alone = dn(batch, sigma=25)
    assert np.array_equal(alone[0], as_colour)
    assert np.array_equal(alone[1], dn(batch[1], sigma=25))


def two_tone(kind):
    ink = np.zeros((40, 60), bool)
    if kind == "strokes":
        ink[5:30, 10] = ink[20, 5:50] = True
        ink[np.arange(30), np.arange(30)] = True
    elif kind == "dots":
        ink = np.random.default_rng(0).random(ink.shape) < 0.03
    elif kind == "mostly ink":
        ink[:] = True
        ink[10:12, 5:50] = False
    return np.where(ink[..., None], [20, 30, 200], [250, 250, 240]).astype(np.uint8)


@pytest.mark.parametrize("kind", ["strokes", "dots", "mostly ink", "plain"])
def test_what_is_drawn_in_two_colours_stays_as_it_is(dn, kind):
    picture = two_tone(kind)
    drawn = kind in ("strokes", "mostly ink")
    assert noise_levels.is_two_tone(picture) is drawn
    assert bool(dn.estimate_sigma(picture).any()) is not drawn
    assert np.array_equal(dn(picture), picture) is drawn
    assert not np.array_equal(dn(picture, sigma=10), picture)  # who gives a level is obeyed
    other = noise((40, 60, 3))
    assert not noise_levels.is_two_tone(other)
    batch = dn(np.stack([picture, other]))
    assert np.array_equal(batch, np.stack([dn(picture), dn(other)]))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_drawings_in_plain_colours_stay_as_they_are(dn, plan, dtype):
    picture = (plan / 255).astype(dtype) if dtype in (np.float32, np.float64) else plan.astype(dtype)
    picture = picture * dtype(257) if dtype == np.uint16 else picture
    assert not dn.estimate_sigma(picture).any()
    assert np.array_equal(dn(picture), picture)
    assert not np.array_equal(dn(picture, sigma=10), picture)  # who gives a level is obeyed


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (2, 3)])
def test_the_smallest_pictures_are_looked_at_too(dn, size):
    for picture in (np.full((*size, 3), 200, np.uint8), noise((*size, 3))):
        assert dn.estimate_sigma(picture).shape == size
        assert noise_levels.drawn_cells(picture).shape == tuple(-(-n // 8) for n in size)


def test_models_are_copied_and_sent_to_processes(dn, ae):
    image = noise((9, 8, 3))
    for copied in (copy.deepcopy(dn), pickle.loads(pickle.dumps(dn))):
        assert copied.engine is not dn.engine and copied.engine.threads == 2
        assert np.array_equal(copied(image, sigma=10), dn(image, sigma=10))
    again = pickle.loads(pickle.dumps(ae))
    assert again.engine.dtype == "float32" and again.space == ae.space
    assert np.array_equal(again.encode(image), ae.encode(image))


def test_only_a_picture_of_fewer_bits_than_its_file_is_warned_of(dn, ae, tmp_path):
    write_picture(Picture(noise((9, 8, 3), np.uint16), "RGB", "RGB"), tmp_path / "a.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ae.encode(tmp_path / "a.png")
        dn.estimate_sigma(tmp_path / "a.png")
    with pytest.warns(UserWarning, match="8 bits a channel"):
        dn(tmp_path / "a.png", sigma=10)


def test_an_array_of_fewer_bits_than_its_type_is_warned_of(dn):
    picture = noise((9, 8, 3)).astype(np.uint16)
    with pytest.warns(UserWarning, match="of 65535: if these are 8 bits, multiply them by 256"):
        dn(picture)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dn(picture * np.uint16(257))
        dn(picture, sigma=0.1)  # who gives a level knows


def test_the_result_of_a_path_keeps_what_its_file_says(dn, tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a camera", 6
    Image.fromarray(noise((6, 5, 3))).save(tmp_path / "a.jpg", icc_profile=profile, exif=exif)
    clean = dn(tmp_path / "a.jpg", sigma=10)
    assert clean.size == (6, 5)  # turned upright, and not to be turned again
    assert clean.info["icc_profile"] == profile
    assert (clean.getexif()[0x010F], clean.getexif()[0x0112]) == ("a camera", 1)


def test_automatic_level_is_that_of_the_estimator(dn):
    picture = np.full((21, 30, 3), 100, np.uint8)
    assert np.array_equal(dn(picture), dn(picture, sigma=10))
    assert dn(picture)[0, 0, 0] == 110
    level = dn.estimate_sigma(picture)
    assert level.shape == (21, 30)
    assert level == pytest.approx(10, rel=1e-6)
    assert dn.estimate_sigma(picture[None]).shape == (1, 21, 30)


def test_an_even_level_of_white_noise_is_what_is_measured(monkeypatch):
    model = zenith_ae.load("zenith-denoise-fast", threads=1)
    noisy = np.uint8(128 + 12 * np.random.default_rng(0).normal(size=(128, 128, 3)))
    said = np.full((1, 16, 16), 13.5, np.float32)
    monkeypatch.setattr(model, "_raw_levels", lambda *_, **__: said.copy())
    monkeypatch.setattr(model, "_experts", lambda *_, **__: ["white"])
    assert model.estimate_sigma(noisy).max() == pytest.approx(12, rel=0.04)
    said[:] = 10
    assert model.estimate_sigma(noisy) == pytest.approx(np.full((128, 128), 12), rel=0.08)
    few_and_loud = np.uint8(128 + 10.6 * np.random.default_rng(0).laplace(size=(128, 128, 3)))
    assert model.estimate_sigma(few_and_loud) == pytest.approx(np.full((128, 128), np.hypot(10, 2)), rel=1e-5)
    grey = np.uint8(128 + 16 * np.random.default_rng(0).normal(size=(128, 128, 1))).repeat(3, axis=2)
    said[:] = 12.5  # too loud for its calm places to count
    assert model.estimate_sigma(grey) == pytest.approx(np.full((128, 128), 16), rel=0.04)
    said[:] = 15
    assert noise_levels.white_noise(few_and_loud, 15) < 13  # but it is 15
    assert model.estimate_sigma(few_and_loud).max() == pytest.approx(15, rel=1e-5)
    said[:] = 0
    assert model.estimate_sigma(np.full_like(noisy, 128)).max() == 0
    said[:] = 10
    said[:, :8] = 15  # not the same everywhere
    assert model.estimate_sigma(noisy).max() == pytest.approx(15, rel=1e-5)


@pytest.mark.parametrize("layout", ["L", "LA", "RGB", "RGBA", "CMYK"])
def test_pixels_may_lie_in_any_order(layout):
    model = zenith_ae.load("zenith-denoise-fast", threads=1)
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[layout]
    pixels = np.random.default_rng(0).integers(100, 160, (1, 24, 40, channels), np.uint8)
    for other in (np.asfortranarray(pixels), pixels[:, ::-1, ::-1], np.rot90(pixels, axes=(1, 2))):
        assert not other.flags.c_contiguous
        for sigma in (15, "auto"):
            wanted = model.clean(np.ascontiguousarray(other), layout, sigma)
            assert np.array_equal(model.clean(other, layout, sigma), wanted)


def test_sigma_may_be_a_number_a_map_or_one_a_picture(dn):
    batch = np.full((2, 8, 10, 3), 100, np.uint8)
    levels = np.zeros((8, 10))
    levels[:, 5:] = 40
    assert np.array_equal(dn(batch[0], sigma=levels)[..., 1], 100 + levels)
    assert np.array_equal(dn(batch, sigma=[5, 50])[:, 0, 0, 0], [105, 150])
    assert np.array_equal(dn(batch, sigma=levels)[1, ..., 2], 100 + levels)
    both = np.stack([levels, levels + 3])
    for form in (both, both[:, None]):
        assert np.array_equal(dn(batch, sigma=form)[1, ..., 2], 103 + levels)
    torch = pytest.importorskip("torch")
    half = torch.tensor(0.5, requires_grad=True)
    wanted = dn(batch, sigma=20, strength=0.5, luma=0.5)
    assert np.array_equal(dn(batch, sigma=20, strength=half, luma=half), wanted)
    for some in ([0, 50], torch.tensor([0.0, 50.0], dtype=torch.bfloat16, requires_grad=True)):
        for model in (dn, zenith_ae.load("zenith-denoise", threads=1)):  # the first needs nothing
            both = model(batch, sigma=some)
            assert np.array_equal(both[0], batch[0])
            assert np.array_equal(both[1], model(batch[1], sigma=50))


def test_a_map_of_levels_with_holes_is_refused_in_one_line(dn):
    levels = np.full((40, 40), 5.0)
    levels[20, 20] = np.nan
    with pytest.raises(ValueError, match=r"sigma must be in 0..255, got array\(\[\[") as caught:
        dn(np.zeros((40, 40, 3), np.uint8), levels)
    assert "\n" not in str(caught.value)


def test_a_name_is_for_load_not_for_a_class():
    with pytest.raises(ConfigError, match=r"takes Weights, not str; zenith_ae.load takes"):
        Denoiser("zenith-denoise")


def test_latents_as_tensors_make_a_picture_too(ae):
    torch = pytest.importorskip("torch")
    file = ae.encode_picture(Picture(noise((24, 17, 3)), "RGB", "RGB"))
    wanted = ae.decode_picture(file)
    found = ae.decode_picture(replace(file, latents=torch.from_numpy(file.latents)))
    assert np.array_equal(found.pixels, wanted.pixels)


def test_tensors_that_are_no_levels_are_value_errors(dn):
    torch = pytest.importorskip("torch")
    level = torch.full((8, 8), 5.0)
    for sigma in (level.to("meta"), level.to_sparse(), level + 0j, torch.tensor(1j), torch.tensor(True)):
        with pytest.raises(ValueError, match="sigma must be"):
            dn(np.zeros((8, 8, 3), np.uint8), sigma)


def test_compiled_functions_may_call_a_model(ae, dn):
    torch = pytest.importorskip("torch")
    x = torch.rand(1, 3, 16, 24)
    for call in (
        lambda x: dn(x, 10.0) * 2,
        lambda x: ae.encode(x) + 1,
        lambda x: ae.decode(ae.encode(x)) + 1,
        lambda x: ae.roundtrip(x) + 1,
    ):
        compiled = torch.compile(call, backend="eager")
        torch.testing.assert_close(compiled(x), call(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["array", "tensor", "Picture", "Pillow"])
def test_a_round_trip_warns_once_and_of_the_callers_line(kind, ae):
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).random((8, 8, 3), np.float32) * 2 - 1
    image = {
        "array": values,
        "tensor": torch.from_numpy(values).permute(2, 0, 1),
        "Picture": Picture(values, "RGB", "RGB"),
        "Pillow": Image.fromarray(values[..., 0]),
    }[kind]
    with pytest.warns(UserWarning, match="many values are negative") as caught:
        ae.roundtrip(image)
    said = [str(warning.message) for warning in caught]
    assert {warning.filename for warning in caught} == {__file__}
    assert len(said) == len(set(said)) == 1 + (kind == "Pillow")  # of which it is also said that they are cut


@pytest.mark.parametrize(
    "options",
    [
        {"sigma": -1}, {"sigma": 256}, {"sigma": np.nan}, {"sigma": "much"}, {"sigma": np.ones((3, 3))},
        {"sigma": []}, {"sigma": None}, {"sigma": {}}, {"sigma": 1j}, {"luma": 2},
        {"chroma": np.nan}, {"grain": -1},
        {"strength": -0.1}, {"strength": 1.1}, {"strength": np.nan}, {"strength": None}, {"grain": "a"},
    ],
)  # fmt: skip
def test_levels_out_of_range_are_value_errors(dn, options):
    with pytest.raises(ValueError, match=r"sigma|strength|luma|chroma|grain"):
        dn(np.zeros((8, 8, 3), np.uint8), **options)


def test_brightness_colour_and_grain_are_removed_apart():
    dn = zenith_ae.load("zenith-denoise", threads=1)
    rng = np.random.default_rng(2)
    noisy = (0.5 + rng.normal(0, 0.06, (40, 56, 3))).astype(np.float32)  # nothing is clipped
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    whole = dn(noisy, sigma=15) - noisy
    brightness = whole @ weights

    colour = dn(noisy, sigma=15, luma=0) - noisy
    np.testing.assert_allclose(colour @ weights, 0, atol=1e-6)
    np.testing.assert_allclose(colour, whole - brightness[..., None], atol=1e-6)
    grey = dn(noisy, sigma=15, chroma=0, strength=0.5) - noisy
    np.testing.assert_allclose(grey, np.repeat(brightness[..., None] / 2, 3, 2), atol=1e-6)

    kept = (dn(noisy, sigma=15, grain=1) - noisy) @ weights
    fine = brightness - kept  # the noise that stayed
    assert fine.std() > 0.5 * brightness.std()
    assert abs(np.mean(fine)) < 1e-4
    # The binomial kernel takes the alternating pattern away completely, so all of it is left.
    checkers = (np.indices((40, 56)).sum(0) % 2 * 2 - 1)[4:-4, 4:-4]
    assert abs((kept[4:-4, 4:-4] * checkers).mean()) < 1e-4 < brightness.std()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_grain_changes_nothing_where_there_is_no_noise(dtype):
    dn = zenith_ae.load("zenith-denoise-fast", threads=1)
    noisy = noise((40, 56, 3))
    picture = noisy if dtype == np.uint8 else noisy / np.float32(255)
    level = np.zeros((40, 56))
    level[:, 28:] = 25
    result = dn(picture, level, grain=1)
    assert np.array_equal(result[:, :28], picture[:, :28])
    assert not np.array_equal(result[:, 28:], picture[:, 28:])


def test_pixels_that_are_not_of_their_layout_are_refused(dn):
    denoiser = zenith_ae.load("zenith-denoise-fast", threads=1)
    pixels = noise((2, 16, 24, 3))
    for layout, what in (
        ("rgb", "one of L, LA, RGB, RGBA, CMYK"),
        ("L", r"\(N, H, W, 1\), got \(2, 16, 24, 3"),
    ):
        for call in (denoiser.clean, denoiser.changes, denoiser.estimate):
            with pytest.raises(ValueError, match=what):
                call(pixels, layout)
    with pytest.raises(ValueError, match=r"\(N, H, W, 3\), got \(16, 24, 3"):
        denoiser.estimate(pixels[0], "RGB")
    with pytest.raises(ValueError, match=r"an estimate of shape \(2, 16, 24\) is not of \(1, 16, 24"):
        denoiser.changes(pixels[:1], "RGB", denoiser.estimate(pixels, "RGB"))


def test_passes_are_the_mean_over_orientations_of_the_picture(monkeypatch):
    """Against numpy's own turns and mirrors, on sizes that are no multiple of anything."""
    dn = zenith_ae.load("zenith-denoise", threads=1, dtype="float32")
    monkeypatch.setattr(dn, "_experts", lambda *_, **__: ["white"])  # turned, this may look like other noise
    rng = np.random.default_rng(4)
    noisy = np.clip(0.5 + rng.normal(0, 0.06, (45, 70, 3)), 0, 1).astype(np.float32)
    levels = np.linspace(5, 30, 45 * 70).reshape(45, 70)

    def one(turns, mirrored):
        def there(x):
            return np.rot90(x[:, ::-1] if mirrored else x, turns)

        back = np.rot90(dn(np.ascontiguousarray(there(noisy)), sigma=there(levels)), -turns)
        return back[:, ::-1] if mirrored else back

    turned = [one(turns, False) for turns in (0, 2, 1, 3)]
    mirrored = [one(turns, True) for turns in range(4)]
    for passes, expected in ((1, turned[:1]), (2, turned[:2]), (4, turned), (8, turned + mirrored)):
        result = dn(noisy, sigma=levels, passes=passes)
        assert result.shape == noisy.shape
        np.testing.assert_allclose(result, np.mean(expected, axis=0), atol=2e-6)


@pytest.mark.parametrize("layout", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_passes_of_batches_with_alpha_and_maps_in_tiles(layout, dtype, monkeypatch):
    dn = zenith_ae.load("zenith-denoise", threads=1, dtype="float32")
    batch = noise((2, 37, 52, len(layout)), dtype)
    chosen = dn._experts(batch, layout, "auto")  # once for all passes: turned, this may look like other noise
    monkeypatch.setattr(dn, "_experts", lambda *_, **__: chosen)
    levels = np.random.default_rng(1).uniform(5, 40, (2, 37, 52))
    result = dn.clean(batch, layout, levels, passes=4, tile=32)
    assert result.dtype == dtype and result.shape == batch.shape
    peak = np.iinfo(dtype).max
    turned = [
        np.rot90(dn.clean(np.rot90(batch, k, (1, 2)), layout, np.rot90(levels, k, (1, 2))), -k, (1, 2))
        for k in range(4)
    ]
    # Each of the four is clipped and rounded, which their mean is not before the end.
    inside = np.all([(t > 0) & (t < peak) for t in turned], axis=0)
    expected = np.mean(turned, axis=0, dtype=np.float64)
    assert inside.mean() > 0.3
    assert np.abs(result - expected)[inside].max() <= 1.01
    if layout.endswith("A"):
        assert np.array_equal(result[..., -1], batch[..., -1])


def test_passes_of_inks(dn):
    """The network of this test adds its plane: inks lose it, whatever the orientation."""
    inks = np.full((1, 9, 14, 4), 100, np.uint8)
    assert np.array_equal(dn.clean(inks, "CMYK", 10, passes=8), dn.clean(inks, "CMYK", 10))


def test_turning_back_undoes_each_orientation():
    pictures = noise((2, 5, 7, 3))
    for which in range(8):
        turned = orient(pictures, which)
        assert turned.shape == ((2, 7, 5, 3) if which & 4 else (2, 5, 7, 3))
        assert np.array_equal(unorient(turned, which), pictures)


@pytest.mark.parametrize("passes", [0, 3, -1, 16, 2.0, True, "4", None])
def test_there_are_1_2_4_or_8_passes(dn, passes):
    with pytest.raises(ValueError, match="passes must be one of 1, 2, 4, 8"):
        dn(np.zeros((8, 8, 3), np.uint8), sigma=10, passes=passes)


def test_strength_zero_changes_nothing(dn):
    picture = noise((9, 7, 3))
    clean = dn(picture, strength=0)
    assert np.array_equal(clean, picture)
    assert clean is not picture


def test_grey_is_the_mean_of_what_the_network_makes_of_three_channels(tmp_path):
    weights = random_weights(build("zenith-denoise"), seed=3)
    dn = Denoiser(weights, threads=1)
    grey = noise((64, 32), np.float32)  # whole tiles
    rgb = np.repeat(grey[..., None], 3, axis=2)
    plane = np.full((1, 64, 32), 20 / 255, np.float32)
    residual = dn._run("denoiser", rgb[None], plane, 0, None)[0].mean(axis=2)
    expected = np.clip(grey + 0.3 * residual, 0, 1)
    assert np.allclose(dn(grey, sigma=20, strength=0.3), expected, atol=1e-5)


def test_model_without_an_estimator_asks_for_the_level():
    dn = Denoiser(random_weights(build("conv-baseline")), threads=1)
    with pytest.raises(ConfigError, match="cannot estimate noise"):
        dn(np.zeros((8, 8, 3), np.uint8))


def test_tiles_and_threads_change_no_bit(dn):
    weights = random_weights(build("zenith-denoise"), seed=4)
    picture = noise((150, 170, 3))
    one = Denoiser(weights, threads=1)(picture, sigma=30, tile=0)
    for threads, tile in ((2, 0), (3, 64), (2, 96)):
        assert np.array_equal(Denoiser(weights, threads=threads)(picture, sigma=30, tile=tile), one)


def test_several_python_threads_may_share_a_model(ae):
    pictures = [noise((30 + i, 41, 3), seed=i) for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda p: ae.decode(ae.encode(p), size=p.shape[:2])[0], pictures))
    for picture, result in zip(pictures, results, strict=True):
        assert np.array_equal(picture, result)


# ---- torch tensors


def test_tensors_in_give_tensors_out(ae, dn):
    torch = pytest.importorskip("torch")
    x = torch.rand(2, 3, 17, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = ae.encode(x)
    assert isinstance(z, torch.Tensor)
    assert (z.shape, z.dtype) == ((2, 192, 3, 2), torch.float64)
    rgb = ae.decode(z, size=(17, 9))
    assert torch.allclose(rgb, x, atol=1e-6)
    assert torch.allclose(ae.roundtrip(x), x, atol=1e-6)
    clean = dn(x, sigma=25.5)
    assert clean.dtype == x.dtype
    assert torch.allclose(clean, (x + 0.1).clamp(0, 1), atol=1e-6)
    assert dn(x[0].half(), sigma=1).dtype == torch.float16
    assert dn(x[0, :1], sigma=1).shape == (1, 17, 9)
    assert dn.estimate_sigma(x).shape == (2, 17, 9)
    assert dn.estimate_sigma(x[0]).shape == (17, 9)


def test_values_of_12_bits_are_doubted_in_arrays_and_tensors(dn):
    torch = pytest.importorskip("torch")
    values = noise((9, 7, 3), np.uint16) >> 4
    for picture in (values, torch.from_numpy(values).permute(2, 0, 1)):
        with pytest.warns(UserWarning, match="these are 12 bits"):
            dn(picture)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_whole_numbers_in_tensors_are_what_they_are_in_arrays(ae, dn, dtype):
    torch = pytest.importorskip("torch")
    array = noise((2, 17, 9, 3), dtype)
    x = torch.from_numpy(array).permute(0, 3, 1, 2)
    clean = dn(x, sigma=25.5)
    assert clean.dtype == x.dtype
    assert np.array_equal(clean.permute(0, 2, 3, 1), dn(array, sigma=25.5))
    z = ae.encode(x[0])
    assert z.dtype == torch.float32
    assert np.array_equal(z, ae.encode(array[:1]))
    assert torch.equal(ae.roundtrip(x), x)


@pytest.mark.parametrize("options", [{"strength": 0}, {"sigma": 0}, {"sigma": 25.5}])
def test_doubles_that_do_not_change_keep_their_last_digit(dn, options):
    array = np.random.default_rng(1).random((9, 7, 4))
    clean = dn(array, **options)
    same = slice(3 if options.get("sigma") else 0, 4)  # alpha alone, or all
    assert np.array_equal(clean[..., same], array[..., same])
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(array).permute(2, 0, 1)
    assert torch.equal(dn(x, **options).permute(1, 2, 0)[..., same], x.permute(1, 2, 0)[..., same])


def test_unusable_tensors_are_image_errors(ae):
    torch = pytest.importorskip("torch")
    for bad in (torch.zeros(2, 5, 8, 8), torch.zeros(8, 8), torch.zeros(1, 3, 8, 8, dtype=torch.int64)):
        with pytest.raises(ImageError, match="torch picture"):
            ae.encode(bad)


# ---- inputs


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((4, 4, 5), np.uint8), "channels last"),
        (np.zeros(4, np.uint8), "channels last"),
        (np.zeros((4, 4, 3), np.int64), "convert it first"),
        (np.zeros((4, 4, 3), bool), "convert it first"),
        (np.zeros((0, 4, 3), np.uint8), "must have pixels"),
        (np.full((4, 4, 3), np.nan, np.float32), "not finite"),
        (np.full((4, 4, 3), 200.0), "must be in [0, 1]"),
        ([[1, 2]], "not list"),
        (None, "not NoneType"),
    ],
)
def test_what_is_no_picture_is_an_image_error(dn, image, words):
    with pytest.raises(ImageError) as caught:
        dn(image, sigma=5)
    assert words in str(caught.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_values_in_memory_are_one_line_and_views_are_fine(dn, ae):
    torch = pytest.importorskip("torch")
    ragged = torch.nested.nested_tensor([torch.zeros(2, 2), torch.zeros(3, 2)])
    for bad in (torch.ones(1, 192, 2, 2).to_sparse(), torch.empty(1, 192, 2, 2, device="meta"), ragged):
        with pytest.raises(LatentError, match="must be dense, with values"):
            ae.decode(bad)
        with pytest.raises(ImageError, match="must be dense, with values"):
            dn(bad, sigma=1)
    for dtype in (torch.complex64, torch.complex128):
        lazy = torch.complex(torch.zeros(1, 3, 8, 8), -torch.rand(1, 3, 8, 8)).to(dtype).conj().imag
        assert lazy.is_neg()  # its values are negated when they are read
        assert torch.equal(dn(lazy, sigma=1), dn(lazy.clone().resolve_neg(), sigma=1))


def test_foreign_byte_order_and_strides_are_fine(dn):
    picture = noise((8, 9, 3), np.uint16)
    for same in (picture.astype(">u2"), picture[::-1, ::-1][::-1, ::-1], np.asfortranarray(picture)):
        clean = dn(same, sigma=10)
        assert clean.dtype == same.dtype
        assert np.array_equal(clean, dn(picture, sigma=10))


def test_noise_beyond_the_unit_interval_is_accepted_and_the_result_is_clipped(dn):
    picture = noise((8, 8, 3), np.float32) * 1.6 - 0.3
    clean = dn(picture, sigma=0)
    assert np.allclose(clean, np.clip(picture, 0, 1), atol=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_what_a_noise_model_changes_is_bounded_by_the_level(sigma_denoiser, mode):
    """The model adds 40 times what it is told: 8 times are left up to a level of 2, nothing at none."""
    weights = load_weights(sigma_denoiser)
    loud = {name: 40 * t if name == "denoiser.1.weight" else t for name, t in weights.tensors.items()}
    free, blur, bounded = (
        zenith_ae.load(Weights(weights.config, loud, metadata), dtype="float32")
        for metadata in ({}, {"task": "blur"}, {"task": "noise"})
    )
    picture = Image.new(mode, (30, 200), (60,) * len(mode))
    levels = np.full((200, 30), 2, np.float32)
    levels[:150], levels[:, :20] = 1, 0

    def change(model, sigma):
        """Of red, of grey, or of cyan, an ink, of which there is less where it gets brighter."""
        sign = -1 if mode == "CMYK" else 1
        return sign * (np.asarray(model(picture, sigma=sigma), int).reshape(200, 30, -1)[..., 0] - 60)

    assert np.array_equal(change(bounded, levels), 8 * levels)
    assert (change(bounded, 2.2) == round(8 * 2.2 * 1.1**4)).all()
    whole = 60 if mode == "CMYK" else 160  # ink ends at none
    assert (change(bounded, 4) == whole).all()  # what the model adds: few wrong dots are far from the level
    assert (change(free, 1) == 40).all() and (change(blur, 1) == 40).all()


def test_cmyk_to_rgb_equals_pillow():
    inks = noise((50, 60, 4))
    expected = np.asarray(Image.frombytes("CMYK", (60, 50), inks.tobytes()).convert("RGB"), int)
    assert np.abs(to_rgb(inks[None], "CMYK")[0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_rgb_and_back_keeps_pixels(channels):
    batch = as_batch(noise((2, 5, 6, channels)))
    again = from_rgb(to_rgb(batch.pixels, batch.layout), batch.pixels, batch.layout)
    assert np.array_equal(again, batch.pixels)


def test_the_first_of_an_opened_animation_is_taken_with_a_warning(dn, tmp_path):
    frames = [Image.fromarray(noise((9, 8, 3), seed=n)) for n in range(3)]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    with Image.open(tmp_path / "a.webp") as image:
        with pytest.warns(UserWarning, match="only the first of several"):
            dn(image, sigma=10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            image.seek(1)  # meant
            dn(image, sigma=10)


@pytest.mark.parametrize("sigma", [10**400, [1 + 2j], ["25"], [True], [None]])
def test_a_level_is_a_number(dn, sigma):
    with pytest.raises(ValueError, match="sigma must be numbers"):
        dn(noise((9, 8, 3)), sigma=sigma)


@pytest.mark.filterwarnings("ignore:many values are negative")
def test_floats_with_the_strongest_noise_are_a_picture(dn):
    noisy = np.float32(0.5) + np.random.default_rng(0).standard_normal((64, 64, 3), dtype=np.float32)
    assert np.isfinite(dn(noisy, sigma=255)).all()


def test_a_size_may_be_an_array(ae):
    file = ae.encode_picture(Picture(noise((9, 8, 3)), "RGB", "RGB"))
    assert ae.decode(file, size=np.array([9, 8])).shape == (1, 9, 8, 3)


@pytest.mark.parametrize("layers", [(spec.PixelUnshuffle(48),), (spec.Clamp(1e300),)])
def test_layers_beyond_sense_are_refused(layers):
    with pytest.raises(ConfigError, match="must be"):
        random_weights(spec.ModelConfig("a", "autoencoder", {"encoder": (*layers, spec.Clamp())}, 3))


# ---- what callers of the library may get wrong


@pytest.fixture(scope="module")
def fast():
    return zenith_ae.load("zenith-denoise-fast", threads=1)  # which has an estimator


def _twelve_bits(channels):
    values = np.random.default_rng(0).normal(2000, 150, (16, 16, channels)).clip(0, 4095).astype(np.uint16)
    if channels in (2, 4):
        values[..., -1] = 65535  # alpha that hides nothing
    return values


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_values_of_fewer_bits_are_told_of_once_whatever_holds_them(fast, ae, channels, tmp_path):
    values = _twelve_bits(channels)
    layout = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
    images = [values, Picture(values, layout, layout)]
    images += [Image.fromarray(values[..., 0])] if channels == 1 else []
    for image in images:
        for call in (fast, fast.estimate_sigma, ae.encode, ae.roundtrip):
            with pytest.warns(UserWarning, match="if these are 1[12] bits") as caught:
                call(image)
            assert [warning.filename for warning in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fast(image, 10)  # where the level is told, nothing is looked for
    write_picture(Picture(values, layout, layout), tmp_path / "a.png")
    read = read_picture(tmp_path / "a.png")
    assert any("bits" in note for note in read.notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(read)  # whose note has said so


def test_what_a_pillow_image_loses_is_told_of(dn, tmp_path):
    image = Image.fromarray(np.full((12, 12), 40000, np.uint16))
    image.info["transparency"] = 25700
    with pytest.warns(UserWarning, match="transparent grey value") as caught:
        dn(image, 10)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert any("transparent grey" in note for note in write_picture(image, tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("pixels", "layout", "message"),
    [
        (np.zeros((1, 12, 12, 4), np.uint16), "CMYK", "CMYK are uint8, got uint16"),
        (np.zeros((1, 12, 12, 4), np.float32), "CMYK", "CMYK are uint8, got float32"),
        (np.zeros((1, 12, 12, 3), np.float64), "RGB", "uint8 or uint16 or float32, got float64"),
        (np.zeros((1, 12, 12, 3), ">u2"), "RGB", "got >u2"),
        (np.zeros((0, 12, 12, 3), np.uint8), "RGB", r"got \(0, 12, 12, 3\)"),
        (np.ma.array(np.zeros((1, 12, 12, 3), np.uint8), mask=True), "RGB", "not MaskedArray"),
        (np.zeros((1, 12, 12, 3), np.uint8), ["RGB"], "layout must be one of"),
    ],
)
def test_the_calls_on_bare_pixels_refuse_what_they_would_misread(fast, pixels, layout, message):
    for call in (fast.clean, fast.estimate, fast.changes):
        with pytest.raises(ValueError, match=message):
            call(pixels, layout)


def test_masks_are_refused_wherever_they_would_be_lost(dn):
    x = np.zeros((12, 12, 3), np.uint8)
    with pytest.raises(ValueError, match="lose its mask"):
        dn(x, np.ma.array(np.full((12, 12), 30.0), mask=True))
    with pytest.raises(ImageError, match="not MaskedArray"):
        dn(Picture(np.ma.array(x, mask=True), "RGB", "RGB"), 10)


def test_a_result_has_metadata_of_its_own(dn):
    picture = Picture(np.zeros((12, 12, 3), np.uint8), "RGB", "RGB", "PNG", {"dpi": (72, 72)})
    dn(picture, 5).metadata.pop("dpi")
    assert picture.metadata == {"dpi": (72, 72)}


def test_settings_are_checked_also_where_nothing_is_to_be_done(dn):
    x = np.zeros((12, 12, 3), np.uint8)
    for tile in ("x", -1, 1.5, True, np.array([1, 2])):
        with pytest.raises(ConfigError, match="tile must be"):
            dn(x, 10, strength=0, tile=tile)


def test_errors_are_one_line_whatever_they_are_about(ae, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there\n.png").write_bytes(b"xx")
    z = np.zeros((1, ae.config.latent_channels, 1, 1), np.float32)
    calls = [
        lambda: read_picture("a\nb.png"), lambda: zenith_ae.load("a\nb"),
        lambda: zenith_ae.read_latents("a\nb"),
        lambda: ae.decode(z, size=np.zeros((3, 3))), lambda: ae.decode([[1.0], [1, 2]]),
    ]  # fmt: skip
    calls += [partial(read, "there\n.png") for read in (read_picture, zenith_ae.read_latents, zenith_ae.load)]
    for call in calls:
        with pytest.raises(zenith_ae.ZenithError) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_path_is_no_name_and_an_error_says_so():
    with pytest.raises(WeightsError, match="by text, not a Path"):
        zenith_ae.load(Path("zenith-denoise"))


def test_every_call_is_one_that_torch_compile_leaves_alone(fast):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), np.uint8)
    compiled = torch.compile(
        lambda a: (
            fast.experts(a),
            fast.estimate(a, "RGB").levels,
            fast.clean(a, "RGB"),
            list(fast.changes(a, "RGB", 10)),
        ),
        backend="eager",
    )
    experts, levels, clean, changes = compiled(x)
    for mine, theirs in zip(changes, fast.changes(x, "RGB", 10), strict=True):
        np.testing.assert_array_equal(mine.residual, theirs.residual)
    assert experts == fast.experts(x)
    np.testing.assert_array_equal(levels, fast.estimate(x, "RGB").levels)
    np.testing.assert_array_equal(clean, fast.clean(x, "RGB"))
