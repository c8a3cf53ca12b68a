"""The kernels for what happens to pixels beside the networks, at every level, against numpy."""

import numpy as np
import pytest

from zenith_ae._kernels import _pixels, available_isas

LEVELS = available_isas()
SIZES = [(1, 1), (7, 5), (16, 18), (17, 19), (33, 70), (48, 531)]
DTYPES = [np.uint8, np.uint16, np.float32]


def full(dtype) -> int:
    return 1 if dtype == np.float32 else np.iinfo(dtype).max


def picture(height: int, width: int, dtype, gap: int = 2):
    """(H, W, 3) of which a tenth is black or white; ``gap`` pixels lie between rows."""
    x = np.clip(np.random.default_rng(0).normal(0.5, 0.3, (height, width + gap, 3)), 0, 1)
    x = x * full(dtype)
    return (x if dtype == np.float32 else np.rint(x)).astype(dtype)[:, :width]


def noise(*shape: int):
    return np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float32)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_add_change(isa, dtype, size):
    pixels, change = picture(*size, dtype), noise(size[0] + 1, size[1] + 1, 3)[:-1, 1:]
    if dtype == np.float32:
        pixels[0, 0] = -2, 3, 0.5  # as a caller may have them
    factor = np.float32(0.7 * full(dtype))
    expected = np.clip(change * factor + pixels.astype(np.float32), 0, full(dtype))
    expected = expected if dtype == np.float32 else np.rint(expected).astype(dtype)
    for threads in (1, 3):
        out = pixels.copy()
        _pixels.add_change(out, change, factor, threads, isa)
        np.testing.assert_array_equal(out, expected)
    assert (expected == 0).any() or size == (1, 1)


@pytest.mark.parametrize("isa", LEVELS)
def test_add_change_on_several_threads(isa):
    pixels, change = picture(211, 500, np.uint8), noise(211, 500, 3)
    alone, together = pixels.copy(), pixels.copy()
    _pixels.add_change(alone, change, 255, 1, isa)
    _pixels.add_change(together, change, 255, 3, isa)
    np.testing.assert_array_equal(alone, together)
    assert (alone != pixels).any()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["map", "turned", "transposed", "one", "row"])
def test_limit_change(isa, size, which):
    shape = {"one": (1, 1), "row": (1, size[1]), "transposed": size[::-1]}.get(which, size)
    levels = np.random.default_rng(2).uniform(0, 4, shape).astype(np.float32)
    levels = {"turned": levels[::-1, ::-1], "transposed": levels.T}.get(which, levels)
    change = noise(size[0], size[1] + 1, 3)[:, 1:]
    # The bound of the docstring, in float32 and in its order of operations
    excess = np.square(np.maximum(levels * np.float32(0.5), 1))
    most = (np.float32(8 / 255) * levels * (excess * excess))[..., None]
    expected = np.clip(change, -most, most)
    for threads in (1, 3):
        out = change.copy()
        _pixels.limit_change(out, levels, 8 / 255, 0.5, threads, isa)
        np.testing.assert_array_equal(out, expected)
    if change.size > 100 and which != "one":
        assert (expected != change).any() and (expected == change).any()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [size for size in SIZES if min(size) >= 16])
def test_roughness(isa, dtype, size):
    pixels = picture(*size, dtype)
    found = _pixels.roughness(pixels, range(0, size[0] // 16 * 16, 16), isa)
    assert found.shape == (size[0] // 16, (size[1] - 2) // 16, 3)
    for row, blocks in enumerate(found):
        for column, block in enumerate(blocks):
            x = pixels[16 * row : 16 * row + 16, 16 * column : 16 * column + 18]
            inner = x[1:-1, 1:-1]
            assert block[0] == ((inner == 0) | (inner == full(dtype))).any(axis=2).sum() > 0
            rough = np.diff(np.diff(x.astype(float), 2, axis=0), 2, axis=1) * (255 / full(dtype) / 6)
            sums = np.square(rough).sum(), np.square(rough.sum(axis=2)).sum()
            np.testing.assert_allclose(block[1:], sums, rtol=1e-5)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_count_clipped(isa, dtype, size):
    pixels = picture(*size, dtype)
    few = pixels[::2, ::2]
    cells = [-(-n // 8) for n in size]
    beyond = [(0, 4 * n - m) for n, m in zip(cells, few.shape[:2], strict=True)]
    ends = np.pad((few == 0) | (few == full(dtype)), [*beyond, (0, 0)], mode="edge")
    expected = ends.reshape(cells[0], 4, cells[1], 4, 3).sum(axis=(1, 3, 4))
    np.testing.assert_array_equal(_pixels.count_clipped(pixels, isa), expected)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(5, 5), (17, 19), (33, 70)])
@pytest.mark.parametrize(("down", "across"), [(1, 1), (2, 3), (40, 7)])
def test_patches(isa, dtype, size, down, across):
    pixels = picture(*size, dtype)
    for channel in range(3):
        values, means = _pixels.patches(pixels, channel, down, across, isa)
        windows = np.lib.stride_tricks.sliding_window_view(pixels[..., channel], (5, 5))[::down, ::across]
        expected = windows.reshape(-1, 25) * (255 / full(dtype))
        np.testing.assert_allclose(means, expected.mean(axis=1), rtol=1e-5)
        np.testing.assert_allclose(values, expected - expected.mean(axis=1, keepdims=True), atol=1e-4)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("size", [(1, 1), (8, 3), (9, 40), (21, 37)])
def test_enlarge_rows(isa, size):
    rows, out = noise(-(-size[0] // 8), size[1]), np.empty(size, np.float32)
    _pixels.enlarge_rows(rows, out, isa)
    at = (np.arange(size[0]) + 0.5) / 8 - 0.5
    for column, values in zip(out.T, rows.T, strict=True):
        np.testing.assert_allclose(column, np.interp(at, np.arange(len(rows)), values), atol=1e-7)


def test_what_would_be_read_or_written_beyond_an_array_is_refused():
    pixels, change = picture(16, 18, np.uint8), noise(16, 18, 3)
    for bad in (
        lambda: _pixels.add_change(pixels, change[:-1], 1),
        lambda: _pixels.add_change(pixels, change.astype(float), 1),
        lambda: _pixels.add_change(pixels[:, ::2], change[:, ::2], 1),
        lambda: _pixels.limit_change(change, np.ones((3, 3), np.float32), 1, 1),
        lambda: _pixels.limit_change(change, np.ones((1, 1)), 1, 1),
        lambda: _pixels.roughness(pixels, [1]),
        lambda: _pixels.roughness(pixels, [-1]),
        lambda: _pixels.roughness(pixels[:, :17], [0]),
        lambda: _pixels.roughness(pixels[..., :2], [0]),
        lambda: _pixels.count_clipped(pixels[..., 0]),
        lambda: _pixels.patches(pixels[:4], 0, 1, 1),
        lambda: _pixels.patches(pixels, 3, 1, 1),
        lambda: _pixels.patches(pixels, 0, 0, 1),
        lambda: _pixels.enlarge_rows(change[:1, :, 0], np.empty((9, 18), np.float32)),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            bad()
    pixels.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _pixels.add_change(pixels, change, 1)
