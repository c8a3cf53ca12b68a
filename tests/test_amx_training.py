"""Promises of benchmarks/amx_training: torch's gradients, layers that it knows, noise of the told level."""

from __future__ import annotations

import importlib
import platform
import shutil
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
#: A network with all that unet_step.c knows, narrower and shallower than those that ship.
LAYERS: spec.Layers = (
    spec.PixelUnshuffle(2), spec.Linear(16, 48), spec.ZenithBlock(48, 48), spec.Keep("half"),
    spec.PixelUnshuffle(2), spec.Linear(192, 96), spec.ZenithBlock(96, 96), spec.Keep("quarter"),
    spec.PixelUnshuffle(2), spec.Linear(384, 192), spec.ZenithBlock(192, 192), spec.ZenithBlock(192, 192),
    spec.Linear(192, 384), spec.PixelShuffle(2), spec.Add("quarter"), spec.ZenithBlock(96, 96),
    spec.Linear(96, 192), spec.PixelShuffle(2), spec.Add("half"), spec.ZenithBlock(48, 48),
    spec.Linear(48, 12), spec.PixelShuffle(2),
)  # fmt: skip


@pytest.fixture
def amx_training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("train_expert")


@pytest.fixture
def expert(amx_training: ModuleType) -> Any:
    if platform.system() != "Linux" or "amx" not in available_isas():
        pytest.skip("this machine has no AMX")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    return amx_training.Expert(LAYERS, threads=2)


def test_gradients_are_those_of_torch(expert: Any) -> None:
    """As near to float32 as those in bf16, and all of them: no layer's may be missing or out of order."""
    torch.manual_seed(0)
    network = Network(LAYERS, 4)
    for p in network.parameters():
        if p.ndim == 1:
            torch.nn.init.normal_(p, std=0.1)  # a bias of zero would hide a wrong one
    expert.load({name: value.numpy() for name, value in network.state_dict().items()})
    rng = np.random.default_rng(0)
    target = rng.random((3, 128, 128, 3), np.float32)
    level = rng.uniform(0.05, 0.3, (3, 128, 128)).astype(np.float32)
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


@pytest.mark.parametrize("name", ["zenith-denoise", "zenith-denoise-fast"])
def test_values_come_back_in_torchs_order(amx_training: ModuleType, name: str) -> None:
    layers = zoo.build(name).parts["denoiser"]
    rows, slots = amx_training.plan(layers)
    names = [f"{i}.{name}" for i, layer in enumerate(layers) for name in layer.params()]
    assert sorted(slot.name for slot in slots) == sorted(names)
    assert [slot.first for slot in slots] == list(np.cumsum([0] + [np.prod(s.shape) for s in slots[:-1]]))
    assert len(rows) == sum(not isinstance(layer, spec.Add) for layer in layers[1:-1])


def test_other_layers_are_refused(amx_training: ModuleType) -> None:
    for layer in (spec.ZenithBlock(48, 48, tile=8), spec.ZenithBlock(48, 32), spec.Relu()):
        with pytest.raises(ValueError, match=r"layer 2: unet_step\.c does not know"):
            amx_training.plan((*LAYERS[:2], layer, *LAYERS[3:]))


def test_levels_are_those_of_the_noise(amx_training: ModuleType, tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for i in range(3):
        smooth = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8)).resize((320, 280))
        smooth.save(tmp_path / f"{i}.png")
    lessons = amx_training.Lessons(ImagePool([tmp_path]), vivid=0, framed=0)
    degraded, level, target = lessons.batch(np.random.default_rng(1), 60, 128)
    assert degraded.shape == target.shape == (60, 128, 128, 3)
    assert 0 <= target.min() <= target.max() <= 1
    noise = np.square(degraded - target).mean(axis=(1, 2, 3)) ** 0.5
    ratio = noise / level.mean(axis=(1, 2))
    assert np.isclose(np.median(ratio), 1, atol=0.01)
    assert np.mean(np.abs(ratio - 1) < 0.25) > 0.8  # but for clipped ones and levels told wrong on purpose
