"""Does this installation compute correctly? Each kernel level against plain numpy in float64.

`reference` is the third interpreter of layer lists, the slow and obvious one: it shares no code
with the native engine or with torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import ConfigError
from .models import spec
from .models.spec import (
    Add,
    Clamp,
    Conv,
    Keep,
    Layers,
    Linear,
    ModelConfig,
    PixelShuffle,
    PixelUnshuffle,
    Relu,
    ResBlock,
    SpectralLinear,
    Upsample,
    ZenithBlock,
)
from .weights import Weights

#: Largest error relative to the largest output: float32 sums against float64 ones.
TOLERANCE = 1e-5
#: Root mean square of the error relative to that of the output, with activations of 8 bits.
TOLERANCE_BF16 = 0.03
#: The same with values and weights of about 13 bits; also as `TOLERANCE_PRODUCT`.
TOLERANCE_INT16 = 3e-3
#: Largest error of a product relative to the sum of the absolute values of its terms.
TOLERANCE_PRODUCT = 1e-5

Params = dict[str, NDArray]


@dataclass(frozen=True)
class Check:
    """One finding: what was tested, whether it holds, and a figure or reason."""

    what: str
    ok: bool
    detail: str


def self_test(isa: str) -> Iterator[Check]:
    """Compare one kernel level with `reference`, and with itself over threads and tiles.

    Parameters
    ----------
    isa : a level from `zenith_ae.available_isas`. Where bf16 or int16 is faster there, that is tested too.
    """
    from ._kernels import best_dtype

    for dtype in dict.fromkeys(("float32", best_dtype(isa))):
        yield stress(isa, dtype)
        yield from _test_precision(isa, dtype)


def stress(isa: str, dtype: str, *, tiles: bool = False) -> Check:
    """Matrix products of many shapes on several threads at once, each thread in an order of its own.

    Every thread must get the bits that the first one got, within the tolerance of float64, and
    write nothing else: registers that a thread did not get to itself would show here.

    Parameters
    ----------
    isa, dtype : level, and "float32", "bf16" or "int16".
    tiles : compute bf16 as the level amx does, emulated at others; for tests.
    """
    from ._kernels import _ops
    from .engine.packing import from_bf16, pack, pack_int16, to_bf16

    threads, shapes = 4, 24
    rng = np.random.default_rng(5)
    guard = np.float32(-12345)
    products = []
    for _ in range(shapes):
        segments, depth = int(rng.choice([1, 4, 9])), 2 * int(rng.integers(1, 70))
        pixels, panels = int(rng.integers(1, 90)), int(rng.integers(1, 6))
        a: NDArray = rng.standard_normal((segments, pixels, depth)).astype(np.float32)
        w: NDArray = rng.standard_normal((16 * panels, segments, depth)).astype(np.float32)
        bias = rng.standard_normal(16 * panels).astype(np.float32)
        if dtype == "bf16":
            a, w = to_bf16(a), to_bf16(w)
        products.append((a, w, pack_int16(w) if dtype == "int16" else pack(w), bias))

    def run(index: int) -> NDArray[np.float32]:
        a, _, packed, bias = products[index]
        segments, pixels, depth = a.shape
        out = np.full((pixels + 1) * len(bias), guard, np.float32)
        _ops.gemm(
            a.ravel(), 0, depth, np.arange(segments, dtype=np.intp) * pixels * depth, depth, packed, bias,
            None, 0, out, len(bias), np.arange(0, len(bias), 16, dtype=np.intp), pixels, isa=isa, tiles=tiles,
        )  # fmt: skip
        return out.reshape(pixels + 1, -1)

    def work(seed: int) -> bool:
        order = np.random.default_rng(seed).permutation(np.arange(shapes).repeat(4))
        return all(np.array_equal(run(i), expected[i]) for i in order)

    def widened(x: NDArray) -> NDArray[np.float64]:
        return from_bf16(x).astype(float) if dtype == "bf16" else x.astype(float)

    expected = [run(i) for i in range(shapes)]
    error = 0.0
    for (a, w, _, bias), out in zip(products, expected, strict=True):
        x = widened(a).swapaxes(0, 1).reshape(a.shape[1], -1)
        y = widened(w).reshape(len(bias), -1).T
        size = np.abs(x) @ np.abs(y) + np.abs(bias)
        error = max(error, float((np.abs(out[:-1] - (x @ y + bias)) / size).max()))
    written = all((out[-1] == guard).all() for out in expected)
    with ThreadPoolExecutor(threads) as pool:
        same = all(pool.map(work, range(threads)))
    what = f"{isa}: products on {threads} threads" + ("" if dtype == "float32" else f" in {dtype}")
    if not same or not written:
        return Check(what, False, "results differ" if written else "written outside of the result")
    allowed = TOLERANCE_INT16 if dtype == "int16" else TOLERANCE_PRODUCT
    return Check(what, error <= allowed, f"same bits, largest relative error {error:.1e}")


def _test_precision(isa: str, dtype: str) -> Iterator[Check]:
    from .engine import create

    for config in test_models():
        weights = random_weights(config, seed=1)
        rng = np.random.default_rng(2)
        height, width = (37, 509) if config.name == "wide" else (45, 61)  # two bands of a chain
        picture = rng.random((1, height, width, 3), np.float32)
        plane = np.full((1, height, width), 0.1, np.float32)
        for part, layers in config.parts.items():
            what = f"{isa}: {config.name} {part}" + ("" if dtype == "float32" else f" in {dtype}")
            single = create(weights, "cpu", dtype, threads=1, isa=isa)
            several = create(weights, "cpu", dtype, threads=3, isa=isa)
            if part == "decoder":
                x = rng.standard_normal((1, 6, 8, config.latent_channels)).astype(np.float32)
            else:
                x = picture
            extra = plane if config.takes_plane(part) else None
            one = single.run(part, x, plane=extra, tile=0)
            three = several.run(part, x, plane=extra, tile=0)
            tiled = several.run(part, x, plane=extra, tile=32)
            expected = _expected(layers, weights.part(part), x[0], extra, one.shape[1:3])
            if dtype != "float32":
                error = float(np.sqrt(np.square(one[0] - expected).mean() / np.square(expected).mean()))
                ok, size = error <= (TOLERANCE_BF16 if dtype == "bf16" else TOLERANCE_INT16), "mean"
            else:
                error = float(np.abs(one[0] - expected).max() / np.abs(expected).max())
                ok, size = error <= TOLERANCE, "largest"
            yield Check(what, bool(ok), f"{size} relative error {error:.1e} against numpy")
            same = np.array_equal(one, three) and np.array_equal(one, tiled)
            yield Check(f"{what}, threads and tiles", same, "same bits" if same else "results differ")


def test_models() -> list[ModelConfig]:
    """Small models that use every layer of the vocabulary and every kind of step."""
    vanilla: Layers = (Conv(3, 24), ResBlock(24), Conv(24, 24, 2, bias=False), ResBlock(24, pool=True),
                       Conv(24, 5, 2))  # fmt: skip
    back: Layers = (Clamp(), Conv(5, 24), Relu(), ResBlock(24, pool=True), Upsample(),
                    Conv(24, 24, bias=False), ResBlock(24), Upsample(), Conv(24, 3))  # fmt: skip
    zenith: Layers = (PixelUnshuffle(2), Linear(12, 40), Keep("half"), ZenithBlock(40, 24, 8),
                      PixelUnshuffle(2), Linear(160, 48), ZenithBlock(48, 32, 4, groups=2),
                      ZenithBlock(48, 16), SpectralLinear(48, 40), Linear(40, 160, groups=4), PixelShuffle(2),
                      Add("half"), ZenithBlock(40, 24, 16, eyes=False),
                      PixelUnshuffle(2), Linear(160, 7))  # fmt: skip
    shuffled: Layers = (Clamp(), Linear(7, 48), Relu(), ZenithBlock(48, 32, 8, separable=True),
                        Linear(48, 64), PixelShuffle(2), ZenithBlock(16, 16, 4),
                        Linear(16, 12), PixelShuffle(2))  # fmt: skip
    unet: Layers = (PixelUnshuffle(2), Linear(16, 32), Keep("half"), PixelUnshuffle(2), Linear(128, 48),
                    ZenithBlock(48, 48, 4, groups=3), Linear(48, 128), PixelShuffle(2), Add("half"),
                    Linear(32, 12), PixelShuffle(2))  # fmt: skip
    estimator: Layers = (PixelUnshuffle(8), Linear(192, 32), Relu(), ZenithBlock(32, 32, 4), Linear(32, 1))
    wide: Layers = (Conv(4, 64), Keep("first"), Conv(64, 64), Relu(), ResBlock(64), Add("first"),
                    Conv(64, 64, 2), Clamp(), Relu(), Upsample(), Conv(64, 64), Conv(64, 3))  # fmt: skip
    return [
        ModelConfig("vanilla", "autoencoder", {"encoder": vanilla, "decoder": back}, 5),
        ModelConfig("zenith", "autoencoder", {"encoder": zenith, "decoder": shuffled}, 7),
        ModelConfig("denoise", "denoiser", {"denoiser": unet, "estimator": estimator}),
        ModelConfig("wide", "denoiser", {"denoiser": wide}),
    ]


def random_weights(config: ModelConfig, seed: int = 0) -> Weights:
    """Weights of about unit gain for any config; the same for the same seed."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, NDArray[np.float32]] = {}
    for name, shape in config.params().items():
        value = rng.standard_normal(shape)
        if name.endswith("bias"):
            value *= 0.1
        elif "threshold" in name:
            value = np.abs(value) * 0.2
        elif len(shape) > 1 and "gate" not in name:
            value /= np.sqrt(np.prod(shape[1:]))
        tensors[name] = value.astype(np.float32)
    return Weights(config, tensors)


def _expected(
    layers: Layers, params: Params, x: NDArray, plane: NDArray | None, size: tuple[int, ...]
) -> NDArray:
    """`reference` on an unpadded (H, W, C) input: pad by repetition, run, crop."""
    if plane is not None:
        x = np.concatenate([x, plane[0, ..., None]], axis=2)
    step = max((1 / s.scale for s in spec.trace(layers, x.shape[2])), default=1)
    step = max(int(step), 1)
    x = np.pad(x, ((0, -x.shape[0] % step), (0, -x.shape[1] % step), (0, 0)), mode="edge")
    return reference(layers, params, x)[: size[0], : size[1]]


def reference(layers: Layers, params: Params, x: NDArray) -> NDArray[np.float64]:
    """Run a layer list on (H, W, C), in float64 and the obvious way.

    Parameters
    ----------
    layers : as in a `ModelConfig`.
    params : ``{layer index}.{parameter}`` -> array, as `Weights.part` returns.
    x : input whose sides are whole at every resolution of the network.
    """
    x = np.asarray(x, np.float64)
    kept: dict[str, NDArray] = {}
    for index, layer in enumerate(layers):
        p = {name: np.asarray(params[f"{index}.{name}"], np.float64) for name in layer.params()}
        if isinstance(layer, Keep):
            kept[layer.name] = x
        elif isinstance(layer, Add):
            x = x + kept[layer.name]
        else:
            x = _apply(layer, p, x)
    return x


def _apply(layer: spec.Layer, p: Params, x: NDArray) -> NDArray:
    match layer:
        case Conv():
            return _conv(x, p["weight"], p.get("bias"))[:: layer.stride, :: layer.stride]
        case Linear():
            return _linear(x, p["weight"], layer.groups) + p.get("bias", 0)
        case Relu():
            return np.maximum(x, 0)
        case Clamp():
            return np.tanh(x / layer.limit) * layer.limit
        case ResBlock():
            return _resblock(layer, p, x)
        case ZenithBlock():
            return _zenith(layer, p, x)
        case SpectralLinear():
            n = layer.size
            x = np.pad(x, ((0, 0), (0, 0), (0, n - layer.cin)))[..., list(layer.permutation)] * p["in_scale"]
            return (x @ _hadamard(n) / np.sqrt(n) * p["out_scale"])[..., : layer.cout] + p["bias"]
        case PixelUnshuffle():
            h, w, c, r = x.shape[0] // layer.r, x.shape[1] // layer.r, x.shape[2], layer.r
            return x.reshape(h, r, w, r, c).transpose(0, 2, 4, 1, 3).reshape(h, w, c * r * r)
        case PixelShuffle():
            h, w, c, r = x.shape[0], x.shape[1], x.shape[2] // layer.r**2, layer.r
            return x.reshape(h, w, c, r, r).transpose(0, 3, 1, 4, 2).reshape(h * r, w * r, c)
        case Upsample():
            return x.repeat(2, axis=0).repeat(2, axis=1)
    raise ConfigError(f"no reference for {layer}")


def _conv(x: NDArray, weight: NDArray, bias: NDArray | None) -> NDArray:
    h, w = x.shape[:2]
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    taps = [(i, j) for i in range(3) for j in range(3)]
    out = sum(padded[i : i + h, j : j + w] @ weight[:, :, i, j].T for i, j in taps)
    return out + (0 if bias is None else bias)


def _linear(x: NDArray, weight: NDArray, groups: int) -> NDArray:
    parts = zip(np.split(x, groups, axis=2), np.split(weight, groups), strict=True)
    return np.concatenate([a @ w.T for a, w in parts], axis=2)


def _resblock(layer: ResBlock, p: Params, x: NDArray) -> NDArray:
    if layer.pool:
        a = x @ p["pool.0.weight"][:, :, 0, 0].T
        grouped = a.reshape(-1, layer.GROUPS, a.shape[2] // layer.GROUPS)
        mean, variance = grouped.mean((0, 2)), grouped.var((0, 2))
        normal = (grouped - mean[:, None]) / np.sqrt(variance[:, None] + 1e-5)
        a = np.maximum(normal.reshape(a.shape) * p["pool.1.weight"] + p["pool.1.bias"], 0)
        x = x + a @ p["pool.3.weight"][:, :, 0, 0].T
    y = x
    for i in (0, 2, 4):
        y = _conv(y, p[f"conv.{i}.weight"], p[f"conv.{i}.bias"])
        y = np.maximum(y, 0) if i < 4 else y
    return np.maximum(y + x, 0)


def _zenith(layer: ZenithBlock, p: Params, x: NDArray) -> NDArray:
    u = np.maximum(_linear(x, p["compress.weight"], layer.groups) + p["compress.bias"], 0)
    mixed = np.zeros_like(u)
    if layer.eyes:
        h, w = u.shape[:2]
        padded = np.pad(u, ((1, 1), (1, 1), (0, 0)))
        for i in range(3):
            for j in range(3):
                mixed += padded[i : i + h, j : j + w] * p["eyes.weight"][:, i, j]
        mixed += p["eyes.bias"]
    if layer.tile:
        mixed += _spectral(layer, p, u)
    return x + _linear(np.maximum(mixed, 0), p["expand.weight"], layer.groups) + p["expand.bias"]


def _spectral(layer: ZenithBlock, p: Params, u: NDArray) -> NDArray:
    t, (h, w, m) = layer.tile, u.shape
    padded = np.pad(u, ((0, -h % t), (0, -w % t), (0, 0)))
    tiles = padded.reshape(padded.shape[0] // t, t, padded.shape[1] // t, t, m).transpose(0, 2, 1, 3, 4)
    matrix = _hadamard(t)
    if layer.separable:
        for axis, subscripts in (("row", "yxijc,jk->yxikc"), ("column", "yxijc,ik->yxkjc")):
            gate, threshold = p[f"{axis}_gate"], np.abs(p[f"{axis}_threshold"])
            shape = (1, t, m) if axis == "row" else (t, 1, m)
            tiles = np.einsum(subscripts, tiles, matrix)
            tiles = _shrink(tiles * gate.reshape(shape), threshold.reshape(shape))
            tiles = np.einsum(subscripts, tiles, matrix) / t
    else:
        both = "yxijc,ik,jl->yxklc"
        tiles = _shrink(np.einsum(both, tiles, matrix, matrix) * p["gate"], np.abs(p["threshold"]))
        tiles = np.einsum(both, tiles, matrix, matrix) / t**2
    return tiles.transpose(0, 2, 1, 3, 4).reshape(padded.shape)[:h, :w]


def _shrink(a: NDArray, threshold: NDArray) -> NDArray:
    return np.sign(a) * np.maximum(np.abs(a) - threshold, 0)


def _hadamard(n: int) -> NDArray:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix
