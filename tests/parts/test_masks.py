"""Rules against enumeration of all (query, key) pairs."""

import itertools

import pytest
import torch
from torch import Tensor

from qkv.parts.masks import PackedMask, Rule, causal, same_text


def enumerate_rule(rule: Rule, batch: int, queries: int, keys: int) -> list[list[list[bool]]]:
    """The rule asked about one place at a time."""

    def ask(*position: int) -> bool:
        return bool(rule.allows(*(torch.tensor(i) for i in position)))

    return [[[ask(b, q, k) for k in range(keys)] for q in range(queries)] for b in range(batch)]


def all_texts(width: int) -> Tensor:
    """Every way to fill a row: whole texts numbered from 1, padding after or before them. -> (rows, width)."""
    rows = set()
    for cuts in itertools.product([0, 1], repeat=width):
        row = list(itertools.accumulate(cuts[1:], initial=1))
        for filled in range(width + 1):
            text, padding = row[:filled], [0] * (width - filled)
            rows |= {tuple(text + padding), tuple(padding + text)}
    return torch.tensor(sorted(rows))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (4, 4), (3, 5), (5, 3)])
def test_causal_sees_itself_and_the_past(queries: int, keys: int) -> None:
    dense = causal().dense(2, queries, keys)
    assert dense.shape == (2, 1, queries, keys)
    assert dense.dtype == torch.bool
    assert dense[:, 0].tolist() == [[[k <= q for k in range(keys)] for q in range(queries)]] * 2


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_token_sees_its_own_text(width: int) -> None:
    text = all_texts(width)
    dense = same_text(text, text).dense(len(text), width, width)[:, 0]
    for row, mask in zip(text.tolist(), dense.tolist(), strict=True):
        for q, k in itertools.product(range(width), repeat=2):
            # Nobody but padding looks at padding, and padding looks anywhere.
            assert mask[q][k] == (row[q] == row[k] or row[q] == 0)


def test_target_texts_see_the_source_texts_of_the_same_number() -> None:
    target, source = torch.tensor([[1, 1, 2, 3, 0]]), torch.tensor([[1, 2, 2, 3]])
    wanted = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1]]
    assert same_text(target, source).dense(1, 5, 4)[0, 0].int().tolist() == wanted


@pytest.mark.parametrize("width", [1, 4])
def test_every_place_sees_at_least_itself(width: int) -> None:
    text = all_texts(width)
    mask = (same_text(text, text) & causal()).dense(len(text), width, width)[:, 0]
    assert mask.diagonal(dim1=1, dim2=2).all()  # a softmax over nothing is not a number


def test_rules_combine_as_logic_does() -> None:
    text = all_texts(4)
    one, two = causal(), same_text(text, text)
    a, b = (enumerate_rule(rule, len(text), 4, 4) for rule in (one, two))
    both, either = (enumerate_rule(rule, len(text), 4, 4) for rule in (one & two, one | two))
    for row, q, k in itertools.product(range(len(text)), range(4), range(4)):
        assert both[row][q][k] == (a[row][q][k] and b[row][q][k])
        assert either[row][q][k] == (a[row][q][k] or b[row][q][k])


def test_the_dense_matrix_is_the_rule() -> None:
    text = all_texts(4)
    rule = (same_text(text, text) & causal()) | Rule(lambda b, q, k: (k == 0) & (b % 2 == 0))
    assert rule.dense(len(text), 4, 4)[:, 0].tolist() == enumerate_rule(rule, len(text), 4, 4)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (4, 4), (3, 5), (5, 3)])
def test_where_texts_lie(queries: int, keys: int) -> None:
    """Of every two rows, with texts that the other one lacks too: what lies from there to there are the keys of the same text."""
    pairs = list(itertools.product(all_texts(queries), all_texts(keys)))
    rule = PackedMask(torch.stack([a for a, _ in pairs]), torch.stack([b for _, b in pairs]), causal=False)
    for text, others, (begin, end) in ((rule.queries, rule.keys, rule.key_range), (rule.keys, rule.queries, rule.query_range)):
        position = torch.arange(others.size(1))
        inside = (begin[..., None] <= position) & (position < end[..., None])
        assert inside.equal((text[..., None] == others[:, None]) & (text > 0)[..., None])
        assert (begin[text == 0] == others.size(1)).all(), "padding must not lengthen what a block of places looks at"


def test_rows_that_look_at_themselves_are_searched_once() -> None:
    rule = PackedMask(text := all_texts(4), text, causal=True)
    assert rule.query_range is rule.key_range
