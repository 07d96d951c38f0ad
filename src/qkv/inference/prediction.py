"""Predictions of a fine-tuned network for examples: probabilities, numbers, tags or answers, and their scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qkv.data.encoding import EncodedExamples
from qkv.data.labelled import BatchShape, by_text, by_word, extract_answers, in_order
from qkv.parts.heads import ModelWithHeads
from qkv.text.metrics import METRICS


@torch.no_grad()
def predict_examples(
    model: ModelWithHeads, objective: Any, encoded: EncodedExamples, examples: Sequence[Any], shape: BatchShape
) -> list[Any]:
    """Return for each example the probabilities of its labels, a number, the probabilities of each word's tags, or an Answer."""
    device = next(model.parameters()).device
    outputs = []
    for batch, numbers in in_order(encoded, shape):
        (labelled,) = batch.to(device).inputs
        outputs.append((numbers, objective.outputs(model, labelled).float().cpu().numpy()))
    if encoded.kind == "tagging":
        return by_word(encoded, outputs)
    if encoded.kind == "answering":
        return extract_answers(encoded, examples, by_text(encoded, outputs), all_answerable=objective.config.all_answerable)
    return list(by_text(encoded, outputs))


def score_predictions(
    kind: str, metric: str, predictions: Sequence[Any], examples: Sequence[Any], labels: Sequence[str]
) -> float:
    """Return the score of predictions by one of the metrics of text/metrics.py."""
    function = METRICS[metric].function
    if kind == "classification":
        number = {label: index for index, label in enumerate(labels)}
        classes = [int(np.argmax(p)) for p in predictions], [number[example.label] for example in examples]
        # F1 needs the number of classes; Matthews' correlation does not change with classes that never occur.
        return function(*classes, len(labels)) if metric == "f1" else function(*classes)
    if kind == "regression":
        return function([float(p) for p in predictions], [float(example.label) for example in examples])
    if kind == "tagging":
        tags = [[labels[index] for index in p.argmax(-1)] for p in predictions]
        return function(tags, [example.tags for example in examples])
    return function([p.text for p in predictions], [[text for _, text in example.answers] for example in examples])
