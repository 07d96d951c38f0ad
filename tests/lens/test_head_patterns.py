"""Head patterns are found where they are, and random attention has none."""

import pytest
import torch
from torch import Tensor

from qkv.lens.head_patterns import DESCRIPTIONS, find_head_patterns
from qkv.lens.inspectors import AttentionMap
from qkv.lens.tokenized_text import TokenizedText

TOKENS = ["<s>", "▁the", "▁fox", "es", ",", "▁the", "▁dog", "▁saw", ".", "</s>"]
WORDS = [None, 0, 1, 1, 2, 3, 4, 5, 6, None]
IDS = [2, 10, 11, 12, 13, 10, 14, 15, 16, 3]
SAMPLE = TokenizedText(IDS, TOKENS, WORDS, [number == 3 for number in IDS], ["the", "foxes", ",", "the", "dog", "saw", "."])  # type: ignore[arg-type]
LONG = len(IDS)


def attending(*positions: list[int], share: float = 0.8, causal: bool = False) -> Tensor:
    """Return a head that gives a share of its attention to one position per row, and spreads the rest evenly."""
    visible = torch.ones(LONG, LONG).tril() if causal else torch.ones(LONG, LONG)
    weights = visible / visible.sum(-1, keepdim=True)
    for row, wanted in enumerate(positions[0]):
        if 0 <= wanted < LONG and visible[row, wanted]:
            weights[row] *= 1 - share
            weights[row, wanted] += share
    return weights


def found(weights: Tensor, part: str = "encoder") -> dict[str, float]:
    heads = AttentionMap("encoder.0.self", part, 0, "source", "source", weights[None])
    return {one.pattern: one.score for one in find_head_patterns([heads], {"source": SAMPLE})}


ATTENDED = {
    "previous": [row - 1 for row in range(LONG)],
    "next": [row + 1 for row in range(LONG)],
    "self": [*range(LONG)],
    "first": [-1] + [0] * (LONG - 1),
    "separator": [LONG - 1] * (LONG - 1) + [-1],
}


@pytest.mark.parametrize("pattern", ATTENDED)
def test_a_head_that_does_one_thing(pattern: str) -> None:
    patterns = found(attending(ATTENDED[pattern]))
    assert set(patterns) == {pattern}
    assert patterns[pattern] == pytest.approx(0.8 + 0.2 / LONG)


@pytest.mark.parametrize("pattern", ["previous", "self", "first"])
def test_a_head_that_cannot_see_the_future(pattern: str) -> None:
    patterns = found(attending(ATTENDED[pattern], causal=True), "decoder")
    assert set(patterns) == {pattern} and patterns[pattern] > 0.8


def test_uniform_attention_is_a_pattern_of_its_own() -> None:
    assert set(found(torch.full((LONG, LONG), 1 / LONG))) == {"everywhere"}
    causal = torch.ones(LONG, LONG).tril()
    assert set(found(causal / causal.sum(-1, keepdim=True), "decoder")) == {"everywhere"}


def test_random_attention_has_no_pattern() -> None:
    assert found((torch.randn(LONG, LONG) * 2).softmax(-1)) == {}


def test_pieces_of_a_word_and_repeated_words_need_some_of_them() -> None:
    pieces = TokenizedText(
        [5, 6, 7, 8, 9, 10], ["▁a", "b", "c", "▁d", "e", "▁x"], [0, 0, 0, 1, 1, 2], [False] * 6, ["abc", "de", "x"]
    )
    weights = torch.full((6, 6), 0.02)
    for row, other in enumerate([1, 2, 0, 4, 3, 5]):
        weights[row, other] = 0.9
    one = AttentionMap("encoder.0.self", "encoder", 0, "source", "source", weights[None])
    assert find_head_patterns([one], {"source": pieces})[0].pattern == "same word"
    patterns = found(attending([-1, 5, -1, -1, -1, 1, -1, -1, -1, -1]))
    assert "repeated" not in patterns  # two positions are too few


def test_induction_looks_where_the_text_went_on_before() -> None:
    ids = [2, 10, 11, 12, 10, 11, 12, 10]
    text = TokenizedText(ids, [f"▁{n}" for n in ids], [None, *range(7)], [False] * 8, [str(n) for n in ids[1:]])
    weights = torch.eye(8) * 0.05 + 0.02
    for row, other in {4: 2, 5: 3, 6: 4, 7: 5}.items():
        weights[row] = 0.1 / 8
        weights[row, other] = 0.9
    weights = weights.tril() / weights.tril().sum(-1, keepdim=True)
    one = AttentionMap("decoder.0.self", "decoder", 0, "source", "source", weights[None])
    assert find_head_patterns([one], {"source": text})[0].pattern == "induction"


def test_a_translators_attention_in_order() -> None:
    target = TokenizedText([*range(5, 13)], list("abcdefgh"), [*range(8)], [False] * 8, list("abcdefgh"))
    source = TokenizedText([*range(20, 36)], list("ijklmnopqrstuvwx"), [*range(16)], [False] * 16, list("ijklmnopqrstuvwx"))
    weights = torch.full((8, 16), 0.1 / 16)
    for row in range(8):
        weights[row, round(row * 15 / 7)] += 0.9
    one = AttentionMap("decoder.0.cross", "cross", 0, "target", "source", weights[None])
    (patterns,) = find_head_patterns([one], {"target": target, "source": source})
    assert (patterns.pattern, patterns.head, patterns.map) == ("in order", 0, "decoder.0.cross") and patterns.score > 0.9
    turned = AttentionMap("decoder.0.cross", "cross", 0, "target", "source", weights.flip(0)[None])
    assert find_head_patterns([turned], {"target": target, "source": source}) == []


def test_every_pattern_is_explained_in_one_line() -> None:
    assert all(text.endswith(".") and len(text) < 130 and "\n" not in text for text in DESCRIPTIONS.values())
