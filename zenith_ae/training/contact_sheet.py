"""The places where a model does worst, side by side: what an average does not show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ..errors import ConfigError, OutputError
from ..files import visible
from ..image_writing import write_picture
from ..images import from_pil, to_8_bits

Floats = NDArray[np.float32]

CROP = 96  # pixels of the picture, each way
ZOOM = 2  # times, by repetition: what is seen is what is there
GAIN = 4  # of the difference, around mid-grey
GAP = 6
CAPTION = 16
LONGEST_NAME = 50  # letters that leave room for the rest of a caption
ROW = CAPTION + CROP * ZOOM + GAP
MOST_IN_WEBP = (16383 - GAP) // ROW


@dataclass(frozen=True)
class _Place:
    error: float  # mean square
    caption: str
    views: tuple[Floats, ...]  # input, result, original, (h, w, 3) or (h, w) each


class ContactSheet:
    """An observer of `evaluate_model` that keeps the worst crop of each of the worst pictures.

    The crop of 96 x 96 pixels with the largest squared error stands for its picture. A row of the
    sheet shows it at 200 %: the input where it is not the original itself, the result, the
    original, and four times their difference around grey.

    Parameters
    ----------
    path : the file to write, .png, .webp or .jpg.
    count : rows.
    case : what to look at ("sigma 25", "other's decoder", ...); by default the first that comes.
    overwrite : replace the file, once there is a sheet, where it exists.

    Raises
    ------
    OutputError
        If the suffix is none of these, the format too small for so many, or the file exists and is not to be
        replaced.
    ConfigError
        At the second picture, if there is no such case.
    """

    def __init__(
        self, path: str | Path, count: int = 8, case: str | None = None, overwrite: bool = False
    ) -> None:
        self.path, self.count, self.case, self.overwrite = Path(path), count, case, overwrite
        if self.path.suffix.lower() not in (".png", ".webp", ".jpg", ".jpeg"):
            raise OutputError(f"{path}: a contact sheet is a .png, .webp or .jpg file")
        if self.path.suffix.lower() == ".webp" and count > MOST_IN_WEBP:
            raise OutputError(f"{path}: a .webp holds no more than {MOST_IN_WEBP} of the worst; use .png")
        if self.path.exists() and not overwrite:
            raise OutputError(f"{path}: exists; give --overwrite, or another name")
        self.places: list[_Place] = []
        self._cases: set[str] = set()  # that came

    def __call__(self, name: str, case: str, original: Floats, result: Floats, given: Floats) -> None:
        self.case = self.case or case
        if case in self._cases and self.case not in self._cases:  # a second picture comes
            self._nothing()
        self._cases.add(case)
        if case != self.case:
            return
        top, left, error = _worst_place(np.atleast_3d((result - original) ** 2).mean(axis=2))
        views = (result, original) if given is original else (given, result, original)
        crops = tuple(view[top : top + CROP, left : left + CROP].copy() for view in views)
        decibel = -10 * np.log10(max(error, 1e-10))
        name = visible(name)
        name = name if len(name) <= LONGEST_NAME else f"...{name[-LONGEST_NAME:]}"
        caption = f"{name}, {case}, at {left}, {top}: {decibel:.1f} dB"
        place = _Place(np.inf if np.isnan(error) else error, caption, crops)
        self.places = sorted([*self.places, place], key=lambda place: -place.error)
        del self.places[self.count :]

    def _nothing(self) -> NoReturn:
        cases = ", ".join(map(repr, sorted(self._cases))) or "none"
        raise ConfigError(f"{self.path}: nothing to show, there is no case {self.case!r}; there are: {cases}")

    def save(self) -> None:
        """Write the sheet, whole or not at all.

        Raises
        ------
        ConfigError
            If there is nothing to show (no such case).
        OutputError
            If the file cannot be written.
        """
        if not self.places:
            self._nothing()
        font = ImageFont.load_default()
        columns = len(self.places[0].views) + 1
        cell = CROP * ZOOM
        sheet = Image.new("RGB", (columns * (cell + GAP) + GAP, len(self.places) * ROW + GAP), "white")
        draw = ImageDraw.Draw(sheet)
        for i, place in enumerate(self.places):
            top = GAP + i * ROW
            draw.text((GAP, top), place.caption, fill="black", font=font)
            *_, result, original = place.views
            for k, view in enumerate((*place.views, 0.5 + GAIN * (result - original))):
                pixels = to_8_bits(np.nan_to_num(view.astype(np.float32)))
                large = Image.fromarray(pixels.repeat(ZOOM, axis=0).repeat(ZOOM, axis=1))
                sheet.paste(large, (GAP + k * (cell + GAP), top + CAPTION))
        write_picture(from_pil(sheet), self.path, quality=90, overwrite=self.overwrite)


def _worst_place(error: NDArray) -> tuple[int, int, float]:
    """Where (top, left) the crop with the largest mean lies, to 8 pixels, and that mean."""
    h, w = error.shape
    height, width = min(CROP, h), min(CROP, w)
    total = np.zeros((h + 1, w + 1))
    total[1:, 1:] = error.astype(np.float64).cumsum(axis=0).cumsum(axis=1)
    tops, lefts = (np.unique([*range(0, n + 1, 8), n]) for n in (h - height, w - width))  # the last one too
    bottoms, rights = tops + height, lefts + width
    sums = (
        total[np.ix_(bottoms, rights)] - total[np.ix_(tops, rights)]
        - total[np.ix_(bottoms, lefts)] + total[np.ix_(tops, lefts)]
    )  # fmt: skip
    i, j = np.unravel_index(np.argmax(sums), sums.shape)
    return int(tops[i]), int(lefts[j]), float(sums[i, j] / (height * width))
