"""Outputs of a fine-tuned network for examples."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from qkv.base.errors import ConfigError
from qkv.data.encoded import EncodedExamples
from qkv.data.labelled import BatchShape, in_order
from qkv.inference.arguments import require_list
from qkv.objectives.finetuning import FinetuningObjective
from qkv.parts.heads import ModelWithHeads


def parse_examples(objective: FinetuningObjective, texts: int, given: Iterable[Any]) -> list[Any]:
    """Return a user's examples in the form in which `read_examples` returns examples."""
    examples = []
    for number, one in enumerate(given, 1):
        try:
            example = objective.parse_example(one)
            for name, text in zip(objective.text_names, example.texts, strict=False):
                if not text.strip():
                    raise ValueError(f"has an empty {name}")
            examples.append(example)
        except ValueError as error:
            raise ConfigError(
                f"predict takes {objective.example_format(texts)} for each example, and example {number} {error}"
            ) from None
    return examples


def require_labelled(objective: FinetuningObjective, texts: int, given: Any) -> list[Any]:
    """Return labelled examples as a list; raise ConfigError for anything but what `read_examples` returns."""
    examples = require_list(given, "evaluate", "example")
    if not examples:
        raise ConfigError("evaluate takes a list of labelled examples, and this one is empty; give at least one")
    for number, one in enumerate(examples, 1):
        try:
            reason = "" if objective.parse_example(one) is one else f"is {type(one).__name__}"
        except ValueError as error:
            reason = str(error)
        if reason:
            raise ConfigError(
                f"evaluate takes labelled examples of {objective.config.kind}, and example {number} {reason}; "
                "read them with qkv.text.examples.read_examples"
            )
        if not objective.is_labelled(one):
            raise ConfigError(f"evaluate compares predictions with labels, and example {number} has none; call predict instead")
    return examples


@torch.no_grad()
def compute_outputs(
    model: ModelWithHeads, objective: FinetuningObjective, encoded: EncodedExamples, examples: Sequence[Any], shape: BatchShape
) -> list[Any]:
    """Return the network's outputs for each example: probabilities of its labels or of each word's, a number, or an Answer."""
    device = next(model.parameters()).device
    outputs = []
    for batch, numbers in in_order(encoded, shape):
        (labelled,) = batch.to(device).inputs
        outputs.append((numbers, objective.outputs(model, labelled).float().cpu().numpy()))
    return objective.outputs_by_example(encoded, examples, outputs)
