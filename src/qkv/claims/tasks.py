"""Tasks with exact answers, as pairs of texts of words between spaces: nothing to download, any size, and chance is known.

A task is a function from the words of a source to those of its target. `examples` draws sources; the three sets of a split share
no source.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from qkv.base.errors import ConfigError
from qkv.base.seeds import rng_at

Words = Sequence[str]
Task = Callable[[Words], Words]
TextPair = tuple[str, str]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Split(NamedTuple):
    """Pairs to train on, to compare settings on, and to measure on."""

    train: list[TextPair]
    dev: list[TextPair]
    test: list[TextPair]


def copy(words: Words) -> Words:
    """The same words."""
    return words


def reverse(words: Words) -> Words:
    """The words from the last to the first: each depends on one word, further away the longer the text is."""
    return words[::-1]


def sort(words: Words) -> Words:
    """The words in alphabetical order: needs all words, and not their order."""
    return sorted(words)


def recall(back: int) -> Task:
    """Return the task to name the word that is `back` words before the end."""
    return lambda words: [words[-1 - back]]


def first_of_two(words: Words) -> Words:
    """Which of the two words "a" and "b" comes first: a bag of words is right half of the time."""
    return ["ab"[words.index("a") > words.index("b")]]


def letters(number: int) -> list[str]:
    """Return some one-letter words."""
    return [*LETTERS[:number]]


def random_words(rng: np.random.Generator, words: Words, length: int) -> Words:
    """Draw words independently."""
    return [words[i] for i in rng.integers(0, len(words), length)]


def different_words(rng: np.random.Generator, words: Words, length: int) -> Words:
    """Draw different words, in random order."""
    return [words[i] for i in rng.permutation(len(words))[:length]]


def a_and_b(rng: np.random.Generator, words: Words, length: int) -> Words:
    """Draw words, two of which are "a" and "b", at random positions."""
    others = random_words(rng, [word for word in words if word not in ("a", "b")], length - 2)
    drawn = np.array(["a", "b", *others])
    return [*map(str, drawn[rng.permutation(length)])]


def examples(
    task: Task,
    seed: int,
    train: int,
    lengths: tuple[int, int],
    words: Words,
    held_out: int = 500,
    draw: Callable[[np.random.Generator, Words, int], Words] = random_words,
) -> Split:
    """Draw different sources of these lengths (both included), and their targets."""
    rng, seen, pairs = rng_at(seed, "task"), set[str](), list[TextPair]()
    wanted, tried = train + 2 * held_out, 0
    while len(pairs) < wanted:
        tried += 1
        if tried > 20 * wanted:
            raise ConfigError(f"only {len(pairs):,} of {wanted:,} different sources; ask for fewer, or for longer ones")
        source = draw(rng, words, int(rng.integers(lengths[0], lengths[1] + 1)))
        text = " ".join(source)
        if text not in seen:
            seen.add(text)
            pairs.append((text, " ".join(task(source))))
    return Split(pairs[2 * held_out :], pairs[:held_out], pairs[held_out : 2 * held_out])
