"""The base of objectives. Each declares the job that trains it, the heads and tokens it needs, its batches, and its reports."""

from collections.abc import Hashable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from qkv.base.config import Config
from qkv.data.passages import passage_batches
from qkv.objectives.tally import Tally


class ObjectiveConfig(Config):
    """The keys of an objective, and the facts about it that recipes and jobs need."""

    kind: str = ""
    job: ClassVar[Literal["translation", "pretraining", "finetuning"]]
    loads_as: ClassVar[str | None] = None  # the role of a run trained for it; None: that of the model's family
    needs_mask: ClassVar[bool] = False  # the tokenizer must have [MASK]
    needs_sentinels: ClassVar[bool] = False  # the tokenizer must have sentinels, T5's tokens for spans

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the heads that the objective needs on the network."""
        return ()


class Objective:
    """A training task; `loss(model, *batch.inputs)` is the sum of the losses of all labels of the batch."""

    config_class: ClassVar[type[ObjectiveConfig]]
    # The logged figure that a model which knows only the frequencies of tokens cannot lower; None if there is none.
    unigram_figure: ClassVar[str | None] = None
    tasks_judged_after: float = 0.5  # share of the run after which accuracies must be above `chance`: sentence tasks begin late

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Any:
        """Build the objective for texts of a tokenizer (the target's, for translation)."""
        return cls(config)  # type: ignore[call-arg]

    def loss(self, model: Any, *inputs: Any) -> Tensor:
        """Return the sum of losses, in nats."""
        raise NotImplementedError

    def begin_update(self, done: float, device: torch.device) -> Hashable:
        """Prepare for an update; `done` is the fraction of all updates before it. -> its stage.

        Updates of one stage compute the same operations, so that one recording (a CUDA graph) serves them all.
        """
        return None

    def stages(self) -> tuple[tuple[float, float], ...]:
        """Return the share of all updates that each stage has, and an estimate of the time of its updates: the first's is 1."""
        return ((1.0, 1.0),)

    def unigram_loss(self, counts: np.ndarray) -> float:
        """Return the lowest loss per token, in nats, of a model that knows only these counts of tokens."""
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log(shares)).sum())

    def chance(self) -> dict[str, float]:
        """Return the accuracies and recalls that the objective logs, each with the value that guessing gives."""
        return {}


class PretrainingConfig(ObjectiveConfig):
    """An objective that learns from raw text."""

    job: ClassVar[Literal["translation", "pretraining", "finetuning"]] = "pretraining"
    whole_documents: ClassVar[bool] = False  # reads documents as running text; otherwise as passages of sentences

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        """Return the tasks of passages (names of `data.inputs.PASSAGE_TASKS`), each with its share and its first batch."""
        return {"masking": (1.0, 0)}

    def left_to_right_passages(self) -> "PretrainingConfig | None":
        """Return the objective on passages that the model can score left to right; None if it cannot."""
        return None

    def check_model(self, model: Any, length: int) -> None:
        """Raise ValueError unless the objective can train a model with this config on texts of `length` tokens."""


class PretrainingObjective(Objective):
    """An objective that learns from raw text; it reports the means in its tally."""

    config: Any
    tally: Tally

    batches: Any = passage_batches  # (documents, chosen, settings) -> endless batches, as the objective reads them
