"""Permutation language modelling: XLNet (Yang et al. 2019, sections 2.2 and 2.3).

Some tokens of a text come last in a random factorisation order, and each is predicted from the tokens before it in that order
(partial prediction). The other tokens have no order among themselves, as in the authors' code: they see each other from both
sides, as in fine-tuning. Nothing is masked. Every time that a text is read a new order is drawn, on the device; the predicted
tokens are chosen as in BERT's masking (masking.py), never the summary token nor an end token.

With `segment_length` a row is read segment by segment, and each segment attends to a memory of the row before it (section 2.4),
computed in its own order and without gradient.

Where we depart from the paper: units are tokens, words or up to three words, not spans of one to five tokens; all text is read
forwards, while the authors read half of it backwards.
R rows, W width, C segments of S tokens in a row, K slots for predicted tokens in a segment, D width of the model.
"""

from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, map_tensors
from qkv.data.inputs import Passages
from qkv.objectives.masked import token_loss
from qkv.objectives.masking import MaskingVocabulary, SelectionConfig, choose_tokens
from qkv.objectives.objective import ObjectiveConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.parts.draws import uniform
from qkv.parts.heads import ModelWithHeads
from qkv.parts.two_stream import with_summary_last


class PermutationConfig(SelectionConfig):
    kind: Literal["permutation"] = "permutation"
    rate: float = Field(default=1 / 6, gt=0, lt=1)  # share of tokens that are predicted
    sentence_pairs: bool = False  # texts are two passages, the second from elsewhere half of the time; no label says which
    segment_length: int | None = Field(default=None, gt=0)  # tokens read at once, with a memory of the row before; null: a row

    @property
    def heads(self) -> tuple[str, ...]:
        return ("language_model",)

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        return {"next": (1.0, 0)} if self.sentence_pairs else super().passage_tasks()

    def left_to_right_passages(self) -> "PermutationConfig":
        return self.model_copy(update={"sentence_pairs": False})

    def check_model(self, model: Any, length: int) -> None:
        if self.segment_length is not None and length % self.segment_length:
            raise ValueError(
                f"objective.segment_length {self.segment_length} does not divide data.length {length}; "
                "choose one that does, or leave it out"
            )


class FactorisationOrder(NamedTuple):
    """The order in which tokens of each segment are predicted, and their labels."""

    rank: Tensor  # (R C, S) 0, or the rank from 1 of a predicted token
    columns: Tensor  # (R C, K) columns of the slots in their segment, all different
    labels: Tensor  # (R C, K) the tokens there; IGNORE_INDEX in slots that were not needed


def draw_order(segments: Passages, c: SelectionConfig, vocabulary: MaskingVocabulary) -> FactorisationOrder:
    """Choose the tokens to predict, and draw their order."""
    columns, chosen = choose_tokens(segments, c, vocabulary)
    slot_rank = (uniform(columns.shape, columns.device).argsort(dim=1, stable=True) + 1) * chosen
    rank = torch.zeros_like(segments.ids).scatter(1, columns, slot_rank)
    # A segment may hold only predicted tokens of a text: its first one then sees nothing, unless the memory has the text.
    text = segments.text.gather(1, columns)
    seen = (segments.text[:, None] == text[..., None]) & (rank[:, None] < slot_rank[..., None])  # (R C, K, S)
    in_memory = (segments.text[:, :1] == text) & (segments.position[:, :1] > 0)
    predicted = chosen & (seen.any(-1) | in_memory)
    return FactorisationOrder(rank, columns, segments.ids.gather(1, columns).masked_fill(~predicted, IGNORE_INDEX))


class PermutationLanguageModelling(PretrainingObjective):
    """The sum of the losses of predicted tokens in nats; each counts for 1 / rate tokens."""

    config_class: ClassVar[type[ObjectiveConfig]] = PermutationConfig
    unigram_figure = "word_loss"

    def __init__(self, config: PermutationConfig, vocabulary: MaskingVocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, MaskingVocabulary.of(tokenizer, masks=False))

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the loss on rows in an order that is drawn anew at each call."""
        passages = summary_last(passages)
        segments = split_segments(passages, self.config.segment_length or passages.ids.size(1))
        return self.loss_on(model, passages, draw_order(segments, self.config, self.vocabulary))

    def loss_on(self, model: ModelWithHeads, passages: Passages, order: FactorisationOrder) -> Tensor:
        """Return the loss on rows that have their summary tokens last, in a given order."""
        width, length = passages.ids.size(1), order.rank.size(1)
        rank, columns, labels = (values.unflatten(0, (-1, width // length)) for values in order)  # (R, C, S or K)
        head: Any = model.heads["language_model"]
        features = head.features(query_states(model.encoder, passages, rank, columns))
        return token_loss(head, features, labels.mT.flatten(1), self.tally, "word") / self.config.rate


def query_states(xlnet: Any, passages: Passages, rank: Tensor, columns: Tensor) -> Tensor:
    """Return the query stream in all slots, computed segment after segment. rank (R, C, S), columns (R, C, K) -> (R, K C, D)."""
    length, found, memory = rank.size(2), [], None
    for number in range(rank.size(1)):
        segment = slice(number * length, (number + 1) * length)
        rows = map_tensors(passages.rows, lambda values, segment=segment: values[:, segment])  # type: ignore[misc]
        keep = passages.ids.size(1) if number + 1 < rank.size(1) else 0
        states, memory = xlnet.query_stream(rows, passages.segment[:, segment], rank[:, number], columns[:, number], memory, keep)
        found.append(states)
    return torch.stack(found, 2).flatten(1, 2)


def summary_last(passages: Passages) -> Passages:
    """Move the summary token of each text from its beginning to its end."""
    rows, segment, source = with_summary_last(passages.rows, passages.segment)
    return passages._replace(ids=rows.ids, segment=segment, flags=passages.flags.gather(1, source))


def split_segments(passages: Passages, length: int) -> Passages:
    """Make each segment a row, of the fields that choosing tokens needs. (R, W) -> (R C, S)."""
    fields = {name: getattr(passages, name).reshape(-1, length) for name in ("ids", "text", "position", "flags")}
    return passages._replace(**fields)
