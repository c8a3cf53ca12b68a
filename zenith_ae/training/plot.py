"""A picture of a training: losses, quality and learning rate from the JSONL log."""

from __future__ import annotations

import json
from operator import index
from pathlib import Path
from typing import Any

from ..errors import MissingDependencyError

Record = dict[str, Any]


def read_log(path: str | Path) -> list[Record]:
    """The records of a training log, in order of steps.

    A run that was killed and resumed has logged some steps twice: when the steps go back, the
    records from there on are replaced. Lines that were cut off in writing are left out.

    Raises
    ------
    ValueError
        Where a whole line is not a JSON object with a ``step``.
    """
    records: list[Record] = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("{") and not line.endswith("}"):  # records have no further braces
            continue
        try:
            record = json.loads(line)
            step = index(record["step"])
        except (KeyError, TypeError, ValueError):  # of JSON too
            raise ValueError(f"{path}: line {number} is no record of a training") from None
        first = len(records)
        while first and records[first - 1]["step"] >= step:
            first -= 1
        # At one step there may be a record of losses and one of quality.
        kept = [r for r in records[first:] if r["step"] == step and r.keys() != record.keys()]
        records[first:] = [*kept, record]
    return records


def _series(records: list[Record], name: str) -> tuple[list[int], list[float]]:
    points = [(r["step"], r[name]) for r in records if isinstance(r.get(name), (int, float))]
    return [step for step, _ in points], [value for _, value in points]


def plot_log(log: str | Path, output: str | Path) -> bool:
    """Draw a training log to a PNG file.

    Fields that start with ``psnr`` or end with ``_gain`` are drawn as quality, ``lr`` as learning
    rate, ``norm`` and ``skipped`` are left out, all else is a loss.

    Returns
    -------
    bool
        False, and no file, where nothing has been logged yet.

    Raises
    ------
    MissingDependencyError
        Without matplotlib.
    """
    if not Path(log).exists():
        return False
    records = read_log(log)
    if not records:
        return False
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            "the plot needs matplotlib: install the extra with  pip install 'zenith-ae[train]'"
        ) from None

    names = [*dict.fromkeys(name for record in records for name in record)]
    quality = [name for name in names if name.startswith("psnr") or name.endswith("_gain")]
    losses = [name for name in names if name not in ("step", "seconds", "lr", "norm", "skipped", *quality)]
    panels = [("loss", losses, "log"), ("PSNR (dB)", quality, "linear"), ("learning rate", ["lr"], "linear")]
    panels = [(label, [n for n in group if n in names], scale) for label, group, scale in panels]
    panels = [panel for panel in panels if panel[1]]
    if not panels:
        return False

    # A Figure of its own, not pyplot: no global state and no window system.
    figure = Figure(figsize=(9.5, 2.6 * len(panels) + 0.6), layout="constrained")
    for axes, (label, group, scale) in zip(
        figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0], panels, strict=True
    ):
        for i, name in enumerate(group):
            steps, values = _series(records, name)
            style = "-" if i < 10 else "--"  # of colours there are ten
            axes.plot(steps, values, style, label=name, marker="." if len(steps) < 40 else None)
            if scale == "log" and min(values, default=1) <= 0:  # as of logarithms of errors
                scale = "symlog"
        axes.set_ylabel(label)
        axes.set_yscale(scale)
        axes.grid(alpha=0.3)
        if len(group) > 1:
            axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves
    axes.set_xlabel("step")
    minutes = records[-1].get("seconds", 0) / 60
    figure.suptitle(f"{Path(log).resolve().parent.name}: {records[-1]['step']} steps, {minutes:.0f} minutes")
    figure.savefig(output, format="png", dpi=100)
    return True
