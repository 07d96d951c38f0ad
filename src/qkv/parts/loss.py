"""Cross-entropy over a large vocabulary, with label smoothing, in pieces whose logits are freed at once.

The loss is a plain sum, so its gradient is known as soon as a piece's logits are: forward and backward of a piece are one pass
over its logits, and nothing of the size (N, V) waits for the backward pass. On a CPU a piece fits into the cache; on a GPU it is
up to 2 GB in bf16, enough to fill the device, and one kernel turns logits into loss and gradient (`kernels/loss.py`). In float32,
where torch makes copies of the logits, it is up to 1 GB.
N tokens, D width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.parts import kernels
from qkv.parts.products import product

PIECE = {"cpu": 1 << 22, "mps": 1 << 26, "cuda": 1 << 30}  # logits in a piece
ALIGNED = 64  # a GPU is up to three times as fast if the vocabulary is a multiple of this


def cross_entropy_sum(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """Return the sum over tokens of the smoothed cross-entropy of softmax(hidden weight' + bias).

    hidden (N, D), weight (V, D), labels (N,), bias (V,).
    """
    return cross_entropies(hidden, weight, labels, smoothing, bias)[0]


def cross_entropies(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sum of `cross_entropy_sum`, and the loss of each token, 0 at IGNORE_INDEX, without gradient. -> (), (N,)."""
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    if not torch.is_grad_enabled():
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    return _CrossEntropySum.apply(hidden, weight, bias, labels, smoothing, dtype, _piece_size(weight, dtype))


@torch.no_grad()
def log_probabilities(hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return log softmax(hidden weight' + bias) of each token's label, 0 at IGNORE_INDEX; in float32, without gradients.

    hidden (N, D), weight (V, D), labels (N,), bias (V,) -> (N,).
    """
    piece, found = _piece_size(weight, weight.dtype), []
    for h, label in zip(hidden.split(piece), labels.split(piece), strict=True):
        logits = F.linear(h, weight, bias).float()
        logs = logits.gather(1, label.clamp(min=0)[:, None])[:, 0] - logits.logsumexp(-1)
        found.append(logs.masked_fill(label == IGNORE_INDEX, 0))
    return torch.cat(found)


def _piece_size(weight: Tensor, dtype: torch.dtype) -> int:
    """Return the number of tokens whose logits are computed at once."""
    logits = PIECE[weight.device.type] // (4 if weight.is_cuda and dtype == torch.float32 else 1)
    return max(1, logits // weight.size(0))


class _CrossEntropySum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        piece: int,
    ) -> tuple[Tensor, Tensor]:
        vocab, total = len(weight), hidden.new_zeros((), dtype=torch.float32)
        losses = hidden.new_empty(len(hidden), dtype=torch.float32)
        low = _padded(weight.to(dtype))
        low_bias = None if bias is None else _padded(bias.to(dtype))
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight: Tensor | None = None
        grad_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for start in range(0, len(hidden), piece):
            part = slice(start, start + piece)
            h = hidden[part].to(dtype)
            losses[part], grad = _piece(F.linear(h, low, low_bias), vocab, labels[part], smoothing, any(ctx.needs_input_grad))
            total += losses[part].sum()
            if grad_hidden is not None:
                grad_hidden[part] = grad @ low
            if ctx.needs_input_grad[1]:
                added = product(grad.T, h)[:vocab].to(weight.dtype)
                grad_weight = added if grad_weight is None else grad_weight.add_(added)
            if grad_bias is not None:
                fused = kernels.usable(grad)
                columns = kernels.linear.sum_over_rows(grad)[1] if fused else grad.sum(0, dtype=torch.float32)
                grad_bias += columns[:vocab]
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(losses)
        ctx.set_materialize_grads(False)
        return total, losses

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream[0]
        return (*(None if g is None else scaled(g, scale) for g in ctx.saved_tensors), None, None, None, None)


def scaled(grad: Tensor, scale: Tensor) -> Tensor:
    """Multiply a gradient by a scale in one pass, in float32, and round the product to the gradient's dtype."""
    # A one-dimensional scale stays float32: in bf16, 1 / tokens would be off by the same factor for all of them.
    return torch.mul(grad, scale.float().reshape(1), out=torch.empty_like(grad))


def _padded(table: Tensor) -> Tensor:
    """Pad the vocabulary with zeros for a GPU; their logits and gradients stay zero. (V, ...) -> (V or some more, ...)."""
    missing = -len(table) % ALIGNED if kernels.usable(table) else 0
    return torch.cat([table, table.new_zeros(missing, *table.shape[1:])]) if missing else table


def _piece(logits: Tensor, vocab: int, labels: Tensor, smoothing: float, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return the loss of each of some tokens and, if `gradient`, its gradient by their logits, which it may overwrite."""
    if kernels.usable(logits):
        return kernels.loss.cross_entropy(logits, vocab, labels, IGNORE_INDEX, smoothing, gradient), logits
    dtype, logits = logits.dtype, logits.float()
    ignored = labels == IGNORE_INDEX
    label = labels.clamp(min=0)[:, None]
    log_total = logits.logsumexp(-1)
    mean = logits.mean(-1) if smoothing else logits.new_zeros(())
    loss = log_total - (1 - smoothing) * logits.gather(1, label)[:, 0] - smoothing * mean
    loss = loss.masked_fill(ignored, 0)
    if not gradient:
        return loss, logits
    grad = logits.sub_(log_total[:, None]).exp_()
    if smoothing:
        grad.sub_(smoothing / vocab)
    grad.scatter_add_(1, label, grad.new_full(label.shape, smoothing - 1))
    return loss, grad.masked_fill_(ignored[:, None], 0).to(dtype)
