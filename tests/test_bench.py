"""Promises of ``zenith-ae bench`` and of the functions that measure. No test depends on a time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from zenith_ae import measure
from zenith_ae.app import bench
from zenith_ae.app.cli import run
from zenith_ae.engine import create
from zenith_ae.engine.native import NativeEngine
from zenith_ae.models import spec, zoo
from zenith_ae.models.spec import (
    Conv,
    Linear,
    ModelConfig,
    PixelUnshuffle,
    Relu,
    ResBlock,
    Upsample,
    ZenithBlock,
)
from zenith_ae.selftest import random_weights
from zenith_ae.weights import save_weights


@pytest.fixture(autouse=True)
def quick_ceilings(monkeypatch):
    """A ceiling from a moment's work."""
    products = ModelConfig("products", "autoencoder", {"encoder": (PixelUnshuffle(8), Linear(192, 32))}, 32)
    monkeypatch.setattr(measure, "_PRODUCTS", products)
    monkeypatch.setattr(measure, "PRODUCT_SECONDS", 0.0)
    monkeypatch.setattr(measure, "COPIES", 1)


@pytest.fixture
def measured(sigma_denoiser, identity_autoencoder, capsys):
    """Run the command on two small models and return its JSON lines by kind."""

    def lines(*options: str) -> dict[str, list[dict]]:
        command = ["bench", str(sigma_denoiser), str(identity_autoencoder), "--repeats", "1", "--json"]
        assert run([*command, *options]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        found: dict[str, list[dict]] = {"machine": [], "result": [], "stage": []}
        for line in out.splitlines():
            found[json.loads(line)["kind"]].append(json.loads(line))
        return found

    return lines


# ---- the command


def test_each_operation_of_each_model_and_size_is_a_line(measured, sigma_denoiser, identity_autoencoder):
    results = measured("--size", "24", "--size", "40x17")["result"]
    dn, ae = str(sigma_denoiser), str(identity_autoencoder)
    assert [(r["model"], r["operation"], r["width"], r["height"]) for r in results] == [
        (dn, "denoise", 24, 24), (dn, "denoise", 40, 17),
        (ae, "encode", 24, 24), (ae, "decode", 24, 24), (ae, "round trip", 24, 24),
        (ae, "encode", 40, 17), (ae, "decode", 40, 17), (ae, "round trip", 40, 17),
    ]  # fmt: skip


def test_the_numbers_of_a_line_belong_together(measured):
    found = measured("--size", "32x16", "--threads", "1")
    (machine,) = found["machine"]
    assert machine["threads"] == 1 and machine["level"] and machine["cpu"]
    for row in found["result"]:
        assert 0 < row["ms_best"] <= row["ms_low"] <= row["ms"] <= row["ms_high"] and row["calls"] >= 1
        assert row["megapixels_per_second"] == pytest.approx(32 * 16 / row["ms"] / 1e3, rel=0.01, abs=0.001)
        assert row["gmacs_per_second"] == pytest.approx(row["gmacs"] / row["ms"] * 1e3, rel=0.05, abs=0.001)
        assert row["memory_bytes"] >= (8 * 2 * 192 if row["operation"] == "encode" else 32 * 16 * 3)
        assert machine["gemm_gmacs_per_second"][row["dtype"]] > 0
        share = row["gmacs"] / row["ms"] * 1e3 / machine["gemm_gmacs_per_second"][row["dtype"]]
        assert row["gemm_share"] == pytest.approx(share, rel=0.05, abs=0.001)
    by_name = {row["operation"]: row["gmacs"] for row in found["result"]}
    assert by_name["encode"] == by_name["decode"] == round(192 * 192 * 8 / 1e9, 6)
    assert by_name["round trip"] == round(2 * 192 * 192 * 8 / 1e9, 6)


def test_the_default_is_all_shipped_models_in_a_table(capsys, monkeypatch, sigma_denoiser):
    monkeypatch.setattr("zenith_ae.weights.available_weights", lambda: {str(sigma_denoiser): sigma_denoiser})
    assert run(["bench", "--size", "16", "--repeats", "1"]) == 0
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert "level" in lines[0] and "thread" in lines[0] and "numpy" in lines[0]
    assert lines[1].startswith("ceilings: GEMM")
    assert lines[3].split()[:4] == ["model", "operation", "dtype", "size"]
    name, operation, dtype, size = lines[4].split()[:4]
    assert (name, operation, size) == (str(sigma_denoiser), "denoise", "16x16")
    assert f" {dtype}" in lines[1]  # the ceiling of that arithmetic


def test_profile_covers_every_stage_and_its_shares_sum_to_one(measured, sigma_denoiser):
    parts: dict[tuple[str, str], list[dict]] = {}
    for row in measured("--size", "48", "--profile")["stage"]:
        parts.setdefault((row["model"], row["part"]), []).append(row)
    assert [part for _, part in parts] == ["denoiser", "estimator", "encoder", "decoder"]
    for rows in parts.values():
        assert sum(row["time_share"] for row in rows) == pytest.approx(1, abs=1e-3)
        assert all(row["ms"] >= 0 for row in rows)
    assert [row["stage"] for row in parts[str(sigma_denoiser), "denoiser"]] == ["1 Linear(16, 12) 48x48"]


def test_profile_prints_a_table_a_part(capsys, identity_autoencoder):
    assert run(["bench", str(identity_autoencoder), "--size", "16", "--repeats", "1", "--profile"]) == 0
    out, _ = capsys.readouterr()
    assert out.count("best of each stage") == 2
    assert "1 Linear(192, 192) 16x16" in out and "0 Linear(192, 192) 2x2" in out


def test_an_encoder_alone_is_measured_alone(tmp_path, capsys):
    config = ModelConfig("half", "autoencoder", {"encoder": (PixelUnshuffle(8), Linear(192, 4))}, 4)
    save_weights(tmp_path / "half.safetensors", config, random_weights(config).tensors, {})
    assert run(["bench", str(tmp_path / "half.safetensors"), "--size", "8", "--repeats", "1", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["operation"] for row in rows[1:]] == ["encode"]


def test_torch_stands_beside_it_on_request(measured):
    pytest.importorskip("torch")
    found = measured("--size", "16", "--threads", "1", "--compare", "torch")
    assert found["machine"][0]["torch"]
    for row in found["result"]:
        assert row["torch_ratio"] == pytest.approx(row["torch_ms"] / row["ms"], rel=0.05)


def test_without_the_comparison_nothing_imports_torch(sigma_denoiser):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from zenith_ae import measure; from zenith_ae.app.cli import main\n"
        "measure.PRODUCT_SECONDS = 0.0; main(sys.argv[1:])"
    )
    command = ["bench", str(sigma_denoiser), "--size", "16", "--repeats", "1"]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused = subprocess.run(
        [sys.executable, "-c", code, *command, "--compare", "torch"], capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1 and "zenith-ae[torch]" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing-of-that-name"], 1, "no such file or shipped model"),
        (["--precision", "int4"], 2, "int4"),
        (["--size", "0"], 2, "'0' is not a side"),
        (["--size", "12x"], 2, "'12x' is not a side"),
        (["--repeats", "0"], 2, "--repeats"),
        (["--seconds", "inf"], 2, "not a finite number"),
        (["--compare", "numpy"], 2, "--compare"),
    ],
)
def test_errors_are_told_before_anything_is_measured(capsys, monkeypatch, arguments, code, message):
    monkeypatch.setattr(measure, "in_turn", lambda *_: pytest.fail("measured"))
    assert run(["bench", *arguments]) == code
    assert message in capsys.readouterr().err


# ---- the functions


def test_candidates_take_turns():
    order = []
    calls = {name: lambda name=name: (order.append(name), time.sleep(measure.TURN)) for name in "ab"}
    timings = measure.in_turn(calls, rounds=3)
    assert order == list("ab" * 4)  # a warm-up round and three
    assert timings["a"].calls == 3


def test_short_calls_are_repeated_within_a_turn():
    assert measure.in_turn({"a": lambda: None}, rounds=1)["a"].calls > 1


def test_a_budget_of_no_time_still_gives_enough_rounds_for_a_median():
    calls = {"a": lambda: time.sleep(measure.TURN)}
    assert measure.in_turn(calls, seconds=0)["a"].calls == measure.ROUNDS


def test_timings_are_medians_and_quartiles():
    timing = measure.Timing.of([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (timing.best, timing.low, timing.median, timing.high) == (1.0, 2.0, 3.0, 4.0)
    assert timing.calls == 5


def test_working_memory_counts_the_arena_and_the_result():
    engine = create(random_weights(zoo.build("zenith-taesd-nano")), device="cpu", threads=1)
    x = np.zeros((1, 64, 64, 3), np.uint8)
    result = engine.run("encoder", x)
    used = measure.working_memory(lambda: engine.run("encoder", x), engine)
    arena = engine.stats()["arena_bytes"]
    assert arena > 0
    assert arena + result.nbytes <= used <= arena + result.nbytes + 65536


def test_macs_are_those_of_the_layers_except_for_merged_taps_and_winograd_tiles():
    layers = (Conv(3, 8), Relu(), Upsample(), Conv(8, 64), ZenithBlock(64, 8), Conv(64, 64),
              ResBlock(64, pool=True), Conv(64, 64, 2), Upsample(), Conv(64, 64))  # fmt: skip
    own = [float(step.macs) for step in spec.trace(layers, 3)]
    macs = measure.executed_macs(layers, 3, winograd=True)
    assert macs[:3] == [own[0], 0, 0]
    assert macs[3:] == pytest.approx(
        [own[3] * 4 / 9, own[4], own[5] / 4, own[6] * (27 / 4 + 8) / (27 + 8), own[7], 0, own[9] * 4 / 9]
    )


def test_the_work_of_an_engine_without_winograd_is_that_of_its_layers():
    config = zoo.build("taesd")
    (own,) = {sum(step.macs for step in spec.trace(config.parts["encoder"], 3))}
    counted = {}
    for emulate in (True, "tiles"):
        engine = NativeEngine(random_weights(config), 1, "generic", dtype="bf16", emulate=emulate)
        model = SimpleNamespace(config=config, engine=engine)
        counted[emulate] = bench.macs(model, ["encoder"], 8, 8)
        stages = measure.stages(engine, "encoder", 8, 8, repeats=1)
        assert sum(stage.macs for stage in stages) == pytest.approx(counted[emulate])
    assert counted["tiles"] == pytest.approx(64 * own) and counted[True] < 0.5 * counted["tiles"]


@pytest.mark.parametrize("name", list(zoo.ARCHITECTURES))
def test_the_stages_of_a_model_do_all_its_work(name):
    config = zoo.build(name)
    engine = create(random_weights(config), device="cpu", threads=2)
    for part, layers in config.parts.items():
        found = measure.stages(engine, part, 64, 48, repeats=1)
        side = config.factor if part == "decoder" else 1
        macs = measure.executed_macs(layers, config.in_channels(part), engine.winograd)
        assert sum(stage.macs for stage in found) == pytest.approx(sum(macs) * (64 // side) * (48 // side))
        assert all(stage.ms >= 0 for stage in found)
        assert len({stage.label for stage in found}) == len(found)
