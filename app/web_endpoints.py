"""The web page's API: endpoints with names, for programs (docs/web-ui.md)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from zenith_ae.errors import ConfigError
from zenith_ae.latents import DTYPES
from zenith_ae.pipelines import PASSES

from .web_jobs import Workshop, noise_settings, shipped_models
from .web_windows import DEVICE, guarded


def add_endpoints(workshop: Workshop) -> None:
    """The API: each endpoint takes files and settings, and gives files and a JSON object of facts."""
    denoisers, autoencoders = shipped_models("denoiser"), shipped_models("autoencoder")
    with gr.Row(visible=False):
        picture = gr.File(label="picture", type="filepath")
        several = gr.File(label="pictures or ZIP files", file_count="multiple", type="filepath")
        denoiser = gr.Dropdown(list(denoisers), value=denoisers[0] if denoisers else None, label="model")
        autoencoder = gr.Dropdown(list(autoencoders), label="model",
                                  value=autoencoders[0] if autoencoders else None)  # fmt: skip
        chosen = gr.CheckboxGroup(
            [*denoisers, *autoencoders], value=[*denoisers, *autoencoders], label="models"
        )
        sigma = gr.Number(-1, minimum=-1, maximum=255, label="noise level, 0 to 255; -1 estimates it")
        added = gr.Number(25, minimum=0, maximum=255, label="noise to add for denoisers")
        settings: list[Any] = [
            gr.Number(value, minimum=0, maximum=1, label=f"{name}, 0 to 1")
            for name, value in (("strength", 1), ("luma", 1), ("chroma", 1), ("grain", 0))
        ]
        settings.append(gr.Number(1, label=f"passes: {', '.join(map(str, PASSES))}"))
        dtype = gr.Radio(list(DTYPES), value="fp16", label="number format of the latents")
        file, facts = gr.File(label="result"), gr.JSON(label="facts")
        second = gr.File(label="latents")
        trigger = gr.Button()

    def denoise(
        picture: str,
        model: str | None,
        sigma: float | None = -1,
        strength: float | None = 1,
        luma: float | None = 1,
        chroma: float | None = 1,
        grain: float | None = 0,
        passes: float | None = 1,
    ) -> tuple[str, dict]:
        """Remove noise; the file keeps its format, size, mode and bit depth."""
        settings = noise_settings(strength, luma, chroma, grain, passes)
        result = workshop.denoise(picture, model or denoisers[0], _level(sigma), **settings)
        return result.files["picture"], result.facts

    def encode(picture: str, model: str | None, dtype: str | None = "fp16") -> tuple[str, dict]:
        """Encode a picture to a latent file."""
        result = workshop.encode(picture, model or autoencoders[0], dtype or "fp16")
        return result.files["latents"], result.facts

    def decode(latents: str) -> tuple[str, dict]:
        """Decode a latent file to a PNG."""
        result = workshop.decode(latents)
        return result.files["picture"], result.facts

    def roundtrip(picture: str, model: str | None, dtype: str | None = "fp16") -> tuple[str, str, dict]:
        """Encode and decode; the picture, its latent file, and how close they are."""
        result = workshop.roundtrip(picture, model or autoencoders[0], dtype or "fp16")
        return result.files["picture"], result.files["latents"], result.facts

    def batch(
        pictures: list[str],
        model: str | None,
        sigma: float | None = -1,
        strength: float | None = 1,
        luma: float | None = 1,
        chroma: float | None = 1,
        grain: float | None = 0,
        passes: float | None = 1,
    ) -> Iterator[tuple[str | None, dict]]:
        """Denoise many pictures or ZIP files; progress on the way, a ZIP at the end."""
        settings = noise_settings(strength, luma, chroma, grain, passes)
        for state in workshop.batch(
            pictures, model or denoisers[0], _level(sigma), lambda: False, **settings
        ):
            lists = {"failed": state.shown(state.failed), "notes": state.shown(state.notes)}
            report = {k: v for k, v in vars(state).items() if k not in ("thumbnails", "archive")} | lists
            yield state.archive, report

    def compare(picture: str, models: list[str], sigma: float | None = 25) -> dict:
        """PSNR, SSIM and time of models on one picture."""
        return workshop.compare(picture, models, sigma).facts

    def benchmark() -> dict[str, float]:
        """Megapixels per second of every model on this machine."""
        return dict(workshop.benchmark())

    def models() -> dict[str, list[str]]:
        """Names of the models."""
        return {"denoiser": list(denoisers), "autoencoder": list(autoencoders)}

    for work, inputs, outputs in (
        (denoise, [picture, denoiser, sigma, *settings], [file, facts]),
        (encode, [picture, autoencoder, dtype], [file, facts]),
        (decode, [picture], [file, facts]),
        (roundtrip, [picture, autoencoder, dtype], [file, second, facts]),
        (batch, [several, denoiser, sigma, *settings], [file, facts]),
        (compare, [picture, chosen, added], [facts]),
        (benchmark, [], [facts]),
        (models, [], [facts]),
    ):
        description = inspect.getdoc(work)
        trigger.click(_for_api(workshop, work), inputs, outputs, api_name=work.__name__,
                      api_description=description, **DEVICE)  # fmt: skip


def _level(sigma: float | None) -> float | None:
    """A noise level of the API, where a negative one, or none, is to be estimated."""
    if isinstance(sigma, bool):
        raise ConfigError("the noise level is a number of 0 to 255, or -1 to estimate it, not true or false")
    return None if sigma is None or sigma < 0 else sigma


def _for_api(workshop: Workshop, work: Callable) -> Callable:
    """``work`` whose every failure is an error of one line for the client."""

    def complain(error: Exception) -> Any:
        raise gr.Error(workshop.describe(error), print_exception=False) from None

    return guarded(work, complain)
