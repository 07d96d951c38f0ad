"""The base of objectives that learn from labelled examples.

A task says here how its examples are read and encoded, and how its predictions are made, scored, printed and sent.
"""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.data.encoded import EncodedExamples
from qkv.data.encoding import EncodingConfig
from qkv.data.inputs import LabelledTexts
from qkv.data.labelled import by_text
from qkv.objectives.objective import Objective, ObjectiveConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.check import normalise
from qkv.text.examples import ExampleReader, TextExample, find_headers
from qkv.text.tokenizer import Tokenizer

Outputs = Iterable[tuple[np.ndarray, np.ndarray]]  # of each batch: the texts' numbers, and the model's outputs
Metric = Callable[..., float]  # takes predictions and labels, see `score`; higher is better


class FinetuningConfig(ObjectiveConfig):
    """An objective that learns from labelled examples."""

    job: ClassVar[Literal["translation", "pretraining", "finetuning"]] = "finetuning"
    loads_as: ClassVar[str | None] = "encoder"
    always_pairs: ClassVar[bool] = False  # every example is a pair of texts

    def check_model(self, model: Any) -> None:
        """Raise ValueError unless the objective can fine-tune a model with this config."""


class ExplainedOutput(NamedTuple):
    """An output in words, and the value that attribution explains."""

    output: str
    description: str
    value: Callable[[Tensor], Tensor]  # from the output of a text to a log-probability or a number


class FinetuningObjective(Objective, ABC):
    """An objective that learns from labelled examples."""

    readers: ClassVar[Mapping[str, ExampleReader]]  # of files of examples, by data.format
    metrics: ClassVar[Mapping[str, Metric]]  # by name; the first one is the default for selecting the best weights
    text_names: ClassVar[tuple[str, ...]] = ("text 1", "text 2")  # of an example, for errors
    prediction_types: ClassVar[Mapping[str, Any]]  # of each key of `to_json`: str, float, or a list of one of them
    input_format: ClassVar[Literal["text", "words", "question"]]  # as the service and its page call it; text also for pairs

    def __init__(self, config: Any):
        self.config = config

    @classmethod
    def find_metric(cls, name: str) -> Metric:
        """Return the metric of that name; raise ConfigError if the task has none."""
        if name not in cls.metrics:
            near = difflib.get_close_matches(name.lower(), cls.metrics, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(cls.metrics)}"
            raise ConfigError(f"no metric {name!r} of {cls.config_class.model_fields['kind'].default}; {hint}")
        return cls.metrics[name]

    @abstractmethod
    def example_format(self, texts: int) -> str:
        """Say in words what a user's example is, for errors; `texts` is the number of texts of an example in training."""

    @abstractmethod
    def parse_example(self, given: Any) -> Any:
        """Return a user's example in the form in which `read_examples` returns examples.

        Raise ValueError if it has another format; the message says what the example is or has, such as "is int".
        """

    def is_labelled(self, example: Any) -> bool:
        """Return whether an example of the task has its label."""
        return bool(example.labels)

    def label_names(self, train: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of the labels in training examples, in order; none if labels have no names."""
        return ()

    def suspected_headers(self, train: Sequence[Any]) -> list[TextExample]:
        """Return training examples that look like the header of a table."""
        return []

    def check_examples(self, examples: Sequence[Any]) -> None:
        """Raise DataError for labelled examples that the task cannot learn from."""

    @abstractmethod
    def encode(
        self, examples: Sequence[Any], tokenizer: Tokenizer, config: EncodingConfig, label_names: Sequence[str] = ()
    ) -> EncodedExamples:
        """Encode examples as texts of at most `config.length` tokens."""

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
    def score(self, metric: Metric, outputs: Sequence[Any], examples: Sequence[Any], label_names: Sequence[str]) -> float:
        """Return the score of the outputs for labelled examples by one of the task's metrics."""

    @abstractmethod
    def lines(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Iterator[str]:
        """Yield the lines that `qkv predict` prints."""

    @abstractmethod
    def to_json(self, prediction: Any) -> dict[str, Any]:
        """Return a prediction as the service sends it."""

    def explain(self, output: Tensor, label_names: Sequence[str], instead: str | None = None) -> ExplainedOutput | None:
        """Describe the output for one text for `qkv look`; None for a task that has no single output.

        With `instead`, the value tells it apart from that label.
        """
        return None


class TextObjective(FinetuningObjective):
    """A task whose examples are texts or pairs of texts with one label each."""

    input_format = "text"

    def example_format(self, texts: int) -> str:
        return "a text" if texts == 1 else "a pair of texts"

    def parse_example(self, given: Any) -> TextExample:
        if isinstance(given, TextExample):
            return given
        if type(given) not in (str, list, tuple):
            raise ValueError(f"is {type(given).__name__}")
        texts = (given, None) if isinstance(given, str) else given
        if len(texts) != 2:
            raise ValueError(f"is a {type(given).__name__} of {len(texts)}")
        first, second = (None if text is None else require_str(text, f"text {n}") for n, text in enumerate(texts, 1))
        if first is None:
            raise ValueError("has None for text 1")
        return TextExample(first, second, None, "", 0)

    def suspected_headers(self, train: Sequence[TextExample]) -> list[TextExample]:
        return find_headers(train)

    def outputs_by_example(self, encoded: EncodedExamples, examples: Sequence[Any], outputs: Outputs) -> list[Any]:
        return list(by_text(encoded, outputs))


def require_str(given: Any, name: str) -> str:
    """Return a user's text, normalised; raise ValueError if it is no text."""
    if not isinstance(given, str):
        raise ValueError(f"has {type(given).__name__} for {name}")
    return normalise(given)
