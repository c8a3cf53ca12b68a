"""Make the noisy photographs of examples/: ``python benchmarks/make_examples.py``.

The photographs are in the public domain (CC0) and come with scikit-image: "Chelsea" the cat by
Stefan van der Walt and "Coffee" by Rachel Michetti. Noise is added here, with fixed seeds, by
the degradations that the training uses; the clean pictures are written beside them for
comparison. Needs scikit-image.
"""

from __future__ import annotations

import numpy as np
from common import ROOT, script_parser
from PIL import Image
from skimage import data

from zenith_ae.images import to_8_bits
from zenith_ae.training import degradations

FOLDER = ROOT / "examples"


def main() -> None:
    script_parser(__doc__).parse_args()
    FOLDER.mkdir(exist_ok=True)
    cat = data.chelsea()[None].astype(np.float32) / 255
    noisy, _ = degradations.poisson_gaussian(
        cat, np.random.default_rng(1), gain=0.012, read=0.012, balance=(1.6, 1.0, 1.8)
    )
    Image.fromarray(to_8_bits(noisy[0])).save(FOLDER / "cat.png", optimize=True)
    Image.fromarray(to_8_bits(cat[0])).save(FOLDER / "cat.clean.png", optimize=True)

    coffee = data.coffee()[None].astype(np.float32) / 255
    noisy, _ = degradations.camera(
        coffee, np.random.default_rng(2), strength=14 / 255, luma_blur=0.4, chroma_blur=0.8, saturation=0.4
    )
    Image.fromarray(to_8_bits(noisy[0])).save(FOLDER / "coffee.jpg", quality=92, subsampling=0)


if __name__ == "__main__":
    main()
