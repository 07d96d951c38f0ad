"""norm(x + dropout(change)) as one kernel each way: the residual connection of a post-norm layer, sums in float32.

The norm is LayerNorm or, without a bias, RMSNorm (Zhang and Sennrich 2019), which neither centres values nor moves them.
In a pre-norm layer the same is the end of one sub-layer and the beginning of the next: the sum goes on beside its norm.

Dropout is decided by hashes, as in `dropout.py`, so that the backward pass has it without its having been stored.
N positions, P of them in each row that has a key of its own, D width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.base.draws import next_keys, values_per_row
from qkv.parts.kernels.dropout import kept, threshold
from qkv.parts.kernels.sums import sum_lines

AT_ONCE = 2048  # values that a program processes together
BLOCKS = 8  # blocks of AT_ONCE values for each program of the backward pass, which writes one line of sums over them


def add_and_norm(x: Tensor, change: Tensor, weight: Tensor, bias: Tensor | None, rate: float, epsilon: float) -> Tensor:
    """Return the norm of x + dropout(change), with gradients. x and change (..., D), weight and bias (D,) -> (..., D)."""
    return _AddAndNorm.apply(x.contiguous(), change.contiguous(), weight, bias, rate, epsilon, False)[1]


def add_then_norm(
    x: Tensor, change: Tensor, weight: Tensor, bias: Tensor | None, rate: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return x + dropout(change), in the dtype of x, and the norm of it. Shapes as above -> two of (..., D)."""
    return _AddAndNorm.apply(x.contiguous(), change.contiguous(), weight, bias, rate, epsilon, True)


@triton.jit
def dropped(x, KEYS, n, d, N, P, threshold, grown, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return dropout of the values x at positions n; each key is for P positions."""
    key = tl.load(KEYS + n // P, mask=n < N, other=0)[:, None]
    return tl.where(kept(key, (n % P)[:, None] * D + d, threshold), x * grown, 0.0)


@triton.jit
def _add_and_norm_forward(  # type: ignore[no-untyped-def]
    X, CHANGE, WEIGHT, BIAS, KEYS, Y, SUM, MEAN, SCALE, N, P, threshold, grown, epsilon,
    D: tl.constexpr, DROP: tl.constexpr, RMS: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    n, d = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN), tl.arange(0, BD)[None, :]
    inside = (n < N)[:, None] & (d < D)
    at = n[:, None] * D + d
    change = tl.load(CHANGE + at, mask=inside, other=0.0).to(tl.float32)
    if DROP:
        change = dropped(change, KEYS, n, d, N, P, threshold, grown, D)
    total = tl.load(X + at, mask=inside, other=0.0).to(tl.float32) + change
    total = total.to(SUM.dtype.element_ty)  # what the backward pass will read
    tl.store(SUM + at, total, mask=inside)
    total = total.to(tl.float32)
    if not RMS:
        mean = tl.sum(total, 1) / D
        tl.store(MEAN + n, mean, mask=n < N)
        total = tl.where(inside, total - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(total * total, 1) / D + epsilon)
    tl.store(SCALE + n, scale, mask=n < N)
    normed = total * scale[:, None] * tl.load(WEIGHT + d, mask=d < D, other=0.0).to(tl.float32)
    if not RMS:
        normed += tl.load(BIAS + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(Y + at, normed.to(Y.dtype.element_ty), mask=inside)


@triton.jit
def _add_and_norm_backward(  # type: ignore[no-untyped-def]
    GRAD, GRAD_SUM, SUM, WEIGHT, KEYS, MEAN, SCALE, GRAD_X, GRAD_CHANGE, SUMS, N, P, threshold, grown,
    D: tl.constexpr, DROP: tl.constexpr, RMS: tl.constexpr, GOES_ON: tl.constexpr,
    BLOCKS: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    program, d = tl.program_id(0).to(tl.int64), tl.arange(0, BD)[None, :]
    weight = tl.load(WEIGHT + d, mask=d < D, other=0.0).to(tl.float32)
    grad_weight = tl.zeros([BN, BD], tl.float32)
    grad_bias = tl.zeros([BN, BD], tl.float32)
    for step in range(BLOCKS):
        n = (program * BLOCKS + step) * BN + tl.arange(0, BN)
        inside = (n < N)[:, None] & (d < D)
        at = n[:, None] * D + d
        grad = tl.load(GRAD + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(SCALE + n, mask=n < N, other=0.0)[:, None]
        normed = tl.load(SUM + at, mask=inside, other=0.0).to(tl.float32)
        if not RMS:
            normed -= tl.load(MEAN + n, mask=n < N, other=0.0)[:, None]
            grad_bias += grad
        normed = tl.where(inside, normed * scale, 0.0)
        grad_weight += grad * normed
        grad *= weight
        along = tl.sum(grad * normed, 1)[:, None] / D
        if not RMS:
            grad -= tl.sum(grad, 1)[:, None] / D
        grad = (grad - normed * along) * scale
        if GOES_ON:
            grad += tl.load(GRAD_SUM + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(GRAD_X + at, grad.to(GRAD_X.dtype.element_ty), mask=inside)
        if DROP:
            grad = dropped(grad, KEYS, n, d, N, P, threshold, grown, D)
        tl.store(GRAD_CHANGE + at, grad.to(GRAD_CHANGE.dtype.element_ty), mask=inside)
    whole = tl.arange(0, BD)
    if RMS:
        tl.store(SUMS + program * D + whole, tl.sum(grad_weight, 0), mask=whole < D)
    else:
        tl.store(SUMS + program * 2 * D + whole, tl.sum(grad_weight, 0), mask=whole < D)
        tl.store(SUMS + program * 2 * D + D + whole, tl.sum(grad_bias, 0), mask=whole < D)


def blocks(width: int) -> dict[str, int]:
    wide = triton.next_power_of_2(width)
    return {"D": width, "BD": wide, "BN": max(1, AT_ONCE // wide)}


class _AddAndNorm(torch.autograd.Function):
    """The sum and its norm; a sum that is not returned is stored for the backward pass alone, in a lower precision."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, change: Tensor, weight: Tensor, bias: Tensor | None, rate: float, epsilon: float, goes_on: bool
    ) -> tuple[Tensor, Tensor]:
        y, total = change.new_empty(x.shape), (x if goes_on else change).new_empty(x.shape)
        mean, scale = x.new_empty(2, x.numel() // x.size(-1), dtype=torch.float32)
        keys = next_keys(x.device) if rate else x.new_empty(1, dtype=torch.int64)
        sizes = blocks(x.size(-1))
        _add_and_norm_forward[(triton.cdiv(len(mean), sizes["BN"]),)](
            x, change, weight, weight if bias is None else bias, keys, y, total, mean, scale,
            len(mean), values_per_row(keys, len(mean)), threshold(rate), 1 / (1 - rate), epsilon,
            **sizes, DROP=rate > 0, RMS=bias is None, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(total, weight, mean, scale, keys)
        ctx.rate, ctx.dtype, ctx.changed, ctx.rms = rate, x.dtype, change.dtype, bias is None
        ctx.set_materialize_grads(False)  # a sum that nobody reads has no gradient
        return total, y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        total, weight, mean, scale, keys = ctx.saved_tensors
        sizes = blocks(total.size(-1))
        programs = triton.cdiv(len(mean), sizes["BN"] * BLOCKS)
        grad_x, grad_change = (torch.empty_like(total, dtype=dtype) for dtype in (ctx.dtype, ctx.changed))
        sums = total.new_empty(
            programs, (1 if ctx.rms else 2) * total.size(-1), dtype=torch.float32
        )  # of the weight, then the bias
        of_sum, grad = None if grads[0] is None else grads[0].contiguous(), grads[1].contiguous()
        _add_and_norm_backward[(programs,)](
            grad, grad if of_sum is None else of_sum, total, weight, keys, mean, scale, grad_x, grad_change, sums,
            len(mean), values_per_row(keys, len(mean)), threshold(ctx.rate), 1 / (1 - ctx.rate),
            **sizes, DROP=ctx.rate > 0, RMS=ctx.rms, GOES_ON=of_sum is not None, BLOCKS=BLOCKS, num_warps=4,
        )  # fmt: skip
        grad_weight, *grad_bias = sum_lines(sums).split(total.size(-1))
        return grad_x, grad_change, grad_weight, *(grad_bias or [None]), None, None, None
