"""A small artificial language, and its translation into another: text for experiments that needs no download.

Words are made of syllables, and frequencies follow Zipf's law within a topic. A sentence is

    determiner [adjective] subject {preposition determiner noun} verb determiner [adjective] object [his or her noun] [adverb] .

The verb agrees with its subject in number, across up to three nouns between them. Some words are ambiguous: the same form is a
noun of two topics, with two translations. Persons come in pairs of man and woman, who do the same things and have another
pronoun. A document keeps to its topic; what a sentence ends with is often what the next one begins with, then with the
definite determiner: so the order of sentences shows, and topic does not tell it. The other language puts the verb last and
adjectives after nouns, and marks case, number and definiteness by endings. Everything comes from two seeds: the language's and
the text's.
"""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from qkv.base.errors import DataError
from qkv.base.seeds import rng_at
from qkv.claims.claim import Cell
from qkv.claims.tasks import Split

PLURAL, VERB_ENDINGS, ADJECTIVE = "en", ("t", "nt"), "ik"
INDEFINITE, DEFINITE, STOP = "ka", "lo", "."
POSSESSIVES = ("zo", "za")  # of man and woman
ON_TOPIC = 0.85  # of content words; the others are of any topic
SHARED = 6  # ambiguous nouns of each pair of topics
VERBS_OF_ROLE = 3  # that its persons do more than others
MAX_BETWEEN = 3  # nouns between subject and verb
# A language so small that an encoder of two layers learns agreement in some hundred updates, if it reads sentence by sentence.
SIMPLE = {"topics": 2, "nouns": 6, "verbs": 4, "adjectives": 2, "roles": 0}
SIMPLE_ON_GPU = {"topics": 4, "nouns": 12, "verbs": 6, "adjectives": 4, "roles": 0}
# Languages that small translators learn well, but not perfectly, in some hundred updates; LARGE and VAST are for GPUs.
SMALL = {"topics": 4, "nouns": 20, "verbs": 8, "adjectives": 6}
LARGE = {"topics": 10, "nouns": 40, "verbs": 15, "adjectives": 10}
VAST = {"topics": 10, "nouns": 200, "verbs": 60, "adjectives": 40}


class Sentence(NamedTuple):
    """A sentence with its translation and what is known about it."""

    words: list[str]
    tags: list[str]  # the class of each word
    translation: list[str]
    topic: int
    verb: int  # its position
    plural: bool  # of the subject
    between: int  # nouns between subject and verb
    senses: list[tuple[int, int]]  # position of each ambiguous noun, and its topic

    @property
    def text(self) -> str:
        """The words in one line."""
        return " ".join(self.words)

    @property
    def wrong_number(self) -> list[str]:
        """The words with the verb in the other number."""
        stem = self.words[self.verb].removesuffix(VERB_ENDINGS[self.plural])
        return [*self.words[: self.verb], stem + VERB_ENDINGS[not self.plural], *self.words[self.verb + 1 :]]


Document = list[Sentence]


class Language:
    """The words of a language and of its translation, drawn from a seed."""

    def __init__(
        self,
        seed: int = 0,
        topics: int = 10,
        nouns: int = 30,
        verbs: int = 12,
        adjectives: int = 10,
        roles: int = 2,
        pronouns: float = 0.6,
    ):
        """Words are numbers for each topic; `roles` are pairs of persons, such as king and queen, of whose sentences a share has
        `pronouns`.
        """
        rng = rng_at(seed, "language")
        self.topics, self.sizes = topics, {"noun": nouns, "verb": verbs, "adjective": adjectives}
        self.pronouns = pronouns
        self.roles = 1 + roles * topics  # the first, man and woman, belongs to no topic
        persons = 2 * self.roles
        stems = iter(_stems(rng, 2 * (topics * (nouns + verbs + adjectives) + persons + 40)))
        things = [next(stems) for _ in range(topics * nouns)]
        self.ambiguous = [2 + i for i in range(SHARED)] if nouns >= 2 + SHARED and topics > 1 else []
        for first, rank in product(range(0, topics - 1, 2), self.ambiguous):
            things[(first + 1) * nouns + rank] = things[first * nouns + rank]
        self.nouns = things + [next(stems) for _ in range(persons)]  # persons last, man before woman
        self.verbs = [next(stems) for _ in range(topics * verbs)]
        self.adjectives = [things[i // adjectives * nouns + i % adjectives] + ADJECTIVE for i in range(topics * adjectives)]
        self.adverbs, self.prepositions = ([next(stems) for _ in range(count)] for count in (12, 5))
        sizes = [len(self.nouns), len(self.verbs), len(self.adjectives), len(self.adverbs), len(self.prepositions)]
        self.translated = [[next(stems) for _ in range(size)] for size in sizes]

    @property
    def people(self) -> list[tuple[str, str]]:
        """All pairs such as (king, queen); the first is (man, woman)."""
        first = len(self.nouns) - 2 * self.roles
        return [(self.nouns[first + 2 * role], self.nouns[first + 2 * role + 1]) for role in range(self.roles)]

    @property
    def plurals(self) -> list[tuple[str, str]]:
        """All things with their plurals."""
        return [(noun, noun + PLURAL) for noun in dict.fromkeys(self.nouns[: self.topics * self.sizes["noun"]])]

    def documents(self, count: int, seed: int, sentences: tuple[int, int] = (4, 9)) -> list[Document]:
        """Write documents of some sentences each (both numbers included)."""
        rng = rng_at(seed, "documents")
        lengths = rng.integers(sentences[0], sentences[1] + 1, count)
        drawn = self._draw(rng, np.repeat(rng.integers(0, self.topics, count), lengths), np.cumsum(lengths) - lengths)
        written = [self._write(*row) for row in zip(*(column.tolist() for column in drawn), strict=True)]
        ends = np.cumsum(lengths).tolist()
        return [written[start:end] for start, end in pairwise([0, *ends])]

    def sentences(self, count: int, seed: int) -> list[Sentence]:
        """Write sentences, each by itself, so that all subjects are nouns of their own."""
        return [document[0] for document in self.documents(count, seed, (1, 1))]

    def _rank(self, rng: np.random.Generator, topic: np.ndarray, kind: str) -> np.ndarray:
        """Draw a word of a class for each topic, by Zipf's law within it."""
        size = self.sizes[kind]
        weights = np.cumsum(1 / np.arange(2, size + 2))
        other = rng.random(len(topic)) > ON_TOPIC
        topic = np.where(other, rng.integers(0, self.topics, len(topic)), topic)
        return topic * size + np.searchsorted(weights, rng.random(len(topic)) * weights[-1])

    def _draw(self, rng: np.random.Generator, topic: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
        """Draw everything about all sentences at once: the arguments of `_write`."""
        many, things = len(topic), self.topics * self.sizes["noun"]
        subject, goal, owned = (self._rank(rng, topic, "noun") for _ in range(3))
        plural, goal_plural = rng.random(many) < 0.4, rng.random(many) < 0.4
        role = 1 + topic + self.topics * rng.integers(0, max(1, (self.roles - 1) // self.topics), many)
        role = np.where((rng.random(many) < 0.3) | (self.roles == 1), 0, role)
        person = rng.random(many) < 0.35
        subject = np.where(person, things + 2 * role + rng.integers(0, 2, many), subject)
        known = rng.random(many) < 0.6  # the subject is what the last sentence ended with
        known[starts] = False
        subject, plural = np.where(known, np.roll(goal, 1), subject), np.where(known, np.roll(goal_plural, 1), plural)
        person &= ~known
        plural &= ~person
        between = rng.choice(MAX_BETWEEN + 1, many, p=[0.4, 0.3, 0.2, 0.1])
        nouns = np.stack([self._rank(rng, topic, "noun") for _ in range(MAX_BETWEEN)], 1)
        prepositions = rng.integers(0, len(self.prepositions), (many, MAX_BETWEEN))
        between_plural = rng.random((many, MAX_BETWEEN)) < 0.4
        adjectives = np.stack([self._rank(rng, topic, "adjective") for _ in range(2)], 1)
        adjectives = np.where(rng.random((many, 2)) < 0.3, adjectives, -1)
        adverb = np.where(rng.random(many) < 0.3, rng.integers(0, len(self.adverbs), many), -1)
        owned = np.where(person & (rng.random(many) < self.pronouns), owned, -1)
        verb = self._rank(rng, topic, "verb")
        usual = rng.integers(0, VERBS_OF_ROLE, many) + VERBS_OF_ROLE * ((role - 1) // self.topics)  # what persons of a role do
        usual = topic * self.sizes["verb"] + usual % self.sizes["verb"]
        verb = np.where(person & (role > 0) & (rng.random(many) < 0.7), usual, verb)
        return [
            topic, subject, plural, known, between, nouns, prepositions, between_plural, adjectives, verb, goal, goal_plural,
            owned, adverb,
        ]  # fmt: skip

    def _write(
        self, topic: int, subject: int, plural: bool, known: bool, between: int, nouns: list[int], prepositions: list[int],
        between_plural: list[bool], adjectives: list[int], verb: int, goal: int, goal_plural: bool, owned: int, adverb: int,
    ) -> Sentence:  # fmt: skip
        """Write one sentence and its translation."""
        words, tags, other, senses = list[str](), list[str](), list[str](), list[tuple[int, int]]()
        things, size = self.topics * self.sizes["noun"], self.sizes["noun"]
        noun_forms, verb_forms, adjective_forms, adverb_forms, preposition_forms = self.translated

        def phrase(noun: int, many: bool, definite: bool, case: str, adjective: int = -1) -> None:
            words.append(DEFINITE if definite else INDEFINITE)
            tags.append("determiner")
            if adjective >= 0:
                words.append(self.adjectives[adjective])
                tags.append("adjective")
            if noun < things and noun % size in self.ambiguous and (self.topics % 2 == 0 or noun < things - size):
                senses.append((len(words), noun // size))
            words.append(self.nouns[noun] + PLURAL * many)
            tags.append("noun")
            other.append(noun_forms[noun] + case + "m" * many + "ta" * definite)
            if adjective >= 0:
                other.append(adjective_forms[adjective])

        phrase(subject, plural, known, "a", adjectives[0])
        for i in range(between):
            words.append(self.prepositions[prepositions[i]])
            tags.append("preposition")
            phrase(nouns[i], between_plural[i], False, "i")
            other.append(preposition_forms[prepositions[i]])
        at = len(words)
        words.append(self.verbs[verb] + VERB_ENDINGS[plural])
        tags.append("verb")
        phrase(goal, goal_plural, False, "u", adjectives[1])
        if owned >= 0:
            words += [POSSESSIVES[subject % 2 ^ things % 2], self.nouns[owned]]
            tags += ["possessive", "noun"]
            other += [noun_forms[owned] + "i", POSSESSIVES[subject % 2 ^ things % 2] + "s"]
        if adverb >= 0:
            words.append(self.adverbs[adverb])
            tags.append("adverb")
            other.append(adverb_forms[adverb])
        other += [verb_forms[verb] + "om" * plural, STOP]
        words.append(STOP)
        tags.append("stop")
        return Sentence(words, tags, other, topic, at, plural, between, senses)


def _stems(rng: np.random.Generator, count: int) -> list[str]:
    """Return different stems of two or three syllables."""
    syllables = [a + b for a, b in product("bdfgklmnprstvz", "aeiou")]
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(syllables[i] for i in rng.integers(0, len(syllables), rng.integers(2, 4)))] = None
    return list(found)


def translations(sentences: Sequence[Sentence]) -> list[tuple[str, str]]:
    """Return sentences with their translations as pairs of texts; the same source once."""
    return list({one.text: (one.text, " ".join(one.translation)) for one in sentences}.values())


def translation_examples(seed: int, train: int, held_out: int = 300, **shape: Any) -> Split:
    """Return sentences of a language with their translations; sources that are drawn again are left out of `train`."""
    pairs = translations(Language(seed, **shape).sentences(train + 2 * held_out, seed))
    return Split(pairs[2 * held_out :], pairs[:held_out], pairs[held_out : 2 * held_out])


def texts(documents: Sequence[Document]) -> list[list[str]]:
    """Return documents as lists of lines."""
    return [[sentence.text for sentence in document] for document in documents]


def sentence_text(language: Language, count: int, seed: int, dev: int = 300) -> tuple[list[list[str]], list[list[str]]]:
    """Return documents of one sentence each to train on and to measure on, as lines."""
    found = [[sentence.text] for sentence in language.sentences(count + dev, seed)]
    return found[dev:], found[:dev]


def training_text(cell: Cell, documents: int, dev: int = 100, **shape: Any) -> tuple[list[list[str]], list[list[str]]]:
    """Return documents to train on and to measure on, as lines: of the artificial language, or of --text."""
    if cell.text is None:
        found = texts(Language(cell.seed, **shape).documents(documents + dev, cell.seed))
        return found[dev:], found[:dev]
    parts = cell.text.read_text(encoding="utf-8", errors="replace").split("\n\n")
    found = [lines for part in parts if (lines := [line.strip() for line in part.splitlines() if line.strip()])]
    if len(found) < 2 * dev:  # running text: some lines make a document
        lines = [line for part in found for line in part]
        found = [lines[i : i + 8] for i in range(0, len(lines), 8)]
    if len(found) < 2 * dev:
        raise DataError(f"{cell.text}: {len(found):,} documents of 8 lines; at least {2 * dev:,} are needed")
    chosen = [found[i] for i in rng_at(cell.seed, "text").permutation(len(found))[: documents + dev]]
    return chosen[dev:], chosen[:dev]
