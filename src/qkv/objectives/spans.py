"""Span corruption: T5 (Raffel et al. 2020, sections 3.1.4, 3.3.3 and 3.3.4).

"Consecutive spans of dropped-out tokens are replaced by a single sentinel token", another for each span of a text, and "the
target then corresponds to all of the dropped-out spans of tokens, delimited by the same sentinel tokens used in the input
sequence plus a final sentinel token". Of a text of L tokens, 15 % are dropped out, in spans whose mean length is 3: so many, as
in the authors' code, whichever the text. Which tokens they are is drawn anew each time, all ways being as likely in which spans
do not touch. Targets are then told as translations are. All arrays are flat: the tokens of many texts, end to end, and the length
of each.
"""

from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from qkv.base.errors import ConfigError
from qkv.data.corrupted import CorruptedBatches
from qkv.data.documents import Documents
from qkv.objectives.objective import BatchSettings, ObjectiveConfig, PretrainingConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.objectives.translation import Translation, TranslationConfig

ROW_STEP = 8  # rows of sources and of targets are a multiple of this wide
Flat = tuple[np.ndarray, np.ndarray]  # token ids of many texts end to end, and the length of each


class SpansConfig(PretrainingConfig):
    kind: Literal["spans"] = "spans"
    needs_sentinels: ClassVar[bool] = True
    whole_documents: ClassVar[bool] = True
    rate: float = Field(default=0.15, gt=0, lt=1)  # share of the tokens that are dropped out
    mean_span_length: float = Field(default=3.0, ge=1)  # length of a span


class Spans(Translation, PretrainingObjective):
    """Corrupts texts, and scores what a model says was dropped out of them."""

    config_class: ClassVar[type[ObjectiveConfig]] = SpansConfig

    def __init__(self, config: SpansConfig, bos: int, eos: int, sentinels: list[int]):
        super().__init__(TranslationConfig(smoothing=0.0), bos)
        self.corruption = config
        self.eos = eos
        self.sentinels = np.array(sentinels, dtype=np.int64)
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.bos, tokenizer.eos, tokenizer.sentinels)

    def batches(self, documents: Documents, chosen: np.ndarray, settings: BatchSettings) -> CorruptedBatches:
        """Return endless batches of corrupted texts and their targets."""
        source, target = (-(-width // ROW_STEP) * ROW_STEP for width in self.widths(settings.length))
        return CorruptedBatches(
            documents,
            chosen,
            settings.length,
            self.corrupt,
            seed=settings.seed,
            rows=max(1, settings.tokens // source),
            widths=(source, target),
            eos=settings.eos,
            fixed=settings.fixed_shape,
        )

    def corrupt(self, texts: Flat, rng: np.random.Generator) -> tuple[Flat, Flat]:
        """Sources, each ended by eos, and their targets, without; texts have two tokens at least."""
        ids, lengths = texts
        dropped, spans = self.amounts(lengths)
        stretches, gone = self._stretches(lengths - dropped, dropped, spans, rng)
        out = np.repeat(gone, stretches)
        begins = (np.cumsum(stretches) - stretches)[gone]  # of spans
        number = _counted(spans)  # of a span in its text
        marked = np.insert(ids, begins, self.sentinels[number])
        left, told = np.insert(~out, begins, True), np.insert(out, begins, True)  # a sentinel stands on both sides
        source = _ended((marked[left], lengths - dropped + spans), np.full(len(lengths), self.eos))
        return source, _ended((marked[told], dropped + spans), self.sentinels[spans])

    def _stretches(
        self, kept: np.ndarray, dropped: np.ndarray, spans: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Texts as tokens kept and dropped out by turns: how many of each, and which; those at its ends are kept, or none."""
        gone = _counted(2 * spans + 1) % 2 == 1
        stretches = np.empty(len(gone), dtype=np.int64)
        stretches[gone] = divided(dropped, spans, rng)
        stretches[~gone] = divided(kept + 2, spans + 1, rng)
        ends = np.cumsum(2 * spans + 1)
        stretches[ends - 1] -= 1
        stretches[ends - 2 * spans - 1] -= 1
        return stretches, gone

    def amounts(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens are dropped out of texts, and in how many spans."""
        dropped = np.clip(np.rint(lengths * self.corruption.rate), 1, lengths - 1).astype(np.int64)
        spans = np.maximum(np.rint(dropped / self.corruption.mean_span_length), 1).astype(np.int64)
        return dropped, np.minimum(spans, lengths - dropped + 1)

    def widths(self, length: int) -> tuple[int, int]:
        """Tokens of the longest source and of the longest target, with its eos, of texts of up to `length` tokens."""
        lengths = np.arange(2, length + 1)
        dropped, spans = self.amounts(lengths)
        if len(self.sentinels) <= spans.max():
            raise ConfigError(
                f"the tokenizer has {len(self.sentinels)} sentinels, texts of {length} tokens need {spans.max() + 1}; "
                "lower data.length, or train a tokenizer with more (tokenizer.sentinels)"
            )
        return int((lengths - dropped + spans).max()) + 1, int((dropped + spans).max()) + 2


def divided(sizes: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sizes cut into so many parts each, none of them empty, all ways alike; the sizes of all parts, end to end."""
    between = sizes - 1  # places where a size can be cut
    number = np.repeat(np.arange(len(sizes)), between)
    shuffled = np.lexsort((rng.random(len(number)), number))
    cuts = shuffled[_counted(between) < np.repeat(parts - 1, between)]
    begins = np.concatenate([np.cumsum(sizes) - sizes, cuts + number[cuts] + 1])
    return np.diff(np.append(np.sort(begins), sizes.sum()))


def _counted(sizes: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... as far as each size says, end to end."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _ended(texts: Flat, last: np.ndarray) -> Flat:
    """Each text with one more token at its end."""
    ids, lengths = texts
    return np.insert(ids, np.cumsum(lengths), last), lengths + 1
