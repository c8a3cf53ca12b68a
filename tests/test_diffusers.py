"""Promises of `AutoencoderZenith`: the interface and the numbers of diffusers' AutoencoderTiny."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers", minversion="0.36")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import zenith_ae  # noqa: E402
from zenith_ae.errors import ConfigError, WeightsError, ZenithError  # noqa: E402
from zenith_ae.integrations.diffusers import AutoencoderZenith  # noqa: E402
from zenith_ae.models import zoo  # noqa: E402
from zenith_ae.training.restore import build_modules  # noqa: E402
from zenith_ae.weights import Weights  # noqa: E402


@pytest.fixture(scope="module")
def tiny() -> diffusers.AutoencoderTiny:
    """AutoencoderTiny of 4 channels with random weights."""
    torch.manual_seed(0)
    return diffusers.AutoencoderTiny().eval()


@pytest.fixture(scope="module")
def folder(tiny: diffusers.AutoencoderTiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("taesd")
    tiny.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def nano() -> Weights:
    torch.manual_seed(1)
    config = zoo.build("zenith-taesd-nano", 32)
    state = build_modules(config).state_dict()
    return Weights(config, {name: value.numpy() for name, value in state.items()})


def picture(height: int = 64, width: int = 96, seed: int = 0, count: int = 1) -> torch.Tensor:
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_it_computes_what_autoencoder_tiny_computes(tiny, folder) -> None:
    mine = AutoencoderZenith.load(folder)
    converted = AutoencoderZenith.from_pretrained(folder)
    assert all(parameter.requires_grad for parameter in converted.parameters())  # as of every model
    x = picture(count=2)
    with torch.no_grad():
        z = tiny.encode(x).latents
        torch.testing.assert_close(mine.encode(x).latents, z, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine.decode(z).sample, tiny.decode(z).sample, rtol=1e-4, atol=1e-4)
        assert torch.equal(mine.decode(z, return_dict=False)[0], mine.decode(z).sample)
        assert torch.equal(mine(x).sample, mine.decode(mine.encode(x, return_dict=False)[0]).sample)
    for name in ("scaling_factor", "shift_factor", "latent_channels", "block_out_channels", "force_upcast"):
        assert list(np.ravel(mine.config[name])) == list(np.ravel(tiny.config[name])), name
    assert mine.dtype == torch.float32
    assert mine.device == torch.device("cpu")


def test_names_of_shipped_weights_are_not_looked_for_elsewhere() -> None:
    with pytest.raises(ConfigError, match=r"AutoencoderZenith.load\('zenith-taef2-nano'\) takes it"):
        AutoencoderZenith.from_pretrained("zenith-taef2-nano")


def test_loading_leaves_the_random_numbers_of_a_seed(nano, folder, tmp_path) -> None:
    AutoencoderZenith.load(nano).save_pretrained(tmp_path)
    for load in (
        lambda: AutoencoderZenith.load(nano),
        lambda: AutoencoderZenith.from_pretrained(folder),
        lambda: AutoencoderZenith.from_pretrained(tmp_path),
    ):
        torch.manual_seed(7)
        expected = torch.rand(4)
        torch.manual_seed(7)
        load()
        assert torch.equal(torch.rand(4), expected)


def test_parameters_that_are_not_finite_are_seen_in_the_result(folder) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        mine = AutoencoderZenith.load(folder, dtype=dtype)
        assert mine.dtype == dtype
        mine.decoder[1].weight[0, 0] = float("nan")
        assert mine.decode(torch.zeros(1, 4, 2, 2, dtype=dtype)).sample.isnan().any()


def test_it_takes_the_state_dict_of_an_autoencoder_tiny(tiny, folder) -> None:
    torch.manual_seed(5)
    other = diffusers.AutoencoderTiny().eval()
    mine, state = AutoencoderZenith.load(folder), other.state_dict()
    before = dict(state)
    mine.load_state_dict(state)
    assert state.keys() == before.keys()  # the caller's stays as it was
    z = other.encode(picture()).latents.detach()
    torch.testing.assert_close(mine.encode(picture()).latents, z, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine.decode(z).sample, other.decode(z).sample.detach(), rtol=1e-4, atol=1e-4)
    state.pop("decoder.layers.3.conv.0.weight")
    with pytest.raises(RuntimeError, match=r"decoder\.4\.conv\.0\.weight"):
        mine.load_state_dict(state)


def test_a_picture_alone_is_taken_and_given_back_alone(tiny, folder) -> None:
    mine, x = AutoencoderZenith.load(folder), picture(30, 45)
    z = mine.encode(x).latents
    assert torch.equal(mine.encode(x[0]).latents, z[0])
    assert torch.equal(mine.encode(x[0], return_dict=False)[0], z[0])
    assert torch.equal(mine.decode(z[0]).sample, mine.decode(z).sample[0])
    assert torch.equal(mine.decode(z[0], return_dict=False)[0], mine.decode(z).sample[0])
    assert mine.tile_overlap_factor == tiny.tile_overlap_factor


def test_torch_and_native_engine_agree_and_gradients_flow(nano) -> None:
    mine = AutoencoderZenith.load(nano)
    x = picture(30, 45)  # no multiples of 8, nor of spectral tiles
    z = mine.encode(x).latents
    assert z.shape == (1, 32, 4, 6)
    assert not z.requires_grad
    learning = x.clone().requires_grad_()
    through = mine.encode(learning).latents
    torch.testing.assert_close(through.detach(), z, rtol=1e-4, atol=1e-4)
    through.sum().backward()
    assert learning.grad is not None
    assert learning.grad.abs().max() > 0
    mine.requires_grad_(True)
    sample = mine.decode(z).sample
    assert sample.shape == (1, 3, 32, 48)
    sample.sum().backward()
    assert all(p.grad is not None for p in mine.decoder.parameters())
    with torch.no_grad():
        torch.testing.assert_close(mine.decode(z).sample, sample.detach(), rtol=1e-4, atol=1e-4)


def test_changed_parameters_change_the_result(nano) -> None:
    mine = AutoencoderZenith.load(nano)
    z = torch.zeros(1, 32, 4, 4)
    before = mine.decode(z).sample
    *_, last = mine.decoder.parameters()
    with torch.no_grad():
        last += 0.25
    torch.testing.assert_close(mine.decode(z).sample, before + 0.5, rtol=0, atol=1e-5)
    last.data += 0.25  # as diffusers' EMAModel does; torch keeps no account of it
    torch.testing.assert_close(mine.decode(z).sample, before + 1.0, rtol=0, atol=1e-5)
    last.data[:2] += torch.tensor([0.25, -0.25])  # which leaves the sum as it is
    change = mine.decode(z).sample - before - 1.0  # two of each four by four pixels
    assert change.mul(2).round().unique().tolist() == [-1, 0, 1]


def test_neighbours_that_change_places_change_the_result() -> None:
    mine = AutoencoderZenith.load("zenith-taef2-nano")
    z = torch.zeros(1, 32, 2, 2)
    before = mine.decode(z).sample
    native = mine._native["decoder"][1]
    largest = max(mine.decoder.parameters(), key=torch.numel).data.view(-1)
    for _ in range(2):
        largest[21748:21750] = largest[21748:21750].flip(0)
        sample = mine.decode(z).sample
        assert mine._native["decoder"][1] is not native
    assert torch.equal(sample, before)


def test_what_others_set_for_torch_changes_nothing(nano) -> None:
    z = torch.randn(1, 32, 4, 4, generator=torch.Generator().manual_seed(0))
    mine = AutoencoderZenith.load(nano)
    before = mine.decode(z).sample
    native = mine._native["decoder"]
    for kind in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(kind)
        try:
            fresh = AutoencoderZenith.load(nano)
            assert fresh.dtype == torch.float32
            assert torch.equal(fresh.decode(z).sample, before) and torch.equal(mine.decode(z).sample, before)
        finally:
            torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert torch.equal(mine.decode(z).sample, before)
    with torch.autocast("cpu", torch.bfloat16):
        mine.decode(z)
    assert mine._native["decoder"] is native


def test_float64_is_computed_exactly(nano) -> None:
    mine = AutoencoderZenith.load(nano)
    z = torch.randn(1, 32, 4, 4, generator=torch.Generator().manual_seed(0))
    exact = mine.decode(z).sample
    double = mine.double().decode(z.double()).sample
    torch.testing.assert_close(double, exact.double(), rtol=0, atol=1e-5)
    assert torch.equal(double, mine.requires_grad_(True).decode(z.double()).sample)  # whoever computes
    assert not torch.equal(double, double.float().double())
    torch.testing.assert_close(mine.requires_grad_(False).decode(z).sample, exact)  # mixed types, natively


def test_type_checkers_know_it(tmp_path) -> None:
    """The decorators of diffusers have no types, and would hide those of the class."""
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "from zenith_ae.integrations.diffusers import AutoencoderZenith\n"
        "vae = AutoencoderZenith.load('zenith-taef2')\n"
        "vae.encode(vae.decode(vae.encode(vae.bn.weight).latents).sample, return_dict=False)[0]\n"
        "vae(vae.bn.weight).sample, vae.config.scaling_factor\n"
        "vae.decode(1)\n"
        "AutoencoderZenith.load(1.5)\n"
    )
    root = Path(zenith_ae.__file__).parents[1]
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports=silent",
        f"--config-file={root}/pyproject.toml",
    ]
    done = subprocess.run(
        [*command, program], cwd=tmp_path, env=os.environ | {"MYPYPATH": str(root)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line.partition(" error:")[0] for line in done.stdout.splitlines() if " error:" in line] == [
        "program.py:5:", "program.py:6:"
    ], done.stdout  # fmt: skip


def test_latents_are_scaled_for_pictures_as_autoencoder_tiny_does(tiny, nano) -> None:
    mine = AutoencoderZenith.load(nano)
    z = torch.linspace(-4, 4, 9)
    assert torch.equal(mine.scale_latents(z), tiny.scale_latents(z))
    x = torch.linspace(0, 1, 9)
    assert torch.equal(mine.unscale_latents(x), tiny.unscale_latents(x))


def test_tiling_and_slicing_change_nothing(nano) -> None:
    mine = AutoencoderZenith.load(nano)
    z = mine.encode(picture(520, 1040, count=2)).latents
    sample = mine.decode(z).sample
    mine.enable_tiling()
    mine.enable_slicing()
    tiny = diffusers.AutoencoderTiny()
    for name in ("spatial_scale_factor", "tile_sample_min_size", "tile_latent_min_size"):
        assert getattr(mine, name) == getattr(tiny, name)
    for side in (512, 128):
        mine.tile_sample_min_size, mine.tile_latent_min_size = side, side // 8
        assert torch.equal(mine.encode(picture(520, 1040, count=2)).latents, z)
        assert torch.equal(mine.decode(z).sample, sample)
    peaks = [mine._engine(part).stats()["peak_bytes"] for part in ("encoder", "decoder")]
    fresh = AutoencoderZenith.load(nano)
    fresh.enable_tiling()
    fresh.tile_sample_min_size, fresh.tile_latent_min_size = 128, 16
    fresh.decode(fresh.encode(picture(520, 1040)).latents)
    assert all(fresh._engine(part).stats()["peak_bytes"] < peak for part, peak in
               zip(("encoder", "decoder"), peaks, strict=True))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_come_back_as_they_went_in(nano, dtype) -> None:
    exact = AutoencoderZenith.load(nano)
    half = AutoencoderZenith.load(nano, torch_dtype=dtype)
    assert half.dtype == dtype
    x = picture()
    z = half.encode(x.to(dtype)).latents
    assert z.dtype == dtype
    expected = exact.encode(x).latents
    assert (z.float() - expected).abs().mean() < 0.02 * expected.abs().mean()
    assert half.decode(z).sample.dtype == dtype


def test_it_is_saved_loaded_and_copied_like_any_model(nano, tmp_path) -> None:
    mine = AutoencoderZenith.load(nano)
    x = picture()
    z = mine.encode(x).latents
    mine.save_pretrained(tmp_path)
    again = AutoencoderZenith.from_pretrained(tmp_path)
    assert all(parameter.requires_grad for parameter in again.parameters())
    again.requires_grad_(False)
    assert again.config.latent_channels == 32
    assert torch.equal(again.encode(x).latents, z)
    assert torch.equal(copy.deepcopy(mine).encode(x).latents, z)
    for path in (tmp_path, str(tmp_path)):  # and back to the command line
        back = zenith_ae.load(path, dtype="float32")
        assert np.array_equal(back.encode(x / 2 + 0.5), z)
        assert back.space == nano.space
    assert torch.equal(AutoencoderZenith.load(tmp_path).encode(x).latents, z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_saved_keeps_its_latent_space(tmp_path, dtype) -> None:
    AutoencoderZenith.load("zenith-taef2-nano", dtype).save_pretrained(tmp_path)
    spaces = {zenith_ae.load(name).space for name in (tmp_path, "zenith-taef2-nano", "zenith-taef2")}
    assert len(spaces) == 1


@pytest.mark.parametrize("name", ["zenith-taef2", "zenith-taef2-lite", "zenith-taef2-nano"])
def test_parameters_in_channels_last_change_nothing(name) -> None:
    vae, x = AutoencoderZenith.load(name), picture()
    z = vae.encode(x).latents
    vae.to(memory_format=torch.channels_last)
    assert torch.equal(vae.encode(x).latents, z)
    assert vae.decode(z).sample.shape == x.shape


@pytest.mark.parametrize("learning", [False, True])
def test_no_pictures_have_no_latents(nano, learning) -> None:
    vae = AutoencoderZenith.load(nano).requires_grad_(learning)
    z = vae.encode(torch.rand(0, 3, 40, 45)).latents
    assert z.shape == (0, 32, 5, 6) and z.requires_grad == learning
    assert vae.decode(z).sample.shape == (0, 3, 40, 48)


def test_a_folder_that_cannot_be_converted_is_named_as_it_was_given(tmp_path) -> None:
    diffusers.AutoencoderTiny(upsample_fn="bilinear").save_pretrained(tmp_path / "soft")
    with pytest.raises(ZenithError) as caught:
        AutoencoderZenith.from_pretrained(tmp_path / "soft")
    assert str(caught.value).startswith(f"{tmp_path / 'soft'}: config.json says upsample_fn 'bilinear'")


def test_what_it_cannot_load_is_refused(nano, tmp_path) -> None:
    with pytest.raises(ConfigError, match="needs an autoencoder"):
        AutoencoderZenith.load("zenith-denoise")
    with pytest.raises(ZenithError, match="no such file"):
        AutoencoderZenith.load(tmp_path / "absent.safetensors")
    (tmp_path / "kl").mkdir()
    (tmp_path / "kl" / "config.json").write_text('{"_class_name": "AutoencoderKL"}')
    (tmp_path / "kl" / "diffusion_pytorch_model.safetensors").touch()
    for load in (AutoencoderZenith.load, AutoencoderZenith.from_pretrained):
        with pytest.raises(ZenithError, match=r"AutoencoderKL.*AutoencoderTiny"):
            load(tmp_path / "kl")
    for wrong in ("bfloat16", torch.int8):
        with pytest.raises(ConfigError, match="torch_dtype is to be a type of floats"):
            AutoencoderZenith.load(nano, wrong)
    for call in (AutoencoderZenith.load(nano).encode, AutoencoderZenith.load(nano).decode):
        with pytest.raises(ValueError, match=r"takes a torch tensor .*, not ndarray"):
            call(np.zeros((1, 3, 8, 8), np.float32))
    config = zoo.build("zenith-taesd-nano", 32)
    config = type(config)("half", "autoencoder", {"decoder": config.parts["decoder"]}, 32)
    tensors = {name: value for name, value in nano.tensors.items() if name.startswith("decoder.")}
    decoder = AutoencoderZenith.load(Weights(config, tensors))
    assert decoder.config.block_out_channels == (64, 64, 64, 64)
    with pytest.raises(ConfigError, match="has no encoder"):
        decoder.encode(picture())


def test_shipped_weights_give_what_the_library_gives() -> None:
    mine = AutoencoderZenith.load("zenith-taef2-nano")
    x = picture(40, 56)
    ae = zenith_ae.load("zenith-taef2-nano", dtype="float32")
    z = ae.encode(x / 2 + 0.5)
    torch.testing.assert_close(mine.encode(x).latents, z, rtol=0, atol=1e-6)
    pixels = (mine.decode(z).sample / 2 + 0.5).clamp(0, 1)
    torch.testing.assert_close(pixels, ae.decode(z), rtol=0, atol=1e-6)


# -- in pipelines, with tiny random networks around ----------------------------------------------


def stable_diffusion(vae: torch.nn.Module) -> diffusers.DiffusionPipeline:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        cross_attention_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), attention_head_dim=4,
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    scheduler = diffusers.DDIMScheduler(steps_offset=1, clip_sample=False)
    return diffusers.StableDiffusionPipeline(
        vae, None, None, unet, scheduler, None, None, requires_safety_checker=False
    )


def test_stable_diffusion_draws_the_same_picture(tiny, folder) -> None:
    pictures = []
    for vae in (tiny, AutoencoderZenith.load(folder)):
        pipe = stable_diffusion(vae)
        pipe.set_progress_bar_config(disable=True)
        embeds = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(1))
        result = pipe(
            prompt_embeds=embeds, negative_prompt_embeds=-embeds, num_inference_steps=2,
            generator=torch.Generator().manual_seed(2), output_type="np", height=64, width=72,
        )  # fmt: skip
        pictures.append(result.images[0])
    assert pictures[0].shape == (64, 72, 3)
    np.testing.assert_allclose(pictures[1], pictures[0], atol=1e-3)
    assert pictures[0].std() > 0.01


def test_flux2_edits_a_picture_in_normalised_latents(nano) -> None:
    pytest.importorskip("transformers")
    vae = AutoencoderZenith.load(nano)
    torch.manual_seed(0)
    transformer = diffusers.Flux2Transformer2DModel(
        in_channels=128, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, timestep_guidance_channels=16, axes_dims_rope=(4, 4, 4, 4),
    )  # fmt: skip
    seen: list[tuple[str, torch.Tensor]] = []
    run = vae._run
    vae._run = lambda part, x, native: seen.append((part, x)) or run(part, x, native)
    pipe = diffusers.Flux2KleinPipeline(
        diffusers.FlowMatchEulerDiscreteScheduler(), vae, None, None, transformer, is_distilled=True
    )
    pipe.set_progress_bar_config(disable=True)
    latents = torch.randn(1, 128, 4, 4, generator=torch.Generator().manual_seed(3))
    result = pipe(
        image=diffusers.image_processor.VaeImageProcessor.numpy_to_pil(np.full((64, 64, 3), 0.25))[0],
        prompt_embeds=torch.zeros(1, 4, 16), latents=latents, num_inference_steps=1, sigmas=[1e-6],
        height=64, width=64, output_type="np",
    )  # fmt: skip
    assert result.images[0].shape == (64, 64, 3)
    (encoded, given), (decoded, z) = seen
    assert (encoded, decoded) == ("encoder", "decoder")
    torch.testing.assert_close(given, torch.full_like(given, 64 / 255), rtol=0, atol=2e-3)
    # A step of no length: the decoder is given the first latents, patches unpacked, scale untouched.
    patches = latents.reshape(1, 32, 2, 2, 4, 4).permute(0, 1, 4, 2, 5, 3).reshape(1, 32, 8, 8)
    torch.testing.assert_close(z, patches, rtol=1e-4, atol=1e-4)


def test_an_autoencoder_tiny_is_converted(tiny, folder) -> None:
    mine = AutoencoderZenith.from_pretrained(folder)
    x = picture()
    with torch.no_grad():
        torch.testing.assert_close(mine.encode(x).latents, tiny.encode(x).latents, rtol=1e-4, atol=1e-4)
    assert mine.definition.name == folder.name
    assert AutoencoderZenith.from_pretrained(folder, torch_dtype=torch.float16).dtype == torch.float16
    with pytest.raises(ValueError, match="output_loading_info"):
        AutoencoderZenith.from_pretrained(folder, output_loading_info=True)


def test_the_config_of_an_autoencoder_tiny_is_heeded(tmp_path) -> None:
    scaled = diffusers.AutoencoderTiny(scaling_factor=0.5, shift_factor=0.1, latent_magnitude=2)
    scaled.save_pretrained(tmp_path / "scaled")
    mine = AutoencoderZenith.load(tmp_path / "scaled")
    assert (mine.config.scaling_factor, mine.config.shift_factor) == (0.5, 0.1)
    assert mine.config.latent_magnitude == 2
    for option, other in (("act_fn", "silu"), ("upsampling_scaling_factor", 4)):
        diffusers.AutoencoderTiny(**{option: other}).save_pretrained(tmp_path / option)
        with pytest.raises(WeightsError, match=f"{option} {other!r}"):
            AutoencoderZenith.load(tmp_path / option)
    scaled.save_pretrained(tmp_path / "shards", max_shard_size="1MB")
    with pytest.raises(WeightsError, match="several files"):
        AutoencoderZenith.load(tmp_path / "shards")


def test_diffusers_keeps_the_model_in_its_config(nano, tmp_path) -> None:
    mine = AutoencoderZenith.load(nano)
    again = AutoencoderZenith.from_config(mine.config)
    assert again.definition == mine.definition
    average = diffusers.training_utils.EMAModel(
        mine.parameters(), model_cls=AutoencoderZenith, model_config=mine.config
    )
    average.save_pretrained(tmp_path / "ema")
    read = diffusers.training_utils.EMAModel.from_pretrained(tmp_path / "ema", AutoencoderZenith)
    assert len(read.shadow_params) == len(list(mine.parameters()))


def test_results_are_laid_out_like_those_of_torch(nano) -> None:
    mine = AutoencoderZenith.load(nano)
    z = mine.encode(picture(30, 45, count=2)).latents
    assert z.is_contiguous()
    assert mine.decode(z).sample.is_contiguous()
    for wrong in (z[0, 0], z[None], z[:, :3], z[:, 0], z.long()):
        with pytest.raises(ValueError, match=r"decoder: this takes floats \(N, 32, H, W\), got torch"):
            mine.decode(wrong)
    with pytest.raises(ValueError, match=r"encoder: this takes floats \(N, 3, H, W\)"):
        mine.encode(torch.zeros(1, 4, 32, 32))


def test_latents_come_as_the_distribution_of_a_large_autoencoder_too(nano) -> None:
    mine = AutoencoderZenith.load(nano)
    encoded = mine.encode(picture())
    assert torch.equal(encoded.latent_dist.sample(torch.Generator()), encoded.latents)
    assert torch.equal(encoded.latent_dist.mode(), encoded.latents)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_rounded_at_the_end_alone(nano, dtype) -> None:
    mine = AutoencoderZenith.load(nano)
    x = picture().to(dtype)
    z = mine.encode(x).latents
    assert torch.equal(z, mine.encode(x.float()).latents.to(dtype))
    assert torch.equal(mine.decode(z).sample, mine.decode(z.float()).sample.to(dtype))


def test_a_decoder_that_others_changed_is_called_through_torch(nano) -> None:
    mine = AutoencoderZenith.load(nano)
    z = mine.encode(picture()).latents
    plain = mine.decode(z).sample
    calls: list[int] = []
    hook = mine.decoder[-1].register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(mine.decode(z).sample, plain, rtol=1e-4, atol=1e-4)
    assert calls
    hook.remove()
    mine.decoder = torch.compile(mine.decoder, backend="eager")
    torch.testing.assert_close(mine.decode(z).sample, plain, rtol=1e-4, atol=1e-4)
    whole = AutoencoderZenith.load(nano).decoder
    assert len(whole[1:3]) == 2


def test_what_looks_at_torchs_operations_sees_them(nano) -> None:
    """Hooks of all modules, what counts operations, graphs, tensors without values."""
    mine = AutoencoderZenith.load(nano)
    z = mine.encode(picture()).latents
    plain = mine.decode(z).sample
    calls: list[int] = []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(mine.decode(z).sample, plain, rtol=1e-4, atol=1e-4)
    hook.remove()
    assert len(calls) >= len(mine.decoder)
    with FlopCounterMode(display=False) as counter:
        mine.decode(z)
    assert counter.get_total_flops() > 1e5
    graph = make_fx(lambda z: mine.decode(z).sample)(z)
    torch.testing.assert_close(graph(z), plain, rtol=1e-4, atol=1e-4)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert mine.decode(mode.from_tensor(z)).sample.shape == plain.shape
        late = mode.from_tensor(z)
    assert mine.decode(late).sample.shape == plain.shape


def test_layers_that_others_changed_are_computed_with(folder) -> None:
    """Paddings for textures without seams, other activations, parametrisations, an own ``forward``."""

    def circular(decoder) -> None:
        for m in decoder.modules():
            if isinstance(m, torch.nn.Conv2d):
                m.padding_mode = "circular"

    def smooth(decoder) -> None:
        at = next(i for i, m in enumerate(decoder) if isinstance(m, torch.nn.Conv2d))
        decoder[at] = torch.nn.Sequential(decoder[at], torch.nn.SiLU())

    def normalised(decoder) -> None:
        at = next(i for i, m in enumerate(decoder) if isinstance(m, torch.nn.Conv2d))
        conv = torch.nn.utils.parametrizations.weight_norm(decoder[at])
        with torch.no_grad():
            conv.parametrizations.weight.original0.mul_(1.5)

    def own_forward(decoder) -> None:
        conv = next(m for m in decoder.modules() if isinstance(m, torch.nn.Conv2d))
        conv.forward = lambda x, forward=conv.forward: forward(x) + 1

    z = torch.randn(1, 4, 4, 5, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        plain = AutoencoderZenith.load(folder).decode(z).sample
    for change in (circular, smooth, normalised, own_forward):
        model = AutoencoderZenith.load(folder)
        change(model.decoder)
        with torch.no_grad():
            changed = model.decode(z).sample
        learning = model.decode(z.clone().requires_grad_()).sample  # which torch computes
        torch.testing.assert_close(changed, learning.detach(), rtol=1e-4, atol=1e-4)
        assert (changed - plain).abs().max() > 1e-3, change.__name__


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_what_torch_records_or_transforms_depends_on_the_input(nano) -> None:
    model = AutoencoderZenith.load(nano)
    z, way = torch.randn(2, 1, 32, 4, 5, generator=torch.Generator().manual_seed(3))

    def decode(z):
        return model.decode(z).sample

    with torch.no_grad():
        traced = torch.jit.trace(decode, z, check_trace=False)
        torch.testing.assert_close(traced(way), decode(way), rtol=1e-4, atol=1e-4)
    step = 1e-2 * way
    difference = (decode(z + step) - decode(z - step)) / 2
    slope = torch.func.jvp(decode, (z,), (step,))[1]
    assert (slope - difference).norm() < 0.1 * slope.norm()  # differences meet kinks
    with torch.autograd.forward_ad.dual_level():
        dual = decode(torch.autograd.forward_ad.make_dual(z, step))
        assert torch.allclose(torch.autograd.forward_ad.unpack_dual(dual).tangent, slope, atol=1e-6)
    both = torch.func.vmap(decode)(torch.stack([z, way]))
    torch.testing.assert_close(both, torch.stack([decode(z), decode(way)]), rtol=1e-4, atol=1e-4)
    along = torch.func.grad(lambda z: (decode(z) ** 2).sum())(z)
    z.requires_grad_()
    (decode(z) ** 2).sum().backward()
    torch.testing.assert_close(along, z.grad, rtol=1e-3, atol=1e-3)


def test_gradients_are_those_of_checkpointing_too(nano) -> None:
    gradients = []
    for checkpointed in (False, True):
        mine = AutoencoderZenith.load(nano).requires_grad_(True)
        if checkpointed:
            mine.enable_gradient_checkpointing()
        mine(picture()).sample.square().mean().backward()
        gradients.append({name: p.grad for name, p in mine.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


def test_a_copy_of_a_compiled_model_computes_with_its_own_parameters(nano) -> None:
    model = AutoencoderZenith.load(nano)
    model.compile(backend="eager")
    twin, again = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    x = picture()
    torch.testing.assert_close(again(x).sample, model(x).sample, rtol=1e-4, atol=1e-4)
    for parameter in twin.parameters():
        parameter.zero_()
    assert torch.equal(twin(x).sample, twin.forward(x).sample)
    assert not torch.equal(twin(x).sample, model(x).sample)


def test_a_part_that_is_compiled_is_called_through_torch(nano) -> None:
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    model, z = AutoencoderZenith.load(nano), torch.randn(1, 32, 4, 4)
    expected = model.decode(z).sample
    model.decoder.compile(backend=backend)
    torch.testing.assert_close(model.decode(z).sample, expected, rtol=1e-4, atol=1e-4)
    assert graphs


def test_methods_compile_as_one_graph(nano) -> None:
    model, z = AutoencoderZenith.load(nano), torch.randn(1, 32, 4, 5)
    for call, x in ((model.decode, z), (model.encode, picture())):
        expected = call(x, return_dict=False)[0]
        compiled = torch.compile(call, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x, return_dict=False)[0], expected, rtol=1e-4, atol=1e-4)


def test_transforms_and_classes_of_parameters_are_torchs_business(nano) -> None:
    class Marked(torch.Tensor):
        pass

    model, z = AutoencoderZenith.load(nano), torch.randn(1, 32, 4, 4)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def decode(parameters):
        return torch.func.functional_call(model, parameters, (z,))

    model.forward = lambda z: model.decode(z).sample
    ones = {name: torch.ones_like(p) for name, p in parameters.items()}
    _, tangent = torch.func.jvp(decode, (parameters,), (ones,))
    with torch.autograd.forward_ad.dual_level():
        dual = {name: torch.autograd.forward_ad.make_dual(p, ones[name]) for name, p in parameters.items()}
        found = torch.autograd.forward_ad.unpack_dual(decode(dual)).tangent
    torch.testing.assert_close(found, tangent)
    stacked = {name: torch.stack([p, p]) for name, p in parameters.items()}
    both = torch.func.vmap(decode)(stacked)
    torch.testing.assert_close(both[0], model.decode(z).sample, rtol=1e-4, atol=1e-4)
    assert type(model.decode(z.as_subclass(Marked)).sample) is Marked


def test_the_precision_of_a_part_is_that_of_its_own_parameters(nano) -> None:
    model, z = AutoencoderZenith.load(nano), torch.randn(1, 32, 4, 4)
    exact = model.decode(z).sample
    for other in (model, AutoencoderZenith.load(nano)):  # one that has run before, and one that has not
        other.encoder.half()
        assert torch.equal(other.decode(z).sample, exact)


def test_a_folder_by_its_relative_name_is_converted_within_a_folder_of_its_own(
    folder, tmp_path, monkeypatch
) -> None:
    shutil.copytree(folder, tmp_path / "model" / "tiny")
    (tmp_path / "model" / "tiny" / "below").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "model" / "tiny" / "below")
    AutoencoderZenith.from_pretrained("..")
    assert not any((tmp_path / "temporary").iterdir())


def test_what_is_missing_is_named() -> None:
    code = "import sys; sys.modules['huggingface_hub'] = None; import zenith_ae.integrations.diffusers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "MissingDependencyError: AutoencoderZenith needs diffusers" in last and "huggingface_hub" in last
