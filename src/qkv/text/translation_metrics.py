"""Translation metrics over a corpus, in per cent, with signatures that make them reproducible.

BLEU, chrF and TER are sacreBLEU's. The token error rate (word or phone error rate: Levenshtein distance over whitespace tokens)
and the rate of exact matches are written as sacreBLEU metrics, so that its bootstrap and its paired test (Koehn 2004, 1,000
samples, seed 12345) work for them too.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as SacreScore
from sacrebleu.significance import PairedTest

from qkv.base.errors import ConfigError, DataError

SAMPLES = 1000
References = Sequence[str] | Sequence[Sequence[str]]  # one reference or several for each output


@dataclass(frozen=True)
class Score:
    """The score of a corpus by one metric; `low` and `high` are its 95 % confidence interval, if it was computed."""

    name: str  # a key of METRICS
    value: float
    low: float | None
    high: float | None
    signature: str

    @property
    def label(self) -> str:
        """The name of the metric as papers write it."""
        return METRICS[self.name].label

    def __str__(self) -> str:
        bounds = "" if self.low is None else f" [{self.low:.1f}, {self.high:.1f}]"
        return f"{self.label} {self.value:.1f}{bounds}"


@dataclass(frozen=True)
class Comparison:
    """The scores of two systems on the same references; a small p-value means that the difference is not chance."""

    name: str  # a key of METRICS
    baseline: float
    system: float
    p_value: float
    signature: str


def score_corpus(
    outputs: Sequence[str],
    references: References,
    metrics: Sequence[str] = ("bleu", "chrf"),
    target_language: str | None = None,
    confidence: bool = False,
) -> list[Score]:
    """Score outputs against their references; `confidence` adds intervals from 1,000 bootstrap samples."""
    streams = _reference_streams(outputs, references)
    built = _build_metrics(metrics, target_language)
    if confidence:
        signatures, results = _bootstrap([outputs], streams, built)
        bounds = [(float(r.mean - r.ci), float(r.mean + r.ci)) for (r,) in results]
        values = [float(r.score) for (r,) in results]
        return [Score(n, v, *b, s) for n, v, b, s in zip(built, values, bounds, signatures, strict=True)]
    values = [metric.corpus_score(outputs, streams).score for metric in built.values()]
    signatures = [str(metric.get_signature()) for metric in built.values()]
    return [Score(n, v, None, None, s) for n, v, s in zip(built, values, signatures, strict=True)]


def sentence_chrf(output: str, references: Sequence[str]) -> float:
    """Return the chrF of one output against the nearest of its references, in per cent."""
    return float(CHRF().sentence_score(output, references).score)


def compare_systems(
    baseline: Sequence[str],
    system: Sequence[str],
    references: References,
    metrics: Sequence[str] = ("bleu", "chrf"),
    target_language: str | None = None,
) -> list[Comparison]:
    """Test with a paired bootstrap whether two systems differ on the same references."""
    streams = _reference_streams(baseline, references)
    _reference_streams(system, references)
    built = _build_metrics(metrics, target_language)
    signatures, results = _bootstrap([baseline, system], streams, built)
    return [
        # For equal scores sacreBLEU reports p = 0.001; here p is 1.
        Comparison(name, old.score, new.score, 1.0 if old.score == new.score else new.p_value, signature)
        for name, (old, new), signature in zip(built, results, signatures, strict=True)
    ]


def gather_references(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group the targets by source, in order: lines that repeat a source become its several references."""
    gathered: dict[str, list[str]] = {}
    for source, target in pairs:
        gathered.setdefault(source, []).append(target)
    return gathered


def _bootstrap(
    systems: Sequence[Sequence[str]], streams: list[list[Any]], built: dict[str, Metric]
) -> tuple[list[str], list[list[Any]]]:
    """Run sacreBLEU's bootstrap; return a signature per metric, and per metric one result for each system, the baseline first."""
    named = [(str(i), outputs) for i, outputs in enumerate(systems)]
    signatures, table = PairedTest(named, built, streams, test_type="bs", n_samples=SAMPLES)()
    return [str(s) for s in signatures.values()], [row for key, row in table.items() if key != "System"]


def _reference_streams(outputs: Sequence[str], references: References) -> list[list[Any]]:
    """Return the references as sacreBLEU expects them: the first of every output, then the second, and so on; None for a gap."""
    if len(outputs) != len(references):
        raise DataError(f"{len(outputs)} outputs but references for {len(references)}; each output needs its own")
    if not outputs:
        raise DataError("nothing to score: no outputs; give at least one line")
    lists = [[item] if isinstance(item, str) else list(item) for item in references]
    if not all(lists):
        raise DataError(f"output {lists.index([]) + 1} has no reference; leave it out or give it one")
    most = max(map(len, lists))
    return [[item[i] if i < len(item) else None for item in lists] for i in range(most)]


def _build_metrics(names: Sequence[str], target_language: str | None) -> dict[str, Metric]:
    language = (target_language or "").replace("_", "-").split("-")[0].lower()
    return {name: find_translation_metric(name).make(ISO_639_3.get(language, language)) for name in names}


def find_translation_metric(name: str) -> "TranslationMetric":
    """Return the metric of that name; for an unknown name, suggest the nearest."""
    if name not in METRICS:
        near = difflib.get_close_matches(name.lower(), METRICS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(METRICS)}"
        raise ConfigError(f"unknown metric {name!r}; {hint}")
    return METRICS[name]


ISO_639_3 = {"zho": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km"}
# Languages whose words sacreBLEU's 13a cannot split. MeCab is optional in sacreBLEU; without it, characters are used.
BLEU_TOKENIZERS = {
    "zh": "zh",
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    "th": "char",
    "lo": "char",
    "km": "char",
    "my": "char",
}


def _bleu(language: str) -> Metric:
    return BLEU(tokenize=bleu_tokenizer(language))


def bleu_tokenizer(language: str) -> str:
    """Return the name of sacreBLEU's tokenizer for a language, among those that are installed."""
    wanted = BLEU_TOKENIZERS.get(language, "13a")
    try:
        BLEU(tokenize=wanted)
    except RuntimeError:
        return "char"
    return wanted


def _ter(language: str) -> Metric:
    # Without splitting characters, a Chinese sentence would be one word.
    by_character = language in ("zh", "ja")
    return TER(normalized=by_character, asian_support=by_character)


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of insertions, deletions and substitutions that turn a into b.

    The algorithm is bit-parallel (Myers 1999, as in Hyyrö 2003): a column of the distance table is two integers, whose bit i is
    set if the distance rises (or falls) from row i to row i + 1; Python's integers have any length.
    """
    if not a:
        return len(b)
    occurrences: dict[str, int] = {}  # token -> bits of its indices in a
    for i, token in enumerate(a):
        occurrences[token] = occurrences.get(token, 0) | 1 << i
    full, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    rises, falls, distance = full, 0, len(a)
    for token in b:
        here = occurrences.get(token, 0)
        level = (((here & rises) + rises) ^ rises) | here | falls  # the diagonal step costs nothing
        right_rises = falls | ~(level | rises) & full
        right_falls = level & rises
        distance += bool(right_rises & last) - bool(right_falls & last)
        right_rises = right_rises << 1 | 1
        rises = (right_falls << 1 | ~(level | right_rises)) & full
        falls = right_rises & level & full
    return distance


class _Rate(Metric):
    """A sacreBLEU metric that is the ratio of two sums over the corpus, in per cent."""

    def _aggregate_and_compute(self, stats: list[list[float]]) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SacreScore:
        # If all references are empty, divide by 1.
        return SacreScore(type(self).__name__, 100 * float(stats[0]) / max(float(stats[1]), 1.0))

    def _preprocess_segment(self, sent: str) -> str:
        return " ".join(sent.split())

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"texts": list(refs)}


class _WhitespaceSignature(Signature):
    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info |= {"case": "mixed", "tok": "whitespace"}


class TokenErrors(_Rate):
    """The number of edits per token of the nearest reference."""

    _SIGNATURE_TYPE = _WhitespaceSignature

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        output = hypothesis.split()
        references = [text.split() for text in ref_kwargs["texts"]]
        distances = [(edit_distance(reference, output), -len(reference)) for reference in references]
        errors, length = min(distances)
        return [errors, -length]


class ExactMatches(_Rate):
    """The share of outputs that equal one of their references, apart from white space."""

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        return [hypothesis in ref_kwargs["texts"], 1]


class TranslationMetric(NamedTuple):
    """A metric: its label, its constructor and its direction."""

    label: str
    make: Callable[[str], Metric]  # from the target language, "" if unknown
    higher_is_better: bool


METRICS = {
    "bleu": TranslationMetric("BLEU", _bleu, True),
    "chrf": TranslationMetric("chrF", lambda language: CHRF(), True),
    "ter": TranslationMetric("TER", _ter, False),
    "token_errors": TranslationMetric("token errors", lambda language: TokenErrors(), False),
    "exact": TranslationMetric("exactly right", lambda language: ExactMatches(), True),
}
