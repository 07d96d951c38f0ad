"""The profile of a language: how often its texts have each sequence of up to four characters.

It is a language model of characters: the probability of a character is interpolated over the lengths of its context, as in
Witten-Bell smoothing, so that texts of a few words can be compared under several profiles (Dunning 1994). Sequences are stored as
32-bit hashes and counts as logarithms in a byte: some 100 KB for a language, whatever the size of its corpus. Case, digits and
punctuation do not count.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

ORDER = 4  # characters in the longest sequence
MOST = 20_000  # sequences of a profile, the most frequent ones
SMOOTHING = 5.0  # observations that a shorter context counts as
ALPHABET = 4096  # characters that an unknown one is drawn from
LETTERS, IDEOGRAPHS = 30, 8000  # of a language that is not known
FIRST_IDEOGRAPH = 0x2E80  # Chinese, Japanese and Korean characters and what follows them in Unicode
READ = 2000  # characters of a text that are compared
STEPS = 8  # of a stored count, for each doubling


class _Letters(dict[int, int]):
    """A translation table that keeps letters and marks, and turns all else into spaces."""

    def __missing__(self, code: int) -> int:
        self[code] = kept = code if unicodedata.category(chr(code))[0] in "LM" else ord(" ")
        return kept


_LETTERS = _Letters()


@dataclass(frozen=True, eq=False)
class LanguageProfile:
    """Counts of sequences of characters in texts of a language."""

    sequences: np.ndarray  # hashes, sorted (uint32)
    counts: np.ndarray  # of each, as logarithms (uint8)
    characters: int  # in all texts

    @classmethod
    def of(cls, texts: Iterable[str]) -> "LanguageProfile | None":
        """Return the profile of texts; None where they have no letters."""
        letters = _letters(" ".join(texts))
        if not letters.strip():
            return None
        parts = [hashes[size:] for size, hashes in enumerate(_sequences(letters))]
        found, counts = np.unique(np.concatenate(parts), return_counts=True)
        frequent = np.sort(np.argsort(-counts, kind="stable")[:MOST])
        return cls(found[frequent], np.round(STEPS * np.log2(1 + counts[frequent])).astype(np.uint8), len(letters))

    def score(self, text: str) -> float:
        """Return the log-probability of a text's first characters in this language."""
        letters = _letters(text[:READ])
        counts = [self._counts_of(hashes) for hashes in _sequences(letters)]
        probability = (counts[0] + SMOOTHING / ALPHABET) / (self.characters + SMOOTHING)
        for size in range(1, ORDER):
            context, whole = counts[size - 1][:-1], counts[size][1:]
            longer = (np.minimum(whole, context) + SMOOTHING * probability[1:]) / (context + SMOOTHING)
            probability[size:] = longer[size - 1 :]
        return float(np.log(probability[1:]).sum())

    def _counts_of(self, hashes: np.ndarray) -> np.ndarray:
        """Return how often each sequence occurs."""
        position = np.searchsorted(self.sequences, hashes).clip(max=len(self.sequences) - 1)
        counts = 2.0 ** (self.counts[position] / STEPS) - 1
        return np.where(self.sequences[position] == hashes, counts, 0.0)

    @classmethod
    def merged(cls, profiles: "Sequence[LanguageProfile]") -> "LanguageProfile":
        """Return the profile of all texts that several profiles of a language were made from."""
        if len(profiles) == 1:
            return profiles[0]
        sequences = np.unique(np.concatenate([one.sequences for one in profiles]))
        counts = sum(one._counts_of(sequences) for one in profiles)
        characters = sum(one.characters for one in profiles)
        return cls(sequences, np.round(STEPS * np.log2(1 + counts)).astype(np.uint8), characters)


def unknown_language_score(text: str) -> float:
    """Return the log-probability of a text's first characters in a language that is not known: all letters are as frequent."""
    codes = np.frombuffer(_letters(text[:READ])[1:].encode("utf-32-le"), dtype=np.uint32)
    return -float(np.where(codes < FIRST_IDEOGRAPH, math.log(LETTERS), math.log(IDEOGRAPHS)).sum())


def _letters(text: str) -> str:
    """Return the words of a text in lower case, with a space before, between and after them."""
    words = unicodedata.normalize("NFC", text).lower().translate(_LETTERS).split()
    return f" {' '.join(words)} "


def _sequences(letters: str) -> list[np.ndarray]:
    """Return for each length the hash of the sequence that ends with each character; the first ones are too short for it."""
    codes = np.frombuffer(letters.encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    hashes, found = np.zeros(len(codes), dtype=np.uint64), []
    for size in range(1, ORDER + 1):
        hashes = np.append(np.uint64(size), hashes[:-1]) * np.uint64(0x9E3779B97F4A7C15) + codes + np.uint64(size)
        hashes = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        hashes ^= hashes >> np.uint64(32)
        found.append((hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32))
    return found
