"""Promises of the training data: pools, crops, prefetching, degradations, evaluation, the plot."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from zenith_ae.batches import LUMA, orient
from zenith_ae.errors import ConfigError, ImageError, OutputError
from zenith_ae.pipelines import OFF_GRID
from zenith_ae.training import degradations, drawings
from zenith_ae.training.contact_sheet import ContactSheet, _worst_place
from zenith_ae.training.data import (
    SMALL_ONES,
    ImagePool,
    Prefetcher,
    decode_rgb,
    iter_encoded,
    load_pool,
    random_crops,
)
from zenith_ae.training.degradations import (
    STORED_LEVEL,
    Mixture,
    flat_area,
    from_linear,
    local_rms,
    stored,
    to_linear,
)
from zenith_ae.training.evaluate import evaluate_model, find_pairs, format_table, to_json
from zenith_ae.training.plot import plot_log, read_log
from zenith_ae.weights import load_weights


def textured(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def smooth(count: int = 2, side: int = 96) -> np.ndarray:
    """Pictures (N, side, side, 3) float32 without black or white, so that nothing clips."""
    y, x = np.mgrid[:side, :side] / (side - 1)
    picture = np.stack([0.3 + 0.4 * x, 0.3 + 0.4 * y, 0.7 - 0.4 * x], axis=2)
    return np.repeat(picture[None], count, axis=0).astype(np.float32)


def save(image: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    for i, (height, width) in enumerate([(20, 30), (40, 16), (64, 64), (8, 9), (33, 47)]):
        save(textured(height, width, i), root / f"set{i % 2}" / f"picture{i}.png")
    return root


def pack(folder: Path, target: Path) -> Path:
    with tarfile.open(target, "w") as tar:
        for path in sorted(folder.iterdir(), reverse=True):
            tar.add(path, arcname=path.name)
    return target


# -- pools --------------------------------------------------------------------------------------


def test_folder_and_tar_of_it_give_the_same_pool(folder: Path, tmp_path: Path) -> None:
    plain, packed = ImagePool([folder]), ImagePool(pack(folder, tmp_path / "pack.tar"))
    assert plain.names == packed.names == sorted(plain.names)
    assert plain.names[0] == "set0/picture0.png"
    assert len(plain) == 5
    for a, b in zip(plain, packed, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(plain[0], textured(20, 30, 0))


def test_results_of_the_commands_in_a_folder_are_left_out(tmp_path: Path) -> None:
    for name in ("a.png", "a.denoised.png", "a.roundtrip.webp"):
        save(np.zeros((4, 4, 3), np.uint8), tmp_path / name)
    assert [name for name, _ in iter_encoded(tmp_path)] == ["a.png"]


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    """macOS puts a ._photo.png beside photo.png, in folders of other systems and in packs."""
    for name in ("photo.png", "._photo.png", ".thumbnails/photo.png"):
        save(textured(8, 8), tmp_path / "in" / name)
    with tarfile.open(tmp_path / "in.tar", "w") as tar:
        tar.add(tmp_path / "in", ".")
    for source in ("in", "in.tar"):
        assert [Path(name).name for name, _ in iter_encoded(tmp_path / source)] == ["photo.png"]


def test_broken_files_are_skipped_and_counted(folder: Path) -> None:
    whole = (folder / "set0" / "picture2.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "lies.webp").write_bytes(b"not a picture at all")
    (folder / "notes.txt").write_bytes(b"not a picture, and does not claim to be one")
    pool = ImagePool([folder])
    assert list(pool.skipped) == ["cut.png", "empty.jpg", "lies.webp"]
    assert "is empty" in pool.skipped["empty.jpg"]
    assert len(pool) == 5
    with pytest.raises(ImageError, match=r"there are 5 \(3 files are none or too small\)"):
        pool.split(validation=9)


def test_trainings_say_what_they_leave_out(folder: Path, capsys) -> None:
    load_pool([str(folder)])
    assert not capsys.readouterr().err
    (folder / "empty.jpg").write_bytes(b"")
    assert len(load_pool([str(folder)], drawn=2)) > 5
    said = capsys.readouterr().err
    assert said.startswith("1 of 6 files are no usable pictures or too small and left out")
    assert said.endswith("such as empty.jpg: is empty; copy or export the picture again\n"), said


def test_sources_without_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no such folder"):
        ImagePool([tmp_path / "absent"])
    with pytest.raises(ImageError, match="no usable picture"):
        ImagePool([tmp_path])
    (tmp_path / "bad.tar").write_bytes(b"x" * 2000)
    with pytest.raises(ImageError, match=r"bad\.tar"):
        ImagePool([tmp_path / "bad.tar"])


def test_every_mode_decodes_to_upright_rgb() -> None:
    def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
        stream = io.BytesIO()
        image.save(stream, kind, **options)
        return stream.getvalue()

    grey = textured(5, 7)[..., 0]
    np.testing.assert_array_equal(decode_rgb(encoded(Image.fromarray(grey))), np.dstack([grey] * 3))
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    np.testing.assert_array_equal(decode_rgb(encoded(deep)), np.dstack([grey] * 3))
    assert decode_rgb(encoded(Image.fromarray(textured(5, 7)).convert("P"))).shape == (5, 7, 3)
    assert decode_rgb(encoded(Image.fromarray(textured(5, 7)).convert("RGBA"))).shape == (5, 7, 3)
    bright = Image.fromarray(grey.astype(np.float32) / 255)
    np.testing.assert_array_equal(decode_rgb(encoded(bright, "TIFF")), np.dstack([grey] * 3))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees to show
    assert decode_rgb(encoded(Image.fromarray(textured(5, 7)), exif=exif)).shape == (7, 5, 3)


def test_split_is_disjoint_complete_and_independent_of_order(folder: Path) -> None:
    pool = ImagePool([folder])
    train, validation = pool.split(validation=2, seed=3)
    for part in (train, validation, train.photographs()):
        assert all(pool[i] is image for i, image in zip(part.indices, part.images, strict=True))
    assert len(train) == 3
    assert len(validation) == 2
    assert set(train.names) | set(validation.names) == set(ImagePool([folder]).names)
    files = sorted(folder.rglob("*.png"), reverse=True)
    bare = ImagePool(files).split(validation=2, seed=3)[1].names
    assert set(bare) == set(ImagePool(files[::-1]).split(validation=2, seed=3)[1].names)
    for i in range(4):
        save(textured(8, 8, i), folder.parent / "twin" / f"{i // 2}" / f"{i % 2}.png")
    twins = [folder.parent / "twin" / side for side in "01"]  # whose files have the same names
    first, second = (ImagePool(order).split(validation=1)[1].images[0] for order in (twins, twins[::-1]))
    np.testing.assert_array_equal(first, second)
    twice, same = ImagePool([folder, folder]).split(validation=2, seed=3)
    assert set(same.names) == set(validation.names) and len(twice) == 6
    chosen = {tuple(ImagePool([folder]).split(2, seed)[1].names) for seed in range(20)}
    assert len(chosen) > 1
    with pytest.raises(ValueError, match="validation"):
        ImagePool([folder]).split(validation=5)


# -- crops --------------------------------------------------------------------------------------


def coordinates(height: int, width: int) -> np.ndarray:
    """A picture whose every pixel says where it is."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y, x, np.full_like(y, 7)], axis=2).astype(np.uint8)


def one_picture_pool(tmp_path: Path, image: np.ndarray) -> ImagePool:
    save(image, tmp_path / "one" / "one.png")
    return ImagePool([tmp_path / "one"])


def test_crops_are_windows_of_the_picture_and_reach_every_place(tmp_path: Path) -> None:
    pool = one_picture_pool(tmp_path, coordinates(40, 56))
    crops = random_crops(pool, rng(), 4000, 24, augment=False)
    assert crops.shape == (4000, 24, 24, 3)
    assert crops.dtype == np.uint8
    corners = set()
    for crop in crops:
        top, left = int(crop[0, 0, 0]), int(crop[0, 0, 1])
        np.testing.assert_array_equal(crop, coordinates(40, 56)[top : top + 24, left : left + 24])
        corners.add((top, left))
    assert {y for y, _ in corners} == set(range(17))
    assert {x for _, x in corners} == set(range(33))


def test_augmentation_shows_all_eight_symmetries_evenly(tmp_path: Path) -> None:
    image = coordinates(16, 16)
    pool = one_picture_pool(tmp_path, image)
    views = [orient(image, which).tobytes() for which in range(8)]
    assert len(set(views)) == 8
    assert views[0] == image.tobytes()
    seen = Counter(views.index(crop.tobytes()) for crop in random_crops(pool, rng(), 800, 16))
    assert set(seen) == set(range(8))
    assert min(seen.values()) > 60  # 100 expected


def test_small_pictures_are_continued_by_reflection(tmp_path: Path) -> None:
    pool = one_picture_pool(tmp_path, coordinates(5, 9))
    crop = random_crops(pool, rng(), 1, 9, augment=False)[0]
    np.testing.assert_array_equal(crop[:, 0, 0], [0, 1, 2, 3, 4, 3, 2, 1, 0])
    np.testing.assert_array_equal(crop[0, :, 1], range(9))


def test_scaled_crops_are_reduced_windows(tmp_path: Path) -> None:
    y, x = np.mgrid[:128, :128]
    ramp = np.stack([y, x, x], axis=2).astype(np.uint8)
    pool = one_picture_pool(tmp_path, ramp)
    crops = random_crops(pool, rng(), 100, 32, scale_probability=1.0, augment=False).astype(int)
    steps = (crops[:, -4, 0, 0] - crops[:, 4, 0, 0]) / 24  # source pixels a pixel
    assert steps.min() >= 0.9
    assert steps.max() <= 2.1
    assert steps.max() - steps.min() > 0.7


def test_pictures_are_drawn_by_their_area(tmp_path: Path) -> None:
    save(textured(10, 10), tmp_path / "p" / "a.png")
    save(textured(30, 30), tmp_path / "p" / "b.png")
    share = ImagePool([tmp_path / "p"]).pick(rng(), 4000).mean()
    assert share == pytest.approx(0.9, abs=0.02)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 48), st.integers(0, 99))
def test_crops_of_any_picture_have_the_asked_size(h: int, w: int, size: int, seed: int) -> None:
    pool = object.__new__(ImagePool)
    pool.images, pool.names, pool.skipped = [textured(h, w, seed)], ["x"], {}
    pool._index()
    crops = random_crops(pool, rng(seed), 3, size, scale_probability=0.5)
    assert crops.shape == (3, size, size, 3)


# -- prefetching --------------------------------------------------------------------------------


def test_prefetcher_is_deterministic_for_any_workers_and_resumes_exactly(folder: Path) -> None:
    pool = ImagePool([folder])

    def make(generator: np.random.Generator) -> np.ndarray:
        return random_crops(pool, generator, 2, 16, scale_probability=0.5)

    with Prefetcher(make, seed=5) as straight:
        expected = [next(straight) for _ in range(12)]
        assert straight.step == 12
    np.testing.assert_array_equal(expected[3], make(np.random.default_rng((5, 3))))
    assert not np.array_equal(expected[0], expected[1])
    with Prefetcher(make, seed=5, workers=3) as wide:
        for batch in expected:
            np.testing.assert_array_equal(next(wide), batch)
    with Prefetcher(make, seed=5, workers=2, processes=True) as forked:
        for batch in expected:
            np.testing.assert_array_equal(next(forked), batch)
    for start in (1, 7):
        with Prefetcher(make, seed=5, start_step=start) as resumed:
            for batch in expected[start:]:
                np.testing.assert_array_equal(next(resumed), batch)


def test_prefetcher_works_ahead_but_not_without_bound() -> None:
    made = []
    third = threading.Event()

    def make(generator: np.random.Generator) -> int:
        made.append(1)
        if len(made) == 3:
            third.set()
        return len(made)

    with Prefetcher(make, seed=0) as batches:
        next(batches)
        assert third.wait(30), "the batches after the first are made without being asked for"
    assert len(made) == 3


@pytest.mark.parametrize("processes", [False, True])
def test_prefetcher_raises_the_error_of_a_batch_and_ends_cleanly(processes: bool) -> None:
    def make(generator: np.random.Generator) -> int:
        raise OSError("disk gone")

    batches = Prefetcher(make, seed=0, processes=processes)
    for _ in range(2):
        with pytest.raises(OSError, match="disk gone"):
            next(batches)
    batches.close()
    batches.close()


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are looked at in /proc")
def test_batches_outlive_a_killed_worker(capsys) -> None:
    def make(generator: np.random.Generator) -> tuple[int, float]:
        return os.getpid(), generator.random()

    with Prefetcher(make, seed=3, workers=2, processes=True) as batches:
        made = [next(batches) for _ in range(3)]
        assert os.getpid() not in {pid for pid, _ in made}
        os.kill(made[0][0], signal.SIGTERM)
        deadline = time.monotonic() + 30
        while not batches._executor._broken and time.monotonic() < deadline:
            time.sleep(0.01)  # until the pool knows, and ends the other one
        made += [next(batches) for _ in range(9)]
    assert [value for _, value in made] == [np.random.default_rng((3, i)).random() for i in range(12)]
    assert made[-1][0] == os.getpid()
    assert capsys.readouterr().err.count("was killed") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are looked at in /proc")
def test_workers_end_with_a_killed_trainer() -> None:
    code = """
import os, signal
from zenith_ae.training.data import Prefetcher
batches = Prefetcher(lambda generator: os.getpid(), seed=0, workers=2, processes=True)
print(*{next(batches) for _ in range(6)}, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    workers = [Path(f"/proc/{pid}/stat") for pid in done.stdout.split()]
    assert workers

    def lives(stat: Path) -> bool:
        try:
            return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
        except FileNotFoundError:
            return False

    for _ in range(300):
        if not any(map(lives, workers)):
            break
        time.sleep(0.1)
    assert not any(map(lives, workers))


# -- degradations -------------------------------------------------------------------------------


def test_transfer_curve_inverts() -> None:
    x = np.linspace(0, 1, 1001, dtype=np.float32)
    np.testing.assert_allclose(from_linear(to_linear(x)), x, atol=2e-6)
    assert to_linear(np.float32(0.5)) == pytest.approx(0.21404, abs=1e-5)  # a known value of sRGB


def test_gaussian_has_exactly_the_told_level_and_is_not_clipped() -> None:
    clean = np.ones((2, 128, 128, 3), np.float32)
    degraded, sigma = degradations.gaussian(clean, rng(), np.array([0.1, 0.2])[:, None, None])
    assert sigma.shape == (2, 128, 128)
    assert np.unique(sigma[0]) == np.float32(0.1)
    assert (degraded - clean).std(axis=(1, 2, 3)) == pytest.approx([0.1, 0.2], rel=0.02)
    assert abs((degraded - clean).mean()) < 0.003
    assert degraded.max() > 1.3


def test_varying_gaussian_follows_its_map() -> None:
    level = degradations.smooth_map(rng(1), 128, 96, 0.02, 0.2)
    assert level.shape == (128, 96)
    assert 0.02 <= level.min() < level.max() <= 0.2
    assert np.abs(np.diff(level, axis=0)).max() < 0.2 / 30  # no jumps
    clean = np.zeros((1, 128, 96, 3), np.float32)
    degraded, told = degradations.gaussian(clean, rng(), level)
    np.testing.assert_array_equal(told[0], level)
    assert (degraded[0] / level[..., None]).std() == pytest.approx(1, rel=0.02)


def test_poisson_gaussian_has_the_variance_of_a_sensor() -> None:
    gain, read = 2e-3, 4e-3
    for value in (0.3, 0.6):
        clean = np.full((1, 128, 128, 3), value, np.float32)
        degraded, sigma = degradations.poisson_gaussian(clean, rng(), gain, read, (2.0, 1.0, 1.5))
        error = to_linear(degraded) - to_linear(clean)
        light = float(to_linear(np.float32(value)))
        for channel, balance in enumerate((2.0, 1.0, 1.5)):
            expected = balance * math.sqrt(gain * light / balance + read**2)
            assert error[..., channel].std() == pytest.approx(expected, rel=0.04)
            assert abs(error[..., channel].mean()) < expected / 40
        assert sigma.mean() == pytest.approx((degraded - clean).std(), rel=0.05)


@pytest.mark.parametrize("per_channel", [False, True])
def test_salt_and_pepper_hits_the_asked_fraction_evenly(per_channel: bool) -> None:
    clean = np.full((1, 200, 200, 3), 0.5, np.float32)
    degraded, _ = degradations.salt_and_pepper(clean, rng(), 0.08, per_channel)
    assert set(np.unique(degraded)) == {0.0, 0.5, 1.0}
    assert (degraded == 0).mean() == pytest.approx(0.04, rel=0.1)
    assert (degraded == 1).mean() == pytest.approx(0.04, rel=0.1)
    whole = (degraded != 0.5).all(axis=3).mean()
    assert whole == pytest.approx(0.08 if not per_channel else 0.08**3, rel=0.1, abs=0.001)


def test_blur_is_the_named_filter_and_keeps_brightness() -> None:
    impulse = np.zeros((1, 33, 33, 3), np.float32)
    impulse[0, 16, 16] = 1
    box, _ = degradations.blur(impulse, rng())
    np.testing.assert_allclose(box[0, 15:18, 15:18], 1 / 9, rtol=1e-6)
    assert box.sum() == pytest.approx(3, rel=1e-5)
    spread, _ = degradations.blur(impulse, rng(), "gaussian", 1.2)
    offset = np.arange(33) - 16
    assert (spread[0, ..., 0].sum(axis=0) * offset**2).sum() == pytest.approx(1.2**2, rel=0.05)
    for radius in (0.3, 1.0, 2.7):
        disc, _ = degradations.blur(impulse, rng(), "disc", radius)
        assert disc.sum() == pytest.approx(3, rel=1e-5)
        np.testing.assert_array_equal(disc, disc[:, ::-1])
        np.testing.assert_allclose(disc, disc.transpose(0, 2, 1, 3), atol=1e-7)
        distance = np.hypot(offset[:, None], offset)
        assert disc[0, distance > radius + 0.8].max() == 0
        # A point of a disc of area pi r^2 holds 1 / (pi r^2), if its pixel lies inside whole.
        if radius > 1:
            np.testing.assert_allclose(disc[0, distance < radius - 0.8], 1 / np.pi / radius**2, rtol=0.02)
    flat = np.full((1, 16, 16, 3), 0.5, np.float32)
    noisy, sigma = degradations.blur(flat, rng(), noise=0.05)
    assert (noisy - flat).std() == pytest.approx(0.05, rel=0.1)
    assert (sigma == np.float32(0.05)).all()
    stored, sigma = degradations.blur(smooth(1), rng(), stored=True)
    assert (sigma == 0).all()
    np.testing.assert_allclose(stored * 255, np.round(stored * 255), atol=1e-4)


def test_the_grid_of_a_jpeg_lies_at_any_of_its_places(monkeypatch) -> None:
    from zenith_ae.training import degradations

    pad, seen = np.pad, set()
    monkeypatch.setattr(
        degradations.np, "pad", lambda x, widths, **how: seen.add(widths[0][0]) or pad(x, widths, **how)
    )
    clean = np.full((1, 16, 16, 3), 0.5, np.float32)
    for subsample, size in ((False, 8), (True, 16)):  # colour of half the resolution has larger blocks
        seen.clear()
        for seed in range(200):
            degradations.jpeg(clean, rng(seed), 50, subsample=subsample)
        assert seen == set(range(size))


@pytest.mark.parametrize("subsample", [False, True])
def test_blocks_in_place_begin_where_a_denoiser_finds_those_of_a_file(subsample) -> None:
    """What was a JPEG is nearly the same in another of its grid."""
    clean = np.random.default_rng(0).random((1, 96, 96, 3), np.float32)
    found = degradations.jpeg(clean, rng(1), 50, subsample, in_place=1.0)[0]

    def changed(at: int) -> float:
        part = np.rint(found[0, at : at + 64, at : at + 64] * 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(part).save(stream, "JPEG", quality=50, subsampling=2 if subsample else 0)
        return float(np.abs(np.asarray(Image.open(stream)).astype(int) - part).mean())

    changes = [changed(at) for at in range(16 if subsample else 8)]
    assert np.argmin(changes) == OFF_GRID
    places = {degradations.jpeg(clean, rng(seed), 50, subsample, 0.5)[0].tobytes() for seed in range(12)}
    assert 3 < len(places) < 12  # half of them lie anywhere


def test_some_jpegs_are_of_poor_quality() -> None:
    mixture, generator = Mixture(strong=0.3), rng()
    qualities = np.array([mixture._quality(generator) for _ in range(500)])
    assert np.mean(qualities < 50) == pytest.approx(0.3, abs=0.06)
    assert qualities.min() == 20 and qualities.max() == 95


def test_edited_photographs_are_brighter_of_more_contrast_or_sharper() -> None:
    photo = np.clip(textured(64, 64).astype(int), 20, 200).astype(np.uint8)
    before = photo.copy()
    results = [degradations.edited(photo, rng(seed)) for seed in range(60)]
    np.testing.assert_array_equal(photo, before)
    assert all(r.dtype == np.uint8 and r.shape == photo.shape and (r != photo).any() for r in results)

    def rough(picture: np.ndarray) -> float:
        return float(np.abs(np.diff(picture.astype(int), axis=0)).mean())

    assert np.mean([rough(r) > rough(photo) for r in results]) > 0.8
    assert 0.1 < np.mean([np.isin(r, (0, 255)).mean() > 0.05 for r in results]) < 1
    again = degradations.edited(photo, rng(7))
    np.testing.assert_array_equal(again, results[7])


@pytest.fixture
def only(monkeypatch):
    """One edit of all photographs: by its place among them."""

    def choose(place: int) -> None:
        for name in ("HARD", "NEGATIVE", "DITHERED"):
            monkeypatch.setattr(degradations, name, 0.0)
        monkeypatch.setattr(degradations, "EDITED", tuple(float(i == place) for i in range(6)))

    return choose


def test_some_edited_photographs_are_more_vivid(only) -> None:
    only(4)
    photo = (textured(64, 64) // 2 + 64).astype(np.uint8)
    grey = np.repeat(photo[..., :1], 3, axis=2)
    for seed in range(8):
        vivid = degradations.edited(photo, rng(seed)).astype(float)
        spread = [np.ptp(picture.astype(float), axis=2).mean() for picture in (vivid, photo)]
        assert 1.1 < spread[0] / spread[1] <= 3.55
        np.testing.assert_array_equal(degradations.edited(grey, rng(seed)), grey)
    half = degradations.saturated(photo.astype(np.float32), 0.5)
    np.testing.assert_allclose(half @ LUMA, photo @ LUMA, atol=1e-3)  # whose brightness stays
    np.testing.assert_allclose(degradations.saturated(half, 2.0), photo, atol=1e-3)


def test_some_edited_photographs_are_reduced_without_a_filter(only) -> None:
    only(0)
    photo = textured(50, 67)
    thin = [degradations.edited(photo, rng(seed)) for seed in range(20)]
    assert all(one.shape == photo.shape and (one != photo).any() for one in thin)
    values = {tuple(pixel) for pixel in photo.reshape(-1, 3)}
    nearest = [all(tuple(pixel) in values for pixel in one.reshape(-1, 3)) for one in thin]
    assert 8 < sum(nearest) < 20
    for every, first in ((2, 0), (3, 1)):
        few = photo[first::every, first::every][: int(50 / every), : int(67 / every)]
        height, width, _ = few.shape
        found = degradations.thinned(photo, every)
        np.testing.assert_array_equal(found[:height, :width], few)
        np.testing.assert_array_equal(found[height : 2 * height, :width], few[::-1][: 50 - height])
        np.testing.assert_array_equal(found[:height, width : 2 * width], few[:, ::-1][:, : 67 - width])
    ramp = np.repeat(np.arange(0, 60, 1, np.uint8)[None, :, None], 40, axis=0).repeat(3, axis=2)
    smooth = degradations.thinned(ramp, 2.5, smooth=True)[:16, :24]
    np.testing.assert_allclose(
        smooth[..., 0], np.broadcast_to((np.arange(24) + 0.5) * 2.5 - 0.5, (16, 24)), atol=0.5
    )


def test_channels_of_some_edited_photographs_lie_apart(only) -> None:
    only(1)
    photo = textured(50, 67)
    for seed in range(8):
        result = degradations.edited(photo, rng(seed))
        for i in range(3):
            assert any(
                (np.roll(photo[..., i], (y, x), (0, 1)) == result[..., i]).all()
                for y in range(-3, 4) for x in range(-3, 4)
            )  # fmt: skip


def test_some_edited_photographs_are_negatives_or_dithered(only, monkeypatch) -> None:
    only(1)
    monkeypatch.setattr(degradations, "APART", 0)
    photo = textured(50, 67)
    monkeypatch.setattr(degradations, "NEGATIVE", 1.0)
    np.testing.assert_array_equal(degradations.edited(photo, rng(0)), 255 - photo)
    monkeypatch.setattr(degradations, "DITHERED", 1.0)
    counts = [
        len(np.unique(degradations.edited(photo, rng(seed)).reshape(-1, 3), axis=0)) for seed in range(20)
    ]
    assert 2 in counts and 2 < max(counts) <= 16
    only(3)
    monkeypatch.setattr(degradations, "EQUALIZED", 1.0)
    dull = (photo // 4 + 90).astype(np.uint8)
    assert np.ptp(degradations.edited(dull, rng(0))) > 200


def test_edited_photographs_of_hard_contrast_are_mostly_black_and_white(monkeypatch) -> None:
    photo = np.clip(textured(64, 64).astype(int), 20, 200).astype(np.uint8)
    cut = {}
    for share in (0.0, 1.0):
        monkeypatch.setattr(degradations, "HARD", share)
        results = [degradations.edited(photo, rng(seed)) for seed in range(60)]
        cut[share] = np.mean([np.isin(result, (0, 255)).mean() for result in results])
    assert cut[1.0] > max(0.5, cut[0.0] + 0.1)


def test_black_and_white_stays_so_in_a_jpeg_of_full_colour_and_is_told_its_own_level() -> None:
    clean = np.repeat(textured(64, 64)[None, ..., :1], 3, axis=3).astype(np.float32) / 255
    noisy, level = stored(clean, rng(1), 0.1, 90, subsample=False, grey=True)
    assert (noisy == noisy[..., :1]).all()
    of_file, told = (np.sqrt(np.square(x).mean()) for x in (noisy - clean, level))
    assert told == pytest.approx(STORED_LEVEL * of_file, rel=0.05)


def test_jpeg_hurts_more_at_lower_quality_and_moves_its_grid() -> None:
    clean = textured(64, 64)[None].astype(np.float32) / 255
    errors = [np.abs(degradations.jpeg(clean, rng(1), q)[0] - clean).mean() for q in (95, 75, 40)]
    assert errors[0] < errors[1] < errors[2]
    outputs = {degradations.jpeg(clean, rng(seed), 60)[0].tobytes() for seed in range(8)}
    assert len(outputs) > 4


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("contrast", [1.0, 1.3])
def test_camera_noise_has_the_asked_strength(reduced: bool, contrast: float) -> None:
    clean = smooth()
    degraded, sigma = degradations.camera(
        clean, rng(), 8 / 255, contrast=contrast, luma_blur=0.6, chroma_blur=1.5, reduced=reduced
    )
    error = degraded - clean
    assert np.sqrt((error**2).mean()) == pytest.approx(8 / 255, rel=0.06)
    assert sigma.mean() == pytest.approx(8 / 255, rel=0.1)
    assert abs(error.mean()) < 0.5 / 255
    np.testing.assert_allclose(degraded * 255, np.round(degraded * 255), atol=1e-3)  # an 8-bit file


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_camera_noise_is_correlated_between_neighbours_and_channels() -> None:
    clean = np.full((1, 128, 128, 3), 0.5, np.float32)
    error = degradations.camera(clean, rng(), 12 / 255, saturation=0.0)[0] - clean
    # Samples and their interpolated neighbours: covariance 1/2, variances 1 and 1/2 in turn.
    assert correlation(error[:, 1:, :, 0], error[:, :-1, :, 0]) == pytest.approx(2 / 3, abs=0.04)
    assert abs(correlation(error[..., 0], error[..., 1])) < 0.05
    fine = degradations.camera(clean, rng(), 12 / 255, saturation=0.0, reduced=True)[0] - clean
    # Pairs averaged: 3/4 of one sample and 1/4 of the next.
    assert correlation(fine[:, 1:, :, 0], fine[:, :-1, :, 0]) == pytest.approx(0.3, abs=0.04)
    mixed = degradations.camera(clean, rng(), 12 / 255, saturation=0.8)[0] - clean
    assert correlation(mixed[..., 0], mixed[..., 1]) < -0.1
    white = degradations.gaussian(clean, rng(), 12 / 255)[0] - clean
    assert abs(correlation(white[:, 1:], white[:, :-1])) < 0.05


def test_camera_noise_grows_in_linear_light_with_brightness() -> None:
    clean = np.full((1, 64, 128, 3), 0.2, np.float32)
    clean[:, :, 64:] = 0.8
    error = to_linear(degradations.camera(clean, rng(), 6 / 255)[0]) - to_linear(clean)
    ratio = error[:, :, 66:].std() / error[:, :, :62].std()
    assert ratio == pytest.approx(math.sqrt(0.6038 / 0.0331), rel=0.15)  # photon noise dominates


def test_what_a_noise_reduction_leaves_lies_where_the_picture_has_detail() -> None:
    clean = np.full((1, 96, 192, 3), 0.5, np.float32)
    clean[:, :, 96:] += 0.2 * np.sign(rng(1).standard_normal((96, 96, 1))).astype(np.float32)
    ratios = []
    for shrinkage in ((), (3.0, 3.0, 2.0)):
        error = degradations.camera(clean, rng(), 6 / 255, shrinkage=shrinkage)[0] - clean
        assert np.sqrt((error**2).mean()) == pytest.approx(6 / 255, rel=0.06)
        assert abs(error.mean()) < 0.5 / 255
        ratios.append(error[:, :, :90].std() / error[:, :, 102:].std())
    plain, shrunk = ratios
    assert shrunk < 0.6 * plain


def test_shrinkage_spares_what_stands_out_and_takes_the_rest() -> None:
    clean = smooth()
    a, b = (degradations.gaussian(clean, rng(seed), 10 / 255)[0] for seed in (1, 2))
    nothing = degradations._shrink(a, b, ())
    np.testing.assert_allclose(nothing[0], a, atol=1e-6)
    less = degradations._shrink(a, b, (3.0, 3.0, 3.0))
    assert all((x - clean).std() < 0.35 * (10 / 255) for x in less)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_local_rms_is_the_mean_over_the_window(h: int, w: int, seed: int) -> None:
    error = rng(seed).standard_normal((1, h, w, 3)).astype(np.float32)
    got = local_rms(error)
    assert got.shape == (1, h, w)
    padded = np.pad((error[0].astype(float) ** 2).mean(axis=2), 8, mode="reflect")
    y, x = h // 2, w // 2
    assert got[0, y, x] == pytest.approx(math.sqrt(padded[y : y + 17, x : x + 17].mean()), rel=1e-4)
    assert got[0, 0, 0] == pytest.approx(math.sqrt(padded[:17, :17].mean()), rel=1e-4)


@pytest.mark.parametrize("kind", Mixture.KINDS)
def test_every_kind_of_the_mixture_is_finite_and_told_what_it_did(kind: str) -> None:
    only = Mixture(grey=0.0, soft=0.0, **({k: 0.0 for k in Mixture.KINDS} | {kind: 1.0}))  # type: ignore[arg-type]
    batch = (smooth(6) * 255).round().astype(np.uint8)
    degraded, clean, sigma, kinds = only.sample(batch, rng(4))
    np.testing.assert_array_equal((clean * 255).round(), batch)
    assert (kinds == kind).all()
    assert degraded.shape == clean.shape == (*sigma.shape, 3)
    assert degraded.dtype == clean.dtype == sigma.dtype == np.float32
    assert np.isfinite(degraded).all()
    rms = np.sqrt(((degraded - clean) ** 2).mean(axis=(1, 2, 3)))
    told = np.sqrt((sigma.astype(float) ** 2).mean(axis=(1, 2)))
    if kind == "blur":  # told the noise alone
        assert (told <= only.blur_noise[1]).all()
        assert (told < rms).all()
    elif kind == "stored":  # told what JPEG leaves of the noise; its own artefacts are none
        np.testing.assert_allclose(told / STORED_LEVEL, rms, rtol=0.3)
    else:
        np.testing.assert_allclose(told, rms, rtol=0.12)
    if kind not in ("gaussian", "grain"):
        assert degraded.min() >= 0
        assert degraded.max() <= 1
    if kind == "camera":
        assert rms.max() < 50 / 255


def test_grain_is_of_brightness_alone_and_as_loud_and_soft_as_asked() -> None:
    clean = smooth(2)
    for radius, alike in ((0.0, 0.0), (0.5, 0.25), (1.0, 0.78)):  # exp(-1 / 4 / radius^2)
        degraded, level = degradations.grain(clean, rng(3), 0.1, radius)
        noise = (degraded - clean).astype(float)
        np.testing.assert_allclose(noise[..., 0], noise[..., 2], atol=1e-6)
        assert noise.std() == pytest.approx(0.1, rel=1e-3) and (level == np.float32(0.1)).all()
        found = np.corrcoef(noise[:, :, 1:, 0].ravel(), noise[:, :, :-1, 0].ravel())[0, 1]
        assert found == pytest.approx(alike, abs=0.12)


def test_mottled_noise_is_smooth_in_colour_fine_in_brightness_and_sharpened() -> None:
    clean = np.full((1, 256, 256, 3), 0.5, np.float32)

    def noise(**more: float) -> np.ndarray:
        degraded, level = degradations.mottled(clean, rng(3), 0.06, 0.8, 0.5, 3.0, **more)
        np.testing.assert_allclose(np.round(degraded * 255), degraded * 255, atol=1e-4)  # as in a file
        assert float(level.mean()) == pytest.approx(float((degraded - clean).std()), rel=0.03)
        return (degraded - clean)[0].astype(float)

    def alike(x: np.ndarray) -> float:
        return float(np.corrcoef(x[:, 1:].ravel(), x[:, :-1].ravel())[0, 1])

    plain = noise()
    brightness = plain @ degradations.LUMA
    assert brightness.std() == pytest.approx(0.06, rel=0.03)
    assert (plain - brightness[..., None]).std() == pytest.approx(0.03, rel=0.03)
    assert alike(brightness) < 0.75 and alike(plain[..., 0] - brightness) > 0.9
    sharpened = noise(sharpening=1.0) @ degradations.LUMA
    assert sharpened.std() > 1.3 * brightness.std() and alike(sharpened) < alike(brightness)


def test_mottled_noise_may_grow_with_brightness() -> None:
    clean = np.zeros((1, 64, 128, 3), np.float32)
    clean[:, :, :64], clean[:, :, 64:] = 0.1, 0.9
    for photons, times in ((False, 1.0), (True, (1.1 / 0.3) ** 0.5)):
        degraded = degradations.mottled(clean, rng(1), 0.01, 0.5, 0.2, 2.0, photons=photons)[0]
        dark, bright = ((degraded - clean)[:, :, side].std() for side in (slice(60), slice(68, None)))
        assert bright / dark == pytest.approx(times, rel=0.08)


def test_plain_parts_are_of_all_shapes_and_leave_some_picture() -> None:
    picture, generator = smooth(1)[0], rng(5)
    areas = [flat_area(picture, generator) for _ in range(60)]
    assert all(area.shape == picture.shape[:2] and area.dtype == bool for area in areas)
    assert all(area.mean() < 0.95 for area in areas)
    whole_rows = [area.all(axis=1).any() or area.all(axis=0).any() for area in areas]
    assert any(whole_rows) and not all(whole_rows)  # frames and bars; others follow the picture or are round
    light = picture.mean(axis=2)
    assert any(area.any() and light[area].min() > light[~area].max() - 0.1 for area in areas)


def test_soft_camera_pictures_are_enlarged_parts_and_their_noise_is_not() -> None:
    batch = np.stack([textured(64, 64, seed) for seed in range(4)])
    camera = Mixture(**{k: float(k == "camera") for k in Mixture.KINDS}, grey=0.0, soft=1.0)
    soft = camera.sample(batch, rng(3))[1]

    def roughness(x: np.ndarray) -> float:
        return float(np.abs(np.diff(x, axis=2)).mean())

    assert roughness(soft) < 0.8 * roughness(batch / 255)
    picture = (smooth(1)[0] * 255).astype(np.uint8)
    np.testing.assert_array_equal(degradations.enlarge(picture, rng(), 1.0), picture)
    big = degradations.enlarge(picture, rng(), 1e6)  # one pixel, everywhere
    assert big.shape == picture.shape
    assert np.ptp(big, axis=(0, 1)).max() == 0


def test_grey_pictures_have_one_noise_in_all_channels() -> None:
    batch = np.stack([textured(32, 32, seed) for seed in range(6)])
    for kind in ("gaussian", "camera", "salt_and_pepper"):
        only = {k: float(k == kind) for k in Mixture.KINDS}
        degraded, clean, sigma, _ = Mixture(**only, grey=1.0).sample(batch, rng(5))
        for pictures in (degraded, clean):
            assert np.ptp(pictures, axis=3).max() == 0
        if kind != "gaussian":
            np.testing.assert_allclose(sigma, local_rms(degraded - clean), atol=1e-6)


def test_mixture_draws_in_the_asked_proportions_and_repeats_with_the_seed() -> None:
    mixture = Mixture()
    counts = Counter(mixture.draw(rng(), 5000))
    for kind in Mixture.KINDS:
        assert counts[kind] / 5000 == pytest.approx(getattr(mixture, kind), abs=0.02)
    batch = textured(8 * 32, 32).reshape(8, 32, 32, 3)
    for a, b in zip(mixture.sample(batch, rng(9)), mixture.sample(batch, rng(9)), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="frequencies"):
        Mixture(gaussian=-1)


def test_some_drawn_pictures_stay_as_they_are_and_no_photograph_does() -> None:
    drawn = np.stack([drawings.draw(i)[:64, :64] for i in (2, 4, 5)])  # line art, plain colours, a bitmap
    photo = np.clip(textured(64, 64).astype(int) + rng().integers(-2, 3, (64, 64, 3)), 0, 255)[None]
    for picture in drawn:
        degraded, clean, sigma, _ = Mixture(clean=1, soft=0, grey=0).sample(picture[None], rng())
        np.testing.assert_array_equal(degraded, clean)
        np.testing.assert_array_equal(np.rint(clean[0] * 255), picture)
        assert not sigma.any()
        assert Mixture(clean=0, soft=0, sigma=(0.1, 0.2)).sample(picture[None], rng())[2].any()
    assert Mixture(clean=1, sigma=(0.1, 0.2)).sample(photo.astype(np.uint8), rng())[2].all()


def test_what_a_jpeg_does_to_a_drawn_picture_is_no_noise() -> None:
    drawn = np.stack([drawings.draw(i)[:64, :64] for i in (0, 1, 5)])  # with borders or strokes
    stored = Mixture(clean=1, clean_jpeg=1, soft=0, grey=0)
    degraded, clean, sigma, _ = stored.sample(drawn, rng())
    assert not sigma.any()
    change = np.abs(degraded - clean).max(axis=(1, 2, 3))
    assert ((change > 0) & (change < 0.5)).all()
    half = Mixture(clean=1, clean_jpeg=0.5, soft=0, grey=0).sample(np.repeat(drawn, 30, axis=0), rng())
    assert 0.3 < (half[0] == half[1]).all(axis=(1, 2, 3)).mean() < 0.7


def test_default_gaussian_covers_its_range_and_clipped_ones_are_files() -> None:
    batch = np.full((400, 16, 16, 3), 128, np.uint8)
    only = Mixture(**dict.fromkeys(Mixture.KINDS, 0.0) | {"gaussian": 1.0}, clean=0, varying=0)
    sigma = only.sample(batch, rng())[2]
    assert np.ptp(sigma, axis=(1, 2)).max() == 0
    levels = sigma[:, 0, 0] * 255
    assert levels.mean() == pytest.approx(27.5, abs=2.5)
    assert levels.min() < 2
    assert 53 < levels.max() <= 55
    files = replace(only, clipped=1, sigma=(0.2, 0.2)).sample(batch[:4], rng())[0]
    np.testing.assert_allclose(files * 255, np.round(files * 255), atol=1e-3)
    assert files.min() == 0


def test_few_wrong_pixels_are_as_usual_as_many() -> None:
    batch = np.full((400, 64, 64, 3), 128, np.uint8)
    only = Mixture(**dict.fromkeys(Mixture.KINDS, 0.0) | {"salt_and_pepper": 1.0}, clean=0, grey=0)
    degraded, clean, sigma, _ = only.sample(batch, rng())
    wrong = (degraded != clean).mean(axis=(1, 2, 3))
    low, high = only.shot_fraction
    assert np.median(wrong) == pytest.approx(np.sqrt(low * high), rel=0.25)
    assert wrong.max() <= 1.2 * high
    np.testing.assert_allclose(sigma, local_rms(degraded - clean), atol=1e-6)


def test_half_of_what_a_sorter_learns_of_white_noise_is_weak_and_some_of_it_is_uneven() -> None:
    batch = np.full((200, 32, 32, 3), (128, 120, 140), np.uint8)
    only = Mixture(**dict.fromkeys(Mixture.KINDS, 0.0) | {"gaussian": 1.0}, clean=0, clipped=0, grey=0)
    weak = replace(only, weak=1, varying=0).sample(batch, rng())[2][:, 0, 0]
    assert degradations.WEAKEST <= weak.min() < 1 / 255 and 45 / 255 < weak.max() <= 55 / 255
    assert np.median(weak) == pytest.approx(np.sqrt(degradations.WEAKEST * 55 / 255), rel=0.25)
    even = replace(only, sigma=(0.1, 0.1))
    for uneven, least, most in (
        (even, 1, 1.1),
        (replace(even, uneven=1), 1.5, np.exp(2 * degradations.UNEVEN)),
    ):
        degraded, clean, sigma, _ = uneven.sample(batch, rng())
        level = np.std(degraded - clean, axis=(1, 2))
        assert least < np.median(level.max(1) / level.min(1)) < most
        np.testing.assert_allclose(np.sqrt(np.mean(level**2, axis=1)), sigma[:, 0, 0], rtol=0.08)
    degraded, _, sigma, _ = replace(even, uneven=1, grey=1).sample(batch, rng())
    assert (degraded[..., 0] == degraded[..., 2]).all() and np.allclose(sigma, 0.1)  # one noise, as ever
    sorter = degradations.MIXTURES["sorter"]
    assert sorter.weak == 0.5 and sorter.uneven > 0 and sorter.unreduced > 0


def test_noise_may_be_enlarged_with_the_picture() -> None:
    batch = rng().integers(40, 215, (20, 8, 8, 3)).astype(np.uint8).repeat(8, axis=1).repeat(8, axis=2)
    kinds = dict.fromkeys(Mixture.KINDS, 0.0) | {"gaussian": 1.0}
    only = Mixture(**kinds, clean=0, grey=0, varying=0, clipped=1, sigma=(0.08, 0.08), camera_jpeg=0)
    plain, *_ = only.sample(batch, rng())
    degraded, clean, sigma, found = replace(only, zoomed=1).sample(batch, rng())
    assert set(found) == {"zoomed"} and degraded.shape == clean.shape == batch.shape
    np.testing.assert_allclose(sigma, local_rms(degraded - clean), atol=1e-6)
    white, enlarged = (
        np.median([correlation(e[:, 1:], e[:, :-1]) for e in error])
        for error in (plain - batch / 255, degraded - clean)
    )
    assert abs(white) < 0.1 and enlarged > 0.3
    assert np.abs(clean - batch / np.float32(255)).mean() > 0.05  # it is a part of the picture
    drawn = replace(only, zoomed=1, clean=1.0).sample(batch, rng(), np.ones(len(batch), bool))
    assert np.array_equal(drawn[0], drawn[1]) and not drawn[2].any()


def test_white_noise_may_grow_with_the_brightness_and_mottle_be_of_colour() -> None:
    batch = np.full((12, 32, 64, 3), 40, np.uint8)
    batch[:, :, 32:] = 200
    kinds = dict.fromkeys(Mixture.KINDS, 0.0)
    only = Mixture(**kinds | {"gaussian": 1.0}, clean=0, grey=0, varying=0, clipped=0, sigma=(0.08, 0.08))
    for mixture, least, most in ((only, 1, 1), (replace(only, speckled=1), 5**0.4, 5**1.2)):
        degraded, clean, sigma, _ = mixture.sample(batch, rng())
        for level in (sigma, np.std(degraded - clean, axis=3)):
            ratio = np.median(level[:, :, 32:], axis=(1, 2)) / np.median(level[:, :, :32], axis=(1, 2))
            assert 0.85 * least < ratio.min() and ratio.max() < 1.15 * most
    mottled = Mixture(
        **kinds | {"mottled": 1.0}, clean=0, grey=0, camera_jpeg=0, camera_strength=(0.05, 0.051)
    )
    shares = []
    for mixture in (mottled, replace(mottled, blotched=1)):
        degraded, clean, _, _ = mixture.sample(batch, rng())
        error = degraded - clean
        brightness = error @ LUMA
        shares.append(np.median(brightness.std(axis=(1, 2)) / error.std(axis=(1, 2, 3))))
    assert shares[1] < 0.6 * shares[0]


def test_the_noise_of_a_camera_without_noise_reduction_is_nearer_to_white() -> None:
    batch = np.full((60, 64, 64, 3), 128, np.uint8)
    kinds = dict.fromkeys(Mixture.KINDS, 0.0) | {"camera": 1.0}
    only = Mixture(**kinds, clean=0, grey=0, soft=0, camera_jpeg=0, camera_strength=(0.05, 0.051))
    found = []
    for mixture in (only, replace(only, unreduced=1)):
        degraded, clean, _, _ = mixture.sample(batch, rng())
        error = degraded - clean
        found.append(np.mean([correlation(e[:, 1:], e[:, :-1]) for e in error]))
    assert 0.1 < found[1] < 0.75 * found[0]


def test_the_level_of_noise_in_a_jpeg_is_that_of_the_noise_and_not_of_the_jpeg() -> None:
    batch = np.stack([textured(64, 64, seed) for seed in range(3)]) / np.float32(255)
    silent, level = degradations.stored(batch, rng(), 0.0, 50)
    assert not level.any() and np.abs(silent - batch).max() > 0.02
    exact = degradations.stored(batch, rng(), 0.05, 100, subsample=False)[1] / STORED_LEVEL
    coarse = degradations.stored(smooth(3), rng(), 0.05, 60)[1] / STORED_LEVEL
    assert exact.mean() == pytest.approx(0.05, rel=0.05)
    assert coarse.mean() < 0.85 * exact.mean()


def test_three_noisy_jpegs_in_four_keep_half_the_resolution_of_colour() -> None:
    kinds = {k: float(k == "stored") for k in Mixture.KINDS}
    only = Mixture(**kinds, clean=0.0, grey=0.0, sigma=(0.1, 0.1), quality=(95, 95))
    batch = np.full((32, 32, 32, 3), 128, np.uint8)

    def colour(mixture: Mixture) -> np.ndarray:
        error = mixture.sample(batch, rng(5))[0] - 128 / 255
        return (error[..., 2] - error[..., 1]).std(axis=(1, 2))  # of each picture

    whole, half = (colour(replace(only, subsampled=share)) for share in (0.0, 1.0))
    assert half.max() < 0.7 * whole.min()
    assert 16 < (colour(only) < 0.7 * whole.min()).sum() < 32


# -- evaluation ---------------------------------------------------------------------------------


def shifted_by(amount: float):
    return lambda image, sigma="auto": np.full_like(image, 0.5 + amount)


@pytest.fixture
def grey(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        save(np.full((24, 20, 3), 51, np.uint8), tmp_path / "grey" / f"{name}.png")  # 0.2
    return tmp_path / "grey"


def test_psnr_of_known_errors_is_that_of_the_formula(grey: Path) -> None:
    result = evaluate_model(lambda image, sigma="auto": np.full_like(image, 0.3), grey, sigmas=[25])
    assert result["task"] == "denoise"
    assert result["count"] == 2
    scores = result["mean"]["sigma 25"]
    assert scores["psnr"] == pytest.approx(20.0, abs=1e-4)  # error 0.1 everywhere
    assert scores["input_psnr"] == pytest.approx(-20 * math.log10(25 / 255), abs=0.3)
    assert result["mean"]["sigma 25, auto"]["psnr"] == scores["psnr"]


def test_outputs_are_clipped_and_the_network_sees_unclipped_noise_of_the_seed(tmp_path: Path) -> None:
    save(np.full((16, 16, 3), 255, np.uint8), tmp_path / "w" / "a.png")
    save(np.full((16, 16, 3), 255, np.uint8), tmp_path / "w" / "b.png")
    seen = []

    def model(image: np.ndarray, sigma: object = "auto") -> np.ndarray:
        seen.append((sigma, image))
        return np.full_like(image, 1.5)

    result = evaluate_model(model, tmp_path / "w", sigmas=[51], seed=7)
    assert result["mean"]["sigma 51"]["psnr"] == math.inf
    assert json.loads(to_json(result))["mean"]["sigma 51"]["psnr"] is None
    assert [sigma for sigma, _ in seen] == [51.0, "auto"] * 2
    for index in (0, 1):
        noise = np.random.default_rng(7 + index).standard_normal((16, 16, 3), dtype=np.float32)
        np.testing.assert_allclose(seen[2 * index][1], 1 + 0.2 * noise, atol=1e-6)


def test_noise_in_a_file_is_that_of_the_seed_clipped_and_rounded(tmp_path: Path) -> None:
    save(textured(48, 40), tmp_path / "a.png")
    seen = []

    def model(image: np.ndarray, sigma: object = "auto") -> np.ndarray:
        seen.append((sigma, image))
        return image

    result = evaluate_model(model, tmp_path, sigmas=[50], degradations=["gaussian", "file"])
    assert list(result["mean"])[2:] == ["sigma 50 in a file", "sigma 50 in a file, auto"]
    (_, free), _, (told, file), (own, _) = seen
    assert (told, own) == (50.0, "auto")
    assert free.min() < 0 < 1 < free.max()
    np.testing.assert_allclose(file, np.clip(np.rint(free * 255), 0, 255) / 255, atol=1e-6)


def test_noise_in_a_jpeg_is_that_of_the_file_and_less_in_colour(tmp_path: Path) -> None:
    save(np.uint8(smooth(1)[0] * 255), tmp_path / "a.png")
    for grey, gain in ((False, (0.5, 12)), (True, (-1, 1))):  # all of it is in the brightness, which is kept
        result = evaluate_model(
            lambda image, sigma: image, tmp_path, sigmas=[10], degradations=["file", "jpeg"], grey=grey
        )["mean"]
        noisy, stored = (result[f"sigma 10 in a {kind}"]["psnr"] for kind in ("file", "JPEG"))
        assert gain[0] < stored - noisy < gain[1] and stored != noisy


def test_what_a_level_comes_to_does_not_depend_on_the_others_that_are_asked_for(tmp_path: Path) -> None:
    save(textured(64, 64), tmp_path / "a.png")
    alone, last = (
        evaluate_model(
            lambda image, sigma: image, tmp_path, sigmas=sigmas, degradations=["gaussian", "file", "jpeg"]
        )["mean"]
        for sigmas in ([10], [30, 20, 10])
    )
    assert len(alone) == 6 and alone == {case: last[case] for case in alone}


def test_other_harm_is_what_its_name_says_and_measured_at_the_estimated_level(tmp_path: Path) -> None:
    save(textured(64, 64), tmp_path / "a.png")
    seen = []

    def model(image: np.ndarray, sigma: object = "auto") -> np.ndarray:
        seen.append((sigma, image))
        return image

    result = evaluate_model(model, tmp_path, degradations=["shot", "box", "none"])
    assert list(result["mean"]) == ["5 % shot noise, auto", "3x3 box blur, auto", "clean, auto"]
    assert {sigma for sigma, _ in seen} == {"auto"}
    (_, shot), (_, box), (_, clean) = seen
    np.testing.assert_array_equal((clean * 255).round(), textured(64, 64))
    assert 0.03 < (shot != clean).any(axis=2).mean() < 0.07
    mean = sum(clean[1 + y : 63 + y, 1 + x : 63 + x] for y in (-1, 0, 1) for x in (-1, 0, 1)) / 9
    np.testing.assert_allclose(box[1:63, 1:63], mean, atol=0.51 / 255)
    scores = result["mean"]["3x3 box blur, auto"]
    assert scores["mse"] == scores["input_mse"] == pytest.approx(10 ** (-scores["psnr"] / 10))
    assert "1.00" in format_table(result)
    with pytest.raises(ValueError, match="rain"):
        evaluate_model(model, tmp_path, degradations=["rain"])


def test_grey_pictures_are_made_of_coloured_ones_and_rounded(tmp_path: Path) -> None:
    save(textured(40, 56), tmp_path / "a.png")
    seen = []

    def model(image: np.ndarray, sigma: object = "auto") -> np.ndarray:
        seen.append(image)
        return image

    evaluate_model(model, tmp_path, degradations=["none", "box", "shot"], grey=True)
    wanted = np.asarray(Image.fromarray(textured(40, 56)).convert("L"), int)
    assert np.abs(seen[0] * 255 - wanted).max() <= 1
    assert {image.shape for image in seen} == {(40, 56)}
    with pytest.raises(ConfigError, match="colour"):
        evaluate_model(SimpleNamespace(encode=None), tmp_path, grey=True)


def test_one_picture_that_comes_out_exactly_does_not_decide_the_mean(tmp_path) -> None:
    for name, level in (("a", 100), ("b", 200)):
        save(np.full((16, 16, 3), level, np.uint8), tmp_path / f"{name}.png")

    def model(image, sigma="auto"):  # exact for the first, a tenth off for the second
        return image + (0.1 if image.mean() > 0.6 else 0)

    result = evaluate_model(model, tmp_path, degradations=["none"])
    (mean,) = result["mean"].values()
    assert mean["psnr"] == pytest.approx((100 + 20) / 2, abs=1e-3)
    assert mean["input_psnr"] == np.inf  # of all of them
    assert "clean" in format_table(result)

    def nearly(image, sigma="auto"):  # exact for the first, better than that counts for the second
        return image + (1e-6 if image.mean() > 0.6 else 0)

    (mean,) = evaluate_model(nearly, tmp_path, degradations=["none"])["mean"].values()
    assert mean["psnr"] == 100
    same = evaluate_model(lambda image, sigma="auto": image, tmp_path, degradations=["none"])
    assert all(mean["psnr"] == np.inf for mean in same["mean"].values())


def test_clean_pictures_have_no_gain(grey: Path) -> None:
    *_, last = format_table(evaluate_model(shifted_by(0.1), grey, degradations=["none"])).splitlines()
    assert last.split()[-3] == "clean" and float(last.split()[-2]) > 0 and "inf" not in last


def test_a_level_is_for_noise_that_has_one(grey: Path) -> None:
    with pytest.raises(
        ConfigError, match="noise levels are for the degradations gaussian, file, jpeg, not for box"
    ):
        evaluate_model(shifted_by(0), grey, sigmas=[5], degradations=["box"])
    assert len(evaluate_model(shifted_by(0), grey, sigmas=[5], degradations=["box", "file"])["mean"]) == 3


def test_limit_skipped_files_and_table(grey: Path) -> None:
    (grey / "aa.png").write_bytes(b"broken")
    result = evaluate_model(shifted_by(0), grey, sigmas=[15, 50])
    assert result["skipped"] == ["aa.png"]
    table = format_table(result, pictures=True)
    assert "mean of 2: sigma 50, auto" in table
    assert "b.png: sigma 15" in table
    assert "skipped, not decodable: aa.png" in table
    assert evaluate_model(shifted_by(0), grey, limit=1)["count"] == 1


def test_a_model_without_estimator_is_measured_at_told_levels_only(grey: Path) -> None:
    class Told:
        config = SimpleNamespace(name="told", parts={"denoiser": ()})

        def __call__(self, image: np.ndarray, sigma: object = "auto") -> np.ndarray:
            assert sigma != "auto"
            return image

    result = evaluate_model(Told(), grey, sigmas=[15], degradations=["gaussian", "box"])
    assert list(result["mean"]) == ["sigma 15", "3x3 box blur"]
    assert result["model"] == "told"


def make_pairs(root: Path) -> None:
    for name in ("x", "y"):
        save(np.full((12, 12, 3), 51, np.uint8), root / f"{name}_mean.png")
        save(np.full((12, 12, 3), 102, np.uint8), root / f"{name}_real.png")


def test_pairs_are_found_by_name_and_measured_against_their_truth(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    result = evaluate_model(lambda image, sigma="auto": image - 0.1, tmp_path)
    assert result["task"] == "pairs"
    assert [picture["name"] for picture in result["pictures"]] == ["x_real.png", "y_real.png"]
    assert result["mean"]["auto"]["input_psnr"] == pytest.approx(-20 * math.log10(0.2), abs=1e-3)
    assert result["mean"]["auto"]["psnr"] == pytest.approx(20, abs=1e-3)
    save(np.zeros((12, 13, 3), np.uint8), tmp_path / "x_mean.png")
    result = evaluate_model(lambda image, sigma="auto": image - 0.1, tmp_path)
    assert result["count"] == 1 and result["skipped"] == ["x_real.png"]
    assert "skipped, not decodable or of two sizes: x_real.png" in format_table(result)
    (tmp_path / "x_mean.png").unlink()
    with pytest.raises(ImageError, match=r"x_real\.png.*ground truth"):
        find_pairs(tmp_path)


def test_pairs_that_differ_only_in_their_suffix_are_refused(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    save(np.full((12, 12, 3), 102, np.uint8), tmp_path / "x_real.bmp")
    with pytest.raises(ImageError, match=r"x_real\.bmp and x_real\.png differ only in their suffix"):
        find_pairs(tmp_path)
    for name in ("a.png", "a.bmp"):  # no pairs, no matter
        save(textured(9, 9), tmp_path / "clean" / name)
    assert find_pairs(tmp_path / "clean") == []


def test_pairs_of_two_folders_match_by_path(tmp_path: Path) -> None:
    for name in ("1", "2"):
        save(textured(9, 9), tmp_path / "noisy" / "s" / f"{name}.png")
        save(np.full((9, 9, 3), 51, np.uint8), tmp_path / "clean" / "s" / f"{name}.bmp")
    model = lambda image, sigma="auto": np.full_like(image, 0.3)  # noqa: E731
    result = evaluate_model(model, tmp_path / "noisy", reference=tmp_path / "clean")
    assert result["mean"]["auto"]["psnr"] == pytest.approx(20, abs=1e-3)
    save(textured(9, 8), tmp_path / "clean" / "s" / "1.bmp")
    result = evaluate_model(model, tmp_path / "noisy", reference=tmp_path / "clean")
    assert result["count"] == 1 and result["skipped"] == ["s/1.png"]


class Codec:
    """Latents are the picture; encoding and decoding each add a constant."""

    def __init__(self, encode: float, decode: float, scale: float = 1) -> None:
        self.add, self.scale = (encode, decode), np.float32(scale)

    def encode(self, image: np.ndarray) -> np.ndarray:
        return self.scale * image[None] + np.float32(self.add[0])

    def decode(self, z: np.ndarray, output: str = "uint8", size: tuple[int, int] | None = None) -> np.ndarray:
        assert output == "float"
        assert size == z.shape[1:3]
        return z / self.scale + np.float32(self.add[1])


def test_round_trip_measures_own_and_exchanged_halves(grey: Path) -> None:
    result = evaluate_model(Codec(0.1, 0.1), grey, other=Codec(0.0, 0.01))
    assert result["task"] == "roundtrip"
    errors = {"round trip": 0.2, "other's decoder": 0.11, "other's encoder": 0.1, "other's round trip": 0.01}
    assert list(result["mean"]) == list(errors)
    for case, error in errors.items():
        assert result["mean"][case]["psnr"] == pytest.approx(-20 * math.log10(error), abs=1e-3)
    assert result["mean"]["other's decoder"]["cast"] == pytest.approx(0.11, abs=1e-6)
    table = format_table(result)
    assert "input" not in table
    assert "sharpness" in table
    json.loads(to_json(result))  # a flat picture has no top octave, which is null


def test_casts_of_single_pictures_are_no_bias_of_the_model_where_they_cancel(tmp_path: Path) -> None:
    for name, level in (("dark", 51), ("light", 204)):
        save(np.full((24, 20, 3), level, np.uint8), tmp_path / f"{name}.png")

    class Contrast(Codec):
        def decode(self, z: np.ndarray, *args: object, **keywords: object) -> np.ndarray:
            return 0.5 + 1.2 * (z - 0.5) - np.float32([0, 0.01, 0])

    result = evaluate_model(Contrast(0, 0), tmp_path)
    dark, light = (picture["cases"]["round trip"] for picture in result["pictures"])
    mean = result["mean"]["round trip"]
    assert [dark["red"], light["red"], mean["red"]] == pytest.approx([-0.06, 0.06, 0], abs=1e-6)
    assert [dark["cast"], light["cast"], mean["cast"]] == pytest.approx([0.07, 0.06, 0.065], abs=1e-6)
    assert mean["green"] == pytest.approx(-0.01, abs=1e-6)
    header, *_, last = format_table(result).splitlines()
    assert header.split()[-3] == "bias"
    assert last.split()[-3] == "-0.0100"


def test_results_are_also_compared_by_the_other_models_latents(grey: Path) -> None:
    result = evaluate_model(Codec(0.1, 0.1), grey, other=Codec(0.0, 0.01, scale=2))
    for case, error in (("round trip", 0.2), ("other's round trip", 0.01)):
        assert result["mean"][case]["latents"] == pytest.approx(2 * error, abs=1e-6)
    assert format_table(result).splitlines()[0].endswith("latents")
    alone = evaluate_model(Codec(0.1, 0.1), grey)
    assert "latents" not in alone["mean"]["round trip"]
    assert "latents" not in format_table(alone)


def test_contact_sheet_shows_the_worst_place_of_the_worst_pictures(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save(np.full((200, 240, 3), 102, np.uint8), tmp_path / "in" / f"{name}.png")
    calls = iter([0.1, 0.3, 0.2])

    class Spoiling:
        """Exact but for one corner, 80 to 176 pixels down and 112 to 208 across."""

        def encode(self, image: np.ndarray) -> np.ndarray:
            spoilt = image.copy()
            spoilt[80:176, 112:208] += next(calls)
            return spoilt[None]

        def decode(self, z: np.ndarray, output: str = "", size: object = None) -> np.ndarray:
            return z

    sheet = ContactSheet(tmp_path / "worst.png", count=2)
    evaluate_model(Spoiling(), tmp_path / "in", observe=sheet)
    sheet.save()
    assert [place.caption for place in sheet.places] == [
        "b.png, round trip, at 112, 80: 10.5 dB",
        "c.png, round trip, at 112, 80: 14.0 dB",
    ]
    shown = np.asarray(Image.open(tmp_path / "worst.png").convert("RGB"))
    result, original, difference = (shown[120, x] for x in (100, 300, 500))
    assert [*result, *original] == [179] * 3 + [102] * 3  # 0.4 + 0.3, and 0.4
    assert list(difference) == [255] * 3  # 0.5 + 4 * 0.3, clipped
    with pytest.raises(OutputError, match="exists"):
        ContactSheet(tmp_path / "worst.png")
    other = ContactSheet(tmp_path / "worst.png", count=1, overwrite=True)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "worst.png").convert("RGB")), shown)  # still
    calls = iter([0.1, 0.3, 0.2])
    evaluate_model(Spoiling(), tmp_path / "in", observe=other)
    other.save()
    assert Image.open(tmp_path / "worst.png").height < len(shown)
    calls = iter([0.1, 0.3, 0.2])
    late = ContactSheet(tmp_path / "late.png", count=1)
    evaluate_model(Spoiling(), tmp_path / "in", observe=late)
    (tmp_path / "late.png").write_bytes(b"another's")
    with pytest.raises(OutputError, match="exists"):
        late.save()
    assert (tmp_path / "late.png").read_bytes() == b"another's"
    with pytest.raises(OutputError, match=r"\.png"):
        ContactSheet(tmp_path / "worst.tiff")
    with pytest.raises(ConfigError, match="nothing to show"):
        ContactSheet(tmp_path / "other.png").save()
    calls = iter([0.1, 0.2])
    with pytest.raises(ConfigError, match="no case 'sigma 5'; there are: 'round trip'"):
        evaluate_model(Spoiling(), tmp_path / "in", observe=ContactSheet(tmp_path / "x.png", case="sigma 5"))
    assert list(calls) == []  # told at the second of the three pictures


def test_a_result_that_is_no_picture_is_no_better_than_others(tmp_path: Path) -> None:
    for name in "abcd":
        save(textured(64, 64), tmp_path / f"{name}.png")
    calls = iter([0.1, np.nan, 0.3, 0.2])
    sheet = ContactSheet(tmp_path / "worst.webp", count=3)
    result = evaluate_model(
        lambda image, sigma: image + np.float32(next(calls)), tmp_path, degradations=["none"], observe=sheet
    )
    scores = result["mean"]["clean, auto"]
    assert all(math.isnan(scores[key]) for key in ("psnr", "ssim", "mse"))
    assert "nan" in format_table(result)
    assert json.loads(to_json(result))["mean"]["clean, auto"]["psnr"] is None
    assert [place.caption[:5] for place in sheet.places] == ["b.png", "c.png", "d.png"]
    sheet.save()


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems hold text only")
def test_names_of_pictures_need_not_be_text(folder: Path) -> None:
    os.rename(sorted(folder.rglob("*.png"))[0], os.fsencode(folder) + b"/b\xff.png")
    pool = ImagePool([folder])
    assert "b\udcff.png" in pool.names
    pool.split(validation=2)
    pytest.importorskip("torch")
    from zenith_ae.training.distill import identify

    identify(load_weights("zenith-denoise-fast"), pool).encode()


def test_options_of_another_task_are_refused(grey: Path, tmp_path: Path) -> None:
    make_pairs(tmp_path / "pairs")
    with pytest.raises(ConfigError, match="not for a round trip"):
        evaluate_model(Codec(0, 0), grey, sigmas=[5])
    with pytest.raises(ConfigError, match="leave out the ground truth"):
        evaluate_model(Codec(0, 0), grey, reference=grey)
    for options in ({"sigmas": [5]}, {"degradations": ["shot"]}):
        with pytest.raises(ConfigError, match="not for a picture with its ground truth"):
            evaluate_model(shifted_by(0), tmp_path / "pairs", **options)


def test_contact_sheet_of_grey_pictures(grey: Path) -> None:
    sheet = ContactSheet(grey / "worst.png")
    evaluate_model(shifted_by(0), grey, sigmas=[15], grey=True, observe=sheet)
    sheet.save()
    assert sheet.path.exists()


def test_contact_sheet_of_a_denoiser_has_a_column_for_the_noise_and_takes_small_pictures(grey: Path) -> None:
    sheet = ContactSheet(grey / "worst.png", case="sigma 50")
    evaluate_model(shifted_by(0), grey, sigmas=[15, 50], observe=sheet)
    sheet.save()
    assert {len(place.views) for place in sheet.places} == {3}
    assert all("sigma 50, at 0, 0" in place.caption for place in sheet.places)
    assert Image.open(grey / "worst.png").width > 4 * 2 * 24


def test_tasks_that_do_not_fit_are_refused(grey: Path) -> None:
    with pytest.raises(ConfigError):
        evaluate_model(Codec(0, 0), grey, task="denoise")
    with pytest.raises(ConfigError):
        evaluate_model(shifted_by(0), grey, task="roundtrip")
    with pytest.raises(ImageError, match="no pairs"):
        evaluate_model(shifted_by(0), grey, task="pairs")


# -- the log and its plot -----------------------------------------------------------------------


def test_log_of_a_resumed_run_has_every_step_once(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    steps = [(50, "loss"), (100, "loss"), (100, "psnr"), (150, "loss"), (100, "loss"), (150, "loss")]
    lines = [json.dumps({"step": s, "seconds": i, key: i}) for i, (s, key) in enumerate(steps)]
    log.write_text("\n".join(lines) + '\n{"step": 2')
    got = [(r["step"], r["seconds"]) for r in read_log(log)]
    assert got == [(50, 0), (100, 2), (100, 4), (150, 5)]
    log.write_text('{"step": 50, "lo\n' + lines[1])  # cut off, and resumed
    assert [r["step"] for r in read_log(log)] == [100]
    log.write_text("nonsense\n" + lines[0])
    with pytest.raises(ValueError, match="line 1"):
        read_log(log)


def test_plot_is_a_png_and_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    log, target = tmp_path / "log.jsonl", tmp_path / "log.png"
    assert not plot_log(log, target)
    log.write_text("")
    assert not plot_log(log, target)
    assert not target.exists()
    records = [{"step": s, "seconds": s, "loss": 1 / s, "norm": 1.0, "lr": 0.1} for s in (1, 2, 3)]
    records.append({"step": 3, "seconds": 3, "psnr": 30.0, "psnr_auto": 29.0})
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert plot_log(log, target)
    with Image.open(target) as image:
        assert image.format == "PNG"
        assert image.size[1] > 600  # three panels


# -- drawn pictures ------------------------------------------------------------------------------


def test_drawn_pictures_repeat_differ_and_are_crisp() -> None:
    kinds = len(drawings.KINDS)
    pictures = [drawings.draw(i) for i in range(2 * kinds)]
    for i, picture in enumerate(pictures):
        assert picture.shape == (*drawings.SIZE, 3)
        assert picture.dtype == np.uint8
        np.testing.assert_array_equal(picture, drawings.draw(i))
        assert np.ptp(picture) > 50 or i % kinds == 4
    assert not np.array_equal(pictures[0], pictures[kinds])
    assert not np.array_equal(pictures[0], drawings.draw(0, seed=1))
    page = pictures[0].astype(int).mean(axis=2)
    steps = np.abs(np.diff(page, axis=1))
    assert (steps == 0).mean() > 0.5  # flat paper and ink
    assert (steps > 40).mean() > 0.005  # with sharp edges between
    flow = np.abs(np.diff(pictures[3].astype(int), axis=0)).max(axis=2)
    assert (flow <= 2).mean() > 0.9  # a gradient changes everywhere, and little
    assert (flow > 0).mean() > 0.1
    colours = [np.unique(drawings.draw(i).reshape(-1, 3), axis=0) for i in range(4, 244, kinds)]
    assert {len(found) for found in colours} == {1, 2, 3, 4}
    assert (np.ptp(np.concatenate(colours), axis=1) == 255).sum() > 10  # vivid ones
    bitmaps = [drawings.draw(i).reshape(-1, 3) for i in range(5, 125, kinds)]
    counts = [len(np.unique(bitmap, axis=0)) for bitmap in bitmaps]
    assert max(counts) <= 16 + 12 and 2 in counts and max(counts) > 2  # 12 of hatches


def test_small_drawn_pictures_are_plain_or_flow() -> None:
    pictures = [drawings.draw_small(i) for i in range(40)]
    assert {picture.shape for picture in pictures} == {(*drawings.SMALL, 3)}
    np.testing.assert_array_equal(pictures[5], drawings.draw_small(5))
    assert not np.array_equal(pictures[5], drawings.draw_small(5, seed=1))
    flowing, plain = ([len(np.unique(p.reshape(-1, 3), axis=0)) for p in pictures[i::2]] for i in (0, 1))
    assert max(plain) <= 4 < np.median(flowing)
    assert 1 in plain


def test_drawn_pictures_join_the_training_but_not_the_validation(folder: Path) -> None:
    plain, pool = ImagePool(folder), ImagePool(folder, drawn=6)
    small = 6 * SMALL_ONES
    assert pool.names[len(plain) :] == [
        *(f"drawn/{i:05}" for i in range(6)), *(f"drawn/small{i:05}" for i in range(small))
    ]  # fmt: skip
    assert {picture.shape for picture in pool.images[-small:]} == {(*drawings.SMALL, 3)}
    train, validation = pool.split(validation=len(plain) - 1, seed=0)
    assert validation.names == plain.split(validation=len(plain) - 1, seed=0)[1].names
    assert len(train) == 7 + small
    with pytest.raises(ImageError, match="kept for validation"):
        pool.split(validation=len(plain))


def test_a_pool_of_copies_of_one_picture_cannot_be_split(tmp_path) -> None:
    for name in "abcd":
        Image.new("RGB", (40, 40), "teal").save(tmp_path / f"{name}.png")
    with pytest.raises(ImageError, match=r"copies of the 2 kept for validation"):
        ImagePool(tmp_path).split(validation=2)


def test_no_copy_of_a_validation_picture_is_trained_on(folder: Path) -> None:
    pool = ImagePool([folder, folder])
    train, validation = pool.split(validation=3, seed=0)
    held = {picture.tobytes() for picture in validation.images}
    assert not any(picture.tobytes() in held for picture in train.images)


def test_a_folder_of_ones_own_may_be_called_drawn(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "own" / "drawn")
    pool = ImagePool(tmp_path / "own", drawn=1)
    assert len(pool.split(validation=2, seed=0)[1]) == 2


def test_the_worst_place_may_touch_the_last_row_and_column() -> None:
    error = np.zeros((103, 110))
    error[97:, 105:] = 1
    top, left, _ = _worst_place(error)
    assert (top, left) == (103 - 96, 110 - 96)
