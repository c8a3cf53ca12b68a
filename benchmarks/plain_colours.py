"""What the shipped autoencoders make of plain colours, as of scans and screenshots; prints a Markdown table.

Round trips of pictures of one colour: by how much the worst pixel is off, of 255, and in brackets how many
pixels are off by more than 16, and by how much half of them are off at most. The worst lie in corners.

    python benchmarks/plain_colours.py [MODEL...]
"""

from __future__ import annotations

import click
import numpy as np
from PIL import Image

import zenith_ae

COLOURS = ("white", "black", "grey", "red", "lime", "blue")
SIZES = ((64, 64), (256, 256), (451, 300))  # width and height
PLAIN = 16


@click.command(help=__doc__)
@click.argument("models", nargs=-1)
def main(models: tuple[str, ...]) -> None:
    print(f"| model | {' | '.join(COLOURS)} |\n|---|{'--:|' * len(COLOURS)}")
    for name in models or ("zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano"):
        autoencoder = zenith_ae.load(name)
        cells = []
        for colour in COLOURS:
            errors = []
            for size in SIZES:
                picture = np.asarray(Image.new("RGB", size, colour))
                off = np.abs(autoencoder.roundtrip(picture).astype(int) - picture).max(axis=2)
                errors.append((int(off.max()), int((off > PLAIN).sum()), int(np.median(off))))
            cells.append("{} ({}, {})".format(*max(errors)))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
