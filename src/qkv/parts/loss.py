"""Cross-entropy over a large vocabulary, with label smoothing, in pieces whose scores are forgotten at once.

The loss is a plain sum, so its gradient is known as soon as a piece's scores are: forward and backward of a piece are one pass
over its scores, and nothing of the size (N, V) waits for the backward pass. On a CPU a piece fits into the cache; on a GPU it is
up to 2 GB in bf16, enough to fill the device, and one kernel turns scores into loss and gradient (`kernels/loss.py`).
N tokens, D width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.parts import kernels
from qkv.parts.products import product

SCORES = {"cpu": 1 << 22, "cuda": 1 << 30}  # in a piece
FULL = 64  # a GPU is up to three times as fast if there are a multiple of so many words


def cross_entropy_sum(
    hidden: Tensor, weight: Tensor, answer: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """Sum over tokens of the smoothed cross-entropy of softmax(hidden weight' + bias).

    hidden (N, D), weight (V, D), answer (N,), bias (V,).
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    if not torch.is_grad_enabled():
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    piece = max(1, SCORES[device] // weight.size(0))
    return _CrossEntropySum.apply(hidden, weight, bias, answer, smoothing, dtype, piece)


@torch.no_grad()
def log_probabilities(hidden: Tensor, weight: Tensor, answer: Tensor, bias: Tensor | None = None) -> Tensor:
    """log softmax(hidden weight' + bias) of each token's answer, 0 where that is SKIP; in float32, and not to be learned from.

    hidden (N, D), weight (V, D), answer (N,), bias (V,) -> (N,).
    """
    piece = max(1, SCORES[hidden.device.type] // weight.size(0))
    found = [_chosen(F.linear(h, weight, bias).float(), a) for h, a in zip(hidden.split(piece), answer.split(piece), strict=True)]
    return torch.cat(found)


def _chosen(scores: Tensor, answer: Tensor) -> Tensor:
    logs = scores.gather(1, answer.clamp(min=0)[:, None])[:, 0] - scores.logsumexp(-1)
    return logs.masked_fill(answer == IGNORE_INDEX, 0)


class _CrossEntropySum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        answer: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        piece: int,
    ) -> Tensor:
        words, total = len(weight), hidden.new_zeros((), dtype=torch.float32)
        low = _filled_up(weight.to(dtype))
        low_bias = None if bias is None else _filled_up(bias.to(dtype))
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight: Tensor | None = None
        grad_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for start in range(0, len(hidden), piece):
            part = slice(start, start + piece)
            h = hidden[part].to(dtype)
            loss, grad = _piece(F.linear(h, low, low_bias), words, answer[part], smoothing, any(ctx.needs_input_grad))
            total += loss
            if grad_hidden is not None:
                grad_hidden[part] = grad @ low
            if ctx.needs_input_grad[1]:
                added = product(grad.T, h)[:words].to(weight.dtype)
                grad_weight = added if grad_weight is None else grad_weight.add_(added)
            if grad_bias is not None:
                grad_bias += _sum_of_columns(grad)[:words]
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = upstream
        return (*(None if g is None else _scaled(g, scale) for g in ctx.saved_tensors), None, None, None, None)


def _scaled(grad: Tensor, scale: Tensor) -> Tensor:
    """The gradient times a number, and as exact as the gradient is, in one pass."""
    # A scale of one dimension keeps its float32: one over the number of tokens, in bf16, would be off by as much for all of them.
    return torch.mul(grad, scale.float().reshape(1), out=torch.empty_like(grad))


def _filled_up(words: Tensor) -> Tensor:
    """With zeros for words that there are not, whose scores and gradients stay zero. (V, ...) -> (V or some more, ...)."""
    missing = -len(words) % FULL if kernels.usable(words) else 0
    return torch.cat([words, words.new_zeros(missing, *words.shape[1:])]) if missing else words


def _sum_of_columns(grad: Tensor) -> Tensor:
    """(N, V) -> (V,), in float32."""
    return kernels.linear.sum_over_places(grad)[1] if kernels.usable(grad) else grad.sum(0, dtype=torch.float32)


def _piece(scores: Tensor, words: int, answer: Tensor, smoothing: float, gradient: bool) -> tuple[Tensor, Tensor]:
    """The loss of some tokens and, where it is wanted, its gradient by their scores, which may be overwritten by it."""
    if kernels.usable(scores):
        return kernels.loss.cross_entropy(scores, words, answer, IGNORE_INDEX, smoothing, gradient).sum(), scores
    dtype, scores = scores.dtype, scores.float()
    skipped = answer == IGNORE_INDEX
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
