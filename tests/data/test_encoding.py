"""Examples as tokens: nothing is cut that need not be, tags stand at their words, and spans give the answers back."""

from typing import Any

import numpy as np
import pytest
from tests.encoded_examples import encode

from qkv.base.errors import DataError
from qkv.base.rows import IGNORE_INDEX
from qkv.data.encoded import EncodedExamples
from qkv.data.encoding import cut_pair, tokens_of
from qkv.text.examples import Question, TaggedExample, TextExample
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

TEXT = (
    "Nikola Tesla was born on 10 July 1856 in the village of Smiljan. His father, Milutin, was a priest. "
    "In 1884 he left for New York; there he worked for Edison's company. Years later — in 1943 — he died, alone, in room 3327."
)


@pytest.fixture(scope="module", params=["byte-bpe", "wordpiece", "bpe"])
def tokenizer(request: Any) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind=request.param, vocab=350), [*TEXT.split(". "), TEXT])


def text(content: str, pair: str | None = None, label: str | None = None) -> TextExample:
    return TextExample(content, pair, label, "a.tsv", 1)


def ids_of(encoded: EncodedExamples, number: int) -> list[int]:
    return encoded.ids[encoded.starts[number] : encoded.ends[number]].tolist()


def test_texts_and_pairs(tokenizer: Tokenizer) -> None:
    bos, eos = tokenizer.bos, tokenizer.eos
    a, b = tokenizer.encode("Nikola Tesla was born"), tokenizer.encode("in the village")
    examples = [text("Nikola Tesla was born", label="y"), text("Nikola Tesla was born", "in the village")]
    encoded = encode(examples, tokenizer, 64, "classification", ("x", "y"))
    assert ids_of(encoded, 0) == [bos, *a, eos]
    assert ids_of(encoded, 1) == [bos, *a, eos, *b, eos]
    assert encoded.segment.tolist() == [0] * (2 * len(a) + 4) + [1] * (len(b) + 1)
    assert encoded.labels.tolist() == [1, IGNORE_INDEX] and encoded.label_counts.tolist() == [1, 0]


def test_a_single_text_loses_its_end_and_a_pair_its_longer_part(tokenizer: Tokenizer) -> None:
    a, b = tokenizer.encode(TEXT), tokenizer.encode("he died")
    encoded = encode([text(TEXT), text("he died", TEXT), text(TEXT, TEXT)], tokenizer, 20, "regression")
    assert encoded.lengths.tolist() == [20, 20, 20]
    assert ids_of(encoded, 0) == [tokenizer.bos, *a[:18], tokenizer.eos]
    keep_b = min(len(b), 8)
    assert ids_of(encoded, 1) == [tokenizer.bos, *b[:keep_b], tokenizer.eos, *a[: 17 - keep_b], tokenizer.eos]
    assert ids_of(encoded, 2)[1:10] == a[:9] and ids_of(encoded, 2)[11:19] == a[:8]


def test_cutting_a_pair_token_by_token() -> None:
    for a in range(12):
        for b in range(12):
            for room in range(2, 15):
                x, y = a, b
                while x + y > room:
                    x, y = (x - 1, y) if x > y else (x, y - 1)
                assert cut_pair(a, b, room) == (x, y)


def test_numbers(tokenizer: Tokenizer) -> None:
    encoded = encode([text("he died", label="2.5"), text("he died")], tokenizer, 20, "regression")
    assert encoded.labels[0] == 2.5 and np.isnan(encoded.labels[1]) and encoded.label_counts.tolist() == [1, 0]


def test_a_label_that_training_does_not_have(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"a\.tsv, line 1: the label 'z'"):
        encode([text("he died", label="z")], tokenizer, 20, "classification", ("x", "y"))


@pytest.mark.parametrize("length", [8, 13, 64])
def test_tags_stand_at_first_pieces_in_windows_of_whole_words(tokenizer: Tokenizer, length: int) -> None:
    words = [TEXT.split(), ["Milutin"], TEXT.split()[:9]]
    tags = [[f"{position % 5}" for position in range(len(sentence))] for sentence in words]
    examples = [TaggedExample(*both, "a.conll", 1) for both in zip(words, tags, strict=True)]
    encoded = encode(examples, tokenizer, length, "tagging", ("0", "1", "2", "3", "4"))
    assert encoded.lengths.max() <= length and encoded.label_counts.sum() == sum(map(len, words))
    for number, sentence in enumerate(words):
        pieces, found = [], []
        for window in np.flatnonzero(encoded.example == number):
            ids, labels = ids_of(encoded, window), encoded.labels[encoded.starts[window] : encoded.ends[window]]
            assert (ids[0], ids[-1]) == (tokenizer.bos, tokenizer.eos) and labels[0] == labels[-1] == IGNORE_INDEX
            assert labels[1] != IGNORE_INDEX  # it begins with a word
            pieces += ids[1:-1]
            found += labels[1:-1].tolist()
        expected = [word[: length - 2] for word in tokenizer.encode_words(sentence)]
        assert pieces == [piece for word in expected for piece in word]
        wanted = [[position % 5, *[IGNORE_INDEX] * (len(word) - 1)] for position, word in enumerate(expected)]
        assert found == [label for word in wanted for label in word]
    assert encoded.labels[encoded.words].tolist() == [int(tag) for sentence in tags for tag in sentence]


def test_sentences_with_and_without_tags_go_together(tokenizer: Tokenizer) -> None:
    tagged, plain = TaggedExample(["he", "died"], ["O", "X"], "a", 1), TaggedExample(["in", "1943"], [], "a", 4)
    for order, wanted in (((tagged, plain), [0, 1, -1, -1]), ((plain, tagged), [-1, -1, 0, 1])):
        encoded = encode(order, tokenizer, 64, "tagging", ("O", "X"))
        labels = [IGNORE_INDEX if label < 0 else label for label in wanted]
        assert encoded.labels[encoded.words].tolist() == labels
        assert sum(encoded.label_counts) == 2


def test_words_without_tags_are_still_found(tokenizer: Tokenizer) -> None:
    encoded = encode([TaggedExample(TEXT.split(), [], "a.conll", 1)], tokenizer, 10, "tagging")
    assert len(encoded.words) == len(TEXT.split()) and not encoded.label_counts.any()


ANSWERS = ["1884", "in the village of Smiljan", "alone", "New York", "Nikola Tesla", "room 3327"]


def question(answer: str | None, number: int = 0) -> Question:
    answers = [] if answer is None else [(TEXT.index(answer), answer)]
    return Question(str(number), "When was he born?", TEXT, answers, "a.json", 1, 1)


@pytest.mark.parametrize(("length", "stride"), [(32, 128), (32, 5), (400, 128)])
def test_spans_give_answers_back(tokenizer: Tokenizer, length: int, stride: int) -> None:
    questions = [question(answer) for answer in [*ANSWERS, None]]
    encoded = encode(questions, tokenizer, length, "answering", stride=stride)
    asked = tokenizer.encode("When was he born?")[: (length - 3) // 2]
    context, spans = tokenizer.encode_with_offsets([TEXT])[0]
    assert encoded.lengths.max() <= length
    for number, answer in enumerate([*ANSWERS, None]):
        windows = np.flatnonzero(encoded.example == number)
        seen, told = set(), []
        for window in windows:
            start, (first, last) = encoded.starts[window], encoded.labels[window]
            ids = ids_of(encoded, window)
            assert ids[: len(asked) + 2] == [tokenizer.bos, *asked, tokenizer.eos] and ids[-1] == tokenizer.eos
            inside = encoded.spans[start + len(asked) + 2 : encoded.ends[window] - 1]
            position = spans.index(tuple(inside[0]))
            assert ids[len(asked) + 2 : -1] == context[position : position + len(inside)]
            seen |= set(range(position, position + len(inside)))
            if first:
                told.append(TEXT[encoded.spans[start + first, 0] : encoded.spans[start + last, 1]])
                assert encoded.segment[start + first] == encoded.segment[start + last] == 1
            else:
                assert last == 0
        assert seen == set(range(len(context)))  # all of the context, over all windows
        assert set(told) == ({answer} if answer else set())


def test_answers_inside_of_tokens_and_of_none() -> None:
    spans = np.array([(0, 4), (5, 9), (9, 10), (11, 14)])
    assert tokens_of(spans, 5, "four") == (1, 1)
    assert tokens_of(spans, 6, "our.") == (1, 2)
    assert tokens_of(spans, 6, "o") == (1, 1)
    first, last = tokens_of(spans, 4, " ")
    assert first > last
