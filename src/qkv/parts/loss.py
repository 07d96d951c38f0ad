"""Cross-entropy over a large vocabulary, with label smoothing; on a CPU in pieces that never hold all scores at once.

The loss is a plain sum, so its gradient is known as soon as a piece's scores are: forward and backward of a piece are one pass
over scores that are still in the processor's cache, and no (N, V) matrix is ever kept. It is little faster than torch's
cross_entropy and its backward pass (0.81 to 0.96 of the time, `benchmarks/parts.py`). On a GPU a compiler fuses torch's own.
N tokens, D width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SKIP = -100  # an answer that carries no loss
SCORES = 1 << 22  # in a piece


def cross_entropy_sum(hidden: Tensor, weight: Tensor, answer: Tensor, smoothing: float = 0.0) -> Tensor:
    """Sum over tokens of the smoothed cross-entropy of softmax(hidden weight'). hidden (N, D), weight (V, D), answer (N,)."""
    if hidden.device.type != "cpu":
        scores = F.linear(hidden, weight)
        return F.cross_entropy(scores, answer, ignore_index=SKIP, reduction="sum", label_smoothing=smoothing)
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()
    return _CrossEntropySum.apply(hidden, weight, answer, smoothing, dtype, max(1, SCORES // weight.size(0)))


class _CrossEntropySum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, answer: Tensor, smoothing: float, dtype: torch.dtype, piece: int
    ) -> Tensor:
        low, total = weight.to(dtype), hidden.new_zeros((), dtype=torch.float32)
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for start in range(0, len(hidden), piece):
            part = slice(start, start + piece)
            h = hidden[part].to(dtype)
            loss, grad = _piece((h @ low.T).float(), answer[part], smoothing)
            total += loss
            grad = grad.to(dtype)
            if grad_hidden is not None:
                grad_hidden[part] = grad @ low
            if grad_weight is not None:
                grad_weight += grad.T @ h
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        (scale,) = upstream
        scaled = [None if g is None else g * scale.to(g.dtype) for g in (grad_hidden, grad_weight)]
        return (*scaled, None, None, None, None)


def _piece(scores: Tensor, answer: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss of some tokens and its gradient by their scores; `scores` is overwritten by the gradient."""
    words = scores.size(-1)
    skipped = answer == SKIP
    right = answer.clamp(min=0)[:, None]
    log_total = scores.logsumexp(-1)
    mean = scores.mean(-1) if smoothing else scores.new_zeros(())
    loss = log_total - (1 - smoothing) * scores.gather(1, right)[:, 0] - smoothing * mean
    grad = scores.sub_(log_total[:, None]).exp_()
    if smoothing:
        grad.sub_(smoothing / words)
    grad.scatter_add_(1, right, grad.new_full(right.shape, smoothing - 1))
    return loss.masked_fill(skipped, 0).sum(), grad.masked_fill_(skipped[:, None], 0)
