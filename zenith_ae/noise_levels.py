"""What a picture's pixels say of its noise, beside what a network estimates.

An estimator looks at several hundred pixels at a time. What only the whole picture tells, that its noise is
the same everywhere, that it is drawn or clipped, how loud the noise is where it is calm, is found here by
plain statistics. Levels are standard deviations in units of 0..255, one for each cell of 8 x 8 pixels.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .batches import LUMA, full_scale
from .pixels import count_clipped, enlarge_rows, patches, roughness

# --- whether a level is the same everywhere (`make_even`)
# Mean of the absolute logarithms of local estimates over their median: up to the first they are of one level
# (0.02 to 0.05), from the second on they are not.
_ERRORS = (0.05, 0.08)
# The same of a single one of them.
_LARGE_ERRORS = (0.15, 0.3)
# Below this median (0..255) levels say where there is noise at all.
_LEAST_EVEN = 1.0

# --- what of noise that is not white is taken for texture (`without_texture`)
# Levels from this one on count, and the quantile of these is that of the picture's calmer part.
_COUNTING = 0.5
_CALM = 0.3
# What local estimates exceed so many times that level by, and so much (0..255), is texture.
_TEXTURE_TIMES, _TEXTURE_MORE = 1.4, 0.5
# From the first on they are believed more and more, within the second: no texture looks that loud.
_BELIEVED = (11.0, 2.0)
# No place has more noise than so many times that of the calmest blocks, and so much.
_CALM_TIMES, _CALM_MORE = 3.5, 1.5
# If the mean level is less than so much of that of white noise that is as rough as those blocks, and these
# have such a kurtosis, all of it is texture. (Dots and strokes have more.)
_ROUGH = 0.9
_OF_TEXTURE = (3.8, 12.0)
# That is believed of pictures whose levels are up to the first in the mean, and less and less within the
# second: loud noise is mottled, so that neighbours hardly differ. A place that is so much louder counts by
# itself: noise may be in a part of a picture alone.
_MEAN_BELIEVED = (10.0, 3.0)
_LOUDER = 10.0
# So many blocks have to tell it, of which those that show less than this are plain and do not.
_ENOUGH_BLOCKS = 8
_PLAIN = 0.3

# --- what is measured of white noise (`bring_to_measured`)
# Photographs have noise of their own, about so much in smooth places, which an estimator that learned from
# them does not count.
_OWN_NOISE = 2.0
# From this level on that does not matter.
_HIDES_OWN = 12.0
# Second differences of noise have up to this kurtosis in calm places, of Gaussian noise 3; texture, JPEGs and
# text have more. Where more than the second share of them is zero it is no noise at all: of white noise of 2
# one in twelve is, of text on paper two in three.
_GAUSSIAN, _NO_NOISE = 3.3, 0.3
# Strokes hide noise of less than this; what looks like more is a dither.
_HIDDEN = 16.0
# Up to this share of their mean as standard deviation, levels are the same everywhere, and at most what is
# measured.
_EVEN = 0.1
# If that is at least so many times as much: of noise that is not Gaussian, or not quite white, it is far too
# little.
_NEAR = 0.85
# From this level of a grey picture on, and from the second one of any picture, it is believed if it is more,
# up to so many times: of loud noise an estimator counts the less the more of it is clipped, so that what it
# says is not quite the same everywhere.
_COUNTED, _LOUD = 4.0, 20.0
_NEARLY_EVEN = 0.25
_MOST_RAISED = 2.0
# Of textured grey pictures an estimator counts too much. What is measured is sure, down to so much of that,
# where deviations along the directions in which patches vary least hardly differ, as of white noise, and are
# hardly more in the calmer half of the patches than in the calmest tenth, as of Gaussian noise.
_WHITE, _SHORT, _LEAST_SURE = 0.95, 1.08, 0.6
# Variances of noise lie on a line, within so much of the largest.
_BENT = 0.1

# --- how it is measured (`white_noise`)
# In about so many patches, or half as many again of a small picture, of so many pixels a side; in fewer of
# loud noise, which takes several turns.
_PATCHES, _PATCHES_OF_LOUD = 24000, 12000
_PATCH = 5
# So many patches are multiplied at a time, see `_in_parts`.
_PRODUCT = 256
# The mean of a patch is so many standard deviations away from black and from white.
_OFF_ENDS = 3.0
# If much may be clipped, patches count in which at least this share of the variance is left. How much is
# depends on what is measured, in a few turns until that stays the same but for so much.
_LEAST_LEFT = 0.3
_TURNS, _SAME = 6, 0.03
# What lies between black and white varies the more in these directions the less it does in all others:
# deviations are so many times their share of 255, squared, too high.
_BOUNDED = 0.6
# Along so many directions in which patches vary least, in the share of them that varies least in all others.
_LEAST = 8
_CALMEST = 0.1
# Where the darkest, middle and brightest thirds of them differ by more, noise is not the same everywhere.
_DIFFER = 1.1
# Of fewer patches of a channel, or of less than this share of all, it is not measured: a few that lie within
# a narrow range are odd ones.
_FEWEST = 1000
_LEAST_SHARE = 0.15
# Columns that are looked at for it, in float.
_MOST_COLUMNS = 2**14

# --- whether channels share their noise (`is_shared`)
# The covariance of what is rough in them is above so much of its variance, and so much (of 0..255, squared)
# that texture may have.
_SHARED = 0.12
_SHARED_TEXTURE = 6.0
# In the share of blocks that is calmest, but in no fewer than so many, or a quarter of a small picture.
_CALMEST_BLOCKS = 0.05
_FEWEST_BLOCKS = 16
_MOST_BLOCKS = 0.25
# Up to this level that is believed only where it is at least so many times that of the picture's white noise:
# of what is textured everywhere it is less.
_TEXTURED = 10.0
_AS_CALM = 0.8

# --- by what steps a JPEG was rounded (`jpeg_step`)
# In about so many blocks of 8 x 8.
_BLOCKS = 800
# Files of JPEG have 8 bits: what is farther from whole numbers is of no file.
_BYTES = 1e-3
# Coefficients of the cosine transform that are looked at, (vertical, horizontal) frequency.
_LOW = ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (0, 3), (3, 0))
# Steps that are tried, and how exactly coefficients are counted, up to which.
_STEPS = np.arange(2, 66)
_BIN, _BINS = 0.5, 384
# Coefficients that are not zero: above so much of a step, and so much that rounding of pixels makes of zero.
_NOT_ZERO, _OF_ROUNDING = 0.3, 1.2
# So many of them have to be there, of so many frequencies, and so near to multiples of a step, as the mean
# cosine.
_FEWEST_COEFFICIENTS, _FEWEST_TRIED = 24, 3
_MULTIPLES = 0.35
# Of the blocks of photographs that are not plain two thirds and more differ, of tiles fewer than this share.
_DISTINCT = 0.35
# Where blocks begin is looked for along so many lines each way, or up to twice as many. A jump by more (of
# 0..255) is an edge of what is seen. At one place in eight there has to be more than at others, by so many of
# their standard deviations: of JPEGs up to quality 75 it is six and more, of other pictures three and less.
_LINES, _EDGE, _PLAINLY = 128, 20, 4.0
# What a step leaves looks to a denoiser like noise of so many times that.
_NOISE_OF_STEP = np.float32(0.12)

# --- cells that say nothing of the noise (`clipped_cells`, `drawn_cells`)
# Share of a cell's values from which on its noise is clipped, and of the cells without that tell the level.
_CLIPPED = 0.1
_ENOUGH = 0.05
# Where at least this share of the pixels is like all of their neighbours, and of the others at most this one
# like none, within so many cells of 8 x 8 either way, a picture is drawn in plain colours. Of a hundred
# pixels with one that is black or white by chance, three of those others are.
_LEAST_PLAIN = 0.1
_ALONE = 0.01
_AROUND = 8
# Alone is a pixel that none of its eight neighbours is like. At soft edges, as of text, 30 to 40 % of the
# uneven pixels are, up to 70 % of letters by subpixels, of noise in colour 90 %. So as many may be around a
# cell, and a few more in it and the cells beside it, if there are plain pixels there, or in colour hardly any
# alone. But only where as much of a picture is plain as of a page or a screenshot, which of a photograph that
# a camera made smooth hardly is; or less, as of a screenshot with a photograph in it, and as much around.
_ALONE_AT_EDGES, _ALONE_BESIDE, _HARDLY_ALONE = 0.7, 0.75, 0.1
_MOSTLY_PLAIN = 0.3
_PARTLY_PLAIN, _PLAIN_AROUND = 0.2, 0.32
# And where there are no more dots than so many for each plain pixel: of a thousand pixels with one that is
# black or white by chance nearly one is. A dot is a pixel that is alone and, but for its neighbours, in the
# middle of so many either way that are all alike. As many pixels that are alone are looked at.
_DOTS = 2e-4
_DOT_RADIUS, _MOST_DOTS = 3, 2**16


def enough(cells: NDArray[np.bool_]) -> bool:
    """Whether enough cells are True for them to stand for the whole picture."""
    return bool(np.count_nonzero(cells) >= _ENOUGH * cells.size)


def clipped_cells(picture: NDArray) -> NDArray[np.bool_]:
    """Cells (h, w) of 8 x 8 pixels of a picture (H, W, 3) of which a part is as dark or bright as can be.

    Floats beyond [0, 1] are not: whoever has such did not clip.
    """
    return np.asarray(count_clipped(picture) > _CLIPPED * 48)


def even_out_hidden(alpha: NDArray, level: NDArray[np.float32], clipped: NDArray[np.bool_]) -> None:
    """Have levels (h, w) of cells that are transparent everywhere say nothing, in place, by alpha (H, W).

    What is stored there nobody sees: programs leave anything. They get the median of all others, and count as
    ``clipped``.
    """
    hidden = ~_in_cells(alpha != 0).any(axis=(1, 3))
    if hidden.any() and not hidden.all():
        level[hidden] = np.median(level[~hidden])
        clipped |= hidden


def make_even(level: NDArray[np.float32], clipped: NDArray[np.bool_]) -> None:
    """Bring local levels (h, w) in place to their median, if they differ from it by no more than errors do.

    Most noise is as loud everywhere, but what an estimator says of it follows the picture a little. Levels
    that do differ, as those of photons do, stay. Where noise is ``clipped`` much of it is missing, so that
    less is found than was there: such places, if there are enough others, say nothing of the rest, and are
    taken to be no less noisy.
    """
    known = level[~clipped]
    if not enough(~clipped):
        clipped = np.zeros_like(clipped)
        known = level
    median = np.median(known)
    if median < _LEAST_EVEN:
        return
    ratio = np.maximum(level, np.float32(1e-3)) / median
    far = np.abs(np.log(ratio))
    (low, high), (least, most) = _ERRORS, _LARGE_ERRORS
    spread = float(np.minimum(far[~clipped], most).mean())
    if spread < high:  # and yet a small part of a picture may have another level
        everywhere = max(0.0, (spread - low) / (high - low))
        kept = np.clip((far - least) / (most - least), everywhere, 1)
        kept[clipped & (ratio < 1)] = 0
        level[...] = np.where(kept < 1, median * ratio**kept, level)


def without_texture(
    picture: NDArray, level: NDArray[np.float32], clipped: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Local levels (h, w), limited to what the picture's calmer part makes likely of the rest.

    To an estimator a lawn, sand or asphalt is as noisy as fine grain, in some places more than in others, and
    a denoiser that is told so wipes it out in patches; of a sharpened photograph, or of one with every other
    pixel left out, it may say so nearly everywhere. Told too little, it leaves hardly more noise in: by
    limits real noise loses little. White noise has none, since it can be told from texture. And what is as
    rough as white noise of its level, but neither white nor Gaussian, is all texture: noise that a camera
    left is softer.
    """
    known = (level > _COUNTING) & ~clipped
    if not known.any():
        return level
    limit = np.float32(_TEXTURE_TIMES * np.quantile(level[known], _CALM) + _TEXTURE_MORE)
    level = _limited(level, limit, level, _BELIEVED)
    if level.mean() < sum(_MEAN_BELIEVED) and (calm := calm_places(picture, known)) is not None:
        loudness = np.maximum(level.mean(), level - np.float32(_LOUDER))
        level = _limited(level, np.float32(_CALM_TIMES * calm.level + _CALM_MORE), loudness, _MEAN_BELIEVED)
        least, most = _OF_TEXTURE
        if level.mean() < _ROUGH * calm.level and least < calm.kurtosis < most:
            level = np.minimum(level, _OWN_NOISE)
    return level


def _limited(
    level: NDArray[np.float32], limit: np.float32, loudness: ArrayLike, believed: tuple[float, float]
) -> NDArray[np.float32]:
    """Levels that are no higher than a limit, but for loud ones.

    From the first number of ``believed`` on they are limited less and less, within the second.
    """
    least, within = believed
    share = np.clip((loudness - np.float32(least)) / np.float32(within), 0, 1)
    return np.minimum(level, limit + share * (level - limit))


def bring_to_measured(picture: NDArray, level: NDArray[np.float32]) -> None:
    """Bring the levels (h, w) of a picture's white noise in place nearer to what is measured in its pixels.

    Faint ones are raised, by a little: of a photograph's own noise an estimator counts none. To all that is
    measured where that is Gaussian: dense strokes, as of sheet music, hide noise from an estimator. And not
    where it is no noise, as between letters. Those that are the same everywhere are lowered, if little is
    missing. Nearly even ones of loud noise become what is measured where that is more, and of grey pictures
    where it is sure. Of these an estimator counts too much beside texture and too little elsewhere, above all
    of what grows with the brightness, as noise of photons and speckle do: their levels are raised to that.
    """
    calm = calm_places(picture) if level.mean() < _HIDES_OWN else None
    if calm is not None and calm.zeros <= _NO_NOISE and calm.level > np.median(level):
        is_noise = calm.kurtosis < _GAUSSIAN and calm.level < _HIDDEN
        most = np.inf if is_noise else np.hypot(level, np.float32(_OWN_NOISE))
        np.minimum(np.maximum(level, np.float32(calm.level)), most, out=level)
    about, spread = float(level.mean()), float(level.std())
    loud, raising = about > _LOUD, about > _COUNTED and is_grey(picture)
    nearly_even, even = spread <= _NEARLY_EVEN * about, spread <= _EVEN * about
    if not (even or raising or (loud and nearly_even)) or (white := _white(picture, about)) is None:
        return
    one, measured = _is_one(white.variances), min(_deviation(white.variances), _MOST_RAISED * about)
    sure = raising and white.slope > _WHITE and white.tails < _SHORT and measured > _LEAST_SURE * about
    if one and nearly_even and (sure or (loud and measured > about)):
        level[...] = measured
    elif even and (_NEAR * about < measured < about or (raising and one and measured > about)):
        level *= np.float32(measured / about)
    if raising and not one:
        brightness, variances = white.brightness, white.variances
        slope, dark = np.polyfit(brightness, variances, 1)
        # Strokes are of middle brightness, and texture of one or the other.
        if slope <= 0 or np.abs(dark + slope * brightness - variances).max() > _BENT * variances.max():
            return
        found = np.maximum(dark + slope * _cell_means(picture), variances.min())
        np.maximum(level, np.minimum(np.sqrt(found, dtype=np.float32), _MOST_RAISED * level), out=level)


class Calm(NamedTuple):
    """What the second differences along rows are like in the calmest places of a picture.

    ``level`` is the standard deviation (0..255) of white noise that has such; ``kurtosis`` the mean of their
    fourth powers, each over the root mean square of its place (3 of Gaussian noise, more of most else); and
    ``zeros`` the share that is zero to the bit.
    """

    level: float
    kurtosis: float
    zeros: float


def calm_places(picture: NDArray, counted: NDArray[np.bool_] | None = None) -> Calm | None:
    """The tenth of a picture's (H, W, 3) blocks of 16 x 16 where second differences along rows are least.

    Smooth surfaces have none (after Immerkaer 1996, who takes the mean of a like filter). If cells (h, w) are
    ``counted``, only blocks of these that are not plain are looked at. Of a large picture about sixteen rows
    of blocks are, of a very wide one its middle. None where there are very few.
    """
    beyond = max(0, picture.shape[1] - _MOST_COLUMNS)
    left = beyond // 32 * 16
    picture = picture[:, left : left + _MOST_COLUMNS]
    height, width, channels = picture.shape
    rows, columns = height // 16, (width - 2) // 16
    if rows < 2 or columns < 2:
        return None
    few = slice(None, None, max(1, rows // 16))
    some = picture[: 16 * rows].reshape(rows, 16, -1)[few].astype(np.float32)
    rough = some[..., channels:-channels] * np.float32(-2)
    rough += some[..., : -2 * channels]
    rough += some[..., 2 * channels :]
    rough = rough[..., : 16 * channels * columns]
    squares = np.square(rough).sum(axis=1).reshape(len(some), columns, -1).mean(axis=2) / 16
    known = np.ones(squares.shape, bool)
    unit = np.float32((255 / full_scale(picture.dtype)) ** 2 / 6)  # of a variance of 0..255
    if counted is not None:
        cells = counted[: 2 * rows, left // 8 : left // 8 + 2 * columns]
        whole: NDArray[np.bool_] = np.asarray(cells.reshape(rows, 2, columns, 2).all(axis=(1, 3)))
        known = whole[few] & (squares * unit > _PLAIN**2)
        if np.count_nonzero(known) < _ENOUGH_BLOCKS:
            return None
    least = np.quantile(squares[known], 0.1)
    calm = known & (squares <= least)
    there = rough.reshape(len(some), 16, columns, -1)[calm.nonzero()[0], :, calm.nonzero()[1]]
    fourth = np.square(np.square(there) / np.maximum(squares[calm], np.float32(1e-12))[:, None, None])
    return Calm(float(np.sqrt(least * unit)), float(fourth.mean()), float(np.mean(there == 0)))


def raise_to_jpeg(picture: NDArray, level: NDArray[np.float32]) -> None:
    """Raise the levels (h, w) of a picture (H, W, 3) in place to those of what JPEG did to it.

    An estimator counts noise, and ringing and blocks as none; a denoiser that is told a little takes these
    away.
    """
    np.maximum(level, _NOISE_OF_STEP * np.float32(jpeg_step(picture)), out=level)


def jpeg_step(picture: NDArray) -> float:
    """The step by which JPEG rounded the low frequencies of a picture (H, W, 3), 0 where none did.

    As a file that was not enlarged or edited since holds them: the cosine transforms of its blocks are then
    near multiples of steps (after Fan and de Queiroz 2003: Identification of bitmap compression history). The
    median of several frequencies; 3 at quality 90, 7 at 75, 17 at 40. Steps below 2, as of a quality above
    93, are not told from none. Blocks begin in the corner or, of what was cropped, where `_first_block` finds
    them; a crop that is a JPEG again has both, of which the larger step counts.
    """
    corners = {(0, 0), _first_block(picture)}
    return max(_step_from(picture[y:, x:]) for y, x in corners)


def _first_block(picture: NDArray) -> tuple[int, int]:
    """Row and column, 0 to 7, where blocks of a picture (H, W, 3) begin plainly; else those of its corner."""
    green = picture[..., 1]
    rows, columns = (max(1, side // _LINES) for side in green.shape)
    y, x = _most_jumps(green[:, ::columns].T), _most_jumps(green[::rows])
    return (0, 0) if y is None or x is None else (y, x)


def _most_jumps(lines: NDArray) -> int | None:
    """At which of eight places along lines (n, m) values jump, over and over, if plainly at one."""
    if lines.dtype == np.uint8:
        lines = lines.astype(np.int16)
    else:
        lines = lines.astype(np.float32) * np.float32(255 / full_scale(lines.dtype))
    jumps = np.diff(lines, axis=1)
    bends = np.minimum(np.abs(2 * jumps[:, 1:-1] - jumps[:, :-2] - jumps[:, 2:]), _EDGE)
    places = bends.shape[1] // 8 * 8
    found = bends[:, :places].sum(axis=0, dtype=np.float64).reshape(-1, 8).sum(axis=0)
    most = int(found.argmax())
    others = found[(most + np.arange(2, 7)) % 8]  # but for those beside it, which a jump bends too
    return (most + 2) % 8 if found[most] - others.mean() > _PLAINLY * others.std() else None


def _step_from(picture: NDArray) -> float:
    """`jpeg_step` of the blocks that begin in a picture's corner; none where half a block aside looks so too,
    as of what is drawn in few colours."""
    step = _step_of_blocks(picture)
    return step if step and not _step_of_blocks(picture[4:, 4:]) else 0.0


def _step_of_blocks(picture: NDArray) -> float:
    """By which step the blocks are rounded that begin in a picture's corner."""
    height, width = (n // 8 for n in picture.shape[:2])
    if not height * width:
        return 0.0
    every = max(1.0, height * width / _BLOCKS)
    down = int(every**0.5)
    across = int(every / down)
    blocks = picture[: 8 * height, : 8 * width].reshape(height, 8, width, 8, 3)[::down, :, ::across]
    if picture.dtype != np.uint8:
        blocks = blocks * np.float32(255 / full_scale(picture.dtype))
        if not np.abs(blocks - np.rint(blocks)).max() <= _BYTES:
            return 0.0
    brightness = (blocks.astype(np.float32) @ LUMA).transpose(0, 2, 1, 3).reshape(-1, 64)
    found = np.abs(np.concatenate([part @ _COSINES for part in _in_parts(brightness)]))
    bins = np.minimum(found / _BIN + 0.5, _BINS - 1).astype(np.int64) + _BINS * np.arange(len(_LOW))
    counts = np.bincount(bins.ravel(), minlength=_BINS * len(_LOW)).reshape(len(_LOW), _BINS)
    counts = counts.astype(np.float32)
    counts[:, -1] = 0  # and beyond
    some = counts @ _NONZERO
    near = np.where(some >= _FEWEST_COEFFICIENTS, counts @ _NEARNESS / np.maximum(some, 1), -1)
    tried = (near > -1).any(axis=1)
    if np.count_nonzero(tried) < _FEWEST_TRIED:
        return 0.0
    # What is near to multiples of a step is a little less near to those of its divisors.
    best = np.where(near.max(axis=1) >= _MULTIPLES, _STEPS[near.argmax(axis=1)], 0)
    step = float(np.median(best[tried]))
    return step if step and _hardly_repeat(brightness[found.max(axis=1) > _OF_ROUNDING]) else 0.0


def _hardly_repeat(blocks: NDArray[np.float32]) -> bool:
    """Whether few of some blocks (n, 64) are the same: tiles of a game's map look like those of a JPEG."""
    rows = np.ascontiguousarray(np.rint(blocks).astype(np.int16)).view(f"V{2 * blocks.shape[1]}")
    return bool(len(np.unique(rows)) >= _DISTINCT * len(rows))


def _transforms() -> tuple[NDArray[np.float32], ...]:
    """Cosines (64, frequencies) of `_LOW`; of `_BINS`, for each of `_STEPS`, which are not zero, and how near
    these are to a multiple."""
    at = np.pi * (np.arange(8) + 0.5) / 8
    wave = [np.cos(f * at) * (0.5 if f else 0.125**0.5) for f in range(4)]
    cosines = np.stack([np.outer(wave[v], wave[h]).ravel() for v, h in _LOW], axis=1)
    value = _BIN * np.arange(_BINS)[:, None]
    nonzero = value > _NOT_ZERO * _STEPS + _OF_ROUNDING
    nearness = nonzero * np.cos(2 * np.pi * value / _STEPS)
    return cosines.astype(np.float32), nonzero.astype(np.float32), nearness.astype(np.float32)


_COSINES, _NONZERO, _NEARNESS = _transforms()


def is_shared(picture: NDArray) -> bool:
    """Whether the channels of a picture (H, W, 3) have much of their noise in common.

    So it is where colours were made paler, or brightness was sharpened or its contrast raised place by place,
    after the noise came: what is left is independent from pixel to pixel and not from channel to channel.
    Second differences along columns and then along rows (the filter of Immerkaer 1996) have hardly any of a
    surface or an edge, and in the calmest blocks of 14 x 16 pixels they are mostly noise. Of a large picture
    about 32 rows of blocks are looked at, or 16 if it is wide.
    """
    rows, columns = picture.shape[0] // 16, (picture.shape[1] - 2) // 16
    if rows < 1 or columns < 1:
        return False
    few = range(0, 16 * rows, 16 * max(1, rows // (32 if columns < 48 else 16)))
    clipped, squares, together = np.moveaxis(roughness(picture, few).reshape(-1, 3), 1, 0)
    known = clipped < _CLIPPED * 14 * 16
    if not known.any():
        return False
    squares, together = squares[known], together[known]
    variance = squares / np.float32(3 * 14 * 16)
    common = (together - squares) / np.float32(6 * 14 * 16)
    fewest = min(_FEWEST_BLOCKS, max(1, int(_MOST_BLOCKS * len(known))))
    calm = np.argsort(variance, kind="stable")[: max(fewest, int(_CALMEST_BLOCKS * len(variance)))]
    level = float(np.sqrt(variance[calm].mean()))
    if common[calm].mean() <= _SHARED * level**2 + _SHARED_TEXTURE:
        return False
    if level >= _TEXTURED:
        return True
    white = white_noise(picture, level)
    return white is None or level >= _AS_CALM * white


def white_noise(picture: NDArray, about: float) -> float | None:
    """Standard deviation (0..255) of the white noise of a picture (H, W, 3) that has ``about`` so much of it.

    White noise is as strong in all directions in which small patches may vary, and what else a picture shows
    is in few of them, so the least of their variances is that of noise (Chen, Zhu, Heng 2015: An efficient
    statistical method for image noise level estimation). It is measured in the patches that vary least in the
    other directions, which tells of texture and nothing of Gaussian noise. What texture is left makes the
    result a little too high, without any it is 2 % too low. Noise of photons is not as strong everywhere: of
    that the result is what the third of the patches has, by their brightness, where it is strongest. Of what
    may be clipped patches near black and white do not count if noise is faint, and of loud noise for as much
    more as clipping takes from their variance. None where too few count.
    """
    white = _white(picture, about)
    return None if white is None else _deviation(white.variances)


def _is_one(variances: NDArray) -> bool:
    """Whether three variances are those of the same noise."""
    return bool(variances.max() <= _DIFFER**2 * variances.min())


def _deviation(variances: NDArray) -> float:
    """The standard deviation of three variances: of their mean if they are one, else of the largest."""
    of_all = variances.mean() if _is_one(variances) else variances.max()
    return round(float(of_all) ** 0.5, 2)  # lest orders of sums tell


class _White(NamedTuple):
    """What patches tell of white noise, as `white_noise` says.

    ``brightness`` and ``variances`` (0..255, squared) are of the darkest, middle and brightest third of them;
    ``slope`` is the deviation along the first of the least directions over that along the last, and ``tails``
    that of the calmer half of the patches over that of the calmest.
    """

    brightness: NDArray
    variances: NDArray
    slope: float
    tails: float


def _white(picture: NDArray, about: float) -> _White | None:
    """What the patches of a picture (H, W, 3) tell that has ``about`` so much noise; None if too few do."""
    height, width = (n - _PATCH + 1 for n in picture.shape[:2])
    if min(height, width) < 1:
        return None
    channels = 1 if is_grey(picture) else 3
    clipped = picture.dtype.kind == "u" or bool(((picture == 0) | (picture == 1)).any())
    loud = clipped and about > _LOUD
    every = max(1.0, channels * height * width / (_PATCHES_OF_LOUD if loud else _PATCHES))
    down = int(every**0.5)
    across = int(every / down)
    found = [patches(picture, channel, down, across) for channel in range(channels)]
    if not loud:
        off = _OFF_ENDS * about if clipped else -np.inf
        return _of_patches([(x, mean, (off < mean) & (mean < 255 - off)) for x, mean in found])
    for _ in range(_TURNS):
        means, shares = _clipped_noise(about)
        whole = []
        for x, mean in found:
            share = np.interp(mean, means, shares).astype(np.float32)
            whole.append((x / np.sqrt(share)[:, None], mean, share > _LEAST_LEFT))
        if (white := _of_patches(whole)) is None:
            return None
        white.variances[:] /= (1 + _BOUNDED * white.variances.mean() / 255**2) ** 2
        before, about = about, _deviation(white.variances)
        if abs(about - before) <= _SAME * before:
            break
    return white


def _of_patches(found: list[tuple[NDArray, NDArray, NDArray]]) -> _White | None:
    """What is told by the patches of each channel, their means, and whether they count."""
    brightness, each = np.zeros(3), []  # of each channel its patches, from dark to bright thirds
    for x, mean, counts in found:
        counted = np.flatnonzero(counts)
        if len(counted) < max(_FEWEST, _LEAST_SHARE * mean.size):
            return None
        firsts = [part[0] for part in np.array_split(np.arange(len(counted)), 3)]
        counted = counted[np.argpartition(mean[counted], firsts)]
        brightness += [part.mean() / len(found) for part in np.array_split(mean[counted], 3)]
        each.append(x[counted])
    together = sum(np.float64(part.T @ part) for x in each for part in _in_parts(x))
    # The first direction is that of the mean, which is taken away.
    directions = np.linalg.eigh(together)[1][:, 1 : _LEAST + 1].astype(np.float32)
    along, calmer = np.zeros((3, _LEAST)), 0.0
    for x in each:
        least = np.concatenate([part @ directions for part in _in_parts(x)])
        rest = np.einsum("pi,pi->p", x, x) - np.einsum("pi,pi->p", least, least)
        for k, third in enumerate(np.array_split(np.arange(len(x)), 3)):
            squares, others = np.square(least[third]), rest[third]
            at = int(_CALMEST * (len(third) - 1))
            bounds = np.partition(others, [at, len(third) // 2])
            along[k] += squares[others <= bounds[at]].mean(axis=0) / len(found)
            calmer += float(squares[others <= bounds[len(third) // 2]].mean()) / (3 * len(found))
    first, last = along[:, :3].mean(), along[:, -3:].mean()
    if not last:
        return None  # all is plain
    slope, tails = (first / last) ** 0.5, (calmer / along.mean()) ** 0.5
    return _White(brightness, along.mean(axis=1), slope, tails)


def _clipped_noise(sigma: float) -> tuple[NDArray, NDArray]:
    """Means of Gaussian noise that is clipped to 0..255, and the share of its variance that each has left."""
    noise = np.linspace(-4, 4, 65)
    density = np.exp(-np.square(noise) / 2)
    density /= density.sum()
    values = np.clip(np.linspace(-2 * sigma, 255 + 2 * sigma, 128)[:, None] + sigma * noise, 0, 255)
    means = values @ density
    return means, (np.square(values) @ density - np.square(means)) / sigma**2


def _cell_means(picture: NDArray) -> NDArray:
    """Mean values (h, w) of 0..255 of a picture's (H, W, 3) cells of 8 x 8 pixels, with what is missing."""
    means = _in_cells(picture.mean(axis=2, dtype=np.float32), "edge").mean(axis=(1, 3))
    return np.asarray(means * (255 / full_scale(picture.dtype)))


def _in_cells(x: NDArray, beyond: Literal["constant", "edge"] = "constant") -> NDArray:
    """(h, 8, w, 8) of (H, W): cells of 8 x 8 pixels, continued by zeros or by the edge to whole ones."""
    whole = np.pad(x, [(0, -n % 8) for n in x.shape], mode=beyond)
    return whole.reshape(len(whole) // 8, 8, -1, 8)


def _in_parts(x: NDArray) -> list[NDArray]:
    """(n, _PATCH^2) patches, so few together that a product of them is no work for the threads of a BLAS.

    Those of OpenBLAS, which numpy brings along, spin for 50 ms after one, and have half of the CPUs that a
    network wants meanwhile: a megapixel took 1.7 times as long.
    """
    return np.array_split(x, -(-len(x) // _PRODUCT))


def enlarged(coarse: NDArray, height: int, width: int) -> NDArray[np.float32]:
    """Bilinear enlargement by 8 of (N, h, w), cropped; sample centres as in torch's default."""
    # Eight pixels lie between the centres of two samples, and four beyond the first and the last one.
    share = (np.arange(8, dtype=np.float32) + np.float32(0.5)) / 8
    given = np.pad(coarse, [(0, 0), (0, 0), (1, 1)], mode="edge")
    wide = given[:, :, :-1, None] + share * np.diff(given, axis=2)[..., None]
    wide = wide.reshape(*coarse.shape[:2], -1)[:, :, 4 : 4 + width]
    out = np.empty((len(coarse), height, width), np.float32)
    for rows, to in zip(wide, out, strict=True):
        enlarge_rows(rows, to)
    return out


def is_two_tone(picture: NDArray) -> bool:
    """Whether a picture (H, W, 3) is drawn in two colours, as fax and line art are.

    An estimator of noise takes strokes of one pixel for shot noise. Dots of shot noise, however, stand
    alone: where a third of the rarer colour's pixels has no neighbour of its colour, this is False.
    """
    few = _one_number(picture[::7, ::7]).ravel()[:256]
    if len(np.unique(few)) > 2:  # as in almost every picture: seen at once
        return False
    ink = (picture != picture[0, 0]).any(axis=2)
    if not ink.any() or (picture[ink] != picture[ink][0]).any():
        return False
    if 2 * ink.sum() > ink.size:
        ink = ~ink
    near = np.pad(ink, 1).astype(np.uint8)
    rows = near[:-2] + near[1:-1] + near[2:]
    alone = ink & (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] == 1)
    return bool(3 * alone.sum() < ink.sum())


def drawn_cells(picture: NDArray) -> NDArray[np.bool_]:
    """Cells (h, w) of 8 x 8 pixels where a picture (H, W, 3) is drawn in plain colours, without noise.

    There many pixels have eight neighbours that are the same to the bit, and of the others hardly one has
    none: strokes of one pixel, which an estimator of noise takes for it, go on, where noise has each pixel
    differ. At soft edges many have none, and dots of text stand alone, as wrong pixels do; there it counts
    that plain places have no dots.
    """
    few = _one_number(picture[::16])
    like_the_next = few[:, 1:] == few[:, :-1]
    if np.count_nonzero(like_the_next) <= _LEAST_PLAIN * like_the_next.size:  # as in most: seen at once
        return np.zeros([-(-n // 8) for n in picture.shape[:2]], bool)
    code = _one_number(picture)
    around = np.pad(code, 1, mode="edge")
    same = np.zeros(code.shape, np.uint8)  # neighbours that are
    for y, x in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)):
        same += code == around[y : y + code.shape[0], x : x + code.shape[1]]

    def counted(mask: NDArray[np.bool_]) -> NDArray:
        count = _in_cells(mask.view(np.uint8)).sum(axis=1, dtype=np.uint8)
        return np.asarray(count.sum(axis=2, dtype=np.int64))

    own = [counted(mask) for mask in (same == 8, same < 8, same == 0)]
    plain, uneven, alone = (_summed_around(count, _AROUND) for count in own)
    likely = (uneven > 0) & (plain >= _LEAST_PLAIN * (plain + uneven))
    drawn = likely & (alone <= _ALONE * uneven)
    share = own[0].sum() / same.size
    if share < _MOSTLY_PLAIN:
        likely &= plain >= _PLAIN_AROUND * (plain + uneven)
    if share >= _PARTLY_PLAIN and (likely & ~drawn).any() and not _has_dots(code, same):
        plain_beside, uneven_beside, alone_beside = (_summed_around(count, 1) for count in own)
        soft = likely & (alone <= _ALONE_AT_EDGES * uneven) & (alone_beside <= _ALONE_BESIDE * uneven_beside)
        crisp = plain_beside >= _LEAST_PLAIN * (plain_beside + uneven_beside)
        if not is_grey(picture):  # of faint grey noise many pixels are alike by chance
            crisp |= alone_beside <= _HARDLY_ALONE * uneven_beside
        drawn |= soft & crisp
    return drawn | (drawn.any() & (uneven == 0))


def _has_dots(code: NDArray, same: NDArray[np.uint8]) -> bool:
    """Whether many pixels of a picture (H, W) lie by themselves where it is plain.

    All around such a one but for its own neighbours, of which none is the ``same`` (H, W), is of one colour.
    """
    reach, width = _DOT_RADIUS, code.shape[1]
    count, plain = np.count_nonzero(same == 0), np.count_nonzero(same == 8)
    every = count // _MOST_DOTS + 1  # rows
    alone = np.flatnonzero(same[::every] == 0)
    if not len(alone):
        return False
    alone += alone // width * (every - 1) * width
    wide = np.pad(code, reach, mode="edge")
    steps = np.arange(-reach, reach + 1)
    far = np.maximum(abs(steps[:, None]), abs(steps)) > 1
    around = (steps[:, None] * wide.shape[1] + steps)[far]
    at = (alone // width + reach) * wide.shape[1] + alone % width + reach
    colours = wide.ravel()[at[:, None] + around]
    dots = np.mean((colours == colours[:, :1]).all(axis=1)) * count
    return bool(dots > _DOTS * plain)


def _one_number(picture: NDArray) -> NDArray:
    """(H, W) of pixels (H, W, 3), each colour as one number."""
    if picture.dtype == np.uint8:
        return np.pad(picture, [(0, 0), (0, 0), (0, 1)]).view(np.uint32)[..., 0]
    bits = np.ascontiguousarray(picture).view(f"u{picture.dtype.itemsize}")
    number = bits[..., 0].astype(np.uint64)
    for channel, factor in ((1, 0x9E3779B97F4A7C15), (2, 0xC2B2AE3D27D4EB4F)):  # odd, and large
        number ^= bits[..., channel] * np.uint64(factor)
    return number


def _summed_around(x: NDArray, reach: int) -> NDArray:
    """Sums over squares of 2 ``reach`` + 1 around each place of (h, w)."""
    for axis in (0, 1):
        total = np.cumsum(np.pad(x, [(int(axis == 0), 0), (int(axis == 1), 0)]), axis=axis)
        at = np.arange(x.shape[axis])
        first, end = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(at))
        x = total.take(end, axis) - total.take(first, axis)
    return x


def only_channel(picture: NDArray) -> int | None:
    """The channel of a picture (H, W, 3) that alone shows anything, as of one fluorescent dye; or None."""
    few = picture[::7, ::7]
    seen = [c for c in range(3) if (few[..., c] != picture[0, 0, c]).any()]
    if len(seen) != 1:  # as of almost every picture
        return None
    return seen[0] if all((picture[..., c] == picture[0, 0, c]).all() for c in {0, 1, 2} - {*seen}) else None


def is_grey(picture: NDArray) -> bool:
    """Whether all channels of a picture (H, W, C) are the same."""
    few = picture[::7, ::7]
    return all(  # of almost every coloured picture a few pixels tell
        np.array_equal(few[..., 0], few[..., c]) and np.array_equal(picture[..., 0], picture[..., c])
        for c in range(1, picture.shape[2])
    )
