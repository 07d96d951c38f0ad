"""Positions against the formula in the paper, and the edge of a learned table."""

import math

import pytest
import torch

from qkv.base.errors import ConfigError
from qkv.parts.positions import (
    CountingPositions,
    LearnedPositions,
    NoPositions,
    NormalisedPositions,
    SinusoidalPositions,
    make_positions,
)


@pytest.mark.parametrize("width", [2, 6, 7, 512])
def test_sinusoids_are_the_papers(width: int) -> None:
    found = SinusoidalPositions(width)(torch.arange(512).flip(0)[None])
    assert found.shape == (1, 512, width)
    assert found.dtype == torch.float32
    positions = [0, 1, 2, 50, 511]
    for row, position in zip(found[0].flip(0)[positions].tolist(), positions, strict=True):
        for dimension in range(width):
            angle = position / 10000 ** ((dimension - dimension % 2) / width)
            wanted = math.cos(angle) if dimension % 2 else math.sin(angle)
            assert row[dimension] == pytest.approx(wanted, abs=1e-4)


def test_sinusoids_have_nothing_to_learn_and_no_longest_text() -> None:
    positions = SinusoidalPositions(8)
    assert list(positions.parameters()) == []
    assert positions(torch.arange(100_000)[None]).isfinite().all()


def test_learned_places_are_looked_up() -> None:
    positions = LearnedPositions(8, max_positions=5)
    position = torch.tensor([[0, 1, 0, 4]])
    assert torch.equal(positions(position), positions.table.weight[position])


def test_a_row_wider_than_the_table_is_fine_while_its_texts_fit() -> None:
    assert LearnedPositions(8, max_positions=3)(torch.tensor([[0, 1, 2, 0, 1, 2, 0]])).shape == (1, 7, 8)


def test_a_text_longer_than_the_table_is_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match="a text of 4 tokens does not fit the 3 learned positions"):
        LearnedPositions(8, max_positions=3)(torch.tensor([[0, 1, 2, 3]]))


def test_counting_is_the_place_itself() -> None:
    position = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 3, 400]])
    found = CountingPositions()(position)
    assert found.dtype == torch.float32
    assert found.expand(2, 5, 8)[..., 7].tolist() == position.tolist()


def test_normalised_places_go_from_0_to_1_in_each_text() -> None:
    text = torch.tensor([[1, 1, 1, 2, 3, 3, 0], [1, 1, 1, 1, 1, 0, 0]])
    position = torch.tensor([[0, 1, 2, 0, 0, 1, 0], [0, 1, 2, 3, 4, 5, 6]])
    found = NormalisedPositions()(position, text)[..., 0]
    assert found[0, :6].tolist() == [0, 0.5, 1, 0, 0, 1]
    assert found[1, :5].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert found.isfinite().all()
    assert NormalisedPositions()(position[1:])[0, :, 0].tolist() == pytest.approx([i / 6 for i in range(7)])


def test_where_the_length_is_not_known_places_are_normalised_by_the_most_there_may_be() -> None:
    found = make_positions("normalised", 8, max_positions=5, known_length=False)(torch.tensor([[0, 1, 4, 8]]))
    assert found[0, :, 0].tolist() == [0, 0.25, 1, 2]
    assert make_positions("normalised", 8, max_positions=1, known_length=False)(torch.zeros(1, 1)).isfinite().all()


def test_no_positions_change_nothing() -> None:
    x = torch.randn(2, 3, 8)
    assert torch.equal(x + NoPositions()(torch.arange(3).expand(2, 3)), x)


def test_schemes_by_name() -> None:
    kinds = {
        "sinusoidal": SinusoidalPositions,
        "learned": LearnedPositions,
        "counting": CountingPositions,
        "normalised": NormalisedPositions,
        "none": NoPositions,
    }
    kinds |= dict.fromkeys(["relative", "rotary", "alibi"], NoPositions)  # these act in attention
    assert {kind: type(make_positions(kind, 8, 5)) for kind in kinds} == kinds
