"""Tiled Walsh-Hadamard mixing for torch: a plain reference, and a fast native operator on the CPU.

The transform is its own inverse up to a factor, so its backward pass is itself. Written with
matrix products it makes training of a Zenith network about three times slower on a CPU; the
native operator does a tile forward or backward in registers, lanes being channels.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

_TILES = (4, 8, 16)  # sides that the native operator takes


def hadamard(n: int, device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """The n x n Hadamard matrix in natural (Sylvester) order; n a power of two."""
    h = torch.ones(1, 1)
    while h.shape[0] < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return h.to(device=device, dtype=dtype)


def shrink(x: Tensor, threshold: Tensor) -> Tensor:
    """Soft threshold: sign(x) * max(|x| - threshold, 0)."""
    return x.sign() * F.relu(x.abs() - threshold)


def _tiles(x: Tensor, t: int) -> Tensor:
    """(N, C, H, W) -> (N, H', T, W', T, C), zero-padded to whole tiles."""
    x = F.pad(x, (0, -x.shape[3] % t, 0, -x.shape[2] % t))
    n, c, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(n, h // t, t, w // t, t, c)


def _untile(tiles: Tensor, height: int, width: int) -> Tensor:
    n, rows, t, columns, _, c = tiles.shape
    whole = tiles.reshape(n, rows * t, columns * t, c).permute(0, 3, 1, 2)
    return whole[:, :, :height, :width]


def wht_mix_reference(x: Tensor, gate: Tensor, threshold: Tensor) -> Tensor:
    """WHT(shrink(gate * WHT(x), |threshold|)) / T^2 on T x T tiles, in plain torch.

    Parameters
    ----------
    x : (N, C, H, W), any H and W; tiles start at (0, 0), zeros fill the last ones.
    gate, threshold : (T, T, C), vertical frequency first.
    """
    t = gate.shape[0]
    h = hadamard(t, x.device, x.dtype)
    tiles = _tiles(x, t)
    spectrum = torch.einsum("ia,jb,nrawbc->nriwjc", h, h, tiles)
    spectrum = shrink(spectrum * gate[:, None].to(x.dtype), threshold[:, None].abs().to(x.dtype))
    mixed = torch.einsum("ia,jb,nrawbc->nriwjc", h, h, spectrum) / t**2
    return _untile(mixed, x.shape[2], x.shape[3])


def wht_mix_separable(
    x: Tensor, row_gate: Tensor, row_threshold: Tensor, column_gate: Tensor, column_threshold: Tensor
) -> Tensor:
    """The separable form: the same in one dimension along rows, then along columns.

    Gates and thresholds are (T, C).
    """
    t = row_gate.shape[0]
    h = hadamard(t, x.device, x.dtype)
    tiles = _tiles(x, t)
    along = torch.einsum("jb,nrawbc->nrawjc", h, tiles)
    along = shrink(along * row_gate.to(x.dtype), row_threshold.abs().to(x.dtype))
    tiles = torch.einsum("jb,nrawbc->nrawjc", h, along) / t
    along = torch.einsum("ia,nrawbc->nriwbc", h, tiles)
    along = shrink(
        along * column_gate[:, None, None].to(x.dtype), column_threshold[:, None, None].abs().to(x.dtype)
    )
    return _untile(torch.einsum("ia,nrawbc->nriwbc", h, along) / t, x.shape[2], x.shape[3])


@cache
def _native() -> Any:
    try:
        from .._kernels import _ops
    except ImportError:
        return None
    return _ops


@cache
def _executor(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers)


# A forked process has the executors, but none of their threads.
os.register_at_fork(after_in_child=_executor.cache_clear)


def native_available() -> bool:
    """True where the fast CPU operator is compiled in."""
    return _native() is not None


def is_plain(x: Tensor) -> bool:
    """Whether x is numbers alone, for other code than torch's to read.

    It is not while torch.compile or torch.jit.trace records, where a mode of dispatch sees every operation
    (as what counts them, make_fx and fake tensors do) or a class those of its tensors, in the transforms of
    torch.func (vmap, grad, jvp), nor with a tangent of forward-mode differentiation.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._dispatch_keys(x).has(torch._C.DispatchKey.Python):
        return False
    transformed = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return not transformed and forward_ad.unpack_dual(x).tangent is None


def _batch_slices(n: int) -> list[slice]:
    """Contiguous parts of a batch, one a torch thread."""
    parts = max(1, min(n, torch.get_num_threads()))
    bounds = [n * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def _nhwc(x: Tensor) -> Tensor:
    """(N, C, H, W) as the native operator reads it: (N, H, W, C), contiguous float32."""
    return x.detach().permute(0, 2, 3, 1).float().contiguous()


def _gates(gate: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Gate and |threshold| (T, T, C) as the native operator reads them: contiguous float32."""
    return gate.detach().float().contiguous(), threshold.detach().float().abs().contiguous()


class _WhtMix(torch.autograd.Function):
    """The native operator: NHWC float32 inside, threads over the batch (the GIL is released)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, threshold: Tensor) -> Tensor:
        nhwc, (gate32, threshold32) = _nhwc(x), _gates(gate, threshold)
        out = torch.empty_like(nhwc)
        ops = _native()

        def part(s: slice) -> None:
            ops.wht_gate_forward(nhwc[s].numpy(), gate32.numpy(), threshold32.numpy(), out[s].numpy())

        slices = _batch_slices(nhwc.shape[0])
        list(_executor(len(slices)).map(part, slices))
        ctx.save_for_backward(x, gate, threshold)
        return out.to(x.dtype).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        given = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated too (``create_graph``)
            # As views: where one is made of another, no gradient is to go that way too.
            given = tuple(t.view_as(t) for t in given)
            wanted = [t for t, need in zip(given, ctx.needs_input_grad, strict=True) if need]
            found = iter(torch.autograd.grad(wht_mix_reference(*given), wanted, grads, create_graph=True))
            return tuple(next(found) if need else None for need in ctx.needs_input_grad)
        x, gate, threshold = given
        nhwc, grad_out, (gate32, threshold32) = _nhwc(x), _nhwc(grads[0]), _gates(gate, threshold)
        grad_in = torch.empty_like(nhwc)
        slices = _batch_slices(nhwc.shape[0])
        sums = torch.zeros(2, len(slices), *gate.shape)
        ops = _native()

        def part(i: int) -> None:
            s = slices[i]
            ops.wht_gate_backward(
                nhwc[s].numpy(), grad_out[s].numpy(), gate32.numpy(), threshold32.numpy(),
                grad_in[s].numpy(), sums[0, i].numpy(), sums[1, i].numpy(),
            )  # fmt: skip

        list(_executor(len(slices)).map(part, range(len(slices))))
        grad_gate, grad_threshold = sums.sum(1)
        grad_threshold = grad_threshold * threshold.detach().sign()  # as of abs()
        return grad_in.to(grads[0].dtype).permute(0, 3, 1, 2), grad_gate, grad_threshold


def wht_mix(x: Tensor, gate: Tensor, threshold: Tensor) -> Tensor:
    """`wht_mix_reference`, through the native operator where x is on the CPU and it fits.

    What is not plain gets the reference, of which torch can make one graph and any derivative; so do
    doubles, which the operator would compute as single floats.
    """
    single = x.is_floating_point() and x.dtype != torch.float64
    fits = x.device.type == "cpu" and x.shape[1] % 16 == 0 and x.numel() and single
    fits = (
        fits and gate.shape == threshold.shape == (len(gate), len(gate), x.shape[1]) and len(gate) in _TILES
    )
    if fits and all(map(is_plain, (x, gate, threshold))) and native_available():
        return _WhtMix.apply(x, gate, threshold)
    return wht_mix_reference(x, gate, threshold)
