"""What a fine-tuned model says of examples: classes, numbers, tags or answers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from qkv.base.config import Config
from qkv.data.encoding import Encoded
from qkv.data.labelled import answers_from, by_text, by_word, in_order
from qkv.objectives.answering import Answering
from qkv.objectives.classification import Classification
from qkv.objectives.regression import Regression
from qkv.objectives.tagging import Tagging
from qkv.parts.heads import Headed

OBJECTIVES: dict[str, Any] = {
    "classification": Classification,
    "regression": Regression,
    "tagging": Tagging,
    "answering": Answering,
}
TOGETHER = 8192  # tokens computed at once
TOKENS_A_TEXT = 8  # a row has room for so many tokens to each text


class Class(NamedTuple):
    """What a text is, and how sure the model is of it."""

    label: str
    probability: float


def predicted(
    objective: Config,
    model: Headed,
    encoded: Encoded,
    examples: Sequence[Any],
    labels: Sequence[str],
    *,
    length: int,
    pad: int,
    always: bool = False,
) -> list[Any]:
    """For each example a Class, a number, the tags of its words, or an Answer; examples are `encoded` in texts of that length.

    `always` is whether every question has an answer.
    """
    said = _outputs(objective, model, encoded, length, pad)
    if encoded.kind == "tagging":
        return [[labels[number] for number in chances.argmax(-1)] for chances in by_word(encoded, said)]
    found = by_text(encoded, said)
    if encoded.kind == "answering":
        return answers_from(encoded, examples, found, always)
    if encoded.kind == "regression":
        return found.tolist()
    return [Class(labels[number], float(chances[number])) for number, chances in zip(found.argmax(-1), found, strict=True)]


@torch.no_grad()
def _outputs(
    objective: Config, model: Headed, encoded: Encoded, length: int, pad: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What the objective makes of each batch, and which texts are where in it."""
    kind = OBJECTIVES[encoded.kind](objective)
    device = next(model.parameters()).device
    texts = max(1, length // TOKENS_A_TEXT)
    for batch, numbers in in_order(encoded, rows=max(1, TOGETHER // length), length=length, texts=texts, pad=pad):
        yield numbers, kind.outputs(model, *batch.to(device).inputs).cpu().numpy()
