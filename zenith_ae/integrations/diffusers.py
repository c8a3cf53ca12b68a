"""Autoencoders in diffusion pipelines: the interface of diffusers' ``AutoencoderTiny``.

>>> from zenith_ae.integrations.diffusers import AutoencoderZenith
>>> pipe.vae = AutoencoderZenith.load("zenith-taef2")                       # doctest: +SKIP
>>> pipe.vae = AutoencoderZenith.load("taesd_encoder.safetensors")          # doctest: +SKIP

On a CPU without gradients the native engine computes; elsewhere the torch modules do, which are
the same model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from math import log2
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload
from zlib import crc32

from ..engine import Engine, create
from ..engine.geometry import multiple
from ..errors import ConfigError, MissingDependencyError, WeightsError
from ..models.spec import ModelConfig
from ..weights import Weights, available_weights, latent_numbers, load_weights, place_of

try:
    import torch
    import torch.nn.functional as F
    from diffusers import AutoencoderTiny, ConfigMixin, ModelMixin
    from diffusers.models.autoencoders.autoencoder_tiny import AutoencoderTinyOutput
    from diffusers.models.autoencoders.vae import AutoencoderMixin, DecoderOutput
    from torch import Tensor, nn
    from torch.nn.modules import module as every_module  # has the hooks of all

    from ..models.modules import Network
    from ..models.wht import is_plain

    if not TYPE_CHECKING:
        from diffusers.configuration_utils import register_to_config
        from diffusers.utils.accelerate_utils import apply_forward_hook
except ImportError as error:
    raise MissingDependencyError(
        "AutoencoderZenith needs diffusers 0.36 or newer: pip install 'zenith-ae[diffusers]' "
        f"({' '.join(str(error).split())})"
    ) from None

if TYPE_CHECKING:  # those of diffusers have no types, and take away those of what they decorate
    Function = TypeVar("Function", bound=Callable[..., Any])

    def apply_forward_hook(method: Function) -> Function: ...
    def register_to_config(init: Function) -> Function: ...


_WITHOUT_EFFECT = ("training", "gradient_checkpointing")  # on what a module computes
_PLAIN = (Tensor, nn.Parameter)  # others have operations of their own
# Where a model is downloaded from.
_HUB = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")


class Encoded(AutoencoderTinyOutput):
    """What `AutoencoderZenith.encode` returns: ``latents``, also as the distribution of a large VAE."""

    @property
    def latent_dist(self) -> Certain:
        return Certain(self.latents)


class Certain:
    """A distribution of latents that has one value."""

    def __init__(self, latents: Tensor) -> None:
        self.mean = latents

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.mean

    def mode(self) -> Tensor:
        return self.mean


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

    _supports_gradient_checkpointing = True
    if TYPE_CHECKING:  # type checkers see placeholders of diffusers' classes
        config: Any

        def __call__(self, sample: Tensor, return_dict: bool = True) -> Any: ...

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
        with torch.random.fork_rng(devices=[]):  # whoever has set a seed is to get the same picture
            for part, layers in self.definition.parts.items():
                self.add_module(part, Network(layers, self.definition.in_channels(part)))
        self._made = {part: _structure(self.get_submodule(part)) for part in self.definition.parts}
        self.bn = nn.BatchNorm2d(4 * latent_channels, eps=batch_norm_eps, affine=False)
        if self.bn.running_var is not None:
            self.bn.running_var.fill_(1 - batch_norm_eps)
        self.use_slicing = False
        self.use_tiling = False
        self.spatial_scale_factor = self.definition.factor
        # Sides of a tile with `enable_tiling`, in pixels and in latents; tiles need no overlap.
        self.tile_sample_min_size = 512
        self.tile_latent_min_size = 512 // self.definition.factor
        self.tile_overlap_factor = 0.125  # as an `AutoencoderTiny` has it; tiles here need none
        self.latent_magnitude, self.latent_shift = latent_magnitude, latent_shift
        self._native: dict[str, tuple[object, Engine]] = {}
        self._register_load_state_dict_pre_hook(_renamed, with_module=True)  # torch 2.2 has no public name

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Any:
        """As of every diffusers model; an `AutoencoderTiny`, in a folder or on a hub, is converted.

        Raises
        ------
        ConfigError
            If it is another kind of model, or the name of shipped weights, which `load` takes.
        """
        name = str(pretrained_model_name_or_path)
        if name in available_weights() and not os.path.isdir(name):
            raise ConfigError(f"{name} comes with zenith-ae: AutoencoderZenith.load({name!r}) takes it")
        hub = {name: options[name] for name in _HUB if name in options}
        config = cls.load_config(pretrained_model_name_or_path, **hub)
        kind = config.get("_class_name", cls.__name__)
        if kind not in (cls.__name__, "AutoencoderTiny"):
            raise ConfigError(
                f"{pretrained_model_name_or_path}: is an {kind}; this takes an AutoencoderTiny or an "
                f"{cls.__name__}"
            )
        if kind != "AutoencoderTiny":
            return super().from_pretrained(pretrained_model_name_or_path, **options)
        if options.pop("output_loading_info", False):
            raise ValueError("of an AutoencoderTiny, which is converted, there is no output_loading_info")
        tiny = AutoencoderTiny.from_pretrained(pretrained_model_name_or_path, **options)
        with TemporaryDirectory() as folder:
            path = Path(folder, os.path.basename(os.path.abspath(pretrained_model_name_or_path)) or "taesd")
            tiny.save_pretrained(path)
            try:
                return cls.load(path, tiny.dtype).to(tiny.device).requires_grad_(True)
            except WeightsError as error:  # the folder is gone by the time it is read
                given = os.fspath(pretrained_model_name_or_path)
                raise WeightsError(str(error).replace(str(path), given)) from None

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] | Weights,
        torch_dtype: torch.dtype | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> AutoencoderZenith:
        """From a name, a file or a folder, as `zenith_ae.load` takes them.

        Parameters
        ----------
        model : the name of shipped weights, a weights file (also of TAESD, TAESDXL, TAESD3, TAEF1,
            TAEF2), or a folder in diffusers layout.
        torch_dtype : of the parameters, default float32, which is exact. With a half type the native
            engine computes in what the CPU is fast in, as `zenith_ae.load` does: bf16, 16-bit integers or
            float32.
        dtype : another name for it, as diffusers has both.

        Returns
        -------
        The model in evaluation mode, its parameters without gradients.

        Raises
        ------
        WeightsError
            If the weights are missing, damaged or of no known architecture.
        ConfigError
            If it is no autoencoder, or ``torch_dtype`` no type of floats.
        """
        chosen = dtype if torch_dtype is None else torch_dtype
        if not (chosen is None or (isinstance(chosen, torch.dtype) and chosen.is_floating_point)):
            raise ConfigError(
                f"torch_dtype is to be a type of floats, such as torch.float16, got {chosen!r:.60}"
            )
        weights = model if isinstance(model, Weights) else load_weights(model)
        config = weights.config
        if config.kind != "autoencoder":
            raise ConfigError(f"{config.name} is of kind {config.kind}; a pipeline needs an autoencoder")
        numbers: dict[str, Any] = {**latent_numbers(weights)}
        made = cls(  # by keywords: diffusers forgets what came without
            model=config.to_json(),
            latent_channels=config.latent_channels,
            block_out_channels=(64,) * (int(log2(config.factor)) + 1),
            space="" if weights.space == weights.hash else weights.space,
            **numbers,
        ).float()  # whatever torch's default is
        state = {name: torch.from_numpy(tensor.copy()) for name, tensor in weights.tensors.items()}
        made.load_state_dict(state | {f"bn.{k}": v for k, v in made.bn.state_dict().items()})
        made.eval().requires_grad_(False)
        # ModelMixin's own `to` warns of any dtype.
        return made if chosen is None else nn.Module.to(made, chosen)

    # -- AutoencoderTiny's interface ---------------------------------------------------------

    @overload
    def encode(self, x: Tensor, return_dict: Literal[True] = True) -> Encoded: ...
    @overload
    def encode(self, x: Tensor, return_dict: Literal[False]) -> tuple[Tensor]: ...
    @apply_forward_hook
    def encode(self, x: Tensor, return_dict: bool = True) -> Encoded | tuple[Tensor]:
        """Latents (N, C, H / 8, W / 8) of pictures (N, 3, H, W) in [-1, 1], or of one without N."""
        _check_tensor("encoder", x)
        if x.ndim == 3:
            (latents,) = self.encode(x[None], return_dict=False)
            return Encoded(latents=latents[0]) if return_dict else (latents[0],)
        native = self._is_native("encoder", x)
        exact = x.float() if native else x  # the engine takes float32 anyway
        latents = self._run("encoder", exact / 2 + 0.5, native).to(x.dtype)
        return Encoded(latents=latents) if return_dict else (latents,)

    @overload
    def decode(
        self, x: Tensor, generator: torch.Generator | None = None, return_dict: Literal[True] = True
    ) -> DecoderOutput: ...
    @overload
    def decode(
        self, x: Tensor, generator: torch.Generator | None = None, *, return_dict: Literal[False]
    ) -> tuple[Tensor]: ...
    @apply_forward_hook
    def decode(
        self, x: Tensor, generator: torch.Generator | None = None, return_dict: bool = True
    ) -> DecoderOutput | tuple[Tensor]:
        """Pictures (N, 3, 8 h, 8 w), about [-1, 1], of latents (N, C, h, w), or one of those without N."""
        _check_tensor("decoder", x)
        if x.ndim == 3:
            (sample,) = self.decode(x[None], return_dict=False)
            return DecoderOutput(sample=sample[0]) if return_dict else (sample[0],)
        native = self._is_native("decoder", x)
        exact = x.float() if native else x
        sample = (self._run("decoder", exact, native) * 2 - 1).to(x.dtype)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample: Tensor, return_dict: bool = True) -> DecoderOutput | tuple[Tensor]:
        """The round trip of pictures (N, 3, H, W) in [-1, 1]."""
        decoded = self.decode(self.encode(sample).latents)
        return decoded if return_dict else (decoded.sample,)

    def scale_latents(self, x: Tensor) -> Tensor:
        """Latents as values in [0, 1], for storage in pictures."""
        return x.div(2 * self.latent_magnitude).add(self.latent_shift).clamp(0, 1)

    def unscale_latents(self, x: Tensor) -> Tensor:
        """The inverse of `scale_latents`."""
        return x.sub(self.latent_shift).mul(2 * self.latent_magnitude)

    # -- engines -----------------------------------------------------------------------------

    def _is_native(self, part: str, x: Tensor) -> bool:
        """Whether the native engine computes: on the CPU, without gradients, for the module as we made it.

        Others put hooks on it, which torch calls, or other layers into it, as for textures without seams,
        compile it, or keep its parameters elsewhere.
        """
        if part not in self.definition.parts:
            raise ConfigError(f"{self.definition.name} has no {part}; load a model that has one")
        channels = self.definition.in_channels(part)
        if x.ndim != 4 or x.shape[1] != channels or not x.is_floating_point():
            raise ValueError(
                f"{part}: this takes floats (N, {channels}, H, W), got {x.dtype} {tuple(x.shape)}"
            )
        module = self.get_submodule(part)
        if torch.compiler.is_compiling() or _structure(module) != self._made[part]:
            return False
        if any(m._forward_hooks or m._forward_pre_hooks or m._compiled_call_impl for m in module.modules()):
            return False
        if every_module._global_forward_hooks or every_module._global_forward_pre_hooks:
            return False
        tensors = [x, *module.parameters()]
        if all(t.dtype == torch.float64 for t in tensors):  # whose digits the engine does not have
            return False
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return False
        return all(t.device.type == "cpu" and type(t) in _PLAIN and is_plain(t) for t in tensors)

    def _run(self, part: str, x: Tensor, native: bool) -> Tensor:
        run = self._cpu if native else self._torch
        factor = self.definition.factor
        height, width = (n * factor if part == "decoder" else -(-n // factor) for n in x.shape[2:])
        x = _mirrored(x, self.definition.whole_tiles[part])
        pieces = x.split(1) if self.use_slicing else (x,)
        y = torch.cat([run(part, piece) for piece in pieces]) if len(pieces) > 1 else run(part, x)
        return y if y.shape[2:] == (height, width) else y[:, :, :height, :width].contiguous()

    def _torch(self, part: str, x: Tensor) -> Tensor:
        if not len(x):  # of which no (un)shuffle knows its channels
            return self._torch(part, x.new_zeros(1, *x.shape[1:]))[:0]
        step, (height, width) = multiple(self.definition.parts[part]), x.shape[2:]
        padded = F.pad(x, (0, -width % step, 0, -height % step), mode="replicate")
        y: Tensor = self.get_submodule(part)(padded)
        return y

    def _cpu(self, part: str, x: Tensor) -> Tensor:
        values = x.detach().float().permute(0, 2, 3, 1).contiguous().numpy()
        side = (
            self.tile_latent_min_size * self.definition.factor
            if part == "decoder"
            else self.tile_sample_min_size
        )
        try:
            engine = self._engine(part)
        except WeightsError:  # of parameters that are not finite, whose results are to be seen as in training
            return self._torch(part, x.to(self.dtype)).to(x.dtype)
        y = engine.run(part, values, tile=side if self.use_tiling else "auto")
        return torch.from_numpy(y).permute(0, 3, 1, 2).contiguous()

    def _engine(self, part: str) -> Engine:
        """The native engine of a part with the parameters as they are now."""
        parameters = {f"{part}.{name}": p for name, p in self.get_submodule(part).named_parameters()}
        # What goes through `.data`, as diffusers' EMAModel does, changes no version, but the checksum.
        state = tuple(
            (p.data_ptr(), p.dtype, 0 if p.is_inference() else p._version, _checksum(p))
            for p in parameters.values()
        )
        if part not in self._native or self._native[part][0] != state:
            tensors = {name: p.detach().float().numpy() for name, p in parameters.items()}
            alone = replace(self.definition, parts={part: self.definition.parts[part]})
            halves = {p.dtype for p in parameters.values()} <= {torch.float16, torch.bfloat16}
            dtype = "auto" if halves else "float32"
            self._native[part] = (state, create(Weights(alone, tensors), device="cpu", dtype=dtype))
        return self._native[part][1]

    def __getstate__(self) -> dict[str, Any]:
        # An engine is no data, nor is what `compile` made, which computes with the original's parameters.
        return self.__dict__ | {"_native": {}, "_compiled_call_impl": None}


def _check_tensor(part: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(f"{part}: this takes a torch tensor (N, C, H, W), not {type(x).__name__}")


def _renamed(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Let a model take the state dict of an `AutoencoderTiny`: the names of its layers, and no statistics."""
    theirs = [
        name for name in state if name.startswith((f"{prefix}encoder.layers.", f"{prefix}decoder.layers."))
    ]
    for name in theirs:
        if place := place_of(name.removeprefix(prefix)):
            state[prefix + ".".join(place)] = state.pop(name)
    if theirs:
        for name, value in module.get_submodule("bn").state_dict().items():
            state.setdefault(f"{prefix}bn.{name}", value)


def _structure(module: nn.Module) -> list[tuple[str, type, dict[str, Any]]]:
    """What a module computes with beside parameters: layers, their settings and any ``forward`` of one."""
    return [
        (name, type(m), {k: v for k, v in vars(m).items() if k[0] != "_" and k not in _WITHOUT_EFFECT})
        for name, m in module.named_modules()
    ]


def _checksum(parameter: Tensor) -> int:
    """Of the bytes, by no operation of torch's, which modes and defaults that are none of ours change."""
    return crc32(parameter.detach().contiguous().flatten().view(torch.uint8).numpy().data)
