"""LSTMs with projections (Sak et al. 2014), several at once: one kernel runs all positions forward, another one backward.

A program has some rows and some cells of one LSTM. It loads its part of the weights once, then goes from position to position.
The programs that share rows exchange one thing: the product over all cells, which is the projected state on the way forward
and the gradient of the state before on the way back. Each program writes its part of that sum, counts itself as arrived, and
waits until the others have arrived; then each adds all parts, in the same order. Rows need not wait for other rows.
That cannot wait for ever: a GPU starts programs in order, and those that share rows follow each other, so that of all programs
that run, only the last few can miss others, which start when the programs before them have ended.
Weights' gradients, and the gates' input parts, are matrix products over all positions. States, gates and factors of products
are in bf16, sums and cells in float32.
N LSTMs of the same shape, B rows, T positions, C input width, H cells, P width of the projection, S programs that share rows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from qkv.parts.kernels.linear import sum_over_rows
from qkv.parts.products import product

BLOCKS = {"BH": 128, "num_warps": 8, "num_stages": 1}  # cells of a program, on Hopper
SMALL_BLOCKS = {"BH": 64, "num_warps": 4, "num_stages": 1}  # on other GPUs, some of which have less shared memory
ROWS, MORE_ROWS = 16, 32  # of a program; more where otherwise not all programs could run at the same time, on Hopper
WIDEST = 128  # widest projection for which a program's weights fit into shared memory
ONE_LAUNCH = True  # False: a launch for each position, in which no program has to wait for another one


def projected_lstms(x: Tensor, input_weight: Tensor, recurrent_weight: Tensor, bias: Tensor, projection: Tensor) -> Tensor:
    """Run N LSTMs, each over its own input, from a state of zeros. Gates lie in torch's order: input, forget, cell, output.

    x (N, B, T, C), input_weight (N, 4 H, C), recurrent_weight (N, 4 H, P), bias (N, 4 H), projection (N, P, H) -> (N, B, T, P).
    P is at most `WIDEST`.
    """
    return _ProjectedLstms.apply(x, input_weight, recurrent_weight, bias, projection)


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _wait(ARRIVED, arrivals):  # type: ignore[no-untyped-def]
    """Wait for that number of arrivals; what the programs wrote before is visible then."""
    while tl.atomic_add(ARRIVED, 0, sem="acquire", scope="gpu") < arrivals:
        pass
    tl.debug_barrier()


@triton.jit
def _arrive(ARRIVED):  # type: ignore[no-untyped-def]
    tl.debug_barrier()
    tl.atomic_add(ARRIVED, 1, sem="release", scope="gpu")


@triton.jit
def _sum_parts(PARTS, size, inside, S: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add S parts, which lie `size` values apart. They come from the L2 cache: an SM's own may hold older values."""
    total = tl.load(PARTS, mask=inside, other=0.0, cache_modifier=".cg")
    for s in tl.static_range(1, S):
        total += tl.load(PARTS + s * size, mask=inside, other=0.0, cache_modifier=".cg")
    return total


@triton.jit(do_not_specialize=["first", "last", "B", "T"])
def _forward(  # type: ignore[no-untyped-def]
    WEIGHT, PROJECTION, GATES, CELL, OUT, STATE, PARTS, ARRIVED, first, last, B, T,
    H: tl.constexpr, P: tl.constexpr, S: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Run positions first to last - 1: the gates in place, the cell, its output, and the state of the position before."""
    n, b = tl.program_id(2).to(tl.int64), tl.program_id(1) * BB + tl.arange(0, BB)
    h, p = tl.program_id(0) * BH + tl.arange(0, BH), tl.arange(0, BP)
    inside, in_state = (h < H)[:, None] & (b < B)[None, :], (p < P)[:, None] & (b < B)[None, :]  # (BH, BB), (BP, BB)
    of_gates, of_cell, of_state = h[:, None] + b[None, :] * 4 * H, h[:, None] + b[None, :] * H, p[:, None] + b[None, :] * P
    weight, within = WEIGHT + n * 4 * H * P + h[:, None] * P + p[None, :], (h < H)[:, None] & (p < P)[None, :]  # (BH, BP)
    weight_i = tl.load(weight, mask=within, other=0.0)
    weight_f = tl.load(weight + H * P, mask=within, other=0.0)
    weight_g = tl.load(weight + 2 * H * P, mask=within, other=0.0)
    weight_o = tl.load(weight + 3 * H * P, mask=within, other=0.0)
    weight_out = PROJECTION + n * P * H + p[:, None] * H + h[None, :]  # (BP, BH)
    weight_out = tl.load(weight_out, mask=(p < P)[:, None] & (h < H)[None, :], other=0.0)
    arrived, parts = ARRIVED + tl.program_id(1) * tl.num_programs(2) + n, PARTS + n * 2 * S * B * P + of_state
    cell = tl.load(CELL + (n * (T + 1) + first - 1) * B * H + of_cell, mask=inside, other=0.0)
    for t in tl.range(first, last, num_stages=1):
        row = (n * (T + 1) + t) * B
        gates = GATES + row * 4 * H + of_gates
        i = tl.load(gates, mask=inside, other=0.0)
        f = tl.load(gates + H, mask=inside, other=0.0)
        g = tl.load(gates + 2 * H, mask=inside, other=0.0)
        o = tl.load(gates + 3 * H, mask=inside, other=0.0)
        _wait(arrived, (t - 1) * S)
        state = _sum_parts(parts + (t - 1) % 2 * S * B * P, B * P, in_state, S).to(WEIGHT.dtype.element_ty)
        if tl.program_id(0) == 0:
            tl.store(STATE + (row - B) * P + of_state, state, mask=in_state)
        i = tl.sigmoid(tl.dot(weight_i, state) + i)
        f = tl.sigmoid(tl.dot(weight_f, state) + f)
        g = _tanh(tl.dot(weight_g, state) + g)
        o = tl.sigmoid(tl.dot(weight_o, state) + o)
        cell = f * cell + i * g
        out = (o * _tanh(cell)).to(OUT.dtype.element_ty)
        part = tl.dot(weight_out, out)
        tl.store(parts + (t % 2 * S + tl.program_id(0)) * B * P, part, mask=in_state)
        _arrive(arrived)
        tl.store(gates, i.to(GATES.dtype.element_ty), mask=inside)
        tl.store(gates + H, f.to(GATES.dtype.element_ty), mask=inside)
        tl.store(gates + 2 * H, g.to(GATES.dtype.element_ty), mask=inside)
        tl.store(gates + 3 * H, o.to(GATES.dtype.element_ty), mask=inside)
        tl.store(CELL + row * H + of_cell, cell, mask=inside)
        tl.store(OUT + row * H + of_cell, out, mask=inside)


@triton.jit(do_not_specialize=["first", "last", "B", "T"])
def _backward(  # type: ignore[no-untyped-def]
    GRAD, WEIGHT, PROJECTION, GATES, CELL, GRAD_CELL, GRAD_GATES, GRAD_STATE, PARTS, ARRIVED, first, last, B, T,
    H: tl.constexpr, P: tl.constexpr, S: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Run positions first to last - 1, counted from the end: from the output's gradient to those of the state and the gates."""
    n, b = tl.program_id(2).to(tl.int64), tl.program_id(1) * BB + tl.arange(0, BB)
    h, p = tl.program_id(0) * BH + tl.arange(0, BH), tl.arange(0, BP)
    inside, in_state = (h < H)[:, None] & (b < B)[None, :], (p < P)[:, None] & (b < B)[None, :]  # (BH, BB), (BP, BB)
    of_gates, of_cell, of_state = h[:, None] + b[None, :] * 4 * H, h[:, None] + b[None, :] * H, p[:, None] + b[None, :] * P
    weight, within = WEIGHT + n * 4 * H * P + h[None, :] * P + p[:, None], (h < H)[None, :] & (p < P)[:, None]  # (BP, BH)
    weight_i = tl.load(weight, mask=within, other=0.0)
    weight_f = tl.load(weight + H * P, mask=within, other=0.0)
    weight_g = tl.load(weight + 2 * H * P, mask=within, other=0.0)
    weight_o = tl.load(weight + 3 * H * P, mask=within, other=0.0)
    weight_out = PROJECTION + n * P * H + p[None, :] * H + h[:, None]  # (BH, BP)
    weight_out = tl.load(weight_out, mask=(p < P)[None, :] & (h < H)[:, None], other=0.0)
    arrived, parts = ARRIVED + tl.program_id(1) * tl.num_programs(2) + n, PARTS + n * 2 * S * B * P + of_state
    grad_cell = tl.load(GRAD_CELL + n * B * H + of_cell, mask=inside, other=0.0)
    cell = tl.load(CELL + (n * (T + 1) + T + 1 - first) * B * H + of_cell, mask=inside, other=0.0)
    for back in tl.range(first, last, num_stages=1):
        row = (n * (T + 1) + T + 1 - back) * B
        gates = row * 4 * H + of_gates
        i = tl.load(GATES + gates, mask=inside, other=0.0).to(tl.float32)
        f = tl.load(GATES + gates + H, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(GATES + gates + 2 * H, mask=inside, other=0.0).to(tl.float32)
        o = tl.load(GATES + gates + 3 * H, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(CELL + (row - B) * H + of_cell, mask=inside, other=0.0)
        grad_state = tl.load(GRAD + row * P + of_state, mask=in_state, other=0.0)
        _wait(arrived, (back - 1) * S)
        grad_state += _sum_parts(parts + (back - 1) % 2 * S * B * P, B * P, in_state, S)
        low = grad_state.to(WEIGHT.dtype.element_ty)
        if tl.program_id(0) == 0:
            tl.store(GRAD_STATE + row * P + of_state, low, mask=in_state)
        grad_out, tanh = tl.dot(weight_out, low), _tanh(cell)
        grad_cell += grad_out * o * (1 - tanh * tanh)
        grad_i = (grad_cell * g * i * (1 - i)).to(GRAD_GATES.dtype.element_ty)
        grad_f = (grad_cell * before * f * (1 - f)).to(GRAD_GATES.dtype.element_ty)
        grad_g = (grad_cell * i * (1 - g * g)).to(GRAD_GATES.dtype.element_ty)
        grad_o = (grad_out * tanh * o * (1 - o)).to(GRAD_GATES.dtype.element_ty)
        part = tl.dot(weight_f, grad_f, tl.dot(weight_i, grad_i))
        part = tl.dot(weight_o, grad_o, tl.dot(weight_g, grad_g, part))
        tl.store(parts + (back % 2 * S + tl.program_id(0)) * B * P, part, mask=in_state)
        _arrive(arrived)
        tl.store(GRAD_GATES + gates, grad_i, mask=inside)
        tl.store(GRAD_GATES + gates + H, grad_f, mask=inside)
        tl.store(GRAD_GATES + gates + 2 * H, grad_g, mask=inside)
        tl.store(GRAD_GATES + gates + 3 * H, grad_o, mask=inside)
        grad_cell, cell = grad_cell * f, before
    tl.store(GRAD_CELL + n * B * H + of_cell, grad_cell, mask=inside)


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
        parts = _run(_forward, cells, *low[1:], gates, cell, out, state)
        state[:, positions] = parts[:, positions % 2].sum(1)
        ctx.save_for_backward(x_by_position, *low, gates, cell, state, out)
        ctx.dtype = x.dtype
        return state[:, 1:].transpose(1, 2).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x_by_position, input_weight, recurrent_weight, projection, gates, cell, state, out = ctx.saved_tensors
        lstms, rows = len(out), out.size(2)
        grad = torch.empty_like(state)
        grad[:, 1:] = grads[0].transpose(1, 2)
        grad_state, grad_gates, grad_cell = torch.empty_like(state), torch.empty_like(gates), torch.zeros_like(cell[:, 0])
        _run(_backward, out.size(-1), grad, recurrent_weight, projection, gates, cell, grad_cell, grad_gates, grad_state)
        found: list[tuple[Tensor, ...]] = []
        for n in range(lstms):
            of_gates, of_state = grad_gates[n, 1:].flatten(0, 1), grad_state[n, 1:].flatten(0, 1)  # (T B, 4 H), (T B, P)
            grad_x = (of_gates @ input_weight[n]).unflatten(0, (-1, rows)).transpose(0, 1).to(ctx.dtype)
            inputs = torch.cat([x_by_position[n], state[n, :-1].flatten(0, 1)], 1)  # (T B, C + P): one pass over the gates
            of_weights = product(of_gates.T, inputs).tensor_split([input_weight.size(-1)], 1)
            of_projection = product(of_state.T, out[n, 1:].flatten(0, 1))
            found.append((grad_x, *of_weights, sum_over_rows(of_gates)[1], of_projection))
        return tuple(map(torch.stack, zip(*found, strict=True)))


def _run(kernel: Any, cells: int, *tensors: Tensor) -> Tensor:
    """Run a kernel over all positions of its tensors, the last of which are states (N, T + 1, B, P).

    Return the parts of the programs' sums, (N, 2, S, B, P): those of the last position are at [:, T % 2].
    """
    states = tensors[-1]
    lstms, longer, rows, width = states.shape
    blocks, block = SMALL_BLOCKS, ROWS
    if states.is_cuda and torch.cuda.get_device_capability(states.device)[0] == 9:
        blocks, processors = BLOCKS, torch.cuda.get_device_properties(states.device).multi_processor_count
        block = ROWS if lstms * triton.cdiv(cells, blocks["BH"]) * triton.cdiv(rows, ROWS) <= processors else MORE_ROWS
    # Triton's interpreter runs one program after the other: none may wait.
    at_once = longer - 1 if ONE_LAUNCH and states.is_cuda else 1
    sharing = triton.cdiv(cells, blocks["BH"])
    grid = sharing, triton.cdiv(rows, block), lstms
    parts = states.new_zeros(lstms, 2, sharing, rows, width, dtype=torch.float32)
    arrived = parts.new_zeros(grid[1:], dtype=torch.int32)
    for first in range(1, longer, at_once):
        kernel[grid](
            *tensors, parts, arrived, first, first + at_once, rows, longer - 1,
            H=cells, P=width, S=sharing, BB=block, BP=max(16, triton.next_power_of_2(width)), **blocks,
        )  # fmt: skip
    return parts
