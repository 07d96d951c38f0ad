"""The evaluation of a translator on pairs of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qkv.base.seeds import rng_at
from qkv.inference.arguments import require_pairs, require_texts
from qkv.inference.confidence import ConfidenceModel
from qkv.inference.logistic import Reliability
from qkv.inference.segmenter import TranslatedText
from qkv.inference.translator import Translator
from qkv.text.scripts import detect_language, language_name
from qkv.text.translation_metrics import Score, bleu_tokenizer, gather_references, score_corpus, sentence_chrf

BY_TOKEN = {"token_errors", "exact"}  # metrics for which any reference of a source is right
Sample = tuple[str, list[str], str]  # source, references, output


@dataclass(frozen=True)
class Evaluation:
    """The translations of some texts, and their scores."""

    sources: list[str]
    references: list[list[str]]
    translations: list[TranslatedText]
    scores: list[Score]
    target_language: str | None = None  # that the metrics were computed for

    @property
    def outputs(self) -> list[str]:
        """The texts of the translations."""
        return [translation.text for translation in self.translations]

    def first(self, count: int) -> "Evaluation":
        """Return the first texts, without scores."""
        return Evaluation(self.sources[:count], self.references[:count], self.translations[:count], [], self.target_language)

    def samples(self, count: int, seed: int) -> list[Sample]:
        """Return a few texts at random."""
        chosen = rng_at(seed, "samples").permutation(len(self.sources))[:count]
        return [(self.sources[i], self.references[i], self.outputs[i]) for i in sorted(chosen.tolist())]


def evaluate(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    confidence: bool = False,
    target_language: str | None = None,
    **options: Any,
) -> Evaluation:
    """Translate the sources and score the translations against the targets.

    For the metrics BY_TOKEN, lines with the same source are references of one text, and any of them is right; for the others each
    line counts by itself, as is usual. BLEU and TER split words by `data.languages` of the recipe; without it by
    `target_language`, and without that by the script of the targets.
    """
    pairs, metrics = require_pairs(pairs, "evaluate"), require_texts(metrics, "evaluate", "metric")
    different = list(dict.fromkeys(source for source, _ in pairs))
    outputs_of = translator.n_best(different, **{"n_best": 1, **options})
    found = {source: best for source, (best, *_) in zip(different, outputs_of, strict=True)}
    languages = translator.recipe.data.languages
    language = languages[1] if languages else target_language or detect_language(target for _, target in pairs)
    scores = []
    for metric in metrics:
        sources, references = scored_texts(pairs, metric)
        outputs = [found[source].text for source in sources]
        scores += score_corpus(outputs, references, [metric], language, confidence)
    by_line = [metric for metric in metrics if metric not in BY_TOKEN]
    sources, references = scored_texts(pairs, (by_line or metrics)[0])
    return Evaluation(sources, references, [found[source] for source in sources], scores, language)


def scored_texts(pairs: Sequence[tuple[str, str]], metric: str) -> tuple[list[str], list[list[str]]]:
    """Return the sources that a metric scores, and the references of each; see `evaluate`."""
    if metric in BY_TOKEN:
        variants = gather_references(pairs)
        return list(variants), list(variants.values())
    return [source for source, _ in pairs], [[target] for _, target in pairs]


def calibrate(translator: Translator, evaluation: Evaluation, weights: str) -> ConfidenceModel:
    """Learn from the translations of dev texts how probable a good one is; `weights` is the digest of the model's weights."""
    texts, chrf = _judged(evaluation)
    return ConfidenceModel.fit(translator.statistics([text.pieces for text in texts]), chrf, weights)


def measure_calibration(translator: Translator, evaluation: Evaluation) -> Reliability:
    """Compare the confidence of translations with how good they are."""
    texts, chrf = _judged(evaluation)
    return translator.confidence_model.measure(translator.statistics([text.pieces for text in texts]), chrf)


def _judged(evaluation: Evaluation) -> tuple[list[TranslatedText], list[float]]:
    """Return the translation of each different source, and its sentence chrF against the nearest of its references."""
    translation = dict(zip(evaluation.sources, evaluation.translations, strict=True))
    each = zip(evaluation.sources, evaluation.references, strict=True)
    references = gather_references((source, target) for source, targets in each for target in targets)
    texts = [source for source in references if translation[source].pieces]
    return [translation[source] for source in texts], [sentence_chrf(translation[s].text, references[s]) for s in texts]


def describe_detected(language: str) -> str:
    """Return one line that says which language the script of the targets shows, and how BLEU splits its words."""
    return (
        f"targets are {language_name(language)} by their script: BLEU uses sacreBLEU's tokenizer {bleu_tokenizer(language)} "
        "(data.languages is not set)"
    )
