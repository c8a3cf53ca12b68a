"""Would the camera's ISO value help the noise estimate? ``python benchmarks/iso_prior.py``

The crops of PolyU carry the ISO value in their names. By ISO value, this prints the noise that is
there (standard deviation of noisy minus mean picture, of 255), the estimate of zenith-denoise, and
the largest ratio of estimate to noise: only where it is above 1 could a bound from the ISO value
help. The last line is the rank correlation of ISO value and noise over the crops.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from common import script_parser
from quality import POLYU

import zenith_ae
from zenith_ae.training.data import decode_rgb
from zenith_ae.training.evaluate import find_pairs


def ranks(values: list[float]) -> np.ndarray:
    """Ranks, those of equal values averaged."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def main() -> None:
    script_parser(__doc__).parse_args()
    if not POLYU.exists():
        raise SystemExit(f"{POLYU} is not there (set ZENITH_SHARED)")
    model = zenith_ae.load("zenith-denoise")
    found = defaultdict(list)
    for name, reads in find_pairs(POLYU):
        noisy, clean = (decode_rgb(read()) for read in reads)
        noise = float((noisy.astype(float) - clean).std())
        iso = int(Path(name).name.split("_")[3])
        found[iso].append((noise, float(model.estimate_sigma(noisy).mean())))
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
