"""Regression: predict a number for a text or a pair of texts, such as the similarity of two sentences, by one output.

R rows, M texts in a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.data.encoded import EncodedExamples, EncodedLabelledTexts
from qkv.data.encoding import EncodingConfig, encode_texts
from qkv.data.inputs import LabelledTexts
from qkv.objectives.classification import text_logits
from qkv.objectives.finetuning import ExplainedOutput, FinetuningConfig, Metric, TextObjective
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.examples import NUMBER_READERS, TextExample, is_number
from qkv.text.metrics import pearson, spearman
from qkv.text.tokenizer import Tokenizer


class RegressionConfig(FinetuningConfig):
    kind: Literal["regression"] = "regression"

    @property
    def heads(self) -> tuple[str, ...]:
        return ("pooler", "classes")


class Regression(TextObjective):
    """The squared error of each text's number, summed over texts."""

    config_class: ClassVar[type[ObjectiveConfig]] = RegressionConfig
    readers = NUMBER_READERS
    prediction_types: ClassVar[Mapping[str, Any]] = {"value": float}
    metrics: ClassVar[Mapping[str, Metric]] = {"spearman": spearman, "pearson": pearson}

    def loss(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the sum of squared errors."""
        error = self.outputs(model, labelled) - labelled.labels
        return error.masked_fill(labelled.labels.isnan(), 0.0).square().sum()

    def outputs(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the predicted number of each text. -> (R, M)."""
        return text_logits(model, labelled).squeeze(-1)

    def encode(
        self,
        examples: Sequence[TextExample],
        tokenizer: Tokenizer,
        config: EncodingConfig,
        label_names: Sequence[str] = (),
    ) -> EncodedLabelledTexts:
        numbers = [float("nan") if example.label is None else float(example.label) for example in examples]
        return encode_texts(examples, tokenizer, config.length, np.array(numbers, dtype=np.float32))

    def is_labelled(self, example: TextExample) -> bool:
        return example.label is not None and is_number(example.label)

    def initialise(self, model: ModelWithHeads, train: EncodedExamples) -> None:
        """Let the bias begin with the mean of the numbers: fine-tuning's learning rates would move it by about 0.01 only."""
        head: Any = model.heads["classes"]
        nn.init.constant_(head.output.bias, float(train.labels.mean()))

    def predictions(self, outputs: Sequence[np.ndarray], label_names: Sequence[str]) -> list[float]:
        return [float(output) for output in outputs]

    def score(
        self,
        metric: Metric,
        outputs: Sequence[np.ndarray],
        examples: Sequence[TextExample],
        label_names: Sequence[str],
    ) -> float:
        return metric([float(output) for output in outputs], [float(str(example.label)) for example in examples])

    def lines(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> Iterator[str]:
        return (f"{number:.4f}" for number in predictions)

    def to_json(self, prediction: float) -> dict[str, Any]:
        return {"value": prediction}

    def explain(self, output: Tensor, label_names: Sequence[str], instead: str | None = None) -> ExplainedOutput:
        if instead is not None:
            raise ConfigError("this model predicts a number, which has no label to compare with; leave out instead")
        number = f"{float(output):.3f}"
        return ExplainedOutput(number, f"the number {number}", lambda output: output)
