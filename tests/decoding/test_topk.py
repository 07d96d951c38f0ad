"""The highest scores by blocks are the highest scores."""

import math

import pytest
import torch

from qkv.decoding.topk import BLOCK, WORTH, argmax, topk


@pytest.mark.parametrize("vocabulary", [5, BLOCK, 2000, 2000 + BLOCK // 2 + 1, 30_001])
@pytest.mark.parametrize("rows", [1, 17])
def test_they_are_what_topk_and_argmax_give(vocabulary: int, rows: int) -> None:
    rng = torch.Generator().manual_seed(1)
    scores = torch.randn(rows, vocabulary, generator=rng)
    scores[:, -1] += 4 * torch.arange(rows).remainder(2)  # the last token, beyond the last whole block, is often among them
    for size in (1, 3, min(vocabulary, 12)):
        best, positions = topk(scores, size)
        wanted = scores.topk(size)
        assert torch.equal(best, wanted.values) and torch.equal(positions, wanted.indices)
    assert torch.equal(argmax(scores), scores.argmax(-1))


@pytest.mark.parametrize("vocabulary", [BLOCK * 400, BLOCK * 400 + 7])
def test_of_equal_scores_the_first_is_the_highest(vocabulary: int) -> None:
    scores = torch.zeros(3, vocabulary)
    scores[0, [5, 70, 8000]] = 1.0
    scores[1, [vocabulary - 3, vocabulary - 1]] = 1.0
    scores[2] = -math.inf
    assert scores.numel() > WORTH
    assert argmax(scores).tolist() == [5, vocabulary - 3, 0]


def test_what_is_no_number_comes_first_and_minus_infinity_last() -> None:
    scores = torch.randn(2, WORTH)
    scores[0, 77] = math.nan
    scores[1, 1:] = -math.inf
    best, positions = topk(scores, 2)
    assert math.isnan(best[0, 0]) and positions[0, 0] == 77 and argmax(scores).tolist() == [77, 0]
    assert positions[1, 0] == 0 and best[1, 1] == -math.inf and len(set(positions[1].tolist())) == 2
