"""Networks in several streams: wider ones that can begin as the mean of narrower ones.

Of a network in two streams each half of the channels has its blocks to itself, and the halves meet in the
1x1 convolutions where the resolution changes. With zeros between the halves there it is the mean of two
networks. That of a denoiser and the same denoiser in another orientation makes fewer mistakes than either
(the self-ensemble of https://arxiv.org/abs/1511.02228), so it is a better beginning than one that grows
by parts that do nothing yet, and from there the halves learn to share the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .spec import Add, Keep, Layer, Layers, Linear, PixelShuffle, PixelUnshuffle, Relu, ZenithBlock

Tensors = Mapping[str, NDArray[np.float32]]


def in_streams(layers: Layers, count: int) -> Layers:
    """The layers ``count`` times as wide, their blocks in as many groups.

    The first 1x1 convolution keeps its inputs and the last one its outputs.

    Raises
    ------
    ConfigError
        If there is another layer than blocks, 1x1 convolutions, shuffles, ReLUs and skips, or before the
        first and after the last 1x1 convolution another than shuffles.
    """
    first, last = _ends(layers)

    def widened(i: int, layer: Layer) -> Layer:
        if not first <= i <= last and not isinstance(layer, PixelShuffle | PixelUnshuffle):
            raise ConfigError(f"{layer} cannot be made of several streams: it is outside of them")
        match layer:
            case ZenithBlock():
                c, m, g = layer.channels, layer.hidden, layer.groups
                return replace(layer, channels=count * c, hidden=count * m, groups=count * g)
            case Linear(groups=1):
                ins, outs = 1 if i == first else count, 1 if i == last else count
                return replace(layer, cin=ins * layer.cin, cout=outs * layer.cout)
            case Add() | Keep() | PixelShuffle() | PixelUnshuffle() | Relu():
                return layer
            case _:
                raise ConfigError(f"{layer} cannot be made of several streams")

    return tuple(widened(i, layer) for i, layer in enumerate(layers))


def mean_of(layers: Layers, networks: Sequence[Tensors]) -> dict[str, NDArray[np.float32]]:
    """Tensors with which ``in_streams(layers, len(networks))`` is the mean of ``networks``.

    Parameters
    ----------
    layers : of each of them.
    networks : their tensors, ``{layer index}.{parameter}``.

    Raises
    ------
    ConfigError
        As `in_streams`.
    """
    in_streams(layers, len(networks))
    first, last = _ends(layers)
    out = {}
    for i, layer in enumerate(layers):
        for name in layer.params():
            own = [tensors[f"{i}.{name}"] for tensors in networks]
            if isinstance(layer, ZenithBlock):
                gates = name.endswith(("gate", "threshold"))
                value = np.concatenate(own, axis=-1 if gates else 0)
            elif i == last:
                value = np.concatenate(own, axis=1) if name == "weight" else sum(own[1:], own[0])
                value = value / np.float32(len(own))
            elif name == "bias" or i == first:
                value = np.concatenate(own)
            else:
                value = _block_diagonal(own)
            out[f"{i}.{name}"] = value
    return out


def turned(layers: Layers, tensors: Tensors) -> dict[str, NDArray[np.float32]]:
    """Tensors of the network that does with a picture what this one does with it turned a quarter left.

    Exactly so where the sides are whole tiles: then turned tiles are tiles. Turned back, the result of the
    one is the other's.

    Raises
    ------
    ConfigError
        If there is another layer with weights than blocks and 1x1 convolutions, a separable transform, or a
        shuffle that no 1x1 convolution of one group follows or precedes.
    """
    out = {}
    for i, layer in enumerate(layers):
        before, after = layers[max(i - 1, 0)], layers[min(i + 1, len(layers) - 1)]
        beside = {PixelUnshuffle: after, PixelShuffle: before}.get(type(layer))
        if beside is not None and not (isinstance(beside, Linear) and beside.groups == 1):
            raise ConfigError(f"{layer} cannot be turned: there is no 1x1 convolution of one group beside it")
        if layer.params() and not isinstance(layer, Linear | ZenithBlock):
            raise ConfigError(f"{layer} cannot be turned")
        for name in layer.params():
            value = tensors[f"{i}.{name}"]
            if isinstance(layer, ZenithBlock):
                if name == "eyes.weight":
                    value = np.rot90(value, -1, (1, 2))
                elif name in ("gate", "threshold"):
                    # Frequencies change axes. That one axis is also reversed gives half of them another
                    # sign, which shrinkage passes on.
                    value = value.swapaxes(0, 1)
                elif name.startswith(("row_", "column_")):
                    raise ConfigError(f"{layer} cannot be turned: it does rows before columns")
            elif isinstance(layer, Linear):
                if isinstance(before, PixelUnshuffle) and name == "weight":
                    r = before.r
                    value = np.rot90(value.reshape(len(value), -1, r, r), -1, (2, 3)).reshape(value.shape)
                if isinstance(after, PixelShuffle):
                    r = after.r
                    pixels = value.reshape(-1, r, r, *value.shape[1:])
                    value = np.rot90(pixels, -1, (1, 2)).reshape(value.shape)
            out[f"{i}.{name}"] = np.ascontiguousarray(value)
    return out


def _ends(layers: Layers) -> tuple[int, int]:
    """Indices of the first and the last 1x1 convolution."""
    found = [i for i, layer in enumerate(layers) if isinstance(layer, Linear)]
    if len(found) < 2:
        raise ConfigError("streams begin and end with a 1x1 convolution each")
    return found[0], found[-1]


def _block_diagonal(matrices: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    rows, columns = matrices[0].shape
    out = np.zeros((len(matrices) * rows, len(matrices) * columns), np.float32)
    for k, matrix in enumerate(matrices):
        out[k * rows : (k + 1) * rows, k * columns : (k + 1) * columns] = matrix
    return out
