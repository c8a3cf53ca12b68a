"""Models as data: the layer vocabulary, the frozen model config, and what follows from them.

A network is a tuple of the layers below, read top to bottom like a diagram. Nothing else
defines a model: the torch module (`zenith_ae.models.modules`), the native CPU plan
(`zenith_ae.engine`), parameter and MAC counts, the input region that exact tiling needs and
the tables in the docs are all derived from that tuple.

Layers are described for NCHW tensors of ``channels`` at some resolution; each one says

* ``out_channels(c)``   channels after it, given the channels before it (raises on a mismatch),
* ``scale``             output pixels per input pixel along one axis, as a Fraction,
* ``params()``          parameter name -> shape, in the order they are stored,
* ``macs()``            multiply-accumulates per *output* pixel (transforms count additions),
* ``reach(lo, hi)``     the input interval that the output interval [lo, hi) depends on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, gcd, lcm, prod
from typing import Any, ClassVar, Generic, TypeVar, cast

from ..errors import ConfigError

Shape = tuple[int, ...]
T = TypeVar("T")
# Files say anything: a shuffle is made of r^4 numbers for each channel.
MAX_SHUFFLE = 32


class cached_property(Generic[T]):  # noqa: N801 - stands in for one of that name
    """`functools.cached_property` without the lock that it has before Python 3.12.

    All instances of a class share that lock, and a process that is forked while a thread holds it waits
    for it for ever. Here two threads may both compute a value, which is then the same.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        if instance is None:
            return cast(T, self)
        value = instance.__dict__[self.compute.__name__] = self.compute(instance)
        return value


@dataclass(frozen=True)
class Layer:
    """Base of the vocabulary: by itself the identity on any number of channels."""

    scale: ClassVar[Fraction] = Fraction(1)

    def out_channels(self, channels: int) -> int:
        return channels

    def params(self) -> dict[str, Shape]:
        return {}

    def macs(self) -> int:
        return 0

    def reach(self, lo: int, hi: int) -> tuple[int, int]:
        return lo, hi

    def check_sizes(self) -> None:
        """Raise ConfigError for a field without sense, as a negative size: files say anything."""
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.type == "int" and (type(value) is not int or value < (f.name != "tile")):
                raise ConfigError(f"{self}: {f.name} must be a positive integer, got {value!r}")
            if f.name == "r" and value > MAX_SHUFFLE:
                raise ConfigError(f"{self}: {f.name} must be at most {MAX_SHUFFLE}, got {value!r}")
            if f.type == "float" and (type(value) not in (int, float) or not 1e-6 <= value <= 1e6):
                raise ConfigError(f"{self}: {f.name} must be a number in 1e-6..1e6, got {value!r}")
            if f.type == "bool" and type(value) is not bool:
                raise ConfigError(f"{self}: {f.name} must be true or false, got {value!r}")

    def __str__(self) -> str:
        """As one would write it: required fields by position, others only where they differ."""
        shown = (
            f"{value}" if f.default is dataclasses.MISSING else f"{f.name}={value}"
            for f in dataclasses.fields(self)
            if (value := getattr(self, f.name)) != f.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def _expect(self, channels: int, expected: int) -> None:
        if channels != expected:
            raise ConfigError(f"{self} expects {expected} channels, got {channels}")


@dataclass(frozen=True)
class Conv(Layer):
    """3x3 convolution, zero padding 1, stride 1 or 2."""

    cin: int
    cout: int
    stride: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        if self.stride not in (1, 2):
            raise ConfigError(f"Conv stride must be 1 or 2, got {self.stride}")

    @property
    def scale(self) -> Fraction:  # type: ignore[override]
        return Fraction(1, self.stride)

    def out_channels(self, channels: int) -> int:
        self._expect(channels, self.cin)
        return self.cout

    def params(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.cout, self.cin, 3, 3)}
        return shapes | ({"bias": (self.cout,)} if self.bias else {})

    def macs(self) -> int:
        return 9 * self.cin * self.cout

    def reach(self, lo: int, hi: int) -> tuple[int, int]:
        return lo * self.stride - 1, (hi - 1) * self.stride + 2


@dataclass(frozen=True)
class Linear(Layer):
    """1x1 convolution, optionally in ``groups``."""

    cin: int
    cout: int
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        if self.cin % self.groups or self.cout % self.groups:
            raise ConfigError(f"Linear {self.cin}->{self.cout} does not divide into {self.groups} groups")

    def out_channels(self, channels: int) -> int:
        self._expect(channels, self.cin)
        return self.cout

    def params(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.cout, self.cin // self.groups)}
        return shapes | ({"bias": (self.cout,)} if self.bias else {})

    def macs(self) -> int:
        return self.cin * self.cout // self.groups


@dataclass(frozen=True)
class Relu(Layer):
    """max(x, 0)."""


@dataclass(frozen=True)
class Clamp(Layer):
    """TAESD's soft limit on latents: tanh(x / limit) * limit."""

    limit: float = 3.0


@dataclass(frozen=True)
class ResBlock(Layer):
    """TAESD's block: relu(conv3x3 - relu - conv3x3 - relu - conv3x3 (x) + x), constant width.

    With ``pool`` (TAEF2) the input first gains a globally normalised term:
    x += conv1x1(relu(group_norm(conv1x1(x)))) with 4x width, 4 groups over the whole picture.
    """

    channels: int
    pool: bool = False

    GROUPS: ClassVar[int] = 4
    WIDTH: ClassVar[int] = 4

    def out_channels(self, channels: int) -> int:
        self._expect(channels, self.channels)
        return channels

    def params(self) -> dict[str, Shape]:
        c = self.channels
        shapes: dict[str, Shape] = {}
        for i in (0, 2, 4):
            shapes |= {f"conv.{i}.weight": (c, c, 3, 3), f"conv.{i}.bias": (c,)}
        if self.pool:
            wide = self.WIDTH * c
            shapes |= {
                "pool.0.weight": (wide, c, 1, 1),
                "pool.1.weight": (wide,),
                "pool.1.bias": (wide,),
                "pool.3.weight": (c, wide, 1, 1),
            }
        return shapes

    def macs(self) -> int:
        c2 = self.channels**2
        return 27 * c2 + (2 * self.WIDTH * c2 if self.pool else 0)

    def reach(self, lo: int, hi: int) -> tuple[int, int]:
        return lo - 3, hi + 3


@dataclass(frozen=True)
class ZenithBlock(Layer):
    """The Zenith block: local and spectral mixing between two 1x1 convolutions.

    ::

        u = relu(compress(x))                               1x1, channels -> hidden
        e = depthwise3x3(u)                                 local view ("eyes")
        s = IWHT(shrink(gate * WHT(u), |threshold|)) / T^2  T x T tiles, T = ``tile``
        y = x + expand(relu(e + s))                         1x1, hidden -> channels

    ``shrink(a, t) = sign(a) * max(|a| - t, 0)``. WHT is the unnormalised, naturally ordered
    Walsh-Hadamard transform of each channel's T x T pixel tile; tiles are aligned to the
    picture's origin and tiles that stick out are filled with zeros. ``tile=0`` leaves the
    spectral branch out, ``eyes=False`` the local one. ``separable`` replaces the 2-D transform
    by one along rows and then one along columns, each with its own gate and threshold of shape
    (T, hidden) and its own factor 1 / T.
    """

    channels: int
    hidden: int
    tile: int = 0
    eyes: bool = True
    separable: bool = False
    groups: int = 1

    def __post_init__(self) -> None:
        if self.tile not in (0, 4, 8, 16):
            raise ConfigError(f"ZenithBlock tile must be 0, 4, 8 or 16, got {self.tile}")
        if not self.tile and not self.eyes:
            raise ConfigError("ZenithBlock needs a tile, eyes, or both")
        if self.channels % self.groups or self.hidden % self.groups:
            raise ConfigError(
                f"ZenithBlock {self.channels}/{self.hidden} does not divide into {self.groups} groups"
            )

    def out_channels(self, channels: int) -> int:
        self._expect(channels, self.channels)
        return channels

    def params(self) -> dict[str, Shape]:
        c, m, t, g = self.channels, self.hidden, self.tile, self.groups
        shapes: dict[str, Shape] = {"compress.weight": (m, c // g), "compress.bias": (m,)}
        if self.eyes:
            shapes |= {"eyes.weight": (m, 3, 3), "eyes.bias": (m,)}
        if t and self.separable:
            for axis in ("row", "column"):
                shapes |= {f"{axis}_gate": (t, m), f"{axis}_threshold": (t, m)}
        elif t:
            shapes |= {"gate": (t, t, m), "threshold": (t, t, m)}
        return shapes | {"expand.weight": (c, m // g), "expand.bias": (c,)}

    def macs(self) -> int:
        dense = 2 * self.channels * self.hidden // self.groups
        local = 9 * self.hidden if self.eyes else 0
        # A tile costs 2 log2(T) additions a pixel in each direction, and the gate.
        spectral = self.hidden * (4 * (self.tile.bit_length() - 1) + 1) if self.tile else 0
        return dense + local + spectral

    def reach(self, lo: int, hi: int) -> tuple[int, int]:
        near = (lo - 1, hi + 1) if self.eyes else (lo, hi)
        if not self.tile:
            return near
        t = self.tile
        return min(near[0], lo // t * t), max(near[1], -(-hi // t) * t)


@dataclass(frozen=True)
class SpectralLinear(Layer):
    """Dense channel mixing without a dense matrix: scale, permute, FWHT, scale (experimental).

    ``n`` is the next power of two >= max(cin, cout); the input is padded with zeros to n:
    y = (out_scale * FWHT(in_scale * x[permutation]) / sqrt(n))[:cout] + bias, where
    permutation[i] = i * 5 mod n spreads neighbouring channels.
    """

    cin: int
    cout: int

    @property
    def size(self) -> int:
        return 1 << (max(self.cin, self.cout, 2) - 1).bit_length()

    @property
    def permutation(self) -> tuple[int, ...]:
        return tuple(i * 5 % self.size for i in range(self.size))

    def out_channels(self, channels: int) -> int:
        self._expect(channels, self.cin)
        return self.cout

    def params(self) -> dict[str, Shape]:
        return {"in_scale": (self.size,), "out_scale": (self.size,), "bias": (self.cout,)}

    def macs(self) -> int:
        return self.size * (self.size.bit_length() - 1) + 2 * self.size


@dataclass(frozen=True)
class PixelUnshuffle(Layer):
    """Space to depth: (C, H, W) -> (C r^2, H / r, W / r), channel order of torch."""

    r: int

    @property
    def scale(self) -> Fraction:  # type: ignore[override]
        return Fraction(1, self.r)

    def out_channels(self, channels: int) -> int:
        return channels * self.r**2

    def reach(self, lo: int, hi: int) -> tuple[int, int]:
        return lo * self.r, hi * self.r


@dataclass(frozen=True)
class PixelShuffle(Layer):
    """Depth to space: (C r^2, H, W) -> (C, H r, W r), channel order of torch."""

    r: int

    @property
    def scale(self) -> Fraction:  # type: ignore[override]
        return Fraction(self.r)

    def out_channels(self, channels: int) -> int:
        if channels % self.r**2:
            raise ConfigError(f"{self} needs a multiple of {self.r**2} channels, got {channels}")
        return channels // self.r**2

    def reach(self, lo: int, hi: int) -> tuple[int, int]:
        return lo // self.r, -(-hi // self.r)


@dataclass(frozen=True)
class Upsample(Layer):
    """Nearest-neighbour enlargement by 2."""

    scale: ClassVar[Fraction] = Fraction(2)

    def reach(self, lo: int, hi: int) -> tuple[int, int]:
        return lo // 2, -(-hi // 2)


@dataclass(frozen=True)
class Keep(Layer):
    """Remember the activation under ``name``."""

    name: str


@dataclass(frozen=True)
class Add(Layer):
    """Add the activation kept under ``name`` (same channels and resolution)."""

    name: str


Layers = tuple[Layer, ...]
LAYERS: dict[str, type[Layer]] = {
    cls.__name__: cls
    for cls in (
        Add, Clamp, Conv, Keep, Linear, PixelShuffle, PixelUnshuffle, Relu, ResBlock,
        SpectralLinear, Upsample, ZenithBlock,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One row of a layer table: a layer with the shapes around it."""

    index: int
    layer: Layer
    cin: int
    cout: int
    scale: Fraction  # resolution after the layer, relative to the network's input
    params: int
    macs: Fraction  # per pixel of the network's input


def trace(layers: Layers, in_channels: int) -> Iterator[Step]:
    """Walk the layers, checking that channels and skips fit.

    Raises
    ------
    ConfigError
        Where a layer does not fit its input, naming its index.
    """
    channels, scale = in_channels, Fraction(1)
    kept: dict[str, tuple[int, Fraction]] = {}
    for index, layer in enumerate(layers):
        cin = channels
        try:
            channels = layer.out_channels(cin)
        except ConfigError as error:
            raise ConfigError(f"layer {index}: {error}") from None
        scale *= layer.scale
        if isinstance(layer, Keep):
            kept[layer.name] = (channels, scale)
        elif isinstance(layer, Add) and (found := kept.get(layer.name)) != (channels, scale):
            what = (
                "nothing was kept"
                if found is None
                else "{} channels at {} of the size were kept".format(*found)
            )
            raise ConfigError(
                f"layer {index}: {what} as {layer.name!r}, where {channels} at {scale} of the size are needed"
            )
        params = sum(prod(shape) for shape in layer.params().values())
        yield Step(index, layer, cin, channels, scale, params, layer.macs() * scale**2)


def parameter_count(layers: Layers) -> int:
    """Number of trained values."""
    return sum(prod(shape) for layer in layers for shape in layer.params().values())


def mac_count(layers: Layers, in_channels: int, height: int, width: int) -> int:
    """Multiply-accumulates for an input of height x width."""
    return ceil(sum(step.macs for step in trace(layers, in_channels)) * height * width)


def out_scale(layers: Layers) -> Fraction:
    """Output pixels per input pixel along one axis."""
    scale = Fraction(1)
    for layer in layers:
        scale *= layer.scale
    return scale


def alignment(layers: Layers, grid: Callable[[Layer], int] = lambda layer: 1) -> int:
    """The input step at which a tile may start so that every transform meets the same pixels.

    The least common multiple, in input pixels, of every resolution change, of every spectral tile on
    the way, and of what ``grid`` adds: a step in pixels after a layer.
    """
    scale, step = Fraction(1), Fraction(1)
    for layer in layers:
        scale *= layer.scale
        tile = layer.tile if isinstance(layer, ZenithBlock) and layer.tile else 1
        need = lcm(tile, grid(layer)) / scale
        step = Fraction(lcm(step.numerator, need.numerator), gcd(step.denominator, need.denominator))
    return ceil(step)


def is_global(layer: Layer) -> bool:
    """True where every output depends on the whole picture, so that tiling must not cut it."""
    return isinstance(layer, ResBlock) and layer.pool


def required_input(
    layers: Layers, lo: int, hi: int,
    reach: Callable[[Layer, int, int], tuple[int, int]] = lambda layer, lo, hi: layer.reach(lo, hi),
) -> tuple[int, int]:  # fmt: skip
    """The input interval [lo', hi') that the output interval [lo, hi) depends on, unclipped.

    Global layers must have been split off before (`is_global`). ``reach`` stands for `Layer.reach` where
    an engine computes a layer in a way that needs more.
    """
    kept: dict[str, tuple[int, int]] = {}
    for layer in reversed(layers):
        if isinstance(layer, Add):
            seen = kept.get(layer.name, (lo, hi))
            kept[layer.name] = min(lo, seen[0]), max(hi, seen[1])
        elif isinstance(layer, Keep):
            seen = kept.pop(layer.name, (lo, hi))
            lo, hi = min(lo, seen[0]), max(hi, seen[1])
        else:
            lo, hi = reach(layer, lo, hi)
    return lo, hi


@dataclass(frozen=True)
class ModelConfig:
    """A model: named parts, each a list of layers.

    An ``autoencoder`` has the parts ``encoder`` (RGB in [0, 1] -> latents) and ``decoder``
    (latents -> RGB in [0, 1], not clipped). A ``denoiser`` has ``denoiser`` (RGB and a plane of
    noise standard deviation, both in units of [0, 1] -> what to add to the picture) and
    optionally ``estimator`` (RGB -> standard deviation of the noise at 1/8 of the resolution). It may also
    have an expert: ``white``, which is run in place of ``denoiser`` where the noise is independent from
    pixel to pixel, and ``sorter``, which says where it is (RGB -> log odds at 1/8 of the resolution).

    Either part of an autoencoder may be missing (an encoder-only or decoder-only file).
    """

    name: str
    kind: str
    parts: Mapping[str, Layers]
    latent_channels: int = 0
    description: str = ""

    PARTS: ClassVar[dict[str, tuple[str, ...]]] = {
        "autoencoder": ("encoder", "decoder"), "denoiser": ("denoiser", "white", "sorter", "estimator"),
    }  # fmt: skip
    IN_CHANNELS: ClassVar[dict[str, int]] = {
        "encoder": 3, "denoiser": 4, "white": 4, "sorter": 3, "estimator": 3,
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.kind not in self.PARTS:
            raise ConfigError(f"{self.name}: kind must be autoencoder or denoiser, got {self.kind!r}")
        expected = {"encoder": self.latent_channels, "sorter": 1, "estimator": 1}
        for part, layers in self.parts.items():
            if part not in self.PARTS[self.kind]:
                raise ConfigError(f"{self.name}: unknown part {part!r} of kind {self.kind}")
            if not layers:
                raise ConfigError(f"{self.name}.{part} has no layers")
            for layer in layers:
                layer.check_sizes()
            *_, last = trace(layers, self.in_channels(part))
            if last.cout != (needed := expected.get(part, 3)):
                raise ConfigError(f"{self.name}.{part} ends with {last.cout} channels, needs {needed}")
        if not self.parts or (self.kind == "denoiser" and "denoiser" not in self.parts):
            raise ConfigError(f"{self.name}: has no part that a model of kind {self.kind} needs")
        if ("white" in self.parts) != ("sorter" in self.parts):
            raise ConfigError(f"{self.name}: white and sorter are of use together only")
        pixels = self._pixels_per_latent()
        if pixels.denominator != 1:
            raise ConfigError(f"{self.name}: a latent must stand for whole pixels, not {pixels}")
        scales = {"decoder": pixels} | dict.fromkeys(("denoiser", "white"), Fraction(1))
        scales |= dict.fromkeys(("sorter", "estimator"), Fraction(1, 8))
        for part, scale in scales.items():
            if part in self.parts and (found := out_scale(self.parts[part])) != scale:
                raise ConfigError(f"{self.name}.{part} makes {found} of its input's size, needs {scale}")

    def in_channels(self, part: str) -> int:
        return self.latent_channels if part == "decoder" else self.IN_CHANNELS[part]

    def takes_plane(self, part: str) -> bool:
        """Whether a part wants the noise of every pixel beside the picture."""
        return self.IN_CHANNELS.get(part) == 4

    @cached_property
    def factor(self) -> int:
        """Pixels per latent along one axis (1 for a denoiser)."""
        return int(self._pixels_per_latent())

    def _pixels_per_latent(self) -> Fraction:
        if "encoder" in self.parts:
            return 1 / out_scale(self.parts["encoder"])
        return out_scale(self.parts.get("decoder", ()))

    @cached_property
    def whole_tiles(self) -> dict[str, int]:
        """For each part the input size whose multiples cut no spectral tile, 1 where it has none."""
        return {
            part: alignment(layers)
            if any(isinstance(layer, ZenithBlock) and layer.tile for layer in layers)
            else 1
            for part, layers in self.parts.items()
        }

    def params(self) -> dict[str, Shape]:
        """Every stored tensor: ``part.layer_index.parameter`` -> shape."""
        return {
            f"{part}.{i}.{name}": shape
            for part, layers in self.parts.items()
            for i, layer in enumerate(layers)
            for name, shape in layer.params().items()
        }

    def to_json(self) -> str:
        parts = {
            part: [[type(layer).__name__, _changed_fields(layer)] for layer in layers]
            for part, layers in self.parts.items()
        }
        return json.dumps(
            {
                "name": self.name,
                "kind": self.kind,
                "latent_channels": self.latent_channels,
                "description": self.description,
                "parts": parts,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """Inverse of `to_json`; raises ConfigError on anything that is not a valid config."""
        try:
            raw = json.loads(text)
            parts = {
                str(part): tuple(LAYERS[kind](**fields) for kind, fields in layers)
                for part, layers in raw["parts"].items()
            }
            return cls(
                str(raw["name"]),
                str(raw["kind"]),
                parts,
                int(raw["latent_channels"]),
                str(raw["description"]),
            )
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"not a model config: {type(error).__name__}: {error}") from None


def _changed_fields(layer: Layer) -> dict[str, Any]:
    fields = dataclasses.fields(layer)
    return {f.name: value for f in fields if (value := getattr(layer, f.name)) != f.default}
