"""The engines: native against torch, and the promises about bits, threads, tiles and memory."""

import os
import subprocess
import sys
import threading
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from weakref import WeakKeyDictionary, finalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from zenith_ae import engine, selftest
from zenith_ae._kernels import _plan, available_isas, best_dtype, fast_bf16
from zenith_ae.engine import geometry, limits, packing, program
from zenith_ae.engine.compiler import compile_layers
from zenith_ae.engine.native import NativeEngine
from zenith_ae.errors import ConfigError, ImageError, IsaError, LatentError
from zenith_ae.metrics import psnr
from zenith_ae.models import spec, zoo
from zenith_ae.models.spec import (
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
    out_scale,
    trace,
)
from zenith_ae.weights import Weights, load_weights

SHARED = Path(os.environ.get("ZENITH_SHARED", Path(__file__).parents[1] / ".." / "shared"))
ARCHITECTURES = [a for a in zoo.ARCHITECTURES if a not in ("taesdxl", "taef1")]  # twins of others
SIZES = [(1, 1), (8, 9), (37, 53)]
every_dtype = pytest.mark.parametrize("dtype", ["float32", "bf16"])
#: "tiles" is bf16 with the products of level amx, emulated where the machine has no such tiles: 1x1 and
#: 3x3 convolutions, strides, (un)shuffles, planes of blocks, groups and skips, in what is not too slow.
EMULATED = ["zenith-taesd-lite", "zenith-taesd-nano", "zenith-denoise", "conv-baseline"]
every_architecture = pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        *((a, dtype) for dtype in ("float32", "bf16") for a in ARCHITECTURES),
        *((a, dtype) for dtype in ("tiles", "int16") for a in EMULATED),
    ],
)


def random_weights(config: ModelConfig, seed: int = 0) -> Weights:
    """Weights that keep signals near 1, with gates and thresholds that all matter.

    Parts draw by themselves: one that two architectures share is the same in both.
    """
    rngs = {part: np.random.default_rng(seed) for part in config.parts}
    tensors = {}
    for name, shape in config.params().items():
        rng = rngs[name.split(".")[0]]
        values = rng.standard_normal(shape)
        if "bias" in name:
            values *= 0.1
        elif "gate" in name:
            values *= 0.5
        elif "threshold" in name:
            values *= 0.05
        elif len(shape) == 1:  # scales
            values = 1 + 0.2 * values
        else:
            gain = 0.4 if "expand" in name or "conv.4" in name else 1.2
            values *= gain / np.sqrt(np.prod(shape[1:]))
        tensors[name] = values.astype(np.float32)
    return Weights(config, tensors)


@cache
def model(architecture: str) -> Weights:
    """Random weights of an architecture, for tests that leave them as they are."""
    return random_weights(zoo.build(architecture))


def inputs(config: ModelConfig, part: str, height: int, width: int, dtype: str = "float32") -> dict:
    """Arguments of Engine.run for a picture of height x width."""
    rng = np.random.default_rng(height * 1000 + width)
    if part == "decoder":
        size = (-(-height // 8), -(-width // 8))
        return {"x": rng.standard_normal((1, *size, config.latent_channels)).astype(np.float32)}
    x = rng.random((1, height, width, 3))
    if dtype != "float32":
        x = np.round(x * np.iinfo(dtype).max)
    arguments = {"x": x.astype(dtype)}
    if part == "denoiser":
        arguments["plane"] = rng.random((1, height, width)).astype(np.float32) * 0.2
    return arguments


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())


def mean_error(a: np.ndarray, b: np.ndarray) -> float:
    """Root mean square of the difference, relative to that of b: what rounding to 8 bits does."""
    assert a.shape == b.shape
    return float(np.sqrt(np.square(a - b).mean() / np.square(b).mean()))


#: What was packed of weights, which takes longer than most runs here: engines of the same share it.
_packed: WeakKeyDictionary[Weights, dict] = WeakKeyDictionary()


def native_engine(
    weights: Weights, dtype: str = "float32", threads: int | None = None, isa: str | None = None
) -> NativeEngine:
    """A native engine of this precision on any level: bf16 is emulated where there is no instruction."""
    if dtype == "tiles":
        native = NativeEngine(weights, threads, isa, "bf16", emulate="tiles")
    else:
        native = NativeEngine(weights, threads, isa, dtype, emulate=True)
        assert native.dtype == dtype
    kind = dtype, native.isa == "amx"  # all that the order of packed weights depends on
    native._packers = _packed.setdefault(weights, {}).setdefault(kind, native._packers)
    return native


def assert_close(result: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    if dtype == "float32":
        assert relative_error(result, expected) < 1e-4
    elif dtype == "int16":
        assert mean_error(result, expected) < 5e-3
    else:
        assert mean_error(result, expected) < 0.025
        assert relative_error(result, expected) < 0.1


def custom(layers: Layers, channels: int = 16) -> Weights:
    """A model with one part: a decoder if it begins with latents, else an encoder of pictures."""
    part = "encoder" if channels == 3 else "decoder"
    *_, last = trace(layers, channels)
    latents = last.cout if channels == 3 else channels
    return random_weights(ModelConfig("custom", "autoencoder", {part: layers}, latents))


# --- against torch ----------------------------------------------------------------------------


@pytest.mark.parametrize("isa", available_isas())
@every_architecture
def test_native_matches_torch(architecture: str, isa: str, dtype: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    weights = model(architecture)
    config = weights.config
    native, reference = native_engine(weights, dtype, isa=isa), engine.create(weights, "torch")
    assert native.isa == isa
    for part in config.parts:
        for height, width in SIZES if dtype == "float32" else SIZES[1:]:
            arguments = inputs(config, part, height, width)
            assert_close(native.run(part, **arguments), reference.run(part, **arguments), dtype)


CUSTOM = {
    "lone shuffles": (
        (PixelShuffle(2), ZenithBlock(4, 7, 4), PixelUnshuffle(2), PixelUnshuffle(2), ZenithBlock(64, 20),
         PixelShuffle(4), PixelShuffle(2), Linear(1, 3)), 16,
    ),
    "lone upsamplings": (
        (Upsample(), Upsample(), Relu(), Upsample(), Linear(5, 12), Upsample(), PixelShuffle(2)), 5,
    ),
    "ends with an upsampling": ((Linear(16, 3), Upsample()), 16),
    "ends with a shuffle of an upsampling": ((Upsample(), Linear(16, 12), Upsample(), PixelShuffle(2)), 16),
    "ends with a block": ((Linear(16, 3), ZenithBlock(3, 5, 8), Relu()), 16),
    "ends with a skip": ((Linear(16, 3), Keep("a"), ZenithBlock(3, 5), Add("a")), 16),
    "is empty but for a relu": ((Relu(),), 3),
    "convolutions and shuffles": (
        (Conv(16, 48), PixelShuffle(2), Upsample(), Conv(12, 20), Relu(), PixelUnshuffle(2), Conv(80, 24, 2),
         Upsample(), Conv(24, 12), PixelShuffle(2)), 16,
    ),
    "upsampled convolution, then shuffle": (
        (Upsample(), Conv(16, 24), Relu(), PixelShuffle(2), Upsample(), Conv(6, 12), PixelShuffle(2),
         Linear(3, 3)), 16,
    ),
    "upsampled convolutions of stride 2": (
        (Upsample(), Conv(16, 24, 2), Relu(), Linear(24, 8), Upsample(), Conv(8, 3, 2)), 16,
    ),
    "groups": (
        (Linear(16, 64, groups=4), Relu(), Keep("a"), Linear(64, 64, groups=2), Add("a"),
         Linear(64, 60, groups=4, bias=False), ZenithBlock(60, 36, 4, groups=3), Linear(60, 12, groups=3),
         PixelShuffle(2)), 16,
    ),
    "groups of blocks": (
        (Linear(16, 96), ZenithBlock(96, 32, 8, groups=2), Keep("a"), ZenithBlock(96, 96, 4, groups=3),
         ZenithBlock(96, 64, groups=2), Relu(), Add("a"), ZenithBlock(96, 48, 8, eyes=False, groups=3),
         Linear(96, 3)), 16,
    ),
    "skips": (
        (Linear(16, 32), Relu(), Keep("b"), ZenithBlock(32, 16), Add("b"), Relu(),
         Linear(32, 128), PixelShuffle(2), Relu(), Keep("c"), SpectralLinear(32, 32), Relu(), Add("c"),
         PixelUnshuffle(2), SpectralLinear(128, 32), Add("b"), Clamp(2.0), Linear(32, 3)), 16,
    ),
    "block variants": (
        (Linear(16, 40), ZenithBlock(40, 24, 16), ZenithBlock(40, 24, 8, separable=True),
         ZenithBlock(40, 24, 4, eyes=False), Relu(), ZenithBlock(40, 72, 16, eyes=False, separable=True),
         ZenithBlock(40, 8, 4, separable=True), Linear(40, 3)), 16,
    ),
    "picture first": (
        (ZenithBlock(3, 16, 8), Keep("p"), Conv(3, 3), Add("p"), ResBlock(3), Linear(3, 16)), 3,
    ),
    "spectral picture": (
        (PixelUnshuffle(2), SpectralLinear(12, 6), Relu(), SpectralLinear(6, 40), PixelShuffle(2), Relu(),
         SpectralLinear(10, 16)), 3,
    ),
    "limited picture": ((Clamp(0.5), Conv(3, 16), Clamp(1.0)), 3),
    "limited unshuffled picture": ((Clamp(0.5), PixelUnshuffle(2), Clamp(0.3), Conv(12, 16)), 3),
    "wide unshuffle": ((Conv(3, 2), PixelUnshuffle(8), Linear(128, 16)), 3),
    "two pools": (
        (ResBlock(16, pool=True), Upsample(), ResBlock(16), ResBlock(16, pool=True), Linear(16, 3)), 16,
    ),
    "ends with an unshuffle": ((Conv(3, 4), PixelUnshuffle(2)), 3),
    "unshuffle before a pool": (
        (Linear(3, 5), PixelUnshuffle(2), ResBlock(20, pool=True), Linear(20, 16)), 3,
    ),
    "limit before a pool": ((Clamp(), ResBlock(16, pool=True), Conv(16, 3)), 16),
    "large convolutions": (
        (Conv(3, 64), ResBlock(64), Conv(64, 70), Relu(), Keep("a"), Conv(70, 70), Add("a"), Conv(70, 70),
         Relu(), Add("a"), Conv(70, 70, bias=False), Add("a"), Relu(), Conv(70, 80, 2), Conv(80, 64), Relu(),
         PixelShuffle(2), Conv(16, 8)), 3,
    ),
    "large convolutions around a pool": (
        (Conv(64, 64), Relu(), Conv(64, 64), ResBlock(64, pool=True), Conv(64, 64), Upsample(),
         Conv(64, 64, bias=False), Conv(64, 64), Linear(64, 3)), 64,
    ),
    "ends with a large convolution": ((Linear(3, 64), Relu(), Conv(64, 64)), 3),
    "a skip over a pool": (
        (Keep("a"), ResBlock(16), ResBlock(16, pool=True), Add("a"), Linear(16, 3)), 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bf16", "int16", "tiles"])
@pytest.mark.parametrize("name", CUSTOM)
def test_any_layer_list_matches_torch(name: str, dtype: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    layers, channels = CUSTOM[name]
    weights = custom(layers, channels)
    (part,) = weights.config.parts
    native, reference = native_engine(weights, dtype, threads=2), engine.create(weights, "torch")
    sizes = (8, 8), (100, 83), (7, 9), (72, 250)
    if "large" in name:  # much work, of which tiles in two directions do many times more
        sizes = (8, 8), (100, 21 if dtype == "tiles" else 83), (7, 9), (24, 250)
    for height, width in sizes:
        arguments = inputs(weights.config, part, height, width)
        whole = native.run(part, **arguments, tile=0)
        assert_close(whole, reference.run(part, **arguments), dtype)
        assert np.array_equal(whole, native.run(part, **arguments, tile=32))


def test_groups_of_blocks_do_their_own_products_only() -> None:
    layers = CUSTOM["groups of blocks"][0]
    weights = custom(layers)
    (part,) = weights.config.parts
    program = compile_layers(layers, 16, 8, 8, packing.Packer(weights.part(part)))
    blocks = [layer for layer in layers if isinstance(layer, ZenithBlock)]
    steps = [step for step in program.steps if step.kind == "mix"]
    for block, step in zip(blocks, steps, strict=True):
        products = [*step.products, *step.expand]
        assert sum(p.weight.size for p in products) == 2 * block.channels * block.hidden // block.groups


def test_taef2_matches_an_independent_transcription() -> None:
    """The teacher's weights through the architecture as its README words it, in plain torch."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import torch.nn.functional as F

    if not (SHARED / "teachers").is_dir():
        pytest.skip("teacher weights are not here (ZENITH_SHARED or ../shared)")
    weights = load_weights(SHARED / "teachers" / "taef2_encoder.safetensors")
    t = {k: torch.from_numpy(v) for k, v in weights.tensors.items()}

    def conv(x, name, **options):
        return F.conv2d(x, t[f"{name}.weight"], t.get(f"{name}.bias"), padding=1, **options)

    def block(x, name):
        if f"{name}.pool.0.weight" in t:
            y = F.conv2d(x, t[f"{name}.pool.0.weight"])
            y = F.relu(F.group_norm(y, 4, t[f"{name}.pool.1.weight"], t[f"{name}.pool.1.bias"]))
            x = x + F.conv2d(y, t[f"{name}.pool.3.weight"])
        y = F.relu(conv(x, f"{name}.conv.0"))
        y = conv(F.relu(conv(y, f"{name}.conv.2")), f"{name}.conv.4")
        return F.relu(y + x)

    def encode(x):
        x = block(conv(x, "encoder.0"), "encoder.1")
        for down in (2, 6, 10):
            x = conv(x, f"encoder.{down}", stride=2)
            for i in range(1, 4):
                x = block(x, f"encoder.{down + i}")
        return conv(x, "encoder.14")

    def decode(z):
        x = F.relu(conv(torch.tanh(z / 3) * 3, "decoder.1"))
        for first, count in ((3, 3), (8, 3), (13, 3), (18, 1)):
            for i in range(count):
                x = block(x, f"decoder.{first + i}")
            if first < 18:
                x = conv(F.interpolate(x, scale_factor=2), f"decoder.{first + 4}")
        return conv(x, "decoder.19")

    picture = np.random.default_rng(0).random((1, 48, 72, 3)).astype(np.float32)
    with torch.no_grad():
        z = encode(torch.from_numpy(picture).permute(0, 3, 1, 2))
        y = decode(z)
    expected_z, expected_y = (v.permute(0, 2, 3, 1).numpy() for v in (z, y))
    for device in ("cpu", "torch"):
        run = engine.create(weights, device, "float32").run
        assert np.abs(run("encoder", picture) - expected_z).max() < 1e-4
        assert np.abs(run("decoder", expected_z) - expected_y).max() < 1e-4


# --- same bits --------------------------------------------------------------------------------


@every_architecture
def test_thread_count_changes_no_bit(architecture: str, dtype: str) -> None:
    weights = model(architecture)
    config = weights.config
    engines = [native_engine(weights, dtype, threads=n) for n in (1, 2, 3, 5)]
    for part in config.parts:
        for height, width in ((1, 1), (45, 83)):
            arguments = inputs(config, part, height, width)
            first, *others = (e.run(part, **arguments) for e in engines)
            assert np.isfinite(first).all()
            assert all(np.array_equal(first, other) for other in others)


@every_architecture
def test_tiles_change_no_bit(architecture: str, dtype: str) -> None:
    native = native_engine(model(architecture), dtype, threads=2)
    config = native.weights.config
    for part in config.parts:
        # Strips, since only a picture longer than twice the reach of a network has real tiles.
        sizes = ((5, 507),) if "zenith" not in architecture else ((13, 507), (430, 19))
        for height, width in sizes:
            arguments = inputs(config, part, height, width, "uint8")
            whole = native.run(part, **arguments, tile=0)
            assert np.array_equal(whole, native.run(part, **arguments, tile=100)), part


@pytest.mark.parametrize("dtype", ["float32", "bf16", "int16", "tiles"])
def test_tiles_change_no_bit_where_channels_fill_no_panel(dtype: str) -> None:
    """What is between two stages has no padding, so that a convolution reads the taps of a row as one."""
    (config,) = (config for config in selftest.test_models() if config.name == "vanilla")
    native = native_engine(selftest.random_weights(config, seed=1), dtype)
    arguments = inputs(config, "encoder", 45, 61, "float32")
    whole = native.run("encoder", **arguments, tile=0)
    assert np.array_equal(whole, native.run("encoder", **arguments, tile=32))


@pytest.mark.parametrize("dtype", ["float32", "bf16", "int16", "tiles"])
@pytest.mark.parametrize("channels", [16, 24, 32])
def test_a_skip_after_a_shuffle_is_added_alike_with_tiles_and_without(channels: int, dtype: str) -> None:
    """Convolutions want zeros around what is added, and around where it is added to, or do not."""
    c, around = channels, (PixelUnshuffle(2), Linear(4 * channels, 4 * channels), PixelShuffle(2))
    layers = (Conv(3, c), Relu(), Keep("a"), Conv(c, c), *around, Add("a"), Linear(c, c), Keep("b"), *around,
              Add("b"), Conv(c, 5))  # fmt: skip
    weights = custom(layers, 3)
    native = native_engine(weights, dtype)
    arguments = inputs(native.weights.config, "encoder", 44, 58, "float32")
    whole = native.run("encoder", **arguments, tile=0)
    assert np.array_equal(whole, native.run("encoder", **arguments, tile=16))
    reference = engine.create(weights, "torch").run("encoder", **arguments)
    assert_close(whole, reference, dtype)


@every_dtype
@pytest.mark.parametrize("name", ["taesd", "taef2", "conv-baseline", "large convolutions", "stripes"])
def test_bands_change_no_bit_and_save_memory(name: str, dtype: str, monkeypatch) -> None:
    """Chains of steps over rings of rows, at every height of bands, against whole activations."""
    stripes = (Conv(3, 64), Relu(), Keep("a"), Conv(64, 64), Add("a"), Linear(64, 20), Conv(20, 6), Relu(),
               Linear(6, 5))  # fmt: skip
    weights = model(name) if name in ARCHITECTURES else custom(CUSTOM.get(name, (stripes,))[0], 3)
    config = weights.config
    for part in config.parts:
        for height, width in ((1, 1), (97, 30), (170, 9)):
            arguments = inputs(config, part, height, width, "float32")
            results, memory = [], []
            for pixels in (1 << 30, 1, 500, 1200):
                monkeypatch.setattr(program, "CHAIN_BAND_PIXELS", pixels)
                for threads in (1, 3):
                    native = native_engine(weights, dtype, threads)
                    results.append(native.run(part, **arguments, tile=0))
                memory.append(native.stats()["peak_bytes"])
            assert all(np.array_equal(results[0], result) for result in results)
            assert memory[1] < memory[0] if height == 170 else memory[1] <= memory[0]


def test_required_input_holds_to_the_bit() -> None:
    """Winograd's algorithm ties an output to all pixels of its tile, by rounding only."""
    layers = (Conv(3, 64), Conv(64, 64), Relu(), ResBlock(64), Conv(64, 3))
    native = native_engine(custom(layers, 3), threads=1)
    rng = np.random.default_rng(0)
    x = rng.random((1, 60, 8, 3)).astype(np.float32)
    whole = native.run("encoder", x, tile=0)
    surprises = 0
    for row in (28, 29, 30, 31):
        lo, hi = geometry.required_input(layers, row, row + 1)
        outside, inside = x.copy(), x.copy()
        outside[:, :lo], outside[:, hi:] = rng.random((2, 1, 1, 1, 1))
        assert np.array_equal(native.run("encoder", outside, tile=0)[:, row], whole[:, row])
        # What a direct sum would not look at.
        lo, hi = spec.required_input(layers, row, row + 1)
        inside[:, :lo], inside[:, hi:] = rng.random((2, 1, 1, 1, 1))
        surprises += not np.array_equal(native.run("encoder", inside, tile=0)[:, row], whole[:, row])
        assert np.abs(native.run("encoder", inside, tile=0)[:, row] - whole[:, row]).max() < 1e-5
    assert surprises, "nothing here needs more than a direct sum does"


@every_dtype
@pytest.mark.parametrize("tile", [1, 7, 13, 32])
def test_tiles_of_any_size_keep_winograd_tiles_whole(tile: int, dtype: str) -> None:
    """Odd sizes of pictures and tiles, at a resolution that by itself has no alignment."""
    layers = (Conv(3, 64), Relu(), Conv(64, 64), Relu(), Conv(64, 64), Relu(), Conv(64, 5))
    native = native_engine(custom(layers, 3), dtype, threads=2)
    for height, width in ((1, 1), (31, 45), (50, 23)):
        arguments = inputs(native.weights.config, "encoder", height, width)
        assert np.array_equal(native.run("encoder", **arguments, tile=0),
                              native.run("encoder", **arguments, tile=tile))  # fmt: skip


@pytest.mark.parametrize("architecture", ["zenith-taesd-lite", "zenith-denoise"])
def test_automatic_tiles_bound_the_memory_and_change_no_bit(architecture: str) -> None:
    config = zoo.build(architecture)
    for part in config.parts:
        arguments = inputs(config, part, 16, 1600)
        native = engine.create(random_weights(config), threads=1)
        whole = native.run(part, **arguments)
        needed = native.stats()["peak_bytes"]
        native = engine.create(random_weights(config), threads=1)
        native.budget = needed * 3 // 4
        assert np.array_equal(native.run(part, **arguments), whole)
        assert native.stats()["peak_bytes"] <= needed * 3 // 4


@pytest.mark.parametrize("rows", [0, 2_000_000, 20_000_000])
def test_tiles_that_fit_are_found_where_threads_take_most_of_the_memory(rows: int) -> None:
    """``rows``: bytes that all threads' rows take for each 1000 pixels of width, whatever the height."""
    config = zoo.build("zenith-denoise")
    stage = geometry.Stage("denoiser", 0, config.parts["denoiser"], 4, True)
    size, budget, asked = (4000, 6000), 64 * 2**20, []

    def working_bytes(height: int, width: int) -> int:
        asked.append((height, width))
        return 100 * height * width + rows * width // 1000

    def inputs_of(tile: tuple[int, int]) -> list[tuple[int, int]]:
        regions = geometry.regions(stage, size, size, tile)
        return [(r.rows.hi - r.rows.lo, r.columns.hi - r.columns.lo) for r in regions]

    def fits(tile: tuple[int, int]) -> bool:
        return max(working_bytes(*each) for each in inputs_of(tile)) <= budget

    def work(tile: tuple[int, int]) -> int:
        return sum(height * width for height, width in inputs_of(tile))

    found = geometry.choose_tiles(stage, size, budget, working_bytes)
    assert len(asked) < 32  # each is a plan, of which an engine remembers so many
    square = next((side, side) for side in range(1600, 0, -32) if fits((side, side)))
    assert fits(found) and work(found) <= 1.5 * work(square)


def test_tiles_of_winograd_are_those_of_the_kernels() -> None:
    assert geometry.WINOGRAD_TILE == _plan.WINOGRAD_TILE


@pytest.mark.parametrize("dtype", ["float32", "bf16", "int16", "tiles"])
def test_a_cut_behind_any_layer_changes_no_bit(dtype: str) -> None:
    """A stage reads what another made as a picture, and writes what another reads as one."""
    pool = ResBlock(64, pool=True)
    befores = (
        (Conv(5, 64),),
        (Linear(5, 64), Relu()),
        (Conv(5, 40), Upsample(), Conv(40, 64)),
        (Conv(5, 40), Upsample(), Conv(40, 64), Relu()),
        (Conv(5, 40), Upsample(), Conv(40, 256), PixelShuffle(2)),
        (Linear(5, 256), PixelShuffle(2)),
        (Conv(5, 40), Upsample(), Linear(40, 64)),
        (Conv(5, 70), Conv(70, 64)),
        (ZenithBlock(5, 40), Linear(5, 64)),
        (Linear(5, 64), Linear(64, 64, groups=2)),
    )
    afters = (
        (Conv(64, 40),),
        (Linear(64, 40), Relu()),
        (PixelUnshuffle(2), Linear(256, 40)),
        (PixelUnshuffle(2), Conv(256, 40)),
        (Upsample(), Conv(64, 40)),
        (ResBlock(64), Linear(64, 40)),
        (Linear(64, 96, groups=2), Linear(96, 40)),
        (ZenithBlock(64, 48), Conv(64, 40, 2)),
        (Clamp(1.0), SpectralLinear(64, 40)),
        (Clamp(1.0), Linear(64, 96, groups=2), Linear(96, 40)),
    )
    # Between two cuts lies the pool, so of what is before one and after the other each has two partners.
    for place, before in enumerate(befores):
        for after in (afters[place], afters[place - 3]):
            weights = custom((*before, pool, *after, Upsample(), Linear(40, 3)), 5)
            native = native_engine(weights, dtype, threads=2)
            x = np.random.default_rng(1).standard_normal((1, 12, 20, 5)).astype(np.float32)
            assert len(native._stages["decoder"]) == 3
            whole = native.run("decoder", x, tile=0)
            assert np.array_equal(whole, native.run("decoder", x, tile=32)), (before, after)


@given(st.sampled_from(ARCHITECTURES), st.integers(1, 4000), st.integers(1, 500))
def test_lengths_of_tiles_are_known_without_making_them(architecture: str, size: int, step: int) -> None:
    config = zoo.build(architecture)
    for part, layers in config.parts.items():
        for stage in geometry.split(part, layers, config.in_channels(part)):
            if stage.tiled:
                padded, side = size * stage.multiple, step * stage.alignment
                made = geometry.spans(stage, padded, stage.output_size(padded), side)
                lengths = [span.hi - span.lo for span in made]
                assert geometry.lengths(stage, padded, side) == (max(lengths), sum(lengths))


@pytest.mark.parametrize("budget", [1, 2**20, 2**24])
def test_a_budget_that_is_too_small_costs_no_multiple_of_the_work(budget: int) -> None:
    config = zoo.build("zenith-denoise")
    stage = geometry.Stage("denoiser", 0, config.parts["denoiser"], 4, True)
    size = (1024, 1536)
    tile = geometry.choose_tiles(stage, size, budget, lambda h, w: 100 * h * w)
    regions = geometry.regions(stage, size, size, tile)
    work = sum((r.rows.hi - r.rows.lo) * (r.columns.hi - r.columns.lo) for r in regions)
    assert size[0] * size[1] < work <= 4 * size[0] * size[1]


def test_a_profile_needs_a_picture_and_a_run() -> None:
    native = engine.create(random_weights(zoo.build("zenith-taesd-lite")), threads=1)
    with pytest.raises(ImageError, match="no picture to measure with"):
        native.profile("encoder", np.zeros((0, 8, 8, 3), np.float32))
    with pytest.raises(ConfigError, match="repeats must be at least 1"):
        native.profile("encoder", np.zeros((1, 8, 8, 3), np.float32), repeats=0)


@pytest.mark.parametrize("size", [(32, 2**22), (5000, 40_000)])
def test_tiles_are_found_without_making_those_of_every_size(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = zoo.build("zenith-denoise")
    stage = geometry.Stage("denoiser", 0, config.parts["denoiser"], 4, True)
    monkeypatch.setattr(geometry, "spans", None)
    asked = []
    required = geometry.required_input
    monkeypatch.setattr(geometry, "required_input", lambda *a: (asked.append(a), required(*a))[1])
    found = geometry.choose_tiles(stage, size, 2**28, lambda h, w: 100 * h * w)
    assert found < size and 100 * found[0] * found[1] < 2**28 and len(asked) <= 1


def test_kernels_in_bf16_keep_the_sum_of_their_taps() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((16, 9, 6)).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.3] = 0
    rounded = packing.round_over_taps(matrix)
    alone = packing.from_bf16(packing.to_bf16(matrix))
    assert np.array_equal(packing.to_bf16(rounded).astype(np.uint32) << 16, rounded.view(np.uint32))
    assert (rounded[matrix == 0] == 0).all()
    ulp = 2.0 ** (np.floor(np.log2(np.abs(matrix).max(1))) - 7)  # of a channel's largest tap
    assert (np.abs(rounded - matrix) <= ulp[:, None]).all()
    change, plain = (np.abs((m - matrix).sum(1, dtype=np.float64)) for m in (rounded, alone))
    assert (change <= ulp).all()
    assert change.mean() < 0.6 * plain.mean()


@every_dtype
def test_pruned_channels_are_skipped_without_a_trace(dtype: str) -> None:
    """Groups of 16 channels whose gate is zero lack the spectral branch; the sum must not notice."""
    pytest.importorskip("torch", reason="torch is not installed")
    layers = (Linear(16, 32), ZenithBlock(32, 64, 8), ZenithBlock(32, 48, 4, eyes=False), Linear(32, 3))
    weights = custom(layers)
    tensors = dict(weights.tensors)
    tensors["decoder.1.gate"][:, :, 16:48] = 0
    tensors["decoder.2.gate"][:, :, :16] = 0
    pruned = Weights(weights.config, tensors)
    x = inputs(weights.config, "decoder", 100, 90)["x"]
    native = native_engine(pruned, dtype)
    assert_close(native.run("decoder", x), engine.create(pruned, "torch").run("decoder", x), dtype)


def test_python_threads_share_an_engine() -> None:
    config = zoo.build("zenith-denoise")
    native = engine.create(random_weights(config), threads=2)
    cases = [inputs(config, "denoiser", h, w) for h, w in ((64, 64), (33, 70), (100, 20), (64, 64))]
    expected = [native.run("denoiser", **case) for case in cases]
    wrong = []

    def work(case: dict, result: np.ndarray) -> None:
        for _ in range(10):
            if not np.array_equal(native.run("denoiser", **case), result):
                wrong.append(case)

    workers = [threading.Thread(target=work, args=pair) for pair in zip(cases, expected, strict=True)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@given(
    st.sampled_from(["taesd", "zenith-taesd", "zenith-taesd-lite", "zenith-denoise", "conv-baseline"]),
    st.integers(1, 700),
    st.integers(1, 400),
)
def test_tiles_cover_the_output_once_and_stay_inside(architecture: str, size: int, pixels: int) -> None:
    config = zoo.build(architecture)
    for part, layers in config.parts.items():
        (stage,) = geometry.split(part, layers, config.in_channels(part))
        step = geometry.multiple(layers)
        padded, wanted = -(-size // step) * step, stage.output_size(size)
        side = geometry.tile_side(stage, pixels, Fraction(1))
        assert side >= pixels and side % stage.alignment == 0
        position = 0
        for span in geometry.spans(stage, padded, wanted, side):
            assert span.start == position < span.stop
            assert 0 <= span.lo < span.hi <= padded and span.lo % stage.alignment == 0
            assert span.skip == span.start - span.lo * out_scale(layers) >= 0
            assert (span.hi - span.lo) * out_scale(layers) >= span.skip + span.stop - span.start
            position = span.stop
        assert position == wanted


# --- bf16 and int16 ---------------------------------------------------------------------------


def test_automatic_precision_is_what_the_level_is_made_for() -> None:
    weights = random_weights(zoo.build("zenith-taesd-nano"))
    for isa in available_isas():
        assert engine.create(weights, isa=isa).dtype == best_dtype(isa)
        assert engine.create(weights, isa=isa, dtype="float32").dtype == "float32"
        for dtype in {"bf16", "int16"} - {best_dtype(isa)}:
            with pytest.raises(ConfigError, match=f"level {isa} has no fast {dtype}"):
                engine.create(weights, isa=isa, dtype=dtype)
    assert engine.create(weights, dtype="float32").dtype == "float32"


def test_devices_and_types_of_torch_are_taken_by_their_names() -> None:
    torch = pytest.importorskip("torch")
    weights = random_weights(zoo.build("zenith-taesd-nano"))
    native = engine.create(weights, torch.device("cpu"), torch.float32, threads=1)
    assert (native.device, native.dtype) == (engine.create(weights).device, "float32")
    level = available_isas()[-1]
    if fast_bf16(level):
        assert engine.create(weights, dtype=torch.bfloat16, isa=level).dtype == "bf16"
    for wrong in ({"device": torch.device("meta")}, {"device": None}, {"dtype": torch.float64}):
        with pytest.raises(ConfigError, match="must be one of"):
            engine.create(weights, **wrong)


@pytest.mark.parametrize("part", ["denoiser", "estimator"])
def test_integers_give_the_same_bits_on_levels_that_fuse_and_are_near_to_float32(part: str) -> None:
    weights = model("zenith-denoise")
    arguments = inputs(weights.config, part, 45, 61)
    exact = native_engine(weights).run(part, **arguments)
    results = [
        native_engine(weights, "int16", isa=isa).run(part, **arguments)
        for isa in available_isas()
        if isa != "generic"
    ]
    for result in results:
        assert np.array_equal(result, results[0])
        assert mean_error(result, exact) < 1e-3


def test_integers_read_pictures_of_16_bits_and_move_pixels_as_they_are() -> None:
    """What only a product of ones or the picture's own would round stays float32."""
    layers = (
        PixelUnshuffle(2),
        Linear(12, 48),
        PixelShuffle(2),
        Upsample(),
        PixelUnshuffle(4),
        Linear(192, 3),
    )
    weights = random_weights(ModelConfig("moves", "autoencoder", {"encoder": layers}, 3))
    spread, gather = np.zeros((48, 12), np.float32), np.zeros((3, 192), np.float32)
    spread[:12], gather[range(3), range(3)] = np.eye(12), 1
    tensors = {
        "encoder.1.weight": spread, "encoder.1.bias": np.zeros(48, np.float32),
        "encoder.5.weight": gather, "encoder.5.bias": np.zeros(3, np.float32),
    }  # fmt: skip
    x = inputs(weights.config, "encoder", 40, 48, "uint16")["x"]
    moved = Weights(weights.config, tensors)
    exact, result = (native_engine(moved, dtype).run("encoder", x) for dtype in ("float32", "int16"))
    assert np.array_equal(result, exact) and exact.any()


@pytest.mark.parametrize("architecture", ["taef2", "zenith-taesd-lite", "zenith-denoise"])
def test_bf16_halves_the_working_memory(architecture: str) -> None:
    weights = model(architecture)
    config = weights.config
    for part in config.parts:
        arguments = inputs(config, part, 128, 160)
        peaks = {}
        for dtype in ("float32", "bf16"):
            native = native_engine(weights, dtype, threads=1)
            native.run(part, **arguments, tile=0)
            peaks[dtype] = native.stats()["peak_bytes"]
        assert peaks["bf16"] < 0.6 * peaks["float32"]  # rows of pictures are float32 in both


def test_bf16_costs_a_vanilla_round_trip_no_quality(shared: Path) -> None:
    """Within 0.05 dB of float32 on pictures, with trained weights: here Winograd's transforms round too."""
    encoder, decoder = (
        load_weights(shared / "teachers" / f"taef2_{part}.safetensors") for part in ("encoder", "decoder")
    )
    differences = []
    for name in ("cat.png", "cat.clean.png", "coffee.jpg"):
        with Image.open(Path(__file__).parents[1] / "examples" / name) as image:
            picture = np.asarray(image.convert("RGB"))[None, :256, :256]
        values = []
        for dtype in ("float32", "bf16"):
            latents = native_engine(encoder, dtype).run("encoder", picture)
            decoded = native_engine(decoder, dtype).run("decoder", latents, out="uint8")
            values.append(psnr(decoded[0], picture[0]))
        differences.append(values[1] - values[0])
    assert abs(np.mean(differences)) < 0.05


def test_bf16_reads_pictures_of_16_bits_and_writes_floats_without_rounding() -> None:
    """A network that only moves pixels would show every bit that is lost on the way."""
    layers = (PixelUnshuffle(2), Linear(12, 12), PixelShuffle(2))
    weights = random_weights(ModelConfig("moves", "autoencoder", {"encoder": layers}, 3))
    tensors = {"encoder.1.weight": np.eye(12, dtype=np.float32), "encoder.1.bias": np.full(12, 3, np.float32)}
    x = inputs(weights.config, "encoder", 40, 46, "uint16")["x"]
    y = native_engine(Weights(weights.config, tensors), "bf16").run("encoder", x) - 3
    assert np.abs(y - x / 65535).max() < 2**-17


@pytest.mark.parametrize("name", ["zenith-taef2", "zenith-taef2-lite"])
def test_convolutions_read_an_unshuffled_picture_itself(name: str) -> None:
    """A step that moved its pixels first would take time, and in bf16 round them."""
    weights = random_weights(zoo.build(name))
    labels = [
        label for label, _ in native_engine(weights).profile("encoder", np.zeros((1, 32, 32, 3), np.float32))
    ]
    assert labels[:2] == ["1 load 16x16", "1 Conv 16x16"]
    layers = (PixelUnshuffle(2), Conv(12, 16), Linear(16, 12), PixelShuffle(2))
    weights = random_weights(ModelConfig("reads", "autoencoder", {"encoder": layers}, 3))
    kernel = np.zeros((16, 12, 3, 3), np.float32)
    kernel[range(12), range(12), 1, 1] = 2.0**8
    tensors = {
        "1.weight": kernel,
        "1.bias": np.full(16, -(2.0**7)),
        "2.weight": np.eye(12, 16),
        "2.bias": np.zeros(12),
    }
    tensors = {f"encoder.{key}": np.asarray(t, np.float32) for key, t in tensors.items()}
    x = np.float32(0.5) + inputs(weights.config, "encoder", 40, 46)["x"] * np.float32(2**-9)
    y = native_engine(Weights(weights.config, tensors), "bf16").run("encoder", x)
    assert (
        np.abs(y - (x - 0.5) * 2**8).max() < 2**-7
    )  # of 2**-1; rounded to bf16 before, x would be 2**-9 off


# --- formats and sizes ------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("tile", [0, 16])
def test_rows_of_a_plane_may_lie_anywhere(device: str, tile: int) -> None:
    """Also all at one place, as those of a level that is the same everywhere do."""
    if device == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    config = zoo.build("zenith-denoise")
    run = partial(engine.create(random_weights(config), device).run, "denoiser", tile=tile)
    arguments = inputs(config, "denoiser", 21, 35, "uint8")
    x, plane = arguments["x"], arguments["plane"]
    row = np.ascontiguousarray(plane[:, :1])
    one = np.broadcast_to(row, plane.shape)
    assert np.array_equal(run(x, plane=one), run(x, plane=one.copy()))
    backwards = plane[:, ::-1].copy()[:, ::-1]
    wide = np.repeat(plane, 2, axis=2)[..., ::2]
    big_endian = plane.astype(">f4")
    for other in (backwards, wide, big_endian, plane.swapaxes(1, 2).copy().swapaxes(1, 2)):
        assert np.array_equal(run(x, plane=other), run(x, plane=plane))


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_picture_formats_agree(device: str) -> None:
    if device == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    config = zoo.build("zenith-denoise")
    run = engine.create(random_weights(config), device).run
    arguments = inputs(config, "denoiser", 21, 35, "uint8")
    x, plane = arguments["x"], arguments["plane"]
    expected = run("denoiser", x, plane=plane)
    assert expected.dtype == np.float32 and expected.shape == x.shape
    as_float = run("denoiser", x.astype(np.float32) / np.float32(255), plane=plane)
    assert np.array_equal(expected, as_float)
    as_uint16 = run("denoiser", x.astype(np.uint16) * 257, plane=plane)
    assert np.allclose(expected, as_uint16, atol=1e-4)
    clipped = np.clip(expected.astype(np.float64), 0, 1)
    assert 0.05 < (clipped == expected).mean() < 0.95  # some values are outside [0, 1], some inside
    for out in ("uint8", "uint16"):
        full = np.iinfo(out).max
        result = run("denoiser", x, plane=plane, out=out)
        assert result.dtype == out
        assert np.abs(result - clipped * full).max() <= 0.5 + full * 2**-23  # rounded as float32


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_odd_sizes_are_padded_by_the_edge(device: str) -> None:
    """A 13 x 18 picture gives what its 16 x 24 continuation gives, cropped to whole latents."""
    if device == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    config = zoo.build("zenith-taesd-lite")
    run = engine.create(random_weights(config), device).run
    x = inputs(config, "encoder", 13, 18)["x"]
    whole = np.pad(x, ((0, 0), (0, 3), (0, 6), (0, 0)), mode="edge")
    assert run("encoder", x).shape == (1, 2, 3, 4)
    assert np.array_equal(run("encoder", x), run("encoder", whole))


def test_byte_order_and_alignment_do_not_matter() -> None:
    config = zoo.build("zenith-taesd-nano")
    native = engine.create(random_weights(config))
    for dtype in ("uint16", "float32"):
        x = inputs(config, "encoder", 19, 23, dtype)["x"]
        expected = native.run("encoder", x)
        assert np.array_equal(native.run("encoder", x.astype(x.dtype.newbyteorder(">"))), expected)
        shifted = np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape)
        assert not shifted.flags.aligned
        assert np.array_equal(native.run("encoder", shifted), expected)
    native = engine.create(random_weights(zoo.build("zenith-denoise")))
    arguments = inputs(native.weights.config, "denoiser", 19, 23)
    swapped = {key: a.astype(a.dtype.newbyteorder(">")) for key, a in arguments.items()}
    assert np.array_equal(native.run("denoiser", **swapped), native.run("denoiser", **arguments))


def test_batches_and_strided_inputs() -> None:
    config = zoo.build("zenith-taesd-nano")
    native = engine.create(random_weights(config))
    x = np.random.default_rng(0).integers(0, 256, (3, 30, 44, 6), np.uint8)[:, ::2, :, 1::2]
    together = native.run("encoder", x)
    alone = [native.run("encoder", np.ascontiguousarray(x[i : i + 1])) for i in range(3)]
    assert np.array_equal(together, np.concatenate(alone))
    assert native.run("encoder", x[:0]).shape == (0, 2, 6, 4)


class EnoughError(Exception):
    pass


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("architecture", "part"), [("zenith-denoise", "denoiser"), ("taef2", "encoder"),
                                                    ("taesd", "decoder")])  # fmt: skip
def test_progress_rises_to_one_and_ends_a_run_anywhere(architecture, part, threads, monkeypatch) -> None:
    monkeypatch.setattr("zenith_ae.engine.native.WATCH_SECONDS", 0.0)  # at every opportunity
    native = engine.create(model(architecture), dtype="float32", threads=threads)
    arguments = inputs(native.weights.config, part, 72, 104)
    if part == "decoder":
        arguments["x"] = arguments["x"][:, :4, :6]
    whole, told = native.run(part, **arguments), []
    assert np.array_equal(native.run(part, **arguments, progress=told.append), whole)
    assert told == sorted(told) and told[0] > 0 and told[-1] == pytest.approx(1) and len(told) > 10
    assert max(b - a for a, b in zip([0, *told], told, strict=False)) < 0.3  # work is shared out as it lies
    for count in {1, 2, 3, len(told) // 2, len(told) - 1}:

        def stop(_: float, left: list[None] = [None] * count) -> None:
            left.pop()
            if not left:
                raise EnoughError

        with pytest.raises(EnoughError):
            native.run(part, **arguments, progress=stop)
        assert np.array_equal(native.run(part, **arguments), whole)
    assert native.stats()["allocations"] == 1


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_progress_counts_tiles_and_pictures(device: str, monkeypatch) -> None:
    monkeypatch.setattr("zenith_ae.engine.native.WATCH_SECONDS", np.inf)  # after tiles alone
    weights, told = model("zenith-taesd-nano"), []
    x = np.zeros((2, 80, 128, 3), np.uint8)
    engine.create(weights, device=device).run("encoder", x, tile=64, progress=told.append)
    assert told == pytest.approx([0.2, 0.4, 0.45, 0.5, 0.7, 0.9, 0.95, 1], abs=1e-6)


#: The beginning of programs for a process of their own: `empty` is a model of zeros.
EMPTY = (
    "import os, signal, threading, warnings, numpy as np\n"
    "from zenith_ae import engine, weights\n"
    "from zenith_ae.engine import native\n"
    "from zenith_ae.models import zoo\n"
    "config = zoo.build('taesd')\n"
    "zeros = {name: np.zeros(shape, np.float32) for name, shape in config.params().items()}\n"
    "empty = weights.Weights(config, zeros)\n"
)


def test_a_signal_ends_a_run_and_not_only_between_runs() -> None:
    code = EMPTY + (
        "model = engine.create(empty, threads=1)\n"
        "begun = threading.Event()\n"
        "kill = lambda: (begun.wait(), os.kill(os.getpid(), signal.SIGINT))\n"
        "threading.Thread(target=kill, daemon=True).start()\n"
        "try:\n"
        "    model.run('encoder', np.zeros((1, 2048, 2048, 3), np.uint8), tile=0,\n"
        "              progress=lambda share: (begun.set(), print(share) if share > 0.9 else None))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600,
                          check=False)  # fmt: skip
    assert done.stdout.strip() == "interrupted", done.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_a_child_that_progress_forks_does_not_go_on_and_can_begin_anew(threads: int) -> None:
    code = EMPTY + (
        "warnings.simplefilter('ignore')\n"
        "native.WATCH_SECONDS = 0.0\n"
        f"model = engine.create(empty, threads={threads})\n"
        "x, parent, child = np.zeros((1, 64, 64, 3), np.uint8), os.getpid(), []\n"
        "def fork(share):\n"
        "    if os.getpid() == parent and not child:\n"
        "        child.append(os.fork())\n"
        "try:\n"
        "    model.run('encoder', x, progress=fork)\n"
        "except RuntimeError as error:\n"
        "    print('child', error)\n"
        "model.run('encoder', x)\n"
        "if os.getpid() == parent:\n"
        "    print(os.waitpid(child[0], 0)[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          check=False)  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0", done.stderr
    assert ("cannot go on" in done.stdout) == (threads > 1)  # alone it goes on


# --- memory and threads -----------------------------------------------------------------------


def test_arena_is_reused() -> None:
    config = zoo.build("zenith-taesd-nano")
    native = engine.create(random_weights(config))
    arguments = inputs(config, "encoder", 64, 64)
    assert native.stats() == {"arena_bytes": 0, "peak_bytes": 0, "allocations": 0, "reuses": 0}
    for _ in range(5):
        native.run("encoder", **arguments)
    stats = native.stats()
    assert (stats["allocations"], stats["reuses"]) == (1, 4)
    native.run("encoder", **inputs(config, "encoder", 200, 200))
    larger = native.stats()
    assert larger["allocations"] == 2 and larger["arena_bytes"] > stats["arena_bytes"]
    native.run("encoder", **arguments)
    assert native.stats()["reuses"] == 5
    native.release()
    assert native.stats()["arena_bytes"] == 0
    assert native.stats()["peak_bytes"] == larger["peak_bytes"]


@every_dtype
@pytest.mark.parametrize("name", [*ARCHITECTURES, *CUSTOM])
def test_nothing_depends_on_what_the_arena_held(name: str, dtype: str) -> None:
    weights = custom(*CUSTOM[name]) if name in CUSTOM else model(name)
    native = native_engine(weights, dtype, threads=2)
    for part in weights.config.parts:
        arguments = inputs(weights.config, part, 30, 43)
        first = native.run(part, **arguments)
        for block in native._free:
            block.fill(0xFF)  # NaN, as bf16, float32 and float64
        assert np.array_equal(native.run(part, **arguments), first)
        assert np.isfinite(first).all()


@every_dtype
@pytest.mark.parametrize("name", [*ARCHITECTURES, *CUSTOM])
def test_nothing_is_written_behind_the_arena(name: str, dtype: str, monkeypatch) -> None:
    weights = custom(*CUSTOM[name]) if name in CUSTOM else model(name)
    native = native_engine(weights, dtype, threads=2)
    taken = []

    def take(size: int) -> np.ndarray:
        raw = np.full(size + 2**16, 0xA5, np.uint8)
        start = -raw.ctypes.data % 64
        taken.append((raw, start + size))
        return raw[start : start + size]

    monkeypatch.setattr(native, "_take", take)
    for part in weights.config.parts:
        native.run(part, **inputs(weights.config, part, 30, 43), tile=0)
    assert taken and all((raw[end:] == 0xA5).all() for raw, end in taken)


def test_thread_count_changes_no_bit_where_the_caller_flushes_denormals() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    code = """
import numpy as np, torch
from zenith_ae import engine
from zenith_ae.models.spec import Linear, ModelConfig
from zenith_ae.weights import Weights
config = ModelConfig("faint", "autoencoder", {"encoder": (Linear(3, 4),)}, 4)
tensors = {"encoder.0.weight": np.full((4, 3), 1e-20), "encoder.0.bias": np.zeros(4)}
x = np.full((1, 8, 8, 3), 1e-20, np.float32)
engines = [engine.create(Weights(config, tensors), threads=n, dtype="float32") for n in (1, 2, 3)]
for e in engines:
    assert (e.run("encoder", x) > 0).all()
assert torch.set_flush_denormal(True)
for e in engines:
    assert (e.run("encoder", x) == 0).all(), e.threads
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    ("layers", "channels"),
    [
        ((Linear(2049, 3),), 2049),
        ((Linear(3, 2049),), 3),
        ((Relu(), Linear(2049, 3)), 2049),
    ],
)
def test_pixels_too_wide_for_the_kernels_are_refused(layers: Layers, channels: int) -> None:
    """They would never end: the kernels convert pictures in pieces of so many values."""
    native = engine.create(custom(layers, channels), threads=1)
    (part,) = native.weights.config.parts
    x = np.zeros((1, 2, 2, channels), np.float32)
    with pytest.raises(ConfigError, match="more than 2048"):
        native.run(part, x)


@pytest.mark.parametrize(
    ("layers", "channels"),
    [
        ((PixelUnshuffle(1024), Linear(3 * 1024**2, 1)), 3),
        ((Linear(16, 3 * 1024**2), PixelShuffle(1024)), 16),
    ],
)
def test_shuffles_of_very_wide_pixels_are_refused(layers: Layers, channels: int) -> None:
    with pytest.raises(ConfigError, match="r must be at most 32, got 1024"):
        custom(layers, channels)


def test_a_small_file_cannot_ask_for_a_large_matrix() -> None:
    """Shuffles have no weights, and what moves pixels is a product with ones."""
    shuffles = (PixelUnshuffle(8), PixelUnshuffle(8), PixelShuffle(8), PixelShuffle(8))
    native = engine.create(custom(shuffles, 3), threads=1)
    (part,) = native.weights.config.parts
    with pytest.raises(ConfigError, match="moves 12288 channels at once, more than 4096") as caught:
        native.run(part, np.zeros((1, 64, 64, 3), np.float32))
    assert len(str(caught.value)) < 100
    groups = (Linear(3, 5000), Linear(5000, 5000, groups=5000), Linear(5000, 3))  # whose matrix is dense here
    native = engine.create(custom(groups, 3), threads=1)
    with pytest.raises(ConfigError, match="5000 channels in 5000 groups make a matrix of more than 4096 x"):
        native.run(part, np.zeros((1, 8, 8, 3), np.float32))


def test_a_forked_child_can_run() -> None:
    code = """
import os, numpy as np, sys, threading
from zenith_ae import engine
from zenith_ae.metrics import psnr
from zenith_ae.models import spec, zoo
from zenith_ae.weights import Weights
config = zoo.build("zenith-taesd-nano")
rng = np.random.default_rng(0)
weights = Weights(config, {k: rng.standard_normal(s) * 0.1 for k, s in config.params().items()})
native = engine.create(weights, threads=3)
x = rng.random((1, 96, 96, 3), np.float32)
expected = native.run("encoder", x)
stop = threading.Event()
def busy():
    while not stop.is_set():
        native.run("encoder", x)
worker = threading.Thread(target=busy)
worker.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        fresh = engine.create(weights, threads=3)
        same = [np.array_equal(e.run("encoder", x), expected) for e in (fresh, native, fresh, native)]
        os._exit(0 if all(same) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
worker.join()
assert np.array_equal(native.run("encoder", x), expected)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_child_of_a_fork_has_the_callers_precision_of_products():
    code = """
import os, threading, torch
from zenith_ae.engine.torch_engine import _exact_floats, _precision
torch.set_float32_matmul_precision("medium")
before, begun, end = _precision(), threading.Event(), threading.Event()

def hold():
    with _exact_floats:
        begun.set()
        end.wait()

thread = threading.Thread(target=hold)
thread.start()
begun.wait()
assert _precision() != before
if child := os.fork():
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0 and _precision() == before
else:
    first = _precision()
    with _exact_floats:
        inside = _precision()
    os._exit(not first == _precision() == before != inside)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    """Each lock is held by a thread, or waited for by one, while the process forks."""
    pytest.importorskip("torch", reason="torch is not installed")
    code = """
import io, os, threading
import numpy as np, torch
from PIL import Image
from zenith_ae import images
from zenith_ae.models.spec import cached_property
from zenith_ae.models.wht import wht_mix
begun, end = threading.Event(), threading.Event()

class Slow:
    @cached_property
    def value(self):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            end.wait()
        return 7

def hold():
    with images._pillow_allows(10**6), images._open_lock:
        Slow().value

Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(file := io.BytesIO(), "PNG")
x, gates = torch.rand(2, 16, 8, 8), torch.rand(2, 8, 8, 16)
mixed = wht_mix(x, *gates)
limit = Image.MAX_IMAGE_PIXELS
thread = threading.Thread(target=hold)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    good = images.read_picture(file.getvalue()).width == 4 and Image.MAX_IMAGE_PIXELS == limit
    os._exit(0 if good and Slow().value == 7 and torch.equal(wht_mix(x, *gates), mixed) else 1)
status = os.waitpid(child, 0)[1]
end.set()
assert status == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_no_thread_starts_at_import() -> None:
    code = """
import os
before = len(os.listdir("/proc/self/task"))
import zenith_ae.engine.native
assert len(os.listdir("/proc/self/task")) == before
"""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("no /proc here")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)


def test_large_picture_stays_within_its_memory_bound() -> None:
    """A 3000 x 2000 picture: an untiled run would take 590 MB, tiles stay near the budget."""
    resource = pytest.importorskip("resource", reason="no resource module on this system")
    del resource
    code = """
import resource, numpy as np
from zenith_ae import engine
from zenith_ae.metrics import psnr
from zenith_ae.models import spec, zoo
from zenith_ae.weights import Weights
config = zoo.build("zenith-taesd-lite")
rng = np.random.default_rng(0)
weights = Weights(config, {k: rng.standard_normal(s) * 0.05 for k, s in config.params().items()})
native = engine.create(weights, dtype="float32", threads=2)
native.run("encoder", np.zeros((1, 8, 8, 3), np.uint8))
x = np.zeros((1, 2000, 3000, 3), np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
z = native.run("encoder", x)
assert z.shape == (1, 250, 375, 4)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
stats = native.stats()
assert native._working_bytes(native._whole["encoder"], 2000, 3000) > 550e6
assert stats["peak_bytes"] < 1.1 * native.budget == 1.1 * 384 * 2**20, stats
print(grown)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=600, capture_output=True, text=True,
        env=os.environ | {"ZENITH_MEMORY": "384"},
    )  # fmt: skip
    kilobytes = int(done.stdout) // (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 500_000


def test_thread_count_comes_from_the_environment(monkeypatch) -> None:
    weights = random_weights(zoo.build("zenith-taesd-nano"))
    monkeypatch.setenv("ZENITH_NUM_THREADS", "3")
    assert engine.create(weights).threads == 3
    assert engine.create(weights, threads=2).threads == 2
    for wrong in ("many", "9" * 5000):
        monkeypatch.setenv("ZENITH_NUM_THREADS", wrong)
        with pytest.raises(ConfigError, match="ZENITH_NUM_THREADS"):
            engine.create(weights)
    monkeypatch.delenv("ZENITH_NUM_THREADS")
    assert 1 <= engine.create(weights).threads <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 2),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu.max": "rubbish"}, None),
    ],
)
def test_cgroup_quota_is_respected(files: dict[str, str], limit: int | None, tmp_path: Path) -> None:
    write(tmp_path, files)
    assert limits.cpu_quota(tmp_path, "a/b") == limit


@pytest.mark.parametrize(
    ("capacities", "allowed", "fast"),
    [
        ([1024] * 4, range(4), 4),
        ([446] * 4 + [1024] * 4, range(8), 4),
        ([250] * 4 + [900] * 3 + [1024], range(8), 4),  # one is the fastest, and three are nearly
        ([446] * 4 + [1024] * 4, range(3), 3),  # of those that are slow, all
        ([446, 1024], range(4), 4),  # not told of all
        ([], range(2), 2),
    ],
)
def test_slow_cores_are_left_alone(capacities: list[int], allowed: range, fast: int, tmp_path: Path) -> None:
    write(tmp_path, {f"cpu{n}/cpu_capacity": str(value) for n, value in enumerate(capacities)})
    assert limits.fast_cpus(tmp_path, allowed) == fast


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 3000 * 1024),
        ({"memory.max": "max", "memory.current": "5"}, 3000 * 1024),
        ({"a/b/memory.max": "max", "a/memory.max": "1500000", "a/memory.current": "500000"}, 1000000),
        ({"memory.max": "100", "memory.current": "200"}, 0),
        ({"memory/memory.limit_in_bytes": "7000", "memory/memory.usage_in_bytes": "3000"}, 4000),
        (
            {"memory.max": "100", "memory.current": "90", "memory.stat": "anon 20\ninactive_file 60"},
            70,
        ),
        (
            {
                "memory/memory.limit_in_bytes": "100",
                "memory/memory.usage_in_bytes": "90",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 50",
            },
            60,
        ),
        ({"memory.max": "100", "memory.current": "90", "memory.stat": "rubbish"}, 10),
    ],
)
def test_free_memory_is_the_machines_or_the_cgroups(files: dict[str, str], free: int, tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:   3000 kB\n")
    write(tmp_path, files)
    assert limits.free_memory(meminfo, tmp_path, "a/b") == free
    meminfo.write_text("rubbish")
    assert limits.free_memory(meminfo, tmp_path / "none") is not None  # a share of the whole


def test_working_memory_has_a_budget_and_the_environment_may_set_it(monkeypatch) -> None:
    weights = random_weights(zoo.build("zenith-taesd-nano"))
    assert limits.LEAST <= engine.create(weights).budget <= limits.MOST
    monkeypatch.setattr(limits, "free_memory", lambda *_: 500 * 2**23)
    limits._free_share.cache_clear()
    assert engine.create(weights).budget == 500 * 2**20
    limits._free_share.cache_clear()
    monkeypatch.setenv("ZENITH_MEMORY", "100")
    assert engine.create(weights).budget == 100 * 2**20
    monkeypatch.setenv("ZENITH_MEMORY", "1G")
    with pytest.raises(ConfigError, match="ZENITH_MEMORY"):
        engine.create(weights)


def test_a_limit_on_addresses_counts_as_memory() -> None:
    resource = pytest.importorskip("resource")
    code = """
import resource
from zenith_ae.engine import limits
before = limits._left_of_address_space()
_, most = resource.getrlimit(resource.RLIMIT_AS)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, most))
assert 2**29 < limits._left_of_address_space() <= 2**30 <= before
assert limits.free_memory(limits._MEMORY, limits._CGROUPS) <= 2**30
"""
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY or sys.platform != "linux":
        pytest.skip("there is a limit already, or nobody tells what is used")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_profile_names_every_step() -> None:
    config = zoo.build("taef2")
    native = engine.create(random_weights(config))
    steps = native.profile("decoder", inputs(config, "decoder", 64, 64)["x"], repeats=2)
    assert len(steps) > 10
    assert all(milliseconds >= 0 for _, milliseconds in steps)
    assert any("ResBlock" in label for label, _ in steps)


# --- refusals ---------------------------------------------------------------------------------


def test_wrong_inputs_are_refused_clearly() -> None:
    config = zoo.build("zenith-taesd-nano")
    native = engine.create(random_weights(config))
    with pytest.raises(ConfigError, match="has no denoiser"):
        native.run("denoiser", np.zeros((1, 8, 8, 3), np.float32))
    with pytest.raises(ImageError, match=r"shape \(N, H, W, 3\)"):
        native.run("encoder", np.zeros((8, 8, 3), np.float32))
    with pytest.raises(ImageError, match="shape"):
        native.run("encoder", np.zeros((1, 0, 8, 3), np.float32))
    with pytest.raises(ImageError, match="float64"):
        native.run("encoder", np.zeros((1, 8, 8, 3)))
    with pytest.raises(ImageError, match="no plane"):
        native.run("encoder", np.zeros((1, 8, 8, 3), np.float32), plane=np.zeros((1, 8, 8), np.float32))
    with pytest.raises(LatentError, match="must be float32"):
        native.run("decoder", np.zeros((1, 8, 8, 4), np.uint8))
    with pytest.raises(ConfigError, match="tile"):
        native.run("encoder", np.zeros((1, 8, 8, 3), np.float32), tile=-1)
    with pytest.raises(ConfigError, match="out"):
        native.run("encoder", np.zeros((1, 8, 8, 3), np.float32), out="int8")
    with pytest.raises(ConfigError, match="tile"):
        native.run("encoder", np.zeros((1, 8, 8, 3), np.float32), tile=None)
    with pytest.raises(ConfigError, match="has no denoiser"):
        native.profile("denoiser", np.zeros((1, 8, 8, 3), np.float32))
    denoiser = engine.create(random_weights(zoo.build("zenith-denoise")))
    with pytest.raises(ImageError, match="needs a plane"):
        denoiser.run("denoiser", np.zeros((1, 8, 8, 3), np.float32))
    with pytest.raises(ImageError, match="plane must be float32 of shape"):
        denoiser.run("denoiser", np.zeros((1, 8, 8, 3), np.float32), plane=np.zeros((1, 8, 9), np.float32))


def test_wrong_options_are_refused_clearly() -> None:
    weights = random_weights(zoo.build("zenith-taesd-nano"))
    with pytest.raises(ConfigError, match="device"):
        engine.create(weights, "tpu")
    with pytest.raises(ConfigError, match="dtype"):
        engine.create(weights, dtype="float16")
    with pytest.raises(ConfigError, match="belongs to device 'cpu'"):
        engine.create(weights, "torch", "bf16")
    with pytest.raises(ConfigError, match="threads"):
        engine.create(weights, threads=0)
    with pytest.raises(IsaError, match="available"):
        engine.create(weights, isa="mmx")


def test_torch_computes_in_float32_whatever_its_defaults() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    config = zoo.build("zenith-taesd-nano")
    weights, x = random_weights(config), inputs(config, "encoder", 16, 24)["x"]
    expected = engine.create(weights, "torch").run("encoder", x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(engine.create(weights, "torch").run("encoder", x), expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert np.array_equal(engine.create(weights, "torch").run("encoder", x), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_torch_computes_in_float32_whatever_the_caller_allows() -> None:
    """Products of matrices too, which a pipeline may have set to bf16 (here on a CPU that has it)."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    config = zoo.build("zenith-taesd-spectral")
    runner = engine.create(random_weights(config), "torch")
    x = inputs(config, "encoder", 32, 48)["x"]
    expected = runner.run("encoder", x)
    torch.set_float32_matmul_precision("medium")
    try:
        assert np.array_equal(runner.run("encoder", x), expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("before", [True, False])
def test_torch_convolves_in_float32_on_a_gpu_too_and_leaves_its_settings(before: bool) -> None:
    """cuDNN has a switch for it, which is the whole process's."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    cudnn = torch.backends.cudnn
    config = zoo.build("zenith-taesd-nano")
    runner = engine.create(random_weights(config), "torch")
    x = inputs(config, "encoder", 16, 24)["x"]
    seen = []
    once = threading.Barrier(2, timeout=60)  # both are inside

    def look(*_: object) -> None:
        once.wait()
        seen.append(cudnn.conv.fp32_precision == "ieee" if hasattr(cudnn, "conv") else not cudnn.allow_tf32)

    was = cudnn.allow_tf32
    cudnn.allow_tf32 = before
    try:
        handle = next(iter(runner._modules.values()))[-1].register_forward_hook(look)
        threads = [threading.Thread(target=runner.run, args=("encoder", x)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        handle.remove()
        assert seen == [True, True]
        assert cudnn.allow_tf32 == before
    finally:
        cudnn.allow_tf32 = was


@pytest.mark.parametrize(
    ("name", "part"),
    [("zenith-denoise", "denoiser"), ("zenith-deblur", "denoiser"), ("zenith-taef2", "decoder")],
)
def test_torch_takes_about_the_memory_that_it_says(name: str, part: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils._python_dispatch import TorchDispatchMode

    from zenith_ae.models import wht

    live: dict[int, int] = {}
    peak = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal peak
            out = function(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(out):
                if (
                    isinstance(tensor, torch.Tensor)
                    and (s := tensor.untyped_storage()).data_ptr() not in live
                ):
                    live[s.data_ptr()] = s.nbytes()
                    finalize(s, live.pop, s.data_ptr(), None)
                    peak = max(peak, sum(live.values()))
            return out

    config = zoo.build(name)
    runner = engine.create(random_weights(config), "torch")
    arguments = inputs(config, part, 256, 256)
    with Watch(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(wht, "native_available", lambda: False)  # as on a GPU
        runner.run(part, **arguments, tile=0)
    said = runner._working_bytes(runner._whole[part], *arguments["x"].shape[1:3])
    assert said / 1.5 < peak < 1.5 * said


def test_torch_engines_leave_the_callers_random_numbers() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    config = zoo.build("zenith-taef2")
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    runner = engine.create(random_weights(config), "torch")
    runner.run("decoder", **inputs(config, "decoder", 64, 64), tile=32)  # in stages
    assert torch.equal(torch.rand(2), expected)


def test_the_budget_of_another_memory_is_a_share_of_it(monkeypatch) -> None:
    monkeypatch.delenv("ZENITH_MEMORY", raising=False)
    assert limits.memory_budget(2**30) == 2**27
    monkeypatch.setenv("ZENITH_MEMORY", "3")
    assert limits.memory_budget(2**30) == 3 * 2**20


def test_a_skip_across_a_cut_keeps_a_network_whole_though_its_name_comes_again() -> None:
    layers = (
        spec.Linear(3, 16), spec.Keep("a"), spec.ResBlock(16, True), spec.Add("a"), spec.Keep("a"),
        spec.ResBlock(16), spec.Add("a"),
    )  # fmt: skip
    (stage,) = geometry.split("encoder", layers, 3)
    assert stage.layers == layers and not stage.tiled
