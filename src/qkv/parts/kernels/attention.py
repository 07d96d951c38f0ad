"""Attention over packed rows, as one kernel each way: a program holds a row of one head from start to end.

Most packed rows are short, so that all scores of a row and head fit into a multiprocessor's registers: nothing is written but
the result, and the backward pass recomputes the weights. Wider rows go block by block, in `wide.py`: forward sooner than
backward, because there it takes two kernels. Queries, keys and values are read, and their gradients written, where the one
projection put them: no copies. The mask comes from the number of each position's text, or from where that text lies. A
bias may be added to scores, one for all rows (T5, ALiBi); its gradient is the sum of the scores' (`bias.py`).
B rows, T query positions, S key positions, D width, H heads, K head width.
"""

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.kernels import wide
from qkv.parts.kernels.bias import bias_at, new_gradient, put_gradient

if TYPE_CHECKING:
    from qkv.parts.masks import PackedMask

WIDEST = 128  # positions in a row that fit into registers
WIDEST_FORWARD = 64  # positions up to which that is faster in the forward pass; fewer queries may see more keys, and vice versa
WIDE_HEAD = 64  # wider heads use WIDEST_FORWARD in the backward pass too: it would need 128 KiB of a smaller GPU's 99


def attend_self(qkv: Tensor, mask: "PackedMask", heads: int, bias: Tensor | None = None) -> Tensor:
    """Compute self-attention within each text. qkv (B, T, 3 D): queries, keys, values side by side -> (B, T, D).

    The bias (1, H, T, T or more), as `bias.py` describes it, is added to scores.
    """
    return _Self.apply(qkv.contiguous(), bias, mask, heads)


def attend_cross(q: Tensor, kv: Tensor, mask: "PackedMask", heads: int) -> Tensor:
    """Compute attention to the same text of other rows. q (B, T, D), kv (B, S, 2 D) -> (B, T, D)."""
    return _Cross.apply(q.contiguous(), kv.contiguous(), mask, heads)


@triton.jit
def _weights(  # type: ignore[no-untyped-def]
    q, k, queries, keys, BIAS, T, step, scale,
    BIASED: tl.constexpr, CAUSAL: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    t, s = tl.arange(0, BT)[:, None], tl.arange(0, BS)[None, :]
    allowed = (queries[:, None] == keys[None, :]) & (keys > 0)[None, :]
    if CAUSAL:
        allowed = allowed & (t >= s)
    scores = tl.dot(q, tl.trans(k)) * scale
    if BIASED:
        scores += bias_at(BIAS, t, s, T, step)
    scores = tl.where(allowed, scores, float("-inf"))
    powers = tl.exp(scores - tl.maximum(tl.max(scores, 1), -1e30)[:, None])
    total = tl.sum(powers, 1)
    return powers / tl.where(total > 0, total, 1.0)[:, None]  # padding, and a text without keys, get zeros


@triton.jit
def _attend_forward(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, BIAS, OUT, T, S, step, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, s, d = tl.arange(0, BT), tl.arange(0, BS), tl.arange(0, BK)[None, :]
    inside_q = (t < T)[:, None] & (d < K)
    inside_k = (s < S)[:, None] & (d < K)
    at_q = (row * T + t)[:, None] * Q_STEP + head * K + d
    at_k = (row * S + s)[:, None] * KV_STEP + head * K + d
    q = tl.load(Q + at_q, mask=inside_q, other=0.0)
    k = tl.load(KV + K_AT + at_k, mask=inside_k, other=0.0)
    v = tl.load(KV + V_AT + at_k, mask=inside_k, other=0.0)
    queries = tl.load(QUERIES + row * T + t, mask=t < T, other=0)
    keys = tl.load(KEYS + row * S + s, mask=s < S, other=0)
    weights = _weights(q, k, queries, keys, BIAS + head * T * step, T, step, scale, BIASED, CAUSAL, BT, BS)
    out = tl.dot(weights.to(v.dtype), v)
    tl.store(OUT + (row * T + t)[:, None] * (H * K) + head * K + d, out.to(OUT.dtype.element_ty), mask=inside_q)


@triton.jit
def _attend_backward(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, BIAS, GRAD, GRAD_Q, GRAD_KV, GRAD_SCORES, T, S, step, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, LEARNED: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, s, d = tl.arange(0, BT), tl.arange(0, BS), tl.arange(0, BK)[None, :]
    inside_q = (t < T)[:, None] & (d < K)
    inside_k = (s < S)[:, None] & (d < K)
    at_q = (row * T + t)[:, None] * Q_STEP + head * K + d
    at_k = (row * S + s)[:, None] * KV_STEP + head * K + d
    q = tl.load(Q + at_q, mask=inside_q, other=0.0)
    k = tl.load(KV + K_AT + at_k, mask=inside_k, other=0.0)
    queries = tl.load(QUERIES + row * T + t, mask=t < T, other=0)
    keys = tl.load(KEYS + row * S + s, mask=s < S, other=0)
    weights = _weights(q, k, queries, keys, BIAS + head * T * step, T, step, scale, BIASED, CAUSAL, BT, BS)
    grad = tl.load(GRAD + (row * T + t)[:, None] * (H * K) + head * K + d, mask=inside_q, other=0.0)
    grad_v = tl.dot(tl.trans(weights.to(grad.dtype)), grad)
    tl.store(GRAD_KV + V_AT + at_k, grad_v.to(GRAD_KV.dtype.element_ty), mask=inside_k)
    v = tl.load(KV + V_AT + at_k, mask=inside_k, other=0.0)
    grad_weights = tl.dot(grad, tl.trans(v))
    mean = tl.sum(weights * grad_weights, 1)[:, None]
    grad_scores = weights * (grad_weights - mean)
    if LEARNED:
        put_gradient(GRAD_SCORES + (row * H + head) * T * step, grad_scores, t[:, None], s[None, :], T, step)
    grad_scores = (grad_scores * scale).to(q.dtype)
    grad_q = tl.dot(grad_scores, k)
    tl.store(GRAD_Q + at_q, grad_q.to(GRAD_Q.dtype.element_ty), mask=inside_q)
    grad_k = tl.dot(tl.trans(grad_scores), q)
    tl.store(GRAD_KV + K_AT + at_k, grad_k.to(GRAD_KV.dtype.element_ty), mask=inside_k)


def _forward(q: Tensor, kv: Tensor, bias: Tensor | None, mask: "PackedMask", heads: int) -> tuple[Tensor, Tensor | None]:
    """Return the result and, for wide rows, each query's log-sum-exp, which the backward pass needs.

    Q is kv if both are in one tensor.
    """
    rows, positions = mask.queries.shape
    out = q.new_empty(rows, positions, q.size(-1) // (3 if q is kv else 1))
    if _width(mask) <= WIDEST and _block(positions) * _block(mask.keys.size(1)) <= WIDEST_FORWARD**2:
        _launch(_attend_forward, q, kv, bias, mask, (mask.queries, mask.keys), [out], heads)
        return out, None
    log = out.new_empty(rows, heads, positions, dtype=torch.float32)
    _launch(wide.wide_forward, q, kv, bias, mask, mask.key_range, [out, log], heads, positions)
    return out, None if _width(mask) <= (WIDEST if out.size(-1) // heads <= WIDE_HEAD else WIDEST_FORWARD) else log


def _backward(
    grad: Tensor,
    saved: tuple[Tensor | None, ...],
    grads: tuple[Tensor, Tensor],
    mask: "PackedMask",
    heads: int,
    learned: bool = False,
) -> Tensor | None:
    """Write the gradients of q and kv, and return those of all scores for a learned bias.

    Saved are q, kv, bias, result and log-sum-exp.
    """
    (q, kv, bias, out, log), grad = saved, grad.contiguous()
    assert q is not None and kv is not None
    scores, flag = grad, {"LEARNED": learned}
    if learned:
        assert bias is not None
        scores = new_gradient(bias, len(q), everywhere=out is None)
    if out is None or log is None:
        _launch(_attend_backward, q, kv, bias, mask, (mask.queries, mask.keys), [grad, *grads, scores], heads, **flag)
    else:
        mean = torch.empty_like(log)  # written for the queries, read for the keys
        rest, positions = [grad, out, log, mean, grads[0], scores], mask.queries.size(1)
        _launch(wide.wide_backward_queries, q, kv, bias, mask, mask.key_range, rest, heads, positions, **flag)
        rest, positions = [grad, log, mean, grads[1]], mask.keys.size(1)
        _launch(wide.wide_backward_keys, q, kv, bias, mask, mask.query_range, rest, heads, positions)
    return scores if learned else None


def _width(mask: "PackedMask") -> int:
    return max(mask.queries.size(1), mask.keys.size(1))


def _launch(
    kernel: Any,
    q: Tensor,
    kv: Tensor,
    bias: Tensor | None,
    mask: "PackedMask",
    ranges: tuple[Tensor, Tensor],
    rest: list[Tensor],
    heads: int,
    positions: int = 0,
    **flags: bool,
) -> None:
    """Start a program for each row and head or, with `positions`, for each block of them too."""
    (rows, queries), keys = mask.queries.shape, mask.keys.size(1)
    width = q.size(-1) // (3 if q is kv else 1)
    first = kv.size(-1) - 2 * width  # keys begin there, values a width later
    each = _block(width // heads)
    if positions:
        blocks = wide.sizes(kernel, each, mask.causal)
        grid: tuple[int, ...] = (rows * heads, triton.cdiv(positions, blocks["OWN"]))
    else:
        blocks = {"BT": _block(queries), "BS": _block(keys), "num_warps": 4}
        grid = (rows * heads,)
    kernel[grid](
        q, kv, *(x.contiguous() for x in ranges), q if bias is None else bias, *rest, queries, keys,
        0 if bias is None else bias.size(-1), (width // heads) ** -0.5,
        H=heads, K=width // heads, Q_STEP=q.size(-1), KV_STEP=kv.size(-1), K_AT=first, V_AT=first + width, CAUSAL=mask.causal,
        BIASED=bias is not None, **flags, **blocks, BK=each,
    )  # fmt: skip


def _block(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


class _Self(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Tensor | None, mask: "PackedMask", heads: int) -> Tensor:
        low = None if bias is None else bias.to(qkv.dtype).contiguous()
        out, log = _forward(qkv, qkv, low, mask, heads)
        ctx.save_for_backward(qkv, low, None if log is None else out, log)
        ctx.mask, ctx.heads = mask, heads
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, low, *rest = ctx.saved_tensors
        found, learned = torch.empty_like(qkv), ctx.needs_input_grad[1]
        scores = _backward(grads[0], (qkv, qkv, low, *rest), (found, found), ctx.mask, ctx.heads, learned)
        return found, None if scores is None else scores.sum(0, keepdim=True, dtype=torch.float32), None, None


class _Cross(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, mask: "PackedMask", heads: int) -> Tensor:
        out, log = _forward(q, kv, None, mask, heads)
        ctx.save_for_backward(q, kv, None, None if log is None else out, log)
        ctx.mask, ctx.heads = mask, heads
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, *_ = ctx.saved_tensors
        found = torch.empty_like(q), torch.empty_like(kv)
        _backward(grads[0], ctx.saved_tensors, found, ctx.mask, ctx.heads)
        return *found, None, None
