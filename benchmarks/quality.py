"""Quality of the shipped weights: ``python benchmarks/quality.py [--json FILE]``.

Everything that the README and the model cards say about quality is printed by this command, from
the weights in weights/ and the evaluation sets in ``$ZENITH_SHARED`` (or ../shared beside the
checkout): CBSD68 for Gaussian and shot noise, blur and round trips, PolyU crops for real camera
noise, TAEF2's own files as the reference for autoencoders, and drawn pictures. Protocols:
`zenith_ae.training.evaluate`. What is not there is left out, with a word.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import SHARED, script_parser
from PIL import Image

import zenith_ae
from zenith_ae.pipelines import PASSES
from zenith_ae.training import drawings
from zenith_ae.training.evaluate import evaluate_model, format_table
from zenith_ae.weights import available_weights

CBSD68 = SHARED / "data" / "eval_cbsd68.tar"
POLYU = SHARED / "data" / "eval_polyu100.tar"
TEACHER = SHARED / "teachers" / "taef2_encoder.safetensors"


def several(passes: int) -> str:
    return f", {passes} passes" if passes > 1 else ""


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("models", nargs="*", help="names or weights files [default: all that ship]")
    parser.add_argument("--limit", type=int, help="measure only the first pictures of each set")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    missing = [path for path in (CBSD68, POLYU, TEACHER) if not path.exists()]
    for path in missing:
        print(f"left out: {path} is not there (set ZENITH_SHARED)", file=sys.stderr)
    if CBSD68 in missing and POLYU in missing:
        raise SystemExit("nothing to measure with")

    results: dict[str, dict[str, Any]] = {}

    def measure(title: str, model: Any, source: Path, **keywords: Any) -> None:
        if source in missing:
            return
        results[title] = evaluate_model(model, source, limit=options.limit, **keywords)
        print(f"\n{title}\n{format_table(results[title])}", flush=True)

    folder = tempfile.TemporaryDirectory(prefix="drawn.")
    drawn = Path(folder.name)
    for i in range(24):  # of another seed than those of a training
        Image.fromarray(drawings.draw(i, seed=1)).save(drawn / f"{i:02}.png")
    teacher = None if TEACHER in missing else zenith_ae.load(TEACHER)
    for name in options.models or sorted(available_weights()):
        model = zenith_ae.load(name)
        if model.engine.weights.metadata.get("task") == "blur":
            for passes in PASSES:
                title = f"{name}: CBSD68, blurred, and as it is{several(passes)}"
                measure(title, model, CBSD68, degradations=("box", "none"), passes=passes)
        elif isinstance(model, zenith_ae.Denoiser):
            for passes in PASSES:
                title = f"{name}: CBSD68, Gaussian noise{several(passes)}"
                measure(title, model, CBSD68, passes=passes)
            for kind, what in (("file", "files"), ("jpeg", "JPEG files of quality 80")):
                measure(f"{name}: CBSD68, Gaussian noise in {what}", model, CBSD68, degradations=(kind,))
            harm = {"sigmas": (76.5,), "degradations": ("gaussian", "shot", "none")}
            measure(f"{name}: CBSD68, heavy noise, shot noise, and as it is", model, CBSD68, **harm)
            measure(f"{name}: drawn pictures as they are", model, drawn, degradations=("none",))
            measure(f"{name}: CBSD68 in grey, sigma 25", model, CBSD68, sigmas=(25,), grey=True)
            for passes in (1, 4):
                title = f"{name}: PolyU, real camera noise, auto{several(passes)}"
                measure(title, model, POLYU, passes=passes)
        else:
            same_space = (
                teacher is not None and teacher.config.latent_channels == model.config.latent_channels
            )
            measure(f"{name}: CBSD68, other = TAEF2", model, CBSD68, other=teacher if same_space else None)
    if options.json:
        options.json.write_text(
            json.dumps({title: r["mean"] for title, r in results.items()}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
