"""The named architectures, each a list that reads like its own diagram.

Sources: TAESD, https://github.com/madebyollin/taesd (architecture of the vanilla family,
including TAEF2's normalised pool stage); the Zenith layouts are this project's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import ConfigError
from .spec import (
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
from .streams import in_streams


def zenith(channels: int, hidden: int, count: int, spectral_every: int = 0, tile: int = 8) -> Layers:
    """``count`` Zenith blocks, every ``spectral_every``-th one with Walsh-Hadamard mixing."""
    return tuple(
        ZenithBlock(channels, hidden, tile if spectral_every and i % spectral_every == 0 else 0)
        for i in range(1, count + 1)
    )


def autoencoder(name: str, z: int, encoder: Layers, decoder: Layers, description: str) -> ModelConfig:
    return ModelConfig(name, "autoencoder", {"encoder": encoder, "decoder": decoder}, z, description)


def vanilla_taesd(name: str, latent_channels: int, pool: bool = False) -> ModelConfig:
    """TAESD; layer indices are those of the original ``nn.Sequential``, so keys carry over."""
    z, block = latent_channels, ResBlock(64)
    middle = ResBlock(64, pool)

    def down() -> Conv:
        return Conv(64, 64, stride=2, bias=False)

    def up() -> Layers:
        return Upsample(), Conv(64, 64, bias=False)

    encoder: Layers = (
        Conv(3, 64), block,
        down(), block, block, block,
        down(), block, block, block,
        down(), middle, middle, middle,
        Conv(64, z),
    )  # fmt: skip
    decoder: Layers = (
        Clamp(), Conv(z, 64), Relu(),
        middle, middle, middle, *up(),
        block, block, block, *up(),
        block, block, block, *up(),
        block, Conv(64, 3),
    )  # fmt: skip
    return autoencoder(name, z, encoder, decoder, "Vanilla TAESD architecture, for existing weights")


def zenith_taesd(
    name: str, latent_channels: int, pool: bool = False, channels: int = 128, blocks: tuple[int, int] = (5, 4)
) -> ModelConfig:
    """Hybrid: TAESD itself at 1/4 and 1/8, Zenith blocks on unshuffled pixels for the rest.

    At full and half resolution a TAESD does seven eighths of its work. Its inner layers are the
    same here, so that a hybrid can start from its weights. ``blocks`` is how many blocks of
    ``channels`` the encoder and the decoder have.
    """
    vanilla = vanilla_taesd(name, latent_channels, pool)
    c, (down, up) = channels, blocks
    encoder: Layers = (
        PixelUnshuffle(2), Conv(12, c), *zenith(c, c, down), Conv(c, 64, stride=2, bias=False),
        *vanilla.parts["encoder"][7:],
    )  # fmt: skip
    decoder: Layers = (
        *vanilla.parts["decoder"][:11],
        Linear(64, 4 * c), PixelShuffle(2), *zenith(c, c, up), Conv(c, 12), PixelShuffle(2),
    )  # fmt: skip
    text = "TAESD at 1/4 and 1/8, Zenith blocks on unshuffled pixels for the rest"
    return autoencoder(name, latent_channels, encoder, decoder, text)


def zenith_taef2_nano(name: str, latent_channels: int) -> ModelConfig:
    """Hybrid: TAEF2 itself at 1/8, narrow Zenith blocks for the rest: live previews."""
    vanilla = vanilla_taesd(name, latent_channels, pool=True)
    encoder: Layers = (
        PixelUnshuffle(4), Linear(48, 64), *zenith(64, 64, 3), Conv(64, 64, stride=2, bias=False),
        *vanilla.parts["encoder"][11:],
    )  # fmt: skip
    decoder: Layers = (
        *vanilla.parts["decoder"][:6],
        Linear(64, 256), PixelShuffle(2), *zenith(64, 64, 3),
        Linear(64, 128), PixelShuffle(2), *zenith(32, 32, 2), Linear(32, 12), PixelShuffle(2),
    )  # fmt: skip
    text = "TAEF2 at 1/8, narrow Zenith blocks for the rest, for live previews"
    return autoencoder(name, latent_channels, encoder, decoder, text)


def zenith_taesd_lite(name: str, latent_channels: int) -> ModelConfig:
    """Only 1x1 convolutions, pixel (un)shuffle and Zenith blocks; most work at 1/8."""
    z = latent_channels
    encoder: Layers = (
        PixelUnshuffle(2), Linear(12, 64), *zenith(64, 32, 1),
        PixelUnshuffle(2), Linear(256, 128), *zenith(128, 64, 3),
        PixelUnshuffle(2), Linear(512, 384), *zenith(384, 192, 6, spectral_every=3),
        Linear(384, z),
    )  # fmt: skip
    decoder: Layers = (
        Clamp(), Linear(z, 384), Relu(), *zenith(384, 192, 8, spectral_every=4),
        Linear(384, 512), PixelShuffle(2), *zenith(128, 64, 3),
        Linear(128, 256), PixelShuffle(2), *zenith(64, 32, 1),
        Linear(64, 12), PixelShuffle(2),
    )  # fmt: skip
    return autoencoder(name, z, encoder, decoder, "1x1 convolutions, pixel shuffles and Zenith blocks only")


def zenith_4ch_lite(name: str, latent_channels: int) -> ModelConfig:
    """Lite with bounded latents of its own, which 8 bits hold: for compact storage."""
    parts = zenith_taesd_lite(name, latent_channels).parts
    encoder, decoder = (*parts["encoder"], Clamp()), parts["decoder"]
    text = "Lite with bounded latents of its own, for compact storage"
    return autoencoder(name, latent_channels, encoder, decoder, text)


def zenith_taesd_nano(name: str, latent_channels: int) -> ModelConfig:
    """Everything at 1/8 resolution: live previews."""
    z = latent_channels
    encoder: Layers = (
        PixelUnshuffle(8), Linear(192, 192), *zenith(192, 192, 3, spectral_every=3),
        Linear(192, z),
    )  # fmt: skip
    decoder: Layers = (
        Clamp(), Linear(z, 256), Relu(), *zenith(256, 128, 4, spectral_every=4),
        Linear(256, 192), PixelShuffle(8),
    )  # fmt: skip
    return autoencoder(name, z, encoder, decoder, "Everything at 1/8 resolution, for live previews")


def zenith_taesd_spectral(name: str, latent_channels: int) -> ModelConfig:
    """Lite with spectral channel mixing in place of every 1x1: experimental."""
    z = latent_channels

    def mix(channels: int, count: int) -> Layers:
        layers: list = []
        for i in range(count):
            skip = f"{channels}.{i}"
            layers += [Keep(skip), SpectralLinear(channels, channels), Relu(),
                       SpectralLinear(channels, channels), Add(skip)]  # fmt: skip
        return tuple(layers)

    encoder: Layers = (
        PixelUnshuffle(2), SpectralLinear(12, 64), *mix(64, 1),
        PixelUnshuffle(2), SpectralLinear(256, 128), *mix(128, 2),
        PixelUnshuffle(2), SpectralLinear(512, 256), *mix(256, 4),
        Linear(256, z),
    )  # fmt: skip
    decoder: Layers = (
        Clamp(), Linear(z, 256), Relu(), *mix(256, 4),
        SpectralLinear(256, 512), PixelShuffle(2), *mix(128, 2),
        SpectralLinear(128, 256), PixelShuffle(2), *mix(64, 1),
        Linear(64, 12), PixelShuffle(2),
    )  # fmt: skip
    return autoencoder(name, z, encoder, decoder, "Channel mixing by permute, scale and FWHT (experimental)")


def denoising_unet(
    channels: tuple[int, int, int],
    blocks: tuple[int, int, int],
    spectral_every: tuple[int, int, int] = (0, 0, 0),
) -> Layers:
    """U-net on unshuffled pixels, from a picture and its noise level to what is to be added.

    Parameters
    ----------
    channels : at 1/2, 1/4 and 1/8 of the resolution.
    blocks : how many there, at 1/2 and 1/4 on the way down and as many on the way up.
    spectral_every : every how many-th block there has Walsh-Hadamard mixing, 0 for none. Tiles are of 8 x 8
        features, at 1/8 of 4 x 4.
    """
    (a, b, c), (half, quarter, eighth), every = channels, blocks, spectral_every
    return (
        PixelUnshuffle(2), Linear(16, a), *zenith(a, a, half, every[0]), Keep("half"),
        PixelUnshuffle(2), Linear(4 * a, b), *zenith(b, b, quarter, every[1]), Keep("quarter"),
        PixelUnshuffle(2), Linear(4 * b, c), *zenith(c, c, eighth, every[2], tile=4),
        Linear(c, 4 * b), PixelShuffle(2), Add("quarter"), *zenith(b, b, quarter, every[1]),
        Linear(b, 4 * a), PixelShuffle(2), Add("half"), *zenith(a, a, half, every[0]),
        Linear(a, 12), PixelShuffle(2),
    )  # fmt: skip


def zenith_denoise(
    name: str,
    blocks: tuple[int, int, int] = (3, 6, 12),
    spectral_every: tuple[int, int, int] = (0, 0, 0),
) -> ModelConfig:
    """U-net of Zenith blocks on unshuffled pixels, and a small noise estimator at 1/8 to 1/32.

    Where a picture is busy only its calmer surroundings tell how noisy it is, so the estimator sees several
    hundred pixels.
    """
    b = 96
    denoiser = denoising_unet((48, b, 192), blocks, spectral_every)
    estimator: Layers = (
        PixelUnshuffle(8), Linear(192, b), Relu(), *zenith(b, b, 2), Keep("eighth"),
        PixelUnshuffle(2), Linear(4 * b, b), *zenith(b, b, 2), Keep("sixteenth"),
        PixelUnshuffle(2), Linear(4 * b, b), *zenith(b, b, 3, spectral_every=3, tile=4),
        Linear(b, 4 * b), PixelShuffle(2), Add("sixteenth"), *zenith(b, b, 1),
        Linear(b, 4 * b), PixelShuffle(2), Add("eighth"), *zenith(b, b, 1),
        Linear(b, 1),
    )  # fmt: skip
    return ModelConfig(
        name, "denoiser", {"denoiser": denoiser, "estimator": estimator}, 0,
        "Restoration U-net of Zenith blocks with noise-level input and estimator",
    )  # fmt: skip


def zenith_denoise_fast(name: str) -> ModelConfig:
    """zenith-denoise with two fifths as many blocks."""
    config = zenith_denoise(name, blocks=(1, 3, 4))
    return replace(config, description="zenith-denoise with two fifths as many blocks")


def zenith_denoise_large(name: str) -> ModelConfig:
    """zenith-denoise in two streams, which can begin as the mean of two of its weights."""
    config = zenith_denoise(name)
    parts = {**config.parts, "denoiser": in_streams(config.parts["denoiser"], 2)}
    return replace(config, parts=parts, description="zenith-denoise in two streams, for quality")


def zenith_deblur(name: str) -> ModelConfig:
    """zenith-denoise with two thirds as many blocks, some of them with transforms."""
    config = zenith_denoise(name, blocks=(2, 4, 8), spectral_every=(2, 4, 3))
    return replace(config, description="zenith-denoise with two thirds as many blocks, and transforms")


def with_expert(config: ModelConfig, expert: Layers = ()) -> ModelConfig:
    """A denoiser's config with an expert for white noise, and what tells where to use it.

    One network that knows the noise of cameras and of JPEGs is worse at noise that is independent from
    pixel to pixel than one that knows only that, and a picture has one kind of noise. So there is a network
    for either, and a picture takes the time of one. ``expert`` are its layers, by default those of the named
    denoisers' own, or the denoiser's.
    """
    sorter: Layers = (PixelUnshuffle(8), Linear(192, 48), Relu(), *zenith(48, 48, 2), Linear(48, 1))
    denoiser = config.parts["denoiser"]
    white = expert or denoiser
    if not expert and denoiser == zenith_denoise_large("").parts["denoiser"]:
        white = denoising_unet((64, 160, 320), (3, 6, 10))
    return replace(config, parts={"denoiser": denoiser, "white": white, "sorter": sorter, **config.parts})


def conv_baseline(name: str) -> ModelConfig:
    """A denoiser of plain strided convolutions with about the parameters of zenith-deblur."""
    denoiser: Layers = (
        Conv(4, 60), Relu(),
        Conv(60, 102, stride=2), Relu(), Conv(102, 102), Relu(),
        Conv(102, 198, stride=2), Relu(), Conv(198, 198), Relu(),
        Upsample(), Conv(198, 102), Relu(), Conv(102, 102), Relu(),
        Upsample(), Conv(102, 60), Relu(),
        Conv(60, 3),
    )  # fmt: skip
    return ModelConfig(
        name, "denoiser", {"denoiser": denoiser}, 0, "Plain strided convolutions, for comparisons"
    )


#: Name -> what makes its config, of a model's name and its latent channels, and how many these usually are;
#: denoisers have none.
ARCHITECTURES: dict[str, tuple[Callable[..., ModelConfig], int]] = {
    "taesd": (vanilla_taesd, 4),
    "taesdxl": (vanilla_taesd, 4),
    "taesd3": (vanilla_taesd, 16),
    "taef1": (vanilla_taesd, 16),
    "taef2": (lambda name, z: vanilla_taesd(name, z, pool=True), 32),
    "zenith-taesd": (zenith_taesd, 4),
    "zenith-taef2": (lambda name, z: zenith_taesd(name, z, pool=True), 32),
    "zenith-taef2-lite": (lambda name, z: zenith_taesd(name, z, pool=True, channels=64, blocks=(4, 3)), 32),
    "zenith-taef2-nano": (zenith_taef2_nano, 32),
    "zenith-taesd-lite": (zenith_taesd_lite, 4),
    "zenith-4ch-lite": (zenith_4ch_lite, 4),
    "zenith-taesd-nano": (zenith_taesd_nano, 4),
    "zenith-taesd-spectral": (zenith_taesd_spectral, 4),
    "zenith-denoise": (zenith_denoise, 0),
    "zenith-denoise-fast": (zenith_denoise_fast, 0),
    "zenith-denoise-large": (zenith_denoise_large, 0),
    "zenith-deblur": (zenith_deblur, 0),
    "conv-baseline": (conv_baseline, 0),
}


def build(architecture: str, latent_channels: int | None = None, name: str | None = None) -> ModelConfig:
    """The config of a named architecture.

    Parameters
    ----------
    architecture : a key of `ARCHITECTURES`.
    latent_channels : channels of the latent space; default is the architecture's own.
    name : the model's name, if it differs from the architecture's (a set of weights).

    Raises
    ------
    ConfigError
        If there is no such architecture, or the number of channels is no positive whole number or that of a
        denoiser.
    """
    if architecture not in ARCHITECTURES:
        raise ConfigError(f"no architecture {architecture!r}; there are {', '.join(ARCHITECTURES)}")
    make, default = ARCHITECTURES[architecture]
    if latent_channels is not None and not default:
        raise ConfigError(f"{architecture} is a denoiser, which has no latent channels")
    z = default if latent_channels is None else latent_channels
    if default and (not isinstance(z, int) or z < 1):
        raise ConfigError(f"latent_channels must be a positive whole number, got {z!r}")
    return make(name or architecture, *([z] if default else []))
