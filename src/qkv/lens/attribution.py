"""Gradient times input: how much each token's embedding spoke for what was said, to first order (Shrikumar et al. 2016).

The value of a token is what the score would change by, per unit, if its embedding were made longer: above 0 it speaks for the
score, below 0 against it. B batch, T length.
"""

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn


def gradient_times_input(embedding: nn.Module, score: Callable[[], Tensor]) -> Tensor:
    """`score` computes a number by a model that first of all looks its tokens up in `embedding`. -> (B, T), of those tokens."""
    # Only in training does cuDNN keep what the backward pass of a recurrent layer needs.
    without_cudnn = torch.backends.cudnn.flags(enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), without_cudnn, _first_call_kept(embedding) as kept:
        (gradient,) = torch.autograd.grad(score(), kept)
    return (gradient * kept[0]).sum(-1).detach().float().cpu()


@contextlib.contextmanager
def _first_call_kept(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """Inside, what the first call gives, in this thread, goes into the list given, as the beginning of a new graph."""
    kept: list[Tensor] = []
    thread = get_ident()

    def keep(_: nn.Module, given: Any, found: Tensor) -> Tensor:
        if kept or get_ident() != thread:
            return found
        kept.append(found.detach().requires_grad_())
        return kept[0]

    hook = embedding.register_forward_hook(keep)
    try:
        yield kept
    finally:
        hook.remove()
