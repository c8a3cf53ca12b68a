"""Weights files: round trips, other people's layouts, and one clear line for every defect."""

import errno
import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import zenith_ae
from zenith_ae import weights as weights_module
from zenith_ae.errors import LatentError, OutputError, WeightsError
from zenith_ae.images import from_pil
from zenith_ae.latents import read_latents, write_latents
from zenith_ae.models import zoo
from zenith_ae.models.spec import ModelConfig
from zenith_ae.selftest import random_weights
from zenith_ae.weights import (
    Weights,
    available_weights,
    load_weights,
    save_diffusers,
    save_taesd,
    save_weights,
)

SHARED = Path(os.environ.get("ZENITH_SHARED", Path(__file__).parents[1] / ".." / "shared"))


def random_tensors(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {k: (rng.standard_normal(s) * 0.1).astype(np.float32) for k, s in config.params().items()}


@pytest.fixture
def nano() -> tuple[ModelConfig, dict[str, np.ndarray]]:
    config = zoo.build("zenith-taesd-nano")
    return config, random_tensors(config)


def vanilla(
    tmp_path: Path, layout: str, channels: int = 4, pool: bool = False
) -> tuple[Path, dict[str, np.ndarray]]:
    """A file or folder of the TAESD family in a layout, and its tensors under our names."""
    tensors = random_tensors(zoo.build("taef2" if pool else "taesd", channels))
    halves = {
        part: {k.removeprefix(part + "."): t for k, t in tensors.items() if k.startswith(part)}
        for part in ("encoder", "decoder")
    }
    if layout == "pair":
        for part, half in halves.items():
            save_file(half, tmp_path / f"some_{part}.safetensors")
        return tmp_path / "some_decoder.safetensors", tensors
    if layout == "joint":
        save_file(tensors, tmp_path / "some.safetensors")
        return tmp_path / "some.safetensors", tensors
    diffusers = {}
    for part, half in halves.items():
        for key, tensor in half.items():
            index, rest = key.split(".", 1)
            diffusers[f"{part}.layers.{int(index) - (part == 'decoder')}.{rest}"] = tensor
    folder = tmp_path / "some"
    folder.mkdir()
    save_file(diffusers, folder / "diffusion_pytorch_model.safetensors")
    (folder / "config.json").write_text(json.dumps({"scaling_factor": 1.5, "latent_channels": channels}))
    return folder, tensors


@pytest.mark.parametrize("architecture", zoo.ARCHITECTURES)
def test_saved_weights_load_unchanged(architecture: str, tmp_path: Path) -> None:
    config = zoo.build(architecture, name="mine")
    tensors = random_tensors(config)
    save_weights(tmp_path / "w.safetensors", config, tensors, {"licence": "MIT"}, dtype=np.float32)
    loaded = load_weights(tmp_path / "w.safetensors")
    assert loaded.config == config
    assert dict(loaded.metadata) == {"licence": "MIT"}
    assert loaded.tensors.keys() == tensors.keys()
    assert all(np.array_equal(loaded.tensors[k], tensors[k]) for k in tensors)
    assert loaded.hash == Weights(config, tensors).hash
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_half_precision_is_the_default_and_loads_as_float32(nano, tmp_path: Path) -> None:
    config, tensors = nano
    save_weights(tmp_path / "w.safetensors", config, tensors)
    loaded = load_weights(tmp_path / "w.safetensors")
    for name, tensor in loaded.tensors.items():
        assert tensor.dtype == np.float32
        assert np.array_equal(tensor, tensors[name].astype(np.float16))


def test_hash_depends_on_values_and_config(nano) -> None:
    config, tensors = nano
    base = Weights(config, tensors).hash
    assert len(base) == 16 and int(base, 16) >= 0
    changed = {**tensors, "encoder.1.bias": tensors["encoder.1.bias"] + 1}
    assert Weights(config, changed).hash != base
    renamed = zoo.build("zenith-taesd-nano", name="other")
    assert Weights(renamed, tensors).hash != base


def test_part_has_the_names_of_the_torch_module(nano) -> None:
    config, tensors = nano
    part = Weights(config, tensors).part("encoder")
    assert {f"encoder.{k}" for k in part} == {k for k in config.params() if k.startswith("encoder.")}


@pytest.mark.parametrize("layout", ["pair", "joint", "diffusers"])
@pytest.mark.parametrize(("channels", "pool"), [(4, False), (16, False), (32, True)])
def test_taesd_family_is_recognised(layout: str, channels: int, pool: bool, tmp_path: Path) -> None:
    path, tensors = vanilla(tmp_path, layout, channels, pool)
    weights = load_weights(path)
    assert weights.config.latent_channels == channels
    assert weights.config.name == "some"
    assert weights.config.parts == zoo.build("taef2" if pool else "taesd", channels).parts
    assert all(np.array_equal(weights.tensors[k], tensors[k]) for k in tensors)
    if layout == "diffusers":
        assert weights.metadata["scaling_factor"] == "1.5"


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_single_file_gives_a_one_part_config(part: str, tmp_path: Path) -> None:
    vanilla(tmp_path, "pair")
    path = (tmp_path / f"some_{part}.safetensors").rename(tmp_path / "alone.safetensors")
    weights = load_weights(path)
    assert list(weights.config.parts) == [part]
    assert weights.config.factor == 8


def test_pickle_of_tensors_loads_through_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    _, tensors = vanilla(tmp_path, "joint")
    torch.save({k: torch.from_numpy(t) for k, t in tensors.items()}, tmp_path / "w.pth")
    (tmp_path / "W.PTH").write_bytes((tmp_path / "w.pth").read_bytes())
    assert load_weights(tmp_path / "W.PTH").space == load_weights(tmp_path / "w.pth").space
    loaded = load_weights(tmp_path / "w.pth")
    assert np.array_equal(loaded.tensors["decoder.1.weight"], tensors["decoder.1.weight"])
    torch.save({"a": Path("x")}, tmp_path / "bad.pth")
    with pytest.raises(WeightsError, match=r"named tensors alone$"):  # torch advises what is not safe
        load_weights(tmp_path / "bad.pth")


def test_bfloat16_file_loads(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from safetensors.torch import save_file as save_torch

    _, tensors = vanilla(tmp_path, "joint")
    half = {k: torch.from_numpy(t).bfloat16() for k, t in tensors.items()}
    save_torch(half, tmp_path / "half.safetensors")
    loaded = load_weights(tmp_path / "half.safetensors")
    assert all(np.array_equal(loaded.tensors[k], half[k].float().numpy()) for k in half)


def test_taef2_teacher_is_recognised() -> None:
    file = SHARED / "teachers" / "taef2_encoder.safetensors"
    if not file.exists():
        pytest.skip("teacher weights are not here (ZENITH_SHARED or ../shared)")
    weights = load_weights(file)
    assert weights.config.name == "taef2"
    assert weights.config.latent_channels == 32
    assert weights.config.parts == zoo.build("taef2").parts


def _truncate(path: Path, config, tensors) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def _header_only(path: Path, config, tensors) -> None:
    path.write_bytes(path.read_bytes()[:20])


def _not_a_file_of_tensors(path: Path, config, tensors) -> None:
    path.write_bytes(b"GIF89a" * 100)


def _rewrite(path: Path, model, tensors, **metadata: str) -> None:
    save_file(
        tensors, path, {"format": "zenith-ae", "format_version": "1", "config": model.to_json(), **metadata}
    )


def _missing_tensor(path: Path, config, tensors) -> None:
    _rewrite(path, config, {k: t for k, t in tensors.items() if k != "decoder.1.bias"})


def _extra_tensor(path: Path, config, tensors) -> None:
    _rewrite(path, config, {**tensors, "decoder.99.bias": np.zeros(3, np.float32)})


def _wrong_shape(path: Path, config, tensors) -> None:
    _rewrite(path, config, {**tensors, "decoder.1.bias": np.zeros(3, np.float32)})


def _nan(path: Path, config, tensors) -> None:
    _rewrite(path, config, {**tensors, "decoder.1.bias": tensors["decoder.1.bias"] * np.nan})


def _bad_config(path: Path, config, tensors) -> None:
    _rewrite(path, config, tensors, config='{"name": 3}')


def _newer_version(path: Path, config, tensors) -> None:
    _rewrite(path, config, tensors, format_version="2")


def _unknown_architecture(path: Path, config, tensors) -> None:
    save_file({"model.down.weight": np.zeros((3, 3), np.float32)}, path)


def _eight_bit_floats(path: Path, config, tensors) -> None:
    header = b'{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"0")


def _no_tensors(path: Path, config, tensors) -> None:
    save_file({}, path)


def test_a_foreign_file_of_any_size_is_refused_by_its_header(tmp_path: Path) -> None:
    """32 GiB, of which the file system stores the header alone."""
    path, size = tmp_path / "flux.safetensors", 2**35
    header = json.dumps({"w": {"dtype": "F16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    with pytest.raises(WeightsError, match="unknown architecture"):
        load_weights(path)
    with pytest.raises(LatentError, match="not a latent file of zenith-ae"):
        read_latents(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate, "not a readable safetensors"),
        (_header_only, "not a readable safetensors"),
        (_not_a_file_of_tensors, "not a readable safetensors"),
        (_missing_tensor, "missing tensor decoder.1.bias"),
        (_extra_tensor, "unknown tensor decoder.99.bias"),
        (_wrong_shape, r"shape \(3,\), expected \(256,\)"),
        (_nan, "decoder.1.bias holds values that are not finite"),
        (_bad_config, "not a model config"),
        (_newer_version, "format version 2"),
        (_unknown_architecture, "unknown architecture"),
        (_no_tensors, "unknown architecture"),
        (_eight_bit_floats, "numbers of type F8_E4M3; convert them to"),
    ],
)
def test_every_defect_is_one_clear_line(damage, message: str, nano, tmp_path: Path) -> None:
    config, tensors = nano
    path = tmp_path / "w.safetensors"
    save_weights(path, config, tensors)
    damage(path, config, tensors)
    with pytest.raises(WeightsError, match=message) as caught:
        load_weights(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool])
def test_quantised_weights_without_their_scales_are_refused(dtype, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file, tensors = vanilla(tmp_path, "joint")
    whole = {name: np.sign(tensor).astype(dtype) for name, tensor in tensors.items()}
    save_file(whole, file)
    torch.save({name: torch.from_numpy(tensor) for name, tensor in whole.items()}, file.with_suffix(".pth"))
    for path in (file, file.with_suffix(".pth")):
        with pytest.raises(WeightsError, match=f"holds {np.dtype(dtype)}, not floats"):
            load_weights(path)


def test_a_folder_does_not_hide_a_shipped_model_of_its_name(nano, tmp_path: Path, monkeypatch) -> None:
    config, tensors = nano
    save_weights(tmp_path / "w.safetensors", config, tensors)
    monkeypatch.setattr(weights_module, "available_weights", lambda: {"some": tmp_path / "w.safetensors"})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some").mkdir()
    assert load_weights("some").config == config
    for folder in ("./some", Path("some")):
        with pytest.raises(WeightsError, match="holds no weights"):
            load_weights(folder)


def test_a_folder_of_one_model_is_that_model(nano, tmp_path: Path) -> None:
    """A pair as TAESD comes, or a file as training leaves it; of several, one has to be named."""
    _, tensors = vanilla(tmp_path, "pair")
    loaded = load_weights(tmp_path)
    assert loaded.config.name == "some"
    assert np.array_equal(loaded.tensors["encoder.0.weight"], tensors["encoder.0.weight"])
    config, tensors = nano
    save_weights(tmp_path / "w.safetensors", config, tensors)
    (tmp_path / "._x.safetensors").write_bytes(b"what macOS keeps beside a file on other systems' drives")
    with pytest.raises(WeightsError, match="several models, name one: some and 1 more"):
        load_weights(tmp_path)


def test_a_hidden_file_is_no_model_that_ships(monkeypatch, tmp_path: Path) -> None:
    for name in ("one.safetensors", "._one.safetensors"):
        (tmp_path / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    assert list(available_weights()) == ["one"]


def test_files_of_torch_in_a_folder_are_read_where_there_is_no_safetensors_file(nano, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file, tensors = vanilla(tmp_path, "pair")
    for half in (file, tmp_path / "some_encoder.safetensors"):
        torch.save({k: torch.from_numpy(t) for k, t in load_file(half).items()}, half.with_suffix(".pth"))
        half.unlink()
    assert np.array_equal(load_weights(tmp_path).tensors["encoder.0.weight"], tensors["encoder.0.weight"])
    config, tensors = nano
    save_weights(tmp_path / "w.safetensors", config, tensors)
    assert load_weights(tmp_path).config == config


def test_what_scales_latents_survives_the_layout_of_diffusers(tmp_path: Path) -> None:
    said = {"scaling_factor": "1.5", "latent_magnitude": "2.0", "latent_shift": "0.25"}
    folder, _ = vanilla(tmp_path, "diffusers")
    weights = replace(load_weights(folder), metadata=said)
    save_diffusers(tmp_path / "again", weights)
    found = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {key: found[key] for key in said} == {key: float(value) for key, value in said.items()}
    assert found["shift_factor"] == 0
    save_taesd(tmp_path / "b_encoder.safetensors", load_weights(tmp_path / "again"))
    for part in ("encoder", "decoder"):
        assert load_weights(tmp_path / f"b_{part}.safetensors").metadata.items() >= said.items()
    with pytest.raises(WeightsError, match=r"should hold numbers: .*abc"):
        save_diffusers(tmp_path / "again", replace(weights, metadata={"scaling_factor": "abc"}))


def test_a_config_nested_without_end_is_one_clear_line(tmp_path: Path) -> None:
    folder, _ = vanilla(tmp_path, "diffusers")
    (folder / "config.json").write_text("[" * 200_000)
    with pytest.raises(WeightsError, match=r"config\.json is not readable"):
        load_weights(folder)


def test_missing_model_names_the_shipped_ones() -> None:
    with pytest.raises(WeightsError, match=r"^taesd: an architecture that comes without weights"):
        load_weights("taesd")
    with pytest.raises(WeightsError, match="no such file or shipped model"):
        load_weights("no-such-model")


def test_weights_that_cannot_be_opened_say_why(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such file"):
        load_weights(tmp_path / ("n" * 300))
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    with pytest.raises(WeightsError, match="no such file"):
        load_weights(tmp_path / "loop.safetensors")


@pytest.mark.skipif(not os.geteuid(), reason="root may read everything")
def test_weights_without_permission_say_so(tmp_path: Path) -> None:
    (tmp_path / "closed.safetensors").write_bytes(b"")
    (tmp_path / "closed.safetensors").chmod(0)
    with pytest.raises(WeightsError, match="cannot be read: Permission denied"):
        load_weights(tmp_path / "closed.safetensors")


def test_a_folder_without_permission_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(WeightsError, match="this folder cannot be read: Permission denied"):
        load_weights(tmp_path)


def test_safetensors_are_known_by_what_they_hold(tmp_path: Path) -> None:
    path, _ = vanilla(tmp_path, "pair")
    whole = load_weights(path)
    save_weights(tmp_path / "own.safetensors", whole.config, whole.tensors, whole.metadata, np.float32)
    (tmp_path / "own.safetensors").rename(tmp_path / "own.bin")
    assert load_weights(tmp_path / "own.bin").hash == load_weights(path).hash


def test_a_latent_space_does_not_depend_on_what_files_are_called(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    pair, tensors = vanilla(tmp_path / "a", "pair")
    named = [load_weights(pair)]
    for half in ("encoder", "decoder"):
        (tmp_path / "a" / f"some_{half}.safetensors").rename(tmp_path / "b" / f"mine_{half}.safetensors")
    named.append(load_weights(tmp_path / "b" / "mine_encoder.safetensors"))
    named.append(load_weights(vanilla(tmp_path / "c", "diffusers")[0]))  # the same random values
    assert named[0].hash == named[2].hash != named[1].hash
    assert len({weights.space for weights in named}) == 1
    save_weights(tmp_path / "own.safetensors", named[0].config, tensors, named[0].metadata)
    assert load_weights(tmp_path / "own.safetensors").space == named[0].space
    other, _ = vanilla(tmp_path, "pair", 16)
    assert load_weights(other).space != named[0].space


def test_comfyuis_names_of_a_taesd_are_known(tmp_path: Path) -> None:
    weights = random_weights(zoo.build("taesd", 16), 3)
    tensors = {f"taesd_{name}": t for name, t in weights.tensors.items()}
    numbers = {"vae_scale": np.ones((), np.float32), "vae_shift": np.zeros((), np.float32)}
    save_file(
        {name: np.ascontiguousarray(t) for name, t in (tensors | numbers).items()}, tmp_path / "x.safetensors"
    )
    found = load_weights(tmp_path / "x.safetensors")
    assert found.config.parts == weights.config.parts
    assert all(np.array_equal(found.tensors[name], t) for name, t in weights.tensors.items())


def test_halves_in_files_of_two_kinds_are_a_pair(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    weights = random_weights(zoo.build("taesd"), 3)
    save_taesd(tmp_path / "some_encoder.safetensors", weights)
    decoder = {name: torch.from_numpy(t.copy()) for name, t in weights.part("decoder").items()}
    torch.save(decoder, tmp_path / "some_decoder.pth")
    (tmp_path / "some_decoder.safetensors").unlink()
    for path in ("some_encoder.safetensors", "some_decoder.pth", ""):
        assert set(load_weights(tmp_path / path).config.parts) == {"encoder", "decoder"}


def test_pair_of_different_models_is_refused(tmp_path: Path) -> None:
    vanilla(tmp_path, "pair", 4)
    first = (tmp_path / "some_encoder.safetensors").read_bytes()
    vanilla(tmp_path, "pair", 16)
    (tmp_path / "some_encoder.safetensors").write_bytes(first)
    with pytest.raises(WeightsError, match="4, 16 latent channels"):
        load_weights(tmp_path / "some_encoder.safetensors")


def test_overflow_in_half_precision_is_refused_and_nothing_replaced(nano, tmp_path: Path) -> None:
    config, tensors = nano
    path = tmp_path / "w.safetensors"
    save_weights(path, config, tensors)
    before = path.read_bytes()
    with pytest.raises(WeightsError, match="not finite"):
        save_weights(path, config, {**tensors, "encoder.1.bias": tensors["encoder.1.bias"] + 1e6})
    assert path.read_bytes() == before


def test_what_a_half_cannot_hold_is_refused_in_the_layouts_of_others_too(tmp_path: Path) -> None:
    weights = load_weights(vanilla(tmp_path, "pair")[0])
    large = {**weights.tensors, "decoder.1.bias": weights.tensors["decoder.1.bias"] + 1e5}
    large = Weights(weights.config, large)
    for save, path in ((save_taesd, tmp_path / "b_encoder.safetensors"), (save_diffusers, tmp_path / "b")):
        with pytest.raises(WeightsError, match="not finite"):
            save(path, large, np.float16)
    assert not list(tmp_path.glob("b*"))


@pytest.mark.parametrize("dtype", [np.int8, np.float64, np.complex64, bool, "bfloat16", object])
def test_weights_are_stored_as_floats_that_every_reader_knows(dtype, nano, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="float16 or float32"):
        save_weights(tmp_path / "w.safetensors", *nano, dtype=dtype)
    assert not list(tmp_path.iterdir())


def test_unwritable_place_is_an_output_error(nano, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        save_weights(tmp_path / "missing" / "w.safetensors", *nano)


def test_weights_stay_what_their_hash_says(nano) -> None:
    config, tensors = nano
    weights = Weights(config, tensors)
    before = weights.hash
    for tensor in tensors.values():
        tensor[...] = 0
    assert Weights(config, weights.tensors).hash == before != Weights(config, tensors).hash


def test_half_of_a_pair_that_cannot_be_written_leaves_the_other_as_it_was(tmp_path: Path) -> None:
    path, tensors = vanilla(tmp_path, "pair")
    weights = load_weights(path)
    path.unlink()
    path.mkdir()
    before = (tmp_path / "some_encoder.safetensors").read_bytes()
    changed = {name: tensor + 1 for name, tensor in tensors.items()}
    with pytest.raises(OutputError, match="is a folder"):
        save_taesd(path, Weights(weights.config, changed))
    assert (tmp_path / "some_encoder.safetensors").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["some_decoder.safetensors", "some_encoder.safetensors"]


@pytest.mark.parametrize("refused", [1, 2])
def test_half_of_a_pair_that_a_quota_refuses_leaves_the_other_as_it_was(
    tmp_path: Path, monkeypatch, refused: int
) -> None:
    path, tensors = vanilla(tmp_path, "pair")
    weights = load_weights(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    synced = []

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            synced.append(descriptor)
            if len(set(synced)) == refused:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", fsync)
    changed = {name: tensor + 1 for name, tensor in tensors.items()}
    with pytest.raises(OutputError, match="cannot write: Disk quota exceeded; nothing was replaced"):
        save_taesd(path, Weights(weights.config, changed))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_latent_file_in_a_folder_is_no_second_model(nano, tmp_path: Path) -> None:
    config, tensors = nano
    save_weights(tmp_path / "w.safetensors", config, tensors)
    save_file({"latents": np.zeros((1, 4, 1, 1), np.float32)}, tmp_path / "a.latent.safetensors")
    assert load_weights(tmp_path).config == config


def test_a_small_pickle_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path, _ = vanilla(tmp_path, "joint")
    state = {name: torch.from_numpy(tensor) for name, tensor in load_file(path).items()}
    state["encoder.0.weight"] = torch.zeros(1).as_strided((10**7, 10**7), (0, 0))
    torch.save(state, tmp_path / "small.pth")
    with pytest.raises(WeightsError, match=r"damaged, or not a \.pth file"):
        load_weights(tmp_path / "small.pth")
    path.unlink()
    with pytest.raises(WeightsError, match=r": small\.pth: damaged, or not a \.pth file"):
        load_weights(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
def test_a_file_name_that_is_no_text_becomes_a_models_name_that_is(tmp_path: Path) -> None:
    path, _ = vanilla(tmp_path, "joint")
    odd = os.fsencode(tmp_path / "mine-") + b"\xff.safetensors"
    os.rename(path, odd)
    model = zenith_ae.load(os.fsdecode(odd))
    assert model.name == r"mine-\udcff"
    picture = from_pil(Image.new("RGB", (16, 8)))
    write_latents(tmp_path / "a.latent.safetensors", model.encode_picture(picture))
    assert read_latents(tmp_path / "a.latent.safetensors").model == model.name


def test_the_tensor_that_is_too_many_is_named(tmp_path: Path) -> None:
    vanilla(tmp_path, "pair")
    path = tmp_path / "some_encoder.safetensors"
    save_file(load_file(path) | {"extra": np.zeros(3, np.float32)}, path)
    with pytest.raises(WeightsError, match=r"unknown architecture \(tensor 'extra'"):
        load_weights(path)


def test_a_name_with_thousands_of_digits_is_no_layer(tmp_path: Path) -> None:
    for name in ("9" * 5000 + ".weight", "encoder." + "9" * 5000 + ".weight"):
        save_file({name: np.zeros(1, np.float32)}, tmp_path / "w.safetensors")
        with pytest.raises(WeightsError, match="unknown architecture"):
            load_weights(tmp_path / "w.safetensors")
