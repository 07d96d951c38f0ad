"""Continual multi-task learning: ERNIE 2.0 (Sun et al. 2020).

Tasks are added one after the other, and earlier ones go on: from its first batch on, a task gets its share of the texts. Every
text is masked by knowledge units, and belongs to one further task, which the model reads as a task embedding:

    capital       word-aware: does a word have a capital letter?
    document      word-aware: does a token occur elsewhere in its document?
    reorder       structure-aware: in what order were the parts of a paragraph shuffled?
    distance      structure-aware: are two sentences neighbours, of one document, or of two?
    next, order   BERT's and ALBERT's tasks on two passages, as in masked.py

The data makes the texts and follows the schedule; the losses are here. Where we depart from the paper: we leave out its semantic
tasks (discourse markers, search logs), which need more than plain text.
R rows, W width, M texts in a row, D width of the model, C labels.
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from qkv.base.config import Config
from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import CAPITAL, OCCURS_ELSEWHERE, PASSAGE_TASKS, Passages
from qkv.objectives.masked import MaskingObjective, label_loss, masked_lm_loss, pooled_texts, text_lengths
from qkv.objectives.masking import MaskedBatch, MaskingConfig, Units, maskable
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts.heads import ModelWithHeads

ERNIE_TASKS = PASSAGE_TASKS[: PASSAGE_TASKS.index("document") + 1]  # those with a task embedding, in its order
TOKEN_TASKS = {"capital": CAPITAL, "document": OCCURS_ELSEWHERE}  # tasks that predict for each token whether it has a mark


class TaskConfig(Config):
    """One task beside masking."""

    task: Literal["capital", "document", "reorder", "distance", "next", "order"]
    first_batch: int = Field(default=0, ge=0)  # the batch from which on it is trained
    weight: float = Field(default=1.0, ge=0)  # of its loss; masking's is 1


class ErnieTasksConfig(MaskingConfig):
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
        """Name the heads: one for each task, with the task's name."""
        names = tuple(each.task for each in self.tasks)
        return ("masked", *(() if set(names) <= TOKEN_TASKS.keys() else ("pooler",)), *names)

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        return super().passage_tasks() | {each.task: (1.0, each.first_batch) for each in self.tasks}

    def check_model(self, model: Any, length: int) -> None:
        if 0 < getattr(model, "task_types", 0) < len(ERNIE_TASKS):
            raise ValueError(
                f"model.task_types is below {len(ERNIE_TASKS)}, the number of all tasks; set model.task_types={len(ERNIE_TASKS)}"
            )


class ErnieTasks(MaskingObjective):
    """The sum of all losses in nats; a masked token counts for 1 / rate tokens, a text's label for all its tokens."""

    config_class: ClassVar[type[ObjectiveConfig]] = ErnieTasksConfig
    unigram_figure = "masked_loss"

    def loss(self, model: ModelWithHeads, passages: Passages, masked: MaskedBatch | None = None) -> Tensor:
        """Return the loss on rows that are masked anew, or as `masked` says."""
        masked = masked or self.mask(passages)
        rows = passages.rows._replace(ids=masked.ids)
        has_task_embedding = model.encoder.embedding.task_embedding is not None  # ERNIE 2.0 has one, ERNIE 1.0 not
        hidden = model.encoder(rows, passages.segment, passages.task if has_task_embedding else None)  # (R, W, D)
        loss = masked_lm_loss(model, hidden, masked, self.tally) / self.config.rate
        for each in self.config.tasks:
            task_loss = self.token_task_loss if each.task in TOKEN_TASKS else self.text_task_loss
            loss = loss + each.weight * task_loss(each.task, model, hidden, passages, masked)
        return loss

    def text_task_loss(self, task: str, model: ModelWithHeads, hidden: Tensor, passages: Passages, masked: MaskedBatch) -> Tensor:
        """Return the loss of a task with a label for each text, over the texts of this task."""
        text_task = passages.task.gather(1, passages.first)  # (R, M)
        labels = passages.labels.masked_fill(text_task != PASSAGE_TASKS.index(task), IGNORE_INDEX)
        logits = model.heads[task](pooled_texts(model, hidden, passages))  # (R, M, C)
        return label_loss(logits, labels, text_lengths(passages), self.tally, task)

    def token_task_loss(
        self, task: str, model: ModelWithHeads, hidden: Tensor, passages: Passages, masked: MaskedBatch
    ) -> Tensor:
        """Return the loss of a task with a label for each token, over the unmasked tokens of this task's texts."""
        chosen = torch.zeros_like(passages.ids).scatter(1, masked.columns, (masked.labels != IGNORE_INDEX).long()) > 0
        labelled = maskable(passages, self.vocabulary) & ~chosen & (passages.task == PASSAGE_TASKS.index(task))
        labels = (passages.flags & TOKEN_TASKS[task] > 0).long().masked_fill(~labelled, IGNORE_INDEX)
        return label_loss(model.heads[task](hidden), labels, 1, self.tally, task)
