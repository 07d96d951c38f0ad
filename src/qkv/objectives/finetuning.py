"""The base of objectives that learn from labelled examples.

A task says here how its examples are encoded, and how its predictions are made, scored, printed and sent.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from qkv.data.encoded import EncodedExamples
from qkv.data.encoding import STRIDE
from qkv.data.inputs import LabelledTexts
from qkv.data.labelled import by_text
from qkv.objectives.objective import Objective
from qkv.parts.heads import ModelWithHeads
from qkv.text.check import normalise
from qkv.text.examples import TextExample
from qkv.text.tokenizer import Tokenizer

Outputs = Iterable[tuple[np.ndarray, np.ndarray]]  # of each batch: the texts' numbers, and the model's outputs


class ExplainedOutput(NamedTuple):
    """An output in words, and the value that attribution explains."""

    output: str
    description: str
    value: Callable[[Tensor], Tensor]  # from the output of a text to a log-probability or a number


class FinetuningObjective(Objective, ABC):
    """An objective that learns from labelled examples."""

    input_format: ClassVar[str]  # words or question; text of a task whose examples are texts or pairs
    example_format: ClassVar[str] = "a text or a pair of texts"  # in words, for errors

    def __init__(self, config: Any):
        self.config = config

    @abstractmethod
    def parse_example(self, given: Any) -> Any:
        """Return a user's example in the form in which `read_examples` returns examples; None if it has another format."""

    def is_labelled(self, example: Any) -> bool:
        """Return whether an example of the task has its label."""
        return bool(example.labels)

    def label_names(self, train: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of the labels in training examples, in order; none if labels have no names."""
        return ()

    def check_examples(self, examples: Sequence[Any]) -> None:
        """Raise DataError for labelled examples that the task cannot learn from."""

    @abstractmethod
    def encode(
        self, examples: Sequence[Any], tokenizer: Tokenizer, length: int, label_names: Sequence[str] = (), stride: int = STRIDE
    ) -> EncodedExamples:
        """Encode examples as texts of at most `length` tokens."""

    def initialise(self, model: ModelWithHeads, train: EncodedExamples) -> None:
        """Set initial weights of heads that depend on the training examples."""

    @abstractmethod
    def outputs(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the outputs for each text of a batch, or for each token. -> (R, M, ...) or (R, W, ...)."""

    @abstractmethod
    def outputs_by_example(self, encoded: Any, examples: Sequence[Any], outputs: Outputs) -> list[Any]:
        """Sort the outputs of all batches by example."""

    @abstractmethod
    def predictions(self, outputs: Sequence[Any], label_names: Sequence[str]) -> list[Any]:
        """Return what a user gets for each example."""

    @abstractmethod
    def score(
        self, metric: Callable[..., float], outputs: Sequence[Any], examples: Sequence[Any], label_names: Sequence[str]
    ) -> float:
        """Return the score of the outputs for labelled examples by one of the task's metrics."""

    @abstractmethod
    def lines(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Iterator[str]:
        """Yield the lines that `qkv predict` prints."""

    @abstractmethod
    def to_json(self, prediction: Any) -> dict[str, Any]:
        """Return a prediction as the service sends it."""

    def explain(self, output: Tensor, label_names: Sequence[str]) -> ExplainedOutput | None:
        """Describe the output for one text for `qkv look`; None for a task that has no single output."""
        return None


class TextObjective(FinetuningObjective):
    """A task whose examples are texts or pairs of texts with one label each."""

    input_format = "text"

    def parse_example(self, given: Any) -> TextExample | None:
        if isinstance(given, TextExample):
            return given
        texts = (given, None) if isinstance(given, str) else given
        if not isinstance(texts, list | tuple) or len(texts) != 2:
            return None
        first, second = texts
        if not isinstance(first, str) or not isinstance(second, str | None):
            return None
        return TextExample(normalise(first), None if second is None else normalise(second), None, "", 0)

    def outputs_by_example(self, encoded: EncodedExamples, examples: Sequence[Any], outputs: Outputs) -> list[Any]:
        return list(by_text(encoded, outputs))
