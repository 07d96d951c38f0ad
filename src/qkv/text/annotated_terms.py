"""Terms with their translations inside sources, which a translator learns to copy (Dinu et al. 2019, "append").

    Press the <term> switch <translation> Schalter </term> twice.

The separators are special tokens. They are put between the tokens of a source, which stay as they are without them; the
source's tokenizer spells the translation as a word inside a sentence.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qkv.base.seeds import rng_at
from qkv.text.glossary import Glossary, TermMatch, count_translations, missing_terms
from qkv.text.tokenizer import Tokenizer

NO_PLACE = -1  # of a token that is not in the text


@dataclass(frozen=True)
class TermAnnotator:
    """Chooses the terms that are annotated in training pairs."""

    glossary: Glossary
    share: float  # of the pairs that have terms; in the others a model learns to translate without annotations
    seed: int

    @property
    def key(self) -> list[Any]:
        """The glossary, share and seed that decide its choices, for cache keys."""
        return [sorted(map(str, self.glossary.terms)), self.share, self.seed]

    def choose(self, source: str, target: str) -> list[TermMatch]:
        """Return the terms of a pair to annotate, each with the translation that the target has.

        The choice of a pair depends on the seed and the pair alone.
        """
        found = self.glossary.find(source)
        missing = missing_terms(found, target)
        found = [match for match in found if match not in missing]
        if not found or rng_at(self.seed, "glossary", source, target).random() >= self.share:
            return []
        there = [[one for one in match.targets if count_translations(target, [one])] for match in found]
        return [match._replace(targets=(max(each, key=len),)) for match, each in zip(found, there, strict=True)]


def annotate(
    tokenizer: Tokenizer, ids: Sequence[int], starts: Sequence[int], matches: Sequence[TermMatch], most: int
) -> tuple[list[int], list[int]]:
    """Return the ids of a source with the first translation of each term after it, and where each begins in the text.

    The tokens of an annotation have NO_PLACE. There is none where the tokenizer cannot spell the translation, or where the
    source would have more than `most` tokens.
    """
    term, translation, end_of_term = tokenizer.term_tokens
    made: list[int] = []
    places: list[int] = []
    done, room = 0, most - len(ids)
    for match, target in zip(matches, tokenizer.encode_words([match.targets[0] for match in matches]), strict=True):
        first, last = bisect_right(starts, match.start) - 1, bisect_left(starts, match.end)
        first = max(done, bisect_left(starts, starts[max(0, first)]))  # a character may have several tokens
        after = [translation, *target, end_of_term]
        if tokenizer.unk in target or first >= last or 1 + len(after) > room:
            continue
        made += [*ids[done:first], term, *ids[first:last], *after]
        places += [*starts[done:first], NO_PLACE, *starts[first:last], *[NO_PLACE] * len(after)]
        done, room = last, room - 1 - len(after)
    return [*made, *ids[done:]], [*places, *starts[done:]]


def own_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Return the indices of a source's own tokens among its ids: all but separators and translations."""
    term, translation, end_of_term = tokenizer.term_tokens or (None, None, None)
    own = []
    inside = False  # an annotation
    for index, token in enumerate(ids):
        if token == translation:
            inside = True
        elif token == end_of_term:
            inside = False
        elif token != term and not inside:
            own.append(index)
    return own
