"""How the web page compares models: what each is given, how long it takes, how near it comes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zenith_ae.engine import Progress, within
from zenith_ae.images import to_8_bits
from zenith_ae.metrics import psnr, ssim
from zenith_ae.training.degradations import blur

from .session import EQUAL

#: The largest picture that models are compared on; of larger ones the middle is taken.
COMPARE_PIXELS = 2**21
#: The largest that each is tried on before it is timed: of others a first time is little of the whole.
WARM_PIXELS = 2**19
#: What takes less is timed again meanwhile, since other programs disturb a short time most; the best counts.
TIMING_SECONDS = 0.4


def harmed(rgb: NDArray[np.uint8], task: str, sigma: float) -> NDArray[np.uint8]:
    """What a denoiser is given of a picture (H, W, 3): "noisy", always by the same noise, or "soft"."""
    rng = np.random.default_rng(0)
    if task == "soft":
        return to_8_bits(blur(rgb[None] / np.float32(255), rng)[0][0])
    noise = rng.standard_normal(rgb.shape, np.float32) * np.float32(sigma)
    return np.rint(np.clip(rgb + noise, 0, 255)).astype(np.uint8)


def does(task: str, sigma: float) -> str:
    """What a model does with what it is given, in words."""
    return {
        "clean": "encodes, decodes",
        "noisy": f"removes noise {sigma:g}",
        "soft": "removes a 3x3 blur",
    }[task]


def decibels(original: NDArray, result: NDArray) -> float:
    """PSNR of a result against the original, at most `EQUAL`, in as many digits as are shown."""
    return round(min(psnr(original, result), EQUAL), 2)


def fidelity(original: NDArray, result: NDArray) -> dict[str, float]:
    """The same, and SSIM."""
    return {"psnr": decibels(original, result), "ssim": round(ssim(original, result), 4)}


def timed(work: Callable[..., Any], picture: NDArray, report: Progress | None) -> tuple[Any, float]:
    """What ``work`` makes of a picture (H, W, 3), and the least time in seconds that it took."""
    work(picture if picture[..., 0].size <= WARM_PIXELS else picture[:64, :64])  # to be warm
    least, begin = math.inf, time.perf_counter()
    while least == math.inf or time.perf_counter() - begin < TIMING_SECONDS:
        start = time.perf_counter()
        result = work(picture, progress=report)
        least, report = min(least, time.perf_counter() - start), within(report, 1, 0)
    return result, least


def middle(rgb: NDArray) -> NDArray:
    """The middle of a picture that is larger than `COMPARE_PIXELS`."""
    height, width = rgb.shape[:2]
    scale = min(1.0, (COMPARE_PIXELS / (height * width)) ** 0.5)
    rows, columns = max(1, int(height * scale)), max(1, int(width * scale))
    y, x = (height - rows) // 2, (width - columns) // 2
    return np.ascontiguousarray(rgb[y : y + rows, x : x + columns])
