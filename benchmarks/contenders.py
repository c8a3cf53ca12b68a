"""The ways to run one network that peers.py compares: torch, ONNX Runtime, OpenVINO, and ours.

A network is a dictionary of parts (torch modules), its input a dictionary of NCHW float32 arrays.
A contender turns them into calls without arguments, one a part. What is needed before a call
(conversion of weights, memory formats, the input's type) is done once and is not timed; our own
engine is timed from a uint8 picture to a uint8 picture.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import zenith_ae
from zenith_ae.measure import measured_parts, part_input
from zenith_ae.models.modules import frozen_module
from zenith_ae.weights import Weights

Calls = dict[str, Callable[[], Any]]
Modules = Mapping[str, nn.Module]
Inputs = Mapping[str, NDArray[np.float32]]


def modules(weights: Weights) -> dict[str, nn.Module]:
    """The parts of a model as torch modules, in evaluation mode."""
    return {part: frozen_module(weights, part) for part in measured_parts(weights.config)}


def part_inputs(weights: Weights, size: int) -> dict[str, NDArray[np.float32]]:
    """What the parts' modules take for a picture of size x size: NCHW, pictures in [0, 1]."""
    inputs = {}
    for part in measured_parts(weights.config):
        x, plane = part_input(weights.config, part, size, size)
        x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
        if plane is not None:
            x = np.concatenate([x, plane[..., None]], 3)
        inputs[part] = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return inputs


def ffdnet() -> nn.Module:
    """FFDNet for colour: pixel unshuffle, 12 convolutions 3x3 of 96 channels, pixel shuffle.

    Input (N, 4, H, W): a picture and its noise level, of which FFDNet takes one value in four.
    Batch normalisation is folded away, as it is when such a network is used. Random weights.

    Source: Zhang, Zuo, Zhang, FFDNet: Toward a Fast and Flexible Solution for CNN-Based Image
    Denoising, IEEE Transactions on Image Processing, 2018.
    """

    class FFDNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [13, *[96] * 11, 12]
            layers: list[nn.Module] = []
            for cin, cout in pairwise(widths):
                layers += [nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU()]
            self.body = nn.Sequential(*layers[:-1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            level = x[:, 3:, ::2, ::2]
            x = torch.nn.functional.pixel_unshuffle(x[:, :3], 2)
            return torch.nn.functional.pixel_shuffle(self.body(torch.cat([x, level], 1)), 2)

    return FFDNet().eval().requires_grad_(False)


# --- torch ----------------------------------------------------------------------------------


def torch_calls(
    parts: Modules, inputs: Inputs, dtype: torch.dtype, layout: torch.memory_format, autocast: bool = False,
    compiled: bool = False,
) -> Calls:  # fmt: skip
    calls: Calls = {}
    for part, module in parts.items():
        kept = torch.float32 if autocast else dtype
        copy = deepcopy(module).to(kept).to(memory_format=layout)
        x = torch.from_numpy(inputs[part]).to(kept).contiguous(memory_format=layout)
        run = torch.compile(copy, dynamic=False) if compiled else copy

        def call(run: Any = run, x: torch.Tensor = x) -> Any:
            with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=autocast):
                return run(x)

        calls[part] = call
    return calls


# --- ONNX Runtime, OpenVINO -----------------------------------------------------------------


@lru_cache(maxsize=8)
def onnx_model(module: nn.Module, shape: tuple[int, ...]) -> bytes:
    """The module as an ONNX file for inputs of this shape."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (torch.zeros(shape),), file, dynamo=False, opset_version=17,
            input_names=["x"], output_names=["y"],
        )  # fmt: skip
    return file.getvalue()


def onnxruntime_calls(parts: Modules, inputs: Inputs) -> Calls:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    calls: Calls = {}
    for part, module in parts.items():
        session = onnxruntime.InferenceSession(
            onnx_model(module, inputs[part].shape), options, providers=["CPUExecutionProvider"]
        )
        calls[part] = lambda session=session, part=part: session.run(None, {"x": inputs[part]})[0]
    return calls


def openvino_calls(parts: Modules, inputs: Inputs, precision: str) -> Calls:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    calls: Calls = {}
    for part, module in parts.items():
        model = core.read_model(onnx_model(module, inputs[part].shape))
        try:
            compiled = core.compile_model(model, "CPU", settings)
        except RuntimeError as error:
            raise RuntimeError(f"OpenVINO cannot compile for {precision} here: {error}") from None
        request = compiled.create_infer_request()

        def call(request: Any = request, part: str = part) -> Any:
            request.infer([inputs[part]], share_inputs=True)
            return request.get_output_tensor().data

        calls[part] = call
    return calls


CONTIGUOUS, CHANNELS_LAST = torch.contiguous_format, torch.channels_last

#: name -> calls of a network's parts. Compiling takes a minute a part, so it has a flag.
CONTENDERS: dict[str, Callable[[Modules, Inputs], Calls]] = {
    "torch eager float32": lambda m, x: torch_calls(m, x, torch.float32, CONTIGUOUS),
    "torch eager float32 channels_last": lambda m, x: torch_calls(m, x, torch.float32, CHANNELS_LAST),
    "torch eager bf16 autocast": lambda m, x: torch_calls(m, x, torch.bfloat16, CHANNELS_LAST, autocast=True),
    "torch eager bf16": lambda m, x: torch_calls(m, x, torch.bfloat16, CHANNELS_LAST),
    "torch.compile float32": lambda m, x: torch_calls(m, x, torch.float32, CHANNELS_LAST, compiled=True),
    "torch.compile bf16": lambda m, x: torch_calls(m, x, torch.bfloat16, CHANNELS_LAST, compiled=True),
    "ONNX Runtime float32": onnxruntime_calls,
    "OpenVINO float32": lambda m, x: openvino_calls(m, x, "f32"),
    "OpenVINO bf16": lambda m, x: openvino_calls(m, x, "bf16"),
}  # fmt: skip


# --- ours -----------------------------------------------------------------------------------


def pipeline(weights: Weights, threads: int, dtype: str = "auto") -> Any:
    """An `Autoencoder` or a `Denoiser` on the native engine."""
    kind = zenith_ae.Autoencoder if weights.config.kind == "autoencoder" else zenith_ae.Denoiser
    return kind(weights, device="cpu", dtype=dtype, threads=threads)


def own_dtypes(weights: Weights) -> list[str]:
    """The types of arithmetic that the native engine has here, float32 first."""
    return list(dict.fromkeys(("float32", pipeline(weights, 1).engine.dtype)))


def own_calls(weights: Weights, size: int, threads: int, dtype: str) -> Calls:
    """The parts of a model on the native engine, from a uint8 picture to a uint8 picture."""
    model = pipeline(weights, threads, dtype)
    calls: Calls = {}
    for part in measured_parts(weights.config):
        x, plane = part_input(weights.config, part, size, size)
        if part == "encoder":
            calls[part] = lambda x=x: model.encode(x)
        elif part == "decoder":
            z = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
            calls[part] = lambda z=z: model.decode(z)
        else:
            calls[part] = lambda part=part, x=x, plane=plane: model.engine.run(part, x, plane=plane)
    return calls


def limit_threads(threads: int) -> None:
    """Give every library the same number of threads, as far as it reads it at run time."""
    torch.set_num_threads(threads)
    os.environ["ZENITH_NUM_THREADS"] = str(threads)
