"""Positions against the formula in the paper, and the edge of a learned table."""

import math

import pytest
import torch

from qkv.base.errors import ConfigError
from qkv.parts.positions import Learned, Sinusoidal, make_positions


@pytest.mark.parametrize("width", [2, 6, 7, 512])
def test_sinusoids_are_the_papers(width: int) -> None:
    found = Sinusoidal(width)(torch.arange(512).flip(0)[None])
    assert found.shape == (1, 512, width)
    assert found.dtype == torch.float32
    places = [0, 1, 2, 50, 511]
    for row, place in zip(found[0].flip(0)[places].tolist(), places, strict=True):
        for dimension in range(width):
            angle = place / 10000 ** ((dimension - dimension % 2) / width)
            wanted = math.cos(angle) if dimension % 2 else math.sin(angle)
            assert row[dimension] == pytest.approx(wanted, abs=1e-4)


def test_sinusoids_have_nothing_to_learn_and_no_longest_text() -> None:
    positions = Sinusoidal(8)
    assert list(positions.parameters()) == []
    assert positions(torch.arange(100_000)[None]).isfinite().all()


def test_learned_places_are_looked_up() -> None:
    positions = Learned(8, places=5)
    place = torch.tensor([[0, 1, 0, 4]])
    assert torch.equal(positions(place), positions.table.weight[place])


def test_a_row_wider_than_the_table_is_fine_while_its_texts_fit() -> None:
    assert Learned(8, places=3)(torch.tensor([[0, 1, 2, 0, 1, 2, 0]])).shape == (1, 7, 8)


def test_a_text_longer_than_the_table_is_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match="a text of 4 tokens does not fit the 3 learned places"):
        Learned(8, places=3)(torch.tensor([[0, 1, 2, 3]]))


def test_schemes_by_name() -> None:
    assert isinstance(make_positions("sinusoidal", 8, 5), Sinusoidal)
    assert isinstance(make_positions("learned", 8, 5), Learned)
