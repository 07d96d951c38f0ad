"""Rollout equals a walk over all paths through the layers."""

import itertools

import torch
from torch import Tensor

from inspected_models import TEXT, translator
from qkv.lens.rollout import attention_rollout, decoder_rollout
from qkv.lens.view import look


def weights(rows: int, columns: int) -> Tensor:
    return torch.rand(rows, columns).softmax(-1)


def by_walking(layers: list[Tensor], start: int, end: int) -> float:
    """Return the probability that a walk down from a position, which stays or follows attention with equal chance, ends
    at a token.
    """
    total = 0.0
    size = layers[0].size(0)
    for way in itertools.product(range(size), repeat=len(layers) - 1):
        chance, here = 1.0, start
        for layer, there in zip(reversed(layers), (*way, end), strict=True):
            chance *= 0.5 * float(layer[here, there]) + 0.5 * (here == there)
            here = there
        total += chance
    return total


def test_self_attention() -> None:
    layers = [weights(3, 3) for _ in range(3)]
    found = attention_rollout(layers)
    for start, end in itertools.product(range(3), repeat=2):
        assert abs(float(found[start, end]) - by_walking(layers, start, end)) < 1e-6


def test_shares_of_a_decoder_are_one_together() -> None:
    encoder, own, cross = [weights(4, 4) for _ in range(2)], [weights(3, 3) for _ in range(2)], [weights(3, 4) for _ in range(2)]
    source, words = decoder_rollout(encoder, own, cross)
    torch.testing.assert_close(source.sum(-1) + words.sum(-1), torch.ones(3))


def test_one_layer_of_a_decoder_by_hand() -> None:
    encoder, own, cross = weights(2, 2), weights(2, 2), weights(2, 2)
    source, words = decoder_rollout([encoder], [own], [cross])
    torch.testing.assert_close(source, cross @ (encoder + torch.eye(2)) / 4)
    torch.testing.assert_close(words, (own + torch.eye(2)) / 4)


def test_rollouts_of_models() -> None:
    seen = look(translator("transformer"), TEXT).rollout
    assert seen is not None and (seen.rows, seen.columns) == ("target", "source")
    assert ((seen.weights.sum(-1) > 0.5) & (seen.weights.sum(-1) < 1)).all()
    assert look(translator("convolution"), TEXT).rollout is None
    joined = look(translator("unilm"), TEXT).rollout
    assert joined is not None and joined.weights.shape == (
        len(look(translator("unilm"), TEXT).texts["target"].ids),
        joined.weights.size(1),
    )
