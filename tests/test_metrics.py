import math

import numpy as np
import pytest

from zenith_ae.metrics import channel_errors, grid_steps, lattice_energy, psnr, sharpness, ssim


def picture(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def direct_ssim(a, b, peak):
    """The definition of Wang et al. 2004, window by window with a full 2-D Gaussian."""
    y, x = np.mgrid[-5:6, -5:6]
    w = np.exp(-(x**2 + y**2) / (2 * 1.5**2))
    w /= w.sum()
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    scores = []
    for c in range(a.shape[2]):
        for i in range(a.shape[0] - 10):
            for j in range(a.shape[1] - 10):
                u = a[i : i + 11, j : j + 11, c].astype(float)
                v = b[i : i + 11, j : j + 11, c].astype(float)
                mu, mv = (w * u).sum(), (w * v).sum()
                var_u, var_v = (w * (u - mu) ** 2).sum(), (w * (v - mv) ** 2).sum()
                cov = (w * (u - mu) * (v - mv)).sum()
                scores.append(
                    (2 * mu * mv + c1) * (2 * cov + c2) / ((mu**2 + mv**2 + c1) * (var_u + var_v + c2))
                )
    return np.mean(scores)


def test_psnr_of_a_constant_difference_is_known():
    a = np.full((3, 5, 3), 100, np.uint8)
    assert psnr(a, a + 16) == pytest.approx(20 * math.log10(255 / 16))
    assert psnr(a / 255, (a + 16) / 255) == pytest.approx(20 * math.log10(255 / 16))
    assert psnr(a.astype(np.uint16), a.astype(np.uint16) + 16) == pytest.approx(20 * math.log10(65535 / 16))


def test_psnr_does_not_wrap_unsigned_differences():
    a, b = np.zeros((2, 2), np.uint8), np.full((2, 2), 255, np.uint8)
    assert psnr(a, b) == psnr(b, a) == 0


def test_psnr_of_equal_pictures_is_infinite():
    a = picture((9, 9, 3))
    assert psnr(a, a) == math.inf


def test_psnr_over_several_bands_equals_the_formula():
    a, b = picture((150, 7, 3), 1), picture((150, 7, 3), 2)
    mse = np.mean((a.astype(float) - b) ** 2)
    assert psnr(a, b) == pytest.approx(10 * math.log10(255**2 / mse), rel=1e-12)


@pytest.mark.parametrize("shape", [(11, 11, 1), (23, 17, 3), (90, 12, 3)])
def test_ssim_equals_the_definition(shape):
    a = picture(shape)
    b = np.clip(a + np.random.default_rng(1).normal(0, 20, shape), 0, 255).astype(np.uint8)
    assert ssim(a, b) == pytest.approx(direct_ssim(a, b, 255), rel=1e-9)
    assert ssim(a / 255.0, b / 255.0) == pytest.approx(ssim(a, b), rel=1e-9)


def test_ssim_of_flat_pictures_follows_the_luminance_term():
    a, b = np.full((16, 16), 0.25), np.full((16, 16), 0.5)
    expected = (2 * 0.25 * 0.5 + 1e-4) / (0.25**2 + 0.5**2 + 1e-4)
    assert ssim(a, b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (1, 30, 3), (10, 4, 3)])
def test_ssim_of_small_pictures_is_one_for_equal_and_less_for_different(shape):
    a, b = picture(shape), picture(shape, 5)
    assert ssim(a, a) == pytest.approx(1, abs=1e-12)
    assert ssim(a, b) < 1


def test_metrics_refuse_what_cannot_be_compared():
    with pytest.raises(ValueError, match="one shape"):
        psnr(np.zeros((2, 2)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="peak"):
        ssim(np.zeros((2, 2), np.int64), np.zeros((2, 2), np.int64))
    with pytest.raises(ValueError, match="`peak` must be positive"):
        psnr(np.zeros((2, 2)), np.ones((2, 2)), peak=0)


def test_the_order_of_bytes_does_not_matter():
    a = np.random.default_rng(0).integers(0, 65536, (20, 20, 3)).astype(np.uint16)
    b = a ^ 255
    for metric in (psnr, ssim):
        assert metric(a.astype(">u2"), b.astype(">u2")) == metric(a, b)


def wave(cycles_per_pixel: float, amplitude: float = 0.2) -> np.ndarray:
    x = np.arange(96)
    return np.broadcast_to(0.5 + amplitude * np.sin(2 * np.pi * cycles_per_pixel * x), (80, 96))


def test_sharpness_is_the_energy_of_the_top_octave():
    coarse, fine = wave(0.1), wave(0.35)
    original = coarse + fine - 0.5
    assert sharpness(original, original) == 1
    with pytest.raises(ValueError, match="one shape"):
        sharpness(original[:-8], original)
    assert sharpness(coarse + wave(0.35, 0.1) - 0.5, original) == pytest.approx(0.25, rel=1e-3)
    assert sharpness(0.5 + 2 * (coarse - 0.5) + fine - 0.5, original) == pytest.approx(1, rel=1e-3)
    assert sharpness(original.T, original.T) == 1
    for level in (0.25, 0.1, 1 / 3, 200 / 255):  # of which most are not stored exactly
        assert math.isnan(sharpness(original, np.full_like(original, level)))
    one_step = np.full((300, 400, 3), 200 / 255)
    one_step[100, 100] += 1 / 255  # the least that a picture can show
    assert sharpness(one_step, one_step) == 1


def test_sharpness_knows_no_direction():
    side = np.broadcast_to(wave(0.35)[:80, :80] - 0.5, (80, 80))
    original = 0.5 + side + side.T
    for kept in (side, side.T):
        assert sharpness(0.5 + kept, original) == pytest.approx(0.5, rel=1e-6)


def test_errors_of_channels_are_signed_and_noise_has_none():
    original = np.full((50, 60, 3), 0.5)
    noise = np.random.default_rng(0).normal(0, 0.05, original.shape)
    noise -= noise.mean(axis=(0, 1))
    assert channel_errors(original + noise, original) == pytest.approx(0, abs=1e-12)
    tint = np.array([0.01, -0.03, 0.02])
    assert channel_errors(original + tint, original) == pytest.approx(tint)
    assert channel_errors(original[..., 0], original[..., 0]).tolist() == [0]


def test_grid_steps_tells_a_grid_from_noise():
    rng = np.random.default_rng(1)
    original = np.zeros((64, 72, 3))
    noise = rng.normal(0, 0.05, original.shape)
    assert grid_steps(noise, original) == pytest.approx(1, abs=0.05)
    cells = np.kron(rng.normal(0, 0.05, (8, 9)), np.ones((8, 8)))[..., None]
    assert grid_steps(noise + cells, original) > 1.5
    assert grid_steps(np.roll(noise + cells, 4, axis=(0, 1)), original) == pytest.approx(0.9, abs=0.15)
    assert grid_steps(cells, original[..., :1]) == pytest.approx(1e9)
    assert math.isnan(grid_steps(original, original))
    assert math.isnan(grid_steps(noise[:8, :8], original[:8, :8]))
    assert math.isnan(grid_steps(noise[:1, :1], original[:1, :1]))


def test_lattice_energy_tells_what_repeats_from_noise():
    rng = np.random.default_rng(1)
    original = np.zeros((192, 256, 3))
    noise = rng.normal(0, 0.05, original.shape)
    assert lattice_energy(noise, original) == pytest.approx(1, abs=0.1)
    edges = np.where(np.indices((192, 256)).sum(0)[..., None] % 90 < 45, 0.1, 0.0)
    edges[60:130, 100:180] += 0.2
    assert lattice_energy(noise + edges, original) == pytest.approx(1, abs=0.3)

    assert math.isnan(lattice_energy(np.full_like(original, 0.1), original))
    alone = np.tile(np.eye(8)[..., None] * 0.1, (24, 32, 3))
    assert 1e3 < lattice_energy(alone, original) < 1e12

    steps = np.kron(rng.normal(0, 0.05, (24, 32)), np.ones((8, 8)))[..., None]
    assert (
        lattice_energy(noise + steps, original) < 1.3
    )  # flat cells differ as pictures do: no line of its own
    for cell in (rng.normal(0, 0.02, (8, 8)), np.kron(np.ones((2, 2)), rng.normal(0, 0.02, (4, 4))),
                 np.kron(np.ones((4, 4)), [[0.02, -0.02], [-0.02, 0.02]])):  # fmt: skip
        lattice = np.tile(cell, (24, 32))[..., None]
        assert lattice_energy(noise + lattice, original) > 3
        assert lattice_energy(np.roll(noise + lattice, 3, axis=(0, 1)), original) > 3
    assert lattice_energy(noise + 0.02 * rng.normal(size=original.shape), original) == pytest.approx(
        1, abs=0.1
    )
    assert math.isnan(lattice_energy(original, original))
    assert math.isnan(lattice_energy(noise[:63], original[:63]))
