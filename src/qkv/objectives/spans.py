"""Span corruption: T5 (Raffel et al. 2020, sections 3.1.4, 3.3.3 and 3.3.4).

"Consecutive spans of dropped-out tokens are replaced by a single sentinel token", another for each span of a text, and "the
target then corresponds to all of the dropped-out spans of tokens, delimited by the same sentinel tokens used in the input
sequence plus a final sentinel token". 15 % of a text's tokens are dropped, in spans of mean length 3; both counts depend on the
text's length alone, as in the authors' code. Spans are drawn anew each time, uniformly among all ways in which they do not touch.
The targets are then learned as translations are. About a third of a target's tokens are sentinels and eos, which are easy to
predict: the tally has the loss of the others, the dropped tokens, alone. All arrays are flat: the tokens of many texts, end to
end, and the length of each text.
"""

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.data.denoising import DenoisingBatches
from qkv.data.documents import Documents
from qkv.data.passages import TextBatchSettings
from qkv.objectives.objective import ObjectiveConfig, PretrainingConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts.loss import cross_entropies

ROW_STEP = 8  # widths of rows are multiples of this
FlatTexts = tuple[np.ndarray, np.ndarray]  # token ids of many texts end to end, and the length of each


class SpansConfig(PretrainingConfig):
    kind: Literal["spans"] = "spans"
    needs_sentinels: ClassVar[bool] = True
    whole_documents: ClassVar[bool] = True
    rate: float = Field(default=0.15, gt=0, lt=1)  # share of the tokens that are dropped
    mean_span_length: float = Field(default=3.0, ge=1)  # in tokens


class SpanCorruption(Translation, PretrainingObjective):
    """Corrupts texts; the loss is that of predicting the dropped spans from what is left."""

    config_class: ClassVar[type[ObjectiveConfig]] = SpansConfig
    unigram_figure = "span_loss"

    def __init__(self, config: SpansConfig, bos: int, eos: int, sentinels: list[int]):
        super().__init__(TranslationConfig(smoothing=0.0), bos)
        self.corruption = config
        self.eos = eos
        self.sentinels = np.array(sentinels, dtype=np.int64)
        self.delimiters = torch.tensor([*sentinels, eos])  # the tokens of a target that were not dropped from the text
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.bos, tokenizer.eos, tokenizer.sentinels)

    def loss(self, model: nn.Module, source: Rows, target: Rows) -> Tensor:
        """Return the sum of the cross-entropy over target tokens in nats, and count that of dropped tokens."""
        labels = target.ids.masked_fill(target.text == 0, IGNORE_INDEX)  # (R, W)
        hidden = model(source, self.shifted(target))  # (R, W, D)
        output: Any = model.output
        total, losses = cross_entropies(hidden.flatten(0, 1), output.weight, labels.flatten(), bias=output.bias)
        # Not torch.isin: it asks the device for sizes, which a recorded update (a CUDA graph) cannot.
        self.delimiters = self.delimiters.to(labels.device)
        dropped = (target.text > 0) & (labels[..., None] != self.delimiters).all(-1)
        self.tally.add("span_loss", (losses.view_as(labels) * dropped).sum(), dropped.sum())
        return total

    def batches(self, documents: Documents, chosen: np.ndarray, settings: TextBatchSettings) -> DenoisingBatches:
        """Return endless batches of corrupted texts and their targets."""
        source, target = (-(-width // ROW_STEP) * ROW_STEP for width in self.widths(settings.length))
        return DenoisingBatches(
            documents,
            chosen,
            settings.length,
            self.corrupt,
            seed=settings.seed,
            rows=max(1, settings.tokens // source),
            widths=(source, target),
            eos=settings.eos,
            fixed=settings.fixed_shape,
            window=settings.window,
        )

    def corrupt(self, texts: FlatTexts, rng: np.random.Generator) -> tuple[FlatTexts, FlatTexts]:
        """Return the sources, each with eos, and their targets, without; texts must have at least two tokens."""
        ids, lengths = texts
        dropped, spans = self.amounts(lengths)
        stretches, is_span = self._draw_stretches(lengths - dropped, dropped, spans, rng)
        in_span = np.repeat(is_span, stretches)
        begins = (np.cumsum(stretches) - stretches)[is_span]
        with_sentinels = np.insert(ids, begins, self.sentinels[_counted(spans)])
        # The sentinel of a span stands in the source and in the target.
        in_source, in_target = np.insert(~in_span, begins, True), np.insert(in_span, begins, True)
        source = _append((with_sentinels[in_source], lengths - dropped + spans), np.full(len(lengths), self.eos))
        return source, _append((with_sentinels[in_target], dropped + spans), self.sentinels[spans])

    def _draw_stretches(
        self, kept: np.ndarray, dropped: np.ndarray, spans: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the lengths of alternating kept and dropped stretches, end to end; return them, and which are dropped.

        Each text begins and ends with a kept stretch, which may be empty.
        """
        is_span = _counted(2 * spans + 1) % 2 == 1
        stretches = np.empty(len(is_span), dtype=np.int64)
        stretches[is_span] = random_partition(dropped, spans, rng)
        stretches[~is_span] = random_partition(kept + 2, spans + 1, rng)
        ends = np.cumsum(2 * spans + 1)
        stretches[ends - 1] -= 1
        stretches[ends - 2 * spans - 1] -= 1
        return stretches, is_span

    def amounts(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many tokens are dropped from texts of these lengths, and in how many spans."""
        dropped = np.clip(np.rint(lengths * self.corruption.rate), 1, lengths - 1).astype(np.int64)
        spans = np.maximum(np.rint(dropped / self.corruption.mean_span_length), 1).astype(np.int64)
        return dropped, np.minimum(spans, lengths - dropped + 1)

    def widths(self, length: int) -> tuple[int, int]:
        """Return the tokens of the longest source and of the longest target with its eos, for texts of up to `length` tokens."""
        lengths = np.arange(2, length + 1)
        dropped, spans = self.amounts(lengths)
        if len(self.sentinels) <= spans.max():
            raise ConfigError(
                f"the tokenizer has {len(self.sentinels)} sentinels, texts of {length} tokens need {spans.max() + 1}; "
                "lower data.length, or train a tokenizer with more (tokenizer.sentinels)"
            )
        return int((lengths - dropped + spans).max()) + 1, int((dropped + spans).max()) + 2


def random_partition(sizes: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Partition each size into its number of non-empty parts, uniformly at random; return the sizes of all parts, end to end."""
    between = sizes - 1  # positions at which a size can be cut
    number = np.repeat(np.arange(len(sizes)), between)
    shuffled = np.lexsort((rng.random(len(number)), number))
    cuts = shuffled[_counted(between) < np.repeat(parts - 1, between)]
    begins = np.concatenate([np.cumsum(sizes) - sizes, cuts + number[cuts] + 1])
    return np.diff(np.append(np.sort(begins), sizes.sum()))


def _counted(sizes: np.ndarray) -> np.ndarray:
    """Return 0, 1, ..., size - 1 for each size, end to end."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _append(texts: FlatTexts, last: np.ndarray) -> FlatTexts:
    """Append one token to each text."""
    ids, lengths = texts
    return np.insert(ids, np.cumsum(lengths), last), lengths + 1
