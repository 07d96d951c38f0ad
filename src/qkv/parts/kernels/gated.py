"""Gated activations (Shazeer 2020) as one kernel each way: activation(gate) x value, where gate and value lie side by side.

N positions, F inner width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.kernels.linear import activation_slope

AT_ONCE = 1024  # values that a program computes


def gate(x: Tensor, activation: str) -> Tensor:
    """Return activation(gate) x value, for silu or gelu-tanh. x (..., 2 F): gate, then value -> (..., F)."""
    return _Gate.apply(x.contiguous(), activation)


@triton.jit
def _activate(x, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return x times its logistic function or, for GELU's approximation, times that of a polynomial of x."""
    inside = x if ACTIVATION == "silu" else 1.5957691216057308 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(inside)


@triton.jit
def _gate_forward(X, Y, F, ACTIVATION: tl.constexpr, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    n, f = tl.program_id(0).to(tl.int64), tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    gate = tl.load(X + n * 2 * F + f, mask=f < F, other=0.0).to(tl.float32)
    value = tl.load(X + n * 2 * F + F + f, mask=f < F, other=0.0).to(tl.float32)
    tl.store(Y + n * F + f, (_activate(gate, ACTIVATION) * value).to(Y.dtype.element_ty), mask=f < F)


@triton.jit
def _gate_backward(X, GRAD, GRAD_X, F, ACTIVATION: tl.constexpr, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    n, f = tl.program_id(0).to(tl.int64), tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    gate = tl.load(X + n * 2 * F + f, mask=f < F, other=0.0).to(tl.float32)
    value = tl.load(X + n * 2 * F + F + f, mask=f < F, other=0.0).to(tl.float32)
    grad = tl.load(GRAD + n * F + f, mask=f < F, other=0.0).to(tl.float32)
    of_gate, of_value = grad * value * activation_slope(gate, ACTIVATION), grad * _activate(gate, ACTIVATION)
    tl.store(GRAD_X + n * 2 * F + f, of_gate.to(GRAD_X.dtype.element_ty), mask=f < F)
    tl.store(GRAD_X + n * 2 * F + F + f, of_value.to(GRAD_X.dtype.element_ty), mask=f < F)


def _grid(y: Tensor) -> tuple[int, int]:
    return y.numel() // y.size(-1), triton.cdiv(y.size(-1), AT_ONCE)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: str) -> Tensor:
        y = x.new_empty(*x.shape[:-1], x.size(-1) // 2)
        _gate_forward[_grid(y)](x, y, y.size(-1), ACTIVATION=activation, AT_ONCE=AT_ONCE, num_warps=4)
        ctx.save_for_backward(x)
        ctx.activation = activation
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,), grad = ctx.saved_tensors, grads[0].contiguous()
        found = torch.empty_like(x)
        _gate_backward[_grid(grad)](x, grad, found, grad.size(-1), ACTIVATION=ctx.activation, AT_ONCE=AT_ONCE, num_warps=4)
        return found, None
