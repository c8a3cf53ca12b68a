"""The training loop that every recipe shares: schedule, EMA, checkpoints, log.

A recipe gives the trainer a module, a function that makes a batch from a random generator, and
one that turns a batch into a loss. Everything random comes from the batch generator, which is
seeded by the seed, the weights it begins with, the process and the step, so a run that was
stopped continues exactly as if it had not been.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar
from zlib import crc32

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from .._kernels import fast_bf16
from ..engine.limits import default_threads
from ..errors import CheckpointError, OutputError, TrainingError, WeightsError
from ..files import atomic_writer, reason, say
from .data import Prefetcher
from .muon import Muon

Model = TypeVar("Model", bound=nn.Module)
# Settings of which a training that goes on with others says so.
_SETTINGS = ("steps", "minutes", "batch", "crop", "lr", "warmup", "ema", "precision", "drawn")
_LEAST = {
    "batch": 1, "crop": 8, "lr": 0, "warmup": 0, "clip": 0, "workers": 0, "seed": 0, "drawn": 0, "threads": 1,
    "checkpoint_minutes": 0, "evaluate_minutes": 0, "log_every": 1,
}  # fmt: skip
SETTLED_SCALE = 0.25  # share of the learning rate for parameters that are settled
PATIENCE = 100  # steps in a row whose gradients are not finite, after which a training ends


@dataclass
class TrainConfig:
    """How long and how fast; the same for every recipe.

    Give ``steps`` or ``minutes``: the learning rate follows a cosine over whichever is set.
    ``clock`` says what minutes are: `time.monotonic`, or `time.process_time` for processor time,
    which other work on the machine takes nothing away from. ``precision`` is "bf16" (autocast),
    "float32", or "auto": bf16 where the device has instructions for it.

    Raises
    ------
    ValueError
        If a setting is out of its range, or not just one of ``steps`` and ``minutes`` is given.
    """

    out: Path
    steps: int | None = None
    minutes: float | None = None
    batch: int = 8
    crop: int = 128
    lr: float = 2e-3
    warmup: int = 200
    ema: float = 0.999
    clip: float = 1.0
    precision: str = "auto"
    device: str = "cpu"
    # Processes that make batches; 0 is a thread, None is 0 or, for a GPU, its share of the CPUs.
    workers: int | None = None
    compile: str = ""  # backend of torch.compile, "" for none
    seed: int = 0
    drawn: int = 0  # drawn pictures (text, interfaces, line art, plain colours) beside the photographs
    threads: int | None = None
    checkpoint_minutes: float = 2.0
    evaluate_minutes: float = 10.0
    log_every: int = 50
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        lengths = [length for length in (self.steps, self.minutes) if length is not None]
        if len(lengths) != 1:
            raise ValueError("give either steps or minutes (--steps, --minutes)")
        if lengths[0] <= 0:
            raise ValueError(f"steps or minutes must be positive, got {lengths[0]}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not (value is None or value >= least):  # nor NaN
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.precision not in (known := ("auto", "bf16", "float32")):
            raise ValueError(f"precision must be one of {', '.join(known)}, got {self.precision!r}")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must be at least 0 and less than 1, got {self.ema}")
        self.out = Path(self.out)
        if self.crop % 8:
            raise ValueError(f"crop must be a multiple of 8 (of 32 for an estimator), got {self.crop}")


def wants_bf16(config: TrainConfig) -> bool:
    """Whether a training computes in bf16. Emulated, a step takes fifteen times as long."""
    if config.precision != "auto":
        return config.precision == "bf16"
    kind = torch.device(config.device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return kind == "cpu" and fast_bf16()


def to_tensor(pictures: np.ndarray, device: str | torch.device = "cpu") -> Tensor:
    """uint8 or float NHWC array -> float32 NCHW tensor in [0, 1], channels last in memory."""
    x = torch.from_numpy(np.require(pictures, requirements=["C", "W"])).to(device).permute(0, 3, 1, 2)
    return x.float().div_(255) if x.dtype == torch.uint8 else x.float()


def psnr(out: Tensor, target: Tensor) -> float:
    """PSNR in dB of an output clipped to [0, 1], over everything in the batch; 100 at most."""
    return -10 * float(((out.float().clamp(0, 1) - target) ** 2).mean().clamp(min=1e-10).log10())


def mean_scores(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each score over all that have it; NaN is none."""
    scores: dict[str, list[float]] = {}
    for one in each:
        for name, value in one.items():
            scores.setdefault(name, []).append(value)
    return {name: float(np.nanmean(values)) for name, values in scores.items()}


def mean_where(values: Tensor, counts: Tensor) -> Tensor:
    """The mean of values, each weighted by what it ``counts``; 0 where nothing does."""
    return (values * counts).sum() / counts.sum().clamp(min=1)


def _keep_freed_memory() -> None:
    """Tell glibc to keep freed memory: activations of a step are allocated again in the next one.

    By default each large tensor is mapped and unmapped anew, and the page faults cost more than
    some of the operations (a Walsh-Hadamard block took twice as long).
    """
    if sys.platform.startswith("linux"):
        try:
            libc = ctypes.CDLL("libc.so.6")
        except OSError:
            return
        m_trim_threshold, m_mmap_threshold = -1, -3
        libc.mallopt(m_mmap_threshold, 1 << 30)
        libc.mallopt(m_trim_threshold, (1 << 31) - 1)


def _optimizers(
    parameters: dict[str, nn.Parameter], config: TrainConfig, settled: Callable[[str], bool]
) -> list[torch.optim.Optimizer]:
    """Muon for what are matrices, Adam for the rest: depthwise kernels, gates, biases.

    And for what is ``settled``, with a quarter of the rate: Muon moves all directions of a matrix alike, also
    those that a long training has left for good, and in a hundred steps undid what the others had.
    """
    # Separable gates and thresholds have two axes too, but are no matrices.
    matrices = {
        name: p
        for name, p in parameters.items()
        if p.ndim in (2, 4) and not name.endswith(("gate", "threshold")) and not settled(name)
    }
    rest = [p for name, p in parameters.items() if name not in matrices and not settled(name)]
    kept = [p for name, p in parameters.items() if settled(name)]
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        dtype = torch.bfloat16 if wants_bf16(config) else torch.float32
        optimizers.append(Muon(list(matrices.values()), dtype))
    groups: list[dict[str, Any]] = [{"params": rest}, {"params": kept, "scale": SETTLED_SCALE}]
    if groups := [group for group in groups if group["params"]]:
        optimizers.append(torch.optim.Adam(groups, config.lr, betas=(0.9, 0.98), fused=True))
    return optimizers


def _is_launched() -> bool:
    """Whether ``torchrun`` started this process."""
    return dist.is_available() and dist.is_torchelastic_launched()


def choose_gpu(device: str | torch.device) -> None:
    """Make "cuda" each process's own GPU where ``torchrun`` started it: before anything is put there."""
    if torch.device(device).type == "cuda" and _is_launched():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def is_first_process() -> bool:
    """Whether this process is the one that reports, of several that ``torchrun`` started or alone."""
    return not (_is_launched() and int(os.environ.get("RANK", "0")))


def join_processes(device: torch.device) -> tuple[int, int]:
    """(rank, number of processes): more than one where ``torchrun`` started this process."""
    if not _is_launched():
        return 0, 1
    if not dist.is_initialized():
        # An optimizer's first step imports it. Its modules would take the group for a default argument and
        # keep it, and so gloo's threads, for good: one that frees a tensor while Python ends aborts.
        importlib.import_module("torch._dynamo")
        choose_gpu(device)
        # What the first process prepares may take hours; where one ends, torchrun ends the others.
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(days=1))
    return dist.get_rank(), dist.get_world_size()


def leave_processes() -> None:
    """End what `join_processes` began, when all others do: one that ends while others talk aborts them."""
    dist.barrier()
    dist.destroy_process_group()


@contextmanager
def first_process_first(device: str | torch.device) -> Iterator[None]:
    """Of several processes the first does what is in here before the others, which find what it kept."""
    rank, processes = join_processes(torch.device(device))
    if processes > 1 and rank:
        dist.barrier()
    yield
    if processes > 1 and not rank:
        dist.barrier()


def average_over_processes(tensors: Sequence[Tensor]) -> None:
    """Replace tensors, such as gradients, by their means over all processes that `Trainer` joined."""
    if not (dist.is_available() and dist.is_initialized()):
        return
    flat = torch.cat([t.flatten() for t in tensors]) / dist.get_world_size()
    dist.all_reduce(flat)
    for tensor, mean in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def _digest(tensors: list[Tensor]) -> int:
    """A number that other values would most likely change."""
    digest = 0
    for tensor in tensors:
        digest = crc32(tensor.float().cpu().numpy().tobytes(), digest)
    return digest


def _outline(state: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two checkpoints must have in common, for one to take the place of the other."""
    layers = {name: getattr(value, "shape", None) for name, value in state.get("model", {}).items()}
    shapes = [value.shape for value in state.get("average", ())]
    optimizers = state.get("optimizers", ())
    groups = [[len(group["params"]) for group in one["param_groups"]] for one in optimizers]
    return layers, shapes, groups


@contextmanager
def _going_on(path: Path) -> Iterator[None]:
    """What cannot be written now is said, and is no reason to end hours of work: there is a next time."""
    said = ""
    try:
        yield
    except (OutputError, WeightsError) as error:  # the latter of values that a weights file does not hold
        said = str(error)
    except OSError as error:
        said = f"{path}: cannot write: {reason(error)}"
    if said:
        say(f"{said}; the training goes on")


def plain_options(recipe: Any) -> dict[str, Any]:
    """The weights, shares and kinds among the fields of a recipe, and of the options that it holds."""
    options: dict[str, Any] = {}
    for name in (field.name for field in fields(recipe)):
        value = getattr(recipe, name, None)  # some are made later
        if isinstance(value, bool | int | float | str):
            options[name] = value
        elif is_dataclass(value) and name in ("options", "mixture"):
            options |= plain_options(value)
    return options


class Trainer(Generic[Model]):
    """Trains ``model``; keeps an exponential moving average of its weights.

    Started by ``torchrun``, each process makes batches of its own and the gradients are averaged;
    the first process keeps time, evaluates, logs and writes.

    Parameters
    ----------
    model : the module; its parameters are trained in float32.
    make_batch : (np.random.Generator) -> batch, called in a background thread or in processes of their own:
        what it changes is not seen elsewhere.
    loss : (model, batch, progress in 0..1) -> (scalar tensor, {name: value to log}).
    config : see `TrainConfig`.
    export : (averaged state dict, {what to put into the metadata}) -> None, called at every
        checkpoint and at the end.
    evaluate : (module with averaged weights) -> {name: value}, or None.
    goal : what is trained towards, for people to read (the loss, the teacher); a checkpoint of another goal
        is not continued.
    settled : whether a parameter of this name is one of a long training elsewhere, to be moved with care.
    data : names of what the batches are made of; a training that goes on with others says so.
    options : of the loss and the batches (`plain_options`), likewise.
    """

    def __init__(
        self,
        model: Model,
        make_batch: Callable[[np.random.Generator], Any],
        loss: Callable[[Model, Any, float], tuple[Tensor, dict[str, float]]],
        config: TrainConfig,
        export: Callable[[dict[str, Tensor], dict[str, str]], None],
        evaluate: Callable[[Model], dict[str, float]] | None = None,
        goal: Mapping[str, str] | None = None,
        settled: Callable[[str], bool] = lambda name: False,
        data: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.settings = {"data": ", ".join(data)} | {name: getattr(config, name) for name in _SETTINGS}
        self.settings |= options or {}
        self._evaluating = False
        self.goal = dict(goal or {})
        _keep_freed_memory()
        if config.threads:
            torch.set_num_threads(config.threads)
        self.device = torch.device(config.device)
        self.rank, self.processes = join_processes(self.device)
        self.model = model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.make_batch, self.loss, self.export, self.evaluate = make_batch, loss, export, evaluate
        if config.compile:  # in place: the names of the parameters stay
            for part in model.children():
                part.compile(backend=config.compile)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.parameters = list(trained.values())
        self.average = [p.detach().clone() for p in self.parameters]
        self.optimizers = _optimizers(trained, config, settled)
        self.step = 0
        self.seconds = 0.0
        self.stream = config.seed, _digest(self.average)
        try:
            config.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{config.out}: cannot become a folder: {reason(error)}") from None
        self.checkpoint_path = config.out / "checkpoint.pt"
        self.log_path = config.out / "log.jsonl"

    # -- schedule ---------------------------------------------------------------------------

    @property
    def progress(self) -> float:
        """Share of the training that is done, 0..1."""
        if self.config.steps is not None:
            return min(self.step / self.config.steps, 1.0)
        assert self.config.minutes is not None
        return min(self.seconds / (60 * self.config.minutes), 1.0)

    def _learning_rate(self) -> float:
        warm = min((self.step + 1) / max(self.config.warmup, 1), 1.0)
        return self.config.lr * warm * max(0.5 * (1 + math.cos(math.pi * self.progress)), 1e-3)

    # -- state ------------------------------------------------------------------------------

    def save_checkpoint(self) -> None:
        """Everything needed to go on, written to a temporary file and renamed."""
        if self.rank:
            return
        state = {
            "model": self.model.state_dict(),
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "seconds": self.seconds,
            "goal": self.goal,
            "settings": self.settings,
            "stream": self.stream,
        }
        whole = io.BytesIO()  # torch has no word for what a file does not take
        torch.save(state, whole)
        with atomic_writer(self.checkpoint_path) as file:
            file.write(whole.getbuffer())
        self.export(self.averaged_state(), {"steps": str(self.step), "seconds": f"{self.seconds:.0f}"})

    def load_checkpoint(self) -> bool:
        """Continue from the output folder's checkpoint; False where there is none.

        Raises
        ------
        CheckpointError
            If the checkpoint is damaged, or is another model's or another goal's.
        """
        if not self.checkpoint_path.exists():
            return False
        hint = "use --fresh or another -o"
        try:
            state = torch.load(self.checkpoint_path, map_location=self.device, weights_only=True)
        except Exception:  # a dozen unrelated types, whose texts advise to load without a check
            raise CheckpointError(f"{self.checkpoint_path}: damaged; {hint}") from None
        if not isinstance(state, dict):
            raise CheckpointError(f"{self.checkpoint_path}: is no checkpoint; {hint}")
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        wanted = {"model": self.model.state_dict(), "average": self.average, "optimizers": optimizers}
        if _outline(state) != _outline(wanted):
            what = "of another version, model or choice of parts"
            raise CheckpointError(f"{self.checkpoint_path}: {what}; {hint}")
        theirs = dict(state.get("goal", self.goal))  # one of version 0.1.0 has none
        for name in sorted(theirs.keys() | self.goal.keys()):
            before, now = (goal.get(name, "none") for goal in (theirs, self.goal))
            if before != now:
                what = f"its {name} is {before}, here it is {now}"
                raise CheckpointError(f"{self.checkpoint_path}: {what}; {hint}")
        begun_otherwise = any(
            not (p.requires_grad or name.startswith("critic.") or torch.equal(p, state["model"][name]))
            for name, p in self.model.named_parameters()  # a critic learns by itself
        )
        self.model.load_state_dict(state["model"])
        for mine, saved in zip(self.average, state["average"], strict=True):
            mine.copy_(saved)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]
        self.stream = state.get("stream", (self.config.seed,))  # one of version 0.1.0 has the seed alone
        if not self.rank:
            say(f"goes on from {self.checkpoint_path} at step {self.step}; --fresh begins anew")
            before = state.get("settings", self.settings)  # one of version 0.1.0 has none
            if others := [f"{name} {before.get(name)} -> {value}" for name, value in self.settings.items()
                          if before.get(name, value) != value]:  # fmt: skip
                say(f"goes on otherwise than it began: {'; '.join(others)}")
            if begun_otherwise:
                say("what is not trained stays as it is in the checkpoint, which has other weights there")
        return True

    def averaged_state(self) -> dict[str, Tensor]:
        """The tensors of the state dict, averaged in place of current weights."""
        state = {k: v.detach() for k, v in self.model.state_dict().items() if isinstance(v, Tensor)}
        trained = (name for name, p in self.model.named_parameters() if p.requires_grad)
        return state | dict(zip(trained, self.average, strict=True))

    def _log(self, record: dict[str, Any]) -> None:
        if self.rank:
            return
        # JSON has no NaN.
        finite = {k: v for k, v in record.items() if not isinstance(v, float) or math.isfinite(v)}
        record = {"step": self.step, "seconds": round(self.seconds, 1)} | finite
        with _going_on(self.log_path), self.log_path.open("ab+") as file:
            if file.tell():  # a run that was killed may have left half a line
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(record).encode() + b"\n")
        say(" ".join(f"{k}={v:.5g}" if isinstance(v, float) else f"{k}={v}" for k, v in record.items()))

    def _evaluate(self) -> None:
        if self.evaluate is None or self.rank:
            return
        current = [p.detach().clone() for p in self.parameters]
        with torch.no_grad():
            for p, average in zip(self.parameters, self.average, strict=True):
                p.copy_(average)
            self.model.eval()
            self._evaluating = True
            try:
                with torch.compiler.set_stance("force_eager"):  # every picture has another size
                    self._log(self.evaluate(self.model))
            finally:
                self._evaluating = False
                self.model.train()
                for p, value in zip(self.parameters, current, strict=True):
                    p.copy_(value)

    # -- the loop ---------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the schedule ends.

        Raises
        ------
        KeyboardInterrupt
            After SIGINT or SIGTERM, when the step in hand is done and a checkpoint is written. An evaluation
            is left at once.
        OutputError
            If the output folder takes no files, before the first step; or not those at the end. What it does
            not take in between is said, and written the next time.
        TrainingError
            If no step of `PATIENCE` in a row had finite gradients. The last checkpoint stays.
        """
        if not self.rank:
            try:
                self.log_path.open("ab" if self.step else "wb").close()  # what begins anew has a new log
            except OSError as error:
                raise OutputError(f"{self.log_path}: cannot write: {reason(error)}") from None
        stop = False

        def ask_to_stop(*_: Any) -> None:
            nonlocal stop
            stop = True
            if self._evaluating:
                self._evaluating = False  # once: what has to be put back then is
                raise KeyboardInterrupt

        seed = self.stream if self.processes == 1 else (*self.stream, self.rank)
        workers = self._workers()
        batches = Prefetcher(self.make_batch, seed, self.step, workers=max(1, workers), processes=workers > 0)
        handlers: dict[signal.Signals, Any] = {}
        try:
            if threading.current_thread() is threading.main_thread():  # no other can ask for signals
                handlers = {s: signal.signal(s, ask_to_stop) for s in (signal.SIGINT, signal.SIGTERM)}
            try:
                self._loop(batches, lambda: stop)
            finally:
                batches.close()
            self.save_checkpoint()
            finished = self.progress >= 1
            try:
                if finished:
                    self._evaluate()
            finally:
                if self.processes > 1:
                    leave_processes()
        finally:  # who asks twice to stop still has the checkpoint
            for s, handler in handlers.items():
                signal.signal(s, handler)
        if not finished:
            raise KeyboardInterrupt

    def _workers(self) -> int:
        if self.config.workers is not None:
            return self.config.workers
        if self.device.type == "cpu":
            return 0  # the network needs the cores
        return max(1, default_threads() // self.processes - 1)

    def _agree(self, elapsed: float, stop: bool) -> tuple[float, bool]:
        """What all processes go by: the first one's seconds, and whether any was asked to stop."""
        if self.processes == 1:
            return elapsed, stop
        shared = torch.tensor([0.0 if self.rank else elapsed, float(stop)], device=self.device)
        dist.all_reduce(shared)
        return float(shared[0]), bool(shared[1] > 0)

    def _average_gradients(self) -> None:
        if self.processes == 1:
            return
        for p in self.parameters:
            if p.grad is None:  # of a part that this process's batch did not need
                p.grad = torch.zeros_like(p)
        average_over_processes([p.grad for p in self.parameters if p.grad is not None])

    def _loop(self, batches: Any, stopped: Callable[[], bool]) -> None:
        config = self.config
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=wants_bf16(config))
        last_save = last_evaluation = self.seconds
        mark, values = config.clock(), dict[str, list[float]]()
        self.model.train()
        stop = False
        in_a_row = skipped = 0  # steps without finite gradients, the latter since the last record
        while self.progress < 1 and not stop:
            lr = self._learning_rate()
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = lr * group.get("scale", 1)
            batch = next(batches)
            with half:
                loss, logs = self.loss(self.model, batch, self.progress)
            for p in self.parameters:
                p.grad = None
            loss.backward()
            self._average_gradients()
            norm = nn.utils.clip_grad_norm_(self.parameters, config.clip)
            if torch.isfinite(norm):
                in_a_row = 0
                for optimizer in self.optimizers:
                    optimizer.step()
            else:  # a rare overflow must not end hours of work
                in_a_row, skipped = in_a_row + 1, skipped + 1
            if in_a_row == PATIENCE:
                raise TrainingError(
                    f"step {self.step}: the last {PATIENCE} had no finite gradients, so nothing is learned: "
                    "start again with a lower --lr" + (", or with --precision float32" * wants_bf16(config))
                )
            self.step += 1
            decay = min(config.ema, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - decay)
            now = config.clock()
            elapsed, stop = self._agree(now - mark, stopped())
            self.seconds += elapsed
            mark = now

            for name, value in (logs | {"loss": float(loss.detach()), "norm": float(norm)}).items():
                if math.isfinite(value):  # of a step without it the mean knows nothing
                    values.setdefault(name, []).append(value)
            if self.step % config.log_every == 0 or self.progress >= 1 or stop:
                means = {name: sum(found) / len(found) for name, found in values.items()}
                self._log(means | {"lr": lr} | ({"skipped": skipped} if skipped else {}))
                values, skipped = {}, 0
            if self.seconds - last_save > 60 * config.checkpoint_minutes:
                with _going_on(self.checkpoint_path):
                    self.save_checkpoint()
                last_save = self.seconds
            if not stop and self.seconds - last_evaluation > 60 * config.evaluate_minutes:
                with suppress(KeyboardInterrupt):  # which asks to stop
                    self._evaluate()
                last_evaluation = self.seconds
            mark = config.clock()  # neither is training time
