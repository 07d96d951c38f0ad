"""Continual multi-task learning: ERNIE 2.0 (Sun et al. 2020).

Tasks come one after the other, and those before them are not forgotten: from its beginning on a task has its share of the texts.
Every text is masked by units of knowledge, whatever else it is read for. Beyond that each text is read for one task, which the
model is told by an embedding:

    capital       word-aware: whether a word is written with a capital
    document      word-aware: whether a token is also elsewhere in its document
    reorder       structure-aware: in what order the parts of a paragraph were shuffled
    distance      structure-aware: whether two sentences are neighbours, of one document, or of two
    next, order   BERT's and ALBERT's relation of two passages, as in masked.py

The texts are made by the data, which follows the schedule; the losses are here. Where we depart from the paper: its semantic
tasks (discourse markers, search logs) need data that is not plain text. R rows, W width, M texts of a row, D width of the model.
"""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, field_validator
from torch import Tensor

from qkv.base.config import Config
from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import CAPITAL, ELSEWHERE, PASSAGE_TASKS, Passages
from qkv.objectives.masked import labels_loss, pooled, tokens_of_texts, words_loss
from qkv.objectives.masking import Hidden, MaskingConfig, Units, Vocabulary, hide, maskable
from qkv.objectives.objective import ObjectiveConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.parts.heads import ModelWithHeads

ERNIE_TASKS = PASSAGE_TASKS[: PASSAGE_TASKS.index("document") + 1]  # those with a task embedding, by its number
OF_TOKENS = {"capital": CAPITAL, "document": ELSEWHERE}  # tasks that ask of every token whether it has a mark


class TaskConfig(Config):
    """One task beside masking."""

    task: Literal["capital", "document", "reorder", "distance", "next", "order"]
    first_batch: int = Field(default=0, ge=0)  # the batch with which it begins
    weight: float = Field(default=1.0, ge=0)  # of its loss, beside masking's 1


class ContinualConfig(MaskingConfig):
    kind: Literal["ernie"] = "ernie"
    units: Units = "unit"  # what is masked as a whole
    tasks: tuple[TaskConfig, ...] = ()

    @field_validator("tasks")
    @classmethod
    def _each_once(cls, tasks: tuple[TaskConfig, ...]) -> tuple[TaskConfig, ...]:
        if len({each.task for each in tasks}) < len(tasks):
            raise ValueError("a task is named twice; give each once")
        return tasks

    @property
    def heads(self) -> tuple[str, ...]:
        """What the model needs on top of its encoder: for each task a head of its name."""
        names = tuple(each.task for each in self.tasks)
        return ("masked", *(() if set(names) <= OF_TOKENS.keys() else ("pooler",)), *names)

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        return super().passage_tasks() | {each.task: (1.0, each.first_batch) for each in self.tasks}

    def check_model(self, model: Any, length: int) -> None:
        if 0 < getattr(model, "task_types", 0) < len(ERNIE_TASKS):
            raise ValueError(
                f"model.task_types is below {len(ERNIE_TASKS)}, the number of all tasks; say model.task_types={len(ERNIE_TASKS)}"
            )


class Continual(PretrainingObjective):
    """The sum of all losses, in nats. A masked word stands for 1 / rate tokens, what is said of a text for all of its tokens."""

    config_class: ClassVar[type[ObjectiveConfig]] = ContinualConfig

    def __init__(self, config: ContinualConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, Vocabulary.of(tokenizer))

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the loss on rows that are masked anew at each call."""
        return self.loss_of(model, passages, hide(passages, self.config, self.vocabulary))

    def loss_of(self, model: ModelWithHeads, passages: Passages, hidden: Hidden) -> Tensor:
        """Return the loss on rows that are already masked."""
        rows = passages.rows._replace(ids=hidden.ids)
        told = model.encoder.embedding.tasks is not None  # what a text is read for, as ERNIE 2.0 is and 1.0 is not
        known = model.encoder(rows, passages.segment, passages.task if told else None)  # (R, W, D)
        loss = words_loss(model, known, hidden, self.tally) / self.config.rate
        for each in self.config.tasks:
            of = self.of_tokens if each.task in OF_TOKENS else self.of_texts
            loss = loss + each.weight * of(each.task, model, known, passages, hidden)
        return loss

    def of_texts(self, task: str, model: ModelWithHeads, known: Tensor, passages: Passages, hidden: Hidden) -> Tensor:
        """The loss of a task that says something of whole texts, over the texts that are read for it."""
        read_for = passages.task.gather(1, passages.first)  # (R, M)
        answer = passages.answer.masked_fill(read_for != PASSAGE_TASKS.index(task), IGNORE_INDEX)
        scores = model.heads[task](pooled(model, known, passages))  # (R, M, labels)
        return labels_loss(scores, answer, tokens_of_texts(passages), self.tally, task)

    def of_tokens(self, task: str, model: ModelWithHeads, known: Tensor, passages: Passages, hidden: Hidden) -> Tensor:
        """The loss of a task that says something of every token, over those that can be read and are of its texts."""
        chosen = torch.zeros_like(passages.ids).scatter(1, hidden.where, (hidden.answer != IGNORE_INDEX).long()) > 0
        asked = maskable(passages, self.vocabulary) & ~chosen & (passages.task == PASSAGE_TASKS.index(task))
        answer = (passages.marks & OF_TOKENS[task] > 0).long().masked_fill(~asked, IGNORE_INDEX)
        return labels_loss(model.heads[task](known), answer, 1, self.tally, task)
