"""Autoencoder and denoiser: pictures of any size and kind in, the same kind out.

>>> import zenith_ae
>>> ae = zenith_ae.load("zenith-taef2-lite")                        # doctest: +SKIP
>>> z = ae.encode(image); rgb = ae.decode(z)                        # doctest: +SKIP
>>> clean = zenith_ae.load("zenith-denoise")(image, sigma="auto")   # doctest: +SKIP
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .batches import (
    CHANNELS,
    Batch,
    as_batch,
    check_layout,
    colour_groups,
    continued,
    from_rgb,
    is_compiling,
    is_dense,
    is_tensor,
    orient,
    tensor_like,
    to_rgb,
    uncompiled,
    unorient,
    without_torch,
)
from .changes import Change, changed, energy, limit
from .engine import Engine, Pieces, Progress, Tile, check_tile, create, within
from .engine.base import OutputType
from .errors import ConfigError, LatentError, in_short
from .latents import LatentFile, check_latents, numbers_of
from .models.spec import ModelConfig, alignment, cached_property
from .noise_levels import (
    bring_to_measured,
    clipped_cells,
    drawn_cells,
    enlarged,
    enough,
    even_out_hidden,
    is_grey,
    is_shared,
    is_two_tone,
    jpeg_step,
    make_even,
    only_channel,
    raise_to_jpeg,
    without_texture,
)
from .weights import Weights, load_weights

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from .images import Picture

    #: What comes back as a Pillow image, and what as the same kind that it was.
    ForPillow = str | os.PathLike[str] | Image.Image
    Kind = TypeVar("Kind", bound=NDArray[Any] | torch.Tensor | Picture)

Output = Literal["uint8", "uint16", "float"]

#: How many orientations of a picture a denoiser can take the mean of.
PASSES = (1, 2, 4, 8)
#: Unit of the noise estimator's output, as a standard deviation in [0, 1] units, and its limit.
SIGMA_UNIT = 25 / 255
SIGMA_LIMIT = 3.0
# By how much the odds for the expert have to exceed even ones, at these estimated levels, in colour: JPEGs of
# loud noise with full colour look like white noise, of which the odds are higher there, and what the expert
# makes of them is worse by more than it is better elsewhere.
_SURE = (13.0, 14.0, 25.0, 35.0), (0.0, 1.5, 1.5, 2.0)
# From so many times the estimated level on a told one is taken for the wish for a stronger effect.
_TOLD_MORE = 1.25
# White noise that is less than so many times the step by which a JPEG was rounded is white no more.
_WHITE_OF_STEP = 4.5
# From this level (0..255) on what is not white is tried at such a share of it too.
_MOTTLED = 9.0
_MOTTLED_SHARE = 0.55
# Noise that is mottled loses more than so many times the energy there; other noise hardly ever as much as at
# its own level.
_MOTTLED_TIMES = 1.1
# It is tried in so many rows and columns of places of so many pixels a side.
_PLACES = (2, 2)
_PLACE = 96
# Pictures of a batch go through a network together up to this many pixels.
_PIXELS_AT_ONCE = 2**22
# By so many pixels a picture is moved for the network for all kinds of harm, whose own grid is of 8 pixels,
# as a JPEG's is. In training these lay any way to each other, in a file they are one, and a network that sees
# its grid in the noise takes some of that for content: 0.4 dB of real camera noise.
OFF_GRID = 2
# Symmetries of the square in the order in which `Denoiser` takes them for its passes: the picture as it
# is, turned by 180 degrees, by 90 either way, then mirrored. On validation photographs at sigma 15 to 50 a
# half turn brings 0.089 dB and a mirror 0.075 to 0.080, the four turns 0.134, other fours 0.122 to 0.127.
_ORIENTATIONS = (0, 3, 5, 6, 1, 2, 4, 7)
#: About what share of the work of one pass the estimate of a level is, and of that the estimator.
_ESTIMATE = 0.15
_ESTIMATOR = 0.8
# What type checkers may know: what a name loads. A file may hold either.
ShippedDenoiser = Literal["zenith-denoise", "zenith-denoise-fast", "zenith-denoise-large", "zenith-deblur"]
ShippedAutoencoder = Literal["zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano", "zenith-4ch-lite"]


@overload
def load(
    model: ShippedDenoiser, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto",
    threads: int | None = None,
) -> Denoiser: ...  # fmt: skip
@overload
def load(
    model: ShippedAutoencoder, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto",
    threads: int | None = None,
) -> Autoencoder: ...  # fmt: skip
@overload
def load(
    model: str | os.PathLike[str] | Weights, device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto", threads: int | None = None,
) -> Any: ...  # fmt: skip
def load(
    model: str | os.PathLike[str] | Weights,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    threads: int | None = None,
) -> Autoencoder | Denoiser:
    """Load a model.

    Parameters
    ----------
    model : the name of a model that comes with the package ("zenith-denoise"), a weights file, a
        folder in diffusers layout, or `zenith_ae.weights.Weights`.
    device : "auto" or "cpu" (the native engine), "torch" (torch on the CPU), "cuda", "cuda:1", "mps", or a
        ``torch.device``.
    dtype : "float32" computes exactly; "bf16" stores activations and matrices in half the memory and
        needs a CPU with instructions for it (level avx512bf16 or amx); "int16" multiplies rounded integers,
        close to exact (level avx2vnni or avx512vnni, or avx2 where the CPU is fast at it); "auto" is the
        fastest. Or a ``torch.dtype`` of these.
    threads : number of CPU threads of the native engine, of which 256 work at most; default
        ``ZENITH_NUM_THREADS`` or the usable cores. An error with torch's devices, which have their own.

    Returns
    -------
    `Autoencoder` or `Denoiser`, as the model is.

    Raises
    ------
    WeightsError
        If the weights are missing, damaged or of no known architecture.
    ConfigError
        If ``device``, ``dtype`` or ``threads`` has no such value here.
    IsaError, MissingDependencyError
        If ``ZENITH_ISA`` asks for what this CPU has not, or ``device`` for torch where there is none.
    """
    weights = model if isinstance(model, Weights) else load_weights(model)
    kind = Autoencoder if weights.config.kind == "autoencoder" else Denoiser
    return kind(weights, device=device, dtype=dtype, threads=threads)


class _Pipeline:
    kind = ""

    def __init__(
        self,
        weights: Weights,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        threads: int | None = None,
    ) -> None:
        if not isinstance(weights, Weights):
            kind = type(weights).__name__
            raise ConfigError(
                f"this takes Weights, not {kind}; zenith_ae.load takes the name of a model or file"
            )
        if weights.config.kind != self.kind:
            raise ConfigError(
                f"{weights.config.name} is a model of kind {weights.config.kind}, not {self.kind}"
            )
        self.config: ModelConfig = weights.config
        #: 16 hexadecimal digits that identify config and weights.
        self.hash: str = weights.hash
        #: The same for models that read each other's latents (`zenith_ae.weights.Weights.space`).
        self.space: str = weights.space
        self.engine: Engine = create(weights, device=device, dtype=dtype, threads=threads)
        self._options = str(device), str(dtype), threads

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also in other processes, have an engine of their own."""
        return type(self), (self.engine.weights, *self._options)

    @property
    def name(self) -> str:
        return self.config.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, weights={self.hash!r})"

    def _need(self, part: str) -> None:
        if part not in self.config.parts:
            raise ConfigError(f"{self.name} has no {part}; load a model that has one")


class Autoencoder(_Pipeline):
    """Pictures to latents and back. Safe to call from several threads.

    Attributes
    ----------
    config : `ModelConfig`, with ``latent_channels`` and ``factor`` (pixels per latent along an axis).
    hash : identifies the weights; latent files carry it.
    space : identifies the latent space; latent files carry it, and any model of the same space reads them.
    engine : the `Engine` that runs the networks.
    """

    kind = "autoencoder"

    def _continued(self, x: NDArray, part: str) -> NDArray:
        """Mirrored to whole spectral tiles, where the part has them.

        The engine would fill cut tiles with zeros, which no training crop has: colours went wrong there.
        """
        return continued(x, self.config.whole_tiles[part], "symmetric")

    # Arrays come first: without torch, type checkers take a tensor for anything.
    @overload
    def encode(
        self,
        image: NDArray[Any] | ForPillow | Picture,
        tile: Tile = "auto",
        *,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]: ...
    @overload
    def encode(
        self, image: torch.Tensor, tile: Tile = "auto", *, progress: Progress | None = None
    ) -> torch.Tensor: ...
    def encode(self, image: Any, tile: Tile = "auto", *, progress: Progress | None = None) -> Any:
        """Latents of a picture or a batch.

        Parameters
        ----------
        image : a path, a Pillow image, a `Picture` as `zenith_ae.read_picture` gives it, an array
            (H, W), (H, W, C) or (N, H, W, C) of uint8, uint16 or floats in [0, 1], or a torch tensor
            (N, C, H, W) or (C, H, W) of these. Grey becomes RGB; alpha is not encoded.
        tile : "auto", 0 (never) or the side of a tile in pixels; it never changes the result.
        progress : called in this thread several times a second (by engines of torch after each tile) with
            the share that is done, from 0 to 1. What it raises ends the work and comes out of the call.

        Returns
        -------
        (N, latent_channels, ceil(H / 8), ceil(W / 8)) float32 array, or a tensor like the one that
        came in. (8 stands for ``config.factor``.)

        Raises
        ------
        ImageError
            If ``image`` is no usable picture.
        ConfigError
            If the model has no encoder, or ``tile`` is none of these.
        """
        if is_compiling():
            return uncompiled(self.encode)(image, tile, progress=progress)
        self._need("encoder")
        batch = as_batch(image)
        _warn_of_dim(image, batch)
        z = self._latents(batch, tile, progress)
        return tensor_like(z, image) if is_tensor(image) else z

    def _latents(self, batch: Batch, tile: Tile, progress: Progress | None) -> NDArray[np.float32]:
        height, width = (-(-n // self.config.factor) for n in batch.pixels.shape[1:3])
        rgb = self._continued(to_rgb(batch.pixels, batch.layout), "encoder")
        z = self.engine.run("encoder", rgb, tile=tile, progress=progress)[:, :height, :width]
        return np.ascontiguousarray(z.transpose(0, 3, 1, 2))

    @overload
    def decode(
        self, latents: NDArray[Any] | LatentFile, output: Output = "uint8",
        size: Sequence[int] | None = None, tile: Tile = "auto", *, progress: Progress | None = None,
    ) -> NDArray[Any]: ...  # fmt: skip
    @overload
    def decode(
        self, latents: torch.Tensor, output: Output = "uint8", size: Sequence[int] | None = None,
        tile: Tile = "auto", *, progress: Progress | None = None,
    ) -> torch.Tensor: ...  # fmt: skip
    @overload
    def decode(
        self, latents: ArrayLike | LatentFile, output: Output = "uint8", size: Sequence[int] | None = None,
        tile: Tile = "auto", *, progress: Progress | None = None,
    ) -> NDArray[Any]: ...  # fmt: skip
    def decode(
        self,
        latents: Any,
        output: Output = "uint8",
        size: Sequence[int] | None = None,
        tile: Tile = "auto",
        *,
        progress: Progress | None = None,
    ) -> Any:
        """Pictures of latents.

        Parameters
        ----------
        latents : (N, C, h, w) or (C, h, w) floats, array or torch tensor; or a `LatentFile`, then with
            its size.
        output : "uint8", "uint16", or "float" for float32 in [0, 1].
        size : (height, width) to crop to, as the encoded picture had; default the whole (8h, 8w).
        tile : "auto", 0 (never) or the side of a tile in output pixels; never changes the result.
        progress : as of `encode`.

        Returns
        -------
        (N, H, W, 3) array of ``output``; for a torch tensor, a tensor (N, 3, H, W) in [0, 1] of the
        same device and dtype, whatever ``output`` says.

        Raises
        ------
        LatentError
            If the latents have another number of channels than the model, are not finite, or do not
            fit ``size``.
        ConfigError
            If the model has no decoder, or ``tile`` is none of these.
        ValueError
            If ``output`` is none of these.
        """
        if is_compiling():
            return uncompiled(self.decode)(latents, output, size, tile, progress=progress)
        self._need("decoder")
        if not isinstance(output, str) or output not in get_args(Output):
            raise ValueError(f"output must be one of {', '.join(get_args(Output))}, got {output!r}")
        if isinstance(latents, LatentFile):
            size = (latents.height, latents.width) if size is None else size
            latents = latents.latents
        if isinstance(latents, (str, os.PathLike)):
            raise LatentError(f"{os.fspath(latents)}: is a path; read it first, with zenith_ae.read_latents")
        tensor = latents if is_tensor(latents) else None
        array = numbers_of(latents)
        z = check_latents(array[None] if array.ndim == 3 else array, self.config.latent_channels)
        factor = self.config.factor
        try:
            height, width = (
                map(index, size) if size is not None else (z.shape[2] * factor, z.shape[3] * factor)
            )
        except (TypeError, ValueError):
            raise LatentError(f"size must be (height, width) in pixels, got {in_short(size)}") from None
        if (-(-height // factor), -(-width // factor)) != z.shape[2:] or min(height, width) < 1:
            raise LatentError(
                f"latents of {z.shape[2]} x {z.shape[3]} cannot be a picture of {height} x {width}"
            )
        out: OutputType = "float32" if tensor is not None or output == "float" else output
        z = self._continued(z.transpose(0, 2, 3, 1), "decoder")
        rgb = self.engine.run("decoder", z, out=out, tile=tile, progress=progress)[:, :height, :width]
        if out == "float32":
            rgb = np.clip(rgb, 0, 1)
        rgb = np.ascontiguousarray(rgb)
        return rgb if tensor is None else tensor_like(rgb.transpose(0, 3, 1, 2), tensor)

    def encode_picture(
        self, picture: Picture, tile: Tile = "auto", *, progress: Progress | None = None
    ) -> LatentFile:
        """The latents of a `Picture`, with what a file of them says; `zenith_ae.write_latents` writes it.

        Raises
        ------
        ImageError
            If it is no usable picture.
        ConfigError
            If the model has no encoder.
        """
        from .images import check_picture

        check_picture(picture)
        self._need("encoder")
        z = self._latents(as_batch(picture), tile, progress)
        return LatentFile(z, self.name, self.hash, picture.height, picture.width, picture.layout, self.space)

    def decode_picture(
        self, file: LatentFile, tile: Tile = "auto", *, progress: Progress | None = None
    ) -> Picture:
        """The `Picture` of a latent file that `zenith_ae.read_latents` read; grey where the original was.

        Its notes say so where other weights made the latents. Whether these are of this model's space is for
        the caller to ask: `LatentFile.fits`.

        Raises
        ------
        LatentError
            If it holds several pictures, or its latents do not fit the model or its size.
        ConfigError
            If the model has no decoder.
        """
        from .images import Picture

        if not isinstance(file, LatentFile):
            kind = type(file).__name__
            raise LatentError(f"this takes a LatentFile, as zenith_ae.read_latents makes them, not {kind}")
        if file.mode not in tuple(CHANNELS):
            modes = ", ".join(CHANNELS)
            raise LatentError(f"is of a picture of mode {in_short(file.mode)}; there are {modes}")
        if len(file.latents) != 1:
            raise LatentError(
                f"holds {len(file.latents)} pictures, but only a file of one can be decoded; from Python "
                "give its latents to Autoencoder.decode"
            )
        layout = "L" if file.mode in ("L", "LA") else "RGB"
        size = file.height, file.width
        rgb = self.decode(without_torch(file.latents), size=size, tile=tile, progress=progress)
        foreign = f"latents of {file.maker}, decoded by {self.name} ({self.hash})"
        notes = () if file.weights == self.hash else (foreign,)
        return Picture(from_rgb(rgb, rgb[..., : len(layout)], layout)[0], layout, layout, notes=notes)

    @overload
    def roundtrip(self, image: Kind, tile: Tile = "auto", *, progress: Progress | None = None) -> Kind: ...
    @overload
    def roundtrip(
        self, image: ForPillow, tile: Tile = "auto", *, progress: Progress | None = None
    ) -> Image.Image: ...
    def roundtrip(self, image: Any, tile: Tile = "auto", *, progress: Progress | None = None) -> Any:
        """decode(encode(image)) with the type, dtype, shape and mode of ``image``; alpha is kept.

        Of a `Picture` with several frames or pages, each by itself. ``progress`` is as of `encode`.
        """
        if is_compiling():
            return uncompiled(self.roundtrip)(image, tile, progress=progress)
        if getattr(image, "more", ()):
            frames = Pieces(progress, len(image.frames))
            return image.map(lambda frame: self.roundtrip(frame, tile, progress=frames.next()))
        batch, halves = as_batch(image), Pieces(progress, 2)
        self._need("encoder")
        _warn_of_dim(image, batch)
        z = self._latents(batch, tile, halves.next())
        pixels = self.decode_like(z, batch.pixels, batch.layout, tile, progress=halves.next())
        return batch.restore(pixels)

    def decode_like(
        self,
        latents: NDArray,
        pixels: NDArray,
        layout: str,
        tile: Tile = "auto",
        *,
        progress: Progress | None = None,
    ) -> NDArray:
        """Decode to the size, dtype and layout of ``pixels`` (N, H, W, C), whose alpha is kept."""
        outputs: dict[str, Output] = {"uint8": "uint8", "uint16": "uint16"}
        output = outputs.get(pixels.dtype.name, "float")
        rgb = self.decode(latents, output, pixels.shape[1:3], tile, progress=progress)
        return from_rgb(rgb, pixels, layout)


class Estimate(NamedTuple):
    """What a denoiser finds in pictures (N, H, W, C), for `Denoiser.changes`.

    Attributes
    ----------
    levels : (N, H, W) float32 standard deviations of the noise in units of 0..255.
    experts : which network each picture is for, see `Denoiser.experts`.
    """

    levels: NDArray[np.float32]
    experts: list[str]


class Denoiser(_Pipeline):
    """Removes noise from pictures. Safe to call from several threads.

    The network predicts what to add: clean = clip(image + strength * residual). For a model trained on noise
    (``task`` in the metadata of its weights) the residual is limited to 8 times the noise level; above level
    2 (of 255) the limit grows with its fifth power and soon ceases to matter. So where there is no noise
    nothing changes (but floats outside [0, 1] are clipped if there is noise elsewhere). Grey pictures, also
    those stored as RGB, go through it as three equal channels and come back as their mean; alpha stays.
    """

    kind = "denoiser"

    @overload
    def __call__(
        self, image: Kind, sigma: str | ArrayLike = "auto", strength: float = 1.0, tile: Tile = "auto",
        *, luma: float = 1.0, chroma: float = 1.0, grain: float = 0.0, passes: int = 1,
        progress: Progress | None = None,
    ) -> Kind: ...  # fmt: skip
    @overload
    def __call__(
        self, image: ForPillow, sigma: str | ArrayLike = "auto", strength: float = 1.0, tile: Tile = "auto",
        *, luma: float = 1.0, chroma: float = 1.0, grain: float = 0.0, passes: int = 1,
        progress: Progress | None = None,
    ) -> Image.Image: ...  # fmt: skip
    def __call__(
        self,
        image: Any,
        sigma: str | ArrayLike = "auto",
        strength: float = 1.0,
        tile: Tile = "auto",
        *,
        luma: float = 1.0,
        chroma: float = 1.0,
        grain: float = 0.0,
        passes: int = 1,
        progress: Progress | None = None,
    ) -> Any:
        """Denoise a picture or a batch; of a `Picture` with several frames or pages, each by itself.

        Parameters
        ----------
        image : as for `Autoencoder.encode`.
        sigma : standard deviation of the noise in units of 0..255 (25 means 25/255 of full scale):
            "auto" to estimate it everywhere in the picture, a number, an array (H, W), or for a
            batch (N,), (N, H, W) or (N, 1, H, W). Noise that is loud and mottled (correlated between
            pixels) is denoised at about half of its level, which removes more of it. Where the level given
            for noise that is not white is far above the estimate, both levels are tried and the larger
            change is used, at twice the cost.
        strength : 0 (nothing changes) to 1.
        tile : "auto", 0 (never) or the side of a tile in pixels; it never changes the result.
        luma, chroma : shares of the strength for brightness and for colour, 0 to 1.
        grain : how much of the finest brightness noise to leave, 0 to 1; mottle goes all the same.
        passes : 1, 2, 4 or 8: the mean of what the network makes of the picture in so many orientations
            (self-ensemble: Timofte et al. 2016, arXiv:1511.02228). Takes so many times as long, and for
            more than one 12 bytes a pixel more.
        progress : called in this thread several times a second (by engines of torch after each tile) with
            the share that is done, from 0 to 1. What it raises ends the work and comes out of the call
            (a StopIteration as a RuntimeError).

        Returns
        -------
        The same type, dtype, shape and mode as ``image``; a Pillow image for a path. The modes that
        Pillow cannot keep with new pixels become the nearest one: 1 -> L, P -> RGB or RGBA. It has none
        for 16-bit colour: read such a file with `zenith_ae.read_picture` and give the `Picture`.

        Raises
        ------
        ImageError
            If ``image`` is no usable picture.
        ConfigError
            If ``sigma`` is "auto" and the model has no estimator, or ``tile`` is none of these.
        ValueError
            If ``sigma`` is out of range or of a wrong shape, one of the shares is out of range, or
            ``passes`` is another number.
        """
        shares: dict[str, Any] = {"strength": strength, "luma": luma, "chroma": chroma, "grain": grain}
        if is_compiling():
            return uncompiled(self)(image, sigma, tile=tile, passes=passes, progress=progress, **shares)
        if getattr(image, "more", ()):
            frames = Pieces(progress, len(image.frames))
            return image.map(
                lambda one: self(one, sigma, tile=tile, passes=passes, progress=frames.next(), **shares)
            )
        batch = as_batch(image)
        if isinstance(sigma, str):  # who gives a level knows
            _warn_of_dim(image, batch)
        return batch.restore(
            self.clean(
                batch.pixels, batch.layout, sigma, tile=tile, passes=passes, progress=progress, **shares
            )
        )

    def estimate_sigma(self, image: Any, tile: Tile = "auto") -> NDArray[np.float32]:
        """The noise of a picture, as the automatic mode sees it; arguments as for a call.

        Returns
        -------
        (H, W) float32 standard deviation in units of 0..255, or (N, H, W) for a batch; `sigma` of a
        call takes it. Its mean is the picture's noise level.
        """
        if is_compiling():
            maps: NDArray[np.float32] = uncompiled(self.estimate_sigma)(image, tile)
            return maps
        batch = as_batch(image)
        _warn_of_dim(image, batch)
        maps = self.estimate(batch.pixels, batch.layout, tile).levels
        return maps[0] if getattr(image, "ndim", 3) < 4 else maps

    @cached_property
    def _bounded(self) -> bool:
        """Whether a level is that of noise, and bounds what is changed; not so of softness."""
        return self.engine.weights.metadata.get("task") == "noise"

    def _need_estimator(self) -> None:
        if "estimator" not in self.config.parts:
            raise ConfigError(f"{self.name} cannot estimate noise; give its level (sigma)")

    @cached_property
    def _cells(self) -> dict[str, int]:
        return {part: alignment(layers) for part, layers in self.config.parts.items()}

    def experts(self, image: Any, tile: Tile = "auto") -> list[str]:
        """Which of its networks the model runs on a picture, or on each of a batch; arguments as for a call.

        Returns
        -------
        "white" for a picture that an expert for noise which is independent from pixel to pixel, where the
        model has one, is likely to make better, and "denoiser" for all others, one a picture. Automatic mode
        runs neither on a picture in two plain colours.
        """
        if is_compiling():
            found: list[str] = uncompiled(self.experts)(image, tile)
            return found
        batch = as_batch(image)
        return self._experts(batch.pixels, batch.layout, tile)

    def _experts(
        self, pixels: NDArray, layout: str, tile: Tile, level: float | None = None,
        progress: Progress | None = None, rgb: NDArray | None = None,
    ) -> list[str]:  # fmt: skip
        """`experts` of (N, H, W, C) pixels.

        ``level`` is the mean of their `_raw_levels`, and ``rgb`` what they are as RGB, if these are known.
        """
        if "sorter" not in self.config.parts:
            return ["denoiser"] * len(pixels)
        rgb = to_rgb(pixels, layout) if rgb is None else rgb
        odds = self._of_cells("sorter", rgb, tile, progress)
        # Of CMYK black is in a run of its own.
        seen = np.ascontiguousarray(255 - pixels[..., :3]) if layout == "CMYK" else rgb
        each = zip(odds, rgb, seen, strict=True)
        chosen = (self._for_expert(*one, tile, level, progress) for one in each)
        return ["white" if expert else "denoiser" for expert in chosen]

    def _for_expert(
        self,
        odds: NDArray[np.float32],
        picture: NDArray,
        seen: NDArray,
        tile: Tile,
        level: float | None,
        progress: Progress | None,
    ) -> bool:
        """Whether a picture (H, W, 3) is for the expert, by what the sorter says of its cells (h, w).

        To the expert noise of a colour picture is independent from channel to channel too; ``seen`` are those
        that the networks see together.
        """
        found = float(odds.mean())
        levels, least = _SURE
        if found <= 0:
            return False

        @cache
        def loudness() -> float:
            if level is not None:
                return level
            return float(self._raw_levels(picture[None], tile, within(progress, 0, 0)).mean())

        step = jpeg_step(picture) if "estimator" in self.config.parts else 0.0
        if step and loudness() < _WHITE_OF_STEP * step:
            return False
        if is_grey(picture):
            return True
        if is_shared(seen):
            return False
        if found > max(least) or "estimator" not in self.config.parts:
            return True
        whole = ~clipped_cells(picture)  # frames say little either way
        if enough(whole):
            found = float(odds[whole].mean())
        return bool(found > np.interp(loudness(), levels, least))

    def _raw_levels(self, rgb: NDArray, tile: Tile, progress: Progress | None = None) -> NDArray[np.float32]:
        """What the estimator says of each cell of pictures (N, H, W, 3): (N, H/8, W/8), of 0..255."""
        levels = self._of_cells("estimator", rgb, tile, progress)
        return np.clip(levels, 0, SIGMA_LIMIT) * np.float32(SIGMA_UNIT * 255)

    def _of_cells(
        self, part: str, rgb: NDArray, tile: Tile, progress: Progress | None
    ) -> NDArray[np.float32]:
        """What a part says of each cell of 8 x 8 pixels of pictures (N, H, W, 3), not beyond them."""
        found = self.engine.run(part, self._continued(rgb, part), tile=tile, progress=progress)
        height, width = (-(-n // 8) for n in rgb.shape[1:3])
        return found[:, :height, :width, 0]

    def _continued(self, pixels: NDArray, part: str, before: int = 0) -> NDArray:
        """(N, H, W, ...) continued by reflection to whole cells and whole spectral tiles of a part.

        The engine would repeat the last row and column, and fill tiles with zeros: repeated noise is
        a streak, which looks like content to the network, and no training crop has a partial tile.
        """
        return continued(pixels, self._cells[part], "reflect", before)

    def estimate(
        self,
        pixels: NDArray,
        layout: str,
        tile: Tile = "auto",
        progress: Progress | None = None,
        experts: list[str] | None = None,
    ) -> Estimate:
        """The noise of (N, H, W, C) pixels of any layout, and which network each of them is for.

        ``progress`` is as of a call; ``experts`` is what is known of the latter.
        """
        if is_compiling():
            estimate: Estimate = uncompiled(self.estimate)(pixels, layout, tile, progress, experts)
            return estimate
        self._need_estimator()
        check_layout(pixels, layout)
        rgb = to_rgb(pixels, layout)
        alone = [only_channel(picture) for picture in rgb]
        if alone.count(None) < len(alone):  # the estimator knows grey pictures, and none of a single channel
            rgb = rgb.copy()
            for picture, c in zip(rgb, alone, strict=True):
                picture[...] = picture if c is None else picture[..., c : c + 1]
        coarse = self._raw_levels(rgb, tile, within(progress, 0, _ESTIMATOR))
        sorting = Pieces(within(progress, _ESTIMATOR, 1 - _ESTIMATOR), len(rgb))
        chosen = ["denoiser"] * len(rgb) if experts is None else experts
        for i, level in enumerate(coarse):
            picture, report = rgb[i], sorting.next()
            if is_two_tone(picture):
                level[...] = 0
                continue
            clipped = clipped_cells(picture)
            if layout.endswith("A"):
                even_out_hidden(pixels[i, ..., -1], level, clipped)
            mean = float(level.mean())
            make_even(level, clipped)
            if experts is None:
                one = slice(i, i + 1)
                (chosen[i],) = self._experts(pixels[one], layout, tile, mean, report, rgb[one])
            if chosen[i] == "white":
                bring_to_measured(picture, level)
            elif self._bounded:
                level[...] = without_texture(picture, level, clipped)
                raise_to_jpeg(picture, level)
            if level.any():
                level[drawn_cells(picture)] = 0
        return Estimate(enlarged(coarse, pixels.shape[1], pixels.shape[2]), chosen)

    def clean(
        self,
        pixels: NDArray,
        layout: str,
        sigma: str | ArrayLike = "auto",
        strength: float = 1.0,
        tile: Tile = "auto",
        *,
        luma: float = 1.0,
        chroma: float = 1.0,
        grain: float = 0.0,
        passes: int = 1,
        progress: Progress | None = None,
    ) -> NDArray:
        """Denoise (N, H, W, C) pixels of any layout; same shape and dtype out.

        Pictures that are drawn in two colours (`is_two_tone`) stay as they are at level 0, which is also
        what is estimated of them. The rest is as of a call.
        """
        if is_compiling():
            shares: dict[str, Any] = {"strength": strength, "luma": luma, "chroma": chroma, "grain": grain}
            cleaned: NDArray = uncompiled(self.clean)(
                pixels, layout, sigma, tile=tile, passes=passes, progress=progress, **shares
            )
            return cleaned
        changes = self.changes(pixels, layout, sigma, tile, passes=passes, progress=progress)
        result = changed(pixels, changes, strength, luma, chroma, grain, threads=self.engine.threads)
        if progress is not None:
            progress(1.0)  # also where there was nothing to do
        return result

    def changes(
        self,
        pixels: NDArray,
        layout: str,
        sigma: str | ArrayLike | Estimate = "auto",
        tile: Tile = "auto",
        *,
        passes: int = 1,
        progress: Progress | None = None,
    ) -> Iterator[Change]:
        """What there is to add to (N, H, W, C) pixels, for `changed`; arguments as of `clean`.

        ``sigma`` may also be what `estimate` found. Networks run, and may raise, as changes are asked for.
        """
        if is_compiling():
            rest: dict[str, Any] = {"tile": tile, "passes": passes, "progress": progress}
            found: list[Change] = uncompiled(lambda: list(self.changes(pixels, layout, sigma, **rest)))()
            return iter(found)
        check_passes(passes)
        check_tile(tile)
        check_layout(pixels, layout)
        if isinstance(sigma, str):
            if sigma != "auto":
                raise ValueError(f'sigma must be "auto", a number or an array, got {in_short(sigma)}')
            self._need_estimator()
        elif isinstance(sigma, Estimate):
            if sigma.levels.shape != pixels.shape[:3]:
                raise ValueError(f"an estimate of shape {sigma.levels.shape} is not of {pixels.shape[:3]}")
        else:
            sigma = _levels(sigma, pixels.shape[:3])
        return self._changes(pixels, layout, sigma, tile, passes, progress)

    def _changes(
        self,
        pixels: NDArray,
        layout: str,
        sigma: Any,
        tile: Tile,
        passes: int,
        progress: Progress | None,
    ) -> Iterator[Change]:
        if isinstance(sigma, str):
            asking, progress = estimate_and_rest(progress, passes)
            sigma = self.estimate(pixels, layout, tile, asking)
        found = sigma if isinstance(sigma, Estimate) else None
        levels = sigma if found is None else found.levels
        told = found is None and self._bounded and "estimator" in self.config.parts
        todo = [
            i
            for i in range(len(pixels))
            if levels[i].max() > 0 or not (self._bounded or is_two_tone(to_rgb(pixels[i : i + 1], layout)[0]))
        ]
        chosen = [] if found is None else [found.experts[i] for i in todo]
        if len(todo) < len(pixels):
            pixels, levels = pixels[todo], levels[todo]
        height, width = pixels.shape[1:3]
        step = max(1, _PIXELS_AT_ONCE // (height * width))
        parts = Pieces(progress, len(todo))
        for first in range(0, len(todo), step):
            part = slice(first, first + step)
            of_part = parts.next(len(todo[part]))
            asked = within(of_part, 0, 0)
            experts = chosen[part] or self._experts(pixels[part], layout, tile, progress=asked)
            lower = self._found_less(pixels[part], layout, tile, levels[part], experts, asked) if told else {}
            groups = list(colour_groups(layout))
            runs = Pieces(of_part, len(groups) * (len(experts) + len(lower)))
            for channels, inverted in groups:
                colour = pixels[part, ..., channels]
                if inverted:
                    colour = 255 - colour
                rgb = to_rgb(colour, "RGB" if colour.shape[3] == 3 else "L")
                plane = self._plane(rgb, levels[part], experts, tile, runs.next(0))
                bound = levels[part] if self._bounded else None
                all_of_them = runs.next(len(experts))
                residual = self._residual(rgb, plane, experts, bound, tile, passes, all_of_them)
                for i, level in lower.items():
                    del plane  # as large as a third of the residual
                    one = slice(i, i + 1)
                    plane = self._plane(rgb[one], level, experts[one], tile, runs.next(0))
                    other = self._residual(
                        rgb[one], plane, experts[one], levels[part][one], tile, passes, runs.next()
                    )
                    if energy(other) > energy(residual[one]):
                        residual[one] = other
                    del other
                del rgb, plane  # for a large picture these are hundreds of megabytes
                for change, picture in zip(residual, colour, strict=True):
                    if is_grey(picture):
                        change[...] = change.mean(axis=2, keepdims=True)
                yield Change(todo[part], channels, inverted, residual)
                del residual

    def _run(
        self, part: str, pictures: NDArray, plane: NDArray, tile: Tile, progress: Progress | None
    ) -> NDArray[np.float32]:
        """What one of the networks adds to pictures (N, H, W, 3) with noise (N, H, W) or (N, 1, 1)."""
        height, width = pictures.shape[1:3]
        before = OFF_GRID if part == "denoiser" else 0
        pictures = self._continued(pictures, part, before)
        if plane.shape[1:] == (1, 1):  # all rows are one in memory
            row = np.repeat(plane, pictures.shape[2], axis=2)
            plane = np.broadcast_to(row, pictures.shape[:3])
        else:
            plane = self._continued(plane, part, before)
        found = self.engine.run(part, pictures, plane=plane, tile=tile, progress=progress)
        return found[:, before : before + height, before : before + width]

    def _found_less(
        self,
        pixels: NDArray,
        layout: str,
        tile: Tile,
        levels: NDArray,
        experts: list[str],
        progress: Progress | None,
    ) -> dict[int, NDArray[np.float32]]:
        """The levels (1, H, W) that are estimated of pictures which are told to be noisier by far.

        Only of those whose noise is not white: of a level that does not fit what it sees a denoiser of all
        noise makes less, so that who asks for a stronger effect would get a weaker one.
        """
        found = {}
        for i, expert in enumerate(experts):
            if expert == "denoiser":
                maps = self.estimate(pixels[i : i + 1], layout, tile, progress, [expert]).levels
                if levels[i].mean() > _TOLD_MORE * maps.mean() > 0:
                    found[i] = np.minimum(maps, levels[i])
        return found

    def _plane(
        self, rgb: NDArray, levels: NDArray, experts: list[str], tile: Tile, progress: Progress | None
    ) -> NDArray[np.float32]:
        """What the networks are told of the noise in pictures (N, H, W, 3), in units of [0, 1].

        (N, H, W), or (N, 1, 1) as ``levels`` are.
        """
        plane = levels / np.float32(255)
        for picture, level, expert in zip(rgb, plane, experts, strict=True):
            if self._bounded and expert == "denoiser" and self._is_mottled(picture, level, tile, progress):
                level *= np.float32(_MOTTLED_SHARE)
        return plane

    def _is_mottled(self, picture: NDArray, plane: NDArray, tile: Tile, progress: Progress | None) -> bool:
        """Whether loud noise of a picture (H, W, 3) looks like content to the denoiser at its own level.

        Of noise that a camera has smoothed and sharpened it takes more away where it is told less. That is
        tried in a few places, or, of a small picture, in all of it.
        """
        if plane.mean() <= _MOTTLED / 255:
            return False
        height, width = picture.shape[:2]
        plane = np.broadcast_to(plane, (height, width))
        (rows, columns), side = _PLACES, _PLACE
        if height * width <= rows * columns * side * side:
            rows = columns = 1
            side = max(height, width)
        corners = [
            (slice(y, y + side), slice(x, x + side))
            for y in _spread(rows, height - side) for x in _spread(columns, width - side)
        ]  # fmt: skip
        pictures, planes = (np.stack([whole[corner] for corner in corners]) for whole in (picture, plane))
        own, less = (
            energy(self._run("denoiser", pictures, planes * np.float32(share), tile, progress))
            for share in (1, _MOTTLED_SHARE)
        )
        return less > _MOTTLED_TIMES * own

    def _residual(
        self,
        rgb: NDArray,
        plane: NDArray,
        experts: list[str],
        bound: NDArray | None,
        tile: Tile,
        passes: int,
        progress: Progress | None,
    ) -> NDArray[np.float32]:
        """What to add to pictures ``rgb`` (N, H, W, 3) with noise ``plane`` (`_plane`), mean of the passes.

        ``experts`` is the part for each. Each pass is what one alone would be, so each is within what noise
        of the levels ``bound`` can be (`limit`).
        """
        total: NDArray[np.float32] | None = None
        alike = len(set(experts)) == 1
        groups = [slice(None)] if alike else [slice(i, i + 1) for i in range(len(experts))]
        runs = Pieces(progress, passes * len(groups))
        for which in _ORIENTATIONS[:passes]:
            turned, levels = orient(rgb, which), orient(plane[..., None], which)[..., 0]
            found = [
                self._run(experts[some][0], turned[some], levels[some], tile, runs.next()) for some in groups
            ]
            residual = found[0] if len(found) == 1 else np.concatenate(found)
            if bound is not None:
                limit(residual, orient(bound[..., None], which)[..., 0], self.engine.threads)
            residual = unorient(residual, which)
            total = residual if total is None else np.add(total, residual, out=total)
            del turned, levels, found, residual  # each is as large as the picture
        assert total is not None
        return total if passes == 1 else np.multiply(total, np.float32(1 / passes), out=total)


def check_passes(passes: Any) -> None:
    """Raise ValueError for what is none of `PASSES`."""
    if isinstance(passes, bool) or not isinstance(passes, int | np.integer) or passes not in PASSES:
        raise ValueError(f"passes must be one of {', '.join(map(str, PASSES))}, got {in_short(passes)}")


def estimate_and_rest(progress: Progress | None, passes: int) -> tuple[Progress | None, Progress | None]:
    """The reports of `Denoiser.estimate`, and of the changes with what it found, as those of both."""
    share = _ESTIMATE / passes
    return within(progress, 0, share), within(progress, share, 1 - share)


def _spread(count: int, end: int) -> list[int]:
    """Up to so many places between 0 and ``end``, about as far from each other as from both.

    They are where cells of 8 pixels begin, so that a network sees a JPEG's blocks as it does in the whole.
    """
    return sorted({max(0, end) * (2 * i + 1) // (16 * count) * 8 for i in range(count)})


def _levels(sigma: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """sigma as an array that broadcasts to (N, H, W), with N entries along the first axis."""
    if isinstance(sigma, np.ma.MaskedArray):
        raise ValueError("sigma as a masked array would lose its mask; fill it first (array.filled(value))")
    tensor: Any = sigma if is_tensor(sigma) else None
    if tensor is not None and not is_dense(tensor):
        raise ValueError("sigma must be dense, with values: give tensor.to_dense(), not on device 'meta'")
    if tensor is not None and (tensor.is_complex() or str(tensor.dtype) == "torch.bool"):
        raise ValueError(f"sigma must be numbers, got {in_short(tensor)}")
    given = np.asarray(without_torch(sigma))
    if given.dtype.kind not in "fiu":  # bool, text, complex numbers, integers beyond all of numpy's
        raise ValueError(f"sigma must be numbers, got {in_short(sigma)}")
    with np.errstate(over="ignore"):
        levels = given.astype(np.float32)
    if levels.size == 0 or not np.isfinite(levels).all() or levels.min() < 0 or levels.max() > 255:
        raise ValueError(f"sigma must be in 0..255, got {in_short(sigma)}")
    if levels.ndim == 4 and levels.shape[1] == 1:  # a plane of its own, as tensors (N, C, H, W) have
        levels = levels[:, 0]
    if levels.ndim == 1 and len(levels) == shape[0]:
        levels = levels[:, None, None]
    elif levels.ndim and levels.shape not in (shape, shape[1:]):
        raise ValueError(f"sigma of shape {levels.shape} does not fit pictures of shape {shape}")
    if levels.ndim < 3:
        levels = levels[None] if levels.ndim == 2 else levels.reshape(1, 1, 1)
    return np.broadcast_to(levels, (shape[0], *levels.shape[1:]))


def _warn_of_dim(image: Any, batch: Batch) -> None:
    """Say that 16-bit values look like those of fewer, where no note of a file has said so."""
    from .images import dim_note

    note = dim_note(batch.pixels, batch.layout)
    if note and not isinstance(image, (str, os.PathLike)) and note not in getattr(image, "notes", ()):
        warnings.warn(f"a picture of uint16: {note}", stacklevel=3)
