"""Cross-entropy over a large vocabulary, with label smoothing, in pieces that never hold all scores at once.

The loss is a plain sum, so its gradient is known as soon as a piece's scores are: forward and backward of a piece are one pass
over its scores, and no (N, V) matrix is ever kept, least of all in float32. On a CPU a piece fits into the cache; on a GPU it is
large enough to fill the device, and one kernel turns scores into loss and gradient (`kernels/loss.py`).
N tokens, D width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from qkv.parts import kernels

SKIP = -100  # an answer that carries no loss
SCORES = {"cpu": 1 << 22, "cuda": 1 << 30}  # in a piece


def cross_entropy_sum(hidden: Tensor, weight: Tensor, answer: Tensor, smoothing: float = 0.0) -> Tensor:
    """Sum over tokens of the smoothed cross-entropy of softmax(hidden weight'). hidden (N, D), weight (V, D), answer (N,)."""
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    gradient = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    return _cross_entropy_sum(hidden, weight, answer, smoothing, dtype, gradient)[0]


Sums = tuple[Tensor, Tensor, Tensor]


# An operator of its own, so that a compiler leaves it as it is.
@torch.library.custom_op("qkv::cross_entropy_sum", mutates_args=())
def _cross_entropy_sum(
    hidden: Tensor, weight: Tensor, answer: Tensor, smoothing: float, dtype: torch.dtype, gradient: bool
) -> Sums:
    """The loss, and its gradients by hidden and weight; those are empty where they are not wanted."""
    sums = total, grad_hidden, grad_weight = _empty(hidden, weight, answer, smoothing, dtype, gradient)
    low = weight.to(dtype)
    for tensor in (total, grad_weight):
        tensor.zero_()
    piece = max(1, SCORES[hidden.device.type] // weight.size(0))
    for start in range(0, len(hidden), piece):
        part = slice(start, start + piece)
        h = hidden[part].to(dtype)
        loss, grad = _piece(h @ low.T, answer[part], smoothing, gradient)
        total += loss
        if gradient:
            grad_hidden[part] = grad @ low
            grad_weight += grad.T @ h
    return sums


@_cross_entropy_sum.register_fake
def _empty(hidden: Tensor, weight: Tensor, answer: Tensor, smoothing: float, dtype: torch.dtype, gradient: bool) -> Sums:
    total = hidden.new_empty((), dtype=torch.float32)
    if not gradient:
        return total, hidden.new_empty(0), weight.new_empty(0)
    return total, torch.empty_like(hidden), torch.empty_like(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Sums) -> None:
    ctx.save_for_backward(*output[1:])


def _backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    grad_hidden, grad_weight = ctx.saved_tensors
    return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale.to(grad_weight.dtype), None, None, None, None


_cross_entropy_sum.register_autograd(_backward, setup_context=_keep)


def _piece(scores: Tensor, answer: Tensor, smoothing: float, gradient: bool) -> tuple[Tensor, Tensor]:
    """The loss of some tokens and, where it is wanted, its gradient by their scores, which may be overwritten by it."""
    if kernels.usable(scores):
        return kernels.loss.cross_entropy(scores, answer, SKIP, smoothing, gradient).sum(), scores
    dtype, scores, words = scores.dtype, scores.float(), scores.size(-1)
    skipped = answer == SKIP
    right = answer.clamp(min=0)[:, None]
    log_total = scores.logsumexp(-1)
    mean = scores.mean(-1) if smoothing else scores.new_zeros(())
    loss = log_total - (1 - smoothing) * scores.gather(1, right)[:, 0] - smoothing * mean
    loss = loss.masked_fill(skipped, 0).sum()
    if not gradient:
        return loss, scores
    grad = scores.sub_(log_total[:, None]).exp_()
    if smoothing:
        grad.sub_(smoothing / words)
    grad.scatter_add_(1, right, grad.new_full(right.shape, smoothing - 1))
    return loss, grad.masked_fill_(skipped[:, None], 0).to(dtype)
