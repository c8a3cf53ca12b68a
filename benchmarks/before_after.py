"""The README's picture: ``python benchmarks/before_after.py`` denoises examples/cat.png.

Left noisy, right what ``zenith-ae denoise examples/cat.png`` makes of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

import zenith_ae

ROOT = Path(__file__).parents[1]


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with Image.open(ROOT / "examples" / "cat.png") as noisy:
        noisy.load()
        clean = zenith_ae.load("zenith-denoise", dtype="float32")(noisy)
        width, height = noisy.size
        gap = 6
        pair = Image.new("RGB", (2 * width + gap, height), "white")
        pair.paste(noisy, (0, 0))
        pair.paste(clean, (width + gap, 0))
    folder = ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    pair.save(folder / "before_after.webp", quality=90, method=6)


if __name__ == "__main__":
    main()
