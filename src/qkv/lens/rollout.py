"""Attention rollout: the share of each token in each position after all layers (Abnar and Zuidema 2020).

Heads are averaged, and the residual connection contributes half of each position: A = (W + I) / 2 for each layer. The rollout is
the product of these matrices, first layer rightmost. A decoder layer mixes twice, by self-attention and by cross-attention; the
shares of the source and of the target's own tokens are kept apart. S source length, T target length.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def attention_rollout(layers: Sequence[Tensor]) -> Tensor:
    """Return the share of each token in each position, from each layer's self-attention averaged over heads. (T, T) -> (T, T)."""
    shares = torch.eye(layers[0].size(0))
    for weights in layers:
        shares = (weights @ shares + shares) / 2
    return shares


def decoder_rollout(encoder: Sequence[Tensor], decoder: Sequence[Tensor], cross: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the shares of source tokens (T, S) and of target tokens (T, T) in a decoder's positions; together they sum to 1.

    `encoder` holds self-attention (S, S), `decoder` self-attention (T, T) and `cross` cross-attention (T, S), by layer.
    """
    memory = attention_rollout(encoder)
    target = torch.eye(decoder[0].size(0))
    source = torch.zeros(len(target), len(memory))
    for self_weights, cross_weights in zip(decoder, cross, strict=True):
        target, source = (self_weights @ target + target) / 2, (self_weights @ source + source) / 2
        target, source = target / 2, (cross_weights @ memory + source) / 2
    return source, target
