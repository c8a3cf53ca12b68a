"""The words and numbers of the web page: what jobs found, as HTML. No Gradio here."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from .session import EQUAL
from .web_jobs import BatchState, Result, short

#: Pillow's modes for people; those that are not here say it themselves.
WORDS = {"L": "grey", "I;16": "grey", "I": "grey", "F": "grey", "LA": "grey and alpha", "P": "palette",
         "RGBA": "RGB and alpha", "1": "black and white"}  # fmt: skip


def placeholder(title: str, text: str) -> str:
    return f"<div class=wait><b>{title}</b>{text}</div>"


def cards(*items: tuple[str, str]) -> str:
    """Pairs of (what, value as HTML) as small cards."""
    return "<dl class=facts>" + "".join(f"<div><dt>{a}</dt><dd>{b}</dd></div>" for a, b in items) + "</dl>"


def picture_card(facts: dict[str, Any]) -> tuple[str, str]:
    mode = WORDS.get(facts["mode"], facts["mode"])
    kind = f"{facts['format'] or ''} {mode}, {facts['bits']} bit".strip()
    size = f"{facts['width']} × {facts['height']} <small>{html.escape(kind)}</small>"
    return html.escape(facts["name"]), size


def noise_card(facts: dict[str, Any]) -> tuple[str, str]:
    if "sigma" not in facts:
        return "Noise level", "not known"
    level = facts["sigma"]
    bounds = ((2, "hardly any"), (8, "faint"), (20, "visible"), (40, "strong"), (256, "very strong"))
    words = next(word for bound, word in bounds if level < bound or bound == 256)
    title = "Noise level found" if facts.get("estimated", True) else "Noise level"
    return title, f"{level:.1f} <small>{words}</small>"


def time_card(facts: dict[str, Any]) -> tuple[str, str]:
    rate = facts["megapixels_per_second"]
    speed = f"{rate:g} megapixels/s" if rate >= 0.01 else ""  # which says nothing of a few pixels
    if facts.get("remembered"):
        speed = "from the run before"
    return "Time", f"{duration(facts['seconds'])} <small>{speed}</small>"


def _rounded(number: float, count: int) -> str:
    """A number with so many digits, and no power of ten in any that is shown here."""
    return f"{float(f'{number:.{count}g}'):g}"


def decibels(psnr: float, unit: str = " dB") -> str:
    return "equal" if psnr >= EQUAL else f"{psnr:.2f}{unit}"


def closeness_card(facts: dict[str, Any]) -> tuple[str, str]:
    return "Closeness", f"{decibels(facts['psnr'])} <small>PSNR, SSIM {facts['ssim']:.3f}</small>"


def latents_card(facts: dict[str, Any]) -> tuple[str, str]:
    size = file_size(facts["latent_bytes"])
    return "Latents", f"{_rounded(facts['bits_per_pixel'], 3)} <small>bits per pixel, {size}</small>"


def notes(facts: dict[str, Any]) -> str:
    notes = [*facts.get("notes", [])]
    if facts["pictures"] > 1:
        notes.append(f"all {facts['pictures']} pictures in the file are done; the first is shown")
    if facts.get("shown", 1) < 1:
        notes.append(f"shown here at {facts['shown']:.0%} of its size; the download has every pixel")
    return "".join(f"<p class=note>Note: {html.escape(note)}.</p>" for note in notes)


def reduced(facts: dict[str, Any]) -> str:
    """Of a picture that is only shown yet: whether it is so at its size."""
    size = facts.get("shown", 1)
    return f"<p class=note>Note: shown here at {size:.0%} of its size.</p>" if size < 1 else ""


def batch_status(state: BatchState) -> str:
    done, total, left, good = state.done, state.total, state.seconds_left, state.good
    parts = [
        f'<progress class=bar aria-label="Pictures done" max="{total}" value="{done + state.share:g}">'
        "</progress>"
    ]
    rate = state.megapixels / state.seconds if state.seconds > 0 else 0
    if state.finished:
        word = "Cancelled" if state.cancelled else "Done"
        text = f"{word}: {good} of {total} pictures in {duration(state.seconds)}"
        rest = f", {total - done} not started" if done < total else ""
        parts.append(f"<p class=result><b>{text}</b>{rest}</p>")
    else:
        text = f"{done} of {total}, now {html.escape(state.current)}"
        rest = "" if left is None else f", about {duration(left, guessed=True)} to go"
        parts.append(f"<p><b>{text}</b>{rest}</p>")
    if state.finished and good > len(state.thumbnails):
        parts.append(f"<p class=note>The first {len(state.thumbnails)} are shown; all are in the ZIP.</p>")
    if good:
        speed = f"{_rounded(rate, 2)} megapixels per second"
        parts.append(f"<p class=note>{speed}, reading and writing included</p>")
    if state.left_out:
        words = "file was" if state.left_out == 1 else "files were"
        parts.append(f"<p class=note>{state.left_out} other {words} left out of the ZIP</p>")
    if state.notes:
        shown = state.shown(state.notes)
        lines = "".join(f"<li>{html.escape(f'{name}: {note}')}</li>" for name, note in shown)
        parts.append(f"<div class=note><ul>{lines}</ul></div>")
    if state.failed:
        lines = "".join(f"<li>{html.escape(text)}</li>" for _, text in state.shown(state.failed))
        parts.append(f"<div class=failed><b>{len(state.failed)} failed</b><ul>{lines}</ul></div>")
    return "".join(parts)


def speed_bars(speeds: Sequence[tuple[str, float]]) -> str:
    """Megapixels per second of (model, number) as bars, the fastest first."""
    most = max(speed for _, speed in speeds)
    rows = "".join(
        f"<tr><td>{name}</td><td>{speed:g}</td>"
        f"<td><div style='width: {100 * speed / most:.1f}%'></div></td></tr>"
        for name, speed in sorted(speeds, key=lambda one: -one[1])
    )
    head = "<tr><th>Model</th><th>MP/s</th><th></th></tr>"
    return f"<table class='models speeds'>{head}{rows}</table>"


def comparison_table(result: Result) -> str:
    head = "".join(f"<th>{t}</th>" for t in ("Model", "Does", "PSNR, dB", "SSIM", "Time", "MP/s"))
    rows = "".join(
        f"<tr><td>{short(r['model'])}</td><td>{r['does']}</td><td>{decibels(r['psnr'], '')}</td>"
        f"<td>{r['ssim']:.4f}</td><td>{duration(r['seconds'])}</td><td>{r['megapixels_per_second']:g}</td></tr>"
        for r in result.facts["rows"]
    )
    note = "Higher PSNR and SSIM are closer to the original; MP/s are megapixels per second."
    if result.facts["cut"]:
        note += f" Measured on the middle {result.facts['width']} × {result.facts['height']} pixels."
    table = f"<table class=models><tr>{head}</tr>{rows}</table>"
    return f"<div class='scroll result'>{table}</div><p class=note>{note}</p>"


def duration(seconds: float, guessed: bool = False) -> str:
    if guessed:  # in whole seconds
        seconds = max(1, round(seconds))
        if seconds < 60:
            return f"{seconds} s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def file_size(size: int) -> str:
    if size >= 2**20 - 2**9:
        return f"{size / 2**20:.1f} MB"
    return f"{max(1, round(size / 1024))} KB"
