"""What users pass as a picture, as one batch of NHWC pixels and back.

Accepted are a `Picture`, a Pillow image, a path, an array (H, W), (H, W, C) or (N, H, W, C) of
uint8, uint16 or floats in [0, 1], and a torch tensor (N, C, H, W) or (C, H, W) of these. The
channels say what they are: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import ImageError, in_short

if TYPE_CHECKING:
    from .images import Picture

#: Weights of R, G and B in brightness, ITU-R BT.601, as in JPEG.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

# Of a picture in [0, 1] and noise of sigma 50 of 255, hardly a value is below this; of one in [-1, 1] many.
_PLAINLY_NEGATIVE = -0.3
LAYOUTS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
#: How many channels pixels of each layout have.
CHANNELS = {layout: channels for channels, layout in LAYOUTS.items()} | {"CMYK": 4}


@dataclass(frozen=True)
class Batch:
    """Pictures of one size.

    Attributes
    ----------
    pixels : (N, H, W, C) uint8, uint16 or float32.
    layout : "L", "LA", "RGB", "RGBA" or "CMYK".
    restore : pixels of the same shape and dtype -> the type, dtype and shape that came in.
    """

    pixels: NDArray
    layout: str
    restore: Callable[[NDArray], Any]


def as_batch(image: Any) -> Batch:
    """Any accepted picture as a `Batch`; what a file or a Pillow image loses by that is a warning.

    Raises
    ------
    ImageError
        If it is none, has no pixels, or has values that are not finite or not in range.
    """
    if isinstance(image, (str, os.PathLike)):
        from .deep_colour import is_deep
        from .images import read_picture, to_pil

        read = read_picture(image)

        def as_image(new: NDArray) -> Any:
            if is_deep(read.pixels, read.layout):
                warnings.warn(
                    f"{image}: Pillow has no mode for 16-bit colour, so the result has 8 bits a channel; "
                    "zenith_ae.read_picture(path) and zenith_ae.write_picture keep 16",
                    stacklevel=3,
                )
            result = to_pil(read.with_pixels(new[0]))
            result.info.update(read.metadata)  # the ICC profile above all: without it the colours are others
            return result

        for note in read.notes:
            warnings.warn(f"{image}: {note}", stacklevel=3)
        return Batch(read.pixels[None], read.layout, as_image)
    if is_tensor(image):
        return _from_tensor(image)
    if isinstance(image, np.ndarray):
        return _from_array(image)
    if "PIL.Image" in sys.modules:
        from PIL import Image

        from .image_metadata import read_metadata
        from .images import Picture, check_picture, to_pil

        if isinstance(image, Picture):
            check_picture(image)
            if image.more:  # those who take every frame come with one at a time
                warnings.warn(f"the first of {len(image.frames)} frames or pages is taken", stacklevel=3)
            return Batch(_check(image.pixels[None]), image.layout, lambda new: image.with_pixels(new[0]))
        if isinstance(image, Image.Image):
            picture = _from_pillow(image)
            for note in picture.notes:
                warnings.warn(note, stacklevel=3)

            def restore(new: NDArray) -> Image.Image:
                result = to_pil(picture.with_pixels(new[0]))
                result.info = {k: v for k, v in image.info.items() if k != "transparency"}
                if image.format == "TIFF" and (exif := read_metadata(image).get("exif")):
                    result.info.setdefault("exif", exif)  # it has tags in place of a block
                return result

            return Batch(picture.pixels[None], picture.layout, restore)
    kind = type(image).__name__
    raise ImageError(f"a picture must be a path, a Pillow image, a numpy array or a torch tensor, not {kind}")


def as_picture(image: Any) -> Picture:
    """Any accepted picture but a path as a `Picture`; of an array or a tensor, the only one of its batch.

    What a Pillow image loses by that is among its notes.

    Raises
    ------
    ImageError
        As `as_batch`, and for a path or a batch of several pictures.
    """
    from PIL import Image

    from .image_metadata import read_metadata
    from .images import Picture

    if isinstance(image, Picture):
        return image
    if isinstance(image, (str, os.PathLike)):
        raise ImageError(
            f"{os.fspath(image)}: is a path; read the picture first, with zenith_ae.read_picture"
        )
    if isinstance(image, Image.Image):  # which its EXIF has not turned
        return replace(_from_pillow(image), metadata=read_metadata(image, turned=False))
    batch = as_batch(image)
    if len(batch.pixels) != 1:
        raise ImageError(f"holds {len(batch.pixels)} pictures; a file takes one: give picture[0]")
    return Picture(batch.pixels[0], batch.layout, batch.layout)


def _from_pillow(image: Any) -> Picture:
    """A Pillow image, decoded where it was only opened."""
    from .images import from_pil, has_more

    try:
        first = has_more(image) and image.tell() == 0  # one that was sought is meant
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # decoders raise SyntaxError and others
        raise ImageError(f"damaged or truncated picture ({error})") from None
    picture = from_pil(image)
    _check(picture.pixels[None], 2)
    note = ("only the first of several pictures in the file is used",) if first else ()
    return replace(picture, notes=(*note, *picture.notes))


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)


def is_compiling() -> bool:
    """Whether torch.compile looks at who calls this. What numpy computes is not for it: see `uncompiled`."""
    compiler: Any = getattr(sys.modules.get("torch"), "compiler", None)  # others may be importing torch
    return hasattr(compiler, "is_compiling") and compiler.is_compiling()


def uncompiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """``call`` as torch.compile runs it without a look inside: a break in its graph."""
    disabled: Callable[..., Any] = sys.modules["torch"].compiler.disable(call)
    return disabled


def without_torch(value: Any) -> Any:
    """A torch tensor, on any device and of any dtype, as a float32 array; anything else unchanged."""
    return value.detach().float().cpu().resolve_neg().numpy() if is_tensor(value) else value


def is_dense(tensor: Any) -> bool:
    """Whether a torch tensor has its values in memory, as numpy wants them."""
    return str(tensor.layout) == "torch.strided" and not (tensor.is_meta or tensor.is_nested)


def tensor_like(array: NDArray, like: Any) -> Any:
    """An array as a torch tensor on the device of ``like``, with its dtype where that is of floats."""
    torch = sys.modules["torch"]
    dtype = like.dtype if like.is_floating_point() else None
    return torch.from_numpy(np.ascontiguousarray(array)).to(device=like.device, dtype=dtype)


def _from_tensor(tensor: Any) -> Batch:
    integer = str(tensor.dtype) in ("torch.uint8", "torch.uint16")
    if not (integer or tensor.is_floating_point()):
        raise ImageError(f"a torch picture must be uint8, uint16 or float in [0, 1], got {tensor.dtype}")
    if not is_dense(tensor):
        raise ImageError(
            "a torch picture must be dense, with values: give tensor.to_dense(), not on device 'meta'"
        )
    if tensor.ndim not in (3, 4) or tensor.shape[-3] not in LAYOUTS:
        shape = tuple(tensor.shape)
        raise ImageError(
            f"a torch picture must be (N, C, H, W) or (C, H, W) with 1 to 4 channels, got {shape}"
        )
    whole = tensor if tensor.ndim == 4 else tensor[None]
    values = whole.detach().cpu().numpy() if integer else without_torch(whole)
    pixels = np.ascontiguousarray(values.transpose(0, 2, 3, 1))

    def restore(new: NDArray) -> Any:
        if str(tensor.dtype) == "torch.float64":
            new = _where_changed(
                new, pixels, whole.detach().cpu().resolve_neg().numpy().transpose(0, 2, 3, 1)
            )
        result = tensor_like(new.transpose(0, 3, 1, 2), tensor)
        return result if tensor.ndim == 4 else result[0]

    return Batch(_check(pixels, 2), LAYOUTS[pixels.shape[3]], restore)


def _from_array(array: NDArray) -> Batch:
    if isinstance(array, np.ma.MaskedArray):
        raise ImageError("a masked array would lose its mask; fill it first (array.filled(value))")
    array = np.asarray(array)  # a matrix stays two-dimensional whatever is done to it
    whole = {2: array[None, ..., None], 3: array[None], 4: array}.get(array.ndim)
    if whole is None or whole.shape[3] not in LAYOUTS:
        raise ImageError(
            f"an array must be (H, W), (H, W, C) or (N, H, W, C) with 1 to 4 channels last, got {array.shape}"
        )
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):  # what float32 cannot hold is refused below, or is nothing
            pixels = whole.astype(np.float32, copy=False)
    elif array.dtype.newbyteorder("=") in (np.uint8, np.uint16):
        pixels = whole.astype(array.dtype.newbyteorder("="), copy=False)
    else:
        raise ImageError(
            f"an array must be uint8, uint16 or float in [0, 1], got {array.dtype}; convert it first"
        )

    def restore(new: NDArray) -> NDArray:
        if array.dtype.kind == "f" and array.dtype.itemsize > 4:
            new = _where_changed(new, pixels, whole)
        return new.reshape(array.shape).astype(array.dtype, copy=False)

    return Batch(_check(np.ascontiguousarray(pixels), 2), LAYOUTS[whole.shape[3]], restore)


def _where_changed(new: NDArray, pixels: NDArray, exact: NDArray) -> NDArray:
    """The new float32 pixels, but what came in, to its last digit, where they are the same as it was."""
    return np.where(new == pixels, exact, new)


def _check(pixels: NDArray, callers: int = 1) -> NDArray:
    """``callers`` is how many functions lie between this one and `Denoiser` or `Autoencoder`."""
    if not pixels.size:
        raise ImageError(f"a picture must have pixels, got shape {pixels.shape}")
    if pixels.dtype == np.float32:
        from .images import check_floats

        check_floats(pixels, "picture")
        if np.count_nonzero(pixels < _PLAINLY_NEGATIVE) > pixels.size / 10:
            warnings.warn(
                "many values are negative, as of a picture in [-1, 1]; this takes [0, 1]: give x / 2 + 0.5",
                stacklevel=3 + callers,
            )
    return pixels


def check_layout(pixels: Any, layout: Any, axes: str = "N, H, W") -> None:
    """ValueError where pixels (``axes``, C) are none of a layout, or not of its dtypes."""
    if not isinstance(layout, str) or layout not in CHANNELS:
        raise ValueError(f"layout must be one of {', '.join(CHANNELS)}, got {in_short(layout)}")
    if not isinstance(pixels, np.ndarray) or isinstance(pixels, np.ma.MaskedArray):
        raise ValueError(f"pixels are a plain numpy array, not {type(pixels).__name__}")
    channels = CHANNELS[layout]
    if pixels.ndim != len(axes.split()) + 1 or pixels.shape[-1] != channels or not pixels.size:
        raise ValueError(f"pixels of layout {layout} are ({axes}, {channels}), got {pixels.shape}")
    dtypes = ("uint8",) if layout == "CMYK" else ("uint8", "uint16", "float32")
    if pixels.dtype.name not in dtypes or not pixels.dtype.isnative:
        raise ValueError(f"pixels of layout {layout} are {' or '.join(dtypes)}, got {pixels.dtype}")


def colour_groups(layout: str) -> Iterator[tuple[slice, bool]]:
    """The channels that go through a network together, and whether they are inks (inverted).

    CMYK is two groups: the inks as inverted RGB, and black as inverted grey.
    """
    if layout == "CMYK":
        yield slice(0, 3), True
        yield slice(3, 4), True
    else:
        yield slice(0, 3 if layout.startswith("RGB") else 1), False


def to_rgb(pixels: NDArray, layout: str) -> NDArray:
    """(N, H, W, C) of any layout as contiguous, aligned (N, H, W, 3) of the same dtype; alpha is dropped."""
    if layout == "CMYK":
        # 8-bit only: what remains of the paper's white after black and the ink.
        paper = 255 - pixels[..., 3:].astype(np.uint16)
        return ((paper * (255 - pixels[..., :3].astype(np.uint16)) + 127) // 255).astype(np.uint8, order="C")
    if layout.startswith("RGB"):
        return np.require(pixels[..., :3], requirements=["C", "A"])  # parts of a file's bytes may lie askew
    return np.repeat(pixels[..., :1], 3, axis=3)


def from_rgb(rgb: NDArray, pixels: NDArray, layout: str) -> NDArray:
    """``rgb`` (N, H, W, 3) in the layout of ``pixels``, whose alpha is kept.

    Grey is the mean of the three channels; CMYK gets no black ink.
    """
    if layout == "CMYK":
        return np.concatenate([255 - rgb, np.zeros_like(rgb[..., :1])], axis=3)
    if layout.startswith("RGB"):
        colour = rgb
    else:
        mean = rgb.mean(axis=3, keepdims=True, dtype=np.float32)
        colour = mean if rgb.dtype == np.float32 else np.rint(mean).astype(rgb.dtype)
    alpha = pixels[..., colour.shape[3] :]
    return np.concatenate([colour, alpha], axis=3) if alpha.shape[3] else colour


def full_scale(dtype: np.dtype[Any]) -> int:
    """What stands for white: the largest number of an unsigned type, or 1 for floats."""
    return int(np.iinfo(dtype).max) if dtype.kind == "u" else 1


def continued(pixels: NDArray, cell: int, mode: Literal["reflect", "symmetric"], before: int = 0) -> NDArray:
    """(N, H, W, ...) mirrored at the bottom and right up to multiples of ``cell``, as `numpy.pad` does.

    And ``before`` that by so many pixels at the top and left.
    """
    beyond = [(before, -(before + n) % cell) for n in pixels.shape[1:3]]
    if not any(map(any, beyond)):
        return pixels
    return np.pad(pixels, [(0, 0), *beyond] + [(0, 0)] * (pixels.ndim - 3), mode=mode)


def orient(pictures: NDArray, which: int) -> NDArray:
    """One of the 8 symmetries of the square (0 is the identity) of (..., H, W, C), as a view."""
    if which & 4:
        pictures = pictures.swapaxes(-3, -2)
    if which & 2:
        pictures = pictures[..., ::-1, :, :]
    if which & 1:
        pictures = pictures[..., ::-1, :]
    return pictures


def unorient(pictures: NDArray, which: int) -> NDArray:
    """What `orient` made this of, as a view."""
    if which & 4:  # transposed before it was mirrored, so the mirrors change places
        which = 4 | (which & 1) << 1 | (which & 2) >> 1
    return orient(pictures, which)
