"""TAESD's architecture as plain torch modules, the peer that our speed is compared with.

Random weights: speed does not depend on them. Source of the architecture:
https://github.com/madebyollin/taesd
"""

from __future__ import annotations

from torch import nn

from zenith_ae.models import zoo
from zenith_ae.models.modules import build_module


def taesd(latent_channels: int = 4) -> tuple[nn.Module, nn.Module]:
    """Encoder and decoder in evaluation mode. They are `nn.Sequential`s of torch's own modules."""
    config = zoo.build("taesd", latent_channels)
    parts = (build_module(config.parts[p], config.in_channels(p)).eval() for p in ("encoder", "decoder"))
    encoder, decoder = parts
    return encoder, decoder
