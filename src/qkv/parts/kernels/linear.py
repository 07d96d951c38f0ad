"""A linear layer with a fused backward pass: one kernel sums the bias's gradient and applies the activation's derivative.

For that sum, over all positions of a batch, torch takes about as long as for a matrix product. N positions, D output width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.activations import ACTIVATIONS
from qkv.parts.kernels.sums import sum_lines
from qkv.parts.products import product

ROWS, WIDTH = 128, 64  # rows and columns that a program sums


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "") -> Tensor:
    """Return activation(x weight' + bias) in bf16; bias and activation may be missing.

    x (..., C), weight (D, C), bias (D,) -> (..., D).
    """
    return _Linear.apply(x, weight, bias, activation)


@triton.jit
def activation_slope(seen, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the activation's derivative: of ReLU and tanh from the output, of the others from the input."""
    if ACTIVATION == "relu":
        slope = tl.where(seen > 0, 1.0, 0.0)
    elif ACTIVATION == "tanh":
        slope = 1 - seen * seen
    elif ACTIVATION == "silu":
        gate = tl.sigmoid(seen)
        slope = gate + seen * gate * (1 - gate)
    elif ACTIVATION == "gelu":
        slope = 0.5 * (1 + tl.erf(seen * 0.7071067811865476)) + seen * tl.exp(-0.5 * seen * seen) * 0.3989422804014327
    else:  # GELU's approximation: x (1 + tanh u) / 2, and (1 + tanh u) / 2 is the logistic function of 2 u
        half = tl.sigmoid(1.5957691216057308 * (seen + 0.044715 * seen * seen * seen))
        slope = half + seen * half * (1 - half) * 1.5957691216057308 * (1 + 0.134145 * seen * seen)
    return slope


@triton.jit
def _sum_rows(  # type: ignore[no-untyped-def]
    GRAD, SEEN, THROUGH, SUMS, N, D: tl.constexpr,
    ACTIVATION: tl.constexpr, ROWS: tl.constexpr, AT_ONCE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the gradient over some rows; with an activation, multiply by its derivative first and write that to THROUGH."""
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    total = tl.zeros([AT_ONCE, WIDTH], tl.float32)
    for start in range(0, ROWS, AT_ONCE):
        n = tl.program_id(0).to(tl.int64) * ROWS + start + tl.arange(0, AT_ONCE)
        inside = (n < N)[:, None] & (d < D)
        at = n[:, None] * D + d
        grad = tl.load(GRAD + at, mask=inside, other=0.0).to(tl.float32)
        if ACTIVATION != "":
            grad *= activation_slope(tl.load(SEEN + at, mask=inside, other=0.0).to(tl.float32), ACTIVATION)
            tl.store(THROUGH + at, grad.to(THROUGH.dtype.element_ty), mask=inside)
        total += grad
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    tl.store(SUMS + tl.program_id(0) * D + column, tl.sum(total, 0), mask=column < D)


def sum_over_rows(grad: Tensor, activation: str = "", seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the gradient (N, D), through the activation if there is one, and its sum (D,) in float32."""
    positions, width = grad.shape
    through = grad if seen is None else torch.empty_like(grad)
    programs = triton.cdiv(positions, ROWS)
    at_once, warps = (8, 8) if seen is None else (16, 4)  # the fastest on an H200
    sums = grad.new_empty(programs, width, dtype=torch.float32)
    _sum_rows[(programs, triton.cdiv(width, WIDTH))](
        grad, grad if seen is None else seen, through, sums, positions, width,
        ACTIVATION=activation, ROWS=ROWS, AT_ONCE=at_once, WIDTH=WIDTH, num_warps=warps,
    )  # fmt: skip
    return through, sum_lines(sums)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        dtype = torch.bfloat16 if x.is_cuda else x.dtype
        flat, low = x.flatten(0, -2).to(dtype), weight.to(dtype)
        if bias is None:
            out = inside = flat @ low.T
            if activation:
                out = ACTIVATIONS[activation](inside)
        else:
            multiply = torch._addmm_activation if activation == "relu" else torch.addmm
            inside = multiply(bias.to(dtype), flat, low.T)
            out = inside if activation in ("", "relu") else ACTIVATIONS[activation](inside)
        ctx.save_for_backward(flat, low, {"": None, "relu": out, "tanh": out}.get(activation, inside))
        ctx.activation, ctx.dtype, ctx.biased = activation, x.dtype, bias is not None
        return out.view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, low, seen = ctx.saved_tensors
        grad, grad_bias = grads[0].flatten(0, -2).contiguous(), None
        if ctx.biased or ctx.activation:
            grad, grad_bias = sum_over_rows(grad, ctx.activation, seen)
        grad_x = (grad @ low).to(ctx.dtype).view(*grads[0].shape[:-1], low.size(1))
        return grad_x, product(grad.T, flat), grad_bias if ctx.biased else None, None
