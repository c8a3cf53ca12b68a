"""Batches that are made on the device that trains, here on the CPU, beside what CPUs make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from zenith_ae.batches import LUMA, orient  # noqa: E402
from zenith_ae.models import zoo  # noqa: E402
from zenith_ae.training import degradations, device_batches  # noqa: E402
from zenith_ae.training.data import ImagePool  # noqa: E402
from zenith_ae.training.degradations import MIXTURES, Mixture  # noqa: E402
from zenith_ae.training.device_batches import DevicePool, WhiteNoise, white_noise  # noqa: E402

KINDS = dict.fromkeys(Mixture.KINDS, 0.0)
NONE = Mixture(**(KINDS | {"gaussian": 1.0}), grey=0, varying=0, clipped=0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pool_of(folder: Path, *sizes: tuple[int, int]) -> ImagePool:
    """Pictures whose pixels say their row, their column and their picture's number."""
    for k, (h, w) in enumerate(sizes):
        y, x = np.mgrid[:h, :w]
        Image.fromarray(np.stack([y, x, np.full_like(x, k)], 2).astype(np.uint8)).save(folder / f"{k}.png")
    return ImagePool(folder)


def photographs(count: int, side: int) -> torch.Tensor:
    """(count, 3, side, side), grey enough for noise not to clip."""
    y, x = torch.meshgrid(torch.linspace(0.3, 0.7, side), torch.linspace(0.3, 0.7, side), indexing="ij")
    return torch.stack([x, y, 1 - x])[None].repeat(count, 1, 1, 1)


def test_crops_are_windows_of_the_pictures_in_all_orientations(tmp_path) -> None:
    sizes = (90, 70), (40, 120)
    pool = DevicePool(pool_of(tmp_path, *sizes), "cpu", 32, reduced=0)
    crops = (pool.crops(400, generator()) * 255).round().permute(0, 2, 3, 1).numpy().astype(int)
    seen, corners = set(), {0: set(), 1: set()}
    for crop in crops:
        (k,) = np.unique(crop[..., 2])
        h, w = sizes[k]
        top, left = crop[..., 0].min(), crop[..., 1].min()
        assert top + 32 <= h and left + 32 <= w
        window = np.mgrid[top : top + 32, left : left + 32].transpose(1, 2, 0)
        (which,) = (n for n in range(8) if np.array_equal(orient(window, n), crop[..., :2]))
        seen.add(which)
        corners[k].add((top, left))
    assert seen == set(range(8))
    tops, lefts = zip(*corners[0], strict=True)
    assert min(tops) < 5 and max(tops) > 53 and min(lefts) < 5 and max(lefts) > 33
    share = np.mean([crop[0, 0, 2] == 0 for crop in crops])  # as its area is
    assert abs(share - 6300 / 11100) < 0.1


def test_what_is_smaller_than_a_crop_goes_on_by_reflection(tmp_path) -> None:
    pool = DevicePool(pool_of(tmp_path, (20, 9)), "cpu", 24, reduced=0.5)
    crops = (pool.crops(40, generator()) * 255).round().permute(0, 2, 3, 1).numpy().astype(int)
    y, x = np.mgrid[:20, :9]
    wanted = np.pad(np.stack([y, x], 2), ((0, 4), (0, 15), (0, 0)), mode="reflect")
    assert all(any(np.array_equal(orient(wanted, n), c[..., :2]) for n in range(8)) for c in crops)


def test_reduced_copies_have_their_share(tmp_path) -> None:
    pool = DevicePool(pool_of(tmp_path, *[(200, 200)] * 60), "cpu", 16, reduced=0.3)
    crops = pool.crops(1500, generator()) * 255
    step = (crops[:, :2, 4, 4] - crops[:, :2, 12, 12]).abs().mean(1) / 8  # rows and columns a pixel
    copies = step[step > 1.02]
    assert abs(len(copies) / 1500 - 0.3) < 0.06
    assert copies.max() < 2.1 and abs(float((1 / copies).mean()) - 0.75) < 0.05


def test_no_copy_is_reduced_below_a_crop(tmp_path) -> None:
    pool = DevicePool(pool_of(tmp_path, *[(70, 100)] * 20, (40, 90)), "cpu", 64)
    sizes, copies = pool._sizes[:21], pool._sizes[21:]
    small = sizes[:, 0] == 40
    assert small.sum() == 1 and torch.equal(copies[small], sizes[small])
    assert copies[~small].min() == 64 and (copies[~small] < sizes[~small]).all()


def test_it_is_for_a_gpu_whose_memory_the_pictures_take_a_quarter_of(tmp_path, monkeypatch) -> None:
    pool = pool_of(tmp_path, (50, 40))
    memory = SimpleNamespace(total_memory=4 * 50 * 40 * 3 + 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
    assert DevicePool.fits(pool, "cuda") and not DevicePool.fits(pool, "cpu")
    memory.total_memory -= 1
    assert not DevicePool.fits(pool, "cuda:1")


def test_curves_and_levels_are_those_of_the_degradations() -> None:
    x = torch.linspace(0, 1, 1000)
    for mine, theirs in (("_to_linear", "to_linear"), ("_from_linear", "from_linear")):
        wanted = getattr(degradations, theirs)(x.numpy())
        np.testing.assert_allclose(getattr(device_batches, mine)(x).numpy(), wanted, atol=2e-6)
    error = torch.randn(2, 3, 40, 30, generator=generator())
    found = device_batches._local_rms(error)[:, 0].numpy()
    np.testing.assert_allclose(found, degradations.local_rms(error.permute(0, 2, 3, 1).numpy()), rtol=1e-4)


def test_gaussian_noise_has_the_level_that_is_told() -> None:
    clean = photographs(300, 48)
    mixture = replace(NONE, varying=0.3, grey=0.3, sigma=(0.0, 30 / 255))
    degraded, target, sigma, gaussian = white_noise(clean, mixture, generator())
    assert gaussian.all() and sigma.shape == (300, 1, 48, 48)
    noise = (degraded - target) / sigma.clamp(min=1e-4)
    assert noise.std((1, 2, 3)).sub(1).abs().max() < 0.12 and abs(noise.mean()) < 0.01
    assert sigma.max() <= 30 / 255 and sigma.mean() == pytest.approx(15 / 255, rel=0.15)
    varying = (sigma.amax((1, 2, 3)) - sigma.amin((1, 2, 3))) > 1e-6
    grey = (target[:, 0] == target[:, 1]).flatten(1).all(1)
    for share in (varying, grey):
        assert abs(float(share.float().mean()) - 0.3) < 0.1
    assert (degraded[grey] == degraded[grey][:, :1]).all() and (target[~grey] == clean[~grey]).all()
    luma = clean[grey].permute(0, 2, 3, 1).numpy() @ LUMA
    np.testing.assert_allclose(target[grey][:, 0].numpy(), luma, atol=1e-6)
    as_file, _, _, _ = white_noise(clean, replace(NONE, clipped=1), generator())
    assert as_file.min() == 0 and as_file.max() == 1
    np.testing.assert_allclose(as_file * 255, (as_file * 255).round(), atol=1e-4)


def test_uneven_noise_has_another_level_in_each_channel_and_is_told_their_mean() -> None:
    mixture = replace(NONE, uneven=0.5, grey=0.3, sigma=(0.1, 0.1))
    degraded, target, sigma, _ = white_noise(photographs(300, 48), mixture, generator())
    level = (degraded - target).std((2, 3))
    torch.testing.assert_close(level.square().mean(1).sqrt(), sigma[:, 0, 0, 0], rtol=0.1, atol=0)
    uneven = level.amax(1) / level.amin(1) > 1.15
    grey = (target[:, 0] == target[:, 1]).flatten(1).all(1)
    assert not (uneven & grey).any()
    assert 0.35 < float(uneven[~grey].float().mean()) < 0.55
    most = np.exp(2 * degradations.UNEVEN)
    assert 0.6 * most < float((level.amax(1) / level.amin(1)).max()) < 1.1 * most


def test_noise_of_photons_is_what_the_degradations_make() -> None:
    mixture = replace(
        NONE, gaussian=0, poisson_gaussian=1, photon_gain=(4e-3, 4.001e-3), read_noise=(6e-3, 6.01e-3)
    )
    clean = torch.full((64, 3, 64, 64), 0.5)
    degraded, _, sigma, gaussian = white_noise(clean, mixture, generator())
    assert not gaussian.any()
    rng, pictures = np.random.default_rng(0), clean.permute(0, 2, 3, 1).numpy()
    wanted = np.concatenate([mixture._poisson_gaussian(picture[None], rng)[0] for picture in pictures])
    assert float(degraded.mean()) == pytest.approx(wanted.mean(), abs=2e-3)
    for channel in range(3):  # gains of white balance differ from picture to picture
        mine = degraded[:, channel].flatten(1).std(1).mean()
        assert float(mine) == pytest.approx(wanted[..., channel].std(axis=(1, 2)).mean(), rel=0.05)
    centre = sigma[:, 0, 20:-20, 20:-20].mean((1, 2))
    torch.testing.assert_close(centre, (degraded - clean).square().mean((1, 2, 3)).sqrt(), rtol=0.15, atol=0)


def test_shot_noise_has_its_share_and_is_one_for_a_pixel_or_for_a_value() -> None:
    mixture = replace(NONE, gaussian=0, salt_and_pepper=1, shot_fraction=(0.1, 0.1001))
    degraded, target, _, _ = white_noise(photographs(60, 64), mixture, generator())
    wrong = degraded != target
    assert float(wrong.float().mean()) == pytest.approx(0.1, rel=0.05)
    assert set(degraded[wrong].unique().tolist()) == {0, 1}
    whole = (wrong.all(1) == wrong.any(1)).flatten(1).all(1)
    assert 0.25 < float(whole.float().mean()) < 0.75


def test_few_wrong_pixels_are_as_usual_as_many() -> None:
    mixture = replace(NONE, gaussian=0, salt_and_pepper=1)
    degraded, target, _, _ = white_noise(photographs(400, 64), mixture, generator())
    wrong = (degraded != target).float().mean((1, 2, 3))
    low, high = mixture.shot_fraction
    assert float(wrong.median()) == pytest.approx((low * high) ** 0.5, rel=0.25)


def test_the_shares_of_an_experts_mixture_are_kept_and_others_refused() -> None:
    mixture = MIXTURES["white"]
    degraded, target, sigma, gaussian = white_noise(photographs(3000, 9), mixture, generator())
    assert abs(float(gaussian.float().mean()) - mixture.gaussian / mixture.whole) < 0.03
    changed = (degraded != target).any(1).flatten(1).float().mean(1)  # of shot noise few pixels are
    assert abs(float((changed < 0.5).float().mean()) - mixture.salt_and_pepper / mixture.whole) < 0.02
    grey = (target[:, 0] == target[:, 1]).flatten(1).all(1)
    assert abs(float(grey.float().mean()) - mixture.grey) < 0.03
    for picture in (degraded[grey & ~gaussian], degraded[grey & gaussian]):
        assert len(picture) and (picture == picture[:, :1]).all()
    found = device_batches._local_rms(degraded - target)[~gaussian]
    torch.testing.assert_close(sigma[~gaussian], found)
    assert device_batches.is_white(mixture) and not device_batches.is_white(MIXTURES["noise"])
    with pytest.raises(ValueError, match="alone is wanted"):
        white_noise(photographs(1, 9), MIXTURES["other"], generator())


def test_a_batch_is_that_of_its_seed(tmp_path) -> None:
    pool = DevicePool(pool_of(tmp_path, (60, 60)), "cpu", 16)
    make = WhiteNoise(pool, MIXTURES["white"], 200, (0.25, 0.75), 0.3, 2.0)
    first, other, again = make(1), make(2), make(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.degraded, other.degraded)
    assert first.degraded.is_contiguous(memory_format=torch.channels_last)
    assert first.factor.min() == 1 and 1.5 < first.factor.max() <= 2
    assert abs(float((first.factor > 1).float().mean()) - 0.3) < 0.1
    assert 0.2 < float(first.estimated.float().mean()) < 0.45


def test_an_expert_learns_from_them_and_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys) -> None:
    from zenith_ae.training import restore
    from zenith_ae.training.trainer import TrainConfig, Trainer
    from zenith_ae.weights import load_weights

    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(18):
        small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        small.resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{i}.png")

    def train(out: str, steps: int, only: str | None, init: str | None = None) -> str:
        config = TrainConfig(
            tmp_path / out, steps=steps, batch=2, crop=32, precision="float32", warmup=1, threads=1,
            log_every=1,
        )  # fmt: skip
        return str(restore.train_restoration(tiny, [str(folder)], config, init=init, only=only, loss="l1"))

    full = zoo.build("zenith-denoise")
    layers = zoo.denoising_unet((16, 16, 16), (0, 0, 1))
    tiny = replace(full, name="tiny", parts={"denoiser": layers, "estimator": full.parts["estimator"]})
    first = train("first", 1, None)
    made = []
    call = WhiteNoise.__call__
    monkeypatch.setattr(DevicePool, "fits", staticmethod(lambda pool, device: True))
    monkeypatch.setattr(WhiteNoise, "__call__", lambda self, seed: made.append(seed) or call(self, seed))
    whole = train("whole", 4, "white", first)
    assert len(made) == len(set(made)) == 4
    loop = Trainer._loop
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_loop", lambda self, batches, _: loop(self, batches, lambda: self.step >= 2))
        train("parts", 4, "white", first)
    parts = train("parts", 4, "white", first)
    assert made[4:] == made[:4]
    said = capsys.readouterr().err
    assert "at step 2" in said and "batches are made on cpu" in said
    one, two, begun = (load_weights(path).tensors for path in (whole, parts, first))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    for name, value in begun.items():
        assert np.array_equal(one[name], value)
        if name.startswith("denoiser."):  # where the expert began
            assert not np.array_equal(one[name.replace("denoiser", "white")], value)
