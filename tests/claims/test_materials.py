"""Tasks and the artificial language: exact, deterministic, and as their descriptions say."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import ConfigError, DataError
from qkv.claims import tasks
from qkv.claims.claim import Cell
from qkv.claims.language import DEFINITE, POSSESSIVES, Language, texts, training_text, translation_examples, translations


def test_tasks_have_exact_answers_and_sets_share_no_source() -> None:
    split = tasks.examples(tasks.reverse, 1, 200, (3, 6), tasks.letters(8), held_out=50)
    assert (len(split.train), len(split.dev), len(split.test)) == (200, 50, 50)
    sources = [source for part in split for source, _ in part]
    assert len(set(sources)) == len(sources)
    assert all(target.split() == source.split()[::-1] for part in split for source, target in part)
    assert split == tasks.examples(tasks.reverse, 1, 200, (3, 6), tasks.letters(8), held_out=50)
    assert split != tasks.examples(tasks.reverse, 2, 200, (3, 6), tasks.letters(8), held_out=50)
    assert tasks.sort(["c", "a"]) == ["a", "c"]
    assert tasks.recall(2)(["a", "b", "c", "d"]) == ["b"]
    with pytest.raises(ConfigError, match="different sources"):
        tasks.examples(tasks.copy, 1, 1000, (1, 1), tasks.letters(4))


def test_which_comes_first_cannot_be_told_from_the_words() -> None:
    split = tasks.examples(tasks.first_of_two, 1, 1000, (4, 8), tasks.letters(6), 10, tasks.a_and_b)
    answers = Counter(target for _, target in split.train)
    assert 0.45 < answers["a"] / 1000 < 0.55
    assert all(source.split().count("a") == source.split().count("b") == 1 for source, _ in split.train)


@pytest.fixture(scope="module")
def language() -> Language:
    return Language(3)


def test_a_text_comes_from_its_seeds(language: Language) -> None:
    assert language.documents(20, 1) == Language(3).documents(20, 1)
    assert language.documents(20, 1) != language.documents(20, 2)
    assert language.documents(20, 1) != Language(4).documents(20, 1)


def test_verbs_agree_with_subjects_and_not_with_what_stands_between(language: Language) -> None:
    sentences = language.sentences(3000, 1)
    last_noun = 0
    for one in sentences:
        assert one.words[one.verb].endswith("nt") == one.plural
        assert one.tags[: one.verb].count("noun") == 1 + one.between
        assert [a for a, b in zip(one.words, one.wrong_number, strict=True) if a != b] == [one.words[one.verb]]
        nearest = [word for word, tag in zip(one.words[: one.verb], one.tags, strict=False) if tag == "noun"][-1]
        last_noun += nearest.endswith("en") == one.plural
    assert last_noun < 0.9 * len(sentences), "the noun before the verb does not decide"


def test_frequencies_fall_as_zipf_says(language: Language) -> None:
    counts = np.array(sorted(Counter(w for one in language.sentences(5000, 1) for w in one.words).values(), reverse=True))
    ranks = np.arange(1, len(counts) + 1)
    middle = slice(20, 500)
    slope = np.polyfit(np.log(ranks[middle]), np.log(counts[middle]), 1)[0]
    assert -1.6 < slope < -0.6


def test_a_document_keeps_to_its_topic_and_its_order_shows(language: Language) -> None:
    documents = language.documents(300, 1)
    assert all(len({sentence.topic for sentence in document}) == 1 for document in documents)
    assert all(document[0].words[0] != DEFINITE for document in documents)
    linked = [(a, b) for document in documents for a, b in pairwise(document) if b.words[0] == DEFINITE]
    assert 0.5 < len(linked) / sum(len(document) - 1 for document in documents) < 0.7
    for a, b in linked:
        subject = next(word for word, tag in zip(b.words, b.tags, strict=True) if tag == "noun")
        assert subject in a.words[a.verb :], "it begins with what the sentence before ended with"


def test_senses_of_a_word_have_topics_and_translations_of_their_own(language: Language) -> None:
    senses: dict[str, set[int]] = {}
    for one in language.sentences(5000, 1):
        for position, topic in one.senses:
            senses.setdefault(one.words[position].removesuffix("en"), set()).add(topic)
    both = [word for word, topics in senses.items() if len(topics) == 2]
    assert len(both) >= 20
    word = both[0]
    numbers = [i for i, noun in enumerate(language.nouns) if noun == word]
    assert len({language.translated[0][i] for i in numbers}) == 2


def test_persons_are_told_by_their_pronoun(language: Language) -> None:
    found = {word: Counter[str]() for pair in language.people for word in pair}
    for one in language.sentences(5000, 1):
        for word in {*one.words} & found.keys():
            found[word].update(w for w in one.words if w in POSSESSIVES)
    for male, female in language.people:
        assert set(found[male]) <= {POSSESSIVES[0]} and set(found[female]) <= {POSSESSIVES[1]}
    assert sum(map(len, found.values())) > len(language.people)


def test_a_translation_has_the_verb_last_and_every_content_word(language: Language) -> None:
    for one in language.sentences(200, 1):
        content = sum(tag in ("noun", "verb", "adjective", "adverb", "preposition", "possessive", "stop") for tag in one.tags)
        assert len(one.translation) == content
        assert one.translation[-2].removesuffix("om") in language.translated[1]
    pairs = translations(language.sentences(500, 1))
    assert len({source for source, _ in pairs}) == len(pairs)
    split = translation_examples(3, 480, held_out=10)
    assert split.dev + split.test + split.train == translations(language.sentences(500, 3)), "the sets share no source"


def test_text_is_the_users_where_it_is_given(tmp_path: Path) -> None:
    cell = Cell("a", 1, {}, "cpu", tmp_path)
    train, dev = training_text(cell, 30, 10)
    assert (len(train), len(dev)) == (30, 10)
    assert texts(Language(1).documents(40, 1)) == dev + train
    own = tmp_path / "own.txt"
    own.write_text("\n".join(f"line {i}" for i in range(400)))
    train, dev = training_text(Cell("a", 1, {}, "cpu", tmp_path, own), 30, 10)
    assert (len(train), len(dev)) == (30, 10)
    assert all(line.startswith("line ") for document in train for line in document)
    own.write_text("too short")
    with pytest.raises(DataError, match="at least 20"):
        training_text(Cell("a", 1, {}, "cpu", tmp_path, own), 30, 10)
