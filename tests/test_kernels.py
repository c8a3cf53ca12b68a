"""Every kernel on every level that this machine has, against float64.

The rule for inexact kernels: the error may be twice that of numpy's own float32 arithmetic plus
a small multiple of the size of the numbers involved. Transforms are moreover tested on small
integers, where float32 is exact and nothing but equality passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zenith_ae import selftest
from zenith_ae._kernels import (
    _ops,
    available_isas,
    best_dtype,
    compiled_isas,
    cpu_features,
    current_isa,
    fast_bf16,
    fast_int16,
)
from zenith_ae.engine import packing
from zenith_ae.errors import IsaError

every_isa = pytest.mark.parametrize("isa", available_isas())
#: Products of bf16 as the level has them, and by tiles as level amx does: there by its instructions,
#: at all others emulated.
with_and_without_tiles = pytest.mark.parametrize("tiles", [False, True], ids=["", "tiles"])
seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
channel_counts = st.sampled_from([16, 32, 48, 80])
SENTINEL = np.float32(-12345.0)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def assert_accurate(result, exact, float32, magnitude) -> None:
    """``result`` errs at most twice as much as ``float32`` does, plus 1e-6 of ``magnitude``."""
    assert result.dtype == np.float32
    allowed = 2 * np.abs(float32 - exact).max() + 1e-6 * np.max(magnitude)
    assert np.abs(result - exact).max() <= allowed


def act(x: np.ndarray, relu: bool) -> np.ndarray:
    return np.maximum(x, 0) if relu else x


# --- levels ---------------------------------------------------------------------------------


def test_generic_level_is_always_there():
    assert "generic" in available_isas()
    assert set(available_isas()) <= set(compiled_isas())


def test_best_level_is_the_default(monkeypatch):
    monkeypatch.delenv("ZENITH_ISA", raising=False)
    best = available_isas()[-1]
    # What Intel's CPUs do with bf16 is slower than with int16, but for AMX.
    assert current_isa() == best or (best == "avx512bf16" and current_isa() == "avx512vnni")


@every_isa
def test_environment_and_argument_force_a_level(isa, monkeypatch):
    monkeypatch.setenv("ZENITH_ISA", isa)
    assert current_isa() == isa
    monkeypatch.setenv("ZENITH_ISA", "no-such-level")
    assert current_isa(isa) == isa


def test_unknown_level_is_refused_and_never_replaced(monkeypatch):
    monkeypatch.setenv("ZENITH_ISA", "sse9")
    with pytest.raises(IsaError, match=r"'sse9' \(from ZENITH_ISA\) is not a level; available: generic"):
        current_isa()
    with pytest.raises(IsaError, match="'sse9'"):
        _ops.relu(np.zeros(3, np.float32), np.zeros(3, np.float32))
    with pytest.raises(IsaError, match="'mmx' is not a level"):
        current_isa("mmx")


def test_levels_with_fast_bf16_need_what_their_names_say():
    assert [isa for isa in available_isas() if fast_bf16(isa)] == [
        isa for isa in ("avx512bf16", "amx") if isa in available_isas()
    ]
    if "amx" in available_isas():
        assert {"amx_bf16", "avx512_bf16"} <= set(cpu_features()) and "avx512bf16" in available_isas()
    elif "amx" in compiled_isas():
        reason = (
            "granted by the operating system" if "amx_bf16" in cpu_features() else "supported by this CPU"
        )
        with pytest.raises(IsaError, match=f"'amx' is not {reason}; available: generic"):
            current_isa("amx")


def test_levels_with_fast_int16_need_what_their_names_say():
    for isa, feature in (("avx2vnni", "avx_vnni"), ("avx512vnni", "avx512_vnni")):
        assert (isa in available_isas()) <= (feature in cpu_features())
    for isa in available_isas():
        if isa != "avx2":
            assert fast_int16(isa) == isa.endswith("vnni")
        wanted = "bf16" if fast_bf16(isa) else "int16" if fast_int16(isa) else "float32"
        assert best_dtype(isa) == wanted


@pytest.mark.skipif("avx2" not in available_isas(), reason="a CPU without AVX2")
def test_avx2_multiplies_integers_where_a_cpu_has_two_units_for_it():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        pytest.skip("no /proc/cpuinfo")
    vendor, flags = (
        next(line.split(":")[1].split() for line in lines if line.startswith(key))
        for key in ("vendor_id", "flags")
    )
    assert fast_int16("avx2") == (("clflushopt" if vendor == ["GenuineIntel"] else "vaes") in flags)


def test_import_succeeds_with_an_unknown_level_so_that_the_error_can_be_shown():
    environment = os.environ | {"ZENITH_ISA": "sse9"}
    code = "import zenith_ae._kernels as k; print(*k.available_isas())"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.stdout.split() == list(available_isas()), run.stderr


# --- gemm -----------------------------------------------------------------------------------


def run_gemm(
    isa, a, start, a_pixel, segment, w, bias, residual, block, out_pixel, out, pixels, relu, tiles=False,
    residual_block=None,
):  # fmt: skip
    _ops.gemm(
        a, start, a_pixel, np.asarray(segment, np.intp), w.shape[2], packing.pack(w), bias,
        None if residual is None else residual.ravel(), 0 if residual is None else residual.shape[1],
        out, out_pixel, np.asarray(block, np.intp), pixels, relu, isa=isa, tiles=tiles,
        residual_block=residual_block,
    )  # fmt: skip


def scattered(rng, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The residual (pixels, columns) with its blocks of 16 in any order, with gaps, and where they begin."""
    panels = residual.shape[1] // 16
    block = (rng.permutation(panels) * 16 + 3).astype(np.intp)
    found = np.full((len(residual), 16 * panels + 7), 99, residual.dtype)
    found[:, (block[:, None] + np.arange(16)).ravel()] = residual
    return found, block


def gemm_input(a, start, a_pixel, segment, depth, pixels) -> np.ndarray:
    """The (pixels, segments * depth) matrix that zn_gemm describes."""
    index = (
        start + np.arange(pixels)[:, None, None] * a_pixel + np.asarray(segment)[:, None] + np.arange(depth)
    )
    return a[index].reshape(pixels, -1)


@every_isa
@given(
    rng=seeds,
    kind=st.sampled_from(["linear", "conv", "strided conv", "unshuffle"]),
    depth=st.integers(1, 70),
    panels=st.integers(1, 5),
    pixels=st.integers(1, 45),
    with_bias=st.booleans(),
    with_residual=st.sampled_from(["", "in rows", "scattered"]),
    relu=st.booleans(),
)
def test_gemm_matches_float64(isa, rng, kind, depth, panels, pixels, with_bias, with_residual, relu):
    stride = 2 if kind in ("strided conv", "unshuffle") else 1
    width = pixels * stride + 2
    row = width * depth
    if kind == "linear":
        segment = [0]
    elif kind == "unshuffle":
        segment = [dy * row + dx * depth for dy in range(2) for dx in range(2)]
    else:
        segment = [dy * row + dx * depth for dy in range(3) for dx in range(3)]
    start = int(rng.integers(0, 3))
    a = normal(rng, 3 * row + start)
    w = normal(rng, 16 * panels, len(segment), depth)
    bias = normal(rng, 16 * panels) if with_bias else None
    residual = normal(rng, pixels, 16 * panels) if with_residual else None
    block = rng.permutation(panels) * 16 + 5  # column blocks in any order, with gaps around them
    out_pixel = 16 * panels + 9
    out = np.full(pixels * out_pixel, SENTINEL)
    given, where = scattered(rng, residual) if with_residual == "scattered" else (residual, None)
    run_gemm(
        isa, a, start, stride * depth, segment, w, bias, given, block, out_pixel, out, pixels, relu,
        residual_block=where,
    )  # fmt: skip

    def reference(dtype) -> np.ndarray:
        x = gemm_input(a, start, stride * depth, segment, depth, pixels).astype(dtype)
        y = x @ w.reshape(16 * panels, -1).T.astype(dtype)
        y = y if bias is None else y + bias
        return act(y if residual is None else y + residual, relu)

    x = np.abs(gemm_input(a, start, stride * depth, segment, depth, pixels))
    written = out.reshape(pixels, out_pixel)
    columns = (block[:, None] + np.arange(16)).ravel()
    result = written[:, columns]
    magnitude = (x @ np.abs(w.reshape(16 * panels, -1).T)).max() + 4
    assert_accurate(result, reference(np.float64), reference(np.float32), magnitude)
    untouched = np.delete(written, columns, axis=1)
    assert (untouched == SENTINEL).all()


@every_isa
@given(rng=seeds, depth=st.integers(1, 40), panels=st.integers(1, 4), pixels=st.integers(1, 40))
def test_gemm_bits_depend_neither_on_position_nor_on_the_number_of_pixels_and_columns(
    isa, rng, depth, panels, pixels
):
    a, w = normal(rng, pixels * depth), normal(rng, 16 * panels, 1, depth)
    bias = normal(rng, 16 * panels)
    whole = np.empty(pixels * 16 * panels, np.float32)
    block = np.arange(panels) * 16
    run_gemm(isa, a, 0, depth, [0], w, bias, None, block, 16 * panels, whole, pixels, False)
    whole = whole.reshape(pixels, 16 * panels)
    one = np.empty(16, np.float32)
    for pixel in range(pixels):
        for panel in range(panels):
            part = slice(16 * panel, 16 * panel + 16)
            run_gemm(
                isa, a, pixel * depth, depth, [0], w[part], bias[part].copy(), None, [0], 16, one, 1, False
            )
            assert (one == whole[pixel, part]).all()


@every_isa
def test_gemm_cuts_long_rows_into_chunks_without_a_seam(isa):
    rng = np.random.default_rng(1)
    pixels, depth = 401, 300
    a, w = normal(rng, pixels * depth), normal(rng, 32, 1, depth)
    out = np.empty(pixels * 32, np.float32)
    run_gemm(isa, a, 0, depth, [0], w, None, None, [0, 16], 32, out, pixels, False)
    x = a.reshape(pixels, depth)
    exact = x.astype(np.float64) @ w[:, 0].T.astype(np.float64)
    assert_accurate(out.reshape(pixels, 32), exact, x @ w[:, 0].T, np.abs(x) @ np.abs(w[:, 0].T))


@every_isa
@given(
    rng=seeds,
    segments=st.integers(1, 9),
    depth=st.integers(1, 40).map(lambda n: 2 * n),
    panels=st.integers(1, 5),
    pixels=st.integers(1, 45),
    with_bias=st.booleans(),
    with_residual=st.sampled_from(["", "in rows", "scattered"]),
    relu=st.booleans(),
)
def test_gemm_of_integers_is_that_of_rounded_values(
    isa, rng, segments, depth, panels, pixels, with_bias, with_residual, relu
):
    """The integers are exact, so that only factors, bias and residual round, each once."""
    spread = np.exp(rng.normal(0, 8, (pixels, 1, 1))).astype(np.float32)  # each pixel has a scale of its own
    a = (spread * normal(rng, pixels, segments, depth)).ravel()
    segment = np.arange(segments, dtype=np.intp) * depth
    w = normal(rng, 16 * panels, segments, depth)
    bias = normal(rng, 16 * panels) if with_bias else None
    residual = normal(rng, pixels, 16 * panels) if with_residual else None
    given, where = scattered(rng, residual) if with_residual == "scattered" else (residual, None)
    block, out_pixel = rng.permutation(panels) * 16 + 5, 16 * panels + 9
    out = np.full(pixels * out_pixel, SENTINEL)
    packed = packing.pack_int16(w)
    _ops.gemm(
        a, 0, segments * depth, segment, depth, packed, bias, None if given is None else given.ravel(),
        0 if given is None else given.shape[1], out, out_pixel, block, pixels, relu, isa=isa,
        residual_block=where,
    )  # fmt: skip

    x = a.reshape(pixels, -1).astype(np.float64)
    exponent = np.frexp(np.abs(x).max(1))[1]
    integers = np.rint(np.ldexp(x, 13 - exponent[:, None]))
    factor = packed[:, 0].copy().view(np.float32).ravel().astype(np.float64)
    weights = packed[:, 1:].swapaxes(1, 2).reshape(16 * panels, -1).astype(np.float64)
    sums = np.ldexp(integers @ weights.T, exponent[:, None] - 13) * factor
    exact = sums if bias is None else sums + bias
    exact = act(exact if residual is None else exact + residual, relu)
    written = out.reshape(pixels, out_pixel)
    columns = (block[:, None] + np.arange(16)).ravel()
    size = np.abs(sums) + 4 + (0 if bias is None else np.abs(bias))
    assert (np.abs(written[:, columns] - exact) <= 4e-7 * size).all()
    assert (np.delete(written, columns, axis=1) == SENTINEL).all()


@every_isa
def test_sums_of_integers_neither_overflow_nor_depend_on_position(isa):
    rng = np.random.default_rng(3)
    for depth in (2, 48, 70, 4096):
        # Of one sign, as large as they get, and one weight much larger than all others.
        w = np.concatenate([np.full((16, 1, depth), -1.0), np.abs(rng.standard_normal((16, 1, depth)))])
        w = np.concatenate([w, np.eye(16, depth)[:, None] * 1e6 + 1]).astype(np.float32)
        a = np.full((5, depth), np.float32(1) - np.float32(2**-24))
        a[1:] *= np.array([[1], [-3], [2.0**-40], [2.0**100]], np.float32)
        packed, block = packing.pack_int16(w), np.arange(0, 48, 16)

        def product(rows, packed=packed, block=block, depth=depth):
            out = np.empty(len(rows) * 48, np.float32)
            zero = np.zeros(1, np.intp)
            _ops.gemm(rows.ravel(), 0, depth, zero, depth, packed, None, None, 0, out, 48, block, len(rows),
                      isa=isa)  # fmt: skip
            return out.reshape(-1, 48)

        whole = product(a)
        exact = a.astype(np.float64) @ w[:, 0].T.astype(np.float64)
        factor = packed[:, 0].copy().view(np.float32).ravel()  # no weight is off by more than half of it
        allowed = np.abs(w[:, 0]).sum(1) * 2.0**-13 + depth / 2 * factor
        assert (np.abs(whole - exact) <= allowed * np.abs(a).max(1, keepdims=True)).all()
        for row in range(5):
            assert (product(a[row : row + 1]) == whole[row]).all()


@every_isa
def test_a_pixel_of_nothing_gives_the_bias_and_one_that_is_not_finite_only_itself(isa):
    rng = np.random.default_rng(4)
    a, w, bias = normal(rng, 9, 24), normal(rng, 32, 1, 24), normal(rng, 32)
    a[2], a[3], a[5, 7], a[6, 23], a[8, 0] = 0, np.float32(1e-42), np.inf, np.nan, -np.inf
    out = np.empty(9 * 32, np.float32)
    _ops.gemm(a.ravel(), 0, 24, np.zeros(1, np.intp), 24, packing.pack_int16(w), bias, None, 0, out, 32,
              np.array([0, 16]), 9, isa=isa)  # fmt: skip
    out = out.reshape(9, 32)
    assert np.isnan(out[[5, 6, 8]]).all() and np.isfinite(np.delete(out, [5, 6, 8], 0)).all()
    assert (out[2] == bias).all() and (out[3] == bias).all()


def test_integers_of_a_matrix_keep_sums_in_32_bits():
    rng = np.random.default_rng(5)
    for columns, taps, depth in ((5, 1, 2), (16, 9, 64), (40, 4, 96), (3, 1, 4096)):
        w = normal(rng, columns, taps, depth) * np.exp(rng.normal(0, 5, (columns, 1, 1))).astype(np.float32)
        w[0], w[1, 0, depth // 2 :] = 0, 0
        packed = packing.pack_int16(w)
        factor = packed[:, 0].copy().view(np.float32).ravel()[:columns]
        integers = packed[:, 1:].swapaxes(1, 2).reshape(-1, taps, depth)[:columns].astype(np.int64)
        assert 2**13 * np.abs(integers).sum((1, 2)).max() < 2**31 and np.abs(integers).max() < 2**15
        assert np.abs(integers).sum((1, 2))[2:].min() > 2**15 - 3  # and use what room there is
        assert (integers[w == 0] == 0).all()
        back = integers * factor[:, None, None].astype(np.float64)
        assert (np.abs(back - w) <= 0.5001 * factor[:, None, None]).all()


def test_gemm_entry_point_refuses_integers_that_it_cannot_multiply():
    packed, out = packing.pack_int16(np.ones((16, 1, 8), np.float32)), np.zeros(16, np.float32)
    zero, deep = np.zeros(1, np.intp), packing.pack_int16(np.ones((16, 1, 4098), np.float32))
    with pytest.raises(ValueError, match="of float32 and at most 4096 deep"):
        _ops.gemm(np.zeros(4098, np.float32), 0, 0, zero, 4098, deep, None, None, 0, out, 16, zero, 1)
    with pytest.raises(ValueError, match="of float32"):
        _ops.gemm(np.zeros(8, np.uint16), 0, 0, zero, 8, packed, None, None, 0, out, 16, zero, 1)
    with pytest.raises(ValueError, match="even depth"):
        _ops.gemm(np.zeros(8, np.float32), 0, 0, zero, 7, packed, None, None, 0, out, 16, zero, 1)
    with pytest.raises(ValueError, match="b must have shape"):
        _ops.gemm(np.zeros(8, np.float32), 0, 0, zero, 6, packed, None, None, 0, out, 16, zero, 1)


def test_gemm_entry_point_refuses_addresses_outside_its_arrays():
    a, w, out = np.zeros(64, np.float32), np.zeros((16, 1, 8), np.float32), np.zeros(128, np.float32)
    arguments = dict(w=w, bias=None, residual=None, out_pixel=16, relu=False)
    for change in (
        dict(start=1), dict(a_pixel=9), dict(segment=[-1]), dict(segment=[1]), dict(block=[1]),
        dict(pixels=9),
    ):  # fmt: skip
        call = dict(a=a, start=0, a_pixel=8, segment=[0], block=[0], out=out, pixels=8) | arguments | change
        with pytest.raises(ValueError, match="outside its bounds"):
            run_gemm("generic", **call)


# --- depthwise ------------------------------------------------------------------------------


def depthwise_reference(rows, weight, bias, add, relu, dtype) -> np.ndarray:
    width, channels = next(row for row in rows if row is not None).shape
    total = np.zeros((width, channels), dtype)
    for i, row in enumerate(rows):
        if row is None:
            continue
        padded = np.pad(row.astype(dtype), ((1, 1), (0, 0)))
        for j in range(3):
            total = total + padded[j : j + width] * weight[i, j].astype(dtype)
    total = total if bias is None else total + bias
    return act(total if add is None else total + add, relu)


@every_isa
@given(
    rng=seeds,
    width=st.integers(1, 75),
    channels=channel_counts,
    above=st.booleans(),
    below=st.booleans(),
    with_bias=st.booleans(),
    with_add=st.booleans(),
    in_place=st.booleans(),
    relu=st.booleans(),
)
def test_depthwise_matches_float64(
    isa, rng, width, channels, above, below, with_bias, with_add, in_place, relu
):
    rows = [normal(rng, width, channels) for _ in range(3)]
    rows[0], rows[2] = rows[0] if above else None, rows[2] if below else None
    weight, bias = normal(rng, 3, 3, channels), normal(rng, channels) if with_bias else None
    add = normal(rng, width, channels) if with_add else None
    exact = depthwise_reference(rows, weight, bias, add, relu, np.float64)
    float32 = depthwise_reference(rows, weight, bias, add, relu, np.float32)
    out = add if with_add and in_place else np.empty((width, channels), np.float32)
    _ops.depthwise(*rows, weight, bias, add, out, relu, isa=isa)
    assert_accurate(out, exact, float32, 10)


@every_isa
@given(rng=seeds, width=st.integers(3, 40), shift=st.integers(1, 40))
def test_depthwise_bits_do_not_depend_on_the_position_in_the_row(isa, rng, width, shift):
    rows = [normal(rng, width, 16) for _ in range(3)]
    weight = normal(rng, 3, 3, 16)
    out, moved = np.empty((width, 16), np.float32), np.empty((width + 2 * shift, 16), np.float32)
    _ops.depthwise(*rows, weight, None, None, out, isa=isa)
    longer = [np.concatenate([normal(rng, shift, 16), row, normal(rng, shift, 16)]) for row in rows]
    _ops.depthwise(*longer, weight, None, None, moved, isa=isa)
    assert (moved[shift + 1 : shift + width - 1] == out[1:-1]).all()


# --- Walsh-Hadamard -------------------------------------------------------------------------


def hadamard(n: int) -> np.ndarray:
    """The matrix (-1)^popcount(i & j), which is Sylvester's, in float64."""
    i = np.arange(n)
    parity = np.array([[bin(a & b).count("1") & 1 for a in i] for b in i])
    return 1.0 - 2.0 * parity


def shrink(x, threshold):
    return x if threshold is None else np.sign(x) * np.maximum(np.abs(x) - threshold, 0)


def to_tiles(x: np.ndarray, T: int) -> np.ndarray:
    """(rows <= T, width, C) to (tiles, T, T, C), filled up with zeros."""
    rows, width, channels = x.shape
    tiles = -(-width // T)
    padded = np.pad(x, ((0, T - rows), (0, tiles * T - width), (0, 0)))
    return padded.reshape(T, tiles, T, channels).swapaxes(0, 1)


def from_tiles(tiles: np.ndarray, rows: int, width: int) -> np.ndarray:
    T, channels = tiles.shape[1], tiles.shape[3]
    return tiles.swapaxes(0, 1).reshape(T, -1, channels)[:rows, :width]


def transform(tiles: np.ndarray) -> np.ndarray:
    h = hadamard(tiles.shape[1]).astype(tiles.dtype)
    return np.einsum("ay,bx,nyxc->nabc", h, h, tiles, optimize=True)


def wht_reference(x, gate, threshold) -> np.ndarray:
    spectrum = shrink(gate * transform(to_tiles(x, len(gate))), threshold)
    return from_tiles(transform(spectrum), *x.shape[:2])


def wht_backward_reference(x, grad_out, gate, threshold):
    """grad_in, grad_gate and grad_threshold, in the dtype of the arguments."""
    X = transform(to_tiles(x, len(gate)))
    P, dS = gate * X, transform(to_tiles(grad_out, len(gate)))
    passed = np.ones_like(P) if threshold is None else (np.abs(P) > threshold).astype(P.dtype)
    dP = dS * passed
    grad_in = from_tiles(transform(gate * dP), *x.shape[:2])
    return grad_in, (dP * X).sum(0), -(np.sign(P) * dP).sum(0)


def separable_reference(x, row_gate, row_threshold, column_gate, column_threshold) -> np.ndarray:
    tiles, h = to_tiles(x, len(row_gate)), hadamard(len(row_gate)).astype(x.dtype)
    for axis, gate, threshold in ((2, row_gate, row_threshold), (1, column_gate, column_threshold)):
        v = np.moveaxis(tiles, axis, 2)
        v = shrink(gate * np.einsum("ab,nkbc->nkac", h, v), threshold)
        tiles = np.moveaxis(np.einsum("ab,nkbc->nkac", h, v), 2, axis)
    return from_tiles(tiles, *x.shape[:2])


def small_integers(rng, *shape) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(np.float32)


def with_gap(x: np.ndarray, gap: int) -> tuple[np.ndarray, np.ndarray]:
    """The same values as a view whose rows lie ``gap`` floats further apart, and these floats."""
    rows, width, channels = x.shape
    store = np.full((rows, width * channels + gap), SENTINEL)
    view = store[:, : width * channels].reshape(rows, width, channels)
    view[:] = x
    return view, store[:, width * channels :]


tile_cases = dict(
    rng=seeds,
    T=st.sampled_from([4, 8, 16]),
    missing_rows=st.integers(0, 15),
    width=st.integers(1, 37),
    channels=st.sampled_from([16, 48]),
    with_threshold=st.booleans(),
)


@every_isa
@given(**tile_cases, in_place=st.booleans(), gap=st.sampled_from([0, 16, 3]))
def test_wht_tiles_match_float64(isa, rng, T, missing_rows, width, channels, with_threshold, in_place, gap):
    x = normal(rng, max(1, T - missing_rows), width, channels)
    gate = normal(rng, T, T, channels) / np.float32(T * T)
    threshold = np.abs(normal(rng, T, T, channels)) / np.float32(T) if with_threshold else None
    exact = wht_reference(x.astype(np.float64), gate, threshold)
    float32 = wht_reference(x, gate, threshold)
    source, behind = with_gap(x, gap)
    out, behind = (source, behind) if in_place else with_gap(np.zeros_like(x), 2 * gap)
    _ops.wht_tiles(source, out, gate, threshold, isa=isa)
    assert_accurate(out, exact, float32, np.abs(exact).max() + 1)
    assert (behind == SENTINEL).all()


@every_isa
@given(**tile_cases)
def test_wht_tiles_and_gradients_are_exact_on_small_integers(
    isa, rng, T, missing_rows, width, channels, with_threshold
):
    x = small_integers(rng, max(1, T - missing_rows), width, channels)
    grad_out = small_integers(rng, *x.shape)
    gate = small_integers(rng, T, T, channels)
    # Halves between the integers: no coefficient meets its threshold exactly.
    threshold = rng.integers(0, 3 * T, gate.shape).astype(np.float32) + 0.5 if with_threshold else None

    out = np.empty_like(x)
    _ops.wht_tiles(x, out, gate, threshold, isa=isa)
    assert (out == wht_reference(x.astype(np.float64), gate, threshold)).all()

    start = small_integers(rng, *gate.shape)
    grad_in, grad_gate = np.empty_like(x), start.copy()
    grad_threshold = start.copy() if with_threshold else None
    _ops.wht_tiles_backward(x, grad_out, grad_in, gate, threshold, grad_gate, grad_threshold, isa=isa)
    expected = wht_backward_reference(x.astype(np.float64), grad_out.astype(np.float64), gate, threshold)
    assert (grad_in == expected[0]).all()
    assert (grad_gate == start + expected[1]).all()
    if with_threshold:
        assert (grad_threshold == start + expected[2]).all()


def test_backward_reference_is_the_derivative_of_the_forward_reference():
    rng = np.random.default_rng(7)
    x, grad_out = rng.standard_normal((2, 7, 19, 16))
    gate, threshold = rng.standard_normal((8, 8, 16)), rng.uniform(0, 8, (8, 8, 16))
    gradients = wht_backward_reference(x, grad_out, gate, threshold)
    point, step = (x, gate, threshold), 1e-7
    for i, gradient in enumerate(gradients):
        direction = rng.standard_normal(gradient.shape)
        ends = []
        for sign in (1, -1):
            moved = [p + sign * step * direction if k == i else p for k, p in enumerate(point)]
            ends.append((wht_reference(*moved) * grad_out).sum())
        slope = (ends[0] - ends[1]) / (2 * step)
        assert slope == pytest.approx((gradient * direction).sum(), rel=1e-4)


@every_isa
@given(rng=seeds, T=st.sampled_from([4, 8, 16]), tiles=st.integers(1, 4))
def test_wht_tile_bits_do_not_depend_on_the_neighbours(isa, rng, T, tiles):
    x = normal(rng, T, T * tiles, 16)
    gate, threshold = normal(rng, T, T, 16), np.abs(normal(rng, T, T, 16))
    whole, alone = np.empty_like(x), np.empty((T, T, 16), np.float32)
    _ops.wht_tiles(x, whole, gate, threshold, isa=isa)
    for i in range(tiles):
        part = slice(i * T, i * T + T)
        _ops.wht_tiles(np.ascontiguousarray(x[:, part]), alone, gate, threshold, isa=isa)
        assert (alone == whole[:, part]).all()


@every_isa
@given(**tile_cases, in_place=st.booleans())
def test_separable_wht_is_exact_on_small_integers(
    isa, rng, T, missing_rows, width, channels, with_threshold, in_place
):
    x = small_integers(rng, max(1, T - missing_rows), width, channels)
    gates = [small_integers(rng, T, channels) for _ in range(2)]
    thresholds = [
        rng.integers(0, 2 * T, (T, channels)).astype(np.float32) if with_threshold else None for _ in range(2)
    ]
    arguments = gates[0], thresholds[0], gates[1], thresholds[1]
    expected = separable_reference(x.astype(np.float64), *arguments)
    out = x if in_place else np.empty_like(x)
    _ops.wht_tiles_separable(x, out, *arguments, isa=isa)
    assert (out == expected).all()


@every_isa
@given(rng=seeds, H=st.integers(1, 20), W=st.integers(1, 20), with_threshold=st.booleans())
def test_batch_functions_for_training_use_the_stored_convention(isa, rng, H, W, with_threshold):
    N, C, T = 2, 16, 4
    x, grad_out = small_integers(rng, N, H, W, C), small_integers(rng, N, H, W, C)
    gate = small_integers(rng, T, T, C)
    threshold = rng.integers(0, 9, gate.shape).astype(np.float32) + 0.5 if with_threshold else None
    out, grad_in = np.empty_like(x), np.empty_like(x)
    grad_gate, grad_threshold = np.zeros_like(gate), np.zeros_like(gate) if with_threshold else None
    _ops.wht_gate_forward(x, gate, threshold, out, isa=isa)
    _ops.wht_gate_backward(x, grad_out, gate, threshold, grad_in, grad_gate, grad_threshold, isa=isa)

    gate_total, threshold_total = np.zeros(gate.shape), np.zeros(gate.shape)
    for n in range(N):
        for y in range(0, H, T):
            band = n, slice(y, y + T)
            source, slope = x[band].astype(np.float64), grad_out[band].astype(np.float64)
            assert (out[band] == wht_reference(source, gate, threshold) / T**2).all()
            gradients = wht_backward_reference(source, slope, gate, threshold)
            assert (grad_in[band] == gradients[0] / T**2).all()
            gate_total += gradients[1] / T**2
            threshold_total += gradients[2] / T**2
    assert (grad_gate == gate_total).all()
    if with_threshold:
        assert (grad_threshold == threshold_total).all()


# --- Winograd's convolution -----------------------------------------------------------------

ROOT = np.sqrt(2.0)
POINTS = np.array([0, 1 / ROOT, -1 / ROOT, ROOT, -ROOT])


def input_matrix() -> np.ndarray:
    """(6, 6): a row for each point, the polynomial whose zeros are the other points; last, all of them."""
    rows = [np.append(np.poly(np.delete(POINTS, i))[::-1], 0) for i in range(5)]
    return np.array([*rows, np.poly(POINTS)[::-1]])


def output_matrix() -> np.ndarray:
    """(4, 6): powers of each point; infinity only counts in the last row."""
    return np.column_stack([POINTS ** np.arange(4)[:, None], [0, 0, 0, 1]])


def direct_convolution(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x (H + 2, W + 2, channels) with its border, weight (cout, channels, 3, 3) -> (H, W, cout), float64."""
    height, width = x.shape[0] - 2, x.shape[1] - 2
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    return sum(x[i : i + height, j : j + width] @ weight[:, :, i, j].T for i in range(3) for j in range(3))


def rows_apart(rows: int, width: int, channels: int, gap: int) -> tuple[np.ndarray, np.ndarray]:
    """SENTINELs as (rows, width, channels), ``gap`` of them after each row and a row behind; all of them."""
    memory = np.full((rows + 1, width * channels + gap), SENTINEL)
    strides = (memory.strides[0], 4 * channels, 4)
    return np.lib.stride_tricks.as_strided(memory, (rows, width, channels), strides), memory


def assert_only_rows_written(memory: np.ndarray, rows: int, length: int) -> None:
    assert (memory[:rows, length:] == SENTINEL).all()
    assert (memory[rows:] == SENTINEL).all()


@every_isa
@given(
    rng=seeds, tiles=st.integers(1, 5), missing=st.integers(0, 5), channels=channel_counts,
    gap=st.sampled_from([0, 16, 5]),
)  # fmt: skip
def test_winograd_in_matches_float64(isa, rng, tiles, missing, channels, gap):
    width = 4 * tiles + 2 - missing
    x = normal(rng, 6, width, channels)
    out, memory = rows_apart(36, tiles, channels, gap)
    _ops.winograd_in(x, out, isa=isa)

    def reference(dtype) -> np.ndarray:
        padded = np.zeros((6, 4 * tiles + 2, channels), dtype)
        padded[:, :width] = x
        B = input_matrix().astype(dtype)
        blocks = [np.einsum("iy,jx,yxc->ijc", B, B, padded[:, 4 * t : 4 * t + 6]) for t in range(tiles)]
        return np.stack(blocks, 2).reshape(36, tiles, channels)

    assert_accurate(out, reference(np.float64), reference(np.float32), np.abs(x).max())
    assert_only_rows_written(memory, 36, tiles * channels)


@every_isa
@given(rng=seeds, rows=st.integers(1, 4), width=st.integers(1, 18), channels=channel_counts,
       with_bias=st.booleans(), with_residual=st.booleans(), relu=st.booleans(),
       gap=st.sampled_from([0, 16, 5]))  # fmt: skip
def test_winograd_out_matches_float64(isa, rng, rows, width, channels, with_bias, with_residual, relu, gap):
    tiles = -(-width // 4)
    x = normal(rng, 36, tiles, channels)
    bias = normal(rng, channels) if with_bias else None
    residual = normal(rng, rows, width, channels) if with_residual else None
    out, memory = rows_apart(rows, width, channels, gap)
    _ops.winograd_out(x, bias, residual, out, relu, isa=isa)

    def reference(dtype) -> np.ndarray:
        A = output_matrix().astype(dtype)
        tiled = np.einsum("yi,xj,ijtc->ytxc", A, A, x.astype(dtype).reshape(6, 6, tiles, channels))
        y = tiled.reshape(4, 4 * tiles, channels)[:rows, :width]
        y = y if bias is None else y + bias
        return act(y if residual is None else y + residual, relu)

    assert_accurate(out, reference(np.float64), reference(np.float32), np.abs(x).max())
    assert_only_rows_written(memory, rows, width * channels)


@every_isa
@given(rng=seeds, width=st.integers(1, 14), height=st.integers(1, 4))
def test_winograd_gives_the_convolution(isa, rng, width, height):
    cin, cout, tiles = 48, 32, -(-width // 4)
    x = np.zeros((6, width + 2, cin), np.float32)
    x[1 : height + 1, 1:-1] = normal(rng, height, width, cin)
    weight = normal(rng, cout, cin, 3, 3)
    values, out = np.empty((36, tiles, cin), np.float32), np.empty((height, width, cout), np.float32)
    _ops.winograd_in(x, values, isa=isa)
    sums = values @ packing.winograd(weight).swapaxes(1, 2)
    _ops.winograd_out(sums, None, None, out, isa=isa)
    exact = direct_convolution(x, weight)[:height]
    norm = np.sqrt(direct_convolution(np.square(x), np.square(weight)))
    assert (np.abs(out - exact) <= 1e-5 * norm.max()).all()


@every_isa
@given(rng=seeds, tiles=st.integers(1, 4), dtype=st.sampled_from([np.float32, np.uint16]))
def test_winograd_tile_bits_do_not_depend_on_the_neighbours(isa, rng, tiles, dtype):
    x = normal(rng, 6, 4 * tiles + 2, 32)
    x = x if dtype == np.float32 else narrow(x)
    values, sums = np.empty((36, tiles, 32), dtype), normal(rng, 36, tiles, 32)
    out, bias = np.empty((4, 4 * tiles, 32), dtype), normal(rng, 32)
    _ops.winograd_in(x, values, isa=isa)
    _ops.winograd_out(sums, bias, None, out, isa=isa)
    for t in range(tiles):
        one, block = np.empty((36, 1, 32), dtype), np.empty((4, 4, 32), dtype)
        _ops.winograd_in(np.ascontiguousarray(x[:, 4 * t : 4 * t + 6]), one, isa=isa)
        _ops.winograd_out(np.ascontiguousarray(sums[:, t : t + 1]), bias, None, block, isa=isa)
        assert (one[:, 0] == values[:, t]).all()
        assert (block == out[:, 4 * t : 4 * t + 4]).all()


@every_isa
@given(rng=seeds, rows=st.integers(1, 4), width=st.integers(1, 14), channels=channel_counts,
       with_residual=st.booleans(), relu=st.booleans())  # fmt: skip
def test_bf16_winograd_rounds_the_float32_result(isa, rng, rows, width, channels, with_residual, relu):
    tiles = -(-width // 4)
    x = narrow(normal(rng, 6, width + 2, channels))
    expected, out = np.empty((36, tiles, channels), np.float32), np.empty((36, tiles, channels), np.uint16)
    _ops.winograd_in(widen(x), expected, isa=isa)
    _ops.winograd_in(x, out, isa=isa)
    assert (out == narrow(expected)).all()

    sums, bias = normal(rng, 36, tiles, channels), normal(rng, channels)
    residual = narrow(normal(rng, rows, width, channels)) if with_residual else None
    expected, out = (
        np.empty((rows, width, channels), np.float32),
        np.empty((rows, width, channels), np.uint16),
    )
    wide = None if residual is None else widen(residual)
    _ops.winograd_out(sums, bias, wide, expected, relu, isa=isa)
    _ops.winograd_out(sums, bias, residual, out, relu, isa=isa)
    assert (out == narrow(expected)).all()


@every_isa
@given(rng=seeds, log2=st.integers(0, 12), count=st.integers(1, 3), gap=st.integers(0, 3))
def test_fwht_is_exact_on_small_integers(isa, rng, log2, count, gap):
    n = 2**log2
    store = np.full((count, n + gap), SENTINEL)
    x = small_integers(rng, count, n)
    store[:, :n] = x
    _ops.fwht(store[:, :n], isa=isa)
    expected = x.astype(np.float64)
    for bit in range(log2):  # the textbook recursion
        pairs = expected.reshape(count, -1, 2, 2**bit)
        expected = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2)
    assert (store[:, :n] == expected.reshape(count, n)).all()
    assert (store[:, n:] == SENTINEL).all()


@given(rng=seeds, log2=st.integers(0, 11))
def test_fwht_gives_the_same_bits_on_every_level(rng, log2):
    x = normal(rng, 1, 2**log2)
    results = []
    for isa in available_isas():
        y = x.copy()
        _ops.fwht(y, isa=isa)
        results.append(y)
    assert all((y == results[0]).all() for y in results)
    exact = x.astype(np.float64) @ hadamard(2**log2) if log2 <= 8 else results[0].astype(np.float64)
    assert np.abs(results[0] - exact).max() <= 1e-6 * np.abs(x).sum()


# --- elementwise ----------------------------------------------------------------------------


@every_isa
@given(rng=seeds, n=st.integers(0, 70), in_place=st.booleans())
def test_relu_and_add_are_exact_at_every_length(isa, rng, n, in_place):
    x, y = normal(rng, n), normal(rng, n)
    expected_relu, expected_sum = np.maximum(x, 0), x + y
    out = x.copy() if in_place else np.empty_like(x)
    _ops.relu(out if in_place else x, out, isa=isa)
    assert (out == expected_relu).all()
    out = y.copy() if in_place else np.empty_like(x)
    _ops.add(x, out if in_place else y, out, isa=isa)
    assert (out == expected_sum).all()


@every_isa
@pytest.mark.parametrize("position", [0, 1, 20])
def test_nan_is_not_hidden(isa, position):
    x = np.ones(21, np.float32)
    x[position] = np.nan
    out = np.empty_like(x)
    for run in (_ops.relu, lambda *a, isa: _ops.soft_clamp(*a, 3.0, isa=isa)):
        run(x, out, isa=isa)
        assert np.flatnonzero(np.isnan(out)).tolist() == [position]


@every_isa
@given(rng=seeds, n=st.integers(1, 70), limit=st.sampled_from([0.5, 3.0, 10.0]), in_place=st.booleans())
def test_soft_clamp_is_tanh_within_a_millionth_of_the_limit(isa, rng, n, limit, in_place):
    x = normal(rng, n) * np.float32(limit * 4)
    x[0] = rng.choice(np.array([0, -0.0, 1e-20, 1e30, -np.inf, np.inf], np.float32))
    exact = np.tanh(x.astype(np.float64) / limit) * limit
    out = x if in_place else np.empty_like(x)
    _ops.soft_clamp(x, out, limit, isa=isa)
    assert np.abs(out - exact).max() < 1e-6 * limit
    assert np.abs(out).max() <= limit
    np.testing.assert_allclose(out, exact, rtol=1e-6, atol=1e-37)


@every_isa
@given(rng=seeds, pixels=st.integers(1, 200), channels=channel_counts)
def test_moments_are_added(isa, rng, pixels, channels):
    x = normal(rng, pixels, channels) + rng.standard_normal(channels).astype(np.float32)
    out = np.ones((channels + 1, channels))
    _ops.moments(x, out, isa=isa)
    wide = x.astype(np.float64)
    block = np.arange(channels) // 16
    written = block[:, None] <= block
    error = out[:-1] - 1 - wide.T @ wide
    assert (np.abs(error) <= 2e-6 * (np.abs(wide).T @ np.abs(wide)))[written].all()
    assert (out[:-1][~written] == 1).all()
    assert (np.abs(out[-1] - 1 - wide.sum(0)) <= 2e-6 * np.abs(wide).sum(0)).all()


@every_isa
def test_moments_of_many_pixels_are_added_in_double(isa):
    x = np.full((64 * 3000, 16), 1 + 2.0**-12, np.float32)
    out = np.zeros((17, 16))
    _ops.moments(x, out, isa=isa)
    np.testing.assert_allclose(out[-1], len(x) * (1 + 2.0**-12), rtol=2e-7)
    np.testing.assert_allclose(out[:-1][np.triu_indices(16)], len(x) * (1 + 2.0**-12) ** 2, rtol=2e-7)


@every_isa
@given(
    rng=seeds, pixels=st.integers(1, 20), channels=channel_counts, relu=st.booleans(), in_place=st.booleans()
)
def test_scale_shift_matches_float64(isa, rng, pixels, channels, relu, in_place):
    x, scale, shift = normal(rng, pixels, channels), normal(rng, channels), normal(rng, channels)
    exact = act(x.astype(np.float64) * scale + shift, relu)
    float32 = act(x * scale + shift, relu)
    out = x if in_place else np.empty_like(x)
    _ops.scale_shift(x, scale, shift, out, relu, isa=isa)
    assert_accurate(out, exact, float32, 10)


# --- bf16 -----------------------------------------------------------------------------------
#
# Activations as uint16 are bf16. Such a kernel computes what the float32 kernel computes from the
# widened values, and rounds once at the end: the tests ask for exactly these bits.


def narrow(x: np.ndarray) -> np.ndarray:
    """Float32 to bf16 in uint16: to nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32)


def step_depth(segments: int, depth: int) -> int:
    """How many channels a step of tiles has: 32; of one segment no more than its steps need, of planes 16."""
    whole = segments * depth
    least = -(-whole // 32)
    if segments == 1:
        return 2 * -(-whole // (2 * least))
    return 16 if depth == 16 and 2 * segments <= 3 * least else min(whole, 32)


def chain_of_sums(x: np.ndarray, matrix: np.ndarray, bias, step: int | None) -> np.ndarray:
    """x @ matrix + bias in the documented order; both float32 that bf16 can hold, so products are exact.

    ``step`` is the depth of a step of tiles; None is without tiles, and from a depth below 16 so are they.
    """
    depth = x.shape[1]
    total = np.zeros((len(x), matrix.shape[1]), np.float32)
    bias = np.float32(0) if bias is None else bias
    if step is None or depth < 16:
        total += bias
        for k in range(0, depth, 2):
            for odd in (1, 0):
                total = total + x[:, k + odd, None] * matrix[k + odd]
        return total
    for start in range(0, depth, step):
        chains = np.zeros((2, *total.shape), np.float32)
        for k in range(start, min(start + step, depth)):
            chains[k % 2] += x[:, k, None] * matrix[k]
        total = total + (chains[0] + chains[1])
    return total + bias


@with_and_without_tiles
@every_isa
@given(
    rng=seeds,
    kind=st.sampled_from(["linear", "conv", "unshuffle", "planes"]),
    pairs=st.integers(1, 60),
    panels=st.integers(1, 5),
    pixels=st.integers(1, 80),
    with_bias=st.booleans(),
    with_residual=st.sampled_from(["", "in rows", "scattered"]),
    relu=st.booleans(),
    float_out=st.booleans(),
)
def test_bf16_gemm_is_the_documented_chain_of_sums(
    isa, tiles, rng, kind, pairs, panels, pixels, with_bias, with_residual, relu, float_out
):
    stride, start = 2 if kind == "unshuffle" else 1, int(rng.integers(0, 3))
    if kind == "planes":  # up to more of them than a block of pixels is copied from
        depth, row = 16, pixels * 16 + 2 * int(rng.integers(0, 9))
        segment = [row * i for i in range(pairs)]
    else:
        depth = 2 * pairs if kind == "linear" else 2 * min(pairs, 20)
        row = (pixels * stride + 2) * depth
        size = {"linear": 1, "unshuffle": 2, "conv": 3}[kind]
        segment = [dy * row + dx * depth for dy in range(size) for dx in range(size)]
    a = narrow(normal(rng, (3 + max(segment) // row) * row + start))
    w = narrow(normal(rng, 16 * panels, len(segment), depth))
    bias = normal(rng, 16 * panels) if with_bias else None
    residual = narrow(normal(rng, pixels, 16 * panels)) if with_residual else None
    block = rng.permutation(panels) * 16 + 5
    out_pixel = 16 * panels + 9
    out = np.full(pixels * out_pixel, SENTINEL) if float_out else np.full(pixels * out_pixel, 77, np.uint16)
    before = out[0]
    given, where = scattered(rng, residual) if with_residual == "scattered" else (residual, None)
    run_gemm(
        isa, a, start, stride * depth, segment, w, bias, given, block, out_pixel, out, pixels, relu, tiles,
        residual_block=where,
    )  # fmt: skip

    x = widen(gemm_input(a, start, stride * depth, segment, depth, pixels))
    step = step_depth(len(segment), depth) if tiles or isa == "amx" else None
    total = chain_of_sums(x, widen(w).reshape(16 * panels, -1).T, bias, step)
    total = act(total if residual is None else total + widen(residual), relu)
    written = out.reshape(pixels, out_pixel)
    columns = (block[:, None] + np.arange(16)).ravel()
    assert (written[:, columns] == (total if float_out else narrow(total))).all()
    assert (np.delete(written, columns, axis=1) == before).all()


@with_and_without_tiles
@every_isa
@given(rng=seeds, pairs=st.integers(1, 40), panels=st.integers(1, 4), pixels=st.integers(1, 70))
def test_bf16_gemm_bits_depend_neither_on_position_nor_on_the_number_of_pixels_and_columns(
    isa, tiles, rng, pairs, panels, pixels
):
    depth = 2 * pairs
    a, w = narrow(normal(rng, pixels * depth)), narrow(normal(rng, 16 * panels, 1, depth))
    whole, one = np.empty((pixels, 16 * panels), np.float32), np.empty(16 * panels, np.float32)
    block = np.arange(panels) * 16

    def run(first, count, panels, w, out) -> None:
        run_gemm(
            isa, a, first * depth, depth, [0], w, None, None, block[:panels], 16 * panels, out.ravel(), count,
            False, tiles,
        )  # fmt: skip

    run(0, pixels, panels, w, whole)
    for pixel in range(pixels):
        run(pixel, 1, panels, w, one)
        assert (one == whole[pixel]).all()
    for panel in range(panels):
        part, column = slice(16 * panel, 16 * panel + 16), np.empty((pixels, 16), np.float32)
        run(0, pixels, 1, w[part], column)
        assert (column == whole[:, part]).all()


@with_and_without_tiles
@every_isa
def test_bf16_gemm_keeps_numbers_that_are_none_to_their_pixel(isa, tiles):
    rng = np.random.default_rng(3)
    pixels, depth = 37, 88  # the last tile of depth begins among values that the one before has had
    x, w = narrow(normal(rng, pixels, depth)), narrow(normal(rng, 48, 1, depth))

    def product() -> np.ndarray:
        out = np.empty((pixels, 48), np.float32)
        run_gemm(
            isa, x.ravel(), 0, depth, [0], w, None, None, [0, 16, 32], 48, out.ravel(), pixels, False, tiles
        )
        return out

    before = product()
    for value in (np.nan, np.inf, -np.inf):
        for pixel, k in ((0, 0), (17, 31), (36, 60), (36, 87)):
            kept = x[pixel, k]
            x[pixel, k] = narrow(np.float32(value))[0]
            after = product()
            x[pixel, k] = kept
            assert not np.isfinite(after[pixel]).any()
            assert (np.delete(after, pixel, 0) == np.delete(before, pixel, 0)).all()


def rounded(x: Fraction) -> Fraction:
    """To float32 by the rules of TDPBF16PS: to nearest even, small ones to zero; large ones do not occur."""
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent  # 2^exponent <= |x| < 2^(exponent + 1)
    unit = Fraction(2) ** (exponent - 23)
    x = round(x / unit) * unit
    assert abs(x) < Fraction(2) ** 128
    return x if abs(x) >= Fraction(1, 2**126) else Fraction(0)


def exact(x: np.ndarray) -> list[Fraction]:
    """Values of float32 as fractions, those below 2^-126 as zero."""
    return [Fraction(float(v)) if abs(v) >= 2.0**-126 else Fraction(0) for v in x]


@every_isa
@given(
    rng=seeds,
    span=st.sampled_from([(-140, -100, -45), (-75, -50, 0), (-133, 60, -100), (-3, 3, 3), (0, 40, 0)]),
)
def test_tiles_round_once_a_step_and_flush_what_is_small(isa, rng, span):
    """Numbers whose products and sums are near 2^-126, far apart, or halfway between two floats."""
    pixels, depth = 2, 32
    low, high, other = span

    def numbers(lowest: int, highest: int, *shape: int) -> np.ndarray:
        size = np.ldexp(rng.integers(128, 256, shape), rng.integers(lowest, highest + 1, shape) - 7)
        return (size * rng.choice([-1, 0, 1, 1], shape)).astype(np.float32).view(np.uint32)

    a = (numbers(low, high, pixels, depth) >> 16).astype(np.uint16)
    w = (numbers(other, other + 4, 16, 1, depth) >> 16).astype(np.uint16)
    bias = numbers(low + other, high + other, 16).view(np.float32)
    out = np.empty(pixels * 16, np.float32)
    run_gemm(isa, a.ravel(), 0, depth, [0], w, bias, None, [0], 16, out, pixels, False, tiles=True)
    expected = []
    for pixel in range(pixels):
        x = exact(widen(a[pixel]))
        for column in range(16):
            chains = [Fraction(0), Fraction(0)]
            for k, weight in enumerate(exact(widen(w[column, 0]))):
                chains[k % 2] = rounded(chains[k % 2] + x[k] * weight)
            total = np.float32(float(rounded(chains[0] + chains[1])))
            expected.append(total + bias[column])  # by vectors, which flush nothing
    assert (out == np.array(expected, np.float32)).all()


@pytest.mark.parametrize(("dtype", "tiles"), [("bf16", False), ("bf16", True), ("int16", False)])
@every_isa
def test_stress_passes_and_notices_other_bits(isa, dtype, tiles, monkeypatch):
    check = selftest.stress(isa, dtype, tiles=tiles)
    assert check.ok, check
    gemm, calls = _ops.gemm, iter(range(10**9))

    def unsteady(*arguments, **options):
        gemm(*arguments, **options)
        if next(calls) == 100:
            out = arguments[9]
            out[0] += 1

    monkeypatch.setattr(_ops, "gemm", unsteady)
    check = selftest.stress(isa, dtype, tiles=tiles)
    assert not check.ok and check.detail == "results differ"


@every_isa
def test_tiles_fuse_a_product_that_is_too_large_for_float32(isa):
    a, w = np.zeros(32, np.float32), np.ones((16, 1, 32), np.float32)
    a[:6:2] = -1.5 * 2.0**127, 2.0**127, -(2.0**127)
    w[:, 0, 2:6:2] = 2, 2
    w[1:, 0, 4] = 0
    out = np.empty(16, np.float32)
    run_gemm(isa, narrow(a), 0, 32, [0], narrow(w), None, None, [0], 16, out, 1, False, tiles=True)
    assert out[1:].tolist() == [2.0**126] * 15
    assert out[0] == -1.5 * 2.0**127


@every_isa
def test_sums_that_are_too_deep_for_tiles_are_the_vectors(isa):
    """Of more than 256 steps of 32 channels."""
    rng = np.random.default_rng(3)
    segments, depth, pixels = 64, 130, 3
    a, w = normal(rng, pixels, segments * depth), normal(rng, 16, segments, depth)
    results = []
    for tiles in (False, True):
        out = np.zeros(pixels * 16, np.float32)
        run_gemm(isa, narrow(a).ravel(), 0, segments * depth, range(0, segments * depth, depth), narrow(w),
                 None, None, [0], 16, out, pixels, False, tiles=tiles)  # fmt: skip
        results.append(out)
    assert np.array_equal(*results)
    exact = widen(narrow(a)).astype(np.float64) @ widen(narrow(w)).reshape(16, -1).T
    assert np.allclose(results[0].reshape(pixels, 16), exact, atol=0.05)


def test_bf16_gemm_refuses_an_odd_depth_and_mixed_types():
    a, w = np.zeros(64, np.uint16), np.zeros((16, 1, 8), np.uint16)
    with pytest.raises(ValueError, match="even depth"):
        _ops.gemm(a, 0, 8, np.zeros(1, np.intp), 7, packing.pack(w), None, None, 0,
                  np.zeros(16, np.float32), 16, np.zeros(1, np.intp), 1)  # fmt: skip
    with pytest.raises(TypeError, match="uint16"):
        run_gemm("generic", a, 0, 8, [0], w.astype(np.float32), None, None, [0], 16, a, 1, False)
    with pytest.raises(TypeError, match="float32"):
        _ops.fwht(np.zeros((1, 16), np.uint16))


@every_isa
@given(
    rng=seeds, width=st.integers(1, 75), channels=channel_counts, above=st.booleans(), below=st.booleans(),
    with_add=st.booleans(), relu=st.booleans(),
)  # fmt: skip
def test_bf16_depthwise_rounds_the_float32_result(isa, rng, width, channels, above, below, with_add, relu):
    rows = [narrow(normal(rng, width, channels)) for _ in range(3)]
    rows[0], rows[2] = rows[0] if above else None, rows[2] if below else None
    weight, bias = normal(rng, 3, 3, channels), normal(rng, channels)
    add = narrow(normal(rng, width, channels)) if with_add else None
    expected = np.empty((width, channels), np.float32)
    wide = [None if x is None else widen(x) for x in (*rows, add)]
    _ops.depthwise(*wide[:3], weight, bias, wide[3], expected, relu, isa=isa)
    out = add if with_add else np.empty((width, channels), np.uint16)
    _ops.depthwise(*rows, weight, bias, add, out, relu, isa=isa)
    assert (out == narrow(expected)).all()


@every_isa
@given(**tile_cases, in_place=st.booleans(), separable=st.booleans())
def test_bf16_wht_tiles_round_the_float32_result(
    isa, rng, T, missing_rows, width, channels, with_threshold, in_place, separable
):
    x = narrow(normal(rng, max(1, T - missing_rows), width, channels))
    shapes = [(T, channels)] * 2 if separable else [(T, T, channels)]
    arguments = []
    for shape in shapes:
        arguments.append(normal(rng, *shape) / np.float32(T))
        arguments.append(np.abs(normal(rng, *shape)) if with_threshold else None)
    run = _ops.wht_tiles_separable if separable else _ops.wht_tiles
    expected = np.empty(x.shape, np.float32)
    run(widen(x), expected, *arguments, isa=isa)
    out = x if in_place else np.empty_like(x)
    run(x, out, *arguments, isa=isa)
    assert (out == narrow(expected)).all()


@every_isa
@given(rng=seeds, n=st.integers(0, 70), in_place=st.booleans())
def test_bf16_elementwise_kernels_round_the_float32_result(isa, rng, n, in_place):
    x, y = narrow(normal(rng, n)), narrow(normal(rng, n))
    runs = {
        "relu": lambda a, b, out: _ops.relu(a, out, isa=isa),
        "add": lambda a, b, out: _ops.add(a, b, out, isa=isa),
        "soft_clamp": lambda a, b, out: _ops.soft_clamp(a, out, 3.0, isa=isa),
    }
    for name, run in runs.items():
        expected = np.empty(n, np.float32)
        run(widen(x), widen(y), expected)
        first = x.copy()
        out = first if in_place else np.empty_like(x)
        run(first, y, out)
        assert (out == narrow(expected)).all(), name


@every_isa
@given(rng=seeds, pixels=st.integers(1, 20), channels=channel_counts, relu=st.booleans())
def test_bf16_scale_shift_rounds_the_float32_result(isa, rng, pixels, channels, relu):
    x, scale, shift = normal(rng, pixels, channels), normal(rng, channels), normal(rng, channels)
    expected, out = np.empty_like(x), np.empty(x.shape, np.uint16)
    _ops.scale_shift(x, scale, shift, expected, relu, isa=isa)
    _ops.scale_shift(x, scale, shift, out, relu, isa=isa)
    assert (out == narrow(expected)).all()


@every_isa
@given(rng=seeds, n=st.integers(0, 70))
def test_floats_become_the_nearest_bf16(isa, rng, n):
    bits = rng.integers(0, 2**32, n, np.uint64).astype(np.uint32)
    x = np.where((bits >> 23 & 0xFF) == 0, 0, bits).astype(np.uint32).view(np.float32)  # nothing below 2^-126
    out = np.empty(n, np.uint16)
    _ops.from_floats(x, out, isa=isa)
    nan = np.isnan(x)
    assert (out[~nan] == narrow(x[~nan])).all()
    assert np.isnan(widen(out[nan])).all()


@every_isa
@given(rng=seeds, n=st.integers(0, 70))
def test_bf16_are_floats_as_they_are(isa, rng, n):
    stored = rng.integers(0, 2**16, n, np.uint16)
    out = np.empty(n, np.float32)
    _ops.to_floats(stored, out, isa=isa)
    assert (out.view(np.uint32) == widen(stored).view(np.uint32)).all()
    _ops.to_floats(widen(stored), out, isa=isa)
    assert (out.view(np.uint32) == widen(stored).view(np.uint32)).all()


@every_isa
def test_bf16_ties_go_to_even_and_large_numbers_to_infinity(isa):
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4028234e38, -np.inf, 0.0, -0.0], np.float32)
    out = np.empty(len(x), np.uint16)
    _ops.from_floats(x, out, isa=isa)
    wanted = np.array([1, 1 + 2**-6, -1, np.inf, -np.inf, 0.0, -0.0], np.float32)
    assert out.tolist() == (wanted.view(np.uint32) >> 16).tolist()


@every_isa
@given(rng=seeds, pixels=st.integers(1, 40), channels=st.integers(1, 64))
def test_split_values_add_up_to_16_bits(isa, rng, pixels, channels):
    x = rng.random((pixels, channels), np.float32)
    store = np.full(pixels * 2 * channels + 40, 77, np.uint16)
    out = store[: pixels * 2 * channels].reshape(pixels, 2 * channels)
    _ops.split(x, out, isa=isa)
    upper, lower = widen(out[:, :channels].copy()), widen(out[:, channels:].copy())
    assert (out[:, :channels] == narrow(x)).all()
    assert (out[:, channels:] == narrow(x - upper)).all()
    assert np.abs(upper.astype(np.float64) + lower - x).max() <= 2**-17
    assert (store[pixels * 2 * channels :] == 77).all()


# --- pictures -------------------------------------------------------------------------------

FULL = {np.uint8: 255, np.uint16: 65535, np.float32: 1}

picture_cases = dict(
    rng=seeds,
    dtype=st.sampled_from(list(FULL)),
    r=st.sampled_from([1, 2, 3, 4, 8]),
    channels=st.sampled_from([1, 3, 4]),
    missing_rows=st.integers(0, 7),
    width=st.integers(1, 300),
)


def random_picture(rng, dtype, rows, width, channels) -> np.ndarray:
    if dtype is np.float32:
        return normal(rng, rows, width, channels)
    return rng.integers(0, FULL[dtype] + 1, (rows, width, channels)).astype(dtype)


@every_isa
@given(**picture_cases, with_plane=st.booleans(), beyond=st.integers(0, 3), padding=st.integers(0, 17))
def test_load_picture_unshuffles_and_repeats_the_edge(
    isa, rng, dtype, r, channels, missing_rows, width, with_plane, beyond, padding
):
    rows = max(1, r - missing_rows)
    picture = random_picture(rng, dtype, rows, width, channels)
    plane = normal(rng, rows, width) if with_plane else None
    out_width, C = -(-width // r) + beyond, channels + with_plane
    out = np.full((out_width, r * r * C + padding), SENTINEL)
    _ops.load_picture(picture, plane, r, out, isa=isa)

    values = picture.astype(np.float32) / np.float32(FULL[dtype])
    if with_plane:
        values = np.concatenate([values, plane[:, :, None]], 2)
    values = np.pad(values, ((0, r - rows), (0, out_width * r - width), (0, 0)), "edge")
    expected = values.reshape(r, out_width, r, C).transpose(1, 0, 2, 3).reshape(out_width, -1)
    assert (out[:, : r * r * C] == expected).all()
    assert (out[:, r * r * C :] == 0).all()


@every_isa
@given(**picture_cases, beyond=st.integers(0, 3), padding=st.integers(0, 17))
def test_store_picture_shuffles_clips_and_rounds(
    isa, rng, dtype, r, channels, missing_rows, width, beyond, padding
):
    rows = max(1, r - missing_rows)
    x_width = -(-width // r) + beyond
    x = normal(rng, x_width, r * r * channels + padding) * np.float32(0.5) + np.float32(0.5)
    store = np.zeros((rows + 1, width, channels), dtype)
    _ops.store_picture(x, r, store[:rows], isa=isa)

    values = x[:, : r * r * channels].reshape(x_width, r, r, channels).transpose(1, 0, 2, 3)
    values = values.reshape(r, x_width * r, channels)[:rows, :width]
    if dtype is not np.float32:
        values = np.rint(np.clip(values, 0, 1) * np.float32(FULL[dtype]))
    assert (store[:rows] == values).all()
    assert (store[rows] == 0).all()


@every_isa
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_every_integer_value_survives_load_and_store(isa, dtype):
    picture = np.arange(FULL[dtype] + 1).astype(dtype).reshape(2, -1, 1)
    activation = np.empty((picture.shape[1] // 2, 16), np.float32)
    again = np.zeros_like(picture)
    _ops.load_picture(picture, None, 2, activation, isa=isa)
    _ops.store_picture(activation, 2, again, isa=isa)
    assert (again == picture).all()


@every_isa
def test_store_picture_rounds_ties_to_even_clips_and_makes_nan_black(isa):
    x = np.array([[0.5], [-1.0], [2.0], [np.nan], [np.inf], [-np.inf], [1.0], [0.0], [1.5 / 255]], np.float32)
    out = np.ones((1, len(x), 1), np.uint8)
    _ops.store_picture(x, 1, out, isa=isa)
    assert out.ravel().tolist() == [128, 0, 255, 0, 255, 0, 255, 0, 2]


# --- entry points ---------------------------------------------------------------------------


def test_entry_points_refuse_arrays_they_cannot_use():
    x = np.zeros((4, 8, 16), np.float32)
    gate = np.zeros((4, 4, 16), np.float32)
    read_only = x.copy()
    read_only.flags.writeable = False
    with pytest.raises(TypeError, match="float32"):
        _ops.wht_tiles(x.astype(np.float64), x, gate, None)
    with pytest.raises(ValueError, match="shape"):
        _ops.wht_tiles(x, x[:3], gate, None)
    with pytest.raises(ValueError, match="contiguous"):
        _ops.wht_tiles(x[:, ::2], x[:, ::2], gate, None)
    with pytest.raises(ValueError, match="read-only"):
        _ops.wht_tiles(x, read_only, gate, None)
    with pytest.raises(ValueError, match="multiple of 16"):
        _ops.wht_tiles(x[:, :, :8].copy(), x[:, :, :8].copy(), gate[:, :, :8].copy(), None)
    with pytest.raises(ValueError, match="tile must be"):
        _ops.wht_tiles(x, x, np.zeros((5, 5, 16), np.float32), None)
    with pytest.raises(ValueError, match="rows"):
        _ops.wht_tiles(np.zeros((5, 8, 16), np.float32), np.zeros((5, 8, 16), np.float32), gate, None)
    with pytest.raises(ValueError, match="power of two"):
        _ops.fwht(np.zeros((1, 12), np.float32))


@every_isa
def test_none_is_no_array_where_one_is_needed(isa):
    a = np.zeros((4, 16), np.float32)
    calls = [
        lambda: _ops.relu(a.ravel(), None, isa=isa),
        lambda: _ops.moments(a, None, isa=isa),
        lambda: _ops.scale_shift(a, None, a[0], a, isa=isa),
        lambda: _ops.split(a, None, isa=isa),
        lambda: _ops.depthwise(None, a, None, None, None, None, a.copy(), isa=isa),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="must be a numpy array"):
            call()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a thread's signal mask in /proc")
def test_a_fault_in_a_worker_reaches_the_handlers():
    """Blocked, it would end the process without a word of faulthandler's; other signals are Python's."""
    code = (
        "import numpy as np, os, signal\n"
        "from zenith_ae import selftest\n"
        "from zenith_ae.engine import create\n"
        "model = selftest.test_models()[0]\n"
        "engine = create(selftest.random_weights(model), threads=3)\n"
        "engine.run('encoder', np.zeros((1, 64, 64, 3), np.float32))\n"
        "for task in set(os.listdir('/proc/self/task')) - {str(os.getpid())}:\n"
        "    lines = open(f'/proc/self/task/{task}/status').read().splitlines()\n"
        "    mask = int(next(line for line in lines if line.startswith('SigBlk')).split()[1], 16)\n"
        "    print(*(mask >> (s - 1) & 1 for s in (signal.SIGSEGV, signal.SIGILL, signal.SIGINT)))\n"
    )
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split("\n") == ["0 0 1", "0 0 1", ""], done.stderr
