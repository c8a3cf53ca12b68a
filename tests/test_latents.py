import json
import os
import tracemalloc
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, load_file, save

import zenith_ae
from zenith_ae.errors import LatentError, OutputError
from zenith_ae.latents import (
    DTYPES,
    LatentFile,
    as_stored,
    check_latents,
    encode_latents,
    latent_metadata,
    parse_latents,
    read_latents,
    shipped_reader,
    write_latents,
)


def a_file(shape=(1, 4, 3, 5), **changes):
    latents = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    height, width = (8 * n - cut for n, cut in zip(shape[2:], (4, 3), strict=True))
    facts = {"model": "m", "weights": "0123456789abcdef", "height": height, "width": width, "mode": "L"}
    return LatentFile(latents, **(facts | changes))


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 0), ("fp16", 1e-3)])
def test_writing_and_reading_keeps_values_and_facts(tmp_path, dtype, tolerance):
    file = a_file(space="fedcba9876543210")
    path = tmp_path / "a.latent.safetensors"
    write_latents(path, file, dtype)
    again = read_latents(path)
    assert np.allclose(again.latents, file.latents, rtol=tolerance, atol=0)
    assert again.latents.dtype == np.float32
    for name in ("model", "weights", "height", "width", "mode", "space"):
        assert getattr(again, name) == getattr(file, name)
    stored = load_file(path)["latents"]  # what any other program sees
    assert stored.dtype == {"fp32": np.float32, "fp16": np.float16}[dtype]
    assert stored.shape == (1, 4, 3, 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_nearly_nothing_is_stored_under_any_numpy_settings(dtype):
    for numbers in ([1, 1e-7, 1e-30, 1e-40], [1e-5, 1e-12, 1e-35, 1e-43]):
        latents = np.float32(numbers).reshape(1, 1, 2, 2)
        with np.errstate(all="raise"):
            kept = as_stored(latents, dtype)
        np.testing.assert_allclose(kept, latents, atol=2e-3)


def test_what_no_reader_would_find_is_not_written(tmp_path):
    path = tmp_path / "a.latent.safetensors"
    write_latents(path, a_file(model="m" * 65_000))
    assert len(read_latents(path).model) == 65_000
    with pytest.raises(LatentError, match="too long for a file"):
        write_latents(path, a_file(model="m" * 65_536))
    assert len(read_latents(path).model) == 65_000


def test_a_file_of_the_same_latents_has_the_same_bytes():
    file = a_file(space="fedcba9876543210")
    data = encode_latents(file)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert list(header) == sorted(header) and list(header["__metadata__"]) == sorted(header["__metadata__"])
    assert length % 8 == 0 and len(header["__metadata__"]) == 8
    assert load(data)["latents"].shape == file.latents.shape


def test_latents_fit_the_model_that_made_them_and_those_of_their_space():
    def model(hash, space):
        return SimpleNamespace(hash=hash, space=space)

    old = parse_latents(encode_latents(a_file()))
    assert old.space == ""
    assert old.fits(model("0123456789abcdef", "any"))
    assert not old.fits(model("another", "0123456789abcdef"))
    assert not old.fits(model("another", ""))
    new = a_file(space="fedcba9876543210")
    assert new.fits(model("0123456789abcdef", "another"))
    assert new.fits(model("another", "fedcba9876543210"))
    assert not new.fits(model("another", "another"))


def test_a_shipped_model_reads_the_latents_of_its_space():
    made = zenith_ae.load("zenith-taef2-nano").encode_picture(picture())
    assert shipped_reader(made) == "zenith-taef2-nano"
    reader = shipped_reader(replace(made, model="taef2", weights="0" * 16))
    assert zenith_ae.load(reader).space == made.space
    assert shipped_reader(a_file(space="fedcba9876543210")) is None


def test_a_picture_goes_into_a_latent_file_and_comes_back(tmp_path):
    ae = zenith_ae.load("zenith-taef2-nano")
    for layout in ("L", "RGB", "RGBA"):
        zenith_ae.write_latents(tmp_path / "a.latent.safetensors", ae.encode_picture(picture(layout)))
        file = zenith_ae.read_latents(tmp_path / "a.latent.safetensors")
        assert (file.model, file.weights, file.mode, file.fits(ae)) == (ae.name, ae.hash, layout, True)
        back = ae.decode_picture(file)
        assert back.layout == layout[:3]
        assert back.pixels.shape == (20, 37, len(back.layout))
    several = replace(file, latents=np.repeat(file.latents, 2, 0))
    with pytest.raises(LatentError, match="holds 2 pictures"):
        ae.decode_picture(several)


def picture(layout="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 37, len(layout)), np.uint8)
    return zenith_ae.Picture(pixels, layout, layout)


def test_eight_bits_keep_each_channel_within_half_a_step_and_say_how_to_read_them(tmp_path):
    file = a_file((2, 4, 6, 5))
    file.latents[:, 1] *= 1000
    file.latents[:, 2] = 0.25  # a channel of one value
    path = tmp_path / "a.latent.safetensors"
    write_latents(path, file, "uint8")
    again = read_latents(path).latents
    span = np.ptp(file.latents, axis=(0, 2, 3))[:, None, None]
    assert (np.abs(again - file.latents) <= span / 255 * 0.5001 + 1e-6).all()
    assert np.array_equal(again, as_stored(file.latents, "uint8"))
    stored = load_file(path)
    assert stored["latents"].dtype == np.uint8
    by_hand = stored["low"][:, None, None] + stored["step"][:, None, None] * stored["latents"]
    np.testing.assert_allclose(by_hand, again, rtol=1e-6)
    assert latent_metadata(path.read_bytes())["format_version"] == "2"
    assert len(encode_latents(file, "uint8")) < len(encode_latents(file, "fp16"))


@pytest.mark.parametrize("missing", ["low", "step"])
def test_eight_bits_without_their_meaning_are_a_latent_error(missing):
    data = encode_latents(a_file(), "uint8")
    tensors = load(data)
    del tensors[missing]
    with pytest.raises(LatentError, match="damaged"):
        parse_latents(save(tensors, latent_metadata(data)), "x")


@pytest.mark.parametrize("name", ["low", "step"])
def test_eight_bits_of_other_channels_are_a_latent_error(name):
    data = encode_latents(a_file(), "uint8")
    tensors = load(data)
    with pytest.raises(LatentError, match="damaged"):
        parse_latents(save(tensors | {name: tensors[name][:1]}, latent_metadata(data)), "x")


@pytest.mark.filterwarnings("error")
def test_eight_bits_of_steps_beyond_all_numbers_are_a_latent_error():
    data = encode_latents(a_file(), "uint8")
    tensors = load(data)
    tensors["step"][:] = 3e38
    tensors["latents"][:] = 7
    with pytest.raises(LatentError, match="not finite"):
        parse_latents(save(tensors, latent_metadata(data)), "x")


def test_what_a_latent_file_lacks_is_named():
    data = encode_latents(a_file())
    tensors, metadata = load(data), latent_metadata(data)
    with pytest.raises(LatentError, match=r"x: damaged latent file \(there is no 'latents'\)"):
        parse_latents(save({"z": tensors["latents"]}, metadata), "x")
    with pytest.raises(LatentError, match=r"\(there is no 'mode'\)"):
        parse_latents(save(tensors, {k: v for k, v in metadata.items() if k != "mode"}), "x")
    torch = pytest.importorskip("torch")
    from safetensors.torch import save as save_torch

    half = {"latents": torch.from_numpy(tensors["latents"]).bfloat16()}
    with pytest.raises(LatentError, match="x: holds numbers of type BF16; store them as F16 or F32"):
        parse_latents(save_torch(half, metadata), "x")


@pytest.mark.parametrize("size", [24.0, 23.5, "24", np.array([24]), None])
def test_sizes_are_whole_numbers(size):
    with pytest.raises(LatentError, match="height and width are whole numbers, got "):
        encode_latents(replace(a_file(), height=size))
    assert parse_latents(encode_latents(replace(a_file(), height=np.int64(24)))).height == 24


def test_latents_of_torch_are_stored_whatever_their_dtype(tmp_path):
    torch = pytest.importorskip("torch")
    file, path = a_file(), tmp_path / "a.latent.safetensors"
    latents = torch.from_numpy(file.latents)
    for tensor in (latents.bfloat16(), latents.clone().requires_grad_()):
        zenith_ae.write_latents(path, replace(file, latents=tensor), "fp32")
        stored = zenith_ae.read_latents(path).latents
        np.testing.assert_array_equal(stored, tensor.detach().float().numpy())
    for tensor, words in ((latents.long(), "must be floats, got torch.int64"), (latents.to("meta"), "dense")):
        with pytest.raises(LatentError, match=words):
            zenith_ae.write_latents(path, replace(file, latents=tensor))


def test_names_that_are_no_text_can_be_stored():
    file = parse_latents(encode_latents(replace(a_file(), model="a\udcffb", space="\udcff")))
    assert (file.model, file.space) == (r"a\udcffb", r"\udcff")


def test_what_eight_bits_cannot_span_is_refused():
    few = np.float32([-3e38, 1e38, 3e38, 0]).reshape(1, 1, 2, 2)
    with pytest.raises(LatentError, match="do not fit into uint8"):
        encode_latents(replace(a_file(), latents=few), "uint8")
    half = few / 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.abs(as_stored(half, "uint8") - half).max() < 3e38 / 255


@pytest.mark.parametrize("key", ["format_version", "mode"])
def test_messages_hold_little_of_a_file(key):
    data = encode_latents(a_file())
    with pytest.raises(LatentError) as error:
        parse_latents(save(load(data), latent_metadata(data) | {key: "9" * 10**6}), "x")
    assert len(str(error.value)) < 200
    assert len(replace(a_file(), model="m" * 10**6, weights="w" * 10**6).maker) < 100


def test_eight_bits_of_another_shape_are_a_latent_error_and_do_not_grow():
    """20,000 numbers, which as (20000, 1, 20000) would take 3 GB."""
    many = np.zeros(20_000, np.float32)
    tensors = {"latents": np.zeros((1, many.size), np.uint8), "low": many, "step": many}
    tracemalloc.start()
    try:
        with pytest.raises(LatentError):
            parse_latents(save(tensors, latent_metadata(encode_latents(a_file(), "uint8"))), "x")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_metadata_is_found_in_the_first_bytes():
    data = encode_latents(a_file())
    assert latent_metadata(data)["format"] == "zenith-ae-latent"
    assert latent_metadata(save({"latents": np.zeros((1, 1, 1, 1), np.float32)})) is None


@given(st.binary(max_size=200))
def test_random_bytes_are_a_latent_error(data):
    with pytest.raises(LatentError, match="not a latent file"):
        parse_latents(data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_truncation_is_a_latent_error(dtype):
    data = encode_latents(a_file(), dtype)
    for length in range(len(data)):
        with pytest.raises(LatentError):
            parse_latents(data[:length], "x")


def with_metadata(**changes):
    metadata = {
        "format": "zenith-ae-latent", "format_version": "1", "model": "m", "weights": "w",
        "height": "8", "width": "8", "mode": "RGB",
    }  # fmt: skip
    metadata = {k: v for k, v in (metadata | changes).items() if v is not None}
    return save({"latents": np.zeros((1, 4, 1, 1), np.float32)}, metadata)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "not a latent file"),
        ({"format_version": "3"}, "newer"),
        ({"height": "x"}, "damaged"),
        ({"height": "0"}, "damaged"),
        ({"width": "-3"}, "damaged"),
        ({"mode": "LAB"}, "damaged"),
        ({"weights": None}, "damaged"),
        ({"height": None}, "damaged"),
    ],
)
def test_wrong_metadata_is_a_latent_error_of_one_line(changes, words):
    with pytest.raises(LatentError, match=words) as caught:
        parse_latents(with_metadata(**changes), "a.latent.safetensors")
    assert str(caught.value).startswith("a.latent.safetensors: ")
    assert "\n" not in str(caught.value)


def test_missing_tensor_is_a_latent_error():
    metadata = json.loads(with_metadata()[8:].split(b'"latents"')[0].rstrip(b",") + b"}")["__metadata__"]
    with pytest.raises(LatentError, match="damaged"):
        parse_latents(save({"other": np.zeros(1, np.float32)}, metadata))


def test_missing_file_is_a_latent_error(tmp_path):
    with pytest.raises(LatentError, match="no such file"):
        read_latents(tmp_path / "none.latent.safetensors")


@pytest.mark.parametrize(
    ("latents", "words"),
    [
        (np.zeros((1, 4, 2, 2), np.int32), "floats"),
        (np.zeros((4, 2, 2), np.float32), "(N, C, h, w)"),
        (np.zeros((1, 4, 0, 2), np.float32), "(N, C, h, w)"),
        (np.zeros((1, 3, 2, 2), np.float32), "3 latent channels, but the model has 4"),
        (np.full((1, 4, 2, 2), np.nan, np.float32), "not finite"),
        (np.full((1, 4, 2, 2), -np.inf), "not finite"),
    ],
)
def test_unusable_latents_are_refused(latents, words):
    with pytest.raises(LatentError) as caught:
        check_latents(latents, channels=4)
    assert words in str(caught.value)


def test_latents_beyond_fp16_are_refused_and_nothing_is_written(tmp_path):
    file = a_file()
    file.latents[0, 0, 0, 0] = 1e6
    with pytest.raises(LatentError, match="fp32"):
        write_latents(tmp_path / "a", file, "fp16")
    assert not os.listdir(tmp_path)
    write_latents(tmp_path / "a", file, "fp32")
    assert read_latents(tmp_path / "a").latents.max() == 1e6


def test_folder_that_is_missing_is_an_output_error(tmp_path):
    with pytest.raises(OutputError):
        write_latents(tmp_path / "none" / "a", a_file())


def test_an_unknown_type_of_numbers_is_a_value_error():
    with pytest.raises(ValueError, match="one of fp16, fp32, uint8, got 'float16'"):
        encode_latents(a_file(), "float16")


@pytest.mark.parametrize("changes", [{"height": 0}, {"width": -1}, {"mode": "X"}])
def test_what_would_not_be_read_is_not_written(changes, tmp_path):
    file = LatentFile(np.zeros((1, 4, 1, 1), np.float32), "m", "w", 8, 8)
    with pytest.raises(LatentError, match="no such thing"):
        write_latents(tmp_path / "a.latent.safetensors", replace(file, **changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("height", "width", "rows", "columns", "fits"),
    [
        (64, 40, 8, 5, True),
        (57, 33, 8, 5, True),
        (56, 40, 8, 5, False),
        (73, 40, 8, 5, False),
        (48, 60, 16, 20, True),
        (300, 500, 3, 4, True),
        (1, 1, 1, 1, True),
        (40, 64, 8, 5, False),
    ],
)
def test_latents_are_written_with_the_size_of_their_picture_only(height, width, rows, columns, fits):
    file = a_file((1, 4, rows, columns), height=height, width=width)
    if fits:
        assert parse_latents(encode_latents(file)).height == height
    else:
        with pytest.raises(LatentError, match=f"not those of a {width} x {height} picture"):
            encode_latents(file)


def test_masked_latents_are_refused():
    with pytest.raises(LatentError, match="would lose its mask"):
        check_latents(np.ma.masked_array(np.zeros((1, 4, 2, 2), np.float32), mask=True))
