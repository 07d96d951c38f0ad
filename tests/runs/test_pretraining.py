"""What is held out of a text: whole documents, or parts of them where there are too few."""

from collections.abc import Sequence

import numpy as np
import pytest

from qkv.base.errors import DataError
from qkv.data.documents import Documents
from qkv.data.tokens import texts_of
from qkv.runs.pretraining import MOST_HELD_OUT, hold_out


def documents(parts: Sequence[int]) -> Documents:
    """Documents of so many parts each, of ten tokens."""
    tokens = texts_of([[1] * 10] * sum(parts))
    return Documents(tokens, tokens, tokens, np.repeat(np.arange(len(parts)), parts))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.005, 0.25])
def test_whole_documents_are_held_out(seed: int, share: float) -> None:
    parts = np.random.default_rng(seed).integers(1, 5, 300)
    text = documents(parts.tolist())
    held_out = hold_out(text, share)
    trained = np.setdiff1d(np.arange(len(text)), held_out)
    assert not np.isin(text.document[held_out], text.document[trained]).any()
    assert len(np.unique(text.document[held_out])) == max(2, round(300 * share))


def test_not_too_many() -> None:
    assert len(hold_out(documents([1] * 10_000), 0.5)) == MOST_HELD_OUT


@pytest.mark.parametrize("parts", [[400], [100] * 5, [1, 1, 1, 500]])
def test_of_few_long_documents_a_few_parts(parts: list[int]) -> None:
    held_out = hold_out(documents(parts), 0.005)
    assert 2 <= len(held_out) <= 3 and len(np.unique(held_out)) == len(held_out)


@pytest.mark.parametrize("parts", [[1], [3], [1, 1, 1]])
def test_too_little_text(parts: list[int]) -> None:
    with pytest.raises(DataError, match=f"has {len(parts)} documents, of which none can be held out; put blank lines"):
        hold_out(documents(parts), 0.1)
