"""Scaled dot-product attention ("Attention Is All You Need", section 3.2.1), and recording and changing of its weights.

`attend` runs torch's fused kernel. Inside `recording()` or `changing_weights()` it computes the same step by step, so that the
weights can be recorded or changed.
B batch, T query length, S key length, H heads, K head width.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# With a boolean mask in bf16, cuDNN's kernel gives gradients that are not numbers once scores grow large (seen with torch 2.11
# on an H200: the loss and the other kernels' gradients were finite on the same batch). It must not be chosen.
torch.backends.cuda.enable_cudnn_sdp(False)

# A context variable, not a global: a service records a model in one thread while another thread translates with it.
_recorders: ContextVar[tuple[list[Tensor], ...]] = ContextVar("recorders", default=())
Softmax = Callable[[Tensor, int | None], Tensor]  # scores (B, H, T, S) and the position of the first query, if known -> weights
_softmax: ContextVar[Softmax | None] = ContextVar("softmax", default=None)


class RecordedAttention(nn.Module):
    """Base of the modules that record one tensor of attention weights at each call; `lens` finds them by it."""


@contextlib.contextmanager
def recording() -> Iterator[list[Tensor]]:
    """Collect the weights (B, H, T, S) of every attention that this thread computes inside, in order of computation."""
    weights: list[Tensor] = []
    before = _recorders.set((*_recorders.get(), weights))
    try:
        yield weights
    finally:
        _recorders.reset(before)


@contextlib.contextmanager
def changing_weights(softmax: Softmax) -> Iterator[None]:
    """Compute the weights of every attention of this thread inside by `softmax`."""
    before = _softmax.set(softmax)
    try:
        yield
    finally:
        _softmax.reset(before)


def is_recording() -> bool:
    """Return whether attention of this thread is being recorded or changed, so that its weights must be there."""
    return bool(_recorders.get()) or _softmax.get() is not None


def softmax_weights(scores: Tensor, first: int | None = None) -> Tensor:
    """Return the weights of scores (B, H, T, S), as this thread changes them; `first` is the first query's position."""
    changed = _softmax.get()
    return scores.softmax(-1) if changed is None else changed(scores, first)


def record(weights: Tensor) -> None:
    """Add weights (B, H, T, S) to every recording of this thread."""
    for recorder in _recorders.get():
        recorder.append(weights.detach())


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a boolean mask to numbers that are added to scores: 0 where True, else the lowest number of the dtype."""
    # Not minus infinity: a softmax over a row that is masked everywhere, such as an empty source, would give NaN.
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Return softmax(q k' / sqrt(K) + mask) v. q (B, H, T, K), k and v (B, H, S, K) -> (B, H, T, K).

    The mask (B, 1 or H, T, S) is boolean, True = attend, or additive.
    """
    # In bf16 on a CPU, torch's fused kernel takes two to four times as long as its parts one after the other.
    if is_recording() or (q.device.type == "cpu" and q.dtype == torch.bfloat16):
        return attention_weights(q, k, mask).to(v.dtype) @ v
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Compute and record softmax(q k' / sqrt(K) + mask). -> (B, H, T, S)."""
    scores = (q * q.size(-1) ** -0.5) @ k.mT
    if mask is not None:
        scores = scores + (additive(mask, scores.dtype) if mask.dtype == torch.bool else mask)
    weights = softmax_weights(scores)
    record(weights)
    return weights


def split_heads(x: Tensor, parts: int, heads: int) -> Tensor:
    """Split stacked projections by part and head. (B, T, parts * H * K) -> (parts, B, H, T, K)."""
    return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4)


def join_heads(x: Tensor) -> Tensor:
    """Concatenate heads. (B, H, T, K) -> (B, T, H * K)."""
    return x.transpose(1, 2).flatten(-2)
