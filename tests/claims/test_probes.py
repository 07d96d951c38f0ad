"""Measures of vectors and encoders that claims share: right on cases with known answers."""

from typing import Any

import numpy as np
import pytest
import torch

from qkv.base.rows import IGNORE_INDEX
from qkv.claims.claim import find_claim
from qkv.claims.language import Language
from qkv.claims.probes import bags_of, nearest_alike, sense_accuracy, verb_examples, word_classes, word_counts
from qkv.data.batches import START, Batch
from qkv.data.inputs import Passages
from qkv.vectors.word_vectors import WordVectors


def test_classes_leave_out_words_of_two_topics_and_persons() -> None:
    language = Language(2, topics=4)
    classes = word_classes(language)
    shared = language.nouns[language.ambiguous[0]]
    assert shared not in classes and shared + "en" not in classes
    assert not {word for pair in language.people for word in pair} & classes.keys()
    assert classes[language.verbs[0] + "nt"] == ("verb", 0)
    assert classes[language.nouns[3 * 30 + 20] + "en"] == ("noun", 3)


def test_nearest_words_are_compared_by_label_without_the_word_itself() -> None:
    rng = np.random.default_rng(1)
    matrix = np.repeat(np.eye(2, 8), 12, 0) + 0.01 * rng.standard_normal((24, 8))
    words = [f"w{i}" for i in range(24)]
    vectors = WordVectors(words, matrix, counts=np.arange(24))
    labels = {word: number // 12 for number, word in enumerate(words)}
    assert nearest_alike(vectors, words, labels) == 1.0
    assert nearest_alike(vectors, words, {word: number % 2 for number, word in enumerate(words)}) == pytest.approx(0.5, abs=0.1)
    assert word_counts(vectors)["w23"] == 23


def test_senses_are_told_by_vectors_that_differ_and_guessed_from_one_vector() -> None:
    words, senses = ["bank"] * 40, [0, 1] * 20
    assert sense_accuracy([np.full(3, sense, float) for sense in senses], words, senses) == 1.0
    assert sense_accuracy([np.ones(3)] * 40, words, senses) == 0.5


def test_every_other_sentence_has_the_verb_in_the_wrong_number() -> None:
    sentences = Language(1).sentences(10, 1)
    examples = verb_examples(sentences)
    assert [label for _, label in examples] == ["right", "wrong"] * 5
    assert [text == one.text for (text, _), one in zip(examples, sentences, strict=True)] == [True, False] * 5


def test_the_probe_of_the_context_claim_tells_senses_only_from_vectors_that_differ() -> None:
    probed: Any = find_claim("context").claim.measure.__globals__["probed"]
    rng = np.random.default_rng(1)
    words = rng.integers(0, 6, 2000)
    senses = 2 * (words % 2) + rng.integers(0, 2, 2000)  # of topics 0 and 1, or 2 and 3
    alike = rng.normal(size=(6, 16))[words]
    assert probed(alike, words, senses) == 0.5, "one vector for both senses"
    assert probed(alike + 0.3 * rng.normal(size=(4, 16))[senses], words, senses) > 0.95


def test_bags_count_the_tokens_of_both_passages_of_each_pair() -> None:
    ids = torch.tensor([[1, 5, 5, 2, 6, 2, 1, 7, 2, 7, 2, 0]])
    text = torch.tensor([[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0]])
    segment = torch.tensor([[0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0]])
    labels = torch.tensor([[0, 1, IGNORE_INDEX]])
    passages = Passages(ids, text, text, segment, text, text, torch.tensor([[0, 6, 0]]), labels)
    bags, found = bags_of(Batch((passages,), 2, 11, 12, 11, START), 8)
    assert found.tolist() == [0, 1]
    assert bags.tolist() == [
        [[0, 1, 1, 0, 0, 2, 0, 0], [0, 0, 1, 0, 0, 0, 1, 0]],
        [[0, 1, 1, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 1]],
    ]
