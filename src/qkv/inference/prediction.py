"""Predictions of a fine-tuned network for examples: probabilities, numbers, tags or answers, and their scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qkv.base.errors import ConfigError
from qkv.data.encoding import EncodedExamples
from qkv.data.labelled import BatchShape, by_text, by_word, extract_answers, in_order
from qkv.parts.heads import ModelWithHeads
from qkv.text.check import normalise
from qkv.text.examples import Question, TaggedExample, TextExample
from qkv.text.metrics import METRICS


def unlabelled_example(kind: str, number: int, given: Any) -> Any:
    """Return a user's example in the form in which `read_examples` returns examples, without a label."""
    if isinstance(given, TextExample | TaggedExample | Question):
        return given
    if kind == "tagging":
        if isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(word, str) for word in given):
            return TaggedExample(list(given), [], "", 0)
        wanted = "a list of words"
    else:
        pair = (given, None) if isinstance(given, str) else given
        if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str | None):
            first, second = pair
            if kind == "answering":
                return Question("", first, second or "", [], "", 0, 0)
            return TextExample(normalise(first), None if second is None else normalise(second), None, "", 0)
        wanted = "a question and its context" if kind == "answering" else "a text or a pair of texts"
    raise ConfigError(f"predict takes {wanted} for each example, and example {number} is {type(given).__name__}; give {wanted}")


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
