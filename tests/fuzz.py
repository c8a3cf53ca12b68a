"""Feed damaged files to everything that reads files.

Starting from small valid pictures of every format, a latent file and a weights file, bytes are
flipped, cut, doubled, overwritten or moved. Each result must be read, or refused with an error of
our own, within seconds, and without much memory. Run it long by hand:

    python tests/fuzz.py 10000 --seed 1
"""

from __future__ import annotations

import argparse
import io
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import safetensors.numpy
from PIL import Image

from zenith_ae.camera_raw import rawpy_is_here
from zenith_ae.errors import ZenithError
from zenith_ae.heif import heif_is_here
from zenith_ae.image_writing import encode_picture, suffix_for
from zenith_ae.images import Picture, read_picture
from zenith_ae.latents import LatentFile, encode_latents, parse_latents
from zenith_ae.models.zoo import build
from zenith_ae.selftest import random_weights
from zenith_ae.weights import load_weights, save_weights

sys.path.insert(0, str(Path(__file__).parent))
from test_camera_raw import dng
from test_heif import heic

SECONDS = 5
MEMORY = 2**30  # bytes that the whole run may add
PIXELS = 2**20


def seeds() -> list[tuple[str, bytes]]:
    """Valid files: (kind, content)."""
    rng = np.random.default_rng(0)
    found = []
    grey = rng.integers(0, 256, (13, 21), np.uint8)
    rgb = rng.integers(0, 256, (13, 21, 3), np.uint8)
    rgba = rng.integers(0, 256, (13, 21, 4), np.uint8)
    deep = rng.integers(0, 65536, (13, 21)).astype(np.uint16)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"
    for name, pixels, options in [
        ("PNG", rgb, {"exif": exif, "dpi": (72, 72)}), ("PNG", rgba, {}), ("PNG", deep, {}),
        ("PNG", grey, {}), ("JPEG", rgb, {"exif": exif}), ("JPEG", rgb, {"progressive": True}),
        ("JPEG", grey, {}),
        ("WEBP", rgb, {"lossless": True, "exif": exif}), ("WEBP", rgba, {}), ("TIFF", rgb, {"exif": exif}),
        ("TIFF", deep, {"compression": "tiff_adobe_deflate"}), ("TIFF", rgb, {"compression": "tiff_lzw"}),
        ("BMP", rgb, {}), ("GIF", grey, {}), ("PPM", rgb, {}), ("PPM", deep, {}), ("JPEG2000", rgb, {}),
        ("ICO", rgba, {"sizes": [(21, 13)]}),
    ]:  # fmt: skip
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, name, **options)
        found.append(("picture", buffer.getvalue()))
    cmyk = io.BytesIO()
    Image.fromarray(rgb).convert("CMYK").save(cmyk, "JPEG")
    palette = io.BytesIO()
    Image.fromarray(rgb).convert("P").save(palette, "PNG", transparency=3)
    found += [("picture", cmyk.getvalue()), ("picture", palette.getvalue())]
    for layout, suffix, metadata in [
        ("RGB", ".png", {"dpi": (72.0, 72.0), "exif": exif.tobytes()}), ("RGBA", ".png", {}),
        ("LA", ".png", {}), ("RGB", ".tif", {"exif": exif.tobytes()}), ("RGBA", ".tif", {}),
        ("RGB", ".ppm", {}),
    ]:  # fmt: skip
        colour = rng.integers(0, 65536, (13, 21, len(layout))).astype(np.uint16)
        buffer = io.BytesIO()
        encode_picture(Picture(colour, layout, layout, metadata=metadata), buffer, suffix)
        found.append(("picture", buffer.getvalue()))
    if rawpy_is_here():
        found.append(("picture", dng()))
    if heif_is_here():
        found += [("picture", heic(rgb, exif=exif.tobytes())), ("picture", heic(rgb.astype(np.uint16) * 257))]
    z = rng.standard_normal((1, 4, 2, 3), dtype=np.float32)
    found.append(("latents", encode_latents(LatentFile(z, "a model", "0" * 16, 13, 21), "fp16")))
    with tempfile.TemporaryDirectory() as folder:
        weights = random_weights(build("zenith-taesd-nano", 4))
        own = Path(folder, "own.safetensors")
        save_weights(own, weights.config, weights.tensors)
        found.append(("weights", own.read_bytes()))
    vanilla = random_weights(build("taesd")).part("encoder")
    found.append(("weights", safetensors.numpy.save({k: v.astype(np.float16) for k, v in vanilla.items()})))
    return found


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """One to eight random changes, most of them near the beginning, where the structure is."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        if not out:
            break
        reach = len(out) if rng.random() < 0.4 else min(len(out), 400)
        at = int(rng.integers(reach))
        length = int(min(rng.geometric(0.15), len(out) - at))
        match rng.integers(6):
            case 0:
                out[at] ^= 1 << int(rng.integers(8))
            case 1:
                out[at : at + length] = rng.bytes(length)
            case 2:
                out[at : at + length] = bytes([int(rng.choice([0, 0x7F, 0x80, 0xFF]))]) * length
            case 3:
                del out[at : at + length]
            case 4:
                out[at:at] = out[at : at + length]
            case _:
                del out[at:]
    return bytes(out)


def read(kind: str, data: bytes) -> None:
    if kind == "latents":
        parse_latents(data)
    elif kind == "weights":
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            file.write(data)
            file.flush()
            load_weights(Path(file.name))
    else:
        picture = read_picture(data, max_pixels=PIXELS)
        encode_picture(picture, io.BytesIO(), suffix_for(picture.format))


class TooSlow(Exception):  # noqa: N818
    pass


def run(count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Returns how many were read or refused, and a line for each that went wrong."""

    def alarm(*_: object) -> None:
        raise TooSlow

    counts: Counter[str] = Counter()
    wrong: list[str] = []
    files = seeds()
    for kind, data in files:
        read(kind, data)  # they are valid
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = signal.signal(signal.SIGALRM, alarm)
    try:
        for i in range(count):
            rng = np.random.default_rng((seed, i))
            kind, data = files[int(rng.integers(len(files)))]
            damaged = mutate(data, rng)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                read(kind, damaged)
                counts[f"{kind} read"] += 1
            except ZenithError as error:
                counts[f"{kind} refused"] += 1
                if "\n" in str(error) or not str(error):
                    wrong.append(f"seed {seed}, input {i} ({kind}): message {str(error)!r}")
            except Exception as error:  # whatever comes is what we look for
                wrong.append(f"seed {seed}, input {i} ({kind}): {type(error).__name__}: {error}")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, old)
    unit = 1 if sys.platform == "darwin" else 1024
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit
    if grown > MEMORY:
        wrong.append(f"memory grew by {grown / 2**20:.0f} MiB")
    return counts, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    counts, wrong = run(arguments.count, arguments.seed)
    print(", ".join(f"{v} {k}" for k, v in sorted(counts.items())), f"in {time.monotonic() - start:.0f} s")
    print("\n".join(wrong) or "nothing went wrong")
    sys.exit(bool(wrong))
