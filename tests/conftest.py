"""Set-up of the suite, and small models with known behaviour: no test depends on trained weights."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image, ImageDraw, ImageFont

from zenith_ae.models.spec import Linear, ModelConfig, PixelShuffle, PixelUnshuffle
from zenith_ae.weights import save_weights

# Nothing is timed in the tests, and the first call of many things loads or packs something.
settings.register_profile("zenith", deadline=None, max_examples=40)
settings.load_profile("zenith")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and teacher weights, which is no part of the repository."""
    folder = Path(os.environ.get("ZENITH_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("needs the shared data folder (ZENITH_SHARED or ../shared)")
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working folder too."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def plan() -> np.ndarray:
    """Thin lines and small letters in plain colours, without soft edges."""
    picture = Image.new("RGB", (160, 120), (255, 255, 255))
    pen = ImageDraw.Draw(picture)
    pen.fontmode = "1"
    for i in range(12):
        pen.line(
            (7 * i, 3 * i, 150 - i, 119 - 9 * i), ((0, 0, 0), (200, 0, 0), (0, 0, 200), (0, 120, 0))[i % 4]
        )
        pen.text((90, 10 * i), f"{i} plain", (0, 10 * i, 200), ImageFont.load_default(9))
    return np.asarray(picture)


@pytest.fixture(scope="session")
def identity_autoencoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of an autoencoder that loses nothing: 192 latent channels are the 8 x 8 pixels."""
    config = ModelConfig(
        "identity", "autoencoder",
        {"encoder": (PixelUnshuffle(8), Linear(192, 192)), "decoder": (Linear(192, 192), PixelShuffle(8))},
        192,
    )  # fmt: skip
    eye, zero = np.eye(192, dtype=np.float32), np.zeros(192, np.float32)
    tensors = {
        "encoder.1.weight": eye,
        "encoder.1.bias": zero,
        "decoder.0.weight": eye,
        "decoder.0.bias": zero,
    }
    return _save(tmp_path_factory, config, tensors)


@pytest.fixture(scope="session")
def sigma_denoiser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a "denoiser" that adds the noise level that it is told; it estimates 10 everywhere.

    So clean = clip(picture + strength * sigma / 255), which makes every step around the network visible.
    """
    config = ModelConfig(
        "adds-sigma", "denoiser",
        {
            "denoiser": (PixelUnshuffle(2), Linear(16, 12), PixelShuffle(2)),
            "estimator": (PixelUnshuffle(8), Linear(192, 1)),
        },
    )  # fmt: skip
    weight = np.zeros((12, 16), np.float32)
    weight[np.arange(12), 12 + np.arange(12) % 4] = 1  # channels 12..15 are the unshuffled plane
    tensors = {
        "denoiser.1.weight": weight,
        "denoiser.1.bias": np.zeros(12, np.float32),
        "estimator.1.weight": np.zeros((1, 192), np.float32),
        "estimator.1.bias": np.full(1, 10 / 25, np.float32),
    }
    return _save(tmp_path_factory, config, tensors)


def _save(factory: pytest.TempPathFactory, config: ModelConfig, tensors: dict[str, np.ndarray]) -> Path:
    path = factory.mktemp("models") / f"{config.name}.safetensors"
    save_weights(path, config, tensors, {}, dtype=np.float32)
    return path


def pytest_configure() -> None:
    """Children of a background job inherit that it ignores Ctrl-C; tests send it to them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
