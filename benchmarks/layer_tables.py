"""Write the layer tables of docs/layers.md from the zoo: ``python benchmarks/layer_tables.py``.

With ``--check`` nothing is written and the exit code says whether the page is up to date.
"""

from __future__ import annotations

import sys
from fractions import Fraction

from common import ROOT, script_parser, with_part

from zenith_ae.models import spec, zoo
from zenith_ae.weights import load_weights

PAGE = ROOT / "docs" / "layers.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def resolution(scale: Fraction) -> str:
    return str(scale) if scale.denominator == 1 else f"1/{scale.denominator}"


def table(config: spec.ModelConfig, part: str) -> list[str]:
    layers, cin = config.parts[part], config.in_channels(part)
    size = 512 // config.factor if part == "decoder" else 512
    relative = Fraction(1, config.factor) if part == "decoder" else Fraction(1)
    lines = ["| # | layer | channels | resolution | parameters | MMAC |", "|--:|---|--:|--:|--:|--:|"]
    for step in spec.trace(layers, cin):
        macs = float(step.macs * size * size) / 1e6
        lines.append(
            f"| {step.index} | `{step.layer}` | {step.cout} | {resolution(step.scale * relative)} "
            f"| {step.params:,} | {macs:,.1f} |"
        )
    total = spec.mac_count(layers, cin, size, size) / 1e9
    reach = "the whole picture"
    if not any(map(spec.is_global, layers)):
        probe = 64 * spec.alignment(layers) * 8
        out = int(probe * spec.out_scale(layers))
        lo, hi = spec.required_input(layers, out, out + 1)
        reach = f"{hi - lo} input pixels"
    lines.append(
        f"\n{spec.parameter_count(layers):,} parameters, {total:.2f} GMAC for a 512x512 picture; "
        f"an output pixel sees {reach}; tiles start at multiples of {spec.alignment(layers)}.\n"
    )
    return lines


def tables() -> str:
    lines, seen = [], dict[object, str]()
    for name, (_, channels) in zoo.ARCHITECTURES.items():
        config = zoo.build(name)
        twin = seen.setdefault((tuple(config.parts.items()), channels), name)
        if twin != name:
            lines.append(f"## `{name}`\n\nThe layers of [`{twin}`](#{twin}).\n")
            continue
        lines.append(
            f"## `{name}`\n\n{config.description}."
            + (f" {channels} latent channels by default.\n" if channels else "\n")
        )
        for part in config.parts:
            lines += [f"**{part}**\n", *table(config, part)]
    lines += ["## Experts\n", "Of the denoisers that ship, beside the layers above.\n"]
    for name in ("zenith-denoise", "zenith-denoise-fast", "zenith-denoise-large"):
        config = load_weights(name).config
        lines += [f"**white** of `{name}`\n", *table(config, "white")]
    lines += ["**sorter** of all\n", *table(config, "sorter")]
    return "\n".join(lines)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if out of date")
    options = parser.parse_args()
    page = PAGE.read_text()
    fresh = with_part(page, BEGIN, END, tables())
    if options.check:
        sys.exit(
            0 if fresh == page else "docs/layers.md is out of date: run python benchmarks/layer_tables.py"
        )
    PAGE.write_text(fresh)


if __name__ == "__main__":
    main()
