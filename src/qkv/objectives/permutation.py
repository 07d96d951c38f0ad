"""Guessing tokens in any order: XLNet (Yang et al. 2019, sections 2.2 and 2.3).

Some tokens of a text are the last ones in an order of all of them, and each is guessed from those before it: partial prediction.
As in the authors' code, what comes before them is not in order, so that it sees itself from both sides, as in fine-tuning. Texts
are not changed: nothing is masked. Each time a text is read another order is drawn, on the device; who is guessed is chosen as
what BERT masks is (masking.py), and neither the summary token nor an end is. Where we depart from the paper: units are tokens,
words or up to three words, and not spans of one to five tokens; all text is read forwards, and not half of it backwards.

With `stretch` a row is read a stretch at a time, and each remembers the row before it (section 2.4), as that was in its own order
and without learning from what follows.
R rows, W width, C stretches of S places, K places chosen in each, D width of the model.
"""

from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, on_each
from qkv.data.inputs import Passages
from qkv.objectives.masked import guesses_loss
from qkv.objectives.masking import ChoosingConfig, Vocabulary, choose
from qkv.objectives.objective import ObjectiveConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.parts.heads import ModelWithHeads
from qkv.parts.two_stream import with_summary_last


class PermutationConfig(ChoosingConfig):
    kind: Literal["permutation"] = "permutation"
    rate: float = Field(default=1 / 6, gt=0, lt=1)  # of tokens that are to be guessed
    sentence_pairs: bool = (
        False  # whether a text is two passages, the second from elsewhere half of the time; nothing is asked of that
    )
    segment_length: int | None = Field(
        default=None, gt=0
    )  # tokens read at once, which remember the row before them; null: all of a row

    @property
    def heads(self) -> tuple[str, ...]:
        return ("words",)

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


class Drawn(NamedTuple):
    """An order, and what is to be guessed."""

    rank: Tensor  # (R, W) 0, or which of those to be guessed a place is, from 1
    where: Tensor  # (R, K) places, no two the same
    answer: Tensor  # (R, K) the tokens there; SKIP at places that are not to be guessed after all


def draw(passages: Passages, c: ChoosingConfig, vocabulary: Vocabulary) -> Drawn:
    """Choose tokens, and in which order they are guessed."""
    where, chosen = choose(passages, c, vocabulary)
    turn = (torch.rand(where.shape, device=where.device).argsort(1) + 1) * chosen
    rank = torch.zeros_like(passages.ids).scatter(1, where, turn)
    answer = passages.ids.gather(1, where).masked_fill(~(chosen & _sees_some(passages, rank, where, turn)), IGNORE_INDEX)
    return Drawn(rank, where, answer)


def _sees_some(passages: Passages, rank: Tensor, where: Tensor, turn: Tensor) -> Tensor:
    """Whether there is something to guess from: of a text a stretch may have only what is guessed. -> (R, K)."""
    text = passages.text.gather(1, where)
    before = (passages.text[:, None] == text[..., None]) & (rank[:, None] < turn[..., None])  # (R, K, S)
    remembered = (passages.text[:, :1] == text) & (passages.position[:, :1] > 0)
    return before.any(-1) | remembered


class Permutation(PretrainingObjective):
    """The sum of the losses of what is guessed, in nats; each stands for 1 / rate tokens."""

    config_class: ClassVar[type[ObjectiveConfig]] = PermutationConfig

    def __init__(self, config: PermutationConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, Vocabulary.of(tokenizer, masks=False))

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the loss on rows in an order that is drawn anew at each call."""
        passages = _arranged(passages)
        parts = _cut(passages, self.config.segment_length or passages.ids.size(1))
        return self.loss_of(model, passages, draw(parts, self.config, self.vocabulary))

    def loss_of(self, model: ModelWithHeads, passages: Passages, drawn: Drawn) -> Tensor:
        """Of rows that have the summary last, in such an order of each stretch, (R C, S)."""
        width, length = passages.ids.size(1), drawn.rank.size(1)
        rank, where, answer = (values.unflatten(0, (-1, width // length)) for values in drawn)  # (R, C, S or K)
        head: Any = model.heads["words"]
        features = head.features(_guessed(model.encoder, passages, rank, where))
        return guesses_loss(head, features, answer.mT.flatten(1), self.tally, "word") / self.config.rate


def _guessed(xlnet: Any, passages: Passages, rank: Tensor, where: Tensor) -> Tensor:
    """What the query stream knows at all places to be guessed, stretches in turn. -> (R, K C, D)."""
    length, found, memory = rank.size(2), [], None
    for number in range(rank.size(1)):
        here = slice(number * length, (number + 1) * length)
        rows = on_each(passages.rows, partial(_columns, here))
        keep = passages.ids.size(1) if number + 1 < rank.size(1) else 0
        known, memory = xlnet.guess(rows, passages.segment[:, here], rank[:, number], where[:, number], memory, keep)
        found.append(known)
    return torch.stack(found, 2).flatten(1, 2)


def _columns(here: slice, values: Tensor) -> Tensor:
    return values[:, here]


def _arranged(passages: Passages) -> Passages:
    """Texts that end with their summary token."""
    rows, segment, source = with_summary_last(passages.rows, passages.segment)
    return passages._replace(ids=rows.ids, segment=segment, marks=passages.marks.gather(1, source))


def _cut(passages: Passages, length: int) -> Passages:
    """A row for each stretch, of what is needed to choose among its tokens. (R, W) -> (R C, S)."""
    cut = {name: getattr(passages, name).reshape(-1, length) for name in ("ids", "text", "position", "marks")}
    return passages._replace(**cut)
