"""The tables of peers.py in markdown: one function a table, each from the rows of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
REFERENCE = "torch eager float32"

Run = dict[str, Any]
Row = dict[str, Any]


def write_page(runs: list[Run]) -> None:
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{markdown(runs)}\n{END}{rest.split(END)[1]}")


def markdown(runs: list[Run]) -> str:
    """All tables of all runs, one section a level, and what they say about the targets."""
    out = []
    for run in runs:
        out += [f"## {title(run)}\n", facts(run)]
        for name, make in (("taesd", taesd), ("models", models), ("denoise", denoise), ("memory", memory),
                           ("scaling", scaling)):  # fmt: skip
            rows = [row for row in run["rows"] if row["table"] == name]
            if rows:
                out.append(make(rows, run))
        if run["left_out"]:
            out.append("Left out:\n\n" + "\n".join(f"* {k}: {v}" for k, v in run["left_out"].items()) + "\n")
    found = targets(runs)
    if found:
        out += ["## Targets\n", table(["target", "aim", "measured"], found, left=2)]
    return "\n".join(out)


def title(run: Run) -> str:
    """What a run measured, at which level, so that no two headings of a page are the same."""
    named = {
        "models": "our models in torch",
        "denoise": "denoising",
        "memory": "memory",
        "scaling": "sizes and threads",
    }
    sizes = sorted({row["size"] for row in run["rows"] if row["table"] == "taesd"})
    parts = [f"{run['architecture'].upper()} at {', '.join(map(str, sizes))}"] if sizes else []
    parts += [text for name, text in named.items() if any(row["table"] == name for row in run["rows"])]
    limit = "each at its best level" if run["isa"] == "best" else f"limited to {run['isa']}"
    text = f"{'; '.join(parts)}: {limit}, {count(run['threads'])}"
    return text[0].upper() + text[1:]


def facts(run: Run) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in run["versions"].items())
    return (
        f"{run['cpu']}, {run['cpus']} CPUs, {count(run['threads'])}, our level {run['level']}; "
        f"{run['system']}; {versions}; {run['date']}.\n\n```sh\n{run['command']}\n```\n"
    )


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    align = ["---" if i < left else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, align, *rows)) + "\n"


def count(threads: int) -> str:
    return f"{threads} thread" + ("s" if threads > 1 else "")


def number(ms: float) -> str:
    return f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def spread(row: Row) -> float:
    return (row["high"] - row["low"]) / row["ms"]


def taesd(rows: list[Row], run: Run) -> str:
    out = []
    for size in sorted({row["size"] for row in rows}):
        times = round_trips([row for row in rows if row["size"] == size])
        slow = times.get(REFERENCE, {}).get("both")
        lines = []
        for name, ms in times.items():
            lines.append([name, number(ms["encoder"]), number(ms["decoder"]), number(ms["both"]),
                          f"{slow / ms['both']:.1f}x" if slow else "", f"{ms['spread']:.0%}",
                          number(ms["best"])])  # fmt: skip
        head = ["contender", "encode ms", "decode ms", "both ms", f"faster than {REFERENCE}", "spread"]
        out.append(
            f"### {run['architecture'].upper()}, round trip of {size}x{size}\n\n"
            + table([*head, "best both ms"], lines)
        )
    return "\n".join(out)


def round_trips(rows: list[Row]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        entry = found.setdefault(row["contender"], {"both": 0.0, "spread": 0.0, "best": 0.0})
        entry[row["operation"]] = row["ms"]
        entry["both"] += row["ms"]
        entry["best"] += row["best"]
        entry["spread"] = max(entry["spread"], spread(row))
    return found


def models(rows: list[Row], run: Run) -> str:
    names = list(dict.fromkeys(row["contender"] for row in rows))
    lines = []
    for model, part in dict.fromkeys((row["model"], row["operation"]) for row in rows):
        ms = {r["contender"]: r["ms"] for r in rows if (r["model"], r["operation"]) == (model, part)}
        peers = [value for name, value in ms.items() if name.startswith("torch")]
        own = [value for name, value in ms.items() if not name.startswith("torch")]
        ratio = f"{min(peers) / min(own):.1f}x" if peers and own else ""
        lines.append([model, part, *(number(ms[n]) if n in ms else "" for n in names), ratio])
    head = ["model", "part", *(f"{name} ms" for name in names), "best torch / best ours"]
    return f"### Our models here and in torch, {rows[0]['size']}x{rows[0]['size']}\n\n" + table(
        head, lines, left=2
    )


def denoise(rows: list[Row], run: Run) -> str:
    own = min((row["ms"] for row in rows if row["contender"].startswith("zenith")), default=None)
    lines = []
    for row in rows:
        lines.append([row["contender"], number(row["ms"]), f"{row['size'] ** 2 / row['ms'] / 1e3:.2f}",
                      f"{row['ms'] / own:.1f}x" if own else "", f"{spread(row):.0%}",
                      number(row["best"])])  # fmt: skip
    head = ["contender", "ms", "MP/s", "time / our fastest", "spread", "best ms"]
    return f"### Denoising {rows[0]['size']}x{rows[0]['size']}\n\n" + table(head, lines)


def memory(rows: list[Row], run: Run) -> str:
    slow = {row["contender"]: row["bytes"] for row in rows}.get(REFERENCE)
    lines = [[row["contender"], f"{row['bytes'] / 2**20:.0f}", f"{row['bytes'] / slow:.2f}" if slow else ""]
             for row in rows]  # fmt: skip
    title = "### Peak resident memory of a decode of 512x512, above that before"
    return f"{title}\n\n" + table(["contender", "MiB", f"of {REFERENCE}"], lines)


def scaling(rows: list[Row], run: Run) -> str:
    names = list(dict.fromkeys(row["contender"] for row in rows))
    many = run["threads"]
    ms = {(row["contender"], row["size"], row["threads"]): row["ms"] for row in rows}
    sizes = sorted({row["size"] for row in rows if row["threads"] == many})
    both = [size for size in sizes if many > 1 and (names[0], size, 1) in ms]
    flat, threads = [], []
    for name in names:
        per = [ms[name, size, many] / size**2 * 1e6 for size in sizes]
        flat.append([name, *(f"{value:.0f}" for value in per), f"{max(per) / min(per):.2f}"])
        threads.append([name, *(f"{ms[name, size, 1] / ms[name, size, many]:.2f}x" for size in both)])
    head = ["model", *(f"{size}x{size}" for size in sizes), "slowest / fastest"]
    text = "### Nanoseconds a pixel over sizes (denoising, round trips)\n\n" + table(head, flat)
    if both:
        head = ["model", *(f"{size}x{size}" for size in both)]
        text += f"\n### {many} threads against one\n\n" + table(head, threads)
    return text


# --- targets --------------------------------------------------------------------------------


def targets(runs: list[Run]) -> list[list[str]]:
    """What this project set out to reach, beside what these runs say; 512x512 unless said otherwise.

    A target that several runs measured has the values of all of them.
    """
    found: list[list[str]] = []

    def add(what: str, aim: str, value: str | None) -> None:
        same = next((row for row in found if row[0] == what), None)
        if value is not None and same:
            same[2] += f", {value}"
        elif value is not None:
            found.append([what, aim, value])

    for run in runs:
        if run["architecture"] != "taesd":
            continue
        level = "best levels" if run["isa"] == "best" else run["isa"]
        times = round_trips([r for r in run["rows"] if r["table"] == "taesd" and r["size"] == 512])

        def fastest(start: str, key: str = "both", times: Any = times) -> float | None:
            return min(
                (ms[key] for name, ms in times.items() if f"{name} ".startswith(f"{start} ")), default=None
            )

        def ratio(peer: str, own: str, key: str = "both", fastest: Any = fastest) -> str | None:
            a, b = fastest(peer, key), fastest(own, key)
            return f"{a / b:.1f}x ({number(a)} / {number(b)} ms)" if a and b else None

        if run["isa"] == "avx2":
            add(
                "Lite round trip, avx2, against torch eager float32 (its faster layout)",
                "10x",
                ratio(REFERENCE, "zenith-taef2-lite"),
            )
            add("Lite round trip, avx2, against ONNX Runtime without limit", "1x",
                ratio("ONNX Runtime", "zenith-taef2-lite"))  # fmt: skip
        if run["isa"] == "best":
            add("Lite round trip against OpenVINO bf16", "8x", ratio("OpenVINO bf16", "zenith-taef2-lite"))
            add("zenith-taef2 round trip against OpenVINO bf16", "3x", ratio("OpenVINO bf16", "zenith-taef2"))
            add("nano decode against OpenVINO bf16's", "12x",
                ratio("OpenVINO bf16", "zenith-taef2-nano", "decoder"))  # fmt: skip
            for dtype in ("float32", "bf16"):
                add(f"TAESD round trip against OpenVINO, {dtype}", "1x",
                    ratio(f"OpenVINO {dtype}", f"zenith-ae, TAESD {dtype}"))  # fmt: skip
        rows = [row for row in run["rows"] if row["table"] == "models"]
        for name in dict.fromkeys(row["model"] for row in rows):
            for kind in ("eager", "compile"):
                total = {"peer": 0.0, "own": 0.0}
                for part in {row["operation"] for row in rows if row["model"] == name}:
                    ms = {
                        r["contender"]: r["ms"] for r in rows if (r["model"], r["operation"]) == (name, part)
                    }
                    peers = [v for k, v in ms.items() if k.startswith("torch") and kind in k]
                    own = [v for k, v in ms.items() if not k.startswith("torch")]
                    total["peer"] += min(peers, default=float("nan"))
                    total["own"] += min(own, default=float("nan"))
                value = total["peer"] / total["own"]
                add(
                    f"{name} against itself in torch {kind}, {level}",
                    "2x",
                    f"{value:.1f}x" if value > 0 else None,
                )
        ms = {row["contender"]: row["ms"] for row in run["rows"] if row["table"] == "denoise"}
        ffdnet = min((value for name, value in ms.items() if name.startswith("FFDNet, torch")), default=None)
        for name, aim in (("zenith-denoise", "5x"), ("zenith-denoise-fast", "10x")):
            own = min((value for key, value in ms.items() if key.startswith(f"{name} ")), default=None)
            if own and ffdnet:
                add(f"{name}, 1 megapixel, against FFDNet in torch, {level}", aim, f"{ffdnet / own:.1f}x")
            if own and run["isa"] == "avx2":
                add(f"{name}, 1 megapixel, avx2", "500 ms or less", f"{own:.0f} ms")
        sizes = {row["contender"]: row["bytes"] for row in run["rows"] if row["table"] == "memory"}
        for name, size in sizes.items():
            if name.startswith("zenith") and REFERENCE in sizes:
                add(f"peak memory of a decode, {name}, {level}", "0.25 of torch eager's",
                    f"{size / sizes[REFERENCE]:.2f}")  # fmt: skip
        rows = [row for row in run["rows"] if row["table"] == "scaling"]
        for name in dict.fromkeys(row["contender"] for row in rows):
            per = [
                r["ms"] / r["size"] ** 2
                for r in rows
                if (r["contender"], r["threads"]) == (name, run["threads"])
            ]
            add(
                f"{name}, slowest against fastest time a pixel, {level}", "1.15", f"{max(per) / min(per):.2f}"
            )
            ms = {(r["size"], r["threads"]): r["ms"] for r in rows if r["contender"] == name}
            if run["threads"] > 1 and (512, 1) in ms and (512, run["threads"]) in ms:
                add(f"{name}, {run['threads']} threads against one, {level}", "1.85x",
                    f"{ms[512, 1] / ms[512, run['threads']]:.2f}x")  # fmt: skip
    return found
