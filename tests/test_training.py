"""Promises of the trainer and the two recipes, on models that train in seconds."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

torch = pytest.importorskip("torch")

import zenith_ae  # noqa: E402
from zenith_ae.app.train import train as command  # noqa: E402
from zenith_ae.batches import orient  # noqa: E402
from zenith_ae.errors import (  # noqa: E402
    CheckpointError,
    ConfigError,
    ImageError,
    OutputError,
    WeightsError,
    ZenithError,
)
from zenith_ae.models import zoo  # noqa: E402
from zenith_ae.models.modules import Network, frozen_module  # noqa: E402
from zenith_ae.models.spec import (  # noqa: E402
    Clamp,
    Conv,
    Linear,
    ModelConfig,
    PixelShuffle,
    PixelUnshuffle,
    ResBlock,
    ZenithBlock,
    mac_count,
)
from zenith_ae.models.streams import in_streams  # noqa: E402
from zenith_ae.pipelines import Estimate  # noqa: E402
from zenith_ae.selftest import random_weights  # noqa: E402
from zenith_ae.training import (  # noqa: E402
    autoencode,
    degradations,
    distill,
    drawings,
    graft,
    restore,
    sorting,
    trainer,
)
from zenith_ae.training.critic import FROM, LIMIT, REST, WHOLE, Critic  # noqa: E402
from zenith_ae.training.data import ImagePool, middle  # noqa: E402
from zenith_ae.training.degradations import Mixture  # noqa: E402
from zenith_ae.training.distill import detail  # noqa: E402
from zenith_ae.training.muon import SCALE, Muon, orthogonalize  # noqa: E402
from zenith_ae.training.seam import (  # noqa: E402
    LATTICE_WEIGHT,
    PerceptualError,
    Seam,
    find_seam,
    lattice_error,
    seam_to_look,
    tone_error,
)
from zenith_ae.training.trainer import TrainConfig, Trainer, _optimizers, psnr  # noqa: E402
from zenith_ae.weights import load_weights, save_weights  # noqa: E402


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 smooth random pictures of 96 x 80."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for i in range(20):
        small = Image.fromarray(rng.integers(0, 256, (10, 12, 3), dtype=np.uint8))
        small.resize((96, 80), Image.Resampling.BICUBIC).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def denoiser() -> ModelConfig:
    return ModelConfig(
        "tiny",
        "denoiser",
        {
            "denoiser": (
                PixelUnshuffle(2),
                Linear(16, 16),
                ZenithBlock(16, 16, 4),
                Linear(16, 12),
                PixelShuffle(2),
            ),
            "estimator": (PixelUnshuffle(8), Linear(192, 8), Linear(8, 1)),
        },
    )


def steps(out: Path, count: int | None, **options: object) -> TrainConfig:
    fields = {"batch": 4, "crop": 32, "warmup": 5, "precision": "float32", "log_every": 1, "threads": 1}
    return TrainConfig(out=out, steps=count, **(fields | options))  # type: ignore[arg-type]


def log(out: Path, field: str) -> list[float]:
    records = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [r[field] for r in records if field in r]


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
    """What trains in here is stopped after that step."""
    loop = Trainer._loop
    with monkeypatch.context() as patch:
        patch.setattr(
            Trainer, "_loop", lambda self, batches, _: loop(self, batches, lambda: self.step >= step)
        )
        with pytest.raises(KeyboardInterrupt):
            yield


def in_two_processes(code: str, folder: Path) -> None:
    """Run code under torchrun, with ``folder`` and this module as ``t``; it must succeed.

    No thread of gloo is left at its end: one that frees a tensor while Python ends would abort it.
    """
    script = folder / "script.py"
    script.write_text(f"""
import pathlib, torch, test_training as t
from zenith_ae.training import trainer
folder = pathlib.Path({str(folder)!r})
{code}
tasks = pathlib.Path("/proc/self/task")  # of Linux
assert not [n for n in (f.read_text() for f in tasks.glob("*/comm")) if "gloo" in n]
""")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launch, script], env=environment, check=True)


def test_training_lowers_the_loss_and_exports_usable_weights(photos, denoiser, tmp_path) -> None:
    noise = Mixture(
        stored=0, camera=0, poisson_gaussian=0, salt_and_pepper=0, blur=0, sigma=(0.15, 0.2), varying=0
    )
    path = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path, 60, lr=1e-2), noise)
    losses = log(tmp_path, "l1")
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:5])
    weights = load_weights(path)
    assert weights.config == denoiser
    assert weights.metadata["steps"] == "60"


def test_minutes_are_those_of_the_clock(photos, denoiser, tmp_path) -> None:
    seconds = itertools.count()  # a clock by which each step takes a second
    config = steps(tmp_path, None, minutes=0.1, clock=lambda: float(next(seconds)))
    path = restore.train_restoration(denoiser, [str(photos)], config)
    assert load_weights(path).metadata["steps"] == load_weights(path).metadata["seconds"] == "6"


def test_psnr_loss_lowers_the_error_too(photos, denoiser, tmp_path) -> None:
    noise = Mixture(
        stored=0, camera=0, poisson_gaussian=0, salt_and_pepper=0, blur=0, sigma=(0.15, 0.2), varying=0
    )
    config = steps(tmp_path, 60, lr=1e-2)
    restore.train_restoration(denoiser, [str(photos)], config, noise, loss="psnr")
    errors, losses = log(tmp_path, "l1"), log(tmp_path, "loss")
    assert np.mean(errors[-10:]) < 0.8 * np.mean(errors[:5])
    assert np.mean(losses[-10:]) < np.mean(losses[:5]) - 0.005


def test_resumed_training_equals_uninterrupted_training(photos, denoiser, tmp_path, monkeypatch) -> None:
    whole = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "whole", 12))
    with interrupted(monkeypatch, 5):
        restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "parts", 12))
    assert log(tmp_path / "parts", "l1") == log(tmp_path / "whole", "l1")[:5]
    parts = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "parts", 12))
    assert log(tmp_path / "parts", "l1") == log(tmp_path / "whole", "l1")
    for name, tensor in load_weights(whole).tensors.items():
        np.testing.assert_array_equal(load_weights(parts).tensors[name], tensor)


def line_trainer(out: Path, **options: object) -> restore.Trainer:
    """Fits a plane to noisy points; ``export`` keeps the parameters."""

    def make_batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((4, 3), dtype=np.float32)
        return x, x @ np.float32([[1], [2], [3]]) + 0.1 * rng.standard_normal((4, 1), dtype=np.float32)

    def loss(model, batch, progress):
        x, y = map(torch.from_numpy, batch)
        value = (model(x) - y).square().mean()
        return value, {"points": float(len(x))}

    def export(state, metadata):
        torch.save(state, out / "state.pt")

    torch.manual_seed(0)
    config = steps(out, 6, batch=4, lr=0.1, clip=1e9, **options)
    return restore.Trainer(torch.nn.Linear(3, 1), make_batch, loss, config, export)


def test_who_asks_again_to_stop_still_gets_the_checkpoint(tmp_path, monkeypatch) -> None:
    trainer = line_trainer(tmp_path)
    save = trainer.save_checkpoint
    monkeypatch.setattr(trainer, "save_checkpoint", lambda: (os.kill(os.getpid(), signal.SIGINT), save()))
    trainer.run()
    assert line_trainer(tmp_path).load_checkpoint()


@pytest.mark.parametrize("last", [False, True])
def test_who_asks_to_stop_does_not_wait_for_an_evaluation(tmp_path, last) -> None:
    """They may take minutes; what they put in the place of the weights is put back."""
    trainer = line_trainer(tmp_path, evaluate_minutes=9.0 if last else 1e-9)
    seen = []

    def evaluate(model: torch.nn.Module) -> dict[str, float]:
        seen.append(trainer.step)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("goes on")

    trainer.evaluate = evaluate
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert seen[0] == (6 if last else 1) and len(seen) == 1
    assert trainer.model.training
    again = line_trainer(tmp_path)
    assert again.load_checkpoint() and again.step == (6 if last else 2)  # with the step in hand
    for mine, theirs in zip(again.model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_what_begins_anew_has_a_new_log(tmp_path) -> None:
    line_trainer(tmp_path).run()
    assert line_trainer(tmp_path).step == 0
    line_trainer(tmp_path).run()
    assert len(log(tmp_path, "loss")) == 6
    again = line_trainer(tmp_path)
    again.load_checkpoint()
    again.run()
    assert len(log(tmp_path, "loss")) == 6


def test_writing_and_evaluating_are_no_training_time(tmp_path, monkeypatch) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1
        return now[0]

    def slow(*_: object) -> dict[str, float]:
        now[0] += 100
        return {}

    trainer = line_trainer(tmp_path, clock=clock, checkpoint_minutes=0, evaluate_minutes=0)
    trainer.evaluate = slow
    monkeypatch.setattr(trainer, "save_checkpoint", slow)
    trainer.run()
    assert now[0] > 600
    assert trainer.seconds == 6


def test_evaluating_changes_nothing_and_looks_at_the_averages(tmp_path) -> None:
    plain, watched = line_trainer(tmp_path / "a"), line_trainer(tmp_path / "b", evaluate_minutes=0)
    seen = []
    watched.evaluate = lambda model: seen.append([p.clone() for p in model.parameters()]) or {}
    plain.run()
    watched.run()
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    for value, average in zip(seen[-1], watched.average, strict=True):
        torch.testing.assert_close(value, average, rtol=0, atol=0)
        assert not torch.equal(value, next(p for p in watched.model.parameters() if p.shape == value.shape))


def test_a_gradient_that_is_not_finite_is_no_step(tmp_path) -> None:
    trainer = line_trainer(tmp_path)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    bad = np.full((4, 3), np.inf, np.float32), np.zeros((4, 1), np.float32)
    trainer._loop(iter([bad] * 6), lambda: False)
    assert trainer.step == 6
    for value, now in zip(before, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(now, value, rtol=0, atol=0)


def test_a_record_begins_a_line_of_its_own_after_one_that_was_cut_off(tmp_path) -> None:
    trainer = line_trainer(tmp_path)
    trainer.log_path.write_text('{"step": 1}\n{"step": 2, "lo')
    for _ in range(2):
        trainer._log({"loss": 1.0})
    assert [json.loads(line).get("loss") for line in trainer.log_path.read_text().splitlines()[2:]] == [1, 1]


def test_several_processes_train_one_model(tmp_path) -> None:
    """Two processes of batches of 4 do what one does with both their batches."""
    in_two_processes("t.line_trainer(folder / 'two').run()", tmp_path)
    alone = line_trainer(tmp_path / "one")
    both = iter(
        [
            np.concatenate(parts)
            for parts in zip(
                *(alone.make_batch(np.random.default_rng((*alone.stream, rank, i))) for rank in (0, 1)),
                strict=True,
            )
        ]
        for i in range(6)
    )
    alone._loop(both, lambda: False)
    alone.save_checkpoint()
    one, two = (torch.load(tmp_path / name / "state.pt") for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(two[name], one[name])
    assert len(log(tmp_path / "two", "loss")) == 6  # the first process alone writes


def test_a_training_from_other_weights_sees_other_batches_and_its_continuation_does_not(tmp_path) -> None:
    def first(trainer: restore.Trainer) -> float:
        return float(trainer.make_batch(np.random.default_rng((*trainer.stream, 0)))[0][0, 0])

    one, same, other = (line_trainer(tmp_path) for _ in range(3))
    with torch.no_grad():
        next(other.model.parameters()).add_(1e-3)
    later = Trainer(other.model, other.make_batch, other.loss, other.config, other.export)
    assert first(one) == first(same) != first(later)
    one.save_checkpoint()
    assert later.load_checkpoint()
    assert first(later) == first(one)


def test_a_training_that_goes_on_otherwise_says_so(photos, bounded, tmp_path, capsys) -> None:
    autoencode.train_autoencoder(bounded, [str(photos)], steps(tmp_path, 1))
    capsys.readouterr()
    autoencode.train_autoencoder(bounded, [str(photos)], steps(tmp_path, 1))
    assert "otherwise" not in capsys.readouterr().err
    more = [str(photos), str(photos)]
    autoencode.train_autoencoder(bounded, more, steps(tmp_path, 2, lr=0.01, precision="auto"))
    said = f"data {photos} -> {photos}, {photos}; steps 1 -> 2; lr 0.002 -> 0.01; precision float32 -> auto"
    assert f"goes on otherwise than it began: {said}\n" in capsys.readouterr().err
    autoencode.train_autoencoder(
        bounded, more, steps(tmp_path, 2, lr=0.01, precision="auto"), detail_weight=0.5
    )
    assert "goes on otherwise than it began: detail_weight 0.1 -> 0.5\n" in capsys.readouterr().err


def test_a_checkpoint_that_does_not_fit_is_one_clear_line(photos, bounded, tmp_path) -> None:
    out = steps(tmp_path, 1)
    autoencode.train_autoencoder(bounded, [str(photos)], out)
    with pytest.raises(ConfigError, match=r"another version, model.*--fresh"):
        autoencode.train_autoencoder(wider(bounded), [str(photos)], out)
    with pytest.raises(ConfigError, match=r"its loss is l1, here it is psnr; use --fresh"):
        autoencode.train_autoencoder(bounded, [str(photos)], out, loss="psnr")
    (tmp_path / "checkpoint.pt").write_bytes(b"half a checkpoint")
    with pytest.raises(ConfigError, match=r"damaged; use --fresh"):
        autoencode.train_autoencoder(bounded, [str(photos)], out)
    torch.save(torch.zeros(3), tmp_path / "checkpoint.pt")
    with pytest.raises(ConfigError, match=r"is no checkpoint.*--fresh"):
        autoencode.train_autoencoder(bounded, [str(photos)], out)


def test_a_checkpoint_of_other_groups_of_parameters_is_one_clear_line(tmp_path) -> None:
    plain = line_trainer(tmp_path)
    given = plain.make_batch, plain.loss, plain.config, plain.export
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    Trainer(model, *given).save_checkpoint()
    with pytest.raises(ConfigError, match=r"another version, model or choice of parts.*--fresh"):
        Trainer(model, *given, settled=lambda name: name == "0.bias").load_checkpoint()


def test_a_checkpoint_of_another_model_is_told_by_what_is_not_trained_too(tmp_path, capsys) -> None:
    given = line_trainer(tmp_path)
    given = given.make_batch, given.loss, given.config, given.export

    def model(frozen: float, width: int = 3) -> torch.nn.Module:
        made = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(3, 1))
        made[0].requires_grad_(False)
        torch.nn.init.constant_(made[0].weight, frozen)
        torch.nn.init.zeros_(made[0].bias)
        return made

    Trainer(model(0.5), *given).save_checkpoint()
    with pytest.raises(ConfigError, match=r"another version, model or choice of parts.*--fresh"):
        Trainer(model(0.5, width=4), *given).load_checkpoint()
    for frozen, told in ((0.5, False), (0.25, True)):
        capsys.readouterr()
        later = Trainer(model(frozen), *given)
        assert later.load_checkpoint()
        assert ("what is not trained stays as it is in the checkpoint" in capsys.readouterr().err) == told
        assert float(later.model[0].weight[0, 0]) == 0.5


def test_a_critic_that_has_learned_by_itself_is_not_told_of(tmp_path, capsys) -> None:
    given = line_trainer(tmp_path)
    given = given.make_batch, given.loss, given.config, given.export

    def model(critic: Critic) -> torch.nn.ModuleDict:
        return torch.nn.ModuleDict({"decoder": torch.nn.Linear(3, 1), "critic": critic})

    Trainer(model(Critic()), *given).save_checkpoint()
    assert Trainer(model(Critic()), *given).load_checkpoint()
    assert "what is not trained" not in capsys.readouterr().err


def test_a_training_without_finite_gradients_says_so_and_ends(tmp_path) -> None:
    lost = iter([float("nan"), *[1.0] * 5, *[float("nan")] * trainer.PATIENCE])

    def loss(model, batch, progress):
        return model(torch.ones(1, 1)).sum() * next(lost), {}

    config = steps(tmp_path, 1000, log_every=2)
    learning = Trainer(torch.nn.Linear(1, 1), lambda rng: 0, loss, config, lambda state, metadata: None)
    with pytest.raises(ZenithError, match=r"step 105: the last 100 had no finite gradients.*--lr"):
        learning.run()
    assert log(tmp_path, "skipped")[:2] == [1, 2]
    assert not learning.checkpoint_path.exists()


def test_weights_that_no_file_holds_end_no_training(tmp_path, capsys) -> None:
    def export(state, metadata):
        if int(metadata["steps"]) < 3:
            raise WeightsError("too large")

    def loss(model, *_):
        return model(torch.ones(1, 1)).sum(), {}

    config = steps(tmp_path, 3, checkpoint_minutes=0)
    Trainer(torch.nn.Linear(1, 1), lambda rng: 0, loss, config, export).run()
    assert capsys.readouterr().err.count("too large; the training goes on") == 2


def test_a_training_in_another_thread_needs_no_signals(tmp_path) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(line_trainer(tmp_path).run).result()
    assert (tmp_path / "state.pt").exists()


def test_a_checkpoint_of_another_goal_is_not_continued(tmp_path) -> None:
    before, now = line_trainer(tmp_path), line_trainer(tmp_path)
    before.goal = {"teacher": "taef2"}
    before.save_checkpoint()
    with pytest.raises(ConfigError, match="its teacher is taef2, here it is none; use --fresh"):
        now.load_checkpoint()
    now.goal = {"teacher": "taef2", "elder": "me"}
    with pytest.raises(ConfigError, match="its elder is none, here it is me; use --fresh"):
        now.load_checkpoint()
    now.goal = before.goal
    assert now.load_checkpoint()


def test_a_file_that_holds_no_latents_is_one_clear_line(grown_teacher, photos, tmp_path) -> None:
    pool, weights, file = ImagePool([photos]), load_weights(grown_teacher), tmp_path / "z.npz"
    for damage in (lambda: file.write_bytes(b"garbage"), lambda: np.savez(file, other=np.zeros(3))):
        damage()
        with pytest.raises(ConfigError, match=r"z\.npz: holds no latents"):
            distill.teacher_latents(pool, weights, file, steps(tmp_path, 1))


def test_latents_are_not_computed_where_they_cannot_be_kept(
    grown_teacher, photos, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(distill, "teacher_engine", None)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file: cannot become a folder"):
        distill.teacher_latents(
            ImagePool([photos]), load_weights(grown_teacher), tmp_path / "file" / "z.npz", steps(tmp_path, 1)
        )


def test_a_logged_mean_is_that_of_the_steps_that_have_the_value(tmp_path) -> None:
    model = torch.nn.Linear(1, 1)
    given = iter([{}, {"late": 1.0}, {"late": float("nan")}, {"late": 3.0}])

    def loss(model, batch, progress):
        return model(torch.ones(1, 1)).sum(), next(given)

    config = steps(tmp_path, 4, log_every=4)
    Trainer(model, lambda rng: 0, loss, config, lambda state, metadata: None).run()
    assert log(tmp_path, "late") == [2.0]


def test_the_last_steps_are_logged_whatever_their_number(tmp_path) -> None:
    config = steps(tmp_path, 7, log_every=4)
    numbers = iter(range(7))

    def loss(model, batch, progress):
        return model(torch.ones(1, 1)).sum(), {"number": float(next(numbers))}

    Trainer(torch.nn.Linear(1, 1), lambda rng: 0, loss, config, lambda state, metadata: None).run()
    assert log(tmp_path, "number") == [1.5, 5.0]


def test_equal_pictures_have_100_decibels() -> None:
    assert psnr(torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 4, 4)) == pytest.approx(100)


def test_compiled_and_forked_training_is_the_same_training(photos, denoiser, tmp_path) -> None:
    plain = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "a", 3))
    config = steps(tmp_path / "b", 3, compile="eager", workers=2)
    other = restore.train_restoration(denoiser, [str(photos)], config)
    assert log(tmp_path / "a", "l1") == pytest.approx(log(tmp_path / "b", "l1"), rel=1e-4)
    for name, tensor in load_weights(plain).tensors.items():
        np.testing.assert_allclose(load_weights(other).tensors[name], tensor, atol=2e-3)


def test_one_part_can_be_trained_alone(photos, denoiser, tmp_path) -> None:
    first = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "a", 2))
    second = restore.train_restoration(
        denoiser, [str(photos)], steps(tmp_path / "b", 3), init=str(first), only="estimator"
    )
    before, after = load_weights(first).tensors, load_weights(second).tensors
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith("denoiser."), name


def test_an_expert_for_white_noise_is_added_to_a_trained_model(photos, denoiser, tmp_path) -> None:
    data = [str(photos)]
    first = restore.train_restoration(denoiser, data, steps(tmp_path / "a", 2))
    second = restore.train_restoration(
        denoiser, data, steps(tmp_path / "b", 30, lr=5e-3), init=str(first), only="white", loss="psnr"
    )
    before, after = load_weights(first), load_weights(second)
    assert set(after.config.parts) == {"denoiser", "white", "sorter", "estimator"}
    assert after.config.parts["white"] == denoiser.parts["denoiser"]
    for name, value in before.tensors.items():
        assert np.array_equal(after.tensors[name], value)
        if name.startswith("denoiser."):  # where the expert began
            assert not np.array_equal(after.tensors[name.replace("denoiser", "white")], value)
    picture = torch.rand(1, 4, 32, 32, generator=torch.Generator().manual_seed(0))
    moved = frozen_module(after, "white")(picture) - frozen_module(after, "denoiser")(picture)
    assert 0 < float(moved.abs().mean()) < 0.3
    model = zenith_ae.load(second)  # a sorter that has not learned chooses no expert
    assert model.experts(np.random.default_rng(0).random((9, 32, 32, 3), np.float32)) == ["denoiser"] * 9
    third = restore.train_restoration(
        denoiser, data, steps(tmp_path / "c", 2, evaluate_minutes=0), init=str(second), only="sorter"
    )
    lost, at_stake = (log(tmp_path / "c", f"untrained_{name}")[-1] for name in ("lost", "at_stake"))
    assert 0 <= lost <= at_stake <= sorting.MOST_AT_STAKE
    with pytest.raises(CheckpointError, match="its networks is"):  # it learned from what those made
        restore.train_restoration(denoiser, data, steps(tmp_path / "c", 4), init=str(third), only="sorter")
    assert not log(tmp_path / "c", "psnr")
    assert log(tmp_path / "b", "psnr") and not log(tmp_path / "b", "camera_gain")
    last = restore.train_restoration(denoiser, data, steps(tmp_path / "d", 2), init=str(third))
    for path, begun, trained in ((third, second, ("sorter",)), (last, third, ("denoiser", "estimator"))):
        start, end = load_weights(begun).tensors, load_weights(path).tensors
        for name in start:
            assert np.array_equal(start[name], end[name]) != name.startswith(trained), name


def test_named_denoisers_have_experts_of_their_own_and_what_is_trained_keeps_its(photos, tmp_path) -> None:
    full = zoo.build("zenith-denoise")
    fast, large = (zoo.build(f"zenith-denoise-{kind}") for kind in ("fast", "large"))
    experts = [zoo.with_expert(config).parts["white"] for config in (full, fast, large)]
    work = [mac_count(layers, 4, 64, 64) for layers in experts]
    assert work[1] < work[0] < work[2]
    for config, expert in zip((full, fast, large), experts, strict=True):
        assert (config.parts["denoiser"] == expert) is (config is not large)
        shipped, built = load_weights(config.name).config.parts, zoo.with_expert(config).parts
        if config is fast:  # whose expert was made larger afterwards
            ours, theirs = ([layer for layer, _ in itertools.groupby(x)] for x in (shipped["white"], expert))
            assert ours == theirs
            assert len(shipped["white"]) == len(expert) + 4
            built = built | {"white": shipped["white"]}
        assert shipped == built
    # One network's expert, of other layers than a new one would have, stays; another network gets its own.
    thin = zoo.denoising_unet((16, 16, 16), (0, 0, 1))
    config = replace(full, name="thin", parts={"denoiser": thin, "estimator": full.parts["estimator"]})
    first = restore.train_restoration(config, [str(photos)], steps(tmp_path / "a", 1))
    weights = load_weights(first)
    deep = zoo.with_expert(config, zoo.denoising_unet((16, 16, 16), (0, 1, 1)))
    tensors = {n: np.full(shape, 0.01, np.float32) for n, shape in deep.params().items()} | weights.tensors
    begun = str(tmp_path / "begun.safetensors")
    save_weights(begun, deep, tensors, weights.metadata)
    for only in ("white", "sorter", "denoiser", None):
        path = restore.train_restoration(
            config, [str(photos)], steps(tmp_path / f"{only}", 1), init=begun, only=only
        )
        assert load_weights(path).config.parts == deep.parts, only
    other = replace(config, parts={**config.parts, "denoiser": zoo.denoising_unet((16, 16, 16), (0, 0, 2))})
    path = restore.train_restoration(other, [str(photos)], steps(tmp_path / "o", 1), init=begun, only="white")
    assert load_weights(path).config.parts["white"] == other.parts["denoiser"]
    *_, scale, shift = load_weights(path).part("sorter").values()  # of other networks: it has to learn anew
    assert not scale.any() and not shift.any()
    kept = load_weights(tmp_path / "white/thin.safetensors").part("sorter").values()
    assert all((value == np.float16(0.01)).all() for value in kept)
    with pytest.raises(ConfigError, match="its networks are not those of thin"):
        restore.train_restoration(other, [str(photos)], steps(tmp_path / "s", 1), init=begun, only="sorter")


def test_an_expert_has_nothing_to_begin_from_without_a_trained_denoiser(photos, denoiser, tmp_path) -> None:
    blur = degradations.MIXTURES["blur"]
    soft = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "s", 1), blur)
    first = str(restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "f", 1)))
    for loss, message in (
        ("psnr", "--loss psnr is about denoising, not about --only sorter"),
        ("l1", "has no expert for white noise, so there is nothing to choose from"),
    ):
        with pytest.raises(ConfigError, match=message):
            restore.train_restoration(
                denoiser, [str(photos)], steps(tmp_path / "a", 1), only="sorter", init=first, loss=loss
            )
    for part, init in (("white", None), ("sorter", None), ("white", str(soft))):
        with pytest.raises(ConfigError, match=f"--only {part} adds to a denoiser that is trained"):
            restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "a", 1), only=part, init=init)


def test_an_expert_of_other_layers_or_for_another_task_is_left_out(
    photos, denoiser, tmp_path, capsys
) -> None:
    data = [str(photos)]
    first = restore.train_restoration(denoiser, data, steps(tmp_path / "a", 1))
    whole = str(
        restore.train_restoration(denoiser, data, steps(tmp_path / "b", 1), init=str(first), only="white")
    )
    layers = denoiser.parts["denoiser"]
    deeper = replace(denoiser, parts={**denoiser.parts, "denoiser": (*layers[:3], *layers[2:])})
    capsys.readouterr()
    blur = degradations.MIXTURES["blur"]
    for name, config, mixture, why in (("c", deeper, None, "it is another network's"),
                                       ("d", denoiser, blur, "the task is another one"),
                                       ("e", denoiser, None, "")):  # fmt: skip
        path = restore.train_restoration(config, data, steps(tmp_path / name, 1), mixture, init=whole)
        assert ("white" in load_weights(path).config.parts) == (not why)
        said = capsys.readouterr().err
        assert f"its expert for white noise is not taken: {why}\n" in said if why else "not taken" not in said


def test_the_expert_does_not_go_on_from_a_checkpoint_of_the_denoiser(photos, denoiser, tmp_path) -> None:
    data = [str(photos)]
    first = restore.train_restoration(denoiser, data, steps(tmp_path / "a", 1))
    whole = str(
        restore.train_restoration(denoiser, data, steps(tmp_path / "b", 1), init=str(first), only="white")
    )
    for part, other in (("denoiser", "white"), ("white", "denoiser")):
        out = tmp_path / part
        restore.train_restoration(denoiser, data, steps(out, 1), init=whole, only=part)
        with pytest.raises(ConfigError, match="its only is"):
            restore.train_restoration(denoiser, data, steps(out, 1), init=whole, only=other)


def test_each_part_learns_the_noise_that_is_its_own(photos, denoiser, tmp_path, monkeypatch) -> None:
    def noted(mixture: Mixture, *args: object, **options: object) -> restore.RestoreRecipe:
        seen.append(mixture)
        made.append(recipe(mixture, *args, **options))
        return made[-1]

    seen: list[Mixture] = []
    made: list[restore.RestoreRecipe] = []
    recipe = restore.RestoreRecipe
    data = [str(photos)]
    first = str(restore.train_restoration(denoiser, data, steps(tmp_path / "a", 1)))
    whole = str(restore.train_restoration(denoiser, data, steps(tmp_path / "b", 1), init=first, only="white"))
    monkeypatch.setattr(restore, "RestoreRecipe", noted)
    trainings = [(None, first), ("denoiser", first), (None, whole), ("estimator", whole),
                 ("denoiser", whole), ("white", whole), ("sorter", whole)]  # fmt: skip
    for i, (only, init) in enumerate(trainings):
        restore.train_restoration(denoiser, data, steps(tmp_path / f"{i}", 1), init=init, only=only)
    wanted = ("noise", "noise", "noise", "estimator", "other", "white", "sorter")
    assert seen == [degradations.MIXTURES[name] for name in wanted]
    # An estimator that has learned and stays as it is, is believed from the start.
    assert [one.guessing for one in made] == [0.2, 0, 0.2, 0.2, 0, 0, 0]
    own = Mixture(grey=0.5)
    restore.train_restoration(denoiser, data, steps(tmp_path / "own", 1), own, init=whole, only="denoiser")
    assert seen[-1] is own


def test_levels_are_told_or_estimated(photos, tmp_path) -> None:
    class Told(torch.nn.Module):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            planes.append(given[:, 3].mean(dim=(1, 2)))
            return self.scale * given[:, :3]

        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.zeros(()))

    class Level(torch.nn.Module):
        def forward(self, degraded: torch.Tensor) -> torch.Tensor:
            return torch.ones(len(degraded), 1, 1, 1)

    planes: list[torch.Tensor] = []
    model = torch.nn.ModuleDict({"denoiser": Told(), "estimator": Level()})
    recipe = restore.RestoreRecipe(Mixture(), ImagePool([str(photos)]), steps(tmp_path, 1))
    pictures, sigma = np.zeros((4, 8, 8, 3), np.float32), np.full((4, 8, 8), 0.5, np.float32)
    own = np.array([False, True, True, True])
    factor, quantile = np.float32([0.5, 1, 0.5, 2]), np.full(4, 0.5, np.float32)
    batch = restore.Lessons(pictures, pictures, sigma, own, factor, own, quantile, pictures)
    unit = 25 / 255
    recipe.loss(model, batch, 0.1)
    recipe.loss(model, batch, 0.9)
    assert planes[0].tolist() == pytest.approx([0.25, 0.5, 0.25, 1])  # estimates are no good yet
    assert planes[1].tolist() == pytest.approx([0.25, unit, unit, unit])


def test_outcomes_are_the_decibels_that_the_expert_gains(tmp_path, monkeypatch) -> None:
    """Here the denoiser takes away a quarter of the level that it is told, the expert half of it."""
    config = zoo.with_expert(
        ModelConfig("tiny", "denoiser", {"denoiser": (PixelUnshuffle(2), Linear(16, 12), PixelShuffle(2))}, 0)
    )
    taken = {part: np.zeros((12, 16), np.float32) for part in ("denoiser", "white")}
    for part, share in (("denoiser", 0.25), ("white", 0.5)):
        for k in range(12):
            taken[part][k, 12 + k % 4] = -share
    tensors = {name: np.zeros(shape, np.float32) for name, shape in config.params().items()}
    tensors |= {f"{part}.1.weight": weight for part, weight in taken.items()}
    save_weights(tmp_path / "tiny.safetensors", config, tensors, {"task": "noise"})
    model = zenith_ae.load(tmp_path / "tiny.safetensors", dtype="float32")
    levels = np.array([0.2, 0.04, 0.0, 0.2, 0.04], np.float32)

    class Brighter:  # each crop is 0.2 too bright all over
        config = steps(tmp_path, 1, batch=5, crop=8)

        def lessons(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
            target = np.full((5, 8, 8, 3), rng.uniform(0.3, 0.6), np.float32)
            level = np.broadcast_to(levels[:, None, None], (5, 8, 8))
            return target + np.float32(0.2), target, level, np.array([True, False, True, False, False])

    found = sorting.outcomes(model, Brighter(), 8, (0,))
    assert found.crops.dtype == np.float16 and found.crops.shape == (8, 8, 8, 3)
    values = found.crops[:, 0, 0, 0].astype(float)
    assert np.ptp(values[:5]) == np.ptp(values[5:]) == 0 and values[0] != values[5]
    assert sorting.outcomes(model, Brighter(), 8, (1,)).crops[0, 0, 0, 0] != values[0]
    # Told 0.2, the expert leaves 0.1 of it and the denoiser 0.15, which is 3.5 dB more; told 0.04, 0.18 and
    # 0.19; told nothing, both leave all.
    small = 10 * np.log10((0.19**2 + sorting.LEAST_ERROR) / (0.18**2 + sorting.LEAST_ERROR))
    most = sorting.MOST_AT_STAKE
    assert found.gain.tolist() == pytest.approx([most, small, 0, most, small, most, small, 0], abs=1e-3)
    # With an estimator the first and the third crop are told what it says: 0.04, here.
    estimator = PixelUnshuffle(8), Linear(192, 1)
    model.config = replace(model.config, parts={**model.config.parts, "estimator": estimator})
    monkeypatch.setattr(
        model, "estimate", lambda pixels, _: Estimate(np.full(pixels.shape[:3], 10.2, np.float32), [])
    )
    found = sorting.outcomes(model, Brighter(), 5, (0,))
    assert found.gain.tolist() == pytest.approx([small, small, small, most, small], abs=1e-3)


def test_a_wrong_choice_of_the_sorter_counts_the_decibels_that_it_costs(tmp_path) -> None:
    class Odds(torch.nn.Module):
        def forward(self, degraded: torch.Tensor) -> torch.Tensor:
            return torch.tensor([2.0, -1.0, 0.5])[:, None, None, None].expand(-1, 1, 2, 2)

    model = torch.nn.ModuleDict({"sorter": Odds()})
    recipe = sorting.SorterRecipe(steps(tmp_path, 1, batch=3))
    crops, gain = np.zeros((3, 8, 8, 3), np.float16), np.array([3.0, 0.5, 0.0], np.float32)
    loss, logs = recipe.loss(model, (crops, gain), 0.5)
    wrong = [np.log1p(np.exp(-2.0)), np.log1p(np.exp(1.0))]
    assert float(loss) == pytest.approx((3 * wrong[0] + 0.5 * wrong[1]) / 3, rel=1e-4)
    assert logs == pytest.approx({"lost": 0.5 / 3, "at_stake": 3.5 / 3}, rel=1e-4)
    recipe.untrained = sorting.Outcomes(crops, gain)
    assert recipe.evaluate(model) == {f"untrained_{name}": value for name, value in logs.items()}


def test_a_sorters_batches_are_turned_crops_of_its_table(tmp_path) -> None:
    recipe = sorting.SorterRecipe(steps(tmp_path, 1, batch=64))
    rng = np.random.default_rng(0)
    crops = rng.random((3, 8, 8, 3)).astype(np.float16)
    recipe.table = sorting.Outcomes(crops, np.arange(3, dtype=np.float32))
    turned, gain = recipe.make_batch(rng)
    assert turned.shape == (64, 8, 8, 3) and set(gain) == {0, 1, 2}
    ways = set()
    for crop, number in zip(turned, gain, strict=True):
        same = [w for w in range(8) if np.array_equal(orient(crops[int(number)], w), crop)]
        assert len(same) == 1
        ways |= set(same)
    assert ways == set(range(8))


@pytest.mark.parametrize(
    ("length", "size"),
    [
        ({"steps": 5}, 20),
        ({"minutes": 0.5}, 2000),
        ({"minutes": 600}, 20_000),
        ({"minutes": 600, "crop": 256}, 5000),
        ({"steps": 9, "crop": 8000}, 5),
    ],
)
def test_a_longer_training_of_a_sorter_learns_from_more_crops(tmp_path, length, size) -> None:
    assert sorting.table_size(TrainConfig(tmp_path, batch=4, **length)) == size


def test_the_sorter_learns_which_network_makes_the_better_picture(photos, tmp_path) -> None:
    """Here nothing, or the mean of 2x2 pixels: the better, the louder the noise."""
    layers = (PixelUnshuffle(2), Linear(16, 12, bias=False), PixelShuffle(2))
    config = zoo.with_expert(ModelConfig("tiny", "denoiser", {"denoiser": layers}, 0))
    mean = np.kron(np.eye(3), np.full((4, 4), 0.25)) - np.eye(12)  # as a residual
    own = {"denoiser.1.weight": np.zeros((12, 16)), "white.1.weight": np.hstack([mean, np.zeros((12, 4))])}
    tensors = random_weights(config).tensors | {name: w.astype(np.float32) for name, w in own.items()}
    save_weights(tmp_path / "tiny.safetensors", config, tensors, {"task": "noise"})
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    mixture = Mixture(**silent | {"gaussian": 1.0}, sigma=(0.0, 0.3), clipped=0, varying=0)
    path = restore.train_restoration(
        replace(config, parts={"denoiser": layers}), [str(photos)],
        steps(tmp_path / "b", 300, batch=16, crop=64, lr=1e-2), mixture,
        init=str(tmp_path / "tiny.safetensors"), only="sorter",
    )  # fmt: skip
    lost, at_stake = (log(tmp_path / "b", name) for name in ("lost", "at_stake"))
    assert np.mean(lost[-20:]) < 0.07 * np.mean(at_stake)
    with Image.open(photos / "0.png") as image:
        picture = np.asarray(image.convert("RGB"), np.float32) / 255
    noisy = degradations.gaussian(picture[None], np.random.default_rng(0), 0.3)[0][0]
    assert zenith_ae.load(path, dtype="float32").experts(np.stack([noisy, picture])) == ["white", "denoiser"]


def test_an_elder_teaches_all_levels_but_those_of_loud_white_noise_and_drawings(
    photos, denoiser, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(degradations, "flat_area", lambda picture, rng: np.zeros(picture.shape[:2], bool))
    first = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "a", 2))
    before = load_weights(first).tensors
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    cases = (("camera", 0.1, 0, "noise", False), ("gaussian", 0.02, 0, "noise", False),
             ("gaussian", 0.04, 0, "noise", True), ("gaussian", 0.04, 0, "drawn", False),
             ("camera", 0.1, 12, "noise", True), ("camera", 0.1, 12, "drawn", True),
             ("stored", 0.1, 0, "noise", True), ("stored", 0.1, 0, "drawn", False))  # fmt: skip
    for kind, sigma, drawn, anew, taught in cases:
        mixture = Mixture(**silent | {kind: 1.0}, sigma=(sigma, sigma), varying=0)
        path = restore.train_restoration(
            denoiser, [str(photos)], steps(tmp_path / f"{kind}{sigma}{drawn}{anew}", 3, drawn=drawn), mixture,
            init=str(first), only="estimator", elder=str(first), anew=anew,
        )  # fmt: skip
        same = all(
            np.array_equal(before[name], tensor) for name, tensor in load_weights(path).tensors.items()
        )
        assert same != taught
        assert load_weights(path).metadata["task"] == "noise"
    blind = zoo.build("conv-baseline")
    with pytest.raises(WeightsError, match="conv-baseline: has no estimator"):
        restore.train_restoration(blind, [str(photos)], steps(tmp_path / "c", 1), elder=str(first))
    with pytest.raises(ConfigError, match="conv-baseline has no estimator"):
        restore.train_restoration(blind, [str(photos)], steps(tmp_path / "c", 1), quantile=0.6)


def test_a_halftone_is_drawn_though_no_colours_of_it_are_plain(photos, tmp_path) -> None:
    pool = ImagePool([photos], drawn=len(drawings.KINDS))
    last = len(pool.photographs()) + drawings.KINDS.index(drawings.halftone)
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    mixture = Mixture(**silent | {"gaussian": 1.0}, sigma=(0.1, 0.1), varying=0, clean=0.5, clean_jpeg=1)
    for chosen, taught in ((last, True), (0, False)):
        own = pool._subset([chosen])
        assert not degradations.is_drawn(own[0])
        recipe = restore.RestoreRecipe(
            mixture, own, steps(tmp_path, 1, batch=60), elder=torch.nn.Identity(), anew="drawn", untouched=0
        )
        batch = recipe.lessons(np.random.default_rng(0))
        assert (batch.anew == taught).all()
        still = (batch.sigma == 0).all(axis=(1, 2)).mean()
        assert 0.2 < still < 0.8 if taught else still == 0


def test_grain_is_learned_anew_beside_an_elder(photos, tmp_path) -> None:
    pool, silent = ImagePool([photos]), dict.fromkeys(Mixture.KINDS, 0.0)
    for kind, taught in (("grain", True), ("gaussian", False)):
        mixture = Mixture(**silent | {kind: 1.0}, sigma=(0.1, 0.1), varying=0)
        recipe = restore.RestoreRecipe(
            mixture, pool, steps(tmp_path, 1, batch=8), elder=torch.nn.Identity(), anew="drawn", untouched=0
        )
        assert (recipe.lessons(np.random.default_rng(0)).anew == taught).all()


def test_a_quantile_above_the_median_makes_estimates_of_camera_noise_higher(
    photos, denoiser, tmp_path
) -> None:
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    picture = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    first = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "first", 1))
    for kind, moved in (("camera", True), ("salt_and_pepper", False)):
        estimates = []
        for quantile in (0.2, 0.8):
            path = restore.train_restoration(
                denoiser, [str(photos)], steps(tmp_path / f"{kind}{quantile}", 60),
                Mixture(**silent | {kind: 1.0}), init=str(first), only="estimator", quantile=quantile,
            )  # fmt: skip
            weights = load_weights(path)
            estimates.append(float(frozen_module(weights, "estimator")(picture).mean()))
        low, high = estimates
        assert (high > 1.1 * low) if moved else (high == low)


def test_with_an_elder_some_photographs_stay_as_they_are_and_it_knows_their_level(photos, tmp_path) -> None:
    pool, config = ImagePool([photos]), steps(tmp_path, 1, batch=200)
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    for elder, share in ((None, 0.0), (torch.nn.Identity(), 0.1)):
        recipe = restore.RestoreRecipe(
            Mixture(**silent | {"camera": 1.0}), pool, config, elder=elder, quantile=0.7, framed=0
        )
        degraded, target, sigma, _, _, anew, quantile, _ = recipe.lessons(np.random.default_rng(0))
        untouched = (degraded == target).all(axis=(1, 2, 3))
        assert untouched.mean() == pytest.approx(share, abs=0.05)
        assert not anew[untouched].any() and anew[~untouched].all()
        assert not sigma[untouched].any() and sigma[~untouched].all()
        assert (quantile[~untouched] == np.float32(0.7)).all() and (quantile[untouched] == 0.5).all()


def test_a_cleaner_takes_the_noise_of_photographs_and_leaves_out_drawn_ones(tmp_path) -> None:
    rng = np.random.default_rng(0)
    smooth = np.linspace(60, 180, 96 * 96).reshape(96, 96, 1).repeat(3, axis=2)
    noisy = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(tmp_path / "a.png")
    pool = ImagePool([tmp_path, tmp_path], drawn=2)
    cleaned, again = restore.cleaned(pool, "zenith-denoise-fast").images
    assert cleaned is again  # what is given twice is cleaned once
    assert cleaned.dtype == np.uint8
    assert np.std(cleaned - smooth) < 0.4 * np.std(noisy - smooth)
    assert np.array_equal(pool.images[0], noisy)
    with pytest.raises(WeightsError, match="zenith-taef2-nano: is no denoiser with an estimator"):
        restore.cleaned(pool, "zenith-taef2-nano")


def dark_and_bright(folder: Path, dark: int, bright: int, spread: int) -> list[ImagePool]:
    """Two pools of a rough picture each, which tell by their means which one a crop is of."""
    for level in (dark, bright):
        (folder / str(level)).mkdir()
        rough = np.random.default_rng(0).integers(level - spread, level + spread, (40, 40, 3), np.uint8)
        Image.fromarray(rough).save(folder / str(level) / "a.png")
    return [ImagePool([folder / str(level)]) for level in (dark, bright)]


def test_most_batches_beside_a_cleaner_are_of_cleaned_photographs_and_few_others_stay(tmp_path) -> None:
    own, clean = dark_and_bright(tmp_path, 90, 160, 40)
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    recipe = restore.RestoreRecipe(
        Mixture(**silent | {"gaussian": 1.0}, sigma=(0.1, 0.1), clean=0), own, steps(tmp_path, 1, batch=50),
        framed=0, cleaned=clean, kept=0.2,
    )  # fmt: skip
    shares: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(60):
        degraded, target, sigma, estimated, *_ = recipe.lessons(np.random.default_rng(seed))
        still = (degraded == target).all(axis=(1, 2, 3))
        assert not sigma[still].any()
        from_cleaned = target.mean() > 0.5
        if not from_cleaned:  # those that stay are told what is estimated
            assert estimated[still].all() and np.isin(sigma[~still], np.float32(0.1)).all()
        shares[from_cleaned].append(still.mean())
    assert len(shares[True]) / 60 == pytest.approx(0.7, abs=0.15)
    assert np.mean(shares[False]) == pytest.approx(0.2, abs=0.05)
    assert np.mean(shares[True]) < 0.02


def test_some_batches_beside_a_cleaner_are_of_drawn_pictures_alone(photos, tmp_path, monkeypatch) -> None:
    pool = ImagePool([photos], drawn=len(drawings.KINDS))
    assert pool.drawings().names == [name for name in pool.names if name.startswith(drawings.PREFIX)]
    recipe = restore.RestoreRecipe(
        degradations.MIXTURES["other"], pool.photographs(), steps(tmp_path, 1, crop=32, batch=1),
        cleaned=pool.photographs(), drawings=pool.drawings(),
    )  # fmt: skip
    picked = []
    pick = ImagePool.pick

    def note(self: ImagePool, *arguments) -> np.ndarray:
        picked.append(self)
        return pick(self, *arguments)

    monkeypatch.setattr(ImagePool, "pick", note)
    mixtures = set()
    sample = Mixture.sample

    def watch(self: Mixture, *arguments):
        mixtures.add((picked[-1] is recipe.drawings, self))
        return sample(self, *arguments)

    monkeypatch.setattr(Mixture, "sample", watch)
    for seed in range(200):
        recipe.make_batch(np.random.default_rng(seed))
    assert np.mean([one is recipe.drawings for one in picked]) == pytest.approx(0.15, abs=0.07)
    assert mixtures == {
        (name == "drawn", degradations.MIXTURES[name]) for name in ("drawn", "cleaned", "other")
    }


def test_a_denoiser_beside_a_cleaner_is_given_the_drawn_pictures_that_are_asked_for(
    photos, tmp_path, monkeypatch
) -> None:
    seen = []
    lessons = restore.RestoreRecipe.lessons
    monkeypatch.setattr(restore, "cleaned", lambda pool, *_: pool.photographs())
    monkeypatch.setattr(
        restore.RestoreRecipe, "lessons", lambda self, rng: seen.append(self.drawings) or lessons(self, rng)
    )
    for drawn in (0, 3):
        restore.train_restoration(
            load_weights("zenith-denoise-fast").config, [str(photos)],
            steps(tmp_path / str(drawn), 1, drawn=drawn), init="zenith-denoise-fast", only="denoiser",
            cleaner="zenith-denoise-fast",
        )  # fmt: skip
        assert [len(pool or ()) for pool in seen][-1] == 15 * drawn / 3
    assert seen[0] is None


def test_an_estimator_with_an_elder_learns_the_levels_of_cleaned_and_edited_photographs(
    tmp_path, monkeypatch
) -> None:
    own, clean = dark_and_bright(tmp_path, 60, 180, 20)
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    mixture = Mixture(**silent | {"camera": 1.0})
    recipe = restore.RestoreRecipe(
        mixture, own, steps(tmp_path, 1, batch=40), elder=torch.nn.Identity(), anew="drawn", quantile=0.7,
        framed=0, cleaned=clean,
    )  # fmt: skip
    edits, others = [], []
    monkeypatch.setattr(restore, "edited", lambda picture, rng: edits.append(picture.mean()) or picture)
    shares = []
    for seed in range(60):
        edits.clear()
        degraded, target, sigma, _, _, anew, quantile, _ = recipe.make_batch(np.random.default_rng(seed))
        still = ~sigma.any(axis=(1, 2))
        if not edits:  # the photographs themselves, of which the elder knows the level
            assert target.mean() < 0.4 and not anew.any() and (quantile == 0.5).all()
            others.append(still.mean())
            continue
        assert target.mean() > 0.5 and np.mean(edits) > 128 and 28 <= len(edits) <= 40
        assert anew.all() and (np.float32(0.7) in quantile)
        same = (degraded == target).all(axis=(1, 2, 3))
        shares.append((still.mean(), (still & same).mean()))
    assert len(shares) / 60 == pytest.approx(0.4, abs=0.2)
    assert np.mean(others) == pytest.approx(0.4, abs=0.05)
    assert np.mean(shares, axis=0) == pytest.approx([0.4, 0.2], abs=0.05)


def test_training_beside_a_cleaner_says_so_in_its_goal(photos, denoiser, tmp_path) -> None:
    first = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "a", 2))
    out = tmp_path / "b"
    restore.train_restoration(
        denoiser, [str(photos)], steps(out, 2), init=str(first), only="denoiser", cleaner=str(first)
    )
    with pytest.raises(ConfigError, match="its cleaner is"):
        restore.train_restoration(
            denoiser, [str(photos)], steps(out, 3), init=str(first), only="denoiser", loss="l1"
        )


def test_plain_parts_hide_noise_but_not_its_level(photos, tmp_path) -> None:
    pool, config = ImagePool([photos]), steps(tmp_path, 1, batch=200)
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    mixture = Mixture(**silent | {"gaussian": 1.0}, sigma=(0.1, 0.1), varying=0)
    recipe = restore.RestoreRecipe(mixture, pool, config, framed=0.5, elder=torch.nn.Identity(), untouched=0)
    degraded, target, sigma, *_, whole = recipe.lessons(np.random.default_rng(0))
    plain = (degraded != whole).any(axis=3)
    assert plain.any(axis=(1, 2)).mean() == pytest.approx(0.5, abs=0.1)
    assert np.array_equal(degraded[plain], target[plain])
    for picture, there in zip(degraded, plain, strict=True):
        assert len(np.unique(picture[there], axis=0)) <= 1
    np.testing.assert_allclose(sigma, 0.1)


def test_levels_are_told_too_low_for_cameras_alone_and_too_high_for_any(photos, tmp_path) -> None:
    pool, config = ImagePool([photos]), steps(tmp_path, 1, batch=200)
    silent = dict.fromkeys(Mixture.KINDS, 0.0)
    for kind, low, high in (("camera", 0.75, 0.01), ("gaussian", 0.0, 0.04)):
        recipe = restore.RestoreRecipe(Mixture(**silent | {kind: 1.0}), pool, config)
        factor = recipe.lessons(np.random.default_rng(0)).factor
        assert (factor < 1).mean() == pytest.approx(low, abs=0.08)
        assert (factor > 1).mean() == pytest.approx(high, abs=0.03)
        assert factor.min() >= 0.5 and factor.max() <= 2.5


def test_crops_in_corners_come_as_often_as_asked() -> None:
    rng = np.random.default_rng(0)
    for share, least, most in ((0.0, 0.02, 0.12), (0.5, 0.45, 0.6), (1.0, 1.0, 1.0)):
        squares = [distill.place_crop(rng, (40, 60), 8, 2, share)[0] for _ in range(400)]
        corners = np.mean([r.start in (0, 32) and c.start in (0, 52) for r, c in squares])
        assert least <= corners <= most
    seen = {
        (r.start, c.start) for r, c in (distill.place_crop(rng, (40, 60), 8, 2, 1.0)[0] for _ in range(99))
    }
    assert seen == {(0, 0), (0, 52), (32, 0), (32, 52)}


def train_graft(*arguments, init=None, features=None, **options) -> Path:
    """`graft.train_graft` with these of its options."""
    learned = graft.GraftOptions(**options)
    return graft.train_graft(*arguments, init=init, options=learned, features=features)


def test_pictures_that_are_whole_crops_come_more_often(photos, tmp_path) -> None:
    sizes = [(12, 12), (24, 24), (12, 48)]
    recipe = graft.GraftRecipe(
        ImagePool([photos])._subset([0, 1, 2]), SimpleNamespace(sizes=sizes), Seam("decoder", 1, 4, 1),
        steps(tmp_path, 1, crop=48),
    )  # fmt: skip
    assert recipe._share.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_interrupted_training_keeps_its_work_and_says_so(photos, denoiser, tmp_path, monkeypatch) -> None:
    loop = restore.Trainer._loop

    def interrupt_at_five(self, batches, stopped):
        def ask() -> bool:
            if self.step == 5:
                signal.raise_signal(signal.SIGINT)
            return stopped()

        loop(self, batches, ask)

    monkeypatch.setattr(restore.Trainer, "_loop", interrupt_at_five)
    with pytest.raises(KeyboardInterrupt):
        restore.train_restoration(denoiser, [str(photos)], steps(tmp_path, 12))
    assert load_weights(tmp_path / "tiny.safetensors").metadata["steps"] == "5"


def test_a_full_disk_does_not_end_a_training(photos, denoiser, tmp_path, monkeypatch, capsys) -> None:
    seconds, refused = itertools.count(), []
    save = Trainer.save_checkpoint

    def full_at_first(self: Trainer) -> None:
        if len(refused) < 2:
            refused.append(self.step)
            raise OutputError(f"{self.checkpoint_path}: cannot write: No space left on device")
        save(self)

    monkeypatch.setattr(Trainer, "save_checkpoint", full_at_first)
    config = steps(tmp_path, 8, checkpoint_minutes=1.5 / 60, clock=lambda: float(next(seconds)))
    restore.train_restoration(denoiser, [str(photos)], config)
    assert refused == [2, 4]
    assert load_weights(tmp_path / "tiny.safetensors").metadata["steps"] == "8"
    assert capsys.readouterr().err.count("No space left on device; the training goes on") == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_log_on_a_full_disk_does_not_end_a_training(photos, tmp_path) -> None:
    command = [sys.executable, "-m", "zenith_ae", "train", "denoise", "--data", str(photos), "--steps", "2",
               "--batch", "1", "--crop", "32", "--model", "zenith-denoise-fast", "--threads", "1",
               "-o", str(tmp_path)]  # fmt: skip
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stderr=full, check=False)
    assert done.returncode == 0
    assert load_weights(tmp_path / "zenith-denoise-fast.safetensors").metadata["steps"] == "2"


def test_a_folder_that_cannot_be_made_is_told(photos, denoiser, tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file/out: cannot become a folder: Not a directory"):
        restore.train_restoration(denoiser, [str(photos)], steps(tmp_path / "file" / "out", 2))


def test_a_log_that_cannot_be_written_is_told_before_the_first_step(photos, denoiser, tmp_path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(OutputError, match=r"log\.jsonl: cannot write: Is a directory"):
        restore.train_restoration(denoiser, [str(photos)], steps(tmp_path, 2))
    assert not (tmp_path / "tiny.safetensors").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_log_that_grows_no_more_does_not_end_a_training(photos, denoiser, tmp_path, capsys) -> None:
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    path = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path, 2))
    assert load_weights(path).metadata["steps"] == "2"
    assert "log.jsonl: cannot write: No space left on device; the training goes on" in capsys.readouterr().err


def test_schedule_by_minutes_ends_and_decays(photos, denoiser, tmp_path) -> None:
    seconds = itertools.count()
    config = steps(tmp_path, None, minutes=0.5, warmup=1, clock=lambda: float(next(seconds)))
    restore.train_restoration(
        denoiser, [str(photos)], config, Mixture(stored=0, camera=0, poisson_gaussian=0)
    )
    rates = log(tmp_path, "lr")
    assert len(rates) > 20 and rates[-1] < 0.2 * max(rates)
    assert rates == sorted(rates, reverse=True)


def test_steps_or_minutes_but_not_both(tmp_path) -> None:
    for options in ({}, {"steps": 3, "minutes": 1.0}):
        with pytest.raises(ValueError, match="steps or minutes"):
            TrainConfig(out=tmp_path, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "fp16"},
        {"ema": 1.5},
        {"steps": 0},
        {"crop": 12},
        {"crop": 0},
        {"batch": 0},
        {"lr": float("nan")},
        {"threads": 0},
        {"log_every": 0},
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(tmp_path, options) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        TrainConfig(tmp_path, **{"steps": 3} | options)
    assert TrainConfig(str(tmp_path), steps=3).out == tmp_path


def test_estimate_becomes_a_map_of_the_picture_size() -> None:
    estimate = torch.full((1, 1, 2, 3), 2.0)
    sigma = restore.upsample_sigma(estimate, (13, 20))
    assert sigma.shape == (1, 1, 13, 20)
    assert torch.allclose(sigma, torch.tensor(50 / 255))


@pytest.fixture
def teacher(tmp_path) -> Path:
    """A small autoencoder with 4 latent channels and random weights, playing the teacher."""
    config = ModelConfig(
        "teacher",
        "autoencoder",
        {"encoder": (PixelUnshuffle(8), Linear(192, 4)), "decoder": (Linear(4, 192), PixelShuffle(8))},
        4,
    )
    rng = np.random.default_rng(3)
    tensors = {k: rng.standard_normal(s).astype(np.float32) * 0.1 for k, s in config.params().items()}
    save_weights(tmp_path / "teacher.safetensors", config, tensors, {})
    return tmp_path / "teacher.safetensors"


def test_teacher_latents_are_those_of_whole_pictures_and_are_kept(
    photos, teacher, tmp_path, monkeypatch
) -> None:
    pool, weights, config = ImagePool([photos]), load_weights(teacher), steps(tmp_path, 1)
    latents = distill.teacher_latents(pool, weights, tmp_path / "z.npz", config)
    x = torch.tensor(pool.images[3]).permute(2, 0, 1)[None].float() / 255
    wanted = distill.teacher_part(weights, "encoder")(x)[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(latents[3], wanted, atol=2e-3)
    monkeypatch.setattr(distill, "create", None)  # a second encoding would fail now
    again = distill.teacher_latents(pool, weights, tmp_path / "z.npz", config)
    assert all(np.array_equal(a, b) for a, b in zip(latents, again, strict=True))


def test_crops_of_pictures_and_latents_show_the_same_place(photos, teacher, tmp_path) -> None:
    pool, config = ImagePool([photos]), steps(tmp_path, 1)
    latents = distill.teacher_latents(pool, load_weights(teacher), tmp_path / "z.npz", config)
    recipe = distill.DistillRecipe(pool, latents, config)
    pictures, z, noise, _ = recipe.make_batch(np.random.default_rng(1))
    encoder = distill.teacher_part(load_weights(teacher), "encoder")
    x = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    # This teacher looks at single 8x8 blocks, so a crop's latents are exactly the picture's.
    np.testing.assert_allclose(encoder(x).permute(0, 2, 3, 1).numpy(), z, atol=2e-3)
    assert noise.shape == z.shape


@pytest.fixture
def seeing_teacher(tmp_path) -> Path:
    """A teacher whose latents depend on the blocks around, and on where a picture ends."""
    config = ModelConfig(
        "seeing",
        "autoencoder",
        {
            "encoder": (PixelUnshuffle(8), Linear(192, 8), Conv(8, 4)),
            "decoder": (Linear(4, 192), PixelShuffle(8)),
        },
        4,
    )
    torch.manual_seed(0)
    path = tmp_path / "seeing.safetensors"
    restore.save_model(path, config, restore.build_modules(config).state_dict(), {})
    return path


@pytest.mark.parametrize("taught", [0.5, 0.25])
def test_a_students_loss_is_the_weighted_sum_of_what_it_logs(taught, photos, teacher, tmp_path) -> None:
    pool, config, weights = ImagePool([photos]), steps(tmp_path, 1, batch=4), load_weights(teacher)
    latents = distill.teacher_latents(pool, weights, tmp_path / "z.npz", config)
    torch.manual_seed(1)
    student = restore.build_modules(weights.config)
    options = distill.DistillOptions(
        latent_weight=0.7, teacher_weight=1.3, detail_weight=0.4, imitation_weight=0.6, taught=taught
    )
    recipe = distill.DistillRecipe(pool, latents, config, distill.teacher_part(weights, "decoder"), options)
    batch = recipe.make_batch(np.random.default_rng(0))
    shares = {"pair": 2 * (1 - taught), "decoder": 2 * taught, "imitation": 0.6, "detail": 0.4,
              "teacher": 1.3, "latent": 0.7}  # fmt: skip
    for part, logged in (
        (None, list(shares)),
        ("encoder", ["pair", "teacher", "latent"]),
        ("decoder", ["pair", "decoder", "imitation", "detail"]),
    ):
        for name, network in student.items():
            network.requires_grad_(part in (None, name))
        loss, logs = recipe.loss(student, batch, 0.5)
        assert list(logs) == logged and min(logs.values()) > 0
        assert float(loss.detach()) == pytest.approx(
            sum(shares[name] * logs[name] for name in logs), rel=1e-5
        )
    x, z, noise, _ = (torch.from_numpy(a).permute(0, 3, 1, 2) for a in batch)
    x, count = x / 255, round(4 * taught)
    with torch.no_grad():
        own = student["encoder"](x)
        out = student["decoder"](torch.cat([(z + noise)[:count], own[count:]]))
        answer = recipe.teacher((z + noise)[:count])
    assert logs == pytest.approx(
        {
            "pair": float((out - x)[count:].abs().mean()),
            "decoder": float((out - x)[:count].abs().mean()),
            "imitation": float((out[:count] - answer).abs().mean()),
            "detail": float(distill.lost_detail(out, x)),
        },
        rel=1e-4,
    )


@pytest.mark.parametrize("kind", ["l1", "psnr"])
def test_an_autoencoders_loss_is_the_weighted_sum_of_what_it_logs(kind, photos, tmp_path) -> None:
    torch.manual_seed(0)
    pair = {"encoder": (PixelUnshuffle(8), Linear(192, 4), Clamp(3.0)),
            "decoder": (Linear(4, 192), PixelShuffle(8))}  # fmt: skip
    model = restore.build_modules(ModelConfig("own", "autoencoder", pair, 4))
    recipe = autoencode.AutoencodeRecipe(
        ImagePool([photos]), steps(tmp_path, 1, batch=4), 4, 3.0, kind, detail_weight=0.4, moment_weight=0.2
    )
    batch = recipe.make_batch(np.random.default_rng(0))
    loss, logs = recipe.loss(model, batch, 0.5)
    assert list(logs) == ["l1", "detail", "lattice", "moments"] and min(logs.values()) > 0
    x, noise = (torch.from_numpy(a).permute(0, 3, 1, 2) for a in batch)
    with torch.no_grad():
        z = model["encoder"](x / 255)
        error = model["decoder"](z + (noise - 0.5) * 6 / 255) - x / 255
    assert logs["l1"] == pytest.approx(float(error.abs().mean()), rel=1e-4)
    moments = z.mean(dim=(0, 2, 3)) ** 2 + (z.var(dim=(0, 2, 3)) - 1) ** 2
    assert logs["moments"] == pytest.approx(float(moments.mean()), rel=1e-4)
    main = logs["l1"] if kind == "l1" else float(restore.log_error(error))
    others = 0.4 * logs["detail"] + LATTICE_WEIGHT * logs["lattice"] + 0.2 * logs["moments"]
    assert float(loss.detach()) == pytest.approx(main + others, rel=1e-4)


def test_latents_are_learned_where_a_crop_shows_what_they_depend_on(photos, seeing_teacher, tmp_path) -> None:
    pool, config, weights = ImagePool([photos]), steps(tmp_path, 1, batch=512), load_weights(seeing_teacher)
    latents = distill.teacher_latents(pool, weights, tmp_path / "z.npz", config)
    recipe = distill.DistillRecipe(pool, latents, config)
    pictures, z, _, known = recipe.make_batch(np.random.default_rng(1))
    encoder = distill.teacher_part(weights, "encoder")
    found = encoder(torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255).permute(0, 2, 3, 1).numpy()
    wrong = np.abs(found - z).max(-1, keepdims=True) > 2e-3
    assert not (wrong & (known == 1)).any()
    assert (wrong & (known == 0)).mean() > 0.5 * (known == 0).mean()
    # Borders of pictures are there more often than by chance: of 9 x 7 places a corner is one.
    corners = known[:, [0, 0, -1, -1], [0, -1, 0, -1]].mean()
    assert corners > 2 / 63


@pytest.fixture
def grown_teacher(tmp_path) -> Path:
    """A teacher with outer and inner layers on either side of a seam at 1/4, which look around."""
    config = ModelConfig(
        "grown",
        "autoencoder",
        {
            "encoder": (PixelUnshuffle(4), Conv(48, 8), Conv(8, 8), PixelUnshuffle(2), Conv(32, 4)),
            "decoder": (Conv(4, 32), PixelShuffle(2), Conv(8, 8), Conv(8, 48), PixelShuffle(4)),
        },
        4,
    )
    torch.manual_seed(0)
    path = tmp_path / "grown.safetensors"
    restore.save_model(path, config, restore.build_modules(config).state_dict(), {})
    return path


@pytest.fixture
def hybrid(grown_teacher) -> ModelConfig:
    """The inner layers of that teacher, and layers of its own."""
    parts = load_weights(grown_teacher).config.parts
    return ModelConfig(
        "hybrid",
        "autoencoder",
        {
            "encoder": (
                PixelUnshuffle(2),
                Conv(12, 16),
                PixelUnshuffle(2),
                Conv(64, 8),
                *parts["encoder"][2:],
            ),
            "decoder": (*parts["decoder"][:3], Conv(8, 64), PixelShuffle(2), Conv(16, 12), PixelShuffle(2)),
        },
        4,
    )


@pytest.fixture
def fresh(hybrid, tmp_path) -> Path:
    """The hybrid with random weights."""
    torch.manual_seed(1)
    path = tmp_path / "fresh.safetensors"
    restore.save_model(path, hybrid, restore.build_modules(hybrid).state_dict(), {})
    return path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_features_that_a_disk_does_not_take_are_told(tmp_path) -> None:
    folder = tmp_path / "features" / "unfinished" / "whole"
    folder.mkdir(parents=True)
    (folder / "features.npy").symlink_to("/dev/full")
    pool = SimpleNamespace(images=[np.zeros((16, 24, 3), np.uint8)])
    pairs = [(np.zeros((4, 6, 8), np.float32), None)]
    with pytest.raises(OutputError, match=r"features: cannot write the teacher.*No space left.*--features"):
        graft._keep(pool, Seam("encoder", 1, 4, 1), pairs, folder)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_new_layers_of_a_hybrid_learn_beside_their_teachers(
    photos, grown_teacher, hybrid, fresh, part, tmp_path
) -> None:
    path = train_graft(
        hybrid, str(grown_teacher), [str(photos)], steps(tmp_path / "out", 150, lr=5e-3, crop=48), part,
        init=str(fresh), imitation=1.0, detail_weight=0, perceptual_weight=0, tone_weight=0,
    )  # fmt: skip
    learned = log(tmp_path / "out", {"encoder": "features", "decoder": "imitation"}[part])
    assert np.mean(learned[-10:]) < 0.6 * np.mean(learned[:5])
    before, after, theirs = (load_weights(p).tensors for p in (fresh, path, grown_teacher))
    kept = {
        "encoder": {"encoder.4": "encoder.2", "encoder.6": "encoder.4"},
        "decoder": {"decoder.0": "decoder.0", "decoder.2": "decoder.2"},
    }[part]
    for name, value in after.items():
        layer, _, kind = name.rpartition(".")
        if layer in kept:
            np.testing.assert_array_equal(value, theirs[f"{kept[layer]}.{kind}"])
        else:
            assert np.array_equal(value, before[name]) != name.startswith(part), name
    assert load_weights(path).config == hybrid


def test_all_layers_of_a_hybrids_decoder_can_learn_on_whole_pictures(
    photos, grown_teacher, hybrid, fresh, tmp_path, monkeypatch
) -> None:
    def run(name: str, length: int, init: Path, part: str = "decoder", all_layers: bool = True) -> Path:
        return train_graft(
            hybrid, str(grown_teacher), [str(photos)], steps(tmp_path / name, length, crop=48), part,
            init=str(init), all_layers=all_layers,
        )  # fmt: skip

    begun = run("a", 1, fresh, all_layers=False)
    with pytest.raises(ConfigError, match="has not learned beside the layers of grown yet"):
        run("z", 1, fresh)
    path = run("b", 20, begun)
    groups: list[set[str]] = []
    monkeypatch.setattr(
        trainer,
        "_optimizers",
        lambda named, _, settled: groups.append({n for n in named if settled(n)}) or [],
    )
    run("y", 1, begun)
    assert groups == [{"decoder.0.weight", "decoder.0.bias", "decoder.2.weight", "decoder.2.bias"}]
    for part in ("encoder", "decoder"):  # what learns beside its teacher's layers is new
        run(f"x{part}", 1, begun, part, all_layers=False)
    assert groups[1:] == [set(), set()]
    monkeypatch.undo()
    before, after = (load_weights(p).tensors for p in (begun, path))
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith("encoder."), name
    with pytest.raises(ConfigError, match="those that it shared with grown would be reset"):
        run("c", 1, path, all_layers=False)
    again = run("d", 1, path, "encoder", all_layers=False)
    assert load_weights(again).metadata["decoder_layers"] == "fitted"
    with pytest.raises(ConfigError, match="--all-layers is for --part decoder"):
        run("c", 1, path, "encoder")


def test_an_encoder_can_learn_beside_its_decoder_in_all_layers(
    photos, grown_teacher, hybrid, fresh, tmp_path, monkeypatch
) -> None:
    def run(name: str, length: int, init: Path, part: str = "decoder", **options: object) -> Path:
        return train_graft(
            hybrid, str(grown_teacher), [str(photos)], steps(tmp_path / name, length, crop=48, lr=1e-2), part,
            init=str(init), **options,
        )  # fmt: skip

    begun = run("a", 1, fresh)
    path = run("b", 20, begun, all_layers=True, latent_weight=0.3)
    before, after = load_weights(begun).tensors, load_weights(path).tensors
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    errors = log(tmp_path / "b", "latent")
    assert len(errors) == 20
    assert np.mean(errors[-5:]) < errors[0]
    assert log(tmp_path / "b", "psnr")
    kept = {"encoder_layers": "fitted", "decoder_layers": "fitted"}
    assert kept.items() <= load_weights(path).metadata.items()
    groups: list[set[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            trainer,
            "_optimizers",
            lambda named, _, settled: groups.append({n for n in named if settled(n)}) or [],
        )
        run("y", 1, begun, all_layers=True, latent_weight=0.3)
    mine, theirs = (load_weights(file).tensors for file in (begun, grown_teacher))
    shared = {n for n in mine if n.startswith("decoder.") and n in groups[0]}
    assert shared == {n for n in shared if np.array_equal(mine[n], theirs[n])}
    assert {n.split(".")[0] for n in groups[0]} == {"encoder", "decoder"}
    assert kept.items() <= load_weights(run("c", 1, path, all_layers=True)).metadata.items()
    for options, words in (
        ({"part": "encoder"}, "all layers of its encoder have learned"),
        ({"latent_weight": 0.3}, "--latent-weight is for --all-layers"),
        ({"latent_weight": 0.3, "all_layers": True, "taught": 0.5}, "--taught is for an encoder that stays"),
    ):
        with pytest.raises(ConfigError, match=words):
            run("d", 1, path, **options)


def test_batches_of_whole_pictures_are_of_one_size_and_about_as_large(photos, tmp_path) -> None:
    pool = ImagePool([photos])
    sizes = [(10, 12)] * 15 + [(4, 4)] * 5
    pool.images[15:] = [picture[:32, :32] for picture in pool.images[15:]]
    pool.images.append(np.zeros((800, 800, 3), np.uint8))  # far more than a batch: never drawn
    pool.names.append("large")
    pool.indices.append(20)
    sizes.append((100, 100))
    features = _Features(sizes)
    recipe = graft.GraftRecipe(
        pool,
        features,
        Seam("decoder", 0, 8, 0),
        steps(tmp_path, 1, batch=12),  # type: ignore[arg-type]
    )
    seen = set()
    for seed in range(20):
        pictures, latents, answers, counts = recipe.make_batch(np.random.default_rng(seed))
        shape = pictures.shape[1:3]
        seen.add(len(pictures) * (shape == (32, 32)))
        assert shape in ((80, 96), (32, 32))
        assert len(pictures) == {80: round(12 * 1024 / 7680), 32: 5}[shape[0]]
        assert len(np.unique(answers[:, 0, 0, 0])) == len(pictures)  # none twice
        assert answers.shape == pictures.shape and latents.shape[1:3] == tuple(n // 8 for n in shape)
        for picture, answer in zip(pictures, answers, strict=True):
            assert np.array_equal(picture, pool.images[answer[0, 0, 0]])
        assert counts.min() == 1 and counts[:, 0, 0].min() == graft.BORDER_WEIGHT**2
    assert seen == {0, 5}
    with pytest.raises(ConfigError, match="all pictures have more than 2 times the pixels of 1 crops"):
        graft.GraftRecipe(pool._subset([20]), features, Seam("decoder", 0, 8, 0), steps(tmp_path, 1, batch=1))  # type: ignore[arg-type]


class _Features:
    """Of pictures of these sizes; answers say of which."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.sizes = sizes

    def __getitem__(self, i: int) -> np.ndarray:
        return np.zeros((*self.sizes[i], 4), np.float32)

    def answer(self, i: int) -> np.ndarray:
        return np.full((*(8 * n for n in self.sizes[i]), 3), i, np.uint8)


@pytest.mark.parametrize("kind", ["perceptual", "cycle"])
def test_a_decoder_learns_what_the_encoder_sees(kind, photos, grown_teacher, hybrid, fresh, tmp_path) -> None:
    ends = []
    for weight in (1e-9, 1.0):
        out = tmp_path / f"out{weight}"
        weights = {"perceptual_weight": 0.0, "cycle_weight": 0.0, f"{kind}_weight": weight}
        train_graft(
            hybrid, str(grown_teacher), [str(photos)], steps(out, 150, lr=5e-3, crop=48), "decoder",
            init=str(fresh), imitation=1.0, detail_weight=0, tone_weight=0, **weights,
        )  # fmt: skip
        ends.append(log(out, kind)[-1])  # of whole validation pictures
    assert ends[1] < 0.8 * ends[0]


def test_another_hybrids_encoder_looks(photos, grown_teacher, hybrid, fresh, tmp_path) -> None:
    torch.manual_seed(3)
    eye = tmp_path / "eye.safetensors"
    restore.save_model(eye, hybrid, restore.build_modules(hybrid).state_dict(), {})

    def first(name: str, **chosen: str) -> float:
        train_graft(
            hybrid, str(grown_teacher), [str(photos)], steps(tmp_path / name, 1, crop=48), "decoder",
            cycle_weight=1.0, **chosen,
        )  # fmt: skip
        return log(tmp_path / name, "perceptual")[0]

    own = first("own", init=str(fresh))
    assert first("same", init=str(fresh), eye=str(fresh)) == pytest.approx(own, rel=1e-3)
    assert first("other", init=str(fresh), eye=str(eye)) != pytest.approx(own, rel=0.02)
    assert first("teacher", init=str(fresh), eye=str(grown_teacher)) != pytest.approx(own, rel=0.02)


def test_perceptual_error_is_of_the_features_that_see_what_counts(photos, grown_teacher, hybrid) -> None:
    torch.manual_seed(2)
    place = find_seam(hybrid, load_weights(grown_teacher).config, "encoder")
    encoder = restore.build_modules(hybrid)["encoder"].requires_grad_(False)
    look = PerceptualError(encoder, place, ImagePool([photos]).images, 1.0)

    def error(*shown: torch.Tensor) -> torch.Tensor:
        return look(*shown)["perceptual"]

    x = torch.rand(2, 3, 48, 48)
    everywhere = torch.ones(2, 1, 48, 48)
    assert float(error(x, x, everywhere)) == 0
    out = torch.rand(2, 3, 48, 48, requires_grad=True)
    wanted = ((place.outer(encoder, out) - place.outer(encoder, x)).abs() / look.spread).mean().detach()
    whole = error(out, x, everywhere).detach()
    torch.testing.assert_close(whole, wanted)
    assert 0.1 < whole < 10  # in units of what features differ by

    counts = everywhere.clone()
    counts[:, :, :20] = 0
    part = error(out, x, counts)
    part.backward()
    reached = out.grad.abs().sum((0, 1, 3)) > 0
    assert not reached[:20].any() and reached[20:].all()
    # What sees nothing that counts is left out of the mean, so the half is as wrong as the whole.
    assert 0.6 * whole < part.detach() < 1.1 * whole
    assert error(out, x, torch.zeros_like(counts)).detach() == 0


def test_perceptual_error_is_of_the_latents_too(photos, grown_teacher, hybrid) -> None:
    torch.manual_seed(2)
    place = find_seam(hybrid, load_weights(grown_teacher).config, "encoder")
    encoder = restore.build_modules(hybrid)["encoder"].requires_grad_(False)
    error = PerceptualError(encoder, place, ImagePool([photos]).images, 0.0, 1.0)
    x, out = torch.rand(2, 2, 3, 48, 48)
    everywhere = torch.ones(2, 1, 48, 48)
    assert float(error(x, x, everywhere)["cycle"]) == 0
    out.requires_grad_()
    whole = error(out, x, everywhere)["cycle"]
    wanted = ((encoder(out) - encoder(x)).abs() / error.latent_spread).mean().detach()
    torch.testing.assert_close(whole.detach(), wanted)
    whole.backward()
    assert (out.grad.abs().sum((0, 1)) > 0).all()

    counts = everywhere.clone()
    counts[:, :, :24] = 0
    assert 0.7 * wanted < error(out, x, counts)["cycle"].detach() < 1.3 * wanted
    assert error(out, x, torch.zeros_like(counts))["cycle"].detach() == 0


def a_judgement(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noise as an original, a softened copy as a decoder's, and what counts: all but a border."""
    x = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(4, 1, 64, 64)
    counts[..., 8:, 8:] = 1
    return torch.nn.functional.avg_pool2d(x, 3, 1, 1), x, counts


def two_judgements(seed: int) -> tuple[torch.Tensor, ...]:
    return tuple(map(torch.cat, zip(a_judgement(2 * seed), a_judgement(2 * seed + 1), strict=True)))


def test_a_critic_learns_to_tell_and_a_decoder_to_deceive() -> None:
    torch.manual_seed(0)
    critic = Critic()
    chance = float(np.log(2))
    assert float(critic.learn(*a_judgement(0))) == pytest.approx(chance, abs=0.02)
    mistakes = [float(critic.learn(*a_judgement(i))) for i in range(1, 60)]
    assert max(mistakes[-10:]) < REST < chance
    before = [p.clone() for p in critic.parameters()]
    critic.learn(*a_judgement(60))  # which it tells apart already
    assert all(map(torch.equal, before, critic.parameters()))

    out, x, counts = a_judgement(100)
    out.requires_grad_()
    learned = [p.grad.clone() for p in critic.parameters()]
    loss = critic.recognised(out, x, counts)
    loss.backward()
    assert all(map(torch.equal, learned, [p.grad for p in critic.parameters()]))  # it learns by `learn` alone
    reached = out.grad.abs().sum((0, 1)) > 0
    assert not reached[:8].any() and not reached[:, :8].any() and reached[8:, 8:].float().mean() > 0.9
    with torch.no_grad():
        downhill = out - 0.05 * out.grad / out.grad.abs().max()
        assert critic.recognised(downhill, x, counts) < loss
        assert critic.recognised(x, x, counts) == pytest.approx(chance)
        assert critic.recognised(out, x, torch.zeros_like(counts)) == 0  # nothing counts


def test_a_critic_survives_a_step_that_is_not_finite() -> None:
    critic = Critic()
    out, x, counts = a_judgement(0)
    before = [p.clone() for p in critic.parameters()]
    broken = out.clone()
    broken[0, 0, 20, 20] = float("inf")
    critic.learn(broken, x, counts)
    assert all(map(torch.equal, before, critic.parameters()))
    assert torch.isfinite(critic.learn(out, x, counts))


@pytest.mark.parametrize("limit", [LIMIT, 4.0])
def test_a_critics_pull_is_limited(limit) -> None:
    torch.manual_seed(0)
    critic = Critic(limit)
    for i in range(20):
        critic.learn(*a_judgement(i))
    out, x, counts = a_judgement(100)
    out.requires_grad_()
    recognised = critic.recognised(out, x, counts)
    (gradient,) = torch.autograd.grad(recognised, out)
    mean_error = ((out - x).abs() * counts).sum() / (3 * counts.sum())
    unit = torch.autograd.grad(mean_error, out)[0].norm()

    def judged(weight: float, progress: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, dict]:
        advice, logs = critic.judge(out, x, counts, progress, weight)
        return advice, torch.autograd.grad(advice, out)[0], logs

    little = 0.1 * float(unit / gradient.norm())
    advice, weak, logs = judged(little)
    torch.testing.assert_close(advice, little * recognised)
    torch.testing.assert_close(weak, little * gradient)
    assert logs["pull"] == pytest.approx(0.1, rel=1e-3)
    assert judged(little, (FROM + WHOLE) / 2)[2]["pull"] == pytest.approx(0.05, rel=1e-3)
    _, strong, logs = judged(100 * little)
    assert logs["pull"] == pytest.approx(10, rel=1e-3)  # before the limit
    torch.testing.assert_close(strong, gradient * limit * unit / gradient.norm())
    assert critic.judge(out, x, counts, FROM, 1.0)[0] == 0


def test_critics_of_several_processes_stay_one(tmp_path) -> None:
    """Both learn from the mean of their gradients, which is that of both batches together."""
    learn = "[critic.learn(*(b[r] for b in t.two_judgements(i))) for i in range(3)]"
    code = f"""
trainer.join_processes(torch.device("cpu"))
r = slice(4 * torch.distributed.get_rank(), 4 * torch.distributed.get_rank() + 4)
torch.manual_seed(0)
critic = t.Critic()
{learn}
torch.save(critic.state_dict(), folder / f"{{r.start}}.pt")
trainer.leave_processes()
"""
    in_two_processes(code, tmp_path)
    torch.manual_seed(0)
    critic = Critic()
    for i in range(3):
        critic.learn(*two_judgements(i))
    first, second = (torch.load(tmp_path / name) for name in ("0.pt", "4.pt"))
    for name, p in critic.named_parameters():
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=0)
        torch.testing.assert_close(first[name], p.detach(), rtol=1e-3, atol=1e-5)


def test_a_critic_takes_part_in_a_decoders_training_and_in_its_checkpoints(
    photos, grown_teacher, hybrid, fresh, tmp_path, monkeypatch
) -> None:
    def train(out: str, weight: float = 0.1, limit: float = LIMIT, **options: object) -> Path:
        return train_graft(
            hybrid, str(grown_teacher), [str(photos)],
            steps(tmp_path / out, 12, crop=48, lr=1e-2, **options), "decoder", init=str(fresh),
            detail_weight=0, perceptual_weight=0, critic_weight=weight, critic_limit=limit,
        )  # fmt: skip

    whole = train("whole")
    assert load_weights(whole).config == hybrid  # the critic stays behind
    with interrupted(monkeypatch, 5):
        train("parts")
    parts = train("parts")
    for field in ("critic", "recognised", "picture"):
        assert log(tmp_path / "parts", field) == log(tmp_path / "whole", field), field
    assert len(log(tmp_path / "whole", "critic")) == 12
    assert len(log(tmp_path / "whole", "recognised")) == 11  # not before it has learned something
    compiled = log(train("compiled", compile="eager").parent, "critic")
    assert compiled == pytest.approx(log(tmp_path / "whole", "critic"), rel=1e-3)
    without = train("without", 0.0)
    named = load_weights(whole).tensors
    for name, tensor in load_weights(parts).tensors.items():
        np.testing.assert_array_equal(named[name], tensor)
    for other in (without, train("limited", limit=1e-3)):
        tensors = load_weights(other).tensors
        assert any((named[name] != tensor).any() for name, tensor in tensors.items())
    with pytest.raises(ConfigError, match=r"another version, model.*--fresh"):
        train("without")


def test_lattice_error_is_of_what_every_cell_has() -> None:
    torch.manual_seed(0)
    noise = 0.02 * torch.randn(2, 3, 128, 128)
    dots = 0.02 * torch.randn(1, 3, 4, 4).tile(1, 1, 32, 32)
    dots -= dots.mean((2, 3), keepdim=True)
    assert lattice_error(dots) == pytest.approx(float(dots.abs().mean()), rel=1e-5)
    assert lattice_error(noise) < 0.15 * noise.abs().mean()  # a mean of 64
    assert lattice_error(noise + 0.3) < 0.15 * noise.abs().mean()  # brightness is no lattice
    assert lattice_error(noise + dots) > 0.8 * lattice_error(dots)
    half = dots.clone()
    half[..., :64] = 0
    assert lattice_error(half) > 0.4 * lattice_error(dots)
    assert lattice_error(dots[..., :24, :24]) > 0  # fewer cells than a window


def test_tone_error_is_of_surfaces_and_not_of_detail() -> None:
    torch.manual_seed(0)
    detail = 0.1 * torch.randn(1, 1, 64, 64).repeat_interleave(2, 0)
    detail[..., 1::2] = -detail[..., ::2]  # pairs that cancel
    assert tone_error(detail) < 1e-6
    colour = torch.tensor([0.02, -0.01, 0.0])[:, None, None].expand(2, 3, 64, 64)
    assert tone_error(colour) == pytest.approx(2 * 0.01, rel=1e-5)  # at both sizes
    spots = torch.full((1, 1, 64, 64), 0.02)
    spots[..., 8:] = 0
    assert tone_error(spots, [8]) == pytest.approx(1.5 / 15 * 0.02, rel=1e-5)
    assert tone_error(colour[..., :5, :24], [32]) == pytest.approx(0.01, rel=1e-5)  # less than a cell


def test_a_decoder_minds_the_colour_of_surfaces(photos, grown_teacher, hybrid, fresh, tmp_path) -> None:
    ends = []
    for weight in (0.0, 3.0):
        out = tmp_path / f"out{weight}"
        train_graft(
            hybrid, str(grown_teacher), [str(photos)], steps(out, 150, lr=5e-3, crop=48), "decoder",
            init=str(fresh), imitation=1.0, detail_weight=0, perceptual_weight=0, tone_weight=weight,
        )  # fmt: skip
        ends.append(np.mean(log(out, "tone")[-20:]))
    assert ends[1] < 0.9 * ends[0]


def test_a_decoder_learns_from_either_encoders_latents(
    photos, grown_teacher, hybrid, fresh, tmp_path
) -> None:
    pool, config = ImagePool([photos]), steps(tmp_path, 1)
    weights = load_weights(grown_teacher)
    theirs = distill.teacher_latents(pool, weights, tmp_path / "z.npz", config)
    model = restore.build_modules(hybrid)
    restore.load_into(model, fresh)
    with torch.no_grad():
        own = [
            model["encoder"](torch.from_numpy(p[None].copy()).permute(0, 3, 1, 2) / 255)[0]
            .permute(1, 2, 0)
            .numpy()
            for p in pool.images
        ]
    for taught, wanted in ((1.0, theirs), (0.0, own)):
        lessons = graft._decoders_lessons(pool, theirs, model, taught, config)
        noise = np.array(
            [np.abs(a - b.astype(np.float32)).max() for a, b in zip(lessons, wanted, strict=True)]
        )
        assert 5 <= (noise < 5e-3).sum() <= 15  # of 20, about half of which have noise
        assert noise.max() < 6 * graft.NOISE
    mixed = graft._decoders_lessons(pool, theirs, model, 0.5, config)
    near = [
        np.abs(a - b.astype(np.float32)).mean() < np.abs(a - c).mean()
        for a, b, c in zip(mixed, theirs, own, strict=True)
    ]
    assert 5 <= sum(near) <= 15


def test_lessons_depend_on_the_encoder_and_not_on_the_decoder(
    photos, grown_teacher, hybrid, fresh, tmp_path
) -> None:
    """A further phase of a decoder's training finds the features of the one before."""

    def features_after(init: Path, out: str) -> int:
        train_graft(
            hybrid, str(grown_teacher), [str(photos)], steps(tmp_path / out, 1, crop=48), "decoder",
            init=str(init), perceptual_weight=0, taught=0.5, features=tmp_path / "features",
        )  # fmt: skip
        return len(list((tmp_path / "features").iterdir()))

    assert features_after(fresh, "first") == 1
    assert features_after(tmp_path / "first" / "hybrid.safetensors", "second") == 1
    tensors = dict(load_weights(fresh).tensors)
    tensors["encoder.1.bias"] = tensors["encoder.1.bias"] + 1
    save_weights(tmp_path / "other.safetensors", hybrid, tensors)
    assert features_after(tmp_path / "other.safetensors", "third") == 2


def save_decoder(path: Path, folder: Path) -> Path:
    """The decoder of a weights file, alone in a file."""
    weights = load_weights(path)
    parts = {"decoder": weights.config.parts["decoder"]}
    config = ModelConfig("decoder", "autoencoder", parts, weights.config.latent_channels)
    tensors = {name: t for name, t in weights.tensors.items() if name.startswith("decoder")}
    save_weights(folder / "decoder.safetensors", config, tensors, {})
    return folder / "decoder.safetensors"


def test_what_cannot_be_grafted_is_refused(
    photos, grown_teacher, seeing_teacher, hybrid, fresh, tmp_path
) -> None:
    data, config = [str(photos)], steps(tmp_path / "out", 1, crop=48)
    with pytest.raises(ConfigError, match="after its encoder"):
        train_graft(hybrid, str(grown_teacher), data, config, "decoder")
    for name, value in (("critic_weight", 0.001), ("cycle_weight", 0.1), ("eye", str(fresh))):
        with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} .*for --part decoder"):
            train_graft(hybrid, str(grown_teacher), data, config, "encoder", **{name: value})
    with pytest.raises(ConfigError, match="--eye has nothing to judge"):
        train_graft(
            hybrid, str(grown_teacher), data, config, "decoder", init=str(fresh), eye=str(fresh),
            perceptual_weight=0.0,
        )  # fmt: skip
    with pytest.raises(ConfigError, match="crops of 40 pixels"):
        train_graft(hybrid, str(grown_teacher), data, steps(tmp_path / "out", 1), "encoder")
    for more in ({}, {"eye": str(fresh)}, {"perceptual_weight": 0.0, "taught": 0.5}):
        with pytest.raises(ConfigError, match=r"has no encoder of a .*after which its decoder is trained"):
            train_graft(hybrid, str(grown_teacher), data, config, "decoder", init=str(grown_teacher), **more)
    for eye in (seeing_teacher, save_decoder(fresh, tmp_path)):
        with pytest.raises(ConfigError, match=r"has no encoder of a hybrid of grown.*--eye"):
            train_graft(hybrid, str(grown_teacher), data, config, "decoder", init=str(fresh), eye=str(eye))
    with pytest.raises(ImageError, match="as large as a crop"):
        train_graft(hybrid, str(grown_teacher), data, steps(tmp_path / "out", 1, crop=88), "encoder")
    with pytest.raises(ImageError, match="as large as a crop"):
        large = steps(tmp_path / "out", 1, crop=88)
        train_graft(hybrid, str(grown_teacher), data, large, "decoder", init=str(fresh))
    half = load_weights(grown_teacher)
    only = ModelConfig("half", "autoencoder", {"encoder": half.config.parts["encoder"]}, 4)
    tensors = {name: t for name, t in half.tensors.items() if name.startswith("encoder")}
    save_weights(tmp_path / "half.safetensors", only, tensors, {})
    with pytest.raises(WeightsError, match="no decoder"):
        train_graft(hybrid, str(tmp_path / "half.safetensors"), data, config, "decoder", init=str(fresh))
    for student, teacher, part in (
        ("zenith-taesd", hybrid, "encoder"),
        ("zenith-taef2", zoo.build("taesd"), "encoder"),
        ("zenith-taef2", zoo.build("taesd", 32), "decoder"),
        ("zenith-taesd-lite", zoo.build("taesd"), "decoder"),
        ("taesd", zoo.build("taesd"), "decoder"),
    ):
        with pytest.raises(ConfigError, match="no hybrid"):
            find_seam(zoo.build(student), teacher, part)


@pytest.mark.parametrize(
    ("name", "stride", "shared"),
    [("zenith-taef2", 4, [8, 11]), ("zenith-taef2-lite", 4, [8, 11]), ("zenith-taef2-nano", 8, [4, 6])],
)
def test_the_hybrids_share_a_taesds_layers_at_low_resolution(name, stride, shared) -> None:
    config, teacher = zoo.build(name), zoo.build("taef2")
    seams = [find_seam(config, teacher, part) for part in ("encoder", "decoder")]
    assert [seam.shared for seam in seams] == shared
    assert {seam.stride for seam in seams} == {stride}


def test_a_whole_encoder_is_looked_at_where_a_hybrids_is(grown_teacher) -> None:
    teacher = zoo.build("taef2")
    own = find_seam(zoo.build("zenith-taef2-lite"), teacher, "encoder")
    assert seam_to_look(teacher) == replace(own, margin=7)  # its layers there are deeper
    assert seam_to_look(load_weights(grown_teacher).config) == Seam("encoder", 4, 4, 0)
    deep = replace(teacher, parts={"encoder": (ResBlock(3, pool=True), *teacher.parts["encoder"])})
    for blind in (deep, replace(teacher, parts={"encoder": (Conv(3, 32),)})):
        with pytest.raises(ConfigError, match="no features at 1/4"):
            seam_to_look(blind)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_features_at_the_seam_are_those_of_whole_pictures(
    photos, grown_teacher, hybrid, part, tmp_path, monkeypatch
) -> None:
    """What the teacher's outer layers make of a crop alone differs only where it counts for nothing."""
    pool, weights = ImagePool([photos]), load_weights(grown_teacher)
    network = distill.teacher_part(weights, part)
    place = find_seam(hybrid, weights.config, part)
    latents = None
    if part == "decoder":
        latents = distill.teacher_latents(pool, weights, tmp_path / "z.npz", steps(tmp_path, 1))
    folder = tmp_path / "features"
    folder.mkdir()
    (folder / "mine.txt").write_text("kept")
    made = []

    def given() -> list[np.ndarray]:
        made.append(1)
        return latents

    arguments = pool, place, weights, steps(tmp_path, 1), folder
    lessons = given if part == "decoder" else None
    features = graft.SeamFeatures.of(*arguments, "a", lessons)
    config = steps(tmp_path, 1, batch=64, crop=48)
    recipe = graft.GraftRecipe(pool, features, place, config)
    x, found, *answers, counts = (
        torch.from_numpy(a).permute(0, 3, 1, 2) for a in recipe.make_batch(np.random.default_rng(0))
    )
    with torch.no_grad():
        if part == "encoder":
            wrong = (place.outer(network, x.float() / 255) - found).abs().amax(1, keepdim=True) > 2e-2
        else:
            out = place.outer(network, found).clamp(0, 1)
            wrong = (out - answers[0].float() / 255).abs().amax(1, keepdim=True) > 2e-2
    assert not (wrong & (counts > 0)).any()
    assert (wrong & (counts == 0)).any()
    assert set(counts.unique().tolist()) == {0, 1, 8, 64}  # a picture's border counts more, a corner squared
    graft.SeamFeatures.of(*arguments, "a", lessons)
    assert len(list(folder.iterdir())) == 2
    graft.SeamFeatures.of(*arguments, "b", lessons)
    assert len(list(folder.iterdir())) == 3
    assert len(made) == (2 if part == "decoder" else 0)
    assert (folder / "mine.txt").read_text() == "kept"
    (one, *_) = (f for f in folder.iterdir() if f.is_dir())
    whole = {name: (one / name).read_bytes() for name in ("index.json", "features.npy")}
    for name, content in whole.items():
        for damaged in (b"", b"{}", content[: len(content) * 2 // 3]):
            (one / name).write_bytes(damaged)
            with pytest.raises(ConfigError, match="holds no features; delete it"):
                graft.SeamFeatures(one)
        (one / name).write_bytes(content)
    graft.SeamFeatures(one)
    monkeypatch.setattr(np, "load", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(ConfigError, match="features cannot be read: Permission denied"):  # and stay
        graft.SeamFeatures(one)


def test_what_a_validation_costs_does_not_depend_on_the_size_of_pictures(
    bounded, tmp_path, monkeypatch
) -> None:
    for i, size in enumerate([(40, 600), (640, 56)]):
        Image.fromarray(np.zeros((*size, 3), np.uint8)).save(tmp_path / f"{i}.png")
    shapes = []
    real = autoencode.to_tensor
    monkeypatch.setattr(
        autoencode, "to_tensor", lambda x, device: (shapes.append(x.shape), real(x, device))[1]
    )
    with torch.no_grad():
        autoencode._validate(ImagePool([tmp_path]), 1.0)(restore.build_modules(bounded))
    assert shapes == [(1, 40, 512, 3), (1, 512, 56, 3)]
    picture = np.arange(80 * 90).reshape(80, 90)
    cells = picture[::8, ::8][:10, :11]
    assert (picture[middle((10, 11), 5, 8)][::8, ::8] == cells[middle((10, 11), 5)]).all()
    assert picture[middle((10, 11), 5, 8)].shape == (40, 40)


def test_a_hybrid_starts_from_the_layers_of_its_taesd(seeing_teacher, capsys) -> None:
    weights = load_weights(seeing_teacher)
    encoder = weights.config.parts["encoder"]
    deeper = ModelConfig(
        "deeper", "autoencoder",
        weights.config.parts | {"encoder": (*encoder[:2], ZenithBlock(8, 8), *encoder[2:])}, 4,
    )  # fmt: skip
    model = restore.build_modules(deeper)
    restore.load_into(model, seeing_teacher)
    assert "6 of 12 tensors fit" in capsys.readouterr().err
    state = model.state_dict()
    for mine, theirs in (("1", "1"), ("3", "2")):
        for kind in ("weight", "bias"):
            stored = torch.from_numpy(weights.tensors[f"encoder.{theirs}.{kind}"])
            torch.testing.assert_close(state[f"encoder.{mine}.{kind}"], stored, rtol=0, atol=0)


def test_muon_makes_the_singular_values_of_a_matrix_alike() -> None:
    torch.manual_seed(0)
    for rows, columns in ((6, 24), (24, 6), (16, 16), (1, 5)):
        matrices = torch.randn(3, rows, columns)
        found = orthogonalize(matrices)
        left, _, right = torch.linalg.svd(matrices, full_matrices=False)
        values = left.mT @ found @ right.mT
        diagonal = torch.diagonal(values, dim1=1, dim2=2)
        assert diagonal.min() > 0.65 and diagonal.max() < 1.25
        assert (values - torch.diag_embed(diagonal)).abs().max() < 1e-4
        torch.testing.assert_close(orthogonalize(matrices[1:2])[0], found[1])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_muon_does_what_that_of_torch_does_and_takes_kernels_as_matrices(layout) -> None:
    torch.manual_seed(0)
    kernels = [torch.nn.Conv2d(5, 7, 3).weight for _ in range(2)]
    kernels = [torch.nn.Parameter(k.detach().to(memory_format=layout)) for k in kernels]
    linear, unused = torch.nn.Parameter(torch.randn(9, 4)), torch.nn.Parameter(torch.randn(9, 4))
    mine = Muon([*kernels, linear, unused], dtype=torch.bfloat16)
    exact = [torch.nn.Parameter(p.detach().clone()) for p in (*kernels, linear)]
    float32 = Muon(exact)
    matrices = [torch.nn.Parameter(p.detach().flatten(1).clone()) for p in (*kernels, linear)]
    plain = torch.optim.Muon(matrices, lr=0.01 * SCALE, weight_decay=0, adjust_lr_fn="match_rms_adamw")
    before = [m.detach().clone() for m in matrices]
    for optimizer in (mine, float32):
        optimizer.param_groups[0]["lr"] = 0.01 * SCALE
    for _ in range(3):
        for p, other, matrix in zip((*kernels, linear), exact, matrices, strict=True):
            p.grad = torch.randn(p.shape)  # in autograd's layout, whatever the kernel's is
            other.grad = p.grad.clone()
            matrix.grad = p.grad.flatten(1)
        for optimizer in (mine, float32, plain):
            optimizer.step()
    for p, other, matrix, start in zip((*kernels, linear), exact, matrices, before, strict=True):
        step = float((matrix.detach() - start).norm())
        assert float((p.detach().flatten(1) - matrix.detach()).norm()) < 0.02 * step
        assert float((other.detach().flatten(1) - matrix.detach()).norm()) < 0.02 * step
    assert not mine.state[unused]


def test_training_computes_in_bf16_where_the_device_has_it(tmp_path, monkeypatch) -> None:
    for has in (True, False):
        monkeypatch.setattr(trainer, "fast_bf16", lambda has=has: has)
        assert trainer.wants_bf16(TrainConfig(tmp_path, steps=1)) is has
        assert trainer.wants_bf16(TrainConfig(tmp_path, steps=1, precision="bf16"))
        assert not trainer.wants_bf16(TrainConfig(tmp_path, steps=1, precision="float32"))
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has: has)
        assert trainer.wants_bf16(TrainConfig(tmp_path, steps=1, device="cuda:1")) is has


def test_distillation_learns_the_teachers_space(photos, teacher, tmp_path) -> None:
    student = ModelConfig(
        "student",
        "autoencoder",
        {
            "encoder": (PixelUnshuffle(8), Linear(192, 16), Linear(16, 4)),
            "decoder": (Linear(4, 32), ZenithBlock(32, 16), Linear(32, 192), PixelShuffle(8)),
        },
        4,
    )
    out = tmp_path / "out"
    path = distill.train_distillation(
        student, str(teacher), [str(photos)], steps(out, 150, lr=5e-3),
        options=distill.DistillOptions(latent_weight=1.0),
    )  # fmt: skip
    errors = log(out, "latent")
    assert np.mean(errors[-10:]) < 0.4 * np.mean(errors[:5])
    assert np.mean(log(out, "pair")[-10:]) < np.mean(log(out, "pair")[:5])
    assert load_weights(path).metadata["teacher"] == "teacher"


@pytest.fixture
def bounded() -> ModelConfig:
    return ModelConfig(
        "bounded",
        "autoencoder",
        {
            "encoder": (PixelUnshuffle(8), Linear(192, 16), Linear(16, 4), Clamp()),
            "decoder": (Linear(4, 32), ZenithBlock(32, 16), Linear(32, 192), PixelShuffle(8)),
        },
        4,
    )


def wider(config: ModelConfig) -> ModelConfig:
    """`bounded` with 6 latent channels instead of 4."""
    encoder, decoder = config.parts["encoder"], config.parts["decoder"]
    parts = {"encoder": (*encoder[:2], Linear(16, 6), Clamp()), "decoder": (Linear(6, 32), *decoder[1:])}
    return ModelConfig("wider", "autoencoder", parts, 6)


@pytest.mark.parametrize("loss", ["l1", "psnr"])
def test_autoencoder_of_its_own_learns_pictures_and_tame_latents(photos, bounded, tmp_path, loss) -> None:
    path = autoencode.train_autoencoder(
        bounded, [str(photos)], steps(tmp_path, 200, lr=2e-2), loss=loss, detail_weight=0.05
    )
    errors = log(tmp_path, "l1")
    assert np.mean(errors[-10:]) < 0.6 * np.mean(errors[:5])
    assert np.mean(log(tmp_path, "moments")[-10:]) < np.mean(log(tmp_path, "moments")[:5])
    (whole,), (rounded,) = log(tmp_path, "psnr"), log(tmp_path, "psnr_8bit")
    assert whole - 0.2 < rounded < whole + 0.1
    assert load_weights(path).config == bounded


def test_a_critic_takes_part_in_an_autoencoders_training(photos, bounded, tmp_path) -> None:
    def train(name: str, weight: float) -> Path:
        return autoencode.train_autoencoder(
            bounded, [str(photos)], steps(tmp_path / name, 40), detail_weight=0, critic_weight=weight
        )

    path = train("judged", 0.1)
    assert load_weights(path).config == bounded  # the critic stays behind
    assert len(log(tmp_path / "judged", "critic")) == 40
    recognised = log(tmp_path / "judged", "recognised")
    assert len(recognised) == 38  # not before it has learned something
    train("alone", 0)
    same = np.isclose(log(tmp_path / "judged", "l1"), log(tmp_path / "alone", "l1"), rtol=0, atol=1e-7)
    assert same[:3].all() and not same[10:].any()  # what it says counts


def test_pictures_smaller_than_a_latent_are_left_out(photos, bounded, teacher, tmp_path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    for i in range(40):  # enough that some would be kept for validation
        Image.new("RGB", (40, 5)).save(small / f"{i}.png")
    sources = [str(photos), str(small)]
    assert autoencode.train_autoencoder(bounded, sources, steps(tmp_path / "a", 1)).exists()
    student = zoo.build("zenith-taesd-nano", 4)
    assert distill.train_distillation(student, str(teacher), sources, steps(tmp_path / "b", 1)).exists()


def test_autoencoder_with_unbounded_latents_is_refused(photos, tmp_path) -> None:
    with pytest.raises(ConfigError, match="bounded"):
        autoencode.train_autoencoder(zoo.build("zenith-taesd-nano"), [str(photos)], steps(tmp_path, 1))


def test_a_model_starts_from_what_fits_of_another(photos, bounded, tmp_path, capsys) -> None:
    path = autoencode.train_autoencoder(bounded, [str(photos)], steps(tmp_path / "a", 1))
    model = restore.build_modules(wider(bounded))
    fresh = {name: value.clone() for name, value in model.state_dict().items()}
    restore.load_into(model, path)
    assert "11 of 14 tensors fit" in capsys.readouterr().err
    stored = load_weights(path).tensors
    for name, value in model.state_dict().items():
        new = name in ("encoder.2.weight", "encoder.2.bias", "decoder.0.weight")
        wanted = fresh[name] if new else torch.from_numpy(stored[name])
        torch.testing.assert_close(value, wanted, rtol=0, atol=0)
    other = restore.build_modules(zoo.build("zenith-taesd-nano"))
    fresh = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(WeightsError, match="architecture"):
        restore.load_into(other, path)
    assert all(torch.equal(value, fresh[name]) for name, value in other.state_dict().items())


def test_a_deeper_model_starts_as_the_one_it_grew_from(photos, denoiser, tmp_path) -> None:
    path = restore.train_restoration(denoiser, [str(photos)], steps(tmp_path, 3))
    layers = list(denoiser.parts["denoiser"])
    where = next(i for i, layer in enumerate(layers) if isinstance(layer, ZenithBlock))
    layers.insert(where + 1, layers[where])
    deeper = ModelConfig("deeper", "denoiser", denoiser.parts | {"denoiser": tuple(layers)})
    model = restore.build_modules(deeper)
    restore.load_into(model, path)
    noisy = torch.rand(1, 4, 64, 64)
    known = frozen_module(load_weights(path), "denoiser")
    torch.testing.assert_close(model["denoiser"](noisy), known(noisy), rtol=0, atol=0)
    assert model["denoiser"][where + 1].compress.weight.abs().min() > 0  # it can learn


def test_a_model_in_streams_starts_as_the_mean_of_two_orientations(capsys) -> None:
    model = restore.build_modules(zoo.build("zenith-denoise-large"))
    restore.load_into(model, "zenith-denoise")
    assert not capsys.readouterr().err  # every tensor has its place
    narrow = frozen_module(load_weights("zenith-denoise"), "denoiser")
    noisy = torch.rand(1, 4, 64, 128)
    turned = torch.rot90(narrow(torch.rot90(noisy, 1, (2, 3))), -1, (2, 3))
    torch.testing.assert_close(model["denoiser"](noisy), (narrow(noisy) + turned) / 2, rtol=0, atol=1e-5)


def test_streams_of_what_cannot_be_turned_start_fresh() -> None:
    layers = Linear(4, 4), ZenithBlock(4, 4, 4, separable=True), Linear(4, 3)
    tensors = {name: value.numpy() for name, value in Network(layers, 4).state_dict().items()}
    assert restore._as_streams(layers, tensors, in_streams(layers, 2)) == {}
    assert restore._as_streams(layers, tensors, layers) == {}


def test_deblurring_is_told_the_noise_and_measured_on_blur_and_on_sharp_pictures(
    photos, denoiser, tmp_path
) -> None:
    soft = Mixture(gaussian=0, stored=0, camera=0, poisson_gaussian=0, salt_and_pepper=0, blur=1, noiseless=1)
    restore.train_restoration(denoiser, [str(photos)], steps(tmp_path, 3), soft)
    for name in ("psnr", "soft_gain", "psnr_sharp"):
        assert len(log(tmp_path, name)) == 1
    assert log(tmp_path, "psnr_sharp")[0] > 20


@pytest.mark.parametrize("only", ["encoder", "decoder"])
def test_one_half_of_a_student_can_be_trained_alone(photos, teacher, tmp_path, only) -> None:
    student = ModelConfig(
        "student",
        "autoencoder",
        {
            "encoder": (PixelUnshuffle(8), Linear(192, 4)),
            "decoder": (Linear(4, 32), Linear(32, 192), PixelShuffle(8)),
        },
        4,
    )
    data, first = [str(photos)], tmp_path / "a"
    before = distill.train_distillation(student, str(teacher), data, steps(first, 1))
    after = distill.train_distillation(
        student,
        str(teacher),
        data,
        steps(tmp_path / "b", 60, lr=5e-3),
        init=str(before),
        only=only,
        options=distill.DistillOptions(taught=0.8),
    )
    old, new = load_weights(before).tensors, load_weights(after).tensors
    for name in old:
        assert np.array_equal(old[name], new[name]) != name.startswith(f"{only}."), name
    learned = {"encoder": "latent", "decoder": "decoder"}[only]
    errors = log(tmp_path / "b", learned)
    assert np.mean(errors[-10:]) < 0.9 * np.mean(errors[:5])
    foreign = {"encoder": "decoder", "decoder": "latent"}[only]
    assert not log(tmp_path / "b", foreign)


def test_a_decoder_can_imitate_its_teachers(photos, teacher, tmp_path) -> None:
    """With nothing else to learn from, it ends nearer to the teacher's answer than to the picture."""
    student = ModelConfig(
        "student",
        "autoencoder",
        {
            "encoder": (PixelUnshuffle(8), Linear(192, 4)),
            "decoder": (Linear(4, 192), PixelShuffle(8)),
        },
        4,
    )
    distill.train_distillation(
        student, str(teacher), [str(photos)], steps(tmp_path, 200, lr=2e-2), only="decoder",
        options=distill.DistillOptions(taught=0.75, detail_weight=0.0, imitation_weight=20.0),
    )  # fmt: skip
    imitation, decoder = log(tmp_path, "imitation"), log(tmp_path, "decoder")
    assert np.mean(imitation[-10:]) < 0.3 * np.mean(imitation[:5])
    assert np.mean(imitation[-10:]) < 0.5 * np.mean(decoder[-10:])


def test_detail_tells_how_much_there_is_but_not_where() -> None:
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 3, 128, 128, generator=rng)
    other = torch.randn(4, 3, 128, 128, generator=rng)
    flat = torch.full((1, 3, 64, 64), 0.5)
    x = torch.arange(64.0)
    nyquist = 0.5 + 0.1 * torch.cos(torch.pi * x)[:, None] * torch.ones(1, 3, 64, 64)
    for level, amount in enumerate(detail(noise)):
        torch.testing.assert_close(amount.mean(), detail(other)[level].mean(), rtol=0.02, atol=0)
        torch.testing.assert_close(detail(noise / 2)[level].mean(), amount.mean() / 2, rtol=1e-3, atol=0)
        assert detail(flat)[level].max() < 2e-3
    finest, coarser = detail(nyquist)
    torch.testing.assert_close(finest, torch.full_like(finest, 0.1), rtol=1e-2, atol=0)
    assert coarser.max() < 2e-3  # the mean of two pixels is flat
    ramp = (x / 64).expand(1, 3, 64, 64)
    assert detail(ramp)[0].max() < 2e-3


def test_teacher_of_another_latent_space_is_refused(photos, teacher, tmp_path) -> None:
    with pytest.raises(WeightsError, match="latent channels"):
        distill.train_distillation(
            zoo.build("zenith-taesd-nano", 16), str(teacher), [str(photos)], steps(tmp_path / "o", 1)
        )


def test_command_line_trains_and_plots(photos, tmp_path) -> None:
    out = tmp_path / "run"
    options = ["--steps", "2", "--batch", "1", "--crop", "32", "--threads", "1", "--name", "mine"]
    arguments = ["denoise", "--data", str(photos), "-o", str(out), *options]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert load_weights(out / "mine.safetensors").config.name == "mine"
    assert (out / "checkpoint.pt").exists()
    assert (out / "log.png").read_bytes().startswith(b"\x89PNG")


def test_changed_pictures_are_encoded_anew(photos, teacher, tmp_path) -> None:
    pool, weights, config = ImagePool([photos]), load_weights(teacher), steps(tmp_path, 1)
    before = distill.teacher_latents(pool, weights, tmp_path / "z.npz", config)
    pool.images[0] = 255 - pool.images[0]
    after = distill.teacher_latents(pool, weights, tmp_path / "z.npz", config)
    assert not np.array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1], after[1])


@pytest.mark.parametrize(("options", "message"), [({"batch": 1}, "2 or more"), ({"crop": 96}, "as large")])
def test_distillation_that_cannot_work_is_refused(photos, teacher, tmp_path, options, message) -> None:
    student = zoo.build("zenith-taesd-nano", 4)
    with pytest.raises(ZenithError, match=message):
        distill.train_distillation(student, str(teacher), [str(photos)], steps(tmp_path / "o", 1, **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "--seed"),
        (["--device", "gpu"], "--device gpu"),
        (["--lr", "-1"], "--lr"),
        (["--ema", "2"], "--ema"),
        (["--name", "../mine"], "without a folder"),
        (["--only", "denoiser", "--elder", "zenith-denoise"], "--elder is about the estimator"),
        (["--only", "denoiser", "--quantile", "0.6"], "--quantile is about the estimator"),
        (["--only", "white", "--quantile", "0.6"], "which --only white keeps as it is"),
        (["--anew", "drawn"], "--anew is about what an --elder does not teach"),
        (["--only", "sorter", "--task", "blur"], "--only sorter is about noise"),
        (["--cleaner", "zenith-denoise"], "--cleaner is for --only denoiser"),
        (["--only", "estimator", "--cleaner", "zenith-denoise"], "or for --only estimator beside an --elder"),
        (["--only", "denoiser", "--task", "blur", "--cleaner", "zenith-denoise"], "and about noise"),
        (["--crop", "40"], "needs crops of a multiple of 32 pixels"),
        (["--model", "zenith-taef2"], "is of kind autoencoder"),
        (["--model", "nosuch"], "nosuch"),
        (["--only", "sorter", "--loss", "psnr"], "--loss psnr is about denoising"),
        (["--only", "estimator", "--loss", "psnr"], "not about --only estimator"),
        (["--only", "estimator"], "--only estimator keeps the denoiser as it is"),
        (["--only", "denoiser"], "give its weights with --init"),
    ],
)
def test_options_that_cannot_be_are_wrong_usage(photos, tmp_path, options, message) -> None:
    arguments = ["denoise", "--data", str(photos), "-o", str(tmp_path / "x"), "--steps", "1", *options]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2, result.output
    assert message in result.output


@pytest.mark.parametrize(
    "option",
    ["--imitation", "--detail-weight", "--perceptual-weight", "--cycle-weight", "--critic-weight",
     "--critic-limit", "--tone-weight", "--taught"],
)  # fmt: skip
def test_what_only_a_decoder_learns_by_is_wrong_usage_for_an_encoder(
    photos, grown_teacher, tmp_path, option
) -> None:
    arguments = ["graft", "--part", "encoder", "--teacher", str(grown_teacher), "--data", str(photos)]
    result = CliRunner().invoke(
        command, [*arguments, "-o", str(tmp_path / "x"), "--steps", "1", option, "0.5"]
    )
    assert result.exit_code == 2
    assert "is for --part decoder" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("only", "option"),
    [("encoder", "--detail-weight"), ("encoder", "--imitation-weight"), ("decoder", "--latent-weight"),
     ("decoder", "--teacher-weight")],
)  # fmt: skip
def test_what_a_kept_part_would_learn_by_is_wrong_usage(photos, teacher, tmp_path, only, option) -> None:
    arguments = ["distill", "--teacher", str(teacher), "--data", str(photos), "-o", str(tmp_path / "x")]
    result = CliRunner().invoke(command, [*arguments, "--steps", "1", "--only", only, option, "0.5"])
    assert result.exit_code == 2, result.output
    assert f"{option} is about the" in " ".join(result.output.split())


def test_a_critics_limit_is_wrong_usage_without_a_critic(photos, grown_teacher, tmp_path) -> None:
    arguments = ["graft", "--part", "decoder", "--teacher", str(grown_teacher), "--data", str(photos)]
    result = CliRunner().invoke(
        command, [*arguments, "-o", str(tmp_path / "x"), "--steps", "1", "--critic-limit", "4"]
    )
    assert result.exit_code == 2
    assert "--critic-limit is about a critic" in " ".join(result.output.split())


def test_what_a_training_drew_is_no_picture_of_the_next_one(photos, tmp_path) -> None:
    shutil.copytree(photos, tmp_path / "p")
    run = tmp_path / "p" / "run"
    run.mkdir()
    before = ImagePool([tmp_path / "p"]).names
    Image.new("RGB", (64, 64)).save(run / "log.png")
    assert "run/log.png" in ImagePool([tmp_path / "p"]).names
    (run / "log.jsonl").touch()
    assert ImagePool([tmp_path / "p"]).names == before


def test_a_distilled_hybrid_shares_no_layers_with_its_teacher_any_more(
    photos, grown_teacher, hybrid, tmp_path
) -> None:
    teacher, data = str(grown_teacher), [str(photos)]
    path = distill.train_distillation(hybrid, teacher, data, steps(tmp_path / "a", 1), only="encoder")
    assert [distill.is_fitted(load_weights(path), part) for part in ("encoder", "decoder")] == [True, False]
    path = distill.train_distillation(hybrid, teacher, data, steps(tmp_path / "b", 1))
    with pytest.raises(ConfigError, match="would be reset"):
        graft.train_graft(hybrid, teacher, data, steps(tmp_path / "c", 1), "decoder", init=str(path))


def test_an_expert_takes_no_cleaner(photos, tmp_path) -> None:
    config = zoo.build("zenith-denoise")
    with pytest.raises(ConfigError, match="--cleaner is for --only denoiser"):
        restore.train_restoration(
            config, [str(photos)], steps(tmp_path, 1), only="white", cleaner="zenith-denoise"
        )


def test_another_trainings_checkpoint_is_no_wrong_usage(photos, tmp_path) -> None:
    out = tmp_path / "x"
    out.mkdir()
    (out / "checkpoint.pt").write_bytes(b"?")
    result = CliRunner().invoke(command, ["denoise", "--data", str(photos), "-o", str(out), "--steps", "1"])
    assert isinstance(result.exception, CheckpointError)  # of which the program makes one line, and 1


@pytest.mark.parametrize("recipe", [["distill"], ["graft", "--part", "encoder"]])
def test_a_denoiser_is_no_teacher(photos, tmp_path, recipe) -> None:
    arguments = [*recipe, "--teacher", "zenith-denoise", "--data", str(photos), "-o", str(tmp_path / "x")]
    result = CliRunner().invoke(command, [*arguments, "--steps", "1"])
    assert result.exit_code == 2
    assert "--teacher zenith-denoise: is of kind denoiser" in result.output


def test_command_line_wants_a_length(photos, tmp_path) -> None:
    result = CliRunner().invoke(command, ["denoise", "--data", str(photos), "-o", str(tmp_path / "x")])
    assert result.exit_code == 2
    assert "steps or minutes" in result.output


def test_the_first_of_several_processes_prepares_what_the_others_find(tmp_path) -> None:
    in_two_processes(
        "import os, time\n"
        "first, kept = os.environ['RANK'] == '0', folder / 'kept'\n"
        "time.sleep(1 if first else 0)\n"
        "with trainer.first_process_first('cpu'):\n"
        "    assert kept.exists() != first\n"
        "    kept.touch()\n"
        "trainer.leave_processes()\n",
        tmp_path,
    )


def test_gates_are_no_matrices() -> None:
    layers = (ZenithBlock(16, 16, 8, separable=True), ZenithBlock(16, 16, 8))
    parameters = dict(Network(layers, 16).named_parameters())
    muon, adam = _optimizers(parameters, TrainConfig(Path("x"), steps=1), lambda name: False)
    names = {id(p): name for name, p in parameters.items()}
    chosen = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    assert chosen == {f"{i}.{part}.weight" for i in (0, 1) for part in ("compress", "expand")}
    rest = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert chosen | rest == set(parameters) and not chosen & rest


def test_settled_parameters_are_moved_with_care() -> None:
    parameters = dict(Network((Linear(16, 16), ZenithBlock(16, 16)), 16).named_parameters())
    muon, adam = _optimizers(parameters, TrainConfig(Path("x"), steps=1), lambda name: name.startswith("0."))
    rest, settled = adam.param_groups
    assert settled["scale"] == trainer.SETTLED_SCALE < 1 and "scale" not in rest
    assert {id(p) for p in settled["params"]} == {id(parameters[n]) for n in ("0.weight", "0.bias")}
    assert {p.ndim for p in muon.param_groups[0]["params"]} == {2}
    assert len(muon.param_groups[0]["params"]) == 2
