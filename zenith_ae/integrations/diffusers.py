"""Autoencoders in diffusion pipelines: the interface of diffusers' ``AutoencoderTiny``.

>>> from zenith_ae.integrations.diffusers import AutoencoderZenith
>>> pipe.vae = AutoencoderZenith.load("zenith-taef2")                       # doctest: +SKIP
>>> pipe.vae = AutoencoderZenith.load("taesd_encoder.safetensors")          # doctest: +SKIP

On a CPU without gradients the native engine computes; elsewhere the torch modules do, which are
the same model.
"""

from __future__ import annotations

import os
from functools import cache
from math import log2
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine import Engine, create
from ..engine.geometry import multiple
from ..errors import ConfigError, MissingDependencyError
from ..models.modules import build_module
from ..models.spec import ModelConfig
from ..weights import Weights, load_weights

try:
    from diffusers import ConfigMixin, ModelMixin
    from diffusers.configuration_utils import register_to_config
    from diffusers.models.autoencoders.autoencoder_tiny import AutoencoderTinyOutput
    from diffusers.models.autoencoders.vae import AutoencoderMixin, DecoderOutput
    from diffusers.utils.accelerate_utils import apply_forward_hook
except ImportError:
    raise MissingDependencyError(
        "AutoencoderZenith needs diffusers 0.36 or newer: pip install 'zenith-ae[diffusers]'"
    ) from None

__all__ = ["AutoencoderZenith"]

TILE = 512  # pixels, the side of a tile with `enable_tiling`


def _mirrored(x: Tensor, cell: int) -> Tensor:
    """(N, C, H, W) mirrored at the bottom and right up to multiples of ``cell``, as `Autoencoder` does."""
    for axis, size in ((2, x.shape[2]), (3, x.shape[3])):
        if short := -size % cell:
            at = torch.arange(size + short, device=x.device) % (2 * size)
            x = x.index_select(axis, torch.minimum(at, 2 * size - 1 - at))
    return x


class AutoencoderZenith(ModelMixin, AutoencoderMixin, ConfigMixin):
    """A zenith-ae autoencoder, or one of the TAESD family, in the place of a pipeline's ``vae``.

    Pictures are (N, 3, H, W) in [-1, 1] and latents (N, C, H / 8, W / 8) in the domain of the
    diffusion model, so ``config.scaling_factor`` is 1 and ``config.shift_factor`` 0. Pictures whose
    sides are no multiples of 8 are continued as `zenith_ae.Autoencoder` does. `load` makes one from
    weights; ``save_pretrained`` and ``from_pretrained`` work too.

    FLUX.2 pipelines normalise latents by the statistics of a layer ``vae.bn``. TAEF2 and its
    students speak the normalised latents, so that ``bn`` here changes nothing.

    Parameters
    ----------
    model : the definition of the model, `ModelConfig.to_json`.
    latent_channels, in_channels, out_channels, block_out_channels : what pipelines ask for; they
        follow from ``model``.
    latent_magnitude, latent_shift : of `scale_latents`.
    space : the latent space, where it is not the model's own (`Weights.space`).
    """

    @register_to_config
    def __init__(
        self,
        model: str,
        latent_channels: int = 4,
        in_channels: int = 3,
        out_channels: int = 3,
        block_out_channels: tuple[int, ...] = (64, 64, 64, 64),
        latent_magnitude: float = 3.0,
        latent_shift: float = 0.5,
        scaling_factor: float = 1.0,
        shift_factor: float = 0.0,
        batch_norm_eps: float = 1e-4,
        force_upcast: bool = False,
        space: str = "",
    ) -> None:
        super().__init__()
        self.definition = ModelConfig.from_json(model)
        for part, layers in self.definition.parts.items():
            self.add_module(part, build_module(layers, self.definition.in_channels(part)))
        self.bn = nn.BatchNorm2d(4 * latent_channels, eps=batch_norm_eps, affine=False)
        if self.bn.running_var is not None:
            self.bn.running_var.fill_(1 - batch_norm_eps)
        self.use_slicing = False
        self.use_tiling = False
        self._native: tuple[object, Engine] | None = None

    @classmethod
    def load(
        cls, model: str | os.PathLike[str] | Weights, torch_dtype: torch.dtype | None = None
    ) -> AutoencoderZenith:
        """From a name, a file or a folder, as `zenith_ae.load` takes them.

        Parameters
        ----------
        model : the name of shipped weights, a weights file (also of TAESD, TAESDXL, TAESD3, TAEF1,
            TAEF2), or a folder in diffusers layout.
        torch_dtype : of the parameters, default float32, which is exact. With a half type the native
            engine computes in bf16 where the CPU has instructions for it, else in float32.

        Returns
        -------
        The model in evaluation mode, its parameters without gradients.

        Raises
        ------
        WeightsError
            If the weights are missing, damaged or of no known architecture.
        ConfigError
            If it is no autoencoder.
        """
        weights = model if isinstance(model, Weights) else load_weights(model)
        config = weights.config
        if config.kind != "autoencoder":
            raise ConfigError(f"{config.name} is of kind {config.kind}; a pipeline needs an autoencoder")
        made = cls(
            config.to_json(),
            latent_channels=config.latent_channels,
            block_out_channels=(64,) * (int(log2(config.factor)) + 1),
            space="" if weights.space == weights.hash else weights.space,
        )
        state = {name: torch.from_numpy(tensor.copy()) for name, tensor in weights.tensors.items()}
        made.load_state_dict(state | {f"bn.{k}": v for k, v in made.bn.state_dict().items()})
        made.eval().requires_grad_(False)
        return made if torch_dtype is None else made.to(torch_dtype)

    # -- AutoencoderTiny's interface ---------------------------------------------------------

    @apply_forward_hook
    def encode(self, x: Tensor, return_dict: bool = True) -> AutoencoderTinyOutput | tuple[Tensor]:
        """Latents (N, C, H / 8, W / 8) of pictures (N, 3, H, W) in [-1, 1]."""
        latents = self._run("encoder", x / 2 + 0.5)
        return AutoencoderTinyOutput(latents=latents) if return_dict else (latents,)

    @apply_forward_hook
    def decode(
        self, x: Tensor, generator: torch.Generator | None = None, return_dict: bool = True
    ) -> DecoderOutput | tuple[Tensor]:
        """Pictures (N, 3, 8 h, 8 w), about [-1, 1], of latents (N, C, h, w)."""
        sample = self._run("decoder", x) * 2 - 1
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample: Tensor, return_dict: bool = True) -> DecoderOutput | tuple[Tensor]:
        """The round trip of pictures (N, 3, H, W) in [-1, 1]."""
        decoded: DecoderOutput | tuple[Tensor] = self.decode(
            self.encode(sample).latents, return_dict=return_dict
        )
        return decoded

    def scale_latents(self, x: Tensor) -> Tensor:
        """Latents as values in [0, 1], for storage in pictures."""
        return x.div(2 * self.config.latent_magnitude).add(self.config.latent_shift).clamp(0, 1)

    def unscale_latents(self, x: Tensor) -> Tensor:
        """The inverse of `scale_latents`."""
        return x.sub(self.config.latent_shift).mul(2 * self.config.latent_magnitude)

    # -- engines -----------------------------------------------------------------------------

    def _run(self, part: str, x: Tensor) -> Tensor:
        if part not in self.definition.parts:
            raise ConfigError(f"{self.definition.name} has no {part}; load a model that has one")
        module = self.get_submodule(part)
        learning = torch.is_grad_enabled() and (
            x.requires_grad or any(p.requires_grad for p in module.parameters())
        )
        if x.device.type != "cpu" or learning or torch.compiler.is_compiling():
            run = self._torch
        else:
            run = self._cpu
        factor = self.definition.factor
        height, width = (n * factor if part == "decoder" else -(-n // factor) for n in x.shape[2:])
        x = _mirrored(x, self.definition.whole_tiles[part])
        pieces = x.split(1) if self.use_slicing else (x,)
        y = torch.cat([run(part, piece) for piece in pieces]) if len(pieces) > 1 else run(part, x)
        return y[:, :, :height, :width]

    def _torch(self, part: str, x: Tensor) -> Tensor:
        step, (height, width) = multiple(self.definition.parts[part]), x.shape[2:]
        padded = F.pad(x, (0, -width % step, 0, -height % step), mode="replicate")
        y: Tensor = self.get_submodule(part)(padded)
        return y

    def _cpu(self, part: str, x: Tensor) -> Tensor:
        values = x.detach().float().permute(0, 2, 3, 1).contiguous().numpy()
        y = self._engine().run(part, values, tile=TILE if self.use_tiling else "auto")
        return torch.from_numpy(y).permute(0, 3, 1, 2).to(x.dtype)

    def _engine(self) -> Engine:
        """The native engine of the parameters as they are now."""
        parameters = dict(self.named_parameters())
        # What goes through `.data`, as diffusers' EMAModel does, changes no version, but the sums.
        state = tuple(
            (p.data_ptr(), 0 if p.is_inference() else p._version, *_sums(p.detach()))
            for p in parameters.values()
        )
        if self._native is None or self._native[0] != state:
            tensors = {name: p.detach().float().numpy() for name, p in parameters.items()}
            weights = Weights(self.definition, tensors)
            dtype = "auto" if self.dtype in (torch.float16, torch.bfloat16) else "float32"
            self._native = (state, create(weights, device="cpu", dtype=dtype))
        return self._native[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_native": None}  # an engine is no data


@cache
def _ramp(count: int) -> Tensor:
    return torch.linspace(1, 2, count)


def _sums(parameter: Tensor) -> tuple[float, float]:
    """Two sums of a parameter, of which the second changes with the order of its values too."""
    flat = parameter.flatten().float()
    return float(flat.sum()), float(flat @ _ramp(len(flat)))
