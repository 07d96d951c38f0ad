"""Attention rollout: how much of what stands at a place came from which token, through all layers (Abnar and Zuidema 2020).

A layer's heads are averaged, and half of what a place holds is its own from below, because of the residual: A = (W + I) / 2. The
product of these, first layer rightmost, is the rollout. With two attentions in a layer, as in a decoder, each mixes so in turn;
what came from the source and what from the target's own words is kept apart.
S source length, T target length.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def rolled(layers: Sequence[Tensor]) -> Tensor:
    """Self-attention of each layer, mean over heads, (T, T) -> shares of tokens in what the last one knows, (T, T)."""
    found = torch.eye(layers[0].size(0))
    for weights in layers:
        found = (weights @ found + found) / 2
    return found


def rolled_across(encoder: Sequence[Tensor], own: Sequence[Tensor], cross: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The same of a decoder: shares of the source, (T, S), and of the target's own words, (T, T), which are 1 together.

    Encoder (S, S), a decoder's self-attention (T, T) and its attention to the source (T, S), each by layer.
    """
    memory = rolled(encoder)
    words = torch.eye(own[0].size(0))
    source = torch.zeros(len(words), len(memory))
    for looked_back, looked_over in zip(own, cross, strict=True):
        words, source = (looked_back @ words + words) / 2, (looked_back @ source + source) / 2
        words, source = words / 2, (looked_over @ memory + source) / 2
    return source, words
