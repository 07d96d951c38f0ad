"""What is held out of a text: whole documents, or parts of them where there are too few."""

from collections.abc import Sequence

import numpy as np
import pytest

from qkv.base.errors import DataError
from qkv.data.documents import Documents
from qkv.data.held_out import MAX_HELD_OUT, hold_out
from qkv.data.tokens import token_texts


def documents(parts: Sequence[int]) -> Documents:
    """Documents of so many parts each, of ten tokens."""
    tokens = token_texts([[1] * 10] * sum(parts))
    return Documents(tokens, tokens, tokens, np.repeat(np.arange(len(parts)), parts))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.005, 0.25])
def test_whole_documents_are_held_out(seed: int, share: float) -> None:
    parts = np.random.default_rng(seed).integers(1, 5, 300)
    text = documents(parts.tolist())
    held_out = hold_out(text, share)
    trained = np.setdiff1d(np.arange(len(text)), held_out)
    assert not np.isin(text.document[held_out], text.document[trained]).any()
    assert len(np.unique(text.document[held_out])) == max(15, round(300 * share))


@pytest.mark.parametrize(("many", "wanted"), [(4, 2), (40, 2), (100, 5), (400, 20), (4_000, 20), (10_000, 50)])
def test_enough_to_be_scored_by_but_little_of_little(many: int, wanted: int) -> None:
    assert len(hold_out(documents([1] * many), 0.005)) == wanted


def test_where_enough_would_be_too_much_text_fewer_documents() -> None:
    parts = [1] * 100
    parts[24] = 30  # one of five, but not of two, that are spread over the text
    text = documents(parts)
    held_out = hold_out(text, 0.005)
    assert text.document[held_out].tolist() == [0, 99]


def test_not_too_many() -> None:
    assert len(hold_out(documents([1] * 10_000), 0.5)) == MAX_HELD_OUT


@pytest.mark.parametrize("parts", [[400], [100] * 5, [1, 1, 1, 500]])
def test_of_few_long_documents_a_few_parts(parts: list[int]) -> None:
    held_out = hold_out(documents(parts), 0.005)
    assert len(held_out) == min(20, sum(parts) // 20) and len(np.unique(held_out)) == len(held_out)


@pytest.mark.parametrize("parts", [[1], [3], [1, 1, 1]])
def test_too_little_text(parts: list[int]) -> None:
    with pytest.raises(DataError, match=f"has {len(parts)} documents, of which none can be held out; put blank lines"):
        hold_out(documents(parts), 0.1)
