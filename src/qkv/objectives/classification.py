"""Classification of a text or a pair of texts by the hidden state of its first token (Devlin et al. 2019, BERT, section 4.1).

A GPT is read at the last token, the only one that has seen the whole text, without a pooler (Radford et al. 2018, section 3.2);
we leave out that paper's auxiliary language modelling, and read a pair once, in one order, with an end token between. An ELMo is
read by the mean over all tokens, because none has seen the whole text in both directions.
R rows, W width, M texts in a row, D width of the model, C classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX
from qkv.data.encoded import EncodedLabelledTexts
from qkv.data.encoding import EncodingConfig, encode_texts
from qkv.data.inputs import LabelledTexts
from qkv.objectives.answering import same_text
from qkv.objectives.finetuning import ExplainedOutput, FinetuningConfig, Metric, TextObjective
from qkv.objectives.masked import text_lengths
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts.heads import ModelWithHeads, states_at
from qkv.text.examples import TEXT_READERS, TextExample, check_labels, find_labels
from qkv.text.metrics import accuracy, f1, matthews
from qkv.text.tokenizer import Tokenizer


class LabelPrediction(NamedTuple):
    """The predicted label of a text."""

    label: str
    probability: float


class ClassificationConfig(FinetuningConfig):
    kind: Literal["classification"] = "classification"
    smoothing: float = Field(default=0.0, ge=0, lt=1)  # label smoothing: probability spread evenly over all classes

    @property
    def heads(self) -> tuple[str, ...]:
        return ("pooler", "classes")


class Classification(TextObjective):
    """The cross-entropy of each text's class, summed over texts."""

    config_class: ClassVar[type[ObjectiveConfig]] = ClassificationConfig
    readers = TEXT_READERS
    prediction_types: ClassVar[Mapping[str, Any]] = {"label": str, "probability": float}
    metrics: ClassVar[Mapping[str, Metric]] = {"accuracy": accuracy, "f1": f1, "matthews": matthews}

    def loss(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the sum of losses in nats, with label smoothing while the model trains."""
        logits = text_logits(model, labelled).flatten(0, 1)
        smoothing = self.config.smoothing if model.training else 0.0
        labels = labelled.labels.flatten()
        return F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=smoothing)

    def outputs(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the probability of each class. -> (R, M, C)."""
        return text_logits(model, labelled).softmax(-1)

    def label_names(self, train: Sequence[TextExample]) -> tuple[str, ...]:
        return find_labels(train)

    def encode(
        self,
        examples: Sequence[TextExample],
        tokenizer: Tokenizer,
        config: EncodingConfig,
        label_names: Sequence[str] = (),
    ) -> EncodedLabelledTexts:
        check_labels(examples, label_names)
        number = {name: index for index, name in enumerate(label_names)}
        classes = [IGNORE_INDEX if example.label is None else number[example.label] for example in examples]
        return encode_texts(examples, tokenizer, config.length, np.array(classes, dtype=np.int64))

    def predictions(self, outputs: Sequence[np.ndarray], label_names: Sequence[str]) -> list[LabelPrediction]:
        return [LabelPrediction(label_names[int(output.argmax())], float(output.max())) for output in outputs]

    def score(
        self,
        metric: Metric,
        outputs: Sequence[np.ndarray],
        examples: Sequence[TextExample],
        label_names: Sequence[str],
    ) -> float:
        number = {label: index for index, label in enumerate(label_names)}
        classes = [int(np.argmax(p)) for p in outputs], [number[str(example.label)] for example in examples]
        return metric(*classes, len(label_names))

    def lines(self, examples: Sequence[TextExample], predictions: Sequence[LabelPrediction]) -> Iterator[str]:
        return (f"{prediction.label}\t{prediction.probability:.4f}" for prediction in predictions)

    def to_json(self, prediction: LabelPrediction) -> dict[str, Any]:
        return prediction._asdict()

    def explain(self, output: Tensor, label_names: Sequence[str], instead: str | None = None) -> ExplainedOutput:
        best = int(output.argmax())
        names = label_names or [str(number) for number in range(len(output))]
        label, shown = names[best], f"{names[best]} ({float(output[best]):.0%})"
        if instead is not None:
            if instead not in names or instead == label:
                others = ", ".join(name for name in names if name != label)
                raise ConfigError(f"“{instead}” is not another label that this model might predict; choose one of: {others}")
            other = names.index(instead)
            description = f"the class “{label}” instead of “{instead}”"
            return ExplainedOutput(shown, description, lambda output: output[best].log() - output[other].log())
        return ExplainedOutput(shown, f"the class “{label}”", lambda output: output[best].log())


def text_logits(model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
    """Return the logits of each text, in float32. -> (R, M, C)."""
    hidden = model.encoder(labelled.rows, labelled.segment)  # (R, W, D)
    if model.encoder.summary == "mean":
        vectors = mean_states(hidden, labelled)  # (R, M, D)
    else:
        vectors = states_at(hidden, last_columns(labelled) if model.encoder.summary == "last" else labelled.first)
    pooled = model.heads["pooler"](vectors.flatten(0, 1)) if "pooler" in model.heads else vectors.flatten(0, 1)
    return model.heads["classes"](pooled).float().unflatten(0, vectors.shape[:2])


def mean_states(hidden: Tensor, labelled: LabelledTexts) -> Tensor:
    """Return the mean over the tokens of each text. (R, W, D) -> (R, M, D), 0 where there is no text."""
    own = same_text(labelled).to(hidden.dtype)  # (R, M, W)
    return own @ hidden / own.sum(-1, keepdim=True).clamp(min=1)


def last_columns(labelled: LabelledTexts) -> Tensor:
    """Return the column of each text's last token. -> (R, M), 0 where there is no text."""
    return (labelled.first + text_lengths(labelled) - 1).clamp(min=0)
