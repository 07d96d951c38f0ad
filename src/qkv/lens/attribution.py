"""Gradient times input: the first-order contribution of each token's embedding to a score (Shrikumar et al. 2016).

A token's value is the derivative of the score with respect to a scale on its embedding: above 0 it supports the score, below 0 it
opposes it. B batch, T length.
"""

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn


def gradient_times_input(embedding: nn.Module, score: Callable[[], Tensor]) -> Tensor:
    """Return gradient x input of the tokens of the first call of `embedding` inside `score`. -> (B, T)."""
    # cuDNN keeps what the backward pass of a recurrent layer needs in training mode only.
    without_cudnn = torch.backends.cudnn.flags(enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), without_cudnn, _first_output(embedding) as outputs:
        (gradient,) = torch.autograd.grad(score(), outputs)
    return (gradient * outputs[0]).sum(-1).detach().float().cpu()


@contextlib.contextmanager
def _first_output(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """Detach the first output that this thread gets from the module, and put it into the yielded list as a leaf."""
    outputs: list[Tensor] = []
    thread = get_ident()

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if outputs or get_ident() != thread:
            return output
        outputs.append(output.detach().requires_grad_())
        return outputs[0]

    handle = embedding.register_forward_hook(hook)
    try:
        yield outputs
    finally:
        handle.remove()
