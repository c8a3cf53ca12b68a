"""Weights files: our own safetensors, and other people's TAESD-family files recognised by content.

Our files hold every tensor under the names of `ModelConfig.params` and carry their config in the
safetensors metadata (``format``, ``format_version``, ``config``). Files of the TAESD family carry
no config; it is read from their keys and shapes, in any of these layouts:

* original, one file a part: ``0.weight``, ``1.conv.0.weight``, ... (a pair named
  ``*_encoder.safetensors`` and ``*_decoder.safetensors`` is loaded together),
* original, one file: the same below ``encoder.`` and ``decoder.``,
* diffusers ``AutoencoderTiny``: ``encoder.layers.N...`` and ``decoder.layers.N...``, where the
  decoder has no layer for the clamp and so counts from one less.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import DTypeLike, NDArray

from .errors import ConfigError, MissingDependencyError, OutputError, WeightsError, in_short
from .files import as_text, atomic_writer, reason, safetensors_bytes, visible, write_together
from .latents import LATENT_FORMAT
from .latents import SUFFIX as LATENT_SUFFIX
from .models import zoo
from .models.spec import ModelConfig, cached_property

Taesd = Literal["taesd", "taef2"]

FORMAT = "zenith-ae"
FORMAT_VERSION = 1

_DIFFUSERS_FILE = "diffusion_pytorch_model"
#: How pipelines scale latents, and what they do where weights do not say.
_LATENT_NUMBERS = {"scaling_factor": 1.0, "shift_factor": 0.0, "latent_magnitude": 3, "latent_shift": 0.5}
_PARTS = ModelConfig.PARTS["autoencoder"]
# Numbers in a safetensors file, and how numpy calls them. Those of a BF16 are the upper half of a float32.
_NUMBERS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
_PICKLES = (".pth", ".pt", ".bin")  # of torch; the last is what older diffusers wrote
SUFFIXES = (".safetensors", *_PICKLES)

# What an `AutoencoderTiny` may have otherwise, and its tensors do not tell.
_ONLY = {"act_fn": "relu", "upsample_fn": "nearest", "upsampling_scaling_factor": 2}

_CLASSES = ("AutoencoderTiny", "AutoencoderZenith")  # of a config.json
_OF_COMFYUI = ("vae_scale", "vae_shift")  # numbers in its files, from Stable Diffusion's latents to a TAESD's

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Weights:
    """A model: its config and every tensor that the config names.

    Parameters
    ----------
    config : what the tensors belong to.
    tensors : name -> array, exactly the names and shapes of ``config.params()``; kept as copies,
        C-contiguous float32, which are not to be changed: `hash` says what they are.
    metadata : text that travels with the file: ``teacher_hash`` and ``space`` say whose latents the
        model reads (`space`), all else is free (licence, training data, ...).

    Raises
    ------
    WeightsError
        If a tensor is missing, unknown, of the wrong shape or dtype, or not finite.
    """

    config: ModelConfig
    tensors: Mapping[str, NDArray[np.float32]]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, tensor in self.tensors.items():
            if (dtype := np.asarray(tensor).dtype).kind != "f":  # quantised, by scales that are not here
                raise WeightsError(f"{self.config.name}: tensor {name} holds {dtype}, not floats")
        _check_shapes(self.config, self.tensors)  # before the copy: a shape can say more than a file holds
        with np.errstate(over="ignore"):  # an overflow is reported by the check
            tensors = {name: np.array(t, np.float32, order="C") for name, t in self.tensors.items()}
        _check_finite(self.config, tensors)
        object.__setattr__(self, "tensors", tensors)

    @cached_property
    def hash(self) -> str:
        """16 hexadecimal digits that identify config and values."""
        digest = hashlib.sha256(self.config.to_json().encode())
        for name in sorted(self.tensors):
            digest.update(name.encode() + b"\0")
            digest.update(self.tensors[name].tobytes())
        return digest.hexdigest()[:16]

    @property
    def space(self) -> str:
        """Identifies the latent space: models that have it in common read each other's latents.

        That of a student is its teacher's, that of a TAESD-family pair follows from its values whatever
        its files are called, that of any other model is its hash.
        """
        return self.metadata.get("teacher_hash") or self.metadata.get("space") or self.hash

    def part(self, part: str) -> dict[str, NDArray[np.float32]]:
        """The tensors of one part, named ``{layer index}.{parameter}`` as in its torch module."""
        return _of_part(part, self.tensors)


def _of_part(part: str, tensors: Mapping[str, NDArray[Any]]) -> Tensors:
    prefix = part + "."
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _check_shapes(config: ModelConfig, tensors: Mapping[str, NDArray[Any]]) -> None:
    expected = config.params()
    if missing := expected.keys() - tensors.keys():
        raise WeightsError(f"{config.name}: missing tensor {_some(missing)}")
    if unknown := tensors.keys() - expected.keys():
        raise WeightsError(f"{config.name}: unknown tensor {_some(unknown)}")
    for name, shape in expected.items():
        if (found := np.shape(tensors[name])) != shape:
            raise WeightsError(f"{config.name}: tensor {name} has shape {found}, expected {shape}")


def _check_finite(config: ModelConfig, tensors: Mapping[str, NDArray[Any]]) -> None:
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise WeightsError(f"{config.name}: tensor {name} holds values that are not finite")


def _stored(config: ModelConfig, tensors: Mapping[str, NDArray[Any]], dtype: DTypeLike) -> Tensors:
    """All tensors of a model as a file is to hold them; WeightsError where it cannot."""
    try:
        fits = np.dtype(dtype) in (np.float16, np.float32)
    except TypeError:
        fits = False
    if not fits:
        raise WeightsError(f"{config.name}: weights are stored as float16 or float32, not {in_short(dtype)}")
    _check_shapes(config, tensors)
    with np.errstate(over="ignore"):  # an overflow is reported by the check
        stored = {name: np.ascontiguousarray(t, dtype) for name, t in tensors.items()}
    _check_finite(config, stored)
    return stored


def _some(names: set[str]) -> str:
    first = min(names)
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def available_weights() -> dict[str, Path]:
    """The models that ship with the package: name -> file, sorted by name."""
    # Installed, the folder is the data package zenith_ae._weights; in a bare checkout it lies beside us.
    spec = importlib.util.find_spec("zenith_ae._weights")
    installed = spec.submodule_search_locations if spec else None
    folders = [Path(f) for f in installed or ()] or [Path(__file__).resolve().parents[1] / "weights"]
    files = [file for folder in folders for file in folder.glob("[!.]*.safetensors")]
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}


def load_weights(path_or_name: str | os.PathLike[str]) -> Weights:
    """Read a model.

    Parameters
    ----------
    path_or_name : a name from `available_weights`, a ``.safetensors`` file (ours or of the TAESD
        family), a ``.pth`` file of the TAESD family (needs torch; nothing but tensors is unpickled),
        or a folder in diffusers layout. A string that is both is the name; ``./name`` and every
        `Path` are a file or folder.

    Raises
    ------
    WeightsError
        If there is no such model or the file is damaged or of an unknown architecture.
    MissingDependencyError
        For a ``.pth`` file without torch.
    """
    if not isinstance(path_or_name, (str, os.PathLike)):
        raise WeightsError(f"a model is a name, a file or a folder, not {type(path_or_name).__name__}")
    # Names first: a folder that happens to have a model's name must not hide the model.
    shipped = available_weights()
    name = path_or_name if isinstance(path_or_name, str) else ""
    path = shipped.get(name, Path(path_or_name))
    if path_or_name == "":
        raise WeightsError("the name of the model is empty (a variable that is not set?)")
    if not os.path.exists(path):  # Path.exists raises where a folder may not be entered
        if os.fspath(path_or_name) in shipped:  # a Path, which is never a name
            raise WeightsError(
                f"{path}: no such file; the model of that name is asked for by text, not a Path"
            )
        names = ", ".join(shipped) or "none"
        if name in zoo.ARCHITECTURES:
            what = "an architecture that comes without weights; give a file of them"
            raise WeightsError(f"{name}: {what}, or a shipped model ({names})")
        raise WeightsError(visible(f"{path_or_name}: no such file or shipped model (shipped: {names})"))
    with _naming(path):
        return _load_folder(path) if path.is_dir() else _load_file(path)


@contextlib.contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """Has errors begin with the name of the file that they are about."""
    try:
        yield
    except (WeightsError, ConfigError) as error:
        raise WeightsError(visible(f"{path}: {error}")) from None  # names in a file may be anything


def _weight_files(folder: Path, start: str = "") -> list[Path]:
    """The files of weights whose names begin so, sorted; of torch only where there is no safetensors file."""
    files = sorted(
        file
        for file in folder.glob(f"{start}*")
        if not file.name.endswith(LATENT_SUFFIX) and not file.name.startswith(".")  # as macOS leaves them
    )
    return [file for file in files if file.suffix == ".safetensors"] or [
        file for file in files if file.suffix in _PICKLES
    ]


def _load_folder(folder: Path) -> Weights:
    try:
        with os.scandir(folder):  # glob finds nothing where it may not look
            pass
    except OSError as error:
        raise WeightsError(f"this folder cannot be read: {reason(error)}") from None
    # Beside a variant (.fp16) the plain file comes first, as in diffusers.
    files = sorted(_weight_files(folder, _DIFFUSERS_FILE), key=lambda file: file.stem != _DIFFUSERS_FILE)
    if any(folder.glob(f"{_DIFFUSERS_FILE}*.safetensors.index.json")) and not (
        files and files[0].stem == _DIFFUSERS_FILE
    ):
        raise WeightsError("the weights are in several files (shards); save them in one")
    if not files:
        others = _weight_files(folder)
        models = {_halves(file)[0] for file in others}
        if len(models) == 1:  # of another layout: one file, or an encoder beside its decoder
            with _naming(others[0].name):
                return _load_file(others[0])
        if not models:
            raise WeightsError("this folder holds no weights; name a weights file, or a folder with one")
        raise WeightsError(f"this folder holds several models, name one: {_some(models)}")
    metadata, definition = {}, None
    with contextlib.suppress(FileNotFoundError):
        try:
            config = json.loads((folder / "config.json").read_text("utf-8"))
            if (kind := config.get("_class_name", _CLASSES[0])) not in _CLASSES:
                raise WeightsError(
                    f"config.json is of an {in_short(kind)}; only {' and '.join(_CLASSES)} are known"
                )
            for option, known in _ONLY.items():
                if (found := config.get(option, known)) != known:
                    raise WeightsError(f"config.json says {option} {found!r}; only {known!r} is known")
            kept = (*_LATENT_NUMBERS, "space")
            metadata = {k: str(config[k]) for k in kept if config.get(k) not in (None, "")}
            definition = config.get("model") if config.get("_class_name") == "AutoencoderZenith" else None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, FileNotFoundError | WeightsError):
                raise
            raise WeightsError(f"config.json is not readable: {error}") from None
    with _naming(files[0].name):
        if definition is not None:  # of `zenith_ae.integrations.diffusers`, whose `bn` has nothing learned
            tensors, _ = _read(files[0])
            named = {key: t for key, t in tensors.items() if not key.startswith("bn.")}
            return Weights(ModelConfig.from_json(str(definition)), named, metadata)
        weights = _load_file(files[0], folder.resolve().name)
        return replace(weights, metadata={**metadata, **weights.metadata})


def _halves(path: Path) -> tuple[str, str, str]:
    """Of a file NAME_encoder or NAME_decoder: NAME, which part it is, and the other one; "" of all others."""
    name, mark, part = path.stem.rpartition("_")
    return (name, part, _PARTS[1 - _PARTS.index(part)]) if mark and part in _PARTS else (path.stem, "", "")


def other_half(path: Path) -> Path | None:
    """The file that is loaded beside NAME_encoder or NAME_decoder as the other part, if there is one."""
    name, _, other = _halves(path)
    files = (path.with_name(f"{name}_{other}{suffix}") for suffix in (path.suffix, *SUFFIXES))
    return next(filter(Path.exists, files), None) if other else None


def _load_file(path: Path, name: str | None = None) -> Weights:
    tensors, metadata = _read(path)
    if metadata.get("format") == FORMAT:
        return _native(tensors, metadata)
    base, part, other = _halves(path)
    if part and _is_single(tensors):
        if sibling := other_half(path):
            more, _ = _read(sibling)
            if not _is_single(more):
                raise WeightsError(f"{sibling.name} beside it is no {other} of the TAESD family")
            tensors = {f"{part}.{k}": t for k, t in tensors.items()} | {
                f"{other}.{k}": t for k, t in more.items()
            }
        name = base
    return _taesd(name or path.stem, tensors, metadata)


def _read(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Tensors and metadata of a file, as they are stored but for bfloat16, which numpy lacks."""
    try:
        with open(path, "rb") as opened:  # the library says of all that it cannot open that it is not there
            head = opened.read(10)
    except OSError as error:
        raise WeightsError(f"cannot be read: {reason(error)}") from None
    if path.suffix.lower() in _PICKLES and head[8:] != b'{"':  # as safetensors of any ending begin
        return _read_pickle(path), {}
    try:
        with safetensors.safe_open(path, "np") as file:
            metadata = dict(file.metadata() or {})
            dtypes = {key: str(file.get_slice(key).get_dtype()) for key in file.keys()}  # noqa: SIM118
            if unknown := set(dtypes.values()) - _NUMBERS.keys():
                raise WeightsError(f"holds numbers of type {min(unknown)}; convert them to F16, BF16 or F32")
            if metadata.get("format") == LATENT_FORMAT:
                raise WeightsError("is a latent file, not weights; `zenith-ae decode` makes a picture of it")
            if dtypes and metadata.get("format") != FORMAT and not any(map(_is_of_family, dtypes)):
                _unknown(min(dtypes))  # before gigabytes are read
            if "BF16" not in dtypes.values():
                return {key: file.get_tensor(key) for key in dtypes}, metadata
        raw = {key: value for key, value in safetensors.deserialize(path.read_bytes())}
        return {key: _from_raw(value) for key, value in raw.items()}, metadata
    except WeightsError:
        raise
    except (safetensors.SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise WeightsError(f"not a readable safetensors file: {error}") from None


def _from_raw(raw: Mapping[str, Any]) -> NDArray[Any]:
    flat: NDArray[Any] = np.frombuffer(bytes(raw["data"]), _NUMBERS[raw["dtype"]])
    if raw["dtype"] == "BF16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.reshape(raw["shape"])


def _read_pickle(path: Path) -> Tensors:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            f"{path}: reading {path.suffix} files needs torch: pip install 'zenith-ae[torch]'"
        ) from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        for value in state.values():  # a view may repeat a few numbers to any size
            if value.numel() * value.element_size() > value.untyped_storage().nbytes():
                raise ValueError
        half = torch.bfloat16  # which numpy lacks
        return {
            str(key): (value.detach().float() if value.dtype == half else value.detach()).numpy()
            for key, value in state.items()
        }
    except Exception:  # torch raises a dozen unrelated types, and advises what is not safe
        raise WeightsError(f"damaged, or not a {path.suffix} file of named tensors alone") from None


def _native(tensors: Tensors, metadata: dict[str, str]) -> Weights:
    version = metadata.pop("format_version", "?")
    if version != str(FORMAT_VERSION):
        raise WeightsError(f"format version {version} is not supported, only {FORMAT_VERSION}")
    config = ModelConfig.from_json(metadata.pop("config", ""))
    metadata.pop("format")
    return Weights(config, tensors, metadata)


def _is_single(tensors: Tensors) -> bool:
    return bool(tensors) and all(map(_is_numbered, tensors))


def _is_numbered(key: str) -> bool:
    return re.match(r"\d{1,4}\.", key) is not None


def _is_of_family(key: str) -> bool:
    """Whether a TAESD, or what diffusers makes of a model, may have a tensor of this name."""
    return _is_numbered(key) or key in _OF_COMFYUI or place_of(key) is not None


def _unknown(key: str) -> NoReturn:
    raise WeightsError(f"unknown architecture (tensor {key!r}, and no zenith-ae metadata)")


def place_of(key: str) -> tuple[str, str] | None:
    """Part, and name there, of a tensor of a TAESD, as it is, in diffusers or in ComfyUI; None for others."""
    match = re.fullmatch(r"(?:taesd_)?(encoder|decoder)\.(layers\.)?(\d{1,4})(\..+)", key)
    if match is None:
        return None
    part, diffusers, index, rest = match.groups()
    shift = 1 if diffusers and part == "decoder" else 0  # the clamp is no layer there
    return part, f"{int(index) + shift}{rest}"


def _taesd(name: str, tensors: Tensors, metadata: dict[str, str]) -> Weights:
    """Recognise a model of the TAESD family by its keys and shapes."""
    parts: dict[str, Tensors] = {}
    tensors = {key: tensor for key, tensor in tensors.items() if key not in _OF_COMFYUI}
    for key in tensors:
        if not _is_of_family(key):
            _unknown(key)
    if _is_single(tensors):
        parts["encoder" if "0.weight" in tensors else "decoder"] = dict(tensors)
    else:
        for key, tensor in tensors.items():
            place = place_of(key)
            if place is None:
                _unknown(key)
            parts.setdefault(place[0], {})[place[1]] = tensor
    latents = set()
    for part, entries in parts.items():
        last = max((int(key.split(".")[0]) for key in entries), default=0)
        key, axis = (f"{last}.weight", 0) if part == "encoder" else ("1.weight", 1)
        if key not in entries or entries[key].ndim != 4:
            raise WeightsError(f"unknown architecture (no tensor {part}.{key} of a 3x3 convolution)")
        latents.add(entries[key].shape[axis])
    if len(latents) != 1:
        found = ", ".join(str(n) for n in sorted(latents)) or "no"
        raise WeightsError(f"unknown architecture ({found} latent channels)")
    pool = any(".pool." in key for entries in parts.values() for key in entries)
    config = zoo.build("taef2" if pool else "taesd", latents.pop())
    config = replace(config, parts={part: config.parts[part] for part in _PARTS if part in parts})
    named = {f"{part}.{key}": t for part, entries in parts.items() for key, t in entries.items()}
    space = Weights(config, named).hash  # before the file's name gets into it
    return Weights(replace(config, name=as_text(name)), named, {**metadata, "space": space})


def save_weights(
    path: str | os.PathLike[str],
    config: ModelConfig,
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    dtype: DTypeLike = np.float16,
) -> None:
    """Write a weights file; an existing one is replaced only by a complete new one.

    Parameters
    ----------
    path : the ``.safetensors`` file.
    config, tensors : as in `Weights`.
    metadata : more texts to store.
    dtype : how values are stored, float16 or float32.

    Raises
    ------
    WeightsError
        If the tensors do not fit the config or are not finite in ``dtype``, or it is another one.
    OutputError
        If the file cannot be written.
    """
    stored = _stored(config, tensors, dtype)
    texts = {
        **{as_text(k): as_text(v) for k, v in (metadata or {}).items()},
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "config": config.to_json(),
    }
    data = safetensors_bytes(stored, texts)
    with atomic_writer(Path(path)) as file:
        file.write(data)


def taesd_files(path: str | os.PathLike[str]) -> dict[str, Path]:
    """The pair of files of the original layout, by part, from the name of one of them.

    Raises
    ------
    WeightsError
        If the name ends in neither ``_encoder.safetensors`` nor ``_decoder.safetensors``.
    """
    path = Path(path)
    base, part, _ = _halves(path)
    if not part or path.suffix != ".safetensors":
        raise WeightsError(f"{path}: name it NAME_encoder.safetensors; the decoder goes beside it")
    return {part: path.with_name(f"{base}_{part}.safetensors") for part in _PARTS}


def save_taesd(path: str | os.PathLike[str], weights: Weights, dtype: DTypeLike = np.float32) -> None:
    """Write a model of the TAESD family in its original layout, a file for each part that it has.

    How pipelines scale the latents, if the weights say so, is in the files' metadata.
    All of them are whole on the disk before the first replaces one that was there.

    Raises
    ------
    WeightsError
        If the model is of another family or not finite in ``dtype``, the name is not that of a part
        (`taesd_files`), or what scales the latents is no number.
    OutputError
        If a file cannot be written.
    """
    taesd_architecture(weights.config)
    files = taesd_files(path)
    stored = _stored(weights.config, weights.tensors, dtype)
    numbers = {name: str(number) for name, number in latent_numbers(weights).items()}
    write_together({files[p]: safetensors_bytes(_of_part(p, stored), numbers) for p in weights.config.parts})


def save_diffusers(folder: str | os.PathLike[str], weights: Weights, dtype: DTypeLike = np.float32) -> None:
    """Write a model of the TAESD family as diffusers stores an ``AutoencoderTiny``.

    Raises
    ------
    WeightsError
        If the model is of another family, has only one part, or TAEF2's pool stage, for which
        ``AutoencoderTiny`` has no place, or is not finite in ``dtype``.
    OutputError
        If a file cannot be written.
    """
    if taesd_architecture(weights.config) == "taef2":
        raise WeightsError(f"{weights.config.name}: diffusers' AutoencoderTiny has no pool stage; use taesd")
    if set(weights.config.parts) != set(_PARTS):
        raise WeightsError(f"{weights.config.name}: diffusers' layout needs encoder and decoder")
    tensors = {}
    for name, tensor in _stored(weights.config, weights.tensors, dtype).items():
        part, index, rest = name.split(".", 2)
        shift = 1 if part == "decoder" else 0
        tensors[f"{part}.layers.{int(index) - shift}.{rest}"] = tensor
    config = {
        "_class_name": "AutoencoderTiny",
        "act_fn": "relu",
        "decoder_block_out_channels": [64] * 4,
        "encoder_block_out_channels": [64] * 4,
        "force_upcast": False,
        "in_channels": 3,
        "latent_channels": weights.config.latent_channels,
        "num_decoder_blocks": [3, 3, 3, 1],
        "num_encoder_blocks": [1, 3, 3, 3],
        "out_channels": 3,
        "upsampling_scaling_factor": 2,
        **_LATENT_NUMBERS,
        **latent_numbers(weights),
    }
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot make the folder: {reason(error)}") from None
    write_together(
        {
            folder / f"{_DIFFUSERS_FILE}.safetensors": safetensors_bytes(tensors, {"format": "pt"}),
            folder / "config.json": (json.dumps(config, indent=2) + "\n").encode(),
        }
    )


def latent_numbers(weights: Weights) -> dict[str, float]:
    """How a pipeline scales the latents of a model, as far as its metadata says so: name -> number.

    Raises
    ------
    WeightsError
        If it says something else than a number.
    """
    try:
        return {name: float(weights.metadata[name]) for name in _LATENT_NUMBERS if name in weights.metadata}
    except ValueError as error:
        raise WeightsError(f"{weights.config.name}: its metadata should hold numbers: {error}") from None


def taesd_architecture(config: ModelConfig) -> Taesd:
    """Which of the TAESD family a model is, or a part of: "taef2" has a pool stage.

    Raises
    ------
    WeightsError
        If it is of another family.
    """
    for name in get_args(Taesd):
        parts = zoo.build(name, config.latent_channels).parts if config.latent_channels else {}
        if config.parts and all(parts.get(part) == layers for part, layers in config.parts.items()):
            return name
    raise WeightsError(f"{config.name}: not of the TAESD family; only the layout zenith can hold it")
