"""Would the camera's ISO value help the noise estimate? ``python benchmarks/iso_prior.py``

The crops of PolyU carry the ISO value in their names. By ISO value, this prints the noise that is
there (standard deviation of noisy minus mean picture, of 255), the estimate of zenith-denoise, and
the largest ratio of estimate to noise: only where it is above 1 could a bound from the ISO value
help. The last line is the rank correlation of ISO value and noise over the crops.
"""

from __future__ import annotations

import argparse
import io
import os
import tarfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from PIL import Image

import zenith_ae

SHARED = Path(os.environ.get("ZENITH_SHARED", Path(__file__).parents[2] / "shared"))
POLYU = SHARED / "data" / "eval_polyu100.tar"


def ranks(values: list[float]) -> np.ndarray:
    """Ranks, those of equal values averaged."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    if not POLYU.exists():
        raise SystemExit(f"{POLYU} is not there (set ZENITH_SHARED)")
    model = zenith_ae.load("zenith-denoise")
    found = defaultdict(list)
    with tarfile.open(POLYU) as archive:
        pictures = {
            Path(entry.name).name: np.asarray(Image.open(io.BytesIO(archive.extractfile(entry).read())))
            for entry in archive if entry.isfile()
        }  # fmt: skip
    for name, noisy in pictures.items():
        if name.endswith("_real.JPG"):
            clean = pictures[name.replace("_real", "_mean")]
            noise = float((noisy.astype(float) - clean).std())
            found[int(name.split("_")[3])].append((noise, float(model.estimate_sigma(noisy).mean())))
    print("| ISO | crops | noise | estimate | largest estimate / noise |\n|--:|--:|--:|--:|--:|")
    for iso, pairs in sorted(found.items()):
        noise, estimate = np.mean(pairs, axis=0)
        largest = max(e / n for n, e in pairs)
        print(f"| {iso} | {len(pairs)} | {noise:.2f} | {estimate:.2f} | {largest:.2f} |")
    flat = [(iso, noise) for iso, pairs in found.items() for noise, _ in pairs]
    correlation = np.corrcoef(*(ranks(list(column)) for column in zip(*flat, strict=True)))[0, 1]
    print(f"\nrank correlation of ISO value and noise: {correlation:.2f}")


if __name__ == "__main__":
    main()
