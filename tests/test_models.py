"""Promises of models as data: lists, counts, receptive fields, modules, the spectral operator."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zenith_ae.engine.geometry import multiple
from zenith_ae.errors import ConfigError
from zenith_ae.models import spec, zoo
from zenith_ae.models.spec import (
    Add,
    Conv,
    Keep,
    Linear,
    ModelConfig,
    PixelShuffle,
    PixelUnshuffle,
    Relu,
    ZenithBlock,
)

torch = pytest.importorskip("torch")
from zenith_ae.models import streams, wht  # noqa: E402
from zenith_ae.models.modules import Network  # noqa: E402

PARTS = [(name, part) for name in zoo.ARCHITECTURES for part in zoo.build(name).parts]


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_config_survives_json(name: str) -> None:
    config = zoo.build(name, name="copy")
    assert ModelConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("z", [1, 4, 16, 32, 48])
@pytest.mark.parametrize("name", [n for n, (_, z) in zoo.ARCHITECTURES.items() if z])
def test_autoencoders_take_any_number_of_latent_channels(name: str, z: int) -> None:
    config = zoo.build(name, z)
    assert config.latent_channels == z
    assert config.factor == 8


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_module_has_the_parameters_of_the_list(name: str, part: str) -> None:
    config = zoo.build(name)
    module = Network(config.parts[part], config.in_channels(part))
    stored = {f"{part}.{k}": tuple(v.shape) for k, v in module.state_dict().items()}
    assert stored == {k: v for k, v in config.params().items() if k.startswith(f"{part}.")}
    assert sum(p.numel() for p in module.parameters()) == spec.parameter_count(config.parts[part])


def test_mac_count_of_taesd_is_the_published_one() -> None:
    config = zoo.build("taesd")
    assert spec.mac_count(config.parts["encoder"], 3, 512, 512) == pytest.approx(61.2e9, rel=2e-3)
    assert spec.mac_count(config.parts["decoder"], 4, 64, 64) == pytest.approx(70.7e9, rel=2e-3)
    assert spec.parameter_count(config.parts["encoder"]) == 1_222_532


def test_taesd_decoder_indices_are_those_of_the_original_sequential() -> None:
    decoder = zoo.build("taesd").parts["decoder"]
    convolutions = [i for i, layer in enumerate(decoder) if isinstance(layer, Conv)]
    assert convolutions == [1, 7, 12, 17, 19]


def test_conv_baseline_has_about_the_parameters_of_zenith_deblur() -> None:
    count = {
        n: spec.parameter_count(zoo.build(n).parts["denoiser"]) for n in ("conv-baseline", "zenith-deblur")
    }
    assert count["conv-baseline"] == pytest.approx(count["zenith-deblur"], rel=0.1)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((Linear(4, 8),), "layer 0"),
        ((Linear(3, 8), Linear(9, 3)), "layer 1"),
        ((PixelShuffle(2),), "multiple of 4"),
        (
            (Keep("a"), PixelUnshuffle(2), PixelShuffle(2), Add("b")),
            "layer 3: nothing was kept as 'b', where 3 at 1 of the size are needed",
        ),
        (
            (Keep("a"), PixelUnshuffle(2), Add("a")),
            "layer 2: 3 channels at 1 of the size were kept as 'a', where 12 at 1/2 of the size are needed",
        ),
    ],
)
def test_layers_that_do_not_fit_are_named(layers: spec.Layers, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        list(spec.trace(layers, 3))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Conv(3, 3, stride=3),
        lambda: Linear(6, 4, groups=4),
        lambda: ZenithBlock(8, 8, tile=5),
        lambda: ZenithBlock(8, 8, eyes=False),
        lambda: zoo.build("nothing"),
        lambda: zoo.build("taesd", 0),
        lambda: zoo.build("taesd", "4"),
        lambda: ModelConfig("x", "autoencoder", {"encoder": (Linear(3, 5),)}, 4),
        lambda: ModelConfig("x", "painter", {}),
        *(lambda kind=kind: ModelConfig("x", kind, {}) for kind in ModelConfig.PARTS),
        lambda: ModelConfig("x", "denoiser", {"estimator": (PixelUnshuffle(8), Linear(192, 1))}),
        lambda: ModelConfig("x", "denoiser", {"denoiser": (Linear(4, 3),), "decoder": (Linear(4, 3),)}, 4),
        lambda: ModelConfig("x", "autoencoder", {"denoiser": (Linear(4, 3),)}),
        lambda: ModelConfig("x", "autoencoder", {"encoder": (Linear(3, 4), spec.Upsample())}, 4),
        lambda: ModelConfig("x", "autoencoder", {"decoder": (PixelUnshuffle(2), Linear(16, 3))}, 4),
        lambda: ModelConfig(
            "x", "autoencoder", {"encoder": (PixelUnshuffle(3), Linear(27, 16), PixelShuffle(2))}, 4
        ),
        lambda: ModelConfig.from_json('{"parts": {"encoder": [["Exec", {}]]}}'),
        lambda: ModelConfig.from_json("[1, 2"),
        lambda: ModelConfig("x", "autoencoder", {"encoder": (spec.SpectralLinear(3, 0),)}, 0),
        lambda: ModelConfig("x", "autoencoder", {"encoder": (ZenithBlock(3, 0),)}, 3),
        lambda: ModelConfig("x", "autoencoder", {"encoder": (Linear(3.0, 4.0),)}, 4),
        lambda: ModelConfig("x", "autoencoder", {"encoder": (PixelUnshuffle(-1),)}, 3),
        *(
            lambda limit=limit: ModelConfig("x", "autoencoder", {"encoder": (spec.Clamp(limit),)}, 3)
            for limit in (0, -3.0, float("nan"), float("inf"), "3", None, True)
        ),
        lambda: ModelConfig("x", "autoencoder", {"encoder": (Linear(3, 4, bias="no"),)}, 4),
        lambda: ModelConfig("x", "autoencoder", {"encoder": ()}, 3),
        lambda: ModelConfig("x", "denoiser", {"denoiser": (PixelUnshuffle(2), Linear(16, 3))}),
        lambda: ModelConfig(
            "x", "denoiser", {"denoiser": (Linear(4, 3),), "estimator": (PixelUnshuffle(4), Linear(48, 1))}
        ),
        lambda: ModelConfig(
            "x",
            "autoencoder",
            {"encoder": (PixelUnshuffle(8), Linear(192, 4)), "decoder": (Linear(4, 48), PixelShuffle(4))},
            4,
        ),
    ],
)
def test_impossible_models_are_refused(make) -> None:
    with pytest.raises(ConfigError):
        make()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (name, part)
        for name, part in PARTS
        if name not in ("taesdxl", "taesd3", "taef1")  # taesd with other latents
        and not any(map(spec.is_global, zoo.build(name).parts[part]))
    ],
)
def test_required_input_covers_every_pixel_that_matters(name: str, part: str) -> None:
    """The gradient of an output row is zero outside the interval that the list promises."""
    config = zoo.build(name)
    layers = config.parts[part]
    torch.manual_seed(0)
    module = Network(layers, config.in_channels(part))
    scale = spec.out_scale(layers)
    height, width = (768, multiple(layers)) if scale <= 1 else (48, 1)
    x = torch.rand(1, config.in_channels(part), height, width, requires_grad=True)
    y = module(x)
    lo = y.shape[2] // 2
    promised = [min(max(v, 0), height) for v in spec.required_input(layers, lo, lo + 1)]
    assert promised != [0, height], "the picture is too small to show anything"
    y[:, :, lo].sum().backward()
    assert x.grad is not None
    touched = x.grad.abs().sum(dim=(0, 1, 3)).nonzero().flatten()
    assert promised[0] <= int(touched.min())
    assert int(touched.max()) < promised[1]


def test_alignment_is_the_least_common_step_of_tiles_and_scales() -> None:
    layers = (PixelUnshuffle(2), Linear(12, 8), ZenithBlock(8, 8, tile=8), PixelUnshuffle(3), Linear(72, 4),
              ZenithBlock(4, 4, tile=4))  # fmt: skip
    assert spec.alignment(layers) == 48  # 16 for the first tile, 24 for the second
    assert spec.out_scale(layers) == Fraction(1, 6)


# -- the spectral operator ------------------------------------------------------------------------


def dense_mix(x: np.ndarray, gate: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Float64 transcription of the definition, one tile and channel at a time."""
    t = gate.shape[0]
    h = np.array([[(-1) ** bin(i & j).count("1") for j in range(t)] for i in range(t)], np.float64)
    n, c, height, width = x.shape
    padded = np.zeros((n, c, -(-height // t) * t, -(-width // t) * t))
    padded[:, :, :height, :width] = x
    out = np.zeros_like(padded)
    for b, k, y, z in np.ndindex(n, c, padded.shape[2] // t, padded.shape[3] // t):
        tile = (b, k, slice(y * t, y * t + t), slice(z * t, z * t + t))
        s = (h @ padded[tile] @ h) * gate[:, :, k]
        s = np.sign(s) * np.maximum(np.abs(s) - np.abs(threshold[:, :, k]), 0)
        out[tile] = h @ s @ h / t**2
    return out[:, :, :height, :width]


@given(
    t=st.sampled_from([4, 8, 16]), c=st.sampled_from([3, 16, 48]), height=st.integers(1, 20),
    width=st.integers(1, 20), seed=st.integers(0, 99),
)  # fmt: skip
def test_wht_mix_is_its_definition(t: int, c: int, height: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, c, height, width))
    gate, threshold = rng.standard_normal((2, t, t, c)) * np.array([1, 2])[:, None, None, None]
    wanted = dense_mix(x, gate, threshold)
    for operator in (wht.wht_mix, wht.wht_mix_reference):
        got = operator(*(torch.from_numpy(a).float() for a in (x, gate, threshold)))
        np.testing.assert_allclose(got.numpy(), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("t", "height", "width"), [(4, 9, 6), (8, 16, 8), (16, 5, 33)])
def test_native_gradients_equal_those_of_autograd(t: int, height: int, width: int) -> None:
    if not wht.native_available():
        pytest.skip("the native operator is not compiled in")
    torch.manual_seed(1)
    inputs = [torch.randn(3, 32, height, width), torch.randn(t, t, 32), torch.randn(t, t, 32) * 2]
    direction = torch.randn(3, 32, height, width)
    grads = []
    for operator in (wht.wht_mix, wht.wht_mix_reference):
        leaves = [a.clone().requires_grad_() for a in inputs]
        (operator(*leaves) * direction).sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for native, reference in zip(*grads, strict=True):
        torch.testing.assert_close(native, reference, rtol=1e-4, atol=1e-4)


def test_a_threshold_of_zero_has_the_same_gradient_in_both_operators() -> None:
    if not wht.native_available():
        pytest.skip("the native operator is not compiled in")
    torch.manual_seed(2)
    x, gate = torch.randn(1, 16, 8, 8), torch.randn(8, 8, 16)
    grads = []
    for operator in (wht.wht_mix, wht.wht_mix_reference):
        threshold = torch.zeros(8, 8, 16, requires_grad=True)
        operator(x, gate, threshold).sum().backward()
        grads.append(threshold.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("needed", [(True, True, True), (True, False, False), (False, True, False)])
def test_gradients_of_gradients_are_those_of_the_reference(needed) -> None:
    if not wht.native_available():
        pytest.skip("the native operator is not compiled in")
    torch.manual_seed(0)
    given = [torch.randn(shape) for shape in ((1, 16, 8, 8), (8, 8, 16), (8, 8, 16))]

    def shared(function) -> tuple[torch.Tensor, ...]:
        """First derivatives of a block that is run twice, and whose gate depends on what it works on."""
        x, gate, threshold = (t.clone().requires_grad_() for t in given)
        gates = gate * (1 + x.mean())
        out = function(function(x, gates, threshold), gates, threshold)
        return torch.autograd.grad(out.square().sum(), (x, gate, threshold), create_graph=True)

    for mine, theirs in zip(shared(wht.wht_mix), shared(wht.wht_mix_reference), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)

    def second(function) -> list[torch.Tensor]:
        x, gate, threshold = (t.clone().requires_grad_(need) for t, need in zip(given, needed, strict=True))
        wanted = [t for t in (x, gate, threshold) if t.requires_grad]
        out = function(x * 1.0, gate, threshold)  # not a leaf
        first = torch.autograd.grad(out.square().sum(), wanted, create_graph=True)
        return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), wanted)]

    for mine, theirs in zip(second(wht.wht_mix), second(wht.wht_mix_reference), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)


def test_doubles_stay_doubles_and_empty_batches_empty() -> None:
    x, gate, threshold = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((1, 16, 5, 4), (4, 4, 16), (4, 4, 16))
    )
    whole, reference = (f(x, gate, threshold) for f in (wht.wht_mix, wht.wht_mix_reference))
    assert whole.dtype == torch.float64 and torch.equal(whole, reference)
    assert wht.wht_mix(torch.zeros(0, 16, 8, 8), gate.float(), threshold.float()).shape == (0, 16, 8, 8)


@pytest.mark.parametrize(
    "case", ["integers", "tiles of 2", "one threshold for all", "one gate for all channels"]
)
def test_what_the_native_transform_does_not_take_gets_the_reference(case) -> None:
    generator = torch.Generator().manual_seed(0)
    x, t = torch.randn(1, 16, 8, 8, generator=generator), 2 if case == "tiles of 2" else 4
    gate, threshold = torch.rand(t, t, 16, generator=generator), torch.full((t, t, 16), 0.1)
    x = (x * 4).int() if case == "integers" else x
    threshold = threshold[:1, :1] if case == "one threshold for all" else threshold
    gate = gate[..., :1] if case == "one gate for all channels" else gate
    torch.testing.assert_close(
        wht.wht_mix(x, gate, threshold), wht.wht_mix_reference(x, gate, threshold), rtol=0, atol=0
    )


def test_separable_form_is_two_one_dimensional_transforms() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 2, 8, 8))
    rg, rt, cg, ct = rng.standard_normal((4, 8, 2))
    h = wht.hadamard(8).double().numpy()

    def shrink(a: np.ndarray, limit: np.ndarray) -> np.ndarray:
        return np.sign(a) * np.maximum(np.abs(a) - np.abs(limit), 0)

    wanted = np.empty_like(x)
    for k in range(2):
        rows = shrink((x[0, k] @ h) * rg[:, k], rt[:, k]) @ h / 8
        wanted[0, k] = h @ shrink((h @ rows) * cg[:, k, None], ct[:, k, None]) / 8
    got = wht.wht_mix_separable(*(torch.from_numpy(a) for a in (x, rg, rt, cg, ct)))
    np.testing.assert_allclose(got.numpy(), wanted, atol=1e-5)  # the Hadamard matrix is exact


def test_spectral_linear_is_the_dense_matrix_that_it_stands_for() -> None:
    layer = spec.SpectralLinear(5, 7)
    module = Network((layer,), 5)[0]
    n = layer.size
    permutation = np.eye(n)[list(layer.permutation)]
    h = wht.hadamard(n).numpy() / n**0.5
    o, i, bias = (p.detach().numpy() for p in (module.out_scale, module.in_scale, module.bias))
    matrix = (np.diag(o) @ h @ np.diag(i) @ permutation)[:7, :5]
    x = torch.randn(1, 5, 2, 3)
    wanted = np.einsum("oi,nihw->nohw", matrix, x.numpy()) + bias[:, None, None]
    np.testing.assert_allclose(module(x).detach().numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["zenith-taesd-nano", "zenith-denoise", "taef2"])
def test_torch_compiles_a_model_as_one_graph(name: str) -> None:
    torch.compiler.reset()  # it compiles a function only so often, and all networks have the same
    config = zoo.build(name)
    for part, layers in config.parts.items():
        module = Network(layers, config.in_channels(part)).eval()
        x = torch.rand(1, config.in_channels(part), 32, 32)
        with torch.inference_mode():
            whole = torch.compile(module, backend="eager", fullgraph=True)(x)
            assert torch.allclose(whole, module(x), atol=1e-4)


STREAM = (
    PixelUnshuffle(2), Linear(8, 6), Relu(), ZenithBlock(6, 10, 4), Keep("a"), PixelUnshuffle(2),
    Linear(24, 8, bias=False), ZenithBlock(8, 6, 8, groups=2), ZenithBlock(8, 6, 4, eyes=False),
    Linear(8, 24), PixelShuffle(2), Add("a"), ZenithBlock(6, 4), Linear(6, 12), PixelShuffle(2),
)  # fmt: skip


def network_and_tensors(seed: int) -> tuple[torch.nn.Module, dict[str, np.ndarray]]:
    torch.manual_seed(seed)
    network = Network(STREAM, 2)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return network, {name: p.detach().numpy() for name, p in network.named_parameters()}


def loaded(layers: spec.Layers, tensors: dict[str, np.ndarray]) -> torch.nn.Module:
    network = Network(layers, 2)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    return network


@torch.no_grad()
def test_a_turned_network_does_what_the_network_does_with_the_turned_picture() -> None:
    network, tensors = network_and_tensors(0)
    x = torch.randn(2, 2, 64, 32)
    turned = loaded(STREAM, streams.turned(STREAM, tensors))
    there_and_back = torch.rot90(network(torch.rot90(x, 1, (2, 3))), -1, (2, 3))
    assert (there_and_back - network(x)).abs().max() > 0.1
    torch.testing.assert_close(turned(x), there_and_back, rtol=1e-5, atol=1e-5)
    four = tensors
    for _ in range(4):
        four = streams.turned(STREAM, four)
    for name, value in tensors.items():
        np.testing.assert_array_equal(four[name], value)


@torch.no_grad()
@pytest.mark.parametrize("count", [2, 3])
def test_streams_can_be_the_mean_of_networks(count: int) -> None:
    made = [network_and_tensors(seed) for seed in range(count)]
    layers = streams.in_streams(STREAM, count)
    whole = loaded(layers, streams.mean_of(STREAM, [tensors for _, tensors in made]))
    x = torch.randn(1, 2, 36, 52)
    mean = torch.stack([network(x) for network, _ in made]).mean(0)
    torch.testing.assert_close(whole(x), mean, rtol=1e-5, atol=1e-5)


EYES, SEPARABLE = ZenithBlock(4, 4), ZenithBlock(4, 4, 4, separable=True)


def tensors_of(layer: spec.Layer) -> dict[str, np.ndarray]:
    """Of a network that begins with this layer."""
    return {f"0.{name}": np.ones(shape) for name, shape in layer.params().items()}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: streams.in_streams((Linear(4, 4), Conv(4, 4), Linear(4, 4)), 2), "Conv"),
        (lambda: streams.in_streams((EYES, Linear(4, 4)), 2), "begin and end"),
        (lambda: streams.in_streams((Linear(4, 4), Linear(4, 4), Relu()), 2), "outside"),
        (lambda: streams.mean_of((Linear(4, 4), Linear(4, 4), EYES), [{}, {}]), "outside"),
        (lambda: streams.turned((Conv(4, 4),), tensors_of(Conv(4, 4))), "cannot be turned"),
        (lambda: streams.turned((PixelUnshuffle(2), Linear(16, 4, groups=2)), {}), "one group beside it"),
        (lambda: streams.turned((PixelUnshuffle(2), EYES), {}), "beside it"),
        (lambda: streams.turned((SEPARABLE,), tensors_of(SEPARABLE)), "rows before columns"),
        (lambda: streams.turned((EYES, PixelShuffle(2)), tensors_of(EYES)), "beside it"),
    ],
)
def test_what_has_no_streams_or_cannot_be_turned_is_refused(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
