"""dropout(norm(sum of embeddings)) as one kernel each way; nothing but the indices is stored between them.

A table of few rows, such as that of positions or segments, gets thousands of gradients for each row, which torch adds one after
the other. Here they are one matrix product: a one-hot matrix times the gradient. A table of many rows, such as the positions of
long texts, is left to torch, since that matrix grows with the rows.
N positions, P of them in each row that has a key of its own for dropout, D width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.base.draws import next_keys, values_per_row
from qkv.parts.kernels.dropout import threshold
from qkv.parts.kernels.residual import BLOCKS, blocks, dropped
from qkv.parts.kernels.sums import sum_lines
from qkv.parts.products import product

SMALL = 4096  # most rows of a table whose gradient is a matrix product
ALIGNED = 8  # columns of a bf16 matrix come in multiples of this where products are fast


def embed(lookups: list[tuple[Tensor, Tensor]], weight: Tensor, bias: Tensor, rate: float, epsilon: float) -> Tensor:
    """Return dropout of the layer norm of a sum of embeddings, with gradients, in bf16.

    `lookups` are three or four of: a table (rows, D), and the row of each position (...); the first table is the large
    one. weight and bias (D,) -> (..., D).
    """
    tables, indices = zip(*lookups, strict=True)
    return _Embed.apply(weight, bias, rate, epsilon, *tables, *(index.contiguous() for index in indices))


@triton.jit
def _row(TABLE, INDEX, n, d, inside, N, D: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.load(INDEX + n, mask=n < N, other=0)
    return tl.load(TABLE + row[:, None] * D + d, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _normed_sum(  # type: ignore[no-untyped-def]
    A, B, C, E, AT_A, AT_B, AT_C, AT_E, n, d, inside, N, epsilon, FOUR: tl.constexpr, D: tl.constexpr
):
    """Return the normalised sum of the tables' rows, and one over its deviation."""
    total = _row(A, AT_A, n, d, inside, N, D) + _row(B, AT_B, n, d, inside, N, D) + _row(C, AT_C, n, d, inside, N, D)
    if FOUR:
        total += _row(E, AT_E, n, d, inside, N, D)
    off = tl.where(inside, total - (tl.sum(total, 1) / D)[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(off * off, 1) / D + epsilon)[:, None]
    return off * scale, scale


@triton.jit
def _embed_forward(  # type: ignore[no-untyped-def]
    A, B, C, E, AT_A, AT_B, AT_C, AT_E, WEIGHT, BIAS, KEYS, Y, N, P, threshold, grown, epsilon,
    D: tl.constexpr, FOUR: tl.constexpr, DROP: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    n, d = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN), tl.arange(0, BD)[None, :]
    inside = (n < N)[:, None] & (d < D)
    at = n[:, None] * D + d
    normed, _ = _normed_sum(A, B, C, E, AT_A, AT_B, AT_C, AT_E, n, d, inside, N, epsilon, FOUR, D)
    weight = tl.load(WEIGHT + d, mask=d < D, other=0.0).to(tl.float32)
    y = normed * weight + tl.load(BIAS + d, mask=d < D, other=0.0).to(tl.float32)
    if DROP:
        y = dropped(y, KEYS, n, d, N, P, threshold, grown, D)
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=inside)


@triton.jit
def _embed_backward(  # type: ignore[no-untyped-def]
    A, B, C, E, AT_A, AT_B, AT_C, AT_E, WEIGHT, KEYS, GRAD, GRAD_SUM, SUMS, N, P, threshold, grown, epsilon,
    D: tl.constexpr, FOUR: tl.constexpr, DROP: tl.constexpr, BLOCKS: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
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
        if DROP:
            grad = dropped(grad, KEYS, n, d, N, P, threshold, grown, D)
        normed, scale = _normed_sum(A, B, C, E, AT_A, AT_B, AT_C, AT_E, n, d, inside, N, epsilon, FOUR, D)
        grad_weight += grad * normed
        grad_bias += grad
        grad *= weight
        along, level = tl.sum(grad * normed, 1)[:, None] / D, tl.sum(grad, 1)[:, None] / D
        grad = (grad - level - normed * along) * scale
        tl.store(GRAD_SUM + at, grad.to(GRAD_SUM.dtype.element_ty), mask=inside)
    whole = tl.arange(0, BD)
    tl.store(SUMS + program * 2 * D + whole, tl.sum(grad_weight, 0), mask=whole < D)
    tl.store(SUMS + program * 2 * D + D + whole, tl.sum(grad_bias, 0), mask=whole < D)


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, rate: float, epsilon: float, *lookups: Tensor) -> Tensor:
        first, index = lookups[0], lookups[len(lookups) // 2]
        y = first.new_empty(*index.shape, first.size(1), dtype=torch.bfloat16 if first.is_cuda else first.dtype)
        keys = next_keys(index.device) if rate else index.new_empty(1)
        each = values_per_row(keys, index.numel())
        sizes = blocks(first.size(1))
        _embed_forward[(triton.cdiv(index.numel(), sizes["BN"]),)](
            *_four(lookups), weight, bias, keys, y, index.numel(), each, threshold(rate), 1 / (1 - rate), epsilon,
            **sizes, FOUR=len(lookups) == 8, DROP=rate > 0, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(weight, keys, *lookups)
        ctx.rate, ctx.epsilon = rate, epsilon
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weight, keys, *lookups = ctx.saved_tensors
        grad, positions, width = grads[0].contiguous(), grads[0].numel() // weight.numel(), weight.numel()
        grad_sum, sizes = torch.empty_like(grad), blocks(width)
        programs = triton.cdiv(positions, sizes["BN"] * BLOCKS)
        sums = grad.new_empty(programs, 2 * width, dtype=torch.float32)  # for the weight, and for the bias
        _embed_backward[(programs,)](
            *_four(lookups), weight, keys, grad, grad_sum, sums, positions, values_per_row(keys, positions),
            threshold(ctx.rate), 1 / (1 - ctx.rate), ctx.epsilon,
            **sizes, FOUR=len(lookups) == 8, DROP=ctx.rate > 0, BLOCKS=BLOCKS, num_warps=4,
        )  # fmt: skip
        tables, indices = lookups[: len(lookups) // 2], lookups[len(lookups) // 2 :]
        found = of_tables([len(table) for table in tables], indices, grad_sum.view(-1, width))
        return *sum_lines(sums).chunk(2), None, None, *found, *(None for _ in indices)


def _four(lookups: Any) -> list[Tensor]:
    """Return four tables and indices for the kernels: without a fourth, the third takes its place and is not read."""
    half = len(lookups) // 2
    tables, indices = list(lookups[:half]), list(lookups[half:])
    return [*tables, *tables[2 : 6 - half], *indices, *indices[2 : 6 - half]]


def of_tables(rows: list[int], indices: list[Tensor], grad: Tensor) -> list[Tensor]:
    """Return the gradients of tables with these numbers of rows, by the way that suits their sizes; indices are (N,) each.

    The first is always large. grad (N, D) -> (rows, D) each, float32.
    """
    found: dict[int, Tensor] = {}
    small = [number for number in range(1, len(rows)) if rows[number] <= SMALL]
    for number in set(range(len(rows))).difference(small):
        index = indices[number].flatten()
        found[number] = torch.ops.aten.embedding_dense_backward(grad, index, rows[number], -1, False).float()
    if small:
        products = of_small_tables([rows[number] for number in small], [indices[number] for number in small], grad)
        found.update(zip(small, products, strict=True))
    return [found[number] for number in range(len(rows))]


def of_small_tables(rows: list[int], indices: list[Tensor], grad: Tensor) -> list[Tensor]:
    """Return the gradients of tables with these numbers of rows; indices are (N,) each.

    Grad (N, D) -> (rows, D) each, float32.
    """
    before = [sum(rows[:number]) for number in range(len(rows))]
    columns = torch.stack([index.flatten() + start for index, start in zip(indices, before, strict=True)], 1)
    ones = grad.new_zeros(len(grad), triton.cdiv(sum(rows), ALIGNED) * ALIGNED).scatter_(1, columns, 1.0)
    return list(product(ones.T, grad)[: sum(rows)].split(rows))
