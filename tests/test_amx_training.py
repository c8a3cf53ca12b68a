"""Promises of benchmarks/amx_training: torch's gradients, layers that it knows, noise of the told level."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from zenith_ae._kernels import available_isas  # noqa: E402
from zenith_ae.models import spec, zoo  # noqa: E402
from zenith_ae.models.modules import Network  # noqa: E402
from zenith_ae.training.data import ImagePool  # noqa: E402
from zenith_ae.training.restore import log_error  # noqa: E402

FOLDER = Path(__file__).parents[1] / "benchmarks" / "amx_training"
#: Shallower than those that ship, and as wide: 48 channels take another step of tiles than the others.
LAYERS = zoo.denoising_unet((48, 96, 192), (1, 1, 2))


@pytest.fixture
def amx_training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("train_expert")


@pytest.fixture
def expert(amx_training: ModuleType, tmp_path: Path) -> Any:
    if platform.system() != "Linux" or "amx" not in available_isas():
        pytest.skip("this machine has no AMX")
    try:
        amx_training.compile_library(os.devnull, tmp_path / "empty.so")
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no compiler that knows AMX: {error}")
    return amx_training.Expert(LAYERS, threads=2)


@pytest.mark.parametrize("side", [128, 256])
def test_gradients_are_those_of_torch(expert: Any, side: int) -> None:
    """As near to float32 as those in bf16, and all of them: no layer's may be missing or out of order."""
    torch.manual_seed(0)
    network = Network(LAYERS, 4)
    for p in network.parameters():
        if p.ndim == 1:
            torch.nn.init.normal_(p, std=0.1)  # a bias of zero would hide a wrong one
    expert.load({name: value.numpy() for name, value in network.state_dict().items()})
    rng = np.random.default_rng(0)
    target = rng.random((3, side, side, 3), np.float32)
    level = rng.uniform(0.05, 0.3, (3, side, side)).astype(np.float32)
    degraded = target + level[..., None] * rng.standard_normal(target.shape, np.float32)
    given, wanted = (torch.from_numpy(x).permute(0, 3, 1, 2) for x in (degraded, target))

    def by_torch(bf16: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            residual = network(torch.cat([given, torch.from_numpy(level)[:, None]], 1))
        restored = given + residual.float()
        log_error(restored - wanted).backward()
        gradients = {name: p.grad.numpy().copy() for name, p in network.named_parameters()}
        return restored.detach().permute(0, 2, 3, 1).numpy(), gradients

    (restored, exact), (_, bf16) = by_torch(False), by_torch(True)
    errors, ours = expert.step(degraded, level, target)
    np.testing.assert_allclose(ours, restored, atol=0.02 * np.abs(restored - degraded).max())
    np.testing.assert_allclose(errors, np.square(ours - target).mean(axis=(1, 2, 3)), rtol=1e-3)
    found = expert.tensors(expert.gradients)
    assert found.keys() == exact.keys()
    for name, value in exact.items():
        size = np.linalg.norm(value)
        assert size > 0
        limit = max(1.5 * np.linalg.norm(bf16[name] - value) / size, 0.01)
        assert np.linalg.norm(found[name] - value) / size < limit, name


def test_a_step_without_learning_leaves_gradients(expert: Any) -> None:
    expert.load({name: value.numpy() for name, value in Network(LAYERS, 4).state_dict().items()})
    picture = np.random.default_rng(0).random((1, 256, 256, 3), np.float32)
    expert.gradients.fill_(7)
    expert.step(picture, np.zeros((1, 256, 256), np.float32), picture, learning=False)
    assert (expert.gradients == 7).all()


@pytest.mark.parametrize("name", ["zenith-denoise", "zenith-denoise-fast", "zenith-denoise-large"])
def test_values_have_a_place_each_and_come_back(amx_training: ModuleType, name: str) -> None:
    layers = zoo.with_expert(zoo.build(name)).parts["white"]
    _, slots = amx_training.plan(layers)
    values = {key: value.numpy() for key, value in Network(layers, 4).state_dict().items()}
    flat = torch.full([sum(value.size for value in values.values())], torch.nan)
    amx_training.values_in(flat, slots, values)
    assert not flat.isnan().any()
    again = amx_training.values_of(flat, slots)
    assert again.keys() == values.keys()
    assert all(np.array_equal(again[key], values[key]) for key in values)


def test_new_blocks_change_nothing_at_first(amx_training: ModuleType) -> None:
    torch.manual_seed(0)
    network = Network(LAYERS, 4)
    blocks = [i for i, layer in enumerate(LAYERS) if isinstance(layer, spec.ZenithBlock)]
    after = [blocks[0], blocks[-1], blocks[-1]]
    layers, values, new = amx_training.grown(
        LAYERS, {key: value.numpy() for key, value in network.state_dict().items()}, after
    )
    assert new == [blocks[0] + 1, blocks[-1] + 2, blocks[-1] + 3]
    assert [layer for i, layer in enumerate(layers) if i not in new] == list(LAYERS)
    larger = Network(layers, 4)
    larger.load_state_dict({key: torch.from_numpy(value) for key, value in values.items()})
    picture = torch.rand(1, 4, 32, 32)
    with torch.no_grad():
        assert torch.equal(larger(picture), network(picture))
    _, slots = amx_training.plan(layers)
    assert {slot.name for slot in slots} == set(values)


def test_channels_of_an_unshuffled_picture_are_ordered_by_place(amx_training: ModuleType) -> None:
    picture = torch.arange(3 * 2 * 2).view(1, 3, 2, 2)
    theirs = torch.nn.functional.pixel_unshuffle(picture, 2).flatten().numpy()
    by_place = picture.permute(0, 2, 3, 1).flatten().numpy()  # row, column, channel
    assert np.array_equal(theirs[amx_training.unshuffled(3)], by_place)


@pytest.mark.parametrize("at, layer", [
    (2, spec.ZenithBlock(48, 48, tile=8)), (2, spec.ZenithBlock(48, 32)), (2, spec.Relu()), (-3, spec.Relu()),
    (4, spec.PixelShuffle(2)),
])  # fmt: skip
def test_other_networks_are_refused(amx_training: ModuleType, at: int, layer: spec.Layer) -> None:
    for layers in ((*LAYERS[:at], layer, *LAYERS[at + 1 :]), zoo.denoising_unet((40, 96, 192), (1, 1, 1))):
        with pytest.raises(ValueError, match="U-nets as of zenith-denoise alone"):
            amx_training.plan(layers)


def test_levels_are_those_of_the_noise(amx_training: ModuleType, tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for i in range(3):
        smooth = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8)).resize((320, 280))
        smooth.save(tmp_path / f"{i}.png")
    lessons = amx_training.Lessons(ImagePool([tmp_path]), vivid=0, framed=0, stretched=0)
    degraded, level, target = lessons.batch(np.random.default_rng(1), 60, 128)
    assert degraded.shape == target.shape == (60, 128, 128, 3)
    assert 0 <= target.min() <= target.max() <= 1
    noise = np.square(degraded - target).mean(axis=(1, 2, 3)) ** 0.5
    ratio = noise / level.mean(axis=(1, 2))
    assert np.isclose(np.median(ratio), 1, atol=0.01)
    assert np.mean(np.abs(ratio - 1) < 0.25) > 0.8  # but for clipped ones and levels told wrong on purpose
