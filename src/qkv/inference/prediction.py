"""What a fine-tuned encoder says of examples, one prediction for each: the class, the number, the tags or the answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from qkv.data.encoding import EncodedExamples
from qkv.data.labelled import by_text, by_word, extract_answers, in_order
from qkv.parts.heads import ModelWithHeads
from qkv.text.metrics import METRICS

ROW_STEP = 64  # rows are a multiple of this wide
TOKENS_PER_TEXT = 8  # for each so many places of a row there may be one text


@dataclass(frozen=True)
class Shape:
    """Of all batches of some examples."""

    rows: int
    length: int  # of a row, in tokens
    texts: int  # most of them in a row

    @classmethod
    def of(cls, longest: int, tokens: int, one_text_per_row: bool) -> "Shape":
        """Rows wide enough for the longest text and, but for texts alone, for several short ones, of so many tokens in all."""
        length = max(-(-longest // ROW_STEP), 2) * ROW_STEP
        return cls(max(1, tokens // length), length, 1 if one_text_per_row else length // TOKENS_PER_TEXT)


@torch.no_grad()
def predict(
    model: ModelWithHeads,
    objective: Any,
    encoded: EncodedExamples,
    examples: Sequence[Any],
    labels: Sequence[str],
    shape: Shape,
    pad: int,
) -> list[Any]:
    """For each example: probabilities of the labels, a number, probabilities of the tags of each word, or an Answer."""
    device = next(model.parameters()).device
    said = []
    for batch, numbers in in_order(encoded, rows=shape.rows, length=shape.length, texts=shape.texts, pad=pad):
        (labelled,) = batch.to(device).inputs
        said.append((numbers, objective.outputs(model, labelled).float().cpu().numpy()))
    if encoded.kind == "tagging":
        return by_word(encoded, said)
    if encoded.kind == "answering":
        return extract_answers(encoded, examples, by_text(encoded, said), all_answerable=objective.config.all_answerable)
    return list(by_text(encoded, said))


def judged(kind: str, metric: str, predictions: Sequence[Any], examples: Sequence[Any], labels: Sequence[str]) -> float:
    """How good the predictions are, by one of the metrics of text/metrics.py."""
    function = METRICS[metric].function
    if kind == "classification":
        number = {label: position for position, label in enumerate(labels)}
        classes = [int(np.argmax(p)) for p in predictions], [number[example.label] for example in examples]
        # Matthews' correlation is the same however many classes are never seen; F1 is not.
        return function(*classes, len(labels)) if metric == "f1" else function(*classes)
    if kind == "regression":
        return function([float(p) for p in predictions], [float(example.label) for example in examples])
    if kind == "tagging":
        tags = [[labels[position] for position in p.argmax(-1)] for p in predictions]
        return function(tags, [example.tags for example in examples])
    return function([p.text for p in predictions], [[text for _, text in example.answers] for example in examples])
