"""Heads of words as heads of tokens: every piece points where its word or its word's governor begins, in its own text."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
from tests.encoded_examples import encode

from qkv.base.errors import DataError
from qkv.base.rows import map_tensors
from qkv.data.batches import START, Batches, in_order
from qkv.data.encoded import EncodedExamples
from qkv.data.labelled import BatchShape, LabelledBatches
from qkv.data.tokens import TokenPairs, token_texts
from qkv.data.trees import TokensWithHeads, encode_sources, governors, pieces_within
from qkv.text.examples import TaggedExample, TextExample
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.text.treebank import TextWithHeads

WORDS = ["extraordinary", "cat", "undeniably", "saw", "some", "dog", "unquestionably", "there"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="wordpiece", vocab=45), [" ".join(WORDS)])


def random_heads(rng: random.Random, words: int) -> list[int]:
    """Each word hangs on one before it in some order; the first of them is the root."""
    order = rng.sample(range(1, words + 1), words)
    heads = [0] * words
    for position, word in enumerate(order[1:], 1):
        heads[word - 1] = rng.choice(order[:position])
    return heads


def by_hand(words: list[list[int]], heads: list[int], first: int = 1) -> list[int]:
    """The coded heads of a text of whole words, the first of which begins at `first`."""
    begins = [first + sum(map(len, words[:word])) for word in range(len(words))]
    made = []
    for word, pieces in enumerate(words):
        made += [2 * begins[heads[word] - 1 if heads[word] else word]] + [2 * begins[word] + 1] * (len(pieces) - 1)
    return made


def heads_of(encoded: EncodedExamples, number: int) -> list[int]:
    assert encoded.head is not None
    return encoded.head[encoded.starts[number] : encoded.ends[number]].tolist()


def test_governors_are_numbered_over_all_texts() -> None:
    assert governors([[2, 0, 1], [0], [0, 1]]).tolist() == [1, 1, 0, 3, 4, 4]


def test_words_are_cut_where_there_is_no_more_room() -> None:
    assert pieces_within([2, 3, 1], 4).tolist() == [2, 2, 0]


def some_examples(kind: str) -> list[Any]:
    rng = random.Random(4)
    made: list[Any] = []
    for _ in range(6):
        words = rng.choices(WORDS, k=rng.randint(1, 7))
        heads = random_heads(rng, len(words))
        tagged = TaggedExample(words, ["a"] * len(words), "", 1, None, heads)
        made.append(tagged if kind == "tagging" else TextExample(" ".join(words), None, "a", "", 1, [heads]))
    return made


@pytest.mark.parametrize("kind", ["tagging", "classification"])
def test_every_piece_points_into_its_own_text(tokenizer: Tokenizer, kind: Any) -> None:
    examples = some_examples(kind)
    encoded = encode(examples, tokenizer, 200, kind, ("a", "b"))
    assert len(encoded) == 6
    for number, example in enumerate(examples):
        words, heads = (example.words, example.heads) if kind == "tagging" else (example.text.split(), example.heads[0])
        pieces = tokenizer.encode_words(words)
        last = 1 + sum(map(len, pieces))
        ids = encoded.ids[encoded.starts[number] : encoded.ends[number]].tolist()
        assert ids == [tokenizer.bos, *[piece for word in pieces for piece in word], tokenizer.eos]
        assert heads_of(encoded, number) == [0, *by_hand(pieces, heads), 2 * last]
    assert max(len(word) for word in tokenizer.encode_words(WORDS)) > 2


def test_a_word_whose_governor_is_in_another_window_is_a_root(tokenizer: Tokenizer) -> None:
    words = ["cat", "saw", "dog", "there"]
    pieces = tokenizer.encode_words(words)
    length = 2 + max(sum(map(len, pieces[:2])), sum(map(len, pieces[2:])))
    example = TaggedExample(words, [], "", 1, None, [2, 0, 2, 3])
    encoded = encode([example], tokenizer, max(8, length), "tagging")
    assert len(encoded) == 2 and heads_of(encoded, 0)[1:-1] == by_hand(pieces[:2], [2, 0])
    assert heads_of(encoded, 1)[1:-1] == by_hand(pieces[2:], [0, 1])


def test_a_pair_that_is_cut(tokenizer: Tokenizer) -> None:
    a, b = ["dog", "saw", "cat"], ["there", "extraordinary"]
    first, second = tokenizer.encode_words(a), tokenizer.encode_words(b)
    example = TextExample(" ".join(a), " ".join(b), None, "", 1, [[3, 3, 0], [2, 0]])
    whole = encode([example], tokenizer, 100, "regression")
    many = sum(map(len, first))
    expected = [0, *by_hand(first, [3, 3, 0]), 2 * (many + 1), *by_hand(second, [2, 0], first=many + 2)]
    assert heads_of(whole, 0) == [*expected, 2 * (len(whole.ids) - 1)]
    room = 8
    assert encode([example], tokenizer, room, "regression").lengths.tolist() == [room]
    cut = heads_of(encode([example], tokenizer, room, "regression"), 0)
    assert all(value // 2 < room for value in cut) and cut[0] == 0
    assert cut[1] in (2, expected[1])  # its governor, where that is still there


def test_heads_are_laid_out_with_their_tokens(tokenizer: Tokenizer) -> None:
    encoded = encode(some_examples("tagging"), tokenizer, 200, "tagging", ("a", "b"))
    source = LabelledBatches(encoded, 1, BatchShape(2, 128, 8, tokenizer.pad))
    seen = 0
    batches = source.starting(START)
    for _ in range(source.batches_in_epoch):
        (labelled,) = next(batches).inputs
        rows = map_tensors(labelled.rows, lambda values: values.clone())
        for row in range(2):
            for text in range(1, int(rows.text[row].max()) + 1):
                here = rows.text[row] == text
                ids, head = rows.ids[row, here].tolist(), rows.head[row, here].tolist()
                assert head in [
                    heads_of(encoded, n) for n in range(6) if ids == encoded.ids[encoded.starts[n] : encoded.ends[n]].tolist()
                ]
                seen += 1
    assert seen == len(encoded)


def test_examples_without_trees_have_no_heads(tokenizer: Tokenizer) -> None:
    plain = [example._replace(heads=None) for example in some_examples("tagging")]
    encoded = encode(plain, tokenizer, 200, "tagging", ("a", "b"))
    assert encoded.head is None
    source = LabelledBatches(encoded, 1, BatchShape(2, 128, 8, tokenizer.pad))
    (labelled,) = next(source.starting(START)).inputs
    assert labelled.rows.head is None and np.array_equal(map_tensors(labelled, lambda t: t).ids, labelled.ids)


# Pairs


def test_heads_in_some_examples_only_are_refused(tokenizer: Tokenizer) -> None:
    bare, with_heads = TaggedExample(["a", "b"], [], "a", 1), TaggedExample(["a", "b"], [], "a", 1, None, [2, 0])
    for number, order in enumerate([(bare, with_heads), (with_heads, bare)], 1):
        with pytest.raises(DataError, match=f"example {number} has no heads, and others have"):
            encode(order, tokenizer, 64, "tagging", ("O",))


def test_sources_with_trees_are_encoded_word_by_word(tokenizer: Tokenizer) -> None:
    words, heads = ["extraordinary", "cat", "saw"], [2, 3, 0]
    pieces = tokenizer.encode_words(words)
    parsed, empty, plain = encode_sources(tokenizer, [TextWithHeads(" ".join(words), heads), TextWithHeads("", []), "cat"])
    assert isinstance(parsed, TokensWithHeads) and parsed == [piece for word in pieces for piece in word]
    assert parsed.head == by_hand(pieces, heads, first=0)
    assert isinstance(empty, TokensWithHeads) and empty == empty.head == []
    assert plain == tokenizer.encode("cat") and not isinstance(plain, TokensWithHeads)


@pytest.mark.parametrize("one_text_per_row", [False, True])
def test_heads_of_pairs_go_with_their_tokens(one_text_per_row: bool) -> None:
    rng = np.random.default_rng(1)
    sources = [rng.integers(4, 99, rng.integers(1, 9)).tolist() for _ in range(30)]
    heads = {tuple(source): [2 * int(rng.integers(0, len(source))) for _ in source] for source in sources}
    column = token_texts(heads[tuple(source)] for source in sources)
    pairs = TokenPairs(token_texts(sources), token_texts(sources), column)
    batches = Batches([pairs], [1.0], seed=1, tokens=60, widths=(20, 20), eos=3, one_text_per_row=one_text_per_row)
    trained = itertools.takewhile(lambda batch: batch.after.epoch == 0, batches.starting(START))
    for made in (trained, in_order(pairs, tokens=60, widths=(20, 20), eos=3, one_text_per_row=one_text_per_row)):
        seen = 0
        for batch in made:
            source, target = batch.inputs
            assert target.head is None
            for row in range(batch.rows):
                for text in range(1, int(source.text[row].max()) + 1):
                    here = source.text[row] == text
                    assert source.head[row, here].tolist() == heads[tuple(source.ids[row, here].tolist())]
                    seen += 1
        assert seen == 30
