"""Batches of labelled texts: each once an epoch, whole, in rows of one shape; from anywhere; and back to the examples."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX, tensors
from qkv.data.batches import START, Batch, Position
from qkv.data.encoded import EncodedExamples, EncodedLabelledTexts, EncodedQuestions, EncodedTaggedTexts
from qkv.data.labelled import BatchShape, LabelledBatches, by_text, in_order
from qkv.objectives.answering import Answer, extract_answers
from qkv.objectives.tagging import by_word
from qkv.text.examples import Question

KINDS = ("classification", "regression", "tagging", "answering")
WIDTH, MOST, PAD = 24, 4, 0


def made(kind: str, texts: int = 40, seed: int = 0) -> Any:
    """Texts with ids all their own, so that each token tells which it is; every third sentence or question has two."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 15, texts)
    ends, total = np.cumsum(lengths), int(lengths.sum())
    example = np.cumsum(np.arange(texts) % 4 != 3) - 1 if kind in ("tagging", "answering") else np.arange(texts)
    first = rng.integers(1, 3, texts)
    tags = np.where(rng.random(total) < 0.5, rng.integers(0, 5, total), IGNORE_INDEX)
    tags[ends - 2] = 1  # a word in each
    labels = {
        "classification": rng.integers(0, 3, texts),
        "regression": rng.normal(size=texts).astype(np.float32),
        "tagging": tags,
        "answering": np.stack([first, first + 1], 1),
    }[kind]
    ids, words = np.arange(1, total + 1), np.flatnonzero(tags != IGNORE_INDEX)
    fields = (ids, ids % 2, ends, example, labels)
    if kind == "tagging":
        return EncodedTaggedTexts(*fields, words=words)
    return EncodedQuestions(*fields, spans=np.zeros((total, 2))) if kind == "answering" else EncodedLabelledTexts(*fields)


def batches(examples: EncodedExamples, rows: int = 3, seed: int = 1) -> LabelledBatches:
    return LabelledBatches(examples, seed, BatchShape(rows, WIDTH, MOST, PAD))


def epoch(source: LabelledBatches, number: int) -> list[Batch]:
    return list(itertools.islice(source.starting(Position(number)), source.batches_in_epoch))


def texts_in(batch: Batch, examples: EncodedExamples) -> list[int]:
    """The numbers of the texts in a batch, each checked to be there whole, with what is said of it."""
    (labelled,) = batch.inputs
    found = []
    for row in range(batch.rows):
        before = 0
        for slot in range(int(labelled.text[row].max())):
            (positions,) = torch.where(labelled.text[row] == slot + 1)
            first = int(labelled.first[row, slot])
            assert first == positions[0] == before
            number = int(np.searchsorted(examples.ends, int(labelled.ids[row, first]) - 1, side="right"))
            part = slice(examples.starts[number], examples.ends[number])
            assert labelled.ids[row, positions].tolist() == examples.ids[part].tolist()
            assert labelled.segment[row, positions].tolist() == examples.segment[part].tolist()
            assert labelled.position[row, positions].tolist() == list(range(len(positions)))
            if isinstance(examples, EncodedTaggedTexts):
                assert labelled.labels[row, positions].tolist() == examples.labels[part].tolist()
            elif isinstance(examples, EncodedQuestions):
                assert (labelled.labels[row, slot] - first).tolist() == examples.labels[number].tolist()
            else:
                assert labelled.labels[row, slot] == examples.labels[number]
            before += len(positions)
            found.append(number)
        assert (labelled.text[row, before:] == 0).all() and (labelled.ids[row, before:] == PAD).all()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_text_is_once_in_an_epoch(kind: str) -> None:
    examples = made(kind)
    source = batches(examples)
    seen = []
    for number in range(3):
        shapes = set()
        order = []
        for batch in epoch(source, number):
            texts = texts_in(batch, examples)
            assert texts and batch.labels == examples.label_counts[texts].sum() > 0
            assert batch.tokens == batch.filled == examples.lengths[texts].sum() and batch.positions == 3 * WIDTH
            shapes.add(tuple(tensor.shape for tensor in tensors(batch.inputs[0])))
            order += texts
        assert sorted(order) == list(range(len(examples))) and len(shapes) == 1
        seen.append(order)
    assert seen[0] != seen[1] != seen[2]
    assert seen[0] != [t for batch in epoch(batches(examples, seed=2), 0) for t in texts_in(batch, examples)]


def test_what_is_empty_says_nothing() -> None:
    for kind in KINDS:
        (batch,) = epoch(batches(made(kind, texts=2), rows=5), 0)
        (labelled,) = batch.inputs
        assert labelled.ids.shape == (5, WIDTH) and labelled.first.shape == (5, MOST)
        empty = labelled.labels.isnan() if kind == "regression" else labelled.labels == IGNORE_INDEX
        texts = labelled.labels.flatten(1)[labelled.text.sum(1) == 0]
        assert (texts.isnan() if kind == "regression" else texts == IGNORE_INDEX).all() and empty.any()


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_it_goes_on_from_anywhere(rows: int) -> None:
    source = batches(made("classification"), rows)
    whole = list(itertools.islice(source.starting(START), 3 * source.batches_in_epoch))
    for number in range(len(whole) - 1):
        again = next(batches(made("classification"), rows).starting(whole[number].after))
        assert again.after == whole[number + 1].after
        for old, new in zip(tensors(whole[number + 1].inputs[0]), tensors(again.inputs[0]), strict=True):
            assert torch.equal(old, new)
    assert {batch.after.epoch for batch in whole} == {0, 1, 2}


def test_batches_are_of_even_size() -> None:
    source = batches(made("classification", texts=400), rows=8)
    rows = [int((batch.inputs[0].text.sum(1) > 0).sum()) for batch in epoch(source, 0)]
    assert max(rows) - min(rows) <= 1 and max(rows) <= 8


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_text_a_row_those_of_like_length_make_a_batch(kind: str) -> None:
    examples = longer(made(kind, texts=90))
    source = LabelledBatches(examples, 1, BatchShape(2, 512, 1, PAD))
    seen, orders = [], []
    for number in range(2):
        shapes, order = set(), []
        for batch in epoch(source, number):
            texts = texts_in(batch, examples)
            wide = batch.inputs[0].ids.size(1)
            assert batch.inputs[0].text.max() == 1 and batch.inputs[0].first.shape == (batch.rows, 1)
            assert batch.positions == batch.rows * wide <= 1024 and batch.rows == 1024 // wide
            shapes.add(wide)
            order += texts
            if wide > 128:  # narrower rows are a multiple of 32 wide
                assert examples.lengths[texts].min() > wide * 0.79
        assert sorted(order) == list(range(len(examples))) and len(shapes) > 4
        seen.append(order)
        orders.append(shapes)
    assert seen[0] != seen[1] and orders[0] == orders[1]
    again = next(source.starting(Position(1, 0, 3)))
    assert torch.equal(again.inputs[0].ids, epoch(source, 1)[3].inputs[0].ids)


def test_in_order_with_one_text_a_row() -> None:
    examples = longer(made("classification", texts=90))
    said, positions = [], 0
    for batch, numbers in in_order(examples, BatchShape(2, 512, 1, PAD)):
        assert numbers.shape == (batch.rows, 1) and numbers[numbers >= 0].tolist() == texts_in(batch, examples)
        said.append((numbers, batch.inputs[0].labels[..., None].numpy()))
        positions += batch.positions
    assert by_text(examples, said)[:, 0].tolist() == examples.labels.tolist()
    assert positions < 2 * examples.lengths.sum()


def longer(examples: EncodedExamples) -> EncodedExamples:
    """The same with texts up to some hundred tokens long."""
    lengths = examples.lengths**2 * 2
    ends, total = np.cumsum(lengths), int(lengths.sum())
    labels = examples.labels
    if isinstance(examples, EncodedTaggedTexts):
        labels = np.ones(total, dtype=np.int64)
    return replace(examples, ids=np.arange(1, total + 1), segment=np.arange(total) % 2, ends=ends, labels=labels)


def test_a_text_wider_than_the_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not fit into rows of 10"):
        LabelledBatches(made("tagging"), 1, BatchShape(2, 10, 2, 0))


SHAPE = BatchShape(rows=3, width=WIDTH, texts=MOST, pad=PAD)


@pytest.mark.parametrize("kind", KINDS)
def test_in_order_has_every_text_once(kind: str) -> None:
    examples = made(kind)
    seen = []
    for batch, numbers in in_order(examples, SHAPE):
        texts = texts_in(batch, examples)
        assert numbers.shape == (3, MOST) and numbers[numbers >= 0].tolist() == texts
        seen += texts
    assert sorted(seen) == list(range(len(examples)))


def test_back_to_the_texts() -> None:
    examples = made("classification")
    said = ((numbers, batch.inputs[0].labels[..., None].numpy() * [1, 10]) for batch, numbers in in_order(examples, SHAPE))
    assert by_text(examples, said).tolist() == [[label, 10 * label] for label in examples.labels]


def test_back_to_the_words() -> None:
    examples = made("tagging")
    said = ((numbers, batch.inputs[0].labels.numpy()) for batch, numbers in in_order(examples, SHAPE))
    found = by_word(examples, said)
    assert len(found) == examples.example[-1] + 1
    for number, tags in enumerate(found):
        parts = [examples.labels[examples.starts[n] : examples.ends[n]] for n in np.flatnonzero(examples.example == number)]
        told = np.concatenate(parts)
        assert tags.tolist() == told[told != IGNORE_INDEX].tolist()


def test_the_best_window_answers() -> None:
    examples = EncodedQuestions(
        ids=np.zeros(12, dtype=np.int64),
        segment=np.zeros(12, dtype=np.int64),
        ends=np.array([4, 8, 12]),
        example=np.array([0, 0, 1]),
        labels=np.zeros((3, 2), dtype=np.int64),
        spans=np.array([(0, 0), (0, 3), (4, 7), (0, 0)] * 3),
    )
    questions = [Question(str(n), "?", f"one two {n}", [], "a", 1, 1) for n in range(2)]
    found = np.array([(1, 1, 0.5), (1, 2, 2.0), (2, 2, -1.0)])
    assert extract_answers(examples, questions, found, all_answerable=False) == [Answer("one two", 2.0), Answer("", -1.0)]
    assert extract_answers(examples, questions, found, all_answerable=True) == [Answer("one two", 2.0), Answer("two", -1.0)]


def test_an_answer_is_of_whole_words() -> None:
    examples = EncodedQuestions(
        ids=np.zeros(5, dtype=np.int64),
        segment=np.zeros(5, dtype=np.int64),
        ends=np.array([5]),
        example=np.array([0]),
        labels=np.zeros((1, 2), dtype=np.int64),
        spans=np.array([(0, 0), (0, 4), (4, 7), (8, 12), (12, 13)]),
    )
    question = Question("1", "?", "Italian trade", [], "a", 1, 1)
    assert extract_answers(examples, [question], np.array([(2, 3, 1.0)]), all_answerable=True) == [Answer("Italian trade", 1.0)]
