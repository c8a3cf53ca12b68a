"""Promises of benchmarks/ablation: sizes by the rule, a table of all results, nothing done twice."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from zenith_ae.models.modules import Network  # noqa: E402
from zenith_ae.models.spec import (  # noqa: E402
    Clamp,
    Layers,
    Linear,
    ModelConfig,
    PixelShuffle,
    PixelUnshuffle,
    Relu,
    ZenithBlock,
)
from zenith_ae.models.zoo import build  # noqa: E402
from zenith_ae.selftest import random_weights  # noqa: E402
from zenith_ae.weights import save_weights  # noqa: E402

FOLDER = Path(__file__).parents[1] / "benchmarks" / "ablation"


@pytest.fixture
def ablation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("ablation")


@pytest.fixture
def variants(ablation: ModuleType) -> ModuleType:
    return importlib.import_module("variants")


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Options for a study of seconds, with eight pictures and a small teacher."""
    rng = np.random.default_rng(0)
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(8):
        small = Image.fromarray(rng.integers(0, 256, (8, 10, 3), dtype=np.uint8))
        small.resize((76, 59), Image.Resampling.BICUBIC).save(photos / f"{i}.png")
    config = ModelConfig("teacher", "autoencoder", {"encoder": (PixelUnshuffle(8), Linear(192, 32))}, 32)
    save_weights(tmp_path / "teacher.safetensors", config, random_weights(config).tensors, {})
    return [
        "--out", str(tmp_path / "out"), "--data", str(photos),
        "--teacher", str(tmp_path / "teacher.safetensors"),
        "--steps", "3", "--batch", "2", "--crop", "32", "--size", "32", "--rounds", "1", "--validation", "2",
        "--json", str(tmp_path / "rows.json"), "--isa", "generic",
    ]  # fmt: skip


def small_decoder(tile: int):
    def layers(c: int, m: int) -> Layers:
        return Clamp(), Linear(32, c), Relu(), ZenithBlock(c, m, tile), Linear(c, 192), PixelShuffle(8)

    return layers


def small_denoiser(c: int, m: int) -> Layers:
    return PixelUnshuffle(4), Linear(64, c), ZenithBlock(c, m, 4), Linear(c, 48), PixelShuffle(4)


def test_table_has_every_variant_and_a_second_run_trains_nothing(
    ablation, variants, command, tmp_path, capsys, monkeypatch
) -> None:
    study = (
        variants.Variant("first", "reference", "decoder", small_decoder(8), size=(48, 32)),
        variants.Variant("plain", "WHT", "decoder", small_decoder(0)),
        variants.Variant("noise", "reference", "denoiser", small_denoiser, size=(16, 16)),
    )
    ablation.main(command, study)
    table = capsys.readouterr().out
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    names = [line.split(" | ")[1] for line in lines]
    assert names == ["variant", "first", "plain", "variant", "noise"]
    assert len({line.count("|") for line in lines[:3]}) == 1
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["steps"] for row in rows] == [3, 3, 3]
    assert [len(row["psnr"][""]) for row in rows[:2]] == [2, 2]
    assert set(rows[2]["psnr"]) == {"15", "25", "50"}
    assert all(row["ms"]["generic"] > 0 for row in rows)
    c, m = rows[1]["size"]
    assert c % 16 == m % 16 == 0 and abs(m - c / 2) < 16
    gain = np.mean(rows[1]["psnr"][""]) - np.mean(rows[0]["psnr"][""])
    assert lines[2].split(" | ")[-1].startswith(f"{gain:+.2f} ± ")

    monkeypatch.setattr(ablation, "Trainer", None)  # another training or timing would fail now
    monkeypatch.setattr(ablation, "in_turn", None)
    ablation.main(command, study)
    assert capsys.readouterr().out == table


def test_results_of_another_training_are_not_mixed_in(ablation, variants, command) -> None:
    study = (variants.Variant("first", "reference", "decoder", small_decoder(4), size=(16, 16)),)
    ablation.main(["size", "train", *command], study)
    with pytest.raises(SystemExit, match="another training"):
        ablation.main(["train", *command, "--steps", "4"], study)


def test_references_are_the_networks_of_the_zoo(variants) -> None:
    first = {task: next(v for v in variants.VARIANTS if v.task == task) for task in ("decoder", "denoiser")}
    lite = build("zenith-taesd-lite", variants.LATENT)
    assert first["decoder"].layers(*first["decoder"].size) == lite.parts["decoder"]
    assert first["denoiser"].layers(*first["denoiser"].size) == build("zenith-deblur").parts["denoiser"]


def test_every_variant_is_a_network_of_its_task(variants) -> None:
    for variant in variants.VARIANTS:
        decoder = variant.task == "decoder"
        channels = variants.LATENT if decoder else 4
        network = Network(variant.layers(*(variant.size or (32, 32))), channels)
        if variant.change is not None:
            network = variant.change(network)
        side = 4 if decoder else 32
        with torch.inference_mode():
            assert network(torch.zeros(1, channels, side, side)).shape == (1, 3, 32, 32), variant.name


def test_shifted_tiles_are_those_of_a_picture_moved_by_half_a_tile(variants) -> None:
    torch.manual_seed(0)
    layer = ZenithBlock(16, 16, 8)
    plain = Network((layer,), 16)[0]
    shifted = variants.ShiftedBlock(layer)
    shifted.load_state_dict(plain.state_dict())
    x = torch.randn(1, 16, 40, 40)
    with torch.inference_mode():
        moved = plain(x[:, :, 4:, 4:])
        inside = shifted(x)[:, :, 4:, 4:]
    # Off the border, where the eyes of the moved picture see its edge.
    torch.testing.assert_close(inside[:, :, 8:24, 8:24], moved[:, :, 8:24, 8:24])


def test_frozen_thresholds_stay_at_zero(variants) -> None:
    network = variants.gate_alone(Network((ZenithBlock(16, 16, 4),), 16))
    frozen = [name for name, p in network.named_parameters() if not p.requires_grad]
    assert frozen == ["0.threshold"] and not network[0].threshold.any()
