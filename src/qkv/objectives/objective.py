"""What every objective declares: the job that trains it, the heads and tokens it needs, the batches it reads, what it reports."""

from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from torch import Tensor

from qkv.base.config import Config
from qkv.data.documents import Documents
from qkv.data.passages import PassageBatches
from qkv.objectives.tally import Tally


class ObjectiveConfig(Config):
    """The keys of an objective, and the facts that recipes and jobs ask of it."""

    kind: str = ""
    job: ClassVar[Literal["translation", "pretraining", "finetuning"]]
    loads_as: ClassVar[str | None] = None  # what a run trained for it is used as; None: what the model's family says
    needs_mask: ClassVar[bool] = False  # the tokenizer must have [MASK]
    needs_sentinels: ClassVar[bool] = False  # the tokenizer must have sentinels, T5's tokens for spans

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the heads that the objective needs on the network."""
        return ()


class Objective:
    """A training task: `loss(model, *inputs of a batch)` is the sum of the losses of all labels of the batch."""

    config_class: ClassVar[type[ObjectiveConfig]]

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        """Build the objective for texts of a tokenizer (the target's, for translation)."""
        return cls(config)  # type: ignore[call-arg]

    def loss(self, model: Any, *inputs: Any) -> Tensor:
        """Return the sum of losses, in nats."""
        raise NotImplementedError


class PretrainingConfig(ObjectiveConfig):
    """An objective that learns from raw text."""

    job: ClassVar[Literal["translation", "pretraining", "finetuning"]] = "pretraining"
    whole_documents: ClassVar[bool] = False  # reads documents as they stand, in rows; otherwise in passages of sentences

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        """Return what passages are made for (names of `data.inputs.PASSAGE_TASKS`): share, and first batch with it."""
        return {"masking": (1.0, 0)}

    def left_to_right_passages(self) -> "PretrainingConfig | None":
        """Return the objective with plain passages, on which the model can predict left to right; None if it cannot."""
        return None

    def check_model(self, model: Any, length: int) -> None:
        """Raise ValueError unless the objective can train such a model on texts of `length` tokens."""


class BatchSettings(NamedTuple):
    """What batches of raw text depend on, the text itself aside."""

    seed: int
    tokens: int  # of a batch
    length: int  # of a row
    bos: int
    eos: int
    pad: int
    one_text_per_row: bool = False
    fixed_shape: bool = False  # all batches have one shape, as a recorded update needs


class PretrainingObjective(Objective):
    """An objective that learns from raw text, and reports the means that its tally holds."""

    config: Any
    tally: Tally

    def batches(self, documents: Documents, chosen: np.ndarray, settings: BatchSettings) -> Any:
        """Return endless batches of the chosen documents, as the objective reads them."""
        return PassageBatches(
            documents=documents,
            chosen=chosen,
            seed=settings.seed,
            rows=max(1, settings.tokens // settings.length),
            length=settings.length,
            bos=settings.bos,
            eos=settings.eos,
            pad=settings.pad,
            tasks=self.config.passage_tasks(),
            one_text_per_row=settings.one_text_per_row,
            running=self.config.whole_documents,
        )


class FinetuningConfig(ObjectiveConfig):
    """An objective that learns from labelled examples."""

    job: ClassVar[Literal["translation", "pretraining", "finetuning"]] = "finetuning"
    loads_as: ClassVar[str | None] = "encoder"

    def check_model(self, model: Any) -> None:
        """Raise ValueError unless the objective can fine-tune such a model."""
