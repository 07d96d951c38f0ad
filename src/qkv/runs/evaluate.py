"""Scores of a translator on pairs of texts, and the test between two translators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qkv.base.seeds import rng_at
from qkv.runs.translator import Translator
from qkv.text.score import Score, gather_references, score_corpus

BY_TOKEN = {"token_errors", "exact"}  # metrics for which every variant of a text is a right answer


Sample = tuple[str, list[str], str]  # source, references, output


@dataclass(frozen=True)
class Evaluation:
    """What a translator made of some texts, and how good that is."""

    sources: list[str]
    references: list[list[str]]
    outputs: list[str]
    scores: list[Score]

    def samples(self, count: int, seed: int) -> list[Sample]:
        """A few texts at random."""
        chosen = rng_at(seed, "samples").permutation(len(self.sources))[:count]
        return [(self.sources[i], self.references[i], self.outputs[i]) for i in sorted(chosen.tolist())]


def evaluate(
    translator: Translator, pairs: Sequence[tuple[str, str]], metrics: Sequence[str], confidence: bool = False, **options: Any
) -> Evaluation:
    """Translate the sources and compare with the targets.

    Where the metrics ask for the right answer, lines with the same source are its variants, and any of them is right.
    """
    if BY_TOKEN.intersection(metrics):
        gathered = gather_references(pairs)
        sources, references = list(gathered), list(gathered.values())
    else:
        sources, references = [source for source, _ in pairs], [[target] for _, target in pairs]
    outputs = translator.translate(sources, **{"n_best": 1, **options})
    languages = translator.recipe.data.languages
    scores = score_corpus(outputs, references, metrics, languages[1] if languages else None, confidence)
    return Evaluation(sources, references, outputs, scores)
