"""LSTMs with projections (Sak et al. 2014), several at once: two small kernels for each position and direction of computing.

One computes the gates and the cell, the other the product over all cells: the projection on the way forward, the gradient of
the state before on the way back. All LSTMs of a call share each launch, and a CUDA graph holds the launches of all positions
(`Recurrence.recorder`). Weights' gradients, and the gates' input parts, are matrix products over all positions. States, gates
and products are in bf16, sums and cells in float32.
N LSTMs of the same shape, B rows, T positions, C input width, H cells, P width of the projection.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from qkv.parts.kernels.linear import sum_over_rows
from qkv.parts.products import product

CELL_BLOCKS = {"BB": 16, "BH": 32, "BP": 128, "num_warps": 4, "num_stages": 2}  # rows, cells, and projected values at once
PRODUCT_BLOCKS = {"BB": 16, "BP": 16, "BK": 256, "num_warps": 4, "num_stages": 4}  # rows, columns, and values that are summed


def projected_lstms(x: Tensor, input_weight: Tensor, recurrent_weight: Tensor, bias: Tensor, projection: Tensor) -> Tensor:
    """Run N LSTMs, each over its own input, from a state of zeros. Gates lie in torch's order: input, forget, cell, output.

    x (N, B, T, C), input_weight (N, 4 H, C), recurrent_weight (N, 4 H, P), bias (N, 4 H), projection (N, P, H) -> (N, B, T, P).
    """
    return _ProjectedLstms.apply(x, input_weight, recurrent_weight, bias, projection)


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _cell_forward(  # type: ignore[no-untyped-def]
    STATE, WEIGHT, GATES, CELL_BEFORE, CELL, OUT, B, step,
    H: tl.constexpr, P: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One position: add the recurrent part to the gates, activate them in place, and compute the cell and its output."""
    n, b, h = tl.program_id(0).to(tl.int64), tl.program_id(1) * BB + tl.arange(0, BB), tl.program_id(2) * BH + tl.arange(0, BH)
    row, inside = (n * step + b)[:, None], (b < B)[:, None] & (h < H)[None, :]
    gates = GATES + row * 4 * H + h[None, :]
    i = tl.load(gates, mask=inside, other=0.0).to(tl.float32)
    f = tl.load(gates + H, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gates + 2 * H, mask=inside, other=0.0).to(tl.float32)
    o = tl.load(gates + 3 * H, mask=inside, other=0.0).to(tl.float32)
    for start in range(0, P, BP):
        p = start + tl.arange(0, BP)
        state = tl.load(STATE + row * P + p[None, :], mask=(b < B)[:, None] & (p < P)[None, :], other=0.0)  # (BB, BP)
        weight, within = WEIGHT + (n * 4 * H + h)[None, :] * P + p[:, None], (h < H)[None, :] & (p < P)[:, None]  # (BP, BH)
        i = tl.dot(state, tl.load(weight, mask=within, other=0.0), i)
        f = tl.dot(state, tl.load(weight + H * P, mask=within, other=0.0), f)
        g = tl.dot(state, tl.load(weight + 2 * H * P, mask=within, other=0.0), g)
        o = tl.dot(state, tl.load(weight + 3 * H * P, mask=within, other=0.0), o)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    tl.store(gates, i.to(GATES.dtype.element_ty), mask=inside)
    tl.store(gates + H, f.to(GATES.dtype.element_ty), mask=inside)
    tl.store(gates + 2 * H, g.to(GATES.dtype.element_ty), mask=inside)
    tl.store(gates + 3 * H, o.to(GATES.dtype.element_ty), mask=inside)
    at = row * H + h[None, :]
    cell = f * tl.load(CELL_BEFORE + at, mask=inside, other=0.0) + i * g
    tl.store(CELL + at, cell, mask=inside)
    tl.store(OUT + at, (o * _tanh(cell)).to(OUT.dtype.element_ty), mask=inside)


@triton.jit
def _cell_backward(  # type: ignore[no-untyped-def]
    GRAD_STATE, PROJECTION, GATES, CELL_BEFORE, CELL, GRAD_CELL, GRAD_GATES, B, step,
    H: tl.constexpr, P: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One position: from the state's gradient to the gates' and, in place, from the cell's to that of the cell before."""
    n, b, h = tl.program_id(0).to(tl.int64), tl.program_id(1) * BB + tl.arange(0, BB), tl.program_id(2) * BH + tl.arange(0, BH)
    row, inside = (n * step + b)[:, None], (b < B)[:, None] & (h < H)[None, :]
    grad_out = tl.zeros([BB, BH], tl.float32)
    for start in range(0, P, BP):
        p = start + tl.arange(0, BP)
        grad = tl.load(GRAD_STATE + row * P + p[None, :], mask=(b < B)[:, None] & (p < P)[None, :], other=0.0)  # (BB, BP)
        weight = PROJECTION + (n * P + p)[:, None] * H + h[None, :]  # (BP, BH)
        grad_out = tl.dot(grad, tl.load(weight, mask=(p < P)[:, None] & (h < H)[None, :], other=0.0), grad_out)
    gates, at = row * 4 * H + h[None, :], row * H + h[None, :]
    i = tl.load(GATES + gates, mask=inside, other=0.0).to(tl.float32)
    f = tl.load(GATES + gates + H, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(GATES + gates + 2 * H, mask=inside, other=0.0).to(tl.float32)
    o = tl.load(GATES + gates + 3 * H, mask=inside, other=0.0).to(tl.float32)
    tanh = _tanh(tl.load(CELL + at, mask=inside, other=0.0))
    before = tl.load(CELL_BEFORE + at, mask=inside, other=0.0)
    carried = GRAD_CELL + (n * B + b)[:, None] * H + h[None, :]
    grad = tl.load(carried, mask=inside, other=0.0) + grad_out * o * (1 - tanh * tanh)
    tl.store(carried, grad * f, mask=inside)
    tl.store(GRAD_GATES + gates, (grad * g * i * (1 - i)).to(GRAD_GATES.dtype.element_ty), mask=inside)
    tl.store(GRAD_GATES + gates + H, (grad * before * f * (1 - f)).to(GRAD_GATES.dtype.element_ty), mask=inside)
    tl.store(GRAD_GATES + gates + 2 * H, (grad * i * (1 - g * g)).to(GRAD_GATES.dtype.element_ty), mask=inside)
    tl.store(GRAD_GATES + gates + 3 * H, (grad_out * tanh * o * (1 - o)).to(GRAD_GATES.dtype.element_ty), mask=inside)


@triton.jit
def _product(  # type: ignore[no-untyped-def]
    X, WEIGHT, OUT, B, step,
    K: tl.constexpr, P: tl.constexpr, ADD: tl.constexpr, BB: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One position: write x weight', or add it to what is there. X (N, B, K), WEIGHT (N, P, K), OUT (N, B, P)."""
    n, b, p = tl.program_id(0).to(tl.int64), tl.program_id(1) * BB + tl.arange(0, BB), tl.program_id(2) * BP + tl.arange(0, BP)
    row, total = (n * step + b)[:, None], tl.zeros([BB, BP], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(X + row * K + k[None, :], mask=(b < B)[:, None] & (k < K)[None, :], other=0.0)
        weight = tl.load(WEIGHT + (n * P + p)[None, :] * K + k[:, None], mask=(p < P)[None, :] & (k < K)[:, None], other=0.0)
        total = tl.dot(x, weight, total)
    out, inside = OUT + row * P + p[None, :], (b < B)[:, None] & (p < P)[None, :]
    if ADD:
        total += tl.load(out, mask=inside, other=0.0).to(tl.float32)
    tl.store(out, total.to(OUT.dtype.element_ty), mask=inside)


class _ProjectedLstms(torch.autograd.Function):
    """All tensors over positions have one entry more, the first: what comes before the text, from which position 1 goes on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, input_weight: Tensor, recurrent_weight: Tensor, bias: Tensor, projection: Tensor) -> Tensor:
        dtype = torch.bfloat16 if x.is_cuda else x.dtype
        low = [weight.to(dtype).contiguous() for weight in (input_weight, recurrent_weight, projection)]
        (lstms, rows, positions, _), width, cells = x.shape, projection.size(1), projection.size(2)
        x_by_position = x.to(dtype).transpose(1, 2).flatten(1, 2)  # (N, T B, C)

        def over_positions(size: int, dtype: torch.dtype = dtype) -> Tensor:
            tensor = x.new_empty(lstms, positions + 1, rows, size, dtype=dtype)
            tensor[:, 0] = 0
            return tensor

        gates, out, state = over_positions(4 * cells), over_positions(cells), over_positions(width)
        cell = over_positions(cells, torch.float32)
        for n in range(lstms):
            torch.addmm(bias[n].to(dtype), x_by_position[n], low[0][n].T, out=gates[n, 1:].flatten(0, 1))
        for t in range(1, positions + 1):
            _cell_forward[_grid(out[:, t], CELL_BLOCKS["BH"], CELL_BLOCKS)](
                state[:, t - 1], low[1], gates[:, t], cell[:, t - 1], cell[:, t], out[:, t],
                rows, (positions + 1) * rows, cells, width, **CELL_BLOCKS,
            )  # fmt: skip
            _multiply(out[:, t], low[2], state[:, t], add=False)
        ctx.save_for_backward(x_by_position, *low, gates, cell, state, out)
        ctx.dtype = x.dtype
        return state[:, 1:].transpose(1, 2).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x_by_position, input_weight, recurrent_weight, projection, gates, cell, state, out = ctx.saved_tensors
        (lstms, longer, rows, cells), width = out.shape, state.size(-1)
        grad_state, grad_gates, grad_cell = torch.empty_like(state), torch.empty_like(gates), torch.zeros_like(cell[:, 0])
        grad_state[:, 0] = 0
        grad_state[:, 1:] = grads[0].transpose(1, 2)
        transposed = recurrent_weight.transpose(1, 2).contiguous()
        for t in range(longer - 1, 0, -1):
            _cell_backward[_grid(grad_cell, CELL_BLOCKS["BH"], CELL_BLOCKS)](
                grad_state[:, t], projection, gates[:, t], cell[:, t - 1], cell[:, t], grad_cell, grad_gates[:, t],
                rows, longer * rows, cells, width, **CELL_BLOCKS,
            )  # fmt: skip
            _multiply(grad_gates[:, t], transposed, grad_state[:, t - 1], add=True)
        found: list[tuple[Tensor, ...]] = []
        for n in range(lstms):
            of_gates, of_state = grad_gates[n, 1:].flatten(0, 1), grad_state[n, 1:].flatten(0, 1)  # (T B, 4 H), (T B, P)
            grad_x = (of_gates @ input_weight[n]).unflatten(0, (-1, rows)).transpose(0, 1).to(ctx.dtype)
            of_weights = product(of_gates.T, x_by_position[n]), product(of_gates.T, state[n, :-1].flatten(0, 1))
            of_projection = product(of_state.T, out[n, 1:].flatten(0, 1))
            found.append((grad_x, *of_weights, sum_over_rows(of_gates)[1], of_projection))
        return tuple(map(torch.stack, zip(*found, strict=True)))


def _multiply(x: Tensor, weight: Tensor, out: Tensor, add: bool) -> None:
    """Write x weight' to `out`, or add it. x (N, B, K), weight (N, P, K), out (N, B, P): one position of longer tensors."""
    width = out.size(-1)
    _product[_grid(out, PRODUCT_BLOCKS["BP"], PRODUCT_BLOCKS)](
        x, weight, out, out.size(1), out.stride(0) // width, x.size(-1), width, add, **PRODUCT_BLOCKS
    )


def _grid(out: Tensor, columns: int, blocks: dict[str, int]) -> tuple[int, int, int]:
    """Return the programs for an output (N, B, D), each of which computes some rows and columns."""
    return len(out), triton.cdiv(out.size(1), blocks["BB"]), triton.cdiv(out.size(2), columns)
