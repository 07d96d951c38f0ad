"""A linear layer whose backward pass sums the bias's gradient fast, with the ReLU before or after it in the same kernels.

torch takes about as long for that sum, over all places of a batch, as for a matrix product. N places, D width of the output.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.kernels.sums import sum_lines

PLACES, WIDTH = 256, 128  # that a program sums over, and of how many columns


def linear(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """x weight' + bias in bf16, and ReLU of that where it is wanted. x (..., C), weight (D, C), bias (D,) -> (..., D)."""
    return _Linear.apply(x, weight, bias, relu)


@triton.jit
def _sum_places(  # type: ignore[no-untyped-def]
    GRAD, OUT, THROUGH, SUMS, N, D: tl.constexpr,
    RELU: tl.constexpr, PLACES: tl.constexpr, AT_ONCE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient over some places; with RELU of what passes where OUT is positive, which is written to THROUGH."""
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    total = tl.zeros([AT_ONCE, WIDTH], tl.float32)
    for start in range(0, PLACES, AT_ONCE):
        n = tl.program_id(0).to(tl.int64) * PLACES + start + tl.arange(0, AT_ONCE)
        inside = (n < N)[:, None] & (d < D)
        at = n[:, None] * D + d
        grad = tl.load(GRAD + at, mask=inside, other=0.0)
        if RELU:
            grad = tl.where(tl.load(OUT + at, mask=inside, other=0.0) > 0, grad, 0.0)
            tl.store(THROUGH + at, grad, mask=inside)
        total += grad.to(tl.float32)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    tl.store(SUMS + tl.program_id(0) * D + column, tl.sum(total, 0), mask=column < D)


def sum_over_places(grad: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gradient (N, D), only where `out` is positive if that is given, and its sum (D,) in float32."""
    places, width = grad.shape
    through = grad if out is None else torch.empty_like(grad)
    programs = triton.cdiv(places, PLACES)
    sums = grad.new_empty(programs, width, dtype=torch.float32)
    _sum_places[(programs, triton.cdiv(width, WIDTH))](
        grad, grad if out is None else out, through, sums, places, width,
        RELU=out is not None, PLACES=PLACES, AT_ONCE=32, WIDTH=WIDTH, num_warps=4,
    )  # fmt: skip
    return through, sum_lines(sums)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        dtype = torch.bfloat16 if x.is_cuda else x.dtype
        flat, low = x.flatten(0, -2).to(dtype), weight.to(dtype)
        product = torch._addmm_activation if relu else torch.addmm
        out = product(bias.to(dtype), flat, low.T)
        ctx.save_for_backward(flat, low, out if relu else None)
        ctx.dtype = x.dtype
        return out.view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, low, out = ctx.saved_tensors
        grad, grad_bias = sum_over_places(grads[0].flatten(0, -2).contiguous(), out)
        grad_x = (grad @ low).to(ctx.dtype).view(*grads[0].shape[:-1], low.size(1))
        return grad_x, (grad.T @ flat).float(), grad_bias, None
