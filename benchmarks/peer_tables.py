"""The tables of peers.py in markdown: one function a table, each from the rows of one run; then by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from common import ROOT, with_part

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
REFERENCE = "torch eager float32"

Run = dict[str, Any]
Row = dict[str, Any]
Lines = list[list[str]]
Key = tuple[str, int]  # topic and size
Tables = dict[Key, tuple[list[str], Lines]]  # head and lines of each

#: The page's sections of tables, in order.
TOPICS = {
    "denoise": "Tables: denoising",
    "taesd": "Tables: round trips",
    "models": "Tables: our models in torch",
    "memory": "Table: memory",
    "sizes": "Table: sizes",
    "threads": "Table: threads",
}
#: How the headings begin of tables that each run has for itself.
HEADINGS = {
    "denoise": "Denoising",
    "taesd": "{}, round trip of",
    "models": "Our models here and in torch,",
}


def write_page(runs: list[Run]) -> None:
    PAGE.write_text(with_part(PAGE.read_text(), BEGIN, END, markdown(runs)))


def markdown(runs: list[Run]) -> str:
    """What the runs say about the targets, the runs, and their tables by topic: each heading once."""
    return page(runs, [tables(run) for run in runs], targets(runs))


def tables(run: Run) -> Tables:
    """All tables of a run: (topic, size) -> its head and its lines."""
    found: Tables = {}
    for topic, make in (("taesd", taesd), ("denoise", denoise), ("models", models), ("memory", memory),
                        ("scaling", scaling)):  # fmt: skip
        rows = [row for row in run["rows"] if row["table"] == topic]
        if rows:
            found |= make(rows, run)
    return found


def page(runs: list[Run], found: list[Tables], aims: Lines) -> str:
    out = [f"## Targets\n\n{table(['target', 'aim', 'measured'], aims, left=2)}"] if aims else []
    out.append(f"## Runs\n\n{facts(runs)}")
    for topic, title in TOPICS.items():
        keys = sorted({key for one in found for key in one if key[0] == topic})
        if not keys:
            continue
        out.append(f"## {title}\n")
        if topic in SHARED:
            says, put_together = SHARED[topic]
            out.append(f"{says}\n\n{put_together(found, runs, keys[0])}")
            continue
        for key in keys:
            for number, (one, run) in enumerate(zip(found, runs, strict=True), 1):
                if key in one:
                    what = HEADINGS[topic].format(run["architecture"].upper())
                    name = f"{what} {key[1]}x{key[1]}, {limit(run)}, run {number}"
                    out.append(f"### {name}\n\n{table(*one[key], left=2 if topic == 'models' else 1)}")
    return "\n".join(out)


def beside(found: list[Tables], runs: list[Run], key: Key) -> str:
    """Tables of two columns in one: a line a contender, a column a run."""
    head, columns = "", {}
    for number, (one, run) in enumerate(zip(found, runs, strict=True), 1):
        if key in one:
            (head, unit), lines = one[key]
            columns[f"{unit}, {limit(run)}, run {number}"] = {name: cell for name, cell in lines}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    return table([head, *columns], [[n, *(c.get(n, "") for c in columns.values())] for n in names])


def below(found: list[Tables], runs: list[Run], key: Key) -> str:
    """Tables over sizes in one: a line a model and run; sizes that a run lacks are empty."""
    head, heads, entries = "", dict[str, None](), []
    for number, (one, run) in enumerate(zip(found, runs, strict=True), 1):
        if key in one:
            (head, *columns), lines = one[key]
            heads |= dict.fromkeys(columns)
            for name, *cells in lines:
                entries.append((name, run, number, dict(zip(columns, cells, strict=True))))
    sizes = sorted((h for h in heads if h[0].isdigit()), key=lambda h: int(h.split("x")[0]))
    columns = [*sizes, *(h for h in heads if h not in sizes)]
    order = list(dict.fromkeys(name for name, *_ in entries))
    entries.sort(key=lambda entry: (order.index(entry[0]), entry[1]["isa"] != "best"))
    lines = [[name, limit(run), str(number), *(cells.get(column, "") for column in columns)]
             for name, run, number, cells in entries]  # fmt: skip
    return table([head, "levels", "run", *columns], lines, left=2)


#: Topics whose tables all runs share: what they say, and how they are put together.
SHARED: dict[str, tuple[str, Callable[[list[Tables], list[Run], Key], str]]] = {
    "memory": (
        "Peak resident memory of a decode of 512x512 above that before, in MiB, and in parentheses its "
        f"ratio to that of {REFERENCE}.",
        beside,
    ),
    "sizes": ("Nanoseconds a pixel, of denoising and of round trips.", below),
    "threads": ("How many times as fast all threads are as one.", below),
}


def limit(run: Run) -> str:
    return "best levels" if run["isa"] == "best" else run["isa"]


def facts(runs: list[Run]) -> str:
    """Machine and versions, a table of the runs with what differs, and what was left out of them."""
    versions = {name: sorted({run["versions"][name] for run in runs}) for name in runs[0]["versions"]}
    same = ", ".join(f"{name} {' or '.join(values)}" for name, values in versions.items())
    machine = " or ".join(dict.fromkeys(
        f"{run['cpu']}, {run['cpus']} CPUs, {count(run['threads'])}; {run['system']}" for run in runs
    ))  # fmt: skip
    differing = [name for name, values in versions.items() if len(values) > 1]
    lines = [
        [str(number), run["date"], limit(run), run["level"], *(run["versions"][name] for name in differing),
         f"`{run['command'].removeprefix('python benchmarks/peers.py ')}`"]
        for number, run in enumerate(runs, 1)
    ]  # fmt: skip
    head = ["run", "date", "levels", "ours", *differing, "options of `benchmarks/peers.py`"]
    missing: dict[str, list[int]] = {}
    for number, run in enumerate(runs, 1):
        for name, why in run["left_out"].items():
            missing.setdefault(f"{name}: {why}", []).append(number)
    notes = "".join(f"* {what} (run{'s' * (len(where) > 1)} {', '.join(map(str, where))})\n"
                    for what, where in missing.items())  # fmt: skip
    left_out = f"\nLeft out:\n\n{notes}" if notes else ""
    return f"{machine}; {same}.\n\n{table(head, lines, left=len(head))}{left_out}"


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    align = ["---" if i < left else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, align, *rows)) + "\n"


def count(threads: int) -> str:
    return f"{threads} thread" + ("s" if threads > 1 else "")


def number(ms: float) -> str:
    return f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def spread(row: Row) -> float:
    return (row["high"] - row["low"]) / row["ms"]


def taesd(rows: list[Row], run: Run) -> Tables:
    found: Tables = {}
    for size in sorted({row["size"] for row in rows}):
        times = round_trips([row for row in rows if row["size"] == size])
        slow = times.get(REFERENCE, {}).get("both")
        lines = []
        for name, ms in times.items():
            lines.append([name, number(ms["encoder"]), number(ms["decoder"]), number(ms["both"]),
                          f"{slow / ms['both']:.1f}x" if slow else "", f"{ms['spread']:.0%}",
                          number(ms["best"])])  # fmt: skip
        head = ["contender", "encode ms", "decode ms", "both ms", f"faster than {REFERENCE}", "spread"]
        found["taesd", size] = [*head, "best both ms"], lines
    return found


def round_trips(rows: list[Row]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        entry = found.setdefault(row["contender"], {"both": 0.0, "spread": 0.0, "best": 0.0})
        entry[row["operation"]] = row["ms"]
        entry["both"] += row["ms"]
        entry["best"] += row["best"]
        entry["spread"] = max(entry["spread"], spread(row))
    return found


def models(rows: list[Row], run: Run) -> Tables:
    names = list(dict.fromkeys(row["contender"] for row in rows))
    lines = []
    for model, part in dict.fromkeys((row["model"], row["operation"]) for row in rows):
        ms = {r["contender"]: r["ms"] for r in rows if (r["model"], r["operation"]) == (model, part)}
        peers = [value for name, value in ms.items() if name.startswith("torch")]
        own = [value for name, value in ms.items() if not name.startswith("torch")]
        ratio = f"{min(peers) / min(own):.1f}x" if peers and own else ""
        lines.append([model, part, *(number(ms[n]) if n in ms else "" for n in names), ratio])
    head = ["model", "part", *(f"{name} ms" for name in names), "best torch / best ours"]
    return {("models", rows[0]["size"]): (head, lines)}


def denoise(rows: list[Row], run: Run) -> Tables:
    own = min((row["ms"] for row in rows if row["contender"].startswith("zenith")), default=None)
    lines = []
    for row in rows:
        lines.append([row["contender"], number(row["ms"]), f"{row['size'] ** 2 / row['ms'] / 1e3:.2f}",
                      f"{row['ms'] / own:.1f}x" if own else "", f"{spread(row):.0%}",
                      number(row["best"])])  # fmt: skip
    head = ["contender", "ms", "MP/s", "time / our fastest", "spread", "best ms"]
    return {("denoise", rows[0]["size"]): (head, lines)}


def memory(rows: list[Row], run: Run) -> Tables:
    slow = {row["contender"]: row["bytes"] for row in rows}.get(REFERENCE)
    lines = []
    for row in rows:
        ratio = f" ({row['bytes'] / slow:.2f})" if slow else ""
        lines.append([row["contender"], f"{row['bytes'] / 2**20:.0f}{ratio}"])
    return {("memory", 0): (["contender", "MiB"], lines)}


def scaling(rows: list[Row], run: Run) -> Tables:
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
    head = ["model", *(f"{size}x{size}" for size in sizes)]
    found: Tables = {("sizes", 0): ([*head, "slowest / fastest"], flat)}
    if both:
        found["threads", 0] = ["model", *(f"{size}x{size}" for size in both)], threads
    return found


# --- targets --------------------------------------------------------------------------------

Aim = tuple[str, str, str | None]  # what, how much is wanted, how much there is if it was measured


def targets(runs: list[Run]) -> Lines:
    """What this project set out to reach, beside what these runs say; 512x512 unless said otherwise.

    A target that several runs measured has the values of all of them.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run["architecture"] == "taesd":
            for topic, aims in AIMS.items():
                rows = [row for row in run["rows"] if row["table"] == topic]
                for what, wanted, value in aims(rows, run):
                    if value is not None:
                        found.setdefault((what, wanted), []).append(value)
    return [[what, wanted, ", ".join(values)] for (what, wanted), values in found.items()]


def taesd_aims(rows: list[Row], run: Run) -> Iterator[Aim]:
    times = round_trips([row for row in rows if row["size"] == 512])

    def fastest(start: str, key: str) -> float | None:
        return min(
            (ms[key] for name, ms in times.items() if f"{name} ".startswith(f"{start} ")), default=None
        )

    def ratio(peer: str, own: str, key: str = "both") -> str | None:
        a, b = fastest(peer, key), fastest(own, key)
        return f"{a / b:.1f}x ({number(a)} / {number(b)} ms)" if a and b else None

    lite, vino = "zenith-taef2-lite", "OpenVINO bf16"
    if run["isa"] == "avx2":
        yield (f"Lite round trip, avx2, against {REFERENCE} (its faster layout)", "10x",
               ratio(REFERENCE, lite))  # fmt: skip
        yield "Lite round trip, avx2, against ONNX Runtime without limit", "1x", ratio("ONNX Runtime", lite)
    if run["isa"] == "best":
        yield f"Lite round trip against {vino}", "8x", ratio(vino, lite)
        yield f"zenith-taef2 round trip against {vino}", "3x", ratio(vino, "zenith-taef2")
        yield f"nano decode against {vino}'s", "12x", ratio(vino, "zenith-taef2-nano", "decoder")
        for dtype in ("float32", "bf16"):
            against = ratio(f"OpenVINO {dtype}", f"zenith-ae, TAESD {dtype}")
            yield f"TAESD round trip against OpenVINO, {dtype}", "1x", against


def model_aims(rows: list[Row], run: Run) -> Iterator[Aim]:
    for name in dict.fromkeys(row["model"] for row in rows):
        parts = {row["operation"] for row in rows if row["model"] == name}
        parts -= {"denoiser"} if "white" in parts else set()  # one of the two is run
        for kind in ("eager", "compile"):
            peer = own = 0.0
            for part in parts:
                ms = {r["contender"]: r["ms"] for r in rows if (r["model"], r["operation"]) == (name, part)}
                peers = [v for k, v in ms.items() if k.startswith("torch") and kind in k]
                peer += min(peers, default=float("nan"))
                own += min((v for k, v in ms.items() if not k.startswith("torch")), default=float("nan"))
            value = f"{peer / own:.1f}x" if peer / own > 0 else None
            yield f"{name} against itself in torch {kind}, {limit(run)}", "2x", value


def denoise_aims(rows: list[Row], run: Run) -> Iterator[Aim]:
    ms = {row["contender"]: row["ms"] for row in rows}
    ffdnet = min((value for name, value in ms.items() if name.startswith("FFDNet, torch")), default=None)
    wanted = {"zenith-denoise-large": "1x", "zenith-denoise": "5x", "zenith-denoise-fast": "10x"}
    for name, aim in wanted.items():
        mine = {key: value for key, value in ms.items() if key.startswith(f"{name} ")}
        # An aim is for either kind of noise, which go through networks of their own.
        kinds = [[value for key, value in mine.items() if ("mottled" in key) is m] for m in (False, True)]
        own = max((min(values) for values in kinds if values), default=None)
        if own and ffdnet:
            yield f"{name}, 1 megapixel, against FFDNet in torch, {limit(run)}", aim, f"{ffdnet / own:.1f}x"
        if own and run["isa"] == "avx2" and aim != "1x":
            yield f"{name}, 1 megapixel, avx2", "500 ms or less", f"{own:.0f} ms"


def memory_aims(rows: list[Row], run: Run) -> Iterator[Aim]:
    sizes = {row["contender"]: row["bytes"] for row in rows}
    for name, size in sizes.items():
        if name.startswith("zenith") and REFERENCE in sizes:
            share = f"{size / sizes[REFERENCE]:.2f}"
            yield f"peak memory of a decode, {name}, {limit(run)}", "0.25 of torch eager's", share


def scaling_aims(rows: list[Row], run: Run) -> Iterator[Aim]:
    many = run["threads"]
    for name in dict.fromkeys(row["contender"] for row in rows):
        ms = {(row["size"], row["threads"]): row["ms"] for row in rows if row["contender"] == name}
        per = [value / size**2 for (size, threads), value in ms.items() if threads == many]
        slowest = f"{max(per) / min(per):.2f}"
        yield f"{name}, slowest against fastest time a pixel, {limit(run)}", "1.15", slowest
        if many > 1 and (512, 1) in ms and (512, many) in ms:
            gain = f"{ms[512, 1] / ms[512, many]:.2f}x"
            yield f"{name}, {many} threads against one, {limit(run)}", "1.85x", gain


AIMS: dict[str, Callable[[list[Row], Run], Iterator[Aim]]] = {
    "taesd": taesd_aims, "models": model_aims, "denoise": denoise_aims, "memory": memory_aims,
    "scaling": scaling_aims,
}  # fmt: skip
