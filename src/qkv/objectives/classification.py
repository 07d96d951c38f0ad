"""Classification of a text or a pair of texts by what is known at its first token (Devlin et al. 2019, BERT, section 4.1).

In a GPT only the last token has seen the whole text, so there it is that one (Radford et al. 2018, section 3.2), as it is; that
paper's language modelling beside the task is not here, and a pair is read once, with an end between, in one order. No
place of an ELMo has both of its directions seen all of the text: there it is the mean over all places.
R rows, M texts of a row, D width, C classes.
"""

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import Labelled
from qkv.objectives.answering import same_text
from qkv.objectives.masked import tokens_of_texts
from qkv.objectives.objective import FinetuningConfig, Objective, ObjectiveConfig
from qkv.parts.heads import ModelWithHeads, states_at


class ClassificationConfig(FinetuningConfig):
    kind: Literal["classification"] = "classification"
    smoothing: float = Field(default=0.0, ge=0, lt=1)  # probability spread evenly over all classes

    @property
    def heads(self) -> tuple[str, ...]:
        return ("pooler", "classes")


class Classification(Objective):
    """The cross-entropy of each text's class, summed over texts."""

    config_class: ClassVar[type[ObjectiveConfig]] = ClassificationConfig

    def __init__(self, config: ClassificationConfig):
        self.config = config

    def loss(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        """In nats; smoothed while the model trains."""
        scores = scores_of_texts(model, labelled)
        spread = self.config.smoothing if model.training else 0.0
        answer = labelled.answer.flatten()
        return F.cross_entropy(scores.flatten(0, 1), answer, ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=spread)

    def outputs(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        """The probability of each class. -> (R, M, C)."""
        return scores_of_texts(model, labelled).softmax(-1)


def scores_of_texts(model: ModelWithHeads, labelled: Labelled) -> Tensor:
    """What the head says of each text, in float32. -> (R, M, C)."""
    hidden = model.encoder(labelled.rows, labelled.segment)  # (R, W, D)
    known = _vectors(model, hidden, labelled)  # (R, M, D)
    pooled = model.heads["pooler"](known.flatten(0, 1)) if "pooler" in model.heads else known.flatten(0, 1)
    return model.heads["classes"](pooled).float().unflatten(0, known.shape[:2])


def _vectors(model: ModelWithHeads, hidden: Tensor, labelled: Labelled) -> Tensor:
    """What the encoder knows of each text: at its last or its first place, or on average. (R, W, D) -> (R, M, D)."""
    if model.encoder.summary == "mean":
        return means(hidden, labelled)
    return states_at(hidden, last_positions(labelled) if model.encoder.summary == "last" else labelled.first)


def means(hidden: Tensor, labelled: Labelled) -> Tensor:
    """The mean over the places of each text. (R, W, D) -> (R, M, D), 0 where there is none."""
    own = same_text(labelled).to(hidden.dtype)  # (R, M, W)
    return own @ hidden / own.sum(-1, keepdim=True).clamp(min=1)


def last_positions(labelled: Labelled) -> Tensor:
    """Where in the row each text ends. -> (R, M), 0 where there is none."""
    return (labelled.first + tokens_of_texts(labelled) - 1).clamp(min=0)
